//! A shard: all paths of the prefixes it owns, of both families, and their best ones.
//!
//! It is handed messages and answers with effects; it never waits. What would take long (forgetting a peer,
//! showing a table to a worker, judging everything again) is cut into steps of one logical shard's table each:
//! the thread that runs the shard calls [`Shard::step`] between messages while [`Shard::work_left`] says so.
//! Nothing inside a table outlives a step, so tables may grow and shrink freely between them.

mod attrs;
mod moving;
mod out;
mod paths;
mod query;
#[cfg(test)]
mod tests;
mod work;

pub use moving::Moved;
pub use out::{Effects, ShardOut, ToEgress};
pub use query::{Counts, PathView, PeerCounts, RouteView};

use crate::decision::{self, Candidate, Candidates, DecisionOptions, Effect, Reason};
use crate::message::{NextHopState, RouteBatch, ShardIn};
use crate::peer::{FeedKind, PeerId, PeerInfo};
use attrs::AttrTable;
use hashbrown::hash_map::Entry;
use out::BestRef;
use paths::{Path, PathStore, Route};
use ribtide_prefix::{
    Families, Family, LOGICAL_SHARDS, Map, PerFamily, Prefix, for_each_family, logical_shard,
};
use std::net::IpAddr;
use std::sync::Arc;

/// The prefixes that one shard owns.
pub struct Shard {
    tables: Families<Tables>,
    core: Core,
    work: work::Work,
}

/// A table of prefixes for each logical shard. Those that this shard does not own stay empty.
struct Tables;
impl PerFamily for Tables {
    type Of<F: Family> = Vec<Table<F>>;
}

type Table<F> = Map<Prefix<F>, Route>;

/// All but the tables: what a table's entries are judged with.
struct Core {
    options: DecisionOptions,
    peers: Vec<Option<Peer>>,
    attrs: AttrTable,
    paths: PathStore,
    /// Routes of sessions that had ended, not taken in.
    late: u64,
}

/// A peer that has or had a session.
struct Peer {
    info: Arc<PeerInfo>,
    /// Whether the session that `info` describes lasts.
    up: bool,
    counts: Families<PeerCounts>,
}

impl PerFamily for PeerCounts {
    type Of<F: Family> = PeerCounts;
}

impl Shard {
    /// A shard without routes.
    pub fn new(options: DecisionOptions) -> Shard {
        fn tables<F: Family>() -> Vec<Table<F>> {
            (0..LOGICAL_SHARDS).map(|_| Table::default()).collect()
        }
        Shard {
            tables: Families { v4: tables(), v6: tables() },
            core: Core {
                options,
                peers: Vec::new(),
                attrs: AttrTable::default(),
                paths: PathStore::default(),
                late: 0,
            },
            work: work::Work::default(),
        }
    }

    /// Takes in a message.
    pub fn handle(&mut self, message: ShardIn, out: &mut ShardOut) {
        match message {
            ShardIn::PeerUp(info) => self.peer_up(info, out),
            ShardIn::PeerDown { peer, session } => self.peer_down(peer, session, out),
            ShardIn::Routes(batch) => self.routes(&batch, out),
            ShardIn::Dump(request) => self.work.dump(request),
            ShardIn::NextHops(states) => self.next_hops(&states),
        }
        out.next_hops(&mut self.core.attrs.hops.uses);
    }

    fn peer_up(&mut self, info: Arc<PeerInfo>, out: &mut ShardOut) {
        let id = info.id;
        if let Some(former) = self.core.peer(id).map(|peer| peer.info.session) {
            if former == info.session {
                // It came with a logical shard before it was told.
                return;
            }
            self.peer_down(id, former, out);
            self.finish_purge(id, out);
        }
        let at = id.0 as usize;
        if self.core.peers.len() <= at {
            self.core.peers.resize_with(at + 1, || None);
        }
        self.core.peers[at] = Some(Peer { info, up: true, counts: Families::default() });
    }

    fn peer_down(&mut self, id: PeerId, session: u32, out: &mut ShardOut) {
        let Some(peer) = self.core.peers.get_mut(id.0 as usize).and_then(Option::as_mut) else { return };
        if !peer.up || peer.info.session != session {
            return;
        }
        peer.up = false;
        if peer.paths() == 0 {
            out.purged(id, session);
        } else {
            self.work.purge(id, session);
        }
    }

