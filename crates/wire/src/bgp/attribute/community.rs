//! Communities: plain (RFC 1997), large (RFC 8092) and extended (RFC 4360), as lists in an attribute and one by
//! one, with the text that operators write.

use std::fmt;
use std::net::Ipv4Addr;
use std::str::FromStr;

/// A community.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Community(pub u32);

impl Community {
    /// Not to be advertised outside the AS or confederation.
    pub const NO_EXPORT: Community = Community(0xffff_ff01);
    /// Not to be advertised to any peer.
    pub const NO_ADVERTISE: Community = Community(0xffff_ff02);
    /// Not to be advertised to external peers, other members of the confederation included.
    pub const NO_EXPORT_SUBCONFED: Community = Community(0xffff_ff03);
    /// Traffic to be discarded (RFC 7999).
    pub const BLACKHOLE: Community = Community(0xffff_029a);
    /// Session about to shut down (RFC 8326 section 3).
    pub const GRACEFUL_SHUTDOWN: Community = Community(0xffff_0000);
    /// A stale route that is retained for longer than a restart takes (RFC 9494 section 3.2).
    pub const LLGR_STALE: Community = Community(0xffff_0006);
    /// A route that is not to be retained for longer than a restart takes (RFC 9494 section 3.3).
    pub const NO_LLGR: Community = Community(0xffff_0007);

    /// Those with a name, as RFCs and operators write it.
    const NAMED: [(Community, &'static str); 7] = [
        (Community::NO_EXPORT, "no-export"),
        (Community::NO_ADVERTISE, "no-advertise"),
        (Community::NO_EXPORT_SUBCONFED, "no-export-subconfed"),
        (Community::BLACKHOLE, "blackhole"),
        (Community::GRACEFUL_SHUTDOWN, "graceful-shutdown"),
        (Community::LLGR_STALE, "llgr-stale"),
        (Community::NO_LLGR, "no-llgr"),
    ];
}

impl fmt::Display for Community {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match Community::NAMED.iter().find(|(c, _)| c == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "{}:{}", self.0 >> 16, self.0 & 0xffff),
        }
    }
}

/// Parses `65001:100` or a well-known name such as `no-export`.
impl FromStr for Community {
    type Err = ParseCommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some((community, _)) = Community::NAMED.iter().find(|(_, name)| *name == text) {
            return Ok(*community);
        }
        match *numbers(text).as_slice() {
            [Some(high @ 0..=0xffff), Some(low @ 0..=0xffff)] => Ok(Community(high << 16 | low)),
            _ => {
                Err(ParseCommunityError { text: text.into(), form: "65001:100, or a name such as no-export" })
            }
        }
    }
}

/// A large community.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct LargeCommunity {
    /// The AS that gives the other two their meaning.
    pub global: u32,
    /// First local part.
    pub local1: u32,
    /// Second local part.
    pub local2: u32,
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.global, self.local1, self.local2)
    }
}

/// Parses `65001:1:2`.
impl FromStr for LargeCommunity {
    type Err = ParseCommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match *numbers(text).as_slice() {
            [Some(global), Some(local1), Some(local2)] => Ok(LargeCommunity { global, local1, local2 }),
            _ => Err(ParseCommunityError { text: text.into(), form: "65001:1:2" }),
        }
    }
}

/// An extended community: eight bytes, of which the first one or two are the type of the rest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ExtendedCommunity(pub [u8; 8]);

impl ExtendedCommunity {
    /// The subtypes with a name that is the same for the three transitive types with an AS or address.
    const NAMED: [(u8, &'static str); 2] = [(2, "rt"), (3, "soo")];

    /// The link's bandwidth in bytes per second, if it is a link bandwidth community (RFC 10005),
    /// transitive or not. `None` for NaN, infinite and negative values.
    pub fn link_bandwidth(self) -> Option<f32> {
        let [0x00 | 0x40, 0x04, _, _, a, b, c, d] = self.0 else { return None };
        let bandwidth = f32::from_be_bytes([a, b, c, d]);
        // That of negative zero is zero.
        (bandwidth.is_finite() && bandwidth >= 0.0).then_some(bandwidth.abs())
    }
}

impl fmt::Display for ExtendedCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [kind, subtype, a, b, c, d, e, g] = self.0;
        match ExtendedCommunity::NAMED.iter().find(|(n, _)| *n == subtype) {
            Some((_, name)) if kind == 0 => {
                write!(f, "{name}:{}:{}", u16::from_be_bytes([a, b]), u32::from_be_bytes([c, d, e, g]))
            }
            Some((_, name)) if kind == 1 => {
                write!(f, "{name}:{}:{}", Ipv4Addr::new(a, b, c, d), u16::from_be_bytes([e, g]))
            }
            // Marked where the number alone would read as the two-octet form.
            Some((_, name)) if kind == 2 => {
                let asn = u32::from_be_bytes([a, b, c, d]);
                let long = if asn <= 0xffff { "L" } else { "" };
                write!(f, "{name}:{asn}{long}:{}", u16::from_be_bytes([e, g]))
            }
            _ => write!(f, "0x{:016x}", u64::from_be_bytes(self.0)),
        }
    }
}

