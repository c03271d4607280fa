//! Router interfaces, the addresses on them, and their links.

use super::arena::Arena;
use super::requests::{Outcome, Requester, outcome};
use super::retry_cache::Constraint;
use super::to_sync::Pending;
use super::vrfs;
use super::{Orch, OrchOut};
use crate::row::{IntfKey, IntfRow, Mac, Name, Row};
use crate::sai::{Attr, Item, ObjectType, Oid, RifType, Status, Verb};
use ribtide_prefix::AnyPrefix;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// An interface that a row or a route names.
pub(super) struct Interface {
    /// The port below it, once PORT_TABLE and the chip agree on one.
    pub(super) port: Option<Oid>,
    /// Whether the link is up.
    pub(super) up: bool,
    /// Whether INTF_TABLE has it.
    wanted: bool,
    /// What INTF_TABLE says of it.
    row: IntfRow,
    /// The VRF that it shall be in.
    vrf: u32,
    /// The router interface, and the VRF that it is in.
    rif: Option<(Oid, u32)>,
    /// What the router interface was told last of what may change: its MAC address, and whether it takes MPLS labels.
    sent: [Attr; 2],
    busy: bool,
    /// Neighbours and routes in the chip that use the router interface.
    refs: u32,
    /// Addresses wanted, and those whose route to the CPU was asked for, with the VRF it is in.
    addresses: BTreeSet<(IpAddr, u8)>,
    applied: Vec<(IpAddr, u8, u32)>,
    /// Neighbours named on it, whether in the chip or not.
    pub(super) neighbors: BTreeSet<u32>,
}

impl Interface {
    /// The router interface that new uses may be made of.
    pub(super) fn usable(&self) -> Option<Oid> {
        self.rif.filter(|(_, vrf)| self.wanted && !self.busy && *vrf == self.vrf).map(|(oid, _)| oid)
    }

    /// Whether it has a router interface, or will have one when its VRF is there.
    pub(super) fn comes(&self) -> bool {
        self.wanted && self.port.is_some()
    }

    /// Whether its router interface is on the way to another VRF: neighbours leave it, and come back to the next one.
    pub(super) fn moves(&self) -> bool {
        self.wanted && self.rif.is_some_and(|(_, vrf)| vrf != self.vrf)
    }

    /// What its router interface shall be told of what may change.
    fn changeable(&self, mac: Mac) -> [Attr; 2] {
        [Attr::RifSrcMac(self.row.mac_addr.unwrap_or(mac)), Attr::RifMpls(self.row.mpls.unwrap_or(false))]
    }

    pub(super) fn oid(&self) -> Option<Oid> {
        self.rif.map(|(oid, _)| oid)
    }

    /// The subnets of its addresses.
    pub(super) fn subnets(&self) -> impl Iterator<Item = AnyPrefix> {
        self.addresses.iter().filter_map(|(ip, len)| AnyPrefix::from_addr(*ip, *len))
    }
}

/// All interfaces. Numbers are never given away again: names are few.
#[derive(Default)]
pub(super) struct Interfaces(Arena<Name, Interface>);

impl Interfaces {
    pub(super) fn id_of(&mut self, name: &Name) -> u32 {
        self.0.id_of(name, || Interface {
            port: None,
            up: true,
            wanted: false,
            row: IntfRow::default(),
            vrf: vrfs::DEFAULT,
            rif: None,
            sent: [Attr::RifSrcMac(Mac::default()), Attr::RifMpls(false)],
            busy: false,
            refs: 0,
            addresses: BTreeSet::new(),
            applied: Vec::new(),
            neighbors: BTreeSet::new(),
        })
    }

    pub(super) fn get(&self, id: u32) -> &Interface {
        self.0.get(id)
    }

    pub(super) fn get_mut(&mut self, id: u32) -> &mut Interface {
        self.0.get_mut(id)
    }

