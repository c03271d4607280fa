//! A chip that refuses: retries, their pauses and bounds, and what a wrong picture of the chip comes to.

use super::world::World;
use crate::orch::OrchConfig;
use crate::row::Mac;
use crate::sai::{Attr, ObjectType, SaiReply, Status, Verb};

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
fn interface_row_that_comes_back_while_in_use_wakes_its_routes() {
    let mut world = world(OrchConfig::default());
    let direct = "protocol=kernel nexthop=0.0.0.0 ifname=Ethernet0";
    world.set("ROUTE_TABLE:20.1.0.0/16", direct);
    world.settle();
    // A route holds the router interface, so it stays.
    world.set("INTF_TABLE:Ethernet0", "DEL");
    world.set("ROUTE_TABLE:20.2.0.0/16", direct);
    world.settle();
    assert_eq!(world.forwarding("20.2.0.0/16"), "-");
    world.set("INTF_TABLE:Ethernet0", "NULL=NULL");
    world.settle();
    assert_eq!((world.forwarding("20.2.0.0/16"), world.orch.retry_cache_len()), ("Ethernet0".into(), 0));
}

/// What the chip was asked about entries of routes, while time passes a second at a time.
fn calls_of_seconds(world: &mut World, seconds: u64) -> Vec<(u64, String)> {
    let mut calls = Vec::new();
    for second in 1..=seconds {
        world.tick(1000);
        calls.extend(world.calls(ObjectType::RouteEntry).into_iter().map(|call| (second, call)));
    }
    calls
}

#[test]
fn refused_route_is_retried_with_growing_pauses_until_the_chip_takes_it() {
    let mut world = world(OrchConfig { responses: true, ..OrchConfig::default() });
    for _ in 0..9 {
        fail(&mut world, ObjectType::RouteEntry, Verb::Create, Status::NotSupported);
    }
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    // Logged and reported once, however often it is tried.
    assert_eq!(world.events(), ["the chip refused route 10.1.0.0/16: SAI_STATUS_NOT_SUPPORTED"]);
    assert_eq!(world.refusals(), ["ROUTE_TABLE:10.1.0.0/16: the chip refused it: SAI_STATUS_NOT_SUPPORTED"]);
    let why =
        |seconds| format!("it is refused by the chip (SAI_STATUS_NOT_SUPPORTED), retried in {seconds} s");
    assert_eq!((world.why("10.1.0.0/16"), world.orch.refused_len()), (why(1), 1));
    assert_eq!((world.orch.backlog(), world.orch.retry_cache_len()), (0, 1));
    world.sent.clear();
    let calls = calls_of_seconds(&mut world, 255);
    let at: Vec<u64> = calls.iter().map(|(second, _)| *second).collect();
    assert_eq!(at, [1, 3, 7, 15, 31, 63, 127, 191, 255]);
    assert!(calls.iter().all(|(_, call)| call == "Create 10.1.0.0/16 to"), "{calls:?}");
    assert!(world.events().is_empty() && world.refusals().is_empty());
    assert_eq!(
        (world.forwarding("10.1.0.0/16"), world.why("10.1.0.0/16")),
        ("10.0.0.2".into(), String::new())
    );
    assert_eq!((world.responses().len(), world.orch.refused_len()), (1, 0));
    assert_eq!(calls_of_seconds(&mut world, 200), []);
}

