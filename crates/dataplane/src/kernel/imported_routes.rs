//! Imported routes: routes that other programs put into the kernel (an administrator, DHCP, router
//! advertisements, another routing daemon). The RIB takes them as candidates of protocol `kernel`,
//! so that next hops resolve through them.
//!
//! For the default VRF they come from the main table, whichever table ribtide writes, because the
//! host itself uses it; for a VRF from its table. The kernel's own routes are left out, because
//! they belong to addresses, and so is everything but plain forwarding or dropping.
//!
//! A route with ribtide's metric may be in the place of one of ribtide's, and then the writer
//! replaces it without a notification. So such a route counts only when the kernel was read again.

use ribtide_config::KernelConfig;
use ribtide_netlink::Socket;
use ribtide_prefix::{Afi, AnyPrefix, Families, Family, Map, PerFamily, Prefix, Set, for_each_family};
use ribtide_rib::{NONE, NextHops, Protocol, ReceivedHop, RouteBatch, RouteSet, Source, Vrf, VrfId};
use ribtide_wire::netlink::numbers::{
    RT_TABLE_MAIN, RTM_F_CLONED, RTN_THROW, RTPROT_KERNEL, RTPROT_REDIRECT,
};
use ribtide_wire::netlink::{
    Content, Forward, Hop, Link, Member, NextHop, NextHops as Given, Route, RouteKind, Via, dump_next_hops,
    dump_routes,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

/// The next hops of a route in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Forwarding {
    Blackhole,
    /// It refuses packets, or sends the look-up to the next table, which has no route in the usual order.
    Unreachable,
    Hops(Vec<Hop>),
    Object(u32),
}

/// A next-hop object.
enum Object {
    Blackhole,
    Single(Via),
    Group(Vec<Member>),
    /// An unsupported kind.
    Other,
}

impl Object {
    fn of(object: &NextHop<'_>) -> Object {
        match object.forward {
            Forward::Blackhole(_) => Object::Blackhole,
            Forward::Via(_, via) => Object::Single(via),
            Forward::Group(members) => Object::Group(members.collect()),
            Forward::Other => Object::Other,
        }
    }
}

/// One route.
#[derive(PartialEq, Eq)]
struct ImportedRoute {
    forwarding: Forwarding,
    prefsrc: Option<IpAddr>,
    /// The protocol number of its program.
    protocol: u8,
}

/// The imported route of a prefix.
#[derive(Clone, PartialEq, Eq)]
struct Best {
    /// The lowest metric.
    metric: u32,
    /// The next hops of that route.
    next_hops: NextHops,
    /// The next hops of the route with the next metric. The kernel uses them as soon as it drops
    /// the first route with its link, without a notification, so the RIB must not wait for a dump.
    backup: Vec<ReceivedHop>,
}

/// The routes of one family.
#[derive(Default)]
struct Table<F: Family> {
    /// Routes by metric; the lowest is used.
    routes: Map<Prefix<F>, BTreeMap<u32, ImportedRoute>>,
    sent: Map<Prefix<F>, Best>,
    touched: Set<Prefix<F>>,
}

struct Tables;
impl PerFamily for Tables {
    type Of<F: Family> = Table<F>;
}

/// The imported routes, and their last state sent to the RIB.
pub(super) struct ImportedRoutes {
    vrf: VrfId,
    /// The protocol number of own routes.
    ours: u8,
    /// The source table.
    table: u32,
    /// The metric of own routes, if they are in the same table.
    own_metric: Option<u32>,
    tables: Families<Tables>,
    objects: Map<u32, Object>,
    /// Protocol numbers of routes that are to be read again: those with that metric, and others that
    /// may be before or behind a known one.
    unverified: BTreeSet<u8>,
    /// Prefixes and metrics of which the kernel has several routes (`ip route append`). It uses the
    /// first, which is the known one.
    several: BTreeSet<Key>,
    /// Whether the order of routes of several programs is to be read again.
    unordered: bool,
}

/// In the place of a program's protocol number: the routes of all.
const ALL: u8 = 0;

/// A route of another program in a dump.
type Key = (AnyPrefix, u32);

impl ImportedRoutes {
    /// An empty table for the default VRF.
    pub(super) fn new(config: &KernelConfig) -> ImportedRoutes {
        let table = table(config);
        let own_metric = (table == config.table).then_some(config.metric);
        ImportedRoutes { own_metric, ..ImportedRoutes::of(config, Vrf { table, ..Vrf::default() }) }
    }

