//! The egress stages: each owns one [`Worker`] and hands what it packs to the session thread.
//!
//! ```text
//! session thread ──control──► worker ──► session thread (bytes to write)
//! shards ──────────inbox─────►   └─────► shards (dump requests; never waits)
//! ```

use super::mailbox::{Mailbox, retry_all};
use super::pace::Pace;
use super::stage::{Stage, Turn};
use crossbeam_channel::Select;
use ribtide_bgp::egress::{Flush, Worker, Write};
use ribtide_bgp::message::{EgressIn, ShardIn};
use ribtide_runtime::activity::Watch;
use ribtide_runtime::call::{CallQueue, NoReply, StageHandle, pair};
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender, Wake};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, Instant};

/// Batches of shards that may wait at a worker.
const INBOX: usize = 256;
/// Messages of the session thread that may wait at a worker.
const CONTROL: usize = 1024;
/// Prefixes taken in at one turn.
const TAKE: usize = 32 * 1024;
/// Prefixes of each family that one flush packs, so that a full table does not keep others waiting, and the least of them
/// for each position.
const BUDGET: usize = 64 * 1024;
const SHARE: usize = 1024;

/// How long it sleeps where nothing comes in, before it looks whether it is to stop; and while a shard's ring has no room
/// for a request, or changes wait for more: no message says when there is room, or when nothing more comes.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// A worker's connections, before it runs.
pub struct WorkerBuilder {
    index: u16,
    inbox: (Sender<EgressIn>, Receiver<EgressIn>),
    wanted: Arc<AtomicBool>,
    control: (Sender<EgressIn>, Receiver<EgressIn>),
    wake: Option<Wake>,
}

/// A worker as the shards see it.
#[derive(Clone)]
pub struct WorkerSink {
    /// Its inbox.
    pub ring: Sender<EgressIn>,
    wanted: Arc<AtomicBool>,
}

impl WorkerSink {
    /// Whether it wants changes. A worker whose dump request has reached a shard does: it says so before it asks.
    pub fn wanted(&self) -> bool {
        self.wanted.load(Acquire)
    }
}

/// Where a worker's output goes.
pub struct Outputs {
    /// The shards' rings for requests, by number.
    pub shards: Vec<Sender<ShardIn>>,
    /// The session thread's ring.
    pub writes: Sender<Vec<Write>>,
    /// Whether readers and shards have more.
    pub upstream: Watch,
}

impl WorkerBuilder {
    /// Makes the rings of worker `index`. `wake` wakes the thread that hosts it, if it has none of its own.
    pub fn new(index: u16, rings: &Rings, wake: Option<Wake>) -> WorkerBuilder {
        let (inbox, batches) = rings.bounded(format!("shards to worker {index}"), INBOX);
        WorkerBuilder {
            index,
            inbox: (inbox.with_wake(wake.clone()), batches),
            wanted: Arc::default(),
            // From the session thread, which needs no waking where it is the host.
            control: rings.bounded(format!("sessions to worker {index}"), CONTROL),
            wake,
        }
    }

    /// For shards.
    pub fn sink(&self) -> WorkerSink {
        WorkerSink { ring: self.inbox.0.clone(), wanted: self.wanted.clone() }
    }

    /// For the session thread.
    pub fn control(&self) -> Sender<EgressIn> {
        self.control.0.clone()
    }

    /// The stage, ready to run, and how to ask it.
    pub(super) fn build(self, outputs: Outputs, meters: &Meters) -> (WorkerPort, WorkerStage) {
        let (handle, asked) = pair("egress");
        let stage = WorkerStage {
            worker: Worker::new(u32::from(self.index), outputs.shards.len() as u32),
            inbox: self.inbox.1,
            wanted: self.wanted,
            control: self.control.1,
            asked,
            shards: outputs.shards.into_iter().map(Mailbox::new).collect(),
            writes: Mailbox::new(outputs.writes),
            upstream: outputs.upstream,
            pace: Pace::default(),
            packing: false,
            dumps_paused: false,
            meter: meters.meter("egress"),
        };
        (WorkerPort { handle: handle.with_wake(self.wake) }, stage)
    }
}

/// How to reach a running worker.
#[derive(Clone)]
pub struct WorkerPort {
    handle: StageHandle<WorkerStage>,
}

impl WorkerPort {
    /// Runs `question` between two of its batches.
    ///
    /// # Errors
    /// [`NoReply`] when it is too busy or has ended.
    pub fn ask<R: Send + 'static>(
        &self,
        question: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<R, NoReply> {
        self.handle.call(|stage| question(&mut stage.worker))
    }

