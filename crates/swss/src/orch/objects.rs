//! The objects that routes use: virtual routers, router interfaces, next hops and next-hop groups.
//!
//! Each part owns its table's pending changes and its objects; callers use it directly. The methods
//! of [`Objects`] are those that concern several parts: routes hold and release next-hop references
//! through them, and `Orch` delivers replies and notifications.

use super::OrchConfig;
use super::bulker::{ObjectReply, Requester};
use super::explain::Waiting;
use super::interfaces::{Interfaces, Under};
use super::neighbors::Neighbors;
use super::next_hop_groups::{NextHopGroups, NextHops};
use super::next_hop_ref::{NextHopRef, Target};
use super::nhg_table::{Below, NhgTable};
use super::outbox::{Notification, Outbox};
use super::ports::Ports;
use super::route_decision::ResolvedRowCache;
use super::routes::Constraint;
use super::vrfs::Vrfs;
use crate::row::Name;
use crate::sai::Oid;
use std::net::{IpAddr, Ipv4Addr};

/// The objects below routes.
pub(super) struct Objects {
    pub(super) ports: Ports,
    pub(super) vrfs: Vrfs,
    pub(super) interfaces: Interfaces,
    pub(super) neighbors: Neighbors,
    pub(super) groups: NextHopGroups,
    pub(super) nhg_table: NhgTable,
    pub(super) cpu_port: Oid,
    /// Cleared when a number in it may be used again.
    pub(super) resolved_rows: ResolvedRowCache,
}

/// The groups' view of next hops, beside a mutable borrow of the groups.
macro_rules! next_hops {
    ($objects:ident) => {
        &mut NextHops { neighbors: &mut $objects.neighbors, interfaces: &$objects.interfaces }
    };
}

/// What interfaces depend on, beside a mutable borrow of the interfaces.
macro_rules! under {
    ($objects:ident) => {
        &mut Under { ports: &mut $objects.ports, vrfs: &mut $objects.vrfs }
    };
}

impl Objects {
    pub(super) fn new(config: &OrchConfig) -> Objects {
        Objects {
            ports: Ports::new(config.reports_ports, config.host_interfaces),
            vrfs: Vrfs::new(config.link_local_in_vrfs),
            interfaces: Interfaces::new(config.mac),
            neighbors: Neighbors::default(),
            groups: NextHopGroups::new(config.seed),
            nhg_table: NhgTable::new(config.single_groups),
            cpu_port: Oid::NULL,
            resolved_rows: ResolvedRowCache::default(),
        }
    }

    /// Changes of all these tables but PORT_TABLE that were not handled yet.
    pub(super) fn pending_len(&self) -> usize {
        self.ports.pending_objects_len()
            + self.interfaces.pending_len()
            + self.neighbors.pending_len()
            + self.vrfs.pending_len()
            + self.nhg_table.pending_len()
    }

    /// Handles the changes of NEXTHOP_GROUP_TABLE.
    pub(super) fn sync_groups(&mut self, outbox: &mut Outbox) {
        let Objects { groups, neighbors, interfaces, .. } = self;
        self.nhg_table.sync(&mut Below { groups, neighbors, interfaces }, outbox);
    }

    /// Steps every group: a warm start ended, and groups do without members that did not come.
    pub(super) fn step_groups(&mut self, outbox: &mut Outbox) {
        for id in self.groups.ids() {
            self.groups.step(id, next_hops!(self), outbox);
        }
    }

    /// Handles the changes of INTF_TABLE.
    pub(super) fn sync_interfaces(&mut self, outbox: &mut Outbox) {
        self.interfaces.sync(under!(self), outbox);
    }

    /// Steps an interface.
    pub(super) fn step_interface(&mut self, id: u32, outbox: &mut Outbox) {
        self.interfaces.step(id, under!(self), outbox);
    }

    /// A port, LAG or VLAN came, or leaves: its interfaces follow.
    pub(super) fn lower_changed(&mut self, name: &Name, outbox: &mut Outbox) {
        let lower = self.ports.lower(name);
        self.interfaces.set_lower(name, lower, under!(self), outbox);
    }

    /// Attributes that interfaces on a port, LAG or VLAN inherit have changed.
    pub(super) fn inherited_changed(&mut self, name: &Name, outbox: &mut Outbox) {
        self.interfaces.step_all(name, under!(self), outbox);
    }

