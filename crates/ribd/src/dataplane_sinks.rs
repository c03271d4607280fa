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
use std::sync::Arc;

/// All dataplanes, by number.
#[derive(Debug, Default)]
pub(super) struct DataplaneSinks {
    planes: BTreeMap<DataplaneId, Plane>,
    /// The number to try first for the next one, so that the number of a removed one is used again as late as possible.
    next: DataplaneId,
}

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
    /// A number that no dataplane has; `None`: there are 256.
    pub(super) fn free_id(&mut self) -> Option<DataplaneId> {
        let mut from_next = (0..=DataplaneId::MAX).map(|step| self.next.wrapping_add(step));
        let id = from_next.find(|id| !self.planes.contains_key(id))?;
        self.next = id.wrapping_add(1);
        Some(id)
    }

    /// Adds a dataplane.
    pub(super) fn add(&mut self, id: DataplaneId, name: &str, sink: DataplaneSink) {
        let plane = Plane { name: name.into(), sink, overdue: Vec::new(), held: VecDeque::new() };
        self.planes.insert(id, plane);
    }

    /// Removes a dataplane.
    pub(super) fn remove(&mut self, id: DataplaneId) {
        self.planes.remove(&id);
    }

    /// Whether there is such a dataplane.
    pub(super) fn contains(&self, id: DataplaneId) -> bool {
        self.planes.contains_key(&id)
    }

    /// The numbers.
    pub(super) fn ids(&self) -> impl Iterator<Item = DataplaneId> {
        self.planes.keys().copied()
    }

    /// The name of a dataplane.
    pub(super) fn name(&self, id: DataplaneId) -> Option<&str> {
        self.planes.get(&id).map(|plane| &*plane.name)
    }

    /// Whether a batch or operation is held for any.
    pub(super) fn holds_any(&self) -> bool {
        self.planes.values().any(Plane::is_full)
    }

    /// Sends a batch to a dataplane as soon as it has room.
    pub(super) fn send(&mut self, id: DataplaneId, batch: Arc<FibBatch>) {
        if let Some(plane) = self.planes.get_mut(&id) {
            plane.held.push_back(batch);
            plane.send();
        }
    }

    /// Sends urgent operations to a dataplane, ahead of all batches in its queue.
    pub(super) fn overtake(&mut self, id: DataplaneId, ops: Vec<UrgentOp>) {
        if let Some(plane) = self.planes.get_mut(&id) {
            merge(&mut plane.overdue, ops);
            plane.send();
        }
    }

    /// Wakes all dataplanes: FIB suppression is on or off, or one has another setting.
    pub(super) fn wake(&self) {
        // One without room is awake.
        self.planes.values().for_each(|plane| drop(plane.sink.urgent.try_send(Vec::new())));
    }

    /// Sends held batches while there is room. Returns `None` if a dataplane that keeps up has no
    /// room, so no more batches may be made. Otherwise returns those of `up` that lag.
    pub(super) fn make_room(&mut self, up: impl Iterator<Item = DataplaneInfo>) -> Option<Vec<DataplaneId>> {
        self.planes.values_mut().for_each(Plane::send);
        let (mut slow, mut any, mut any_keeps_up, mut any_is_fast) = (Vec::new(), false, false, false);
        let mut there = [false; DataplaneId::MAX as usize + 1];
        for DataplaneInfo { id, lag, .. } in up {
            let Some(plane) = self.planes.get(&id) else { continue };
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
        let down = self.planes.iter_mut().filter(|(id, _)| !there[usize::from(**id)]);
        down.for_each(|(_, plane)| plane.forget());
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
            // Where the thread has ended, the dataplane is being removed, or the process is stopping.
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

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_rib::{FibGroup, GroupOp};
    use ribtide_runtime::ring::{Receiver, Rings};

    /// The dataplane's end of its two queues.
    struct End {
        batches: Receiver<Arc<FibBatch>>,
        urgent: Receiver<Vec<UrgentOp>>,
    }

    impl End {
        /// The number of the next batch.
        fn take(&self) -> Option<u64> {
            self.batches.try_recv().map(|batch| batch.seq)
        }
    }

    /// Dataplanes with room for so many batches each, and for one message of urgent operations.
    fn planes<const N: usize>(room: [usize; N]) -> (DataplaneSinks, [End; N]) {
        let (rings, mut sinks) = (Rings::default(), DataplaneSinks::default());
        let ends = room.map(|room| {
            let (batches_in, batches) = rings.bounded("RIB to test", room);
            let (urgent_in, urgent) = rings.bounded("RIB to test, urgent", 1);
            let id = sinks.free_id().unwrap();
            sinks.add(id, "test", DataplaneSink { batches: batches_in, urgent: urgent_in });
            End { batches, urgent }
        });
        (sinks, ends)
    }

    fn batch(seq: u64) -> Arc<FibBatch> {
        Arc::new(FibBatch { seq, ..FibBatch::default() })
    }

    /// A dataplane that is up and keeps up.
    fn up(id: DataplaneId) -> DataplaneInfo {
        DataplaneInfo { id, outstanding: 0, acked: 0, failed: 0, replayed: true, lag: None }
    }

    fn unresolved(id: u32, made: u64) -> UrgentOp {
        let op = GroupOp { id: GroupId(id), content: FibGroup::Unresolved, source: None };
        UrgentOp { after: 0, made, op }
    }

    #[test]
    fn number_of_a_removed_dataplane_is_used_again_last() {
        let (mut sinks, _ends) = planes([1, 1]);
        sinks.remove(0);
        sinks.send(0, batch(1));
        assert!(!sinks.contains(0) && sinks.name(1).is_some() && !sinks.holds_any());
        let (batches, _taken) = Rings::default().bounded("RIB to test", 1);
        let (urgent, _urgent_taken) = Rings::default().bounded("RIB to test, urgent", 1);
        let mut given = Vec::new();
        while let Some(id) = sinks.free_id() {
            given.push(id);
            sinks.add(id, "test", DataplaneSink { batches: batches.clone(), urgent: urgent.clone() });
        }
        assert_eq!((given.len(), given[0], given[254]), (255, 2, 0));
    }

    #[test]
    fn held_batches_are_sent_in_order_and_hold_up_the_only_dataplane() {
        let (mut sinks, [end]) = planes([1]);
        (1..=3).for_each(|seq| sinks.send(0, batch(seq)));
        assert!(sinks.holds_any());
        assert_eq!(sinks.make_room([up(0)].into_iter()), None);
        assert_eq!(end.take(), Some(1));
        assert_eq!(sinks.make_room([up(0)].into_iter()), None, "there is one more");
        sinks.send(0, batch(4));
        assert_eq!(end.take(), Some(2));
        sinks.make_room([up(0)].into_iter());
        assert_eq!(end.take(), Some(3));
        assert_eq!(sinks.make_room([up(0)].into_iter()), Some(vec![]));
        assert!(!sinks.holds_any());
        assert_eq!(end.take(), Some(4));
        assert_eq!(end.take(), None);
    }

    #[test]
    fn full_dataplane_lags_only_while_another_has_emptied_half_of_its_queue() {
        let (mut sinks, [slow, fast]) = planes([1, BATCHES]);
        (1..=BATCHES as u64).for_each(|seq| sinks.send(1, batch(seq)));
        (1..=2).for_each(|seq| sinks.send(0, batch(seq)));
        let all = || [up(0), up(1)].into_iter();
        assert_eq!(sinks.make_room(all()), None, "the other one is not faster");
        for _ in 1..BATCHES / 2 {
            fast.take();
        }
        assert_eq!(sinks.make_room(all()), None, "less than half is empty");
        fast.take();
        assert_eq!(sinks.make_room(all()), Some(vec![0]));
        // Batches with room come in order, whether the dataplane lags or not.
        assert_eq!(slow.take(), Some(1));
        let lagging = DataplaneInfo { lag: Some(1), ..up(0) };
        assert_eq!(sinks.make_room([lagging, up(1)].into_iter()), Some(vec![]));
        assert_eq!(slow.take(), Some(2));
    }

    #[test]
    fn batches_held_for_a_dataplane_that_is_down_are_dropped_and_no_others() {
        let (mut sinks, [up_end, down_end]) = planes([1, 1]);
        for id in [0, 1] {
            (1..=2).for_each(|seq| sinks.send(id, batch(seq)));
        }
        assert_eq!(sinks.make_room([up(0)].into_iter()), None);
        assert_eq!((up_end.take(), down_end.take()), (Some(1), Some(1)));
        assert_eq!(sinks.make_room([up(0)].into_iter()), Some(vec![]));
        assert_eq!((up_end.take(), down_end.take()), (Some(2), None));
    }

    #[test]
    fn urgent_operations_without_room_precede_batches_and_are_the_newest_of_each_group() {
        let (mut sinks, [end]) = planes([4]);
        sinks.overtake(0, vec![unresolved(1, 1)]);
        sinks.overtake(0, vec![unresolved(1, 2)]);
        sinks.overtake(0, vec![unresolved(2, 3), unresolved(1, 4)]);
        sinks.send(0, batch(5));
        assert_eq!(end.take(), None, "the operations are older");
        assert_eq!(end.urgent.try_recv().unwrap(), [unresolved(1, 1)]);
        assert_eq!(sinks.make_room([up(0)].into_iter()), Some(vec![]));
        let ops = end.urgent.try_recv().unwrap();
        assert_eq!(ops, [unresolved(2, 3), unresolved(1, 4)]);
        assert_eq!(end.take(), Some(5));
    }
}
