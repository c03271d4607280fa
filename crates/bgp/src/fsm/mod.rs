//! The session state machine of RFC 4271 section 8, for one peer.
//!
//! A peer may have two connections for a while, one opened by each side. Each has its own phase and
//! timers, and collision detection (section 6.8) leaves one. The machine has no clock and no
//! socket: it takes events with their time and returns [`Action`]s. [`Peer::next_deadline`] is the
//! time of its next [`Event::Tick`].
//!
//! Our OPEN goes out on one connection at a time ([ADR
//! 49](../../../../docs/adr/0049-one-open-at-a-time.md)). While it is unanswered or unconfirmed
//! there, the other connection waits (DelayOpen of section 8.1.1). So no peer ever has our OPEN on
//! both and ends the connection that we have taken.
//!
//! Two things differ from the RFC, in the operator's favour. Failed connections are retried after a
//! pause that doubles from 1 s to the configured one. And not every end of a session ends in the
//! refusing Idle of section 8.1.3 (DampPeerOscillations of section 8.1.1): errors do, and the losses
//! of short sessions from the third in a row. A restarted peer may connect at once.

mod open;
#[cfg(test)]
mod tests;

use crate::peer::FamilySet;
pub use open::{Negotiated, OwnRestart, PeerLongLived, PeerRestart, Settings};
use ribtide_prefix::{AfiSafi, ByFamily};
use ribtide_wire::bgp::message::{MessageType, write_keepalive};
use ribtide_wire::bgp::notification::{Notification, cease, code, fsm as fsm_error, open as open_error};

/// Milliseconds on a monotonic clock.
pub type Millis = u64;

/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Millis = 30_000;
/// The timeout of the peer's OPEN: the "large value" of RFC 4271 section 8.2.2.
const OPEN_TIMEOUT: Millis = 240_000;
/// The pause after a first failure; it doubles with each further one.
const RETRY_PAUSE_MIN: Millis = 1_000;
/// The longest IdleHoldTime of RFC 4271 section 8.1.1. The first is [`RETRY_PAUSE_MIN`], and it doubles with each
/// further oscillation.
const IDLE_HOLD_MAX: Millis = 60_000;
/// Losses of short sessions in a row that cause no idle hold.
const TOLERATED_LOSSES: u32 = 2;
/// The longest wait of a second connection for the first, on which the peer is silent.
const OPEN_DELAY: Millis = 30_000;
/// The same, once the peer has sent its OPEN on the second.
const OPEN_DELAY_AFTER_THEIRS: Millis = 5_000;
/// The longest wait of our KEEPALIVE for the peer's OPEN on the other connection.
const KEEPALIVE_DELAY: Millis = 500;
/// The age from which on another connection of the peer means that it has restarted. That of a younger session may be the
/// loser of a collision.
const RESTARTED_AGE_MIN: Millis = 5_000;
/// A session of this duration resets the pause to the shortest, and ends a row of oscillations.
const STABLE_SESSION_TIME: Millis = 60_000;

/// The side that opened a connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Side {
    /// We did.
    Ours,
    /// The peer did.
    Theirs,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Ours => Side::Theirs,
            Side::Theirs => Side::Ours,
        }
    }
}

/// An input. No event of a connection follows its [`Action::Close`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The operator enables the session.
    Start,
    /// The operator disables it; the peer gets this Cease.
    Stop(Notification),
    /// We are about to restart. An established peer that retains our routes meanwhile gets no NOTIFICATION, which would make it
    /// remove them without N (RFC 4724 section 4); any other gets this Cease.
    Restart(Notification),
    /// The operator resets the session; the peer gets this Cease.
    Reset(Notification),
    /// An obstacle prevents a session until [`Event::Release`].
    Hold(Obstacle),
    /// The obstacle is gone.
    Release,
    /// The peer opened a connection.
    Accepted,
    /// The connection of [`Action::Connect`] is open.
    Connected,
    /// It could not be opened.
    ConnectFailed(String),
    /// A connection ended by itself.
    Closed(Side, String),
    /// A whole message arrived: its type and body.
    Message(Side, MessageType, &'a [u8]),
    /// An unacceptable message arrived; the peer gets this NOTIFICATION.
    Fault(Side, Notification),
    /// The peer has read nothing for longer than [`Peer::send_hold`] (RFC 9687).
    SendHoldExpired,
    /// A timer is due.
    Tick,
}

