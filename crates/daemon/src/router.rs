//! The router: every stage started and joined up, in the order in which they need each other.

use crate::dataplanes::{Environment, REMOVAL, RunningDataplanes, ToSessions};
use crate::fib::rib_config;
use crate::reload::{NotReloaded, Reloader};
use crate::run_state::RunState;
use crate::vrf_numbers::VrfNumbers;
pub use ribtide_api::ListenError;
use ribtide_api::{Api, ApiServer, RouterState, Slot, answers};
use ribtide_bfdd as bfd;
pub use ribtide_bgpd::check_cpus;
use ribtide_bgpd::monitor::Taps;
pub use ribtide_bgpd::session::tcp_ao::check_kernel;
use ribtide_bgpd::{Bgp, BgpBuilder, initial_routes, set_vrps};
use ribtide_bmpd::{self as bmpd, BmpBuilder};
use ribtide_config::{Config, OnStop, RpkiConfig};
use ribtide_model::{AsicLookup, Pipeline};
use ribtide_mrtd::{Collector, MrtBuilder};
use ribtide_rib::{RibIn, Source};
use ribtide_ribd::{NotPlugged, RibBuilder, RibSetup, VrfsSetup};
use ribtide_rpkid::Engine;
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::log::target;
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_runtime::watchdog::Watchdog;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::cell::RefCell;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// How long a stop may take before the process just ends.
const FAREWELL: Duration = Duration::from_secs(5);

/// A running router.
pub struct Router {
    inside: Arc<RouterState>,
    reloader: Arc<Reloader>,
    stop: Stop,
    dataplanes: Arc<Mutex<RunningDataplanes>>,
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
    /// The RIB manager has no place for another dataplane.
    Rib(NotPlugged),
    /// The FPM client of this server is still deleting its routes.
    Busy(SocketAddr),
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
            StartError::Rib(e) => e.fmt(f),
            StartError::Busy(server) => write!(
                f,
                "the former FPM client of {server} is still deleting its routes there; try again in a moment"
            ),
            StartError::Thread(e) => {
                write!(f, "the system gives no thread: {e}; raise the limit of processes (ulimit -u)")
            }
        }
    }
}

impl std::error::Error for StartError {}

