//! The egress worker: from changes of best paths to packed messages for update groups.
//!
//! Members with equal [`EgressSettings`] form a group, and each message is packed once for all of them. A change
//! waits in the group's pending map until a flush; a second change of the same prefix replaces what it waits with.
//! So the changes of all shards meet there, routes with equal attributes share messages however they were sharded,
//! and what waits is bounded by the table, never by the number of changes.
//!
//! **Split horizon.** A path is not sent to who sent it, by leaving that member out of whole messages. What a member
//! was sent is not stored: everyone but its source was sent the former best path, if the group's rules allow it.
//!
//! **Joining.** From [`EgressIn::MemberUp`] on a member gets what the group gets, and meanwhile the shards dump their
//! tables for it. A shard's dump and its changes come in the order of events, hence: what is pending for a prefix is
//! newer than what a dump says of it. Members that come before any shard has answered a dump share it.
//!
//! **Back-pressure.** While a member cannot take more ([`EgressIn::Backlog`]), its group is not flushed: changes
//! coalesce and nothing is lost, but the whole group waits. Detaching a slow member to a cursor of its own is a later
//! step.

mod export;
mod group;
mod output;
mod paths;
#[cfg(test)]
mod tests;

use crate::message::{BestBatch, BestPath, DumpRequest, EgressIn, NONE};
use crate::peer::{EgressSettings, PeerId, PeerInfo};
use export::Facts;
use group::{Group, Peers};
use paths::{Handle, Paths};
use ribtide_prefix::{Afi, Family, Map, V4, V6, for_each_family};
use ribtide_wire::bgp::NextHop;
use std::collections::BTreeMap;
use std::sync::Arc;

/// A member as the addressee of bytes. Bytes for an earlier session must not reach a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Receiver {
    /// The peer.
    pub peer: PeerId,
    /// Which session of it.
    pub session: u32,
}

/// Whole messages, to be written to each receiver after all that came for it before.
#[derive(Clone, Debug)]
pub struct Write {
    /// The messages.
    pub chunk: Arc<[u8]>,
    /// Who gets them, in the order of peers.
    pub to: Arc<[Receiver]>,
    /// Who of these does not.
    pub except: Option<PeerId>,
}

impl Write {
    /// Who gets it.
    pub fn receivers(&self) -> impl Iterator<Item = Receiver> + '_ {
        self.to.iter().copied().filter(|receiver| Some(receiver.peer) != self.except)
    }
}

/// What was sent, to a member or, each message once, to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Messages, End-of-RIB included.
    pub messages: u64,
    /// UPDATEs with routes.
    pub updates: u64,
    /// Prefixes announced.
    pub announced: u64,
    /// Prefixes withdrawn.
    pub withdrawn: u64,
    /// End-of-RIB markers.
    pub end_of_rib: u64,
    /// Prefixes whose attributes do not fit a message of the session, withdrawn instead.
    pub too_long: u64,
}

impl Counters {
    fn add(&mut self, more: &Counters) {
        self.messages += more.messages;
        self.updates += more.updates;
        self.announced += more.announced;
        self.withdrawn += more.withdrawn;
        self.end_of_rib += more.end_of_rib;
        self.too_long += more.too_long;
    }
}

/// A group, for a person or a metrics scraper.
#[derive(Clone, Debug)]
pub struct GroupView {
    /// Its number, never used again in this worker.
    pub id: u32,
    /// What its members share.
    pub settings: EgressSettings,
    /// The members.
    pub members: Vec<PeerId>,
    /// Members that cannot take more now.
    pub blocked: Vec<PeerId>,
    /// Prefixes that wait to be sent.
    pub waiting: usize,
    /// What was packed.
    pub counters: Counters,
}

/// A member, for a person or a metrics scraper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberView {
    /// The number of its group.
    pub group: u32,
    /// Whether it cannot take more now.
    pub blocked: bool,
    /// Whether it still waits for tables that it asked for.
    pub joining: bool,
    /// IPv4 prefixes advertised to it, once all that waits is sent.
    pub advertised_ipv4: u64,
    /// The same of IPv6.
    pub advertised_ipv6: u64,
    /// What was sent to it in this session.
    pub counters: Counters,
}

/// A path as a member gets it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Advertised {
    /// The attributes in wire form, AS numbers as the member understands them, without the next hop.
    pub attributes: Vec<u8>,
    /// The next hop.
    pub next_hop: NextHop,
}

/// An egress worker: owns the groups of some peers. Every worker sees all changes and all sources.
pub struct Worker {
    id: u32,
    shards: u32,
    peers: Peers,
    groups: BTreeMap<u32, Group>,
    member_of: Map<PeerId, u32>,
    paths: Paths,
    /// How many prefixes have a best path of these facts, since the start.
    best: Map<Facts, u64>,
    last_group: u32,
    last_token: u64,
}

