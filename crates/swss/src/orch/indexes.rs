//! NEXTHOP_GROUP_TABLE: groups that routes name by index.
//!
//! A row with one member is no group in the chip: the index then means that member's next hop. An index that got a
//! group keeps it, so that later changes stay one change of the group.

use super::arena::Arena;
use super::groups::{GroupKey, Member};
use super::parsed_row;
use super::retry_cache::Constraint;
use super::route_table::RouteId;
use super::{Orch, OrchOut};
use crate::row::{LabelStack, Name, NextHopGroupRow};
use ribtide_prefix::Set;
use std::sync::Arc;

/// What an index means.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Meaning {
    /// No row.
    Nothing,
    /// One next hop.
    Hop(u32),
    /// A group.
    Group(u32),
}

/// An index that a row or a route names.
pub(super) struct Index {
    pub(super) meaning: Meaning,
    /// The row was deleted while routes lead through it.
    del: bool,
    /// Routes in the chip, or on their way there, that name it.
    refs: u32,
    /// Routes that wait for it to mean something.
    pins: u32,
    /// Of these, those that do not lead to its group: they must be resolved again when its meaning changes.
    followers: Set<RouteId>,
}

/// All indexes.
#[derive(Default)]
pub(super) struct Indexes(Arena<Name, Index>);

impl Indexes {
    pub(super) fn id_of(&mut self, name: &Name) -> u32 {
        self.0.id_of(name, || Index {
            meaning: Meaning::Nothing,
            del: false,
            refs: 0,
            pins: 0,
            followers: Set::default(),
        })
    }

    pub(super) fn get(&self, id: u32) -> &Index {
        self.0.get(id)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn name(&self, id: u32) -> &Name {
        self.0.key(id)
    }
}

impl Orch {
    pub(super) fn sync_indexes(&mut self, out: &mut OrchOut) {
        for (name, pending) in self.inputs.indexes.take() {
            let id = self.indexes.id_of(&name);
            match pending.set {
                Some(row) => self.set_index(id, &row, out),
                None => {
                    self.indexes.0.get_mut(id).del = true;
                    self.drop_index(id, out);
                }
            }
        }
    }

    fn set_index(&mut self, id: u32, row: &NextHopGroupRow, out: &mut OrchOut) {
        let hops = match parsed_row::parse_group(&row.via) {
            Ok(hops) => hops,
            Err(why) => {
                out.refused(format_args!("next-hop group {}", self.indexes.name(id)), why);
                return self.forget_index(id);
            }
        };
        let members = self.members_of(&hops);
        let hop_will_do = !self.config.single_groups && !self.was_group(id);
        let index = self.indexes.0.get_mut(id);
        index.del = false;
        let before = index.meaning;
        match (before, members.as_ref()) {
            (Meaning::Group(group), _) => {
                let gone = self.set_group_members(group, members);
                self.step_group(group, out);
                for hop in gone {
                    self.forget_neighbor(hop, out);
                }
                // Routes that lead to one member meanwhile may lead to one that is no member now.
                return self.wake_through(id, before);
            }
            (_, [(hop, _)]) if hop_will_do => {
                index.meaning = Meaning::Hop(*hop);
                self.neighbors.get_mut(*hop).named += 1;
                self.resolve(*hop, out);
            }
            _ => {
                let group = self.group_id(GroupKey::Index(id), members.clone());
                self.indexes.0.get_mut(id).meaning = Meaning::Group(group);
                self.pin_group(group);
                // One of a deleted row may still be on its way out, with other members.
                for hop in self.set_group_members(group, members) {
                    self.forget_neighbor(hop, out);
                }
                self.step_group(group, out);
            }
        }
        self.wake_through(id, before);
        if let Meaning::Hop(hop) = before {
            self.unname_hop(hop, out);
        }
        if before != self.indexes.get(id).meaning {
            self.lead_followers(id);
        }
    }

