//! The forwarding state of the kernel, for `route-check`: own routes, and their next-hop objects.

use super::flush::Scope;
use ribtide_config::KernelConfig;
use ribtide_netlink::Socket;
use ribtide_prefix::{Afi, AfiSafi, AnyPrefix, FamilySet, Map, Set};
use ribtide_rib::{FibGroup, IfIndex};
use ribtide_wire::netlink::numbers::{RT_TABLE_LOCAL, RTM_F_CLONED};
use ribtide_wire::netlink::scale_weight;
use ribtide_wire::netlink::{
    Content, Forward, Hop, Member, NextHops, Route, RouteKind, Via, dump_next_hops, dump_routes, dump_table,
};
use std::fmt;
use std::io;
use std::net::IpAddr;

/// A hop: gateway, interface and weight, which is 1 for a single hop.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelHop {
    pub gateway: Option<IpAddr>,
    pub interface: IfIndex,
    pub weight: u16,
}

/// The forwarding of packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// Packets are dropped.
    Drop,
    /// Packets leave by one of these hops, in order.
    Hops(Vec<KernelHop>),
    /// Something that ribtide never writes, as text.
    Other(&'static str),
}

/// An own route in the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Installed {
    /// It uses the next-hop object of this id.
    Object(u32),
    /// It has inline next hops.
    Inline(Forwarding),
}

impl Installed {
    fn of(config: &KernelConfig, route: &Route<'_>) -> Installed {
        if route.metric.unwrap_or(0) != config.metric {
            return Installed::Inline(Forwarding::Other("a route of another metric"));
        }
        Installed::Inline(match (route.kind, route.next_hops) {
            (RouteKind::Unicast, NextHops::Id(id)) => return Installed::Object(id),
            (RouteKind::Unicast, NextHops::Inline(hops)) => Forwarding::hops(hops.map(KernelHop::of)),
            // A route that uses a blackhole object is a blackhole route.
            (RouteKind::Blackhole, NextHops::Id(id)) => return Installed::Object(id),
            (RouteKind::Blackhole, _) => Forwarding::Drop,
            _ => Forwarding::Other("a route of another type"),
        })
    }

    /// Its forwarding with these `objects`.
    pub fn forwarding(&self, objects: &Map<u32, Forwarding>) -> Forwarding {
        match self {
            Installed::Object(id) => {
                objects.get(id).cloned().unwrap_or(Forwarding::Other("a next-hop object that is gone"))
            }
            Installed::Inline(forwarding) => forwarding.clone(),
        }
    }
}

impl KernelHop {
    fn of(hop: Hop) -> KernelHop {
        KernelHop::new(hop.via, hop.weight)
    }

    fn new(via: Via, weight: u16) -> KernelHop {
        KernelHop { gateway: via.gateway, interface: via.ifindex, weight }
    }
}

impl Forwarding {
    fn hops(hops: impl Iterator<Item = KernelHop>) -> Forwarding {
        let mut hops: Vec<KernelHop> = hops.collect();
        if let [only] = &mut hops[..] {
            only.weight = 1;
        }
        hops.sort_unstable();
        Forwarding::Hops(hops)
    }

    /// The expected forwarding of a group; `None` where any route, or none, is accepted.
    pub fn expected(group: &FibGroup) -> Option<Forwarding> {
        match group {
            FibGroup::Unresolved => None,
            FibGroup::Blackhole => Some(Forwarding::Drop),
            FibGroup::Hops(hops) => {
                let largest = hops.iter().map(|hop| hop.weight).max().unwrap_or(1);
                Some(Forwarding::hops(hops.iter().map(|hop| KernelHop {
                    gateway: hop.gateway,
                    interface: hop.interface,
                    weight: scale_weight(hop.weight, largest),
                })))
            }
        }
    }

