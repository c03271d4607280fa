//! Packets through the virtual switch. The expected frames are written byte by byte here.

use proptest::prelude::*;
use ribtide_swss::row::Mac;
use ribtide_swss::sai::notification::FdbChange;
use ribtide_swss::sai::{
    Attr, CountersMode, GroupType, InsegEntry, Item, NeighborEntry, NextHopType, ObjectId, ObjectType, Oid,
    OutsegType, PacketAction, Query, RawText, RifType, RouteEntry, Sai, Status, Verb,
};
use ribtide_vswitch::{Behavior, Drop, Frame, Interface, PortSetup, VirtualSwitch};
use std::collections::HashMap;
use std::net::IpAddr;

/// The MAC address of the switch, of a host behind port 0, and of the neighbours behind the others.
const SWITCH: [u8; 6] = [2, 0, 0, 0, 0, 1];
const HOST: [u8; 6] = [2, 0, 0, 0, 0xaa, 0];
const NEIGHBOR: [u8; 6] = [2, 0, 0, 0, 0xbb, 0];

struct Bench {
    chip: VirtualSwitch,
    switch: Oid,
    vr: Oid,
    cpu: Oid,
    ports: Vec<Oid>,
    /// The bridge port of each port in a VLAN.
    bridge_ports: HashMap<Oid, Oid>,
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

impl Bench {
    fn new() -> Bench {
        let mut chip = VirtualSwitch::new(PortSetup::usual(), Behavior::default());
        let mut start = Item::new(Oid::NULL, [Attr::SwitchInit(true), Attr::SwitchSrcMac(Mac(SWITCH))]);
        assert_eq!(chip.one(Verb::Create, ObjectType::Switch, &mut start), Status::Success);
        let switch = start.id.oid().unwrap();
        let mut own = [
            Attr::SwitchDefaultVirtualRouter(Oid::NULL),
            Attr::SwitchPortList(vec![Oid::NULL; 64].into()),
            Attr::SwitchCpuPort(Oid::NULL),
        ];
        chip.get(ObjectType::Switch, &switch.into(), &mut own).unwrap();
        let [Attr::SwitchDefaultVirtualRouter(vr), Attr::SwitchPortList(ports), Attr::SwitchCpuPort(cpu)] =
            own
        else {
            panic!("{own:?}")
        };
        let mut bench = Bench { chip, switch, vr, cpu, ports: ports.into(), bridge_ports: HashMap::new() };
        for port in bench.ports.clone() {
            bench.set(ObjectType::Port, port, Attr::PortAdminState(true));
        }
        bench
    }

    fn make(&mut self, kind: ObjectType, attrs: Vec<Attr>) -> Oid {
        let mut item = Item::new(Oid::NULL, attrs);
        assert_eq!(self.chip.one(Verb::Create, kind, &mut item), Status::Success, "{item:?}");
        item.id.oid().unwrap()
    }

    fn set(&mut self, kind: ObjectType, oid: Oid, attr: Attr) {
        assert_eq!(self.chip.one(Verb::Set, kind, &mut Item::new(oid, [attr])), Status::Success);
    }

    fn rif(&mut self, attrs: impl IntoIterator<Item = Attr>) -> Oid {
        let all = [Attr::RifVirtualRouter(self.vr)].into_iter().chain(attrs).chain([Attr::RifMtu(1500)]);
        self.make(ObjectType::RouterInterface, all.collect())
    }

    fn port_rif(&mut self, port: Oid) -> Oid {
        self.rif([Attr::RifKind(RifType::Port), Attr::RifPort(port)])
    }

    fn neighbor(&mut self, rif: Oid, address: &str, mac: [u8; 6]) {
        let entry = NeighborEntry { switch: self.switch, rif, ip: ip(address) };
        let mut item = Item {
            id: ObjectId::Neighbor(entry),
            attrs: [Attr::NeighborMac(Mac(mac))].into_iter().collect(),
        };
        assert_eq!(self.chip.one(Verb::Create, ObjectType::NeighborEntry, &mut item), Status::Success);
    }

    fn hop(&mut self, rif: Oid, address: &str) -> Oid {
        let attrs =
            vec![Attr::NextHopKind(NextHopType::Ip), Attr::NextHopIp(ip(address)), Attr::NextHopRif(rif)];
        self.make(ObjectType::NextHop, attrs)
    }

    fn route(&mut self, prefix: &str, attrs: impl IntoIterator<Item = Attr>) {
        let entry = RouteEntry { switch: self.switch, vr: self.vr, dest: prefix.parse().unwrap() };
        let mut item = Item { id: ObjectId::Route(entry), attrs: attrs.into_iter().collect() };
        assert_eq!(self.chip.one(Verb::Create, ObjectType::RouteEntry, &mut item), Status::Success);
    }

    /// A router interface on `port` with a neighbour, and the next hop through it.
    fn way(&mut self, port: Oid, address: &str, mac: [u8; 6]) -> Oid {
        let rif = self.port_rif(port);
        self.neighbor(rif, address, mac);
        self.hop(rif, address)
    }

