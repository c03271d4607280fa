//! EVPN, SRv6, VNETs and PIC contexts. Messages are the bytes that FRR's modules write: the layouts are those of
//! `dplane_fpm_sonic.c` (sonic-buildimage 086b03bd) and of FRR's `rt_netlink.c` for EVPN; the expected rows are read from
//! `fpmsyncd/routesync.cpp` (sonic-swss e6b0c5b5).

use super::*;
use proptest::prelude::*;
use proptest::test_runner::Config;
use std::net::IpAddr;

const NEWROUTE: u16 = 24;
const DELROUTE: u16 = 25;
const NESTED: u16 = 0x8000;

fn attr(kind: u16, value: &[u8]) -> Vec<u8> {
    let mut out = [&((4 + value.len()) as u16).to_ne_bytes()[..], &kind.to_ne_bytes(), value].concat();
    out.resize(out.len().next_multiple_of(4), 0);
    out
}

fn word(kind: u16, value: u32) -> Vec<u8> {
    attr(kind, &value.to_ne_bytes())
}

fn octets(addr: &str) -> Vec<u8> {
    match addr.parse().unwrap() {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    }
}

fn addr(kind: u16, text: &str) -> Vec<u8> {
    attr(kind, &octets(text))
}

/// A frame with one message.
fn frame(kind: u16, body: &[u8]) -> Vec<u8> {
    let len = (16 + body.len()) as u32;
    let header = [&len.to_ne_bytes()[..], &kind.to_ne_bytes(), &[1, 5, 0, 0, 0, 0, 7, 0, 0, 0]].concat();
    [&[1, 1][..], &((4 + len) as u16).to_be_bytes(), &header, body].concat()
}

/// A route message: `rtmsg` of protocol BGP, the destination, the table as FRR has it, and more attributes.
fn route(kind: u16, table: u32, to: &str, attrs: &[Vec<u8>]) -> Vec<u8> {
    let to = prefix(to);
    let (family, destination) = match to.addr() {
        IpAddr::V4(addr) => (2, addr.octets().to_vec()),
        IpAddr::V6(addr) => (10, addr.octets().to_vec()),
    };
    let byte = u8::try_from(table).unwrap_or(0);
    let mut body = vec![family, to.len(), 0, 0, byte, 186, 0, 1, 0, 0, 0, 0];
    body.extend(attr(1, &destination));
    if byte == 0 && table != 0 {
        body.extend(word(15, table));
    }
    body.extend(attrs.concat());
    frame(kind, &body)
}

/// `RTA_ENCAP_TYPE` 100 and `RTA_ENCAP` with the VNI and the MAC address, the latter as FRR's EVPN multihoming has it.
fn vxlan(vni: u32, mac: u8) -> Vec<u8> {
    let encap = [word(0, vni), attr(1, &[0, 0, 0, 0, 0, mac])].concat();
    [attr(21, &100u16.to_ne_bytes()), attr(22 | NESTED, &encap)].concat()
}

/// The same of `LWTUNNEL_ENCAP_IP`: the id of the tunnel is the VNI.
fn tunnel(vni: u32, mac: u8) -> Vec<u8> {
    let encap = [attr(1, &u64::from(vni).to_be_bytes()), attr(3, &[0, 0, 0, 0, 0, mac])].concat();
    [attr(21, &2u16.to_ne_bytes()), attr(22, &encap)].concat()
}

/// `RTA_MULTIPATH`.
fn multipath(hops: &[(u32, Vec<u8>)]) -> Vec<u8> {
    let mut list = Vec::new();
    for (ifindex, attrs) in hops {
        list.extend(((8 + attrs.len()) as u16).to_ne_bytes());
        list.extend([0, 0]);
        list.extend(ifindex.to_ne_bytes());
        list.extend(attrs);
    }
    attr(9, &list)
}

/// `RTA_ENCAP_TYPE` 101 and `RTA_ENCAP` with these attributes.
fn srv6(attrs: &[Vec<u8>]) -> Vec<u8> {
    [attr(21, &101u16.to_ne_bytes()), attr(22 | NESTED, &attrs.concat())].concat()
}

fn steer(kind: u16, table: u32, to: &str, sid: &str, source: &str) -> Vec<u8> {
    route(kind, table, to, &[srv6(&[addr(2, source), addr(1, sid)])])
}

fn local_sid(kind: u16, sid: &str, format: [u8; 4], attrs: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![10, 128, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0];
    body.extend(addr(1, sid));
    let format: Vec<u8> = (1..).zip(format).flat_map(|(kind, len)| attr(kind, &[len])).collect();
    body.extend(attr(2 | NESTED, &format));
    body.extend(attrs.concat());
    frame(kind, &body)
}

