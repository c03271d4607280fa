//! The router: every stage started and joined up, in the order in which they need each other.

use crate::reload::{NotReloaded, Reloader};
use crate::run_state::RunState;
use crate::vrf_numbers::VrfNumbers;
pub use ribtide_api::ListenError;
use ribtide_api::{Api, ApiServer, RouterState, answers};
use ribtide_bfdd as bfd;
use ribtide_bgpd::monitor::Taps;
pub use ribtide_bgpd::session::tcp_ao::check_kernel;
use ribtide_bgpd::{Bgp, BgpBuilder, initial_routes, set_vrps};
use ribtide_bmpd::{self as bmpd, BmpBuilder};
use ribtide_config::{Config, OnStop, RpkiConfig, VIRTUAL_ASIC, VrfSetup};
use ribtide_dataplane::InterfaceNews;
use ribtide_dataplane::fpm::{self, FpmHandle};
use ribtide_dataplane::kernel::{self, InterfaceWatch, flush};
use ribtide_model::{AsicLookup, Pipeline};
use ribtide_mrtd::{Collector, MrtBuilder};
use ribtide_rib::{RibConfig, RibIn, Source};
use ribtide_ribd::{RibBuilder, RibSetup, VrfsSetup};
use ribtide_rpkid::Engine;
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::log::target;
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::Stop;
use ribtide_runtime::watchdog::Watchdog;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long a stop may take before the process just ends.
const FAREWELL: Duration = Duration::from_secs(5);
/// How long a stop may take to remove what dataplanes installed. systemd kills after 90 s.
const REMOVAL: Duration = Duration::from_secs(30);

/// A running router.
pub struct Router {
    inside: Arc<RouterState>,
    reloader: Arc<Reloader>,
    stop: Stop,
    /// The thread that writes into the kernel.
    writer: Option<JoinHandle<()>>,
    api: Arc<ApiServer>,
    run_state: RunState,
}

/// Why a router cannot start. Displays as a sentence.
#[derive(Debug)]
pub enum StartError {
    /// The API cannot listen.
    Api(ListenError),
    /// BGP cannot listen, or bgp.cpus cannot be obeyed (`InvalidInput`).
    Bgp(io::Error),
    /// BFD cannot listen.
    Bfd(io::Error),
    /// Origin validation has no thread.
    Rpki(io::Error),
    /// BMP or MRT has no thread.
    Monitor(io::Error),
    /// The kernel dataplane cannot work, or the kernel's interfaces cannot be watched.
    Kernel(io::Error),
    /// The virtual ASIC cannot work.
    Asic(ribtide_asic::Error),
    /// A VRF is not what it should be.
    Vrf(String),
    /// The system gives no thread.
    Thread(io::Error),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StartError::Api(e) => e.fmt(f),
            StartError::Bgp(e)
            | StartError::Bfd(e)
            | StartError::Rpki(e)
            | StartError::Monitor(e)
            | StartError::Kernel(e) => e.fmt(f),
            StartError::Asic(e) => e.fmt(f),
            StartError::Vrf(e) => f.write_str(e),
            StartError::Thread(e) => {
                write!(f, "the system gives no thread: {e}; raise the limit of processes (ulimit -u)")
            }
        }
    }
}

impl std::error::Error for StartError {}

impl From<io::Error> for StartError {
    fn from(e: io::Error) -> Self {
        StartError::Thread(e)
    }
}

/// Why a running router ended without being asked to. Displays as a sentence.
#[derive(Debug)]
pub enum RunError {
    /// Signals cannot be caught.
    Signals(io::Error),
    /// A stage could not go on; the log has its reason.
    Stage,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Signals(e) => write!(f, "cannot catch signals: {e}"),
            RunError::Stage => f.write_str(
                "a stage could not go on, so the router has stopped; an earlier line has its reason",
            ),
        }
    }
}

impl std::error::Error for RunError {}

