//! The egress worker: from changes of best paths to packed messages for update groups.
//!
//! Members with equal [`EgressSettings`] form a group, and each message is packed once for all of
//! them. A change waits in the group's pending map until a flush; a second change of the same
//! prefix replaces it. So the changes of all shards are combined, and routes with equal attributes
//! share messages for any sharding. The table bounds the pending changes.
//!
//! **Split horizon.** A path is not sent to its source, by leaving that member out of whole
//! messages. The routes of a member are not stored: all members but the source were sent the former
//! best path, if the group's rules permit it.
//!
//! **Positions.** Members with the same pending changes are one cohort with one pending map. All
//! members that keep up are in one cohort. A blocked member ([`EgressIn::Backlog`]) leaves it with
//! a copy of the pending changes, and no peer waits for it. Cohorts with nothing pending are
//! merged. So the table and a small number of cohorts per group bound memory, nothing is lost, and
//! a message is packed once per position.
//!
//! **Several paths.** A group whose members get more than the best path of a prefix, or their own
//! choice of it, follows the [ranked paths](ranked) instead. A path with an identifier is pending on
//! its own, and everything else is the same.
//!
//! **Joining.** A joining member starts in a cohort of its own, into which the shards dump their
//! tables. A shard's dump and its changes come in order, so a pending change is newer than the dump
//! of its prefix. Nothing is sent before all shards have finished; then the table is packed as a
//! whole. So members that join until then share the dump, and after a flap of many there is one. One
//! dump of a group is in progress at a time. A route refresh (RFC 2918) takes the same path, but
//! its members share the next dump; its begin and end are marked for those that understand that
//! (RFC 7313).

mod adj_rib_out;
mod as_path;
mod cohort;
mod conditional;
mod export;
mod group;
mod limits;
mod mirror;
mod offers;
mod output;
mod pack;
mod paths;
mod pending;
mod ranked;
#[cfg(test)]
mod tests;
mod trial;
mod view;

use crate::message::{BestBatch, BestPath, DumpRequest, EgressIn, NONE, RankedBatch};
use crate::peer::{EgressSettings, PeerId, PeerInfo, PrefixLimits};
use crate::presence::Presence;
pub use adj_rib_out::{Advertised, AdvertisedPath, Export};
use cohort::Cohort;
use group::{Group, Peers};
pub use limits::LimitExceeded;
pub use mirror::Mirrored;
use offers::{Handles, Offers};
use paths::Paths;
use ribtide_prefix::{AfiSafi, BgpFamily, ByFamily, Map, for_each_bgp_family};
use std::collections::BTreeMap;
use std::sync::Arc;
use view::with_views;

/// A member as a receiver. Bytes for an earlier session must not reach a later one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Receiver {
    /// The peer.
    pub peer: PeerId,
    /// The number of its session.
    pub session: u32,
}

/// The changes that a flush packs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flush {
    /// The rest of a started batch.
    Begun,
    /// Changes that were pending at the last flush. Shards progress differently, and routes of one
    /// message arrive from all of them within a moment, so by the next flush the message is
    /// complete.
    Settled,
    /// Everything.
    All,
}

/// Whole messages, to be written to each receiver after all that came for it before.
#[derive(Clone, Debug)]
pub struct Write {
    /// The messages.
    pub chunk: Arc<[u8]>,
    /// The receivers, in the order of peers.
    pub to: Arc<[Receiver]>,
    /// The receiver that is left out.
    pub except: Option<PeerId>,
}

impl Write {
    /// The receivers.
    pub fn receivers(&self) -> impl Iterator<Item = Receiver> + '_ {
        self.to.iter().copied().filter(|receiver| Some(receiver.peer) != self.except)
    }
}

/// Messages sent to a member or, each once, to a group.
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
    /// The common settings of its members.
    pub settings: EgressSettings,
    /// The members.
    pub members: Vec<PeerId>,
    /// Blocked members.
    pub blocked: Vec<PeerId>,
    /// Members that lag.
    pub detached: Vec<PeerId>,
    /// Members that wait for a whole table.
    pub joining: Vec<PeerId>,
    /// The number of its cohorts.
    pub cohorts: usize,
    /// Pending prefixes, counted per position.
    pub waiting: usize,
    /// How often members became blocked, of members with established sessions.
    pub blocks: u64,
    /// Packed messages. Announced prefixes per UPDATE measure the packing.
    pub counters: Counters,
}

/// A member, for a person or a metrics scraper.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemberView {
    /// The number of its group.
    pub group: u32,
    /// Whether it is blocked.
    pub blocked: bool,
    /// How often it became blocked, in this session.
    pub blocks: u64,
    /// Whether it lags in its group.
    pub detached: bool,
    /// Whether it waits for requested tables.
    pub joining: bool,
    /// Its pending prefixes.
    pub waiting: usize,
    /// Prefixes advertised to it, or paths where it gets several, without pending changes.
    pub advertised: ByFamily<u64>,
    /// Messages sent to it in this session.
    pub counters: Counters,
}

