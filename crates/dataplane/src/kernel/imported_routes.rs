//! Imported routes: routes that other programs put into the kernel (an administrator, DHCP, router
//! advertisements, another routing daemon). The RIB takes them as candidates of protocol `kernel`,
//! so that next hops resolve through them.
//!
//! For the default VRF they come from the main table, whichever table ribtide writes, because the
//! host itself uses it; for a VRF from its table. The kernel's own routes are left out, because
//! they belong to addresses, and so is everything but plain forwarding or dropping.

use ribtide_config::KernelConfig;
use ribtide_prefix::{Families, Family, Map, PerFamily, Prefix, Set, for_each_family};
use ribtide_rib::{NONE, NextHops, Protocol, ReceivedHop, RouteBatch, RouteSet, Source, Vrf, VrfId};
use ribtide_wire::netlink::numbers::{RT_TABLE_MAIN, RTM_F_CLONED, RTPROT_KERNEL, RTPROT_REDIRECT};
use ribtide_wire::netlink::{Content, Forward, Hop, Link, Member, NextHops as Given, Route, RouteKind, Via};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// The next hops of a route in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Forwarding {
    Blackhole,
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

/// One route.
struct ImportedRoute {
    forwarding: Forwarding,
    prefsrc: Option<IpAddr>,
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
    tables: Families<Tables>,
    objects: Map<u32, Object>,
}

impl ImportedRoutes {
    /// An empty table for the default VRF.
    pub(super) fn new(config: &KernelConfig) -> ImportedRoutes {
        let table = if config.vrf.is_some() { config.table } else { RT_TABLE_MAIN.into() };
        ImportedRoutes::of(config, Vrf { table, ..Vrf::default() })
    }

    /// An empty table for another VRF.
    pub(super) fn of(config: &KernelConfig, vrf: Vrf) -> ImportedRoutes {
        let Vrf { id, table, .. } = vrf;
        ImportedRoutes {
            vrf: id,
            ours: config.protocol,
            table,
            tables: Families::default(),
            objects: Map::default(),
        }
    }

    /// Whether it belongs to this VRF.
    pub(super) fn is_of(&self, vrf: Vrf) -> bool {
        (self.vrf, self.table) == (vrf.id, vrf.table)
    }

    /// The source table.
    pub(super) fn table(&self) -> u32 {
        self.table
    }

    /// Starts over before a dump; routes that the dump does not have are removed.
    pub(super) fn restart(&mut self) {
        self.objects.clear();
        for_each_family!(F => {
            let table = self.tables.get_mut::<F>();
            table.touched.extend(table.routes.drain().map(|(prefix, _)| prefix));
        });
    }

    /// Handles a message of a dump or a notification.
    pub(super) fn take(&mut self, content: &Content<'_>) {
        match content {
            Content::NewRoute(route) => for_each_family!(F => self.route::<F>(route, true)),
            Content::DelRoute(route) => for_each_family!(F => self.route::<F>(route, false)),
            Content::NewNextHop(object) => {
                let content = match object.forward {
                    Forward::Blackhole(_) => Object::Blackhole,
                    Forward::Via(_, via) => Object::Single(via),
                    Forward::Group(members) => Object::Group(members.collect()),
                    Forward::Other => Object::Other,
                };
                self.objects.insert(object.id, content);
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
                    Forwarding::Blackhole => false,
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
                            distance: Protocol::Kernel.default_distance(),
                            metric,
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

    fn route<F: Family>(&mut self, route: &Route<'_>, there: bool) {
        let Some(prefix) = Prefix::<F>::from_addr(route.prefix.addr(), route.prefix.len()) else { return };
        if !self.wanted(route) {
            return;
        }
        let table = self.tables.get_mut::<F>();
        let metric = route.metric.unwrap_or(0);
        if there {
            let forwarding = match (route.kind, route.next_hops) {
                (RouteKind::Unicast, Given::Id(id)) => Forwarding::Object(id),
                (RouteKind::Unicast, Given::Inline(hops)) => Forwarding::Hops(hops.collect()),
                _ => Forwarding::Blackhole,
            };
            let known = ImportedRoute { forwarding, prefsrc: route.prefsrc };
            table.routes.entry(prefix).or_default().insert(metric, known);
        } else if let Some(routes) = table.routes.get_mut(&prefix) {
            routes.remove(&metric);
            if routes.is_empty() {
                table.routes.remove(&prefix);
            }
        }
        table.touched.insert(prefix);
    }

    fn wanted(&self, route: &Route<'_>) -> bool {
        let kind = match route.kind {
            RouteKind::Unicast => !matches!(route.next_hops, Given::None),
            RouteKind::Blackhole | RouteKind::Unreachable | RouteKind::Prohibit => true,
            _ => false,
        };
        let link_only = match route.prefix.addr() {
            IpAddr::V4(a) => a.is_multicast() || a.is_link_local(),
            IpAddr::V6(a) => a.is_multicast() || a.is_unicast_link_local(),
        };
        kind && !link_only
            && route.table == self.table
            && route.encap == 0
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
            Some((_, NextHops::Via(hops))) if next_hops != NextHops::Blackhole => hops,
            _ => Vec::new(),
        };
        Some(Best { metric, next_hops, backup })
    }

    fn next_hops(&self, forwarding: &Forwarding) -> Option<NextHops> {
        let hops: Vec<Hop> = match forwarding {
            Forwarding::Blackhole => return Some(NextHops::Blackhole),
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
    use ribtide_wire::netlink::{Hops, Members, NextHop};

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
        // A dump that shows the same changes nothing; one that does not show it takes it away.
        imported.restart();
        imported.take(&Content::NewRoute(far));
        assert!(news(&mut imported).is_empty());
        imported.restart();
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
        assert_eq!(news(&mut imported), ["2001:db8::/32 9 dropped"]);
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