    /// As text. `name` gives the names of interfaces.
    pub fn text(&self, name: impl Fn(IfIndex) -> String) -> String {
        let hops = match self {
            Forwarding::Drop => return "drop".to_owned(),
            Forwarding::Other(what) => return (*what).to_owned(),
            Forwarding::Hops(hops) => hops,
        };
        let hop = |hop: &KernelHop| {
            let interface = name(hop.interface);
            let way = match hop.gateway {
                Some(gateway) => format!("via {gateway} dev {interface}"),
                None => format!("dev {interface}"),
            };
            if hops.len() > 1 { format!("{way} weight {}", hop.weight) } else { way }
        };
        hops.iter().map(hop).collect::<Vec<_>>().join(", ")
    }
}

/// The own routes in the table of the default VRF.
///
/// # Errors
/// The error of the kernel.
pub fn installed(config: &KernelConfig) -> io::Result<Map<AnyPrefix, Installed>> {
    let mut socket = Socket::open()?;
    let mut all: Map<AnyPrefix, Installed> = Map::default();
    for afi in [Afi::Ipv4, Afi::Ipv6] {
        let (table, protocol) = (config.table, config.protocol);
        let found = socket.dump(
            |out, seq| dump_routes(out, seq, afi, table, protocol),
            |found: &mut Vec<(AnyPrefix, Installed)>, content| found.extend(ours(config, &content)),
        );
        match found {
            Ok(found) => {
                for (prefix, route) in found {
                    if all.insert(prefix, route).is_some() {
                        all.insert(prefix, Installed::Inline(Forwarding::Other("several routes")));
                    }
                }
            }
            // The kernel has no table without routes.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// The prefixes of other programs' and the kernel's own routes in the table that routes are imported
/// from, and of the local addresses and prefixes.
///
/// # Errors
/// The error of the kernel.
pub fn routes_of_others(config: &KernelConfig) -> io::Result<Set<AnyPrefix>> {
    let mut socket = Socket::open()?;
    let mut all = Set::default();
    for table in [super::imported_routes::table(config), RT_TABLE_LOCAL.into()] {
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            let found = socket.dump(
                |out, seq| dump_table(out, seq, afi, table),
                |found: &mut Vec<AnyPrefix>, content| {
                    if let Content::NewRoute(route) = content
                        && route.table == table
                        && route.protocol != config.protocol
                        && route.tos == 0
                        && route.flags & RTM_F_CLONED == 0
                    {
                        found.push(route.prefix);
                    }
                },
            );
            match found {
                Ok(found) => all.extend(found),
                // A kernel without the family, or the table, has no routes of it.
                Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP)) => {}
                Err(e) => return Err(e),
            }
        }
    }
    Ok(all)
}

/// The families with own routes in the table of the default VRF. It reads no more of the kernel than the first one of each.
///
/// # Errors
/// The error of the kernel.
pub fn installed_families(scope: &Scope) -> io::Result<FamilySet> {
    let protocol = scope.protocol;
    let mut families = FamilySet::NONE;
    // The tables of other VRFs, which come later, have no routes of BGP.
    let Some((table, _)) = scope.tables.first() else { return Ok(families) };
    for afi in [Afi::Ipv4, Afi::Ipv6] {
        // The rest of a dump ends with its socket.
        let mut socket = Socket::open()?;
        socket.begin_dump(|out, seq| dump_routes(out, seq, afi, *table, protocol))?;
        let mut found = false;
        let is_own = |content: Content<'_>| match content {
            Content::NewRoute(route) => {
                route.table == *table && route.protocol == protocol && route.flags & RTM_F_CLONED == 0
            }
            _ => false,
        };
        while !found {
            match socket.dump_on(|content| found |= is_own(content)) {
                // The kernel has no table without routes.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => break,
                Ok(true) => break,
                Ok(false) => {}
                Err(e) => return Err(e),
            }
        }
        families = if found { families.with(AfiSafi::unicast(afi)) } else { families };
    }
    Ok(families)
}

/// Whether this kernel has next-hop objects.
///
/// # Errors
/// The kernel does not reply.
pub fn has_next_hop_objects() -> io::Result<bool> {
    match Socket::open()?.dump(dump_next_hops, |(): &mut (), _| ()) {
        Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(false),
        dumped => dumped.map(|()| true),
    }
}

