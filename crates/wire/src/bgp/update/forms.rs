//! The shape of values that ribtide passes on without a use for them.

use super::super::attribute::Attributes;

/// Splits a TLV with one byte of type and two of length off: type, value, what follows.
fn split_tlv(value: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let ([kind, a, b], rest) = value.split_first_chunk::<3>()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*a, *b])))?;
    Some((*kind, value, rest))
}

/// The same with two bytes of type.
fn split_wide_tlv(value: &[u8]) -> Option<(u16, &[u8], &[u8])> {
    let ([t, u, a, b], rest) = value.split_first_chunk::<4>()?;
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes([*a, *b])))?;
    Some((u16::from_be_bytes([*t, *u]), value, rest))
}

/// Whole TLVs with two bytes of type.
pub(super) fn is_wide_tlvs(mut value: &[u8]) -> bool {
    while !value.is_empty() {
        let Some((_, _, rest)) = split_wide_tlv(value) else { return false };
        value = rest;
    }
    true
}

/// An AS number and whole attributes (RFC 6368 section 5, RFC 7606 section 7.16).
pub(super) fn is_attr_set(value: &[u8]) -> bool {
    value.split_first_chunk::<4>().is_some_and(|(_asn, block)| {
        let mut attributes = Attributes::new(block);
        attributes.by_ref().for_each(drop);
        attributes.remainder().is_empty()
    })
}

/// A PMSI tunnel whose identifier has a length of its type (RFC 6514 section 5). A type that came after that RFC, and
/// the opaque identifiers of mLDP, are not judged.
pub(super) fn is_pmsi_tunnel(value: &[u8]) -> bool {
    let Some(([_flags, kind, ..], identifier)) = value.split_first_chunk::<5>() else { return false };
    match (kind, identifier.len()) {
        // RSVP-TE P2MP: extended tunnel id, reserved, tunnel id, P2MP id.
        (1, len) => matches!(len, 12 | 24),
        // PIM-SSM, PIM-SM, BIDIR-PIM: sender and group.
        (3..=5, len) => matches!(len, 8 | 32),
        // Ingress replication: the endpoint.
        (6, len) => matches!(len, 4 | 16),
        _ => true,
    }
}

/// Addresses, all IPv4 or all IPv6, each with a label (RFC 6514 section 8).
pub(super) fn is_pe_distinguisher_labels(value: &[u8]) -> bool {
    !value.is_empty() && (value.len().is_multiple_of(4 + 3) || value.len().is_multiple_of(16 + 3))
}

/// What is wrong with a Tunnel Encapsulation attribute (RFC 9012 section 13).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tunnels {
    Valid,
    /// No TLV at all.
    None,
    /// A sub-TLV does not end where its TLV ends, or a TLV not where the attribute ends.
    Malformed,
}

/// Reads tunnel TLVs and their sub-TLVs.
pub(super) fn tunnels(mut value: &[u8]) -> Tunnels {
    if value.is_empty() {
        return Tunnels::None;
    }
    while !value.is_empty() {
        let Some((_, mut tunnel, rest)) = split_wide_tlv(value) else { return Tunnels::Malformed };
        while !tunnel.is_empty() {
            let Some(after) = skip_sub_tlv(tunnel) else { return Tunnels::Malformed };
            tunnel = after;
        }
        value = rest;
    }
    Tunnels::Valid
}

/// What follows a sub-TLV: one byte of length for types below 128, else two (RFC 9012 section 2).
fn skip_sub_tlv(tunnel: &[u8]) -> Option<&[u8]> {
    match tunnel {
        [0..=127, len, rest @ ..] => rest.get(usize::from(*len)..),
        [128..=255, a, b, rest @ ..] => rest.get(usize::from(u16::from_be_bytes([*a, *b]))..),
        _ => None,
    }
}

/// TLVs whose length counts their three bytes of header; that of AIGP has eight bytes of metric (RFC 7311 section 3).
pub(super) fn is_aigp(mut value: &[u8]) -> bool {
    if value.is_empty() {
        return false;
    }
    while let Some(([kind, a, b], _)) = value.split_first_chunk::<3>() {
        let len = usize::from(u16::from_be_bytes([*a, *b]));
        if len < 3 || (*kind == 1 && len != 11) {
            return false;
        }
        let Some(rest) = value.get(len..) else { return false };
        value = rest;
    }
    value.is_empty()
}

/// Secure_Path and one or two Signature_Blocks, each signature with a segment (RFC 8205 sections 3.1 and 3.2).
pub(super) fn is_bgpsec_path(value: &[u8]) -> bool {
    let Some((segments, mut blocks)) = split_counted(value) else { return false };
    if segments.is_empty() || !segments.len().is_multiple_of(6) || blocks.is_empty() {
        return false;
    }
    let hops = segments.len() / 6;
    for _ in 0..2 {
        if blocks.is_empty() {
            break;
        }
        let Some(([_algorithm, signatures @ ..], rest)) = split_counted(blocks) else { return false };
        if count_signatures(signatures) != Some(hops) {
            return false;
        }
        blocks = rest;
    }
    blocks.is_empty()
}

/// A field whose two bytes of length count themselves.
fn split_counted(value: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = value.split_first_chunk::<2>()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*len)).checked_sub(2)?)
}

/// Signatures, each behind a key identifier of 20 bytes and its length.
fn count_signatures(mut signatures: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !signatures.is_empty() {
        let (_key, rest) = signatures.split_at_checked(20)?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        signatures = rest.get(usize::from(u16::from_be_bytes(*len))..)?;
        count += 1;
    }
    Some(count)
}

/// Mode, discriminator, and TLVs with one byte of length (RFC 9026 section 3.1.6).
pub(super) fn is_bfd_discriminator(value: &[u8]) -> bool {
    let Some((_, mut tlvs)) = value.split_first_chunk::<5>() else { return false };
    while let [kind, len, rest @ ..] = tlvs {
        // The source address is IPv4's or IPv6's.
        if *kind == 1 && !matches!(len, 4 | 16) {
            return false;
        }
        let Some(after) = rest.get(usize::from(*len)..) else { return false };
        tlvs = after;
    }
    tlvs.is_empty()
}

/// TLVs; a label index has seven bytes, an originator SRGB flags and ranges of six (RFC 8669 sections 3 and 6). Others,
/// SRv6 services among them, must only be whole.
pub(super) fn is_prefix_sid(mut value: &[u8]) -> bool {
    if value.is_empty() {
        return false;
    }
    while !value.is_empty() {
        let Some((kind, tlv, rest)) = split_tlv(value) else { return false };
        let fits = match kind {
            1 => tlv.len() == 7,
            3 => tlv.len() > 2 && (tlv.len() - 2).is_multiple_of(6),
            _ => true,
        };
        if !fits {
            return false;
        }
        value = rest;
    }
    true
}