    /// Takes in the reply to a request for one object.
    pub(super) fn reply(&mut self, requester: Requester, reply: ObjectReply, outbox: &mut Outbox) {
        match requester {
            Requester::Port(name) => self.ports.reply(&name, reply, outbox),
            Requester::PortObject(object) => self.ports.object_reply(&object, reply, outbox),
            Requester::Vrf(id) => self.vrfs.reply(id, reply, outbox),
            Requester::Interface(id) => self.interfaces.reply(id, reply, under!(self), outbox),
            Requester::Neighbor(id) => self.neighbors.reply(id, reply, &mut self.interfaces, outbox),
            Requester::Group(id) => self.groups.reply(id, reply, next_hops!(self), outbox),
            Requester::Member(group, hop) => {
                self.groups.member_reply(group, hop, reply, next_hops!(self), outbox);
            }
        }
    }

    /// Looks again at an object with a refused request.
    pub(super) fn retry(&mut self, requester: Requester, outbox: &mut Outbox) {
        match requester {
            Requester::Port(name) => self.ports.retry(name, outbox),
            Requester::PortObject(object) => self.ports.step_object(&object, outbox),
            Requester::Vrf(id) => self.vrfs.step(id, outbox),
            Requester::Interface(id) => self.step_interface(id, outbox),
            Requester::Neighbor(id) => self.neighbors.step(id, &mut self.interfaces, outbox),
            Requester::Group(id) | Requester::Member(id, _) => {
                self.groups.step(id, next_hops!(self), outbox);
            }
        }
    }

    /// Routes may be programmed in a VRF: its interfaces get their router interfaces.
    pub(super) fn vrf_usable(&mut self, id: u32, outbox: &mut Outbox) {
        for interface in self.interfaces.waiting_for_vrf(id) {
            self.step_interface(interface, outbox);
        }
    }

    /// A router interface may be used: its neighbours are created.
    pub(super) fn interface_usable(&mut self, id: u32, outbox: &mut Outbox) {
        for neighbor in self.neighbors.on_interface(id) {
            self.neighbors.step(neighbor, &mut self.interfaces, outbox);
        }
    }

    /// A router interface begins or ends a move to another VRF: its neighbours leave, or stay.
    pub(super) fn interface_moves(&mut self, id: u32, outbox: &mut Outbox) {
        for neighbor in self.neighbors.on_interface(id) {
            self.next_hop_changed(neighbor, outbox);
            self.neighbors.step_changed(neighbor, &mut self.interfaces, outbox);
        }
    }

    /// A link changed: so did whether its next hops are usable.
    pub(super) fn link_changed(&mut self, id: u32, outbox: &mut Outbox) {
        for neighbor in self.neighbors.on_interface(id) {
            self.next_hop_changed(neighbor, outbox);
        }
    }

    /// Whether a next hop is usable changed: its groups, its routes and its MPLS next hops follow.
    pub(super) fn next_hop_changed(&mut self, id: u32, outbox: &mut Outbox) {
        if !self.neighbors.contains(id) {
            return;
        }
        let usable = self.neighbors.usable(id, &self.interfaces).is_some();
        self.groups.next_hop_changed(id, next_hops!(self), outbox);
        if usable {
            outbox.notify(Notification::Wake(Constraint::NextHop(id)));
        }
        for hop in self.neighbors.labelled(id) {
            self.neighbors.step_changed(hop, &mut self.interfaces, outbox);
            outbox.notify(Notification::NextHopChanged(hop));
        }
    }

    /// No route uses a group or waits for it: it is removed.
    pub(super) fn group_released(&mut self, id: u32, outbox: &mut Outbox) {
        self.groups.step(id, next_hops!(self), outbox);
    }

    /// The object id that a route's entry names; null for an entry that drops.
    pub(super) fn oid(&self, target: Target) -> Oid {
        match target {
            Target::Drop => Oid::NULL,
            Target::Cpu => self.cpu_port,
            Target::Interface(interface) => self.interfaces.oid(interface).unwrap_or_default(),
            Target::NextHop(hop) => self.neighbors.oid(hop),
            Target::Group(group) => self.groups.oid(group),
        }
    }

