//! The virtual switch: objects, routes and neighbours, with the checks and limits of a chip.

use crate::audit::{EntryKey, Watches};
use crate::behavior::Behavior;
use crate::dir24::Target;
use crate::labels::LabelEntry;
use crate::objects::Objects;
use crate::own::{Defaults, PortParts};
use crate::pace::{ChipTime, Pace};
use crate::packets::Packets;
use crate::ports::Links;
use crate::router::Router;
use crate::target::{Action, Targets};
use crate::walk::Cursor;
use ribtide_prefix::{Afi, AnyPrefix, Map, PREFETCH_BATCH, Set};
use ribtide_swss::Name;
use ribtide_swss::row::Mac;
use ribtide_swss::sai::notification::{FdbEvent, PortState};
use ribtide_swss::sai::{
    Attr, Attrs, Audit, ErrorMode, InsegEntry, Item, NeighborEntry, NextHopType, ObjectId, ObjectType, Oid,
    OperStatus, PacketAction, Query, QueryReply, RawText, RouteEntry, Sai, Status, Verb,
};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// A port that the chip has from the start.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PortSetup {
    /// Its name in look-ups.
    pub name: Name,
    /// The lanes by which orchagent recognises it.
    pub lanes: Vec<u32>,
    /// Megabits per second.
    pub speed: u32,
}

impl PortSetup {
    /// SONiC's usual virtual switch: 32 ports of four lanes, `Ethernet0`, `Ethernet4` and so on, 40 Gbit/s each.
    pub fn usual() -> Vec<PortSetup> {
        let port = |n: u32| PortSetup {
            name: format!("Ethernet{}", 4 * n).into(),
            lanes: (1..=4).map(|lane| 4 * n + lane).collect(),
            speed: 40_000,
        };
        (0..32).map(port).collect()
    }
}

/// Walks through sparse tables for one page of entries: each takes about a millisecond.
const WALKS_MAX: usize = 4;

/// Entries in each table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[expect(missing_docs, reason = "each is the number of entries of the table that its name says")]
pub struct Counts {
    pub ipv4_routes: usize,
    pub ipv6_routes: usize,
    pub router_interfaces: usize,
    pub neighbors: usize,
    pub next_hops: usize,
    pub groups: usize,
    pub group_members: usize,
    pub labels: usize,
    /// Bytes of the forwarding tables and of targets.
    pub bytes: usize,
}

/// A switch in software. One thread owns it; other threads send it queries.
#[derive(Default)]
pub struct VirtualSwitch {
    setup: Vec<PortSetup>,
    behavior: Behavior,
    pub(crate) objects: Objects,
    pub(crate) routers: Map<Oid, Router>,
    pub(crate) targets: Targets,
    pub(crate) neighbors: Map<(Oid, IpAddr), Attrs>,
    pub(crate) labels: BTreeMap<u32, LabelEntry>,
    /// A group's members, in the order in which they came.
    pub(crate) members: Map<Oid, Vec<Oid>>,
    pub(crate) port_names: Map<Oid, Name>,
    /// The objects that belong to ports.
    pub(crate) parts: PortParts,
    /// Entries whose key is not typed.
    pub(crate) entries: BTreeMap<(ObjectType, RawText), Attrs>,
    /// Of these, those of the FDB.
    pub(crate) fdb_entries: u32,
    /// Attributes of routes outside of the route path.
    route_attrs: Map<(Oid, AnyPrefix), Attrs>,
    /// Entries by family, counted along: next hops, neighbours. Next hops with labels are of neither.
    next_hops: [u32; 2],
    labelled_next_hops: u32,
    neighbor_counts: [u32; 2],
    routes: [u32; 2],
    groups: u32,
    group_members: u32,
    pub(crate) started: Option<Started>,
    /// Routes that it refuses on demand.
    refused: Set<AnyPrefix>,
    pub(crate) links: Links,
    pub(crate) packets: Packets,
    /// Entries watched by checks.
    pub(crate) watches: Watches,
    operations: u64,
    stall: Option<Stall>,
    pace: Pace,
}

/// A stall on demand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Stall {
    since: Instant,
    /// `None`: until resumed.
    until: Option<Instant>,
}

/// The state of a created switch.
#[derive(Clone)]
pub(crate) struct Started {
    pub(crate) switch: Oid,
    pub(crate) default_router: Oid,
    pub(crate) cpu_port: Oid,
    /// The ports that it has from the start.
    pub(crate) ports: Vec<Oid>,
    pub(crate) defaults: Defaults,
}

fn family(addr: IpAddr) -> Afi {
    if addr.is_ipv4() { Afi::Ipv4 } else { Afi::Ipv6 }
}

fn index(afi: Afi) -> usize {
    usize::from(afi == Afi::Ipv6)
}

