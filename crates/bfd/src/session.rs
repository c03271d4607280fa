//! One session: the state machine of RFC 5880 section 6 in asynchronous mode.
//!
//! A session takes events with their time and returns [`Effect`]s. [`Session::deadline`] is the
//! time of its next [`Event::Tick`].
//!
//! Both intervals have an advertised and an applied value. A new value is advertised in every
//! packet at once. It is applied later where the other side must know it first (section 6.8.3): a
//! longer send interval, or a shorter receive interval. A poll sequence confirms that the other
//! side knows it.

use ribtide_wire::bfd::{Control, Diagnostic, State};

/// Microseconds on a monotonic clock.
pub type Micros = u64;

/// The least send interval of a session that is not up, in microseconds (RFC 5880 section 6.8.3).
pub const SLOW: u32 = 1_000_000;

/// The configuration of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timers {
    /// Desired Min TX Interval, in microseconds; more than 0.
    pub min_tx: u32,
    /// Required Min RX Interval, in microseconds; more than 0.
    pub min_rx: u32,
    /// Detect Mult: packets that may be missing before the other side declares the session down;
    /// more than 0.
    pub multiplier: u8,
}

/// An input of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A valid packet for this session.
    Packet(&'a Control),
    /// A timer is due.
    Tick,
    /// The configuration changed.
    Configure(Timers),
    /// An operator takes the session down, until [`Event::Enable`].
    Disable,
    /// An operator enables the session again.
    Enable,
}

/// An output of a session, in order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send this packet.
    Send(Control),
    /// The session went from the first state to the second.
    Changed(State, State),
}

/// The state of the path to the neighbour, for clients of the session (RFC 5882).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Standing {
    /// Unknown: the session has never been up. The neighbour may have no BFD.
    Unproven,
    /// Packets pass in both directions.
    Up,
    /// Packets passed before and no longer do.
    Failed,
    /// Unknown: an operator of either side took the session down, which is no failure (RFC 5882
    /// section 3.2).
    Excused,
}

impl Standing {
    /// Whether the path may be used. `strict`: only when the session is up.
    pub fn usable(self, strict: bool) -> bool {
        match self {
            Standing::Unproven => !strict,
            Standing::Up | Standing::Excused => true,
            Standing::Failed => false,
        }
    }
}

/// A poll sequence of ours (RFC 5880 section 6.5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Poll {
    None,
    /// Packets carry the P bit.
    Active,
    /// Packets carry the P bit, but the values changed since: another poll follows.
    Again,
}

/// One session.
#[derive(Clone, Debug)]
pub struct Session {
    timers: Timers,
    state: State,
    diagnostic: Diagnostic,
    standing: Standing,
    discriminator: u32,
    /// Advertised intervals: send, receive.
    advertised: (u32, u32),
    /// Applied intervals: send, receive.
    applied: (u32, u32),
    poll: Poll,
    remote: Remote,
    /// Time of the last packet; `None` after the detection time.
    received_at: Option<Micros>,
    /// When the last periodic packet was sent.
    sent: Option<Micros>,
    /// When the next one is due, and the interval behind that time.
    due: Option<(Micros, u32)>,
    jitter: u64,
}

/// The last values from the other side.
#[derive(Clone, Copy, Debug)]
struct Remote {
    discriminator: u32,
    state: State,
    diagnostic: Diagnostic,
    min_tx: u32,
    min_rx: u32,
    multiplier: u8,
    demand: bool,
}

/// RFC 5880 section 6.8.1.
const UNKNOWN: Remote = Remote {
    discriminator: 0,
    state: State::Down,
    diagnostic: Diagnostic::NONE,
    min_tx: 0,
    min_rx: 1,
    multiplier: 1,
    demand: false,
};

