//! Time of stages: milliseconds since the process started. Pure code gets it as an argument.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds since the clock was made.
pub type Millis = u64;

/// A monotonic clock and the wall time at which it started.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    wall: SystemTime,
}

impl Default for Clock {
    fn default() -> Self {
        Clock { start: Instant::now(), wall: SystemTime::now() }
    }
}

impl Clock {
    /// Milliseconds since the start.
    pub fn now(&self) -> Millis {
        self.start.elapsed().as_millis() as Millis
    }

    /// The time until `deadline`; zero when it has passed.
    pub fn until(&self, deadline: Millis) -> Duration {
        Duration::from_millis(deadline.saturating_sub(self.now()))
    }

    /// The wall time of a moment, in seconds since 1970.
    pub fn unix_seconds(&self, at: Millis) -> u64 {
        let wall = self.wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        wall.as_secs() + at / 1000
    }
}
