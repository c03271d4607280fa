//! A compiled policy has the same results as its statements read one by one, and a memo has those
//! of its policy.

use proptest::prelude::*;
use ribtide_policy::{
    Actions, AnyCommunity, AsPathSet, ChangeCommunities, CommunityPattern, CommunitySet, Condition,
    Definition, Match, Med, Memo, Named, NewNextHop, Numbers, PathCondition, Policy, PrefixCondition,
    PrefixRange, PrefixSet, Prepend, Route, RouteType, SetNextHop, Source, Statement, Then, Validation,
    ValidityCondition,
};
use ribtide_prefix::{AfiSafi, Families, Prefix, V4};
use ribtide_rpki::{PathState, Validity, Vrp, Vrps};
use ribtide_wire::bgp::attribute::{
    AsPath, Attribute, Attributes, Communities, LargeCommunities, Origin, code, flags, number,
};
use ribtide_wire::bgp::{NextHop, build};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

/// A route as plain values.
#[derive(Clone, PartialEq, Debug)]
struct Plain {
    origin: Origin,
    path: Vec<u32>,
    med: Option<u32>,
    local_pref: Option<u32>,
    communities: Vec<AnyCommunity>,
    next_hop: IpAddr,
    own_next_hop: bool,
    kind: RouteType,
    neighbor: IpAddr,
}

impl Plain {
    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        build::origin(&mut out, self.origin);
        let path: Vec<u8> = self.path.iter().flat_map(|asn| asn.to_be_bytes()).collect();
        let path = if path.is_empty() { path } else { [vec![2, self.path.len() as u8], path].concat() };
        build::as_path(&mut out, AsPath::new(&path));
        self.med.inspect(|n| build::med(&mut out, *n));
        self.local_pref.inspect(|n| build::local_pref(&mut out, *n));
        let of = |large: bool| -> Vec<u8> {
            let bytes = self.communities.iter().map(|c| match c {
                AnyCommunity::Standard(c) if !large => c.0.to_be_bytes().to_vec(),
                AnyCommunity::Large(c) if large => {
                    [c.global, c.local1, c.local2].iter().flat_map(|n| n.to_be_bytes()).collect()
                }
                _ => vec![],
            });
            bytes.flatten().collect()
        };
        build::list(&mut out, 0, code::COMMUNITIES, &of(false));
        // An attribute that no policy changes, between changed ones.
        build::attribute(&mut out, flags::OPTIONAL | flags::TRANSITIVE | flags::PARTIAL, 20, &[1, 2, 3]);
        build::list(&mut out, flags::PARTIAL, code::LARGE_COMMUNITIES, &of(true));
        out
    }

    /// The reverse, for the attributes that may change.
    fn read(&self, bytes: &[u8], next_hop: Option<NewNextHop>) -> Plain {
        let mut plain = Plain { med: None, local_pref: None, communities: vec![], ..self.clone() };
        let mut last = 0;
        let mut untouched = false;
        for Attribute { code, value, flags } in Attributes::new(bytes) {
            assert!(code > last, "attributes stay in order");
            last = code;
            match code {
                code::ORIGIN => plain.origin = Origin::from_value(value).unwrap(),
                code::AS_PATH => plain.path = AsPath::new(value).asns().collect(),
                code::MED => plain.med = number(value),
                code::LOCAL_PREF => plain.local_pref = number(value),
                code::COMMUNITIES => {
                    assert!(!value.is_empty());
                    plain.communities.extend(Communities::new(value).iter().map(AnyCommunity::Standard));
                }
                code::LARGE_COMMUNITIES => {
                    let had_large = self.communities.iter().any(|c| matches!(c, AnyCommunity::Large(_)));
                    assert_eq!(flags & flags::PARTIAL != 0, had_large, "flags are kept");
                    plain.communities.extend(LargeCommunities::new(value).iter().map(AnyCommunity::Large));
                }
                20 => untouched = value == [1, 2, 3] && flags & flags::PARTIAL != 0,
                other => panic!("attribute {other} came from nowhere"),
            }
        }
        assert!(untouched);
        match next_hop {
            None => {}
            Some(NewNextHop::Own) => plain.own_next_hop = true,
            Some(NewNextHop::Address(next_hop)) => plain.next_hop = next_hop.addr(),
        }
        plain
    }
}

