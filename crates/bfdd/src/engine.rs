//! The state of the BFD thread: sessions with their sockets and configuration.

use super::notifier::{BfdNews, Gateway, Notifier};
use super::socket::{self, Listener};
use super::{Learnt, Outputs};
use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use ribtide_bfd::{Discriminator, Effect, Entry, Event, Micros, Place, Reach, Sessions, Standing, Timers};
use ribtide_config::{BfdConfig, BfdPeer, BfdSession, BfdSettings, InterfaceConfig};
use ribtide_prefix::zone::with_zone;
use ribtide_rib::{IfIndex, RibIn};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::Sender;
use ribtide_wire::bfd::{Control, Diagnostic, FIRST_SOURCE_PORT, State};
use std::collections::BTreeMap;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

/// Packets read from a socket before timers are checked again.
const PACKETS_BATCH_MAX: usize = 256;

/// The sessions that a reload touched, each in one list.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Added sessions.
    pub added: Vec<IpAddr>,
    /// Removed sessions.
    pub removed: Vec<IpAddr>,
    /// Sessions with changed settings. Only a changed local address or minimum TTL resets a
    /// session.
    pub changed: Vec<IpAddr>,
}

/// A session for queries. Times in milliseconds.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// The neighbour.
    pub peer: BfdPeer,
    /// The configured settings.
    pub requested: BfdSession,
    /// The session and its counters.
    pub entry: Entry,
    /// The local discriminator.
    pub discriminator: Discriminator,
    /// How long it has been in its state.
    pub state_age: u64,
    /// Why its last packet could not be sent, as a sentence.
    pub error: Option<String>,
}

/// The state of BFD's thread. Ask it through its [`ribtide_runtime::call::StageHandle`].
pub struct Engine {
    pub(super) poll: Poll,
    listen: Vec<IpAddr>,
    /// The sessions of the configuration, and those of learnt neighbours.
    configured: BfdConfig,
    learnt: Learnt,
    listeners: Vec<Listener>,
    sessions: Sessions,
    known: BTreeMap<Discriminator, SessionEntry>,
    by_peer: BTreeMap<BfdPeer, Discriminator>,
    /// Interface indices from the configuration.
    numbers: BTreeMap<String, IfIndex>,
    notifier: Notifier,
    /// The next port to send from.
    port: u16,
    start: Instant,
    effects: Vec<(Discriminator, Effect)>,
}

/// A session with its socket.
struct SessionEntry {
    peer: BfdPeer,
    requested: BfdSession,
    standing: Standing,
    /// The sending socket, created for the first packet.
    socket: Option<UdpSocket>,
    /// The index of its interface.
    interface: Option<u32>,
    error: Option<String>,
}

impl Engine {
    pub(super) fn new(
        poll: Poll,
        listen: Vec<IpAddr>,
        interfaces: &[InterfaceConfig],
        outputs: Outputs,
    ) -> Engine {
        Engine {
            poll,
            listen,
            configured: BfdConfig::default(),
            learnt: Learnt::new(),
            listeners: Vec::new(),
            sessions: Sessions::new(RandomState::new().hash_one(std::process::id())),
            known: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            numbers: numbers(interfaces),
            notifier: Notifier::new(outputs),
            port: FIRST_SOURCE_PORT,
            start: Instant::now(),
            effects: Vec::new(),
        }
    }

    fn now(&self) -> Micros {
        self.start.elapsed().as_micros() as Micros
    }

    // ---- what the thread does

    /// The time until the next timer.
    pub(super) fn poll_timeout(&self) -> Duration {
        if self.listeners.iter().any(|l| l.ready) {
            return Duration::ZERO;
        }
        if self.notifier.is_waiting() {
            return Duration::from_millis(1);
        }
        let until = |at: Micros| Duration::from_micros(at.saturating_sub(self.now()));
        self.sessions.deadline().map_or(Duration::MAX, until)
    }

    /// A socket is readable.
    pub(super) fn ready(&mut self, listener: usize) {
        if let Some(listener) = self.listeners.get_mut(listener) {
            listener.ready = true;
        }
    }

    /// Reads the received packets.
    pub(super) fn receive(&mut self) {
        let now = self.now();
        for at in 0..self.listeners.len() {
            for _ in 0..PACKETS_BATCH_MAX {
                let listener = &mut self.listeners[at];
                if !listener.ready {
                    break;
                }
                let Some(received) = listener.receive() else { continue };
                let bytes = &received.bytes[..received.len];
                let taken = self.sessions.packet(bytes, &received.origin, now, &mut self.effects);
                self.act();
                if let Ok(id) = taken {
                    self.evaluate(id);
                }
            }
        }
    }

