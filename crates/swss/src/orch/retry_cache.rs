//! The retry cache: changed routes by the constraint that holds them back, as in `orchagent/retrycache.h` of sonic-swss.
//!
//! A constraint is either unresolved for an unknown time, and orchagent goes on reading rows meanwhile; or a request for
//! it is in flight, and its routes count as waiting for the chip, like those in a bulk. Each route has one constraint, so
//! the cache holds at most one entry a task.

use super::route_table::{RouteId, Table};
use ribtide_prefix::{Map, Set};

/// What a route in the retry cache waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Constraint {
    /// A VRF.
    Vrf(u32),
    /// A router interface.
    Interface(u32),
    /// A neighbour to be resolved, with its link up.
    Hop(u32),
    /// A group to be in the chip.
    Group(u32),
    /// An index to have a row.
    Index(u32),
    /// Room in a table of the chip.
    TableFull(Table),
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

    /// Adds a route. `for_chip`: a request in flight will resolve the constraint; this holds for all its routes.
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
