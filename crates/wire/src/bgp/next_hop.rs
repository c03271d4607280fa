//! The next hop of an UPDATE's routes.

use ribtide_prefix::Afi;
use ribtide_prefix::zone::{self, split_zone, with_zone, without_zone};
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A next hop. Either form may carry IPv4 routes (RFC 8950); IPv6 routes have the IPv6 form.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum NextHop {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// One or two IPv6 addresses (RFC 2545).
    V6 {
        /// The global address. When the peer gave a link-local address alone, that one.
        global: Ipv6Addr,
        /// The link-local address of the same router, valid on the link that the session runs over. With the
        /// zone of that link ([`NextHop::on_link`]), it is the one to forward to.
        link_local: Option<Ipv6Addr>,
    },
}

impl NextHop {
    /// The address to resolve: the IPv4 address, the link-local IPv6 address on a known link with its zone, or
    /// the global IPv6 address.
    pub fn addr(self) -> IpAddr {
        match self {
            NextHop::V4(a) => IpAddr::V4(a),
            NextHop::V6 { link_local: Some(local), .. } if zone::zone_of(local.into()).is_some() => {
                IpAddr::V6(local)
            }
            NextHop::V6 { global, .. } => IpAddr::V6(global),
        }
    }

    /// The first address as on the wire: what policies match.
    pub fn first_addr(self) -> IpAddr {
        match self {
            NextHop::V4(a) => IpAddr::V4(a),
            NextHop::V6 { global, .. } => split_zone(global.into()).0,
        }
    }

    /// Whether it is a link-local address without a global one.
    pub fn is_link_local(self) -> bool {
        matches!(self, NextHop::V6 { global, .. } if global.is_unicast_link_local())
    }

    /// The same where its link-local address is on the link of interface `zone`: that of a session over
    /// link-local addresses.
    pub fn on_link(self, zone: u32) -> NextHop {
        match self {
            NextHop::V4(_) => self,
            NextHop::V6 { global, link_local } => NextHop::V6 {
                global: with_zone(global, zone),
                link_local: link_local.map(|local| with_zone(local, zone)),
            },
        }
    }

    /// The next hop of an MP_REACH_NLRI of address family `afi`; `None` when its length is wrong for that.
    pub(super) fn from_mp(afi: Afi, bytes: &[u8]) -> Option<NextHop> {
        if let (Afi::Ipv4, Ok(four)) = (afi, <[u8; 4]>::try_from(bytes)) {
            return Some(NextHop::V4(four.into()));
        }
        let (first, second) = bytes.split_first_chunk::<16>()?;
        let first = Ipv6Addr::from(*first);
        let second = match second {
            [] => None,
            second => Some(Ipv6Addr::from(<[u8; 16]>::try_from(second).ok()?)),
        };
        Some(NextHop::from_v6(first, second))
    }

    /// Peers encode a lone link-local address in three ways: alone, after `::`, or twice. All
    /// become one form. A second address that is not link-local is ignored.
    pub fn from_v6(first: Ipv6Addr, second: Option<Ipv6Addr>) -> NextHop {
        let usable = |a: &Ipv6Addr| a.is_unicast_link_local() && zone::is_plain(*a);
        let link_local = second.or(Some(first)).filter(usable);
        match link_local {
            Some(local) if first.is_unspecified() => NextHop::V6 { global: local, link_local },
            _ => NextHop::V6 { global: first, link_local },
        }
    }

    /// Whether it is a "valid IP host address" (RFC 4271 section 6.3): not "this network", multicast, reserved or
    /// broadcast (RFC 1122 section 3.2.1.3, RFC 1112 section 4, RFC 4291 section 2.5). A loopback address is one: a session
    /// over the loopback has such next hops; elsewhere it is the receiver's own, which the receiver refuses. The
    /// bits of a link-local address that are zero in each are checked too, since they hold its zone here.
    pub fn is_host(self) -> bool {
        match self {
            NextHop::V4(a) => !matches!(a.octets(), [0 | 224..=255, ..]),
            NextHop::V6 { global, .. } => {
                !(global.is_unspecified() || global.is_multicast()) && zone::is_plain(global)
            }
        }
    }

    /// Appends it as in MP_REACH_NLRI: length, then address or addresses.
    pub(super) fn write_mp(self, out: &mut Vec<u8>) {
        match self {
            NextHop::V4(a) => {
                out.push(4);
                out.extend_from_slice(&a.octets());
            }
            NextHop::V6 { global, link_local: Some(local) } if local != global => {
                out.push(32);
                out.extend_from_slice(&global.octets());
                out.extend_from_slice(&without_zone(local).octets());
            }
            NextHop::V6 { global, .. } => {
                out.push(16);
                out.extend_from_slice(&without_zone(global).octets());
            }
        }
    }
}

