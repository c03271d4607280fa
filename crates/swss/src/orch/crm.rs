//! CRM (critical resource monitoring): used and available entries of the chip's tables
//! (`orchagent/crmorch.cpp`).
//!
//! orchagent counts used entries at each confirmation, and reads the available ones from the chip
//! in an interval.

use super::bulker::{Bulker, Context};
use super::routes::Table;
use crate::sai::{Attr, NextHopType, ObjectType, SWITCH, SaiCall, SaiReply};

/// The entries of one table of the chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// Entries in the chip.
    pub used: u32,
    /// How many more have room, by the latest reply of the chip; `None` when the chip does not say.
    pub available: Option<u32>,
}

/// The CRM counters of all tables.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Crm {
    /// IPv4 and IPv6 routes.
    pub route: [Usage; 2],
    /// IPv4 and IPv6 next hops.
    pub nexthop: [Usage; 2],
    /// IPv4 and IPv6 neighbours.
    pub neighbor: [Usage; 2],
    /// Next-hop groups.
    pub nexthop_group: Usage,
    /// Members of next-hop groups.
    pub nexthop_group_member: Usage,
    /// Routes of MPLS labels.
    pub mpls_inseg: Usage,
    /// Next hops with labels.
    pub mpls_nexthop: Usage,
    last_poll_ms: Option<u64>,
}

fn count(usage: &mut Usage, change: i32) {
    usage.used = usage.used.saturating_add_signed(change);
}

impl Crm {
    pub(super) fn routes(&mut self, table: Table, change: i32) {
        let usage = match table {
            Table::Ipv4 => &mut self.route[0],
            Table::Ipv6 => &mut self.route[1],
            Table::Labels => &mut self.mpls_inseg,
        };
        count(usage, change);
    }

    pub(super) fn labelled_nexthops(&mut self, change: i32) {
        count(&mut self.mpls_nexthop, change);
    }

    pub(super) fn nexthops(&mut self, v6: bool, change: i32) {
        count(&mut self.nexthop[usize::from(v6)], change);
    }

    pub(super) fn neighbors(&mut self, v6: bool, change: i32) {
        count(&mut self.neighbor[usize::from(v6)], change);
    }

    pub(super) fn groups(&mut self, change: i32) {
        count(&mut self.nexthop_group, change);
    }

    pub(super) fn members(&mut self, change: i32) {
        count(&mut self.nexthop_group_member, change);
    }

    /// Passes each field and value of COUNTERS_DB's `CRM:STATS`.
    pub fn fields(&self, put: &mut dyn FnMut(&str, &str)) {
        let kinds = [
            ("ipv4_route", self.route[0]),
            ("ipv6_route", self.route[1]),
            ("ipv4_nexthop", self.nexthop[0]),
            ("ipv6_nexthop", self.nexthop[1]),
            ("ipv4_neighbor", self.neighbor[0]),
            ("ipv6_neighbor", self.neighbor[1]),
            ("nexthop_group", self.nexthop_group),
            ("nexthop_group_member", self.nexthop_group_member),
            ("mpls_inseg", self.mpls_inseg),
            ("mpls_nexthop", self.mpls_nexthop),
        ];
        for (kind, usage) in kinds {
            put(&format!("crm_stats_{kind}_used"), &usage.used.to_string());
            if let Some(available) = usage.available {
                put(&format!("crm_stats_{kind}_available"), &available.to_string());
            }
        }
    }

    /// Requests the available entries when `interval_ms` has passed since the latest request; never
    /// when it is 0.
    pub(super) fn poll(&mut self, now_ms: u64, interval_ms: u64, bulker: &mut Bulker) {
        let due = self.last_poll_ms.is_none_or(|last| now_ms.saturating_sub(last) >= interval_ms);
        if interval_ms == 0 || !due {
            return;
        }
        self.last_poll_ms = Some(now_ms);
        let attrs = [
            Attr::SwitchAvailableIpv4Route(0),
            Attr::SwitchAvailableIpv6Route(0),
            Attr::SwitchAvailableIpv4Nexthop(0),
            Attr::SwitchAvailableIpv6Nexthop(0),
            Attr::SwitchAvailableIpv4Neighbor(0),
            Attr::SwitchAvailableIpv6Neighbor(0),
            Attr::SwitchAvailableGroup(0),
            Attr::SwitchAvailableGroupMember(0),
        ];
        // The switch has no attribute for these (`sai_object_type_get_availability`).
        let of_type = [
            (ObjectType::InsegEntry, None),
            (ObjectType::NextHop, Some(Attr::NextHopKind(NextHopType::Mpls))),
        ];
        for (object, attr) in of_type {
            let call = SaiCall::Available { object, attrs: attr.into_iter().collect() };
            bulker.call(call, Context::Available(object));
        }
        for attr in attrs {
            // One by one: a chip that does not know one attribute refuses the whole call.
            let call = SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs: vec![attr] };
            bulker.call(call, Context::Crm);
        }
    }

    /// Takes in the availability of one object type.
    pub(super) fn available_reply(&mut self, object: ObjectType, reply: SaiReply) {
        let usage = match object {
            ObjectType::InsegEntry => &mut self.mpls_inseg,
            _ => &mut self.mpls_nexthop,
        };
        if let Some(Attr::ObjectCount(count)) = reply.values.first() {
            usage.available = Some(u32::try_from(*count).unwrap_or(u32::MAX));
        }
    }

    /// Takes in attributes of the switch.
    pub(super) fn reply(&mut self, reply: SaiReply) {
        for value in reply.values {
            let (usage, available) = match value {
                Attr::SwitchAvailableIpv4Route(n) => (&mut self.route[0], n),
                Attr::SwitchAvailableIpv6Route(n) => (&mut self.route[1], n),
                Attr::SwitchAvailableIpv4Nexthop(n) => (&mut self.nexthop[0], n),
                Attr::SwitchAvailableIpv6Nexthop(n) => (&mut self.nexthop[1], n),
                Attr::SwitchAvailableIpv4Neighbor(n) => (&mut self.neighbor[0], n),
                Attr::SwitchAvailableIpv6Neighbor(n) => (&mut self.neighbor[1], n),
                Attr::SwitchAvailableGroup(n) => (&mut self.nexthop_group, n),
                Attr::SwitchAvailableGroupMember(n) => (&mut self.nexthop_group_member, n),
                _ => continue,
            };
            usage.available = Some(available);
        }
    }
}
