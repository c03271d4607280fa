//! BGP and the RIB manager as one loop. Shards feed routes, the RIB manager resolves next hops, and
//! the results change the usable paths and so the fed routes. A seed decides which stage runs next.
//!
//! When all stages are idle, their states must agree, after at most [`Feedback::most`] changes
//! since the last event:
//!
//! - A route that a peer was sent is BGP's candidate in the RIB manager, with the shard's next hops, and
//!   resolves; or another protocol's route is selected.
//! - So is every best path, and BGP has a path for every candidate.
//! - With FIB suppression, a route that a peer was sent is in the dataplane.
//! - The dataplane has the selected routes.

use crate::egress::Egress;
use crate::fib::ToRib;
use crate::network::{Event, Network};
use crate::stage::Stage;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::message::{
    Confirmation, FeedSet, NextHopState, RouteOp, ShardIn, TrackedNextHop, UpdateBatch,
};
use ribtide_bgp::peer::{PeerId, PeerInfo};
use ribtide_bgp::shard::{FedView, Shard};
use ribtide_prefix::{AnyPrefix, Families, Rng, for_each_family};
use ribtide_rib::{
    CacheMode, DataplaneId, FeedFence, FibAck, FibBatch, FibGroup, GroupId, InstallStatus, MAX_LEVEL, NONE,
    NextHops, Protocol, ReceivedHop, Rib, RibConfig, RibIn, RibOut, RouteBatch, RouteSet, SelectionResult,
    Source, VrfId,
};
use ribtide_wire::bgp::NextHop;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// The time to wait for delayed notifications, in milliseconds: several times the longest delay
/// (ADR 20). Paths that depend on each other without a stable state change for ever at that rate.
const DELAY_MAX_MS: u64 = 600_000;
/// The one dataplane.
const DATAPLANE: DataplaneId = 0;

/// Parameters of a run, which must not change the result.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Shards.
    pub shards: u16,
    /// Egress workers.
    pub workers: u16,
    /// How the resolution cache works.
    pub cache: CacheMode,
    /// Whether best paths wait for the dataplane.
    pub suppress: bool,
    /// Whether each event waits until all stages are idle.
    pub calm: bool,
}

/// The final state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// The routes that each peer was sent.
    pub advertised: BTreeMap<PeerId, BTreeMap<AnyPrefix, (Vec<u8>, NextHop)>>,
    /// Whether the RIB manager delayed notifications of flapping next hops.
    pub damped: bool,
    /// The dataplane's routes.
    pub forwarded: BTreeMap<AnyPrefix, FibGroup>,
}

/// The running stages.
pub struct Feedback<'n> {
    network: &'n Network,
    setup: Setup,
    rng: Rng,
    shards: Vec<Stage>,
    egress: Egress,
    /// The latest session of each peer, and whether it is up.
    sessions: Vec<(u32, bool)>,
    rib: Rib,
    /// In milliseconds.
    time: u64,
    damped: bool,
    inbox: VecDeque<RibIn>,
    dataplane: Dataplane,
    /// Unsent notifications to each shard.
    unsent: Vec<Unsent>,
    /// Changes since the last event: notifications of next hops, and routes and groups sent to the
    /// dataplane.
    changes: usize,
    /// Events since all stages were idle.
    events: usize,
}

/// The latest state of each next hop and blocked prefix, and the last returned fence.
#[derive(Default)]
struct Unsent {
    next_hops: BTreeMap<TrackedNextHop, NextHopState>,
    blocked: BTreeMap<AnyPrefix, bool>,
    fence: u64,
}

/// A dataplane that applies its batches late.
#[derive(Default)]
struct Dataplane {
    queue: VecDeque<FibBatch>,
    groups: BTreeMap<GroupId, FibGroup>,
    routes: BTreeMap<AnyPrefix, GroupId>,
}

