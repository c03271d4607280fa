//! A table whose rows are taken ahead, on a thread of their own: SONiC's ring thread, without its shared state.
//!
//! While one batch is at work the next ones are taken from the database and made into rows. The bound is small: what is
//! not taken yet unites a key at a time where it is.

use crate::exchange::Reader;
use crate::subscribe::Wake;
use crate::zmq::Process;
use crate::{Consumer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::rest;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_swss::{Change, Row};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Batches that may wait, as many as SONiC's ring has room for.
const BATCHES: usize = 29;

/// Rows that were taken from the table together, and how many times it was looked there by then.
type Batch<R> = (u64, Result<Vec<Change<R>>, TableError>);

/// How often the table was looked into.
#[derive(Default, Debug)]
struct Looks {
    begun: AtomicU64,
    /// What they found waits here.
    done: AtomicU64,
}

/// The consuming end.
#[derive(Debug)]
pub struct Ahead<R: Row> {
    batches: ring::Receiver<Batch<R>>,
    wake: Wake,
    rest: VecDeque<Change<R>>,
    looks: Arc<Looks>,
    /// The look that found what is popped.
    popped: u64,
    /// What this look, and those before it, found is to be popped.
    mark: u64,
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
        let looks = Arc::new(Looks::default());
        let its = looks.clone();
        let body = move |ending: Stop| {
            while rest::recv(consumer.wake()).is_ok() {
                let mut more = true;
                while more && !ending.stopped() {
                    let mut changes = Vec::with_capacity(max);
                    let look = its.begun.fetch_add(1, SeqCst) + 1;
                    let popped = consumer.pop(max, &mut changes);
                    more = matches!(popped, Ok(true));
                    let batch = popped.map(|_| changes);
                    let is_empty = matches!(&batch, Ok(changes) if changes.is_empty());
                    if !is_empty && tx.send((look, batch)).is_err() {
                        return;
                    }
                    its.done.store(look, SeqCst);
                    // Full means that a wake-up waits already.
                    let _ = waker.try_send(());
                }
            }
        };
        let reader =
            Reader::start("ring", stop, body).map_err(|_| TableError::Stopped { table: R::TABLE.into() })?;
        Ok(Ahead { batches, wake, rest: VecDeque::new(), looks, popped: 0, mark: 0, _reader: reader })
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
                Some((look, batch)) => {
                    self.popped = look;
                    self.rest.extend(batch?);
                }
                None => return Ok(false),
            }
        }
    }

    fn wake(&self) -> &Wake {
        &self.wake
    }

    fn mark(&mut self, _: Option<Process>) {
        self.mark = self.looks.begun.load(SeqCst);
    }

    fn is_past_mark(&mut self) -> bool {
        // In this order: what a look found waits here before it counts as done.
        let all_wait_here = self.looks.done.load(SeqCst) >= self.mark;
        self.popped > self.mark || (all_wait_here && self.rest.is_empty() && self.batches.is_empty())
    }
}