/// A PIC context, or a next-hop object (104), of IPv6: `nhmsg` and attributes.
fn object(kind: u16, id: u32, attrs: &[Vec<u8>]) -> Vec<u8> {
    let mut body = vec![10, 0, 186, 0, 0, 0, 0, 0];
    body.extend(word(1, id));
    body.extend(attrs.concat());
    frame(kind, &body)
}

/// `NHA_ENCAP_TYPE` 5 and `NHA_ENCAP` with `seg6_iptunnel_encap_pri`: mode, name, source, header, segment.
fn seg6(sid: &str, source: &str) -> Vec<u8> {
    let mut srh = vec![1, 0, 0, 0];
    srh.extend([0; 64]);
    srh.extend(octets(source));
    srh.extend([0, 2, 4, 0, 0, 0, 0, 0]);
    srh.extend(octets(sid));
    [attr(7, &5u16.to_ne_bytes()), attr(8 | NESTED, &attr(1, &srh))].concat()
}

fn members(ids: &[(u32, u8)]) -> Vec<u8> {
    let list: Vec<u8> = ids
        .iter()
        .flat_map(|(id, weight)| [&id.to_ne_bytes()[..], &[weight - 1, 0, 0, 0]].concat())
        .collect();
    attr(2, &list)
}

/// A route of an SRv6 VPN.
fn vpn(kind: u16, table: u32, to: &str, context: u32, next_hop: u32) -> Vec<u8> {
    route(kind, table, to, &[srv6(&[word(3, context), word(4, next_hop)])])
}

impl Bench {
    fn bytes(&mut self, bytes: &[u8]) {
        let mut rest = bytes;
        while let Some(frame) = fpm::frame(rest).unwrap() {
            self.machine.frame(&frame, &mut self.out);
            rest = &rest[frame.len..];
        }
        assert!(rest.is_empty());
    }
}

#[test]
fn evpn_route_is_a_row_with_vni_and_mac() {
    let mut bench = Bench::new();
    bench.machine.link(50, "Vlan100", &mut bench.out);
    bench.machine.link(300, "Vrfblue", &mut bench.out);
    let hop = |encap: Vec<u8>| [addr(5, "10.0.0.1"), word(4, 50), encap].concat();
    bench.bytes(&route(NEWROUTE, 40, "1.1.1.0/24", &[hop(vxlan(1000, 0xa1))]));
    bench.bytes(&route(NEWROUTE, 300, "1.1.2.0/24", &[hop(tunnel(2000, 0xa2))]));
    // A VTEP of IPv4 that is mapped into IPv6 is one of IPv4.
    let mapped = [addr(5, "::ffff:10.0.0.9"), word(4, 50), vxlan(7, 1)].concat();
    bench.bytes(&route(NEWROUTE, 40, "fc00:1::/64", &[mapped]));
    let two = multipath(&[
        (50, [addr(5, "10.0.0.1"), vxlan(1000, 1)].concat()),
        (50, [addr(5, "10.0.0.2"), vxlan(1001, 2)].concat()),
    ]);
    bench.bytes(&route(NEWROUTE, 40, "1.1.3.0/24", &[two]));
    assert_eq!(
        bench.take(),
        [
            "ROUTE_TABLE:Vrfred:1.1.1.0/24 SET protocol=bgp nexthop=10.0.0.1 ifname=Vlan100 vni_label=1000 \
             router_mac=00:00:00:00:00:a1",
            "ROUTE_TABLE:Vrfblue:1.1.2.0/24 SET protocol=bgp nexthop=10.0.0.1 ifname=Vlan100 vni_label=2000 \
             router_mac=00:00:00:00:00:a2",
            "ROUTE_TABLE:Vrfred:fc00:1::/64 SET protocol=bgp nexthop=10.0.0.9 ifname=Vlan100 vni_label=7 \
             router_mac=00:00:00:00:00:01",
            "ROUTE_TABLE:Vrfred:1.1.3.0/24 SET protocol=bgp nexthop=10.0.0.1,10.0.0.2 ifname=Vlan100,Vlan100 \
             vni_label=1000,1001 router_mac=00:00:00:00:00:01,00:00:00:00:00:02",
        ]
    );
    assert!(bench.sentences().is_empty());
    // The reply is the message itself, with the two flags: `sendOffloadReply(struct nlmsghdr*)`.
    let announced = route(NEWROUTE, 40, "1.1.1.0/24", &[hop(vxlan(1000, 0xa1))]);
    let mut replies = Vec::new();
    bench.out.write_replies(&mut replies);
    let reply = fpm::frame(&replies).unwrap().unwrap();
    assert_eq!(reply.len, announced.len());
    let differing: Vec<usize> = (0..reply.len).filter(|at| replies[*at] != announced[*at]).collect();
    assert_eq!(differing, [4 + 16 + 9], "RTM_F_OFFLOAD; NLM_F_REQUEST was there");
    // A withdrawal with and without an encapsulation.
    bench.bytes(&route(DELROUTE, 40, "1.1.1.0/24", &[hop(vxlan(1000, 0xa1))]));
    bench.bytes(&route(DELROUTE, 300, "1.1.2.0/24", &[]));
    assert_eq!(bench.take(), ["ROUTE_TABLE:Vrfred:1.1.1.0/24 DEL", "ROUTE_TABLE:Vrfblue:1.1.2.0/24 DEL"]);
}

