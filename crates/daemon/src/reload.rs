//! Reload of the configuration file: applies all changes, or none if one of them needs a restart.

use crate::effects::{self, Effect};
use crate::router::start_rpki;
use crate::vrf_numbers::VrfNumbers;
use ribtide_api::{ApiServer, ListenError, Reload, RouterState, resized};
use ribtide_bgpd::resize::{NotResized, Resized};
use ribtide_bgpd::session::Neighbors;
use ribtide_bgpd::{Bgp, decision_options};
use ribtide_config::{self as config, BgpConfig, Config, ConfigError, FibConfig, Threads, VrfSetup};
use ribtide_dataplane::kernel::InterfaceWatch;
use ribtide_model::{NextHopCacheSet, Reloaded, SuppressionSet};
use ribtide_rib::ResolutionSettings;
use ribtide_ribd::{RibHandle, VrfsChanged, VrfsSetup};
use ribtide_runtime::call::NoReply;
use ribtide_runtime::log::{self, target};
use ribtide_runtime::thread::Stop;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

/// Why a reload changed nothing. Displays as a sentence, or as `ribtide check` would.
#[derive(Debug)]
pub enum NotReloaded {
    /// The router was not started from a file.
    NoFile,
    /// The file cannot be used.
    Invalid(ConfigError),
    /// These keys cannot change while the router runs.
    Fixed(Vec<&'static str>),
    /// Another reload is under way.
    Busy,
    /// The number of shards.
    Shards(NotResized),
    /// BFD.
    Bfd(io::Error),
    /// The BFD thread does not reply.
    NoBfd(NoReply),
    /// The RPKI thread does not reply.
    NoRpki(NoReply),
    /// The BMP or the MRT thread does not reply.
    NoMonitor(NoReply),
    /// The RPKI thread cannot start.
    Rpki(io::Error),
    /// The API cannot listen.
    Api(ListenError),
    /// The neighbours.
    Neighbors(String),
    /// The session thread does not reply.
    NoReply(NoReply),
    /// The RIB manager, or a later stage, does not reply.
    NoRib(NoReply),
    /// A VRF is not as required.
    Vrf(String),
}

impl fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReloaded::NoFile => {
                write!(
                    f,
                    "this router was not started from a file; `ribtide run -c FILE` starts one that can reload it"
                )
            }
            NotReloaded::Invalid(e) => e.fmt(f),
            NotReloaded::Fixed(keys) => write!(
                f,
                "nothing is reloaded, because {} cannot change while the router runs; restart it, or change {} back",
                keys.join(", "),
                if keys.len() == 1 { "it" } else { "them" }
            ),
            NotReloaded::Vrf(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Busy => write!(f, "a reload is under way; try again when it is done"),
            NotReloaded::Shards(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Api(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Bfd(e) | NotReloaded::Rpki(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::NoBfd(e) | NotReloaded::NoRpki(e) | NotReloaded::NoMonitor(e) => {
                write!(f, "nothing is reloaded: {e}")
            }
            NotReloaded::Neighbors(e) => write!(f, "no neighbour is reloaded: {e}"),
            NotReloaded::NoReply(e) => write!(f, "no neighbour is reloaded: {e}"),
            NotReloaded::NoRib(e) => {
                write!(f, "neighbours are reloaded, and routes, VRFs and the [fib] table may not be: {e}")
            }
        }
    }
}

impl std::error::Error for NotReloaded {}

/// The state for reloads: the router, and more.
pub(crate) struct Reloader {
    router: Arc<RouterState>,
    /// The file.
    file: Option<PathBuf>,
    /// Locked during a reload; the numbers of VRFs.
    numbers: Mutex<VrfNumbers>,
    /// The watch of the interfaces of the kernel, without a kernel dataplane.
    links: Option<InterfaceWatch>,
    stop: Stop,
    /// The API, once it runs. Its server holds this.
    api: OnceLock<Weak<ApiServer>>,
}

impl Reloader {
    /// For a router started from `file`, with these numbers of VRFs.
    pub(crate) fn new(
        router: Arc<RouterState>,
        file: Option<PathBuf>,
        numbers: VrfNumbers,
        links: Option<InterfaceWatch>,
        stop: Stop,
    ) -> Reloader {
        Reloader { router, file, numbers: Mutex::new(numbers), links, stop, api: OnceLock::new() }
    }

    /// Notes the API, whose listeners a reload changes.
    pub(crate) fn set_api(&self, api: &Arc<ApiServer>) {
        // It runs once.
        let _ = self.api.set(Arc::downgrade(api));
    }

    /// The reload function of the API.
    pub(crate) fn for_api(self: Arc<Self>) -> Reload {
        Box::new(move || self.reload().map_err(|e| e.to_string()))
    }

    /// Reads the file again and applies its changes, those that may fail first.
    ///
    /// # Errors
    /// Why nothing changed. After the first step, which is the API's listeners, these may have changed; after
    /// [`NotReloaded::Shards`] also BFD sessions and RPKI caches; after
    /// [`NotReloaded::Neighbors`] and [`NotReloaded::NoReply`] also the number of shards; after
    /// [`NotReloaded::NoRib`] everything except static routes, VRFs and the `[fib]` table.
    pub(crate) fn reload(&self) -> Result<Reloaded, NotReloaded> {
        let router = &*self.router;
        let Some(file) = &self.file else { return Err(NotReloaded::NoFile) };
        let Ok(mut numbers) = self.numbers.try_lock() else { return Err(NotReloaded::Busy) };
        let mut new = config::load(file).map_err(NotReloaded::Invalid)?;
        let former = router.config();
        let settings = effects::changed(&former, &new);
        let fixed = settings.iter().filter(|setting| setting.effect == Effect::Restart);
        let fixed: Vec<&'static str> = fixed.map(|setting| setting.name).collect();
        if !fixed.is_empty() {
            return Err(NotReloaded::Fixed(fixed));
        }
        if let Some(api) = self.api.get().and_then(Weak::upgrade) {
            api.reconfigure(&new.api).map_err(NotReloaded::Api)?;
        }
        // With the numbers of the start.
        new.interfaces.clone_from(&former.interfaces);
        let leaving = match &router.rib {
            Some(rib) => rib.handle.call(|stage| stage.rib.leaving().collect()),
            None => Ok(Vec::new()),
        };
        let leaving = leaving.map_err(|e| NotReloaded::Vrf(e.to_string()))?;
        let vrfs = numbers.number(&new, leaving).map_err(NotReloaded::Vrf)?;
        let requested = new.bfd.clone();
        let bfd = router.bfd.handle.wait(move |bfd| bfd.configure(&requested));
        let bfd = bfd.map_err(NotReloaded::NoBfd)?.map_err(NotReloaded::Bfd)?;
        let rpki = self.set_rpki(&new)?;
        let (bmp, mrt) = reconfigure_monitors(router, &new)?;
        let (shards, neighbors) = match (&router.bgp, &new.bgp) {
            (Some(running), Some(bgp)) => {
                let shards = resize(router, running, bgp)?;
                running.set_options(decision_options(bgp)).map_err(NotReloaded::Shards)?;
                (shards, reconfigure(running, bgp)?)
            }
            _ => (None, Neighbors::default()),
        };
        let (nexthop_cache, suppression, fib_policy) = match (&router.rib, &new.fib) {
            (Some(rib), Some(fib)) => {
                let (mode, suppress) = (fib.nexthop_cache, fib.suppress_fib_pending);
                let before = rib.set_cache_mode(mode).map_err(NotReloaded::NoRib)?;
                let suppressed = rib.suppress(suppress).map_err(NotReloaded::NoRib)?;
                let other = former.fib.as_ref().is_none_or(|former| former.policy != fib.policy);
                if other {
                    rib.set_policy(fib.policy.clone()).map_err(NotReloaded::NoRib)?;
                }
                let resolution = |fib: &FibConfig| ResolutionSettings {
                    resolve_via_default: fib.resolve_via_default,
                    max_ecmp: fib.max_ecmp,
                    underlay_weights: fib.underlay_weights,
                };
                if former.fib.as_ref().is_none_or(|former| resolution(former) != resolution(fib)) {
                    rib.set_resolution(resolution(fib)).map_err(NotReloaded::NoRib)?;
                }
                let redistribution = |config: &Config| Some(config.bgp.as_ref()?.originate.redistribution());
                let wanted = redistribution(&new);
                if wanted != redistribution(&former) {
                    rib.set_redistribution(wanted.unwrap_or_default()).map_err(NotReloaded::NoRib)?;
                }
                let cache = NextHopCacheSet { from: before.name().into(), to: mode.name().into() };
                (
                    (before != mode).then_some(cache),
                    (suppressed != suppress).then_some(SuppressionSet { from: suppressed, to: suppress }),
                    other,
                )
            }
            _ => (None, None, false),
        };
        if let Some(links) = &self.links {
            links.set_vrfs(&vrfs);
        }
        let changed = match &router.rib {
            Some(rib) => set_vrfs(router, rib, &new, &vrfs).map_err(NotReloaded::NoRib)?,
            None => VrfsChanged::default(),
        };
        numbers.vrfs = vrfs;
        let api_token = former.api.token != new.api.token;
        let other_log = former.log != new.log;
        let originated = |config: &Config| config.bgp.as_ref().map(|bgp| bgp.originate.clone());
        let originate = originated(&former) != originated(&new);
        let by_interface = |config: &Config| config.bgp.as_ref().map(|bgp| bgp.interfaces.clone());
        let interfaces = by_interface(&former) != by_interface(&new);
        log::reconfigure(&new.log);
        router.watchdog.configure(new.stall_timeout, new.stall_exit);
        let known = former.warnings();
        for warning in new.warnings().iter().filter(|warning| !known.contains(warning)) {
            tracing::warn!(target: target::ROUTER, file = %file.display(), "{warning}");
        }
        router.configure(new);
        Ok(Reloaded {
            file: file.clone(),
            shards: shards.map(resized),
            nexthop_cache,
            suppression,
            api_token,
            fib_policy,
            interfaces,
            originate,
            rpki,
            bmp,
            mrt,
            log: other_log,
            settings: settings.iter().map(|setting| setting.name.into()).collect(),
            vrfs_added: changed.added,
            vrfs_removed: changed.removed,
            static_routes: changed.statics,
            vrf_policies: changed.policies,
            added: neighbors.added,
            removed: neighbors.removed,
            reset: neighbors.reset,
            refreshed: neighbors.refreshed,
            shut_down: neighbors.shut_down,
            started: neighbors.started,
            bfd_added: bfd.added,
            bfd_removed: bfd.removed,
            bfd_changed: bfd.changed,
        })
    }
}

impl Reloader {
    /// Applies `[rpki]`. Returns whether anything changed.
    fn set_rpki(&self, new: &Config) -> Result<bool, NotReloaded> {
        let router = &*self.router;
        let Some(bgp) = &router.bgp else { return Ok(false) };
        let set = |handle| *router.rpki.write().unwrap_or_else(PoisonError::into_inner) = handle;
        match (router.rpki(), &new.rpki) {
            (Some(running), Some(rpki)) => {
                let rpki = rpki.clone();
                let changes = running.wait(move |engine| engine.configure(&rpki));
                Ok(changes.map_err(NotReloaded::NoRpki)? != ribtide_rpkid::Changes::default())
            }
            (None, Some(rpki)) => {
                let started = start_rpki(rpki, bgp, router.clock, self.stop.clone());
                set(Some(started.map_err(NotReloaded::Rpki)?));
                Ok(true)
            }
            (Some(running), None) => {
                running.wait(|engine| engine.end()).map_err(NotReloaded::NoRpki)?;
                set(None);
                Ok(true)
            }
            (None, None) => Ok(false),
        }
    }
}

/// A dataplane knows a VRF before its first route, and until after its last.
fn set_vrfs(
    router: &RouterState,
    rib: &RibHandle,
    new: &Config,
    vrfs: &[VrfSetup],
) -> Result<VrfsChanged, NoReply> {
    for asic in router.asics.values() {
        asic.set_vrfs(vrfs)?;
    }
    let changed = rib.set_vrfs(VrfsSetup::new(new, vrfs.to_vec()))?;
    for asic in router.asics.values() {
        asic.drop_other_vrfs(vrfs)?;
    }
    if let Some(kernel) = &router.kernel {
        kernel.set_vrfs(vrfs);
    }
    Ok(changed)
}

fn resize(router: &RouterState, running: &Bgp, bgp: &BgpConfig) -> Result<Option<Resized>, NotReloaded> {
    if bgp.shards == Threads::Off {
        return Ok(None);
    }
    let rib = router.rib.as_ref().map(|rib| &rib.handle);
    let resized = running.resize(bgp.shards, rib).map_err(NotReloaded::Shards)?;
    Ok(Some(resized).filter(|resized| resized.from != resized.to))
}

fn reconfigure(running: &Bgp, bgp: &BgpConfig) -> Result<Neighbors, NotReloaded> {
    let bgp = Arc::new(bgp.clone());
    let changed = running.sessions.wait(move |sessions| sessions.reconfigure(&bgp));
    changed.map_err(NotReloaded::NoReply)?.map_err(NotReloaded::Neighbors)
}

/// Applies the `[bmp]` and `[mrt]` tables. Returns whether they changed something.
fn reconfigure_monitors(router: &RouterState, new: &Config) -> Result<(bool, bool), NotReloaded> {
    let (mut stations, mut files) = (ribtide_bmpd::Changes::default(), ribtide_mrtd::Changes::default());
    if let (Some(running), Some(bmp)) = (&router.bmp, new.bmp.clone()) {
        let changed = running.handle.wait(move |engine| engine.configure(&bmp));
        stations = changed.map_err(NotReloaded::NoMonitor)?;
    }
    if let (Some(running), Some(mrt)) = (&router.mrt, new.mrt.clone()) {
        // It may wait for the disk, and then is busy; it is not to wait for that.
        let changed = running.handle.call(move |engine| engine.configure(&mrt));
        files = changed.map_err(NotReloaded::NoMonitor)?;
    }
    Ok((stations != ribtide_bmpd::Changes::default(), files != ribtide_mrtd::Changes::default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_what_takes_a_restart() {
        assert_eq!(
            NotReloaded::Fixed(vec!["bgp.update-threads"]).to_string(),
            "nothing is reloaded, because bgp.update-threads cannot change while the router runs; restart it, or change it \
             back"
        );
    }
}
