//! Bounded, named, measured queues between stages.
//!
//! A full ring blocks its producer; nothing is dropped. The [`Rings`] registry lists every ring by
//! name with bound and depth, so a stalled pipeline shows its bottleneck. Items are batches: at two
//! batches a microsecond the queue is never the limit (docs/adr/0003-dependencies.md).

use crate::gauge::{Depth, Gauge, Level};
use crate::histogram::{Durations, Histogram, SendTimes};
use crate::idle;
use crate::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use crate::sync::{Mutex, channel};
use crate::thread::{self, Ended};
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

/// Wakes a consumer that sleeps elsewhere than at its rings, such as in `poll`.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// All rings and gauges of a process; a ring without ends is dropped from it.
#[derive(Clone, Default, Debug)]
pub struct Rings {
    all: Arc<Mutex<Vec<Weak<Stats>>>>,
    gauges: Arc<Mutex<Vec<Weak<Level>>>>,
    /// Prefix of ring names, where several alike exist.
    owner: Option<Arc<str>>,
}

/// The state of one ring.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Reading {
    /// Contents, source and destination.
    pub name: String,
    /// Its bound, in batches.
    pub capacity: usize,
    /// Current number of batches.
    pub depth: u64,
    /// The greatest number of batches.
    pub peak: u64,
    /// Batches sent since the start.
    pub sent: u64,
    /// How often a producer found it full and had to wait.
    pub full: u64,
    /// How long batches were in it. Its sum over the rings of a route's path, and the work of the stages between them
    /// ([`crate::meter::Reading::work`]), are the latency of a route.
    pub waits: Durations,
}

impl From<Reading> for Depth {
    fn from(ring: Reading) -> Depth {
        let Reading { name, capacity, depth, peak, full, .. } = ring;
        Depth { name, bound: Some(capacity as u64), depth, peak, full }
    }
}

#[derive(Debug)]
struct Stats {
    name: String,
    capacity: usize,
    sent: AtomicU64,
    received: AtomicU64,
    peak: AtomicU64,
    full: AtomicU64,
    times: SendTimes,
    waits: Histogram,
    /// Set when the consumer has seen that it is empty and every producer is dropped.
    closed: AtomicBool,
    /// Its number, never used twice.
    id: u64,
    /// The thread that took the last batch; 0: none yet.
    consumer: AtomicU32,
}

impl Stats {
    /// The batches that were taken, and those that wait. A producer counts after it has sent, so a
    /// batch may be missing while its producer is inside of `send`.
    fn taken_and_depth(&self) -> (u64, u64) {
        // In this order: of two batches, of which one was sent and one taken meanwhile, none would
        // seem to wait.
        let taken = self.received.load(Acquire);
        (taken, self.sent.load(Relaxed).saturating_sub(taken))
    }
}

/// What the watchdog sees of a queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Its number, never used twice.
    pub id: u64,
    /// Its name.
    pub name: String,
    /// The current depth.
    pub depth: u64,
    /// What was taken from it since the start.
    pub taken: u64,
    /// The kernel's id of the thread that took last; 0: none yet.
    pub consumer: u32,
    /// Whether it is a ring, whose batches wait in this process. A gauge may count things
    /// elsewhere.
    pub is_ring: bool,
}

/// A number for a queue.
pub(crate) fn next_id() -> u64 {
    static IDS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
    IDS.fetch_add(1, Relaxed)
}

impl Rings {
    /// The same registry, with `owner` before new ring names: for one of several alike.
    pub fn of(&self, owner: &str) -> Rings {
        Rings { owner: Some(owner.into()), ..self.clone() }
    }

