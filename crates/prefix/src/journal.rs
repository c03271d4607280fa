//! What changed since the last look, for a checker that compares the ends of a pipeline each second.
//!
//! Nothing is noted before the first look, nor after so many changes that a comparison of everything is the better one: who
//! never looks pays a comparison for each batch.

use crate::Set;
use std::hash::Hash;

/// The most that is noted.
const BOUND: usize = 1 << 16;

/// Keys, each once.
#[derive(Debug)]
pub struct Journal<K>(Option<Set<K>>);

impl<K> Default for Journal<K> {
    fn default() -> Self {
        Journal(None)
    }
}

impl<K: Eq + Hash> Journal<K> {
    /// Notes what changed.
    pub fn note(&mut self, keys: impl Iterator<Item = K>) {
        let Some(changed) = &mut self.0 else { return };
        for key in keys {
            if changed.len() == BOUND {
                self.0 = None;
                return;
            }
            changed.insert(key);
        }
    }

    /// Shrinks its buffers to their contents.
    pub fn shrink_to_fit(&mut self) {
        if let Some(changed) = &mut self.0 {
            changed.shrink_to_fit();
        }
    }

    /// What changed since the last time; `None`: this is the first, or it is too much. Noting goes on.
    pub fn take(&mut self) -> Option<Vec<K>> {
        self.0.replace(Set::default()).map(|changed| changed.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_change_once_and_not_too_many() {
        let mut journal = Journal::default();
        journal.note([1].into_iter());
        assert_eq!(journal.take(), None, "no checker had looked");
        journal.note([1, 2, 1].into_iter());
        let mut changed = journal.take().unwrap();
        changed.sort_unstable();
        assert_eq!((changed, journal.take()), (vec![1, 2], Some(vec![])));
        journal.note(0..BOUND);
        assert_eq!(journal.take().unwrap().len(), BOUND);
        journal.note(0..=BOUND);
        journal.note([1].into_iter());
        assert_eq!((journal.take(), journal.take()), (None, Some(vec![])));
    }
}
