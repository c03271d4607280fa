//! A table that is written behind: by a thread of its own, so that who writes it goes on meanwhile.
//!
//! What waits unites a key at a time. There is a bound all the same, in rows, for they are memory: a database that stays
//! behind by so much holds its writer up. A database that went away is waited for, and may have lost rows:
//! [`Producer::generation`] says so.

use crate::subscribe::Wake;
use crate::united::United;
use crate::{Producer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread;
use ribtide_swss::{Change, Row};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

/// Batches that may wait.
const BATCHES: usize = 320;
/// Rows in a batch at most.
const BATCH: usize = 1000;
/// Rows that unite and are written at once.
const ROWS: usize = 10_000;

/// What goes to the thread.
#[derive(Debug)]
enum Work<R: Row> {
    Rows(Vec<Change<R>>),
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
}

impl<R: Row> Behind<R> {
    /// Writes `table` from here on. `timer` learns of each time how many rows were written and how long that took.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when there is no thread for it.
    pub fn start(
        mut table: impl Producer<R> + Send + 'static,
        timer: Option<Meter>,
        rings: &Rings,
    ) -> Result<Self, TableError> {
        let (work, waiting) = rings.bounded::<Work<R>>(format!("{} written behind", R::TABLE), BATCHES);
        let generation = Arc::new(AtomicU64::new(table.generation()));
        let (failing, failed) = channel::bounded(1);
        let (waker, wake) = channel::bounded(1);
        let seen = generation.clone();
        let body = move || {
            let mut rows = United::default();
            while let Ok(first) = waiting.recv() {
                let mut next = Some(first);
                let mut settled = None;
                while let Some(work) = next {
                    match work {
                        Work::Rows(mut batch) => rows.add(&mut batch),
                        Work::Settle(teller) => settled = Some(teller),
                    }
                    let go_on = settled.is_none() && rows.len() < ROWS;
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
                // Who asked waits for it.
                if let Some(teller) = settled {
                    let _ = teller.send(());
                }
            }
        };
        let thread = thread::spawn("written-behind", body).map_err(|e| TableError::Unreachable {
            database: R::DB.name().into(),
            address: "a thread of its own".into(),
            cause: e.to_string(),
        })?;
        Ok(Behind { work: Some(work), thread: Some(thread), failed, generation, wake })
    }

    /// Whether nothing waits: what is written now is next.
    pub fn has_room(&self) -> bool {
        // This is the look that a wake-up asks for.
        let _ = self.wake.try_recv();
        self.work.as_ref().is_none_or(ring::Sender::is_empty)
    }

    /// Says when to look for room again.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Waits until everything is written.
    ///
    /// # Errors
    /// As [`Producer::write`].
    pub fn settle(&mut self) -> Result<(), TableError> {
        let (teller, told) = channel::bounded(1);
        self.send(Work::Settle(teller))?;
        // A thread that ended without a word has said why.
        told.recv().or_else(|_| self.check(false))
    }

    fn send(&self, work: Work<R>) -> Result<(), TableError> {
        let sent = self.work.as_ref().is_some_and(|sender| sender.send(work).is_ok());
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
        let mut changes = std::mem::take(changes);
        if changes.len() > BATCH {
            let mut all = changes.into_iter();
            while all.len() > BATCH {
                self.send(Work::Rows(all.by_ref().take(BATCH).collect()))?;
            }
            changes = all.collect();
        }
        self.send(Work::Rows(changes))
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
        self.work = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
