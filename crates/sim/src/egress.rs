//! The egress workers, and the receiving ends of the sessions, which keep the routes that they were
//! sent.

use crate::history::{Announcement, MAX_MESSAGE, default_source, messages};
use crate::oracle::Oracle;
use crate::station::Station;
use ribtide_bgp::egress::{AdvertisedPath, Flush, Worker, Write};
use ribtide_bgp::message::{BestBatch, DumpRequest, EgressIn, RankedBatch};
use ribtide_bgp::peer::{PeerId, PeerInfo};
use ribtide_bgp::presence::Presence;
use ribtide_bgp::shard::Shard;
use ribtide_prefix::{AfiSafi, AnyPrefix, BgpFamily, ByFamily, Prefix, Rng, for_each_bgp_family};
use ribtide_wire::bgp::message::{MessageType, RefreshKind, RouteRefresh};
use ribtide_wire::bgp::nlri::{Nlri, PathPrefix};
use ribtide_wire::bgp::update::{self, Disposition, Update, UpdateContext};
use ribtide_wire::bgp::{NextHop, build};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// All workers and neighbors.
pub(crate) struct Egress {
    workers: Vec<Stage>,
    neighbors: Vec<Neighbor>,
    /// The neighbours as a station sees them (RFC 8671).
    mirrors: Vec<Neighbor>,
    pub(crate) station: Station,
}

struct Stage {
    worker: Worker,
    /// One queue for messages of peers and shards, in order.
    inbox: VecDeque<EgressIn>,
    /// Whether shards send changes of ranked paths.
    wants_ranked: bool,
    /// Messages in the inbox from before that, which are not followed by all later changes.
    stale: usize,
    /// Whether updates may wait for a flush.
    dirty: bool,
    blocked: BTreeSet<PeerId>,
}

/// A peer as a receiver of routes.
#[derive(Default)]
struct Neighbor {
    /// The session that is up.
    session: Option<Arc<PeerInfo>>,
    /// Attributes in wire form and next hop, by prefix and path identifier; 0 without one.
    table: BTreeMap<(AnyPrefix, u32), (Vec<u8>, NextHop)>,
    /// Families whose End-of-RIB was received.
    ended: Vec<AfiSafi>,
    /// Of each marked refresh under way, the prefixes that did not come again (RFC 7313).
    unrefreshed: BTreeMap<AfiSafi, BTreeSet<(AnyPrefix, u32)>>,
}

impl Egress {
    pub(crate) fn new(workers: u32, shards: u32, peers: usize) -> Egress {
        let stage = |id| Stage {
            worker: Worker::new(id, shards),
            inbox: VecDeque::new(),
            wants_ranked: false,
            stale: 0,
            dirty: false,
            blocked: BTreeSet::new(),
        };
        let mut egress = Egress {
            workers: (0..workers).map(stage).collect(),
            neighbors: (0..peers).map(|_| Neighbor::default()).collect(),
            mirrors: (0..peers).map(|_| Neighbor::default()).collect(),
            station: Station::default(),
        };
        egress.send_all(|| EgressIn::SourceUp(Arc::new(default_source())));
        egress
    }

    /// Another presence of the routes that export depends on.
    pub(crate) fn presence(&mut self, presence: &Arc<Presence>) {
        self.send_all(|| EgressIn::Presence(presence.clone()));
    }

    fn send_all(&mut self, message: impl Fn() -> EgressIn) {
        self.workers.iter_mut().for_each(|stage| stage.inbox.push_back(message()));
    }

    /// A session is established. Call it before its peer's routes are sent.
    pub(crate) fn up(&mut self, info: &Arc<PeerInfo>) {
        let owner = self.owner(info.id);
        for (id, stage) in self.workers.iter_mut().enumerate() {
            let member = id == owner && !info.kind.is_local();
            stage.inbox.push_back(match member {
                true => EgressIn::MemberUp(info.clone()),
                false => EgressIn::SourceUp(info.clone()),
            });
        }
        let session = (!info.kind.is_local()).then(|| info.clone());
        self.mirrors[info.id.0 as usize] = Neighbor { session: session.clone(), ..Neighbor::default() };
        self.neighbors[info.id.0 as usize] = Neighbor { session, ..Neighbor::default() };
        self.station.up(info);
    }

    /// A session ends.
    pub(crate) fn down(&mut self, peer: PeerId) {
        if self.neighbors[peer.0 as usize].session.is_none() {
            return;
        }
        let owner = self.owner(peer);
        self.workers[owner].inbox.push_back(EgressIn::MemberDown(peer));
        self.workers[owner].blocked.remove(&peer);
        self.neighbors[peer.0 as usize].session = None;
        self.mirrors[peer.0 as usize].session = None;
        self.station.down(peer);
    }

