//! The attribute sets that a reader has seen lately.
//!
//! A set that comes again is found here by its content and shared. It is a cache and no table of all sets: a shard
//! finds equal sets by content anyway, so a miss costs one allocation that soon ends, and nothing here ever grows,
//! moves or has to be swept while routes wait. An idle reader forgets all of it.
//!
//! Most sets of a table that is learnt come once, or in UPDATEs one after the other. So only the hash of a set is
//! remembered at first, and the set itself when it comes again: what comes once is never touched again, which would
//! cost more than all else that is done for it.

use crate::attr::{AttrSet, Content};

/// The last set, and a fixed number of places; the hash of a set's content says which is its own.
#[derive(Default)]
pub(super) struct Recent {
    last: Option<AttrSet>,
    /// For each place more of the hash of the content seen last there. Apart from the sets and small, because every
    /// set that is new looks here, and nowhere else. None before the first set.
    tags: Vec<u16>,
    /// For each place a set that came more than once, not always the one that was seen last.
    sets: Vec<Option<AttrSet>>,
}

/// How many sets are remembered at most. In recorded UPDATEs of real sessions this finds nine of ten that a table of
/// all sets would find (see docs/adr/0002-attribute-set-interning.md), and the 32 KiB of tags stay in a core's
/// own cache.
const PLACES: usize = 1 << 14;

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
        if self.tags.is_empty() {
            self.tags.resize(PLACES, 0);
            self.sets.resize(PLACES, None);
        }
        let hash = content.hash();
        let (place, tag) = (hash as usize % PLACES, (hash >> 16) as u16);
        if std::mem::replace(&mut self.tags[place], tag) != tag {
            return AttrSet::of(content, hash);
        }
        match &self.sets[place] {
            Some(set) if set.has_content(content) => set.clone(),
            _ => self.sets[place].insert(AttrSet::of(content, hash)).clone(),
        }
    }

    /// How many sets it remembers.
    pub(super) fn len(&self) -> usize {
        let sets = || self.sets.iter().flatten();
        let last = self.last.as_ref().is_some_and(|last| sets().all(|set| !AttrSet::ptr_eq(set, last)));
        sets().count() + usize::from(last)
    }
}
