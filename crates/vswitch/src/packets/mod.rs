//! Packets through the switch: a frame that came to a port or from the CPU, and the frames that leave
//! for it, by what the chip's objects say.
//!
//! Nothing here does I/O: [`VirtualSwitch::packet`] is bytes in, bytes out. The owner of the
//! devices reads and writes them.

mod bridge;
mod counters;
mod fdb;
mod frame;
mod route;
mod topology;

use counters::PortPackets;
pub use counters::{Drop, PacketCounters};
use frame::Ethernet;
pub use frame::checksum;
use topology::{Lower, Rif, Topology};

use crate::switch::VirtualSwitch;
use ribtide_prefix::Map;
use ribtide_swss::Name;
use ribtide_swss::row::Mac;
use ribtide_swss::sai::{Attr, FdbQueue, ObjectType, Oid, OperStatus, RawText};

/// Where a frame comes from or goes to, by the number of its object.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Interface {
    /// A port of the front panel.
    Port(Oid),
    /// A host interface, which is a netdev of the CPU.
    Host(Oid),
}

/// A host interface (`SAI_OBJECT_TYPE_HOSTIF` of the type netdev).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostInterface {
    /// Its number.
    pub oid: Oid,
    /// The name of its netdev.
    pub name: Name,
    /// The MAC address of the switch, which its netdev has.
    pub mac: Mac,
    /// Whether it has a carrier: that of its port, of any port of its LAG. A VLAN always has one.
    pub up: bool,
}

/// A frame, for [`VirtualSwitch::packet`].
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its bytes, without the frame check sequence.
    pub bytes: &'a [u8],
    /// The length of the longest frame on the wire. It is less than that of the bytes where they are
    /// several segments, which are made when they leave.
    pub longest: usize,
}

impl<'a> From<&'a [u8]> for Frame<'a> {
    fn from(bytes: &'a [u8]) -> Frame<'a> {
        Frame { bytes, longest: bytes.len() }
    }
}

/// What the switch keeps for packets.
#[derive(Default)]
pub(crate) struct Packets {
    /// The interfaces; `None` after a change.
    topology: Option<Box<Topology>>,
    /// Where a MAC address was seen last, by VLAN.
    learned: Map<(u16, Mac), fdb::Learned>,
    /// Since when dynamic entries of the FDB that a client made are there.
    dynamic_seen: Map<RawText, u64>,
    /// Changes of the FDB that no client has taken yet.
    pub(crate) fdb: FdbQueue,
    now_ms: u64,
    next_aging_ms: u64,
    counters: Map<Oid, PortPackets>,
    drops: Map<Drop, u64>,
    /// The frame that leaves.
    out: Vec<u8>,
    /// What is above Ethernet in it.
    above: Vec<u8>,
    /// Changes with the host interfaces and what decides their state.
    host_changes: u64,
}

impl Packets {
    /// Takes in that an object of this type was created, changed or removed.
    pub(crate) fn changed(&mut self, kind: ObjectType) {
        if let ObjectType::NextHop | ObjectType::NextHopGroup | ObjectType::NextHopGroupMember = kind {
            return;
        }
        self.topology = None;
        if let ObjectType::Vlan | ObjectType::VlanMember | ObjectType::BridgePort = kind {
            // What is behind a port of a VLAN may be elsewhere now; frames to it flood until it is heard.
            self.learned.clear();
        }
        if let ObjectType::Port
        | ObjectType::Lag
        | ObjectType::LagMember
        | ObjectType::Vlan
        | ObjectType::Hostif
        | ObjectType::Switch = kind
        {
            self.host_changes += 1;
        }
    }

    /// Takes in that a link came or went.
    pub(crate) fn link_changed(&mut self) {
        self.host_changes += 1;
    }

    /// Those of the next switch of the same chip.
    pub(crate) fn after(&self) -> Packets {
        Packets { host_changes: self.host_changes + 1, now_ms: self.now_ms, ..Packets::default() }
    }
}

