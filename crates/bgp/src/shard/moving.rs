//! A logical shard that moves from one shard to another, so that their number may change while sessions last.
//!
//! It moves in parts, each of about as many paths as whoever moves it says (see [`cut`](super::cut)), and what a part costs does
//! not depend on what there is beside it. Between two parts both shards work as always, each on what it has.
//!
//! Neither side says anything of it to workers or the RIB manager: to them it is the same route, and which shard
//! speaks of it is of no interest. There is one exception: the giver requested what waits for dataplanes (see [`gate`](super::gate)), so the
//! taker feeds it again, which changes nothing and is confirmed to it. The caller that moves a part guarantees that
//!
//! - both shards hash with the same seed ([`Shard::with_seed`]);
//! - both shards have handled all routes and session messages that were sent while the giver owned the part,
//!   and the taker gets none for it before it has taken it;
//! - what the giver said goes out before what the taker says from then on, as [`Change::old`](crate::message::Change)
//!   follows from what was said last;
//! - both have handled the same dump requests, or unanswered ones are made again: a request that the taker had handled
//!   before and the giver handles after the move shows nothing of it.

use super::cut::Cut;
use super::paths::Path;
use super::route::{self, Route};
use super::{Core, Shard, ShardOut};
use crate::attr::AttrSet;
use crate::message::{NextHopState, TrackedNextHop};
use crate::peer::PeerInfo;
use ribtide_prefix::{
    AnyPrefix, Families, Family, LogicalShard, Map, PerFamily, Prefix, for_each_family, logical_shard,
};
use std::sync::Arc;

/// A part of a logical shard on its way: all that its new owner must know to go on as if it had always had it.
#[derive(Debug)]
pub struct Moved {
    logical: LogicalShard,
    /// Where the part ends.
    end: Cut,
    /// The sessions of its paths, which name them by index.
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

/// Prefixes in the order of their hashes: how many of the paths are each one's, which of these is selected, and whether it can be
/// used.
#[derive(Debug)]
struct Routes;
impl PerFamily for Routes {
    type Of<F: Family> = Vec<(Prefix<F>, u32, (u32, bool))>;
}

impl Moved {
    fn new(logical: LogicalShard) -> Moved {
        Moved {
            logical,
            end: Cut::END,
            sessions: Vec::new(),
            attrs: Vec::new(),
            next_hops: Vec::new(),
            paths: Vec::new(),
            routes: Families::default(),
            untold: Families::default(),
        }
    }

    /// Which logical shard it is of.
    pub fn logical(&self) -> LogicalShard {
        self.logical
    }

    /// Where the next part begins. [`Cut::END`] with the last one.
    pub fn end(&self) -> Cut {
        self.end
    }

    /// How many prefixes it has, of both families.
    pub fn prefixes(&self) -> usize {
        self.routes.v4.len() + self.routes.v6.len()
    }

    /// How many paths they have.
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    /// How many sessions these are of.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The index of a session of the giver, which joins what moves if it is new here.
    fn session(&mut self, number: u16, numbers: &mut Map<u16, u16>, core: &Core) -> u16 {
        *numbers.entry(number).or_insert_with(|| {
            self.sessions.push(core.sessions.get(number).info.clone());
            (self.sessions.len() - 1) as u16
        })
    }

    /// The index of an attribute set of the giver, which joins what moves if it is new here. The note of where a batch has a set
    /// serves here too: it is compared before it is believed.
    fn index(&mut self, number: u32, core: &mut Core) -> u32 {
        let exclude = core.attrs.exclude(number);
        let (attrs, noted) = core.attrs.in_batch(number);
        let same =
            |there: &(AttrSet, Option<AnyPrefix>)| AttrSet::ptr_eq(&there.0, attrs) && there.1 == exclude;
        if !self.attrs.get(*noted as usize).is_some_and(same) {
            *noted = self.attrs.len() as u32;
            self.attrs.push((attrs.clone(), exclude));
        }
        *noted
    }
}

impl Shard {
    /// Gives a part of a logical shard away: what stands behind `from`, as many routes as have no more than `paths` paths, and
    /// one at least if there is one. Work on these routes that is under way is done first, and said in `out`; the move itself says
    /// no more than which next hops are out of use here. The tables' memory stays until [`Shard::shrink_table`].
    pub fn extract(&mut self, logical: LogicalShard, from: Cut, paths: usize, out: &mut ShardOut) -> Moved {
        let mut moved = Moved::new(logical);
        let mut sessions = Map::default();
        let mut left = paths.max(1);
        for_each_family!(F => if let Some(from) = from.hash::<F>() && moved.end == Cut::END {
            if left == 0 {
                moved.end = Cut::before::<F>(Some(from));
            } else {
                self.give::<F>(from, &mut left, &mut moved, &mut sessions, out);
            }
        });
        moved.next_hops.sort_unstable_by_key(|(next_hop, _)| *next_hop);
        moved.next_hops.dedup_by_key(|(next_hop, _)| *next_hop);
        self.core.clear_out(out);
        moved
    }

