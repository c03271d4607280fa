//! NEXTHOP_GROUP_TABLE (`orchagent/nhgorch.cpp`): groups that routes name by index.
//!
//! A row with one member is no group in the chip: the index then stands for that member's next hop.
//! An index that got a group keeps it, so that later changes stay one change of the group.

use super::interfaces::Interfaces;
use super::neighbors::Neighbors;
use super::next_hop_groups::{GroupKey, NextHopGroups, NextHops, members_of};
use crate::orch::arena::Arena;
use crate::orch::next_hop_ref::Target;
use crate::orch::outbox::{Notification, Outbox};
use crate::orch::parsed_row;
use crate::orch::routes::{Constraint, RouteId};
use crate::orch::to_sync::ToSync;
use crate::row::{Change, Name, NextHopGroupRow};
use ribtide_prefix::Set;

/// What an index stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// It has no row.
    Nothing,
    /// One next hop.
    NextHop(u32),
    /// A group.
    Group(u32),
}

/// An index that a row or a route names.
struct Index {
    meaning: Meaning,
    /// The row was deleted while routes used it.
    del: bool,
    /// Routes in the chip, or requested, that name it.
    refs: u32,
    /// Routes that wait for its row.
    pins: u32,
    /// Routes that name it and do not use its group. They are resolved again when its meaning
    /// changes.
    followers: Set<RouteId>,
}

/// All indexes.
pub(super) struct NhgTable {
    to_sync: ToSync<NextHopGroupRow>,
    arena: Arena<Name, Index>,
    /// Creates a group even for a row with one member.
    single_groups: bool,
}

/// The parts below the table.
pub(super) struct Below<'a> {
    pub(super) groups: &'a mut NextHopGroups,
    pub(super) neighbors: &'a mut Neighbors,
    pub(super) interfaces: &'a mut Interfaces,
}

impl Below<'_> {
    fn step_group(&mut self, group: u32, outbox: &mut Outbox) {
        let hops = &mut NextHops { neighbors: self.neighbors, interfaces: self.interfaces };
        self.groups.step(group, hops, outbox);
    }
}

impl NhgTable {
    pub(super) fn new(single_groups: bool) -> NhgTable {
        NhgTable { to_sync: ToSync::default(), arena: Arena::default(), single_groups }
    }

    /// Takes in a change of NEXTHOP_GROUP_TABLE.
    pub(super) fn add(&mut self, change: Change<NextHopGroupRow>) {
        self.to_sync.add(change);
    }

    /// Changes that were not handled yet.
    pub(super) fn pending_len(&self) -> usize {
        self.to_sync.len()
    }

    /// The number of an index; a new one gets a number.
    pub(super) fn id_of(&mut self, name: &Name) -> u32 {
        self.arena.id_of(name, || Index {
            meaning: Meaning::Nothing,
            del: false,
            refs: 0,
            pins: 0,
            followers: Set::default(),
        })
    }

    /// What an index stands for.
    pub(super) fn meaning(&self, id: u32) -> Meaning {
        self.arena.get(id).meaning
    }

    /// The object that an index stands for; `None` when it has no row.
    pub(super) fn target(&self, id: u32) -> Option<Target> {
        match self.meaning(id) {
            Meaning::Nothing => None,
            Meaning::NextHop(hop) => Some(Target::NextHop(hop)),
            Meaning::Group(group) => Some(Target::Group(group)),
        }
    }

    /// Whether a change of the index was not handled yet.
    pub(super) fn is_pending(&self, name: &Name) -> bool {
        self.to_sync.contains(name)
    }

    /// What the row of an index made of it; [`Meaning::Nothing`] without a row.
    pub(super) fn meaning_of_row(&self, name: &Name) -> Meaning {
        let index = self.arena.find(name).map(|id| self.arena.get(id));
        index.filter(|index| !index.del).map_or(Meaning::Nothing, |index| index.meaning)
    }

