//! A shard: all paths of the prefixes that it owns, of both families, and the best ones.
//!
//! A shard handles messages, returns effects, and never waits. Long work (purging a peer, a dump,
//! reselection of all routes) runs in steps of some thousand prefixes. The thread of the shard
//! calls [`Shard::step`] between messages while [`Shard::work_left`] is true.
//!
//! The cost of a path is that of its memory accesses, so there are few. A route stands in the slot
//! of its table, its paths in one block, and a 16-bit hint decides most comparisons without
//! attributes. Accesses for the prefixes of one batch overlap.

mod age;
mod aigp;
mod attrs;
mod cut;
mod effects;
mod feed;
mod filter;
mod gate;
mod long_lived;
mod monitor;
mod moves;
mod next_hops;
mod paths;
mod prefetching;
mod query;
mod ranked;
mod refresh;
mod rib_change;
mod route;
mod scans;
mod sessions;
mod table;
#[cfg(test)]
mod tests;
mod watches;
mod what_if;

pub use cut::{Cut, HashSeed, Split};
pub use effects::{Effects, Removed, ShardOut, ToEgress};
pub use filter::{PathFilter, PathState};
pub use monitor::{MonitorPage, PageViews, PrefixPaths, StoredPath, withdrawals};
pub use moves::Moved;
pub use paths::Part;
pub use query::{AdvertisedView, Counts, FamilyCounts, FedView, PathView, PeerCounts, RouteView, Standing};
pub use what_if::{PathOverride, WhatIf};

use crate::attr::AttrSet;
use crate::decision::{self, Candidate, DecisionOptions, Effect, Rank, Reason};
use crate::message::{NONE, NextHopState, RouteOp, ShardIn, TrackedNextHop, UpdateBatch};
use crate::peer::{FamilySet, PeerId, PeerInfo};
use attrs::AttrTable;
use effects::{Audience, Marked};
use feed::Fed;
use gate::Gates;
use next_hops::News;
use paths::{Path, PathStore};
use refresh::Refreshes;
use ribtide_prefix::{
    AnyPrefix, BgpFamilies, BgpFamily, LOGICAL_SHARDS, PerBgpFamily, Prefix, for_each_bgp_family,
    logical_shard, per_bgp_family, sum_bgp_families,
};
use route::Route;
use sessions::Sessions;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;
use table::{Seed, Table};
use watches::Watches;

/// Prefixes that are prefetched together.
const GROUP: usize = 32;

/// The prefixes that one shard owns.
pub struct Shard {
    tables: BgpFamilies<Tables>,
    core: Core,
    work: scans::Work,
    /// The number of the attribute set of each operation of the current batch.
    numbers: Vec<u32>,
}

per_bgp_family! {
    /// A table of prefixes for each logical shard; empty for those of other shards.
    struct Tables<F> = Vec<Table<Route<F>>>;
}

/// Everything except the tables: sessions, attribute sets, paths and options.
struct Core {
    options: DecisionOptions,
    /// Whether forwarding uses, or last used, more paths of a prefix than the best one. It stays until every route has
    /// been selected again after a change of the options.
    several: bool,
    /// Shares of traffic are computed otherwise than they were, until every route has been selected again.
    shares_changed: bool,
    sessions: Sessions,
    attrs: AttrTable,
    paths: PathStore,
    gates: Gates,
    /// Route watches, if there are any.
    watches: Option<Box<Watches>>,
    ranked: ranked::RankedLists,
    refreshes: Refreshes,
    /// The last feed of the current route, with multipath or backup paths.
    fed: Fed,
    /// Prefixes with a path whose next hop was unknown when it arrived.
    unanswered: scans::Unanswered,
    seed: Seed,
    /// Routes that arrived after the end of their session and were dropped.
    late: u64,
    /// Paths that were dropped because their prefix had too many.
    surplus: u64,
    /// Paths that announcements replaced since the last prefetch.
    replaced: u32,
    /// The second of the router's clock.
    now: u32,
}

/// Progress in the prefixes of one family of a batch, and the places of the current group.
#[derive(Default)]
struct Group {
    taken: usize,
    spots: [Spot; GROUP],
}

impl PerBgpFamily for Group {
    type Of<F: BgpFamily> = Group;
}

/// Where a prefix is: its logical shard, its hash, and its last slot.
#[derive(Clone, Copy, Default)]
struct Spot {
    logical: u8,
    hash: u32,
    at: u32,
}

impl Shard {
    /// A shard without routes, in a router that installs nothing. Each next hop is reachable at
    /// cost 0 until [`ShardIn::NextHops`] reports otherwise.
    pub fn new(options: DecisionOptions) -> Shard {
        Shard::make(options, false)
    }

