//! The end of BGP's initial routes: dataplanes may then remove routes of an earlier run.
//!
//! It is reached when every configured neighbour has sent End-of-RIB for its families and its
//! routes are through, or after a timeout. So a neighbour that is down does not keep stale routes
//! in the kernel.

use super::session::{NeighborView, Sessions};
use ribtide_prefix::Afi;
use ribtide_rib::{RibIn, Source};
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::{self, Ends, Stop};
use std::io;
use std::time::{Duration, Instant};

/// Time for neighbours to come up and send all routes; shorter with dynamic neighbours only.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time without configured neighbours.
const NO_NEIGHBORS_TIMEOUT: Duration = Duration::from_secs(2);
const CONVERGENCE_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// Starts the watch thread, which ends after its message.
///
/// # Errors
/// The thread cannot be created.
pub fn watch(
    configured: usize,
    sessions: StageHandle<Sessions>,
    rings: Rings,
    rib: Sender<RibIn>,
    stop: Stop,
) -> io::Result<()> {
    let timeout = if configured == 0 { NO_NEIGHBORS_TIMEOUT } else { CONVERGENCE_TIMEOUT };
    thread::spawn("bgp-initial", Ends::WithOwner, move || {
        let begin = Instant::now();
        let mut calm = 0;
        while begin.elapsed() < timeout && calm < 2 && !stop.stopped() {
            std::thread::sleep(CONVERGENCE_POLL_INTERVAL);
            let done = configured > 0 && sessions.call(are_done).unwrap_or(false);
            // Routes before the last End-of-RIB may still be on the way to the RIB manager.
            calm = if done && rings.read().iter().all(|r| r.depth == 0) { calm + 1 } else { 0 };
        }
        // It fails only when the process is stopping.
        let _ = rib.send(RibIn::EndOfInitial(Source::Bgp));
    })?;
    Ok(())
}

fn are_done(sessions: &mut Sessions) -> bool {
    sessions.neighbors().iter().all(is_done) && sessions.waiting_interfaces().is_empty()
}

fn is_done(neighbor: &NeighborView) -> bool {
    if neighbor.dynamic || neighbor.shutdown.is_some() {
        return true;
    }
    let Some(up) = &neighbor.up else { return false };
    let families = up.negotiated.families;
    [(Afi::Ipv4, up.initial_done[0]), (Afi::Ipv6, up.initial_done[1])]
        .into_iter()
        .all(|(afi, done)| done || !families.has(afi))
}
