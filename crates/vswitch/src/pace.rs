//! The chip's time: it works on one call after another, and a call that comes while it works waits for its turn.
//!
//! Nothing here waits. Who drives the chip asks when it will be done, does something else until then, and answers then; so
//! a chip of 20,000 routes a second costs no CPU, and what drives it may prepare the next call meanwhile.

use std::time::{Duration, Instant};

/// What the chip did, and for how long.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Work {
    /// Calls.
    pub calls: u64,
    /// Entries in them.
    pub entries: u64,
    /// Of these, entries that were not done as asked.
    pub failed: u64,
    /// How long it worked, where it takes time.
    pub busy: Duration,
    /// How long it had nothing to do between the first call about routes and the last call.
    pub idle: Duration,
}

/// The time line.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// What calls take that were made since the last [`Pace::done_at`].
    owed: Duration,
    /// Some of them are about routes.
    routes: bool,
    /// Routes came before that.
    began: bool,
    /// When it will have done everything that it was asked.
    ends: Option<Instant>,
    pub(crate) work: Work,
}

impl Pace {
    /// A call of so many entries, `routes` or others, that takes so long.
    pub(crate) fn call(&mut self, entries: usize, routes: bool, takes: Duration) {
        self.work.calls += 1;
        self.routes |= routes;
        self.work.entries += entries as u64;
        self.owed += takes;
    }

    /// When the calls that came `now` will be done; `None`: they take no time.
    pub(crate) fn done_at(&mut self, now: Instant) -> Option<Instant> {
        let (owed, routes) = (std::mem::take(&mut self.owed), std::mem::take(&mut self.routes));
        if owed.is_zero() {
            return None;
        }
        let begins = match self.ends {
            Some(ends) if ends >= now => ends,
            Some(ends) => {
                if self.began {
                    self.work.idle += now - ends;
                }
                now
            }
            None => now,
        };
        self.began |= routes;
        self.work.busy += owed;
        self.ends = Some(begins + owed);
        self.ends
    }

    /// How long it will work on what it was asked until now.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        self.ends.map_or(Duration::ZERO, |ends| ends.saturating_duration_since(now))
    }

    /// Nothing was done for so long: what is under way ends that much later.
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
        // While it works, and when it had nothing to do for a while.
        pace.call(10, false, ms(5));
        assert_eq!(pace.done_at(start + ms(2)), Some(start + ms(11)));
        pace.call(10, false, ms(5));
        assert_eq!(pace.done_at(start + ms(14)), Some(start + ms(19)));
        let expected = Work { calls: 5, entries: 41, failed: 0, busy: ms(16), idle: ms(3) };
        assert_eq!(pace.work, expected);
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
        assert_eq!((pace.work.busy, pace.work.idle), (ms(4), ms(9)));
    }
}