    /// Routes that wait for what an index meant look at what it means now.
    fn wake_through(&mut self, id: u32, before: Meaning) {
        self.wake(match before {
            Meaning::Nothing => Constraint::Index(id),
            Meaning::Hop(hop) => Constraint::Hop(hop),
            Meaning::Group(group) => Constraint::Group(group),
        });
    }

    /// Forgets a deleted row once no route leads through it.
    fn drop_index(&mut self, id: u32, out: &mut OrchOut) {
        let index = self.indexes.0.get_mut(id);
        if !index.del || index.refs > 0 {
            return;
        }
        index.del = false;
        let before = std::mem::replace(&mut index.meaning, Meaning::Nothing);
        self.wake_through(id, before);
        match before {
            Meaning::Nothing => {}
            Meaning::Hop(hop) => self.unname_hop(hop, out),
            Meaning::Group(group) => self.unpin_group(group, out),
        }
        self.forget_index(id);
    }

    /// Forgets an index that means nothing and that no route names.
    fn forget_index(&mut self, id: u32) {
        let index = self.indexes.get(id);
        if index.meaning == Meaning::Nothing && index.refs == 0 && index.pins == 0 {
            self.indexes.0.remove(id);
            self.routes.clear_resolved_rows();
        }
    }

    pub(super) fn pin_index(&mut self, id: u32) {
        self.indexes.0.get_mut(id).pins += 1;
    }

    pub(super) fn unpin_index(&mut self, id: u32) {
        self.indexes.0.get_mut(id).pins -= 1;
        self.forget_index(id);
    }

    pub(super) fn unname_hop(&mut self, hop: u32, out: &mut OrchOut) {
        self.neighbors.get_mut(hop).named -= 1;
        self.forget_neighbor(hop, out);
    }

    /// A group became ready: if it is an index's, routes that lead elsewhere meanwhile come over.
    pub(super) fn index_moved(&mut self, group: u32) {
        if let Some(index) = self.index_of_group(group) {
            self.lead_followers(index);
        }
    }

    fn index_of_group(&self, group: u32) -> Option<u32> {
        match self.groups.key(group) {
            GroupKey::Index(index) => Some(*index),
            GroupKey::Members(_) => None,
        }
    }

    fn lead_followers(&mut self, id: u32) {
        // The group of an index that is forgotten may still be on its way out.
        if !self.indexes.0.contains(id) {
            return;
        }
        let followers: Vec<RouteId> = self.indexes.get(id).followers.iter().copied().collect();
        for route in followers {
            self.lead_again(route, id);
        }
    }

    pub(super) fn hold_index(&mut self, id: u32) {
        self.indexes.0.get_mut(id).refs += 1;
    }

    pub(super) fn release_index(&mut self, id: u32, out: &mut OrchOut) {
        let index = self.indexes.0.get_mut(id);
        index.refs -= 1;
        if index.refs == 0 {
            self.drop_index(id, out);
        }
    }

    pub(super) fn follow_index(&mut self, id: u32, route: RouteId, follows: bool) {
        let followers = &mut self.indexes.0.get_mut(id).followers;
        if follows {
            followers.insert(route);
        } else {
            followers.remove(&route);
        }
    }

    /// The members of a list of hops: each next hop once, in the order of interface, address and labels.
    pub(super) fn members_of(&mut self, hops: &[crate::row::Hop]) -> Arc<[Member]> {
        let mut members: Vec<(Name, std::net::IpAddr, Option<LabelStack>, Member)> =
            Vec::with_capacity(hops.len());
        for hop in hops {
            let interface = self.interfaces.id_of(&hop.ifname);
            let ip = parsed_row::gateway(hop);
            let mut id = self.neighbor_id(interface, ip);
            if let Some(labels) = &hop.labels {
                id = self.labelled_id(id, labels.clone());
            }
            members.push((hop.ifname.clone(), ip, hop.labels.clone(), (id, hop.weight)));
        }
        members.sort();
        members.dedup_by_key(|(.., (id, _))| *id);
        members.into_iter().map(|(.., member)| member).collect()
    }
}