#[test]
fn refused_route_whose_row_changes_gets_the_new_content_at_once() {
    let mut world = world(OrchConfig { responses: true, ..OrchConfig::default() });
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    world.responses();
    // It keeps its former next hop, but only as long as the chip refuses the new one.
    fail(&mut world, ObjectType::RouteEntry, Verb::Set, Status::Failure);
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_1);
    world.settle();
    assert_eq!((world.forwarding("10.1.0.0/16"), world.responses().len()), ("10.0.0.2".into(), 0));
    world.tick(1000);
    assert_eq!((world.forwarding("10.1.0.0/16"), world.responses().len()), ("10.0.1.2".into(), 1));
    // A row that changes before the retry, and one that changes while the refused request is in flight.
    for in_flight in [false, true] {
        fail(&mut world, ObjectType::RouteEntry, Verb::Set, Status::Failure);
        world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
        match in_flight {
            true => world.run(),
            false => world.settle(),
        }
        world.set("ROUTE_TABLE:10.1.0.0/16", "blackhole=true nexthop= ifname=");
        world.settle();
        assert_eq!((world.forwarding("10.1.0.0/16"), world.orch.refused_len()), ("drop".into(), 0));
        world.sent.clear();
        assert_eq!(calls_of_seconds(&mut world, 5), []);
        world.set("ROUTE_TABLE:10.1.0.0/16", "blackhole= nexthop=10.0.1.2 ifname=Ethernet1");
        world.settle();
        assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2");
    }
    // A row that is deleted before the retry.
    fail(&mut world, ObjectType::RouteEntry, Verb::Create, Status::Failure);
    world.set("ROUTE_TABLE:10.2.0.0/16", VIA_0);
    world.settle();
    world.set("ROUTE_TABLE:10.2.0.0/16", "DEL");
    world.settle();
    world.sent.clear();
    assert_eq!((calls_of_seconds(&mut world, 5), world.orch.refused_len()), (vec![], 0));
    assert_eq!((world.forwarding("10.2.0.0/16"), world.why("10.2.0.0/16")), ("-".into(), String::new()));
}

#[test]
fn refused_removals_are_retried() {
    let mut world = world(OrchConfig::default());
    let both = "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1";
    world.set("VRF_TABLE:Vrf1", "fallback=false");
    world.set("INTF_TABLE:Ethernet2", "vrf_name=Vrf1");
    world.set("ROUTE_TABLE:10.1.0.0/16", both);
    world.settle();
    let rifs = world.syncd.chip().count(ObjectType::RouterInterface);
    let objects = [
        (ObjectType::RouteEntry, "the chip refused route 10.1.0.0/16: SAI_STATUS_FAILURE"),
        (ObjectType::NextHopGroupMember, "the chip refused a member of a next-hop group: SAI_STATUS_FAILURE"),
        (ObjectType::NextHopGroup, "the chip refused the removal of a next-hop group: SAI_STATUS_FAILURE"),
        (ObjectType::NextHop, "the chip refused neighbour 10.0.0.2 on Ethernet0: SAI_STATUS_FAILURE"),
        (ObjectType::NeighborEntry, "the chip refused neighbour 10.0.1.2 on Ethernet1: SAI_STATUS_FAILURE"),
        (
            ObjectType::RouterInterface,
            "the chip refused the removal of the router interface of Ethernet2: SAI_STATUS_FAILURE",
        ),
        (ObjectType::VirtualRouter, "the chip refused the virtual router of Vrf1: SAI_STATUS_FAILURE"),
    ];
    for (object, _) in objects {
        fail(&mut world, object, Verb::Remove, Status::Failure);
    }
    for key in [
        "ROUTE_TABLE:10.1.0.0/16",
        "INTF_TABLE:Ethernet2:10.0.2.1/24",
        "INTF_TABLE:Ethernet2",
        "VRF_TABLE:Vrf1",
    ] {
        world.set(key, "DEL");
    }
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2");
    world.tick(1000);
    world.tick(2000);
    for ip in ["10.0.0.2", "10.0.1.2"] {
        world.set(&format!("NEIGH_TABLE:Ethernet{}:{ip}", &ip[5..6]), "DEL");
    }
    world.settle();
    for _ in 0..4 {
        world.tick(2000);
    }
    let events = world.events();
    let missing: Vec<&str> = objects
        .iter()
        .map(|(_, event)| *event)
        .filter(|event| !events.contains(&(*event).to_string()))
        .collect();
    assert!(missing.is_empty() && events.len() == objects.len(), "{missing:?} {events:?}");
    assert_eq!(world.orch.refused_len(), 0);
    world.assert_empty();
    assert_eq!(world.syncd.chip().count(ObjectType::RouterInterface), rifs - 1);
    assert_eq!(world.syncd.chip().count(ObjectType::VirtualRouter), 1);
}