    /// Runs expired timers.
    pub(super) fn tick(&mut self) {
        let now = self.now();
        self.sessions.tick(now, &mut self.effects);
        self.act();
    }

    /// Sends waiting notifications.
    pub(super) fn notify(&mut self) {
        self.notifier.send();
    }

    /// Takes all sessions administratively down, which neighbours do not count as a failure.
    pub(super) fn close(&mut self) {
        let now = self.now();
        for id in self.known.keys() {
            self.sessions.event(*id, Event::Disable, now, &mut self.effects);
        }
        self.act();
    }

    fn act(&mut self) {
        let mut effects = std::mem::take(&mut self.effects);
        for (id, effect) in effects.drain(..) {
            match effect {
                Effect::Send(control) => self.send(id, &control),
                Effect::Changed(from, to) => {
                    self.log(id, from, to);
                    self.evaluate(id);
                }
            }
        }
        self.effects = effects;
    }

    fn send(&mut self, id: Discriminator, control: &Control) {
        let Some(known) = self.known.get_mut(&id) else { return };
        let local = known.local(&self.listen);
        if let Some(name) = &known.peer.interface {
            // The interface may exist now, or have another index.
            if known.error.is_some() || known.interface.is_none() {
                known.interface = socket::index_of(name);
                self.sessions.set_interface(id, known.interface.unwrap_or(0));
            }
            if known.interface.is_none() {
                known.error = Some(format!("there is no interface {name}; packets go out when there is one"));
                return;
            }
        }
        let multihop = known.requested.settings.min_ttl.is_some();
        let to = socket::destination(known.peer.address, known.interface, multihop);
        let sent = match &known.socket {
            Some(socket) => socket.send_to(&control.to_bytes(), to),
            None => socket::sender(local, &mut self.port).and_then(|socket| {
                let sent = socket.send_to(&control.to_bytes(), to);
                known.socket = Some(socket);
                sent
            }),
        };
        known.error = sent.err().map(|e| format!("packets cannot be sent from {local} to {to}: {e}"));
    }

    /// Notifies the RIB manager and the session thread of the state of a session.
    fn evaluate(&mut self, id: Discriminator) {
        let Some(standing) = self.sessions.get(id).map(|entry| entry.session.standing()) else { return };
        let Some(known) = self.known.get_mut(&id) else { return };
        if std::mem::replace(&mut known.standing, standing) != standing {
            self.inform(id);
        }
    }

    fn inform(&mut self, id: Discriminator) {
        let Some(known) = self.known.get(&id) else { return };
        self.notifier.gateway(self.gateway(known), known.standing.usable(known.requested.settings.strict));
        if known.requested.bgp {
            self.notifier.neighbor(self.neighbor(known), Some(known.standing));
        }
    }

    fn gateway(&self, known: &SessionEntry) -> Gateway {
        let number = |name: &String| self.numbers.get(name).copied().or(known.interface);
        (known.peer.address, known.peer.interface.as_ref().and_then(number))
    }

    /// The neighbour as BGP knows it: a link-local address with its zone.
    fn neighbor(&self, known: &SessionEntry) -> IpAddr {
        match self.gateway(known) {
            (IpAddr::V6(address), Some(zone)) => with_zone(address, zone).into(),
            (address, _) => address,
        }
    }

    fn log(&mut self, id: Discriminator, from: State, to: State) {
        let (Some(entry), Some(known)) = (self.sessions.get(id), self.known.get(&id)) else { return };
        let session = &entry.session;
        let ms = |us: u64| us as f64 / 1000.0;
        let (neighbor, interface) = (known.peer.address, known.peer.interface.as_deref());
        let reason = match (from, to) {
            (_, State::Up) => {
                return tracing::info!(target: target::BFD, %neighbor, interface, "the session is up");
            }
            (State::Up, State::AdminDown) => "this router ends it".into(),
            (State::Up, _) => match session.diagnostic() {
                Diagnostic::DETECTION_TIME_EXPIRED => {
                    format!("nothing came for {} ms, the detection time", ms(session.detection_time()))
                }
                _ if session.remote_state() == State::AdminDown => {
                    "an operator of the neighbour has taken it down, which is no failure".into()
                }
                _ => format!(
                    "the neighbour signals that its session is down ({})",
                    session.remote_diagnostic()
                ),
            },
            _ => return,
        };
        tracing::warn!(target: target::BFD, %neighbor, interface, reason, "the session is down");
    }

    // ---- what others ask

    /// Applies other sessions; unchanged ones continue.
    ///
    /// # Errors
    /// A sentence when a socket cannot be bound; nothing has changed.
    pub fn configure(&mut self, config: &BfdConfig) -> io::Result<Changes> {
        let changes = self.apply(&self.with_learnt(config))?;
        self.configured.clone_from(config);
        Ok(changes)
    }

