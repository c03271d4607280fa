//! After a restart: found routes count as installed only while the kernel has them as requested.

use super::super::flush::{Scope, flush};
use super::super::watch::Touched;
use super::*;

/// What the watcher reports of a route that another program deleted.
fn deleted(prefix: &str) -> Touched {
    Touched { prefix: prefix.parse().unwrap(), table: 1000, metric: 20, there: false, marked: false }
}

fn first() -> Batch {
    Batch::start()
        .group(1, &[hop("10.0.0.2", "v0", 1)])
        .group(2, &[hop("2001:db8:1::2", "v1", 1)])
        .route("192.0.2.0/24", Some(1))
        .route("198.51.100.0/24", Some(1))
        .route("2001:db8:aaaa::/48", Some(2))
        .end()
}

#[test]
fn found_route_deleted_before_its_announcement_is_written() {
    in_namespace("adoption::found_route_deleted_before_its_announcement_is_written", || {
        first().apply(&mut open());
        let whole = table();
        let mut kernel = open();
        Batch::start().apply(&mut kernel);
        ip("route del 192.0.2.0/24 table 1000");
        ip("-6 route del 2001:db8:aaaa::/48 table 1000");
        kernel.touched(&[deleted("192.0.2.0/24"), deleted("2001:db8:aaaa::/48")]).unwrap();
        let rest = first().0;
        kernel.apply(&Arc::new(FibBatch { start_of_replay: false, ..rest })).unwrap();
        assert_eq!(table(), whole);
    });
}

/// The watcher's note comes later: the route counts as installed only when the kernel has it.
#[test]
fn found_route_deleted_without_a_note_is_written_before_it_counts_as_installed() {
    in_namespace(
        "adoption::found_route_deleted_without_a_note_is_written_before_it_counts_as_installed",
        || {
            first().apply(&mut open());
            let whole = table();
            let mut kernel = open();
            Batch::start().apply(&mut kernel);
            ip("route del 192.0.2.0/24 table 1000");
            ip("-6 route del 2001:db8:aaaa::/48 table 1000");
            let FibBatch { groups, routes, .. } = first().0;
            Batch(FibBatch { groups, routes, ..FibBatch::default() }).apply(&mut kernel);
            assert_eq!(table(), whole);
            // Another route in its place, and its next-hop objects.
            ip("route replace 198.51.100.0/24 via 10.0.0.3 table 1000 metric 20");
            let FibBatch { routes, .. } = first().0;
            let mut kernel = open();
            Batch::start().apply(&mut kernel);
            ip("route replace 192.0.2.0/24 via 10.0.0.3 table 1000 metric 20");
            ip("nexthop flush");
            let FibBatch { groups, .. } = first().0;
            Batch(FibBatch { groups, routes, ..FibBatch::default() }).apply(&mut kernel);
            assert_eq!(table(), whole);
        },
    );
}

#[test]
fn found_objects_flushed_before_an_announcement_are_written_with_their_routes() {
    in_namespace(
        "adoption::found_objects_flushed_before_an_announcement_are_written_with_their_routes",
        || {
            for noticed in [true, false] {
                first().apply(&mut open());
                let whole = table();
                let mut kernel = open();
                Batch::start().apply(&mut kernel);
                ip("nexthop flush");
                assert_eq!(table().len(), 0);
                if noticed {
                    kernel.objects_changed().unwrap();
                }
                let rest = first().0;
                kernel.apply(&Arc::new(FibBatch { start_of_replay: false, ..rest })).unwrap();
                if !noticed {
                    // The notification follows the announcement and the end of the replay.
                    kernel.objects_changed().unwrap();
                    kernel.verify().unwrap();
                }
                assert_eq!(table(), whole);
            }
        },
    );
}

/// The group is made again with its former id before its routes are announced.
#[test]
fn found_routes_gone_with_their_group_are_written_although_the_group_is_back() {
    in_namespace(
        "adoption::found_routes_gone_with_their_group_are_written_although_the_group_is_back",
        || {
            first().apply(&mut open());
            let whole = table();
            let mut kernel = open();
            let FibBatch { groups, .. } = first().0;
            Batch(FibBatch { groups, ..Batch::start().0 }).apply(&mut kernel);
            ip("nexthop flush");
            kernel.objects_changed().unwrap();
            assert_eq!((json("nexthop show").len(), table().len()), (4, 0));
            let FibBatch { routes, .. } = first().0;
            Batch(FibBatch { routes, ..FibBatch::default() }).apply(&mut kernel);
            assert_eq!(table(), whole);
        },
    );
}

#[test]
fn found_routes_gone_with_their_link_are_written() {
    in_namespace("adoption::found_routes_gone_with_their_link_are_written", || {
        first().apply(&mut open());
        let whole = table();
        let mut kernel = open();
        Batch::start().apply(&mut kernel);
        ip("link set v0 down");
        let ifindex = ifindex("v0");
        kernel.interface_changed(&InterfaceChange { ifindex, up: false, came_up: false }).unwrap();
        ip("link set v0 up");
        kernel.interface_changed(&InterfaceChange { ifindex, up: true, came_up: true }).unwrap();
        let rest = first().0;
        kernel.apply(&Arc::new(FibBatch { start_of_replay: false, ..rest })).unwrap();
        assert_eq!(table(), whole);
    });
}

