//! Retries of refused requests: the objects and entries that the chip refused, and when each is
//! requested again.
//!
//! SONiC's orchagent drops a task that the chip refused, or aborts (`handleSaiFailure`,
//! `orchagent/saihelper.cpp`). A chip that refuses for a second would then lack the entry, or keep
//! its former next hop, for ever. Here the pause doubles with each refusal of the same request, so
//! a chip that never takes it costs one request in [`PAUSE_MAX`] pauses. A request that a full
//! table refused keeps the first pause, and is due at once when room was freed.

use crate::sai::Status;
use ribtide_prefix::{Map, shrink_if_sparse};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hash;

/// The longest pause, in first pauses: 64 s with the default.
const PAUSE_MAX: u32 = 64;

/// A request that the chip refused.
#[derive(Clone, Copy)]
struct Refused {
    status: Status,
    /// How often the chip refused it for another reason than a full table.
    count: u32,
    /// The time of the next try; `None` since that try began.
    due_ms: Option<u64>,
    /// Its place among those that a full table refused.
    full: Option<u64>,
}

/// Refused requests by the object or entry that they were for.
pub(super) struct BackOff<K> {
    first_pause_ms: u64,
    now_ms: u64,
    refused: Map<K, Refused>,
    /// Those that wait, in the order of their next try.
    due: BTreeSet<(u64, K)>,
    /// Those that wait for room in a table, the longest waiting first.
    full: BTreeMap<u64, K>,
    next_full: u64,
}

impl<K: Clone + Ord + Hash> BackOff<K> {
    /// Nothing refused. `first_pause_ms`: the pause after the first refusal.
    pub(super) fn new(first_pause_ms: u64) -> BackOff<K> {
        BackOff {
            first_pause_ms,
            now_ms: 0,
            refused: Map::default(),
            due: BTreeSet::new(),
            full: BTreeMap::new(),
            next_full: 0,
        }
    }

    /// Sets the time, in milliseconds from any start.
    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Notes a refusal; `table_full`: the reason is a full table, or an object in use. Returns
    /// whether it is the first since the request was accepted or changed.
    pub(super) fn refused(&mut self, key: K, status: Status, table_full: bool) -> bool {
        let before = self.stop_waiting(&key);
        let count = before.map_or(0, |before| before.count) + u32::from(!table_full);
        let pauses =
            if table_full { 1 } else { PAUSE_MAX.min(1u32.checked_shl(count - 1).unwrap_or(PAUSE_MAX)) };
        let due_ms = self.now_ms + self.first_pause_ms * u64::from(pauses);
        let full = table_full.then_some(self.next_full);
        if let Some(place) = full {
            self.next_full += 1;
            self.full.insert(place, key.clone());
        }
        self.due.insert((due_ms, key.clone()));
        self.refused.insert(key, Refused { status, count, due_ms: Some(due_ms), full });
        before.is_none()
    }

    /// Ends the wait of a request, if it waits. Returns what is known of it.
    fn stop_waiting(&mut self, key: &K) -> Option<Refused> {
        let refused = self.refused.get_mut(key)?;
        if let Some(due_ms) = refused.due_ms.take() {
            self.due.remove(&(due_ms, key.clone()));
        }
        if let Some(place) = refused.full.take() {
            self.full.remove(&place);
        }
        Some(*refused)
    }

    /// Notes that the request is tried now, before its time.
    pub(super) fn begin_try(&mut self, key: &K) {
        self.stop_waiting(key);
    }

    /// Forgets a request: the chip accepted it, or its content changed.
    pub(super) fn forget(&mut self, key: &K) {
        if !self.refused.is_empty() && self.stop_waiting(key).is_some() {
            self.refused.remove(key);
            shrink_if_sparse(&mut self.refused);
        }
    }

    /// The request that has waited longest for room in a table. It is tried now.
    pub(super) fn take_full(&mut self) -> Option<K> {
        let key = self.full.first_key_value()?.1.clone();
        self.begin_try(&key);
        Some(key)
    }

    /// Takes up to `max` requests whose time has come; they are tried now.
    pub(super) fn take_due(&mut self, max: usize) -> Vec<K> {
        let mut keys = Vec::new();
        while keys.len() < max && self.has_due() {
            let Some((_, key)) = self.due.first().cloned() else { break };
            self.begin_try(&key);
            keys.push(key);
        }
        keys
    }

    /// Whether the time of a request has come.
    pub(super) fn has_due(&self) -> bool {
        self.due.first().is_some_and(|(due_ms, _)| *due_ms <= self.now_ms)
    }

    /// Whether the request waits for its next try.
    pub(super) fn holds(&self, key: &K) -> bool {
        !self.due.is_empty() && self.refused.get(key).is_some_and(|refused| refused.due_ms.is_some())
    }

    /// The status of a request that waits, and the seconds until its next try.
    pub(super) fn get(&self, key: &K) -> Option<(Status, u64)> {
        let Refused { status, due_ms: Some(due_ms), .. } = self.refused.get(key)? else { return None };
        Some((*status, due_ms.saturating_sub(self.now_ms).div_ceil(1000)))
    }

    /// How many requests wait.
    pub(super) fn len(&self) -> usize {
        self.due.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused_at(back_off: &mut BackOff<u32>, now_ms: u64) -> u64 {
        back_off.set_now(now_ms);
        back_off.refused(1, Status::Failure, false);
        back_off.get(&1).unwrap().1
    }

    #[test]
    fn back_off_pause_doubles_up_to_its_bound_and_begins_again_after_success() {
        let mut back_off = BackOff::new(1000);
        let pauses: Vec<u64> = (0..40).map(|n| refused_at(&mut back_off, n * 100_000)).collect();
        assert_eq!(pauses[..8], [1, 2, 4, 8, 16, 32, 64, 64]);
        assert!(pauses[8..].iter().all(|pause| *pause == 64));
        assert!(!back_off.refused(1, Status::Failure, false));
        back_off.forget(&1);
        assert_eq!((back_off.len(), back_off.get(&1), back_off.refused.len()), (0, None, 0));
        assert_eq!(refused_at(&mut back_off, 0), 1);
    }

    #[test]
    fn back_off_takes_what_is_due_in_order_and_no_more_than_asked() {
        let mut back_off = BackOff::new(1000);
        for (now_ms, key) in [(0, 7), (0, 3), (500, 1)] {
            back_off.set_now(now_ms);
            assert!(back_off.refused(key, Status::Failure, false));
        }
        assert!(back_off.take_due(9).is_empty() && back_off.holds(&7));
        back_off.set_now(1499);
        assert_eq!(back_off.take_due(1), [3]);
        assert!(!back_off.holds(&3) && back_off.has_due());
        assert_eq!(back_off.take_due(9), [7]);
        assert!(!back_off.has_due() && back_off.len() == 1);
        back_off.set_now(1500);
        assert_eq!(back_off.take_due(9), [1]);
    }

    #[test]
    fn back_off_full_table_keeps_its_pause_and_is_due_when_room_is_freed() {
        let mut back_off = BackOff::new(1000);
        for key in [5, 4, 5] {
            back_off.refused(key, Status::TableFull, true);
            assert_eq!(back_off.get(&key), Some((Status::TableFull, 1)));
        }
        back_off.refused(1, Status::Failure, false);
        assert_eq!(
            [back_off.take_full(), back_off.take_full(), back_off.take_full()],
            [Some(4), Some(5), None]
        );
        assert_eq!(back_off.len(), 1);
    }
}
