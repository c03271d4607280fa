//! BGP's stages, the threads they run on, and how they are joined:
//!
//! ```text
//!            ┌──────── commands ───────► readers ──► shards ──► RIB manager
//! sockets ─► session thread ◄─reports───────┘         │ ▲
//!            │   ▲  └────── control ──► workers ◄─────┘ │
//!            ▼   └────────── writes ──────┘ └──requests─┘
//!         sockets
//! ```
//!
//! Every arrow is a bounded ring. Waiting goes one way only: readers wait for shards, shards for workers and the RIB
//! manager, workers for the session thread, which waits for no other thread; requests to shards and the session thread's own
//! messages wait at their sender's side without stopping it.
//!
//! Readers, shards and workers are [stages](stage). Where `shards` or `update-threads` is `off` there is one of each, and
//! the session thread hosts it: it passes over a stage that waits, so the stage waits for the same as on a thread of its
//! own, and no other stage does.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod best_changes;
mod cpus_change;
pub mod egress;
pub mod initial_routes;
mod mailbox;
pub mod messages;
pub mod monitor;
mod monitors_change;
pub mod owners;
mod pace;
mod placement;
pub mod reader;
pub mod recorder;
pub mod resize;
mod rib_change;
pub mod session;
pub mod shard;
mod shutdown;
mod stage;
mod stage_moves;
#[cfg(test)]
mod tests;
mod workers;

use best_changes::BestChanges;
pub use cpus_change::check_cpus;
use egress::WorkerBuilder;
use monitor::Taps;
pub use monitors_change::{NotChanged, Reservation};
use owners::{Directory, Owners};
use placement::Placement;
use reader::{Reader, ReaderBuilder};
use resize::ShardFactory;
use ribtide_bfdd::{BfdNews, Learnt};
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::shard::HashSeed;
use ribtide_config::{BgpConfig, Config, Threads};
use ribtide_dataplane::InterfaceNews;
use ribtide_prefix::Families;
use ribtide_rib::RibIn;
use ribtide_ribd::{FeedbackChannel, Redistributed};
use ribtide_rpki::{ChangedPrefixes, Vrps};
use ribtide_runtime::activity::Activity;
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::Stop;
use session::{Restarted, Sessions, SessionsBuilder};
use shard::ShardBuilder;
use stage::{Home, Hosted, NamedStage};
use stage_moves::Homes;
pub use stage_moves::OnSessionThread;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
pub use workers::Workers;

/// Shard threads that one reader can keep busy.
const SHARDS_PER_READER: usize = 4;

/// BGP with listening sockets, before its threads run.
pub struct BgpBuilder {
    placement: Placement,
    sessions: SessionsBuilder,
    readers: Vec<ReaderBuilder>,
    shards: Vec<ShardBuilder>,
    workers: Vec<WorkerBuilder>,
    homes: Homes,
    rings: Rings,
    shards_before: u32,
    restarted: Option<Restarted>,
}

/// The handles of running BGP.
pub struct Bgp {
    /// The session thread: neighbours, and commands of operators.
    pub sessions: StageHandle<Sessions>,
    /// The readers, by number.
    pub readers: Vec<StageHandle<Reader>>,
    /// The shards and their logical shards.
    pub owners: Arc<Directory>,
    /// The egress workers, by number.
    pub workers: Workers,
    /// Where readers and the first shard run, and where workers run.
    homes: Homes,
    /// The addresses it listens on.
    pub listening: Vec<SocketAddr>,
    /// The session thread's queue for news of interfaces.
    pub links: Sender<InterfaceNews>,
    /// The session thread's queue for redistributed routes.
    redistributed: Sender<Redistributed>,
    /// The session thread. It ends when every peer got a NOTIFICATION after a stop.
    pub session_thread: JoinHandle<()>,
    /// Changes of best paths for clients of the API. The thread that takes them holds the lock.
    pub best_changes: Arc<Mutex<BestChanges>>,
    /// A number that no other run of BGP in this process has.
    pub run: u32,
    stop: Stop,
    /// Locked while the number of shards changes.
    factory: Arc<Mutex<ShardFactory>>,
    /// Locked during a change of stages; see [`Bgp::reserve`].
    changes: Mutex<()>,
}

/// The handles of the stages that a monitor queries.
#[derive(Clone)]
pub struct Stages {
    /// The session thread.
    pub sessions: StageHandle<Sessions>,
    /// The readers, by number.
    pub readers: Vec<StageHandle<Reader>>,
    /// The shards and their logical shards.
    pub owners: Arc<Directory>,
    /// The egress workers, by number.
    pub workers: Workers,
}

impl Bgp {
    /// The handles for a monitor.
    pub fn stages(&self) -> Stages {
        Stages {
            sessions: self.sessions.clone(),
            readers: self.readers.clone(),
            owners: self.owners.clone(),
            workers: self.workers.clone(),
        }
    }
}

