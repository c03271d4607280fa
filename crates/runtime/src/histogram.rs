//! Histograms of durations: of the wait in a ring, and of the work on a batch.
//!
//! A duration is added once for each batch, with three atomic additions and no lock, so it costs nothing per route. The
//! buckets are the same everywhere: a query can sum them over queues and stages, and so along the path of a route.

// Not those of `sync`: they order nothing, and would only make the models of loom larger.
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the buckets, in microseconds. What takes longer is in a last bucket.
const BOUNDS_US: [u64; 15] = [
    10,
    30,
    100,
    300,
    1_000,
    3_000,
    10_000,
    30_000,
    100_000,
    300_000,
    1_000_000,
    3_000_000,
    10_000_000,
    30_000_000,
    100_000_000,
];

/// Durations, counted by bucket.
#[derive(Debug, Default)]
pub(crate) struct Histogram {
    buckets: [AtomicU64; BOUNDS_US.len() + 1],
    sum_ns: AtomicU64,
}

/// The state of a histogram.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Durations {
    /// How many durations each bucket has, the shortest first; the last one has no bound.
    counts: [u64; BOUNDS_US.len() + 1],
    /// The sum of all.
    pub sum: Duration,
}

impl Histogram {
    /// Adds a duration.
    pub(crate) fn add(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let bucket = BOUNDS_US.iter().position(|bound| us <= *bound).unwrap_or(BOUNDS_US.len());
        self.buckets[bucket].fetch_add(1, Relaxed);
        self.sum_ns.fetch_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX), Relaxed);
    }

    /// The state. Durations added meanwhile may be in the sum and not yet in a bucket.
    pub(crate) fn read(&self) -> Durations {
        let mut durations =
            Durations { sum: Duration::from_nanos(self.sum_ns.load(Relaxed)), ..Durations::default() };
        for (count, bucket) in durations.counts.iter_mut().zip(&self.buckets) {
            *count = bucket.load(Relaxed);
        }
        durations
    }
}

impl Durations {
    /// How many durations there are.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The upper bound of each bucket in seconds, infinite in the last, and the durations in it alone.
    pub fn buckets(&self) -> impl Iterator<Item = (f64, u64)> + '_ {
        let bounds = BOUNDS_US.iter().map(|us| *us as f64 / 1e6).chain([f64::INFINITY]);
        bounds.zip(self.counts.iter().copied())
    }
}

/// When the batches of a ring were sent, for the time that each waits. The batch number n is in slot n modulo the number of
/// slots. A consumer may take a batch before its producer has written the time, and two producers may write in the other order
/// than they sent: then a batch has no time, or that of the one sent at the same moment.
#[derive(Debug)]
pub(crate) struct SendTimes {
    /// The number of the batch, plus one, and nanoseconds since `start`.
    slots: Box<[(AtomicU64, AtomicU64)]>,
    start: std::time::Instant,
}

impl SendTimes {
    /// For a ring of at most `capacity` batches, and as many producers in `send`.
    pub(crate) fn new(capacity: usize) -> SendTimes {
        let slots = (0..2 * capacity).map(|_| (AtomicU64::new(0), AtomicU64::new(0))).collect();
        SendTimes { slots, start: std::time::Instant::now() }
    }

    fn now(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    fn slot(&self, batch: u64) -> &(AtomicU64, AtomicU64) {
        &self.slots[(batch % self.slots.len() as u64) as usize]
    }

    /// Batch number `batch`, from 0, was sent now.
    pub(crate) fn sent(&self, batch: u64) {
        let (number, at) = self.slot(batch);
        number.store(0, Relaxed);
        at.store(self.now(), Relaxed);
        number.store(batch + 1, std::sync::atomic::Ordering::Release);
    }

    /// How long the batch has waited, if its time is known.
    pub(crate) fn waited(&self, batch: u64) -> Option<Duration> {
        let (number, at) = self.slot(batch);
        let known = number.load(std::sync::atomic::Ordering::Acquire) == batch + 1;
        known.then(|| Duration::from_nanos(self.now().saturating_sub(at.load(Relaxed))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_in_the_bucket_that_bounds_them() {
        let histogram = Histogram::default();
        for us in [0, 10, 11, 1_000_000, 100_000_001] {
            histogram.add(Duration::from_micros(us));
        }
        let durations = histogram.read();
        assert_eq!((durations.count(), durations.sum), (5, Duration::from_micros(101_000_022)));
        let filled: Vec<_> = durations.buckets().filter(|(_, n)| *n > 0).collect();
        assert_eq!(filled, [(1e-5, 2), (3e-5, 1), (1.0, 1), (f64::INFINITY, 1)]);
    }

    #[test]
    fn send_times_have_no_time_of_another_batch() {
        let times = SendTimes::new(2);
        assert_eq!(times.waited(0), None, "not yet written");
        times.sent(0);
        assert!(times.waited(0).is_some());
        assert_eq!(times.waited(4), None, "the slot has batch 0");
        times.sent(4);
        assert_eq!(times.waited(0), None, "the slot has batch 4");
    }
}
