//! The RIB manager itself: a batch of events in, what they change out.

use crate::RibConfig;
use crate::cache::CacheMode;
use crate::confirm::Confirm;
use crate::dataplane::{Dataplane, Dataplanes, Kind, PAGE, Prefixes, Replay};
use crate::fib_policy::{FibPolicyResult, NoRouteMaps, RouteMaps};
use crate::group::GroupKey;
use crate::interface::Connected;
use crate::lagging::Before;
use crate::message::{
    DataplaneId, FibAck, FibBatch, GroupId, IfIndex, InterfaceEvent, NONE, NextHops, Protocol, ReceivedHop,
    RibIn, RibOut, RouteBatch, RouteSet, Source, UrgentOp, Vrf, VrfId,
};
use crate::resolve::Resolver;
use crate::table::{Candidate, Route, RouteTables};
use ribtide_prefix::{AnyPrefix, Families, Family, Map, PREFETCH_BATCH, Prefix, for_each_family};
use std::sync::Arc;

/// The RIB manager.
///
/// [`Rib::handle`] takes events and returns effects; everything else only looks. One batch is worked through in
/// five steps: events change candidates and mark the targets that may resolve differently; marked targets and
/// groups (or, as the cache's mode has it, routes) are resolved; selection is made again for changed prefixes; groups and routes that differ from what the
/// FIB has become operations; what is not in use is forgotten.
pub struct Rib {
    pub(crate) tables: RouteTables,
    pub(crate) resolver: Resolver,
    connected: Connected,
    pub(crate) dataplanes: Dataplanes,
    pub(crate) confirm: Confirm,
    /// What is to be tried again, and by whom.
    retries: Vec<DataplaneId>,
    route_maps: Arc<dyn RouteMaps>,
    /// The time, as [`Rib::set_time`] told it.
    now: u64,
    /// Sources that a replay's end still waits for.
    awaited: Vec<Source>,
    /// Number of the latest batch, of this VRF or another.
    pub(crate) seq: u64,
    pub(crate) vrf: Vrf,
}

impl Rib {
    /// An empty RIB.
    pub fn new(config: RibConfig) -> Rib {
        Rib {
            tables: RouteTables::default(),
            connected: Connected::default(),
            dataplanes: Dataplanes::default(),
            confirm: Confirm::new(config.dataplanes.clone()),
            retries: Vec::new(),
            route_maps: Arc::new(NoRouteMaps),
            now: 0,
            awaited: config.initial_sources.clone(),
            seq: 0,
            vrf: config.vrf,
            resolver: Resolver::new(config),
        }
    }

    /// Takes events, in order, and returns what they change. Later events of a batch override earlier ones before
    /// anything is resolved: bigger batches cost less.
    ///
    /// # Panics
    /// When a change of a [`RouteBatch`] names a set that the batch does not have.
    pub fn handle(&mut self, events: impl IntoIterator<Item = RibIn>) -> RibOut {
        let mut out = RibOut::default();
        self.update(events, &mut out);
        self.catch_up(&mut out);
        self.end_replays(&mut out, |_| true);
        out
    }

    /// Whether routes are left over whose group lost its last way or has its first again. Each [`Rib::handle`], be it without
    /// events, selects some of them again, [`RibConfig::turn`] at most; what overtakes routes waits for no more than that.
    pub fn has_more(&self) -> bool {
        self.tables.v4.is_scanning() || self.tables.v6.is_scanning()
    }

    /// When the next delayed answer to BGP is due, in the time of [`Rib::set_time`]: a [`Rib::handle`] then tells it.
    pub fn next_due(&self) -> Option<u64> {
        self.resolver.tracking.next_due()
    }

    /// Shrinks every table to its contents. O(capacity): call it only when the stage is idle.
    pub fn shrink_to_fit(&mut self) {
        for_each_family!(F => self.tables.get_mut::<F>().shrink_to_fit());
        self.dataplanes.values_mut().for_each(Dataplane::shrink_to_fit);
    }

    /// The first part of [`Rib::handle`]: what changes, for every dataplane.
    pub(crate) fn update(&mut self, events: impl IntoIterator<Item = RibIn>, out: &mut RibOut) {
        self.take(events);
        self.resolver.resolve_batch(&mut self.tables);
        self.update_fib(out);
    }

    /// The second part: what single dataplanes are still to be sent, and what is confirmed.
    pub(crate) fn catch_up(&mut self, out: &mut RibOut) {
        self.replay(out);
        self.retry(out);
        self.confirm.tell(&self.tables, &mut self.resolver, &self.dataplanes, self.seq, out);
    }

