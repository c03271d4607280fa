//! Router interfaces (`orchagent/intfsorch.cpp`), the addresses on them, and their links.
//!
//! A router interface lies on a port, a LAG or a VLAN. A sub-interface (`Ethernet0.10`, or `Eth0.10`)
//! lies on a tag of its parent, whose link it shares.

use super::ports::{Lower, Ports};
use super::vrfs::Vrfs;
use crate::orch::arena::Arena;
use crate::orch::bulker::{ObjectReply, Outcome, Requester};
use crate::orch::outbox::{Notification, Outbox};
use crate::orch::routes::{Constraint, DEFAULT_VRF};
use crate::orch::to_sync::{Pending, ToSync};
use crate::row::{Change, IntfKey, IntfRow, Mac, Name, Row};
use crate::sai::{Attr, Item, ObjectType, Oid, RifType, Verb};
use ribtide_prefix::{AnyPrefix, Map};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// An interface that a row or a route names.
struct Interface {
    /// What it lies on, once the chip has that.
    lower: Option<Lower>,
    /// The interface of whose link a sub-interface is a tag.
    parent: Option<Name>,
    /// Whether the link is up.
    up: bool,
    /// Whether INTF_TABLE has it.
    wanted: bool,
    /// Why its row cannot be programmed.
    why_not: Option<&'static str>,
    /// Its row of INTF_TABLE.
    row: IntfRow,
    /// The VRF of the row.
    vrf: u32,
    /// The router interface, and the VRF that it is in.
    rif: Option<(Oid, u32)>,
    /// The latest values sent of the attributes that may change, without those that the chip
    /// refused.
    sent: Vec<Attr>,
    /// A create or remove request is in flight.
    busy: bool,
    /// Neighbours and routes in the chip that use the router interface.
    refs: u32,
    /// The addresses of INTF_TABLE.
    addresses: BTreeSet<(IpAddr, u8)>,
    /// The addresses whose routes to the CPU were requested, each with its VRF.
    applied: Vec<(IpAddr, u8, u32)>,
}

impl Interface {
    fn usable(&self) -> Option<Oid> {
        self.rif.filter(|(_, vrf)| self.wanted && !self.busy && *vrf == self.vrf).map(|(oid, _)| oid)
    }

    /// The MAC address of the row: none without one, or with zeros.
    fn mac(&self) -> Option<Mac> {
        self.row.mac_addr.filter(|mac| *mac != Mac::default())
    }

    /// Why a row cannot be programmed, as a sentence; `None` when it can.
    fn why_not(&self, name: &str) -> Option<&'static str> {
        if self.row.vnet_name.as_ref().is_some_and(|vnet| !vnet.is_empty()) {
            return Some("its row names a VNET (vnet_name), and VNETs are not programmed");
        }
        match (name.contains('.'), &self.parent, self.row.vlan) {
            (true, Some(_), None) => Some("its row has no vlan, the tag of the sub-interface"),
            (true, None, _) if name.starts_with("Vlan") => {
                Some("sub-interfaces of VLANs are not programmed; route on the VLAN itself")
            }
            // Other names with a dot are ports, where PORT_TABLE has them.
            _ => None,
        }
    }

    /// The name of the port, LAG or VLAN that it lies on.
    fn lies_on<'a>(&'a self, name: &'a Name) -> &'a Name {
        self.parent.as_ref().unwrap_or(name)
    }
}

/// What a router interface depends on.
pub(super) struct Under<'a> {
    pub(super) ports: &'a mut Ports,
    pub(super) vrfs: &'a mut Vrfs,
}

/// The parent of a sub-interface, in full: `Eth` stands for `Ethernet`, and `Po` for `PortChannel`
/// (`subIntf`, `lib/subintf.cpp` of sonic-swss).
pub(super) fn parent_of(name: &str) -> Option<Name> {
    let (parent, _) = name.split_once('.')?;
    let full = |long: &str, short: &str| {
        let rest = parent.strip_prefix(long).or_else(|| parent.strip_prefix(short))?;
        Some(format!("{long}{rest}").into())
    };
    full("Ethernet", "Eth").or_else(|| full("PortChannel", "Po"))
}

/// All interfaces. A number is never used again, because names are few.
pub(super) struct Interfaces {
    to_sync: ToSync<IntfRow>,
    arena: Arena<Name, Interface>,
    /// The sub-interfaces of each parent.
    children: Map<Name, Vec<u32>>,
    /// The router's MAC address.
    mac: Mac,
}

impl Interfaces {
    pub(super) fn new(mac: Mac) -> Interfaces {
        Interfaces { to_sync: ToSync::default(), arena: Arena::default(), children: Map::default(), mac }
    }