/// The reason why an enabled peer has no session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// BFD is down, or not up where it must be. The peer gets Cease, BFD Down (RFC 9384).
    Bfd,
    /// The interface with this name, on the peer's subnet, is down or lost its address:
    /// AutomaticStop of RFC 4271 section 8.1.2. The peer gets a Cease with subcode 0 (RFC 4271
    /// section 4.5), because RFC 4486 has none for it.
    Interface(String),
    /// The peer sent more prefixes of the family than this. It gets Cease, Maximum Number of Prefixes
    /// Reached (RFC 4486 section 4).
    MaxPrefixes(AfiSafi, u32),
    /// There are more prefixes of the family for the peer than this. RFC 4486 has no subcode for it:
    /// the peer gets Cease, Administrative Reset, with the reason as its text (RFC 9003).
    MaxPrefixesOut(AfiSafi, u32),
}

impl Obstacle {
    /// The Cease that ends a session, and a reason for our operator where the Cease has none.
    fn cease(&self) -> (Notification, Option<String>) {
        match self {
            Obstacle::Bfd => (Notification::cease(cease::BFD_DOWN), None),
            Obstacle::Interface(name) => {
                let because = format!("interface {name} is down or lost its address");
                (Notification::cease(0), Some(because))
            }
            Obstacle::MaxPrefixes(family, max) => (Notification::max_prefixes(*family, *max), None),
            Obstacle::MaxPrefixesOut(family, max) => {
                let text = format!("more than {max} {} prefixes to send", family.name());
                (Notification::cease_with_text(cease::ADMIN_RESET, &text), None)
            }
        }
    }

    /// The Cease that refuses a connection.
    fn refusal(&self) -> Notification {
        match self {
            Obstacle::Bfd => Notification::cease(cease::BFD_DOWN),
            Obstacle::Interface(_) | Obstacle::MaxPrefixes(..) | Obstacle::MaxPrefixesOut(..) => {
                Notification::cease(cease::CONNECTION_REJECTED)
            }
        }
    }
}

/// An output, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Open a connection to the peer.
    Connect,
    /// Close the connection just accepted, after sending this.
    Refuse(Notification),
    /// Send a message.
    Send(Side, Vec<u8>),
    /// Close a connection after sent messages have had time to leave.
    Close(Side),
    /// The session is established on this connection.
    Up(Side, Negotiated),
    /// The session ended. Precedes [`Action::Close`] of its connection. `Some`: the peer's routes are
    /// retained.
    Down(Option<Retention>),
}

/// The routes of an ended session that stay in use, because the peer restarts (RFC 4724 section 4.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Retention {
    /// The families, at least one.
    pub families: FamilySet,
    /// How long they wait for the next session: the peer's restart time.
    pub time: Millis,
    /// Those that do not wait for it, but are long-lived stale at once: only that capability has them.
    pub long_lived_only: FamilySet,
    /// How long routes of IPv4 and IPv6 are long-lived stale after that (RFC 9494); 0: not at all.
    pub long_lived: ByFamily<Millis>,
}

/// The states of RFC 4271 section 8.2.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Refusing connections: shut down, or in an idle hold.
    Idle,
    /// Waiting for the peer to connect, or for the next attempt.
    Active,
    /// Opening a connection.
    Connect,
    /// Waiting for the peer's OPEN.
    OpenSent,
    /// Waiting for the peer to accept our OPEN.
    OpenConfirm,
    /// Exchanging routes.
    Established,
}

impl State {
    /// The RFC's name.
    pub fn name(self) -> &'static str {
        match self {
            State::Idle => "Idle",
            State::Active => "Active",
            State::Connect => "Connect",
            State::OpenSent => "OpenSent",
            State::OpenConfirm => "OpenConfirm",
            State::Established => "Established",
        }
    }
}

/// The reason of a connection's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LastError {
    /// When.
    pub at: Millis,
    /// A sentence.
    pub text: String,
}

/// Whether connections are wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mode {
    /// Not until [`Event::Start`].
    Stopped,
    /// Not until then: the IdleHoldTimer of RFC 4271 section 8.1.1.
    IdleHold(Millis),
    Running,
}

/// The idle hold of a peer that oscillates.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdleHold {
    /// When it ends.
    pub until: Millis,
    /// Errors and losses of short sessions in a row.
    pub oscillations: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Connecting,
    /// The connection is open, and we send no OPEN while the other one is in OpenSent or OpenConfirm. `Some`: the peer's OPEN
    /// has arrived.
    OpenDelayed(Option<Negotiated>),
    /// With this AS of ours.
    OpenSent(u32),
    OpenConfirm(Negotiated),
    /// The peer's OPEN is accepted, and our KEEPALIVE waits for its OPEN on the other connection, which is in
    /// `OpenDelayed(None)`. `is_confirmed`: the peer's KEEPALIVE has arrived.
    OpenReceived {
        negotiated: Negotiated,
        is_confirmed: bool,
    },
    Established(Negotiated),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Connection {
    phase: Phase,
    /// The timeout of the connection, of the delay of our OPEN, of the peer's OPEN, or of the peer (hold timer).
    expires: Option<Millis>,
    /// When to send the next KEEPALIVE.
    keepalive: Option<Millis>,
}

