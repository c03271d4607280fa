//! Queries about sessions, and commands of operators.

use super::Sessions;
use super::graceful_restart::RetainedView;
use super::own_restart::Deferral;
use super::peer::Peer;
use super::recorder::LastNotification;
use super::refused::RefusedConnections;
use super::tcp_ao::{self, KeyState};
use super::write_queue::WriteQueue;
use crate::messages::MessageCounts;
use crate::monitor::SessionUp;
use crate::recorder::Direction;
use ribtide_bgp::fsm::{Event, LastError, Negotiated, Obstacle, State};
use ribtide_bgp::peer::{PeerId, PeerInfo, PeerKind};
use ribtide_config::{AsNumbers, MaxPrefixesConfig, NeighborSettings};
use ribtide_prefix::{ByFamily, FamilySet};
use ribtide_runtime::clock::Millis;
use ribtide_runtime::liveness::{TcpState, tcp_state};
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::notification::cease;
use ribtide_wire::bgp::role::Role;
use std::net::IpAddr;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// A neighbour.
#[derive(Clone, Debug)]
pub struct NeighborView {
    /// Its number in this process.
    pub id: PeerId,
    /// Its address, with a zone if it is link-local.
    pub address: IpAddr,
    /// Its interface, if the configuration has it by that.
    pub interface: Option<String>,
    /// The description.
    pub description: Option<String>,
    /// Its group in the configuration.
    pub group: String,
    /// Whether it belongs to a dynamic range.
    pub dynamic: bool,
    /// Our role towards it (RFC 9234).
    pub role: Option<Role>,
    /// Its rules for AS numbers.
    pub as_numbers: AsNumbers,
    /// Whether RFC 8212 rejects all its routes, because it is external and has no import policy.
    pub import_missing: bool,
    /// The same for routes to it and the export policy.
    pub export_missing: bool,
    /// Whether graceful shutdown moves traffic away from it (RFC 8326).
    pub graceful_shutdown: bool,
    /// The text of its shutdown, empty for none; `None`: it is not shut down.
    pub shutdown: Option<String>,
    /// What prevents a session.
    pub held: Option<Obstacle>,
    /// For how many milliseconds more an idle hold refuses connections, and after how many oscillations.
    pub idle_hold: Option<(Millis, u32)>,
    /// In how many milliseconds that ends by itself, where it is a maximum of prefixes.
    pub held_for: Option<Millis>,
    /// Its maximum prefixes.
    pub max_prefixes: MaxPrefixesConfig,
    /// How often it exceeded that of received ones.
    pub exceeded: ByFamily<u64>,
    /// How often there were more to send to it.
    pub exceeded_out: ByFamily<u64>,
    /// The AS that it must have, or has.
    pub asn: Option<u32>,
    /// External, internal or client.
    pub kind: PeerKind,
    /// State of RFC 4271 section 8.2.2.
    pub state: State,
    /// For how many milliseconds it has been in this state.
    pub state_age: Millis,
    /// How often an established session ended.
    pub flaps: u64,
    /// Why the last connection ended, as a sentence.
    pub last_error: Option<String>,
    /// For how many milliseconds it has been over.
    pub last_error_age: Option<Millis>,
    /// Why the last established session ended, as a sentence.
    pub last_down: Option<String>,
    /// For how many milliseconds that has been over.
    pub last_down_age: Option<Millis>,
    /// Which side ended the last established session: [`Direction::Sent`] is this one.
    pub last_down_by: Option<Direction>,
    /// The last NOTIFICATION, and for how many milliseconds that has been over.
    pub last_notification: Option<(Millis, LastNotification)>,
    /// Its settings.
    pub settings: NeighborSettings,
    /// The routes of lost sessions that stay in use while it restarts (RFC 4724).
    pub retained: Option<RetainedView>,
    /// How often such routes were removed because it did not come back in time.
    pub stale_expired: u64,
    /// The number of its TCP-AO keys, and what the kernel says of its session; `None`: it has no keys.
    pub tcp_ao: Option<(usize, Option<KeyState>)>,
    /// The established session.
    pub up: Option<UpView>,
}

/// An established session.
#[derive(Clone, Debug)]
pub struct UpView {
    /// The facts for shards and workers.
    pub info: Arc<PeerInfo>,
    /// The negotiated capabilities.
    pub negotiated: Negotiated,
    /// The local address.
    pub local: IpAddr,
    /// The session as monitors get it: its ports and OPENs.
    pub monitored: Arc<SessionUp>,
    /// In how many milliseconds the hold timer expires, unless something is received.
    pub hold_left: Option<Millis>,
    /// What the kernel says of the connection.
    pub tcp: Option<TcpState>,
    /// The worker that has its group.
    pub worker: usize,
    /// The reader that reads it.
    pub reader: usize,
    /// The write queue.
    pub writes: WriteQueue,
    /// How long its reader has received nothing, in milliseconds.
    pub silent: Millis,
    /// Messages received before its reader took over.
    pub received: MessageCounts,
    /// Messages sent, UPDATEs not among them.
    pub sent: MessageCounts,
    /// The families whose initial routes the peer has sent.
    pub initial_done: FamilySet,
    /// The seconds for which the peer retains our routes while we restart; `None`: it does not.
    pub own_restart: Option<u16>,
}