/// How shards select best paths.
pub fn decision_options(bgp: &BgpConfig) -> DecisionOptions {
    DecisionOptions {
        always_compare_med: bgp.always_compare_med,
        deterministic_med: bgp.deterministic_med,
        prefer_oldest: bgp.prefer_oldest,
        med_missing_as_worst: bgp.med_missing_as_worst,
        maximum_paths: bgp.multipath,
        multipath_relax: bgp.multipath_relax,
        link_bandwidth: bgp.link_bandwidth,
        backup_path: bgp.backup_path,
    }
}

/// Hands another table of validated ROA payloads to readers. `changed`: the prefixes whose payloads differ from the table
/// before. Waits only for room in a reader's queue of calls; a stopped reader is ignored.
pub fn set_vrps(readers: &[StageHandle<Reader>], vrps: &Arc<Vrps>, changed: &Arc<Families<ChangedPrefixes>>) {
    for reader in readers {
        let (vrps, changed) = (vrps.clone(), changed.clone());
        drop(reader.start(move |reader| reader.set_vrps(vrps, &changed)));
    }
}

impl BgpBuilder {
    /// Listens, and creates the queues.
    ///
    /// # Errors
    /// An address cannot be bound, with the system's kind of error, or a CPU cannot be used (`InvalidInput`); the error
    /// names it.
    pub fn new(bgp: &BgpConfig, rings: &Rings) -> io::Result<BgpBuilder> {
        BgpBuilder::after_run(bgp, rings, 0)
    }

    /// The same after another run in this process: so many shards existed before, whose numbers are never used again.
    ///
    /// # Errors
    /// As [`BgpBuilder::new`].
    pub fn after_run(bgp: &BgpConfig, rings: &Rings, before: u32) -> io::Result<BgpBuilder> {
        let refused = |sentence| io::Error::new(io::ErrorKind::InvalidInput, sentence);
        let placement = Placement::new(&bgp.cpus).map_err(refused)?;
        let sessions = SessionsBuilder::new(bgp, rings)?;
        let home = |threads: Threads| Home::new(threads == Threads::Off, sessions.wake());
        let homes = Homes { shards: home(bgp.shards), workers: home(bgp.update_threads) };
        let shards: Vec<ShardBuilder> = (0..placement.stages(bgp.shards))
            .map(|index| {
                // The session thread never hosts another one.
                let wake = (index == 0).then(|| homes.shards.wake());
                ShardBuilder::new(index, before + u32::from(index), rings, wake)
            })
            .collect();
        let readers = (0..shards.len().div_ceil(SHARDS_PER_READER) as u16)
            .map(|index| ReaderBuilder::new(index, rings))
            .collect::<io::Result<Vec<_>>>()?;
        let workers = (0..placement.stages(bgp.update_threads))
            .map(|index| WorkerBuilder::new(index, rings, Some(homes.workers.wake())))
            .collect();
        Ok(BgpBuilder {
            placement,
            sessions,
            readers,
            shards,
            workers,
            homes,
            rings: rings.clone(),
            shards_before: before,
            restarted: None,
        })
    }

    /// The feedback channels of shards, for the RIB manager.
    pub fn feedback_channels(&self) -> Vec<FeedbackChannel> {
        self.shards.iter().map(ShardBuilder::feedback_channel).collect()
    }

    /// Neighbours whose addresses are learnt have BFD sessions that are asked for here.
    pub fn with_bfd(mut self, learnt: Sender<Learnt>) -> BgpBuilder {
        self.sessions.set_bfd(learnt);
        self
    }

    /// The queue for news of BFD.
    pub fn bfd(&self) -> Sender<BfdNews> {
        self.sessions.bfd()
    }

    /// The queue for news of interfaces.
    pub fn links(&self) -> Sender<InterfaceNews> {
        self.sessions.links()
    }

    /// The queue for redistributed routes.
    pub fn redistributed(&self) -> Sender<Redistributed> {
        self.sessions.redistributed()
    }

    /// The same after an earlier run, if this is a restart. Then nothing is advertised before [`initial_routes::watch`] ends the
    /// deferral.
    pub fn after(self, restarted: Option<Restarted>) -> BgpBuilder {
        BgpBuilder { restarted, ..self }
    }

