//! A hash table with its entries in the order of their hashes.
//!
//! Open addressing, one array, linear probing: finding an entry is one access to memory, and where that will be is
//! known from the hash alone, so that a caller with many keys at hand can have their accesses overlap. The order gives
//! two things that a general map does not: it grows by half, copying from front to back, so at least half of it is in
//! use; and a walk can stop anywhere and go on from a hash, whatever came, went or grew in between.

use foldhash::fast::SeedableRandomState;
use ribtide_prefix::PREFETCH_BATCH;

/// What hashes are seeded with, so that keys cannot be aimed.
pub(super) type Seed = SeedableRandomState;

/// What a table holds.
pub(super) trait Slot: Copy {
    /// No entry.
    fn empty() -> Self;
    /// Whether it is no entry.
    fn is_empty(&self) -> bool;
    /// The hash of an entry's key.
    fn hash(&self, seed: &Seed) -> u32;
}

/// The table. Keys are the callers' to compare.
pub(super) struct Table<S> {
    /// Entries whose place is taken stand behind it, beyond `spread` at the end. Slots behind the last one here are empty.
    slots: Vec<S>,
    /// How many slots hashes are spread over.
    spread: usize,
    len: usize,
    /// How many entries it keeps room for, though it has fewer.
    reserved: usize,
    seed: Seed,
}

impl<S: Slot> Table<S> {
    pub(super) fn new(seed: Seed) -> Table<S> {
        Table { slots: Vec::new(), spread: 0, len: 0, reserved: 0, seed }
    }

