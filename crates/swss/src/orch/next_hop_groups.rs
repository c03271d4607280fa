//! Next-hop groups in the chip (`orchagent/routeorch.cpp`, `nhgorch.cpp`).
//!
//! A group of RouteOrch is identified by its members and shared by all routes that resolve to the
//! same. A group of NhgOrch is identified by its index in NEXTHOP_GROUP_TABLE and changed in place.
//! RouteOrch's group is created only when all its members are resolved; until then its routes use
//! one of them (RouteOrch::addTempRoute). Both kinds count against the chip's limit, and wait for a
//! free place in order of arrival.

use super::interfaces::Interfaces;
use super::neighbors::Neighbors;
use crate::orch::arena::Arena;
use crate::orch::bulker::{ObjectReply, Outcome, Requester};
use crate::orch::outbox::{Notification, Outbox};
use crate::orch::parsed_row;
use crate::orch::routes::Constraint;
use crate::row::{Hop, LabelStack, Name};
use crate::sai::{Attr, GroupType, Item, ObjectType, Oid, Verb};
use ribtide_prefix::Map;
use std::collections::{BTreeSet, VecDeque};
use std::net::IpAddr;
use std::sync::Arc;

/// A next hop in a group, and its weight (0: none given).
pub(super) type Member = (u32, u32);

/// What identifies a group.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum GroupKey {
    /// RouteOrch: the members, ordered, each next hop once.
    Members(Arc<[Member]>),
    /// NhgOrch: the index's number and name.
    Index(u32, Name),
}

/// A group member in the chip.
struct InChip {
    hop: u32,
    weight: u32,
    oid: Oid,
}

/// A group.
#[derive(Default)]
struct Group {
    wanted: Arc<[Member]>,
    oid: Option<Oid>,
    members: Vec<InChip>,
    /// Requests without a reply.
    open: u32,
    /// Routes may use it: since the last change of `wanted`, it had all members that are usable, and
    /// at least one.
    ready: bool,
    /// It has one of the chip's places, or has requested it.
    placed: bool,
    /// It waits for a place.
    queued: bool,
    /// Routes wait for it that found no usable member for the meantime.
    without_temporary: bool,
    /// Routes in the chip, or requested, that use it.
    refs: u32,
    /// Routes that wait for it; for an index, the row.
    pins: u32,
}

/// The next hops as groups see them.
pub(super) struct NextHops<'a> {
    pub(super) neighbors: &'a mut Neighbors,
    pub(super) interfaces: &'a Interfaces,
}

impl NextHops<'_> {
    fn usable(&self, hop: u32) -> Option<Oid> {
        self.neighbors.usable(hop, self.interfaces)
    }

    fn resolved(&self, hop: u32) -> bool {
        self.neighbors.resolved(hop, self.interfaces).is_some()
    }

    fn is_coming(&self, hop: u32) -> bool {
        self.neighbors.is_coming(hop, self.interfaces)
    }

    fn resolve(&mut self, hop: u32, outbox: &mut Outbox) {
        self.neighbors.resolve(hop, self.interfaces, outbox);
    }
}

/// Why a group cannot be used now.
pub(super) enum Unready {
    /// It will be in the chip without any other change.
    OnItsWay,
    /// Requests for its MPLS next hops are in flight, and all other members are resolved.
    MembersRequested,
    /// A member or a place is missing, or the chip refused a request. Carries the members that are
    /// usable.
    Waiting(Vec<u32>),
}

/// All groups.
pub(super) struct NextHopGroups {
    arena: Arena<GroupKey, Group>,
    /// The groups that want each next hop.
    by_next_hop: Map<u32, BTreeSet<u32>>,
    limit: Option<u32>,
    /// Places taken.
    placed: u32,
    /// Groups that wait for a place.
    queue: VecDeque<u32>,
    random: u64,
}

impl NextHopGroups {
    /// No group. `seed`: of the choice of temporary next hops.
    pub(super) fn new(seed: u64) -> Self {
        NextHopGroups {
            arena: Arena::default(),
            by_next_hop: Map::default(),
            limit: None,
            placed: 0,
            queue: VecDeque::new(),
            random: seed,
        }
    }