/// What is done with each frame that leaves.
type Send<'a> = &'a mut dyn FnMut(Interface, &[u8]);

/// A frame on its way.
#[derive(Clone, Copy)]
struct Arrived<'a> {
    frame: Frame<'a>,
    ethernet: Ethernet,
    /// The port.
    port: Oid,
    /// The same, or its LAG.
    lower: Oid,
}

impl Arrived<'_> {
    /// The part behind the Ethernet header.
    fn payload(&self) -> &[u8] {
        self.frame.bytes.get(self.ethernet.payload..).unwrap_or_default()
    }
}

impl VirtualSwitch {
    /// Forwards a frame: calls `send` for each frame that leaves because of it, and counts it. It
    /// leaves several times where a VLAN floods it, and not at all where it is dropped.
    pub fn packet(&mut self, from: Interface, frame: Frame<'_>, send: &mut dyn FnMut(Interface, &[u8])) {
        let topology = self.packets.topology.take().unwrap_or_else(|| Box::new(Topology::of(self)));
        let outcome = match from {
            Interface::Port(port) => self.take_from_port(&topology, port, frame, send),
            Interface::Host(host) => self.take_from_host(&topology, host, frame, send),
        };
        if let Err(reason) = outcome {
            *self.packets.drops.entry(reason).or_default() += 1;
            if let Interface::Port(port) = from {
                self.packets.counters.entry(port).or_default().discard_in(1);
            }
        }
        self.packets.topology = Some(topology);
    }

    /// The host interfaces, by number.
    pub fn host_interfaces(&self) -> Vec<HostInterface> {
        let topology = Topology::of(self);
        let own = self.started.as_ref().map(|own| own.switch);
        let mac = own.and_then(|own| {
            self.objects.find(own, |a| if let Attr::SwitchSrcMac(mac) = a { Some(*mac) } else { None })
        });
        let text =
            |oid, name: &str| self.objects.find(oid, |attr| (attr.name() == name).then(|| attr.value()));
        let interface = |oid: Oid| {
            let name = text(oid, "SAI_HOSTIF_ATTR_NAME")?;
            let object = topology.host_of.get(&oid).copied()?;
            if text(oid, "SAI_HOSTIF_ATTR_TYPE")? != "SAI_HOSTIF_TYPE_NETDEV" {
                return None;
            }
            let up = match (self.objects.get(object).map(|object| object.kind), topology.lags.get(&object)) {
                (_, Some(ports)) => ports.iter().any(|port| self.is_up(*port)),
                (Some(ObjectType::Port), _) => self.is_up(object),
                (kind, _) => kind == Some(ObjectType::Vlan),
            };
            Some(HostInterface { oid, name: name.into(), mac: mac.unwrap_or_default(), up })
        };
        let mut interfaces: Vec<HostInterface> =
            self.objects.of_kind(ObjectType::Hostif).filter_map(interface).collect();
        interfaces.sort_unstable_by_key(|interface| interface.oid);
        interfaces
    }

    /// Changes whenever [`VirtualSwitch::host_interfaces`] may have changed.
    pub fn host_interface_changes(&self) -> u64 {
        self.packets.host_changes
    }

    /// The ports by number, without the CPU's, each with its name.
    pub fn front_panel(&self) -> Vec<(Oid, Name)> {
        let name = |oid: Oid| (oid, self.port_names.get(&oid).cloned().unwrap_or_default());
        let mut ports: Vec<(Oid, Name)> = self.front_ports().map(name).collect();
        ports.sort_unstable();
        ports
    }

    fn is_up(&self, port: Oid) -> bool {
        self.oper_status(port) == OperStatus::Up
    }

