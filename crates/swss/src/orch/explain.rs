//! Where a route is: what the chip has of it, and what it waits for.

use super::Orch;
use super::neighbors::HopKey;
use super::retry_cache::Constraint;
use super::route_table::{RouteId, RouteName, Table};
use super::routes::{State, Target, Task};
use crate::row::{Name, RouteKey, RouteRow, Row};
use crate::sai::Oid;
use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;

/// What orchagent knows of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteState {
    /// Where the chip leads it; `None` when the chip does not have it.
    pub in_chip: Option<LeadState>,
    /// Why its last change is not done; `None` when it is.
    pub waiting: Option<Waiting>,
    /// Why its last change was given up, as a sentence.
    pub given_up: Option<Name>,
}

/// Where the chip leads a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LeadState {
    /// The object that the entry names; null for one that drops.
    pub oid: Oid,
    /// The next hops behind it: address, interface, weight (0: none given). Empty for one that drops, or that goes
    /// to the CPU. An unspecified address is the interface alone.
    pub hops: Vec<(IpAddr, Name, u32)>,
    /// The index of NEXTHOP_GROUP_TABLE that the route names.
    pub index: Option<Name>,
}

/// Why a change is not done. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// Ports are not there yet, so nothing is looked at.
    Ports,
    /// Its turn.
    Turn,
    /// The chip's confirmation.
    Chip,
    /// A VRF that has no row.
    Vrf(Name),
    /// An interface that has no router interface.
    Interface(Name),
    /// A next hop that is not resolved, or whose link is down.
    Hop(IpAddr, Name),
    /// Its next-hop group: these members are not resolved.
    GroupMembers(Vec<(IpAddr, Name)>),
    /// Its next-hop group: the chip's are all used.
    GroupPlace,
    /// Its next-hop group is being made.
    Group,
    /// An index that NEXTHOP_GROUP_TABLE does not have.
    Index(Name),
    /// This table of the chip is full.
    TableFull(Table),
    /// A resync that is not over.
    Resync,
}

impl std::fmt::Display for Waiting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Waiting::Ports => {
                f.write_str("the ports are not ready (PORT_TABLE: PortConfigDone, PortInitDone)")
            }
            Waiting::Turn => f.write_str("it waits for its turn"),
            Waiting::Chip => f.write_str("the chip has not confirmed it yet"),
            Waiting::Vrf(name) => write!(f, "VRF {name} is not in VRF_TABLE"),
            Waiting::Interface(name) => {
                write!(f, "interface {name} has no router interface; it needs a port and a row in INTF_TABLE")
            }
            Waiting::Hop(ip, name) => {
                write!(f, "next hop {ip} on {name} is not resolved, or its link is down")
            }
            Waiting::GroupMembers(members) => {
                f.write_str("members of its next-hop group are not resolved:")?;
                members.iter().try_for_each(|(ip, name)| write!(f, " {ip} on {name}"))
            }
            Waiting::GroupPlace => f.write_str("the chip's next-hop groups are all used"),
            Waiting::Group => f.write_str("its next-hop group is being made"),
            Waiting::Index(name) => write!(f, "NEXTHOP_GROUP_TABLE has no row {name}"),
            Waiting::TableFull(table) => write!(f, "the chip's table of {table} routes is full"),
            Waiting::Resync => f.write_str("a resync is not over"),
        }
    }
}

impl Orch {
    /// The virtual router of a VRF, once the chip has it.
    pub fn virtual_router(&self, vrf: Option<&str>) -> Option<Oid> {
        self.vrfs.usable(self.vrfs.find(&vrf.map(Name::from))?)
    }

    /// What is known of a route; `None` when it is neither in the chip nor wanted, nor was given up. `vrf`: `None` is the default one.
    pub fn explain(&self, vrf: Option<&str>, prefix: AnyPrefix) -> Option<RouteState> {
        self.explain_name(RouteName { vrf: self.vrfs.find(&vrf.map(Name::from))?, prefix })
    }

    /// The same of the route of a label.
    pub fn explain_label(&self, label: u32) -> Option<RouteState> {
        self.explain_name(RouteName::of_label(label))
    }

