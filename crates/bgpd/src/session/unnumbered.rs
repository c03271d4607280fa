//! Neighbours by interface: sessions over link-local addresses that are learnt.
//!
//! The router sends Router Advertisements on each interface that the configuration names (RFC 4861, with lifetime 0), and
//! learns the neighbour's link-local address from those that it receives, as FRR does. A neighbour that sends none is learnt
//! from its connection. There is one neighbour on each interface.
//!
//! Another address on the link takes the place of the known one at once if that has no session, else after
//! [`OTHER_HEARD`] advertisements without one of the known address: a neighbour with a new address is followed, and a
//! second router on the link ends no session.

use super::advertisements::{AdvertisementSocket, Received};
use super::log::Who;
use super::{ADVERTISEMENTS, Millis, Peer, Sessions};
use mio::Interest;
use mio::unix::SourceFd;
use ribtide_bfdd::Learnt;
use ribtide_bgp::peer::{MOST_PEERS, PeerId};
use ribtide_config::{
    BfdPeer, BfdSession, BfdSettings, InterfaceConfig, InterfaceNeighbor, NeighborConfig, most_specific,
};
use ribtide_prefix::zone::{split_zone, with_zone, zone_of};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{Sender, TrySend};
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::notification::cease;
use ribtide_wire::ndp::Message;
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};

/// Time between advertisements on a link.
const ADVERTISEMENT_INTERVAL: Millis = 10_000;
/// Time to the next one after one that could not be sent: the interface has no link-local address yet.
const ADVERTISEMENT_RETRY: Millis = 1_000;
/// The least time between advertisements on a link (RFC 4861 section 6.2.6 has 3 s, for links with many hosts).
const ADVERTISEMENT_SPACING: Millis = 1_000;
/// Advertisements of another address after which it takes the place of one with a session.
const OTHER_HEARD: u32 = 3;
/// Messages read from the socket before timers are looked at again.
const MESSAGES_BATCH_MAX: usize = 256;

/// The link of a neighbour by interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Link {
    /// The kernel's index of the interface.
    pub(super) index: u32,
    /// Its name.
    pub(super) name: String,
}

impl Link {
    /// Where to connect to, for the neighbour's address with its zone.
    pub(super) fn socket_address(&self, address: IpAddr, port: u16) -> SocketAddr {
        match split_zone(address).0 {
            IpAddr::V6(address) => SocketAddrV6::new(address, port, 0, self.index).into(),
            IpAddr::V4(address) => (address, port).into(),
        }
    }
}

/// An interface with a neighbour, which is up.
#[derive(Debug)]
struct Watched {
    name: String,
    /// When the next advertisement is due.
    next: Millis,
    /// When the last one was sent.
    sent: Option<Millis>,
    /// A solicitation is still to be sent.
    solicits: bool,
    /// Another address than the neighbour's, and how often it was heard since the neighbour's.
    other: Option<(Ipv6Addr, u32)>,
}

/// Neighbours by interface, and what is heard on their links.
#[derive(Default)]
pub(super) struct Unnumbered {
    configured: Vec<InterfaceNeighbor>,
    /// The socket, while there are such neighbours.
    socket: Option<AdvertisementSocket>,
    /// The interfaces of neighbours that are up, by the kernel's index.
    watched: BTreeMap<u32, Watched>,
    /// The neighbour on each interface.
    peers: BTreeMap<u32, PeerId>,
    /// Where BFD sessions with these neighbours are asked for.
    bfd: Option<Sender<Learnt>>,
    /// BFD may have to know other neighbours or settings.
    unshared: bool,
}

impl Unnumbered {
    /// No neighbours yet.
    pub(super) fn new(bfd: Option<Sender<Learnt>>) -> Unnumbered {
        Unnumbered { bfd, ..Unnumbered::default() }
    }

    /// A neighbour by interface came, went, or has other settings.
    pub(super) fn unshared(&mut self) {
        self.unshared = true;
    }

    /// Whether BFD does not know all yet.
    pub(super) fn is_unshared(&self) -> bool {
        self.unshared
    }

    /// Whether there are neighbours by interface.
    pub(super) fn is_configured(&self) -> bool {
        !self.configured.is_empty()
    }

    /// When the next advertisement is due.
    pub(super) fn next(&self) -> Option<Millis> {
        self.socket.as_ref()?;
        self.watched.values().map(|watched| watched.next).min()
    }

