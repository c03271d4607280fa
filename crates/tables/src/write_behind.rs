//! Write-behind: an asynchronous mirror of a table, written by a thread of its own, without waiting
//! of the caller. SONiC's counterparts are the asynchronous writer of `common/asyncdbupdater.h`
//! (sonic-swss-common) and syncd's `-R`.
//!
//! A full-speed writer is on the routes' path: orchagent waits for its rows. A low-priority writer
//! keeps a copy that no route waits for. While routes come, it uses a small share of the server's
//! time ([`LowPriorityPace`]).
//!
//! Pending changes of one key coalesce. The queue is bounded in rows; at the bound the caller waits.
//! With [`LagLimits::waits`] it also waits rather than exceed an age. The thread waits for a lost
//! database; [`Producer::generation`] reports that rows may be lost.

use crate::coalesced::Coalesced;
use crate::lag::{LagLimits, WriteBehindLag};
use crate::low_priority_pace::LowPriorityPace;
use crate::{Producer, TableError};
use ribtide_runtime::handover::WriterProgress;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::oneshot;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Ended};
use ribtide_runtime::wake_up::{self, WakeUp};
use ribtide_swss::row::Packed;
use ribtide_swss::{Change, Row};
use std::borrow::Borrow;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

/// Batches in the queue of a full-speed writer.
const FULL_SPEED_BATCHES_MAX: usize = 320;
/// Rows of a batch, at most.
const BATCH: usize = 1000;
/// Rows that coalesce and are written in one round of a low-priority writer.
const ROUND_ROWS: usize = 10_000;

/// An entry of the thread's queue.
#[derive(Debug)]
enum QueueEntry<R: Row> {
    /// Rows, and whether they are the last of their call. Packed and boxed, because the ring has
    /// thousands of slots.
    Rows(Box<Packed<R>>, bool),
    /// A barrier: the thread replies when everything before it is written.
    Settle(oneshot::Sender<()>),
}

/// The caller's side of a write-behind table.
#[derive(Debug)]
pub struct WriteBehind<R: Row> {
    /// `None` only during drop.
    entries: Option<ring::Sender<QueueEntry<R>>>,
    thread: Option<JoinHandle<()>>,
    failed: oneshot::Receiver<TableError>,
    wake_up: WakeUp,
    /// Entries enqueued, and how far the thread is with them.
    enqueued: u64,
    progress: Arc<WriterProgress>,
    /// The pace of a low-priority writer.
    pace: Option<LowPriorityPace>,
    lag: WriteBehindLag,
    /// Whether a caller waits until everything is written.
    hurried: Arc<AtomicBool>,
}

impl<R: Row> WriteBehind<R> {
    /// Starts a full-speed writer of `table`, which flushes `flush_rows` rows at once. `timer` counts
    /// the rows of each round and the time that it took.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when there is no thread for it.
    pub fn full_speed(
        table: impl Producer<R> + Send + 'static,
        flush_rows: usize,
        timer: Option<Meter>,
        rings: &Rings,
    ) -> Result<Self, TableError> {
        let limits = LagLimits::rows(FULL_SPEED_BATCHES_MAX * BATCH);
        WriteBehind::start(table, (flush_rows, timer), rings, limits, false)
    }

    /// Starts a low-priority writer of `table`, paced by `limits`.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when there is no thread for it.
    pub fn low_priority(
        table: impl Producer<R> + Send + 'static,
        limits: LagLimits,
        rings: &Rings,
    ) -> Result<Self, TableError> {
        WriteBehind::start(table, (ROUND_ROWS, None), rings, limits, true)
    }