    fn explain_name(&self, name: RouteName) -> Option<RouteState> {
        let id = self.routes.table.find(name);
        let lead = id.and_then(|id| self.routes.table.lead(id));
        let in_chip = lead.map(|lead| LeadState {
            oid: self.target_oid(lead.target),
            hops: self.target_hops(lead.target),
            index: lead.index.map(|index| self.indexes.name(index).clone()),
        });
        let waiting = match id.and_then(|id| self.routes.table.task(id)).map(|task| task.state) {
            _ if id.is_some_and(|id| self.routes.table.is_stale(id)) => Some(Waiting::Resync),
            None => None,
            Some(State::Ready) if !self.ready() => Some(Waiting::Ports),
            Some(State::Ready) => Some(Waiting::Turn),
            Some(State::InFlight(_)) => Some(Waiting::Chip),
            Some(State::Waiting(constraint)) => Some(self.explain_constraint(constraint)),
        };
        let given_up = id.filter(|_| waiting.is_none()).and_then(|id| self.routes.table.why_given_up(id));
        let state = RouteState { in_chip, waiting, given_up: given_up.cloned() };
        (state.in_chip.is_some() || state.waiting.is_some() || state.given_up.is_some()).then_some(state)
    }

    /// Hands over each route that the chip has as its row asks, and that no pending change will alter. Routes that need no
    /// entry are among them; a route whose last row failed is not, even if an older entry is there.
    ///
    /// The receiver may not have written the pending rows, or may not know of their responses. So they count as found
    /// ([`super::OrchOut::found`]).
    pub fn in_chip(&mut self, each: impl FnMut(Option<&Name>, AnyPrefix)) {
        self.carried_out(each);
        self.routes.table.all_tasks().for_each(Task::set_found);
    }

    /// Hands over the same routes, and changes nothing.
    pub fn carried_out(&self, mut each: impl FnMut(Option<&Name>, AnyPrefix)) {
        let table = &self.routes.table;
        for id in table.iter().filter(|id| table.is_carried_out(*id)) {
            let name = table.name(id);
            if name.label().is_none() {
                each(self.vrfs.name(name.vrf).as_ref(), name.prefix);
            }
        }
    }

    /// Whether it answers what became of routes.
    pub fn answers(&self) -> bool {
        self.config.responses
    }

    /// Answers from now on what becomes of routes, those included that it has taken and not done; or no longer.
    pub fn answer(&mut self, on: bool) {
        self.config.responses = on;
    }

    /// How many routes the chip has, without the default routes that drop.
    pub fn routes_in_chip(&self) -> usize {
        self.routes.table.in_chip()
    }

    fn hop_name(&self, hop: u32) -> (IpAddr, Name) {
        let HopKey { interface, ip, .. } = *self.neighbors.key(hop);
        (ip, self.interfaces.name(interface).clone())
    }

    /// Whether a route was last said to have failed.
    pub(super) fn has_failed(&self, key: &RouteKey) -> bool {
        let RouteKey::Route { vrf, prefix, .. } = key else { return false };
        let name = self.vrfs.find(vrf).map(|vrf| RouteName { vrf, prefix: *prefix });
        name.and_then(|name| self.routes.table.find(name)).is_some_and(|id| self.routes.table.has_failed(id))
    }

    /// The route's key as text.
    pub(super) fn route_name(&self, id: RouteId) -> String {
        if let Some(label) = self.routes.table.name(id).label() {
            return format!("of label {label}");
        }
        let mut name = String::new();
        RouteRow::key_text(&self.route_key(id), &mut name);
        name
    }

    pub(super) fn explain_constraint(&self, constraint: Constraint) -> Waiting {
        match constraint {
            Constraint::Vrf(vrf) => Waiting::Vrf(self.vrfs.name(vrf).clone().unwrap_or_default()),
            Constraint::Interface(interface) => Waiting::Interface(self.interfaces.name(interface).clone()),
            Constraint::Hop(hop) => {
                let (ip, name) = self.hop_name(hop);
                Waiting::Hop(ip, name)
            }
            Constraint::Group(group) if self.groups.waits_for_place(group) => Waiting::GroupPlace,
            Constraint::Group(group) => {
                let wanted = self.groups.wanted(group);
                let missing = wanted.iter().filter(|(hop, _)| self.hop_resolved(*hop).is_none());
                let missing: Vec<_> = missing.map(|(hop, _)| self.hop_name(*hop)).collect();
                if missing.is_empty() { Waiting::Group } else { Waiting::GroupMembers(missing) }
            }
            Constraint::Index(index) => Waiting::Index(self.indexes.name(index).clone()),
            Constraint::TableFull(table) => Waiting::TableFull(table),
        }
    }

    fn target_hops(&self, target: Target) -> Vec<(IpAddr, Name, u32)> {
        let hop = |(hop, weight): (u32, u32)| {
            let (ip, name) = self.hop_name(hop);
            (ip, name, weight)
        };
        match target {
            Target::Drop | Target::Cpu => Vec::new(),
            Target::Interface(interface) => {
                let none = IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED);
                vec![(none, self.interfaces.name(interface).clone(), 0)]
            }
            Target::Hop(id) => vec![hop((id, 0))],
            Target::Group(group) => self.group_members(group).map(hop).collect(),
        }
    }
}