    /// Sets how many groups the chip holds, as it says.
    pub(super) fn set_limit(&mut self, limit: u32) {
        self.limit = Some(limit);
    }

    /// Fixes the limit at the chip's count, or `default`, but at most `cap`. Returns it.
    pub(super) fn fix_limit(&mut self, default: u32, cap: Option<u32>) -> u32 {
        let limit = self.limit.unwrap_or(default).min(cap.unwrap_or(u32::MAX));
        self.limit = Some(limit);
        limit
    }

    /// Whether routes may use the group.
    pub(super) fn ready(&self, id: u32) -> bool {
        self.arena.get(id).ready
    }

    /// The group's id in the chip; null when the chip does not have it.
    pub(super) fn oid(&self, id: u32) -> Oid {
        self.arena.get(id).oid.unwrap_or_default()
    }

    /// Whether it waits for a place in the chip.
    pub(super) fn waits_for_place(&self, id: u32) -> bool {
        self.arena.get(id).queued
    }

    fn on_its_way(&self, id: u32, outbox: &Outbox) -> bool {
        let group = self.arena.get(id);
        group.open > 0 || (group.oid.is_some() && self.held_member(id, outbox).is_none())
    }

    /// A next hop whose member waits for the retry of a refused request.
    fn held_member(&self, id: u32, outbox: &Outbox) -> Option<u32> {
        if outbox.back_off.len() == 0 {
            return None;
        }
        let group = self.arena.get(id);
        let wanted = group.wanted.iter().map(|(hop, _)| *hop);
        let mut hops = wanted.chain(group.members.iter().map(|member| member.hop));
        hops.find(|hop| outbox.back_off.holds(&Requester::Member(id, *hop)))
    }

    /// The refused request of the group or of one of its members, if one waits for its retry.
    pub(super) fn held(&self, id: u32, outbox: &Outbox) -> Option<Requester> {
        let member = self.held_member(id, outbox).map(|hop| Requester::Member(id, hop));
        member.or_else(|| Some(Requester::Group(id)).filter(|group| outbox.back_off.holds(group)))
    }

    /// Whether a request in flight, for the group or for one of its members, will make it ready.
    pub(super) fn is_requested(&self, id: u32, neighbors: &Neighbors, outbox: &Outbox) -> bool {
        let wanted = &self.arena.get(id).wanted;
        self.on_its_way(id, outbox) || wanted.iter().any(|(hop, _)| neighbors.is_requested(*hop))
    }

    /// Counts of groups that are known, have a place, and wait for one.
    #[cfg(test)]
    pub(super) fn places(&self) -> (usize, u32, usize) {
        (self.arena.len(), self.placed, self.queue.len())
    }

    /// Every group that is known.
    pub(super) fn ids(&self) -> Vec<u32> {
        self.arena.iter().map(|(id, ..)| id).collect()
    }

    /// The members that the group shall have.
    pub(super) fn wanted(&self, id: u32) -> &[Member] {
        &self.arena.get(id).wanted
    }

    /// The members that the group has in the chip.
    pub(super) fn members(&self, id: u32) -> impl Iterator<Item = Member> {
        self.arena.get(id).members.iter().map(|member| (member.hop, member.weight))
    }

    /// The group's number; a new group gets one, and these members. [`NextHopGroups::step`]
    /// requests it.
    pub(super) fn id_of(
        &mut self,
        key: GroupKey,
        members: &Arc<[Member]>,
        neighbors: &mut Neighbors,
        outbox: &mut Outbox,
    ) -> u32 {
        if let Some(id) = self.arena.find(&key) {
            return id;
        }
        let id = self.arena.id_of(&key, Group::default);
        self.set_members(id, members.clone(), neighbors, outbox);
        id
    }

