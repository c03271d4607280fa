//! The objects that routes use: virtual routers, router interfaces, next hops and next-hop groups.
//!
//! Each part below owns its table's pending changes and its objects. [`Objects`] is the narrow
//! interface of all of them: routes resolve, hold and release next-hop references through it, and
//! `Orch` passes rows, replies and notifications to it.

mod interfaces;
mod mpls_next_hops;
mod neighbors;
mod next_hop_groups;
mod nhg_table;
mod route_decision;
mod vrfs;

use super::bulker::{ObjectReply, Requester};
use super::explain::Waiting;
use super::next_hop_ref::{NextHopRef, Target};
use super::outbox::{Notification, Outbox};
use super::routes::{Constraint, RouteId};
use super::{OrchConfig, OrchOut};
use crate::row::{Change, IntfRow, Name, NeighRow, NextHopGroupRow, VrfRow};
use crate::sai::Oid;
use interfaces::Interfaces;
use neighbors::Neighbors;
use next_hop_groups::{NextHopGroups, NextHops};
use nhg_table::{Below, Meaning, NhgTable};
use route_decision::ResolvedRowCache;
pub(super) use route_decision::RouteDecision;
use std::net::{IpAddr, Ipv4Addr};
use vrfs::Vrfs;

/// The objects below routes.
pub(super) struct Objects {
    vrfs: Vrfs,
    interfaces: Interfaces,
    neighbors: Neighbors,
    groups: NextHopGroups,
    nhg_table: NhgTable,
    cpu_port: Oid,
    /// Cleared when a number in it may be used again.
    resolved_rows: ResolvedRowCache,
}

/// The groups' view of next hops, beside a mutable borrow of the groups.
macro_rules! next_hops {
    ($objects:ident) => {
        &mut NextHops { neighbors: &mut $objects.neighbors, interfaces: &$objects.interfaces }
    };
}

impl Objects {
    pub(super) fn new(config: &OrchConfig) -> Objects {
        Objects {
            vrfs: Vrfs::default(),
            interfaces: Interfaces::new(config.mac),
            neighbors: Neighbors::default(),
            groups: NextHopGroups::new(config.seed),
            nhg_table: NhgTable::new(config.single_groups),
            cpu_port: Oid::NULL,
            resolved_rows: ResolvedRowCache::default(),
        }
    }

    /// Takes in a change of INTF_TABLE.
    pub(super) fn add_interface(&mut self, change: Change<IntfRow>) {
        self.interfaces.add(change);
    }

    /// Takes in a change of NEIGH_TABLE.
    pub(super) fn add_neighbor(&mut self, change: Change<NeighRow>) {
        self.neighbors.add(change);
    }

    /// Takes in a change of VRF_TABLE.
    pub(super) fn add_vrf(&mut self, change: Change<VrfRow>) {
        self.vrfs.add(change);
    }

    /// Takes in a change of NEXTHOP_GROUP_TABLE.
    pub(super) fn add_group(&mut self, change: Change<NextHopGroupRow>) {
        self.nhg_table.add(change);
    }

    /// Changes of all four tables that were not handled yet.
    pub(super) fn pending_len(&self) -> usize {
        self.interfaces.pending_len()
            + self.neighbors.pending_len()
            + self.vrfs.pending_len()
            + self.nhg_table.pending_len()
    }

    /// The interfaces of pending rows that name a VRF, each with the VRF.
    pub(super) fn pending_in_vrfs(&self) -> impl Iterator<Item = (&Name, &Name)> {
        self.interfaces.pending_in_vrfs()
    }

    /// Handles the changes of VRF_TABLE.
    pub(super) fn sync_vrfs(&mut self, outbox: &mut Outbox, out: &mut OrchOut) {
        self.vrfs.sync(outbox, out);
    }

    /// Handles the changes of INTF_TABLE.
    pub(super) fn sync_interfaces(&mut self, outbox: &mut Outbox, out: &mut OrchOut) {
        self.interfaces.sync(&mut self.vrfs, outbox, out);
    }