    /// Takes in a change of INTF_TABLE.
    pub(super) fn add(&mut self, change: Change<IntfRow>) {
        self.to_sync.add(change);
    }

    /// Changes that were not handled yet.
    pub(super) fn pending_len(&self) -> usize {
        self.to_sync.len()
    }

    /// The interfaces of pending rows that name a VRF: what each lies on, its tag there (0: none), and
    /// the VRF.
    pub(super) fn pending_in_vrfs(&self) -> impl Iterator<Item = (Name, u16, &Name)> {
        self.to_sync.iter().filter_map(|(key, pending)| match key {
            IntfKey::Interface(ifname) => {
                let row = pending.set.as_ref()?;
                let lower = parent_of(ifname).unwrap_or_else(|| ifname.clone());
                Some((lower, row.vlan.unwrap_or(0), row.vrf_name.as_ref()?))
            }
            IntfKey::Address(..) => None,
        })
    }

    /// The interface's number; a new interface gets one.
    pub(super) fn id_of(&mut self, name: &Name) -> u32 {
        if let Some(id) = self.arena.find(name) {
            return id;
        }
        let parent = parent_of(name);
        let (mut lower, mut up) = (None, true);
        // The parent of a sub-interface has a number too, so that its state is known.
        if let Some(parent) = &parent {
            let parent = self.id_of(parent);
            (lower, up) = (self.arena.get(parent).lower, self.arena.get(parent).up);
        }
        let id = self.arena.id_of(name, || Interface {
            lower,
            parent: parent.clone(),
            up,
            wanted: false,
            why_not: None,
            row: IntfRow::default(),
            vrf: DEFAULT_VRF,
            rif: None,
            sent: Vec::new(),
            busy: false,
            refs: 0,
            addresses: BTreeSet::new(),
            applied: Vec::new(),
        });
        if let Some(parent) = parent {
            self.children.entry(parent).or_default().push(id);
        }
        id
    }

    /// The number of an interface that is known.
    pub(super) fn find(&self, name: &Name) -> Option<u32> {
        self.arena.find(name)
    }

    pub(super) fn name(&self, id: u32) -> &Name {
        self.arena.key(id)
    }

    /// The router interface, if new neighbours and routes may use it.
    pub(super) fn usable(&self, id: u32) -> Option<Oid> {
        self.arena.get(id).usable()
    }

    /// The router interface in the chip.
    pub(super) fn oid(&self, id: u32) -> Option<Oid> {
        self.arena.get(id).rif.map(|(oid, _)| oid)
    }

    /// The name of the port, LAG or VLAN that an interface lies on.
    pub(super) fn lies_on(&self, id: u32) -> &Name {
        self.arena.get(id).lies_on(self.name(id))
    }

