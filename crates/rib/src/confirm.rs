//! What those who announce routes are told of dataplanes, so that BGP advertises nothing that is not forwarded.
//!
//! ```text
//! announcer ── Routes, Confirm(mark) ──► RIB ── FibBatch ──► every dataplane
//!     ▲                                       │ ▲                     │
//!     └── confirmed (mark), blocked ◄─────────┘ └──────── Ack ────────┘
//! ```
//!
//! Who announces ends a batch with a [`FeedMark`], a number that rises. The answer is that number again, once
//! *every configured dataplane* has finished whatever became of the routes before it; one answer may stand for many marks.
//! So a confirmation costs per batch and not per route, and one of a change that has been superseded meanwhile is told
//! apart by its number. A change that leaves the FIB's routes as they are (its group has other content only, or another
//! protocol's route is selected) is finished with the batches before it: what counts is that the prefix is forwarded as
//! the RIB wants it, and not by whose route.
//!
//! What a number cannot say is said by prefix, because it is rare: a prefix is **blocked** while the FIB does not have what
//! the RIB wants for it: nothing that is announced for it resolves, or a dataplane failed it, at once or later. Blocks go
//! before the numbers that they are exceptions of, and are told again with the answer to each batch that names such
//! a prefix: so a number says "all of these, but the blocked ones" whatever its receiver remembers.
//!
//! While a group is unresolved whose routes are still to be looked at one by one, no mark is answered: which prefixes are blocked
//! is not known yet.
//!
//! Whoever announces keeps the number of marks without an answer bounded; a BGP shard does.
//!
//! A dataplane that is down, or has not yet been sent everything again, confirms nothing. It takes nothing back either:
//! what was confirmed stays so until it is blocked.

use crate::dataplane::{Dataplane, Dataplanes, InstallStatus};
use crate::message::{DataplaneId, FeedMark, FibBatch, RibOut};
use crate::resolve::Resolver;
use crate::rib::{changed, route};
use crate::table::RouteTables;
use ribtide_prefix::{AnyPrefix, Set, for_each_family};
use std::collections::VecDeque;

/// What is still to be confirmed, and what is not in place.
pub(crate) struct Confirm {
    /// Whether anybody wants to know.
    on: bool,
    /// Those that have to confirm.
    planes: Vec<DataplaneId>,
    /// The batch that dataplanes must have finished before a mark is answered; both rise.
    marks: VecDeque<(u64, FeedMark)>,
    /// Marks of the events at hand.
    fresh: Vec<FeedMark>,
    /// Prefixes told as blocked.
    blocked: Set<AnyPrefix>,
    /// Blocked ones that events at hand name.
    named: Vec<AnyPrefix>,
    /// Those that may be blocked or no longer, to be looked at when the events at hand are worked through, and whether a
    /// dataplane has just failed them.
    suspects: Vec<(AnyPrefix, bool)>,
    /// Blocked ones that a batch changes, to be looked at when it is finished.
    changing: VecDeque<(u64, AnyPrefix)>,
    /// The batch by which unresolved groups came back last, at the latest: a route that a dataplane has is not
    /// forwarded before it is done, though no batch names it.
    refilled: u64,
}

