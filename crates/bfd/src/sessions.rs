//! All sessions of a router: which packet is for which (RFC 5880 sections 6.3 and 6.8.6, RFC 5881, RFC 5883), and whose
//! timer is next.

use crate::session::{Effect, Event, Micros, Session, Timers};
use ribtide_prefix::Rng;
use ribtide_wire::bfd::{Control, Malformed, State, TTL};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;

/// Our number for a session, in every packet of it. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Discriminator(pub u32);

/// How far away the other side of a session is.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Reach {
    /// On a link of ours (RFC 5881): its packets arrive with the TTL that they were sent with.
    Link,
    /// Anywhere (RFC 5883): its packets arrive with a TTL of at least this.
    Multihop {
        /// 255 less the hops that there may be in between.
        min_ttl: u8,
    },
}

/// Where a session's packets come from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The other side's address.
    pub peer: IpAddr,
    /// Ours, if only that is meant.
    pub local: Option<IpAddr>,
    /// The interface, if only that is meant.
    pub interface: Option<u32>,
    /// Over one hop or several.
    pub reach: Reach,
}

/// How a packet came.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Origin {
    /// From this address.
    pub from: IpAddr,
    /// To this address of ours.
    pub to: IpAddr,
    /// On this interface.
    pub interface: u32,
    /// With this TTL or hop limit.
    pub ttl: u8,
    /// To the port for several hops.
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

/// Why a packet was discarded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Discard {
    /// There is something wrong in itself.
    Malformed(Malformed),
    /// It has come further than it may have (RFC 5881 section 5, RFC 5082).
    Ttl,
    /// No session has its addresses, or the number that it names.
    NoSession,
    /// The session that it names is with another peer.
    OtherPlace,
    /// It is authenticated, and no session is.
    Authenticated,
}

impl Discard {
    /// One word or two, for counters.
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

/// A session and what is counted of it.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where its packets come from.
    pub place: Place,
    /// The session.
    pub session: Session,
    /// Packets sent.
    pub sent: u64,
    /// Packets received and not discarded.
    pub received: u64,
    /// How often it went down from up.
    pub flaps: u64,
    /// When it last changed its state.
    pub changed: Micros,
    /// Its place in the list of timers.
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

/// What to do about which session.
type Effects = Vec<(Discriminator, Effect)>;

impl Sessions {
    /// No sessions. Numbers and jitter come of `seed`.
    pub fn new(seed: u64) -> Sessions {
        Sessions { random: Rng::new(seed), ..Sessions::default() }
    }

    /// The session of this number.
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

    /// Begins a session. The caller sees to it that no two have the same place.
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

    /// Ends a session, and tells the other side that this is no failure.
    pub fn remove(&mut self, id: Discriminator, now: Micros, out: &mut Effects) {
        self.event(id, Event::Disable, now, out);
        if let Some(entry) = self.entries.remove(&id) {
            self.by_peer.remove(&(entry.place.peer, id));
            entry.deadline.map(|at| self.timers.remove(&(at, id)));
        }
    }

    /// Its interface has this number now.
    pub fn set_interface(&mut self, id: Discriminator, interface: u32) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.place.interface = Some(interface);
        }
    }

    /// Something other than a packet or time happened to a session.
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

    /// A UDP payload came.
    ///
    /// # Errors
    /// Why it was discarded, and counted so.
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
        // A packet that has crossed a router belongs to no session on a link; it need not be looked into (RFC 5082).
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

    /// The session that a packet belongs to by where it comes from: the one that asks for most, if there are several.
    fn at(&self, origin: &Origin) -> Option<(Discriminator, &Entry)> {
        let (first, last) = (Discriminator(0), Discriminator(u32::MAX));
        let of_peer = self.by_peer.range((origin.from, first)..=(origin.from, last));
        let entries = of_peer.filter_map(|(_, id)| Some((*id, self.entries.get(id)?)));
        let exact = |place: &Place| (place.local.is_some(), place.interface.is_some());
        entries.filter(|(_, e)| e.place.matches(origin)).max_by_key(|(_, e)| exact(&e.place))
    }

    /// Lets every timer that is due do its work.
    pub fn tick(&mut self, now: Micros, out: &mut Effects) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            self.event(id, Event::Tick, now, out);
        }
    }

    /// Enters a session's next timer.
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
