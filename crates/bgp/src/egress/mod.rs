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
//! **Positions.** Members at one position, that is, to whom the same is still to be sent, are one cohort with one pending
//! map. All members that keep up are in one cohort. Who cannot take more ([`EgressIn::Backlog`]) leaves it with a copy of
//! what is pending, and no peer waits for it. Cohorts without anything pending are at the same position and become one
//! again. So memory is bounded by the table and by a small number of cohorts a group, nothing is lost, and a message is
//! packed once for all members at its position.
//!
//! **Joining.** A member that joins begins in a cohort of its own, and the shards dump their tables into it. A shard's dump
//! and its changes come in the order of events, hence: what is pending for a prefix is newer than what a dump says of it.
//! Nothing is sent before all shards have answered; then the table is packed as a whole. One dump of a group is under way
//! at a time, and all that join meanwhile share the next. A table that is asked for again (RFC 2918) goes the same way.

mod cohort;
mod export;
mod group;
mod offers;
mod output;
mod pack;
mod paths;
mod pending;
#[cfg(test)]
mod tests;

use crate::message::{BestBatch, BestPath, DumpRequest, EgressIn};
use crate::peer::{EgressSettings, PeerId, PeerInfo};
use cohort::Cohort;
use group::{Group, Peers};
use offers::{Handles, Offers};
use paths::Paths;
use ribtide_prefix::{Afi, AnyPrefix, Family, Map, V4, V6, for_each_family};
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

/// What a flush packs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// What an earlier one began and left.
    Begun,
    /// What waited already when the last one looked. Shards are not equally far: what belongs into one message comes from
    /// all of them within a moment, and by the next flush it is complete.
    Settled,
    /// Everything.
    All,
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
    /// The worker that has it, by number.
    pub worker: u32,
    /// Its number, never used again in this worker.
    pub id: u32,
    /// What its members share.
    pub settings: EgressSettings,
    /// The members.
    pub members: Vec<PeerId>,
    /// Members that cannot take more now.
    pub blocked: Vec<PeerId>,
    /// Members that were left behind and have not caught up.
    pub detached: Vec<PeerId>,
    /// Members that wait for a whole table.
    pub joining: Vec<PeerId>,
    /// How many positions its members are at.
    pub cohorts: usize,
    /// Prefixes that wait to be sent, those for several positions several times.
    pub waiting: usize,
    /// How often a member could not take more, of members whose sessions are still up.
    pub blocks: u64,
    /// What was packed. Prefixes announced in each UPDATE say how well.
    pub counters: Counters,
}

/// A member, for a person or a metrics scraper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberView {
    /// The number of its group.
    pub group: u32,
    /// Whether it cannot take more now.
    pub blocked: bool,
    /// How often it could not, in this session.
    pub blocks: u64,
    /// Whether it was left behind by its group and has not caught up.
    pub detached: bool,
    /// Whether it still waits for tables that it asked for.
    pub joining: bool,
    /// Prefixes that wait to be sent to it.
    pub waiting: usize,
    /// IPv4 prefixes advertised to it. A change that waits does not count yet.
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

/// What becomes of a path in a group.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Export {
    /// The group's number in its worker.
    pub group: u32,
    /// How many members it has beside the path's source.
    pub members: usize,
    /// Whether these get the path.
    pub sent: bool,
    /// Why, in sentences.
    pub says: Vec<String>,
}

/// An egress worker: owns the groups of some peers. It knows all sources, and sees all changes while it has a group.
pub struct Worker {
    id: u32,
    shards: u32,
    peers: Peers,
    groups: BTreeMap<u32, Group>,
    member_of: Map<PeerId, u32>,
    paths: Paths,
    /// Dumps that shards have been asked for, by token.
    asked: Map<u64, Asked>,
    last_group: u32,
    last_token: u64,
}

/// A dump under way.
struct Asked {
    group: u32,
    /// Shards that have not told all.
    shards: u32,
}

impl Worker {
    /// Worker number `id`, fed by `shards` shards. From its first dump request on it must see their changes, for as long
    /// as it [has groups](Worker::has_groups).
    pub fn new(id: u32, shards: u32) -> Worker {
        Worker {
            id,
            shards,
            peers: Peers::default(),
            groups: BTreeMap::new(),
            member_of: Map::default(),
            paths: Paths::default(),
            asked: Map::default(),
            last_group: 0,
            last_token: 0,
        }
    }

    /// So many shards answer a dump from now on. Only while [none is under way](Worker::dumps_under_way).
    pub fn set_shards(&mut self, shards: u32) {
        debug_assert!(self.asked.is_empty());
        self.shards = shards;
    }

