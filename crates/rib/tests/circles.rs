//! Circles of routes: `docs/adr/0020-next-hop-resolution.md`, section 4, in every mode of the cache.

use crate::common::*;
use ribtide_prefix::{Families, Prefix, V4};
use ribtide_rib::*;
use std::collections::BTreeSet;

const STATIC: Protocol = Protocol::Static;
const INT: Protocol = Protocol::BgpInternal;

/// Two links, each with a neighbour 10.0.N.2.
fn two_links() -> Vec<RibIn> {
    vec![interface(1, true, &["10.0.1.1/24"]), interface(2, true, &["10.0.2.1/24"])]
}

/// Checks that `prefix` is installed with these neighbours.
fn expect(b: &Bench, prefix: &str, links: &[IfIndex]) {
    let hops: Vec<FibHop> = links.iter().map(|link| hop(&format!("10.0.{link}.2"), *link)).collect();
    b.expect(prefix, &hops);
}

#[test]
fn loss_of_one_of_two_links_keeps_what_resolves_by_the_other() {
    for protocol in [STATIC, INT] {
        let mut events = two_links();
        events.push(announce("192.0.2.0/24", STATIC, &[gw("10.0.1.2"), gw("10.0.2.2")]));
        // The lost link's hop resolves through this route, and so through itself.
        events.push(announce("0.0.0.0/0", protocol, &[gw("192.0.2.1")]));
        events.extend((0..100).map(|n| announce(&format!("20.0.{n}.0/24"), INT, &[gw("192.0.2.1")])));
        events.push(RibIn::Track(vec![recursive("192.0.2.1")]));
        let mut b = Bench::with(events);
        for prefix in ["0.0.0.0/0", "192.0.2.0/24", "20.0.99.0/24"] {
            expect(&b, prefix, &[1, 2]);
        }
        let out = b.handle(vec![interface(1, false, &["10.0.1.1/24"])]);
        let fib = out.fib.unwrap();
        for prefix in ["0.0.0.0/0", "192.0.2.0/24", "20.0.99.0/24"] {
            expect(&b, prefix, &[2]);
        }
        assert_eq!(
            (fib.groups.len(), fib.route_count()),
            (3, 2),
            "the connected routes alone are gone: {fib:?}"
        );
        assert_eq!(out.next_hops, [], "BGP gets no notification");
        // Other routes to it use the other link too.
        b.handle(vec![announce("30.0.0.0/24", STATIC, &[gw("10.0.1.2")])]);
        expect(&b, "30.0.0.0/24", &[2]);
        b.handle(vec![interface(1, true, &["10.0.1.1/24"])]);
        for prefix in ["0.0.0.0/0", "192.0.2.0/24", "20.0.99.0/24"] {
            expect(&b, prefix, &[1, 2]);
        }
    }
}

#[test]
fn two_routes_each_by_the_other_resolve_by_a_less_specific_one() {
    let events = [
        announce("0.0.0.0/0", STATIC, &[gw("10.0.1.2")]),
        announce("20.0.1.0/24", INT, &[gw("30.0.0.1")]),
        announce("30.0.0.0/24", INT, &[gw("20.0.1.1")]),
        RibIn::Track(vec![recursive("30.0.0.1"), recursive("20.0.1.1")]),
    ];
    // Every order.
    for order in 0..24 {
        let mut left: Vec<RibIn> = events.to_vec();
        let mut b = Bench::with(two_links());
        let mut at = order;
        let mut notified = Vec::new();
        while !left.is_empty() {
            let event = left.remove(at % left.len());
            at /= left.len() + 1;
            notified.extend(b.handle(vec![event]).next_hops);
        }
        expect(&b, "20.0.1.0/24", &[1]);
        expect(&b, "30.0.0.0/24", &[1]);
        assert!(
            notified.len() <= 6,
            "each at most when it is registered, when it becomes reachable, and when that is through BGP: {notified:?}"
        );
        b.handle(vec![withdraw("0.0.0.0/0", Source::Static)]);
        b.expect_why("20.0.1.0/24", UnresolvedReason::Circle);
        b.expect_why("30.0.0.0/24", UnresolvedReason::Circle);
    }
}

#[test]
fn circle_of_three_with_one_supporter_takes_its_hops() {
    let mut b = Bench::with(two_links());
    b.handle(vec![
        announce("40.0.0.0/24", STATIC, &[gw("41.0.0.1")]),
        announce("41.0.0.0/24", STATIC, &[gw("42.0.0.1")]),
        announce("42.0.0.0/24", STATIC, &[gw("40.0.0.1"), gw("10.0.2.2")]),
    ]);
    for prefix in ["40.0.0.0/24", "41.0.0.0/24", "42.0.0.0/24"] {
        expect(&b, prefix, &[2]);
    }
    b.handle(vec![interface(2, false, &[])]);
    for prefix in ["40.0.0.0/24", "41.0.0.0/24"] {
        b.expect_why(prefix, UnresolvedReason::Circle);
    }
    assert_eq!(b.fib("42.0.0.0/24"), None);
}

#[test]
fn long_chain_of_routes_over_a_default_route_needs_no_stack() {
    // Route n has a gateway inside route n + 1; a default route covers all.
    const COUNT: u32 = 50_000;
    let at = |n: u32| format!("30.{}.{}.0/24", n / 256, n % 256);
    let mut events = two_links();
    for n in 0..COUNT {
        let next = (n + 1) % COUNT;
        let gateway = gw(&format!("30.{}.{}.1", next / 256, next % 256));
        events.push(announce(&at(n), INT, &[gateway]));
    }
    events.push(announce("0.0.0.0/0", STATIC, &[gw("10.0.1.2")]));
    let b = Bench::with(events);
    expect(&b, &at(0), &[1]);
    expect(&b, &at(COUNT - 1), &[1]);
}

