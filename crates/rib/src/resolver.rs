//! Recursive resolution, incremental: each target stores its answer and the dependencies of the
//! answer. An event re-evaluates only the targets whose answer may differ.
//!
//! An answer has four dependencies, each with an index:
//!
//! - The interface, for targets that need nothing else (`by_interface`).
//! - Reachability of the gateway (`by_address`, and `on_trust` for targets that do not look it up).
//! - The answering route, and the absence of a more specific one. A changed prefix concerns one
//!   range of `by_address`; targets that a more specific route answers are skipped.
//! - The groups that the walk looked into, used or not (`dependents`).
//!
//! An event marks a target or group stale, and all that depends on it (`parents`: the groups of a
//! target). Each stale target is then evaluated after its dependencies.
//!
//! The answer does not depend on the order of events or evaluations;
//! `docs/adr/0020-next-hop-resolution.md` defines it. Resolution reads candidates and not the
//! selected route, so selection never feeds back. Circles are handled in [`crate::circle`].
//!
//! Every mode of the cache tracks next hops in this way. [`crate::cache`] decides how groups are
//! resolved; with `dependency`, each is assembled once, here, from the answers of its targets.

use crate::cache::Cache;
use crate::circle::{Place, Search};
use crate::fib_policy::FibPolicyResult;
use crate::group::{Group, GroupKey, Groups};
use crate::message::{
    FibGroup, FibHop, GatewayEvent, GroupId, GroupOp, IfIndex, InterfaceEvent, NextHops, Protocol,
    Reachability, ReceivedHop, RibOut, Source, TrackedNextHop, UrgentOp,
};
use crate::own_addresses::OwnAddresses;
use crate::store::{Edges, Store};
use crate::table::{Candidate, RouteTables};
use crate::target::{Assumed, OWN_WEIGHT, Outcome, Resolution, Target, UnresolvedReason, is_link_local};
use crate::tracking::Tracking;
use crate::{ResolutionSettings, RibConfig};
use ribtide_prefix::{Afi, AnyPrefix, Family, Map, Prefix, V4, V6};
use std::collections::BTreeSet;
use std::net::IpAddr;

/// Groups that are looked into with one assumption, and next hops that are followed to find the
/// dependencies of an answer, at most. Damping covers peers that send longer chains.
const MAX_ASSUMED: usize = 64;

/// A target with its current answer.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) target: Target,
    pub(crate) resolution: Resolution,
    /// The groups that were looked into for the answer.
    pub(crate) consulted: Vec<Consulted>,
    /// How many groups use it.
    groups: u32,
    /// Its number of registrations.
    tracked: u32,
    pub(crate) stale: bool,
    /// Whether the outcome changed in this batch.
    changed: bool,
    /// Its place in the search for circles.
    pub(crate) search: Place,
    /// Whether its answer was found in a circle, and so depends on more than the table and the
    /// groups.
    pub(crate) circular: bool,
    /// Groups that it passes over, because they depend on it and nothing else supports them.
    pub(crate) passed_over: Vec<u32>,
    /// Groups in which it does not count, because its own answer comes from them.
    pub(crate) dropped_from: Vec<u32>,
}

/// A group that a walk looked into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consulted {
    pub(crate) group: u32,
    /// Its prefix, when the route is BGP's.
    bgp: Option<AnyPrefix>,
}

/// The result of a look-up.
pub(crate) enum LookupResult {
    /// The target's answer.
    Resolution(Resolution),
    /// The walk meets this group, which is not resolved yet.
    Blocked(u32),
}

/// The status of a group on a walk.
pub(crate) enum GroupStatus {
    /// It is resolved, or known to be unresolved.
    Settled,
    /// It depends on the target.
    PassedOver,
    /// It is not resolved yet.
    Unsettled,
}

/// Targets, groups and their dependencies.
#[derive(Default)]
pub(crate) struct Resolver {
    pub(crate) config: RibConfig,
    pub(crate) cache: Cache,
    pub(crate) interfaces: Map<IfIndex, InterfaceEvent>,
    own: OwnAddresses,
    pub(crate) nodes: Store<Node>,
    by_target: Map<Target, u32>,
    by_address: Edges<IpAddr>,
    by_interface: Edges<IfIndex>,
    /// Those of `by_interface` that have a gateway.
    on_trust: Edges<IpAddr>,
    /// Gateways that are down, on one interface or on all.
    unusable: BTreeSet<(IpAddr, Option<IfIndex>)>,
    pub(crate) groups: Groups,
    /// Target → groups that have it.
    pub(crate) parents: Edges<u32>,
    /// Group → targets that looked into it.
    pub(crate) dependents: Edges<u32>,
    pub(crate) tracking: Tracking,
    /// The number of groups for each assumption.
    assumed: Map<Assumed, usize>,
    stale_nodes: Vec<u32>,
    stale_groups: Vec<u32>,
    /// Groups whose use or content changed in this batch.
    touched: Vec<u32>,
    /// Groups that may have lost their last route.
    unused: Vec<u32>,
    /// The number of groups that dataplanes were sent as unresolved.
    sent_unresolved: usize,
    /// Whether there was one since the last call of [`Resolver::unresolved_before`].
    unresolved_before: bool,
}