    /// Whether some dump that was asked for is not fully answered.
    pub fn dumps_under_way(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Takes in one message. What is to be done about it comes with the next [`Worker::flush`].
    pub fn handle(&mut self, input: EgressIn) {
        match input {
            EgressIn::Best(batch) => self.best(&batch),
            EgressIn::Dump { token, batch, last } => self.dumped(token, &batch, last),
            EgressIn::MemberUp(info) => self.member_up(info),
            EgressIn::MemberChanged(info) => self.member_changed(info),
            EgressIn::MemberDown(peer) => self.member_down(peer),
            EgressIn::Refresh(peer, afi) => {
                let group = self.member_of.get(&peer).and_then(|id| self.groups.get_mut(id));
                if let Some(group) = group {
                    match afi {
                        Afi::Ipv4 => group.refresh::<V4>(peer, &mut self.paths),
                        Afi::Ipv6 => group.refresh::<V6>(peer, &mut self.paths),
                    }
                }
            }
            EgressIn::SourceUp(info) => {
                self.peers.insert(info.id, info);
            }
            EgressIn::Backlog { peer, blocked } => {
                let group = self.member_of.get(&peer).and_then(|id| self.groups.get_mut(id));
                if let Some(group) = group {
                    group.backlog(peer, blocked);
                }
            }
        }
    }

    /// Dumps to ask of every shard, each once.
    pub fn requests(&mut self) -> Vec<DumpRequest> {
        let mut requests = Vec::new();
        for (id, group) in &mut self.groups {
            let of_group = group.requests(self.id, &mut self.last_token);
            let asked = |request: &DumpRequest| (request.token, Asked { group: *id, shards: self.shards });
            self.asked.extend(of_group.iter().map(asked));
            requests.extend(of_group);
        }
        requests
    }

    /// How much a flush has to do: prefixes and End-of-RIB markers.
    pub fn due(&self) -> usize {
        self.groups.values().map(Group::due).sum()
    }

    /// How many changes since the last flush replaced a path that was sent, or was to be. Where there are many, what waits
    /// may well change again.
    pub fn replaced(&self) -> usize {
        self.groups.values().map(|group| group.replaced).sum()
    }

    /// How many positions all groups have together: members at one get the same.
    pub fn positions(&self) -> usize {
        self.groups.values().map(|group| group.cohorts().len()).sum()
    }

    /// Packs up to about `budget` prefixes of each family for every position of a group, and appends them. Returns whether
    /// it left some of what it began; what has come in since is the next one's.
    pub fn flush(&mut self, what: Flush, budget: usize, out: &mut Vec<Write>) -> bool {
        let mut begun = false;
        for group in self.groups.values_mut().filter(|group| group.due() > 0) {
            group.flush(what, &mut self.paths, &self.peers, budget, out);
            begun |= group.begun();
        }
        begun
    }

    /// Whether any peer gets something from this worker: one that has no groups need not hear of changes.
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
        self.groups.iter().map(|(id, group)| self.view(*id, group)).collect()
    }

    fn view(&self, id: u32, group: &Group) -> GroupView {
        let which = |cohort: fn(&Cohort) -> bool| {
            let cohorts = group.cohorts().iter().filter(|s| cohort(s));
            let mut peers: Vec<PeerId> = cohorts.flat_map(|s| s.members().iter().map(|m| m.peer)).collect();
            peers.sort_unstable();
            peers
        };
        GroupView {
            worker: self.id,
            id,
            settings: EgressSettings::clone(&group.settings),
            members: group.members.keys().copied().collect(),
            blocked: group.members.iter().filter(|(_, m)| m.blocked).map(|(peer, _)| *peer).collect(),
            detached: which(|s| s.behind),
            joining: which(Cohort::joining_still),
            cohorts: group.cohorts().len(),
            waiting: group.waiting(),
            blocks: group.members.values().map(|m| m.blocks).sum(),
            counters: group.counters,
        }
    }

    /// One member, if its session is established and this worker's.
    pub fn member(&self, peer: PeerId) -> Option<MemberView> {
        let id = *self.member_of.get(&peer)?;
        let group = self.groups.get(&id)?;
        let (member, cohort) = (group.members.get(&peer)?, group.cohort_of(peer)?);
        Some(MemberView {
            group: id,
            blocked: member.blocked,
            blocks: member.blocks,
            detached: cohort.behind,
            joining: cohort.joining_still(),
            waiting: cohort.waiting(),
            advertised_ipv4: cohort.sent::<V4>().but(peer),
            advertised_ipv6: cohort.sent::<V6>().but(peer),
            counters: member.counters,
        })
    }