    fn group(&mut self, hops: &[(Oid, u32)]) -> Oid {
        let group =
            self.make(ObjectType::NextHopGroup, vec![Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
        for (hop, weight) in hops {
            let attrs =
                vec![Attr::MemberGroup(group), Attr::MemberNextHop(*hop), Attr::MemberWeight(*weight)];
            self.make(ObjectType::NextHopGroupMember, attrs);
        }
        group
    }

    /// A LAG of ports, each with its member.
    fn lag(&mut self, ports: &[Oid]) -> (Oid, Vec<Oid>) {
        let lag = self.make(ObjectType::Lag, Vec::new());
        let member = |bench: &mut Bench, port: &Oid| {
            bench.make(ObjectType::LagMember, vec![Attr::LagMemberLag(lag), Attr::LagMemberPort(*port)])
        };
        let members = ports.iter().map(|port| member(self, port)).collect();
        (lag, members)
    }

    fn host(&mut self, object: Oid, name: &str) -> Oid {
        let attrs = [
            ("SAI_HOSTIF_ATTR_TYPE", "SAI_HOSTIF_TYPE_NETDEV"),
            ("SAI_HOSTIF_ATTR_OBJ_ID", &object.to_string()),
            ("SAI_HOSTIF_ATTR_NAME", name),
        ];
        let attrs = attrs.iter().map(|(name, value)| Attr::read(name, value).unwrap()).collect();
        self.make(ObjectType::from_name("SAI_OBJECT_TYPE_HOSTIF").unwrap(), attrs)
    }

    fn vlan(&mut self, id: u16, members: &[(Oid, &str)]) -> Oid {
        let vlan = self.make(ObjectType::Vlan, vec![Attr::VlanId(id)]);
        for (port, mode) in members {
            let kind = Attr::read("SAI_BRIDGE_PORT_ATTR_TYPE", "SAI_BRIDGE_PORT_TYPE_PORT").unwrap();
            let bridge_port = self.make(ObjectType::BridgePort, vec![kind, Attr::BridgePortPort(*port)]);
            self.bridge_ports.insert(*port, bridge_port);
            let mode = Attr::read("SAI_VLAN_MEMBER_ATTR_VLAN_TAGGING_MODE", mode).unwrap();
            let attrs = vec![Attr::VlanMemberVlan(vlan), Attr::VlanMemberBridgePort(bridge_port), mode];
            self.make(ObjectType::VlanMember, attrs);
        }
        vlan
    }

    fn send(&mut self, from: Interface, frame: &[u8]) -> Vec<(Interface, Vec<u8>)> {
        let mut sent = Vec::new();
        self.chip.packet(from, Frame::from(frame), &mut |to, frame| sent.push((to, frame.to_vec())));
        sent
    }

    fn arrive(&mut self, port: usize, frame: &[u8]) -> Vec<(Interface, Vec<u8>)> {
        self.send(Interface::Port(self.ports[port]), frame)
    }

    /// Sends the frame, which must be dropped for this reason.
    fn dropped(&mut self, port: usize, frame: &[u8]) -> Drop {
        let before: HashMap<Drop, u64> = self.chip.packet_drops().into_iter().collect();
        assert_eq!(self.arrive(port, frame), []);
        let after = self.chip.packet_drops();
        let more = after.into_iter().filter(|(reason, count)| before.get(reason).unwrap_or(&0) < count);
        let reasons: Vec<Drop> = more.map(|(reason, _)| reason).collect();
        assert_eq!(reasons.len(), 1, "{reasons:?}");
        reasons[0]
    }
}

fn ethernet(dst: [u8; 6], src: [u8; 6], tag: Option<u16>, protocol: u16, payload: &[u8]) -> Vec<u8> {
    let mut frame = [dst, src].concat();
    if let Some(tag) = tag {
        frame.extend([0x81, 0, (tag >> 8) as u8, tag as u8]);
    }
    frame.extend(protocol.to_be_bytes());
    frame.extend(payload);
    frame
}

/// The ones' complement sum of an IPv4 header, as a receiver adds it up: 0xffff when it is right.
fn sum(header: &[u8]) -> u16 {
    let total: u32 = header.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(pair[1])).sum();
    (0..3).fold(total, |sum, _| (sum & 0xffff) + (sum >> 16)) as u16
}

/// An IPv4 packet of UDP.
fn v4(src: &str, dst: &str, ttl: u8, port: u16, data: &[u8]) -> Vec<u8> {
    let (IpAddr::V4(src), IpAddr::V4(dst)) = (ip(src), ip(dst)) else { panic!("IPv4") };
    let mut packet = vec![0x45, 0, 0, 0, 0x12, 0x34, 0x40, 0, ttl, 17, 0, 0];
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(port.to_be_bytes());
    packet.extend([0, 9, 0, (8 + data.len()) as u8, 0, 0]);
    packet.extend(data);
    let len = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&len);
    let checksum = !sum(&packet[..20]);
    packet[10..12].copy_from_slice(&checksum.to_be_bytes());
    packet
}

fn v6(src: &str, dst: &str, ttl: u8, port: u16) -> Vec<u8> {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (ip(src), ip(dst)) else { panic!("IPv6") };
    let mut packet = vec![0x60, 0, 0, 0, 0, 8, 17, ttl];
    packet.extend(src.octets());
    packet.extend(dst.octets());
    packet.extend(port.to_be_bytes());
    packet.extend([0, 9, 0, 8, 0, 0]);
    packet
}

fn to_switch(packet: &[u8]) -> Vec<u8> {
    let protocol = if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd };
    ethernet(SWITCH, HOST, None, protocol, packet)
}

/// Port 0 is where hosts are, and 198.51.100.0/24 and 2001:db8:1::/48 are behind port 1.
fn routed() -> Bench {
    let mut bench = Bench::new();
    let first = bench.ports[0];
    bench.port_rif(first);
    let hop = bench.way(bench.ports[1], "10.0.1.2", NEIGHBOR);
    let six = {
        let rif = bench.port_rif(bench.ports[2]);
        bench.neighbor(rif, "fc00:2::2", NEIGHBOR);
        bench.hop(rif, "fc00:2::2")
    };
    bench.route("198.51.100.0/24", [Attr::RouteNextHop(hop)]);
    bench.route("2001:db8:1::/48", [Attr::RouteNextHop(six)]);
    bench
}

#[test]
fn a_packet_is_routed_with_the_neighbours_address_and_one_hop_less() {
    let mut bench = routed();
    let sent = bench.arrive(0, &to_switch(&v4("10.0.0.2", "198.51.100.9", 64, 7, b"data")));
    let wanted = ethernet(NEIGHBOR, SWITCH, None, 0x0800, &v4("10.0.0.2", "198.51.100.9", 63, 7, b"data"));
    assert_eq!(sent, [(Interface::Port(bench.ports[1]), wanted)]);
    let sent = bench.arrive(0, &to_switch(&v6("fc00::2", "2001:db8:1::9", 2, 7)));
    let wanted = ethernet(NEIGHBOR, SWITCH, None, 0x86dd, &v6("fc00::2", "2001:db8:1::9", 1, 7));
    assert_eq!(sent, [(Interface::Port(bench.ports[2]), wanted)]);
    // Padding of a short frame stays behind.
    let padded = [to_switch(&v4("10.0.0.2", "198.51.100.9", 64, 7, b"")), vec![0; 18]].concat();
    assert_eq!(bench.arrive(0, &padded)[0].1.len(), 14 + 28);
}

