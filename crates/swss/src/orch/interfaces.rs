//! Router interfaces (`orchagent/intfsorch.cpp`), the addresses on them, and their links.

use super::vrfs::Vrfs;
use crate::orch::arena::Arena;
use crate::orch::bulker::{ObjectReply, Outcome, Requester};
use crate::orch::outbox::{Notification, Outbox};
use crate::orch::routes::{Constraint, DEFAULT_VRF};
use crate::orch::to_sync::{Pending, ToSync};
use crate::row::{Change, IntfKey, IntfRow, Mac, Name, Row};
use crate::sai::{Attr, Item, ObjectType, Oid, RifType, Verb};
use ribtide_prefix::AnyPrefix;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// An interface that a row or a route names.
struct Interface {
    /// The port below it, once PORT_TABLE and the chip agree on one.
    port: Option<Oid>,
    /// Whether the link is up.
    up: bool,
    /// Whether INTF_TABLE has it.
    wanted: bool,
    /// Its row of INTF_TABLE.
    row: IntfRow,
    /// The VRF of the row.
    vrf: u32,
    /// The router interface, and the VRF that it is in.
    rif: Option<(Oid, u32)>,
    /// The latest values sent of the attributes that may change: the MAC address, and whether MPLS
    /// is on. `None` when the chip refused the latest.
    sent: [Option<Attr>; 2],
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

    /// The values that the row asks for of the attributes that may change.
    fn changeable(&self, mac: Mac) -> [Attr; 2] {
        [Attr::RifSrcMac(self.row.mac_addr.unwrap_or(mac)), Attr::RifMpls(self.row.mpls.unwrap_or(false))]
    }
}

/// All interfaces. A number is never used again, because names are few.
pub(super) struct Interfaces {
    to_sync: ToSync<IntfRow>,
    arena: Arena<Name, Interface>,
    /// The router's MAC address.
    mac: Mac,
}

impl Interfaces {
    pub(super) fn new(mac: Mac) -> Interfaces {
        Interfaces { to_sync: ToSync::default(), arena: Arena::default(), mac }
    }

    /// Takes in a change of INTF_TABLE.
    pub(super) fn add(&mut self, change: Change<IntfRow>) {
        self.to_sync.add(change);
    }

    /// Changes that were not handled yet.
    pub(super) fn pending_len(&self) -> usize {
        self.to_sync.len()
    }

    /// The interfaces of pending rows that name a VRF, each with the VRF.
    pub(super) fn pending_in_vrfs(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.to_sync.iter().filter_map(|(key, pending)| match key {
            IntfKey::Interface(ifname) => Some((ifname, pending.set.as_ref()?.vrf_name.as_ref()?)),
            IntfKey::Address(..) => None,
        })
    }