    /// From now on it asks shards for no dump: what members want waits.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn pause_dumps(&self) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.dumps_paused = true)
    }

    /// It asks these shards from now on. Only while no dump is under way.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn remap(&self, shards: Vec<Sender<ShardIn>>) -> Result<(), NoReply> {
        self.handle.wait(|stage| {
            stage.worker.set_shards(shards.len() as u32);
            // A request that still waits is of a group that is gone.
            stage.shards = shards.into_iter().map(Mailbox::new).collect();
        })
    }

    /// It asks for dumps again, first for what has waited.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn resume_dumps(&self) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.dumps_paused = false)
    }
}

/// A worker and its rings.
pub(super) struct WorkerStage {
    worker: Worker,
    inbox: Receiver<EgressIn>,
    /// Whether shards are to send changes; those without a group are spared them.
    wanted: Arc<AtomicBool>,
    control: Receiver<EgressIn>,
    asked: CallQueue<WorkerStage>,
    shards: Vec<Mailbox<ShardIn>>,
    writes: Mailbox<Vec<Write>>,
    upstream: Watch,
    pace: Pace,
    /// What was begun to be packed is not packed yet.
    packing: bool,
    /// It asks for no dumps: shards are being remapped.
    dumps_paused: bool,
    meter: Meter,
}

impl ShrinkToFit for WorkerStage {
    /// Its buffers go with each turn.
    fn shrink_to_fit(&mut self) {}
}

impl Stage for WorkerStage {
    fn turn(&mut self) -> Turn {
        while let Some(question) = self.asked.next() {
            question(self);
        }
        let asked_all = retry_all(&mut self.shards);
        if !self.writes.retry() {
            return Turn::Held;
        }
        self.take_control();
        let begin = Instant::now();
        let routes = self.work();
        self.pack();
        self.meter.add(routes, begin);
        if !self.writes.is_empty() {
            Turn::Held
        } else if self.packing || !self.inbox.is_empty() || !self.control.is_empty() {
            Turn::Busy
        } else if asked_all && self.shards.iter().all(Mailbox::is_empty) && !self.pace.waits() {
            Turn::Idle
        } else {
            Turn::Held
        }
    }

    fn wait(&mut self, after: Turn) {
        let mut select = Select::new();
        self.asked.watch(&mut select);
        if !self.writes.is_empty() {
            self.writes.watch(&mut select);
            // Timed out or ready: the next turn looks.
            let _ = select.ready_timeout(STOP_POLL_INTERVAL);
            return;
        }
        self.control.watch(&mut select);
        self.inbox.watch(&mut select);
        // It must not wait for a shard, which may be waiting for it.
        idle::wait(&mut select, if after == Turn::Held { ROOM_POLL_INTERVAL } else { STOP_POLL_INTERVAL });
    }
}

impl WorkerStage {
    fn take_control(&mut self) {
        while let Some(message) = self.control.try_recv() {
            self.worker.handle(message);
        }
    }

    /// Handles what shards brought, as far as one turn should go. Returns how many routes it was.
    fn work(&mut self) -> usize {
        let mut routes = 0;
        while routes < TAKE
            && let Some(message) = self.inbox.try_recv()
        {
            // The session thread told of a source before its first path could get here; on the other ring.
            self.take_control();
            routes += match &message {
                EgressIn::Best(batch) => batch.changes.v4.len() + batch.changes.v6.len(),
                EgressIn::Dump { batch, .. } => batch.changes.v4.len() + batch.changes.v6.len(),
                _ => 0,
            };
            self.worker.handle(message);
        }
        routes
    }

    /// Says whether it wants changes; asks for dumps; packs what waits, if it is time, and hands it on.
    fn pack(&mut self) {
        self.wanted.store(self.worker.has_groups(), Release);
        let requests = if self.dumps_paused { Vec::new() } else { self.worker.requests() };
        for request in requests {
            self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::Dump(request)));
        }
        let idle = self.inbox.is_empty() && self.upstream.idle();
        let what = if self.packing {
            Some(Flush::Begun)
        } else {
            self.pace.go(self.worker.due(), self.worker.replaced(), idle, Instant::now())
        };
        if let Some(what) = what {
            let mut writes = Vec::new();
            let share = (BUDGET / self.worker.positions().max(1)).max(SHARE);
            self.packing = self.worker.flush(what, share, &mut writes);
            if !writes.is_empty() {
                self.writes.post(writes);
            }
        }
    }
}
