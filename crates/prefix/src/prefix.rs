//! Prefixes of one family, and of either family for configuration and output.

use crate::{Afi, BgpFamily, Bits, V4, V6};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// A prefix: address bits and a length. Host bits are always zero, so equality is identity of the route's key.
///
/// Eight bytes for IPv4, seventeen for IPv6. The order is by address, then shorter first: a prefix sorts
/// directly before what it covers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix<F: BgpFamily> {
    bits: F::Bits,
    len: u8,
}

impl<F: BgpFamily> Prefix<F> {
    /// The default route.
    pub fn default_route() -> Self {
        Prefix { bits: F::Bits::default(), len: 0 }
    }

    /// A prefix of `len` bits (at most the family's width, longer is cut to it); host bits in `bits` are cleared.
    #[inline]
    pub fn new(bits: F::Bits, len: u8) -> Self {
        let len = len.min(F::WIDTH);
        Prefix { bits: bits.leading(len), len }
    }

    /// A prefix from an address; `None` when the address is of the other family or `len` is too long.
    pub fn from_addr(addr: IpAddr, len: u8) -> Option<Self> {
        if len > F::WIDTH {
            return None;
        }
        F::bits(addr).map(|bits| Prefix::new(bits, len))
    }

    /// The prefix that holds only `addr`; `None` when it is of the other family.
    pub fn host(addr: IpAddr) -> Option<Self> {
        Prefix::from_addr(addr, F::WIDTH)
    }

    /// The address bits; host bits are zero.
    #[inline]
    pub fn bits(self) -> F::Bits {
        self.bits
    }

    /// The length in bits.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "a prefix is not a container")]
    pub fn len(self) -> u8 {
        self.len
    }

    /// The network address.
    pub fn addr(self) -> IpAddr {
        F::addr(self.bits)
    }

    /// The highest address inside.
    pub fn last_addr(self) -> IpAddr {
        F::addr(F::Bits::from_left(self.bits.left() | !mask(self.len)))
    }

    /// Whether `addr` lies inside; false for the other family.
    pub fn contains(self, addr: IpAddr) -> bool {
        F::bits(addr).is_some_and(|b| b.left() & mask(self.len) == self.bits.left())
    }

    /// Whether every address of `other` lies inside this prefix; true of itself.
    pub fn covers(self, other: Self) -> bool {
        self.len <= other.len && other.bits.left() & mask(self.len) == self.bits.left()
    }

    /// The same prefix cut to `len` bits; itself when it is not longer.
    #[inline]
    pub fn truncate(self, len: u8) -> Self {
        if len >= self.len { self } else { Prefix::new(self.bits, len) }
    }

    /// Whether it holds one address only.
    pub fn is_host(self) -> bool {
        self.len == F::WIDTH
    }

    /// The same prefix without its SAFI: as policies, the RIB manager and output know it.
    #[inline]
    pub fn ip(self) -> Prefix<F::Address> {
        Prefix { bits: self.bits, len: self.len }
    }

    /// A prefix of this family.
    #[inline]
    pub fn from_ip(prefix: Prefix<F::Address>) -> Prefix<F> {
        Prefix { bits: prefix.bits, len: prefix.len }
    }

    /// A prefix of this family; `None`: `prefix` is of the other address family.
    pub fn from_any(prefix: AnyPrefix) -> Option<Self> {
        (prefix.afi() == F::AFI).then(|| Prefix::from_addr(prefix.addr(), prefix.len()))?
    }

    /// The form that carries its address family as a value.
    pub fn any(self) -> AnyPrefix {
        match F::AFI {
            Afi::Ipv4 => AnyPrefix::V4(Prefix { bits: u32::from_left(self.bits.left()), len: self.len }),
            Afi::Ipv6 => {
                AnyPrefix::V6(Prefix { bits: <[u8; 16]>::from_left(self.bits.left()), len: self.len })
            }
        }
    }
}

/// The leading `len` bits set, in 128.
#[inline]
fn mask(len: u8) -> u128 {
    u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0)
}

