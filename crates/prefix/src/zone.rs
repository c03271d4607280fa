//! Link-local addresses with their zone: the link that they are valid on (RFC 4007).
//!
//! Every link may have the same link-local address, so a session or next hop is named by address and
//! zone. Inside the router the zone, the number of the interface, is in bits 32 to 63 of the address,
//! which are zero in a link-local address (RFC 4291 section 2.5.6), as in the kernels of the BSD
//! family. So such an address is compared, sorted and stored as any other one. It is separated again
//! at the borders: sockets, messages to peers, the RIB manager, and output.

use std::net::{IpAddr, Ipv6Addr};

/// The bits of the zone.
const ZONE: u128 = 0xffff_ffff << 64;
/// The bits between the prefix `fe80::/10` and the interface identifier.
const RESERVED: u128 = ((1 << 54) - 1) << 64;

/// A link-local address on the link of interface `zone`, in place of any other zone. Another address
/// stays as it is.
pub fn with_zone(address: Ipv6Addr, zone: u32) -> Ipv6Addr {
    if !address.is_unicast_link_local() {
        return address;
    }
    Ipv6Addr::from(u128::from(address) & !ZONE | u128::from(zone) << 64)
}

/// The zone in an address; `None`: it has none, or is not link-local.
pub fn zone_of(address: IpAddr) -> Option<u32> {
    match address {
        IpAddr::V6(a) if a.is_unicast_link_local() => {
            Some(((u128::from(a) & ZONE) >> 64) as u32).filter(|zone| *zone != 0)
        }
        _ => None,
    }
}

/// The address without zone, as on the wire.
pub fn without_zone(address: Ipv6Addr) -> Ipv6Addr {
    with_zone(address, 0)
}

/// The address as on the wire, and its zone.
pub fn split_zone(address: IpAddr) -> (IpAddr, Option<u32>) {
    match address {
        IpAddr::V6(a) => (without_zone(a).into(), zone_of(address)),
        IpAddr::V4(_) => (address, None),
    }
}

/// Whether an address from outside can be used: a link-local one has 54 zero bits after its prefix
/// (RFC 4291 section 2.5.6).
pub fn is_plain(address: Ipv6Addr) -> bool {
    !address.is_unicast_link_local() || u128::from(address) & RESERVED == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v6(text: &str) -> Ipv6Addr {
        text.parse().unwrap()
    }

    #[test]
    fn zone_is_found_again_in_link_local_addresses_alone() {
        for zone in [1, 7, 0x1234_5678, u32::MAX] {
            let zoned = with_zone(v6("fe80::a:b:c:d"), zone);
            assert_eq!(split_zone(zoned.into()), (v6("fe80::a:b:c:d").into(), Some(zone)));
            assert!(zoned.is_unicast_link_local() && !is_plain(zoned));
            assert_eq!(with_zone(zoned, 5), with_zone(v6("fe80::a:b:c:d"), 5), "one zone at a time");
            let global = v6("2001:db8::1");
            assert_eq!((with_zone(global, zone), zone_of(global.into())), (global, None));
        }
        for plain in ["fe80::1", "2001:db8::1", "10.0.0.1", "fec0:0:0:1::1"] {
            let address: IpAddr = plain.parse().unwrap();
            assert_eq!(split_zone(address), (address, None));
        }
    }

    #[test]
    fn is_plain_refuses_link_local_addresses_with_bits_that_are_zero_in_each() {
        for (text, plain) in [
            ("fe80::1", true),
            ("fe80::ffff:ffff:ffff:ffff", true),
            ("fe80:0:0:1::1", false),
            ("fe80:1::1", false),
            ("fe81::1", false),
            ("febf:ffff::1", false),
            ("2001:db8:1:2::1", true),
        ] {
            assert_eq!(is_plain(v6(text)), plain, "{text}");
        }
    }
}
