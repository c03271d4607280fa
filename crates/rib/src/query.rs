//! Queries of the API. They change nothing and are not part of route processing.

use crate::cache::{CacheCounters, CacheMode};
use crate::dataplane::{Dataplane, Failure, InstallStatus, Prefixes, Replay};
use crate::fib_policy::FibPolicyResult;
use crate::group::{Group, GroupKey};
use crate::lagging::DirtySet;
use crate::message::{
    DataplaneId, FibGroup, GroupId, IfIndex, InterfaceEvent, Protocol, ReceivedHop, RouteSet, Source, Track,
};
use crate::rib::{Rib, changed, installed_prefixes};
use crate::table::{Candidate, Route};
use crate::target::Outcome;
use crate::tracking::TrackedInfo;
use ribtide_prefix::{Afi, AnyPrefix, Families, Family, Prefix, V4, V6, for_each_family};
use std::collections::BTreeSet;
use std::fmt;
use std::net::IpAddr;

/// A route that the FIB has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RouteInfo {
    /// Which.
    pub prefix: AnyPrefix,
    /// How it was learnt.
    pub protocol: Protocol,
    /// Its administrative distance.
    pub distance: u8,
    /// Its metric.
    pub metric: u32,
    /// Its group.
    pub group: GroupId,
    /// What the group does.
    pub content: FibGroup,
}

/// The full state of a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Explanation {
    /// Which.
    pub prefix: AnyPrefix,
    /// The candidates, best first.
    pub candidates: Vec<CandidateInfo>,
    /// The group of the selected candidate, or of the best one when none is selected.
    pub group: GroupInfo,
    /// The state in each dataplane; empty when no candidate is selected.
    pub dataplanes: Vec<(DataplaneId, InstallStatus)>,
}

/// One candidate of a prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CandidateInfo {
    /// How it was learnt.
    pub protocol: Protocol,
    /// Its administrative distance.
    pub distance: u8,
    /// Its metric.
    pub metric: u32,
    /// Its group.
    pub group: GroupId,
    /// The result of selection.
    pub selection: SelectionResult,
}

/// The result of selection for a candidate. Displays as the end of a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SelectionResult {
    /// It is in the FIB.
    Selected,
    /// It is selected, and a route-map keeps it out of the FIB.
    Denied,
    /// None of its next hops resolves.
    Unresolved,
    /// Its condition does not hold.
    Tracked,
    /// Its distance is 255: never used.
    NeverUsed,
    /// The selected one has this lower distance.
    Distance(u8),
    /// The selected one has the same distance and this lower metric.
    Metric(u32),
    /// The selected one has the same distance and metric, and this protocol precedes.
    Protocol(Protocol),
}

impl fmt::Display for SelectionResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelectionResult::Selected => f.write_str("selected"),
            SelectionResult::Denied => {
                f.write_str("selected, and not installed: the policy of its protocol denies it")
            }
            SelectionResult::Unresolved => f.write_str("not used: none of its next hops resolves"),
            SelectionResult::Tracked => f.write_str("not used: what it tracks does not hold"),
            SelectionResult::NeverUsed => f.write_str("not used: distance 255 means never"),
            SelectionResult::Distance(d) => {
                write!(f, "not used: the selected route has the lower distance {d}")
            }
            SelectionResult::Metric(m) => write!(f, "not used: the selected route has the lower metric {m}"),
            SelectionResult::Protocol(p) => {
                write!(f, "not used: equal to the selected route, and {p} comes first")
            }
        }
    }
}

