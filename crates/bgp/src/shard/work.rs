//! Work that goes through all tables, some thousand slots at a step.

use super::out::{Others, index};
use super::route::{self, Route};
use super::{Core, Shard, ShardOut};
use crate::message::{BestBatch, Change, DumpRequest, NONE};
use ribtide_prefix::{
    Afi, Families, Family, LOGICAL_SHARDS, PerFamily, Prefix, for_each_family, logical_shard,
};
use std::collections::VecDeque;

/// Slots that a step may look at: about a millisecond's work.
const STEP: usize = 2048;

/// What is under way. Tasks take turns, so that none waits for the end of another.
#[derive(Default)]
pub(super) struct Work {
    tasks: VecDeque<Task>,
    /// Prefixes whose next hop was unknown, to be judged again.
    answered: Families<Prefixes>,
}

/// Prefixes of a family, some more than once.
struct Prefixes;
impl PerFamily for Prefixes {
    type Of<F: Family> = Vec<Prefix<F>>;
}

/// Prefixes that wait for the answer to a next hop; with more of a family than that, every route is judged again instead.
const UNANSWERED_MAX: usize = if cfg!(test) { 4 } else { 1 << 18 };

/// Prefixes with a path whose next hop was unknown when they were judged.
#[derive(Default)]
pub(super) struct Unanswered {
    prefixes: Families<Prefixes>,
    /// There were too many.
    all: bool,
}

impl Unanswered {
    pub(super) fn push<F: Family>(&mut self, prefix: Prefix<F>) {
        let prefixes = self.prefixes.get_mut::<F>();
        if prefixes.len() < UNANSWERED_MAX {
            prefixes.push(prefix);
        } else if !self.all {
            (self.prefixes, self.all) = (Families::default(), true);
        }
    }
}

struct Task {
    kind: Kind,
    /// Where to go on.
    at: Place,
    /// How many tables are left, this one included.
    left: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Take out the paths of sessions that ended.
    Sweep,
    /// Show the best paths, as far as they are told.
    Dump(DumpRequest),
    /// Judge every route again: next hops changed.
    Redecide,
    /// Tell what waits for dataplanes: it need not any more.
    Open,
}

/// A place in a table: family, logical shard and hash. Goes round.
#[derive(Clone, Copy)]
struct Place {
    afi: Afi,
    shard: u8,
    hash: u32,
}

impl Place {
    const START: Place = Place { afi: Afi::Ipv4, shard: 0, hash: 0 };
    /// Tables of both families.
    const ALL: u32 = 2 * LOGICAL_SHARDS as u32;

    /// Whether a part of a logical shard that ends here is not all behind this place.
    fn is_before(self, logical: u8, end: Option<u32>) -> bool {
        self.shard < logical || (self.shard == logical && end.is_none_or(|end| self.hash < end))
    }

    fn next_table(&mut self) {
        self.hash = 0;
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
    /// There are paths to take out.
    pub(super) fn sweep(&mut self) {
        self.go_round(Kind::Sweep);
    }

    pub(super) fn redecide(&mut self) {
        self.go_round(Kind::Redecide);
    }

    /// Some of what was unknown is known: these prefixes are judged again.
    pub(super) fn answer(&mut self, unanswered: &mut Unanswered) {
        let Unanswered { mut prefixes, all } = std::mem::take(unanswered);
        if all {
            self.redecide();
        }
        for_each_family!(F => self.answered.get_mut::<F>().append(prefixes.get_mut::<F>()));
    }

    /// Whether [`Shard::judge_answered`] has something to do.
    pub(super) fn is_answering(&self) -> bool {
        !self.answered.v4.is_empty() || !self.answered.v6.is_empty()
    }

    /// Nothing is to wait for dataplanes any more.
    pub(super) fn open(&mut self) {
        self.go_round(Kind::Open);
    }

    /// Whether some may wait still.
    pub(super) fn is_opening(&self) -> bool {
        self.tasks.iter().any(|task| task.kind == Kind::Open)
    }

    pub(super) fn dump(&mut self, request: DumpRequest) {
        let at = Place { afi: request.afi, ..Place::START };
        self.tasks.push_back(Task { kind: Kind::Dump(request), at, left: u32::from(LOGICAL_SHARDS) });
    }

    /// Through all tables from now on; a task that is under way goes round once more from where it is.
    fn go_round(&mut self, kind: Kind) {
        match self.tasks.iter_mut().find(|task| task.kind == kind) {
            Some(task) => task.left = Place::ALL + u32::from(task.at.hash > 0),
            None => self.tasks.push_back(Task { kind, at: Place::START, left: Place::ALL }),
        }
    }
}

impl Shard {
    /// Whether [`Shard::step`] has something to do.
    pub fn work_left(&self) -> bool {
        !self.work.tasks.is_empty() || self.work.is_answering() || self.core.gates.any_confirmed()
    }

    /// Does a bounded piece of the work that messages left behind.
    pub fn step(&mut self, out: &mut ShardOut) {
        self.tell_confirmed(out);
        self.judge_answered(out);
        self.core.settle(out);
        if let Some(task) = self.work.tasks.pop_front() {
            self.go_on(task, out);
        }
        self.core.clear_out(out);
    }

