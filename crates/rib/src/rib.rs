//! The RIB manager of one VRF: a batch of events in, effects out.

use crate::batch_times::BatchTimes;
use crate::cache::CacheMode;
use crate::confirmations::Confirm;
use crate::dataplane::{Dataplane, Dataplanes, Kind, PAGE, Prefixes, Replay};
use crate::fib_policy::{FibPolicyResult, NoRouteMaps, RouteMaps};
use crate::group::GroupKey;
use crate::interface::Connected;
use crate::lagging::Before;
use crate::message::{
    DataplaneId, FibAck, FibBatch, GroupId, IfIndex, InterfaceEvent, NONE, NextHops, Protocol, ReceivedHop,
    RibIn, RibOut, RouteBatch, RouteSet, Source, UrgentOp, Vrf, VrfId,
};
use crate::redistribution::{Redistribution, Redistributor};
use crate::resolver::Resolver;
use crate::table::{Candidate, Route, RouteTables};
use crate::{ResolutionSettings, RibConfig};
use ribtide_prefix::{AnyPrefix, Families, Family, Map, PREFETCH_BATCH, Prefix, for_each_family};
use std::sync::Arc;

/// The RIB manager.
///
/// [`Rib::handle`] takes events and returns effects; all other functions are queries. A batch has
/// five steps:
///
/// 1. Events change candidates and mark targets that may resolve differently.
/// 2. Marked targets and groups (or routes, by cache mode) are resolved.
/// 3. Changed prefixes are selected again.
/// 4. Groups and routes that differ from the FIB become operations.
/// 5. Unused objects are dropped.
pub struct Rib {
    pub(crate) tables: RouteTables,
    pub(crate) resolver: Resolver,
    connected: Connected,
    pub(crate) dataplanes: Dataplanes,
    pub(crate) confirm: Confirm,
    /// Dataplanes that try their failed routes again.
    retries: Vec<DataplaneId>,
    route_maps: Arc<dyn RouteMaps>,
    redistribution: Redistributor,
    /// The time of [`Rib::set_time`].
    now: u64,
    pub(crate) times: BatchTimes,
    /// Sources that the end of a replay still waits for.
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
            redistribution: Redistributor::default(),
            now: 0,
            times: BatchTimes::default(),
            awaited: config.initial_sources.clone(),
            seq: 0,
            vrf: config.vrf,
            resolver: Resolver::new(config),
        }
    }

    /// Applies events in order and returns the effects. Within a batch, later events override
    /// earlier ones before anything is resolved, so bigger batches cost less.
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

    /// Whether reselection is left over from a group that became resolved or unresolved. Each
    /// [`Rib::handle`], also one without events, reselects at most [`RibConfig::turn`] routes.
    /// Urgent operations wait for no more than one turn.
    pub fn has_more(&self) -> bool {
        self.tables.v4.is_scanning() || self.tables.v6.is_scanning()
    }

    /// Whether every source has announced its initial routes, and every group of them resolves.
    pub fn is_resolved(&self) -> bool {
        self.awaited.is_empty() && !self.resolver.has_unresolved()
    }

    /// When the next delayed notification to BGP is due, in the time of [`Rib::set_time`]; a
    /// [`Rib::handle`] then sends it.
    pub fn next_due(&self) -> Option<u64> {
        self.resolver.tracking.next_due()
    }

    /// Shrinks every table to its contents. O(capacity): call it only when the stage is idle.
    pub fn shrink_to_fit(&mut self) {
        for_each_family!(F => self.tables.get_mut::<F>().shrink_to_fit());
        self.dataplanes.values_mut().for_each(Dataplane::shrink_to_fit);
        self.confirm.shrink_to_fit();
    }

    /// The first part of [`Rib::handle`]: changes for every dataplane.
    pub(crate) fn update(&mut self, events: impl IntoIterator<Item = RibIn>, out: &mut RibOut) {
        self.take(events);
        self.resolver.resolve_batch(&mut self.tables);
        self.update_fib(out);
    }

    /// The second part: pages for single dataplanes, and confirmations.
    pub(crate) fn catch_up(&mut self, out: &mut RibOut) {
        self.replay(out);
        self.retry(out);
        self.confirm.report(&self.tables, &mut self.resolver, &self.dataplanes, self.seq, out);
    }

    /// Applies events, failures first, but changes only the content of groups that dataplanes have;
    /// it visits no route. The next [`Rib::handle`], which may have no events, does the rest.
    ///
    /// The operations overtake the queued batches of every dataplane that is up; see
    /// [`crate::UrgentQueue`].
    ///
    /// # Panics
    /// As [`Rib::handle`].
    pub fn urgent(&mut self, events: impl IntoIterator<Item = RibIn>) -> Vec<UrgentOp> {
        self.take(events);
        self.resolver.urgent(&self.tables, self.seq)
    }

    /// Applies events to candidates and marks stale targets.
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
                RibIn::Holding(id, holding) => {
                    if let Some(dataplane) = self.dataplanes.get_mut(&id) {
                        dataplane.holding = holding;
                    }
                }
                RibIn::Retry(id) => self.retries.push(id),
                RibIn::Confirm(fence) => self.confirm.fence(fence),
                RibIn::Suppress(on) => {
                    self.confirm.switch(on, &self.tables, &self.resolver, &self.dataplanes)
                }
            }
        }
    }

    /// Sets the dataplanes that must finish a change before it is confirmed, up or not. Another one is down from now on, and
    /// what it had failed blocks no prefix any more. The next batch, which may have no events, has the confirmations.
    pub fn set_dataplanes(&mut self, planes: &[DataplaneId]) {
        self.confirm.set_planes(planes);
        let Rib { dataplanes, confirm, .. } = self;
        dataplanes.retain(|id, dataplane| {
            let stays = planes.contains(id);
            if !stays {
                dataplane.failed.keys().for_each(|prefix| confirm.suspect(*prefix, false));
            }
            stays
        });
        self.reuse_groups();
    }

    /// Withdraws every route of `source`. The next batch, which may have no events, has the changes. Visits every route.
    pub fn forget_source(&mut self, source: Source) {
        for_each_family!(F => {
            let prefixes: Vec<Prefix<F>> = self.tables.get::<F>().routes.iter().map(|(prefix, _)| prefix).collect();
            prefixes.into_iter().for_each(|prefix| self.put(prefix, source, None));
        });
    }

    /// Changes the mode of the resolution cache from the next batch on; the results are the same.
    pub fn set_cache_mode(&mut self, mode: CacheMode) {
        self.resolver.set_cache_mode(mode);
    }

    /// Resolves next hops by other settings. The next batch, which may have no events, has the difference. Visits every
    /// next-hop group.
    pub fn set_resolution(&mut self, by: ResolutionSettings) {
        self.resolver.set_resolution(by);
    }

    /// Measures the time of resolution with `clock`, in nanoseconds since any fixed moment.
    pub fn set_clock(&mut self, clock: fn() -> u64) {
        self.resolver.cache.clock = Some(clock);
    }

    /// Sets the time, in milliseconds since any fixed moment. Failures carry it, and delays of
    /// notifications use it.
    pub fn set_time(&mut self, now: u64) {
        self.now = now;
    }

    /// Replaces the FIB policy. Routes whose result differs change with the next batch, which may
    /// have no events. Visits every route.
    pub fn set_route_maps(&mut self, route_maps: Arc<dyn RouteMaps>) {
        self.route_maps = route_maps;
        // The mode `epoch` follows zebra here; groups have the policy result in their keys.
        self.resolver.invalidate();
        let Rib { tables, resolver, route_maps, .. } = self;
        for_each_family!(F => {
            let mut regrouped = Map::default();
            tables.get_mut::<F>().regroup(|prefix, candidate| {
                let policy_result = policy_result(&**route_maps, candidate.protocol, prefix);
                let group = *regrouped
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

    /// Sets the routes that BGP originates. The next batch, which may have no events, reports the
    /// difference. Visits every route.
    pub fn set_redistribution(&mut self, wanted: Redistribution) {
        self.redistribution.set(wanted, &self.tables, &self.resolver);
    }

    fn routes(&mut self, batch: &RouteBatch) {
        for_each_family!(F => if !batch.changes.get::<F>().is_empty() {
            let sets: Vec<(Candidate, bool)> = batch.sets.iter().map(|set| self.candidate::<F>(set)).collect();
            // For sets with a result per prefix: the group of each result.
            let mut by_policy: Map<(u32, FibPolicyResult), u32> = Map::default();
            for changes in batch.changes.get::<F>().chunks(PREFETCH_BATCH) {
                self.tables.get::<F>().prefetch(changes.iter().map(|(prefix, _)| *prefix));
                for (prefix, set) in changes {
                    let of_set = (*set != NONE).then(|| sets[*set as usize]);
                    let candidate = of_set.map(|(mut candidate, by_prefix)| {
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

    /// Gives `source` a candidate for `prefix`, or removes it.
    fn put<F: Family>(&mut self, prefix: Prefix<F>, source: Source, mut candidate: Option<Candidate>) {
        self.confirm.named(prefix.any());
        // Most prefixes hold no gateway. Such a route cannot resolve itself, and no answer changes.
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
        let link = |state: &Option<InterfaceEvent>| state.as_ref().map(|s| s.up);
        let link_changed = link(&old) != link(&new);
        let own = |state: &Option<InterfaceEvent>| {
            state.as_ref().map_or((false, Vec::new()), |s| (s.loopback, s.addresses.clone()))
        };
        let addresses_changed = own(&old) != own(&new);
        if link_changed {
            self.resolver.interface_changed(index);
        }
        if addresses_changed {
            self.resolver.addresses_changed(old.as_ref(), new.as_ref());
        }
        if link_changed || addresses_changed {
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

    /// Selects changed prefixes again and makes the batch that updates the FIB.
    fn update_fib(&mut self, out: &mut RibOut) {
        let any_lagging = self.is_any_lagging();
        let Rib { tables, resolver, confirm, vrf, dataplanes, now, times, redistribution, .. } = self;
        let mut before: Families<Before> = Families::default();
        let removed = resolver.groups.removed();
        let mut fib = FibBatch { seq: self.seq + 1, vrf: *vrf, ..FibBatch::default() };
        for_each_family!(F => {
            let idle = |prefix: Prefix<F>| confirm.suspect(prefix.any(), false);
            let before = |learnt| if any_lagging { before.get_mut::<F>().push(learnt) };
            let routes = fib.routes.get_mut::<F>();
            tables.get_mut::<F>().select(resolver, fib.seq, routes, redistribution, before, idle);
        });
        out.redistributed.append(&mut redistribution.take_changes());
        resolver.finish(fib.seq, *now, &mut fib.groups, &mut fib.after, out);
        if !fib.is_empty() {
            self.seq = fib.seq;
            times.note(fib.seq, *now);
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

    /// Frees the numbers of deleted groups that no dataplane still has.
    fn reuse_groups(&mut self) {
        let dataplanes = &self.dataplanes;
        self.resolver.groups.reuse(|group| dataplanes.values().any(|d| d.holds(group)));
    }

    /// Sends the next pages of replays and of dirty sets.
    fn replay(&mut self, out: &mut RibOut) {
        let Rib { tables, resolver, dataplanes, seq, confirm, vrf, .. } = self;
        let mut caught_up = false;
        for (id, dataplane) in dataplanes {
            while dataplane.wants_page() {
                let mut page = FibBatch { seq: *seq + 1, vrf: *vrf, ..FibBatch::default() };
                let mut stale = None;
                match &mut dataplane.replay {
                    Replay::New => {
                        // The replay covers the other VRFs too.
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

    /// Ends replays without unsent routes, once the sources have announced everything and other
    /// VRFs (`others`) have nothing left.
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
                dataplane.sent(&end, Kind::ReplayBound);
                out.replay.push((*id, end));
            }
        }
    }

    /// Unacknowledged batches of this VRF, per dataplane.
    pub(crate) fn outstanding(&self) -> impl Iterator<Item = (DataplaneId, usize)> {
        self.dataplanes.iter().map(|(id, dataplane)| (*id, dataplane.outstanding()))
    }

    /// Sets the unacknowledged batches of all VRFs, per dataplane.
    pub(crate) fn outstanding_of_all(&mut self, of_all: &Map<DataplaneId, usize>) {
        for (id, dataplane) in &mut self.dataplanes {
            let of_all = of_all.get(id).copied().unwrap_or(0);
            dataplane.elsewhere = of_all.saturating_sub(dataplane.outstanding());
        }
    }

    /// Whether any dataplane lags.
    pub(crate) fn is_any_lagging(&self) -> bool {
        self.dataplanes.values().any(|dataplane| dataplane.dirty.is_some())
    }

    /// Whether this dataplane was sent every route of its replay.
    pub(crate) fn has_sent_all(&self, id: DataplaneId) -> bool {
        self.dataplanes.get(&id).is_none_or(Dataplane::was_sent_all)
    }

    /// Removes every interface and withdraws every route.
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

    /// Sends a page of failed routes to each dataplane that retries and does not lag.
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

/// Every prefix in the FIB, in any order.
pub(crate) fn installed_prefixes(tables: &RouteTables) -> Families<Prefixes> {
    let mut prefixes: Families<Prefixes> = Families::default();
    for_each_family!(F => {
        let routes = tables.get::<F>().routes.iter().filter(|(_, r)| r.fib != 0);
        *prefixes.get_mut::<F>() = routes.map(|(prefix, _)| prefix).collect();
    });
    prefixes
}

/// The low half of the number of the batch that last changed the FIB for `prefix`; 0 without one.
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