/// Reads the statements one by one. `None`: rejected.
fn naive(
    definitions: &[Arc<Definition>],
    external: bool,
    mut route: Plain,
    prefix: Prefix<V4>,
    (validity, path): (Validity, Option<PathState>),
) -> Option<Plain> {
    let received = route.next_hop;
    'policies: for definition in definitions {
        for statement in &definition.statements {
            let prefix_holds =
                statement.prefix_conditions.iter().all(|c| c.set.set().contains(prefix) != c.invert);
            let state_holds = statement.validity.is_none_or(|condition| condition.0 == validity)
                && statement.path.is_none_or(|condition| Some(condition.0) == path);
            if !prefix_holds || !state_holds || !statement.conditions.iter().all(|c| holds(c, &route)) {
                continue;
            }
            act(&statement.actions, received, &mut route);
            match statement.then {
                Then::Accept => return Some(route),
                Then::Reject => return None,
                Then::NextStatement => {}
                Then::NextPolicy => continue 'policies,
            }
        }
    }
    (!external).then_some(route)
}

fn holds(condition: &Condition, route: &Plain) -> bool {
    let inside = |set: &PrefixSet, address: IpAddr| set.contains(Prefix::<V4>::host(address).unwrap());
    match condition {
        Condition::CommunitySet(set, how) => {
            let any = route.communities.iter().any(|c| set.set().has(*c));
            match how {
                Match::Any => any,
                Match::Invert => !any,
                Match::All => set.set().all_in(&route.communities),
            }
        }
        Condition::AsPathSet(set, how) => {
            let origin = route.path.last().is_some_and(|asn| set.set().origin.has(*asn));
            (origin || route.path.iter().any(|asn| set.set().contains.has(*asn))) != (*how == Match::Invert)
        }
        Condition::NeighborSet(set, how) => inside(set.set(), route.neighbor) != (*how == Match::Invert),
        Condition::NextHopIn(set) => inside(set.set(), route.next_hop),
        Condition::AfiSafiIn(list) => list.contains(&AfiSafi::Ipv4Unicast),
        Condition::OriginEq(origin) => *origin == route.origin,
        Condition::RouteType(kind) => *kind == route.kind,
        Condition::AsPathLength(numbers) => numbers.has(route.path.len() as u32),
        Condition::Med(numbers) => numbers.has(route.med.unwrap_or(0)),
        Condition::LocalPref(numbers) => numbers.has(route.local_pref.unwrap_or(100)),
        Condition::Presence(_) => unreachable!("not generated: it is about other routes"),
    }
}

fn act(actions: &Actions, received: IpAddr, route: &mut Plain) {
    route.origin = actions.origin.unwrap_or(route.origin);
    route.local_pref = actions.local_pref.or(route.local_pref);
    let med = route.med.unwrap_or(0);
    route.med = match actions.med {
        None => route.med,
        Some(Med::Set(n)) => Some(n),
        Some(Med::Add(n)) => Some(med.saturating_add(n)),
        Some(Med::Subtract(n)) => Some(med.saturating_sub(n)),
    };
    match actions.next_hop {
        Some(SetNextHop::Own) => (route.next_hop, route.own_next_hop) = (received, true),
        Some(SetNextHop::Peer) => (route.next_hop, route.own_next_hop) = (route.neighbor, false),
        Some(SetNextHop::Address(a)) if a.is_ipv4() => (route.next_hop, route.own_next_hop) = (a, false),
        _ => {}
    }
    if let Some(Prepend { asn, count }) = actions.prepend {
        route.path.splice(0..0, (0..count).map(|_| asn));
    }
    let ChangeCommunities { remove_all, remove, add } = &actions.communities;
    route.communities.retain(|c| !remove_all && !remove.iter().any(|set| set.set().has(*c)));
    for c in add {
        if !route.communities.contains(c) {
            route.communities.push(*c);
        }
    }
    // As in the attributes: standard before large, and otherwise in the order they came.
    route.communities.sort_by_key(|c| matches!(c, AnyCommunity::Large(_)));
}

