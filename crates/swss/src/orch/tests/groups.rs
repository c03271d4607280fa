//! Next-hop groups: sharing, limits, links, NEXTHOP_GROUP_TABLE.

use super::world::World;
use crate::orch::OrchConfig;
use crate::sai::ObjectType;

const BOTH: &str = "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1";

fn world(config: OrchConfig) -> World {
    let mut world = World::new(config);
    for ip in ["10.0.0.2", "10.0.1.2", "10.0.2.2"] {
        world.neighbor(ip);
    }
    world.settle();
    world.sent.clear();
    world
}

#[test]
fn routes_with_the_same_members_share_a_group() {
    let mut world = world(OrchConfig::default());
    world.set("ROUTE_TABLE:10.1.0.0/16", BOTH);
    world.set(
        "ROUTE_TABLE:10.2.0.0/16",
        "nexthop=10.0.1.2,10.0.0.2,10.0.1.2 ifname=Ethernet1,Ethernet0,Ethernet1",
    );
    world.set("ROUTE_TABLE:10.3.0.0/16", &format!("{BOTH} weight=1,2"));
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2");
    assert_eq!(world.forwarding("10.2.0.0/16"), "10.0.0.2 10.0.1.2");
    assert_eq!(world.forwarding("10.3.0.0/16"), "10.0.0.2*1 10.0.1.2*2");
    assert_eq!(world.syncd.chip().count(ObjectType::NextHopGroup), 2);
    assert_eq!(world.orch.crm().nexthop_group.used, 2);
    assert_eq!(world.orch.crm().nexthop_group_member.used, 4);
    for n in 1..=3 {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), "DEL");
    }
    for n in 0..3 {
        world.set(&format!("NEIGH_TABLE:Ethernet{n}:10.0.{n}.2"), "DEL");
    }
    world.settle();
    world.assert_empty();
    world.assert_db_agrees();
}

#[test]
fn routes_are_written_once_when_their_group_can_be_made() {
    let mut world = world(OrchConfig::default());
    world.set("ROUTE_TABLE:10.1.0.0/16", BOTH);
    world.settle();
    assert_eq!(world.calls(ObjectType::RouteEntry), ["Create 10.1.0.0/16 to"]);
}

#[test]
fn until_all_members_are_resolved_one_of_them_carries_the_route() {
    let mut world = world(OrchConfig::default());
    let three = "nexthop=10.0.0.2,10.0.1.2,10.0.3.2 ifname=Ethernet0,Ethernet1,Ethernet3";
    world.set("ROUTE_TABLE:10.1.0.0/16", three);
    world.settle();
    let temporary = world.forwarding("10.1.0.0/16");
    assert!(["10.0.0.2", "10.0.1.2"].contains(&&*temporary), "{temporary}");
    assert_eq!(
        world.why("10.1.0.0/16"),
        "members of its next-hop group are not resolved: 10.0.3.2 on Ethernet3"
    );
    // The one that carries it is to go: another takes over.
    let n = temporary.split('.').nth(2).unwrap();
    world.set(&format!("NEIGH_TABLE:Ethernet{n}:{temporary}"), "DEL");
    world.settle();
    let other = world.forwarding("10.1.0.0/16");
    assert!(other != temporary && other != "-", "{other}");
    world.neighbor(&temporary);
    world.neighbor("10.0.3.2");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2 10.0.3.2");
    assert_eq!(world.why("10.1.0.0/16"), "");
}

#[test]
fn at_the_limit_routes_have_one_member_until_a_group_is_free() {
    let mut world = world(OrchConfig { group_limit: Some(1), ..OrchConfig::default() });
    world.set("ROUTE_TABLE:10.1.0.0/16", BOTH);
    world.settle();
    let other = "nexthop=10.0.1.2,10.0.2.2 ifname=Ethernet1,Ethernet2";
    world.set("ROUTE_TABLE:10.2.0.0/16", other);
    world.set("ROUTE_TABLE:10.3.0.0/16", other);
    world.settle();
    assert!(!world.forwarding("10.2.0.0/16").contains(' '));
    assert_eq!(world.why("10.2.0.0/16"), "the chip's next-hop groups are all used");
    // NEXTHOP_GROUP_TABLE counts against the same limit.
    world.set("NEXTHOP_GROUP_TABLE:9", &format!("{BOTH} weight=1,1"));
    world.set("ROUTE_TABLE:10.4.0.0/16", "nexthop_group=9");
    world.settle();
    assert!(!world.forwarding("10.4.0.0/16").contains(' '));
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.settle();
    assert_eq!(world.forwarding("10.2.0.0/16"), "10.0.1.2 10.0.2.2");
    assert_eq!(world.forwarding("10.3.0.0/16"), "10.0.1.2 10.0.2.2");
    // One that is not wanted any more does not take its turn.
    world.set("ROUTE_TABLE:10.5.0.0/16", "nexthop=10.0.0.2,10.0.2.2 ifname=Ethernet0,Ethernet2");
    world.settle();
    world.set("ROUTE_TABLE:10.5.0.0/16", "DEL");
    world.set("ROUTE_TABLE:10.2.0.0/16", "DEL");
    world.set("ROUTE_TABLE:10.3.0.0/16", "DEL");
    world.settle();
    assert_eq!(world.forwarding("10.4.0.0/16"), "10.0.0.2*1 10.0.1.2*1");
    world.set("ROUTE_TABLE:10.4.0.0/16", "DEL");
    world.set("NEXTHOP_GROUP_TABLE:9", "DEL");
    for n in 0..3 {
        world.set(&format!("NEIGH_TABLE:Ethernet{n}:10.0.{n}.2"), "DEL");
    }
    world.settle();
    world.assert_empty();
}

