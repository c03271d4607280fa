//! Route refresh (RFC 2918), with marks of its begin and end (RFC 7313): requests, and how long a refresh of a peer may take.

use super::Sessions;
use super::log::{News, Who};
use crate::reader::Command;
use ribtide_bgp::fsm::{Millis, Side};
use ribtide_bgp::message::EgressIn;
use ribtide_bgp::peer::{FamilySet, PeerId};
use ribtide_prefix::AfiSafi;
use ribtide_wire::bgp::message::{RefreshKind, RouteRefresh};

impl Sessions {
    /// Sends an established peer all routes of a family again, with marks if it understands them.
    pub(super) fn send_again(&mut self, id: PeerId, worker: usize, family: AfiSafi) {
        let negotiated = self.peers.get(&id).and_then(|peer| peer.fsm.negotiated());
        let marked = negotiated.is_some_and(|negotiated| negotiated.enhanced_refresh);
        self.outbox.send_to_worker(worker, EgressIn::Refresh(id, family, marked));
    }

    /// Requests a route refresh from an established peer.
    pub(super) fn request_routes(&mut self, id: PeerId, side: Side, families: FamilySet) {
        for family in families.iter() {
            let mut message = Vec::new();
            RouteRefresh::new(family, RefreshKind::Request).write(&mut message);
            self.send(id, side, message);
        }
    }

    /// A peer has begun to send its routes of a family again. It has as long for that as for a restart (`stale-time`).
    pub(super) fn refresh_begins(&mut self, id: PeerId, family: AfiSafi) {
        let now = self.clock.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let until = now + peer.settings.graceful_restart.stale_time.as_millis() as Millis;
        if let Some(up) = &mut peer.up {
            up.refresh_until[family] = Some(until);
        }
        self.settle(id);
    }

    /// It has sent all of them, or its time was over.
    pub(super) fn refresh_ends(&mut self, id: PeerId, family: AfiSafi) {
        if let Some(up) = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut()) {
            up.refresh_until[family] = None;
        }
        self.settle(id);
    }

    /// Logs a message of a peer that is ignored (RFC 7313 sections 4 and 5).
    pub(super) fn log_ignored(&mut self, id: PeerId, message: &str) {
        let now = self.clock.now();
        if let Some(peer) = self.peers.get(&id) {
            self.log.neighbor(now, &Who::of(peer), &News::Ignored(message));
        }
    }

    /// Ends refreshes of a peer whose time is over.
    pub(super) fn end_overdue_refresh(&mut self, id: PeerId, now: Millis) {
        let Some(up) = self.peers.get_mut(&id).and_then(|peer| peer.up.as_mut()) else { return };
        let (reader, session) = (up.reader, up.info.session);
        for family in AfiSafi::ALL {
            if up.refresh_until[family].take_if(|until| *until <= now).is_some() {
                self.outbox.send_to_reader(reader, Command::EndRefresh(id, session, family));
            }
        }
    }
}
