//! Graceful restart of neighbours: what of a lost session's routes is retained, and how long (RFC 4724 section 4.2,
//! RFC 8538 section 4), and what is long-lived stale after that (RFC 9494 section 4.2). The neighbour's reader and the shards
//! have the routes.

use super::Sessions;
use super::log::{News, Who};
use super::peer::Peer;
use crate::reader::Command;
use ribtide_bgp::fsm::{Event, Millis, Negotiated, Retention};
use ribtide_bgp::peer::{FamilySet, PeerId};
use ribtide_config::NeighborSettings;
use ribtide_prefix::{AfiSafi, ByFamily};

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
    /// When a next session must be there; `None`: it is, or all routes are long-lived stale.
    restart_by: Option<Millis>,
    /// Whether a next session is there, whose End-of-RIB is awaited.
    is_back: bool,
    /// How long routes may be long-lived stale.
    long_lived: ByFamily<Millis>,
    /// Until when those that are stay so.
    long_lived_until: ByFamily<Option<Millis>>,
}

/// The retained routes of a neighbour, as of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RetainedView {
    /// Their families.
    pub families: FamilySet,
    /// Those of them that are long-lived stale.
    pub long_lived: FamilySet,
    /// Milliseconds since the session was lost.
    pub age: Millis,
    /// Milliseconds in which the neighbour must have a session again; `None`: it has one, and its End-of-RIB is awaited.
    pub restart_left: Option<Millis>,
    /// Milliseconds after which they are removed, or become long-lived stale, in any case.
    pub stale_left: Millis,
}

impl Retained {
    /// Those of a session that ended, if any are to be retained.
    pub(super) fn new(retention: Retention, session: u32, reader: usize, now: Millis) -> Retained {
        let Retention { families, time, long_lived_only: _, long_lived } = retention;
        Retained {
            session,
            reader,
            families,
            since: now,
            restart_by: Some(now + time),
            is_back: false,
            long_lived,
            long_lived_until: ByFamily::default(),
        }
    }

    fn stale_until(&self, settings: &NeighborSettings) -> Millis {
        self.since + settings.graceful_restart.stale_time.as_millis() as Millis
    }

    /// The families that are long-lived stale.
    fn are_long_lived(&self) -> FamilySet {
        self.families.iter().filter(|family| self.long_lived_until[*family].is_some()).collect()
    }

    /// When families that are not long-lived stale have been retained for long enough.
    fn short_until(&self, settings: &NeighborSettings) -> Option<Millis> {
        let any = !self.families.but(self.are_long_lived()).is_empty();
        any.then(|| self.stale_until(settings).min(self.restart_by.unwrap_or(Millis::MAX)))
    }

    /// When some are removed or become long-lived stale, unless the neighbour ends that.
    pub(super) fn deadline(&self, settings: &NeighborSettings) -> Millis {
        let long = self.families.iter().filter_map(|family| self.long_lived_until[family]);
        long.chain(self.short_until(settings)).min().unwrap_or(Millis::MAX)
    }

    pub(super) fn view(&self, settings: &NeighborSettings, now: Millis) -> RetainedView {
        let left = |at: Millis| at.saturating_sub(now);
        let long = self.are_long_lived();
        let restart_left = match self.short_until(settings) {
            Some(_) => self.restart_by.map(left),
            None => (!self.is_back).then(|| left(self.deadline(settings))),
        };
        RetainedView {
            families: self.families,
            long_lived: long,
            age: now.saturating_sub(self.since),
            restart_left,
            stale_left: left(match self.short_until(settings) {
                Some(_) => self.stale_until(settings),
                None => self.deadline(settings),
            }),
        }
    }
}