/// A next-hop group: the received set and what it resolves to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupInfo {
    /// Its number, of both the received and the FIB group.
    pub id: GroupId,
    /// Whether its gateways may resolve through routes that are not connected.
    pub allow_recursion: bool,
    /// The only route that uses the group: a gateway lies inside it, and it must not resolve
    /// itself.
    pub exclude: Option<AnyPrefix>,
    /// What each received hop resolves to; empty for a blackhole.
    pub hops: Vec<HopInfo>,
    /// The backup hops, and what each resolves to.
    pub backup: Vec<HopInfo>,
    /// Whether the backup hops are in use.
    pub on_backup: bool,
    /// The result of FIB policy for its routes.
    pub policy_result: FibPolicyResult,
    /// The condition of its use, and whether it holds.
    pub track: Option<(Track, bool)>,
    /// The FIB content; `None` when no hop resolves. The cache stores this.
    pub content: Option<FibGroup>,
    /// How many resolved next hops [`crate::RibConfig::max_ecmp`] leaves out of the content.
    pub cut: usize,
    /// The number of look-ups in its longest chain; 0 when nothing resolves.
    pub level: u8,
    /// The generation of its last resolution for a route, in mode `epoch`; 0 without one.
    pub stamp: u64,
    /// The groups of routes that its hops resolve through or looked into.
    pub depends: Vec<GroupId>,
    /// The groups that depend on it in the same way.
    pub dependents: Vec<GroupId>,
    /// Whether dataplanes have it.
    pub in_fib: bool,
    /// How many candidates of all prefixes have it.
    pub candidates: u32,
    /// How many routes in the FIB have it.
    pub installed: u32,
}

/// A received hop and what it resolves to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HopInfo {
    /// As received.
    pub received: ReceivedHop,
    /// What it resolves to.
    pub outcome: Outcome,
    /// The route that it resolves through, if any.
    pub via: Option<AnyPrefix>,
    /// That route's metric.
    pub cost: u32,
    /// The number of look-ups in its chain.
    pub level: u8,
}

/// Numbers of groups, each once, in order.
fn group_ids(ids: impl Iterator<Item = u32>) -> Vec<GroupId> {
    ids.map(GroupId).collect::<BTreeSet<GroupId>>().into_iter().collect()
}

/// One source's candidate for a prefix, for `route-check`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Announced {
    /// How it was learnt.
    pub protocol: Protocol,
    /// The group of its next hops.
    pub group: GroupId,
    /// The result of selection.
    pub selection: SelectionResult,
}

/// Route counts of one family and protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Total {
    /// Of which family.
    pub afi: Afi,
    /// Of which protocol.
    pub protocol: Protocol,
    /// Candidates.
    pub candidates: u64,
    /// Routes in the FIB.
    pub installed: u64,
    /// Routes that are selected and kept out of the FIB by a route-map.
    pub denied: u64,
}

/// The state of a dataplane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataplaneInfo {
    /// Which.
    pub id: DataplaneId,
    /// Batches sent and not acknowledged.
    pub outstanding: usize,
    /// The latest batch that it acknowledged; 0 before the first.
    pub acked: u64,
    /// How many prefixes it could not install.
    pub failed: usize,
    /// Whether it was sent everything, with the end of the replay.
    pub replayed: bool,
    /// While it lags: how many prefixes are dirty.
    pub lag: Option<usize>,
}

/// The position of a paged read of the FIB, over the prefixes of its start.
pub struct Cursor {
    left: Families<Prefixes>,
}

impl Cursor {
    /// Sorts the remaining prefixes, lowest address first. O(n log n), so the reader calls it on
    /// its own thread.
    pub fn sort(&mut self) {
        // Pages are taken from the end.
        for_each_family!(F => self.left.get_mut::<F>().sort_unstable_by(|a, b| b.cmp(a)));
    }

    /// Leaves out the remaining prefixes for which `keeps` is false. O(n), as [`Cursor::sort`].
    pub fn retain(&mut self, keeps: impl Fn(AnyPrefix) -> bool) {
        for_each_family!(F => self.left.get_mut::<F>().retain(|prefix| keeps(prefix.any())));
    }

    /// Whether everything was read.
    pub fn is_done(&self) -> bool {
        self.left.v4.is_empty() && self.left.v6.is_empty()
    }
}

/// A route that a dataplane could not install.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedRoute {
    /// Its prefix.
    pub prefix: AnyPrefix,
    /// The dataplane.
    pub dataplane: DataplaneId,
    /// The reason, as a sentence.
    pub reason: String,
    /// Time of the failure, as set with [`Rib::set_time`].
    pub since: u64,
}

/// The position of a paged read of failures, over those of its start.
pub struct FailedCursor {
    left: Vec<(AnyPrefix, DataplaneId)>,
}

