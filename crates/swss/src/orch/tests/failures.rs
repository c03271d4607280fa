//! A chip that refuses: what is tried again, what is given up, and what a wrong picture of the chip comes to.

use super::world::World;
use crate::orch::OrchConfig;
use crate::sai::{ObjectType, SaiReply, Status, Verb};

const VIA_0: &str = "protocol=bgp nexthop=10.0.0.2 ifname=Ethernet0 weight=1";
const VIA_1: &str = "protocol=bgp nexthop=10.0.1.2 ifname=Ethernet1 weight=1";

fn world(config: OrchConfig) -> World {
    let mut world = World::new(config);
    world.neighbor("10.0.0.2");
    world.neighbor("10.0.1.2");
    world.settle();
    world.sent.clear();
    world
}

fn fail(world: &mut World, object: ObjectType, verb: Verb, status: Status) {
    world.syncd.chip_mut().fail.push((object, verb, status));
}

#[test]
fn a_full_table_takes_the_next_route_when_one_has_left() {
    let mut world = world(OrchConfig { responses: true, ..OrchConfig::default() });
    let room = world.syncd.chip().routes.len() + 2;
    world.syncd.chip_mut().route_limit = room;
    for n in 1..=4 {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), VIA_0);
    }
    world.settle();
    // No response for those that failed, which are named: once, however often they are tried.
    assert_eq!(world.responses().len(), 2);
    let full = |n| format!("ROUTE_TABLE:10.{n}.0.0/16: the chip's table of ipv4-unicast routes is full");
    assert_eq!(world.refusals(), [full(3), full(4)]);
    world.tick(1000);
    assert!(world.refusals().is_empty());
    // A client that asks again is answered again.
    world.set("ROUTE_TABLE:10.4.0.0/16", VIA_1);
    world.settle();
    assert_eq!(world.refusals(), [full(4)]);
    world.set("ROUTE_TABLE:10.4.0.0/16", VIA_0);
    world.settle();
    assert_eq!(world.refusals(), [full(4)]);
    assert_eq!(world.why("10.4.0.0/16"), "the chip's table of ipv4-unicast routes is full");
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.settle();
    assert_eq!(world.syncd.chip().routes.len(), room);
    // Without anything having left, time brings the next try.
    world.syncd.chip_mut().route_limit = room + 1;
    world.tick(1000);
    assert_eq!(world.forwarding("10.4.0.0/16"), "10.0.0.2");
    assert_eq!(world.forwarding("10.3.0.0/16"), "10.0.0.2");
    assert!(world.events().is_empty());
}

#[test]
fn a_route_that_the_chip_lost_is_made_again() {
    let mut world = world(OrchConfig::default());
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    world.syncd.chip_mut().routes.retain(|entry, _| entry.dest.to_string() != "10.1.0.0/16");
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_1);
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2");
    let calls = world.calls(ObjectType::RouteEntry);
    assert_eq!(calls, ["Create 10.1.0.0/16 to", "Set 10.1.0.0/16 to", "Create 10.1.0.0/16 to"]);
    // And one that it has without our knowing is changed.
    let (entry, attrs) = {
        let chip = world.syncd.chip();
        let entry = chip.routes.iter().find(|(entry, _)| entry.dest.to_string() == "10.1.0.0/16").unwrap();
        (*entry.0, entry.1.clone())
    };
    let stray = crate::sai::RouteEntry { dest: "10.2.0.0/16".parse().unwrap(), ..entry };
    world.syncd.chip_mut().routes.insert(stray, attrs);
    world.set("ROUTE_TABLE:10.2.0.0/16", VIA_0);
    world.settle();
    assert_eq!(world.forwarding("10.2.0.0/16"), "10.0.0.2");
}

