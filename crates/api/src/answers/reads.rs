//! Paged reads of a table: the position between two pages.

use super::Refusal;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Concurrent reads at most; a further one ends the oldest.
const READS: usize = 16;

/// The reads of a table. `R` is the list of remaining keys, made at the start of the read and
/// sorted on the thread of the API. So pages are ordered, and a page costs the stages only its own
/// routes.
pub(crate) struct Reads<R>(Mutex<(u64, BTreeMap<u64, R>)>);

impl<R> Default for Reads<R> {
    fn default() -> Self {
        Reads(Mutex::default())
    }
}

impl<R> Reads<R> {
    /// Stores a read and returns its cursor.
    pub(super) fn put(&self, read: R) -> String {
        let mut reads = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        reads.0 += 1;
        let id = reads.0;
        reads.1.insert(id, read);
        while reads.1.len() > READS {
            reads.1.pop_first();
        }
        id.to_string()
    }

    /// Removes and returns the read of a cursor. A cursor works once.
    pub(super) fn take(&self, cursor: &str) -> Result<R, Refusal> {
        let known = |id| self.0.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&id);
        cursor.parse().ok().and_then(known).ok_or_else(|| {
            Refusal::Bad(format!("\"{cursor}\" is no read under way; start again without a cursor"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_goes_on_once_and_the_oldest_ends_when_there_are_too_many() {
        let reads = Reads::default();
        let cursors: Vec<String> = (0..=READS).map(|n| reads.put(n)).collect();
        assert!(reads.take(&cursors[0]).is_err() && reads.take("banana").is_err());
        assert_eq!(reads.take(&cursors[1]).ok(), Some(1));
        assert!(reads.take(&cursors[1]).is_err());
    }
}
