//! Warm starts: what the chip has stays, with its numbers; what changed meanwhile is the only thing that is done.

use super::world::World;
use crate::orch::{OrchConfig, PreviousIds};
use crate::sai::ObjectType;

fn world() -> World {
    let mut world = World::new(OrchConfig { window: 4, bulk_size: 3, ..OrchConfig::default() });
    world.set("VRF_TABLE:Vrf1", "fallback=false");
    world.set("VRF_TABLE:Vrf2", "fallback=false");
    world.set("INTF_TABLE:Ethernet2", "vrf_name=Vrf1");
    world.set("INTF_TABLE:Ethernet3", "vrf_name=Vrf2");
    world.settle();
    for ip in ["10.0.0.2", "10.0.0.3", "10.0.1.2", "10.0.2.2", "10.0.3.2"] {
        world.neighbor(ip);
    }
    let two = "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1";
    // Two indexes of the same members, and a set of next hops that is the same once more.
    world.set("NEXTHOP_GROUP_TABLE:7", &format!("{two} weight=1,1"));
    world.settle();
    world.set("NEXTHOP_GROUP_TABLE:5", &format!("{two} weight=1,1"));
    world.set("NEXTHOP_GROUP_TABLE:9", "nexthop=10.0.0.3 ifname=Ethernet0 weight=1");
    world.set("ROUTE_TABLE:0.0.0.0/0", "nexthop=10.0.0.2 ifname=Ethernet0 protocol=bgp");
    world.set("ROUTE_TABLE:192.0.2.0/24", two);
    world.set("ROUTE_TABLE:198.51.100.0/24", "blackhole=true");
    for n in 0..6 {
        let index = [5, 7, 9][n % 3];
        world.set(&format!("ROUTE_TABLE:203.0.{n}.0/24"), &format!("nexthop_group={index} protocol=bgp"));
    }
    world.set("ROUTE_TABLE:Vrf1:192.0.2.0/24", "nexthop=10.0.2.2 ifname=Ethernet2");
    world.set("ROUTE_TABLE:Vrf2:192.0.2.0/24", "nexthop=10.0.3.2 ifname=Ethernet3");
    world.settle();
    assert_eq!(world.events(), [""; 0]);
    world
}

#[test]
fn nothing_changed() {
    let mut world = world();
    let (rows, rids) = (world.asic_db.clone(), world.rid_of.clone());
    for _ in 0..3 {
        assert_eq!(world.restart_warm(&[]), 0);
        assert_eq!((&world.asic_db, &world.rid_of), (&rows, &rids));
    }
    assert_eq!(world.events(), [""; 0]);
    // It goes on from there.
    world.sent.clear();
    world.set("ROUTE_TABLE:192.0.3.0/24", "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1");
    world.settle();
    assert_eq!(
        (world.forwarding("192.0.3.0/24"), world.calls(ObjectType::NextHopGroup)),
        (world.forwarding("192.0.2.0/24"), vec![])
    );
    world.assert_db_agrees();
}

#[test]
fn exactly_what_changed() {
    let route = "nexthop=10.0.0.3 ifname=Ethernet0";
    let cases: [(&[(&str, &str)], usize); 7] = [
        (&[("ROUTE_TABLE:192.0.9.0/24", route)], 1),
        (&[("ROUTE_TABLE:203.0.1.0/24", "DEL")], 1),
        (&[("ROUTE_TABLE:198.51.100.0/24", "DEL"), ("ROUTE_TABLE:198.51.100.0/24", route)], 2),
        // A default route is never removed: it drops, and has no next hop.
        (&[("ROUTE_TABLE:0.0.0.0/0", "DEL")], 2),
        // A member more: one membership, and none of the routes.
        (
            &[(
                "NEXTHOP_GROUP_TABLE:7",
                "nexthop=10.0.0.2,10.0.1.2,10.0.0.3 ifname=Ethernet0,Ethernet1,Ethernet0 weight=1,1,1",
            )],
            1,
        ),
        // A next hop without routes goes with its neighbour.
        (&[("NEIGH_TABLE:Ethernet1:10.0.1.9", "neigh=02:00:00:00:00:09 family=IPv4")], 2),
        (&[("NEIGH_TABLE:Ethernet2:10.0.2.2", "neigh=02:00:00:00:00:09 family=IPv4")], 1),
    ];
    for (changes, operations) in cases {
        let mut world = world();
        assert_eq!(world.restart_warm(changes), operations, "{changes:?}");
        let (forwarding, rows) = (world.forwarding("203.0.2.0/24"), world.asic_db.clone());
        world.assert_db_agrees();
        assert_eq!(world.restart_warm(&[]), 0, "{changes:?}");
        assert_eq!((world.forwarding("203.0.2.0/24"), &world.asic_db), (forwarding, &rows));
    }
}

#[test]
fn without_an_asic_db_the_chip_is_left_alone_too() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.neighbor("10.0.1.2");
    world.set("ROUTE_TABLE:192.0.2.0/24", "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1");
    world.set("ROUTE_TABLE:192.0.3.0/24", "nexthop=10.0.0.2 ifname=Ethernet0");
    world.settle();
    assert_eq!(world.restart_warm_from(PreviousIds::default(), &[]), 0);
    world.assert_db_agrees();
    // Objects have new numbers now, with the same content.
    world.set("ROUTE_TABLE:192.0.3.0/24", "DEL");
    world.settle();
    assert_eq!(
        (world.forwarding("192.0.3.0/24"), world.forwarding("192.0.2.0/24")),
        ("-".into(), "10.0.0.2 10.0.1.2".into())
    );
    world.assert_db_agrees();
}