impl Resolver {
    pub(crate) fn new(config: RibConfig) -> Resolver {
        Resolver {
            cache: Cache::new(config.cache),
            groups: Groups::above(config.vrf.id.groups()),
            tracking: Tracking::new(config.damping),
            config,
            ..Resolver::default()
        }
    }

    // ---- groups and targets

    /// The group of a route of `prefix` with this received group. It differs when a gateway lies
    /// inside the prefix, because a route does not resolve its own gateway.
    pub(crate) fn intern_for(&mut self, group: u32, prefix: AnyPrefix) -> u32 {
        let Group { key, targets, .. } = &self.groups.store[group];
        let inside = |node: &u32| {
            let target = &self.nodes[*node].target;
            target.recursion && target.address().is_some_and(|a| prefix.contains(a))
        };
        if !targets.iter().any(inside) {
            return group;
        }
        let key = GroupKey { exclude: Some(prefix), ..key.clone() };
        self.intern(key)
    }

    /// `group` with this FIB policy result.
    pub(crate) fn intern_with_policy(&mut self, group: u32, policy_result: FibPolicyResult) -> u32 {
        let key = &self.groups.store[group].key;
        if key.policy_result == policy_result {
            return group;
        }
        let key = GroupKey { policy_result, ..key.clone() };
        self.intern(key)
    }

    /// The group of a received set.
    pub(crate) fn intern(&mut self, key: GroupKey) -> u32 {
        if let Some(id) = self.groups.find(&key) {
            return id;
        }
        let targets: Vec<u32> = key.targets().map(|target| self.node_of(target)).collect();
        for node in &targets {
            self.nodes[*node].groups += 1;
        }
        let id = self.groups.add(key, targets);
        for node in &self.groups.store[id].targets {
            self.parents.insert(*node, id);
        }
        self.stale_groups.push(id);
        self.unused.push(id);
        id
    }

    fn node_of(&mut self, target: Target) -> u32 {
        if let Some(id) = self.by_target.get(&target) {
            return *id;
        }
        let id = self.nodes.insert(Node {
            target,
            resolution: Resolution::unresolved(UnresolvedReason::NoRoute, None),
            consulted: Vec::new(),
            groups: 0,
            tracked: 0,
            stale: true,
            changed: false,
            search: Place::default(),
            circular: false,
            passed_over: Vec::new(),
            dropped_from: Vec::new(),
        });
        self.by_target.insert(target, id);
        match (target.address(), target.interface) {
            (Some(address), _) => self.by_address.insert(address, id),
            (None, Some(interface)) => {
                self.by_interface.insert(interface, id);
                target.neighbor().inspect(|gateway| self.on_trust.insert(*gateway, id));
            }
            (None, None) => {}
        }
        self.stale_nodes.push(id);
        id
    }

    /// A candidate with this group entered a table.
    pub(crate) fn retain(&mut self, group: u32) {
        self.groups.store[group].routes += 1;
    }

    /// A candidate with this group left its table.
    pub(crate) fn release(&mut self, group: u32) {
        let routes = &mut self.groups.store[group].routes;
        *routes -= 1;
        if *routes == 0 {
            self.unused.push(group);
        }
    }

    /// BGP registers a next hop.
    pub(crate) fn track(&mut self, next_hop: TrackedNextHop) {
        let id = self.node_of(Target::of_path(next_hop));
        self.nodes[id].tracked += 1;
        self.tracking.register(next_hop, id);
    }

    /// Undoes one [`Resolver::track`].
    pub(crate) fn untrack(&mut self, next_hop: TrackedNextHop) {
        let Some(id) = self.tracking.unregister(next_hop) else { return };
        self.nodes[id].tracked -= 1;
        self.drop_node_if_unused(id);
    }

    fn drop_node_if_unused(&mut self, id: u32) {
        let node = &self.nodes[id];
        // A stale target is queued for evaluation; the end of the batch removes it if it is unused.
        if node.groups > 0 || node.tracked > 0 || node.stale {
            return;
        }
        let node = self.nodes.remove(id);
        self.by_target.remove(&node.target);
        match (node.target.address(), node.target.interface) {
            (Some(address), _) => self.by_address.remove(address, id),
            (None, Some(interface)) => {
                self.by_interface.remove(interface, id);
                node.target.neighbor().inspect(|gateway| self.on_trust.remove(*gateway, id));
            }
            (None, None) => {}
        }
        self.remove_consulted(id, node.consulted);
    }