impl Router {
    /// Starts everything that `config` names; `file` is what a reload reads. Returns once listeners are bound and the kernel has been asked; what
    /// cannot work is refused here and not found out later.
    ///
    /// # Errors
    /// The first thing that does not work, as a sentence.
    pub fn start(mut config: Config, file: Option<PathBuf>) -> Result<Router, StartError> {
        let mut numbers = VrfNumbers::new(&mut config);
        let vrfs = numbers.number(&config, []).map_err(StartError::Vrf)?;
        numbers.vrfs = vrfs.clone();
        let (clock, rings, meters, stop) =
            (Clock::default(), Rings::default(), Meters::default(), Stop::default());
        let api = Api::bind(&config.api).map_err(StartError::Api)?;
        let run_state = RunState::beside(&config.api.socket);
        // Before anything is written to the kernel.
        let restarted = run_state.restarted(&config);
        let bgp = match &config.bgp {
            Some(bgp) => Some(BgpBuilder::new(bgp, &rings).map_err(StartError::Bgp)?),
            None => None,
        };
        // Meters appear in the order of the route's way, whichever thread starts first.
        for stage in ["reader", "shard", "egress", "rib"] {
            meters.meter(stage);
        }
        let mut rib = config.fib.as_ref().map(|_| RibBuilder::new(&rings));
        let (mut handle, mut on_kernel, mut asics, mut clients) = (None, None, BTreeMap::new(), Vec::new());
        let mut writer = None;
        if let (Some(fib), Some(rib)) = (&config.fib, &mut rib) {
            if let Some(kernel) = &fib.kernel {
                let port = rib.plug("kernel", &rings, meters.meter("kernel"), &stop);
                let sessions = bgp.as_ref().map(BgpBuilder::links);
                let started = kernel::start(kernel.clone(), &vrfs, port, sessions, &rings);
                let (kernel, [_, _, writing]) = started.map_err(StartError::Kernel)?;
                (on_kernel, writer) = (Some(kernel), Some(writing));
            }
            for (i, server) in fib.fpm.iter().enumerate() {
                let name = if fib.fpm.len() == 1 { "fpm".to_string() } else { format!("fpm-{i}") };
                let port = rib.plug(&name, &rings, meters.meter(&name), &stop);
                clients.push(fpm::start(name, *server, fib.fpm_next_hop_groups, port)?);
            }
            for (name, asic) in &fib.asics {
                // One that was given no name is the only one.
                let named = name != VIRTUAL_ASIC;
                let (meters, of_it) =
                    if named { (meters.of(name), rings.of(name)) } else { (meters.clone(), rings.clone()) };
                // What comes first behind it.
                let port = rib.plug(name, &rings, meters.meter("fpmsyncd"), &stop);
                let threads = if named { name } else { "sonic" };
                let started =
                    ribtide_asic::start(threads, port, &config.interfaces, &vrfs, *asic, &of_it, &meters);
                asics.insert(name.clone(), started.map_err(StartError::Asic)?);
            }
        }
        let to_rib = rib.as_ref().filter(|_| config.uses_kernel_interfaces()).map(RibBuilder::failures);
        let to_sessions = bgp.as_ref().map(BgpBuilder::links);
        let links = match on_kernel {
            // Its watch tells them.
            Some(_) => None,
            None => watch_interfaces(&vrfs, to_rib, to_sessions, &stop)?,
        };
        let inbox = rib.as_ref().map(RibBuilder::inbox);
        let outputs = bfd::Outputs {
            rib: rib.as_ref().map(RibBuilder::failures),
            bgp: bgp.as_ref().map(BgpBuilder::bfd),
        };
        let bfd = bfd::start(&config.bfd, &config.interfaces, outputs, &rings, stop.clone());
        let bfd = bfd.map_err(StartError::Bfd)?;
        let bgp = bgp.map(|bgp| bgp.with_bfd(bfd.learnt.clone()));
        if let (Some(fib), Some(rib)) = (&config.fib, rib) {
            let mut initial_sources = vec![Source::Static, Source::Bgp];
            if fib.kernel.as_ref().is_some_and(|kernel| kernel.import) {
                initial_sources.push(Source::Kernel);
            }
            let settings = RibConfig {
                resolve_via_default: fib.resolve_via_default,
                max_ecmp: fib.max_ecmp,
                underlay_weights: fib.underlay_weights,
                cache: fib.nexthop_cache,
                initial_sources,
                ..RibConfig::default()
            };
            let setup = RibSetup {
                config: settings,
                vrfs: VrfsSetup::new(&config, vrfs),
                shards: bgp.as_ref().map(BgpBuilder::feedback_channels).unwrap_or_default(),
                suppress: fib.suppress_fib_pending,
                policy: fib.policy.clone(),
                redistribution: (
                    config.bgp.as_ref().map(|bgp| bgp.originate.redistribution()).unwrap_or_default(),
                    bgp.as_ref().map(BgpBuilder::redistributed),
                ),
                clock,
            };
            let running = rib.start(setup, &meters, stop.clone())?;
            if bgp.is_none() {
                // The RIB's thread lives as long as the process.
                let _ = running.inbox.send(RibIn::EndOfInitial(Source::Bgp));
            }
            handle = Some(running);
        }
        let bmp = config.bmp.as_ref().map(|_| BmpBuilder::new(&rings)).transpose();
        let bmp = bmp.map_err(StartError::Monitor)?;
        let mrt = config.mrt.as_ref().map(|_| MrtBuilder::new(&rings));
        let taps = Taps { bmp: bmp.as_ref().map(BmpBuilder::tap), mrt: mrt.as_ref().map(MrtBuilder::tap) };
        let bgp = match (bgp, &config.bgp) {
            (Some(builder), Some(bgp)) => {
                let builder = builder.after(restarted);
                Some(builder.start(&config, bgp, inbox.as_ref(), &taps, clock, &meters, &stop)?)
            }
            _ => None,
        };
        let (asn, router_id) = (config.asn, config.router_id);
        let bmp = match (bmp, &bgp, &config.bmp) {
            (Some(builder), Some(bgp), Some(bmp)) => {
                let as_peer = bmpd::Router { asn, router_id };
                let started = builder.start(bmp, as_peer, bgp.stages(), clock, stop.clone());
                Some(started.map_err(StartError::Monitor)?)
            }
            _ => None,
        };
        let mrt = match (mrt, &bgp, &config.mrt) {
            (Some(builder), Some(bgp), Some(mrt)) => {
                let started = builder.start(mrt, Collector { asn, router_id }, bgp.stages(), stop.clone());
                Some(started.map_err(StartError::Monitor)?)
            }
            _ => None,
        };
        let rpki = match (&bgp, &config.rpki) {
            (Some(bgp), Some(rpki)) => {
                Some(start_rpki(rpki, bgp, clock, stop.clone()).map_err(StartError::Rpki)?)
            }
            _ => None,
        };
        if let (Some(running), Some(bgp)) = (&bgp, &config.bgp) {
            let left = bgp.restarts_gracefully().then(|| run_state.clone());
            let start = initial_routes::Start {
                neighbors: bgp.neighbors.len() + bgp.interfaces.len(),
                deferral: restarted.map(|restarted| restarted.deferral),
                rib: inbox,
                at_end: Box::new(move || left.iter().for_each(RunState::leave)),
            };
            initial_routes::watch(running, start, rings.clone(), stop.clone())?;
        }
        let watchdog = Watchdog::start(rings.clone(), config.stall_timeout, config.stall_exit, &stop)?;
        let inside = Arc::new(RouterState {
            config: RwLock::new(Arc::new(config)),
            clock,
            watchdog,
            rings,
            meters,
            bgp,
            rpki: RwLock::new(rpki),
            bmp,
            mrt,
            bfd,
            rib: handle,
            kernel: on_kernel,
            asics,
            fpm: clients,
        });
        let reloader = Arc::new(Reloader::new(inside.clone(), file, numbers, links, stop.clone()));
        let api = Arc::new(api.serve(inside.clone(), reloader.clone().for_api())?);
        reloader.set_api(&api);
        Ok(Router { inside, reloader, stop, writer, api, run_state })
    }

