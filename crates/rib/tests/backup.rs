//! Backup next hops, tracked routes, and several static routes of one prefix.

use crate::common::*;
use ribtide_rib::*;

const BGP: Protocol = Protocol::BgpInternal;
const STATIC: Protocol = Protocol::Static;

fn with_backup(prefix: &str, hops: &[ReceivedHop], backup: &[ReceivedHop]) -> RibIn {
    let set = RouteSet { backup: backup.to_vec(), ..set(BGP, hops) };
    route(pfx(prefix), Source::Bgp, Some(set))
}

fn tracked(prefix: &str, gateway: &str, distance: u8, track: Option<Track>) -> RibIn {
    let set = RouteSet { track, distance, ..set(STATIC, &[gw(gateway)]) };
    route(pfx(prefix), Source::Static, Some(set))
}

/// Links 1 to 3, with 10.0.N.1/24 each.
fn links() -> Bench {
    Bench::with((1..4).map(|i| link_is(i, true)).collect())
}

fn link_is(index: IfIndex, up: bool) -> RibIn {
    interface(index, up, &[&format!("10.0.{index}.1/24")])
}

#[test]
fn a_backup_takes_over_by_one_group_whatever_the_number_of_routes() {
    let mut bench = links();
    let prefixes: Vec<String> = (0..100).map(|n| format!("20.0.{n}.0/24")).collect();
    let primary = [gw("10.0.1.2"), gw("10.0.2.2")];
    bench.handle(prefixes.iter().map(|p| with_backup(p, &primary, &[gw("10.0.3.2")])).collect());
    bench.expect("20.0.7.0/24", &[hop("10.0.1.2", 1), hop("10.0.2.2", 2)]);
    bench.handle(vec![link_is(1, false)]);
    bench.expect("20.0.7.0/24", &[hop("10.0.2.2", 2)]);
    let out = bench.handle(vec![link_is(2, false)]).fib.unwrap();
    assert_eq!(out.groups.len(), 1);
    assert!(out.routes.v4.iter().all(|r| r.protocol == Protocol::Connected), "no route of BGP is sent again");
    bench.expect("20.0.7.0/24", &[hop("10.0.3.2", 3)]);
    let info = bench.rib.explain(pfx("20.0.7.0/24")).unwrap().group;
    assert!(info.on_backup && info.backup.len() == 1 && info.hops.len() == 2);
    bench.handle(vec![link_is(1, true)]);
    bench.expect("20.0.7.0/24", &[hop("10.0.1.2", 1)]);
    assert!(!bench.rib.explain(pfx("20.0.7.0/24")).unwrap().group.on_backup);
    bench.handle(vec![link_is(1, false), link_is(3, false)]);
    assert_eq!(bench.fib("20.0.7.0/24"), None);
}

#[test]
fn a_backup_takes_over_ahead_of_all_routes() {
    let mut bench = links();
    bench.handle(vec![with_backup("20.0.0.0/8", &[gw("10.0.1.2")], &[gw("10.0.3.2")])]);
    // The other group is that of the link's own network.
    let mut urgent = bench.rib.urgent([link_is(1, false)]);
    urgent.retain(|op| op.op.content != FibGroup::Unresolved);
    assert_eq!(urgent.len(), 1);
    assert_eq!(urgent[0].op.content, FibGroup::Hops(vec![hop("10.0.3.2", 3)]));
}

#[test]
fn routes_with_other_backups_are_other_groups() {
    let mut bench = links();
    bench.handle(vec![
        with_backup("20.0.0.0/8", &[gw("10.0.1.2")], &[gw("10.0.3.2"), gw("10.0.2.2")]),
        with_backup("21.0.0.0/8", &[gw("10.0.1.2")], &[gw("10.0.2.2"), gw("10.0.3.2")]),
        with_backup("22.0.0.0/8", &[gw("10.0.1.2")], &[gw("10.0.2.2")]),
        with_backup("23.0.0.0/8", &[gw("10.0.1.2")], &[]),
    ]);
    let group = |prefix: &str| bench.rib.lookup(pfx(prefix)).unwrap().group;
    assert_eq!(group("20.0.0.0/8"), group("21.0.0.0/8"), "in any order");
    assert_ne!(group("20.0.0.0/8"), group("22.0.0.0/8"));
    assert_ne!(group("22.0.0.0/8"), group("23.0.0.0/8"));
}

#[test]
fn a_floating_route_stands_in_while_what_the_first_tracks_does_not_hold() {
    let tracks = [
        (Track::Interface(3), link_is(3, false), link_is(3, true)),
        (
            Track::Prefix(pfx("99.0.0.0/8")),
            withdraw("99.0.0.0/8", Source::Bgp),
            announce("99.0.0.0/8", BGP, &[gw("10.0.3.2")]),
        ),
        (
            Track::Address(ip("99.1.2.3")),
            withdraw("99.0.0.0/8", Source::Bgp),
            announce("99.0.0.0/8", BGP, &[gw("10.0.3.2")]),
        ),
    ];
    for (track, ends, begins) in tracks {
        let mut bench = links();
        bench.handle(vec![
            announce("99.0.0.0/8", BGP, &[gw("10.0.3.2")]),
            tracked("0.0.0.0/0", "10.0.1.2", 1, Some(track)),
            tracked("0.0.0.0/0", "10.0.2.2", 250, None),
        ]);
        bench.expect("0.0.0.0/0", &[hop("10.0.1.2", 1)]);
        assert_eq!(bench.rib.explain(pfx("0.0.0.0/0")).unwrap().group.track, Some((track, true)));
        bench.handle(vec![ends]);
        bench.expect("0.0.0.0/0", &[hop("10.0.2.2", 2)]);
        let explanation = bench.rib.explain(pfx("0.0.0.0/0")).unwrap();
        assert_eq!(explanation.candidates[0].selection, SelectionResult::Tracked);
        bench.handle(vec![begins]);
        bench.expect("0.0.0.0/0", &[hop("10.0.1.2", 1)]);
        // The second one alone changes, and then all go.
        bench.handle(vec![tracked("0.0.0.0/0", "10.0.3.2", 250, None)]);
        bench.handle(vec![link_is(1, false)]);
        bench.expect("0.0.0.0/0", &[hop("10.0.3.2", 3)]);
        bench.handle(vec![withdraw("0.0.0.0/0", Source::Static)]);
        assert!(bench.rib.explain(pfx("0.0.0.0/0")).is_none());
    }
}

#[test]
fn a_route_never_fulfils_its_own_condition() {
    let mut bench = links();
    for track in [Track::Address(ip("99.1.2.3")), Track::Prefix(pfx("0.0.0.0/0"))] {
        bench.handle(vec![tracked("0.0.0.0/0", "10.0.1.2", 1, Some(track))]);
        assert_eq!(bench.fib("0.0.0.0/0"), None);
    }
    // A blackhole is a route too, and one that waits is none.
    let hole = |track| {
        let set = RouteSet { next_hops: NextHops::Blackhole, track, ..set(STATIC, &[]) };
        route(pfx("98.0.0.0/8"), Source::Static, Some(set))
    };
    bench.handle(vec![
        hole(None),
        tracked("0.0.0.0/0", "10.0.1.2", 1, Some(Track::Prefix(pfx("98.0.0.0/8")))),
    ]);
    bench.expect("0.0.0.0/0", &[hop("10.0.1.2", 1)]);
    bench.handle(vec![hole(Some(Track::Prefix(pfx("97.0.0.0/8"))))]);
    assert_eq!((bench.fib("0.0.0.0/0"), bench.fib("98.0.0.0/8")), (None, None));
}
