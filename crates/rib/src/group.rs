//! Next-hop groups: what protocols gave, held once however many routes have it, and what it resolves to.
//!
//! A FIB group belongs to exactly one received group and shares its number. Two received groups that happen to
//! resolve alike do not share a FIB group: the day they part, every route of one would have to be rewritten,
//! and a change of next hop must never cost the routes.

use crate::fib_policy::FibPolicyResult;
use crate::message::{FibGroup, FibHop, GroupId, GroupOp, IfIndex, NextHops, ReceivedHop, RouteSet, Track};
use crate::store::Store;
use crate::target::{Assumed, OWN_WEIGHT, Outcome, Target};
use ribtide_prefix::{AnyPrefix, HashBuilder, Map};
use std::hash::BuildHasher;

/// What identifies a received group: two routes with equal keys resolve alike.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct GroupKey {
    /// Sorted, without repetitions, weights at least 1.
    pub(crate) next_hops: NextHops,
    /// In the same form: what stands in while those are unresolved.
    pub(crate) backup: Vec<ReceivedHop>,
    /// `recursion` for those; false when there are none.
    pub(crate) backup_recursion: bool,
    /// What must hold.
    pub(crate) track: Option<Track>,
    pub(crate) recursion: bool,
    /// The prefix of the route, when it has a gateway inside and must not answer for itself.
    pub(crate) exclude: Option<AnyPrefix>,
    /// What its targets take for given. Such a group has no routes; targets that look into it keep it.
    pub(crate) assumed: Option<Assumed>,
    /// What route-maps make of its routes.
    pub(crate) policy_result: FibPolicyResult,
}

/// Hops in the order of a key.
fn sorted(mut hops: Vec<ReceivedHop>) -> Vec<ReceivedHop> {
    for hop in &mut hops {
        hop.weight = hop.weight.max(1);
    }
    let what = |h: &ReceivedHop| (h.gateway, h.interface, h.onlink);
    // The weight of a repetition is lost, the first one's stays; stable, so "first" is as received.
    hops.sort_by_key(what);
    hops.dedup_by_key(|h| what(h));
    hops
}

impl GroupKey {
    /// The key of what a protocol gave.
    pub(crate) fn new(set: &RouteSet) -> GroupKey {
        GroupKey {
            backup: sorted(set.backup.clone()),
            backup_recursion: set.backup_recursion && !set.backup.is_empty(),
            track: set.track,
            ..GroupKey::plain(set.next_hops.clone(), set.allow_recursion)
        }
    }

    /// The key of next hops alone.
    pub(crate) fn plain(next_hops: NextHops, recursion: bool) -> GroupKey {
        let next_hops = match next_hops {
            NextHops::Via(hops) => NextHops::Via(sorted(hops)),
            NextHops::Blackhole => NextHops::Blackhole,
        };
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

    /// Whether the two differ in what route-maps make of their routes alone, if they do.
    pub(crate) fn is_but_for_treatment(&self, other: &GroupKey) -> bool {
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

    /// What it asks the table: for each next hop, for each that stands in, and for what it tracks.
    pub(crate) fn targets(&self) -> impl Iterator<Item = Target> {
        let first = self.hops().iter().map(|hop| Target::new(hop, self.recursion, self.exclude));
        let backup = self.backup.iter().map(|hop| Target::new(hop, self.backup_recursion, self.exclude));
        let track = self.track.map(|track| Target::tracking(track, self.exclude));
        first.chain(backup).chain(track).map(|target| target.assuming(self.assumed))
    }

    pub(crate) fn hops(&self) -> &[ReceivedHop] {
        match &self.next_hops {
            NextHops::Via(hops) => hops,
            NextHops::Blackhole => &[],
        }
    }

    /// What it resolves to when its targets have these `outcomes`, in order; `None` when no target is resolved.
    pub(crate) fn content<'a>(
        &'a self,
        mut outcomes: impl Iterator<Item = &'a Outcome>,
        max_ecmp: u16,
    ) -> Option<FibGroup> {
        let first = match &self.next_hops {
            NextHops::Blackhole => Some(FibGroup::Blackhole),
            NextHops::Via(hops) => flatten(hops.iter().zip(outcomes.by_ref()), max_ecmp),
        };
        let backup = flatten(self.backup.iter().zip(outcomes.by_ref()), max_ecmp);
        let holds = outcomes.next().is_none_or(Outcome::is_resolved);
        first.or(backup).filter(|_| holds)
    }
}

/// A received group and the FIB group made of it.
#[derive(Debug)]
pub(crate) struct Group {
    pub(crate) key: GroupKey,
    /// What it asks, in the order of [`GroupKey::targets`].
    pub(crate) targets: Vec<u32>,
    /// Candidates in the tables that have it; where something is assumed, targets that look into it.
    pub(crate) routes: u32,
    /// Routes in the FIB that have it.
    pub(crate) installed: u32,
    /// What it resolves to, if it does.
    pub(crate) content: Option<FibGroup>,
    /// The highest level of its targets that count; 0 when none is resolved.
    pub(crate) level: u8,
    /// Targets whose answers come from this group itself, and so do not count in it; see [`crate::circle`].
    pub(crate) dropped: Vec<u32>,
    /// What `dropped` becomes when it is settled.
    pub(crate) dropping: Vec<u32>,
    /// The generation in which a route last had it resolved; see [`crate::cache`].
    pub(crate) stamp: u64,
    /// Whether dataplanes have it.
    pub(crate) in_fib: bool,
    /// The number of the batch that last gave it to them.
    pub(crate) made: u64,
    /// Dataplanes were sent that it is unresolved, and nothing else since in a batch.
    pub(crate) sent_unresolved: bool,
    /// Made in this batch: its routes are all marked for selection already.
    pub(crate) fresh: bool,
    /// Something it depends on may have changed in this batch.
    pub(crate) stale: bool,
    /// Something it depends on did change in this batch.
    pub(crate) moved: bool,
    /// Its content changed in this batch.
    pub(crate) changed: bool,
    /// It went from resolved to unresolved or back in this batch.
    pub(crate) turned: bool,
    /// It is listed for [`crate::resolve::Resolver::finish`].
    pub(crate) touched: bool,
}

impl Group {
    /// Whether candidates in the tables have it.
    pub(crate) fn has_routes(&self) -> bool {
        self.routes > 0 && self.key.assumed.is_none()
    }

