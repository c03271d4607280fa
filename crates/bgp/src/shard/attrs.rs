//! The attribute sets and next hops that a shard's paths use, by small numbers, counted.
//!
//! A set that came with a path identifier (RFC 7911) has a number of its own for each identifier. So a
//! path of eight bytes has its identifier, and other sessions pay nothing for it.
//!
//! Readers intern on their own and may hand in equal sets twice; here they become one, found by content. Only
//! this shard touches these counters: no path costs an atomic operation, and an UPDATE counts once for all its prefixes.

use super::next_hops::NextHops;
use super::table::{Seed, Slot, Table};
use crate::attr::AttrSet;
use crate::decision::Reason;
use ribtide_prefix::{AnyPrefix, BgpFamily, Prefix, prefetch};
use std::hash::BuildHasher;
use std::net::IpAddr;

/// Attribute sets in use, numbered.
pub(super) struct AttrTable {
    /// In chunks, so that growing copies nothing.
    chunks: Vec<Vec<Entry>>,
    /// The path identifiers of the entries, by chunk; empty where all are 0.
    path_ids: Vec<Box<[u32]>>,
    seed: Seed,
    /// The first unused number; each names the next as its next hop.
    unused: u32,
    /// Several, so that none is large when it grows: by the first bits of the hash.
    by_content: Vec<Table<Numbered>>,
    used: usize,
    /// Of these, sets with an accumulated IGP metric.
    with_aigp: usize,
    /// Numbers that nothing refers to, or did not for a moment; some may stand here twice. At most [`IDLE`].
    idle: Vec<u32>,
    pub(super) hops: NextHops,
    memory: usize,
}

/// Sets that go together, so that waits for their memory overlap.
const IDLE: usize = 32;

/// Entries of a chunk.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 10;
const PARTS_BITS: u32 = 6;
/// No number.
const NONE: u32 = u32::MAX;

struct Entry {
    /// `None` while the number is unused.
    attrs: Option<AttrSet>,
    hop: u32,
    refs: u32,
    /// Where a batch that has this set may have it first.
    in_batch: u32,
    /// What [`spot`] takes.
    hash: u32,
}

impl Entry {
    /// Whether it is a set that nothing refers to.
    fn is_idle(&self) -> bool {
        self.refs == 0 && self.attrs.is_some()
    }
}

/// A number under the hash of its set's content, less the bits that tell the table.
#[derive(Clone, Copy)]
struct Numbered {
    hash: u32,
    number: u32,
}

impl Slot for Numbered {
    fn empty() -> Numbered {
        Numbered { hash: 0, number: NONE }
    }

    fn is_empty(&self) -> bool {
        self.number == NONE
    }

    fn hash(&self, _: &Seed) -> u32 {
        self.hash
    }
}

/// Which table a set is in, and its hash there; from the better half of its content's hash.
fn spot(hash: u32) -> (usize, u32) {
    ((hash >> (u32::BITS - PARTS_BITS)) as usize, hash << PARTS_BITS)
}

impl AttrTable {
    /// An empty table. `tracks`: a next hop is unknown until the RIB manager has said what it is, and not reachable.
    pub(super) fn new(seed: Seed, tracks: bool) -> AttrTable {
        AttrTable {
            chunks: Vec::new(),
            path_ids: Vec::new(),
            unused: NONE,
            by_content: (0..1 << PARTS_BITS).map(|_| Table::new(seed.clone())).collect(),
            seed,
            used: 0,
            with_aigp: 0,
            idle: Vec::with_capacity(IDLE),
            hops: NextHops::new(tracks),
            memory: 0,
        }
    }

    /// Shrinks every table to its contents. O(capacity).
    pub(super) fn shrink_to_fit(&mut self) {
        self.by_content.iter_mut().for_each(Table::shrink_to_fit);
        if !self.idle.is_empty() {
            return;
        }
        let chunks = self.chunks.len();
        while self.chunks.pop_if(|chunk| chunk.iter().all(|entry| entry.attrs.is_none())).is_some() {}
        self.path_ids.truncate(self.chunks.len());
        for ids in self.path_ids.iter_mut().filter(|ids| ids.iter().all(|id| *id == 0)) {
            *ids = Box::default();
        }
        while self.path_ids.pop_if(|ids| ids.is_empty()).is_some() {}
        if self.chunks.len() < chunks {
            // The list of unused numbers led through those that are gone.
            self.unused = NONE;
            for (number, entry) in (0..).zip(self.chunks.iter_mut().flatten()) {
                if entry.attrs.is_none() {
                    entry.hop = std::mem::replace(&mut self.unused, number);
                }
            }
        }
    }

