//! How far a write-behind database is behind: the rows that it does not have, and the age of the
//! oldest.
//!
//! The age sets the pace of the writer (`low_priority_pace`). It bounds nothing by itself:
//! rows that come faster than the server takes them grow older. With [`LagLimits::waits`] producers
//! wait instead: a row is admitted while the rows before it need at most a third of the age at the
//! rate of the last writes, and while the oldest is younger than three quarters of it. Then only a
//! server that suddenly needs more than three times as long exceeds the age, by the rows that were
//! admitted before.

use ribtide_runtime::gauge::Gauge;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::watchdog::PeerWait;
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The assumed rate of an unknown server, in rows a second. The slowest measured one is faster.
const INITIAL_RATE: f64 = 20_000.0;
/// Rows of a write that says something about the rate: round trips bound the rate of fewer rows.
const SAMPLE_ROWS_MIN: usize = 500;
/// The part of the age for which rows may wait at the rate of the last writes, where producers wait.
const ADMITTED_PART: f64 = 1.0 / 3.0;
/// The weight of the last write in the rate, if it was slower than those before, or faster: a server
/// with several busy clients is slower at once, and one write beside an idle one says little.
const SAMPLE_WEIGHTS: (f64, f64) = (0.7, 0.1);
/// Rows that are admitted at any rate.
const ROWS_MIN: usize = 1000;
/// The interval at which a waiting producer checks whether the writer has ended.
const END_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// How far a write-behind database may be behind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LagLimits {
    /// Rows, in whole thousands: at so many, producers wait in any case.
    pub rows: usize,
    /// From half of this age of the oldest row on, the writer writes at full speed; `None`: from half of
    /// `rows` on.
    pub age: Option<Duration>,
    /// Whether producers wait rather than exceed `age`.
    pub waits: bool,
}

impl LagLimits {
    /// A limit of rows alone.
    pub fn rows(rows: usize) -> LagLimits {
        LagLimits { rows, age: None, waits: false }
    }
}

/// How far a write-behind database is behind. Clones share it.
#[derive(Clone, Debug)]
pub struct WriteBehindLag(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    limits: LagLimits,
    unwritten: Mutex<Unwritten>,
    written: Condvar,
    /// The producer's wait, for the watchdog.
    wait: PeerWait,
}

/// What waits at a moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Behind {
    /// Enqueued batches that are not written.
    pub(crate) batches: usize,
    /// Their rows.
    pub(crate) rows: usize,
    /// The age of the oldest.
    pub(crate) age: Duration,
}

/// Enqueued rows that the database does not have.
#[derive(Debug)]
struct Unwritten {
    /// Arrival time and rows of each batch, oldest first.
    batches: VecDeque<(Instant, usize)>,
    rows: usize,
    /// Rows that the server takes in a second.
    rate: f64,
}

impl Unwritten {
    fn age(&self, now: Instant) -> Duration {
        self.batches.front().map_or(Duration::ZERO, |(came, _)| now.saturating_duration_since(*came))
    }

    fn has_room(&self, limits: LagLimits, now: Instant) -> bool {
        let Some(age) = limits.age.filter(|_| limits.waits) else { return true };
        let rows_max = ((self.rate * age.as_secs_f64() * ADMITTED_PART) as usize).max(ROWS_MIN);
        self.rows < rows_max && self.age(now) < age * 3 / 4
    }

    /// Notes that the oldest batches are written, which took `took`. Returns the age of the oldest.
    fn written(&mut self, batches: usize, took: Duration, now: Instant) -> Duration {
        let age = self.age(now);
        let rows: usize = self.batches.drain(..batches.min(self.batches.len())).map(|(_, rows)| rows).sum();
        self.rows -= rows;
        if rows >= SAMPLE_ROWS_MIN {
            let sample = rows as f64 / took.as_secs_f64().max(1e-6);
            let weight = if sample < self.rate { SAMPLE_WEIGHTS.0 } else { SAMPLE_WEIGHTS.1 };
            self.rate += weight * (sample - self.rate);
        }
        age
    }
}

