//! Routes by number: the programmed entry of each, and the task that changes it.
//!
//! A row finds its route by prefix once; every later step (taking it from the queue, adding it to a
//! bulk, confirming it) uses the route's number. Each of these steps is one access to memory near
//! that of the other routes of the bulk, and hashes nothing.

use super::LABELS_VRF;
use super::task::Task;
use crate::orch::next_hop_ref::NextHopRef;
use crate::row::Name;
use crate::segmented_vec::{HashIndex, SegmentedVec};
use ribtide_prefix::{Afi, AnyPrefix, HashBuilder, Map, prefetch, shrink_if_sparse};
use std::hash::{BuildHasher, Hasher};
use std::net::Ipv4Addr;

/// The number of a route. It is used again after [`RouteTable::remove_if_unused`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::orch) struct RouteId(u32);

/// The key of a route: the VRF's number, and the destination. The route of a label is one of
/// [`LABELS_VRF`] to the address whose number is the label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(in crate::orch) struct RouteName {
    pub(in crate::orch) vrf: u32,
    pub(in crate::orch) prefix: AnyPrefix,
}

/// A table of the chip that has entries of routes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Table {
    /// IPv4 routes.
    Ipv4,
    /// IPv6 routes.
    Ipv6,
    /// Routes of MPLS labels.
    Labels,
}

impl Table {
    /// All tables.
    pub(in crate::orch) const ALL: [Table; 3] = [Table::Ipv4, Table::Ipv6, Table::Labels];

    /// The table of routes to a prefix.
    pub(in crate::orch) fn of(prefix: AnyPrefix) -> Table {
        match prefix.afi() {
            Afi::Ipv4 => Table::Ipv4,
            Afi::Ipv6 => Table::Ipv6,
        }
    }
}

impl std::fmt::Display for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Table::Ipv4 => "ipv4-unicast",
            Table::Ipv6 => "ipv6-unicast",
            Table::Labels => "label",
        })
    }
}

impl RouteName {
    /// The name of a label's route.
    pub(in crate::orch) fn of_label(label: u32) -> RouteName {
        RouteName { vrf: LABELS_VRF, prefix: AnyPrefix::host(Ipv4Addr::from_bits(label).into()) }
    }

    /// The label of a label's route.
    pub(in crate::orch) fn label(&self) -> Option<u32> {
        match self.prefix {
            AnyPrefix::V4(prefix) if self.vrf == LABELS_VRF => Some(prefix.bits()),
            _ => None,
        }
    }

    fn is_label(&self) -> bool {
        self.vrf == LABELS_VRF
    }

    /// The table of the chip that the route's entry is in.
    pub(super) fn table(&self) -> Table {
        if self.is_label() { Table::Labels } else { Table::of(self.prefix) }
    }
}

/// The 32 bits of a route's hash that the index keeps.
fn hash(hasher: &HashBuilder, vrf: u32, prefix: &AnyPrefix) -> u32 {
    let (mut state, vrf) = (hasher.build_hasher(), u64::from(vrf) << 40);
    match prefix {
        AnyPrefix::V4(prefix) => {
            state.write_u64(vrf ^ u64::from(prefix.bits()) << 8 ^ u64::from(prefix.len()));
        }
        AnyPrefix::V6(prefix) => {
            state.write_u128(u128::from_be_bytes(prefix.bits()));
            state.write_u64(vrf ^ u64::from(prefix.len()));
        }
    }
    (state.finish() >> 32) as u32
}

/// No task.
const NONE: u32 = u32::MAX;

struct Record {
    name: RouteName,
    in_chip: Option<NextHopRef>,
    task: u32,
    /// Why the record stays without a task and without an entry.
    kept: Kept,
    /// The current resync has not contained the route so far; the end of the resync removes the
    /// route.
    stale: bool,
}

const _: () = assert!(size_of::<Record>() == 48);

/// Why a record stays without a task and without an entry.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Kept {
    /// The destination is the router's own.
    own: bool,
    /// The route was reported as failed.
    failed: bool,
    /// The row needs no entry.
    without_entry: bool,
}

