//! LAGs, VLANs and sub-interfaces under router interfaces. `Chip::lane` numbers them: 102 is a LAG that
//! sends through two ports, 1010 is VLAN 10, and 10,000 for each number of a tag is added.

use super::chip::Chip;
use super::world::World;
use crate::orch::OrchConfig;
use crate::sai::{Attr, ObjectType, SaiCall, Verb};
use ribtide_prefix::Rng;

/// A world with ports and no interfaces.
fn world() -> World {
    let mut world = World::bare(OrchConfig { window: 4, ..OrchConfig::default() }, Chip::new());
    world.ports();
    world.settle();
    world.sent.clear();
    world
}

/// A LAG of Ethernet2 and Ethernet3, routed; Ethernet0 is routed too, with a neighbour on each.
const LAG_ROWS: [(&str, &str); 9] = [
    ("LAG_TABLE:PortChannel1", "admin_status=up oper_status=up mtu=9100 tpid=0x8100"),
    ("LAG_MEMBER_TABLE:PortChannel1:Ethernet2", "status=enabled"),
    ("LAG_MEMBER_TABLE:PortChannel1:Ethernet3", "status=enabled"),
    ("INTF_TABLE:PortChannel1", "NULL=NULL mac_addr=00:00:00:00:00:00"),
    ("INTF_TABLE:PortChannel1:10.0.25.1/24", "scope=global family=IPv4"),
    ("INTF_TABLE:Ethernet0", "NULL=NULL"),
    ("NEIGH_TABLE:PortChannel1:10.0.25.2", "neigh=02:00:00:00:25:02 family=IPv4"),
    ("NEIGH_TABLE:Ethernet0:10.0.0.2", "neigh=02:00:00:00:00:02 family=IPv4"),
    ("ROUTE_TABLE:10.9.0.0/16", "nexthop=10.0.0.2,10.0.25.2 ifname=Ethernet0,PortChannel1"),
];

fn set_all(world: &mut World, rows: &[(&str, &str)]) {
    rows.iter().for_each(|(key, text)| world.set(key, text));
    world.settle();
}

/// The attributes with which objects of a type were created, in order.
fn created(world: &World, of: ObjectType) -> Vec<Vec<String>> {
    let mut all = Vec::new();
    for request in &world.sent {
        match &request.call {
            SaiCall::One { verb: Verb::Create, object, item } if *object == of => {
                all.push(
                    item.attrs
                        .iter()
                        .map(|attr| match attr {
                            // Ids differ.
                            attr if !attr.clone().oids_mut().is_empty() => attr.name().to_owned(),
                            attr => attr.to_string(),
                        })
                        .collect(),
                );
            }
            SaiCall::Bulk { object, .. } => assert_ne!(*object, of, "single requests"),
            _ => {}
        }
    }
    all
}

#[test]
fn ecmp_over_a_port_and_a_lag_has_both() {
    let mut world = world();
    set_all(&mut world, &LAG_ROWS);
    assert_eq!(world.forwarding("10.9.0.0/16"), "10.0.0.2 10.0.25.2@102");
    assert_eq!(world.forwarding("10.0.25.1/32"), "cpu");
    // What SONiC's orchagent creates (`addLag`, `addLagMember`, `addRouterIntfs`).
    assert_eq!(created(&world, ObjectType::Lag), [Vec::<String>::new()]);
    let member = ["SAI_LAG_MEMBER_ATTR_LAG_ID", "SAI_LAG_MEMBER_ATTR_PORT_ID"].map(String::from).to_vec();
    assert_eq!(created(&world, ObjectType::LagMember), [member.clone(), member]);
    let rif = &created(&world, ObjectType::RouterInterface)[0];
    let on_lag = created(&world, ObjectType::RouterInterface).into_iter().find(|attrs| attrs.len() == 5);
    assert_eq!(
        on_lag.unwrap(),
        [
            "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID",
            "SAI_ROUTER_INTERFACE_ATTR_SRC_MAC_ADDRESS=02:00:00:00:00:01",
            "SAI_ROUTER_INTERFACE_ATTR_TYPE=SAI_ROUTER_INTERFACE_TYPE_PORT",
            "SAI_ROUTER_INTERFACE_ATTR_PORT_ID",
            "SAI_ROUTER_INTERFACE_ATTR_MTU=9100",
        ],
        "{rif:?}"
    );
    assert_eq!(world.events(), [""; 0]);
}