    /// The next hops of a target in the chip: address, interface, weight (0: none given). An
    /// interface alone has an unspecified address.
    pub(super) fn hops(&self, target: Target) -> Vec<(IpAddr, Name, u32)> {
        let hop = |(hop, weight): (u32, u32)| {
            let (ip, name) = self.neighbors.name(hop, &self.interfaces);
            (ip, name, weight)
        };
        match target {
            Target::Drop | Target::Cpu => Vec::new(),
            Target::Interface(interface) => {
                vec![(IpAddr::V4(Ipv4Addr::UNSPECIFIED), self.interfaces.name(interface).clone(), 0)]
            }
            Target::NextHop(id) => vec![hop((id, 0))],
            Target::Group(group) => self.groups.members(group).map(hop).collect(),
        }
    }

    /// Counts a route, in the chip or requested, in all objects that it uses.
    pub(super) fn hold(&mut self, vrf: u32, reference: NextHopRef) {
        self.vrfs.hold(vrf);
        match reference.target {
            Target::Drop | Target::Cpu => {}
            Target::Interface(interface) => self.interfaces.hold(interface),
            Target::NextHop(hop) => self.neighbors.hold(hop),
            Target::Group(group) => self.groups.hold(group),
        }
        if let Some(index) = reference.index {
            self.nhg_table.hold(index);
        }
    }

    /// Counts a route less in all objects that it used.
    pub(super) fn release(&mut self, vrf: u32, reference: NextHopRef, outbox: &mut Outbox) {
        match reference.target {
            Target::Drop | Target::Cpu => {}
            Target::Interface(interface) => self.interfaces.release(interface, outbox),
            Target::NextHop(hop) => self.neighbors.release(hop, outbox),
            Target::Group(group) => self.groups.release(group, outbox),
        }
        if let Some(index) = reference.index {
            self.nhg_table.release(index, outbox);
        }
        self.vrfs.release(vrf, outbox);
    }

    /// Counts a route that waits for a constraint, so that the object's number stays.
    pub(super) fn pin(&mut self, constraint: Constraint) {
        match constraint {
            Constraint::NextHop(hop) => self.neighbors.pin(hop),
            Constraint::Group(group) => self.groups.pin(group),
            Constraint::Index(index) => self.nhg_table.pin(index),
            Constraint::Vrf(_)
            | Constraint::Interface(_)
            | Constraint::TableFull(_)
            | Constraint::Refused => {}
        }
    }

    /// Counts a waiting route less.
    pub(super) fn unpin(&mut self, constraint: Constraint, outbox: &mut Outbox) {
        match constraint {
            Constraint::NextHop(hop) => self.neighbors.unpin(hop, outbox),
            Constraint::Group(group) => self.groups.unpin(group, outbox),
            Constraint::Index(index) => self.nhg_table.unpin(index, outbox),
            Constraint::Vrf(_)
            | Constraint::Interface(_)
            | Constraint::TableFull(_)
            | Constraint::Refused => {}
        }
    }

    /// Whether the object is in the chip as it shall be; false for a group whose members change.
    pub(super) fn is_as_wanted(&self, target: Target) -> bool {
        match target {
            Target::Group(group) => self.groups.ready(group),
            Target::Drop | Target::Cpu | Target::Interface(_) | Target::NextHop(_) => true,
        }
    }

    /// Whether a request in flight will resolve the constraint.
    pub(super) fn is_requested(&self, constraint: Constraint, outbox: &Outbox) -> bool {
        match constraint {
            Constraint::NextHop(hop) => self.neighbors.is_requested(hop),
            Constraint::Group(group) => self.groups.is_requested(group, &self.neighbors, outbox),
            Constraint::Vrf(_)
            | Constraint::Interface(_)
            | Constraint::Index(_)
            | Constraint::TableFull(_)
            | Constraint::Refused => false,
        }
    }

