//! The forwarding of a route, in a form that rows of APPL_DB, objects of ASIC_DB and the switch
//! share.

use ribtide_prefix::AnyPrefix;
use ribtide_swss::row::{LabelStack, Name};
use std::fmt;
use std::net::IpAddr;

/// A destination: a prefix in the VRF of a number, or a label.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(super) enum Dest {
    Route(u32, AnyPrefix),
    Label(u32),
}

/// A next hop.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct NextHop {
    /// `None`: the interface alone.
    pub(super) gateway: Option<IpAddr>,
    /// `None`: unknown.
    pub(super) interface: Option<Name>,
    pub(super) labels: Option<LabelStack>,
    /// Its weight.
    pub(super) weight: u32,
}

/// The forwarding of packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Forwarding {
    Drop,
    Cpu,
    /// Next hops in order; none for an empty group.
    NextHops(Vec<NextHop>),
}

impl Forwarding {
    /// Forwarding to these next hops. A single one has no weight, and without weights all are
    /// equal.
    pub(super) fn through(mut hops: Vec<NextHop>) -> Forwarding {
        let alone = hops.len() == 1;
        hops.iter_mut().for_each(|hop| hop.weight = if alone { 1 } else { hop.weight.max(1) });
        hops.sort_unstable();
        Forwarding::NextHops(hops)
    }

    /// Whether both have the same next hops with the same weights. Interfaces count if both are
    /// known.
    pub(super) fn same(&self, other: &Forwarding) -> bool {
        match (self, other) {
            (Forwarding::NextHops(ours), Forwarding::NextHops(theirs))
                if ours.iter().chain(theirs).all(NextHop::is_known) =>
            {
                ours == theirs
            }
            (Forwarding::NextHops(ours), Forwarding::NextHops(theirs)) => bare(ours) == bare(theirs),
            _ => self == other,
        }
    }

    /// Whether it has some of the next hops of `whole`, and no other.
    pub(super) fn is_part_of(&self, whole: &Forwarding) -> bool {
        let (Forwarding::NextHops(some), Forwarding::NextHops(all)) = (self, whole) else { return false };
        let key = |hop: &NextHop| (hop.gateway, hop.labels.clone());
        some.len() < all.len() && some.iter().all(|hop| all.iter().any(|other| key(hop) == key(other)))
    }
}

impl NextHop {
    fn is_known(&self) -> bool {
        self.interface.is_some()
    }
}

fn bare(hops: &[NextHop]) -> Vec<NextHop> {
    let mut bare: Vec<NextHop> = hops.iter().map(|hop| NextHop { interface: None, ..hop.clone() }).collect();
    bare.sort_unstable();
    bare
}

impl fmt::Display for Forwarding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hops = match self {
            Forwarding::Drop => return f.write_str("drop"),
            Forwarding::Cpu => return f.write_str("to the CPU"),
            Forwarding::NextHops(hops) if hops.is_empty() => return f.write_str("nowhere"),
            Forwarding::NextHops(hops) => hops,
        };
        let weighted = hops.iter().any(|hop| hop.weight != hops[0].weight);
        for (n, hop) in hops.iter().enumerate() {
            let mut words = Vec::new();
            words.extend(hop.gateway.map(|gateway| format!("via {gateway}")));
            words.extend(hop.interface.as_ref().map(|name| format!("dev {name}")));
            words.extend(hop.labels.as_ref().map(LabelStack::to_string));
            if words.is_empty() {
                words.push("an interface".into());
            }
            if weighted {
                words.push(format!("weight {}", hop.weight));
            }
            write!(f, "{}{}", if n == 0 { "" } else { ", " }, words.join(" "))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hop(gateway: &str, interface: Option<&str>, weight: u32) -> NextHop {
        NextHop { gateway: gateway.parse().ok(), interface: interface.map(Name::from), labels: None, weight }
    }

    #[test]
    fn what_is_the_same() {
        let of = |hops: &[NextHop]| Forwarding::through(hops.to_vec());
        let (a, b) = (hop("10.0.0.1", Some("Ethernet0"), 0), hop("10.0.0.2", Some("Ethernet4"), 1));
        // In any order; no weight is the weight 1, and that of one alone is none.
        assert!(of(&[a.clone(), b.clone()]).same(&of(&[b.clone(), a.clone()])));
        assert!(of(&[hop("10.0.0.1", Some("Ethernet0"), 7)]).same(&of(std::slice::from_ref(&a))));
        assert!(!of(&[a.clone(), b.clone()]).same(&of(&[a.clone(), hop("10.0.0.2", Some("Ethernet4"), 2)])));
        // An interface counts where it is known.
        assert!(of(&[a.clone(), b.clone()]).same(&of(&[hop("10.0.0.2", None, 1), a.clone()])));
        assert!(!of(&[a.clone(), b.clone()]).same(&of(&[hop("10.0.0.3", None, 1), a.clone()])));
        assert!(!of(std::slice::from_ref(&a)).same(&of(&[hop("10.0.0.1", Some("Ethernet4"), 1)])));
        assert!(
            !of(std::slice::from_ref(&a)).same(&Forwarding::Drop) && Forwarding::Drop.same(&Forwarding::Drop)
        );
        assert!(of(std::slice::from_ref(&a)).is_part_of(&of(&[a.clone(), b.clone()])));
        assert!(!of(&[a.clone(), b.clone()]).is_part_of(&of(&[a, b])));
        assert_eq!(
            of(&[hop("10.0.0.2", None, 2), hop("", Some("Vlan7"), 1)]).to_string(),
            "dev Vlan7 weight 1, via 10.0.0.2 weight 2"
        );
    }
}
