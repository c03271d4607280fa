//! The routing table: candidates per prefix, and the one that is in the FIB.

use crate::confirmations::discards;
use crate::message::{FibRoute, GroupId, Protocol, Source};
use crate::redistribution::Redistributor;
use crate::reselection_scan::ReselectionScan;
use crate::resolver::Resolver;
use ribtide_prefix::{
    Families, Family, Map, Prefix, PrefixTable, per_family, prefetch, shrink_if_sparse, shrink_to_fit,
};
use std::net::IpAddr;

per_family! {
    /// The routing table of each family.
    pub(crate) struct Tables<F> = Table<F>;
}

/// One candidate of a prefix: its received group and its rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) group: u32,
    pub(crate) metric: u32,
    pub(crate) distance: u8,
    pub(crate) protocol: Protocol,
}

impl Candidate {
    /// The rank in selection: the least wins.
    fn rank(&self) -> (u8, u32, Protocol) {
        (self.distance, self.metric, self.protocol)
    }

    /// Whether selection may use it: distance 255 is never used.
    fn usable(&self) -> bool {
        self.distance != u8::MAX
    }
}

/// A prefix's entry. 20 bytes, because there are a million of them: with the prefix, and the hash table's own
/// room, a route with one candidate takes 33 to 67 bytes for IPv4 and 47 to 94 for IPv6, depending on how full the
/// table is (`tests/memory.rs` measures it).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The fields of the selected candidate, or of the best one when none resolves, in an order
    /// without padding. Group 0 means no candidate; the end of the batch removes the entry.
    group: u32,
    metric: u32,
    /// The group that the FIB has for this prefix, or 0.
    pub(crate) fib: u32,
    /// The low half of the number of the batch that last changed the FIB.
    pub(crate) changed: u32,
    distance: u8,
    protocol: Protocol,
    /// The protocol of the route in the FIB, or of the denied one.
    fib_protocol: Protocol,
    /// [`DIRTY`], [`DENIED`].
    flags: u8,
}

/// It is in [`Table::dirty`].
const DIRTY: u8 = 1;
/// FIB policy denies the selected candidate.
const DENIED: u8 = 2;

impl Route {
    fn empty() -> Route {
        Route {
            group: 0,
            metric: 0,
            fib: 0,
            changed: 0,
            distance: 0,
            protocol: Protocol::Connected,
            fib_protocol: Protocol::Connected,
            flags: 0,
        }
    }

    /// The selected candidate, or the best when none resolves.
    pub(crate) fn candidate(&self) -> Option<Candidate> {
        let Route { group, metric, distance, protocol, .. } = *self;
        (group != 0).then_some(Candidate { group, metric, distance, protocol })
    }

    /// Whether FIB policy denies the selected candidate.
    pub(crate) fn is_denied(&self) -> bool {
        self.flags & DENIED != 0
    }

    /// Marks it dirty; returns whether it was clean.
    fn mark_dirty(&mut self) -> bool {
        let clean = self.flags & DIRTY == 0;
        self.flags |= DIRTY;
        clean
    }

    /// Whether a source announces it and the FIB lacks it.
    pub(crate) fn is_idle(&self) -> bool {
        self.fib == 0 && self.group != 0
    }

    /// The protocol of the route in the FIB.
    pub(crate) fn fib_protocol(&self) -> Protocol {
        self.fib_protocol
    }

    fn set_candidate(&mut self, candidate: Option<Candidate>) {
        match candidate {
            Some(c) => {
                (self.group, self.metric, self.distance, self.protocol) =
                    (c.group, c.metric, c.distance, c.protocol);
            }
            None => self.group = 0,
        }
    }
}

/// Route counts per protocol, in the order of [`Protocol::ALL`].
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) candidates: [u64; Protocol::ALL.len()],
    pub(crate) installed: [u64; Protocol::ALL.len()],
    pub(crate) denied: [u64; Protocol::ALL.len()],
}

