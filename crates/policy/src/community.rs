//! Communities of all three kinds, patterns of them, and sets of patterns.

use crate::numbers::Numbers;
use ribtide_wire::bgp::attribute::{
    Communities, Community, ExtendedCommunities, ExtendedCommunity, LargeCommunities, LargeCommunity, code,
};
use std::fmt;
use std::str::FromStr;

/// A community of any kind. The forms of their texts differ: `65001:100` or `no-export` (RFC 1997), `65001:1:2`
/// (RFC 8092), `rt:65001:100`, `soo:10.0.0.1:1` or `0x` with sixteen digits (RFC 4360).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AnyCommunity {
    /// RFC 1997.
    Standard(Community),
    /// RFC 8092.
    Large(LargeCommunity),
    /// RFC 4360.
    Extended(ExtendedCommunity),
}

impl AnyCommunity {
    /// Its kind.
    pub(crate) fn kind(self) -> Kind {
        match self {
            AnyCommunity::Standard(_) => Kind::Standard,
            AnyCommunity::Large(_) => Kind::Large,
            AnyCommunity::Extended(_) => Kind::Extended,
        }
    }

    /// The code of the attribute of its kind.
    pub fn code(self) -> u8 {
        self.kind().code()
    }

    /// Appends it as the attribute of its kind holds it.
    pub fn write(self, out: &mut Vec<u8>) {
        match self {
            AnyCommunity::Standard(Community(n)) => out.extend_from_slice(&n.to_be_bytes()),
            AnyCommunity::Large(LargeCommunity { global, local1, local2 }) => {
                [global, local1, local2].iter().for_each(|n| out.extend_from_slice(&n.to_be_bytes()));
            }
            AnyCommunity::Extended(ExtendedCommunity(bytes)) => out.extend_from_slice(&bytes),
        }
    }
}

impl FromStr for AnyCommunity {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let standard = || text.parse().ok().map(AnyCommunity::Standard);
        let large = || text.parse().ok().map(AnyCommunity::Large);
        let extended = || text.parse().ok().map(AnyCommunity::Extended);
        standard().or_else(large).or_else(extended).ok_or_else(|| {
            format!("\"{text}\" is no community; write one such as 65001:100, no-export, 65001:1:2 or rt:65001:100")
        })
    }
}

impl fmt::Display for AnyCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            AnyCommunity::Standard(c) => c.fmt(f),
            AnyCommunity::Large(c) => c.fmt(f),
            AnyCommunity::Extended(c) => c.fmt(f),
        }
    }
}

/// The kinds of communities, each an attribute of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Standard,
    Large,
    Extended,
}

impl Kind {
    pub(crate) const ALL: [Kind; 3] = [Kind::Standard, Kind::Large, Kind::Extended];

    /// The code of its attribute.
    pub(crate) fn code(self) -> u8 {
        match self {
            Kind::Standard => code::COMMUNITIES,
            Kind::Large => code::LARGE_COMMUNITIES,
            Kind::Extended => code::EXTENDED_COMMUNITIES,
        }
    }

    /// The communities in the value of its attribute.
    pub(crate) fn read(self, value: &[u8]) -> Box<dyn Iterator<Item = AnyCommunity> + '_> {
        match self {
            Kind::Standard => Box::new(Communities::new(value).iter().map(AnyCommunity::Standard)),
            Kind::Large => Box::new(LargeCommunities::new(value).iter().map(AnyCommunity::Large)),
            Kind::Extended => Box::new(ExtendedCommunities::new(value).iter().map(AnyCommunity::Extended)),
        }
    }
}

/// A pattern of communities: one, or those whose numbers are in ranges. The text is that of a
/// community with `*` or a range such as `100-199` for a number. In an extended community, only the
/// last number may be `*`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CommunityPattern {
    /// This one.
    One(AnyCommunity),
    /// Standard communities by their two halves.
    Standard([Numbers; 2]),
    /// Large communities by their three numbers.
    Large([Numbers; 3]),
    /// Extended communities of the same type and administrator as this one.
    ExtendedOf(ExtendedCommunity),
}

impl CommunityPattern {
    /// Whether the pattern matches `community`.
    pub fn matches(&self, community: AnyCommunity) -> bool {
        match (*self, community) {
            (CommunityPattern::One(one), community) => one == community,
            (CommunityPattern::Standard([high, low]), AnyCommunity::Standard(Community(n))) => {
                high.has(n >> 16) && low.has(n & 0xffff)
            }
            (CommunityPattern::Large([a, b, c]), AnyCommunity::Large(large)) => {
                a.has(large.global) && b.has(large.local1) && c.has(large.local2)
            }
            (CommunityPattern::ExtendedOf(of), AnyCommunity::Extended(extended)) => {
                administrator(of) == administrator(extended)
            }
            _ => false,
        }
    }
}

/// Type, subtype and the number or address of the administrator: two bytes in types 0 and 0x40, else four.
fn administrator(ExtendedCommunity(bytes): ExtendedCommunity) -> ([u8; 4], [u8; 2]) {
    let [kind, subtype, a, b, c, d, ..] = bytes;
    ([kind, subtype, a, b], if kind & 0x3f == 0 { [0; 2] } else { [c, d] })
}

