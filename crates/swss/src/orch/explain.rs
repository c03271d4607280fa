//! What orchagent reports about a route: the chip's entry, and the reason of a change that is not
//! done.

use super::Orch;
use super::interfaces::parent_of;
use super::routes::{RouteName, Table};
use crate::row::Name;
use crate::sai::{Oid, Status};
use ribtide_prefix::AnyPrefix;
use std::net::IpAddr;

/// What orchagent knows of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteState {
    /// The chip's entry; `None` when the chip does not have one.
    pub in_chip: Option<ProgrammedEntry>,
    /// Why its latest change is not done; `None` when it is.
    pub waiting: Option<Waiting>,
    /// Why its latest change was refused, as a sentence.
    pub given_up: Option<Name>,
}

/// A route's entry in the chip.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ProgrammedEntry {
    /// The object that the entry names; null for an entry that drops.
    pub oid: Oid,
    /// The next hops of that object: address, interface, weight (0: none given). Empty for an entry
    /// that drops, or that resolves to the CPU. An unspecified address is the interface alone.
    pub hops: Vec<(IpAddr, Name, u32)>,
    /// The next hops of its row's group that the chip does not have, each with what it waits for.
    pub missing: Vec<Waiting>,
    /// The index of NEXTHOP_GROUP_TABLE that the route names.
    pub index: Option<Name>,
}

/// Why a change is not done. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Waiting {
    /// The ports are not ready, so orchagent handles no other table.
    Ports,
    /// Its turn.
    Turn,
    /// The chip's reply.
    Chip,
    /// A VRF that has no row.
    Vrf(Name),
    /// An interface that has no router interface.
    Interface(Name),
    /// An interface whose row cannot be programmed, and why.
    NotProgrammed(Name, &'static str),
    /// A next hop whose link is down.
    Link(IpAddr, Name),
    /// A next hop that is not resolved.
    Hop(IpAddr, Name),
    /// Its next-hop group: these members are not resolved.
    GroupMembers(Vec<(IpAddr, Name)>),
    /// Its next-hop group: the chip's groups are all used.
    GroupPlace,
    /// Its next-hop group: a request is in flight.
    Group,
    /// An index that NEXTHOP_GROUP_TABLE does not have.
    Index(Name),
    /// Room in this table of the chip.
    TableFull(Table),
    /// The retry of a request that the chip refused.
    Refused {
        /// What the chip refused.
        object: String,
        /// Why.
        status: Status,
        /// Seconds until the retry.
        retry_s: u64,
    },
    /// The end of a resync.
    Resync,
}

impl Waiting {
    /// The reason of a failure, which stays true while retries go on.
    pub(super) fn reason(&self) -> String {
        match self {
            Waiting::Refused { object, status, .. } => {
                format!("the chip refused {object}: {}", status.name())
            }
            _ => self.to_string(),
        }
    }
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
                let lies_on = match parent_of(name).as_deref().unwrap_or(name) {
                    name if name.starts_with("PortChannel") => "a row in LAG_TABLE",
                    name if name.starts_with("Vlan") => "a row in VLAN_TABLE",
                    _ => "a port",
                };
                write!(
                    f,
                    "interface {name} has no router interface; it needs {lies_on} and a row in INTF_TABLE"
                )
            }
            Waiting::NotProgrammed(name, why) => write!(f, "interface {name} is not programmed: {why}"),
            Waiting::Link(ip, name) => write!(f, "the link of next hop {ip}, {name}, is down"),
            Waiting::Hop(ip, name) => write!(f, "next hop {ip} on {name} is not resolved"),
            Waiting::GroupMembers(members) => {
                f.write_str("members of its next-hop group are not resolved:")?;
                members.iter().try_for_each(|(ip, name)| write!(f, " {ip} on {name}"))
            }
            Waiting::GroupPlace => f.write_str("the chip's next-hop groups are all used"),
            Waiting::Group => f.write_str("its next-hop group is being made"),
            Waiting::Index(name) => write!(f, "NEXTHOP_GROUP_TABLE has no row {name}"),
            Waiting::TableFull(table) => write!(f, "the chip's table of {table} routes is full"),
            Waiting::Refused { object, status, retry_s } => {
                write!(f, "{object} is refused by the chip ({}), retried in {retry_s} s", status.name())
            }
            Waiting::Resync => f.write_str("a resync is not over"),
        }
    }
}

impl Orch {
    /// The virtual router of a VRF, once the chip has it.
    pub fn virtual_router(&self, vrf: Option<&str>) -> Option<Oid> {
        self.objects.vrfs.usable(self.objects.vrfs.find(&vrf.map(Name::from))?)
    }

    /// What orchagent knows of a route; `None` when it is neither in the chip nor wanted, and was
    /// not refused. `vrf`: `None` is the default one.
    pub fn explain(&self, vrf: Option<&str>, prefix: AnyPrefix) -> Option<RouteState> {
        let vrf = self.objects.vrfs.find(&vrf.map(Name::from))?;
        self.routes.explain(RouteName { vrf, prefix }, self.ready(), &self.objects, &self.outbox)
    }

    /// The same for the route of a label.
    pub fn explain_label(&self, label: u32) -> Option<RouteState> {
        self.routes.explain(RouteName::of_label(label), self.ready(), &self.objects, &self.outbox)
    }

    /// Passes each route that the chip has as its row asks, and that no pending change will alter.
    /// Routes that need no entry are among them; a route whose latest row failed is not, even with
    /// an older entry.
    ///
    /// The receiver may not have written the pending rows, or may not know of their responses. So
    /// they count as found ([`super::OrchOut::found`]).
    pub fn in_chip(&mut self, each: impl FnMut(Option<&Name>, AnyPrefix)) {
        self.carried_out(each);
        self.routes.set_all_found();
    }

    /// Passes the same routes, and changes nothing.
    pub fn carried_out(&self, each: impl FnMut(Option<&Name>, AnyPrefix)) {
        self.routes.carried_out(&self.objects, each);
    }

    /// Whether orchagent responds to rows of routes ([`super::OrchConfig::responses`]).
    pub fn answers(&self) -> bool {
        self.routes.responds()
    }

    /// Sets whether orchagent responds to rows of routes, those included that are not done.
    pub fn answer(&mut self, on: bool) {
        self.routes.set_responds(on);
    }

    /// How many routes the chip has, without the default routes that drop.
    pub fn routes_in_chip(&self) -> usize {
        self.routes.in_chip()
    }
}
