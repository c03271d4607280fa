//! The session state machine of RFC 4271 section 8, for one peer.
//!
//! A peer may have two connections for a while, one opened by each side; each has its own phase and timers, and
//! collision detection (section 6.8) leaves one. The machine has no clock and no socket: it is told what happened
//! and when, answers with [`Action`]s, and says through [`Peer::next_deadline`] when it wants to hear of time again.
//!
//! Two things differ from the letter of the RFC, both to the operator's advantage. Failed connections are retried
//! after a pause that doubles from 1 s to the configured one rather than always after that. And only errors, not every end of a
//! session, put the peer into the refusing Idle of section 8.1.3: one that restarted is welcome at once.

mod open;
#[cfg(test)]
mod tests;

pub use open::{Negotiated, Settings};
use ribtide_wire::bgp::message::{MessageType, write_keepalive};
use ribtide_wire::bgp::notification::{Notification, cease, code, fsm as fsm_error};

/// Milliseconds on a clock that never goes back.
pub type Millis = u64;

/// How long an attempt to connect may take.
const CONNECT_LIMIT: Millis = 30_000;
/// How long a peer may take to send its OPEN: the "large value" of RFC 4271 section 8.2.2.
const OPEN_LIMIT: Millis = 240_000;
/// The pause after a first failure. It doubles with each further one.
const FIRST_PAUSE: Millis = 1_000;
/// The longest pause after an error of either side.
const LONGEST_PAUSE: Millis = 60_000;
/// A session that lived this long was no failure: the next pause is the shortest again.
const STABLE: Millis = 60_000;

/// Who opened a connection.
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

/// What happened. Nothing is reported of a connection after [`Action::Close`] for it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// The operator wants the session.
    Start,
    /// The operator wants it no more; the peer is told with this Cease.
    Stop(Notification),
    /// The operator resets the session; the peer gets this Cease.
    Reset(Notification),
    /// This stands in the way of a session: there is none until [`Event::Release`].
    Hold(Obstacle),
    /// Nothing is held against a session any more.
    Release,
    /// The peer opened a connection.
    Accepted,
    /// The connection asked for by [`Action::Connect`] is open.
    Connected,
    /// It could not be opened.
    ConnectFailed(String),
    /// A connection ended without our doing.
    Closed(Side, String),
    /// A whole message arrived: its type and body.
    Message(Side, MessageType, &'a [u8]),
    /// A message arrived that cannot be accepted; the peer is told with this.
    Fault(Side, Notification),
    /// The peer has taken nothing from us for longer than [`Peer::send_hold`] (RFC 9687).
    SendHoldExpired,
    /// Time has passed.
    Tick,
}

/// Why a peer that is wanted has no session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Obstacle {
    /// Packets do not reach the peer, or it is not proven that they do. The peer is told with Cease, BFD Down (RFC 9384).
    Bfd,
    /// The interface of this name, on whose subnet the peer is, does not carry packets or lost its address: the
    /// AutomaticStop of RFC 4271 section 8.1.2. The peer is told with Cease and, since RFC 4486 has no subcode for it,
    /// subcode 0 (RFC 4271 section 4.5).
    Interface(String),
}

/// What to do about it, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Open a connection to the peer.
    Connect,
    /// Close the connection just accepted, after sending this.
    Refuse(Notification),
    /// Send a message.
    Send(Side, Vec<u8>),
    /// Close a connection once what was sent has had a chance to leave.
    Close(Side),
    /// The session is established on this connection.
    Up(Side, Negotiated),
    /// It is not any more. Precedes [`Action::Close`] of its connection.
    Down,
}

/// The states of RFC 4271 section 8.2.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum State {
    /// Refusing connections: shut down, or pausing after an error.
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

/// Why the last connection ended.
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
    /// Not until then.
    Paused(Millis),
    Running,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    Connecting,
    OpenSent,
    OpenConfirm(Negotiated),
    Established(Negotiated),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Connection {
    phase: Phase,
    /// When to give up: on connecting, on the OPEN, or on the peer (the hold timer).
    expires: Option<Millis>,
    /// When to send the next KEEPALIVE.
    keepalive: Option<Millis>,
}

/// How a connection ends.
enum End {
    /// We tell the peer; it was to blame.
    Error(Notification, String),
    /// We tell the peer, whose message was wrong; the NOTIFICATION says all.
    Fault(Notification),
    /// We notify the peer; neither side was at fault.
    Cease(Notification),
    /// The same, with a reason that is for our operator only.
    CeaseSince(Notification, String),
    /// The peer told us.
    Told(Notification),
    /// It is just gone.
    Gone(String),
}

