//! Connections from the ranges of `dynamic-neighbors` that have no session yet. Who may connect is not known by name, so
//! such connections take a share of the file descriptors only.

use super::Sessions;
use super::peer::Peer;
use nix::sys::resource::{Resource, getrlimit};
use ribtide_bgp::fsm::Millis;
use ribtide_bgp::peer::PeerId;
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::notification::cease;

/// Connections without a session get one in so many of the permitted open files.
const FILES_SHARE: u64 = 4;
/// The least number that the bound on them can be.
const WAITING_BOUND_MIN: usize = 16;
/// Without an OPEN for so long, a connection makes room for another.
const OPEN_TIMEOUT: Millis = 10_000;

impl Sessions {
    /// Whether another neighbour of a range may connect. Where too many wait, the one that has waited longest makes room, if
    /// it had time for its OPEN.
    pub(super) fn has_room_in_ranges(&mut self) -> bool {
        let bound = waiting_bound();
        if self.peers.len() < bound {
            return true;
        }
        let waits = |peer: &&Peer| peer.dynamic && peer.up.is_none();
        let mut waiting: Vec<(Millis, PeerId)> =
            self.peers.values().filter(waits).map(|peer| (peer.state.1, peer.id)).collect();
        if waiting.len() < bound {
            return true;
        }
        waiting.sort_unstable();
        match waiting.first().copied() {
            Some((since, id)) if since + OPEN_TIMEOUT <= self.clock.now() => {
                self.remove(id, &Notification::cease(cease::OUT_OF_RESOURCES));
                true
            }
            _ => false,
        }
    }
}

/// Connections of ranges without a session, at most.
fn waiting_bound() -> usize {
    let files = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(current, _)| current);
    usize::try_from(files / FILES_SHARE).unwrap_or(usize::MAX).max(WAITING_BOUND_MIN)
}