    /// Sets the members that a group shall have.
    pub(super) fn set_members(
        &mut self,
        id: u32,
        members: Arc<[Member]>,
        neighbors: &mut Neighbors,
        outbox: &mut Outbox,
    ) {
        let group = self.arena.get_mut(id);
        let before = std::mem::replace(&mut group.wanted, members.clone());
        // A route that comes now is confirmed when the chip has these members.
        group.ready &= before == members;
        outbox.back_off.forget(&Requester::Group(id));
        for (hop, _) in before.iter().chain(members.iter()) {
            outbox.back_off.forget(&Requester::Member(id, *hop));
        }
        for (hop, _) in members.iter() {
            if self.by_next_hop.entry(*hop).or_default().insert(id) {
                neighbors.pin(*hop);
            }
        }
        for (hop, _) in before.iter().filter(|(hop, _)| members.iter().all(|(h, _)| h != hop)) {
            if let Some(groups) = self.by_next_hop.get_mut(hop) {
                groups.remove(&id);
                if groups.is_empty() {
                    self.by_next_hop.remove(hop);
                }
            }
            neighbors.unpin(*hop, outbox);
        }
    }

    /// Requests the group for a route that will wait for it, and returns why it is not ready.
    pub(super) fn request(&mut self, id: u32, hops: &mut NextHops<'_>, outbox: &mut Outbox) -> Unready {
        // The pin of the route's wait: a group without users would be removed.
        self.pin(id);
        self.step(id, hops, outbox);
        self.arena.get_mut(id).pins -= 1;
        if self.on_its_way(id, outbox) {
            return Unready::OnItsWay;
        }
        let members = &self.arena.get(id).wanted;
        let is_requested = |hop: u32| hops.neighbors.is_labelled_requested(hop);
        if members.iter().any(|(hop, _)| is_requested(*hop))
            && members.iter().all(|(hop, _)| hops.resolved(*hop) || is_requested(*hop))
        {
            self.arena.get_mut(id).without_temporary = true;
            return Unready::MembersRequested;
        }
        let usable = members.iter().map(|(hop, _)| *hop).filter(|hop| hops.usable(*hop).is_some());
        Unready::Waiting(usable.collect())
    }

    /// A next hop for a route that waits for the group: `current` if it is usable, else one by
    /// chance.
    pub(super) fn temporary(&mut self, id: u32, usable: &[u32], current: Option<u32>) -> Option<u32> {
        let stays = current.filter(|hop| usable.contains(hop));
        let chosen = stays.or_else(|| self.choose(usable));
        if chosen.is_none() {
            self.arena.get_mut(id).without_temporary = true;
        }
        chosen
    }

    /// One of `choices` by chance, from the seed (SplitMix64); `None` when there is none.
    fn choose(&mut self, choices: &[u32]) -> Option<u32> {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        choices.get(z.checked_rem(choices.len() as u64)? as usize).copied()
    }

    /// Steps the groups of a next hop that became usable or unusable.
    pub(super) fn next_hop_changed(&mut self, hop: u32, hops: &mut NextHops<'_>, outbox: &mut Outbox) {
        let usable = hops.usable(hop).is_some();
        let groups: Vec<u32> = self.by_next_hop.get(&hop).into_iter().flatten().copied().collect();
        for id in groups {
            self.step(id, hops, outbox);
            if !self.arena.contains(id) {
                continue;
            }
            let group = self.arena.get_mut(id);
            // Waiting routes may get a temporary next hop: the first that is usable, or another
            // when theirs is gone.
            if !group.ready && (!usable || std::mem::take(&mut group.without_temporary)) {
                outbox.notify(Notification::Wake(Constraint::Group(id)));
            }
        }
    }

