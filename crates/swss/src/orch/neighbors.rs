//! Neighbours and the next hops made of them.
//!
//! A neighbour in the chip is two objects: the entry that gives its MAC address, and the next hop that routes and
//! groups lead to. Next hops that put labels on stand on it: [`super::labelled`].

use super::arena::Arena;
use super::requests::{Outcome, Requester, outcome};
use super::retry_cache::Constraint;
use super::{Orch, OrchOut};
use crate::row::{Change, LabelStack, Mac, NeighKey, NeighResolveRow};
use crate::sai::{Attr, Item, NeighborEntry, NextHopType, ObjectType, Oid, SWITCH, Status, Verb};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// What a next hop is known by.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(super) struct HopKey {
    pub(super) interface: u32,
    pub(super) ip: IpAddr,
    /// What it puts on; `None` for the neighbour's own.
    pub(super) labels: Option<LabelStack>,
}

/// A neighbour that a row, a route or a group names, or a next hop with labels that stands on one.
#[derive(Default)]
pub(super) struct Neighbor {
    /// The MAC address that NEIGH_TABLE says; `None` while it is not resolved.
    wanted: Option<Mac>,
    /// The MAC address in the chip.
    have: Option<Mac>,
    /// The MAC address that was asked for.
    asked: Option<Mac>,
    /// The next hop in the chip.
    pub(super) oid: Option<Oid>,
    pub(super) busy: bool,
    /// The next hop is on its way out of the chip.
    pub(super) leaving: bool,
    /// NEIGH_RESOLVE_TABLE has it.
    resolving: bool,
    /// Routes and group members in the chip, or on their way there, that lead to it.
    pub(super) refs: u32,
    /// Groups that want it.
    pub(super) groups: BTreeSet<u32>,
    /// NEXTHOP_GROUP_TABLE rows and waiting routes that name it alone.
    pub(super) named: u32,
    /// With labels: the neighbour that it leads to.
    pub(super) below: Option<u32>,
    /// Next hops with labels that lead to it.
    pub(super) labelled: BTreeSet<u32>,
    /// With labels: the chip refused what was asked last, so it is asked again only when something changes.
    pub(super) refused: bool,
}

impl Neighbor {
    /// A next hop with labels that leads to the neighbour `below`.
    pub(super) fn above(below: u32) -> Neighbor {
        Neighbor { below: Some(below), ..Neighbor::default() }
    }

    /// Whether the chip was asked for it, and has not made it yet.
    pub(super) fn is_requested(&self) -> bool {
        self.busy && self.oid.is_none()
    }

    /// Whether a route, a group or a row wants it.
    pub(super) fn is_wanted(&self) -> bool {
        self.refs > 0 || self.named > 0 || !self.groups.is_empty()
    }
}

/// All next hops.
pub(super) type Neighbors = Arena<HopKey, Neighbor>;

impl Orch {
    /// The neighbour of this address on this interface; made known when it is new.
    pub(super) fn neighbor_id(&mut self, interface: u32, ip: IpAddr) -> u32 {
        let id = self.neighbors.id_of(&HopKey { interface, ip, labels: None }, Neighbor::default);
        self.interfaces.get_mut(interface).neighbors.insert(id);
        id
    }

    /// The next hop, if routes may be led to it: resolved, and its link is up.
    pub(super) fn hop_usable(&self, id: u32) -> Option<Oid> {
        let up = self.interfaces.get(self.neighbors.key(id).interface).up;
        self.hop_resolved(id).filter(|_| up)
    }

    /// The next hop, if it is resolved.
    pub(super) fn hop_resolved(&self, id: u32) -> Option<Oid> {
        let neighbor = self.neighbors.get(id);
        let stays = !neighbor.leaving && !self.interfaces.get(self.neighbors.key(id).interface).moves();
        neighbor.oid.filter(|_| stays && self.is_answering(neighbor))
    }

    /// Whether NEIGH_TABLE has the MAC address of the neighbour that it leads to.
    fn is_answering(&self, hop: &Neighbor) -> bool {
        hop.below.map_or(hop, |below| self.neighbors.get(below)).wanted.is_some()
    }

    /// Whether the neighbour is known, and its interface there or on its way.
    pub(super) fn hop_comes(&self, id: u32) -> bool {
        self.is_answering(self.neighbors.get(id))
            && self.interfaces.get(self.neighbors.key(id).interface).comes()
    }

    /// The next hop's number in the chip.
    pub(super) fn hop_oid(&self, id: u32) -> Oid {
        self.neighbors.get(id).oid.unwrap_or_default()
    }

