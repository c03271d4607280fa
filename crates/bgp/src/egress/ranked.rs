//! Peers that get more than the best path of a prefix, or their own choice of it: the selection among
//! ranked paths, and its changes.
//!
//! The advertised paths of a group are derived, as for best paths: the selection among the former
//! ranked paths, by the group's rules and export policy. The difference of the two selections becomes
//! pending, each path under its identifier, or the only one under its prefix.
//!
//! As in [`super::conditional`], a prefix is advertised by the former settings until it goes over in a
//! transition. The selection before a change is then that of the former settings, and the one after it
//! that of the present ones.

use super::cohort::Cohort;
use super::group::Group;
use super::offers::Offers;
use super::paths::{Handle, Paths};
use super::pending::{AdvertisedSource, Key, Phase};
use super::view::View;
use super::{Export, Worker, adj_rib_out, conditional};
use crate::message::{BestPath, NONE, RankedBatch, RankedPath};
use crate::peer::{EgressSettings, PathSelection, PeerId};
use ribtide_prefix::{BgpFamily, Prefix};
use ribtide_wire::bgp::nlri::PathPrefix;
use smallvec::SmallVec;
use std::num::NonZeroU16;

/// A selection among ranked paths, in the order of their identifiers.
pub(super) type Selected = SmallVec<[RankedPath; 8]>;

/// A group's selection among the ranked paths of prefixes of one family.
#[derive(Clone, Copy)]
pub(super) struct Selector<'a> {
    selection: PathSelection,
    /// Whether the paths are sent with identifiers.
    has_ids: bool,
    /// The only receiver, if there is one. Its own paths do not count.
    client: Option<PeerId>,
    paths: &'a [BestPath],
}

impl<'a> Selector<'a> {
    pub(super) fn new<F: BgpFamily>(settings: &EgressSettings, paths: &'a [BestPath]) -> Selector<'a> {
        let several = settings.add_path.of(F::ID);
        Selector {
            selection: several.unwrap_or(PathSelection::Best(NonZeroU16::MIN)),
            has_ids: several.is_some(),
            client: settings.client,
            paths,
        }
    }

    /// The selected ones of `ranked`, in the order of their identifiers.
    pub(super) fn select<F: BgpFamily>(
        self,
        ranked: &[RankedPath],
        prefix: Prefix<F>,
        offers: &mut Offers<'_>,
    ) -> Selected {
        let path = |ranked: &RankedPath| &self.paths[ranked.path as usize];
        let accepted = |ranked: &RankedPath| {
            self.client != Some(path(ranked).source)
                && offers.source(ranked.path, prefix) != AdvertisedSource::NOTHING
        };
        let ranked = ranked.iter().copied();
        let mut selected: Selected = match self.selection {
            PathSelection::All => ranked.filter(accepted).collect(),
            PathSelection::Best(count) => ranked.filter(accepted).take(usize::from(count.get())).collect(),
            PathSelection::Ecmp => ranked.filter(|ranked| ranked.equal).filter(accepted).collect(),
            PathSelection::PerAs => {
                let mut seen: SmallVec<[u32; 8]> = SmallVec::new();
                let mut is_first = |ranked: &RankedPath| {
                    let neighbor_as = path(ranked).attrs.neighbor_as();
                    let is_first = !seen.contains(&neighbor_as);
                    if is_first {
                        seen.push(neighbor_as);
                    }
                    is_first
                };
                ranked.filter(accepted).filter(|ranked| is_first(ranked)).collect()
            }
        };
        if !self.has_ids {
            selected.iter_mut().for_each(|ranked| ranked.id = 0);
        }
        selected.sort_unstable_by_key(|ranked| ranked.id);
        selected
    }

    /// The identifier with which a selected path is sent, if any.
    pub(super) fn id(self, selected: RankedPath) -> Option<u32> {
        self.has_ids.then_some(selected.id)
    }

    /// The identifier of a path in its key: 0 where paths are sent without identifiers.
    pub(super) fn key_id(self, id: u32) -> u32 {
        if self.has_ids { id } else { 0 }
    }

    /// Whether two indices name equal paths.
    fn is_same(self, a: u32, b: u32) -> bool {
        let path = |index: u32| &self.paths[index as usize];
        a == b || (path(a).source == path(b).source && path(a).attrs == path(b).attrs)
    }

    /// Where every path is sent, one that stays as it is needs no selection.
    fn without_same(self, old: &[RankedPath], new: &[RankedPath]) -> Option<(Selected, Selected)> {
        if self.selection != PathSelection::All {
            return None;
        }
        let sorted = |ranked: &[RankedPath]| {
            let mut sorted = Selected::from_slice(ranked);
            sorted.sort_unstable_by_key(|ranked| ranked.id);
            sorted
        };
        let (mut old, mut new) = (sorted(old), sorted(new));
        let stays = |ranked: &RankedPath, others: &[RankedPath]| {
            let at = others.binary_search_by_key(&ranked.id, |other| other.id);
            at.is_ok_and(|at| self.is_same(ranked.path, others[at].path))
        };
        let former = old.clone();
        old.retain(|ranked| !stays(ranked, &new));
        new.retain(|ranked| !stays(ranked, &former));
        Some((old, new))
    }
}

impl Group {
    /// Whether any member needs changes of ranked paths.
    pub(super) fn follows_ranked<F: BgpFamily>(&self) -> bool {
        self.settings.families.has(F::ID)
            && match (self.settings.add_path.of(F::ID), self.settings.client) {
                (Some(_), _) => self.any_follows::<PathPrefix<F>>(),
                (None, Some(_)) => self.any_follows::<Prefix<F>>(),
                (None, None) => false,
            }
    }

