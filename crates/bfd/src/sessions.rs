//! All sessions of a router: assignment of packets (RFC 5880 sections 6.3 and 6.8.6, RFC 5881, RFC
//! 5883), and timers.

use crate::session::{Effect, Event, Micros, Session, Timers};
use ribtide_prefix::Rng;
use ribtide_wire::bfd::{Control, Malformed, State, TTL};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Our discriminator of a session, in all of its packets. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Discriminator(pub u32);

/// The distance of the other side of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reach {
    /// On a link of ours (RFC 5881): its packets arrive with the TTL that they were sent with.
    Link,
    /// Anywhere (RFC 5883): its packets arrive with a TTL of at least this.
    Multihop {
        /// 255 minus the permitted hops.
        min_ttl: u8,
    },
}

/// The addresses and interface of a session.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The other side's address.
    pub peer: IpAddr,
    /// Our address, if the session is bound to one.
    pub local: Option<IpAddr>,
    /// The interface, if the session is bound to one.
    pub interface: Option<u32>,
    /// Over one hop or several.
    pub reach: Reach,
}

/// The reception of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// Source address.
    pub from: IpAddr,
    /// Destination address.
    pub to: IpAddr,
    /// Received on this interface.
    pub interface: u32,
    /// With this TTL or hop limit.
    pub ttl: u8,
    /// Received on the multihop port.
    pub multihop: bool,
}

impl Place {
    fn matches(&self, origin: &Origin) -> bool {
        self.peer == origin.from
            && self.local.is_none_or(|local| local == origin.to)
            && self.interface.is_none_or(|interface| interface == origin.interface)
            && matches!(self.reach, Reach::Multihop { .. }) == origin.multihop
    }

    fn least_ttl(&self) -> u8 {
        match self.reach {
            Reach::Link => TTL,
            Reach::Multihop { min_ttl } => min_ttl,
        }
    }
}

/// The reason of a discarded packet.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Discard {
    /// It is malformed.
    Malformed(Malformed),
    /// It crossed more hops than permitted (RFC 5881 section 5, RFC 5082).
    Ttl,
    /// No session has its addresses or its discriminator.
    NoSession,
    /// The session of its discriminator has another peer.
    OtherPlace,
    /// It is authenticated, which no session is.
    Authenticated,
}

impl Discard {
    /// The name in counters.
    pub fn name(self) -> &'static str {
        match self {
            Discard::Malformed(Malformed::Version) => "version",
            Discard::Malformed(Malformed::Length) => "length",
            Discard::Malformed(Malformed::Multiplier) => "multiplier",
            Discard::Malformed(Malformed::Multipoint) => "multipoint",
            Discard::Malformed(Malformed::Discriminator) => "discriminator",
            Discard::Malformed(Malformed::State) => "state",
            Discard::Ttl => "ttl",
            Discard::NoSession => "no-session",
            Discard::OtherPlace => "other-address",
            Discard::Authenticated => "authenticated",
        }
    }
}

impl fmt::Display for Discard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A session with its counters.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The addresses and interface of its packets.
    pub place: Place,
    /// The session.
    pub session: Session,
    /// Packets sent.
    pub sent: u64,
    /// Packets received and not discarded.
    pub received: u64,
    /// Changes from up to down.
    pub flaps: u64,
    /// Time of the last change of state.
    pub changed: Micros,
    /// Its key in the timers.
    deadline: Option<Micros>,
}

/// All sessions.
#[derive(Debug, Default)]
pub struct Sessions {
    entries: BTreeMap<Discriminator, Entry>,
    by_peer: BTreeSet<(IpAddr, Discriminator)>,
    /// Each session at most once, at its deadline.
    timers: BTreeSet<(Micros, Discriminator)>,
    discarded: BTreeMap<Discard, u64>,
    random: Rng,
    effects: Vec<Effect>,
}

/// Effects of all sessions.
type Effects = Vec<(Discriminator, Effect)>;

impl Sessions {
    /// No sessions. `seed` determines discriminators and jitter.
    pub fn new(seed: u64) -> Sessions {
        Sessions { random: Rng::new(seed), ..Sessions::default() }
    }