    /// Makes a ring of at most `capacity` batches (at least one).
    pub fn bounded<T>(&self, name: impl Into<String>, capacity: usize) -> (Sender<T>, Receiver<T>) {
        let capacity = capacity.max(1);
        let stats = Arc::new(Stats {
            name: self.name(name),
            capacity,
            sent: AtomicU64::new(0),
            received: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            full: AtomicU64::new(0),
            times: SendTimes::new(capacity),
            waits: Histogram::default(),
            closed: AtomicBool::new(false),
            id: next_id(),
            consumer: AtomicU32::new(0),
        });
        self.all.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::downgrade(&stats));
        let (tx, rx) = channel::bounded(capacity);
        (Sender { tx, stats: stats.clone(), wake: None }, Receiver { rx, stats })
    }

    /// Makes a gauge of a queue that is no ring; its producer waits at `bound`.
    pub fn gauge(&self, name: impl Into<String>, bound: Option<usize>) -> Gauge {
        self.list(Gauge::new(self.name(name), bound, None))
    }

    /// Makes a gauge of a depth that changes by itself, such as the age of what waits: each reader
    /// calls `sample`.
    pub fn sampled_gauge(
        &self,
        name: impl Into<String>,
        bound: Option<usize>,
        sample: impl Fn() -> usize + Send + Sync + 'static,
    ) -> Gauge {
        self.list(Gauge::new(self.name(name), bound, Some(Box::new(sample))))
    }

    fn list(&self, gauge: Gauge) -> Gauge {
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.push(Arc::downgrade(gauge.level()));
        gauge
    }

    fn name(&self, name: impl Into<String>) -> String {
        match &self.owner {
            None => name.into(),
            Some(owner) => format!("{owner}: {}", name.into()),
        }
    }

    /// The depths of all rings and other queues, in the order of creation.
    pub fn depths(&self) -> Vec<Depth> {
        let mut depths: Vec<Depth> = self.read().into_iter().map(Depth::from).collect();
        depths.append(&mut self.gauges());
        depths
    }

    /// The depths of all queues that are no rings, in the order of creation.
    pub fn gauges(&self) -> Vec<Depth> {
        let mut gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        gauges.retain(|gauge| gauge.strong_count() > 0);
        gauges.iter().filter_map(Weak::upgrade).map(|level| level.read()).collect()
    }

    /// The progress of every ring, and of the gauges whose owner reports it.
    pub fn progress(&self) -> Vec<Progress> {
        let rings = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let progress = |s: Arc<Stats>| {
            let (taken, depth) = s.taken_and_depth();
            let (id, name) = (s.id, s.name.clone());
            let consumer = s.consumer.load(Relaxed);
            Progress { id, name, depth, taken, consumer, is_ring: true }
        };
        let mut all: Vec<Progress> = rings.iter().filter_map(Weak::upgrade).map(progress).collect();
        let gauges = self.gauges.lock().unwrap_or_else(PoisonError::into_inner);
        all.extend(gauges.iter().filter_map(Weak::upgrade).filter_map(|level| level.progress()));
        all
    }

    /// The state of every ring, in the order of creation.
    pub fn read(&self) -> Vec<Reading> {
        let mut rings = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        rings.retain(|ring| ring.strong_count() > 0);
        rings
            .iter()
            .filter_map(Weak::upgrade)
            .map(|s| Reading {
                name: s.name.clone(),
                capacity: s.capacity,
                depth: s.taken_and_depth().1,
                peak: s.peak.load(Relaxed),
                sent: s.sent.load(Relaxed),
                full: s.full.load(Relaxed),
                waits: s.waits.read(),
            })
            .collect()
    }
}

/// Makes a ring of no registry, of at most `capacity` items (at least one): for requests beside the
/// routes' path. `show threads` does not list it, and the watchdog does not watch it.
pub fn unlisted<T>(name: impl Into<String>, capacity: usize) -> (Sender<T>, Receiver<T>) {
    Rings::default().bounded(name, capacity)
}

/// The other end of a ring was dropped: its stage has stopped, or all stages do ([`Stop::running`]).
/// Nothing else is one, so it may end a thread ([`Ended`]).
///
/// [`Stop::running`]: crate::thread::Stop::running
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "the stage at the other end has stopped")
    }
}

impl std::error::Error for Closed {}

/// The producing end. Clones send to the same ring.
pub struct Sender<T> {
    tx: channel::Sender<T>,
    stats: Arc<Stats>,
    wake: Option<Wake>,
}

impl<T> std::fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sender").field("stats", &self.stats).finish_non_exhaustive()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        Sender { tx: self.tx.clone(), stats: self.stats.clone(), wake: self.wake.clone() }
    }
}

impl<T> Sender<T> {
    /// The same end, which also calls `wake`, if there is one, after each batch; its clones do too.
    pub fn with_wake(mut self, wake: Option<Wake>) -> Self {
        self.wake = wake;
        self
    }

    /// Sends `batch`; blocks while the ring is full.
    ///
    /// # Errors
    /// [`Closed`] when the consumer has stopped.
    pub fn send(&self, batch: T) -> Result<(), Closed> {
        let batch = match self.try_send(batch) {
            Ok(()) => return Ok(()),
            Err(TrySend::Closed(closed)) => return Err(closed),
            Err(TrySend::Full(batch)) => batch,
        };
        self.tx.send(batch).map_err(|_| Closed)?;
        self.count();
        Ok(())
    }