    /// The refused request of an object that a route with this constraint waits for.
    pub(super) fn refusal(&self, constraint: Constraint, outbox: &Outbox) -> Option<Waiting> {
        if outbox.back_off.len() == 0 {
            return None;
        }
        let interface = |id: u32| {
            let on = self.ports.requester_of(self.interfaces.lies_on(id));
            [Requester::Interface(id), on].into_iter().find(|requester| outbox.back_off.holds(requester))
        };
        let hop = |hop: u32| {
            let below = self.neighbors.below(hop).map(Requester::Neighbor);
            let mut requesters = [Some(Requester::Neighbor(hop)), below].into_iter().flatten();
            let held = requesters.find(|requester| outbox.back_off.holds(requester));
            held.or_else(|| interface(self.neighbors.address(hop).0))
        };
        let requester = match constraint {
            Constraint::Vrf(vrf) => Some(Requester::Vrf(vrf)),
            Constraint::Interface(id) => interface(id),
            Constraint::NextHop(id) => hop(id),
            Constraint::Group(group) => self
                .groups
                .held(group, outbox)
                .or_else(|| self.groups.wanted(group).iter().find_map(|(id, _)| hop(*id))),
            Constraint::Index(_) | Constraint::TableFull(_) | Constraint::Refused => None,
        }?;
        let (status, retry_s) = outbox.back_off.get(&requester)?;
        let object = match requester {
            Requester::Port(name) => format!("port {name}"),
            Requester::PortObject(object) => object.to_string(),
            Requester::Vrf(vrf) => {
                format!("the virtual router of {}", self.vrfs.name(vrf).as_deref().unwrap_or_default())
            }
            Requester::Interface(id) => format!("the router interface of {}", self.interfaces.name(id)),
            Requester::Neighbor(id) => {
                let (ip, name) = self.neighbors.name(id, &self.interfaces);
                format!("next hop {ip} on {name}")
            }
            Requester::Group(_) => "its next-hop group".into(),
            Requester::Member(_, id) => {
                let (ip, name) = self.neighbors.name(id, &self.interfaces);
                format!("member {ip} on {name} of its next-hop group")
            }
        };
        Some(Waiting::Refused { object, status, retry_s })
    }

    fn not_programmed(&self, interface: u32) -> Option<Waiting> {
        let why = self.interfaces.why_not(interface)?;
        Some(Waiting::NotProgrammed(self.interfaces.name(interface).clone(), why))
    }

    /// Why routes may not use a next hop.
    fn explain_hop(&self, hop: u32) -> Waiting {
        let (ip, name) = self.neighbors.name(hop, &self.interfaces);
        let interface = self.neighbors.address(hop).0;
        match self.not_programmed(interface) {
            Some(waiting) => waiting,
            None if !self.interfaces.is_up(interface) => Waiting::Link(ip, name),
            None => Waiting::Hop(ip, name),
        }
    }

    /// What the next hops of a group wait for that the chip's group does not have.
    pub(super) fn missing(&self, target: Target) -> Vec<Waiting> {
        let Target::Group(group) = target else { return Vec::new() };
        let is_missing =
            |(hop, _): &&(u32, u32)| self.groups.members(group).all(|(in_chip, _)| in_chip != *hop);
        let missing = self.groups.wanted(group).iter().filter(is_missing);
        missing.map(|(hop, _)| self.explain_hop(*hop)).collect()
    }

    /// What a route with this constraint waits for.
    pub(super) fn explain(&self, constraint: Constraint, outbox: &Outbox) -> Waiting {
        if let Some(refusal) = self.refusal(constraint, outbox) {
            return refusal;
        }
        let name = |hop| self.neighbors.name(hop, &self.interfaces);
        let not_programmed = |interface| self.not_programmed(interface);
        match constraint {
            Constraint::Vrf(vrf) => Waiting::Vrf(self.vrfs.name(vrf).clone().unwrap_or_default()),
            Constraint::Interface(interface) => not_programmed(interface)
                .unwrap_or_else(|| Waiting::Interface(self.interfaces.name(interface).clone())),
            Constraint::NextHop(hop) => self.explain_hop(hop),
            Constraint::Group(group) if self.groups.waits_for_place(group) => Waiting::GroupPlace,
            Constraint::Group(group) => {
                let wanted = self.groups.wanted(group).iter();
                let unresolved =
                    wanted.filter(|(hop, _)| self.neighbors.resolved(*hop, &self.interfaces).is_none());
                let unresolved: Vec<u32> = unresolved.map(|(hop, _)| *hop).collect();
                let interfaces = unresolved.iter().map(|hop| self.neighbors.address(*hop).0);
                if let Some(waiting) = { interfaces }.find_map(not_programmed) {
                    return waiting;
                }
                let unresolved: Vec<_> = unresolved.into_iter().map(name).collect();
                if unresolved.is_empty() { Waiting::Group } else { Waiting::GroupMembers(unresolved) }
            }
            Constraint::Index(index) => Waiting::Index(self.nhg_table.name(index).clone()),
            Constraint::TableFull(table) => Waiting::TableFull(table),
            // The retry begins.
            Constraint::Refused => Waiting::Turn,
        }
    }

    /// Counts of neighbours, of groups that are known, have a place and wait for one, and of
    /// indexes.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, (usize, u32, usize), usize) {
        (self.neighbors.len(), self.groups.places(), self.nhg_table.len())
    }
}
