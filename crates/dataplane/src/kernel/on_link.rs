//! Subnets of interfaces that the kernel has no route to.
//!
//! An address makes its subnet connected only because the kernel adds a route to it. It adds none
//! for an address with `noprefixroute`, and another program may delete the route. Then packets to
//! the subnet take another route, or none, so next hops there must not resolve on the link.
//!
//! The kernel is read only after a message that may mean such a change: the dump passes all routes
//! of the tables. A subnet is missing when two reads do not have its route. The kernel replaces a
//! route in two steps where an address is promoted, and tells of a link before its routes are there.

use ribtide_netlink::Socket;
use ribtide_prefix::{Afi, AnyPrefix, Map};
use ribtide_rib::IfIndex;
use ribtide_runtime::ring::Wake;
use ribtide_wire::netlink::numbers::{IFA_F_NOPREFIXROUTE, IFF_LOOPBACK, RTM_F_CLONED, RTPROT_KERNEL};
use ribtide_wire::netlink::{
    Address, Content, NextHops, Route, RouteKind, dump_addresses, dump_interface_routes, dump_links,
    dump_routes,
};
use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Between the two reads that find a subnet without route.
const CONFIRM_PAUSE: Duration = Duration::from_millis(500);
/// The pause between reads, in times of the CPU time of the last one.
const READ_SHARE: u32 = 50;

/// A subnet of an interface.
pub(super) type OnLink = (AnyPrefix, IfIndex);

/// Subnets without a route, shared by the thread that finds them and that of interfaces. Clones share the list.
#[derive(Clone, Default)]
pub(super) struct MissingSubnets(Arc<Shared>);

#[derive(Default)]
struct Shared {
    list: Mutex<Arc<BTreeSet<OnLink>>>,
    /// How many times the list changed.
    version: AtomicU32,
    /// Called after each change.
    wakes: Mutex<Vec<Wake>>,
}

impl MissingSubnets {
    /// Calls `wake` after each later change.
    pub(super) fn wake(&self, wake: Wake) {
        self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }

    /// The list, if it changed since `seen`, which is updated.
    pub(super) fn news(&self, seen: &mut u32) -> Option<Arc<BTreeSet<OnLink>>> {
        let now = self.0.version.load(Acquire);
        (std::mem::replace(seen, now) != now).then(|| self.get())
    }

    /// Sets the list, unless it is the same.
    pub(super) fn set(&self, missing: BTreeSet<OnLink>) {
        {
            let mut list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
            if **list == missing {
                return;
            }
            *list = Arc::new(missing);
        }
        self.0.version.fetch_add(1, Release);
        self.0.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter().for_each(|wake| wake());
    }

    fn get(&self) -> Arc<BTreeSet<OnLink>> {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn has(&self, on_link: &OnLink) -> bool {
        self.get().contains(on_link)
    }
}

/// What the thread `kernel-routes` knows of subnets and their routes.
#[derive(Default)]
pub(super) struct OnLinkRoutes {
    /// Subnets of the last read, and those that were added since.
    subnets: BTreeSet<OnLink>,
    /// Whether an interface carries packets.
    operative: Map<IfIndex, bool>,
    missing: MissingSubnets,
    /// Subnets that the last read found without route for the first time.
    suspects: BTreeSet<OnLink>,
    /// When the kernel is read next.
    read_at: Option<Instant>,
    /// The earliest time of a read.
    not_before: Option<Instant>,
}

impl OnLinkRoutes {
    pub(super) fn new(missing: MissingSubnets) -> OnLinkRoutes {
        OnLinkRoutes { missing, ..OnLinkRoutes::default() }
    }

    /// When the kernel is to be read.
    pub(super) fn read_at(&self) -> Option<Instant> {
        self.read_at
    }

    /// The kernel is to be read, as soon as the last read allows.
    pub(super) fn doubt(&mut self, now: Instant) {
        let at = self.not_before.map_or(now, |earliest| earliest.max(now));
        self.read_at = Some(self.read_at.map_or(at, |planned| planned.min(at)));
    }

    /// Handles a notification. Returns whether a subnet may have lost its route, or have it again.
    pub(super) fn notified(&mut self, content: &Content<'_>) -> bool {
        match content {
            Content::NewLink(link) => {
                let before = self.operative.insert(link.index, link.operative());
                // The kernel makes the routes of a link that comes up, except those of `noprefixroute`.
                link.operative()
                    && before == Some(false)
                    && self.subnets.iter().any(|(_, i)| *i == link.index)
            }
            Content::DelLink(link) => {
                self.operative.remove(&link.index);
                false
            }
            Content::NewAddress(address) => {
                let Some(on_link) = subnet(address) else { return false };
                self.subnets.insert(on_link);
                address.flags & IFA_F_NOPREFIXROUTE != 0 || self.is_doubtful(&on_link)
            }
            Content::DelAddress(address) => subnet(address).is_some_and(|on_link| self.is_doubtful(&on_link)),
            Content::DelRoute(route) => on_links(route).any(|on_link| self.subnets.contains(&on_link)),
            Content::NewRoute(route) => {
                let mut subnets =
                    self.subnets.range((route.prefix, 0)..=(route.prefix, IfIndex::MAX)).peekable();
                if subnets.peek().is_none() {
                    return false;
                }
                // One that is no route to the link may have replaced that.
                let made: Vec<OnLink> = on_links(route).collect();
                subnets.any(|subnet| !made.contains(subnet)) || made.iter().any(|made| self.is_doubtful(made))
            }
            _ => false,
        }
    }