    /// Judges some of the prefixes again whose next hop was unknown.
    fn judge_answered(&mut self, out: &mut ShardOut) {
        let Shard { tables, core, work, .. } = self;
        for_each_family!(F => {
            let answered = work.answered.get_mut::<F>();
            let some = answered.split_off(answered.len().saturating_sub(STEP / 2));
            for prefix in some {
                let table = &mut tables.get_mut::<F>()[usize::from(logical_shard(prefix))];
                let Some(at) = table.find(route::hash(prefix, &core.seed), |route| route.is(prefix)) else { continue };
                core.redecide(table.get_mut(at), out);
            }
            if answered.is_empty() {
                *answered = Vec::new();
            }
        });
    }

    /// A step of one task.
    fn go_on(&mut self, mut task: Task, out: &mut ShardOut) {
        let mut part = Part::default();
        let mut budget = STEP;
        while task.left > 0 && budget > 0 {
            for_each_family!(F => if F::AFI == task.at.afi {
                let Place { shard, hash, .. } = task.at;
                match self.walk::<F>(task.kind, shard, hash, &mut budget, &mut part, out) {
                    Some(hash) => task.at.hash = hash,
                    None => {
                        task.at.next_table();
                        task.left -= 1;
                    }
                }
                continue;
            });
        }
        self.core.settle(out);
        let done = task.left == 0 || (task.kind == Kind::Sweep && !self.core.sessions.any_ending());
        part.tell(task.kind, done, out);
        if !done {
            self.work.tasks.push_back(task);
        }
    }

    /// Does what all tasks still have to do on a part of a logical shard's table: on entries with hashes from `from` to before
    /// `end`, if there is one. It costs what the part costs, however much there is to do elsewhere.
    pub(super) fn work_on<F: Family>(
        &mut self,
        logical: u8,
        from: u32,
        end: Option<u32>,
        out: &mut ShardOut,
    ) {
        let Shard { tables, core, work, .. } = self;
        let table = &mut tables.get_mut::<F>()[usize::from(logical)];
        // Which of these prefixes wait for the answer to a next hop, a long list would have to be searched for.
        let answering = work.is_answering().then_some(Kind::Redecide);
        let tasks = work.tasks.iter().filter(|task| match task.kind {
            Kind::Dump(request) => F::AFI == request.afi && task.at.is_before(logical, end),
            Kind::Sweep | Kind::Redecide | Kind::Open => true,
        });
        for kind in tasks.map(|task| task.kind).chain(answering) {
            let mut part = Part::default();
            table.visit(from, end, |route| core.work_at(kind, route, &mut part, out));
            part.tell(kind, false, out);
        }
        core.settle(out);
    }

    /// Works on a part of a table; returns the hash to go on from, if it is not done.
    fn walk<F: Family>(
        &mut self,
        kind: Kind,
        logical: u8,
        from: u32,
        budget: &mut usize,
        part: &mut Part,
        out: &mut ShardOut,
    ) -> Option<u32> {
        let table = &mut self.tables.get_mut::<F>()[usize::from(logical)];
        table.walk(from, budget, &mut self.core, Core::prefetch_best, |core, route| {
            core.work_at(kind, route, part, out)
        })
    }
}

impl Core {
    /// What a task does with one route. Whether the route stays.
    fn work_at<F: Family>(
        &mut self,
        kind: Kind,
        route: &mut Route<F>,
        part: &mut Part,
        out: &mut ShardOut,
    ) -> bool {
        match kind {
            Kind::Sweep => return self.sweep(route, out),
            Kind::Redecide => self.redecide(route, out),
            Kind::Open => self.open_gate(route, out),
            Kind::Dump(_) => {
                if let Some(told) = self.told(route) {
                    let new = part.path(self, told.attrs, told.session);
                    part.batch.changes.get_mut::<F>().push(Change { prefix: route.prefix(), old: NONE, new });
                }
            }
        }
        true
    }

    /// Whether a route has a path whose next hop is not known yet.
    pub(super) fn has_unknown<F: Family>(&self, route: &Route<F>) -> bool {
        !self.attrs.hops.all_reachable() && route.paths(&self.paths).iter().any(|path| self.is_unknown(*path))
    }
}

/// Part of a dump.
#[derive(Default)]
struct Part {
    batch: BestBatch,
    others: Others,
}

impl Part {
    fn path(&mut self, core: &mut Core, attrs: u32, session: u16) -> u32 {
        let source = core.sessions.get(session).info.id;
        let (attrs, noted) = core.attrs.in_batch(attrs);
        index(&mut self.others, &mut self.batch, attrs, source, noted)
    }

    fn tell(self, kind: Kind, last: bool, out: &mut ShardOut) {
        if let Kind::Dump(request) = kind
            && (last || !self.batch.paths.is_empty())
        {
            out.dump(request.worker, request.token, self.batch, last);
        }
    }
}
