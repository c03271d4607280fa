//! What the tests share: short constructors of events, a dataplane that checks its batches, and an oracle that
//! computes everything from scratch.
#![allow(dead_code, unreachable_pub, reason = "each test takes what it needs")]

pub mod oracle;

use ribtide_prefix::{Afi, AnyPrefix, Families, Family, for_each_family};
use ribtide_rib::*;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

pub fn recursive(text: &str) -> TrackedNextHop {
    TrackedNextHop { address: ip(text), recursive: true, exclude: None }
}

/// The same for a route whose next hop must be on link.
pub fn on_link(text: &str) -> TrackedNextHop {
    TrackedNextHop { address: ip(text), recursive: false, exclude: None }
}

pub fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

pub fn pfx(text: &str) -> AnyPrefix {
    text.parse().unwrap()
}

pub fn gw(text: &str) -> ReceivedHop {
    ReceivedHop::gateway(ip(text))
}

pub fn dev(index: IfIndex) -> ReceivedHop {
    ReceivedHop::interface(index)
}

pub fn hop(gateway: &str, interface: IfIndex) -> FibHop {
    FibHop { gateway: Some(ip(gateway)), interface, weight: 1, onlink: false }
}

pub fn link(interface: IfIndex) -> FibHop {
    FibHop { gateway: None, interface, weight: 1, onlink: false }
}

pub fn set(protocol: Protocol, hops: &[ReceivedHop]) -> RouteSet {
    RouteSet {
        next_hops: NextHops::Via(hops.to_vec()),
        backup: Vec::new(),
        backup_recursion: protocol != Protocol::BgpExternal,
        track: None,
        distance: protocol.default_distance(),
        metric: 0,
        allow_recursion: protocol != Protocol::BgpExternal,
        protocol,
    }
}

/// One route, announced or withdrawn.
pub fn route(prefix: AnyPrefix, source: Source, set: Option<RouteSet>) -> RibIn {
    let index = if set.is_some() { 0 } else { NONE };
    let mut changes: Families<RouteChanges> = Families::default();
    match prefix {
        AnyPrefix::V4(prefix) => changes.v4.push((prefix, index)),
        AnyPrefix::V6(prefix) => changes.v6.push((prefix, index)),
    }
    RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source, sets: set.into_iter().collect(), changes })
}

pub fn announce(prefix: &str, protocol: Protocol, hops: &[ReceivedHop]) -> RibIn {
    route(pfx(prefix), protocol.source(), Some(set(protocol, hops)))
}

pub fn withdraw(prefix: &str, source: Source) -> RibIn {
    route(pfx(prefix), source, None)
}

/// An own address with its subnet of this length.
pub fn on_subnet(address: &str, len: u8) -> (IpAddr, AnyPrefix) {
    (ip(address), AnyPrefix::from_addr(ip(address), len).unwrap())
}

pub fn interface(index: IfIndex, up: bool, addresses: &[&str]) -> RibIn {
    let address = |text: &&str| {
        // Of a point-to-point link: the own address, and the peer's prefix.
        if let Some((address, subnet)) = text.split_once(" peer ") {
            return (ip(address), pfx(subnet));
        }
        let (address, len) = text.split_once('/').unwrap();
        on_subnet(address, len.parse().unwrap())
    };
    let addresses = addresses.iter().map(address).collect();
    RibIn::Interface(InterfaceEvent {
        vrf: VrfId::DEFAULT,
        index,
        name: format!("eth{index}"),
        up,
        loopback: false,
        addresses,
    })
}

/// A dataplane that panics on operations that a real one could not perform.
#[derive(Default)]
pub struct Model {
    pub groups: BTreeMap<GroupId, FibGroup>,
    /// The source addresses of the groups that have one.
    pub sources: BTreeMap<GroupId, IpAddr>,
    pub routes: BTreeMap<AnyPrefix, (Protocol, GroupId)>,
    /// During a replay: what was named since its start.
    marked: Option<(BTreeSet<GroupId>, BTreeSet<AnyPrefix>)>,
    /// Whether a start of replay was seen; without one, batches are ignored.
    started: bool,
    pub finished: bool,
    pub seq: u64,
    /// Operations carried out: groups, routes.
    pub ops: (usize, usize),
    /// Whether a group may be given the content that it has.
    pub repeats: bool,
}

impl Model {
    /// A dataplane that is up from the beginning, with nothing to replay.
    pub fn new() -> Model {
        Model { started: true, finished: true, ..Model::default() }
    }

    /// A dataplane with groups and routes of an earlier run.
    pub fn leftover() -> Model {
        let mut model = Model::default();
        model.groups.insert(GroupId(1), FibGroup::Blackhole);
        model.groups.insert(GroupId(7777), FibGroup::Blackhole);
        for prefix in ["10.0.0.0/8", "99.0.0.0/8", "2001:db8::/32"] {
            model.routes.insert(pfx(prefix), (Protocol::BgpInternal, GroupId(7777)));
        }
        model
    }

