//! The real stages on a history: readers, shards, egress workers and their queues. A seed decides
//! which stage runs next.
//!
//! Every peer has a queue to every shard, as if it had a reader of its own. So shards see the
//! peers' messages in different orders. Where options make the order of arrival count, all peers
//! share one queue.

use crate::egress::Egress;
use crate::fib::Fib;
use crate::history::{Event, History, options, updates};
use crate::oracle::{Learned, Oracle};
use crate::policy::switch;
use crate::stage::{FOLLOWER, Follower, RankedRow, Stage, Table, has_moved, logical_shard_of, same_table};
use crate::station::{self, Accepted, Station};
use crate::watches::Watching;
use ribtide_bgp::ingest::{Ingest, IngestPeer, IngestSettings, OriginatedAttributes, ShardBatches, ShardMap};
use ribtide_bgp::message::{
    DumpRequest, DumpScope, FeedSet, NextHopState, ShardIn, TrackedNextHop, by_family,
};
use ribtide_bgp::peer::{EgressSettings, FamilySet, PeerId, PeerInfo, PeerKind};
use ribtide_bgp::presence::Presence;
use ribtide_bgp::shard::{
    Cut, FamilyCounts, HashSeed, PageViews, Part, PathView, RouteView, Shard, Split, Standing,
};
use ribtide_prefix::{
    AfiSafi, AnyPrefix, BgpFamily, ByFamily, LOGICAL_SHARDS, Rng, V4, V6, for_each_bgp_family,
};
use ribtide_wire::bgp::attribute::Origin;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

/// The running stages.
pub struct Run<'w> {
    history: &'w History,
    ordered: bool,
    rng: Rng,
    oracle: Oracle,
    map: ShardMap,
    seed: HashSeed,
    /// The logical shard that is moving.
    split: Option<Split>,
    shards: Vec<Stage>,
    egress: Egress,
    /// The session number of each peer, and its reader while it is up.
    readers: Vec<ReaderStage>,
    events: std::slice::Iter<'w, Event>,
    dumps: u64,
    fib: Fib,
    /// Whether suppression may be switched.
    switches: bool,
    /// The reported states of next hops.
    next_hops: BTreeMap<IpAddr, NextHopState>,
    watching: Watching,
}

struct ReaderStage {
    ingest: Ingest,
    session: u32,
    path_ids: FamilySet,
    /// The present settings of what the peer is sent.
    egress: EgressSettings,
    peer: Option<IngestPeer>,
    /// The ended sessions with retained routes, and their families.
    retained: Vec<(u32, FamilySet)>,
    out: ShardBatches,
}

