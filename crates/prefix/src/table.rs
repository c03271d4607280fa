//! Prefix → value: exact access costs one hash look-up, longest match one look-up per length in
//! use.
//!
//! Routing tables see millions of exact look-ups a second. Longest matches are rare: resolution of
//! a next hop, or a query. So the exact key is fast and small; packets are forwarded by the chip's
//! table.

use crate::{BgpFamily, HashBuilder, Prefix, with_spare};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use std::hash::BuildHasher;
use std::net::IpAddr;

/// A map from prefixes to `T` with longest match.
pub struct PrefixTable<F: BgpFamily, T> {
    entries: HashTable<(Prefix<F>, T)>,
    hasher: HashBuilder,
    /// The number of prefixes of each length; only lengths in use are probed.
    lengths: [u32; 129],
    /// Counts events that may have moved entries.
    moves: u64,
}

impl<F: BgpFamily, T> Default for PrefixTable<F, T> {
    fn default() -> Self {
        PrefixTable { entries: HashTable::new(), hasher: HashBuilder::default(), lengths: [0; 129], moves: 0 }
    }
}

impl<F: BgpFamily, T> PrefixTable<F, T> {
    /// How many prefixes it holds.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The value at exactly `prefix`.
    #[inline]
    pub fn get(&self, prefix: Prefix<F>) -> Option<&T> {
        let hash = self.hasher.hash_one(prefix);
        self.entries.find(hash, |(key, _)| *key == prefix).map(|(_, value)| value)
    }

    /// The value at exactly `prefix`, to change.
    #[inline]
    pub fn get_mut(&mut self, prefix: Prefix<F>) -> Option<&mut T> {
        let hash = self.hasher.hash_one(prefix);
        self.entries.find_mut(hash, |(key, _)| *key == prefix).map(|(_, value)| value)
    }

    /// Puts `value` at `prefix` and returns what it replaced.
    pub fn insert(&mut self, prefix: Prefix<F>, value: T) -> Option<T> {
        match self.entry(prefix) {
            Entry::Occupied(mut old) => Some(std::mem::replace(&mut old.get_mut().1, value)),
            Entry::Vacant(place) => {
                place.insert((prefix, value));
                self.lengths[usize::from(prefix.len())] += 1;
                None
            }
        }
    }

    /// The value at `prefix`, made by `make` when there is none.
    #[inline]
    pub fn get_or_insert_with(&mut self, prefix: Prefix<F>, make: impl FnOnce() -> T) -> &mut T {
        let PrefixTable { entries, hasher, lengths, moves } = self;
        match entry(entries, hasher, moves, prefix) {
            Entry::Occupied(old) => &mut old.into_mut().1,
            Entry::Vacant(place) => {
                lengths[usize::from(prefix.len())] += 1;
                &mut place.insert((prefix, make())).into_mut().1
            }
        }
    }

    fn entry(&mut self, prefix: Prefix<F>) -> Entry<'_, (Prefix<F>, T)> {
        entry(&mut self.entries, &self.hasher, &mut self.moves, prefix)
    }

    /// Removes and returns the value at `prefix`.
    pub fn remove(&mut self, prefix: Prefix<F>) -> Option<T> {
        let hash = self.hasher.hash_one(prefix);
        let old = self.entries.find_entry(hash, |(key, _)| *key == prefix).ok()?;
        self.lengths[usize::from(prefix.len())] -= 1;
        let value = old.remove().0.1;
        self.shrink_if_sparse();
        Some(value)
    }

    /// As [`crate::shrink_if_sparse`] does with a map.
    fn shrink_if_sparse(&mut self) {
        const KEPT_CAPACITY: usize = 64;
        if self.entries.capacity() > KEPT_CAPACITY && self.entries.len() * 8 < self.entries.capacity() {
            self.shrink_to(self.entries.len() * 2);
        }
    }

    /// As [`crate::shrink_to_fit`] does with a map.
    pub fn shrink_to_fit(&mut self) {
        self.shrink_to(with_spare(self.entries.len()));
    }

    fn shrink_to(&mut self, room: usize) {
        let PrefixTable { entries, hasher, moves, .. } = self;
        let places = entries.num_buckets();
        entries.shrink_to(room, |(key, _)| hasher.hash_one(key));
        *moves += u64::from(entries.num_buckets() != places);
    }

    /// The most specific entry that holds `addr`.
    pub fn longest_match(&self, addr: IpAddr) -> Option<(Prefix<F>, &T)> {
        self.matches(addr).next()
    }

    /// Every entry that holds `addr`, most specific first; nothing for an address of the other family.
    pub fn matches(&self, addr: IpAddr) -> impl Iterator<Item = (Prefix<F>, &T)> {
        let host = Prefix::<F>::host(addr);
        host.into_iter().flat_map(move |host| {
            (0..=F::WIDTH).rev().filter(|len| self.lengths[usize::from(*len)] > 0).filter_map(move |len| {
                let prefix = host.truncate(len);
                self.get(prefix).map(|value| (prefix, value))
            })
        })
    }

    /// Every entry, in any order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<F>, &T)> {
        self.entries.iter().map(|(prefix, value)| (*prefix, value))
    }

    /// Every entry, in any order, with mutable values.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Prefix<F>, &mut T)> {
        self.entries.iter_mut().map(|(prefix, value)| (*prefix, value))
    }

    /// The number of places: the valid arguments of [`PrefixTable::at`].
    pub fn places(&self) -> usize {
        self.entries.num_buckets()
    }

    /// The entry in a place, if there is one, with a mutable value. A walk over all places meets
    /// every entry that stays in the table, while [`PrefixTable::moves`] is unchanged.
    #[inline]
    pub fn at(&mut self, place: usize) -> Option<(Prefix<F>, &mut T)> {
        self.entries.get_bucket_mut(place).map(|(prefix, value)| (*prefix, value))
    }

    /// The entry in a place, if there is one; as [`PrefixTable::at`].
    #[inline]
    pub fn entry_at(&self, place: usize) -> Option<(Prefix<F>, &T)> {
        self.entries.get_bucket(place).map(|(prefix, value)| (*prefix, value))
    }

    /// Rises when entries may have moved to other places.
    pub fn moves(&self) -> u64 {
        self.moves
    }

    /// Bytes of the table's own memory, without what values point to.
    pub fn allocation_size(&self) -> usize {
        self.entries.allocation_size() + size_of::<Self>()
    }
}

