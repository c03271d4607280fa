//! The ranked paths of prefixes, for workers that send more than the best path of each: several paths
//! (RFC 7911), or a best path for each client (RFC 7947 section 2.3.2).
//!
//! A worker derives what a peer was sent from the former paths and the export policy, so each change
//! has the former paths too. They cannot be derived from the present state: a next hop or a session
//! changes for all prefixes at once. So a shard keeps the list that workers know of each prefix:
//! its slot of a table, and eight bytes for each path of a prefix with several. It does so while a worker
//! needs it, and for all update groups together; otherwise a path costs a test of a flag when it changes.
//!
//! - **A change notes its prefix.** [`Shard::send_ranked`] compares the noted prefixes with the lists,
//!   before the effects are taken. So several changes in one batch are one.
//! - **The gate of a prefix holds all of its paths.** While a former path stays advertised, its list stays
//!   as it was. A prefix that dataplanes do not have has an empty list. Otherwise every usable path is in it,
//!   and needs no confirmation: the route of the prefix forwards packets by the best path, whichever path
//!   a peer used to send them here.
//! - **A list is empty when no best path is advertised**, and not before: a member may move between groups of
//!   best paths and of ranked ones, and withdrawals are derived from either.
//! - **A path has one identifier as long as it is there**, derived from its peer and the identifier that
//!   it came with. Where two paths of a prefix would have the same, the later one has another, which
//!   the list remembers.

use super::effects::{Marked, Others, index};
use super::gate::Gate;
use super::paths::{Path, PathStore};
use super::route::{self, Route};
use super::table::Table;
use super::{Core, Shard, ShardOut, Tables};
use crate::decision::{self, Candidate};
use crate::message::{BestPath, RankedBatch, RankedChange, RankedPath};
use ribtide_prefix::{
    BgpFamilies, BgpFamily, Prefix, any_bgp_family, for_each_bgp_family, logical_shard, per_bgp_family,
};
use smallvec::SmallVec;
use std::hash::BuildHasher;

/// The lists that workers know.
#[derive(Default)]
pub(super) struct RankedLists {
    /// Whether any worker needs them.
    on: bool,
    /// By logical shard, as the tables of routes; without a prefix that has no path in its list. A path has the
    /// [`Mark`] in place of its hint.
    tables: BgpFamilies<Tables>,
    store: PathStore,
    /// Prefixes whose list may differ from their paths, some of them twice.
    noted: BgpFamilies<Noted>,
    /// Tables of a time that is over; their references are not released yet.
    dropped: BgpFamilies<Tables>,
}

per_bgp_family!(struct Noted<F> = Vec<Prefix<F>>);

/// The paths of a list.
pub(super) type List = SmallVec<[Path; 8]>;

/// What a list has of a path beside its attributes and session, in sixteen bits.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Mark(u16);

impl Mark {
    fn new(equal: bool, turn: u16) -> Mark {
        Mark(turn << 1 | u16::from(equal))
    }

    /// Whether the path equals the best.
    fn is_equal(self) -> bool {
        self.0 & 1 != 0
    }

    /// Which of the identifiers that its peer and received identifier give it has; 0 but where others had that.
    fn turn(self) -> u16 {
        self.0 >> 1
    }
}

impl RankedLists {
    /// Notes a prefix whose paths changed.
    #[inline]
    pub(super) fn note<F: BgpFamily>(&mut self, prefix: Prefix<F>) {
        if self.on {
            self.noted.get_mut::<F>().push(prefix);
        }
    }

    /// Whether any worker needs the lists.
    pub(super) fn is_on(&self) -> bool {
        self.on
    }

    fn is_due(&self) -> bool {
        any_bgp_family!(F => !self.noted.get::<F>().is_empty())
    }

    /// Whether [`Shard::release_dropped`] has something to do.
    pub(super) fn has_dropped(&self) -> bool {
        any_bgp_family!(F => !self.dropped.get::<F>().is_empty())
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let mut bytes = self.store.memory();
        for_each_bgp_family!(F => {
            let tables = self.tables.get::<F>().iter().chain(self.dropped.get::<F>());
            bytes += tables.map(Table::memory).sum::<usize>();
        });
        bytes
    }

    /// The table of a logical shard, while any worker needs lists.
    pub(super) fn table<F: BgpFamily>(&mut self, logical: usize) -> Option<&mut Table<Route<F>>> {
        self.tables.get_mut::<F>().get_mut(logical)
    }

