//! BGP's threads, and how they are joined:
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
//! manager, workers for the session thread, which waits for nobody; requests to shards and the session thread's own
//! messages wait at their sender's side without stopping it.

pub mod egress;
pub mod initial;
mod mailbox;
pub mod owners;
pub mod reader;
pub mod session;
pub mod shard;
#[cfg(test)]
mod tests;

use crate::config::{BgpConfig, Config};
use egress::WorkerBuilder;
use owners::{Directory, Owners};
use reader::{Reader, ReaderBuilder};
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::egress::Worker;
use ribtide_bgp::message::ShardIn;
use ribtide_rib::RibIn;
use ribtide_runtime::ask::Asker;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::meter::Meters;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::Stop;
use session::{Sessions, SessionsBuilder};
use shard::ShardBuilder;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

/// Wakes a stage that sleeps in a poll.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

/// Shard threads that one reader can keep busy.
const SHARDS_PER_READER: usize = 4;

/// BGP, listening but not yet running.
pub struct BgpBuilder {
    sessions: SessionsBuilder,
    readers: Vec<ReaderBuilder>,
    shards: Vec<ShardBuilder>,
    workers: Vec<WorkerBuilder>,
}

/// How to reach running BGP.
pub struct Bgp {
    /// The session thread: neighbours, and what operators tell them.
    pub sessions: Asker<Sessions>,
    /// The readers, by number.
    pub readers: Vec<Asker<Reader>>,
    /// The shards, and which has which logical shard.
    pub owners: Directory,
    /// The egress workers, by number.
    pub workers: Vec<Asker<Worker>>,
    /// The addresses it listens on.
    pub listening: Vec<SocketAddr>,
    /// Ends when every peer has been told of a stop.
    pub session_thread: JoinHandle<()>,
}

impl BgpBuilder {
    /// Listens, and makes the rings.
    ///
    /// # Errors
    /// When an address cannot be listened on; the error says which.
    pub fn new(bgp: &BgpConfig, rings: &Rings) -> io::Result<BgpBuilder> {
        let sessions = SessionsBuilder::new(bgp, rings)?;
        let shards: Vec<ShardBuilder> =
            (0..bgp.shards.resolve()).map(|index| ShardBuilder::new(index, rings)).collect();
        let readers = (0..shards.len().div_ceil(SHARDS_PER_READER) as u16)
            .map(|index| ReaderBuilder::new(index, rings))
            .collect::<io::Result<Vec<_>>>()?;
        let workers =
            (0..bgp.update_threads.resolve()).map(|index| WorkerBuilder::new(index, rings)).collect();
        Ok(BgpBuilder { sessions, readers, shards, workers })
    }

    /// The shards' rings for requests: the RIB manager tells them of next hops.
    pub fn requests(&self) -> Vec<Sender<ShardIn>> {
        self.shards.iter().map(ShardBuilder::feedback).collect()
    }

    /// Starts the threads; `rib` is where routes to install go.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(
        self,
        config: &Config,
        bgp: &BgpConfig,
        rib: Option<&Sender<RibIn>>,
        clock: Clock,
        meters: &Meters,
        stop: &Stop,
    ) -> io::Result<Bgp> {
        let BgpBuilder { sessions, readers, shards, workers } = self;
        // In the order of the pipeline, whichever thread starts first.
        ["reader", "shard", "egress"].iter().for_each(|stage| drop(meters.meter(stage)));
        let map = Owners::map(shards.len());
        let options = DecisionOptions {
            always_compare_med: bgp.always_compare_med,
            deterministic_med: bgp.deterministic_med,
            prefer_oldest: bgp.prefer_oldest,
            med_missing_as_worst: bgp.med_missing_as_worst,
        };
        let inboxes: Vec<_> = shards.iter().map(ShardBuilder::inbox).collect();
        let requests: Vec<_> = shards.iter().map(ShardBuilder::feedback).collect();
        let worker_inboxes: Vec<_> = workers.iter().map(WorkerBuilder::inbox).collect();
        let outlets = session::Outlets {
            workers: workers.iter().map(WorkerBuilder::control).collect(),
            readers: readers.iter().map(|r| (r.commands(), r.wake())).collect(),
            shards: shards.len(),
        };
        let listening = sessions.listening();

        let workers = workers
            .into_iter()
            .map(|worker| {
                let shards = requests.clone();
                let outlets = egress::Outlets { shards, writes: sessions.writes(), wake: sessions.wake() };
                worker.start(outlets, meters, stop.clone())
            })
            .collect::<io::Result<Vec<_>>>()?;
        let shards = shards
            .into_iter()
            .map(|shard| {
                let (purged, wake) = (sessions.purged(), sessions.wake());
                let purged = move |peer, session| {
                    // Fails only when the process is stopping.
                    let _ = purged.send((peer, session));
                    wake();
                };
                let outlets = shard::Outlets {
                    workers: worker_inboxes.clone(),
                    rib: rib.cloned(),
                    purged: Box::new(purged),
                };
                shard.start(options, outlets, meters, stop.clone())
            })
            .collect::<io::Result<Vec<_>>>()?;
        let readers = readers
            .into_iter()
            .map(|reader| {
                let outlets = reader::Outlets {
                    map,
                    shards: inboxes.clone(),
                    reports: sessions.reports(),
                    wake: sessions.wake(),
                };
                reader.start(outlets, clock, meters, stop.clone())
            })
            .collect::<io::Result<Vec<_>>>()?;
        let setup = session::Setup {
            asn: config.asn,
            router_id: config.router_id,
            bgp,
            interfaces: &config.interfaces,
        };
        let (sessions, session_thread) = sessions.start(&setup, outlets, clock, stop.clone())?;
        let owners = Directory::new(Owners { shards, map });
        Ok(Bgp { sessions, readers, owners, workers, listening, session_thread })
    }
}