    /// Sends `batch`, or returns it when the ring is full.
    ///
    /// # Errors
    /// [`TrySend::Full`] with the batch, or [`TrySend::Closed`].
    pub fn try_send(&self, batch: T) -> Result<(), TrySend<T>> {
        match self.tx.try_send(batch) {
            Ok(()) => {
                self.count();
                Ok(())
            }
            Err(channel::TrySendError::Full(batch)) => {
                self.stats.full.fetch_add(1, Relaxed);
                Err(TrySend::Full(batch))
            }
            Err(channel::TrySendError::Disconnected(_)) => Err(TrySend::Closed(Closed)),
        }
    }

    /// Sends the last batch of a thread, such as the error that ends it; blocks while the ring is full.
    pub fn end_with(&self, last: T) -> Ended {
        // A consumer that is gone wants nothing any more.
        let _ = self.send(last);
        Ended::done()
    }

    /// The number of waiting batches.
    pub fn len(&self) -> usize {
        self.tx.len()
    }

    /// Whether more than half of the ring is in use.
    pub fn is_half_full(&self) -> bool {
        2 * self.tx.len() > self.stats.capacity
    }

    /// Whether the ring is full.
    pub fn is_full(&self) -> bool {
        self.tx.is_full()
    }

    /// Whether the consumer has taken every batch.
    pub fn is_empty(&self) -> bool {
        self.tx.is_empty()
    }

    /// Makes `select` ready when a full ring has room, for a producer with other work meanwhile; it
    /// counts as a waiting producer.
    pub fn watch_room<'a>(&'a self, select: &mut channel::Select<'a>) {
        self.stats.full.fetch_add(1, Relaxed);
        select.send(&self.tx);
    }

    fn count(&self) {
        let batch = self.stats.sent.fetch_add(1, Relaxed);
        self.stats.times.sent(batch);
        let sent = batch + 1;
        let depth = sent.saturating_sub(self.stats.received.load(Relaxed));
        self.stats.peak.fetch_max(depth.min(self.stats.capacity as u64), Relaxed);
        if let Some(wake) = &self.wake {
            wake();
        }
    }
}

/// The reason why a batch was not sent.
#[derive(Debug)]
pub enum TrySend<T> {
    /// The ring is full; returns the batch.
    Full(T),
    /// The consumer has stopped.
    Closed(Closed),
}

/// The consuming end. Clones share the batches: each goes to one of them.
#[derive(Debug)]
pub struct Receiver<T> {
    rx: channel::Receiver<T>,
    stats: Arc<Stats>,
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        Receiver { rx: self.rx.clone(), stats: self.stats.clone() }
    }
}

impl<T> Receiver<T> {
    /// Waits for the next batch.
    ///
    /// # Errors
    /// [`Closed`] when it is empty and every producer has stopped.
    pub fn recv(&self) -> Result<T, Closed> {
        self.recv_or_idle(|| {})
    }

    /// [`Receiver::recv`], with `on_idle` as in [`idle::recv_or_idle`].
    ///
    /// # Errors
    /// [`Closed`] when it is empty and every producer has stopped.
    pub fn recv_or_idle(&self, on_idle: impl FnMut()) -> Result<T, Closed> {
        idle::recv_or_idle(&self.rx, on_idle).map(|batch| self.took(batch)).map_err(|_| Closed)
    }

