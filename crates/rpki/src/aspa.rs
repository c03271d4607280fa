//! Verification of AS paths with ASPA records (draft-ietf-sidrops-aspa-verification).
//!
//! An ASPA record names the providers of a customer AS. A path that goes up to a provider, over at most one lateral
//! link and down to customers is plausible; a hop that the customer does not attest shows a leak or a forged path.

use ribtide_wire::bgp::AsPath;
use ribtide_wire::bgp::attribute::SegmentKind;
use std::fmt;

/// The verification state of a path. Displays as in the configuration.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum PathState {
    /// Records attest all of it.
    Valid,
    /// Records contradict it, or it cannot be verified: it is empty, has an AS_SET, or does not begin with the
    /// neighbour.
    Invalid,
    /// Some records are missing, and none contradicts it.
    Unknown,
}

impl PathState {
    /// All states.
    pub const ALL: [PathState; 3] = [PathState::Valid, PathState::Invalid, PathState::Unknown];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            PathState::Valid => "valid",
            PathState::Invalid => "invalid",
            PathState::Unknown => "unknown",
        }
    }
}

impl fmt::Display for PathState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What a record says of a hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hop {
    /// The second AS is a provider of the first (Provider+).
    Provider,
    /// It is not (Not Provider+).
    NotProvider,
    /// The first AS has no record (No Attestation).
    NoAttestation,
}

/// The direction of a path to us, by the relation with the neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    /// From a customer, a lateral peer, a client of our route server, or a route server.
    Upstream,
    /// From a provider.
    Downstream,
}

/// How paths of a neighbour are verified.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathRule {
    /// The direction.
    pub direction: Direction,
    /// The AS with which paths begin, that of the neighbour; `None`: the neighbour is a route server, which leaves
    /// itself out.
    pub first_as: Option<u32>,
    /// An AS of ours before the path as received, which is left out.
    pub prepended: Option<u32>,
}

/// The ASPA records in use. Immutable.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Aspas {
    /// Customers, sorted, each with the end of its providers.
    customers: Box<[(u32, u32)]>,
    /// Providers of all customers, sorted for each.
    providers: Box<[u32]>,
}

impl Aspas {
    /// A table of records, in any order. A customer with several records has the providers of all of them.
    pub fn new(records: impl IntoIterator<Item = (u32, impl IntoIterator<Item = u32>)>) -> Aspas {
        let mut pairs: Vec<(u32, u32)> = Vec::new();
        for (customer, of) in records {
            pairs.extend(of.into_iter().map(|provider| (customer, provider)));
        }
        pairs.sort_unstable();
        pairs.dedup();
        let (mut customers, mut providers): (Vec<(u32, u32)>, Vec<u32>) = Default::default();
        for run in pairs.chunk_by(|a, b| a.0 == b.0) {
            providers.extend(run.iter().map(|(_, provider)| *provider));
            customers.push((run[0].0, providers.len() as u32));
        }
        Aspas { customers: customers.into(), providers: providers.into() }
    }

    /// The number of customers with a record.
    pub fn len(&self) -> usize {
        self.customers.len()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.customers.is_empty()
    }

    /// The records, sorted by customer.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &[u32])> {
        self.after(None)
    }

    /// The records of customers after this one; all for `None`. For pages.
    pub fn after(&self, last: Option<u32>) -> impl Iterator<Item = (u32, &[u32])> {
        let from = last.map_or(0, |last| self.customers.partition_point(|(customer, _)| *customer <= last));
        (from..self.customers.len()).map(|at| (self.customers[at].0, self.providers_at(at)))
    }

    /// The providers of a customer; `None` without a record.
    pub fn providers(&self, customer: u32) -> Option<&[u32]> {
        let at = self.customers.binary_search_by_key(&customer, |(customer, _)| *customer).ok()?;
        Some(self.providers_at(at))
    }

    fn providers_at(&self, at: usize) -> &[u32] {
        let end = |at: usize| self.customers[at].1 as usize;
        &self.providers[at.checked_sub(1).map_or(0, end)..end(at)]
    }

    /// What the records say of a hop (section 5.1). AS 0 is no provider.
    pub fn hop(&self, customer: u32, provider: u32) -> Hop {
        match self.providers(customer) {
            None => Hop::NoAttestation,
            Some(providers) if provider != 0 && providers.binary_search(&provider).is_ok() => Hop::Provider,
            Some(_) => Hop::NotProvider,
        }
    }

    /// Verifies a path by a rule (sections 5.4 and 5.5).
    pub fn verify(&self, path: AsPath<'_>, rule: &PathRule) -> PathState {
        match hops(path, rule) {
            Some(path) => self.verify_hops(&path, rule.direction),
            None => PathState::Invalid,
        }
    }

    /// Verifies AS numbers from the origin to the neighbour, without repetitions; at least one.
    fn verify_hops(&self, path: &[u32], direction: Direction) -> PathState {
        // Lengths of the longest possible and the surely attested ramp from the begin of a path.
        let ramp = |hop: &mut dyn Iterator<Item = Hop>| {
            let (mut most, mut least) = (path.len(), path.len());
            for (at, hop) in hop.enumerate() {
                if hop != Hop::Provider {
                    least = least.min(at + 1);
                }
                if hop == Hop::NotProvider {
                    most = at + 1;
                    break;
                }
            }
            (most, least)
        };
        let (most_up, least_up) = ramp(&mut path.windows(2).map(|two| self.hop(two[0], two[1])));
        let (most_down, least_down) = match direction {
            Direction::Upstream => (0, 0),
            Direction::Downstream => ramp(&mut path.windows(2).rev().map(|two| self.hop(two[1], two[0]))),
        };
        match path.len() {
            len if most_up + most_down < len => PathState::Invalid,
            len if least_up + least_down < len => PathState::Unknown,
            _ => PathState::Valid,
        }
    }
}