    pub(super) fn sync_neighbors(&mut self, out: &mut OrchOut) {
        for (key, pending) in self.inputs.neighbors.take() {
            let interface = self.interfaces.id_of(&key.ifname);
            let id = self.neighbor_id(interface, key.ip);
            // A row without a MAC address, or with none but zeros, is of a neighbour that does not answer.
            let mac = pending.set.and_then(|row| row.mac).filter(|mac| *mac != Mac::default());
            let neighbor = self.neighbors.get_mut(id);
            let before = neighbor.wanted;
            neighbor.wanted = mac;
            if mac.is_some() && neighbor.resolving {
                neighbor.resolving = false;
                out.resolve.push(Change::del(key));
            }
            if before.is_some() != mac.is_some() {
                self.hop_changed(id, out);
            }
            self.step_neighbor(id, out);
        }
    }

    /// [`Orch::step_neighbor`] of one that the chip may have refused, when things have changed.
    pub(super) fn step_refused(&mut self, id: u32, out: &mut OrchOut) {
        if self.neighbors.contains(id) {
            self.neighbors.get_mut(id).refused = false;
            self.step_neighbor(id, out);
        }
    }

    /// Asks neighsyncd to resolve a neighbour, once; a next hop with labels is asked for when its neighbour is there.
    pub(super) fn resolve(&mut self, id: u32, out: &mut OrchOut) {
        if let Some(below) = self.neighbors.get(id).below {
            self.resolve(below, out);
            return self.make_labelled(id, below, out);
        }
        let HopKey { interface, ip, .. } = *self.neighbors.key(id);
        let neighbor = self.neighbors.get_mut(id);
        if neighbor.wanted.is_some() || neighbor.resolving || ip.is_unspecified() {
            return;
        }
        neighbor.resolving = true;
        let key = NeighKey { ifname: self.interfaces.name(interface).clone(), ip };
        out.resolve.push(Change::set(key, NeighResolveRow));
    }

    pub(super) fn step_neighbor(&mut self, id: u32, out: &mut OrchOut) {
        if !self.neighbors.contains(id) {
            return;
        }
        if let Some(below) = self.neighbors.get(id).below {
            return self.step_labelled(id, below, out);
        }
        let HopKey { interface, ip, .. } = *self.neighbors.key(id);
        let rif = self.interfaces.get(interface).usable();
        let rif_in_chip = self.interfaces.get(interface).oid().unwrap_or_default();
        let moves = self.interfaces.get(interface).moves();
        let neighbor = self.neighbors.get_mut(id);
        if neighbor.busy {
            return;
        }
        let entry = |rif| NeighborEntry { switch: SWITCH, rif, ip };
        let wanted = neighbor.wanted.filter(|_| !moves);
        let (verb, object, item) = match (wanted, neighbor.have, neighbor.oid) {
            (Some(mac), None, _) => {
                let Some(rif) = rif else { return };
                let no_host = matches!(ip, IpAddr::V4(ip) if ip.is_link_local());
                let no_host = no_host.then_some(Attr::NeighborNoHostRoute(true));
                let attrs = std::iter::once(Attr::NeighborMac(mac)).chain(no_host);
                (Verb::Create, ObjectType::NeighborEntry, Item::new(entry(rif), attrs))
            }
            (Some(mac), Some(have), _) if mac != have => (
                Verb::Set,
                ObjectType::NeighborEntry,
                Item::new(entry(rif_in_chip), [Attr::NeighborMac(mac)]),
            ),
            (Some(_), Some(_), None) => {
                let attrs =
                    [Attr::NextHopKind(NextHopType::Ip), Attr::NextHopIp(ip), Attr::NextHopRif(rif_in_chip)];
                let oid = self.number(ObjectType::NextHop, &attrs, out);
                (Verb::Create, ObjectType::NextHop, Item::new(oid, attrs))
            }
            // It goes when no route uses it any more.
            (None, _, Some(oid)) if neighbor.refs == 0 => {
                (Verb::Remove, ObjectType::NextHop, Item::bare(oid))
            }
            (None, Some(_), None) => {
                (Verb::Remove, ObjectType::NeighborEntry, Item::bare(entry(rif_in_chip)))
            }
            (None, None, None) => return self.forget_neighbor(id, out),
            _ => return,
        };
        let neighbor = self.neighbors.get_mut(id);
        neighbor.busy = true;
        neighbor.asked = neighbor.wanted;
        neighbor.leaving = (verb, object) == (Verb::Remove, ObjectType::NextHop);
        if (verb, object) == (Verb::Create, ObjectType::NeighborEntry) {
            self.hold_interface(interface);
        }
        self.requests.enqueue(verb, object, Requester::Neighbor(id), item);
    }