    /// Requests the next change that brings the group closer to its members.
    pub(super) fn step(&mut self, id: u32, hops: &mut NextHops<'_>, outbox: &mut Outbox) {
        if !self.arena.contains(id) {
            return;
        }
        let group = self.arena.get(id);
        if group.open > 0 {
            return;
        }
        if group.refs == 0 && group.pins == 0 {
            return self.remove(id, hops, outbox);
        }
        let wanted = group.wanted.clone();
        let Some(oid) = group.oid else {
            return self.create(id, &wanted, hops, outbox);
        };
        for (hop, _) in wanted.iter() {
            hops.resolve(*hop, outbox);
        }
        let usable: Vec<Member> =
            wanted.iter().copied().filter(|(hop, _)| hops.usable(*hop).is_some()).collect();
        let group = self.arena.get(id);
        let is_in = |hop: u32| group.members.iter().any(|member| member.hop == hop);
        let mut missing: Vec<Member> = usable.iter().copied().filter(|(hop, _)| !is_in(*hop)).collect();
        // While the chip refuses every new member, those of before carry the group's packets.
        let keeps_old = !missing.is_empty() && usable.iter().all(|(hop, _)| !is_in(*hop));
        let mut reweighed: Vec<(u32, Oid, u32)> = (group.members.iter())
            .filter_map(|member| {
                let (_, weight) = usable.iter().find(|(hop, w)| *hop == member.hop && *w != member.weight)?;
                Some((member.hop, member.oid, *weight))
            })
            .collect();
        let mut extra: Vec<(u32, Oid)> = (group.members.iter())
            .filter(|member| usable.iter().all(|(hop, _)| *hop != member.hop))
            .map(|member| (member.hop, member.oid))
            .collect();
        let is_complete = missing.is_empty() && reweighed.is_empty() && extra.is_empty();
        let held = |hop: u32| outbox.back_off.holds(&Requester::Member(id, hop));
        missing.retain(|(hop, _)| !held(*hop));
        reweighed.retain(|(hop, ..)| !held(*hop));
        extra.retain(|(hop, _)| !(held(*hop) || keeps_old && hops.usable(*hop).is_some()));
        // New members come before old ones go, so that a group is not empty in between.
        if !missing.is_empty() {
            for (hop, weight) in missing {
                hops.neighbors.hold(hop);
                let attrs = [Attr::MemberGroup(oid), Attr::MemberNextHop(hops.neighbors.oid(hop))];
                let weight = (weight > 0).then_some(Attr::MemberWeight(weight));
                let member = outbox.object_id(ObjectType::NextHopGroupMember, &attrs);
                let item = Item::new(member, attrs.into_iter().chain(weight));
                self.request_member(id, hop, Verb::Create, item, outbox);
            }
        } else if !reweighed.is_empty() {
            for (hop, member, weight) in reweighed {
                // Members without a weight have equal shares: weight 1.
                let item = Item::new(member, [Attr::MemberWeight(weight.max(1))]);
                self.request_member(id, hop, Verb::Set, item, outbox);
            }
        } else if !extra.is_empty() {
            for (hop, member) in extra {
                self.request_member(id, hop, Verb::Remove, Item::bare(member), outbox);
            }
        } else if is_complete && !usable.is_empty() && !self.ready(id) {
            self.arena.get_mut(id).ready = true;
            outbox.notify(Notification::Wake(Constraint::Group(id)));
            // Routes of the index that use a temporary next hop change to the group.
            if let GroupKey::Index(index, _) = self.arena.key(id) {
                outbox.notify(Notification::IndexChanged(*index));
            }
        }
    }

    fn request_member(&mut self, group: u32, hop: u32, verb: Verb, item: Item, outbox: &mut Outbox) {
        self.arena.get_mut(group).open += 1;
        let requester = Requester::Member(group, hop);
        outbox.bulker.enqueue(verb, ObjectType::NextHopGroupMember, requester, item);
    }

