//! An update group: members with equal settings, in as many cohorts as there are positions.
//!
//! While all members keep up there is one [`Cohort`], and every message is packed once. A blocked
//! member leaves it for a cohort of its own, in which changes coalesce. A joining member starts in
//! a cohort with the whole table pending. Cohorts with nothing pending are at the same position and
//! are merged.

use super::cohort::Cohort;
use super::conditional::Conditional;
use super::offers::Offers;
use super::output::Closed;
use super::pack::Packer;
use super::paths::{Handle, Paths};
use super::pending::{AdvertisedSource, Key, Phase, for_each_key};
use super::{Counters, Flush, Receiver, Write};
use crate::message::{Change, DumpRequest, DumpScope, NONE};
use crate::peer::{EgressSettings, PeerId, PeerInfo};
use ribtide_prefix::{BgpFamily, Map, Prefix, for_each_bgp_family};
use ribtide_wire::bgp::nlri::{Nlri, PathPrefix};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Peers by number.
pub(super) type Peers = Map<PeerId, Arc<PeerInfo>>;

/// Positions that a group keeps apart. With more of them, members at two positions are sent what any of them lacks: some
/// get again what they have, and memory stays bounded however many members are slow in ways of their own.
pub(super) const COHORTS_MAX: usize = if cfg!(test) { 3 } else { 8 };

pub(super) struct Group {
    /// The settings of its members.
    pub(super) key: Arc<EgressSettings>,
    /// The same with the present state of routes that they depend on.
    pub(super) settings: Arc<EgressSettings>,
    /// Where they do, or the group has a default route of its own.
    pub(super) conditional: Option<Box<Conditional>>,
    pub(super) members: BTreeMap<PeerId, Member>,
    /// The oldest position first.
    cohorts: Vec<Cohort>,
    /// Changes since the last flush that replaced a sent or pending path.
    pub(super) replaced: usize,
    pub(super) counters: Counters,
}

#[derive(Clone, Copy)]
pub(super) struct Member {
    pub(super) blocked: bool,
    /// How often it became blocked.
    pub(super) blocks: u64,
    pub(super) counters: Counters,
}

impl Group {
    pub(super) fn new(settings: EgressSettings) -> Group {
        let settings = Arc::new(settings);
        Group {
            key: settings.clone(),
            settings,
            conditional: None,
            members: BTreeMap::new(),
            cohorts: Vec::new(),
            replaced: 0,
            counters: Counters::default(),
        }
    }

    /// Shrinks its queues to their contents.
    pub(super) fn shrink_to_fit(&mut self) {
        self.cohorts.iter_mut().for_each(Cohort::shrink_to_fit);
    }

    /// A member joins and gets the tables, with others that wait for them.
    pub(super) fn join(&mut self, receiver: Receiver) {
        let member = Member { blocked: false, blocks: 0, counters: Counters::default() };
        self.members.insert(receiver.peer, member);
        let Group { cohorts, settings, .. } = self;
        match cohorts.iter_mut().find(|cohort| cohort.is_open(settings)) {
            Some(cohort) => cohort.add(&[receiver]),
            None => cohorts.push(Cohort::joining(receiver, settings)),
        }
    }

    /// Removes a member that moves to another group, with its state.
    pub(super) fn move_out(&self, peer: PeerId) -> Option<(Member, Cohort)> {
        let mut cohort = self.cohort_of(peer)?.moving(peer, &self.settings)?;
        if self.key.default_originate.is_some() {
            // It may have been sent, and no table has it.
            for_each_bgp_family!(F => match self.settings.add_path.of(F::ID) {
                Some(_) => cohort.queue_mut::<PathPrefix<F>>().may_have(self.own_default_key::<F, _>()),
                None => cohort.queue_mut::<Prefix<F>>().may_have(Prefix::default_route()),
            });
        }
        Some((*self.members.get(&peer)?, cohort))
    }

    /// Adds a member from another group, which was sent that group's routes. It gets the tables,
    /// and withdrawals of the other routes.
    pub(super) fn move_in(&mut self, peer: PeerId, member: Member, cohort: Cohort) {
        self.members.insert(peer, member);
        match self.cohorts.iter_mut().find(|other| other.can_wait_with(&cohort)) {
            Some(other) => other.wait_with(cohort),
            None => self.cohorts.push(cohort),
        }
    }

    /// Removes a member; returns whether it was the last.
    pub(super) fn leave(&mut self, peer: PeerId, paths: &mut Paths) -> bool {
        self.members.remove(&peer);
        if let Some(at) = self.position(peer)
            && self.cohorts[at].remove(peer, paths)
        {
            self.cohorts.remove(at);
        }
        self.members.is_empty()
    }

    /// A member became blocked or unblocked.
    pub(super) fn backlog(&mut self, peer: PeerId, blocked: bool) {
        if let Some(member) = self.members.get_mut(&peer) {
            member.blocks += u64::from(blocked && !member.blocked);
            member.blocked = blocked;
        }
    }

