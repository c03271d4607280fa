//! An ordered map for many changes and few reads: sorted pages, each with its changes since it was sorted.

/// Entries and changes of a page. A page that has as many is sorted, and split if it is more than half full. So a sort
/// works in the first-level cache, and an entry is sorted about twice while a table comes.
const PAGE_MAX: usize = 2048;
/// A page with fewer entries after a sort joins another.
const PAGE_MIN: usize = PAGE_MAX / 8;
/// The idle trim leaves unused at most this share of the entries.
const UNUSED_SHARE: usize = 8;
/// By how much a full page grows, so that a page has little unused memory.
const GROWTH: usize = PAGE_MAX / 8;

/// A map in the order of its keys. A change finds its page and is appended there; a read first sorts
/// the pages that it reads, which takes O(`PAGE_MAX` log `PAGE_MAX`) for each with changes.
///
/// A full table arrives in no order, and a tree finds the place of each prefix in memory that is not in the
/// cache. The bounds of the pages of a million prefixes fit the first-level cache, and the ends of these pages the
/// second (`docs/perf/2026-11-policy.md`).
#[derive(Debug)]
pub struct SortedMap<K, V> {
    /// The least key that belongs to each page but the first.
    bounds: Vec<K>,
    /// One more than `bounds`, or none.
    pages: Vec<Page<K, V>>,
}

/// The entries between two bounds.
#[derive(Debug)]
struct Page<K, V> {
    /// First the sorted entries, each key once and with a value; then changes as they came. `None`: it was removed.
    entries: Vec<(K, Option<V>)>,
    /// How many are sorted.
    sorted: usize,
}

impl<K, V> Default for SortedMap<K, V> {
    fn default() -> Self {
        SortedMap { bounds: Vec::new(), pages: Vec::new() }
    }
}

impl<K, V> Default for Page<K, V> {
    fn default() -> Self {
        Page { entries: Vec::new(), sorted: 0 }
    }
}

impl<K: Copy + Ord, V> SortedMap<K, V> {
    /// Puts `value` at `key`, in place of the former one.
    #[inline]
    pub fn insert(&mut self, key: K, value: V) {
        self.change(key, Some(value));
    }

    /// Removes the value at `key`, if there is one. It is dropped with the next sort of its page.
    #[inline]
    pub fn remove(&mut self, key: K) {
        self.change(key, None);
    }

    #[inline]
    fn change(&mut self, key: K, value: Option<V>) {
        let index = self.bounds.partition_point(|bound| *bound <= key);
        let Some(page) = self.pages.get_mut(index) else {
            self.pages.push(Page { entries: vec![(key, value)], sorted: 0 });
            return;
        };
        page.push(key, value);
        if page.entries.len() >= PAGE_MAX {
            self.make_room(index);
        }
    }

    /// Sorts a full page, and splits it or joins it with another.
    #[inline(never)]
    fn make_room(&mut self, index: usize) {
        let Some(page) = self.pages.get_mut(index) else { return };
        let len = page.sort();
        if len > PAGE_MAX / 2 {
            let upper = page.entries.split_off(len / 2);
            page.sorted = page.entries.len();
            let Some((bound, _)) = upper.first() else { return };
            self.bounds.insert(index, *bound);
            self.pages.insert(index + 1, Page { sorted: upper.len(), entries: upper });
        } else if len < PAGE_MIN && self.pages.len() > 1 {
            self.join(index);
        }
    }

    /// Moves the entries of a page to the page before it, or after the first page.
    fn join(&mut self, index: usize) {
        let Page { entries, .. } = self.pages.remove(index);
        self.bounds.remove(index.saturating_sub(1));
        if let Some(page) = self.pages.get_mut(index.saturating_sub(1)) {
            // They count as changes. A page that is more than full now is sorted with its next change.
            page.entries.extend(entries);
        }
    }

    /// All entries, in order.
    pub fn iter(&mut self) -> impl Iterator<Item = (K, &V)> {
        self.first_not(|_| false)
    }

    /// The entries from `first` on, in order.
    pub fn from(&mut self, first: K) -> impl Iterator<Item = (K, &V)> {
        self.first_not(move |key| *key < first)
    }

    /// The entries after `last`, in order; all for `None`.
    pub fn after(&mut self, last: Option<K>) -> impl Iterator<Item = (K, &V)> {
        self.first_not(move |key| last.is_some_and(|last| *key <= last))
    }

