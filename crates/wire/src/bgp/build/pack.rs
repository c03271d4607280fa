//! Packs prefixes into UPDATEs, as many in each as fit, with path identifiers or without.
//!
//! IPv4 unicast prefixes with an IPv4 next hop, and withdrawals of such prefixes, go in the fields of RFC 4271 that every peer has.
//! All others go in MP_REACH_NLRI and MP_UNREACH_NLRI, which are the first attribute (RFC 7606 section 5.1).

use super::super::attribute::{Attribute, code, flags};
use super::super::message::{HEADER_LEN, MessageType, finish, patch_u16, start};
use super::super::next_hop::NextHop;
use super::super::nlri::Nlri;
use ribtide_prefix::{Afi, AfiSafi, BgpFamily};
use std::fmt;

/// The offset of the length of the withdrawn routes in the message.
const WITHDRAWN_LEN: usize = HEADER_LEN;
/// The offset of the length of the attributes, without withdrawn routes.
const ATTRIBUTES_LEN: usize = HEADER_LEN + 2;
/// The offset of the attributes, without withdrawn routes.
const ATTRIBUTES: usize = HEADER_LEN + 4;
/// Bytes of an attribute's header with extended length.
const MP_HEADER: usize = 4;

/// Puts one set of attributes before any number of prefixes.
#[derive(Clone, Copy, Debug)]
pub struct UpdatePacker<'a> {
    /// Attributes with codes up to NEXT_HOP's, and those after it.
    attributes: (&'a [u8], &'a [u8]),
    next_hop: NextHop,
    max_len: usize,
}

impl<'a> UpdatePacker<'a> {
    /// Messages of at most `max_len` bytes with `attributes`, a block of whole attributes in ascending order of
    /// codes, without NEXT_HOP, MP_REACH_NLRI and MP_UNREACH_NLRI.
    pub fn new(attributes: &'a [u8], next_hop: NextHop, max_len: usize) -> Self {
        let mut after = attributes;
        while let Some((attribute, rest)) = Attribute::split_first(after)
            && attribute.code < code::NEXT_HOP
        {
            after = rest;
        }
        let before = attributes.get(..attributes.len() - after.len()).unwrap_or(attributes);
        UpdatePacker { attributes: (before, after), next_hop, max_len }
    }

    /// Appends messages that announce `prefixes`, in order, and returns their number. Each has its
    /// length in its header.
    ///
    /// IPv6 prefixes with an IPv4 next hop get it as an IPv4-mapped address (RFC 4798 section 2).
    ///
    /// # Errors
    /// When the attributes leave no room for a prefix; nothing is written then.
    pub fn announce<N: Nlri>(
        &self,
        prefixes: impl IntoIterator<Item = N>,
        out: &mut Vec<u8>,
    ) -> Result<usize, AttributesTooLong> {
        let (before, after) = self.attributes;
        let len = before.len() + after.len();
        let fits = |overhead: usize| {
            let needed = ATTRIBUTES + overhead + len + N::MAX_LEN;
            // The length fields have two bytes each.
            (needed <= self.max_len.min(usize::from(u16::MAX)))
                .then_some(())
                .ok_or(AttributesTooLong { len, max_len: self.max_len })
        };
        let family = N::Family::ID;
        let next_hop = match (family.afi(), self.next_hop) {
            (_, NextHop::V4(addr)) if family == AfiSafi::Ipv4Unicast => {
                const NEXT_HOP: usize = 3 + 4;
                fits(NEXT_HOP)?;
                let open = |out: &mut Vec<u8>| {
                    out.extend_from_slice(&[0, 0]);
                    out.extend_from_slice(&((len + NEXT_HOP) as u16).to_be_bytes());
                    out.extend_from_slice(before);
                    super::next_hop(out, addr);
                    out.extend_from_slice(after);
                };
                return Ok(pack(prefixes, self.max_len, 0, out, open, |_, _| {}));
            }
            (Afi::Ipv6, NextHop::V4(addr)) => NextHop::V6 { global: addr.to_ipv6_mapped(), link_local: None },
            (_, next_hop) => next_hop,
        };
        // AFI, SAFI, length and both addresses of a next hop, one reserved byte.
        fits(MP_HEADER + 3 + 1 + 32 + 1)?;
        let open = |out: &mut Vec<u8>| {
            open_mp(family, out, code::MP_REACH_NLRI);
            next_hop.write_mp(out);
            out.push(0);
        };
        let close = |out: &mut Vec<u8>, at: usize| {
            close_mp(out, at);
            out.extend_from_slice(before);
            out.extend_from_slice(after);
            let attributes = out.len() - at - ATTRIBUTES;
            patch_u16(out, at + ATTRIBUTES_LEN, attributes);
        };
        Ok(pack(prefixes, self.max_len, len, out, open, close))
    }
}