    /// How many entries it has.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<S>()
    }

    /// The entries, in no order that means anything.
    pub(super) fn iter(&self) -> impl Iterator<Item = &S> {
        self.slots.iter().filter(|slot| !slot.is_empty())
    }

    /// The entries, in no order that means anything. Their keys are not to change.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut S> {
        self.slots.iter_mut().filter(|slot| !slot.is_empty())
    }

    /// Where an entry with this hash stands if it is in its place, to be prefetched.
    pub(super) fn peek(&self, hash: u32) -> Option<&S> {
        self.slots.get(self.home(hash))
    }

    /// Where the entry with this hash is of which `is` holds. The place is good until the table changes.
    pub(super) fn find(&self, hash: u32, is: impl Fn(&S) -> bool) -> Option<usize> {
        let mut at = self.home(hash);
        loop {
            let slot = self.slots.get(at)?;
            if slot.is_empty() {
                return None;
            }
            if is(slot) {
                return Some(at);
            }
            if slot.hash(&self.seed) > hash {
                return None;
            }
            at += 1;
        }
    }

    /// As [`Table::find`], for a key that was at `last` not long ago.
    pub(super) fn find_again(&self, last: usize, hash: u32, is: impl Fn(&S) -> bool) -> Option<usize> {
        match self.slots.get(last) {
            Some(slot) if is(slot) => Some(last),
            _ => self.find(hash, is),
        }
    }

    /// The entry at a place.
    pub(super) fn get(&self, at: usize) -> &S {
        &self.slots[at]
    }

    /// The entry at a place. Its key is not to change.
    pub(super) fn get_mut(&mut self, at: usize) -> &mut S {
        &mut self.slots[at]
    }

    /// Adds an entry whose key it does not have.
    pub(super) fn insert(&mut self, hash: u32, slot: S) {
        if (self.len + 1) * 5 > self.spread * 4 {
            self.rebuild((self.spread + self.spread / 2).max(8));
        }
        loop {
            let start = self.home(hash);
            if self.slots.len() <= start {
                self.slots.resize(start + 1, S::empty());
            }
            // Most entries find their place free.
            if self.slots[start].is_empty() {
                self.slots[start] = slot;
                self.len += 1;
                return;
            }
            let before = |slot: &S| !slot.is_empty() && slot.hash(&self.seed) <= hash;
            let at = start + self.slots[start..].iter().take_while(|slot| before(slot)).count();
            let free = self.slots[at..].iter().position(S::is_empty);
            let free = free.or_else(|| {
                let more = self.slots.len() < room(self.spread);
                more.then(|| {
                    self.slots.push(S::empty());
                    self.slots.len() - 1 - at
                })
            });
            if let Some(room) = free {
                self.slots.copy_within(at..at + room, at + 1);
                self.slots[at] = slot;
                self.len += 1;
                return;
            }
            self.rebuild(self.spread + self.spread / 2);
        }
    }

    /// Takes out the entry at a place; those behind it move up.
    pub(super) fn remove(&mut self, at: usize) {
        let mut end = at + 1;
        while end < self.slots.len()
            && !self.slots[end].is_empty()
            && self.home(self.slots[end].hash(&self.seed)) < end
        {
            end += 1;
        }
        self.slots.copy_within(at + 1..end, at);
        self.slots[end - 1] = S::empty();
        self.len -= 1;
    }

    /// Makes room for `len` entries in all and keeps it until [`Table::unreserve`]. It costs O(entries): memory for others is
    /// touched when they come.
    ///
    /// A table that entries leave or enter in the order of their hashes needs this. Made to fit, it would have all of them in
    /// one part of its slots, each far from its place, and a search would cost O(entries).
    pub(super) fn reserve(&mut self, len: usize) {
        let spread = (len + len / 3).max(8);
        if len > self.len && spread > self.spread {
            self.rebuild(spread);
        }
        self.reserved = len;
    }

    /// How many entries it keeps room for, though it has fewer.
    pub(super) fn reserved(&self) -> usize {
        self.reserved
    }

    /// Keeps no room for entries that are not there.
    pub(super) fn unreserve(&mut self) {
        self.reserved = 0;
    }

    /// Shrinks a table of which less than a quarter is in use to twice its length. Places change.
    pub(super) fn shrink_if_sparse(&mut self) {
        if self.len.max(self.reserved) == 0 {
            (self.slots, self.spread) = (Vec::new(), 0);
        } else if self.spread > 64 && self.len.max(self.reserved) * 4 < self.spread {
            self.rebuild(self.len.max(self.reserved) * 2);
        }
    }

    /// Shrinks the table to its entries and a little more: the next few do not make it grow. Places change.
    pub(super) fn shrink_to_fit(&mut self) {
        if self.reserved > 0 {
            return;
        }
        let wanted = self.len + self.len / 3;
        if self.spread > 64 && self.spread > wanted + wanted / 8 {
            self.rebuild(wanted);
        }
        self.shrink_if_sparse();
    }

    /// Visits entries from those of hash `from` on; what `visit` refuses to keep goes. Stops after about `budget`
    /// slots and returns the hash to go on from, or `None` at the end. `budget` is lessened by what it took. `prefetch` is
    /// called with the next slots, [`PREFETCH_BATCH`] at a time.
    pub(super) fn walk<C>(
        &mut self,
        from: u32,
        budget: &mut usize,
        context: &mut C,
        prefetch: impl Fn(&C, &[S]),
        mut visit: impl FnMut(&mut C, &mut S) -> bool,
    ) -> Option<u32> {
        let mut at = self.first(from);
        let mut last = None;
        let mut fetched = at;
        while at < self.slots.len() {
            if at >= fetched {
                fetched = self.slots.len().min(at + PREFETCH_BATCH);
                prefetch(context, &self.slots[at..fetched]);
            }
            let slot = &mut self.slots[at];
            let left = *budget;
            *budget = left.saturating_sub(1);
            if slot.is_empty() {
                at += 1;
                continue;
            }
            if left <= 1 {
                let hash = slot.hash(&self.seed);
                // Entries of one hash are not told apart by it: all or none.
                if left == 0 && last != Some(hash) {
                    return Some(hash);
                }
                last = Some(hash);
            }
            match visit(context, slot) {
                true => at += 1,
                false => self.remove(at),
            }
        }
        self.shrink_if_sparse();
        None
    }

    /// Where a run of entries ends that begins with hash `from` and weighs no more than `budget`, which is lessened by
    /// what it weighs: before the hash returned, or with the table. It has an entry, and all with its hash, if there is any.
    pub(super) fn run(&self, from: u32, budget: &mut usize, weight: impl Fn(&S) -> usize) -> Option<u32> {
        let mut last = None;
        for slot in self.slots.iter().skip(self.first(from)).filter(|slot| !slot.is_empty()) {
            let hash = slot.hash(&self.seed);
            let weight = weight(slot);
            // Entries of one hash are not told apart by it: all or none.
            if last.is_some_and(|last| last != hash) && weight > *budget {
                return Some(hash);
            }
            *budget = budget.saturating_sub(weight);
            last = Some(hash);
        }
        None
    }

    /// Visits the entries from those of hash `from` on to those before `end`, if there is one; what `visit` refuses to keep goes.
    pub(super) fn visit(&mut self, from: u32, end: Option<u32>, mut visit: impl FnMut(&mut S) -> bool) {
        let mut at = self.first(from);
        while let Some(slot) = self.slots.get_mut(at) {
            if slot.is_empty() {
                at += 1;
                continue;
            }
            if end.is_some_and(|end| slot.hash(&self.seed) >= end) {
                return;
            }
            match visit(slot) {
                true => at += 1,
                false => self.remove(at),
            }
        }
    }

    /// Takes out the entries from those of hash `from` on to those before `end`, if there is one, in order. No memory is given
    /// back; see [`Table::shrink_if_sparse`].
    pub(super) fn drain(&mut self, from: u32, end: Option<u32>) -> Vec<S> {
        let first = self.first(from).min(self.slots.len());
        let until = end.map_or(self.slots.len(), |end| self.first(end)).min(self.slots.len());
        let drained: Vec<S> =
            self.slots[first..until].iter().filter(|slot| !slot.is_empty()).copied().collect();
        self.slots[first..until].fill(S::empty());
        self.len -= drained.len();
        // Those behind them that stood off their places move up.
        let (mut free, mut at) = (first, until);
        while at < self.slots.len() && !self.slots[at].is_empty() {
            let home = self.home(self.slots[at].hash(&self.seed));
            if home >= at {
                break;
            }
            let to = home.max(free);
            self.slots.swap(at, to);
            (free, at) = (to + 1, at + 1);
        }
        drained
    }

    /// Where the first entry stands whose hash is not less than `hash`, or would.
    fn first(&self, hash: u32) -> usize {
        let home = self.home(hash);
        let before = |slot: &S| !slot.is_empty() && slot.hash(&self.seed) < hash;
        home + self.slots.iter().skip(home).take_while(|slot| before(slot)).count()
    }

    fn home(&self, hash: u32) -> usize {
        ((u64::from(hash) * self.spread as u64) >> 32) as usize
    }

    fn rebuild(&mut self, spread: usize) {
        let old = std::mem::replace(&mut self.slots, Vec::with_capacity(room(spread)));
        self.spread = spread;
        for slot in old.into_iter().filter(|slot| !slot.is_empty()) {
            let home = self.home(slot.hash(&self.seed));
            if home > self.slots.len() {
                self.slots.resize(home, S::empty());
            }
            self.slots.push(slot);
        }
    }
}