#[test]
fn lag_is_down_when_its_row_says_so_or_no_member_has_a_link() {
    let mut world = world();
    set_all(&mut world, &LAG_ROWS);
    let both = "10.0.0.2 10.0.25.2@102";
    let is = |world: &mut World, wanted: &str| {
        world.settle();
        assert_eq!(world.forwarding("10.9.0.0/16"), wanted);
    };
    world.set("LAG_TABLE:PortChannel1", "oper_status=down");
    is(&mut world, "10.0.0.2");
    world.set("LAG_TABLE:PortChannel1", "oper_status=up");
    is(&mut world, both);
    world.sent.clear();
    world.link(2, false);
    is(&mut world, both);
    assert_eq!(world.sent.len(), 0, "the chip does not send through it");
    world.link(3, false);
    is(&mut world, "10.0.0.2");
    world.link(2, true);
    is(&mut world, both);
    world.set("LAG_MEMBER_TABLE:PortChannel1:Ethernet2", "status=disabled");
    is(&mut world, "10.0.0.2");
    // It is disabled to send before to receive, and enabled the other way round.
    assert_eq!(world.calls(ObjectType::LagMember), ["Set oid true", "Set oid true"]);
    world.set("LAG_MEMBER_TABLE:PortChannel1:Ethernet2", "status=enabled");
    is(&mut world, both);
    let sets: Vec<Attr> = (world.sent.iter())
        .filter_map(|request| match &request.call {
            SaiCall::One { object: ObjectType::LagMember, item, .. } => item.attrs.first().cloned(),
            _ => None,
        })
        .collect();
    assert_eq!(sets, [Attr::LagMemberIngressDisable(false), Attr::LagMemberEgressDisable(false)]);
}

#[test]
fn member_that_is_not_selected_is_created_disabled() {
    let mut world = world();
    world.set("LAG_MEMBER_TABLE:PortChannel1:Ethernet2", "status=disabled");
    world.set("LAG_TABLE:PortChannel1", "admin_status=up");
    world.settle();
    let attrs = [
        "SAI_LAG_MEMBER_ATTR_LAG_ID",
        "SAI_LAG_MEMBER_ATTR_PORT_ID",
        "SAI_LAG_MEMBER_ATTR_EGRESS_DISABLE=true",
        "SAI_LAG_MEMBER_ATTR_INGRESS_DISABLE=true",
    ];
    assert_eq!(created(&world, ObjectType::LagMember), [attrs.map(String::from).to_vec()]);
    assert!(world.calls(ObjectType::LagMember).iter().all(|call| call.starts_with("Create")));
}

