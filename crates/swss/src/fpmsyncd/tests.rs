//! The contract's cases: which rows come of which messages, in which order, and what a session's end changes.

mod client;
mod compare;
mod compatibility;
mod explain;
mod group_changes;
mod random;
mod reconcile;
mod replay;
mod responses;
mod restart;
mod suppression;
mod vpns;
mod vrfs;

use super::*;
use crate::row::{
    MySidRow, PicContextRow, RouteResponse, RouteStatus, Row, SidListRow, Via, VnetRouteRow, VnetTunnelRow,
    VpnRow, VpnTable,
};
use ribtide_wire::fpm;
use ribtide_wire::netlink::Via as Out;
use ribtide_wire::netlink::{
    Forward, Hop, Hops, LabelRoute, Member, Members, NextHop, NextHops, Route, RouteKind,
};
use std::sync::Arc;

struct Bench {
    machine: Fpmsyncd,
    out: FpmOut,
}

fn prefix(text: &str) -> AnyPrefix {
    text.parse().unwrap()
}

/// A row of BGP's with one next hop.
fn bgp_row(gateway: &str) -> RouteRow {
    RouteRow {
        protocol: Some("bgp".into()),
        via: Arc::new(Via::hops([(gateway.parse().unwrap(), "Ethernet0", 1)].into_iter(), true)),
    }
}

fn out(gateway: &str, ifindex: u32) -> Out {
    Out { gateway: (!gateway.is_empty()).then(|| gateway.parse().unwrap()), ifindex, onlink: false }
}

/// A change of a table of VPNs, as [`Change`] prints itself; SONiC writes a row of these only as it is in the table.
fn vpn_line(change: VpnChange) -> String {
    fn line<R: Row<Key = Name>>(change: VpnChange, row: fn(VpnRow) -> R) -> String {
        format!("{:?}", Change { key: change.key, row: change.row.map(row), reshaped: change.reshaped })
    }
    match change.table {
        VpnTable::PicContext => line(change, PicContextRow),
        VpnTable::MySid => line(change, MySidRow),
        VpnTable::SidList => line(change, SidListRow),
        VpnTable::VnetRoute => line(change, VnetRouteRow),
        VpnTable::VnetTunnel => line(change, VnetTunnelRow),
    }
}

/// The reply to a client that is not ribtide's, after orchagent's response.
fn confirmation(to: &str, table: u32) -> Offload {
    Offload { prefix: prefix(to), table, protocol: 186, refused: None, form: ReplyForm::Confirmation }
}

impl Bench {
    fn new() -> Bench {
        Bench::with(FpmConfig::default())
    }

    fn with(config: FpmConfig) -> Bench {
        let (mut machine, mut out) = (Fpmsyncd::new(config), FpmOut::default());
        for (index, name) in
            [(1, "eth0"), (7, "Ethernet0"), (8, "Ethernet4"), (40, "Vrfred"), (41, "mgmt"), (42, "Vnet1")]
        {
            machine.link(index, name, &mut out);
        }
        machine.session_up();
        Bench { machine, out }
    }

    /// Sends a message through bytes, as a connection would.
    fn send(&mut self, content: Content<'_>) {
        let mut bytes = Vec::new();
        match content {
            Content::NewRoute(route) => fpm::write_route(&mut bytes, &route).unwrap(),
            Content::DelRoute(route) => {
                fpm::write_delete(&mut bytes, route.prefix, route.table, route.protocol)
            }
            Content::NewLabelRoute(route) => fpm::write_label_route(&mut bytes, &route).unwrap(),
            Content::DelLabelRoute(route) => fpm::write_delete_label(&mut bytes, route.label, route.protocol),
            Content::Multipart { ack } => fpm::write_start_of_replay(&mut bytes, ack),
            Content::Done(_) => fpm::write_end_of_replay(&mut bytes),
            Content::NewNextHop(object) => fpm::write_next_hop(&mut bytes, &object).unwrap(),
            Content::DelNextHop(id) => fpm::write_delete_next_hop(&mut bytes, id),
            other => panic!("{other:?}"),
        }
        let frame = fpm::frame(&bytes).unwrap().unwrap();
        self.machine.frame(&frame, &mut self.out);
    }

    fn route_in(&mut self, table: u32, to: &str, hops: &[(&str, u32, u16)]) {
        let hops: Vec<Hop> =
            hops.iter().map(|(gw, by, weight)| Hop { via: out(gw, *by), weight: *weight }).collect();
        let next_hops = NextHops::Inline(Hops::from(&hops[..]));
        self.send(Content::NewRoute(Route::new(prefix(to), table, 186, next_hops)));
    }

    /// A label's route; next hops with their labels.
    fn label(&mut self, label: u32, hops: &[(&str, u32, u16, &[u32])]) {
        let hops: Vec<(Hop, &[u32])> = hops
            .iter()
            .map(|(gw, by, weight, labels)| (Hop { via: out(gw, *by), weight: *weight }, *labels))
            .collect();
        let next_hops = NextHops::Inline(Hops::from(&hops[..]));
        self.send(Content::NewLabelRoute(LabelRoute::new(label, 186, next_hops)));
    }

    fn no_label(&mut self, label: u32) {
        self.send(Content::DelLabelRoute(LabelRoute::new(label, 186, NextHops::None)));
    }

    fn route(&mut self, to: &str, gateway: &str, ifindex: u32) {
        self.route_in(0, to, &[(gateway, ifindex, 1)]);
    }

    fn by_id(&mut self, to: &str, id: u32) {
        self.send(Content::NewRoute(Route::new(prefix(to), 0, 186, NextHops::Id(id))));
    }

    fn kind(&mut self, to: &str, kind: RouteKind) {
        self.send(Content::NewRoute(Route { kind, ..Route::new(prefix(to), 0, 186, NextHops::None) }));
    }

    fn del(&mut self, to: &str) {
        self.send(Content::DelRoute(Route::new(prefix(to), 0, 186, NextHops::None)));
    }

    fn hop(&mut self, id: u32, gateway: &str, ifindex: u32) {
        let forward = Forward::via(out(gateway, ifindex));
        self.send(Content::NewNextHop(NextHop { id, protocol: 186, forward }));
    }