    /// An empty table for another VRF.
    pub(super) fn of(config: &KernelConfig, vrf: Vrf) -> ImportedRoutes {
        let Vrf { id, table, .. } = vrf;
        ImportedRoutes {
            vrf: id,
            ours: config.protocol,
            table,
            own_metric: Some(config.metric),
            tables: Families::default(),
            objects: Map::default(),
            unverified: BTreeSet::new(),
            several: BTreeSet::new(),
            unordered: false,
        }
    }

    /// Whether it belongs to this VRF.
    pub(super) fn is_of(&self, vrf: Vrf) -> bool {
        (self.vrf, self.table) == (vrf.id, vrf.table)
    }

    /// Reads the whole table, and all next-hop objects. Takes over what differs.
    ///
    /// # Errors
    /// The kernel refuses a dump.
    pub(super) fn read_all(&mut self, requests: &mut Socket) -> io::Result<()> {
        self.objects = requests.dump(dump_next_hops, |objects: &mut Map<u32, Object>, content| {
            if let Content::NewNextHop(object) = content {
                objects.insert(object.id, Object::of(&object));
            }
        })?;
        for_each_family!(F => {
            let table = self.tables.get_mut::<F>();
            table.touched.extend(table.routes.keys());
        });
        (self.unordered, self.unverified) = (false, BTreeSet::new());
        self.several.clear();
        self.verify_protocol(requests, ALL).map(drop)
    }

    /// Handles a notification. A new route with the metric of own routes waits for
    /// [`ImportedRoutes::verify`]. Returns whether it is a new route to be imported.
    pub(super) fn notified(&mut self, content: &Content<'_>) -> bool {
        let mut is_new = false;
        match content {
            Content::NewRoute(route) if self.wanted(route) => {
                let known = self.protocol_of(route);
                let in_own_place = self.own_metric == Some(route.metric.unwrap_or(0));
                if in_own_place || known.is_some() {
                    self.unverified.insert(route.protocol);
                }
                self.unordered |= known.is_some_and(|known| known != route.protocol);
                is_new = true;
                if in_own_place && known.is_none() {
                    return true;
                }
            }
            // It may have replaced the known one.
            Content::NewRoute(route) if route.table == self.table => {
                self.unverified.extend(self.protocol_of(route));
            }
            Content::DelRoute(route) if route.table == self.table => {
                self.unordered |= self.several.contains(&key(route));
            }
            _ => {}
        }
        self.take(content);
        is_new
    }

    /// The program of the known route of this prefix and metric.
    fn protocol_of(&self, route: &Route<'_>) -> Option<u8> {
        let (prefix, metric) = key(route);
        let mut protocol = None;
        for_each_family!(F => if let Some(prefix) = Prefix::<F>::from_addr(prefix.addr(), prefix.len()) {
            let routes = self.tables.get::<F>().routes.get(&prefix);
            protocol = routes.and_then(|routes| routes.get(&metric)).map(|known| known.protocol);
        });
        protocol
    }

    /// Whether the whole table is to be read.
    pub(super) fn is_unordered(&self) -> bool {
        self.unordered
    }

    /// Whether a route waits for [`ImportedRoutes::verify`].
    pub(super) fn is_unverified(&self) -> bool {
        !self.unverified.is_empty()
    }

    /// Whether it has routes.
    pub(super) fn is_empty(&self) -> bool {
        self.tables.v4.routes.is_empty() && self.tables.v6.routes.is_empty()
    }

    /// Reads the routes of the known programs again. Takes over what differs, and returns how many
    /// routes differed, without those that waited for it. The kernel leaves out a route of a dump
    /// now and then, so a route is gone only if two dumps do not have it.
    ///
    /// # Errors
    /// The kernel refuses a dump.
    pub(super) fn verify(&mut self, requests: &mut Socket) -> io::Result<usize> {
        let mut known: BTreeSet<u8> = BTreeSet::new();
        for_each_family!(F => {
            let routes = self.tables.get::<F>().routes.values().flat_map(BTreeMap::values);
            known.extend(routes.map(|route| route.protocol));
        });
        let waiting = std::mem::take(&mut self.unverified);
        let mut differing = 0;
        for protocol in known.union(&waiting) {
            let read = self.verify_protocol(requests, *protocol);
            match read {
                Ok(count) => differing += count,
                Err(e) => {
                    self.unverified = waiting;
                    return Err(e);
                }
            }
        }
        Ok(differing)
    }