#[test]
fn evpn_route_waits_for_its_vrf_and_for_its_interface() {
    let mut bench = Bench::new();
    let hop = [addr(5, "10.0.0.1"), word(4, 50), vxlan(1000, 1)].concat();
    bench.bytes(&route(NEWROUTE, 77, "1.1.1.0/24", &[hop]));
    assert!(bench.take().is_empty());
    bench.machine.link(77, "Vrf77", &mut bench.out);
    assert!(bench.take().is_empty(), "the encapsulation is kept while the route is held");
    assert_eq!(
        bench.sentences().last().unwrap(),
        "1.1.1.0/24 is not in APPL_DB: interface 50 of its next hop has no name yet, and until it has, the route waits"
    );
    bench.machine.link(50, "Vlan100", &mut bench.out);
    let row = "SET protocol=bgp nexthop=10.0.0.1 ifname=Vlan100 vni_label=1000 router_mac=00:00:00:00:00:01";
    assert_eq!(bench.take(), [format!("ROUTE_TABLE:Vrf77:1.1.1.0/24 {row}")]);
    bench.machine.link(50, "Vlan200", &mut bench.out);
    assert_eq!(bench.take(), [format!("ROUTE_TABLE:Vrf77:1.1.1.0/24 {}", row.replace("Vlan100", "Vlan200"))]);
}

#[test]
fn evpn_route_without_vni_or_mac_has_no_row() {
    let mut bench = Bench::new();
    bench.machine.link(50, "Vlan100", &mut bench.out);
    bench.route_in(40, "1.1.1.0/24", &[("10.0.0.1", 7, 1)]);
    assert_eq!(bench.take().len(), 1);
    let via = |encap: Vec<u8>| [addr(5, "10.0.0.1"), word(4, 50), encap].concat();
    for bad in [
        via(vxlan(0, 1)),
        via(vxlan(5, 0)),
        via([attr(21, &100u16.to_ne_bytes()), attr(22 | NESTED, &word(0, 5))].concat()),
        via(attr(21, &100u16.to_ne_bytes())),
        [word(4, 50), vxlan(5, 1)].concat(),
        // SONiC's gives the second the VNI of the first.
        multipath(&[(50, [addr(5, "10.0.0.1"), vxlan(5, 1)].concat()), (50, addr(5, "10.0.0.2"))]),
    ] {
        bench.bytes(&route(NEWROUTE, 40, "1.1.1.0/24", &[bad]));
        // What the prefix had before is not what it is announced with.
        assert_eq!(bench.take(), ["ROUTE_TABLE:Vrfred:1.1.1.0/24 DEL"]);
        bench.route_in(40, "1.1.1.0/24", &[("10.0.0.1", 7, 1)]);
        assert_eq!(bench.take().len(), 1);
    }
    assert!(bench.sentences()[0].contains("EVPN"));
}

#[test]
fn srv6_route_has_a_segment_list_for_as_long_as_it_is_used() {
    let mut bench = Bench::new();
    bench.bytes(&steer(NEWROUTE, 40, "192.168.1.0/24", "fc00:0:2:1::", "fc00:0:1:1::"));
    bench.bytes(&steer(NEWROUTE, 40, "192.168.2.0/24", "fc00:0:2:1::", "fc00:0:1:1::"));
    // A second announcement is none more.
    bench.bytes(&steer(NEWROUTE, 40, "192.168.2.0/24", "fc00:0:2:1::", "fc00:0:1:1::"));
    assert_eq!(
        bench.take(),
        [
            "SRV6_SID_LIST_TABLE:fc00:0:2:1:: SET path=fc00:0:2:1::",
            "ROUTE_TABLE:Vrfred:192.168.1.0/24 SET segment=fc00:0:2:1:: seg_src=fc00:0:1:1::",
            "ROUTE_TABLE:Vrfred:192.168.2.0/24 SET segment=fc00:0:2:1:: seg_src=fc00:0:1:1::",
        ]
    );
    // Another segment, another source, a plain next hop: the list goes with its last route, after it.
    bench.bytes(&steer(NEWROUTE, 40, "192.168.1.0/24", "fc00:0:3:1::", "fc00:0:1:1::"));
    assert_eq!(
        bench.take(),
        [
            "SRV6_SID_LIST_TABLE:fc00:0:3:1:: SET path=fc00:0:3:1::",
            "ROUTE_TABLE:Vrfred:192.168.1.0/24 SET segment=fc00:0:3:1:: seg_src=fc00:0:1:1::",
        ]
    );
    bench.route_in(40, "192.168.2.0/24", &[("10.0.0.1", 7, 1)]);
    assert_eq!(
        bench.take(),
        [
            "ROUTE_TABLE:Vrfred:192.168.2.0/24 REPLACE protocol=bgp nexthop=10.0.0.1 ifname=Ethernet0 weight=1",
            "SRV6_SID_LIST_TABLE:fc00:0:2:1:: DEL",
        ]
    );
    bench.bytes(&steer(DELROUTE, 40, "192.168.1.0/24", "fc00:0:3:1::", "fc00:0:1:1::"));
    assert_eq!(
        bench.take(),
        ["ROUTE_TABLE:Vrfred:192.168.1.0/24 DEL", "SRV6_SID_LIST_TABLE:fc00:0:3:1:: DEL"]
    );
    // Several next hops are refused, as by SONiC's.
    let hops = multipath(&[(7, srv6(&[addr(1, "fc00::1")])), (8, srv6(&[addr(1, "fc00::2")]))]);
    bench.bytes(&route(NEWROUTE, 40, "192.168.3.0/24", &[hops]));
    assert!(bench.take().is_empty());
    assert_eq!(
        bench.sentences(),
        ["192.168.3.0/24 is not in APPL_DB: its encapsulation is SRv6, and it has several next hops"]
    );
}

