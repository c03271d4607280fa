//! Routed packets: the look-up, the choice among next hops, and the new header.

use super::frame::{self, Ethernet, Flow, Ip, LabelEntry};
use super::topology::Topology;
use super::{Arrived, Drop, Lower, Rif, Send};
use crate::switch::{VirtualSwitch, neighbor_mac};
use crate::target::Action;
use ribtide_swss::row::Mac;
use ribtide_swss::sai::{Attr, ObjectType, Oid, PacketAction};
use std::net::IpAddr;

/// The label that says: below is IPv6, or IPv4 (RFC 3032, 2.1).
const EXPLICIT_NULLS: [u32; 2] = [0, 2];
/// Labels of a packet that are looked at, at most.
const LABELS_MAX: usize = 16;

/// Where a packet goes.
enum Way {
    /// To the CPU.
    Cpu,
    /// To this address on a router interface, with these labels.
    Hop { rif: Oid, mac: Mac, labels: Box<[u32]> },
}

/// The packet that leaves: what is above Ethernet, without new labels.
struct Leaving<'a> {
    /// The label stack that stays, then the IP packet.
    rest: &'a [u8],
    /// Whether it begins with a label.
    labelled: bool,
    /// Whether its first TTL changes: not while a new label counts for it.
    counts: bool,
    /// The new TTL.
    ttl: u8,
    /// The traffic class of new labels, and of the first one that stays. The uniform model, which SAI
    /// has by default, carries it through all labels (RFC 3270, 2.6.3); an IP header keeps its DSCP,
    /// which only a map of SAI changes.
    class: u8,
    /// Bytes of the greatest packet on the wire.
    longest: usize,
}

/// The flow of a frame, for the choice among ports of a LAG.
pub(super) fn flow_of(bytes: &[u8]) -> Option<Flow> {
    let ethernet = Ethernet::read(bytes)?;
    let mut packet = bytes.get(ethernet.payload..)?;
    let mut protocol = ethernet.protocol;
    if protocol == frame::MPLS {
        packet = below_labels(packet)?;
        protocol = frame::protocol_of(packet)?;
    }
    Ip::read(protocol, packet).ok().map(|ip| ip.flow)
}

/// What is below the label stack.
fn below_labels(mut packet: &[u8]) -> Option<&[u8]> {
    for _ in 0..LABELS_MAX {
        let entry = LabelEntry::read(packet)?;
        packet = packet.get(LabelEntry::LEN..)?;
        if entry.bottom {
            return Some(packet);
        }
    }
    None
}

impl VirtualSwitch {
    /// Handles a frame to the MAC address of a router interface.
    pub(super) fn route_frame(
        &mut self,
        topology: &Topology,
        rif: Rif,
        arrived: Arrived<'_>,
        send: Send<'_>,
    ) -> Result<(), Drop> {
        match arrived.ethernet.protocol {
            frame::ARP => self.trap(topology, rif, arrived, send),
            frame::IPV4 | frame::IPV6 => self.route_ip(topology, rif, arrived, send),
            frame::MPLS if rif.mpls => self.switch_label(topology, rif, arrived, send),
            _ => Err(Drop::NotRouted),
        }
    }

    /// Sends a frame to the CPU.
    fn trap(
        &mut self,
        topology: &Topology,
        rif: Rif,
        arrived: Arrived<'_>,
        send: Send<'_>,
    ) -> Result<(), Drop> {
        match rif.lower {
            Lower::Vlan(id) => self.vlan_to_cpu(topology, id, arrived, send),
            Lower::Port(..) => self.send_to_cpu(topology, arrived, send),
        }
    }

    fn route_ip(
        &mut self,
        topology: &Topology,
        rif: Rif,
        arrived: Arrived<'_>,
        send: Send<'_>,
    ) -> Result<(), Drop> {
        let packet = arrived.payload();
        let ip = Ip::read(arrived.ethernet.protocol, packet)?;
        if !(if ip.flow.dst.is_ipv4() { rif.v4 } else { rif.v6 }) {
            return Err(Drop::NotRouted);
        }
        if ip.stays_on_link() {
            return self.trap(topology, rif, arrived, send);
        }
        match self.way_of(topology, rif.router, &ip.flow)? {
            Way::Cpu => self.trap(topology, rif, arrived, send),
            Way::Hop { .. } if ip.is_martian() => Err(Drop::Martian),
            // The CPU says that its time is exceeded.
            Way::Hop { .. } if ip.ttl <= 1 => self.trap(topology, rif, arrived, send),
            Way::Hop { rif: out, mac, labels } => {
                let longest = (arrived.frame.longest.saturating_sub(arrived.ethernet.payload)).min(ip.len);
                let rest = packet.get(..ip.len).unwrap_or(packet);
                let (ttl, class) = (ip.ttl - 1, ip.class);
                let leaving = Leaving { rest, labelled: false, counts: true, ttl, class, longest };
                match self.leave(topology, (out, mac, &labels), leaving, send) {
                    // The CPU says that it is too big.
                    Ok(false) => self.trap(topology, rif, arrived, send),
                    Ok(true) => Ok(()),
                    Err(reason) => Err(reason),
                }
            }
        }
    }