    fn verify_protocol(&mut self, requests: &mut Socket, protocol: u8) -> io::Result<usize> {
        let mut differing = 0;
        for_each_family!(F => {
            let found = self.read::<F>(requests, protocol, &mut differing)?;
            let mut gone = self.without::<F>(protocol, &found);
            if !gone.is_empty() {
                let found = self.read::<F>(requests, protocol, &mut differing)?;
                gone.retain(|(prefix, metric)| !found.contains(&(prefix.any(), *metric)));
            }
            differing += gone.len();
            for (prefix, metric) in gone {
                self.remove(prefix, metric);
                self.unordered |= self.several.contains(&(prefix.any(), metric));
            }
        });
        Ok(differing)
    }

    /// Reads the routes of a program, or of [`ALL`]. Counts those with another content than the known
    /// one. The dump has the routes of a prefix and metric in their order.
    fn read<F: Family>(
        &mut self,
        requests: &mut Socket,
        protocol: u8,
        differing: &mut usize,
    ) -> io::Result<BTreeSet<Key>> {
        let table = self.table;
        let read = requests.dump(
            |out, seq| dump_routes(out, seq, F::AFI, table, protocol),
            |found: &mut BTreeSet<Key>, content| {
                // A kernel without strict checks sends the routes of others too.
                let Content::NewRoute(route) = &content else { return };
                if ![ALL, route.protocol].contains(&protocol) || !self.wanted(route) {
                    return;
                }
                let known = self.protocol_of(route);
                let is_others = protocol != ALL && known.is_some_and(|known| known != protocol);
                if !found.insert(key(route)) || is_others {
                    self.several.insert(key(route));
                    return;
                }
                let is_new = known.is_none() && self.own_metric == Some(key(route).1);
                *differing += usize::from(self.route::<F>(route, true) && !is_new);
            },
        );
        match read {
            // A kernel without the family, or the table, has no routes of it.
            Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {
                Ok(BTreeSet::new())
            }
            other => other,
        }
    }

    /// Known routes of a program, or of [`ALL`], that are not in this dump.
    fn without<F: Family>(&self, protocol: u8, found: &BTreeSet<Key>) -> Vec<(Prefix<F>, u32)> {
        let mut missing = Vec::new();
        for (prefix, routes) in &self.tables.get::<F>().routes {
            let of = routes.iter().filter(|(_, known)| [ALL, known.protocol].contains(&protocol));
            let lost = of.filter(|(metric, _)| !found.contains(&(prefix.any(), **metric)));
            missing.extend(lost.map(|(metric, _)| (*prefix, *metric)));
        }
        missing
    }

    fn take(&mut self, content: &Content<'_>) {
        match content {
            Content::NewRoute(route) => for_each_family!(F => { self.route::<F>(route, true); }),
            Content::DelRoute(route) => for_each_family!(F => { self.route::<F>(route, false); }),
            Content::NewNextHop(object) => {
                self.objects.insert(object.id, Object::of(object));
                self.object_changed(object.id);
            }
            Content::DelNextHop(id) => {
                self.objects.remove(id);
                self.object_changed(*id);
                // The kernel deletes the routes of an object with it, and notifies for IPv6 only.
                for_each_family!(F => {
                    let table = self.tables.get_mut::<F>();
                    table.routes.retain(|_, routes| {
                        routes.retain(|_, known| known.forwarding != Forwarding::Object(*id));
                        !routes.is_empty()
                    });
                });
            }
            _ => {}
        }
    }

    /// Whether the kernel may drop known routes without a notification after this message: an
    /// interface was switched off, or an address is gone.
    pub(super) fn may_have_lost(&self, content: &Content<'_>) -> bool {
        let (ifindex, address) = match content {
            Content::NewLink(link) if !switched_on(link) => (link.index, None),
            Content::DelLink(link) => (link.index, None),
            Content::DelAddress(address) => (address.ifindex, Some(address.local)),
            _ => return false,
        };
        let concerned = |known: &ImportedRoute| {
            known.prefsrc.is_some() && known.prefsrc == address
                || match &known.forwarding {
                    Forwarding::Blackhole | Forwarding::Unreachable => false,
                    Forwarding::Hops(hops) => hops.iter().any(|hop| hop.via.ifindex == ifindex),
                    Forwarding::Object(_) => true,
                }
        };
        let v4 = self.tables.v4.routes.values().flat_map(BTreeMap::values);
        let v6 = self.tables.v6.routes.values().flat_map(BTreeMap::values);
        v4.chain(v6).any(concerned)
    }