    /// A shard without routes, with a RIB manager. A path is not used before [`ShardIn::NextHops`]
    /// reports its next hop reachable.
    pub fn tracking(options: DecisionOptions) -> Shard {
        Shard::make(options, true)
    }

    fn make(options: DecisionOptions, tracks: bool) -> Shard {
        let seed = Seed::random();
        Shard {
            tables: all_tables(&seed),
            core: Core {
                several: options.forwards_by_several(),
                shares_changed: false,
                options,
                sessions: Sessions::default(),
                attrs: AttrTable::new(seed.clone(), tracks),
                paths: PathStore::stamped(),
                gates: Gates::default(),
                watches: None,
                ranked: ranked::RankedLists::default(),
                refreshes: Refreshes::default(),
                fed: None,
                unanswered: scans::Unanswered::default(),
                seed,
                late: 0,
                surplus: 0,
                replaced: 0,
                now: 0,
            },
            work: scans::Work::default(),
            numbers: Vec::new(),
        }
    }

    /// Sets the hash seed of a shard without routes. Shards that exchange routes need the same
    /// seed.
    pub fn with_seed(self, seed: &HashSeed) -> Shard {
        let HashSeed(seed) = seed;
        let tables = all_tables(seed);
        Shard { tables, core: Core { seed: seed.clone(), ..self.core }, ..self }
    }

    /// Handles a message and appends its effects to `out`.
    pub fn handle(&mut self, message: ShardIn, out: &mut ShardOut) {
        match message {
            ShardIn::Routes(batch) => return self.handle_routes(&batch, out),
            ShardIn::PeerUp(info) => self.peer_up(info, out),
            ShardIn::PeerDown { peer, session, retained } => self.peer_down(peer, session, retained, out),
            ShardIn::LongLived { peer, session, families } => self.long_lived(peer, session, families),
            ShardIn::Sweep { peer, session, families } => self.sweep(peer, session, families, out),
            ShardIn::BeginOfRefresh { peer, session, family } => self.begin_refresh(peer, session, family),
            ShardIn::EndOfRefresh { peer, session, family } => self.end_refresh(peer, session, family),
            ShardIn::Dump(request) => {
                if request.ranked {
                    self.begin_ranked();
                }
                self.work.dump(request);
            }
            ShardIn::NextHops(states) => self.next_hops(&states, out),
            ShardIn::Suppress(on) => self.suppress(on, out),
            ShardIn::Confirmed(news) => self.confirmed(&news, out),
            ShardIn::Watch(set) => self.watch(set),
        }
        // The change may have removed the last advertised path of an ended session.
        self.core.settle(out);
        self.core.clear_out(out);
    }

    /// As [`Shard::handle`] of [`ShardIn::Routes`], for a caller that needs the batch afterwards.
    pub fn handle_routes(&mut self, batch: &UpdateBatch, out: &mut ShardOut) {
        self.routes(batch, out);
        self.core.settle(out);
        self.core.clear_out(out);
    }

    /// Selects by other options from now on, and every route again in steps.
    pub fn set_options(&mut self, options: DecisionOptions) {
        let core = &mut self.core;
        if core.options == options {
            return;
        }
        core.several |= options.forwards_by_several();
        core.shares_changed |= core.options.link_bandwidth != options.link_bandwidth;
        core.options = options;
        self.work.reoption();
    }

    /// Shrinks every table to its contents. O(capacity): call it only when the stage is idle.
    pub fn shrink_to_fit(&mut self) {
        for_each_bgp_family!(F => self.tables.get_mut::<F>().iter_mut().for_each(Table::shrink_to_fit));
        self.core.attrs.shrink_to_fit();
        if let Some(watches) = &mut self.core.watches {
            watches.shrink_to_fit();
        }
        self.core.ranked.shrink_to_fit();
        self.numbers = Vec::new();
    }

    fn peer_up(&mut self, info: Arc<PeerInfo>, out: &mut ShardOut) {
        if let Some(former) = self.core.sessions.latest(info.id) {
            if former == info.session {
                // An adopted logical shard brought the session earlier.
                return;
            }
            self.peer_down(info.id, former, FamilySet::NONE, out);
        }
        if let Some(number) = self.core.sessions.begin(info) {
            self.core.refreshes.forget(number);
        }
    }

    fn peer_down(&mut self, id: PeerId, session: u32, retained: FamilySet, out: &mut ShardOut) {
        let Some(number) = self.core.sessions.number(id, session) else { return };
        self.core.refreshes.session_ended(number);
        self.core.sessions.end(number, retained);
        self.purge_ended(out);
    }

    fn sweep(&mut self, id: PeerId, session: u32, families: FamilySet, out: &mut ShardOut) {
        let Some(number) = self.core.sessions.retained(id, session) else { return };
        self.core.sessions.sweep(number, families);
        self.purge_ended(out);
    }

