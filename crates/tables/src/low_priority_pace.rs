//! The pace of a low-priority writer to a server that also carries routes.
//!
//! Redis has one thread, and its time bounds the rate of routes. While rows arrive, a low-priority
//! writer uses 1% of that time ([`PAUSE_FACTOR`]). It writes at full speed in four cases: no row came for
//! [`WRITER_QUIET_TIME`], the oldest row is older than [`ROW_AGE_MAX`], a caller waits for it, or
//! its queue is half full; the last case holds until the queue is empty. So with a small queue it
//! writes at the rate of the routes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pause per unit of writing time.
const PAUSE_FACTOR: u32 = 99;
/// Without rows for this time, the source is idle and not just without a CPU.
const WRITER_QUIET_TIME: Duration = Duration::from_millis(500);
/// Older rows are written at full speed.
const ROW_AGE_MAX: Duration = Duration::from_secs(10);
/// The interval at which a pausing writer checks whether it may continue.
const PACE_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Rows of one write while more arrive: the wait of a route that comes meanwhile.
const PACED_BATCH_MAX: usize = 1000;

/// The state shared by the writing thread and its callers. Clones share it.
#[derive(Clone, Debug)]
pub struct LowPriorityPace(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    begin: Instant,
    /// Time of the last rows, in milliseconds from `begin`.
    came: AtomicU64,
    awaited: AtomicBool,
    /// Half of the queue, in batches.
    much: usize,
    /// Whether the queue was half full and has not been empty since.
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

    /// Notes new rows.
    pub fn came(&self, now: Instant) {
        self.0.came.store(now.saturating_duration_since(self.0.begin).as_millis() as u64, Relaxed);
    }

    /// Sets whether a caller waits until all is written.
    pub fn awaited(&self, awaited: bool) {
        self.0.awaited.store(awaited, Relaxed);
    }

    /// The rows of the next write, by the arrival of the oldest row and the number of waiting
    /// batches.
    pub fn rows(&self, usual: usize, oldest: Instant, waiting: usize) -> usize {
        if self.hastens(oldest, waiting) { usual } else { usual.min(PACED_BATCH_MAX) }
    }

    /// Pauses after a write that took `took`; `waiting` returns the number of waiting batches.
    pub fn pause(&self, took: Duration, oldest: Instant, waiting: impl Fn() -> usize) {
        let until = Instant::now() + took.saturating_mul(PAUSE_FACTOR).min(ROW_AGE_MAX);
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
        // The pause would take hours.
        pace.pause(Duration::from_secs(3600), now, || 0);
        pace.awaited(false);
        // No more rows come, so this pause ends too.
        pace.pause(Duration::from_secs(3600), now, || 0);
        assert_eq!(pace.rows(10_000, now, 0), 10_000);
        // A write of no time needs no pause.
        pace.came(Instant::now());
        pace.pause(Duration::ZERO, now, || 0);
    }

    #[test]
    fn pace_with_half_full_queue_is_full_speed_until_it_is_empty() {
        let (pace, now) = (LowPriorityPace::new(20), Instant::now());
        pace.came(Instant::now());
        let rows = [9, 10, 9, 1, 0, 9].map(|waiting| pace.rows(10_000, now, waiting));
        assert_eq!(rows, [PACED_BATCH_MAX, 10_000, 10_000, 10_000, PACED_BATCH_MAX, PACED_BATCH_MAX]);
    }
}