/// The end of a connection.
enum End {
    /// We send a NOTIFICATION; the peer is at fault.
    Error(Notification, String),
    /// We send a NOTIFICATION for a wrong message; it has the whole reason.
    Fault(Notification),
    /// We send a Cease; neither side is at fault.
    Cease(Notification),
    /// The same, with a reason for our operator only.
    CeaseSince(Notification, String),
    /// The peer sent a NOTIFICATION.
    Received(Notification),
    /// The connection was lost.
    Lost(String),
}

/// The state machine of one peer.
#[derive(Clone, Debug)]
pub struct Peer {
    settings: Settings,
    /// Our AS in the next OPEN.
    local_asn: u32,
    mode: Mode,
    /// The obstacle between [`Event::Hold`] and [`Event::Release`].
    held: Option<Obstacle>,
    ours: Option<Connection>,
    theirs: Option<Connection>,
    /// Time of the next connection attempt.
    connect_at: Option<Millis>,
    /// Failures since the last stable session.
    failures: u32,
    /// Errors, and losses of sessions shorter than [`STABLE_SESSION_TIME`], since the last stable session.
    oscillations: u32,
    /// State of the generator of jitter.
    jitter: u64,
    last_error: Option<LastError>,
    last_down: Option<LastError>,
    established_since: Option<Millis>,
    flaps: u64,
}

impl Peer {
    /// A stopped peer. `seed` sets its timers apart from those of other peers.
    pub fn new(settings: Settings, seed: u64) -> Peer {
        Peer {
            local_asn: settings.local_asn,
            settings,
            mode: Mode::Stopped,
            held: None,
            ours: None,
            theirs: None,
            connect_at: None,
            failures: 0,
            oscillations: 0,
            jitter: seed,
            last_error: None,
            last_down: None,
            established_since: None,
            flaps: 0,
        }
    }

    /// The configuration.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Begins connections, and checks OPENs, by these settings from now on. A session that is established lasts.
    pub fn set_connecting(&mut self, passive: bool, connect_retry: u16, role_strict: bool) {
        self.settings.passive = passive;
        self.settings.connect_retry = connect_retry;
        self.settings.role_strict = role_strict;
    }

    /// Sets what later OPENs say of restarts of ours.
    pub fn set_own_restart(&mut self, own_restart: Option<OwnRestart>) {
        self.settings.own_restart = own_restart;
    }

    /// The state of the most advanced connection.
    pub fn state(&self) -> State {
        let of = |c: &Connection| match c.phase {
            Phase::Connecting => State::Connect,
            Phase::OpenDelayed(_) => State::Active,
            Phase::OpenSent(_) => State::OpenSent,
            Phase::OpenReceived { .. } | Phase::OpenConfirm(_) => State::OpenConfirm,
            Phase::Established(_) => State::Established,
        };
        let resting = if self.wants_connections() { State::Active } else { State::Idle };
        self.ours.iter().chain(&self.theirs).map(of).max().unwrap_or(resting)
    }

    /// Whether the operator disabled it.
    pub fn stopped(&self) -> bool {
        self.mode == Mode::Stopped
    }

    /// The idle hold, while it refuses connections.
    pub fn idle_hold(&self) -> Option<IdleHold> {
        match self.mode {
            Mode::IdleHold(until) => Some(IdleHold { until, oscillations: self.oscillations }),
            Mode::Stopped | Mode::Running => None,
        }
    }

    /// The obstacle of the session.
    pub fn held(&self) -> Option<&Obstacle> {
        self.held.as_ref()
    }

    fn wants_connections(&self) -> bool {
        self.mode == Mode::Running && self.held.is_none()
    }