    /// Starts a purge where ended sessions have paths, and reports the others as purged.
    fn purge_ended(&mut self, out: &mut ShardOut) {
        self.core.settle(out);
        if self.core.sessions.any_ending() {
            self.work.purge();
        }
    }

    fn routes(&mut self, batch: &UpdateBatch, out: &mut ShardOut) {
        match self.core.sessions.number(batch.peer, batch.session) {
            Some(session) => self.routes_of(session, batch, out),
            None => self.core.late += sum_bgp_families!(F => batch.prefixes.get::<F>().len() as u64),
        }
    }

    /// Routes of a session with this number.
    fn routes_of(&mut self, session: u16, batch: &UpdateBatch, out: &mut ShardOut) {
        let UpdateBatch { ops, prefixes, .. } = batch;
        let Shard { tables, core, numbers, .. } = self;
        numbers.clear();
        numbers.extend(
            ops.iter()
                .map(|op| op.attrs.as_ref().map_or(NONE, |attrs| core.acquire(attrs, op.path_id, session))),
        );
        let mut groups: BgpFamilies<Group> = BgpFamilies::default();
        for (op, number) in ops.iter().zip(numbers) {
            for_each_bgp_family!(F => if F::ID == op.family {
                let (tables, group, prefixes) = (tables.get_mut::<F>(), groups.get_mut::<F>(), prefixes.get::<F>());
                let end = prefixes.len().min(group.taken + op.count as usize);
                let hint = |attrs: &AttrSet| match core.sessions.is_originated(session) {
                    true => decision::ORIGINATED_HINT,
                    false if attrs.llgr_stale() && core.sessions.get(session).is_least_preferred(attrs) => {
                        decision::LONG_LIVED_STALE_HINT
                    }
                    false => decision::hint(attrs),
                };
                let path = |attrs| Path::new(*number, session, hint(attrs));
                let path = op.attrs.as_ref().map(path);
                let recursive = core.is_recursive(session);
                let (former, path_id) =
                    (core.sessions.former::<F>(session), core.sessions.path_id::<F>(session, op.path_id));
                let source = PathSource { session, former, path_id };
                path.inspect(|path| core.attrs.expect::<F>(path.attrs, recursive));
                let unknown = path.is_some_and(|path| core.is_unknown(path));
                let may_be_inside = recursive && core.attrs.hops.separates();
                let (mut paths, start) = (0, group.taken);
                while group.taken < end {
                    let at = group.taken % GROUP;
                    if at == 0 {
                        // A session that replaces paths is likely to go on with it.
                        let replaces = std::mem::take(&mut core.replaced) > 0;
                        let leaving = (replaces || path.is_none()).then_some(session);
                        let arrive = path.is_some();
                        core.prefetch(tables, &prefixes[group.taken..], leaving, arrive, &mut group.spots);
                    }
                    let (prefix, spot) = (prefixes[group.taken], group.spots[at]);
                    group.taken += 1;
                    let table = &mut tables[usize::from(spot.logical)];
                    match path {
                        Some(path) => {
                            let own = may_be_inside && core.attrs.is_inside(path.attrs, prefix);
                            let path = if own { core.own_path(prefix, path) } else { path };
                            let kept = core.announce(table, spot, prefix, source, path, out);
                            if own {
                                core.announced_own::<F>(path, kept);
                                continue;
                            }
                            paths += u32::from(kept);
                            if unknown {
                                core.unanswered.push(prefix);
                            }
                        }
                        None => core.withdraw(table, spot, prefix, source, out),
                    }
                }
                if let Some(path) = path {
                    core.attrs.announced::<F>(path.attrs, recursive, paths);
                }
                if !core.refreshes.is_empty() {
                    core.refreshes.note::<F>(session, op.path_id, &prefixes[start..end], path.is_some());
                }
            });
        }
    }

    fn next_hops(&mut self, states: &[(TrackedNextHop, NextHopState)], out: &mut ShardOut) {
        for (next_hop, state) in states {
            if let (NextHopState::PerPrefix, Some(prefix)) = (*state, next_hop.exclude) {
                match prefix {
                    AnyPrefix::V4(prefix) => self.set_apart(prefix, next_hop.address, out),
                    AnyPrefix::V6(prefix) => self.set_apart(prefix, next_hop.address, out),
                }
                continue;
            }
            let news = self.core.attrs.hops.report(*next_hop, *state);
            self.heard(news);
        }
    }

