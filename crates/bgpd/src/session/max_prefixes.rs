//! Maximum prefixes of neighbours: what a reader or worker reports of a limit, and the wait of a
//! session that a limit ended.

use super::Sessions;
use super::log::{News, Who};
use super::peer::Peer;
use ribtide_bgp::egress::LimitExceeded;
use ribtide_bgp::fsm::{Event, Millis, Obstacle};
use ribtide_bgp::ingest::LimitEvent;
use ribtide_bgp::message::EgressIn;
use ribtide_bgp::peer::PeerId;
use ribtide_prefix::ByFamily;
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::notification::cease;
use std::time::Duration;

/// What the limits of a neighbour did, over all of its sessions.
#[derive(Default)]
pub(super) struct LimitState {
    /// The limit that ended the session, until the wait is over.
    waits: Option<LimitWait>,
    /// How often more prefixes came than the limit.
    pub(super) exceeded: ByFamily<u64>,
    /// How often there were more prefixes to send than the limit.
    pub(super) exceeded_out: ByFamily<u64>,
}

/// The wait after a limit ended the session.
struct LimitWait {
    obstacle: Obstacle,
    /// Its end; `None`: an operator ends it.
    until: Option<Millis>,
}

impl LimitState {
    /// The obstacle of the neighbour, while the wait lasts.
    pub(super) fn obstacle(&self) -> Option<Obstacle> {
        self.waits.as_ref().map(|wait| wait.obstacle.clone())
    }

    /// Whether the wait lasts.
    pub(super) fn is_waiting(&self) -> bool {
        self.waits.is_some()
    }

    /// The end of the wait, if it has one.
    pub(super) fn until(&self) -> Option<Millis> {
        self.waits.as_ref()?.until
    }

    /// Ends the wait; returns whether there was one.
    pub(super) fn end_wait(&mut self) -> bool {
        self.waits.take().is_some()
    }

    fn begin_wait(&mut self, obstacle: Obstacle, idle_time: Duration, now: Millis) {
        let until = (!idle_time.is_zero()).then(|| now + idle_time.as_millis() as Millis);
        self.waits = Some(LimitWait { obstacle, until });
    }
}

impl Sessions {
    /// Handles a limit of received prefixes that a reader reports.
    pub(super) fn take_limit(&mut self, id: PeerId, event: LimitEvent) {
        let now = self.clock.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let who = who(peer);
        self.log.neighbor(now, &who, &News::Limit((&event).into()));
        if event.is_exceeded() {
            peer.limits.exceeded[event.family] += 1;
        }
        let present = peer.settings.max_prefixes.received.and_then(|of| of.limits[event.family]);
        if event.ends_session() && present != Some(event.max) {
            // A reload changed the limit meanwhile; the reader has stopped.
            self.event(id, Event::Reset(Notification::cease(cease::CONFIG_CHANGE)));
        } else if event.ends_session() {
            let idle_time = peer.settings.max_prefixes.idle_time;
            peer.limits.begin_wait(Obstacle::MaxPrefixes(event.family, event.max), idle_time, now);
            self.obey(id);
        }
    }

    /// Handles a limit of sent prefixes that a worker reports.
    pub(super) fn take_sent_limit(&mut self, exceeded: LimitExceeded) {
        let now = self.clock.now();
        let LimitExceeded { member, family, max, .. } = exceeded;
        let Some(peer) = self.peers.get_mut(&member.peer) else { return };
        if peer.up.as_ref().is_none_or(|up| up.info.session != member.session) {
            return;
        }
        self.log.neighbor(now, &who(peer), &News::Limit((&exceeded).into()));
        peer.limits.exceeded_out[family] += 1;
        if peer.settings.max_prefixes.sent[family] != Some(max) {
            // A reload changed the limit meanwhile; the worker has removed the member.
            return self.event(member.peer, Event::Reset(Notification::cease(cease::CONFIG_CHANGE)));
        }
        let idle_time = peer.settings.max_prefixes.sent_idle_time;
        peer.limits.begin_wait(Obstacle::MaxPrefixesOut(family, max), idle_time, now);
        self.obey(member.peer);
    }

    /// Sends the worker of an established session the limits of sent prefixes.
    pub(super) fn limit_sent(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let limits = peer.settings.max_prefixes.sent;
        let Some(up) = peer.up.as_mut().filter(|up| up.limits != limits) else { return };
        up.limits = limits;
        self.outbox.send_to_worker(up.worker, EgressIn::MaxPrefixes(id, limits));
    }

    /// Ends the wait of a neighbour whose session a limit ended. Returns whether there was one.
    pub(super) fn end_limit_wait(&mut self, id: PeerId) -> bool {
        let waited = self.peers.get_mut(&id).is_some_and(|peer| peer.limits.end_wait());
        if waited {
            self.obey(id);
        }
        waited
    }
}

fn who(peer: &Peer) -> Who<'_> {
    Who { asn: peer.up.as_ref().map(|up| up.info.asn), ..Who::of(peer) }
}