/// [`PrefixTable::entry`] when the table is borrowed in parts.
#[inline]
fn entry<'a, F: BgpFamily, T>(
    entries: &'a mut HashTable<(Prefix<F>, T)>,
    hasher: &HashBuilder,
    moves: &mut u64,
    prefix: Prefix<F>,
) -> Entry<'a, (Prefix<F>, T)> {
    if entries.len() == entries.capacity() {
        // The space for another entry is reserved first.
        *moves += 1;
    }
    let hash = hasher.hash_one(prefix);
    entries.entry(hash, |(key, _)| *key == prefix, |(key, _)| hasher.hash_one(key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::V4;

    #[test]
    fn longest_match_prefers_the_most_specific_and_forgets_what_was_removed() {
        let mut table = PrefixTable::<V4, &str>::default();
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.1/32"] {
            assert!(table.insert(text.parse().unwrap(), text).is_none());
        }
        let longest =
            |t: &PrefixTable<V4, &'static str>, a: &str| *t.longest_match(a.parse().unwrap()).unwrap().1;
        assert_eq!(longest(&table, "10.1.1.1"), "10.1.1.1/32");
        assert_eq!(longest(&table, "10.1.1.2"), "10.1.0.0/16");
        assert_eq!(longest(&table, "192.0.2.1"), "0.0.0.0/0");
        assert_eq!(table.matches("10.1.1.1".parse().unwrap()).count(), 4);
        table.remove("10.1.0.0/16".parse().unwrap());
        assert_eq!(longest(&table, "10.1.1.2"), "10.0.0.0/8");
        assert!(table.longest_match("::1".parse().unwrap()).is_none());
        assert_eq!(table.len(), 3);
    }

    #[test]
    fn memory_is_given_back_when_entries_go() {
        let prefix = |n: u32| Prefix::<V4>::host(std::net::IpAddr::V4(n.into())).unwrap();
        let mut table = PrefixTable::<V4, u32>::default();
        let before = table.allocation_size();
        for n in 0..100_000 {
            table.insert(prefix(n), n);
        }
        let (full, moves) = (table.allocation_size(), table.moves());
        for n in 10..100_000 {
            assert_eq!(table.remove(prefix(n)), Some(n));
        }
        assert!(table.allocation_size() < before + full / 10, "{} of {full} bytes", table.allocation_size());
        assert!(table.moves() > moves && (0..10).all(|n| table.get(prefix(n)) == Some(&n)));
    }

    #[test]
    fn a_table_is_made_to_fit_and_says_that_entries_moved() {
        let prefix = |n: u32| Prefix::<V4>::host(std::net::IpAddr::V4(n.into())).unwrap();
        let mut table = PrefixTable::<V4, u32>::default();
        (0..1000).for_each(|n| assert_eq!(table.insert(prefix(n), n), None));
        let (before, moves) = (table.allocation_size(), table.moves());
        table.shrink_to_fit();
        assert_eq!((table.allocation_size(), table.moves()), (before, moves), "it fits");
        (1000..3000).for_each(|n| assert_eq!(table.insert(prefix(n), n), None));
        (1000..3000).for_each(|n| assert_eq!(table.remove(prefix(n)), Some(n)));
        let moves = table.moves();
        assert!(table.allocation_size() > before);
        table.shrink_to_fit();
        assert!(table.allocation_size() == before && table.moves() > moves);
        assert!((0..1000).all(|n| table.get(prefix(n)) == Some(&n)));
    }

    #[test]
    fn a_walk_in_pieces_meets_all_that_stays_unless_entries_moved() {
        let prefix = |n: u32| Prefix::<V4>::host(std::net::IpAddr::V4(n.into())).unwrap();
        let mut table = PrefixTable::<V4, bool>::default();
        let (mut walks, mut whole, mut next) = (0, 0, 1000);
        for n in 0..600 {
            table.insert(prefix(n), false);
        }
        for _ in 0..200 {
            table.iter_mut().for_each(|(_, seen)| *seen = false);
            let moves = table.moves();
            for place in 0..table.places() {
                if let Some((_, seen)) = table.at(place) {
                    *seen = true;
                }
                if place % 4 == 0 {
                    // Others come and go between two pieces, so that the table is swept clean now and then.
                    table.insert(prefix(next), true);
                    table.remove(prefix(next - 100));
                    next += 1;
                }
            }
            walks += 1;
            if table.moves() == moves {
                whole += 1;
                assert!((0..600).all(|n| table.get(prefix(n)) == Some(&true)));
            }
        }
        assert!(whole > 10 && whole < walks, "{whole} of {walks}: some walks are whole, not all");
        assert!(table.at(table.places()).is_none());
    }
}