fn community() -> impl Strategy<Value = AnyCommunity> {
    prop::sample::select(vec!["1:1", "1:2", "2:1", "no-export", "1:1:1", "1:2:1"])
        .prop_map(|text| text.parse().unwrap())
}

fn community_set() -> impl Strategy<Value = Arc<Named<CommunitySet>>> {
    let pattern = prop::sample::select(vec!["1:1", "1:*", "*:1", "1:1:1", "*:*:*", "2:1-2", "9:9"]);
    let pattern = pattern.prop_map(|text| text.parse::<CommunityPattern>().unwrap());
    prop::collection::vec(pattern, 1..3).prop_map(|patterns| Named::new("c", patterns.into_iter().collect()))
}

fn as_path_set() -> impl Strategy<Value = Arc<Named<AsPathSet>>> {
    (0..4u32, 0..4u32).prop_map(|(origin, contains)| {
        let set = |n| [Numbers::one(n)].into_iter().filter(|n| n.first > 0).collect();
        Named::new("a", AsPathSet { origin: set(origin), contains: set(contains), ..AsPathSet::default() })
    })
}

/// Prefix sets with few different prefixes, so that statements often agree.
fn prefix_set() -> impl Strategy<Value = Arc<Named<PrefixSet>>> {
    let range = prop::sample::select(vec![
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.0.0.0/8 8..32",
        "10.0.0.0/16 24..24",
        "10.1.0.0/16",
        "0.0.0.0/0 16..24",
        "::/0 0..128",
    ]);
    let range = range.prop_map(|text| text.parse::<PrefixRange>().unwrap());
    prop::collection::vec(range, 0..3).prop_map(|ranges| Named::new("p", PrefixSet::new(ranges)))
}

fn address() -> impl Strategy<Value = IpAddr> {
    (1..4u8).prop_map(|n| Ipv4Addr::new(192, 0, 2, n).into())
}

fn addresses() -> impl Strategy<Value = Arc<Named<PrefixSet>>> {
    address().prop_map(|a| {
        Named::new("n", PrefixSet::new([PrefixRange::exact(ribtide_prefix::AnyPrefix::host(a))]))
    })
}

fn origin() -> impl Strategy<Value = Origin> {
    prop::sample::select(vec![Origin::Igp, Origin::Egp, Origin::Incomplete])
}

fn numbers() -> impl Strategy<Value = Numbers> {
    prop::sample::select(vec!["0", "1-2", "100", "*", "3-200"]).prop_map(|text| text.parse().unwrap())
}

fn condition() -> impl Strategy<Value = Condition> {
    let twice = || prop::sample::select(vec![Match::Any, Match::Invert]);
    prop_oneof![
        (community_set(), prop::sample::select(vec![Match::Any, Match::All, Match::Invert]))
            .prop_map(|(set, how)| Condition::CommunitySet(set, how)),
        (as_path_set(), twice()).prop_map(|(set, how)| Condition::AsPathSet(set, how)),
        (addresses(), twice()).prop_map(|(set, how)| Condition::NeighborSet(set, how)),
        addresses().prop_map(Condition::NextHopIn),
        prop::sample::select(vec![
            vec![AfiSafi::Ipv4Unicast],
            vec![AfiSafi::Ipv6Unicast],
            AfiSafi::ALL.to_vec()
        ])
        .prop_map(Condition::AfiSafiIn),
        origin().prop_map(Condition::OriginEq),
        route_type().prop_map(Condition::RouteType),
        numbers().prop_map(Condition::AsPathLength),
        numbers().prop_map(Condition::Med),
        numbers().prop_map(Condition::LocalPref),
    ]
}

