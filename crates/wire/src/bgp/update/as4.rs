//! From a peer with two-octet AS numbers: the attributes as a four-octet peer would have sent them
//! (RFC 6793 section 4.2.3). Such peers are few, so this one may allocate.

use super::super::attribute::{Aggregator, AsPath, Attribute, SegmentKind, as_path, code};
use super::super::{AS_TRANS, build};

/// The values that are merged.
#[derive(Clone, Copy, Default)]
pub(super) struct Parts<'a> {
    pub(super) aggregator: Option<&'a [u8]>,
    pub(super) as4_path: Option<&'a [u8]>,
    pub(super) as4_aggregator: Option<&'a [u8]>,
}

/// The attributes of `survivors` with AS_PATH and AGGREGATOR made from all of `parts`, AS4_PATH and AS4_AGGREGATOR
/// left out.
pub(super) fn widen<'a>(survivors: impl Iterator<Item = Attribute<'a>>, parts: &Parts<'_>) -> Vec<u8> {
    let two_octet = parts.aggregator.and_then(Aggregator::from_two_octet);
    let as4_aggregator = parts.as4_aggregator.and_then(Aggregator::from_value);
    // An AGGREGATOR that is not AS_TRANS was added by a router that does not know of AS4_AGGREGATOR and AS4_PATH:
    // these are then older than it.
    let stale = two_octet.is_some_and(|a| a.asn != u32::from(AS_TRANS)) && as4_aggregator.is_some();
    let (as4_path, as4_aggregator) = if stale { (None, None) } else { (parts.as4_path, as4_aggregator) };
    let mut out = Vec::new();
    for attribute in survivors {
        match attribute.code {
            code::AS_PATH => {
                let merged = merge_paths(attribute.value, as4_path);
                build::attribute(&mut out, attribute.flags, code::AS_PATH, &merged);
            }
            code::AGGREGATOR => {
                if let Some(aggregator) = as4_aggregator.or(two_octet) {
                    build::aggregator(&mut out, attribute.flags, aggregator);
                }
            }
            code::AS4_PATH | code::AS4_AGGREGATOR => {}
            _ => build::attribute(&mut out, attribute.flags, attribute.code, attribute.value),
        }
    }
    out
}

/// The four-octet path of a two-octet `path` and AS4_PATH: the latter, after as many hops of the former as it is
/// longer. Both values are valid.
fn merge_paths(path: &[u8], as4_path: Option<&[u8]>) -> Vec<u8> {
    let wide = widen_path(path);
    let wide = AsPath::new(&wide);
    let as4_path = AsPath::new(as4_path.unwrap_or_default());
    // `None`: AS4_PATH is longer, or leaves nothing to take from it.
    let Some(mut missing) = wide.hop_count().checked_sub(as4_path.hop_count()) else {
        return wide.as_bytes().to_vec();
    };
    if as4_path.hop_count() == 0 {
        return wide.as_bytes().to_vec();
    }
    let mut out = Vec::new();
    for segment in wide.segments() {
        // Confederation segments count nothing and stay with the hops before them.
        if missing == 0 && !segment.kind.is_confed() {
            break;
        }
        let asns = segment.as_bytes();
        let taken = match segment.kind {
            SegmentKind::Sequence => asns.get(..4 * missing as usize).unwrap_or(asns),
            _ => asns,
        };
        build::segment(&mut out, segment.kind, taken);
        missing = missing.saturating_sub(segment.hop_count());
    }
    for segment in as4_path.segments().filter(|s| !s.kind.is_confed()) {
        build::join_segment(&mut out, segment.kind, segment.as_bytes());
    }
    out
}

/// A two-octet path with four bytes for each AS number.
fn widen_path(mut path: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(2 * path.len());
    while let Some((kind, asns, rest)) = as_path::split_segment(path, 2) {
        out.extend_from_slice(&[kind as u8, (asns.len() / 2) as u8]);
        for asn in asns.as_chunks::<2>().0 {
            out.extend_from_slice(&[0, 0]);
            out.extend_from_slice(asn);
        }
        path = rest;
    }
    out
}