impl From<IpAddr> for NextHop {
    /// This address, which may have a zone, and no other beside it.
    fn from(addr: IpAddr) -> NextHop {
        match addr {
            IpAddr::V4(a) => NextHop::V4(a),
            IpAddr::V6(a) => {
                NextHop::V6 { global: a, link_local: Some(a).filter(Ipv6Addr::is_unicast_link_local) }
            }
        }
    }
}

impl fmt::Display for NextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NextHop::V4(a) => a.fmt(f),
            NextHop::V6 { global, link_local: Some(local) } if local != global => {
                write!(f, "{global} ({})", without_zone(*local))
            }
            NextHop::V6 { global, .. } => without_zone(*global).fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_bytes(addrs: &[&str]) -> Vec<u8> {
        addrs.iter().flat_map(|a| a.parse::<Ipv6Addr>().unwrap().octets()).collect()
    }

    #[test]
    fn lengths_decide() {
        assert_eq!(NextHop::from_mp(Afi::Ipv4, &[10, 0, 0, 1]), Some(NextHop::V4([10, 0, 0, 1].into())));
        assert_eq!(NextHop::from_mp(Afi::Ipv6, &[10, 0, 0, 1]), None);
        for wrong in [0, 3, 5, 15, 17, 31, 33] {
            assert_eq!(NextHop::from_mp(Afi::Ipv4, &vec![1; wrong]), None);
        }
        let both = NextHop::from_mp(Afi::Ipv4, &to_bytes(&["2001:db8::1", "fe80::1"])).unwrap();
        assert_eq!(both.to_string(), "2001:db8::1 (fe80::1)");
    }

    #[test]
    fn a_lone_link_local_address_has_one_form() {
        let local: Ipv6Addr = "fe80::1".parse().unwrap();
        let expected = NextHop::V6 { global: local, link_local: Some(local) };
        for form in [&["fe80::1"][..], &["::", "fe80::1"], &["fe80::1", "fe80::1"]] {
            let next_hop = NextHop::from_mp(Afi::Ipv6, &to_bytes(form)).unwrap();
            assert_eq!(next_hop, expected);
            let mut out = Vec::new();
            next_hop.write_mp(&mut out);
            assert_eq!(out.len(), 17);
        }
        let global = NextHop::from_mp(Afi::Ipv6, &to_bytes(&["2001:db8::1", "::"])).unwrap();
        assert_eq!(global, NextHop::V6 { global: "2001:db8::1".parse().unwrap(), link_local: None });
    }

    /// RFC 2545 section 3: the link-local address is valid on its own link alone.
    #[test]
    fn on_link_resolves_by_the_link_local_address_with_its_zone_and_writes_none() {
        let (global, local): (Ipv6Addr, Ipv6Addr) =
            ("2001:db8::1".parse().unwrap(), "fe80::1".parse().unwrap());
        for (first, second) in [(global, Some(local)), (local, None)] {
            let received = NextHop::from_v6(first, second);
            assert_eq!(received.addr(), IpAddr::V6(first), "of an unknown link");
            let next_hop = received.on_link(7);
            assert_eq!(split_zone(next_hop.addr()), (local.into(), Some(7)));
            assert_eq!(next_hop.first_addr(), IpAddr::V6(first));
            assert_ne!(next_hop, received.on_link(8));
            let bytes = |next_hop: NextHop| {
                let mut out = Vec::new();
                next_hop.write_mp(&mut out);
                out
            };
            assert_eq!((bytes(next_hop), next_hop.to_string()), (bytes(received), received.to_string()));
        }
        for alone in [NextHop::V4([10, 0, 0, 1].into()), NextHop::from_v6(global, None)] {
            assert_eq!(alone.on_link(7), alone);
        }
    }

    #[test]
    fn hosts() {
        for (text, is) in [
            ("10.0.0.1", true),
            ("223.255.255.254", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("127.0.0.1", true),
            ("224.0.0.5", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
        ] {
            assert_eq!(NextHop::V4(text.parse().unwrap()).is_host(), is, "{text}");
        }
        for (text, is) in [
            ("2001:db8::1", true),
            ("fe80::1", true),
            ("fe80:0:0:1::1", false),
            ("::1", true),
            ("::", false),
            ("ff02::1", false),
        ] {
            assert_eq!(NextHop::from_v6(text.parse().unwrap(), None).is_host(), is, "{text}");
        }
    }
}
