//! The end of BGP's initial routes: dataplanes may then remove routes of an earlier run.
//!
//! It is reached when every configured neighbour has sent End-of-RIB for its families and its
//! routes are through, or after a timeout. So a neighbour that is down does not keep stale routes
//! in the kernel.
//!
//! After a graceful restart nothing is advertised before (RFC 4724 section 4.1): routes that are not
//! there yet would be withdrawn from neighbours that still have them. The order is that of the RFC:
//! dataplanes get the routes and remove others, then neighbours get them, and End-of-RIB. Only a
//! neighbour that restarts too is not awaited before routes are advertised.

use super::owners::Directory;
use super::session::{self, NeighborView, Sessions};
use super::{Bgp, Workers};
use ribtide_rib::{RibIn, Source};
use ribtide_runtime::call::StageHandle;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{Rings, Sender};
use ribtide_runtime::thread::{self, Ended, Stop};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Time for neighbours to come up and send all routes; shorter with dynamic neighbours only.
const CONVERGENCE_TIMEOUT: Duration = Duration::from_secs(30);
/// The time without configured neighbours.
const NO_NEIGHBORS_TIMEOUT: Duration = Duration::from_secs(2);
const CONVERGENCE_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// What a start waits for, and what follows.
pub struct Start {
    /// Configured neighbours.
    pub neighbors: usize,
    /// How long the selection of routes is deferred at most, after a restart.
    pub deferral: Option<Duration>,
    /// The RIB manager, if routes are installed.
    pub rib: Option<Sender<RibIn>>,
    /// Called at the end of initial routes.
    pub at_end: Box<dyn FnOnce() + Send>,
}

/// Starts the watch thread, which ends when everything is done.
///
/// # Errors
/// The thread cannot be created.
pub fn watch(bgp: &Bgp, start: Start, rings: Rings, stop: Stop) -> io::Result<()> {
    let (sessions, owners, workers) = (bgp.sessions.clone(), bgp.owners.clone(), bgp.workers.clone());
    thread::spawn("bgp-initial", move || {
        let Start { neighbors, deferral, rib, at_end } = start;
        let wait = Wait { sessions, owners, workers, rings, rib, stop, begin: Instant::now() };
        match deferral {
            Some(deferral) => wait.restart(deferral),
            None => wait.first_start(neighbors),
        }
        at_end();
        Ended::done()
    })?;
    Ok(())
}

struct Wait {
    sessions: StageHandle<Sessions>,
    owners: Arc<Directory>,
    workers: Workers,
    rings: Rings,
    rib: Option<Sender<RibIn>>,
    stop: Stop,
    begin: Instant,
}

impl Wait {
    fn first_start(&self, configured: usize) {
        let timeout = if configured == 0 { NO_NEIGHBORS_TIMEOUT } else { CONVERGENCE_TIMEOUT };
        self.until(timeout, || configured > 0 && self.sessions.call(are_done).unwrap_or(false));
        self.end_initial();
    }

    /// Ends initial routes and the deferral, in this order unless a neighbour that restarts too is awaited.
    fn restart(&self, deferral: Duration) {
        let mut is_initial = true;
        // The neighbours that delay initial routes, and those of them that delay advertisement.
        let awaited = || self.sessions.call(awaited).unwrap_or((1, 1));
        self.until(deferral, || awaited().1 == 0);
        if awaited().0 == 0 {
            self.end_initial();
            is_initial = false;
        }
        // With FIB suppression End-of-RIB must follow the routes that dataplanes have not confirmed yet.
        self.until(deferral, || !self.is_unconfirmed());
        let left = awaited().1;
        // These fail only when the process is stopping.
        let _ = self.sessions.call(Sessions::end_deferral);
        for (_, worker) in self.workers.running() {
            let _ = worker.end_deferral();
        }
        tracing::info!(
            target: target::BGP_SESSION,
            after_s = self.begin.elapsed().as_secs(),
            without_end_of_rib = left,
            "the restart is over: routes are advertised"
        );
        if is_initial {
            self.until(deferral, || awaited().0 == 0);
            self.end_initial();
        }
    }

    /// Waits until `done`, and until what was read before is through; or until the whole watch has lasted for `timeout`.
    fn until(&self, timeout: Duration, done: impl Fn() -> bool) {
        let mut calm = 0;
        while calm < 2 && self.begin.elapsed() < timeout && !self.stop.stopped() {
            std::thread::sleep(CONVERGENCE_POLL_INTERVAL);
            // Routes before the last End-of-RIB may still be on the way to the RIB manager, and from there to dataplanes.
            calm = if done() && self.rings.read().iter().all(|r| r.depth == 0) { calm + 1 } else { 0 };
        }
    }

    fn end_initial(&self) {
        if let Some(rib) = &self.rib {
            // It fails only when the process is stopping.
            let _ = rib.send(RibIn::EndOfInitial(Source::Bgp));
        }
    }

    /// Whether best paths wait for dataplanes.
    fn is_unconfirmed(&self) -> bool {
        let owners = self.owners.read();
        owners.shards.iter().any(|shard| shard.call(|shard| shard.counts().waiting > 0).unwrap_or(true))
    }
}

fn are_done(sessions: &mut Sessions) -> bool {
    sessions.neighbors().iter().all(is_done) && sessions.waiting_interfaces().is_empty()
}

fn is_done(neighbor: &NeighborView) -> bool {
    neighbor.dynamic || neighbor.shutdown.is_some() || session::is_complete(neighbor)
}

/// How many neighbours, at least, are awaited after a restart: before stale routes leave the FIB, and before routes are advertised.
fn awaited(sessions: &mut Sessions) -> (usize, usize) {
    let (neighbors, age) = (sessions.neighbors(), sessions.run_age());
    let count =
        |is: fn(&NeighborView, u64) -> bool| neighbors.iter().filter(|neighbor| is(neighbor, age)).count();
    // A neighbour by interface is not known before it is heard.
    let unknown = usize::from(sessions.awaits_dynamic()) + sessions.waiting_interfaces().len();
    (count(session::is_awaited) + unknown, count(session::defers) + unknown)
}
