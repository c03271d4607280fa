//! Labels: next hops that put them on, and the routes of labels.

use super::world::World;
use crate::orch::OrchConfig;
use crate::sai::{ObjectType, Status, Verb};

fn world() -> World {
    let mut world = World::new(OrchConfig { responses: true, ..OrchConfig::default() });
    for ip in ["10.0.0.2", "10.0.1.2"] {
        world.neighbor(ip);
    }
    world.settle();
    world.sent.clear();
    world
}

const SWAP: &str = "nexthop=10.0.0.2 ifname=Ethernet0 mpls_nh=swap201 mpls_pop=1 protocol=static";

#[test]
fn a_label_is_swapped_popped_dropped_and_shared_out() {
    let mut world = world();
    world.set("LABEL_ROUTE_TABLE:200", SWAP);
    world.set("LABEL_ROUTE_TABLE:300", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_pop=2");
    world.set("LABEL_ROUTE_TABLE:400", "blackhole=true");
    world.set(
        "LABEL_ROUTE_TABLE:500",
        "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1 mpls_nh=swap1/2,na weight=1,3",
    );
    world.settle();
    let forwarding = |world: &World| [200, 300, 400, 500].map(|label| world.label_forwarding(label));
    let at_first =
        ["swap201@10.0.0.2 pop1", "10.0.0.2 pop2", "drop pop1", "swap1/2@10.0.0.2*1 10.0.1.2*3 pop1"];
    assert_eq!(forwarding(&world), at_first);
    assert_eq!(
        world.calls(ObjectType::InsegEntry),
        ["Create 300 to+pop2, 400 drop+pop1", "Create 200 to+pop1, 500 to+pop1"]
    );
    // Labels are not reported.
    assert_eq!((world.responses(), world.events()), (vec![], vec![]));
    let crm = world.orch.crm();
    assert_eq!((crm.mpls_inseg.used, crm.mpls_nexthop.used, crm.nexthop[0].used), (4, 2, 2));
    world.assert_db_agrees();
    // What is the same asks for nothing; what is not, for what differs.
    world.set("LABEL_ROUTE_TABLE:200", SWAP);
    world.set("LABEL_ROUTE_TABLE:300", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_pop=1");
    world.set("LABEL_ROUTE_TABLE:400", "blackhole=false nexthop=10.0.1.2 ifname=Ethernet1");
    world.settle();
    assert_eq!(
        world.calls(ObjectType::InsegEntry),
        ["Set 300 pop1, 300 forward, 300 to, 400 forward, 400 to"]
    );
    world.set("LABEL_ROUTE_TABLE:200", "blackhole=true");
    world.settle();
    assert_eq!(world.calls(ObjectType::InsegEntry), ["Set 200 null, 200 drop"]);
    assert_eq!(world.label_forwarding(200), "drop pop1");
    assert_eq!(world.orch.crm().mpls_nexthop.used, 1);
    for label in [200, 300, 400, 500] {
        world.set(&format!("LABEL_ROUTE_TABLE:{label}"), "DEL");
    }
    for n in 0..2 {
        world.set(&format!("NEIGH_TABLE:Ethernet{n}:10.0.{n}.2"), "DEL");
    }
    world.settle();
    world.assert_empty();
    world.assert_db_agrees();
}

#[test]
fn a_labelled_hop_is_there_while_it_is_wanted_and_its_neighbour_is() {
    let mut world = world();
    let push = "nexthop=10.0.2.2 ifname=Ethernet2 mpls_nh=push100/101";
    world.set("ROUTE_TABLE:10.1.0.0/16", push);
    world.set("ROUTE_TABLE:10.2.0.0/16", push);
    world.settle();
    assert_eq!(
        (world.forwarding("10.1.0.0/16"), &*world.why("10.1.0.0/16")),
        ("-".into(), "next hop 10.0.2.2 on Ethernet2 is not resolved")
    );
    assert_eq!(world.out.resolve.len(), 1);
    world.neighbor("10.0.2.2");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "push100/101@10.0.2.2");
    assert_eq!(world.orch.crm().mpls_nexthop.used, 1, "both share it");
    // Another stack to the same neighbour is another next hop.
    world.set("ROUTE_TABLE:10.2.0.0/16", &push.replace("/101", ""));
    world.settle();
    assert_eq!(world.forwarding("10.2.0.0/16"), "push100@10.0.2.2");
    assert_eq!(world.orch.crm().mpls_nexthop.used, 2);
    // The neighbour goes: routes stay on it until they use another, and the last one lets it go.
    world.set("NEIGH_TABLE:Ethernet2:10.0.2.2", "DEL");
    world.settle();
    assert_eq!(world.syncd.chip().neighbors.len(), 3);
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.set("ROUTE_TABLE:10.2.0.0/16", "nexthop=10.0.0.2 ifname=Ethernet0 mpls_nh=na");
    world.settle();
    assert_eq!(world.forwarding("10.2.0.0/16"), "10.0.0.2");
    assert_eq!((world.syncd.chip().neighbors.len(), world.orch.crm().mpls_nexthop.used), (2, 0));
    world.assert_db_agrees();
}

#[test]
fn label_without_room_waits_and_refused_next_hop_is_retried_after_its_pause_or_a_change() {
    let mut world = world();
    let fail = |world: &mut World, object, status| {
        world.syncd.chip_mut().fail.push((object, Verb::Create, status));
    };
    fail(&mut world, ObjectType::InsegEntry, Status::TableFull);
    fail(&mut world, ObjectType::NextHop, Status::TableFull);
    world.set("LABEL_ROUTE_TABLE:300", "nexthop=10.0.0.2 ifname=Ethernet0");
    world.set("LABEL_ROUTE_TABLE:200", SWAP);
    world.settle();
    let why = |world: &World, label| {
        let state = world.orch.explain_label(label).unwrap();
        state.waiting.map_or(String::new(), |waiting| waiting.to_string())
    };
    assert_eq!(why(&world, 300), "the chip's table of label routes is full");
    assert_eq!(world.label_forwarding(200), "-");
    world.tick(2000);
    world.tick(2000);
    assert_eq!(
        (world.label_forwarding(300), world.label_forwarding(200)),
        ("10.0.0.2 pop1".into(), "swap201@10.0.0.2 pop1".into())
    );
    // A refused next hop is logged once, and requested again when its neighbour changes, or later.
    fail(&mut world, ObjectType::NextHop, Status::NotSupported);
    world.set("LABEL_ROUTE_TABLE:400", "nexthop=10.0.1.2 ifname=Ethernet1 mpls_nh=swap5");
    world.settle();
    world.tick(999);
    assert_eq!(world.events(), ["the chip refused next hop swap5 to 10.0.1.2: SAI_STATUS_NOT_SUPPORTED"]);
    assert_eq!(world.label_forwarding(400), "-");
    let refused =
        "next hop 10.0.1.2 on Ethernet1 is refused by the chip (SAI_STATUS_NOT_SUPPORTED), retried in 1 s";
    assert_eq!(why(&world, 400), refused);
    world.link(1, false);
    world.link(1, true);
    world.settle();
    assert_eq!(world.label_forwarding(400), "swap5@10.0.1.2 pop1");
    // A new row is another try of a refused entry.
    fail(&mut world, ObjectType::InsegEntry, Status::Failure);
    world.set("LABEL_ROUTE_TABLE:500", "blackhole=true");
    world.settle();
    assert_eq!(world.events(), ["the chip refused route of label 500: SAI_STATUS_FAILURE"]);
    world.set("LABEL_ROUTE_TABLE:500", "blackhole=true");
    world.settle();
    assert_eq!(world.label_forwarding(500), "drop pop1");
    fail(&mut world, ObjectType::InsegEntry, Status::Failure);
    world.set("LABEL_ROUTE_TABLE:600", "blackhole=true");
    world.settle();
    assert_eq!(world.label_forwarding(600), "-");
    world.tick(1000);
    assert_eq!((world.label_forwarding(600), world.orch.refused_len()), ("drop pop1".into(), 0));
    assert!(world.out.status_changes.is_empty());
}

#[test]
fn a_resync_is_of_its_own_table() {
    let mut world = world();
    world.set("LABEL_ROUTE_TABLE:200", SWAP);
    world.set("LABEL_ROUTE_TABLE:300", SWAP);
    world.set("ROUTE_TABLE:0.0.0.200/32", "blackhole=true");
    world.settle();
    world.set("LABEL_ROUTE_TABLE:resync", "nexthop=0.0.0.0");
    world.set("LABEL_ROUTE_TABLE:300", SWAP);
    world.settle();
    assert_eq!(world.label_forwarding(200), "swap201@10.0.0.2 pop1");
    assert!(!world.orch.resynced());
    world.set("LABEL_ROUTE_TABLE:resync", "DEL");
    world.settle();
    let forwarding = |world: &World| {
        (world.label_forwarding(200), world.label_forwarding(300), world.forwarding("0.0.0.200/32"))
    };
    assert_eq!(forwarding(&world), ("-".into(), "swap201@10.0.0.2 pop1".into(), "drop".into()));
    world.set("ROUTE_TABLE:resync", "nexthop=0.0.0.0");
    world.set("ROUTE_TABLE:resync", "DEL");
    world.settle();
    assert_eq!(forwarding(&world), ("-".into(), "swap201@10.0.0.2 pop1".into(), "-".into()));
}

#[test]
fn a_warm_start_finds_labels_as_they_were() {
    let mut world = world();
    world.set("LABEL_ROUTE_TABLE:200", SWAP);
    world.set(
        "LABEL_ROUTE_TABLE:300",
        "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1 mpls_nh=push7,swap7",
    );
    world.set(
        "NEXTHOP_GROUP_TABLE:7",
        "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1 mpls_nh=push9,na weight=1,1",
    );
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=7");
    world.set("LABEL_ROUTE_TABLE:400", "nexthop_group=7 mpls_pop=3");
    world.settle();
    assert_eq!(world.label_forwarding(400), "push9@10.0.0.2*1 10.0.1.2*1 pop3");
    let rows = world.asic_db.clone();
    assert_eq!(world.restart_warm(&[]), 0);
    assert_eq!(world.asic_db, rows);
    assert_eq!(
        world.restart_warm(&[("LABEL_ROUTE_TABLE:200", "DEL"), ("LABEL_ROUTE_TABLE:400", "mpls_pop=1")]),
        3
    );
    assert_eq!(
        (world.label_forwarding(200), world.label_forwarding(400)),
        ("-".into(), "push9@10.0.0.2*1 10.0.1.2*1 pop1".into())
    );
    world.assert_db_agrees();
    // A group of a row that changes is changed for labels too.
    let other = "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1 mpls_nh=na,push9 weight=1,1";
    world.set("NEXTHOP_GROUP_TABLE:7", other);
    world.settle();
    assert_eq!(world.label_forwarding(400), "10.0.0.2*1 push9@10.0.1.2*1 pop1");
}
