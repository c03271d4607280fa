//! Single routes: the start, what is taken and what waits, default routes, responses.

use super::chip::Chip;
use super::world::World;
use crate::orch::OrchConfig;
use crate::row::{Change, RouteRow, RouteStateRow, Row};
use crate::sai::{ObjectType, SaiCall, Verb, text};

const VIA_0: &str = "protocol=bgp nexthop=10.0.0.2 ifname=Ethernet0 weight=1";

#[test]
fn the_start_is_a_view_with_four_routes() {
    let mut world = World::bare(OrchConfig::default(), Chip::new());
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    let steps: Vec<String> = world
        .sent
        .iter()
        .map(|r| {
            let message = text::write_request(r);
            format!("{} {}", message.op, message.key)
        })
        .collect();
    assert_eq!(steps[0], "Snotify INIT_VIEW");
    assert_eq!(steps[1], "Screate SAI_OBJECT_TYPE_SWITCH:oid:0x21000000000000");
    assert_eq!(steps.last().unwrap(), "Snotify APPLY_VIEW");
    assert_eq!(
        world.calls(ObjectType::RouteEntry),
        [
            "Create 0.0.0.0/0 drop",
            "Create ::/0 drop",
            "Create fe80::/10 forward+to",
            "Create fe80::ff:fe00:1/128 forward+to"
        ]
    );
    assert_eq!(world.forwarding("fe80::ff:fe00:1"), "cpu");
    assert!(world.out.default_routes.iter().all(|change| change.row.is_some_and(|row| !row.ok)));
    assert_eq!(world.out.capability[0].row.unwrap().max_nexthop_groups, Some(16));
    assert!(world.why("10.1.0.0/16").starts_with("the ports are not ready"));
    // Ports without PortInitDone do not open the gate.
    world.set("PORT_TABLE:Ethernet0", "lanes=0,1");
    world.set("PORT_TABLE:PortConfigDone", "count=1");
    world.settle();
    assert!(!world.orch.ready());
    world.set("PORT_TABLE:PortInitDone", "lanes=0");
    world.settle();
    assert!(world.orch.ready());
    assert!(world.why("10.1.0.0/16").starts_with("next hop 10.0.0.2 on Ethernet0 is not resolved"));
}

#[test]
fn a_start_that_fails_says_so_and_stops() {
    let mut world = World::bare(OrchConfig::default(), Chip::new());
    world.syncd.chip_mut().fail.push((
        ObjectType::Switch,
        crate::sai::Verb::Create,
        crate::sai::Status::Failure,
    ));
    world.run();
    while !world.queue.is_empty() {
        world.answer(0);
        world.run();
    }
    assert_eq!(world.events(), ["syncd did not make the switch: SAI_STATUS_FAILURE; look at syncd's log"]);
}

/// The contract's appendix A, line 7 and 11.
#[test]
fn one_route_on_the_wires() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.settle();
    world.sent.clear();
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    assert_eq!(world.sent.len(), 1);
    let message = text::write_request(&world.sent[0]);
    assert_eq!(message.op, "Sbulkcreate");
    assert_eq!(message.key, "SAI_OBJECT_TYPE_ROUTE_ENTRY:1");
    let vr = world.default_router();
    let hop = world.orch.explain(None, "10.1.0.0/16".parse().unwrap()).unwrap().in_chip.unwrap().oid;
    assert_eq!(
        message.value,
        format!(
            r#"["{{\"dest\":\"10.1.0.0/16\",\"switch_id\":\"oid:0x21000000000000\",\"vr\":\"{vr}\"}}","SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={hop}"]"#
        )
    );
    let key = format!(
        r#"SAI_OBJECT_TYPE_ROUTE_ENTRY:{{"dest":"10.1.0.0/16","switch_id":"oid:0x21000000000000","vr":"{vr}"}}"#
    );
    assert_eq!(world.asic_db[&key]["SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID"], hop.to_string());
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2");
    world.sent.clear();
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.settle();
    let message = text::write_request(&world.sent[0]);
    assert_eq!((&*message.op, &*message.key), ("Sbulkremove", "SAI_OBJECT_TYPE_ROUTE_ENTRY:1"));
    assert!(message.value.ends_with(r#"","" ]"#.replace(' ', "").as_str()));
    assert!(!world.asic_db.contains_key(&key));
    world.assert_db_agrees();
}

#[test]
fn a_route_waits_for_its_neighbour_and_asks_for_it_once() {
    let mut world = World::new(OrchConfig::default());
    for n in 1..=3 {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), VIA_0);
    }
    world.settle();
    assert!(world.sent.is_empty());
    let requested: Vec<String> = world.out.resolve.drain(..).map(|change| format!("{change:?}")).collect();
    assert_eq!(requested, ["NEIGH_RESOLVE_TABLE:Ethernet0:10.0.0.2 SET mac=00:00:00:00:00:00"]);
    // A neighbour that does not answer is no neighbour.
    world.set("NEIGH_TABLE:Ethernet0:10.0.0.2", "neigh=00:00:00:00:00:00 family=IPv4");
    world.settle();
    assert!(world.sent.is_empty() && world.out.resolve.is_empty());
    world.neighbor("10.0.0.2");
    world.settle();
    let requested: Vec<String> = world.out.resolve.drain(..).map(|change| format!("{change:?}")).collect();
    assert_eq!(requested, ["NEIGH_RESOLVE_TABLE:Ethernet0:10.0.0.2 DEL"]);
    assert_eq!(
        world.calls(ObjectType::RouteEntry),
        ["Create 10.1.0.0/16 to, 10.2.0.0/16 to, 10.3.0.0/16 to"]
    );
    // The neighbour goes when the last route has left it, and not before.
    world.set("NEIGH_TABLE:Ethernet0:10.0.0.2", "DEL");
    world.settle();
    assert_eq!(world.syncd.chip().count(ObjectType::NextHop), 1);
    for n in 1..=3 {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), "DEL");
    }
    world.settle();
    world.assert_empty();
}

