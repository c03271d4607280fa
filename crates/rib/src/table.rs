//! The routing table: candidates per prefix, and which of them is in the FIB.

use crate::message::{FibRoute, GroupId, Protocol, Source};
use crate::reselection_scan::ReselectionScan;
use crate::resolve::Resolver;
use ribtide_prefix::{
    Families, Family, Map, PerFamily, Prefix, PrefixTable, prefetch, shrink_if_sparse, shrink_to_fit,
};
use std::net::IpAddr;

/// The routing table of each family.
pub(crate) struct Tables;
impl PerFamily for Tables {
    type Of<F: Family> = Table<F>;
}

/// One way to reach a prefix: a received group, and what decides between it and others.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Candidate {
    pub(crate) group: u32,
    pub(crate) metric: u32,
    pub(crate) distance: u8,
    pub(crate) protocol: Protocol,
}

impl Candidate {
    /// What selection compares: the least wins.
    fn rank(&self) -> (u8, u32, Protocol) {
        (self.distance, self.metric, self.protocol)
    }

    /// Whether selection may take it: distance 255 says never (as everywhere else).
    fn usable(&self) -> bool {
        self.distance != u8::MAX
    }
}

/// A prefix's entry. 20 bytes, because there are a million of them: with the prefix, and the hash table's own
/// room, a route with one candidate takes 33 to 67 bytes for IPv4 and 47 to 94 for IPv6, depending on how full the
/// table is (`tests/memory.rs` measures it).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Route {
    /// The candidate's fields, spread to leave no padding: the selected one, or the best when none resolves.
    /// Group 0: there is no candidate any more; the entry goes at the end of the batch.
    group: u32,
    metric: u32,
    /// The group that the FIB has for this prefix, or 0.
    pub(crate) fib: u32,
    /// The low half of the number of the batch that last changed the FIB.
    pub(crate) changed: u32,
    distance: u8,
    protocol: Protocol,
    /// How the route in the FIB was learnt, or the one that is kept out of it.
    fib_protocol: Protocol,
    /// [`DIRTY`], [`DENIED`].
    marks: u8,
}