    /// Whether any member moved here from another group, and waits for a table.
    pub(super) fn has_moved(&self) -> bool {
        self.cohorts().iter().any(Cohort::has_moved)
    }

    /// Prefixes have no path any more, by changes of best paths or of ranked ones, which this group does not follow. A member
    /// that moved here from a group that does may have had one.
    pub(super) fn note_gone<F: BgpFamily>(&mut self, gone: impl Iterator<Item = Prefix<F>> + Clone) {
        for cohort in self.cohorts_mut().iter_mut().filter(|cohort| cohort.has_moved()) {
            let queue = cohort.queue_mut::<Prefix<F>>();
            gone.clone().for_each(|prefix| queue.may_have(prefix));
        }
    }

    /// Adds changes of ranked paths. `former`: by the former settings, in a transition.
    pub(super) fn change_ranked<'a, F: BgpFamily>(
        &mut self,
        batch: &RankedBatch,
        now: &mut View<'a>,
        former: Option<&mut View<'a>>,
        paths: &mut Paths,
    ) {
        match self.settings.add_path.of(F::ID) {
            Some(_) => self.change_keys::<F, PathPrefix<F>>(batch, now, former, paths),
            None => self.change_keys::<F, Prefix<F>>(batch, now, former, paths),
        }
    }