    /// Handles the changes of NEIGH_TABLE.
    pub(super) fn sync_neighbors(&mut self, outbox: &mut Outbox, out: &mut OrchOut) {
        self.neighbors.sync(&mut self.interfaces, outbox, out);
    }

    /// Handles the changes of NEXTHOP_GROUP_TABLE.
    pub(super) fn sync_groups(&mut self, outbox: &mut Outbox, out: &mut OrchOut) {
        let Objects { groups, neighbors, interfaces, .. } = self;
        self.nhg_table.sync(&mut Below { groups, neighbors, interfaces }, outbox, out);
    }

    /// Sets the virtual router that the chip has from the start.
    pub(super) fn set_default_router(&mut self, oid: Oid) {
        self.vrfs.set_default(oid);
    }

    /// Sets the CPU port of the chip.
    pub(super) fn set_cpu_port(&mut self, oid: Oid) {
        self.cpu_port = oid;
    }

    /// Sets how many groups the chip holds, as it says.
    pub(super) fn set_group_limit(&mut self, limit: u32) {
        self.groups.set_limit(limit);
    }

    /// Fixes the limit of groups at the chip's count, or `default`, but at most `cap`. Returns it.
    pub(super) fn fix_group_limit(&mut self, default: u32, cap: Option<u32>) -> u32 {
        self.groups.fix_limit(default, cap)
    }

    /// Steps every group: a warm start ended, and groups do without members that did not come.
    pub(super) fn step_groups(&mut self, outbox: &mut Outbox, out: &mut OrchOut) {
        for id in self.groups.ids() {
            self.groups.step(id, next_hops!(self), outbox, out);
        }
    }

    /// Sets the port below an interface.
    pub(super) fn set_port(&mut self, name: &Name, port: Oid, outbox: &mut Outbox, out: &mut OrchOut) {
        let id = self.interfaces.id_of(name);
        self.interfaces.set_port(id, port);
        self.interfaces.step(id, &mut self.vrfs, outbox, out);
    }

    /// Sets the state of an interface's link.
    pub(super) fn set_link(&mut self, name: &Name, up: bool, outbox: &mut Outbox) {
        let id = self.interfaces.id_of(name);
        self.interfaces.set_link(id, up, outbox);
    }

    /// Takes in the reply to a request for one object.
    pub(super) fn reply(
        &mut self,
        requester: Requester,
        reply: ObjectReply,
        outbox: &mut Outbox,
        out: &mut OrchOut,
    ) {
        match requester {
            // `Ports` takes these.
            Requester::Port(_) => {}
            Requester::Vrf(id) => self.vrfs.reply(id, reply, outbox, out),
            Requester::Interface(id) => self.interfaces.reply(id, reply, &mut self.vrfs, outbox, out),
            Requester::Neighbor(id) => self.neighbors.reply(id, reply, &mut self.interfaces, outbox, out),
            Requester::Group(id) => self.groups.reply(id, reply, next_hops!(self), outbox, out),
            Requester::Member(group, hop) => {
                self.groups.member_reply(group, hop, reply, next_hops!(self), outbox, out);
            }
        }
    }

    /// Looks again at an object whose table of the chip was full.
    pub(super) fn retry(&mut self, requester: Requester, outbox: &mut Outbox, out: &mut OrchOut) {
        match requester {
            Requester::Vrf(id) => self.vrfs.step(id, outbox, out),
            Requester::Interface(id) => self.interfaces.step(id, &mut self.vrfs, outbox, out),
            Requester::Neighbor(id) => self.neighbors.retry(id, &mut self.interfaces, outbox, out),
            Requester::Group(id) => self.groups.retry(id, next_hops!(self), outbox, out),
            Requester::Port(_) | Requester::Member(..) => {}
        }
    }

    /// Routes may be programmed in a VRF: its interfaces get their router interfaces.
    pub(super) fn vrf_usable(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        for interface in self.interfaces.waiting_for_vrf(id) {
            self.interfaces.step(interface, &mut self.vrfs, outbox, out);
        }
    }

