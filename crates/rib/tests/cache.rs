//! The resolution cache's modes: what each asks again and when. That they agree is every other test's part.

use crate::common::*;
use ribtide_prefix::{Families, Prefix};
use ribtide_rib::*;

const INT: Protocol = Protocol::BgpInternal;
const STATIC: Protocol = Protocol::Static;

/// Two interfaces, and a static route over both that BGP's next hop 192.0.2.1 resolves through.
fn rib(cache: CacheMode) -> Rib {
    let mut rib = Rib::new(RibConfig { cache, ..RibConfig::default() });
    rib.handle([
        interface(1, true, &["10.0.0.1/24"]),
        interface(2, true, &["10.0.1.1/24"]),
        interface(3, true, &["10.0.2.1/24"]),
        announce("192.0.2.0/24", STATIC, &[gw("10.0.0.2"), gw("10.0.1.2")]),
    ]);
    rib
}

/// `count` routes over 192.0.2.1 and 10.0.0.9, one group.
fn routes(count: u32) -> RibIn {
    let mut changes: Families<RouteChanges> = Families::default();
    changes.v4.extend((0..count).map(|n| (Prefix::new(0x6440_0000 + n, 32), 0)));
    let sets = vec![set(INT, &[gw("192.0.2.1"), gw("10.0.0.9")])];
    RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source: Source::Bgp, sets, changes })
}

/// What the cache did in one batch.
fn doing(rib: &mut Rib, events: Vec<RibIn>) -> CacheCounters {
    let before = rib.cache_counters();
    rib.handle(events);
    let after = rib.cache_counters();
    CacheCounters {
        generation: after.generation - before.generation,
        hits: after.hits - before.hits,
        misses: after.misses - before.misses,
        resolutions: after.resolutions - before.resolutions,
        lookups: after.lookups - before.lookups,
        invalidations: after.invalidations - before.invalidations,
        nanoseconds: after.nanoseconds - before.nanoseconds,
    }
}

#[test]
fn without_a_cache_every_route_is_resolved_with_one_every_group() {
    // Next hops are tracked in each mode: two look-ups. Then each of the 100 routes, or the first one, looks up its own.
    for (mode, hits, misses, lookups) in
        [(CacheMode::Off, 0, 100, 202), (CacheMode::Epoch, 99, 1, 4), (CacheMode::Dependency, 99, 1, 2)]
    {
        let mut rib = rib(mode);
        let done = doing(&mut rib, vec![routes(100)]);
        assert_eq!((done.hits, done.misses, done.lookups), (hits, misses, lookups), "{mode}: install");
        assert_eq!(done.generation, 0, "{mode}: routes that hold no next hop are no event");
        // The same again touches nothing.
        assert_eq!(doing(&mut rib, vec![routes(100)]), CacheCounters::default(), "{mode}");
        // One of the links under the static route: that route, and those of BGP. The resolver's group is put together
        // for tracking too; of the link's own routes there is nothing left to resolve but, with groups, their group.
        let done = doing(&mut rib, vec![interface(2, false, &["10.0.1.1/24"])]);
        let (misses, resolutions) = match mode {
            CacheMode::Off => (101, 102),
            CacheMode::Epoch => (2, 3),
            CacheMode::Dependency => (0, 3),
        };
        assert_eq!((done.misses, done.resolutions), (misses, resolutions), "{mode}: a link falls");
        assert_eq!(rib.group(rib.lookup(pfx("100.64.0.7/32")).unwrap().group).unwrap().content.unwrap(), {
            FibGroup::Hops(vec![hop("10.0.0.2", 1), hop("10.0.0.9", 1)])
        });
    }
}

#[test]
fn what_begins_another_generation() {
    let mut rib = rib(CacheMode::Epoch);
    rib.handle([routes(10)]);
    let events = [
        ("an interface falls", interface(3, false, &["10.0.2.1/24"])),
        ("an interface rises", interface(3, true, &["10.0.2.1/24"])),
        ("an address comes", interface(3, true, &["10.0.2.1/24", "10.0.3.1/24"])),
        ("an address goes", interface(3, true, &["10.0.2.1/24"])),
        ("an interface comes", interface(4, false, &[])),
        ("an interface goes", RibIn::InterfaceRemoved(4)),
        ("a more specific route to a next hop comes", announce("192.0.2.1/32", STATIC, &[gw("10.0.2.2")])),
        ("it goes elsewhere", announce("192.0.2.1/32", STATIC, &[gw("10.0.2.3")])),
        ("it goes", withdraw("192.0.2.1/32", Source::Static)),
        ("a route that holds a next hop changes", announce("192.0.2.0/24", STATIC, &[gw("10.0.0.3")])),
    ];
    for (what, event) in events {
        let groups = rib.group_count() as u64;
        let done = doing(&mut rib, vec![event]);
        assert!(done.generation > 0, "{what}");
        assert!(done.invalidations >= groups, "{what}: all groups are outdated, not {}", done.invalidations);
    }
    for (what, event) in [
        ("other routes", announce("172.16.0.0/12", STATIC, &[gw("10.0.0.2")])),
        ("the same interface", interface(3, true, &["10.0.2.1/24"])),
        ("a route that holds no next hop", withdraw("172.16.0.0/12", Source::Static)),
    ] {
        assert_eq!(doing(&mut rib, vec![event]).generation, 0, "{what}");
    }
}