#[test]
fn a_changed_mac_address_is_one_set() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.settle();
    world.sent.clear();
    world.set("NEIGH_TABLE:Ethernet0:10.0.0.2", "neigh=02:00:00:00:00:99 family=IPv4");
    world.settle();
    assert_eq!(world.calls(ObjectType::NeighborEntry), ["Set 10.0.0.2 02:00:00:00:00:99"]);
}

#[test]
fn a_default_route_is_never_removed() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.settle();
    world.sent.clear();
    world.out.default_routes.clear();
    world.set("ROUTE_TABLE:0.0.0.0/0", VIA_0);
    world.settle();
    assert_eq!(world.calls(ObjectType::RouteEntry), ["Set 0.0.0.0/0 forward, 0.0.0.0/0 to"]);
    assert_eq!(world.forwarding("0.0.0.0/0"), "10.0.0.2");
    world.set("ROUTE_TABLE:0.0.0.0/0", "DEL");
    world.settle();
    assert_eq!(world.calls(ObjectType::RouteEntry), ["Set 0.0.0.0/0 drop, 0.0.0.0/0 null"]);
    assert_eq!(world.forwarding("0.0.0.0/0"), "drop");
    let states: Vec<String> =
        world.out.default_routes.drain(..).map(|change| format!("{change:?}")).collect();
    assert_eq!(states, ["ROUTE_TABLE|0.0.0.0/0 SET state=ok", "ROUTE_TABLE|0.0.0.0/0 SET state=na"]);
    // Deleted and set again before anything was looked at: it forwards, and never dropped in between.
    world.set("ROUTE_TABLE:0.0.0.0/0", VIA_0);
    world.settle();
    world.set("ROUTE_TABLE:0.0.0.0/0", "DEL");
    world.set("ROUTE_TABLE:0.0.0.0/0", "protocol=bgp blackhole=true");
    world.settle();
    assert_eq!(world.forwarding("0.0.0.0/0"), "drop");
    world.set("ROUTE_TABLE:0.0.0.0/0", "DEL");
    world.set("ROUTE_TABLE:0.0.0.0/0", VIA_0);
    world.settle();
    assert_eq!(world.forwarding("0.0.0.0/0"), "10.0.0.2");
    world.set("ROUTE_TABLE:::/0", "DEL");
    world.settle();
    assert_eq!(world.forwarding("::/0"), "drop");
}

#[test]
fn blackholes_and_back() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.set("ROUTE_TABLE:10.1.0.0/16", "protocol=static blackhole=true");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "drop");
    world.set("ROUTE_TABLE:10.1.0.0/16", "blackhole= nexthop=10.0.0.2 ifname=Ethernet0");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2");
    world.set("ROUTE_TABLE:10.1.0.0/16", "blackhole=true");
    world.settle();
    assert_eq!(
        world.calls(ObjectType::RouteEntry),
        [
            "Create 10.1.0.0/16 drop",
            "Set 10.1.0.0/16 forward, 10.1.0.0/16 to",
            "Set 10.1.0.0/16 null, 10.1.0.0/16 drop"
        ]
    );
    world.assert_db_agrees();
}