    /// Requests a group that the chip does not have, when its members and a place allow it.
    fn create(&mut self, id: u32, wanted: &[Member], hops: &mut NextHops<'_>, outbox: &mut Outbox) {
        let unresolved: Vec<u32> =
            wanted.iter().map(|(hop, _)| *hop).filter(|hop| !hops.resolved(*hop)).collect();
        for hop in &unresolved {
            hops.resolve(*hop, outbox);
        }
        // A warm start recognises the previous group by all its members.
        if outbox.ids.is_restoring() && unresolved.iter().any(|hop| hops.is_coming(*hop)) {
            return;
        }
        let index = match self.arena.key(id) {
            GroupKey::Members(_) => None,
            GroupKey::Index(_, name) => Some(name.clone()),
        };
        let any_usable = wanted.iter().any(|(hop, _)| hops.usable(*hop).is_some());
        // The group of an index does with the members that are resolved.
        if index.is_none() && !unresolved.is_empty() || !any_usable {
            return;
        }
        if outbox.back_off.holds(&Requester::Group(id)) {
            return;
        }
        let limit = self.limit.unwrap_or(0);
        let group = self.arena.get_mut(id);
        if !group.placed {
            if self.placed >= limit {
                if !group.queued {
                    group.queued = true;
                    self.queue.push_back(id);
                }
                return;
            }
            group.placed = true;
            self.placed += 1;
        }
        group.open += 1;
        let members = wanted.iter().filter_map(|(hop, weight)| Some((hops.usable(*hop)?, (*weight).max(1))));
        let oid = outbox.group_id(members, index.as_ref());
        let item = Item::new(oid, [Attr::GroupKind(GroupType::DynamicUnorderedEcmp)]);
        outbox.bulker.enqueue(Verb::Create, ObjectType::NextHopGroup, Requester::Group(id), item);
    }

    /// Removes a group without users from the chip, members first, and forgets it.
    fn remove(&mut self, id: u32, hops: &mut NextHops<'_>, outbox: &mut Outbox) {
        let group = self.arena.get_mut(id);
        let was_ready = std::mem::take(&mut group.ready);
        if !group.members.is_empty() {
            let members: Vec<(u32, Oid)> =
                group.members.iter().map(|member| (member.hop, member.oid)).collect();
            for (hop, member) in members {
                let requester = Requester::Member(id, hop);
                if was_ready {
                    outbox.back_off.forget(&requester);
                } else if outbox.back_off.holds(&requester) {
                    continue;
                }
                self.request_member(id, hop, Verb::Remove, Item::bare(member), outbox);
            }
            return;
        }
        if let Some(oid) = group.oid {
            if outbox.back_off.holds(&Requester::Group(id)) {
                return;
            }
            group.open += 1;
            let item = Item::bare(oid);
            outbox.bulker.enqueue(Verb::Remove, ObjectType::NextHopGroup, Requester::Group(id), item);
            return;
        }
        let (queued, placed) = (group.queued, group.placed);
        if queued {
            self.queue.retain(|queued| *queued != id);
        }
        self.set_members(id, Arc::default(), hops.neighbors, outbox);
        self.arena.remove(id);
        outbox.notify(Notification::NumberFreed);
        if placed {
            self.place_freed(hops, outbox);
        }
    }

    /// Gives a freed place to the group that has waited longest and still wants it.
    fn place_freed(&mut self, hops: &mut NextHops<'_>, outbox: &mut Outbox) {
        self.placed -= 1;
        let limit = self.limit.unwrap_or(0);
        while self.placed < limit {
            let Some(next) = self.queue.pop_front() else { return };
            self.arena.get_mut(next).queued = false;
            self.step(next, hops, outbox);
        }
    }

    /// Takes in the reply to a request for a group.
    pub(super) fn reply(
        &mut self,
        id: u32,
        reply: ObjectReply,
        hops: &mut NextHops<'_>,
        outbox: &mut Outbox,
    ) {
        let group = self.arena.get_mut(id);
        group.open -= 1;
        match (reply.verb, reply.outcome()) {
            (Verb::Create, Outcome::Done) => {
                group.oid = reply.oid();
                outbox.back_off.forget(&Requester::Group(id));
                outbox.crm.groups(1);
            }
            (Verb::Create, outcome) => {
                group.placed = false;
                outbox.refused(Requester::Group(id), &reply, "a next-hop group");
                // Routes may get a temporary next hop.
                outbox.notify(Notification::Wake(Constraint::Group(id)));
                match outcome {
                    // The chip holds fewer groups than it says.
                    Outcome::TableFull => self.placed -= 1,
                    _ => self.place_freed(hops, outbox),
                }
            }
            (_, Outcome::Done) => {
                group.oid = None;
                outbox.back_off.forget(&Requester::Group(id));
                outbox.crm.groups(-1);
                outbox.room_freed();
            }
            _ => drop(outbox.refused(Requester::Group(id), &reply, "the removal of a next-hop group")),
        }
        self.step(id, hops, outbox);
    }