#[test]
fn a_link_that_goes_down_takes_its_members_with_it() {
    let mut world = world(OrchConfig::default());
    for n in 1..=50 {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), BOTH);
    }
    world.settle();
    world.sent.clear();
    world.link(1, false);
    world.settle();
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2");
    // One request for all routes.
    assert_eq!(world.sent.len(), 1);
    world.set("ROUTE_TABLE:10.60.0.0/16", "nexthop=10.0.1.2 ifname=Ethernet1");
    world.settle();
    assert_eq!(world.forwarding("10.60.0.0/16"), "-");
    // Once the chip has said it, no row does.
    world.set("PORT_TABLE:Ethernet1", "oper_status=up");
    world.settle();
    assert_eq!(world.forwarding("10.60.0.0/16"), "-");
    world.link(1, true);
    world.settle();
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2 10.0.1.2");
    assert_eq!(world.forwarding("10.60.0.0/16"), "10.0.1.2");
}

#[test]
fn a_group_by_index_changes_in_place() {
    let mut world = world(OrchConfig::default());
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=5");
    world.settle();
    assert_eq!(world.why("10.1.0.0/16"), "NEXTHOP_GROUP_TABLE has no row 5");
    world.set("NEXTHOP_GROUP_TABLE:5", &format!("{BOTH} weight=1,1"));
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2*1 10.0.1.2*1");
    world.sent.clear();
    let changed = "nexthop=10.0.1.2,10.0.2.2 ifname=Ethernet1,Ethernet2 weight=3,1";
    world.set("NEXTHOP_GROUP_TABLE:5", changed);
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2*3 10.0.2.2*1");
    assert!(world.sent.iter().all(|r| format!("{:?}", r.call).contains("NextHopGroupMember")));
    // Deleted while a route names it: it stays until the route has gone.
    world.set("NEXTHOP_GROUP_TABLE:5", "DEL");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2*3 10.0.2.2*1");
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.settle();
    assert_eq!(world.syncd.chip().count(ObjectType::NextHopGroup), 0);
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=5");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "-");
}

/// The row of a route comes again after its group changed: it is confirmed with the new members.
#[test]
fn route_of_a_changing_group_is_confirmed_when_the_chip_has_the_new_members() {
    let route = ("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=5");
    let mut world = world(OrchConfig { responses: true, ..OrchConfig::default() });
    world.set("NEXTHOP_GROUP_TABLE:5", &format!("{BOTH} weight=1,1"));
    world.set(route.0, route.1);
    world.settle();
    assert_eq!(world.responses().len(), 1);
    let in_chip = |world: &mut World| {
        let mut found = Vec::new();
        world.orch.carried_out(|_, prefix| found.push(prefix.to_string()));
        found.contains(&"10.1.0.0/16".to_owned())
    };
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.1.2,10.0.2.2 ifname=Ethernet1,Ethernet2 weight=1,1");
    world.set(route.0, route.1);
    world.run();
    assert!(world.responses().is_empty() && !in_chip(&mut world), "the members are requested");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2*1 10.0.2.2*1");
    assert!(world.responses().len() == 1 && in_chip(&mut world));
    // No new member is resolved.
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.3.2 ifname=Ethernet3 weight=1");
    world.set(route.0, route.1);
    world.settle();
    assert_eq!(
        world.why("10.1.0.0/16"),
        "members of its next-hop group are not resolved: 10.0.3.2 on Ethernet3"
    );
    assert!(world.responses().is_empty() && !in_chip(&mut world));
    world.neighbor("10.0.3.2");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.3.2*1");
    assert!(world.responses().len() == 1 && in_chip(&mut world));
    assert_eq!(world.calls(ObjectType::RouteEntry), ["Create 10.1.0.0/16 to"]);
}