impl Session {
    /// A session that is down and sends its first packet at `now`. `discriminator` is unique and
    /// not 0; `seed` sets its jitter apart from other sessions.
    pub fn new(timers: Timers, discriminator: u32, seed: u64, now: Micros) -> Session {
        let slow = (timers.min_tx.max(SLOW), timers.min_rx);
        Session {
            timers,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            standing: Standing::Unproven,
            discriminator,
            advertised: slow,
            applied: slow,
            poll: Poll::None,
            remote: UNKNOWN,
            received_at: None,
            sent: None,
            due: Some((now, slow.0)),
            jitter: seed,
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The reason of its last change to down.
    pub fn diagnostic(&self) -> Diagnostic {
        self.diagnostic
    }

    /// The last known state of the other side.
    pub fn remote_state(&self) -> State {
        self.remote.state
    }

    /// The other side's reason of its last change to down.
    pub fn remote_diagnostic(&self) -> Diagnostic {
        self.remote.diagnostic
    }

    /// The other side's discriminator, or 0.
    pub fn remote_discriminator(&self) -> u32 {
        self.remote.discriminator
    }

    /// The other side's Detect Mult.
    pub fn remote_multiplier(&self) -> u8 {
        self.remote.multiplier
    }

    /// The state of the path to the neighbour.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// The configuration.
    pub fn timers(&self) -> Timers {
        self.timers
    }

    /// The send interval before jitter; `None` while the other side wants no packets.
    pub fn tx_interval(&self) -> Option<u32> {
        let both_up = self.state == State::Up && self.remote.state == State::Up;
        let quiet = self.remote.demand && both_up && self.poll == Poll::None;
        (self.remote.min_rx > 0 && !quiet).then(|| self.applied.0.max(self.remote.min_rx))
    }

    /// The receive interval.
    pub fn rx_interval(&self) -> u32 {
        self.applied.1.max(self.remote.min_tx)
    }

    /// The time without a packet after which the session is down (RFC 5880 section 6.8.4).
    pub fn detection_time(&self) -> Micros {
        Micros::from(self.remote.multiplier) * Micros::from(self.rx_interval())
    }

    /// When [`Event::Tick`] is due next.
    pub fn deadline(&self) -> Option<Micros> {
        [self.due.map(|(at, _)| at), self.expires()].into_iter().flatten().min()
    }

    fn expires(&self) -> Option<Micros> {
        self.received_at.map(|received_at| received_at.saturating_add(self.detection_time()))
    }

    /// Handles an event and appends its effects.
    pub fn handle(&mut self, event: Event<'_>, now: Micros, out: &mut Vec<Effect>) {
        let before = self.state;
        match event {
            Event::Packet(packet) => self.packet(packet, now, out),
            Event::Tick => {}
            Event::Configure(timers) => {
                self.timers = timers;
                self.negotiate();
            }
            Event::Disable => {
                self.standing = Standing::Excused;
                self.enter(State::AdminDown, Diagnostic::ADMINISTRATIVELY_DOWN);
            }
            Event::Enable => {
                if self.state == State::AdminDown {
                    self.standing = Standing::Unproven;
                    self.enter(State::Down, Diagnostic::NONE);
                }
            }
        }
        if self.expires().is_some_and(|at| at <= now) {
            self.detection_expired();
        }
        if self.state != before {
            out.push(Effect::Changed(before, self.state));
            // Notifies the other side before the next periodic packet.
            if self.tx_interval().is_some() {
                self.due = Some((now, 0));
            }
        }
        self.send(now, out);
    }

    /// A packet was received: RFC 5880 section 6.8.6, after its checks.
    fn packet(&mut self, packet: &Control, now: Micros, out: &mut Vec<Effect>) {
        self.remote = Remote {
            discriminator: packet.my_discriminator,
            state: packet.state,
            diagnostic: packet.diagnostic,
            min_tx: packet.desired_min_tx,
            min_rx: packet.required_min_rx,
            multiplier: packet.multiplier,
            demand: packet.demand,
        };
        self.received_at = Some(now);
        if packet.finished && self.poll != Poll::None {
            self.finished();
        }
        if self.state == State::AdminDown {
            return;
        }
        if self.standing == Standing::Excused && packet.state != State::AdminDown {
            self.standing = Standing::Unproven;
        }
        match (self.state, packet.state) {
            (_, State::AdminDown) => {
                self.standing = Standing::Excused;
                if self.state != State::Down {
                    self.enter(State::Down, Diagnostic::NEIGHBOR_SIGNALED_DOWN);
                }
            }
            (State::Down, State::Down) => self.enter(State::Init, self.diagnostic),
            (State::Down, State::Init) | (State::Init, State::Init | State::Up) => {
                self.standing = Standing::Up;
                self.enter(State::Up, Diagnostic::NONE);
            }
            (State::Up, State::Down) => {
                self.standing = Standing::Failed;
                self.enter(State::Down, Diagnostic::NEIGHBOR_SIGNALED_DOWN);
            }
            _ => {}
        }
        if packet.poll {
            out.push(Effect::Send(Control { poll: false, finished: true, ..self.control() }));
        }
    }

    /// No packet came during the detection time.
    fn detection_expired(&mut self) {
        self.received_at = None;
        if self.state == State::Up {
            self.standing = Standing::Failed;
        }
        if self.state >= State::Init {
            self.enter(State::Down, Diagnostic::DETECTION_TIME_EXPIRED);
        }
        let Remote { state, min_rx, demand, .. } = UNKNOWN;
        self.remote = Remote { discriminator: 0, state, min_rx, demand, ..self.remote };
    }

    fn enter(&mut self, state: State, diagnostic: Diagnostic) {
        (self.state, self.diagnostic) = (state, diagnostic);
        self.negotiate();
    }

    /// Advertises the intervals that state and configuration require, and applies those that the
    /// other side need not know first.
    fn negotiate(&mut self) {
        let up = self.state == State::Up;
        let min_tx = if up { self.timers.min_tx } else { self.timers.min_tx.max(SLOW) };
        let requested = (min_tx, self.timers.min_rx);
        if !up {
            // Every packet carries them until the session is up, so no poll is needed.
            self.poll = Poll::None;
            (self.advertised, self.applied) = (requested, requested);
            return;
        }
        if requested != self.advertised {
            self.advertised = requested;
            self.poll = if self.poll == Poll::None { Poll::Active } else { Poll::Again };
        }
        self.applied = (self.applied.0.min(requested.0), self.applied.1.max(requested.1));
    }

    /// The other side has replied to our poll (F bit).
    fn finished(&mut self) {
        self.poll = match self.poll {
            Poll::Again => Poll::Active,
            Poll::Active | Poll::None => Poll::None,
        };
        if self.poll == Poll::None {
            self.applied = self.advertised;
        }
    }

    /// Sends a packet if one is due, and sets the next time.
    fn send(&mut self, now: Micros, out: &mut Vec<Effect>) {
        let Some(interval) = self.tx_interval() else {
            self.due = None;
            return;
        };
        if self.due.is_some_and(|(at, _)| at <= now) {
            out.push(Effect::Send(Control { poll: self.poll != Poll::None, ..self.control() }));
            self.sent = Some(now);
            self.due = Some((now + self.jittered(interval), interval));
        } else if self.due.is_none_or(|(_, made_of)| interval < made_of) {
            // The new time may be earlier than planned, because the other side may already expect
            // it.
            let next = self.sent.map_or(now, |sent| sent + self.jittered(interval)).max(now);
            self.due = Some((next, interval));
            if next == now {
                self.send(now, out);
            }
        }
    }

    fn control(&self) -> Control {
        Control {
            diagnostic: self.diagnostic,
            state: self.state,
            poll: false,
            finished: false,
            control_plane_independent: false,
            authenticated: false,
            demand: false,
            multiplier: self.timers.multiplier,
            my_discriminator: self.discriminator,
            your_discriminator: self.remote.discriminator,
            desired_min_tx: self.advertised.0,
            required_min_rx: self.advertised.1,
            required_min_echo_rx: 0,
        }
    }

    /// Three quarters to all of `interval`, and at most nine tenths of it when one lost packet ends the session (RFC 5880
    /// section 6.8.7).
    fn jittered(&mut self, interval: u32) -> Micros {
        // A step of a linear congruential generator (Knuth's MMIX); its high bits are even enough for this.
        self.jitter =
            self.jitter.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let interval = Micros::from(interval);
        let (least, most) = match self.timers.multiplier {
            1 => (interval * 3 / 4, interval * 9 / 10),
            _ => (interval * 3 / 4, interval),
        };
        least + (((most - least) * (self.jitter >> 48)) >> 16)
    }
}