/// The name of [`WriteBehindLag::gauge`], around the rows.
const GAUGE_PREFIX: &str = "age of the oldest row of ";
const GAUGE_SUFFIX: &str = ", in ms";

impl WriteBehindLag {
    /// Nothing waits for the database of this name.
    pub fn new(limits: LagLimits, database: &str) -> WriteBehindLag {
        let unwritten = Unwritten { batches: VecDeque::new(), rows: 0, rate: INITIAL_RATE };
        WriteBehindLag(Arc::new(Shared {
            limits,
            unwritten: Mutex::new(unwritten),
            written: Condvar::new(),
            wait: PeerWait::new(format!("room for rows that {database} does not have")),
        }))
    }

    /// The gauge of the age in milliseconds, for [`Rings::depths`]: its peak is the greatest age at
    /// which a row was written. [`LagLimits::age`] is shown as its bound, also where no producer waits.
    pub fn gauge(&self, what: &str, rings: &Rings) -> Gauge {
        let (lag, bound) = (self.clone(), self.0.limits.age);
        let bound = bound.map(|age| usize::try_from(age.as_millis()).unwrap_or(usize::MAX));
        let name = format!("{GAUGE_PREFIX}{what}{GAUGE_SUFFIX}");
        rings.sampled_gauge(name, bound, move || milliseconds(lag.behind(Instant::now()).age))
    }

    /// The rows that a gauge of this name is about, as `ROUTE_TABLE to APPL_DB`; `None` if it is not a
    /// [`WriteBehindLag::gauge`].
    pub fn rows_of_gauge(name: &str) -> Option<&str> {
        name.strip_prefix(GAUGE_PREFIX)?.strip_suffix(GAUGE_SUFFIX)
    }

    pub(crate) fn limits(&self) -> LagLimits {
        self.0.limits
    }

    pub(crate) fn behind(&self, now: Instant) -> Behind {
        let unwritten = self.lock();
        Behind { batches: unwritten.batches.len(), rows: unwritten.rows, age: unwritten.age(now) }
    }

    /// Whether [`WriteBehindLag::enqueue`] would not wait.
    pub fn has_room(&self, now: Instant) -> bool {
        self.lock().has_room(self.0.limits, now)
    }

    /// Notes a batch. With [`LagLimits::waits`] it waits while there is no room, unless `is_over`
    /// returns that nothing more will be written. Call it before the batch is handed over.
    pub fn enqueue(&self, rows: usize, is_over: impl Fn() -> bool) {
        let mut unwritten = self.lock();
        let mut waited = false;
        while !unwritten.has_room(self.0.limits, Instant::now()) && !is_over() {
            self.0.wait.begin();
            waited = true;
            let waiting = self.0.written.wait_timeout(unwritten, END_POLL_INTERVAL);
            unwritten = waiting.unwrap_or_else(PoisonError::into_inner).0;
        }
        if waited {
            self.0.wait.end();
        }
        unwritten.batches.push_back((Instant::now(), rows));
        unwritten.rows += rows;
    }

    /// Notes that the oldest `batches` are written, which took `took`; `age` shows the age of the
    /// oldest.
    pub fn written(&self, batches: usize, took: Duration, age: &Gauge) {
        let mut unwritten = self.lock();
        age.observe(milliseconds(unwritten.written(batches, took, Instant::now())));
        drop(unwritten);
        self.0.written.notify_all();
    }

