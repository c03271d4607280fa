//! Routing tables (`net/ipv4/fib_trie.c`, `net/ipv6/ip6_fib.c`, `net/ipv6/route.c`).

use super::{NO_PORT, OTHERS, State, encode, links};
use ribtide_prefix::{Afi, AnyPrefix};
use ribtide_wire::netlink::numbers::{
    NLM_F_APPEND, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RT_SCOPE_NOWHERE, RT_TABLE_MAIN, RTM_DELROUTE,
    RTM_NEWROUTE, RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE,
};
use ribtide_wire::netlink::{NextHops, Route, RouteKind, Via};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The metric of IPv6 routes without one.
const IPV6_METRIC: u32 = 1024;

/// One route of a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteEntry {
    /// Its metric.
    pub metric: u32,
    /// Who made it.
    pub protocol: u8,
    /// The kind in its request.
    pub kind: RouteKind,
    /// Its scope.
    pub scope: u8,
    /// The source address.
    pub source: Option<IpAddr>,
    /// What it does.
    pub forward: RouteForward,
}

/// What a route does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RouteForward {
    /// Drops packets.
    Drop,
    /// What the next-hop object does.
    Object(u32),
    /// Sends them to a next hop.
    Via(Via),
}

/// One table. The routes of a prefix are in the order of their metrics.
#[derive(Default)]
pub(super) struct Routes(BTreeMap<AnyPrefix, Vec<RouteEntry>>);

impl Routes {
    pub(super) fn iter(&self) -> impl Iterator<Item = (AnyPrefix, &RouteEntry)> {
        self.0.iter().flat_map(|(prefix, entries)| entries.iter().map(|entry| (*prefix, entry)))
    }

    /// Removes the routes that match, and returns them.
    fn extract(&mut self, mut matches: impl FnMut(&RouteEntry) -> bool) -> Vec<(AnyPrefix, RouteEntry)> {
        let mut out = Vec::new();
        self.0.retain(|prefix, entries| {
            out.extend(entries.extract_if(.., |entry| matches(entry)).map(|entry| (*prefix, entry)));
            !entries.is_empty()
        });
        out
    }
}

impl State {
    /// `RTM_NEWROUTE`.
    pub(super) fn new_route(&mut self, route: &Route<'_>, flags: u16, port: u32) -> Result<(), i32> {
        let afi = route.prefix.afi();
        let forward = match (route.kind, route.next_hops) {
            (RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit, _) => RouteForward::Drop,
            (_, NextHops::Id(id)) => {
                let object = self.objects.get(&id).ok_or(libc::EINVAL)?;
                if afi == Afi::Ipv6 && self.has_ipv4(&object.content) {
                    return Err(libc::EINVAL);
                }
                RouteForward::Object(id)
            }
            (_, NextHops::Inline(mut hops)) => match (hops.next(), hops.next()) {
                (Some(hop), None) => {
                    links::check_via(self, &hop.via, afi, false)?;
                    RouteForward::Via(hop.via)
                }
                _ => return Err(libc::EOPNOTSUPP),
            },
            (_, NextHops::None) => return Err(if afi == Afi::Ipv4 { libc::ENODEV } else { libc::EINVAL }),
        };
        let metric = match (afi, route.metric.unwrap_or(0)) {
            (Afi::Ipv6, 0) => IPV6_METRIC,
            (_, metric) => metric,
        };
        let (protocol, kind, scope) = (route.protocol, route.kind, route.scope);
        let entry = RouteEntry { metric, protocol, kind, scope, source: route.prefsrc, forward };
        if route.prefsrc.is_some_and(|source| !self.has_address(source))
            && !self.takes_any_source(afi, route.table, &entry)
        {
            return Err(libc::EINVAL);
        }
        let entries = self.tables.entry((afi, route.table)).or_default().0.entry(route.prefix).or_default();
        let before = entries.clone();
        let done = match afi {
            Afi::Ipv4 => insert_ipv4(entries, entry.clone(), flags),
            Afi::Ipv6 => insert_ipv6(entries, entry.clone(), flags),
        };
        // Of two routes of one prefix and metric the kernel has one.
        let displaced = before.iter().find(|known| known.metric != metric && !entries.contains(known));
        let displaced = displaced.map(|known| format!("{} {known:?} is replaced", route.prefix));
        if entries.is_empty() {
            self.tables.entry((afi, route.table)).or_default().0.remove(&route.prefix);
        }
        self.foreign_changes.extend(displaced.filter(|_| port != OTHERS));
        if let Some(flags) = done? {
            self.notify_route(RTM_NEWROUTE, (route.prefix, route.table, &entry), flags, port);
        }
        Ok(())
    }