    /// The number of `attrs`, which stays good until [`AttrTable::release_ref`] if no path comes to use it. `exclude`: the prefix
    /// of the paths, where the next hop lies inside it; a set has a number of its own for each, and for each `path_id`.
    pub(super) fn acquire(&mut self, attrs: &AttrSet, path_id: u32, exclude: Option<AnyPrefix>) -> u32 {
        let content = (attrs.content_hash() >> 32) as u32 ^ self.hash_of(path_id);
        let (part, hash) = spot(content);
        let same = |slot: &Numbered| {
            let there = self.entry(slot.number);
            slot.hash == hash
                && there.attrs.as_ref().is_some_and(|a| AttrSet::ptr_eq(a, attrs) || a == attrs)
                && self.hops.exclude(there.hop) == exclude
                && self.path_id(slot.number) == path_id
        };
        if let Some(at) = self.by_content[part].find(hash, same) {
            let number = self.by_content[part].get(at).number;
            self.entry_mut(number).refs += 1;
            return number;
        }
        let hop = self.hops.acquire(attrs.next_hop().addr(), exclude);
        self.memory += attrs.memory();
        let number = self.add(Entry { attrs: Some(attrs.clone()), hop, refs: 1, in_batch: 0, hash: content });
        self.by_content[part].insert(hash, Numbered { hash, number });
        self.used += 1;
        self.with_aigp += usize::from(attrs.has_aigp());
        if path_id != 0 {
            self.set_path_id(number, path_id);
        }
        number
    }

    /// What a path identifier adds to the hash of a set. Seeded, because the peer chooses it.
    #[inline]
    fn hash_of(&self, path_id: u32) -> u32 {
        match path_id {
            0 => 0,
            _ => (self.seed.hash_one(path_id) >> 32) as u32,
        }
    }

    /// Whether any set has a path identifier, but 0.
    #[inline]
    pub(super) fn has_path_ids(&self) -> bool {
        !self.path_ids.is_empty()
    }

    /// The path identifier with which a set in use came; 0 without one.
    #[inline]
    pub(super) fn path_id(&self, number: u32) -> u32 {
        if self.has_path_ids() { self.stored_path_id(number) } else { 0 }
    }

    #[cold]
    #[inline(never)]
    fn stored_path_id(&self, number: u32) -> u32 {
        let ids = self.path_ids.get((number >> CHUNK_BITS) as usize);
        ids.and_then(|ids| ids.get(number as usize % CHUNK)).copied().unwrap_or_default()
    }

    #[cold]
    fn set_path_id(&mut self, number: u32, path_id: u32) {
        let chunk = (number >> CHUNK_BITS) as usize;
        if self.path_ids.len() <= chunk {
            self.path_ids.resize_with(chunk + 1, Box::default);
        }
        let ids = &mut self.path_ids[chunk];
        if ids.is_empty() {
            *ids = vec![0; CHUNK].into();
        }
        ids[number as usize % CHUNK] = path_id;
    }

    /// A set in use stays so, though no path may use it, until [`AttrTable::release_ref`].
    pub(super) fn hold(&mut self, number: u32) {
        self.entry_mut(number).refs += 1;
    }

    /// Undoes one [`AttrTable::acquire`] or [`AttrTable::hold`]. The last takes the set away, with the next
    /// [`AttrTable::clear_out`] at the latest.
    pub(super) fn release_ref(&mut self, number: u32) {
        let entry = self.entry_mut(number);
        entry.refs -= 1;
        if entry.refs == 0 {
            if self.idle.len() == IDLE {
                self.clear_out();
            }
            self.idle.push(number);
        }
    }