    fn lock(&self) -> MutexGuard<'_, Unwritten> {
        self.0.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn milliseconds(time: Duration) -> usize {
    usize::try_from(time.as_millis()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    const SECOND: Duration = Duration::from_secs(1);
    const WAITING: LagLimits = LagLimits { rows: 2_000_000, age: Some(SECOND), waits: true };

    fn unwritten(rate: f64) -> Unwritten {
        Unwritten { batches: VecDeque::new(), rows: 0, rate }
    }

    impl Unwritten {
        fn came(&mut self, now: Instant, rows: usize) {
            self.batches.push_back((now, rows));
            self.rows += rows;
        }
    }

    #[test]
    fn waiting_producer_admits_rows_for_a_third_of_the_age_at_the_measured_rate() {
        let (mut all, now) = (unwritten(90_000.0), Instant::now());
        all.came(now, 29_999);
        assert!(all.has_room(WAITING, now));
        all.came(now, 1);
        assert!(!all.has_room(WAITING, now), "a third of a second of the server's time waits");
        // A slower server admits fewer.
        all.written(2, SECOND, now);
        assert!(all.rate < 50_000.0 && all.rows == 0);
        all.came(now, 17_000);
        assert!(!all.has_room(WAITING, now));
        let rows_alone = LagLimits::rows(1_000_000);
        assert!(all.has_room(rows_alone, now + 100 * SECOND));
        assert!(
            all.has_room(LagLimits { waits: false, ..WAITING }, now + 100 * SECOND),
            "the age is no bound"
        );
    }

    #[test]
    fn no_row_is_admitted_while_the_oldest_is_old() {
        let (mut all, now) = (unwritten(1e6), Instant::now());
        all.came(now, 1);
        assert!(all.has_room(WAITING, now + SECOND * 74 / 100));
        assert!(!all.has_room(WAITING, now + SECOND * 75 / 100));
        assert_eq!(all.written(1, SECOND, now + SECOND), SECOND);
        assert!(all.has_room(WAITING, now + SECOND));
        // A single row says nothing about the rate.
        assert!(all.rate == 1e6);
    }

    /// Replays a server of a constant rate and a waiting producer that always has rows: no row waits
    /// longer than the age, at any rate of the server.
    #[test]
    fn age_stays_below_its_maximum_at_every_constant_rate_with_waiting_producers() {
        for rate in [3_000.0, 30_000.0, 300_000.0, 3_000_000.0] {
            let (mut all, begin) = (unwritten(INITIAL_RATE), Instant::now());
            let (mut now, mut oldest, mut written) = (begin, Duration::ZERO, 0);
            while now < begin + 20 * SECOND {
                while all.has_room(WAITING, now) {
                    all.came(now, 1000);
                }
                // The writer takes up to 10,000 rows at a time.
                let batches = all.batches.len().min(10);
                let took = Duration::from_secs_f64(1000.0 * batches as f64 / rate);
                now += took;
                oldest = oldest.max(all.written(batches, took, now));
                written += 1000 * batches;
            }
            // The first rows come before the rate is known.
            let unknown = Duration::from_secs_f64((INITIAL_RATE * ADMITTED_PART + 1000.0) / rate);
            assert!(oldest <= SECOND.max(unknown), "{rate}: {oldest:?}");
            assert!(written as f64 >= 0.99 * 20.0 * rate, "{rate}: the server always has work, {written}");
        }
    }

    #[test]
    fn producer_waits_for_the_writer_and_is_freed_when_it_ends() {
        let lag =
            WriteBehindLag::new(LagLimits { rows: 1000, age: Some(SECOND / 1000), waits: true }, "APPL_DB");
        let gauge = lag.gauge("APPL_DB", &Rings::default());
        lag.enqueue(1, || false);
        std::thread::sleep(SECOND / 500);
        assert!(!lag.has_room(Instant::now()));
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| lag.enqueue(1, || over.load(Relaxed)));
            std::thread::sleep(SECOND / 100);
            assert!(!waiting.is_finished());
            lag.written(1, SECOND / 1000, &gauge);
            waiting.join().unwrap();
            std::thread::sleep(SECOND / 500);
            let waiting = scope.spawn(|| lag.enqueue(1, || over.load(Relaxed)));
            over.store(true, Relaxed);
            waiting.join().unwrap();
        });
        assert_eq!(lag.behind(Instant::now()).rows, 2);
    }
}