    /// A station's session begins.
    pub(crate) fn begin_station(&mut self) {
        self.station.begin();
        self.mirrors.iter_mut().for_each(|mirror| mirror.table.clear());
    }

    /// A page of best paths for the station: each worker packs it for its members.
    pub(crate) fn mirror(&mut self, batch: Arc<BestBatch>, ranked: Arc<RankedBatch>) {
        let mirror = || EgressIn::Mirror { token: 0, batch: batch.clone(), ranked: ranked.clone() };
        self.workers.iter_mut().for_each(|stage| stage.inbox.push_back(mirror()));
    }

    /// Checks that the station has the routes of every member.
    pub(crate) fn compare_mirrors(&self) {
        for (peer, (neighbor, mirror)) in self.neighbors.iter().zip(&self.mirrors).enumerate() {
            if neighbor.session.is_some() {
                assert_eq!(mirror.table, neighbor.table, "the station's Adj-RIB-Out of peer {peer}");
            }
        }
    }

    /// The peer requests a family again.
    pub(crate) fn refresh(&mut self, peer: PeerId, family: AfiSafi) {
        let owner = self.owner(peer);
        self.workers[owner].inbox.push_back(EgressIn::Refresh(peer, family, peer.0.is_multiple_of(2)));
    }

    pub(crate) fn changes(&mut self, batch: Arc<BestBatch>) {
        self.workers.iter_mut().for_each(|stage| stage.inbox.push_back(EgressIn::Best(batch.clone())));
    }

    /// Changes of ranked paths, for the workers that need them.
    pub(crate) fn ranked(&mut self, batch: &Arc<RankedBatch>) {
        for stage in self.workers.iter_mut().filter(|stage| stage.wants_ranked) {
            stage.inbox.push_back(EgressIn::Ranked(batch.clone()));
        }
    }

    /// Whether any worker needs changes of ranked paths.
    pub(crate) fn wants_ranked(&self) -> bool {
        self.workers.iter().any(|stage| stage.wants_ranked)
    }

    /// The settings of an established session change.
    pub(crate) fn changed(&mut self, info: &Arc<PeerInfo>) {
        let owner = self.owner(info.id);
        self.workers[owner].inbox.push_back(EgressIn::MemberChanged(info.clone()));
        self.neighbors[info.id.0 as usize].session = Some(info.clone());
    }

    pub(crate) fn dumped(&mut self, worker: u32, part: EgressIn) {
        self.workers[worker as usize].inbox.push_back(part);
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.workers.iter().any(|stage| stage.dirty || !stage.inbox.is_empty())
    }

    /// A worker takes a message, or flushes a little. `dump` sends a request to all shards.
    pub(crate) fn advance(&mut self, rng: &mut Rng, dump: impl FnMut(DumpRequest)) {
        let id = rng.index(self.workers.len());
        if rng.one_in(30) {
            self.block(rng);
        }
        let stage = &mut self.workers[id];
        if let Some(message) = (!rng.one_in(3)).then(|| stage.inbox.pop_front()).flatten() {
            stage.worker.handle(message);
            stage.stale = stage.stale.saturating_sub(1);
            stage.dirty = true;
            let pages = stage.worker.take_mirrored();
            pages.iter().flat_map(|page| &page.writes).for_each(|write| read_all(&mut self.mirrors, write));
        } else {
            let what = [Flush::Begun, Flush::Settled, Flush::All][rng.index(3)];
            self.flush(id, what, 1 + rng.index(8), dump);
        }
    }

    /// Some member's socket becomes blocked or unblocked.
    fn block(&mut self, rng: &mut Rng) {
        let peer = PeerId(rng.index(self.neighbors.len()) as u32);
        if self.neighbors[peer.0 as usize].session.is_none() {
            return;
        }
        let owner = self.owner(peer);
        let stage = &mut self.workers[owner];
        let blocked = !stage.blocked.remove(&peer) && stage.blocked.insert(peer);
        stage.inbox.push_back(EgressIn::Backlog { peer, blocked });
    }

    /// Unblocks all members.
    pub(crate) fn unblock(&mut self) {
        for stage in &mut self.workers {
            for peer in std::mem::take(&mut stage.blocked) {
                stage.inbox.push_back(EgressIn::Backlog { peer, blocked: false });
            }
        }
    }

