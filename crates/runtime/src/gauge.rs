//! Gauges: depths of queues that are no rings, such as rows in a stage's tables or requests in
//! flight.
//!
//! The owning stage stores the depth after each change, which costs a few stores; other threads
//! read it.

use crate::ring::{Progress, next_id};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::thread;
use std::fmt;
use std::sync::Arc;

/// A depth that its owner sets. It is listed until it is dropped.
#[derive(Debug)]
pub struct Gauge(Arc<Level>);

/// Measures a depth that changes without its owner, such as an age.
type Sample = Box<dyn Fn() -> usize + Send + Sync>;

pub(crate) struct Level {
    name: String,
    bound: Option<u64>,
    depth: AtomicU64,
    peak: AtomicU64,
    full: AtomicU64,
    id: u64,
    /// How often it moved, plus one; 0 if its owner does not report that.
    moved: AtomicU64,
    /// The thread that reported last; 0: none yet.
    owner: AtomicU32,
    /// Called by each reader before it reads.
    sample: Option<Sample>,
}

impl fmt::Debug for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Level").field("depth", &self.read()).finish_non_exhaustive()
    }
}

/// The state of a queue, a ring or another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Depth {
    /// Its contents: batches of a ring, else by name.
    pub name: String,
    /// At this depth its producer waits. `None`: only the number of routes bounds it.
    pub bound: Option<u64>,
    /// The current depth.
    pub depth: u64,
    /// The greatest depth that was set.
    pub peak: u64,
    /// Of a ring: how often a producer found it full. Otherwise how often it reached its bound.
    pub full: u64,
}

impl Gauge {
    pub(crate) fn new(name: String, bound: Option<usize>, sample: Option<Sample>) -> Gauge {
        let zero = || AtomicU64::new(0);
        let bound = bound.map(|bound| bound as u64);
        Gauge(Arc::new(Level {
            name,
            bound,
            depth: zero(),
            peak: zero(),
            full: zero(),
            id: next_id(),
            moved: zero(),
            owner: AtomicU32::new(0),
            sample,
        }))
    }

    pub(crate) fn level(&self) -> &Arc<Level> {
        &self.0
    }

    /// Reports that what waited went on, whatever the depth is now. From the first report on the
    /// watchdog expects it.
    pub fn moved(&self) {
        self.0.moved.fetch_add(1, Relaxed);
        self.0.owner.store(thread::id(), Relaxed);
    }

    /// Notes a depth from any thread. Of depths noted at the same time the greatest is the peak.
    pub fn observe(&self, depth: usize) {
        self.0.observe(depth as u64);
    }

    /// Sets the depth.
    pub fn set(&self, depth: usize) {
        let Level { bound, depth: last, peak, full, .. } = &*self.0;
        let (now, before) = (depth as u64, last.load(Relaxed));
        if now == before {
            return;
        }
        // No other thread writes.
        last.store(now, Relaxed);
        if now > peak.load(Relaxed) {
            peak.store(now, Relaxed);
        }
        if bound.is_some_and(|bound| now >= bound && before < bound) {
            full.store(full.load(Relaxed) + 1, Relaxed);
        }
    }
}

impl Level {
    /// Its progress, if its owner reports it.
    pub(crate) fn progress(&self) -> Option<Progress> {
        let taken = self.moved.load(Relaxed);
        let (id, name) = (self.id, self.name.clone());
        let (depth, consumer) = (self.depth.load(Relaxed), self.owner.load(Relaxed));
        (taken > 0).then_some(Progress { id, name, depth, taken, consumer, is_ring: false })
    }

    fn observe(&self, now: u64) {
        let before = self.depth.swap(now, Relaxed);
        self.peak.fetch_max(now, Relaxed);
        if self.bound.is_some_and(|bound| now >= bound && before < bound) {
            self.full.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn read(&self) -> Depth {
        if let Some(sample) = &self.sample {
            self.observe(sample() as u64);
        }
        Depth {
            name: self.name.clone(),
            bound: self.bound,
            depth: self.depth.load(Relaxed),
            peak: self.peak.load(Relaxed),
            full: self.full.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::ring::Rings;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[test]
    fn a_gauge_is_listed_beside_rings_with_its_peak_and_how_often_it_was_full() {
        let rings = Rings::default();
        let (tx, _rx) = rings.bounded("requests", 2);
        tx.send(1).unwrap();
        let rows = rings.gauge("rows", Some(10));
        let others = rings.gauge("others", None);
        [3, 12, 10, 9, 10, 4].into_iter().for_each(|depth| rows.set(depth));
        others.set(1000);
        let read = || -> Vec<_> {
            let depths = rings.depths();
            depths.into_iter().map(|d| (d.name, d.bound, d.depth, d.peak, d.full)).collect()
        };
        let ring = || ("requests".into(), Some(2), 1, 1, 0);
        let other = || ("others".into(), None, 1000, 1000, 0);
        assert_eq!(read(), [ring(), ("rows".into(), Some(10), 4, 12, 2), other()]);
        drop(rows);
        assert_eq!(read(), [ring(), other()]);
        assert_eq!(rings.read().len(), 1);
    }

    #[test]
    fn sampled_gauge_is_measured_by_its_readers_and_keeps_the_peak_of_others() {
        let (rings, age) = (Rings::default(), Arc::new(AtomicUsize::new(7)));
        let its_age = age.clone();
        let gauge = rings.sampled_gauge("age", Some(10), move || its_age.load(Relaxed));
        let read = || rings.depths().pop().map(|d| (d.depth, d.peak, d.full));
        assert_eq!(read(), Some((7, 7, 0)));
        gauge.observe(12);
        gauge.observe(3);
        assert_eq!(read(), Some((7, 12, 1)));
        age.store(11, Relaxed);
        assert_eq!(read(), Some((11, 12, 2)));
    }
}