impl<F: BgpFamily> fmt::Display for Prefix<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.addr(), self.len)
    }
}

impl<F: BgpFamily> fmt::Debug for Prefix<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A prefix of either family: for configuration, queries and output, never for hot tables.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AnyPrefix {
    /// IPv4.
    V4(Prefix<V4>),
    /// IPv6.
    V6(Prefix<V6>),
}

impl AnyPrefix {
    /// A prefix from an address, host bits cleared; `None` when `len` is too long for the family.
    pub fn from_addr(addr: IpAddr, len: u8) -> Option<AnyPrefix> {
        match addr {
            IpAddr::V4(_) => Prefix::from_addr(addr, len).map(AnyPrefix::V4),
            IpAddr::V6(_) => Prefix::from_addr(addr, len).map(AnyPrefix::V6),
        }
    }

    /// The prefix that holds only `addr`.
    pub fn host(addr: IpAddr) -> AnyPrefix {
        match addr {
            IpAddr::V4(a) => AnyPrefix::V4(Prefix::new(a.into(), 32)),
            IpAddr::V6(a) => AnyPrefix::V6(Prefix::new(a.octets(), 128)),
        }
    }

    /// The address family.
    pub fn afi(self) -> Afi {
        match self {
            AnyPrefix::V4(_) => Afi::Ipv4,
            AnyPrefix::V6(_) => Afi::Ipv6,
        }
    }

    /// The network address.
    pub fn addr(self) -> IpAddr {
        match self {
            AnyPrefix::V4(p) => p.addr(),
            AnyPrefix::V6(p) => p.addr(),
        }
    }

    /// The highest address inside.
    pub fn last_addr(self) -> IpAddr {
        match self {
            AnyPrefix::V4(p) => p.last_addr(),
            AnyPrefix::V6(p) => p.last_addr(),
        }
    }

    /// The length in bits.
    #[expect(clippy::len_without_is_empty, reason = "a prefix is not a container")]
    pub fn len(self) -> u8 {
        match self {
            AnyPrefix::V4(p) => p.len(),
            AnyPrefix::V6(p) => p.len(),
        }
    }

    /// Whether it holds one address only.
    pub fn is_host(self) -> bool {
        match self {
            AnyPrefix::V4(p) => p.is_host(),
            AnyPrefix::V6(p) => p.is_host(),
        }
    }

    /// Whether `addr` lies inside; false for the other family.
    pub fn contains(self, addr: IpAddr) -> bool {
        match self {
            AnyPrefix::V4(p) => p.contains(addr),
            AnyPrefix::V6(p) => p.contains(addr),
        }
    }
}

impl fmt::Display for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyPrefix::V4(p) => p.fmt(f),
            AnyPrefix::V6(p) => p.fmt(f),
        }
    }
}

impl fmt::Debug for AnyPrefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The error of parsing a prefix. Its text gives the correct form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ParsePrefixError {
    /// The part before the slash is not an address.
    Address(String),
    /// The part after the slash is not a length that the family has.
    Length(String, u8),
    /// The address is of the other family.
    Family(String),
    /// Bits beyond the length are set; the second is the prefix that was probably meant.
    HostBits(String, AnyPrefix),
}

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ParsePrefixError::Address(t) => {
                write!(
                    f,
                    "\"{t}\" is not a prefix; write an address and a length, such as 10.0.0.0/8 or 2001:db8::/32"
                )
            }
            ParsePrefixError::Length(t, width) => {
                write!(f, "\"{t}\" has no valid length; it must be a number from 0 to {width}")
            }
            ParsePrefixError::Family(t) => write!(f, "\"{t}\" is of the other address family"),
            ParsePrefixError::HostBits(t, meant) => {
                write!(f, "\"{t}\" has bits set beyond its length; write {meant}")
            }
        }
    }
}

impl std::error::Error for ParsePrefixError {}