    /// Starts the threads. `rib`: the queue of the RIB manager; `monitors`: the queues of BMP and MRT.
    ///
    /// # Errors
    /// A thread cannot be created.
    #[expect(clippy::too_many_arguments, reason = "each is another part of the process")]
    pub fn start(
        self,
        config: &Config,
        bgp: &BgpConfig,
        rib: Option<&Sender<RibIn>>,
        monitors: &Taps,
        clock: Clock,
        meters: &Meters,
        stop: &Stop,
    ) -> io::Result<Bgp> {
        let BgpBuilder {
            placement,
            sessions,
            readers,
            shards,
            workers,
            homes,
            rings,
            shards_before,
            restarted,
        } = self;
        let stop = &stop.part();
        // Registers meters in the order of the pipeline, whichever thread starts first.
        ["reader", "shard", "egress"].iter().for_each(|stage| drop(meters.meter(stage)));
        let map = Owners::map(shards.len());
        let options = decision_options(bgp);
        let inboxes: Vec<_> = shards.iter().map(ShardBuilder::inbox).collect();
        let requests: Vec<_> = shards.iter().map(ShardBuilder::feedback).collect();
        let sinks: Vec<_> = workers.iter().map(WorkerBuilder::sink).collect();
        let outputs = session::Outputs {
            workers: workers.iter().map(WorkerBuilder::control).collect(),
            readers: readers.iter().map(ReaderBuilder::commands).collect(),
            monitors: monitors.clone(),
        };
        let (listening, links, writes) = (sessions.listening(), sessions.links(), sessions.writes());
        let redistributed = sessions.redistributed();
        let mut hosted = Hosted::new(vec![homes.shards.clone(), homes.workers.clone()]);
        let threads = Home::new(false, sessions.wake());
        // The activity of stages before the workers.
        let activity = Activity::default();

        let mut reader_askers = Vec::new();
        for (index, reader) in readers.into_iter().enumerate() {
            let outputs = reader::Outputs {
                map,
                shards: inboxes.clone(),
                reports: sessions.reports(),
                monitors: monitors.clone(),
                busy: activity.stage(),
            };
            let (handle, stage) = reader.build(outputs, clock, meters);
            let stage = NamedStage::new(format!("reader-{index}"), &homes.shards, stage);
            run(stage, placement.reader(index), &mut hosted, stop)?;
            reader_askers.push(handle);
        }
        let (events, best_changes) = best_changes::queue(&rings);
        let shard_outputs = shard::Outputs {
            workers: sinks,
            rib: rib.cloned(),
            news: sessions.shard_news(),
            monitor: monitors.bmp.clone(),
            events,
            activity: activity.clone(),
            clock,
        };
        let seed = HashSeed::random();
        let mut shard_ports = Vec::new();
        for (index, shard) in shards.into_iter().enumerate() {
            let (port, stage) = shard.build(options, &seed, shard_outputs.clone(), meters);
            let home = if index == 0 { &homes.shards } else { &threads };
            let stage = NamedStage::new(format!("shard-{index}"), home, stage);
            run(stage, placement.stage(index), &mut hosted, stop)?;
            shard_ports.push(port);
        }
        let mut worker_ports = Vec::new();
        for (index, worker) in workers.into_iter().enumerate() {
            let outputs = egress::Outputs {
                shards: requests.clone(),
                writes: sessions.writes(),
                monitor: monitors.bmp.clone(),
                upstream: activity.watch(),
            };
            let (port, stage) = worker.build(outputs, restarted.is_some(), meters);
            let stage = NamedStage::new(format!("egress-{index}"), &homes.workers, stage);
            run(stage, placement.stage(index), &mut hosted, stop)?;
            worker_ports.push(port);
        }
        let setup = session::Setup {
            asn: config.asn,
            router_id: config.router_id,
            bgp,
            restarted,
            interfaces: &config.interfaces,
            cpus: placement.sessions(),
            writers: placement.writers(bgp.update_threads),
        };
        let update_threads = worker_ports.len();
        let (sessions, session_thread) = sessions.start(&setup, outputs, hosted, clock, stop.clone())?;
        Ok(Bgp {
            sessions,
            readers: reader_askers,
            owners: Arc::new(Directory::new(Owners { shards: shard_ports, map, split: None })),
            workers: Workers::new(worker_ports),
            best_changes: Arc::new(Mutex::new(best_changes)),
            homes,
            listening,
            links,
            redistributed,
            session_thread,
            run: shards_before,
            stop: stop.clone(),
            changes: Mutex::default(),
            factory: Arc::new(Mutex::new(ShardFactory {
                shards_ever: shards_before + inboxes.len() as u32,
                placement,
                options,
                seed,
                outputs: shard_outputs,
                rings,
                meters: meters.clone(),
                stop: stop.clone(),
                writes,
                threads,
                update_threads,
                is_draining: false,
            })),
        })
    }
}

/// Runs a stage where its home is.
fn run(stage: NamedStage, cpus: Option<Cpus>, hosted: &mut Hosted, stop: &Stop) -> io::Result<()> {
    if stage.home.is_hosted() {
        hosted.push(stage);
        return Ok(());
    }
    stage::spawn(stage, cpus, stop.clone())
}
