//! What has to be handled while SONiC's orchagent changes objects under ribtide's routes.

use crate::rig::Rig;
use ribtide_swss::beside::{BesideEvent, BesideOut, LearnedRow};
use ribtide_swss::orch::{OrchEvent, OrchOut};

const SWITCH: &str = "SAI_OBJECT_TYPE_SWITCH:oid:0x21000000000000";
const RIF: &str = "SAI_OBJECT_TYPE_ROUTER_INTERFACE";
const NEXT_HOP: &str = "SAI_OBJECT_TYPE_NEXT_HOP";
const ROUTER: &str = "oid:0x3000000000022";

fn route_key(dest: &str) -> String {
    format!(r#"{{"dest":"{dest}","switch_id":"oid:0x21000000000000","vr":"{ROUTER}"}}"#)
}

/// A client that has described the switch, with Ethernet0 to Ethernet3 as ports 2 to 5.
fn started() -> Rig {
    let mut rig = Rig::new();
    describe(&mut rig);
    for n in 0..4 {
        hostif(&mut rig, n);
        interface(&mut rig, n, 1);
        next_hop(&mut rig, n, 1);
    }
    rig
}

fn describe(rig: &mut Rig) {
    assert_eq!(rig.client("INIT_VIEW", "Snotify", &[]), "SAI_STATUS_SUCCESS");
    rig.client(SWITCH, "Screate", &["SAI_SWITCH_ATTR_INIT_SWITCH", "true"]);
    rig.client(SWITCH, "Sget", &["SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID", "oid:0x0"]);
    rig.client(SWITCH, "Sget", &["SAI_SWITCH_ATTR_CPU_PORT", "oid:0x0"]);
    for dest in ["0.0.0.0/0", "::/0"] {
        let key = format!("SAI_OBJECT_TYPE_ROUTE_ENTRY:{}", route_key(dest));
        let drop = ["SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP"];
        rig.client(&key, "Screate", &drop);
    }
    assert_eq!(rig.client("APPLY_VIEW", "Snotify", &[]), "SAI_STATUS_SUCCESS");
}

fn hostif(rig: &mut Rig, n: u64) {
    let key = format!("SAI_OBJECT_TYPE_HOSTIF:oid:0xd{:012x}", 0x100 + n);
    let port = format!("oid:0x1{:012x}", n + 2);
    let name = format!("Ethernet{n}");
    let kind = ["SAI_HOSTIF_ATTR_TYPE", "SAI_HOSTIF_TYPE_NETDEV"];
    let fields = [kind[0], kind[1], "SAI_HOSTIF_ATTR_OBJ_ID", &port, "SAI_HOSTIF_ATTR_NAME", &name];
    assert_eq!(rig.client(&key, "Screate", &fields), "SAI_STATUS_SUCCESS");
}

fn rif_id(n: u64, run: u64) -> String {
    format!("oid:0x6{:012x}", run * 0x1000 + n)
}

fn hop_id(n: u64, run: u64) -> String {
    format!("oid:0x4{:012x}", run * 0x1000 + n)
}

fn interface(rig: &mut Rig, n: u64, run: u64) {
    let port = format!("oid:0x1{:012x}", n + 2);
    let fields = [
        "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID",
        ROUTER,
        "SAI_ROUTER_INTERFACE_ATTR_TYPE",
        "SAI_ROUTER_INTERFACE_TYPE_PORT",
        "SAI_ROUTER_INTERFACE_ATTR_PORT_ID",
        &port,
    ];
    assert_eq!(rig.client(&format!("{RIF}:{}", rif_id(n, run)), "Screate", &fields), "SAI_STATUS_SUCCESS");
}

fn neighbor_key(n: u64, run: u64) -> String {
    let rif = rif_id(n, run);
    format!(
        r#"SAI_OBJECT_TYPE_NEIGHBOR_ENTRY:{{"ip":"10.0.{n}.2","rif":"{rif}","switch_id":"oid:0x21000000000000"}}"#
    )
}

/// The neighbour 10.0.*n*.2 on Ethernet*n*, and its next hop.
fn next_hop(rig: &mut Rig, n: u64, run: u64) {
    let (ip, rif) = (format!("10.0.{n}.2"), rif_id(n, run));
    let mac = ["SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS", "02:00:00:00:00:02"];
    assert_eq!(rig.client(&neighbor_key(n, run), "Screate", &mac), "SAI_STATUS_SUCCESS");
    let fields = [
        "SAI_NEXT_HOP_ATTR_TYPE",
        "SAI_NEXT_HOP_TYPE_IP",
        "SAI_NEXT_HOP_ATTR_IP",
        &ip,
        "SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID",
        &rif,
    ];
    let status = rig.client(&format!("{NEXT_HOP}:{}", hop_id(n, run)), "Screate", &fields);
    assert_eq!(status, "SAI_STATUS_SUCCESS");
}

fn via(n: u64) -> String {
    format!("protocol=bgp nexthop=10.0.{n}.2 ifname=Ethernet{n} weight=1")
}

const ECMP: &str = "protocol=bgp nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1 weight=1,1";

#[test]
fn routes_name_the_next_hops_of_the_client() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    rig.route("20.0.1.0/24", ECMP);
    rig.route("10.0.3.0/24", "protocol=kernel nexthop=0.0.0.0 ifname=Ethernet3");
    rig.route("0.0.0.0/0", &via(1));
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(0, 1)));
    assert_eq!(rig.target("10.0.3.0/24"), Some(rif_id(3, 1)));
    assert_eq!(rig.target("0.0.0.0/0"), Some(hop_id(1, 1)));
    let members = rig.syncd.of("NEXT_HOP_GROUP_MEMBER");
    let mut hops: Vec<_> =
        members.iter().map(|m| m["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID"].clone()).collect();
    hops.sort();
    assert_eq!(hops, [hop_id(0, 1), hop_id(1, 1)]);
    // ribtide has made no port, interface, neighbour or next hop.
    assert_eq!((rig.syncd.of("ROUTER_INTERFACE").len(), rig.syncd.of("NEXT_HOP").len()), (4, 4));
    rig.route("20.0.0.0/24", "DEL");
    rig.route("0.0.0.0/0", "DEL");
    assert_eq!((rig.target("20.0.0.0/24"), rig.target("0.0.0.0/0")), (None, Some("drop".into())));
    assert!(rig.events.is_empty(), "{:?}", rig.events);
}

