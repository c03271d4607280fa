//! When a worker packs what waits.
//!
//! A lone route goes at once. While more is on its way it pays to wait: what changes twice is sent once, and UPDATEs are
//! fuller. So a worker waits for as long as somebody upstream is at work, but never for long: what keeps coming must
//! not keep what has come.

use std::time::{Duration, Instant};

/// How old the oldest change may get while more is on its way.
const PATIENCE: Duration = Duration::from_millis(100);
/// Prefixes that do not wait for more: an UPDATE gets no fuller by them.
const ENOUGH: usize = 1 << 20;

/// The state of one worker's waiting.
#[derive(Default)]
pub(super) struct Pace {
    /// Since when something waits.
    since: Option<Instant>,
}

impl Pace {
    /// Whether to pack now: `waiting` prefixes wait, and nobody upstream has more if `idle`.
    pub(super) fn go(&mut self, waiting: usize, idle: bool, now: Instant) -> bool {
        if waiting == 0 {
            self.since = None;
            return false;
        }
        let since = *self.since.get_or_insert(now);
        let go = idle || waiting >= ENOUGH || now.saturating_duration_since(since) >= PATIENCE;
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
        assert!(pace.go(1, true, Instant::now()));
        assert!(!pace.waits());
    }

    #[test]
    fn what_keeps_coming_keeps_nothing_for_long() {
        let mut pace = Pace::default();
        let start = Instant::now();
        let mut packed = Vec::new();
        for ms in 0..1000 {
            if pace.go(1, false, start + Duration::from_millis(ms)) {
                packed.push(ms);
            }
        }
        assert_eq!(packed.len() as u128, 1000 / (PATIENCE.as_millis() + 1));
        assert!(!pace.go(1, false, start) && pace.waits());
        assert!(pace.go(ENOUGH, false, start), "as much as fits");
        assert!(!pace.go(0, true, start) && !pace.waits(), "nothing waits");
    }
}