impl<'w> Run<'w> {
    /// A run of `history` over `shards` shards and `workers` egress workers. `ordered`: messages in
    /// the order of the history.
    pub fn new(history: &'w History, shards: u16, workers: u16, ordered: bool, mut rng: Rng) -> Run<'w> {
        let map: ShardMap = std::array::from_fn(|logical| logical as u16 % shards);
        // One for each peer, one for next hops, one for each worker's requests, and one for confirmations.
        let queues = history.peers.len() + 2 + usize::from(workers);
        let fib = Fib::new(usize::from(shards), false, rng.one_in(2));
        let seed = HashSeed::random();
        let stage = || Stage::new(history.options, &seed, queues);
        let reader = |peer: &PeerInfo| ReaderStage {
            ingest: Ingest::default(),
            session: 0,
            path_ids: FamilySet::NONE,
            egress: peer.egress.clone(),
            peer: None,
            retained: Vec::new(),
            out: ShardBatches::new(map),
        };
        let mut run = Run {
            history,
            ordered,
            rng,
            oracle: Oracle::new(history.options, history.peers.clone(), history.imports.clone()),
            map,
            split: None,
            shards: (0..shards).map(|_| stage()).collect(),
            seed,
            egress: Egress::new(u32::from(workers), u32::from(shards), history.peers.len()),
            readers: history.peers.iter().map(reader).collect(),
            events: history.events.iter(),
            dumps: 0,
            fib,
            switches: false,
            next_hops: BTreeMap::new(),
            watching: Watching::default(),
        };
        if run.rng.one_in(2) {
            run.switches = run.rng.one_in(3);
            run.switch();
        }
        run
    }

    /// Switches suppression on or off.
    fn switch(&mut self) {
        self.fib.switch();
        for stage in &mut self.shards {
            let queue = stage.queues.last_mut().expect("a shard has queues");
            queue.push_back(ShardIn::Suppress(self.fib.is_on()));
        }
    }

    /// The options of the decision process change.
    fn reconfigure(&mut self) {
        let options = options(&mut self.rng, self.ordered);
        self.oracle.set_options(options);
        for stage in &mut self.shards {
            stage.set_options(options, &mut self.egress);
        }
    }

    /// Runs to the end. Sometimes all stages become idle before the next event: then the results
    /// are compared with the oracle's.
    pub fn finish(mut self) {
        while let Some(event) = self.events.next() {
            self.happen(event);
            while self.rng.one_in(2) {
                self.advance();
            }
            if self.shards.len() > 1 && self.rng.one_in(10) {
                self.relocate();
            }
            if self.rng.one_in(4) {
                self.fib.turn(&mut self.rng);
            }
            if self.rng.one_in(15) {
                self.reconfigure();
            }
            if self.switches && self.rng.one_in(15) {
                self.switch();
            }
            if self.rng.one_in(60) {
                self.egress.begin_station();
            }
            if self.rng.one_in(20) {
                let set = self.watching.change(&mut self.rng, &self.history.prefixes);
                self.send(self.history.peers.len(), |_| ShardIn::Watch(set.clone()));
            }
            if self.rng.one_in(15) {
                self.oracle.present = *self.rng.pick(&[None, Some(false), Some(true)]);
                let known = self.oracle.present.map(|present| (switch(), present));
                self.egress.presence(&Arc::new(Presence::new(known.into_iter().collect())));
            }
            if self.rng.one_in(20) {
                self.settle();
            }
        }
        self.settle();
        self.end_all();
    }

    /// Runs one step of a reader, a worker, the RIB manager or the dataplane, or of about half of
    /// the shards.
    fn advance(&mut self) {
        if self.rng.one_in(4) {
            self.page();
        }
        match self.rng.index(5) {
            0 => {
                let peer = self.rng.index(self.readers.len());
                self.flush(peer);
            }
            1 => {
                let Run { egress, shards, rng, .. } = self;
                let (ordered, first) = (self.ordered, self.history.peers.len() + 1);
                egress.advance(rng, |request| {
                    let queue = if ordered { 0 } else { first + request.worker as usize };
                    shards
                        .iter_mut()
                        .for_each(|stage| stage.queues[queue].push_back(ShardIn::Dump(request.clone())));
                });
            }
            2 => {
                self.fib.advance(&mut self.rng);
                let shard = self.rng.index(self.shards.len());
                if let Some(confirmation) = self.fib.confirmation(shard) {
                    let queue = self.shards[shard].queues.last_mut().expect("a shard has queues");
                    queue.push_back(ShardIn::Confirmed(confirmation));
                }
            }
            _ => {
                for stage in &mut self.shards {
                    if stage.is_busy() && self.rng.one_in(2) {
                        stage.advance(&mut self.rng, &mut self.egress);
                    }
                }
                self.answer();
            }
        }
    }

    /// Sends the station its next page, unless parts of logical shards are in transit: a page waits for these.
    fn page(&mut self) {
        if self.shards.iter().any(Stage::expects) {
            return;
        }
        let Some((family, logical, from)) = self.egress.station.steps.pop_front() else { return };
        let taker = self.split.as_ref().filter(|split| split.logical == logical).map(|split| split.taker);
        let owners = [Some(self.map[usize::from(logical)]), taker];
        let mut next = None;
        for owner in owners.into_iter().flatten() {
            let budget = 1 + self.rng.index(8);
            let stage = &mut self.shards[usize::from(owner)];
            let more = stage.page((family, logical, from), budget, &mut self.egress);
            next = [next, more].into_iter().flatten().min();
        }
        if let Some(from) = next {
            self.egress.station.steps.push_front((family, logical, from));
        }
    }

    /// Checks the station's tables against the shards' and the oracle's.
    fn compare_station(&mut self) {
        let (mut expected, mut best, mut whole) = (Accepted::new(), Table::new(), Station::default());
        let views = PageViews { accepted: true, best: true, loc_rib: true, ranked: false };
        for stage in &mut self.shards {
            best.extend(stage.mirror.clone());
            for logical in 0..LOGICAL_SHARDS {
                for_each_bgp_family!(F => {
                    let page = stage.shard.monitor_page::<F>(logical, 0, usize::MAX, views);
                    page.accepted.iter().for_each(|batch| station::apply(&mut expected, batch));
                    whole.page(&page);
                });
            }
        }
        assert_eq!(self.egress.station.best, whole.best, "the station's Loc-RIB");
        let is_suppressed = |prefix: &AnyPrefix| {
            let aggregates = |stage: &Stage| match prefix {
                AnyPrefix::V4(prefix) => stage.shard.lookup(*prefix).map(|route| route.suppressed_by),
                AnyPrefix::V6(prefix) => stage.shard.lookup(*prefix).map(|route| route.suppressed_by),
            };
            self.shards.iter().filter_map(aggregates).any(|aggregates| !aggregates.is_empty())
        };
        let shown = whole.best.into_iter().filter(|(prefix, _)| !is_suppressed(prefix)).collect();
        assert_eq!(best, shown, "workers have what no aggregate suppresses");
        let rows = |table: &Accepted| -> BTreeMap<_, _> {
            table.iter().map(|(key, attrs)| (*key, (attrs.bytes().to_vec(), attrs.next_hop()))).collect()
        };
        let found = rows(&self.egress.station.accepted);
        assert_eq!(found, rows(&expected), "the station's Adj-RIBs-In");
        let paths =
            self.oracle.paths().iter().flat_map(|(prefix, paths)| paths.iter().map(|path| (*prefix, path)));
        let of_sessions = paths.filter(|(prefix, path)| {
            let stale = self.oracle.stale().contains(&(*prefix, path.peer, path.path_id));
            !stale && !self.is_local(path.peer)
        });
        let row = |(prefix, path): (AnyPrefix, &Learned)| {
            let key = (PeerId(path.peer as u32), prefix, path.path_id.unwrap_or(0));
            (key, (path.with.bytes(), path.with.next_hop))
        };
        assert_eq!(found, of_sessions.map(row).collect(), "the Adj-RIBs-In of the oracle");
        self.egress.compare_mirrors();
    }

    /// Notifies shards of the states of newly used next hops, and takes their routes.
    fn answer(&mut self) {
        // Most shards said nothing.
        for (shard, stage) in self.shards.iter_mut().enumerate() {
            for news in stage.watched.drain(..) {
                self.watching.take(shard, news);
            }
            if !stage.to_rib.is_empty() {
                self.fib.receive(shard, stage.to_rib.drain(..));
            }
            if std::mem::take(&mut stage.missed) {
                self.fib.notify_all(shard);
            }
        }
        let queue = if self.ordered { 0 } else { self.history.peers.len() };
        for stage in self.shards.iter_mut().filter(|stage| !stage.new_next_hops.is_empty()) {
            for addr in std::mem::take(&mut stage.new_next_hops) {
                if let Some(state) = self.next_hops.get(&addr.address) {
                    stage.queues[queue].push_back(ShardIn::NextHops(vec![(addr, *state)]));
                }
            }
        }
    }

    /// Moves logical shards from one shard to another, or parts of one, which may continue later.
    fn relocate(&mut self) {
        (0..self.readers.len()).for_each(|peer| self.flush(peer));
        for _ in 0..=self.rng.index(3) {
            let split = self.split.take().unwrap_or_else(|| Split {
                logical: logical_shard_of(*self.rng.pick(&self.history.prefixes)),
                cut: Cut::START,
                taker: self.rng.index(self.shards.len()) as u16,
                seed: self.seed.clone(),
            });
            let (giver, taker) = (self.map[usize::from(split.logical)], split.taker);
            if giver == taker {
                continue;
            }
            for stage in [giver, taker] {
                self.shards[usize::from(stage)].drain(&mut self.rng, &mut self.egress);
            }
            let paths = if self.rng.one_in(3) { usize::MAX } else { self.rng.index(8) };
            let parcel = self.shards[usize::from(giver)].give(&split, paths, &mut self.egress);
            self.answer();
            let cut = parcel.end();
            self.shards[usize::from(taker)].expect(parcel);
            if cut == Cut::END {
                self.map[usize::from(split.logical)] = taker;
            } else {
                self.split = Some(Split { cut, ..split });
            }
        }
        for reader in &mut self.readers {
            reader.out = ShardBatches::with_split(self.map, self.split.clone());
        }
    }

    fn is_busy(&self) -> bool {
        self.shards.iter().any(Stage::is_busy)
            || self.readers.iter().any(|reader| !reader.out.is_empty())
            || self.egress.is_busy()
            || self.fib.is_busy()
    }

    fn settle(&mut self) {
        while self.is_busy() || !self.egress.station.steps.is_empty() {
            (0..20).for_each(|_| self.advance());
            self.egress.unblock();
        }
        self.shards.iter_mut().for_each(|stage| stage.release_watch_news(&mut self.egress));
        self.answer();
        self.compare();
        self.compare_station();
        let hidden = &self.blocked() | &self.suppressed();
        self.egress.compare(&self.oracle, &hidden);
        let shards: Vec<&Shard> = self.shards.iter().map(|stage| &stage.shard).collect();
        self.egress.compare_views(&shards, &self.history.prefixes);
    }

    fn happen(&mut self, event: &Event) {
        self.oracle.apply(event);
        match event {
            Event::Up(peer, path_ids) => {
                let reader = &mut self.readers[*peer];
                reader.session += 1;
                reader.path_ids = *path_ids;
                let info = self.info(*peer);
                let reader = &mut self.readers[*peer];
                let import = self.history.imports[*peer].clone();
                let settings = IngestSettings::new(import);
                reader.peer = Some(IngestPeer::new(info.clone(), settings));
                self.egress.up(&info);
                self.send(*peer, |_| ShardIn::PeerUp(info.clone()));
            }
            Event::Down(peer) => {
                // Read routes are passed on before the end of the session, or never, or too late.
                match self.rng.index(3) {
                    0 => self.flush(*peer),
                    1 => self.readers[*peer].out.drain().for_each(drop),
                    _ => {}
                }
                self.end(*peer, FamilySet::NONE);
            }
            Event::Lose(peer, families) => {
                self.flush(*peer);
                self.end(*peer, *families);
            }
            Event::LongLived(peer, family) => {
                self.flush(*peer);
                let (id, families) = (PeerId(*peer as u32), FamilySet::NONE.with(*family));
                for (session, _) in self.readers[*peer].retained.clone() {
                    self.send(*peer, |_| ShardIn::LongLived { peer: id, session, families });
                }
            }
            Event::Sweep(peer, family) => {
                // Earlier messages go ahead of End-of-RIB.
                self.flush(*peer);
                self.sweep(*peer, FamilySet::NONE.with(*family));
            }
            Event::Announce(peer, with, prefixes) if self.is_local(*peer) => {
                self.originate(*peer, with.origin, &[], &prefixes.list);
            }
            Event::Withdraw(peer, prefixes) if self.is_local(*peer) => {
                self.originate(*peer, Origin::Igp, &prefixes.list, &[]);
            }
            Event::Announce(peer, with, prefixes) => self.read(*peer, updates(Some(with), prefixes)),
            Event::Withdraw(peer, prefixes) => self.read(*peer, updates(None, prefixes)),
            Event::NextHop(addr, state) => {
                let queue = self.history.peers.len();
                self.next_hops.insert(*addr, *state);
                let of = |recursive| (TrackedNextHop { address: *addr, recursive, exclude: None }, *state);
                self.send(queue, |_| ShardIn::NextHops(vec![of(false), of(true)]));
            }
            Event::Configure(peer, add_path, export, own_best) => {
                let egress = &mut self.readers[*peer].egress;
                (egress.add_path, egress.export) = (*add_path, export.clone());
                egress.client = own_best.then_some(PeerId(*peer as u32));
                if self.oracle.is_up(*peer) {
                    self.egress.changed(&self.info(*peer));
                }
            }
            Event::Refresh(peer, family) => self.egress.refresh(PeerId(*peer as u32), *family),
            Event::BeginRefresh(peer, family) => {
                // Earlier messages are no part of the refresh.
                self.flush(*peer);
                let (peer, session) = (PeerId(*peer as u32), self.readers[*peer].session);
                self.send(peer.0 as usize, |_| ShardIn::BeginOfRefresh { peer, session, family: *family });
            }
            Event::EndRefresh(peer, family) => {
                self.flush(*peer);
                let (peer, session) = (PeerId(*peer as u32), self.readers[*peer].session);
                self.send(peer.0 as usize, |_| ShardIn::EndOfRefresh { peer, session, family: *family });
            }
            Event::Dump(family) => {
                self.dumps += 1;
                let token = self.dumps;
                let queue = self.rng.index(self.history.peers.len() + 1);
                self.send(queue, |stage| {
                    let follower = Follower { family: *family, table: Table::new(), complete: false };
                    stage.followers.insert(token, follower);
                    ShardIn::Dump(DumpRequest {
                        worker: FOLLOWER,
                        token,
                        family: *family,
                        scope: DumpScope::default(),
                        ranked: false,
                    })
                });
            }
        }
    }

    /// The last session of a peer.
    fn info(&self, peer: usize) -> Arc<PeerInfo> {
        let ReaderStage { session, path_ids, egress, .. } = &self.readers[peer];
        Arc::new(PeerInfo {
            session: *session,
            path_ids: *path_ids,
            egress: egress.clone(),
            ..self.history.peers[peer].clone()
        })
    }

    /// A session ends, and the routes of these families are retained.
    fn end(&mut self, peer: usize, retained: FamilySet) {
        let (id, session) = (PeerId(peer as u32), self.readers[peer].session);
        // Those of earlier sessions stay, as far as those of this one do.
        self.sweep(peer, FamilySet::ALL.but(retained));
        let is_over = retained.is_empty();
        self.readers[peer].retained.extend((!is_over).then_some((session, retained)));
        self.readers[peer].peer = None;
        self.egress.down(id);
        self.send(peer, |stage| {
            stage.ending.extend(is_over.then_some((id, session)));
            ShardIn::PeerDown { peer: id, session, retained }
        });
    }

    /// Routes of these families are retained no longer.
    fn sweep(&mut self, peer: usize, families: FamilySet) {
        let id = PeerId(peer as u32);
        for (session, left) in std::mem::take(&mut self.readers[peer].retained) {
            let left = left.but(families);
            let is_over = left.is_empty();
            self.readers[peer].retained.extend((!is_over).then_some((session, left)));
            self.send(peer, |stage| {
                stage.ending.extend(is_over.then_some((id, session)));
                ShardIn::Sweep { peer: id, session, families }
            });
        }
    }

    fn read(&mut self, peer: usize, updates: Vec<Vec<u8>>) {
        let ReaderStage { ingest, peer: session, out, .. } = &mut self.readers[peer];
        let session = session.as_mut().expect("only a peer that is up sends");
        for body in updates {
            let marker = ingest.update(session, &body, out).expect("the history's UPDATEs are well formed");
            assert_eq!(marker, None);
        }
        if self.ordered {
            self.flush(peer);
        }
    }

    fn is_local(&self, peer: usize) -> bool {
        self.history.peers[peer].kind.is_local()
    }

    /// A source of originated routes withdraws and announces some.
    fn originate(&mut self, source: usize, origin: Origin, withdrawn: &[AnyPrefix], announced: &[AnyPrefix]) {
        let (withdrawn, announced) = (by_family(withdrawn), by_family(announced));
        let ReaderStage { ingest, peer, out, .. } = &mut self.readers[source];
        let peer = peer.as_ref().expect("only a source that is up originates");
        for_each_bgp_family!(F => {
            ingest.originate(peer, &OriginatedAttributes::new(origin), withdrawn.get::<F>(), announced.get::<F>(), out);
        });
        if self.ordered {
            self.flush(source);
        }
    }

    /// Sends the collected routes of a reader to the shards.
    fn flush(&mut self, peer: usize) {
        let queue = if self.ordered { 0 } else { peer };
        for (shard, batch) in self.readers[peer].out.drain() {
            self.shards[usize::from(shard)].queues[queue].push_back(ShardIn::Routes(batch));
        }
    }

    fn send(&mut self, queue: usize, mut message: impl FnMut(&mut Stage) -> ShardIn) {
        let queue = if self.ordered { 0 } else { queue };
        for stage in &mut self.shards {
            let message = message(stage);
            stage.queues[queue].push_back(message);
        }
    }

    /// Prefixes that are not advertised because the dataplane lacks them.
    fn blocked(&self) -> BTreeSet<AnyPrefix> {
        if self.fib.is_on() { self.fib.blocked.clone() } else { BTreeSet::new() }
    }

    /// Prefixes that would be advertised, if aggregates did not suppress them.
    fn suppressed(&self) -> BTreeSet<AnyPrefix> {
        self.watching.suppressed(&self.advertised(), &self.history.peers)
    }

    /// Paths that are advertised, but for suppression by aggregates.
    fn advertised(&self) -> BTreeMap<AnyPrefix, Learned> {
        let mut advertised = self.oracle.loc_rib();
        advertised.retain(|prefix, _| !self.blocked().contains(prefix));
        advertised
    }

    fn shard_of(&self, prefix: AnyPrefix) -> &Stage {
        let logical = logical_shard_of(prefix);
        let split = self.split.as_ref().filter(|split| split.logical == logical && has_moved(split, prefix));
        let shard = split.map_or(self.map[usize::from(logical)], |split| split.taker);
        &self.shards[usize::from(shard)]
    }

    fn compare(&self) {
        let expected: BTreeMap<AnyPrefix, Learned> = self.oracle.loc_rib();
        let mut advertised = self.advertised();
        let not_blocked = advertised.len();
        let mut members = BTreeMap::new();
        for (watch, count) in self.shards.iter().flat_map(|stage| stage.shard.watched()) {
            *members.entry(watch).or_default() += count;
        }
        self.watching.compare(&advertised, &self.history.peers, &members);
        let suppressed = self.suppressed();
        advertised.retain(|prefix, _| !suppressed.contains(prefix));
        let mut mirror = Table::new();
        let mut feed = BTreeMap::new();
        for stage in &self.shards {
            mirror.extend(stage.mirror.clone());
            feed.extend(stage.feed.clone());
            assert!(stage.ending.is_empty(), "sessions not confirmed as gone: {:?}", stage.ending);
        }
        same_table(&mirror, &advertised);
        self.compare_ranked(&advertised);
        let counts = self.shards.iter().map(|stage| stage.shard.counts());
        let (waiting, blocked) = counts.fold((0, 0), |sum, c| (sum.0 + c.waiting, sum.1 + c.blocked));
        assert_eq!((waiting, blocked), (0, expected.len() - not_blocked), "prefixes waiting and blocked");
        for token in 1..=self.dumps {
            let mut table = Table::new();
            let mut family = AfiSafi::Ipv4Unicast;
            for stage in &self.shards {
                let follower = &stage.followers[&token];
                assert!(follower.complete, "a dump did not end");
                family = follower.family;
                table.extend(follower.table.clone());
            }
            let of_family = advertised.iter().filter(|(prefix, _)| AfiSafi::unicast(prefix.afi()) == family);
            same_table(&table, &of_family.map(|(prefix, path)| (*prefix, path.clone())).collect());
        }
        let expected_feed: BTreeMap<AnyPrefix, FeedSet> = self
            .oracle
            .paths()
            .keys()
            .filter_map(|prefix| {
                let (next_hops, backup) = self.oracle.forwarding(*prefix)?;
                let kind = |peer: usize| self.history.peers[peer].feed_kind();
                let kind_of_best = kind(self.oracle.selected(*prefix)?.peer);
                let backup = backup.map(|path| (path.with.next_hop.addr(), kind(path.peer)));
                let next_hops = next_hops.into_iter().collect();
                Some((*prefix, FeedSet { next_hops, kind: kind_of_best, backup }))
            })
            .collect();
        assert_eq!(feed, expected_feed, "next hops for the RIB manager");
        let next_hops: BTreeSet<TrackedNextHop> =
            self.shards.iter().flat_map(|stage| stage.next_hops.iter().copied()).collect();
        assert_eq!(next_hops, self.oracle.next_hops(), "next hops in use");
        self.compare_views(&expected);
    }

    /// Compares the ranked paths that workers know.
    fn compare_ranked(&self, advertised: &BTreeMap<AnyPrefix, Learned>) {
        let ranking = self.oracle.ranking();
        for (prefix, rows) in self.shards.iter().flat_map(|stage| &stage.ranked) {
            assert!(advertised.contains_key(prefix), "{prefix} has no best path for workers");
            let rows = rows.iter().map(|row| {
                let RankedRow { attrs, source, equal, .. } = row;
                (source.0 as usize, attrs.bytes().to_vec(), attrs.next_hop(), *equal)
            });
            let expected = ranking[prefix].iter();
            let expected =
                expected.map(|(path, equal)| (path.peer, path.with.bytes(), path.with.next_hop, *equal));
            assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "ranked paths of {prefix}");
        }
    }