    /// The negotiated values of the established session.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.ours.iter().chain(&self.theirs).find_map(|c| match &c.phase {
            Phase::Established(n) => Some(n),
            _ => None,
        })
    }

    /// The reason of the last connection's end.
    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }

    /// The reason of the last established session's end.
    pub fn last_down(&self) -> Option<&LastError> {
        self.last_down.as_ref()
    }

    /// The begin of the established session.
    pub fn established_since(&self) -> Option<Millis> {
        self.established_since
    }

    /// The number of ended sessions.
    pub fn flaps(&self) -> u64 {
        self.flaps
    }

    /// The expiry of the established session's hold timer.
    pub fn hold_expires(&self) -> Option<Millis> {
        self.negotiated()?;
        self.ours
            .iter()
            .chain(&self.theirs)
            .find_map(|c| c.expires.filter(|_| matches!(c.phase, Phase::Established(_))))
    }

    /// The time for which the peer may read nothing (RFC 9687 section 3.1: the greater of eight
    /// minutes and twice the hold time); `None` without an established session.
    pub fn send_hold(&self) -> Option<Millis> {
        self.negotiated().map(|n| (2_000 * Millis::from(n.hold_time)).max(480_000))
    }

    /// When [`Event::Tick`] is due next.
    pub fn next_deadline(&self) -> Option<Millis> {
        let idle_hold = self.idle_hold().map(|hold| hold.until);
        let timers = self.ours.iter().chain(&self.theirs).flat_map(|c| [c.expires, c.keepalive]);
        timers.chain([idle_hold, self.connect_at]).flatten().min()
    }

    /// Notes that the established session received data, which its reader handles.
    pub fn alive(&mut self, at: Millis) {
        for connection in self.ours.iter_mut().chain(&mut self.theirs) {
            if let Phase::Established(n) = connection.phase {
                connection.expires = connection.expires.max(hold(&n, at));
            }
        }
    }

    /// Handles an event and appends the actions.
    pub fn handle(&mut self, event: Event<'_>, now: Millis, out: &mut Vec<Action>) {
        match event {
            Event::Start => {
                if self.mode == Mode::Stopped {
                    self.mode = Mode::Running;
                    self.connect_at = Some(now);
                }
            }
            Event::Stop(cease) => self.stop(cease, Mode::Stopped, now, out),
            Event::Restart(cease) => {
                if let Some(side) = self.established_side().filter(|_| self.is_helped()) {
                    self.end(
                        side,
                        End::Lost("ribtide restarts, and the peer retains its routes".into()),
                        now,
                        out,
                    );
                }
                self.stop(cease, Mode::Stopped, now, out);
            }
            Event::Reset(cease) => {
                if self.mode != Mode::Stopped {
                    self.stop(cease, Mode::Running, now, out);
                }
            }
            Event::Hold(obstacle) => {
                for side in self.both_for_good() {
                    let end = match obstacle.cease() {
                        (cease, None) => End::Cease(cease),
                        (cease, Some(because)) => End::CeaseSince(cease, because),
                    };
                    self.end(side, end, now, out);
                }
                self.held = Some(obstacle);
            }
            Event::Release => {
                if self.held.take().is_some() {
                    self.forget_failures();
                    if matches!(self.mode, Mode::IdleHold(_)) {
                        self.mode = Mode::Running;
                    }
                    self.connect_at = Some(now);
                }
            }
            Event::Accepted => self.accepted(now, out),
            Event::Connected => {
                if self.ours.is_some_and(|c| c.phase == Phase::Connecting) {
                    self.opened_connection(Side::Ours, now, out);
                }
            }
            Event::ConnectFailed(why) => {
                if self.ours.is_some_and(|c| c.phase == Phase::Connecting) {
                    self.end(Side::Ours, End::Lost(format!("could not connect: {why}")), now, out);
                }
            }
            Event::Closed(side, why) => {
                self.end(side, End::Lost(format!("the connection ended: {why}")), now, out);
            }
            Event::Message(side, kind, body) => self.message(side, kind, body, now, out),
            Event::Fault(side, notification) => {
                self.end(side, End::Fault(notification), now, out);
            }
            Event::SendHoldExpired => {
                if let Some(side) = self.established_side() {
                    let because = "the peer has taken nothing from us for too long (send hold timer)".into();
                    let notification = Notification::new(code::SEND_HOLD_TIMER_EXPIRED, 0);
                    self.end(side, End::Error(notification, because), now, out);
                }
            }
            Event::Tick => {}
        }
        self.timers(now, out);
    }

    /// Runs all due timers. Afterwards an enabled peer has a timer or waits for the peer.
    fn timers(&mut self, now: Millis, out: &mut Vec<Action>) {
        for side in [Side::Ours, Side::Theirs] {
            let Some(connection) = *self.slot(side) else { continue };
            if let Phase::OpenDelayed(_) = connection.phase {
                if connection.expires.is_some_and(|at| at <= now) {
                    // The peer is silent on the other connection, and may have forgotten it.
                    self.end(side.other(), End::Cease(Notification::cease(cease::COLLISION)), now, out);
                }
            } else if let Phase::OpenReceived { .. } = connection.phase {
                if connection.expires.is_some_and(|at| at <= now) {
                    self.release(side, now, out);
                }
            } else if connection.expires.is_some_and(|at| at <= now) {
                let end = match connection.phase {
                    Phase::Connecting => End::Lost("could not connect: no answer in 30 s".into()),
                    _ => End::Error(
                        Notification::new(code::HOLD_TIMER_EXPIRED, 0),
                        "nothing came from the peer for the hold time".into(),
                    ),
                };
                self.end(side, end, now, out);
            } else if connection.keepalive.is_some_and(|at| at <= now) {
                self.send_keepalive(side, now, out);
            }
        }
        if let Mode::IdleHold(until) = self.mode
            && until <= now
        {
            self.mode = Mode::Running;
            self.connect_at = Some(now);
        }
        let idle = self.ours.is_none() && self.theirs.is_none();
        if !self.wants_connections() || self.settings.passive || !idle {
            self.connect_at = None;
        } else if self.connect_at.is_none_or(|at| at <= now) {
            self.connect_at = None;
            let expires = Some(now + CONNECT_TIMEOUT);
            self.ours = Some(Connection { phase: Phase::Connecting, expires, keepalive: None });
            out.push(Action::Connect);
        }
    }

    fn accepted(&mut self, now: Millis, out: &mut Vec<Action>) {
        // A peer that would retain routes has lost the session before we noticed (RFC 4724 section 5).
        if let Some(side) = self.established_side()
            && self.negotiated().and_then(|n| n.restart).is_some_and(|restart| !restart.families.is_empty())
            && self.established_since.is_some_and(|since| now.saturating_sub(since) >= RESTARTED_AGE_MIN)
        {
            self.end(side, End::Lost("the peer restarted: it opened another connection".into()), now, out);
        }
        // An established session stays (RFC 4271 section 6.8), and so does an earlier connection of the peer's.
        let refusal = if let Some(obstacle) = &self.held {
            Some(obstacle.refusal())
        } else if self.mode != Mode::Running {
            Some(Notification::cease(cease::CONNECTION_REJECTED))
        } else if self.theirs.is_some() || self.negotiated().is_some() {
            Some(Notification::cease(cease::COLLISION))
        } else {
            None
        };
        match refusal {
            Some(cease) => out.push(Action::Refuse(cease)),
            None => self.opened_connection(Side::Theirs, now, out),
        }
    }

    fn message(&mut self, side: Side, kind: MessageType, body: &[u8], now: Millis, out: &mut Vec<Action>) {
        let Some(connection) = *self.slot(side) else { return };
        if kind == MessageType::Notification {
            return self.end(side, End::Received(Notification::parse(body)), now, out);
        }
        match (connection.phase, kind) {
            (Phase::OpenSent(local_asn), MessageType::Open) => {
                if let Some(negotiated) = self.negotiate(side, body, local_asn, now, out) {
                    self.confirm(side, negotiated, now, out);
                }
            }
            (Phase::OpenDelayed(None), MessageType::Open) => {
                if let Some(negotiated) = self.negotiate(side, body, self.local_asn, now, out) {
                    self.collide(side, negotiated, now, out);
                }
            }
            (Phase::OpenConfirm(n), MessageType::Keepalive) => {
                self.established(side, n, now, out);
            }
            (Phase::OpenReceived { negotiated, .. }, MessageType::Keepalive) => {
                let phase = Phase::OpenReceived { negotiated, is_confirmed: true };
                *self.slot(side) = Some(Connection { phase, ..connection });
            }
            (
                Phase::Established(n),
                MessageType::Update | MessageType::Keepalive | MessageType::RouteRefresh,
            ) => {
                *self.slot(side) = Some(Connection { expires: hold(&n, now), ..connection });
            }
            (phase, kind) => {
                let (subcode, state) = match phase {
                    Phase::Connecting => (fsm_error::UNSPECIFIED, "Connect"),
                    Phase::OpenDelayed(_) => (fsm_error::UNSPECIFIED, "Active"),
                    Phase::OpenSent(_) => (fsm_error::UNEXPECTED_IN_OPEN_SENT, "OpenSent"),
                    Phase::OpenReceived { .. } | Phase::OpenConfirm(_) => {
                        (fsm_error::UNEXPECTED_IN_OPEN_CONFIRM, "OpenConfirm")
                    }
                    Phase::Established(_) => (fsm_error::UNEXPECTED_IN_ESTABLISHED, "Established"),
                };
                let because = format!("a message of type {kind:?} is not expected in state {state}");
                self.end(side, End::Error(Notification::new(code::FSM, subcode), because), now, out);
            }
        }
    }

    /// Handles an expected OPEN, where ours has AS `local_asn`. `None`: it was refused, and the connection has ended.
    fn negotiate(
        &mut self,
        side: Side,
        body: &[u8],
        local_asn: u32,
        now: Millis,
        out: &mut Vec<Action>,
    ) -> Option<Negotiated> {
        let refusal = match self.settings.negotiate(body, local_asn) {
            Ok(negotiated) => return Some(negotiated),
            Err(refusal) => refusal,
        };
        self.end(side, End::Error(refusal.notification, refusal.because), now, out);
        None
    }

    /// A connection is open: sends OPEN, unless the other one has ours.
    fn opened_connection(&mut self, side: Side, now: Millis, out: &mut Vec<Action>) {
        let expires = match self.slot(side.other()).map(|other| other.phase) {
            Some(Phase::OpenSent(_)) => Some(now + OPEN_DELAY),
            Some(Phase::OpenReceived { .. } | Phase::OpenConfirm(_)) => None,
            _ => return self.send_open(side, self.local_asn, now, out),
        };
        *self.slot(side) = Some(Connection { phase: Phase::OpenDelayed(None), expires, keepalive: None });
    }

    /// Handles the peer's OPEN on a connection that waits for the other one: the collision of RFC 4271 section 6.8.
    fn collide(&mut self, side: Side, negotiated: Negotiated, now: Millis, out: &mut Vec<Action>) {
        // A KEEPALIVE of ours is on its way on a connection in OpenConfirm. The peer may be in state Established there, and
        // would remove the routes that it retains over our restart (RFC 4724 section 4) if we ended that one. It has no OPEN
        // of ours on this one, by which it could choose it.
        let is_undecided =
            self.slot(side.other()).is_some_and(|other| matches!(other.phase, Phase::OpenSent(_)));
        let expires = is_undecided.then_some(now + OPEN_DELAY_AFTER_THEIRS);
        *self.slot(side) =
            Some(Connection { phase: Phase::OpenDelayed(Some(negotiated)), expires, keepalive: None });
        if is_undecided && self.stays(&negotiated) == side {
            self.end(side.other(), End::Cease(Notification::cease(cease::COLLISION)), now, out);
        } else {
            self.release(side.other(), now, out);
        }
    }

    /// The side whose connection stays of two (RFC 4271 section 6.8, and RFC 6286 section 2.3 for equal identifiers): that with
    /// the greater identifier, then AS.
    fn stays(&self, negotiated: &Negotiated) -> Side {
        let us = (self.settings.router_id, negotiated.local_asn);
        if us > (negotiated.router_id, negotiated.asn) { Side::Ours } else { Side::Theirs }
    }

    /// Goes on with a connection that has waited for the other one: for its end, or with our KEEPALIVE for an OPEN there.
    fn release(&mut self, side: Side, now: Millis, out: &mut Vec<Action>) {
        match self.slot(side).map(|connection| connection.phase) {
            Some(Phase::OpenDelayed(None)) => self.send_open(side, self.local_asn, now, out),
            Some(Phase::OpenDelayed(Some(negotiated))) => {
                self.send_open(side, negotiated.local_asn, now, out);
                self.confirm(side, negotiated, now, out);
            }
            Some(Phase::OpenReceived { negotiated, is_confirmed }) => {
                self.enter_open_confirm(side, negotiated, now, out);
                if is_confirmed {
                    self.established(side, negotiated, now, out);
                }
            }
            _ => {}
        }
    }

    /// Accepts the peer's OPEN, after ours.
    fn confirm(&mut self, side: Side, negotiated: Negotiated, now: Millis, out: &mut Vec<Action>) {
        let stays = self.stays(&negotiated);
        match self.slot(side.other()) {
            // By its OPEN here the peer takes this connection, or ends it. While the other one is not open on its side, FRR
            // ends a session that is established on this one meanwhile.
            Some(Connection { phase: Phase::OpenDelayed(theirs), expires, .. }) => {
                *expires = None;
                if theirs.is_none() {
                    let phase = Phase::OpenReceived { negotiated, is_confirmed: false };
                    let expires = Some(now + KEEPALIVE_DELAY);
                    *self.slot(side) = Some(Connection { phase, expires, keepalive: None });
                    return;
                }
            }
            // A peer with graceful restart would take a connection that reaches it when the session is established for a
            // restart of ours, and end the session (RFC 4724 section 5). Where ours would stay it may have ended this one.
            Some(Connection { phase: Phase::Connecting, .. }) if stays == side => {
                self.end(side.other(), End::Lost("the peer's connection stays".into()), now, out);
            }
            _ => {}
        }
        self.enter_open_confirm(side, negotiated, now, out);
    }

    fn enter_open_confirm(&mut self, side: Side, negotiated: Negotiated, now: Millis, out: &mut Vec<Action>) {
        let phase = Phase::OpenConfirm(negotiated);
        *self.slot(side) = Some(Connection { phase, expires: hold(&negotiated, now), keepalive: None });
        self.send_keepalive(side, now, out);
    }

    fn established(&mut self, side: Side, negotiated: Negotiated, now: Millis, out: &mut Vec<Action>) {
        if let Some(connection) = self.slot(side) {
            (connection.phase, connection.expires) = (Phase::Established(negotiated), hold(&negotiated, now));
        }
        if self.slot(side.other()).is_some() {
            self.end(side.other(), End::Cease(Notification::cease(cease::COLLISION)), now, out);
        }
        self.established_since = Some(now);
        out.push(Action::Up(side, negotiated));
    }

    fn send_open(&mut self, side: Side, asn: u32, now: Millis, out: &mut Vec<Action>) {
        let expires = Some(now + OPEN_TIMEOUT);
        let phase = Phase::OpenSent(asn);
        *self.slot(side) = Some(Connection { phase, expires, keepalive: None });
        out.push(Action::Send(side, self.settings.open_message(asn)));
    }

    fn send_keepalive(&mut self, side: Side, now: Millis, out: &mut Vec<Action>) {
        let mut message = Vec::with_capacity(32);
        write_keepalive(&mut message);
        out.push(Action::Send(side, message));
        let Some(Connection { phase: Phase::OpenConfirm(n) | Phase::Established(n), .. }) = *self.slot(side)
        else {
            return;
        };
        // RFC 4271 section 4.4 suggests a third of the hold time, section 10 three quarters to all of that.
        let next = (n.hold_time > 0).then(|| now + self.jittered(1_000 * Millis::from(n.hold_time) / 3));
        if let Some(connection) = self.slot(side) {
            connection.keepalive = next;
        }
    }

    /// Ends every connection on the operator's command.
    fn stop(&mut self, cease: Notification, mode: Mode, now: Millis, out: &mut Vec<Action>) {
        for side in self.both_for_good() {
            self.end(side, End::Cease(cease.clone()), now, out);
        }
        self.mode = mode;
        self.forget_failures();
        self.connect_at = Some(now + RETRY_PAUSE_MIN);
    }

    /// Makes the next failure the first in a row.
    fn forget_failures(&mut self) {
        (self.failures, self.oscillations) = (0, 0);
    }

    /// Ends one connection, and schedules the next attempt if it was the last.
    fn end(&mut self, side: Side, end: End, now: Millis, out: &mut Vec<Action>) {
        let Some(connection) = self.slot(side).take() else { return };
        let was_established = matches!(connection.phase, Phase::Established(_));
        let mut was_short = false;
        if let Phase::Established(n) = connection.phase {
            out.push(Action::Down(retention(&n, &end)));
            self.flaps += 1;
            let since = self.established_since.take().unwrap_or(now);
            was_short = now.saturating_sub(since) < STABLE_SESSION_TIME;
            if !was_short {
                self.forget_failures();
            }
        }
        let is_ours = end.is_ours();
        let is_hard = is_ours && is_graceful(&connection);
        let retries = self.retries_with_another_as(&connection, &end);
        let (notification, text, is_error) = match end {
            End::Error(notification, because) => {
                let text = format!("NOTIFICATION sent ({notification}): {because}");
                (Some(notification), text, true)
            }
            End::Fault(notification) => {
                let text = format!("NOTIFICATION sent ({notification})");
                (Some(notification), text, true)
            }
            End::Cease(notification) => {
                let text = format!("NOTIFICATION sent ({notification})");
                (Some(notification), text, false)
            }
            End::CeaseSince(notification, because) => {
                let text = format!("NOTIFICATION sent ({notification}): {because}");
                (Some(notification), text, false)
            }
            End::Received(notification) => {
                let is_error = notification.code != code::CEASE && !retries;
                (None, format!("NOTIFICATION received ({notification})"), is_error)
            }
            End::Lost(text) => (None, text, false),
        };
        if let Some(notification) = notification
            && connection.phase != Phase::Connecting
        {
            let mut message = Vec::with_capacity(32);
            let hard = is_hard.then(|| notification.hard_reset());
            hard.unwrap_or(notification).write(&mut message);
            out.push(Action::Send(side, message));
        }
        out.push(Action::Close(side));
        let error = LastError { at: now, text };
        if was_established {
            self.last_down = Some(error.clone());
        }
        // The loser of a collision does not affect the session.
        if self.slot(side.other()).is_some() {
            return self.release(side.other(), now, out);
        }
        self.last_error = Some(error);
        self.failures += 1;
        let connect_pause = back_off(self.failures, 1_000 * Millis::from(self.settings.connect_retry));
        let is_lost_again = was_short && !is_ours;
        self.oscillations += u32::from(is_error || is_lost_again);
        if is_error || (is_lost_again && self.oscillations > TOLERATED_LOSSES) {
            let until = now + self.jittered(back_off(self.oscillations, IDLE_HOLD_MAX));
            if self.mode == Mode::Running {
                self.mode = Mode::IdleHold(until);
            }
            self.connect_at = Some(until);
        } else {
            self.connect_at = Some(now + self.jittered(connect_pause));
        }
    }

    /// Whether our next OPEN has another AS, because the peer refused that of this connection.
    fn retries_with_another_as(&mut self, connection: &Connection, end: &End) -> bool {
        let End::Received(Notification { code: code::OPEN, subcode: open_error::BAD_PEER_AS, .. }) = end
        else {
            return false;
        };
        let refused = match connection.phase {
            Phase::OpenSent(asn) => asn,
            Phase::OpenConfirm(n) | Phase::OpenReceived { negotiated: n, .. } => n.local_asn,
            Phase::Connecting | Phase::OpenDelayed(_) | Phase::Established(_) => return false,
        };
        let Some(other) = self.settings.other_asn(refused) else { return false };
        self.local_asn = other;
        true
    }

    /// Whether the peer of the established session retains our routes while we restart: both sent the capability, and ours has
    /// families.
    pub fn is_helped(&self) -> bool {
        self.settings.own_restart.is_some() && self.negotiated().is_some_and(|n| n.restart.is_some())
    }

    fn slot(&mut self, side: Side) -> &mut Option<Connection> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
        }
    }

    /// Both sides, whose connections end in this order. One that waits for the end of the other comes first, and one that waits
    /// for an OPEN there waits no more, so that neither goes on.
    fn both_for_good(&mut self) -> [Side; 2] {
        for connection in self.ours.iter_mut().chain(&mut self.theirs) {
            if let Phase::OpenReceived { negotiated, .. } = connection.phase {
                connection.phase = Phase::OpenConfirm(negotiated);
            }
        }
        let waits = |c: &Connection| matches!(c.phase, Phase::OpenDelayed(_));
        if self.theirs.as_ref().is_some_and(waits) {
            [Side::Theirs, Side::Ours]
        } else {
            [Side::Ours, Side::Theirs]
        }
    }

    fn established_side(&self) -> Option<Side> {
        let established =
            |c: &Option<Connection>| c.is_some_and(|c| matches!(c.phase, Phase::Established(_)));
        if established(&self.ours) {
            Some(Side::Ours)
        } else {
            established(&self.theirs).then_some(Side::Theirs)
        }
    }

    /// Three quarters to all of `period` (RFC 4271 section 10), so that peers are not synchronized.
    fn jittered(&mut self, period: Millis) -> Millis {
        // A step of a linear congruential generator (Knuth's MMIX); its high bits are even enough for this.
        self.jitter =
            self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        period - period / 4 * (self.jitter >> 48) / (1 << 16)
    }
}

