//! The RIB manager's end of every dataplane's rings, and which dataplanes it waits for.
//!
//! What does not fit into a ring is held here, and soon nothing more is made: the RIB manager then either waits, or leaves
//! that dataplane behind, which gets nothing more until it has acknowledged nearly all that it has. So what is held is what
//! came of one turn.
//!
//! It waits as long as no dataplane suffers by it. A ring that is full and a ring with half of its batches left are far apart: the
//! second dataplane works so much faster that the first would hold it up before long, and not so much that it has nothing
//! to do while it is found out. No clock is read for that. What the last dataplane that keeps up cannot take, no other
//! gets either: so routes come at the speed of the fastest, and a dataplane that is alone is always waited for.

use ribtide_dataplane::{BATCHES, DataplaneSink, merge};
use ribtide_rib::{DataplaneId, DataplaneInfo, FibBatch, GroupId, UrgentOp};
use ribtide_runtime::ring::TrySend;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// All dataplanes, by number.
#[derive(Debug, Default)]
pub(super) struct DataplaneSinks(Vec<Plane>);

#[derive(Debug)]
struct Plane {
    name: String,
    sink: DataplaneSink,
    /// What its full urgent ring did not take yet, of each group the newest. No batch goes before it.
    overdue: Vec<UrgentOp>,
    /// What its full ring did not take yet.
    held: VecDeque<Arc<FibBatch>>,
}

impl DataplaneSinks {
    /// Adds a dataplane, of the next number.
    pub(super) fn add(&mut self, name: &str, sink: DataplaneSink) {
        self.0.push(Plane { name: name.into(), sink, overdue: Vec::new(), held: VecDeque::new() });
    }

    /// Their names.
    pub(super) fn names(&self) -> Vec<String> {
        self.0.iter().map(|plane| plane.name.clone()).collect()
    }

    /// Whether anything is held for any.
    pub(super) fn holds_any(&self) -> bool {
        self.0.iter().any(Plane::is_full)
    }

    /// Hands a dataplane a batch, as soon as it can take it.
    pub(super) fn send(&mut self, id: DataplaneId, batch: Arc<FibBatch>) {
        if let Some(plane) = self.0.get_mut(usize::from(id)) {
            plane.held.push_back(batch);
            plane.send();
        }
    }

    /// Hands a dataplane what goes ahead of all batches that it has not got.
    pub(super) fn overtake(&mut self, id: DataplaneId, ops: Vec<UrgentOp>) {
        if let Some(plane) = self.0.get_mut(usize::from(id)) {
            merge(&mut plane.overdue, ops);
            plane.send();
        }
    }

    /// Hands dataplanes what they have room for now. `None`: there is no room for more, and nothing more is to be made.
    /// Otherwise, which of those that are `up` are to be left behind.
    pub(super) fn make_way(&mut self, up: impl Iterator<Item = DataplaneInfo>) -> Option<Vec<DataplaneId>> {
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
        // One that is down gets everything again.
        self.0.iter_mut().zip(there).filter(|(_, there)| !there).for_each(|(plane, _)| plane.forget());
        let room = !any || if slow.is_empty() { any_keeps_up } else { any_is_fast };
        room.then_some(slow)
    }
}

impl Plane {
    /// Whether it could not take all that it was sent.
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
        // An operation that a later batch knows better must not come after it.
        while self.overdue.is_empty()
            && let Some(batch) = self.held.pop_front()
        {
            // A dataplane whose thread has ended takes nothing; the process is stopping.
            if let Err(TrySend::Full(batch)) = self.sink.batches.try_send(batch) {
                self.held.push_front(batch);
                break;
            }
        }
    }
}

/// Of each group the newest. Where one was deleted and made again meanwhile, the dataplane hears of the former by batches
/// alone: so there are never more than groups.
fn newest(ops: Vec<UrgentOp>) -> Vec<UrgentOp> {
    let last: BTreeMap<GroupId, u64> = ops.iter().map(|op| (op.op.id, op.made)).collect();
    ops.into_iter().filter(|op| last[&op.op.id] == op.made).collect()
}
