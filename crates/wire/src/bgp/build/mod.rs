//! Writing attributes and UPDATEs.
//!
//! Attributes are appended one by one, in ascending order of their codes (RFC 4271 section 5), to a block that
//! [`UpdatePacker`] then puts before as many prefixes as there are.

mod pack;

pub use pack::{AttributesTooLong, UpdatePacker, end_of_rib, withdraw};

use super::AS_TRANS;
use super::attribute::{
    Aggregator, AsPath, Origin, SegmentKind, as_path as path, code, expected_flags, flags,
};
use std::net::Ipv4Addr;

/// Appends an attribute. The extended length flag is set where the length needs it, whatever `flags` says; a
/// value beyond 65,535 bytes has no encoding and is cut there.
#[inline]
pub fn attribute(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    let value = value.get(..usize::from(u16::MAX)).unwrap_or(value);
    match u8::try_from(value.len()) {
        Ok(len) => out.extend_from_slice(&[flags & !flags::EXTENDED_LENGTH, code, len]),
        Err(_) => {
            let [high, low] = (value.len() as u16).to_be_bytes();
            out.extend_from_slice(&[flags | flags::EXTENDED_LENGTH, code, high, low]);
        }
    }
    out.extend_from_slice(value);
}

/// Appends an attribute that ribtide recognizes, with the flags of its type.
fn known(out: &mut Vec<u8>, code: u8, value: &[u8]) {
    attribute(out, expected_flags(code).unwrap_or(flags::OPTIONAL), code, value);
}

/// Appends ORIGIN.
pub fn origin(out: &mut Vec<u8>, origin: Origin) {
    known(out, code::ORIGIN, &[origin as u8]);
}

/// Appends AS_PATH, for a peer with four-octet AS numbers.
pub fn as_path(out: &mut Vec<u8>, path: AsPath<'_>) {
    known(out, code::AS_PATH, path.as_bytes());
}

/// Appends AS_PATH for a peer with two-octet AS numbers; [`AS_TRANS`] replaces larger ones.
///
/// Then AS4_PATH is needed too, and its code comes later: see [`as4_path`].
pub fn as_path_two_octet(out: &mut Vec<u8>, path: AsPath<'_>) {
    let mut value = Vec::with_capacity(path.as_bytes().len());
    for segment in path.segments() {
        value.extend_from_slice(&[segment.kind as u8, segment.asns().len() as u8]);
        for asn in segment.asns() {
            value.extend_from_slice(&u16::try_from(asn).unwrap_or(AS_TRANS).to_be_bytes());
        }
    }
    known(out, code::AS_PATH, &value);
}

/// Appends AS4_PATH for a peer with two-octet AS numbers, if `path` has one that does not fit
/// (RFC 6793 section 4.2.2).
pub fn as4_path(out: &mut Vec<u8>, path: AsPath<'_>) {
    let outside = || path.segments().filter(|s| !s.kind.is_confed());
    if !outside().any(|s| s.asns().any(|asn| asn > u32::from(u16::MAX))) {
        return;
    }
    let mut value = Vec::with_capacity(path.as_bytes().len());
    for s in outside() {
        segment(&mut value, s.kind, s.as_bytes());
    }
    known(out, code::AS4_PATH, &value);
}

/// The value of an AS_PATH (four bytes) that is `path` after `count` times `asn`. Segments of a confederation stay before
/// them, because they are those of the neighbours inside (RFC 5065 section 4.1).
pub fn prepend(path: AsPath<'_>, asn: u32, count: u8) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.as_bytes().len() + 2 + 4 * usize::from(count));
    let mut segments = path.segments().peekable();
    while let Some(s) = segments.next_if(|s| s.kind.is_confed()) {
        segment(&mut out, s.kind, s.as_bytes());
    }
    if count > 0 {
        out.extend_from_slice(&[SegmentKind::Sequence as u8, count]);
        (0..count).for_each(|_| out.extend_from_slice(&asn.to_be_bytes()));
    }
    for s in segments {
        join_segment(&mut out, s.kind, s.as_bytes());
    }
    out
}

/// The value of an AS_PATH (four bytes) that is `path` after the member AS `asn` of a confederation (RFC 5065 section 4).
pub fn prepend_member(path: AsPath<'_>, asn: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(path.as_bytes().len() + 6);
    let mut segments = path.segments().peekable();
    out.extend_from_slice(&[SegmentKind::ConfedSequence as u8, 1]);
    out.extend_from_slice(&asn.to_be_bytes());
    let first = segments.next_if(|s| s.kind == SegmentKind::ConfedSequence);
    if let Some(first) = first {
        match first.asns().len() {
            255 => segment(&mut out, first.kind, first.as_bytes()),
            count => {
                if let Some(field) = out.get_mut(1) {
                    *field += count as u8;
                }
                out.extend_from_slice(first.as_bytes());
            }
        }
    }
    segments.for_each(|s| segment(&mut out, s.kind, s.as_bytes()));
    out
}

