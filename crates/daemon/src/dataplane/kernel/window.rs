//! Batches that wait, taken together and written in the order of their prefixes.
//!
//! The kernel finds each route's place by a walk through a tree, which is in no cache once it holds a full table: for a route
//! beside the one before, most of the way is. With 65,536 routes of a million in their order the kernel needs an eighth less
//! time to add or replace each, with 2,048 nothing less (docs/perf/2026-11-kernel.md). Nothing is held back for that: while
//! the kernel is fast enough, windows are of one batch, as it came.
//!
//! A window is written in pieces, between which failures overtake.

use ribtide_prefix::{Families, Family, PerFamily, for_each_family};
use ribtide_rib::{FibBatch, FibGroup, FibRoute};
use std::sync::Arc;

/// A window that has so many routes takes no further batch: to bring it into order takes no longer than to write a piece.
const ROUTES: usize = 65_536;

/// How many routes of each family.
struct Counts;
impl PerFamily for Counts {
    type Of<F: Family> = usize;
}

/// Successive batches of one VRF as one.
pub(super) struct Window {
    /// What they come to, with the number of the last.
    batch: Arc<FibBatch>,
    /// Whether there is more than one of them.
    joined: bool,
    /// How many routes are taken out.
    taken: Families<Counts>,
}

impl Window {
    /// A window of one batch.
    pub(super) fn of(batch: Arc<FibBatch>) -> Window {
        Window { batch, joined: false, taken: Families::default() }
    }

    /// Whether a later batch may be added. All groups are made before the first route and deleted after the last, so one that
    /// was deleted here cannot be made again here. One that leads nowhere takes its routes out of the kernel, and those that
    /// left it here would not be there yet. Nor does a replay begin or end in the midst.
    pub(super) fn takes(&self, later: &FibBatch) -> bool {
        let FibBatch { vrf, after, end_of_replay, .. } = &*self.batch;
        self.batch.route_count() < ROUTES
            && after.is_empty()
            && !end_of_replay
            && !later.start_of_replay
            && !later.groups.iter().any(|op| op.content == FibGroup::Nowhere)
            && later.vrf == *vrf
    }

    /// Adds the next batch.
    pub(super) fn add(&mut self, later: &FibBatch) {
        let batch = Arc::make_mut(&mut self.batch);
        batch.seq = later.seq;
        batch.groups.extend_from_slice(&later.groups);
        for_each_family!(F => batch.routes.get_mut::<F>().extend_from_slice(later.routes.get::<F>()));
        batch.after.extend_from_slice(&later.after);
        batch.end_of_replay = later.end_of_replay;
        batch.again |= later.again;
        self.joined = true;
    }

    /// No more is added. Of each prefix the last change is left.
    pub(super) fn close(&mut self) {
        if !self.joined {
            return;
        }
        let batch = Arc::make_mut(&mut self.batch);
        for_each_family!(F => {
            let routes = batch.routes.get_mut::<F>();
            // Changes of one prefix stay in their order.
            routes.sort_by_key(|route| route.prefix);
            routes.dedup_by(|later, earlier| {
                let same = later.prefix == earlier.prefix;
                if same {
                    *earlier = *later;
                }
                same
            });
        });
    }

    /// What all of them come to.
    pub(super) fn batch(&self) -> &Arc<FibBatch> {
        &self.batch
    }

    /// The next routes of a family, at most `most`.
    pub(super) fn take<F: Family>(&mut self, most: usize) -> &[FibRoute<F>] {
        let taken = self.taken.get_mut::<F>();
        let left = &self.batch.routes.get::<F>()[*taken..];
        let next = &left[..most.min(left.len())];
        *taken += next.len();
        next
    }

