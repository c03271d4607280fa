//! Next-hop groups: each received set is stored once for all of its routes, with what it resolves
//! to.
//!
//! A FIB group belongs to exactly one received group and has its number. Two received groups with
//! equal results do not share a FIB group. When their results later differ, sharing would rewrite
//! every route of one of them; a next-hop change must never cost the routes.

use crate::fib_policy::FibPolicyResult;
use crate::message::{FibGroup, FibHop, GroupId, GroupOp, IfIndex, NextHops, ReceivedHop, RouteSet, Track};
use crate::store::Store;
use crate::target::{Assumed, OWN_WEIGHT, Outcome, Target};
use ribtide_prefix::{AnyPrefix, HashBuilder, Map};
use std::hash::BuildHasher;

/// The identity of a received group: routes with equal keys resolve alike.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GroupKey {
    /// Sorted, without repetitions, weights at least 1.
    pub(crate) next_hops: NextHops,
    /// The backup hops in the same form, used while `next_hops` are unresolved.
    pub(crate) backup: Vec<ReceivedHop>,
    /// `recursion` of the backup hops.
    pub(crate) backup_recursion: bool,
    /// The condition of the routes' use.
    pub(crate) track: Option<Track>,
    /// Whether the next hops may be looked up recursively; false where none needs it.
    pub(crate) recursion: bool,
    /// The prefix of the route, when a gateway lies inside it: the route must not resolve itself.
    pub(crate) exclude: Option<AnyPrefix>,
    /// What its targets assume. Such a group has no routes; the targets that looked into it retain
    /// it.
    pub(crate) assumed: Option<Assumed>,
    /// The result of FIB policy for its routes.
    pub(crate) policy_result: FibPolicyResult,
}

/// Hops in the order of a key.
fn sorted(mut hops: Vec<ReceivedHop>) -> Vec<ReceivedHop> {
    for hop in &mut hops {
        hop.weight = hop.weight.max(1);
    }
    let what = |h: &ReceivedHop| (h.gateway, h.interface, h.onlink);
    // A repeated hop loses its weight. The sort is stable, so the first received hop counts.
    hops.sort_by_key(what);
    hops.dedup_by_key(|h| what(h));
    hops
}

/// Whether a hop is looked up recursively. Where none is, `recursion` makes no difference, and so
/// belongs to no key: routes with equal next hops have one group (ADR 20, section 3).
fn recurses(hops: &[ReceivedHop], recursion: bool) -> bool {
    recursion && hops.iter().any(|hop| Target::new(hop, true, None).recursion)
}

impl GroupKey {
    /// The key of a received set.
    pub(crate) fn new(set: &RouteSet) -> GroupKey {
        GroupKey {
            backup: sorted(set.backup.clone()),
            backup_recursion: recurses(&set.backup, set.backup_recursion),
            track: set.track,
            ..GroupKey::plain(set.next_hops.clone(), set.allow_recursion)
        }
    }

    /// The key of a set without backup, condition or policy.
    pub(crate) fn plain(next_hops: NextHops, recursion: bool) -> GroupKey {
        let next_hops = match next_hops {
            NextHops::Via(hops) => NextHops::Via(sorted(hops)),
            other => other,
        };
        let recursion = matches!(&next_hops, NextHops::Via(hops) if recurses(hops, recursion));
        GroupKey {
            next_hops,
            backup: Vec::new(),
            backup_recursion: false,
            track: None,
            recursion,
            exclude: None,
            assumed: None,
            policy_result: FibPolicyResult::default(),
        }
    }

    /// Whether the two differ in nothing but the FIB policy result.
    pub(crate) fn differs_only_in_policy_result(&self, other: &GroupKey) -> bool {
        let GroupKey {
            next_hops,
            backup,
            backup_recursion,
            track,
            recursion,
            exclude,
            assumed,
            policy_result: _,
        } = self;
        (next_hops, backup, backup_recursion, track, recursion, exclude, assumed)
            == (
                &other.next_hops,
                &other.backup,
                &other.backup_recursion,
                &other.track,
                &other.recursion,
                &other.exclude,
                &other.assumed,
            )
    }