#[test]
fn srv6_route_is_confirmed_although_its_row_names_no_protocol() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    bench.bytes(&steer(NEWROUTE, 0, "192.168.1.0/24", "fc00:0:2:1::", "fc00:0:1:1::"));
    bench.route("10.1.0.0/16", "10.0.0.1", 7);
    assert_eq!((bench.take().len(), bench.out.offloads.len()), (3, 0));
    // orchagent repeats the protocol of the row. Of one without it the response has none either.
    let response = |key: &str| RouteResponse {
        key: crate::row::RowKey::parse(key).unwrap(),
        protocol: Some("".into()),
        status: RouteStatus::Success,
    };
    bench.machine.confirm(&response("10.1.0.0/16"), &mut bench.out);
    assert!(bench.out.offloads.is_empty(), "not about a row of this route");
    bench.machine.confirm(&response("192.168.1.0/24"), &mut bench.out);
    assert_eq!(bench.out.offloads, [confirmation("192.168.1.0/24", 0)]);
}

#[test]
fn local_sids_are_rows() {
    let mut bench = Bench::new();
    let text = |kind, text: &str| attr(kind, &[text.as_bytes(), &[0]].concat());
    bench.bytes(&local_sid(1000, "fc00:0:1:64::", [32, 16, 16, 0], &[word(3, 7), text(4, "Vrf10")]));
    bench.bytes(&local_sid(1000, "fc00:0:1::", [32, 16, 0, 0], &[word(3, 14)]));
    let x = [word(3, 15), addr(5, "fe80::1"), text(12, "Ethernet0")];
    bench.bytes(&local_sid(1000, "fc00:0:1:e000::", [32, 16, 16, 0], &x));
    bench.bytes(&local_sid(1000, "fc00:0:1:3::", [40, 24, 16, 8], &[word(3, 6), addr(6, "10.0.0.1")]));
    assert_eq!(
        bench.take(),
        [
            "SRV6_MY_SID_TABLE:32:16:16:0:fc00:0:1:64:: SET action=end.dt6 vrf=Vrf10",
            "SRV6_MY_SID_TABLE:32:16:0:0:fc00:0:1:: SET action=un",
            "SRV6_MY_SID_TABLE:32:16:16:0:fc00:0:1:e000:: SET action=ua adj=fe80::1@Ethernet0",
            "SRV6_MY_SID_TABLE:40:24:16:8:fc00:0:1:3:: SET action=end.dx4 adj=10.0.0.1",
        ]
    );
    // Another behaviour has other fields. A deletion has the format, and no behaviour.
    bench.bytes(&local_sid(1000, "fc00:0:1:64::", [32, 16, 16, 0], &[word(3, 1)]));
    bench.bytes(&local_sid(1001, "fc00:0:1::", [32, 16, 0, 0], &[]));
    assert_eq!(
        bench.take(),
        [
            "SRV6_MY_SID_TABLE:32:16:16:0:fc00:0:1:64:: REPLACE action=end",
            "SRV6_MY_SID_TABLE:32:16:0:0:fc00:0:1:: DEL",
        ]
    );
    // What a behaviour needs, and behaviours without a name.
    for bad in [&[word(3, 7)][..], &[word(3, 2)], &[word(3, 4)], &[word(3, 0)], &[]] {
        bench.bytes(&local_sid(1000, "fc00:0:1:64::", [32, 16, 16, 0], bad));
        assert_eq!(bench.take(), ["SRV6_MY_SID_TABLE:32:16:16:0:fc00:0:1:64:: DEL"]);
        bench.bytes(&local_sid(1000, "fc00:0:1:64::", [32, 16, 16, 0], &[word(3, 1)]));
        assert_eq!(bench.take().len(), 1);
    }
    let sentences = bench.sentences();
    assert_eq!(
        sentences[..2],
        [
            "local SID fc00:0:1:64:: is not in APPL_DB: its behaviour is end.dt6, and it names no VRF",
            "local SID fc00:0:1:64:: is not in APPL_DB: its behaviour is end.x, and it names no next hop",
        ]
    );
    // IPv4 is malformed, and so is one without a value.
    bench.bytes(&frame(1000, &[2, 32, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0]));
    bench.bytes(&frame(1000, &[10, 128, 0, 0, 0, 11, 0, 0, 0, 0, 0, 0]));
    assert_eq!(bench.machine.counters().malformed, 2);
}