/// An egress worker: owns the groups of some peers. It knows all sources, and gets all changes
/// while it has a group.
pub struct Worker {
    id: u32,
    shards: u32,
    peers: Peers,
    groups: BTreeMap<u32, Group>,
    member_of: Map<PeerId, u32>,
    paths: Paths,
    /// Requested dumps by token.
    dumps: Map<u64, PendingDump>,
    last_group: u32,
    last_token: u64,
    /// Prefixes that members may be sent, of members with a limit.
    limits: BTreeMap<PeerId, PrefixLimits>,
    /// Members removed by a limit, for [`Worker::take_exceeded`].
    exceeded: Vec<LimitExceeded>,
    /// The presence of routes that groups depend on.
    presence: Arc<Presence>,
    /// Messages for stations, for [`Worker::take_mirrored`].
    mirrored: Vec<Mirrored>,
}

/// A part of a dump.
#[derive(Clone, Copy)]
enum DumpPart<'a> {
    Best(&'a BestBatch),
    Ranked(&'a RankedBatch),
}

impl<'a> DumpPart<'a> {
    fn paths(self) -> &'a [BestPath] {
        match self {
            DumpPart::Best(batch) => &batch.paths,
            DumpPart::Ranked(batch) => &batch.paths,
        }
    }
}

/// A dump in progress.
struct PendingDump {
    group: u32,
    family: AfiSafi,
    /// Shards that have not finished.
    shards: u32,
}

impl Worker {
    /// Worker number `id`, fed by `shards` shards. From its first dump request on it must get their
    /// changes, as long as it [has groups](Worker::has_groups).
    pub fn new(id: u32, shards: u32) -> Worker {
        Worker {
            id,
            shards,
            peers: Peers::default(),
            groups: BTreeMap::new(),
            member_of: Map::default(),
            paths: Paths::default(),
            dumps: Map::default(),
            last_group: 0,
            last_token: 0,
            limits: BTreeMap::new(),
            exceeded: Vec::new(),
            presence: Arc::default(),
            mirrored: Vec::new(),
        }
    }

    /// Shrinks the queues to their contents. O(capacity): call it only when the worker is idle.
    pub fn shrink_to_fit(&mut self) {
        self.groups.values_mut().for_each(Group::shrink_to_fit);
        self.paths.shrink_to_fit();
    }

    /// Every source that it knows, in any order.
    pub fn sources(&self) -> Vec<Arc<PeerInfo>> {
        self.peers.values().cloned().collect()
    }

    /// Learns sources, as [`EgressIn::SourceUp`], that came up before this worker began. Those that it has are later ones.
    pub fn learn(&mut self, sources: Vec<Arc<PeerInfo>>) {
        for info in sources {
            self.peers.entry(info.id).or_insert(info);
        }
    }

    /// Sets the number of shards. Only while [no dump is in progress](Worker::dumps_in_flight).
    pub fn set_shards(&mut self, shards: u32) {
        debug_assert!(self.dumps.is_empty());
        self.shards = shards;
    }

    /// Whether some dump is not complete.
    pub fn dumps_in_flight(&self) -> bool {
        !self.dumps.is_empty()
    }

    /// Handles one message; the next [`Worker::flush`] sends its effects.
    pub fn handle(&mut self, input: EgressIn) {
        match input {
            EgressIn::Best(batch) => self.best(&batch),
            EgressIn::Dump { token, batch, last } => self.dumped(token, DumpPart::Best(&batch), last),
            EgressIn::Mirror { token, batch, ranked } => self.mirror(token, &batch, &ranked),
            EgressIn::Ranked(batch) => self.ranked(&batch),
            EgressIn::RankedDump { token, batch, last } => self.dumped(token, DumpPart::Ranked(&batch), last),
            EgressIn::MemberUp(info) => self.member_up(info),
            EgressIn::MemberChanged(info) => self.member_changed(info),
            EgressIn::MemberDown(peer) => self.member_down(peer),
            EgressIn::Refresh(peer, family, marked) => {
                let group = self.member_of.get(&peer).and_then(|id| self.groups.get_mut(id));
                if let Some(group) = group {
                    for_each_bgp_family!(F => if F::ID == family {
                        group.refresh::<F>(peer, marked, &mut self.paths);
                    });
                }
            }
            EgressIn::MaxPrefixes(peer, limits) => self.limit(peer, limits),
            EgressIn::SourceUp(info) => {
                self.peers.insert(info.id, info);
            }
            EgressIn::Presence(presence) => {
                self.groups.values_mut().for_each(|group| group.presence(&presence));
                self.presence = presence;
            }
            EgressIn::Backlog { peer, blocked } => {
                let group = self.member_of.get(&peer).and_then(|id| self.groups.get_mut(id));
                if let Some(group) = group {
                    group.backlog(peer, blocked);
                }
            }
        }
    }

