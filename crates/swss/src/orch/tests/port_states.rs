//! Link states, which the chip reports by itself.

use super::chip::Chip;
use super::world::World;
use crate::orch::OrchConfig;
use crate::sai::{ObjectType, SaiCall};
use crate::syncd::SyncdOut;

const BOTH: &str = "nexthop=10.0.0.2,10.0.1.2 ifname=Ethernet0,Ethernet1";

fn with_routes(mut world: World) -> World {
    for ip in ["10.0.0.2", "10.0.1.2"] {
        world.neighbor(ip);
    }
    for n in 1..=50 {
        world.set(&format!("ROUTE_TABLE:10.{n}.0.0/16"), BOTH);
    }
    world.settle();
    world.sent.clear();
    world
}

/// A world whose chip began with these links down.
fn begun(down: &[u32], oper_status: &str) -> World {
    let mut chip = Chip::new();
    chip.down.extend(down.iter().map(|port| 4 * port));
    let mut world = World::bare(OrchConfig::default(), chip);
    world.ports();
    for n in 0..4 {
        if !oper_status.is_empty() {
            world.set(&format!("PORT_TABLE:Ethernet{n}"), &format!("oper_status={oper_status}"));
        }
        world.set(&format!("INTF_TABLE:Ethernet{n}"), "NULL=NULL");
    }
    world.settle();
    world
}

/// The reports since the last call.
fn reports(world: &mut World) -> Vec<String> {
    let reports = world.out.port_reports.drain(..);
    reports
        .map(|report| format!("{} {} {:?}", report.name, report.oper_status(), report.flap_count))
        .collect()
}

#[test]
fn report_of_a_lost_link_takes_its_members_out_of_groups_in_one_request_and_back() {
    let mut world = with_routes(World::new(OrchConfig::default()));
    reports(&mut world);
    world.link(1, false);
    world.settle();
    assert_eq!((world.forwarding("10.7.0.0/16").as_str(), world.sent.len()), ("10.0.0.2", 1));
    let entry = world.orch.explain(None, "10.7.0.0/16".parse().unwrap()).unwrap().in_chip.unwrap();
    let missing: Vec<String> = entry.missing.iter().map(|why| why.to_string()).collect();
    assert_eq!(missing, ["the link of next hop 10.0.1.2, Ethernet1, is down"]);
    assert_eq!(reports(&mut world), ["Ethernet1 down Some(2)"]);
    // The same report again is no news.
    world.link(1, false);
    world.settle();
    assert_eq!((reports(&mut world).len(), world.sent.len()), (0, 1));
    world.link(1, true);
    world.settle();
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2 10.0.1.2");
    assert_eq!(reports(&mut world), ["Ethernet1 up Some(3)"]);
    // Its speed is read as it comes up.
    assert_eq!(world.out.port_speeds.last(), Some(&("Ethernet1".into(), Some(40_000))));
}

#[test]
fn lost_report_is_made_up_for_by_a_read() {
    let mut world = with_routes(World::new(OrchConfig::default()));
    world.link_unheard(1, false);
    world.settle();
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2 10.0.1.2");
    world.orch.read_port_states();
    world.settle();
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2");
}

#[test]
fn link_that_is_down_at_the_start_is_read_whatever_the_row_says() {
    for oper_status in ["", "up", "down"] {
        let mut world = with_routes(begun(&[1], oper_status));
        assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2", "{oper_status}");
        let told: Vec<String> = reports(&mut world);
        let about = |port: &str| -> Vec<&str> {
            let all = told.iter().filter(|text| text.starts_with(port));
            all.map(|text| text.as_str()).collect()
        };
        // Without a row's word it begins as down, as at SONiC; a change counts.
        let (up, down): (&[&str], &[&str]) = match oper_status {
            "" => (&["Ethernet0 down None", "Ethernet0 up Some(1)"], &["Ethernet1 down None"]),
            "up" => (&[], &["Ethernet1 down Some(1)"]),
            _ => (&["Ethernet0 up Some(1)"], &[]),
        };
        assert_eq!((about("Ethernet0"), about("Ethernet1")), (up.to_vec(), down.to_vec()), "{oper_status}");
    }
}

#[test]
fn flap_count_continues_that_of_the_row() {
    let mut world = begun(&[], "up");
    world.set("PORT_TABLE:Ethernet2", "flap_count=41");
    world.settle();
    reports(&mut world);
    world.link(2, false);
    assert_eq!(reports(&mut world), ["Ethernet2 down Some(42)"]);
}

