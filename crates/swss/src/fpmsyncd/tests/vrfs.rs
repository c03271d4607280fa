//! Numbers of VRFs that come before their names, or after them.

use super::*;

#[test]
fn routes_that_come_before_their_vrfs_name_wait_for_it() {
    for suppress in [false, true] {
        let mut bench = Bench::with(FpmConfig { suppress, ..FpmConfig::default() });
        bench.route_in(50, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
        bench.route_in(50, "10.2.0.0/16", &[("10.0.0.1", 7, 1)]);
        bench.route_in(50, "10.3.0.0/16", &[("10.0.0.1", 7, 1)]);
        bench.route_in(51, "10.4.0.0/16", &[("10.0.0.1", 7, 1)]);
        // What was said last counts.
        bench.route_in(50, "10.2.0.0/16", &[("10.0.0.2", 8, 1)]);
        bench.send(Content::DelRoute(Route::new(prefix("10.3.0.0/16"), 50, 186, NextHops::None)));
        assert!(bench.take().is_empty() && bench.out.offloads.is_empty());
        assert_eq!(bench.machine.waiting(), 3);
        // Another name is none of a VRF.
        bench.machine.link(50, "Ethernet12", &mut bench.out);
        assert!(bench.take().is_empty());
        bench.machine.link(50, "Vrfblue", &mut bench.out);
        assert_eq!(
            bench.take(),
            [
                "ROUTE_TABLE:Vrfblue:10.1.0.0/16 SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1",
                "ROUTE_TABLE:Vrfblue:10.2.0.0/16 SET protocol=bgp nexthop=10.0.0.2 ifname=Ethernet4 weight=1",
            ]
        );
        assert_eq!(bench.out.offloads.len(), if suppress { 0 } else { 2 });
        assert_eq!(bench.machine.waiting(), 1);
        // A session announces everything itself.
        bench.reconnect();
        bench.machine.link(51, "Vrfgreen", &mut bench.out);
        assert!(bench.take().is_empty());
    }
}

#[test]
fn withdrawal_under_a_vrfs_former_number_leaves_what_was_announced_under_the_present_one() {
    let mut bench = Bench::new();
    let hops = [("10.0.0.1", 7, 1)];
    let withdraw = |bench: &mut Bench, table: u32, to: &str| {
        bench.send(Content::DelRoute(Route::new(prefix(to), table, 186, NextHops::None)));
    };
    for to in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"] {
        bench.route_in(40, to, &hops);
    }
    bench.take();
    // The VRF's device is made again. The routes of the new one come before the last withdrawals of the old one.
    bench.machine.link_gone(40);
    bench.machine.link(50, "Vrfred", &mut bench.out);
    bench.route_in(50, "10.1.0.0/16", &hops);
    for to in ["10.1.0.0/16", "10.2.0.0/16"] {
        withdraw(&mut bench, 40, to);
    }
    assert_eq!(bench.take(), ["ROUTE_TABLE:Vrfred:10.2.0.0/16 DEL"]);
    // And once more.
    bench.machine.link_gone(50);
    bench.machine.link(60, "Vrfred", &mut bench.out);
    bench.route_in(60, "10.2.0.0/16", &hops);
    for (table, to) in [
        (40, "10.2.0.0/16"),
        (50, "10.2.0.0/16"),
        (50, "10.3.0.0/16"),
        (40, "10.3.0.0/16"),
        (50, "10.1.0.0/16"),
    ] {
        withdraw(&mut bench, table, to);
    }
    let row = "SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1";
    let mut changes = bench.take();
    changes.sort();
    assert_eq!(
        changes,
        [
            "ROUTE_TABLE:Vrfred:10.1.0.0/16 DEL".to_owned(),
            format!("ROUTE_TABLE:Vrfred:10.2.0.0/16 {row}"),
            "ROUTE_TABLE:Vrfred:10.3.0.0/16 DEL".to_owned(),
        ]
    );
    withdraw(&mut bench, 60, "10.2.0.0/16");
    assert_eq!(bench.take(), ["ROUTE_TABLE:Vrfred:10.2.0.0/16 DEL"]);
}