impl FailedCursor {
    /// Leaves out the remaining failures for which `keeps` is false. O(n), as [`FailedCursor::sort`].
    pub fn retain(&mut self, keeps: impl Fn(AnyPrefix, DataplaneId) -> bool) {
        self.left.retain(|(prefix, dataplane)| keeps(*prefix, *dataplane));
    }

    /// Sorts the remaining failures, lowest address first, on the reader's own thread.
    pub fn sort(&mut self) {
        // Pages are taken from the end.
        self.left.sort_unstable_by(|a, b| b.cmp(a));
    }

    /// Whether everything was read.
    pub fn is_done(&self) -> bool {
        self.left.is_empty()
    }
}

impl Rib {
    /// The route that the FIB has for exactly `prefix`.
    pub fn lookup(&self, prefix: AnyPrefix) -> Option<RouteInfo> {
        match prefix {
            AnyPrefix::V4(prefix) => self.info(prefix, self.tables.v4.routes.get(prefix)?),
            AnyPrefix::V6(prefix) => self.info(prefix, self.tables.v6.routes.get(prefix)?),
        }
    }

    /// The route that the FIB uses for `address`.
    pub fn longest_match(&self, address: IpAddr) -> Option<RouteInfo> {
        match address {
            IpAddr::V4(_) => self.tables.v4.routes.matches(address).find_map(|(p, r)| self.info::<V4>(p, r)),
            IpAddr::V6(_) => self.tables.v6.routes.matches(address).find_map(|(p, r)| self.info::<V6>(p, r)),
        }
    }

    fn info<F: Family>(&self, prefix: Prefix<F>, route: &Route) -> Option<RouteInfo> {
        let Candidate { group, metric, distance, protocol } = route.candidate().filter(|_| route.fib != 0)?;
        let content = self.resolver.groups.store.get(group)?.content.clone()?;
        Some(RouteInfo { prefix: prefix.any(), protocol, distance, metric, group: GroupId(group), content })
    }

    /// The full state of exactly `prefix`; `None` when no source has a route.
    pub fn explain(&self, prefix: AnyPrefix) -> Option<Explanation> {
        match prefix {
            AnyPrefix::V4(prefix) => self.explain_in(prefix),
            AnyPrefix::V6(prefix) => self.explain_in(prefix),
        }
    }

    fn explain_in<F: Family>(&self, prefix: Prefix<F>) -> Option<Explanation> {
        let table = self.tables.get::<F>();
        let route = table.routes.get(prefix)?;
        let best = route.candidate()?;
        let selected = self.selected(route);
        let candidates = table.candidates(prefix, route).map(|c| CandidateInfo {
            protocol: c.protocol,
            distance: c.distance,
            metric: c.metric,
            group: GroupId(c.group),
            selection: self.selection(c, selected),
        });
        Some(Explanation {
            prefix: prefix.any(),
            candidates: candidates.collect(),
            group: self.group(GroupId(best.group))?,
            dataplanes: self.status(prefix.any()),
        })
    }

    /// The candidate that is in the FIB, or would be but for FIB policy.
    fn selected(&self, route: &Route) -> Option<Candidate> {
        route.candidate().filter(|c| {
            let forwarded = route.fib != 0 && self.resolver.is_resolved(route.fib);
            forwarded || route.is_denied() && self.resolver.is_resolved(c.group)
        })
    }

    /// The best candidate that `source` has announced for exactly `prefix`.
    pub fn announced(&self, prefix: AnyPrefix, source: Source) -> Option<Announced> {
        match prefix {
            AnyPrefix::V4(prefix) => self.announced_in(prefix, source),
            AnyPrefix::V6(prefix) => self.announced_in(prefix, source),
        }
    }

    fn announced_in<F: Family>(&self, prefix: Prefix<F>, source: Source) -> Option<Announced> {
        let table = self.tables.get::<F>();
        let route = table.routes.get(prefix)?;
        let candidate = table.candidates(prefix, route).find(|c| c.protocol.source() == source)?;
        let selection = self.selection(candidate, self.selected(route));
        Some(Announced { protocol: candidate.protocol, group: GroupId(candidate.group), selection })
    }

