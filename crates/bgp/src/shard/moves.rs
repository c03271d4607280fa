//! Moves of a logical shard between shards, so that their number changes while sessions last.
//!
//! A logical shard moves in parts, each of about as many paths as the caller allows (see
//! [`cut`](super::cut)). The cost of a part does not depend on the rest. Between two parts both
//! shards work on what they own.
//!
//! Workers and the RIB manager get no message about a move, because the routes stay the same. The
//! exception are routes that wait for dataplanes (see [`gate`](super::gate)): the former owner
//! requested their fence. So the new owner feeds them again, which changes nothing, and gets the
//! confirmation. The caller that moves a part guarantees that
//!
//! - both shards hash with the same seed ([`Shard::with_seed`]);
//! - both shards have handled all route and session messages that were sent while the former owner
//!   had the part, and the new owner gets none for it before it adopts the part;
//! - effects of the former owner go out before those of the new one, because
//!   [`Change::old`](crate::message::Change) refers to the last change;
//! - both watch the same routes, and [`Shard::release_watch_news`] follows the adoption;
//! - both have handled the same dump requests, or unanswered ones are made again. A dump that one
//!   shard handled before the move and the other handles after it would miss the part.

use super::age::Stamp;
use super::cut::Cut;
use super::paths::Path;
use super::ranked::List;
use super::route::{self, Route};
use super::watches::MovedMember;
use super::{Core, Shard, ShardOut};
use crate::attr::AttrSet;
use crate::message::{NextHopState, TrackedNextHop};
use crate::peer::PeerInfo;
use ribtide_prefix::{
    AnyPrefix, BgpFamilies, BgpFamily, ByFamily, LogicalShard, Map, Prefix, any_bgp_family,
    for_each_bgp_family, logical_shard, per_bgp_family, sum_bgp_families,
};
use std::sync::Arc;

/// A part of a logical shard between two owners, with everything that the new owner needs.
#[derive(Debug)]
pub struct Moved {
    logical: LogicalShard,
    /// The end of the part.
    end: Cut,
    /// The sessions of its paths, which refer to them by index.
    sessions: Vec<Arc<PeerInfo>>,
    /// The attribute sets, which paths refer to by index.
    attrs: Vec<MovedSet>,
    /// The known states of their next hops.
    next_hops: Vec<(TrackedNextHop, Option<NextHopState>)>,
    /// Paths, route by route, from the oldest to the newest.
    paths: Vec<Path>,
    /// The second in which each of them changed.
    changed: Vec<u32>,
    /// The present second of the former owner.
    now: u32,
    routes: BgpFamilies<Routes>,
    /// Prefixes whose best path is not advertised, with the advertised path.
    gated: BgpFamilies<Gated>,
    /// Prefixes in watches.
    watched: BgpFamilies<Watched>,
    /// Whether workers get ranked paths, and the lists that they know.
    ranked: bool,
    lists: BgpFamilies<Lists>,
    refreshed: BgpFamilies<Refreshed>,
}

/// An attribute set, the path identifier that it came with, and the prefix of its paths if that
/// prefix contains its next hop.
type MovedSet = (AttrSet, u32, Option<AnyPrefix>);

per_bgp_family! {
    /// Paths that came since the begin of a route refresh that lasts: session, prefix and path identifier.
    #[derive(Debug)]
    struct Refreshed<F> = Vec<(u16, Prefix<F>, u32)>;
}

per_bgp_family!(struct Gated<F> = Vec<(Prefix<F>, Option<Path>)>);

per_bgp_family!(
    #[derive(Debug)]
    struct Lists<F> = Vec<(Prefix<F>, List)>
);

per_bgp_family! {
    #[derive(Debug)]
    struct Watched<F> = Vec<(Prefix<F>, MovedMember)>;
}