    /// Forgets a neighbour that is nowhere and that no route names.
    pub(super) fn forget_neighbor(&mut self, id: u32, out: &mut OrchOut) {
        if !self.neighbors.contains(id) {
            return;
        }
        let neighbor = self.neighbors.get(id);
        if let Some(below) = neighbor.below {
            return self.step_labelled(id, below, out);
        }
        let used = neighbor.busy
            || neighbor.wanted.is_some()
            || neighbor.have.is_some()
            || neighbor.is_wanted()
            || !neighbor.labelled.is_empty();
        if used {
            return;
        }
        let resolving = neighbor.resolving;
        let HopKey { interface, ip, .. } = *self.neighbors.key(id);
        if resolving {
            let key = NeighKey { ifname: self.interfaces.name(interface).clone(), ip };
            out.resolve.push(Change::del(key));
        }
        self.interfaces.get_mut(interface).neighbors.remove(&id);
        self.neighbors.remove(id);
        self.routes.clear_resolved_rows();
    }

    pub(super) fn neighbor_reply(
        &mut self,
        id: u32,
        verb: Verb,
        object: ObjectType,
        item: Item,
        status: Status,
        out: &mut OrchOut,
    ) {
        if let Some(below) = self.neighbors.get(id).below {
            return self.labelled_reply(id, below, verb, item, status, out);
        }
        let HopKey { interface, ip, .. } = *self.neighbors.key(id);
        let neighbor = self.neighbors.get_mut(id);
        neighbor.busy = false;
        let stayed = std::mem::take(&mut neighbor.leaving) && !status.is_success();
        let result = outcome(verb, status);
        let mut released = false;
        let mut usable = false;
        match (verb, object, result) {
            (Verb::Create, ObjectType::NeighborEntry, Outcome::Done | Outcome::Exists)
            | (Verb::Set, _, Outcome::Done) => {
                neighbor.have = neighbor.asked;
                let v6 = ip.is_ipv6();
                if verb == Verb::Create {
                    self.crm.neighbors(v6, 1);
                }
            }
            (Verb::Create, _, Outcome::Done) => {
                neighbor.oid = item.id.oid();
                self.crm.nexthops(ip.is_ipv6(), 1);
                usable = true;
            }
            (Verb::Remove, ObjectType::NextHop, Outcome::Done) => {
                neighbor.oid = None;
                self.crm.nexthops(ip.is_ipv6(), -1);
            }
            (Verb::Remove, _, Outcome::Done) => {
                neighbor.have = None;
                self.crm.neighbors(ip.is_ipv6(), -1);
                released = true;
            }
            (_, _, Outcome::TableFull | Outcome::Again) => {
                if (verb, object) == (Verb::Create, ObjectType::NeighborEntry) {
                    self.release_interface(interface, out);
                }
                self.retry_when_freed(Requester::Neighbor(id));
                if stayed {
                    self.hop_changed(id, out);
                }
                return;
            }
            _ => {
                let name = self.interfaces.name(interface).clone();
                out.failed(format_args!("neighbour {ip} on {name}"), status);
                if (verb, object) == (Verb::Create, ObjectType::NeighborEntry) {
                    self.neighbors.get_mut(id).wanted = None;
                    self.release_interface(interface, out);
                }
                return;
            }
        }
        if released {
            self.release_interface(interface, out);
            self.room_freed(out);
        }
        self.step_neighbor(id, out);
        if usable {
            self.hop_changed(id, out);
        }
    }

    /// A next hop became usable or ceased to be: those that want it look again.
    pub(super) fn hop_changed(&mut self, id: u32, out: &mut OrchOut) {
        if !self.neighbors.contains(id) {
            return;
        }
        let usable = self.hop_usable(id).is_some();
        let groups: Vec<u32> = self.neighbors.get(id).groups.iter().copied().collect();
        let labelled: Vec<u32> = self.neighbors.get(id).labelled.iter().copied().collect();
        for group in groups {
            self.step_group(group, out);
            if !self.groups.contains(group) {
                continue;
            }
            // Routes that wait for the group may lead to a single hop meanwhile: to the first that there is, and
            // to another when theirs is gone.
            if !self.groups.ready(group) && (!usable || self.groups.set_stranding(group, false)) {
                self.wake(Constraint::Group(group));
            }
        }
        if usable {
            self.wake(Constraint::Hop(id));
        }
        for hop in labelled {
            self.step_refused(hop, out);
            self.hop_changed(hop, out);
        }
    }

    pub(super) fn hold_hop(&mut self, id: u32) {
        self.neighbors.get_mut(id).refs += 1;
    }

    pub(super) fn release_hop(&mut self, id: u32, out: &mut OrchOut) {
        let neighbor = self.neighbors.get_mut(id);
        neighbor.refs -= 1;
        if neighbor.refs == 0 {
            self.step_neighbor(id, out);
        }
    }
}