    /// The names of all indexes that are known.
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.arena.iter().map(|(_, name, _)| name)
    }

    /// Indexes that are known.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.arena.len()
    }

    pub(super) fn name(&self, id: u32) -> &Name {
        self.arena.key(id)
    }

    /// Handles the changes of NEXTHOP_GROUP_TABLE.
    pub(super) fn sync(&mut self, below: &mut Below<'_>, outbox: &mut Outbox) {
        for (name, pending) in self.to_sync.take() {
            let id = self.id_of(&name);
            match pending.set {
                Some(row) => self.set(id, &row, below, outbox),
                None => {
                    self.arena.get_mut(id).del = true;
                    self.remove_if_unused(id, below.groups, below.neighbors, outbox);
                }
            }
        }
    }

    fn set(&mut self, id: u32, row: &NextHopGroupRow, below: &mut Below<'_>, outbox: &mut Outbox) {
        let hops = match parsed_row::parse_group(&row.via) {
            Ok(hops) => hops,
            Err(why) => {
                outbox.out.refused(format_args!("next-hop group {}", self.name(id)), why);
                return self.forget(id, outbox);
            }
        };
        let members = members_of(&hops, below.neighbors, below.interfaces);
        let may_be_next_hop = !self.single_groups && !outbox.ids.was_group(self.name(id));
        let key = GroupKey::Index(id, self.name(id).clone());
        let index = self.arena.get_mut(id);
        index.del = false;
        let before = index.meaning;
        match (before, members.as_ref()) {
            (Meaning::Group(group), _) => {
                below.groups.set_members(group, members, below.neighbors, outbox);
                below.step_group(group, outbox);
                // A temporary next hop of a waiting route may be no member any more.
                return wake(id, before, outbox);
            }
            (_, [(hop, _)]) if may_be_next_hop => {
                index.meaning = Meaning::NextHop(*hop);
                below.neighbors.pin(*hop);
                below.neighbors.resolve(*hop, below.interfaces, outbox);
            }
            _ => {
                let group = below.groups.id_of(key, &members, below.neighbors, outbox);
                index.meaning = Meaning::Group(group);
                below.groups.pin(group);
                // The group of a deleted row may still be in the chip, with other members.
                below.groups.set_members(group, members, below.neighbors, outbox);
                below.step_group(group, outbox);
            }
        }
        wake(id, before, outbox);
        if let Meaning::NextHop(hop) = before {
            below.neighbors.unpin(hop, outbox);
        }
        if before != self.meaning(id) {
            outbox.notify(Notification::IndexChanged(id));
        }
    }

    /// Removes a deleted row when no route uses it.
    pub(super) fn remove_if_unused(
        &mut self,
        id: u32,
        groups: &mut NextHopGroups,
        neighbors: &mut Neighbors,
        outbox: &mut Outbox,
    ) {
        if !self.arena.contains(id) {
            return;
        }
        let index = self.arena.get_mut(id);
        if !index.del || index.refs > 0 {
            return;
        }
        index.del = false;
        let before = std::mem::replace(&mut index.meaning, Meaning::Nothing);
        wake(id, before, outbox);
        match before {
            Meaning::Nothing => {}
            Meaning::NextHop(hop) => neighbors.unpin(hop, outbox),
            Meaning::Group(group) => groups.unpin(group, outbox),
        }
        self.forget(id, outbox);
    }

    /// Forgets an index without a row that no route names. Its number may be used again.
    pub(super) fn forget(&mut self, id: u32, outbox: &mut Outbox) {
        if !self.arena.contains(id) {
            return;
        }
        let index = self.arena.get(id);
        if index.meaning == Meaning::Nothing && index.refs == 0 && index.pins == 0 {
            self.arena.remove(id);
            outbox.notify(Notification::NumberFreed);
        }
    }

    /// Counts a waiting route that names the index.
    pub(super) fn pin(&mut self, id: u32) {
        self.arena.get_mut(id).pins += 1;
    }

    /// Counts a waiting route less.
    pub(super) fn unpin(&mut self, id: u32, outbox: &mut Outbox) {
        let index = self.arena.get_mut(id);
        index.pins -= 1;
        if index.pins == 0 {
            outbox.notify(Notification::IndexUnpinned(id));
        }
    }

    /// Counts a route that names the index.
    pub(super) fn hold(&mut self, id: u32) {
        self.arena.get_mut(id).refs += 1;
    }

    /// Counts a route less.
    pub(super) fn release(&mut self, id: u32, outbox: &mut Outbox) {
        let index = self.arena.get_mut(id);
        index.refs -= 1;
        if index.refs == 0 {
            outbox.notify(Notification::IndexReleased(id));
        }
    }

    /// Notes whether a route names the index without using its group.
    pub(super) fn set_follower(&mut self, id: u32, route: RouteId, follows: bool) {
        let followers = &mut self.arena.get_mut(id).followers;
        if follows {
            followers.insert(route);
        } else {
            followers.remove(&route);
        }
    }

    /// The routes that name the index without using its group.
    pub(super) fn followers(&self, id: u32) -> Vec<RouteId> {
        // The group of a forgotten index may still be in the chip.
        match self.arena.contains(id) {
            true => self.arena.get(id).followers.iter().copied().collect(),
            false => Vec::new(),
        }
    }
}

/// Wakes the routes that wait for what an index stood for.
fn wake(id: u32, before: Meaning, outbox: &mut Outbox) {
    outbox.notify(Notification::Wake(match before {
        Meaning::Nothing => Constraint::Index(id),
        Meaning::NextHop(hop) => Constraint::NextHop(hop),
        Meaning::Group(group) => Constraint::Group(group),
    }));
}