    /// How `peer` gets `best`, the best path of a prefix, and why so, in sentences; `None` when it does not get it.
    pub fn advertised(
        &self,
        peer: PeerId,
        prefix: AnyPrefix,
        best: &BestPath,
    ) -> (Option<Advertised>, Vec<String>) {
        let mut says = Vec::new();
        let advertised = self.explain(peer, prefix, best, &mut says);
        (advertised, says)
    }

    fn explain(
        &self,
        peer: PeerId,
        prefix: AnyPrefix,
        best: &BestPath,
        says: &mut Vec<String>,
    ) -> Option<Advertised> {
        let settings = &self.groups.get(self.member_of.get(&peer)?)?.settings;
        let source = self.peers.get(&best.source)?;
        if best.source == peer {
            says.push("not sent: it came from this peer".into());
            return None;
        }
        let path = match prefix {
            AnyPrefix::V4(prefix) => offers::explain(settings, source, best, prefix, says),
            AnyPrefix::V6(prefix) => offers::explain(settings, source, best, prefix, says),
        }?;
        let received = path.attrs.next_hop();
        let next_hop = export::next_hop(settings, source, prefix.afi(), received, path.next_hop)?;
        let mut attributes = Vec::new();
        export::attributes(settings, source, &path, &mut attributes);
        Some(Advertised { attributes, next_hop })
    }

    /// What becomes of `best`, the best path of a prefix, in each group, asked of its first member that is not the path's
    /// source.
    pub fn exports(&self, prefix: AnyPrefix, best: &BestPath) -> Vec<Export> {
        let export = |(id, group): (&u32, &Group)| {
            let member = group.members.keys().find(|peer| **peer != best.source)?;
            let (advertised, says) = self.advertised(*member, prefix, best);
            let members = group.members.keys().filter(|peer| **peer != best.source).count();
            Some(Export { group: *id, members, sent: advertised.is_some(), says })
        };
        self.groups.iter().filter_map(export).collect()
    }

    /// The group of these settings, which comes into being if it is not there.
    fn group_of(&mut self, settings: &EgressSettings) -> (u32, &mut Group) {
        let found = self.groups.iter().find(|(_, group)| *group.settings == *settings);
        let id = found.map_or(self.last_group + 1, |(id, _)| *id);
        self.last_group = self.last_group.max(id);
        (id, self.groups.entry(id).or_insert_with(|| Group::new(settings.clone())))
    }

    fn member_changed(&mut self, info: Arc<PeerInfo>) {
        let former = self.member_of.get(&info.id).and_then(|id| self.groups.get(id));
        let Some((member, cohort)) = former.and_then(|group| group.move_out(info.id)) else { return };
        self.member_down(info.id);
        let (id, group) = self.group_of(&info.egress);
        group.move_in(info.id, member, cohort);
        self.member_of.insert(info.id, id);
        self.peers.insert(info.id, info);
    }

    fn member_up(&mut self, info: Arc<PeerInfo>) {
        self.member_down(info.id);
        let (id, group) = self.group_of(&info.egress);
        group.join(Receiver { peer: info.id, session: info.session });
        self.member_of.insert(info.id, id);
        self.peers.insert(info.id, info);
    }

    fn member_down(&mut self, peer: PeerId) {
        // What is known of it as a source stays: its paths leave through the shards, and later.
        let Some(id) = self.member_of.remove(&peer) else { return };
        if self.groups.get_mut(&id).is_some_and(|group| group.leave(peer, &mut self.paths)) {
            self.groups.remove(&id);
        }
    }

    fn best(&mut self, batch: &BestBatch) {
        let mut handles = Handles::new(batch.paths.len());
        for_each_family!(F => {
            let changes = batch.changes.get::<F>();
            for group in self.groups.values_mut().filter(|g| !changes.is_empty() && g.follows::<F>()) {
                let settings = group.settings.clone();
                let mut offers = Offers::new(&settings, &self.peers, F::AFI, &batch.paths, &mut handles);
                group.change::<F>(changes, &mut offers, &mut self.paths);
            }
        });
        handles.release(&mut self.paths);
    }

    fn dumped(&mut self, token: u64, batch: &BestBatch, last: bool) {
        let Some(asked) = self.asked.get_mut(&token) else { return };
        asked.shards -= u32::from(last);
        let complete = asked.shards == 0;
        if let Some(group) = self.groups.get_mut(&asked.group) {
            let mut handles = Handles::new(batch.paths.len());
            for_each_family!(F => {
                let settings = group.settings.clone();
                let mut offers = Offers::new(&settings, &self.peers, F::AFI, &batch.paths, &mut handles);
                group.dumped::<F>(token, batch.changes.get::<F>(), &mut offers, &mut self.paths);
            });
            handles.release(&mut self.paths);
            if complete {
                group.dump_complete(token, &mut self.paths);
            }
        }
        if complete {
            self.asked.remove(&token);
        }
    }
}