/// Parses `rt:65001:1`, `soo:10.0.0.1:1`, `rt:70000:1`, `rt:65001L:1` (four-octet form of a small AS number), or
/// any as sixteen digits, `0x0002fde900000001`.
impl FromStr for ExtendedCommunity {
    type Err = ParseCommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        extended(text).ok_or_else(|| ParseCommunityError {
            text: text.into(),
            form: "rt:65001:100, soo:10.0.0.1:100, or 0x and sixteen hexadecimal digits",
        })
    }
}

fn extended(text: &str) -> Option<ExtendedCommunity> {
    if let Some(hex) = text.strip_prefix("0x") {
        let plain = hex.len() == 16 && hex.bytes().all(|b| b.is_ascii_hexdigit());
        return plain.then(|| u64::from_str_radix(hex, 16).ok())?.map(|n| ExtendedCommunity(n.to_be_bytes()));
    }
    let (name, rest) = text.split_once(':')?;
    let (subtype, _) = ExtendedCommunity::NAMED.iter().find(|(_, n)| *n == name)?;
    let (who, value) = rest.split_once(':')?;
    let value = number(value)?;
    let bytes = |kind: u8, who: u32, value: u16| {
        u64::from(kind) << 56 | u64::from(*subtype) << 48 | u64::from(who) << 16 | u64::from(value)
    };
    let short = u16::try_from(value).ok();
    let community = if let Ok(addr) = who.parse::<Ipv4Addr>() {
        bytes(1, addr.into(), short?)
    } else if let Some(long) = who.strip_suffix('L') {
        bytes(2, number(long)?, short?)
    } else {
        match number(who)? {
            asn @ 0..=0xffff => bytes(0, asn << 16 | value >> 16, value as u16),
            asn => bytes(2, asn, short?),
        }
    };
    Some(ExtendedCommunity(community.to_be_bytes()))
}

/// The colon-separated numbers of a text; `None` for a part that is not one.
fn numbers(text: &str) -> Vec<Option<u32>> {
    text.split(':').map(number).collect()
}

/// A decimal number without sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

/// The error of parsing a community. Its text gives the correct form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParseCommunityError {
    text: String,
    form: &'static str,
}

impl fmt::Display for ParseCommunityError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is not a community of this kind; write {}", self.text, self.form)
    }
}

impl std::error::Error for ParseCommunityError {}

/// Defines a view of an attribute whose value is a list of items of one size..
macro_rules! list {
    ($(#[$doc:meta])* $name:ident, $item:ty, $size:literal, $read:expr) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
        pub struct $name<'a> {
            bytes: &'a [u8],
        }

        impl<'a> $name<'a> {
            /// A view of an attribute value. An incomplete item at the end is ignored.
            pub fn new(value: &'a [u8]) -> Self {
                $name { bytes: value }
            }

            /// The value as bytes.
            pub fn as_bytes(self) -> &'a [u8] {
                self.bytes
            }

            /// The communities, in the order received.
            pub fn iter(self) -> impl ExactSizeIterator<Item = $item> + DoubleEndedIterator + 'a {
                let read: fn(&[u8; $size]) -> $item = $read;
                self.bytes.as_chunks::<$size>().0.iter().map(read)
            }

            /// Whether `item` is among them.
            pub fn contains(self, item: $item) -> bool {
                self.iter().any(|i| i == item)
            }
        }

        impl fmt::Display for $name<'_> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                for (i, item) in self.iter().enumerate() {
                    if i > 0 {
                        f.write_str(" ")?;
                    }
                    item.fmt(f)?;
                }
                Ok(())
            }
        }
    };
}