#[test]
fn route_before_its_neighbour_waits_for_the_client() {
    let mut rig = Rig::new();
    rig.route("20.0.0.0/24", &via(0));
    describe(&mut rig);
    assert_eq!(rig.target("20.0.0.0/24"), None);
    hostif(&mut rig, 0);
    interface(&mut rig, 0, 1);
    next_hop(&mut rig, 0, 1);
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(0, 1)));
}

#[test]
fn bulks_of_routes_of_the_client_succeed_and_change_nothing() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    let before = rig.syncd.routes();
    let (a, b) = (route_key("20.0.0.0/24"), route_key("20.0.9.0/24"));
    let target = format!("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={}", hop_id(1, 1));
    for (op, value) in [("Sbulkcreate", target.as_str()), ("Sbulkset", &target), ("Sbulkremove", "")] {
        let number = rig.ask("SAI_OBJECT_TYPE_ROUTE_ENTRY:2", op, &[&a, value, &b, value]);
        let (_, reply) = rig.replies.iter().find(|(of, _)| *of == number).unwrap();
        assert_eq!(reply.key, "SAI_STATUS_SUCCESS");
        assert_eq!(reply.value, r#"["SAI_STATUS_SUCCESS","","SAI_STATUS_SUCCESS",""]"#);
        assert_eq!(reply.op, "Sgetresponse");
    }
    assert_eq!(rig.syncd.routes(), before);
}

#[test]
fn next_hop_of_a_group_is_removed_after_its_member() {
    let mut rig = started();
    rig.route("20.0.1.0/24", ECMP);
    let group = rig.target("20.0.1.0/24");
    let key = format!("{NEXT_HOP}:{}", hop_id(0, 1));
    assert_eq!(rig.client(&key, "Dremove", &[]), "SAI_STATUS_SUCCESS");
    assert_eq!(rig.target("20.0.1.0/24"), group);
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), 1);
    assert_eq!(rig.client(&neighbor_key(0, 1), "Dremove", &[]), "SAI_STATUS_SUCCESS");
    // It comes back with another id.
    next_hop(&mut rig, 0, 1);
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), 2);
}

#[test]
fn next_hop_under_a_route_is_in_use_until_the_route_goes() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    let key = format!("{NEXT_HOP}:{}", hop_id(0, 1));
    let number = rig.ask(&key, "Dremove", &[]);
    assert_eq!(rig.status(number), None, "it waits for the route");
    rig.pass(600);
    assert_eq!(rig.status(number).as_deref(), Some("SAI_STATUS_OBJECT_IN_USE"));
    assert_eq!(rig.events.len(), 1);
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(0, 1)), "it forwards meanwhile");
    // The next try is refused at once.
    assert_eq!(rig.client(&key, "Dremove", &[]), "SAI_STATUS_OBJECT_IN_USE");
    rig.route("20.0.0.0/24", "DEL");
    assert_eq!(rig.client(&key, "Dremove", &[]), "SAI_STATUS_SUCCESS");
    assert!(!rig.syncd.objects.contains_key(&key));
}

#[test]
fn removal_that_the_client_gave_up_leaves_the_next_hop_usable() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    let number = rig.ask(&format!("{NEXT_HOP}:{}", hop_id(0, 1)), "Dremove", &[]);
    rig.pass(600);
    assert_eq!(rig.status(number).as_deref(), Some("SAI_STATUS_OBJECT_IN_USE"));
    rig.route("20.0.5.0/24", &via(0));
    assert_eq!(rig.target("20.0.5.0/24"), None, "it may be removed any moment");
    rig.pass(6000);
    assert_eq!(rig.target("20.0.5.0/24"), Some(hop_id(0, 1)));
}

