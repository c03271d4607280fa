//! Sets of AS paths: by origin AS, neighbour AS, any AS of the path, or regular expressions.

use crate::numbers::NumberSet;
use crate::regex::Regex;
use ribtide_wire::bgp::attribute::{AsPath, Segment, SegmentKind};

/// A set of AS paths: a path is in it when any of the four fields matches.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsPathSet {
    /// ASes that may be last: the originator's.
    pub origin: NumberSet,
    /// ASes that may be first: the neighbour's.
    pub neighbor: NumberSet,
    /// ASes that may be anywhere.
    pub contains: NumberSet,
    /// Regular expressions.
    pub regex: Vec<Regex>,
}

impl AsPathSet {
    /// Whether `path` is in the set.
    pub fn has(&self, path: AsPath<'_>) -> bool {
        path.origin_as().is_some_and(|asn| self.origin.has(asn))
            || path.neighbor_as().is_some_and(|asn| self.neighbor.has(asn))
            || (!self.contains.is_empty() && path.asns().any(|asn| self.contains.has(asn)))
            || (!self.regex.is_empty() && {
                let hops = hops(path);
                self.regex.iter().any(|regex| regex.matches(&hops))
            })
    }
}

/// One place of a path: an AS, or an AS_SET with all of its members.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hop<'a> {
    One(u32),
    Set(Segment<'a>),
}

/// The places of a path, nearest first, as the decision process counts them: without confederation
/// segments.
fn hops(path: AsPath<'_>) -> Vec<Hop<'_>> {
    let mut hops = Vec::new();
    for segment in path.segments() {
        match segment.kind {
            SegmentKind::Sequence => hops.extend(segment.asns().map(Hop::One)),
            SegmentKind::Set => hops.push(Hop::Set(segment)),
            SegmentKind::ConfedSequence | SegmentKind::ConfedSet => {}
        }
    }
    hops
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of an AS_PATH of one sequence and, if there are any, one set.
    fn path(sequence: &[u32], set: &[u32]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, asns) in [(2, sequence), (1, set)] {
            if !asns.is_empty() {
                out.extend_from_slice(&[kind, asns.len() as u8]);
                asns.iter().for_each(|a| out.extend_from_slice(&a.to_be_bytes()));
            }
        }
        out
    }

    #[test]
    fn each_kind_of_path_condition() {
        let numbers = |text: &str| [text.parse().unwrap()].into_iter().collect::<NumberSet>();
        let has = |set: &AsPathSet, sequence: &[u32], members: &[u32]| {
            set.has(AsPath::new(&path(sequence, members)))
        };
        let origin = AsPathSet { origin: numbers("64512-65534"), ..AsPathSet::default() };
        assert!(
            has(&origin, &[174, 65001], &[])
                && !has(&origin, &[65001, 174], &[])
                && !has(&origin, &[174], &[65001])
        );
        let neighbor = AsPathSet { neighbor: numbers("174"), ..AsPathSet::default() };
        assert!(
            has(&neighbor, &[174, 65001], &[])
                && !has(&neighbor, &[65001, 174], &[])
                && !has(&neighbor, &[], &[174])
        );
        let contains = AsPathSet { contains: numbers("3356"), ..AsPathSet::default() };
        assert!(
            has(&contains, &[174, 3356, 1], &[])
                && has(&contains, &[174], &[1, 3356])
                && !has(&contains, &[174], &[])
        );
        let regex = AsPathSet {
            regex: vec!["^174 3356$".parse().unwrap(), "^$".parse().unwrap()],
            ..AsPathSet::default()
        };
        assert!(has(&regex, &[174, 3356], &[]) && has(&regex, &[], &[]) && has(&regex, &[174], &[1, 3356]));
        assert!(!has(&regex, &[174, 3356, 1], &[]));
        assert!(!has(&AsPathSet::default(), &[], &[]));
    }
}
