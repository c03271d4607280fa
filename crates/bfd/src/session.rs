//! One session: the state machine of RFC 5880 section 6 in asynchronous mode.
//!
//! It is told what happened and when, answers with [`Effect`]s, and says through [`Session::deadline`] when it wants to
//! hear of time again.
//!
//! Two intervals have two values for a while. What we say that we want is in every packet at once; what we do about it
//! waits, where the other side must know of it first (section 6.8.3): to send less often, and to expect packets
//! more often. A poll sequence finds out that it knows.

use ribtide_wire::bfd::{Control, Diagnostic, State};

/// Microseconds on a clock that never goes back.
pub type Micros = u64;

/// While a session is not up, it sends no more often than once in so many microseconds (RFC 5880 section 6.8.3).
pub const SLOW: u32 = 1_000_000;

/// What is configured of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Timers {
    /// Packets are sent so often at most, in microseconds; more than 0.
    pub min_tx: u32,
    /// Packets are to be received so often at most, in microseconds; more than 0.
    pub min_rx: u32,
    /// How many packets of ours may be missing before the other side takes the session for down; more than 0.
    pub multiplier: u8,
}

/// What happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A packet for this session, with nothing wrong in it.
    Packet(&'a Control),
    /// Time has passed.
    Tick,
    /// Other timers are configured.
    Configure(Timers),
    /// An operator wants the session down, until [`Event::Enable`].
    Disable,
    /// An operator no longer wants it down.
    Enable,
}

/// What to do about it, in this order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Send this.
    Send(Control),
    /// The session went from the first state to the second.
    Changed(State, State),
}

/// What a session says of the way to the neighbour, for those who use that way (RFC 5882).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Standing {
    /// Nothing: it has not been up yet. The neighbour may have no BFD.
    Unproven,
    /// Packets go and come.
    Up,
    /// They did, and no longer do.
    Failed,
    /// Nothing: an operator of either side has the session down, which is no failure (RFC 5882 section 3.2).
    Excused,
}

impl Standing {
    /// Whether the way may be used. `strict`: only when it is proven.
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
    /// Packets ask for an answer.
    Asking,
    /// So they do, but what the answer confirms is out of date: then ask once more.
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
    /// Intervals as we say them.
    said: (u32, u32),
    /// Intervals as we act on them: to send, to receive.
    applied: (u32, u32),
    poll: Poll,
    remote: Remote,
    /// When the last packet came; none since it was too long ago.
    heard: Option<Micros>,
    /// When the last periodic packet was sent.
    sent: Option<Micros>,
    /// When the next is due, and the interval that this was made of.
    due: Option<(Micros, u32)>,
    jitter: u64,
}

/// What the other side said last.
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
    /// A session that is down and sends its first packet at `now`. `discriminator` is not 0 and no other session's; `seed`
    /// makes its timers differ from those of others.
    pub fn new(timers: Timers, discriminator: u32, seed: u64, now: Micros) -> Session {
        let slow = (timers.min_tx.max(SLOW), timers.min_rx);
        Session {
            timers,
            state: State::Down,
            diagnostic: Diagnostic::NONE,
            standing: Standing::Unproven,
            discriminator,
            said: slow,
            applied: slow,
            poll: Poll::None,
            remote: UNKNOWN,
            heard: None,
            sent: None,
            due: Some((now, slow.0)),
            jitter: seed,
        }
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state
    }

    /// Why it went down last.
    pub fn diagnostic(&self) -> Diagnostic {
        self.diagnostic
    }

    /// The other side's state as far as we know it.
    pub fn remote_state(&self) -> State {
        self.remote.state
    }

    /// Why the other side's went down last, as it says.
    pub fn remote_diagnostic(&self) -> Diagnostic {
        self.remote.diagnostic
    }

    /// The other side's number for the session, or 0.
    pub fn remote_discriminator(&self) -> u32 {
        self.remote.discriminator
    }

    /// The multiplier that the other side's packets name.
    pub fn remote_multiplier(&self) -> u8 {
        self.remote.multiplier
    }

    /// What it says of the way to the neighbour.
    pub fn standing(&self) -> Standing {
        self.standing
    }

    /// What is configured.
    pub fn timers(&self) -> Timers {
        self.timers
    }

    /// How often packets are sent, before jitter; `None` while the other side wants none.
    pub fn tx_interval(&self) -> Option<u32> {
        let both_up = self.state == State::Up && self.remote.state == State::Up;
        let quiet = self.remote.demand && both_up && self.poll == Poll::None;
        (self.remote.min_rx > 0 && !quiet).then(|| self.applied.0.max(self.remote.min_rx))
    }

    /// How often packets are expected.
    pub fn rx_interval(&self) -> u32 {
        self.applied.1.max(self.remote.min_tx)
    }

    /// After so long without a packet the session is down (RFC 5880 section 6.8.4).
    pub fn detection_time(&self) -> Micros {
        Micros::from(self.remote.multiplier) * Micros::from(self.rx_interval())
    }

    /// When [`Event::Tick`] is due next.
    pub fn deadline(&self) -> Option<Micros> {
        [self.due.map(|(at, _)| at), self.expires()].into_iter().flatten().min()
    }

    fn expires(&self) -> Option<Micros> {
        self.heard.map(|heard| heard.saturating_add(self.detection_time()))
    }

    /// Takes in what happened and appends what to do.
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
            self.unheard();
        }
        if self.state != before {
            out.push(Effect::Changed(before, self.state));
            // The other side need not wait for the next packet to learn of it.
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
        self.heard = Some(now);
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

    /// Nothing came for the detection time.
    fn unheard(&mut self) {
        self.heard = None;
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

    /// Says other intervals where the state or the configuration asks for it, and acts on them as far as the other
    /// side need not know first.
    fn negotiate(&mut self) {
        let up = self.state == State::Up;
        let min_tx = if up { self.timers.min_tx } else { self.timers.min_tx.max(SLOW) };
        let wanted = (min_tx, self.timers.min_rx);
        if !up {
            // Every packet says them until the session is up; there is nothing to be kept to.
            self.poll = Poll::None;
            (self.said, self.applied) = (wanted, wanted);
            return;
        }
        if wanted != self.said {
            self.said = wanted;
            self.poll = if self.poll == Poll::None { Poll::Asking } else { Poll::Again };
        }
        self.applied = (self.applied.0.min(wanted.0), self.applied.1.max(wanted.1));
    }

    /// The other side has answered our poll.
    fn finished(&mut self) {
        self.poll = match self.poll {
            Poll::Again => Poll::Asking,
            Poll::Asking | Poll::None => Poll::None,
        };
        if self.poll == Poll::None {
            self.applied = self.said;
        }
    }

    /// Sends a packet if one is due, and decides when the next is.
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
            // Sooner than was said before: the other side may already count on it.
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
            desired_min_tx: self.said.0,
            required_min_rx: self.said.1,
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
