//! The egress workers, and the receiving ends of the sessions, which keep the routes that they were
//! sent.

use crate::history::{MAX_MESSAGE, bodies};
use crate::oracle::Oracle;
use crate::station::Station;
use ribtide_bgp::egress::{Flush, Worker, Write};
use ribtide_bgp::message::{BestBatch, DumpRequest, EgressIn};
use ribtide_bgp::peer::{PeerId, PeerInfo};
use ribtide_prefix::{Afi, AnyPrefix, Family, Rng, for_each_family};
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
    /// Whether updates may wait for a flush.
    dirty: bool,
    blocked: BTreeSet<PeerId>,
}

/// A peer as a receiver of routes.
#[derive(Default)]
struct Neighbor {
    /// The session that is up.
    session: Option<Arc<PeerInfo>>,
    /// Attributes in wire form and next hop.
    table: BTreeMap<AnyPrefix, (Vec<u8>, NextHop)>,
    /// Families whose End-of-RIB was received.
    ended: Vec<Afi>,
}

impl Egress {
    pub(crate) fn new(workers: u32, shards: u32, peers: usize) -> Egress {
        let stage = |id| Stage {
            worker: Worker::new(id, shards),
            inbox: VecDeque::new(),
            dirty: false,
            blocked: BTreeSet::new(),
        };
        Egress {
            workers: (0..workers).map(stage).collect(),
            neighbors: (0..peers).map(|_| Neighbor::default()).collect(),
            mirrors: (0..peers).map(|_| Neighbor::default()).collect(),
            station: Station::default(),
        }
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
    pub(crate) fn mirror(&mut self, batch: Arc<BestBatch>) {
        let mirror = || EgressIn::Mirror { token: 0, batch: batch.clone() };
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
    pub(crate) fn refresh(&mut self, peer: PeerId, afi: Afi) {
        let owner = self.owner(peer);
        self.workers[owner].inbox.push_back(EgressIn::Refresh(peer, afi));
    }

    pub(crate) fn changes(&mut self, batch: Arc<BestBatch>) {
        self.workers.iter_mut().for_each(|stage| stage.inbox.push_back(EgressIn::Best(batch.clone())));
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
        stage.worker.requests().into_iter().for_each(&mut dump);
        stage.worker.flush(what, budget, &mut out);
        stage.dirty = stage.worker.due() > 0 || !stage.blocked.is_empty();
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
        let up = |neighbor: &Neighbor| Some((neighbor.session.as_ref()?.id, neighbor.table.clone()));
        self.neighbors.iter().filter_map(up).collect()
    }

    /// Checks every peer's routes against the oracle's, without those that are `blocked`.
    pub(crate) fn compare(&self, oracle: &Oracle, blocked: &BTreeSet<AnyPrefix>) {
        for (peer, neighbor) in self.neighbors.iter().enumerate() {
            let Some(info) = &neighbor.session else { continue };
            let mut expected = oracle.adj_rib_out(peer);
            expected.retain(|prefix, _| !blocked.contains(prefix));
            let rows: BTreeMap<_, _> =
                expected.iter().map(|(prefix, with)| (*prefix, (with.bytes(), with.next_hop))).collect();
            assert_eq!(neighbor.table, rows, "routes of peer {peer}");
            let mut ended = neighbor.ended.clone();
            ended.sort_unstable();
            let families = [Afi::Ipv4, Afi::Ipv6].into_iter().filter(|afi| info.families.has(*afi));
            assert_eq!(ended, families.collect::<Vec<_>>(), "ends of initial routes sent to peer {peer}");
            let view =
                self.workers[self.owner(info.id)].worker.member(info.id).expect("a session is a member");
            let count = |afi| expected.keys().filter(|prefix| prefix.afi() == afi).count() as u64;
            let advertised = (view.advertised_ipv4, view.advertised_ipv6);
            assert_eq!(advertised, (count(Afi::Ipv4), count(Afi::Ipv6)), "counts of peer {peer}");
        }
    }
}

/// The receivers of a message read it.
fn read_all(neighbors: &mut [Neighbor], write: &Write) {
    for receiver in write.receivers() {
        let neighbor = &mut neighbors[receiver.peer.0 as usize];
        if neighbor.session.as_ref().is_some_and(|info| info.session == receiver.session) {
            bodies(&write.chunk).iter().for_each(|body| neighbor.read(body));
        }
    }
}

impl Neighbor {
    fn read(&mut self, body: &[u8]) {
        let Some(info) = &self.session else { return };
        assert!(body.len() + 19 <= usize::from(MAX_MESSAGE));
        let external = !info.kind.is_internal();
        let context = UpdateContext::new(true, external);
        let update = update::parse(body, &context).expect("a worker writes what can be read");
        assert_eq!(update.disposition(), Disposition::Normal);
        assert!(update.discarded().is_empty(), "{:?}", update.discarded());
        self.ended.extend(update.end_of_rib());
        for_each_family!(F => self.routes::<F>(&update));
    }

    fn routes<F: Family>(&mut self, update: &Update<'_>) {
        for prefix in update.withdrawn::<F>() {
            self.table.remove(&prefix.any());
        }
        let mut bytes = Vec::new();
        for attribute in update.attributes() {
            build::attribute(&mut bytes, attribute.flags, attribute.code, attribute.value);
        }
        for prefix in update.announced::<F>() {
            let next_hop = update.next_hop::<F>().expect("announced prefixes have a next hop");
            self.table.insert(prefix.any(), (bytes.clone(), next_hop));
        }
    }
}
