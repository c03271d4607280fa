//! When dataplanes are to try again what they failed: soon after something happened that may have made room, and else
//! ever more seldom.

use ribtide_rib::DataplaneId;
use std::time::{Duration, Instant};

/// After the first failure, after progress, and after something that may help.
const SOON: Duration = Duration::from_secs(1);
/// Where nothing helps.
const SELDOM: Duration = Duration::from_secs(60);

/// The retries of all dataplanes, by number.
#[derive(Default)]
pub(super) struct Retries {
    planes: Vec<Plane>,
}

#[derive(Clone, Copy)]
struct Plane {
    /// How many routes had failed at the last look.
    failed: usize,
    wait: Duration,
    /// When to try next, while anything has failed.
    next: Option<Instant>,
}

impl Retries {
    /// Something was deleted, or an interface changed: what failed may go through now.
    pub(super) fn hope(&mut self, now: Instant) {
        for plane in &mut self.planes {
            plane.wait = SOON;
            plane.next = plane.next.map(|next| next.min(now + SOON));
        }
    }

    /// How long it takes until [`Retries::due`] has an effect for any of these dataplanes, of which so
    /// many routes have failed.
    pub(super) fn until_due(
        &self,
        failed: impl Iterator<Item = (DataplaneId, usize)>,
        now: Instant,
    ) -> Duration {
        let until = |(id, failed): (DataplaneId, usize)| {
            let known = self.planes.get(usize::from(id));
            match known.map_or((0, None), |plane| (plane.failed, plane.next)) {
                (known, _) if known != failed => Duration::ZERO,
                (_, next) => next.map_or(Duration::MAX, |next| next.saturating_duration_since(now)),
            }
        };
        failed.map(until).min().unwrap_or(Duration::MAX)
    }

    /// Whether a dataplane of which so many routes have failed is to try again now. Asked now and then.
    pub(super) fn due(&mut self, id: DataplaneId, failed: usize, now: Instant) -> bool {
        let at = usize::from(id);
        if self.planes.len() <= at {
            self.planes.resize(at + 1, Plane { failed: 0, wait: SOON, next: None });
        }
        let plane = &mut self.planes[at];
        if failed == 0 {
            *plane = Plane { failed, wait: SOON, next: None };
            return false;
        }
        if failed < plane.failed {
            plane.wait = SOON;
        }
        plane.failed = failed;
        let next = *plane.next.get_or_insert(now + plane.wait);
        if now < next {
            return false;
        }
        plane.wait = (plane.wait * 2).min(SELDOM);
        plane.next = Some(now + plane.wait);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_become_seldom_and_frequent_again() {
        let (mut retries, begin) = (Retries::default(), Instant::now());
        let tried = |retries: &mut Retries, from: u64, to: u64, failed| {
            let due = |second: &u64| retries.due(2, failed, begin + Duration::from_secs(*second));
            (from..to).filter(due).collect::<Vec<_>>()
        };
        assert_eq!(tried(&mut retries, 0, 10, 0), [0; 0]);
        assert_eq!(tried(&mut retries, 10, 200, 5), [11, 13, 17, 25, 41, 73, 133, 193]);
        retries.hope(begin + Duration::from_secs(200));
        assert_eq!(tried(&mut retries, 200, 206, 5), [201, 203]);
        assert_eq!(tried(&mut retries, 206, 207, 0), [0; 0]);
        assert_eq!(tried(&mut retries, 300, 304, 1), [301, 303]);
        let until =
            |failed| retries.until_due([(1, 0), (2, failed)].into_iter(), begin + Duration::from_secs(304));
        assert_eq!((until(1), until(2)), (Duration::from_secs(3), Duration::ZERO));
        let none = Retries::default().until_due([(2, 0)].into_iter(), begin);
        assert_eq!(none, Duration::MAX);
    }
}
