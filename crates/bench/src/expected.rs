//! The expected forwarding: the oracle for the virtual ASIC. It is a longest match over the sent
//! routes, and shares only the prefix type with the router.

use crate::routes::Routes;
use ribtide_prefix::{Families, Family, Prefix, PrefixTable, for_each_family, per_family};
use std::net::{IpAddr, Ipv4Addr};

/// The rank of a sender's path, smaller first: of otherwise equal senders, the order of RFC 4271
/// section 9.1.2.2.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Rank {
    /// Hops of the AS path.
    pub hops: u32,
    /// ORIGIN.
    pub origin: u8,
    /// BGP identifier of the sender.
    pub router_id: Ipv4Addr,
    /// Address of the sender.
    pub address: IpAddr,
}

/// The next hop that every address should be forwarded to.
#[derive(Default)]
pub struct Expected {
    best: Families<Best>,
}

per_family!(struct Best<F> = PrefixTable<F, (Option<Rank>, IpAddr)>);

impl Expected {
    /// The expected forwarding of one sender's routes.
    pub fn of(routes: &Routes) -> Expected {
        let mut expected = Expected::default();
        for_each_family!(F => {
            for (set, prefix) in routes.in_order::<F>() {
                expected.best.get_mut::<F>().insert(prefix, (None, routes.set(set).next_hop.addr()));
            }
        });
        expected
    }

    /// Adds one sender's path, which replaces a path of lower rank.
    pub fn offer<F: Family>(&mut self, prefix: Prefix<F>, rank: Rank, next_hop: IpAddr) {
        let best = self.best.get_mut::<F>().get_or_insert_with(prefix, || (Some(rank), next_hop));
        if best.0.is_some_and(|other| rank < other) {
            *best = (Some(rank), next_hop);
        }
    }

    /// The next hop for `addr`; `None` when no prefix holds it.
    pub fn expected_next_hop(&self, addr: IpAddr) -> Option<IpAddr> {
        match addr {
            IpAddr::V4(_) => self.best.v4.longest_match(addr).map(|(_, (_, next_hop))| *next_hop),
            IpAddr::V6(_) => self.best.v6.longest_match(addr).map(|(_, (_, next_hop))| *next_hop),
        }
    }

    /// How many prefixes there are.
    pub fn total(&self) -> usize {
        self.best.v4.len() + self.best.v6.len()
    }

    /// One address for every prefix of family `F`, in any order: the first, last or middle address
    /// that no more specific prefix holds, else the first.
    pub fn probes<F: Family>(&self) -> impl Iterator<Item = IpAddr> + '_ {
        let table = self.best.get::<F>();
        table.iter().map(move |(prefix, _)| {
            let own = |addr: &IpAddr| table.longest_match(*addr).is_some_and(|(found, _)| found == prefix);
            candidates(prefix).into_iter().find(own).unwrap_or_else(|| prefix.addr())
        })
    }

    /// Compares results with the expected next hops.
    pub fn check(&self, results: impl IntoIterator<Item = (IpAddr, Option<IpAddr>)>) -> TableCheck {
        let mut result = TableCheck::default();
        for (address, actual) in results {
            let expected = self.expected_next_hop(address);
            if actual == expected {
                result.right += 1;
            } else {
                result.wrong += 1;
                if result.examples.len() < EXAMPLES {
                    result.examples.push(Wrong { address, expected, actual });
                }
            }
        }
        result
    }
}

/// The first address of a prefix, its last, and the middle between them.
fn candidates<F: Family>(prefix: Prefix<F>) -> [IpAddr; 3] {
    let half = Prefix::<F>::from_addr(prefix.last_addr(), (prefix.len() + 1).min(F::WIDTH));
    [prefix.addr(), prefix.last_addr(), half.map_or(prefix.addr(), Prefix::addr)]
}

/// How many wrong answers a result shows.
const EXAMPLES: usize = 10;

/// Counts of correct and wrong results.
#[derive(Clone, PartialEq, Eq, Debug, Default, serde::Serialize)]
pub struct TableCheck {
    /// Results as expected.
    pub right: u64,
    /// Other results.
    pub wrong: u64,
    /// The first of those.
    pub examples: Vec<Wrong>,
}

/// One wrong result.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
pub struct Wrong {
    /// The address.
    pub address: IpAddr,
    /// The next hop that it should have; `None`: it should not be forwarded.
    pub expected: Option<IpAddr>,
    /// The actual next hop.
    pub actual: Option<IpAddr>,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show = |next_hop: Option<IpAddr>| next_hop.map_or("nothing".to_string(), |a| a.to_string());
        write!(f, "{}: should go to {}, goes to {}", self.address, show(self.expected), show(self.actual))
    }
}

impl std::ops::AddAssign for TableCheck {
    fn add_assign(&mut self, other: TableCheck) {
        self.right += other.right;
        self.wrong += other.wrong;
        self.examples.extend(other.examples);
        self.examples.truncate(EXAMPLES);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::V4;

    fn rank(hops: u32, id: u8) -> Rank {
        let id = Ipv4Addr::new(0, 0, 0, id);
        Rank { hops, origin: 0, router_id: id, address: id.into() }
    }

    #[test]
    fn the_longest_match_of_the_best_paths_is_expected() {
        let mut expected = Expected::default();
        let (a, b): (IpAddr, IpAddr) = ("192.0.2.1".parse().unwrap(), "192.0.2.2".parse().unwrap());
        let outer: Prefix<V4> = "10.0.0.0/8".parse().unwrap();
        expected.offer(outer, rank(3, 2), a);
        expected.offer(outer, rank(3, 1), b);
        expected.offer(outer, rank(4, 0), a);
        expected.offer::<V4>("10.0.0.0/9".parse().unwrap(), rank(1, 0), a);
        let next_hop = |addr: &str| expected.expected_next_hop(addr.parse().unwrap());
        assert_eq!(
            (next_hop("10.200.0.1"), next_hop("10.0.0.1"), next_hop("11.0.0.0")),
            (Some(b), Some(a), None)
        );

        // The outer prefix is probed at an address that the inner one does not hold.
        let result = expected.check(expected.probes::<V4>().map(|address| (address, Some(b))));
        assert_eq!((result.right, result.wrong), (1, 1));
        assert_eq!(result.examples[0].to_string(), "10.0.0.0: should go to 192.0.2.1, goes to 192.0.2.2");
        assert!(expected.probes::<V4>().any(|p| p.to_string() == "10.255.255.255"));
    }
}