    /// Takes events as [`Rib::handle`] does, failures foremost, but does no more about them than to give groups that
    /// dataplanes have another content: from interfaces to next hops to groups, and no route is looked at. The next
    /// [`Rib::handle`], which may be one without events, does the rest.
    ///
    /// For every dataplane that is up, ahead of the batches that wait for it; see [`crate::UrgentQueue`].
    ///
    /// # Panics
    /// As [`Rib::handle`].
    pub fn urgent(&mut self, events: impl IntoIterator<Item = RibIn>) -> Vec<UrgentOp> {
        self.take(events);
        self.resolver.urgent(&self.tables, self.seq)
    }

    /// Notes events, and marks what they may change.
    pub(crate) fn take(&mut self, events: impl IntoIterator<Item = RibIn>) {
        for event in events {
            match event {
                RibIn::Routes(batch) => self.routes(&batch),
                RibIn::EndOfInitial(source) => self.awaited.retain(|s| *s != source),
                RibIn::Interface(state) => self.interface_event(state.index, Some(state)),
                RibIn::InterfaceRemoved(index) => self.interface_event(index, None),
                RibIn::Gateway(event) => self.resolver.gateway_event(event),
                RibIn::Track(next_hops) => next_hops.into_iter().for_each(|n| self.resolver.track(n)),
                RibIn::Untrack(next_hops) => next_hops.into_iter().for_each(|n| self.resolver.untrack(n)),
                RibIn::DataplaneUp(id) => {
                    self.dataplanes.insert(id, Dataplane::default());
                    self.reuse_groups();
                }
                RibIn::DataplaneDown(id) => {
                    self.dataplanes.remove(&id);
                    self.reuse_groups();
                }
                RibIn::Lagging(id) => {
                    if let Some(dataplane) = self.dataplanes.get_mut(&id) {
                        dataplane.dirty.get_or_insert_default();
                    }
                }
                RibIn::Ack(ack) => self.ack(ack),
                RibIn::Retry(id) => self.retries.push(id),
                RibIn::Confirm(mark) => self.confirm.mark(mark),
                RibIn::Suppress(on) => self.confirm.switch(on, &self.tables, &self.dataplanes),
            }
        }
    }

    /// The resolution cache works so from the next batch on; nothing resolves differently.
    pub fn set_cache_mode(&mut self, mode: CacheMode) {
        self.resolver.set_cache_mode(mode);
    }