#[test]
fn an_index_with_one_member_is_its_next_hop() {
    let mut world = world(OrchConfig::default());
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.0.2 ifname=Ethernet0 weight=1");
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=5");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2");
    assert_eq!(world.syncd.chip().count(ObjectType::NextHopGroup), 0);
    // When it means another next hop, or a group, its routes follow.
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.1.2 ifname=Ethernet1 weight=1");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2");
    world.set("NEXTHOP_GROUP_TABLE:5", BOTH);
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2");
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.2.2 ifname=Ethernet2");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.2.2");
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.set("NEXTHOP_GROUP_TABLE:5", "DEL");
    for n in 0..3 {
        world.set(&format!("NEIGH_TABLE:Ethernet{n}:10.0.{n}.2"), "DEL");
    }
    world.settle();
    world.assert_empty();
}

#[test]
fn route_under_way_follows_an_index_that_moves_meanwhile() {
    let mut world = world(OrchConfig::default());
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.0.2 ifname=Ethernet0 weight=1");
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=5");
    world.run();
    assert_eq!(world.calls(ObjectType::RouteEntry), ["Create 10.1.0.0/16 to"]);
    assert_eq!(world.queue.len(), 1, "it has no reply");
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.1.2 ifname=Ethernet1 weight=1");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2");
}

#[test]
fn with_single_groups_an_index_is_a_group_from_the_start() {
    let mut world = world(OrchConfig { single_groups: true, ..OrchConfig::default() });
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.0.2 ifname=Ethernet0");
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=5");
    world.settle();
    world.sent.clear();
    world.set("NEXTHOP_GROUP_TABLE:5", "nexthop=10.0.1.2 ifname=Ethernet1");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2");
    assert!(world.calls(ObjectType::RouteEntry).is_empty());
}

#[test]
fn an_index_is_content_with_the_members_that_are_there() {
    let mut world = world(OrchConfig::default());
    world.set(
        "NEXTHOP_GROUP_TABLE:5",
        "nexthop=10.0.0.2,10.0.1.2,10.0.3.2 ifname=Ethernet0,Ethernet1,Ethernet3",
    );
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop_group=5");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2");
    assert_eq!(world.out.resolve.len(), 1);
    world.neighbor("10.0.3.2");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2 10.0.3.2");
}

#[test]
fn the_temporary_choice_is_by_chance_and_from_the_seed() {
    let choices = |seed| {
        let mut world = world(OrchConfig { group_limit: Some(0), seed, ..OrchConfig::default() });
        for n in 1..=32 {
            world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), BOTH);
        }
        world.settle();
        (1..=32).map(|n| world.forwarding(&format!("10.{n}.0.0/16"))).collect::<Vec<_>>()
    };
    let one = choices(1);
    assert_eq!(one, choices(1));
    assert_ne!(one, choices(2));
    assert!(one.contains(&"10.0.0.2".to_string()) && one.contains(&"10.0.1.2".to_string()));
}

/// orchagent takes so many rows and no more while the chip does nothing: also when it is their group that the chip makes.
#[test]
fn routes_that_wait_for_the_chip_to_make_their_group_count_and_those_without_a_neighbour_do_not() {
    let mut world = world(OrchConfig::default());
    for n in 0..10 {
        world.set(&format!("ROUTE_TABLE:10.1.{n}.0/24"), BOTH);
        world.set(
            &format!("ROUTE_TABLE:10.2.{n}.0/24"),
            "nexthop=10.0.0.9,10.0.1.9 ifname=Ethernet0,Ethernet1",
        );
    }
    world.run();
    assert_eq!((world.orch.backlog(), world.orch.retry_cache_len()), (10, 10));
    // Their neighbours become known, which is requested first.
    for ip in ["10.0.0.9", "10.0.1.9"] {
        world.neighbor(ip);
    }
    world.run();
    // A later route finds all of them waiting for the chip.
    world.set("ROUTE_TABLE:10.2.10.0/24", "nexthop=10.0.0.9,10.0.1.9 ifname=Ethernet0,Ethernet1");
    world.run();
    assert_eq!((world.orch.backlog(), world.orch.retry_cache_len()), (21, 0));
    world.settle();
    assert_eq!((world.orch.backlog(), world.orch.retry_cache_len()), (0, 0));
    for n in 0..11 {
        world.set(&format!("ROUTE_TABLE:10.1.{n}.0/24"), "DEL");
        world.set(&format!("ROUTE_TABLE:10.2.{n}.0/24"), "DEL");
    }
    world.settle();
    assert_eq!((world.orch.backlog(), world.orch.retry_cache_len()), (0, 0));
}