    /// What the API looks at.
    #[cfg(test)]
    pub(crate) fn state(&self) -> &Arc<RouterState> {
        &self.inside
    }

    /// The API's Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.api.socket()
    }

    /// What each stage has done.
    ///
    /// # Errors
    /// A sentence when the system does not tell.
    pub fn pipeline(&self) -> Result<Pipeline, String> {
        answers::pipeline(&self.inside).map_err(|e| e.sentence().to_owned())
    }

    /// What the virtual ASIC does with packets to `addresses`.
    ///
    /// # Errors
    /// A sentence when there is no virtual ASIC or it does not answer.
    pub fn asic_lookup(&self, addresses: Vec<IpAddr>) -> Result<Vec<AsicLookup>, String> {
        answers::asic_lookup(&self.inside, None, None, &addresses)
            .map(|a| a.lookups)
            .map_err(|e| e.sentence().to_owned())
    }

    /// How many routes the virtual ASIC holds: the RIB's, and a handful of its own.
    ///
    /// # Errors
    /// A sentence when there is no virtual ASIC or it does not answer.
    pub fn asic_routes(&self) -> Result<u64, String> {
        let asic = self.inside.asics.values().next().ok_or("this router has no virtual ASIC")?;
        asic.counts().map(|c| (c.ipv4_routes + c.ipv6_routes) as u64).map_err(|e| e.to_string())
    }

    /// Whether every queue is empty and every dataplane has confirmed all it was given.
    ///
    /// # Errors
    /// A sentence when the RIB manager does not answer.
    pub fn settled(&self) -> Result<bool, String> {
        let Some(rib) = &self.inside.rib else { return Ok(true) };
        let confirmed = rib
            .handle
            .call(|s| s.rib.dataplanes().all(|d| d.outstanding == 0 && d.lag.is_none()))
            .map_err(|e| e.to_string())?;
        Ok(confirmed && self.inside.rings.read().iter().all(|r| r.depth == 0))
    }

    /// Runs until SIGINT or SIGTERM, then says goodbye to peers. SIGHUP reads the configuration file again.
    ///
    /// # Errors
    /// When signals cannot be caught, or a stage had to stop.
    pub fn run_until_signal(self) -> Result<(), RunError> {
        let mut signals = Signals::new([SIGHUP, SIGINT, SIGTERM]).map_err(RunError::Signals)?;
        let handle = signals.handle();
        // Ends the wait when a stage had to stop.
        let _hook = self.stop.on_stop(move || handle.close());
        loop {
            let pending: Vec<i32> = signals.wait().collect();
            if let Some(signal) = pending.iter().find(|signal| **signal != SIGHUP) {
                let signal = signal_hook::low_level::signal_name(*signal);
                tracing::info!(target: target::ROUTER, signal, "the router stops");
                break;
            }
            if !pending.is_empty() {
                match self.reloader.reload() {
                    Ok(reloaded) => tracing::info!(target: target::ROUTER, "{reloaded}"),
                    Err(NotReloaded::Invalid(e)) => e.lines().for_each(|problem| {
                        tracing::error!(target: target::ROUTER, "nothing is reloaded: {problem}");
                    }),
                    Err(e) => tracing::error!(target: target::ROUTER, "{e}"),
                }
            }
            if self.stop.stopped() {
                return Err(RunError::Stage);
            }
        }
        self.shut_down();
        Ok(())
    }

    /// Ends every session and stops the stages. By `fib.on-stop`, routes stay installed, and the next
    /// start adopts them; or they are removed, as far as [`REMOVAL`] is time for. Peers get a NOTIFICATION, but those that retain
    /// our routes while they stay installed.
    pub fn shut_down(&self) {
        let config = self.inside.config();
        let removes = config.fib.as_ref().is_some_and(|fib| fib.on_stop == OnStop::Remove);
        if removes {
            self.run_state.forget();
            self.stop.stop_and_remove()
        } else {
            self.stop.stop()
        }
        let begin = Instant::now();
        let parting = |inside: &RouterState| {
            inside.bgp.as_ref().is_some_and(|bgp| !bgp.session_thread.is_finished())
                || inside.bmp.as_ref().is_some_and(|bmp| !bmp.thread.is_finished())
                || inside.mrt.as_ref().is_some_and(|mrt| !mrt.thread.is_finished())
                || !inside.bfd.thread.is_finished()
        };
        while parting(&self.inside) && begin.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Not so where a stage had failed before.
        if self.stop.removes() {
            self.remove(begin + REMOVAL);
        }
    }

    /// Waits until FPM clients have taken back what they told, and takes back what is in the kernel. What is in virtual ASICs
    /// ends with this process.
    fn remove(&self, deadline: Instant) {
        let wait = |over: &dyn Fn() -> bool| {
            while !over() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
        };
        if let Some(kernel) = &self.inside.kernel {
            // Its writer would put back what it misses.
            wait(&|| self.writer.as_ref().is_none_or(JoinHandle::is_finished));
            match flush::flush(&kernel.scope(), false, Some(deadline)) {
                Ok(flushed) => tracing::info!(target: target::KERNEL, "{flushed}"),
                Err(e) => tracing::error!(
                    target: target::KERNEL,
                    error = %e,
                    "the installed routes could not be removed from the kernel; `ribtide flush` removes them"
                ),
            }
        }
        wait(&|| self.inside.fpm.iter().all(FpmHandle::has_ended));
    }
}

