//! AS_PATH: the ASes that a route came through, in segments (RFC 4271 section 5.1.2, RFC 5065).

use std::fmt;

/// Whether an AS number is for private use (RFC 6996 section 5): 64512 to 65534, and 4200000000 to 4294967294.
pub fn is_private(asn: u32) -> bool {
    matches!(asn, 64_512..=65_534 | 4_200_000_000..=4_294_967_294)
}

/// The kind of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum SegmentKind {
    /// AS_SET: unordered, from aggregation.
    Set = 1,
    /// AS_SEQUENCE: in order, nearest first.
    Sequence = 2,
    /// AS_CONFED_SEQUENCE: member ASes of the local confederation, in order.
    ConfedSequence = 3,
    /// AS_CONFED_SET: the same, unordered.
    ConfedSet = 4,
}

impl SegmentKind {
    /// The kind of a number, or `None`.
    #[inline]
    pub fn from_u8(n: u8) -> Option<SegmentKind> {
        match n {
            1 => Some(SegmentKind::Set),
            2 => Some(SegmentKind::Sequence),
            3 => Some(SegmentKind::ConfedSequence),
            4 => Some(SegmentKind::ConfedSet),
            _ => None,
        }
    }

    /// Whether it belongs to the local confederation, so that no speaker outside sees or counts it.
    #[inline]
    pub fn is_confed(self) -> bool {
        matches!(self, SegmentKind::ConfedSequence | SegmentKind::ConfedSet)
    }
}

/// One segment.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Segment<'a> {
    /// Its kind.
    pub kind: SegmentKind,
    bytes: &'a [u8],
}

impl<'a> Segment<'a> {
    /// The AS numbers, in order.
    #[inline]
    pub fn asns(self) -> Asns<'a> {
        Asns { bytes: self.bytes.as_chunks::<4>().0.iter() }
    }

    /// The AS numbers as bytes, four bytes each.
    pub(crate) fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// What it adds to the length of the path: a set counts as one, a confederation segment not at all.
    #[inline]
    pub fn hop_count(self) -> u32 {
        match self.kind {
            SegmentKind::Sequence => (self.bytes.len() / 4) as u32,
            SegmentKind::Set => 1,
            SegmentKind::ConfedSequence | SegmentKind::ConfedSet => 0,
        }
    }
}

/// The AS numbers of a segment.
#[derive(Clone, Debug)]
pub struct Asns<'a> {
    bytes: std::slice::Iter<'a, [u8; 4]>,
}

impl Iterator for Asns<'_> {
    type Item = u32;

    #[inline]
    fn next(&mut self) -> Option<u32> {
        self.bytes.next().map(|asn| u32::from_be_bytes(*asn))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.bytes.size_hint()
    }
}

impl DoubleEndedIterator for Asns<'_> {
    fn next_back(&mut self) -> Option<u32> {
        self.bytes.next_back().map(|asn| u32::from_be_bytes(*asn))
    }
}

impl ExactSizeIterator for Asns<'_> {}

/// The value of an AS_PATH with four-octet AS numbers. The default is the empty path: of a route from the
/// local AS.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct AsPath<'a> {
    bytes: &'a [u8],
}

impl<'a> AsPath<'a> {
    /// A view of `value`, unchecked: a malformed path ends at its fault.
    #[inline]
    pub fn new(value: &'a [u8]) -> Self {
        AsPath { bytes: value }
    }