    pub(super) fn name(&self, id: u32) -> &Name {
        self.0.key(id)
    }

    pub(super) fn waiting_for_vrf(&self, vrf: u32) -> Vec<u32> {
        self.0.iter().filter(|(_, _, i)| i.vrf == vrf && i.rif.is_none()).map(|(id, ..)| id).collect()
    }
}

/// Whether the interface has addresses but no port.
fn is_loopback(name: &str) -> bool {
    name.starts_with("Loopback")
}

impl Orch {
    pub(super) fn sync_interfaces(&mut self, out: &mut OrchOut) {
        for (key, pending) in self.inputs.interfaces.take() {
            let id = self.interfaces.id_of(key.ifname());
            match key {
                IntfKey::Interface(_) => {
                    let before = self.interfaces.get(id).moves();
                    self.sync_interface(id, pending);
                    if self.interfaces.get(id).moves() != before {
                        self.step_neighbors(id, out);
                    }
                }
                IntfKey::Address(_, ip, len) => {
                    let interface = self.interfaces.get_mut(id);
                    if pending.set.is_some() {
                        interface.addresses.insert((ip, len));
                    } else {
                        interface.addresses.remove(&(ip, len));
                    }
                }
            }
            self.step_interface(id, out);
        }
    }

    fn sync_interface(&mut self, id: u32, pending: Pending<IntfRow>) {
        let interface = self.interfaces.get_mut(id);
        if pending.del {
            interface.row = IntfRow::default();
        }
        interface.wanted = pending.set.is_some();
        let Some(row) = pending.set else { return };
        interface.row.merge(row);
        let vrf = interface.row.vrf_name.clone().filter(|name| !name.is_empty());
        interface.vrf = self.vrfs.id_of(&vrf);
    }

    pub(super) fn step_interface(&mut self, id: u32, out: &mut OrchOut) {
        self.step_addresses(id);
        let name = self.interfaces.name(id).clone();
        let interface = self.interfaces.get_mut(id);
        if interface.busy || is_loopback(&name) {
            return;
        }
        match interface.rif {
            None if interface.wanted => {
                let (Some(port), Some(vr)) = (interface.port, self.vrfs.usable(interface.vrf)) else {
                    return;
                };
                interface.busy = true;
                let vrf = interface.vrf;
                interface.rif = Some((Oid::NULL, vrf));
                let [mac, mpls] = interface.changeable(self.config.mac);
                interface.sent = [mac.clone(), mpls.clone()];
                let mut attrs =
                    vec![Attr::RifVirtualRouter(vr), mac, Attr::RifKind(RifType::Port), Attr::RifPort(port)];
                attrs.extend(interface.row.mtu.map(Attr::RifMtu));
                // As SONiC's, it is not told what it does anyway.
                attrs.extend(Some(mpls).filter(|mpls| *mpls == Attr::RifMpls(true)));
                self.hold_vrf(vrf);
                let oid = self.number(ObjectType::RouterInterface, &attrs, out);
                let requester = Requester::Interface(id);
                self.requests.enqueue(
                    Verb::Create,
                    ObjectType::RouterInterface,
                    requester,
                    Item::new(oid, attrs),
                );
            }
            // One that is not wanted, or is in another VRF than wanted, goes when nothing uses it.
            Some((oid, vrf))
                if (!interface.wanted || vrf != interface.vrf)
                    && interface.refs == 0
                    && interface.applied.is_empty() =>
            {
                interface.busy = true;
                let requester = Requester::Interface(id);
                self.requests.enqueue(Verb::Remove, ObjectType::RouterInterface, requester, Item::bare(oid));
            }
            Some((oid, _)) => {
                let wanted = interface.changeable(self.config.mac);
                for (sent, attr) in interface.sent.iter_mut().zip(wanted) {
                    if *sent != attr {
                        sent.clone_from(&attr);
                        let item = Item::new(oid, [attr]);
                        self.requests.enqueue(
                            Verb::Set,
                            ObjectType::RouterInterface,
                            Requester::Interface(id),
                            item,
                        );
                    }
                }
            }
            None => {}
        }
    }