impl Dataplane {
    fn apply(&mut self, batch: FibBatch) {
        self.groups.extend(batch.groups.into_iter().map(|op| (op.id, op.content)));
        for_each_family!(F => for route in batch.routes.get::<F>() {
            match route.group {
                Some(group) => self.routes.insert(route.prefix.any(), group),
                None => self.routes.remove(&route.prefix.any()),
            };
        });
        assert!(self.routes.values().all(|group| self.groups.contains_key(group)), "a route by no group");
        for group in batch.after {
            assert!(self.routes.values().all(|used| *used != group), "{group:?} goes and is used");
            self.groups.remove(&group);
        }
    }

    fn forwarding(&self) -> BTreeMap<AnyPrefix, FibGroup> {
        self.routes.iter().map(|(prefix, group)| (*prefix, self.groups[group].clone())).collect()
    }
}

impl<'n> Feedback<'n> {
    /// A run of `network`.
    pub fn new(network: &'n Network, setup: Setup, rng: Rng) -> Feedback<'n> {
        // One for each peer, one for the RIB manager, one for each worker's requests.
        let queues = network.peers.len() + 1 + usize::from(setup.workers);
        let config = RibConfig {
            resolve_via_default: network.resolve_via_default,
            cache: setup.cache,
            // A small number, so that reselection takes several turns.
            turn: 3,
            dataplanes: vec![DATAPLANE],
            ..RibConfig::default()
        };
        let mut run = Feedback {
            network,
            setup,
            rng,
            shards: (0..setup.shards).map(|_| Stage::of(Shard::tracking(network.options), queues)).collect(),
            egress: Egress::new(u32::from(setup.workers), u32::from(setup.shards), network.peers.len()),
            sessions: vec![(0, false); network.peers.len()],
            rib: Rib::new(config),
            time: 0,
            damped: false,
            inbox: VecDeque::from([RibIn::DataplaneUp(DATAPLANE)]),
            dataplane: Dataplane::default(),
            unsent: (0..setup.shards).map(|_| Unsent::default()).collect(),
            changes: 0,
            events: 0,
        };
        if setup.suppress {
            run.inbox.push_back(RibIn::Suppress(true));
            let queue = network.peers.len();
            run.shards.iter_mut().for_each(|stage| stage.queues[queue].push_back(ShardIn::Suppress(true)));
        }
        run
    }

    /// The changes that one undamped event may cause, at most: notifications of next hops, and
    /// routes and groups of the dataplane. Each prefix and next hop may change twice per level of
    /// recursion.
    pub fn most(&self) -> usize {
        2 * self.network.size * usize::from(MAX_LEVEL)
    }

    /// Runs to the end.
    pub fn finish(mut self) -> Outcome {
        for event in &self.network.events {
            self.happen(event);
            if self.setup.calm || self.rng.one_in(10) {
                self.settle();
            }
            while self.rng.one_in(2) {
                self.advance();
            }
        }
        self.settle();
        let (advertised, forwarded) = (self.egress.advertised(), self.dataplane.forwarding());
        Outcome { advertised, damped: self.damped, forwarded }
    }

    fn happen(&mut self, event: &Event) {
        self.events += 1;
        self.changes = 0;
        match event {
            Event::Up(peer) => {
                let (session, up) = &mut self.sessions[*peer];
                (*session, *up) = (*session + 1, true);
                let info = Arc::new(PeerInfo { session: *session, ..self.network.peers[*peer].clone() });
                self.egress.up(&info);
                self.send(*peer, |_| ShardIn::PeerUp(info.clone()));
            }
            Event::Down(peer) => {
                let (session, up) = &mut self.sessions[*peer];
                let session = *session;
                *up = false;
                let peer = PeerId(*peer as u32);
                self.egress.down(peer);
                self.send(peer.0 as usize, |stage| {
                    stage.ending.insert((peer, session));
                    ShardIn::PeerDown { peer, session }
                });
            }
            Event::Announce(peer, with, prefixes) => {
                let attrs = AttrSet::new(&with.bytes(), with.next_hop);
                self.routes(*peer, Some(&attrs), prefixes);
            }
            Event::Withdraw(peer, prefixes) => self.routes(*peer, None, prefixes),
            Event::Network(event) => self.inbox.push_back(event.clone()),
        }
    }

    fn send(&mut self, queue: usize, mut message: impl FnMut(&mut Stage) -> ShardIn) {
        for stage in &mut self.shards {
            let message = message(stage);
            stage.queues[queue].push_back(message);
        }
    }

    /// Sends a peer's routes to the shards of the prefixes.
    fn routes(&mut self, peer: usize, attrs: Option<&AttrSet>, all: &[AnyPrefix]) {
        for prefix in all {
            let mut prefixes = Families::default();
            match prefix {
                AnyPrefix::V4(prefix) => prefixes.v4 = vec![*prefix],
                AnyPrefix::V6(prefix) => prefixes.v6 = vec![*prefix],
            }
            let ops = vec![RouteOp { attrs: attrs.cloned(), afi: prefix.afi(), count: 1 }];
            let (session, id) = (self.sessions[peer].0, PeerId(peer as u32));
            let shard = self.shard_of(*prefix);
            let batch = UpdateBatch { peer: id, session, ops, prefixes };
            self.shards[shard].queues[peer].push_back(ShardIn::Routes(batch));
        }
    }

    fn shard_of(&self, prefix: AnyPrefix) -> usize {
        usize::from(crate::stage::logical_shard_of(prefix)) % self.shards.len()
    }

    /// Runs one step of one stage.
    fn advance(&mut self) {
        match self.rng.index(5) {
            0 => {
                let Feedback { egress, shards, rng, network, .. } = self;
                let first = network.peers.len() + 1;
                egress.advance(rng, |request| {
                    let queue = first + request.worker as usize;
                    shards.iter_mut().for_each(|stage| stage.queues[queue].push_back(ShardIn::Dump(request)));
                });
            }
            1 => self.resolve(),
            2 => self.forward(),
            3 => self.answer(),
            _ => {
                for stage in &mut self.shards {
                    if stage.is_busy() && self.rng.one_in(2) {
                        stage.advance(&mut self.rng, &mut self.egress);
                    }
                }
                self.receive();
            }
        }
    }

    /// Passes messages of the shards to the RIB manager, each shard's in order.
    fn receive(&mut self) {
        for (announcer, stage) in (0..).zip(&mut self.shards) {
            for message in stage.to_rib.drain(..) {
                self.inbox.push_back(match message {
                    ToRib::Track(next_hops) => RibIn::Track(next_hops),
                    ToRib::Untrack(next_hops) => RibIn::Untrack(next_hops),
                    ToRib::Feed(prefix, set) => RibIn::Routes(batch(prefix, set.as_ref())),
                    ToRib::Fence(seq) => RibIn::Confirm(FeedFence { announcer, seq }),
                });
            }
            stage.new_next_hops.clear();
        }
    }

    /// The RIB manager takes some of its messages.
    fn resolve(&mut self) {
        if self.inbox.is_empty() && !self.rib.has_more() {
            return;
        }
        let some = self.inbox.len().min(1 + self.rng.index(8));
        let events: Vec<RibIn> = self.inbox.drain(..some).collect();
        self.time += 1;
        self.rib.set_time(self.time);
        let out = self.rib.handle(events);
        self.take(out);
    }

    /// Advances the time to the next delayed notification, if that is within [`DELAY_MAX_MS`] of
    /// `since`.
    fn wait(&mut self, since: u64) -> bool {
        let Some(due) = self.rib.next_due().filter(|due| *due <= since + DELAY_MAX_MS) else { return false };
        self.damped |= self.rib.delayed_next_hops() > 0;
        self.time = self.time.max(due);
        self.rib.set_time(self.time);
        let out = self.rib.handle([]);
        self.take(out);
        true
    }

    /// Distributes the output of the RIB manager.
    fn take(&mut self, out: RibOut) {
        self.changes += out.next_hops.len();
        let states = out.next_hops.into_iter().map(|(of, state)| match state {
            ribtide_rib::Reachability::Reachable { cost } => (of, NextHopState::Reachable { cost }),
            ribtide_rib::Reachability::Unreachable => (of, NextHopState::Unreachable),
        });
        let states = states.chain(out.per_prefix.into_iter().map(|of| (of, NextHopState::PerPrefix)));
        for (next_hop, state) in states {
            self.unsent.iter_mut().for_each(|unsent| {
                unsent.next_hops.insert(next_hop, state);
            });
        }
        for (prefix, blocked) in out.blocked {
            self.unsent.iter_mut().for_each(|unsent| {
                unsent.blocked.insert(prefix, blocked);
            });
        }
        out.confirmed.into_iter().for_each(|fence| self.unsent[fence.announcer as usize].fence = fence.seq);
        for batch in out.fib.into_iter().chain(out.replay.into_iter().map(|(_, batch)| batch)) {
            self.changes += batch.route_count() + batch.groups.len();
            self.dataplane.queue.push_back(batch);
        }
    }

    /// The dataplane applies a batch.
    fn forward(&mut self) {
        let Some(batch) = self.dataplane.queue.pop_front() else { return };
        let seq = batch.seq;
        self.dataplane.apply(batch);
        let ack = FibAck { dataplane: DATAPLANE, seq, failed: Vec::new(), installed: Vec::new() };
        self.inbox.push_back(RibIn::Ack(ack));
    }

    /// Sends a shard its notifications.
    fn answer(&mut self) {
        let shard = self.rng.index(self.shards.len());
        let Unsent { next_hops, blocked, fence } = std::mem::take(&mut self.unsent[shard]);
        let queue = &mut self.shards[shard].queues[self.network.peers.len()];
        if fence > 0 || !blocked.is_empty() {
            let blocked = blocked.into_iter().collect();
            queue.push_back(ShardIn::Confirmed(Confirmation { fence, blocked }));
        }
        if !next_hops.is_empty() {
            queue.push_back(ShardIn::NextHops(next_hops.into_iter().collect()));
        }
    }

    fn is_busy(&self) -> bool {
        let is_sent =
            |unsent: &Unsent| unsent.next_hops.is_empty() && unsent.blocked.is_empty() && unsent.fence == 0;
        self.shards.iter().any(|stage| stage.is_busy() || !stage.to_rib.is_empty())
            || self.egress.is_busy()
            || !self.inbox.is_empty()
            || self.rib.has_more()
            || !self.dataplane.queue.is_empty()
            || !self.unsent.iter().all(is_sent)
    }

    /// Runs all stages until they are idle, and checks that their states agree.
    fn settle(&mut self) {
        let (most, since) = (self.most() * (self.events + 1), self.time);
        loop {
            while self.is_busy() {
                (0..20).for_each(|_| self.advance());
                self.egress.unblock();
                // Feedback through BGP's choice among several paths: each next hop changes 4 times at once, then back and
                // forth after each of 7 delays (ADR 20, section 6).
                let most = if self.damped { most * (4 + 2 * 7) } else { most };
                assert!(
                    self.changes <= most,
                    "{} changes since the last event, and there is still something to do: no rest comes",
                    self.changes
                );
            }
            if !self.wait(since) {
                break;
            }
        }
        self.events = 0;
        self.compare();
    }

    fn compare(&self) {
        let advertised: BTreeSet<AnyPrefix> =
            self.egress.advertised().into_values().flat_map(BTreeMap::into_keys).collect();
        let fed: BTreeMap<AnyPrefix, FeedSet> =
            self.shards.iter().flat_map(|stage| stage.feed.clone()).collect();
        let mut candidates = BTreeSet::new();
        let mut place = Some(0);
        while let Some(at) = place {
            let (some, next) = self.rib.announced_from(Source::Bgp, at, 7);
            candidates.extend(some);
            place = next;
        }
        assert_eq!(
            candidates,
            fed.keys().copied().collect(),
            "prefixes of BGP's candidates and of its paths"
        );
        for (prefix, set) in &fed {
            let view = self.shards[self.shard_of(*prefix)].shard.fed_of(*prefix);
            let Some(FedView { set: seen, best, .. }) = view else { panic!("{prefix} has no path") };
            assert_eq!(seen, *set, "what was fed of {prefix}");
            let advertised = advertised.contains(prefix);
            assert!(best || !advertised, "{prefix} is advertised and has no best path");
            self.accepted(*prefix, set, best, advertised);
        }
        assert!(advertised.iter().all(|prefix| fed.contains_key(prefix)), "something else is advertised");
        let mut selected = BTreeMap::new();
        let mut cursor = self.rib.cursor();
        while !cursor.is_done() {
            selected
                .extend(self.rib.page(&mut cursor, 5).into_iter().map(|info| (info.prefix, info.content)));
        }
        assert_eq!(self.dataplane.forwarding(), selected, "what the dataplane does");
    }

    /// Checks that the RIB manager has and resolves a route that BGP considers reachable.
    fn accepted(&self, prefix: AnyPrefix, set: &FeedSet, best: bool, advertised: bool) {
        let announced = self.rib.announced(prefix, Source::Bgp).expect("a candidate was found");
        assert!(self.rib.is_group_of(announced.group, &route_set(set)), "next hops of {prefix}");
        let info = self.rib.lookup(prefix);
        let by_another = info.as_ref().is_some_and(|info| info.protocol.source() != Source::Bgp);
        // A backup of the same route counts, because packets arrive.
        let state = if advertised { "and advertised" } else { "and not advertised" };
        assert!(
            !best || by_another || announced.selection != SelectionResult::Unresolved,
            "the best path of {prefix} is usable to BGP {state}, and to the RIB manager none of its next hops is: {:?}",
            self.rib.received_hops(announced.group)
        );
        if self.setup.suppress && advertised {
            let status = self.rib.status(prefix);
            assert_eq!(status, [(DATAPLANE, InstallStatus::Installed)], "{prefix} is advertised");
        }
    }
}

fn batch(prefix: AnyPrefix, set: Option<&FeedSet>) -> RouteBatch {
    let index = if set.is_some() { 0 } else { NONE };
    let mut changes = Families::default();
    match prefix {
        AnyPrefix::V4(prefix) => changes.v4 = vec![(prefix, index)],
        AnyPrefix::V6(prefix) => changes.v6 = vec![(prefix, index)],
    }
    RouteBatch {
        vrf: VrfId::DEFAULT,
        source: Source::Bgp,
        sets: set.map(route_set).into_iter().collect(),
        changes,
    }
}

/// Converts a set for the RIB manager, as the router does.
fn route_set(set: &FeedSet) -> RouteSet {
    let protocol = if set.kind.internal { Protocol::BgpInternal } else { Protocol::BgpExternal };
    let hop =
        |(address, share): &(IpAddr, u16)| ReceivedHop { weight: *share, ..ReceivedHop::gateway(*address) };
    RouteSet {
        next_hops: NextHops::Via(set.next_hops.iter().map(hop).collect()),
        backup: set.backup.iter().map(|(address, _)| ReceivedHop::gateway(*address)).collect(),
        backup_recursion: set.backup.is_some_and(|(_, kind)| kind.recursive),
        track: None,
        distance: protocol.default_distance(),
        metric: 0,
        allow_recursion: set.kind.recursive,
        protocol,
    }
}
