//! Restarts of ours (RFC 4724 section 4.1): what neighbours are told of them in OPEN, and which neighbours are awaited before
//! routes are advertised.

use super::peer::Peer;
use super::view::NeighborView;
use super::{PeerId, Sessions};
use ribtide_bgp::fsm::{Millis, Obstacle, OwnRestart};
use ribtide_bgp::peer::FamilySet;
use std::time::Duration;

/// How long the End-of-RIB of a neighbour without graceful restart is awaited in its session: it need not send one.
const PLAIN_NEIGHBOR_TIMEOUT: Millis = 30_000;
/// How long dynamic neighbours may take to come back after a restart: nothing tells which there were.
const DYNAMIC_NEIGHBORS_TIMEOUT: Millis = 30_000;

/// What an earlier run of this router has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Restarted {
    /// The families in which packets were forwarded without a break.
    pub forwarding: FamilySet,
    /// How long the selection of routes is deferred at most.
    pub deferral: Duration,
}

/// The deferral of the selection of routes, as of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Deferral {
    /// Neighbours whose End-of-RIB is awaited.
    pub awaited: usize,
    /// Milliseconds after which it ends in any case.
    pub left: Millis,
}

/// The state of the session thread about restarts of ours.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnRestarts {
    started: Millis,
    /// The families in which packets were forwarded over the start.
    forwarding: FamilySet,
    /// When the deferral ends; `None`: it has ended, or this was a first start.
    deferred_until: Option<Millis>,
}

impl OwnRestarts {
    pub(super) fn new(restarted: Option<Restarted>, now: Millis) -> OwnRestarts {
        OwnRestarts {
            started: now,
            forwarding: restarted.map_or_else(|| FamilySet::NONE, |restarted| restarted.forwarding),
            deferred_until: restarted.map(|restarted| now + restarted.deferral.as_millis() as Millis),
        }
    }

    /// Sets what the next OPEN to a neighbour says.
    ///
    /// R is set while selection is deferred. F is about the time since the neighbour was sent our routes: this run, if it
    /// had a session before, or if those of an earlier run have expired.
    pub(super) fn announce(&self, peer: &mut Peer, now: Millis) {
        let own = peer.settings.graceful_restart.restart_time.map(|time| {
            let expired = now >= self.started + 1_000 * Millis::from(time);
            let lasted = expired || peer.fsm.flaps() > 0;
            OwnRestart {
                time,
                restarted: self.deferred_until.is_some(),
                forwarding: if lasted { FamilySet::ALL } else { self.forwarding },
            }
        });
        peer.fsm.set_own_restart(own);
    }
}

/// Whether a neighbour has sent all its initial routes.
pub(crate) fn is_complete(neighbor: &NeighborView) -> bool {
    let Some(up) = &neighbor.up else { return false };
    let families = up.negotiated.families;
    families.but(up.initial_done).is_empty()
}

/// Whether the routes of a neighbour are awaited after a restart, before those of the run before leave the FIB. `age`: that of
/// this run, in milliseconds.
pub(crate) fn is_awaited(neighbor: &NeighborView, age: Millis) -> bool {
    let never = match &neighbor.held {
        // Its link has no packets, or an operator decides when it comes.
        Some(Obstacle::Interface(_) | Obstacle::MaxPrefixes(..) | Obstacle::MaxPrefixesOut(..)) => true,
        Some(Obstacle::Bfd) | None => neighbor.shutdown.is_some(),
    };
    if never || is_complete(neighbor) {
        return false;
    }
    match &neighbor.up {
        None => !neighbor.dynamic,
        Some(up) if up.negotiated.restart.is_some() => !neighbor.dynamic || age < DYNAMIC_NEIGHBORS_TIMEOUT,
        Some(_) => neighbor.state_age < PLAIN_NEIGHBOR_TIMEOUT,
    }
}

/// Whether routes are not advertised before those of this neighbour are there. One that restarts too waits for nothing of ours,
/// and we wait for nothing of it: else both would wait (RFC 4724 section 3).
pub(crate) fn defers(neighbor: &NeighborView, age: Millis) -> bool {
    let restarts = neighbor.up.as_ref().is_some_and(|up| up.negotiated.restart.is_some_and(|r| r.restarting));
    !restarts && is_awaited(neighbor, age)
}

impl Sessions {
    /// Whether the selection of routes is deferred after a restart.
    pub fn is_deferring(&self) -> bool {
        self.own_restarts.deferred_until.is_some()
    }

    /// The deferral of the selection of routes, while there is one.
    pub fn deferral(&self) -> Option<Deferral> {
        let until = self.own_restarts.deferred_until?;
        let (now, age) = (self.clock.now(), self.run_age());
        let awaited = self.neighbors().iter().filter(|neighbor| defers(neighbor, age)).count();
        Some(Deferral { awaited, left: until.saturating_sub(now) })
    }

    /// Whether dynamic neighbours may still come back.
    pub(crate) fn awaits_dynamic(&self) -> bool {
        !self.ranges.is_empty() && self.run_age() < DYNAMIC_NEIGHBORS_TIMEOUT
    }

    /// How long BGP has run, in milliseconds.
    pub(crate) fn run_age(&self) -> Millis {
        self.clock.now().saturating_sub(self.own_restarts.started)
    }

    /// The selection of routes is deferred no longer: later sessions are no part of the restart.
    pub(crate) fn end_deferral(&mut self) {
        self.own_restarts.deferred_until = None;
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        ids.into_iter().for_each(|id| self.announce_restarts(id));
    }

    /// Sets what the next OPEN to a neighbour says of restarts of ours.
    pub(super) fn announce_restarts(&mut self, id: PeerId) {
        let now = self.clock.now();
        if let Some(peer) = self.peers.get_mut(&id) {
            self.own_restarts.announce(peer, now);
        }
    }
}