/// How many slots a table has whose hashes are spread over `spread` of them.
fn room(spread: usize) -> usize {
    spread + (spread / 8).clamp(8, 256)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// A key whose hash has few values, so that many are equal.
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Key(u32);

    impl Key {
        fn spread(self) -> u32 {
            (self.0 / 3 * 3).wrapping_mul(0x9e37_79b9)
        }
    }

    impl Slot for Key {
        fn empty() -> Key {
            Key(u32::MAX)
        }
        fn is_empty(&self) -> bool {
            self.0 == u32::MAX
        }
        fn hash(&self, _: &Seed) -> u32 {
            self.spread()
        }
    }

    fn put(table: &mut Table<Key>, key: Key) {
        if table.find(key.spread(), |k| *k == key).is_none() {
            table.insert(key.spread(), key);
        }
    }

    #[test]
    fn it_is_made_to_fit() {
        let mut table = Table::new(Seed::default());
        let keys = |n: std::ops::Range<u32>| n.map(|n| Key(3 * n));
        keys(0..3000).for_each(|key| put(&mut table, key));
        table.shrink_to_fit();
        let before = table.memory();
        keys(3000..5000).for_each(|key| put(&mut table, key));
        for key in keys(3000..5000) {
            table.remove(table.find(key.spread(), |k| *k == key).unwrap());
            table.shrink_if_sparse();
        }
        assert!(table.memory() > before + before / 3, "nothing else would do it");
        table.shrink_to_fit();
        assert!(table.memory() <= before + before / 8);
        let fitting = table.memory();
        table.shrink_to_fit();
        put(&mut table, Key(30_000));
        assert_eq!(table.memory(), fitting);
        assert!(keys(0..3000).all(|key| table.find(key.spread(), |k| *k == key).is_some()));
    }

    #[test]
    fn reserve_entries_come_in_any_order_without_growth() {
        let keys = |n: u32| (0..n).map(|n| Key(3 * n));
        let mut sorted: Vec<Key> = keys(5000).collect();
        sorted.sort_unstable_by_key(|key| key.spread());
        let back = sorted.iter().rev().copied().collect();
        for order in [sorted, keys(5000).collect(), back] {
            let mut table = Table::new(Seed::default());
            put(&mut table, Key(30_000));
            table.reserve(5001);
            let reserved = table.memory();
            for (n, key) in order.iter().enumerate() {
                table.remove(table.find(Key(30_000).spread(), |k| k.0 == 30_000).unwrap());
                table.shrink_if_sparse();
                put(&mut table, Key(30_000));
                put(&mut table, *key);
                assert!(table.find(key.spread(), |k| k == key).is_some() && table.len() == n + 2);
            }
            assert_eq!(table.memory(), reserved, "it was made again");
            table.reserve(5001);
            table.shrink_to_fit();
            assert_eq!(table.memory(), reserved);
            // Entries in front: the others stay where they are.
            let behind: Vec<usize> =
                order.iter().filter_map(|key| table.find(key.spread(), |k| k == key)).collect();
            table.drain(0, Some(u32::MAX / 2));
            table.shrink_if_sparse();
            let left: Vec<usize> =
                order.iter().filter_map(|key| table.find(key.spread(), |k| k == key)).collect();
            assert!(left.len() < 2600 && left.iter().all(|at| behind.contains(at)));
            order.iter().for_each(|key| put(&mut table, *key));
            put(&mut table, Key(30_000));
            assert_eq!(table.drain(0, None).len(), 5001);
            assert_eq!(table.memory(), reserved);
            table.unreserve();
            table.shrink_if_sparse();
            assert_eq!(table.memory(), 0);
        }
    }

    proptest! {
        #[test]
        fn it_is_a_set(steps in prop::collection::vec((any::<bool>(), 0..200u32), 0..600)) {
            let (mut table, mut model) = (Table::new(Seed::default()), BTreeSet::new());
            for (add, n) in steps {
                if add {
                    put(&mut table, Key(n));
                    model.insert(n);
                } else {
                    let found = table.find(Key(n).spread(), |k| k.0 == n);
                    prop_assert_eq!(found.is_some(), model.remove(&n));
                    if let Some(at) = found {
                        table.remove(at);
                        table.shrink_if_sparse();
                        if n % 8 == 0 {
                            table.shrink_to_fit();
                        }
                    }
                }
                prop_assert_eq!(table.len(), model.len());
            }
            prop_assert!(table.iter().map(|k| k.0).collect::<BTreeSet<_>>() == model);
            prop_assert!((0..200).all(|n| table.find(Key(n).spread(), |k| k.0 == n).is_some() == model.contains(&n)));
        }

        // Runs that are taken out one after the other are the table, in order, and what is left in between is whole.
        #[test]
        fn it_is_taken_out_run_by_run(
            keys in prop::collection::btree_set(0..3000u32, 0..300),
            come in prop::collection::vec(0..3000u32, 0..40),
            budget in 0..40usize,
        ) {
            let mut table = Table::new(Seed::default());
            keys.iter().for_each(|n| put(&mut table, Key(*n)));
            table.reserve(keys.len());
            let (mut model, mut from, mut come) = (keys, Some(0), come.into_iter());
            while let Some(begin) = from {
                let mut left = budget;
                let end = table.run(begin, &mut left, |key| 1 + key.0 as usize % 2);
                let mut visited = Vec::new();
                table.visit(begin, end, |key| {
                    visited.push(key.0);
                    key.0 % 7 != 0
                });
                let within = |n: u32| {
                    let hash = Key(n).spread();
                    hash >= begin && end.is_none_or(|end| hash < end)
                };
                visited.retain(|n| n % 7 != 0);
                model.retain(|n| n % 7 != 0 || !within(*n));
                let taken: Vec<u32> = table.drain(begin, end).iter().map(|key| key.0).collect();
                prop_assert_eq!(&taken, &visited);
                prop_assert!(taken.iter().all(|n| model.remove(n)));
                prop_assert!(!model.iter().any(|n| within(*n)));
                prop_assert!(taken.is_sorted_by_key(|n| Key(*n).spread()));
                // But for those of the last one's hash, they weigh no more than they may.
                let last = taken.last().map(|n| Key(*n).spread());
                let others = taken.iter().filter(|n| Some(Key(**n).spread()) != last);
                prop_assert!(others.map(|n| 1 + *n as usize % 2).sum::<usize>() <= budget);
                // Reserved room is kept. A table with more than four times as much may shrink.
                let (held, is_sparse) = (table.memory(), table.spread > 4 * table.reserved().max(table.len()));
                table.shrink_if_sparse();
                prop_assert!(table.memory() == held || is_sparse && table.spread >= 2 * table.reserved());
                // Entries behind the end still belong here.
                for n in come.by_ref().take(3).filter(|n| end.is_some_and(|end| Key(*n).spread() >= end)) {
                    put(&mut table, Key(n));
                    model.insert(n);
                }
                prop_assert_eq!(table.len(), model.len());
                let has = |n: u32| table.find(Key(n).spread(), |k| k.0 == n).is_some();
                prop_assert!((0..3000).all(|n| has(n) == model.contains(&n)));
                from = end;
            }
            prop_assert_eq!(table.len(), 0);
        }

        // Entries may come and go between the parts of a walk. It visits an entry that was there all the time
        // once and none twice, and takes out the requested ones.
        #[test]
        fn a_walk_goes_on_where_it_stopped(
            stay in prop::collection::btree_set(0..3000u32, 0..300),
            others in prop::collection::vec((any::<bool>(), 0..3000u32), 0..300),
            budget in 1..40usize,
        ) {
            let mut table = Table::new(Seed::default());
            stay.iter().for_each(|n| put(&mut table, Key(*n)));
            let (mut seen, mut others) = (Vec::new(), others.into_iter().filter(|(_, n)| !stay.contains(n)));
            let mut from = Some(0);
            while let Some(at) = from {
                let mut budget = budget;
                from = table.walk(at, &mut budget, &mut seen, |_, next| assert!(next.len() <= 32), |seen, key| {
                    seen.push(key.0);
                    key.0 % 2 == 0
                });
                for (add, n) in others.by_ref().take(20) {
                    match table.find(Key(n).spread(), |k| k.0 == n) {
                        None if add => table.insert(Key(n).spread(), Key(n)),
                        Some(at) if !add => table.remove(at),
                        _ => {}
                    }
                }
            }
            let once: BTreeSet<u32> = seen.iter().copied().collect();
            prop_assert!(once.is_superset(&stay));
            prop_assert!(seen.iter().filter(|n| stay.contains(n)).count() == stay.len());
            prop_assert!(stay.iter().all(|n| table.find(Key(*n).spread(), |k| k.0 == *n).is_some() == (n % 2 == 0)));
        }
    }
}