#[test]
fn interfaces_loopbacks_and_what_is_refused() {
    let mut world = World::with_responses();
    world.set("ROUTE_TABLE:10.0.1.0/24", "protocol=kernel nexthop=0.0.0.0 ifname=Ethernet1");
    world.set("ROUTE_TABLE:10.0.1.7", "protocol=kernel nexthop=0.0.0.0 ifname=Ethernet1");
    world.set("ROUTE_TABLE:fe80::/64", "protocol=kernel nexthop=:: ifname=Ethernet1");
    world.set("ROUTE_TABLE:10.9.0.0/16", "protocol=bgp nexthop=0.0.0.0 ifname=Ethernet9");
    world.set("ROUTE_TABLE:10.8.0.0/16", "protocol=bgp nexthop=10.0.0.2 ifname=Loopback0");
    world.set("ROUTE_TABLE:10.7.0.0/16", "protocol=bgp nexthop_group=3 nexthop=10.0.0.2");
    world.settle();
    assert_eq!(world.forwarding("10.0.1.0/24"), "Ethernet1");
    // Inside of the interface's own subnet, and loopbacks: answered, not programmed.
    assert_eq!(world.forwarding("10.0.1.7"), "-");
    assert_eq!(world.forwarding("10.8.0.0/16"), "-");
    assert_eq!(
        world.responses(),
        [
            r#"["SWSS_RC_SUCCESS","10.0.1.7","err_str","SWSS_RC_SUCCESS","protocol","kernel"]"#,
            r#"["SWSS_RC_SUCCESS","10.8.0.0/16","err_str","SWSS_RC_SUCCESS","protocol","bgp"]"#,
            r#"["SWSS_RC_SUCCESS","10.0.1.0/24","err_str","SWSS_RC_SUCCESS","protocol","kernel"]"#,
        ]
    );
    let events = world.events();
    assert_eq!(events.len(), 2, "{events:?}");
    assert!(world.why("10.9.0.0/16").starts_with("interface Ethernet9 has no router interface"));
    assert_eq!(world.forwarding("10.0.1.1"), "cpu");
}

#[test]
fn equal_rows_are_answered_and_not_sent_and_keys_are_echoed() {
    let mut world = World::with_responses();
    world.neighbor("10.0.0.2");
    world.settle();
    world.sent.clear();
    for _ in 0..2 {
        world.set("ROUTE_TABLE:10.1.0.1/32", VIA_0);
        world.settle();
    }
    world.set("ROUTE_TABLE:10.1.0.1/32", "DEL");
    world.settle();
    // Of a route that is not known, nothing is said.
    world.set("ROUTE_TABLE:10.1.0.1/32", "DEL");
    world.settle();
    assert_eq!(world.calls(ObjectType::RouteEntry), ["Create 10.1.0.1/32 to", "Remove 10.1.0.1/32"]);
    let set = r#"["SWSS_RC_SUCCESS","10.1.0.1/32","err_str","SWSS_RC_SUCCESS","protocol","bgp"]"#;
    let del = r#"["SWSS_RC_SUCCESS","10.1.0.1/32","err_str","SWSS_RC_SUCCESS"]"#;
    assert_eq!(world.responses(), [set, set, del]);
    let mut quiet = World::new(OrchConfig::default());
    quiet.set("ROUTE_TABLE:10.1.0.0/16", "blackhole=true");
    quiet.settle();
    assert!(quiet.responses().is_empty());
}

/// What a new listener gets.
fn in_chip(world: &mut World) -> Vec<String> {
    let mut routes = Vec::new();
    world.orch.in_chip(|vrf, prefix| {
        routes.push(format!("{}{prefix}", vrf.map(|vrf| format!("{vrf}:")).unwrap_or_default()));
    });
    routes.sort();
    routes
}

#[test]
fn what_is_in_the_chip_is_what_nothing_changes_any_more() {
    let mut world = World::with_responses();
    world.set("VRF_TABLE:Vrf1", "NULL=NULL");
    world.neighbor("10.0.0.2");
    world.set("LABEL_ROUTE_TABLE:200", "protocol=ldp mpls_pop=1 nexthop=10.0.0.2 ifname=Ethernet0");
    world.set("ROUTE_TABLE:10.7.0.0/16", "protocol=bgp nexthop=10.0.7.7 ifname=Ethernet0");
    world.settle();
    let own = in_chip(&mut world);
    assert!(!own.iter().any(|route| ["0.0.0.0/0", "::/0", "10.7.0.0/16"].contains(&&**route)), "{own:?}");
    world.set("ROUTE_TABLE:0.0.0.0/0", VIA_0);
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.set("ROUTE_TABLE:Vrf1:10.1.0.0/16", "protocol=bgp blackhole=true");
    world.run();
    assert_eq!(in_chip(&mut world), own, "under way");
    world.settle();
    let more = |routes: &[&str]| {
        let mut all: Vec<String> =
            own.iter().cloned().chain(routes.iter().map(|r| (*r).to_owned())).collect();
        all.sort();
        all
    };
    assert_eq!(in_chip(&mut world), more(&["0.0.0.0/0", "10.1.0.0/16", "Vrf1:10.1.0.0/16"]));
    world.set("ROUTE_TABLE:10.1.0.0/16", "protocol=bgp nexthop=10.0.7.7 ifname=Ethernet0");
    world.set("ROUTE_TABLE:0.0.0.0/0", "DEL");
    world.settle();
    assert_eq!(in_chip(&mut world), more(&["Vrf1:10.1.0.0/16"]), "it waits for its next hop");
}

