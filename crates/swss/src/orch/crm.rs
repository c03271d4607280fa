//! How much of the chip is used: counted at each confirmation, and what still fits, asked of the chip now and then.

use super::Orch;
use super::requests::Context;
use super::route_table::Table;
use crate::sai::{Attr, NextHopType, ObjectType, SWITCH, SaiCall, SaiReply};

/// One kind of thing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Usage {
    /// How many are in the chip.
    pub used: u32,
    /// How many more fit, when last asked; `None` when the chip does not say.
    pub available: Option<u32>,
}

/// What the chip holds.
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
    /// Labels.
    pub mpls_inseg: Usage,
    /// Next hops with labels.
    pub mpls_nexthop: Usage,
    last_asked_ms: Option<u64>,
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

    /// Hands over the fields of COUNTERS_DB's `CRM:STATS`.
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
}

impl Orch {
    /// Asks the chip what still fits, when it is time.
    pub(super) fn ask_crm(&mut self, now_ms: u64) {
        let interval = self.config.crm_interval_ms;
        let due = self.crm.last_asked_ms.is_none_or(|last| now_ms.saturating_sub(last) >= interval);
        if interval == 0 || !due || !self.boot.done() {
            return;
        }
        self.crm.last_asked_ms = Some(now_ms);
        let questions = [
            Attr::SwitchAvailableIpv4Route(0),
            Attr::SwitchAvailableIpv6Route(0),
            Attr::SwitchAvailableIpv4Nexthop(0),
            Attr::SwitchAvailableIpv6Nexthop(0),
            Attr::SwitchAvailableIpv4Neighbor(0),
            Attr::SwitchAvailableIpv6Neighbor(0),
            Attr::SwitchAvailableGroup(0),
            Attr::SwitchAvailableGroupMember(0),
        ];
        // No attribute of the switch says it of these.
        let of_type = [
            (ObjectType::InsegEntry, None),
            (ObjectType::NextHop, Some(Attr::NextHopKind(NextHopType::Mpls))),
        ];
        for (object, attr) in of_type {
            let call = SaiCall::Available { object, attrs: attr.into_iter().collect() };
            self.requests.call(call, Context::Available(object));
        }
        for question in questions {
            // One by one: a chip that does not know one of them refuses the whole question.
            let call = SaiCall::Get { object: ObjectType::Switch, id: SWITCH.into(), attrs: vec![question] };
            self.requests.call(call, Context::Crm);
        }
    }

    pub(super) fn available_reply(&mut self, object: ObjectType, reply: SaiReply) {
        let usage = match object {
            ObjectType::InsegEntry => &mut self.crm.mpls_inseg,
            _ => &mut self.crm.mpls_nexthop,
        };
        if let Some(Attr::ObjectCount(count)) = reply.values.first() {
            usage.available = Some(u32::try_from(*count).unwrap_or(u32::MAX));
        }
    }

    pub(super) fn crm_reply(&mut self, reply: SaiReply) {
        for value in reply.values {
            let (usage, available) = match value {
                Attr::SwitchAvailableIpv4Route(n) => (&mut self.crm.route[0], n),
                Attr::SwitchAvailableIpv6Route(n) => (&mut self.crm.route[1], n),
                Attr::SwitchAvailableIpv4Nexthop(n) => (&mut self.crm.nexthop[0], n),
                Attr::SwitchAvailableIpv6Nexthop(n) => (&mut self.crm.nexthop[1], n),
                Attr::SwitchAvailableIpv4Neighbor(n) => (&mut self.crm.neighbor[0], n),
                Attr::SwitchAvailableIpv6Neighbor(n) => (&mut self.crm.neighbor[1], n),
                Attr::SwitchAvailableGroup(n) => (&mut self.crm.nexthop_group, n),
                Attr::SwitchAvailableGroupMember(n) => (&mut self.crm.nexthop_group_member, n),
                _ => continue,
            };
            usage.available = Some(available);
        }
    }
}