    fn remove_consulted(&mut self, id: u32, consulted: Vec<Consulted>) {
        for Consulted { group, .. } in consulted {
            self.dependents.remove(group, id);
            if self.groups.store[group].key.assumed.is_some() {
                self.release(group);
            }
        }
    }

    /// The group that replaces a candidate's group under an assumption.
    fn assumed_group(&mut self, candidate: &Candidate, prefix: AnyPrefix, assumed: Assumed) -> u32 {
        let Group { key, targets, .. } = &self.groups.store[candidate.group];
        let key = if prefix == assumed.prefix && candidate.protocol.source() == Source::Bgp {
            let hops = NextHops::Via(vec![ReceivedHop::gateway(assumed.next_hop)]);
            let exclude = Some(prefix).filter(|prefix| prefix.contains(assumed.next_hop));
            GroupKey { exclude, assumed: Some(assumed), ..GroupKey::plain(hops, true) }
        } else if targets.iter().any(|node| self.nodes[*node].target.recursion) {
            GroupKey { assumed: Some(assumed), policy_result: FibPolicyResult::default(), ..key.clone() }
        } else {
            return candidate.group;
        };
        if let Some(id) = self.groups.find(&key) {
            return id;
        }
        let count = self.assumed.entry(assumed).or_default();
        if *count == MAX_ASSUMED {
            return candidate.group;
        }
        *count += 1;
        self.intern(key)
    }

    // ---- events mark stale targets

    /// Whether any target's address lies inside `prefix`.
    pub(crate) fn concerns<F: Family>(&self, prefix: Prefix<F>) -> bool {
        self.by_address.between(prefix.addr(), prefix.last_addr()).next().is_some()
    }

    /// The candidates of `prefix` changed.
    pub(crate) fn prefix_changed<F: Family>(&mut self, prefix: Prefix<F>) {
        let answered_above = |id: &u32| match self.nodes[*id].resolution.via {
            Some(via) => via.len() <= prefix.len(),
            None => true,
        };
        let hit: Vec<u32> =
            self.by_address.between(prefix.addr(), prefix.last_addr()).filter(answered_above).collect();
        self.mark_stale(hit);
    }

    /// An interface appeared, disappeared, or changed its state.
    pub(crate) fn interface_changed(&mut self, interface: IfIndex) {
        let hit = self.by_interface.of(interface).collect();
        self.mark_stale(hit);
    }

    /// The addresses of an interface changed from those of `old` to those of `new`.
    pub(crate) fn addresses_changed(&mut self, old: Option<&InterfaceEvent>, new: Option<&InterfaceEvent>) {
        for prefix in self.own.change(old, new) {
            let hit = self.by_address.between(prefix.addr(), prefix.last_addr()).collect();
            self.mark_stale(hit);
        }
    }

    /// BFD declared a gateway down or up.
    pub(crate) fn gateway_event(&mut self, GatewayEvent { address, interface, usable }: GatewayEvent) {
        let what = (address.to_canonical(), interface);
        if if usable { self.unusable.remove(&what) } else { self.unusable.insert(what) } {
            let hit = self.by_address.of(what.0).chain(self.on_trust.of(what.0)).collect();
            self.mark_stale(hit);
        }
    }

    /// Resolves every group again, by other settings.
    pub(crate) fn set_resolution(&mut self, by: ResolutionSettings) {
        self.config.resolve_by(by);
        self.mark_stale(self.nodes.iter().map(|(id, _)| id).collect());
        // A limit of hops changes contents without another answer of a target.
        let groups: Vec<u32> = self.groups.store.iter().map(|(id, _)| id).collect();
        for id in groups {
            let group = &mut self.groups.store[id];
            group.moved = true;
            if !std::mem::replace(&mut group.stale, true) {
                self.stale_groups.push(id);
            }
        }
    }

    /// Marks targets stale, with everything that depends on them.
    fn mark_stale(&mut self, mut targets: Vec<u32>) {
        if !targets.is_empty() {
            self.invalidate();
        }
        while let Some(id) = targets.pop() {
            let node = &mut self.nodes[id];
            if std::mem::replace(&mut node.stale, true) {
                continue;
            }
            node.circular = false;
            node.passed_over.clear();
            node.dropped_from.clear();
            self.stale_nodes.push(id);
            for group in self.parents.of(id) {
                if !std::mem::replace(&mut self.groups.store[group].stale, true) {
                    self.stale_groups.push(group);
                    self.cache.count_marked();
                    targets.extend(self.dependents.of(group));
                }
            }
        }
    }

    // ---- resolution

    /// Resolves every stale target and group.
    pub(crate) fn resolve(&mut self, tables: &RouteTables) {
        let mut search = Search::default();
        // A search under an assumption adds targets.
        let mut at = 0;
        while let Some(id) = self.stale_nodes.get(at).copied() {
            if self.nodes[id].stale {
                self.search(tables, id, &mut search);
            }
            at += 1;
        }
        for at in 0..self.stale_groups.len() {
            let id = self.stale_groups[at];
            if self.groups.store[id].stale {
                // No route triggers the resolution of an assumed group.
                if self.cache.is_per_route() && self.groups.store[id].key.assumed.is_none() {
                    self.settle_group(id);
                } else {
                    self.flatten(id);
                }
            }
        }
    }

