//! The pace of a worker: when it packs waiting changes.
//!
//! It packs a lone route at once. While more routes are on the way, a delay saves work: a prefix
//! that changes again is sent once, and UPDATEs are fuller. So a worker waits while an upstream
//! stage is busy, with a bound. A table that arrives for the first time does not change while it
//! arrives, and early packing saves memory and cache. The figures are from
//! docs/perf/2026-11-egress.md.

use ribtide_bgp::egress::Flush;
use std::time::{Duration, Instant};

/// The interval of flushes while more is on the way. A change is packed by the second one.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// How long all upstream stages must be idle before a part of a table is packed. A peer may pause
/// between two writes, and longer if it shares the CPU.
const UPSTREAM_QUIET_TIME: Duration = Duration::from_millis(2);
/// Fewer prefixes than this are no part of a table.
const TABLE_PART_THRESHOLD: usize = 1024;
/// Prefixes that are packed without a delay: the threshold for changes that are likely to change
/// again, and for stable ones.
const VOLATILE_FLUSH_THRESHOLD: usize = 1 << 20;
const STABLE_FLUSH_THRESHOLD: usize = 32 * 1024;

/// The pace of one worker.
#[derive(Default)]
pub(super) struct Pace {
    /// When the oldest waiting change arrived, or the last check.
    since: Option<Instant>,
    /// When upstream stages became idle.
    quiet: Option<Instant>,
    /// Prefixes that the last flush left.
    left: usize,
}

impl Pace {
    /// Whether to pack now, and what. `waiting`: waiting prefixes. `replaced`: how many changes
    /// replaced a path. `idle`: no upstream stage has more.
    pub(super) fn go(&mut self, waiting: usize, replaced: usize, idle: bool, now: Instant) -> Option<Flush> {
        if waiting == 0 {
            *self = Pace::default();
            return None;
        }
        if !idle {
            self.quiet = None;
        }
        let for_long = |since: &mut Option<Instant>, long| {
            now.saturating_duration_since(*since.get_or_insert(now)) >= long
        };
        if idle && (waiting < TABLE_PART_THRESHOLD || for_long(&mut self.quiet, UPSTREAM_QUIET_TIME)) {
            *self = Pace::default();
            return Some(Flush::All);
        }
        let new = waiting.saturating_sub(self.left);
        let enough = if replaced < new / 4 { STABLE_FLUSH_THRESHOLD } else { VOLATILE_FLUSH_THRESHOLD };
        if new < enough && !for_long(&mut self.since, FLUSH_INTERVAL) {
            return None;
        }
        *self = Pace { since: Some(now), quiet: self.quiet, left: new };
        Some(Flush::Settled)
    }

    /// Whether changes wait for more.
    pub(super) fn waits(&self) -> bool {
        self.since.is_some() || self.quiet.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_route_waits_for_nothing() {
        let mut pace = Pace::default();
        assert_eq!(pace.go(1, 1, true, Instant::now()), Some(Flush::All));
        assert!(!pace.waits());
    }

    #[test]
    fn part_of_a_table_goes_when_all_have_been_quiet() {
        let mut pace = Pace::default();
        let start = Instant::now();
        assert!(pace.go(TABLE_PART_THRESHOLD, 0, true, start).is_none() && pace.waits());
        assert_eq!(pace.go(TABLE_PART_THRESHOLD, 0, false, start + UPSTREAM_QUIET_TIME), None, "more came");
        assert_eq!(pace.go(TABLE_PART_THRESHOLD, 0, true, start + UPSTREAM_QUIET_TIME), None);
        assert_eq!(pace.go(TABLE_PART_THRESHOLD, 0, true, start + 2 * UPSTREAM_QUIET_TIME), Some(Flush::All));
        assert_eq!(
            pace.go(TABLE_PART_THRESHOLD, 0, true, start + 2 * UPSTREAM_QUIET_TIME),
            None,
            "the next waits again"
        );
    }

    #[test]
    fn what_keeps_coming_keeps_nothing_for_long() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let go = |ms| pace.go(1, 1, false, start + Duration::from_millis(ms));
        let packed = (0..5000).map(go).filter(|what| *what == Some(Flush::Settled)).count();
        assert_eq!(packed as u128, 4999 / FLUSH_INTERVAL.as_millis());
        assert!(pace.waits());
        assert!(pace.go(0, 0, true, start).is_none() && !pace.waits(), "nothing waits");
    }

    #[test]
    fn what_will_hardly_change_waits_for_little() {
        let now = Instant::now();
        let first = |waiting, replaced| Pace::default().go(waiting, replaced, false, now);
        assert_eq!(first(STABLE_FLUSH_THRESHOLD, STABLE_FLUSH_THRESHOLD / 5), Some(Flush::Settled));
        assert_eq!(first(STABLE_FLUSH_THRESHOLD, STABLE_FLUSH_THRESHOLD / 4), None);
        assert_eq!(
            first(VOLATILE_FLUSH_THRESHOLD, VOLATILE_FLUSH_THRESHOLD),
            Some(Flush::Settled),
            "as much as fits"
        );
        let mut pace = Pace::default();
        assert!(pace.go(STABLE_FLUSH_THRESHOLD, 0, false, now).is_some());
        assert_eq!(pace.go(2 * STABLE_FLUSH_THRESHOLD - 1, 0, false, now), None, "what was left is not new");
        assert!(pace.go(2 * STABLE_FLUSH_THRESHOLD, 0, false, now).is_some());
    }
}
