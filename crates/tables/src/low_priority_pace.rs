//! The pace of a low-priority writer to a server that also carries routes.
//!
//! Redis has one thread, and its time bounds the rate of routes. While rows arrive, a low-priority
//! writer uses 1% of that time ([`PAUSE_FACTOR`]). It writes at full speed in four cases: no row came for
//! [`WRITER_QUIET_TIME`], a caller waits for it, the oldest row has half of the age of its limits (without
//! one, [`ROW_AGE_MAX`]), or half of the permitted rows wait. The last two hold until less than a batch
//! waits, so the writer writes seldom, and much at a time. Full speed is no bound: only waiting
//! producers ([`crate::LagLimits::waits`]) keep the age.

use crate::lag::WriteBehindLag;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Pause per unit of writing time.
const PAUSE_FACTOR: u32 = 99;
/// Without rows for this time, the source is idle and not just without a CPU.
const WRITER_QUIET_TIME: Duration = Duration::from_millis(500);
/// Without an age in the limits, rows of this age are written at full speed.
const ROW_AGE_MAX: Duration = Duration::from_secs(10);
/// The interval at which a pausing writer checks whether it may continue: a part of the age, and at
/// most this.
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
    lag: WriteBehindLag,
    /// Whether half of a limit was reached and more than a batch waits since.
    catching_up: AtomicBool,
}

impl LowPriorityPace {
    /// The pace of a writer whose database is behind by `lag`.
    pub fn new(lag: WriteBehindLag) -> LowPriorityPace {
        LowPriorityPace(Arc::new(Shared {
            begin: Instant::now(),
            came: AtomicU64::new(0),
            awaited: AtomicBool::new(false),
            lag,
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

    /// The rows of the next write.
    pub fn rows(&self, usual: usize) -> usize {
        if self.hastens(Instant::now()) { usual } else { usual.min(PACED_BATCH_MAX) }
    }

    /// Pauses after a write that took `took`.
    pub fn pause(&self, took: Duration) {
        let now = Instant::now();
        let until = now + took.saturating_mul(PAUSE_FACTOR).min(ROW_AGE_MAX);
        let part = self.0.lag.limits().age.map_or(PACE_POLL_INTERVAL, |age| age / 8);
        let interval = PACE_POLL_INTERVAL.min(part).max(Duration::from_millis(1));
        while Instant::now() < until && !self.hastens(Instant::now()) {
            std::thread::sleep(interval);
        }
    }

    fn hastens(&self, now: Instant) -> bool {
        let (limits, behind) = (self.0.lag.limits(), self.0.lag.behind(now));
        let came = self.0.begin + Duration::from_millis(self.0.came.load(Relaxed));
        let idle = now.saturating_duration_since(came) >= WRITER_QUIET_TIME;
        // A batch takes a place of the queue, however few its rows are.
        let rows = behind.rows.max(behind.batches * PACED_BATCH_MAX);
        let old = behind.age >= limits.age.map_or(ROW_AGE_MAX, |age| age / 2);
        let much = old || rows >= limits.rows / 2 || !self.0.lag.has_room(now);
        let catches_up = much || self.0.catching_up.load(Relaxed) && behind.rows > PACED_BATCH_MAX;
        self.0.catching_up.store(catches_up, Relaxed);
        catches_up || self.0.awaited.load(Relaxed) || idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lag::LagLimits;
    use ribtide_runtime::ring::Rings;

    fn pace(limits: LagLimits) -> (LowPriorityPace, WriteBehindLag) {
        let lag = WriteBehindLag::new(limits, "APPL_DB");
        let pace = LowPriorityPace::new(lag.clone());
        pace.came(Instant::now());
        (pace, lag)
    }

    #[test]
    fn low_priority_writer_hastens_when_idle_or_awaited() {
        let (pace, lag) = pace(LagLimits::rows(20_000));
        lag.enqueue(1, || false);
        assert_eq!(pace.rows(10_000), PACED_BATCH_MAX);
        assert_eq!(pace.rows(10), 10);
        pace.awaited(true);
        // The pause would take hours.
        pace.pause(Duration::from_secs(3600));
        pace.awaited(false);
        // No more rows come, so this pause ends too.
        pace.pause(Duration::from_secs(3600));
        assert_eq!(pace.rows(10_000), 10_000);
        // A write of no time needs no pause.
        pace.came(Instant::now());
        pace.pause(Duration::ZERO);
    }

    #[test]
    fn pace_at_half_of_the_rows_is_full_speed_until_little_waits() {
        let (pace, lag) = pace(LagLimits::rows(20_000));
        let gauge = lag.gauge("APPL_DB", &Rings::default());
        let next = |came: usize, written| {
            (0..came).for_each(|_| lag.enqueue(1000, || false));
            lag.written(written, Duration::ZERO, &gauge);
            pace.came(Instant::now());
            pace.rows(10_000)
        };
        let rows = [next(9, 0), next(1, 0), next(0, 5), next(0, 3), next(0, 1), next(8, 0)];
        assert_eq!(rows, [PACED_BATCH_MAX, 10_000, 10_000, 10_000, PACED_BATCH_MAX, PACED_BATCH_MAX]);
    }

    #[test]
    fn pace_at_half_of_the_age_is_full_speed_until_little_waits() {
        let (age, took) = (Duration::from_millis(600), Duration::from_millis(10));
        let (pace, lag) = pace(LagLimits { rows: 1_000_000, age: Some(age), waits: false });
        let gauge = lag.gauge("APPL_DB", &Rings::default());
        (0..3).for_each(|_| lag.enqueue(1000, || false));
        // The pause would take hours.
        pace.pause(Duration::from_secs(3600));
        lag.written(1, took, &gauge);
        lag.enqueue(1000, || false);
        assert_eq!(pace.rows(10_000), 10_000, "more than a batch waits");
        lag.written(2, took, &gauge);
        lag.enqueue(0, || false);
        lag.written(1, took, &gauge);
        pace.came(Instant::now());
        assert_eq!(pace.rows(10_000), PACED_BATCH_MAX);
    }
}