#[test]
fn drops_have_a_reason() {
    let mut bench = routed();
    let packet = v4("10.0.0.2", "198.51.100.9", 64, 7, b"");
    let frame = to_switch(&packet);
    assert_eq!(bench.dropped(0, &to_switch(&v4("10.0.0.2", "203.0.113.1", 64, 7, b""))), Drop::NoRoute);
    assert_eq!(bench.dropped(0, &ethernet(NEIGHBOR, HOST, None, 0x0800, &packet)), Drop::NotForSwitch);
    assert_eq!(bench.dropped(0, &ethernet(SWITCH, HOST, Some(5), 0x0800, &packet)), Drop::NoInterface);
    assert_eq!(bench.dropped(5, &frame), Drop::NoInterface);
    assert_eq!(bench.dropped(0, &ethernet(SWITCH, HOST, None, 0x88cc, &packet)), Drop::NotRouted);
    assert_eq!(bench.dropped(0, &frame[..30]), Drop::Malformed);
    // One bit of the header is wrong.
    let mut broken = frame.clone();
    broken[14 + 15] ^= 1;
    assert_eq!(bench.dropped(0, &broken), Drop::Malformed);
    // No host interface.
    assert_eq!(
        bench.dropped(0, &to_switch(&v4("10.0.0.2", "198.51.100.9", 1, 7, b""))),
        Drop::NoHostInterface
    );
    bench.route("192.0.2.0/24", [Attr::RoutePacketAction(PacketAction::Drop)]);
    assert_eq!(bench.dropped(0, &to_switch(&v4("10.0.0.2", "192.0.2.1", 9, 7, b""))), Drop::RouteDrops);
    bench.chip.set_link("Ethernet4", false).unwrap();
    assert_eq!(bench.dropped(0, &frame), Drop::NoLink);
    bench.chip.set_link("Ethernet4", true).unwrap();
    bench.chip.set_carrier("Ethernet0", false);
    assert_eq!(bench.dropped(0, &frame), Drop::NoLink);
    bench.chip.set_carrier("Ethernet0", true);
    assert_eq!(bench.arrive(0, &frame).len(), 1);
    let counters = bench.chip.packet_counters();
    assert_eq!((counters[1].packets_out, counters[0].discards_in), (1, 10));
    let query = |mode| Query::Counters {
        object: ObjectType::Port,
        id: bench.ports[1],
        counters: ["SAI_PORT_STAT_IF_OUT_UCAST_PKTS".into(), "SAI_PORT_STAT_IF_OUT_OCTETS".into()].into(),
        mode,
    };
    let (read, clear) = (query(CountersMode::Read), query(CountersMode::Clear));
    let values =
        |chip: &mut VirtualSwitch| chip.query(&read).fields.iter().map(Attr::value).collect::<Vec<_>>();
    assert_eq!(values(&mut bench.chip), ["1", "42"]);
    bench.chip.query(&clear);
    assert_eq!(values(&mut bench.chip), ["0", "0"]);
}

#[test]
fn what_is_for_the_switch_goes_to_the_cpu_and_back() {
    let mut bench = routed();
    let (first, cpu) = (bench.ports[0], bench.cpu);
    let host = bench.host(first, "Ethernet0");
    bench.route("10.0.0.1/32", [Attr::RouteNextHop(cpu)]);
    let own = to_switch(&v4("10.0.0.2", "10.0.0.1", 1, 179, b""));
    let arp = ethernet([0xff; 6], HOST, None, 0x0806, &[0; 28]);
    let arp_reply = ethernet(SWITCH, HOST, None, 0x0806, &[0; 28]);
    let discovery =
        ethernet([0x33, 0x33, 0xff, 0, 0, 1], HOST, None, 0x86dd, &v6("fc00::2", "ff02::1:ff00:1", 255, 1));
    let link_local = to_switch(&v6("fe80::2", "fe80::1", 255, 1));
    let lldp = ethernet([1, 0x80, 0xc2, 0, 0, 0xe], HOST, None, 0x88cc, &[0; 4]);
    let expired = to_switch(&v4("10.0.0.2", "198.51.100.9", 1, 7, b""));
    for frame in [own, arp, arp_reply, discovery, link_local, lldp, expired] {
        assert_eq!(bench.arrive(0, &frame), [(Interface::Host(host), frame)]);
    }
    // Of several segments each counts for itself.
    let big = to_switch(&v4("10.0.0.2", "198.51.100.9", 9, 7, &[0; 3000]));
    let frame = Frame { bytes: &big, longest: 1515 };
    let mut sent = Vec::new();
    let mut note = |to, _: &[u8]| sent.push(to);
    bench.chip.packet(Interface::Port(first), frame, &mut note);
    bench.chip.packet(Interface::Port(first), Frame { bytes: &big, longest: 1514 }, &mut note);
    assert_eq!(sent, [Interface::Host(host), Interface::Port(bench.ports[1])]);
    for (src, dst) in
        [("127.0.0.1", "198.51.100.9"), ("224.0.0.1", "198.51.100.9"), ("0.0.0.0", "198.51.100.9")]
    {
        assert_eq!(bench.arrive(0, &to_switch(&v4(src, dst, 9, 7, b""))), [], "{src}");
    }
    let reply = ethernet(HOST, SWITCH, None, 0x0806, &[1; 28]);
    assert_eq!(bench.send(Interface::Host(host), &reply), [(Interface::Port(first), reply)]);

    let interfaces = bench.chip.host_interfaces();
    assert_eq!(interfaces.len(), 1);
    assert_eq!((&*interfaces[0].name, interfaces[0].mac, interfaces[0].up), ("Ethernet0", Mac(SWITCH), true));
    let before = bench.chip.host_interface_changes();
    bench.chip.set_carrier("Ethernet0", false);
    assert_ne!(bench.chip.host_interface_changes(), before);
    assert!(!bench.chip.host_interfaces()[0].up);
}

#[test]
fn a_packet_that_is_too_big_goes_to_the_cpu() {
    let mut bench = Bench::new();
    let ports = bench.ports.clone();
    bench.port_rif(ports[0]);
    let host = bench.host(ports[0], "Ethernet0");
    let all = [
        Attr::RifVirtualRouter(bench.vr),
        Attr::RifKind(RifType::Port),
        Attr::RifPort(ports[1]),
        Attr::RifMtu(100),
    ];
    let rif = bench.make(ObjectType::RouterInterface, all.into());
    bench.neighbor(rif, "10.0.1.2", NEIGHBOR);
    for (data, to) in [(72, Interface::Port(ports[1])), (73, Interface::Host(host))] {
        let sent = bench.arrive(0, &to_switch(&v4("10.0.0.2", "10.0.1.2", 9, 7, &vec![0; data])));
        assert_eq!(sent.iter().map(|(to, _)| *to).collect::<Vec<_>>(), [to]);
    }
}

#[test]
fn neighbours_count_as_routes_and_unknown_ones_go_to_the_cpu() {
    let mut bench = routed();
    let host = bench.host(bench.ports[0], "Ethernet0");
    let rif = bench.port_rif(bench.ports[3]);
    bench.neighbor(rif, "10.0.3.2", NEIGHBOR);
    let known = to_switch(&v4("10.0.0.2", "10.0.3.2", 9, 7, b""));
    let unknown = to_switch(&v4("10.0.0.2", "10.0.3.3", 9, 7, b""));
    // Without the route of its network.
    assert_eq!(bench.arrive(0, &known)[0].0, Interface::Port(bench.ports[3]));
    bench.route("10.0.3.0/24", [Attr::RouteNextHop(rif)]);
    assert_eq!(bench.arrive(0, &known)[0].0, Interface::Port(bench.ports[3]));
    assert_eq!(bench.arrive(0, &unknown)[0].0, Interface::Host(host));
    // A route of the same length is more than a neighbour.
    bench.route("10.0.3.2/32", [Attr::RoutePacketAction(PacketAction::Drop)]);
    assert_eq!(bench.dropped(0, &known), Drop::RouteDrops);
}