    /// Dump requests for every shard, each once.
    pub fn requests(&mut self) -> Vec<DumpRequest> {
        let mut requests = Vec::new();
        for (id, group) in &mut self.groups {
            let of_group = group.requests(self.id, &mut self.last_token);
            let dump = |request: &DumpRequest| {
                (request.token, PendingDump { group: *id, family: request.family, shards: self.shards })
            };
            self.dumps.extend(of_group.iter().map(dump));
            requests.extend(of_group);
        }
        requests
    }

    /// The work of the next flush: prefixes and End-of-RIB markers.
    pub fn due(&self) -> usize {
        self.groups.values().map(Group::due).sum()
    }

    /// Changes since the last flush that replaced a sent or pending path. Many of them suggest that
    /// pending routes change again.
    pub fn replaced(&self) -> usize {
        self.groups.values().map(|group| group.replaced).sum()
    }

    /// The number of cohorts of all groups.
    pub fn positions(&self) -> usize {
        self.groups.values().map(|group| group.cohorts().len()).sum()
    }

    /// Packs about `budget` prefixes of each family for every cohort, and appends the messages.
    /// Returns whether a started batch is incomplete; later changes belong to the next one. Members
    /// that would exceed a limit are removed first; see [`Worker::take_exceeded`].
    pub fn flush(&mut self, what: Flush, budget: usize, out: &mut Vec<Write>) -> bool {
        if what != Flush::Begun {
            self.check_limits();
        }
        let mut begun = false;
        for (id, group) in self.groups.iter_mut().filter(|(_, group)| group.due() > 0) {
            // Earlier changes without the later ones could be more than a limit, which all together are not.
            let is_limited = || self.limits.keys().any(|peer| self.member_of.get(peer) == Some(id));
            let what = if what == Flush::Settled && is_limited() { Flush::All } else { what };
            group.flush(what, &mut self.paths, &self.peers, budget, out);
            begun |= group.begun();
        }
        begun
    }