impl FromStr for CommunityPattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wrong = || {
            format!(
                "\"{text}\" is no community; write one such as 65001:100, no-export, 65001:1:2 or rt:65001:100, or with a \
                 range or * for numbers, such as 65001:100-199, 65001:*:* or rt:65001:*"
            )
        };
        if let Ok(one) = text.parse() {
            return Ok(CommunityPattern::One(one));
        }
        if let Some(of) = text.strip_suffix(":*").filter(|t| t.starts_with(|c: char| c.is_ascii_alphabetic()))
        {
            let of = format!("{of}:0").parse().map_err(|_| wrong())?;
            return Ok(CommunityPattern::ExtendedOf(of));
        }
        let parts: Option<Vec<Numbers>> = text.split(':').map(|part| part.parse().ok()).collect();
        match parts.as_deref() {
            Some(&[high, low]) if [high, low].iter().all(|n| *n == Numbers::ALL || n.last <= 0xffff) => {
                Ok(CommunityPattern::Standard([high, low]))
            }
            Some(&[a, b, c]) => Ok(CommunityPattern::Large([a, b, c])),
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for CommunityPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            CommunityPattern::One(one) => one.fmt(f),
            CommunityPattern::Standard([a, b]) => write!(f, "{a}:{b}"),
            CommunityPattern::Large([a, b, c]) => write!(f, "{a}:{b}:{c}"),
            CommunityPattern::ExtendedOf(of) => {
                let text = of.to_string();
                write!(f, "{}:*", text.rsplit_once(':').map_or(text.as_str(), |(of, _)| of))
            }
        }
    }
}

/// A set of communities, given as patterns.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct CommunitySet {
    /// In order.
    single: Box<[AnyCommunity]>,
    ranges: Box<[CommunityPattern]>,
}

impl CommunitySet {
    /// Whether some pattern matches `community`.
    pub fn has(&self, community: AnyCommunity) -> bool {
        self.single.binary_search(&community).is_ok() || self.ranges.iter().any(|r| r.matches(community))
    }

    /// Whether each pattern matches some of `communities`.
    pub fn all_in(&self, communities: &[AnyCommunity]) -> bool {
        self.single.iter().all(|one| communities.contains(one))
            && self.ranges.iter().all(|r| communities.iter().any(|c| r.matches(*c)))
    }

    /// Whether it holds nothing.
    pub fn is_empty(&self) -> bool {
        self.single.is_empty() && self.ranges.is_empty()
    }
}

impl FromIterator<CommunityPattern> for CommunitySet {
    fn from_iter<I: IntoIterator<Item = CommunityPattern>>(patterns: I) -> CommunitySet {
        let mut single = Vec::new();
        let mut ranges = Vec::new();
        for pattern in patterns {
            match pattern {
                CommunityPattern::One(one) => single.push(one),
                range => ranges.push(range),
            }
        }
        single.sort_unstable();
        single.dedup();
        CommunitySet { single: single.into(), ranges: ranges.into() }
    }
}

impl fmt::Display for CommunitySet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let single = self.single.iter().map(|c| c as &dyn fmt::Display);
        for (i, item) in single.chain(self.ranges.iter().map(|r| r as &dyn fmt::Display)).enumerate() {
            write!(f, "{}{item}", if i > 0 { " " } else { "" })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(text: &str) -> AnyCommunity {
        text.parse().unwrap()
    }

    #[test]
    fn patterns_match_their_communities() {
        for (pattern, inside, outside) in [
            ("65001:100", "65001:100", "65001:101"),
            ("65001:100-199", "65001:150", "65001:200"),
            ("65001:*", "65001:65535", "65002:1"),
            ("*:666", "1:666", "1:667"),
            ("no-export", "65535:65281", "65535:65282"),
            ("65001:*:7", "65001:4000000000:7", "65001:1:8"),
            ("*:*:*", "1:2:3", "1:2"),
            ("*:*", "1:2", "1:2:3"),
            ("rt:65001:*", "rt:65001:70000", "soo:65001:1"),
            ("rt:65001:*", "rt:65001:0", "rt:65001L:0"),
            ("soo:10.0.0.1:*", "soo:10.0.0.1:9", "soo:10.0.0.2:9"),
            ("rt:70000:*", "rt:70000:9", "rt:70001:9"),
            ("0x4004000000000001", "0x4004000000000001", "0x4004000000000002"),
        ] {
            let parsed: CommunityPattern = pattern.parse().unwrap();
            assert!(parsed.matches(one(inside)) && !parsed.matches(one(outside)), "{pattern}");
            assert_eq!(parsed.to_string(), pattern);
            let set: CommunitySet = [parsed].into_iter().collect();
            assert!(set.has(one(inside)) && !set.has(one(outside)), "{pattern}");
        }
        for wrong in
            ["65536:*", "1:2:3:*", "*", "", "xx:1:*", "rt:*:*", "65001:5-4", "rt:65001:1-2", "*:4294967295"]
        {
            assert!(wrong.parse::<CommunityPattern>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn all_wants_every_pattern() {
        let set: CommunitySet = ["1:1", "2:*"].iter().map(|p| p.parse().unwrap()).collect();
        assert!(set.all_in(&[one("2:9"), one("1:1")]) && !set.all_in(&[one("1:1"), one("1:2")]));
        assert_eq!(set.to_string(), "1:1 2:*");
    }
}
