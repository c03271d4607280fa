//! The egress stages: each owns one [`Worker`] and hands what it packs to the session thread.
//!
//! ```text
//! session thread ──control──► worker ──► session thread (bytes to write)
//! shards ──────────inbox─────►   └─────► shards (dump requests; never waits)
//! ```

use super::mailbox::{Mailbox, retry_all};
use super::monitor::{self, MonitorIn, Tap};
use super::pace::Pace;
use super::stage::{Stage, Turn, pin};
use crossbeam_channel::Select;
use ribtide_bgp::egress::{Flush, LimitExceeded, Worker, Write};
use ribtide_bgp::message::{EgressIn, ShardIn};
use ribtide_bgp::peer::PeerInfo;
use ribtide_prefix::sum_bgp_families;
use ribtide_runtime::activity::Watch;
use ribtide_runtime::call::{CallQueue, NoReply, StageHandle, pair};
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender, Wake};
use ribtide_runtime::thread::StopSignal;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use std::time::{Duration, Instant};

/// Batches of shards in the queue of a worker at most.
const INBOX: usize = 256;
/// Messages of the session thread in the queue of a worker at most.
const CONTROL: usize = 1024;
/// Prefixes of one turn.
const TAKE: usize = 32 * 1024;
/// Prefixes of each family in one flush, which bounds the delay of other work, and the minimum for
/// each position.
const BUDGET: usize = 64 * 1024;
const SHARE: usize = 1024;

/// Sleep time while the queue of a shard is full, or changes wait for more: no message ends either
/// state.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The queues of a worker before it runs.
pub struct WorkerBuilder {
    index: u16,
    inbox: (Sender<EgressIn>, Receiver<EgressIn>),
    wanted: Arc<Wanted>,
    control: (Sender<EgressIn>, Receiver<EgressIn>),
    wake: Option<Wake>,
}

/// The end of a worker for shards.
#[derive(Clone)]
pub struct WorkerSink {
    /// Its queue.
    pub ring: Sender<EgressIn>,
    wanted: Arc<Wanted>,
}

/// What a worker needs from shards. It sets this before it requests a dump.
#[derive(Default)]
struct Wanted {
    /// Changes of best paths: it has a group.
    best: AtomicBool,
    /// Changes of ranked paths: it has a group that takes these.
    ranked: AtomicBool,
    /// The worker is removed, and needs nothing any more.
    removed: AtomicBool,
}

impl WorkerSink {
    /// Whether it needs changes. A worker sets this before it requests a dump.
    pub fn wanted(&self) -> bool {
        self.wanted.best.load(Acquire)
    }

    /// Marks it as removed, for every shard.
    pub(super) fn remove(&self) {
        self.wanted.removed.store(true, Release);
    }

    /// Whether it is removed: its number has another worker later, or none.
    pub(super) fn is_removed(&self) -> bool {
        self.wanted.removed.load(Acquire)
    }

    /// Whether it needs changes of ranked paths.
    pub fn wants_ranked(&self) -> bool {
        self.wanted.ranked.load(Acquire)
    }
}

/// A message of a worker to the session thread.
#[derive(Debug)]
pub enum EgressOut {
    /// Messages to write.
    Writes(Vec<Write>),
    /// A member exceeded a limit; the worker has removed it.
    Limit(LimitExceeded),
}

/// The outputs of a worker.
pub struct Outputs {
    /// The request queues of shards, by number.
    pub shards: Vec<Sender<ShardIn>>,
    /// The queue of the session thread.
    pub writes: Sender<EgressOut>,
    /// The BMP monitor.
    pub monitor: Option<Tap>,
    /// Whether readers and shards have more work.
    pub upstream: Watch,
}

