//! Circles of targets: targets whose answers depend on themselves. See
//! `docs/adr/0020-next-hop-resolution.md`, section 4.
//!
//! A target is *blocked* by the first unresolved group on its walk; a group waits for its targets.
//! One depth-first search answers what it can on its path. It finds the strongly connected
//! components of the remaining targets (Tarjan 1972). A component is complete when all other
//! targets that it reaches have answers. Then it is a circle and is decided at once. So the search
//! walks each edge once.
//!
//! The search has a stack of its own: a hostile peer may advertise a chain as long as its table.

use crate::message::NextHops;
use crate::resolver::{LookupResult, Resolver};
use crate::table::RouteTables;
use std::collections::BTreeSet;

/// A target's place in a search.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Place {
    /// The order in which it was first reached, from 1; 0 while it is not on the stack.
    index: u32,
    /// The least index that it reaches.
    low: u32,
    /// The group that blocks it.
    blocked: u32,
}

/// A target on the path of the search.
struct Frame {
    node: u32,
    /// The group that it waits for, and how many of that group's targets were visited.
    waits: Option<(u32, usize)>,
}

/// A search; empty between two calls of [`Resolver::search`].
#[derive(Default)]
pub(crate) struct Search {
    frames: Vec<Frame>,
    /// Targets that were reached and have no answer yet.
    open: Vec<u32>,
    reached: u32,
}

impl Search {
    /// Removes and returns the open targets from `id` on.
    fn from(&mut self, id: u32) -> Vec<u32> {
        self.open.split_off(self.position(id))
    }

    /// Removes and returns the open targets that were reached after `id`.
    fn above(&mut self, id: u32) -> Vec<u32> {
        self.open.split_off(self.position(id) + 1)
    }

    fn position(&self, id: u32) -> usize {
        self.open.iter().rposition(|open| *open == id).expect("a target that waits is open")
    }
}

impl Resolver {
    /// Answers `root` and every target that it depends on.
    pub(crate) fn search(&mut self, tables: &RouteTables, root: u32, search: &mut Search) {
        search.frames.push(Frame { node: root, waits: None });
        while let Some(Frame { node, waits }) = search.frames.last_mut() {
            let (id, now) = (*node, *waits);
            if !self.nodes[id].stale {
                search.frames.pop();
                continue;
            }
            let Some((group, looked)) = now else {
                match self.evaluate(tables, id) {
                    LookupResult::Resolution(resolution) => {
                        self.settle(id, resolution);
                        // The open targets that it reached depend on it. Its answer makes the
                        // search visit them again.
                        if self.nodes[id].search.index > 0 {
                            let open = search.from(id);
                            self.forget(&open);
                        }
                        search.frames.pop();
                    }
                    LookupResult::Blocked(group) => {
                        *waits = Some((group, 0));
                        let place = &mut self.nodes[id].search;
                        place.blocked = group;
                        if place.index == 0 {
                            search.reached += 1;
                            place.index = search.reached;
                            search.open.push(id);
                        }
                        place.low = place.index;
                    }
                }
                continue;
            };
            if !self.groups.store[group].stale || self.is_determined(group) {
                if self.groups.store[group].stale {
                    self.flatten(group);
                }
                *waits = None;
                // The open targets above were reached through this group, which is resolved now.
                let above = search.above(id);
                self.forget(&above);
                continue;
            }
            let targets = &self.groups.store[group].targets;
            let (mut at, mut low, mut next) = (looked, self.nodes[id].search.low, None);
            while let Some(target) = targets.get(at) {
                let node = &self.nodes[*target];
                match (node.stale, node.search.index) {
                    (true, 0) => {
                        next = Some(*target);
                        break;
                    }
                    (true, index) => low = low.min(index),
                    (false, _) => {}
                }
                at += 1;
            }
            *waits = Some((group, at));
            self.nodes[id].search.low = low;
            if let Some(next) = next {
                search.frames.push(Frame { node: next, waits: None });
                continue;
            }
            if self.groups.store[group].targets.iter().any(|target| self.is_unreached(*target)) {
                // Some of its targets were released meanwhile.
                *waits = Some((group, 0));
                let place = &mut self.nodes[id].search;
                place.low = place.index;
                continue;
            }
            if low < self.nodes[id].search.index {
                search.frames.pop();
                if let Some(Frame { node: parent, .. }) = search.frames.last() {
                    let place = &mut self.nodes[*parent].search;
                    place.low = place.low.min(low);
                }
                continue;
            }
            *waits = None;
            let circle = search.from(id);
            self.decide(&circle);
        }
        search.reached = 0;
    }

    /// Whether a target has no answer and is not on the path of the search.
    fn is_unreached(&self, target: u32) -> bool {
        let node = &self.nodes[target];
        node.stale && node.search.index == 0
    }

    /// Removes these targets from the search.
    fn forget(&mut self, targets: &[u32]) {
        for target in targets {
            self.nodes[*target].search = Place::default();
        }
    }

    /// Whether the known answers determine what a group resolves to.
    pub(crate) fn is_determined(&self, group: u32) -> bool {
        let group = &self.groups.store[group];
        let settled = |target: &u32| !self.nodes[*target].stale;
        let resolved = |target: &u32| settled(target) && self.nodes[*target].resolution.outcome.is_resolved();
        let (members, rest) = group.targets.split_at(group.key.hops().len());
        let (backups, condition) = rest.split_at(group.key.backup.len());
        if condition.iter().any(|target| settled(target) && !resolved(target)) {
            return true;
        }
        let drops = !matches!(group.key.next_hops, NextHops::Via(_));
        let members_do = drops || (members.iter().all(settled) && members.iter().any(resolved));
        let all = members.iter().chain(backups);
        let none_does = !drops && all.clone().all(|target| settled(target) && !resolved(target));
        none_does || (condition.iter().all(settled) && (members_do || all.clone().all(settled)))
    }

    /// Takes one step in a circle. It decides the groups that have support from outside; without
    /// any, each target passes over the group that blocks it. The search then visits the open
    /// targets again, because the step may have broken the circle.
    fn decide(&mut self, circle: &[u32]) {
        for id in circle {
            self.nodes[*id].circular = true;
        }
        let groups: BTreeSet<u32> = circle.iter().map(|id| self.nodes[*id].search.blocked).collect();
        let is_supported = |group: &u32| self.content(*group, |node| !self.nodes[node].stale).is_some();
        let supported: BTreeSet<u32> = groups.into_iter().filter(is_supported).collect();
        for group in &supported {
            let targets = &self.groups.store[*group].targets;
            let dropped: Vec<u32> =
                targets.iter().copied().filter(|target| self.nodes[*target].stale).collect();
            for target in &dropped {
                self.nodes[*target].dropped_from.push(*group);
            }
            self.groups.store[*group].dropping = dropped;
            self.flatten(*group);
        }
        if supported.is_empty() {
            for id in circle {
                let group = self.nodes[*id].search.blocked;
                self.nodes[*id].passed_over.push(group);
            }
        }
        self.forget(circle);
    }
}