    /// Whether the kernel does not look at the source address of a route: an IPv4 route that drops,
    /// or one by a next-hop object where the table has one of equal attributes (`fib_find_info_nh`).
    fn takes_any_source(&self, afi: Afi, table: u32, entry: &RouteEntry) -> bool {
        afi == Afi::Ipv4
            && match entry.forward {
                RouteForward::Drop => true,
                RouteForward::Object(_) => self.routes(afi, table).any(|(_, known)| known == entry),
                RouteForward::Via(_) => false,
            }
    }

    /// `RTM_DELROUTE`.
    pub(super) fn delete_route(&mut self, route: &Route<'_>, port: u32) -> Result<(), i32> {
        let afi = route.prefix.afi();
        let id = match route.next_hops {
            NextHops::Id(id) => Some(id),
            _ => None,
        };
        if afi == Afi::Ipv4 && id.is_some_and(|id| !self.objects.contains_key(&id)) {
            return Err(libc::EINVAL);
        }
        let routes = self.tables.get_mut(&(afi, route.table)).ok_or(libc::ESRCH)?;
        let entries = routes.0.get_mut(&route.prefix).ok_or(libc::ESRCH)?;
        let is_meant = |entry: &RouteEntry| {
            let of_kind = route.kind == RouteKind::Other(0) || route.kind == entry.kind;
            let of_scope = route.scope == RT_SCOPE_NOWHERE || route.scope == entry.scope;
            let of_source = route.prefsrc.is_none() || route.prefsrc == entry.source;
            route.metric.is_none_or(|metric| metric == 0 || metric == entry.metric)
                && (route.protocol == 0 || route.protocol == entry.protocol)
                && (afi == Afi::Ipv6 || (of_kind && of_scope && of_source))
                && id.is_none_or(|id| entry.forward == RouteForward::Object(id))
        };
        let at = entries.iter().position(is_meant).ok_or(libc::ESRCH)?;
        let entry = entries.remove(at);
        if entries.is_empty() {
            routes.0.remove(&route.prefix);
        }
        if port != OTHERS && entry.protocol != self.own_protocol {
            self.foreign_changes.push(format!("{} {entry:?} is deleted", route.prefix));
        }
        self.notify_route(RTM_DELROUTE, (route.prefix, route.table, &entry), 0, port);
        Ok(())
    }

    fn notify_route(&mut self, kind: u16, route: (AnyPrefix, u32, &RouteEntry), flags: u16, port: u32) {
        self.routes_version += 1;
        let group = match route.0.afi() {
            Afi::Ipv4 => RTNLGRP_IPV4_ROUTE,
            Afi::Ipv6 => RTNLGRP_IPV6_ROUTE,
        };
        let bytes = encode::route(self, route, kind, flags, 0, port);
        self.notify(group, port, &bytes);
    }

    /// The routes of a next-hop object go with it, without a notification: the simulated host has
    /// `net.ipv4.nexthop_compat_mode` 0.
    pub(super) fn flush_routes_by(&mut self, id: u32, port: Option<u32>) {
        for routes in self.tables.values_mut() {
            let lost = routes.extract(|entry| entry.forward == RouteForward::Object(id));
            if let Some(port) = port {
                self.taken_along.extend(lost.into_iter().map(|(prefix, entry)| (prefix, entry, port)));
            }
        }
        self.routes_version += 1;
    }

    /// A link is switched off: its inline routes go, those of IPv6 with a notification.
    pub(super) fn flush_routes_of(&mut self, ifindex: u32) {
        self.flush_ipv4_routes_of(ifindex);
        let tables: Vec<u32> =
            self.tables.keys().filter(|(afi, _)| *afi == Afi::Ipv6).map(|(_, table)| *table).collect();
        for table in tables {
            let routes = self.tables.entry((Afi::Ipv6, table)).or_default();
            for (prefix, entry) in routes.extract(|entry| is_through(entry, ifindex)) {
                self.notify_route(RTM_DELROUTE, (prefix, table, &entry), 0, NO_PORT);
            }
        }
    }