/// A new listener gets earlier responses again, also where the chip needs no entry for it; what failed was not
/// answered, and is not said though an older row's entry is there.
#[test]
fn new_listener_gets_responses_without_an_entry_and_no_failures() {
    let mut world = World::with_responses();
    world.neighbor("10.0.0.2");
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    let own = in_chip(&mut world);
    let without = ["10.0.0.9/32", "10.8.0.0/16"];
    world.set("ROUTE_TABLE:10.0.0.9/32", "protocol=bgp nexthop=0.0.0.0 ifname=Ethernet0");
    world.set("ROUTE_TABLE:10.8.0.0/16", "protocol=bgp nexthop=10.0.0.2 ifname=Loopback0");
    world.set("ROUTE_TABLE:0.0.0.0/0", "protocol=bgp blackhole=true");
    world.responses();
    world.settle();
    assert_eq!(world.responses().len(), 3);
    let mut all = own.clone();
    all.extend(without.iter().chain(&["0.0.0.0/0"]).map(|route| (*route).to_owned()));
    all.sort();
    assert_eq!(in_chip(&mut world), all);
    assert_eq!(world.forwarding("10.8.0.0/16"), "-", "it has no entry");
    // The entry is that of the earlier row, not of the present one.
    world.set("ROUTE_TABLE:10.1.0.0/16", "protocol=bgp nexthop=10.0.0.2 ifname=Ethernet0 segment=a");
    world.settle();
    assert_eq!((world.forwarding("10.1.0.0/16").as_str(), world.responses().len()), ("10.0.0.2", 0));
    all.retain(|route| route != "10.1.0.0/16");
    assert_eq!(in_chip(&mut world), all);
    // A resync that does not name them, and deletions, end it.
    world.set("ROUTE_TABLE:resync", "nexthop=0.0.0.0");
    world.set("ROUTE_TABLE:10.8.0.0/16", "protocol=bgp nexthop=10.0.0.2 ifname=Loopback0");
    world.settle();
    assert_eq!(
        in_chip(&mut world),
        all,
        "who said it last may wait to hear of it, though it is to be said again"
    );
    world.set("ROUTE_TABLE:resync", "DEL");
    world.settle();
    world.set("ROUTE_TABLE:10.8.0.0/16", "DEL");
    world.settle();
    let left: Vec<String> = own.into_iter().filter(|route| route != "10.1.0.0/16").collect();
    assert_eq!(in_chip(&mut world), left);
}

#[test]
fn changes_behind_a_bulk_under_way_become_one() {
    let mut world = World::new(OrchConfig::default());
    for ip in ["10.0.0.2", "10.0.1.2", "10.0.2.2"] {
        world.neighbor(ip);
    }
    world.settle();
    world.sent.clear();
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.run();
    for n in [1, 2, 1, 2] {
        world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
        world.set("ROUTE_TABLE:10.1.0.0/16", &format!("nexthop=10.0.{n}.2 ifname=Ethernet{n}"));
        world.run();
    }
    world.settle();
    assert_eq!(world.calls(ObjectType::RouteEntry), ["Create 10.1.0.0/16 to", "Set 10.1.0.0/16 to"]);
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.2.2");
}

/// Contract 11.3, checks 1 and 2: shapes that change before the consumer came to look.
#[test]
fn rows_of_two_shapes_coalesce_unless_the_later_one_clears() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.1.2");
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    assert_ne!(world.why("10.1.0.0/16"), "");
    // As SONiC's fpmsyncd: the union of both names a group and next hops, and is refused.
    world.set("ROUTE_TABLE:10.1.0.0/16", "protocol=bgp nexthop_group=7");
    world.settle();
    assert_eq!(
        world.events(),
        ["route 10.1.0.0/16 is not programmed: it names both a next-hop group and next hops"]
    );
    // As ours: what must go is named and empty.
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.set("ROUTE_TABLE:10.1.0.0/16", "protocol=bgp nexthop= ifname= weight= nexthop_group=7");
    world.settle();
    assert_eq!(world.why("10.1.0.0/16"), "NEXTHOP_GROUP_TABLE has no row 7");
    world.set("NEXTHOP_GROUP_TABLE:7", "nexthop=10.0.1.2 ifname=Ethernet1");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2");
}

#[test]
fn a_deleted_route_goes_even_when_what_replaces_it_waits() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    let waits = "nexthop=10.0.1.2 ifname=Ethernet1";
    world.set("ROUTE_TABLE:10.1.0.0/16", waits);
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2");
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.set("ROUTE_TABLE:10.1.0.0/16", waits);
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "-");
    world.neighbor("10.0.1.2");
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.1.2");
}

#[test]
fn an_interface_takes_its_neighbours_to_another_vrf() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.set("VRF_TABLE:Vrf1", "fallback=false");
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2");
    world.set("INTF_TABLE:Ethernet0", "vrf_name=Vrf1");
    world.set("ROUTE_TABLE:Vrf1:10.1.0.0/16", VIA_0);
    world.settle();
    // What is still there keeps it; what comes waits.
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2");
    assert_eq!(world.why("Vrf1:10.1.0.0/16"), "next hop 10.0.0.2 on Ethernet0 is not resolved");
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.settle();
    assert_eq!(world.forwarding("Vrf1:10.1.0.0/16"), "10.0.0.2");
    assert_eq!(world.forwarding("Vrf1:10.0.0.1"), "cpu");
    assert_eq!(world.forwarding("10.0.0.1"), "-");
}

