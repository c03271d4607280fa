//! A table that is written behind: by a thread of its own, so that who writes it goes on meanwhile.
//!
//! It is one of two things. On a route's way to who programs it, it goes on as fast as it can. As an asynchronous mirror that nothing waits
//! for, it leaves the machine and the database to the routes while they come, and follows ([`Pace`]).
//!
//! What waits coalesces a key at a time. There is a bound all the same, in rows, for they are memory: a database that stays
//! behind by so much holds its writer up. A database that went away is waited for, and may have lost rows:
//! [`Producer::generation`] says so.

use crate::coalesce::Coalesced;
use crate::pace::Pace;
use crate::subscribe::Wake;
use crate::{Producer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread;
use ribtide_swss::row::Packed;
use ribtide_swss::{Change, Row};
use std::borrow::Borrow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

/// Batches that may wait on the way.
const ON_THE_WAY: usize = 320;
/// Rows in a batch at most.
const BATCH: usize = 1000;
/// Rows that coalesce and are written at once.
const ROWS: usize = 10_000;

/// What goes to the thread.
#[derive(Debug)]
enum Work<R: Row> {
    /// And when they came. A ring of many has little room for each.
    Rows(Box<Packed<R>>, Instant),
    /// To be told when everything before is written.
    Settle(channel::Sender<()>),
}

/// The writing side.
#[derive(Debug)]
pub struct Behind<R: Row> {
    /// None only while it is dropped.
    work: Option<ring::Sender<Work<R>>>,
    thread: Option<JoinHandle<()>>,
    failed: channel::Receiver<TableError>,
    generation: Arc<AtomicU64>,
    wake: Wake,
    /// How many pieces of work were given, and how many are done.
    given: u64,
    done: Arc<AtomicU64>,
    /// Of a record.
    pace: Option<Pace>,
    /// A caller waits until all is written.
    hurried: Arc<AtomicBool>,
}

impl<R: Row> Behind<R> {
    /// Writes `table` from now on, which is the way to who waits for its rows. `timer` learns of each time how many rows
    /// were written and how long that took.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when there is no thread for it.
    pub fn way(
        table: impl Producer<R> + Send + 'static,
        timer: Option<Meter>,
        rings: &Rings,
    ) -> Result<Self, TableError> {
        Behind::start(table, timer, rings, ON_THE_WAY, None)
    }

    /// Writes `table` from now on, whose rows no reader waits for unless more than `at_most` wait.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when there is no thread for it.
    pub fn record(
        table: impl Producer<R> + Send + 'static,
        at_most: usize,
        rings: &Rings,
    ) -> Result<Self, TableError> {
        Behind::start(table, None, rings, at_most / BATCH, Some(Pace::new(at_most / BATCH)))
    }

    fn start(
        mut table: impl Producer<R> + Send + 'static,
        timer: Option<Meter>,
        rings: &Rings,
        bound: usize,
        pace: Option<Pace>,
    ) -> Result<Self, TableError> {
        let (work, waiting) =
            rings.bounded::<Work<R>>(format!("{} of {} written behind", R::TABLE, R::DB.name()), bound);
        let generation = Arc::new(AtomicU64::new(table.generation()));
        let (failing, failed) = channel::bounded(1);
        let (waker, wake) = channel::bounded(1);
        let (seen, its_pace) = (generation.clone(), pace.clone());
        let done = Arc::<AtomicU64>::default();
        let its_done = done.clone();
        let hurried = Arc::<AtomicBool>::default();
        let its_hurry = hurried.clone();
        let body = move || {
            let mut rows = Coalesced::default();
            let (mut batch, mut taken) = (Vec::new(), 0);
            loop {
                let on_idle = || {
                    batch = Vec::new();
                    rows.shrink_to_fit();
                    table.shrink_to_fit();
                };
                let Ok(first) = waiting.recv_or_idle(on_idle) else { return };
                let mut next = Some(first);
                let (mut settled, mut oldest, mut at_once) = (None, None, ROWS);
                while let Some(work) = next {
                    taken += 1;
                    match work {
                        Work::Rows(packed, came) => {
                            packed.unpack(&mut batch);
                            rows.add(&mut batch);
                            if let (None, Some(pace)) = (oldest, &its_pace) {
                                at_once = pace.rows(ROWS, came, waiting.raw().len());
                                oldest = Some(came);
                            }
                        }
                        Work::Settle(teller) => settled = Some(teller),
                    }
                    let go_on = settled.is_none() && rows.len() < at_once;
                    next = if go_on { waiting.try_recv() } else { None };
                }
                // There is room now. Full means that a wake-up waits already.
                let _ = waker.try_send(());
                let (begin, count) = (Instant::now(), rows.len());
                let written = table.write(&mut rows.take()).and_then(|()| table.flush());
                if let Some(timer) = &timer {
                    timer.add(count, begin);
                }
                seen.store(table.generation(), Relaxed);
                if let Err(e) = written {
                    let _ = failing.send(e);
                    return;
                }
                its_done.store(taken, Relaxed);
                let _ = waker.try_send(());
                // Who asked waits for it.
                if let Some(teller) = settled {
                    let _ = teller.send(());
                }
                if let Err(e) = table.let_through(&|| its_hurry.load(Relaxed)) {
                    let _ = failing.send(e);
                    return;
                }
                // It may have been away meanwhile, too.
                seen.store(table.generation(), Relaxed);
                if let (Some(pace), Some(oldest)) = (&its_pace, oldest) {
                    pace.rest(begin.elapsed(), oldest, || waiting.raw().len());
                }
            }
        };
        let thread = thread::spawn("written-behind", body).map_err(|e| TableError::Unreachable {
            database: R::DB.name().into(),
            address: "a thread of its own".into(),
            cause: e.to_string(),
        })?;
        Ok(Behind {
            work: Some(work),
            thread: Some(thread),
            failed,
            generation,
            wake,
            given: 0,
            done,
            pace,
            hurried,
        })
    }

    /// Whether nothing waits: what is written now is next.
    pub fn has_room(&self) -> bool {
        // This is the look that a wake-up asks for.
        let _ = self.wake.try_recv();
        self.work.as_ref().is_none_or(ring::Sender::is_empty)
    }

    /// Says when to look for room again, and whether everything is written.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// As [`Producer::write`].
    pub fn settle(&mut self) -> Result<(), TableError> {
        let (teller, told) = channel::bounded(1);
        self.awaited(true);
        let settled = self.send(Work::Settle(teller)).and_then(|()| {
            // A thread that ended without a word has said why.
            told.recv().or_else(|_| self.check(false))
        });
        self.awaited(false);
        settled
    }

    /// Whether everything is written.
    pub fn is_idle(&self) -> bool {
        self.done.load(Relaxed) == self.given
    }

    /// The same, for who looks again and again until it is.
    ///
    /// # Errors
    /// As [`Producer::write`]: then it never will be.
    pub fn is_settled(&self) -> Result<bool, TableError> {
        // This is the look that a wake-up asks for.
        let _ = self.wake.try_recv();
        self.check(true)?;
        Ok(self.is_idle())
    }

    /// Whether a caller waits until all is written, so that it is done at full speed.
    pub fn awaited(&self, awaited: bool) {
        self.hurried.store(awaited, Relaxed);
        if let Some(pace) = &self.pace {
            pace.awaited(awaited);
        }
    }

    /// Takes changes, or those that stay with the caller too.
    ///
    /// # Errors
    /// As [`Producer::write`].
    pub fn note<C: Borrow<Change<R>>>(
        &mut self,
        changes: impl IntoIterator<Item = C>,
    ) -> Result<(), TableError> {
        let now = Instant::now();
        if let Some(pace) = &self.pace {
            pace.came(now);
        }
        let mut changes = changes.into_iter();
        loop {
            let batch: Packed<R> = changes.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                return Ok(());
            }
            self.send(Work::Rows(Box::new(batch), now))?;
        }
    }

    /// Has the table written to, though there is nothing to write.
    ///
    /// # Errors
    /// As [`Producer::write`].
    pub fn nudge(&mut self) -> Result<(), TableError> {
        self.send(Work::Rows(Box::new(std::iter::empty::<Change<R>>().collect()), Instant::now()))
    }

    fn send(&mut self, work: Work<R>) -> Result<(), TableError> {
        self.given += 1;
        let Some(sender) = &self.work else { return self.check(false) };
        // A caller that waits here reads no message: it is held up by the database, and not by who takes rows from it as well.
        let hurried = sender.is_full().then(|| self.hurried.swap(true, Relaxed));
        let sent = sender.send(work).is_ok();
        if let Some(hurried) = hurried {
            self.hurried.store(hurried, Relaxed);
        }
        self.check(sent)
    }

    fn check(&self, goes_on: bool) -> Result<(), TableError> {
        match self.failed.try_recv() {
            Ok(e) => Err(e),
            Err(_) if !goes_on => Err(TableError::Stopped { table: R::TABLE.into() }),
            Err(_) => Ok(()),
        }
    }
}

