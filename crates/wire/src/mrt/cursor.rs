//! A read position in a record. Every read names its field for errors.

use super::Error;
use ribtide_prefix::{Afi, AnyPrefix};
use std::net::IpAddr;

/// The bytes not read yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Cursor<'a>(pub(super) &'a [u8]);

impl<'a> Cursor<'a> {
    pub(super) fn take(&mut self, len: usize, field: &'static str) -> Result<&'a [u8], Error> {
        let (head, tail) = self.0.split_at_checked(len).ok_or(Error::Short { field })?;
        self.0 = tail;
        Ok(head)
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], Error> {
        let (head, tail) = self.0.split_first_chunk().ok_or(Error::Short { field })?;
        self.0 = tail;
        Ok(*head)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, Error> {
        self.array(field).map(|[b]| b)
    }

    pub(super) fn u16(&mut self, field: &'static str) -> Result<u16, Error> {
        self.array(field).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, Error> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// An AS number of two or four bytes.
    pub(super) fn asn(&mut self, four_bytes: bool, field: &'static str) -> Result<u32, Error> {
        if four_bytes { self.u32(field) } else { self.u16(field).map(u32::from) }
    }

    pub(super) fn afi(&mut self, field: &'static str) -> Result<Afi, Error> {
        let afi = self.u16(field)?;
        Afi::from_u16(afi).ok_or(Error::AddressFamily { afi })
    }

    pub(super) fn addr(&mut self, afi: Afi, field: &'static str) -> Result<IpAddr, Error> {
        match afi {
            Afi::Ipv4 => self.array::<4>(field).map(IpAddr::from),
            Afi::Ipv6 => self.array::<16>(field).map(IpAddr::from),
        }
    }

    /// A length in bits, then as many bytes as it needs; bits beyond the length are cleared.
    pub(super) fn prefix(&mut self, afi: Afi) -> Result<AnyPrefix, Error> {
        let len = self.u8("prefix length")?;
        let max = width(afi);
        if len > max {
            return Err(Error::PrefixLength { len, max });
        }
        let bytes = self.take(usize::from(len).div_ceil(8), "prefix")?;
        let mut padded = [0; 16];
        for (to, from) in padded.iter_mut().zip(bytes) {
            *to = *from;
        }
        let addr = Cursor(&padded).addr(afi, "prefix")?;
        AnyPrefix::from_addr(addr, len).ok_or(Error::PrefixLength { len, max })
    }
}

/// The longest prefix length of a family.
pub(super) fn width(afi: Afi) -> u8 {
    match afi {
        Afi::Ipv4 => 32,
        Afi::Ipv6 => 128,
    }
}
