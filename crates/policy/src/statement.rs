//! Policies in source form: definitions of statements, each with conditions, actions and a result.

use crate::as_path::AsPathSet;
use crate::community::{AnyCommunity, CommunitySet, Kind};
use crate::numbers::Numbers;
use crate::prefix_set::PrefixSet;
use crate::route::{Draft, RouteType};
use ribtide_prefix::zone::split_zone;
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix};
use ribtide_rpki::{PathState, Validity};
use ribtide_wire::bgp::attribute::Origin;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

/// A set with its name. Equal when name and content are equal; comparison is cheap.
#[derive(Debug)]
pub struct Named<T> {
    name: String,
    set: T,
    hash: u64,
}

impl<T: Hash> Named<T> {
    /// Gives a set its name.
    pub fn new(name: impl Into<String>, set: T) -> Arc<Named<T>> {
        let name = name.into();
        let mut hasher = DefaultHasher::new();
        (&name, &set).hash(&mut hasher);
        Arc::new(Named { name, set, hash: hasher.finish() })
    }
}

impl<T> Named<T> {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The set.
    pub fn set(&self) -> &T {
        &self.set
    }
}

impl<T: PartialEq> PartialEq for Named<T> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
            || (self.hash == other.hash && self.name == other.name && self.set == other.set)
    }
}

impl<T: Eq> Eq for Named<T> {}

impl<T> Hash for Named<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// How a route is compared with a set (OpenConfig's `match-set-options`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Match {
    /// A value of the route is in the set.
    #[default]
    Any,
    /// The route has all members of the set: for community sets only.
    All,
    /// No value of the route is in the set.
    Invert,
}

/// A condition on a route's attributes or neighbour.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Condition {
    /// Communities of the route, of every kind.
    CommunitySet(Arc<Named<CommunitySet>>, Match),
    /// AS_PATH.
    AsPathSet(Arc<Named<AsPathSet>>, Match),
    /// The neighbour that the route was learnt from.
    NeighborSet(Arc<Named<PrefixSet>>, Match),
    /// The next hop is in one of these.
    NextHopIn(Arc<Named<PrefixSet>>),
    /// The family is one of these.
    AfiSafiIn(Vec<AfiSafi>),
    /// ORIGIN is this.
    OriginEq(Origin),
    /// It comes from there.
    RouteType(RouteType),
    /// Length of AS_PATH as the decision process counts it.
    AsPathLength(Numbers),
    /// MULTI_EXIT_DISC; 0 when absent.
    Med(Numbers),
    /// LOCAL_PREF; 100 when absent.
    LocalPref(Numbers),
    /// Whether there are other routes: at export only.
    Presence(PresenceCondition),
}

impl Condition {
    pub(crate) fn holds(&self, route: &Draft<'_>) -> bool {
        match self {
            Condition::CommunitySet(set, how) => {
                let all = || Kind::ALL.into_iter().flat_map(|kind| kind.read(route.communities(kind)));
                match how {
                    Match::Any => all().any(|c| set.set.has(c)),
                    Match::All => set.set.all_in(&all().collect::<Vec<_>>()),
                    Match::Invert => !all().any(|c| set.set.has(c)),
                }
            }
            Condition::AsPathSet(set, how) => set.set.has(route.as_path()) != (*how == Match::Invert),
            Condition::NeighborSet(set, how) => {
                holds_address(&set.set, split_zone(route.source().neighbor).0) != (*how == Match::Invert)
            }
            Condition::NextHopIn(set) => holds_address(&set.set, route.next_hop()),
            Condition::AfiSafiIn(list) => list.contains(&route.family()),
            Condition::OriginEq(origin) => route.origin() == *origin,
            Condition::RouteType(kind) => route.source().kind == *kind,
            Condition::AsPathLength(numbers) => numbers.has(route.as_path().hop_count()),
            Condition::Med(numbers) => numbers.has(route.med()),
            Condition::LocalPref(numbers) => numbers.has(route.local_pref()),
            Condition::Presence(condition) => condition.holds(),
        }
    }
}

/// A condition on best paths other than the route itself: that some route is in a set, or that none is.
/// It does not hold before [`Policy::resolve`](crate::Policy::resolve) gives it a state.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PresenceCondition {
    /// The set.
    pub set: Arc<Named<PrefixSet>>,
    /// It holds without a route in the set.
    pub absent: bool,
    /// Whether there is one; `None`: not known.
    pub present: Option<bool>,
}

