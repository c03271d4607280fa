//! Peer numbers: dense, and used again only when nothing of the former bearer is left.

use ribtide_bgp::peer::{PeerId, PeerKind};
use std::collections::BTreeMap;

/// The numbers given out and those that can be given again.
#[derive(Default)]
pub(super) struct Ids {
    /// How many sessions each number has had.
    sessions: Vec<u32>,
    /// By kind: a worker that still has withdrawals of the former bearer before it must judge them as it judged the
    /// announcements, and the kind is all that decides.
    free: BTreeMap<PeerKind, Vec<PeerId>>,
    /// Sessions that ended for good: the kind of their peers, and how many shards still hold routes of them.
    purging: BTreeMap<(PeerId, u32), (PeerKind, usize)>,
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

    /// Counts a session of a peer and returns its number.
    pub(super) fn next_session(&mut self, id: PeerId) -> u32 {
        let Some(session) = self.sessions.get_mut(id.0 as usize) else { return 0 };
        *session += 1;
        *session
    }

    /// The peer is gone; `shards` still have to say that its last session left nothing, if it had one.
    pub(super) fn retire(&mut self, id: PeerId, kind: PeerKind, had_session: bool, shards: usize) {
        let session = self.sessions.get(id.0 as usize).copied().unwrap_or(0);
        if had_session && shards > 0 {
            self.purging.insert((id, session), (kind, shards));
        } else {
            self.free.entry(kind).or_default().push(id);
        }
    }

    /// A shard holds nothing more of a session.
    pub(super) fn purged(&mut self, id: PeerId, session: u32) {
        let Some((kind, left)) = self.purging.get_mut(&(id, session)) else { return };
        *left -= 1;
        if *left == 0 {
            let kind = *kind;
            self.purging.remove(&(id, session));
            self.free.entry(kind).or_default().push(id);
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
        ids.retire(a, External, true, 2);
        ids.purged(a, 1);
        ids.purged(a, 2);
        assert_eq!(ids.take(External), PeerId(2));
        ids.purged(a, 2);
        assert_eq!(ids.take(Client), PeerId(3), "not for another kind");
        assert_eq!(ids.take(External), a);
        assert_eq!(ids.next_session(a), 3);
        ids.retire(b, Client, false, 2);
        assert_eq!(ids.take(Client), b);
    }
}
