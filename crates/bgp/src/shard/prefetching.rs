//! Accesses to memory for the prefixes of a batch, made together so that their waits overlap.

use super::paths::Path;
use super::route::{self, Route};
use super::table::Table;
use super::{Core, GROUP, Spot};
use crate::message::NONE;
use ribtide_prefix::{BgpFamily, Prefix, logical_shard, prefetch};
use smallvec::SmallVec;

impl Core {
    /// Finds the places of the next prefixes of a batch and prefetches routes, then paths, then the
    /// attributes of best paths, or the memory that a purge of `leaving` needs.
    pub(super) fn prefetch<F: BgpFamily>(
        &self,
        tables: &[Table<Route<F>>],
        prefixes: &[Prefix<F>],
        leaving: Option<u16>,
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
        match leaving {
            Some(session) => self.prefetch_leaving(&routes, session),
            None => self.prefetch_best(&routes),
        }
    }

    /// Prefetches for the removal of the paths of a session. For most routes that is the reference
    /// count of the attributes, because the best path is another and of another class.
    fn prefetch_leaving<F: BgpFamily>(&self, routes: &[Route<F>], session: u16) {
        let mut candidates_of: SmallVec<[u32; 2 * GROUP]> = SmallVec::new();
        for route in routes {
            let paths = route.paths(&self.paths);
            let Some(gone) = paths.iter().find(|path| path.session == session) else { continue };
            prefetch(self.attrs.hop_number(gone.attrs));
            if let Some(best) = route.best().map(|best| paths[best])
                && best.worth() == gone.worth()
            {
                candidates_of.extend([best.attrs, gone.attrs]);
            }
        }
        for attrs in candidates_of {
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