    /// The prefixes that `source` announces, in at most `limit` places of the tables from `place`
    /// on, and the next place; `None` at the end. It visits `limit` places and copies only
    /// prefixes. Prefixes that appear during a read may be missing or repeated.
    pub fn announced_from(
        &self,
        source: Source,
        place: usize,
        limit: usize,
    ) -> (Vec<AnyPrefix>, Option<usize>) {
        let mut prefixes = Vec::new();
        let (mut before, end) = (0, place.saturating_add(limit));
        for_each_family!(F => {
            let table = self.tables.get::<F>();
            let places = table.routes.places();
            for at in place.max(before)..end.min(before + places) {
                if let Some((prefix, route)) = table.routes.entry_at(at - before)
                    && table.candidates(prefix, route).any(|c| c.protocol.source() == source)
                {
                    prefixes.push(prefix.any());
                }
            }
            before += places;
        });
        (prefixes, (end < before).then_some(end))
    }

    /// Whether group `id` has these next hops, with any FIB policy result.
    pub fn is_group_of(&self, id: GroupId, set: &RouteSet) -> bool {
        let Some(group) = self.resolver.groups.store.get(id.0) else { return false };
        let GroupKey { exclude, policy_result, .. } = group.key;
        group.key == GroupKey { exclude, policy_result, ..GroupKey::new(set) }
    }

    /// The next hops of group `id` as received, without the backup hops, and what each resolves to;
    /// empty for a blackhole.
    pub fn received_hops(&self, id: GroupId) -> Vec<HopInfo> {
        self.resolver
            .groups
            .store
            .get(id.0)
            .map_or_else(Vec::new, |group| self.hop_infos(group.key.hops(), &group.targets))
    }

    fn hop_infos(&self, received: &[ReceivedHop], targets: &[u32]) -> Vec<HopInfo> {
        let hop = |(received, node): (&ReceivedHop, &u32)| {
            let resolution = &self.resolver.nodes[*node].resolution;
            HopInfo {
                received: *received,
                outcome: resolution.outcome.clone(),
                via: resolution.via,
                cost: resolution.cost,
                level: resolution.level,
            }
        };
        received.iter().zip(targets).map(hop).collect()
    }

    fn selection(&self, candidate: Candidate, selected: Option<Candidate>) -> SelectionResult {
        if candidate.distance == u8::MAX {
            return SelectionResult::NeverUsed;
        }
        match selected {
            Some(s) if s == candidate && self.resolver.denies(s.group) => SelectionResult::Denied,
            Some(s) if s == candidate => SelectionResult::Selected,
            _ if self.tracked(candidate.group) == Some(false) => SelectionResult::Tracked,
            _ if !self.resolver.is_resolved(candidate.group) => SelectionResult::Unresolved,
            Some(s) if s.distance != candidate.distance => SelectionResult::Distance(s.distance),
            Some(s) if s.metric != candidate.metric => SelectionResult::Metric(s.metric),
            Some(s) => SelectionResult::Protocol(s.protocol),
            // A resolved candidate is selected when no better one resolves.
            None => SelectionResult::Unresolved,
        }
    }

    /// Whether a group's condition holds, if it has one.
    fn tracked(&self, group: u32) -> Option<bool> {
        let group = &self.resolver.groups.store[group];
        let node = group.key.track.and(group.targets.last())?;
        Some(self.resolver.nodes[*node].resolution.outcome.is_resolved())
    }

    /// The next hops that BGP has registered, in any order.
    pub fn tracked_next_hops(&self) -> impl Iterator<Item = TrackedInfo> {
        self.resolver.tracking.iter(|node| &self.resolver.nodes[node].resolution)
    }

    /// The number of notifications to BGP that are delayed because the next hop flaps.
    pub fn delayed_next_hops(&self) -> usize {
        self.resolver.tracking.delayed()
    }

    /// The state of the route for exactly `prefix` in each dataplane; empty when the FIB has none.
    pub fn status(&self, prefix: AnyPrefix) -> Vec<(DataplaneId, InstallStatus)> {
        if self.lookup(prefix).is_none() {
            return Vec::new();
        }
        let changed = changed(&self.tables, prefix);
        self.dataplanes.iter().map(|(id, d)| (*id, d.status(prefix, changed))).collect()
    }