    /// Why the interface's row cannot be programmed, as a sentence; `None` when it can, or there is
    /// none.
    pub(super) fn why_not(&self, id: u32) -> Option<&'static str> {
        self.arena.get(id).why_not
    }

    /// The interfaces whose rows cannot be programmed, each with the reason.
    pub(super) fn not_programmed(&self) -> impl Iterator<Item = (&Name, &'static str)> {
        self.arena.iter().filter_map(|(_, name, interface)| Some((name, interface.why_not?)))
    }

    /// Whether the link is up. An interface without a reported state is up.
    pub(super) fn is_up(&self, id: u32) -> bool {
        self.arena.get(id).up
    }

    /// Whether it has a router interface, or will have one when its VRF, and the LAG or VLAN that it
    /// lies on, are in the chip.
    pub(super) fn is_coming(&self, id: u32) -> bool {
        self.arena.get(id).wanted
    }

    /// Whether its router interface is in another VRF than its row says. Its neighbours are
    /// removed, and created again on the next router interface.
    pub(super) fn moves(&self, id: u32) -> bool {
        let interface = self.arena.get(id);
        interface.wanted && interface.rif.is_some_and(|(_, vrf)| vrf != interface.vrf)
    }

    /// Whether a subnet of the interface contains the address.
    pub(super) fn covers(&self, id: u32, ip: IpAddr) -> bool {
        let addresses = self.arena.get(id).addresses.iter();
        addresses.filter_map(|(ip, len)| AnyPrefix::from_addr(*ip, *len)).any(|subnet| subnet.contains(ip))
    }

    /// The interfaces without a router interface whose row names the VRF.
    pub(super) fn waiting_for_vrf(&self, vrf: u32) -> Vec<u32> {
        self.arena.iter().filter(|(_, _, i)| i.vrf == vrf && i.rif.is_none()).map(|(id, ..)| id).collect()
    }

    /// An interface with its sub-interfaces.
    fn with_children(&mut self, name: &Name) -> Vec<u32> {
        let id = self.id_of(name);
        self.children.get(name).into_iter().flatten().copied().chain([id]).collect()
    }

    /// Sets what an interface and its sub-interfaces lie on, or that it is gone.
    pub(super) fn set_lower(
        &mut self,
        name: &Name,
        lower: Option<Lower>,
        under: &mut Under<'_>,
        outbox: &mut Outbox,
    ) {
        let own = self.id_of(name);
        // A port may be named as a sub-interface is.
        if let Some(parent) = self.arena.get_mut(own).parent.take()
            && let Some(children) = self.children.get_mut(&parent)
        {
            children.retain(|id| *id != own);
        }
        let interface = self.arena.get_mut(own);
        if interface.why_not.is_some() {
            interface.why_not = interface.why_not(name);
            interface.wanted = interface.why_not.is_none();
        }
        for id in self.with_children(name) {
            self.arena.get_mut(id).lower = lower;
            self.step(id, under, outbox);
        }
    }

    /// Steps an interface and its sub-interfaces, after a change of what they inherit.
    pub(super) fn step_all(&mut self, name: &Name, under: &mut Under<'_>, outbox: &mut Outbox) {
        for id in self.with_children(name) {
            self.step(id, under, outbox);
        }
    }

    /// Sets the state of the link of an interface, and of its sub-interfaces.
    pub(super) fn set_link(&mut self, name: &Name, up: bool, outbox: &mut Outbox) {
        for id in self.with_children(name) {
            if std::mem::replace(&mut self.arena.get_mut(id).up, up) != up {
                outbox.notify(Notification::LinkChanged(id));
            }
        }
    }

    /// Handles the changes of INTF_TABLE.
    pub(super) fn sync(&mut self, under: &mut Under<'_>, outbox: &mut Outbox) {
        for (key, pending) in self.to_sync.take() {
            let id = self.id_of(key.ifname());
            outbox.back_off.forget(&Requester::Interface(id));
            let was_usable = self.usable(id).is_some();
            match key {
                IntfKey::Interface(_) => {
                    let before = self.moves(id);
                    self.set_row(id, pending, under.vrfs, outbox);
                    if self.moves(id) != before {
                        outbox.notify(Notification::InterfaceMoves(id));
                    }
                }
                IntfKey::Address(_, ip, len) => {
                    let addresses = &mut self.arena.get_mut(id).addresses;
                    if pending.set.is_some() {
                        addresses.insert((ip, len));
                    } else {
                        addresses.remove(&(ip, len));
                    }
                }
            }
            // A row may come back while the chip still has its router interface.
            if !was_usable {
                self.notify_if_usable(id, outbox);
            }
            self.step(id, under, outbox);
        }
    }

    fn set_row(&mut self, id: u32, pending: Pending<IntfRow>, vrfs: &mut Vrfs, outbox: &mut Outbox) {
        let name = self.name(id).clone();
        let interface = self.arena.get_mut(id);
        if pending.del {
            interface.row = IntfRow::default();
        }
        interface.wanted = pending.set.is_some();
        let before = interface.why_not.take();
        let Some(row) = pending.set else { return };
        if interface.rif.is_some() && row.vlan.is_some() && row.vlan != interface.row.vlan {
            let what = format_args!("the changed VLAN of {name}");
            outbox.out.refused(what, "delete its row of INTF_TABLE first, and write it again");
        }
        interface.row.merge(row);
        interface.why_not = interface.why_not(&name);
        if let Some(why) = interface.why_not {
            interface.wanted = false;
            if before != Some(why) {
                outbox.out.refused(format_args!("interface {name}"), why);
            }
            return;
        }
        let vrf = interface.row.vrf_name.clone().filter(|name| !name.is_empty());
        interface.vrf = vrfs.id_of(&vrf);
    }

    /// The values that the rows ask for of the attributes that may change.
    fn changeable(&self, id: u32, ports: &Ports) -> Vec<Attr> {
        let interface = self.arena.get(id);
        let on = interface.lies_on(self.name(id));
        let mac = interface.mac().or_else(|| ports.mac(on)).unwrap_or(self.mac);
        let mut attrs = vec![Attr::RifSrcMac(mac)];
        if interface.parent.is_some() {
            // SONiC takes a sub-interface without `admin_status` for one that is down.
            let up = interface.row.admin_up.unwrap_or(false);
            attrs.extend([Attr::RifV4(up), Attr::RifV6(up)]);
        }
        attrs.extend(interface.row.mtu.or_else(|| ports.mtu(on)).map(Attr::RifMtu));
        attrs.push(Attr::RifMpls(interface.row.mpls.unwrap_or(false)));
        attrs
    }

    /// Requests the next change that brings the router interface closer to INTF_TABLE.
    pub(super) fn step(&mut self, id: u32, under: &mut Under<'_>, outbox: &mut Outbox) {
        self.step_addresses(id, outbox);
        let name = self.name(id).clone();
        let loopback = is_loopback(&name);
        let wanted_attrs = self.changeable(id, under.ports);
        let Under { ports, vrfs } = under;
        let interface = self.arena.get_mut(id);
        let (object, requester) = (ObjectType::RouterInterface, Requester::Interface(id));
        if interface.busy || loopback || outbox.back_off.holds(&requester) {
            return;
        }
        match interface.rif {
            None if interface.wanted => {
                let on = interface.lies_on(&name).clone();
                let (Some(lower), Some(vr)) = (ports.lower(&on), vrfs.usable(interface.vrf)) else {
                    return;
                };
                interface.busy = true;
                interface.rif = Some((Oid::NULL, interface.vrf));
                let vlan = interface.row.vlan.filter(|_| interface.parent.is_some());
                let attrs = create_attrs(vr, lower, vlan, &wanted_attrs);
                interface.sent = wanted_attrs;
                vrfs.hold(interface.vrf);
                ports.hold(&on);
                let oid = outbox.object_id(object, &attrs);
                outbox.bulker.enqueue(Verb::Create, object, requester, Item::new(oid, attrs));
            }
            // It is not wanted, or not in this VRF: it goes when nothing uses it.
            Some((oid, vrf))
                if (!interface.wanted || vrf != interface.vrf)
                    && interface.refs == 0
                    && interface.applied.is_empty() =>
            {
                interface.busy = true;
                outbox.bulker.enqueue(Verb::Remove, object, requester, Item::bare(oid));
            }
            Some((oid, _)) => {
                for attr in wanted_attrs {
                    if !interface.sent.contains(&attr) {
                        interface.sent.retain(|sent| !sent.same_kind(&attr));
                        interface.sent.push(attr.clone());
                        let item = Item::new(oid, [attr]);
                        outbox.bulker.enqueue(Verb::Set, object, requester.clone(), item);
                    }
                }
            }
            None => {}
        }
    }

    /// Takes in the reply to a request for a router interface.
    pub(super) fn reply(&mut self, id: u32, reply: ObjectReply, under: &mut Under<'_>, outbox: &mut Outbox) {
        let (verb, outcome, requester) = (reply.verb, reply.outcome(), Requester::Interface(id));
        let name = self.name(id).clone();
        let interface = self.arena.get_mut(id);
        if verb == Verb::Set {
            if outcome != Outcome::Done
                && let Some(attr) = reply.item.attrs.first()
            {
                // A later value may be on its way.
                interface.sent.retain(|sent| sent != attr);
                let what = format_args!("{} of the router interface of {name}", attr.name());
                outbox.refused(requester, &reply, what);
            }
            return;
        }
        interface.busy = false;
        let Some((_, vrf)) = interface.rif else { return };
        let on = interface.lies_on(&name).clone();
        match (verb, outcome) {
            (Verb::Create, Outcome::Done) => {
                interface.rif = reply.oid().map(|oid| (oid, vrf));
                outbox.back_off.forget(&requester);
            }
            (Verb::Create, _) => {
                interface.rif = None;
                outbox.refused(requester, &reply, format_args!("the router interface of {name}"));
                under.vrfs.release(vrf, outbox);
                under.ports.release(&on, outbox);
            }
            (_, Outcome::Done) => {
                interface.rif = None;
                outbox.back_off.forget(&requester);
                under.vrfs.release(vrf, outbox);
                under.ports.release(&on, outbox);
            }
            _ => {
                let what = format_args!("the removal of the router interface of {name}");
                outbox.refused(requester, &reply, what);
            }
        }
        self.notify_if_usable(id, outbox);
        self.step(id, under, outbox);
    }

    fn notify_if_usable(&self, id: u32, outbox: &mut Outbox) {
        if self.usable(id).is_some() {
            outbox.notify(Notification::InterfaceUsable(id));
            outbox.notify(Notification::Wake(Constraint::Interface(id)));
        }
    }

    /// Announces the router's own addresses that came and went. Their routes resolve to the CPU.
    fn step_addresses(&mut self, id: u32, outbox: &mut Outbox) {
        let loopback = is_loopback(self.name(id));
        let interface = self.arena.get_mut(id);
        let there = loopback || interface.usable().is_some();
        let (vrf, wanted) = (interface.vrf, interface.wanted || loopback);
        let keep = |(ip, len, in_vrf): &(IpAddr, u8, u32)| {
            wanted && *in_vrf == vrf && interface.addresses.contains(&(*ip, *len))
        };
        let (kept, gone): (Vec<_>, Vec<_>) = interface.applied.drain(..).partition(keep);
        let new: Vec<_> = match there && wanted {
            true => interface
                .addresses
                .iter()
                .filter(|(ip, len)| !kept.contains(&(*ip, *len, vrf)))
                .map(|(ip, len)| (*ip, *len, vrf))
                .collect(),
            false => Vec::new(),
        };
        interface.applied = kept;
        interface.applied.extend(&new);
        let removed =
            gone.into_iter().map(|(ip, _, vrf)| Notification::OwnPrefix(vrf, AnyPrefix::host(ip), false));
        removed.for_each(|address| outbox.notify(address));
        let added =
            new.into_iter().map(|(ip, _, vrf)| Notification::OwnPrefix(vrf, AnyPrefix::host(ip), true));
        added.for_each(|address| outbox.notify(address));
    }

    /// Counts a user of the router interface.
    pub(super) fn hold(&mut self, id: u32) {
        self.arena.get_mut(id).refs += 1;
    }

    /// Counts a user less.
    pub(super) fn release(&mut self, id: u32, outbox: &mut Outbox) {
        let interface = self.arena.get_mut(id);
        interface.refs -= 1;
        if interface.refs == 0 {
            outbox.notify(Notification::InterfaceReleased(id));
        }
    }
}

