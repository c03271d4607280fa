//! Scans of all tables, some thousand slots a step: purges of ended sessions, dumps, reselection, ends of route refreshes.

use super::effects::{Marked, Others, index};
use super::ranked::RankedPart;
use super::route::{self, Route};
use super::watches::Sight;
use super::{Core, Shard, ShardOut};
use crate::message::{BestBatch, Change, DumpRequest, NONE};
use ribtide_prefix::{
    AfiSafi, BgpFamilies, BgpFamily, LOGICAL_SHARDS, Prefix, any_bgp_family, for_each_bgp_family,
    logical_shard, per_bgp_family,
};
use smallvec::SmallVec;
use std::collections::VecDeque;

/// Slots of one step: about a millisecond of work.
const STEP: usize = 2048;

/// The scans under way. They take turns, so none waits for the end of another.
#[derive(Default)]
pub(super) struct Work {
    tasks: VecDeque<Task>,
    /// Prefixes to reselect, because the state of an unknown next hop arrived.
    resolved: BgpFamilies<Prefixes>,
}

per_bgp_family! {
    /// Prefixes of a family, some of them twice.
    struct Prefixes<F> = Vec<Prefix<F>>;
}

/// Prefixes of a family that wait for the state of a next hop. Beyond the bound, every route is
/// reselected instead.
const UNANSWERED_MAX: usize = if cfg!(test) { 4 } else { 1 << 18 };

/// Prefixes with a path whose next hop was unknown at their last selection.
#[derive(Default)]
pub(super) struct Unanswered {
    prefixes: BgpFamilies<Prefixes>,
    /// More than [`UNANSWERED_MAX`] prefixes waited, so every route is reselected.
    all: bool,
}

impl Unanswered {
    pub(super) fn push<F: BgpFamily>(&mut self, prefix: Prefix<F>) {
        let prefixes = self.prefixes.get_mut::<F>();
        if prefixes.len() < UNANSWERED_MAX {
            prefixes.push(prefix);
        } else if !self.all {
            (self.prefixes, self.all) = (BgpFamilies::default(), true);
        }
    }
}

struct Task {
    kind: Kind,
    /// The next slot.
    at: Place,
    /// Tables left, this one included.
    left: u32,
}

#[derive(Clone, PartialEq, Eq)]
enum Kind {
    /// Remove the paths of ended sessions.
    Purge,
    /// Send the advertised paths to a worker.
    Dump(DumpRequest),
    /// Reselect every route: next hops changed.
    Redecide,
    /// Reselect every route: the options of the decision process changed.
    Reoption,
    /// Advertise every route that waits for a dataplane: suppression is off.
    Open,
    /// Look at every route for a new set of watches.
    Watch,
    /// Remove the paths that a peer's route refresh has left out.
    Unrefreshed,
    /// Mark retained paths that are long-lived stale now.
    LongLived,
    /// Feed every route to a RIB manager that has begun.
    Feed,
    /// Forget what each path forwards: there is no RIB manager.
    Unfeed,
}

/// A place in the tables: family, logical shard and hash, in a circle.
#[derive(Clone, Copy)]
struct Place {
    family: AfiSafi,
    shard: u8,
    hash: u32,
}

impl Place {
    const START: Place = Place { family: AfiSafi::Ipv4Unicast, shard: 0, hash: 0 };
    /// Tables of all families.
    const ALL: u32 = (AfiSafi::COUNT * LOGICAL_SHARDS as usize) as u32;

    /// Whether some of the part of a logical shard that ends at `end` is not before this place.
    fn is_before(self, logical: u8, end: Option<u32>) -> bool {
        self.shard < logical || (self.shard == logical && end.is_none_or(|end| self.hash < end))
    }

    fn next_table(&mut self) {
        self.hash = 0;
        self.shard = (self.shard + 1) % LOGICAL_SHARDS;
        if self.shard == 0 {
            self.family = self.family.next().unwrap_or(Place::START.family);
        }
    }
}

impl Work {
    /// Starts a scan that removes the paths of ended sessions.
    pub(super) fn purge(&mut self) {
        self.go_round(Kind::Purge);
    }

    pub(super) fn redecide(&mut self) {
        self.go_round(Kind::Redecide);
    }

    /// Starts a scan that marks retained paths as long-lived stale.
    pub(super) fn mark_long_lived(&mut self) {
        self.go_round(Kind::LongLived);
    }

    /// Starts a scan that removes the paths that a peer's route refresh has left out.
    pub(super) fn remove_unrefreshed(&mut self) {
        self.go_round(Kind::Unrefreshed);
    }

    /// Starts a scan that selects every route by other options.
    pub(super) fn reoption(&mut self) {
        self.go_round(Kind::Reoption);
    }

    /// States of unknown next hops arrived: reselects the prefixes that waited for them.
    pub(super) fn resolved(&mut self, unanswered: &mut Unanswered) {
        let Unanswered { mut prefixes, all } = std::mem::take(unanswered);
        if all {
            self.redecide();
        }
        for_each_bgp_family!(F => self.resolved.get_mut::<F>().append(prefixes.get_mut::<F>()));
    }

