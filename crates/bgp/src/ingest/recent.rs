//! The attribute sets that a reader has seen lately.
//!
//! A set that comes again is found here by its content and shared. It is a cache and no table of all sets: a shard
//! finds equal sets by content anyway, so a miss costs one allocation that soon ends, and nothing here ever grows,
//! moves or has to be swept while routes wait.
//!
//! Most sets of a table that is learnt come once, or in UPDATEs one after the other. So only the hash of a set is
//! remembered at first, and the set itself when it comes again: what comes once is never touched again, which would
//! cost more than all else that is done for it.

use crate::attr::{AttrSet, Content};

/// The last set, and a fixed number of places; the hash of a set's content says which is its own.
#[derive(Default)]
pub(super) struct Recent {
    last: Option<AttrSet>,
    /// None before the first set.
    places: Vec<Place>,
}

/// How many sets are remembered at most. In recorded UPDATEs of real sessions this finds nine of ten that a table of
/// all sets would find (see docs/adr/0002-attribute-sets.md), and its 256 KiB stay in a core's own cache.
const PLACES: usize = 1 << 14;

#[derive(Default)]
struct Place {
    /// That of the content seen last here.
    hash: u32,
    /// The set with this hash, if it came more than once.
    set: Option<AttrSet>,
}

impl Recent {
    /// The set with this content: one seen lately, or a new one.
    pub(super) fn intern(&mut self, content: &Content) -> &AttrSet {
        let set = match self.last.take() {
            Some(last) if last.has_content(content) => last,
            _ => self.find(content),
        };
        self.last.insert(set)
    }

    fn find(&mut self, content: &Content) -> AttrSet {
        if self.places.is_empty() {
            self.places.resize_with(PLACES, Place::default);
        }
        let hash = content.hash();
        let place = &mut self.places[hash as usize % PLACES];
        if place.hash != hash {
            *place = Place { hash, set: None };
            return AttrSet::of(content, hash);
        }
        match &place.set {
            Some(set) if set.has_content(content) => set.clone(),
            _ => place.set.insert(AttrSet::of(content, hash)).clone(),
        }
    }

    /// Forgets the sets that nobody else holds.
    pub(super) fn forget_unused(&mut self) {
        self.last = None;
        for place in &mut self.places {
            place.set.take_if(|set| set.handles() == 1);
        }
    }

    /// How many sets it remembers.
    pub(super) fn len(&self) -> usize {
        let places = || self.places.iter().filter_map(|place| place.set.as_ref());
        let last = self.last.as_ref().is_some_and(|last| places().all(|set| !AttrSet::ptr_eq(set, last)));
        places().count() + usize::from(last)
    }
}