    fn group(&mut self, id: u32, members: &[(u32, u16)]) {
        let members: Vec<Member> =
            members.iter().map(|(id, weight)| Member { id: *id, weight: *weight }).collect();
        let forward = Forward::Group(Members::from(&members[..]));
        self.send(Content::NewNextHop(NextHop { id, protocol: 186, forward }));
    }

    /// What is to be written, in order.
    fn take(&mut self) -> Vec<String> {
        self.machine.take(&mut self.out);
        self.drain()
    }

    fn drain(&mut self) -> Vec<String> {
        assert_eq!(self.machine.awaiting(), self.machine.count_awaiting());
        let groups = self.out.groups.drain(..).map(|change| format!("{change:?}"));
        let mut lines: Vec<String> = groups.collect();
        lines.extend(self.out.vpn_rows.drain(..).map(vpn_line));
        let routes = self.out.routes.drain(..).chain(self.out.queries.drain(..));
        lines.extend(routes.map(|change| format!("{change:?}")));
        lines.extend(self.out.labels.drain(..).map(|change| format!("{change:?}")));
        lines.extend(self.out.old_groups.drain(..).map(|change| format!("{change:?}")));
        lines.extend(self.out.old_vpn_rows.drain(..).map(vpn_line));
        lines
    }

    fn sentences(&mut self) -> Vec<String> {
        self.out.events.drain(..).map(|event| event.to_string()).collect()
    }

    /// So much time passes in which the client is listened to and says nothing.
    fn listen(&mut self, span_ms: u64) {
        let until = self.machine.now_ms + span_ms;
        while self.machine.now_ms < until {
            self.machine.tick(until.min(self.machine.now_ms + LISTENING_MS), true);
            self.machine.look(false, &mut self.out);
        }
    }

    fn reconnect(&mut self) {
        self.machine.session_down();
        self.machine.session_up();
    }

    fn row(&self, to: &str) -> String {
        let mut text = String::new();
        let view = self.machine.lookup(None, prefix(to)).expect("a route");
        if let Some(row) = view.row {
            row.fields(&mut |field, value| text.push_str(&format!("{field}={value} ")));
        }
        text
    }
}

#[test]
fn the_contracts_example() {
    let mut bench = Bench::new();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    assert_eq!(
        bench.out.offloads,
        [Offload { form: ReplyForm::Announced { at: 0, len: 72 }, ..confirmation("10.1.0.0/16", 0) }]
    );
    let mut reply = Vec::new();
    bench.out.write_replies(&mut reply);
    let frame = fpm::frame(&reply).unwrap().unwrap();
    let Some(Ok(Content::NewRoute(route))) = frame.messages().next() else { panic!("not a route") };
    assert!(route.offloaded() && route.table == 0 && route.protocol == 186);
    assert_eq!(
        bench.take(),
        ["ROUTE_TABLE:10.1.0.0/16 SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1"]
    );
    bench.del("10.1.0.0/16");
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.1.0.0/16 DEL"]);
    assert!(bench.machine.is_empty());
}

#[test]
fn keys_are_formatted_as_by_libnl() {
    let mut bench = Bench::new();
    for to in ["10.0.0.1/32", "fc00:1::/64", "fc00:1::1/128", "0.0.0.0/0", "::/0"] {
        bench.kind(to, RouteKind::Blackhole);
    }
    let rows = ["10.0.0.1", "fc00:1::/64", "fc00:1::1", "0.0.0.0/0", "::/0"];
    let rows = rows.map(|key| format!("ROUTE_TABLE:{key} SET protocol=bgp blackhole=true"));
    assert_eq!(bench.take(), rows);
}

#[test]
fn tables_are_vrfs() {
    let mut bench = Bench::new();
    for table in [254, 253, 255, 40, 41, 42, 99] {
        bench.route_in(table, &format!("10.{table}.0.0/16"), &[("10.0.0.1", 7, 1)]);
    }
    let row = "SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1";
    let rows = ["10.254.0.0/16", "10.253.0.0/16", "10.255.0.0/16", "Vrfred:10.40.0.0/16"];
    let vnet = "VNET_ROUTE_TABLE:Vnet1:10.42.0.0/16 SET nexthop=10.0.0.1 ifname=Ethernet0".to_owned();
    let rows = rows.map(|key| format!("ROUTE_TABLE:{key} {row}"));
    assert_eq!(bench.take(), [vec![vnet], rows.to_vec()].concat());
    assert_eq!(
        bench.sentences(),
        [
            "10.99.0.0/16 is not in APPL_DB: table 99 is not the interface index of a VRF, and until it is, the route \
             waits; see whether its Vrf device exists",
        ]
    );
    // The answer bears the number that the daemon uses, whatever it is.
    assert_eq!(bench.out.offloads.iter().map(|o| o.table).collect::<Vec<_>>(), [254, 253, 255, 40, 42]);
    assert_eq!(bench.machine.counters().refused, 1);
    assert_eq!(bench.machine.counters().ignored, 1);
    // A reason is given once.
    bench.route_in(99, "10.98.0.0/16", &[("10.0.0.1", 7, 1)]);
    assert!(bench.sentences().is_empty());
    // A VRF's routes can be withdrawn after its device went; an index that is a VRF's is one even when it is 254.
    bench.machine.link_gone(40);
    bench.machine.link(254, "Vrfblue", &mut bench.out);
    bench.send(Content::DelRoute(Route::new(prefix("10.40.0.0/16"), 40, 186, NextHops::None)));
    bench.route_in(254, "10.9.0.0/16", &[("10.0.0.1", 7, 1)]);
    assert_eq!(
        bench.take(),
        ["ROUTE_TABLE:Vrfred:10.40.0.0/16 DEL".into(), format!("ROUTE_TABLE:Vrfblue:10.9.0.0/16 {row}")]
    );
}

