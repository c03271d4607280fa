//! Path attributes as bytes: their codes, their flags, and views of the values that ribtide understands.
//!
//! Views read the form that ribtide stores: four-octet AS numbers, from every kind of session.

pub mod aigp;
pub(super) mod as_path;
mod community;
pub(crate) mod registry;

pub use as_path::{AsPath, Asns, Segment, SegmentKind, Segments, is_private};
pub use community::{
    Communities, Community, ExtendedCommunities, ExtendedCommunity, LargeCommunities, LargeCommunity,
    ParseCommunityError,
};
pub use registry::{code_of, expected_flags, name};

use std::fmt;
use std::net::Ipv4Addr;

/// Attribute type codes (IANA's registry).
pub mod code {
    /// ORIGIN.
    pub const ORIGIN: u8 = 1;
    /// AS_PATH.
    pub const AS_PATH: u8 = 2;
    /// NEXT_HOP.
    pub const NEXT_HOP: u8 = 3;
    /// MULTI_EXIT_DISC.
    pub const MED: u8 = 4;
    /// LOCAL_PREF.
    pub const LOCAL_PREF: u8 = 5;
    /// ATOMIC_AGGREGATE.
    pub const ATOMIC_AGGREGATE: u8 = 6;
    /// AGGREGATOR.
    pub const AGGREGATOR: u8 = 7;
    /// COMMUNITIES (RFC 1997).
    pub const COMMUNITIES: u8 = 8;
    /// ORIGINATOR_ID (RFC 4456).
    pub const ORIGINATOR_ID: u8 = 9;
    /// CLUSTER_LIST (RFC 4456).
    pub const CLUSTER_LIST: u8 = 10;
    /// MP_REACH_NLRI (RFC 4760).
    pub const MP_REACH_NLRI: u8 = 14;
    /// MP_UNREACH_NLRI (RFC 4760).
    pub const MP_UNREACH_NLRI: u8 = 15;
    /// EXTENDED COMMUNITIES (RFC 4360).
    pub const EXTENDED_COMMUNITIES: u8 = 16;
    /// AS4_PATH (RFC 6793).
    pub const AS4_PATH: u8 = 17;
    /// AS4_AGGREGATOR (RFC 6793).
    pub const AS4_AGGREGATOR: u8 = 18;
    /// Tunnel Encapsulation (RFC 9012).
    pub const TUNNEL_ENCAPSULATION: u8 = 23;
    /// IPv6 address specific extended communities (RFC 5701).
    pub const IPV6_EXTENDED_COMMUNITIES: u8 = 25;
    /// AIGP (RFC 7311).
    pub const AIGP: u8 = 26;
    /// LARGE_COMMUNITY (RFC 8092).
    pub const LARGE_COMMUNITIES: u8 = 32;
    /// Only to customer (RFC 9234).
    pub const OTC: u8 = 35;
    /// BGP Prefix-SID (RFC 8669).
    pub const PREFIX_SID: u8 = 40;
    /// ATTR_SET (RFC 6368).
    pub const ATTR_SET: u8 = 128;
}

/// Attribute flags (RFC 4271 section 4.3).
pub mod flags {
    /// Not well-known.
    pub const OPTIONAL: u8 = 0x80;
    /// To be passed on, even by who does not understand it.
    pub const TRANSITIVE: u8 = 0x40;
    /// Some router on the way did not understand it.
    pub const PARTIAL: u8 = 0x20;
    /// The length has two bytes.
    pub const EXTENDED_LENGTH: u8 = 0x10;
}

/// One attribute.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Attribute<'a> {
    /// Flags, any of [`flags`].
    pub flags: u8,
    /// Type, one of [`code`] or not.
    pub code: u8,
    /// The value.
    pub value: &'a [u8],
}

impl<'a> Attribute<'a> {
    /// The attribute at the start of `block` and what follows it; `None` when it does not end inside.
    #[inline]
    pub fn split_first(block: &'a [u8]) -> Option<(Attribute<'a>, &'a [u8])> {
        let (flags, code, len, rest) = match block {
            [flags, code, a, b, rest @ ..] if flags & flags::EXTENDED_LENGTH != 0 => {
                (*flags, *code, u16::from_be_bytes([*a, *b]), rest)
            }
            [flags, code, len, rest @ ..] if flags & flags::EXTENDED_LENGTH == 0 => {
                (*flags, *code, u16::from(*len), rest)
            }
            _ => return None,
        };
        let (value, rest) = rest.split_at_checked(usize::from(len))?;
        Some((Attribute { flags, code, value }, rest))
    }
}

