//! An arena: values by key and by a small number. The number of a removed value is used again.

use ribtide_prefix::Map;
use std::hash::Hash;

/// Values `T` by key `K` and by number.
pub(super) struct Arena<K, T> {
    ids: Map<K, u32>,
    slots: Vec<Option<(K, T)>>,
    free: Vec<u32>,
}

impl<K, T> Default for Arena<K, T> {
    fn default() -> Self {
        Arena { ids: Map::default(), slots: Vec::new(), free: Vec::new() }
    }
}

impl<K: Clone + Eq + Hash, T> Arena<K, T> {
    /// The number of a key that has one.
    pub(super) fn find(&self, key: &K) -> Option<u32> {
        self.ids.get(key).copied()
    }

    /// The number of `key`; a new key gets one, and the value `make()`.
    pub(super) fn id_of(&mut self, key: &K, make: impl FnOnce() -> T) -> u32 {
        if let Some(id) = self.find(key) {
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            self.slots.push(None);
            self.slots.len() as u32 - 1
        });
        self.slots[id as usize] = Some((key.clone(), make()));
        self.ids.insert(key.clone(), id);
        id
    }

    /// The key of a number that is in use.
    pub(super) fn key(&self, id: u32) -> &K {
        &self.slot(id).0
    }

    /// The value of a number that is in use.
    pub(super) fn get(&self, id: u32) -> &T {
        &self.slot(id).1
    }

    /// The value of a number that is in use, to change it.
    pub(super) fn get_mut(&mut self, id: u32) -> &mut T {
        match &mut self.slots[id as usize] {
            Some((_, value)) => value,
            None => unreachable!("number {id} is not in use"),
        }
    }

    /// Removes a value. Its number may be used again.
    pub(super) fn remove(&mut self, id: u32) -> Option<T> {
        let (key, value) = self.slots.get_mut(id as usize)?.take()?;
        self.ids.remove(&key);
        self.free.push(id);
        Some(value)
    }

    /// Whether a number is in use.
    pub(super) fn contains(&self, id: u32) -> bool {
        self.slots.get(id as usize).is_some_and(Option::is_some)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    /// Every number with its key and value.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &K, &T)> {
        let slots = self.slots.iter().enumerate();
        slots.filter_map(|(id, slot)| slot.as_ref().map(|(key, value)| (id as u32, key, value)))
    }

    fn slot(&self, id: u32) -> &(K, T) {
        match &self.slots[id as usize] {
            Some(slot) => slot,
            None => unreachable!("number {id} is not in use"),
        }
    }
}