    /// Takes away the sets that nothing refers to any more.
    pub(super) fn clear_out(&mut self) {
        let idle = std::mem::take(&mut self.idle);
        for number in &idle {
            let entry = self.entry(*number);
            if let Some(attrs) = entry.attrs.as_ref().filter(|_| entry.refs == 0) {
                let (part, hash) = spot(entry.hash);
                prefetch((attrs.memory(), self.by_content[part].peek(hash).map(Slot::is_empty)));
            }
        }
        for number in &idle {
            // With the last set all numbers go.
            if self.used > 0 && self.entry(*number).is_idle() {
                self.remove(*number);
            }
        }
        self.idle = idle;
        self.idle.clear();
    }

    /// `count` more paths use a set in use, `recursive` ones or others.
    pub(super) fn retain<F: BgpFamily>(&mut self, number: u32, recursive: bool, count: u32) {
        let entry = self.entry_mut(number);
        entry.refs += count;
        let hop = entry.hop;
        self.hops.retain::<F>(hop, recursive, count);
    }

    /// A path less uses a set; see [`AttrTable::release_ref`].
    pub(super) fn release<F: BgpFamily>(&mut self, number: u32, recursive: bool) {
        let hop = self.entry(number).hop;
        self.hops.release::<F>(hop, recursive, 1);
        self.release_ref(number);
    }

    /// Paths that use a set in use are about to come: from now on its next hop counts among those that are not known, until
    /// [`AttrTable::announced`].
    pub(super) fn expect<F: BgpFamily>(&mut self, number: u32, recursive: bool) {
        let hop = self.entry(number).hop;
        self.hops.retain::<F>(hop, recursive, 1);
    }

    /// `count` paths came to use a set. Undoes one [`AttrTable::acquire`] and one [`AttrTable::expect`].
    pub(super) fn announced<F: BgpFamily>(&mut self, number: u32, recursive: bool, count: u32) {
        let entry = self.entry_mut(number);
        entry.refs += count;
        let hop = entry.hop;
        self.hops.announced::<F>(hop, recursive, count);
        self.release_ref(number);
    }

    fn remove(&mut self, number: u32) {
        let next = self.unused;
        let entry = self.entry_mut(number);
        let hop = std::mem::replace(&mut entry.hop, next);
        let (part, hash) = spot(entry.hash);
        let attrs = entry.attrs.take();
        self.unused = number;
        if let Some(attrs) = attrs {
            self.memory -= attrs.memory();
            self.with_aigp -= usize::from(attrs.has_aigp());
            let table = &mut self.by_content[part];
            if let Some(at) = table.find(hash, |slot| slot.number == number) {
                table.remove(at);
                table.shrink_if_sparse();
            }
            self.used -= 1;
        }
        self.hops.release_ref(hop);
        if self.path_id(number) != 0 {
            self.set_path_id(number, 0);
        }
        if self.len() == 0 {
            (self.chunks, self.path_ids, self.unused) = (Vec::new(), Vec::new(), NONE);
        }
    }

    fn add(&mut self, entry: Entry) -> u32 {
        if self.unused != NONE {
            let number = self.unused;
            let place = self.entry_mut(number);
            let next = std::mem::replace(place, entry).hop;
            self.unused = next;
            return number;
        }
        if self.chunks.last().is_none_or(|chunk| chunk.len() == CHUNK) {
            self.chunks.push(Vec::with_capacity(CHUNK));
        }
        let before = (self.chunks.len() - 1) << CHUNK_BITS;
        let chunk = self.chunks.last_mut().expect("there is one with room");
        chunk.push(entry);
        (before + chunk.len() - 1) as u32
    }

    fn entry(&self, number: u32) -> &Entry {
        &self.chunks[(number >> CHUNK_BITS) as usize][number as usize % CHUNK]
    }

    fn entry_mut(&mut self, number: u32) -> &mut Entry {
        &mut self.chunks[(number >> CHUNK_BITS) as usize][number as usize % CHUNK]
    }

    /// The set of a number in use.
    pub(super) fn get(&self, number: u32) -> &AttrSet {
        self.entry(number).attrs.as_ref().expect("a path's attribute set is in use")
    }