#[test]
fn router_interface_goes_after_its_connected_route_and_the_route_returns_with_it() {
    let mut rig = started();
    rig.route("10.0.3.0/24", "protocol=kernel nexthop=0.0.0.0 ifname=Ethernet3");
    rig.client(&format!("{NEXT_HOP}:{}", hop_id(3, 1)), "Dremove", &[]);
    rig.client(&neighbor_key(3, 1), "Dremove", &[]);
    let key = format!("{RIF}:{}", rif_id(3, 1));
    let number = rig.ask(&key, "Dremove", &[]);
    rig.pass(600);
    assert_eq!(rig.status(number).as_deref(), Some("SAI_STATUS_SUCCESS"));
    assert!(rig.target("10.0.3.0/24").is_none() && !rig.syncd.objects.contains_key(&key));
    interface(&mut rig, 3, 2);
    assert_eq!(rig.target("10.0.3.0/24"), Some(rif_id(3, 2)));
    rig.route("10.0.3.0/24", "DEL");
    assert_eq!(rig.target("10.0.3.0/24"), None);
}

#[test]
fn own_address_goes_before_a_route_of_ribtide() {
    let mut rig = started();
    rig.route("20.0.0.1", &via(0));
    assert_eq!(rig.target("20.0.0.1/32"), Some(hop_id(0, 1)));
    let key = format!("SAI_OBJECT_TYPE_ROUTE_ENTRY:{}", route_key("20.0.0.1/32"));
    let fields = [
        "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION",
        "SAI_PACKET_ACTION_FORWARD",
        "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID",
        "oid:0x1000000000001",
    ];
    assert_eq!(rig.client(&key, "Screate", &fields), "SAI_STATUS_SUCCESS");
    assert_eq!(rig.target("20.0.0.1/32").as_deref(), Some("oid:0x1000000000001"));
    // No later row of that destination changes it.
    rig.route("20.0.0.1", &via(1));
    assert_eq!(rig.target("20.0.0.1/32").as_deref(), Some("oid:0x1000000000001"));
    assert_eq!(rig.client(&key, "Dremove", &[]), "SAI_STATUS_SUCCESS");
    assert_eq!(rig.target("20.0.0.1/32"), Some(hop_id(1, 1)), "the row applies");
}

#[test]
fn warm_restart_of_the_client_leaves_every_route_with_the_new_ids() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    rig.route("20.0.1.0/24", ECMP);
    rig.route("0.0.0.0/0", &via(1));
    rig.client("INIT_VIEW", "Snotify", &[]);
    rig.route("20.0.2.0/24", &via(2));
    rig.client(SWITCH, "Screate", &["SAI_SWITCH_ATTR_INIT_SWITCH", "true"]);
    for dest in ["0.0.0.0/0", "::/0"] {
        let key = format!("SAI_OBJECT_TYPE_ROUTE_ENTRY:{}", route_key(dest));
        rig.client(&key, "Screate", &["SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP"]);
    }
    for n in 0..4 {
        interface(&mut rig, n, 2);
        next_hop(&mut rig, n, 2);
    }
    // The `bake` of a warm start reads ROUTE_TABLE.
    let (key, value) = (route_key("20.0.0.0/24"), "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID=oid:0x4000000002000");
    assert_eq!(
        rig.client("SAI_OBJECT_TYPE_ROUTE_ENTRY:1", "Sbulkcreate", &[&key, value]),
        "SAI_STATUS_SUCCESS"
    );
    assert_eq!(rig.client("APPLY_VIEW", "Snotify", &[]), "SAI_STATUS_SUCCESS");
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(0, 2)));
    assert_eq!(rig.target("0.0.0.0/0"), Some(hop_id(1, 2)));
    assert_eq!(rig.target("20.0.2.0/24"), Some(hop_id(2, 2)), "it waited for the view");
    assert!(rig.target("20.0.1.0/24").unwrap().starts_with("oid:0x5"));
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), 2);
    assert_eq!((rig.syncd.of("NEXT_HOP_GROUP").len(), rig.syncd.of("NEXT_HOP").len()), (1, 4));
    rig.route("20.0.1.0/24", "DEL");
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len() + rig.syncd.of("NEXT_HOP_GROUP").len(), 0);
}

#[test]
fn cold_restart_of_the_client_leaves_routes_over_ports_in_place() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    rig.route("20.0.1.0/24", ECMP);
    rig.route("10.0.3.0/24", "protocol=kernel nexthop=0.0.0.0 ifname=Ethernet3");
    let before: Vec<String> = rig.syncd.routes().into_keys().collect();
    describe(&mut rig);
    assert_eq!(rig.syncd.routes().into_keys().collect::<Vec<_>>(), before);
    assert!(rig.syncd.routes()["20.0.0.0/24"].starts_with("oid:0x4"));
    // Then the client makes its own again; nothing that was carried over stays.
    for n in 0..4 {
        interface(&mut rig, n, 2);
        next_hop(&mut rig, n, 2);
    }
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(0, 2)));
    assert_eq!(rig.target("10.0.3.0/24"), Some(rif_id(3, 2)));
    let members = rig.syncd.of("NEXT_HOP_GROUP_MEMBER");
    assert!(
        members
            .iter()
            .all(|m| m["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID"].starts_with("oid:0x4000000002"))
    );
    assert_eq!(
        (members.len(), rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()),
        (2, 4, 4)
    );
    assert_eq!(rig.syncd.of("NEIGHBOR_ENTRY").len(), 4);
    assert!(rig.events.iter().all(|event| matches!(event, BesideEvent::View { .. })), "{:?}", rig.events);
}