    /// The interface's number; a new interface gets one.
    pub(super) fn id_of(&mut self, name: &Name) -> u32 {
        self.arena.id_of(name, || Interface {
            port: None,
            up: true,
            wanted: false,
            row: IntfRow::default(),
            vrf: DEFAULT_VRF,
            rif: None,
            sent: [None, None],
            busy: false,
            refs: 0,
            addresses: BTreeSet::new(),
            applied: Vec::new(),
        })
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

    /// Whether the link is up. An interface without a reported state is up.
    pub(super) fn is_up(&self, id: u32) -> bool {
        self.arena.get(id).up
    }

    /// Whether it has a router interface, or will have one when its VRF is in the chip.
    pub(super) fn is_coming(&self, id: u32) -> bool {
        let interface = self.arena.get(id);
        interface.wanted && interface.port.is_some()
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

    /// Sets the port below an interface.
    pub(super) fn set_port(&mut self, id: u32, port: Oid) {
        self.arena.get_mut(id).port = Some(port);
    }

    /// Sets the state of an interface's link.
    pub(super) fn set_link(&mut self, name: &Name, up: bool, outbox: &mut Outbox) {
        let id = self.id_of(name);
        if std::mem::replace(&mut self.arena.get_mut(id).up, up) != up {
            outbox.notify(Notification::LinkChanged(id));
        }
    }

    /// Handles the changes of INTF_TABLE.
    pub(super) fn sync(&mut self, vrfs: &mut Vrfs, outbox: &mut Outbox) {
        for (key, pending) in self.to_sync.take() {
            let id = self.id_of(key.ifname());
            outbox.back_off.forget(&Requester::Interface(id));
            let was_usable = self.usable(id).is_some();
            match key {
                IntfKey::Interface(_) => {
                    let before = self.moves(id);
                    self.set_row(id, pending, vrfs);
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
            self.step(id, vrfs, outbox);
        }
    }

    fn set_row(&mut self, id: u32, pending: Pending<IntfRow>, vrfs: &mut Vrfs) {
        let interface = self.arena.get_mut(id);
        if pending.del {
            interface.row = IntfRow::default();
        }
        interface.wanted = pending.set.is_some();
        let Some(row) = pending.set else { return };
        interface.row.merge(row);
        let vrf = interface.row.vrf_name.clone().filter(|name| !name.is_empty());
        interface.vrf = vrfs.id_of(&vrf);
    }

    /// Requests the next change that brings the router interface closer to INTF_TABLE.
    pub(super) fn step(&mut self, id: u32, vrfs: &mut Vrfs, outbox: &mut Outbox) {
        self.step_addresses(id, outbox);
        let loopback = is_loopback(self.name(id));
        let mac = self.mac;
        let interface = self.arena.get_mut(id);
        let (object, requester) = (ObjectType::RouterInterface, Requester::Interface(id));
        if interface.busy || loopback || outbox.back_off.holds(&requester) {
            return;
        }
        match interface.rif {
            None if interface.wanted => {
                let (Some(port), Some(vr)) = (interface.port, vrfs.usable(interface.vrf)) else {
                    return;
                };
                interface.busy = true;
                interface.rif = Some((Oid::NULL, interface.vrf));
                let [mac, mpls] = interface.changeable(mac);
                interface.sent = [Some(mac.clone()), Some(mpls.clone())];
                let mut attrs =
                    vec![Attr::RifVirtualRouter(vr), mac, Attr::RifKind(RifType::Port), Attr::RifPort(port)];
                attrs.extend(interface.row.mtu.map(Attr::RifMtu));
                // SONiC sends the MPLS state only when it differs from SAI's default.
                attrs.extend(Some(mpls).filter(|mpls| *mpls == Attr::RifMpls(true)));
                vrfs.hold(interface.vrf);
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
                let wanted = interface.changeable(mac);
                for (sent, attr) in interface.sent.iter_mut().zip(wanted) {
                    if sent.as_ref() != Some(&attr) {
                        *sent = Some(attr.clone());
                        let item = Item::new(oid, [attr]);
                        outbox.bulker.enqueue(Verb::Set, object, requester.clone(), item);
                    }
                }
            }
            None => {}
        }
    }

    /// Takes in the reply to a request for a router interface.
    pub(super) fn reply(&mut self, id: u32, reply: ObjectReply, vrfs: &mut Vrfs, outbox: &mut Outbox) {
        let (verb, outcome, requester) = (reply.verb, reply.outcome(), Requester::Interface(id));
        let name = self.name(id).clone();
        let interface = self.arena.get_mut(id);
        if verb == Verb::Set {
            if outcome != Outcome::Done
                && let Some(attr) = reply.item.attrs.first()
            {
                // A later value may be on its way.
                interface.sent.iter_mut().for_each(|sent| drop(sent.take_if(|sent| sent == attr)));
                let what = format_args!("{} of the router interface of {name}", attr.name());
                outbox.refused(requester, &reply, what);
            }
            return;
        }
        interface.busy = false;
        let Some((_, vrf)) = interface.rif else { return };
        match (verb, outcome) {
            (Verb::Create, Outcome::Done) => {
                interface.rif = reply.oid().map(|oid| (oid, vrf));
                outbox.back_off.forget(&requester);
            }
            (Verb::Create, _) => {
                interface.rif = None;
                outbox.refused(requester, &reply, format_args!("the router interface of {name}"));
                vrfs.release(vrf, outbox);
            }
            (_, Outcome::Done) => {
                interface.rif = None;
                outbox.back_off.forget(&requester);
                vrfs.release(vrf, outbox);
            }
            _ => {
                let what = format_args!("the removal of the router interface of {name}");
                outbox.refused(requester, &reply, what);
            }
        }
        self.notify_if_usable(id, outbox);
        self.step(id, vrfs, outbox);
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
        let removed = gone.into_iter().map(|(ip, _, vrf)| Notification::OwnAddress(vrf, ip, false));
        removed.for_each(|address| outbox.notify(address));
        let added = new.into_iter().map(|(ip, _, vrf)| Notification::OwnAddress(vrf, ip, true));
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
        let (mut vrfs, mut outbox) = (Vrfs::default(), Outbox::new(Box::new(VidCounter::default()), 1000));
        let mut interfaces = Interfaces::new(Mac::default());
        let ip: IpAddr = "10.1.0.1".parse().unwrap();
        let key = || IntfKey::Address("Loopback0".into(), ip, 32);
        for (change, added) in [(Change::set(key(), IntfRow::default()), true), (Change::del(key()), false)] {
            interfaces.add(change);
            interfaces.sync(&mut vrfs, &mut outbox);
            assert_eq!(outbox.next_notification(), Some(Notification::OwnAddress(DEFAULT_VRF, ip, added)));
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
