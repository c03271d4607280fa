//! When fpmsyncd writes changed rows, and how many at once.
//!
//! The counterpart of `flushPipeline` (sonic-swss, `fpmsyncd/fpmsyncd.cpp`) and of the capacity of
//! `RedisPipeline` (sonic-swss-common, `common/redispipeline.h`).

use clap::Args;
use clap::builder::RangedU64ValueParser;
use ribtide_tables::Pipeline;
use ribtide_tables::state_table::MAX_BATCH;
use std::time::{Duration, Instant};

/// When rows are written.
#[derive(Args, Clone, Copy, Debug)]
pub struct Flush {
    /// The most changed routes that wait: a flush begins at this number, and writes at most so many to
    /// Redis, with one publication
    #[arg(long, value_name = "ROUTES", default_value_t = 10_000)]
    pub pipeline: usize,
    /// The routes of one script call in Redis. With 1 each call publishes, as SONiC's do
    #[arg(long, value_name = "ROUTES", default_value_t = 1000,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..=MAX_BATCH as u64))]
    pub rows_per_call: usize,
    /// The longest time that a changed route waits for a flush
    #[arg(long, value_name = "MS", default_value_t = 10)]
    pub flush_timer: u64,
    /// Below this number of changed routes a flush begins at once
    #[arg(long, value_name = "ROUTES", default_value_t = 500)]
    pub small_traffic: usize,
}

impl Flush {
    fn interval(&self) -> Duration {
        Duration::from_millis(self.flush_timer)
    }

    /// The batching of rows that go through Redis.
    pub(super) fn rows(&self, stable: bool) -> Pipeline {
        Pipeline { batch: self.rows_per_call, capacity: self.pipeline, stable }
    }
}

/// The flush timer. The caller passes the time.
#[derive(Debug)]
pub(super) struct FlushTimer {
    flush: Flush,
    /// The time of the last flush.
    flushed: Instant,
}

impl FlushTimer {
    pub(super) fn new(flush: Flush, now: Instant) -> FlushTimer {
        FlushTimer { flush, flushed: now }
    }

    /// Starts the timer again after a flush.
    pub(super) fn restart(&mut self, now: Instant) {
        self.flushed = now;
    }

    /// Whether so many changed rows are written now: a few at once, a full pipeline at once, and
    /// others when the timer has expired.
    pub(super) fn is_due(&self, changed: usize, now: Instant) -> bool {
        changed > 0
            && (changed < self.flush.small_traffic
                || changed >= self.flush.pipeline
                || self.left(now).is_zero())
    }

    /// The time until it expires.
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.flush.interval().saturating_sub(now.saturating_duration_since(self.flushed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);
    const FLUSH: Flush = Flush { pipeline: 100, rows_per_call: 10, flush_timer: 10, small_traffic: 5 };

    fn timer() -> (FlushTimer, Instant) {
        let start = Instant::now();
        (FlushTimer::new(FLUSH, start), start)
    }

    #[test]
    fn few_changes_and_a_full_pipeline_are_written_at_once() {
        let (timer, start) = timer();
        let due = [0, 1, 4, 5, 99, 100, 101].map(|changed| timer.is_due(changed, start));
        assert_eq!(due, [false, true, true, false, false, true, true]);
    }

    #[test]
    fn changes_between_the_two_wait_for_the_flush_timer() {
        let (mut timer, start) = timer();
        assert!(!timer.is_due(50, start + 9 * MS));
        assert_eq!(timer.left(start + 9 * MS), MS);
        assert!(timer.is_due(50, start + 10 * MS));
        assert!(timer.is_due(50, start + 1000 * MS));
        assert_eq!(timer.left(start + 1000 * MS), Duration::ZERO);
        assert!(!timer.is_due(0, start + 1000 * MS), "there is nothing to write");
        timer.restart(start + 1000 * MS);
        assert!(!timer.is_due(50, start + 1009 * MS));
        assert_eq!(timer.left(start + 1001 * MS), 9 * MS);
        assert!(timer.is_due(50, start + 1010 * MS));
    }
}