#[test]
fn vnet_routes_are_rows_of_two_tables() {
    let mut bench = Bench::new();
    bench.machine.link(60, "Brvxlan2000", &mut bench.out);
    let via = |gateway: &str, ifindex| [addr(5, gateway), word(4, ifindex)].concat();
    bench.bytes(&route(NEWROUTE, 42, "10.1.0.0/16", &[via("10.0.0.1", 7)]));
    bench.bytes(&route(NEWROUTE, 42, "10.2.0.1/32", &[via("192.168.200.200", 60)]));
    bench.bytes(&route(NEWROUTE, 42, "fc00:9::/64", &[word(4, 7)]));
    let two = multipath(&[(7, addr(5, "10.0.0.1")), (8, addr(5, "10.0.1.1"))]);
    bench.bytes(&route(NEWROUTE, 42, "10.3.0.0/16", &[two]));
    assert_eq!(
        bench.take(),
        [
            "VNET_ROUTE_TABLE:Vnet1:10.1.0.0/16 SET nexthop=10.0.0.1 ifname=Ethernet0",
            "VNET_ROUTE_TUNNEL_TABLE:Vnet1:10.2.0.1 SET endpoint=192.168.200.200",
            "VNET_ROUTE_TABLE:Vnet1:fc00:9::/64 SET nexthop=:: ifname=Ethernet0",
            "VNET_ROUTE_TABLE:Vnet1:10.3.0.0/16 SET nexthop=10.0.0.1,10.0.1.1 ifname=Ethernet0,Ethernet4",
        ]
    );
    // Of one that becomes a tunnel the other row goes.
    bench.bytes(&route(NEWROUTE, 42, "10.1.0.0/16", &[via("10.0.0.9", 60)]));
    bench.bytes(&route(DELROUTE, 42, "10.2.0.1/32", &[]));
    bench.machine.link(8, "Ethernet12", &mut bench.out);
    assert_eq!(
        bench.take(),
        [
            "VNET_ROUTE_TUNNEL_TABLE:Vnet1:10.1.0.0/16 SET endpoint=10.0.0.9",
            "VNET_ROUTE_TABLE:Vnet1:10.3.0.0/16 SET nexthop=10.0.0.1,10.0.1.1 ifname=Ethernet0,Ethernet12",
            "VNET_ROUTE_TABLE:Vnet1:10.1.0.0/16 DEL",
            "VNET_ROUTE_TUNNEL_TABLE:Vnet1:10.2.0.1 DEL",
        ]
    );
    for refused in ["fe80::/64", "ff00::/8"] {
        bench.bytes(&route(NEWROUTE, 42, refused, &[word(4, 7)]));
    }
    bench.bytes(&route(NEWROUTE, 42, "10.4.0.0/16", &[word(30, 5)]));
    assert!(bench.take().is_empty());
    assert_eq!(
        bench.sentences(),
        [
            "fe80::/64 is not in APPL_DB: link-local and multicast addresses are not routed in VNETs",
            "10.4.0.0/16 is not in APPL_DB: it names next-hop object 5, and rows of VNETs have their next hops; announce \
             them in the route",
        ]
    );
}

#[test]
fn vnet_routes_are_answered_at_once_with_fib_suppression_too() {
    let mut bench = Bench::with(FpmConfig { suppress: true, ..FpmConfig::default() });
    bench.bytes(&route(NEWROUTE, 42, "10.1.0.0/16", &[addr(5, "10.0.0.1"), word(4, 7)]));
    assert_eq!((bench.out.offloads.len(), bench.take().len()), (1, 1));
    assert_eq!(bench.machine.awaiting(), 0);
    bench.machine.suppress(false, &mut bench.out);
    bench.machine.suppress(true, &mut bench.out);
    assert_eq!((bench.out.offloads.len(), bench.machine.awaiting()), (1, 0));
}