#[test]
fn vrfs() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.set("ROUTE_TABLE:Vrf1:10.1.0.0/16", VIA_0);
    world.set("ROUTE_TABLE:10.1.0.0/16", "blackhole=true");
    world.settle();
    assert_eq!(world.why("Vrf1:10.1.0.0/16"), "VRF Vrf1 is not in VRF_TABLE");
    world.set("VRF_TABLE:Vrf1", "fallback=false");
    world.settle();
    assert_eq!(world.forwarding("Vrf1:10.1.0.0/16"), "10.0.0.2");
    assert_eq!(world.forwarding("10.1.0.0/16"), "drop");
    // Its default route is a route as any other.
    world.set("ROUTE_TABLE:Vrf1:0.0.0.0/0", VIA_0);
    world.set("INTF_TABLE:Ethernet3", "vrf_name=Vrf1");
    world.settle();
    assert_eq!(world.forwarding("Vrf1:10.0.3.1"), "cpu");
    assert_eq!(world.forwarding("10.0.3.1"), "-");
    assert_eq!(world.forwarding("Vrf1:fe80::/10"), "cpu");
    // It goes when the last that is in it has gone.
    world.set("VRF_TABLE:Vrf1", "DEL");
    world.set("ROUTE_TABLE:Vrf1:10.1.0.0/16", "DEL");
    world.set("ROUTE_TABLE:Vrf1:0.0.0.0/0", "DEL");
    world.settle();
    assert_eq!(world.syncd.chip().count(ObjectType::VirtualRouter), 2);
    world.set("INTF_TABLE:Ethernet3:10.0.3.1/24", "DEL");
    world.set("INTF_TABLE:Ethernet3", "DEL");
    world.settle();
    assert_eq!(world.syncd.chip().count(ObjectType::VirtualRouter), 1);
}

#[test]
fn ipv6_and_mixed_families() {
    let mut world = World::new(OrchConfig::default());
    // One link-local address is a neighbour on each of two interfaces.
    for n in 0..2 {
        world.set(&format!("NEIGH_TABLE:Ethernet{n}:fe80::9"), "neigh=02:00:00:00:00:09 family=IPv6");
    }
    world.set("ROUTE_TABLE:2001:db8::/32", "nexthop=fe80::9,fe80::9 ifname=Ethernet0,Ethernet1");
    world.set("ROUTE_TABLE:2001:db8:1::1", "nexthop=fe80::9 ifname=Ethernet1");
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop=fe80::9 ifname=Ethernet1");
    world.set("ROUTE_TABLE:fc00:1::/64", "nexthop=:: ifname=Ethernet2");
    world.set("INTF_TABLE:Ethernet2:fc00:1::1/64", "scope=global family=IPv6");
    world.settle();
    let hops = |world: &World, prefix: &str| {
        let state = world.orch.explain(None, prefix.parse().unwrap()).unwrap();
        assert_eq!(state.waiting, None);
        let hops = state.in_chip.unwrap().hops;
        hops.iter().map(|(ip, ifname, _)| format!("{ip}@{ifname}")).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(hops(&world, "2001:db8::/32"), "fe80::9@Ethernet0 fe80::9@Ethernet1");
    assert_eq!(hops(&world, "2001:db8:1::1"), "fe80::9@Ethernet1");
    assert_eq!(hops(&world, "10.1.0.0/16"), "fe80::9@Ethernet1");
    assert_eq!(world.forwarding("fc00:1::/64"), "Ethernet2");
    assert_eq!(world.forwarding("fc00:1::1"), "cpu");
    assert_eq!(world.syncd.chip().count(ObjectType::NextHop), 2);
    assert_eq!((world.orch.crm().nexthop[1].used, world.orch.crm().neighbor[1].used), (2, 2));
    world.assert_db_agrees();
    for key in ["2001:db8::/32", "2001:db8:1::1", "10.1.0.0/16", "fc00:1::/64"] {
        world.set(&format!("ROUTE_TABLE:{key}"), "DEL");
    }
    for n in 0..2 {
        world.set(&format!("NEIGH_TABLE:Ethernet{n}:fe80::9"), "DEL");
    }
    world.settle();
    world.assert_empty();
}

#[test]
fn an_address_of_the_router_hides_a_route_and_gives_it_back() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.set("ROUTE_TABLE:10.0.2.1", VIA_0);
    world.settle();
    assert_eq!(world.forwarding("10.0.2.1"), "cpu");
    world.set("INTF_TABLE:Ethernet2:10.0.2.1/24", "DEL");
    world.settle();
    assert_eq!(world.forwarding("10.0.2.1"), "10.0.0.2");
    world.set("INTF_TABLE:Loopback0:10.0.2.1/32", "scope=global family=IPv4");
    world.settle();
    assert_eq!(world.forwarding("10.0.2.1"), "cpu");
    world.set("INTF_TABLE:Loopback0:10.0.2.1/32", "DEL");
    world.settle();
    assert_eq!(world.forwarding("10.0.2.1"), "-");
}