    /// The way of a flow in a virtual router: a neighbour, which counts as a route of its own, or the
    /// longest match.
    fn way_of(&self, topology: &Topology, router: Oid, flow: &Flow) -> Result<Way, Drop> {
        let found = self.routers.get(&router).and_then(|router| router.lookup(flow.dst));
        let host = if flow.dst.is_ipv4() { 32 } else { 128 };
        if found.is_none_or(|(prefix, _)| prefix.len() < host) {
            let rifs = topology.rifs.iter().filter(|(_, rif)| rif.router == router);
            for (rif, _) in rifs {
                let Some(attrs) = self.neighbors.get(&(*rif, flow.dst)) else { continue };
                if let Some(mac) = neighbor_mac(attrs)
                    && !attrs.contains(&Attr::NeighborNoHostRoute(true))
                {
                    return Ok(Way::Hop { rif: *rif, mac, labels: Box::default() });
                }
            }
        }
        let (_, target) = found.ok_or(Drop::NoRoute)?;
        let action = self.targets.action(target);
        self.way(action, flow.dst, flow.hash(topology.seeds[0]))
    }

    /// The way of an action.
    fn way(&self, action: Action, dst: IpAddr, hash: u64) -> Result<Way, Drop> {
        match action.packet {
            PacketAction::Drop => return Err(Drop::RouteDrops),
            PacketAction::Trap => return Ok(Way::Cpu),
            PacketAction::Forward => {}
        }
        match self.objects.get(action.to).map(|object| object.kind) {
            Some(ObjectType::NextHop) => self.hop_way(action.to),
            Some(ObjectType::NextHopGroup) => {
                let hop = self.member_of(action.to, hash).ok_or(Drop::RouteDrops)?;
                self.hop_way(hop)
            }
            Some(ObjectType::RouterInterface) => {
                match self.neighbors.get(&(action.to, dst)).and_then(|attrs| neighbor_mac(attrs)) {
                    Some(mac) => Ok(Way::Hop { rif: action.to, mac, labels: Box::default() }),
                    // The CPU asks for it.
                    None => Ok(Way::Cpu),
                }
            }
            // A port is the CPU's.
            Some(_) => Ok(Way::Cpu),
            None => Err(Drop::RouteDrops),
        }
    }

    /// The next hop of a group for a hash; each has the share of its weight.
    fn member_of(&self, group: Oid, hash: u64) -> Option<Oid> {
        let members = self.members.get(&group)?;
        let weight = |member: Oid| {
            let weight = self
                .objects
                .find(member, |a| if let Attr::MemberWeight(weight) = a { Some(*weight) } else { None });
            u64::from(weight.unwrap_or(1))
        };
        let total: u64 = members.iter().map(|member| weight(*member)).sum();
        let mut place = hash.checked_rem(total)?;
        for member in members {
            let weight = weight(*member);
            if place < weight {
                return self
                    .objects
                    .find(*member, |a| if let Attr::MemberNextHop(hop) = a { Some(*hop) } else { None });
            }
            place -= weight;
        }
        None
    }

    fn hop_way(&self, hop: Oid) -> Result<Way, Drop> {
        let rif = self.objects.find(hop, |a| if let Attr::NextHopRif(rif) = a { Some(*rif) } else { None });
        let ip = self.objects.find(hop, |a| if let Attr::NextHopIp(ip) = a { Some(*ip) } else { None });
        let labels = self
            .objects
            .find(hop, |a| if let Attr::NextHopLabels(labels) = a { Some(labels.clone()) } else { None });
        let (Some(rif), Some(ip)) = (rif, ip) else { return Err(Drop::RouteDrops) };
        let mac =
            self.neighbors.get(&(rif, ip)).and_then(|attrs| neighbor_mac(attrs)).ok_or(Drop::NoNeighbor)?;
        Ok(Way::Hop { rif, mac, labels: labels.unwrap_or_default() })
    }