#[test]
fn carried_over_next_hops_stay_while_routes_use_them_and_go_after_the_last() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(2));
    rig.route("20.0.1.0/24", ECMP);
    describe(&mut rig);
    // The client makes none of its interfaces again.
    rig.pass(300_000);
    assert!(rig.target("20.0.0.0/24").unwrap().starts_with("oid:0x4"));
    assert!(rig.target("20.0.1.0/24").unwrap().starts_with("oid:0x5"));
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), 2, "a group without members drops");
    assert_eq!((rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()), (3, 3));
    rig.route("20.0.1.0/24", "DEL");
    rig.pass(20_000);
    assert_eq!((rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()), (1, 1));
    rig.route("20.0.0.0/24", "DEL");
    rig.pass(20_000);
    assert_eq!((rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()), (0, 0));
    assert_eq!(rig.syncd.of("NEIGHBOR_ENTRY").len(), 0);
}

#[test]
fn rows_that_routeorch_makes_pass_and_the_others_do_not() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    rig.beside.set_routeorch_route(None, "20.0.7.0/24".parse().unwrap(), true);
    let (ours, theirs) = (route_key("20.0.6.0/24"), route_key("20.0.7.0/24"));
    let target = format!("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID={}", hop_id(1, 1));
    let bulk = ["SAI_OBJECT_TYPE_ROUTE_ENTRY:2", "Sbulkcreate"];
    let number = rig.ask(bulk[0], bulk[1], &[&ours, &target, &theirs, &target]);
    let (_, reply) = rig.replies.iter().find(|(of, _)| *of == number).unwrap();
    assert_eq!(reply.value, r#"["SAI_STATUS_SUCCESS","","SAI_STATUS_SUCCESS",""]"#);
    assert_eq!((rig.target("20.0.6.0/24"), rig.target("20.0.7.0/24")), (None, Some(hop_id(1, 1))));
    // The row becomes a plain one: RouteOrch removes what is ribtide's now.
    rig.beside.set_routeorch_route(None, "20.0.7.0/24".parse().unwrap(), false);
    rig.route("20.0.7.0/24", &via(2));
    assert_eq!(rig.target("20.0.7.0/24"), Some(hop_id(2, 1)));
    rig.client("SAI_OBJECT_TYPE_ROUTE_ENTRY:1", "Sbulkremove", &[&theirs, ""]);
    assert_eq!(rig.target("20.0.7.0/24"), Some(hop_id(2, 1)));
    // And back: RouteOrch may be faster than the deletion here.
    rig.beside.set_routeorch_route(None, "20.0.7.0/24".parse().unwrap(), true);
    let status = rig.client("SAI_OBJECT_TYPE_ROUTE_ENTRY:1", "Sbulkcreate", &[&theirs, &target]);
    assert_eq!((status.as_str(), rig.target("20.0.7.0/24")), ("SAI_STATUS_SUCCESS", Some(hop_id(1, 1))));
    rig.route("20.0.7.0/24", "DEL");
    assert_eq!(rig.target("20.0.7.0/24"), Some(hop_id(1, 1)));
}

#[test]
fn link_down_reaches_the_group_from_the_notification() {
    let mut rig = started();
    rig.route("20.0.1.0/24", ECMP);
    let state = |state: &str| {
        format!(
            r#"["port_state_change","[{{\"port_id\":\"oid:0x1000000000003\",\"port_state\":\"SAI_PORT_OPER_STATUS_{state}\",\"port_error_status\":\"SAI_PORT_ERROR_STATUS_CLEAR\"}}]"]"#
        )
    };
    for (text, members) in [(state("DOWN"), 1), (state("UP"), 2)] {
        let mut out = BesideOut::default();
        rig.beside.notification(&text, &mut out);
        rig.carry_out(&mut out, &mut OrchOut::default());
        rig.settle();
        assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), members, "{text}");
    }
}

#[test]
fn port_that_was_down_from_the_start_is_in_no_group() {
    let mut rig = Rig::new();
    describe(&mut rig);
    rig.syncd.take_link(1);
    for n in 0..2 {
        hostif(&mut rig, n);
        let port = format!("SAI_OBJECT_TYPE_PORT:oid:0x1{:012x}", n + 2);
        rig.client(&port, "Sset", &["SAI_PORT_ATTR_ADMIN_STATE", "true"]);
        rig.client(&port, "Sget", &["SAI_PORT_ATTR_OPER_STATUS", "SAI_PORT_OPER_STATUS_UP"]);
        interface(&mut rig, n, 1);
        next_hop(&mut rig, n, 1);
    }
    rig.route("20.0.1.0/24", ECMP);
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), 1);
}