    /// From now on the time that resolution takes is measured by `clock`, which tells nanoseconds since any moment.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.resolver.cache.clock = Some(clock);
    }

    /// What time it is from now on, in milliseconds since any moment: failures have it, and answers to BGP are delayed by
    /// it.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// Applies this FIB policy from now on. Routes with another result than before change with the
    /// next batch, which may be one without events; nothing else does. Looks at every route.
    pub fn set_route_maps(&mut self, route_maps: Arc<dyn RouteMaps>) {
        self.route_maps = route_maps;
        // As in the scheme that the mode `epoch` follows; groups know their policy result.
        self.resolver.invalidate();
        let Rib { tables, resolver, route_maps, .. } = self;
        for_each_family!(F => {
            let mut known = Map::default();
            tables.get_mut::<F>().regroup(|prefix, candidate| {
                let policy_result = policy_result(&**route_maps, candidate.protocol, prefix);
                let group = *known
                    .entry((candidate.group, policy_result))
                    .or_insert_with(|| resolver.intern_with_policy(candidate.group, policy_result));
                if group != candidate.group {
                    resolver.retain(group);
                    resolver.release(candidate.group);
                    if resolver.concerns(prefix) {
                        resolver.prefix_changed(prefix);
                    }
                }
                group
            });
        });
    }

    fn routes(&mut self, batch: &RouteBatch) {
        for_each_family!(F => if !batch.changes.get::<F>().is_empty() {
            let sets: Vec<(Candidate, bool)> = batch.sets.iter().map(|set| self.candidate::<F>(set)).collect();
            // Of sets whose routes are evaluated one by one: the groups by result.
            let mut by_policy: Map<(u32, FibPolicyResult), u32> = Map::default();
            for changes in batch.changes.get::<F>().chunks(PREFETCH_BATCH) {
                self.tables.get::<F>().prefetch(changes.iter().map(|(prefix, _)| *prefix));
                for (prefix, set) in changes {
                    let known = (*set != NONE).then(|| sets[*set as usize]);
                    let candidate = known.map(|(mut candidate, by_prefix)| {
                        if by_prefix {
                            let policy_result = self.route_maps.of(candidate.protocol, prefix.any());
                            candidate.group = *by_policy
                                .entry((candidate.group, policy_result))
                                .or_insert_with(|| self.resolver.intern_with_policy(candidate.group, policy_result));
                        }
                        candidate
                    });
                    self.put::<F>(*prefix, batch.source, candidate);
                }
            }
        });
    }

    /// The candidate of the routes of a set, and whether their FIB policy result depends on their prefixes.
    fn candidate<F: Family>(&mut self, set: &RouteSet) -> (Candidate, bool) {
        let of_all = self.route_maps.of_all(set.protocol, F::AFI);
        let key = GroupKey { policy_result: of_all.unwrap_or_default(), ..GroupKey::new(set) };
        let RouteSet { metric, distance, protocol, .. } = *set;
        (Candidate { group: self.resolver.intern(key), metric, distance, protocol }, of_all.is_none())
    }

    /// Gives `source` a candidate for `prefix`, or takes it away.
    fn put<F: Family>(&mut self, prefix: Prefix<F>, source: Source, mut candidate: Option<Candidate>) {
        self.confirm.named(prefix.any());
        // Most prefixes hold no gateway, and then neither can the route lead to itself nor can any answer change.
        let concerned = self.resolver.concerns(prefix);
        if concerned && let Some(candidate) = &mut candidate {
            candidate.group = self.resolver.intern_for(candidate.group, prefix.any());
        }
        let mut changed = false;
        while let Some(old) = self.tables.get_mut::<F>().put(prefix, source, candidate) {
            changed = true;
            candidate.inspect(|new| self.resolver.retain(new.group));
            old.inspect(|old| self.resolver.release(old.group));
            if candidate.is_some() || source != Source::Static {
                break;
            }
        }
        if concerned && changed {
            self.resolver.prefix_changed(prefix);
        }
    }

    fn interface_event(&mut self, index: IfIndex, new: Option<InterfaceEvent>) {
        let interfaces = &mut self.resolver.interfaces;
        let old = match &new {
            Some(state) => interfaces.insert(index, state.clone()),
            None => interfaces.remove(&index),
        };
        if old.as_ref().map(|s| s.up) != new.as_ref().map(|s| s.up) {
            self.resolver.interface_changed(index);
        }
        let addresses =
            |state: &Option<InterfaceEvent>| state.as_ref().map_or(Vec::new(), |s| s.addresses.clone());
        self.resolver.addresses_changed(&addresses(&old), &addresses(&new));
        if old.as_ref().map(|s| (s.up, &s.addresses)) != new.as_ref().map(|s| (s.up, &s.addresses)) {
            self.resolver.invalidate();
        }
        for prefix in self.connected.change(index, old.as_ref(), new.as_ref()) {
            let mut hops: Vec<ReceivedHop> =
                self.connected.on(prefix).iter().map(|i| ReceivedHop::interface(*i)).collect();
            let candidate = (!hops.is_empty()).then(|| Candidate {
                group: self.resolver.intern(GroupKey::plain(NextHops::Via(std::mem::take(&mut hops)), false)),
                metric: 0,
                distance: Protocol::Connected.default_distance(),
                protocol: Protocol::Connected,
            });
            match prefix {
                AnyPrefix::V4(prefix) => self.put_connected(prefix, candidate),
                AnyPrefix::V6(prefix) => self.put_connected(prefix, candidate),
            }
        }
    }

    fn put_connected<F: Family>(&mut self, prefix: Prefix<F>, mut candidate: Option<Candidate>) {
        if let Some(candidate) = &mut candidate {
            let policy_result = policy_result(&*self.route_maps, Protocol::Connected, prefix);
            candidate.group = self.resolver.intern_with_policy(candidate.group, policy_result);
        }
        self.put(prefix, Source::Connected, candidate);
    }

    fn ack(&mut self, ack: FibAck) {
        let tables = &self.tables;
        if let Some(dataplane) = self.dataplanes.get_mut(&ack.dataplane) {
            let FibAck { seq, mut failed, mut installed, .. } = ack;
            failed.retain(|(at, _)| at.vrf == self.vrf.id);
            installed.retain(|at| at.vrf == self.vrf.id);
            failed.iter().for_each(|(at, _)| self.confirm.suspect(at.prefix, true));
            installed.iter().for_each(|at| self.confirm.suspect(at.prefix, false));
            dataplane.acknowledged(seq, failed, installed, self.now, |prefix| changed(tables, prefix));
        }
    }

    /// Selects again where needed, and makes the batch that brings the FIB up to date.
    fn update_fib(&mut self, out: &mut RibOut) {
        let any_behind = self.is_any_behind();
        let Rib { tables, resolver, confirm, vrf, dataplanes, now, .. } = self;
        let mut before: Families<Before> = Families::default();
        let removed = resolver.groups.removed();
        let mut fib = FibBatch { seq: self.seq + 1, vrf: *vrf, ..FibBatch::default() };
        for_each_family!(F => {
            let idle = |prefix: Prefix<F>| confirm.suspect(prefix.any(), false);
            let before = |learnt| if any_behind { before.get_mut::<F>().push(learnt) };
            tables.get_mut::<F>().select(resolver, fib.seq, fib.routes.get_mut::<F>(), before, idle);
        });
        resolver.finish(fib.seq, *now, &mut fib.groups, &mut fib.after, out);
        if !fib.is_empty() {
            self.seq = fib.seq;
            for (id, dataplane) in dataplanes.iter_mut().filter(|(_, d)| !matches!(d.replay, Replay::New)) {
                if dataplane.dirty.is_some() {
                    let groups = &resolver.groups.store;
                    let is_new = |id: GroupId| groups.get(id.0).is_some_and(|group| group.made == fib.seq);
                    dataplane.mark_dirty(&fib, &before, is_new);
                    out.lagging.push(*id);
                } else {
                    dataplane.sent(&fib, Kind::Live);
                }
            }
            confirm.sent(&fib);
            out.fib = Some(fib);
        }
        if self.resolver.groups.removed() > removed {
            self.reuse_groups();
        }
    }

    /// The numbers of groups that are gone may mean others, as far as no dataplane still has those.
    fn reuse_groups(&mut self) {
        let dataplanes = &self.dataplanes;
        self.resolver.groups.reuse(|group| dataplanes.values().any(|d| d.holds(group)));
    }

    /// Sends the next pages to dataplanes whose replay is under way, and to lagging ones.
    fn replay(&mut self, out: &mut RibOut) {
        let Rib { tables, resolver, dataplanes, seq, confirm, vrf, .. } = self;
        let mut caught_up = false;
        for (id, dataplane) in dataplanes {
            while dataplane.wants_page() {
                let mut page = FibBatch { seq: *seq + 1, vrf: *vrf, ..FibBatch::default() };
                let mut stale = None;
                match &mut dataplane.replay {
                    Replay::New => {
                        // The other VRFs' are part of it.
                        page.start_of_replay = vrf.id == VrfId::DEFAULT;
                        page.groups = resolver.in_fib();
                        dataplane.replay = Replay::Sending(installed_prefixes(tables));
                    }
                    Replay::Sending(left) => {
                        dataplane.dirty.iter_mut().for_each(|dirty| dirty.take_groups(resolver, &mut page));
                        for_each_family!(F => {
                            let room = PAGE - page.route_count();
                            let left = left.get_mut::<F>();
                            let next = left.drain(left.len().saturating_sub(room)..);
                            page.routes.get_mut::<F>().extend(next.filter_map(|p| tables.get::<F>().installed(p)));
                        });
                        if left.v4.is_empty() && left.v6.is_empty() {
                            dataplane.replay = Replay::Waiting;
                        }
                    }
                    Replay::Waiting | Replay::Done => {
                        let Some(dirty) = &mut dataplane.dirty else { break };
                        stale = Some(dirty.take(resolver, tables, &mut page));
                        if dirty.is_empty() {
                            dataplane.dirty = None;
                            caught_up = true;
                        }
                    }
                }
                if page.is_empty() {
                    continue;
                }
                *seq = page.seq;
                match stale {
                    Some(stale) => dataplane.sent_since(&page, Kind::Stale, stale),
                    None => dataplane.sent(&page, Kind::Page),
                }
                confirm.sent(&page);
                out.replay.push((*id, page));
            }
        }
        if caught_up {
            self.reuse_groups();
        }
    }

    /// Ends the replays that have no route left to send, where the sources have announced everything and other VRFs have
    /// nothing left either (`others`).
    pub(crate) fn end_replays(&mut self, out: &mut RibOut, others: impl Fn(DataplaneId) -> bool) {
        if !self.awaited.is_empty() {
            return;
        }
        let Rib { dataplanes, seq, vrf, .. } = self;
        for (id, dataplane) in dataplanes {
            if matches!(dataplane.replay, Replay::Waiting) && dataplane.was_sent_all() && others(*id) {
                *seq += 1;
                let end = FibBatch { seq: *seq, vrf: *vrf, end_of_replay: true, ..FibBatch::default() };
                dataplane.replay = Replay::Done;
                dataplane.sent(&end, Kind::Mark);
                out.replay.push((*id, end));
            }
        }
    }

    /// How many batches each dataplane has to acknowledge, of this VRF.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = (DataplaneId, usize)> {
        self.dataplanes.iter().map(|(id, dataplane)| (*id, dataplane.outstanding()))
    }

    /// So many batches each dataplane has to acknowledge of all VRFs.
    pub(crate) fn outstanding_of_all(&mut self, of_all: &Map<DataplaneId, usize>) {
        for (id, dataplane) in &mut self.dataplanes {
            let of_all = of_all.get(id).copied().unwrap_or(0);
            dataplane.elsewhere = of_all.saturating_sub(dataplane.outstanding());
        }
    }

    /// Whether any dataplane lags.
    pub(crate) fn is_any_behind(&self) -> bool {
        self.dataplanes.values().any(|dataplane| dataplane.dirty.is_some())
    }

    /// Whether no route of a replay is left to be sent to this dataplane.
    pub(crate) fn has_sent_all(&self, id: DataplaneId) -> bool {
        self.dataplanes.get(&id).is_none_or(Dataplane::was_sent_all)
    }

    /// Forgets every interface, and withdraws every route.
    pub(crate) fn clear(&mut self) {
        let interfaces: Vec<IfIndex> = self.resolver.interfaces.keys().copied().collect();
        interfaces.into_iter().for_each(|index| self.interface_event(index, None));
        for_each_family!(F => {
            let prefixes: Vec<Prefix<F>> = self.tables.get::<F>().routes.iter().map(|(prefix, _)| prefix).collect();
            for prefix in prefixes {
                for source in [Source::Kernel, Source::Static, Source::Bgp] {
                    self.put(prefix, source, None);
                }
            }
        });
    }

    /// Sends what failed once more, a page of it, to each dataplane that is to try again and does not lag: that one has
    /// other things to do.
    fn retry(&mut self, out: &mut RibOut) {
        for id in std::mem::take(&mut self.retries) {
            let dataplane = self.dataplanes.get_mut(&id).filter(|d| d.dirty.is_none());
            let Some(dataplane) = dataplane else { continue };
            let mut page = FibBatch { seq: self.seq + 1, vrf: self.vrf, again: true, ..FibBatch::default() };
            for prefix in dataplane.retry(PAGE) {
                match prefix {
                    AnyPrefix::V4(prefix) => page.routes.v4.extend(self.tables.v4.installed(prefix)),
                    AnyPrefix::V6(prefix) => page.routes.v6.extend(self.tables.v6.installed(prefix)),
                }
            }
            if page.is_empty() {
                continue;
            }
            self.seq = page.seq;
            dataplane.sent(&page, Kind::Retry);
            self.confirm.sent(&page);
            out.replay.push((id, page));
        }
    }
}