    /// The settings of the neighbour on an interface.
    fn settings(&self, name: &str) -> Option<&InterfaceNeighbor> {
        most_specific(&self.configured, name)
    }

    /// The neighbour is gone.
    pub(super) fn forget(&mut self, link: &Link, id: PeerId) {
        if self.peer_on(link.index) == Some(id) {
            self.peers.remove(&link.index);
        }
    }

    /// The neighbour on an interface.
    pub(super) fn peer_on(&self, index: u32) -> Option<PeerId> {
        self.peers.get(&index).copied()
    }
}

/// An interface whose neighbour is not known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WaitingInterface {
    /// The name or pattern in the configuration, or the interface that a pattern stands for.
    pub interface: String,
    /// The group.
    pub group: String,
    /// Why there is none, as a sentence.
    pub reason: &'static str,
}

impl Sessions {
    /// Takes the configured neighbours by interface. Those on interfaces that are no longer configured end.
    pub(super) fn configure_interfaces(&mut self, configured: &[InterfaceNeighbor]) {
        self.unnumbered.configured = configured.to_vec();
        if configured.is_empty() {
            self.unnumbered.socket = None;
        } else if self.unnumbered.socket.is_none() {
            let watched = AdvertisementSocket::open().and_then(|socket| {
                let fd = SourceFd(&socket.descriptor());
                self.poll.registry().register(&mut { fd }, ADVERTISEMENTS, Interest::READABLE)?;
                Ok(socket)
            });
            match watched {
                Ok(socket) => self.unnumbered.socket = Some(socket),
                Err(error) => tracing::error!(
                    target: target::BGP_SESSION,
                    %error,
                    "no Router Advertisements are sent or heard, so neighbours by interface must connect to this router; run it \
                     with CAP_NET_RAW"
                ),
            }
            self.unnumbered.watched.clear();
        }
        let present: Vec<u32> = self.links.indexes().collect();
        present.into_iter().for_each(|index| self.watch_link(index));
    }

    /// Begins or ends advertisements on an interface after a change of it or of the configuration. A neighbour on an
    /// interface that is gone, has another name, or is not configured any more is removed.
    pub(super) fn watch_link(&mut self, index: u32) {
        let state = self.links.get(index);
        let configured = state.is_some_and(|state| self.unnumbered.settings(&state.name).is_some());
        let name = state.filter(|_| configured).map(|state| state.name.clone());
        let up = state.is_some_and(|state| state.up);
        let renamed = |known: &str| name.as_deref() != Some(known);
        let present = self.unnumbered.peer_on(index).filter(|id| {
            let link = self.peers.get(id).and_then(|peer| peer.link.as_ref());
            link.is_some_and(|link| renamed(&link.name))
        });
        let Unnumbered { socket, watched, .. } = &mut self.unnumbered;
        match name.filter(|_| up) {
            Some(name) if watched.get(&index).is_none_or(|watched| watched.name != name) => {
                if let Some(socket) = socket {
                    socket.join(index);
                }
                let next = self.clock.now();
                watched.insert(index, Watched { name, next, sent: None, solicits: true, other: None });
            }
            Some(_) => {}
            None => {
                if watched.remove(&index).is_some()
                    && let Some(socket) = socket
                {
                    socket.leave(index);
                }
            }
        }
        if let Some(id) = present {
            self.remove(id, &Notification::cease(cease::PEER_DECONFIGURED));
        }
    }

    /// A neighbour whose interface has another number now is another neighbour. It is looked for at once.
    pub(super) fn renumber_links(&mut self) {
        let renumbered = self.peers.iter().filter(|(_, peer)| {
            let Some(link) = &peer.link else { return false };
            zone_of(peer.address).is_some_and(|now| now != zone(&self.interfaces, link.index, &link.name))
        });
        let renumbered: Vec<PeerId> = renumbered.map(|(id, _)| *id).collect();
        let now = self.clock.now();
        for id in renumbered {
            let index = self.peers.get(&id).and_then(|peer| Some(peer.link.as_ref()?.index));
            self.remove(id, &Notification::cease(cease::CONFIG_CHANGE));
            if let Some(watched) = index.and_then(|index| self.unnumbered.watched.get_mut(&index)) {
                (watched.solicits, watched.next) = (true, now);
            }
        }
    }