    fn change_keys<'a, F: BgpFamily, K: Key<Family = F>>(
        &mut self,
        batch: &RankedBatch,
        now: &mut View<'a>,
        mut former: Option<&mut View<'a>>,
        paths: &mut Paths,
    ) {
        let moved = self.cohorts().iter().any(|cohort| cohort.queue::<K>().has_moved());
        for change in batch.changes.get::<F>() {
            let (prefix, (old, new)) = (change.prefix, batch.of(change));
            let mut former = match self.goes_over(prefix) {
                true => former.as_deref_mut(),
                false => None,
            };
            // Equal paths are the same by the same settings.
            let by_both = former.is_none() && !now.has_default(prefix);
            let differing = by_both.then(|| now.selector.without_same(old, new)).flatten();
            let (old, new) = differing.as_ref().map_or((old, new), |(old, new)| (&old[..], &new[..]));
            let before = former.as_deref_mut().unwrap_or(&mut *now).select(old, prefix);
            let after = now.select(new, prefix);
            if moved {
                // Until its table is dumped, a moved member may have any path.
                for id in old.iter().map(|ranked| now.selector.key_id(ranked.id)) {
                    if find(&before, id).is_none() && find(&after, id).is_none() {
                        self.change_key(K::of(prefix, id), AdvertisedSource::NOTHING, NONE, paths);
                    }
                }
            }
            self.change_selection::<F, K>(prefix, [&before, &after], now, former, paths);
        }
    }

    /// A prefix has another selection. The one before is by the settings of `former`, if these are others.
    fn change_selection<'a, F: BgpFamily, K: Key<Family = F>>(
        &mut self,
        prefix: Prefix<F>,
        [before, after]: [&[RankedPath]; 2],
        now: &mut View<'a>,
        mut former: Option<&mut View<'a>>,
        paths: &mut Paths,
    ) {
        for gone in before.iter().filter(|gone| find(after, gone.id).is_none()) {
            let advertised = former.as_deref_mut().unwrap_or(&mut *now).source(gone.path, prefix);
            self.change_key(K::of(prefix, gone.id), advertised, NONE, paths);
        }
        for one in after {
            let was = find(before, one.id);
            let stays = was.is_some_and(|was| match &mut former {
                None => now.selector.is_same(was.path, one.path),
                Some(former) => former.handle(was.path, prefix, paths) == now.handle(one.path, prefix, paths),
            });
            if stays {
                continue;
            }
            let advertised = was.map_or(AdvertisedSource::NOTHING, |was| {
                former.as_deref_mut().unwrap_or(&mut *now).source(was.path, prefix)
            });
            let handle = now.handle(one.path, prefix, paths);
            self.change_key(K::of(prefix, one.id), advertised, handle, paths);
        }
    }

    /// Adds a part of a dump of the transition; `last`: the last of its family.
    pub(super) fn transition_ranked_dumped<'a, F: BgpFamily>(
        &mut self,
        batch: &RankedBatch,
        last: bool,
        now: &mut View<'a>,
        former: &mut View<'a>,
        paths: &mut Paths,
    ) {
        match self.settings.add_path.of(F::ID) {
            Some(_) => self.transit_keys::<F, PathPrefix<F>>(batch, last, now, former, paths),
            None => self.transit_keys::<F, Prefix<F>>(batch, last, now, former, paths),
        }
    }

    fn transit_keys<'a, F: BgpFamily, K: Key<Family = F>>(
        &mut self,
        batch: &RankedBatch,
        last: bool,
        now: &mut View<'a>,
        former: &mut View<'a>,
        paths: &mut Paths,
    ) {
        let dumped = batch.changes.get::<F>().iter().map(|change| (change.prefix, batch.of(change).1));
        // The table may have no default route.
        let default = last.then_some((Prefix::default_route(), &[][..]));
        for (prefix, ranked) in dumped.chain(default) {
            if self.goes_over(prefix) {
                let (before, after) = (former.select(ranked, prefix), now.select(ranked, prefix));
                self.change_selection::<F, K>(prefix, [&before, &after], now, Some(&mut *former), paths);
            }
        }
    }

    pub(super) fn change_key<K: Key>(
        &mut self,
        key: K,
        advertised: AdvertisedSource,
        new: Handle,
        paths: &mut Paths,
    ) {
        self.replaced += usize::from(advertised != AdvertisedSource::NOTHING);
        for cohort in self.cohorts_mut() {
            let queue = cohort.queue_mut::<K>();
            if queue.follows() {
                queue.change(key, advertised, new, paths);
            }
        }
    }

    /// Adds a part of a dump of ranked paths. The group's own default route is left to [`Group::dump_default`].
    pub(super) fn ranked_dumped<'a, F: BgpFamily>(
        &mut self,
        token: u64,
        batch: &RankedBatch,
        now: &mut View<'a>,
        former: Option<&mut View<'a>>,
        paths: &mut Paths,
    ) {
        match self.settings.add_path.of(F::ID) {
            Some(_) => self.dump_keys::<F, PathPrefix<F>>(token, batch, now, former, paths),
            None => self.dump_keys::<F, Prefix<F>>(token, batch, now, former, paths),
        }
    }

    fn dump_keys<'a, F: BgpFamily, K: Key<Family = F>>(
        &mut self,
        token: u64,
        batch: &RankedBatch,
        now: &mut View<'a>,
        mut former: Option<&mut View<'a>>,
        paths: &mut Paths,
    ) {
        let dumping: SmallVec<[usize; 2]> = (0..self.cohorts().len())
            .filter(|at| self.cohorts()[*at].queue::<K>().phase() == Phase::Dumping(token))
            .collect();
        for change in batch.changes.get::<F>() {
            let (prefix, (_, ranked)) = (change.prefix, batch.of(change));
            let view = self.view_of(prefix, now, &mut former);
            let selected = view.select(ranked, prefix);
            for at in &dumping {
                let queue = self.cohorts_mut()[*at].queue_mut::<K>();
                if queue.has_moved() {
                    // Members have the paths of another selection, perhaps.
                    for id in ranked.iter().map(|ranked| view.selector.key_id(ranked.id)) {
                        if find(&selected, id).is_none() {
                            queue.dump_item(K::of(prefix, id), NONE, paths);
                        }
                    }
                }
                if view.has_default(prefix) {
                    continue;
                }
                for one in &selected {
                    let handle = view.handle(one.path, prefix, paths);
                    queue.dump_item(K::of(prefix, one.id), handle, paths);
                }
            }
        }
    }

    /// The paths of a page that members get, each with its key, but for the group's own default route, which
    /// [`Group::own_default_key`] is of.
    pub(super) fn page_ranked<'a, F: BgpFamily, K: Key<Family = F>>(
        &self,
        batch: &RankedBatch,
        now: &mut View<'a>,
        mut former: Option<&mut View<'a>>,
        paths: &mut Paths,
    ) -> Vec<(Handle, K)> {
        let mut items = Vec::new();
        for change in batch.changes.get::<F>() {
            let (prefix, (_, ranked)) = (change.prefix, batch.of(change));
            let view = self.view_of(prefix, now, &mut former);
            if !view.has_default(prefix) {
                let selected = view.select(ranked, prefix);
                items.extend(
                    selected.iter().map(|one| (view.handle(one.path, prefix, paths), K::of(prefix, one.id))),
                );
            }
        }
        items
    }

    /// The view by which a prefix is advertised.
    fn view_of<'v, 'a, F: BgpFamily>(
        &self,
        prefix: Prefix<F>,
        now: &'v mut View<'a>,
        former: &'v mut Option<&mut View<'a>>,
    ) -> &'v mut View<'a> {
        match former {
            Some(former) if self.is_former(prefix) => former,
            _ => now,
        }
    }
}

