//! Ended sessions whose routes are retained (RFC 4724 section 4.2), at most one of each peer. The peer's next session has
//! the same reader, so shards get the end of one session, the start of the next one and the sweeps in this order.

use ribtide_bgp::message::ShardIn;
use ribtide_bgp::peer::{FamilySet, PeerId, PeerInfo};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Default)]
pub(super) struct Retained(BTreeMap<PeerId, (Arc<PeerInfo>, FamilySet)>);

impl Retained {
    /// The routes of an ended session are retained. Those of an earlier one are not.
    pub(super) fn begin(&mut self, info: Arc<PeerInfo>, families: FamilySet) {
        self.0.insert(info.id, (info, families));
    }

    /// Whether routes of this session are retained.
    pub(super) fn is_of(&self, peer: PeerId, session: u32) -> bool {
        self.0.get(&peer).is_some_and(|(info, _)| info.session == session)
    }

    /// A peer's routes of these families are retained no longer. Returns the number of their session, and whether it
    /// has no others; `None` if there are none.
    pub(super) fn end(&mut self, peer: PeerId, families: FamilySet) -> Option<(u32, bool)> {
        let (info, left) = self.0.get_mut(&peer)?;
        if left.and(families).is_empty() {
            return None;
        }
        *left = left.but(families);
        let (session, is_over) = (info.session, left.is_empty());
        if is_over {
            self.0.remove(&peer);
        }
        Some((session, is_over))
    }

    /// Messages by which a new shard learns of them, in order, each to be made for each shard.
    pub(super) fn messages(&self) -> impl Iterator<Item = impl Fn() -> ShardIn> {
        self.0.iter().flat_map(|(peer, (info, families))| {
            [true, false].map(|up| {
                move || match up {
                    true => ShardIn::PeerUp(info.clone()),
                    false => ShardIn::PeerDown { peer: *peer, session: info.session, retained: *families },
                }
            })
        })
    }
}