#[test]
fn refused_objects_are_retried_and_routes_say_what_they_wait_for() {
    let mut world = world(OrchConfig { responses: true, ..OrchConfig::default() });
    for object in [
        ObjectType::VirtualRouter,
        ObjectType::RouterInterface,
        ObjectType::NeighborEntry,
        ObjectType::NextHop,
    ] {
        fail(&mut world, object, Verb::Create, Status::Failure);
    }
    world.set("INTF_TABLE:Ethernet3", "DEL");
    world.settle();
    world.set("VRF_TABLE:Vrf1", "fallback=false");
    world.set("INTF_TABLE:Ethernet3", "vrf_name=Vrf1");
    world.set("ROUTE_TABLE:Vrf1:10.1.0.0/16", "nexthop=10.0.3.2 ifname=Ethernet3");
    world.neighbor("10.0.3.2");
    world.settle();
    let is_refused =
        |object: &str| format!("{object} is refused by the chip (SAI_STATUS_FAILURE), retried in 1 s");
    for object in [
        "the virtual router of Vrf1",
        "the router interface of Ethernet3",
        "next hop 10.0.3.2 on Ethernet3",
        "next hop 10.0.3.2 on Ethernet3",
    ] {
        assert_eq!(world.why("Vrf1:10.1.0.0/16"), is_refused(object));
        world.tick(if object.starts_with("next hop") { 2000 } else { 1000 });
    }
    assert_eq!(world.forwarding("Vrf1:10.1.0.0/16"), "10.0.3.2");
    world.events();
    // A group: its routes use one member until the chip takes it, and the client gets to know.
    fail(&mut world, ObjectType::NextHopGroup, Verb::Create, Status::Failure);
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1");
    world.settle();
    assert_eq!(world.events(), ["the chip refused a next-hop group: SAI_STATUS_FAILURE"]);
    assert_eq!(
        world.refusals(),
        [
            "ROUTE_TABLE:Vrf1:10.1.0.0/16: the chip refused the virtual router of Vrf1: SAI_STATUS_FAILURE",
            "ROUTE_TABLE:10.1.0.0/16: the chip refused its next-hop group: SAI_STATUS_FAILURE"
        ]
    );
    assert_eq!(world.why("10.1.0.0/16"), is_refused("its next-hop group"));
    assert!(["10.0.0.2", "10.0.1.2"].contains(&world.forwarding("10.1.0.0/16").as_str()));
    world.responses();
    fail(&mut world, ObjectType::NextHopGroupMember, Verb::Create, Status::Failure);
    world.tick(1000);
    assert_eq!(world.why("10.1.0.0/16"), is_refused("member 10.0.0.2 on Ethernet0 of its next-hop group"));
    assert!(world.responses().is_empty());
    world.tick(1000);
    assert_eq!(
        (world.forwarding("10.1.0.0/16"), world.why("10.1.0.0/16")),
        ("10.0.0.2 10.0.1.2".into(), String::new())
    );
    assert_eq!((world.responses().len(), world.orch.refused_len()), (1, 0));
    // Attributes of objects that exist.
    fail(&mut world, ObjectType::Port, Verb::Set, Status::Failure);
    world.set("PORT_TABLE:Ethernet2", "mtu=9100");
    world.settle();
    fail(&mut world, ObjectType::NeighborEntry, Verb::Set, Status::Failure);
    fail(&mut world, ObjectType::RouterInterface, Verb::Set, Status::Failure);
    world.set("NEIGH_TABLE:Ethernet0:10.0.0.2", "neigh=02:00:00:00:00:77 family=IPv4");
    world.set("INTF_TABLE:Ethernet1", "mac_addr=02:00:00:00:00:99");
    world.settle();
    let has = |world: &World, attr: Attr| {
        let chip = world.syncd.chip();
        let objects = chip.objects.values().map(|(_, attrs)| attrs);
        objects.chain(chip.neighbors.values()).any(|attrs| attrs.contains(&attr))
    };
    let attrs = [
        Attr::NeighborMac(Mac([2, 0, 0, 0, 0, 0x77])),
        Attr::RifSrcMac(Mac([2, 0, 0, 0, 0, 0x99])),
        Attr::PortMtu(9100),
    ];
    assert!(attrs.iter().all(|attr| !has(&world, attr.clone())) && world.orch.refused_len() == 3);
    world.tick(1000);
    assert!(attrs.iter().all(|attr| has(&world, attr.clone())) && world.orch.refused_len() == 0);
}

