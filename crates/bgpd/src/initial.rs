//! Says when BGP has announced everything it had at the start, so that dataplanes may remove what is left from before.
//!
//! That is when every configured neighbour has sent End-of-RIB for its families and what it sent is through, or when
//! the timeout is over: a neighbour that is down must not keep stale routes in the kernel for ever.

use super::session::{NeighborView, Sessions};
use ribtide_prefix::Afi;
use ribtide_rib::{RibIn, Source};
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::{self, Stop};
use std::io;
use std::time::{Duration, Instant};

/// How long the neighbours have to come up and send everything.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// Without configured neighbours there is no neighbour to wait for but dynamic ones.
const NO_NEIGHBORS_TIMEOUT: Duration = Duration::from_secs(2);
const CONVERGENCE_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Starts the watch; it ends when it has spoken.
///
/// # Errors
/// When the system gives no thread.
pub fn watch(
    configured: usize,
    sessions: StageHandle<Sessions>,
    rings: Rings,
    rib: Sender<RibIn>,
    stop: Stop,
) -> io::Result<()> {
    let timeout = if configured == 0 { NO_NEIGHBORS_TIMEOUT } else { CONVERGENCE_TIMEOUT };
    thread::spawn("bgp-initial", move || {
        let begin = Instant::now();
        let mut calm = 0;
        while begin.elapsed() < timeout && calm < 2 && !stop.stopped() {
            std::thread::sleep(CONVERGENCE_POLL_INTERVAL);
            let done =
                configured > 0 && sessions.call(|s| s.neighbors().iter().all(is_done)).unwrap_or(false);
            // What the last End-of-RIB followed may still be on its way to the RIB manager.
            calm = if done && rings.read().iter().all(|r| r.depth == 0) { calm + 1 } else { 0 };
        }
        // Fails only when the process is stopping.
        let _ = rib.send(RibIn::EndOfInitial(Source::Bgp));
    })?;
    Ok(())
}

fn is_done(neighbor: &NeighborView) -> bool {
    if neighbor.dynamic || neighbor.stopped {
        return true;
    }
    let Some(up) = &neighbor.up else { return false };
    let families = up.negotiated.families;
    [(Afi::Ipv4, up.initial_done[0]), (Afi::Ipv6, up.initial_done[1])]
        .into_iter()
        .all(|(afi, done)| done || !families.has(afi))
}