    /// The targets of its next hops, its backup hops and its condition.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        let first = self.hops().iter().map(|hop| Target::new(hop, self.recursion, self.exclude));
        let backup = self.backup.iter().map(|hop| Target::new(hop, self.backup_recursion, self.exclude));
        let track = self.track.map(|track| Target::tracking(track, self.exclude));
        first.chain(backup).chain(track).map(|target| target.assuming(self.assumed))
    }

    pub(crate) fn hops(&self) -> &[ReceivedHop] {
        self.next_hops.hops()
    }

    /// What it resolves to when its targets have these `outcomes`, in order; `None` when no target
    /// is resolved.
    pub(crate) fn content<'a>(
        &'a self,
        mut outcomes: impl Iterator<Item = &'a Outcome>,
        max_ecmp: u16,
    ) -> Option<FibGroup> {
        let first = match &self.next_hops {
            NextHops::Blackhole | NextHops::Unreachable => Some(FibGroup::Blackhole),
            NextHops::Via(hops) => flatten(hops.iter().zip(outcomes.by_ref()), max_ecmp),
        };
        let backup = flatten(self.backup.iter().zip(outcomes.by_ref()), max_ecmp);
        let holds = outcomes.next().is_none_or(Outcome::is_resolved);
        first.or(backup).filter(|_| holds)
    }
}

/// A received group and its FIB group.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: GroupKey,
    /// Its targets, in the order of [`GroupKey::targets`].
    pub(crate) targets: Vec<u32>,
    /// Candidates in the tables that use it; of an assumed group, the targets that looked into it.
    pub(crate) routes: u32,
    /// Routes in the FIB that use it.
    pub(crate) installed: u32,
    /// What it resolves to; `None` while it is unresolved.
    pub(crate) content: Option<FibGroup>,
    /// The highest level of its counted targets; 0 when none is resolved.
    pub(crate) level: u8,
    /// The least cost of its counted targets; 0 when none is resolved.
    pub(crate) cost: u32,
    /// Whether any of these is [partial](crate::target::Resolution::partial).
    pub(crate) partial: bool,
    /// Targets that do not count, because their answers come from this group itself; see
    /// [`crate::circle`].
    pub(crate) dropped: Vec<u32>,
    /// The value of `dropped` after the group is settled.
    pub(crate) dropping: Vec<u32>,
    /// The generation of its last resolution for a route; see [`crate::cache`].
    pub(crate) stamp: u64,
    /// Whether dataplanes have it.
    pub(crate) in_fib: bool,
    /// The batch in which they last received it.
    pub(crate) made: u64,
    /// Dataplanes were sent that it is unresolved, and no batch has restored it.
    pub(crate) sent_unresolved: bool,
    /// Created in this batch: its routes are already marked for selection.
    pub(crate) fresh: bool,
    /// An answer that it depends on may have changed in this batch.
    pub(crate) stale: bool,
    /// An answer that it depends on changed in this batch.
    pub(crate) moved: bool,
    /// Its content changed in this batch.
    pub(crate) changed: bool,
    /// It went from resolved to unresolved or back in this batch.
    pub(crate) turned: bool,
    /// It is listed for [`crate::resolver::Resolver::finish`].
    pub(crate) touched: bool,
}

impl Group {
    /// Whether candidates in the tables use it.
    pub(crate) fn has_routes(&self) -> bool {
        self.routes > 0 && self.key.assumed.is_none()
    }

    /// Its content for dataplanes.
    pub(crate) fn in_dataplanes(&self) -> FibGroup {
        self.content.clone().unwrap_or(FibGroup::Unresolved)
    }

    /// The operation that sends dataplanes this content.
    pub(crate) fn op(&self, id: GroupId) -> GroupOp {
        GroupOp { id, content: self.in_dataplanes(), source: self.key.policy_result.source }
    }
}

/// Groups by number and by key.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) store: Store<Group>,
    by_key: hashbrown::HashTable<u32>,
    /// Numbers of removed groups that must not be reused yet.
    removed: Vec<u32>,
    hasher: HashBuilder,
}