    /// Compares the queries of operators.
    fn compare_views(&self, best: &BTreeMap<AnyPrefix, Learned>) {
        let mut seen = 0;
        let moving = self.split.iter().map(|split| (split.logical, split.taker));
        for (logical, thread) in (0..LOGICAL_SHARDS).zip(self.map).chain(moving) {
            for_each_bgp_family!(F => {
                let shard = &self.shards[usize::from(thread)].shard;
                for prefix in shard.prefixes::<F>(logical) {
                    let view = shard.lookup(prefix).expect("a prefix of the shard has a route");
                    seen += 1;
                    self.compare_view(&view);
                }
            });
        }
        assert_eq!(seen, self.oracle.paths().len(), "prefixes seen shard by shard");
        for prefix in self.oracle.paths().keys() {
            let shard = &self.shard_of(*prefix).shard;
            let found = match prefix {
                AnyPrefix::V4(prefix) => shard.longest_match::<V4>(prefix.addr()).is_some(),
                AnyPrefix::V6(prefix) => shard.longest_match::<V6>(prefix.addr()).is_some(),
            };
            assert!(found, "nothing holds {prefix}");
        }
        for index in 0..self.history.peers.len() {
            let id = PeerId(index as u32);
            for_each_bgp_family!(F => {
                let counts = self.shards.iter().map(|stage| stage.shard.peer_counts::<F>(id));
                let (paths, bests) = counts.fold((0, 0), |sum, c| (sum.0 + c.paths, sum.1 + c.best));
                let stale: u32 = self.shards.iter().map(|stage| stage.shard.stale_count::<F>(id)).sum();
                let of_family = |prefix: &AnyPrefix| AfiSafi::unicast(prefix.afi()) == F::ID;
                let expected = self.oracle.paths().iter().filter(|(prefix, _)| of_family(prefix));
                let expected = expected.flat_map(|(_, paths)| paths).filter(|path| path.peer == index).count();
                assert_eq!((paths + stale) as usize, expected, "paths of a peer");
                let is_stale = |prefix: &AnyPrefix, id| self.oracle.stale().contains(&(*prefix, index, id));
                let expected = self.oracle.stale().iter();
                let expected = expected.filter(|(prefix, peer, _)| of_family(prefix) && *peer == index);
                assert_eq!(stale as usize, expected.count(), "retained paths of a peer");
                let of_peer = best.iter().filter(|(prefix, path)| of_family(prefix) && path.peer == index);
                let expected = of_peer.filter(|(prefix, path)| !is_stale(prefix, path.path_id)).count();
                assert_eq!(bests as usize, expected, "best paths of a peer");
            });
        }
    }