    /// Waits for the next batch, at most `timeout`; `None` without one.
    ///
    /// # Errors
    /// [`Closed`] when it is empty and every producer has stopped.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<T>, Closed> {
        match self.rx.recv_timeout(timeout) {
            Ok(batch) => Ok(Some(self.took(batch))),
            Err(channel::RecvTimeoutError::Timeout) => Ok(None),
            Err(channel::RecvTimeoutError::Disconnected) => Err(Closed),
        }
    }

    /// The next batch, if one waits.
    pub fn try_recv(&self) -> Option<T> {
        self.next_now().unwrap_or(None)
    }

    /// The next batch, if one waits; for a consumer that ends after the last one.
    ///
    /// # Errors
    /// [`Closed`] when it is empty and every producer has stopped.
    pub fn next_now(&self) -> Result<Option<T>, Closed> {
        match self.rx.try_recv() {
            Ok(batch) => Ok(Some(self.took(batch))),
            Err(channel::TryRecvError::Empty) => Ok(None),
            Err(channel::TryRecvError::Disconnected) => {
                self.stats.closed.store(true, Relaxed);
                Err(Closed)
            }
        }
    }

    /// Makes `select` ready when a batch waits. The consumer then takes it with
    /// [`Receiver::try_recv`] or [`Receiver::next_now`].
    ///
    /// A channel without producers is always ready, and a loop that selects it would never sleep.
    /// So the ring leaves the select once the consumer has found it closed.
    pub fn watch<'a>(&'a self, select: &mut channel::Select<'a>) {
        if !self.stats.closed.load(Relaxed) {
            select.recv(&self.rx);
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.rx.is_empty()
    }

    /// The number of waiting batches.
    pub fn len(&self) -> usize {
        self.rx.len()
    }

    /// For `crossbeam_channel::select!`; call [`Receiver::took`] on what was received. Without
    /// producers it is always ready with an error, on which the loop must end; other loops use
    /// [`Receiver::watch`].
    pub fn raw(&self) -> &channel::Receiver<T> {
        &self.rx
    }

    /// What was received through [`Receiver::raw`], counted.
    ///
    /// # Errors
    /// [`Closed`] when every producer has stopped.
    pub fn received(&self, batch: Result<T, channel::RecvError>) -> Result<T, Closed> {
        batch.map(|batch| self.took(batch)).map_err(|_| Closed)
    }

    /// Counts a batch received through [`Receiver::raw`] and returns it.
    pub fn took(&self, batch: T) -> T {
        // A reader that sees it taken sees what was counted before.
        let number = self.stats.received.fetch_add(1, Release);
        if let Some(waited) = self.stats.times.waited(number) {
            self.stats.waits.add(waited);
        }
        self.stats.consumer.store(thread::id(), Relaxed);
        batch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_ring_stops_its_producer_and_says_so() {
        let rings = Rings::default();
        let (tx, rx) = rings.bounded("reader to shard 0", 2);
        tx.send(1).unwrap();
        tx.send(2).unwrap();
        assert!(matches!(tx.try_send(3), Err(TrySend::Full(3))));
        let waiting = std::thread::spawn(move || tx.send(3));
        // Only a producer that found the ring full shows that it waits.
        while rings.read()[0].full < 2 {
            std::thread::yield_now();
        }
        assert_eq!([rx.recv().unwrap(), rx.recv().unwrap(), rx.recv().unwrap()], [1, 2, 3]);
        waiting.join().unwrap().unwrap();
        assert_eq!(rx.recv(), Err(Closed));
        let reading = &rings.read()[0];
        assert_eq!(
            (reading.name.as_str(), reading.capacity, reading.depth, reading.sent),
            ("reader to shard 0", 2, 0, 3)
        );
        assert!(reading.full == 2 && reading.peak == 2);
        // The first two were counted before they were taken; the third may not have been.
        assert!((2..=3).contains(&reading.waits.count()));
    }

    #[test]
    fn ring_is_half_full_with_more_than_half_of_its_bound() {
        let (tx, _rx) = Rings::default().bounded("readers to shard 0", 4);
        let half_full = [1, 2, 3, 4].map(|n| {
            tx.try_send(n).unwrap();
            tx.is_half_full()
        });
        assert_eq!(half_full, [false, false, true, true]);
    }

    #[test]
    fn a_ring_without_ends_is_no_longer_listed() {
        let rings = Rings::default();
        let (tx, rx) = rings.bounded::<u8>("reader to shard 0", 2);
        let (_other, _end) = rings.bounded::<u8>("reader to shard 1", 2);
        drop(rx);
        assert_eq!(rings.read().len(), 2);
        drop(tx);
        let names: Vec<String> = rings.read().into_iter().map(|r| r.name).collect();
        assert_eq!(names, ["reader to shard 1"]);
    }

    #[test]
    fn watch_closed_ring_select_sleeps() {
        let rings = Rings::default();
        let (closed_tx, closed) = rings.bounded::<u8>("dataplanes to RIB", 1);
        let (tx, open) = rings.bounded::<u8>("shards to RIB", 1);
        let is_ready = || {
            let mut select = channel::Select::new();
            closed.watch(&mut select);
            open.watch(&mut select);
            select.ready_timeout(Duration::from_millis(1)).is_ok()
        };
        assert!(!is_ready());
        closed_tx.send(1).unwrap();
        drop(closed_tx);
        assert!(is_ready());
        assert_eq!((closed.try_recv(), is_ready()), (Some(1), true), "it is not known yet that it is closed");
        assert_eq!((closed.try_recv(), closed.next_now(), is_ready()), (None, Err(Closed), false));
        tx.send(2).unwrap();
        assert_eq!((is_ready(), open.next_now(), is_ready()), (true, Ok(Some(2)), false));
    }

    #[test]
    fn a_consumer_elsewhere_is_woken_by_what_went_in() {
        let woken = Arc::new(AtomicU64::new(0));
        let count = woken.clone();
        let (tx, rx) = Rings::default().bounded("workers to sessions", 1);
        let tx = tx.with_wake(Some(Arc::new(move || _ = count.fetch_add(1, Relaxed)))).clone();
        tx.send(1).unwrap();
        assert!(tx.try_send(2).is_err());
        assert_eq!((rx.try_recv(), woken.load(Relaxed)), (Some(1), 1));
    }
}