#[test]
fn vlan_neighbour_needs_no_fdb_row_and_members_are_bridge_ports() {
    let mut world = world();
    set_all(
        &mut world,
        &[
            ("VLAN_TABLE:Vlan10", "admin_status=up mtu=9100 mac=02:00:00:00:10:10"),
            ("VLAN_MEMBER_TABLE:Vlan10:Ethernet1", "tagging_mode=untagged"),
            ("VLAN_MEMBER_TABLE:Vlan10:Ethernet2", "tagging_mode=tagged"),
            ("INTF_TABLE:Vlan10", "NULL=NULL"),
            ("NEIGH_TABLE:Vlan10:10.0.10.2", "neigh=02:00:00:00:10:02 family=IPv4"),
            ("ROUTE_TABLE:10.9.0.0/16", "nexthop=10.0.10.2 ifname=Vlan10"),
        ],
    );
    assert_eq!(world.forwarding("10.9.0.0/16"), "10.0.10.2@1010");
    assert_eq!(created(&world, ObjectType::Vlan), [["SAI_VLAN_ATTR_VLAN_ID=10"]]);
    let bridge_port = [
        "SAI_BRIDGE_PORT_ATTR_TYPE=SAI_BRIDGE_PORT_TYPE_PORT",
        "SAI_BRIDGE_PORT_ATTR_PORT_ID",
        "SAI_BRIDGE_PORT_ATTR_ADMIN_STATE=true",
        "SAI_BRIDGE_PORT_ATTR_FDB_LEARNING_MODE=SAI_BRIDGE_PORT_FDB_LEARNING_MODE_HW",
    ];
    assert_eq!(created(&world, ObjectType::BridgePort), [bridge_port, bridge_port]);
    let modes: Vec<String> =
        created(&world, ObjectType::VlanMember).into_iter().map(|mut attrs| attrs.pop().unwrap()).collect();
    let mode = |name: &str| format!("SAI_VLAN_MEMBER_ATTR_VLAN_TAGGING_MODE=SAI_VLAN_TAGGING_MODE_{name}");
    assert_eq!(modes, [mode("UNTAGGED"), mode("TAGGED")]);
    assert_eq!(
        created(&world, ObjectType::RouterInterface),
        [[
            "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID",
            "SAI_ROUTER_INTERFACE_ATTR_SRC_MAC_ADDRESS=02:00:00:00:10:10",
            "SAI_ROUTER_INTERFACE_ATTR_TYPE=SAI_ROUTER_INTERFACE_TYPE_VLAN",
            "SAI_ROUTER_INTERFACE_ATTR_VLAN_ID",
            "SAI_ROUTER_INTERFACE_ATTR_MTU=9100",
        ]]
    );
    let untagged = |world: &World| {
        let ports = world.syncd.chip().objects.values().filter(|(kind, _)| *kind == ObjectType::Port);
        ports.filter(|(_, attrs)| attrs.contains(&Attr::PortVlan(10))).count()
    };
    assert_eq!(untagged(&world), 1);
    // The last VLAN takes the bridge port with it, after it was taken down.
    world.sent.clear();
    world.set("VLAN_MEMBER_TABLE:Vlan10:Ethernet1", "DEL");
    world.settle();
    assert_eq!((world.syncd.chip().count(ObjectType::BridgePort), untagged(&world)), (1, 0));
    assert_eq!(world.calls(ObjectType::BridgePort), ["Set oid false", "Remove oid"]);
}

#[test]
fn sub_interfaces_lie_on_tags_of_ports_and_lags_and_share_their_links() {
    let mut world = world();
    set_all(
        &mut world,
        &[
            ("INTF_TABLE:Ethernet0.10", "vlan=10 admin_status=up mtu=1500"),
            ("INTF_TABLE:Po1.20", "vlan=20 admin_status=up"),
            ("LAG_TABLE:PortChannel1", "oper_status=up mtu=9000"),
            ("LAG_MEMBER_TABLE:PortChannel1:Ethernet2", "status=enabled"),
            ("NEIGH_TABLE:Ethernet0.10:10.0.3.2", "neigh=02:00:00:00:00:02 family=IPv4"),
            ("NEIGH_TABLE:Po1.20:10.0.4.2", "neigh=02:00:00:00:00:03 family=IPv4"),
            ("ROUTE_TABLE:10.9.0.0/16", "nexthop=10.0.3.2,10.0.4.2 ifname=Ethernet0.10,Po1.20"),
        ],
    );
    assert_eq!(world.forwarding("10.9.0.0/16"), "10.0.3.2@100000 10.0.4.2@200101");
    let rifs = created(&world, ObjectType::RouterInterface);
    assert_eq!(
        rifs[0],
        [
            "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID",
            "SAI_ROUTER_INTERFACE_ATTR_SRC_MAC_ADDRESS=02:00:00:00:00:01",
            "SAI_ROUTER_INTERFACE_ATTR_TYPE=SAI_ROUTER_INTERFACE_TYPE_SUB_PORT",
            "SAI_ROUTER_INTERFACE_ATTR_PORT_ID",
            "SAI_ROUTER_INTERFACE_ATTR_OUTER_VLAN_ID=10",
            "SAI_ROUTER_INTERFACE_ATTR_ADMIN_V4_STATE=true",
            "SAI_ROUTER_INTERFACE_ATTR_ADMIN_V6_STATE=true",
            "SAI_ROUTER_INTERFACE_ATTR_MTU=1500",
        ]
    );
    assert_eq!(rifs[1].last().unwrap(), "SAI_ROUTER_INTERFACE_ATTR_MTU=9000", "that of its parent");
    world.link(0, false);
    world.settle();
    assert_eq!(world.forwarding("10.9.0.0/16"), "10.0.4.2@200101");
    world.link(0, true);
    world.link(2, false);
    world.settle();
    assert_eq!(world.forwarding("10.9.0.0/16"), "10.0.3.2@100000");
    // The parent's MTU passes on; the administrative state is that of the sub-interface.
    world.sent.clear();
    world.set("LAG_TABLE:PortChannel1", "mtu=8000");
    world.set("INTF_TABLE:Ethernet0.10", "admin_status=down");
    world.settle();
    let mut sets = world.calls(ObjectType::RouterInterface);
    sets.sort();
    assert_eq!(sets, ["Set oid 8000", "Set oid false", "Set oid false"]);
}