#[test]
fn chip_without_link_states_leaves_them_to_the_rows() {
    let mut chip = Chip::new();
    chip.hides_links = true;
    let mut world = World::bare(OrchConfig::default(), chip);
    world.ports();
    (0..2).for_each(|n| world.set(&format!("INTF_TABLE:Ethernet{n}"), "NULL=NULL"));
    let mut world = with_routes(world);
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2 10.0.1.2");
    world.set("PORT_TABLE:Ethernet1", "oper_status=down");
    world.settle();
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2");
}

/// Beside SONiC's orchagent, whose requests teach rows: a port named as a sub-interface may come after
/// its row of INTF_TABLE, and nothing is read or reported.
#[test]
fn ports_of_another_orchagent_are_neither_read_nor_reported() {
    let config = OrchConfig { reports_ports: false, ..OrchConfig::default() };
    let mut world = World::bare(config, Chip::new());
    world.set("PORT_TABLE:PortConfigDone", "count=0");
    world.set("PORT_TABLE:PortInitDone", "lanes=0");
    world.set("INTF_TABLE:Ethernet0.10", "NULL=NULL");
    world.settle();
    world.set("PORT_TABLE:Ethernet0.10", "lanes=0,1 oper_status=up");
    world.set("NEIGH_TABLE:Ethernet0.10:10.0.0.2", "neigh=02:00:00:00:00:02 family=IPv4");
    world.set("ROUTE_TABLE:10.9.0.0/16", "nexthop=10.0.0.2 ifname=Ethernet0.10");
    world.settle();
    assert_eq!(world.forwarding("10.9.0.0/16"), "10.0.0.2");
    world.set("PORT_TABLE:Ethernet0.10", "oper_status=down");
    world.set("ROUTE_TABLE:10.8.0.0/16", "nexthop=10.0.0.2 ifname=Ethernet0.10");
    world.settle();
    assert_eq!(world.why("10.8.0.0/16"), "the link of next hop 10.0.0.2, Ethernet0.10, is down");
    let reads = |request: &crate::sai::SaiRequest| matches!(&request.call, SaiCall::Get { attrs, .. } if attrs.iter().any(|attr| attr.name().contains("OPER")));
    assert!(!world.sent.iter().any(reads) && reports(&mut world).is_empty());
}

/// A reply to a read that the chip made before the link went down comes after the report.
#[test]
fn reply_that_is_older_than_a_report_does_not_undo_it() {
    let mut world = with_routes(World::new(OrchConfig::default()));
    world.orch.read_port_states();
    world.run();
    let mut replies = Vec::new();
    loop {
        let reads = |request: &crate::sai::SaiRequest| {
            matches!(request.call, SaiCall::Get { object: ObjectType::Port, .. })
        };
        assert!(world.queue.iter().all(reads));
        let Some(request) = world.queue.pop() else { break };
        let mut out = SyncdOut::default();
        world.syncd.handle(request, &mut out);
        replies.extend(out.replies);
        world.run();
    }
    world.link(1, false);
    for reply in replies {
        world.reply(reply);
    }
    world.run();
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2 10.0.1.2", "the request is on its way");
    world.settle();
    assert_eq!(world.forwarding("10.7.0.0/16"), "10.0.0.2");
}

#[test]
fn report_about_a_port_that_no_row_names_is_ignored() {
    let mut world = World::bare(OrchConfig::default(), Chip::new());
    world.set("PORT_TABLE:PortConfigDone", "count=0");
    world.set("PORT_TABLE:PortInitDone", "lanes=0");
    world.settle();
    world.link(1, false);
    world.settle();
    assert_eq!((reports(&mut world).len(), world.events().len()), (0, 0));
}

#[test]
fn switch_is_created_with_the_attributes_of_sonics_orchagent_in_their_order() {
    let mut world = World::bare(OrchConfig::default(), Chip::new());
    world.settle();
    let created = world.sent.iter().find_map(|request| match &request.call {
        SaiCall::One { object: ObjectType::Switch, item, .. } => Some(item.attrs.clone()),
        _ => None,
    });
    let names: Vec<String> = created.unwrap().iter().map(|attr| attr.name().to_owned()).collect();
    let recorded = [
        "SAI_SWITCH_ATTR_INIT_SWITCH",
        "SAI_SWITCH_ATTR_PORT_STATE_CHANGE_NOTIFY",
        "SAI_SWITCH_ATTR_SWITCH_SHUTDOWN_REQUEST_NOTIFY",
        "SAI_SWITCH_ATTR_SRC_MAC_ADDRESS",
    ];
    assert_eq!(names, recorded);
}
