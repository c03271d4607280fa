//! Routes of the default virtual router in one table of the kernel.
//!
//! The model decides first about a creation or a change; a route that the kernel refuses is taken back
//! there. A removal is the kernel's first. A bulk is a few system calls, and the kernel acknowledges
//! each route.

use crate::status;
use crate::{KernelChip, Settings};
use ribtide_netlink::Refusal;
use ribtide_prefix::{Afi, AnyPrefix, Map, Set};
use ribtide_swss::sai::{Attr, ErrorMode, Item, ObjectId, ObjectType, Oid, PacketAction, Sai, Status, Verb};
use ribtide_wire::netlink::numbers::{
    NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE, RT_SCOPE_HOST, RTM_F_CLONED, RTPROT_KERNEL,
};
use ribtide_wire::netlink::{Content, Hop, NextHops, Route, RouteKind, Via, dump_routes};
use std::io;

/// The index of the loopback interface, the first one of each network namespace.
const LOOPBACK: u32 = 1;
/// Puts a route in the place of whatever is there.
const PUT: u16 = NLM_F_CREATE | NLM_F_REPLACE;

/// The metric of connected IPv6 routes (`IP6_RT_PRIO_ADDRCONF`); those of IPv4 have 0.
pub(crate) const CONNECTED_IPV6: u32 = 256;

/// What the kernel does with packets of a route.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// Sends them by the next-hop object with this number.
    Via(u32),
    /// Drops them.
    Blackhole,
    /// Delivers them here.
    Local,
}

/// A request to the kernel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RouteChange {
    pub(crate) prefix: AnyPrefix,
    /// `None` deletes.
    pub(crate) action: Option<Action>,
    pub(crate) metric: u32,
    pub(crate) flags: u16,
}

/// Buffers of a bulk.
#[derive(Default)]
pub(crate) struct Buffers {
    changes: Vec<RouteChange>,
    /// The place of the item of each change.
    places: Vec<usize>,
    /// What the items of a set had before.
    before: Vec<Option<(PacketAction, Oid)>>,
    /// The items that the kernel, or this crate, refuses.
    refused: Vec<(usize, Status)>,
}

/// The prefix of a route's item.
fn dest(item: &Item) -> Option<(Oid, AnyPrefix)> {
    match item.id {
        ObjectId::Route(entry) => Some((entry.vr, entry.dest)),
        _ => None,
    }
}

impl KernelChip {
    /// What the kernel shall do for a route with this action and target; `None`: it needs no route.
    pub(crate) fn action(
        &self,
        prefix: AnyPrefix,
        (packet, to): (PacketAction, Oid),
    ) -> Result<Option<Action>, Status> {
        let drops = || {
            // Without a default route packets are dropped too. One here would take the place of the
            // host's own, which may be the way to its management network.
            if prefix.len() == 0 { None } else { Some(Action::Blackhole) }
        };
        Ok(match packet {
            PacketAction::Drop => drops(),
            PacketAction::Trap => Some(Action::Local),
            PacketAction::Forward if to.is_null() => drops(),
            PacketAction::Forward if self.model.cpu_port() == Some(to) => Some(Action::Local),
            PacketAction::Forward => match self.next_hops.id(to, prefix.afi() == Afi::Ipv6) {
                Some(id) => Some(Action::Via(id?)),
                None => drops(),
            },
        })
    }

    /// What the kernel shall have at a prefix.
    fn wanted(&self, prefix: AnyPrefix) -> Result<Option<Action>, Status> {
        let vr = self.model.default_router().unwrap_or(Oid::NULL);
        self.model.route_action(vr, prefix).map_or(Ok(None), |route| self.action(prefix, route))
    }

    /// The metric of a prefix: behind a connected route of the kernel, before those of other programs. In IPv4 one
    /// metric is both.
    pub(crate) fn metric_of(&self, prefix: AnyPrefix) -> u32 {
        self.metric_beside(self.connected.contains(&prefix))
    }

    fn metric_beside(&self, connected: bool) -> u32 {
        let Settings { metric, .. } = self.settings;
        if connected && metric <= CONNECTED_IPV6 { metric + CONNECTED_IPV6 } else { metric }
    }

    fn change(&self, prefix: AnyPrefix, action: Option<Action>, flags: u16) -> RouteChange {
        RouteChange { prefix, action, metric: self.metric_of(prefix), flags }
    }

    /// The IPv6 prefixes that the kernel has as connected ones in the table of this chip.
    pub(crate) fn dump_connected(&mut self) -> io::Result<Set<AnyPrefix>> {
        let table = self.settings.table;
        self.socket.dump(
            |out, seq| dump_routes(out, seq, Afi::Ipv6, table, RTPROT_KERNEL),
            |prefixes: &mut Set<AnyPrefix>, content| {
                if let Content::NewRoute(route) = content
                    && is_connected_ipv6(&route, table)
                {
                    prefixes.insert(route.prefix);
                }
            },
        )
    }

