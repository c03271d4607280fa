//! A cache of the attribute sets that a reader has seen recently.
//!
//! A set that arrives again is found by content and shared. This is a cache, not a table of all
//! sets: a shard finds equal sets by content anyway. So a miss costs one short-lived allocation,
//! and nothing here grows, moves or needs a scan. An idle reader drops all of it.
//!
//! Most sets of a full table arrive once, or in consecutive UPDATEs. So the first arrival stores
//! only the hash, and the second stores the set. A set that arrives once is never touched again,
//! which would cost more than all other work on it.

use crate::attr::{AttrSet, Content};

/// The last set, and a fixed number of places by content hash.
#[derive(Default)]
pub(super) struct Recent {
    last: Option<AttrSet>,
    /// More bits of the hash of the last content in each place. They are apart from the sets and
    /// small, because a new set reads only these. Empty before the first set.
    tags: Vec<u16>,
    /// A set that arrived more than once in each place; not always the last one.
    sets: Vec<Option<AttrSet>>,
}

/// Places. In recorded UPDATEs of real sessions this finds nine of ten sets that a complete table
/// would find (see docs/adr/0002-attribute-set-interning.md). The 32 KiB of tags stay in the L1
/// cache of a core.
const PLACES: usize = 1 << 14;

impl Recent {
    /// The set with this content: a recent one, or a new one.
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

    /// Cached sets.
    pub(super) fn len(&self) -> usize {
        let sets = || self.sets.iter().flatten();
        let last = self.last.as_ref().is_some_and(|last| sets().all(|set| !AttrSet::ptr_eq(set, last)));
        sets().count() + usize::from(last)
    }
}
