//! Changes of best paths for clients of the API: `/v1/events`.
//!
//! Shards hand over the batch that they give to workers, without a copy, and that of prefixes that an aggregate suppresses.
//! Nothing waits for the receiver: a batch without
//! room is dropped and its changes are counted. While no client wants changes, a batch costs a look at a flag.

use ribtide_bgp::message::BestBatch;
use ribtide_prefix::sum_bgp_families;
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

/// Batches in the queue at most: one has at most some thousand prefixes.
const QUEUE: usize = 256;

/// The shards' end.
#[derive(Clone)]
pub struct BestChangesSender {
    state: Arc<State>,
    batches: Sender<Arc<BestBatch>>,
}

/// The receiver's end.
pub struct BestChanges {
    state: Arc<State>,
    /// Batches of all shards; those of one prefix in the order of its changes.
    pub batches: Receiver<Arc<BestBatch>>,
}

#[derive(Default)]
struct State {
    wanted: AtomicBool,
    lost: AtomicU64,
}

/// Both ends of the queue.
pub fn queue(rings: &Rings) -> (BestChangesSender, BestChanges) {
    let (batches, received) = rings.bounded("shards to events", QUEUE);
    let state = Arc::<State>::default();
    (BestChangesSender { state: state.clone(), batches }, BestChanges { state, batches: received })
}

impl BestChangesSender {
    /// Sends changes of the Loc-RIB, if they are wanted.
    #[inline]
    pub(super) fn offer(&self, batch: &Arc<BestBatch>) {
        if self.state.wanted.load(Acquire) && self.batches.try_send(batch.clone()).is_err() {
            let changes: usize = sum_bgp_families!(F => batch.changes.get::<F>().len());
            self.state.lost.fetch_add(changes as u64, Relaxed);
        }
    }
}

impl BestChanges {
    /// Sets whether shards send changes from now on.
    pub fn want(&self, wanted: bool) {
        self.state.wanted.store(wanted, Release);
    }

    /// The changes that were dropped since the last call.
    pub fn take_lost(&self) -> u64 {
        self.state.lost.swap(0, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_drops_and_counts_and_nothing_waits() {
        let (sender, changes) = queue(&Rings::default());
        let mut batch = BestBatch::default();
        let change = ribtide_bgp::message::Change {
            prefix: "10.0.0.0/8".parse::<ribtide_prefix::Prefix<ribtide_prefix::V4>>().unwrap(),
            old: ribtide_bgp::message::NONE,
            new: ribtide_bgp::message::NONE,
        };
        batch.changes.get_mut::<ribtide_prefix::V4>().extend([change; 3]);
        let batch = Arc::new(batch);
        sender.offer(&batch);
        assert!(changes.batches.is_empty());
        changes.want(true);
        (0..QUEUE + 2).for_each(|_| sender.offer(&batch));
        assert_eq!((changes.take_lost(), changes.take_lost()), (6, 0));
        assert!(Arc::ptr_eq(&changes.batches.try_recv().unwrap(), &batch));
        changes.want(false);
        sender.offer(&batch);
        assert_eq!(changes.take_lost(), 0);
    }
}