    /// Puts a part of a table into `moved` and releases the attributes and sessions that its routes referenced here.
    fn give<F: Family>(
        &mut self,
        from: u32,
        left: &mut usize,
        moved: &mut Moved,
        sessions: &mut Map<u16, u16>,
        out: &mut ShardOut,
    ) {
        let logical = usize::from(moved.logical);
        let table = &self.tables.get::<F>()[logical];
        let end = table.run(from, left, Route::len);
        if end.is_some() {
            moved.end = Cut::before::<F>(end);
        }
        self.work_on::<F>(moved.logical, from, end, out);
        let Shard { tables, core, .. } = self;
        let routes = tables.get_mut::<F>()[logical].drain(from, end);
        let (mut hops, mut gone, mut untold) = (Vec::new(), Vec::new(), Vec::new());
        for route in &routes {
            if let Some(best) = core.best_of(route) {
                core.sessions.counts::<F>(best.session).best -= 1;
            }
            let first = gone.len();
            gone.extend_from_slice(route.paths(&core.paths));
            for path in &gone[first..] {
                let attrs = moved.index(path.attrs, core);
                hops.push(core.attrs.hop_number(path.attrs));
                let session = moved.session(path.session, sessions, core);
                moved.paths.push(Path { attrs, session, ..*path });
                core.sessions.counts::<F>(path.session).paths -= 1;
            }
            let row = (route.prefix(), route.len() as u32, (route.selected() as u32, route.is_usable()));
            moved.routes.get_mut::<F>().push(row);
            if let Some(told) = core.waits_elsewhere(route, out) {
                let there = told.map(|told| {
                    hops.push(core.attrs.hop_number(told.attrs));
                    let attrs = moved.index(told.attrs, core);
                    Path { attrs, session: moved.session(told.session, sessions, core), ..told }
                });
                moved.untold.get_mut::<F>().push((route.prefix(), there));
                if told.is_some() {
                    untold.extend(core.take_told::<F>(route.prefix()));
                }
            }
            route.clear(&mut core.paths);
        }
        hops.sort_unstable();
        hops.dedup();
        moved.next_hops.extend(hops.into_iter().flat_map(|hop| core.attrs.hops.known(hop)));
        // What was known of a next hop is forgotten with its last path: not before all is noted.
        gone.into_iter().for_each(|path| core.release::<F>(path));
        untold.into_iter().for_each(|told| core.let_go_told(told));
    }

    /// Takes a part of a logical shard that another gave away. Says which next hops are in use here now, and nothing else
    /// unless this shard knows better: paths of sessions that it knows to be over are swept later, and routes judged again
    /// if a next hop is known otherwise here.
    pub fn adopt(&mut self, moved: Moved, out: &mut ShardOut) {
        let Moved { logical, sessions, attrs, next_hops, mut paths, mut routes, mut untold, .. } = moved;
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
        paths.iter_mut().for_each(|path| *path = here(*path));
        let mut rest = &paths[..];
        for_each_family!(F => for (prefix, len, selected) in std::mem::take(routes.get_mut::<F>()) {
            if let Some((of_route, others)) = rest.split_at_checked(len as usize) {
                self.take(logical, prefix, of_route, selected);
                rest = others;
            }
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

    /// How many prefixes of each family this shard has of a logical shard.
    pub fn table_len(&self, logical: LogicalShard) -> (usize, usize) {
        let logical = usize::from(logical);
        (self.tables.v4[logical].len(), self.tables.v6[logical].len())
    }

    /// Makes room for so many prefixes of each family of a logical shard that is about to come, so that no part of it makes a
    /// table grow. The room stays until [`Shard::shrink_table`].
    pub fn reserve_table(&mut self, logical: LogicalShard, (v4, v6): (usize, usize)) {
        let logical = usize::from(logical);
        self.tables.v4[logical].reserve(v4);
        self.tables.v6[logical].reserve(v6);
    }

    /// Shrinks the tables of a logical shard after it has moved.
    pub fn shrink_table(&mut self, logical: LogicalShard) {
        for_each_family!(F => {
            let table = &mut self.tables.get_mut::<F>()[usize::from(logical)];
            table.unreserve();
            table.shrink_if_sparse();
        });
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
        paths: &[Path],
        (selected, usable): (u32, bool),
    ) {
        let core = &mut self.core;
        for path in paths {
            core.sessions.counts::<F>(path.session).paths += 1;
            core.attrs.retain::<F>(path.attrs, core.is_recursive(path.session), 1);
        }
        let route = Route::of(prefix, &mut core.paths, paths, selected as usize, usable);
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