impl PresenceCondition {
    /// Whether it holds.
    pub fn holds(&self) -> bool {
        self.present == Some(!self.absent)
    }
}

impl fmt::Display for PresenceCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = if self.absent { "routes-absent" } else { "routes-exist" };
        write!(f, "{name} \"{}\"", self.set.name)
    }
}

fn holds_address(set: &PrefixSet, address: IpAddr) -> bool {
    match AnyPrefix::host(address) {
        AnyPrefix::V4(host) => set.contains(host),
        AnyPrefix::V6(host) => set.contains(host),
    }
}

fn matching(f: &mut fmt::Formatter<'_>, what: &str, name: &str, how: Match) -> fmt::Result {
    let how = match how {
        Match::Any => "",
        Match::All => " (all)",
        Match::Invert => " (invert)",
    };
    write!(f, "match-{what} \"{name}\"{how}")
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Condition::CommunitySet(set, how) => matching(f, "community-set", &set.name, *how),
            Condition::AsPathSet(set, how) => matching(f, "as-path-set", &set.name, *how),
            Condition::NeighborSet(set, how) => matching(f, "neighbor-set", &set.name, *how),
            Condition::NextHopIn(set) => write!(f, "next-hop-in {}", set.name),
            Condition::AfiSafiIn(list) => {
                f.write_str("afi-safi-in")?;
                list.iter().try_for_each(|family| write!(f, " {family}"))
            }
            Condition::OriginEq(origin) => write!(f, "origin-eq {origin}"),
            Condition::RouteType(kind) => write!(f, "route-type {}", kind.name()),
            Condition::AsPathLength(numbers) => write!(f, "as-path-length {numbers}"),
            Condition::Med(numbers) => write!(f, "med {numbers}"),
            Condition::LocalPref(numbers) => write!(f, "local-pref {numbers}"),
            Condition::Presence(condition) => condition.fmt(f),
        }
    }
}

/// A condition on a route's prefix: in a set, or not in it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct PrefixCondition {
    /// The set.
    pub set: Arc<Named<PrefixSet>>,
    /// Whether the prefix must not be in it.
    pub invert: bool,
}

impl fmt::Display for PrefixCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        matching(f, "prefix-set", &self.set.name, if self.invert { Match::Invert } else { Match::Any })
    }
}

/// A condition on a route's validation state (RFC 6811): at import only. It is the state of the route as
/// received, whatever earlier statements changed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ValidityCondition(pub Validity);

impl fmt::Display for ValidityCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rpki {}", self.0)
    }
}

/// A condition on the verification state of a route's path (draft-ietf-sidrops-aspa-verification): at import only, of the
/// path as received. Paths of internal neighbours have no state.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PathCondition(pub PathState);

impl fmt::Display for PathCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "aspa {}", self.0)
    }
}

/// The actions of a statement.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Actions {
    /// Sets ORIGIN.
    pub origin: Option<Origin>,
    /// Sets LOCAL_PREF.
    pub local_pref: Option<u32>,
    /// Sets or changes MULTI_EXIT_DISC.
    pub med: Option<Med>,
    /// Sets the next hop.
    pub next_hop: Option<SetNextHop>,
    /// Prepends to AS_PATH.
    pub prepend: Option<Prepend>,
    /// Removes and adds communities.
    pub communities: ChangeCommunities,
    /// Sets the source address of this machine's own packets over the route: in FIB policy only.
    pub source: Sources,
}

/// A source address for the routes of each family; without one, routes keep theirs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Sources {
    /// For IPv4 routes.
    pub v4: Option<Ipv4Addr>,
    /// For IPv6 routes.
    pub v6: Option<Ipv6Addr>,
}

impl Sources {
    /// That of a family.
    pub fn of(&self, afi: Afi) -> Option<IpAddr> {
        match afi {
            Afi::Ipv4 => self.v4.map(IpAddr::V4),
            Afi::Ipv6 => self.v6.map(IpAddr::V6),
        }
    }
}

/// The change of MULTI_EXIT_DISC. An absent one counts as 0, and sums saturate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Med {
    /// Sets this value.
    Set(u32),
    /// Adds this value.
    Add(u32),
    /// Subtracts this value.
    Subtract(u32),
}

/// The new next hop.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SetNextHop {
    /// Our own address on the session that the route is sent on: at export only.
    Own,
    /// The address of the neighbour that the route was learnt from: at import only.
    Peer,
    /// This address. Routes of the other family keep their next hop.
    Address(IpAddr),
}