#[test]
fn sub_interface_without_a_tag_or_on_a_vlan_is_refused_with_the_reason() {
    let mut world = world();
    set_all(
        &mut world,
        &[
            ("INTF_TABLE:Ethernet0.10", "admin_status=up"),
            ("INTF_TABLE:Vlan100.5", "admin_status=up vlan=5"),
            ("INTF_TABLE:Ethernet1", "vnet_name=Vnet1"),
            ("ROUTE_TABLE:10.9.0.0/16", "nexthop=10.0.5.2 ifname=Vlan100.5"),
            ("ROUTE_TABLE:10.8.0.0/16", "nexthop=10.0.5.2,10.0.1.2 ifname=Vlan100.5,Ethernet2"),
            ("ROUTE_TABLE:10.7.0.0/16", "nexthop=0.0.0.0 ifname=Ethernet0.10"),
        ],
    );
    assert_eq!(
        world.events(),
        [
            "interface Ethernet0.10 is not programmed: its row has no vlan, the tag of the sub-interface",
            "interface Ethernet1 is not programmed: its row names a VNET (vnet_name), and VNETs are not programmed",
            "interface Vlan100.5 is not programmed: sub-interfaces of VLANs are not programmed; route on the VLAN itself",
        ]
    );
    let on_vlan = "interface Vlan100.5 is not programmed: sub-interfaces of VLANs are not programmed; route on the VLAN itself";
    assert_eq!(world.why("10.9.0.0/16"), on_vlan);
    assert_eq!(world.why("10.8.0.0/16"), on_vlan);
    assert!(
        world.why("10.7.0.0/16").starts_with("interface Ethernet0.10 is not programmed: its row has no vlan")
    );
    // A row that is right at last is taken.
    world.set("INTF_TABLE:Ethernet0.10", "vlan=10");
    world.settle();
    assert_eq!(world.why("10.7.0.0/16"), "");
    assert_eq!(world.events(), [""; 0]);
}

#[test]
fn port_has_one_use_at_a_time() {
    let mut world = world();
    world.set("INTF_TABLE:Ethernet2", "NULL=NULL");
    world.settle();
    world.set("LAG_TABLE:PortChannel1", "oper_status=up");
    world.set("LAG_MEMBER_TABLE:PortChannel1:Ethernet2", "status=enabled");
    world.settle();
    let count = |world: &World, of| world.syncd.chip().count(of);
    assert_eq!(count(&world, ObjectType::LagMember), 0, "it is routed");
    world.set("INTF_TABLE:Ethernet2", "DEL");
    world.settle();
    assert_eq!(count(&world, ObjectType::LagMember), 1);
    world.set("VLAN_TABLE:Vlan10", "admin_status=up");
    world.set("VLAN_MEMBER_TABLE:Vlan10:Ethernet2", "tagging_mode=tagged");
    world.settle();
    assert_eq!(count(&world, ObjectType::VlanMember), 0, "it is in a LAG");
    // Another LAG, before the rows of the first are gone.
    world.set("LAG_TABLE:PortChannel2", "oper_status=up");
    world.set("LAG_MEMBER_TABLE:PortChannel2:Ethernet2", "status=enabled");
    world.settle();
    assert_eq!(count(&world, ObjectType::LagMember), 1);
    world.set("LAG_MEMBER_TABLE:PortChannel2:Ethernet2", "DEL");
    world.set("LAG_MEMBER_TABLE:PortChannel1:Ethernet2", "DEL");
    world.settle();
    assert_eq!((count(&world, ObjectType::LagMember), count(&world, ObjectType::VlanMember)), (0, 1));
}