    /// Evaluates a target, as far as the groups on its walk are resolved.
    pub(crate) fn evaluate(&mut self, tables: &RouteTables, id: u32) -> LookupResult {
        let consulted = std::mem::take(&mut self.nodes[id].consulted);
        self.remove_consulted(id, consulted);
        self.lookup(tables, self.nodes[id].target, |resolver, consulted| {
            let Consulted { group, .. } = consulted;
            if resolver.groups.store[group].key.assumed.is_some() {
                resolver.retain(group);
            }
            let node = &mut resolver.nodes[id];
            node.consulted.push(consulted);
            resolver.dependents.insert(group, id);
            if resolver.passes_over(id, group) {
                return GroupStatus::PassedOver;
            }
            if resolver.groups.store[group].stale {
                if !resolver.is_determined(group) {
                    return GroupStatus::Unsettled;
                }
                // Else the search would do it, and repeat this walk.
                resolver.flatten(group);
            }
            GroupStatus::Settled
        })
    }

    /// Whether an interface has this subnet.
    pub(crate) fn is_subnet(&self, prefix: AnyPrefix) -> bool {
        let mut subnets = self.interfaces.values().flat_map(|interface| &interface.addresses);
        subnets.any(|(_, subnet)| *subnet == prefix)
    }

    /// Whether a target passes over a group.
    fn passes_over(&self, id: u32, group: u32) -> bool {
        self.nodes[id].passed_over.iter().any(|passed| self.is_one_in_circles(*passed, group))
    }

    /// Whether two groups are one to a circle: they differ in FIB policy at most. One that is gone is
    /// none.
    fn is_one_in_circles(&self, one: u32, other: u32) -> bool {
        let key = |group: u32| self.groups.store.get(group).map(|group| &group.key);
        one == other
            || key(one).zip(key(other)).is_some_and(|(one, other)| one.differs_only_in_policy_result(other))
    }

    pub(crate) fn settle(&mut self, id: u32, resolution: Resolution) {
        let node = &mut self.nodes[id];
        node.stale = false;
        node.changed = node.resolution.outcome != resolution.outcome;
        node.resolution = resolution;
        if node.tracked > 0 {
            self.tracking.resolved(&node.target);
        }
    }

    /// Looks up a target. `status_of` gives the status of each candidate's group on the walk.
    pub(crate) fn lookup(
        &mut self,
        tables: &RouteTables,
        target: Target,
        status_of: impl FnMut(&mut Resolver, Consulted) -> GroupStatus,
    ) -> LookupResult {
        self.cache.counters.lookups += 1;
        match target.exactly {
            Some(AnyPrefix::V4(prefix)) => return self.lookup_prefix(tables, target, prefix, status_of),
            Some(AnyPrefix::V6(prefix)) => return self.lookup_prefix(tables, target, prefix, status_of),
            None => {}
        }
        let found = match target.address() {
            Some(address @ IpAddr::V4(_)) => self.lookup_address::<V4>(tables, target, address, status_of),
            Some(address @ IpAddr::V6(_)) => self.lookup_address::<V6>(tables, target, address, status_of),
            None => LookupResult::Resolution(self.on_link(target)),
        };
        match found {
            LookupResult::Resolution(resolution) => {
                LookupResult::Resolution(self.reached(target, resolution))
            }
            blocked => blocked,
        }
    }

    /// Removes the hops of an answer whose gateway is down.
    fn reached(&self, target: Target, mut resolution: Resolution) -> Resolution {
        let Some(gateway) = target.neighbor().filter(|_| !self.unusable.is_empty()) else {
            return resolution;
        };
        let everywhere = self.unusable.contains(&(gateway, None));
        if let Outcome::Hops(hops) = &mut resolution.outcome {
            let there = |h: &FibHop| h.gateway == Some(gateway);
            hops.retain(|h| !there(h) || !self.unusable.contains(&(gateway, Some(h.interface))));
        }
        let none_left = matches!(&resolution.outcome, Outcome::Hops(hops) if hops.is_empty());
        if none_left || (everywhere && resolution.outcome.is_resolved()) {
            resolution.outcome = Outcome::Unresolved(UnresolvedReason::GatewayDown);
        }
        resolution
    }