    /// The changes for the RIB.
    pub(super) fn news(&mut self) -> Option<RouteBatch> {
        let mut batch = RouteBatch {
            vrf: self.vrf,
            source: Source::Kernel,
            sets: Vec::new(),
            changes: Families::default(),
        };
        for_each_family!(F => {
            let mut touched: Vec<Prefix<F>> = self.tables.get_mut::<F>().touched.drain().collect();
            touched.sort_unstable();
            for prefix in touched {
                let best = self.best(prefix);
                let sent = &mut self.tables.get_mut::<F>().sent;
                if sent.get(&prefix) == best.as_ref() {
                    continue;
                }
                let set = match best {
                    Some(best) => {
                        sent.insert(prefix, best.clone());
                        let Best { metric, next_hops, backup } = best;
                        batch.sets.push(RouteSet {
                            next_hops,
                            backup,
                            backup_recursion: true,
                            track: None,
                            distance: distance(metric),
                            metric: metric & METRIC_BITS,
                            // The kernel checked that the gateway is reachable; it may be behind
                            // another of these routes.
                            allow_recursion: true,
                            protocol: Protocol::Kernel,
                        });
                        batch.sets.len() as u32 - 1
                    }
                    None => {
                        sent.remove(&prefix);
                        NONE
                    }
                };
                batch.changes.get_mut::<F>().push((prefix, set));
            }
        });
        (!batch.changes.v4.is_empty() || !batch.changes.v6.is_empty()).then_some(batch)
    }

    /// Takes over a route that is or is no longer there. Returns whether that is a change.
    fn route<F: Family>(&mut self, route: &Route<'_>, there: bool) -> bool {
        let Some(prefix) = Prefix::<F>::from_addr(route.prefix.addr(), route.prefix.len()) else {
            return false;
        };
        if !self.wanted(route) {
            return false;
        }
        let metric = route.metric.unwrap_or(0);
        if !there {
            return self.remove_hops(prefix, metric, route.next_hops);
        }
        let forwarding = match (route.kind, route.next_hops) {
            (RouteKind::Unicast, Given::Id(id)) => Forwarding::Object(id),
            (RouteKind::Unicast, Given::Inline(hops)) => Forwarding::Hops(hops.collect()),
            (RouteKind::Unreachable | RouteKind::Prohibit | RouteKind::Other(_), _) => {
                Forwarding::Unreachable
            }
            _ => Forwarding::Blackhole,
        };
        let known = ImportedRoute { forwarding, prefsrc: route.prefsrc, protocol: route.protocol };
        let table = self.tables.get_mut::<F>();
        let routes = table.routes.entry(prefix).or_default();
        if routes.get(&metric) == Some(&known) {
            return false;
        }
        routes.insert(metric, known);
        table.touched.insert(prefix);
        true
    }

    /// Removes the next hops of a route: the kernel may take single ones from an IPv6 route of
    /// several. Returns whether that is a change.
    fn remove_hops<F: Family>(&mut self, prefix: Prefix<F>, metric: u32, gone: Given<'_>) -> bool {
        let table = self.tables.get_mut::<F>();
        let known = table.routes.get_mut(&prefix).and_then(|routes| routes.get_mut(&metric));
        if let (Some(Forwarding::Hops(hops)), Given::Inline(gone)) =
            (known.map(|route| &mut route.forwarding), gone)
        {
            let gone: Vec<Via> = gone.map(|hop| hop.via).collect();
            let before = hops.len();
            let stay = |hop: &Hop| !gone.contains(&hop.via);
            if F::AFI == Afi::Ipv6 && hops.iter().any(stay) {
                hops.retain(stay);
                table.touched.insert(prefix);
                return hops.len() < before;
            }
        }
        self.remove(prefix, metric)
    }

