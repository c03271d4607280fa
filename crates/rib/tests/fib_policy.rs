//! Route-maps: what is denied, what has a source address, and what a change of them costs.

use crate::common::*;
use ribtide_rib::*;
use std::net::IpAddr;

const BGP: Protocol = Protocol::BgpExternal;

/// Two links, and routes of BGP by one next hop.
fn bench() -> Bench {
    let links = [interface(1, true, &["10.0.1.1/24"]), interface(2, true, &["10.0.2.1/24"])];
    let routes = (0..100).map(|n| announce(&format!("20.0.{n}.0/24"), BGP, &[gw("10.0.1.2")]));
    Bench::with(links.into_iter().chain(routes).collect())
}

fn source(n: u8) -> Option<IpAddr> {
    Some(IpAddr::from([10, 255, 0, n]))
}

fn denied(bench: &Bench) -> u64 {
    bench.rib.totals().iter().map(|t| t.denied).sum()
}

#[test]
fn a_denied_route_is_selected_and_not_installed_and_next_hops_resolve_through_it() {
    let mut bench = bench();
    bench.handle(vec![
        announce("20.0.7.0/24", Protocol::Kernel, &[gw("10.0.2.2")]),
        withdraw("20.0.7.0/24", Source::Kernel),
        announce("20.0.7.0/24", Protocol::BgpInternal, &[gw("10.0.2.2")]),
        announce("30.0.0.0/8", Protocol::Static, &[gw("20.0.8.1")]),
    ]);
    bench.set_route_maps(&Maps(vec![
        (BGP, Some(pfx("20.0.8.0/24")), TestAction::Deny),
        (Protocol::Static, None, TestAction::Permit),
    ]));
    let fib = bench.handle(vec![]).fib.unwrap();
    assert_eq!((fib.route_count(), fib.groups.len()), (1, 0), "the one route goes, and nothing else changes");
    assert_eq!((bench.fib("20.0.8.0/24"), denied(&bench)), (None, 1));
    let explanation = bench.rib.explain(pfx("20.0.8.0/24")).unwrap();
    assert_eq!(explanation.candidates[0].selection, SelectionResult::Denied);
    assert!(explanation.group.policy_result.deny);
    bench.expect("30.0.0.0/8", &[hop("10.0.1.2", 1)]);

    // Another protocol does not take over, and neither does it when it comes later.
    bench.handle(vec![announce("20.0.8.0/24", Protocol::Static, &[gw("10.0.2.2")])]);
    bench.expect("20.0.8.0/24", &[hop("10.0.2.2", 2)]);
    assert_eq!(denied(&bench), 0, "a better route is not denied");
    bench.handle(vec![withdraw("20.0.8.0/24", Source::Static)]);
    assert_eq!((bench.fib("20.0.8.0/24"), denied(&bench)), (None, 1));
    bench.handle(vec![withdraw("20.0.8.0/24", Source::Bgp)]);
    assert_eq!(denied(&bench), 0);
}

#[test]
fn a_source_address_costs_a_group_and_not_a_resolution_for_each_route() {
    let mut bench = bench();
    let groups = bench.rib.group_count();
    bench.set_route_maps(&Maps(vec![(BGP, None, TestAction::Source(1))]));
    let fib = bench.handle(vec![]).fib.unwrap();
    assert_eq!((fib.routes.v4.len(), fib.groups.len(), fib.groups[0].source), (100, 1, source(1)));
    assert_eq!(bench.rib.group_count(), groups, "one group for another");

    // New routes, and routes that come back, have it from the beginning.
    bench.handle(vec![announce("21.0.0.0/24", BGP, &[gw("10.0.1.2")])]);
    assert_eq!(bench.model.sources()[&pfx("21.0.0.0/24")], source(1));
    assert_eq!(bench.rib.group_count(), groups);

    // Where prefixes decide, as many groups as there are answers, and only routes with another answer change.
    bench.set_route_maps(&Maps(vec![
        (BGP, Some(pfx("20.0.5.0/24")), TestAction::Source(2)),
        (BGP, None, TestAction::Source(1)),
    ]));
    let fib = bench.handle(vec![]).fib.unwrap();
    assert_eq!((fib.routes.v4.len(), fib.groups.len()), (1, 1));
    assert_eq!(bench.rib.group_count(), groups + 1);
    bench.handle((0..100).map(|n| announce(&format!("20.0.{n}.0/24"), BGP, &[gw("10.0.2.2")])).collect());
    assert_eq!(bench.rib.group_count(), groups + 2, "21.0.0.0/24 stays with the former next hop");
    assert_eq!(bench.model.sources()[&pfx("20.0.5.0/24")], source(2));
    assert_eq!(bench.model.sources()[&pfx("20.0.6.0/24")], source(1));

    // A lost link is as cheap as ever, and the same route-maps again change nothing.
    let action = bench.handle(vec![interface(2, false, &["10.0.2.1/24"])]).fib.unwrap();
    assert!(action.groups.is_empty());
    bench.handle(vec![interface(2, true, &["10.0.2.1/24"])]);
    let same = Maps(vec![
        (BGP, Some(pfx("20.0.5.0/24")), TestAction::Source(2)),
        (BGP, None, TestAction::Source(1)),
    ]);
    bench.set_route_maps(&same);
    assert!(bench.handle(vec![]).fib.is_none());
}

#[test]
fn another_route_map_begins_another_generation() {
    let mut rib = Rib::new(RibConfig { cache: CacheMode::Epoch, ..RibConfig::default() });
    let before = rib.cache_counters().generation;
    rib.set_route_maps(std::sync::Arc::new(Maps::default()));
    assert_eq!(rib.cache_counters().generation, before + 1);
}
