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

/// Watched entries, each with its watches. Several checks may run at once; a change looks up its
/// entry here once for all of them.
#[derive(Default)]
pub(crate) struct Watches {
    entries: Map<EntryKey, u16>,
    /// The number of the last watch.
    last: u64,
}

impl Watches {
    /// Watches at once; a further one ends the oldest.
    const WATCHES_MAX: u64 = u16::BITS as u64;

    fn bit(watch: u64) -> u16 {
        1 << (watch % Watches::WATCHES_MAX)
    }

    /// No watches, with numbers above all earlier ones.
    pub(crate) fn after(&self) -> Watches {
        // A query for an earlier watch finds that it has ended.
        Watches { last: self.last + Watches::WATCHES_MAX, ..Watches::default() }
    }
}

impl VirtualSwitch {
    /// Watches the existing ones of these entries and returns the number of the watch. It ends at
    /// the sixteenth later watch.
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

    /// The entries of a watch that no request has tried to change; `None` when it has ended.
    pub fn unchanged(&self, watch: u64) -> Option<impl Iterator<Item = EntryKey>> {
        let Watches { entries, last } = &self.watches;
        let is_on = (1..=*last).contains(&watch) && watch + Watches::WATCHES_MAX > *last;
        let of_it =
            move |(key, watches): (&EntryKey, &u16)| (watches & Watches::bit(watch) != 0).then_some(*key);
        is_on.then(|| entries.iter().filter_map(of_it))
    }

    /// Notes a change of an entry.
    pub(crate) fn touch(&mut self, key: EntryKey) {
        if !self.watches.entries.is_empty() {
            self.watches.entries.remove(&key);
        }
    }
}
