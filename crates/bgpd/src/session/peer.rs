//! A neighbour of the session thread: its FSM, connections and established session.

use super::connection::Connection;
use super::graceful_restart::Retained;
use super::log::Who;
use super::max_prefixes::LimitState;
use super::recorder::Recorder;
use super::unnumbered::Link;
use super::write_queue::Backlog;
use crate::monitor::SessionUp;
use ribtide_bgp::fsm::{self, Event, Millis, Side, State};
use ribtide_bgp::peer::{PeerId, PeerInfo, PeerKind, PrefixLimits};
use ribtide_config::{AnyAsn, NeighborSettings};
use ribtide_prefix::{ByFamily, FamilySet};
use ribtide_runtime::log::target;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A neighbour.
pub(super) struct Peer {
    pub(super) id: PeerId,
    pub(super) address: IpAddr,
    pub(super) description: Option<String>,
    pub(super) settings: NeighborSettings,
    pub(super) kind: PeerKind,
    /// Whether it belongs to a dynamic range; then it ends with its connection.
    pub(super) dynamic: bool,
    /// The interface of the subnet on which it was last seen.
    pub(super) interface: Option<String>,
    /// Its link, if the configuration has it by interface.
    pub(super) link: Option<Link>,
    pub(super) fsm: fsm::Peer,
    ours: Option<Connection>,
    theirs: Option<Connection>,
    pub(super) up: Option<Up>,
    /// The last state, and since when.
    pub(super) state: (State, Millis),
    /// Its entry in the timers of the session thread.
    pub(super) deadline: Option<Millis>,
    /// Since when the kernel accepts no bytes although some wait.
    pub(super) stalled: Option<Millis>,
    /// What its maximum prefixes did.
    pub(super) limits: LimitState,
    /// Its lost sessions with routes that stay in use, oldest first: several after consecutive restarts.
    pub(super) retained: Vec<Retained>,
    /// How often such routes were removed because the neighbour did not come back in time.
    pub(super) stale_expired: u64,
    pub(super) recorder: Recorder,
}

/// An established session.
pub(super) struct Up {
    pub(super) info: Arc<PeerInfo>,
    pub(super) side: Side,
    pub(super) worker: usize,
    pub(super) reader: usize,
    pub(super) local: IpAddr,
    /// The session as monitors get it.
    pub(super) monitored: Arc<SessionUp>,
    /// When its reader last received bytes.
    pub(super) heard: Arc<AtomicU64>,
    pub(super) backlog: Backlog,
    /// Whether End-of-RIB arrived, for IPv4 and IPv6.
    pub(super) initial_done: FamilySet,
    /// The limits of sent prefixes that its worker has.
    pub(super) limits: PrefixLimits,
    /// When refreshes of the peer's routes have taken too long, IPv4 and IPv6.
    pub(super) refresh_until: ByFamily<Option<Millis>>,
}

impl Peer {
    pub(super) fn new(
        id: PeerId,
        address: IpAddr,
        settings: NeighborSettings,
        local_asn: u32,
        router_id: Ipv4Addr,
        now: Millis,
    ) -> Peer {
        let (first, alternate) = match settings.as_numbers.local_as {
            None => (local_asn, None),
            Some(local_as) if local_as.dual => (local_asn, Some(local_as.asn)),
            Some(local_as) => (local_as.asn, None),
        };
        let machine = fsm::Settings {
            local_asn: first,
            alternate_asn: alternate,
            router_id,
            peer_asn: match settings.peer_asn {
                AnyAsn::Exactly(asn) => Some(asn),
                AnyAsn::AnyExternal => None,
            },
            families: settings.families,
            hold_time: settings.hold_time,
            passive: settings.passive,
            connect_retry: settings.connect_retry,
            role: settings.role,
            role_strict: settings.role_strict,
            graceful_restart: settings.graceful_restart.helper,
            own_restart: None,
            long_lived: settings.graceful_restart.long_lived_time,
            add_path_receive: settings.add_path.receive,
            add_path_send: settings.add_path.send.families(),
            extended_next_hop: settings.extended_next_hop,
        };
        // The seed must differ between peers and routers.
        let seed = u64::from(u32::from(router_id)) << 32 | u64::from(id.0);
        Peer {
            id,
            address,
            description: None,
            kind: settings.kind,
            settings,
            dynamic: false,
            interface: None,
            link: None,
            fsm: fsm::Peer::new(machine, seed),
            ours: None,
            theirs: None,
            up: None,
            state: (State::Idle, now),
            deadline: None,
            stalled: None,
            limits: LimitState::default(),
            retained: Vec::new(),
            stale_expired: 0,
            recorder: Recorder::default(),
        }
    }

    pub(super) fn slot(&mut self, side: Side) -> &mut Option<Connection> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }

    /// The connection of the established session.
    pub(super) fn connection(&mut self) -> Option<&mut Connection> {
        let side = self.up.as_ref()?.side;
        self.slot(side).as_mut()
    }

    /// All connections.
    pub(super) fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.ours.iter().chain(&self.theirs)
    }

    pub(super) fn has_connections(&self) -> bool {
        self.ours.is_some() || self.theirs.is_some()
    }

    /// Waiting bytes of the established session.
    pub(super) fn queued(&self) -> usize {
        self.established().map_or(0, |c| c.output.len())
    }

    /// The connection of the established session, for queries.
    pub(super) fn established(&self) -> Option<&Connection> {
        match self.up.as_ref()?.side {
            Side::Ours => self.ours.as_ref(),
            Side::Theirs => self.theirs.as_ref(),
        }
    }

    /// Passes an event to the FSM, after the last receive time of its reader. So neither a busy nor
    /// a waiting reader makes the peer silent.
    pub(super) fn handle(&mut self, event: Event<'_>, now: Millis) -> Vec<fsm::Action> {
        let mut actions = Vec::new();
        if let Some(up) = &self.up {
            self.fsm.alive(up.heard.load(Relaxed));
            if self.fsm.hold_expires().is_some_and(|at| at <= now)
                && self.connection().is_some_and(|c| c.has_unread())
            {
                self.fsm.alive(now);
            }
        }
        self.fsm.handle(event, now, &mut actions);
        let (before, state) = (self.state.0, self.fsm.state());
        if state != before {
            tracing::debug!(
                target: target::BGP_SESSION,
                neighbor = %Who::of(self),
                before = before.name(),
                state = state.name(),
                reason = self.fsm.last_error().filter(|e| e.at == now).map(|e| e.text.as_str()),
                "the session has another state"
            );
            self.state = (state, now);
        }
        actions
    }

    /// The next deadline.
    pub(super) fn next_deadline(&self) -> Option<Millis> {
        let send_hold = self.stalled.and_then(|since| Some(since + self.fsm.send_hold()?));
        let retained = self.retained.iter().map(|retained| retained.deadline(&self.settings)).min();
        let refreshes = self.up.iter().flat_map(|up| up.refresh_until.iter().filter_map(|(_, until)| *until));
        let others = [self.fsm.next_deadline(), send_hold, self.limits.until(), retained];
        others.into_iter().flatten().chain(refreshes).min()
    }
}