impl Confirm {
    pub(crate) fn new(planes: Vec<DataplaneId>) -> Confirm {
        Confirm {
            on: false,
            planes,
            marks: VecDeque::new(),
            fresh: Vec::new(),
            blocked: Set::default(),
            named: Vec::new(),
            suspects: Vec::new(),
            changing: VecDeque::new(),
            refilled: 0,
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Begins or ends. At the beginning all that is not in place is found and told; that looks at every route once.
    pub(crate) fn switch(&mut self, on: bool, tables: &RouteTables, dataplanes: &Dataplanes) {
        if self.on == on {
            return;
        }
        let refilled = self.refilled;
        *self = Confirm { on, refilled, ..Confirm::new(std::mem::take(&mut self.planes)) };
        if on {
            for_each_family!(F => {
                let routes = tables.get::<F>().routes.iter();
                self.suspects.extend(routes.filter(|(_, r)| r.is_idle()).map(|(prefix, _)| (prefix.any(), false)));
            });
            self.suspects
                .extend(dataplanes.values().flat_map(|d| d.failed.keys()).map(|prefix| (*prefix, true)));
        }
    }

    /// Adds a mark, which is confirmed when every change before it is finished.
    pub(crate) fn mark(&mut self, mark: FeedMark) {
        if self.on {
            self.fresh.push(mark);
        }
    }

    /// A candidate of `prefix` was announced or withdrawn.
    #[inline]
    pub(crate) fn named(&mut self, prefix: AnyPrefix) {
        if !self.blocked.is_empty() && self.blocked.contains(&prefix) {
            self.named.push(prefix);
        }
    }

    /// A dataplane said something of `prefix`, or no candidate of it was selected.
    pub(crate) fn suspect(&mut self, prefix: AnyPrefix, failed: bool) {
        if self.on {
            self.suspects.push((prefix, failed));
        }
    }

    /// A batch goes out.
    pub(crate) fn sent(&mut self, batch: &FibBatch) {
        if !self.blocked.is_empty() {
            let Confirm { changing, blocked, .. } = self;
            for_each_family!(F => {
                let blocked = batch.routes.get::<F>().iter().map(|r| r.prefix.any()).filter(|p| blocked.contains(p));
                changing.extend(blocked.map(|prefix| (batch.seq, prefix)));
            });
        }
    }

    /// The events at hand are worked through, and `seq` is the latest batch: says what there is to say.
    pub(crate) fn tell(
        &mut self,
        tables: &RouteTables,
        resolver: &mut Resolver,
        dataplanes: &Dataplanes,
        seq: u64,
        out: &mut RibOut,
    ) {
        let unsettled = resolver.had_unresolved();
        if unsettled {
            self.refilled = seq;
        }
        if !self.on {
            return;
        }
        let finished = |id| dataplanes.get(id).map_or(0, |d| d.finished());
        let finished = self.planes.iter().map(finished).min().unwrap_or(u64::MAX);
        self.marks.extend(self.fresh.drain(..).map(|mark| (seq, mark)));
        if unsettled {
            // Routes that dataplanes had may have gone with their group, to come back with this batch at the earliest.
            self.marks.iter_mut().for_each(|(batch, _)| *batch = seq);
            self.changing.iter_mut().for_each(|(batch, _)| *batch = seq);
        }
        let done = self.changing.partition_point(|(batch, _)| *batch <= finished);
        self.suspects.extend(self.changing.drain(..done).map(|(_, prefix)| (prefix, false)));
        for (prefix, failed) in std::mem::take(&mut self.suspects) {
            if !failed && resolver.has_unresolved() && is_unresolved(tables, resolver, prefix) {
                // It is about to be deselected, or to come back.
                self.suspects.push((prefix, failed));
                continue;
            }
            let blocked = is_blocked(tables, dataplanes, prefix);
            // The failure of a change that is superseded says that the former one may be lost too.
            if (blocked || (failed && route(tables, prefix).is_some())) && self.blocked.insert(prefix) {
                out.blocked.push((prefix, true));
            }
            if !blocked && self.blocked.contains(&prefix) {
                if finished >= self.refilled && self.is_installed(tables, dataplanes, prefix) {
                    self.blocked.remove(&prefix);
                    out.blocked.push((prefix, false));
                } else {
                    // What is under way says which.
                    self.changing.push_back((seq, prefix));
                }
            }
        }
        for prefix in self.named.drain(..) {
            if route(tables, prefix).is_none() {
                // No source announces it any more. The next one that does starts over, and must not take an earlier word for its own.
                self.blocked.remove(&prefix);
                out.blocked.push((prefix, false));
            } else if self.blocked.contains(&prefix) {
                out.blocked.push((prefix, true));
            }
        }
        if resolver.has_unresolved() {
            // Which of the prefixes before a mark are unresolved is not known until all of them have been looked at.
            return;
        }
        let answered = self.marks.partition_point(|(batch, _)| *batch <= finished);
        for (_, mark) in self.marks.drain(..answered) {
            match out.confirmed.iter_mut().find(|told| told.announcer == mark.announcer) {
                Some(told) => *told = mark,
                None => out.confirmed.push(mark),
            }
        }
    }

    /// Everything that is told as blocked now.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = AnyPrefix> {
        self.blocked.iter().copied()
    }

    /// How many prefixes are blocked.
    pub(crate) fn blocked_count(&self) -> usize {
        self.blocked.len()
    }

    /// How many marks wait.
    pub(crate) fn marks(&self) -> usize {
        self.marks.len()
    }

    /// Whether every dataplane has the last change of a prefix.
    fn is_installed(&self, tables: &RouteTables, dataplanes: &Dataplanes, prefix: AnyPrefix) -> bool {
        let changed = changed(tables, prefix);
        let has = |d: &Dataplane| d.status(prefix, changed) == InstallStatus::Installed;
        self.planes.iter().all(|id| dataplanes.get(id).is_some_and(has))
    }
}

/// Whether the FIB has `prefix` by an unresolved group.
fn is_unresolved(tables: &RouteTables, resolver: &Resolver, prefix: AnyPrefix) -> bool {
    route(tables, prefix).is_some_and(|route| route.fib != 0 && !resolver.is_resolved(route.fib))
}

/// Whether the FIB is known not to have what the RIB wants for `prefix`.
fn is_blocked(tables: &RouteTables, dataplanes: &Dataplanes, prefix: AnyPrefix) -> bool {
    let Some(route) = route(tables, prefix) else { return false };
    route.is_idle() || dataplanes.values().any(|d| d.failed.contains_key(&prefix))
}