per_bgp_family! {
    /// Prefixes in the order of their hashes: number of paths, index of the selected one, and whether
    /// it is usable.
    #[derive(Debug)]
    struct Routes<F> = Vec<(Prefix<F>, u32, (u32, bool))>;
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
            changed: Vec::new(),
            now: 0,
            routes: BgpFamilies::default(),
            gated: BgpFamilies::default(),
            watched: BgpFamilies::default(),
            ranked: false,
            lists: BgpFamilies::default(),
            refreshed: BgpFamilies::default(),
        }
    }

    /// Whether any of its prefixes is in a watch. Then [`Shard::release_watch_news`] of the former owner
    /// must follow the adoption.
    pub fn is_watched(&self) -> bool {
        any_bgp_family!(F => !self.watched.get::<F>().is_empty())
    }

    /// The logical shard.
    pub fn logical(&self) -> LogicalShard {
        self.logical
    }

    /// The start of the next part; [`Cut::END`] after the last one.
    pub fn end(&self) -> Cut {
        self.end
    }

    /// Prefixes of both families.
    pub fn prefixes(&self) -> usize {
        sum_bgp_families!(F => self.routes.get::<F>().len())
    }

    /// Paths of all prefixes.
    pub fn paths(&self) -> usize {
        self.paths.len()
    }

    /// Sessions of the paths.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// The index of a session of the former owner; adds the session if it is new in the part.
    fn session(&mut self, number: u16, numbers: &mut Map<u16, u16>, core: &Core) -> u16 {
        *numbers.entry(number).or_insert_with(|| {
            self.sessions.push(core.sessions.get(number).info.clone());
            (self.sessions.len() - 1) as u16
        })
    }

    /// The index of an attribute set of the former owner; adds the set if it is new in the part.
    /// The note for batches serves here too; it is checked before use.
    fn index(&mut self, number: u32, core: &mut Core) -> u32 {
        let (path_id, exclude) = (core.attrs.path_id(number), core.attrs.exclude(number));
        let (attrs, noted) = core.attrs.in_batch(number);
        let same = |(set, id, of): &MovedSet| AttrSet::ptr_eq(set, attrs) && (*id, *of) == (path_id, exclude);
        if !self.attrs.get(*noted as usize).is_some_and(same) {
            *noted = self.attrs.len() as u32;
            self.attrs.push((attrs.clone(), path_id, exclude));
        }
        *noted
    }
}

