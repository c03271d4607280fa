//! A table that is written behind: by a thread of its own, so that no route waits for a database that only keeps it.
//!
//! What waits unites a key at a time. There is a bound all the same: a database that stays behind for long stops its
//! writer in the end. A database that went away is waited for, and may have lost rows: [`Producer::generation`] says so.

use crate::united::United;
use crate::{PlainTable, Producer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread;
use ribtide_swss::{Change, Row};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;

/// Batches that may wait before their rows unite.
const BATCHES: usize = 64;
/// Rows that may wait.
const ROWS: usize = 1_000_000;

/// The writing side.
#[derive(Debug)]
pub struct Behind<R: Row> {
    /// None only while it is dropped.
    batches: Option<ring::Sender<Vec<Change<R>>>>,
    thread: Option<JoinHandle<()>>,
    failed: channel::Receiver<TableError>,
    generation: Arc<AtomicU64>,
}

impl<R: Row> Behind<R> {
    /// Writes `table` from here on.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when there is no thread for it.
    pub fn start(mut table: PlainTable<R>, rings: &Rings) -> Result<Self, TableError> {
        let (batches, waiting) =
            rings.bounded::<Vec<Change<R>>>(format!("{} written behind", R::TABLE), BATCHES);
        let generation = Arc::new(AtomicU64::new(table.generation()));
        let (failing, failed) = channel::bounded(1);
        let seen = generation.clone();
        let body = move || {
            let mut rows = United::default();
            while let Ok(mut batch) = waiting.recv() {
                rows.add(&mut batch);
                while rows.len() < ROWS
                    && let Some(mut batch) = waiting.try_recv()
                {
                    rows.add(&mut batch);
                }
                let written = table.write(&mut rows.take()).and_then(|()| table.flush());
                seen.store(table.generation(), Relaxed);
                if let Err(e) = written {
                    let _ = failing.send(e);
                    return;
                }
            }
        };
        let thread = thread::spawn("written-behind", body).map_err(|e| TableError::Unreachable {
            database: R::DB.name().into(),
            address: "a thread of its own".into(),
            cause: e.to_string(),
        })?;
        Ok(Behind { batches: Some(batches), thread: Some(thread), failed, generation })
    }
}

impl<R: Row> Producer<R> for Behind<R> {
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError> {
        let batch = std::mem::take(changes);
        let sent = self.batches.as_ref().is_some_and(|batches| batches.send(batch).is_ok());
        match self.failed.try_recv() {
            Ok(e) => Err(e),
            Err(_) if !sent => Err(TableError::Stopped { table: R::TABLE.into() }),
            Err(_) => Ok(()),
        }
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
        self.batches = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
