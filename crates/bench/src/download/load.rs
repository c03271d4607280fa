//! The load: routes as zebra sends them.

use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_wire::fpm;
use ribtide_wire::netlink::{Forward, Hop, Hops, Member, NextHop, NextHops, Route, Via};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The switch's addresses on the routes' port.
pub(super) const SWITCH: (Ipv4Addr, Ipv6Addr) =
    (Ipv4Addr::new(10, 0, 0, 1), Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
/// Next hops of a route, at most.
pub(super) const NEXT_HOPS_MAX: u8 = 8;
/// The first routes' destinations.
const FIRST_V4: u32 = u32::from_be_bytes([11, 0, 0, 0]);
const FIRST_V6: u128 = 0x2a00 << 112;
const BGP: u8 = 186;
/// The next-hop objects of routes that share one.
const OBJECTS: [(Afi, u32); 2] = [(Afi::Ipv4, 1), (Afi::Ipv6, 100)];

/// Routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
pub(super) struct Load {
    /// IPv4, each a /24.
    pub(super) ipv4: u32,
    /// IPv6, each a /48.
    pub(super) ipv6: u32,
    /// Next hops of each route, 1 to [`NEXT_HOPS_MAX`].
    pub(super) next_hops: u8,
}

impl Load {
    /// The number of routes.
    pub(super) fn total(self) -> u32 {
        self.ipv4 + self.ipv6
    }

    /// The neighbours of the routes.
    pub(super) fn neighbors(self) -> impl Iterator<Item = IpAddr> {
        let v4 = (0..self.next_hops).map(|n| gateway(Afi::Ipv4, n));
        v4.chain((0..self.next_hops).filter(move |_| self.ipv6 > 0).map(|n| gateway(Afi::Ipv6, n)))
    }

    /// Every route as zebra sends it, with inline next hops, or with a next-hop object that is sent
    /// first.
    pub(super) fn frames(self, ifindex: u32, objects: bool) -> Vec<u8> {
        let mut out = Vec::new();
        for (afi, first) in [(Afi::Ipv4, 1), (Afi::Ipv6, 100)] {
            let hops: Vec<Hop> = (0..self.next_hops).map(|n| hop(afi, n, ifindex)).collect();
            let next_hops = match objects && self.count(afi) > 0 {
                false => NextHops::Inline(Hops::from(&hops[..])),
                true => NextHops::Id(write_objects(&mut out, first, afi, &hops)),
            };
            self.write_routes(&mut out, afi, next_hops);
        }
        out
    }

    /// More memory, in bytes, than all daemons use until the last route.
    pub(super) fn memory(self) -> usize {
        self.total() as usize * 1024
    }

    /// Every route, through these neighbours.
    pub(super) fn frames_through(self, neighbors: &[u8], ifindex: u32) -> Vec<u8> {
        let mut out = Vec::new();
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            let hops: Vec<Hop> = neighbors.iter().map(|n| hop(afi, *n, ifindex)).collect();
            self.write_routes(&mut out, afi, NextHops::Inline(Hops::from(&hops[..])));
        }
        out
    }

    /// Every route, through a next-hop object for the `n`th neighbour, which is sent first.
    pub(super) fn frames_of_object(self, n: u8, ifindex: u32) -> Vec<u8> {
        let mut out = self.object(n, ifindex);
        for (afi, id) in OBJECTS {
            self.write_routes(&mut out, afi, NextHops::Id(id));
        }
        out
    }

    /// The next-hop objects of [`Load::frames_of_object`] alone.
    pub(super) fn object(self, n: u8, ifindex: u32) -> Vec<u8> {
        let mut out = Vec::new();
        for (afi, id) in OBJECTS.into_iter().filter(|(afi, _)| self.count(*afi) > 0) {
            write_object(&mut out, id, Forward::Via(afi, hop(afi, n, ifindex).via));
        }
        out
    }

    /// The deletion of every route.
    pub(super) fn deletes(self) -> Vec<u8> {
        let mut out = Vec::new();
        self.each(|prefix| fpm::write_delete(&mut out, prefix, 0, BGP));
        out
    }

    /// Every destination.
    pub(super) fn prefixes(self) -> impl Iterator<Item = String> {
        let mut all = Vec::new();
        self.each(|prefix| all.push(prefix.to_string()));
        all.into_iter()
    }

    fn each(self, mut each: impl FnMut(AnyPrefix)) {
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            (0..self.count(afi)).for_each(|n| each(prefix(afi, n)));
        }
    }

    fn count(self, afi: Afi) -> u32 {
        if afi == Afi::Ipv4 { self.ipv4 } else { self.ipv6 }
    }

    fn write_routes(self, out: &mut Vec<u8>, afi: Afi, next_hops: NextHops<'_>) {
        for n in 0..self.count(afi) {
            let route = Route::new(prefix(afi, n), 0, BGP, next_hops);
            fpm::write_route(out, &route).expect("eight next hops fit");
        }
    }
}

