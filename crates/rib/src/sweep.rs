//! Looking through a table for the routes of some groups, a bounded piece at a time.
//!
//! A group that loses its last way, or has its first again, concerns every route that has it, and which those are only the
//! table knows. What cannot wait does not wait for them: a group that leads nowhere forwards nothing whatever its routes, and
//! one that leads somewhere again takes those along that still have it. So routes come in turns between everything else.
//!
//! One walk goes round and round as long as any group is woken, and each group is done when it has been past every place once.

use ribtide_prefix::{Family, Map, Prefix, PrefixTable};

/// The walk through one table.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    /// The next place.
    at: usize,
    /// Woken groups, each with how many places it has still to be looked for in.
    left: Map<u32, usize>,
    /// [`PrefixTable::moves`] when it last began.
    moves: u64,
    /// Groups were added, and no turn was taken since.
    begins: bool,
}

impl Sweep {
    /// Adds groups; those that are there start over.
    pub(crate) fn add<F: Family, T>(&mut self, groups: impl Iterator<Item = u32>, table: &PrefixTable<F, T>) {
        self.moves = if self.left.is_empty() { table.moves() } else { self.moves };
        self.left.extend(groups.map(|group| (group, table.places())));
        self.begins = !self.left.is_empty();
    }

    /// Whether there is anything left to look for.
    pub(crate) fn is_under_way(&self) -> bool {
        !self.left.is_empty()
    }

    /// Whether this group is looked for.
    #[inline]
    pub(crate) fn wants(&self, group: u32) -> bool {
        self.left.contains_key(&group)
    }

    /// Whether this is the first time that this is asked since groups were added.
    pub(crate) fn begins(&mut self) -> bool {
        std::mem::take(&mut self.begins)
    }

    /// Shows the entries in the next `places` places, or in fewer when `each` says that it is enough or nothing is left to look
    /// for.
    pub(crate) fn turn<F: Family, T>(
        &mut self,
        table: &mut PrefixTable<F, T>,
        places: usize,
        mut each: impl FnMut(&Sweep, Prefix<F>, &mut T) -> bool,
    ) {
        if std::mem::replace(&mut self.moves, table.moves()) != table.moves() {
            // Places are others now.
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