    /// A router interface may be used: its neighbours are created.
    pub(super) fn interface_usable(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        for neighbor in self.neighbors.on_interface(id) {
            self.neighbors.step(neighbor, &mut self.interfaces, outbox, out);
        }
    }

    /// Nothing uses a router interface: it may be removed.
    pub(super) fn interface_released(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        self.interfaces.step(id, &mut self.vrfs, outbox, out);
    }

    /// A router interface begins or ends a move to another VRF: its neighbours leave, or stay.
    pub(super) fn interface_moves(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        for neighbor in self.neighbors.on_interface(id) {
            self.next_hop_changed(neighbor, outbox, out);
            self.neighbors.step(neighbor, &mut self.interfaces, outbox, out);
        }
    }

    /// A link changed: so did whether its next hops are usable.
    pub(super) fn link_changed(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        for neighbor in self.neighbors.on_interface(id) {
            self.next_hop_changed(neighbor, outbox, out);
        }
    }

    /// Whether a next hop is usable changed: its groups, its routes and its MPLS next hops follow.
    pub(super) fn next_hop_changed(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        if !self.neighbors.contains(id) {
            return;
        }
        let usable = self.neighbors.usable(id, &self.interfaces).is_some();
        self.groups.next_hop_changed(id, next_hops!(self), outbox, out);
        if usable {
            outbox.notify(Notification::Wake(Constraint::NextHop(id)));
        }
        for hop in self.neighbors.labelled(id) {
            self.neighbors.retry(hop, &mut self.interfaces, outbox, out);
            outbox.notify(Notification::NextHopChanged(hop));
        }
    }

    /// No route or group member uses a next hop: it may be removed.
    pub(super) fn next_hop_released(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        self.neighbors.step(id, &mut self.interfaces, outbox, out);
    }

    /// Nothing names a next hop: it may be forgotten.
    pub(super) fn next_hop_unpinned(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        self.neighbors.forget(id, &mut self.interfaces, outbox, out);
    }

    /// No route uses a group or waits for it: it is removed.
    pub(super) fn group_released(&mut self, id: u32, outbox: &mut Outbox, out: &mut OrchOut) {
        self.groups.step(id, next_hops!(self), outbox, out);
    }

    /// No route uses an index: a deleted row goes.
    pub(super) fn index_released(&mut self, id: u32, outbox: &mut Outbox) {
        self.nhg_table.remove_if_unused(id, &mut self.groups, &mut self.neighbors, outbox);
    }

    /// No route waits for an index: it may be forgotten.
    pub(super) fn index_unpinned(&mut self, id: u32, outbox: &mut Outbox) {
        self.nhg_table.forget(id, outbox);
    }

    /// A number may be used again.
    pub(super) fn number_freed(&mut self) {
        self.resolved_rows.clear();
    }

    /// The routes that name an index without using its group.
    pub(super) fn followers(&self, index: u32) -> Vec<RouteId> {
        self.nhg_table.followers(index)
    }

    /// Notes whether a route names an index without using its group.
    pub(super) fn set_follower(&mut self, index: u32, route: RouteId, follows: bool) {
        self.nhg_table.set_follower(index, route, follows);
    }

    /// The name of an index.
    pub(super) fn index_name(&self, index: u32) -> &Name {
        self.nhg_table.name(index)
    }

    /// The object that an index stands for; `None` when it has no row.
    pub(super) fn index_target(&self, index: u32) -> Option<Target> {
        match self.nhg_table.meaning(index) {
            Meaning::Nothing => None,
            Meaning::NextHop(hop) => Some(Target::NextHop(hop)),
            Meaning::Group(group) => Some(Target::Group(group)),
        }
    }

    /// The VRF's number; a new VRF gets one.
    pub(super) fn vrf_id(&mut self, name: &Option<Name>) -> u32 {
        self.vrfs.id_of(name)
    }

    /// The number of a VRF that has one.
    pub(super) fn find_vrf(&self, name: &Option<Name>) -> Option<u32> {
        self.vrfs.find(name)
    }

    /// The VRF's name; `None` for the default one.
    pub(super) fn vrf_name(&self, id: u32) -> &Option<Name> {
        self.vrfs.name(id)
    }