fn actions() -> impl Strategy<Value = Actions> {
    let med = prop_oneof![
        (0..3u32).prop_map(Med::Set),
        prop::sample::select(vec![1, u32::MAX]).prop_map(Med::Add),
        (0..3u32).prop_map(Med::Subtract),
    ];
    let next_hop = prop_oneof![
        Just(SetNextHop::Own),
        Just(SetNextHop::Peer),
        address().prop_map(SetNextHop::Address),
        Just(SetNextHop::Address("2001:db8::1".parse().unwrap())),
    ];
    let communities = (
        prop::bool::weighted(0.2),
        prop::collection::vec(community_set(), 0..2),
        prop::collection::vec(community(), 0..3),
    );
    let communities =
        communities.prop_map(|(remove_all, remove, add)| ChangeCommunities { remove_all, remove, add });
    (
        prop::option::weighted(0.2, origin()),
        prop::option::weighted(0.3, prop::sample::select(vec![1, 100, 150])),
        prop::option::weighted(0.3, med),
        prop::option::weighted(0.2, next_hop),
        prop::option::weighted(0.2, (1..4u32, 1..3u8).prop_map(|(asn, count)| Prepend { asn, count })),
        prop_oneof![Just(ChangeCommunities::default()), communities],
    )
        .prop_map(|(origin, local_pref, med, next_hop, prepend, communities)| Actions {
            origin,
            local_pref,
            med,
            next_hop,
            prepend,
            communities,
            ..Actions::default()
        })
}

/// Some prefix sets, as numbers, are shared by statements.
fn definitions() -> impl Strategy<Value = Vec<Arc<Definition>>> {
    let statement = (
        prop::collection::vec(condition(), 0..2),
        prop::collection::vec((0..3usize, any::<bool>()), 0..2),
        prop::option::weighted(0.3, prop::sample::select(Validity::ALL.to_vec())),
        prop::option::weighted(0.2, prop::sample::select(PathState::ALL.to_vec())),
        actions(),
        prop::sample::select(vec![
            Then::Accept,
            Then::Reject,
            Then::NextStatement,
            Then::NextStatement,
            Then::NextPolicy,
        ]),
    );
    let sets = prop::collection::vec(prefix_set(), 3);
    let policies = prop::collection::vec(prop::collection::vec(statement, 0..4), 0..3);
    (sets, policies).prop_map(|(sets, policies)| {
        let statement =
            |(conditions, prefixes, validity, path, actions, then): (_, Vec<(usize, bool)>, _, _, _, _)| {
                Statement {
                    name: String::new(),
                    conditions,
                    prefix_conditions: prefixes
                        .into_iter()
                        .map(|(n, invert)| PrefixCondition { set: sets[n].clone(), invert })
                        .collect(),
                    validity: Option::map(validity, ValidityCondition),
                    path: Option::map(path, PathCondition),
                    actions,
                    then,
                }
            };
        let policies = policies.into_iter().enumerate();
        policies
            .map(|(n, statements)| {
                let statements = statements.into_iter().map(statement).collect();
                Arc::new(Definition { name: format!("p{n}"), statements })
            })
            .collect()
    })
}

fn route_type() -> impl Strategy<Value = RouteType> {
    prop::sample::select(vec![RouteType::External, RouteType::Internal, RouteType::Local])
}

fn plain() -> impl Strategy<Value = Plain> {
    (
        origin(),
        prop::collection::vec(1..4u32, 0..4),
        prop::option::of(0..3u32),
        prop::option::of(prop::sample::select(vec![1, 100, 150])),
        prop::sample::subsequence(vec!["1:1", "1:2", "2:1", "no-export", "1:1:1", "1:2:1"], 0..=6),
        address(),
        route_type(),
        address(),
    )
        .prop_map(|(origin, path, med, local_pref, communities, next_hop, kind, neighbor)| Plain {
            origin,
            path,
            med,
            local_pref,
            communities: communities.into_iter().map(|text| text.parse().unwrap()).collect(),
            next_hop,
            own_next_hop: false,
            kind,
            neighbor,
        })
}