/// The attributes of a new router interface, in the order of SONiC's orchagent (`addRouterIntfs`,
/// `orchagent/intfsorch.cpp`). `changeable`: those that may change later.
fn create_attrs(vr: Oid, lower: Lower, vlan: Option<u16>, changeable: &[Attr]) -> Vec<Attr> {
    let mut attrs = vec![Attr::RifVirtualRouter(vr)];
    let (mac, rest) = changeable.split_at(1);
    attrs.extend_from_slice(mac);
    match (lower, vlan) {
        (Lower::Vlan(oid), _) => attrs.extend([Attr::RifKind(RifType::Vlan), Attr::RifVlan(oid)]),
        (Lower::Port(oid), None) => attrs.extend([Attr::RifKind(RifType::Port), Attr::RifPort(oid)]),
        (Lower::Port(oid), Some(vlan)) => {
            attrs.extend([Attr::RifKind(RifType::SubPort), Attr::RifPort(oid), Attr::RifOuterVlan(vlan)]);
        }
    }
    // The MPLS state is sent only when it differs from SAI's default.
    attrs.extend(rest.iter().filter(|attr| **attr != Attr::RifMpls(false)).cloned());
    attrs
}

/// Whether the interface has addresses but no port.
fn is_loopback(name: &str) -> bool {
    name.starts_with("Loopback")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sai::VidCounter;

    #[test]
    fn interfaces_loopback_address_is_announced_without_a_port() {
        let (mut vrfs, mut outbox) = (Vrfs::new(true), Outbox::new(Box::new(VidCounter::default()), 1000));
        let mut interfaces = Interfaces::new(Mac::default());
        let ip: IpAddr = "10.1.0.1".parse().unwrap();
        let key = || IntfKey::Address("Loopback0".into(), ip, 32);
        for (change, added) in [(Change::set(key(), IntfRow::default()), true), (Change::del(key()), false)] {
            interfaces.add(change);
            interfaces.sync(&mut Under { ports: &mut Ports::default(), vrfs: &mut vrfs }, &mut outbox);
            assert_eq!(
                outbox.next_notification(),
                Some(Notification::OwnPrefix(DEFAULT_VRF, AnyPrefix::host(ip), added))
            );
        }
        assert!(outbox.bulker.idle() && outbox.next_notification().is_none());
    }

    #[test]
    fn interfaces_link_change_is_notified_once() {
        let mut outbox = Outbox::new(Box::new(VidCounter::default()), 1000);
        let mut interfaces = Interfaces::new(Mac::default());
        let id = interfaces.id_of(&"Ethernet0".into());
        assert!(interfaces.is_up(id));
        interfaces.set_link(&"Ethernet0".into(), false, &mut outbox);
        interfaces.set_link(&"Ethernet0".into(), false, &mut outbox);
        assert_eq!(outbox.next_notification(), Some(Notification::LinkChanged(id)));
        assert!(outbox.next_notification().is_none() && !interfaces.is_up(id));
    }
}