#[test]
fn what_the_chip_refuses_for_good_is_given_up_and_told() {
    let mut world = world(OrchConfig { responses: true, ..OrchConfig::default() });
    fail(&mut world, ObjectType::RouteEntry, Verb::Create, Status::NotSupported);
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    assert_eq!(world.events(), ["the chip refused route 10.1.0.0/16: SAI_STATUS_NOT_SUPPORTED"]);
    assert!(world.responses().is_empty());
    assert_eq!(world.refusals(), ["ROUTE_TABLE:10.1.0.0/16: the chip refused it: SAI_STATUS_NOT_SUPPORTED"]);
    assert_eq!(world.orch.backlog(), 0);
    assert_eq!(world.why("10.1.0.0/16"), "the chip refused it: SAI_STATUS_NOT_SUPPORTED");
    fail(&mut world, ObjectType::NextHopGroup, Verb::Create, Status::Failure);
    let both = "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1";
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.set("ROUTE_TABLE:10.1.0.0/16", both);
    world.settle();
    assert_eq!(
        world.events(),
        [
            "the chip refused a next-hop group: SAI_STATUS_FAILURE",
            "route 10.1.0.0/16 is not programmed: the chip refused its next-hop group"
        ]
    );
    assert_eq!(world.refusals(), ["ROUTE_TABLE:10.1.0.0/16: the chip refused its next-hop group"]);
    assert_eq!(world.why("10.1.0.0/16"), "the chip refused its next-hop group");
    // Said again, it is tried again.
    world.set("ROUTE_TABLE:10.1.0.0/16", both);
    world.settle();
    assert_eq!(world.why("10.1.0.0/16"), "");
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2");
}

#[test]
fn objects_that_had_no_room_are_made_when_there_is() {
    let mut world = world(OrchConfig::default());
    fail(&mut world, ObjectType::NextHopGroup, Verb::Create, Status::TableFull);
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1");
    world.settle();
    // Meanwhile one member carries it.
    assert!(["10.0.0.2", "10.0.1.2"].contains(&world.forwarding("10.1.0.0/16").as_str()));
    fail(&mut world, ObjectType::NextHopGroupMember, Verb::Create, Status::InsufficientResources);
    world.tick(1000);
    assert!(!world.forwarding("10.1.0.0/16").contains(' '));
    fail(&mut world, ObjectType::NeighborEntry, Verb::Create, Status::TableFull);
    fail(&mut world, ObjectType::NextHop, Verb::Create, Status::TableFull);
    world.neighbor("10.0.2.2");
    world.set("ROUTE_TABLE:10.2.0.0/16", "nexthop=10.0.2.2 ifname=Ethernet2");
    world.settle();
    assert_eq!(world.forwarding("10.2.0.0/16"), "-");
    world.tick(1000);
    world.tick(1000);
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2");
    assert_eq!(world.forwarding("10.2.0.0/16"), "10.0.2.2");
    fail(&mut world, ObjectType::RouteEntry, Verb::Remove, Status::ObjectInUse);
    world.set("ROUTE_TABLE:10.2.0.0/16", "DEL");
    world.settle();
    assert_eq!(world.forwarding("10.2.0.0/16"), "10.0.2.2");
    world.tick(1000);
    assert_eq!(world.forwarding("10.2.0.0/16"), "-");
}

#[test]
fn a_reply_that_does_not_fit_stops_everything() {
    let mut world = world(OrchConfig::default());
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.run();
    let id = world.queue[0].id;
    world.reply(SaiReply::bulk(id, vec![]));
    assert_eq!(
        world.events(),
        ["syncd answered SAI_STATUS_SUCCESS with 0 statuses for 1 objects; start orchagent again"]
    );
    world.queue.clear();
    world.set("ROUTE_TABLE:10.2.0.0/16", VIA_0);
    world.run();
    assert!(world.queue.is_empty());
}

#[test]
fn a_route_of_which_one_attribute_failed_has_failed() {
    let mut world = world(OrchConfig::default());
    fail(&mut world, ObjectType::RouteEntry, Verb::Set, Status::Success);
    fail(&mut world, ObjectType::RouteEntry, Verb::Set, Status::InvalidParameter);
    world.set("ROUTE_TABLE:0.0.0.0/0", VIA_0);
    world.settle();
    assert_eq!(world.events(), ["the chip refused route 0.0.0.0/0: SAI_STATUS_INVALID_PARAMETER"]);
    assert!(world.out.default_routes.iter().all(|change| change.row.is_some_and(|row| !row.ok)));
}