#[test]
fn flows_spread_by_weight_and_each_keeps_its_next_hop() {
    let mut bench = routed();
    let ways: Vec<Oid> =
        (3..6).map(|n| bench.way(bench.ports[n], &format!("10.0.{n}.2"), NEIGHBOR)).collect();
    let group = bench.group(&[(ways[0], 1), (ways[1], 1), (ways[2], 2)]);
    bench.route("203.0.113.0/24", [Attr::RouteNextHop(group)]);
    let mut count: HashMap<Interface, u32> = HashMap::new();
    for port in 0..4000 {
        let frame = to_switch(&v4("10.0.0.2", "203.0.113.1", 9, port, b""));
        let sent = bench.arrive(0, &frame);
        assert_eq!(bench.arrive(0, &frame), sent);
        *count.entry(sent[0].0).or_default() += 1;
    }
    for (n, share) in [(3, 1000), (4, 1000), (5, 2000u32)] {
        let count = count[&Interface::Port(bench.ports[n])];
        assert!(count.abs_diff(share) < share / 5, "{count} of {share}");
    }
}

#[test]
fn a_lag_sends_by_each_member_that_is_selected_and_has_a_link() {
    let mut bench = Bench::new();
    let ports = bench.ports.clone();
    bench.port_rif(ports[0]);
    let (lag, members) = bench.lag(&ports[4..7]);
    let host = bench.host(lag, "PortChannel1");
    let rif = bench.port_rif(lag);
    bench.neighbor(rif, "10.0.4.2", NEIGHBOR);
    let used = |bench: &mut Bench| {
        let mut used: Vec<Interface> = (0..300)
            .flat_map(|port| bench.arrive(0, &to_switch(&v4("10.0.0.2", "10.0.4.2", 9, port, b""))))
            .map(|(to, _)| to)
            .collect();
        assert_eq!(used.len(), if used.is_empty() { 0 } else { 300 });
        used.sort_unstable();
        used.dedup();
        used
    };
    let of = |numbers: &[usize]| numbers.iter().map(|n| Interface::Port(ports[*n])).collect::<Vec<_>>();
    assert_eq!(used(&mut bench), of(&[4, 5, 6]));
    bench.chip.set_carrier("Ethernet20", false);
    assert_eq!(used(&mut bench), of(&[4, 6]));
    bench.set(ObjectType::LagMember, members[2], Attr::LagMemberEgressDisable(true));
    bench.set(ObjectType::LagMember, members[2], Attr::LagMemberIngressDisable(true));
    assert_eq!(used(&mut bench), of(&[4]));
    // Each member takes what comes, unless it is not selected; LACP always goes to the CPU.
    let arp = ethernet([0xff; 6], NEIGHBOR, None, 0x0806, &[0; 28]);
    assert_eq!(bench.arrive(4, &arp), [(Interface::Host(host), arp.clone())]);
    assert_eq!(bench.dropped(6, &arp), Drop::NotSelected);
    let lacp = ethernet([1, 0x80, 0xc2, 0, 0, 2], NEIGHBOR, None, 0x8809, &[1; 110]);
    assert_eq!(bench.arrive(6, &lacp), [(Interface::Host(host), lacp.clone())]);
    let of_port = bench.host(ports[6], "Ethernet24");
    assert_eq!(bench.arrive(6, &lacp), [(Interface::Host(of_port), lacp.clone())]);
    // The CPU sends through the LAG, or by one port.
    assert_eq!(bench.send(Interface::Host(host), &arp), [(Interface::Port(ports[4]), arp.clone())]);
    assert_eq!(bench.send(Interface::Host(of_port), &lacp), [(Interface::Port(ports[6]), lacp)]);
    assert!(bench.chip.host_interfaces()[0].up);
    bench.chip.set_link("Ethernet16", false).unwrap();
    assert_eq!(used(&mut bench), of(&[]));
    assert!(!bench.chip.host_interfaces()[0].up);
}

