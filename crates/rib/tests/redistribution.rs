//! Redistribution: the routes of other protocols that the RIB manager sends to BGP.

use crate::common::*;
use ribtide_prefix::AnyPrefix;
use ribtide_rib::*;
use std::collections::BTreeSet;

fn wanted(protocols: &[Protocol], networks: &[&str]) -> Redistribution {
    Redistribution {
        protocols: protocols.iter().copied().collect(),
        networks: networks.iter().map(|text| pfx(text)).collect(),
    }
}

/// The changes of a batch, sorted.
fn changes(out: RibOut) -> Vec<(AnyPrefix, Option<Protocol>)> {
    let mut changes = out.redistributed;
    changes.sort();
    changes
}

fn rib(wanted: Redistribution) -> Rib {
    let mut rib = Rib::new(RibConfig::default());
    rib.set_redistribution(wanted);
    rib.handle([interface(1, true, &["10.0.0.1/24"]), interface(2, true, &["10.0.1.1/24"])]);
    rib
}

#[test]
fn only_installed_routes_of_the_protocols_are_redistributed() {
    let mut rib = rib(wanted(&[Protocol::Static], &[]));
    let out = rib.handle([
        announce("192.0.2.0/24", Protocol::Static, &[gw("10.0.0.2")]),
        announce("198.51.100.0/24", Protocol::Static, &[gw("172.16.0.1")]),
        announce("203.0.113.0/24", Protocol::BgpExternal, &[gw("10.0.0.2")]),
        announce("203.0.114.0/24", Protocol::Kernel, &[gw("10.0.0.2")]),
    ]);
    assert_eq!(changes(out), [(pfx("192.0.2.0/24"), Some(Protocol::Static))], "the second does not resolve");
    // The same route by other next hops is no change, and one without its link is none.
    let out = rib.handle([announce("192.0.2.0/24", Protocol::Static, &[gw("10.0.1.2")])]);
    assert_eq!(changes(out), []);
    let out = rib.handle([interface(2, false, &["10.0.1.1/24"])]);
    assert_eq!(changes(out), [(pfx("192.0.2.0/24"), None)]);
    let out = rib.handle([interface(2, true, &["10.0.1.1/24"])]);
    assert_eq!(changes(out), [(pfx("192.0.2.0/24"), Some(Protocol::Static))]);
    let out = rib.handle([withdraw("192.0.2.0/24", Source::Static)]);
    assert_eq!(changes(out), [(pfx("192.0.2.0/24"), None)]);
}

#[test]
fn route_behind_bgps_distance_is_not_redistributed() {
    let mut rib = rib(wanted(&[Protocol::Static], &[]));
    let floating = |distance| RouteSet { distance, ..set(Protocol::Static, &[gw("10.0.0.2")]) };
    let out = rib.handle([route(pfx("192.0.2.0/24"), Source::Static, Some(floating(20)))]);
    assert_eq!(changes(out), []);
    let out = rib.handle([route(pfx("192.0.2.0/24"), Source::Static, Some(floating(19)))]);
    assert_eq!(changes(out), [(pfx("192.0.2.0/24"), Some(Protocol::Static))]);
}

#[test]
fn addresses_of_the_router_are_redistributed_only_as_subnets() {
    let mut rib = Rib::new(RibConfig::default());
    rib.set_redistribution(wanted(&[Protocol::Connected], &[]));
    let out = rib.handle([interface(1, true, &["10.0.0.1/24"]), interface(2, true, &["10.9.9.9/32"])]);
    let subnets = ["10.0.0.0/24", "10.9.9.9/32"].map(|text| (pfx(text), Some(Protocol::Connected)));
    assert_eq!(changes(out), subnets);
    let out = rib.handle([interface(2, false, &["10.9.9.9/32"])]);
    assert_eq!(changes(out), [(pfx("10.9.9.9/32"), None)]);
}

#[test]
fn another_protocol_and_another_selection_are_changes() {
    let mut rib = rib(wanted(&[Protocol::Connected], &["192.0.2.0/24"]));
    rib.handle([]);
    let out = rib.handle([announce("192.0.2.0/24", Protocol::Kernel, &[gw("10.0.0.2")])]);
    assert_eq!(changes(out), [(pfx("192.0.2.0/24"), Some(Protocol::Kernel))]);
    // Kernel routes have distance 0, static ones 1.
    let out = rib.handle([announce("192.0.2.0/24", Protocol::Static, &[gw("10.0.0.2")])]);
    assert_eq!(changes(out), []);
    let out = rib.handle([withdraw("192.0.2.0/24", Source::Kernel)]);
    assert_eq!(changes(out), [(pfx("192.0.2.0/24"), Some(Protocol::Static))]);

    // Another request reports the difference alone.
    rib.set_redistribution(wanted(&[Protocol::Static], &[]));
    let connected: BTreeSet<_> = ["10.0.0.0/24", "10.0.1.0/24"].map(|text| (pfx(text), None)).into();
    assert_eq!(changes(rib.handle([])).into_iter().collect::<BTreeSet<_>>(), connected);
    rib.set_redistribution(Redistribution::default());
    assert_eq!(changes(rib.handle([])), [(pfx("192.0.2.0/24"), None)]);
    assert_eq!(changes(rib.handle([withdraw("192.0.2.0/24", Source::Static)])), []);
}