impl Worker {
    /// Worker number `id`, fed by `shards` shards. It must see their changes from the first.
    pub fn new(id: u32, shards: u32) -> Worker {
        Worker {
            id,
            shards,
            peers: Peers::default(),
            groups: BTreeMap::new(),
            member_of: Map::default(),
            paths: Paths::default(),
            best: Map::default(),
            last_group: 0,
            last_token: 0,
        }
    }

    /// Takes in one message. What is to be done about it comes with the next [`Worker::flush`].
    pub fn handle(&mut self, input: EgressIn) {
        match input {
            EgressIn::Best(batch) => self.best(&batch),
            EgressIn::Dump { token, batch, last } => self.dumped(token, &batch, last),
            EgressIn::MemberUp(info) => self.member_up(info),
            EgressIn::MemberDown(peer) => self.member_down(peer),
            EgressIn::Refresh(peer, afi) => match afi {
                Afi::Ipv4 => self.dump::<V4>(peer, false),
                Afi::Ipv6 => self.dump::<V6>(peer, false),
            },
            EgressIn::SourceUp(info) => {
                self.peers.insert(info.id, info);
            }
            EgressIn::Backlog { peer, blocked } => {
                let group = self.member_of.get(&peer).and_then(|id| self.groups.get_mut(id));
                if let Some(member) = group.and_then(|g| g.members.get_mut(&peer)) {
                    member.blocked = blocked;
                }
            }
        }
    }

    /// Dumps to ask of every shard, each once.
    pub fn requests(&mut self) -> Vec<DumpRequest> {
        let mut requests = Vec::new();
        let (id, shards) = (self.id, self.shards);
        self.groups.values_mut().for_each(|group| group.requests(id, shards, &mut requests));
        requests
    }

    /// Whether some dump that was asked for is not fully answered.
    pub fn dumps_under_way(&self) -> bool {
        self.groups.values().any(Group::dumps_under_way)
    }

    /// So many shards answer a dump from now on. Only while none is under way.
    pub fn set_shards(&mut self, shards: u32) {
        self.shards = shards;
    }

    /// How much a flush has to do: prefixes and End-of-RIB markers.
    pub fn due(&self) -> usize {
        self.groups.values().map(Group::due).sum()
    }

    /// Packs up to `budget` prefixes of each family and group that is not blocked, and appends them. Returns whether more
    /// could be packed at once.
    pub fn flush(&mut self, budget: usize, out: &mut Vec<Write>) -> bool {
        for group in self.groups.values_mut().filter(|group| group.due() > 0) {
            for_each_family!(F => group.flush::<F>(&mut self.paths, &self.peers, budget, out));
        }
        self.due() > 0
    }

    /// Whether any peer gets something from this worker. One without groups only keeps up with what it may have to
    /// send.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Prefixes that wait in all groups.
    pub fn waiting(&self) -> usize {
        self.groups.values().map(Group::waiting).sum()
    }

    /// Distinct paths that what waits refers to.
    pub fn waiting_paths(&self) -> usize {
        self.paths.len()
    }

    /// The groups, oldest first.
    pub fn groups(&self) -> Vec<GroupView> {
        let view = |(id, group): (&u32, &Group)| GroupView {
            id: *id,
            settings: group.settings.clone(),
            members: group.members.keys().copied().collect(),
            blocked: group.members.iter().filter(|(_, m)| m.blocked).map(|(peer, _)| *peer).collect(),
            waiting: group.waiting(),
            counters: group.counters,
        };
        self.groups.iter().map(view).collect()
    }

    /// One member, if its session is established and this worker's.
    pub fn member(&self, peer: PeerId) -> Option<MemberView> {
        let id = *self.member_of.get(&peer)?;
        let group = self.groups.get(&id)?;
        let member = group.members.get(&peer)?;
        let advertised = |afi| {
            let sent = |facts: &Facts| {
                let source = self.peers.get(&facts.source);
                facts.afi == afi
                    && facts.source != peer
                    && source.is_some_and(|source| export::allows(&group.settings, source, *facts))
            };
            self.best.iter().filter(|(facts, _)| sent(facts)).map(|(_, count)| count).sum()
        };
        Some(MemberView {
            group: id,
            blocked: member.blocked,
            joining: group.joining(peer),
            advertised_ipv4: advertised(Afi::Ipv4),
            advertised_ipv6: advertised(Afi::Ipv6),
            counters: member.counters,
        })
    }

