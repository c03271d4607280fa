//! Next-hop groups in the chip.
//!
//! A group is either RouteOrch's, known by its members and shared by all routes that lead to the same, or
//! NhgOrch's, known by its index in NEXTHOP_GROUP_TABLE and changed in place. RouteOrch's is only made when all its
//! members are resolved; until then its routes lead to one of them. Both kinds count against the chip's limit, and
//! wait for a free place in the order in which they came.

use super::arena::Arena;
use super::requests::{Outcome, Requester, outcome};
use super::retry_cache::Constraint;
use super::{Orch, OrchOut};
use crate::sai::{Attr, GroupType, Item, ObjectType, Oid, Status, Verb};
use std::collections::VecDeque;
use std::sync::Arc;

/// A next hop and its weight (0: none given), in a group.
pub(super) type Member = (u32, u32);

/// What a group is known by.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum GroupKey {
    /// RouteOrch's: its members, ordered, each next hop once.
    Members(Arc<[Member]>),
    /// NhgOrch's: the number of the index.
    Index(u32),
}

/// A membership in the chip.
struct InChip {
    hop: u32,
    weight: u32,
    oid: Oid,
}

/// A group.
#[derive(Default)]
pub(super) struct Group {
    wanted: Arc<[Member]>,
    oid: Option<Oid>,
    members: Vec<InChip>,
    /// Requests without a reply.
    open: u32,
    /// Routes may lead to it.
    ready: bool,
    /// It holds one of the chip's places, or has asked for it.
    placed: bool,
    /// It waits for a place.
    queued: bool,
    /// The chip refused it.
    failed: bool,
    /// The chip had no room for it or for a member.
    table_full: bool,
    /// Routes wait for it that found no single member to lead to meanwhile.
    stranding: bool,
    /// Routes in the chip, or on their way there, that lead to it.
    refs: u32,
    /// Routes that wait for it; for an index, the row.
    pins: u32,
}

/// All groups.
pub(super) struct Groups {
    arena: Arena<GroupKey, Group>,
    limit: Option<u32>,
    /// Places taken.
    placed: u32,
    queue: VecDeque<u32>,
    random: u64,
}

impl Groups {
    pub(super) fn new(seed: u64) -> Self {
        Groups { arena: Arena::default(), limit: None, placed: 0, queue: VecDeque::new(), random: seed }
    }

    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = Some(limit);
    }

    /// Settles the limit: what the chip said, or `default`, but no more than `cap`.
    pub(super) fn limit_or(&mut self, default: u32, cap: Option<u32>) -> u32 {
        let limit = self.limit.unwrap_or(default).min(cap.unwrap_or(u32::MAX));
        self.limit = Some(limit);
        limit
    }

    pub(super) fn find(&self, key: &GroupKey) -> Option<u32> {
        self.arena.find(key)
    }

    pub(super) fn ready(&self, id: u32) -> bool {
        self.arena.get(id).ready
    }

    /// Notes whether routes wait for the group that lead nowhere meanwhile; says whether any did so far.
    pub(super) fn set_stranding(&mut self, id: u32, stranding: bool) -> bool {
        std::mem::replace(&mut self.arena.get_mut(id).stranding, stranding)
    }

    pub(super) fn failed(&self, id: u32) -> bool {
        self.arena.get(id).failed
    }

    pub(super) fn oid(&self, id: u32) -> Oid {
        self.arena.get(id).oid.unwrap_or_default()
    }

    pub(super) fn waits_for_place(&self, id: u32) -> bool {
        self.arena.get(id).queued
    }

    /// Whether it will be in the chip without anything else having to happen first.
    pub(super) fn on_its_way(&self, id: u32) -> bool {
        let group = self.arena.get(id);
        group.open > 0 || (group.oid.is_some() && !group.table_full)
    }

    /// How many groups are known, hold a place, and wait for one.
    #[cfg(test)]
    pub(super) fn places(&self) -> (usize, u32, usize) {
        (self.arena.len(), self.placed, self.queue.len())
    }

    /// Every group that is known.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.arena.iter().map(|(id, ..)| id).collect()
    }

    pub(super) fn contains(&self, id: u32) -> bool {
        self.arena.contains(id)
    }

    pub(super) fn key(&self, id: u32) -> &GroupKey {
        self.arena.key(id)
    }

    pub(super) fn wanted(&self, id: u32) -> Arc<[Member]> {
        self.arena.get(id).wanted.clone()
    }

    /// One of `choices` by chance, from the seed. There is at least one.
    pub(super) fn choose(&mut self, choices: &[u32]) -> Option<u32> {
        // SplitMix64.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        choices.get(z.checked_rem(choices.len() as u64)? as usize).copied()
    }
}