/// The state machine of one peer.
#[derive(Clone, Debug)]
pub struct Peer {
    settings: Settings,
    mode: Mode,
    /// Between [`Event::Hold`] and [`Event::Release`].
    held: Option<Obstacle>,
    ours: Option<Connection>,
    theirs: Option<Connection>,
    /// When to connect next.
    connect_at: Option<Millis>,
    /// Failures since the last stable session.
    failures: u32,
    /// State of the generator of jitter.
    jitter: u64,
    last_error: Option<LastError>,
    last_down: Option<LastError>,
    established_since: Option<Millis>,
    flaps: u64,
}

impl Peer {
    /// A peer that is stopped. `seed` makes its timers differ from those of others.
    pub fn new(settings: Settings, seed: u64) -> Peer {
        Peer {
            settings,
            mode: Mode::Stopped,
            held: None,
            ours: None,
            theirs: None,
            connect_at: None,
            failures: 0,
            jitter: seed,
            last_error: None,
            last_down: None,
            established_since: None,
            flaps: 0,
        }
    }

    /// What is configured.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// The state of the connection that is furthest.
    pub fn state(&self) -> State {
        let of = |c: &Connection| match c.phase {
            Phase::Connecting => State::Connect,
            Phase::OpenSent => State::OpenSent,
            Phase::OpenConfirm(_) => State::OpenConfirm,
            Phase::Established(_) => State::Established,
        };
        let resting = if self.wants_connections() { State::Active } else { State::Idle };
        self.ours.iter().chain(&self.theirs).map(of).max().unwrap_or(resting)
    }

    /// Whether the operator has stopped it.
    pub fn stopped(&self) -> bool {
        self.mode == Mode::Stopped
    }

    /// What stands in the way of a session.
    pub fn held(&self) -> Option<&Obstacle> {
        self.held.as_ref()
    }

    fn wants_connections(&self) -> bool {
        self.mode == Mode::Running && self.held.is_none()
    }

    /// What was negotiated on the established session.
    pub fn negotiated(&self) -> Option<&Negotiated> {
        self.ours.iter().chain(&self.theirs).find_map(|c| match &c.phase {
            Phase::Established(n) => Some(n),
            _ => None,
        })
    }

    /// Why the last connection ended.
    pub fn last_error(&self) -> Option<&LastError> {
        self.last_error.as_ref()
    }

    /// Why the last established session ended, whatever failed since.
    pub fn last_down(&self) -> Option<&LastError> {
        self.last_down.as_ref()
    }

    /// Since when the session is established.
    pub fn established_since(&self) -> Option<Millis> {
        self.established_since
    }

    /// How often an established session ended.
    pub fn flaps(&self) -> u64 {
        self.flaps
    }

    /// When the hold timer of the established session expires.
    pub fn hold_expires(&self) -> Option<Millis> {
        self.negotiated()?;
        self.ours
            .iter()
            .chain(&self.theirs)
            .find_map(|c| c.expires.filter(|_| matches!(c.phase, Phase::Established(_))))
    }

    /// How long the peer may take nothing from us before the session ends (RFC 9687 section 3.1: the greater of
    /// eight minutes and twice the hold time); `None` without an established session.
    pub fn send_hold(&self) -> Option<Millis> {
        self.negotiated().map(|n| (2_000 * Millis::from(n.hold_time)).max(480_000))
    }

    /// When [`Event::Tick`] is due next.
    pub fn next_deadline(&self) -> Option<Millis> {
        let paused = match self.mode {
            Mode::Paused(until) => Some(until),
            _ => None,
        };
        let timers = self.ours.iter().chain(&self.theirs).flat_map(|c| [c.expires, c.keepalive]);
        timers.chain([paused, self.connect_at]).flatten().min()
    }

    /// Something arrived on the established session at this time: whoever reads it there takes care of the rest.
    pub fn alive(&mut self, at: Millis) {
        for connection in self.ours.iter_mut().chain(&mut self.theirs) {
            if let Phase::Established(n) = connection.phase {
                connection.expires = connection.expires.max(hold(&n, at));
            }
        }
    }

