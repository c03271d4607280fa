//! Conditions by which a query selects routes: `ribtide show route --community 65001:100`.
//!
//! They are those of a policy's statement, without defined sets: a caller writes values, and all of
//! its conditions must hold.

use crate::as_path::AsPathSet;
use crate::community::{AnyCommunity, CommunityPattern};
use ribtide_prefix::{AnyPrefix, BgpFamily, Prefix};
use ribtide_wire::bgp::attribute::{
    AsPath, Attributes, Communities, ExtendedCommunities, LargeCommunities, code,
};
use std::net::IpAddr;

/// A set of prefixes around one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PrefixFilter {
    /// Exactly this prefix.
    Exact(AnyPrefix),
    /// This prefix and those inside it.
    Longer(AnyPrefix),
    /// This prefix and those that contain it.
    Shorter(AnyPrefix),
}

impl PrefixFilter {
    /// Whether `prefix` is in the set. A prefix of another address family is not.
    pub fn has<F: BgpFamily>(self, prefix: Prefix<F>) -> bool {
        let (PrefixFilter::Exact(of) | PrefixFilter::Longer(of) | PrefixFilter::Shorter(of)) = self;
        let Some(of) = Prefix::from_any(of) else { return false };
        match self {
            PrefixFilter::Exact(_) => of == prefix,
            PrefixFilter::Longer(_) => of.covers(prefix),
            PrefixFilter::Shorter(_) => prefix.covers(of),
        }
    }

    /// As [`PrefixFilter::has`], for either address family.
    pub fn has_any(self, prefix: AnyPrefix) -> bool {
        match prefix {
            AnyPrefix::V4(prefix) => self.has(prefix),
            AnyPrefix::V6(prefix) => self.has(prefix),
        }
    }
}

/// Conditions on the attributes of a path; the default has none, and every path fits.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AttributeFilter {
    /// The path has a community of each pattern.
    pub communities: Vec<CommunityPattern>,
    /// Its AS path is in each of these sets.
    pub as_paths: Vec<AsPathSet>,
    /// Its next hop is this address, the zone of a link-local one aside.
    pub next_hop: Option<IpAddr>,
}

impl AttributeFilter {
    /// Whether there is no condition.
    pub fn is_empty(&self) -> bool {
        self.communities.is_empty() && self.as_paths.is_empty() && self.next_hop.is_none()
    }

    /// Whether a path fits. `attributes` are in canonical wire form: AS numbers of four bytes. `next_hop` is without
    /// zone.
    pub fn fits(&self, attributes: &[u8], next_hop: IpAddr) -> bool {
        if self.next_hop.is_some_and(|wanted| wanted != next_hop) {
            return false;
        }
        if self.communities.is_empty() && self.as_paths.is_empty() {
            return true;
        }
        let as_path = || {
            let value = Attributes::new(attributes).find(|a| a.code == code::AS_PATH).map(|a| a.value);
            AsPath::new(value.unwrap_or_default())
        };
        self.communities.iter().all(|pattern| carries(attributes, pattern))
            && self.as_paths.iter().all(|set| set.has(as_path()))
    }
}

/// Whether the attributes have a community that the pattern matches.
fn carries(attributes: &[u8], pattern: &CommunityPattern) -> bool {
    Attributes::new(attributes).any(|a| match a.code {
        code::COMMUNITIES => {
            Communities::new(a.value).iter().any(|c| pattern.matches(AnyCommunity::Standard(c)))
        }
        code::LARGE_COMMUNITIES => {
            LargeCommunities::new(a.value).iter().any(|c| pattern.matches(AnyCommunity::Large(c)))
        }
        code::EXTENDED_COMMUNITIES => {
            ExtendedCommunities::new(a.value).iter().any(|c| pattern.matches(AnyCommunity::Extended(c)))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn any(text: &str) -> AnyPrefix {
        text.parse().unwrap()
    }

    #[test]
    fn prefixes_around_one() {
        let of = any("10.1.0.0/16");
        let fits = |filter: PrefixFilter| {
            ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.2.0/24", "10.2.0.0/16", "::/0"]
                .into_iter()
                .filter(|text| filter.has_any(any(text)))
                .collect::<Vec<_>>()
        };
        assert_eq!(fits(PrefixFilter::Exact(of)), ["10.1.0.0/16"]);
        assert_eq!(fits(PrefixFilter::Longer(of)), ["10.1.0.0/16", "10.1.2.0/24"]);
        assert_eq!(fits(PrefixFilter::Shorter(of)), ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16"]);
    }

    /// ORIGIN, AS_PATH `174 65001`, communities 65001:7, large 65001:1:2, and the route target 65001:100.
    const ATTRIBUTES: [u8; 55] = [
        0x40, 1, 1, 0, 0x40, 2, 10, 2, 2, 0, 0, 0, 174, 0, 0, 0xfd, 0xe9, 0xc0, 8, 4, 0xfd, 0xe9, 0, 7, 0xc0,
        16, 8, 0, 2, 0xfd, 0xe9, 0, 0, 0, 100, 0xc0, 32, 12, 0, 0, 0xfd, 0xe9, 0, 0, 0, 1, 0, 0, 0, 2, 0xc0,
        35, 2, 0, 0,
    ];

    #[test]
    fn every_condition_must_hold() {
        let hop: IpAddr = "192.0.2.1".parse().unwrap();
        let fits = |filter: &AttributeFilter| filter.fits(&ATTRIBUTES, hop);
        assert!(fits(&AttributeFilter::default()));
        let communities = |all: &[&str]| AttributeFilter {
            communities: all.iter().map(|text| text.parse().unwrap()).collect(),
            ..AttributeFilter::default()
        };
        for has in ["65001:7", "65001:*", "65001:1:2", "65001:*:*", "rt:65001:100", "rt:65001:*"] {
            assert!(fits(&communities(&[has])), "{has}");
        }
        for lacks in ["65001:8", "65002:*", "65001:1:3", "rt:65001:101", "soo:65001:100"] {
            assert!(!fits(&communities(&[lacks])), "{lacks}");
            assert!(!fits(&communities(&["65001:7", lacks])), "{lacks}");
        }
        let origin = |text: &str| AsPathSet {
            origin: [text.parse().unwrap()].into_iter().collect(),
            ..AsPathSet::default()
        };
        let regex = |text: &str| AsPathSet { regex: vec![text.parse().unwrap()], ..AsPathSet::default() };
        let paths = |as_paths: Vec<AsPathSet>| AttributeFilter { as_paths, ..AttributeFilter::default() };
        assert!(fits(&paths(vec![origin("65001"), regex("^174")])));
        assert!(!fits(&paths(vec![origin("174"), regex("^174")])));
        assert!(!fits(&paths(vec![origin("65001"), regex("174$")])));
        let via = |text: &str| AttributeFilter { next_hop: text.parse().ok(), ..AttributeFilter::default() };
        assert!(fits(&via("192.0.2.1")) && !fits(&via("192.0.2.2")));
    }
}
