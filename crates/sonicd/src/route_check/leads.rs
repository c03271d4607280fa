//! Where a route leads, in words that the rows of APPL_DB, the objects of ASIC_DB and the switch share.

use ribtide_prefix::AnyPrefix;
use ribtide_swss::row::{LabelStack, Name};
use std::fmt;
use std::net::IpAddr;

/// What a table of the switch is asked for: a prefix of the VRF of a number, or a label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Dest {
    Route(u32, AnyPrefix),
    Label(u32),
}

/// A way out.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Way {
    /// None: the interface alone.
    pub(super) gateway: Option<IpAddr>,
    /// None: it is not known which.
    pub(super) interface: Option<Name>,
    pub(super) labels: Option<LabelStack>,
    /// Its share.
    pub(super) weight: u32,
}

/// Where packets go.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Leads {
    Drop,
    Cpu,
    /// Ordered. Of a group without members, none.
    Ways(Vec<Way>),
}

impl Leads {
    /// Through these. One that bears everything has no share, and without a weight all share alike.
    pub(super) fn through(mut ways: Vec<Way>) -> Leads {
        let alone = ways.len() == 1;
        ways.iter_mut().for_each(|way| way.weight = if alone { 1 } else { way.weight.max(1) });
        ways.sort_unstable();
        Leads::Ways(ways)
    }

    /// Whether both lead to the same places with the same shares. Interfaces count where both know them.
    pub(super) fn same(&self, other: &Leads) -> bool {
        match (self, other) {
            (Leads::Ways(ours), Leads::Ways(theirs)) if ours.iter().chain(theirs).all(Way::is_known) => {
                ours == theirs
            }
            (Leads::Ways(ours), Leads::Ways(theirs)) => bare(ours) == bare(theirs),
            _ => self == other,
        }
    }

    /// Whether this has some of the ways of `whole`, and no other.
    pub(super) fn lacks_of(&self, whole: &Leads) -> bool {
        let (Leads::Ways(some), Leads::Ways(all)) = (self, whole) else { return false };
        let hop = |way: &Way| (way.gateway, way.labels.clone());
        some.len() < all.len() && some.iter().all(|way| all.iter().any(|other| hop(way) == hop(other)))
    }
}

impl Way {
    fn is_known(&self) -> bool {
        self.interface.is_some()
    }
}

fn bare(ways: &[Way]) -> Vec<Way> {
    let mut bare: Vec<Way> = ways.iter().map(|way| Way { interface: None, ..way.clone() }).collect();
    bare.sort_unstable();
    bare
}

impl fmt::Display for Leads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ways = match self {
            Leads::Drop => return f.write_str("drop"),
            Leads::Cpu => return f.write_str("to the CPU"),
            Leads::Ways(ways) if ways.is_empty() => return f.write_str("nowhere"),
            Leads::Ways(ways) => ways,
        };
        let weighted = ways.iter().any(|way| way.weight != ways[0].weight);
        for (n, way) in ways.iter().enumerate() {
            let mut words = Vec::new();
            words.extend(way.gateway.map(|gateway| format!("via {gateway}")));
            words.extend(way.interface.as_ref().map(|name| format!("dev {name}")));
            words.extend(way.labels.as_ref().map(LabelStack::to_string));
            if words.is_empty() {
                words.push("an interface".into());
            }
            if weighted {
                words.push(format!("weight {}", way.weight));
            }
            write!(f, "{}{}", if n == 0 { "" } else { ", " }, words.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(gateway: &str, interface: Option<&str>, weight: u32) -> Way {
        Way { gateway: gateway.parse().ok(), interface: interface.map(Name::from), labels: None, weight }
    }

    #[test]
    fn what_is_the_same() {
        let of = |ways: &[Way]| Leads::through(ways.to_vec());
        let (a, b) = (way("10.0.0.1", Some("Ethernet0"), 0), way("10.0.0.2", Some("Ethernet4"), 1));
        // In any order; no weight is the weight 1, and that of one alone is none.
        assert!(of(&[a.clone(), b.clone()]).same(&of(&[b.clone(), a.clone()])));
        assert!(of(&[way("10.0.0.1", Some("Ethernet0"), 7)]).same(&of(std::slice::from_ref(&a))));
        assert!(!of(&[a.clone(), b.clone()]).same(&of(&[a.clone(), way("10.0.0.2", Some("Ethernet4"), 2)])));
        // An interface counts where it is known.
        assert!(of(&[a.clone(), b.clone()]).same(&of(&[way("10.0.0.2", None, 1), a.clone()])));
        assert!(!of(&[a.clone(), b.clone()]).same(&of(&[way("10.0.0.3", None, 1), a.clone()])));
        assert!(!of(std::slice::from_ref(&a)).same(&of(&[way("10.0.0.1", Some("Ethernet4"), 1)])));
        assert!(!of(std::slice::from_ref(&a)).same(&Leads::Drop) && Leads::Drop.same(&Leads::Drop));
        assert!(of(std::slice::from_ref(&a)).lacks_of(&of(&[a.clone(), b.clone()])));
        assert!(!of(&[a.clone(), b.clone()]).lacks_of(&of(&[a, b])));
        assert_eq!(
            of(&[way("10.0.0.2", None, 2), way("", Some("Vlan7"), 1)]).to_string(),
            "dev Vlan7 weight 1, via 10.0.0.2 weight 2"
        );
    }
}
