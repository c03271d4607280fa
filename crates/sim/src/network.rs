//! A small network around a router that installs routes, and its history: links, static routes,
//! kernel routes, and neighbours and next hops of every kind. Next hops are on the link, off it,
//! resolved by other BGP routes, in a circle, or the router's own.

use crate::history::{Announcement, CLUSTER_ID, LOCAL_ASN, MAX_MESSAGE, ROUTER_ID};
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::peer::{EgressSettings, FamilySet, NextHopRule, PeerId, PeerInfo, PeerKind};
use ribtide_policy::Policy;
use ribtide_prefix::{Afi, AnyPrefix, Families, Rng};
use ribtide_rib::{
    GatewayEvent, IfIndex, InterfaceEvent, NONE, NextHops, Protocol, ReceivedHop, RibIn, RouteBatch,
    RouteSet, VrfId,
};
use ribtide_wire::bgp::NextHop;
use ribtide_wire::bgp::attribute::Origin;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// An event of a history.
#[derive(Clone, Debug)]
pub enum Event {
    /// A session of the peer is established.
    Up(usize),
    /// The session ends.
    Down(usize),
    /// The session is lost, and its routes are retained (RFC 4724).
    Lose(usize),
    /// Retained routes that were not announced again are removed: End-of-RIB, or a timer.
    Sweep(usize),
    /// The peer announces prefixes of one family.
    Announce(usize, Announcement, Vec<AnyPrefix>),
    /// The peer withdraws prefixes of one family.
    Withdraw(usize, Vec<AnyPrefix>),
    /// An interface, a gateway, a static route or one of others in the kernel changes.
    Network(RibIn),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list =
            |prefixes: &[AnyPrefix]| prefixes.iter().map(AnyPrefix::to_string).collect::<Vec<_>>().join(" ");
        match self {
            Event::Announce(peer, with, prefixes) => {
                write!(f, "peer {peer} announces {} by {:?}", list(prefixes), with.next_hop)
            }
            Event::Withdraw(peer, prefixes) => write!(f, "peer {peer} withdraws {}", list(prefixes)),
            event => write!(f, "{event:?}"),
        }
    }
}

/// A network and its history.
pub struct Network {
    /// Settings of BGP.
    pub options: DecisionOptions,
    /// Whether gateways may resolve through a default route.
    pub resolve_via_default: bool,
    /// The peers, as in their first session.
    pub peers: Vec<PeerInfo>,
    /// The number of prefixes and next hops in events.
    pub size: usize,
    /// Its history, in order.
    pub events: Vec<Event>,
}

/// Links, at most, numbered from 1.
const LINKS: u32 = 3;
/// Prefixes that hold no next hop on a link.
const APART: [&str; 11] = [
    "20.0.0.0/24",
    "20.0.1.0/24",
    "20.0.2.0/24",
    "20.0.0.0/16",
    "30.0.0.0/24",
    "30.0.1.0/24",
    "192.0.2.0/24",
    "192.0.2.9/32",
    "2001:db8:20::/48",
    "2001:db8:30::/48",
    "2001:db8:ffff::/48",
];
const AROUND: [&str; 3] = ["10.0.1.16/28", "0.0.0.0/0", "::/0"];
const ON_LINK: [&str; 6] =
    ["10.0.1.20", "10.0.1.21", "10.0.2.20", "10.0.3.20", "2001:db8:1::20", "2001:db8:2::20"];
const ELSEWHERE: [&str; 11] = [
    "192.0.2.9",
    "192.0.2.10",
    "20.0.0.1",
    "20.0.1.1",
    "20.0.2.1",
    "30.0.0.1",
    "30.0.1.1",
    "10.0.1.1",
    "2001:db8:20::1",
    "2001:db8:30::1",
    "2001:db8:ffff::9",
];

impl Network {
    /// A network without neighbours or history.
    pub fn empty(options: DecisionOptions) -> Network {
        let size = APART.len() + AROUND.len() + ON_LINK.len() + ELSEWHERE.len();
        Network { options, resolve_via_default: true, peers: Vec::new(), size, events: Vec::new() }
    }

