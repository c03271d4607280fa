//! The virtual ASIC as a dataplane: alone behind a RIB manager's end of the rings, and several behind a RIB manager.

use std::time::{Duration, Instant};

mod inprocess;
mod several;

/// Waits until `probe` gives something; what it gives, or a failure after a long time.
fn eventually<T>(what: &str, mut probe: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = probe() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} did not happen");
        std::thread::sleep(Duration::from_millis(5));
    }
}