    /// Shrinks its tables to their contents.
    pub(super) fn shrink_to_fit(&mut self) {
        for_each_bgp_family!(F => {
            self.tables.get_mut::<F>().iter_mut().for_each(Table::shrink_to_fit);
            self.noted.get_mut::<F>().shrink_to_fit();
        });
    }
}

impl Shard {
    /// Whether [`Shard::send_ranked`] has something to do.
    pub fn ranked_due(&self) -> bool {
        self.core.ranked.is_due()
    }

    /// Whether changes of ranked paths are sent.
    pub fn sends_ranked(&self) -> bool {
        self.core.ranked.on
    }

    /// From now on changes of ranked paths are sent: a worker has requested a dump of them.
    pub(super) fn begin_ranked(&mut self) {
        let Shard { tables, core, .. } = self;
        if !core.ranked.on {
            core.ranked.on = true;
            for_each_bgp_family!(F => {
                let mut lists = super::tables::<F>(&core.seed);
                let reserved = tables.get::<F>().iter().map(Table::reserved);
                lists.iter_mut().zip(reserved).for_each(|(lists, len)| lists.reserve(len));
                *core.ranked.tables.get_mut::<F>() = lists;
            });
        }
    }

    /// No worker needs ranked paths any more: no changes are sent until the next dump of them. Memory is
    /// released in steps.
    pub fn end_ranked(&mut self) {
        let ranked = &mut self.core.ranked;
        ranked.on = false;
        ranked.noted = BgpFamilies::default();
        for_each_bgp_family!(F => {
            let tables = std::mem::take(ranked.tables.get_mut::<F>());
            ranked.dropped.get_mut::<F>().extend(tables.into_iter().filter(|table| table.len() > 0));
        });
    }

    /// Sends the changes of ranked paths since the last call. Call it before [`ShardOut::take`].
    pub fn send_ranked(&mut self, out: &mut ShardOut) {
        if !self.core.ranked.is_due() {
            return;
        }
        let Shard { tables, core, .. } = self;
        for_each_bgp_family!(F => {
            let mut noted = std::mem::take(core.ranked.noted.get_mut::<F>());
            noted.sort_unstable();
            noted.dedup();
            for prefix in &noted {
                let hash = route::hash(*prefix, &core.seed);
                let table = &tables.get::<F>()[usize::from(logical_shard(*prefix))];
                let route = table.find(hash, |route| route.is(*prefix)).map(|at| *table.get(at));
                core.send_list(*prefix, hash, route, out);
            }
            noted.clear();
            *core.ranked.noted.get_mut::<F>() = noted;
        });
        core.settle(out);
        core.clear_out(out);
    }

    /// Releases some of the lists that no worker needs: those of one logical shard and family.
    pub(super) fn release_dropped(&mut self, out: &mut ShardOut) {
        let core = &mut self.core;
        for_each_bgp_family!(F => if let Some(table) = core.ranked.dropped.get_mut::<F>().pop() {
            for list in table.iter() {
                core.release_list(list);
            }
        });
        core.settle(out);
    }

    /// The ranked paths of exactly this prefix as workers know them, or would.
    pub fn ranked_of<F: BgpFamily>(&self, prefix: Prefix<F>) -> RankedBatch {
        let core = &self.core;
        let hash = route::hash(prefix, &core.seed);
        let table = &self.tables.get::<F>()[usize::from(logical_shard(prefix))];
        let route = table.find(hash, |route| route.is(prefix)).map(|at| table.get(at));
        let former = core.list(prefix, hash);
        let list = core.list_of(route, &former).unwrap_or(former);
        let mut batch = RankedBatch::default();
        for path in &list {
            let source = core.sessions.get(path.session).info.id;
            let attrs = core.attrs.get(path.attrs).clone();
            batch.paths.push(BestPath { attrs, source, suppressed: false });
            let number = batch.ranked.len() as u32;
            batch.ranked.push(RankedPath { path: number, ..core.as_ranked(*path) });
        }
        let change = RankedChange { prefix, start: 0, old: 0, new: list.len() as u32 };
        batch.changes.get_mut::<F>().push(change);
        batch
    }
}

/// A part of a dump of ranked paths.
#[derive(Default)]
pub(super) struct RankedPart {
    pub(super) batch: RankedBatch,
    others: Others,
}

