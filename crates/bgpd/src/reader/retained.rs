//! Ended sessions whose routes are retained (RFC 4724 section 4.2). A peer has several after consecutive restarts (RFC 8538
//! section 4.1). Its next session has the same reader, so shards get the ends of sessions, the start of the next one and the
//! sweeps in this order.

use ribtide_bgp::message::ShardIn;
use ribtide_bgp::peer::{FamilySet, PeerId, PeerInfo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// By peer and number of the session.
#[derive(Default)]
pub(super) struct Retained(BTreeMap<(PeerId, u32), (Arc<PeerInfo>, FamilySet)>);

impl Retained {
    /// The routes of an ended session are retained.
    pub(super) fn begin(&mut self, info: Arc<PeerInfo>, families: FamilySet) {
        self.0.insert((info.id, info.session), (info, families));
    }

    /// Whether routes of this session are retained.
    pub(super) fn is_of(&self, peer: PeerId, session: u32) -> bool {
        self.0.contains_key(&(peer, session))
    }

    /// The ended sessions of a peer, oldest first.
    pub(super) fn of(&self, peer: PeerId) -> Vec<u32> {
        self.0.range((peer, 0)..=(peer, u32::MAX)).map(|((_, session), _)| *session).collect()
    }

    /// Routes of these families of a session are retained no longer. Returns whether it has no others; `None` if there are
    /// none.
    pub(super) fn end(&mut self, peer: PeerId, session: u32, families: FamilySet) -> Option<bool> {
        let (_, left) = self.0.get_mut(&(peer, session))?;
        if left.and(families).is_empty() {
            return None;
        }
        *left = left.but(families);
        let is_over = left.is_empty();
        if is_over {
            self.0.remove(&(peer, session));
        }
        Some(is_over)
    }

    /// Messages by which a new shard learns of them, in order, each to be made for each shard.
    pub(super) fn messages(&self) -> impl Iterator<Item = impl Fn() -> ShardIn> {
        self.0.iter().flat_map(|((peer, session), (info, families))| {
            [true, false].map(|up| {
                move || match up {
                    true => ShardIn::PeerUp(info.clone()),
                    false => ShardIn::PeerDown { peer: *peer, session: *session, retained: *families },
                }
            })
        })
    }
}
