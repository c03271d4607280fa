//! Martians: prefixes that must never be routed. They are ignored from every peer.
//!
//! RFC 4271 section 6.3: an NLRI that is semantically incorrect, such as a multicast address, is
//! ignored and the session continues. The first byte clears nearly every prefix: one load and one
//! bit of a table of 32 bytes.

use ribtide_policy::{PrefixRange, PrefixSet};
use ribtide_prefix::{AnyPrefix, BgpFamily, Bits, Families, Family, PerFamily, Prefix};
use ribtide_wire::bgp::nlri::Nlri;

/// A list of prefixes to refuse. Equality compares the lists.
#[derive(Clone, Debug)]
pub struct Martians {
    ranges: Vec<PrefixRange>,
    set: PrefixSet,
    first_bytes: Families<FirstBytes>,
}

/// The first bytes of prefixes in the list, a bit each.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct FirstBytes([u64; 4]);
impl PerFamily for FirstBytes {
    type Of<F: Family> = FirstBytes;
}

impl Martians {
    /// The default list: what the registries of RFC 6890 call neither forwardable nor a source or
    /// destination beyond the host or link, and multicast. Private, shared and documentation space
    /// (RFC 1918, RFC 6598, RFC 5737, RFC 3849) is in use inside networks, as is 169.254.0.0/16
    /// between routers: an import policy may refuse these.
    pub const DEFAULT: [&'static str; 9] = [
        // "This network" (RFC 1122 section 3.2.1.3); the default route is no part of it.
        "0.0.0.0/8 8..32",
        // Loopback (RFC 1122).
        "127.0.0.0/8 8..32",
        // Multicast (RFC 5771).
        "224.0.0.0/4 4..32",
        // Reserved, and limited broadcast (RFC 1112 section 4, RFC 919).
        "240.0.0.0/4 4..32",
        // Unspecified and loopback (RFC 4291 section 2.5).
        "::/128",
        "::1/128",
        // IPv4-mapped (RFC 4291 section 2.5.5.2).
        "::ffff:0:0/96 96..128",
        // Link-local (RFC 4291 section 2.5.6).
        "fe80::/10 10..128",
        // Multicast (RFC 4291 section 2.7).
        "ff00::/8 8..128",
    ];

    /// A list of these ranges.
    pub fn new(ranges: Vec<PrefixRange>) -> Martians {
        let mut first_bytes: Families<FirstBytes> = Families::default();
        for range in &ranges {
            match range.prefix() {
                AnyPrefix::V4(prefix) => first_bytes.v4.mark(prefix),
                AnyPrefix::V6(prefix) => first_bytes.v6.mark(prefix),
            }
        }
        Martians { set: PrefixSet::new(ranges.iter().copied()), ranges, first_bytes }
    }

    /// The list of [`Martians::DEFAULT`].
    pub fn default_list() -> Martians {
        Martians::new(Martians::DEFAULT.iter().filter_map(|text| text.parse().ok()).collect())
    }

    /// The empty list.
    pub fn none() -> Martians {
        Martians::new(Vec::new())
    }

    /// Whether the list refuses `prefix`.
    pub fn contains<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        self.first_bytes::<F>().has(prefix) && self.set.contains(prefix)
    }

    /// A copy of the first bytes, for a loop over prefixes.
    #[inline]
    pub(super) fn first_bytes<F: BgpFamily>(&self) -> FirstBytes {
        *self.first_bytes.get::<F::Address>()
    }

    /// Appends `route` to `refused` and returns `true` if the list refuses its prefix.
    #[cold]
    #[inline(never)]
    pub(super) fn takes<N: Nlri>(&self, route: N, refused: &mut Vec<N>) -> bool {
        let refuse = self.set.contains(route.prefix());
        if refuse {
            refused.push(route);
        }
        refuse
    }
}

impl FirstBytes {
    /// Whether the list may have a prefix with this first byte.
    #[inline]
    pub(super) fn has<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        let first = first_byte(prefix);
        self.0[usize::from(first >> 6)] >> (first & 63) & 1 != 0
    }

    /// Sets the first bytes of all addresses in `prefix`.
    fn mark<F: BgpFamily>(&mut self, prefix: Prefix<F>) {
        let first = first_byte(prefix);
        let last = first | 0xff_u8.checked_shr(prefix.len().into()).unwrap_or(0);
        for byte in first..=last {
            self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
        }
    }
}

impl PartialEq for Martians {
    fn eq(&self, other: &Self) -> bool {
        self.ranges == other.ranges
    }
}

impl Eq for Martians {}

#[inline]
fn first_byte<F: BgpFamily>(prefix: Prefix<F>) -> u8 {
    (prefix.bits().left() >> 120) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ribtide_prefix::{V4, V6};

    #[test]
    fn default_list_parses_and_keeps_what_networks_use() {
        let martians = Martians::default_list();
        assert_eq!(martians.ranges.len(), Martians::DEFAULT.len());
        let v4 = |text: &str| martians.contains(text.parse::<Prefix<V4>>().unwrap());
        let v6 = |text: &str| martians.contains(text.parse::<Prefix<V6>>().unwrap());
        for bad in
            ["0.0.0.0/8", "0.1.2.0/24", "127.0.0.0/24", "224.0.1.0/24", "239.0.0.0/8", "255.255.255.255/32"]
        {
            assert!(v4(bad), "{bad}");
        }
        for good in [
            "0.0.0.0/0",
            "0.0.0.0/1",
            "128.0.0.0/1",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "192.0.2.0/24",
            "223.255.255.0/24",
        ] {
            assert!(!v4(good), "{good}");
        }
        for bad in ["::/128", "::1/128", "::ffff:10.0.0.0/104", "fe80::/64", "febf::/16", "ff02::/64"] {
            assert!(v6(bad), "{bad}");
        }
        for good in ["::/0", "64:ff9b::/96", "2001:db8::/32", "fc00::/7", "fec0::/10", "2002::/16"] {
            assert!(!v6(good), "{good}");
        }
        assert!(!Martians::none().contains("127.0.0.0/8".parse::<Prefix<V4>>().unwrap()));
    }

    proptest! {
        #[test]
        fn first_byte_table_never_decides_otherwise_than_the_list(
            list in prop::collection::vec((any::<u32>(), 0u8..=32), 0..6), bits: u32, len in 0u8..=32,
        ) {
            let ranges: Vec<PrefixRange> = list
                .iter()
                .map(|(bits, len)| PrefixRange::new(AnyPrefix::V4(Prefix::new(*bits, *len)), *len, 32).unwrap())
                .collect();
            let martians = Martians::new(ranges);
            for bits in list.iter().map(|(bits, _)| *bits).chain([bits]) {
                let prefix = Prefix::<V4>::new(bits, len);
                prop_assert_eq!(martians.contains(prefix), martians.set.contains(prefix));
            }
        }
    }
}