    /// The value as bytes.
    pub fn as_bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The segments, nearest first.
    #[inline]
    pub fn segments(self) -> Segments<'a> {
        Segments { rest: self.bytes }
    }

    /// All AS numbers, nearest first, of all segments.
    pub fn asns(self) -> impl Iterator<Item = u32> + 'a {
        self.segments().flat_map(Segment::asns)
    }

    /// Whether there is no AS number in it.
    pub fn is_empty(self) -> bool {
        self.bytes.is_empty()
    }

    /// The length that route selection compares (RFC 4271 section 9.1.2.2, RFC 5065 section 5.3).
    #[inline]
    pub fn hop_count(self) -> u32 {
        self.segments().map(Segment::hop_count).sum()
    }

    /// The first AS number if the path begins with a sequence, of a confederation or not: the AS
    /// that sent the route. RFC 4271 section 6.3 permits its comparison with the peer's AS.
    #[inline]
    pub fn first_as(self) -> Option<u32> {
        let first = self.segments().next()?;
        match first.kind {
            SegmentKind::Sequence | SegmentKind::ConfedSequence => first.asns().next(),
            SegmentKind::Set | SegmentKind::ConfedSet => None,
        }
    }

    /// Whether the path begins with an AS_CONFED_SEQUENCE whose first is `asn`: that of a peer in another member AS of our
    /// confederation does (RFC 5065 section 5).
    pub fn begins_with_member(self, asn: u32) -> bool {
        let first = self.segments().next();
        first.is_some_and(|s| s.kind == SegmentKind::ConfedSequence && s.asns().next() == Some(asn))
    }

    /// The neighbouring AS, by which MULTI_EXIT_DISC values are comparable: the first AS number beyond the local
    /// confederation, `None` when the route is from inside or begins with a set.
    #[inline]
    pub fn neighbor_as(self) -> Option<u32> {
        let first = self.segments().find(|s| !s.kind.is_confed())?;
        (first.kind == SegmentKind::Sequence).then(|| first.asns().next()).flatten()
    }

    /// The AS that originated the route: the last AS number, `None` when the path is empty or ends in a set
    /// or in a confederation.
    pub fn origin_as(self) -> Option<u32> {
        let last = self.segments().last()?;
        (last.kind == SegmentKind::Sequence).then(|| last.asns().next_back()).flatten()
    }

    /// Whether `asn` is anywhere in the path.
    pub fn contains(self, asn: u32) -> bool {
        self.asns().any(|a| a == asn)
    }
}

/// The usual text: `65001 65002 {65003,65004}`, confederation segments as `(65010 65011)` and `[65012,65013]`.
impl fmt::Display for AsPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, segment) in self.segments().enumerate() {
            if i > 0 {
                f.write_str(" ")?;
            }
            let (open, between, close) = match segment.kind {
                SegmentKind::Sequence => ("", " ", ""),
                SegmentKind::Set => ("{", ",", "}"),
                SegmentKind::ConfedSequence => ("(", " ", ")"),
                SegmentKind::ConfedSet => ("[", ",", "]"),
            };
            f.write_str(open)?;
            for (j, asn) in segment.asns().enumerate() {
                if j > 0 {
                    f.write_str(between)?;
                }
                write!(f, "{asn}")?;
            }
            f.write_str(close)?;
        }
        Ok(())
    }
}

/// The segments of a path.
#[derive(Clone, Debug)]
pub struct Segments<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Segments<'a> {
    type Item = Segment<'a>;

    #[inline]
    fn next(&mut self) -> Option<Segment<'a>> {
        let (kind, bytes, rest) = split_segment(self.rest, 4)?;
        self.rest = rest;
        Some(Segment { kind, bytes })
    }
}

/// The segment at the start of `path` with AS numbers of `width` bytes: kind, AS numbers, what follows.
#[inline]
pub(crate) fn split_segment(path: &[u8], width: usize) -> Option<(SegmentKind, &[u8], &[u8])> {
    let [kind, count, rest @ ..] = path else { return None };
    let (bytes, rest) = rest.split_at_checked(usize::from(*count) * width)?;
    Some((SegmentKind::from_u8(*kind)?, bytes, rest))
}

