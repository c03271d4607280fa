//! A shard: all paths of the prefixes it owns, of both families, and their best ones.
//!
//! It is handed messages and answers with effects; it never waits. What would take long (forgetting a peer,
//! showing a table to a worker, judging everything again) is cut into steps of some thousand prefixes: the thread that
//! runs the shard calls [`Shard::step`] between messages while [`Shard::work_left`] says so.
//!
//! A path costs what its accesses to memory cost. So there are few: a route stands in the table's own slot, its paths
//! in one block, and a path's hint of its worth settles most comparisons without a look at attributes. And those of
//! prefixes that came together overlap.

mod attrs;
mod cut;
mod feed;
mod gate;
mod moving;
mod next_hops;
mod out;
mod paths;
mod query;
mod route;
mod sessions;
mod table;
#[cfg(test)]
mod tests;
mod work;

pub use cut::{Cut, HashSeed, Split};
pub use moving::Moved;
pub use out::{Effects, ShardOut, ToEgress};
pub use paths::Part;
pub use query::{Counts, FamilyCounts, FedView, PathView, PeerCounts, RouteView, Standing};

use crate::decision::{self, Candidate, DecisionOptions, Effect, Rank, Reason};
use crate::message::{NONE, NextHopState, RouteOp, ShardIn, TrackedNextHop, UpdateBatch};
use crate::peer::{PeerId, PeerInfo};
use attrs::AttrTable;
use feed::Fed;
use gate::Gates;
use next_hops::News;
use paths::{Path, PathStore};
use ribtide_prefix::{
    AnyPrefix, Families, Family, LOGICAL_SHARDS, PerFamily, Prefix, for_each_family, logical_shard, prefetch,
};
use route::Route;
use sessions::Sessions;
use smallvec::SmallVec;
use std::net::IpAddr;
use std::sync::Arc;
use table::{Seed, Table};

/// Prefixes whose memory is asked for together.
const GROUP: usize = 32;

/// The prefixes that one shard owns.
pub struct Shard {
    tables: Families<Tables>,
    core: Core,
    work: work::Work,
    /// Of the batch at hand: the number of each operation's attribute set.
    numbers: Vec<u32>,
}

/// A table of prefixes for each logical shard. Those that this shard does not own stay empty.
struct Tables;
impl PerFamily for Tables {
    type Of<F: Family> = Vec<Table<Route<F>>>;
}

/// All but the tables: what a table's entries are judged with.
struct Core {
    options: DecisionOptions,
    sessions: Sessions,
    attrs: AttrTable,
    paths: PathStore,
    gates: Gates,
    /// What the RIB manager has of the route at hand, where it gets more than the best path.
    fed: Fed,
    /// Prefixes with a path whose next hop was unknown when it came.
    unanswered: work::Unanswered,
    seed: Seed,
    /// Routes of sessions that had ended, not taken in.
    late: u64,
}

/// How far a batch's prefixes of one family have been taken, and where those of the group at hand are to be found.
#[derive(Default)]
struct Group {
    taken: usize,
    spots: [Spot; GROUP],
}

impl PerFamily for Group {
    type Of<F: Family> = Group;
}

/// Where a prefix is to be found: in which logical shard's table, by which hash, and where it was.
#[derive(Clone, Copy, Default)]
struct Spot {
    logical: u8,
    hash: u32,
    at: u32,
}

impl Shard {
    /// A shard without routes, of a router that installs nothing: every next hop counts as reachable at cost 0 until
    /// [`ShardIn::NextHops`] says otherwise.
    pub fn new(options: DecisionOptions) -> Shard {
        Shard::make(options, false)
    }

    /// A shard without routes, whose next hops a RIB manager resolves: a path is not used before [`ShardIn::NextHops`] has
    /// said that its next hop is reachable.
    pub fn tracking(options: DecisionOptions) -> Shard {
        Shard::make(options, true)
    }

    fn make(options: DecisionOptions, tracks: bool) -> Shard {
        let seed = Seed::random();
        Shard {
            tables: Families { v4: tables(&seed), v6: tables(&seed) },
            core: Core {
                options,
                sessions: Sessions::default(),
                attrs: AttrTable::new(seed.clone(), tracks),
                paths: PathStore::default(),
                gates: Gates::default(),
                fed: None,
                unanswered: work::Unanswered::default(),
                seed,
                late: 0,
            },
            work: work::Work::default(),
            numbers: Vec::new(),
        }
    }