    /// How `peer` gets `best`, the best path of a prefix of family `afi`; `None` when it does not.
    pub fn advertised(&self, peer: PeerId, afi: Afi, best: &BestPath) -> Option<Advertised> {
        let group = self.groups.get(self.member_of.get(&peer)?)?;
        let source = self.peers.get(&best.source)?;
        if best.source == peer || !export::allows(&group.settings, source, Facts::of(best, afi)) {
            return None;
        }
        let next_hop = export::next_hop(&group.settings, source, afi, best.attrs.next_hop())?;
        let mut attributes = Vec::new();
        export::attributes(&group.settings, source, &best.attrs, &mut attributes);
        Some(Advertised { attributes, next_hop })
    }

    fn member_up(&mut self, info: Arc<PeerInfo>) {
        self.member_down(info.id);
        let found = self.groups.iter_mut().find(|(_, group)| group.settings == info.egress);
        let (id, group) = match found {
            Some((id, group)) => (*id, group),
            None => {
                self.last_group += 1;
                let id = self.last_group;
                (id, self.groups.entry(id).or_insert_with(|| Group::new(info.egress.clone())))
            }
        };
        group.join(Receiver { peer: info.id, session: info.session });
        self.member_of.insert(info.id, id);
        let (peer, families) = (info.id, info.families);
        self.peers.insert(peer, info);
        for_each_family!(F => if families.has(F::AFI) {
            self.dump::<F>(peer, true);
        });
    }

    fn member_down(&mut self, peer: PeerId) {
        // What is known of it as a source stays: its paths leave through the shards, and later.
        let Some(id) = self.member_of.remove(&peer) else { return };
        if self.groups.get_mut(&id).is_some_and(|group| group.leave(peer, &mut self.paths)) {
            self.groups.remove(&id);
        }
    }

    fn dump<F: Family>(&mut self, peer: PeerId, end_of_rib: bool) {
        let group = self.member_of.get(&peer).and_then(|id| self.groups.get_mut(id));
        if let Some(group) = group.filter(|g| g.settings.families.has(F::AFI)) {
            group.dump::<F>(peer, end_of_rib, &mut self.last_token);
        }
    }

    fn best(&mut self, batch: &BestBatch) {
        let handles = self.intern(&batch.paths);
        let mut exported = Vec::with_capacity(handles.len());
        for_each_family!(F => {
            let changes = batch.changes.get::<F>();
            if !changes.is_empty() {
                self.count::<F>(batch);
                for group in self.groups.values_mut() {
                    export_to::<F>(group, &self.peers, &batch.paths, &handles, &mut exported);
                    group.change::<F>(changes, &exported, &mut self.paths);
                }
            }
        });
        handles.into_iter().for_each(|handle| self.paths.release(handle));
    }

    fn dumped(&mut self, token: u64, batch: &BestBatch, last: bool) {
        let handles = self.intern(&batch.paths);
        let mut exported = Vec::with_capacity(handles.len());
        for_each_family!(F => if let Some(group) = self.groups.values_mut().find(|g| g.expects::<F>(token)) {
            export_to::<F>(group, &self.peers, &batch.paths, &handles, &mut exported);
            group.dumped::<F>(token, batch.changes.get::<F>(), &exported, last, &mut self.paths);
        });
        handles.into_iter().for_each(|handle| self.paths.release(handle));
    }

    fn intern(&mut self, paths: &[BestPath]) -> Vec<Handle> {
        if self.groups.is_empty() {
            return Vec::new();
        }
        paths.iter().map(|path| self.paths.intern(path)).collect()
    }

    /// Counts best paths by what decides where they go.
    fn count<F: Family>(&mut self, batch: &BestBatch) {
        let mut deltas = vec![0i64; batch.paths.len()];
        for change in batch.changes.get::<F>() {
            if let Some(delta) = deltas.get_mut(change.old as usize) {
                *delta -= 1;
            }
            if let Some(delta) = deltas.get_mut(change.new as usize) {
                *delta += 1;
            }
        }
        // Gains first: a path may lose under one number what it gains under another.
        for gain in [true, false] {
            let some = batch.paths.iter().zip(&deltas).filter(|(_, d)| **d != 0 && (**d > 0) == gain);
            for (path, delta) in some {
                let facts = Facts::of(path, F::AFI);
                let count = self.best.entry(facts).or_insert(0);
                *count = count.saturating_add_signed(*delta);
                if *count == 0 {
                    self.best.remove(&facts);
                }
            }
        }
    }
}

/// Fills `exported` with the handles of the paths that the group gets for prefixes of family `F`.
fn export_to<F: Family>(
    group: &Group,
    peers: &Peers,
    paths: &[BestPath],
    handles: &[Handle],
    exported: &mut Vec<Handle>,
) {
    exported.clear();
    exported.extend(paths.iter().zip(handles).map(|(path, handle)| {
        let source = peers.get(&path.source);
        let allowed = source.is_some_and(|s| export::allows(&group.settings, s, Facts::of(path, F::AFI)));
        if allowed { *handle } else { NONE }
    }));
}