#[test]
fn an_event_elsewhere_outdates_every_stamp_but_no_dependency() {
    let elsewhere = || vec![interface(3, false, &["10.0.2.1/24"])];
    let one_more = || vec![announce("172.16.0.0/12", INT, &[gw("192.0.2.1"), gw("10.0.0.9")])];
    for (mode, misses) in [(CacheMode::Epoch, 1), (CacheMode::Dependency, 0)] {
        let mut rib = rib(mode);
        rib.handle([routes(10)]);
        let group = rib.lookup(pfx("100.64.0.7/32")).unwrap().group;
        let current = |rib: &Rib| rib.group(group).unwrap().stamp == rib.cache_counters().generation;
        assert_eq!(current(&rib), mode == CacheMode::Epoch);
        rib.handle(elsewhere());
        assert!(!current(&rib));
        let done = doing(&mut rib, one_more());
        assert_eq!((done.misses, done.hits), (misses, 1 - misses), "{mode}");
        assert_eq!(current(&rib), mode == CacheMode::Epoch);
    }
}

#[test]
fn a_route_that_could_resolve_to_itself_is_not_cached() {
    let mut rib = rib(CacheMode::Epoch);
    let own = |metric| {
        let set = RouteSet { metric, ..set(INT, &[gw("192.0.2.1")]) };
        vec![route(pfx("192.0.2.0/25"), Source::Bgp, Some(set))]
    };
    assert_eq!(doing(&mut rib, own(1)).misses, 1);
    let done = doing(&mut rib, own(2));
    assert_eq!((done.hits, done.misses), (0, 1));
}

#[test]
fn another_mode_starts_without_stamps_and_changes_nothing() {
    let mut rib = rib(CacheMode::Epoch);
    rib.handle([routes(10)]);
    for mode in [CacheMode::Off, CacheMode::Dependency, CacheMode::Epoch] {
        rib.set_cache_mode(mode);
        assert_eq!(rib.cache_mode(), mode);
        assert!(rib.handle([]).fib.is_none(), "{mode}");
    }
    assert_eq!(
        doing(&mut rib, vec![announce("172.16.0.0/12", STATIC, &[gw("10.0.0.2"), gw("10.0.1.2")])]).misses,
        1
    );
}

#[test]
fn groups_name_what_they_depend_on() {
    let mut rib = rib(CacheMode::Dependency);
    rib.handle([routes(10), announce("172.16.0.0/12", STATIC, &[gw("100.64.0.3")])]);
    let group = |prefix: &str| rib.group(rib.lookup(pfx(prefix)).unwrap().group).unwrap();
    let (under, middle, over) = (group("192.0.2.0/24"), group("100.64.0.7/32"), group("172.16.0.0/12"));
    assert_eq!((under.level, middle.level, over.level), (1, 2, 3));
    assert_eq!((&under.depends[..], &under.dependents[..]), (&[][..], &[middle.id][..]));
    assert_eq!((&middle.depends[..], &middle.dependents[..]), (&[under.id][..], &[over.id][..]));
    assert_eq!((&over.depends[..], &over.dependents[..]), (&[middle.id][..], &[][..]));
    assert!(under.in_fib && middle.in_fib && over.in_fib);
}

#[test]
fn resolution_is_timed_by_the_clock_that_it_is_given() {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    static NOW: AtomicU64 = AtomicU64::new(0);
    let mut rib = rib(CacheMode::Dependency);
    assert_eq!(rib.cache_counters().nanoseconds, 0);
    rib.set_clock(|| NOW.fetch_add(7, Relaxed));
    rib.handle([routes(10)]);
    assert_eq!(rib.cache_counters().nanoseconds, 7, "read before and after");
}
