//! Neighbours and their next hops (`orchagent/neighorch.cpp`).
//!
//! A neighbour in the chip is two objects: the neighbour entry with the MAC address, and the IP
//! next hop that routes and groups use. MPLS next hops are in [`super::mpls_next_hops`].

use super::interfaces::Interfaces;
use crate::orch::arena::Arena;
use crate::orch::bulker::{ObjectReply, Outcome, Requester};
use crate::orch::outbox::{Notification, Outbox};
use crate::orch::routes::Constraint;
use crate::orch::to_sync::ToSync;
use crate::row::{Change, Hop, LabelStack, Mac, Name, NeighKey, NeighResolveRow, NeighRow};
use crate::sai::{Attr, Item, NeighborEntry, NextHopType, ObjectType, Oid, SWITCH, Verb};
use ribtide_prefix::Map;
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What identifies a next hop.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct NextHopKey {
    pub(super) interface: u32,
    pub(super) ip: IpAddr,
    /// The labels of an MPLS next hop; `None` for the IP next hop of the neighbour.
    pub(super) labels: Option<LabelStack>,
}

/// A neighbour that a row, a route or a group names, or an MPLS next hop.
#[derive(Default)]
pub(super) struct Neighbor {
    /// The MAC address of NEIGH_TABLE; `None` while the neighbour is not resolved.
    wanted: Option<Mac>,
    /// The MAC address in the chip.
    programmed: Option<Mac>,
    /// The MAC address of the request in flight.
    requested: Option<Mac>,
    /// The next hop in the chip.
    pub(super) oid: Option<Oid>,
    /// A request is in flight.
    pub(super) busy: bool,
    /// The request in flight removes the next hop.
    pub(super) leaving: bool,
    /// NEIGH_RESOLVE_TABLE has it.
    resolving: bool,
    /// Routes and group members in the chip, or requested, that use the next hop.
    pub(super) refs: u32,
    /// Groups, rows of NEXTHOP_GROUP_TABLE and waiting routes that name it.
    pub(super) pins: u32,
    /// MPLS: the neighbour that it resolves to.
    pub(super) below: Option<u32>,
    /// The MPLS next hops that resolve to this neighbour.
    pub(super) labelled: BTreeSet<u32>,
}

impl Neighbor {
    /// An MPLS next hop that resolves to the neighbour `below`.
    pub(super) fn above(below: u32) -> Neighbor {
        Neighbor { below: Some(below), ..Neighbor::default() }
    }

    /// Whether a create request is in flight, or will be sent after the one in flight.
    pub(super) fn is_requested(&self) -> bool {
        self.busy && self.oid.is_none()
    }

    /// Whether a route, a group or a row uses it.
    pub(super) fn is_wanted(&self) -> bool {
        self.refs > 0 || self.pins > 0
    }
}

/// All next hops.
#[derive(Default)]
pub(super) struct Neighbors {
    to_sync: ToSync<NeighRow>,
    pub(super) arena: Arena<NextHopKey, Neighbor>,
    by_interface: Map<u32, BTreeSet<u32>>,
}

impl Neighbors {
    /// Takes in a change of NEIGH_TABLE.
    pub(super) fn add(&mut self, change: Change<NeighRow>) {
        self.to_sync.add(change);
    }

    /// Changes that were not handled yet.
    pub(super) fn pending_len(&self) -> usize {
        self.to_sync.len()
    }

    /// The number of an IP next hop; a new one gets a number.
    pub(super) fn id_of(&mut self, interface: u32, ip: IpAddr) -> u32 {
        let id = self.arena.id_of(&NextHopKey { interface, ip, labels: None }, Neighbor::default);
        self.by_interface.entry(interface).or_default().insert(id);
        id
    }

