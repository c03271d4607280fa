//! `[bgp]` as a whole: BGP begins and ends while the RIB manager, BFD and the dataplanes go on.

use crate::run_state::RunState;
use ribtide_api::RouterState;
use ribtide_bgpd::monitor::Taps;
use ribtide_bgpd::{Bgp, BgpBuilder, initial_routes};
use ribtide_config::{BgpConfig, Config};
use ribtide_rib::Source;
use ribtide_ribd::RibHandle;
use ribtide_runtime::call::NoReply;
use ribtide_runtime::thread::Stop;
use std::fmt;
use std::io;
use std::sync::Arc;

/// Why BGP does not run. Displays as a sentence.
#[derive(Debug)]
pub enum NotBegun {
    /// An address cannot be bound, or a thread cannot be created.
    System(io::Error),
    /// A stage does not reply.
    NoReply(NoReply),
}

impl fmt::Display for NotBegun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotBegun::System(e) => e.fmt(f),
            NotBegun::NoReply(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for NotBegun {}

impl From<io::Error> for NotBegun {
    fn from(e: io::Error) -> NotBegun {
        NotBegun::System(e)
    }
}

impl From<NoReply> for NotBegun {
    fn from(e: NoReply) -> NotBegun {
        NotBegun::NoReply(e)
    }
}

/// Starts BGP, which listens already, with this RIB manager. No peer has retained routes of an earlier run in this process, so nothing is deferred.
pub(crate) fn begin(
    router: &RouterState,
    builder: BgpBuilder,
    config: &Config,
    bgp: &BgpConfig,
    rib: Option<RibHandle>,
    run_state: &RunState,
    stop: &Stop,
) -> Result<(), NotBegun> {
    let (news, builder) = (builder.bfd(), builder.with_bfd(router.bfd.learnt.clone()));
    let inbox = rib.as_ref().map(|rib| &rib.inbox);
    if let Some(rib) = &rib {
        let (shards, redistributed) = (builder.feedback_channels(), builder.redistributed());
        rib.handle.wait(move |stage| {
            stage.set_shards(shards);
            stage.set_sessions(Some(redistributed));
        })?;
    }
    let started = builder.start(config, bgp, inbox, &Taps::default(), router.clock, &router.meters, stop);
    let started = match started {
        Ok(started) => started,
        Err(e) => {
            forget(router)?;
            return Err(e.into());
        }
    };
    router.bfd.handle.wait(move |bfd| bfd.set_bgp(Some(news)))?;
    let left = bgp.restarts_gracefully().then(|| run_state.clone());
    let start = initial_routes::Start {
        neighbors: bgp.neighbors.len() + bgp.interfaces.len(),
        deferral: None,
        rib: inbox.cloned(),
        at_end: Box::new(move || left.iter().for_each(RunState::leave)),
    };
    initial_routes::watch(&started, start, router.rings.clone(), stop.clone())?;
    router.bgp.set(Some(Arc::new(started)));
    Ok(())
}

/// Ends BGP. Returns how many shards it ever had.
pub(crate) fn end(router: &RouterState, running: &Bgp, former: &BgpConfig) -> Result<u32, NoReply> {
    running.end(former);
    router.bgp.set(None);
    router.bfd.handle.wait(|bfd| bfd.set_bgp(None))?;
    forget(router)?;
    Ok(running.shards_ever())
}

/// The RIB manager forgets a BGP that does not run.
fn forget(router: &RouterState) -> Result<(), NoReply> {
    let rib = router.rib.get();
    let Some(rib) = &rib else { return Ok(()) };
    rib.handle.wait(|stage| {
        stage.set_shards(Vec::new());
        stage.set_sessions(None);
    })?;
    // Mostly none is left.
    rib.forget_source(Source::Bgp)
}
