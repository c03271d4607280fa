//! When a worker packs what waits.
//!
//! A lone route goes at once. While more is on its way it pays to wait: what changes again is sent once, and UPDATEs are
//! fuller. So a worker waits for as long as somebody upstream is at work, but never for long: what keeps coming must
//! not keep what has come. A table that comes for the first time does not change while it comes, and the sooner it is
//! packed the less memory and cache it takes. The figures are from docs/perf/2026-11-egress.md.

use std::time::{Duration, Instant};

/// How old the oldest change may get while more is on its way.
const PATIENCE: Duration = Duration::from_millis(500);
/// Prefixes that do not wait for more: where many may well change again, and where they will hardly.
const MUCH: usize = 1 << 20;
const ENOUGH: usize = 32 * 1024;

/// The state of one worker's waiting.
#[derive(Default)]
pub(super) struct Pace {
    /// Since when something waits.
    since: Option<Instant>,
}

impl Pace {
    /// Whether to pack now: `waiting` prefixes wait, of changes of which so many `replaced` a path, and nobody upstream has
    /// more if `idle`.
    pub(super) fn go(&mut self, waiting: usize, replaced: usize, idle: bool, now: Instant) -> bool {
        if waiting == 0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let enough = if replaced < waiting / 4 { ENOUGH } else { MUCH };
        let go = idle || waiting >= enough || now.saturating_duration_since(since) >= PATIENCE;
        if go {
            self.since = None;
        }
        go
    }

    /// Whether something waits for more.
    pub(super) fn waits(&self) -> bool {
        self.since.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lone_route_waits_for_nothing() {
        let mut pace = Pace::default();
        assert!(pace.go(1, 1, true, Instant::now()));
        assert!(!pace.waits());
    }

    #[test]
    fn what_keeps_coming_keeps_nothing_for_long() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let mut packed = Vec::new();
        for ms in 0..5000 {
            if pace.go(1, 1, false, start + Duration::from_millis(ms)) {
                packed.push(ms);
            }
        }
        assert_eq!(packed.len() as u128, 5000 / (PATIENCE.as_millis() + 1));
        assert!(!pace.go(1, 1, false, start) && pace.waits());
        assert!(!pace.go(0, 0, true, start) && !pace.waits(), "nothing waits");
    }

    #[test]
    fn what_will_hardly_change_waits_for_little() {
        let now = Instant::now();
        assert!(Pace::default().go(ENOUGH, ENOUGH / 5, false, now));
        assert!(!Pace::default().go(ENOUGH, ENOUGH / 4, false, now));
        assert!(Pace::default().go(MUCH, MUCH, false, now), "as much as fits");
    }
}
