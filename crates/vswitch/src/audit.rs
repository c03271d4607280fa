//! Change watches for `route-check`: it registers the entries that it suspects, and asks later which of them were not changed since.
//! [`crate::walk`] lists the entries.

use crate::switch::VirtualSwitch;
use ribtide_prefix::{AnyPrefix, Map};
use ribtide_swss::sai::Oid;

/// What a route or a label is found by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum EntryKey {
    /// A route of a virtual router.
    Route(Oid, AnyPrefix),
    /// A label.
    Label(u32),
}

/// What is watched: by each entry, the watches that it is of. Several may compare at once; who changes an entry looks for it here once,
/// however many there are.
#[derive(Default)]
pub(crate) struct Watches {
    entries: Map<EntryKey, u16>,
    /// The number of the last watch.
    last: u64,
}

impl Watches {
    /// Watches at once: beyond them the oldest is over.
    const MOST: u64 = u16::BITS as u64;

    fn bit(watch: u64) -> u16 {
        1 << (watch % Watches::MOST)
    }

    /// These numbers and later ones, and nothing is watched.
    pub(crate) fn after(&self) -> Watches {
        // A client that asks about an earlier one learns that it is over.
        Watches { last: self.last + Watches::MOST, ..Watches::default() }
    }
}

impl VirtualSwitch {
    /// Watches these entries, those that it has: the number of this watch. Sixteen watches later it is over.
    pub fn watch(&mut self, keys: impl IntoIterator<Item = EntryKey>) -> u64 {
        let watch = self.watches.last + 1;
        let (bit, mut entries) = (Watches::bit(watch), std::mem::take(&mut self.watches.entries));
        entries.retain(|_, watches| {
            *watches &= !bit;
            *watches != 0
        });
        for key in keys {
            let is_there = match key {
                EntryKey::Route(router, prefix) => self.route_at(router, prefix).is_some(),
                EntryKey::Label(label) => self.labels.contains_key(&label),
            };
            if is_there {
                *entries.entry(key).or_default() |= bit;
            }
        }
        self.watches = Watches { entries, last: watch };
        watch
    }

    /// Which entries of this watch no request has tried to change since; `None` when it is over.
    pub fn unchanged(&self, watch: u64) -> Option<impl Iterator<Item = EntryKey>> {
        let Watches { entries, last } = &self.watches;
        let is_on = (1..=*last).contains(&watch) && watch + Watches::MOST > *last;
        let of_it =
            move |(key, watches): (&EntryKey, &u16)| (watches & Watches::bit(watch) != 0).then_some(*key);
        is_on.then(|| entries.iter().filter_map(of_it))
    }

    /// Notes that it changes.
    pub(crate) fn touch(&mut self, key: EntryKey) {
        if !self.watches.entries.is_empty() {
            self.watches.entries.remove(&key);
        }
    }
}