    fn start(
        mut table: impl Producer<R> + Send + 'static,
        (round_rows, timer): (usize, Option<Meter>),
        rings: &Rings,
        limits: LagLimits,
        low_priority: bool,
    ) -> Result<Self, TableError> {
        let (database, name) = (R::DB.name(), format!("{} to {} (write-behind)", R::TABLE, R::DB.name()));
        let (entries, waiting) = rings.bounded::<QueueEntry<R>>(name, limits.rows / BATCH);
        let lag = WriteBehindLag::new(limits, database);
        let pace = low_priority.then(|| LowPriorityPace::new(lag.clone()));
        let (its_lag, age) = (lag.clone(), lag.gauge(&format!("{} to {database}", R::TABLE), rings));
        let progress = Arc::new(WriterProgress::new(table.generation()));
        let (failing, failed) = oneshot::pair();
        let (waker, wake_up) = wake_up::pair();
        let (its_progress, its_pace) = (progress.clone(), pace.clone());
        let hurried = Arc::<AtomicBool>::default();
        let its_hurry = hurried.clone();
        let body = move || -> Result<Infallible, Ended> {
            let mut rows = Coalesced::default();
            let (mut batch, mut taken) = (Vec::new(), 0);
            loop {
                let on_idle = || {
                    batch = Vec::new();
                    rows.shrink_to_fit();
                    table.shrink_to_fit();
                };
                let first = waiting.recv_or_idle(on_idle)?;
                let mut next = Some(first);
                let (mut settled, mut batches, mut is_last) = (None, 0, true);
                let at_once = its_pace.as_ref().map_or(round_rows, |pace| pace.rows(round_rows));
                while let Some(entry) = next {
                    taken += 1;
                    match entry {
                        QueueEntry::Rows(packed, last) => {
                            is_last = last;
                            packed.unpack(&mut batch);
                            rows.add(&mut batch);
                            batches += 1;
                        }
                        QueueEntry::Settle(done_tx) => settled = Some(done_tx),
                    }
                    let go_on = settled.is_none() && rows.len() < at_once;
                    next = if go_on { waiting.try_recv() } else { None };
                    // The rest of a call comes at once, and belongs to the same flush. A caller that
                    // waits for room would wait for this thread.
                    if next.is_none() && go_on && !is_last && its_pace.is_none() {
                        next = waiting.recv().ok();
                    }
                }
                // The queue has room now.
                waker.wake();
                let (begin, count) = (Instant::now(), rows.len());
                let written = table.write(&mut rows.take()).and_then(|()| table.flush());
                if let Some(timer) = &timer {
                    timer.add(count, begin);
                }
                if let Err(e) = written {
                    its_progress.note_generation(table.generation());
                    return Err(failing.end_with(e));
                }
                its_progress.note(taken, table.generation());
                its_lag.written(batches, begin.elapsed(), &age);
                waker.wake();
                // The caller of `settle` waits for it.
                if let Some(done_tx) = settled {
                    done_tx.send(());
                }
                if let Err(e) = table.let_through(&|| its_hurry.load(Relaxed)) {
                    return Err(failing.end_with(e));
                }
                // The database may have been lost meanwhile.
                its_progress.note_generation(table.generation());
                if let Some(pace) = its_pace.as_ref().filter(|_| batches > 0) {
                    pace.pause(begin.elapsed());
                }
            }
        };
        let thread = thread::spawn("write-behind", body).map_err(|e| TableError::Unreachable {
            database: R::DB.name().into(),
            address: "a thread of its own".into(),
            cause: e.to_string(),
        })?;
        Ok(WriteBehind {
            entries: Some(entries),
            thread: Some(thread),
            failed,
            wake_up,
            enqueued: 0,
            progress,
            pace,
            lag,
            hurried,
        })
    }

    /// Whether rows would be enqueued without a wait for older rows ([`LagLimits::waits`]); or the
    /// thread has ended, so that the next call returns its error.
    pub fn admits_rows(&self) -> bool {
        // This is the check that follows a wake-up.
        let _ = self.wake_up.take();
        self.has_ended() || self.lag.has_room(Instant::now())
    }

    fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Whether the queue is empty, so that the next rows are written next; or the thread has ended,
    /// so that the next call returns its error.
    pub fn has_room(&self) -> bool {
        // This is the check that follows a wake-up.
        let _ = self.wake_up.take();
        self.has_ended() || self.entries.as_ref().is_none_or(ring::Sender::is_empty)
    }

    /// Wakes the caller when the queue has room, and when everything is written.
    pub fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// As [`Producer::write`].
    pub fn settle(&mut self) -> Result<(), TableError> {
        let (done_tx, done) = oneshot::pair();
        self.awaited(true);
        let settled = self.send(QueueEntry::Settle(done_tx)).and_then(|()| {
            // The thread has ended; its error is checked.
            done.recv().or_else(|_| self.check(false))
        });
        self.awaited(false);
        settled
    }

    /// Whether everything is written.
    pub fn is_idle(&self) -> bool {
        self.progress.done() == self.enqueued
    }

    /// What was enqueued until now, for [`WriteBehind::is_past`].
    pub fn fence(&self) -> u64 {
        self.enqueued
    }

    /// Whether everything that was enqueued before the fence is written.
    pub fn is_past(&self, fence: u64) -> bool {
        self.progress.done() >= fence
    }

    /// Whether everything is written, for a caller that polls.
    ///
    /// # Errors
    /// As [`Producer::write`]: then it never will be.
    pub fn is_settled(&self) -> Result<bool, TableError> {
        // This is the check that follows a wake-up.
        let _ = self.wake_up.take();
        self.check(true)?;
        Ok(self.is_idle())
    }

    /// Sets whether a caller waits until everything is written; the thread then writes at full
    /// speed.
    pub fn awaited(&self, awaited: bool) {
        self.hurried.store(awaited, Relaxed);
        if let Some(pace) = &self.pace {
            pace.awaited(awaited);
        }
    }

    /// Enqueues changes, owned or borrowed. Blocks while the queue is full, and with
    /// [`LagLimits::waits`] while rows would become too old.
    ///
    /// # Errors
    /// As [`Producer::write`].
    pub fn enqueue<C: Borrow<Change<R>>>(
        &mut self,
        changes: impl IntoIterator<Item = C>,
    ) -> Result<(), TableError> {
        if let Some(pace) = &self.pace {
            pace.came(Instant::now());
        }
        let mut changes = changes.into_iter().peekable();
        while changes.peek().is_some() {
            let batch: Packed<R> = changes.by_ref().take(BATCH).collect();
            self.send_rows(batch, changes.peek().is_none())?;
        }
        Ok(())
    }

    /// Enqueues no rows: the thread makes a round, which calls the table's `write` and `flush`.
    ///
    /// # Errors
    /// As [`Producer::write`].
    pub fn nudge(&mut self) -> Result<(), TableError> {
        self.send_rows(std::iter::empty::<Change<R>>().collect(), true)
    }

    fn send_rows(&mut self, rows: Packed<R>, is_last: bool) -> Result<(), TableError> {
        self.lag.enqueue(rows.len(), || self.has_ended());
        self.send(QueueEntry::Rows(Box::new(rows), is_last))
    }

    fn send(&mut self, entries: QueueEntry<R>) -> Result<(), TableError> {
        self.enqueued += 1;
        let Some(sender) = &self.entries else { return self.check(false) };
        // A blocked caller cannot react, so only the database may delay it, and not the table's
        // consumer.
        let hurried = sender.is_full().then(|| self.hurried.swap(true, Relaxed));
        let sent = sender.send(entries).is_ok();
        if let Some(hurried) = hurried {
            self.hurried.store(hurried, Relaxed);
        }
        self.check(sent)
    }

    fn check(&self, goes_on: bool) -> Result<(), TableError> {
        match self.failed.try_recv() {
            Some(e) => Err(e),
            None if !goes_on => Err(TableError::Stopped { table: R::TABLE.into() }),
            None => Ok(()),
        }
    }
}

impl<R: Row> Producer<R> for WriteBehind<R> {
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError> {
        self.enqueue(changes.drain(..))
    }

