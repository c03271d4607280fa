//! The dataplanes: the Linux kernel, an FPM server, the virtual ASIC.
//!
//! Each dataplane is a thread that takes batches of the RIB manager from a queue of its own, in
//! order. It acknowledges each batch with the prefixes that failed, and reports later changes. A
//! dataplane that lost its state (a reconnected FPM server, an overrun netlink socket) requests a
//! replay with [`RibIn::DataplaneUp`]. The replay ends with a batch marked `end_of_replay`, and
//! routes that it does not contain are removed.
//!
//! Feedback does not block for ever: the RIB manager takes it also while it waits for room in the
//! queue of a dataplane.
//!
//! A dataplane has a second queue, for changes of groups after a failure, which overtakes the
//! waiting batches. [`RibChannel::next`] merges both; see [`ribtide_rib::UrgentQueue`].
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod announcer;
pub mod fpm;
pub mod install_results;
mod interface_news;
pub mod kernel;
mod repairs;

pub use interface_news::{InterfaceLine, InterfaceNews, InterfaceState};
pub use repairs::{Difference, RepairCounters};

use crossbeam_channel::Select;
use ribtide_prefix::Set;
use ribtide_rib::{DataplaneId, FibBatch, RibIn, UrgentOp, UrgentQueue};
use ribtide_runtime::idle;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{Stop, StopSignal};
use ribtide_runtime::wake_up::WakeUp;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Batches in the queue of a dataplane at most.
pub const BATCHES: usize = 64;
/// Urgent batches in the queue of a dataplane at most; more are merged.
pub const URGENT: usize = 8;
/// Feedback messages of all dataplanes in the queue at most.
pub const FEEDBACK: usize = 256;
/// Interface changes in the queue at most.
pub const FAILURES: usize = 256;

/// A dataplane's connection to the RIB manager.
#[derive(Debug)]
pub struct RibChannel {
    /// Its number in acknowledgements.
    pub id: DataplaneId,
    /// The feedback.
    pub rib: ToRib,
    /// Its meter: routes written.
    pub meter: Meter,
    /// The stop flag of its thread.
    pub stop: Stop,
    signal: StopSignal,
    batches: ring::Receiver<Arc<FibBatch>>,
    urgent: ring::Receiver<Vec<UrgentOp>>,
    urgent_queue: UrgentQueue,
    /// A batch that an urgent one overtakes.
    held: Option<Arc<FibBatch>>,
    /// Whether the thread was idle in [`RibChannel::next`] since the last [`RibChannel::was_idle`].
    was_idle: bool,
}

/// The feedback of a dataplane.
#[derive(Clone, Debug)]
pub struct ToRib {
    /// Acknowledgements and requests for a replay.
    pub feedback: ring::Sender<RibIn>,
    /// Interface changes, which overtake everything, and messages that must not precede them.
    pub failures: ring::Sender<RibIn>,
    /// Whether FIB suppression is on. Then an acknowledgement means that routes are in place, not
    /// only sent.
    pub confirms: Arc<AtomicBool>,
}

/// The RIB manager's end of a [`RibChannel`].
#[derive(Debug)]
pub struct DataplaneSink {
    /// Batches in order.
    pub batches: ring::Sender<Arc<FibBatch>>,
    /// Urgent operations.
    pub urgent: ring::Sender<Vec<UrgentOp>>,
}

impl RibChannel {
    /// Creates both ends for the dataplane `name`.
    pub fn new(
        id: DataplaneId,
        name: &str,
        rings: &Rings,
        rib: ToRib,
        meter: Meter,
        stop: Stop,
    ) -> (RibChannel, DataplaneSink) {
        let (batches_in, batches) = rings.bounded(format!("RIB to {name}"), BATCHES);
        let (urgent_in, urgent) = rings.bounded(format!("RIB to {name}, urgent"), URGENT);
        let channel = RibChannel {
            id,
            rib,
            meter,
            signal: stop.signal(),
            stop,
            batches,
            urgent,
            urgent_queue: UrgentQueue::default(),
            held: None,
            was_idle: false,
        };
        (channel, DataplaneSink { batches: batches_in, urgent: urgent_in })
    }

    /// The next batch, if any: urgent operations before batches. An urgent batch has number 0.
    ///
    /// # Errors
    /// [`Closed`] when the RIB manager has stopped.
    pub fn try_next(&mut self) -> Result<Option<Arc<FibBatch>>, Closed> {
        if let Some(urgent) = self.take_urgent() {
            return Ok(Some(urgent));
        }
        let batch = match self.held.take() {
            Some(batch) => batch,
            None => match self.batches.next_now()? {
                Some(batch) => batch,
                None => return Ok(None),
            },
        };
        // Urgent operations made before the batch were sent before it.
        if let Some(urgent) = self.take_urgent() {
            self.held = Some(batch);
            return Ok(Some(urgent));
        }
        Ok(Some(self.urgent_queue.in_order(batch)))
    }

    fn take_urgent(&mut self) -> Option<Arc<FibBatch>> {
        let ops = std::iter::from_fn(|| self.urgent.try_recv()).reduce(|mut all, later| {
            merge(&mut all, later);
            all
        })?;
        self.urgent_queue.urgent(&ops).map(Arc::new)
    }

    /// As [`RibChannel::try_next`], waiting at most `timeout`. A stop ends the wait, and so does idleness.
    ///
    /// # Errors
    /// [`Closed`] when the RIB manager has stopped.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Arc<FibBatch>>, Closed> {
        self.next_or_wake(timeout, &WakeUp::never())
    }

    /// The same; a `wake_up` ends the wait, too.
    ///
    /// # Errors
    /// [`Closed`] when the RIB manager has stopped.
    pub fn next_or_wake(
        &mut self,
        timeout: Duration,
        wake_up: &WakeUp,
    ) -> Result<Option<Arc<FibBatch>>, Closed> {
        if let Some(batch) = self.try_next()? {
            return Ok(Some(batch));
        }
        let mut select = Select::new();
        self.watch(&mut select);
        wake_up.watch(&mut select);
        // The next call checks both queues.
        self.was_idle |= idle::wait(&mut select, timeout);
        // Only now: the caller looked before, and looks again.
        let _ = wake_up.take();
        self.try_next()
    }

    /// Whether the thread was idle in [`RibChannel::next`] since the last call. If so, the caller
    /// shrinks its tables and calls [`idle::purge`].
    pub fn was_idle(&mut self) -> bool {
        std::mem::take(&mut self.was_idle)
    }

    /// Makes `select` ready when [`RibChannel::try_next`] may return something, and at the stop.
    pub fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.signal.watch(select);
        self.urgent.watch(select);
        self.batches.watch(select);
    }

    /// Drops everything until a replay starts, because the state of the dataplane is unknown. Call
    /// it before [`RibIn::DataplaneUp`].
    pub fn restart(&mut self) {
        self.urgent_queue.restart();
    }
}

/// Merges later operations into earlier unsent ones.
pub fn merge(ops: &mut Vec<UrgentOp>, later: Vec<UrgentOp>) {
    let names: Set<_> = later.iter().map(|new| (new.op.id, new.made)).collect();
    ops.retain(|old| !names.contains(&(old.op.id, old.made)));
    ops.extend(later);
}
