//! The topology: the router under test, its senders and receivers, all on one network.
//!
//! Sessions run over IPv4 for every family of routes, because every machine has enough loopback
//! addresses of IPv4.

use crate::harness::place::nth;
use crate::session::Speaker;
use ribtide_prefix::Afi;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, TcpListener};

/// AS number of the router under test.
pub(super) const ASN: u32 = 65_000;
/// AS number of the first external sender; each has its own.
const SENDER_ASN: u32 = 65_100;
/// AS number of all external receivers.
const RECEIVER_ASN: u32 = 65_300;
/// The hold time of all speakers.
const HOLD_TIME: u16 = 90;
/// Length of the network that all are on, in namespaces.
pub(super) const NETWORK: u8 = 16;
/// Length of the same network in IPv6, where next hops of IPv6 routes are.
pub(super) const NETWORK6: u8 = 64;
/// That network: the IPv4 address of each is the end of its IPv6 address.
const IPV6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 0);

/// The router under test and its neighbours.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Topology {
    /// The family of all routes.
    pub(super) family: Afi,
    /// The router's address, which is also its BGP identifier.
    pub(super) router: Ipv4Addr,
    /// Its port.
    pub(super) port: u16,
    /// The neighbours are clients of a route reflector in its own AS; else they are external.
    pub(super) reflector: bool,
    /// The senders.
    pub(super) senders: Vec<Neighbor>,
    /// The receivers; the last one joins late.
    pub(super) receivers: Vec<Neighbor>,
}

/// A neighbour of the router under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Neighbor {
    /// Its address, which is also its BGP identifier.
    pub(super) address: Ipv4Addr,
    /// Its AS number.
    pub(super) asn: u32,
    /// The family of the routes that it sends or gets.
    pub(super) family: Afi,
}

impl Neighbor {
    /// Its speaker.
    pub(super) fn speaker(&self) -> Speaker {
        Speaker { asn: self.asn, router_id: self.address, hold_time: HOLD_TIME }
    }
}

/// A port that is not in use now.
fn free_port(address: Ipv4Addr) -> u16 {
    let port = TcpListener::bind((address, 0)).and_then(|listener| listener.local_addr());
    port.map_or(11_790, |at| at.port())
}

impl Topology {
    /// So many senders and receivers, and one receiver that joins late. `loopback`: on loopback
    /// addresses, and on an unprivileged port.
    pub(super) fn new(
        family: Afi,
        senders: u32,
        receivers: u32,
        reflector: bool,
        loopback: bool,
    ) -> Topology {
        let network = if loopback { [127, 255, 0, 0] } else { [10, 255, 0, 0] };
        let network = Ipv4Addr::from(network);
        let neighbor = |at: u32, n: u32, asn: u32| Neighbor {
            address: nth(network, at + n),
            asn: if reflector { ASN } else { asn },
            family,
        };
        Topology {
            family,
            router: nth(network, 1),
            port: if loopback { free_port(nth(network, 1)) } else { 179 },
            reflector,
            senders: (0..senders).map(|n| neighbor(0x0101, n, SENDER_ASN + n)).collect(),
            receivers: (0..=receivers).map(|n| neighbor(0x0401, n, RECEIVER_ASN)).collect(),
        }
    }

    /// All neighbours: senders, then receivers.
    pub(super) fn neighbors(&self) -> impl Iterator<Item = &Neighbor> {
        self.senders.iter().chain(&self.receivers)
    }

    /// The next hop in routes of the speaker with `address`.
    pub(super) fn next_hop(&self, address: Ipv4Addr) -> IpAddr {
        match self.family {
            Afi::Ipv4 => address.into(),
            Afi::Ipv6 => Ipv6Addr::from(u128::from(IPV6) | u128::from(u32::from(address))).into(),
        }
    }

    /// The router's own IPv6 address, which it needs to be a next hop of IPv6 routes.
    pub(super) fn router6(&self) -> Option<IpAddr> {
        Some(self.next_hop(self.router)).filter(IpAddr::is_ipv6)
    }

    /// Number of the receiver that joins late.
    pub(super) fn late(&self) -> usize {
        self.receivers.len() - 1
    }
}
