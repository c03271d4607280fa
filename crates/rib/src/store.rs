//! Two small containers: objects with a stable number, and relations between numbers.

use std::collections::BTreeSet;
use std::ops::{Index, IndexMut};

/// Objects under stable 32-bit numbers from 1 up, or from above another base; 0 is free to mean "none". Numbers of removed objects are used
/// again.
#[derive(Debug)]
pub(crate) struct Store<T> {
    /// What the numbers count from.
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
    /// One whose numbers begin above `base`.
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

    /// The object of a number that may be stale or made up.
    pub(crate) fn get(&self, id: u32) -> Option<&T> {
        self.slots.get(id.checked_sub(self.base)? as usize)?.as_ref()
    }

    pub(crate) fn remove(&mut self, id: u32) -> T {
        let value = self.take(id);
        self.free(id);
        value
    }

    /// Removes the object, and keeps its number from being used again until it is set [`Store::free`].
    pub(crate) fn take(&mut self, id: u32) -> T {
        self.slots[(id - self.base) as usize].take().expect("a number in use")
    }

    /// A number that was taken may be used again.
    pub(crate) fn free(&mut self, id: u32) {
        self.free.push(id);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        self.after(0)
    }

    /// Those with higher numbers than `id`.
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

/// A relation: ordered pairs, found by their first half. A tree and not a list per object, so that no removal
/// searches the thousands of others that depend on the same thing.
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

    /// Everything related to `from`.
    pub(crate) fn of(&self, from: K) -> impl Iterator<Item = u32> {
        self.between(from, from)
    }

    /// Everything related to any of `first` to `last`, both included.
    pub(crate) fn between(&self, first: K, last: K) -> impl Iterator<Item = u32> {
        self.0.range((first, 0)..=(last, u32::MAX)).map(|(_, to)| *to)
    }
}