/// As in one process, where each interface of the configuration is a port of its name.
#[test]
fn port_may_be_named_as_a_sub_interface() {
    let mut world = World::bare(OrchConfig::default(), Chip::new());
    world.set("PORT_TABLE:Ethernet0.7", "lanes=0,1 speed=100000 admin_status=up");
    world.set("PORT_TABLE:PortConfigDone", "count=1");
    world.set("PORT_TABLE:PortInitDone", "lanes=0");
    world.set("INTF_TABLE:Ethernet0.7", "NULL=NULL");
    world.set("NEIGH_TABLE:Ethernet0.7:10.0.0.2", "neigh=02:00:00:00:00:02 family=IPv4");
    world.set("ROUTE_TABLE:10.9.0.0/16", "nexthop=10.0.0.2 ifname=Ethernet0.7");
    world.settle();
    assert_eq!((world.forwarding("10.9.0.0/16").as_str(), world.events().len()), ("10.0.0.2", 0));
    world.link(0, false);
    world.set("ROUTE_TABLE:10.8.0.0/16", "nexthop=10.0.0.2 ifname=Ethernet0.7");
    world.settle();
    assert_eq!(world.why("10.8.0.0/16"), "the link of next hop 10.0.0.2, Ethernet0.7, is down");
}

/// Rows of everything at once.
const ALL_ROWS: [(&str, &str); 8] = [
    ("VLAN_TABLE:Vlan10", "admin_status=up mtu=9100"),
    ("VLAN_MEMBER_TABLE:Vlan10:Ethernet1", "tagging_mode=untagged"),
    ("INTF_TABLE:Vlan10", "NULL=NULL"),
    ("NEIGH_TABLE:Vlan10:10.0.10.2", "neigh=02:00:00:00:10:02 family=IPv4"),
    ("INTF_TABLE:PortChannel1.30", "vlan=30 admin_status=up"),
    ("NEIGH_TABLE:PortChannel1.30:10.0.30.2", "neigh=02:00:00:00:30:02 family=IPv4"),
    (
        "ROUTE_TABLE:10.8.0.0/16",
        "nexthop=10.0.10.2,10.0.30.2,10.0.25.2 ifname=Vlan10,PortChannel1.30,PortChannel1",
    ),
    ("ROUTE_TABLE:10.7.0.0/16", "nexthop=10.0.30.2 ifname=PortChannel1.30"),
];

fn shuffled(rng: &mut Rng) -> Vec<(&'static str, &'static str)> {
    let mut rows: Vec<_> = LAG_ROWS.into_iter().chain(ALL_ROWS).collect();
    for n in (1..rows.len()).rev() {
        rows.swap(n, rng.index(n + 1));
    }
    rows
}

#[test]
fn rows_come_and_go_in_any_order_and_nothing_is_left() {
    let of_these = [
        ObjectType::Lag,
        ObjectType::LagMember,
        ObjectType::Vlan,
        ObjectType::BridgePort,
        ObjectType::VlanMember,
        ObjectType::RouterInterface,
    ];
    for seed in 0..60 {
        let mut rng = Rng::new(seed);
        let mut world = world();
        if seed % 3 == 0 {
            world.syncd.chip_mut().moody = Some((4, Rng::new(seed)));
        }
        for (key, text) in shuffled(&mut rng) {
            world.set(key, text);
            if rng.one_in(2) {
                world.settle();
            }
        }
        world.settle();
        world.syncd.chip_mut().moody = None;
        (0..70).for_each(|_| world.tick(1000));
        assert_eq!(world.forwarding("10.9.0.0/16"), "10.0.0.2 10.0.25.2@102", "seed {seed}");
        assert_eq!(
            world.forwarding("10.8.0.0/16"),
            "10.0.10.2@1010 10.0.25.2@102 10.0.30.2@300102",
            "seed {seed}"
        );
        world.assert_db_agrees();
        for (key, _) in shuffled(&mut rng) {
            world.set(key, "DEL");
            if rng.one_in(2) {
                world.settle();
            }
        }
        world.settle();
        for object in of_these {
            assert_eq!(world.syncd.chip().count(object), 0, "seed {seed}: {object:?}");
        }
        world.assert_empty();
        world.assert_db_agrees();
    }
}