/// The routing table of one family.
pub(crate) struct Table<F: Family> {
    pub(crate) routes: PrefixTable<F, Route>,
    /// All candidates, best first, of prefixes with more than one.
    contested: Map<Prefix<F>, Vec<Candidate>>,
    /// Prefixes to select again in this batch.
    dirty: Vec<Prefix<F>>,
    /// The scan for routes of other groups.
    scan: ReselectionScan,
    pub(crate) counts: Counts,
}

impl<F: Family> Default for Table<F> {
    fn default() -> Self {
        Table {
            routes: PrefixTable::default(),
            contested: Map::default(),
            dirty: Vec::new(),
            scan: ReselectionScan::default(),
            counts: Counts::default(),
        }
    }
}

impl<F: Family> Table<F> {
    /// Shrinks every table to its contents. O(capacity).
    pub(crate) fn shrink_to_fit(&mut self) {
        self.routes.shrink_to_fit();
        shrink_to_fit(&mut self.contested);
        self.dirty.shrink_to_fit();
    }

    /// Prefetches the routes of a batch of prefixes.
    pub(crate) fn prefetch(&self, prefixes: impl Iterator<Item = Prefix<F>>) {
        prefixes.for_each(|prefix| {
            prefetch(self.routes.get(prefix).map(Route::is_idle));
        });
    }

    /// Gives `source` this candidate for `prefix`, or removes its candidate. Returns the replaced
    /// candidate if this is a change, else `None`.
    pub(crate) fn put(
        &mut self,
        prefix: Prefix<F>,
        source: Source,
        candidate: Option<Candidate>,
    ) -> Option<Option<Candidate>> {
        let route = match candidate {
            Some(_) => self.routes.get_or_insert_with(prefix, Route::empty),
            None => self.routes.get_mut(prefix)?,
        };
        let floats = |c: &Candidate| {
            source == Source::Static && candidate.is_some_and(|new| new.distance != c.distance)
        };
        let of_source = |c: &Candidate| c.protocol.source() == source && !floats(c);
        let contested = if self.contested.is_empty() { None } else { self.contested.get_mut(&prefix) };
        let old = match (contested, route.candidate()) {
            (Some(list), _) => {
                let old = list.iter().position(of_source).map(|at| list.remove(at));
                list.extend(candidate);
                list.sort_by_key(Candidate::rank);
                if let [only] = list[..] {
                    route.set_candidate(Some(only));
                    self.contested.remove(&prefix);
                    shrink_if_sparse(&mut self.contested);
                }
                old
            }
            (None, Some(other)) if !of_source(&other) => {
                if let Some(candidate) = candidate {
                    let mut list = vec![other, candidate];
                    list.sort_by_key(Candidate::rank);
                    self.contested.insert(prefix, list);
                }
                None
            }
            (None, old) => {
                route.set_candidate(candidate);
                old
            }
        };
        if old == candidate {
            return None;
        }
        let count = &mut self.counts.candidates;
        old.inspect(|c| count[c.protocol as usize] -= 1);
        candidate.inspect(|c| count[c.protocol as usize] += 1);
        if route.mark_dirty() {
            self.dirty.push(prefix);
        }
        Some(old)
    }

    /// Gives every candidate the group that `regroup` returns, and marks the changed prefixes for
    /// selection.
    pub(crate) fn regroup(&mut self, mut regroup: impl FnMut(Prefix<F>, Candidate) -> u32) {
        for (prefix, route) in self.routes.iter_mut() {
            let mut changed = false;
            let mut each = |candidate: Candidate| {
                let group = regroup(prefix, candidate);
                changed |= group != candidate.group;
                Candidate { group, ..candidate }
            };
            let list = if self.contested.is_empty() { None } else { self.contested.get_mut(&prefix) };
            match list {
                Some(list) => list.iter_mut().for_each(|candidate| *candidate = each(*candidate)),
                None => route.set_candidate(route.candidate().map(&mut each)),
            }
            if changed {
                if let Some(list) = self.contested.get(&prefix) {
                    // Until selection, which may choose another candidate.
                    route.set_candidate(list.first().copied());
                }
                if route.mark_dirty() {
                    self.dirty.push(prefix);
                }
            }
        }
    }

