//! `docs/adr/0020-next-hop-resolution.md`, "What follows": the same facts in any order, in any batches and after any detour
//! give the same FIB and the same answers; and an event causes no more changes than it makes differences.
//!
//! The tables are made so that routes resolve through each other: the oracle counts what they meet, and a test checks that all of it
//! occurs.

use crate::common::oracle::{Case, Oracle};
use crate::common::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use ribtide_prefix::{AnyPrefix, Rng};
use ribtide_rib::*;
use std::collections::{BTreeMap, BTreeSet};

/// Prefixes of the lengths 0, 8, 16, 24 and 32, which nest in each other and hold the gateways.
const PREFIXES: [&str; 13] = [
    "0.0.0.0/0",
    "20.0.0.0/8",
    "20.1.0.0/16",
    "20.1.1.0/24",
    "20.1.1.1/32",
    "30.0.0.0/8",
    "30.1.0.0/16",
    "30.1.1.0/24",
    "30.1.1.1/32",
    "40.0.0.0/8",
    "40.1.0.0/16",
    "40.1.1.0/24",
    "50.0.0.0/16",
];

/// The last ones are on a link.
const GATEWAYS: [&str; 12] = [
    "20.1.1.1", "20.1.1.2", "20.1.2.1", "20.2.0.1", "30.1.1.1", "30.1.2.1", "30.2.0.1", "40.1.1.1",
    "40.2.0.1", "10.0.1.2", "10.0.2.2", "10.0.2.3",
];

/// The facts of a table are the oracle's fields.
type Facts = Oracle;

fn address() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        5 => prop::sample::select(&GATEWAYS[..9]),
        2 => prop::sample::select(&GATEWAYS[9..]),
    ]
}

fn hop() -> impl Strategy<Value = ReceivedHop> {
    (address(), prop::option::weighted(0.15, 1..3u32), 0..3u16)
        .prop_map(|(address, interface, weight)| ReceivedHop { interface, weight, ..gw(address) })
}

fn route_set() -> impl Strategy<Value = RouteSet> {
    let prefix = || prop::sample::select(&PREFIXES[..]).prop_map(pfx);
    let next_hops = prop_oneof![
        1 => Just(NextHops::Blackhole),
        1 => Just(NextHops::Unreachable),
        32 => prop::collection::vec(hop(), 1..4).prop_map(NextHops::Via),
    ];
    let backup = prop_oneof![4 => Just(Vec::new()), 1 => prop::collection::vec(hop(), 1..3)];
    let track = prop_oneof![
        8 => Just(None),
        1 => (1..3u32).prop_map(|i| Some(Track::Interface(i))),
        1 => prefix().prop_map(|p| Some(Track::Prefix(p))),
        1 => address().prop_map(|a| Some(Track::Address(ip(a)))),
    ];
    let protocol = prop::sample::select(
        &[Protocol::Static, Protocol::Static, Protocol::BgpInternal, Protocol::BgpExternal][..],
    );
    (next_hops, backup, track, protocol, prop::sample::select(&[1u8, 1, 20, 255][..]), 0..3u32).prop_map(
        |(next_hops, backup, track, protocol, distance, metric)| RouteSet {
            next_hops,
            backup,
            // Only static routes can be configured with one.
            track: track.filter(|_| protocol == Protocol::Static),
            metric,
            distance: if protocol == Protocol::Static { distance } else { protocol.default_distance() },
            ..set(protocol, &[])
        },
    )
}

/// A chain of routes, each by a gateway inside the next.
fn chain() -> impl Strategy<Value = Vec<(AnyPrefix, RouteSet)>> {
    (prop_oneof![6 => Just(0usize), 1 => 14..20usize], address()).prop_map(|(length, last)| {
        let at = |n: usize| {
            let next = if n + 1 == length { last.to_owned() } else { format!("50.{}.0.1", n + 1) };
            (pfx(&format!("50.{n}.0.0/16")), set(Protocol::Static, &[gw(&next)]))
        };
        (0..length).map(at).collect()
    })
}