    /// Connected IPv6 routes came or went: moves the routes of their prefixes to their metric. A route is written at
    /// the new metric before it is deleted at the former.
    pub(crate) fn follow_connected(&mut self) -> io::Result<()> {
        let now = self.dump_connected()?;
        let changed: Vec<AnyPrefix> = now.symmetric_difference(&self.connected).copied().collect();
        self.connected = now;
        let moved = |prefix: &AnyPrefix| {
            let action = self.wanted(*prefix).ok().flatten()?;
            let former = self.metric_beside(!self.connected.contains(prefix));
            let write = self.change(*prefix, Some(action), PUT);
            let delete = RouteChange { action: None, metric: former, flags: 0, ..write };
            (write.metric != former).then_some((write, delete))
        };
        let (mut changes, deletions): (Vec<_>, Vec<_>) = changed.iter().filter_map(moved).unzip();
        changes.extend(deletions);
        self.put(&changes).map(drop)
    }

    /// Executes a bulk of routes in mode [`ErrorMode::IgnoreError`].
    pub(crate) fn bulk_of_routes(&mut self, verb: Verb, items: &mut [Item], statuses: &mut Vec<Status>) {
        let mut buffers = std::mem::take(&mut self.buffers);
        let first = statuses.len();
        match verb {
            Verb::Create => self.create_routes(items, statuses, &mut buffers),
            Verb::Set => self.set_routes(items, statuses, &mut buffers),
            Verb::Remove => self.remove_routes(items, statuses, &mut buffers),
        }
        debug_assert_eq!(statuses.len(), first + items.len());
        buffers.changes.clear();
        buffers.places.clear();
        buffers.before.clear();
        buffers.refused.clear();
        self.buffers = buffers;
    }

    fn create_routes(&mut self, items: &mut [Item], statuses: &mut Vec<Status>, buffers: &mut Buffers) {
        let first = statuses.len();
        self.model.bulk(Verb::Create, ObjectType::RouteEntry, items, ErrorMode::IgnoreError, statuses);
        for (n, (item, status)) in items.iter().zip(statuses.iter().skip(first)).enumerate() {
            let Some((_, prefix)) = dest(item).filter(|_| status.is_success()) else { continue };
            match self.wanted(prefix) {
                Ok(None) => {}
                Ok(action) => {
                    let found = !self.found.is_empty() && self.found.remove(&prefix);
                    let flags = if found { PUT } else { NLM_F_CREATE | NLM_F_EXCL };
                    buffers.changes.push(self.change(prefix, action, flags));
                    buffers.places.push(n);
                }
                Err(status) => buffers.refused.push((n, status)),
            }
        }
        self.write(buffers);
        buffers.refused.sort_unstable_by_key(|(n, _)| std::cmp::Reverse(*n));
        for (n, status) in &buffers.refused {
            let (Some(item), Some(place)) = (items.get(*n), statuses.get_mut(first + n)) else { continue };
            *place = *status;
            self.model.one(Verb::Remove, ObjectType::RouteEntry, &mut Item::bare(item.id));
        }
    }

    fn set_routes(&mut self, items: &mut [Item], statuses: &mut Vec<Status>, buffers: &mut Buffers) {
        let first = statuses.len();
        let before = |item: &Item| dest(item).and_then(|(vr, prefix)| self.model.route_action(vr, prefix));
        buffers.before.extend(items.iter().map(before));
        self.model.bulk(Verb::Set, ObjectType::RouteEntry, items, ErrorMode::IgnoreError, statuses);
        let all = items.iter().zip(&buffers.before).zip(statuses.iter().skip(first));
        for (n, ((item, before), status)) in all.enumerate() {
            let Some((_, prefix)) = dest(item).filter(|_| status.is_success()) else { continue };
            let had = before.map_or(Ok(None), |route| self.action(prefix, route));
            match self.wanted(prefix) {
                Ok(action) if had == Ok(action) => {}
                Ok(action) => {
                    // Where the kernel had none of ours, another program's stays.
                    let flags = if had == Ok(None) { NLM_F_CREATE | NLM_F_EXCL } else { PUT };
                    buffers.changes.push(self.change(prefix, action, flags));
                    buffers.places.push(n);
                }
                Err(status) => buffers.refused.push((n, status)),
            }
        }
        self.write(buffers);
        buffers.refused.sort_unstable_by_key(|(n, _)| std::cmp::Reverse(*n));
        for (n, status) in &buffers.refused {
            let (Some(item), Some(place)) = (items.get(*n), statuses.get_mut(first + n)) else { continue };
            *place = *status;
            if let Some(Some((packet, to))) = buffers.before.get(*n) {
                let attrs = [Attr::RoutePacketAction(*packet), Attr::RouteNextHop(*to)];
                self.model.one(Verb::Set, ObjectType::RouteEntry, &mut Item::new(item.id, attrs));
            }
        }
    }

