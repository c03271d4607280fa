//! A logical shard that moves from one shard to another, so that their number may change while sessions last.
//!
//! Neither side says anything of it to workers or the RIB manager: to them it is the same route, and which shard
//! speaks of it is of no interest. There is one exception: what waits for dataplanes (see [`gate`](super::gate)) was asked
//! for by the giver, so the taker feeds it anew, which changes nothing and is answered to it. Whoever moves one sees to it that
//!
//! - both shards have handled all routes and session messages that were sent while the giver owned the logical shard,
//!   and the taker gets none for it before it has taken it;
//! - what the giver said goes out before what the taker says from then on, as [`Change::old`](crate::message::Change)
//!   follows from what was said last;
//! - both have handled the same dump requests, or unanswered ones are made again: a request that the taker had handled
//!   before and the giver handles after the move shows nothing of it.

use super::paths::Path;
use super::route::{self, Route};
use super::table::Table;
use super::{Core, Shard, ShardOut};
use crate::attr::AttrSet;
use crate::message::{NextHopState, TrackedNextHop};
use crate::peer::PeerInfo;
use ribtide_prefix::{
    AnyPrefix, Families, Family, LogicalShard, Map, PerFamily, Prefix, for_each_family, logical_shard,
};
use std::sync::Arc;

/// A logical shard on its way: all that its new owner must know to go on as if it had always had it.
#[derive(Debug)]
pub struct Moved {
    logical: LogicalShard,
    /// Sessions that are up, which paths name by index.
    sessions: Vec<Arc<PeerInfo>>,
    /// The attribute sets, which paths name by index, each with the prefix of its paths if that holds its next hop.
    attrs: Vec<(AttrSet, Option<AnyPrefix>)>,
    /// What was known of their next hops, if it was.
    next_hops: Vec<(TrackedNextHop, Option<NextHopState>)>,
    /// From the oldest to the newest of each route, route by route.
    paths: Vec<Path>,
    routes: Families<Routes>,
    /// Prefixes whose best path is not told, and what is told instead.
    untold: Families<Untold>,
}

struct Untold;
impl PerFamily for Untold {
    type Of<F: Family> = Vec<(Prefix<F>, Option<Path>)>;
}

/// Prefixes in no order: how many of the paths are each one's, which of these leads, and whether it can be used.
#[derive(Debug)]
struct Routes;
impl PerFamily for Routes {
    type Of<F: Family> = Vec<(Prefix<F>, u32, (u32, bool))>;
}

/// From this shard's numbers to indices of a move.
#[derive(Default)]
struct Indices {
    sessions: Map<u16, u16>,
    attrs: Map<u32, u32>,
}

impl Indices {
    /// The index of an attribute set, which joins what moves if it is new there.
    fn number(&mut self, number: u32, core: &Core, moved: &mut Moved) -> u32 {
        *self.attrs.entry(number).or_insert_with(|| {
            moved.attrs.push((core.attrs.get(number).clone(), core.attrs.exclude(number)));
            moved.next_hops.extend(core.attrs.hops.known(core.attrs.hop_number(number)));
            moved.attrs.len() as u32 - 1
        })
    }
}

impl Moved {
    /// Which logical shard it is.
    pub fn logical(&self) -> LogicalShard {
        self.logical
    }

    /// How many prefixes it has, of both families.
    pub fn prefixes(&self) -> usize {
        self.routes.v4.len() + self.routes.v6.len()
    }
}

impl Shard {
    /// Gives a logical shard away. Work on its tables that is under way is done first, and said in `out`; the move
    /// itself says no more than which next hops are out of use here.
    pub fn extract(&mut self, logical: LogicalShard, out: &mut ShardOut) -> Moved {
        self.work_on(logical, out);
        while self.work.is_answering() {
            self.judge_answered(out);
        }
        let mut moved = Moved {
            logical,
            sessions: Vec::new(),
            attrs: Vec::new(),
            next_hops: Vec::new(),
            paths: Vec::new(),
            routes: Families::default(),
            untold: Families::default(),
        };
        let mut indices = Indices::default();
        for (number, session) in self.core.sessions.iter().filter(|(_, session)| session.up) {
            indices.sessions.insert(number, moved.sessions.len() as u16);
            moved.sessions.push(session.info.clone());
        }
        for_each_family!(F => {
            let table = &mut self.tables.get_mut::<F>()[usize::from(logical)];
            let table = std::mem::replace(table, Table::new(self.core.seed.clone()));
            self.give(&table, &mut moved, &mut indices, out);
        });
        moved.next_hops.sort_unstable_by_key(|(next_hop, _)| *next_hop);
        moved.next_hops.dedup_by_key(|(next_hop, _)| *next_hop);
        self.core.clear_out(out);
        moved
    }