#[test]
fn vrf_is_learned_with_its_interface() {
    let mut rig = started();
    let router = "oid:0x3000000000777";
    rig.client(&format!("SAI_OBJECT_TYPE_VIRTUAL_ROUTER:{router}"), "Screate", &["NULL", "NULL"]);
    hostif(&mut rig, 7);
    let fields = [
        "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID",
        router,
        "SAI_ROUTER_INTERFACE_ATTR_TYPE",
        "SAI_ROUTER_INTERFACE_TYPE_PORT",
        "SAI_ROUTER_INTERFACE_ATTR_PORT_ID",
        "oid:0x1000000000009",
    ];
    rig.client(&format!("{RIF}:{}", rif_id(7, 1)), "Screate", &fields);
    next_hop(&mut rig, 7, 1);
    rig.route("Vrf1:20.0.8.0/24", &via(7));
    assert_eq!(rig.target("20.0.8.0/24"), None);
    let unnamed: Vec<String> =
        rig.beside.interfaces_without_vrf().iter().map(|name| name.to_string()).collect();
    assert_eq!((unnamed, rig.beside.needs_names()), (vec!["Ethernet7".to_owned()], true));
    rig.beside.name_router("Ethernet7", "Vrf1");
    rig.settle();
    assert_eq!(rig.target("20.0.8.0/24"), Some(hop_id(7, 1)));
    assert!(!rig.beside.needs_names());
}

#[test]
fn restarted_ribtide_takes_its_routes_over_and_removes_what_no_row_asks_for() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    rig.route("20.0.1.0/24", ECMP);
    rig.route("20.0.2.0/24", ECMP);
    rig.route("0.0.0.0/0", &via(0));
    let key = format!("SAI_OBJECT_TYPE_ROUTE_ENTRY:{}", route_key("10.9.9.9/32"));
    let own = ["SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", "oid:0x1000000000001"];
    assert_eq!(rig.client(&key, "Screate", &own), "SAI_STATUS_SUCCESS");
    rig.restart_ribtide(0x100_0000..0x200_0000);
    rig.route("20.0.0.0/24", &via(1));
    rig.route("20.0.1.0/24", ECMP);
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(1, 1)));
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP").len(), 2, "the former one and its successor");
    rig.pass(31_000);
    assert_eq!((rig.syncd.of("NEXT_HOP_GROUP").len(), rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len()), (1, 2));
    let left: Vec<String> = rig.syncd.routes().into_keys().collect();
    assert_eq!(left, ["0.0.0.0/0", "10.9.9.9/32", "20.0.0.0/24", "20.0.1.0/24", "::/0"]);
    assert_eq!(rig.target("0.0.0.0/0").as_deref(), Some("drop"), "no row asks for it");
    assert!(rig.events.is_empty(), "{:?}", rig.events);
}

#[test]
fn routes_over_a_lag_and_a_vlan_are_programmed_by_their_learned_names() {
    let mut rig = started();
    let (lag, vlan) = ("oid:0x2000000000900", "oid:0x26000000000901");
    assert_eq!(
        rig.client(&format!("SAI_OBJECT_TYPE_LAG:{lag}"), "Screate", &["NULL", "NULL"]),
        "SAI_STATUS_SUCCESS"
    );
    let fields = ["SAI_LAG_MEMBER_ATTR_LAG_ID", lag, "SAI_LAG_MEMBER_ATTR_PORT_ID", "oid:0x100000000000a"];
    let member = "SAI_OBJECT_TYPE_LAG_MEMBER:oid:0x1b000000000902";
    assert_eq!(rig.client(member, "Screate", &fields), "SAI_STATUS_SUCCESS");
    let key = format!("SAI_OBJECT_TYPE_VLAN:{vlan}");
    assert_eq!(rig.client(&key, "Screate", &["SAI_VLAN_ATTR_VLAN_ID", "100"]), "SAI_STATUS_SUCCESS");
    for (n, kind, attr, lower) in [
        (10, "PORT", "SAI_ROUTER_INTERFACE_ATTR_PORT_ID", lag),
        (11, "VLAN", "SAI_ROUTER_INTERFACE_ATTR_VLAN_ID", vlan),
    ] {
        let kind = format!("SAI_ROUTER_INTERFACE_TYPE_{kind}");
        let fields = [
            "SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID",
            ROUTER,
            "SAI_ROUTER_INTERFACE_ATTR_TYPE",
            &kind,
            attr,
            lower,
        ];
        let key = format!("{RIF}:{}", rif_id(n, 1));
        assert_eq!(rig.client(&key, "Screate", &fields), "SAI_STATUS_SUCCESS");
        next_hop(&mut rig, n, 1);
    }
    let over = |ifname: &str, n: u64| format!("protocol=bgp nexthop=10.0.{n}.2 ifname={ifname} weight=1");
    rig.route("20.0.0.0/24", &over("PortChannel1", 10));
    rig.route("20.0.1.0/24", &over("Vlan100", 11));
    let both = "protocol=bgp nexthop=10.0.0.2,10.0.10.2 ifname=Ethernet0,PortChannel1 weight=1,1";
    rig.route("20.0.2.0/24", both);
    // The number names a VLAN at once; COUNTERS_LAG_NAME_MAP names a LAG, perhaps later.
    assert_eq!(rig.target("20.0.1.0/24"), Some(hop_id(11, 1)));
    assert_eq!((rig.target("20.0.0.0/24"), rig.beside.needs_names()), (None, true));
    let mut out = BesideOut::default();
    rig.beside.name(ribtide_swss::sai::text::read_oid(lag).unwrap(), "PortChannel1");
    rig.settle();
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(10, 1)));
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), 2);
    assert!(!rig.beside.needs_names());
    // LAG_TABLE has the link state of a LAG.
    for (up, members) in [(false, 1), (true, 2)] {
        rig.beside.link("PortChannel1", up, &mut out);
        rig.carry_out(&mut out, &mut OrchOut::default());
        rig.settle();
        assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), members);
    }
    assert!(rig.events.is_empty(), "{:?}", rig.events);
}

