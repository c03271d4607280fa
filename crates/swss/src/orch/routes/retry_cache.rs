//! The retry cache: changed routes by their constraint, as in `orchagent/retrycache.h` of
//! sonic-swss.
//!
//! An unresolved constraint may last for ever, and orchagent reads further rows meanwhile. A
//! constraint with a request in flight ends with the reply, so its routes count as waiting for the
//! chip, like those in a bulk. Each route has one constraint, so the cache holds at most one entry
//! for each task.

use super::{RouteId, Table};
use ribtide_prefix::{Map, Set};

/// The constraint of a route in the retry cache.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::orch) enum Constraint {
    /// A VRF.
    Vrf(u32),
    /// A router interface.
    Interface(u32),
    /// A next hop that is resolved and whose link is up.
    NextHop(u32),
    /// A group in the chip.
    Group(u32),
    /// An index with a row.
    Index(u32),
    /// Room in a table of the chip.
    TableFull(Table),
    /// The retry of the route's own refused request.
    Refused,
}

/// Routes by constraint.
#[derive(Default)]
pub(super) struct RetryCache {
    by_constraint: Map<Constraint, Waiters>,
    /// Routes of all constraints.
    all: usize,
    /// Routes of constraints with a request in flight.
    for_chip: usize,
}

/// The routes of one constraint.
#[derive(Default)]
struct Waiters {
    ids: Set<RouteId>,
    for_chip: bool,
}

impl RetryCache {
    /// How many routes have a constraint without a request in flight.
    pub(super) fn len(&self) -> usize {
        self.all - self.for_chip
    }

    /// Adds a route. `for_chip`: a request in flight will resolve the constraint; this holds for
    /// all its routes.
    pub(super) fn add(&mut self, id: RouteId, constraint: Constraint, for_chip: bool) {
        let waiters = self.by_constraint.entry(constraint).or_default();
        match (std::mem::replace(&mut waiters.for_chip, for_chip), for_chip) {
            (false, true) => self.for_chip += waiters.ids.len(),
            (true, false) => self.for_chip -= waiters.ids.len(),
            _ => {}
        }
        if waiters.ids.insert(id) {
            self.all += 1;
            self.for_chip += usize::from(for_chip);
        }
    }

    /// Removes a route that no longer waits for `constraint`.
    pub(super) fn remove(&mut self, id: RouteId, constraint: Constraint) {
        let Some(waiters) = self.by_constraint.get_mut(&constraint) else { return };
        if waiters.ids.remove(&id) {
            self.all -= 1;
            self.for_chip -= usize::from(waiters.for_chip);
        }
        if waiters.ids.is_empty() {
            self.by_constraint.remove(&constraint);
        }
    }

    /// How many routes have this constraint.
    pub(super) fn count(&self, constraint: Constraint) -> usize {
        self.by_constraint.get(&constraint).map_or(0, |waiters| waiters.ids.len())
    }

    /// Removes and returns all routes of `constraint`, in no order.
    pub(super) fn take(&mut self, constraint: Constraint) -> Vec<RouteId> {
        let Some(Waiters { ids, for_chip }) = self.by_constraint.remove(&constraint) else {
            return Vec::new();
        };
        self.all -= ids.len();
        self.for_chip -= if for_chip { ids.len() } else { 0 };
        ids.into_iter().collect()
    }

    /// Up to `count` routes of `constraint`, which stay in the cache.
    pub(super) fn some(&self, constraint: Constraint, count: usize) -> Vec<RouteId> {
        let ids = self.by_constraint.get(&constraint).into_iter().flat_map(|waiters| &waiters.ids);
        ids.take(count).copied().collect()
    }

    /// Every route with its constraint.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Constraint, RouteId)> {
        self.by_constraint
            .iter()
            .flat_map(|(constraint, waiters)| waiters.ids.iter().map(|id| (*constraint, *id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::orch::routes::table::RouteTable;
    use ribtide_prefix::AnyPrefix;
    use std::net::Ipv4Addr;

    fn ids(count: u32) -> Vec<RouteId> {
        let mut table = RouteTable::default();
        (0..count).map(|n| table.id_of(0, &AnyPrefix::host(Ipv4Addr::from_bits(n).into()))).collect()
    }

    #[test]
    fn retry_cache_len_leaves_out_constraints_with_a_request_in_flight() {
        let (mut cache, ids) = (RetryCache::default(), ids(3));
        cache.add(ids[0], Constraint::NextHop(1), false);
        cache.add(ids[1], Constraint::Group(1), true);
        assert_eq!(cache.len(), 1);
        // The request in flight is for all routes of the constraint.
        cache.add(ids[2], Constraint::NextHop(1), true);
        assert_eq!((cache.len(), cache.iter().count()), (0, 3));
        cache.remove(ids[1], Constraint::Group(1));
        assert_eq!(cache.take(Constraint::NextHop(1)).len(), 2);
        assert_eq!((cache.len(), cache.iter().count()), (0, 0));
    }

    #[test]
    fn retry_cache_some_leaves_routes_in_the_cache() {
        let (mut cache, ids) = (RetryCache::default(), ids(3));
        ids.iter().for_each(|id| cache.add(*id, Constraint::TableFull(Table::Ipv4), false));
        assert_eq!(cache.some(Constraint::TableFull(Table::Ipv4), 2).len(), 2);
        assert_eq!(cache.len(), 3);
    }
}
