//! Counters of packets: of each port, by the names of SAI, and of drops, by reason.

use super::Interface;
use crate::switch::VirtualSwitch;
use ribtide_swss::Name;
use ribtide_swss::sai::Oid;

/// Why a packet was dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Drop {
    /// Its port, or every port of the LAG that it should leave by, has no link.
    NoLink,
    /// Its port is a member of a LAG that takes nothing from it.
    NotSelected,
    /// Its headers contradict each other, or end too early.
    Malformed,
    /// No router interface and no VLAN has its port and tag.
    NoInterface,
    /// A router interface has its port, and another MAC address.
    NotForSwitch,
    /// The router interface does not route its protocol.
    NotRouted,
    /// No route, or no label, matches.
    NoRoute,
    /// Its route or label drops packets, or has no target.
    RouteDrops,
    /// The next hop has no neighbour.
    NoNeighbor,
    /// It should go to the CPU, and its port has no host interface.
    NoHostInterface,
    /// It would leave by the port that it came by.
    SamePort,
    /// Its source or destination is an address that no router forwards.
    Martian,
    /// It came while too much waited for the switch.
    QueueFull,
    /// The device that it should leave by took nothing.
    NotSent,
}

impl Drop {
    /// Every reason.
    pub const ALL: [Drop; 14] = [
        Drop::NoLink,
        Drop::NotSelected,
        Drop::Malformed,
        Drop::NoInterface,
        Drop::NotForSwitch,
        Drop::NotRouted,
        Drop::NoRoute,
        Drop::RouteDrops,
        Drop::NoNeighbor,
        Drop::NoHostInterface,
        Drop::SamePort,
        Drop::Martian,
        Drop::QueueFull,
        Drop::NotSent,
    ];

    /// Its name in replies.
    pub const fn name(self) -> &'static str {
        match self {
            Drop::NoLink => "no-link",
            Drop::NotSelected => "not-selected",
            Drop::Malformed => "malformed",
            Drop::NoInterface => "no-interface",
            Drop::NotForSwitch => "not-for-switch",
            Drop::NotRouted => "not-routed",
            Drop::NoRoute => "no-route",
            Drop::RouteDrops => "route-drops",
            Drop::NoNeighbor => "no-neighbor",
            Drop::NoHostInterface => "no-host-interface",
            Drop::SamePort => "same-port",
            Drop::Martian => "martian",
            Drop::QueueFull => "queue-full",
            Drop::NotSent => "not-sent",
        }
    }
}

/// Packets of a port, without those of its host interface.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct PortPackets {
    in_unicast: u64,
    in_group: u64,
    in_octets: u64,
    in_discards: u64,
    out_unicast: u64,
    out_group: u64,
    out_octets: u64,
}

impl PortPackets {
    pub(super) fn add_in(&mut self, octets: usize, is_group: bool) {
        let packets = if is_group { &mut self.in_group } else { &mut self.in_unicast };
        *packets += 1;
        self.in_octets += octets as u64;
    }

    pub(super) fn add_out(&mut self, octets: usize, is_group: bool) {
        let packets = if is_group { &mut self.out_group } else { &mut self.out_unicast };
        *packets += 1;
        self.out_octets += octets as u64;
    }

    pub(super) fn discard_in(&mut self, count: u64) {
        self.in_discards += count;
    }

    /// The counter of this name; `None` when it is not counted.
    fn counter(&mut self, name: &str) -> Option<&mut u64> {
        Some(match name {
            "SAI_PORT_STAT_IF_IN_UCAST_PKTS" => &mut self.in_unicast,
            "SAI_PORT_STAT_IF_IN_NON_UCAST_PKTS" => &mut self.in_group,
            "SAI_PORT_STAT_IF_IN_OCTETS" => &mut self.in_octets,
            "SAI_PORT_STAT_IF_IN_DISCARDS" => &mut self.in_discards,
            "SAI_PORT_STAT_IF_OUT_UCAST_PKTS" => &mut self.out_unicast,
            "SAI_PORT_STAT_IF_OUT_NON_UCAST_PKTS" => &mut self.out_group,
            "SAI_PORT_STAT_IF_OUT_OCTETS" => &mut self.out_octets,
            _ => return None,
        })
    }
}

/// Packets of a port.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PacketCounters {
    /// Its name.
    pub port: Name,
    /// Packets that came.
    pub packets_in: u64,
    /// Packets that left.
    pub packets_out: u64,
    /// Packets that came and were dropped.
    pub discards_in: u64,
}

impl VirtualSwitch {
    /// Packets of each port, by name.
    pub fn packet_counters(&self) -> Vec<PacketCounters> {
        let counters = |(oid, port): (Oid, Name)| {
            let of = self.packets.counters.get(&oid).copied().unwrap_or_default();
            PacketCounters {
                port,
                packets_in: of.in_unicast + of.in_group,
                packets_out: of.out_unicast + of.out_group,
                discards_in: of.in_discards,
            }
        };
        self.front_panel().into_iter().map(counters).collect()
    }

    /// Counts packets that came and were dropped before [`VirtualSwitch::packet`].
    pub fn count_missed(&mut self, from: Interface, count: u64) {
        *self.packets.drops.entry(Drop::QueueFull).or_default() += count;
        if let Interface::Port(port) = from {
            self.packets.counters.entry(port).or_default().discard_in(count);
        }
    }

    /// Counts packets that a device did not take.
    pub fn count_unsent(&mut self, count: u64) {
        *self.packets.drops.entry(Drop::NotSent).or_default() += count;
    }

    /// Dropped packets by reason, without reasons that had none.
    pub fn packet_drops(&self) -> Vec<(Drop, u64)> {
        let count = |reason| Some((reason, *self.packets.drops.get(&reason)?));
        Drop::ALL.into_iter().filter_map(count).collect()
    }

    /// A counter of a port by SAI's name, 0 where the switch does not count.
    pub(crate) fn port_counter(&self, port: Oid, name: &str) -> u64 {
        let counters = self.packets.counters.get(&port).copied();
        counters.and_then(|mut of| of.counter(name).copied()).unwrap_or(0)
    }

    /// Sets a counter of a port back to 0.
    pub(crate) fn clear_port_counter(&mut self, port: Oid, name: &str) {
        if let Some(counter) = self.packets.counters.get_mut(&port).and_then(|of| of.counter(name)) {
            *counter = 0;
        }
    }
}