/// The `n`th destination.
fn prefix(afi: Afi, n: u32) -> AnyPrefix {
    let prefix = match afi {
        Afi::Ipv4 => AnyPrefix::from_addr(Ipv4Addr::from_bits(FIRST_V4 + (n << 8)).into(), 24),
        Afi::Ipv6 => AnyPrefix::from_addr(Ipv6Addr::from_bits(FIRST_V6 + (u128::from(n) << 80)).into(), 48),
    };
    prefix.expect("no bits beyond the length")
}

fn hop(afi: Afi, n: u8, ifindex: u32) -> Hop {
    Hop { via: Via { gateway: Some(gateway(afi, n)), ifindex, onlink: false }, weight: 1 }
}

fn gateway(afi: Afi, n: u8) -> IpAddr {
    if afi == Afi::Ipv4 { gateway_v4(n) } else { gateway_v6(n) }
}

/// The `n`th IPv4 neighbour.
pub(super) fn gateway_v4(n: u8) -> IpAddr {
    Ipv4Addr::new(10, 0, 0, 2 + n).into()
}

/// The `n`th IPv6 neighbour.
pub(super) fn gateway_v6(n: u8) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 2 + u16::from(n)).into()
}

/// Writes an object for each next hop, and a group for several; returns the id for routes.
fn write_objects(out: &mut Vec<u8>, first: u32, afi: Afi, hops: &[Hop]) -> u32 {
    let mut write = |id, forward| write_object(out, id, forward);
    let members: Vec<Member> =
        (first..).zip(hops).map(|(id, hop)| Member { id, weight: hop.weight }).collect();
    for (member, hop) in members.iter().zip(hops) {
        write(member.id, Forward::Via(afi, hop.via));
    }
    if let [one] = members[..] {
        return one.id;
    }
    let group = first + u32::from(NEXT_HOPS_MAX);
    write(group, Forward::Group(members[..].into()));
    group
}

fn write_object(out: &mut Vec<u8>, id: u32, forward: Forward<'_>) {
    fpm::write_next_hop(out, &NextHop { id, protocol: BGP, forward }).expect("eight members fit");
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::netlink::Content;

    #[test]
    fn frames_hold_the_routes() {
        for (objects, messages) in [(false, 5), (true, 3 * 2 + 5)] {
            let load = Load { ipv4: 3, ipv6: 2, next_hops: 2 };
            assert_eq!((load.total(), load.neighbors().count()), (5, 4));
            let bytes = load.frames(7, objects);
            let (mut at, mut seen, mut routes) = (0, 0, Vec::new());
            while let Some(frame) = fpm::frame(&bytes[at..]).unwrap() {
                for message in frame.messages() {
                    seen += 1;
                    if let Content::NewRoute(route) = message.unwrap() {
                        routes.push(route.prefix.to_string());
                        match route.next_hops {
                            NextHops::Inline(hops) => assert!(!objects && hops.count() == 2),
                            NextHops::Id(id) => {
                                assert_eq!(id, if route.prefix.addr().is_ipv4() { 9 } else { 108 })
                            }
                            NextHops::None => panic!(),
                        }
                    }
                }
                at += frame.len;
            }
            assert_eq!((at, seen), (bytes.len(), messages));
            let through = load.frames_through(&[1], 7);
            assert!(matches!(
                fpm::frame(&through).unwrap().unwrap().messages().next().unwrap().unwrap(),
                Content::NewRoute(Route { next_hops: NextHops::Inline(hops), .. }) if hops.count() == 1
            ));
            assert_eq!(routes, ["11.0.0.0/24", "11.0.1.0/24", "11.0.2.0/24", "2a00::/48", "2a00:0:1::/48"]);
        }
    }
}
