//! BFD of neighbours: a session ends at once when BFD reports the neighbour down, and may return
//! when BFD is up again (RFC 5882 section 4.3, RFC 9384).

use super::Sessions;
use super::peer::Peer;
use ribtide_bfd::Standing;
use ribtide_bfdd::BfdNews;
use ribtide_bgp::fsm::{Event, Obstacle};

impl Sessions {
    /// Handles news of BFD.
    pub(crate) fn take_bfd(&mut self, news: &BfdNews) {
        match news.standing {
            Some(standing) => self.proven.insert(news.address, standing),
            None => self.proven.remove(&news.address),
        };
        let Some(id) = self.by_address.get(&news.address).copied() else { return };
        let watched = self.peers.get(&id).is_some_and(|peer| peer.settings.bfd.is_some());
        if news.failed && watched {
            self.event(id, Event::Hold(Obstacle::Bfd));
        }
        self.obey(id);
    }

    /// Whether BFD prevents a session.
    pub(super) fn bfd_obstacle(&self, peer: &Peer) -> Option<Obstacle> {
        let standing = self.proven.get(&peer.address).copied().unwrap_or(Standing::Unproven);
        let usable = peer.settings.bfd.is_none_or(|bfd| standing.usable(bfd.strict));
        (!usable).then_some(Obstacle::Bfd)
    }
}