#[test]
fn inline_next_hops_have_fillers_and_weights() {
    let mut bench = Bench::new();
    bench.route_in(0, "10.1.0.0/16", &[("10.0.0.1", 7, 2), ("10.0.0.3", 8, 1)]);
    bench.route("10.2.0.0/16", "", 7);
    bench.route("fc00::/64", "", 8);
    bench.route("10.3.0.0/16", "10.0.0.1", 77);
    bench.route("10.4.0.0/16", "fe80::1", 7);
    assert_eq!(
        bench.take(),
        [
            "ROUTE_TABLE:10.1.0.0/16 SET protocol=bgp nexthop=10.0.0.1,10.0.0.3 ifname=Ethernet0,Ethernet4 weight=2,1",
            "ROUTE_TABLE:10.2.0.0/16 SET protocol=bgp nexthop=0.0.0.0 ifname=Ethernet0 weight=1",
            "ROUTE_TABLE:fc00::/64 SET protocol=bgp nexthop=:: ifname=Ethernet4 weight=1",
            "ROUTE_TABLE:10.3.0.0/16 SET protocol=bgp nexthop=10.0.0.1 ifname=unknown weight=1",
            "ROUTE_TABLE:10.4.0.0/16 SET protocol=bgp nexthop=fe80::1 ifname=Ethernet0 weight=1",
        ]
    );
    // The interface becomes known.
    bench.machine.link(77, "Ethernet8", &mut bench.out);
    assert_eq!(
        bench.take(),
        ["ROUTE_TABLE:10.3.0.0/16 SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet8 weight=1"]
    );
}

#[test]
fn management_is_not_for_the_chip() {
    let mut bench = Bench::new();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    assert_eq!(bench.take().len(), 1);
    bench.route("10.1.0.0/16", "192.168.0.1", 1);
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.1.0.0/16 DEL"]);
    bench.hop(5, "192.168.0.1", 1);
    bench.by_id("10.2.0.0/16", 5);
    assert!(bench.take().is_empty());
    // One hop of several stays.
    bench.route_in(0, "10.1.0.0/16", &[("10.0.0.1", 7, 1), ("192.168.0.1", 1, 1)]);
    assert_eq!(
        bench.take(),
        [
            "ROUTE_TABLE:10.1.0.0/16 SET protocol=bgp nexthop=10.0.0.1,192.168.0.1 ifname=Ethernet0,eth0 weight=1,1"
        ]
    );
}

#[test]
fn other_types_are_answered_and_not_carried() {
    let mut bench = Bench::new();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.take();
    for (n, kind) in [RouteKind::Local, RouteKind::Broadcast, RouteKind::Multicast].into_iter().enumerate() {
        bench.kind(&format!("10.{}.0.0/16", n + 2), kind);
    }
    assert_eq!(bench.out.offloads.len(), 4);
    assert!(bench.take().is_empty());
    assert_eq!(
        bench.sentences()[0],
        "10.2.0.0/16 is not in APPL_DB: routes of type local are not forwarded by the chip"
    );
    // One that replaces a route takes its row away.
    bench.kind("10.1.0.0/16", RouteKind::Unreachable);
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.1.0.0/16 DEL"]);
}

#[test]
fn objects_are_inlined_or_rows_of_their_own() {
    let mut bench = Bench::new();
    bench.hop(3, "10.0.0.1", 7);
    bench.hop(4, "10.0.0.3", 8);
    bench.by_id("10.1.0.0/16", 3);
    bench.by_id("10.2.0.0/16", 9);
    bench.group(9, &[(3, 1), (4, 3)]);
    assert_eq!(
        bench.take(),
        [
            "NEXTHOP_GROUP_TABLE:9 SET nexthop=10.0.0.1,10.0.0.3 ifname=Ethernet0,Ethernet4 weight=1,3",
            "ROUTE_TABLE:10.1.0.0/16 SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0",
            "ROUTE_TABLE:10.2.0.0/16 SET protocol=bgp nexthop_group=9",
        ]
    );
    // A next hop changes: the routes and groups with it follow, the route of the group does not.
    bench.hop(3, "10.0.0.9", 7);
    assert_eq!(
        bench.take(),
        [
            "NEXTHOP_GROUP_TABLE:9 SET nexthop=10.0.0.9,10.0.0.3 ifname=Ethernet0,Ethernet4 weight=1,3",
            "ROUTE_TABLE:10.1.0.0/16 SET protocol=bgp nexthop=10.0.0.9 ifname=Ethernet0",
        ]
    );
    // The same again changes nothing.
    bench.hop(3, "10.0.0.9", 7);
    bench.group(9, &[(3, 1), (4, 3)]);
    bench.by_id("10.1.0.0/16", 3);
    assert!(bench.take().is_empty());
    // From group to next hops: other fields, and the group goes after the route.
    bench.send(Content::DelNextHop(9));
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    assert_eq!(
        bench.take(),
        [
            "ROUTE_TABLE:10.2.0.0/16 REPLACE protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1",
            "NEXTHOP_GROUP_TABLE:9 DEL",
        ]
    );
}

#[test]
fn routes_wait_for_objects_and_groups_for_members() {
    let mut bench = Bench::new();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.take();
    bench.by_id("10.1.0.0/16", 9);
    bench.by_id("10.2.0.0/16", 9);
    bench.group(9, &[(3, 1)]);
    assert!(bench.take().is_empty());
    assert_eq!(
        bench.sentences(),
        [
            "10.1.0.0/16 is not in APPL_DB: it waits for next-hop object 9, which was not announced yet",
            "next-hop object 9 is not in APPL_DB: it waits for next-hop object 3, which was not announced yet",
        ]
    );
    assert_eq!(bench.machine.waiting(), 2);
    assert_eq!(bench.machine.lookup(None, prefix("10.2.0.0/16")).unwrap().waits_for, Some(9));
    assert_eq!(bench.row("10.1.0.0/16"), "protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1 ");
    bench.del("10.2.0.0/16");
    bench.hop(3, "10.0.0.3", 8);
    assert_eq!(
        bench.take(),
        [
            "NEXTHOP_GROUP_TABLE:9 SET nexthop=10.0.0.3 ifname=Ethernet4 weight=1",
            "ROUTE_TABLE:10.1.0.0/16 REPLACE protocol=bgp nexthop_group=9",
        ]
    );
    assert_eq!(bench.machine.waiting(), 0);
}