    fn routes(&mut self, batch: &RouteBatch, out: &mut ShardOut) {
        let RouteBatch { peer, session, ops, prefixes } = batch;
        if !self.core.peer(*peer).is_some_and(|peer| peer.up && peer.info.session == *session) {
            self.core.late += (prefixes.v4.len() + prefixes.v6.len()) as u64;
            return;
        }
        let mut taken: Families<Taken> = Families::default();
        for op in ops {
            for_each_family!(F => if F::AFI == op.afi {
                let start = *taken.get::<F>();
                let end = start + op.count as usize;
                *taken.get_mut::<F>() = end;
                let prefixes = prefixes.get::<F>().get(start..end).unwrap_or_default();
                let tables = self.tables.get_mut::<F>();
                match &op.attrs {
                    Some(attrs) => {
                        let attrs = self.core.attrs.acquire(attrs, &self.core.options);
                        let path = Path { peer: *peer, attrs };
                        for prefix in prefixes {
                            let table = &mut tables[usize::from(logical_shard(*prefix))];
                            self.core.announce(table, *prefix, path, out);
                        }
                        self.core.attrs.release(attrs);
                    }
                    None => {
                        for prefix in prefixes {
                            let table = &mut tables[usize::from(logical_shard(*prefix))];
                            self.core.withdraw(table, *prefix, *peer, out);
                        }
                    }
                }
            });
        }
    }

    fn next_hops(&mut self, states: &[(IpAddr, NextHopState)]) {
        let mut changed = false;
        for (addr, state) in states {
            changed |= self.core.attrs.hops.tell(*addr, *state);
        }
        if changed {
            self.work.redecide();
        }
    }
}

/// How many prefixes of a batch were consumed.
struct Taken;
impl PerFamily for Taken {
    type Of<F: Family> = usize;
}

impl Peer {
    /// How many paths of it there are.
    fn paths(&self) -> u32 {
        self.counts.v4.paths + self.counts.v6.paths
    }
}

impl Core {
    fn peer(&self, id: PeerId) -> Option<&Peer> {
        self.peers.get(id.0 as usize)?.as_ref()
    }

    /// The peer of a path: no path outlives what is known of its peer.
    fn peer_of(&self, path: Path) -> &Peer {
        self.peer(path.peer).expect("a path's peer is known")
    }

    fn counts<F: Family>(&mut self, id: PeerId) -> &mut PeerCounts {
        self.peers[id.0 as usize].as_mut().expect("a path's peer is known").counts.get_mut::<F>()
    }