    /// The same shard, which has no routes yet, hashing prefixes with this seed. Shards that give routes to each other must have
    /// the same.
    pub fn with_seed(self, seed: &HashSeed) -> Shard {
        let HashSeed(seed) = seed;
        let tables = Families { v4: tables(seed), v6: tables(seed) };
        Shard { tables, core: Core { seed: seed.clone(), ..self.core }, ..self }
    }

    /// Takes in a message.
    pub fn handle(&mut self, message: ShardIn, out: &mut ShardOut) {
        match message {
            ShardIn::PeerUp(info) => self.peer_up(info, out),
            ShardIn::PeerDown { peer, session } => self.peer_down(peer, session, out),
            ShardIn::Routes(batch) => self.routes(&batch, out),
            ShardIn::Dump(request) => self.work.dump(request),
            ShardIn::NextHops(states) => self.next_hops(&states, out),
            ShardIn::Suppress(on) => self.suppress(on, out),
            ShardIn::Confirmed(news) => self.confirmed(&news, out),
        }
        // What was told of a session that has ended may have been the last of it.
        self.core.settle(out);
        self.core.clear_out(out);
    }

    /// Shrinks every table to its contents. O(capacity): call it only when the stage is idle.
    pub fn shrink_to_fit(&mut self) {
        for_each_family!(F => self.tables.get_mut::<F>().iter_mut().for_each(Table::shrink_to_fit));
        self.core.attrs.shrink_to_fit();
        self.numbers = Vec::new();
    }

    fn peer_up(&mut self, info: Arc<PeerInfo>, out: &mut ShardOut) {
        if let Some(former) = self.core.sessions.latest(info.id) {
            if former == info.session {
                // It came with a logical shard before it was told.
                return;
            }
            self.peer_down(info.id, former, out);
        }
        self.core.sessions.begin(info);
    }

    fn peer_down(&mut self, id: PeerId, session: u32, out: &mut ShardOut) {
        let Some(number) = self.core.sessions.number(id, session) else { return };
        self.core.sessions.end(number);
        self.core.settle(out);
        if self.core.sessions.any_ending() {
            self.work.sweep();
        }
    }