#[test]
fn changes_between_two_takes_coalesce() {
    let mut bench = Bench::new();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.route("10.1.0.0/16", "10.0.0.3", 8);
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    bench.del("10.2.0.0/16");
    assert_eq!(bench.machine.pending(), 2);
    assert_eq!(
        bench.take(),
        ["ROUTE_TABLE:10.1.0.0/16 SET protocol=bgp nexthop=10.0.0.3 ifname=Ethernet4 weight=1"]
    );
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.del("10.1.0.0/16");
    bench.route("10.1.0.0/16", "10.0.0.3", 8);
    assert!(bench.take().is_empty());
    // DELROUTE and NEWROUTE of one frame are a replacement.
    bench.del("10.1.0.0/16");
    bench.kind("10.1.0.0/16", RouteKind::Blackhole);
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.1.0.0/16 REPLACE protocol=bgp blackhole=true"]);
}

#[test]
fn session_new_one_numbers_objects_again_and_deletes_unannounced_rows() {
    let mut bench = Bench::new();
    bench.hop(3, "10.0.0.1", 7);
    bench.group(9, &[(3, 1)]);
    bench.group(8, &[(3, 2)]);
    bench.by_id("10.1.0.0/16", 3);
    bench.by_id("10.2.0.0/16", 9);
    bench.by_id("10.3.0.0/16", 8);
    bench.take();
    bench.listen(5_000);
    bench.reconnect();
    // The same id, another gateway: the route of before is untouched until it is announced.
    bench.hop(3, "10.0.0.3", 8);
    bench.group(9, &[(3, 1)]);
    bench.by_id("10.2.0.0/16", 9);
    assert_eq!(bench.take(), ["NEXTHOP_GROUP_TABLE:9 SET nexthop=10.0.0.3 ifname=Ethernet4 weight=1"]);
    assert!(!bench.machine.lookup(None, prefix("10.1.0.0/16")).unwrap().announced);
    bench.listen(9_999);
    assert!(bench.take().is_empty());
    bench.listen(1);
    let mut rows = bench.take();
    rows.sort();
    assert_eq!(
        rows,
        ["NEXTHOP_GROUP_TABLE:8 DEL", "ROUTE_TABLE:10.1.0.0/16 DEL", "ROUTE_TABLE:10.3.0.0/16 DEL"]
    );
    assert_eq!(bench.sentences(), ["deleted 2 routes and 1 next-hop groups that were not announced again"]);
    bench.listen(75_000);
    assert!(bench.take().is_empty() && bench.sentences().is_empty());
}

#[test]
fn a_client_says_when_it_has_announced_everything() {
    let mut bench = Bench::new();
    let two = [("10.0.0.1", 7, 1), ("10.0.0.2", 8, 2)];
    bench.route_in(0, "10.1.0.0/16", &two);
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    bench.take();
    bench.machine.set_quiet(0);
    bench.reconnect();
    // Next hops in another order are the same ones, when they are said again; with other weights they are not.
    bench.route_in(0, "10.1.0.0/16", &[two[1], two[0]]);
    assert!(bench.take().is_empty());
    bench.listen(1_000_000);
    assert!(bench.take().is_empty() && !bench.machine.is_replayed());
    bench.send(Content::Done(ribtide_wire::netlink::Ack { errno: 0, text: None }));
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.2.0.0/16 DEL"]);
    assert!(bench.machine.is_replayed());
    bench.reconnect();
    bench.route_in(0, "10.1.0.0/16", &[("10.0.0.1", 7, 2), ("10.0.0.2", 8, 1)]);
    assert_eq!(bench.take().len(), 1);
}

#[test]
fn rows_of_before_the_start_stay_if_announced() {
    let mut bench = Bench::new();
    let keys = ["10.1.0.0/16", "10.2.0.0/16", "Vrfred:10.1.0.0/16", "10.3.0.9/16", "10.0.0.1"];
    for key in keys {
        bench.machine.known_route(RouteRow::parse_key(key).unwrap(), &bgp_row("10.0.0.1"), false);
    }
    let group = NextHopGroupRow { via: bgp_row("10.0.0.1").via };
    bench.machine.known_group(&"7".into(), group.clone(), false);
    bench.machine.known_group(&"by-hand".into(), group, false);
    bench.reconnect();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.route("10.0.0.1/32", "10.0.0.1", 7);
    bench.machine.end_of_replay(&mut bench.out);
    let mut rows = bench.take();
    rows.sort();
    let gone =
        ["10.2.0.0/16", "10.3.0.9/16", "Vrfred:10.1.0.0/16"].map(|key| format!("ROUTE_TABLE:{key} DEL"));
    assert_eq!(rows, [&["NEXTHOP_GROUP_TABLE:7 DEL".to_string()], &gone[..]].concat());
}

#[test]
fn a_lost_database_gets_every_row_again() {
    let mut bench = Bench::new();
    bench.hop(3, "10.0.0.1", 7);
    bench.group(9, &[(3, 1)]);
    bench.by_id("10.1.0.0/16", 9);
    bench.take();
    bench.machine.write_again(&mut bench.out);
    let mut again = bench.machine.resend_all();
    assert!(!bench.machine.next_resent(&mut again, ResendKind::AsNew, 10, &mut bench.out));
    assert_eq!(
        bench.drain(),
        [
            "NEXTHOP_GROUP_TABLE:9 REPLACE nexthop=10.0.0.1 ifname=Ethernet0 weight=1",
            "ROUTE_TABLE:10.1.0.0/16 REPLACE protocol=bgp nexthop_group=9",
        ]
    );
}