impl Orch {
    /// The group of these members; made known when it is new, but only [`Orch::step_group`] asks for it.
    pub(super) fn group_id(&mut self, key: GroupKey, members: Arc<[Member]>) -> u32 {
        if let Some(id) = self.groups.find(&key) {
            return id;
        }
        let id = self.groups.arena.id_of(&key, Group::default);
        self.set_group_members(id, members);
        id
    }

    /// Changes what members a group shall have.
    pub(super) fn set_group_members(&mut self, id: u32, members: Arc<[Member]>) -> Vec<u32> {
        let group = self.groups.arena.get_mut(id);
        let before = std::mem::replace(&mut group.wanted, members.clone());
        group.failed = false;
        for (hop, _) in members.iter() {
            self.neighbors.get_mut(*hop).groups.insert(id);
        }
        let gone = before.iter().map(|(hop, _)| *hop).filter(|hop| members.iter().all(|(h, _)| h != hop));
        let gone: Vec<u32> = gone.collect();
        for hop in &gone {
            self.neighbors.get_mut(*hop).groups.remove(&id);
        }
        gone
    }

    /// Whether any of the members that a group shall have is usable now.
    fn any_usable(&self, id: u32) -> bool {
        self.groups.arena.get(id).wanted.iter().any(|(hop, _)| self.hop_usable(*hop).is_some())
    }

    /// Asks for the next thing that brings a group closer to what is wanted of it.
    pub(super) fn step_group(&mut self, id: u32, out: &mut OrchOut) {
        if !self.groups.contains(id) {
            return;
        }
        let group = self.groups.arena.get(id);
        if group.open > 0 {
            return;
        }
        if group.refs == 0 && group.pins == 0 {
            return self.drop_group(id, out);
        }
        if group.failed || group.table_full {
            return;
        }
        let wanted = group.wanted.clone();
        if group.oid.is_none() {
            return self.make_group(id, &wanted, out);
        }
        for (hop, _) in wanted.iter() {
            self.resolve(*hop, out);
        }
        let usable: Vec<Member> =
            wanted.iter().copied().filter(|(hop, _)| self.hop_usable(*hop).is_some()).collect();
        let group = self.groups.arena.get(id);
        let oid = self.groups.oid(id);
        let is_in = |hop: u32| group.members.iter().any(|member| member.hop == hop);
        let missing: Vec<Member> = usable.iter().copied().filter(|(hop, _)| !is_in(*hop)).collect();
        let reweighed: Vec<(u32, Oid, u32)> = (group.members.iter())
            .filter_map(|member| {
                let (_, weight) = usable.iter().find(|(hop, w)| *hop == member.hop && *w != member.weight)?;
                Some((member.hop, member.oid, *weight))
            })
            .collect();
        let extra: Vec<(u32, Oid)> = (group.members.iter())
            .filter(|member| usable.iter().all(|(hop, _)| *hop != member.hop))
            .map(|member| (member.hop, member.oid))
            .collect();
        // New members come before old ones go, so that a group is not empty in between.
        if !missing.is_empty() {
            for (hop, weight) in missing {
                self.hold_hop(hop);
                let attrs = [Attr::MemberGroup(oid), Attr::MemberNextHop(self.hop_oid(hop))];
                let weight = (weight > 0).then_some(Attr::MemberWeight(weight));
                let member = self.number(ObjectType::NextHopGroupMember, &attrs, out);
                self.ask_member(id, hop, Verb::Create, Item::new(member, attrs.into_iter().chain(weight)));
            }
        } else if !reweighed.is_empty() {
            for (hop, member, weight) in reweighed {
                // Without a weight given, all members share alike.
                let item = Item::new(member, [Attr::MemberWeight(weight.max(1))]);
                self.ask_member(id, hop, Verb::Set, item);
            }
        } else if !extra.is_empty() {
            for (hop, member) in extra {
                self.ask_member(id, hop, Verb::Remove, Item::bare(member));
            }
        } else if !self.groups.ready(id) {
            self.groups.arena.get_mut(id).ready = true;
            self.wake(Constraint::Group(id));
            self.index_moved(id);
        }
    }

