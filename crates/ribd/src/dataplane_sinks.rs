//! The RIB manager's end of the queues of all dataplanes, and the choice of dataplanes that it
//! waits for.
//!
//! Batches without room are held here, and then the RIB manager makes no more: it either waits, or
//! marks that dataplane as lagging. A lagging dataplane gets nothing until it has acknowledged
//! nearly all of its batches. So held batches are the output of one turn.
//!
//! The RIB manager waits as long as no other dataplane suffers. A dataplane lags when its queue is
//! full while another has emptied half of its own. Then the other is so much faster that it would
//! have to wait soon, and it still has work. No clock is read for that. No dataplane gets what the
//! last one that keeps up has no room for. So routes flow at the speed of the fastest, and a single
//! dataplane is always waited for.

use ribtide_dataplane::{BATCHES, DataplaneSink, merge};
use ribtide_rib::{DataplaneId, DataplaneInfo, FibBatch, GroupId, UrgentOp};
use ribtide_runtime::ring::TrySend;
use std::collections::{BTreeMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;

/// All dataplanes, by number.
#[derive(Debug, Default)]
pub(super) struct DataplaneSinks(Vec<Plane>);

#[derive(Debug)]
struct Plane {
    name: String,
    sink: DataplaneSink,
    /// Urgent operations without room, the newest of each group. They precede all batches.
    overdue: Vec<UrgentOp>,
    /// Batches without room.
    held: VecDeque<Arc<FibBatch>>,
}

impl DataplaneSinks {
    /// Adds a dataplane with the next number.
    pub(super) fn add(&mut self, name: &str, sink: DataplaneSink) {
        self.0.push(Plane { name: name.into(), sink, overdue: Vec::new(), held: VecDeque::new() });
    }

    /// The numbers.
    pub(super) fn ids(&self) -> Range<DataplaneId> {
        0..self.0.len() as DataplaneId
    }

    /// The name of a dataplane.
    pub(super) fn name(&self, id: DataplaneId) -> Option<&str> {
        self.0.get(usize::from(id)).map(|plane| &*plane.name)
    }

    /// Whether a batch or operation is held for any.
    pub(super) fn holds_any(&self) -> bool {
        self.0.iter().any(Plane::is_full)
    }

    /// Sends a batch to a dataplane as soon as it has room.
    pub(super) fn send(&mut self, id: DataplaneId, batch: Arc<FibBatch>) {
        if let Some(plane) = self.0.get_mut(usize::from(id)) {
            plane.held.push_back(batch);
            plane.send();
        }
    }

    /// Sends urgent operations to a dataplane, ahead of all batches in its queue.
    pub(super) fn overtake(&mut self, id: DataplaneId, ops: Vec<UrgentOp>) {
        if let Some(plane) = self.0.get_mut(usize::from(id)) {
            merge(&mut plane.overdue, ops);
            plane.send();
        }
    }

    /// Wakes all dataplanes: FIB suppression is on or off.
    pub(super) fn wake(&self) {
        // One without room is awake.
        self.0.iter().for_each(|plane| drop(plane.sink.urgent.try_send(Vec::new())));
    }

    /// Sends held batches while there is room. Returns `None` if a dataplane that keeps up has no
    /// room, so no more batches may be made. Otherwise returns those of `up` that lag.
    pub(super) fn make_room(&mut self, up: impl Iterator<Item = DataplaneInfo>) -> Option<Vec<DataplaneId>> {
        self.0.iter_mut().for_each(Plane::send);
        let (mut slow, mut any, mut any_keeps_up, mut any_is_fast) = (Vec::new(), false, false, false);
        let mut there = vec![false; self.0.len()];
        for DataplaneInfo { id, lag, .. } in up {
            let Some(plane) = self.0.get(usize::from(id)) else { continue };
            there[usize::from(id)] = true;
            any = true;
            match (lag, plane.is_full()) {
                (None, true) => slow.push(id),
                (None, false) => {
                    any_keeps_up = true;
                    any_is_fast |= plane.sink.batches.len() <= BATCHES / 2;
                }
                (Some(_), _) => {}
            }
        }
        // A dataplane that is down gets a complete replay.
        self.0.iter_mut().zip(there).filter(|(_, there)| !there).for_each(|(plane, _)| plane.forget());
        let room = !any || if slow.is_empty() { any_keeps_up } else { any_is_fast };
        room.then_some(slow)
    }
}

impl Plane {
    /// Whether something is held for it.
    fn is_full(&self) -> bool {
        !self.held.is_empty() || !self.overdue.is_empty()
    }

    fn forget(&mut self) {
        self.held.clear();
        self.overdue.clear();
    }

    fn send(&mut self) {
        if !self.overdue.is_empty()
            && let Err(TrySend::Full(ops)) = self.sink.urgent.try_send(std::mem::take(&mut self.overdue))
        {
            self.overdue = newest(ops);
        }
        // A later batch has a newer state than the operation, which must not follow it.
        while self.overdue.is_empty()
            && let Some(batch) = self.held.pop_front()
        {
            // The thread has ended, so the process is stopping.
            if let Err(TrySend::Full(batch)) = self.sink.batches.try_send(batch) {
                self.held.push_front(batch);
                break;
            }
        }
    }
}

/// Merges urgent operations: the newest of each group. If a group was deleted and created again,
/// only batches report the former one. So there are never more operations than groups.
fn newest(ops: Vec<UrgentOp>) -> Vec<UrgentOp> {
    let last: BTreeMap<GroupId, u64> = ops.iter().map(|op| (op.op.id, op.made)).collect();
    ops.into_iter().filter(|op| last[&op.op.id] == op.made).collect()
}