    /// Answers a target that needs only its interface.
    fn on_link(&self, target: Target) -> Resolution {
        let outcome = match target.interface.map(|index| (index, self.interfaces.get(&index))) {
            None => Outcome::Unresolved(UnresolvedReason::InterfaceMissing),
            Some((_, None)) => Outcome::Unresolved(UnresolvedReason::NoInterface),
            Some((_, Some(state))) if !state.up => Outcome::Unresolved(UnresolvedReason::InterfaceDown),
            Some((interface, Some(_))) => {
                let gateway = target.neighbor();
                let onlink = gateway.is_some_and(|a| !is_link_local(a));
                Outcome::Hops(vec![FibHop { gateway, interface, weight: OWN_WEIGHT, onlink }])
            }
        };
        Resolution { outcome, via: None, cost: 0, partial: false, level: 1 }
    }

    /// Answers a target with the most specific route that holds the address and resolves.
    fn lookup_address<F: Family>(
        &mut self,
        tables: &RouteTables,
        target: Target,
        address: IpAddr,
        mut status_of: impl FnMut(&mut Resolver, Consulted) -> GroupStatus,
    ) -> LookupResult {
        let mut why = UnresolvedReason::NoRoute;
        if self.own.contains(address) {
            return LookupResult::Resolution(Resolution::unresolved(UnresolvedReason::OwnAddress, None));
        }
        for (prefix, candidates) in tables.get::<F>().matches(address) {
            if prefix.len() == 0 && !self.config.resolve_via_default {
                if why == UnresolvedReason::NoRoute {
                    why = UnresolvedReason::OnlyDefault;
                }
                break;
            }
            let via = Some(prefix.any());
            for candidate in candidates {
                if candidate.protocol == Protocol::Connected {
                    let hops = self.groups.store[candidate.group].key.hops();
                    let mut interfaces = hops.iter().filter_map(|h| h.interface);
                    match interfaces.find(|i| target.interface.is_none_or(|wanted| wanted == *i)) {
                        Some(_) if is_broadcast(prefix, address) => {
                            return LookupResult::Resolution(Resolution::unresolved(
                                UnresolvedReason::Broadcast,
                                via,
                            ));
                        }
                        Some(interface) => {
                            let (gateway, weight) = (Some(address), OWN_WEIGHT);
                            let hop = FibHop { gateway, interface, weight, onlink: false };
                            let outcome = Outcome::Hops(vec![hop]);
                            return LookupResult::Resolution(Resolution {
                                outcome,
                                via,
                                cost: 0,
                                partial: false,
                                level: 1,
                            });
                        }
                        None => why = UnresolvedReason::OtherInterface,
                    }
                    break;
                }
                if !target.recursion {
                    why = UnresolvedReason::NotConnected;
                    continue;
                }
                if target.exclude == via {
                    continue;
                }
                let consulted = self.consulted(&candidate, prefix.any(), target.assumed);
                match status_of(self, consulted) {
                    GroupStatus::Settled => {}
                    GroupStatus::PassedOver => {
                        why = UnresolvedReason::Circle;
                        continue;
                    }
                    GroupStatus::Unsettled => return LookupResult::Blocked(consulted.group),
                }
                let group = &self.groups.store[consulted.group];
                let Some(content) = &group.content else {
                    why = UnresolvedReason::NoneResolves;
                    continue;
                };
                if let Some(why) = self.ends_look_up(&candidate) {
                    return LookupResult::Resolution(Resolution::unresolved(why, via));
                }
                match self.through(content, address, target.interface) {
                    Some(outcome) => {
                        return LookupResult::Resolution(Resolution::through(
                            outcome, via, &candidate, group,
                        ));
                    }
                    // The prefix itself forwards elsewhere, so the walk continues at the covering
                    // one.
                    None => why = UnresolvedReason::OtherInterface,
                }
                break;
            }
        }
        LookupResult::Resolution(Resolution::unresolved(why, None))
    }

    /// Why no next hop resolves by this route, nor by a less specific one. By an aggregate that resolves the next
    /// hops of its own contributors, these would outlive the way to them.
    fn ends_look_up(&self, candidate: &Candidate) -> Option<UnresolvedReason> {
        match (&self.groups.store[candidate.group].key.next_hops, candidate.protocol.source()) {
            (NextHops::Unreachable, _) => Some(UnresolvedReason::Refused),
            (NextHops::Blackhole, Source::Bgp) => Some(UnresolvedReason::Discarded),
            _ => None,
        }
    }

    /// Answers whether a resolved route for `prefix` exists.
    fn lookup_prefix<F: Family>(
        &mut self,
        tables: &RouteTables,
        target: Target,
        prefix: Prefix<F>,
        mut status_of: impl FnMut(&mut Resolver, Consulted) -> GroupStatus,
    ) -> LookupResult {
        let via = Some(prefix.any());
        let mut why = UnresolvedReason::NoRoute;
        for candidate in tables.get::<F>().of(prefix).filter(|_| target.exclude != via) {
            let outcome = Outcome::Hops(Vec::new());
            if candidate.protocol == Protocol::Connected {
                let cost = candidate.metric;
                return LookupResult::Resolution(Resolution { outcome, via, cost, partial: false, level: 1 });
            }
            let consulted = self.consulted(&candidate, prefix.any(), target.assumed);
            why = match status_of(self, consulted) {
                GroupStatus::Settled => UnresolvedReason::NoneResolves,
                GroupStatus::PassedOver => UnresolvedReason::Circle,
                GroupStatus::Unsettled => return LookupResult::Blocked(consulted.group),
            };
            if why == UnresolvedReason::NoneResolves && self.is_resolved(consulted.group) {
                let group = &self.groups.store[consulted.group];
                return LookupResult::Resolution(Resolution::through(outcome, via, &candidate, group));
            }
        }
        LookupResult::Resolution(Resolution::unresolved(why, None))
    }