#[test]
fn an_interface_goes_after_all_that_is_on_it() {
    let mut world = World::new(OrchConfig::default());
    world.neighbor("10.0.0.2");
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.set("ROUTE_TABLE:10.0.0.0/24", "nexthop=0.0.0.0 ifname=Ethernet0");
    world.settle();
    for key in ["INTF_TABLE:Ethernet0", "INTF_TABLE:Ethernet0:10.0.0.1/24", "NEIGH_TABLE:Ethernet0:10.0.0.2"]
    {
        world.set(key, "DEL");
        world.settle();
    }
    assert_eq!(world.syncd.chip().count(ObjectType::RouterInterface), 4);
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.set("ROUTE_TABLE:10.0.0.0/24", "DEL");
    world.settle();
    assert_eq!(world.syncd.chip().count(ObjectType::RouterInterface), 3);
    world.assert_empty();
}

#[test]
fn what_may_change_of_an_interface_changes() {
    let mut world = World::new(OrchConfig::default());
    world.settle();
    let sent = |world: &mut World| {
        let sets = world.sent.drain(..).filter_map(|request| match request.call {
            SaiCall::One { verb: Verb::Set, object: ObjectType::RouterInterface, item } => {
                Some(item.attrs[0].to_string())
            }
            _ => None,
        });
        sets.collect::<Vec<_>>()
    };
    assert_eq!(sent(&mut world), [""; 0]);
    world.set("INTF_TABLE:Ethernet0", "mpls=enable");
    world.settle();
    assert_eq!(sent(&mut world), ["SAI_ROUTER_INTERFACE_ATTR_ADMIN_MPLS_STATE=true"]);
    world.set("INTF_TABLE:Ethernet0", "mpls=enable mac_addr=02:00:00:00:00:09");
    world.settle();
    assert_eq!(sent(&mut world), ["SAI_ROUTER_INTERFACE_ATTR_SRC_MAC_ADDRESS=02:00:00:00:00:09"]);
    world.assert_db_agrees();
    world.set("INTF_TABLE:Ethernet0", "mpls=disable");
    world.settle();
    assert_eq!(sent(&mut world), ["SAI_ROUTER_INTERFACE_ATTR_ADMIN_MPLS_STATE=false"]);
    // A route that is made again is reported at once.
    for row in ["DEL", "mpls=enable"] {
        world.set("INTF_TABLE:Ethernet0:10.0.0.1/24", "DEL");
        world.set("INTF_TABLE:Ethernet0", row);
        world.settle();
    }
    assert_eq!(sent(&mut world), [""; 0]);
    let rows = world.asic_db.iter().filter(|(key, _)| key.contains("ROUTER_INTERFACE"));
    let mpls = rows.filter(|(_, row)| {
        row.get("SAI_ROUTER_INTERFACE_ATTR_ADMIN_MPLS_STATE").is_some_and(|mpls| mpls == "true")
    });
    assert_eq!(mpls.count(), 1);
}

#[test]
fn a_resync_removes_what_is_not_said_again() {
    let mut world = World::new(OrchConfig::default());
    for n in 1..=3 {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), "blackhole=true");
    }
    world.set("ROUTE_TABLE:10.4.0.0/16", VIA_0);
    world.settle();
    world.sent.clear();
    world.set("ROUTE_TABLE:resync", "nexthop=0.0.0.0");
    world.set("ROUTE_TABLE:10.2.0.0/16", "blackhole=true");
    world.set("ROUTE_TABLE:10.5.0.0/16", "blackhole=true");
    world.set("ROUTE_TABLE:10.6.0.0/16", "blackhole=true");
    world.set("ROUTE_TABLE:10.6.0.0/16", "DEL");
    world.settle();
    // What is said is done at once, and what is not stays until the end.
    assert_eq!(world.calls(ObjectType::RouteEntry), ["Create 10.5.0.0/16 drop"]);
    assert_eq!(world.why("10.1.0.0/16"), "a resync is not over");
    assert_eq!(world.why("10.2.0.0/16"), "");
    world.sent.clear();
    world.set("ROUTE_TABLE:resync", "DEL");
    world.settle();
    let calls = world.calls(ObjectType::RouteEntry);
    assert_eq!(calls, ["Remove 10.1.0.0/16, 10.3.0.0/16"]);
    assert_eq!((world.why("10.4.0.0/16"), world.orch.idle()), (String::new(), true));
}

/// The keys of responses, sorted; they are gone then.
fn keys(responses: &mut Vec<Change<RouteStateRow>>) -> Vec<String> {
    let text = |response: Change<RouteStateRow>| {
        let mut text = String::new();
        RouteRow::key_text(&response.key, &mut text);
        text
    };
    let mut keys: Vec<String> = responses.drain(..).map(text).collect();
    keys.sort();
    keys
}

