//! Changed routes that wait for something else than their turn, each under what it waits for.
//!
//! What they wait for is not there, and then there is no telling for how long, so that orchagent goes on taking rows; or the
//! chip was asked for it, and then they wait for the chip as those in a bulk do.

use super::routes::Cause;
use super::table::RouteId;
use ribtide_prefix::{Map, Set};

/// All that wait.
#[derive(Default)]
pub(super) struct Parked {
    under: Map<Cause, Waiting>,
    all: usize,
    for_chip: usize,
}

/// Those that wait for the same.
#[derive(Default)]
struct Waiting {
    ids: Set<RouteId>,
    for_chip: bool,
}

impl Parked {
    /// How many wait for what is not there.
    pub(super) fn len(&self) -> usize {
        self.all - self.for_chip
    }

    /// `for_chip`: the chip was asked for what this one waits for, and so for what all wait for that wait for the same.
    pub(super) fn add(&mut self, id: RouteId, cause: Cause, for_chip: bool) {
        let waiting = self.under.entry(cause).or_default();
        match (std::mem::replace(&mut waiting.for_chip, for_chip), for_chip) {
            (false, true) => self.for_chip += waiting.ids.len(),
            (true, false) => self.for_chip -= waiting.ids.len(),
            _ => {}
        }
        if waiting.ids.insert(id) {
            self.all += 1;
            self.for_chip += usize::from(for_chip);
        }
    }

    /// It no longer waits.
    pub(super) fn remove(&mut self, id: RouteId, cause: Cause) {
        let Some(waiting) = self.under.get_mut(&cause) else { return };
        if waiting.ids.remove(&id) {
            self.all -= 1;
            self.for_chip -= usize::from(waiting.for_chip);
        }
        if waiting.ids.is_empty() {
            self.under.remove(&cause);
        }
    }

    /// Takes all that wait for `cause`, in no order.
    pub(super) fn take(&mut self, cause: Cause) -> Vec<RouteId> {
        let Some(Waiting { ids, for_chip }) = self.under.remove(&cause) else { return Vec::new() };
        self.all -= ids.len();
        self.for_chip -= if for_chip { ids.len() } else { 0 };
        ids.into_iter().collect()
    }

    /// Up to `count` that wait for `cause`. They go on waiting.
    pub(super) fn some(&self, cause: Cause, count: usize) -> Vec<RouteId> {
        let ids = self.under.get(&cause).into_iter().flat_map(|waiting| &waiting.ids);
        ids.take(count).copied().collect()
    }

    /// All, and what each waits for.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Cause, RouteId)> {
        self.under.iter().flat_map(|(cause, waiting)| waiting.ids.iter().map(|id| (*cause, *id)))
    }
}
