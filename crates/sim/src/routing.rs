//! BGP's shards and egress workers and the RIB manager, with the messages between them: everything
//! of the router but its dataplanes. [`crate::feedback`] and [`crate::router`] put dataplanes behind
//! it.

use crate::egress::Egress;
use crate::fib::ToRib;
use crate::network::{Event, Network};
use crate::stage::Stage;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::message::{
    Confirmation, FeedSet, NextHopState, RouteOp, ShardIn, TrackedNextHop, UpdateBatch,
};
use ribtide_bgp::peer::{FamilySet, PeerId, PeerInfo};
use ribtide_bgp::shard::{FedView, HashSeed, Shard};
use ribtide_prefix::{AfiSafi, AnyPrefix, BgpFamilies, Families, Rng};
use ribtide_rib::{
    CacheMode, DataplaneId, FeedFence, FibBatch, InstallStatus, NONE, NextHops, Protocol, ReceivedHop, Rib,
    RibConfig, RibIn, RibOut, RouteBatch, RouteInfo, RouteSet, SelectionResult, Source, VrfId,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

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

/// The running stages.
pub(crate) struct Routing<'n> {
    network: &'n Network,
    setup: Setup,
    shards: Vec<Stage>,
    pub(crate) egress: Egress,
    /// The latest session of each peer, and whether it is up.
    sessions: Vec<(u32, bool)>,
    /// The ended session of each peer whose routes are retained.
    retained: Vec<Option<u32>>,
    pub(crate) rib: Rib,
    /// In milliseconds.
    pub(crate) time: u64,
    pub(crate) inbox: VecDeque<RibIn>,
    /// Batches for the dataplane.
    pub(crate) fib: VecDeque<FibBatch>,
    /// Unsent notifications to each shard.
    unsent: Vec<Unsent>,
    /// Notifications of next hops since this was last emptied.
    pub(crate) notified: usize,
}

/// The latest state of each next hop and blocked prefix, and the last returned fence.
#[derive(Default)]
struct Unsent {
    next_hops: BTreeMap<TrackedNextHop, NextHopState>,
    blocked: BTreeMap<AnyPrefix, bool>,
    fence: u64,
}

impl<'n> Routing<'n> {
    /// The stages of a router in `network` with one dataplane, which is up.
    pub(crate) fn new(network: &'n Network, setup: Setup, dataplane: DataplaneId) -> Routing<'n> {
        Routing::starting(network, setup, dataplane, &[])
    }

    /// The same, where a replay ends after [`RibIn::EndOfInitial`] of these sources.
    pub(crate) fn starting(
        network: &'n Network,
        setup: Setup,
        dataplane: DataplaneId,
        initial_sources: &[Source],
    ) -> Routing<'n> {
        // One for each peer, one for the RIB manager, one for each worker's requests.
        let queues = network.peers.len() + 1 + usize::from(setup.workers);
        let config = RibConfig {
            resolve_via_default: network.resolve_via_default,
            cache: setup.cache,
            // A small number, so that reselection takes several turns.
            turn: 3,
            dataplanes: vec![dataplane],
            initial_sources: initial_sources.to_vec(),
            ..RibConfig::default()
        };
        let shard = || Shard::tracking(network.options).with_seed(&HashSeed::fixed());
        let mut routing = Routing {
            network,
            setup,
            shards: (0..setup.shards).map(|_| Stage::of(shard(), queues)).collect(),
            egress: Egress::new(u32::from(setup.workers), u32::from(setup.shards), network.peers.len()),
            sessions: vec![(0, false); network.peers.len()],
            retained: vec![None; network.peers.len()],
            rib: Rib::new(config),
            time: 0,
            inbox: VecDeque::new(),
            fib: VecDeque::new(),
            unsent: (0..setup.shards).map(|_| Unsent::default()).collect(),
            notified: 0,
        };
        if setup.suppress {
            routing.inbox.push_back(RibIn::Suppress(true));
            let queue = network.peers.len();
            let on = |stage: &mut Stage| stage.queues[queue].push_back(ShardIn::Suppress(true));
            routing.shards.iter_mut().for_each(on);
        }
        routing
    }

    /// Takes in an event.
    pub(crate) fn happen(&mut self, event: &Event) {
        match event {
            Event::Up(peer) => {
                let (session, up) = &mut self.sessions[*peer];
                (*session, *up) = (*session + 1, true);
                let info = Arc::new(PeerInfo { session: *session, ..self.network.peers[*peer].clone() });
                self.egress.up(&info);
                self.send(*peer, |_| ShardIn::PeerUp(info.clone()));
            }
            Event::Down(peer) => self.end(*peer, FamilySet::NONE),
            Event::Lose(peer) => self.end(*peer, FamilySet::ALL),
            Event::Sweep(peer) => self.sweep(*peer),
            Event::Announce(peer, with, prefixes) => {
                let attrs = AttrSet::new(&with.bytes(), with.next_hop);
                self.routes(*peer, Some(&attrs), prefixes);
            }
            Event::Withdraw(peer, prefixes) => self.routes(*peer, None, prefixes),
            Event::Network(event) => self.inbox.push_back(event.clone()),
        }
    }

    /// A session ends, and its routes of these families are retained.
    fn end(&mut self, peer: usize, retained: FamilySet) {
        self.sweep(peer);
        let (session, up) = &mut self.sessions[peer];
        let session = *session;
        *up = false;
        self.retained[peer] = (!retained.is_empty()).then_some(session);
        let id = PeerId(peer as u32);
        self.egress.down(id);
        self.send(peer, |stage| {
            stage.ending.extend(retained.is_empty().then_some((id, session)));
            ShardIn::PeerDown { peer: id, session, retained }
        });
    }

