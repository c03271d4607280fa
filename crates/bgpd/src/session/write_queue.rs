//! The write queue of a neighbour: when its update group continues without it, and the statistics.

use ribtide_bgp::fsm::Millis;

/// Bytes that may wait for one neighbour before its worker stops packing for it, with few groups.
const HIGH_WATER: usize = 8 * 1024 * 1024;
/// The minimum of that bound with many groups: an UPDATE or two of each attribute set of a small
/// table.
const LEAST: usize = 512 * 1024;
/// Bytes that may wait for all neighbours. Members share the bytes of their group, so the bound is
/// divided among groups.
const TOTAL: usize = 512 * 1024 * 1024;
/// The fraction of the high-water mark at which the worker resumes.
const LOW: usize = 8;
/// Stops within [`MINUTE`] that make a slow writer.
const SLOW: usize = 3;
const MINUTE: Millis = 60_000;

/// The high-water mark of one neighbour.
pub(super) fn high_water(groups: usize) -> usize {
    (TOTAL / groups.max(1)).clamp(LEAST, HIGH_WATER)
}

/// The write queue of a session over time.
#[derive(Default)]
pub(super) struct Backlog {
    /// How often the kernel accepted less than all bytes.
    pub(super) blocks: u64,
    /// The most bytes that a write left.
    peak: usize,
    /// Since when it is above the high-water mark.
    since: Option<Millis>,
    stops: u64,
    stopped: Millis,
    /// When the last stops began, newest first.
    last: [Option<Millis>; SLOW],
}

/// The statistics of a write queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WriteQueue {
    /// Bytes that wait to be written.
    pub bytes: usize,
    /// The most bytes that waited after a write, in this session.
    pub peak: usize,
    /// The bytes beyond which the update group continues without it.
    pub bound: usize,
    /// How often the kernel accepted less than all bytes.
    pub blocks: u64,
    /// Whether the update group continues without it.
    pub full: bool,
    /// How often that began.
    pub stops: u64,
    /// How long that lasted, in milliseconds.
    pub stopped: Millis,
    /// Whether it is a slow writer: full now, or three times within the last minute.
    pub slow: bool,
}

impl Backlog {
    /// Notes the bytes that a write left. Returns a change of the message to the worker: whether to
    /// stop packing.
    pub(super) fn left(&mut self, bytes: usize, high: usize, now: Millis) -> Option<bool> {
        self.peak = self.peak.max(bytes);
        match self.since {
            None if bytes > high => {
                self.since = Some(now);
                self.stops += 1;
                self.last.rotate_right(1);
                self.last[0] = Some(now);
                Some(true)
            }
            Some(since) if bytes <= high / LOW => {
                self.since = None;
                self.stopped += now.saturating_sub(since);
                Some(false)
            }
            _ => None,
        }
    }

    pub(super) fn view(&self, bytes: usize, bound: usize, now: Millis) -> WriteQueue {
        let recent = |at: &Option<Millis>| at.is_some_and(|at| at + MINUTE > now);
        WriteQueue {
            bytes,
            peak: self.peak.max(bytes),
            bound,
            blocks: self.blocks,
            full: self.since.is_some(),
            stops: self.stops,
            stopped: self.stopped + self.since.map_or(0, |since| now.saturating_sub(since)),
            slow: self.since.is_some() || self.last.iter().all(recent),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_neighbour_that_stops_often_is_slow_for_a_minute() {
        let mut backlog = Backlog::default();
        let high = high_water(1);
        assert_eq!(backlog.left(high, high, 0), None);
        for stop in 0..3 {
            let at = 1000 * stop;
            assert!(!backlog.view(0, high, at).slow);
            assert_eq!(backlog.left(high + 1, high, at), Some(true));
            assert!(backlog.view(high + 1, high, at).slow, "while it is full");
            assert_eq!(backlog.left(high, high, at), None, "not yet");
            assert_eq!(backlog.left(high / LOW, high, at + 10), Some(false));
        }
        let view = backlog.view(5, high, 59_999);
        assert_eq!((view.peak, view.bound), (high + 1, high));
        assert_eq!((view.bytes, view.stops, view.stopped, view.full, view.slow), (5, 3, 30, false, true));
        assert!(!backlog.view(0, high, 60_000).slow);
    }

    #[test]
    fn all_groups_together_have_a_bound() {
        assert_eq!(high_water(0), HIGH_WATER);
        assert_eq!(high_water(64), HIGH_WATER);
        assert_eq!(high_water(128), HIGH_WATER / 2);
        assert_eq!(high_water(1_000_000), LEAST);
    }
}
