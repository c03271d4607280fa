//! Ranked paths of groups whose routes depend on the presence of others, or that have a default route of their own.
//!
//! As in [`super::conditional`], a prefix is advertised by the former settings until it goes over in a transition. The
//! selection before a change is then that of the former settings, and the one after it that of the present ones. The group's
//! own default route is a selection of one path, whatever the table has.

use super::group::Group;
use super::offers::Offers;
use super::paths::{Handle, Paths};
use super::pending::{AdvertisedSource, Key, Phase};
use super::ranked::Selector;
use crate::message::{BestPath, NONE, RankedBatch, RankedPath};
use crate::peer::EgressSettings;
use ribtide_prefix::{BgpFamily, Prefix};
use ribtide_wire::bgp::nlri::PathPrefix;
use smallvec::{SmallVec, smallvec};

/// The identifier of a group's own default route. That of a path has the number of its peer in its upper half, from 1 on.
pub(super) const OWN_DEFAULT_ID: u32 = 1;

/// What a group gets by some settings: a selection of ranked paths of a batch, and its own default route instead of any.
pub(super) struct RankedView<'a> {
    selector: Selector<'a>,
    offers: Offers<'a>,
    /// Its own default route; [`NONE`] without one.
    default: Handle,
    default_source: AdvertisedSource,
}

/// A path of a selection in the group's form.
#[derive(Clone, Copy)]
struct Entry {
    id: u32,
    handle: Handle,
    source: AdvertisedSource,
}

/// In the order of their identifiers.
type Entries = SmallVec<[Entry; 8]>;

impl<'a> RankedView<'a> {
    /// `default` is the default route by these settings, and the offers are those of `batch`.
    pub(super) fn new<F: BgpFamily>(
        settings: &EgressSettings,
        batch: &'a [BestPath],
        offers: Offers<'a>,
        default: Handle,
        paths: &Paths,
    ) -> RankedView<'a> {
        let source = paths.source(default);
        let default_source = source.map_or(AdvertisedSource::NOTHING, AdvertisedSource::from);
        RankedView { selector: Selector::new::<F>(settings, batch), offers, default, default_source }
    }

    fn has_default<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        self.default != NONE && prefix.len() == 0
    }

    fn select<F: BgpFamily>(
        &mut self,
        ranked: &[RankedPath],
        prefix: Prefix<F>,
        paths: &mut Paths,
    ) -> Entries {
        if self.has_default(prefix) {
            let id = self.selector.key_id(OWN_DEFAULT_ID);
            return smallvec![Entry { id, handle: self.default, source: self.default_source }];
        }
        let selected = self.selector.select(ranked, prefix, &mut self.offers);
        let entry = |one: RankedPath| Entry {
            id: one.id,
            handle: self.offers.handle(one.path, prefix, paths),
            source: self.offers.source(one.path, prefix),
        };
        selected.into_iter().map(entry).collect()
    }
}

fn find(entries: &[Entry], id: u32) -> Option<Entry> {
    entries.iter().find(|entry| entry.id == id).copied()
}

impl Group {
    /// As [`Group::change_ranked`]. `former`: by the former settings, in a transition.
    pub(super) fn change_ranked_conditional<F: BgpFamily>(
        &mut self,
        batch: &RankedBatch,
        now: &mut RankedView<'_>,
        former: Option<&mut RankedView<'_>>,
        paths: &mut Paths,
    ) {
        match self.settings.add_path.of(F::ID) {
            Some(_) => self.change_views::<F, PathPrefix<F>>(batch, now, former, paths),
            None => self.change_views::<F, Prefix<F>>(batch, now, former, paths),
        }
    }

    fn change_views<F: BgpFamily, K: Key<Family = F>>(
        &mut self,
        batch: &RankedBatch,
        now: &mut RankedView<'_>,
        mut former: Option<&mut RankedView<'_>>,
        paths: &mut Paths,
    ) {
        let moved = self.cohorts().iter().any(|cohort| cohort.queue::<K>().has_moved());
        for change in batch.changes.get::<F>() {
            let (prefix, (old, new)) = (change.prefix, batch.of(change));
            let first = self.goes_over(prefix);
            let before = match &mut former {
                Some(former) if first => former.select(old, prefix, paths),
                _ => now.select(old, prefix, paths),
            };
            let after = now.select(new, prefix, paths);
            if moved {
                // Until its table is dumped, a moved member may have any path.
                for id in old.iter().map(|ranked| now.selector.key_id(ranked.id)) {
                    if find(&before, id).is_none() && find(&after, id).is_none() {
                        self.change_key(K::of(prefix, id), AdvertisedSource::NOTHING, NONE, paths);
                    }
                }
            }
            self.change_selection::<F, K>(prefix, &before, &after, paths);
        }
    }