#[test]
fn group_with_a_refused_member_still_drops_a_dead_one() {
    let mut world = world(OrchConfig { single_groups: true, ..OrchConfig::default() });
    world.neighbor("10.0.2.2");
    world.set("NEXTHOP_GROUP_TABLE:1", "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1");
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=1");
    world.settle();
    for _ in 0..9 {
        fail(&mut world, ObjectType::NextHopGroupMember, Verb::Create, Status::Failure);
    }
    // The chip refuses the only member of the new row: the former ones carry its packets.
    world.set("NEXTHOP_GROUP_TABLE:1", "nexthop=10.0.2.2 ifname=Ethernet2");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2");
    // One of the former ones is a member again, and the other is not needed.
    world.set("NEXTHOP_GROUP_TABLE:1", "nexthop=10.0.0.2,10.0.2.2 ifname=Ethernet0,Ethernet2");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2");
    world.link(0, false);
    world.settle();
    assert_eq!(world.syncd.chip().count(ObjectType::NextHopGroupMember), 0);
    world.syncd.chip_mut().fail.clear();
    world.tick(1000);
    assert_eq!((world.forwarding("10.1.0.0/16"), world.orch.refused_len()), ("10.0.2.2".into(), 0));
}

#[test]
fn retries_take_a_part_of_each_bulk_while_other_rows_wait() {
    const REFUSED: usize = 100;
    let mut world = world(OrchConfig { bulk_size: 16, ..OrchConfig::default() });
    for n in 0..REFUSED {
        fail(&mut world, ObjectType::RouteEntry, Verb::Create, Status::Failure);
        world.set(&format!("ROUTE_TABLE:20.{n}.0.0/16"), VIA_0);
    }
    world.settle();
    assert_eq!(world.orch.refused_len(), REFUSED);
    for n in 0..REFUSED {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), VIA_0);
    }
    world.sent.clear();
    world.tick(1000);
    let calls = world.calls(ObjectType::RouteEntry);
    let counts = |call: &String| {
        let of = |start: &str| call.split(' ').filter(|word| word.starts_with(start)).count();
        (of("10."), of("20."))
    };
    let counts: Vec<(usize, usize)> = calls.iter().map(counts).collect();
    // Bulks stay within their size; the new rows get most of each, and are through in a few.
    assert!(counts.iter().all(|(new, again)| new + again <= 16), "{counts:?}");
    let through = counts
        .iter()
        .scan(0, |sum, (new, _)| {
            *sum += new;
            Some(*sum)
        })
        .position(|sum| sum == REFUSED);
    assert!(through.is_some_and(|bulks| bulks < REFUSED / 16 + 3), "{counts:?}");
    assert_eq!(
        (world.orch.refused_len(), world.orch.routes_in_chip()),
        (0, world.syncd.chip().routes.len() - 2)
    );
}

#[test]
fn a_chip_that_skips_or_contradicts_everything_is_not_asked_in_a_loop() {
    let mut world = world(OrchConfig::default());
    for status in [Status::NotExecuted, Status::ItemAlreadyExists] {
        for verb in [Verb::Create, Verb::Set] {
            for _ in 0..4 {
                let status = if (verb, status) == (Verb::Set, Status::ItemAlreadyExists) {
                    Status::ItemNotFound
                } else {
                    status
                };
                fail(&mut world, ObjectType::RouteEntry, verb, status);
            }
        }
        world.sent.clear();
        world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
        world.settle();
        assert!(world.calls(ObjectType::RouteEntry).len() <= 2);
        assert_eq!(world.orch.refused_len(), 1);
        for _ in 0..10 {
            world.tick(64_000);
        }
        assert_eq!((world.forwarding("10.1.0.0/16"), world.orch.refused_len()), ("10.0.0.2".into(), 0));
        world.syncd.chip_mut().fail.clear();
        world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
        world.settle();
    }
    // A neighbour that the chip has without our knowing gets our MAC address.
    fail(&mut world, ObjectType::NeighborEntry, Verb::Create, Status::ItemAlreadyExists);
    world.sent.clear();
    world.neighbor("10.0.2.2");
    world.settle();
    assert_eq!(world.calls(ObjectType::NeighborEntry).len(), 2);
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

/// SONiC takes these statuses of a create for success, and the chip has no route then.
#[test]
fn create_refused_with_an_object_status_is_not_confirmed() {
    for status in [Status::ObjectInUse, Status::ItemNotFound, Status::AddrNotFound] {
        let mut world = world(OrchConfig { responses: true, ..OrchConfig::default() });
        fail(&mut world, ObjectType::RouteEntry, Verb::Create, status);
        world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
        world.settle();
        assert_eq!(world.forwarding("10.1.0.0/16"), "-");
        assert!(world.responses().is_empty(), "{}", status.name());
        assert_eq!(world.refusals().len(), 1, "{}", status.name());
    }
}
