//! Where routes are installed: the Linux kernel, an FPM server, the virtual ASIC.
//!
//! Each dataplane is a thread that takes the RIB manager's batches from its own ring, in order, and answers each
//! one with an acknowledgement that names what failed, and says later when it did not stay so. A dataplane that lost its state (an FPM server that came
//! back, a kernel that overran) asks for all of it again with [`RibIn::DataplaneUp`]; what comes then ends with a
//! batch marked `end_of_replay`, and what was not in it is to be removed.
//!
//! Feedback cannot wait for ever: the RIB manager takes it also while it waits for room in a dataplane's ring.
//!
//! A dataplane has a second ring, for what failures make of groups that it has: that overtakes the batches that wait in
//! the first. [`RibChannel::next`] gives both as one sequence; see [`ribtide_rib::UrgentQueue`].
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod announce;
pub mod fpm;
pub mod install_results;
mod interface_news;
pub mod kernel;
mod weight;

pub use interface_news::{InterfaceLine, InterfaceNews, InterfaceState};

use crossbeam_channel::Select;
use ribtide_prefix::Set;
use ribtide_rib::{DataplaneId, FibBatch, RibIn, UrgentOp, UrgentQueue};
use ribtide_runtime::idle;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::Stop;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use weight::fit_weight;

/// Batches that may wait at one dataplane.
pub const BATCHES: usize = 64;
/// Urgent batches that may wait at one dataplane; more become one.
pub const URGENT: usize = 8;
/// Answers that may wait at the RIB manager, from all dataplanes.
pub const FEEDBACK: usize = 256;
/// Interfaces that may wait at the RIB manager.
pub const FAILURES: usize = 256;

/// A dataplane's connection to the RIB manager.
#[derive(Debug)]
pub struct RibChannel {
    /// Its number in acknowledgements.
    pub id: DataplaneId,
    /// What goes back.
    pub rib: ToRib,
    /// Its meter: routes written.
    pub meter: Meter,
    /// Ends its thread.
    pub stop: Stop,
    batches: ring::Receiver<Arc<FibBatch>>,
    urgent: ring::Receiver<Vec<UrgentOp>>,
    urgent_queue: UrgentQueue,
    /// A batch that something urgent goes ahead of.
    held: Option<Arc<FibBatch>>,
    /// Its thread was idle in [`RibChannel::next`] since [`RibChannel::was_idle`] was last called.
    was_idle: bool,
}

/// What dataplanes tell the RIB manager.
#[derive(Clone, Debug)]
pub struct ToRib {
    /// Acknowledgements and requests for a replay.
    pub feedback: ring::Sender<RibIn>,
    /// Interfaces, which go ahead of everything; and what must not come before them.
    pub failures: ring::Sender<RibIn>,
    /// Whether BGP waits for dataplanes: then an acknowledgement says that routes are in place, and not only handed on,
    /// where there is a difference.
    pub confirms: Arc<AtomicBool>,
}

/// The RIB manager's end of a [`RibChannel`].
#[derive(Debug)]
pub struct DataplaneSink {
    /// What to install, in order.
    pub batches: ring::Sender<Arc<FibBatch>>,
    /// What overtakes it.
    pub urgent: ring::Sender<Vec<UrgentOp>>,
}

impl RibChannel {
    /// The connection of the dataplane `name`: its end, and the RIB manager's.
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
            stop,
            batches,
            urgent,
            urgent_queue: UrgentQueue::default(),
            held: None,
            was_idle: false,
        };
        (channel, DataplaneSink { batches: batches_in, urgent: urgent_in })
    }

    /// What to carry out next, if there is anything: what overtakes before what waits. The former has number 0.
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
        // What was made before the batch was sent before it, so it is here by now.
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

    /// As [`RibChannel::try_next`], waiting at most `timeout`.
    ///
    /// # Errors
    /// [`Closed`] when the RIB manager has stopped.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Arc<FibBatch>>, Closed> {
        if let Some(batch) = self.try_next()? {
            return Ok(Some(batch));
        }
        let mut select = Select::new();
        self.watch(&mut select);
        // Timed out or ready: looking again tells.
        self.was_idle |= idle::wait(&mut select, timeout);
        self.try_next()
    }

    /// Whether the thread was idle in [`RibChannel::next`] since the last call. The caller then shrinks its tables, and calls
    /// [`idle::purge`].
    pub fn was_idle(&mut self) -> bool {
        std::mem::take(&mut self.was_idle)
    }

    /// Has `select` be ready when [`RibChannel::try_next`] may have something.
    pub fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.urgent.watch(select);
        self.batches.watch(select);
    }

    /// What the dataplane has is unknown from now on, until a replay starts. Goes before [`RibIn::DataplaneUp`].
    pub fn restart(&mut self) {
        self.urgent_queue.restart();
    }
}

/// Adds later operations to earlier ones that were not taken yet.
pub fn merge(ops: &mut Vec<UrgentOp>, later: Vec<UrgentOp>) {
    let names: Set<_> = later.iter().map(|new| (new.op.id, new.made)).collect();
    ops.retain(|old| !names.contains(&(old.op.id, old.made)));
    ops.extend(later);
}