impl VirtualSwitch {
    /// A chip without a switch; the creation of the switch object starts it.
    pub fn new(setup: Vec<PortSetup>, behavior: Behavior) -> VirtualSwitch {
        VirtualSwitch { setup, behavior, ..VirtualSwitch::default() }
    }

    /// The ports that it has from the start, and those that it expects.
    pub fn setup(&self) -> &[PortSetup] {
        &self.setup
    }

    /// The type of an object.
    pub fn kind(&self, object: Oid) -> Option<ObjectType> {
        self.objects.get(object).map(|object| object.kind)
    }

    /// Its behaviour.
    pub fn behavior(&self) -> Behavior {
        self.behavior
    }

    /// Changes the behaviour; all settings or none. Beside those of [`Behavior::set`] there is
    /// `stall`: a number of seconds, `on` or `off`. Entries beyond a smaller limit stay.
    ///
    /// # Errors
    /// A sentence with the invalid setting and the reason.
    pub fn behave<'a>(
        &mut self,
        settings: impl IntoIterator<Item = (&'a str, &'a str)>,
    ) -> Result<(), String> {
        let (mut behavior, mut stall, now) = (self.behavior, self.stall, Instant::now());
        let (stalls, settings): (Vec<_>, Vec<_>) =
            settings.into_iter().partition(|(name, _)| *name == "stall");
        behavior.set_all(&settings)?;
        for (_, value) in stalls {
            let since = self.stall.map_or(now, |stall| stall.since);
            stall = match value {
                "off" => None,
                "on" => Some(Stall { since, until: None }),
                seconds => {
                    let seconds =
                        seconds.parse::<f64>().ok().and_then(|s| Duration::try_from_secs_f64(s).ok());
                    let until = seconds.and_then(|seconds| now.checked_add(seconds));
                    let bad = || format!("stall = {value} is neither a number of seconds nor on nor off");
                    Some(Stall { since, until: Some(until.ok_or_else(bad)?) })
                }
            };
        }
        self.behavior = behavior;
        if let (Some(over), None) = (self.stall, stall) {
            self.pace.pause(now - over.since);
        }
        self.stall = stall;
        Ok(())
    }

    /// Whether it is stalled `now`, with the end of the stall, if known.
    pub fn stalled(&mut self, now: Instant) -> Option<Option<Instant>> {
        let stall = self.stall?;
        if let Some(until) = stall.until.filter(|until| *until <= now) {
            self.stall = None;
            self.pace.pause(until - stall.since);
            return None;
        }
        Some(stall.until)
    }

    /// Shrinks every table of routes to its contents. O(capacity): call it only when the stage is idle.
    pub fn shrink_to_fit(&mut self) {
        self.routers.values_mut().for_each(Router::shrink_to_fit);
    }

    /// When the calls since the last time, which came `now`, will be done; `None`: they are done.
    /// Tables change at once: only the chip's driver delays replies.
    pub fn done_at(&mut self, now: Instant) -> Option<Instant> {
        self.pace.done_at(now)
    }

    /// The remaining time of its calls at `now`, without further stalls.
    pub fn left(&self, now: Instant) -> Duration {
        self.pace.left(now)
    }

    /// Its calls and time since the start.
    pub fn chip_time(&self) -> ChipTime {
        self.pace.time
    }

    /// The refused prefixes, in order.
    pub fn refused(&self) -> Vec<AnyPrefix> {
        let mut refused: Vec<AnyPrefix> = self.refused.iter().copied().collect();
        refused.sort_unstable();
        refused
    }

    /// Refuses routes of exactly this prefix, or accepts them again: a fault on demand. Existing
    /// routes stay.
    pub fn refuse(&mut self, prefix: AnyPrefix, refused: bool) {
        match refused {
            true => self.refused.insert(prefix),
            false => self.refused.remove(&prefix),
        };
    }

    /// The highest number of an object.
    pub fn last_number(&self) -> u64 {
        self.objects.last()
    }

    /// Numbers the next object after `last`: so another process can rebuild the same switch.
    pub fn number_after(&mut self, last: u64) {
        self.objects.count_from(last);
    }

    /// The number of requests to create, set or remove, successful or not, since
    /// [`VirtualSwitch::new`] or the last [`VirtualSwitch::forget_operations`].
    pub fn operations(&self) -> u64 {
        self.operations
    }

    /// Resets [`VirtualSwitch::operations`].
    pub fn forget_operations(&mut self) {
        self.operations = 0;
    }

    /// Entries in each table.
    pub fn counts(&self) -> Counts {
        let routers = self.routers.values();
        Counts {
            ipv4_routes: routers.clone().map(|r| r.len(Afi::Ipv4)).sum(),
            ipv6_routes: routers.clone().map(|r| r.len(Afi::Ipv6)).sum(),
            router_interfaces: self.objects.count(ObjectType::RouterInterface),
            neighbors: self.neighbors.len(),
            next_hops: self.objects.count(ObjectType::NextHop),
            groups: self.objects.count(ObjectType::NextHopGroup),
            group_members: self.objects.count(ObjectType::NextHopGroupMember),
            labels: self.labels.len(),
            bytes: routers.map(Router::allocation_size).sum::<usize>() + self.targets.allocation_size(),
        }
    }

    /// The switch, while it exists.
    pub(crate) fn switch_oid(&self) -> Option<Oid> {
        self.started.as_ref().map(|own| own.switch)
    }

    fn start(&mut self, attrs: Attrs) -> Oid {
        let switch = self.objects.insert(ObjectType::Switch, attrs);
        let default_router = self.objects.insert(ObjectType::VirtualRouter, Attrs::new());
        self.routers.insert(default_router, Router::default());
        let cpu_port = self.objects.insert(ObjectType::Port, Attrs::new());
        self.port_names.insert(cpu_port, "CPU".into());
        let mut ports = Vec::with_capacity(self.setup.len());
        for port in &self.setup {
            let lanes = Attr::PortLanes(port.lanes.clone().into());
            let attrs = [lanes, Attr::PortSpeed(port.speed), Attr::PortAdminState(false)];
            let oid = self.objects.insert(ObjectType::Port, attrs.into_iter().collect());
            self.port_names.insert(oid, port.name.clone());
            ports.push(oid);
        }
        let defaults = self.make_own(cpu_port, &ports);
        self.started = Some(Started { switch, default_router, cpu_port, ports, defaults });
        switch
    }

    /// Removes the switch with all its objects.
    fn shut_down(&mut self) {
        let mut empty = VirtualSwitch::new(std::mem::take(&mut self.setup), self.behavior);
        empty.objects.number_after(&self.objects);
        // The chip is the same.
        empty.refused = std::mem::take(&mut self.refused);
        empty.links = self.links.after();
        empty.packets = self.packets.after();
        (empty.stall, empty.pace) = (self.stall, self.pace);
        empty.watches = self.watches.after();
        *self = empty;
    }

    fn create(&mut self, kind: ObjectType, attrs: &Attrs) -> Result<Oid, Status> {
        if (kind == ObjectType::Switch) == self.started.is_some() {
            return Err(if kind == ObjectType::Switch {
                Status::ItemAlreadyExists
            } else {
                Status::Uninitialized
            });
        }
        self.objects.check_new(kind, attrs)?;
        let full = |count: u32, limit: u32| if count >= limit { Err(Status::TableFull) } else { Ok(()) };
        match kind {
            ObjectType::Switch => return Ok(self.start(attrs.clone())),
            ObjectType::NextHop => {
                let (count, limit) = self.next_hops_like(attrs);
                full(*count, limit)?;
                *count += 1;
            }
            ObjectType::NextHopGroup => {
                full(self.groups, self.behavior.limits.groups)?;
                self.groups += 1;
            }
            ObjectType::NextHopGroupMember => {
                full(self.group_members, self.behavior.limits.group_members)?;
                self.group_members += 1;
            }
            _ => {}
        }
        let oid = self.objects.insert(kind, attrs.clone());
        match kind {
            ObjectType::VirtualRouter => drop(self.routers.insert(oid, Router::default())),
            ObjectType::NextHopGroupMember => {
                if let Some(group) = member_group(attrs) {
                    self.members.entry(group).or_default().push(oid);
                }
            }
            ObjectType::Port => {
                let name = self.name_of_lanes(attrs);
                self.links.changed = true;
                self.port_names
                    .insert(oid, name.unwrap_or_else(|| format!("port {:#x}", oid.index()).into()));
                self.make_parts(oid);
            }
            _ => {}
        }
        Ok(oid)
    }

    /// Whether it has, or expects, a port of this name.
    pub(crate) fn has_port(&self, name: &str) -> bool {
        self.setup.iter().any(|port| &*port.name == name) || self.port_names.values().any(|of| &**of == name)
    }

    /// The ports, without the CPU's.
    pub(crate) fn front_ports(&self) -> impl Iterator<Item = Oid> {
        let cpu = self.started.as_ref().map_or(Oid::NULL, |started| started.cpu_port);
        self.port_names.keys().copied().filter(move |port| *port != cpu)
    }

    /// Gives a port that is created later its name, by its lanes.
    pub fn expect_port(&mut self, port: PortSetup) {
        self.setup.push(port);
    }

    fn name_of_lanes(&self, attrs: &Attrs) -> Option<Name> {
        let lanes = attrs.iter().find_map(|attr| match attr {
            Attr::PortLanes(lanes) => Some(lanes),
            _ => None,
        })?;
        self.setup.iter().find(|port| port.lanes[..] == lanes[..]).map(|port| port.name.clone())
    }

    /// The count and limit of the table of a next hop.
    fn next_hops_like(&mut self, attrs: &[Attr]) -> (&mut u32, u32) {
        let limits = &self.behavior.limits;
        if attrs.iter().any(|a| matches!(a, Attr::NextHopLabels(_))) {
            return (&mut self.labelled_next_hops, limits.labelled_next_hops);
        }
        let afi = next_hop_family(attrs);
        (&mut self.next_hops[index(afi)], limits.next_hops(afi))
    }

    fn remove(&mut self, kind: ObjectType, oid: Oid) -> Result<(), Status> {
        if let Some(own) = &self.started {
            if kind == ObjectType::Switch && oid == own.switch {
                self.shut_down();
                return Ok(());
            }
            if [own.default_router, own.cpu_port].contains(&oid) {
                return Err(Status::ObjectInUse);
            }
        }
        let attrs = self.objects.remove(oid, kind)?;
        match kind {
            ObjectType::VirtualRouter => drop(self.routers.remove(&oid)),
            ObjectType::NextHop => *self.next_hops_like(&attrs).0 -= 1,
            ObjectType::NextHopGroup => {
                self.groups -= 1;
                self.members.remove(&oid);
            }
            ObjectType::NextHopGroupMember => {
                self.group_members -= 1;
                let group = member_group(&attrs).and_then(|group| self.members.get_mut(&group));
                if let Some(members) = group {
                    members.retain(|member| *member != oid);
                }
            }
            ObjectType::Port => {
                self.port_names.remove(&oid);
                self.remove_parts(oid);
                if let Some(own) = &mut self.started {
                    own.ports.retain(|port| *port != oid);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Prefetches the routes of a batch.
    fn prefetch(&self, items: &[Item]) {
        for item in items {
            if let ObjectId::Route(entry) = &item.id
                && let Some(router) = self.routers.get(&entry.vr)
            {
                router.prefetch(entry.dest);
            }
        }
    }

    /// Whether the route belongs to the start of a switch: a default route, or one to the switch
    /// itself.
    fn is_own(&self, dest: AnyPrefix, attrs: &[Attr]) -> bool {
        let cpu = self.started.as_ref().map(|own| own.cpu_port);
        dest.len() == 0 || attrs.iter().any(|attr| matches!(attr, Attr::RouteNextHop(to) if Some(*to) == cpu))
    }

    fn route(&mut self, verb: Verb, entry: &RouteEntry, attrs: &[Attr]) -> Result<(), Status> {
        self.touch(EntryKey::Route(entry.vr, entry.dest));
        let afi = entry.dest.afi();
        let router = self.routers.get(&entry.vr).ok_or(Status::InvalidObjectId)?;
        let old = router.get(entry.dest);
        match (verb, old) {
            (Verb::Create, Some(_)) => return Err(Status::ItemAlreadyExists),
            (Verb::Create, None) if self.behavior.limits.free_routes(afi, self.routes) == 0 => {
                return Err(Status::TableFull);
            }
            (Verb::Set | Verb::Remove, None) => return Err(Status::ItemNotFound),
            _ => {}
        }
        if verb != Verb::Remove
            && (self.refused.contains(&entry.dest)
                || !self.is_own(entry.dest, attrs) && self.behavior.failures.refuses(entry.dest))
        {
            return Err(Status::Failure);
        }
        if verb == Verb::Remove {
            self.routers.get_mut(&entry.vr).and_then(|router| router.remove(entry.dest));
            self.routes[index(afi)] -= 1;
            self.objects.refer(entry.vr, -1);
            self.release(old);
            self.drop_route_attrs(entry);
            return Ok(());
        }
        let mut action = self.action_of(old);
        for attr in attrs {
            match attr {
                Attr::RoutePacketAction(packet) => action.packet = *packet,
                Attr::RouteNextHop(oid) => action.to = self.target_object(*oid)?,
                Attr::Other(_) => {
                    self.objects.check(attr)?;
                    action.packet = packet_action(attr).unwrap_or(action.packet);
                }
                _ => return Err(Status::NotSupported),
            }
        }
        let target = self.acquire(action)?;
        self.put_route_attrs(entry, attrs);
        self.routers.get_mut(&entry.vr).and_then(|router| router.insert(entry.dest, target));
        match old {
            Some(_) => self.release(old),
            None => {
                self.routes[index(afi)] += 1;
                self.objects.refer(entry.vr, 1);
            }
        }
        Ok(())
    }

    /// Keeps the attributes of a route that its target does not have. A typed action replaces one
    /// that is not.
    fn put_route_attrs(&mut self, entry: &RouteEntry, attrs: &[Attr]) {
        let key = (entry.vr, entry.dest);
        if self.route_attrs.is_empty() && !attrs.iter().any(|attr| matches!(attr, Attr::Other(_))) {
            return;
        }
        let mut kept = self.route_attrs.remove(&key).unwrap_or_default();
        for attr in attrs {
            if let Some(at) = kept.iter().position(|old| old.same_kind(attr)) {
                let mut old = kept.remove(at);
                old.oids_mut().iter().for_each(|oid| self.objects.refer(*oid, -1));
            }
            if let Attr::Other(raw) = attr {
                raw.value().oids().iter().for_each(|oid| self.objects.refer(*oid, 1));
                kept.push(attr.clone());
            }
        }
        if !kept.is_empty() {
            self.route_attrs.insert(key, kept);
        }
    }

    fn drop_route_attrs(&mut self, entry: &RouteEntry) {
        if self.route_attrs.is_empty() {
            return;
        }
        for mut attr in self.route_attrs.remove(&(entry.vr, entry.dest)).unwrap_or_default() {
            attr.oids_mut().iter().for_each(|oid| self.objects.refer(*oid, -1));
        }
    }

    /// The action of an entry before its change.
    pub(crate) fn action_of(&self, target: Option<Target>) -> Action {
        match target {
            Some(target) => self.targets.action(target),
            None => Action { packet: PacketAction::Forward, to: Oid::NULL },
        }
    }

    /// The target object of an entry, if entries may use it.
    pub(crate) fn target_object(&self, oid: Oid) -> Result<Oid, Status> {
        let kinds =
            [ObjectType::NextHop, ObjectType::NextHopGroup, ObjectType::RouterInterface, ObjectType::Port];
        let fits = oid.is_null() || self.objects.is(oid, &kinds);
        if fits { Ok(oid) } else { Err(Status::InvalidObjectId) }
    }

    /// Counts one more entry on an action.
    pub(crate) fn acquire(&mut self, action: Action) -> Result<Target, Status> {
        let (target, first) = self.targets.acquire(action).ok_or(Status::InsufficientResources)?;
        if first {
            self.objects.refer(action.to, 1);
        }
        Ok(target)
    }

    pub(crate) fn release(&mut self, target: Option<Target>) {
        let Some(target) = target else { return };
        let to = self.targets.action(target).to;
        if self.targets.release(target) {
            self.objects.refer(to, -1);
        }
    }

    fn neighbor(&mut self, verb: Verb, entry: &NeighborEntry, attrs: &Attrs) -> Result<(), Status> {
        if !self.objects.is(entry.rif, &[ObjectType::RouterInterface]) {
            return Err(Status::InvalidObjectId);
        }
        let (key, afi) = ((entry.rif, entry.ip), family(entry.ip));
        let free = self.behavior.limits.free_neighbors(afi, self.neighbor_counts);
        let count = &mut self.neighbor_counts[index(afi)];
        match (verb, self.neighbors.get_mut(&key)) {
            (Verb::Create, Some(_)) => return Err(Status::ItemAlreadyExists),
            (Verb::Create, None) => {
                if !attrs.iter().any(|a| matches!(a, Attr::NeighborMac(_))) {
                    return Err(Status::MandatoryAttributeMissing);
                }
                if free == 0 {
                    return Err(Status::TableFull);
                }
                *count += 1;
                self.neighbors.insert(key, attrs.clone());
                self.objects.refer(entry.rif, 1);
            }
            (_, None) => return Err(Status::ItemNotFound),
            (Verb::Set, Some(old)) => {
                for attr in attrs {
                    match old.iter_mut().find(|a| a.same_kind(attr)) {
                        Some(place) => *place = attr.clone(),
                        None => old.push(attr.clone()),
                    }
                }
            }
            (Verb::Remove, Some(_)) => {
                *count -= 1;
                self.neighbors.remove(&key);
                self.objects.refer(entry.rif, -1);
            }
        }
        Ok(())
    }

    fn set(&mut self, kind: ObjectType, oid: Oid, attrs: &[Attr]) -> Status {
        if attrs.iter().any(Attr::create_only) {
            return Status::InvalidParameter;
        }
        self.links.changed |= kind == ObjectType::Port;
        let outcomes = attrs.iter().map(|attr| self.objects.set(oid, kind, attr.clone()));
        outcomes.into_iter().find(|status| !status.is_success()).unwrap_or(Status::Success)
    }

    fn apply(&mut self, verb: Verb, kind: ObjectType, item: &mut Item) -> Status {
        if !kind.is_entry() {
            self.packets.changed(kind);
        }
        let done = match (&mut item.id, kind) {
            (ObjectId::Route(entry), ObjectType::RouteEntry) => self.route(verb, entry, &item.attrs),
            (ObjectId::Neighbor(entry), ObjectType::NeighborEntry) => self.neighbor(verb, entry, &item.attrs),
            (ObjectId::Inseg(entry), ObjectType::InsegEntry) => self.inseg(verb, entry, &item.attrs),
            (ObjectId::Oid(oid), _) if !kind.is_entry() => match verb {
                Verb::Create => self.create(kind, &item.attrs).map(|new| *oid = new),
                Verb::Remove => self.remove(kind, *oid),
                Verb::Set => return self.set(kind, *oid, &item.attrs),
            },
            _ => Err(Status::InvalidObjectType),
        };
        done.err().unwrap_or(Status::Success)
    }

    fn switch_value(&self, own: &Started, attr: &mut Attr) -> Result<(), Status> {
        let left = |limit: u32, count: u32| limit.saturating_sub(count);
        let limits = &self.behavior.limits;
        match attr {
            Attr::SwitchDefaultVirtualRouter(value) => *value = own.default_router,
            Attr::SwitchCpuPort(value) => *value = own.cpu_port,
            Attr::SwitchPortNumber(value) => *value = self.objects.count(ObjectType::Port) as u32 - 1,
            Attr::SwitchPortList(value) => {
                let mut ports: Vec<Oid> = self.objects.of_kind(ObjectType::Port).collect();
                ports.retain(|port| *port != own.cpu_port);
                ports.sort_unstable();
                if value.len() < ports.len() {
                    *attr = Attr::raw("SAI_SWITCH_ATTR_PORT_LIST", &ports.len().to_string());
                    return Err(Status::BufferOverflow);
                }
                *value = ports.into();
            }
            Attr::SwitchEcmpGroups(value) => *value = limits.groups,
            Attr::SwitchAvailableIpv4Route(value) => *value = limits.free_routes(Afi::Ipv4, self.routes),
            Attr::SwitchAvailableIpv6Route(value) => *value = limits.free_routes(Afi::Ipv6, self.routes),
            Attr::SwitchAvailableIpv4Nexthop(value) => {
                *value = left(limits.ipv4_next_hops, self.next_hops[0])
            }
            Attr::SwitchAvailableIpv6Nexthop(value) => {
                *value = left(limits.ipv6_next_hops, self.next_hops[1])
            }
            Attr::SwitchAvailableIpv4Neighbor(value) => {
                *value = limits.free_neighbors(Afi::Ipv4, self.neighbor_counts);
            }
            Attr::SwitchAvailableIpv6Neighbor(value) => {
                *value = limits.free_neighbors(Afi::Ipv6, self.neighbor_counts);
            }
            Attr::SwitchAvailableGroup(value) => *value = left(limits.groups, self.groups),
            Attr::SwitchAvailableGroupMember(value) => {
                *value = left(limits.group_members, self.group_members)
            }
            other => {
                let text = |name: &str| self.switch_text(own, name);
                return self.stored_or(own.switch, other, text);
            }
        }
        Ok(())
    }

    /// The value that a request gave, or that the switch gives by itself.
    fn stored_or(
        &self,
        oid: Oid,
        attr: &mut Attr,
        text: impl Fn(&str) -> Option<String>,
    ) -> Result<(), Status> {
        let stored = self.objects.find(oid, |a| a.same_kind(attr).then(|| a.clone()));
        let computed = || Attr::read(attr.name(), &text(attr.name())?);
        let value = stored.or_else(computed).ok_or(Status::NotImplemented)?;
        fill(attr, value)
    }

    fn stored_value(&self, oid: Oid, attr: &mut Attr) -> Result<(), Status> {
        match attr {
            Attr::PortOperStatus(value) => {
                *value = self.oper_status(oid);
                return Ok(());
            }
            Attr::PortOperSpeed(value) => {
                let speed = |attr: &Attr| if let Attr::PortSpeed(speed) = attr { Some(*speed) } else { None };
                *value = match self.oper_status(oid) {
                    OperStatus::Up => self.objects.find(oid, speed).ok_or(Status::NotImplemented)?,
                    _ => 0,
                };
                return Ok(());
            }
            _ => {}
        }
        let kind = self.objects.get(oid).map(|object| object.kind).ok_or(Status::ItemNotFound)?;
        self.stored_or(oid, attr, |name| self.object_text(kind, oid, name))
    }
}

/// Puts a value in place of the placeholder of a get. A list that is longer than that gives its
/// length.
fn fill(attr: &mut Attr, value: Attr) -> Result<(), Status> {
    let length = |attr: &Attr| attr.value().split(':').next().and_then(|length| length.parse::<usize>().ok());
    if value.is_list()
        && let (Some(room), Some(needed)) = (length(attr), length(&value))
        && needed > room
    {
        *attr = Attr::raw(value.name(), &needed.to_string());
        return Err(Status::BufferOverflow);
    }
    *attr = value;
    Ok(())
}

/// What packets of a route with an action outside of the route path become.
fn packet_action(attr: &Attr) -> Option<PacketAction> {
    if attr.name() != "SAI_ROUTE_ENTRY_ATTR_PACKET_ACTION" {
        return None;
    }
    Some(match attr.value().as_str() {
        "SAI_PACKET_ACTION_DENY" => PacketAction::Drop,
        _ => PacketAction::Forward,
    })
}

fn next_hop_family(attrs: &[Attr]) -> Afi {
    let ip = attrs.iter().find_map(|a| if let Attr::NextHopIp(ip) = a { Some(*ip) } else { None });
    ip.map_or(Afi::Ipv4, family)
}

/// Whether an attribute of a query has this family, as SAI's availability attributes do.
fn is_of_family(attr: &Attr, afi: Afi) -> bool {
    let value = match afi {
        Afi::Ipv4 => "SAI_IP_ADDR_FAMILY_IPV4",
        Afi::Ipv6 => "SAI_IP_ADDR_FAMILY_IPV6",
    };
    attr.name().ends_with("_ENTRY_ATTR_IP_ADDR_FAMILY") && attr.value() == value
}

fn member_group(attrs: &[Attr]) -> Option<Oid> {
    attrs.iter().find_map(|a| if let Attr::MemberGroup(group) = a { Some(*group) } else { None })
}

pub(crate) fn neighbor_mac(attrs: &[Attr]) -> Option<Mac> {
    attrs.iter().find_map(|a| if let Attr::NeighborMac(mac) = a { Some(*mac) } else { None })
}

impl Sai for VirtualSwitch {
    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: &mut [Item],
        mode: ErrorMode,
        statuses: &mut Vec<Status>,
    ) {
        self.operations += items.len() as u64;
        let (count, mut stopped) = (items.len(), false);
        self.pace.call(count, object == ObjectType::RouteEntry, self.behavior.latency.of(count));
        for (page, items) in items.chunks_mut(PREFETCH_BATCH).enumerate() {
            self.prefetch(items);
            for (n, item) in items.iter_mut().enumerate() {
                let strikes =
                    verb != Verb::Remove && self.behavior.failures.strikes(page * PREFETCH_BATCH + n, count);
                let status = match (stopped, strikes) {
                    (true, _) => Status::NotExecuted,
                    (false, true) => Status::Failure,
                    (false, false) => self.apply(verb, object, item),
                };
                self.pace.time.failed += u64::from(!status.is_success());
                stopped |= mode == ErrorMode::StopOnError && !status.is_success();
                statuses.push(status);
            }
        }
    }

    fn available(&mut self, object: ObjectType, attrs: &[Attr]) -> Result<u64, Status> {
        self.pace.call(0, false, self.behavior.latency.of(0));
        self.started.as_ref().ok_or(Status::Uninitialized)?;
        let limits = &self.behavior.limits;
        let of = |afi: Afi| attrs.iter().any(|attr| is_of_family(attr, afi));
        let mpls = attrs.contains(&Attr::NextHopKind(NextHopType::Mpls));
        let family = [Afi::Ipv4, Afi::Ipv6].into_iter().find(|afi| of(*afi));
        let (limit, count) = match (object, family) {
            (ObjectType::RouteEntry, Some(afi)) => (limits.free_routes(afi, self.routes), 0),
            (ObjectType::NeighborEntry, Some(afi)) => (limits.free_neighbors(afi, self.neighbor_counts), 0),
            (ObjectType::NextHop, _) if mpls => (limits.labelled_next_hops, self.labelled_next_hops),
            (ObjectType::NextHopGroup, _) => (limits.groups, self.groups),
            (ObjectType::NextHopGroupMember, _) => (limits.group_members, self.group_members),
            (ObjectType::InsegEntry, _) => (limits.labels, self.labels.len() as u32),
            (other, _) => return crate::entries::available(other).ok_or(Status::NotSupported),
        };
        Ok(limit.saturating_sub(count).into())
    }

    fn get(&mut self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        self.pace.call(0, false, self.behavior.latency.of(0));
        self.read(object, id, attrs)
    }

    fn entry(&mut self, verb: Verb, object: ObjectType, key: &RawText, attrs: &[Attr]) -> Result<(), Status> {
        self.operations += 1;
        self.pace.call(1, false, self.behavior.latency.of(1));
        self.started.as_ref().ok_or(Status::Uninitialized)?;
        let done = self.raw_entry(verb, object, key, attrs);
        self.pace.time.failed += u64::from(done.is_err());
        done
    }

    fn get_entry(&mut self, object: ObjectType, key: &RawText, attrs: &mut [Attr]) -> Result<(), Status> {
        self.pace.call(0, false, self.behavior.latency.of(0));
        let stored = self.entries.get(&(object, key.clone())).ok_or(Status::ItemNotFound)?;
        for attr in attrs {
            let value = stored.iter().find(|of| of.same_kind(attr)).cloned();
            fill(attr, value.ok_or(Status::NotImplemented)?)?;
        }
        Ok(())
    }

    fn query(&mut self, query: &Query) -> QueryReply {
        self.pace.call(0, false, self.behavior.latency.of(0));
        match self.started {
            Some(_) => self.answer(query),
            None => QueryReply::of(Status::Uninitialized),
        }
    }

    fn own_objects(&mut self, _: Oid) -> Vec<(ObjectType, Oid)> {
        self.all_own()
    }

    fn object_type(&mut self, rid: Oid) -> Option<ObjectType> {
        self.objects.get(rid).map(|object| object.kind)
    }

    fn port_states(&mut self) -> Vec<PortState> {
        self.take_port_states()
    }

    fn fdb_events(&mut self) -> Vec<FdbEvent> {
        self.packets.fdb.take()
    }

    fn report_all_ports(&mut self) {
        self.report_all();
    }
}

/// Reads of the tables in memory: they take none of the chip's time.
impl Audit for VirtualSwitch {
    type Cursor = Cursor;

    fn read(&self, object: ObjectType, id: &ObjectId, attrs: &mut [Attr]) -> Result<(), Status> {
        let own = self.started.as_ref().ok_or(Status::Uninitialized)?;
        match id {
            ObjectId::Oid(oid) if self.objects.is(*oid, &[object]) => {
                for attr in attrs {
                    match object {
                        ObjectType::Switch => self.switch_value(own, attr)?,
                        _ => self.stored_value(*oid, attr)?,
                    }
                }
            }
            ObjectId::Route(entry) if object == ObjectType::RouteEntry => {
                let target = self.routers.get(&entry.vr).and_then(|router| router.get(entry.dest));
                let action = self.targets.action(target.ok_or(Status::ItemNotFound)?);
                for attr in attrs {
                    let kept = self.route_attrs.get(&(entry.vr, entry.dest));
                    let kept = kept.and_then(|attrs| attrs.iter().find(|of| of.same_kind(attr)));
                    match (kept, &mut *attr) {
                        (Some(kept), _) => *attr = kept.clone(),
                        (None, Attr::RoutePacketAction(value)) => *value = action.packet,
                        (None, Attr::RouteNextHop(value)) => *value = action.to,
                        _ => return Err(Status::NotImplemented),
                    }
                }
            }
            ObjectId::Inseg(entry) if object == ObjectType::InsegEntry => {
                for attr in attrs {
                    self.inseg_value(entry, attr)?;
                }
            }
            ObjectId::Neighbor(entry) if object == ObjectType::NeighborEntry => {
                let stored = self.neighbors.get(&(entry.rif, entry.ip)).ok_or(Status::ItemNotFound)?;
                for attr in attrs {
                    let value = stored.iter().find(|a| a.same_kind(attr));
                    *attr = value.cloned().ok_or(Status::NotImplemented)?;
                }
            }
            _ => return Err(Status::ItemNotFound),
        }
        Ok(())
    }

    fn objects(&self) -> Vec<(ObjectType, ObjectId)> {
        let switch = self.started.as_ref().map_or(Oid::NULL, |own| own.switch);
        let neighbors = self.neighbors.keys().map(|(rif, ip)| {
            (ObjectType::NeighborEntry, ObjectId::Neighbor(NeighborEntry { switch, rif: *rif, ip: *ip }))
        });
        self.objects.iter().map(|(oid, kind)| (kind, ObjectId::Oid(oid))).chain(neighbors).collect()
    }

    fn entries(&self, from: Cursor, count: usize) -> (Vec<ObjectId>, Option<Cursor>) {
        let switch = self.started.as_ref().map_or(Oid::NULL, |own| own.switch);
        let id = |key| match key {
            EntryKey::Route(vr, dest) => ObjectId::Route(RouteEntry { switch, vr, dest }),
            EntryKey::Label(label) => ObjectId::Inseg(InsegEntry { switch, label }),
        };
        let (mut entries, mut next) = (Vec::new(), Some(from));
        for _ in 0..WALKS_MAX {
            let Some(from) = next.filter(|_| entries.len() < count) else { break };
            let (keys, rest) = self.walk(from, count - entries.len());
            entries.extend(keys.into_iter().map(id));
            next = rest;
        }
        (entries, next)
    }

    fn raw_entries(&self) -> Vec<(ObjectType, RawText, Attrs)> {
        self.entries.iter().map(|((object, key), attrs)| (*object, key.clone(), attrs.clone())).collect()
    }

    fn changes(&self) -> u64 {
        self.operations
    }

    fn route_count(&self) -> usize {
        self.routes.iter().map(|count| *count as usize).sum()
    }
}
