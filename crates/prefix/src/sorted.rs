//! An ordered map for many changes and few looks: a sorted list, and the changes since it was sorted.

/// Changes that are taken before the list is sorted again, where it has few entries.
const LEAST_CHANGES: usize = 1024;
/// The share of the list that changes before it is sorted again, so that an entry moves some ten times
/// while the list grows.
const SHARE: usize = 8;

/// A map in the order of its keys. A change appends an entry; each look puts all changes where they
/// belong, which takes O(entries).
///
/// A full table arrives in no order, and a tree finds the place of each prefix in memory that is not in
/// the cache. For a million prefixes that takes twice as long; for some ten thousand, which fit the
/// cache, the tree needs fewer instructions (`docs/perf/2026-11-policy.md`).
#[derive(Debug)]
pub struct SortedMap<K, V> {
    /// In order, each key once.
    entries: Vec<(K, V)>,
    /// Later changes, as they came. `None`: it was removed.
    changes: Vec<(K, Option<V>)>,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap { entries: Vec::new(), changes: Vec::new() }
    }
}

impl<K: Copy + Ord, V> SortedMap<K, V> {
    /// Puts `value` at `key`, in place of the former one.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) {
        self.change(key, Some(value));
    }

    /// Removes the value at `key`, if there is one.
    #[inline]
    pub fn remove(&mut self, key: K) {
        self.change(key, None);
    }

    #[inline]
    fn change(&mut self, key: K, value: Option<V>) {
        self.changes.push((key, value));
        if self.changes.len() >= LEAST_CHANGES.max(self.entries.len() / SHARE) {
            self.apply_changes();
        }
    }

    /// All entries, in order.
    pub fn entries(&mut self) -> &[(K, V)] {
        self.apply_changes();
        &self.entries
    }

    /// How many keys have a value.
    pub fn count(&mut self) -> usize {
        // The same number takes less to find while few entries changed.
        if self.changes.len() * 64 > self.entries.len() {
            return self.entries().len();
        }
        self.changes.sort_by_key(|(key, _)| *key);
        let mut len = self.entries.len();
        for change in self.changes.chunk_by(|a, b| a.0 == b.0) {
            let Some((key, value)) = change.last() else { continue };
            let was_there = self.entries.binary_search_by_key(key, |(key, _)| *key).is_ok();
            len = len + usize::from(value.is_some()) - usize::from(was_there);
        }
        len
    }

    fn apply_changes(&mut self) {
        if self.changes.is_empty() {
            return;
        }
        // Stable, so that the last change of a key is its last one here.
        self.changes.sort_by_key(|(key, _)| *key);
        let mut merged = Vec::with_capacity(self.entries.len() + self.changes.len());
        let mut old = std::mem::take(&mut self.entries).into_iter().peekable();
        let mut new = std::mem::take(&mut self.changes).into_iter().peekable();
        while let Some((key, value)) = new.next() {
            if new.peek().is_some_and(|(next, _)| *next == key) {
                continue;
            }
            while let Some(entry) = old.next_if(|(before, _)| *before < key) {
                merged.push(entry);
            }
            drop(old.next_if(|(replaced, _)| *replaced == key));
            merged.extend(value.map(|value| (key, value)));
        }
        merged.extend(old);
        if merged.len() < merged.capacity() / 2 {
            merged.shrink_to_fit();
        }
        self.entries = merged;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use std::collections::BTreeMap;
    use std::rc::Rc;

    #[test]
    fn any_history_gives_the_entries_of_a_tree() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (mut map, mut tree) = (SortedMap::default(), BTreeMap::new());
            let keys = [50, 3000, 100_000][seed as usize % 3];
            for step in 0..rng.below(20_000) {
                let key = rng.below(keys);
                if rng.below(3) > 0 {
                    map.insert(key, step);
                    tree.insert(key, step);
                } else {
                    map.remove(key);
                    tree.remove(&key);
                }
                if rng.below(500) == 0 {
                    assert_eq!(map.count(), tree.len(), "seed {seed}, step {step}");
                }
                if rng.below(3000) == 0 {
                    assert!(map.entries().iter().copied().eq(tree.iter().map(|(k, v)| (*k, *v))));
                }
            }
            assert_eq!(map.count(), tree.len(), "seed {seed}");
            assert!(map.entries().iter().copied().eq(tree), "seed {seed}");
        }
    }

    #[test]
    fn replaced_and_removed_values_are_dropped_with_the_next_look() {
        let (mut map, value) = (SortedMap::default(), Rc::new(()));
        for key in 0..5000 {
            map.insert(key, value.clone());
        }
        (0..5000).for_each(|key| map.insert(key, value.clone()));
        (10..5000).for_each(|key| map.remove(key));
        assert_eq!((map.count(), map.entries().len()), (10, 10));
        assert_eq!(Rc::strong_count(&value), 11);
        assert!(map.entries.capacity() < 20 && map.changes.capacity() == 0);
    }

    #[test]
    fn a_look_is_due_at_the_latest_after_a_share_of_the_entries() {
        let mut map = SortedMap::default();
        for key in 0..100_000_u32 {
            map.insert(key.reverse_bits(), ());
            assert!(map.changes.len() < LEAST_CHANGES.max(map.entries.len() / SHARE));
        }
        assert_eq!(map.entries().len(), 100_000);
    }
}