    fn is_doubtful(&self, on_link: &OnLink) -> bool {
        self.suspects.contains(on_link) || self.missing.has(on_link)
    }

    /// Reads the kernel, of which `cpu_time` is taken, and publishes what two reads found.
    ///
    /// # Errors
    /// The kernel refuses a dump. The list stays as it is, and is to be read again.
    pub(super) fn read(
        &mut self,
        requests: &mut Socket,
        now: impl Fn() -> Instant,
        cpu_time: impl Fn() -> Duration,
    ) -> io::Result<()> {
        let before = cpu_time();
        self.read_at = None;
        let Found { subnets, operative, without } = Found::read(requests)?;
        (self.subnets, self.operative) = (subnets, operative);
        let confirmed =
            without.iter().filter(|on_link| self.is_doubtful(on_link)).copied().collect::<BTreeSet<_>>();
        self.suspects = without.difference(&confirmed).copied().collect();
        self.missing.set(confirmed);
        let (now, pause) = (now(), cpu_time().saturating_sub(before) * READ_SHARE);
        self.not_before = Some(now + pause);
        if !self.suspects.is_empty() {
            self.read_at = Some(now + pause.max(CONFIRM_PAUSE));
        }
        Ok(())
    }
}

/// The subnets without route, by one read.
///
/// # Errors
/// The kernel refuses a dump.
pub(super) fn without_route(requests: &mut Socket) -> io::Result<BTreeSet<OnLink>> {
    Ok(Found::read(requests)?.without)
}

/// The result of a read.
#[derive(Default)]
struct Found {
    subnets: BTreeSet<OnLink>,
    operative: Map<IfIndex, bool>,
    without: BTreeSet<OnLink>,
}

impl Found {
    fn read(requests: &mut Socket) -> io::Result<Found> {
        // The dump of addresses begins before that of routes: an address is older than its route.
        let links = requests.dump(dump_links, |links: &mut Map<IfIndex, (bool, bool)>, content| {
            if let Content::NewLink(link) = content {
                links.insert(link.index, (link.operative(), link.flags & IFF_LOOPBACK != 0));
            }
        })?;
        let subnets = requests.dump(dump_addresses, |subnets: &mut BTreeSet<OnLink>, content| {
            if let Content::NewAddress(address) = content {
                subnets.extend(subnet(&address));
            }
        })?;
        // The routes to a loopback's subnets are local ones. One that is down has none.
        let expected = |(_, index): &&OnLink| links.get(index) == Some(&(true, false));
        let mut without: BTreeSet<OnLink> = subnets.iter().filter(expected).copied().collect();
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            // Nearly all are the kernel's own routes.
            strike(requests, afi, &mut without, |out, seq| dump_routes(out, seq, afi, 0, RTPROT_KERNEL))?;
            let of_family = without.iter().filter(|(prefix, _)| prefix.afi() == afi);
            let left: BTreeSet<IfIndex> = of_family.map(|(_, index)| *index).collect();
            for index in left {
                strike(requests, afi, &mut without, |out, seq| dump_interface_routes(out, seq, afi, index))?;
            }
        }
        let operative = links.into_iter().map(|(index, (operative, _))| (index, operative)).collect();
        Ok(Found { subnets, operative, without })
    }
}

/// Takes the subnets with a route in this dump out of `without`.
fn strike(
    requests: &mut Socket,
    afi: Afi,
    without: &mut BTreeSet<OnLink>,
    dump: impl Fn(&mut Vec<u8>, u32),
) -> io::Result<()> {
    if !without.iter().any(|(prefix, _)| prefix.afi() == afi) {
        return Ok(());
    }
    let found = requests.dump(dump, |found: &mut BTreeSet<OnLink>, content| {
        if let Content::NewRoute(route) = content {
            found.extend(on_links(&route).filter(|on_link| without.contains(on_link)));
        }
    });
    match found {
        Ok(found) => without.retain(|on_link| !found.contains(on_link)),
        // A kernel without the family, or the interface, has no routes of it.
        Err(e) if matches!(e.raw_os_error(), Some(libc::ENOENT | libc::EOPNOTSUPP | libc::ENODEV)) => {}
        Err(e) => return Err(e),
    }
    Ok(())
}

/// The subnet of an address, if the kernel may have a route to it: not that of a host address.
fn subnet(address: &Address) -> Option<OnLink> {
    let of_host = address.network == AnyPrefix::host(address.local);
    let is_routed = super::interfaces::is_routed(address.local);
    (is_routed && address.usable() && !of_host).then_some((address.network, address.ifindex))
}

/// The interfaces that a route sends packets of any service to without a gateway.
fn on_links(route: &Route<'_>) -> impl Iterator<Item = OnLink> {
    let prefix = route.prefix;
    let plain = route.kind == RouteKind::Unicast
        && route.tos == 0
        && route.encap == 0
        && route.flags & RTM_F_CLONED == 0;
    let hops = match route.next_hops {
        NextHops::Inline(hops) if plain => Some(hops),
        _ => None,
    };
    let direct = hops.into_iter().flatten().filter(|hop| hop.via.gateway.is_none() && hop.via.ifindex != 0);
    direct.map(move |hop| (prefix, hop.via.ifindex))
}