    /// The virtual router of a VRF in the chip.
    pub(super) fn router(&self, vrf: u32) -> Option<Oid> {
        self.vrfs.oid(vrf)
    }

    /// The virtual router of a VRF that new routes may be programmed in.
    pub(super) fn usable_router(&self, vrf: u32) -> Option<Oid> {
        self.vrfs.usable(vrf)
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
    pub(super) fn release(
        &mut self,
        vrf: u32,
        reference: NextHopRef,
        outbox: &mut Outbox,
        out: &mut OrchOut,
    ) {
        match reference.target {
            Target::Drop | Target::Cpu => {}
            Target::Interface(interface) => self.interfaces.release(interface, outbox),
            Target::NextHop(hop) => self.neighbors.release(hop, outbox),
            Target::Group(group) => self.groups.release(group, outbox),
        }
        if let Some(index) = reference.index {
            self.nhg_table.release(index, outbox);
        }
        self.vrfs.release(vrf, outbox, out);
    }

    /// Counts a route that waits for a constraint, so that the object's number stays.
    pub(super) fn pin(&mut self, constraint: Constraint) {
        match constraint {
            Constraint::NextHop(hop) => self.neighbors.pin(hop),
            Constraint::Group(group) => self.groups.pin(group),
            Constraint::Index(index) => self.nhg_table.pin(index),
            Constraint::Vrf(_) | Constraint::Interface(_) | Constraint::TableFull(_) => {}
        }
    }

    /// Counts a waiting route less.
    pub(super) fn unpin(&mut self, constraint: Constraint, outbox: &mut Outbox) {
        match constraint {
            Constraint::NextHop(hop) => self.neighbors.unpin(hop, outbox),
            Constraint::Group(group) => self.groups.unpin(group, outbox),
            Constraint::Index(index) => self.nhg_table.unpin(index, outbox),
            Constraint::Vrf(_) | Constraint::Interface(_) | Constraint::TableFull(_) => {}
        }
    }

    /// Whether a request in flight will resolve the constraint.
    pub(super) fn is_requested(&self, constraint: Constraint) -> bool {
        match constraint {
            Constraint::NextHop(hop) => self.neighbors.is_requested(hop),
            Constraint::Group(group) => self.groups.is_requested(group, &self.neighbors),
            Constraint::Vrf(_)
            | Constraint::Interface(_)
            | Constraint::Index(_)
            | Constraint::TableFull(_) => false,
        }
    }

    /// What a route with this constraint waits for.
    pub(super) fn explain(&self, constraint: Constraint) -> Waiting {
        let name = |hop| self.neighbors.name(hop, &self.interfaces);
        match constraint {
            Constraint::Vrf(vrf) => Waiting::Vrf(self.vrfs.name(vrf).clone().unwrap_or_default()),
            Constraint::Interface(interface) => Waiting::Interface(self.interfaces.name(interface).clone()),
            Constraint::NextHop(hop) => {
                let (ip, name) = name(hop);
                Waiting::Hop(ip, name)
            }
            Constraint::Group(group) if self.groups.waits_for_place(group) => Waiting::GroupPlace,
            Constraint::Group(group) => {
                let wanted = self.groups.wanted(group).iter();
                let unresolved =
                    wanted.filter(|(hop, _)| self.neighbors.resolved(*hop, &self.interfaces).is_none());
                let unresolved: Vec<_> = unresolved.map(|(hop, _)| name(*hop)).collect();
                if unresolved.is_empty() { Waiting::Group } else { Waiting::GroupMembers(unresolved) }
            }
            Constraint::Index(index) => Waiting::Index(self.nhg_table.name(index).clone()),
            Constraint::TableFull(table) => Waiting::TableFull(table),
        }
    }

    /// Counts of neighbours, of groups that are known, have a place and wait for one, and of
    /// indexes.
    #[cfg(test)]
    pub(super) fn counts(&self) -> (usize, (usize, u32, usize), usize) {
        (self.neighbors.len(), self.groups.places(), self.nhg_table.len())
    }
}