/// Of rows that were there at the start it is said that they are in the chip; an answer is for a row that came since.
#[test]
fn what_was_found_is_no_answer_to_what_comes_after_it() {
    let mut world = World::with_responses();
    world.neighbor("10.0.0.2");
    world.settle();
    for key in ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16"] {
        let row = RouteRow::from_fields(&mut VIA_0.split(' ').filter_map(|pair| pair.split_once('=')));
        world.orch.found_route(RouteRow::parse_key(key).unwrap(), row.unwrap());
    }
    // One route changes before its request, one during it.
    world.set("ROUTE_TABLE:10.1.0.0/16", "protocol=bgp blackhole=true");
    world.run();
    world.set("ROUTE_TABLE:10.2.0.0/16", "protocol=bgp blackhole=true");
    world.settle();
    assert_eq!(keys(&mut world.out.responses), ["10.1.0.0/16", "10.2.0.0/16"]);
    // The chip does not have the last of 10.2.0.0/16 when it has the one that was found.
    assert_eq!(keys(&mut world.out.found), ["10.3.0.0/16"]);
}

/// What was taken in before a listener connected counts as found; a row that came since is answered.
#[test]
fn what_came_before_who_listens_is_no_answer_to_what_came_after() {
    let mut world = World::with_responses();
    let own = in_chip(&mut world);
    // Under way; under way with another behind it; and waiting.
    for n in [1, 2, 3, 4] {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), "protocol=bgp blackhole=true");
    }
    world.set("ROUTE_TABLE:10.5.0.0/16", VIA_0);
    world.set("ROUTE_TABLE:10.6.0.0/16", VIA_0);
    world.run();
    world.set("ROUTE_TABLE:10.2.0.0/16", "protocol=bgp blackhole=true");
    world.set("ROUTE_TABLE:10.3.0.0/16", VIA_0);
    assert_eq!(in_chip(&mut world), own);
    world.set("ROUTE_TABLE:10.4.0.0/16", "protocol=bgp blackhole=true");
    world.set("ROUTE_TABLE:10.6.0.0/16", VIA_0);
    world.neighbor("10.0.0.2");
    world.settle();
    assert_eq!(keys(&mut world.out.found), ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.5.0.0/16"]);
    assert_eq!(keys(&mut world.out.responses), ["10.4.0.0/16", "10.6.0.0/16"]);
}

#[test]
fn what_is_said_again_is_answered_when_it_is_news() {
    let mut world = World::new(OrchConfig { responses: true, bulk_size: 2, ..OrchConfig::default() });
    world.neighbor("10.0.0.2");
    world.settle();
    for n in 1..=4 {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), VIA_0);
    }
    world.settle();
    world.sent.clear();
    world.out.responses.clear();
    world.set("ROUTE_TABLE:resync", "nexthop=0.0.0.0");
    // As the chip has it; otherwise; not there; and as it is on its way.
    world.set("ROUTE_TABLE:resync:10.1.0.0/16", VIA_0);
    world.set("ROUTE_TABLE:resync:10.2.0.0/16", "blackhole=true protocol=bgp");
    world.set("ROUTE_TABLE:resync:10.5.0.0/16", "blackhole=true protocol=bgp");
    world.set("ROUTE_TABLE:10.3.0.0/16", "blackhole=true protocol=bgp");
    world.set("ROUTE_TABLE:resync:10.3.0.0/16", "blackhole=true protocol=bgp");
    world.settle();
    assert_eq!(keys(&mut world.out.responses), ["10.3.0.0/16"]);
    assert_eq!(
        keys(&mut world.out.found),
        ["10.2.0.0/16", "10.5.0.0/16"],
        "who says it again waits for no answer"
    );
    // A request for what there is already is answered, resync or not.
    world.set("ROUTE_TABLE:10.1.0.0/16", VIA_0);
    world.settle();
    assert_eq!(keys(&mut world.out.responses), ["10.1.0.0/16"]);
    world.set("ROUTE_TABLE:resync:10.1.0.0/16", VIA_0);
    world.set("ROUTE_TABLE:resync", "DEL");
    world.settle();
    assert_eq!(keys(&mut world.out.responses), ["10.4.0.0/16"]);
    assert_eq!(world.forwarding("10.4.0.0/16"), "-");
    assert!(
        ["10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16", "10.5.0.0/16"]
            .iter()
            .all(|it| world.forwarding(it) != "-")
    );
}