/// What metrics and lists of interfaces have of a neighbour.
#[derive(Clone, Debug)]
pub struct NeighborCounts {
    /// Its number in this process.
    pub id: PeerId,
    /// Its address, with a zone if it is link-local.
    pub address: IpAddr,
    /// Its interface, if the configuration has it by that.
    pub interface: Option<String>,
    /// Its group in the configuration.
    pub group: String,
    /// State of RFC 4271 section 8.2.2.
    pub state: State,
    /// For how many milliseconds it has been in its state.
    pub state_age: Millis,
    /// How often an established session ended.
    pub flaps: u64,
    /// Whether routes of lost sessions stay in use while it restarts (RFC 4724).
    pub has_retained: bool,
    /// How often such routes were removed because it did not come back in time.
    pub stale_expired: u64,
    /// Its maximum prefixes.
    pub max_prefixes: MaxPrefixesConfig,
    /// How often it exceeded that of received ones.
    pub exceeded: ByFamily<u64>,
    /// How often there were more to send to it.
    pub exceeded_out: ByFamily<u64>,
    /// The established session.
    pub up: Option<UpCounts>,
}

/// What metrics have of an established session.
#[derive(Clone, Debug)]
pub struct UpCounts {
    /// The worker that has its group.
    pub worker: usize,
    /// The reader that reads it.
    pub reader: usize,
    /// The write queue.
    pub writes: WriteQueue,
    /// Messages received before its reader took over.
    pub received: MessageCounts,
    /// Messages sent, UPDATEs not among them.
    pub sent: MessageCounts,
}

/// All neighbours together.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Totals {
    /// Configured neighbours and present dynamic ones.
    pub neighbors: usize,
    /// Those with a session.
    pub established: usize,
    /// Sessions lost.
    pub flaps: u64,
    /// Incoming connections that got no session.
    pub refused: RefusedConnections,
    /// The deferral of the selection of routes after a restart, while there is one.
    pub deferral: Option<Deferral>,
}

impl Sessions {
    /// Every neighbour, by address.
    pub fn neighbors(&self) -> Vec<NeighborView> {
        self.by_address.values().filter_map(|id| self.peers.get(id)).map(|p| self.view(p)).collect()
    }

