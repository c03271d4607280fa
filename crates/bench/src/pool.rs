//! The addresses of a prefix by number, for generated next hops and senders.

use ribtide_prefix::AnyPrefix;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The usable addresses of a prefix. The network address is not one of them, nor is IPv4's broadcast address, but
/// in prefixes of one or two addresses (RFC 3021, RFC 6164) all are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AddressPool {
    prefix: AnyPrefix,
}

impl AddressPool {
    /// The pool of a prefix.
    pub fn new(prefix: AnyPrefix) -> AddressPool {
        AddressPool { prefix }
    }

    /// The prefix whose addresses these are.
    pub fn prefix(&self) -> AnyPrefix {
        self.prefix
    }

    /// How many addresses there are; at most 2⁶⁴ − 1.
    pub fn len(&self) -> u64 {
        let width = if self.prefix.addr().is_ipv4() { 32 } else { 128 };
        match width - u32::from(self.prefix.len()) {
            host @ 0..=1 => 1 << host,
            host if width == 32 => (1 << host) - 2,
            host => (1u64.checked_shl(host).unwrap_or(0)).wrapping_sub(1),
        }
    }

    /// Never: every prefix has an address.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Address number `n`, modulo their number.
    pub fn addr(&self, n: u64) -> IpAddr {
        let len = self.len();
        let first = u64::from(len > 2 || self.prefix_has_network_address());
        let offset = n % len + first;
        match self.prefix.addr() {
            IpAddr::V4(a) => IpAddr::V4(Ipv4Addr::from(u32::from(a).wrapping_add(offset as u32))),
            IpAddr::V6(a) => IpAddr::V6(Ipv6Addr::from(u128::from(a).wrapping_add(u128::from(offset)))),
        }
    }

    fn prefix_has_network_address(&self) -> bool {
        let width = if self.prefix.addr().is_ipv4() { 32 } else { 128 };
        width - self.prefix.len() > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(text: &str) -> AddressPool {
        AddressPool::new(text.parse().unwrap())
    }

    #[test]
    fn addresses_lie_inside_and_start_again() {
        for (text, len, first, last) in [
            ("10.0.0.0/16", 65_534, "10.0.0.1", "10.0.255.254"),
            ("10.0.0.0/30", 2, "10.0.0.1", "10.0.0.2"),
            ("10.0.0.0/31", 2, "10.0.0.0", "10.0.0.1"),
            ("10.0.0.9/32", 1, "10.0.0.9", "10.0.0.9"),
            ("2001:db8::/126", 3, "2001:db8::1", "2001:db8::3"),
        ] {
            let pool = pool(text);
            assert_eq!(pool.len(), len, "{text}");
            assert_eq!(pool.addr(0).to_string(), first);
            assert_eq!(pool.addr(len - 1).to_string(), last);
            assert_eq!(pool.addr(len), pool.addr(0));
        }
        assert_eq!(pool("2001:db8::/64").len(), u64::MAX);
        assert_eq!(pool("2001:db8::/32").len(), u64::MAX);
    }
}