    fn remove_routes(&mut self, items: &mut [Item], statuses: &mut Vec<Status>, buffers: &mut Buffers) {
        for (n, item) in items.iter().enumerate() {
            let Some((vr, prefix)) = dest(item) else { continue };
            // The kernel has the routes of the default virtual router alone.
            if self.model.default_router() == Some(vr) && !matches!(self.wanted(prefix), Ok(None)) {
                buffers.changes.push(self.change(prefix, None, 0));
                buffers.places.push(n);
            }
        }
        self.write(buffers);
        if buffers.refused.is_empty() {
            let mode = ErrorMode::IgnoreError;
            return self.model.bulk(Verb::Remove, ObjectType::RouteEntry, items, mode, statuses);
        }
        let refused: Map<usize, Status> = buffers.refused.iter().copied().collect();
        for (n, item) in items.iter_mut().enumerate() {
            let refused = refused.get(&n).copied();
            statuses
                .push(refused.unwrap_or_else(|| self.model.one(Verb::Remove, ObjectType::RouteEntry, item)));
        }
    }

    /// Sends the changes of a bulk, and notes which items the kernel refuses.
    fn write(&mut self, buffers: &mut Buffers) {
        let Buffers { changes, places, refused, .. } = buffers;
        let mut first = None;
        let sent = self.request_routes(changes, |at, refusal| {
            if is_gone(changes, at, &refusal) {
                return;
            }
            if let Some(place) = places.get(at) {
                refused.push((*place, status::of_refusal(&refusal)));
            }
            first.get_or_insert((at, refusal));
        });
        if let Err(e) = sent {
            // Replies are lost, so none counts as done, and the comparison finds out what was.
            refused.clear();
            refused.extend(places.iter().map(|place| (*place, status::of_error(&e))));
            self.lose(&e);
        }
        if let Some((change, refusal)) = first.and_then(|(at, refusal)| Some((changes.get(at)?, refusal))) {
            let (count, prefix, text) = (refused.len(), change.prefix, refusal.text);
            self.events.push(format!(
                "the kernel refuses {count} routes of a request, the first is {prefix}: {text}"
            ));
        }
    }

    /// Sends requests; `refused` gets those that the kernel refuses.
    ///
    /// # Errors
    /// The socket has failed.
    fn request_routes(
        &mut self,
        changes: &[RouteChange],
        refused: impl FnMut(usize, Refusal),
    ) -> io::Result<()> {
        let (table, protocol) = (self.settings.table, self.settings.protocol);
        let loopback = [Hop { via: Via { gateway: None, ifindex: LOOPBACK, onlink: false }, weight: 1 }];
        self.socket.request(
            changes,
            |change, out, seq| {
                let metric = Some(change.metric);
                let Some(action) = change.action else {
                    let route = Route { metric, ..Route::deletion(change.prefix, table, protocol) };
                    let written = route.write_delete(out, 0, seq);
                    return debug_assert!(written.is_ok());
                };
                let next_hops = match action {
                    Action::Via(id) => NextHops::Id(id),
                    Action::Blackhole => NextHops::None,
                    Action::Local => NextHops::Inline((&loopback[..]).into()),
                };
                let mut route = Route { metric, ..Route::new(change.prefix, table, protocol, next_hops) };
                match action {
                    Action::Via(_) => {}
                    Action::Blackhole => route.kind = RouteKind::Blackhole,
                    Action::Local => (route.kind, route.scope) = (RouteKind::Local, RT_SCOPE_HOST),
                }
                let written = route.write_new(out, change.flags, seq);
                debug_assert!(written.is_ok());
            },
            refused,
        )
    }

    /// Writes requests that no caller waits for; a refused one is an event. Returns how many the kernel carried out: a
    /// deletion of what is not there is none.
    fn put(&mut self, changes: &[RouteChange]) -> io::Result<usize> {
        let (mut count, mut gone, mut first) = (0, 0, None);
        self.request_routes(changes, |at, refusal| {
            if is_gone(changes, at, &refusal) {
                gone += 1;
                return;
            }
            count += 1;
            first.get_or_insert((at, refusal));
        })?;
        if let Some((change, refusal)) = first.and_then(|(at, refusal)| Some((changes.get(at)?, refusal))) {
            let (prefix, text) = (change.prefix, refusal.text);
            self.events
                .push(format!("the kernel refuses {count} routes again, the first is {prefix}: {text}"));
        }
        Ok(changes.len() - count - gone)
    }