/// Appends a segment to the value of an AS_PATH. `bytes` are at most 255 AS numbers of four bytes.
pub(super) fn segment(out: &mut Vec<u8>, kind: SegmentKind, bytes: &[u8]) {
    out.extend_from_slice(&[kind as u8, (bytes.len() / 4) as u8]);
    out.extend_from_slice(bytes);
}

/// Appends a segment to the value `out`; a sequence after a sequence continues it while the count fits an byte.
pub(super) fn join_segment(out: &mut Vec<u8>, kind: SegmentKind, bytes: &[u8]) {
    let mut rest = out.as_slice();
    let mut last = None;
    while let Some((kind, asns, after)) = path::split_segment(rest, 4) {
        last = Some((out.len() - rest.len(), kind, asns.len() / 4));
        rest = after;
    }
    if let (Some((start, SegmentKind::Sequence, count)), SegmentKind::Sequence) = (last, kind)
        && let Ok(total) = u8::try_from(count + bytes.len() / 4)
    {
        if let Some(field) = out.get_mut(start + 1) {
            *field = total;
        }
        out.extend_from_slice(bytes);
    } else {
        segment(out, kind, bytes);
    }
}

/// Appends NEXT_HOP. [`UpdatePacker`] does that by itself; this is for table dumps.
pub fn next_hop(out: &mut Vec<u8>, addr: Ipv4Addr) {
    known(out, code::NEXT_HOP, &addr.octets());
}

/// Appends MULTI_EXIT_DISC.
pub fn med(out: &mut Vec<u8>, med: u32) {
    known(out, code::MED, &med.to_be_bytes());
}

/// Appends LOCAL_PREF.
pub fn local_pref(out: &mut Vec<u8>, preference: u32) {
    known(out, code::LOCAL_PREF, &preference.to_be_bytes());
}

/// Appends AGGREGATOR, for a peer with four-octet AS numbers. Of `flags`, partial is taken over.
pub fn aggregator(out: &mut Vec<u8>, flags: u8, aggregator: Aggregator) {
    let mut value = [0; 8];
    let (asn, router_id) = value.split_at_mut(4);
    asn.copy_from_slice(&aggregator.asn.to_be_bytes());
    router_id.copy_from_slice(&aggregator.router_id.octets());
    optional_transitive(out, flags, code::AGGREGATOR, &value);
}

/// Appends AGGREGATOR for a peer with two-octet AS numbers; [`AS_TRANS`] replaces a larger one.
///
/// Then AS4_AGGREGATOR is needed too, and its code comes later: see [`as4_aggregator`].
pub fn aggregator_two_octet(out: &mut Vec<u8>, flags: u8, aggregator: Aggregator) {
    let mut value = [0; 6];
    let (asn, router_id) = value.split_at_mut(2);
    asn.copy_from_slice(&u16::try_from(aggregator.asn).unwrap_or(AS_TRANS).to_be_bytes());
    router_id.copy_from_slice(&aggregator.router_id.octets());
    optional_transitive(out, flags, code::AGGREGATOR, &value);
}

/// Appends AS4_AGGREGATOR for a peer with two-octet AS numbers, if the aggregator's does not fit
/// (RFC 6793 section 4.2.2).
pub fn as4_aggregator(out: &mut Vec<u8>, aggregator: Aggregator) {
    if aggregator.asn > u32::from(u16::MAX) {
        let mut value = aggregator.asn.to_be_bytes().to_vec();
        value.extend_from_slice(&aggregator.router_id.octets());
        known(out, code::AS4_AGGREGATOR, &value);
    }
}

fn optional_transitive(out: &mut Vec<u8>, have: u8, code: u8, value: &[u8]) {
    attribute(out, flags::OPTIONAL | flags::TRANSITIVE | have & flags::PARTIAL, code, value);
}

/// Appends COMMUNITIES, LARGE_COMMUNITY, EXTENDED COMMUNITIES or another attribute that is optional and transitive,
/// unless its list is empty: that would be malformed. Of `flags`, partial is taken over.
pub fn list(out: &mut Vec<u8>, flags: u8, code: u8, value: &[u8]) {
    if !value.is_empty() {
        optional_transitive(out, flags, code, value);
    }
}

/// Appends ORIGINATOR_ID.
pub fn originator_id(out: &mut Vec<u8>, router_id: Ipv4Addr) {
    known(out, code::ORIGINATOR_ID, &router_id.octets());
}

/// Appends CLUSTER_LIST: `cluster_id` before the value `received`, which may be empty.
pub fn cluster_list(out: &mut Vec<u8>, cluster_id: Ipv4Addr, received: &[u8]) {
    let mut value = cluster_id.octets().to_vec();
    value.extend_from_slice(received);
    known(out, code::CLUSTER_LIST, &value);
}

#[cfg(test)]
mod tests;
