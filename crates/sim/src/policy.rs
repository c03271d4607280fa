//! The policy of these histories: compiled, as peers have it, and as plain code for the oracle.

use crate::history::Announcement;
use ribtide_policy::{
    Actions, AsPathSet, ChangeCommunities, Condition, Definition, Match, Med, Named, Numbers, Policy,
    PrefixCondition, PrefixSet, PresenceCondition, Statement, Then,
};
use ribtide_prefix::AnyPrefix;
use ribtide_wire::bgp::attribute::Community;
use std::net::IpAddr;
use std::sync::Arc;

/// The community of long prefixes.
const MARK: Community = Community(0xfde8_0007);

/// The compiled policy of a peer.
pub fn divided(external: bool) -> Arc<Policy> {
    let prefixes = |name: &str, ranges: [&str; 2]| {
        let ranges = ranges.map(|range| range.parse().expect("a range"));
        vec![PrefixCondition { set: Named::new(name, PrefixSet::new(ranges)), invert: false }]
    };
    let tagged = ["65000:1".parse().expect("a community")].into_iter().collect();
    let through = AsPathSet { contains: [Numbers::one(64600)].into_iter().collect(), ..AsPathSet::default() };
    let mark = ribtide_policy::AnyCommunity::Standard(MARK);
    let statements = vec![
        Statement {
            prefix_conditions: prefixes("long", ["0.0.0.0/0 17..32", "::/0 17..128"]),
            actions: Actions {
                med: Some(Med::Add(1)),
                communities: ChangeCommunities { add: vec![mark], ..ChangeCommunities::default() },
                ..Actions::default()
            },
            ..Statement::default()
        },
        Statement {
            conditions: vec![Condition::CommunitySet(Named::new("tagged", tagged), Match::Any)],
            then: Then::Reject,
            ..Statement::default()
        },
        Statement {
            conditions: vec![Condition::AsPathSet(Named::new("through", through), Match::Any)],
            actions: Actions { local_pref: Some(101), ..Actions::default() },
            then: Then::Accept,
            ..Statement::default()
        },
        Statement {
            prefix_conditions: prefixes("low", ["0.0.0.0/1 1..32", "::/1 1..128"]),
            then: Then::Accept,
            ..Statement::default()
        },
    ];
    Arc::new(Policy::new(vec![Arc::new(Definition { name: "divided".into(), statements })], external))
}

/// The set whose presence switches [`conditional`] policies.
pub fn switch() -> Arc<Named<PrefixSet>> {
    Named::new("switch", PrefixSet::new(["192.0.2.0/24".parse().expect("a prefix")]))
}

/// A policy that rejects low prefixes, or all, while the set of [`switch`] has a route, or has none.
pub fn conditional(all: bool, absent: bool) -> Arc<Policy> {
    let low = ["0.0.0.0/1 0..32", "::/1 0..128"].map(|range| {
        let exact = if range.starts_with(':') { "::/0" } else { "0.0.0.0/0" };
        [range.replace(" 0..", " 1.."), exact.into()].map(|range| range.parse().expect("a range"))
    });
    let low =
        PrefixCondition { set: Named::new("low", PrefixSet::new(low.into_iter().flatten())), invert: false };
    let presence = PresenceCondition { set: switch(), absent, present: None };
    let reject = Statement {
        conditions: vec![Condition::Presence(presence)],
        prefix_conditions: if all { Vec::new() } else { vec![low] },
        then: Then::Reject,
        ..Statement::default()
    };
    let accept = Statement { then: Then::Accept, ..Statement::default() };
    let name = format!("conditional{}{}", if all { " all" } else { "" }, if absent { " absent" } else { "" });
    let definition = Definition { name, statements: vec![reject, accept] };
    Arc::new(Policy::new(vec![Arc::new(definition)], true))
}

/// The same as plain code: whether a conditional policy accepts a route.
pub fn accepts(name: &str, present: Option<bool>, prefix: AnyPrefix) -> bool {
    let first = match prefix.addr() {
        IpAddr::V4(a) => a.octets()[0],
        IpAddr::V6(a) => a.octets()[0],
    };
    let concerned = name.contains("all") || first < 128;
    !(concerned && present == Some(!name.contains("absent")))
}

/// The same as plain code: the resulting route, and whether its MED was set.
pub fn plainly(external: bool, with: &Announcement, prefix: AnyPrefix) -> Option<(Announcement, bool)> {
    let mut with = with.clone();
    let long = prefix.len() > 16;
    if long {
        with.med = Some(with.med.unwrap_or(0) + 1);
        if !with.communities.contains(&MARK.0) {
            with.communities.push(MARK.0);
        }
    }
    let first = match prefix.addr() {
        IpAddr::V4(a) => a.octets()[0],
        IpAddr::V6(a) => a.octets()[0],
    };
    if with.communities.contains(&0xfde8_0001) {
        None
    } else if with.path.iter().any(|(_, asns)| asns.contains(&64600)) {
        with.local_pref = Some(101);
        Some((with, long))
    } else if (first < 128 && prefix.len() > 0) || !external {
        Some((with, long))
    } else {
        None
    }
}
