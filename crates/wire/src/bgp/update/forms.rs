//! The forms of values that ribtide passes on unused.

use super::super::next_hop::NextHop;

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

/// A PMSI tunnel of a defined type, whose identifier has the form of its type (RFC 6514 section 5).
/// Identifiers of types of later RFCs are not checked.
pub(super) fn is_pmsi_tunnel(value: &[u8]) -> bool {
    let Some(([_flags, kind, ..], identifier)) = value.split_first_chunk::<5>() else { return false };
    match (kind, identifier.len()) {
        // No tunnel.
        (0, len) => len == 0,
        // mLDP, point to multipoint and multipoint to multipoint.
        (2, _) => is_mldp_fec(identifier, &[6]),
        (7, _) => is_mldp_fec(identifier, &[7, 8]),
        // RSVP-TE P2MP: extended tunnel id, reserved, tunnel id, P2MP id.
        (1, len) => matches!(len, 12 | 24),
        // PIM-SSM, PIM-SM, BIDIR-PIM: sender and group.
        (3..=5, len) => matches!(len, 8 | 32),
        // Ingress replication: the endpoint.
        (6, len) => matches!(len, 4 | 16),
        // Unassigned or reserved in IANA's registry of tunnel types (RFC 7385).
        (9 | 14..=122 | 127 | 255, _) => false,
        // RFC 7524, RFC 9574, RFC 8556 and later; experiments; composite tunnels (RFC 8317).
        _ => true,
    }
}

/// An mLDP FEC element of one of these types: type, address family, a root address with its length, an opaque value
/// with its length (RFC 6388 sections 2.2 and 3.2).
fn is_mldp_fec(element: &[u8], types: &[u8]) -> bool {
    let Some(([kind, a, b, len], rest)) = element.split_first_chunk::<4>() else { return false };
    let fits = match u16::from_be_bytes([*a, *b]) {
        1 => *len == 4,
        2 => *len == 16,
        _ => true,
    };
    let opaque = rest.get(usize::from(*len)..).and_then(|rest| rest.split_first_chunk::<2>());
    types.contains(kind)
        && fits
        && opaque.is_some_and(|(len, opaque)| usize::from(u16::from_be_bytes(*len)) == opaque.len())
}

/// Unicast addresses, all IPv4 or all IPv6, each with a label (RFC 6514 section 8). The family is that of the route that
/// carries it, an MCAST-VPN route; with another, the length tells.
pub(super) fn is_pe_distinguisher_labels(value: &[u8]) -> bool {
    let v4 = |address: &[u8; 4]| NextHop::V4((*address).into()).is_host();
    let v6 = |address: &[u8; 16]| NextHop::from_v6((*address).into(), None).is_host();
    !value.is_empty() && (is_labelled(value, v4) || is_labelled(value, v6))
}

/// Whether `value` is addresses with three bytes of label each.
fn is_labelled<const N: usize>(mut value: &[u8], unicast: impl Fn(&[u8; N]) -> bool) -> bool {
    while let Some((address, rest)) = value.split_first_chunk::<N>() {
        let Some((_label, rest)) = rest.split_first_chunk::<3>() else { return false };
        if !unicast(address) {
            return false;
        }
        value = rest;
    }
    value.is_empty()
}