#[test]
fn rows_are_said_again_as_they_are_when_it_is_their_turn() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    bench.machine.link(40, "Vrfred", &mut bench.out);
    for n in 0..5 {
        bench.route(&format!("10.{n}.0.0/16"), "10.0.0.1", 7);
    }
    bench.route("fc00:1::/64", "fc00::1", 7);
    bench.route_in(40, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
    bench.take();
    let answer = RouteResponse::success(RouteRow::parse_key("10.0.0.0/16").unwrap(), Some("bgp".into()));
    bench.machine.confirm(&answer, &mut bench.out);
    for missed in [false, true] {
        let mut again = bench.machine.resend_all();
        bench.route("10.2.0.0/16", "10.0.0.2", 7);
        bench.del("10.3.0.0/16");
        bench.route("10.9.0.0/16", "10.0.0.1", 7);
        bench.take();
        let (mut rows, mut pieces) = (Vec::new(), 1);
        while bench.machine.next_resent(&mut again, ResendKind::Unchanged { missed }, 2, &mut bench.out) {
            pieces += 1;
            assert!(bench.out.routes.len() <= 2);
            rows.extend(bench.drain());
        }
        rows.extend(bench.drain());
        rows.sort();
        // Routes that went in the meantime are left out, and routes that came are reported alone; the second time with all.
        assert_eq!((rows.len(), pieces), if missed { (7, 4) } else { (6, 4) }, "{rows:?}");
        let changed = if missed { "ROUTE_TABLE:10.2" } else { "ROUTE_TABLE:resync:10.2" };
        assert!(
            rows.iter().any(|row| row.starts_with(changed) && row.contains("nexthop=10.0.0.2")),
            "{rows:?}"
        );
        // Its answer came: it is not awaited.
        assert!(rows.iter().any(|row| row.starts_with("ROUTE_TABLE:resync:10.0.0.0/16 REPLACE")), "{rows:?}");
        let red = if missed { "ROUTE_TABLE:Vrfred:10.1" } else { "ROUTE_TABLE:resync:Vrfred:10.1" };
        assert!(rows.iter().any(|row| row.starts_with(red)), "{rows:?}");
    }
}

#[test]
fn with_suppression_the_chip_must_confirm() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    let response = |key: &str, protocol: Option<&str>| {
        RouteResponse::success(RouteRow::parse_key(key).unwrap(), protocol.map(Name::from))
    };
    bench.route_in(254, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
    bench.route_in(40, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
    assert!(bench.out.offloads.is_empty());
    // Not written yet, so it cannot be an answer to this row.
    bench.machine.confirm(&response("10.1.0.0/16", Some("bgp")), &mut bench.out);
    assert!(bench.out.offloads.is_empty());
    bench.take();
    let failed = RouteResponse {
        status: RouteStatus::Failed("SWSS_RC_FULL".into()),
        ..response("10.1.0.0/16", Some("bgp"))
    };
    bench.machine.confirm(&failed, &mut bench.out);
    let refused = Offload { refused: Some("SWSS_RC_FULL".into()), ..confirmation("10.1.0.0/16", 254) };
    assert_eq!(std::mem::take(&mut bench.out.offloads), [refused]);
    bench.machine.confirm(&response("10.1.0.0/16", None), &mut bench.out);
    bench.machine.confirm(&response("10.9.0.0/16", Some("bgp")), &mut bench.out);
    assert!(bench.out.offloads.is_empty());
    bench.machine.confirm(&response("Vrfred:10.1.0.0/16", Some("bgp")), &mut bench.out);
    bench.machine.confirm(&response("10.1.0.0/16", Some("bgp")), &mut bench.out);
    let answer = |table| confirmation("10.1.0.0/16", table);
    assert_eq!(bench.out.offloads, [answer(40), answer(254)]);
    bench.out.offloads.clear();
    // Announced again in the same session: orchagent must answer. In another session: answered at once.
    bench.route_in(254, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
    assert!(bench.out.offloads.is_empty());
    assert_eq!(bench.take().len(), 1);
    bench.machine.confirm(&response("10.1.0.0/16", Some("bgp")), &mut bench.out);
    bench.reconnect();
    bench.route_in(254, "10.1.0.0/16", &[("10.0.0.1", 7, 1)]);
    assert_eq!(bench.out.offloads, [answer(254), answer(254)]);
    assert!(bench.take().is_empty());
    bench.out.offloads.clear();
    // Not confirmed: it is written again. What is answered may be the one or the other, so it is not sure afterwards either.
    let again = confirmation("10.2.0.0/16", 0);
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    assert_eq!(bench.take().len(), 1);
    bench.route("10.2.0.0/16", "10.0.0.2", 7);
    assert_eq!(bench.take().len(), 1);
    bench.machine.confirm(&response("10.2.0.0/16", Some("bgp")), &mut bench.out);
    assert_eq!(bench.out.offloads, std::slice::from_ref(&again));
    bench.reconnect();
    bench.route("10.2.0.0/16", "10.0.0.2", 7);
    assert_eq!(bench.out.offloads, std::slice::from_ref(&again));
    assert_eq!(bench.take().len(), 1);
}

/// However many come at once, and of any session.
#[test]
fn each_of_many_answers_counts_once() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    bench.reconnect();
    let keys: Vec<String> = (0..100).map(|n| format!("10.0.{n}.0/24")).collect();
    keys.iter().for_each(|key| bench.route(key, "10.0.0.1", 7));
    assert_eq!(bench.take().len(), 100);
    bench.out.offloads.clear();
    let answers = keys.iter().map(|key| prefix(key)).chain([prefix("10.0.99.0/24"), prefix("10.200.0.0/24")]);
    bench.machine.confirm_all(None, "bgp", answers, &mut bench.out);
    let offloaded: Vec<String> =
        bench.out.offloads.iter().map(|offload| offload.prefix.to_string()).collect();
    assert_eq!(offloaded, keys);
}

/// A second answer, or one that no client waits for, confirms nothing. A report of what is in the chip counts for the rows before
/// the start; a row that waits for its answer is queried again.
#[test]
fn what_is_said_twice_confirms_nothing_newer() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    let known = bgp_row("10.0.0.1");
    for key in ["10.1.0.0/16", "10.2.0.0/16"] {
        bench.machine.known_route(RouteRow::parse_key(key).unwrap(), &known, false);
    }
    let in_chip =
        |bench: &mut Bench, key: &str| bench.machine.in_chip(None, std::iter::once(prefix(key)), true);
    let answer = |bench: &mut Bench, key: &str| {
        bench.machine.confirm_all(None, "bgp", std::iter::once(prefix(key)), &mut bench.out);
        std::mem::take(&mut bench.out.offloads).len()
    };
    let confirmed = |bench: &Bench, key: &str| bench.machine.lookup(None, prefix(key)).unwrap().confirmed;
    for key in ["10.1.0.0/16", "10.9.0.0/16"] {
        in_chip(&mut bench, key);
    }
    bench.machine.in_chip(Some("Vrfnone"), std::iter::once(prefix("10.2.0.0/16")), true);
    bench.machine.in_chip(None, std::iter::once(prefix("10.2.0.0/16")), false);
    bench.reconnect();
    // Known to be there: answered at once and not written. The other one is written.
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    assert_eq!((std::mem::take(&mut bench.out.offloads).len(), bench.take().len()), (1, 1));
    assert_eq!(answer(&mut bench, "10.1.0.0/16"), 0);
    // The first answer may be to the row of before the start. If it was for both there is no other, so the row is written again.
    assert_eq!((answer(&mut bench, "10.2.0.0/16"), bench.take().len()), (0, 1));
    assert_eq!((answer(&mut bench, "10.2.0.0/16"), bench.take().len()), (1, 0));
    assert!(!confirmed(&bench, "10.2.0.0/16"), "an answer is still to come");
    assert_eq!((answer(&mut bench, "10.2.0.0/16"), bench.take().len()), (0, 0));
    assert!(confirmed(&bench, "10.1.0.0/16") && confirmed(&bench, "10.2.0.0/16"));
    // Another way, under way: that the chip has a route does not say by which way.
    bench.route("10.1.0.0/16", "10.0.0.2", 7);
    in_chip(&mut bench, "10.1.0.0/16");
    assert_eq!(bench.take().len(), 1);
    in_chip(&mut bench, "10.1.0.0/16");
    assert!(bench.out.offloads.is_empty() && !confirmed(&bench, "10.1.0.0/16"));
    let again = bench.take();
    assert!(again.len() == 1 && again[0].contains("nexthop=10.0.0.2"), "{again:?}");
    // Of two answers, if the first is not lost, one is for who announced it.
    assert_eq!(answer(&mut bench, "10.1.0.0/16"), 1);
    assert_eq!(answer(&mut bench, "10.1.0.0/16"), 0);
    assert!(confirmed(&bench, "10.1.0.0/16"));
    // Confirmed routes are not written again.
    in_chip(&mut bench, "10.2.0.0/16");
    assert!(bench.take().is_empty());
    // The answer comes before the row is written again: nothing is written, and the client is notified.
    bench.route("10.2.0.0/16", "10.0.0.2", 7);
    assert_eq!(bench.take().len(), 1);
    in_chip(&mut bench, "10.2.0.0/16");
    assert_eq!(answer(&mut bench, "10.2.0.0/16"), 0);
    assert_eq!((bench.take(), bench.out.offloads.len()), (vec![], 1));
}