fn prefix() -> impl Strategy<Value = Prefix<V4>> {
    let texts = [
        "0.0.0.0/0",
        "10.0.0.0/8",
        "10.0.1.0/24",
        "10.1.0.0/16",
        "10.1.1.1/32",
        "192.0.2.0/24",
        "11.0.0.0/8",
    ];
    prop::sample::select(texts.to_vec()).prop_map(|text| text.parse().unwrap())
}

fn vrps() -> impl Strategy<Value = Vrps> {
    let vrp =
        (prefix(), 1..4u32).prop_map(|(prefix, asn)| Vrp { prefix, max_len: prefix.len().max(24), asn });
    prop::collection::vec(vrp, 0..4).prop_map(|v4| Vrps::new(Families { v4, v6: Vec::new() }))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn policy_memo_and_statements_agree(
        definitions in definitions(),
        external: bool,
        plain in plain(),
        prefixes in prop::collection::vec(prefix(), 1..12),
        tables in prop::collection::vec((vrps(), prop::option::of(prop::sample::select(PathState::ALL.to_vec()))), 2),
    ) {
        let policy = Policy::new(definitions.clone(), external);
        let bytes = plain.bytes();
        let IpAddr::V4(next_hop) = plain.next_hop else { unreachable!() };
        let source = Source { neighbor: plain.neighbor, kind: plain.kind };
        let origin = ribtide_rpki::Origin(plain.path.last().copied());
        fn validation((vrps, path): &(Vrps, Option<PathState>), origin: ribtide_rpki::Origin) -> Validation<'_> {
            Validation { vrps, origin, path: *path }
        }
        let with = |validation| Route {
            attributes: &bytes,
            next_hop: NextHop::V4(next_hop),
            family: AfiSafi::Ipv4Unicast,
            source,
            validation: Some(validation),
        };
        let route = with(validation(&tables[0], origin));
        let read = |changes: ribtide_policy::Changes| {
            let mut out = Vec::new();
            changes.write(&bytes, &mut out);
            assert!(!changes.is_empty() || (out == bytes && changes.next_hop().is_none()));
            plain.read(&out, changes.next_hop())
        };
        let mut memo = Memo::new(&policy, &route, read);
        let settled = memo.settled().map(Option::<&Plain>::cloned);
        let has_prefix_conditions = definitions.iter().flat_map(|d| &d.statements).any(|s| !s.prefix_conditions.is_empty() || s.validity.is_some() || s.path.is_some());
        prop_assert!(has_prefix_conditions || settled.is_some());
        // The same memo with one table and then another.
        for (prefix, vrps) in prefixes.iter().map(|prefix| (*prefix, &tables[0])).chain(prefixes.iter().map(|prefix| (*prefix, &tables[1]))) {
            let route = with(validation(vrps, origin));
            let states = (vrps.0.validate(prefix, origin), vrps.1);
            let expected = naive(&definitions, external, plain.clone(), prefix, states);
            let found = policy.evaluate(&route, prefix).map(read);
            prop_assert_eq!(&found, &expected, "{}: {:#?}", prefix, definitions);
            let memoised = memo.decide(&policy, &route, prefix, read);
            prop_assert_eq!(memoised.as_deref(), expected.as_ref());
            if let Some(settled) = &settled {
                prop_assert_eq!(settled, &expected);
            }
            if let Some(constant) = policy.constant() {
                prop_assert_eq!(found.as_ref(), (constant == ribtide_policy::PolicyResult::Accept).then_some(&plain));
            }
            if let Some(results) = policy.constant_by_validity(&bytes) {
                let is_accepted = results[states.0 as usize] == ribtide_policy::PolicyResult::Accept;
                prop_assert_eq!(found.as_ref(), is_accepted.then_some(&plain));
            }
            if memo.is_by_validity() {
                let by_state = memo.of_validity(&policy, &route, states.0, read);
                prop_assert_eq!(by_state.as_deref(), expected.as_ref());
            }
            let (explained, sentences) = policy.explain(&route, prefix.any());
            prop_assert_eq!(explained.map(read), expected);
            prop_assert!(sentences.iter().all(|s| !s.is_empty()) && !sentences.is_empty());
        }
        prop_assert_eq!(&policy, &Policy::new(definitions, external));
    }
}
