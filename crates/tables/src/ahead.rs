//! A table whose rows are taken ahead, on a thread of their own: SONiC's ring thread, without its shared state.
//!
//! While one batch is at work the next ones are taken from the database and made into rows. The bound is small: what is
//! not taken yet unites a key at a time where it is.

use crate::exchange::Reader;
use crate::subscribe::Wake;
use crate::{Consumer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::rest;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_swss::{Change, Row};
use std::collections::VecDeque;

/// Batches that may wait, as many as SONiC's ring has room for.
const BATCHES: usize = 29;

/// The consuming end.
#[derive(Debug)]
pub struct Ahead<R: Row> {
    batches: ring::Receiver<Result<Vec<Change<R>>, TableError>>,
    wake: Wake,
    rest: VecDeque<Change<R>>,
    _reader: Reader,
}

impl<R: Row> Ahead<R> {
    /// Takes from `consumer`, at most `max` rows at a time, until `stop`.
    ///
    /// # Errors
    /// [`TableError::Stopped`] when there is no thread for it.
    pub fn start(
        mut consumer: impl Consumer<R> + Send + 'static,
        max: usize,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<Self, TableError> {
        let (tx, batches) = rings.bounded(format!("{} taken ahead", R::TABLE), BATCHES);
        let (waker, wake) = channel::bounded(1);
        let body = move |ending: Stop| {
            while rest::recv(consumer.wake()).is_ok() {
                let mut more = true;
                while more && !ending.stopped() {
                    let mut changes = Vec::with_capacity(max);
                    let popped = consumer.pop(max, &mut changes);
                    more = matches!(popped, Ok(true));
                    let batch = popped.map(|_| changes);
                    if matches!(&batch, Ok(changes) if changes.is_empty()) {
                        continue;
                    }
                    if tx.send(batch).is_err() {
                        return;
                    }
                    // Full means that a wake-up waits already.
                    let _ = waker.try_send(());
                }
            }
        };
        let reader =
            Reader::start("ring", stop, body).map_err(|_| TableError::Stopped { table: R::TABLE.into() })?;
        Ok(Ahead { batches, wake, rest: VecDeque::new(), _reader: reader })
    }
}

impl<R: Row> Consumer<R> for Ahead<R> {
    fn pop(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<bool, TableError> {
        let mut room = max.max(1);
        loop {
            let take = room.min(self.rest.len());
            changes.extend(self.rest.drain(..take));
            room -= take;
            if room == 0 {
                return Ok(true);
            }
            match self.batches.try_recv() {
                Some(batch) => self.rest.extend(batch?),
                None => return Ok(false),
            }
        }
    }

    fn wake(&self) -> &Wake {
        &self.wake
    }
}