#[test]
fn bulks_are_cut_and_sorted() {
    let mut world = World::new(OrchConfig { bulk_size: 3, ..OrchConfig::default() });
    for n in [5, 3, 1, 4, 2] {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), "blackhole=true");
    }
    world.settle();
    let calls = world.calls(ObjectType::RouteEntry);
    assert_eq!(
        calls,
        [
            "Create 10.1.0.0/16 drop, 10.3.0.0/16 drop, 10.5.0.0/16 drop",
            "Create 10.2.0.0/16 drop, 10.4.0.0/16 drop"
        ]
    );
    let mut unsorted = World::new(OrchConfig { bulk_size: 3, sort_routes: false, ..OrchConfig::default() });
    unsorted.settle();
    unsorted.sent.clear();
    for n in [5, 3, 1] {
        unsorted.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), "blackhole=true");
    }
    unsorted.settle();
    let calls = unsorted.calls(ObjectType::RouteEntry);
    assert_eq!(calls, ["Create 10.5.0.0/16 drop, 10.3.0.0/16 drop, 10.1.0.0/16 drop"]);
    assert!(world.orch.crm().route[0].used >= 5);
    let mut fields = Vec::new();
    world.orch.crm().fields(&mut |field, value| fields.push(format!("{field}={value}")));
    assert!(fields.iter().any(|f| f.starts_with("crm_stats_ipv4_route_used=")), "{fields:?}");
    world.tick(1);
    let crm = world.orch.crm();
    assert!(crm.route[0].available.is_some());
    assert_eq!((crm.mpls_inseg.available, crm.mpls_nexthop.available), (Some(u32::MAX), Some(7)));
}

#[test]
fn only_as_many_requests_are_under_way_as_the_window_allows() {
    for window in [1, 3] {
        let mut world = World::new(OrchConfig { bulk_size: 1, window, ..OrchConfig::default() });
        for n in 1..=5 {
            world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), "blackhole=true");
        }
        world.run();
        assert_eq!(world.queue.len(), window);
        assert!(world.queue.iter().all(|r| matches!(r.call, SaiCall::Bulk { .. })));
        world.settle();
    }
}

#[test]
fn syncd_alone_starts_again_from_the_database() {
    let mut world = World::new(OrchConfig::default());
    for ip in ["10.0.0.2", "10.0.1.2"] {
        world.neighbor(ip);
    }
    world.set("ROUTE_TABLE:10.1.0.0/16", "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1");
    world.set("ROUTE_TABLE:0.0.0.0/0", VIA_0);
    world.settle();
    let before = world.asic_db.clone();
    let rows = before.iter().map(|(key, row)| {
        let (object, id) = text::read_row_key(key).unwrap();
        (object, id, row.iter().filter_map(|(f, v)| text::read_field(f, v).unwrap()).collect())
    });
    let rows: Vec<_> = rows.collect();
    world.syncd = crate::syncd::Syncd::new(Chip::new(), Box::new(world.vids.clone()));
    world.rid_of.clear();
    let mut out = crate::syncd::SyncdOut::default();
    let hidden = world.hidden.clone();
    world.syncd.recreate(rows, &hidden, &mut out);
    assert_eq!(out.events, [""; 0]);
    world.write_rows(out.rows);
    assert_eq!(world.asic_db, before);
    assert_eq!(world.forwarding("10.1.0.0/16"), "10.0.0.2 10.0.1.2");
    assert_eq!(world.forwarding("0.0.0.0/0"), "10.0.0.2");
    world.assert_db_agrees();
    // And orchagent goes on.
    world.set("ROUTE_TABLE:10.1.0.0/16", "DEL");
    world.set("ROUTE_TABLE:10.2.0.0/16", VIA_0);
    world.settle();
    assert_eq!(
        (world.forwarding("10.1.0.0/16").as_str(), world.forwarding("10.2.0.0/16").as_str()),
        ("-", "10.0.0.2")
    );
    world.assert_db_agrees();
}

#[test]
fn orchagent_restart_describes_everything_again() {
    let mut world = World::new(OrchConfig::default());
    world.set("ROUTE_TABLE:10.1.0.0/16", "blackhole=true");
    world.settle();
    world.orch = crate::orch::Orch::new(OrchConfig::default(), Box::new(world.vids.clone()));
    world.ports();
    world.set("ROUTE_TABLE:10.2.0.0/16", "blackhole=true");
    world.settle();
    assert_eq!(
        (world.forwarding("10.1.0.0/16").as_str(), world.forwarding("10.2.0.0/16").as_str()),
        ("-", "drop")
    );
    world.assert_db_agrees();
    let mut text = String::new();
    RouteRow::key_text(&crate::row::RouteKey::Resync, &mut text);
    assert_eq!(text, "resync");
}

/// With its row deleted and written again, at once and when a request is under way.
#[test]
fn link_local_addresses_of_a_vrf_that_comes_back_go_to_the_cpu() {
    for settles in [false, true] {
        for used in [false, true] {
            let mut world = World::new(OrchConfig::default());
            world.neighbor("10.0.0.2");
            world.set("VRF_TABLE:Vrf1", "fallback=false");
            if used {
                world.set("ROUTE_TABLE:Vrf1:10.1.0.0/16", VIA_0);
            }
            world.settle();
            world.set("VRF_TABLE:Vrf1", "DEL");
            if settles {
                world.settle();
            }
            world.set("VRF_TABLE:Vrf1", "fallback=false");
            world.settle();
            assert_eq!(world.forwarding("Vrf1:fe80::/10"), "cpu", "settles {settles}, used {used}");
            assert_eq!(world.restart_warm(&[]), 0);
        }
    }
}
