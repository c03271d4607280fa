//! The bytes of frames that wait for syncd, and how many frames found no room.

use ribtide_prefix::Map;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Bytes that wait at most: a chip of 32 ports has a packet buffer of some MiB.
pub(super) const BYTES_MAX: usize = 4 << 20;

/// The room of a queue of frames.
#[derive(Debug, Default)]
pub(super) struct Room {
    bytes: AtomicUsize,
    /// Frames of each device that found none.
    missed: Mutex<Map<u64, u64>>,
    has_missed: AtomicBool,
}

impl Room {
    /// Takes room for a frame of so many bytes; `false`: there is none.
    pub(super) fn take(&self, bytes: usize) -> bool {
        let enough = |waiting: usize| waiting.checked_add(bytes).filter(|sum| *sum <= BYTES_MAX);
        // The count alone is shared; the frames themselves go through the queue.
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, enough).is_ok()
    }

    /// Gives back the room of a frame.
    pub(super) fn give_back(&self, bytes: usize) {
        self.bytes.fetch_sub(bytes, Ordering::Relaxed);
    }

    /// Counts frames of a device that were dropped.
    pub(super) fn miss(&self, device: u64, count: u64) {
        let mut missed = self.missed.lock().unwrap_or_else(PoisonError::into_inner);
        *missed.entry(device).or_default() += count;
        self.has_missed.store(true, Ordering::Release);
    }

    /// Takes the counts of dropped frames, by device.
    pub(super) fn take_missed(&self) -> Map<u64, u64> {
        match self.has_missed.swap(false, Ordering::Acquire) {
            false => Map::default(),
            true => std::mem::take(&mut *self.missed.lock().unwrap_or_else(PoisonError::into_inner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_wait_up_to_a_bound_of_bytes_and_the_newest_are_dropped() {
        let room = Room::default();
        // The greatest frames of 64 batches of 64 would be 256 MiB.
        let waiting = (0..64 * 64).filter(|_| room.take(65_536)).count();
        assert_eq!(waiting, BYTES_MAX / 65_536);
        assert!(!room.take(1), "it is full to the byte");
        room.give_back(65_536);
        assert!(room.take(65_000) && room.take(536) && !room.take(1));
        assert!(!room.take(usize::MAX));
        (0..3).for_each(|_| room.miss(7, 1));
        room.miss(8, 64);
        let missed = room.take_missed();
        assert_eq!((missed.len(), missed[&7], missed[&8]), (2, 3, 64));
        assert!(room.take_missed().is_empty());
    }
}