    /// Takes other learnt neighbours. Without a socket for them they have no session, which BGP takes for one that is
    /// not up.
    pub(super) fn learn(&mut self, learnt: Learnt) {
        let before = std::mem::replace(&mut self.learnt, learnt);
        if let Err(error) = self.apply(&self.with_learnt(&self.configured)) {
            tracing::error!(target: target::BFD, %error, "neighbours by interface have no BFD");
            self.learnt = before;
        }
    }

    /// Sets the RIB manager, which learns the gateways that are down.
    pub fn set_rib(&mut self, rib: Option<Sender<RibIn>>) {
        self.notifier.set_rib(rib);
        self.notifier.send();
    }

    /// Sets the session thread of BGP, which learns the state of each of its sessions.
    pub fn set_bgp(&mut self, bgp: Option<Sender<BfdNews>>) {
        self.notifier.set_bgp(bgp);
        for known in self.known.values().filter(|known| known.requested.bgp) {
            self.notifier.neighbor(self.neighbor(known), Some(known.standing));
        }
        self.notifier.send();
    }

    /// Sets the interfaces whose numbers the configuration gives. Their gateways are known by other numbers then.
    pub fn set_interfaces(&mut self, interfaces: &[InterfaceConfig]) {
        let before: Vec<(Discriminator, Gateway, IpAddr)> =
            self.known.iter().map(|(id, known)| (*id, self.gateway(known), self.neighbor(known))).collect();
        self.numbers = numbers(interfaces);
        for (id, gateway, neighbor) in before {
            let Some(known) = self.known.get(&id).filter(|known| self.gateway(known) != gateway) else {
                continue;
            };
            let renamed = known.requested.bgp && self.neighbor(known) != neighbor;
            self.notifier.gateway(gateway, true);
            if renamed {
                self.notifier.neighbor(neighbor, None);
            }
            self.inform(id);
        }
        self.notifier.send();
    }

    /// The sessions of a configuration and of learnt neighbours. Both have one session where they have the same neighbour,
    /// with the settings of the configuration.
    fn with_learnt(&self, config: &BfdConfig) -> BfdConfig {
        let mut all = config.clone();
        for (peer, session) in &self.learnt {
            all.sessions.entry(peer.clone()).and_modify(|known| known.bgp = true).or_insert(*session);
        }
        all
    }

    fn apply(&mut self, config: &BfdConfig) -> io::Result<Changes> {
        let now = self.now();
        if config.listen == self.listen {
            self.listen_for(config)?;
        } else {
            self.listen_elsewhere(config)?;
            // The addresses of packets change. Peers are told that the session ends, which is no failure.
            for (peer, id) in self.by_peer.clone() {
                let Some(requested) = self.known.get(&id).map(|known| known.requested) else { continue };
                self.remove(id, now);
                self.add(peer, requested, now);
            }
        }
        let mut changes = Changes::default();
        let gone = self.by_peer.iter().filter(|(peer, _)| !config.sessions.contains_key(peer));
        for (peer, id) in gone.map(|(peer, id)| (peer.clone(), *id)).collect::<Vec<_>>() {
            self.remove(id, now);
            changes.removed.push(peer.address);
        }
        for (peer, requested) in &config.sessions {
            let Some(id) = self.by_peer.get(peer).copied() else {
                self.add(peer.clone(), *requested, now);
                changes.added.push(peer.address);
                continue;
            };
            let Some(known) = self.known.get_mut(&id) else { continue };
            let former = std::mem::replace(&mut known.requested, *requested);
            if former == *requested {
                continue;
            }
            changes.changed.push(peer.address);
            let place = |s: &BfdSession| (s.local, s.settings.min_ttl);
            if place(&former) != place(requested) {
                self.remove(id, now);
                self.add(peer.clone(), *requested, now);
                continue;
            }
            if timers(&former.settings) != timers(&requested.settings) {
                let event = Event::Configure(timers(&requested.settings));
                self.sessions.event(id, event, now, &mut self.effects);
                self.act();
            }
            if former.bgp && !requested.bgp {
                let neighbor = self.known.get(&id).map_or(peer.address, |known| self.neighbor(known));
                self.notifier.neighbor(neighbor, None);
            }
            self.inform(id);
        }
        self.notifier.send();
        Ok(changes)
    }

    /// Every session, or those with `address`.
    pub fn view(&self, address: Option<IpAddr>) -> Vec<SessionView> {
        let now = self.now();
        let requested = self.by_peer.iter().filter(|(peer, _)| address.is_none_or(|a| a == peer.address));
        let view = |(peer, id): (&BfdPeer, &Discriminator)| {
            let (known, entry) = (self.known.get(id)?, self.sessions.get(*id)?);
            Some(SessionView {
                peer: peer.clone(),
                requested: known.requested,
                entry: entry.clone(),
                discriminator: *id,
                state_age: now.saturating_sub(entry.changed) / 1000,
                error: known.error.clone(),
            })
        };
        requested.filter_map(view).collect()
    }