/// Starts origin validation, which hands its tables to the readers of `bgp`.
pub(crate) fn start_rpki(
    rpki: &RpkiConfig,
    bgp: &Bgp,
    clock: Clock,
    stop: Stop,
) -> io::Result<StageHandle<Engine>> {
    let readers = bgp.readers.clone();
    let publish = Box::new(move |vrps: &_, changed: &_| set_vrps(&readers, vrps, changed));
    ribtide_rpkid::start(rpki, publish, clock, stop)
}

/// Watches the kernel's interfaces for those who are not told by a kernel dataplane, if there are any.
fn watch_interfaces(
    vrfs: &[VrfSetup],
    rib: Option<Sender<RibIn>>,
    sessions: Option<Sender<InterfaceNews>>,
    stop: &Stop,
) -> Result<Option<InterfaceWatch>, StartError> {
    let resolves = rib.is_some();
    if !resolves && sessions.is_none() {
        return Ok(None);
    }
    match InterfaceWatch::start(vrfs, rib, sessions, stop) {
        Ok(watch) => Ok(Some(watch)),
        Err(e) if resolves => {
            let sentence = format!(
                "the kernel's interfaces, over which next hops resolve, cannot be watched: {e}; write [[interface]] tables"
            );
            Err(StartError::Kernel(io::Error::new(e.kind(), sentence)))
        }
        Err(e) => {
            tracing::warn!(
                target: target::KERNEL,
                error = %e,
                "the kernel's interfaces cannot be watched: sessions do not end with them (bgp.fast-external-fallover), but by \
                 their hold time"
            );
            Ok(None)
        }
    }
}
