//! A table whose rows are taken ahead, on a thread of their own: SONiC's ring thread, without its shared state.
//!
//! While one batch is at work the next ones are taken from the database and made into rows. The bound is small: what is
//! not taken yet coalesces a key at a time where it is.

use crate::exchange::ReaderThread;
use crate::subscribe::Wake;
use crate::zmq::Process;
use crate::{Consumer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::idle;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_swss::{Change, Row};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Batches that may wait, as many as SONiC's ring has room for.
const BATCHES: usize = 29;

/// Rows that were taken from the table together, and how many times it was looked there by then.
type Batch<R> = (u64, Result<Vec<Change<R>>, TableError>);

/// How often who takes nothing for now looks whether he is to end.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// How often the table was looked into.
#[derive(Default, Debug)]
struct Looks {
    begun: AtomicU64,
    /// What they found waits here.
    done: AtomicU64,
    /// None begins for now. Locked where one begins.
    held: Mutex<bool>,
    freed: Condvar,
}

impl Looks {
    /// Begins the next one as soon as that may be. `None`: none any more.
    fn begin(&self, ending: &Stop) -> Option<u64> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        while *held && !ending.stopped() {
            held =
                self.freed.wait_timeout(held, STOP_POLL_INTERVAL).unwrap_or_else(PoisonError::into_inner).0;
        }
        (!ending.stopped()).then(|| self.begun.fetch_add(1, SeqCst) + 1)
    }
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
    /// The last look before the fence.
    fence: u64,
    _reader: ReaderThread,
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
            let to_look = consumer.wake().clone();
            while !ending.stopped() && idle::recv_or_idle(&to_look, || consumer.shrink_to_fit()).is_ok() {
                let mut more = true;
                while more && let Some(look) = its.begin(&ending) {
                    let mut changes = Vec::with_capacity(max);
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
        let reader = ReaderThread::start("ring", stop, body)
            .map_err(|_| TableError::Stopped { table: R::TABLE.into() })?;
        Ok(Ahead { batches, wake, rest: VecDeque::new(), looks, popped: 0, fence: 0, _reader: reader })
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

    fn shrink_to_fit(&mut self) {
        self.rest.shrink_to_fit();
    }

    fn set_fence(&mut self, _: Option<Process>) {
        self.fence = self.looks.begun.load(SeqCst);
    }

    fn is_past_fence(&mut self) -> bool {
        // In this order: what a look found waits here before it counts as done.
        let all_wait_here = self.looks.done.load(SeqCst) >= self.fence;
        self.popped > self.fence || (all_wait_here && self.rest.is_empty() && self.batches.is_empty())
    }

    fn hold(&mut self, held: bool) {
        *self.looks.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        self.looks.freed.notify_all();
    }

    fn is_drained(&self) -> bool {
        // In this order, as above.
        let all_wait_here = self.looks.done.load(SeqCst) == self.looks.begun.load(SeqCst);
        all_wait_here && self.rest.is_empty() && self.batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::row::NeighResolveRow;

    /// A table that always has more.
    struct Endless {
        wake: Wake,
        looks: Arc<AtomicU64>,
    }

    impl Consumer<NeighResolveRow> for Endless {
        fn pop(
            &mut self,
            max: usize,
            changes: &mut Vec<Change<NeighResolveRow>>,
        ) -> Result<bool, TableError> {
            self.looks.fetch_add(1, SeqCst);
            let key = NeighResolveRow::parse_key("Ethernet0:192.0.2.1").unwrap();
            changes.extend((0..max).map(|_| Change::del(key.clone())));
            Ok(true)
        }

        fn wake(&self) -> &Wake {
            &self.wake
        }
    }

    #[test]
    fn who_is_held_takes_nothing_and_what_was_taken_is_there() {
        let (waker, wake) = channel::bounded(1);
        let looks = Arc::<AtomicU64>::default();
        let stop = Stop::default();
        let endless = Endless { wake, looks: looks.clone() };
        let mut ahead = Ahead::start(endless, 10, &Rings::default(), &stop).unwrap();
        waker.send(()).unwrap();
        let (mut rows, mut popped) = (Vec::new(), 0);
        for held_after in [100, 1000, 5000] {
            while popped < held_after {
                ahead.pop(7, &mut rows).unwrap();
                popped += rows.drain(..).count() as u64;
            }
            ahead.hold(true);
            while !ahead.is_drained() {
                ahead.pop(7, &mut rows).unwrap();
                popped += rows.drain(..).count() as u64;
            }
            let taken = looks.load(SeqCst);
            assert_eq!(popped, 10 * taken);
            std::thread::sleep(STOP_POLL_INTERVAL / 2);
            assert!(ahead.is_drained() && looks.load(SeqCst) == taken);
            ahead.hold(false);
        }
        ahead.hold(true);
        stop.stop();
    }
}