/// Parses `address/length`, or an address alone as a host prefix. Host bits must be zero.
impl FromStr for AnyPrefix {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (addr, len) = match text.split_once('/') {
            Some((a, l)) => (a, Some(l)),
            None => (text, None),
        };
        let addr: IpAddr = addr.parse().map_err(|_| ParsePrefixError::Address(text.into()))?;
        let width = if addr.is_ipv4() { V4::WIDTH } else { V6::WIDTH };
        let bad_len = || ParsePrefixError::Length(text.into(), width);
        let len = match len {
            None => width,
            // `u8::from_str` accepts a leading plus sign, which no router's prefix has.
            Some(l) if l.bytes().all(|b| b.is_ascii_digit()) => l.parse().map_err(|_| bad_len())?,
            Some(_) => return Err(bad_len()),
        };
        let prefix = AnyPrefix::from_addr(addr, len).ok_or_else(bad_len)?;
        if prefix.addr() != addr {
            return Err(ParsePrefixError::HostBits(text.into(), prefix));
        }
        Ok(prefix)
    }
}

/// Parses a prefix of this family; see [`AnyPrefix`] for the form.
impl<F: BgpFamily> FromStr for Prefix<F> {
    type Err = ParsePrefixError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let any: AnyPrefix = text.parse()?;
        Prefix::from_addr(any.addr(), any.len()).ok_or_else(|| ParsePrefixError::Family(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_what_the_tables_count_on() {
        assert_eq!(size_of::<Prefix<V4>>(), 8);
        assert_eq!(size_of::<Prefix<V6>>(), 17);
    }

    #[test]
    fn text_round_trips() {
        for text in ["0.0.0.0/0", "10.0.0.0/8", "192.0.2.1/32", "::/0", "2001:db8::/32", "2001:db8::1/128"] {
            assert_eq!(text.parse::<AnyPrefix>().unwrap().to_string(), text);
        }
        assert_eq!("192.0.2.1".parse::<AnyPrefix>().unwrap().to_string(), "192.0.2.1/32");
    }

    #[test]
    fn bad_text_gives_the_correct_form() {
        for (text, message) in [
            ("10.0.0.1/8", "\"10.0.0.1/8\" has bits set beyond its length; write 10.0.0.0/8"),
            ("10.0.0.0/33", "\"10.0.0.0/33\" has no valid length; it must be a number from 0 to 32"),
            ("10.0.0.0/+8", "\"10.0.0.0/+8\" has no valid length; it must be a number from 0 to 32"),
            ("::/129", "\"::/129\" has no valid length; it must be a number from 0 to 128"),
        ] {
            assert_eq!(text.parse::<AnyPrefix>().unwrap_err().to_string(), message);
        }
        assert!("banana/8".parse::<AnyPrefix>().is_err());
        assert!("::/0".parse::<Prefix<V4>>().is_err());
    }

    #[test]
    fn covering_and_containing() {
        let eight: Prefix<V4> = "10.0.0.0/8".parse().unwrap();
        let inside: Prefix<V4> = "10.1.0.0/16".parse().unwrap();
        assert!(eight.covers(inside) && !inside.covers(eight) && eight.covers(eight));
        assert!(Prefix::<V4>::default_route().covers(eight));
        assert!(eight.contains("10.255.255.255".parse().unwrap()));
        assert!(!eight.contains("11.0.0.0".parse().unwrap()));
        assert!(!eight.contains("::".parse().unwrap()));
        assert_eq!(eight.last_addr(), "10.255.255.255".parse::<IpAddr>().unwrap());
        assert_eq!(inside.truncate(8), eight);
        assert_eq!(Prefix::<V6>::default_route().last_addr(), IpAddr::from([0xffu8; 16]));
    }

    #[test]
    fn host_bits_are_cleared() {
        assert_eq!(Prefix::<V4>::new(0x0a01_02ff, 24).to_string(), "10.1.2.0/24");
        assert_eq!(Prefix::<V4>::new(0x0a01_02ff, 0).to_string(), "0.0.0.0/0");
        assert_eq!(Prefix::<V6>::new([0xff; 16], 3).to_string(), "e000::/3");
    }
}