    /// The entries from the first one on of which `is_before` is false.
    fn first_not(&mut self, is_before: impl Fn(&K) -> bool) -> impl Iterator<Item = (K, &V)> {
        let index = self.bounds.partition_point(&is_before);
        let mut pages = self.pages.get_mut(index..).unwrap_or_default().iter_mut();
        let page = pages.next().map(Page::sorted_entries).unwrap_or_default();
        let from = page.partition_point(|(key, _)| is_before(key));
        let entries = page.get(from..).unwrap_or_default().iter().chain(pages.flat_map(Page::sorted_entries));
        entries.filter_map(|(key, value)| Some((*key, value.as_ref()?)))
    }

    /// How many keys have a value. Sorts the pages with changes.
    pub fn count(&mut self) -> usize {
        self.pages.iter_mut().map(Page::sort).sum()
    }

    /// How many entries and changes the pages have: at least [`SortedMap::count`]. Sorts nothing.
    pub fn entries(&self) -> usize {
        self.pages.iter().map(|page| page.entries.len()).sum()
    }

    /// Sorts all pages, and returns unused memory if that is more than a share of all. O(entries) then.
    pub fn shrink_to_fit(&mut self) {
        let len = self.count();
        let capacity: usize = self.pages.iter().map(|page| page.entries.capacity()).sum();
        if capacity <= len + len / UNUSED_SHARE {
            return;
        }
        // Pages of one size leave an allocator no gaps.
        let mut entries = std::mem::take(&mut self.pages).into_iter().flat_map(|page| page.entries);
        self.bounds = Vec::with_capacity(len.div_ceil(PAGE_MAX / 2).saturating_sub(1));
        self.pages = Vec::with_capacity(len.div_ceil(PAGE_MAX / 2));
        let mut left = len;
        while let Some(first) = entries.next() {
            if left < len {
                self.bounds.push(first.0);
            }
            let sorted = left.min(PAGE_MAX / 2);
            let mut page = Vec::with_capacity(sorted);
            page.push(first);
            page.extend(entries.by_ref().take(sorted - 1));
            self.pages.push(Page { entries: page, sorted });
            left -= sorted;
        }
    }
}

impl<K: Copy + Ord, V> Page<K, V> {
    #[inline]
    fn push(&mut self, key: K, value: Option<V>) {
        if self.entries.len() == self.entries.capacity() {
            self.entries.reserve_exact(GROWTH.min(self.entries.len()));
        }
        self.entries.push((key, value));
    }

    /// The entries in order, each with a value.
    fn sorted_entries(&mut self) -> &[(K, Option<V>)] {
        self.sort();
        &self.entries
    }