#[test]
fn warm_start_recognises_lags_vlans_and_sub_interfaces() {
    let mut world = world();
    let rows: Vec<_> = LAG_ROWS.into_iter().chain(ALL_ROWS).collect();
    set_all(&mut world, &rows);
    // A second LAG, which differs from the first by its port alone, and one without any.
    set_all(
        &mut world,
        &[
            ("LAG_TABLE:PortChannel0", "oper_status=up"),
            ("LAG_TABLE:PortChannel2", "oper_status=up"),
            ("VRF_TABLE:Vrf1", "NULL=NULL"),
            ("INTF_TABLE:PortChannel2", "vrf_name=Vrf1"),
            ("VRF_TABLE:Vrf2", "NULL=NULL"),
            ("INTF_TABLE:PortChannel1.31", "vlan=31 admin_status=up vrf_name=Vrf2"),
        ],
    );
    let (rows, rids) = (world.asic_db.clone(), world.rid_of.clone());
    for _ in 0..3 {
        assert_eq!(world.restart_warm(&[]), 0);
        assert_eq!((&world.asic_db, &world.rid_of), (&rows, &rids));
    }
    // What changed meanwhile is all that is done: a member, and its two attributes.
    assert_eq!(world.restart_warm(&[("LAG_MEMBER_TABLE:PortChannel1:Ethernet3", "status=disabled")]), 2);
    assert_eq!(world.forwarding("10.9.0.0/16"), "10.0.0.2 10.0.25.2@101");
    assert_eq!(world.events(), [""; 0]);
}

#[test]
fn cold_restart_at_a_switch_that_forwards_keeps_its_objects() {
    let mut world = world();
    let rows: Vec<_> = LAG_ROWS.into_iter().chain(ALL_ROWS).collect();
    set_all(&mut world, &rows);
    // Without ASIC_DB's numbers, all ids are new: syncd recognises the objects by what they are.
    assert_eq!(world.restart_warm_from(crate::orch::PreviousIds::default(), &[]), 0);
    assert_eq!(world.forwarding("10.8.0.0/16"), "10.0.10.2@1010 10.0.25.2@102 10.0.30.2@300102");
}

#[test]
fn host_interfaces_come_and_go_with_ports_lags_and_vlans() {
    let config = OrchConfig { window: 4, host_interfaces: true, ..OrchConfig::default() };
    let mut world = World::bare(config, Chip::new());
    world.ports();
    world.settle();
    let names = |world: &World| {
        let hosts = world.syncd.chip().objects.values().filter(|(kind, _)| *kind == ObjectType::Hostif);
        let mut names: Vec<String> = hosts.map(|(_, attrs)| attrs.last().unwrap().value()).collect();
        names.sort();
        names
    };
    let ports = ["Ethernet0", "Ethernet1", "Ethernet2", "Ethernet3"];
    assert_eq!(names(&world), ports);
    // As `addHostIntfs` of SONiC's PortsOrch.
    let attrs = &created(&world, ObjectType::Hostif)[0];
    let kind = "SAI_HOSTIF_ATTR_TYPE=SAI_HOSTIF_TYPE_NETDEV";
    assert_eq!(attrs[..2], [kind, "SAI_HOSTIF_ATTR_OBJ_ID"]);
    assert!(attrs[2].starts_with("SAI_HOSTIF_ATTR_NAME=Ethernet"), "{attrs:?}");
    set_all(&mut world, &LAG_ROWS);
    set_all(&mut world, &[("VLAN_TABLE:Vlan10", "mtu=9100")]);
    let mut all: Vec<&str> = ports.into_iter().chain(["PortChannel1", "Vlan10"]).collect();
    assert_eq!(names(&world), all);
    // A LAG waits for its host interface, which the chip checks.
    for (key, _) in LAG_ROWS.iter().chain(&[("VLAN_TABLE:Vlan10", "")]) {
        world.set(key, "DEL");
    }
    world.settle();
    all.truncate(4);
    assert_eq!(names(&world), all);
    assert_eq!(world.syncd.chip().count(ObjectType::Lag), 0);
    assert_eq!(world.syncd.chip().violations, [""; 0]);
    // It comes back before the chip has removed it.
    set_all(&mut world, &LAG_ROWS[..1]);
    world.set(LAG_ROWS[0].0, "DEL");
    world.set(LAG_ROWS[0].0, LAG_ROWS[0].1);
    world.settle();
    assert_eq!(names(&world), ["Ethernet0", "Ethernet1", "Ethernet2", "Ethernet3", "PortChannel1"]);
    let before = names(&world);
    world.restart_warm(&[]);
    world.settle();
    assert_eq!((names(&world), world.syncd.chip().count(ObjectType::Lag)), (before, 1));
}