/// All routes that are in the chip or requested, that failed, or that are the router's own.
#[derive(Default)]
pub(super) struct RouteTable {
    records: SegmentedVec<Record>,
    unused: Vec<u32>,
    by_name: HashIndex,
    hasher: HashBuilder,
    tasks: Vec<Option<Box<Task>>>,
    unused_tasks: Vec<u32>,
    in_chip: usize,
    /// Why routes were refused, and the latest reason.
    refused: Map<RouteId, Name>,
    last_why: Name,
}

impl RouteTable {
    /// The number of a known route.
    pub(super) fn find(&self, name: RouteName) -> Option<RouteId> {
        let hash = hash(&self.hasher, name.vrf, &name.prefix);
        self.by_name.find(hash, |at| self.records[at].name == name).map(RouteId)
    }

    /// Prefetches a route.
    pub(super) fn prefetch(&self, vrf: u32, prefix: &AnyPrefix) {
        let hash = hash(&self.hasher, vrf, prefix);
        let found = self.by_name.find(hash, |_| true);
        prefetch(found.and_then(|at| self.records.get(at)).map(|record| record.task));
    }

    /// The number of a route; a new route gets one. The caller then gives it a task, an entry or a
    /// reason to stay, or calls [`RouteTable::remove_if_unused`]. The prefix is read in place, for
    /// the reason that [`Task`] gives.
    pub(super) fn id_of(&mut self, vrf: u32, prefix: &AnyPrefix) -> RouteId {
        let RouteTable { records, unused, by_name, hasher, .. } = self;
        let hash = hash(hasher, vrf, prefix);
        let is = |name: &RouteName| name.vrf == vrf && name.prefix == *prefix;
        if let Some(known) = by_name.find(hash, |at| is(&records[at].name)) {
            return RouteId(known);
        }
        let at = unused.pop().unwrap_or(records.len() as u32);
        let record = Record {
            name: RouteName { vrf, prefix: *prefix },
            in_chip: None,
            task: NONE,
            kept: Kept::default(),
            stale: false,
        };
        match records.get_mut(at) {
            Some(place) => *place = record,
            None => records.push(record),
        }
        by_name.insert(hash, at);
        RouteId(at)
    }

    /// The route of a number, in use or not; `None` beyond the last one.
    pub(super) fn numbered(&self, at: u32) -> Option<RouteId> {
        self.records.get(at).map(|_| RouteId(at))
    }

    /// Removes a route without a task, without an entry and without a reason to stay.
    pub(super) fn remove_if_unused(&mut self, id: RouteId) {
        let Record { name, in_chip, task, kept, .. } = self.record(id);
        if in_chip.is_some() || *task != NONE || *kept != Kept::default() {
            return;
        }
        self.by_name.remove(hash(&self.hasher, name.vrf, &name.prefix), id.0);
        self.record_mut(id).stale = false;
        self.unused.push(id.0);
        if self.by_name.is_empty() {
            (self.records, self.unused, self.by_name) = Default::default();
        }
    }

    /// The name of a route.
    pub(super) fn name(&self, id: RouteId) -> RouteName {
        self.record(id).name
    }

    /// The next-hop reference of the chip's entry; `None` without an entry.
    pub(super) fn reference(&self, id: RouteId) -> Option<NextHopRef> {
        self.record(id).in_chip
    }

    /// Sets what the chip's entry resolves to (`None`: no entry), and returns what it resolved to
    /// before.
    pub(super) fn set_reference(&mut self, id: RouteId, reference: Option<NextHopRef>) -> Option<NextHopRef> {
        let old = std::mem::replace(&mut self.record_mut(id).in_chip, reference);
        self.in_chip += usize::from(reference.is_some());
        self.in_chip -= usize::from(old.is_some());
        old
    }

    /// How many routes have an entry.
    pub(super) fn in_chip(&self) -> usize {
        self.in_chip
    }

    /// The route's task.
    pub(super) fn task(&self, id: RouteId) -> Option<&Task> {
        self.tasks.get(self.record(id).task as usize)?.as_deref()
    }

    /// The route's task.
    pub(super) fn task_mut(&mut self, id: RouteId) -> Option<&mut Task> {
        let at = self.record(id).task as usize;
        self.tasks.get_mut(at)?.as_deref_mut()
    }