    fn candidate(&self, path: Path) -> Candidate<'_> {
        let peer = self.peer_of(path);
        let cost = if peer.up { self.attrs.cost(path.attrs) } else { Err(Reason::PeerDown) };
        Candidate { rank: self.attrs.rank(path.attrs), peer: &peer.info, cost }
    }

    fn best_of(&self, route: &Route) -> Option<Path> {
        route.best().map(|best| self.paths.paths(route)[best])
    }

    /// Judges all paths.
    fn decide(&self, route: &Route) -> Option<usize> {
        let paths = self.paths.paths(route);
        if let [only] = paths {
            return self.candidate(*only).cost.is_ok().then_some(0);
        }
        decision::best(&View { core: self, paths }, &self.options)
    }

    /// A path joins, or takes the place of the peer's former one.
    fn announce<F: Family>(
        &mut self,
        table: &mut Table<F>,
        prefix: Prefix<F>,
        path: Path,
        out: &mut ShardOut,
    ) {
        match table.entry(prefix) {
            Entry::Vacant(vacant) => {
                self.attrs.retain(path.attrs);
                self.counts::<F>(path.peer).paths += 1;
                let route = vacant.insert(Route::new(path));
                route.set_best(self.decide(route));
                let new = self.best_of(route);
                self.changed(prefix, None, new, out);
            }
            Entry::Occupied(mut occupied) => {
                let route = occupied.get_mut();
                let place = self.paths.paths(route).iter().position(|other| other.peer == path.peer);
                if place.is_some_and(|at| self.paths.paths(route)[at].attrs == path.attrs) {
                    return;
                }
                let old = self.best_of(route);
                self.attrs.retain(path.attrs);
                let (mut effect, gone) = match place {
                    Some(at) => {
                        let effect = self.before_departure(route, at);
                        let gone = self.paths.replace(route, at, path);
                        (effect, Some(gone))
                    }
                    None => {
                        self.counts::<F>(path.peer).paths += 1;
                        self.paths.push(route, path);
                        (Effect::Keep, None)
                    }
                };
                if effect == Effect::Keep {
                    effect = match old {
                        Some(old) => {
                            decision::arrival(self.candidate(old), self.candidate(path), &self.options)
                        }
                        None => Effect::Rescan,
                    };
                }
                match effect {
                    Effect::Keep => {}
                    Effect::Take => route.set_best(Some(route.len() - 1)),
                    Effect::Rescan => route.set_best(self.decide(route)),
                }
                let new = self.best_of(route);
                self.changed(prefix, old, new, out);
                if let Some(gone) = gone {
                    self.attrs.release(gone.attrs);
                }
            }
        }
    }

    /// The peer's path goes, if there is one.
    fn withdraw<F: Family>(
        &mut self,
        table: &mut Table<F>,
        prefix: Prefix<F>,
        peer: PeerId,
        out: &mut ShardOut,
    ) {
        let Entry::Occupied(mut occupied) = table.entry(prefix) else { return };
        if !self.forget(prefix, occupied.get_mut(), peer, out) {
            occupied.remove();
        }
    }

    /// The peer's path goes from `route`, if there is one. Returns whether any path is left.
    fn forget<F: Family>(
        &mut self,
        prefix: Prefix<F>,
        route: &mut Route,
        peer: PeerId,
        out: &mut ShardOut,
    ) -> bool {
        let Some(at) = self.paths.paths(route).iter().position(|path| path.peer == peer) else { return true };
        let old = self.best_of(route);
        let left = route.len() > 1;
        let gone = if left {
            let effect = self.before_departure(route, at);
            let gone = self.paths.remove(route, at);
            if effect != Effect::Keep {
                route.set_best(self.decide(route));
            }
            gone
        } else {
            self.paths.paths(route)[0]
        };
        let new = if left { self.best_of(route) } else { None };
        self.changed(prefix, old, new, out);
        self.counts::<F>(peer).paths -= 1;
        self.attrs.release(gone.attrs);
        left
    }

    /// What it means that the path at `at` is about to go. Moves the index of the best one to where that will be.
    fn before_departure(&self, route: &mut Route, at: usize) -> Effect {
        let Some(best) = route.best().filter(|best| *best != at) else { return Effect::Rescan };
        let paths = self.paths.paths(route);
        let (candidate, gone) = (self.candidate(paths[best]), self.attrs.rank(paths[at].attrs));
        let effect = decision::departure(candidate, gone, &self.options);
        if at < best {
            route.set_best(Some(best - 1));
        }
        effect
    }

    /// Judges a route again.
    fn redecide<F: Family>(&mut self, prefix: Prefix<F>, route: &mut Route, out: &mut ShardOut) {
        let old = self.best_of(route);
        route.set_best(self.decide(route));
        let new = self.best_of(route);
        self.changed(prefix, old, new, out);
    }

    /// Tells of a change of best path, if it is one. The attribute sets of both are still in use.
    fn changed<F: Family>(
        &mut self,
        prefix: Prefix<F>,
        old: Option<Path>,
        new: Option<Path>,
        out: &mut ShardOut,
    ) {
        if old == new {
            return;
        }
        self.tell(prefix, old, new, out);
        if let Some(old) = old {
            self.counts::<F>(old.peer).best -= 1;
        }
        if let Some(new) = new {
            self.counts::<F>(new.peer).best += 1;
        }
    }

    /// The telling alone.
    fn tell<F: Family>(&self, prefix: Prefix<F>, old: Option<Path>, new: Option<Path>, out: &mut ShardOut) {
        if old == new {
            return;
        }
        out.change(prefix, old.map(|path| self.best_ref(path)), new.map(|path| self.best_ref(path)));
        if !self.same_feed(old, new) {
            out.feed(prefix, new.map(|path| (self.attrs.get(path.attrs).next_hop(), self.feed_kind(path))));
        }
    }

    fn best_ref(&self, path: Path) -> BestRef<'_> {
        BestRef { attrs: self.attrs.get(path.attrs), source: path.peer }
    }

    fn feed_kind(&self, path: Path) -> FeedKind {
        self.peer_of(path).info.feed_kind()
    }

    /// Whether the RIB manager sees no difference between the two.
    fn same_feed(&self, old: Option<Path>, new: Option<Path>) -> bool {
        let (Some(old), Some(new)) = (old, new) else { return old.is_none() && new.is_none() };
        self.attrs.same_next_hop(old.attrs, new.attrs) && self.feed_kind(old) == self.feed_kind(new)
    }
}

/// Paths of one prefix with what it takes to judge them.
struct View<'a> {
    core: &'a Core,
    paths: &'a [Path],
}

impl Candidates for View<'_> {
    fn count(&self) -> usize {
        self.paths.len()
    }
    fn at(&self, index: usize) -> Candidate<'_> {
        self.core.candidate(self.paths[index])
    }
}