    /// Takes in the reply to a request for a group's member.
    pub(super) fn member_reply(
        &mut self,
        id: u32,
        hop: u32,
        reply: ObjectReply,
        hops: &mut NextHops<'_>,
        outbox: &mut Outbox,
    ) {
        let Some(oid) = reply.oid() else { return };
        let (verb, outcome, item) = (reply.verb, reply.outcome(), &reply.item);
        let group = self.arena.get_mut(id);
        group.open -= 1;
        if outcome == Outcome::Done {
            outbox.back_off.forget(&Requester::Member(id, hop));
        }
        match (verb, outcome) {
            (Verb::Create, Outcome::Done) => {
                let weight = group.wanted.iter().find(|(h, _)| *h == hop).map_or(0, |(_, weight)| *weight);
                let given =
                    item.attrs.iter().any(|attr| matches!(attr, Attr::MemberWeight(w) if *w == weight));
                // A weight that changed while the request was in flight differs at the next step.
                let weight = if given || weight == 0 { weight } else { 0 };
                group.members.push(InChip { hop, weight, oid });
                outbox.crm.members(1);
            }
            (Verb::Set, Outcome::Done) => {
                let weight = item.attrs.iter().find_map(|attr| match attr {
                    Attr::MemberWeight(weight) => Some(*weight),
                    _ => None,
                });
                let wanted = group.wanted.iter().find(|(h, _)| *h == hop).map(|(_, weight)| *weight);
                if let Some(member) = group.members.iter_mut().find(|member| member.oid == oid) {
                    // A weight of 0 was requested as 1.
                    member.weight =
                        if wanted == Some(0) && weight == Some(1) { 0 } else { weight.unwrap_or(0) };
                }
            }
            (Verb::Remove, Outcome::Done) => {
                group.members.retain(|member| member.oid != oid);
                outbox.crm.members(-1);
                hops.neighbors.release(hop, outbox);
                outbox.room_freed();
            }
            _ => {
                // The chip lost the member: it is created again.
                let lost = (verb, outcome) == (Verb::Set, Outcome::Missing);
                if lost {
                    group.members.retain(|member| member.oid != oid);
                    outbox.crm.members(-1);
                }
                let ready = group.ready;
                if verb == Verb::Create || lost {
                    hops.neighbors.release(hop, outbox);
                }
                if outcome != Outcome::Again {
                    outbox.refused(Requester::Member(id, hop), &reply, "a member of a next-hop group");
                    if !ready {
                        // Routes may get a temporary next hop.
                        outbox.notify(Notification::Wake(Constraint::Group(id)));
                    }
                }
            }
        }
        self.step(id, hops, outbox);
    }

    /// Counts a route that uses the group.
    pub(super) fn hold(&mut self, id: u32) {
        self.arena.get_mut(id).refs += 1;
    }

    /// Counts a route less.
    pub(super) fn release(&mut self, id: u32, outbox: &mut Outbox) {
        self.arena.get_mut(id).refs -= 1;
        self.notify_released(id, outbox);
    }

    /// Counts a waiting route, or the row of an index.
    pub(super) fn pin(&mut self, id: u32) {
        self.arena.get_mut(id).pins += 1;
    }

    /// Counts a waiting route less, or the row of an index.
    pub(super) fn unpin(&mut self, id: u32, outbox: &mut Outbox) {
        self.arena.get_mut(id).pins -= 1;
        self.notify_released(id, outbox);
    }

    fn notify_released(&self, id: u32, outbox: &mut Outbox) {
        let group = self.arena.get(id);
        if group.refs == 0 && group.pins == 0 {
            outbox.notify(Notification::GroupReleased(id));
        }
    }
}

