//! What the kernel forwards by, for whoever compares it with what was selected: our routes in its table, and the next-hop
//! objects that they name.

use super::super::fit_weight;
use ribtide_config::KernelConfig;
use ribtide_netlink::Socket;
use ribtide_prefix::{Afi, AnyPrefix, Map};
use ribtide_rib::{FibGroup, IfIndex};
use ribtide_wire::netlink::numbers::RTM_F_CLONED;
use ribtide_wire::netlink::{
    Content, Forward, Hop, Member, NextHops, Route, RouteKind, Via, dump_next_hops, dump_routes,
};
use std::fmt;
use std::io;
use std::net::IpAddr;

/// One way out: the gateway, the interface and the share of the traffic, which is 1 where there is no other way.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct KernelHop {
    pub gateway: Option<IpAddr>,
    pub interface: IfIndex,
    pub weight: u16,
}

/// What happens to packets.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Forwarding {
    /// They are discarded.
    Drop,
    /// They leave by one of these, in order.
    Hops(Vec<KernelHop>),
    /// Something that ribtide never writes, in words.
    Other(&'static str),
}

/// A route of ours as the kernel has it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Installed {
    /// By the next-hop object of this id.
    Object(u32),
    /// By what the route itself says.
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
            // A route by an object that discards is a blackhole route.
            (RouteKind::Blackhole, NextHops::Id(id)) => return Installed::Object(id),
            (RouteKind::Blackhole, _) => Forwarding::Drop,
            _ => Forwarding::Other("a route of another type"),
        })
    }

    /// What it does, where `objects` are the kernel's.
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

    /// What the kernel is to have of a group; `None` where any route by it, or none, is as good.
    pub fn wanted(group: &FibGroup) -> Option<Forwarding> {
        match group {
            FibGroup::Unresolved => None,
            FibGroup::Blackhole => Some(Forwarding::Drop),
            FibGroup::Hops(hops) => {
                let largest = hops.iter().map(|hop| hop.weight).max().unwrap_or(1);
                Some(Forwarding::hops(hops.iter().map(|hop| KernelHop {
                    gateway: hop.gateway,
                    interface: hop.interface,
                    weight: fit_weight(hop.weight, largest),
                })))
            }
        }
    }

    /// In words, where `name` is what an interface is called.
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

/// Our routes in the kernel's table for the default VRF, as the kernel has them now.
///
/// # Errors
/// The kernel's.
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
            // A table without routes does not exist.
            Err(e) if e.raw_os_error() == Some(libc::ENOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(all)
}

/// What each next-hop object of the kernel does, groups by what their members do.
///
/// # Errors
/// The kernel's.
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

/// A route that is ours, in the table for the default VRF.
fn ours(config: &KernelConfig, content: &Content<'_>) -> Option<(AnyPrefix, Installed)> {
    let Content::NewRoute(route) = content else { return None };
    let ours = route.table == config.table && route.protocol == config.protocol;
    (ours && route.flags & RTM_F_CLONED == 0).then(|| (route.prefix, Installed::of(config, route)))
}

/// A walk through what [`installed`] shows, some routes at a time.
#[derive(Default)]
pub struct Walk {
    /// A dump under way, and the families that come after it.
    dump: Option<(Socket, Vec<Afi>)>,
}

/// Routes of a step of a [`Walk`], and whether it came to the end of the table.
pub(super) type Step = (Vec<(AnyPrefix, Installed)>, bool);

impl Walk {
    /// Goes on by some hundred routes more than `count`, or to the end of the table: then the second is true, and the next
    /// step begins again.
    ///
    /// # Errors
    /// The kernel's; the next step begins again.
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
                // A table without routes does not exist.
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
