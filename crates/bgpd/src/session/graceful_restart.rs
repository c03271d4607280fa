//! Graceful restart of neighbours: what of a lost session's routes is retained, and how long (RFC 4724 section 4.2,
//! RFC 8538 section 4). The neighbour's reader and the shards have the routes.

use super::Sessions;
use super::log::{News, Who};
use super::peer::Peer;
use crate::reader::Command;
use ribtide_bgp::fsm::{Event, Millis, Negotiated, Retention};
use ribtide_bgp::peer::{FamilySet, PeerId};
use ribtide_config::NeighborSettings;
use ribtide_prefix::AfiSafi;

/// The retained routes of a neighbour, whose session was lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct Retained {
    /// The number of that session.
    session: u32,
    /// The reader that has to sweep them.
    pub(super) reader: usize,
    families: FamilySet,
    /// When it was lost.
    since: Millis,
    /// When a next session must be there; `None`: it is.
    restart_by: Option<Millis>,
}

/// The retained routes of a neighbour, as of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetainedView {
    /// Their families.
    pub families: FamilySet,
    /// Milliseconds since the session was lost.
    pub age: Millis,
    /// Milliseconds in which the neighbour must have a session again; `None`: it has one, and its End-of-RIB is awaited.
    pub restart_left: Option<Millis>,
    /// Milliseconds after which they are removed in any case.
    pub stale_left: Millis,
}

impl Retained {
    /// Those of a session that ended, if any are to be retained.
    pub(super) fn new(retention: Retention, session: u32, reader: usize, now: Millis) -> Retained {
        let Retention { families, time } = retention;
        Retained { session, reader, families, since: now, restart_by: Some(now + time) }
    }

    fn stale_until(&self, settings: &NeighborSettings) -> Millis {
        self.since + settings.graceful_restart.stale_time.as_millis() as Millis
    }

    /// When they are removed, unless the neighbour ends that.
    pub(super) fn deadline(&self, settings: &NeighborSettings) -> Millis {
        self.stale_until(settings).min(self.restart_by.unwrap_or(Millis::MAX))
    }

    pub(super) fn view(&self, settings: &NeighborSettings, now: Millis) -> RetainedView {
        RetainedView {
            families: self.families,
            age: now.saturating_sub(self.since),
            restart_left: self.restart_by.map(|at| at.saturating_sub(now)),
            stale_left: self.stale_until(settings).saturating_sub(now),
        }
    }
}

/// Families whose retained routes wait for End-of-RIB of a new session: those whose forwarding the neighbour has kept.
pub(super) fn kept(peer: &Peer, negotiated: &Negotiated) -> FamilySet {
    let forwarding = negotiated.restart.map_or_else(|| FamilySet::NONE, |restart| restart.forwarding);
    peer.retained.map_or_else(|| FamilySet::NONE, |retained| retained.families.and(forwarding))
}

/// Whether an event ends retention, beside the session.
pub(super) fn ends_retention(event: &Event<'_>) -> bool {
    matches!(event, Event::Stop(_) | Event::Reset(_) | Event::Hold(_))
}

impl Sessions {
    /// A neighbour with retained routes has a session again; its reader knows which stay.
    pub(super) fn restarted(&mut self, id: PeerId, kept: FamilySet) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(retained) = &mut peer.retained {
            (retained.families, retained.restart_by) = (kept, None);
        }
        peer.retained = peer.retained.filter(|_| !kept.is_empty());
    }

    /// A neighbour has sent all its routes of a family; its reader has swept the stale ones.
    pub(super) fn refreshed(&mut self, id: PeerId, family: AfiSafi) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(retained) = &mut peer.retained {
            retained.families = retained.families.without(family);
        }
        peer.retained = peer.retained.filter(|retained| !retained.families.is_empty());
    }

    /// Ends the retention of a neighbour whose time is over.
    pub(super) fn end_overdue_retention(&mut self, id: PeerId, now: Millis) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(retained) = peer.retained.filter(|retained| retained.deadline(&peer.settings) <= now) else {
            return;
        };
        peer.stale_expired += 1;
        let why = match retained.restart_by {
            Some(at) if at <= now => "it has no session again within its restart time",
            _ => "stale-time is over",
        };
        self.log.neighbor(now, &Who::of(peer), &News::Swept(why));
        self.end_retention(id);
    }

    /// Removes the retained routes of a neighbour, if it has any.
    pub(super) fn end_retention(&mut self, id: PeerId) {
        let Some(retained) = self.peers.get_mut(&id).and_then(|peer| peer.retained.take()) else { return };
        let Retained { session, reader, .. } = retained;
        self.outbox.send_to_reader(reader, Command::Sweep(id, session, FamilySet::ALL));
    }
}