impl Groups {
    /// An empty store whose numbers begin above `base`.
    pub(crate) fn above(base: u32) -> Groups {
        Groups { store: Store::above(base), ..Groups::default() }
    }

    pub(crate) fn find(&self, key: &GroupKey) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.by_key.find(hash, |id| self.store[*id].key == *key).copied()
    }

    /// Adds a group that [`Groups::find`] did not find.
    pub(crate) fn add(&mut self, key: GroupKey, targets: Vec<u32>) -> u32 {
        let hash = self.hasher.hash_one(&key);
        let id = self.store.insert(Group {
            key,
            targets,
            routes: 0,
            installed: 0,
            content: None,
            level: 0,
            cost: 0,
            partial: false,
            dropped: Vec::new(),
            dropping: Vec::new(),
            stamp: 0,
            in_fib: false,
            made: 0,
            sent_unresolved: false,
            fresh: true,
            stale: true,
            moved: true,
            changed: false,
            turned: false,
            touched: false,
        });
        self.by_key.insert_unique(hash, id, |id| self.hasher.hash_one(&self.store[*id].key));
        id
    }

    /// Removes a group. Its number is free after [`Groups::reuse`].
    pub(crate) fn remove(&mut self, id: u32) -> Group {
        let hash = self.hasher.hash_one(&self.store[id].key);
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.removed.push(id);
        self.store.take(id)
    }

    /// Frees the numbers of removed groups that no dataplane holds.
    pub(crate) fn reuse(&mut self, is_held: impl Fn(GroupId) -> bool) {
        let Groups { removed, store, .. } = self;
        removed.retain(|id| {
            let held = is_held(GroupId(*id));
            if !held {
                store.free(*id);
            }
            held
        });
    }

    /// The number of removed groups whose numbers are not free.
    pub(crate) fn removed(&self) -> usize {
        self.removed.len()
    }
}

/// Keeps `most` hops, spread over the interfaces: the first hop of each interface, then the second of each, and so on.
/// The hops stay in their order.
fn spread(hops: &mut Vec<FibHop>, most: usize) {
    let mut of_interface: Map<IfIndex, usize> = Map::default();
    let mut turns: Vec<(usize, usize)> = Vec::with_capacity(hops.len());
    for (at, hop) in hops.iter().enumerate() {
        let turn = of_interface.entry(hop.interface).or_insert(0);
        turns.push((*turn, at));
        *turn += 1;
    }
    turns.sort_unstable();
    let mut kept: Vec<usize> = turns[..most].iter().map(|(_, at)| *at).collect();
    kept.sort_unstable();
    *hops = kept.into_iter().map(|at| hops[at]).collect();
}

/// Flattens hops whose targets resolved to `outcomes` into a FIB group: each outgoing hop once, or
/// `None` without any. The outcome's weight counts, else the weight of the received hop; of equal
/// outgoing hops the first counts. A blackhole counts only when there is no outgoing hop.
fn flatten<'a>(
    outcomes: impl Iterator<Item = (&'a ReceivedHop, &'a Outcome)>,
    max_ecmp: u16,
) -> Option<FibGroup> {
    let mut all: Vec<FibHop> = Vec::new();
    let mut blackhole = false;
    for (hop, outcome) in outcomes {
        match outcome {
            Outcome::Hops(hops) => all.extend(hops.iter().map(|h| match h.weight {
                OWN_WEIGHT => FibHop { weight: hop.weight, ..*h },
                _ => *h,
            })),
            Outcome::Blackhole => blackhole = true,
            Outcome::Unresolved(_) => {}
        }
    }
    let key = |h: &FibHop| (h.gateway, h.interface);
    all.sort_by_key(key);
    all.dedup_by_key(|h| key(h));
    if all.len() > usize::from(max_ecmp) {
        spread(&mut all, usize::from(max_ecmp));
    }
    match (all.is_empty(), blackhole) {
        (false, _) => Some(FibGroup::Hops(all)),
        (true, true) => Some(FibGroup::Blackhole),
        (true, false) => None,
    }
}