/// Appends messages of at most `max_len` bytes (at least 64) that withdraw `prefixes`, in order, and returns how
/// many messages that are.
pub fn withdraw<N: Nlri>(prefixes: impl IntoIterator<Item = N>, max_len: usize, out: &mut Vec<u8>) -> usize {
    match N::Family::ID {
        AfiSafi::Ipv4Unicast => {
            let close = |out: &mut Vec<u8>, at: usize| {
                let withdrawn = out.len() - at - WITHDRAWN_LEN - 2;
                patch_u16(out, at + WITHDRAWN_LEN, withdrawn);
                out.extend_from_slice(&[0, 0]);
            };
            pack(prefixes, max_len, 2, out, |out| out.extend_from_slice(&[0, 0]), close)
        }
        family => {
            let close = |out: &mut Vec<u8>, at: usize| {
                close_mp(out, at);
                let attributes = out.len() - at - ATTRIBUTES;
                patch_u16(out, at + ATTRIBUTES_LEN, attributes);
            };
            pack(prefixes, max_len, 0, out, |out| open_mp(family, out, code::MP_UNREACH_NLRI), close)
        }
    }
}

/// Appends the End-of-RIB marker of a family (RFC 4724 section 2).
pub fn end_of_rib(family: AfiSafi, out: &mut Vec<u8>) {
    let at = start(out, MessageType::Update);
    match family {
        AfiSafi::Ipv4Unicast => out.extend_from_slice(&[0, 0, 0, 0]),
        family => {
            out.extend_from_slice(&[0, 0, 0, 6, flags::OPTIONAL, code::MP_UNREACH_NLRI, 3]);
            out.extend_from_slice(&family.to_bytes());
        }
    }
    finish(out, at);
}

/// Both lengths before the attributes and the start of an MP attribute, lengths left to be written.
fn open_mp(family: AfiSafi, out: &mut Vec<u8>, code: u8) {
    let [afi_high, afi_low, safi] = family.to_bytes();
    let mp_flags = flags::OPTIONAL | flags::EXTENDED_LENGTH;
    out.extend_from_slice(&[0, 0, 0, 0, mp_flags, code, 0, 0, afi_high, afi_low, safi]);
}

/// Writes the length of the MP attribute of the message at `at`, which ends at the end of `out`.
fn close_mp(out: &mut [u8], at: usize) {
    let len = out.len() - at - ATTRIBUTES - MP_HEADER;
    patch_u16(out, at + ATTRIBUTES + 2, len);
}

/// Writes messages: each is begun by `open`, takes prefixes while `tail` bytes stay free, and is ended by `close`,
/// which writes that tail. Returns how many.
#[inline]
fn pack<N: Nlri>(
    prefixes: impl IntoIterator<Item = N>,
    max_len: usize,
    tail: usize,
    out: &mut Vec<u8>,
    open: impl Fn(&mut Vec<u8>),
    close: impl Fn(&mut Vec<u8>, usize),
) -> usize {
    let end = |out: &mut Vec<u8>, at: usize| {
        close(out, at);
        finish(out, at);
    };
    let room = max_len.min(usize::from(u16::MAX)).saturating_sub(tail + N::MAX_LEN);
    let mut messages = 0;
    let mut current = None;
    for prefix in prefixes {
        // Room is kept for the longest prefix: a few bytes given away for a test that needs no length.
        if let Some(at) = current.take_if(|at| out.len() - *at > room) {
            end(out, at);
        }
        if current.is_none() {
            current = Some(start(out, MessageType::Update));
            open(out);
            messages += 1;
        }
        prefix.encode(out);
    }
    if let Some(at) = current {
        end(out, at);
    }
    messages
}

/// The attributes leave no room for even one prefix: the route cannot be advertised on this session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributesTooLong {
    /// Bytes of attributes.
    pub len: usize,
    /// The longest message that the session allows.
    pub max_len: usize,
}

impl fmt::Display for AttributesTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes of attributes leave no room for a prefix in a message of {}; the peer would have to offer \
             extended messages, or an export policy to shorten them",
            self.len, self.max_len
        )
    }
}

impl std::error::Error for AttributesTooLong {}
