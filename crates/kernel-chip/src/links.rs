//! Netdevs: what the kernel says of them, what requests set of them, and what of that other programs change.
//!
//! A request sets whether a port's netdev is switched on, and a router interface its MTU. What nothing
//! was requested of stays as other programs have it.

use crate::netdevs::{LinkChange, LinkState};
use crate::{KernelChip, status};
use ribtide_netlink::Socket;
use ribtide_swss::sai::{Attr, ObjectType, Oid, Status};
use ribtide_wire::netlink::numbers::IFF_UP;
use ribtide_wire::netlink::{Content, dump_links, write_link_change};
use std::io;

/// All netdevs of the network namespace.
pub(crate) fn dump(socket: &mut Socket) -> io::Result<Vec<LinkState>> {
    socket.dump(dump_links, |all: &mut Vec<LinkState>, content| {
        if let Content::NewLink(link) = content {
            all.push(LinkState::of(&link));
        }
    })
}

impl KernelChip {
    /// Takes in all netdevs, and corrects what differs from the requests. Returns how many differed.
    pub(crate) fn read_links(&mut self) -> io::Result<usize> {
        let links = dump(&mut self.socket)?;
        let mut taken = Ok(());
        for link in &links {
            // One that fails keeps no other from being taken in.
            taken = taken.and(self.link(link));
        }
        for index in self.netdevs.missing(|index| links.iter().any(|link| link.index == index)) {
            taken = taken.and(self.link_gone(index));
        }
        taken?;
        Ok(links.iter().filter(|link| self.correct(link)).count())
    }

    /// Takes in a netdev.
    pub(crate) fn link(&mut self, link: &LinkState) -> io::Result<()> {
        let is_new = self.netdevs.index(&link.name) != Some(link.index);
        if is_new && self.netdevs.name(link.index).is_some_and(|former| former != link.name) {
            // It has another name now.
            self.link_gone(link.index)?;
        }
        let change = self.netdevs.set(link);
        if !self.expects(&link.name) {
            return Ok(());
        }
        self.model.set_carrier(&link.name, link.is_operative());
        if change == LinkChange::None && !is_new {
            return Ok(());
        }
        let lost = change == LinkChange::Lost;
        self.link_changed(link.index, &link.name, lost)?;
        if !lost && self.settled {
            // Switched off, it lost them.
            let index = link.index;
            self.compare_neighbors(|of| of == index)?;
        }
        Ok(())
    }

    pub(crate) fn link_gone(&mut self, index: u32) -> io::Result<()> {
        let Some(name) = self.netdevs.remove(index) else { return Ok(()) };
        if !self.expects(&name) {
            return Ok(());
        }
        if self.netdevs.index(&name).is_none() {
            self.model.set_carrier(&name, false);
        }
        self.link_changed(index, &name, true)
    }

    fn expects(&self, name: &str) -> bool {
        self.model.setup().iter().any(|port| *port.name == *name)
    }

    /// What a netdev has other than requested: whether it shall be switched on, and its MTU.
    fn difference(&self, link: &LinkState) -> (Option<bool>, Option<u32>) {
        if !self.expects(&link.name) {
            return (None, None);
        }
        let is_port = |oid: &Oid| self.model.port_name(*oid).is_some_and(|name| **name == *link.name);
        let up = self.enabled.iter().find(|(port, _)| is_port(port)).map(|(_, up)| *up);
        let mtu = self.interface_mtu(&link.name);
        (
            up.filter(|up| *up != (link.flags & IFF_UP != 0)),
            mtu.filter(|mtu| link.mtu != 0 && *mtu != link.mtu),
        )
    }

    /// Whether a netdev has something other than requested.
    pub(crate) fn differs(&self, link: &LinkState) -> bool {
        self.difference(link) != (None, None)
    }

    /// Sets what a netdev has other than requested. Returns whether it had such, and has not now.
    fn correct(&mut self, link: &LinkState) -> bool {
        let (up, mtu) = self.difference(link);
        // One that the kernel refuses keeps the other from nothing.
        let mtu = mtu.map(|mtu| self.set_link(link.index, None, Some(mtu)).is_ok());
        let up = up.map(|up| self.set_link(link.index, Some(up), None).is_ok());
        mtu == Some(true) || up == Some(true)
    }

    /// Switches the netdev of a port on or off, and keeps it so.
    pub(crate) fn enable(&mut self, port: Oid, up: bool) -> Result<(), Status> {
        let index = self.model.port_name(port).and_then(|name| self.netdevs.index(name));
        if let Some(index) = index {
            self.set_link(index, Some(up), None)?;
        }
        self.enabled.insert(port, up);
        Ok(())
    }

    /// Switches a netdev on or off, or sets its MTU.
    pub(crate) fn set_link(&mut self, index: u32, up: Option<bool>, mtu: Option<u32>) -> Result<(), Status> {
        let mut refusal = None;
        let sent = self.socket.request(
            &[()],
            |(), out, seq| write_link_change(out, seq, index, up, mtu),
            |_, refused| refusal = Some(refused),
        );
        if let Err(e) = sent {
            return Err(self.lost(&e));
        }
        let Some(refusal) = refusal else { return Ok(()) };
        let name = self.netdevs.name(index).unwrap_or_default();
        self.events.push(format!("the kernel refuses a change of netdev {index} ({name}): {}", refusal.text));
        Err(status::of_refusal(&refusal))
    }

    /// The MTU that the router interface on a port was requested with.
    fn interface_mtu(&self, name: &str) -> Option<u32> {
        let mtu = |oid: Oid| {
            self.model.attribute(oid, |a| if let Attr::RifMtu(mtu) = a { Some(*mtu) } else { None })
        };
        let on_port = |oid: &Oid| {
            self.model.kind(*oid) == Some(ObjectType::RouterInterface) && self.port_of(*oid) == Some(name)
        };
        self.next_hops.oids().filter(on_port).find_map(mtu)
    }
}