    /// Sends the advertisements that are due.
    pub(super) fn advertise(&mut self) {
        let now = self.clock.now();
        let Unnumbered { socket: Some(socket), watched, .. } = &mut self.unnumbered else { return };
        for (index, watched) in watched.iter_mut().filter(|(_, watched)| watched.next <= now) {
            let sent = socket.advertise(*index, &watched.name);
            watched.next = now + if sent.is_ok() { ADVERTISEMENT_INTERVAL } else { ADVERTISEMENT_RETRY };
            if sent.is_ok() {
                watched.sent = Some(now);
                // The neighbour's advertisements need not be waited for.
                watched.solicits &= socket.solicit(*index, &watched.name).is_err();
            }
        }
    }

    /// Reads Router Advertisements and Solicitations of the links. Returns whether there may be more.
    pub(super) fn hear(&mut self) -> bool {
        for _ in 0..MESSAGES_BATCH_MAX {
            let Some(socket) = &mut self.unnumbered.socket else { return false };
            match socket.receive() {
                Ok(Some(received)) => self.heard(received),
                Ok(None) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    tracing::warn!(target: target::BGP_SESSION, %error, "Router Advertisements cannot be read");
                    return false;
                }
            }
        }
        true
    }

    fn heard(&mut self, received: Received) {
        let Received { interface, from, message } = received;
        let now = self.clock.now();
        let Some(watched) = self.unnumbered.watched.get_mut(&interface) else { return };
        match message {
            Message::RouterSolicitation => {
                let earliest = watched.sent.map_or(now, |sent| sent + ADVERTISEMENT_SPACING);
                watched.next = watched.next.min(earliest.max(now));
            }
            Message::RouterAdvertisement { .. } if from.is_unicast_link_local() => {
                self.router_on(interface, from, false);
            }
            Message::RouterAdvertisement { .. } => {}
        }
    }

    /// There is a router with this address on a link: it advertised itself, or `connects`. Returns the neighbour if it is
    /// that one.
    pub(super) fn router_on(&mut self, index: u32, address: Ipv6Addr, connects: bool) -> Option<PeerId> {
        let watched = self.unnumbered.watched.get_mut(&index)?;
        let zoned: IpAddr = with_zone(address, zone(&self.interfaces, index, &watched.name)).into();
        let known = self.unnumbered.peers.get(&index).copied();
        let Some(id) = known else { return self.found(index, zoned) };
        let peer = self.peers.get(&id)?;
        if peer.address == zoned {
            watched.other = None;
            return Some(id);
        }
        let before = watched.other.filter(|(other, _)| *other == address).map_or(0, |(_, heard)| heard);
        let heard = if connects { before } else { before + 1 };
        watched.other = Some((address, heard));
        if peer.up.is_some() && heard < OTHER_HEARD {
            return None;
        }
        watched.other = None;
        let who = Who::of(peer);
        tracing::info!(
            target: target::BGP_SESSION,
            neighbor = %who,
            address = %split_zone(zoned).0,
            "another router is on the link, and takes the neighbor's place"
        );
        self.remove(id, &Notification::cease(cease::PEER_DECONFIGURED));
        self.found(index, zoned)
    }

    /// A neighbour on a link is known for the first time.
    fn found(&mut self, index: u32, address: IpAddr) -> Option<PeerId> {
        let name = self.unnumbered.watched.get(&index)?.name.clone();
        let neighbor = self.unnumbered.settings(&name)?;
        // A range may have it already, or another interface with the same number.
        if self.by_address.contains_key(&address) || self.peers.len() >= MOST_PEERS {
            return None;
        }
        let settings = neighbor.settings.clone();
        let description = neighbor.description.clone();
        let neighbor = NeighborConfig { address, description, settings };
        let id = self.configure_on(&neighbor, Some(Link { index, name }));
        self.start(id);
        self.peers.contains_key(&id).then_some(id)
    }

    /// Notes the neighbour of a link.
    pub(super) fn note_link(&mut self, link: &Link, id: PeerId) {
        self.unnumbered.peers.insert(link.index, id);
        self.unnumbered.unshared();
    }

    /// Asks for the BFD sessions of neighbours by interface, if those may have changed. Without room in the queue the next
    /// turn does it.
    pub(super) fn share_bfd(&mut self) {
        if !self.unnumbered.unshared {
            return;
        }
        let session = |peer: &Peer| {
            let (link, settings) = (peer.link.as_ref()?, peer.settings.bfd?);
            let interface = Some(link.name.clone());
            // Without a session of BGP there are no next hops either, so that nothing but it need be strict.
            let settings = BfdSettings { strict: false, ..settings };
            let key = BfdPeer { address: split_zone(peer.address).0, interface };
            Some((key, BfdSession { settings, local: None, bgp: true }))
        };
        let learnt: Learnt = self.peers.values().filter_map(session).collect();
        let sent = self.unnumbered.bfd.as_ref().map(|bfd| bfd.try_send(learnt));
        // It is closed only when the process is stopping.
        self.unnumbered.unshared = matches!(sent, Some(Err(TrySend::Full(_))));
    }

    /// The address of an accepted connection, with the zone if it is link-local.
    pub(super) fn zoned(&self, from: SocketAddr) -> IpAddr {
        match from {
            SocketAddr::V6(from) if from.ip().is_unicast_link_local() && from.scope_id() != 0 => {
                let index = from.scope_id();
                let name = self.links.get(index).map_or("", |state| &state.name);
                with_zone(*from.ip(), zone(&self.interfaces, index, name)).into()
            }
            from => from.ip().to_canonical(),
        }
    }

    /// The link of an accepted connection from a link-local address.
    pub(super) fn link_of(&self, from: SocketAddr) -> Option<Link> {
        match from {
            SocketAddr::V6(from) if from.ip().is_unicast_link_local() => {
                let index = from.scope_id();
                Some(Link { index, name: self.links.get(index)?.name.clone() })
            }
            _ => None,
        }
    }

    /// The interfaces whose neighbours are not known: those that are up, and names of which there is none.
    pub fn waiting_interfaces(&self) -> Vec<WaitingInterface> {
        let mut waiting = Vec::new();
        for neighbor in &self.unnumbered.configured {
            let wait = |interface: &str, reason| WaitingInterface {
                interface: interface.to_owned(),
                group: neighbor.settings.group.clone(),
                reason,
            };
            let mut exists = false;
            for (index, state) in self.links.iter() {
                // The most specific pattern has the interface.
                if self.unnumbered.settings(&state.name) != Some(neighbor) {
                    continue;
                }
                exists = true;
                match (self.unnumbered.peers.contains_key(&index), state.up) {
                    (true, _) => {}
                    (false, true) => {
                        waiting.push(wait(&state.name, "no router advertised itself or connected"))
                    }
                    (false, false) if neighbor.interface.is_name() => {
                        waiting.push(wait(&state.name, "the interface is down"));
                    }
                    (false, false) => {}
                }
            }
            if !exists && neighbor.interface.is_name() {
                waiting.push(wait(neighbor.interface.as_str(), "there is no such interface"));
            }
        }
        waiting
    }

    /// Names of the interfaces of neighbours, by the zones of their addresses.
    pub fn zone_names(&self) -> BTreeMap<u32, String> {
        self.links
            .iter()
            .map(|(index, state)| (zone(&self.interfaces, index, &state.name), state.name.clone()))
            .collect()
    }

    /// The address of the neighbour that a client names: by its address, by that and its interface as in `fe80::1%swp1`, or
    /// by its interface alone.
    pub fn neighbor_named(&self, text: &str) -> Option<IpAddr> {
        let (address, interface) = match text.split_once('%') {
            Some((address, interface)) => (address.parse::<IpAddr>().ok()?, Some(interface)),
            None => match text.parse::<IpAddr>() {
                Ok(address) if self.by_address.contains_key(&address) => return Some(address),
                Ok(address) => (address, None),
                Err(_) => {
                    let named = |peer: &&Peer| peer.link.as_ref().is_some_and(|link| link.name == text);
                    return self.peers.values().find(named).map(|peer| peer.address);
                }
            },
        };
        let mut on_links = self.peers.values().filter(|peer| {
            let Some(link) = &peer.link else { return false };
            split_zone(peer.address).0 == address && interface.is_none_or(|name| name == link.name)
        });
        let found = on_links.next()?;
        // The same address on two links names neither.
        on_links.next().is_none().then_some(found.address)
    }
}

/// The zone of an interface's link-local addresses: its number in the RIB manager. Without the kernel's interfaces, that is the
/// number of its `[[interface]]` table.
pub(super) fn zone(configured: &[InterfaceConfig], index: u32, name: &str) -> u32 {
    configured.iter().find(|interface| interface.name == name).map_or(index, |interface| interface.index)
}