/// Two single contexts, their group 30; two next hops, their group 20.
fn contexts() -> Vec<Vec<u8>> {
    let hop = |gateway: &str, ifindex| vec![addr(6, gateway), word(5, ifindex)];
    let context = |gateway, ifindex, sid, source| [hop(gateway, ifindex), vec![seg6(sid, source)]].concat();
    vec![
        object(104, 10, &hop("2064:100::1d", 7)),
        object(104, 11, &hop("2064:200::1e", 8)),
        object(104, 20, &[members(&[(10, 1), (11, 3)])]),
        object(2000, 31, &context("2064:100::1d", 7, "fd00:201:201:fff1:11::", "fc00:201:201::1")),
        object(2000, 32, &context("2064:200::1e", 8, "fd00:202:202:fff2:22::", "fc00:202:202::1")),
        object(2000, 30, &[members(&[(31, 1), (32, 3)])]),
    ]
}

#[test]
fn vpn_route_names_its_context_and_its_group() {
    let expected = [
        "NEXTHOP_GROUP_TABLE:20 SET nexthop=2064:100::1d,2064:200::1e ifname=Ethernet0,Ethernet4 weight=1,3 \
         seg_src=fc00:201:201::1,fc00:202:202::1",
        "PIC_CONTEXT_TABLE:30 SET nexthop=2064:100::1d,2064:200::1e ifname=Ethernet0,Ethernet4 \
         vpn_sid=fd00:201:201:fff1:11::,fd00:202:202:fff2:22:: seg_src=fc00:201:201::1,fc00:202:202::1 weight=1,3",
        "ROUTE_TABLE:Vrfred:1.2.3.0/24 SET pic_context_id=30 nexthop_group=20 nexthop= vpn_sid= seg_src= ifname=",
        "ROUTE_TABLE:Vrfred:1.2.4.0/24 SET nexthop=2064:100::1d vpn_sid=fd00:201:201:fff1:11:: seg_src=fc00:201:201::1 \
         pic_context_id= nexthop_group= ifname=Ethernet0",
    ];
    let routes = [vpn(3000, 40, "1.2.3.0/24", 30, 20), vpn(3000, 40, "1.2.4.0/24", 31, 10)];
    let mut bench = Bench::new();
    bench.bytes(&contexts().concat());
    bench.bytes(&routes.concat());
    assert_eq!(bench.take(), expected);
    // Whatever comes first, the rows are the same; SONiC's drops a route that comes before its objects.
    let mut other = Bench::new();
    other.bytes(&routes.concat());
    assert!(other.take().is_empty());
    contexts().iter().rev().for_each(|bytes| other.bytes(bytes));
    let mut rows = other.take();
    rows.sort();
    let mut sorted = expected.to_vec();
    sorted.sort_unstable();
    assert_eq!(rows, sorted);
    // A context changes, its group and the routes with it; a withdrawn route takes nothing along, a deleted object its rows.
    bench.bytes(&object(2000, 31, &[addr(6, "2064:100::1d"), word(5, 7), seg6("fd00::9", "fc00::9")]));
    assert_eq!(
        bench.take(),
        [
            "NEXTHOP_GROUP_TABLE:20 SET nexthop=2064:100::1d,2064:200::1e ifname=Ethernet0,Ethernet4 weight=1,3 \
             seg_src=fc00::9,fc00:202:202::1",
            "PIC_CONTEXT_TABLE:30 SET nexthop=2064:100::1d,2064:200::1e ifname=Ethernet0,Ethernet4 \
             vpn_sid=fd00::9,fd00:202:202:fff2:22:: seg_src=fc00::9,fc00:202:202::1 weight=1,3",
            "ROUTE_TABLE:Vrfred:1.2.4.0/24 SET nexthop=2064:100::1d vpn_sid=fd00::9 seg_src=fc00::9 pic_context_id= \
             nexthop_group= ifname=Ethernet0",
        ]
    );
    bench.bytes(&vpn(3001, 40, "1.2.4.0/24", 31, 10));
    bench.bytes(&vpn(3001, 40, "1.2.3.0/24", 30, 20));
    bench.bytes(&object(2001, 30, &[]));
    bench.bytes(&object(105, 20, &[]));
    assert_eq!(
        bench.take(),
        [
            "ROUTE_TABLE:Vrfred:1.2.4.0/24 DEL",
            "ROUTE_TABLE:Vrfred:1.2.3.0/24 DEL",
            "NEXTHOP_GROUP_TABLE:20 DEL",
            "PIC_CONTEXT_TABLE:30 DEL",
        ]
    );
    assert!(bench.machine.is_empty());
}