    /// Whether prefixes wait for reselection because a state arrived.
    pub(super) fn has_resolved(&self) -> bool {
        any_bgp_family!(F => !self.resolved.get::<F>().is_empty())
    }

    /// Starts a scan that opens every gate.
    pub(super) fn open(&mut self) {
        self.go_round(Kind::Open);
    }

    /// Starts a scan that feeds every route, and ends one that forgets feeds.
    pub(super) fn feed(&mut self) {
        self.tasks.retain(|task| task.kind != Kind::Unfeed);
        self.go_round(Kind::Feed);
    }

    /// Ends a scan that feeds every route. `several`: starts one that forgets which paths forward.
    pub(super) fn unfeed(&mut self, several: bool) {
        self.tasks.retain(|task| task.kind != Kind::Feed);
        if several {
            self.go_round(Kind::Unfeed);
        }
    }

    /// Whether routes are left to feed to a RIB manager that has begun.
    pub(super) fn is_feeding(&self) -> bool {
        self.tasks.iter().any(|task| task.kind == Kind::Feed)
    }

    /// Starts a scan for a new set of watches.
    pub(super) fn watch(&mut self) {
        self.go_round(Kind::Watch);
    }

    /// Whether gates of an earlier suppression period may be closed.
    pub(super) fn is_opening(&self) -> bool {
        self.tasks.iter().any(|task| task.kind == Kind::Open)
    }

    pub(super) fn dump(&mut self, request: DumpRequest) {
        let at = Place { family: request.family, ..Place::START };
        self.tasks.push_back(Task { kind: Kind::Dump(request), at, left: u32::from(LOGICAL_SHARDS) });
    }

    /// Scans all tables once. A scan under way continues until it has been round once more.
    fn go_round(&mut self, kind: Kind) {
        match self.tasks.iter_mut().find(|task| task.kind == kind) {
            Some(task) => task.left = Place::ALL + u32::from(task.at.hash > 0),
            None => self.tasks.push_back(Task { kind, at: Place::START, left: Place::ALL }),
        }
    }
}

impl Shard {
    /// Whether [`Shard::step`] has something to do.
    pub fn work_left(&self) -> bool {
        !self.work.tasks.is_empty()
            || self.work.has_resolved()
            || self.core.gates.any_confirmed()
            || self.core.ranked.has_dropped()
    }

    /// Does a bounded piece of the work under way. The caller repeats it between messages.
    pub fn step(&mut self, out: &mut ShardOut) {
        self.advertise_confirmed(out);
        self.redecide_resolved(out);
        self.core.settle(out);
        if self.core.ranked.has_dropped() {
            self.release_dropped(out);
        }
        // A dump adds the lists that no worker knows; see `Core::dump_list`.
        self.send_ranked(out);
        if let Some(task) = self.work.tasks.pop_front() {
            self.go_on(task, out);
        }
        self.core.clear_out(out);
    }

    /// Reselects some of the prefixes whose next hop has a state now.
    fn redecide_resolved(&mut self, out: &mut ShardOut) {
        let Shard { tables, core, work, .. } = self;
        for_each_bgp_family!(F => {
            let resolved = work.resolved.get_mut::<F>();
            let some = resolved.split_off(resolved.len().saturating_sub(STEP / 2));
            for prefix in some {
                let table = &mut tables.get_mut::<F>()[usize::from(logical_shard(prefix))];
                let Some(at) = table.find(route::hash(prefix, &core.seed), |route| route.is(prefix)) else { continue };
                core.redecide(table.get_mut(at), out);
            }
            if resolved.is_empty() {
                *resolved = Vec::new();
            }
        });
    }

    /// One step of a scan.
    fn go_on(&mut self, mut task: Task, out: &mut ShardOut) {
        let mut part = Part::default();
        let mut budget = STEP;
        while task.left > 0 && budget > 0 {
            for_each_bgp_family!(F => if F::ID == task.at.family {
                let Place { shard, hash, .. } = task.at;
                match self.walk::<F>(&task.kind, shard, hash, &mut budget, &mut part, out) {
                    Some(hash) => task.at.hash = hash,
                    None => {
                        task.at.next_table();
                        task.left -= 1;
                    }
                }
                continue;
            });
        }
        self.core.settle(out);
        let done = task.left == 0 || (task.kind == Kind::Purge && !self.core.sessions.any_ending());
        part.send(&task.kind, done, out);
        if done && task.kind == Kind::Watch {
            self.core.watched_all();
        }
        if !done {
            self.work.tasks.push_back(task);
        } else if task.kind == Kind::Unrefreshed {
            self.core.refreshes.scanned();
        } else if task.kind == Kind::Reoption {
            self.core.several = self.core.options.forwards_by_several();
            self.core.shares_changed = false;
        }
    }

