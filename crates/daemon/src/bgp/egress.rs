//! The egress worker threads: each owns one [`Worker`] and hands what it packs to the session thread.
//!
//! ```text
//! session thread ──control──► worker ──► session thread (bytes to write)
//! shards ──────────inbox─────►   └─────► shards (dump requests; never waits)
//! ```

use super::Wake;
use super::mailbox::Mailbox;
use crossbeam_channel::select_biased;
use ribtide_bgp::egress::{EgressOut, Worker, Write};
use ribtide_bgp::message::{EgressIn, ShardIn};
use ribtide_runtime::ask::{Asked, Asker, pair};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use ribtide_runtime::thread::{self, Stop};
use std::io;
use std::time::{Duration, Instant};

/// Batches of shards that may wait at a worker.
const INBOX: usize = 256;
/// Messages of the session thread that may wait at a worker.
const CONTROL: usize = 1024;
/// Prefixes that may wait before they are packed although more is at hand: enough to fill UPDATEs.
const ENOUGH: usize = 32 * 1024;
/// Prefixes of each group and family that one flush packs, so that a full table does not keep others waiting.
const BUDGET: usize = 64 * 1024;

/// A worker's connections, before it runs.
pub struct WorkerBuilder {
    index: u16,
    inbox: (Sender<EgressIn>, Receiver<EgressIn>),
    control: (Sender<EgressIn>, Receiver<EgressIn>),
}

/// Where a worker's output goes.
pub struct Outlets {
    /// The shards' rings for requests, by number.
    pub shards: Vec<Sender<ShardIn>>,
    /// The session thread's ring.
    pub writes: Sender<Vec<Write>>,
    /// Wakes the session thread.
    pub wake: Wake,
}

impl WorkerBuilder {
    /// Makes the rings of worker thread `index`.
    pub fn new(index: u16, rings: &Rings) -> WorkerBuilder {
        WorkerBuilder {
            index,
            inbox: rings.bounded(format!("shards to worker {index}"), INBOX),
            control: rings.bounded(format!("sessions to worker {index}"), CONTROL),
        }
    }

    /// For shards.
    pub fn inbox(&self) -> Sender<EgressIn> {
        self.inbox.0.clone()
    }

    /// For the session thread.
    pub fn control(&self) -> Sender<EgressIn> {
        self.control.0.clone()
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(self, outlets: Outlets, meters: &Meters, stop: Stop) -> io::Result<Asker<Worker>> {
        let (asker, asked) = pair("egress");
        let worker = Worker::new(u32::from(self.index), outlets.shards.len() as u32);
        let stage = Stage {
            worker,
            inbox: self.inbox.1,
            control: self.control.1,
            shards: outlets.shards.into_iter().map(Mailbox::new).collect(),
            writes: outlets.writes,
            wake: outlets.wake,
            meter: meters.meter("egress"),
        };
        thread::spawn(format!("egress-{}", self.index), move || stage.run(&asked, &stop))?;
        Ok(asker)
    }
}

struct Stage {
    worker: Worker,
    inbox: Receiver<EgressIn>,
    control: Receiver<EgressIn>,
    shards: Vec<Mailbox<ShardIn>>,
    writes: Sender<Vec<Write>>,
    wake: Wake,
    meter: Meter,
}

impl Stage {
    fn run(mut self, asked: &Asked<Worker>, stop: &Stop) {
        let mut at_once = false;
        while !stop.stopped() {
            self.shards.iter_mut().for_each(Mailbox::retry);
            let patience = match (at_once, self.shards.iter().all(Mailbox::is_empty)) {
                (true, _) => Duration::ZERO,
                (false, false) => Duration::from_millis(1),
                (false, true) => Duration::from_millis(100),
            };
            let (mut begin, mut routes) = (Instant::now(), 0);
            select_biased! {
                recv(self.control.raw()) -> message => {
                    if let Ok(message) = message {
                        self.worker.handle(self.control.took(message));
                        self.take_control();
                    }
                }
                recv(asked.raw()) -> question => {
                    if let Ok(question) = question {
                        question(&mut self.worker);
                    }
                }
                recv(self.inbox.raw()) -> message => {
                    if let Ok(message) = message {
                        let message = self.inbox.took(message);
                        begin = Instant::now();
                        routes = self.work(message);
                    }
                }
                default(patience) => {}
            }
            let writes;
            (at_once, writes) = self.pack();
            // Every worker hears of every change; those with something to send from it count.
            if self.worker.has_groups() {
                self.meter.add(routes, begin);
            }
            if !writes.is_empty() {
                // Fails only when the process is stopping.
                let _ = self.writes.send(writes);
                (self.wake)();
            }
        }
    }

    fn take_control(&mut self) {
        while let Some(message) = self.control.try_recv() {
            self.worker.handle(message);
        }
    }

    /// Handles a message and those that wait behind it, until there is enough to pack. Returns how many routes it was.
    fn work(&mut self, first: EgressIn) -> usize {
        let mut routes = 0;
        let mut next = Some(first);
        while let Some(message) = next {
            // The session thread told of a source before its first path could get here; on the other ring.
            self.take_control();
            routes += match &message {
                EgressIn::Best(batch) => batch.changes.v4.len() + batch.changes.v6.len(),
                EgressIn::Dump { batch, .. } => batch.changes.v4.len() + batch.changes.v6.len(),
                _ => 0,
            };
            self.worker.handle(message);
            next = if routes < ENOUGH { self.inbox.try_recv() } else { None };
        }
        routes
    }

    /// Packs what waits; whether more could be packed at once, and what is to be written.
    fn pack(&mut self) -> (bool, Vec<Write>) {
        let mut out = Vec::new();
        let more = self.worker.flush(BUDGET, &mut out);
        let mut writes = Vec::with_capacity(out.len());
        for item in out {
            match item {
                EgressOut::Write(write) => writes.push(write),
                EgressOut::Dump(request) => {
                    self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::Dump(request)));
                }
            }
        }
        (more, writes)
    }
}