/// The members that a row's next hops are: each next hop once, in the order of interface, address
/// and labels.
pub(super) fn members_of(
    hops: &[Hop],
    neighbors: &mut Neighbors,
    interfaces: &mut Interfaces,
) -> Arc<[Member]> {
    let mut members: Vec<(Name, IpAddr, Option<LabelStack>, Member)> = Vec::with_capacity(hops.len());
    for hop in hops {
        let ip = parsed_row::gateway(hop);
        let mut id = neighbors.id_of(interfaces.id_of(&hop.ifname), ip);
        if let Some(labels) = &hop.labels {
            id = neighbors.labelled_id(id, labels.clone());
        }
        members.push((hop.ifname.clone(), ip, hop.labels.clone(), (id, hop.weight)));
    }
    members.sort();
    members.dedup_by_key(|(.., (id, _))| *id);
    members.into_iter().map(|(.., member)| member).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::Mac;
    use crate::sai::VidCounter;

    struct Parts {
        groups: NextHopGroups,
        neighbors: Neighbors,
        interfaces: Interfaces,
        outbox: Outbox,
    }

    impl Parts {
        fn new() -> Parts {
            Parts {
                groups: NextHopGroups::new(0),
                neighbors: Neighbors::default(),
                interfaces: Interfaces::new(Mac::default()),
                outbox: Outbox::new(Box::new(VidCounter::default()), 1000),
            }
        }

        /// A group of unresolved next hops 10.0.0.*n*, and its members.
        fn group(&mut self, hosts: &[u8]) -> (u32, Arc<[Member]>) {
            let hop = |n: &u8| Hop {
                gateway: Some(IpAddr::from([10, 0, 0, *n])),
                ifname: "Ethernet0".into(),
                weight: 0,
                labels: None,
            };
            let hops: Vec<Hop> = hosts.iter().map(hop).collect();
            let members = members_of(&hops, &mut self.neighbors, &mut self.interfaces);
            let key = GroupKey::Members(members.clone());
            (self.groups.id_of(key, &members, &mut self.neighbors, &mut self.outbox), members)
        }

        fn request(&mut self, id: u32) -> Unready {
            let hops = &mut NextHops { neighbors: &mut self.neighbors, interfaces: &self.interfaces };
            self.groups.request(id, hops, &mut self.outbox)
        }

        fn step(&mut self, id: u32) {
            let hops = &mut NextHops { neighbors: &mut self.neighbors, interfaces: &self.interfaces };
            self.groups.step(id, hops, &mut self.outbox);
        }
    }

    #[test]
    fn members_of_repeated_next_hop_is_one_member() {
        let mut parts = Parts::new();
        let (_, members) = parts.group(&[3, 2, 3]);
        assert_eq!(members.len(), 2);
    }

    #[test]
    fn group_with_unresolved_members_waits_and_resolves_them() {
        let mut parts = Parts::new();
        let (id, _) = parts.group(&[2, 3]);
        assert!(matches!(parts.request(id), Unready::Waiting(usable) if usable.is_empty()));
        assert_eq!(parts.outbox.out.resolve.len(), 2);
        assert!(parts.outbox.bulker.idle() && !parts.groups.ready(id));
        assert_eq!(parts.groups.temporary(id, &[], None), None);
        assert_eq!(parts.groups.temporary(id, &[7], None), Some(7));
        assert_eq!(parts.groups.temporary(id, &[5, 6, 7], Some(6)), Some(6));
    }

    #[test]
    fn group_without_users_is_forgotten_and_unpins_its_members() {
        let mut parts = Parts::new();
        let (id, members) = parts.group(&[2, 3]);
        parts.step(id);
        assert_eq!(parts.groups.places(), (0, 0, 0));
        for (hop, _) in members.iter() {
            assert_eq!(parts.outbox.next_notification(), Some(Notification::NextHopUnpinned(*hop)));
        }
        assert_eq!(parts.outbox.next_notification(), Some(Notification::NumberFreed));
    }
}