    /// The set of a number in use, and a note of where a batch has it.
    pub(super) fn in_batch(&mut self, number: u32) -> (&AttrSet, &mut u32) {
        let Entry { attrs, in_batch, .. } = self.entry_mut(number);
        (attrs.as_ref().expect("a path's attribute set is in use"), in_batch)
    }

    /// Interior cost to the next hop of a set in use, for paths that are `recursive` or not.
    #[inline]
    pub(super) fn cost(&self, number: u32, recursive: bool) -> Result<u32, Reason> {
        self.hops.cost(self.entry(number).hop, recursive)
    }

    /// The distance to the next hop of a set in use; `None`: it is not known, or cannot be used.
    pub(super) fn distance(&self, number: u32, recursive: bool) -> Option<u32> {
        self.hops.distance(self.entry(number).hop, recursive)
    }

    /// The next hop of a set in use.
    pub(super) fn next_hop(&self, number: u32) -> IpAddr {
        self.hops.address(self.entry(number).hop)
    }

    /// Whether the next hop of a set is reachable only for a route that has no other next hop.
    pub(super) fn is_alone(&self, number: u32, recursive: bool) -> bool {
        self.hops.is_alone(self.entry(number).hop, recursive)
    }

    /// The prefix that all paths of a set in use have, if it holds the next hop.
    pub(super) fn exclude(&self, number: u32) -> Option<AnyPrefix> {
        self.hops.exclude(self.entry(number).hop)
    }

    /// Whether the paths of this prefix have a number of their own for the set: its next hop lies inside of the prefix, or
    /// depends on it.
    #[inline(never)]
    pub(super) fn is_inside<F: BgpFamily>(&self, number: u32, prefix: Prefix<F>) -> bool {
        let hop = self.entry(number).hop;
        let apart = self.hops.apart(hop);
        prefix.contains(self.hops.address(hop)) || (!apart.is_empty() && apart.contains(&prefix.any()))
    }

    /// The number of the next hop of a set in use.
    pub(super) fn hop_number(&self, number: u32) -> u32 {
        self.entry(number).hop
    }

    /// Whether two sets in use have one next hop, whatever the link-local address beside it.
    pub(super) fn same_next_hop(&self, a: u32, b: u32) -> bool {
        let (a, b) = (self.entry(a), self.entry(b));
        a.hop == b.hop || self.hops.address(a.hop) == self.hops.address(b.hop)
    }

    /// Whether two sets in use are one, with a next hop of its prefix's own and without, or with another path
    /// identifier.
    pub(super) fn is_same_set(&self, a: u32, b: u32) -> bool {
        let several = self.has_path_ids();
        let (a, b) = (self.entry(a), self.entry(b));
        (several || (a.hop != b.hop && a.hash == b.hash)) && a.attrs == b.attrs
    }

    /// Whether any set has an accumulated IGP metric.
    #[inline]
    pub(super) fn has_aigp(&self) -> bool {
        self.with_aigp > 0
    }

    /// How many sets are in use.
    pub(super) fn len(&self) -> usize {
        self.used
    }