/// Restarts ribtide in the middle of a view, which the client goes on with, or begins again. Its rows come after the view.
fn ribtide_ends_in_a_view(rig: &mut Rig, begins_again: bool) {
    let interface_of_a_view = |rig: &mut Rig| {
        hostif(rig, 0);
        interface(rig, 0, 2);
        next_hop(rig, 0, 2);
    };
    assert_eq!(rig.client("INIT_VIEW", "Snotify", &[]), "SAI_STATUS_SUCCESS");
    rig.client(SWITCH, "Screate", &["SAI_SWITCH_ATTR_INIT_SWITCH", "true"]);
    rig.client(SWITCH, "Sget", &["SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID", "oid:0x0"]);
    rig.client(SWITCH, "Sget", &["SAI_SWITCH_ATTR_CPU_PORT", "oid:0x0"]);
    if !begins_again {
        interface_of_a_view(rig);
    }
    rig.restart_ribtide(0x100_0000..0x200_0000);
    if begins_again {
        describe(rig);
        return;
    }
    for dest in ["0.0.0.0/0", "::/0"] {
        let key = format!("SAI_OBJECT_TYPE_ROUTE_ENTRY:{}", route_key(dest));
        rig.client(&key, "Screate", &["SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION", "SAI_PACKET_ACTION_DROP"]);
    }
    assert_eq!(rig.client("APPLY_VIEW", "Snotify", &[]), "SAI_STATUS_SUCCESS");
}

const THREE: &str =
    "protocol=bgp nexthop=10.0.0.2,10.0.1.2,10.0.2.2 ifname=Ethernet0,Ethernet1,Ethernet2 weight=1,1,2";

#[test]
fn ribtide_that_ends_in_a_view_leaves_its_routes_in_it() {
    for begins_again in [false, true] {
        let mut rig = started();
        let rows = [
            ("20.0.0.0/24", via(0)),
            ("20.0.1.0/24", THREE.to_owned()),
            ("20.0.2.0/24", via(3)),
            ("0.0.0.0/0", via(1)),
            ("10.0.3.0/24", "protocol=kernel nexthop=0.0.0.0 ifname=Ethernet3".to_owned()),
            ("20.0.9.0/24", via(2)),
        ];
        rows.iter().for_each(|(dest, row)| rig.route(dest, row));
        let before: Vec<String> = rig.syncd.routes().into_keys().collect();
        rig.syncd.take_removed();
        ribtide_ends_in_a_view(&mut rig, begins_again);
        // No row has come yet, and no interface besides that of the view.
        assert_eq!(rig.syncd.take_removed().len(), 0, "{begins_again}");
        assert_eq!(rig.syncd.routes().into_keys().collect::<Vec<_>>(), before, "{begins_again}");
        let target = rig.target("20.0.0.0/24").unwrap();
        assert_eq!(target == hop_id(0, 2), !begins_again, "{target}: the client's own where the view has it");
        assert!(rig.target("0.0.0.0/0").unwrap().starts_with("oid:0x4"));
        let weights: Vec<_> = rig
            .syncd
            .of("NEXT_HOP_GROUP_MEMBER")
            .iter()
            .map(|member| member["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_WEIGHT"].clone())
            .collect();
        assert_eq!(weights.len(), 3);
        assert!(weights.contains(&"2".to_owned()), "{weights:?}");
        // The client makes its own, before rows come.
        for n in 0..4 {
            if n > 0 || begins_again {
                hostif(&mut rig, n);
                interface(&mut rig, n, 2);
                next_hop(&mut rig, n, 2);
            }
        }
        assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(0, 2)));
        assert_eq!(rig.target("0.0.0.0/0"), Some(hop_id(1, 2)));
        assert_eq!(rig.target("10.0.3.0/24"), Some(rif_id(3, 2)));
        assert_eq!((rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()), (4, 4));
        // Then all rows but one come.
        rows[..5].iter().for_each(|(dest, row)| rig.route(dest, row));
        rig.pass(31_000);
        let left: Vec<String> = before.iter().filter(|dest| *dest != "20.0.9.0/24").cloned().collect();
        assert_eq!(rig.syncd.routes().into_keys().collect::<Vec<_>>(), left);
        assert_eq!(
            (rig.syncd.of("NEXT_HOP_GROUP").len(), rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len()),
            (1, 3)
        );
        assert_eq!(rig.syncd.take_removed().into_iter().collect::<Vec<_>>(), ["20.0.9.0/24"]);
        let views = |event: &BesideEvent| matches!(event, BesideEvent::View { .. });
        assert!(rig.events.iter().all(views), "{:?}", rig.events);
    }
}