impl Worker {
    /// The export of the ranked paths of a prefix in a group that takes these.
    pub(super) fn export_ranked<F: BgpFamily>(
        &self,
        id: u32,
        group: &Group,
        prefix: Prefix<F>,
        ranked: &RankedBatch,
    ) -> Export {
        let is_only = |source: PeerId| group.members.keys().all(|peer| *peer == source);
        let own = |source| is_only(source).then_some("not sent: it came from the only member");
        let (sent, messages) = self.explain_ranked(&group.settings, prefix, ranked, own);
        Export { group: id, members: group.members.len(), sent, messages }
    }

    /// Why a member that takes ranked paths gets those of a prefix, or not, as sentences about each. Empty without a session of
    /// the peer in this worker.
    pub fn ranked_reasons<F: BgpFamily>(
        &self,
        peer: PeerId,
        prefix: Prefix<F>,
        ranked: &RankedBatch,
    ) -> Vec<String> {
        let group = self.member_of.get(&peer).and_then(|id| self.groups.get(id));
        let own = |source| (source == peer).then_some("not sent: it came from this peer");
        group.map_or_else(Vec::new, |group| self.explain_ranked(&group.settings, prefix, ranked, own).1)
    }

    /// Whether receivers with these settings get any of the ranked paths, and why, or why not. `own` says
    /// why they do not get a path that may come from them.
    fn explain_ranked<F: BgpFamily>(
        &self,
        settings: &EgressSettings,
        prefix: Prefix<F>,
        ranked: &RankedBatch,
        own: impl Fn(PeerId) -> Option<&'static str>,
    ) -> (bool, Vec<String>) {
        if prefix.len() == 0 && conditional::default_path::<F>(settings, &self.peers).is_some() {
            return (true, vec![adj_rib_out::OWN_DEFAULT.into()]);
        }
        let selection = settings.add_path.of(F::ID);
        let limit = match selection {
            None => 1,
            Some(PathSelection::Best(count)) => usize::from(count.get()),
            Some(_) => usize::MAX,
        };
        let (mut messages, mut selected, mut neighbors, mut is_sent) = (Vec::new(), 0, Vec::new(), false);
        for one in &ranked.ranked {
            let path = &ranked.paths[one.path as usize];
            let Some(source) = self.peers.get(&path.source) else { continue };
            let name = match selection {
                Some(_) => format!("path from {}, identifier {}", source.address, one.id),
                None => format!("path from {}", source.address),
            };
            let own = own(path.source);
            if let (Some(own), true) = (own, settings.client == Some(path.source)) {
                messages.push(format!("{name}: {own}"));
                continue;
            }
            let mut reasons = Vec::new();
            let form = adj_rib_out::evaluate(settings, source, path, prefix, &mut reasons);
            let neighbor_as = path.attrs.neighbor_as();
            let outcome = match (form, selection) {
                (None, _) => "not sent",
                _ if selected == limit => "not sent: there are better ones",
                (_, Some(PathSelection::Ecmp)) if !one.equal => "not sent: the best path is better",
                (_, Some(PathSelection::PerAs)) if neighbors.contains(&neighbor_as) => {
                    "not sent: another of the same neighbouring AS is better"
                }
                (Some(form), _) => {
                    selected += 1;
                    neighbors.push(neighbor_as);
                    is_sent |= own.is_none() && form.is_some();
                    own.unwrap_or(if form.is_some() { "sent" } else { "not sent" })
                }
            };
            messages.push(format!("{name}: {outcome}"));
            messages.append(&mut reasons);
        }
        (is_sent, messages)
    }
}

/// The selected path of this identifier.
fn find(selected: &[RankedPath], id: u32) -> Option<RankedPath> {
    selected.binary_search_by_key(&id, |ranked| ranked.id).ok().map(|at| selected[at])
}