    fn flush(&mut self) -> Result<(), TableError> {
        Ok(())
    }

    fn waiting(&self) -> usize {
        0
    }

    fn generation(&self) -> u64 {
        self.progress.generation()
    }
}

impl<R: Row> Drop for WriteBehind<R> {
    /// Writes what is in the queue.
    fn drop(&mut self) {
        self.awaited(true);
        self.entries = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::row::DefaultRouteRow;
    use std::time::Duration;

    const TEST_TIMEOUT: Duration = Duration::from_secs(10);

    /// A database that is as slow as the sender of `turns`.
    struct Slow {
        turns: ring::Receiver<()>,
        written: ring::Sender<usize>,
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

    /// A database whose writes a test lets happen, or fail, one by one.
    struct Stepped {
        turns: ring::Receiver<Result<(), TableError>>,
        /// Hears whether `settle` returned. Each write waits for it for a moment.
        settled: Option<ring::Receiver<()>>,
        /// Whether `settle` returned before the end of a write.
        settled_early: Arc<AtomicBool>,
        /// How often the database was lost: while the consumer is waited for.
        generation: u64,
    }

    impl Producer<DefaultRouteRow> for Stepped {
        fn write(&mut self, _: &mut Vec<Change<DefaultRouteRow>>) -> Result<(), TableError> {
            if let Some(settled) = &self.settled {
                let early = settled.recv_timeout(Duration::from_millis(200)) == Ok(Some(()));
                self.settled_early.store(early, Relaxed);
            }
            self.turns.recv().unwrap_or(Ok(()))
        }

        fn flush(&mut self) -> Result<(), TableError> {
            Ok(())
        }

        fn let_through(&mut self, _: &dyn Fn() -> bool) -> Result<(), TableError> {
            self.generation += 1;
            Ok(())
        }

        fn waiting(&self) -> usize {
            0
        }

        fn generation(&self) -> u64 {
            self.generation
        }
    }

    type Turns = ring::Sender<Result<(), TableError>>;

    /// A table, and its turns.
    fn stepped(
        settled: Option<ring::Receiver<()>>,
    ) -> (WriteBehind<DefaultRouteRow>, Turns, Arc<AtomicBool>) {
        let (turn, turns) = Rings::default().bounded("turns", 10);
        let settled_early = Arc::<AtomicBool>::default();
        let table = Stepped { turns, settled, settled_early: settled_early.clone(), generation: 0 };
        (WriteBehind::full_speed(table, 1000, None, &Rings::default()).unwrap(), turn, settled_early)
    }

    fn change() -> Change<DefaultRouteRow> {
        Change::del("0.0.0.0/0".parse().unwrap())
    }

    #[test]
    fn rows_count_as_written_when_they_are_and_then_the_caller_is_woken() {
        let (mut table, turn, _) = stepped(None);
        table.enqueue([change()]).unwrap();
        let fence = table.fence();
        // The queue has room, and the thread is about to write.
        assert!(table.wake_up().wait_timeout(TEST_TIMEOUT));
        assert!(!table.is_idle() && !table.is_past(fence) && !table.is_settled().unwrap());
        turn.send(Ok(())).unwrap();
        assert!(table.wake_up().wait_timeout(TEST_TIMEOUT), "a wake-up after the write");
        assert!(table.is_idle() && table.is_past(fence) && table.is_settled().unwrap());
        assert!(!table.is_past(fence + 1));
    }

    #[test]
    fn error_of_a_write_reaches_the_caller() {
        let (mut table, turn, _) = stepped(None);
        let refused = || TableError::Refused { database: "STATE_DB".into(), message: "no".into() };
        turn.send(Err(refused())).unwrap();
        table.enqueue([change()]).unwrap();
        assert_eq!(table.settle(), Err(refused()));
    }

    #[test]
    fn settle_returns_after_the_write() {
        let (settled_tx, settled) = Rings::default().bounded("settled", 1);
        let (mut table, turn, settled_early) = stepped(Some(settled));
        drop(turn);
        table.enqueue([change()]).unwrap();
        table.settle().unwrap();
        let _ = settled_tx.try_send(());
        drop(table);
        assert!(!settled_early.load(Relaxed));
    }

    #[test]
    fn loss_while_the_consumer_is_waited_for_is_another_generation() {
        let (mut table, turn, _) = stepped(None);
        drop(turn);
        table.enqueue([change()]).unwrap();
        let progress = table.progress.clone();
        // The thread ends after its round.
        drop(table);
        assert_eq!(progress.generation(), 1);
    }

    /// A caller that may wait while the test looks.
    fn on_a_thread(body: impl FnOnce() + Send + 'static) -> std::thread::JoinHandle<()> {
        std::thread::spawn(body)
    }

    #[test]
    fn low_priority_table_with_full_queue_blocks_its_caller() {
        let rings = Rings::default();
        let (turn, turns) = rings.bounded("turns", 1);
        let (written, rows) = rings.bounded("written", 100);
        let mut table =
            WriteBehind::low_priority(Slow { turns, written }, LagLimits::rows(3000), &rings).unwrap();
        let (done, noted) = rings.bounded("done", 100);
        let caller = on_a_thread(move || {
            for n in 0..40 {
                let key = |i: u32| format!("10.{n}.{}.{}/32", i >> 8, i & 255).parse().unwrap();
                let changes: Vec<_> = (0..1000).map(|i| Change::del(key(i))).collect();
                table.enqueue(&changes).unwrap();
                done.send(()).unwrap();
            }
            table.settle().unwrap();
        });
        // Three thousand wait, and ten thousand are written at once.
        let mut count = 0;
        while let Ok(Some(())) = noted.recv_timeout(Duration::from_millis(300)) {
            count += 1;
        }
        assert!((3..=14).contains(&count), "{count}");
        drop(turn);
        caller.join().unwrap();
        assert_eq!(std::iter::from_fn(|| rows.try_recv()).sum::<usize>(), 40_000);
    }

    /// A database that takes nothing: a caller with [`LagLimits::waits`] waits, although the queue has
    /// room for thousands of batches, and no row is lost.
    #[test]
    fn low_priority_table_with_old_rows_blocks_its_waiting_caller() {
        let rings = Rings::default();
        let (turn, turns) = rings.bounded("turns", 1);
        let (written, rows) = rings.bounded("written", 100);
        let limits = LagLimits { rows: 2_000_000, age: Some(Duration::from_millis(200)), waits: true };
        let mut table = WriteBehind::low_priority(Slow { turns, written }, limits, &rings).unwrap();
        assert!(table.admits_rows());
        let (done, noted) = rings.bounded("done", 2000);
        let caller = on_a_thread(move || {
            for n in 0..100u32 {
                let key = |i: u32| format!("10.{n}.{}.{}/32", i >> 8, i & 255).parse().unwrap();
                table.enqueue((0..100).map(|i| Change::<DefaultRouteRow>::del(key(i)))).unwrap();
                done.send(table.admits_rows()).unwrap();
            }
            table.settle().unwrap();
        });
        let mut admitted = Vec::new();
        while let Ok(Some(admits)) = noted.recv_timeout(Duration::from_millis(500)) {
            admitted.push(admits);
        }
        // A third of the age at the assumed rate is 1,333 rows; the rows after them wait.
        assert!((1..=21).contains(&admitted.len()), "{}", admitted.len());
        let age = || rings.depths().into_iter().find(|depth| depth.name.starts_with("age of")).unwrap();
        assert!(age().bound == Some(200) && age().depth >= 200 && age().full == 1, "{:?}", age());
        drop(turn);
        caller.join().unwrap();
        assert_eq!(std::iter::from_fn(|| rows.try_recv()).sum::<usize>(), 10_000);
    }
}
