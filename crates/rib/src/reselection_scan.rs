//! The reselection scan: it walks a table in bounded turns and selects again for routes of groups
//! that became resolved or unresolved.
//!
//! A group that becomes resolved or unresolved concerns every route that uses it, and only the
//! table knows these routes. No failure waits for the scan. An unresolved group forwards nothing,
//! and its restored content serves the routes that still use it.
//!
//! One scan wraps around the table while any group is wanted. A group is done when the scan has
//! passed every place once.

use ribtide_prefix::{Family, Map, Prefix, PrefixTable};

/// The scan of one table.
#[derive(Debug, Default)]
pub(crate) struct ReselectionScan {
    /// The next place.
    at: usize,
    /// Wanted groups, each with the number of places that are still to be scanned for it.
    left: Map<u32, usize>,
    /// [`PrefixTable::moves`] at the start of the scan.
    moves: u64,
    /// Groups were added since the last turn.
    begins: bool,
}

impl ReselectionScan {
    /// Adds groups. The scan for a group that is wanted already starts over.
    pub(crate) fn add<F: Family, T>(&mut self, groups: impl Iterator<Item = u32>, table: &PrefixTable<F, T>) {
        self.moves = if self.left.is_empty() { table.moves() } else { self.moves };
        self.left.extend(groups.map(|group| (group, table.places())));
        self.begins = !self.left.is_empty();
    }

    /// Whether any group is wanted.
    pub(crate) fn is_active(&self) -> bool {
        !self.left.is_empty()
    }

    /// Whether this group is wanted.
    #[inline]
    pub(crate) fn wants(&self, group: u32) -> bool {
        self.left.contains_key(&group)
    }

    /// Whether this is the first call since groups were added.
    pub(crate) fn begins(&mut self) -> bool {
        std::mem::take(&mut self.begins)
    }

    /// Calls `each` with the entries in the next `places` places, until it returns false or no group is wanted.
    pub(crate) fn turn<F: Family, T>(
        &mut self,
        table: &mut PrefixTable<F, T>,
        places: usize,
        mut each: impl FnMut(&ReselectionScan, Prefix<F>, &mut T) -> bool,
    ) {
        if std::mem::replace(&mut self.moves, table.moves()) != table.moves() {
            // The table has moved its entries, so the scan starts over.
            self.left.values_mut().for_each(|left| *left = table.places());
        }
        let most = self.left.values().copied().max().unwrap_or(0);
        let mut seen = 0;
        while seen < most.min(places) {
            self.at = if self.at + 1 < table.places() { self.at + 1 } else { 0 };
            seen += 1;
            if table.at(self.at).is_some_and(|(prefix, entry)| !each(self, prefix, entry)) {
                break;
            }
        }
        self.left.retain(|_, left| {
            *left = left.saturating_sub(seen);
            *left > 0
        });
    }
}
