//! What the kernel dataplane has from the system beside its threads: sockets and time. Both may be
//! simulated.

use ribtide_netlink::Sockets;
use ribtide_runtime::thread;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The sockets and the clock of one dataplane. The default is the system's.
#[derive(Clone, Default)]
pub struct System {
    /// What netlink sockets are connected to.
    pub sockets: Sockets,
    clock: Option<Arc<dyn SimulatedClock>>,
}

/// A simulated clock.
pub trait SimulatedClock: Send + Sync {
    /// The time.
    fn now(&self) -> Instant;

    /// Lets time pass.
    fn sleep(&self, time: Duration);
}

impl System {
    /// A simulated system.
    pub fn simulated(sockets: Sockets, clock: Arc<dyn SimulatedClock>) -> System {
        System { sockets, clock: Some(clock) }
    }

    /// The time.
    pub(super) fn now(&self) -> Instant {
        self.clock.as_ref().map_or_else(Instant::now, |clock| clock.now())
    }

    /// How long a wait for `due` takes at most. The scheduler of a simulation ends its waits itself.
    pub(super) fn until(&self, due: Option<Instant>) -> Duration {
        match due {
            Some(due) if self.clock.is_none() => due.saturating_duration_since(self.now()),
            _ => Duration::MAX,
        }
    }

    /// The CPU time of the calling thread, which a simulation does not count.
    pub(super) fn cpu_time(&self) -> Duration {
        self.clock.as_ref().map_or_else(thread::cpu_time, |_| Duration::ZERO)
    }

    /// Pauses the calling thread.
    pub(super) fn sleep(&self, time: Duration) {
        self.clock.as_ref().map_or_else(|| std::thread::sleep(time), |clock| clock.sleep(time));
    }
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.clock.is_some() { "simulated system" } else { "system" })
    }
}
