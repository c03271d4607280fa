//! The pace of a low-priority writer to a server that routes pass through, too.
//!
//! Redis has one thread, and its time bounds the rate of routes. While rows keep coming, a low-priority writer takes 1% of
//! that time ([`REST`]). It writes at full speed in four cases: no row came for [`MOMENT`], the oldest row is older than
//! [`OLD`], a caller waits for it, or its queue is half full, and then until it is empty. So a small bound of the queue
//! makes it write with the routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// For each moment of writing, so many of rest.
const REST: u32 = 99;
/// Nothing came for so long: whoever wrote has come to rest, and was not just kept from a processor by others.
const WRITER_QUIET_TIME: Duration = Duration::from_millis(500);
/// What waited for so long is written at full speed.
const ROW_AGE_MAX: Duration = Duration::from_secs(10);
/// How often it looks whether it may go on.
const PACE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Rows that are written at once while more keeps coming: a route that comes meanwhile waits for so many.
const PACED_BATCH_MAX: usize = 1000;

/// The state that the writing thread and its callers share. Clones are of the same state.
#[derive(Clone, Debug)]
pub struct LowPriorityPace(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    begin: Instant,
    /// When something came last, in milliseconds from `begin`.
    came: AtomicU64,
    awaited: AtomicBool,
    /// Half of the queue, in batches.
    much: usize,
    /// The queue was half full and has not been empty since.
    catching_up: AtomicBool,
}

impl LowPriorityPace {
    /// The pace of a writer with a queue of `bound` batches.
    pub fn new(bound: usize) -> LowPriorityPace {
        LowPriorityPace(Arc::new(Shared {
            begin: Instant::now(),
            came: AtomicU64::new(0),
            awaited: AtomicBool::new(false),
            much: (bound / 2).max(1),
            catching_up: AtomicBool::new(false),
        }))
    }

    /// Notes that rows came.
    pub fn came(&self, now: Instant) {
        self.0.came.store(now.saturating_duration_since(self.0.begin).as_millis() as u64, Relaxed);
    }

    /// Sets whether a caller waits until all is written.
    pub fn awaited(&self, awaited: bool) {
        self.0.awaited.store(awaited, Relaxed);
    }

    /// How many rows are written at once, when the oldest that waits came at `oldest` and so many batches wait.
    pub fn rows(&self, usual: usize, oldest: Instant, waiting: usize) -> usize {
        if self.hastens(oldest, waiting) { usual } else { usual.min(PACED_BATCH_MAX) }
    }

    /// After it wrote for as long as `took`; `waiting` says how many batches wait.
    pub fn rest(&self, took: Duration, oldest: Instant, waiting: impl Fn() -> usize) {
        let until = Instant::now() + took.saturating_mul(REST).min(ROW_AGE_MAX);
        while Instant::now() < until && !self.hastens(oldest, waiting()) {
            std::thread::sleep(PACE_POLL_INTERVAL);
        }
    }

    fn hastens(&self, oldest: Instant, waiting: usize) -> bool {
        let idle = || {
            let came = Duration::from_millis(self.0.came.load(Relaxed));
            self.0.begin.elapsed().saturating_sub(came) >= WRITER_QUIET_TIME
        };
        let catches_up = waiting >= self.0.much || waiting > 0 && self.0.catching_up.load(Relaxed);
        self.0.catching_up.store(catches_up, Relaxed);
        catches_up || self.0.awaited.load(Relaxed) || oldest.elapsed() >= ROW_AGE_MAX || idle()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn low_priority_writer_hastens_when_idle_or_awaited() {
        let (pace, now) = (LowPriorityPace::new(20), Instant::now());
        pace.came(Instant::now());
        assert_eq!(pace.rows(10_000, now, 0), PACED_BATCH_MAX);
        assert_eq!(pace.rows(10, now, 0), 10);
        assert_eq!(now.checked_sub(ROW_AGE_MAX).map_or(10_000, |old| pace.rows(10_000, old, 0)), 10_000);
        pace.awaited(true);
        // It would be hours.
        pace.rest(Duration::from_secs(3600), now, || 0);
        pace.awaited(false);
        // Nothing more comes, so this ends too.
        pace.rest(Duration::from_secs(3600), now, || 0);
        assert_eq!(pace.rows(10_000, now, 0), 10_000);
        // It wrote for no time at all, so it rests for none.
        pace.came(Instant::now());
        pace.rest(Duration::ZERO, now, || 0);
    }

    #[test]
    fn pace_with_half_full_queue_is_full_speed_until_it_is_empty() {
        let (pace, now) = (LowPriorityPace::new(20), Instant::now());
        pace.came(Instant::now());
        let rows = [9, 10, 9, 1, 0, 9].map(|waiting| pace.rows(10_000, now, waiting));
        assert_eq!(rows, [PACED_BATCH_MAX, 10_000, 10_000, 10_000, PACED_BATCH_MAX, PACED_BATCH_MAX]);
    }
}