impl Core {
    /// The list that workers know of a prefix.
    fn list<F: BgpFamily>(&self, prefix: Prefix<F>, hash: u32) -> List {
        let Some(table) = self.ranked.tables.get::<F>().get(usize::from(logical_shard(prefix))) else {
            return List::new();
        };
        let found = table.find(hash, |list| list.is(prefix)).map(|at| table.get(at));
        found.map_or_else(List::new, |list| List::from_slice(list.paths(&self.ranked.store)))
    }

    /// The list that a route has now, or `None` while `former` stays.
    fn list_of<F: BgpFamily>(&self, route: Option<&Route<F>>, former: &[Path]) -> Option<List> {
        let Some(route) = route.filter(|route| !self.is_suppressed(route.prefix())) else {
            return Some(List::new());
        };
        let is_outdated = || route.best().is_some_and(|best| !self.usable(route.paths(&self.paths)[best]));
        if route.gate().advertises_former() || (route.gate() == Gate::OPEN && is_outdated()) {
            // Workers that get ranked paths from now on get the advertised one.
            let advertised =
                || self.advertised(route).map(|path| Path { hint: Mark::new(true, 0).0, ..path });
            return former.is_empty().then(|| advertised().into_iter().collect());
        }
        let is_advertised = route.gate() == Gate::OPEN && route.best().is_some();
        let mut list = if is_advertised { self.rank_paths(route) } else { List::new() };
        self.number(&mut list, former);
        Some(list)
    }

    /// The usable paths of a route from the best on.
    fn rank_paths<F: BgpFamily>(&self, route: &Route<F>) -> List {
        let paths = route.paths(&self.paths);
        let marked = |path: Path, equal| Path { hint: Mark::new(equal, 0).0, ..path };
        if let [only] = paths {
            return self.usable(*only).then(|| marked(*only, true)).into_iter().collect();
        }
        let candidates: SmallVec<[Candidate<'_>; 8]> =
            paths.iter().map(|path| self.candidate(*path)).collect();
        let order = decision::ranked(&candidates[..], &self.options);
        order.iter().map(|ranked| marked(paths[ranked.index], ranked.equal)).collect()
    }

    /// The identifier of a listed path.
    fn sent_id(&self, path: Path) -> u32 {
        self.sent_id_at(path, Mark(path.hint).turn())
    }

    /// The identifier number `turn` that a path may have.
    fn sent_id_at(&self, path: Path, turn: u16) -> u32 {
        let peer = self.sessions.get(path.session).info.id.0;
        self.sent_id_of(peer, self.attrs.path_id(path.attrs), turn)
    }

    /// The identifier number `turn` that a path of a peer with this received identifier may have.
    pub(super) fn sent_id_of(&self, peer: u32, received: u32, turn: u16) -> u32 {
        /// Set in identifiers that may be equal.
        const HASHED: u32 = 1 << 31;
        // Most are legible: the peer's number above, the received identifier below.
        match (u16::try_from(peer + 1), u16::try_from(received)) {
            (Ok(peer), Ok(received)) if turn == 0 && peer < 1 << 15 => {
                u32::from(peer) << 16 | u32::from(received)
            }
            // Seeded, because the neighbour chooses the received one.
            _ => self.seed.hash_one((peer, received, turn)) as u32 | HASHED,
        }
    }

    /// Gives the paths of a list identifiers that no other path of it has: of the paths that were in
    /// the former list, the same as there.
    fn number(&self, list: &mut [Path], former: &[Path]) {
        if list.len() < 2 && former.iter().all(|path| Mark(path.hint).turn() == 0) {
            return;
        }
        let mut ids: SmallVec<[u32; 8]> = list.iter().map(|path| self.sent_id(*path)).collect();
        ids.sort_unstable();
        let all_differ = ids.windows(2).all(|pair| pair[0] != pair[1]);
        if !all_differ || former.iter().any(|path| Mark(path.hint).turn() > 0) {
            self.number_apart(list, former);
        }
    }

    #[cold]
    #[inline(never)]
    fn number_apart(&self, list: &mut [Path], former: &[Path]) {
        let source = |path: Path| (self.sessions.get(path.session).info.id, self.attrs.path_id(path.attrs));
        let mut taken: Vec<u32> = former.iter().map(|path| self.sent_id(*path)).collect();
        let mut kept = vec![false; former.len()];
        // The same session first; then a session that took the path over.
        let mut new: Vec<usize> = (0..list.len()).collect();
        for same_session in [true, false] {
            new.retain(|at| {
                let path = list[*at];
                let is = |(n, before): &(usize, &Path)| {
                    !kept[*n]
                        && source(**before) == source(path)
                        && (!same_session || before.session == path.session)
                };
                let Some((n, before)) = former.iter().enumerate().find(is) else { return true };
                kept[n] = true;
                list[*at].hint = Mark::new(Mark(path.hint).is_equal(), Mark(before.hint).turn()).0;
                false
            });
        }
        for at in new {
            let path = list[at];
            let free = (0..u16::MAX >> 1).find(|turn| !taken.contains(&self.sent_id_at(path, *turn)));
            let turn = free.unwrap_or_default();
            taken.push(self.sent_id_at(path, turn));
            list[at].hint = Mark::new(Mark(path.hint).is_equal(), turn).0;
        }
    }

    /// A listed path for workers, but for its index.
    fn as_ranked(&self, path: Path) -> RankedPath {
        RankedPath { path: 0, id: self.sent_id(path), equal: Mark(path.hint).is_equal() }
    }

    /// Compares the list of a prefix with its route, and sends the change.
    fn send_list<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        hash: u32,
        route: Option<Route<F>>,
        out: &mut ShardOut,
    ) {
        let former = self.list(prefix, hash);
        if let Some(list) = self.list_of(route.as_ref(), &former) {
            self.replace_list(prefix, hash, &former, &list, out);
        }
    }