    /// Writes the routes to these targets again. O(routes).
    pub(crate) fn write_routes_of(&mut self, targets: &[Oid]) -> io::Result<()> {
        let Some(vr) = self.model.default_router().filter(|_| !targets.is_empty()) else { return Ok(()) };
        let targets: Set<Oid> = targets.iter().copied().collect();
        let routes = self.model.route_actions(vr).filter(|(.., to)| targets.contains(to));
        let change = |(prefix, packet, to)| {
            let action = self.action(prefix, (packet, to)).ok().flatten()?;
            Some(self.change(prefix, Some(action), PUT))
        };
        let changes: Vec<RouteChange> = routes.filter_map(change).collect();
        self.put(&changes).map(drop)
    }

    /// Other programs wrote or deleted these routes: writes those of this chip again, and deletes others with its
    /// protocol number. Returns how many it wrote or deleted.
    pub(crate) fn put_prefixes(&mut self, prefixes: &Set<AnyPrefix>) -> io::Result<usize> {
        let change = |prefix: &AnyPrefix| {
            let action = self.wanted(*prefix).ok()?;
            Some(self.change(*prefix, action, PUT))
        };
        let changes: Vec<RouteChange> = prefixes.iter().filter_map(change).collect();
        self.put(&changes)
    }

    /// The routes with the protocol number of this chip in its table, at the metrics that it uses.
    fn dump(&mut self) -> io::Result<Map<(AnyPrefix, u32), Option<Action>>> {
        let (table, protocol) = (self.settings.table, self.settings.protocol);
        let metrics = [false, true].map(|connected| self.metric_beside(connected));
        let mut all = Map::default();
        for afi in [Afi::Ipv4, Afi::Ipv6] {
            let routes = self.socket.dump(
                |out, seq| dump_routes(out, seq, afi, table, protocol),
                |routes: &mut Vec<((AnyPrefix, u32), Option<Action>)>, content| {
                    let Content::NewRoute(route) = content else { return };
                    let ours = route.table == table
                        && route.protocol == protocol
                        && route.flags & RTM_F_CLONED == 0
                        && route.tos == 0;
                    if let Some(metric) = route.metric.filter(|metric| ours && metrics.contains(metric)) {
                        routes.push(((route.prefix, metric), action_of(&route)));
                    }
                },
            )?;
            all.extend(routes);
        }
        Ok(all)
    }

    /// Notes the routes that an earlier syncd left.
    pub(crate) fn find_routes(&mut self) -> io::Result<()> {
        self.found = self.dump()?.into_keys().map(|(prefix, _)| prefix).collect();
        Ok(())
    }

    /// Compares the kernel's routes with those that it shall have, and corrects what differs. Returns how many did.
    pub(crate) fn compare_routes(&mut self) -> io::Result<usize> {
        let mut there = self.dump()?;
        let mut changes = Vec::new();
        if let Some(vr) = self.model.default_router() {
            for (prefix, packet, to) in self.model.route_actions(vr) {
                let Ok(action) = self.action(prefix, (packet, to)) else { continue };
                let found = there.remove(&(prefix, self.metric_of(prefix)));
                if action.is_some() && found != Some(action) {
                    changes.push(self.change(prefix, action, PUT));
                } else if action.is_none() && found.is_some() {
                    changes.push(self.change(prefix, None, 0));
                }
            }
        }
        let surplus = |(prefix, metric)| RouteChange { prefix, action: None, metric, flags: 0 };
        changes.extend(there.into_keys().map(surplus));
        let count = self.put(&changes)?;
        self.found = Set::default();
        Ok(count)
    }
}

/// Whether a route is one of IPv6 that the kernel itself has for the network of an address.
pub(crate) fn is_connected_ipv6(route: &Route<'_>, table: u32) -> bool {
    route.prefix.afi() == Afi::Ipv6
        && route.table == table
        && route.protocol == RTPROT_KERNEL
        && route.metric == Some(CONNECTED_IPV6)
}

/// Whether a refusal says that there is nothing to delete.
fn is_gone(changes: &[RouteChange], at: usize, refusal: &Refusal) -> bool {
    changes.get(at).is_some_and(|change| change.action.is_none()) && status::is_gone(refusal)
}

/// What a route of the kernel does, if it is one that this chip writes.
fn action_of(route: &Route<'_>) -> Option<Action> {
    match (route.kind, route.next_hops) {
        // The kernel says of a route by an object that drops that it is one that drops.
        (RouteKind::Unicast | RouteKind::Blackhole, NextHops::Id(id)) => Some(Action::Via(id)),
        (RouteKind::Blackhole, _) => Some(Action::Blackhole),
        (RouteKind::Local, _) => Some(Action::Local),
        _ => None,
    }
}
