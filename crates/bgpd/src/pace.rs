//! When a worker packs what waits.
//!
//! A lone route goes at once. While more is on its way it pays to wait: what changes again is sent once, and UPDATEs are
//! fuller. So a worker waits for as long as an upstream stage is at work, but never for long: what keeps coming must
//! not keep what has come. A table that comes for the first time does not change while it comes, and the sooner it is
//! packed the less memory and cache it takes. The figures are from docs/perf/2026-11-egress.md.

use ribtide_bgp::egress::Flush;
use std::time::{Duration, Instant};

/// Time between flushes while more is on its way. A change is packed by the second.
const FLUSH_INTERVAL: Duration = Duration::from_millis(250);
/// How long all upstream must have had nothing to do before what looks like part of a table is packed: between two reads of
/// a socket a peer may need a moment, and whoever shares its CPU with us needs more.
const UPSTREAM_QUIET_TIME: Duration = Duration::from_millis(2);
/// Prefixes that are no part of a table.
const TABLE_PART_THRESHOLD: usize = 1024;
/// Prefixes that do not wait for more: where many may well change again, and where they will hardly.
const VOLATILE_FLUSH_THRESHOLD: usize = 1 << 20;
const STABLE_FLUSH_THRESHOLD: usize = 32 * 1024;

/// The state of one worker's waiting.
#[derive(Default)]
pub(super) struct Pace {
    /// Since when something waits, or when what waited was last looked at.
    since: Option<Instant>,
    /// Since when no upstream stage has more.
    quiet: Option<Instant>,
    /// Prefixes that the last flush left for the next.
    left: usize,
}

impl Pace {
    /// Whether to pack now, and what: `waiting` prefixes wait, of changes of which so many `replaced` a path, and no
    /// upstream stage has more if `idle`.
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

    /// Whether something waits for more.
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
