//! The rules of recursive resolution, one test each, in each mode of the resolution cache (see [`Bench`]).

use crate::common::*;
use ribtide_prefix::zone::with_zone;
use ribtide_rib::*;

const EXT: Protocol = Protocol::BgpExternal;
const INT: Protocol = Protocol::BgpInternal;
const STATIC: Protocol = Protocol::Static;

/// 10.0.0.0/24 on interface 1, 10.0.1.0/24 on interface 2, 2001:db8::/64 on interface 1.
fn bench(events: Vec<RibIn>) -> Bench {
    let mut bench = Bench::with(vec![
        interface(1, true, &["10.0.0.1/24", "2001:db8::1/64", "fe80::1/64"]),
        interface(2, true, &["10.0.1.1/24", "fe80::2/64"]),
    ]);
    bench.handle(events);
    bench
}

#[test]
fn a_gateway_on_a_connected_subnet_is_reached_directly() {
    let mut b = bench(vec![announce("20.0.0.0/8", EXT, &[gw("10.0.0.2")])]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.handle(vec![interface(1, false, &["10.0.0.1/24"])]);
    b.expect_why("20.0.0.0/8", UnresolvedReason::NoRoute);
    b.handle(vec![interface(1, true, &["10.0.0.1/24"])]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.handle(vec![interface(1, true, &["10.9.0.1/24"])]);
    b.expect_why("20.0.0.0/8", UnresolvedReason::NoRoute);
}

#[test]
fn an_interface_makes_its_subnet_and_its_address_connected() {
    let mut b = bench(vec![]);
    b.expect("10.0.0.0/24", &[link(1)]);
    b.expect("10.0.0.1/32", &[link(1)]);
    b.expect("2001:db8::/64", &[link(1)]);
    assert_eq!(b.fib("fe80::/64"), None);
    b.handle(vec![RibIn::InterfaceRemoved(1)]);
    assert_eq!(b.fib("10.0.0.0/24"), None);
    assert_eq!(b.fib("10.0.0.1/32"), None);
}

#[test]
fn an_interface_alone_needs_only_that_it_is_up() {
    let mut b =
        bench(vec![announce("20.0.0.0/8", STATIC, &[dev(2)]), announce("21.0.0.0/8", STATIC, &[dev(9)])]);
    b.expect("20.0.0.0/8", &[link(2)]);
    b.expect_why("21.0.0.0/8", UnresolvedReason::NoInterface);
    b.handle(vec![interface(2, false, &[]), interface(9, true, &[])]);
    b.expect_why("20.0.0.0/8", UnresolvedReason::InterfaceDown);
    b.expect("21.0.0.0/8", &[link(9)]);
}

#[test]
fn next_hops_avoid_a_gateway_that_is_down() {
    let onlink = |interface| ReceivedHop { interface: Some(interface), ..gw("fe80::9") };
    let mut b = Bench::with(vec![
        interface(1, true, &["10.1.0.1/24", "2001:db8:1::1/64"]),
        interface(2, true, &["10.2.0.1/24"]),
        announce("30.0.0.0/8", Protocol::Static, &[gw("10.1.0.2"), gw("10.2.0.2")]),
        announce("40.0.0.0/8", Protocol::BgpInternal, &[gw("30.0.0.1")]),
        announce("50.0.0.0/8", Protocol::Static, &[onlink(1), onlink(2)]),
    ]);
    let gateway =
        |address, interface, usable| RibIn::Gateway(GatewayEvent { address: ip(address), interface, usable });
    // What resolves there through other routes, too.
    b.handle(vec![gateway("10.1.0.2", None, false)]);
    b.expect("40.0.0.0/8", &[hop("10.2.0.2", 2)]);
    b.expect("50.0.0.0/8", &[hop("fe80::9", 1), hop("fe80::9", 2)]);
    // A gateway over one link only, and one that is several hops away.
    b.handle(vec![gateway("fe80::9", Some(2), false), gateway("30.0.0.1", None, false)]);
    b.expect("50.0.0.0/8", &[hop("fe80::9", 1)]);
    b.expect_why("40.0.0.0/8", UnresolvedReason::GatewayDown);
    b.expect("30.0.0.0/8", &[hop("10.2.0.2", 2)]);
    // It is said of addresses, whether or not there is a route: one that comes later finds it so.
    b.handle(vec![announce("60.0.0.0/8", Protocol::Static, &[gw("10.1.0.2")])]);
    b.expect_why("60.0.0.0/8", UnresolvedReason::GatewayDown);
    let back = [("10.1.0.2", None), ("fe80::9", Some(2)), ("30.0.0.1", None)];
    b.handle(back.map(|(address, interface)| gateway(address, interface, true)).to_vec());
    b.expect("40.0.0.0/8", &[hop("10.1.0.2", 1), hop("10.2.0.2", 2)]);
    b.expect("50.0.0.0/8", &[hop("fe80::9", 1), hop("fe80::9", 2)]);
    b.expect("60.0.0.0/8", &[hop("10.1.0.2", 1)]);
}

#[test]
fn a_link_local_gateway_needs_its_interface_and_no_route() {
    let lone = ReceivedHop::gateway(ip("fe80::9"));
    let tied = ReceivedHop { interface: Some(2), ..lone };
    // As BGP names one of a session over link-local addresses.
    let zoned = |zone| ReceivedHop::gateway(with_zone("fe80::9".parse().unwrap(), zone).into());
    let b = bench(vec![
        announce("20.0.0.0/8", EXT, &[tied]),
        announce("21.0.0.0/8", EXT, &[lone]),
        announce("22.0.0.0/8", EXT, &[zoned(1), zoned(2)]),
    ]);
    b.expect("20.0.0.0/8", &[hop("fe80::9", 2)]);
    b.expect_why("21.0.0.0/8", UnresolvedReason::InterfaceMissing);
    b.expect("22.0.0.0/8", &[hop("fe80::9", 1), hop("fe80::9", 2)]);
}

#[test]
fn onlink_takes_the_gateway_on_trust() {
    let trusted = ReceivedHop { interface: Some(2), onlink: true, ..gw("192.0.2.1") };
    let unresolved = ReceivedHop { onlink: true, ..gw("192.0.2.1") };
    let mut b = bench(vec![
        announce("20.0.0.0/8", STATIC, &[trusted]),
        announce("21.0.0.0/8", STATIC, &[unresolved]),
    ]);
    b.expect("20.0.0.0/8", &[FibHop { onlink: true, ..hop("192.0.2.1", 2) }]);
    b.expect_why("21.0.0.0/8", UnresolvedReason::InterfaceMissing);
    b.handle(vec![interface(2, false, &[])]);
    b.expect_why("20.0.0.0/8", UnresolvedReason::InterfaceDown);
}

#[test]
fn recursion_needs_permission() {
    let b = bench(vec![
        announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2")]),
        announce("20.0.0.0/8", INT, &[gw("192.0.2.1")]),
        announce("21.0.0.0/8", EXT, &[gw("192.0.2.1")]),
    ]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.expect_why("21.0.0.0/8", UnresolvedReason::NotConnected);
}

/// Fault 2 of the cache proposed for zebra: the answer to one route was given to another whose flags
/// forbid it, because both have the same next hops. In either order.
#[test]
fn equal_next_hops_with_other_permission_have_another_answer() {
    for first in [INT, EXT] {
        let second = if first == INT { EXT } else { INT };
        let mut b = bench(vec![
            announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2")]),
            announce("20.0.0.0/8", first, &[gw("192.0.2.1")]),
        ]);
        b.handle(vec![announce("21.0.0.0/8", second, &[gw("192.0.2.1")])]);
        let (internal, external) =
            if first == INT { ("20.0.0.0/8", "21.0.0.0/8") } else { ("21.0.0.0/8", "20.0.0.0/8") };
        b.expect(internal, &[hop("10.0.0.2", 1)]);
        b.expect_why(external, UnresolvedReason::NotConnected);
    }
}

/// Fault 1 of that cache: a more specific route to the gateway appears, and routes keep the old next hop.
#[test]
fn a_more_specific_resolver_takes_over_and_gives_back() {
    let mut b = bench(vec![
        announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2")]),
        announce("20.0.0.0/8", INT, &[gw("192.0.2.1")]),
    ]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    let out = b.handle(vec![announce("192.0.2.1/32", STATIC, &[gw("10.0.1.2")])]);
    b.expect("20.0.0.0/8", &[hop("10.0.1.2", 2)]);
    let fib = out.fib.unwrap();
    assert_eq!(
        (fib.groups.len(), fib.route_count()),
        (2, 1),
        "the new route and its group; the old group's content"
    );
    b.handle(vec![announce("21.0.0.0/8", INT, &[gw("192.0.2.1")])]);
    b.expect("21.0.0.0/8", &[hop("10.0.1.2", 2)]);
    b.handle(vec![withdraw("192.0.2.1/32", Source::Static)]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.expect("21.0.0.0/8", &[hop("10.0.0.2", 1)]);
}

#[test]
fn a_broken_more_specific_falls_back_to_the_covering_route() {
    let mut b = bench(vec![
        announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2")]),
        announce("192.0.2.1/32", STATIC, &[gw("203.0.113.1")]),
        announce("20.0.0.0/8", INT, &[gw("192.0.2.1")]),
    ]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.handle(vec![interface(3, true, &["203.0.113.9/24"])]);
    b.expect("20.0.0.0/8", &[hop("203.0.113.1", 3)]);
}

#[test]
fn a_route_does_not_resolve_its_own_gateway() {
    let mut b = bench(vec![announce("192.0.2.0/24", INT, &[gw("192.0.2.1")])]);
    b.expect_why("192.0.2.0/24", UnresolvedReason::NoRoute);
    b.handle(vec![announce("192.0.0.0/16", STATIC, &[gw("10.0.0.2")])]);
    b.expect("192.0.2.0/24", &[hop("10.0.0.2", 1)]);
    // Another route with that gateway may use it.
    b.handle(vec![announce("20.0.0.0/8", INT, &[gw("192.0.2.1")])]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    let explanation = b.rib.explain(pfx("20.0.0.0/8")).unwrap();
    assert_eq!(explanation.group.hops[0].via, Some(pfx("192.0.2.0/24")));
    assert_eq!(explanation.group.hops[0].level, 3, "connected, then the /16 and then the /24");
    assert_eq!(b.rib.explain(pfx("192.0.2.0/24")).unwrap().group.exclude, Some(pfx("192.0.2.0/24")));
}

#[test]
fn a_host_route_to_its_own_gateway_resolves_over_the_covering_subnet() {
    let b = bench(vec![
        announce("10.0.0.2/32", INT, &[gw("10.0.0.2")]),
        announce("20.0.0.0/8", INT, &[gw("10.0.0.2")]),
    ]);
    b.expect("10.0.0.2/32", &[hop("10.0.0.2", 1)]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
}

/// A route for the very subnet of its gateway, as peers on an exchange announce it: connected wins, and the route
/// itself is resolved, only not preferred.
#[test]
fn a_connected_subnet_answers_for_a_route_to_the_same_prefix() {
    let b = bench(vec![announce("10.0.0.0/24", INT, &[gw("10.0.0.2")])]);
    b.expect("10.0.0.0/24", &[link(1)]);
    let explanation = b.rib.explain(pfx("10.0.0.0/24")).unwrap();
    let selections: Vec<SelectionResult> = explanation.candidates.iter().map(|c| c.selection).collect();
    assert_eq!(selections, [SelectionResult::Selected, SelectionResult::Distance(0)]);
}

#[test]
fn the_default_route_resolves_only_where_that_is_allowed() {
    let events = || {
        vec![
            interface(1, true, &["10.0.0.1/24"]),
            announce("0.0.0.0/0", STATIC, &[gw("10.0.0.2")]),
            announce("20.0.0.0/8", INT, &[gw("192.0.2.1")]),
        ]
    };
    Bench::with(events()).expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    let mut b = Bench::new(RibConfig { resolve_via_default: false, ..RibConfig::default() });
    b.handle(events());
    b.expect_why("20.0.0.0/8", UnresolvedReason::OnlyDefault);
    b.expect("0.0.0.0/0", &[hop("10.0.0.2", 1)]);
}

#[test]
fn a_gateway_tied_to_an_interface_resolves_only_there() {
    let tied = |interface| ReceivedHop { interface: Some(interface), ..gw("192.0.2.1") };
    let b = bench(vec![
        announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2"), gw("10.0.1.2")]),
        announce("20.0.0.0/8", INT, &[tied(2)]),
        announce("21.0.0.0/8", INT, &[tied(3)]),
        announce("22.0.0.0/8", EXT, &[ReceivedHop { interface: Some(2), ..gw("10.0.0.2") }]),
    ]);
    b.expect("20.0.0.0/8", &[hop("10.0.1.2", 2)]);
    b.expect_why("21.0.0.0/8", UnresolvedReason::OtherInterface);
    b.expect_why("22.0.0.0/8", UnresolvedReason::OtherInterface);
}

#[test]
fn a_subnet_on_two_interfaces_serves_gateways_tied_to_either() {
    let mut b = bench(vec![interface(3, true, &["10.0.0.9/24"])]);
    let tied = ReceivedHop { interface: Some(3), ..gw("10.0.0.2") };
    b.handle(vec![announce("20.0.0.0/8", EXT, &[tied]), announce("21.0.0.0/8", EXT, &[gw("10.0.0.2")])]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 3)]);
    b.expect("21.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.handle(vec![RibIn::InterfaceRemoved(1)]);
    b.expect("21.0.0.0/8", &[hop("10.0.0.2", 3)]);
}

#[test]
fn through_an_interface_route_the_gateway_itself_is_the_neighbour() {
    let b = bench(vec![
        announce("192.0.2.0/24", STATIC, &[dev(2)]),
        announce("20.0.0.0/8", INT, &[gw("192.0.2.1")]),
    ]);
    b.expect("20.0.0.0/8", &[FibHop { onlink: true, ..hop("192.0.2.1", 2) }]);
}

#[test]
fn ipv4_over_an_ipv6_next_hop_is_resolved_in_the_ipv6_table() {
    let b = bench(vec![
        announce("20.0.0.0/8", EXT, &[gw("2001:db8::2")]),
        announce("2001:db8:5::/48", STATIC, &[gw("2001:db8::3")]),
        announce("21.0.0.0/8", INT, &[gw("2001:db8:5::1")]),
        announce("2001:db8:6::/48", INT, &[gw("::ffff:10.0.0.2")]),
    ]);
    b.expect("20.0.0.0/8", &[hop("2001:db8::2", 1)]);
    b.expect("21.0.0.0/8", &[hop("2001:db8::3", 1)]);
    b.expect("2001:db8:6::/48", &[hop("10.0.0.2", 1)]);
}

#[test]
fn weight_is_the_recursing_hops_and_never_zero() {
    let weighted = |weight, text| ReceivedHop { weight, ..gw(text) };
    let b = bench(vec![
        announce("192.0.2.0/24", STATIC, &[weighted(7, "10.0.0.2"), weighted(9, "10.0.1.2")]),
        announce("20.0.0.0/8", INT, &[weighted(3, "192.0.2.1"), weighted(0, "10.0.0.3")]),
    ]);
    let w = |weight, hop| FibHop { weight, ..hop };
    b.expect("192.0.2.0/24", &[w(7, hop("10.0.0.2", 1)), w(9, hop("10.0.1.2", 2))]);
    let want = [w(3, hop("10.0.0.2", 1)), w(1, hop("10.0.0.3", 1)), w(3, hop("10.0.1.2", 2))];
    b.expect("20.0.0.0/8", &want);
}

#[test]
fn where_configured_the_weights_underneath_count_instead() {
    let weighted = |weight, text| ReceivedHop { weight, ..gw(text) };
    let mut b = Bench::new(RibConfig { underlay_weights: true, ..RibConfig::default() });
    b.handle(vec![
        interface(1, true, &["10.0.0.1/24"]),
        interface(2, true, &["10.0.1.1/24"]),
        announce("192.0.2.0/24", STATIC, &[weighted(7, "10.0.0.2"), weighted(9, "10.0.1.2")]),
        announce("20.0.0.0/8", INT, &[weighted(3, "192.0.2.1"), weighted(4, "10.0.0.3")]),
        announce("21.0.0.0/8", INT, &[weighted(5, "20.0.0.1")]),
    ]);
    let w = |weight, hop| FibHop { weight, ..hop };
    let want = [w(7, hop("10.0.0.2", 1)), w(4, hop("10.0.0.3", 1)), w(9, hop("10.0.1.2", 2))];
    b.expect("20.0.0.0/8", &want);
    b.expect("21.0.0.0/8", &want);
}

#[test]
fn an_outgoing_hop_of_two_received_hops_counts_once() {
    let b = bench(vec![
        announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2"), gw("10.0.1.2")]),
        announce("20.0.0.0/8", INT, &[gw("192.0.2.1"), gw("10.0.0.2"), gw("10.0.0.2")]),
    ]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1), hop("10.0.1.2", 2)]);
}

#[test]
fn a_blackhole_discards_unless_there_is_another_hop() {
    let blackhole = RouteSet { next_hops: NextHops::Blackhole, ..set(STATIC, &[]) };
    let b = bench(vec![
        route(pfx("192.0.2.0/24"), Source::Static, Some(blackhole)),
        announce("20.0.0.0/8", INT, &[gw("192.0.2.1")]),
        announce("21.0.0.0/8", INT, &[gw("192.0.2.1"), gw("10.0.0.2")]),
    ]);
    assert_eq!(b.fib("192.0.2.0/24"), Some(FibGroup::Blackhole));
    assert_eq!(b.fib("20.0.0.0/8"), Some(FibGroup::Blackhole));
    b.expect("21.0.0.0/8", &[hop("10.0.0.2", 1)]);
}

/// Another program's `unreachable`, `prohibit` or `throw`: the usual safety net is a default of that kind.
#[test]
fn no_next_hop_resolves_by_a_route_that_refuses_packets() {
    let refusing = |prefix: &str| {
        let set = RouteSet { next_hops: NextHops::Unreachable, ..set(Protocol::Kernel, &[]) };
        route(pfx(prefix), Source::Kernel, Some(set))
    };
    let mut b = bench(vec![
        refusing("0.0.0.0/0"),
        announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2")]),
        announce("20.0.0.0/8", INT, &[gw("192.0.2.1")]),
        announce("21.0.0.0/8", INT, &[gw("192.0.2.1"), gw("203.0.113.1")]),
    ]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.expect("21.0.0.0/8", &[hop("10.0.0.2", 1)]);
    b.handle(vec![withdraw("192.0.2.0/24", Source::Static)]);
    b.expect_why("20.0.0.0/8", UnresolvedReason::Refused);
    b.expect_why("21.0.0.0/8", UnresolvedReason::Refused);
    assert_eq!(b.fib("0.0.0.0/0"), Some(FibGroup::Blackhole), "the kernel's own route");
    // Less specific routes do not answer for it: the kernel does not go on either.
    b.handle(vec![refusing("192.0.2.0/25"), announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2")])]);
    b.expect_why("20.0.0.0/8", UnresolvedReason::Refused);
    b.handle(vec![withdraw("192.0.2.0/25", Source::Kernel)]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1)]);
}

#[test]
fn a_group_is_cut_to_the_most_hops_allowed() {
    let mut b = Bench::new(RibConfig { max_ecmp: 2, ..RibConfig::default() });
    b.handle(vec![
        interface(1, true, &["10.0.0.1/24"]),
        announce("20.0.0.0/8", INT, &[gw("10.0.0.4"), gw("10.0.0.3"), gw("10.0.0.2")]),
    ]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.2", 1), hop("10.0.0.3", 1)]);
}

#[test]
fn the_routers_own_address_is_no_next_hop() {
    let mut b = bench(vec![announce("20.0.0.0/8", EXT, &[gw("10.0.0.1")])]);
    b.expect_why("20.0.0.0/8", UnresolvedReason::OwnAddress);
    b.handle(vec![interface(1, true, &["10.0.0.7/24"])]);
    b.expect("20.0.0.0/8", &[hop("10.0.0.1", 1)]);
}

#[test]
fn broadcast_address_of_a_subnet_is_no_next_hop() {
    for flags in [EXT, INT] {
        let mut b = bench(vec![
            announce("0.0.0.0/0", INT, &[gw("10.0.0.9")]),
            announce("20.0.0.0/8", flags, &[gw("10.0.0.255")]),
        ]);
        b.expect_why("20.0.0.0/8", UnresolvedReason::Broadcast);
        // RFC 3021: a subnet of two addresses has no broadcast address.
        b.handle(vec![interface(1, true, &["10.0.0.254/31"])]);
        b.expect("20.0.0.0/8", &[hop("10.0.0.255", 1)]);
    }
}

#[test]
fn circle_without_support_resolves_to_nothing_and_heals_in_any_order() {
    let circle = || {
        vec![
            announce("30.0.0.0/8", STATIC, &[gw("40.0.0.1")]),
            announce("40.0.0.0/8", STATIC, &[gw("30.0.0.1")]),
            announce("50.0.0.0/8", INT, &[gw("30.0.0.1")]),
        ]
    };
    let mut backwards = circle();
    backwards.reverse();
    for events in [circle(), backwards] {
        let mut b = bench(vec![]);
        for event in events {
            b.handle(vec![event]);
        }
        b.expect_why("30.0.0.0/8", UnresolvedReason::Circle);
        b.expect_why("40.0.0.0/8", UnresolvedReason::Circle);
        b.expect_why("50.0.0.0/8", UnresolvedReason::Circle);
        // Each passes over the other where something less specific holds its gateway.
        b.handle(vec![announce("0.0.0.0/0", STATIC, &[gw("10.0.0.9")])]);
        for prefix in ["30.0.0.0/8", "40.0.0.0/8", "50.0.0.0/8"] {
            b.expect(prefix, &[hop("10.0.0.9", 1)]);
        }
        b.handle(vec![withdraw("0.0.0.0/0", Source::Static)]);
        b.expect_why("40.0.0.0/8", UnresolvedReason::Circle);
        b.handle(vec![announce("40.0.0.1/32", STATIC, &[gw("10.0.0.2")])]);
        for prefix in ["30.0.0.0/8", "40.0.0.0/8", "50.0.0.0/8"] {
            b.expect(prefix, &[hop("10.0.0.2", 1)]);
        }
    }
}

#[test]
fn chains_resolve_to_the_level_allowed_and_no_further() {
    // Route n resolves to a gateway inside route n - 1; route 0's gateway is connected.
    let chain = |n: u8| announce(&format!("30.{n}.0.0/16"), STATIC, &[gw(&format!("30.{}.0.1", n - 1))]);
    let mut events = vec![announce("30.0.0.0/16", STATIC, &[gw("10.0.0.2")])];
    events.extend((1..40).map(chain));
    events.reverse();
    let mut b = bench(events);
    for n in 0..40 {
        let prefix = format!("30.{n}.0.0/16");
        if n < MAX_LEVEL {
            b.expect(&prefix, &[hop("10.0.0.2", 1)]);
            assert_eq!(b.rib.explain(pfx(&prefix)).unwrap().group.hops[0].level, n + 1);
        } else {
            assert_eq!(b.fib(&prefix), None, "{prefix}");
        }
    }
    b.expect_why("30.16.0.0/16", UnresolvedReason::TooDeep);
    // A change at the bottom reaches every level, as groups and not as routes.
    let out = b.handle(vec![announce("30.0.0.0/16", STATIC, &[gw("10.0.0.3")])]);
    b.expect("30.15.0.0/16", &[hop("10.0.0.3", 1)]);
    let fib = out.fib.unwrap();
    assert_eq!((fib.groups.len(), fib.route_count()), (16, 1));
}

#[test]
fn peer_of_a_point_to_point_link_is_on_it_and_the_own_address_is_not() {
    let addresses = &["10.9.0.1 peer 10.9.0.2/32", "10.9.0.1 peer 10.9.0.8/30"];
    let mut b = Bench::with(vec![interface(1, true, addresses)]);
    for connected in ["10.9.0.2/32", "10.9.0.8/30", "10.9.0.1/32"] {
        b.expect(connected, &[link(1)]);
    }
    for (n, gateway, is_used) in [(1, "10.9.0.2", true), (2, "10.9.0.9", true), (3, "10.9.0.3", false)] {
        let prefix = format!("20.0.{n}.0/24");
        b.handle(vec![announce(&prefix, Protocol::BgpExternal, &[gw(gateway)])]);
        match is_used {
            true => b.expect(&prefix, &[hop(gateway, 1)]),
            false => b.expect_why(&prefix, UnresolvedReason::NoRoute),
        }
    }
    b.handle(vec![announce("20.0.4.0/24", Protocol::Static, &[gw("10.9.0.1")])]);
    b.expect_why("20.0.4.0/24", UnresolvedReason::OwnAddress);
    // One of the two peers goes.
    b.handle(vec![interface(1, true, &addresses[1..])]);
    assert_eq!(b.fib("20.0.1.0/24"), None);
    b.expect("20.0.2.0/24", &[hop("10.9.0.9", 1)]);
}