/// The attributes of a block, in order. Ends at the first that is cut short.
#[derive(Clone, Debug)]
pub struct Attributes<'a> {
    rest: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The attributes of `block`, such as of an MRT table entry.
    pub fn new(block: &'a [u8]) -> Self {
        Attributes { rest: block }
    }

    /// What was not consumed: after the last attribute, empty if the block is well formed.
    pub fn remainder(&self) -> &'a [u8] {
        self.rest
    }
}

impl<'a> Iterator for Attributes<'a> {
    type Item = Attribute<'a>;

    #[inline]
    fn next(&mut self) -> Option<Attribute<'a>> {
        let (attribute, rest) = Attribute::split_first(self.rest)?;
        self.rest = rest;
        Some(attribute)
    }
}

/// The ORIGIN of a route, in the order of preference: IGP first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u8)]
pub enum Origin {
    /// From inside its AS.
    Igp = 0,
    /// From the protocol before BGP.
    Egp = 1,
    /// By other means.
    Incomplete = 2,
}

impl Origin {
    /// The origin of the value of an ORIGIN attribute, or `None`.
    #[inline]
    pub fn from_value(value: &[u8]) -> Option<Origin> {
        match value {
            [0] => Some(Origin::Igp),
            [1] => Some(Origin::Egp),
            [2] => Some(Origin::Incomplete),
            _ => None,
        }
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Origin::Igp => "igp",
            Origin::Egp => "egp",
            Origin::Incomplete => "incomplete",
        })
    }
}

/// Who formed an aggregate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aggregator {
    /// Its AS number.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
}

impl Aggregator {
    /// The aggregator of the value of an AGGREGATOR (with four-octet AS number) or AS4_AGGREGATOR, or `None`.
    pub fn from_value(value: &[u8]) -> Option<Aggregator> {
        let (asn, router_id) = value.split_first_chunk::<4>()?;
        let router_id = Ipv4Addr::from(<[u8; 4]>::try_from(router_id).ok()?);
        Some(Aggregator { asn: u32::from_be_bytes(*asn), router_id })
    }

    /// The same of an AGGREGATOR with two-octet AS number.
    pub(super) fn from_two_octet(value: &[u8]) -> Option<Aggregator> {
        let (asn, router_id) = value.split_first_chunk::<2>()?;
        let router_id = Ipv4Addr::from(<[u8; 4]>::try_from(router_id).ok()?);
        Some(Aggregator { asn: u32::from(u16::from_be_bytes(*asn)), router_id })
    }
}

impl fmt::Display for Aggregator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.asn, self.router_id)
    }
}

/// The number in the value of MULTI_EXIT_DISC or LOCAL_PREF, or `None` when it has not four bytes.
#[inline]
pub fn number(value: &[u8]) -> Option<u32> {
    <[u8; 4]>::try_from(value).ok().map(u32::from_be_bytes)
}

/// The BGP identifiers in the value of ORIGINATOR_ID (one) or CLUSTER_LIST (any number).
pub fn router_ids(value: &[u8]) -> impl Iterator<Item = Ipv4Addr> + '_ {
    value.as_chunks::<4>().0.iter().map(|id| Ipv4Addr::from(*id))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_of_one_and_two_bytes() {
        let block = [0x40, 1, 1, 0, 0x50, 2, 0, 1, 9, 0x40];
        let mut attributes = Attributes::new(&block);
        assert_eq!(attributes.next(), Some(Attribute { flags: 0x40, code: 1, value: &[0] }));
        assert_eq!(attributes.next(), Some(Attribute { flags: 0x50, code: 2, value: &[9] }));
        assert_eq!(attributes.next(), None);
        assert_eq!(attributes.remainder(), [0x40]);
        for cut in [&[0x40u8, 1][..], &[0x50, 1, 0], &[0x40, 1, 2, 0], &[0x50, 1, 1, 0, 9]] {
            assert!(Attribute::split_first(cut).is_none());
        }
    }

    #[test]
    fn values() {
        assert_eq!(Origin::from_value(&[1]).unwrap().to_string(), "egp");
        assert_eq!(Origin::from_value(&[3]), None);
        assert_eq!(Origin::from_value(&[]), None);
        assert_eq!(Aggregator::from_value(&[0, 1, 0, 0, 10, 0, 0, 1]).unwrap().to_string(), "65536 10.0.0.1");
        assert_eq!(Aggregator::from_two_octet(&[0, 9, 10, 0, 0, 1]).unwrap().to_string(), "9 10.0.0.1");
        assert_eq!(Aggregator::from_value(&[0; 6]), None);
        assert_eq!(number(&[0, 0, 1, 0]), Some(256));
        assert_eq!(number(&[0, 0, 1]), None);
        assert_eq!(router_ids(&[1, 1, 1, 1, 2, 2, 2, 2]).count(), 2);
    }
}