    /// The state of a next hop depends on the route of `prefix`: paths of that prefix are announced
    /// again with a next hop of their own.
    #[cold]
    fn set_apart<F: BgpFamily>(&mut self, prefix: Prefix<F>, address: IpAddr, out: &mut ShardOut) {
        let Shard { tables, core, .. } = self;
        core.attrs.hops.set_apart(address, prefix.any());
        let table = &tables.get::<F>()[usize::from(logical_shard(prefix))];
        let hash = route::hash(prefix, &core.seed);
        let Some(at) = table.find(hash, |route| route.is(prefix)) else { return };
        let concerned = |path: &&Path| {
            core.sessions.get(path.session).up
                && core.is_recursive(path.session)
                && core.attrs.exclude(path.attrs).is_none()
                && core.attrs.next_hop(path.attrs) == address
        };
        let again = |path: &Path| {
            let (attrs, info) = (core.attrs.get(path.attrs).clone(), &core.sessions.get(path.session).info);
            let path_id = core.attrs.path_id(path.attrs);
            let mut prefixes = BgpFamilies::default();
            *prefixes.get_mut::<F>() = vec![prefix];
            let ops = vec![RouteOp { attrs: Some(attrs), path_id, family: F::ID, count: 1 }];
            UpdateBatch { peer: info.id, session: info.session, ops, prefixes }
        };
        let batches: Vec<(u16, UpdateBatch)> = table
            .get(at)
            .paths(&core.paths)
            .iter()
            .filter(concerned)
            .map(|p| (p.session, again(p)))
            .collect();
        batches.iter().for_each(|(session, batch)| self.routes_of(*session, batch, out));
    }

    /// The state of a next hop changed: schedules reselection.
    fn heard(&mut self, news: News) {
        match news {
            // The waiting prefixes are known, so a new next hop does not scan all tables.
            News::First => self.work.resolved(&mut self.core.unanswered),
            News::Other => self.work.redecide(),
            News::Distance if self.core.attrs.has_aigp() => self.work.redecide(),
            News::Same | News::Distance => {}
        }
    }
}

fn all_tables(seed: &Seed) -> BgpFamilies<Tables> {
    let mut all = BgpFamilies::default();
    for_each_bgp_family!(F => *all.get_mut::<F>() = tables::<F>(seed));
    all
}

fn tables<F: BgpFamily>(seed: &Seed) -> Vec<Table<Route<F>>> {
    (0..LOGICAL_SHARDS).map(|_| Table::new(seed.clone())).collect()
}

/// What tells a path from the others of its prefix.
#[derive(Clone, Copy)]
struct PathSource {
    session: u16,
    /// The latest session before it whose retained paths it replaces, or [`sessions::NONE`].
    former: u16,
    /// Its path identifier, if the session has them in this family.
    path_id: Option<u32>,
}

/// Paths of one session for a prefix, at most. Further ones are dropped.
const SESSION_PATHS_MAX: usize = if cfg!(test) { 8 } else { 4096 };
/// Paths of a prefix, at most: their number has 16 bits. Further ones are dropped.
const PATHS_MAX: usize = u16::MAX as usize;

/// The selected path of a route, which is fed to the RIB manager.
#[derive(Clone, Copy, PartialEq, Debug)]
struct SelectedPath {
    path: Path,
    /// Whether it is usable, and so the best path for workers.
    usable: bool,
}

impl SelectedPath {
    #[inline]
    fn best(self) -> Option<Path> {
        self.usable.then_some(self.path)
    }
}

impl Core {
    /// Reports ended sessions without paths as purged.
    fn settle(&mut self, out: &mut ShardOut) {
        self.sessions.settle(|peer, session| out.purged(peer, session));
    }

    /// Removes unused attribute sets and reports next hops that came into use or went out of it, and
    /// changes of watches.
    fn clear_out(&mut self, out: &mut ShardOut) {
        self.attrs.clear_out();
        out.add_uses(&mut self.attrs.hops);
        if self.watches.is_some() {
            self.report_watches(out);
        }
    }

    fn cost(&self, path: Path) -> Result<u32, Reason> {
        let session = self.sessions.get(path.session);
        if !session.up {
            return Err(Reason::PeerDown);
        }
        if self.attrs.hops.all_at_cost_0() {
            return Ok(0);
        }
        self.attrs.cost(path.attrs, session.feed_kind.recursive)
    }

    /// Whether next hops of a session need not be on link.
    fn is_recursive(&self, session: u16) -> bool {
        self.sessions.get(session).feed_kind.recursive
    }

    /// Whether the RIB manager has not reported the next hop of a path.
    fn is_unknown(&self, path: Path) -> bool {
        !self.attrs.hops.all_reachable() && self.cost(path) == Err(Reason::NextHopUnknown)
    }

    #[inline]
    fn usable(&self, path: Path) -> bool {
        match self.attrs.hops.all_reachable() {
            true => self.sessions.get(path.session).up,
            false => self.cost(path).is_ok(),
        }
    }

    /// Whether this router originates a path.
    #[inline]
    fn is_originated(&self, path: Path) -> bool {
        self.sessions.is_originated(path.session)
    }

