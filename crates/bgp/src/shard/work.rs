//! Work that goes through all tables, a table at a step.

use super::out::Known;
use super::{Shard, ShardOut};
use crate::message::{BestBatch, Change, DumpRequest, NONE};
use crate::peer::PeerId;
use ribtide_prefix::{Afi, Families, Family, LOGICAL_SHARDS, for_each_family};
use std::collections::VecDeque;

/// What is under way. Tasks take turns, so that none waits for the end of another.
#[derive(Default)]
pub(super) struct Work {
    tasks: VecDeque<Task>,
}

struct Task {
    kind: Kind,
    /// The next table.
    at: Place,
    /// How many tables are left.
    left: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Take out the paths of a session that ended.
    Purge(PeerId, u32),
    /// Show the best paths.
    Dump(DumpRequest),
    /// Judge every route again: next hops changed.
    Redecide,
}

/// A table: a family and a logical shard. Goes round.
#[derive(Clone, Copy)]
struct Place {
    afi: Afi,
    shard: u8,
}

impl Place {
    const START: Place = Place { afi: Afi::Ipv4, shard: 0 };
    /// Tables of both families.
    const ALL: u32 = 2 * LOGICAL_SHARDS as u32;

    fn advance(&mut self) {
        self.shard = (self.shard + 1) % LOGICAL_SHARDS;
        if self.shard == 0 {
            self.afi = match self.afi {
                Afi::Ipv4 => Afi::Ipv6,
                Afi::Ipv6 => Afi::Ipv4,
            };
        }
    }
}

impl Work {
    pub(super) fn purge(&mut self, peer: PeerId, session: u32) {
        let kind = Kind::Purge(peer, session);
        self.tasks.push_back(Task { kind, at: Place::START, left: Place::ALL });
    }

    pub(super) fn dump(&mut self, request: DumpRequest) {
        let at = Place { afi: request.afi, shard: 0 };
        self.tasks.push_back(Task { kind: Kind::Dump(request), at, left: u32::from(LOGICAL_SHARDS) });
    }

    pub(super) fn redecide(&mut self) {
        // One that is under way goes round once more from where it is.
        match self.tasks.iter_mut().find(|task| task.kind == Kind::Redecide) {
            Some(task) => task.left = Place::ALL,
            None => self.tasks.push_back(Task { kind: Kind::Redecide, at: Place::START, left: Place::ALL }),
        }
    }
}

impl Shard {
    /// Whether [`Shard::step`] has something to do.
    pub fn work_left(&self) -> bool {
        !self.work.tasks.is_empty()
    }

    /// Does a bounded piece of the work that messages left behind: one logical shard's table.
    pub fn step(&mut self, out: &mut ShardOut) {
        let Some(mut task) = self.work.tasks.pop_front() else { return };
        if !self.advance(&mut task, out) {
            self.work.tasks.push_back(task);
        }
        out.next_hops(&mut self.core.attrs.hops.uses);
    }

    /// Completes the purge of a peer, if one is under way.
    pub(super) fn finish_purge(&mut self, peer: PeerId, out: &mut ShardOut) {
        let of_peer = |task: &Task| matches!(task.kind, Kind::Purge(id, _) if id == peer);
        let Some(at) = self.work.tasks.iter().position(of_peer) else { return };
        if let Some(mut task) = self.work.tasks.remove(at) {
            while !self.advance(&mut task, out) {}
        }
    }

    /// Does what all tasks still have to do on the tables of one logical shard.
    pub(super) fn work_on(&mut self, shard: u8, out: &mut ShardOut) {
        let tasks = std::mem::take(&mut self.work.tasks);
        for Task { kind, at, .. } in &tasks {
            for_each_family!(F => match *kind {
                Kind::Purge(peer, _) => self.purge_table::<F>(shard, peer, out),
                Kind::Dump(request) if F::AFI == request.afi && at.shard <= shard => {
                    self.dump_table::<F>(shard, request, false, out);
                }
                Kind::Dump(_) => {}
                Kind::Redecide => self.redecide_table::<F>(shard, out),
            });
        }
        self.work.tasks = tasks;
    }

    /// The next table of a task; empty ones are skipped. Returns whether the task is complete.
    fn advance(&mut self, task: &mut Task, out: &mut ShardOut) -> bool {
        while task.left > 1 && self.is_empty_at(task.at) {
            task.at.advance();
            task.left -= 1;
        }
        let place = task.at;
        task.at.advance();
        task.left -= 1;
        let last = task.left == 0;
        for_each_family!(F => if F::AFI == place.afi {
            match task.kind {
                Kind::Purge(peer, _) => self.purge_table::<F>(place.shard, peer, out),
                Kind::Dump(request) => self.dump_table::<F>(place.shard, request, last, out),
                Kind::Redecide => self.redecide_table::<F>(place.shard, out),
            }
        });
        match task.kind {
            Kind::Purge(peer, session) => {
                let done = last || self.core.peer(peer).is_none_or(|peer| peer.paths() == 0);
                if done {
                    out.purged(peer, session);
                }
                done
            }
            Kind::Dump(_) | Kind::Redecide => last,
        }
    }

    fn is_empty_at(&self, place: Place) -> bool {
        match place.afi {
            Afi::Ipv4 => self.tables.v4[usize::from(place.shard)].is_empty(),
            Afi::Ipv6 => self.tables.v6[usize::from(place.shard)].is_empty(),
        }
    }

    fn purge_table<F: Family>(&mut self, shard: u8, peer: PeerId, out: &mut ShardOut) {
        let core = &mut self.core;
        let table = &mut self.tables.get_mut::<F>()[usize::from(shard)];
        table.retain(|prefix, route| core.forget(*prefix, route, peer, out));
    }

    fn redecide_table<F: Family>(&mut self, shard: u8, out: &mut ShardOut) {
        for (prefix, route) in &mut self.tables.get_mut::<F>()[usize::from(shard)] {
            self.core.redecide(*prefix, route, out);
        }
    }

    fn dump_table<F: Family>(&mut self, shard: u8, request: DumpRequest, last: bool, out: &mut ShardOut) {
        let mut batch = BestBatch { paths: Vec::new(), changes: Families::default() };
        let mut known = Known::default();
        for (prefix, route) in &self.tables.get::<F>()[usize::from(shard)] {
            let Some(path) = self.core.best_of(route) else { continue };
            let new = self.core.best_ref(path).index(&mut known, &mut batch);
            batch.changes.get_mut::<F>().push(Change { prefix: *prefix, old: NONE, new });
        }
        if last || !batch.paths.is_empty() {
            out.dump(request.worker, request.token, batch, last);
        }
    }
}
