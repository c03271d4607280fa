//! Meters: routes that each stage handled, and its busy time.
//!
//! A meter is updated once per batch, so it costs nothing per route. Busy time is wall time on
//! batches, without waits for a ring, a socket or a database. Each thread has its own
//! [`PerformanceTimer`].

use crate::histogram::{Durations, Histogram};
use crate::performance::{PerformanceTimer, Record};
use crate::ring::Wake;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

/// All meters of a process, in the order of the pipeline.
#[derive(Clone)]
pub struct Meters {
    start: Instant,
    meters: Arc<Mutex<Vec<Arc<Inner>>>>,
    /// Prefix of stage names, where several alike exist.
    owner: Option<Arc<str>>,
    on_record: Option<Wake>,
}

impl fmt::Debug for Meters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Meters").field("meters", &self.meters).finish_non_exhaustive()
    }
}

impl Default for Meters {
    fn default() -> Self {
        Meters { start: Instant::now(), meters: Arc::default(), owner: None, on_record: None }
    }
}

struct Inner {
    name: String,
    start: Instant,
    routes: AtomicU64,
    batches: AtomicU64,
    busy_ns: AtomicU64,
    work: Histogram,
    /// Microseconds since `start`, plus one; zero before the first batch.
    first_us: AtomicU64,
    last_us: AtomicU64,
    /// One per thread of the stage.
    timers: Mutex<Vec<Weak<Mutex<PerformanceTimer>>>>,
    on_record: Option<Wake>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("name", &self.name)
            .field("routes", &self.routes)
            .finish_non_exhaustive()
    }
}

/// One stage's meter. Clones count together; each result of [`Meters::meter`] has a timer of its
/// own.
#[derive(Clone, Debug)]
pub struct Meter {
    stage: Arc<Inner>,
    timer: Arc<Mutex<PerformanceTimer>>,
}

/// One meter's state.
#[derive(Clone, PartialEq, Debug)]
pub struct Reading {
    /// The stage.
    pub name: String,
    /// Route changes handled since the start.
    pub routes: u64,
    /// Number of their batches.
    pub batches: u64,
    /// Time spent on them.
    pub busy: Duration,
    /// How long each of them took.
    pub work: Durations,
    /// From the beginning of the first batch to the end of the last, since the start of the process.
    pub span: Option<(Duration, Duration)>,
}

impl Meters {
    /// The same meters, with `owner` before new stage names: for one of several alike.
    pub fn of(&self, owner: &str) -> Meters {
        Meters { owner: Some(owner.into()), ..self.clone() }
    }

    /// The same meters; each new one calls `wake` when a [`Record`] is complete.
    pub fn on_record(self, wake: Wake) -> Meters {
        Meters { on_record: Some(wake), ..self }
    }

    /// A meter for the stage `name`; threads of one stage share it by name.
    pub fn meter(&self, name: &str) -> Meter {
        let of_one = self.owner.as_ref().map(|owner| format!("{owner}: {name}"));
        let name = of_one.as_deref().unwrap_or(name);
        let mut meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = meters.iter().find(|m| m.name == name) {
            return Meter::of(known.clone());
        }
        let inner = Arc::new(Inner {
            name: name.into(),
            start: self.start,
            routes: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            busy_ns: AtomicU64::new(0),
            work: Histogram::default(),
            first_us: AtomicU64::new(0),
            last_us: AtomicU64::new(0),
            timers: Mutex::default(),
            on_record: self.on_record.clone(),
        });
        meters.push(inner.clone());
        Meter::of(inner)
    }

    /// The latest records of every thread of every stage, oldest first. A stage of several threads has each of them by
    /// number, in the order in which they began.
    pub fn performance(&self) -> Vec<(String, Vec<Record>)> {
        let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.iter().flat_map(|m| m.performance()).collect()
    }

    /// The state of every meter, in the order they were made.
    pub fn read(&self) -> Vec<Reading> {
        let meters = self.meters.lock().unwrap_or_else(PoisonError::into_inner);
        meters.iter().map(|m| m.read()).collect()
    }
}