    /// Takes in what happened and appends what to do.
    pub fn handle(&mut self, event: Event<'_>, now: Millis, out: &mut Vec<Action>) {
        match event {
            Event::Start => {
                if self.mode == Mode::Stopped {
                    self.mode = Mode::Running;
                    self.connect_at = Some(now);
                }
            }
            Event::Stop(cease) => self.stop(cease, Mode::Stopped, now, out),
            Event::Reset(cease) => {
                if self.mode != Mode::Stopped {
                    self.stop(cease, Mode::Running, now, out);
                }
            }
            Event::Hold(obstacle) => {
                for side in [Side::Ours, Side::Theirs] {
                    let end = match &obstacle {
                        Obstacle::Bfd => End::Cease(Notification::cease(cease::BFD_DOWN)),
                        Obstacle::Interface(name) => {
                            let because = format!("interface {name} is down or lost its address");
                            End::CeaseSince(Notification::cease(0), because)
                        }
                    };
                    self.end(side, end, now, out);
                }
                self.held = Some(obstacle);
            }
            Event::Release => {
                if self.held.take().is_some() {
                    self.failures = 0;
                    self.connect_at = Some(now);
                }
            }
            Event::Accepted => self.accepted(now, out),
            Event::Connected => {
                if self.ours.is_some_and(|c| c.phase == Phase::Connecting) {
                    self.send_open(Side::Ours, now, out);
                }
            }
            Event::ConnectFailed(why) => {
                if self.ours.is_some_and(|c| c.phase == Phase::Connecting) {
                    self.end(Side::Ours, End::Gone(format!("could not connect: {why}")), now, out);
                }
            }
            Event::Closed(side, why) => {
                self.end(side, End::Gone(format!("the connection ended: {why}")), now, out);
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

    /// Runs every timer that is due. After this a peer that wants a session has a timer or waits for the peer.
    fn timers(&mut self, now: Millis, out: &mut Vec<Action>) {
        for side in [Side::Ours, Side::Theirs] {
            let Some(connection) = *self.slot(side) else { continue };
            if connection.expires.is_some_and(|at| at <= now) {
                let end = match connection.phase {
                    Phase::Connecting => End::Gone("could not connect: no answer in 30 s".into()),
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
        if let Mode::Paused(until) = self.mode
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
            let expires = Some(now + CONNECT_LIMIT);
            self.ours = Some(Connection { phase: Phase::Connecting, expires, keepalive: None });
            out.push(Action::Connect);
        }
    }

    fn accepted(&mut self, now: Millis, out: &mut Vec<Action>) {
        // An established session stays (RFC 4271 section 6.8), and so does an earlier connection of the peer's.
        let refusal = if let Some(obstacle) = &self.held {
            Some(match obstacle {
                Obstacle::Bfd => cease::BFD_DOWN,
                Obstacle::Interface(_) => cease::CONNECTION_REJECTED,
            })
        } else if self.mode != Mode::Running {
            Some(cease::CONNECTION_REJECTED)
        } else if self.theirs.is_some() || self.negotiated().is_some() {
            Some(cease::COLLISION)
        } else {
            None
        };
        match refusal {
            Some(subcode) => out.push(Action::Refuse(Notification::cease(subcode))),
            None => self.send_open(Side::Theirs, now, out),
        }
    }

    fn message(&mut self, side: Side, kind: MessageType, body: &[u8], now: Millis, out: &mut Vec<Action>) {
        let Some(connection) = *self.slot(side) else { return };
        if kind == MessageType::Notification {
            return self.end(side, End::Told(Notification::parse(body)), now, out);
        }
        match (connection.phase, kind) {
            (Phase::OpenSent, MessageType::Open) => self.opened(side, body, now, out),
            (Phase::OpenConfirm(n), MessageType::Keepalive) => {
                let expires = hold(&n, now);
                *self.slot(side) = Some(Connection { phase: Phase::Established(n), expires, ..connection });
                if self.slot(side.other()).is_some() {
                    self.end(side.other(), End::Cease(Notification::cease(cease::COLLISION)), now, out);
                }
                self.established_since = Some(now);
                out.push(Action::Up(side, n));
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
                    Phase::OpenSent => (fsm_error::UNEXPECTED_IN_OPEN_SENT, "OpenSent"),
                    Phase::OpenConfirm(_) => (fsm_error::UNEXPECTED_IN_OPEN_CONFIRM, "OpenConfirm"),
                    Phase::Established(_) => (fsm_error::UNEXPECTED_IN_ESTABLISHED, "Established"),
                };
                let because = format!("a message of type {kind:?} is not expected in state {state}");
                self.end(side, End::Error(Notification::new(code::FSM, subcode), because), now, out);
            }
        }
    }

    /// An OPEN arrived where one is expected.
    fn opened(&mut self, side: Side, body: &[u8], now: Millis, out: &mut Vec<Action>) {
        let negotiated = match self.settings.negotiate(body) {
            Ok(negotiated) => negotiated,
            Err(refusal) => {
                return self.end(side, End::Error(refusal.notification, refusal.because), now, out);
            }
        };
        // RFC 4271 section 6.8, with RFC 6286 section 2.3 for equal identifiers: the connection stays that was
        // opened by the side with the greater identifier, then AS.
        if self.slot(side.other()).is_some_and(|c| matches!(c.phase, Phase::OpenConfirm(_))) {
            let us = (self.settings.router_id, self.settings.local_asn);
            let stays = if us > (negotiated.router_id, negotiated.asn) { Side::Ours } else { Side::Theirs };
            self.end(stays.other(), End::Cease(Notification::cease(cease::COLLISION)), now, out);
            if stays != side {
                return;
            }
        }
        let phase = Phase::OpenConfirm(negotiated);
        *self.slot(side) = Some(Connection { phase, expires: hold(&negotiated, now), keepalive: None });
        self.send_keepalive(side, now, out);
    }

    fn send_open(&mut self, side: Side, now: Millis, out: &mut Vec<Action>) {
        let expires = Some(now + OPEN_LIMIT);
        *self.slot(side) = Some(Connection { phase: Phase::OpenSent, expires, keepalive: None });
        out.push(Action::Send(side, self.settings.open_message()));
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

    /// Ends every connection by the operator's wish.
    fn stop(&mut self, cease: Notification, mode: Mode, now: Millis, out: &mut Vec<Action>) {
        for side in [Side::Ours, Side::Theirs] {
            self.end(side, End::Cease(cease.clone()), now, out);
        }
        self.mode = mode;
        self.failures = 0;
        self.connect_at = Some(now + FIRST_PAUSE);
    }

    /// Ends one connection, and decides when to try again if it was the last.
    fn end(&mut self, side: Side, end: End, now: Millis, out: &mut Vec<Action>) {
        let Some(connection) = self.slot(side).take() else { return };
        let was_established = matches!(connection.phase, Phase::Established(_));
        if was_established {
            out.push(Action::Down);
            self.flaps += 1;
            if self.established_since.take().is_some_and(|since| now.saturating_sub(since) >= STABLE) {
                self.failures = 0;
            }
        }
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
            End::Told(notification) => {
                let is_error = notification.code != code::CEASE;
                (None, format!("NOTIFICATION received ({notification})"), is_error)
            }
            End::Gone(text) => (None, text, false),
        };
        if let Some(notification) = notification
            && connection.phase != Phase::Connecting
        {
            let mut message = Vec::with_capacity(32);
            notification.write(&mut message);
            out.push(Action::Send(side, message));
        }
        out.push(Action::Close(side));
        let error = LastError { at: now, text };
        if was_established {
            self.last_down = Some(error.clone());
        }
        // The loser of a collision is no event in the life of the session.
        if self.slot(side.other()).is_some() {
            return;
        }
        self.last_error = Some(error);
        self.failures += 1;
        let doublings = (self.failures - 1).min(16);
        let longest =
            if is_error { LONGEST_PAUSE } else { 1_000 * Millis::from(self.settings.connect_retry) };
        let pause = self.jittered((FIRST_PAUSE << doublings).min(longest));
        if is_error && self.mode == Mode::Running {
            self.mode = Mode::Paused(now + pause);
        }
        self.connect_at = Some(now + pause);
    }

    fn slot(&mut self, side: Side) -> &mut Option<Connection> {
        match side {
            Side::Ours => &mut self.ours,
            Side::Theirs => &mut self.theirs,
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

    /// Three quarters to all of `period` (RFC 4271 section 10), so that peers do not move in step.
    fn jittered(&mut self, period: Millis) -> Millis {
        // A step of a linear congruential generator (Knuth's MMIX); its high bits are even enough for this.
        self.jitter =
            self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        period - period / 4 * (self.jitter >> 48) / (1 << 16)
    }
}

/// When the hold timer expires that was started at `from`.
fn hold(negotiated: &Negotiated, from: Millis) -> Option<Millis> {
    (negotiated.hold_time > 0).then(|| from + 1_000 * Millis::from(negotiated.hold_time))
}
