//! Frames inside of a VLAN: learned addresses, floods, and the tag of each member.

use super::frame::Ethernet;
use super::topology::Topology;
use super::{Arrived, Drop, Interface, Send};
use crate::switch::VirtualSwitch;
use ribtide_swss::row::Mac;
use ribtide_swss::sai::Oid;

impl VirtualSwitch {
    /// Handles a frame that came to a member of a VLAN.
    pub(super) fn bridge_frame(
        &mut self,
        topology: &Topology,
        id: u16,
        arrived: Arrived<'_>,
        send: Send<'_>,
    ) -> Result<(), Drop> {
        let Arrived { ethernet, lower, .. } = arrived;
        let vlan = topology.vlans.get(&id).ok_or(Drop::NoInterface)?;
        let bridge_port = topology.bridge_ports.get(&(id, lower)).copied().unwrap_or_default();
        self.learn((id, vlan.oid), ethernet.src, (lower, bridge_port));
        if let Some(rif) = vlan.rif
            && ethernet.dst == rif.mac
        {
            return self.route_frame(topology, rif, arrived, send);
        }
        let inner = Ethernet { vlan: None, ..ethernet };
        if ethernet.is_group() && vlan.rif.is_some() {
            // A VLAN without a host interface keeps it to itself.
            let _ = self.vlan_to_cpu(topology, id, arrived, send);
        }
        self.send_to_vlan(topology, id, Some(lower), inner, arrived.payload(), send)
    }

    /// Sends a frame of a VLAN to the CPU: without a tag by the VLAN's host interface, or as it came by
    /// that of its port.
    pub(super) fn vlan_to_cpu(
        &mut self,
        topology: &Topology,
        id: u16,
        arrived: Arrived<'_>,
        send: Send<'_>,
    ) -> Result<(), Drop> {
        let vlan = topology.vlans.get(&id).ok_or(Drop::NoInterface)?;
        let Some(host) = topology.hosts.get(&vlan.oid) else {
            return self.send_to_cpu(topology, arrived, send);
        };
        let mut out = std::mem::take(&mut self.packets.out);
        out.clear();
        Ethernet { vlan: None, ..arrived.ethernet }.write(&mut out);
        out.extend(arrived.payload());
        send(Interface::Host(*host), &out);
        self.packets.out = out;
        Ok(())
    }

    /// Sends a frame into a VLAN: to the member behind which its address is, or to all but the one that
    /// it came from.
    pub(super) fn send_to_vlan(
        &mut self,
        topology: &Topology,
        id: u16,
        from: Option<Oid>,
        ethernet: Ethernet,
        payload: &[u8],
        send: Send<'_>,
    ) -> Result<(), Drop> {
        let vlan = topology.vlans.get(&id).ok_or(Drop::NoInterface)?;
        let behind = match ethernet.is_group() {
            true => None,
            false => self.behind(id, vlan.oid, ethernet.dst),
        };
        let behind = behind.filter(|lower| vlan.members.iter().any(|(member, _)| member == lower));
        if behind.is_some() && behind == from {
            return Err(Drop::SamePort);
        }
        let mut out = std::mem::take(&mut self.packets.out);
        let mut sent = Ok(());
        for (lower, tagged) in &vlan.members {
            if behind.is_some_and(|behind| behind != *lower) || Some(*lower) == from {
                continue;
            }
            out.clear();
            Ethernet { vlan: tagged.then_some(id), ..ethernet }.write(&mut out);
            out.extend(payload);
            let to_member = self.send_to_lower(topology, *lower, &out, send);
            // A member without a link takes nothing away from the others of a flood.
            if behind.is_some() {
                sent = to_member;
            }
        }
        self.packets.out = out;
        sent
    }

    /// The port or LAG behind which an address is: by an entry of the FDB, or learned.
    fn behind(&self, id: u16, vlan: Oid, address: Mac) -> Option<Oid> {
        let learned = || self.packets.learned.get(&(id, address)).map(|learned| learned.lower);
        self.fdb_port(vlan, address).or_else(learned)
    }
}