    /// The candidates for `prefix`, best first. `route` is its entry.
    pub(crate) fn candidates<'a>(
        &'a self,
        prefix: Prefix<F>,
        route: &Route,
    ) -> impl Iterator<Item = Candidate> + use<'a, F> {
        candidates(&self.contested, prefix, route)
    }

    /// The entries that hold `address`, most specific first, each with the candidates that may be selected.
    pub(crate) fn matches(
        &self,
        address: IpAddr,
    ) -> impl Iterator<Item = (Prefix<F>, impl Iterator<Item = Candidate>)> {
        self.routes
            .matches(address)
            .map(|(prefix, route)| (prefix, self.candidates(prefix, route).filter(Candidate::usable)))
    }

    /// The usable candidates for `prefix`, best first.
    pub(crate) fn of(&self, prefix: Prefix<F>) -> impl Iterator<Item = Candidate> {
        let route = self.routes.get(prefix).into_iter();
        route.flat_map(move |route| self.candidates(prefix, route)).filter(Candidate::usable)
    }

    /// Marks every prefix with a candidate whose group is `wanted`. Visits the whole table.
    pub(crate) fn mark_users(&mut self, wanted: impl Fn(u32) -> bool) {
        for (prefix, route) in self.routes.iter_mut() {
            let uses = wanted(route.group)
                || (!self.contested.is_empty()
                    && self.contested.get(&prefix).is_some_and(|l| l.iter().any(|c| wanted(c.group))));
            if uses && route.mark_dirty() {
                self.dirty.push(prefix);
            }
        }
    }

    /// Adds groups to [`Table::scan`], which visits every entry once for them.
    pub(crate) fn wake(&mut self, groups: impl Iterator<Item = u32>) {
        self.scan.add(groups, &self.routes);
    }

    /// Whether [`Table::scan`] has places left.
    pub(crate) fn is_scanning(&self) -> bool {
        self.scan.is_active()
    }

    /// One turn of the scan: marks prefixes whose FIB state no longer matches the group's state, at
    /// most `limit`, and returns their number. Prefixes with several candidates come first when
    /// that is cheap, because they may have an alternative.
    pub(crate) fn scan(&mut self, resolver: &Resolver, limit: usize) -> usize {
        let Table { routes, contested, dirty, scan, .. } = self;
        if !scan.is_active() || limit == 0 {
            return 0;
        }
        let before = dirty.len();
        // Marks an entry that must be selected again; returns whether the limit allows more.
        let mut visit = |scan: &ReselectionScan, prefix: Prefix<F>, route: &mut Route| {
            let selected = |c: &Candidate| match resolver.denies(c.group) {
                true => route.is_denied() && route.group == c.group,
                false => route.fib == c.group,
            };
            let wrong = |c: Candidate| scan.wants(c.group) && resolver.is_resolved(c.group) != selected(&c);
            if candidates(contested, prefix, route).any(wrong) && route.mark_dirty() {
                dirty.push(prefix);
            }
            dirty.len() - before < limit
        };
        let mut more = true;
        if scan.begins() {
            more = contested
                .keys()
                .take(limit * PLACES_EACH)
                .all(|prefix| routes.get_mut(*prefix).is_none_or(|route| visit(scan, *prefix, route)));
        }
        if more {
            scan.turn(routes, limit * PLACES_EACH, visit);
        }
        dirty.len() - before
    }

    /// The number of prefixes marked for selection.
    pub(crate) fn marked(&self) -> usize {
        self.dirty.len()
    }

    /// The group of each candidate of the marked prefixes.
    pub(crate) fn marked_groups(&self) -> impl Iterator<Item = u32> {
        let entries = self.dirty.iter().filter_map(|prefix| Some((*prefix, self.routes.get(*prefix)?)));
        entries.flat_map(|(prefix, route)| self.candidates(prefix, route)).map(|c| c.group)
    }

    /// Selects every marked prefix again. Changes of the FIB go to `out`, the previous protocols to
    /// `before`. Prefixes without a usable candidate, or that another protocol than BGP discards, go to `idle`, the installed candidate of each to
    /// `redistribution`, if it is on.
    pub(crate) fn select(
        &mut self,
        resolver: &mut Resolver,
        seq: u64,
        out: &mut Vec<FibRoute<F>>,
        redistribution: &mut Redistributor,
        mut before: impl FnMut(Option<Protocol>),
        mut idle: impl FnMut(Prefix<F>),
    ) {
        for prefix in self.dirty.drain(..) {
            let Some(route) = self.routes.get_mut(prefix) else { continue };
            let was_denied = std::mem::take(&mut route.flags) & DENIED != 0;
            let resolves = |c: &Candidate| c.usable() && resolver.is_resolved(c.group);
            let selected = candidates(&self.contested, prefix, route).find(resolves);
            let shown = selected.or_else(|| candidates(&self.contested, prefix, route).next());
            if was_denied {
                self.counts.denied[route.fib_protocol as usize] -= 1;
            }
            route.set_candidate(shown);
            let denied = selected.filter(|c| resolver.denies(c.group));
            let installed = if denied.is_some() { None } else { selected };
            if redistribution.is_on() {
                redistribution.selected(prefix, installed.as_ref(), resolver);
            }
            let (fib, protocol) = installed.map_or((0, route.fib_protocol), |c| (c.group, c.protocol));
            if (fib, protocol) != (route.fib, route.fib_protocol) {
                before((route.fib != 0).then_some(route.fib_protocol));
                if route.fib != 0 {
                    resolver.uninstalled(route.fib);
                    self.counts.installed[route.fib_protocol as usize] -= 1;
                }
                if fib != 0 {
                    resolver.installed(fib);
                    self.counts.installed[protocol as usize] += 1;
                }
                (route.fib, route.fib_protocol, route.changed) = (fib, protocol, seq as u32);
                out.push(FibRoute { prefix, group: (fib != 0).then_some(GroupId(fib)), protocol });
            }
            if let Some(denied) = denied {
                // The FIB has no route, so this field can hold the denied protocol.
                (route.flags, route.fib_protocol) = (DENIED, denied.protocol);
                self.counts.denied[denied.protocol as usize] += 1;
            }
            let suspect = fib == 0 || discards(resolver, route);
            if shown.is_none() {
                self.routes.remove(prefix);
            } else if suspect {
                idle(prefix);
            }
        }
    }

    /// The FIB's route for `prefix`, as an operation that installs it.
    pub(crate) fn installed(&self, prefix: Prefix<F>) -> Option<FibRoute<F>> {
        let route = self.routes.get(prefix).filter(|r| r.fib != 0)?;
        Some(FibRoute { prefix, group: Some(GroupId(route.fib)), protocol: route.fib_protocol })
    }

    /// Bytes of the table's allocation.
    pub(crate) fn allocation_size(&self) -> usize {
        let lists: usize = self.contested.values().map(|l| l.capacity() * size_of::<Candidate>()).sum();
        self.routes.allocation_size() + self.contested.allocation_size() + lists
    }
}

/// Places that a turn visits for each route that it may mark. A visit costs much less than a
/// selection.
const PLACES_EACH: usize = 8;

/// [`Table::candidates`] on borrowed parts of the table.
fn candidates<'a, F: Family>(
    contested: &'a Map<Prefix<F>, Vec<Candidate>>,
    prefix: Prefix<F>,
    route: &Route,
) -> impl Iterator<Item = Candidate> + use<'a, F> {
    let list = if contested.is_empty() { None } else { contested.get(&prefix) };
    let only = if list.is_none() { route.candidate() } else { None };
    only.into_iter().chain(list.into_iter().flatten().copied())
}

/// The tables of both families.
pub(crate) type RouteTables = Families<Tables>;