    /// Puts the changes where they belong. Returns the number of entries.
    fn sort(&mut self) -> usize {
        if self.sorted < self.entries.len() {
            // Stable, so that the last change of a key is its last one here.
            self.entries.sort_by_key(|(key, _)| *key);
            self.entries.dedup_by(|later, earlier| {
                let is_same = later.0 == earlier.0;
                if is_same {
                    std::mem::swap(later, earlier);
                }
                is_same
            });
            self.entries.retain(|(_, value)| value.is_some());
            self.sorted = self.entries.len();
        }
        self.sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rng;
    use std::collections::BTreeMap;
    use std::fmt::Debug;
    use std::rc::Rc;

    /// Whether the pages are as their fields say.
    #[track_caller]
    fn assert_sound<K: Copy + Ord + Debug, V>(map: &SortedMap<K, V>) {
        assert_eq!(map.pages.len(), map.bounds.len() + usize::from(!map.pages.is_empty()));
        assert!(map.bounds.is_sorted_by(|a, b| a < b));
        for (index, page) in map.pages.iter().enumerate() {
            let from = index.checked_sub(1).map(|before| map.bounds[before]);
            let end = map.bounds.get(index);
            assert!(page.entries.len() <= PAGE_MAX + PAGE_MIN);
            for (key, _) in &page.entries {
                assert!(from.is_none_or(|from| from <= *key) && end.is_none_or(|end| key < end), "{key:?}");
            }
            let sorted = &page.entries[..page.sorted];
            assert!(sorted.is_sorted_by(|a, b| a.0 < b.0) && sorted.iter().all(|(_, value)| value.is_some()));
        }
    }

    #[test]
    fn any_history_gives_the_entries_of_a_tree() {
        for seed in 0..40 {
            let mut rng = Rng::new(seed);
            let (mut map, mut tree) = (SortedMap::default(), BTreeMap::new());
            let keys = [50, 3000, 100_000][seed as usize % 3];
            // Of a thousand changes so many insert: the table grows, shrinks and grows again.
            let mut inserts = 700;
            for step in 0..rng.below(40_000) {
                let key = rng.below(keys);
                if rng.below(1000) < inserts {
                    map.insert(key, step);
                    tree.insert(key, step);
                } else {
                    map.remove(key);
                    tree.remove(&key);
                }
                if rng.below(500) == 0 {
                    assert_eq!(map.count(), tree.len(), "seed {seed}, step {step}");
                    assert!(map.from(key).map(|(k, v)| (k, *v)).eq(tree.range(key..).map(|(k, v)| (*k, *v))));
                    let after = tree.range((std::ops::Bound::Excluded(key), std::ops::Bound::Unbounded));
                    assert!(map.after(Some(key)).map(|(k, v)| (k, *v)).eq(after.map(|(k, v)| (*k, *v))));
                }
                if rng.below(3000) == 0 {
                    assert!(map.after(None).map(|(k, v)| (k, *v)).eq(tree.iter().map(|(k, v)| (*k, *v))));
                    inserts = [100, 400, 700, 950][rng.below(4) as usize];
                }
                if rng.below(3000) == 0 {
                    map.shrink_to_fit();
                    assert_sound(&map);
                }
            }
            assert_sound(&map);
            assert_eq!(map.count(), tree.len(), "seed {seed}");
            assert!(map.iter().map(|(k, v)| (k, *v)).eq(tree), "seed {seed}");
        }
    }

    #[test]
    fn replaced_and_removed_values_are_dropped_with_the_next_read() {
        let (mut map, value) = (SortedMap::default(), Rc::new(()));
        for key in 0..5000 {
            map.insert(key, value.clone());
        }
        (0..5000).for_each(|key| map.insert(key, value.clone()));
        (10..5000).for_each(|key| map.remove(key));
        assert_eq!((map.count(), map.iter().count()), (10, 10));
        assert_eq!(Rc::strong_count(&value), 11);
        map.shrink_to_fit();
        assert_eq!((map.pages.len(), map.pages[0].entries.capacity()), (1, 10));
        (0..10).for_each(|key| map.remove(key));
        map.shrink_to_fit();
        assert_eq!((map.pages.capacity(), map.bounds.capacity()), (0, 0));
    }

    #[test]
    fn a_read_sorts_the_pages_that_it_reads_alone() {
        let mut map = SortedMap::default();
        (0..100_000_u32).for_each(|key| map.insert(key.reverse_bits(), ()));
        let unsorted = |map: &SortedMap<u32, ()>| {
            map.pages.iter().filter(|page| page.sorted < page.entries.len()).count()
        };
        let before = unsorted(&map);
        assert!(before > 20);
        assert_eq!(map.from(1 << 31).next(), Some((1 << 31, &())));
        // It is the least key of its page, so the page before may have been read, too.
        assert!((before - 2..before).contains(&unsorted(&map)));
    }

    #[test]
    fn shrink_to_fit_leaves_pages_of_one_size_and_full_ones_alone() {
        let mut map = SortedMap::default();
        (0..10_000_u32).for_each(|key| map.insert(key.wrapping_mul(2_654_435_761), key));
        map.shrink_to_fit();
        assert_sound(&map);
        let capacities: Vec<_> = map.pages.iter().map(|page| page.entries.capacity()).collect();
        assert!(capacities.iter().rev().skip(1).all(|capacity| *capacity == PAGE_MAX / 2));
        assert_eq!(capacities.iter().sum::<usize>(), 10_000);
        let before: Vec<_> = map.pages.iter().map(|page| page.entries.as_ptr()).collect();
        map.insert(0, 7);
        map.shrink_to_fit();
        assert!(map.pages.iter().map(|page| page.entries.as_ptr()).skip(1).eq(before.into_iter().skip(1)));
        assert_eq!((map.count(), map.from(0).next()), (10_000, Some((0, &7))));
    }

    #[test]
    fn keys_that_only_grow_leave_no_empty_pages() {
        let mut map = SortedMap::default();
        for key in 0..200_000_u32 {
            map.insert(key, ());
            if let Some(old) = key.checked_sub(100) {
                map.remove(old);
            }
        }
        assert_eq!(map.count(), 100);
        assert!(map.pages.len() <= 3, "{} pages", map.pages.len());
    }
}