    fn flush(&mut self, id: usize, what: Flush, budget: usize, mut dump: impl FnMut(DumpRequest)) {
        let mut out = Vec::new();
        let stage = &mut self.workers[id];
        let wanted = std::mem::replace(&mut stage.wants_ranked, stage.worker.takes_ranked());
        if stage.wants_ranked && !wanted {
            stage.stale = stage.inbox.len();
        }
        if stage.stale == 0 {
            stage.worker.requests().into_iter().for_each(&mut dump);
        }
        stage.worker.flush(what, budget, &mut out);
        stage.dirty = stage.worker.due() > 0 || !stage.blocked.is_empty() || stage.worker.dumps_in_flight();
        out.iter().for_each(|write| self.write(write));
    }

    fn write(&mut self, write: &Write) {
        read_all(&mut self.neighbors, write);
        read_all(&mut self.mirrors, write);
    }

    /// Checks that ended sessions left no state.
    pub(crate) fn assert_idle(&self) {
        for Stage { worker, .. } in &self.workers {
            assert_eq!((worker.groups().len(), worker.waiting(), worker.waiting_paths()), (0, 0, 0));
        }
    }

    fn owner(&self, peer: PeerId) -> usize {
        peer.0 as usize % self.workers.len()
    }

    /// The routes that peers with established sessions hold.
    pub(crate) fn advertised(&self) -> BTreeMap<PeerId, BTreeMap<AnyPrefix, (Vec<u8>, NextHop)>> {
        let table = |neighbor: &Neighbor| {
            let rows = neighbor.table.iter();
            rows.map(|((prefix, _), route)| (*prefix, route.clone())).collect()
        };
        let up = |neighbor: &Neighbor| Some((neighbor.session.as_ref()?.id, table(neighbor)));
        self.neighbors.iter().filter_map(up).collect()
    }

    /// Checks every peer's routes against the oracle's, without those that are `hidden`.
    pub(crate) fn compare(&self, oracle: &Oracle, hidden: &BTreeSet<AnyPrefix>) {
        let mut ranking = oracle.ranking();
        ranking.retain(|prefix, _| !hidden.contains(prefix));
        for (peer, neighbor) in self.neighbors.iter().enumerate() {
            let Some(info) = &neighbor.session else { continue };
            let expected = oracle.adj_rib_out(peer, &ranking);
            let row = |with: &Announcement| (with.bytes(), with.next_hop);
            let mut rows: Vec<_> = expected
                .iter()
                .flat_map(|(prefix, paths)| paths.iter().map(move |with| (*prefix, row(with))))
                .collect();
            let held = neighbor.table.iter().map(|((prefix, _), route)| (*prefix, route.clone()));
            let mut held: Vec<_> = held.collect();
            rows.sort();
            held.sort();
            assert_eq!(held, rows, "routes of peer {peer}");
            assert!(neighbor.unrefreshed.is_empty(), "a refresh of peer {peer} has no end");
            let mut ended = neighbor.ended.clone();
            ended.sort_unstable();
            let families = info.families.iter();
            assert_eq!(ended, families.collect::<Vec<_>>(), "ends of initial routes sent to peer {peer}");
            let view =
                self.workers[self.owner(info.id)].worker.member(info.id).expect("a session is a member");
            let count = |family| {
                rows.iter().filter(|(prefix, _)| AfiSafi::unicast(prefix.afi()) == family).count() as u64
            };
            assert_eq!(view.advertised, ByFamily::new(count), "counts of peer {peer}");
        }
    }

    /// Checks that the Adj-RIB-Out of each peer, as computed from these shards for operators, is what the peer holds.
    pub(crate) fn compare_views(&mut self, shards: &[&Shard], prefixes: &[AnyPrefix]) {
        let workers = self.workers.len();
        // Some are listed twice.
        let mut prefixes: BTreeSet<AnyPrefix> = prefixes.iter().copied().collect();
        for_each_bgp_family!(F => prefixes.insert(Prefix::<F>::default_route().any()));
        for (peer, neighbor) in self.neighbors.iter().enumerate() {
            let Some(info) = &neighbor.session else { continue };
            let worker = &mut self.workers[peer % workers].worker;
            let mut view = BTreeMap::new();
            for prefix in prefixes.iter().filter(|prefix| info.families.has(AfiSafi::unicast(prefix.afi()))) {
                let paths = match *prefix {
                    AnyPrefix::V4(prefix) => adj_rib_out(worker, info.id, shards, prefix),
                    AnyPrefix::V6(prefix) => adj_rib_out(worker, info.id, shards, prefix),
                };
                for AdvertisedPath { id, form } in paths {
                    let key = (*prefix, id.unwrap_or(0));
                    assert_eq!(view.insert(key, (form.attributes, form.next_hop)), None, "{key:?} twice");
                }
            }
            assert_eq!(view, neighbor.table, "view of peer {peer}");
        }
    }
}