/// Rows that fpmsyncd writes of its own accord have answers too, and those belong to no client: neither to the one that announced
/// the row before, nor to the one that announces the next.
#[test]
fn answer_to_a_row_without_announcer_confirms_no_later_one() {
    let key = "10.1.0.0/16";
    let start = |gateway: &str| {
        let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
        bench.route(key, gateway, 7);
        assert_eq!(bench.take().len(), 1);
        assert_eq!(answers(&mut bench, key), (1, vec![]));
        bench
    };
    fn answers(bench: &mut Bench, key: &str) -> (usize, Vec<String>) {
        bench.machine.confirm_all(None, "bgp", std::iter::once(prefix(key)), &mut bench.out);
        let again = bench.take();
        (std::mem::take(&mut bench.out.offloads).len(), again)
    }
    let resend_all = |bench: &mut Bench| {
        let mut again = bench.machine.resend_all();
        assert!(!bench.machine.next_resent(&mut again, ResendKind::AsNew, 10, &mut bench.out));
        assert_eq!(bench.drain().len(), 1);
    };
    // Redis lost the row, and the route changes before the answer to its copy.
    let mut bench = start("10.0.0.1");
    resend_all(&mut bench);
    bench.route(key, "10.0.0.2", 7);
    assert_eq!(bench.take().len(), 1);
    let (notified, again) = answers(&mut bench, key);
    assert!(
        notified == 0 && again.len() == 1 && again[0].contains("nexthop=10.0.0.2"),
        "{notified} {again:?}"
    );
    assert_eq!(answers(&mut bench, key), (1, vec![]));
    assert_eq!(answers(&mut bench, key), (0, vec![]));
    assert!(bench.machine.lookup(None, prefix(key)).unwrap().confirmed);
    // The same with a deletion between.
    resend_all(&mut bench);
    bench.del(key);
    assert_eq!(bench.take().len(), 1);
    bench.route(key, "10.0.0.3", 7);
    assert_eq!(bench.take().len(), 1);
    let (notified, again) = answers(&mut bench, key);
    assert_eq!((notified, again.len()), (0, 1));
    assert_eq!(answers(&mut bench, key), (1, vec![]));
    assert_eq!(answers(&mut bench, key), (0, vec![]));
    // And with answers that come when the route is gone.
    resend_all(&mut bench);
    bench.del(key);
    assert_eq!(bench.take().len(), 1);
    assert_eq!(answers(&mut bench, key), (0, vec![]));
    bench.route(key, "10.0.0.3", 7);
    assert_eq!(bench.take().len(), 1);
    assert_eq!(answers(&mut bench, key), (1, vec![]));
    // What an object stands for changed.
    let mut bench = start("10.0.0.1");
    bench.hop(3, "10.0.0.1", 7);
    bench.by_id(key, 3);
    assert_eq!(bench.take().len(), 1);
    assert_eq!(answers(&mut bench, key), (1, vec![]));
    bench.hop(3, "10.0.0.2", 7);
    assert_eq!(bench.take().len(), 1);
    bench.route(key, "10.0.0.9", 7);
    assert_eq!(bench.take().len(), 1);
    let (notified, again) = answers(&mut bench, key);
    assert_eq!((notified, again.len()), (0, 1));
    // Both coalesced: the row that was written for their sake is answered.
    assert_eq!(answers(&mut bench, key), (1, vec![]));
}

/// A row of before the start that orchagent has not taken yet: that the chip has the route says nothing of it.
#[test]
fn a_row_that_waits_in_the_table_is_not_what_is_in_the_chip() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    let row = bgp_row("10.0.0.1");
    for (key, queued) in [("10.1.0.0/16", true), ("10.2.0.0/16", false)] {
        bench.machine.known_route(RouteRow::parse_key(key).unwrap(), &row, queued);
        bench.machine.in_chip(None, std::iter::once(prefix(key)), true);
    }
    bench.reconnect();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.route("10.2.0.0/16", "10.0.0.1", 7);
    let offloaded: Vec<AnyPrefix> = bench.out.offloads.iter().map(|offload| offload.prefix).collect();
    assert_eq!(offloaded, [prefix("10.2.0.0/16")]);
    let rows = bench.take();
    assert!(rows.len() == 1 && rows[0].contains("10.1.0.0/16"), "{rows:?}");
}

