//! Selection between candidates, what it costs the dataplane, and its queries.

use crate::common::*;
use ribtide_prefix::{Afi, Families};
use ribtide_rib::*;

const EXT: Protocol = Protocol::BgpExternal;
const INT: Protocol = Protocol::BgpInternal;
const STATIC: Protocol = Protocol::Static;

fn bench(events: Vec<RibIn>) -> Bench {
    let mut bench =
        Bench::with(vec![interface(1, true, &["10.0.0.1/24"]), interface(2, true, &["10.0.1.1/24"])]);
    bench.handle(events);
    bench
}

#[test]
fn distance_then_metric_then_protocol() {
    let with = |protocol, distance, metric, gateway: &str| {
        let set = RouteSet { distance, metric, ..set(protocol, &[gw(gateway)]) };
        route(pfx("20.0.0.0/8"), protocol.source(), Some(set))
    };
    let mut b = bench(vec![with(INT, 200, 5, "10.0.0.2")]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.handle(vec![with(STATIC, 200, 6, "10.0.0.3")]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.handle(vec![with(STATIC, 200, 5, "10.0.0.3")]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.3", 1)]);
    b.handle(vec![with(Protocol::Kernel, 199, 9, "10.0.0.4")]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.4", 1)]);
    let explanation = b.rib.explain(pfx("20.0.0.0/8")).unwrap();
    let selections: Vec<(Protocol, SelectionResult)> =
        explanation.candidates.iter().map(|c| (c.protocol, c.selection)).collect();
    let distance = SelectionResult::Distance(199);
    assert_eq!(
        selections,
        [(Protocol::Kernel, SelectionResult::Selected), (STATIC, distance), (INT, distance)]
    );
    b.handle(vec![with(Protocol::Kernel, 255, 0, "10.0.0.4")]);
    let explanation = b.rib.explain(pfx("20.0.0.0/8")).unwrap();
    let selections: Vec<SelectionResult> = explanation.candidates.iter().map(|c| c.selection).collect();
    assert_eq!(
        selections,
        [SelectionResult::Selected, SelectionResult::Protocol(STATIC), SelectionResult::NeverUsed]
    );
    assert_eq!(selections[1].to_string(), "not used: equal to the selected route, and static comes first");
}

#[test]
fn the_next_candidate_stands_in_while_the_best_does_not_resolve() {
    let mut b = bench(vec![
        announce("20.0.0.0/8", STATIC, &[gw("10.0.1.2")]),
        announce("20.0.0.0/8", EXT, &[gw("10.0.0.2")]),
    ]);
    b.expect("20.0.0.0/8", &[hop("10.0.1.2", 2)]);
    b.handle(vec![interface(2, false, &["10.0.1.1/24"])]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    let explanation = b.rib.explain(pfx("20.0.0.0/8")).unwrap();
    assert_eq!(explanation.candidates[0].selection, SelectionResult::Unresolved);
    assert_eq!(explanation.candidates[1].selection, SelectionResult::Selected);
    b.handle(vec![interface(2, true, &["10.0.1.1/24"])]);
    b.expect("20.0.0.0/8", &[hop("10.0.1.2", 2)]);
}

#[test]
fn a_source_replaces_its_own_candidate_whatever_the_protocol() {
    let mut b = bench(vec![announce("20.0.0.0/8", EXT, &[gw("10.0.0.2")])]);
    b.handle(vec![announce("20.0.0.0/8", INT, &[gw("10.0.0.3")])]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.3", 1)]);
    assert_eq!(b.rib.explain(pfx("20.0.0.0/8")).unwrap().candidates.len(), 1);
    b.handle(vec![withdraw("20.0.0.0/8", Source::Static)]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.3", 1)]);
    b.handle(vec![withdraw("20.0.0.0/8", Source::Bgp)]);
    assert_eq!(b.fib("20.0.0.0/8"), None);
    assert!(b.rib.explain(pfx("20.0.0.0/8")).is_none());
}

#[test]
fn a_change_that_is_undone_within_a_batch_costs_nothing() {
    let mut b = bench(vec![announce("20.0.0.0/8", EXT, &[gw("10.0.0.2")])]);
    let out = b.handle(vec![
        withdraw("20.0.0.0/8", Source::Bgp),
        announce("30.0.0.0/8", EXT, &[gw("10.0.0.9")]),
        announce("20.0.0.0/8", EXT, &[gw("10.0.0.2")]),
        withdraw("30.0.0.0/8", Source::Bgp),
        interface(1, false, &[]),
        interface(1, true, &["10.0.0.1/24"]),
    ]);
    assert!(out.fib.is_none(), "{:?}", out.fib);
}

/// A thousand routes over one group of three gateways.
fn thousand() -> Bench {
    let mut changes: Families<RouteChanges> = Families::default();
    for n in 0..1000u32 {
        changes.v4.push((ribtide_prefix::Prefix::new(0x6440_0000 + n, 32), 0));
    }
    let sets = vec![set(INT, &[gw("10.0.0.2"), gw("10.0.0.3"), gw("10.0.1.2")])];
    bench(vec![RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source: Source::Bgp, sets, changes })])
}

#[test]
fn a_lost_next_hop_is_one_operation_whatever_the_number_of_routes() {
    let mut b = thousand();
    assert_eq!(b.rib.totals().iter().find(|t| t.protocol == INT).unwrap().installed, 1000);
    let out = b.handle(vec![interface(2, false, &["10.0.1.1/24"])]);
    let fib = out.fib.unwrap();
    assert_eq!(fib.groups.len(), 1);
    assert_eq!(fib.groups[0].content, FibGroup::Hops(vec![hop("10.0.0.2", 1), hop("10.0.0.3", 1)]));
    assert_eq!(fib.route_count(), 2, "only the two connected routes of the interface go");
    assert_eq!(fib.after.len(), 1, "and their group");
    b.expect("100.64.0.7/32", &[hop("10.0.0.2", 1), hop("10.0.0.3", 1)]);
}

#[test]
fn the_last_next_hop_takes_the_routes_with_it_and_brings_them_back() {
    let mut b = thousand();
    let down = vec![interface(1, false, &["10.0.0.1/24"]), interface(2, false, &["10.0.1.1/24"])];
    let fib = b.handle(down).fib.unwrap();
    assert_eq!((fib.route_count(), fib.groups.len()), (1004, 0));
    assert!(b.model.routes.is_empty() && b.model.groups.is_empty());
    let fib = b.handle(vec![interface(1, true, &["10.0.0.1/24"])]).fib.unwrap();
    assert_eq!((fib.route_count(), fib.groups.len()), (1002, 2));
    b.expect("100.64.0.7/32", &[hop("10.0.0.2", 1), hop("10.0.0.3", 1)]);
}

#[test]
fn equal_sets_in_any_order_are_one_group() {
    let b = bench(vec![
        announce("20.0.0.0/8", INT, &[gw("10.0.0.2"), gw("10.0.0.3")]),
        announce("21.0.0.0/8", STATIC, &[gw("10.0.0.3"), gw("10.0.0.2")]),
    ]);
    let group = |prefix| b.rib.lookup(pfx(prefix)).unwrap().group;
    assert_eq!(group("20.0.0.0/8"), group("21.0.0.0/8"));
    let info = b.rib.group(group("20.0.0.0/8")).unwrap();
    assert_eq!((info.candidates, info.installed, info.hops.len()), (2, 2, 2));
}

#[test]
fn longest_match_skips_what_is_not_installed() {
    let b = bench(vec![
        announce("20.0.0.0/8", EXT, &[gw("10.0.0.2")]),
        announce("20.1.0.0/16", EXT, &[gw("203.0.113.1")]),
    ]);
    assert_eq!(b.rib.longest_match(ip("20.1.1.1")).unwrap().prefix, pfx("20.0.0.0/8"));
    assert!(b.rib.longest_match(ip("99.0.0.1")).is_none());
    assert!(b.rib.lookup(pfx("20.1.0.0/16")).is_none());
    assert!(b.rib.status(pfx("20.1.0.0/16")).is_empty());
}

#[test]
fn totals_count_candidates_and_routes() {
    let b = bench(vec![
        announce("20.0.0.0/8", STATIC, &[gw("10.0.0.2")]),
        announce("20.0.0.0/8", INT, &[gw("10.0.0.2")]),
        announce("21.0.0.0/8", INT, &[gw("203.0.113.1")]),
        announce("2001:db8::/32", INT, &[gw("10.0.0.2")]),
    ]);
    let all: Vec<_> = b.rib.totals().iter().map(|t| (t.afi, t.protocol, t.candidates, t.installed)).collect();
    let want = [
        (Afi::Ipv4, Protocol::Connected, 4, 4),
        (Afi::Ipv4, STATIC, 1, 1),
        (Afi::Ipv4, INT, 2, 0),
        (Afi::Ipv6, INT, 1, 1),
    ];
    assert_eq!(all, want);
}

#[test]
fn a_sorted_read_gives_every_route_once_in_order() {
    let b = thousand();
    let mut cursor = b.rib.cursor();
    cursor.sort();
    let mut read = Vec::new();
    while !cursor.is_done() {
        let page = b.rib.page(&mut cursor, 64);
        assert!(page.len() <= 64);
        read.extend(page.into_iter().map(|r| r.prefix));
    }
    assert_eq!(read.len(), 1004);
    assert!(read.is_sorted());
}

/// RFC 7311 sections 3.4.3 and 4.2: a route of BGP by which a next hop resolves counts with its metric and the cost of its own
/// next hop, and one without a metric hides a part of the way.
#[test]
fn cost_through_routes_of_bgp_is_their_metric_and_the_cost_of_their_next_hops() {
    let mut b = bench(vec![]);
    let with = |prefix: &str, protocol: Protocol, metric: u32, gateway: &str| {
        let set = RouteSet { metric, ..set(protocol, &[ReceivedHop::gateway(ip(gateway))]) };
        route(pfx(prefix), protocol.source(), Some(set))
    };
    let told = |out: &RibOut, next_hop: &str| {
        out.next_hops.iter().rev().find(|(of, _)| *of == recursive(next_hop)).map(|(_, state)| *state)
    };
    let reachable = |cost, partial| Some(Reachability::Reachable { cost, partial });
    // 10.9.9.9 is 50 away; the first route of BGP has a metric of 40, the second of 7.
    let out = b.handle(vec![
        interface(1, true, &["192.0.2.9/24"]),
        RibIn::Track(vec![recursive("10.7.7.7"), recursive("10.8.8.8")]),
        with("10.9.9.0/24", Protocol::Static, 50, "192.0.2.1"),
        with("10.8.8.0/24", Protocol::BgpInternal, 40, "10.9.9.9"),
        with("10.7.7.0/24", Protocol::BgpInternal, 7, "10.8.8.8"),
    ]);
    assert_eq!(told(&out, "10.8.8.8"), reachable(90, false));
    assert_eq!(told(&out, "10.7.7.7"), reachable(97, false));
    // Only a metric changes.
    let out = b.handle(vec![with("10.8.8.0/24", Protocol::BgpInternal, 45, "10.9.9.9")]);
    assert_eq!(told(&out, "10.7.7.7"), reachable(102, false));
    let out = b.handle(vec![with("10.9.9.0/24", Protocol::Static, 60, "192.0.2.1")]);
    assert_eq!(told(&out, "10.7.7.7"), reachable(112, false));
    let out = b.handle(vec![with("10.8.8.0/24", Protocol::BgpInternal, 0, "10.9.9.9")]);
    assert_eq!(told(&out, "10.8.8.8"), reachable(60, true));
    assert_eq!(told(&out, "10.7.7.7"), reachable(67, true));
    let out = b.handle(vec![with("10.8.8.0/24", Protocol::BgpInternal, u32::MAX, "10.9.9.9")]);
    assert_eq!(told(&out, "10.7.7.7"), reachable(u32::MAX, false), "it does not wrap");
}

#[test]
fn tracked_next_hops_are_notified_once_and_then_on_change() {
    let mut b = bench(vec![]);
    let track = |text: &str| RibIn::Track(vec![recursive(text)]);
    let reachable = |cost| Reachability::Reachable { cost, partial: false };
    let out = b.handle(vec![track("10.0.0.2"), track("192.0.2.1")]);
    assert_eq!(
        out.next_hops,
        [(recursive("10.0.0.2"), reachable(0)), (recursive("192.0.2.1"), Reachability::Unreachable)]
    );
    let metric = |metric| RouteSet { metric, ..set(STATIC, &[gw("10.0.0.3")]) };
    let out = b.handle(vec![route(pfx("192.0.2.0/24"), Source::Static, Some(metric(30)))]);
    assert_eq!(out.next_hops, [(recursive("192.0.2.1"), reachable(30))]);
    // The same state through another route is not notified.
    let out = b.handle(vec![route(pfx("192.0.2.1/32"), Source::Static, Some(metric(30)))]);
    assert_eq!(out.next_hops, []);
    let out = b.handle(vec![route(pfx("192.0.2.1/32"), Source::Static, Some(metric(20)))]);
    assert_eq!(out.next_hops, [(recursive("192.0.2.1"), reachable(20))]);
    // A second registration is notified too; only the last unregistration ends it.
    assert_eq!(b.handle(vec![track("192.0.2.1")]).next_hops, [(recursive("192.0.2.1"), reachable(20))]);
    b.handle(vec![RibIn::Untrack(vec![recursive("192.0.2.1")])]);
    let out = b.handle(vec![interface(1, false, &[])]);
    let unreachable = |text| (recursive(text), Reachability::Unreachable);
    let mut notified = out.next_hops;
    notified.sort_by_key(|(address, _)| *address);
    assert_eq!(notified, [unreachable("10.0.0.2"), unreachable("192.0.2.1")]);
    b.handle(vec![RibIn::Untrack(vec![recursive("192.0.2.1"), recursive("10.0.0.2")])]);
    assert_eq!(b.handle(vec![interface(1, true, &["10.0.0.1/24"])]).next_hops, []);
}
