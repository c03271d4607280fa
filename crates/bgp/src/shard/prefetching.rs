//! Accesses to memory for the prefixes of a batch, made together so that their waits overlap.

use super::paths::Path;
use super::route::{self, Route};
use super::table::{Slot, Table};
use super::{Core, GROUP, Spot};
use crate::message::NONE;
use ribtide_prefix::{BgpFamily, Prefix, logical_shard, prefetch};
use smallvec::SmallVec;

/// Paths of a route whose attributes are prefetched because one of them may be selected next.
const TIED_MAX: usize = 3;

impl Core {
    /// Finds the places of the next prefixes of a batch and prefetches routes, then paths, then the
    /// attributes of best paths if others `arrive`. `leaving`: the session whose paths go, or are
    /// replaced.
    pub(super) fn prefetch<F: BgpFamily>(
        &self,
        tables: &[Table<Route<F>>],
        prefixes: &[Prefix<F>],
        leaving: Option<u16>,
        arrive: bool,
        spots: &mut [Spot; GROUP],
    ) {
        for (prefix, spot) in prefixes.iter().zip(&mut *spots) {
            *spot =
                Spot { logical: logical_shard(*prefix), hash: route::hash(*prefix, &self.seed), at: NONE };
        }
        // A loop of its own, so that a core has more reads under way.
        for spot in &spots[..prefixes.len().min(GROUP)] {
            prefetch(tables[usize::from(spot.logical)].peek(spot.hash).map(Route::is_idle));
        }
        let mut routes: SmallVec<[Route<F>; GROUP]> = SmallVec::new();
        for (prefix, spot) in prefixes.iter().zip(spots) {
            let table = &tables[usize::from(spot.logical)];
            if let Some(at) = table.find(spot.hash, |route| route.is(*prefix)) {
                spot.at = at as u32;
                routes.push(*table.get(at));
            }
        }
        if let Some(session) = leaving {
            self.prefetch_removal(&routes, |paths| paths.iter().position(|path| path.session == session));
        }
        if arrive {
            self.prefetch_best(&routes);
        }
    }

    /// Prefetches for [`Core::purge`].
    pub(super) fn prefetch_purge<F: BgpFamily>(&self, routes: &[Route<F>]) {
        let leaving = self.sessions.leaving::<F>();
        self.prefetch_removal(routes, |paths| self.place_of_leaving::<F>(paths, leaving));
    }

    /// Prefetches for the removal of the path at `place` of each route: the paths, the reference count
    /// of its attributes, and the attributes that decide what is selected then. Those are few, because
    /// most paths are neither selected nor of the class of the selected one.
    fn prefetch_removal<F: BgpFamily>(&self, routes: &[Route<F>], place: impl Fn(&[Path]) -> Option<usize>) {
        let mut compared: SmallVec<[u32; (1 + TIED_MAX) * GROUP]> = SmallVec::new();
        for route in routes.iter().filter(|route| !route.is_empty()) {
            let paths = route.paths(&self.paths);
            let Some(at) = place(paths) else { continue };
            let (gone, selected) = (paths[at], paths[route.selected()]);
            prefetch(self.attrs.hop_number(gone.attrs));
            if route.selected() == at {
                let rest = || paths.iter().enumerate().filter(|(n, _)| *n != at).map(|(_, path)| path);
                let hint = rest().map(|path| path.worth()).min();
                compared.push(gone.attrs);
                let tied = rest().filter(|path| Some(path.worth()) == hint).take(TIED_MAX);
                compared.extend(tied.map(|path| path.attrs));
            } else if selected.worth() == gone.worth() {
                compared.extend([selected.attrs, gone.attrs]);
            }
        }
        for attrs in compared {
            prefetch(self.attrs.get(attrs).as_hops());
        }
    }

    /// Prefetches the attributes of best paths.
    pub(super) fn prefetch_best<F: BgpFamily>(&self, routes: &[Route<F>]) {
        let best: SmallVec<[Path; GROUP]> = routes.iter().filter_map(|route| self.best_of(route)).collect();
        for path in best {
            prefetch(self.attrs.get(path.attrs).as_hops());
        }
    }
}
