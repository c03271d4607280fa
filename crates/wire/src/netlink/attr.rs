//! Attributes: the type-length-value list at the end of every message, and the readers of their values.

use super::Malformed;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The attribute's number without the flags "nested" and "network byte order".
const TYPE_MASK: u16 = 0x3fff;

/// One attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Attr<'a> {
    /// The attribute's number; which list it belongs to depends on the message.
    pub kind: u16,
    /// The value, without padding.
    pub value: &'a [u8],
}

impl<'a> Attr<'a> {
    pub(super) fn u16(self) -> Result<u16, Malformed> {
        self.value
            .first_chunk()
            .map(|b| u16::from_ne_bytes(*b))
            .ok_or(Malformed("an attribute is shorter than its 16-bit value"))
    }

    pub(super) fn u32(self) -> Result<u32, Malformed> {
        self.value
            .first_chunk()
            .map(|b| u32::from_ne_bytes(*b))
            .ok_or(Malformed("an attribute is shorter than its 32-bit value"))
    }

    /// An address; its family follows from its length.
    pub(super) fn addr(self) -> Result<IpAddr, Malformed> {
        addr(self.value)
    }

    /// `RTA_VIA`: a family and an address of that family.
    pub(super) fn via(self) -> Result<IpAddr, Malformed> {
        self.value.get(2..).ok_or(Malformed("a gateway attribute is cut short")).and_then(addr)
    }

    /// Text up to its terminating zero. Names that are not UTF-8 become `?`, because ribtide does
    /// not depend on them.
    pub(super) fn text(self) -> &'a str {
        let end = self.value.iter().position(|b| *b == 0).unwrap_or(self.value.len());
        self.value.get(..end).and_then(|b| std::str::from_utf8(b).ok()).unwrap_or("?")
    }

    /// The attributes inside this one.
    pub(super) fn nested(self) -> Attrs<'a> {
        Attrs(self.value)
    }
}

fn addr(value: &[u8]) -> Result<IpAddr, Malformed> {
    if let Ok(v4) = <[u8; 4]>::try_from(value) {
        Ok(Ipv4Addr::from(v4).into())
    } else if let Ok(v6) = <[u8; 16]>::try_from(value) {
        Ok(Ipv6Addr::from(v6).into())
    } else {
        Err(Malformed("an address is neither 4 nor 16 bytes long"))
    }
}

/// The attributes in these bytes. Ends after the first malformed one.
#[derive(Clone, Copy, Debug)]
pub struct Attrs<'a>(pub(super) &'a [u8]);

impl<'a> Attrs<'a> {
    /// The list that these bytes hold.
    pub fn new(bytes: &'a [u8]) -> Self {
        Attrs(bytes)
    }
}

impl<'a> Iterator for Attrs<'a> {
    type Item = Result<Attr<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let all = std::mem::take(&mut self.0);
        let Some(&[l0, l1, k0, k1]) = all.first_chunk() else {
            // Up to three bytes of padding may end a list.
            return None;
        };
        let len = usize::from(u16::from_ne_bytes([l0, l1]));
        let Some(value) = all.get(4..len) else {
            return Some(Err(Malformed("an attribute's length does not fit the message")));
        };
        self.0 = all.get(len.next_multiple_of(4)..).unwrap_or(&[]);
        Some(Ok(Attr { kind: u16::from_ne_bytes([k0, k1]) & TYPE_MASK, value }))
    }
}