/// One group to a circle: what differs in kind where nothing is looked up, or in FIB policy alone.
#[test]
fn circle_passes_over_every_route_with_equal_next_hops() {
    let conditional = |protocol| RouteSet {
        next_hops: NextHops::Blackhole,
        track: Some(Track::Address("2001:db8:2::1".parse().unwrap())),
        allow_recursion: protocol != STATIC,
        ..set(protocol, &[])
    };
    for maps in [Vec::new(), vec![(Protocol::BgpExternal, None, TestAction::Source(1))]] {
        let mut b = Bench::new(RibConfig { resolve_via_default: true, ..RibConfig::default() });
        b.set_route_maps(&Maps(maps));
        let blackhole = RouteSet { next_hops: NextHops::Blackhole, ..set(STATIC, &[]) };
        let default = |set: RouteSet| route(pfx("0.0.0.0/0"), set.protocol.source(), Some(set));
        let out = b.handle(vec![
            route(pfx("::/0"), Source::Static, Some(blackhole)),
            announce("2001:db8::/32", STATIC, &[gw("10.1.1.1")]),
            default(conditional(STATIC)),
            default(conditional(Protocol::BgpExternal)),
            RibIn::Track(vec![recursive("10.1.1.1")]),
        ]);
        assert_eq!(out.next_hops, [(recursive("10.1.1.1"), Reachability::Unreachable)]);
    }
}

#[test]
fn on_link_and_recursive_next_hops_have_answers_of_their_own() {
    let mut b = Bench::with(two_links());
    b.handle(vec![announce("0.0.0.0/0", STATIC, &[gw("10.0.1.2")])]);
    let next_hops = ["10.0.1.9", "192.0.2.1", "10.0.1.1"];
    let mut notified = b
        .handle(vec![
            RibIn::Track(next_hops.iter().map(|text| recursive(text)).collect()),
            RibIn::Track(next_hops.iter().map(|text| on_link(text)).collect()),
        ])
        .next_hops;
    notified.sort_by_key(|(next_hop, _)| *next_hop);
    let reachable = Reachability::Reachable { cost: 0, partial: false };
    let expected = [
        (on_link("10.0.1.1"), Reachability::Unreachable),
        (recursive("10.0.1.1"), Reachability::Unreachable),
        (on_link("10.0.1.9"), reachable),
        (recursive("10.0.1.9"), reachable),
        (on_link("192.0.2.1"), Reachability::Unreachable),
        (recursive("192.0.2.1"), reachable),
    ];
    assert_eq!(notified, expected);
}

/// Row 1 of the table that ADR 20 was written for, with `count` routes. Returns what each of two failures takes.
fn lose_one_of_two_links(count: u32) -> Vec<std::time::Duration> {
    let mut rib = Rib::new(RibConfig::default());
    let mut model = Model::new();
    let mut events = two_links();
    events.push(announce("192.0.2.0/24", STATIC, &[gw("10.0.1.2"), gw("10.0.2.2")]));
    events.push(announce("0.0.0.0/0", INT, &[gw("192.0.2.1")]));
    let mut changes: Families<RouteChanges> = Families::default();
    changes.v4.extend((0..count).map(|n| (Prefix::<V4>::new((20 << 24) + (n << 8), 24), 0)));
    let sets = vec![set(INT, &[gw("192.0.2.1")])];
    let (vrf, source) = (VrfId::DEFAULT, Source::Bgp);
    events.push(RibIn::Routes(RouteBatch { vrf, source, sets, changes }));
    events.push(RibIn::Track(vec![recursive("192.0.2.1")]));
    model.apply(&rib.handle(events).fib.unwrap());
    let mut took = Vec::new();
    for link in [1, 2] {
        // One group for each received set: of the static route, of the default route (which may not resolve itself),
        // and of all others together. And the lost subnet's own.
        let subnet = format!("10.0.{link}.0/24");
        let routes = ["192.0.2.0/24", "0.0.0.0/0", "20.0.0.0/24", &subnet];
        let groups: BTreeSet<GroupId> = routes.map(|p| rib.lookup(pfx(p)).unwrap().group).into();
        assert_eq!(groups.len(), 4);
        let begin = std::time::Instant::now();
        let urgent = rib.urgent([interface(link, false, &[])]);
        took.push(begin.elapsed());
        assert_eq!(urgent.iter().map(|op| op.op.id).collect::<BTreeSet<_>>(), groups);
        assert_eq!(urgent.len(), groups.len(), "each once");
        let out = rib.handle([]);
        assert_eq!((rib.has_more(), &out.next_hops), (false, &vec![]));
        let fib = out.fib.unwrap();
        assert_eq!(fib.route_count(), 2, "the link's own subnet and address");
        rib.handle([interface(link, true, &[&format!("10.0.{link}.1/24")])]);
        while rib.has_more() {
            assert!(rib.handle([]).fib.is_none_or(|fib| fib.route_count() == 0));
        }
    }
    took
}

#[test]
fn loss_of_one_of_two_links_changes_groups_and_no_route() {
    lose_one_of_two_links(10_000);
}

#[test]
#[ignore = "a measurement"]
fn loss_of_one_of_two_links_under_a_million_routes() {
    let mut took: Vec<_> = (0..5).flat_map(|_| lose_one_of_two_links(1_000_000)).collect();
    took.sort();
    println!("median {:?}, least {:?}, most {:?}", took[took.len() / 2], took[0], took[took.len() - 1]);
}