    /// Removes a route. Returns whether it was there.
    fn remove<F: Family>(&mut self, prefix: Prefix<F>, metric: u32) -> bool {
        let table = self.tables.get_mut::<F>();
        let Some(routes) = table.routes.get_mut(&prefix) else { return false };
        let known = routes.remove(&metric).is_some();
        if routes.is_empty() {
            table.routes.remove(&prefix);
        }
        if known {
            table.touched.insert(prefix);
        }
        known
    }

    fn wanted(&self, route: &Route<'_>) -> bool {
        let kind = match route.kind {
            RouteKind::Unicast => !matches!(route.next_hops, Given::None),
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => true,
            RouteKind::Other(RTN_THROW) => true,
            _ => false,
        };
        let link_only = match route.prefix.addr() {
            IpAddr::V4(a) => a.is_multicast() || a.is_link_local(),
            IpAddr::V6(a) => a.is_multicast() || a.is_unicast_link_local(),
        };
        kind && !link_only
            && route.table == self.table
            && route.encap == 0
            && route.tos == 0
            && route.flags & RTM_F_CLONED == 0
            && ![self.ours, RTPROT_KERNEL, RTPROT_REDIRECT].contains(&route.protocol)
    }

    /// An object has other content, which may change its routes and groups.
    fn object_changed(&mut self, id: u32) {
        let in_group = |n: &u32| matches!(self.objects.get(n), Some(Object::Group(members)) if members.iter().any(|m| m.id == id));
        let concerned = |known: &ImportedRoute| matches!(&known.forwarding, Forwarding::Object(n) if *n == id || in_group(n));
        for_each_family!(F => {
            let Table { routes, touched, .. } = self.tables.get_mut::<F>();
            let found = routes.iter().filter(|(_, routes)| routes.values().any(concerned));
            touched.extend(found.map(|(prefix, _)| *prefix));
        });
    }

    /// The routes of the lowest two metrics with known next hops.
    fn best<F: Family>(&self, prefix: Prefix<F>) -> Option<Best> {
        let routes = self.tables.get::<F>().routes.get(&prefix)?;
        let mut known =
            routes.iter().filter_map(|(metric, known)| Some((*metric, self.next_hops(&known.forwarding)?)));
        let (metric, next_hops) = known.next()?;
        let backup = match known.next() {
            Some((_, NextHops::Via(hops))) if matches!(next_hops, NextHops::Via(_)) => hops,
            _ => Vec::new(),
        };
        Some(Best { metric, next_hops, backup })
    }

    fn next_hops(&self, forwarding: &Forwarding) -> Option<NextHops> {
        let hops: Vec<Hop> = match forwarding {
            Forwarding::Blackhole => return Some(NextHops::Blackhole),
            Forwarding::Unreachable => return Some(NextHops::Unreachable),
            Forwarding::Hops(hops) => hops.clone(),
            Forwarding::Object(id) => match self.objects.get(id)? {
                Object::Blackhole => return Some(NextHops::Blackhole),
                Object::Single(via) => vec![Hop { via: *via, weight: 1 }],
                Object::Group(members) => members
                    .iter()
                    .filter_map(|member| match self.objects.get(&member.id)? {
                        Object::Single(via) => Some(Hop { via: *via, weight: member.weight }),
                        _ => None,
                    })
                    .collect(),
                Object::Other => return None,
            },
        };
        let hops: Vec<ReceivedHop> = hops.iter().filter_map(received).collect();
        (!hops.is_empty()).then_some(NextHops::Via(hops))
    }
}

/// The bits of a kernel's metric that are one; those above are an administrative distance.
const METRIC_BITS: u32 = 0x00ff_ffff;

/// The administrative distance of a kernel's route, by FRR's convention (zebra, "Administrative Distance"): the highest byte
/// of the metric. A route of last resort, such as `unreachable default metric 4278198272` of a VRF, has 255 so, and is
/// never used; the usual metrics have 0.
fn distance(metric: u32) -> u8 {
    Protocol::Kernel.default_distance().max((metric >> 24) as u8)
}

/// The table that routes of the default VRF are imported from.
pub(super) fn table(config: &KernelConfig) -> u32 {
    if config.vrf.is_some() { config.table } else { RT_TABLE_MAIN.into() }
}

/// The prefix and the metric of a route.
fn key(route: &Route<'_>) -> Key {
    (route.prefix, route.metric.unwrap_or(0))
}