    fn change_selection<F: BgpFamily, K: Key<Family = F>>(
        &mut self,
        prefix: Prefix<F>,
        before: &[Entry],
        after: &[Entry],
        paths: &mut Paths,
    ) {
        for gone in before.iter().filter(|before| find(after, before.id).is_none()) {
            self.change_key(K::of(prefix, gone.id), gone.source, NONE, paths);
        }
        for entry in after {
            let former = find(before, entry.id);
            if former.is_some_and(|former| former.handle == entry.handle) {
                continue;
            }
            let advertised = former.map_or(AdvertisedSource::NOTHING, |former| former.source);
            self.change_key(K::of(prefix, entry.id), advertised, entry.handle, paths);
        }
    }

    /// Adds a part of a dump of the transition; `last`: the last of its family.
    pub(super) fn transition_ranked_dumped<F: BgpFamily>(
        &mut self,
        batch: &RankedBatch,
        last: bool,
        now: &mut RankedView<'_>,
        former: &mut RankedView<'_>,
        paths: &mut Paths,
    ) {
        match self.settings.add_path.of(F::ID) {
            Some(_) => self.transit_views::<F, PathPrefix<F>>(batch, last, now, former, paths),
            None => self.transit_views::<F, Prefix<F>>(batch, last, now, former, paths),
        }
    }

    fn transit_views<F: BgpFamily, K: Key<Family = F>>(
        &mut self,
        batch: &RankedBatch,
        last: bool,
        now: &mut RankedView<'_>,
        former: &mut RankedView<'_>,
        paths: &mut Paths,
    ) {
        let dumped = batch.changes.get::<F>().iter().map(|change| (change.prefix, batch.of(change).1));
        // The table may have no default route.
        let default = last.then_some((Prefix::default_route(), &[][..]));
        for (prefix, ranked) in dumped.chain(default) {
            if self.goes_over(prefix) {
                let before = former.select(ranked, prefix, paths);
                let after = now.select(ranked, prefix, paths);
                self.change_selection::<F, K>(prefix, &before, &after, paths);
            }
        }
    }

    /// As [`Group::ranked_dump`]; the group's own default route is left to [`Group::dump_default`].
    pub(super) fn ranked_dump_conditional<F: BgpFamily>(
        &mut self,
        token: u64,
        batch: &RankedBatch,
        now: &mut RankedView<'_>,
        former: Option<&mut RankedView<'_>>,
        paths: &mut Paths,
    ) {
        match self.settings.add_path.of(F::ID) {
            Some(_) => self.dump_views::<F, PathPrefix<F>>(token, batch, now, former, paths),
            None => self.dump_views::<F, Prefix<F>>(token, batch, now, former, paths),
        }
    }

    fn dump_views<F: BgpFamily, K: Key<Family = F>>(
        &mut self,
        token: u64,
        batch: &RankedBatch,
        now: &mut RankedView<'_>,
        mut former: Option<&mut RankedView<'_>>,
        paths: &mut Paths,
    ) {
        for change in batch.changes.get::<F>() {
            let (prefix, (_, ranked)) = (change.prefix, batch.of(change));
            let is_former = self.is_former(prefix);
            let (selected, is_own) = match &mut former {
                Some(former) if is_former => {
                    (former.select(ranked, prefix, paths), former.has_default(prefix))
                }
                _ => (now.select(ranked, prefix, paths), now.has_default(prefix)),
            };
            let others: SmallVec<[u32; 8]> = ranked
                .iter()
                .map(|ranked| now.selector.key_id(ranked.id))
                .filter(|id| find(&selected, *id).is_none())
                .collect();
            for cohort in self.cohorts_mut() {
                let queue = cohort.queue_mut::<K>();
                if queue.phase() != Phase::Dumping(token) {
                    continue;
                }
                if queue.has_moved() {
                    // Members have the paths of another selection, perhaps.
                    others.iter().for_each(|id| queue.dump_item(K::of(prefix, *id), NONE, paths));
                }
                for entry in selected.iter().filter(|_| !is_own) {
                    queue.dump_item(K::of(prefix, entry.id), entry.handle, paths);
                }
            }
        }
    }

    /// As [`Group::page_ranked`], but for the group's own default route, which [`Group::own_default_key`] is of.
    pub(super) fn page_ranked_conditional<F: BgpFamily, K: Key<Family = F>>(
        &self,
        batch: &RankedBatch,
        now: &mut RankedView<'_>,
        mut former: Option<&mut RankedView<'_>>,
        paths: &mut Paths,
    ) -> Vec<(Handle, K)> {
        let mut items = Vec::new();
        for change in batch.changes.get::<F>() {
            let (prefix, (_, ranked)) = (change.prefix, batch.of(change));
            let (selected, is_own) = match &mut former {
                Some(former) if self.is_former(prefix) => {
                    (former.select(ranked, prefix, paths), former.has_default(prefix))
                }
                _ => (now.select(ranked, prefix, paths), now.has_default(prefix)),
            };
            if !is_own {
                items.extend(selected.iter().map(|entry| (entry.handle, K::of(prefix, entry.id))));
            }
        }
        items
    }

    /// The key of the group's own default route.
    pub(super) fn own_default_key<F: BgpFamily, K: Key<Family = F>>(&self) -> K {
        K::of(Prefix::default_route(), OWN_DEFAULT_ID)
    }
}