    pub fn apply(&mut self, batch: &FibBatch) {
        if batch.start_of_replay {
            (self.started, self.finished) = (true, false);
            self.marked = Some(Default::default());
        }
        if !self.started {
            return;
        }
        assert!(batch.seq > self.seq, "numbers rise");
        self.seq = batch.seq;
        self.ops.0 += batch.groups.len() + batch.after.len();
        self.ops.1 += batch.route_count();
        for op in &batch.groups {
            assert_ne!(op.id.0, 0);
            if let FibGroup::Hops(hops) = &op.content {
                assert!(!hops.is_empty(), "a group has hops");
                assert!(
                    hops.windows(2).all(|w| (w[0].gateway, w[0].interface) < (w[1].gateway, w[1].interface))
                );
                assert!(hops.iter().all(|h| h.weight > 0));
            }
            let old = self.groups.insert(op.id, op.content.clone());
            if old.is_some() && self.marked.is_none() {
                assert_eq!(self.sources.get(&op.id).copied(), op.source, "a group keeps its source address");
            }
            match op.source {
                Some(source) => self.sources.insert(op.id, source),
                None => self.sources.remove(&op.id),
            };
            if self.marked.is_none() && !self.repeats {
                assert_ne!(old.as_ref(), Some(&op.content), "an operation changes something");
            }
            if let Some((groups, _)) = &mut self.marked {
                groups.insert(op.id);
            }
        }
        for_each_family!(F => self.routes::<F>(batch));
        for id in &batch.after {
            assert!(self.groups.remove(id).is_some() || self.marked.is_some(), "only groups that exist go");
            self.sources.remove(id);
            if self.marked.is_none() {
                assert!(self.routes.values().all(|(_, g)| g != id), "group {} goes while in use", id.0);
            }
        }
        if batch.end_of_replay {
            let (groups, routes) = self.marked.take().expect("a start before the end");
            self.routes.retain(|prefix, _| routes.contains(prefix));
            self.groups.retain(|id, _| groups.contains(id));
            self.sources.retain(|id, _| groups.contains(id));
            self.finished = true;
        }
        if self.marked.is_none() {
            assert!(
                self.routes.values().all(|(_, g)| self.groups.contains_key(g)),
                "no route without its group"
            );
        }
    }

    fn routes<F: Family>(&mut self, batch: &FibBatch) {
        for op in batch.routes.get::<F>() {
            let prefix = op.prefix.any();
            if let Some((_, routes)) = &mut self.marked {
                routes.insert(prefix);
            }
            match op.group {
                Some(id) => {
                    assert!(self.groups.contains_key(&id), "{prefix} uses group {} that is not there", id.0);
                    if let Some((groups, _)) = &self.marked {
                        assert!(groups.contains(&id), "{prefix} uses group {} of before the replay", id.0);
                    }
                    let old = self.routes.insert(prefix, (op.protocol, id));
                    if self.marked.is_none() {
                        assert_ne!(old, Some((op.protocol, id)), "an operation changes something");
                    }
                }
                None => {
                    let old = self.routes.remove(&prefix);
                    if self.marked.is_none() {
                        assert_eq!(old.expect("only routes that exist go").0, op.protocol);
                    }
                }
            }
        }
    }

    /// The source address of each route.
    pub fn sources(&self) -> BTreeMap<AnyPrefix, Option<IpAddr>> {
        self.routes.iter().map(|(prefix, (_, g))| (*prefix, self.sources.get(g).copied())).collect()
    }

    /// What it does with packets.
    pub fn fib(&self) -> BTreeMap<AnyPrefix, (Protocol, FibGroup)> {
        let all = self.routes.iter().map(|(prefix, (p, g))| (*prefix, (*p, self.groups[g].clone())));
        all.filter(|(_, (_, content))| *content != FibGroup::Unresolved).collect()
    }
}

/// Small route-maps: the first entry with the protocol, and with a prefix that covers the route, decides.
#[derive(Clone, Debug, Default)]
pub struct Maps(pub Vec<(Protocol, Option<AnyPrefix>, TestAction)>);

/// The action of a route-map.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum TestAction {
    Deny,
    Permit,
    /// The source address ends with this, whatever the family.
    Source(u8),
}

impl TestAction {
    fn policy_result(self, afi: Afi) -> FibPolicyResult {
        let source = |n: u8| match afi {
            Afi::Ipv4 => IpAddr::from([10, 255, 0, n]),
            Afi::Ipv6 => IpAddr::from([0x2001, 0xdb8, 0xff, 0, 0, 0, 0, n.into()]),
        };
        match self {
            TestAction::Deny => FibPolicyResult { deny: true, source: None },
            TestAction::Permit => FibPolicyResult::default(),
            TestAction::Source(n) => FibPolicyResult { deny: false, source: Some(source(n)) },
        }
    }
}