/// The paths of a prefix in the Adj-RIB-Out of a peer, as the API computes them.
fn adj_rib_out<F: BgpFamily>(
    worker: &mut Worker,
    peer: PeerId,
    shards: &[&Shard],
    prefix: Prefix<F>,
) -> Vec<AdvertisedPath> {
    if prefix.len() == 0
        && let Some(own) = worker.own_default::<F>(peer)
    {
        return vec![own];
    }
    let of = |shard: &&Shard| Some((shard.advertised(prefix)?, shard.ranked_of(prefix)));
    let Some((view, ranked)) = shards.iter().find_map(of) else { return Vec::new() };
    if worker.member_takes_ranked(peer, F::ID).expect("a session is a member") {
        let mut sent = worker.ranked_adj_rib_out::<F>(peer, &ranked).expect("a session is a member");
        return sent.pop().expect("a prefix has its paths");
    }
    let Some(path) = view.path else { return Vec::new() };
    let sent = worker.adj_rib_out(peer, &[(prefix, path)]).expect("a session is a member");
    sent.into_iter().flatten().map(|form| AdvertisedPath { id: None, form }).collect()
}

/// The receivers of a message read it.
fn read_all(neighbors: &mut [Neighbor], write: &Write) {
    for receiver in write.receivers() {
        let neighbor = &mut neighbors[receiver.peer.0 as usize];
        if neighbor.session.as_ref().is_some_and(|info| info.session == receiver.session) {
            messages(&write.chunk).iter().for_each(|(kind, body)| match kind {
                MessageType::RouteRefresh => neighbor.mark(RouteRefresh::parse(body).unwrap()),
                _ => neighbor.read(body),
            });
        }
    }
}

impl Neighbor {
    fn read(&mut self, body: &[u8]) {
        let Some(info) = &self.session else { return };
        assert!(body.len() + 19 <= usize::from(MAX_MESSAGE));
        let external = !info.kind.is_internal();
        let path_ids = info.egress.add_path.families();
        let context = UpdateContext { path_ids, ..UpdateContext::new(true, external) };
        let update = update::parse(body, &context).expect("a worker writes what can be read");
        assert_eq!(update.disposition(), Disposition::Normal);
        assert!(update.discarded().is_empty(), "{:?}", update.discarded());
        self.ended.extend(update.end_of_rib());
        for_each_bgp_family!(F => match path_ids.has(F::ID) {
            true => self.routes::<F, PathPrefix<F>>(&update),
            false => self.routes::<F, Prefix<F>>(&update),
        });
    }

    /// The begin or end of a refresh: what does not come between them is gone.
    fn mark(&mut self, mark: RouteRefresh) {
        let Some(info) = &self.session else { return };
        assert!(info.id.0.is_multiple_of(2), "a mark for a peer that does not understand it");
        let family = mark.family().expect("a family of the session");
        assert!(self.ended.contains(&family), "a mark before End-of-RIB");
        match mark.kind {
            RefreshKind::Begin => {
                let table = self
                    .table
                    .keys()
                    .copied()
                    .filter(|(prefix, _)| AfiSafi::unicast(prefix.afi()) == family)
                    .collect();
                self.unrefreshed.insert(family, table);
            }
            RefreshKind::End => {
                for path in self.unrefreshed.remove(&family).expect("an end follows a begin") {
                    self.table.remove(&path);
                }
            }
            kind => panic!("not a mark: {kind:?}"),
        }
    }

    fn routes<F: BgpFamily, N: Nlri<Family = F>>(&mut self, update: &Update<'_>) {
        if let Some(unrefreshed) = self.unrefreshed.get_mut(&F::ID) {
            let sent = update.withdrawn_nlri::<N>().chain(update.announced_nlri::<N>());
            sent.for_each(|nlri| {
                unrefreshed.remove(&(nlri.prefix().any(), nlri.path_id()));
            });
        }
        for nlri in update.withdrawn_nlri::<N>() {
            self.table.remove(&(nlri.prefix().any(), nlri.path_id()));
        }
        let mut bytes = Vec::new();
        for attribute in update.attributes() {
            build::attribute(&mut bytes, attribute.flags, attribute.code, attribute.value);
        }
        for nlri in update.announced_nlri::<N>() {
            let next_hop = update.next_hop::<F>().expect("announced prefixes have a next hop");
            self.table.insert((nlri.prefix().any(), nlri.path_id()), (bytes.clone(), next_hop));
        }
    }
}
