//! Time of stages: milliseconds since the process started. Pure code gets it as an argument.

use std::time::{Duration, Instant};

/// Milliseconds since the clock was made.
pub type Millis = u64;

/// A monotonic clock.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Default for Clock {
    fn default() -> Self {
        Clock(Instant::now())
    }
}

impl Clock {
    /// Milliseconds since the start.
    pub fn now(&self) -> Millis {
        self.0.elapsed().as_millis() as Millis
    }

    /// Whole seconds since the start.
    pub fn seconds(&self) -> u32 {
        u32::try_from(self.0.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    /// The time until `deadline`; zero when it has passed.
    pub fn until(&self, deadline: Millis) -> Duration {
        Duration::from_millis(deadline.saturating_sub(self.now()))
    }
}