#[test]
fn ribtide_that_ends_in_a_view_of_a_client_without_interfaces_moves_its_rows_to_what_it_carried_over() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(0));
    rig.route("20.0.1.0/24", ECMP);
    ribtide_ends_in_a_view(&mut rig, true);
    rig.route("20.0.0.0/24", &via(0));
    rig.route("20.0.1.0/24", ECMP);
    rig.pass(31_000);
    assert_eq!((rig.syncd.of("NEXT_HOP_GROUP").len(), rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len()), (1, 2));
    assert_eq!((rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()), (2, 2));
    for n in 0..2 {
        hostif(&mut rig, n);
        interface(&mut rig, n, 2);
        next_hop(&mut rig, n, 2);
    }
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(0, 2)));
    assert_eq!((rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()), (2, 2));
    // A second restart of ribtide knows what was carried over.
    describe(&mut rig);
    rig.restart_ribtide(0x100_0000..0x300_0000);
    rig.route("20.0.0.0/24", &via(0));
    for n in 0..2 {
        hostif(&mut rig, n);
        interface(&mut rig, n, 3);
        next_hop(&mut rig, n, 3);
    }
    rig.pass(200_000);
    assert_eq!(rig.target("20.0.0.0/24"), Some(hop_id(0, 3)));
    assert_eq!((rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()), (2, 2));
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP").len(), 0);
}

#[test]
fn next_hop_that_is_dead_after_a_cold_restart_leaves_the_group_that_has_another() {
    let mut rig = started();
    rig.route("20.0.0.0/24", &via(1));
    rig.route("20.0.1.0/24", ECMP);
    let dead = "protocol=bgp nexthop=10.0.1.2,10.0.2.2 ifname=Ethernet1,Ethernet2 weight=1,1";
    rig.route("20.0.2.0/24", dead);
    describe(&mut rig);
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), 4);
    // The client has the first neighbour again, and not those of the others.
    interface(&mut rig, 0, 2);
    next_hop(&mut rig, 0, 2);
    assert_eq!(rig.syncd.of("NEXT_HOP_GROUP_MEMBER").len(), 4, "they may still come");
    rig.pass(130_000);
    let hops = |rig: &Rig| {
        let members = rig.syncd.of("NEXT_HOP_GROUP_MEMBER");
        let hops = members.iter().map(|m| m["SAI_NEXT_HOP_GROUP_MEMBER_ATTR_NEXT_HOP_ID"].clone());
        let (live, carried): (Vec<_>, Vec<_>) = hops.partition(|hop| hop.starts_with("oid:0x4000000002"));
        (live.len(), carried.len())
    };
    assert_eq!(hops(&rig), (1, 2), "the group of dead next hops alone keeps them");
    assert!(rig.target("20.0.0.0/24").unwrap().starts_with("oid:0x4"), "a route keeps its only next hop");
    // It comes back late.
    interface(&mut rig, 1, 2);
    next_hop(&mut rig, 1, 2);
    assert_eq!(hops(&rig), (3, 1));
    rig.pass(20_000);
    assert_eq!(hops(&rig), (3, 0), "that group has another now");
    assert_eq!((rig.syncd.of("NEXT_HOP").len(), rig.syncd.of("ROUTER_INTERFACE").len()), (2, 2));
    rig.route("20.0.1.0/24", "DEL");
    rig.route("20.0.2.0/24", "DEL");
    assert_eq!((rig.syncd.of("NEXT_HOP_GROUP").len(), hops(&rig)), (0, (0, 0)));
    assert!(rig.events.iter().all(|event| matches!(event, BesideEvent::View { .. })), "{:?}", rig.events);
}

#[test]
fn ids_are_unused_once_their_objects_are_gone() {
    let mut rig = started();
    let start = 0x100_0000;
    let blocks: Vec<_> = (0..8).map(|n| start + n * 1024..start + (n + 1) * 1024).collect();
    rig.route("20.9.0.0/24", ECMP);
    // More than three blocks of ids, of groups that came and went.
    for n in 0..1200 {
        rig.route("20.0.1.0/24", if n % 2 == 0 { THREE } else { "DEL" });
    }
    let group = rig.target("20.9.0.0/24").unwrap();
    let index = ribtide_swss::sai::text::read_oid(&group).unwrap().index();
    assert!(blocks[0].contains(&index));
    let unused = rig.beside.unused_ids(&blocks);
    assert!(!unused[0], "the first group lives");
    assert!(unused[1], "groups of the second block are gone");
    let in_use = unused.iter().filter(|unused| !**unused).count();
    assert!(in_use <= 2, "{unused:?}: those of the first group, and the block that is not used up");
    rig.route("20.9.0.0/24", "DEL");
    assert!(rig.beside.unused_ids(&blocks)[0]);
}