/// AS numbers before AS_PATH.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Prepend {
    /// The AS.
    pub asn: u32,
    /// How often.
    pub count: u8,
}

/// The change of communities: removal first, then addition, each community once.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct ChangeCommunities {
    /// Removes all, of every kind.
    pub remove_all: bool,
    /// Removes the communities of these sets.
    pub remove: Vec<Arc<Named<CommunitySet>>>,
    /// Adds these.
    pub add: Vec<AnyCommunity>,
}

impl ChangeCommunities {
    pub(crate) fn is_empty(&self) -> bool {
        !self.remove_all && self.remove.is_empty() && self.add.is_empty()
    }

    /// The new value of the attribute of this kind, whose value was `have`.
    pub(crate) fn change(&self, kind: Kind, have: &[u8]) -> Vec<u8> {
        let mut new = Vec::with_capacity(have.len());
        let removed = |c| self.remove_all || self.remove.iter().any(|set| set.set.has(c));
        kind.read(have).filter(|c| !removed(*c)).for_each(|c| c.write(&mut new));
        for c in self.add.iter().filter(|c| c.kind() == kind) {
            if !kind.read(&new).any(|old| old == *c) {
                c.write(&mut new);
            }
        }
        new
    }
}

impl Actions {
    /// Whether there is no action.
    pub fn is_empty(&self) -> bool {
        *self == Actions::default()
    }
}

impl fmt::Display for Actions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        parts.extend(self.origin.map(|origin| format!("set-route-origin {origin}")));
        parts.extend(self.local_pref.map(|n| format!("set-local-pref {n}")));
        parts.extend(self.med.map(|med| match med {
            Med::Set(n) => format!("set-med {n}"),
            Med::Add(n) => format!("set-med +{n}"),
            Med::Subtract(n) => format!("set-med -{n}"),
        }));
        parts.extend(self.next_hop.map(|next_hop| match next_hop {
            SetNextHop::Own => "set-next-hop self".into(),
            SetNextHop::Peer => "set-next-hop peer-address".into(),
            SetNextHop::Address(address) => format!("set-next-hop {address}"),
        }));
        parts.extend(self.prepend.map(|p| format!("set-as-path-prepend {} times {}", p.count, p.asn)));
        let communities = &self.communities;
        if communities.remove_all {
            parts.push("remove all communities".into());
        }
        parts.extend(communities.remove.iter().map(|set| format!("remove communities {}", set.name)));
        if !communities.add.is_empty() {
            let add: Vec<String> = communities.add.iter().map(ToString::to_string).collect();
            parts.push(format!("add communities {}", add.join(" ")));
        }
        let sources = [Afi::Ipv4, Afi::Ipv6].into_iter().filter_map(|afi| self.source.of(afi));
        parts.extend(sources.map(|source| format!("set-source {source}")));
        f.write_str(&parts.join(", "))
    }
}

/// The result of a statement whose conditions hold (OpenConfig's `policy-result`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Then {
    /// The route is used, or sent, with all changes so far.
    Accept,
    /// The route is neither used nor sent.
    Reject,
    /// The next statement is tried; after the last of a policy, the next policy.
    #[default]
    NextStatement,
    /// The next policy is tried.
    NextPolicy,
}

/// A statement. Without conditions it holds for every route.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Statement {
    /// Its name, for explanations.
    pub name: String,
    /// Conditions; all must hold.
    pub conditions: Vec<Condition>,
    /// Prefix conditions; all must hold. They are tested after the conditions.
    pub prefix_conditions: Vec<PrefixCondition>,
    /// The validation state, which depends on the prefix too. It is tested last.
    pub validity: Option<ValidityCondition>,
    /// The verification state of the path, which depends on the table of records. It is tested with it.
    pub path: Option<PathCondition>,
    /// The actions on the route.
    pub actions: Actions,
    /// The result.
    pub then: Then,
}

/// A policy under its name (OpenConfig's `policy-definition`).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Definition {
    /// The name.
    pub name: String,
    /// Its statements, tried in order.
    pub statements: Vec<Statement>,
}

impl Definition {
    /// The built-in policies: `accept` and `reject`.
    pub fn built_in() -> [Definition; 2] {
        [("accept", Then::Accept), ("reject", Then::Reject)].map(|(name, then)| Definition {
            name: name.into(),
            statements: vec![Statement { then, ..Statement::default() }],
        })
    }
}