/// One or more tunnel TLVs of whole sub-TLVs (RFC 9012 section 13). No tunnel type is recognized
/// here, so each TLV "MUST remain in the attribute", and sub-TLVs are not checked.
pub(super) fn is_tunnels(mut value: &[u8]) -> bool {
    if value.is_empty() {
        return false;
    }
    while !value.is_empty() {
        let Some((_, mut tunnel, rest)) = split_wide_tlv(value) else { return false };
        while !tunnel.is_empty() {
            let Some(after) = skip_sub_tlv(tunnel) else { return false };
            tunnel = after;
        }
        value = rest;
    }
    true
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

/// Whether the metric of the first AIGP TLV is the greatest there is, of which no route could be better (RFC 7311
/// section 3.2). Only for what [`is_aigp`] then judges.
pub(super) fn has_greatest_metric(mut value: &[u8]) -> bool {
    while let Some(([kind, a, b], rest)) = value.split_first_chunk::<3>() {
        if *kind == 1 {
            return rest.first_chunk::<8>() == Some(&[0xff; 8]);
        }
        let len = usize::from(u16::from_be_bytes([*a, *b]));
        let Some(rest) = value.get(len.max(3)..) else { return false };
        value = rest;
    }
    false
}

/// TLVs, and among them a Hop TLV; each Hop TLV has a service index and one or more whole sub-TLVs (RFC 9015 section
/// 3.2.1, errors 4, 6 and 7). TLVs of other types are not looked into.
pub(super) fn is_sfp(mut value: &[u8]) -> bool {
    let mut hops = 0;
    while !value.is_empty() {
        let Some((kind, tlv, rest)) = split_tlv(value) else { return false };
        let fits = match kind {
            // Association type, RD and SPI.
            1 => tlv.len() == 12,
            2 => tlv.split_first().is_some_and(|(_index, details)| !details.is_empty() && is_tlvs(details)),
            _ => true,
        };
        if !fits {
            return false;
        }
        hops += u32::from(kind == 2);
        value = rest;
    }
    hops > 0
}

/// Whole TLVs with one byte of type and two of length.
fn is_tlvs(mut value: &[u8]) -> bool {
    while !value.is_empty() {
        let Some((_, _, rest)) = split_tlv(value) else { return false };
        value = rest;
    }
    true
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

/// Signatures, each after a key identifier of 20 bytes and its length.
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

/// Mode, discriminator, and TLVs with one byte of length, among them a source address of IPv4 or IPv6; together no less
/// than 11 bytes (RFC 9026 section 3.1.6).
pub(super) fn is_bfd_discriminator(value: &[u8]) -> bool {
    let Some((_, mut tlvs)) = value.split_first_chunk::<5>() else { return false };
    let mut source = false;
    while let [kind, len, rest @ ..] = tlvs {
        if *kind == 1 {
            if !matches!(len, 4 | 16) {
                return false;
            }
            source = true;
        }
        let Some(after) = rest.get(usize::from(*len)..) else { return false };
        tlvs = after;
    }
    source && tlvs.is_empty()
}

/// One or more segments of one or more domains: their number, and for each a domain id of six bytes and a type (RFC 10039
/// section 4).
pub(super) fn is_domain_path(mut value: &[u8]) -> bool {
    const DOMAIN: usize = 7;
    if value.is_empty() {
        return false;
    }
    while let Some((count, rest)) = value.split_first() {
        match rest.get(usize::from(*count) * DOMAIN..) {
            Some(after) if *count > 0 => value = after,
            _ => return false,
        }
    }
    true
}

/// The fault of a BGP Prefix-SID.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PrefixSid {
    Valid,
    /// RFC 8669 section 6.
    Malformed,
    /// An SRv6 Service TLV (RFC 9252 section 7).
    MalformedService,
}

/// Reads TLVs: a label index has seven bytes, an originator SRGB flags and ranges of six (RFC 8669 section 3), an SRv6
/// L3 or L2 Service TLV a reserved byte and sub-TLVs (RFC 9252 section 2). Those of other types must only be whole.
pub(super) fn prefix_sid(mut value: &[u8]) -> PrefixSid {
    if value.is_empty() {
        return PrefixSid::Malformed;
    }
    let mut result = PrefixSid::Valid;
    while let Some(kind) = value.first() {
        let service = matches!(kind, 5 | 6);
        let malformed = if service { PrefixSid::MalformedService } else { PrefixSid::Malformed };
        let Some((_, tlv, rest)) = split_tlv(value) else { return malformed };
        let fits = match kind {
            1 => tlv.len() == 7,
            3 => tlv.len() > 2 && (tlv.len() - 2).is_multiple_of(6),
            5 | 6 => is_srv6_service(tlv),
            _ => true,
        };
        if !fits && service {
            return malformed;
        }
        if !fits {
            result = malformed;
        }
        value = rest;
    }
    result
}

/// A reserved byte and whole sub-TLVs; that of type 1 has 21 bytes, of which the SID is 16, and whole sub-sub-TLVs.
fn is_srv6_service(tlv: &[u8]) -> bool {
    let Some((_reserved, mut rest)) = tlv.split_first() else { return false };
    while !rest.is_empty() {
        let Some((kind, sub, after)) = split_tlv(rest) else { return false };
        if kind == 1 && !sub.get(21..).is_some_and(is_tlvs) {
            return false;
        }
        rest = after;
    }
    true
}