fn received(hop: &Hop) -> Option<ReceivedHop> {
    let Via { gateway, ifindex, onlink } = hop.via;
    let interface = (ifindex != 0).then_some(ifindex);
    // The kernel forwards an imported route by its interface, whatever other routes exist. So must
    // next hops that resolve through it.
    let onlink = onlink || interface.is_some();
    // The RIB does not know a hop without gateway and interface.
    (gateway.is_some() || interface.is_some()).then_some(ReceivedHop {
        gateway,
        interface,
        weight: hop.weight,
        onlink,
    })
}

/// Whether the interface is administratively up. Without carrier alone, the kernel keeps its
/// routes.
fn switched_on(link: &Link<'_>) -> bool {
    link.flags & ribtide_wire::netlink::numbers::IFF_UP != 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::netlink::numbers::{RTPROT_BGP, RTPROT_STATIC};
    use ribtide_wire::netlink::{Hops, Members};

    fn hop(gateway: &str, ifindex: u32) -> Hop {
        let gateway = (!gateway.is_empty()).then(|| gateway.parse().unwrap());
        Hop { via: Via { gateway, ifindex, onlink: false }, weight: 1 }
    }

    fn route<'a>(prefix: &str, metric: u32, next_hops: Given<'a>) -> Route<'a> {
        let metric = Some(metric);
        Route {
            metric,
            ..Route::new(prefix.parse().unwrap(), RT_TABLE_MAIN.into(), RTPROT_STATIC, next_hops)
        }
    }

    /// What the RIB hears: a line for each change.
    fn news(imported: &mut ImportedRoutes) -> Vec<String> {
        let Some(batch) = imported.news() else { return Vec::new() };
        let mut lines = Vec::new();
        for_each_family!(F => for (prefix, set) in batch.changes.get::<F>() {
            lines.push(match batch.sets.get(*set as usize) {
                None => format!("{prefix} gone"),
                Some(RouteSet { next_hops: NextHops::Blackhole, metric, .. }) => format!("{prefix} {metric} dropped"),
                Some(RouteSet { next_hops: NextHops::Unreachable, metric, .. }) => format!("{prefix} {metric} refused"),
                Some(RouteSet { next_hops: NextHops::Via(hops), metric, backup, .. }) => {
                    let written = |hops: &[ReceivedHop]| hops.iter().map(|h| format!(
                        " {}@{}",
                        h.gateway.map_or("link".into(), |g| g.to_string()),
                        h.interface.unwrap_or(0)
                    )).collect::<String>();
                    let backup = if backup.is_empty() { String::new() } else { format!(" or{}", written(backup)) };
                    format!("{prefix} {metric}{}{backup}", written(hops))
                }
            });
        });
        lines
    }

    #[test]
    fn the_lowest_metric_counts_and_the_next_one_after_it() {
        let mut imported = ImportedRoutes::new(&KernelConfig::default());
        let (near, far) = ([hop("10.0.0.2", 3)], [hop("10.1.0.2", 4)]);
        let near = route("192.0.2.0/24", 10, Given::Inline(Hops::from(&near[..])));
        let far = route("192.0.2.0/24", 20, Given::Inline(Hops::from(&far[..])));
        imported.take(&Content::NewRoute(far));
        imported.take(&Content::NewRoute(near));
        assert_eq!(news(&mut imported), ["192.0.2.0/24 10 10.0.0.2@3 or 10.1.0.2@4"]);
        assert!(news(&mut imported).is_empty());
        imported.take(&Content::DelRoute(near));
        assert_eq!(news(&mut imported), ["192.0.2.0/24 20 10.1.0.2@4"]);
        imported.take(&Content::NewRoute(far));
        assert!(news(&mut imported).is_empty());
        imported.take(&Content::DelRoute(far));
        assert_eq!(news(&mut imported), ["192.0.2.0/24 gone"]);
    }

    #[test]
    fn what_is_ours_or_the_kernels_or_no_forwarding_is_left_out() {
        let mut imported = ImportedRoutes::new(&KernelConfig::default());
        let hops = [hop("10.0.0.2", 3)];
        let plain = route("192.0.2.0/24", 0, Given::Inline(Hops::from(&hops[..])));
        for protocol in [RTPROT_BGP, RTPROT_KERNEL, RTPROT_REDIRECT] {
            imported.take(&Content::NewRoute(Route { protocol, ..plain }));
        }
        imported.take(&Content::NewRoute(Route { table: 100, ..plain }));
        imported.take(&Content::NewRoute(Route { kind: RouteKind::Local, ..plain }));
        imported.take(&Content::NewRoute(Route { flags: RTM_F_CLONED, ..plain }));
        imported.take(&Content::NewRoute(Route { encap: 1, ..plain }));
        imported.take(&Content::NewRoute(route("fe80::/64", 0, Given::Inline(Hops::from(&hops[..])))));
        assert!(news(&mut imported).is_empty());
        let dropped = Route { kind: RouteKind::Unreachable, ..route("2001:db8::/32", 9, Given::None) };
        imported.take(&Content::NewRoute(dropped));
        assert_eq!(news(&mut imported), ["2001:db8::/32 9 refused"]);
        for (kind, is) in [
            (RouteKind::Prohibit, "refused"),
            (RouteKind::Other(RTN_THROW), "refused"),
            (RouteKind::Blackhole, "dropped"),
        ] {
            imported.take(&Content::NewRoute(Route { kind, ..route("192.0.2.0/24", 9, Given::None) }));
            assert_eq!(news(&mut imported), [format!("192.0.2.0/24 9 {is}")]);
            imported.take(&Content::DelRoute(Route { kind, ..route("192.0.2.0/24", 9, Given::None) }));
            news(&mut imported);
        }
    }

    #[test]
    fn the_highest_byte_of_a_metric_is_a_distance() {
        let mut imported = ImportedRoutes::new(&KernelConfig::default());
        let hops = [hop("10.0.0.2", 3)];
        for (metric, expected) in [(1024, (0, 1024)), (0x1e00_0005, (30, 5)), (4_278_198_272, (255, 8192))] {
            imported.take(&Content::NewRoute(route(
                "0.0.0.0/0",
                metric,
                Given::Inline(Hops::from(&hops[..])),
            )));
            let batch = imported.news().unwrap();
            assert_eq!((batch.sets[0].distance, batch.sets[0].metric), expected);
            imported.take(&Content::DelRoute(route(
                "0.0.0.0/0",
                metric,
                Given::Inline(Hops::from(&hops[..])),
            )));
            imported.news();
        }
    }

    #[test]
    fn routes_by_an_object_follow_it() {
        let mut imported = ImportedRoutes::new(&KernelConfig::default());
        let single = |id, gateway: &str| {
            let forward = Forward::via(hop(gateway, 3).via);
            Content::NewNextHop(NextHop { id, protocol: RTPROT_STATIC, forward })
        };
        let members = [Member { id: 1, weight: 1 }, Member { id: 2, weight: 1 }];
        imported.take(&Content::NewRoute(route("192.0.2.0/24", 0, Given::Id(9))));
        assert!(news(&mut imported).is_empty(), "the object is not known yet");
        imported.take(&single(1, "10.0.0.2"));
        imported.take(&single(2, "10.0.0.3"));
        let forward = Forward::Group(Members::from(&members[..]));
        imported.take(&Content::NewNextHop(NextHop { id: 9, protocol: RTPROT_STATIC, forward }));
        assert_eq!(news(&mut imported), ["192.0.2.0/24 0 10.0.0.2@3 10.0.0.3@3"]);
        imported.take(&single(1, "10.0.0.4"));
        assert_eq!(news(&mut imported), ["192.0.2.0/24 0 10.0.0.4@3 10.0.0.3@3"]);
        imported.take(&Content::DelNextHop(9));
        assert_eq!(news(&mut imported), ["192.0.2.0/24 gone"]);
    }

    #[test]
    fn an_interface_that_is_switched_off_takes_routes_along() {
        let mut imported = ImportedRoutes::new(&KernelConfig::default());
        let hops = [hop("10.0.0.2", 3)];
        imported.take(&Content::NewRoute(route("192.0.2.0/24", 0, Given::Inline(Hops::from(&hops[..])))));
        let link = |index, flags| {
            Content::NewLink(Link {
                index,
                name: "eth0",
                flags,
                mtu: 1500,
                master: None,
                kind: None,
                vrf_table: None,
                carrier_down_count: None,
            })
        };
        assert!(imported.may_have_lost(&link(3, 0)));
        assert!(!imported.may_have_lost(&link(4, 0)));
        assert!(!imported.may_have_lost(&link(3, 1)), "without a carrier the kernel keeps them");
    }
}