/// A start that hears late what is in the chip writes nothing that is as it was.
#[test]
fn what_is_announced_before_it_is_known_to_be_there_is_not_written_if_it_is() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    let row = bgp_row("10.0.0.1");
    for key in ["10.1.0.0/16", "10.2.0.0/16"] {
        bench.machine.known_route(RouteRow::parse_key(key).unwrap(), &row, false);
    }
    bench.reconnect();
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    bench.route("10.2.0.0/16", "10.0.0.2", 7);
    for key in ["10.1.0.0/16", "10.2.0.0/16"] {
        bench.machine.in_chip(None, std::iter::once(prefix(key)), true);
    }
    assert!(bench.out.offloads.is_empty());
    let rows = bench.take();
    assert!(rows.len() == 1 && rows[0].contains("10.2.0.0/16"), "{rows:?}");
    let offloaded: Vec<AnyPrefix> = bench.out.offloads.iter().map(|offload| offload.prefix).collect();
    assert_eq!(offloaded, [prefix("10.1.0.0/16")]);
}

#[test]
fn labels_are_rows_of_their_own_table_and_answered_at_once() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    bench.label(200, &[("10.0.0.1", 7, 1, &[201])]);
    bench.label(300, &[("10.0.0.1", 7, 1, &[])]);
    bench.label(400, &[("10.0.0.1", 7, 1, &[401, 402]), ("10.0.0.3", 8, 1, &[])]);
    bench.label(500, &[("10.0.0.1", 7, 2, &[]), ("10.0.0.3", 8, 1, &[])]);
    bench.label(600, &[("192.168.0.1", 1, 1, &[])]);
    bench.label(0, &[("10.0.0.1", 7, 1, &[])]);
    let drops = LabelRoute { kind: RouteKind::Blackhole, ..LabelRoute::new(700, 4, NextHops::None) };
    bench.send(Content::NewLabelRoute(drops));
    assert_eq!(bench.out.label_offloads.len(), 6);
    assert_eq!(
        bench.out.label_offloads[0],
        LabelOffload { label: 200, table: 0, protocol: 186, form: ReplyForm::Announced { at: 0, len: 68 } }
    );
    assert_eq!(
        bench.take(),
        [
            "LABEL_ROUTE_TABLE:200 SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 mpls_nh=swap201 mpls_pop=1",
            "LABEL_ROUTE_TABLE:300 SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 mpls_pop=1",
            "LABEL_ROUTE_TABLE:400 SET protocol=bgp nexthop=10.0.0.1,10.0.0.3 ifname=Ethernet0,Ethernet4 mpls_nh=swap401/402,na mpls_pop=1",
            "LABEL_ROUTE_TABLE:500 SET protocol=bgp nexthop=10.0.0.1,10.0.0.3 ifname=Ethernet0,Ethernet4 weight=2,1 mpls_pop=1",
            "LABEL_ROUTE_TABLE:700 SET protocol=static blackhole=true",
        ]
    );
    // Between two takes changes coalesce; what is as it was says nothing.
    bench.label(200, &[("10.0.0.1", 7, 1, &[])]);
    bench.label(200, &[("10.0.0.1", 7, 1, &[201])]);
    bench.label(300, &[("10.0.0.1", 7, 1, &[16])]);
    bench.no_label(700);
    bench.no_label(701);
    bench.machine.link(8, "Ethernet8", &mut bench.out);
    assert_eq!(
        bench.take(),
        [
            "LABEL_ROUTE_TABLE:300 REPLACE protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 mpls_nh=swap16 mpls_pop=1",
            "LABEL_ROUTE_TABLE:700 DEL",
            "LABEL_ROUTE_TABLE:400 SET protocol=bgp nexthop=10.0.0.1,10.0.0.3 ifname=Ethernet0,Ethernet8 mpls_nh=swap401/402,na mpls_pop=1",
            "LABEL_ROUTE_TABLE:500 SET protocol=bgp nexthop=10.0.0.1,10.0.0.3 ifname=Ethernet0,Ethernet8 weight=2,1 mpls_pop=1",
        ]
    );
    // What cannot be carried goes, and is said once.
    let of_vrf = LabelRoute { table: 40, ..LabelRoute::new(200, 186, NextHops::Id(3)) };
    bench.send(Content::NewLabelRoute(of_vrf));
    bench.send(Content::NewLabelRoute(LabelRoute { table: 0, ..of_vrf }));
    bench.send(Content::NewLabelRoute(LabelRoute::new(300, 186, NextHops::None)));
    assert_eq!(bench.take(), ["LABEL_ROUTE_TABLE:200 DEL", "LABEL_ROUTE_TABLE:300 DEL"]);
    assert_eq!(
        bench.sentences(),
        [
            "label 200 is not in APPL_DB: it is in table 40, and labels are the switch's, not a VRF's",
            "label 200 is not in APPL_DB: it names next-hop object 3, and objects have no labels; announce its next hops in the route",
            "label 300 is not in APPL_DB: it has no next hop",
        ]
    );
    bench.no_label(600);
    assert!(bench.take().is_empty());
    assert_eq!(bench.machine.len(), 2);
}