    /// Bytes of memory held, shared sets included.
    pub(super) fn memory(&self) -> usize {
        let index: usize = self.by_content.iter().map(Table::memory).sum();
        let path_ids: usize = self.path_ids.iter().map(|ids| size_of_val(&**ids)).sum();
        self.chunks.len() * CHUNK * size_of::<Entry>() + path_ids + index + self.memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::NextHop;

    fn set(origin: u8, hop: &str) -> AttrSet {
        AttrSet::new(&[0x40, 1, 1, origin], NextHop::V4(hop.parse().unwrap()))
    }

    #[test]
    fn equal_sets_are_one_and_the_last_reference_takes_it_away() {
        let mut table = AttrTable::new(Seed::default(), false);
        let a = table.acquire(&set(0, "10.0.0.1"), 0, None);
        assert_eq!(table.acquire(&set(0, "10.0.0.1"), 0, None), a);
        let b = table.acquire(&set(1, "10.0.0.1"), 0, None);
        assert_ne!(a, b);
        assert_eq!((table.len(), table.hops.in_use()), (2, 1));
        table.release_ref(a);
        table.release_ref(a);
        table.clear_out();
        assert_eq!((table.len(), table.hops.in_use()), (1, 1));
        assert_eq!(table.acquire(&set(2, "10.0.0.2"), 0, None), a, "numbers are used again");
        assert!(!table.same_next_hop(a, b));
        table.release_ref(a);
        table.release_ref(b);
        table.clear_out();
        assert_eq!((table.len(), table.hops.in_use(), table.memory), (0, 0, 0));
    }

    #[test]
    fn set_has_a_number_for_each_path_identifier() {
        let mut table = AttrTable::new(Seed::default(), false);
        let mut numbers = Vec::new();
        for path_id in 0..3000 {
            numbers.push(table.acquire(&set(0, "10.0.0.1"), path_id, None));
            assert_eq!(table.acquire(&set(0, "10.0.0.1"), path_id, None), numbers[path_id as usize]);
        }
        assert!((0..).zip(&numbers).all(|(id, number)| table.path_id(*number) == id));
        assert_eq!((table.len(), table.hops.in_use()), (3000, 1));
        // The numbers of those that go are used again, without their identifiers.
        for number in &numbers[..1500] {
            table.release_ref(*number);
            table.release_ref(*number);
        }
        table.clear_out();
        for origin in 0..200 {
            let number = table.acquire(&set(origin, "10.0.0.2"), 0, None);
            assert!(number < 1500 && table.path_id(number) == 0);
            table.release_ref(number);
        }
        assert!((1500..).zip(&numbers[1500..]).all(|(id, number)| table.path_id(*number) == id));
        numbers[1500..].iter().for_each(|number| (0..2).for_each(|_| table.release_ref(*number)));
        table.clear_out();
        assert_eq!((table.len(), table.memory, table.path_ids.len()), (0, 0, 0));
    }

    #[test]
    fn what_many_sets_took_is_given_back_beside_those_that_stay() {
        let mut table = AttrTable::new(Seed::default(), false);
        let nth = |n: u32| AttrSet::new(&n.to_be_bytes(), NextHop::V4("10.0.0.1".parse().unwrap()));
        let stay: Vec<u32> = (0..3 * CHUNK as u32 / 2).map(|n| table.acquire(&nth(n), 0, None)).collect();
        let come: Vec<u32> = (10_000..20_000).map(|n| table.acquire(&nth(n), 0, None)).collect();
        table.release_ref(stay[7]);
        come.iter().for_each(|number| table.release_ref(*number));
        table.shrink_to_fit();
        assert!(table.chunks.len() > 10, "some are not cleared out");
        table.clear_out();
        table.shrink_to_fit();
        assert_eq!((table.chunks.len(), table.len()), (2, stay.len() - 1));
        // Numbers that are free are so once, and those in use stay.
        let again: Vec<u32> =
            (20_000..20_000 + CHUNK as u32).map(|n| table.acquire(&nth(n), 0, None)).collect();
        let all: std::collections::BTreeSet<u32> = stay.iter().chain(&again).copied().collect();
        assert_eq!(all.len(), stay.len() + again.len() - 1, "only the one that was let go is used again");
        assert!((0..).zip(&stay).skip(8).all(|(n, number)| *table.get(*number) == nth(n)));
        assert_eq!(table.chunks.len(), 3);
    }

    #[test]
    fn a_set_that_comes_back_before_it_is_cleared_out_stays() {
        let mut table = AttrTable::new(Seed::default(), false);
        let (a, b) =
            (table.acquire(&set(0, "10.0.0.1"), 0, None), table.acquire(&set(1, "10.0.0.2"), 0, None));
        table.release_ref(a);
        assert_eq!(table.acquire(&set(0, "10.0.0.1"), 0, None), a);
        table.clear_out();
        assert_eq!((table.len(), table.get(a).next_hop().addr()), (2, "10.0.0.1".parse().unwrap()));
        // Idle twice, it goes once; and the rest of those that are idle does not mind that all are gone.
        for number in [b, a] {
            table.release_ref(number);
            table.hold(number);
            table.release_ref(number);
        }
        table.clear_out();
        assert_eq!((table.len(), table.hops.in_use(), table.memory), (0, 0, 0));
        let again = table.acquire(&set(2, "10.0.0.1"), 0, None);
        assert_eq!((again, table.len()), (0, 1));
    }
}
