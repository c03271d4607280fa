//! When paths changed, in two bytes a path and none for the only path of a prefix.
//!
//! A stamp holds seconds of the router's clock for [`FINE`] after the change, and units of 512 seconds
//! from then on, each modulo 2^15. [`Shard::set_time`] rewrites a stamp before it would become ambiguous: each
//! pass over all stamps takes [`PASS`], in steps as time goes on, so no batch waits for one. Reasons and
//! measurements: ADR 58.

use super::paths::{CHUNKS_OF_STEP, PathStore};
use super::route::Route;
use super::{Core, Shard};
use ribtide_prefix::{LOGICAL_SHARDS, for_each_bgp_family};

/// Seconds for which a stamp is exact to the second: three hours, at least.
const FINE: u32 = 3 * 3600;
/// An older stamp has units of 2^9 seconds.
const UNIT_BITS: u32 = 9;
/// Seconds in which every stamp is visited at least once. [`FINE`] and two passes are less than 2^15.
const PASS: u32 = 8192;
/// The age of the oldest stamps, in seconds; older ones are made as young: 192 days.
const OLDEST: u32 = 0x7f00 << UNIT_BITS;

const COARSE: u16 = 0x8000;
const VALUE: u16 = 0x7fff;

/// When a path changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Stamp(pub(super) u16);

impl Stamp {
    /// Of a change at this second.
    pub(super) fn at(seconds: u32) -> Stamp {
        Stamp(seconds as u16 & VALUE)
    }

    fn coarse(seconds: u32) -> Stamp {
        Stamp((seconds >> UNIT_BITS) as u16 & VALUE | COARSE)
    }

    /// Of a change at this second, in the form that is good from the second `now` on.
    pub(super) fn of(seconds: u32, now: u32) -> Stamp {
        match now.saturating_sub(seconds) {
            OLDEST.. => Stamp::coarse(now - OLDEST),
            FINE.. => Stamp::coarse(seconds),
            _ => Stamp::at(seconds),
        }
    }

    /// Its second, read at the second `now`. Of an old one: the first second of its unit.
    pub(super) fn seconds(self, now: u32) -> u32 {
        let bits = if self.0 & COARSE == 0 { 0 } else { UNIT_BITS };
        let units = now >> bits;
        let age = (units as u16).wrapping_sub(self.0) & VALUE;
        units.saturating_sub(u32::from(age)) << bits
    }

    /// The same in the form that is good from `now` on. It is not ambiguous at `then`, when time was last set.
    fn renewed(self, then: u32, now: u32) -> Stamp {
        Stamp::of(self.seconds(then), now)
    }
}

/// The steps of a pass that are due when time goes on from `then` to `now`, of `steps` in all.
fn due(then: u32, now: u32, steps: usize) -> impl Iterator<Item = usize> {
    let reached = |seconds: u32| u64::from(seconds) * steps as u64 / u64::from(PASS);
    let (first, end) = (reached(then), reached(now));
    let count = (end - first).min(steps as u64);
    (first..first + count).map(move |step| (step % steps as u64) as usize)
}

impl Shard {
    /// The present second of the router's clock, which never goes back: paths that change from now on carry it.
    /// Shards that exchange routes have one clock.
    pub fn set_time(&mut self, seconds: u32) {
        let then = self.core.now;
        if seconds <= then {
            return;
        }
        self.core.now = seconds;
        let steps = usize::from(LOGICAL_SHARDS) + self.core.paths.steps();
        due(then, seconds, steps).for_each(|step| self.renew_stamps(step, then, seconds));
    }

    #[cold]
    fn renew_stamps(&mut self, step: usize, then: u32, now: u32) {
        let renew = |stamp: &mut Stamp| *stamp = stamp.renewed(then, now);
        match step.checked_sub(usize::from(LOGICAL_SHARDS)) {
            None => for_each_bgp_family!(F => {
                let routes = self.tables.get_mut::<F>()[step].iter_mut();
                routes.for_each(|route: &mut Route<F>| route.renew_stamp(renew));
            }),
            Some(step) => self.core.paths.renew_stamps_of_step(step, renew),
        }
    }
}

impl Core {
    /// The stamp of paths that change now.
    pub(super) fn stamp(&self) -> Stamp {
        Stamp::at(self.now)
    }

    /// The second of a stamp.
    pub(super) fn second_of(&self, stamp: Option<Stamp>) -> Option<u32> {
        stamp.map(|stamp| stamp.seconds(self.now))
    }
}

impl PathStore {
    /// The steps that visit all its stamps.
    fn steps(&self) -> usize {
        self.chunks().div_ceil(CHUNKS_OF_STEP)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const UNIT: u32 = 1 << UNIT_BITS;

    #[test]
    fn a_pass_visits_every_step_in_turn_and_none_twice() {
        assert_eq!(due(0, PASS, 70).collect::<Vec<_>>(), (0..70).collect::<Vec<_>>());
        assert_eq!(due(5, 5 + 9 * PASS, 70).count(), 70, "a long silence is one pass");
        let mut seconds: Vec<usize> = (0..PASS).flat_map(|s| due(PASS + s, PASS + s + 1, 64)).collect();
        seconds.dedup();
        assert_eq!(seconds, (0..64).collect::<Vec<_>>());
    }

    #[test]
    fn two_passes_are_shorter_than_the_range_of_a_stamp() {
        assert!(FINE + 2 * PASS < u32::from(VALUE));
        assert!(OLDEST / UNIT + 2 * PASS / UNIT < u32::from(VALUE));
    }

    proptest! {
        // Whatever the gaps between two calls, a stamp is exact for three hours, and within a unit later.
        #[test]
        fn stamps_age(start in 0..40_000_000u32, gaps in prop::collection::vec((0..24u32, 0..PASS), 1..60)) {
            let mut stamp = Stamp::at(start);
            let mut now = start;
            let mut visited = start;
            for (power, more) in gaps {
                let then = now;
                now = (now + (1 << power) + more).min(start + 2 * OLDEST);
                // The worst case of a pass in progress: each stamp is visited once in two passes.
                if now - visited >= 2 * PASS || now - then >= PASS {
                    stamp = stamp.renewed(then, now);
                    visited = now;
                }
                let read = stamp.seconds(now);
                let age = now - start;
                if age < FINE {
                    prop_assert_eq!(read, start);
                } else if age < OLDEST {
                    prop_assert!(read <= start && start - read < UNIT, "{} for {} at {}", read, start, now);
                } else {
                    prop_assert!(now - read >= OLDEST, "{} at {}", read, now);
                }
            }
        }
    }
}
