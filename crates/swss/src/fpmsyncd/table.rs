//! The routes of one VRF, small: eight bytes beside the prefix.

use super::source::SourceId;
use super::stage::Stage;
use ribtide_prefix::{AnyPrefix, Families, Family, Map, PerFamily, Prefix, fit, for_each_family, relieve};
use std::hint::black_box;

/// One route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    /// Where it leads; `None` when it is withdrawn and the withdrawal not taken yet.
    pub(super) source: Option<SourceId>,
    /// In which session it was announced last.
    pub(super) epoch: u16,
    pub(super) protocol: u8,
    pub(super) stage: Stage,
}

impl Entry {
    pub(super) const GONE: Entry = Entry { source: None, epoch: 0, protocol: 0, stage: Stage::NEW };
}

const _: () = assert!(size_of::<Entry>() == 8);

struct Entries;

impl PerFamily for Entries {
    type Of<F: Family> = Map<Prefix<F>, Entry>;
}

/// Routes of one VRF by prefix.
#[derive(Default)]
pub(super) struct RouteTable(Families<Entries>);

impl RouteTable {
    pub(super) fn get(&self, prefix: AnyPrefix) -> Option<&Entry> {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.get(&p),
            AnyPrefix::V6(p) => self.0.v6.get(&p),
        }
    }

    /// Reads what will be read again when the route is looked for.
    pub(super) fn look_at(&self, prefix: AnyPrefix) {
        black_box(self.get(prefix).map(|entry| entry.stage));
    }

    pub(super) fn get_mut(&mut self, prefix: AnyPrefix) -> Option<&mut Entry> {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.get_mut(&p),
            AnyPrefix::V6(p) => self.0.v6.get_mut(&p),
        }
    }

    /// The entry of a prefix, withdrawn when it is new.
    pub(super) fn entry(&mut self, prefix: AnyPrefix) -> &mut Entry {
        match prefix {
            AnyPrefix::V4(p) => self.0.v4.entry(p).or_insert(Entry::GONE),
            AnyPrefix::V6(p) => self.0.v6.entry(p).or_insert(Entry::GONE),
        }
    }

    pub(super) fn remove(&mut self, prefix: AnyPrefix) {
        fn from<F: Family>(map: &mut Map<Prefix<F>, Entry>, prefix: Prefix<F>) {
            map.remove(&prefix);
            relieve(map);
        }
        match prefix {
            AnyPrefix::V4(p) => from(&mut self.0.v4, p),
            AnyPrefix::V6(p) => from(&mut self.0.v6, p),
        }
    }

    /// Lets go of room that was made for more than there is.
    pub(super) fn relieve(&mut self) {
        for_each_family!(F => fit(self.0.get_mut::<F>()));
    }

    pub(super) fn len(&self) -> usize {
        self.0.v4.len() + self.0.v6.len()
    }

    pub(super) fn allocation_size(&self) -> usize {
        self.0.v4.allocation_size() + self.0.v6.allocation_size()
    }

    pub(super) fn for_each(&self, mut each: impl FnMut(AnyPrefix, &Entry)) {
        for_each_family!(F => for (prefix, entry) in self.0.get::<F>() {
            each(prefix.any(), entry);
        });
    }

    pub(super) fn for_each_mut(&mut self, mut each: impl FnMut(AnyPrefix, &mut Entry)) {
        for_each_family!(F => for (prefix, entry) in self.0.get_mut::<F>() {
            each(prefix.any(), entry);
        });
    }
}
