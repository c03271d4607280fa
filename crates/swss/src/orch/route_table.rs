//! Routes by number: the programmed entry of each, and the task that changes it.
//!
//! A row finds its route by prefix once; every later step (taking it from the queue, adding it to a bulk, confirming it)
//! uses the route's number. Each of these steps is one access to memory near that of the other routes of the bulk, and
//! hashes nothing.

use super::routes::{Lead, Task};
use super::vrfs;
use crate::row::Name;
use crate::segmented_vec::{HashIndex, SegmentedVec};
use ribtide_prefix::{Afi, AnyPrefix, HashBuilder, Map, prefetch, shrink_if_sparse};
use std::hash::{BuildHasher, Hasher};
use std::net::Ipv4Addr;

/// The number of a route, as long as there is something to know of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct RouteId(u32);

/// Which route: the VRF's number, and the destination. The route of a label is one of [`vrfs::LABELS`] to the address
/// whose number is the label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) struct RouteName {
    pub(super) vrf: u32,
    pub(super) prefix: AnyPrefix,
}

/// A table of the chip that entries are in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Table {
    /// IPv4 routes.
    Ipv4,
    /// IPv6 routes.
    Ipv6,
    /// Labels.
    Labels,
}

impl Table {
    /// All of them.
    pub(super) const ALL: [Table; 3] = [Table::Ipv4, Table::Ipv6, Table::Labels];

    /// The table of routes to this.
    pub(super) fn of(prefix: AnyPrefix) -> Table {
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
    /// The route of a label.
    pub(super) fn of_label(label: u32) -> RouteName {
        RouteName { vrf: vrfs::LABELS, prefix: AnyPrefix::host(Ipv4Addr::from_bits(label).into()) }
    }

    /// The label, of a label's route.
    pub(super) fn label(&self) -> Option<u32> {
        match self.prefix {
            AnyPrefix::V4(prefix) if self.vrf == vrfs::LABELS => Some(prefix.bits()),
            _ => None,
        }
    }

    fn is_label(&self) -> bool {
        self.vrf == vrfs::LABELS
    }

    pub(super) fn table(&self) -> Table {
        if self.is_label() { Table::Labels } else { Table::of(self.prefix) }
    }
}

/// What is kept of a route's hash.
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
    in_chip: Option<Lead>,
    task: u32,
    /// It stays, though there may be neither task nor entry.
    kept: Kept,
    /// The current resync has not contained the route so far; it is removed when the resync ends.
    stale: bool,
}

const _: () = assert!(size_of::<Record>() == 48);

/// Why else a record stays.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Kept {
    /// The destination is the router's own.
    own: bool,
    /// It was reported as failed.
    failed: bool,
    /// Its row is carried out without an entry.
    without: bool,
}

/// All routes that are in the chip, on their way there or of the router's own.
#[derive(Default)]
pub(super) struct RouteTable {
    records: SegmentedVec<Record>,
    unused: Vec<u32>,
    by_name: HashIndex,
    hasher: HashBuilder,
    tasks: Vec<Option<Box<Task>>>,
    unused_tasks: Vec<u32>,
    in_chip: usize,
    /// Why routes that were given up were, and what was said last.
    given_up: Map<RouteId, Name>,
    last_why: Name,
}

impl RouteTable {
    /// The number of a route of which something is known.
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

    /// The number of a route, which is made when there is none. Give it something to be kept for, or
    /// [`RouteTable::let_go`]. The prefix is read where it stands, for the reason that [`Task`] says.
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