    /// A network with a history of `length` events.
    pub fn new(rng: &mut Rng, options: DecisionOptions, choice: Choice, length: usize) -> Network {
        let resolve_via_default = !rng.one_in(4);
        let mut network = Network { resolve_via_default, ..Network::empty(options) };
        let kinds = [Kind::Multihop, Kind::Internal, Kind::Client, Kind::SingleHop, Kind::SingleHop];
        let kinds = if choice == Choice::Plain { &kinds[..3] } else { &kinds };
        for _ in 0..2 + rng.index(4) {
            let kind = *rng.pick(kinds);
            network.neighbor(kind);
        }
        network.events.extend((1..=LINKS).map(|index| link(index, true)));
        let mut up = vec![false; network.peers.len()];
        let mut retained = up.clone();
        while network.events.len() < length {
            let who = rng.index(up.len());
            let event = match rng.index(20) {
                0 if up[who] && rng.one_in(2) => Event::Lose(who),
                0 if up[who] => Event::Down(who),
                0..=2 if retained[who] => Event::Sweep(who),
                _ if !up[who] => Event::Up(who),
                1 | 2 => link(1 + rng.index(LINKS as usize) as u32, rng.one_in(2)),
                3 => gateway(rng),
                4..=6 => other_route(rng, choice),
                7..=9 => Event::Withdraw(who, some_prefixes(rng, choice)),
                _ => {
                    let prefixes = some_prefixes(rng, choice);
                    let afi = prefixes[0].afi();
                    let (next_hop, asns) = (pick_next_hop(rng, choice, afi), 1 + rng.index(3));
                    Event::Announce(who, announcement(&network.peers[who], next_hop, asns), prefixes)
                }
            };
            match event {
                Event::Up(who) => up[who] = true,
                Event::Down(who) => (up[who], retained[who]) = (false, false),
                Event::Lose(who) => (up[who], retained[who]) = (false, true),
                Event::Sweep(who) => retained[who] = false,
                _ => {}
            }
            network.events.push(event);
        }
        network
    }

    /// Adds a neighbour and returns its number.
    pub fn neighbor(&mut self, kind: Kind) -> usize {
        let n = self.peers.len();
        self.peers.push(peer(n, kind));
        n
    }

    /// Adds an event.
    pub fn happens(&mut self, event: Event) {
        self.events.push(event);
    }
}

/// The kinds of neighbours and BGP routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Choice {
    /// Neighbours may be off-link; next hops are addresses on links, and no BGP route resolves
    /// them.
    Plain,
    /// Neighbours of all kinds; next hops on links and off them, resolved by static or BGP routes,
    /// in circles, and the router's own.
    Any,
}

/// How a neighbour is connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// External, on a link.
    SingleHop,
    /// External, multihop.
    Multihop,
    /// Internal.
    Internal,
    /// Internal, a client of this reflector.
    Client,
}

fn peer(n: usize, kind: Kind) -> PeerInfo {
    let byte = n as u8 + 2;
    let address = match kind {
        Kind::SingleHop => Ipv4Addr::new(10, 0, 1, byte),
        Kind::Multihop | Kind::Internal | Kind::Client => Ipv4Addr::new(172, 16, 0, byte),
    };
    let of = match kind {
        Kind::SingleHop | Kind::Multihop => PeerKind::External,
        Kind::Internal => PeerKind::Internal,
        Kind::Client => PeerKind::Client,
    };
    let families = FamilySet::UNICAST;
    let own = NextHopRule::Own {
        v4: Some(Ipv4Addr::new(10, 0, 1, 1)),
        v6: Some(Ipv6Addr::new(0x2001, 0xdb8, 1, 0, 0, 0, 0, 1)),
    };
    PeerInfo {
        id: PeerId(n as u32),
        session: 0,
        address: address.into(),
        asn: if of.is_internal() { LOCAL_ASN } else { 64500 + n as u32 },
        router_id: Ipv4Addr::new(10, 1, 0, byte),
        kind: of,
        multihop: kind == Kind::Multihop,
        link: None,
        families,
        path_ids: FamilySet::NONE,
        long_lived: false,
        egress: EgressSettings {
            cluster_id: CLUSTER_ID,
            max_message: MAX_MESSAGE,
            next_hop: if of == PeerKind::External { own } else { NextHopRule::Keep },
            ..EgressSettings::new(of, LOCAL_ASN, ROUTER_ID, families, Arc::new(Policy::accept()))
        },
    }
}

/// What a peer announces by a next hop, with an AS path of this length.
pub fn announcement(peer: &PeerInfo, next_hop: IpAddr, asns: usize) -> Announcement {
    let first = (!peer.kind.is_internal()).then_some(peer.asn);
    let path = first.into_iter().chain(64600..).take(asns).collect();
    Announcement {
        origin: Origin::Igp,
        path: vec![(true, path)],
        med: None,
        local_pref: peer.kind.is_internal().then_some(100),
        communities: Vec::new(),
        originator: None,
        clusters: Vec::new(),
        bandwidths: Vec::new(),
        next_hop: match next_hop {
            IpAddr::V4(address) => NextHop::V4(address),
            IpAddr::V6(global) => NextHop::V6 { global, link_local: None },
        },
    }
}