#[test]
fn labels_outlive_sessions_as_routes_do() {
    let mut bench = Bench::new();
    let row = |text: &str| {
        LabelRouteRow::from_fields(&mut text.split(' ').filter_map(|pair| pair.split_once('='))).unwrap()
    };
    let two =
        "protocol=bgp nexthop=10.0.0.3,10.0.0.1 ifname=Ethernet4,Ethernet0 mpls_nh=na,swap401 mpls_pop=1";
    bench.machine.known_label(crate::row::LabelKey::Label(400), row(two));
    bench.machine.known_label(crate::row::LabelKey::Label(500), row(two));
    bench.reconnect();
    // In another order, said again, they are the same next hops.
    bench.label(400, &[("10.0.0.1", 7, 1, &[401]), ("10.0.0.3", 8, 1, &[])]);
    bench.label(600, &[("10.0.0.1", 7, 1, &[])]);
    bench.machine.end_of_replay(&mut bench.out);
    assert_eq!(
        bench.take(),
        [
            "LABEL_ROUTE_TABLE:600 SET protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 mpls_pop=1",
            "LABEL_ROUTE_TABLE:500 DEL",
        ]
    );
    assert_eq!(bench.sentences(), ["deleted 1 routes and 0 next-hop groups that were not announced again"]);
    bench.machine.write_again(&mut bench.out);
    let again = bench.drain();
    assert_eq!(again.len(), 2);
    assert!(again[0].starts_with("LABEL_ROUTE_TABLE:400 REPLACE") && again[1].contains("600"), "{again:?}");
}

#[test]
fn ip_routes_put_labels_on() {
    let mut bench = Bench::new();
    let hops: [(Hop, &[u32]); 2] = [
        (Hop { via: out("10.0.0.1", 7), weight: 1 }, &[100, 101]),
        (Hop { via: out("10.0.0.3", 8), weight: 2 }, &[]),
    ];
    let route = |hops| Route::new(prefix("10.1.0.0/16"), 0, 186, NextHops::Inline(hops));
    bench.send(Content::NewRoute(route(Hops::from(&hops[..]))));
    assert_eq!(
        bench.take(),
        [
            "ROUTE_TABLE:10.1.0.0/16 SET protocol=bgp nexthop=10.0.0.1,10.0.0.3 ifname=Ethernet0,Ethernet4 mpls_nh=push100/101,na weight=1,2"
        ]
    );
    let encapsulated = Route { encap: 1, ..route(Hops::from(&hops[..])) };
    let row = bench.machine.rows_now().announced(&encapsulated).unwrap();
    assert!(format!("{row:?}").contains("mpls_nh=push100/101,na"), "{row:?}");
    bench.machine.link(8, "Ethernet8", &mut bench.out);
    assert!(bench.take()[0].contains("ifname=Ethernet0,Ethernet8"));
    // Without labels it has another shape.
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    assert_eq!(
        bench.take(),
        ["ROUTE_TABLE:10.1.0.0/16 REPLACE protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1"]
    );
    assert_eq!(bench.machine.sources.len(), 1);
    // Other encapsulations are not carried.
    let refused = bench.machine.rows_now().announced(&Route { encap: 101, ..encapsulated });
    assert_eq!(refused, Err(Cause::Encapsulated(101)));
}

#[test]
fn nonsense_is_counted_and_what_follows_is_read() {
    let mut bench = Bench::new();
    let mut body = Vec::new();
    Route::new(prefix("10.1.0.0/16"), 0, 186, NextHops::Id(3)).write_new(&mut body, 0, 0).unwrap();
    body[17] = 200;
    Route { kind: RouteKind::Blackhole, ..Route::new(prefix("10.2.0.0/16"), 0, 186, NextHops::None) }
        .write_new(&mut body, 0, 0)
        .unwrap();
    let mut bytes = Vec::new();
    fpm::write_frame(&mut bytes, |out| {
        out.extend(&body);
        Ok(())
    })
    .unwrap();
    bench.machine.frame(&fpm::frame(&bytes).unwrap().unwrap(), &mut bench.out);
    assert_eq!(bench.machine.counters().malformed, 1);
    assert_eq!(bench.sentences(), ["malformed netlink message: a route's length exceeds its family's"]);
    assert_eq!(bench.take(), ["ROUTE_TABLE:10.2.0.0/16 SET protocol=bgp blackhole=true"]);
}

#[test]
fn rows_for_who_remembers_its_routes_are_those_that_messages_give() {
    let mut bench = Bench::new();
    bench.hop(21, "10.0.0.1", 7);
    bench.hop(22, "10.0.4.1", 8);
    bench.hop(23, "10.9.0.1", 1);
    bench.group(9, &[(21, 1), (22, 2)]);
    bench.take();
    let hops = [Hop { via: out("10.0.0.1", 7), weight: 1 }, Hop { via: out("10.0.4.1", 8), weight: 3 }];
    let inline = NextHops::Inline(Hops::from(&hops[..]));
    let resolving = [NextHops::Id(21), NextHops::Id(9), NextHops::Id(9), inline, NextHops::Id(23)];
    let mut routes: Vec<Route<'_>> =
        resolving.into_iter().map(|to| Route::new(prefix("10.1.0.0/16"), 0, 186, to)).collect();
    routes[2].table = 40;
    routes.push(Route {
        kind: RouteKind::Blackhole,
        ..Route::new(prefix("2001:db8::/32"), 254, 4, NextHops::None)
    });
    for route in routes {
        // Something is there, so that a route through the switch's management has a row to lose.
        bench.send(Content::NewRoute(Route { kind: RouteKind::Blackhole, protocol: 11, ..route }));
        bench.take();
        let mut rows = bench.machine.rows_now();
        let (announced, withdrawn) = (rows.announced(&route).unwrap(), rows.withdrawn(&route).unwrap());
        bench.send(Content::NewRoute(route));
        bench.machine.take(&mut bench.out);
        let [change] = &bench.out.routes[..] else { panic!("{:?}", bench.out.routes) };
        assert_eq!((&announced.key, &announced.row), (&change.key, &change.row));
        assert_eq!(withdrawn, Change::del(announced.key));
        bench.out.routes.clear();
    }
    let mut rows = bench.machine.rows_now();
    let mut refused = |route: Route<'_>| rows.announced(&route).unwrap_err();
    let plain = Route::new(prefix("10.1.0.0/16"), 0, 186, NextHops::None);
    assert_eq!(refused(plain), Cause::NoNextHops);
    assert_eq!(refused(Route { next_hops: NextHops::Id(99), ..plain }), Cause::Waits(99));
    assert_eq!(refused(Route { table: 77, ..plain }), Cause::UnknownVrf(77));
    assert_eq!(refused(Route { table: 42, ..plain }), Cause::Vnet(42));
    assert_eq!(refused(Route { kind: RouteKind::Prohibit, ..plain }), Cause::Kind("prohibit"));
}