    /// Sends a member the table of a family again, unless it is in progress; with marks of its begin and end if `marked`.
    pub(super) fn refresh<F: BgpFamily>(&mut self, peer: PeerId, marked: bool, paths: &mut Paths) {
        match self.settings.add_path.of(F::ID) {
            _ if !self.settings.families.has(F::ID) => {}
            Some(_) => self.refresh_keys::<PathPrefix<F>>(peer, marked, paths),
            None => self.refresh_keys::<Prefix<F>>(peer, marked, paths),
        }
    }

    fn refresh_keys<K: Key>(&mut self, peer: PeerId, marked: bool, paths: &mut Paths) {
        let Some(at) = self.position(peer) else { return };
        if self.cohorts[at].queue::<K>().phase() != Phase::Live {
            return;
        }
        let mut own = self.take_out(at, |member| member == peer, paths);
        own.queue_mut::<K>().want(marked, paths);
        // Members whose table is not requested yet.
        let waits = |s: &Cohort| s.queue::<K>().phase() == Phase::Wanted && s.can_coalesce(&own);
        match self.cohorts.iter_mut().find(|cohort| waits(cohort)) {
            Some(cohort) => cohort.coalesce(own, paths),
            None => self.cohorts.push(own),
        }
    }

    /// Moves members to a new cohort with a copy of the pending changes.
    fn take_out(&mut self, at: usize, which: impl Fn(PeerId) -> bool, paths: &mut Paths) -> Cohort {
        if self.cohorts[at].members().iter().all(|member| which(member.peer)) {
            return self.cohorts.remove(at);
        }
        self.cohorts[at].split(which, paths)
    }

    fn position(&self, peer: PeerId) -> Option<usize> {
        self.cohorts.iter().position(|cohort| cohort.has(peer))
    }

    /// The cohort that a member is in.
    pub(super) fn cohort_of(&self, peer: PeerId) -> Option<&Cohort> {
        self.cohorts.iter().find(|cohort| cohort.has(peer))
    }

    pub(super) fn cohorts(&self) -> &[Cohort] {
        &self.cohorts
    }

    pub(super) fn cohorts_mut(&mut self) -> &mut [Cohort] {
        &mut self.cohorts
    }

    /// Whether any member needs changes of best paths.
    pub(super) fn follows<F: BgpFamily>(&self) -> bool {
        self.settings.families.has(F::ID)
            && !self.settings.takes_ranked(F::ID)
            && self.any_follows::<Prefix<F>>()
    }

    pub(super) fn any_follows<K: Key>(&self) -> bool {
        self.cohorts.iter().any(|cohort| cohort.queue::<K>().follows())
    }

    /// Adds changes of best paths.
    pub(super) fn change<F: BgpFamily>(
        &mut self,
        changes: &[Change<F>],
        offers: &mut Offers<'_>,
        paths: &mut Paths,
    ) {
        let moved = self.cohorts.iter().any(|cohort| cohort.queue::<Prefix<F>>().has_moved());
        for change in changes {
            let advertised = offers.source(change.old, change.prefix);
            let new = offers.handle(change.new, change.prefix, paths);
            if advertised == AdvertisedSource::NOTHING && new == NONE && !moved {
                continue;
            }
            self.change_one(change.prefix, advertised, new, paths);
        }
    }

    /// Adds a change of what members have of a prefix.
    #[inline]
    pub(super) fn change_one<F: BgpFamily>(
        &mut self,
        prefix: Prefix<F>,
        advertised: AdvertisedSource,
        new: Handle,
        paths: &mut Paths,
    ) {
        self.replaced += usize::from(advertised != AdvertisedSource::NOTHING);
        for cohort in &mut self.cohorts {
            let queue = cohort.queue_mut::<Prefix<F>>();
            if queue.follows() {
                queue.change(prefix, advertised, new, paths);
            }
        }
    }

    /// Adds a part of a dump.
    pub(super) fn dumped<F: BgpFamily>(
        &mut self,
        token: u64,
        items: &[Change<F>],
        offers: &mut Offers<'_>,
        paths: &mut Paths,
    ) {
        for cohort in &mut self.cohorts {
            let queue = cohort.queue_mut::<Prefix<F>>();
            if queue.phase() != Phase::Dumping(token) {
                continue;
            }
            for item in items {
                let new: Handle = offers.handle(item.new, item.prefix, paths);
                queue.dump_item(item.prefix, new, paths);
            }
        }
    }

    /// All shards have completed a dump.
    pub(super) fn dump_complete(&mut self, token: u64, paths: &mut Paths) {
        for cohort in &mut self.cohorts {
            for_each_key!(K => {
                let queue = cohort.queue_mut::<K>();
                if queue.phase() == Phase::Dumping(token) {
                    queue.dumped(paths);
                }
            });
        }
    }