impl Inner {
    fn performance(&self) -> Vec<(String, Vec<Record>)> {
        let mut timers = self.timers.lock().unwrap_or_else(PoisonError::into_inner);
        timers.retain(|timer| timer.strong_count() > 0);
        let several = timers.len() > 1;
        let name = |index| if several { format!("{}-{index}", self.name) } else { self.name.clone() };
        let alive = timers.iter().filter_map(Weak::upgrade).enumerate();
        alive
            .map(|(index, timer)| {
                let timer = timer.lock().unwrap_or_else(PoisonError::into_inner);
                (name(index), timer.records().cloned().collect())
            })
            .collect()
    }

    fn read(&self) -> Reading {
        let first = self.first_us.load(Relaxed).checked_sub(1);
        Reading {
            name: self.name.clone(),
            routes: self.routes.load(Relaxed),
            batches: self.batches.load(Relaxed),
            busy: Duration::from_nanos(self.busy_ns.load(Relaxed)),
            work: self.work.read(),
            span: first
                .map(|f| (Duration::from_micros(f), Duration::from_micros(self.last_us.load(Relaxed)))),
        }
    }
}

impl Meter {
    fn of(stage: Arc<Inner>) -> Meter {
        let timer = Arc::default();
        let mut timers = stage.timers.lock().unwrap_or_else(PoisonError::into_inner);
        timers.push(Arc::downgrade(&timer));
        drop(timers);
        Meter { stage, timer }
    }

    /// Runs `batch`, which returns the number of route changes that it handled.
    pub fn run(&self, batch: impl FnOnce() -> usize) {
        let begin = Instant::now();
        let routes = batch();
        self.add(routes, begin);
    }

    /// Counts one batch of `routes` route changes from `begin` until now. Batches without routes
    /// are not counted: timers and polls are no work.
    pub fn add(&self, routes: usize, begin: Instant) {
        if routes == 0 {
            return;
        }
        let end = Instant::now();
        // No other thread takes it, but for the short time of a query.
        let is_new = self.timer.lock().unwrap_or_else(PoisonError::into_inner).add(begin, end, routes as u64);
        let m = &self.stage;
        if is_new && let Some(wake) = &m.on_record {
            wake();
        }
        let since = |t: Instant| t.saturating_duration_since(m.start).as_micros() as u64;
        m.routes.fetch_add(routes as u64, Relaxed);
        m.batches.fetch_add(1, Relaxed);
        m.busy_ns.fetch_add((end - begin).as_nanos() as u64, Relaxed);
        m.work.add(end - begin);
        let _ = m.first_us.compare_exchange(0, since(begin) + 1, Relaxed, Relaxed);
        m.last_us.fetch_max(since(end), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_of_one_stage_count_together() {
        let meters = Meters::default();
        assert_eq!(meters.meter("shard").stage.read().span, None);
        std::thread::scope(|s| {
            for _ in 0..2 {
                s.spawn(|| meters.meter("shard").run(|| 500));
            }
        });
        meters.meter("shard").run(|| 0);
        let reading = &meters.read()[0];
        assert_eq!((reading.routes, reading.batches, reading.work.count()), (1000, 2, 2));
        let (first, last) = reading.span.unwrap();
        assert!(first <= last);
    }

    #[test]
    fn each_thread_of_a_stage_has_its_own_performance() {
        let meters = Meters::default();
        let (one, two, rib) = (meters.meter("shard"), meters.meter("shard"), meters.meter("rib"));
        let begin = Instant::now() - Duration::from_secs(1);
        one.add(10_000, begin);
        two.add(20_000, begin);
        two.add(1, begin);
        let tasks = |(name, records): (String, Vec<Record>)| {
            (name, records.iter().map(|r| r.tasks).collect::<Vec<_>>())
        };
        let all: Vec<_> = meters.performance().into_iter().map(tasks).collect();
        let expected = [("shard-0", vec![10_000]), ("shard-1", vec![20_000]), ("rib", vec![])];
        assert_eq!(all, expected.map(|(name, tasks)| (name.to_string(), tasks)));
        drop((one, rib));
        assert_eq!(meters.performance().len(), 1);
    }
}