impl RouteMaps for Maps {
    fn of_all(&self, protocol: Protocol, afi: Afi) -> Option<FibPolicyResult> {
        let mut matching =
            self.0.iter().filter(|(p, of, _)| *p == protocol && of.is_none_or(|of| of.afi() == afi));
        match matching.next() {
            None => Some(FibPolicyResult::default()),
            Some((_, None, action)) => Some(action.policy_result(afi)),
            Some((_, Some(_), _)) => None,
        }
    }
    fn of(&self, protocol: Protocol, prefix: AnyPrefix) -> FibPolicyResult {
        let holds = |of: &AnyPrefix| of.contains(prefix.addr()) && of.len() <= prefix.len();
        let mut matching = self.0.iter().filter(|(p, of, _)| *p == protocol && of.as_ref().is_none_or(holds));
        matching
            .next()
            .map_or(FibPolicyResult::default(), |(_, _, action)| action.policy_result(prefix.afi()))
    }
}

/// A RIB with one dataplane attached from the beginning; and the same once more with each other mode of the cache,
/// which must always give the same results.
pub struct Bench {
    pub rib: Rib,
    pub model: Model,
    others: Vec<(Rib, Model)>,
}

impl Bench {
    pub fn new(config: RibConfig) -> Bench {
        let with = |cache| (Rib::new(RibConfig { cache, ..config.clone() }), Model::new());
        let (rib, model) = with(CacheMode::Dependency);
        Bench { rib, model, others: vec![with(CacheMode::Epoch), with(CacheMode::Off)] }
    }

    pub fn with(events: Vec<RibIn>) -> Bench {
        let mut bench = Bench::new(RibConfig::default());
        bench.handle(events);
        bench
    }

    pub fn handle(&mut self, events: Vec<RibIn>) -> RibOut {
        let out = self.rib.handle(events.clone());
        if let Some(batch) = &out.fib {
            self.model.apply(batch);
        }
        for (rib, model) in &mut self.others {
            let other = rib.handle(events.clone());
            if let Some(batch) = &other.fib {
                model.apply(batch);
            }
            let mode = rib.cache_mode();
            assert_eq!(model.groups, self.model.groups, "{mode}: the same groups");
            assert_eq!(model.routes, self.model.routes, "{mode}: the same routes");
            assert_eq!(model.ops, self.model.ops, "{mode}: as much work for the dataplane");
            let sorted = |out: &RibOut| {
                let mut next_hops = out.next_hops.clone();
                next_hops.sort_by_key(|(address, _)| *address);
                next_hops
            };
            assert_eq!(sorted(&other), sorted(&out), "{mode}: the same next hops");
            for (this, that) in rib.groups().zip(self.rib.groups()) {
                let what = |g: GroupInfo| (g.id, g.hops, g.content, g.level, g.candidates, g.installed);
                assert_eq!(what(this), what(that), "{mode}: the same of each group");
            }
        }
        out
    }

    /// Route-maps, in every mode.
    pub fn set_route_maps(&mut self, maps: &Maps) {
        self.rib.set_route_maps(Arc::new(maps.clone()));
        self.others.iter_mut().for_each(|(rib, _)| rib.set_route_maps(Arc::new(maps.clone())));
    }

    /// What the dataplane has for a prefix.
    pub fn fib(&self, prefix: &str) -> Option<FibGroup> {
        let (_, group) = self.model.routes.get(&pfx(prefix))?;
        Some(self.model.groups[group].clone())
    }

    #[track_caller]
    pub fn expect(&self, prefix: &str, hops: &[FibHop]) {
        assert_eq!(self.fib(prefix), Some(FibGroup::Hops(hops.to_vec())), "{prefix}");
    }

    /// Checks that a prefix has one candidate, that it is not installed, and why its first hop is unresolved.
    #[track_caller]
    pub fn expect_why(&self, prefix: &str, why: UnresolvedReason) {
        assert_eq!(self.fib(prefix), None, "{prefix}");
        let explanation = self.rib.explain(pfx(prefix)).expect("a candidate");
        assert_eq!(explanation.group.hops[0].outcome, Outcome::Unresolved(why), "{prefix}");
        assert_eq!(explanation.candidates[0].selection, SelectionResult::Unresolved);
    }
}

/// How many random tables a property is tried with: `PROPTEST_CASES`, for a long search, or `usual`.
pub fn cases(usual: u32) -> u32 {
    std::env::var("PROPTEST_CASES").ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}