    /// Applies all scans to a part of a logical shard: entries with hashes from `from` to before
    /// `end`. The cost is that of the part, whatever the scans still have to do elsewhere.
    pub(super) fn work_on<F: BgpFamily>(
        &mut self,
        logical: u8,
        from: u32,
        end: Option<u32>,
        out: &mut ShardOut,
    ) {
        // All prefixes of the part are reselected, because a search in a long list would cost more.
        let answering = self.work.has_resolved().then_some(Kind::Redecide);
        let tasks = self.work.tasks.iter().filter(|task| match &task.kind {
            Kind::Dump(request) => F::ID == request.family && task.at.is_before(logical, end),
            Kind::Purge
            | Kind::Redecide
            | Kind::Reoption
            | Kind::Open
            | Kind::Watch
            | Kind::Unrefreshed
            | Kind::LongLived
            | Kind::Feed
            | Kind::Unfeed => true,
        });
        let mut kinds: SmallVec<[Kind; 4]> = tasks.map(|task| task.kind.clone()).chain(answering).collect();
        // A dump shows the effects of the others, and adds the lists that no worker knows; see `Core::dump_list`.
        kinds.sort_by_key(|kind| matches!(kind, Kind::Dump(_)));
        for kind in &kinds {
            self.send_ranked(out);
            let Shard { tables, core, .. } = self;
            let table = &mut tables.get_mut::<F>()[usize::from(logical)];
            let mut part = Part::default();
            table.visit(from, end, |route| core.apply(kind, route, &mut part, out));
            part.send(kind, false, out);
        }
        self.core.settle(out);
        self.send_ranked(out);
    }

    /// Scans a part of a table. Returns the hash to continue from, or `None` at the end.
    fn walk<F: BgpFamily>(
        &mut self,
        kind: &Kind,
        logical: u8,
        from: u32,
        budget: &mut usize,
        part: &mut Part,
        out: &mut ShardOut,
    ) -> Option<u32> {
        let table = &mut self.tables.get_mut::<F>()[usize::from(logical)];
        let prefetch: fn(&Core, &[Route<F>]) = match kind {
            Kind::Purge => Core::prefetch_purge,
            _ => Core::prefetch_best,
        };
        table.walk(from, budget, &mut self.core, prefetch, |core, route| core.apply(kind, route, part, out))
    }
}

impl Core {
    /// Applies a scan to one route. Returns whether the route stays.
    fn apply<F: BgpFamily>(
        &mut self,
        kind: &Kind,
        route: &mut Route<F>,
        part: &mut Part,
        out: &mut ShardOut,
    ) -> bool {
        match kind {
            Kind::Purge => return self.purge(route, out),
            Kind::Unrefreshed => return self.remove_unrefreshed(route, out),
            Kind::LongLived => return self.mark_long_lived(route, out),
            Kind::Redecide => self.redecide(route, out),
            Kind::Reoption => {
                // Without multipath nothing sets parts, so none may be left.
                route.clear_single_part();
                self.redecide(route, out);
            }
            Kind::Open => self.open_gate(route, out),
            Kind::Watch => self.watch_again(route, out),
            Kind::Feed => self.feed_first(route, out),
            Kind::Unfeed => self.clear_parts(route),
            Kind::Dump(request) if request.ranked => {
                if request.scope.has(route.prefix()) {
                    self.dump_list(route, &mut part.ranked);
                }
            }
            Kind::Dump(request) => {
                if request.scope.has(route.prefix())
                    && let Some(advertised) = self.advertised(route)
                    && let sight = self.sight(route.prefix())
                    && sight != Sight::Hidden
                {
                    let new = part.path(self, advertised.attrs, advertised.session, sight == Sight::Marked);
                    part.batch.changes.get_mut::<F>().push(Change { prefix: route.prefix(), old: NONE, new });
                }
            }
        }
        true
    }

    /// Whether a route has a path whose next hop has no state yet.
    pub(super) fn has_unknown<F: BgpFamily>(&self, route: &Route<F>) -> bool {
        !self.attrs.hops.all_reachable() && route.paths(&self.paths).iter().any(|path| self.is_unknown(*path))
    }
}

/// A part of a dump.
#[derive(Default)]
struct Part {
    batch: BestBatch,
    others: Others,
    ranked: RankedPart,
}

impl Part {
    fn path(&mut self, core: &mut Core, attrs: u32, session: u16, suppressed: bool) -> u32 {
        let source = core.sessions.get(session).info.id;
        let (attrs, noted) = core.attrs.in_batch(attrs);
        index(&mut self.others, &mut self.batch.paths, attrs, Marked { source, suppressed }, noted)
    }

    fn send(self, kind: &Kind, last: bool, out: &mut ShardOut) {
        let Kind::Dump(request) = kind else { return };
        if request.ranked && (last || !self.ranked.batch.paths.is_empty()) {
            out.ranked_dump(request.worker, request.token, self.ranked.batch, last);
        } else if !request.ranked && (last || !self.batch.paths.is_empty()) {
            out.dump(request.worker, request.token, self.batch, last);
        }
    }
}