    pub(super) fn interface_reply(
        &mut self,
        id: u32,
        verb: Verb,
        item: Item,
        status: Status,
        out: &mut OrchOut,
    ) {
        let result = outcome(verb, status);
        if verb == Verb::Set {
            if result != Outcome::Done {
                let name = self.interfaces.name(id);
                let attr = item.attrs.first().map(Attr::name).unwrap_or_default();
                out.failed(format_args!("{attr} of the router interface of {name}"), status);
            }
            return;
        }
        let interface = self.interfaces.get_mut(id);
        interface.busy = false;
        let Some((_, vrf)) = interface.rif else { return };
        match (verb, result) {
            (Verb::Create, Outcome::Done) => {
                interface.rif = item.id.oid().map(|oid| (oid, vrf));
                self.interface_usable(id, out);
            }
            (Verb::Create, _) => {
                interface.rif = None;
                let given_up = !matches!(result, Outcome::TableFull | Outcome::Again);
                if given_up {
                    interface.wanted = false;
                    let name = self.interfaces.name(id).clone();
                    out.failed(format_args!("the router interface of {name}"), status);
                } else {
                    self.retry_when_freed(Requester::Interface(id));
                }
                return self.release_vrf(vrf, out);
            }
            (_, Outcome::Done) => {
                interface.rif = None;
                self.release_vrf(vrf, out);
            }
            (_, Outcome::TableFull | Outcome::Again) => {
                return self.retry_when_freed(Requester::Interface(id));
            }
            _ => {
                let name = self.interfaces.name(id).clone();
                return out.failed(format_args!("the removal of the router interface of {name}"), status);
            }
        }
        self.step_interface(id, out);
    }

    fn interface_usable(&mut self, id: u32, out: &mut OrchOut) {
        let neighbors: Vec<u32> = self.interfaces.get(id).neighbors.iter().copied().collect();
        for neighbor in neighbors {
            self.step_neighbor(neighbor, out);
        }
        self.wake(Constraint::Interface(id));
    }

    /// The interface begins to move to another VRF, or stays after all.
    fn step_neighbors(&mut self, id: u32, out: &mut OrchOut) {
        let neighbors: Vec<u32> = self.interfaces.get(id).neighbors.iter().copied().collect();
        for neighbor in neighbors {
            self.hop_changed(neighbor, out);
            self.step_neighbor(neighbor, out);
        }
    }

    /// Brings the routes to the router's own addresses in line with what is wanted.
    fn step_addresses(&mut self, id: u32) {
        let loopback = is_loopback(self.interfaces.name(id));
        let interface = self.interfaces.get_mut(id);
        let there = loopback || (interface.usable().is_some());
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
        for (ip, _, vrf) in gone {
            self.remove_own(vrf, AnyPrefix::host(ip));
        }
        for (ip, _, vrf) in new {
            self.add_own(vrf, AnyPrefix::host(ip));
        }
    }

    pub(super) fn set_link(&mut self, id: u32, up: bool, out: &mut OrchOut) {
        let interface = self.interfaces.get_mut(id);
        if interface.up == up {
            return;
        }
        interface.up = up;
        let neighbors: Vec<u32> = interface.neighbors.iter().copied().collect();
        for neighbor in neighbors {
            self.hop_changed(neighbor, out);
        }
    }

    pub(super) fn hold_interface(&mut self, id: u32) {
        self.interfaces.get_mut(id).refs += 1;
    }

    pub(super) fn release_interface(&mut self, id: u32, out: &mut OrchOut) {
        let interface = self.interfaces.get_mut(id);
        interface.refs -= 1;
        if interface.refs == 0 {
            self.step_interface(id, out);
        }
    }
}