/// What APPL_DB has of everything above, as a map.
fn everything(bench: &mut Bench) {
    bench.machine.link(50, "Vlan100", &mut bench.out);
    bench.machine.link(60, "Brvxlan2000", &mut bench.out);
    bench.bytes(&contexts().concat());
    bench.bytes(&vpn(3000, 40, "1.2.3.0/24", 30, 20));
    bench.bytes(&vpn(3000, 40, "1.2.4.0/24", 31, 10));
    bench.bytes(&steer(NEWROUTE, 40, "192.168.1.0/24", "fc00:0:2:1::", "fc00:0:1:1::"));
    bench.bytes(&local_sid(1000, "fc00:0:1::", [32, 16, 0, 0], &[word(3, 14)]));
    bench.bytes(&route(NEWROUTE, 40, "1.1.1.0/24", &[addr(5, "10.0.0.1"), word(4, 50), vxlan(1000, 1)]));
    bench.bytes(&route(NEWROUTE, 42, "10.1.0.0/16", &[addr(5, "10.0.0.1"), word(4, 7)]));
    bench.bytes(&route(NEWROUTE, 42, "10.2.0.0/16", &[addr(5, "10.0.0.9"), word(4, 60)]));
}

#[test]
fn rows_of_vpns_stay_over_a_restart_and_stale_ones_go() {
    let mut bench = Bench::new();
    everything(&mut bench);
    let rows = bench.take();
    assert_eq!(rows.len(), 10, "{rows:?}");
    let mut other = start_from(&mut bench);
    other.machine.session_up();
    everything(&mut other);
    assert_eq!(other.take(), Vec::<String>::new(), "nothing changed, so nothing is written");
    other.machine.end_of_replay(&mut other.out);
    assert_eq!(other.take(), Vec::<String>::new());
    // A session that announces nothing: everything goes, routes before what they name.
    other.reconnect();
    other.machine.end_of_replay(&mut other.out);
    let gone = other.take();
    assert_eq!(gone.len(), 10, "{gone:?}");
    assert!(gone.iter().all(|line| line.ends_with(" DEL")));
    let at = |text: &str| gone.iter().position(|line| line.starts_with(text)).unwrap();
    assert!(at("ROUTE_TABLE:Vrfred:192.168.1.0/24") < at("SRV6_SID_LIST_TABLE"));
    assert!(at("ROUTE_TABLE:Vrfred:1.2.3.0/24") < at("PIC_CONTEXT_TABLE"));
    // The same right after a start.
    let mut third = start_from(&mut bench);
    third.machine.session_up();
    third.machine.end_of_replay(&mut third.out);
    assert_eq!(third.take().len(), 10);
}

#[test]
fn rows_of_vpns_are_compared_and_repaired() {
    let mut bench = Bench::new();
    everything(&mut bench);
    bench.take();
    let (mut cursor, mut keys) = (Some(RowCursor::default()), Vec::new());
    while let Some(from) = cursor {
        let (rows, next) = bench.machine.wanted_rows(from, 3);
        for (key, row) in rows {
            assert_eq!(bench.machine.wanted(&key).as_ref(), Some(&row));
            keys.push(key);
        }
        cursor = next;
    }
    let mut names: Vec<String> = keys.iter().map(|key| format!("{}:{}", key.table(), key.text())).collect();
    names.sort();
    let mut expected = [
        "NEXTHOP_GROUP_TABLE:20",
        "PIC_CONTEXT_TABLE:30",
        "ROUTE_TABLE:Vrfred:1.1.1.0/24",
        "ROUTE_TABLE:Vrfred:1.2.3.0/24",
        "ROUTE_TABLE:Vrfred:1.2.4.0/24",
        "ROUTE_TABLE:Vrfred:192.168.1.0/24",
        "SRV6_MY_SID_TABLE:32:16:0:0:fc00:0:1::",
        "SRV6_SID_LIST_TABLE:fc00:0:2:1::",
        "VNET_ROUTE_TABLE:Vnet1:10.1.0.0/16",
        "VNET_ROUTE_TUNNEL_TABLE:Vnet1:10.2.0.0/16",
    ];
    expected.sort_unstable();
    assert_eq!(names, expected);
    bench.machine.watch(&keys);
    for key in &keys {
        assert!(bench.machine.is_watched(key));
        bench.machine.row_again(key, false, &mut bench.out);
        let again = bench.drain();
        assert_eq!(again.len(), 1, "{key:?}");
        assert!(again[0].starts_with(&format!("{}:{} REPLACE", key.table(), key.text())), "{again:?}");
    }
    // A row that is handed over is watched no more.
    bench.bytes(&local_sid(1001, "fc00:0:1::", [32, 16, 0, 0], &[]));
    bench.bytes(&route(DELROUTE, 42, "10.1.0.0/16", &[]));
    bench.take();
    let watched = |table: &str| keys.iter().any(|key| key.table() == table && bench.machine.is_watched(key));
    assert!(!watched("SRV6_MY_SID_TABLE") && !watched("VNET_ROUTE_TABLE") && watched("PIC_CONTEXT_TABLE"));
}