    fn take_from_port(
        &mut self,
        topology: &Topology,
        port: Oid,
        frame: Frame<'_>,
        send: Send<'_>,
    ) -> Result<(), Drop> {
        if !self.is_up(port) {
            return Err(Drop::NoLink);
        }
        let ethernet = Ethernet::read(frame.bytes).ok_or(Drop::Malformed)?;
        self.packets.counters.entry(port).or_default().add_in(frame.bytes.len(), ethernet.is_group());
        let lag = topology.lag_of.get(&port).copied();
        let arrived = Arrived { frame, ethernet, port, lower: lag.map_or(port, |(lag, _)| lag) };
        // A LAG hears of LACP by its members, also where they are not selected.
        if ethernet.is_link_local() {
            return self.send_to_cpu(topology, arrived, send);
        }
        if let Some((_, false)) = lag {
            return Err(Drop::NotSelected);
        }
        if let Some(rif) = topology.rif_on(arrived.lower, ethernet.vlan) {
            return match (ethernet.dst == rif.mac, ethernet.is_group()) {
                (true, _) => self.route_frame(topology, rif, arrived, send),
                (false, true) => self.send_to_cpu(topology, arrived, send),
                (false, false) => Err(Drop::NotForSwitch),
            };
        }
        match topology.vlan_on(arrived.lower, ethernet.vlan) {
            Some(vlan) => self.bridge_frame(topology, vlan, arrived, send),
            None => Err(Drop::NoInterface),
        }
    }

    /// A frame of the CPU: a host interface of a port or LAG is its wire, one of a VLAN is a station.
    fn take_from_host(
        &mut self,
        topology: &Topology,
        host: Oid,
        frame: Frame<'_>,
        send: Send<'_>,
    ) -> Result<(), Drop> {
        let ethernet = Ethernet::read(frame.bytes).ok_or(Drop::Malformed)?;
        let object = *topology.host_of.get(&host).ok_or(Drop::NoInterface)?;
        let vlan = topology.vlans.iter().find(|(_, vlan)| vlan.oid == object && !object.is_null());
        match vlan {
            Some((id, _)) => {
                let payload = frame.bytes.get(ethernet.payload..).unwrap_or_default();
                self.send_to_vlan(topology, *id, None, Ethernet { vlan: None, ..ethernet }, payload, send)
            }
            None => self.send_to_lower(topology, object, frame.bytes, send),
        }
    }

    /// Sends a frame to the CPU, as it came: by the host interface of its LAG, or of its port.
    fn send_to_cpu(&mut self, topology: &Topology, arrived: Arrived<'_>, send: Send<'_>) -> Result<(), Drop> {
        let of = |object: Oid| topology.hosts.get(&object).copied();
        // A LAG's own protocol is about its ports.
        let (first, second) = match arrived.ethernet.is_link_local() {
            true => (arrived.port, arrived.lower),
            false => (arrived.lower, arrived.port),
        };
        let host = of(first).or_else(|| of(second)).ok_or(Drop::NoHostInterface)?;
        send(Interface::Host(host), arrived.frame.bytes);
        Ok(())
    }

    /// Sends a frame through a port or LAG.
    fn send_to_lower(
        &mut self,
        topology: &Topology,
        lower: Oid,
        frame: &[u8],
        send: Send<'_>,
    ) -> Result<(), Drop> {
        let port = match topology.lags.get(&lower) {
            None => Some(lower).filter(|port| self.is_up(*port)),
            Some(ports) => {
                let up = || ports.iter().copied().filter(|port| self.is_up(*port));
                let hash = route::flow_of(frame).map_or(0, |flow| flow.hash(topology.seeds[1]));
                match up().count() as u64 {
                    0 => None,
                    count => up().nth((hash % count) as usize),
                }
            }
        };
        let port = port.ok_or(Drop::NoLink)?;
        let is_group = frame.first().is_some_and(|first| first & 1 == 1);
        self.packets.counters.entry(port).or_default().add_out(frame.len(), is_group);
        send(Interface::Port(port), frame);
        Ok(())
    }
}