    /// Whether all routes are taken out.
    pub(super) fn is_empty(&self) -> bool {
        self.taken.v4 + self.taken.v6 == self.batch.route_count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ribtide_prefix::{AnyPrefix, Prefix, V4, V6};
    use ribtide_rib::{FibHop, GroupId, GroupOp, Protocol, Vrf, VrfId};
    use std::collections::BTreeMap;

    /// What a dataplane has: groups by what interface they lead out, and routes by their group.
    #[derive(Clone, Default, PartialEq, Debug)]
    struct Model {
        groups: BTreeMap<GroupId, Option<u32>>,
        routes: BTreeMap<AnyPrefix, GroupId>,
    }

    impl Model {
        fn begin(&mut self, batch: &FibBatch) {
            for op in &batch.groups {
                let way = match &op.content {
                    FibGroup::Hops(hops) => Some(hops[0].interface),
                    _ => None,
                };
                if way.is_none() {
                    let left = |group: &GroupId| *group != op.id;
                    assert!(self.routes.values().all(left), "routes that are used are taken out");
                }
                self.groups.insert(op.id, way);
            }
        }

        fn install<F: Family>(&mut self, routes: &[FibRoute<F>]) {
            for FibRoute { prefix, group, .. } in routes {
                match group {
                    Some(group) => {
                        assert!(self.groups.contains_key(group), "a route by a group that is not there");
                        self.routes.insert(prefix.any(), *group);
                    }
                    None => drop(self.routes.remove(&prefix.any())),
                }
            }
        }

        fn finish(&mut self, batch: &FibBatch) {
            for group in &batch.after {
                assert!(!self.routes.values().any(|used| used == group), "a group goes that is used");
                self.groups.remove(group);
            }
        }

        fn apply(&mut self, batch: &FibBatch) {
            self.begin(batch);
            for_each_family!(F => self.install::<F>(batch.routes.get::<F>()));
            self.finish(batch);
        }
    }

    fn route(n: u8, group: Option<u32>, batch: &mut FibBatch) {
        let (group, protocol) = (group.map(GroupId), Protocol::BgpExternal);
        if n.is_multiple_of(3) {
            let prefix = Prefix::<V6>::new([n; 16], 48);
            batch.routes.v6.push(FibRoute { prefix, group, protocol });
        } else {
            let prefix = Prefix::<V4>::new(u32::from_be_bytes([n, n, 0, 0]), 16 + n % 8);
            batch.routes.v4.push(FibRoute { prefix, group, protocol });
        }
    }

    /// One batch as the RIB could make it after the state `model`. A group that is not used any more goes, or first leads
    /// nowhere, or stays.
    fn batch(seq: u64, changes: &BTreeMap<u8, Option<u32>>, fate: u8, model: &Model) -> FibBatch {
        let mut batch = FibBatch { seq, ..FibBatch::default() };
        changes.iter().for_each(|(n, group)| route(*n, *group, &mut batch));
        let mut then = model.clone();
        then.groups.extend((0..4).map(|id| (GroupId(id), None)));
        for_each_family!(F => then.install::<F>(batch.routes.get::<F>()));
        for id in (0..4).map(GroupId) {
            let hop = FibHop { gateway: None, interface: seq as u32, weight: 1, onlink: false };
            let used = then.routes.values().any(|group| *group == id);
            let there = model.groups.contains_key(&id);
            match fate {
                _ if used && (!there || fate & 4 != 0) => {
                    batch.groups.push(GroupOp { id, content: FibGroup::Hops(vec![hop]), source: None });
                }
                0..3 if there && !used => batch.after.push(id),
                3 if there && !used && !model.routes.values().any(|group| *group == id) => {
                    batch.groups.push(GroupOp { id, content: FibGroup::Nowhere, source: None });
                }
                _ => {}
            }
        }
        batch
    }

    proptest! {
        /// Whatever comes in whatever windows and pieces leads where it leads batch by batch, and make before break holds.
        #[test]
        fn windows_lead_where_batches_lead(
            all in proptest::collection::vec(
                (proptest::collection::btree_map(0u8..12, proptest::option::of(0u32..4), 0..6), 0u8..8),
                1..24,
            ),
            sizes in proptest::collection::vec(1usize..8, 24),
        ) {
            let (mut model, mut batches, mut states) = (Model::default(), Vec::new(), Vec::new());
            for (seq, (changes, fate)) in (1..).zip(&all) {
                let batch = batch(seq, changes, *fate, &model);
                model.apply(&batch);
                batches.push(batch);
                states.push(model.clone());
            }
            let (mut kernel, mut waiting) = (Model::default(), batches.into_iter().peekable());
            for size in sizes.into_iter().cycle() {
                let Some(first) = waiting.next() else { break };
                let mut window = Window::of(Arc::new(first));
                for _ in 1..size {
                    let Some(later) = waiting.next_if(|later| window.takes(later)) else { break };
                    window.add(&later);
                }
                window.close();
                let batch = window.batch().clone();
                kernel.begin(&batch);
                while !window.is_empty() {
                    for_each_family!(F => {
                        let piece = window.take::<F>(size);
                        let mut prefixes: Vec<_> = piece.iter().map(|route| route.prefix).collect();
                        prefixes.sort_unstable();
                        prefixes.dedup();
                        prop_assert_eq!(prefixes.len(), piece.len(), "a prefix twice in a piece");
                        kernel.install::<F>(piece);
                    });
                }
                kernel.finish(&batch);
                prop_assert_eq!(&kernel, &states[batch.seq as usize - 1]);
            }
            prop_assert_eq!(kernel, model);
        }
    }

    #[test]
    fn batches_join_unless_something_stands_between() {
        let plain = || FibBatch { seq: 2, ..FibBatch::default() };
        let window = |first| Window::of(Arc::new(first));
        assert!(window(FibBatch { start_of_replay: true, ..plain() }).takes(&plain()));
        assert!(window(plain()).takes(&FibBatch { end_of_replay: true, after: vec![GroupId(1)], ..plain() }));
        assert!(!window(plain()).takes(&FibBatch { start_of_replay: true, ..plain() }));
        assert!(!window(FibBatch { end_of_replay: true, ..plain() }).takes(&plain()));
        assert!(!window(FibBatch { after: vec![GroupId(1)], ..plain() }).takes(&plain()));
        let op = GroupOp { id: GroupId(1), content: FibGroup::Nowhere, source: None };
        assert!(!window(plain()).takes(&FibBatch { groups: vec![op], ..plain() }));
        let elsewhere = Vrf { id: VrfId(7), table: 7, device: 7 };
        assert!(!window(plain()).takes(&FibBatch { vrf: elsewhere, ..plain() }));
    }

    #[test]
    fn a_window_is_sorted_and_has_an_end() {
        let of = |range: std::ops::Range<u32>| {
            let mut batch = FibBatch::default();
            let at = |n: u32| Prefix::<V4>::new(n.wrapping_mul(0x9e37_79b1), 32);
            let (group, protocol) = (Some(GroupId(1)), Protocol::BgpExternal);
            batch.routes.v4.extend(range.map(|n| FibRoute { prefix: at(n), group, protocol }));
            batch
        };
        let half = ROUTES as u32 / 2;
        let mut window = Window::of(Arc::new(of(0..half)));
        assert!(window.takes(&of(0..1)));
        window.add(&of(half..2 * half));
        assert!(!window.takes(&of(0..1)), "it has enough");
        window.close();
        let routes = window.take::<V4>(usize::MAX);
        assert_eq!(routes.len(), ROUTES);
        assert!(routes.is_sorted_by_key(|route| route.prefix));
        assert!(window.is_empty());
    }
}