    /// What dataplanes are to have of it.
    pub(crate) fn in_dataplanes(&self) -> FibGroup {
        self.content.clone().unwrap_or(FibGroup::Unresolved)
    }

    /// As an operation that gives them that.
    pub(crate) fn op(&self, id: GroupId) -> GroupOp {
        GroupOp { id, content: self.in_dataplanes(), source: self.key.policy_result.source }
    }
}

/// Groups by number and by content.
#[derive(Default)]
pub(crate) struct Groups {
    pub(crate) store: Store<Group>,
    by_key: hashbrown::HashTable<u32>,
    /// Numbers of removed ones that are not to be used again yet.
    removed: Vec<u32>,
    hasher: HashBuilder,
}

impl Groups {
    /// None yet, of numbers above `base`.
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

    /// Removes a group. Its number is used again when [`Groups::reuse`] says so.
    pub(crate) fn remove(&mut self, id: u32) -> Group {
        let hash = self.hasher.hash_one(&self.store[id].key);
        if let Ok(entry) = self.by_key.find_entry(hash, |other| *other == id) {
            entry.remove();
        }
        self.removed.push(id);
        self.store.take(id)
    }

    /// The numbers of removed groups may be used again, but for those that some dataplane still holds.
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

    /// How many numbers of removed groups wait for that.
    pub(crate) fn removed(&self) -> usize {
        self.removed.len()
    }
}

/// Keeps `most` ways, spread over the interfaces: the first way of each interface, then the second of each, and so on.
/// The ways stay in their order.
fn spread(ways: &mut Vec<FibHop>, most: usize) {
    let mut of_interface: Map<IfIndex, usize> = Map::default();
    let mut turns: Vec<(usize, usize)> = Vec::with_capacity(ways.len());
    for (at, way) in ways.iter().enumerate() {
        let turn = of_interface.entry(way.interface).or_insert(0);
        turns.push((*turn, at));
        *turn += 1;
    }
    turns.sort_unstable();
    let mut kept: Vec<usize> = turns[..most].iter().map(|(_, at)| *at).collect();
    kept.sort_unstable();
    *ways = kept.into_iter().map(|at| ways[at]).collect();
}

/// The FIB group of hops whose targets resolved to `outcomes`: every way out once, with the weight of the hop
/// that led there unless the outcome has one; `None` when there is none. A way out that two hops lead to has the first
/// one's weight. Blackholes count only when there is nothing else.
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
    let way = |h: &FibHop| (h.gateway, h.interface);
    all.sort_by_key(way);
    all.dedup_by_key(|h| way(h));
    if all.len() > usize::from(max_ecmp) {
        spread(&mut all, usize::from(max_ecmp));
    }
    match (all.is_empty(), blackhole) {
        (false, _) => Some(FibGroup::Hops(all)),
        (true, true) => Some(FibGroup::Blackhole),
        (true, false) => None,
    }
}
