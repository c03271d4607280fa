//! `[fib]` as a whole: the RIB manager begins and ends while BGP, BFD and the API go on.

use ribtide_api::RouterState;
use ribtide_bgpd::NotChanged;
use ribtide_config::{Config, FibConfig, VrfSetup};
use ribtide_rib::{RibConfig, RibIn, Source};
use ribtide_ribd::{RibBuilder, RibHandle, RibSetup, VrfsSetup};
use ribtide_runtime::call::NoReply;
use ribtide_runtime::thread::Stop;
use std::io;

/// How the RIB manager of a configuration resolves, and whose routes it awaits before the end of a replay.
pub(crate) fn rib_config(fib: &FibConfig) -> RibConfig {
    let mut initial_sources = vec![Source::Static, Source::Bgp];
    if fib.kernel.as_ref().is_some_and(|kernel| kernel.import) {
        initial_sources.push(Source::Kernel);
    }
    RibConfig {
        resolve_via_default: fib.resolve_via_default,
        max_ecmp: fib.max_ecmp,
        underlay_weights: fib.underlay_weights,
        cache: fib.nexthop_cache,
        initial_sources,
        ..RibConfig::default()
    }
}

/// Starts the RIB manager without dataplanes and without BGP, which are added to it.
///
/// # Errors
/// The system gives no thread.
pub(crate) fn begin(
    router: &RouterState,
    config: &Config,
    fib: &FibConfig,
    vrfs: &[VrfSetup],
    stop: &Stop,
) -> io::Result<RibHandle> {
    let setup = RibSetup {
        config: rib_config(fib),
        vrfs: VrfsSetup::new(config, vrfs.to_vec()),
        shards: Vec::new(),
        suppress: fib.suppress_fib_pending,
        policy: fib.policy.clone(),
        redistribution: Default::default(),
        clock: router.clock,
    };
    let rib = RibBuilder::new(&router.rings).start(setup, &router.meters, stop.clone())?;
    if config.bgp.is_none() {
        // The thread has just started.
        let _ = rib.inbox.send(RibIn::EndOfInitial(Source::Bgp));
    }
    router.rib.set(Some(rib.clone()));
    Ok(rib)
}

/// BFD tells the RIB manager of gateways from now on.
pub(crate) fn connect_bfd(router: &RouterState) -> Result<(), NoReply> {
    let failures = router.rib.get().map(|rib| rib.failures());
    router.bfd.handle.wait(|bfd| bfd.set_rib(failures))
}

/// BGP, if it runs, sends the RIB manager its routes from now on. A BGP that begins later connects itself.
pub(crate) fn connect_bgp(router: &RouterState) -> Result<(), NotChanged> {
    match (router.bgp.get(), router.rib.get()) {
        (Some(bgp), Some(rib)) => bgp.connect_rib(&rib),
        _ => Ok(()),
    }
}

/// BGP, if it runs, goes on without the RIB manager.
pub(crate) fn disconnect_bgp(router: &RouterState) -> Result<(), NotChanged> {
    match (router.bgp.get(), router.rib.get()) {
        (Some(bgp), Some(rib)) => bgp.disconnect_rib(&rib),
        _ => Ok(()),
    }
}

/// Ends the RIB manager, which has neither dataplanes nor BGP any more.
pub(crate) fn end(router: &RouterState) -> Result<(), NoReply> {
    if let Some(rib) = router.rib.set(None) {
        rib.end();
    }
    connect_bfd(router)
}
