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
    /// Sessions that ended and of which some shard may still hold routes.
    ending: BTreeMap<(PeerId, u32), Ending>,
}

/// A session that ended.
#[derive(Default)]
struct Ending {
    /// How many shards its reader told. They may be more or fewer when the next one ends, so only the reader knows.
    told: Option<usize>,
    /// How many of them have said that they hold nothing more of it.
    purged: usize,
    /// The kind of the peer, once it is gone for good.
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

    /// Counts a session of a peer and returns its number.
    pub(super) fn next_session(&mut self, id: PeerId) -> u32 {
        let Some(session) = self.sessions.get_mut(id.0 as usize) else { return 0 };
        *session += 1;
        *session
    }

    /// A session is over, and its reader is to hear of it.
    pub(super) fn ended(&mut self, id: PeerId, session: u32) {
        self.ending.insert((id, session), Ending::default());
    }

    /// Sessions that ended and of which some shard may still hold something.
    #[cfg(test)]
    pub(super) fn ending(&self) -> usize {
        self.ending.len()
    }

    /// Its reader has told so many shards.
    pub(super) fn told(&mut self, id: PeerId, session: u32, shards: usize) {
        self.heard(id, session, |ending| ending.told = Some(shards));
    }

    /// A shard holds nothing more of it.
    pub(super) fn purged(&mut self, id: PeerId, session: u32) {
        self.heard(id, session, |ending| ending.purged += 1);
    }

    fn heard(&mut self, id: PeerId, session: u32, what: impl FnOnce(&mut Ending)) {
        let Some(ending) = self.ending.get_mut(&(id, session)) else { return };
        what(ending);
        if ending.told == Some(ending.purged) {
            let retired = ending.retired;
            self.ending.remove(&(id, session));
            if let Some(kind) = retired {
                self.free.entry(kind).or_default().push(id);
            }
        }
    }

    /// The peer is gone. Its number is free once its last session, if it had any, has left nothing.
    pub(super) fn retire(&mut self, id: PeerId, kind: PeerKind) {
        let last = self.sessions.get(id.0 as usize).copied().unwrap_or(0);
        match self.ending.get_mut(&(id, last)) {
            Some(ending) => ending.retired = Some(kind),
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
        // The first shard is quicker than the reader's word of how many there are.
        ids.purged(a, 2);
        ids.retire(a, External);
        ids.told(a, 2, 2);
        ids.purged(a, 1);
        assert_eq!(ids.take(External), PeerId(2));
        ids.purged(a, 2);
        assert_eq!(ids.take(Client), PeerId(3), "not for another kind");
        assert_eq!(ids.take(External), a);
        assert_eq!(ids.next_session(a), 3);
        ids.retire(b, Client);
        assert_eq!(ids.take(Client), b, "it never had a session");

        ids.ended(a, 3);
        ids.told(a, 3, 1);
        ids.purged(a, 3);
        ids.retire(a, External);
        assert_eq!(ids.take(External), a, "its session was over and done with before it went");
    }
}
