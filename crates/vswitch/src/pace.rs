//! The chip's time: it works on one call after another, and a later call waits for its turn.
//!
//! Nothing here blocks. The driver of the chip asks when a call will be done, does other work until
//! then, and then replies. So a chip of 20,000 routes a second costs no CPU, and its driver can
//! prepare the next call meanwhile.

use std::time::{Duration, Instant};

/// The chip's calls and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChipTime {
    /// Calls.
    pub calls: u64,
    /// Entries in them.
    pub entries: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Busy time, where calls take time.
    pub busy: Duration,
    /// Idle time between the first call with routes and the last call.
    pub idle: Duration,
}

/// The time line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// What calls take that were made since the last [`Pace::done_at`].
    pending: Duration,
    /// Whether one of them has routes.
    routes: bool,
    /// Whether an earlier call had routes.
    began: bool,
    /// When all calls will be done.
    ends: Option<Instant>,
    pub(crate) time: ChipTime,
}

impl Pace {
    /// Adds a call of so many entries, with routes or without, that takes `takes`.
    pub(crate) fn call(&mut self, entries: usize, routes: bool, takes: Duration) {
        self.time.calls += 1;
        self.routes |= routes;
        self.time.entries += entries as u64;
        self.pending += takes;
    }

    /// When the calls that came `now` will be done; `None` without a delay.
    pub(crate) fn done_at(&mut self, now: Instant) -> Option<Instant> {
        let (pending, routes) = (std::mem::take(&mut self.pending), std::mem::take(&mut self.routes));
        if pending.is_zero() {
            return None;
        }
        let begins = match self.ends {
            Some(ends) if ends >= now => ends,
            Some(ends) => {
                if self.began {
                    self.time.idle += now - ends;
                }
                now
            }
            None => now,
        };
        self.began |= routes;
        self.time.busy += pending;
        self.ends = Some(begins + pending);
        self.ends
    }

    /// The remaining time of its calls.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        self.ends.map_or(Duration::ZERO, |ends| ends.saturating_duration_since(now))
    }

    /// Delays the calls in progress by a pause.
    pub(crate) fn pause(&mut self, pause: Duration) {
        self.ends = self.ends.map(|ends| ends + pause);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_follow_each_other() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        pace.call(10, true, ms(0));
        assert_eq!(pace.done_at(start), None);
        pace.call(10, true, ms(5));
        pace.call(1, false, ms(1));
        assert_eq!(pace.done_at(start), Some(start + ms(6)));
        // While it works, and after idle time.
        pace.call(10, false, ms(5));
        assert_eq!(pace.done_at(start + ms(2)), Some(start + ms(11)));
        pace.call(10, false, ms(5));
        assert_eq!(pace.done_at(start + ms(14)), Some(start + ms(19)));
        let expected = ChipTime { calls: 5, entries: 41, failed: 0, busy: ms(16), idle: ms(3) };
        assert_eq!(pace.time, expected);
        assert_eq!((pace.left(start + ms(15)), pace.left(start + ms(30))), (ms(4), ms(0)));
        pace.pause(ms(100));
        pace.call(1, false, ms(1));
        assert_eq!(pace.done_at(start + ms(20)), Some(start + ms(120)));
    }

    #[test]
    fn it_is_not_idle_before_the_first_route() {
        let start = Instant::now();
        let ms = Duration::from_millis;
        let mut pace = Pace::default();
        for (at, routes) in [(0, false), (10, false), (20, true), (30, false)] {
            pace.call(1, routes, ms(1));
            pace.done_at(start + ms(at));
        }
        assert_eq!((pace.time.busy, pace.time.idle), (ms(4), ms(9)));
    }
}
