//! Tables in memory: batches of typed rows through a bounded ring, without text.
//!
//! The ring bounds a fast producer. While it waits, its changes coalesce by key, as in Redis, so a
//! slow consumer gets the last state and no intermediate one.

use crate::coalesced::Coalesced;
use crate::{Consumer, Producer, TableError};
use crossbeam_channel::Select;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::wake_up::{self, WakeUp, Waker};
use ribtide_swss::{Change, Row};

/// Changes that wait at the producer before it blocks.
const WAITING: usize = 10_000;
/// Changes of a batch.
const BATCH: usize = 1_000;

/// Both ends of a table in memory, which holds at most `capacity` batches.
pub fn table<R: Row>(rings: &Rings, capacity: usize) -> (MemoryProducer<R>, MemoryConsumer<R>) {
    let (tx, rx) = rings.bounded(R::TABLE, capacity);
    let (waker, wake_up) = wake_up::pair();
    let producer = MemoryProducer { tx, waker, waiting: Coalesced::default() };
    (producer, MemoryConsumer { rx, wake_up, rest: Vec::new().into_iter() })
}

/// The producing end.
#[derive(Debug)]
pub struct MemoryProducer<R: Row> {
    tx: ring::Sender<Vec<Change<R>>>,
    waker: Waker,
    waiting: Coalesced<R>,
}

impl<R: Row> MemoryProducer<R> {
    fn stopped() -> TableError {
        TableError::Stopped { table: R::TABLE.into() }
    }

    /// Whether a flush would have to wait.
    pub fn is_full(&self) -> bool {
        self.tx.is_full()
    }

    /// As [`ring::Sender::watch_room`].
    pub fn watch_room<'a>(&'a self, select: &mut Select<'a>) {
        self.tx.watch_room(select);
    }
}

impl<R: Row> Producer<R> for MemoryProducer<R> {
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError> {
        self.waiting.add(changes);
        if self.waiting.len() >= WAITING {
            return self.flush();
        }
        // This is the only producer, so a ring with room takes a batch without blocking.
        if self.waiting.len() >= BATCH && !self.tx.is_full() {
            return self.flush();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TableError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        self.tx.send(self.waiting.take()).map_err(|_| Self::stopped())?;
        self.waker.wake();
        Ok(())
    }

    fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn shrink_to_fit(&mut self) {
        self.waiting.shrink_to_fit();
    }
}

/// The consuming end.
#[derive(Debug)]
pub struct MemoryConsumer<R: Row> {
    rx: ring::Receiver<Vec<Change<R>>>,
    wake_up: WakeUp,
    /// The changes that the last pop had no room for.
    rest: std::vec::IntoIter<Change<R>>,
}

impl<R: Row> Consumer<R> for MemoryConsumer<R> {
    fn pop(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<bool, TableError> {
        let mut room = max.max(1);
        loop {
            let take = room.min(self.rest.len());
            changes.extend(self.rest.by_ref().take(take));
            room -= take;
            if self.rest.len() == 0 {
                // The batch's memory would keep earlier memory from being purged. A consumer that
                // stops at the reported end would not come back to free it.
                self.rest = Vec::new().into_iter();
            }
            if room == 0 {
                return Ok(true);
            }
            match self.rx.try_recv() {
                Some(batch) => self.rest = batch.into_iter(),
                None => return Ok(false),
            }
        }
    }

    fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::row::VrfRow;
    use std::ptr::NonNull;

    #[test]
    fn a_batch_that_was_taken_is_not_kept() {
        let (mut producer, mut consumer) = table::<VrfRow>(&Rings::default(), 4);
        let mut changes = vec![Change::set("Vrf1".into(), VrfRow::default()), Change::del("Vrf2".into())];
        producer.write(&mut changes).unwrap();
        producer.flush().unwrap();
        let mut taken = Vec::new();
        assert!(consumer.pop(1, &mut taken).unwrap() && consumer.rest.len() == 1);
        // A consumer that has taken both does not check for a third.
        assert!(consumer.pop(1, &mut taken).unwrap() && taken.len() == 2);
        assert_eq!(consumer.rest.as_slice().as_ptr(), NonNull::dangling().as_ptr(), "a list without memory");
    }
}
