//! What who compares asks the switch: which of some entries nobody has changed since. Which it has, see [`crate::walk`].

use crate::switch::VirtualSwitch;
use ribtide_prefix::{AnyPrefix, Set};
use ribtide_swss::sai::Oid;

/// What a route or a label is found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryKey {
    /// A route of a virtual router.
    Route(Oid, AnyPrefix),
    /// A label.
    Label(u32),
}

impl VirtualSwitch {
    /// Watches these entries, those that it has, and no others any more: the number of this watch.
    pub fn watch(&mut self, keys: impl IntoIterator<Item = EntryKey>) -> u64 {
        let mut watched: Set<EntryKey> = keys.into_iter().collect();
        watched.retain(|key| match key {
            EntryKey::Route(router, prefix) => self.route_at(*router, *prefix).is_some(),
            EntryKey::Label(label) => self.labels.contains_key(label),
        });
        self.watched = watched;
        self.watch += 1;
        self.watch
    }

    /// Which of those of this watch nobody has tried to change since; none where somebody watches others by now.
    pub fn unchanged(&self, watch: u64) -> impl Iterator<Item = EntryKey> {
        self.watched.iter().copied().filter(move |_| watch == self.watch)
    }

    /// Notes that somebody changes it.
    pub(crate) fn touch(&mut self, key: EntryKey) {
        if !self.watched.is_empty() {
            self.watched.remove(&key);
        }
    }
}