    /// Discarded packets, by reason.
    pub fn discarded(&self) -> Vec<(&'static str, u64)> {
        self.sessions.discarded().map(|(why, count)| (why.name(), count)).collect()
    }

    /// Binds sockets of the addresses of `config` in place of the present ones.
    ///
    /// # Errors
    /// A sentence when a socket cannot be bound; the present ones stay.
    fn listen_elsewhere(&mut self, config: &BfdConfig) -> io::Result<()> {
        let former = std::mem::replace(&mut self.listen, config.listen.clone());
        let sockets = std::mem::take(&mut self.listeners);
        let first = self.listen_for(config);
        let taken = first.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::AddrInUse);
        let (outcome, sockets) = match taken {
            // A socket of ours may be in the way, as one of all addresses is.
            true => {
                drop(sockets);
                (self.listen_for(config), None)
            }
            false => (first, Some(sockets)),
        };
        if outcome.is_err() {
            self.listen = former;
            match sockets {
                Some(sockets) => self.listeners = sockets,
                None => self.listen_for(config)?,
            }
        }
        outcome
    }

    /// Binds the missing sockets of the sessions of `config`.
    fn listen_for(&mut self, config: &BfdConfig) -> io::Result<()> {
        let mut new: Vec<Listener> = Vec::new();
        for (peer, session) in &config.sessions {
            let multihop = session.settings.min_ttl.is_some();
            for address in self.listen.iter().filter(|l| l.is_ipv4() == peer.address.is_ipv4()) {
                let there = |l: &Listener| (l.address, l.multihop) == (*address, multihop);
                if !self.listeners.iter().chain(&new).any(there) {
                    new.push(Listener::bind(*address, multihop)?);
                }
            }
        }
        for listener in new {
            let token = Token(self.listeners.len());
            let fd = listener.socket.as_raw_fd();
            let watched = self.poll.registry().register(&mut SourceFd(&fd), token, Interest::READABLE);
            watched.map_err(|e| {
                let sentence = format!("BFD cannot watch its socket: {e}; raise the limit of open files");
                io::Error::new(e.kind(), sentence)
            })?;
            self.listeners.push(listener);
        }
        Ok(())
    }

    fn add(&mut self, peer: BfdPeer, requested: BfdSession, now: Micros) {
        let interface = peer.interface.as_deref().and_then(socket::index_of);
        let place = Place {
            peer: peer.address,
            local: requested.local,
            // A missing interface receives no packets.
            interface: peer.interface.as_ref().map(|_| interface.unwrap_or(0)),
            reach: requested.settings.min_ttl.map_or(Reach::Link, |min_ttl| Reach::Multihop { min_ttl }),
        };
        let id = self.sessions.add(place, timers(&requested.settings), now);
        let standing = Standing::Unproven;
        let known =
            SessionEntry { peer: peer.clone(), requested, standing, socket: None, interface, error: None };
        self.known.insert(id, known);
        self.by_peer.insert(peer, id);
        self.inform(id);
    }

    fn remove(&mut self, id: Discriminator, now: Micros) {
        self.sessions.remove(id, now, &mut self.effects);
        self.act();
        let Some(known) = self.known.remove(&id) else { return };
        self.notifier.gateway(self.gateway(&known), true);
        if known.requested.bgp {
            self.notifier.neighbor(self.neighbor(&known), None);
        }
        self.by_peer.remove(&known.peer);
    }
}

/// The numbers of interfaces, by name.
fn numbers(interfaces: &[InterfaceConfig]) -> BTreeMap<String, IfIndex> {
    interfaces.iter().map(|i| (i.name.clone(), i.index)).collect()
}

impl SessionEntry {
    /// The local address for packets.
    fn local(&self, listen: &[IpAddr]) -> IpAddr {
        let any: IpAddr = match self.peer.address {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        // If packets are received on one address only, replies must go to it.
        let mut of_family = listen.iter().filter(|l| l.is_ipv4() == self.peer.address.is_ipv4());
        let only = of_family.next().filter(|_| of_family.next().is_none() && self.peer.interface.is_none());
        self.requested.local.or(only.copied()).unwrap_or(any)
    }
}

fn timers(settings: &BfdSettings) -> Timers {
    let BfdSettings { min_tx, min_rx, multiplier, .. } = *settings;
    Timers { min_tx: min_tx * 1000, min_rx: min_rx * 1000, multiplier }
}