impl End {
    /// Whether we end it by our own will.
    fn is_ours(&self) -> bool {
        matches!(self, End::Cease(_) | End::CeaseSince(..))
    }
}

/// Whether a NOTIFICATION that is no Hard Reset makes the peer retain routes (RFC 8538).
fn is_graceful(connection: &Connection) -> bool {
    match connection.phase {
        Phase::Established(n) => n.restart.is_some_and(|restart| restart.notification),
        _ => false,
    }
}

/// The routes that stay in use after the end of a session (RFC 4724 section 4.2, RFC 8538 section 4).
fn retention(negotiated: &Negotiated, end: &End) -> Option<Retention> {
    let restart = negotiated.restart?;
    let is_retained = match end {
        End::Lost(_) => true,
        End::Error(..) | End::Fault(_) => restart.notification,
        End::Received(notification) => restart.notification && !notification.is_hard_reset(),
        // They go to the peer as a Hard Reset.
        End::Cease(_) | End::CeaseSince(..) => false,
    };
    let time = 1_000 * Millis::from(restart.time);
    let long_lived = negotiated.long_lived.unwrap_or_default();
    let (short, long) = (restart.families, long_lived.families());
    let families = short.or(long);
    (is_retained && !families.is_empty()).then_some(Retention {
        families,
        time,
        long_lived_only: long.but(short),
        long_lived: ByFamily::new(|family| 1_000 * Millis::from(long_lived.times[family])),
    })
}

/// The pause after the last of `count` failures in a row: it doubles up to `longest`.
fn back_off(count: u32, longest: Millis) -> Millis {
    (RETRY_PAUSE_MIN << count.saturating_sub(1).min(16)).min(longest)
}

/// The expiry of a hold timer that started at `from`.
fn hold(negotiated: &Negotiated, from: Millis) -> Option<Millis> {
    (negotiated.hold_time > 0).then(|| from + 1_000 * Millis::from(negotiated.hold_time))
}