    /// Whether the RIB manager gets no route for a path, because this router originates it from a
    /// route that the RIB manager has, or for peers alone.
    #[inline]
    fn is_not_fed(&self, path: Path) -> bool {
        self.is_originated(path) && self.sessions.get(path.session).is_not_fed
    }

    fn rank(&self, path: Path) -> Rank {
        if self.is_originated(path) {
            return Rank::ORIGINATED;
        }
        let attrs = self.attrs.get(path.attrs);
        let rank = Rank::new(attrs, &self.options);
        if attrs.llgr_stale() && self.sessions.get(path.session).is_least_preferred(attrs) {
            return rank.long_lived_stale();
        }
        rank
    }

    fn candidate(&self, path: Path) -> Candidate<'_> {
        Candidate {
            rank: self.rank(path),
            peer: &self.sessions.get(path.session).info,
            cost: self.cost(path),
            path_id: self.attrs.path_id(path.attrs),
        }
    }

    /// Index of the path of this source, or of the retained one that it replaces. A route has at most one of both.
    #[inline]
    fn place_of<F: BgpFamily>(&self, paths: &[Path], source: PathSource) -> Option<usize> {
        if let Some(id) = source.path_id {
            return self.place_of_id::<F>(paths, source, id);
        }
        match paths.iter().position(|path| path.session == source.session) {
            // Few sessions follow one with retained paths, so the others look once.
            None if source.former != sessions::NONE => self.former_place::<F>(paths, source),
            place => place,
        }
    }

    #[cold]
    #[inline(never)]
    fn place_of_id<F: BgpFamily>(&self, paths: &[Path], source: PathSource, id: u32) -> Option<usize> {
        let is = |path: &Path| path.session == source.session && self.attrs.path_id(path.attrs) == id;
        paths.iter().position(is).or_else(|| self.former_place::<F>(paths, source))
    }

    /// Index of the retained path that one of this source replaces. There is at most one of all earlier sessions, because each
    /// session's path replaces that of the sessions before it.
    #[inline]
    fn former_place<F: BgpFamily>(&self, paths: &[Path], source: PathSource) -> Option<usize> {
        let mut former = source.former;
        while former != sessions::NONE {
            let is = |path: &Path| {
                path.session == former && source.path_id.is_none_or(|id| self.attrs.path_id(path.attrs) == id)
            };
            if let Some(place) = paths.iter().position(is) {
                return Some(place);
            }
            former = self.sessions.former::<F>(former);
        }
        None
    }

    /// Whether a route may have no further path of this source.
    #[inline]
    fn is_full(paths: &[Path], source: PathSource) -> bool {
        paths.len() >= PATHS_MAX || (source.path_id.is_some() && Core::has_most(paths, source.session))
    }

    #[cold]
    #[inline(never)]
    fn has_most(paths: &[Path], session: u16) -> bool {
        paths.iter().filter(|path| path.session == session).count() >= SESSION_PATHS_MAX
    }

    fn best_of<F: BgpFamily>(&self, route: &Route<F>) -> Option<Path> {
        route.best().map(|best| route.paths(&self.paths)[best])
    }

    fn selected_of<F: BgpFamily>(&self, route: &Route<F>) -> SelectedPath {
        SelectedPath { path: route.paths(&self.paths)[route.selected()], usable: route.is_usable() }
    }

    /// Selects among all paths of a route.
    fn decide<F: BgpFamily>(&self, route: &mut Route<F>) {
        let paths = route.paths(&self.paths);
        match self.best_among(paths, |_, _| true) {
            Some(best) => route.set_selected(best, true),
            None => route.set_selected(self.best_if_reachable(paths), false),
        }
    }

    /// Index of the selected path among unusable ones: the best of sessions that are up, with all
    /// next hops at equal cost.
    #[cold]
    fn best_if_reachable(&self, paths: &[Path]) -> usize {
        let up = || paths.iter().enumerate().filter(|(_, path)| self.sessions.get(path.session).up);
        let Some(hint) = up().map(|(_, path)| path.worth()).min() else { return 0 };
        let (at, candidates_of): (SmallVec<[usize; 8]>, SmallVec<[Candidate<'_>; 8]>) = up()
            .filter(|(_, path)| path.worth() == hint)
            .map(|(at, path)| (at, Candidate { cost: Ok(0), ..self.candidate(*path) }))
            .unzip();
        decision::best(&candidates_of[..], &self.options).map_or(0, |best| at[best])
    }

    /// The usable paths with their indices.
    fn usable_of<'a>(&'a self, paths: &'a [Path]) -> impl Iterator<Item = (usize, Path)> + Clone + 'a {
        paths.iter().copied().enumerate().filter(|(_, path)| self.usable(*path))
    }

    /// The best of the usable paths that `admits` lets in, by index and path.
    fn best_among(&self, paths: &[Path], admits: impl Fn(usize, Path) -> bool) -> Option<usize> {
        // A path with a higher hint is of a lower class, so it cannot change the result.
        let (mut hint, mut first, mut count) = (u16::MAX, 0, 0);
        for (at, path) in paths.iter().enumerate() {
            let worth = path.worth();
            if worth > hint || !admits(at, *path) || !self.usable(*path) {
                continue;
            }
            if worth < hint {
                (hint, first, count) = (worth, at, 0);
            }
            count += 1;
        }
        if count < 2 {
            return (count == 1).then_some(first);
        }
        let class = || {
            let rest = paths.iter().copied().enumerate().skip(first);
            rest.filter(|(at, path)| path.worth() == hint && admits(*at, *path) && self.usable(*path))
        };
        let candidates: SmallVec<[Candidate<'_>; 8]> =
            class().map(|(_, path)| self.candidate(path)).collect();
        let best = decision::best(&candidates[..], &self.options)?;
        class().nth(best).map(|(at, _)| at)
    }

    /// The effect of a new path on the former best path.
    fn arrival(&self, best: Path, new: Path) -> Effect {
        if new.worth() != best.worth() && self.usable(best) && self.usable(new) {
            return if new.worth() < best.worth() { Effect::Take } else { Effect::Keep };
        }
        decision::arrival(self.candidate(best), self.candidate(new), &self.options)
    }

    /// The effect of the removal of the path at `at`. Moves the index of the best path to its later
    /// place.
    fn before_departure<F: BgpFamily>(&self, route: &mut Route<F>, at: usize) -> Effect {
        let Some(best) = route.best().filter(|best| *best != at) else { return Effect::Rescan };
        let paths = route.paths(&self.paths);
        let (first, gone) = (paths[best], paths[at]);
        let other_class = gone.worth() != first.worth() && self.usable(first);
        let effect = match self.options.deterministic_med && other_class {
            true => Effect::Keep,
            false => decision::departure(self.candidate(first), self.rank(gone), &self.options),
        };
        if at < best {
            route.set_selected(best - 1, true);
        }
        effect
    }

    /// Adds a path or replaces the former path of its source. Returns `false` if an equal path
    /// exists, or too many do. The caller counts references to attributes.
    fn announce<F: BgpFamily>(
        &mut self,
        table: &mut Table<Route<F>>,
        spot: Spot,
        prefix: Prefix<F>,
        source: PathSource,
        path: Path,
        out: &mut ShardOut,
    ) -> bool {
        let Some(at) = table.find_again(spot.at as usize, spot.hash, |route| route.is(prefix)) else {
            let usable = self.usable(path);
            let mut route = Route::new(prefix, path, usable, self.stamp());
            self.changed(&mut route, None, Some(SelectedPath { path, usable }), out);
            table.insert(spot.hash, route);
            self.ranked.note(prefix);
            self.sessions.counts::<F>(path.session).paths += 1;
            return true;
        };
        let route = table.get_mut(at);
        let paths = route.paths(&self.paths);
        let old = SelectedPath { path: paths[route.selected()], usable: route.is_usable() };
        let place = self.place_of::<F>(paths, source);
        if let Some(at) = place {
            if paths[at].attrs == path.attrs
                && (paths[at].session == path.session || self.take_over(route, at, path.session))
            {
                return false;
            }
        } else if Core::is_full(paths, source) {
            self.surplus += 1;
            return false;
        }
        self.note_fed(route, out);
        let now = self.stamp();
        let (mut effect, gone) = match place {
            Some(at) => {
                self.replaced += 1;
                let effect = self.before_departure(route, at);
                let gone = route.replace(&mut self.paths, at, path, now);
                if gone.session != path.session {
                    self.sessions.counts::<F>(gone.session).paths -= 1;
                    self.sessions.counts::<F>(path.session).paths += 1;
                }
                (effect, Some(gone))
            }
            None => {
                self.sessions.counts::<F>(path.session).paths += 1;
                route.push(&mut self.paths, path, now);
                (Effect::Keep, None)
            }
        };
        if effect == Effect::Keep {
            effect = old.best().map_or(Effect::Rescan, |old| self.arrival(old, path));
        }
        match effect {
            Effect::Keep => {}
            Effect::Take => route.set_selected(route.len() - 1, true),
            Effect::Rescan => self.decide(route),
        }
        if effect != Effect::Keep || self.several {
            let new = self.selected_of(route);
            self.changed(route, Some(old), Some(new), out);
        }
        if let Some(gone) = gone {
            self.release::<F>(gone);
        }
        self.ranked.note(prefix);
        true
    }

    /// A peer announces a retained path again, unchanged: the path gets the session number, and nothing else changes, not
    /// its age either. Returns whether that is so; not if the new session has another identifier, which counts in the
    /// decision.
    #[cold]
    fn take_over<F: BgpFamily>(&mut self, route: &mut Route<F>, at: usize, session: u16) -> bool {
        let former = route.paths(&self.paths)[at].session;
        let router_id = |number| self.sessions.get(number).info.router_id;
        if router_id(former) != router_id(session) {
            return false;
        }
        let best = u32::from(route.best() == Some(at));
        let counts = self.sessions.counts::<F>(former);
        (counts.paths, counts.best) = (counts.paths - 1, counts.best - best);
        let counts = self.sessions.counts::<F>(session);
        (counts.paths, counts.best) = (counts.paths + 1, counts.best + best);
        route.set_session(&mut self.paths, at, session);
        self.ranked.note(route.prefix());
        true
    }

    /// Gives a path a number of its own for its attributes, because its next hop lies inside its
    /// prefix or depends on it. Call [`Core::announced_own`] after the announcement.
    #[cold]
    fn own_path<F: BgpFamily>(&mut self, prefix: Prefix<F>, path: Path) -> Path {
        let attrs = self.attrs.get(path.attrs).clone();
        let path_id = self.attrs.path_id(path.attrs);
        let path = Path { attrs: self.attrs.acquire(&attrs, path_id, Some(prefix.any())), ..path };
        self.attrs.expect::<F>(path.attrs, true);
        if self.is_unknown(path) {
            self.unanswered.push(prefix);
        }
        path
    }

    /// Ends an announcement of [`Core::own_path`]. `kept`: the path was stored.
    #[cold]
    fn announced_own<F: BgpFamily>(&mut self, path: Path, kept: bool) {
        self.attrs.announced::<F>(path.attrs, true, u32::from(kept));
    }

    /// Removes the path of a source, if there is one.
    fn withdraw<F: BgpFamily>(
        &mut self,
        table: &mut Table<Route<F>>,
        spot: Spot,
        prefix: Prefix<F>,
        source: PathSource,
        out: &mut ShardOut,
    ) {
        let Some(at) = table.find_again(spot.at as usize, spot.hash, |route| route.is(prefix)) else {
            return;
        };
        let route = table.get_mut(at);
        let place = self.place_of::<F>(route.paths(&self.paths), source);
        if place.is_some_and(|place| !self.forget(route, place, out)) {
            table.remove(at);
            table.shrink_if_sparse();
        }
    }

    /// Removes the paths of ended sessions from a route, but retained ones. Returns whether a path is left.
    fn purge<F: BgpFamily>(&mut self, route: &mut Route<F>, out: &mut ShardOut) -> bool {
        let leaving = self.sessions.leaving::<F>();
        let mut from = 0;
        loop {
            let paths = &route.paths(&self.paths)[from..];
            let Some(at) = self.place_of_leaving::<F>(paths, leaving) else { return true };
            from += at;
            if !self.forget(route, from, out) {
                return false;
            }
        }
    }

    /// Index of the first path whose session has ended, but of a retained one. `leaving`: [`Sessions::leaving`].
    #[inline]
    fn place_of_leaving<F: BgpFamily>(&self, paths: &[Path], leaving: Option<u16>) -> Option<usize> {
        match leaving {
            // In most purges, so a path costs no look at its session.
            Some(number) => paths.iter().position(|path| path.session == number),
            None => paths.iter().position(|path| !self.sessions.get(path.session).keeps::<F>()),
        }
    }

    /// Removes the path at `at`. Returns whether a path is left; if not, the caller removes the
    /// route.
    fn forget<F: BgpFamily>(&mut self, route: &mut Route<F>, at: usize, out: &mut ShardOut) -> bool {
        let old = self.selected_of(route);
        self.note_fed(route, out);
        let left = route.len() > 1;
        let (effect, gone) = if left {
            let effect = self.before_departure(route, at);
            let gone = route.remove(&mut self.paths, at);
            if effect != Effect::Keep {
                self.decide(route);
            }
            (effect, gone)
        } else {
            (Effect::Rescan, route.paths(&self.paths)[0])
        };
        if effect != Effect::Keep || self.several || route.is_held() {
            let new = left.then(|| self.selected_of(route));
            self.changed(route, Some(old), new, out);
        }
        self.sessions.counts::<F>(gone.session).paths -= 1;
        self.release::<F>(gone);
        self.ranked.note(route.prefix());
        left
    }

    /// Releases the attributes and session of a removed path.
    fn release<F: BgpFamily>(&mut self, gone: Path) {
        self.attrs.release::<F>(gone.attrs, self.is_recursive(gone.session));
    }

    /// Selects again and sends the change, if there is one.
    fn redecide<F: BgpFamily>(&mut self, route: &mut Route<F>, out: &mut ShardOut) {
        let old = self.selected_of(route);
        self.note_fed(route, out);
        let former = self.measure(route);
        self.decide(route);
        let new = self.selected_of(route);
        self.changed(route, Some(old), Some(new), out);
        former.into_iter().for_each(|path| self.release::<F>(path));
        self.ranked.note(route.prefix());
        if self.has_unknown(route) {
            self.unanswered.push(route.prefix());
        }
    }

    /// Sends a change of the selected path, or of paths that share its traffic, to workers and the
    /// RIB manager. The attribute sets of both paths are still in use.
    fn changed<F: BgpFamily>(
        &mut self,
        route: &mut Route<F>,
        old: Option<SelectedPath>,
        new: Option<SelectedPath>,
        out: &mut ShardOut,
    ) {
        if old == new && !self.several && !route.is_held() {
            // Most selections among several paths end so: nothing is fed or advertised.
            return;
        }
        let fed = self.feed(route, [old, new], out);
        let left = new.is_some();
        let (old, new) = (old.and_then(SelectedPath::best), new.and_then(SelectedPath::best));
        let same = old == new && !fed;
        if same && !route.is_held() {
            return;
        }
        // Without a best path, a report of the RIB manager may bring one.
        let waits = new.is_none() && left && self.has_unknown(route);
        if same && waits {
            return;
        }
        if let Some(old) = old {
            self.sessions.counts::<F>(old.session).best -= 1;
        }
        if let Some(new) = new {
            self.sessions.counts::<F>(new.session).best += 1;
        }
        if route.is_open() && !waits && !(self.gates.is_on() && fed && new.is_some()) {
            return self.advertise(route.prefix(), old, new, out);
        }
        let gate = match waits {
            true => self.holds(route.prefix(), route.gate(), old),
            false => self.passes(route.prefix(), route.gate(), [old, new], fed, out),
        };
        route.set_gate(gate, self.stamp());
    }

    /// Advertises a path to workers instead of the former one. The attribute sets of both are still
    /// in use.
    fn advertise<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        old: Option<Path>,
        new: Option<Path>,
        out: &mut ShardOut,
    ) {
        let is_same = |(old, new): (Path, Path)| {
            old.session == new.session && self.attrs.is_same_set(old.attrs, new.attrs)
        };
        if old == new || old.zip(new).is_some_and(is_same) {
            return;
        }
        if self.watches.is_some() {
            return self.advertise_watched(prefix, [old, new], out);
        }
        self.send_best(Audience::All, prefix, old, new, out);
    }

    /// Sends a change of the path of a prefix; at most one of both is `None`.
    #[inline]
    fn send_best<F: BgpFamily>(
        &mut self,
        to: Audience,
        prefix: Prefix<F>,
        old: Option<Path>,
        new: Option<Path>,
        out: &mut ShardOut,
    ) {
        match self.renewed(old, new) {
            // A new session of the peer may have other properties, so workers get the change.
            Some(true) => {}
            Some(false) => self.send_moved(to, prefix, [old, new], out),
            None => {
                let (before, after) = (self.index(to, old, out), self.index(to, new, out));
                out.change(to, prefix, before, after);
            }
        }
    }

    /// Sends a path as withdrawn and announced: its peer has another identifier.
    #[cold]
    #[inline(never)]
    fn send_moved<F: BgpFamily>(
        &mut self,
        to: Audience,
        prefix: Prefix<F>,
        [old, new]: [Option<Path>; 2],
        out: &mut ShardOut,
    ) {
        let (before, after) = (self.index(to, old, out), self.index(to, new, out));
        out.change(to, prefix, before, NONE);
        out.change(to, prefix, NONE, after);
    }

    /// Whether two paths differ only in the session of their peer, and in their path identifiers:
    /// `Some(true)` if the peer has the same properties, too.
    fn renewed(&self, old: Option<Path>, new: Option<Path>) -> Option<bool> {
        let same = |old: Path, new: Path| {
            let several = self.attrs.has_path_ids();
            old.attrs == new.attrs || (several && self.attrs.is_same_set(old.attrs, new.attrs))
        };
        let (old, new) = old.zip(new).filter(|(old, new)| same(*old, *new))?;
        let (old, new) = (&self.sessions.get(old.session).info, &self.sessions.get(new.session).info);
        (old.id == new.id).then(|| old.router_id == new.router_id)
    }

    #[inline(always)]
    fn index(&mut self, to: Audience, path: Option<Path>, out: &mut ShardOut) -> u32 {
        self.index_marked(to, path, false, out)
    }

    #[inline(always)]
    fn index_marked(
        &mut self,
        to: Audience,
        path: Option<Path>,
        suppressed: bool,
        out: &mut ShardOut,
    ) -> u32 {
        let Some(path) = path else { return NONE };
        let source = self.sessions.get(path.session).info.id;
        let (attrs, noted) = self.attrs.in_batch(path.attrs);
        out.path(to, attrs, Marked { source, suppressed }, noted)
    }
}