/// A circle of routes, each by a gateway inside the next, and less specific routes that cover some of the gateways: a query
/// that the circle blocks may find one of these. A route of the circle may have a next hop beside it.
fn circle() -> impl Strategy<Value = Vec<(AnyPrefix, RouteSet)>> {
    let supports = prop::collection::btree_map(0..4usize, (address(), 0..3u32), 1..3);
    let beside = prop::collection::btree_map(0..4usize, hop(), 0..2);
    (prop_oneof![3 => Just(0usize), 1 => 2..5usize], supports, beside).prop_map(
        |(length, supports, beside)| {
            let inside = |n: usize| gw(&format!("{}.1.0.1", 60 + (n + 1) % length));
            let at = |n: usize| {
                let hops: Vec<ReceivedHop> = [inside(n)].into_iter().chain(beside.get(&n).cloned()).collect();
                (pfx(&format!("{}.1.0.0/16", 60 + n)), set(Protocol::BgpExternal, &hops))
            };
            let cover = |(n, (gateway, metric)): (usize, (&'static str, u32))| {
                (
                    pfx(&format!("{}.0.0.0/8", 60 + n)),
                    RouteSet { metric, ..set(Protocol::BgpInternal, &[gw(gateway)]) },
                )
            };
            let covers = supports.into_iter().filter(|(n, _)| *n < length).map(cover);
            (0..length).map(at).chain(covers).collect()
        },
    )
}

fn facts() -> impl Strategy<Value = Facts> {
    let prefix = prop::sample::select(&PREFIXES[..]).prop_map(pfx);
    let routes = prop::collection::vec((prefix, route_set()), 1..16);
    let up = || prop::bool::weighted(0.7);
    let down = prop::collection::btree_set((address(), prop::option::of(1..3u32)), 0..2);
    (routes, chain(), circle(), up(), up(), down).prop_map(|(routes, chain, circle, first, second, down)| {
        let mut facts = Facts::default();
        for (prefix, set) in routes.into_iter().chain(chain).chain(circle) {
            facts.announce(prefix, set);
        }
        for (index, up, address) in [(1, first, "10.0.1.1/24"), (2, second, "10.0.2.1/24")] {
            let RibIn::Interface(state) = interface(index, up, &[address]) else { unreachable!() };
            facts.interfaces.insert(index, state);
        }
        facts.unusable = down.into_iter().map(|(address, interface)| (ip(address), interface)).collect();
        facts
    })
}

fn config() -> impl Strategy<Value = RibConfig> {
    (any::<bool>(), any::<bool>(), prop::sample::select(&[1u16, 2, 128][..])).prop_map(
        |(resolve_via_default, underlay_weights, max_ecmp)| RibConfig {
            resolve_via_default,
            underlay_weights,
            max_ecmp,
            damping: false,
            ..RibConfig::default()
        },
    )
}

/// One change of the facts.
#[derive(Clone, Debug)]
enum Step {
    Announce(AnyPrefix, RouteSet),
    Withdraw(AnyPrefix, Source),
    Interface(InterfaceEvent),
    Removed(IfIndex),
    Gateway(GatewayEvent),
    Mode(CacheMode),
}

impl Step {
    fn note(&self, facts: &mut Facts) {
        match self.clone() {
            Step::Announce(prefix, set) => facts.announce(prefix, set),
            Step::Withdraw(prefix, source) => {
                facts.routes.retain(|(p, s, _), _| (*p, *s) != (prefix, source))
            }
            Step::Interface(state) => {
                facts.interfaces.insert(state.index, state);
            }
            Step::Removed(index) => {
                facts.interfaces.remove(&index);
            }
            Step::Gateway(GatewayEvent { address, interface, usable: true }) => {
                facts.unusable.remove(&(address, interface));
            }
            Step::Gateway(GatewayEvent { address, interface, usable: false }) => {
                facts.unusable.insert((address, interface));
            }
            Step::Mode(_) => {}
        }
    }

    fn event(&self) -> Option<RibIn> {
        Some(match self.clone() {
            Step::Announce(prefix, set) => route(prefix, set.protocol.source(), Some(set)),
            Step::Withdraw(prefix, source) => route(prefix, source, None),
            Step::Interface(state) => RibIn::Interface(state),
            Step::Removed(index) => RibIn::InterfaceRemoved(index),
            Step::Gateway(event) => RibIn::Gateway(event),
            Step::Mode(_) => return None,
        })
    }
}

/// What is to be done so that `now` becomes `then`.
fn difference(now: &Facts, then: &Facts) -> Vec<Step> {
    let mut steps = Vec::new();
    for (prefix, source, distance) in now.routes.keys() {
        if !then.routes.contains_key(&(*prefix, *source, *distance)) {
            steps.push(Step::Withdraw(*prefix, *source));
        }
    }
    for (index, state) in &then.interfaces {
        if now.interfaces.get(index) != Some(state) {
            steps.push(Step::Interface(state.clone()));
        }
    }
    steps.extend(
        now.interfaces.keys().filter(|i| !then.interfaces.contains_key(i)).map(|i| Step::Removed(*i)),
    );
    let gateway = |(address, interface): &(std::net::IpAddr, Option<IfIndex>), usable| {
        Step::Gateway(GatewayEvent { address: *address, interface: *interface, usable })
    };
    steps.extend(now.unusable.difference(&then.unusable).map(|key| gateway(key, true)));
    steps.extend(then.unusable.difference(&now.unusable).map(|key| gateway(key, false)));
    for ((prefix, source, distance), set) in &then.routes {
        if now.routes.get(&(*prefix, *source, *distance)) != Some(set) {
            steps.push(Step::Announce(*prefix, set.clone()));
        }
    }
    steps
}

/// Steps that end with `facts`, by way of `detour`, in a random order.
fn steps(facts: &Facts, detour: &Facts, random: &mut Rng) -> Vec<Step> {
    let mut all = difference(&Facts::default(), facts);
    all.extend(difference(&Facts::default(), detour));
    all.extend(difference(detour, &Facts::default()));
    all.extend(CacheMode::ALL.map(Step::Mode));
    random.shuffle(&mut all);
    let mut now = Facts::default();
    all.iter().for_each(|step| step.note(&mut now));
    // What the detour undid, and what is left of it. A withdrawal takes static routes of every distance: twice.
    for _ in 0..2 {
        let mut rest = difference(&now, facts);
        rest.iter().for_each(|step| step.note(&mut now));
        all.append(&mut rest);
    }
    all
}

fn all_tracked() -> Vec<TrackedNextHop> {
    GATEWAYS.iter().flat_map(|address| [recursive(address), on_link(address)]).collect()
}

/// A RIB with its dataplane, and the notifications to BGP.
struct Run {
    rib: Rib,
    model: Model,
    notified: BTreeMap<TrackedNextHop, Reachability>,
}

impl Run {
    fn new(config: &RibConfig, mode: CacheMode) -> Run {
        let rib = Rib::new(RibConfig { cache: mode, ..config.clone() });
        let mut run = Run { rib, model: Model::new(), notified: BTreeMap::new() };
        run.handle(vec![RibIn::Track(all_tracked())]);
        run
    }

    /// Returns how often each group and each route was named, and each next hop told, until nothing was left to do.
    fn handle(&mut self, events: Vec<RibIn>) -> Counts {
        let mut counts = Counts::default();
        let mut out = self.rib.handle(events);
        loop {
            for (next_hop, state) in std::mem::take(&mut out.next_hops) {
                self.notified.insert(next_hop, state);
                *counts.next_hops.entry(next_hop).or_default() += 1;
            }
            if let Some(batch) = &out.fib {
                let groups: BTreeSet<GroupId> = batch.groups.iter().map(|op| op.id).collect();
                assert_eq!(groups.len(), batch.groups.len(), "a group occurs once in a batch");
                groups.into_iter().for_each(|id| *counts.groups.entry(id).or_default() += 1);
                batch.after.iter().for_each(|id| *counts.deleted.entry(*id).or_default() += 1);
                for op in &batch.routes.v4 {
                    *counts.routes.entry(op.prefix.any()).or_default() += 1;
                }
                self.model.apply(batch);
            }
            if !self.rib.has_more() {
                break;
            }
            out = self.rib.handle([]);
        }
        counts
    }
}

#[derive(Default, Debug)]
struct Counts {
    groups: BTreeMap<GroupId, usize>,
    deleted: BTreeMap<GroupId, usize>,
    routes: BTreeMap<AnyPrefix, usize>,
    next_hops: BTreeMap<TrackedNextHop, usize>,
}

fn confluent(config: RibConfig, facts: Facts, detour: Facts, seed: u64) {
    let facts = Facts { config: config.clone(), ..facts };
    let evaluation = facts.evaluate(&all_tracked());
    let notified: BTreeMap<TrackedNextHop, Reachability> =
        all_tracked().into_iter().map(|next_hop| (next_hop, evaluation.notified(next_hop))).collect();
    let mut random = Rng::new(seed);
    for mode in CacheMode::ALL {
        let mut run = Run::new(&config, mode);
        let mut left = steps(&facts, &detour, &mut random);
        while !left.is_empty() {
            let batch: Vec<Step> = left.drain(..(1 + random.index(6)).min(left.len())).collect();
            for step in &batch {
                if let Step::Mode(mode) = step {
                    run.rib.set_cache_mode(*mode);
                }
            }
            run.handle(batch.iter().filter_map(Step::event).collect());
        }
        assert_eq!(run.model.fib(), evaluation.fib(), "the FIB is that of the facts");
        assert_eq!(run.notified, notified, "and so are BGP's notifications");
    }
}

fn convergent(config: RibConfig, facts: Facts, next: Facts, seed: u64) {
    let mut random = Rng::new(seed);
    let mut run = Run::new(&config, CacheMode::Dependency);
    let mut now = Facts { config, ..Facts::default() };
    let mut all = difference(&now, &facts);
    random.shuffle(&mut all);
    all.extend(difference(&facts, &next));
    for step in all {
        let before = now.evaluate(&all_tracked());
        step.note(&mut now);
        let after = now.evaluate(&all_tracked());
        let counts = run.handle(step.event().into_iter().collect());
        let differ = |next_hop: &TrackedNextHop| before.notified(*next_hop) != after.notified(*next_hop);
        let expected: BTreeMap<TrackedNextHop, usize> =
            all_tracked().into_iter().filter(differ).map(|next_hop| (next_hop, 1)).collect();
        assert_eq!(counts.next_hops, expected, "each difference is notified once");
        assert!(counts.routes.values().all(|n| *n == 1), "one change of a route: {counts:?}");
        assert!(counts.groups.values().all(|n| *n == 1), "one change of a group: {counts:?}");
        assert!(counts.deleted.values().all(|n| *n == 1));
        let out = run.rib.handle([]);
        assert!(out.fib.is_none_or(|fib| fib.is_empty()) && out.next_hops.is_empty(), "idle");
    }
    assert_eq!(run.model.fib(), now.evaluate(&[]).fib());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(400), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn same_facts_in_any_order_give_same_answers(
        config in config(), facts in facts(), detour in facts(), seed in any::<u64>(),
    ) {
        confluent(config, facts, detour, seed);
    }

    #[test]
    fn one_event_changes_each_group_route_and_next_hop_once(
        config in config(), facts in facts(), next in facts(), seed in any::<u64>(),
    ) {
        convergent(config, facts, next, seed);
    }
}

#[test]
fn generated_tables_reach_every_case() {
    let mut runner = TestRunner::deterministic();
    let mut met: BTreeMap<Case, u32> = BTreeMap::new();
    const TABLES: u32 = 1000;
    for _ in 0..TABLES {
        let config = config().new_tree(&mut runner).unwrap().current();
        let facts = Facts { config, ..facts().new_tree(&mut runner).unwrap().current() };
        for case in facts.evaluate(&[]).cases {
            *met.entry(case).or_default() += 1;
        }
    }
    println!("of {TABLES} tables: {met:?}");
    let at_least = [
        (Case::SelfReference, 100),
        (Case::PartialFailure, 100),
        (Case::OnBackup, 50),
        (Case::Cut, 20),
        (Case::TooDeep, 5),
        (Case::CircleWithSupport, 100),
        (Case::CircleWithoutSupport, 100),
        (Case::CircleAfterCircle, 20),
        (Case::TwoCircles, 3),
        (Case::CircleThroughBackup, 20),
        (Case::CircleThroughCondition, 20),
        (Case::CircleTiedToInterface, 20),
        (Case::PassedOver, 20),
    ];
    for (case, least) in at_least {
        assert!(met.get(&case).is_some_and(|n| *n >= least), "{case:?} in {least} tables of {met:?}");
    }
}

/// Two prefixes whose static routes track an address of each other, one of them with a second route.
#[test]
fn static_routes_that_track_each_other_are_confluent() {
    let route = |protocol, distance, track: Option<&str>, metric| RouteSet {
        next_hops: NextHops::Blackhole,
        track: track.map(|address| Track::Address(ip(address))),
        metric,
        distance,
        ..set(protocol, &[])
    };
    let seconds = [
        None,
        Some(route(Protocol::Static, 20, Some("40.1.1.1"), 1)),
        Some(route(Protocol::BgpExternal, 20, None, 1)),
    ];
    for second in seconds {
        let mut facts = Facts::default();
        facts.announce(pfx("0.0.0.0/0"), route(Protocol::Static, 1, None, 0));
        facts.announce(pfx("20.0.0.0/8"), route(Protocol::Static, 1, Some("40.1.1.1"), 1));
        second.into_iter().for_each(|second| facts.announce(pfx("20.0.0.0/8"), second));
        facts.announce(pfx("40.0.0.0/8"), route(Protocol::Static, 1, Some("20.1.1.1"), 0));
        let config = RibConfig { max_ecmp: 1, damping: false, ..RibConfig::default() };
        for seed in 0..200 {
            confluent(config.clone(), facts.clone(), Facts::default(), seed);
        }
    }
}