    fn consulted(&mut self, candidate: &Candidate, prefix: AnyPrefix, assumed: Option<Assumed>) -> Consulted {
        let group = match assumed {
            None => candidate.group,
            Some(assumed) => self.assumed_group(candidate, prefix, assumed),
        };
        Consulted { group, bgp: Some(prefix).filter(|_| candidate.protocol.source() == Source::Bgp) }
    }

    /// The outcome of a gateway whose route has this content: the same hops, or the gateway itself
    /// on the links of an interface route. `None` when no hop leaves by a given `interface`.
    fn through(&self, content: &FibGroup, gateway: IpAddr, interface: Option<IfIndex>) -> Option<Outcome> {
        let FibGroup::Hops(hops) = content else {
            return interface.is_none().then_some(Outcome::Blackhole);
        };
        let weight = |h: &FibHop| if self.config.underlay_weights { h.weight } else { OWN_WEIGHT };
        let hops: Vec<FibHop> = hops
            .iter()
            .filter(|h| interface.is_none_or(|wanted| wanted == h.interface))
            .map(|h| match h.gateway {
                Some(_) => FibHop { weight: weight(h), ..*h },
                None => FibHop { gateway: Some(gateway), weight: weight(h), onlink: true, ..*h },
            })
            .collect();
        (!hops.is_empty()).then_some(Outcome::Hops(hops))
    }

    /// Whether a dependency of the group changed. Updates its level, but not its content.
    fn settle_group(&mut self, id: u32) -> bool {
        let dropped = self.dropped(id);
        let group = &mut self.groups.store[id];
        group.stale = false;
        group.moved |= group.fresh || dropped != group.dropped;
        group.dropped = dropped;
        let counts = |node: &&u32| !group.dropped.contains(node);
        let mut resolutions = group.targets.iter().filter(counts).map(|node| &self.nodes[*node]);
        group.moved |= resolutions.any(|node| node.changed);
        let (level, cost, partial) = self.way(id);
        let group = &mut self.groups.store[id];
        (group.level, group.cost, group.partial) = (level, cost, partial);
        group.moved
    }

    /// The targets that do not count in a group, because their answers come from it or from a group
    /// that differs only in FIB policy.
    fn dropped(&mut self, id: u32) -> Vec<u32> {
        let dropping = std::mem::take(&mut self.groups.store[id].dropping);
        let targets = &self.groups.store[id].targets;
        if !dropping.is_empty() || targets.iter().all(|node| self.nodes[*node].dropped_from.is_empty()) {
            return dropping;
        }
        let same = |other: &u32| self.is_one_in_circles(*other, id);
        targets.iter().copied().filter(|node| self.nodes[*node].dropped_from.iter().any(same)).collect()
    }

    /// Of the targets that form a group's content: the highest level, the least cost, and whether any is partial.
    fn way(&self, id: u32) -> (u8, u32, bool) {
        let Group { key, targets, dropped, .. } = &self.groups.store[id];
        let of = |targets: &[u32]| {
            let (mut to_hops, mut drops) = (None, None);
            for node in targets.iter().filter(|node| !dropped.contains(node) && !self.nodes[**node].stale) {
                let Resolution { outcome, cost, partial, level, .. } = &self.nodes[*node].resolution;
                let way = match outcome {
                    Outcome::Hops(_) => &mut to_hops,
                    Outcome::Blackhole => &mut drops,
                    Outcome::Unresolved(_) => continue,
                };
                let (highest, least, any) = way.unwrap_or((*level, *cost, *partial));
                *way = Some((highest.max(*level), least.min(*cost), any || *partial));
            }
            to_hops.or(drops)
        };
        if !matches!(key.next_hops, NextHops::Via(_)) {
            return (0, 0, false);
        }
        let (members, rest) = targets.split_at(key.hops().len());
        of(members).or_else(|| of(&rest[..key.backup.len()])).unwrap_or((0, 0, false))
    }

    /// Assembles a group's content from its targets' answers, if one of them changed.
    pub(crate) fn flatten(&mut self, id: u32) {
        if !self.settle_group(id) {
            return;
        }
        let dropped = &self.groups.store[id].dropped;
        let content = self.content(id, |node| !dropped.contains(&node) && !self.nodes[node].stale);
        self.put_content(id, content);
    }