impl From<NotPlugged> for StartError {
    fn from(e: NotPlugged) -> Self {
        StartError::Rib(e)
    }
}

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
    /// Starts everything that `config` names; `file` is what a reload reads, `commit` what the program was built from. Returns once listeners are bound and the kernel has been asked; what
    /// cannot work is refused here and not found out later.
    ///
    /// # Errors
    /// The first thing that does not work, as a sentence.
    pub fn start(
        mut config: Config,
        file: Option<PathBuf>,
        commit: Option<&'static str>,
    ) -> Result<Router, StartError> {
        let mut numbers = VrfNumbers::new(&mut config);
        let vrfs = numbers.number(&config, []).map_err(StartError::Vrf)?;
        numbers.vrfs = vrfs.clone();
        let (clock, rings, meters, stop) =
            (Clock::default(), Rings::default(), Meters::default(), Stop::default());
        let api = Api::bind(&config.api).map_err(StartError::Api)?;
        let run_state = RunState::beside(&config.api.socket);
        // Before anything is written to the kernel.
        run_state.kernel_note().remove_former(&config);
        run_state.kernel_note().leave(&config);
        let restarted = run_state.restarted(&config);
        let bgp = match &config.bgp {
            Some(bgp) => Some(BgpBuilder::new(bgp, &rings).map_err(StartError::Bgp)?),
            None => None,
        };
        // Meters appear in the order of the route's way, whichever thread starts first.
        for stage in ["reader", "shard", "egress", "rib"] {
            meters.meter(stage);
        }
        let rib = config.fib.as_ref().map(|_| RefCell::new(RibBuilder::new(&rings)));
        let mut handle = None;
        let to_sessions = bgp.as_ref().map(|bgp| ToSessions { run: 0, queue: bgp.links() });
        let mut dataplanes = match (&config.fib, &rib) {
            (Some(fib), Some(rib)) => {
                let plug = |name: &str, meter: Meter, stop: &Stop| {
                    Ok(rib.borrow_mut().plug(name, &rings, meter, stop))
                };
                let with = Environment {
                    plug: &plug,
                    rings: &rings,
                    meters: &meters,
                    stop: &stop,
                    interfaces: &config.interfaces,
                    vrfs: &vrfs,
                    sessions: to_sessions.clone(),
                };
                RunningDataplanes::start(fib, &with)?
            }
            _ => RunningDataplanes::default(),
        };
        let rib = rib.map(RefCell::into_inner);
        dataplanes.watch(&config, &vrfs, rib.as_ref().map(RibBuilder::failures), to_sessions, &stop)?;
        let inbox = rib.as_ref().map(RibBuilder::inbox);
        let outputs = bfd::Outputs {
            rib: rib.as_ref().map(RibBuilder::failures),
            bgp: bgp.as_ref().map(BgpBuilder::bfd),
        };
        let bfd = bfd::start(&config.bfd, &config.interfaces, outputs, &rings, stop.clone());
        let bfd = bfd.map_err(StartError::Bfd)?;
        let bgp = bgp.map(|bgp| bgp.with_bfd(bfd.learnt.clone()));
        if let (Some(fib), Some(rib)) = (&config.fib, rib) {
            let setup = RibSetup {
                config: rib_config(fib),
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
                Some(Arc::new(started.map_err(StartError::Monitor)?))
            }
            _ => None,
        };
        let mrt = match (mrt, &bgp, &config.mrt) {
            (Some(builder), Some(bgp), Some(mrt)) => {
                let started = builder.start(mrt, Collector { asn, router_id }, bgp.stages(), stop.clone());
                Some(Arc::new(started.map_err(StartError::Monitor)?))
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
            commit,
            config: RwLock::new(Arc::new(config)),
            clock,
            watchdog,
            rings,
            meters,
            bgp: Slot::new(bgp.map(Arc::new)),
            rpki: Slot::new(rpki),
            bmp: Slot::new(bmp),
            mrt: Slot::new(mrt),
            bfd,
            rib: Slot::new(handle),
            dataplanes: RwLock::new(Arc::new(dataplanes.handles())),
        });
        let dataplanes = Arc::new(Mutex::new(dataplanes));
        let reloader = Arc::new(Reloader::new(
            inside.clone(),
            file,
            numbers,
            dataplanes.clone(),
            run_state.clone(),
            stop.clone(),
        ));
        let api = Arc::new(api.serve(inside.clone(), reloader.clone().for_api())?);
        reloader.set_api(&api);
        Ok(Router { inside, reloader, stop, dataplanes, api, run_state })
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
        let dataplanes = self.inside.dataplanes();
        let asic = dataplanes.asics.values().next().ok_or("this router has no virtual ASIC")?;
        asic.counts().map(|c| (c.ipv4_routes + c.ipv6_routes) as u64).map_err(|e| e.to_string())
    }

    /// Whether every queue is empty and every dataplane has confirmed all it was given.
    ///
    /// # Errors
    /// A sentence when the RIB manager does not answer.
    pub fn settled(&self) -> Result<bool, String> {
        let rib = self.inside.rib.get();
        let Some(rib) = &rib else { return Ok(true) };
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
            inside.bgp.get().is_some_and(|bgp| !bgp.session_thread.is_finished())
                || inside.bmp.get().is_some_and(|bmp| !bmp.thread.is_finished())
                || inside.mrt.get().is_some_and(|mrt| !mrt.thread.is_finished())
                || !inside.bfd.thread.is_finished()
        };
        while parting(&self.inside) && begin.elapsed() < FAREWELL {
            std::thread::sleep(Duration::from_millis(5));
        }
        // Not so where a stage had failed before.
        if self.stop.removes() {
            let dataplanes = self.dataplanes.lock().unwrap_or_else(PoisonError::into_inner);
            dataplanes.remove_all(begin + REMOVAL);
        }
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