    /// The time of [`Rib::set_time`] at which the route of exactly `prefix` last changed in the FIB: the route, not its
    /// group. Exact to a second for some minutes, later to about a thirtieth of its age; `None` when the FIB has none.
    pub fn changed_at(&self, prefix: AnyPrefix) -> Option<u64> {
        self.lookup(prefix)?;
        self.times.of(changed(&self.tables, prefix), self.seq)
    }

    /// Begins a paged read of the FIB. Copies its prefixes: 8 bytes for each IPv4 route and 17 for each IPv6 one.
    pub fn cursor(&self) -> Cursor {
        Cursor { left: installed_prefixes(&self.tables) }
    }

    /// The next `limit` routes of a read, IPv4 before IPv6. Routes that were added or removed since
    /// its start are left out. An empty page is not the end; see [`Cursor::is_done`].
    pub fn page(&self, cursor: &mut Cursor, limit: usize) -> Vec<RouteInfo> {
        let mut page = Vec::new();
        for_each_family!(F => {
            let left = cursor.left.get_mut::<F>();
            let room = limit - page.len();
            let next = left.drain(left.len().saturating_sub(room)..).rev();
            let routes = &self.tables.get::<F>().routes;
            page.extend(next.filter_map(|prefix| self.info::<F>(prefix, routes.get(prefix)?)));
        });
        page
    }

    /// Route counts per family and protocol; combinations without routes are left out.
    pub fn totals(&self) -> Vec<Total> {
        let mut totals = Vec::new();
        for_each_family!(F => {
            let counts = &self.tables.get::<F>().counts;
            for protocol in Protocol::ALL {
                let (candidates, installed) =
                    (counts.candidates[protocol as usize], counts.installed[protocol as usize]);
                if candidates > 0 {
                    let denied = counts.denied[protocol as usize];
                    totals.push(Total { afi: F::AFI, protocol, candidates, installed, denied });
                }
            }
        });
        totals
    }

    /// One group.
    pub fn group(&self, id: GroupId) -> Option<GroupInfo> {
        self.resolver.groups.store.get(id.0).map(|group| self.group_info(id, group))
    }

    /// Every group, in the order of their numbers.
    pub fn groups(&self) -> impl Iterator<Item = GroupInfo> {
        self.resolver.groups.store.iter().map(|(id, group)| self.group_info(GroupId(id), group))
    }

    /// The groups with higher numbers than `id`.
    pub fn groups_after(&self, id: GroupId) -> impl Iterator<Item = GroupInfo> {
        self.resolver.groups.store.after(id.0).map(|(id, group)| self.group_info(GroupId(id), group))
    }

    /// How many groups there are.
    pub fn group_count(&self) -> usize {
        self.resolver.groups.store.len() - self.resolver.groups.removed()
    }

    fn cut(&self, group: &Group) -> usize {
        let Some(FibGroup::Hops(kept)) = &group.content else { return 0 };
        let (first, rest) = group.targets.split_at(group.key.hops().len());
        let resolved = |targets: &[u32]| {
            let counted = targets.iter().filter(|node| !group.dropped.contains(node));
            let hops = counted.filter_map(|node| match &self.resolver.nodes[*node].resolution.outcome {
                Outcome::Hops(hops) => Some(hops.iter().map(|hop| (hop.gateway, hop.interface))),
                _ => None,
            });
            hops.flatten().collect::<BTreeSet<_>>().len()
        };
        match resolved(first) {
            0 => resolved(&rest[..group.key.backup.len()]).saturating_sub(kept.len()),
            all => all.saturating_sub(kept.len()),
        }
    }