    /// Another list takes the place of the former one, and workers get the difference.
    fn replace_list<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        hash: u32,
        former: &[Path],
        list: &[Path],
        out: &mut ShardOut,
    ) {
        let exactly = |(a, b): (&Path, &Path)| (a.attrs, a.session, a.hint) == (b.attrs, b.session, b.hint);
        if former.len() == list.len() && former.iter().zip(list).all(exactly) {
            return;
        }
        let source = |path: &Path| &self.sessions.get(path.session).info;
        let same_set = |a: u32, b: u32| a == b || self.attrs.is_same_set(a, b);
        let same = |(a, b): (&Path, &Path)| {
            source(a).id == source(b).id
                && same_set(a.attrs, b.attrs)
                && self.as_ranked(*a) == self.as_ranked(*b)
        };
        // A later session of a peer may have another BGP identifier, which is sent to internal peers.
        let renewed = former.iter().filter(|a| self.sessions.get(a.session).is_over()).any(|a| {
            let again =
                list.iter().filter(|b| b.session != a.session && self.sent_id(**b) == self.sent_id(*a));
            again.map(source).any(|b| b.id == source(a).id && b.router_id != source(a).router_id)
        });
        let same_for_workers = former.len() == list.len() && former.iter().zip(list).all(same);
        if renewed {
            self.change_list(prefix, former, &[], out);
            self.change_list(prefix, &[], list, out);
        } else if !same_for_workers {
            self.change_list(prefix, former, list, out);
        }
        self.hold_list(list);
        self.store_list(prefix, hash, list);
        former.iter().for_each(|path| self.release_listed(*path));
    }

    /// Sends a change of ranked paths. The attribute sets of all are still in use.
    fn change_list<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        former: &[Path],
        list: &[Path],
        out: &mut ShardOut,
    ) {
        let Some((batch, others)) = out.ranked() else { return };
        self.add_change(prefix, former, list, batch, others);
    }

    fn add_change<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        former: &[Path],
        list: &[Path],
        batch: &mut RankedBatch,
        others: &mut Others,
    ) {
        let (start, old, new) = (batch.ranked.len() as u32, former.len() as u32, list.len() as u32);
        for path in former.iter().chain(list) {
            let ranked = self.as_ranked(*path);
            let source = self.sessions.get(path.session).info.id;
            let (attrs, noted) = self.attrs.in_batch(path.attrs);
            let path = index(others, &mut batch.paths, attrs, Marked::not(source), noted);
            batch.ranked.push(RankedPath { path, ..ranked });
        }
        batch.changes.get_mut::<F>().push(RankedChange { prefix, start, old, new });
    }

    /// Adds the ranked paths of a route to a dump. No prefix is noted, so a list that no worker knows is one that all
    /// dumps under way have still before them.
    pub(super) fn dump_list<F: BgpFamily>(&mut self, route: &Route<F>, part: &mut RankedPart) {
        if !self.ranked.on {
            return;
        }
        let prefix = route.prefix();
        let hash = route::hash(prefix, &self.seed);
        let mut list = self.list(prefix, hash);
        if list.is_empty() {
            list = self.list_of(Some(route), &[]).unwrap_or_default();
            self.hold_list(&list);
            self.store_list(prefix, hash, &list);
        }
        if !list.is_empty() {
            let RankedPart { batch, others } = part;
            self.add_change(prefix, &[], &list, batch, others);
        }
    }

    /// Adds the list that workers know of a route to a page for stations. A list that no worker knows is still before a
    /// dump under way.
    pub(super) fn page_list<F: BgpFamily>(&mut self, route: &Route<F>, part: &mut RankedPart) {
        if !self.ranked.on {
            return;
        }
        let prefix = route.prefix();
        let list = self.list(prefix, route::hash(prefix, &self.seed));
        if !list.is_empty() {
            let RankedPart { batch, others } = part;
            self.add_change(prefix, &[], &list, batch, others);
        }
    }

    /// The paths of a list keep their attributes and sessions.
    fn hold_list(&mut self, list: &[Path]) {
        for path in list {
            self.attrs.hold(path.attrs);
            self.sessions.hold(path.session);
        }
    }

    fn release_listed(&mut self, path: Path) {
        self.attrs.release_ref(path.attrs);
        self.sessions.release_ref(path.session);
    }

    fn release_list<F: BgpFamily>(&mut self, list: &Route<F>) {
        let paths = List::from_slice(list.paths(&self.ranked.store));
        list.clear(&mut self.ranked.store);
        paths.iter().for_each(|path| self.release_listed(*path));
    }

    /// Stores a list in place of the former one of its prefix. The caller counts references.
    fn store_list<F: BgpFamily>(&mut self, prefix: Prefix<F>, hash: u32, list: &[Path]) {
        let RankedLists { tables, store, .. } = &mut self.ranked;
        let Some(table) = tables.get_mut::<F>().get_mut(usize::from(logical_shard(prefix))) else { return };
        let at = table.find(hash, |list| list.is(prefix));
        if let Some(at) = at {
            table.get(at).clear(store);
        }
        if list.is_empty() {
            if let Some(at) = at {
                table.remove(at);
                table.shrink_if_sparse();
            }
            return;
        }
        let stored = Route::of(prefix, store, list, &[], 0, true);
        match at {
            Some(at) => *table.get_mut(at) = stored,
            None => table.insert(hash, stored),
        }
    }

    /// Takes the lists of a part of a logical shard out of the tables, because it moves to another shard. No prefix of it is
    /// noted. Paths of ended sessions are withdrawn instead, because the end of these sessions is reported here.
    pub(super) fn take_lists<F: BgpFamily>(
        &mut self,
        logical: usize,
        from: u32,
        end: Option<u32>,
        out: &mut ShardOut,
    ) -> Vec<(Prefix<F>, List)> {
        let Some(table) = self.ranked.table::<F>(logical) else { return Vec::new() };
        let drained = table.drain(from, end);
        let mut lists = Vec::with_capacity(drained.len());
        for stored in drained {
            let (prefix, former) = (stored.prefix(), List::from_slice(stored.paths(&self.ranked.store)));
            stored.clear(&mut self.ranked.store);
            let up = |path: &Path| self.sessions.get(path.session).up;
            let list: List = former.iter().copied().filter(up).collect();
            if list.len() < former.len() {
                self.change_list(prefix, &former, &list, out);
                former.iter().filter(|path| !list.contains(path)).for_each(|path| self.release_listed(*path));
            }
            if !list.is_empty() {
                lists.push((prefix, list));
            }
        }
        lists
    }

    /// Undoes the references of a list that has moved.
    pub(super) fn release_moved_list(&mut self, list: &[Path]) {
        list.iter().for_each(|path| self.release_listed(*path));
    }

    /// Adds the list of an adopted prefix.
    pub(super) fn take_list<F: BgpFamily>(&mut self, prefix: Prefix<F>, list: &[Path]) {
        self.hold_list(list);
        self.store_list(prefix, route::hash(prefix, &self.seed), list);
    }
}