    /// Next hops that are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.arena.len()
    }

    /// Whether the number is in use.
    pub(super) fn contains(&self, id: u32) -> bool {
        self.arena.contains(id)
    }

    /// The interface and address of a next hop.
    pub(super) fn address(&self, id: u32) -> (u32, IpAddr) {
        let NextHopKey { interface, ip, .. } = self.arena.key(id);
        (*interface, *ip)
    }

    /// The neighbours that are known on an interface.
    pub(super) fn on_interface(&self, interface: u32) -> Vec<u32> {
        self.by_interface.get(&interface).into_iter().flatten().copied().collect()
    }

    /// The neighbour that an MPLS next hop resolves to.
    pub(super) fn below(&self, id: u32) -> Option<u32> {
        self.arena.get(id).below
    }

    /// The MPLS next hops that resolve to a neighbour.
    pub(super) fn labelled(&self, id: u32) -> Vec<u32> {
        self.arena.get(id).labelled.iter().copied().collect()
    }

    /// The next hop, if routes may use it: the neighbour is resolved and the link is up.
    pub(super) fn usable(&self, id: u32, interfaces: &Interfaces) -> Option<Oid> {
        let up = interfaces.is_up(self.arena.key(id).interface);
        self.resolved(id, interfaces).filter(|_| up)
    }

    /// The next hop, if the neighbour is resolved.
    pub(super) fn resolved(&self, id: u32, interfaces: &Interfaces) -> Option<Oid> {
        let neighbor = self.arena.get(id);
        let stays = !neighbor.leaving && !interfaces.moves(self.arena.key(id).interface);
        neighbor.oid.filter(|_| stays && self.has_mac(neighbor))
    }

    /// Whether NEIGH_TABLE has the MAC address of the neighbour.
    fn has_mac(&self, hop: &Neighbor) -> bool {
        hop.below.map_or(hop, |below| self.arena.get(below)).wanted.is_some()
    }

    /// Whether NEIGH_TABLE has the neighbour, and its interface is there or coming.
    pub(super) fn is_coming(&self, id: u32, interfaces: &Interfaces) -> bool {
        self.has_mac(self.arena.get(id)) && interfaces.is_coming(self.arena.key(id).interface)
    }

    /// Whether a request for the next hop, which the chip does not have, is in flight.
    pub(super) fn is_requested(&self, id: u32) -> bool {
        self.arena.get(id).is_requested()
    }

    /// The next hop's id in the chip; null when the chip does not have it.
    pub(super) fn oid(&self, id: u32) -> Oid {
        self.arena.get(id).oid.unwrap_or_default()
    }

    /// Handles the changes of NEIGH_TABLE.
    pub(super) fn sync(&mut self, interfaces: &mut Interfaces, outbox: &mut Outbox) {
        for (key, pending) in self.to_sync.take() {
            let id = self.id_of(interfaces.id_of(&key.ifname), key.ip);
            // A neighbour that does not answer has no MAC address in its row, or zeros.
            let mac = pending.set.and_then(|row| row.mac).filter(|mac| *mac != Mac::default());
            outbox.back_off.forget(&Requester::Neighbor(id));
            let neighbor = self.arena.get_mut(id);
            let before = std::mem::replace(&mut neighbor.wanted, mac);
            if mac.is_some() && neighbor.resolving {
                neighbor.resolving = false;
                outbox.out.resolve.push(Change::del(key));
            }
            if before.is_some() != mac.is_some() {
                outbox.notify(Notification::NextHopChanged(id));
            }
            self.step(id, interfaces, outbox);
        }
    }

    /// Asks neighsyncd once to resolve the neighbour. For an MPLS next hop of a resolved neighbour,
    /// requests the next hop.
    pub(super) fn resolve(&mut self, id: u32, interfaces: &Interfaces, outbox: &mut Outbox) {
        if let Some(below) = self.arena.get(id).below {
            self.resolve(below, interfaces, outbox);
            return self.create_labelled(id, below, interfaces, outbox);
        }
        let (interface, ip) = self.address(id);
        let neighbor = self.arena.get_mut(id);
        if neighbor.wanted.is_some() || neighbor.resolving || ip.is_unspecified() {
            return;
        }
        neighbor.resolving = true;
        let key = NeighKey { ifname: interfaces.name(interface).clone(), ip };
        outbox.out.resolve.push(Change::set(key, NeighResolveRow));
    }

    /// Steps a next hop after a change of what it needs, even if the chip refused the latest request
    /// for it.
    pub(super) fn step_changed(&mut self, id: u32, interfaces: &mut Interfaces, outbox: &mut Outbox) {
        outbox.back_off.forget(&Requester::Neighbor(id));
        self.step(id, interfaces, outbox);
    }

    /// Requests the next change that brings the neighbour closer to NEIGH_TABLE.
    pub(super) fn step(&mut self, id: u32, interfaces: &mut Interfaces, outbox: &mut Outbox) {
        if !self.contains(id) {
            return;
        }
        if let Some(below) = self.arena.get(id).below {
            return self.step_labelled(id, below, interfaces, outbox);
        }
        let (interface, ip) = self.address(id);
        let rif_in_chip = interfaces.oid(interface).unwrap_or_default();
        let moves = interfaces.moves(interface);
        let neighbor = self.arena.get_mut(id);
        if neighbor.busy || outbox.back_off.holds(&Requester::Neighbor(id)) {
            return;
        }
        let entry = |rif| NeighborEntry { switch: SWITCH, rif, ip };
        let wanted = neighbor.wanted.filter(|_| !moves);
        let (verb, object, item) = match (wanted, neighbor.programmed, neighbor.oid) {
            (Some(mac), None, _) => {
                let Some(rif) = interfaces.usable(interface) else { return };
                let no_host = matches!(ip, IpAddr::V4(ip) if ip.is_link_local());
                let no_host = no_host.then_some(Attr::NeighborNoHostRoute(true));
                let attrs = std::iter::once(Attr::NeighborMac(mac)).chain(no_host);
                (Verb::Create, ObjectType::NeighborEntry, Item::new(entry(rif), attrs))
            }
            (Some(mac), Some(programmed), _) if mac != programmed => (
                Verb::Set,
                ObjectType::NeighborEntry,
                Item::new(entry(rif_in_chip), [Attr::NeighborMac(mac)]),
            ),
            (Some(_), Some(_), None) => {
                let attrs =
                    [Attr::NextHopKind(NextHopType::Ip), Attr::NextHopIp(ip), Attr::NextHopRif(rif_in_chip)];
                let oid = outbox.object_id(ObjectType::NextHop, &attrs);
                (Verb::Create, ObjectType::NextHop, Item::new(oid, attrs))
            }
            // The next hop goes when no route uses it.
            (None, _, Some(oid)) if neighbor.refs == 0 => {
                (Verb::Remove, ObjectType::NextHop, Item::bare(oid))
            }
            (None, Some(_), None) => {
                (Verb::Remove, ObjectType::NeighborEntry, Item::bare(entry(rif_in_chip)))
            }
            (None, None, None) => return self.forget(id, interfaces, outbox),
            _ => return,
        };
        neighbor.busy = true;
        neighbor.requested = neighbor.wanted;
        neighbor.leaving = (verb, object) == (Verb::Remove, ObjectType::NextHop);
        if (verb, object) == (Verb::Create, ObjectType::NeighborEntry) {
            interfaces.hold(interface);
        }
        outbox.bulker.enqueue(verb, object, Requester::Neighbor(id), item);
    }

    /// Forgets a neighbour that is neither in a table nor in the chip, and that nothing names. Its
    /// number may be used again.
    pub(super) fn forget(&mut self, id: u32, interfaces: &mut Interfaces, outbox: &mut Outbox) {
        if !self.contains(id) {
            return;
        }
        let neighbor = self.arena.get(id);
        if let Some(below) = neighbor.below {
            return self.step_labelled(id, below, interfaces, outbox);
        }
        let used = neighbor.busy
            || neighbor.wanted.is_some()
            || neighbor.programmed.is_some()
            || neighbor.is_wanted()
            || !neighbor.labelled.is_empty();
        if used {
            return;
        }
        let resolving = neighbor.resolving;
        let (interface, ip) = self.address(id);
        if resolving {
            let key = NeighKey { ifname: interfaces.name(interface).clone(), ip };
            outbox.out.resolve.push(Change::del(key));
        }
        if let Some(neighbors) = self.by_interface.get_mut(&interface) {
            neighbors.remove(&id);
        }
        self.arena.remove(id);
        outbox.back_off.forget(&Requester::Neighbor(id));
        outbox.notify(Notification::NumberFreed);
    }

    /// Takes in the reply to a request for a neighbour entry or a next hop.
    pub(super) fn reply(
        &mut self,
        id: u32,
        reply: ObjectReply,
        interfaces: &mut Interfaces,
        outbox: &mut Outbox,
    ) {
        if let Some(below) = self.arena.get(id).below {
            return self.labelled_reply(id, below, reply, interfaces, outbox);
        }
        let (interface, ip) = self.address(id);
        let v6 = ip.is_ipv6();
        let (verb, object) = (reply.verb, reply.object);
        let creates_entry = (verb, object) == (Verb::Create, ObjectType::NeighborEntry);
        let neighbor = self.arena.get_mut(id);
        neighbor.busy = false;
        let stayed = std::mem::take(&mut neighbor.leaving) && !reply.status.is_success();
        let mut usable = false;
        match (verb, object, reply.outcome()) {
            (Verb::Create, ObjectType::NeighborEntry, Outcome::Done) => {
                neighbor.programmed = neighbor.requested;
                outbox.crm.neighbors(v6, 1);
            }
            (Verb::Create, ObjectType::NeighborEntry, Outcome::Exists) => {
                // Its MAC address is not known: no neighbour has this one, so it is set.
                neighbor.programmed = Some(Mac::default());
                outbox.crm.neighbors(v6, 1);
            }
            (Verb::Set, _, Outcome::Done) => neighbor.programmed = neighbor.requested,
            (Verb::Create, _, Outcome::Done) => {
                neighbor.oid = reply.oid();
                outbox.crm.nexthops(v6, 1);
                usable = true;
            }
            (Verb::Remove, ObjectType::NextHop, Outcome::Done) => {
                neighbor.oid = None;
                outbox.crm.nexthops(v6, -1);
            }
            (Verb::Remove, _, Outcome::Done) => {
                neighbor.programmed = None;
                outbox.crm.neighbors(v6, -1);
                interfaces.release(interface, outbox);
                outbox.room_freed();
            }
            (_, _, outcome) => {
                // The chip lost the entry: it is created again.
                let lost = (verb, outcome) == (Verb::Set, Outcome::Missing);
                if lost {
                    neighbor.programmed = None;
                    outbox.crm.neighbors(v6, -1);
                }
                if creates_entry || lost {
                    interfaces.release(interface, outbox);
                }
                let what = format_args!("neighbour {ip} on {}", interfaces.name(interface));
                if outbox.refused(Requester::Neighbor(id), &reply, what) {
                    outbox.notify(Notification::Wake(Constraint::NextHop(id)));
                }
                if stayed {
                    outbox.notify(Notification::NextHopChanged(id));
                }
                return;
            }
        }
        outbox.back_off.forget(&Requester::Neighbor(id));
        self.step(id, interfaces, outbox);
        if usable {
            outbox.notify(Notification::NextHopChanged(id));
        }
    }

    /// Counts a route or group member that uses the next hop.
    pub(super) fn hold(&mut self, id: u32) {
        self.arena.get_mut(id).refs += 1;
    }

    /// Counts a route or group member less.
    pub(super) fn release(&mut self, id: u32, outbox: &mut Outbox) {
        let neighbor = self.arena.get_mut(id);
        neighbor.refs -= 1;
        if neighbor.refs == 0 {
            outbox.notify(Notification::NextHopReleased(id));
        }
    }

    /// Counts a group, a row or a waiting route that names the next hop, so that its number stays.
    pub(super) fn pin(&mut self, id: u32) {
        self.arena.get_mut(id).pins += 1;
    }

    /// Counts a group, a row or a waiting route less.
    pub(super) fn unpin(&mut self, id: u32, outbox: &mut Outbox) {
        let neighbor = self.arena.get_mut(id);
        neighbor.pins -= 1;
        if !neighbor.is_wanted() {
            outbox.notify(Notification::NextHopUnpinned(id));
        }
    }

    /// A next hop as a row names it, with this weight.
    pub(super) fn hop(&self, id: u32, weight: u32, interfaces: &Interfaces) -> Hop {
        let NextHopKey { interface, ip, labels } = self.arena.key(id).clone();
        Hop { gateway: Some(ip), ifname: interfaces.name(interface).clone(), weight, labels }
    }

    /// The address of a next hop and its interface's name.
    pub(super) fn name(&self, id: u32, interfaces: &Interfaces) -> (IpAddr, Name) {
        let (interface, ip) = self.address(id);
        (ip, interfaces.name(interface).clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sai::VidCounter;

    #[test]
    fn neighbors_unresolved_next_hop_is_resolved_once_and_forgotten_unpinned() {
        let mut outbox = Outbox::new(Box::new(VidCounter::default()), 1000);
        let mut interfaces = Interfaces::new(Mac::default());
        let mut neighbors = Neighbors::default();
        let id = neighbors.id_of(interfaces.id_of(&"Ethernet0".into()), "10.0.0.2".parse().unwrap());
        neighbors.pin(id);
        for _ in 0..2 {
            neighbors.resolve(id, &interfaces, &mut outbox);
        }
        let resolve = &outbox.out.resolve;
        assert!(resolve.len() == 1 && resolve[0].row.is_some());
        assert_eq!(neighbors.usable(id, &interfaces), None);

        neighbors.forget(id, &mut interfaces, &mut outbox);
        assert!(neighbors.contains(id), "a pin keeps it");
        neighbors.unpin(id, &mut outbox);
        assert_eq!(outbox.next_notification(), Some(Notification::NextHopUnpinned(id)));
        neighbors.forget(id, &mut interfaces, &mut outbox);
        assert_eq!(outbox.next_notification(), Some(Notification::NumberFreed));
        let resolve = &outbox.out.resolve;
        assert!(!neighbors.contains(id) && resolve.len() == 2 && resolve[1].row.is_none());
    }
}