impl Shard {
    /// Removes and returns the part of a logical shard that begins at `from`: as many routes as
    /// have at most `paths` paths, and at least one if there is one. Scans under way are applied to
    /// the part first, with effects in `out`. The move itself reports only next hops that went out
    /// of use. Tables keep their memory until [`Shard::shrink_table`].
    pub fn extract(&mut self, logical: LogicalShard, from: Cut, paths: usize, out: &mut ShardOut) -> Moved {
        let (ranked, now) = (self.core.ranked.is_on(), self.core.now);
        let mut moved = Moved { ranked, now, ..Moved::new(logical) };
        let mut sessions = Map::default();
        let mut left = paths.max(1);
        for_each_bgp_family!(F => if let Some(from) = from.hash::<F>() && moved.end == Cut::END {
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

    /// Moves a part of a table into `moved` and releases its attributes and sessions here.
    fn give<F: BgpFamily>(
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
        let mut lists = core.take_lists::<F>(logical, from, end, out);
        let routes = tables.get_mut::<F>()[logical].drain(from, end);
        let (mut hops, mut gone, mut gated) = (Vec::new(), Vec::new(), Vec::new());
        for route in &routes {
            if let Some(best) = core.best_of(route) {
                core.sessions.counts::<F>(best.session).best -= 1;
            }
            let first = gone.len();
            gone.extend_from_slice(route.paths(&core.paths));
            moved
                .changed
                .extend(route.stamps(&core.paths).map(|stamp| core.second_of(stamp).unwrap_or(core.now)));
            for path in &gone[first..] {
                let attrs = moved.index(path.attrs, core);
                hops.push(core.attrs.hop_number(path.attrs));
                let session = moved.session(path.session, sessions, core);
                moved.paths.push(Path { attrs, session, ..*path });
                core.sessions.counts::<F>(path.session).paths -= 1;
                if !core.refreshes.is_empty() {
                    let path_id = core.attrs.path_id(path.attrs);
                    if core.refreshes.take::<F>(path.session, (route.prefix(), path_id)) {
                        moved.refreshed.get_mut::<F>().push((session, route.prefix(), path_id));
                    }
                }
            }
            let row = (route.prefix(), route.len() as u32, (route.selected() as u32, route.is_usable()));
            moved.routes.get_mut::<F>().push(row);
            if let Some(advertised) = core.waits_elsewhere(route, out) {
                let there = advertised.map(|advertised| {
                    hops.push(core.attrs.hop_number(advertised.attrs));
                    let attrs = moved.index(advertised.attrs, core);
                    Path { attrs, session: moved.session(advertised.session, sessions, core), ..advertised }
                });
                moved.gated.get_mut::<F>().push((route.prefix(), there));
                if advertised.is_some() {
                    gated.extend(core.take_advertised::<F>(route.prefix()));
                }
            }
            if let Some(member) = core.unwatch(route.prefix()) {
                moved.watched.get_mut::<F>().push((route.prefix(), member));
            }
            route.clear(&mut core.paths);
        }
        let listed: Vec<Path> = lists.iter().flat_map(|(_, list)| list.iter().copied()).collect();
        for path in lists.iter_mut().flat_map(|(_, list)| list) {
            hops.push(core.attrs.hop_number(path.attrs));
            let attrs = moved.index(path.attrs, core);
            *path = Path { attrs, session: moved.session(path.session, sessions, core), ..*path };
        }
        *moved.lists.get_mut::<F>() = lists;
        hops.sort_unstable();
        hops.dedup();
        moved.next_hops.extend(hops.into_iter().flat_map(|hop| core.attrs.hops.known(hop)));
        // The state of a next hop is removed with its last path, so release follows the notes.
        gone.into_iter().for_each(|path| core.release::<F>(path));
        gated.into_iter().for_each(|advertised| core.release_advertised(advertised));
        core.release_moved_list(&listed);
    }

    /// Adopts a part of a logical shard. Reports next hops that came into use, and changes only
    /// where this shard has later knowledge: ended sessions are purged later, and routes reselected
    /// if a next hop has another state here.
    pub fn adopt(&mut self, moved: Moved, out: &mut ShardOut) {
        let Moved {
            logical,
            sessions,
            attrs,
            next_hops,
            mut paths,
            changed,
            now,
            mut routes,
            mut gated,
            mut watched,
            ranked,
            mut lists,
            mut refreshed,
            end: _,
        } = moved;
        // Else its paths would change in the future.
        self.set_time(now);
        if ranked {
            self.begin_ranked();
        }
        let sessions: Vec<u16> = sessions.into_iter().map(|info| self.number(info, out)).collect();
        for (next_hop, state) in next_hops {
            let news = self.core.attrs.hops.learn(next_hop, state);
            self.heard(news);
        }
        let numbers: Vec<u32> =
            attrs.iter().map(|(attrs, id, exclude)| self.core.attrs.acquire(attrs, *id, *exclude)).collect();
        let here = |path: Path| Path {
            attrs: numbers[path.attrs as usize],
            session: sessions[usize::from(path.session)],
            ..path
        };
        paths.iter_mut().for_each(|path| *path = here(*path));
        let stamps: Vec<Stamp> = changed.iter().map(|second| Stamp::of(*second, self.core.now)).collect();
        let mut rest = (&paths[..], &stamps[..]);
        for_each_bgp_family!(F => for (prefix, len, selected) in std::mem::take(routes.get_mut::<F>()) {
            let parts = rest.0.split_at_checked(len as usize).zip(rest.1.split_at_checked(len as usize));
            if let Some(((paths, other_paths), (stamps, other_stamps))) = parts {
                self.take(logical, prefix, (paths, stamps), selected);
                rest = (other_paths, other_stamps);
            }
        });
        for_each_bgp_family!(F => for (prefix, member) in std::mem::take(watched.get_mut::<F>()) {
            self.core.adopt_watched(prefix, member);
        });
        for_each_bgp_family!(F => for (prefix, mut list) in std::mem::take(lists.get_mut::<F>()) {
            list.iter_mut().for_each(|path| *path = here(*path));
            self.core.take_list(prefix, &list);
        });
        for_each_bgp_family!(F => for (session, prefix, path_id) in std::mem::take(refreshed.get_mut::<F>()) {
            self.core.refreshes.note(sessions[usize::from(session)], path_id, &[prefix], true);
        });
        for_each_bgp_family!(F => for (prefix, advertised) in std::mem::take(gated.get_mut::<F>()) {
            self.take_gated(prefix, advertised.map(here), out);
        });
        numbers.iter().for_each(|number| self.core.attrs.release_ref(*number));
        self.core.settle(out);
        if self.core.sessions.any_ending() {
            self.work.purge();
        }
        if self.core.sessions.iter().any(|(_, session)| session.has_long_lived()) {
            // They may have left the other shard before it knew.
            self.work.mark_long_lived();
        }
        self.core.clear_out(out);
    }

    /// Prefixes of each family in a logical shard.
    pub fn table_len(&self, logical: LogicalShard) -> ByFamily<usize> {
        let mut lens = ByFamily::default();
        for_each_bgp_family!(F => lens[F::ID] = self.tables.get::<F>()[usize::from(logical)].len());
        lens
    }

    /// Reserves memory for the prefixes of a logical shard that is about to arrive, so that no part
    /// makes a table grow. [`Shard::shrink_table`] releases it.
    pub fn reserve_table(&mut self, logical: LogicalShard, lens: ByFamily<usize>) {
        let logical = usize::from(logical);
        for_each_bgp_family!(F => {
            let table = &mut self.tables.get_mut::<F>()[logical];
            table.reserve(lens[F::ID]);
            if let Some(lists) = self.core.ranked.table::<F>(logical) {
                lists.reserve(table.reserved());
            }
        });
    }

    /// Shrinks the tables of a logical shard after its move.
    pub fn shrink_table(&mut self, logical: LogicalShard) {
        for_each_bgp_family!(F => {
            let table = &mut self.tables.get_mut::<F>()[usize::from(logical)];
            table.unreserve();
            table.shrink_if_sparse();
            if let Some(lists) = self.core.ranked.table::<F>(usize::from(logical)) {
                lists.unreserve();
                lists.shrink_if_sparse();
            }
        });
    }

    /// The local number of a session that was up in the former shard, or had retained paths there.
    fn number(&mut self, info: Arc<PeerInfo>, out: &mut ShardOut) -> u16 {
        let (peer, session) = (info.id, info.session);
        let sessions = &mut self.core.sessions;
        let number = sessions.number(peer, session).or_else(|| sessions.retained_again(peer, session));
        let number = match number {
            Some(number) => Some(number),
            None if self.core.sessions.latest(peer).is_some_and(|latest| latest >= session) => {
                let number = self.core.sessions.begin_ended(info);
                number.inspect(|number| self.core.refreshes.forget(*number))
            }
            None => {
                self.peer_up(info, out);
                self.core.sessions.number(peer, session)
            }
        };
        number.expect("a router has fewer than 65,535 sessions")
    }

    /// Adds an adopted route.
    fn take<F: BgpFamily>(
        &mut self,
        logical: LogicalShard,
        prefix: Prefix<F>,
        (paths, stamps): (&[Path], &[Stamp]),
        (selected, usable): (u32, bool),
    ) {
        let core = &mut self.core;
        for path in paths {
            core.sessions.counts::<F>(path.session).paths += 1;
            if !core.refreshes.is_empty() {
                core.refreshes.adopted::<F>(path.session, (prefix, core.attrs.path_id(path.attrs)));
            }
            core.attrs.retain::<F>(path.attrs, core.is_recursive(path.session), 1);
        }
        let route = Route::of(prefix, &mut core.paths, paths, stamps, selected as usize, usable);
        if core.has_unknown(&route) {
            core.unanswered.push(prefix);
        }
        if let Some(best) = core.best_of(&route) {
            core.sessions.counts::<F>(best.session).best += 1;
        }
        let hash = route::hash(prefix, &core.seed);
        self.tables.get_mut::<F>()[usize::from(logical)].insert(hash, route);
    }

    /// Sets the gate of an adopted route that waited for dataplanes in the former shard.
    fn take_gated<F: BgpFamily>(&mut self, prefix: Prefix<F>, advertised: Option<Path>, out: &mut ShardOut) {
        let Shard { tables, core, .. } = self;
        let table = &mut tables.get_mut::<F>()[usize::from(logical_shard(prefix))];
        let Some(at) = table.find(route::hash(prefix, &core.seed), |route| route.is(prefix)) else { return };
        if let Some(advertised) = advertised {
            core.hold_advertised(prefix, advertised);
        }
        core.waits_here(table.get_mut(at), advertised.is_some(), out);
    }
}