    /// Requests the table that a cohort needs, unless another dump is in progress: members that
    /// request a refresh meanwhile share the next one.
    pub(super) fn requests(&mut self, worker: u32, token: &mut u64) -> Vec<DumpRequest> {
        let mut requests = self.transition_requests(worker, token);
        if self.cohorts.iter().any(|cohort| cohort.dump().1) {
            return requests;
        }
        let Group { cohorts, settings, .. } = self;
        if let Some(cohort) = cohorts.iter_mut().find(|cohort| cohort.dump().0) {
            for_each_key!(K => {
                let queue = cohort.queue_mut::<K>();
                if queue.phase() == Phase::Wanted {
                    let family = <K as Nlri>::Family::ID;
                    *token += 1;
                    queue.dump_requested(*token);
                    let (scope, ranked) = (DumpScope::default(), settings.takes_ranked(family));
                    requests.push(DumpRequest { worker, token: *token, family, scope, ranked });
                }
            });
        }
        requests
    }

    /// Prefixes and End-of-RIB markers of the next flush, for unblocked members.
    pub(super) fn due(&self) -> usize {
        self.cohorts.iter().filter(|cohort| !self.all_blocked(cohort)).map(Cohort::due).sum()
    }

    /// Whether a started batch is not completely packed, for unblocked members.
    pub(super) fn begun(&self) -> bool {
        self.cohorts.iter().any(|cohort| cohort.begun() && !self.all_blocked(cohort))
    }

    /// Pending prefixes, counted per position.
    pub(super) fn waiting(&self) -> usize {
        self.cohorts.iter().map(Cohort::waiting).sum()
    }

    fn is_blocked(&self, peer: PeerId) -> bool {
        self.members.get(&peer).is_some_and(|member| member.blocked)
    }

    fn all_blocked(&self, cohort: &Cohort) -> bool {
        cohort.members().iter().all(|member| self.is_blocked(member.peer))
    }

    /// Packs about `budget` prefixes of each family, for every cohort with unblocked members.
    pub(super) fn flush(
        &mut self,
        what: Flush,
        paths: &mut Paths,
        peers: &Peers,
        budget: usize,
        out: &mut Vec<Write>,
    ) {
        self.replaced = 0;
        self.split_blocked(paths);
        self.bound(paths);
        // Only cohorts with nothing pending are merged.
        let several = self.cohorts.iter().filter(|cohort| !self.all_blocked(cohort)).count() > 1;
        let what = if several && what == Flush::Settled { Flush::All } else { what };
        for at in 0..self.cohorts.len() {
            let cohort = &self.cohorts[at];
            if cohort.due() == 0 || self.all_blocked(cohort) {
                continue;
            }
            let mut packer = Packer::new(&self.settings, peers, cohort.members().clone());
            let cohort = &mut self.cohorts[at];
            for_each_key!(K => cohort.queue_mut::<K>().flush(what, &mut packer, paths, budget));
            for closed in packer.finish() {
                if deliver(&closed, &mut self.counters, &mut self.members) {
                    out.push(closed.write);
                }
            }
        }
        self.merge_idle();
    }

    /// Splits blocked members from cohorts with pending changes and unblocked members.
    fn split_blocked(&mut self, paths: &mut Paths) {
        for at in 0..self.cohorts.len() {
            let cohort = &self.cohorts[at];
            if cohort.due() == 0 || self.all_blocked(cohort) {
                continue;
            }
            let Group { cohorts, members, .. } = self;
            let blocked = |peer: PeerId| members.get(&peer).is_some_and(|member| member.blocked);
            if cohorts[at].members().iter().any(|member| blocked(member.peer)) {
                let mut slow = cohorts[at].split(blocked, paths);
                slow.lagging = true;
                cohorts.push(slow);
            }
        }
    }

    /// Merges cohorts while there are too many.
    fn bound(&mut self, paths: &mut Paths) {
        while self.cohorts.len() > COHORTS_MAX {
            let all = (0..self.cohorts.len()).flat_map(|b| (0..b).map(move |a| (a, b)));
            let slow = |at: usize| self.all_blocked(&self.cohorts[at]);
            let alike = |(a, b): &(usize, usize)| {
                slow(*a) == slow(*b) && self.cohorts[*a].can_coalesce(&self.cohorts[*b])
            };
            // Blocked ones, because they wait anyway.
            let Some((a, b)) = all.filter(alike).max_by_key(|(a, _)| slow(*a)) else { return };
            let other = self.cohorts.remove(b);
            self.cohorts[a].coalesce(other, paths);
        }
    }

    /// Merges cohorts with nothing pending.
    fn merge_idle(&mut self) {
        let Some(first) = self.cohorts.iter().position(Cohort::is_idle) else { return };
        for at in (first + 1..self.cohorts.len()).rev() {
            if self.cohorts[at].is_idle() {
                let other = self.cohorts.remove(at);
                self.cohorts[first].merge(&other);
            }
        }
        self.cohorts[first].lagging = false;
    }
}

/// Counts a chunk for the group and its receivers; returns whether it has any.
fn deliver(closed: &Closed, group: &mut Counters, members: &mut BTreeMap<PeerId, Member>) -> bool {
    let mut reached = false;
    for receiver in closed.write.receivers() {
        reached = true;
        if let Some(member) = members.get_mut(&receiver.peer) {
            member.counters.add(&closed.counters);
        }
    }
    if reached {
        group.add(&closed.counters);
    }
    reached
}