/// The result of FIB policy for a route.
fn policy_result<F: Family>(
    route_maps: &dyn RouteMaps,
    protocol: Protocol,
    prefix: Prefix<F>,
) -> FibPolicyResult {
    let of_all = route_maps.of_all(protocol, F::AFI);
    of_all.unwrap_or_else(|| route_maps.of(protocol, prefix.any()))
}

/// Every prefix that the FIB has, in no order.
pub(crate) fn installed_prefixes(tables: &RouteTables) -> Families<Prefixes> {
    let mut prefixes: Families<Prefixes> = Families::default();
    for_each_family!(F => {
        let routes = tables.get::<F>().routes.iter().filter(|(_, r)| r.fib != 0);
        *prefixes.get_mut::<F>() = routes.map(|(prefix, _)| prefix).collect();
    });
    prefixes
}

/// The low half of the number of the batch that last changed what the FIB has for `prefix`; 0 when there is none.
pub(crate) fn changed(tables: &RouteTables, prefix: AnyPrefix) -> u32 {
    route(tables, prefix).map_or(0, |r| r.changed)
}

/// The table's entry for `prefix`.
pub(crate) fn route(tables: &RouteTables, prefix: AnyPrefix) -> Option<&Route> {
    match prefix {
        AnyPrefix::V4(prefix) => tables.v4.routes.get(prefix),
        AnyPrefix::V6(prefix) => tables.v6.routes.get(prefix),
    }
}
