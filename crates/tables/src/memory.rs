//! Tables in memory: typed rows in batches through a bounded ring, no text anywhere.
//!
//! The ring is the bound: a producer that is ahead waits. While it waits its changes coalesce a key at a time, as they
//! would in Redis, so a slow consumer sees the last state and not each one on the way to it.

use crate::coalesce::Coalesced;
use crate::subscribe::Wake;
use crate::{Consumer, Producer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::ring::{self, Rings};
use ribtide_swss::{Change, Row};

/// Changes that may wait at the producer before it waits itself.
const WAITING: usize = 10_000;
/// Changes that are a batch.
const BATCH: usize = 1_000;

/// Both ends of a table in memory, which holds at most `capacity` batches.
pub fn table<R: Row>(rings: &Rings, capacity: usize) -> (MemoryProducer<R>, MemoryConsumer<R>) {
    let (tx, rx) = rings.bounded(R::TABLE, capacity);
    let (waker, wake) = channel::bounded(1);
    let producer = MemoryProducer { tx, waker, waiting: Coalesced::default() };
    (producer, MemoryConsumer { rx, wake, rest: Vec::new().into_iter() })
}

/// The producing end.
#[derive(Debug)]
pub struct MemoryProducer<R: Row> {
    tx: ring::Sender<Vec<Change<R>>>,
    waker: channel::Sender<()>,
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
    pub fn watch_room<'a>(&'a self, select: &mut channel::Select<'a>) {
        self.tx.watch_room(select);
    }

    fn woken(&self) {
        // Full means that a wake-up waits already.
        let _ = self.waker.try_send(());
    }
}

impl<R: Row> Producer<R> for MemoryProducer<R> {
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError> {
        self.waiting.add(changes);
        if self.waiting.len() >= WAITING {
            return self.flush();
        }
        // This is the only producer: what is not full now takes a batch without waiting.
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
        self.woken();
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
    wake: Wake,
    /// What a pop did not have room for.
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
                // The memory of a batch would keep that of all before it from being given back, and who takes no more than it is
                // told is there does not come again to find the next one missing.
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

    fn wake(&self) -> &Wake {
        &self.wake
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
        // Who knows that there are two looks for no third.
        assert!(consumer.pop(1, &mut taken).unwrap() && taken.len() == 2);
        assert_eq!(consumer.rest.as_slice().as_ptr(), NonNull::dangling().as_ptr(), "a list without memory");
    }
}