/// A fpmsyncd that starts with the rows of another.
fn start_from(bench: &mut Bench) -> Bench {
    let mut other = Bench { machine: Fpmsyncd::new(FpmConfig::default()), out: FpmOut::default() };
    for (index, link) in &bench.machine.links {
        other.machine.link(*index, &link.name, &mut other.out);
    }
    let mut all = FpmOut::default();
    bench.machine.write_again(&mut all);
    let mut resend = bench.machine.resend_all();
    bench.machine.next_resent(&mut resend, ResendKind::AsNew, 1000, &mut all);
    for change in all.groups {
        other.machine.known_group(&change.key, change.row.unwrap(), false);
    }
    for change in all.vpn_rows {
        other.machine.known_vpn_row(&change.key, change.row.unwrap());
    }
    for change in all.routes {
        // As it is read from APPL_DB.
        let mut fields = Vec::new();
        change.row.unwrap().fields(&mut |field, value| fields.push((field.to_owned(), value.to_owned())));
        let pairs = &mut fields.iter().map(|(field, value)| (field.as_str(), value.as_str()));
        other.machine.known_route(change.key, &RouteRow::from_fields(pairs).unwrap(), false);
    }
    other
}

/// Every frame above.
fn frames() -> Vec<Vec<u8>> {
    let mut all = contexts();
    all.extend([
        vpn(3000, 40, "1.2.3.0/24", 30, 20),
        vpn(3001, 40, "1.2.3.0/24", 30, 20),
        vpn(3000, 40, "1.2.4.0/24", 31, 10),
        steer(NEWROUTE, 40, "192.168.1.0/24", "fc00:0:2:1::", "fc00:0:1:1::"),
        steer(DELROUTE, 40, "192.168.1.0/24", "fc00:0:2:1::", "fc00:0:1:1::"),
        local_sid(1000, "fc00:0:1::", [32, 16, 0, 0], &[word(3, 14)]),
        local_sid(1001, "fc00:0:1::", [32, 16, 0, 0], &[]),
        route(NEWROUTE, 40, "1.1.1.0/24", &[addr(5, "10.0.0.1"), word(4, 50), vxlan(1000, 1)]),
        route(NEWROUTE, 77, "1.1.1.0/24", &[addr(5, "10.0.0.1"), word(4, 50), tunnel(1000, 1)]),
        route(NEWROUTE, 40, "1.1.3.0/24", &[multipath(&[(50, [addr(5, "10.0.0.1"), vxlan(1, 1)].concat())])]),
        route(NEWROUTE, 42, "10.1.0.0/16", &[addr(5, "10.0.0.1"), word(4, 7)]),
        route(NEWROUTE, 42, "10.1.0.0/16", &[addr(5, "10.0.0.9"), word(4, 60)]),
        route(DELROUTE, 42, "10.1.0.0/16", &[]),
        object(2001, 30, &[]),
        object(105, 20, &[]),
    ]);
    all
}

proptest! {
    #![proptest_config(Config::with_cases(512))]

    /// Whatever comes, and however it is damaged: nothing panics, and APPL_DB never has a row that the machine does not know.
    #[test]
    fn damaged_messages_leave_rows_that_are_known(
        steps in proptest::collection::vec((0usize..21, any::<u16>(), any::<u8>(), 0u8..8), 1..40),
    ) {
        let frames = frames();
        let mut bench = Bench::new();
        bench.machine.link(50, "Vlan100", &mut bench.out);
        bench.machine.link(60, "Brvxlan2000", &mut bench.out);
        let mut appl: std::collections::BTreeMap<String, ()> = std::collections::BTreeMap::new();
        for (which, at, value, what) in steps {
            let mut bytes = frames[which].clone();
            if what < 4 {
                // Behind the frame's and the message's headers.
                let at = 20 + usize::from(at) % (bytes.len() - 20);
                bytes[at] ^= value;
            }
            bench.bytes(&bytes);
            if what == 5 {
                bench.machine.link(77, "Vrf77", &mut bench.out);
            }
            if what == 6 {
                bench.reconnect();
            }
            if what == 7 {
                bench.machine.end_of_replay(&mut bench.out);
            }
            if what % 2 == 0 {
                for line in bench.take() {
                    let key = line.split(' ').next().unwrap().to_owned();
                    match line.ends_with(" DEL") {
                        true => prop_assert!(appl.remove(&key).is_some(), "{line}: there is no such row"),
                        false => drop(appl.insert(key, ())),
                    }
                }
            }
            bench.out.write_replies(&mut Vec::new());
            bench.sentences();
        }
        bench.reconnect();
        bench.machine.end_of_replay(&mut bench.out);
        for line in bench.take() {
            appl.remove(line.split(' ').next().unwrap());
        }
        prop_assert!(appl.is_empty(), "left: {appl:?}");
        prop_assert!(bench.machine.is_empty());
        prop_assert_eq!(bench.machine.sources.len(), 0);
        prop_assert_eq!(bench.machine.vpn_rows.keys().count(), 0);
    }
}
