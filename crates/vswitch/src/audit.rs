//! Change watches for `route-check`: it registers suspected entries, and later asks which of them
//! no request changed. [`crate::walk`] lists the entries.

use crate::switch::VirtualSwitch;
use ribtide_prefix::{AnyPrefix, Map};
use ribtide_swss::sai::Oid;

/// The key of a route or a label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryKey {
    /// A route of a virtual router.
    Route(Oid, AnyPrefix),
    /// A label.
    Label(u32),
}

/// Watched entries, each with the first watch that registered it. A change removes the entry, so an
/// entry in this table was not changed since that watch, nor since a later one. All checks share it.
#[derive(Default)]
pub(crate) struct Watches {
    entries: Map<EntryKey, u64>,
    /// The last watch. It counts up and never starts again.
    last: u64,
    /// The first watch since the table was emptied; those before it are over.
    first: u64,
}

impl Watches {
    /// With so many entries the next watch empties the table: 8 watches of 500 entries each.
    const ENTRIES_THRESHOLD: usize = 4_000;

    /// An empty table; every watch so far is over.
    pub(crate) fn after(&self) -> Watches {
        Watches { entries: Map::default(), last: self.last, first: self.last + 1 }
    }
}

impl VirtualSwitch {
    /// Watches those of the entries that exist. Returns the number of this watch.
    pub fn watch(&mut self, keys: impl IntoIterator<Item = EntryKey>) -> u64 {
        if self.watches.entries.len() >= Watches::ENTRIES_THRESHOLD {
            self.watches = self.watches.after();
        }
        self.watches.last += 1;
        for key in keys {
            let exists = match key {
                EntryKey::Route(router, prefix) => self.route_at(router, prefix).is_some(),
                EntryKey::Label(label) => self.labels.contains_key(&label),
            };
            if exists {
                self.watches.entries.entry(key).or_insert(self.watches.last);
            }
        }
        self.watches.last
    }

    /// The entries of this and of earlier watches that no request has tried to change since this
    /// watch; `None` when it is over.
    pub fn unchanged(&self, watch: u64) -> Option<impl Iterator<Item = EntryKey>> {
        let Watches { entries, last, first } = &self.watches;
        let since = move |(key, first): (&EntryKey, &u64)| (*first <= watch).then_some(*key);
        (1.max(*first)..=*last).contains(&watch).then(|| entries.iter().filter_map(since))
    }

    /// Notes that an entry changes.
    pub(crate) fn touch(&mut self, key: EntryKey) {
        if !self.watches.entries.is_empty() {
            self.watches.entries.remove(&key);
        }
    }
}