impl WorkerBuilder {
    /// Creates the queues of worker `index`. `wake` wakes the host of a stage without thread.
    pub fn new(index: u16, rings: &Rings, wake: Option<Wake>) -> WorkerBuilder {
        let (inbox, batches) = rings.bounded(format!("shards to worker {index}"), INBOX);
        WorkerBuilder {
            index,
            inbox: (inbox.with_wake(wake.clone()), batches),
            wanted: Arc::default(),
            // The session thread, which may be the host, needs no wake-up.
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

    /// The stage and its handle.
    ///
    /// `deferred`: members wait until [`WorkerPort::end_deferral`].
    pub(super) fn build(
        self,
        outputs: Outputs,
        deferred: bool,
        meters: &Meters,
    ) -> (WorkerPort, WorkerStage) {
        let (handle, calls) = pair("egress");
        let stage = WorkerStage {
            worker: Worker::new(u32::from(self.index), outputs.shards.len() as u32),
            inbox: self.inbox.1,
            wanted: self.wanted,
            control: self.control.1,
            calls,
            shards: outputs.shards.into_iter().map(Mailbox::new).collect(),
            writes: Mailbox::new(outputs.writes),
            monitor: outputs.monitor.map(Tap::with_mailbox),
            upstream: outputs.upstream,
            pace: Pace::default(),
            wants: [false; 2],
            stale: 0,
            packing: false,
            dumps_paused: false,
            deferred,
            retired: false,
            meter: meters.meter("egress"),
        };
        (WorkerPort { handle: handle.with_wake(self.wake) }, stage)
    }
}

/// The handle of a running worker.
#[derive(Clone)]
pub struct WorkerPort {
    handle: StageHandle<WorkerStage>,
}

impl WorkerPort {
    /// Runs `call` between two batches.
    ///
    /// # Errors
    /// [`NoReply`] when it is too busy or has ended.
    pub fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Worker) -> R + Send + 'static,
    ) -> Result<R, NoReply> {
        self.handle.call(|stage| call(&mut stage.worker))
    }

    /// Stops dump requests; members wait.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn pause_dumps(&self) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.dumps_paused = true)
    }

    /// Binds its thread to these CPUs.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn pin(&self, name: String, cpus: Option<Cpus>) -> Result<(), NoReply> {
        self.handle.wait(move |_| pin(&name, cpus.as_ref()))
    }

    /// Sets the BMP monitor. Messages that wait for the former one are dropped.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn set_bmp(&self, tap: Option<Tap>) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.monitor = tap.map(Tap::with_mailbox))
    }

    /// Replaces the shards that get dump requests. Call it only while no dump is under way.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn remap(&self, shards: Vec<Sender<ShardIn>>) -> Result<(), NoReply> {
        self.handle.wait(|stage| {
            stage.worker.set_shards(shards.len() as u32);
            // A waiting request belongs to a removed group.
            stage.shards = shards.into_iter().map(Mailbox::new).collect();
        })
    }

    /// Resumes dump requests, beginning with those that waited.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn resume_dumps(&self) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.dumps_paused = false)
    }

    /// The sources that it knows, with those in its queue.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn sources(&self) -> Result<Vec<Arc<PeerInfo>>, NoReply> {
        self.handle.wait(|stage| {
            stage.take_control();
            stage.worker.sources()
        })
    }

    /// It learns sources from before its time.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn learn(&self, sources: Vec<Arc<PeerInfo>>) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.worker.learn(sources))
    }

    /// Whether the selection of routes is deferred.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn is_deferred(&self) -> Result<bool, NoReply> {
        self.handle.wait(|stage| stage.deferred)
    }

    /// Ends it after its remaining work. It gets no member any more.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn retire(&self) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.retired = true)
    }

    /// The selection of routes is deferred no longer (RFC 4724 section 4.1): members get their tables, and End-of-RIB.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn end_deferral(&self) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.deferred = false)
    }
}

/// A worker and its queues.
pub(super) struct WorkerStage {
    worker: Worker,
    inbox: Receiver<EgressIn>,
    /// Which changes shards send; a worker without a group needs none.
    wanted: Arc<Wanted>,
    control: Receiver<EgressIn>,
    calls: CallQueue<WorkerStage>,
    shards: Vec<Mailbox<ShardIn>>,
    writes: Mailbox<EgressOut>,
    /// The BMP monitor and its queue.
    monitor: Option<(Mailbox<MonitorIn>, Tap)>,
    upstream: Watch,
    pace: Pace,
    /// What the flags for shards say.
    wants: [bool; 2],
    /// Batches in the inbox from before these flags were set. Shards did not send later changes as long as they
    /// were not, so these batches must not count for a member that requests a dump.
    stale: usize,
    /// Whether a flush is incomplete.
    packing: bool,
    /// Whether dump requests are stopped, because shards are remapped.
    dumps_paused: bool,
    /// Whether nothing is advertised yet, because the router has restarted and waits for the routes of its peers.
    deferred: bool,
    /// Whether it has no members for good, and ends after its last output.
    retired: bool,
    meter: Meter,
}

impl ShrinkToFit for WorkerStage {
    fn shrink_to_fit(&mut self) {
        self.worker.shrink_to_fit();
    }
}