    /// Handles a packet with a label: the labels that its entry removes go, those of its next hop
    /// come, and the TTL counts through all of them (RFC 3443, 3: the uniform model).
    fn switch_label(
        &mut self,
        topology: &Topology,
        rif: Rif,
        arrived: Arrived<'_>,
        send: Send<'_>,
    ) -> Result<(), Drop> {
        let packet = arrived.payload();
        let first = LabelEntry::read(packet).ok_or(Drop::Malformed)?;
        let inner = below_labels(packet).ok_or(Drop::Malformed)?;
        let protocol = frame::protocol_of(inner).ok_or(Drop::Malformed)?;
        let ip = Ip::read(protocol, inner)?;
        if first.ttl <= 1 {
            return self.trap(topology, rif, arrived, send);
        }
        let depth = (packet.len() - inner.len()) / LabelEntry::LEN;
        let (action, pop) = match self.labels.get(&first.label) {
            Some(entry) => (Some(self.targets.action(entry.target)), usize::from(entry.pop)),
            None if EXPLICIT_NULLS.contains(&first.label) => (None, 1),
            None => return Err(Drop::NoRoute),
        };
        if pop > depth {
            return Err(Drop::Malformed);
        }
        let to_next_hop = action.filter(|action| {
            !self.objects.is(action.to, &[ObjectType::RouterInterface]) && !action.to.is_null()
        });
        let hash = ip.flow.hash(topology.seeds[0]);
        let way = match (to_next_hop, action) {
            (Some(action), _) => self.way(action, ip.flow.dst, hash)?,
            (None, Some(Action { packet: PacketAction::Drop, .. })) => return Err(Drop::RouteDrops),
            (None, Some(Action { packet: PacketAction::Trap, .. })) => Way::Cpu,
            // The packet below is routed in the virtual router of the entry's interface, or in that of the arrival.
            _ if pop == depth && ip.is_martian() => return Err(Drop::Martian),
            _ if pop == depth => {
                let target = action.and_then(|action| topology.rifs.get(&action.to));
                self.way_of(topology, target.map_or(rif.router, |target| target.router), &ip.flow)?
            }
            _ => return Err(Drop::NoRoute),
        };
        match way {
            Way::Cpu => self.trap(topology, rif, arrived, send),
            Way::Hop { rif: out, mac, labels } => {
                let removed = pop * LabelEntry::LEN;
                let rest = packet.get(removed..packet.len() - (inner.len() - ip.len)).unwrap_or_default();
                let longest = arrived.frame.longest.saturating_sub(arrived.ethernet.payload + removed);
                let leaving = Leaving {
                    rest,
                    labelled: pop < depth,
                    counts: to_next_hop.is_none() || labels.is_empty(),
                    ttl: first.ttl - 1,
                    class: first.class,
                    longest: longest.min(rest.len()),
                };
                match self.leave(topology, (out, mac, &labels), leaving, send) {
                    Ok(false) => self.trap(topology, rif, arrived, send),
                    Ok(true) => Ok(()),
                    Err(reason) => Err(reason),
                }
            }
        }
    }

    /// Sends a packet to a neighbour; `false`: it is too big for the router interface, and was not sent.
    fn leave(
        &mut self,
        topology: &Topology,
        (rif, dst, labels): (Oid, Mac, &[u32]),
        packet: Leaving<'_>,
        send: Send<'_>,
    ) -> Result<bool, Drop> {
        let rif = *topology.rifs.get(&rif).ok_or(Drop::NoInterface)?;
        let Leaving { rest, labelled, counts, ttl, class, longest } = packet;
        if longest + labels.len() * LabelEntry::LEN > rif.mtu {
            return Ok(false);
        }
        let protocol = match labelled || !labels.is_empty() {
            true => frame::MPLS,
            false => frame::protocol_of(rest).ok_or(Drop::Malformed)?,
        };
        let vlan = if let Lower::Port(_, tag) = rif.lower { tag } else { None };
        // Its tag has the priority 0 unless a map says so (`SAI_PORT_ATTR_QOS_TC_AND_COLOR_TO_DOT1P_MAP`).
        let ethernet = Ethernet { dst, src: rif.mac, vlan, priority: 0, protocol, payload: 0 };
        let mut above = std::mem::take(&mut self.packets.above);
        above.clear();
        for (n, label) in labels.iter().enumerate() {
            let bottom = !labelled && n + 1 == labels.len();
            LabelEntry { label: *label, class, bottom, ttl }.write(&mut above);
        }
        let at = above.len();
        above.extend(rest);
        let changed = above.get_mut(at..).unwrap_or_default();
        match labelled {
            _ if !counts => {}
            false => frame::set_ttl(changed, ttl),
            true => LabelEntry::set_first(changed, class, ttl),
        }
        let sent = match rif.lower {
            Lower::Vlan(id) => self.send_to_vlan(topology, id, None, ethernet, &above, send),
            Lower::Port(lower, _) => {
                let mut out = std::mem::take(&mut self.packets.out);
                out.clear();
                ethernet.write(&mut out);
                out.extend(&above);
                let sent = self.send_to_lower(topology, lower, &out, send);
                self.packets.out = out;
                sent
            }
        };
        self.packets.above = above;
        sent.map(|()| true)
    }
}
