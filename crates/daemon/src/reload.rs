//! Reload of the configuration file: applies all changes, or none if one of them needs a restart.

use crate::bgp::{self, NotBegun};
use crate::dataplanes::{Environment, RunningDataplanes, ToSessions};
use crate::effects::{self, Effect};
use crate::fib;
use crate::monitors;
use crate::router::{StartError, start_rpki};
use crate::run_state::RunState;
use crate::vrf_numbers::VrfNumbers;
use ribtide_api::{ApiServer, ListenError, Reload, RouterState, resized};
use ribtide_bfdd::Changes;
use ribtide_bgpd::resize::{NotResized, Resized};
use ribtide_bgpd::session::Neighbors;
use ribtide_bgpd::{Bgp, BgpBuilder, NotChanged, check_cpus, decision_options};
use ribtide_config::{
    self as config, BgpConfig, Config, ConfigError, FibConfig, InterfaceConfig, Threads, VrfSetup,
};
use ribtide_model::{NextHopCacheSet, Reloaded, SuppressionSet};
use ribtide_rib::ResolutionSettings;
use ribtide_ribd::{RibHandle, VrfsChanged, VrfsSetup};
use ribtide_runtime::call::NoReply;
use ribtide_runtime::log::{self, target};
use ribtide_runtime::meter::Meter;
use ribtide_runtime::thread::Stop;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
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
    /// The BMP or the MRT thread cannot start.
    Monitor(io::Error),
    /// BGP's stages cannot take a monitor or other CPUs now.
    NotChanged(NotChanged),
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
    /// The filter of system calls.
    Filter(String),
    /// A VRF is not as required.
    Vrf(String),
    /// An interface is not as required.
    Interface(String),
    /// BGP cannot begin.
    Bgp(NotBegun),
    /// CPUs cannot be used.
    Cpus(String),
    /// A dataplane cannot start.
    Dataplane(StartError),
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
            NotReloaded::Vrf(e) | NotReloaded::Interface(e) | NotReloaded::Cpus(e) => {
                write!(f, "nothing is reloaded: {e}")
            }
            NotReloaded::Busy => write!(f, "a reload is under way; try again when it is done"),
            NotReloaded::Shards(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Api(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Dataplane(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Bgp(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Bfd(e) | NotReloaded::Rpki(e) | NotReloaded::Monitor(e) => {
                write!(f, "nothing is reloaded: {e}")
            }
            NotReloaded::NotChanged(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::NoBfd(e) | NotReloaded::NoRpki(e) | NotReloaded::NoMonitor(e) => {
                write!(f, "nothing is reloaded: {e}")
            }
            NotReloaded::Neighbors(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::NoReply(e) => write!(f, "nothing is reloaded: {e}"),
            NotReloaded::Filter(e) => {
                write!(
                    f,
                    "all but process.seccomp is reloaded: the kernel does not take the filter of system calls: {e}"
                )
            }
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
    /// Locked during a reload; the numbers of VRFs and interfaces.
    numbers: Mutex<VrfNumbers>,
    dataplanes: Arc<Mutex<RunningDataplanes>>,
    run_state: RunState,
    /// Shards of runs of BGP that have ended.
    shards_before: AtomicU32,
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
        dataplanes: Arc<Mutex<RunningDataplanes>>,
        run_state: RunState,
        stop: Stop,
    ) -> Reloader {
        Reloader {
            router,
            file,
            numbers: Mutex::new(numbers),
            dataplanes,
            run_state,
            shards_before: AtomicU32::new(0),
            stop,
            api: OnceLock::new(),
        }
    }

    /// Notes the API, whose listeners a reload changes.
    pub(crate) fn set_api(&self, api: &Arc<ApiServer>) {
        // It runs once.
        let _ = self.api.set(Arc::downgrade(api));
    }

    /// The reload function of the API.
    pub(crate) fn for_api(self: Arc<Self>) -> Reload {
        Reload {
            apply: Box::new(move || self.reload().map_err(|e| e.to_string())),
            effects: effects::for_api,
        }
    }

    /// Reads the file again and applies its changes, those that may fail first. If one fails, those before it are undone.
    ///
    /// # Errors
    /// Why nothing changed; after [`NotReloaded::NoRib`] everything is reloaded except static routes, VRFs and the `[fib]` table.
    pub(crate) fn reload(&self) -> Result<Reloaded, NotReloaded> {
        let router = &*self.router;
        let Some(file) = &self.file else { return Err(NotReloaded::NoFile) };
        let Ok(mut numbers) = self.numbers.try_lock() else { return Err(NotReloaded::Busy) };
        // Until the end, so that no stage refuses a later step because a client changes the number of shards.
        let bgp = router.bgp.get();
        let reserved = bgp.as_ref().map(|bgp| bgp.reserve()).transpose();
        let _reservation = reserved.map_err(NotReloaded::NotChanged)?;
        let shards = bgp.as_ref().map(|bgp| match bgp.hosted().shards {
            true => Threads::Off,
            false => Threads::Number(bgp.owners.read().shards.len() as u16),
        });
        let mut new = config::load(file).map_err(NotReloaded::Invalid)?;
        let former = router.config();
        let settings = effects::changed(&former, &new);
        let fixed = settings.iter().filter(|setting| setting.effect == Effect::Restart);
        let fixed: Vec<&'static str> = fixed.map(|setting| setting.name).collect();
        if !fixed.is_empty() {
            return Err(NotReloaded::Fixed(fixed));
        }
        if let Some(bgp) = &new.bgp {
            check_cpus(&bgp.cpus).map_err(NotReloaded::Cpus)?;
        }
        numbers.number_interfaces(&mut new).map_err(NotReloaded::Interface)?;
        let leaving = match &router.rib.get() {
            Some(rib) => rib.handle.call(|stage| stage.rib.leaving().collect()),
            None => Ok(Vec::new()),
        };
        let leaving = leaving.map_err(|e| NotReloaded::Vrf(e.to_string()))?;
        let vrfs = numbers.number(&new, leaving).map_err(NotReloaded::Vrf)?;
        let mut dataplanes = self.dataplanes.lock().unwrap_or_else(PoisonError::into_inner);
        let Applied { bfd, rpki, bmp, mrt, shards, neighbors } =
            match self.apply(&former, &new, &vrfs, &mut dataplanes) {
                Ok(applied) => applied,
                Err(e) => {
                    self.restore(&former, &new, &numbers.vrfs, shards, &mut dataplanes);
                    return Err(e);
                }
            };
        let (nexthop_cache, suppression, fib_policy) = match (&router.rib.get(), &new.fib) {
            (Some(rib), Some(fib)) => {
                let (mode, suppress) = (fib.nexthop_cache, fib.suppress_fib_pending);
                let before = rib.set_cache_mode(mode).map_err(NotReloaded::NoRib)?;
                let suppressed = rib.suppress(suppress).map_err(NotReloaded::NoRib)?;
                // A RIB manager that begins has it from its start.
                let other = former.fib.as_ref().is_some_and(|former| former.policy != fib.policy);
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
        self.remove_other_dataplanes(&mut dataplanes, &new);
        let changed = match &router.rib.get() {
            Some(rib) => set_vrfs(router, rib, &new, &vrfs).map_err(NotReloaded::NoRib)?,
            None => VrfsChanged::default(),
        };
        dataplanes.set_vrfs(&vrfs);
        dataplanes.flush();
        drop(dataplanes);
        numbers.vrfs = vrfs;
        if former.process.seccomp != new.process.seccomp {
            // Nothing else can take it back, so it comes last.
            new.process.seccomp.add().map_err(NotReloaded::Filter)?;
            tracing::info!(target: target::PROCESS, seccomp = %new.process.seccomp, "every thread has another filter of system calls");
        }
        let api_token = former.api.token != new.api.token;
        let other_log = former.log != new.log;
        let originated = |config: &Config| config.bgp.as_ref().map(|bgp| bgp.originate.clone());
        let originate = originated(&former) != originated(&new);
        let by_interface = |config: &Config| config.bgp.as_ref().map(|bgp| bgp.interfaces.clone());
        let interfaces = by_interface(&former) != by_interface(&new);
        let by_range = |config: &Config| config.bgp.as_ref().map(|bgp| bgp.dynamic.clone());
        let ranges = by_range(&former) != by_range(&new);
        log::reconfigure(&new.log);
        router.watchdog.configure(new.stall_timeout, new.stall_exit);
        // Another line has moved it only.
        let known: Vec<String> = former.warnings().into_iter().map(|warning| warning.message).collect();
        for warning in new.warnings().iter().filter(|warning| !known.contains(&warning.message)) {
            let line = warning.place.map(|(line, _)| line);
            tracing::warn!(target: target::ROUTER, file = %file.display(), line, "{warning}");
        }
        // Of a group without neighbours, say, which act on nothing yet.
        let differing = ribtide_config::differences(&former, &new);
        self.run_state.kernel_note().leave(&new);
        router.configure(new);
        let mut reloaded = Reloaded {
            file: file.clone(),
            shards: shards.map(resized),
            nexthop_cache,
            suppression,
            api_token,
            fib_policy,
            interfaces,
            ranges,
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
        };
        if reloaded.is_unchanged() {
            reloaded.settings = differing.into_iter().map(|setting| setting.name).collect();
        }
        Ok(reloaded)
    }
}

impl Reloader {
    /// Starts the dataplanes of `config` that do not run, and the watch of interfaces that it needs.
    fn add_dataplanes(
        &self,
        dataplanes: &mut RunningDataplanes,
        config: &Config,
        vrfs: &[VrfSetup],
    ) -> Result<(), NotReloaded> {
        let router = &*self.router;
        let sessions = self.sessions();
        if let (Some(rib), Some(fib)) = (&router.rib.get(), &config.fib) {
            let plug = |name: &str, meter: Meter, stop: &Stop| rib.plug(name, &router.rings, meter, stop);
            let with = Environment {
                plug: &plug,
                rings: &router.rings,
                meters: &router.meters,
                stop: &self.stop,
                interfaces: &config.interfaces,
                vrfs,
                sessions: sessions.clone(),
            };
            dataplanes.add(fib, rib, &with).map_err(NotReloaded::Dataplane)?;
        }
        self.watch_interfaces(dataplanes, config, vrfs)
    }

    /// The queue of the session thread for interfaces, where BGP runs.
    fn sessions(&self) -> Option<ToSessions> {
        self.router.bgp.get().map(|bgp| ToSessions { run: bgp.run, queue: bgp.links.clone() })
    }

    /// Watches the kernel's interfaces for stages that no dataplane tells of them.
    fn watch_interfaces(
        &self,
        dataplanes: &mut RunningDataplanes,
        config: &Config,
        vrfs: &[VrfSetup],
    ) -> Result<(), NotReloaded> {
        let failures = self.router.rib.get().map(|rib| rib.failures());
        dataplanes.watch(config, vrfs, failures, self.sessions(), &self.stop).map_err(NotReloaded::Dataplane)
    }

    fn remove_other_dataplanes(&self, dataplanes: &mut RunningDataplanes, config: &Config) {
        if let Some(rib) = &self.router.rib.get() {
            dataplanes.remove_others(config.fib.as_ref(), rib);
        }
        self.router.set_dataplanes(dataplanes.handles());
    }

    /// Starts the RIB manager, if it does not run and is configured.
    fn begin_fib(&self, new: &Config, vrfs: &[VrfSetup]) -> Result<(), NotReloaded> {
        if let (None, Some(fib)) = (self.router.rib.get(), &new.fib) {
            let begun = fib::begin(&self.router, new, fib, vrfs, &self.stop);
            begun.map_err(|e| NotReloaded::Dataplane(StartError::Thread(e)))?;
        }
        Ok(())
    }

    /// Ends BGP, and what needs it.
    fn end_bgp(&self, former: &BgpConfig, new: &Config) -> Result<(), NotReloaded> {
        let router = &*self.router;
        let Some(running) = router.bgp.get() else { return Ok(()) };
        let without = Config { bgp: None, ..new.clone() };
        self.set_rpki(&without)?;
        monitors::set_bmp(router, &without, &self.stop)?;
        monitors::set_mrt(router, &without, &self.stop)?;
        let shards = bgp::end(router, &running, former).map_err(NotReloaded::NoReply)?;
        self.shards_before.store(shards, Relaxed);
        Ok(())
    }

    /// The addresses and keys of BGP, of the API and of BFD: what most likely fails. Returns also a BGP that begins.
    fn bind(&self, new: &Config) -> Result<(Option<BgpBuilder>, Changes), NotReloaded> {
        let builder = match (&new.bgp, self.router.bgp.get()) {
            (Some(bgp), None) => {
                let before = self.shards_before.load(Relaxed);
                let builder = BgpBuilder::after_run(bgp, &self.router.rings, before);
                Some(builder.map_err(|e| NotReloaded::Bgp(NotBegun::from(e)))?)
            }
            (Some(bgp), Some(running)) => {
                listen(&running, bgp)?;
                None
            }
            (None, _) => None,
        };
        if let Some(api) = self.api.get().and_then(Weak::upgrade) {
            api.reconfigure(&new.api).map_err(NotReloaded::Api)?;
        }
        Ok((builder, self.set_bfd(new)?))
    }

    /// Applies `[bfd]` and the BFD sessions of neighbours.
    fn set_bfd(&self, new: &Config) -> Result<Changes, NotReloaded> {
        let (requested, interfaces) = (new.bfd.clone(), new.interfaces.clone());
        let changes = self.router.bfd.handle.wait(move |bfd| {
            let changes = bfd.configure(&requested)?;
            bfd.set_interfaces(&interfaces);
            Ok(changes)
        });
        changes.map_err(NotReloaded::NoBfd)?.map_err(NotReloaded::Bfd)
    }

    /// Everything that can be undone, and then neighbours.
    fn apply(
        &self,
        former: &Config,
        new: &Config,
        vrfs: &[VrfSetup],
        dataplanes: &mut RunningDataplanes,
    ) -> Result<Applied, NotReloaded> {
        let router = &*self.router;
        let fib_begins = router.rib.get().is_none() && new.fib.is_some();
        let fib_ends = router.rib.get().is_some() && new.fib.is_none();
        self.begin_fib(new, vrfs)?;
        self.add_dataplanes(dataplanes, new, vrfs)?;
        let (builder, bfd) = self.bind(new)?;
        if fib_begins {
            if new.bgp.is_some() {
                fib::connect_bgp(router).map_err(NotReloaded::NotChanged)?;
            }
            fib::connect_bfd(router).map_err(NotReloaded::NoReply)?;
        }
        let mut applied = Applied { bfd, ..Applied::default() };
        let running = router.bgp.get();
        if let (Some(running), Some(bgp)) = (&running, &new.bgp) {
            applied.set_monitors(self, new)?;
            applied.shards = adjust(router, running, bgp)?;
        }
        applied.neighbors = match (&running, &new.bgp, &former.bgp) {
            (_, None, Some(former)) => {
                applied.set_monitors(self, new)?;
                self.end_bgp(former, new)?;
                self.watch_interfaces(dataplanes, new, vrfs)?;
                Neighbors { removed: former.neighbors.keys().copied().collect(), ..Neighbors::default() }
            }
            (Some(running), Some(bgp), _) => reconfigure(running, bgp, &new.interfaces)?,
            (None, Some(bgp), _) => {
                if let Some(builder) = builder {
                    let rib = router.rib.get().filter(|_| !fib_ends);
                    let begun = bgp::begin(router, builder, new, bgp, rib, &self.run_state, &self.stop);
                    begun.map_err(NotReloaded::Bgp)?;
                }
                self.watch_interfaces(dataplanes, new, vrfs)?;
                applied.set_monitors(self, new)?;
                Neighbors { added: bgp.neighbors.keys().copied().collect(), ..Neighbors::default() }
            }
            (_, None, None) => Neighbors::default(),
        };
        if fib_ends {
            fib::disconnect_bgp(router).map_err(NotReloaded::NotChanged)?;
            self.remove_other_dataplanes(dataplanes, new);
            dataplanes.flush();
            fib::end(router).map_err(NotReloaded::NoReply)?;
        }
        Ok(applied)
    }

    /// Undoes what [`Reloader::apply`] of `new` did before it failed. `shards`: their number before, which a command may have
    /// set. What cannot be undone is logged.
    fn restore(
        &self,
        former: &Config,
        new: &Config,
        vrfs: &[VrfSetup],
        shards: Option<Threads>,
        dataplanes: &mut RunningDataplanes,
    ) {
        let router = &*self.router;
        let undone = |what: &str, done: Result<(), NotReloaded>| {
            if let Err(error) = done {
                tracing::error!(
                    target: target::ROUTER, %error,
                    "the reload that failed cannot be undone: {what}; restart the router, or reload again"
                );
            }
        };
        if former.bgp.is_none()
            && let Some(begun) = &new.bgp
        {
            undone("BGP", self.end_bgp(begun, former));
        }
        if former.fib.is_none() {
            undone("BGP without a FIB", fib::disconnect_bgp(router).map_err(NotReloaded::NotChanged));
        }
        undone("dataplanes", self.add_dataplanes(dataplanes, former, vrfs));
        self.remove_other_dataplanes(dataplanes, former);
        dataplanes.flush();
        if former.fib.is_none() {
            undone("the FIB", fib::end(router).map_err(NotReloaded::NoReply));
        }
        if let Some(api) = self.api.get().and_then(Weak::upgrade) {
            undone("the API", api.reconfigure(&former.api).map(drop).map_err(NotReloaded::Api));
        }
        undone("BFD", self.set_bfd(former).map(drop));
        if let (Some(running), Some(bgp)) = (router.bgp.get(), &former.bgp) {
            undone("addresses and keys of BGP", listen(&running, bgp));
            undone("RPKI and monitors", Applied::default().set_monitors(self, former));
            let mut threads = bgp.clone();
            threads.shards = shards.unwrap_or(threads.shards);
            undone("threads of BGP", adjust(router, &running, &threads).map(drop));
        }
    }

    /// Applies `[rpki]`. Returns whether anything changed.
    fn set_rpki(&self, new: &Config) -> Result<bool, NotReloaded> {
        let router = &*self.router;
        let bgp = router.bgp.get().filter(|_| new.bgp.is_some());
        match (router.rpki.get(), new.rpki.as_ref().zip(bgp)) {
            (Some(running), Some((rpki, _))) => {
                let rpki = rpki.clone();
                let changes = running.wait(move |engine| engine.configure(&rpki));
                Ok(changes.map_err(NotReloaded::NoRpki)? != ribtide_rpkid::Changes::default())
            }
            (None, Some((rpki, bgp))) => {
                let started = start_rpki(rpki, &bgp, router.clock, self.stop.clone());
                router.rpki.set(Some(started.map_err(NotReloaded::Rpki)?));
                Ok(true)
            }
            (Some(running), None) => {
                running.wait(|engine| engine.end()).map_err(NotReloaded::NoRpki)?;
                router.rpki.set(None);
                Ok(true)
            }
            (None, None) => Ok(false),
        }
    }
}

/// What a reload has changed.
#[derive(Default)]
struct Applied {
    bfd: Changes,
    rpki: bool,
    bmp: bool,
    mrt: bool,
    shards: Option<Resized>,
    neighbors: Neighbors,
}

impl Applied {
    /// Applies `[rpki]`, `[bmp]` and `[mrt]` where BGP runs.
    fn set_monitors(&mut self, reloader: &Reloader, new: &Config) -> Result<(), NotReloaded> {
        let router = &*reloader.router;
        self.rpki = reloader.set_rpki(new)?;
        self.bmp = monitors::set_bmp(router, new, &reloader.stop)?;
        self.mrt = monitors::set_mrt(router, new, &reloader.stop)?;
        Ok(())
    }
}

/// Listens on the addresses of a configuration, with its keys.
fn listen(running: &Bgp, bgp: &BgpConfig) -> Result<(), NotReloaded> {
    let bgp = bgp.clone();
    let listening = running.sessions.wait(move |sessions| sessions.listen(&bgp));
    listening.map_err(NotReloaded::NoReply)?.map_err(NotReloaded::Neighbors)
}

/// Applies the number of threads of a running BGP, their CPUs, and how it selects. Returns what moved.
fn adjust(router: &RouterState, running: &Bgp, bgp: &BgpConfig) -> Result<Option<Resized>, NotReloaded> {
    running.set_cpus(bgp).map_err(NotReloaded::NotChanged)?;
    running.set_update_threads(bgp.update_threads).map_err(NotReloaded::NotChanged)?;
    let shards = resize(router, running, bgp)?;
    running.set_options(decision_options(bgp)).map_err(NotReloaded::Shards)?;
    Ok(shards)
}

/// A dataplane knows a VRF or an interface before its first route, and until after its last.
fn set_vrfs(
    router: &RouterState,
    rib: &RibHandle,
    new: &Config,
    vrfs: &[VrfSetup],
) -> Result<VrfsChanged, NoReply> {
    let dataplanes = router.dataplanes();
    for asic in dataplanes.asics.values() {
        asic.set_interfaces(&new.interfaces)?;
        asic.set_vrfs(vrfs)?;
    }
    let changed = rib.set_vrfs(VrfsSetup::new(new, vrfs.to_vec()))?;
    for asic in dataplanes.asics.values() {
        asic.drop_other_interfaces(&new.interfaces)?;
        asic.drop_other_vrfs(vrfs)?;
    }
    Ok(changed)
}

fn resize(router: &RouterState, running: &Bgp, bgp: &BgpConfig) -> Result<Option<Resized>, NotReloaded> {
    let rib = router.rib.get();
    let rib = rib.as_ref().map(|rib| &rib.handle);
    let resized = running.resize(bgp.shards, rib).map_err(NotReloaded::Shards)?;
    Ok(Some(resized).filter(|resized| resized.from != resized.to))
}

fn reconfigure(
    running: &Bgp,
    bgp: &BgpConfig,
    interfaces: &[InterfaceConfig],
) -> Result<Neighbors, NotReloaded> {
    let (bgp, interfaces) = (Arc::new(bgp.clone()), interfaces.to_vec());
    let changed = running.sessions.wait(move |sessions| {
        let changed = sessions.reconfigure(&bgp)?;
        sessions.set_interfaces(&interfaces);
        Ok(changed)
    });
    changed.map_err(NotReloaded::NoReply)?.map_err(NotReloaded::Neighbors)
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