    /// What a group resolves to when only the targets for which `counts` is true are outside the
    /// circle.
    pub(crate) fn content(&self, id: u32, counts: impl Fn(u32) -> bool) -> Option<FibGroup> {
        static CIRCLE: Outcome = Outcome::Unresolved(UnresolvedReason::Circle);
        let group = &self.groups.store[id];
        let outcome =
            |node: &u32| if counts(*node) { &self.nodes[*node].resolution.outcome } else { &CIRCLE };
        group.key.content(group.targets.iter().map(outcome), self.config.max_ecmp)
    }

    /// Stores the resolved content of a group.
    pub(crate) fn put_content(&mut self, id: u32, content: Option<FibGroup>) {
        self.cache.counters.resolutions += 1;
        let group = &mut self.groups.store[id];
        if content != group.content {
            group.changed = true;
            group.turned |= content.is_some() != group.content.is_some();
            group.content = content;
            self.touch(id);
        }
    }

    // ---- queries of selection

    /// Whether this group is resolved.
    #[inline]
    pub(crate) fn is_resolved(&self, group: u32) -> bool {
        self.groups.store[group].content.is_some()
    }
    /// Whether routes with this group discard by what they are, and not by what their next hops resolve to.
    pub(crate) fn discards(&self, group: u32) -> bool {
        !matches!(self.groups.store[group].key.next_hops, NextHops::Via(_))
    }

    /// Whether FIB policy keeps routes with this group out of the FIB.
    #[inline]
    pub(crate) fn denies(&self, group: u32) -> bool {
        self.groups.store[group].key.policy_result.deny
    }

    /// Whether routes that used this group before the batch must be selected again: it became
    /// resolved or unresolved, or, in per-route modes, a dependency changed.
    pub(crate) fn reselects_routes(&self, group: u32) -> bool {
        let woken = |g: &Group| if self.cache.is_per_route() { g.moved } else { g.turned };
        self.groups.store.get(group).is_some_and(|g| woken(g) && !g.fresh && g.has_routes())
    }

    /// Whether [`Resolver::reselects_routes`] is true of any group.
    pub(crate) fn any_reselects_routes(&self) -> bool {
        self.stale_groups.iter().any(|id| self.reselects_routes(*id))
    }

    /// How many groups with routes were made in this batch.
    pub(crate) fn fresh_groups(&self) -> u64 {
        let groups = self.stale_groups.iter().map(|id| &self.groups.store[*id]);
        groups.filter(|g| g.fresh && g.has_routes()).count() as u64
    }

    /// The FIB got a route with this group.
    pub(crate) fn installed(&mut self, group: u32) {
        self.groups.store[group].installed += 1;
        self.touch(group);
    }

    /// The FIB lost a route with this group.
    pub(crate) fn uninstalled(&mut self, group: u32) {
        self.groups.store[group].installed -= 1;
        self.touch(group);
    }

    #[inline]
    fn touch(&mut self, id: u32) {
        if !std::mem::replace(&mut self.groups.store[id].touched, true) {
            self.touched.push(id);
        }
    }

    /// Every group that dataplanes have, as operations that create them.
    pub(crate) fn in_fib(&self) -> Vec<GroupOp> {
        let groups = self.groups.store.iter().filter(|(_, g)| g.in_fib);
        groups.map(|(id, g)| g.op(GroupId(id))).collect()
    }

    /// Groups whose routes must be selected again; see [`Resolver::reselects_routes`].
    pub(crate) fn reselected(&self) -> impl Iterator<Item = u32> {
        self.stale_groups.iter().copied().filter(|id| self.reselects_routes(*id))
    }

    /// Whether dataplanes have an unresolved group.
    pub(crate) fn has_unresolved(&self) -> bool {
        self.sent_unresolved > 0
    }

    /// Whether they had one since the last call.
    pub(crate) fn unresolved_before(&mut self) -> bool {
        std::mem::replace(&mut self.unresolved_before, self.sent_unresolved > 0)
    }

    // ---- urgent operations

    /// Resolves the marked targets and returns the changed groups that dataplanes have. All other
    /// effects wait for the end of the batch. `after` is the latest batch.
    pub(crate) fn urgent(&mut self, tables: &RouteTables, after: u64) -> Vec<UrgentOp> {
        if self.cache.is_per_route() {
            // In these modes, each route resolves its own group at the end of the batch.
            return Vec::new();
        }
        self.resolve(tables);
        // Settled targets may be dropped before the batch ends.
        for id in std::mem::take(&mut self.stale_nodes) {
            self.nodes[id].changed = false;
            self.drop_node_if_unused(id);
        }
        let mut urgent = Vec::new();
        for id in &self.touched {
            let group = &mut self.groups.store[*id];
            if !(group.changed && group.in_fib && group.installed > 0) {
                continue;
            }
            let op = group.op(GroupId(*id));
            // A batch sends restored content again, because its acknowledgement proves that the
            // routes are back.
            group.changed = group.sent_unresolved && op.content != FibGroup::Unresolved;
            if op.content == FibGroup::Unresolved && !std::mem::replace(&mut group.sent_unresolved, true) {
                (self.sent_unresolved, self.unresolved_before) = (self.sent_unresolved + 1, true);
            }
            urgent.push(UrgentOp { after, made: group.made, op });
        }
        urgent
    }