#[test]
fn held_route_stays_forwarded_when_the_found_group_is_deleted() {
    in_namespace("adoption::held_route_stays_forwarded_when_the_found_group_is_deleted", || {
        first().apply(&mut open());
        let mut kernel = open();
        // Another neighbour is sooner: its routes are held back, and the former group is used by one route only.
        Batch::start()
            .group(7, &[hop("10.0.0.2", "v0", 1)])
            .group(8, &[hop("10.0.1.3", "v1", 1)])
            .route("192.0.2.0/24", Some(8))
            .route("203.0.113.0/24", Some(7))
            .apply(&mut kernel);
        assert!(kernel.is_holding());
        let there = |prefix: &str| table()[prefix].clone();
        assert_eq!(there("192.0.2.0/24"), ["10.0.0.2 v0 1"]);
        Batch::default().route("203.0.113.0/24", None).after(7).apply(&mut kernel);
        assert_eq!(there("192.0.2.0/24"), ["10.0.0.2 v0 1"], "the route went with a group of the RIB");
        assert_eq!(there("198.51.100.0/24"), ["10.0.0.2 v0 1"], "gone before the end of the replay");
        // The group turns unresolved: what is held is written, and what was only found does not count as there.
        Batch::default()
            .group(9, &[hop("10.0.0.2", "v0", 1)])
            .route("203.0.113.0/24", Some(9))
            .apply(&mut kernel);
        let mut batch = Batch::default();
        batch.0.groups.push(GroupOp { id: GroupId(9), content: FibGroup::Unresolved, source: None });
        batch.apply(&mut kernel);
        assert_eq!(there("192.0.2.0/24"), ["10.0.1.3 v1 1"]);
        Batch::default()
            .group(9, &[hop("10.0.0.2", "v0", 1)])
            .route("198.51.100.0/24", Some(9))
            .apply(&mut kernel);
        assert_eq!(there("198.51.100.0/24"), ["10.0.0.2 v0 1"]);
        Batch::default().end().apply(&mut kernel);
        assert!(!kernel.is_holding());
        assert_eq!(table().len(), 3);
        // Two groups and two single objects.
        assert_eq!(json("nexthop show").len(), 4);
    });
}

#[test]
fn route_is_not_held_back_when_acknowledgements_confirm() {
    in_namespace("adoption::route_is_not_held_back_when_acknowledgements_confirm", || {
        first().apply(&mut open());
        let mut kernel = open();
        kernel.confirms = true;
        Batch::start()
            .group(8, &[hop("10.0.1.3", "v1", 1)])
            .route("192.0.2.0/24", Some(8))
            .apply(&mut kernel);
        assert!(!kernel.is_holding());
        assert_eq!(table()["192.0.2.0/24"], ["10.0.1.3 v1 1"]);
        assert_eq!(table().len(), 3, "what is not announced yet stays until the end");
        // Confirmation is switched on while routes are held back.
        let mut kernel = open();
        Batch::start()
            .group(8, &[hop("10.0.0.2", "v0", 1)])
            .route("192.0.2.0/24", Some(8))
            .apply(&mut kernel);
        assert!(kernel.is_holding());
        kernel.confirms = true;
        Batch::default().apply(&mut kernel);
        assert!(!kernel.is_holding());
        assert_eq!(table()["192.0.2.0/24"], ["10.0.0.2 v0 1"]);
    });
}

#[test]
fn unused_groups_of_this_run_leave_before_the_replay_ends() {
    in_namespace("adoption::unused_groups_of_this_run_leave_before_the_replay_ends", || {
        first().apply(&mut open());
        let whole = table();
        let groups = || json("nexthop show").iter().filter(|object| object.get("group").is_some()).count();
        assert_eq!(groups(), 2);
        let mut kernel = open();
        Batch::start().apply(&mut kernel);
        for number in 10..20 {
            Batch::default()
                .group(number, &[hop("10.0.0.2", "v0", 1), hop("10.0.1.3", "v1", 1)])
                .route("203.0.113.0/24", Some(number))
                .apply(&mut kernel);
            Batch::default().route("203.0.113.0/24", None).after(number).apply(&mut kernel);
        }
        assert_eq!(groups(), 2, "of the found routes");
        assert_eq!(table(), whole);
    });
}

#[test]
fn found_route_of_another_kind_or_scope_is_removed() {
    in_namespace("adoption::found_route_of_another_kind_or_scope_is_removed", || {
        let leave_over = || {
            ip("route add blackhole 192.0.2.0/24 proto bgp table 1000 metric 77");
            ip("route add 198.51.100.0/24 dev v0 scope link proto bgp table 1000 metric 20");
            ip("-6 route add unreachable 2001:db8:aaaa::/48 proto bgp table 1000");
        };
        leave_over();
        let mut kernel = open();
        Batch::start().end().apply(&mut kernel);
        assert_eq!(table(), expect(&[]));
        leave_over();
        kernel.repair().unwrap();
        assert_eq!(table(), expect(&[]));
        leave_over();
        let scope = Scope { protocol: 186, tables: vec![(1000, "default".into())] };
        assert_eq!(flush(&scope, false, None).unwrap().routes(), 3);
        assert_eq!(table(), expect(&[]));
    });
}

#[test]
fn held_route_without_its_group_fails_when_another_program_deletes_it() {
    in_namespace("adoption::held_route_without_its_group_fails_when_another_program_deletes_it", || {
        first().apply(&mut open());
        let mut kernel = open();
        // The kernel refuses the group, so the found route stays until the replay ends.
        let prefix = "192.0.2.0/24";
        Batch::start().group(3, &[hop("99.9.9.9", "v0", 1)]).route(prefix, Some(3)).apply(&mut kernel);
        assert!(kernel.is_holding());
        ip(&format!("route del {prefix} table 1000"));
        kernel.touched(&[deleted(prefix)]).unwrap();
        let failed: Vec<AnyPrefix> = failed(&mut kernel).into_iter().map(|(prefix, _)| prefix).collect();
        assert_eq!(failed, [prefix.parse().unwrap()]);
    });
}
