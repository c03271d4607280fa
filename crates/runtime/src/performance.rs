//! The PerformanceTimer of SONiC's "BGP loading optimization": how many tasks a stage finished, how long it was at work on them
//! and how long it waited in between.
//!
//! What counts is added up over calls until there are [`THRESHOLD`] tasks and a millisecond of work, then it is one
//! [`Record`]. The latest are kept in memory, so that a client can read them, and they cost nothing when none does.
//! The gap before a call is idle time: a stage that is idle waits for the one before it, one that is busy is
//! what the others wait for.

use crate::idle;
use std::ops::Deref;
use std::time::{Duration, Instant};

/// Tasks that make a record.
pub const THRESHOLD: u64 = 10_000;
/// The least time at work that makes a record.
const LEAST: Duration = Duration::from_millis(1);
/// Calls that are told one by one, the first of a record.
const DETAILED_CALLS_MAX: usize = 6;
/// Records that are kept, the latest.
const KEPT: usize = 64;

/// One line of the document: some calls in a row.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Record {
    /// Its place among all records of its timer, from 1 up.
    pub number: u64,
    /// Tasks finished.
    pub tasks: u64,
    /// Calls that finished any.
    pub calls: u64,
    /// Time at work.
    pub busy: Duration,
    /// Time between calls, and before the first of them.
    pub idle: Duration,
    /// Of the first six calls that finished any: the time before each.
    pub gaps: First<Duration>,
    /// The tasks of each.
    pub incs: First<u64>,
    /// The time of each.
    pub intervals: First<Duration>,
}

/// At most six numbers, in the record itself: in pieces of their own those of a burst stand among what came and went with it, and
/// keep that from being purged.
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
    /// The first six.
    fn from_iter<I: IntoIterator<Item = T>>(values: I) -> Self {
        let mut first = First::default();
        values.into_iter().take(DETAILED_CALLS_MAX).for_each(|value| first.push(value));
        first
    }
}

impl Record {
    /// Time at work and idle.
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
    /// The latest, each in the place of the one that came [`KEPT`] before it. With room from the start, in memory by itself: beside
    /// blocks as long that come and go it would keep theirs from being purged.
    records: Vec<Record>,
}

impl Default for PerformanceTimer {
    fn default() -> Self {
        let records = idle::long_lived_vec(KEPT);
        PerformanceTimer { last_end: None, made: 0, now: Record::default(), records }
    }
}

impl PerformanceTimer {
    /// Takes in a call that began and ended then and finished so many tasks. One that finished none counts with its
    /// time only.
    pub fn add(&mut self, begin: Instant, end: Instant, tasks: u64) {
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
        if now.tasks >= THRESHOLD && now.busy >= LEAST {
            let (record, oldest) = (std::mem::take(now), self.oldest());
            self.made += 1;
            let record = Record { number: self.made, ..record };
            match self.records.len() {
                KEPT => self.records[oldest] = record,
                _ => self.records.push(record),
            }
        }
    }

    /// The latest records, oldest first.
    pub fn records(&self) -> impl Iterator<Item = &Record> {
        let (latest, older) = self.records.split_at(self.oldest());
        older.iter().chain(latest)
    }

    /// Where the oldest record is.
    fn oldest(&self) -> usize {
        match self.records.len() {
            KEPT => (self.made % KEPT as u64) as usize,
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
        for call in 0..2 * KEPT as u64 + 5 {
            let at = |ms: u64| start + Duration::from_millis(2 * call + ms);
            timer.add(at(0), at(1), THRESHOLD + call);
        }
        let last = 2 * KEPT as u64 + 5;
        let numbers: Vec<_> = timer.records().map(|record| (record.number, record.tasks)).collect();
        let latest = last - KEPT as u64 + 1..=last;
        assert_eq!(numbers, latest.map(|n| (n, THRESHOLD + n - 1)).collect::<Vec<_>>());
    }
}