    // ---- the end of a batch

    /// Ends batch `seq`: groups to create or change, groups to delete, notifications of next hops,
    /// and delays. Drops unused targets and groups.
    pub(crate) fn finish(
        &mut self,
        seq: u64,
        now: u64,
        create: &mut Vec<GroupOp>,
        delete: &mut Vec<GroupId>,
        out: &mut RibOut,
    ) {
        for id in self.touched.drain(..) {
            let group = &mut self.groups.store[id];
            let wanted = group.installed > 0;
            if wanted && (group.changed || !group.in_fib) {
                create.push(group.op(GroupId(id)));
            } else if group.in_fib && !wanted {
                delete.push(GroupId(id));
            }
            let unresolved = wanted && group.content.is_none();
            match (std::mem::replace(&mut group.sent_unresolved, unresolved), unresolved) {
                (false, true) => {
                    (self.sent_unresolved, self.unresolved_before) = (self.sent_unresolved + 1, true)
                }
                (true, false) => self.sent_unresolved -= 1,
                _ => {}
            }
            if wanted && !group.in_fib {
                group.made = seq;
            }
            group.in_fib = wanted;
            (group.touched, group.changed, group.turned) = (false, false, false);
        }
        let nodes = &self.nodes;
        let state = |node: u32| match &nodes[node].resolution {
            Resolution { outcome: Outcome::Unresolved(_), .. } => Reachability::Unreachable,
            Resolution { cost, partial, .. } => Reachability::Reachable { cost: *cost, partial: *partial },
        };
        let groups = &self.groups;
        self.tracking.notify(
            now,
            state,
            |node| bgp_prefixes(nodes, groups, node),
            &mut out.next_hops,
            &mut out.per_prefix,
            &mut out.delayed,
        );
        for id in self.stale_groups.drain(..) {
            let group = &mut self.groups.store[id];
            (group.fresh, group.moved) = (false, false);
        }
        let mut nodes = std::mem::take(&mut self.stale_nodes);
        for id in &nodes {
            self.nodes[*id].changed = false;
        }
        loop {
            for id in std::mem::take(&mut self.unused) {
                if self.groups.store.get(id).is_some_and(|g| g.routes == 0) {
                    debug_assert!(
                        self.dependents.of(id).next().is_none(),
                        "a target rests on a group without routes"
                    );
                    let Group { key, targets, .. } = self.groups.remove(id);
                    if let Some(assumed) = key.assumed
                        && let Some(count) = self.assumed.get_mut(&assumed)
                    {
                        *count -= 1;
                        if *count == 0 {
                            self.assumed.remove(&assumed);
                        }
                    }
                    for node in targets {
                        self.parents.remove(node, id);
                        self.nodes[node].groups -= 1;
                        nodes.push(node);
                    }
                }
            }
            for id in nodes.drain(..) {
                if self.nodes.get(id).is_some() {
                    self.drop_node_if_unused(id);
                }
            }
            // A dropped target releases the groups that it alone looked into.
            if self.unused.is_empty() {
                break;
            }
        }
        self.stale_nodes = nodes;
    }
}

/// The BGP prefixes on which the answer of a target may depend: the nearest first, at most
/// [`MAX_ASSUMED`].
fn bgp_prefixes(nodes: &Store<Node>, groups: &Groups, node: u32) -> Vec<AnyPrefix> {
    let (mut found, mut reached, mut at) = (Vec::new(), vec![node], 0);
    while let Some(node) = reached.get(at) {
        at += 1;
        for Consulted { group, bgp } in &nodes[*node].consulted {
            found.extend(bgp.filter(|prefix| !found.contains(prefix)));
            for target in &groups.store[*group].targets {
                if reached.len() < MAX_ASSUMED && nodes[*target].target.recursion && !reached.contains(target)
                {
                    reached.push(*target);
                }
            }
        }
    }
    found.truncate(MAX_ASSUMED);
    found
}

/// Whether the address is the directed broadcast of a connected subnet (RFC 1122 section 3.2.1.3): no host has it, and the
/// kernel refuses it as a gateway. Subnets of 31 and 32 bits have none (RFC 3021).
fn is_broadcast<F: Family>(subnet: Prefix<F>, address: IpAddr) -> bool {
    F::AFI == Afi::Ipv4 && subnet.len() <= 30 && subnet.last_addr() == address
}