    /// The session with this discriminator.
    pub fn get(&self, id: Discriminator) -> Option<&Entry> {
        self.entries.get(&id)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (Discriminator, &Entry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// Packets discarded since the start, by reason.
    pub fn discarded(&self) -> impl Iterator<Item = (Discard, u64)> {
        self.discarded.iter().map(|(why, count)| (*why, *count))
    }

    /// When [`Sessions::tick`] is due next.
    pub fn deadline(&self) -> Option<Micros> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Starts a session. The caller must not start two for one place.
    pub fn add(&mut self, place: Place, timers: Timers, now: Micros) -> Discriminator {
        let id = loop {
            let id = Discriminator((self.random.next_u64() >> 32) as u32);
            if id.0 != 0 && !self.entries.contains_key(&id) {
                break id;
            }
        };
        let session = Session::new(timers, id.0, self.random.next_u64(), now);
        let entry = Entry { place, session, sent: 0, received: 0, flaps: 0, changed: now, deadline: None };
        self.entries.insert(id, entry);
        self.by_peer.insert((place.peer, id));
        self.settle(id);
        id
    }

    /// Ends a session, and signals AdminDown, which is no failure to the other side.
    pub fn remove(&mut self, id: Discriminator, now: Micros, out: &mut Effects) {
        self.event(id, Event::Disable, now, out);
        if let Some(entry) = self.entries.remove(&id) {
            self.by_peer.remove(&(entry.place.peer, id));
            entry.deadline.map(|at| self.timers.remove(&(at, id)));
        }
    }

    /// Sets the number of its interface.
    pub fn set_interface(&mut self, id: Discriminator, interface: u32) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.place.interface = Some(interface);
        }
    }

    /// Handles an event of a session other than a packet or a timer.
    pub fn event(&mut self, id: Discriminator, event: Event<'_>, now: Micros, out: &mut Effects) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        entry.session.handle(event, now, &mut self.effects);
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Send(_) => entry.sent += 1,
                Effect::Changed(from, _) => {
                    entry.flaps += u64::from(from == State::Up);
                    entry.changed = now;
                }
            }
            out.push((id, effect));
        }
        self.settle(id);
    }

    /// Handles a UDP payload.
    ///
    /// # Errors
    /// The reason of a discarded packet, which is also counted.
    pub fn packet(
        &mut self,
        bytes: &[u8],
        origin: &Origin,
        now: Micros,
        out: &mut Effects,
    ) -> Result<Discriminator, Discard> {
        match self.whose(bytes, origin) {
            Ok((id, control)) => {
                if let Some(entry) = self.entries.get_mut(&id) {
                    entry.received += 1;
                }
                self.event(id, Event::Packet(&control), now, out);
                Ok(id)
            }
            Err(why) => {
                *self.discarded.entry(why).or_default() += 1;
                Err(why)
            }
        }
    }

    fn whose(&self, bytes: &[u8], origin: &Origin) -> Result<(Discriminator, Control), Discard> {
        // A packet that crossed a router is for no single-hop session, and is not parsed (RFC
        // 5082).
        if !origin.multihop && origin.ttl != TTL {
            return Err(Discard::Ttl);
        }
        let control = Control::parse(bytes).map_err(Discard::Malformed)?;
        let (id, entry) = match control.your_discriminator {
            0 => self.at(origin).ok_or(Discard::NoSession)?,
            number => {
                let id = Discriminator(number);
                (id, self.entries.get(&id).ok_or(Discard::NoSession)?)
            }
        };
        if !entry.place.matches(origin) {
            return Err(Discard::OtherPlace);
        }
        if origin.ttl < entry.place.least_ttl() {
            return Err(Discard::Ttl);
        }
        if control.authenticated {
            return Err(Discard::Authenticated);
        }
        Ok((id, control))
    }

    /// The session for a packet by its addresses: the most specific, if there are several.
    fn at(&self, origin: &Origin) -> Option<(Discriminator, &Entry)> {
        let (first, last) = (Discriminator(0), Discriminator(u32::MAX));
        let of_peer = self.by_peer.range((origin.from, first)..=(origin.from, last));
        let entries = of_peer.filter_map(|(_, id)| Some((*id, self.entries.get(id)?)));
        let exact = |place: &Place| (place.local.is_some(), place.interface.is_some());
        entries.filter(|(_, e)| e.place.matches(origin)).max_by_key(|(_, e)| exact(&e.place))
    }

    /// Handles all due timers.
    pub fn tick(&mut self, now: Micros, out: &mut Effects) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            self.event(id, Event::Tick, now, out);
        }
    }

    /// Schedules a session's next timer.
    fn settle(&mut self, id: Discriminator) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        let (before, after) = (entry.deadline, entry.session.deadline());
        if before != after {
            entry.deadline = after;
            before.map(|at| self.timers.remove(&(at, id)));
            after.map(|at| self.timers.insert((at, id)));
        }
    }
}