    /// Removes the retained routes of a peer, if it has any.
    fn sweep(&mut self, peer: usize) {
        let Some(session) = self.retained[peer].take() else { return };
        let id = PeerId(peer as u32);
        self.send(peer, |stage| {
            stage.ending.insert((id, session));
            ShardIn::Sweep { peer: id, session, families: FamilySet::ALL }
        });
    }

    /// Whether a session of the peer is up.
    pub(crate) fn is_up(&self, peer: usize) -> bool {
        self.sessions.get(peer).is_some_and(|(_, up)| *up)
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
            let mut prefixes = BgpFamilies::default();
            match prefix {
                AnyPrefix::V4(prefix) => prefixes.v4 = vec![*prefix],
                AnyPrefix::V6(prefix) => prefixes.v6 = vec![*prefix],
            }
            let ops = vec![RouteOp {
                attrs: attrs.cloned(),
                path_id: 0,
                family: AfiSafi::unicast(prefix.afi()),
                count: 1,
            }];
            let (session, id) = (self.sessions[peer].0, PeerId(peer as u32));
            let shard = self.shard_of(*prefix);
            let batch = UpdateBatch { peer: id, session, ops, prefixes };
            self.shards[shard].queues[peer].push_back(ShardIn::Routes(batch));
        }
    }

    fn shard_of(&self, prefix: AnyPrefix) -> usize {
        usize::from(crate::stage::logical_shard_of(prefix)) % self.shards.len()
    }

    /// A worker takes a message or flushes.
    pub(crate) fn export(&mut self, rng: &mut Rng) {
        let Routing { egress, shards, network, .. } = self;
        let first = network.peers.len() + 1;
        egress.advance(rng, |request| {
            let queue = first + request.worker as usize;
            shards.iter_mut().for_each(|stage| stage.queues[queue].push_back(ShardIn::Dump(request.clone())));
        });
    }

    /// About half of the shards take a message or a step.
    pub(crate) fn decide(&mut self, rng: &mut Rng) {
        for stage in &mut self.shards {
            if stage.is_busy() && rng.one_in(2) {
                stage.advance(rng, &mut self.egress);
            }
        }
        self.receive();
    }

    /// Passes messages of the shards to the RIB manager, each shard's in order.
    fn receive(&mut self) {
        // Most shards said nothing.
        for (announcer, stage) in (0..).zip(&mut self.shards).filter(|(_, stage)| !stage.to_rib.is_empty()) {
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
    pub(crate) fn resolve(&mut self, rng: &mut Rng) {
        if self.inbox.is_empty() && !self.rib.has_more() {
            return;
        }
        let some = self.inbox.len().min(1 + rng.index(8));
        let events: Vec<RibIn> = self.inbox.drain(..some).collect();
        self.time += 1;
        self.handle(events);
    }

    /// Advances the time to the next delayed notification, if that is before `limit`.
    pub(crate) fn wait(&mut self, limit: u64) -> bool {
        let Some(due) = self.rib.next_due().filter(|due| *due <= limit) else { return false };
        self.time = self.time.max(due);
        self.handle(Vec::new());
        true
    }

    fn handle(&mut self, events: Vec<RibIn>) {
        self.rib.set_time(self.time);
        let out = self.rib.handle(events);
        self.take(out);
    }

    /// Distributes the output of the RIB manager.
    fn take(&mut self, out: RibOut) {
        self.notified += out.next_hops.len();
        let states = out.next_hops.into_iter().map(|(of, state)| match state {
            ribtide_rib::Reachability::Reachable { cost, partial } => {
                (of, NextHopState::Reachable { cost, partial })
            }
            ribtide_rib::Reachability::ReachableAlone { cost, partial } => {
                (of, NextHopState::ReachableAlone { cost, partial })
            }
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
            self.fib.push_back(batch);
        }
    }

    /// Sends a shard its notifications.
    pub(crate) fn answer(&mut self, rng: &mut Rng) {
        let shard = rng.index(self.shards.len());
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

    /// Whether a stage has work.
    pub(crate) fn is_busy(&self) -> bool {
        let is_sent =
            |unsent: &Unsent| unsent.next_hops.is_empty() && unsent.blocked.is_empty() && unsent.fence == 0;
        self.shards.iter().any(|stage| stage.is_busy() || !stage.to_rib.is_empty())
            || self.egress.is_busy()
            || !self.inbox.is_empty()
            || self.rib.has_more()
            || !self.fib.is_empty()
            || !self.unsent.iter().all(is_sent)
    }

    /// Checks that BGP and the RIB manager agree. Call it when all stages are idle.
    pub(crate) fn compare(&self) {
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
    }

    /// The routes that the dataplane shall have.
    pub(crate) fn selected(&self) -> BTreeMap<AnyPrefix, RouteInfo> {
        let mut selected = BTreeMap::new();
        let mut cursor = self.rib.cursor();
        while !cursor.is_done() {
            selected.extend(self.rib.page(&mut cursor, 5).into_iter().map(|info| (info.prefix, info)));
        }
        selected
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
            let installed = status.iter().all(|(_, status)| *status == InstallStatus::Installed);
            assert!(installed, "{prefix} is advertised: {status:?}");
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