/// A link with an address of each family comes up, or goes down.
pub fn link(index: IfIndex, up: bool) -> Event {
    let v4 = Ipv4Addr::new(10, 0, index as u8, 1);
    let v6 = Ipv6Addr::new(0x2001, 0xdb8, index as u16, 0, 0, 0, 0, 1);
    Event::Network(RibIn::Interface(InterfaceEvent {
        vrf: VrfId::DEFAULT,
        index,
        name: format!("eth{index}"),
        up,
        loopback: false,
        addresses: [(v4.into(), 24), (v6.into(), 64)]
            .map(|(a, len)| (a, AnyPrefix::from_addr(a, len).unwrap()))
            .into(),
    }))
}

/// A static or kernel route by these gateways, each with an optional interface; or its withdrawal.
pub fn route(protocol: Protocol, prefix: AnyPrefix, hops: Option<Vec<(IpAddr, Option<IfIndex>)>>) -> Event {
    let hop = |(gateway, interface)| ReceivedHop { interface, ..ReceivedHop::gateway(gateway) };
    let set = |hops: Vec<_>| RouteSet {
        next_hops: match hops.is_empty() {
            true => NextHops::Blackhole,
            false => NextHops::Via(hops.into_iter().map(hop).collect()),
        },
        backup: Vec::new(),
        backup_recursion: false,
        track: None,
        distance: protocol.default_distance(),
        metric: 0,
        allow_recursion: true,
        protocol,
    };
    let index = if hops.is_some() { 0 } else { NONE };
    let mut changes = Families::default();
    match prefix {
        AnyPrefix::V4(prefix) => changes.v4 = vec![(prefix, index)],
        AnyPrefix::V6(prefix) => changes.v6 = vec![(prefix, index)],
    }
    Event::Network(RibIn::Routes(RouteBatch {
        vrf: VrfId::DEFAULT,
        source: protocol.source(),
        sets: hops.map(set).into_iter().collect(),
        changes,
    }))
}

fn other_route(rng: &mut Rng, choice: Choice) -> Event {
    let prefix = pick_prefix(rng, Choice::Any);
    let hops = (!rng.one_in(3)).then(|| {
        let count = [0, 1, 1, 2][rng.index(4)];
        let mut hops: Vec<(IpAddr, Option<IfIndex>)> =
            (0..count).map(|_| (pick_next_hop(rng, choice, prefix.afi()), None)).collect();
        hops.sort_unstable();
        hops.dedup();
        hops
    });
    let protocol = if rng.one_in(3) { Protocol::Kernel } else { Protocol::Static };
    // Kernel routes have an interface, and their gateways are on it.
    let on_link = |n: u32, afi| {
        let texts = [format!("10.0.{n}.20"), format!("2001:db8:{n}::20")];
        (texts[usize::from(afi == Afi::Ipv6)].parse().expect("an address"), Some(n))
    };
    let hops = match protocol {
        Protocol::Kernel => hops.map(|_| {
            let first = 1 + rng.index(LINKS as usize) as u32;
            let links = [vec![first], vec![first, 1 + first % LINKS]];
            rng.pick(&links).iter().map(|n| on_link(*n, prefix.afi())).collect()
        }),
        _ => hops,
    };
    route(protocol, prefix, hops)
}

fn gateway(rng: &mut Rng) -> Event {
    let afi = if rng.one_in(3) { Afi::Ipv6 } else { Afi::Ipv4 };
    let address = pick_next_hop(rng, Choice::Any, afi);
    Event::Network(RibIn::Gateway(GatewayEvent { address, interface: None, usable: !rng.one_in(3) }))
}

fn pick_prefix(rng: &mut Rng, choice: Choice) -> AnyPrefix {
    let most = APART.len() + if choice == Choice::Plain { 0 } else { AROUND.len() };
    let at = rng.index(most);
    APART.iter().chain(&AROUND).nth(at).and_then(|text| text.parse().ok()).expect("a prefix")
}

fn pick_next_hop(rng: &mut Rng, choice: Choice, afi: Afi) -> IpAddr {
    let all = match choice {
        Choice::Plain => &ON_LINK[..],
        Choice::Any => &ON_LINK.iter().chain(&ELSEWHERE).copied().collect::<Vec<_>>(),
    };
    let all = all.iter().map(|text| text.parse().expect("an address"));
    let of_family: Vec<IpAddr> =
        all.filter(|address: &IpAddr| address.is_ipv4() == (afi == Afi::Ipv4)).collect();
    *rng.pick(&of_family)
}

/// Some prefixes of one family, each once.
fn some_prefixes(rng: &mut Rng, choice: Choice) -> Vec<AnyPrefix> {
    let first = pick_prefix(rng, choice);
    let more: Vec<AnyPrefix> = (0..rng.index(4)).map(|_| pick_prefix(rng, choice)).collect();
    let mut some: Vec<AnyPrefix> = more.into_iter().filter(|prefix| prefix.afi() == first.afi()).collect();
    some.push(first);
    some.sort_unstable();
    some.dedup();
    some
}
