//! Peer numbers: dense, and reused only when no trace of the former peer is left.

use ribtide_bgp::peer::{PeerId, PeerKind};
use std::collections::BTreeMap;

/// Used and free numbers.
#[derive(Default)]
pub(super) struct Ids {
    /// The number of sessions of each peer number.
    sessions: Vec<u32>,
    /// Free numbers by kind. A worker may still have withdrawals of the former peer, and must send
    /// them by the same rules as the announcements; only the kind decides these.
    free: BTreeMap<PeerKind, Vec<PeerId>>,
    /// Ended sessions that may have routes in a shard.
    ending: BTreeMap<(PeerId, u32), Ending>,
}

/// A session that ended.
#[derive(Default)]
struct Ending {
    /// The number of shards that its reader informed. It may change before the next session ends,
    /// so only the reader knows it.
    informed: Option<usize>,
    /// The number of these that reported no routes.
    purged: usize,
    /// The kind of the peer, once it is removed.
    retired: Option<PeerKind>,
}

impl Ids {
    /// A number for a new peer.
    pub(super) fn take(&mut self, kind: PeerKind) -> PeerId {
        if let Some(id) = self.free.get_mut(&kind).and_then(Vec::pop) {
            return id;
        }
        self.sessions.push(0);
        PeerId(self.sessions.len() as u32 - 1)
    }

    /// Counts a new session of a peer and returns its number.
    pub(super) fn next_session(&mut self, id: PeerId) -> u32 {
        let Some(session) = self.sessions.get_mut(id.0 as usize) else { return 0 };
        *session += 1;
        *session
    }

    /// Notes an ended session, whose reader will report.
    pub(super) fn ended(&mut self, id: PeerId, session: u32) {
        self.ending.insert((id, session), Ending::default());
    }

    /// Ended sessions that may have routes in a shard.
    #[cfg(test)]
    pub(super) fn ending(&self) -> usize {
        self.ending.len()
    }

    /// Notes the number of shards that the reader informed.
    pub(super) fn shards_informed(&mut self, id: PeerId, session: u32, shards: usize) {
        self.heard(id, session, |ending| ending.informed = Some(shards));
    }

    /// Notes that a shard has no route of the session.
    pub(super) fn purged(&mut self, id: PeerId, session: u32) {
        self.heard(id, session, |ending| ending.purged += 1);
    }

    fn heard(&mut self, id: PeerId, session: u32, what: impl FnOnce(&mut Ending)) {
        let Some(ending) = self.ending.get_mut(&(id, session)) else { return };
        what(ending);
        if ending.informed == Some(ending.purged) {
            let retired = ending.retired;
            self.ending.remove(&(id, session));
            if let Some(kind) = retired {
                self.retire(id, kind);
            }
        }
    }

    /// Removes a peer. Its number is free when none of its sessions has a trace: retained routes may outlast a later one.
    pub(super) fn retire(&mut self, id: PeerId, kind: PeerKind) {
        match self.ending.range_mut((id, 0)..=(id, u32::MAX)).next_back() {
            Some((_, ending)) => ending.retired = Some(kind),
            None => self.free.entry(kind).or_default().push(id),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use PeerKind::{Client, External};

    #[test]
    fn a_number_comes_back_when_every_shard_has_let_go() {
        let mut ids = Ids::default();
        let (a, b) = (ids.take(External), ids.take(Client));
        assert_eq!((a, b, ids.next_session(a), ids.next_session(a)), (PeerId(0), PeerId(1), 1, 2));
        ids.ended(a, 2);
        // The first shard may report before the reader.
        ids.purged(a, 2);
        ids.retire(a, External);
        ids.shards_informed(a, 2, 2);
        ids.purged(a, 1);
        assert_eq!(ids.take(External), PeerId(2));
        ids.purged(a, 2);
        assert_eq!(ids.take(Client), PeerId(3), "not for another kind");
        assert_eq!(ids.take(External), a);
        assert_eq!(ids.next_session(a), 3);
        ids.retire(b, Client);
        assert_eq!(ids.take(Client), b, "it never had a session");

        ids.ended(a, 3);
        ids.shards_informed(a, 3, 1);
        ids.purged(a, 3);
        ids.retire(a, External);
        assert_eq!(ids.take(External), a, "its session was over and done with before it went");
    }
}