/// It is in [`Table::dirty`].
const DIRTY: u8 = 1;
/// The selected candidate is kept out of the FIB.
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
            marks: 0,
        }
    }

    /// The selected candidate, or the best when none resolves.
    pub(crate) fn candidate(&self) -> Option<Candidate> {
        let Route { group, metric, distance, protocol, .. } = *self;
        (group != 0).then_some(Candidate { group, metric, distance, protocol })
    }

    /// Whether the selected candidate is kept out of the FIB.
    pub(crate) fn is_denied(&self) -> bool {
        self.marks & DENIED != 0
    }

    /// Marks it dirty; whether it was not.
    fn mark(&mut self) -> bool {
        let clean = self.marks & DIRTY == 0;
        self.marks |= DIRTY;
        clean
    }

    /// Whether a source announces it and the FIB does not have it.
    pub(crate) fn is_idle(&self) -> bool {
        self.fib == 0 && self.group != 0
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

/// How many routes there are of each protocol, in the order of [`Protocol::ALL`].
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Counts {
    pub(crate) candidates: [u64; Protocol::ALL.len()],
    pub(crate) installed: [u64; Protocol::ALL.len()],
    pub(crate) denied: [u64; Protocol::ALL.len()],
}

/// The routing table of one family.
pub(crate) struct Table<F: Family> {
    pub(crate) routes: PrefixTable<F, Route>,
    /// All candidates, best first, of the few prefixes that have more than one.
    contested: Map<Prefix<F>, Vec<Candidate>>,
    /// Prefixes whose selection is to be made again in this batch.
    dirty: Vec<Prefix<F>>,
    /// What is to be looked through for others.
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

    /// Gives `source` this candidate for `prefix`, or takes away one that it had. Returns the candidate whose place that
    /// is when it is a change, and else `None`.
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
        if route.mark() {
            self.dirty.push(prefix);
        }
        Some(old)
    }

    /// Gives every candidate the group that `regroup` says, and marks for selection the prefixes where it is another.
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
                    // Until selection, which may find that another resolves.
                    route.set_candidate(list.first().copied());
                }
                if route.mark() {
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

    /// The candidates for `prefix` that may be selected, best first.
    pub(crate) fn of(&self, prefix: Prefix<F>) -> impl Iterator<Item = Candidate> {
        let route = self.routes.get(prefix).into_iter();
        route.flat_map(move |route| self.candidates(prefix, route)).filter(Candidate::usable)
    }

    /// Marks for selection every prefix that has a candidate whose group is `wanted`. Looks at the whole table.
    pub(crate) fn mark_users(&mut self, wanted: impl Fn(u32) -> bool) {
        for (prefix, route) in self.routes.iter_mut() {
            let uses = wanted(route.group)
                || (!self.contested.is_empty()
                    && self.contested.get(&prefix).is_some_and(|l| l.iter().any(|c| wanted(c.group))));
            if uses && route.mark() {
                self.dirty.push(prefix);
            }
        }
    }

    /// Adds groups to those that [`Table::scan`] looks for, at every entry once.
    pub(crate) fn wake(&mut self, groups: impl Iterator<Item = u32>) {
        self.scan.add(groups, &self.routes);
    }

    /// Whether [`Table::scan`] has places left.
    pub(crate) fn is_scanning(&self) -> bool {
        self.scan.is_active()
    }

    /// One turn of looking for prefixes that a woken group should have in the FIB and has not, or the other way round. Marks
    /// them for selection, at most `limit`; how many. Prefixes with several candidates come first, as far as that is
    /// found without long looking: for them there may be another way.
    pub(crate) fn scan(&mut self, resolver: &Resolver, limit: usize) -> usize {
        let Table { routes, contested, dirty, scan, .. } = self;
        if !scan.is_active() || limit == 0 {
            return 0;
        }
        let before = dirty.len();
        // Marks an entry if it is to be, and says whether more may be marked.
        let mut look = |scan: &ReselectionScan, prefix: Prefix<F>, route: &mut Route| {
            let selected = |c: &Candidate| match resolver.denies(c.group) {
                true => route.is_denied() && route.group == c.group,
                false => route.fib == c.group,
            };
            let wrong = |c: Candidate| scan.wants(c.group) && resolver.is_resolved(c.group) != selected(&c);
            if candidates(contested, prefix, route).any(wrong) && route.mark() {
                dirty.push(prefix);
            }
            dirty.len() - before < limit
        };
        let mut more = true;
        if scan.begins() {
            more = contested
                .keys()
                .take(limit * PLACES_EACH)
                .all(|prefix| routes.get_mut(*prefix).is_none_or(|route| look(scan, *prefix, route)));
        }
        if more {
            scan.turn(routes, limit * PLACES_EACH, look);
        }
        dirty.len() - before
    }

    /// How many prefixes are marked for selection.
    pub(crate) fn marked(&self) -> usize {
        self.dirty.len()
    }

    /// The group of each candidate of each prefix that is marked for selection.
    pub(crate) fn marked_groups(&self) -> impl Iterator<Item = u32> {
        let entries = self.dirty.iter().filter_map(|prefix| Some((*prefix, self.routes.get(*prefix)?)));
        entries.flat_map(|(prefix, route)| self.candidates(prefix, route)).map(|c| c.group)
    }

    /// Selects again for every marked prefix; what that changes in the FIB goes to `out`, and how each of those was in the
    /// FIB before to `before`: how it was learnt, or not there. `idle` is told of those of which no candidate can be used.
    pub(crate) fn select(
        &mut self,
        resolver: &mut Resolver,
        seq: u64,
        out: &mut Vec<FibRoute<F>>,
        mut before: impl FnMut(Option<Protocol>),
        mut idle: impl FnMut(Prefix<F>),
    ) {
        for prefix in self.dirty.drain(..) {
            let Some(route) = self.routes.get_mut(prefix) else { continue };
            let was_denied = std::mem::take(&mut route.marks) & DENIED != 0;
            let resolves = |c: &Candidate| c.usable() && resolver.is_resolved(c.group);
            let selected = candidates(&self.contested, prefix, route).find(resolves);
            let shown = selected.or_else(|| candidates(&self.contested, prefix, route).next());
            if was_denied {
                self.counts.denied[route.fib_protocol as usize] -= 1;
            }
            route.set_candidate(shown);
            let denied = selected.filter(|c| resolver.denies(c.group));
            let installed = if denied.is_some() { None } else { selected };
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
                // The FIB has none, so that its protocol's place is free.
                (route.marks, route.fib_protocol) = (DENIED, denied.protocol);
                self.counts.denied[denied.protocol as usize] += 1;
            }
            if shown.is_none() {
                self.routes.remove(prefix);
            } else if fib == 0 {
                idle(prefix);
            }
        }
    }

    /// What the FIB has for `prefix`, as an operation that installs it.
    pub(crate) fn installed(&self, prefix: Prefix<F>) -> Option<FibRoute<F>> {
        let route = self.routes.get(prefix).filter(|r| r.fib != 0)?;
        Some(FibRoute { prefix, group: Some(GroupId(route.fib)), protocol: route.fib_protocol })
    }

    /// Bytes that the table itself takes.
    pub(crate) fn allocation_size(&self) -> usize {
        let lists: usize = self.contested.values().map(|l| l.capacity() * size_of::<Candidate>()).sum();
        self.routes.allocation_size() + self.contested.allocation_size() + lists
    }
}

/// How many places of the table a turn looks at for each route that it may mark: a look costs so much less than a route.
const PLACES_EACH: usize = 8;

/// [`Table::candidates`] when the table is borrowed in parts.
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