    fn compare_view<F: BgpFamily>(&self, view: &RouteView<F>) {
        let prefix = view.prefix.any();
        let found = self.shard_of(prefix).shard.lookup(view.prefix).expect("what a page shows is there");
        assert_eq!(found.paths.len(), view.paths.len());
        let paths = &self.oracle.paths()[&prefix];
        let reasons = self.oracle.reasons(paths);
        assert_eq!(view.paths.len(), paths.len(), "paths of {prefix}");
        let best = reasons.iter().any(Option::is_none);
        let blocked = best && self.blocked().contains(&prefix);
        assert_eq!(view.standing, if blocked { Standing::Blocked } else { Standing::Advertised }, "{prefix}");
        assert_eq!(
            !view.suppressed_by.is_empty(),
            self.suppressed().contains(&prefix),
            "suppression of {prefix}"
        );
        for (path, reason) in paths.iter().zip(reasons) {
            let mut same = view.paths.iter().filter(|seen| seen.peer.id.0 as usize == path.peer);
            let seen = same.find(|seen| seen.path_id == path.path_id);
            let seen = seen.expect("every path is seen");
            assert_eq!(seen.attrs.bytes(), path.with.bytes(), "attributes of a path of {prefix}");
            assert_eq!(seen.attrs.next_hop(), path.with.next_hop, "next hop of a path of {prefix}");
            assert_eq!(seen.lost, reason, "why a path of {prefix} lost");
            assert_eq!(seen.best, reason.is_none());
            assert_eq!(
                seen.stale,
                self.oracle.stale().contains(&(prefix, path.peer, path.path_id)),
                "a retained path of {prefix}"
            );
        }
        assert!(view.paths.iter().skip(1).all(|path| !path.best), "the best path is first");
        let of = |part: Part| view.paths.iter().filter(move |path| path.part == part);
        // Most originated paths forward nothing.
        let is_fed = |kind| !matches!(kind, PeerKind::Local(source) if !source.feeds());
        let forwards = |path: &&PathView| path.best && is_fed(path.peer.kind);
        let members = of(Part::Member).chain(view.paths.iter().filter(forwards));
        let seen: BTreeSet<IpAddr> = members.map(|path| path.attrs.next_hop().addr()).collect();
        let backup = of(Part::Backup).map(|path| (path.peer.id.0 as usize, path.path_id)).collect::<Vec<_>>();
        // Without a best path, nothing is forwarded.
        let expected = self.oracle.forwarding(prefix).filter(|_| best).unwrap_or_default();
        let expected_backup = expected.1.map(|path| (path.peer, path.path_id));
        let by = expected.0.into_keys().collect();
        assert_eq!((seen, backup), (by, Vec::from_iter(expected_backup)), "who forwards {prefix}");
    }

    /// Ends all sessions and checks that no state is left.
    fn end_all(mut self) {
        for peer in 0..self.readers.len() {
            if self.oracle.is_up(peer) {
                self.happen(&Event::Down(peer));
            }
            for family in [AfiSafi::Ipv4Unicast, AfiSafi::Ipv6Unicast] {
                self.happen(&Event::Sweep(peer, family));
            }
        }
        self.settle();
        self.egress.assert_idle();
        self.fib.assert_idle();
        for stage in &mut self.shards {
            assert!(stage.ranked.is_empty(), "ranked paths are left");
            assert!(stage.mirror.is_empty() && stage.feed.is_empty() && stage.next_hops.is_empty());
            let counts = stage.shard.counts();
            let none = FamilyCounts::default();
            assert_eq!(counts.families, ByFamily::new(|_| none), "left in a shard after all sessions ended");
            assert_eq!((counts.attribute_sets, counts.next_hops), (0, 0));
            stage.followers.clear();
        }
        for reader in &mut self.readers {
            reader.ingest.forget();
            assert!(reader.ingest.is_empty(), "attributes left in a reader after all sessions ended");
        }
    }
}