#[test]
fn a_vlan_floods_learns_tags_and_is_routed() {
    let mut bench = Bench::new();
    let ports = bench.ports.clone();
    let (tagged, untagged) = ("SAI_VLAN_TAGGING_MODE_TAGGED", "SAI_VLAN_TAGGING_MODE_UNTAGGED");
    let vlan = bench.vlan(10, &[(ports[1], untagged), (ports[2], tagged), (ports[3], untagged)]);
    let host = bench.host(vlan, "Vlan10");
    let rif = bench.rif([Attr::RifKind(RifType::Vlan), Attr::RifVlan(vlan)]);
    bench.port_rif(ports[0]);
    bench.neighbor(rif, "10.0.10.2", NEIGHBOR);
    // From behind the tagged member: the others, and the CPU, without a tag.
    let arp = |tag| ethernet([0xff; 6], NEIGHBOR, tag, 0x0806, &[7; 28]);
    let all = bench.arrive(2, &arp(Some(10)));
    let wanted: Vec<_> = [Interface::Host(host), Interface::Port(ports[1]), Interface::Port(ports[3])]
        .map(|to| (to, arp(None)))
        .into();
    assert_eq!(all, wanted);
    assert_eq!(bench.dropped(2, &arp(Some(11))), Drop::NoInterface);
    assert_eq!(bench.dropped(2, &arp(None)), Drop::NoInterface);
    // It was learned: one member, with the tag.
    let station = |tag| ethernet(NEIGHBOR, HOST, tag, 0x0800, &[1; 20]);
    assert_eq!(bench.arrive(1, &station(None)), [(Interface::Port(ports[2]), station(Some(10)))]);
    assert_eq!(bench.dropped(2, &station(Some(10))), Drop::SamePort);
    // Routed into the VLAN, and out of it.
    let sent = bench.arrive(0, &to_switch(&v4("10.0.0.2", "10.0.10.2", 9, 7, b"")));
    let wanted = ethernet(NEIGHBOR, SWITCH, Some(10), 0x0800, &v4("10.0.0.2", "10.0.10.2", 8, 7, b""));
    assert_eq!(sent, [(Interface::Port(ports[2]), wanted)]);
    let first = bench.chip.host_interfaces().len();
    assert_eq!(first, 1);
    let hop = bench.way(ports[5], "10.0.5.2", HOST);
    bench.route("0.0.0.0/0", [Attr::RouteNextHop(hop)]);
    let out = v4("10.0.10.2", "192.0.2.1", 9, 7, b"");
    let sent = bench.arrive(2, &ethernet(SWITCH, NEIGHBOR, Some(10), 0x0800, &out));
    let wanted = ethernet(HOST, SWITCH, None, 0x0800, &v4("10.0.10.2", "192.0.2.1", 8, 7, b""));
    assert_eq!(sent, [(Interface::Port(ports[5]), wanted)]);
    // The CPU is a station of the VLAN.
    let reply = ethernet(NEIGHBOR, SWITCH, None, 0x0806, &[1; 28]);
    let wanted = ethernet(NEIGHBOR, SWITCH, Some(10), 0x0806, &[1; 28]);
    assert_eq!(bench.send(Interface::Host(host), &reply), [(Interface::Port(ports[2]), wanted)]);
    // A flush forgets what was learned: of another VLAN nothing, of null, which is every VLAN, all.
    let flush = |bench: &mut Bench, of: Oid| {
        let of = Attr::read("SAI_FDB_FLUSH_ATTR_BV_ID", &of.to_string()).unwrap();
        let flushed = bench.chip.query(&Query::FlushFdb { attrs: [of].into_iter().collect() });
        assert_eq!(flushed.status, Status::Success);
    };
    flush(&mut bench, rif);
    assert_eq!(bench.arrive(1, &station(None)).len(), 1);
    flush(&mut bench, Oid::NULL);
    assert_eq!(bench.arrive(1, &station(None)).len(), 2);
    assert_eq!(bench.arrive(2, &arp(Some(10))), all);
    flush(&mut bench, vlan);
    assert_eq!(bench.arrive(1, &station(None)).len(), 2);
    // An entry of the FDB is more than what was learned.
    let bridge_port = bench.make(
        ObjectType::BridgePort,
        vec![
            Attr::read("SAI_BRIDGE_PORT_ATTR_TYPE", "SAI_BRIDGE_PORT_TYPE_PORT").unwrap(),
            Attr::BridgePortPort(ports[3]),
        ],
    );
    let key =
        format!("{{\"bvid\":\"{vlan}\",\"mac\":\"{}\",\"switch_id\":\"{}\"}}", Mac(NEIGHBOR), bench.switch);
    let attrs = [
        Attr::read("SAI_FDB_ENTRY_ATTR_TYPE", "SAI_FDB_ENTRY_TYPE_STATIC").unwrap(),
        Attr::read("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", &bridge_port.to_string()).unwrap(),
    ];
    let fdb = ObjectType::from_name("SAI_OBJECT_TYPE_FDB_ENTRY").unwrap();
    assert_eq!(bench.chip.entry(Verb::Create, fdb, &RawText::read(&key), &attrs), Ok(()));
    assert_eq!(bench.arrive(1, &station(None)), [(Interface::Port(ports[3]), station(None))]);
}