    /// Every task.
    pub(super) fn all_tasks(&mut self) -> impl Iterator<Item = &mut Task> {
        self.tasks.iter_mut().flatten().map(|task| &mut **task)
    }

    /// Prefetches the tasks of routes.
    pub(super) fn prefetch_tasks(&self, ids: impl Iterator<Item = RouteId>) {
        let tasks = ids.filter_map(|id| self.tasks.get(self.record(id).task as usize));
        tasks.for_each(|task| {
            prefetch(task.as_deref().map(Task::is_ready));
        });
    }

    /// Moves the task out of the table. [`RouteTable::put_task`] puts it back.
    pub(super) fn take_task(&mut self, id: RouteId) -> Option<Box<Task>> {
        let at = std::mem::replace(&mut self.record_mut(id).task, NONE);
        let task = self.tasks.get_mut(at as usize)?.take();
        self.unused_tasks.push(at);
        task
    }

    /// Puts a task into the table. The route must have none.
    pub(super) fn put_task(&mut self, id: RouteId, task: Box<Task>) {
        let at = match self.unused_tasks.pop() {
            Some(at) => {
                self.tasks[at as usize] = Some(task);
                at
            }
            None => {
                self.tasks.push(Some(task));
                self.tasks.len() as u32 - 1
            }
        };
        self.record_mut(id).task = at;
    }

