//! Pending changes, one per key: a later change of a key coalesces with the pending one, as in
//! Redis.

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use ribtide_prefix::HashBuilder;
use ribtide_swss::{Change, Row};
use std::hash::BuildHasher;

/// The usual number of pending changes, at most.
const COALESCED_CAPACITY: usize = 16_384;

/// Changes in the order in which their keys were first added.
#[derive(Debug)]
pub(crate) struct Coalesced<R: Row> {
    waiting: Vec<Change<R>>,
    /// Where each key's change stands in `waiting`, and half of the key's hash, so that changes themselves are seldom looked
    /// at. Empty until there is something to coalesce: what is added to an empty queue and taken at once goes as it is.
    at: HashTable<(u32, u32)>,
    hasher: HashBuilder,
}

impl<R: Row> Default for Coalesced<R> {
    fn default() -> Self {
        Coalesced { waiting: Vec::new(), at: HashTable::new(), hasher: HashBuilder::default() }
    }
}

impl<R: Row> Coalesced<R> {
    /// Adds all changes, and coalesces each with the pending one of its key.
    pub(crate) fn add(&mut self, changes: &mut Vec<Change<R>>) {
        if self.waiting.is_empty() {
            std::mem::swap(&mut self.waiting, changes);
            return;
        }
        if self.at.is_empty() {
            std::mem::take(&mut self.waiting).into_iter().for_each(|change| self.coalesce(change));
        }
        changes.drain(..).for_each(|change| self.coalesce(change));
    }

    fn coalesce(&mut self, change: Change<R>) {
        let part = self.hasher.hash_one(&change.key) as u32;
        // Hash tables use both ends of a hash.
        let whole = |part: u32| u64::from(part) << 32 | u64::from(part);
        let all = &mut self.waiting;
        let same = |(at, of): &(u32, u32)| *of == part && all[*at as usize].key == change.key;
        let at = match self.at.entry(whole(part), same, |(_, of)| whole(*of)) {
            Entry::Occupied(at) => at.get().0 as usize,
            Entry::Vacant(room) => {
                room.insert((all.len() as u32, part));
                all.push(change);
                return;
            }
        };
        let waiting = &mut all[at];
        let cleared = waiting.row.is_none() || waiting.reshaped || change.reshaped;
        waiting.row = match (waiting.row.take(), change.row) {
            (_, None) => None,
            // A row after a deletion keeps none of the old fields; `reshaped` is set then.
            (Some(mut older), Some(newer)) if !change.reshaped => {
                older.merge(newer);
                Some(older)
            }
            (_, Some(newer)) => Some(newer),
        };
        waiting.reshaped = cleared && waiting.row.is_some();
    }

    /// Frees its buffers, when no row waits.
    pub(crate) fn shrink_to_fit(&mut self) {
        if self.waiting.is_empty() {
            *self = Coalesced::default();
        }
    }

    /// The number of pending changes.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Whether no change is pending.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Takes all changes.
    pub(crate) fn take(&mut self) -> Vec<Change<R>> {
        // A map of the usual size is reused.
        match self.at.capacity() > COALESCED_CAPACITY {
            true => self.at = HashTable::new(),
            false => self.at.clear(),
        }
        std::mem::take(&mut self.waiting)
    }
}
