//! A prefetching consumer: a thread pops batches of a table and parses them while orchagent works on earlier ones. It is
//! the counterpart of SONiC's ring thread (`RingBuffer` of `orchagent/orch.h`, `orchagent -R`), without its shared state.
//!
//! The ring is small, because changes that stay in the database coalesce by key.

use crate::exchange::ReaderThread;
use crate::zmq::Process;
use crate::{Consumer, TableError};
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wake_up::{self, WakeUp};
use ribtide_swss::{Change, Row};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Batches in the ring, as in SONiC.
const BATCHES: usize = 29;

/// Changes of one pop, with the number of that poll.
type Batch<R> = (u64, Result<Vec<Change<R>>, TableError>);

/// The interval at which a held thread checks for its end.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Counters of polls of the table.
#[derive(Default, Debug)]
struct Polls {
    begun: AtomicU64,
    /// Polls whose changes are in the ring.
    done: AtomicU64,
    /// Whether polls are held. Locked while a poll begins.
    held: Mutex<bool>,
    freed: Condvar,
}

impl Polls {
    /// Begins the next poll after waiting while polls are held. `None` when the thread shall end.
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
pub struct PrefetchingConsumer<R: Row> {
    batches: ring::Receiver<Batch<R>>,
    wake_up: WakeUp,
    rest: VecDeque<Change<R>>,
    polls: Arc<Polls>,
    /// The poll of the latest popped changes.
    popped: u64,
    /// The last poll before the fence.
    fence: u64,
    _reader: ReaderThread,
}

impl<R: Row> PrefetchingConsumer<R> {
    /// Starts the thread, which pops at most `max` rows at a time from `consumer` until `stop`.
    ///
    /// # Errors
    /// [`TableError::Stopped`] when no thread can be created.
    pub fn start(
        mut consumer: impl Consumer<R> + Send + 'static,
        max: usize,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<Self, TableError> {
        let (tx, batches) = rings.bounded(format!("{} taken consumer", R::TABLE), BATCHES);
        let (waker, wake_up) = wake_up::pair();
        let polls = Arc::new(Polls::default());
        let its = polls.clone();
        let body = move |ending: Stop| -> Result<Infallible, Closed> {
            let to_poll = consumer.wake_up().clone();
            loop {
                ending.running()?;
                to_poll.wait_or_idle(|| consumer.shrink_to_fit())?;
                let mut more = true;
                while more && let Some(poll) = its.begin(&ending) {
                    let mut changes = Vec::with_capacity(max);
                    let popped = consumer.pop(max, &mut changes);
                    more = matches!(popped, Ok(true));
                    let batch = popped.map(|_| changes);
                    let is_empty = matches!(&batch, Ok(changes) if changes.is_empty());
                    if !is_empty {
                        tx.send((poll, batch))?;
                    }
                    its.done.store(poll, SeqCst);
                    waker.wake();
                }
            }
        };
        let reader = ReaderThread::start("ring", stop, body)
            .map_err(|_| TableError::Stopped { table: R::TABLE.into() })?;
        Ok(PrefetchingConsumer {
            batches,
            wake_up,
            rest: VecDeque::new(),
            polls,
            popped: 0,
            fence: 0,
            _reader: reader,
        })
    }
}

impl<R: Row> Consumer<R> for PrefetchingConsumer<R> {
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
                Some((poll, batch)) => {
                    self.popped = poll;
                    self.rest.extend(batch?);
                }
                None => return Ok(false),
            }
        }
    }

    fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }

    fn shrink_to_fit(&mut self) {
        self.rest.shrink_to_fit();
    }

    fn set_fence(&mut self, _: Option<Process>) {
        self.fence = self.polls.begun.load(SeqCst);
    }

    fn is_past_fence(&mut self) -> bool {
        // Order matters: the changes of a poll are in the ring before it counts as done.
        let all_wait_here = self.polls.done.load(SeqCst) >= self.fence;
        self.popped > self.fence || (all_wait_here && self.rest.is_empty() && self.batches.is_empty())
    }

    fn hold(&mut self, held: bool) {
        *self.polls.held.lock().unwrap_or_else(PoisonError::into_inner) = held;
        self.polls.freed.notify_all();
    }

    fn is_drained(&self) -> bool {
        // Order matters, as above.
        let all_wait_here = self.polls.done.load(SeqCst) == self.polls.begun.load(SeqCst);
        all_wait_here && self.rest.is_empty() && self.batches.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::row::NeighResolveRow;

    /// A table that always has more.
    struct Endless {
        wake_up: WakeUp,
        polls: Arc<AtomicU64>,
    }

    impl Consumer<NeighResolveRow> for Endless {
        fn pop(
            &mut self,
            max: usize,
            changes: &mut Vec<Change<NeighResolveRow>>,
        ) -> Result<bool, TableError> {
            self.polls.fetch_add(1, SeqCst);
            let key = NeighResolveRow::parse_key("Ethernet0:192.0.2.1").unwrap();
            changes.extend((0..max).map(|_| Change::del(key.clone())));
            Ok(true)
        }

        fn wake_up(&self) -> &WakeUp {
            &self.wake_up
        }
    }

    /// A consumer of it that takes ten rows at a time, how often it has, and what stops it.
    fn endless() -> (PrefetchingConsumer<NeighResolveRow>, Arc<AtomicU64>, Stop) {
        let (waker, wake_up) = wake_up::pair();
        let (polls, stop) = (Arc::<AtomicU64>::default(), Stop::default());
        let endless = Endless { wake_up, polls: polls.clone() };
        let consumer = PrefetchingConsumer::start(endless, 10, &Rings::default(), &stop).unwrap();
        waker.wake();
        (consumer, polls, stop)
    }

    #[test]
    fn pop_that_ends_with_a_batch_says_that_there_is_more() {
        let (mut consumer, polls, stop) = endless();
        // The first two batches are in the ring when the third is taken.
        while polls.load(SeqCst) < 3 {
            std::thread::yield_now();
        }
        let mut rows = Vec::new();
        assert_eq!(consumer.pop(10, &mut rows), Ok(true));
        assert_eq!(rows.len(), 10);
        stop.stop();
    }

    #[test]
    fn who_is_held_takes_nothing_and_what_was_taken_is_there() {
        let (mut consumer, polls, stop) = endless();
        let (mut rows, mut popped) = (Vec::new(), 0);
        for held_after in [100, 1000, 5000] {
            while popped < held_after {
                consumer.pop(7, &mut rows).unwrap();
                popped += rows.drain(..).count() as u64;
            }
            consumer.hold(true);
            while !consumer.is_drained() {
                consumer.pop(7, &mut rows).unwrap();
                popped += rows.drain(..).count() as u64;
            }
            let taken = polls.load(SeqCst);
            assert_eq!(popped, 10 * taken);
            std::thread::sleep(STOP_POLL_INTERVAL / 2);
            assert!(consumer.is_drained() && polls.load(SeqCst) == taken);
            consumer.hold(false);
        }
        consumer.hold(true);
        stop.stop();
    }
}