    /// Puts the routes of a table into `moved` and lets go of what they use here.
    fn give<F: Family>(
        &mut self,
        table: &Table<Route<F>>,
        moved: &mut Moved,
        indices: &mut Indices,
        out: &mut ShardOut,
    ) {
        let core = &mut self.core;
        let (mut released, mut untold) = (Vec::new(), Vec::new());
        for route in table.iter() {
            if let Some(best) = core.best_of(route) {
                core.sessions.counts::<F>(best.session).best -= 1;
            }
            for path in route.paths(&core.paths) {
                let attrs = indices.number(path.attrs, core, moved);
                moved.paths.push(Path { attrs, session: indices.sessions[&path.session], ..*path });
                core.sessions.counts::<F>(path.session).paths -= 1;
                released.push(*path);
            }
            let row = (route.prefix(), route.len() as u32, (route.lead() as u32, route.is_usable()));
            moved.routes.get_mut::<F>().push(row);
            if let Some(told) = core.waits_elsewhere(route, out) {
                let there = told.map(|told| {
                    let attrs = indices.number(told.attrs, core, moved);
                    Path { attrs, session: indices.sessions[&told.session], ..told }
                });
                moved.untold.get_mut::<F>().push((route.prefix(), there));
                if told.is_some() {
                    untold.extend(core.take_told::<F>(route.prefix()));
                }
            }
            route.clear(&mut core.paths);
        }
        // Not before all are numbered: a number that is let go may be another set's next.
        released.into_iter().for_each(|path| core.release::<F>(path));
        untold.into_iter().for_each(|told| core.let_go_told(told));
        indices.attrs.clear();
    }

    /// Takes a logical shard that another gave away. Says which next hops are in use here now, and nothing else
    /// unless this shard knows better: paths of sessions that it knows to be over are swept later, and routes judged again
    /// if a next hop is known otherwise here.
    pub fn adopt(&mut self, moved: Moved, out: &mut ShardOut) {
        let Moved { logical, sessions, attrs, next_hops, paths, mut routes, mut untold } = moved;
        let sessions: Vec<u16> = sessions.into_iter().map(|info| self.number(info, out)).collect();
        for (next_hop, state) in next_hops {
            let news = self.core.attrs.hops.learn(next_hop, state);
            self.heard(news);
        }
        let numbers: Vec<u32> =
            attrs.iter().map(|(attrs, exclude)| self.core.attrs.acquire(attrs, *exclude)).collect();
        let here = |path: Path| Path {
            attrs: numbers[path.attrs as usize],
            session: sessions[usize::from(path.session)],
            ..path
        };
        let mut paths = paths.into_iter().map(here);
        for_each_family!(F => for (prefix, len, lead) in std::mem::take(routes.get_mut::<F>()) {
            self.take(logical, prefix, paths.by_ref().take(len as usize), lead);
        });
        for_each_family!(F => for (prefix, told) in std::mem::take(untold.get_mut::<F>()) {
            self.take_untold(prefix, told.map(here), out);
        });
        numbers.iter().for_each(|number| self.core.attrs.let_go(*number));
        self.core.settle(out);
        if self.core.sessions.any_ending() {
            self.work.sweep();
        }
        self.core.clear_out(out);
    }

    /// The number here of a session that is up where routes came from.
    fn number(&mut self, info: Arc<PeerInfo>, out: &mut ShardOut) -> u16 {
        let (peer, session) = (info.id, info.session);
        let number = match self.core.sessions.number(peer, session) {
            Some(number) => Some(number),
            None if self.core.sessions.latest(peer).is_some_and(|latest| latest >= session) => {
                self.core.sessions.begin_ended(info)
            }
            None => {
                self.peer_up(info, out);
                self.core.sessions.number(peer, session)
            }
        };
        number.expect("a router has fewer than 65,535 sessions")
    }

    /// A route comes in.
    fn take<F: Family>(
        &mut self,
        logical: LogicalShard,
        prefix: Prefix<F>,
        paths: impl Iterator<Item = Path>,
        (lead, usable): (u32, bool),
    ) {
        let core = &mut self.core;
        let mut route: Option<Route<F>> = None;
        for path in paths {
            core.sessions.counts::<F>(path.session).paths += 1;
            core.attrs.retain::<F>(path.attrs, core.is_recursive(path.session), 1);
            match &mut route {
                Some(route) => route.push(&mut core.paths, path),
                None => route = Some(Route::new(prefix, path, false)),
            }
        }
        let Some(mut route) = route else { return };
        route.set_lead(lead as usize, usable);
        if core.has_unknown(&route) {
            core.unanswered.push(prefix);
        }
        if let Some(best) = core.best_of(&route) {
            core.sessions.counts::<F>(best.session).best += 1;
        }
        let hash = route::hash(prefix, &core.seed);
        self.tables.get_mut::<F>()[usize::from(logical)].insert(hash, route);
    }

    /// A route that came in waits for dataplanes, or did elsewhere.
    fn take_untold<F: Family>(&mut self, prefix: Prefix<F>, told: Option<Path>, out: &mut ShardOut) {
        let Shard { tables, core, .. } = self;
        let table = &mut tables.get_mut::<F>()[usize::from(logical_shard(prefix))];
        let Some(at) = table.find(route::hash(prefix, &core.seed), |route| route.is(prefix)) else { return };
        if let Some(told) = told {
            core.hold_told(prefix, told);
        }
        core.waits_here(table.get_mut(at), told.is_some(), out);
    }
}