    /// Whether any peer is a member; a worker without groups needs no changes.
    pub fn has_groups(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether any group needs ranked paths, or has a member that came from one; otherwise it needs no changes of these.
    pub fn takes_ranked(&self) -> bool {
        let takes = |group: &Group| AfiSafi::ALL.iter().any(|family| group.settings.takes_ranked(*family));
        self.groups.values().any(|group| takes(group) || group.has_moved())
    }

    /// Pending prefixes of all groups.
    pub fn waiting(&self) -> usize {
        self.groups.values().map(Group::waiting).sum()
    }

    /// Distinct paths of pending changes.
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
            detached: which(|s| s.lagging),
            joining: which(Cohort::is_joining),
            cohorts: group.cohorts().len(),
            waiting: group.waiting(),
            blocks: group.members.values().map(|m| m.blocks).sum(),
            counters: group.counters,
        }
    }

    /// A member, if its session is established and belongs to this worker.
    pub fn member(&self, peer: PeerId) -> Option<MemberView> {
        let id = *self.member_of.get(&peer)?;
        let group = self.groups.get(&id)?;
        let (member, cohort) = (group.members.get(&peer)?, group.cohort_of(peer)?);
        let mut advertised = ByFamily::default();
        for_each_bgp_family!(F => advertised[F::ID] = cohort.sent_to::<F>(peer));
        Some(MemberView {
            group: id,
            blocked: member.blocked,
            blocks: member.blocks,
            detached: cohort.lagging,
            joining: cohort.is_joining(),
            waiting: cohort.waiting(),
            advertised,
            counters: member.counters,
        })
    }

    /// The group of these settings, created if missing.
    fn group_of(&mut self, settings: &EgressSettings) -> (u32, &mut Group) {
        let found = self.groups.iter().find(|(_, group)| *group.key == *settings);
        let id = found.map_or(self.last_group + 1, |(id, _)| *id);
        self.last_group = self.last_group.max(id);
        let presence = &self.presence;
        (id, self.groups.entry(id).or_insert_with(|| Group::resolved(settings.clone(), presence)))
    }

    fn member_changed(&mut self, info: Arc<PeerInfo>) {
        let former = self.member_of.get(&info.id).and_then(|id| self.groups.get(id));
        let Some((member, cohort)) = former.and_then(|group| group.move_out(info.id)) else { return };
        self.leave_group(info.id);
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
        self.limits.remove(&peer);
        self.leave_group(peer);
    }

    fn leave_group(&mut self, peer: PeerId) {
        // Its state as a source stays, because its paths are removed by the shards later.
        let Some(id) = self.member_of.remove(&peer) else { return };
        if self.groups.get_mut(&id).is_some_and(|group| group.leave(peer, &mut self.paths)) {
            self.groups.remove(&id);
        }
    }

    fn best(&mut self, batch: &BestBatch) {
        let mut handles = Handles::new(batch.paths.len());
        for_each_bgp_family!(F => {
            let changes = batch.changes.get::<F>();
            for group in self.groups.values_mut().filter(|g| g.settings.takes_ranked(F::ID)) {
                group.note_gone(changes.iter().filter(|change| change.new == NONE).map(|change| change.prefix));
            }
            for group in self.groups.values_mut().filter(|g| !changes.is_empty() && g.follows::<F>()) {
                let settings = group.settings.clone();
                let mut offers = Offers::new(&settings, &self.peers, F::ID, &batch.paths, &mut handles);
                match group.is_conditional() {
                    false => group.change::<F>(changes, &mut offers, &mut self.paths),
                    true => {
                        let paths = &mut self.paths;
                        with_views::<F>(group, offers, &self.peers, &batch.paths, paths, |group, now, former, paths| {
                            group.change_conditional::<F>(changes, now, former, paths);
                        });
                    }
                }
            }
        });
        handles.release(&mut self.paths);
    }

    fn ranked(&mut self, batch: &RankedBatch) {
        let mut handles = Handles::new(batch.paths.len());
        for_each_bgp_family!(F => {
            let any = !batch.changes.get::<F>().is_empty();
            let gone = batch.changes.get::<F>().iter().filter(|change| change.new == 0);
            for group in self.groups.values_mut().filter(|g| !g.settings.takes_ranked(F::ID)) {
                group.note_gone(gone.clone().map(|change| change.prefix));
            }
            for group in self.groups.values_mut().filter(|g| any && g.follows_ranked::<F>()) {
                let settings = group.settings.clone();
                let offers = Offers::new(&settings, &self.peers, F::ID, &batch.paths, &mut handles);
                with_views::<F>(group, offers, &self.peers, &batch.paths, &mut self.paths, |group, now, former, paths| {
                    group.change_ranked::<F>(batch, now, former, paths);
                });
            }
        });
        handles.release(&mut self.paths);
    }

    fn dumped(&mut self, token: u64, part: DumpPart<'_>, last: bool) {
        let Some(dump) = self.dumps.get(&token) else { return };
        let complete = last && dump.shards == 1;
        let Worker { peers, groups, paths, .. } = self;
        if let Some(group) = groups.get_mut(&dump.group) {
            let batch = part.paths();
            let mut handles = Handles::new(batch.len());
            let of_transition = group.is_of_transition(token);
            for_each_bgp_family!(F => if F::ID == dump.family {
                let settings = group.settings.clone();
                let mut offers = Offers::new(&settings, peers, F::ID, batch, &mut handles);
                match part {
                    DumpPart::Best(part) if !group.is_conditional() => {
                        group.dumped::<F>(token, part.changes.get::<F>(), &mut offers, paths);
                    }
                    _ => with_views::<F>(group, offers, peers, batch, paths, |group, now, former, paths| {
                        match (part, former) {
                            (DumpPart::Best(part), Some(former)) if of_transition => {
                                group.transition_dumped::<F>(part.changes.get::<F>(), complete, now, former, paths);
                            }
                            (DumpPart::Best(part), former) => {
                                group.dumped_conditional::<F>(token, part.changes.get::<F>(), now, former, paths);
                            }
                            (DumpPart::Ranked(part), Some(former)) if of_transition => {
                                group.transition_ranked_dumped::<F>(part, complete, now, former, paths);
                            }
                            (DumpPart::Ranked(part), former) => {
                                group.ranked_dumped::<F>(token, part, now, former, paths);
                            }
                        }
                    }),
                }
                if complete && !of_transition && group.is_conditional() {
                    group.dump_default::<F>(token, peers, paths);
                }
            });
            handles.release(paths);
        }
        self.dump_ended(token, last);
    }

    /// A part of a dump was added, the last of a shard or not.
    fn dump_ended(&mut self, token: u64, last: bool) {
        let Some(dump) = self.dumps.get_mut(&token) else { return };
        dump.shards -= u32::from(last);
        if dump.shards > 0 {
            return;
        }
        if let Some(group) = self.groups.get_mut(&dump.group) {
            match group.is_of_transition(token) {
                true => group.transition_complete(token),
                false => group.dump_complete(token, &mut self.paths),
            }
        }
        self.dumps.remove(&token);
        // A batch under way continues with these routes, without another check.
        self.check_limits();
    }
}