/// The forwarding of each next-hop object, for groups that of their members.
///
/// # Errors
/// The error of the kernel.
pub fn next_hop_objects() -> io::Result<Map<u32, Forwarding>> {
    #[derive(Default)]
    struct Objects {
        single: Map<u32, Forwarding>,
        groups: Vec<(u32, Vec<Member>)>,
    }
    let Objects { single, groups } = Socket::open()?.dump(dump_next_hops, |all: &mut Objects, content| {
        let Content::NewNextHop(object) = content else { return };
        let does = match object.forward {
            Forward::Group(members) => {
                all.groups.push((object.id, members.collect()));
                return;
            }
            Forward::Blackhole(_) => Forwarding::Drop,
            Forward::Via(_, via) => Forwarding::hops(std::iter::once(KernelHop::new(via, 1))),
            Forward::Other => Forwarding::Other("a next-hop object of another kind"),
        };
        all.single.insert(object.id, does);
    })?;
    let mut all = single;
    let groups: Vec<(u32, Forwarding)> =
        groups.into_iter().map(|(id, members)| (id, group(&all, &members))).collect();
    all.extend(groups);
    Ok(all)
}

fn group(single: &Map<u32, Forwarding>, members: &[Member]) -> Forwarding {
    let mut hops = Vec::with_capacity(members.len());
    for member in members {
        match single.get(&member.id) {
            Some(Forwarding::Hops(only)) => {
                hops.extend(only.iter().map(|hop| KernelHop { weight: member.weight, ..*hop }));
            }
            Some(Forwarding::Drop) if members.len() == 1 => return Forwarding::Drop,
            _ => return Forwarding::Other("a next-hop group of other members"),
        }
    }
    Forwarding::hops(hops.into_iter())
}

/// An own route in the table of the default VRF.
fn ours(config: &KernelConfig, content: &Content<'_>) -> Option<(AnyPrefix, Installed)> {
    let Content::NewRoute(route) = content else { return None };
    let ours = route.table == config.table && route.protocol == config.protocol;
    (ours && route.flags & RTM_F_CLONED == 0).then(|| (route.prefix, Installed::of(config, route)))
}

/// A paged read of [`installed`].
#[derive(Default)]
pub struct Walk {
    /// The dump under way, and the remaining families.
    dump: Option<(Socket, Vec<Afi>)>,
}

/// The routes of a step, and whether it reached the end of the table.
pub(super) type Step = (Vec<(AnyPrefix, Installed)>, bool);

impl Walk {
    /// Reads about `count` routes more, or up to the end of the table: then the flag is `true`, and
    /// the next step starts again.
    ///
    /// # Errors
    /// The error of the kernel; the next step starts again.
    pub fn step(&mut self, config: &KernelConfig, count: usize) -> io::Result<Step> {
        let begin = |socket: &mut Socket, afi| {
            socket.begin_dump(|out, seq| dump_routes(out, seq, afi, config.table, config.protocol))
        };
        let (mut socket, mut left) = match self.dump.take() {
            Some(dump) => dump,
            None => {
                let mut socket = Socket::open()?;
                begin(&mut socket, Afi::Ipv4)?;
                (socket, vec![Afi::Ipv6])
            }
        };
        let mut found = Vec::new();
        while found.len() < count {
            let ended = match socket.dump_on(|content| found.extend(ours(config, &content))) {
                // The kernel has no table without routes.
                Err(e) if e.raw_os_error() == Some(libc::ENOENT) => true,
                other => other?,
            };
            match ended.then(|| left.pop()) {
                None => {}
                Some(Some(afi)) => begin(&mut socket, afi)?,
                Some(None) => return Ok((found, true)),
            }
        }
        self.dump = Some((socket, left));
        Ok((found, false))
    }
}

impl fmt::Debug for Walk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Walk").field("under_way", &self.dump.is_some()).finish()
    }
}