    fn routes(&mut self, batch: &UpdateBatch, out: &mut ShardOut) {
        let UpdateBatch { peer, session, ops, prefixes } = batch;
        let Some(session) = self.core.sessions.number(*peer, *session) else {
            self.core.late += (prefixes.v4.len() + prefixes.v6.len()) as u64;
            return;
        };
        let Shard { tables, core, numbers, .. } = self;
        numbers.clear();
        numbers.extend(
            ops.iter().map(|op| op.attrs.as_ref().map_or(NONE, |attrs| core.attrs.acquire(attrs, None))),
        );
        let mut groups: Families<Group> = Families::default();
        for (op, number) in ops.iter().zip(numbers) {
            for_each_family!(F => if F::AFI == op.afi {
                let (tables, group, prefixes) = (tables.get_mut::<F>(), groups.get_mut::<F>(), prefixes.get::<F>());
                let end = prefixes.len().min(group.taken + op.count as usize);
                let path = |attrs| Path::new(*number, session, decision::hint(attrs));
                let path = op.attrs.as_ref().map(path);
                let recursive = core.is_recursive(session);
                path.inspect(|path| core.attrs.expect::<F>(path.attrs, recursive));
                let unknown = path.is_some_and(|path| core.is_unknown(path));
                let inside = path.filter(|_| recursive && core.attrs.hops.tracks());
                let inside = inside.map(|path| core.attrs.own_next_hop(path.attrs));
                let mut paths = 0;
                while group.taken < end {
                    let at = group.taken % GROUP;
                    if at == 0 {
                        let leaving = path.is_none().then_some(session);
                        core.prefetch(tables, &prefixes[group.taken..], leaving, &mut group.spots);
                    }
                    let (prefix, spot) = (prefixes[group.taken], group.spots[at]);
                    group.taken += 1;
                    let table = &mut tables[usize::from(spot.logical)];
                    match path {
                        Some(path) => {
                            let own = inside.is_some_and(|(hop, any_apart)| {
                                prefix.contains(hop) || (any_apart && core.attrs.is_apart(path.attrs, prefix.any()))
                            });
                            let path = if own { core.own_path(prefix, path) } else { path };
                            let kept = core.announce(table, spot, prefix, path, out);
                            if own {
                                core.announced_own::<F>(path, kept);
                                continue;
                            }
                            paths += u32::from(kept);
                            if unknown {
                                core.unanswered.push(prefix);
                            }
                        }
                        None => core.withdraw(table, spot, prefix, session, out),
                    }
                }
                if let Some(path) = path {
                    core.attrs.announced::<F>(path.attrs, recursive, paths);
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
            let news = self.core.attrs.hops.tell(*next_hop, *state);
            self.heard(news);
        }
    }

    /// What is known of a next hop depends on the route of a prefix: paths of that prefix by it are announced again, and get a
    /// next hop of their own.
    #[cold]
    fn set_apart<F: Family>(&mut self, prefix: Prefix<F>, address: IpAddr, out: &mut ShardOut) {
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
            let mut prefixes = Families::default();
            *prefixes.get_mut::<F>() = vec![prefix];
            let ops = vec![RouteOp { attrs: Some(attrs), afi: F::AFI, count: 1 }];
            UpdateBatch { peer: info.id, session: info.session, ops, prefixes }
        };
        let batches: Vec<UpdateBatch> =
            table.get(at).paths(&core.paths).iter().filter(concerned).map(again).collect();
        batches.iter().for_each(|batch| self.routes(batch, out));
    }

    /// Something is known of a next hop: sees to it that routes are judged again.
    fn heard(&mut self, news: News) {
        match news {
            News::Same => {}
            // Which prefixes wait for it is known, so that not all of them are walked for each new next hop.
            News::First => self.work.answer(&mut self.core.unanswered),
            News::Other => self.work.redecide(),
        }
    }
}

fn tables<F: Family>(seed: &Seed) -> Vec<Table<Route<F>>> {
    (0..LOGICAL_SHARDS).map(|_| Table::new(seed.clone())).collect()
}

/// The path of a route that the RIB manager gets.
#[derive(Clone, Copy, PartialEq, Debug)]
struct SelectedPath {
    path: Path,
    /// Whether it can be used: then it is the best path, which workers get.
    usable: bool,
}

impl SelectedPath {
    #[inline]
    fn best(self) -> Option<Path> {
        self.usable.then_some(self.path)
    }
}

impl Core {
    /// Finds the places of the next prefixes of a batch, and prefetches their routes, then the paths, then the attributes of the
    /// best paths, or what the `leaving` session's paths need.
    fn prefetch<F: Family>(
        &self,
        tables: &[Table<Route<F>>],
        prefixes: &[Prefix<F>],
        leaving: Option<u16>,
        spots: &mut [Spot; GROUP],
    ) {
        for (prefix, spot) in prefixes.iter().zip(&mut *spots) {
            *spot =
                Spot { logical: logical_shard(*prefix), hash: route::hash(*prefix, &self.seed), at: NONE };
        }
        // A loop of its own: the less there is between two reads, the more of them a core has under way.
        for spot in &spots[..prefixes.len().min(GROUP)] {
            prefetch(tables[usize::from(spot.logical)].peek(spot.hash).map(Route::is_idle));
        }
        let mut routes: SmallVec<[Route<F>; GROUP]> = SmallVec::new();
        for (prefix, spot) in prefixes.iter().zip(spots) {
            let table = &tables[usize::from(spot.logical)];
            if let Some(at) = table.find(spot.hash, |route| route.is(*prefix)) {
                spot.at = at as u32;
                routes.push(*table.get(at));
            }
        }
        match leaving {
            Some(session) => self.prefetch_leaving(&routes, session),
            None => self.prefetch_best(&routes),
        }
    }

    /// Prefetches what is needed to take a session's paths out of routes: of most it is the count of their attributes, since
    /// the best path is another and of another class.
    fn prefetch_leaving<F: Family>(&self, routes: &[Route<F>], session: u16) {
        let mut judged: SmallVec<[u32; 2 * GROUP]> = SmallVec::new();
        for route in routes {
            let paths = route.paths(&self.paths);
            let Some(gone) = paths.iter().find(|path| path.session == session) else { continue };
            prefetch(self.attrs.hop_number(gone.attrs));
            if let Some(best) = route.best().map(|best| paths[best])
                && best.worth() == gone.worth()
            {
                judged.extend([best.attrs, gone.attrs]);
            }
        }
        for attrs in judged {
            prefetch(self.attrs.get(attrs).as_hops());
        }
    }

    /// Prefetches the attributes of the best paths of routes.
    fn prefetch_best<F: Family>(&self, routes: &[Route<F>]) {
        let best: SmallVec<[Path; GROUP]> = routes.iter().filter_map(|route| self.best_of(route)).collect();
        for path in best {
            prefetch(self.attrs.get(path.attrs).as_hops());
        }
    }

    /// Confirms the end of sessions of which nothing is left.
    fn settle(&mut self, out: &mut ShardOut) {
        self.sessions.settle(|peer, session| out.purged(peer, session));
    }

    /// Sets that no path uses any more go, and next hops that came into use or went out of it are told.
    fn clear_out(&mut self, out: &mut ShardOut) {
        self.attrs.clear_out();
        self.attrs.hops.uses(out.next_hops());
    }

    fn cost(&self, path: Path) -> Result<u32, Reason> {
        let session = self.sessions.get(path.session);
        if !session.up {
            return Err(Reason::PeerDown);
        }
        if self.attrs.hops.all_at_cost_0() {
            return Ok(0);
        }
        self.attrs.cost(path.attrs, session.recursive)
    }

    /// Whether paths of a session may have next hops that are not on link.
    fn is_recursive(&self, session: u16) -> bool {
        self.sessions.get(session).recursive
    }

    /// Whether the RIB manager has not said yet what the next hop of a path is.
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

    fn candidate(&self, path: Path) -> Candidate<'_> {
        Candidate {
            rank: Rank::new(self.attrs.get(path.attrs), &self.options),
            peer: &self.sessions.get(path.session).info,
            cost: self.cost(path),
        }
    }

    fn best_of<F: Family>(&self, route: &Route<F>) -> Option<Path> {
        route.best().map(|best| route.paths(&self.paths)[best])
    }

    fn selected_of<F: Family>(&self, route: &Route<F>) -> SelectedPath {
        SelectedPath { path: route.paths(&self.paths)[route.selected()], usable: route.is_usable() }
    }

    /// Judges all paths, and sets which one is selected.
    fn decide<F: Family>(&self, route: &mut Route<F>) {
        let paths = route.paths(&self.paths);
        match self.best_among(self.usable_of(paths)) {
            Some(best) => route.set_selected(best, true),
            None => route.set_selected(self.lead_among(paths), false),
        }
    }

    /// Which of paths that cannot be used is selected: of sessions that are up, the best if all next hops were reachable alike.
    #[cold]
    fn lead_among(&self, paths: &[Path]) -> usize {
        let up = || paths.iter().enumerate().filter(|(_, path)| self.sessions.get(path.session).up);
        let Some(hint) = up().map(|(_, path)| path.worth()).min() else { return 0 };
        let (at, judged): (SmallVec<[usize; 8]>, SmallVec<[Candidate<'_>; 8]>) = up()
            .filter(|(_, path)| path.worth() == hint)
            .map(|(at, path)| (at, Candidate { cost: Ok(0), ..self.candidate(*path) }))
            .unzip();
        decision::best(&judged[..], &self.options).map_or(0, |best| at[best])
    }

    /// Those of some paths that can be used, each with its index.
    fn usable_of<'a>(&'a self, paths: &'a [Path]) -> impl Iterator<Item = (usize, Path)> + Clone + 'a {
        paths.iter().copied().enumerate().filter(|(_, path)| self.usable(*path))
    }

    /// The best of usable paths.
    fn best_among(&self, usable: impl Iterator<Item = (usize, Path)>) -> Option<usize> {
        // A path with a higher hint is of a lower class than all of these, and of no influence on them.
        let mut hint = u16::MAX;
        let mut candidates: SmallVec<[(usize, Path); 8]> = SmallVec::new();
        for (at, path) in usable {
            if path.worth() < hint {
                hint = path.worth();
                candidates.clear();
            }
            if path.worth() == hint {
                candidates.push((at, path));
            }
        }
        if let [(only, _)] = candidates[..] {
            return Some(only);
        }
        let judged: SmallVec<[Candidate<'_>; 8]> =
            candidates.iter().map(|(_, path)| self.candidate(*path)).collect();
        decision::best(&judged[..], &self.options).map(|best| candidates[best].0)
    }

    /// The effect of a new path on what was best without it.
    fn arrival(&self, best: Path, new: Path) -> Effect {
        if new.worth() != best.worth() && self.usable(best) && self.usable(new) {
            return if new.worth() < best.worth() { Effect::Take } else { Effect::Keep };
        }
        decision::arrival(self.candidate(best), self.candidate(new), &self.options)
    }

    /// What it means that the path at `at` is about to go. Moves the index of the best one to where that will be.
    fn before_departure<F: Family>(&self, route: &mut Route<F>, at: usize) -> Effect {
        let Some(best) = route.best().filter(|best| *best != at) else { return Effect::Rescan };
        let paths = route.paths(&self.paths);
        let (first, gone) = (paths[best], paths[at]);
        let other_class = gone.worth() != first.worth() && self.usable(first);
        let effect = match self.options.deterministic_med && other_class {
            true => Effect::Keep,
            false => {
                let rank = Rank::new(self.attrs.get(gone.attrs), &self.options);
                decision::departure(self.candidate(first), rank, &self.options)
            }
        };
        if at < best {
            route.set_selected(best - 1, true);
        }
        effect
    }

    /// A path joins, or takes the place of the session's former one. Returns whether it is kept: not if it is the same
    /// as before. References to its attributes are the caller's to count.
    fn announce<F: Family>(
        &mut self,
        table: &mut Table<Route<F>>,
        spot: Spot,
        prefix: Prefix<F>,
        path: Path,
        out: &mut ShardOut,
    ) -> bool {
        let Some(at) = table.find_again(spot.at as usize, spot.hash, |route| route.is(prefix)) else {
            let usable = self.usable(path);
            let mut route = Route::new(prefix, path, usable);
            self.changed(&mut route, None, Some(SelectedPath { path, usable }), out);
            table.insert(spot.hash, route);
            self.sessions.counts::<F>(path.session).paths += 1;
            return true;
        };
        let route = table.get_mut(at);
        let paths = route.paths(&self.paths);
        let place = paths.iter().position(|other| other.session == path.session);
        if place.is_some_and(|at| paths[at].attrs == path.attrs) {
            return false;
        }
        let old = self.selected_of(route);
        self.note_fed(route, out);
        let (mut effect, gone) = match place {
            Some(at) => {
                let effect = self.before_departure(route, at);
                (effect, Some(route.replace(&mut self.paths, at, path)))
            }
            None => {
                self.sessions.counts::<F>(path.session).paths += 1;
                route.push(&mut self.paths, path);
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
        if effect != Effect::Keep || self.options.forwards_by_several() {
            let new = self.selected_of(route);
            self.changed(route, Some(old), Some(new), out);
        }
        if let Some(gone) = gone {
            self.release::<F>(gone);
        }
        true
    }

    /// A path whose next hop lies inside its prefix, or depends on it, with a number of its own for its attributes. To be
    /// announced, and then given to [`Core::announced_own`].
    #[cold]
    fn own_path<F: Family>(&mut self, prefix: Prefix<F>, path: Path) -> Path {
        let attrs = self.attrs.get(path.attrs).clone();
        let path = Path { attrs: self.attrs.acquire(&attrs, Some(prefix.any())), ..path };
        self.attrs.expect::<F>(path.attrs, true);
        if self.is_unknown(path) {
            self.unanswered.push(prefix);
        }
        path
    }

    /// A path of [`Core::own_path`] was announced, and kept or not.
    #[cold]
    fn announced_own<F: Family>(&mut self, path: Path, kept: bool) {
        self.attrs.announced::<F>(path.attrs, true, u32::from(kept));
    }

    /// The session's path goes, if there is one.
    fn withdraw<F: Family>(
        &mut self,
        table: &mut Table<Route<F>>,
        spot: Spot,
        prefix: Prefix<F>,
        session: u16,
        out: &mut ShardOut,
    ) {
        let Some(at) = table.find_again(spot.at as usize, spot.hash, |route| route.is(prefix)) else {
            return;
        };
        let route = table.get_mut(at);
        let place = route.paths(&self.paths).iter().position(|path| path.session == session);
        if place.is_some_and(|place| !self.forget(route, place, out)) {
            table.remove(at);
            table.shrink_if_sparse();
        }
    }

    /// Paths of sessions that ended go. Returns whether any path is left.
    fn sweep<F: Family>(&mut self, route: &mut Route<F>, out: &mut ShardOut) -> bool {
        let over = |core: &Core, route: &Route<F>| {
            route.paths(&core.paths).iter().position(|path| !core.sessions.get(path.session).up)
        };
        while let Some(at) = over(self, route) {
            if !self.forget(route, at, out) {
                return false;
            }
        }
        true
    }

    /// The path at `at` goes from `route`. Returns whether any is left; if not, the route is to go.
    fn forget<F: Family>(&mut self, route: &mut Route<F>, at: usize, out: &mut ShardOut) -> bool {
        let old = self.selected_of(route);
        self.note_fed(route, out);
        let left = route.len() > 1;
        let gone = if left {
            let effect = self.before_departure(route, at);
            let gone = route.remove(&mut self.paths, at);
            if effect != Effect::Keep {
                self.decide(route);
            }
            gone
        } else {
            route.paths(&self.paths)[0]
        };
        let new = left.then(|| self.selected_of(route));
        self.changed(route, Some(old), new, out);
        self.sessions.counts::<F>(gone.session).paths -= 1;
        self.release::<F>(gone);
        left
    }

    /// Releases the attributes of a removed path.
    fn release<F: Family>(&mut self, gone: Path) {
        self.attrs.release::<F>(gone.attrs, self.is_recursive(gone.session));
    }

    /// Judges a route again.
    fn redecide<F: Family>(&mut self, route: &mut Route<F>, out: &mut ShardOut) {
        let old = self.selected_of(route);
        self.note_fed(route, out);
        self.decide(route);
        let new = self.selected_of(route);
        self.changed(route, Some(old), Some(new), out);
        if self.has_unknown(route) {
            self.unanswered.push(route.prefix());
        }
    }

    /// A change of the selected path, or of those beside it that matter to forwarding, if it is one: tells who is to know.
    /// The attribute sets of both are still in use.
    fn changed<F: Family>(
        &mut self,
        route: &mut Route<F>,
        old: Option<SelectedPath>,
        new: Option<SelectedPath>,
        out: &mut ShardOut,
    ) {
        let fed = self.feed(route, [old, new], out);
        let left = new.is_some();
        let (old, new) = (old.and_then(SelectedPath::best), new.and_then(SelectedPath::best));
        let same = old == new && !fed;
        if same && !route.gate.is_held() {
            return;
        }
        // Without a best path, an answer of the RIB manager may bring one.
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
        route.gate = match waits {
            true => self.holds(route.prefix(), route.gate, old),
            false => self.passes(route.prefix(), route.gate, [old, new], fed, out),
        };
    }

    /// Tells workers that this path takes the place of what was told last. The attribute sets of both are still in use.
    fn tell<F: Family>(
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
        match self.renewed(old, new) {
            // To those who follow, the source is its peer, whose new session may bring other facts with it.
            Some(true) => {}
            Some(false) => {
                let (before, after) = (self.index(old, out), self.index(new, out));
                out.change(prefix, before, NONE);
                out.change(prefix, NONE, after);
            }
            None => {
                let (before, after) = (self.index(old, out), self.index(new, out));
                out.change(prefix, before, after);
            }
        }
    }

    /// Whether a path is the same as one of the peer's former session, if it is but for that: whether what others know
    /// of the peer is the same too.
    fn renewed(&self, old: Option<Path>, new: Option<Path>) -> Option<bool> {
        let (old, new) = old.zip(new).filter(|(old, new)| old.attrs == new.attrs)?;
        let (old, new) = (&self.sessions.get(old.session).info, &self.sessions.get(new.session).info);
        (old.id == new.id).then(|| old.router_id == new.router_id)
    }

    fn index(&mut self, path: Option<Path>, out: &mut ShardOut) -> u32 {
        let Some(path) = path else { return NONE };
        let source = self.sessions.get(path.session).info.id;
        let (attrs, noted) = self.attrs.in_batch(path.attrs);
        out.path(attrs, source, noted)
    }
}