    fn ask_member(&mut self, group: u32, hop: u32, verb: Verb, item: Item) {
        self.groups.arena.get_mut(group).open += 1;
        self.requests.enqueue(verb, ObjectType::NextHopGroupMember, Requester::Member(group, hop), item);
    }

    /// Asks for a group that is not in the chip, when it can be there.
    fn make_group(&mut self, id: u32, wanted: &[Member], out: &mut OrchOut) {
        let by_members = matches!(self.groups.arena.key(id), GroupKey::Members(_));
        let unresolved: Vec<u32> =
            wanted.iter().map(|(hop, _)| *hop).filter(|hop| self.hop_resolved(*hop).is_none()).collect();
        for hop in &unresolved {
            self.resolve(*hop, out);
        }
        // What the group was before is known by all its members.
        if self.previous_ids.is_some() && unresolved.iter().any(|hop| self.hop_comes(*hop)) {
            return;
        }
        // An index is content with those that are there.
        if by_members && !unresolved.is_empty() || !self.any_usable(id) {
            return;
        }
        let limit = self.groups.limit.unwrap_or(0);
        let group = self.groups.arena.get_mut(id);
        if !group.placed {
            if self.groups.placed >= limit {
                if !group.queued {
                    group.queued = true;
                    self.groups.queue.push_back(id);
                }
                return;
            }
            group.placed = true;
            self.groups.placed += 1;
        }
        group.open += 1;
        let oid = self.group_number(id, wanted, out);
        let item = Item::new(oid, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
        self.requests.enqueue(Verb::Create, ObjectType::NextHopGroup, Requester::Group(id), item);
    }

    /// Takes a group without routes out of the chip, members first, and forgets it.
    fn drop_group(&mut self, id: u32, out: &mut OrchOut) {
        let group = self.groups.arena.get_mut(id);
        group.ready = false;
        if !group.members.is_empty() {
            let members: Vec<(u32, Oid)> =
                group.members.iter().map(|member| (member.hop, member.oid)).collect();
            for (hop, member) in members {
                self.ask_member(id, hop, Verb::Remove, Item::bare(member));
            }
        } else if let Some(oid) = group.oid {
            group.open += 1;
            self.requests.enqueue(
                Verb::Remove,
                ObjectType::NextHopGroup,
                Requester::Group(id),
                Item::bare(oid),
            );
        } else {
            if group.queued {
                self.groups.queue.retain(|queued| *queued != id);
            }
            let placed = self.groups.arena.get(id).placed;
            let hops = self.set_group_members(id, Arc::default());
            self.groups.arena.remove(id);
            self.routes.clear_resolved_rows();
            for hop in hops {
                self.forget_neighbor(hop, out);
            }
            if placed {
                self.place_freed(out);
            }
        }
    }

    /// Gives a freed place to the group that has waited longest and still wants it.
    fn place_freed(&mut self, out: &mut OrchOut) {
        self.groups.placed -= 1;
        let limit = self.groups.limit.unwrap_or(0);
        while self.groups.placed < limit {
            let Some(next) = self.groups.queue.pop_front() else { return };
            self.groups.arena.get_mut(next).queued = false;
            self.step_group(next, out);
        }
    }

    pub(super) fn group_reply(&mut self, id: u32, verb: Verb, item: Item, status: Status, out: &mut OrchOut) {
        let group = self.groups.arena.get_mut(id);
        group.open -= 1;
        match (verb, outcome(verb, status)) {
            (Verb::Create, Outcome::Done) => {
                group.oid = item.id.oid();
                self.crm.groups(1);
            }
            (Verb::Create, Outcome::TableFull | Outcome::Again) => {
                // The chip holds fewer than it says. Its routes may lead to a single hop meanwhile.
                group.placed = false;
                self.groups.placed -= 1;
                self.retry_when_freed(Requester::Group(id));
                return self.wake(Constraint::Group(id));
            }
            (Verb::Create, _) => {
                group.failed = true;
                group.placed = false;
                out.failed("a next-hop group", status);
                self.wake(Constraint::Group(id));
                return self.place_freed(out);
            }
            (_, Outcome::Done) => {
                group.oid = None;
                self.crm.groups(-1);
                self.room_freed(out);
            }
            (_, Outcome::TableFull | Outcome::Again) => return self.retry_when_freed(Requester::Group(id)),
            _ => return out.failed("the removal of a next-hop group", status),
        }
        self.step_group(id, out);
    }

    pub(super) fn member_reply(
        &mut self,
        id: u32,
        hop: u32,
        verb: Verb,
        item: Item,
        status: Status,
        out: &mut OrchOut,
    ) {
        let Some(oid) = item.id.oid() else { return };
        let group = self.groups.arena.get_mut(id);
        group.open -= 1;
        let result = outcome(verb, status);
        match (verb, result) {
            (Verb::Create, Outcome::Done) => {
                let weight = group.wanted.iter().find(|(h, _)| *h == hop).map_or(0, |(_, weight)| *weight);
                let given =
                    item.attrs.iter().any(|attr| matches!(attr, Attr::MemberWeight(w) if *w == weight));
                // What the wish became while the request was under way shows as a difference at the next step.
                let weight = if given || weight == 0 { weight } else { 0 };
                group.members.push(InChip { hop, weight, oid });
                self.crm.members(1);
            }
            (Verb::Set, Outcome::Done) => {
                let weight = item.attrs.iter().find_map(|attr| match attr {
                    Attr::MemberWeight(weight) => Some(*weight),
                    _ => None,
                });
                let wanted = group.wanted.iter().find(|(h, _)| *h == hop).map(|(_, weight)| *weight);
                if let Some(member) = group.members.iter_mut().find(|member| member.oid == oid) {
                    // A weight of 0 was asked for as 1.
                    member.weight =
                        if wanted == Some(0) && weight == Some(1) { 0 } else { weight.unwrap_or(0) };
                }
            }
            (Verb::Remove, Outcome::Done) => {
                group.members.retain(|member| member.oid != oid);
                self.crm.members(-1);
                self.release_hop(hop, out);
                self.room_freed(out);
            }
            (_, Outcome::TableFull | Outcome::Again) => {
                if verb == Verb::Create {
                    self.release_hop(hop, out);
                }
                if result == Outcome::TableFull {
                    return self.retry_when_freed(Requester::Group(id));
                }
            }
            _ => {
                out.failed("a member of a next-hop group", status);
                if verb == Verb::Create {
                    self.release_hop(hop, out);
                    // Without one member the group is not what routes asked for: they keep what they have.
                    self.groups.arena.get_mut(id).failed = true;
                    self.wake(Constraint::Group(id));
                }
                return;
            }
        }
        self.step_group(id, out);
    }

    pub(super) fn hold_group(&mut self, id: u32) {
        self.groups.arena.get_mut(id).refs += 1;
    }

    pub(super) fn release_group(&mut self, id: u32, out: &mut OrchOut) {
        let group = self.groups.arena.get_mut(id);
        group.refs -= 1;
        if group.refs == 0 && group.pins == 0 {
            self.step_group(id, out);
        }
    }

    pub(super) fn pin_group(&mut self, id: u32) {
        self.groups.arena.get_mut(id).pins += 1;
    }

    pub(super) fn unpin_group(&mut self, id: u32, out: &mut OrchOut) {
        let group = self.groups.arena.get_mut(id);
        group.pins -= 1;
        if group.refs == 0 && group.pins == 0 {
            self.step_group(id, out);
        }
    }

    /// Counts one who wants the group less, where another one takes its place at once.
    pub(super) fn hand_over_group(&mut self, id: u32) {
        self.groups.arena.get_mut(id).pins -= 1;
    }

    pub(super) fn set_table_full(&mut self, id: u32, table_full: bool) {
        self.groups.arena.get_mut(id).table_full = table_full;
    }

    /// The next hops that a group has in the chip, with their weights.
    pub(super) fn group_members(&self, id: u32) -> impl Iterator<Item = Member> {
        self.groups.arena.get(id).members.iter().map(|member| (member.hop, member.weight))
    }
}