    /// Forgets a route of which there is nothing to know any more.
    pub(super) fn let_go(&mut self, id: RouteId) {
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

    /// Which route a number is of.
    pub(super) fn name(&self, id: RouteId) -> RouteName {
        self.record(id).name
    }

    /// Where the chip leads it.
    pub(super) fn lead(&self, id: RouteId) -> Option<Lead> {
        self.record(id).in_chip
    }

    /// Notes where the chip leads it from now on, or that it has no entry any more, and returns what was before.
    pub(super) fn set_lead(&mut self, id: RouteId, lead: Option<Lead>) -> Option<Lead> {
        let old = std::mem::replace(&mut self.record_mut(id).in_chip, lead);
        self.in_chip += usize::from(lead.is_some());
        self.in_chip -= usize::from(old.is_some());
        old
    }

    /// How many the chip has.
    pub(super) fn in_chip(&self) -> usize {
        self.in_chip
    }

    /// The change of it that is not done.
    pub(super) fn task(&self, id: RouteId) -> Option<&Task> {
        self.tasks.get(self.record(id).task as usize)?.as_deref()
    }

    /// The change of it that is not done.
    pub(super) fn task_mut(&mut self, id: RouteId) -> Option<&mut Task> {
        let at = self.record(id).task as usize;
        self.tasks.get_mut(at)?.as_deref_mut()
    }

    /// Every change that is not done.
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

    /// Takes the task in hand: [`RouteTable::put_task`] gives it back, [`RouteTable::let_go`] ends it.
    pub(super) fn take_task(&mut self, id: RouteId) -> Option<Box<Task>> {
        let at = std::mem::replace(&mut self.record_mut(id).task, NONE);
        let task = self.tasks.get_mut(at as usize)?.take();
        self.unused_tasks.push(at);
        task
    }

    /// Gives a route that has none a task.
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

    /// How many tasks there are.
    pub(super) fn tasks(&self) -> usize {
        self.tasks.len() - self.unused_tasks.len()
    }

    /// Frees the memory of tasks when there is none, and shrinks the tables of routes of which less than an eighth is in use.
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

    /// Drops unused records at the end; those between others stay, because a record's number is its place.
    fn drop_last_unused_records(&mut self) {
        let RouteTable { records, unused, .. } = self;
        unused.sort_unstable();
        while unused.last().is_some_and(|at| *at as usize + 1 == records.len()) {
            unused.pop();
            records.pop();
        }
        unused.shrink_to_fit();
    }

    /// Notes whether the destination is the router's own.
    pub(super) fn set_own(&mut self, id: RouteId, own: bool) {
        self.record_mut(id).kept.own = own;
    }

    /// Whether the destination is the router's own.
    pub(super) fn is_own(&self, id: RouteId) -> bool {
        self.record(id).kept.own
    }

    /// Notes whether it was last reported as failed, and returns whether it was before.
    pub(super) fn set_failed(&mut self, id: RouteId, failed: bool) -> bool {
        std::mem::replace(&mut self.record_mut(id).kept.failed, failed)
    }

    /// Notes why it was given up, if it was, and returns whether it was reported as failed before.
    pub(super) fn give_up(&mut self, id: RouteId, why: Option<&str>) -> bool {
        match why {
            Some(why) => {
                // When many are given up it is for one reason.
                if *self.last_why != *why {
                    self.last_why = why.into();
                }
                self.given_up.insert(id, self.last_why.clone());
            }
            None if self.given_up.is_empty() => {}
            None => {
                self.given_up.remove(&id);
                shrink_if_sparse(&mut self.given_up);
            }
        }
        self.set_failed(id, why.is_some())
    }

    /// Why it was given up last, if it was.
    pub(super) fn why_given_up(&self, id: RouteId) -> Option<&Name> {
        self.given_up.get(&id).filter(|_| self.has_failed(id))
    }

    /// Whether it was last reported as failed.
    pub(super) fn has_failed(&self, id: RouteId) -> bool {
        self.record(id).kept.failed
    }

    /// Notes whether its row is carried out without an entry: the route is the switch's own, or a subnet of an interface has it.
    pub(super) fn set_without(&mut self, id: RouteId, without: bool) {
        self.record_mut(id).kept.without = without;
    }

    /// Whether nothing is left to be done for its row, and that did not fail.
    pub(super) fn is_carried_out(&self, id: RouteId) -> bool {
        let Record { in_chip, task, kept, .. } = self.record(id);
        *task == NONE && (in_chip.is_some() || kept.without) && !kept.failed
    }

    /// Every route that is known.
    pub(super) fn iter(&self) -> impl Iterator<Item = RouteId> {
        self.by_name.iter().map(RouteId)
    }

    /// Marks every route, or every label's route, as stale, but those of the router's own addresses.
    pub(super) fn begin_resync(&mut self, labels: bool) {
        let has_row =
            |record: &&mut Record| record.in_chip.is_some() || record.task != NONE || record.kept.without;
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

    /// The next stale route, or label's route, from number `at` on; `at` becomes the number behind it. `None` when no
    /// stale route is left.
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
        table.let_go(id);
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
