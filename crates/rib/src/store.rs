//! Two small containers: objects with a stable number, and relations between numbers.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

/// Objects with stable 32-bit numbers above a base; 0 is never used. Numbers of removed objects are
/// reused.
#[derive(Debug)]
pub(crate) struct Store<T> {
    /// Numbers begin above it.
    base: u32,
    slots: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Store<T> {
    fn default() -> Self {
        Store::above(0)
    }
}

impl<T> Store<T> {
    /// An empty store whose numbers begin above `base`.
    pub(crate) fn above(base: u32) -> Self {
        Store { base, slots: vec![None], free: Vec::new() }
    }

    pub(crate) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(id) => {
                self.slots[(id - self.base) as usize] = Some(value);
                id
            }
            None => {
                self.slots.push(Some(value));
                self.base + (self.slots.len() - 1) as u32
            }
        }
    }

    /// The object with a number that may be invalid.
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id.checked_sub(self.base)? as usize)?.as_ref()
    }

    pub(crate) fn remove(&mut self, id: u32) -> T {
        let value = self.take(id);
        self.free(id);
        value
    }

    /// Removes the object. Its number is not reused before [`Store::free`].
    pub(crate) fn take(&mut self, id: u32) -> T {
        self.slots[(id - self.base) as usize].take().expect("a number in use")
    }

    /// Frees a number after [`Store::take`].
    pub(crate) fn free(&mut self, id: u32) {
        self.free.push(id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.after(0)
    }

    /// The objects with higher numbers than `id`.
    pub(crate) fn after(&self, id: u32) -> impl Iterator<Item = (u32, &T)> {
        let skipped = id.saturating_sub(self.base) as usize + 1;
        let slots = self.slots.iter().enumerate().skip(skipped);
        slots.filter_map(|(slot, value)| Some((self.base + slot as u32, value.as_ref()?)))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - 1 - self.free.len()
    }
}

impl<T> Index<u32> for Store<T> {
    type Output = T;
    #[inline]
    fn index(&self, id: u32) -> &T {
        self.slots[(id - self.base) as usize].as_ref().expect("a number in use")
    }
}

impl<T> IndexMut<u32> for Store<T> {
    #[inline]
    fn index_mut(&mut self, id: u32) -> &mut T {
        self.slots[(id - self.base) as usize].as_mut().expect("a number in use")
    }
}

/// A relation of ordered pairs, indexed by the first half. It is one tree and not a list per
/// object, so a removal never searches thousands of dependents.
#[derive(Debug)]
pub(crate) struct Edges<K>(BTreeSet<(K, u32)>);

impl<K: Ord> Default for Edges<K> {
    fn default() -> Self {
        Edges(BTreeSet::new())
    }
}

impl<K: Ord + Copy> Edges<K> {
    pub(crate) fn insert(&mut self, from: K, to: u32) {
        self.0.insert((from, to));
    }

    pub(crate) fn remove(&mut self, from: K, to: u32) {
        self.0.remove(&(from, to));
    }

    /// All objects related to `from`.
    pub(crate) fn of(&self, from: K) -> impl Iterator<Item = u32> {
        self.between(from, from)
    }

    /// All objects related to any of `first` to `last`, both included.
    pub(crate) fn between(&self, first: K, last: K) -> impl Iterator<Item = u32> {
        self.0.range((first, 0)..=(last, u32::MAX)).map(|(_, to)| *to)
    }
}