list! {
    /// The value of a COMMUNITIES attribute. Displays separated by spaces.
    Communities, Community, 4, |bytes| Community(u32::from_be_bytes(*bytes))
}
list! {
    /// The value of a LARGE_COMMUNITY attribute. Displays separated by spaces.
    LargeCommunities, LargeCommunity, 12, |bytes| {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bytes;
        LargeCommunity {
            global: u32::from_be_bytes([a, b, c, d]),
            local1: u32::from_be_bytes([e, f, g, h]),
            local2: u32::from_be_bytes([i, j, k, l]),
        }
    }
}
list! {
    /// The value of an EXTENDED COMMUNITIES attribute. Displays separated by spaces.
    ExtendedCommunities, ExtendedCommunity, 8, |bytes| ExtendedCommunity(*bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_bandwidth_is_a_number_of_bytes_per_second() {
        let community = |kind: u8, subtype: u8, value: f32| {
            let [a, b, c, d] = value.to_be_bytes();
            ExtendedCommunity([kind, subtype, 0xfd, 0xe9, a, b, c, d]).link_bandwidth()
        };
        assert_eq!(community(0x40, 4, 1.25e9), Some(1.25e9));
        assert_eq!(community(0x00, 4, 1.0), Some(1.0), "transitive");
        assert_eq!(community(0x40, 4, -0.0).map(f32::to_bits), Some(0));
        for none in [-1.0, f32::NAN, f32::INFINITY] {
            assert_eq!(community(0x40, 4, none), None);
        }
        for (kind, subtype) in [(0x40, 2), (0x80, 4), (0x01, 4), (0x02, 4)] {
            assert_eq!(community(kind, subtype, 1.0), None);
        }
    }

    use proptest::prelude::*;

    #[test]
    fn lists_read_as_operators_write_them() {
        let value = [0xfd, 0xe9, 0, 100, 0xff, 0xff, 0xff, 1, 9];
        let communities = Communities::new(&value);
        assert_eq!(communities.to_string(), "65001:100 no-export");
        assert!(communities.contains(Community::NO_EXPORT) && !communities.contains(Community::BLACKHOLE));
        let large = [0, 0, 0, 1, 0, 0, 0, 2, 0, 1, 0, 0];
        assert_eq!(LargeCommunities::new(&large).to_string(), "1:2:65536");
        let extended = [0, 2, 0xfd, 0xe9, 0, 0, 0, 5, 1, 3, 10, 0, 0, 1, 0, 6, 0x40, 4, 0, 0, 0, 0, 0, 1];
        let extended = ExtendedCommunities::new(&extended);
        assert_eq!(extended.to_string(), "rt:65001:5 soo:10.0.0.1:6 0x4004000000000001");
    }

    #[test]
    fn errors_give_the_correct_form() {
        for text in ["65001", "65536:1", "1:65536", "1:2:3", "", ":", "+1:2", "noexport"] {
            assert!(text.parse::<Community>().is_err(), "{text}");
        }
        for text in ["1:2", "1:2:4294967296", "1:2:3:4", "a:1:1"] {
            assert!(text.parse::<LargeCommunity>().is_err(), "{text}");
        }
        for text in ["rt:1", "xx:1:1", "rt:70000:65536", "rt:10.0.0.1:65536", "0x1", "rt:-1:1"] {
            assert!(text.parse::<ExtendedCommunity>().is_err(), "{text}");
        }
        assert_eq!(
            "x".parse::<Community>().unwrap_err().to_string(),
            "\"x\" is not a community of this kind; write 65001:100, or a name such as no-export"
        );
    }

    proptest! {
        #[test]
        fn texts_round_trip(
            plain: u32,
            large: (u32, u32, u32),
            kind in prop_oneof![0u8..3, any::<u8>()],
            subtype in prop_oneof![2u8..4, any::<u8>()],
            rest: [u8; 6],
        ) {
            let plain = Community(plain);
            prop_assert_eq!(plain.to_string().parse(), Ok(plain));
            let large = LargeCommunity { global: large.0, local1: large.1, local2: large.2 };
            prop_assert_eq!(large.to_string().parse(), Ok(large));
            let [a, b, c, d, e, f] = rest;
            let extended = ExtendedCommunity([kind, subtype, a, b, c, d, e, f]);
            prop_assert_eq!(extended.to_string().parse(), Ok(extended));
        }
    }
}