    fn group_info(&self, id: GroupId, group: &Group) -> GroupInfo {
        let hops = group.key.hops();
        let first = self.hop_infos(hops, &group.targets);
        let backup = self.hop_infos(&group.key.backup, &group.targets[hops.len()..]);
        let lost = |hop: &HopInfo| !hop.outcome.is_resolved();
        GroupInfo {
            id,
            on_backup: group.content.is_some() && !first.is_empty() && first.iter().all(lost),
            backup,
            policy_result: group.key.policy_result,
            track: group.key.track.zip(self.tracked(id.0)),
            allow_recursion: group.key.recursion,
            exclude: group.key.exclude,
            hops: first,
            content: group.content.clone(),
            cut: self.cut(group),
            level: group.level,
            stamp: group.stamp,
            depends: group_ids(
                group.targets.iter().flat_map(|n| self.resolver.nodes[*n].consulted.iter().map(|c| c.group)),
            ),
            dependents: group_ids(
                self.resolver.dependents.of(id.0).flat_map(|n| self.resolver.parents.of(n)),
            ),
            in_fib: group.in_fib,
            candidates: group.routes,
            installed: group.installed,
        }
    }

    /// The mode of the resolution cache.
    pub fn cache_mode(&self) -> CacheMode {
        self.resolver.cache.mode()
    }

    /// Counters of the resolution cache since the start.
    pub fn cache_counters(&self) -> CacheCounters {
        self.resolver.cache.counters
    }

    /// An interface, if it exists.
    pub fn interface(&self, index: IfIndex) -> Option<&InterfaceEvent> {
        self.resolver.interfaces.get(&index)
    }

    /// The state of each dataplane that is up.
    pub fn dataplanes(&self) -> impl Iterator<Item = DataplaneInfo> {
        self.dataplanes.keys().filter_map(|id| self.dataplane(*id))
    }

    /// The state of a dataplane, if it is up.
    pub fn dataplane(&self, id: DataplaneId) -> Option<DataplaneInfo> {
        let d = self.dataplanes.get(&id)?;
        Some(DataplaneInfo {
            id,
            outstanding: d.outstanding(),
            acked: d.acked,
            failed: d.failed.len(),
            replayed: matches!(d.replay, Replay::Done),
            lag: d.dirty.as_ref().map(DirtySet::len),
        })
    }

    /// Prefixes that a dataplane could not install, with the reasons.
    pub fn failed(&self, id: DataplaneId) -> impl Iterator<Item = (AnyPrefix, &str)> {
        let failed = self.dataplanes.get(&id).into_iter().flat_map(|d: &Dataplane| &d.failed);
        failed.map(|(prefix, failure)| (*prefix, failure.reason.as_str()))
    }

    /// Begins a paged read of failures. Copies the prefixes.
    pub fn failed_cursor(&self) -> FailedCursor {
        let of = |(id, d): (&DataplaneId, &Dataplane)| {
            d.failed.keys().map(|prefix| (*prefix, *id)).collect::<Vec<_>>()
        };
        FailedCursor { left: self.dataplanes.iter().flat_map(of).collect() }
    }

    /// The next `limit` failures of a read. Those that ended are left out. An empty page is not the
    /// end; see [`FailedCursor::is_done`].
    pub fn failed_page(&self, cursor: &mut FailedCursor, limit: usize) -> Vec<FailedRoute> {
        let next = cursor.left.split_off(cursor.left.len().saturating_sub(limit));
        let found = next.into_iter().rev().filter_map(|(prefix, dataplane)| {
            let Failure { reason, since } = self.dataplanes.get(&dataplane)?.failed.get(&prefix)?;
            Some(FailedRoute { prefix, dataplane, reason: reason.clone(), since: *since })
        });
        found.collect()
    }

    /// Whether announcers suppress routes until they are confirmed.
    pub fn suppresses(&self) -> bool {
        self.confirm.is_on()
    }

    /// Announced prefixes that are reported as blocked.
    pub fn blocked(&self) -> impl Iterator<Item = AnyPrefix> {
        self.confirm.blocked()
    }

    /// The number of blocked prefixes.
    pub fn blocked_count(&self) -> usize {
        self.confirm.blocked_count()
    }

    /// The number of unconfirmed fences.
    pub fn fences(&self) -> usize {
        self.confirm.fences()
    }

    /// Number of the latest batch; 0 before the first.
    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Bytes of the routing tables, without groups and targets.
    pub fn table_size(&self) -> usize {
        self.tables.v4.allocation_size() + self.tables.v6.allocation_size()
    }
}