impl<R: Row> Producer<R> for Behind<R> {
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError> {
        self.note(changes.drain(..))
    }

    fn flush(&mut self) -> Result<(), TableError> {
        Ok(())
    }

    fn waiting(&self) -> usize {
        0
    }

    fn generation(&self) -> u64 {
        self.generation.load(Relaxed)
    }
}

impl<R: Row> Drop for Behind<R> {
    /// What waits is still written.
    fn drop(&mut self) {
        self.awaited(true);
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::row::DefaultRouteRow;

    /// A database that is as slow as whoever holds the other end of `turns`.
    struct Slow {
        turns: channel::Receiver<()>,
        written: channel::Sender<usize>,
    }

    impl Producer<DefaultRouteRow> for Slow {
        fn write(&mut self, changes: &mut Vec<Change<DefaultRouteRow>>) -> Result<(), TableError> {
            let _ = self.turns.recv();
            let _ = self.written.send(changes.drain(..).count());
            Ok(())
        }

        fn flush(&mut self) -> Result<(), TableError> {
            Ok(())
        }

        fn waiting(&self) -> usize {
            0
        }
    }

    #[test]
    fn a_record_that_is_too_far_behind_holds_its_writer_up() {
        let (turn, turns) = channel::bounded(0);
        let (written, rows) = channel::bounded(100);
        let rings = Rings::default();
        let mut behind = Behind::record(Slow { turns, written }, 3000, &rings).unwrap();
        let (done, noted) = channel::bounded(100);
        let writer = std::thread::spawn(move || {
            for n in 0..40 {
                let key = |i: u32| format!("10.{n}.{}.{}/32", i >> 8, i & 255).parse().unwrap();
                let changes: Vec<_> = (0..1000).map(|i| Change::del(key(i))).collect();
                behind.note(&changes).unwrap();
                done.send(()).unwrap();
            }
            behind.settle().unwrap();
        });
        // Three thousand wait, and ten thousand are written at once.
        let mut count = 0;
        while noted.recv_timeout(std::time::Duration::from_millis(300)).is_ok() {
            count += 1;
        }
        assert!((3..=14).contains(&count), "{count}");
        drop(turn);
        writer.join().unwrap();
        assert_eq!(rows.iter().sum::<usize>(), 40_000);
    }
}