/// The AS numbers of a path from the origin to the neighbour, without repetitions; `None` if it is empty, has an AS_SET,
/// or does not begin with the neighbour.
fn hops(path: AsPath<'_>, rule: &PathRule) -> Option<Vec<u32>> {
    if path.segments().any(|segment| segment.kind != SegmentKind::Sequence) {
        return None;
    }
    let mut asns = path.asns().peekable();
    if let Some(own) = rule.prepended {
        asns.next_if_eq(&own);
    }
    if rule.first_as.is_some_and(|first| asns.peek() != Some(&first)) {
        return None;
    }
    let mut hops: Vec<u32> = asns.collect();
    hops.dedup();
    hops.reverse();
    (!hops.is_empty()).then_some(hops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use ribtide_wire::bgp::build;

    /// A path as people write it: the neighbour first.
    fn path_of(asns: &[u32]) -> Vec<u8> {
        asns.iter().rev().fold(Vec::new(), |path, asn| build::prepend(AsPath::new(&path), *asn, 1))
    }

    fn state(aspas: &Aspas, direction: Direction, asns: &[u32]) -> PathState {
        let rule = PathRule { direction, first_as: asns.first().copied(), prepended: None };
        aspas.verify(AsPath::new(&path_of(asns)), &rule)
    }

    /// The experiment of NIST-BRIO with seven AS numbers, with the lengths of ramps that it names.
    #[test]
    fn states_are_those_of_the_brio_experiment() {
        let [a, b, c, d, e, f, g] = [65000, 65010, 65020, 65030, 65040, 65050, 65060];
        let aspas = Aspas::new([(a, vec![c, d]), (b, vec![e]), (c, vec![f]), (d, vec![f, g]), (g, vec![0])]);
        use Direction::{Downstream, Upstream};
        use PathState::{Invalid, Unknown, Valid};
        assert_eq!(state(&aspas, Downstream, &[e, g, f, c, a]), Unknown);
        assert_eq!(state(&aspas, Upstream, &[c, a]), Valid);
        assert_eq!(state(&aspas, Upstream, &[f, c, a]), Valid);
        assert_eq!(state(&aspas, Upstream, &[g, f, c, a]), Unknown);
        assert_eq!(state(&aspas, Upstream, &[e, g, f, c, a]), Invalid, "G attests that it has no provider");
        assert_eq!(state(&aspas, Upstream, &[f, a]), Invalid);
        // A leak: A passes a route of its provider C on to its provider D.
        assert_eq!(state(&aspas, Upstream, &[d, a, c]), Invalid);
        assert_eq!(state(&aspas, Downstream, &[g, d, a, c, f]), Invalid);
        assert_eq!(state(&aspas, Downstream, &[g, d, a]), Valid);
        // Over a lateral link between F and G, down to D and to us.
        assert_eq!(state(&aspas, Downstream, &[d, g, f, c, a]), Valid);
    }

    #[test]
    fn paths_that_cannot_be_verified_are_invalid_and_short_ones_valid() {
        let aspas = Aspas::new([(1, vec![2]), (9, vec![0])]);
        let up = PathRule { direction: Direction::Upstream, first_as: Some(1), prepended: None };
        let verify = |bytes: &[u8], rule: &PathRule| aspas.verify(AsPath::new(bytes), rule);
        assert_eq!(verify(&[], &up), PathState::Invalid);
        assert_eq!(verify(&path_of(&[1]), &up), PathState::Valid);
        assert_eq!(verify(&path_of(&[1, 1, 1]), &up), PathState::Valid, "repetitions do not count");
        assert_eq!(
            verify(&path_of(&[2, 1]), &up),
            PathState::Invalid,
            "it does not begin with the neighbour"
        );
        let set = [&path_of(&[1])[..], &[1, 1, 0, 0, 0, 7]].concat();
        assert_eq!(verify(&set, &up), PathState::Invalid);
        // A route server leaves itself out, and our own AS of a migration is no part of the path.
        let server = PathRule { first_as: None, ..up };
        assert_eq!(verify(&path_of(&[2, 1]), &server), PathState::Valid);
        let migrating = PathRule { prepended: Some(64999), ..up };
        assert_eq!(verify(&path_of(&[64999, 1]), &migrating), PathState::Valid);
        // Any two AS numbers may be linked to a provider of ours.
        assert_eq!(state(&aspas, Direction::Downstream, &[1, 9]), PathState::Valid);
        assert_eq!(aspas.hop(9, 0), Hop::NotProvider);
        assert_eq!(aspas.hop(7, 1), Hop::NoAttestation);
    }

    #[test]
    fn records_of_one_customer_are_joined_and_paged() {
        let aspas = Aspas::new([(5, vec![3, 1]), (2, vec![9]), (5, vec![2, 3])]);
        let all: Vec<(u32, Vec<u32>)> = aspas.iter().map(|(c, of)| (c, of.to_vec())).collect();
        assert_eq!(all, [(2, vec![9]), (5, vec![1, 2, 3])]);
        assert_eq!(aspas.after(Some(2)).count(), 1);
        assert_eq!((aspas.len(), aspas.providers(2), aspas.providers(3)), (2, Some(&[9][..]), None));
    }

    /// The text of sections 5.4 and 5.5, step by step, with positions from 1 as there.
    fn by_the_text(records: &[(u32, Vec<u32>)], received: &[u32], first: u32, down: bool) -> PathState {
        let authorized = |customer: u32, provider: u32| {
            let of: Vec<&(u32, Vec<u32>)> = records.iter().filter(|(c, _)| *c == customer).collect();
            match of.is_empty() {
                true => Hop::NoAttestation,
                false if provider != 0 && of.iter().any(|(_, p)| p.contains(&provider)) => Hop::Provider,
                false => Hop::NotProvider,
            }
        };
        if received.first() != Some(&first) {
            return PathState::Invalid;
        }
        let mut unique: Vec<u32> = Vec::new();
        for asn in received.iter().rev() {
            if unique.last() != Some(asn) {
                unique.push(*asn);
            }
        }
        let n = unique.len();
        let at = |i: usize| unique[i - 1];
        if !down {
            let ups: Vec<Hop> = (1..n).map(|i| authorized(at(i), at(i + 1))).collect();
            return match () {
                () if ups.contains(&Hop::NotProvider) => PathState::Invalid,
                () if ups.contains(&Hop::NoAttestation) => PathState::Unknown,
                () => PathState::Valid,
            };
        }
        if n <= 2 {
            return PathState::Valid;
        }
        let up = |breaks: &dyn Fn(Hop) -> bool| {
            (1..n).find(|i| breaks(authorized(at(*i), at(i + 1)))).unwrap_or(n)
        };
        let down = |breaks: &dyn Fn(Hop) -> bool| {
            (2..=n).rev().find(|j| breaks(authorized(at(*j), at(j - 1)))).map_or(n, |j| n - j + 1)
        };
        let surely = |hop: Hop| hop == Hop::NotProvider;
        let maybe = |hop: Hop| hop != Hop::Provider;
        if up(&surely) + down(&surely) < n {
            PathState::Invalid
        } else if up(&maybe) + down(&maybe) < n {
            PathState::Unknown
        } else {
            PathState::Valid
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]

        #[test]
        fn states_are_those_of_the_text(
            records in prop::collection::vec((1u32..7, prop::collection::vec(0u32..7, 1..4)), 0..8),
            path in prop::collection::vec(1u32..7, 1..7),
            first in 1u32..7,
            own_first in prop::bool::weighted(0.9),
            down: bool,
        ) {
            let first = if own_first { path[0] } else { first };
            let direction = if down { Direction::Downstream } else { Direction::Upstream };
            let rule = PathRule { direction, first_as: Some(first), prepended: None };
            let aspas = Aspas::new(records.iter().map(|(c, of)| (*c, of.iter().copied())));
            let state = aspas.verify(AsPath::new(&path_of(&path)), &rule);
            prop_assert_eq!(state, by_the_text(&records, &path, first, down));
        }
    }
}
