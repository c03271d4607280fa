//! The dirty set of a lagging dataplane: the prefixes and groups that changed and were not sent to
//! it. It stores prefixes and not changes, so memory grows per changed prefix and each prefix is
//! sent once.
//!
//! Prefixes have two generations: the older one is sent completely while the newer one collects
//! changes. So no prefix waits for ever, and the generation bounds the changes that an
//! acknowledgement waits for.
//!
//! Each page carries the changed groups first. A deleted group is deleted in the dataplane after
//! its generation was sent, because no route uses it then. Its number is not reused before
//! ([`crate::group::Groups::reuse`]): routes of the dataplane still use the old group.

use crate::dataplane::PAGE;
use crate::message::{FibBatch, FibRoute, GroupId, Protocol};
use crate::resolver::Resolver;
use crate::table::RouteTables;
use ribtide_prefix::{AnyPrefix, Families, Map, Prefix, Set, for_each_family, per_family};

per_family! {
    /// Dirty prefixes, each with the protocol of the dataplane's route for it, if it has one.
    struct DirtyPrefixes<F> = Map<Prefix<F>, Option<Protocol>>;
}

per_family! {
    /// For each route of a batch, in order: the protocol of the FIB's previous route, if there was one.
    pub(crate) struct Before<F> = Vec<Option<Protocol>>;
}

/// The prefixes and groups that a dataplane has not been sent.
pub(crate) struct DirtySet {
    older: Generation,
    newer: Generation,
    groups: Map<GroupId, DirtyGroup>,
    /// The batch that first created or changed a group since groups were last sent.
    regrouped: Option<u64>,
}

#[derive(Default)]
struct Generation {
    /// Its number.
    number: u64,
    /// The batch that first changed a prefix of it.
    since: u64,
    routes: Families<DirtyPrefixes>,
}

/// The pending change of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DirtyGroup {
    /// The dataplane does not have it.
    New,
    /// Its content changed.
    Changed,
    /// It was deleted in this generation.
    Gone(u64),
}

/// A stale page: its prefixes changed before the batch of its number.
pub(crate) struct StalePage {
    /// The page holds no change before this batch.
    pub(crate) since: u64,
    /// Its prefixes.
    pub(crate) prefixes: Set<AnyPrefix>,
}

impl Generation {
    fn is_empty(&self) -> bool {
        self.routes.v4.is_empty() && self.routes.v6.is_empty()
    }
}

impl Default for DirtySet {
    /// The newer generation is not the older one: a group that goes in it must outlast its routes.
    fn default() -> DirtySet {
        DirtySet {
            older: Generation::default(),
            newer: Generation { number: 1, ..Generation::default() },
            groups: Map::default(),
            regrouped: None,
        }
    }
}

impl DirtySet {
    /// Notes a batch that the dataplane does not get. `before` belongs to its routes; `is_new` to
    /// its groups: whether each was created.
    pub(crate) fn note(
        &mut self,
        batch: &FibBatch,
        before: &Families<Before>,
        is_new: impl Fn(GroupId) -> bool,
    ) {
        for op in &batch.groups {
            let dirty = match self.groups.get(&op.id) {
                Some(DirtyGroup::New) => DirtyGroup::New,
                None if is_new(op.id) => DirtyGroup::New,
                _ => DirtyGroup::Changed,
            };
            self.groups.insert(op.id, dirty);
            self.regrouped.get_or_insert(batch.seq);
        }
        for id in &batch.after {
            match self.groups.get(id) {
                Some(DirtyGroup::New) => self.groups.remove(id),
                _ => self.groups.insert(*id, DirtyGroup::Gone(self.newer.number)),
            };
        }
        if self.newer.is_empty() {
            self.newer.since = batch.seq;
        }
        for_each_family!(F => {
            let (older, newer) = (self.older.routes.get_mut::<F>(), self.newer.routes.get_mut::<F>());
            for (route, before) in batch.routes.get::<F>().iter().zip(before.get::<F>()) {
                let pages = if older.contains_key(&route.prefix) { &mut *older } else { &mut *newer };
                let installed = *pages.entry(route.prefix).or_insert(*before);
                if route.group.is_none() && installed.is_none() {
                    pages.remove(&route.prefix);
                }
            }
        });
    }

    /// Adds the created and changed groups to a page.
    pub(crate) fn take_groups(&mut self, resolver: &Resolver, page: &mut FibBatch) {
        if self.regrouped.take().is_none() {
            return;
        }
        self.groups.retain(|id, dirty| match dirty {
            DirtyGroup::Gone(_) => true,
            DirtyGroup::New | DirtyGroup::Changed => {
                page.groups.push(resolver.groups.store[id.0].op(*id));
                false
            }
        });
    }

    /// Removes the next page from the set and returns it.
    pub(crate) fn take(
        &mut self,
        resolver: &Resolver,
        tables: &RouteTables,
        page: &mut FibBatch,
    ) -> StalePage {
        let mut stale = StalePage { since: self.since(), prefixes: Set::default() };
        self.take_groups(resolver, page);
        loop {
            for_each_family!(F => {
                let room = PAGE - page.route_count();
                for (prefix, previous) in self.older.routes.get_mut::<F>().extract_if(|_, _| true).take(room) {
                    let gone = |protocol| FibRoute { prefix, group: None, protocol };
                    let route = tables.get::<F>().installed(prefix).or(previous.map(gone));
                    page.routes.get_mut::<F>().extend(route);
                    stale.prefixes.insert(prefix.any());
                }
            });
            if !self.older.is_empty() {
                return stale;
            }
            let sent = self.older.number;
            self.groups.retain(|id, dirty| match dirty {
                DirtyGroup::Gone(generation) if *generation <= sent => {
                    page.after.push(*id);
                    false
                }
                _ => true,
            });
            if self.newer.is_empty() && self.groups.is_empty() {
                return stale;
            }
            let next = Generation { number: self.newer.number + 1, ..Generation::default() };
            self.older = std::mem::replace(&mut self.newer, next);
        }
    }

    /// Whether nothing is left to send.
    pub(crate) fn is_empty(&self) -> bool {
        self.older.is_empty() && self.newer.is_empty() && self.groups.is_empty()
    }

    /// The set holds no change before this batch, deletions of groups aside; `u64::MAX` when it
    /// holds none.
    pub(crate) fn since(&self) -> u64 {
        let of = |generation: &Generation| if generation.is_empty() { u64::MAX } else { generation.since };
        of(&self.older).min(of(&self.newer)).min(self.regrouped.unwrap_or(u64::MAX))
    }

    /// How many prefixes are dirty.
    pub(crate) fn len(&self) -> usize {
        let of = |routes: &Families<DirtyPrefixes>| routes.v4.len() + routes.v6.len();
        of(&self.older.routes) + of(&self.newer.routes)
    }

    /// Whether this prefix is dirty.
    pub(crate) fn contains(&self, prefix: AnyPrefix) -> bool {
        [&self.older, &self.newer].into_iter().any(|generation| match prefix {
            AnyPrefix::V4(prefix) => generation.routes.v4.contains_key(&prefix),
            AnyPrefix::V6(prefix) => generation.routes.v6.contains_key(&prefix),
        })
    }

    /// Whether the dataplane still has this deleted group.
    pub(crate) fn holds(&self, group: GroupId) -> bool {
        matches!(self.groups.get(&group), Some(DirtyGroup::Gone(_)))
    }
}