/// Families whose retained routes wait for End-of-RIB of a new session: those whose forwarding the neighbour has kept, as F
/// of the capability says that they are retained by. Long-lived stale ones of a family that the neighbour has in both
/// capabilities need both F (RFC 9494 sections 4.2 and 5).
pub(super) fn kept(peer: &Peer, negotiated: &Negotiated) -> FamilySet {
    let (short, lost) = negotiated.restart.map_or_else(
        || (FamilySet::NONE, FamilySet::NONE),
        |restart| (restart.forwarding, restart.families.but(restart.forwarding)),
    );
    let long = negotiated.long_lived.unwrap_or_default();
    peer.retained.map_or_else(
        || FamilySet::NONE,
        |retained| {
            let are_long = retained.are_long_lived();
            let (short, long) = (short.but(are_long), long.forwarding.and(are_long).but(lost));
            retained.families.and(short.or(long))
        },
    )
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
            (retained.families, retained.restart_by, retained.is_back) = (kept, None, true);
        }
        peer.retained = peer.retained.filter(|_| !kept.is_empty());
    }

    /// A neighbour has sent all its routes of a family; its reader has swept the stale ones.
    pub(super) fn refreshed(&mut self, id: PeerId, family: AfiSafi) {
        self.release(id, FamilySet::NONE.with(family));
    }

    /// Routes of these families are retained no longer.
    fn release(&mut self, id: PeerId, families: FamilySet) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if let Some(retained) = &mut peer.retained {
            retained.families = retained.families.but(families);
        }
        peer.retained = peer.retained.filter(|retained| !retained.families.is_empty());
    }

    /// Retained routes of these families are long-lived stale from now on.
    pub(super) fn begin_long_lived(&mut self, id: PeerId, families: FamilySet, now: Millis) {
        let Some(retained) = self.peers.get_mut(&id).and_then(|peer| peer.retained.as_mut()) else { return };
        let families = families.and(retained.families);
        if families.is_empty() {
            return;
        }
        for family in families.iter() {
            retained.long_lived_until[family] = Some(now + retained.long_lived[family]);
        }
        let (session, reader) = (retained.session, retained.reader);
        self.outbox.send_to_reader(reader, Command::LongLived(id, session, families));
    }

    /// Ends the retention of a neighbour whose time is over, or makes its routes long-lived stale.
    pub(super) fn end_overdue_retention(&mut self, id: PeerId, now: Millis) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(retained) = peer.retained.filter(|retained| retained.deadline(&peer.settings) <= now) else {
            return;
        };
        let are_long = retained.are_long_lived();
        let is_over = |family: &AfiSafi| retained.long_lived_until[*family].is_some_and(|until| until <= now);
        let mut over: FamilySet = retained.families.iter().filter(is_over).collect();
        let mut why = "long-lived-stale-time is over";
        let mut begin = FamilySet::NONE;
        if retained.short_until(&peer.settings).is_some_and(|at| at <= now) {
            let short = retained.families.but(are_long);
            let stays = |family: &AfiSafi| retained.long_lived[*family] > 0 && !retained.is_back;
            begin = short.iter().filter(stays).collect();
            over = over.or(short.but(begin));
            why = match retained.restart_by {
                Some(at) if at <= now => "it has no session again within its restart time",
                _ => "stale-time is over",
            };
        }
        if !over.is_empty() {
            peer.stale_expired += 1;
        }
        let who = Who::of(peer);
        if !begin.is_empty() {
            self.log.neighbor(now, &who, &News::LongLived(why));
        }
        if !over.is_empty() {
            self.log.neighbor(now, &who, &News::Swept(why));
            let Retained { session, reader, .. } = retained;
            self.outbox.send_to_reader(reader, Command::Sweep(id, session, over));
            self.release(id, over);
        }
        self.begin_long_lived(id, begin, now);
    }

    /// Removes the retained routes of a neighbour, if it has any.
    pub(super) fn end_retention(&mut self, id: PeerId) {
        let Some(retained) = self.peers.get_mut(&id).and_then(|peer| peer.retained.take()) else { return };
        let Retained { session, reader, .. } = retained;
        self.outbox.send_to_reader(reader, Command::Sweep(id, session, FamilySet::ALL));
    }
}