    /// The inline IPv4 routes of a link go without a notification.
    pub(super) fn flush_ipv4_routes_of(&mut self, ifindex: u32) {
        for (_, routes) in self.tables.iter_mut().filter(|((afi, _), _)| *afi == Afi::Ipv4) {
            routes.extract(|entry| is_through(entry, ifindex));
        }
    }

    /// An address is gone. IPv4 routes of the main table that have it as source go along. IPv6 routes
    /// lose their source, but for those by a next-hop object.
    pub(super) fn forget_source(&mut self, address: IpAddr) {
        if self.has_address(address) {
            return;
        }
        let has = |entry: &RouteEntry| entry.source == Some(address);
        if address.is_ipv4() {
            let main = u32::from(RT_TABLE_MAIN);
            let routes = self.tables.get_mut(&(Afi::Ipv4, main));
            for (prefix, entry) in routes.map(|routes| routes.extract(has)).unwrap_or_default() {
                self.notify_route(RTM_DELROUTE, (prefix, main, &entry), 0, NO_PORT);
            }
            return;
        }
        let tables = self.tables.iter_mut().filter(|((afi, _), _)| *afi == Afi::Ipv6);
        let entries = tables.flat_map(|(_, routes)| routes.0.values_mut().flatten());
        let inline = entries.filter(|entry| has(entry) && !matches!(entry.forward, RouteForward::Object(_)));
        inline.for_each(|entry| entry.source = None);
    }
}

fn is_through(entry: &RouteEntry, ifindex: u32) -> bool {
    matches!(entry.forward, RouteForward::Via(via) if via.ifindex == ifindex)
}

/// Inserts a route as `fib_table_insert` does. Returns the flags of the notification, if there is
/// one.
fn insert_ipv4(entries: &mut Vec<RouteEntry>, entry: RouteEntry, flags: u16) -> Result<Option<u16>, i32> {
    let first = entries.iter().position(|known| known.metric == entry.metric);
    let behind = entries.iter().rposition(|known| known.metric <= entry.metric).map_or(0, |at| at + 1);
    let mut at = behind;
    let mut notified = NLM_F_CREATE;
    if let Some(first) = first {
        if flags & NLM_F_EXCL != 0 {
            return Err(libc::EEXIST);
        }
        let equal = entries.iter().position(|known| *known == entry);
        if flags & NLM_F_REPLACE != 0 {
            return match equal {
                Some(equal) if equal == first => Ok(None),
                Some(_) => Err(libc::EEXIST),
                None => {
                    entries[first] = entry;
                    Ok(Some(NLM_F_REPLACE))
                }
            };
        }
        if equal.is_some() {
            return Err(libc::EEXIST);
        }
        if flags & NLM_F_APPEND != 0 {
            notified |= NLM_F_APPEND;
        } else {
            at = first;
        }
    }
    if flags & NLM_F_CREATE == 0 {
        return Err(libc::ENOENT);
    }
    entries.insert(at, entry);
    Ok(Some(notified))
}

/// Inserts a route as `fib6_add_rt2node` does, without the merge of inline next hops into one route:
/// the simulated programs do not add those.
fn insert_ipv6(entries: &mut Vec<RouteEntry>, entry: RouteEntry, flags: u16) -> Result<Option<u16>, i32> {
    let (replace, create) = (flags & NLM_F_REPLACE != 0, flags & NLM_F_CREATE != 0);
    if entries.is_empty() && replace && !create {
        return Err(libc::ENOENT);
    }
    let merges =
        |entry: &RouteEntry| matches!(entry.forward, RouteForward::Via(via) if via.gateway.is_some());
    let same: Vec<usize> = (0..entries.len()).filter(|at| entries[*at].metric == entry.metric).collect();
    if !same.is_empty() && flags & NLM_F_EXCL != 0 {
        return Err(libc::EEXIST);
    }
    if replace {
        let of_kind = same.iter().find(|at| merges(&entries[**at]) == merges(&entry));
        if let Some(at) = of_kind.or(same.first()) {
            entries[*at] = entry;
            return Ok(Some(NLM_F_REPLACE));
        }
        if !create {
            return Err(libc::ENOENT);
        }
    } else if same.iter().any(|at| entries[*at].forward == entry.forward) {
        return Err(libc::EEXIST);
    }
    let behind = entries.iter().rposition(|known| known.metric <= entry.metric).map_or(0, |at| at + 1);
    entries.insert(behind, entry);
    Ok(Some(NLM_F_CREATE | flags & NLM_F_APPEND))
}