/// The clock is the test's.
#[test]
fn addresses_are_forgotten_by_age_and_every_change_is_reported() {
    let mut bench = Bench::new();
    let ports = bench.ports.clone();
    let switch = bench.switch;
    let untagged = "SAI_VLAN_TAGGING_MODE_UNTAGGED";
    let vlan = bench.vlan(10, &[(ports[1], untagged), (ports[2], untagged), (ports[3], untagged)]);
    let frame = |dst, src| ethernet(dst, src, None, 0x0800, &[1; 20]);
    let to = |bench: &mut Bench, dst| bench.arrive(3, &frame(dst, [2, 0, 0, 0, 0xcc, 0])).len();
    let set = |bench: &mut Bench, name: &str, value: &str| {
        bench.set(ObjectType::Switch, switch, Attr::read(name, value).unwrap());
    };
    // Without the client's wish there is no event, and without an aging time no age.
    bench.arrive(1, &frame([0xff; 6], HOST));
    bench.chip.tick(3_600_000_000);
    assert_eq!((to(&mut bench, HOST), bench.chip.fdb_events()), (1, vec![]));
    bench.chip.query(&Query::FlushFdb { attrs: Default::default() });
    set(&mut bench, "SAI_SWITCH_ATTR_FDB_EVENT_NOTIFY", "0x1");
    set(&mut bench, "SAI_SWITCH_ATTR_FDB_AGING_TIME", "600");
    let start = 3_600_000_000;
    let events = |bench: &mut Bench| -> Vec<(FdbChange, String, String)> {
        let text = |event: ribtide_swss::sai::notification::FdbEvent| {
            let port =
                event.attrs.iter().find(|attr| attr.name() == "SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID").unwrap();
            (event.change, event.key.to_string(), port.value())
        };
        bench.chip.fdb_events().into_iter().map(text).collect()
    };
    let key = |mac: [u8; 6]| format!(r#"{{"bvid":"{vlan}","mac":"{}","switch_id":"{switch}"}}"#, Mac(mac));
    let (first, second) =
        (bench.bridge_ports[&ports[1]].to_string(), bench.bridge_ports[&ports[2]].to_string());
    bench.arrive(1, &frame([0xff; 6], HOST));
    bench.arrive(1, &frame([0xff; 6], HOST));
    bench.arrive(2, &frame([0xff; 6], NEIGHBOR));
    assert_eq!(
        events(&mut bench),
        [(FdbChange::Learned, key(HOST), first.clone()), (FdbChange::Learned, key(NEIGHBOR), second.clone())]
    );
    // 400 s later one is heard again, behind another port.
    bench.chip.tick(start + 400_000);
    bench.arrive(2, &frame([0xff; 6], HOST));
    assert_eq!(events(&mut bench), [(FdbChange::Moved, key(HOST), second.clone())]);
    bench.chip.tick(start + 599_000);
    assert_eq!((to(&mut bench, NEIGHBOR), events(&mut bench).len()), (1, 1), "the sender was learned");
    bench.chip.tick(start + 600_000);
    assert_eq!(events(&mut bench), [(FdbChange::Aged, key(NEIGHBOR), second.clone())]);
    assert_eq!(
        (to(&mut bench, NEIGHBOR), to(&mut bench, HOST)),
        (2, 1),
        "frames to it flood, to the other not"
    );
    assert!(bench.chip.tick(start + 999_000).is_some());
    assert_eq!(events(&mut bench), []);
    bench.chip.tick(start + 1_000_000);
    assert_eq!(events(&mut bench), [(FdbChange::Aged, key(HOST), second)]);
    // An entry that a client made as learned gets old, too; a static one does not.
    for (mac, kind) in [([2, 0, 0, 0, 0xdd, 0], "DYNAMIC"), ([2, 0, 0, 0, 0xdd, 1], "STATIC")] {
        let attrs = [
            Attr::read("SAI_FDB_ENTRY_ATTR_TYPE", &format!("SAI_FDB_ENTRY_TYPE_{kind}")).unwrap(),
            Attr::read("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", &first).unwrap(),
        ];
        let fdb = ObjectType::from_name("SAI_OBJECT_TYPE_FDB_ENTRY").unwrap();
        assert_eq!(bench.chip.entry(Verb::Create, fdb, &RawText::read(&key(mac)), &attrs), Ok(()));
    }
    bench.chip.tick(start + 1_001_000);
    bench.chip.tick(start + 1_602_000);
    let aged: Vec<String> =
        events(&mut bench).into_iter().map(|(change, key, _)| format!("{change:?} {key}")).collect();
    assert!(aged.contains(&format!("Aged {}", key([2, 0, 0, 0, 0xdd, 0]))), "{aged:?}");
    assert!(!aged.contains(&format!("Aged {}", key([2, 0, 0, 0, 0xdd, 1]))), "{aged:?}");
    // A flush is one event.
    bench.chip.query(&Query::FlushFdb { attrs: Default::default() });
    let [(change, flushed, port)] = &events(&mut bench)[..] else { panic!("one event") };
    assert_eq!((*change, port.as_str()), (FdbChange::Flushed, "oid:0x0"));
    assert!(flushed.contains("00:00:00:00:00:00"), "{flushed}");
}

/// SAI: an entry that a client makes or sets is the client's; the switch learned the address before.
#[test]
fn entry_of_a_client_takes_the_place_of_a_learned_address() {
    let mut bench = Bench::new();
    let (ports, switch) = (bench.ports.clone(), bench.switch);
    let untagged = "SAI_VLAN_TAGGING_MODE_UNTAGGED";
    let vlan = bench.vlan(10, &[(ports[1], untagged), (ports[2], untagged), (ports[3], untagged)]);
    for (name, value) in [("FDB_EVENT_NOTIFY", "0x1"), ("FDB_AGING_TIME", "600")] {
        let attr = Attr::read(&format!("SAI_SWITCH_ATTR_{name}"), value).unwrap();
        bench.set(ObjectType::Switch, switch, attr);
    }
    let fdb = ObjectType::from_name("SAI_OBJECT_TYPE_FDB_ENTRY").unwrap();
    let key = |mac: [u8; 6]| {
        RawText::read(&format!(r#"{{"bvid":"{vlan}","mac":"{}","switch_id":"{switch}"}}"#, Mac(mac)))
    };
    let kind = Attr::read("SAI_FDB_ENTRY_ATTR_TYPE", "SAI_FDB_ENTRY_TYPE_STATIC").unwrap();
    let at = |bench: &Bench, n: usize| {
        Attr::read("SAI_FDB_ENTRY_ATTR_BRIDGE_PORT_ID", &bench.bridge_ports[&ports[n]].to_string()).unwrap()
    };
    let frame = |dst, src| ethernet(dst, src, None, 0x0800, &[1; 20]);
    let to = |bench: &mut Bench, dst| -> Vec<Interface> {
        // A source that is not learned: a group's address.
        bench.arrive(3, &frame(dst, [3, 0, 0, 0, 0, 1])).into_iter().map(|(to, _)| to).collect()
    };
    let count = |bench: &mut Bench| bench.chip.fdb_events().len();
    let third = [2, 0, 0, 0, 0xcc, 0];
    bench.chip.tick(1000);
    // Made while the event that it was learned waits.
    bench.arrive(1, &frame([0xff; 6], HOST));
    let attrs = [kind.clone(), at(&bench, 2)];
    assert_eq!(bench.chip.entry(Verb::Create, fdb, &key(HOST), &attrs), Ok(()));
    assert_eq!((count(&mut bench), to(&mut bench, HOST)), (0, vec![Interface::Port(ports[2])]));
    // Set after it, and removed.
    bench.arrive(1, &frame([0xff; 6], NEIGHBOR));
    bench.arrive(1, &frame([0xff; 6], third));
    assert_eq!(count(&mut bench), 2);
    assert_eq!(bench.chip.entry(Verb::Set, fdb, &key(NEIGHBOR), std::slice::from_ref(&kind)), Ok(()));
    let mut read = [kind.clone(), at(&bench, 3)];
    assert_eq!(bench.chip.get_entry(fdb, &key(NEIGHBOR), &mut read), Ok(()));
    assert_eq!(read, [kind, at(&bench, 1)]);
    assert_eq!(bench.chip.entry(Verb::Remove, fdb, &key(third), &[]), Ok(()));
    assert_eq!(bench.chip.entry(Verb::Remove, fdb, &key(third), &[]), Err(Status::ItemNotFound));
    assert_eq!(to(&mut bench, third).len(), 2, "frames to it flood");
    // Neither gets old, nor is learned elsewhere.
    bench.arrive(3, &frame([0xff; 6], HOST));
    bench.chip.tick(1000 + 600_000);
    bench.chip.tick(1000 + 1_300_000);
    assert_eq!(count(&mut bench), 0);
    assert_eq!(to(&mut bench, HOST), [Interface::Port(ports[2])]);
    assert_eq!(to(&mut bench, NEIGHBOR), [Interface::Port(ports[1])]);
}

#[test]
fn a_sub_interface_has_the_frames_of_its_tag() {
    let mut bench = Bench::new();
    let ports = bench.ports.clone();
    bench.port_rif(ports[0]);
    let host = bench.host(ports[1], "Ethernet4");
    let rif = bench.rif([Attr::RifKind(RifType::SubPort), Attr::RifPort(ports[1]), Attr::RifOuterVlan(30)]);
    bench.neighbor(rif, "10.0.30.2", NEIGHBOR);
    bench.neighbor(rif, "10.0.30.3", HOST);
    let sent = bench.arrive(0, &to_switch(&v4("10.0.0.2", "10.0.30.2", 9, 7, b"")));
    let wanted = ethernet(NEIGHBOR, SWITCH, Some(30), 0x0800, &v4("10.0.0.2", "10.0.30.2", 8, 7, b""));
    assert_eq!(sent, [(Interface::Port(ports[1]), wanted)]);
    let back = v4("10.0.30.2", "10.0.30.3", 9, 7, b"");
    assert_eq!(bench.arrive(1, &ethernet(SWITCH, NEIGHBOR, Some(30), 0x0800, &back)).len(), 1);
    assert_eq!(bench.dropped(1, &ethernet(SWITCH, NEIGHBOR, None, 0x0800, &back)), Drop::NoInterface);
    // The kernel has the sub-interface too, and needs the tag.
    let arp = ethernet([0xff; 6], NEIGHBOR, Some(30), 0x0806, &[0; 28]);
    assert_eq!(bench.arrive(1, &arp), [(Interface::Host(host), arp)]);
}

fn entry(label: u32, bottom: bool, ttl: u8) -> [u8; 4] {
    (label << 12 | u32::from(bottom) << 8 | u32::from(ttl)).to_be_bytes()
}

#[test]
fn labels_are_pushed_swapped_and_popped() {
    let mut bench = Bench::new();
    let ports = bench.ports.clone();
    let first = bench.port_rif(ports[0]);
    bench.set(ObjectType::RouterInterface, first, Attr::RifMpls(true));
    let out = bench.port_rif(ports[1]);
    bench.neighbor(out, "10.0.1.2", NEIGHBOR);
    let plain = bench.hop(out, "10.0.1.2");
    let mpls = |bench: &mut Bench, op, labels: &[u32]| {
        let attrs = vec![
            Attr::NextHopKind(NextHopType::Mpls),
            Attr::NextHopIp(ip("10.0.1.2")),
            Attr::NextHopRif(out),
            Attr::NextHopLabels(labels.into()),
            Attr::NextHopOutseg(op),
        ];
        bench.make(ObjectType::NextHop, attrs)
    };
    let push = mpls(&mut bench, OutsegType::Push, &[100, 200]);
    let swap = mpls(&mut bench, OutsegType::Swap, &[300]);
    bench.route("198.51.100.0/24", [Attr::RouteNextHop(push)]);
    let mut inseg = |label, to, pop| {
        let id = ObjectId::Inseg(InsegEntry { switch: bench.switch, label });
        let attrs = [Attr::InsegNextHop(to), Attr::InsegPop(pop)].into_iter().collect();
        assert_eq!(
            bench.chip.one(Verb::Create, ObjectType::InsegEntry, &mut Item { id, attrs }),
            Status::Success
        );
    };
    inseg(20, swap, 1);
    inseg(21, plain, 1);
    let inner = |ttl| v4("10.0.0.2", "198.51.100.9", ttl, 7, b"x");
    let labelled = |dst, src, labels: &[[u8; 4]], packet: Vec<u8>| {
        ethernet(dst, src, None, 0x8847, &[&labels.concat()[..], &packet].concat())
    };
    let to = Interface::Port(ports[1]);
    assert_eq!(
        bench.arrive(0, &to_switch(&inner(9))),
        [(to, labelled(NEIGHBOR, SWITCH, &[entry(100, false, 8), entry(200, true, 8)], inner(8)))]
    );
    assert_eq!(
        bench.arrive(0, &labelled(SWITCH, HOST, &[entry(20, true, 7)], inner(9))),
        [(to, labelled(NEIGHBOR, SWITCH, &[entry(300, true, 6)], inner(9)))]
    );
    assert_eq!(
        bench.arrive(0, &labelled(SWITCH, HOST, &[entry(20, false, 7), entry(55, true, 70)], inner(9))),
        [(to, labelled(NEIGHBOR, SWITCH, &[entry(300, false, 6), entry(55, true, 70)], inner(9)))]
    );
    // The last label goes: the TTL is that of the label.
    assert_eq!(
        bench.arrive(0, &labelled(SWITCH, HOST, &[entry(21, true, 7)], inner(9))),
        [(to, ethernet(NEIGHBOR, SWITCH, None, 0x0800, &inner(6)))]
    );
    assert_eq!(
        bench.arrive(0, &labelled(SWITCH, HOST, &[entry(21, false, 7), entry(55, true, 70)], inner(9))),
        [(to, labelled(NEIGHBOR, SWITCH, &[entry(55, true, 6)], inner(9)))]
    );
    // Explicit null: what is below is routed.
    assert_eq!(
        bench.arrive(0, &labelled(SWITCH, HOST, &[entry(0, true, 7)], inner(9))),
        [(to, labelled(NEIGHBOR, SWITCH, &[entry(100, false, 6), entry(200, true, 6)], inner(6)))]
    );
    assert_eq!(bench.dropped(0, &labelled(SWITCH, HOST, &[entry(99, true, 7)], inner(9))), Drop::NoRoute);
    assert_eq!(bench.dropped(0, &labelled(SWITCH, HOST, &[entry(20, false, 7)], inner(9))), Drop::Malformed);
    // A label that traps.
    let host = bench.host(ports[0], "Ethernet0");
    let id = ObjectId::Inseg(InsegEntry { switch: bench.switch, label: 30 });
    let attrs = [Attr::InsegPacketAction(PacketAction::Trap), Attr::InsegPop(1)].into_iter().collect();
    assert_eq!(
        bench.chip.one(Verb::Create, ObjectType::InsegEntry, &mut Item { id, attrs }),
        Status::Success
    );
    let trapped = labelled(SWITCH, HOST, &[entry(30, true, 7)], inner(9));
    assert_eq!(bench.arrive(0, &trapped), [(Interface::Host(host), trapped)]);
    bench.set(ObjectType::RouterInterface, first, Attr::RifMpls(false));
    assert_eq!(bench.dropped(0, &labelled(SWITCH, HOST, &[entry(20, true, 7)], inner(9))), Drop::NotRouted);
}

/// Without maps of SAI a bridged frame keeps the priority of its tag, a routed one has none, and a packet keeps its DSCP.
/// Labels carry the traffic class (RFC 3270, 2.6.3).
#[test]
fn priorities_are_kept_where_no_map_changes_them() {
    let mut bench = Bench::new();
    let ports = bench.ports.clone();
    let tagged = "SAI_VLAN_TAGGING_MODE_TAGGED";
    let vlan = bench
        .vlan(10, &[(ports[1], tagged), (ports[2], tagged), (ports[3], "SAI_VLAN_TAGGING_MODE_UNTAGGED")]);
    let rif = bench.rif([Attr::RifKind(RifType::Vlan), Attr::RifVlan(vlan)]);
    // PCP 5 and DEI.
    let with = |tag: u16| ethernet(NEIGHBOR, HOST, Some(tag), 0x0800, &[1; 20]);
    let wanted = [
        (Interface::Port(ports[2]), with(0xb00a)),
        (Interface::Port(ports[3]), ethernet(NEIGHBOR, HOST, None, 0x0800, &[1; 20])),
    ];
    assert_eq!(bench.arrive(1, &with(0xb00a)), wanted);
    // A tag with a priority and no VLAN, at the member without tags.
    let sent = bench.arrive(3, &with(0x6000));
    assert_eq!(sent, [(Interface::Port(ports[1]), with(0x600a)), (Interface::Port(ports[2]), with(0x600a))]);
    // Routed into the VLAN and into a sub-interface; DSCP 46 and ECN 1 stay.
    let marked = |ttl| {
        let mut packet = v4("10.0.10.2", "10.0.30.2", ttl, 7, b"");
        (packet[1], packet[10], packet[11]) = (0xb9, 0, 0);
        let checksum = !sum(&packet[..20]);
        packet[10..12].copy_from_slice(&checksum.to_be_bytes());
        packet
    };
    let sub = bench.rif([Attr::RifKind(RifType::SubPort), Attr::RifPort(ports[4]), Attr::RifOuterVlan(30)]);
    bench.neighbor(sub, "10.0.30.2", NEIGHBOR);
    let arrives = ethernet(SWITCH, HOST, Some(0xb00a), 0x0800, &marked(9));
    let leaves = ethernet(NEIGHBOR, SWITCH, Some(30), 0x0800, &marked(8));
    assert_eq!(bench.arrive(1, &arrives), [(Interface::Port(ports[4]), leaves)]);
    // Labels: those that are pushed have the class of the DSCP, 5.
    bench.set(ObjectType::RouterInterface, rif, Attr::RifMpls(true));
    let attrs = |op, labels: &[u32]| {
        vec![
            Attr::NextHopKind(NextHopType::Mpls),
            Attr::NextHopIp(ip("10.0.30.2")),
            Attr::NextHopRif(sub),
            Attr::NextHopLabels(labels.into()),
            Attr::NextHopOutseg(op),
        ]
    };
    let push = bench.make(ObjectType::NextHop, attrs(OutsegType::Push, &[100]));
    let swap = bench.make(ObjectType::NextHop, attrs(OutsegType::Swap, &[300]));
    bench.route("10.0.30.2/32", [Attr::RouteNextHop(push)]);
    let class = |class: u32, entry: [u8; 4]| (u32::from_be_bytes(entry) | class << 9).to_be_bytes();
    let labelled = |src, dst, tag, labels: &[[u8; 4]], packet: &[u8]| {
        ethernet(dst, src, Some(tag), 0x8847, &[&labels.concat()[..], packet].concat())
    };
    let pushed = labelled(SWITCH, NEIGHBOR, 30, &[class(5, entry(100, true, 8))], &marked(8));
    assert_eq!(bench.arrive(1, &arrives), [(Interface::Port(ports[4]), pushed)]);
    for (label, to) in [(20, swap), (21, bench.hop(sub, "10.0.30.2"))] {
        let id = ObjectId::Inseg(InsegEntry { switch: bench.switch, label });
        let attrs = [Attr::InsegNextHop(to), Attr::InsegPop(1)].into_iter().collect();
        let created = bench.chip.one(Verb::Create, ObjectType::InsegEntry, &mut Item { id, attrs });
        assert_eq!(created, Status::Success);
    }
    let mut through =
        |labels: &[[u8; 4]]| bench.arrive(1, &labelled(HOST, SWITCH, 0xb00a, labels, &marked(9)));
    let to = Interface::Port(ports[4]);
    let swapped = labelled(SWITCH, NEIGHBOR, 30, &[class(3, entry(300, true, 6))], &marked(9));
    assert_eq!(through(&[class(3, entry(20, true, 7))]), [(to, swapped)]);
    // The label below gets the class of the one that goes; the packet below the last one keeps its own.
    let popped = labelled(SWITCH, NEIGHBOR, 30, &[class(3, entry(55, true, 6))], &marked(9));
    assert_eq!(through(&[class(3, entry(21, false, 7)), class(1, entry(55, true, 70))]), [(to, popped)]);
    let last = ethernet(NEIGHBOR, SWITCH, Some(30), 0x0800, &marked(6));
    assert_eq!(through(&[class(3, entry(21, true, 7))]), [(to, last)]);
}

/// A switch with everything that a frame can meet.
fn full() -> (Bench, Vec<Interface>) {
    let mut bench = routed();
    let ports = bench.ports.clone();
    let vlan = bench.vlan(
        10,
        &[(ports[8], "SAI_VLAN_TAGGING_MODE_TAGGED"), (ports[9], "SAI_VLAN_TAGGING_MODE_UNTAGGED")],
    );
    bench.rif([Attr::RifKind(RifType::Vlan), Attr::RifVlan(vlan)]);
    let (lag, _) = bench.lag(&ports[10..12]);
    let rif = bench.port_rif(lag);
    bench.set(ObjectType::RouterInterface, rif, Attr::RifMpls(true));
    let hosts =
        [ports[0], ports[8], lag, vlan].map(|object| bench.host(object, &format!("host{}", object.0)));
    let all = [0, 8, 9, 10, 20].map(|n| Interface::Port(ports[n])).into_iter();
    let all =
        all.chain(hosts.map(Interface::Host)).chain([Interface::Host(Oid::NULL), Interface::Port(Oid::NULL)]);
    (bench, all.collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever comes from outside: no panic, and no frame to where none may go.
    #[test]
    fn any_bytes_are_taken(
        frames in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<Vec<u8>>(), any::<(u16, u8)>()), 1..40),
    ) {
        let (mut bench, interfaces) = full();
        for (from, kind, bytes, (at, value)) in frames {
            let protocol = [0x0800u16, 0x86dd, 0x8847, 0x8100, 0x0806][usize::from(kind) % 5];
            let mut frame = match kind % 7 {
                0 => bytes,
                1 => to_switch(&v4("10.0.0.2", "198.51.100.9", kind, 7, &bytes[..bytes.len().min(200)])),
                2 => to_switch(&v6("fc00::2", "2001:db8:1::9", kind, 7)),
                _ => ethernet(if kind % 2 == 0 { SWITCH } else { [0xff; 6] }, HOST, (kind > 128).then_some(10), protocol, &bytes),
            };
            if let Some(place) = frame.get_mut(usize::from(at) % 64) {
                *place = value;
            }
            let sent = bench.send(*from.get(&interfaces), &frame);
            for (_, frame) in sent {
                prop_assert!(frame.len() >= 14);
            }
        }
    }

    #[test]
    fn a_routed_packet_differs_by_its_header_only(ttl in 2u8.., host in 0u8.., port: u16, data in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut bench = routed();
        let packet = v4("10.0.0.2", &format!("198.51.100.{host}"), ttl, port, &data);
        let sent = bench.arrive(0, &to_switch(&packet));
        let [(_, out)] = &sent[..] else { panic!("{sent:?}") };
        prop_assert_eq!(sum(&out[14..34]), 0xffff);
        prop_assert_eq!(out[14 + 8], ttl - 1);
        let same = |bytes: &[u8]| [&bytes[..8], &bytes[9..10], &bytes[12..]].concat();
        prop_assert_eq!(same(&out[14..]), same(&packet));
    }
}