impl Stage for WorkerStage {
    fn turn(&mut self) -> Turn {
        while let Some(call) = self.calls.next() {
            call(self);
        }
        let sent_all = retry_all(&mut self.shards);
        let monitor = self.monitor.as_mut().is_none_or(|(mailbox, _)| mailbox.retry());
        if !self.writes.retry() || !monitor {
            return Turn::Held;
        }
        self.take_control();
        let begin = Instant::now();
        let routes = self.work();
        self.pack();
        self.meter.add(routes, begin);
        if !self.writes.is_empty() || self.monitor_waits() {
            Turn::Held
        } else if self.packing || !self.inbox.is_empty() || !self.control.is_empty() {
            Turn::Busy
        } else if self.retired && !self.worker.has_groups() {
            Turn::Over
        } else if sent_all && self.shards.iter().all(Mailbox::is_empty) && !self.pace.waits() {
            Turn::Idle
        } else {
            Turn::Held
        }
    }

    fn wait(&mut self, after: Turn, stop: &StopSignal) -> bool {
        let mut select = Select::new();
        stop.watch(&mut select);
        self.calls.watch(&mut select);
        if !self.writes.is_empty() || self.monitor_waits() {
            self.writes.watch(&mut select);
            self.monitor.iter().for_each(|(mailbox, _)| mailbox.watch(&mut select));
            // The next turn checks all queues.
            select.ready();
            return false;
        }
        self.control.watch(&mut select);
        self.inbox.watch(&mut select);
        // It must not wait for a shard, which may wait for it.
        idle::wait(&mut select, if after == Turn::Held { ROOM_POLL_INTERVAL } else { Duration::MAX })
    }
}

impl WorkerStage {
    fn monitor_waits(&self) -> bool {
        self.monitor.as_ref().is_some_and(|(mailbox, _)| !mailbox.is_empty())
    }

    fn take_control(&mut self) {
        while let Some(message) = self.control.try_recv() {
            self.worker.handle(message);
        }
    }

    /// Handles batches of shards up to the bound of a turn. Returns the number of routes.
    fn work(&mut self) -> usize {
        let mut routes = 0;
        while routes < TAKE
            && let Some(message) = self.inbox.try_recv()
        {
            // The session thread announced a source before its first path, through the other queue.
            self.take_control();
            self.stale = self.stale.saturating_sub(1);
            routes += match &message {
                EgressIn::Best(batch) => sum_bgp_families!(F => batch.changes.get::<F>().len()),
                EgressIn::Dump { batch, .. } => sum_bgp_families!(F => batch.changes.get::<F>().len()),
                EgressIn::Mirror { batch, .. } => sum_bgp_families!(F => batch.changes.get::<F>().len()),
                EgressIn::Ranked(batch) => sum_bgp_families!(F => batch.changes.get::<F>().len()),
                EgressIn::RankedDump { batch, .. } => sum_bgp_families!(F => batch.changes.get::<F>().len()),
                _ => 0,
            };
            self.worker.handle(message);
        }
        // A monitor that has ended may have requested pages.
        let mirrored = self.worker.take_mirrored();
        if let Some((mailbox, _)) = &mut self.monitor {
            mirrored.into_iter().for_each(|page| mailbox.post(MonitorIn::Mirrored(page)));
        }
        routes
    }

    /// Tells shards which changes it needs.
    fn set_wanted(&mut self) {
        let wants =
            [self.worker.has_groups(), self.worker.takes_ranked()].map(|wants| wants && !self.deferred);
        if wants == self.wants {
            return;
        }
        self.wanted.best.store(wants[0], Release);
        self.wanted.ranked.store(wants[1], Release);
        if wants.iter().zip(self.wants).any(|(wants, wanted)| *wants && !wanted) {
            self.stale = self.inbox.len();
        }
        self.wants = wants;
    }

    /// Sets which changes it needs, requests dumps, and packs waiting changes when it is time.
    fn pack(&mut self) {
        self.set_wanted();
        let waits = self.dumps_paused || self.deferred || self.stale > 0;
        let requests = if waits { Vec::new() } else { self.worker.requests() };
        for request in requests {
            self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::Dump(request.clone())));
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
            if let Some((mailbox, tap)) = &mut self.monitor
                && !writes.is_empty()
                && tap.wants(monitor::Wanted::SENT)
            {
                mailbox.post(MonitorIn::Sent(writes.clone()));
            }
            if !writes.is_empty() {
                self.writes.post(EgressOut::Writes(writes));
            }
        }
        for exceeded in self.worker.take_exceeded() {
            self.writes.post(EgressOut::Limit(exceeded));
        }
    }
}