/// 10,000 objects of a running client, found by a ribtide that starts. `--nocapture` prints how long it takes.
#[test]
fn ten_thousand_objects_are_found_with_their_names() {
    const INTERFACES: u64 = 2_500;
    let mut beside =
        ribtide_swss::beside::Beside::new(Box::new(ribtide_swss::orch::VidCounter::default()), 1);
    let fields =
        |pairs: &[(&str, &str)]| pairs.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
    let oid = |text: &str| ribtide_swss::sai::text::read_oid(text).unwrap();
    let begin = std::time::Instant::now();
    // Each group of an earlier run has a range of its own.
    beside.found_former_ids((0..INTERFACES).map(|n| 0x40_0000 + 2 * n..0x40_0001 + 2 * n).collect());
    beside.found_switch(oid(ROUTER), oid("oid:0x1000000000001"));
    let lag = |n: u64| format!("oid:0x2{:012x}", 0x10_0000 + n);
    let mut objects = 0;
    for n in 0..INTERFACES {
        let (rif, lower) = (rif_id(n, 1), lag(n));
        let attrs = [
            ("SAI_ROUTER_INTERFACE_ATTR_VIRTUAL_ROUTER_ID", ROUTER),
            ("SAI_ROUTER_INTERFACE_ATTR_PORT_ID", &*lower),
        ];
        beside.found(&format!("{RIF}:{rif}"), fields(&attrs));
        let neighbor = format!(
            r#"SAI_OBJECT_TYPE_NEIGHBOR_ENTRY:{{"ip":"10.{}.{}.2","rif":"{rif}","switch_id":"oid:0x21000000000000"}}"#,
            n >> 8,
            n & 255
        );
        beside.found(&neighbor, fields(&[("SAI_NEIGHBOR_ENTRY_ATTR_DST_MAC_ADDRESS", "02:00:00:00:00:02")]));
        let ip = format!("10.{}.{}.2", n >> 8, n & 255);
        let attrs = [
            ("SAI_NEXT_HOP_ATTR_TYPE", "SAI_NEXT_HOP_TYPE_IP"),
            ("SAI_NEXT_HOP_ATTR_IP", &*ip),
            ("SAI_NEXT_HOP_ATTR_ROUTER_INTERFACE_ID", &*rif),
        ];
        beside.found(&format!("{NEXT_HOP}:{}", hop_id(n, 1)), fields(&attrs));
        let group = format!("SAI_OBJECT_TYPE_NEXT_HOP_GROUP:oid:0x5{:012x}", 0x40_0000 + 2 * n);
        beside.found(
            &group,
            fields(&[("SAI_NEXT_HOP_GROUP_ATTR_TYPE", "SAI_NEXT_HOP_GROUP_TYPE_DYNAMIC_UNORDERED_ECMP")]),
        );
        objects += 4;
    }
    assert_eq!(objects, 10_000);
    let mut out = BesideOut::default();
    // COUNTERS_LAG_NAME_MAP.
    (0..INTERFACES).for_each(|n| beside.name(oid(&lag(n)), &format!("PortChannel{n}")));
    beside.found_all(&mut out);
    (0..INTERFACES).for_each(|n| beside.link(&format!("PortChannel{n}"), true, &mut out));
    println!("10,000 objects: {:?}", begin.elapsed());
    let count = |is: fn(&LearnedRow) -> bool| out.rows.iter().filter(|row| is(row)).count() as u64;
    assert_eq!(count(|row| matches!(row, LearnedRow::Interface(_))), INTERFACES);
    assert_eq!(count(|row| matches!(row, LearnedRow::Neighbor(_))), INTERFACES);
    // Its row, the row of its link, and two that open orchagent.
    assert_eq!(count(|row| matches!(row, LearnedRow::Port(_))), 2 * INTERFACES + 2);
    assert!(!beside.needs_names());
}

/// syncd starts again without a route, a group and a member, and with a route to another next hop.
#[test]
fn objects_that_a_restarted_syncd_lacks_are_made_again_in_the_ids_of_the_view() {
    let mut rig = started();
    let both = "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1";
    for (key, row) in [
        ("20.0.0.0/24", "nexthop=10.0.0.2 ifname=Ethernet0"),
        ("20.0.1.0/24", "nexthop=10.0.1.2 ifname=Ethernet1"),
        ("20.0.2.0/24", both),
        ("20.0.3.0/24", "nexthop=10.0.2.2 ifname=Ethernet2"),
    ] {
        rig.route(key, row);
    }
    let before = rig.syncd.objects.clone();
    let verified = |rig: &mut Rig| {
        rig.own_events.clear();
        rig.orch.verify(false);
        rig.settle();
        match rig.own_events.as_slice() {
            [OrchEvent::Verified { differences, .. }] => *differences,
            other => panic!("{other:?}"),
        }
    };
    assert!(verified(&mut rig).is_none());
    let gone = |key: &&String| {
        ["20.0.0.0/24", "20.0.2.0/24"].iter().any(|dest| key.contains(dest)) || key.contains("NEXT_HOP_GROUP")
    };
    // From the last: a route before its group, and a member before its group.
    for key in before.keys().rev().filter(gone) {
        rig.at_syncd(key, "Dremove", &[]);
    }
    let key = format!("SAI_OBJECT_TYPE_ROUTE_ENTRY:{}", route_key("20.0.3.0/24"));
    rig.at_syncd(&key, "Sset", &["SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID", &hop_id(3, 1)]);
    let differences = verified(&mut rig);
    assert_eq!((differences.missing, differences.changed, differences.surplus), (5, 1, 0));
    let targets =
        |objects: &std::collections::BTreeMap<String, std::collections::BTreeMap<String, String>>| {
            let to = |fields: &std::collections::BTreeMap<String, String>| {
                fields.get("SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID").cloned()
            };
            objects.iter().map(|(key, fields)| (key.clone(), to(fields))).collect::<Vec<_>>()
        };
    assert_eq!(targets(&rig.syncd.objects), targets(&before));
}