/// Whether `value` is an AS_PATH with AS numbers of `width` bytes (2 or 4): segments of known kinds, none empty,
/// none cut short (RFC 7606 section 7.2), no AS number zero (RFC 7607), and no confederation segment unless
/// `confed`.
#[inline]
pub(crate) fn is_valid(mut value: &[u8], width: usize, confed: bool) -> bool {
    while !value.is_empty() {
        let Some((kind, bytes, rest)) = split_segment(value, width) else { return false };
        let zero = match width {
            4 => bytes.as_chunks::<4>().0.contains(&[0; 4]),
            _ => bytes.as_chunks::<2>().0.contains(&[0; 2]),
        };
        if bytes.is_empty() || zero || (kind.is_confed() && !confed) {
            return false;
        }
        value = rest;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(segments: &[(u8, &[u32])]) -> Vec<u8> {
        let mut out = Vec::new();
        for (kind, asns) in segments {
            out.extend_from_slice(&[*kind, asns.len() as u8]);
            asns.iter().for_each(|a| out.extend_from_slice(&a.to_be_bytes()));
        }
        out
    }

    #[test]
    fn inputs_of_route_selection() {
        let bytes = path(&[(3, &[64512, 64513]), (2, &[65001, 65002]), (1, &[65003, 70000])]);
        let p = AsPath::new(&bytes);
        assert_eq!(p.to_string(), "(64512 64513) 65001 65002 {65003,70000}");
        assert_eq!(p.hop_count(), 3);
        assert_eq!(p.first_as(), Some(64512));
        assert_eq!(p.neighbor_as(), Some(65001));
        assert_eq!(p.origin_as(), None);
        assert!(p.contains(70000) && p.contains(64513) && !p.contains(1));
        assert_eq!(p.segments().count(), 3);
    }

    #[test]
    fn plain_and_empty_paths() {
        let bytes = path(&[(2, &[65001, 65002])]);
        let p = AsPath::new(&bytes);
        assert_eq!((p.first_as(), p.neighbor_as(), p.origin_as()), (Some(65001), Some(65001), Some(65002)));
        assert_eq!(p.to_string(), "65001 65002");
        let empty = AsPath::default();
        assert_eq!((empty.first_as(), empty.neighbor_as(), empty.origin_as()), (None, None, None));
        assert!(empty.is_empty() && empty.hop_count() == 0 && empty.to_string().is_empty());
        let set = path(&[(1, &[5])]);
        assert_eq!((AsPath::new(&set).first_as(), AsPath::new(&set).neighbor_as()), (None, None));
    }

    /// RFC 6996 section 5; RFC 7300 reserves the last number of each size.
    #[test]
    fn private_as_numbers() {
        for (private, public) in [
            (64_512, 64_511),
            (65_534, 65_535),
            (4_200_000_000, 4_199_999_999),
            (4_294_967_294, 4_294_967_295),
        ] {
            assert!(is_private(private) && !is_private(public), "{private} {public}");
        }
    }

    #[test]
    fn faults() {
        assert!(is_valid(&[], 4, false));
        assert!(is_valid(&path(&[(2, &[1, 2]), (1, &[3])]), 4, false));
        assert!(is_valid(&[2, 2, 0, 1, 0, 2], 2, false));
        assert!(!is_valid(&path(&[(5, &[1])]), 4, true), "unknown kind");
        assert!(!is_valid(&path(&[(2, &[])]), 4, true), "empty segment");
        assert!(!is_valid(&[2, 2, 0, 0, 0, 1], 4, true), "overrun");
        assert!(!is_valid(&[2, 1, 0, 0, 0, 1, 2], 4, true), "underrun");
        assert!(!is_valid(&path(&[(2, &[1, 0])]), 4, true), "AS 0");
        assert!(!is_valid(&[2, 2, 0, 1, 0, 0], 2, true), "AS 0");
        assert!(is_valid(&path(&[(3, &[1])]), 4, true) && !is_valid(&path(&[(4, &[1])]), 4, false));
        assert_eq!(AsPath::new(&[2, 9, 0, 0, 0, 1]).to_string(), "");
    }
}