    /// At most `limit` neighbours that `wanted` accepts, by address, after `after`.
    pub fn page(
        &self,
        after: Option<IpAddr>,
        limit: usize,
        wanted: impl Fn(&NeighborView) -> bool,
    ) -> Vec<NeighborView> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let peers = self.by_address.range((from, Bound::Unbounded)).filter_map(|(_, id)| self.peers.get(id));
        peers.map(|peer| self.view(peer)).filter(wanted).take(limit).collect()
    }

    /// What metrics and lists of interfaces have of at most `limit` neighbours, by address, after `after`.
    pub fn counts(&self, after: Option<IpAddr>, limit: usize) -> Vec<NeighborCounts> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let peers = self.by_address.range((from, Bound::Unbounded)).filter_map(|(_, id)| self.peers.get(id));
        let (now, bound) = (self.clock.now(), super::write_queue::high_water(self.groups.len()));
        let of = |peer: &Peer| NeighborCounts {
            id: peer.id,
            address: peer.address,
            interface: peer.link.as_ref().map(|link| link.name.clone()),
            group: peer.settings.group.clone(),
            state: peer.state.0,
            state_age: now.saturating_sub(peer.state.1),
            flaps: peer.fsm.flaps(),
            has_retained: !peer.retained.is_empty(),
            stale_expired: peer.stale_expired,
            max_prefixes: peer.settings.max_prefixes,
            exceeded: peer.limits.exceeded,
            exceeded_out: peer.limits.exceeded_out,
            up: peer.up.as_ref().zip(peer.established()).map(|(up, connection)| UpCounts {
                worker: up.worker,
                reader: up.reader,
                writes: up.backlog.view(connection.output.len(), bound, now),
                received: connection.received,
                sent: connection.sent,
            }),
        };
        let mut counts = Vec::with_capacity(limit.min(self.by_address.len()));
        counts.extend(peers.map(of).take(limit));
        counts
    }

    /// Incoming connections that got no session.
    pub fn refused(&self) -> RefusedConnections {
        self.refused
    }

    /// The number of neighbours, of sessions, and of lost sessions.
    pub fn totals(&self) -> Totals {
        let peers = self.peers.values();
        Totals {
            neighbors: peers.len(),
            established: peers.clone().filter(|peer| peer.up.is_some()).count(),
            flaps: peers.map(|peer| peer.fsm.flaps()).sum(),
            refused: self.refused,
            deferral: self.deferral(),
        }
    }

    /// One neighbour.
    pub fn neighbor(&self, address: IpAddr) -> Option<NeighborView> {
        self.by_address.get(&address).and_then(|id| self.peers.get(id)).map(|p| self.view(p))
    }

    /// Ended sessions that may have routes in a shard.
    #[cfg(test)]
    pub(crate) fn ending(&self) -> usize {
        self.ids.ending()
    }

    fn view(&self, peer: &Peer) -> NeighborView {
        let up = peer.up.as_ref().zip(peer.fsm.negotiated()).map(|(up, negotiated)| UpView {
            info: up.info.clone(),
            negotiated: *negotiated,
            local: up.local,
            monitored: up.monitored.clone(),
            hold_left: peer.fsm.hold_expires().map(|at| {
                // The reader tells the FSM when it handles an event.
                let hold = 1000 * Millis::from(negotiated.hold_time);
                at.max(up.heard.load(Relaxed) + hold).saturating_sub(self.clock.now())
            }),
            tcp: peer.established().and_then(|connection| tcp_state(&connection.stream).ok()),
            worker: up.worker,
            reader: up.reader,
            writes: up.backlog.view(
                peer.queued(),
                super::write_queue::high_water(self.groups.len()),
                self.clock.now(),
            ),
            silent: self.clock.now().saturating_sub(up.heard.load(Relaxed)),
            received: peer.established().map_or_else(MessageCounts::default, |c| c.received),
            sent: peer.established().map_or_else(MessageCounts::default, |c| c.sent),
            initial_done: up.initial_done,
            own_restart: peer.fsm.settings().own_restart.filter(|_| peer.fsm.is_helped()).map(|own| own.time),
        });
        let age = |e: &LastError| self.clock.now().saturating_sub(e.at);
        NeighborView {
            id: peer.id,
            address: peer.address,
            interface: peer.link.as_ref().map(|link| link.name.clone()),
            description: peer.description.clone(),
            group: peer.settings.group.clone(),
            dynamic: peer.dynamic,
            role: peer.settings.role,
            as_numbers: peer.settings.as_numbers,
            import_missing: peer.settings.import.is_missing(),
            export_missing: peer.settings.export.is_missing(),
            graceful_shutdown: peer.settings.graceful_shutdown,
            shutdown: peer.settings.shutdown.clone(),
            held: peer.fsm.held().cloned(),
            idle_hold: peer
                .fsm
                .idle_hold()
                .map(|hold| (hold.until.saturating_sub(self.clock.now()), hold.oscillations)),
            held_for: peer.limits.until().map(|until| until.saturating_sub(self.clock.now())),
            max_prefixes: peer.settings.max_prefixes,
            exceeded: peer.limits.exceeded,
            exceeded_out: peer.limits.exceeded_out,
            asn: up.as_ref().map(|up| up.info.asn).or(peer.fsm.settings().peer_asn),
            kind: peer.kind,
            state: peer.state.0,
            state_age: self.clock.now().saturating_sub(peer.state.1),
            flaps: peer.fsm.flaps(),
            last_error: peer.fsm.last_error().map(|e| e.text.clone()),
            last_error_age: peer.fsm.last_error().map(age),
            last_down: peer.fsm.last_down().map(|e| e.text.clone()),
            last_down_age: peer.fsm.last_down().map(age),
            last_down_by: peer.recorder.ends().1,
            last_notification: peer
                .recorder
                .ends()
                .0
                .map(|last| (self.clock.now().saturating_sub(last.at), last.clone())),
            settings: peer.settings.clone(),
            retained: RetainedView::of(&peer.retained, &peer.settings, self.clock.now()),
            stale_expired: peer.stale_expired,
            tcp_ao: peer.settings.tcp_ao.as_ref().map(|ao| {
                (ao.keys.len(), peer.established().and_then(|connection| tcp_ao::state(&connection.stream)))
            }),
            up,
        }
    }

    /// Resets the session of a neighbour, or of all if `address` is `None`, with a text for the peer's operator (RFC
    /// 9003), empty for none. A neighbour that waits after a maximum of prefixes may have a session at once. Returns
    /// their number.
    pub fn reset(&mut self, address: Option<IpAddr>, text: &str) -> usize {
        self.each(address, |sessions, id| {
            if !sessions.end_limit_wait(id) {
                sessions.event(id, Event::Reset(Notification::cease_with_text(cease::ADMIN_RESET, text)));
            }
        })
    }

    /// Requests a route refresh from established neighbours and sends them all routes again.
    /// Returns their number.
    pub fn refresh(&mut self, address: Option<IpAddr>) -> usize {
        self.each(address, |sessions, id| {
            let Some(peer) = sessions.peers.get_mut(&id) else { return };
            let Some(up) = &peer.up else { return };
            let (side, worker, families) = (up.side, up.worker, up.info.families);
            let understands = peer.fsm.negotiated().is_some_and(|n| n.route_refresh);
            for family in families.iter() {
                sessions.send_again(id, worker, family);
            }
            if understands {
                sessions.request_routes(id, side, families);
            }
        })
    }

    fn each(&mut self, address: Option<IpAddr>, mut what: impl FnMut(&mut Sessions, PeerId)) -> usize {
        let ids: Vec<PeerId> = self
            .by_address
            .iter()
            .filter(|(a, _)| address.is_none_or(|only| only == **a))
            .map(|(_, id)| *id)
            .collect();
        for id in &ids {
            what(self, *id);
        }
        ids.len()
    }
}
