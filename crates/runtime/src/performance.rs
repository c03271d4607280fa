//! The PerformanceTimer of SONiC's "BGP loading optimization": tasks that a stage finished, its
//! busy time and its idle time.
//!
//! Calls are summed until they reach [`THRESHOLD`] tasks and a millisecond of busy time; the sum is
//! one [`Record`]. The latest records stay in memory for queries. The gap before a call is idle
//! time. An idle stage waits for the stage before it; a busy one limits the others.

use crate::idle;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// Tasks of a record, at least.
pub const THRESHOLD: u64 = 10_000;
/// Busy time of a record, at least.
const RECORD_BUSY_TIME_MIN: Duration = Duration::from_millis(1);
/// Calls that a record lists one by one, its first ones.
const DETAILED_CALLS_MAX: usize = 6;
/// Stored records.
const RECORDS_MAX: usize = 64;

/// One record: consecutive calls.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Its number among the records of its timer, from 1.
    pub number: u64,
    /// Tasks finished.
    pub tasks: u64,
    /// Calls that finished any.
    pub calls: u64,
    /// Time at work.
    pub busy: Duration,
    /// Time between calls, and before the first of them.
    pub idle: Duration,
    /// The idle time before each of the first six calls that finished tasks.
    pub gaps: First<Duration>,
    /// The tasks of each.
    pub incs: First<u64>,
    /// The busy time of each.
    pub intervals: First<Duration>,
}

/// At most six numbers, stored in the record itself. Separate allocations would lie between
/// short-lived ones and keep that memory from being purged.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct First<T> {
    values: [T; DETAILED_CALLS_MAX],
    len: usize,
}

impl<T> First<T> {
    fn push(&mut self, value: T) {
        self.values[self.len] = value;
        self.len += 1;
    }
}

impl<T> Deref for First<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        &self.values[..self.len]
    }
}

impl<T: Default> FromIterator<T> for First<T> {
    /// Takes the first six.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut first = First::default();
        values.into_iter().take(DETAILED_CALLS_MAX).for_each(|value| first.push(value));
        first
    }
}

impl Record {
    /// Busy and idle time.
    pub fn total(&self) -> Duration {
        self.busy + self.idle
    }

    /// Tasks a second, idle time included.
    pub fn rate(&self) -> f64 {
        self.tasks as f64 / self.total().as_secs_f64()
    }
}

/// The timer of one stage.
#[derive(Debug)]
pub struct PerformanceTimer {
    last_end: Option<Instant>,
    made: u64,
    now: Record,
    /// The latest records in a ring of [`RECORDS_MAX`]. Allocated once, in a segment of its own:
    /// beside short-lived blocks of this size it would keep their memory from being purged.
    records: Vec<Record>,
}

impl Default for PerformanceTimer {
    fn default() -> Self {
        let records = idle::long_lived_vec(RECORDS_MAX);
        PerformanceTimer { last_end: None, made: 0, now: Record::default(), records }
    }
}

impl PerformanceTimer {
    /// Adds a call from `begin` to `end` that finished `tasks` tasks. A call without tasks adds
    /// only its time. Returns whether that completed a record.
    pub fn add(&mut self, begin: Instant, end: Instant, tasks: u64) -> bool {
        let gap = self.last_end.map_or(Duration::ZERO, |last| begin.saturating_duration_since(last));
        let interval = end.saturating_duration_since(begin);
        self.last_end = Some(end);
        let now = &mut self.now;
        now.busy += interval;
        now.idle += gap;
        now.tasks += tasks;
        if tasks > 0 {
            now.calls += 1;
            if now.gaps.len() < DETAILED_CALLS_MAX {
                now.gaps.push(gap);
                now.incs.push(tasks);
                now.intervals.push(interval);
            }
        }
        if now.tasks >= THRESHOLD && now.busy >= RECORD_BUSY_TIME_MIN {
            let (record, oldest) = (std::mem::take(now), self.oldest());
            self.made += 1;
            let record = Record { number: self.made, ..record };
            match self.records.len() {
                RECORDS_MAX => self.records[oldest] = record,
                _ => self.records.push(record),
            }
            return true;
        }
        false
    }

    /// The latest records, oldest first.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let (latest, older) = self.records.split_at(self.oldest());
        older.iter().chain(latest)
    }

    /// The index of the oldest record.
    fn oldest(&self) -> usize {
        match self.records.len() {
            RECORDS_MAX => (self.made % RECORDS_MAX as u64) as usize,
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_of_the_document() {
        let start = Instant::now();
        let ms = |ms| start + Duration::from_millis(ms);
        let mut timer = PerformanceTimer::default();
        timer.add(ms(0), ms(0), 0);
        timer.add(ms(343), ms(934), 30_000);
        let record = timer.records().next().unwrap();
        assert_eq!((record.tasks, record.busy.as_millis(), record.idle.as_millis()), (30_000, 591, 343));
        assert_eq!(format!("{:.1}", record.rate() / 1000.0), "32.1");
        assert_eq!((record.calls, &record.incs[..]), (1, &[30_000][..]));
    }

    #[test]
    fn a_record_has_enough_tasks_and_enough_work() {
        let start = Instant::now();
        let us = |us| start + Duration::from_micros(us);
        let mut timer = PerformanceTimer::default();
        for call in 0..9 {
            timer.add(us(call * 100), us(call * 100 + 50), 2000);
        }
        assert_eq!(timer.records().count(), 0, "18,000 tasks, but 450 µs of work");
        timer.add(us(2000), us(3000), 0);
        let record = timer.records().next().unwrap();
        assert_eq!((record.tasks, record.calls, record.gaps.len()), (18_000, 9, DETAILED_CALLS_MAX));
        assert_eq!(record.total(), Duration::from_micros(3000));
        timer.add(us(5000), us(7000), THRESHOLD);
        assert_eq!(timer.records().nth(1).unwrap().gaps[..], [Duration::from_millis(2)]);
    }

    #[test]
    fn only_the_latest_are_kept() {
        let start = Instant::now();
        let mut timer = PerformanceTimer::default();
        for call in 0..2 * RECORDS_MAX as u64 + 5 {
            let at = |ms: u64| start + Duration::from_millis(2 * call + ms);
            timer.add(at(0), at(1), THRESHOLD + call);
        }
        let last = 2 * RECORDS_MAX as u64 + 5;
        let numbers: Vec<_> = timer.records().map(|record| (record.number, record.tasks)).collect();
        let latest = last - RECORDS_MAX as u64 + 1..=last;
        assert_eq!(numbers, latest.map(|n| (n, THRESHOLD + n - 1)).collect::<Vec<_>>());
    }
}