    /// Count of tasks.
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len() - self.unused_tasks.len()
    }

    /// Frees the memory of tasks when there is none, and shrinks tables of routes that are used by
    /// less than an eighth.
    pub(super) fn shrink_if_sparse(&mut self) {
        const KEPT_RECORDS: usize = 4096;
        if self.tasks() == 0 {
            (self.tasks, self.unused_tasks) = Default::default();
        }
        if self.records.len() > KEPT_RECORDS && self.by_name.len() * 8 < self.records.len() {
            self.drop_last_unused_records();
            self.by_name.shrink_if_sparse();
        }
    }

    /// Shrinks the tables to their contents and a little more. O(capacity).
    pub(super) fn shrink_to_fit(&mut self) {
        self.shrink_if_sparse();
        self.drop_last_unused_records();
        self.records.shrink_to_fit();
        self.by_name.shrink_to_fit();
        self.unused_tasks.shrink_to_fit();
    }

    /// Drops unused records at the end; those between others stay, because a record's number is its
    /// place.
    fn drop_last_unused_records(&mut self) {
        let RouteTable { records, unused, .. } = self;
        unused.sort_unstable();
        while unused.last().is_some_and(|at| *at as usize + 1 == records.len()) {
            unused.pop();
            records.pop();
        }
        unused.shrink_to_fit();
    }

    /// Sets whether the destination is the router's own.
    pub(super) fn set_own(&mut self, id: RouteId, own: bool) {
        self.record_mut(id).kept.own = own;
    }

    /// Whether the destination is the router's own.
    pub(super) fn is_own(&self, id: RouteId) -> bool {
        self.record(id).kept.own
    }

    /// Sets whether the route was reported as failed last, and returns the previous value.
    pub(super) fn set_failed(&mut self, id: RouteId, failed: bool) -> bool {
        std::mem::replace(&mut self.record_mut(id).kept.failed, failed)
    }

    /// Sets why the route was refused (`None`: it was not), and returns whether it was reported as
    /// failed before.
    pub(super) fn set_refused(&mut self, id: RouteId, why: Option<&str>) -> bool {
        match why {
            Some(why) => {
                // Many refused routes share one reason, and so one name.
                if *self.last_why != *why {
                    self.last_why = why.into();
                }
                self.refused.insert(id, self.last_why.clone());
            }
            None if self.refused.is_empty() => {}
            None => {
                self.refused.remove(&id);
                shrink_if_sparse(&mut self.refused);
            }
        }
        self.set_failed(id, why.is_some())
    }

    /// Why the route was refused last, if it was.
    pub(super) fn why_refused(&self, id: RouteId) -> Option<&Name> {
        self.refused.get(&id).filter(|_| self.has_failed(id))
    }

    /// Whether the route was reported as failed last.
    pub(super) fn has_failed(&self, id: RouteId) -> bool {
        self.record(id).kept.failed
    }

    /// Sets whether the row needs no entry: its next hop is the router itself, or an interface's
    /// subnet covers the destination.
    pub(super) fn set_without_entry(&mut self, id: RouteId, without: bool) {
        self.record_mut(id).kept.without_entry = without;
    }

    /// Whether the row needs no entry.
    pub(super) fn is_without_entry(&self, id: RouteId) -> bool {
        self.record(id).kept.without_entry
    }

    /// Whether the row is carried out: nothing is left to do, and nothing failed.
    pub(super) fn is_carried_out(&self, id: RouteId) -> bool {
        let Record { in_chip, task, kept, .. } = self.record(id);
        *task == NONE && (in_chip.is_some() || kept.without_entry) && !kept.failed
    }

    /// Every known route.
    pub(super) fn iter(&self) -> impl Iterator<Item = RouteId> {
        self.by_name.iter().map(RouteId)
    }

    /// Flags every route, or every label's route, as stale, except those of the router's own
    /// addresses.
    pub(super) fn begin_resync(&mut self, labels: bool) {
        let has_row = |record: &&mut Record| {
            record.in_chip.is_some() || record.task != NONE || record.kept.without_entry
        };
        let known = self.records.iter_mut().filter(has_row);
        for record in known.filter(|record| !record.kept.own && record.name.is_label() == labels) {
            record.stale = true;
        }
    }

    /// Whether the current resync has not contained the route so far.
    pub(super) fn is_stale(&self, id: RouteId) -> bool {
        self.record(id).stale
    }

    /// Clears the stale flag, and returns what it was.
    pub(super) fn clear_stale(&mut self, id: RouteId) -> bool {
        std::mem::take(&mut self.record_mut(id).stale)
    }

    /// The next stale route, or label's route, from number `at` on; `at` becomes the number behind
    /// it. `None` when no stale route is left.
    pub(super) fn next_stale(&self, at: &mut u32, labels: bool) -> Option<RouteId> {
        while let Some(record) = self.records.get(*at) {
            *at += 1;
            if record.stale && record.name.is_label() == labels {
                return Some(RouteId(*at - 1));
            }
        }
        None
    }

    fn record(&self, id: RouteId) -> &Record {
        &self.records[id.0]
    }

    fn record_mut(&mut self, id: RouteId) -> &mut Record {
        &mut self.records[id.0]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(n: u32) -> AnyPrefix {
        AnyPrefix::host(Ipv4Addr::from_bits(n).into())
    }

    /// The number of a route that is kept.
    fn keep(table: &mut RouteTable, n: u32) -> RouteId {
        let id = table.id_of(0, &prefix(n));
        table.set_own(id, true);
        id
    }

    fn forget(table: &mut RouteTable, n: u32) {
        let id = table.find(RouteName { vrf: 0, prefix: prefix(n) }).unwrap();
        table.set_own(id, false);
        table.remove_if_unused(id);
    }

    fn room(table: &RouteTable) -> usize {
        table.records.capacity()
    }

    #[test]
    fn room_for_routes_that_came_and_went_is_given_back() {
        let mut table = RouteTable::default();
        for stay in [10, 30_000] {
            let ids: Vec<RouteId> = (0..stay).map(|n| keep(&mut table, n)).collect();
            table.shrink_to_fit();
            let (before, names) = (room(&table), table.by_name.capacity());
            assert!(
                before < stay as usize + SegmentedVec::<Record>::SEGMENT_LEN
                    && names < 2 * stay as usize + 16
            );
            for n in stay..100_000 {
                keep(&mut table, n);
            }
            (stay..100_000).for_each(|n| forget(&mut table, n));
            table.shrink_to_fit();
            assert_eq!((room(&table), table.by_name.capacity()), (before, names));
            assert!(table.unused.is_empty() && table.unused.capacity() == 0);
            let same =
                |(n, id): (u32, &RouteId)| table.find(RouteName { vrf: 0, prefix: prefix(n) }) == Some(*id);
            assert!((0..).zip(&ids).all(same), "numbers stay what they are");
        }
        assert!(
            table
                .records
                .segments()
                .iter()
                .rev()
                .skip(1)
                .all(|segment| segment.len() == SegmentedVec::<Record>::SEGMENT_LEN)
        );
    }
}
