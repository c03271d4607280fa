//! Confirmations to announcers: BGP advertises a route only when every dataplane forwards it.
//!
//! ```text
//! announcer ── Routes, Confirm(fence) ──► RIB ── FibBatch ──► every dataplane
//!     ▲                                        │ ▲                     │
//!     └── confirmed (fence), blocked ◄─────────┘ └──────── Ack ────────┘
//! ```
//!
//! An announcer ends a batch with a [`FeedFence`], a rising number. The RIB manager returns the
//! number when *every configured dataplane* has finished the changes before it; one reply may
//! confirm many fences. So a confirmation costs per batch and not per route, and the number tells a
//! superseded change from its successor.
//!
//! A change may leave the FIB's routes as they are: it changes only a group's content, or another
//! protocol's route is selected. Such a change is finished with the batches before it. Confirmation
//! means that the prefix is forwarded as the RIB selects it, by whichever route.
//!
//! Exceptions are rare and are reported by prefix. A prefix is **blocked** while the FIB lacks the
//! selected route: no candidate resolves, or a dataplane failed it. It is blocked too while a route of
//! another protocol takes the place of BGP's and discards. Blocks precede the fences that
//! they are exceptions of. A batch that names a blocked prefix gets the block again with its reply.
//! So a fence confirms all prefixes before it but the blocked ones, whatever its receiver
//! remembers.
//!
//! No fence is returned while routes of an unresolved group wait for reselection, because their
//! blocks are not known yet.
//!
//! The announcer bounds its unconfirmed fences, as a BGP shard does.
//!
//! A dataplane that is down, whose replay has not ended, or that holds routes back confirms nothing. Earlier confirmations
//! hold until a block follows.

use crate::dataplane::{Dataplane, Dataplanes, InstallStatus};
use crate::message::{DataplaneId, FeedFence, FibBatch, RibOut, Source};
use crate::resolver::Resolver;
use crate::rib::{changed, route};
use crate::table::{Candidate, Route, RouteTables};
use ribtide_prefix::{AnyPrefix, Set, for_each_family};
use std::collections::VecDeque;

/// Unconfirmed fences and blocked prefixes.
#[derive(Default)]
pub(crate) struct Confirm {
    /// Whether any announcer suppresses unconfirmed routes.
    on: bool,
    /// The dataplanes that must confirm.
    planes: Vec<DataplaneId>,
    /// The batch that dataplanes must finish before a fence is returned; both numbers rise.
    fences: VecDeque<(u64, FeedFence)>,
    /// Fences of the events of this turn.
    fresh: Vec<FeedFence>,
    /// Prefixes that were reported as blocked.
    blocked: Set<AnyPrefix>,
    /// Blocked prefixes that events of this turn name.
    named: Vec<AnyPrefix>,
    /// Prefixes that may have become blocked or unblocked, checked after the events of this turn;
    /// and whether a dataplane has just failed them.
    suspects: Vec<(AnyPrefix, bool)>,
    /// Blocked prefixes that a batch changes, checked when that batch is finished.
    changing: VecDeque<(u64, AnyPrefix)>,
    /// The latest batch that may have restored unresolved groups. The routes of such a group are
    /// forwarded only after this batch, though no batch names them.
    refilled: u64,
}

impl Confirm {
    pub(crate) fn new(planes: Vec<DataplaneId>) -> Confirm {
        Confirm { planes, ..Confirm::default() }
    }

    /// Sets the dataplanes that must confirm. With a new one, nothing more is confirmed before its replay has ended; what was
    /// confirmed stays so.
    pub(crate) fn set_planes(&mut self, planes: &[DataplaneId]) {
        self.planes = planes.to_vec();
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Switches confirmation on or off. Switching on reports every prefix that is not in place; it
    /// visits every route once.
    pub(crate) fn switch(
        &mut self,
        on: bool,
        tables: &RouteTables,
        resolver: &Resolver,
        dataplanes: &Dataplanes,
    ) {
        if self.on == on {
            return;
        }
        let refilled = self.refilled;
        *self = Confirm { on, refilled, ..Confirm::new(std::mem::take(&mut self.planes)) };
        if on {
            for_each_family!(F => {
                let routes = tables.get::<F>().routes.iter();
                self.suspects.extend(routes.filter(|(_, r)| r.is_idle() || discards(resolver, r)).map(|(prefix, _)| (prefix.any(), false)));
            });
            self.suspects
                .extend(dataplanes.values().flat_map(|d| d.failed.keys()).map(|prefix| (*prefix, true)));
        }
    }

    /// Adds a fence, which is confirmed when every change before it is finished.
    pub(crate) fn fence(&mut self, fence: FeedFence) {
        if self.on {
            self.fresh.push(fence);
        }
    }

    /// A candidate of `prefix` was announced or withdrawn.
    #[inline]
    pub(crate) fn named(&mut self, prefix: AnyPrefix) {
        if !self.blocked.is_empty() && self.blocked.contains(&prefix) {
            self.named.push(prefix);
        }
    }

    /// Notes that a dataplane reported on `prefix`, or that no candidate of it is selected.
    pub(crate) fn suspect(&mut self, prefix: AnyPrefix, failed: bool) {
        if self.on {
            self.suspects.push((prefix, failed));
        }
    }

    /// Notes a batch that is sent to dataplanes.
    pub(crate) fn sent(&mut self, batch: &FibBatch) {
        if !self.blocked.is_empty() {
            let Confirm { changing, blocked, .. } = self;
            for_each_family!(F => {
                let blocked = batch.routes.get::<F>().iter().map(|r| r.prefix.any()).filter(|p| blocked.contains(p));
                changing.extend(blocked.map(|prefix| (batch.seq, prefix)));
            });
        }
    }

    /// Ends the events of this turn, where `seq` is the latest batch: reports changed blocks and
    /// returned fences.
    pub(crate) fn report(
        &mut self,
        tables: &RouteTables,
        resolver: &mut Resolver,
        dataplanes: &Dataplanes,
        seq: u64,
        out: &mut RibOut,
    ) {
        let unsettled = resolver.unresolved_before();
        if unsettled {
            self.refilled = seq;
        }
        if !self.on {
            return;
        }
        let finished = |id| dataplanes.get(id).map_or(0, |d| d.finished());
        let finished = self.planes.iter().map(finished).min().unwrap_or(u64::MAX);
        self.fences.extend(self.fresh.drain(..).map(|fence| (seq, fence)));
        if unsettled {
            // A lost group may have taken routes of dataplanes with it. This batch is the earliest
            // that restores them.
            self.fences.iter_mut().for_each(|(batch, _)| *batch = seq);
            self.changing.iter_mut().for_each(|(batch, _)| *batch = seq);
        }
        let done = self.changing.partition_point(|(batch, _)| *batch <= finished);
        self.suspects.extend(self.changing.drain(..done).map(|(_, prefix)| (prefix, false)));
        for (prefix, failed) in std::mem::take(&mut self.suspects) {
            if !failed && resolver.has_unresolved() && is_unresolved(tables, resolver, prefix) {
                // Reselection will withdraw it or restore it.
                self.suspects.push((prefix, failed));
                continue;
            }
            let blocked = is_blocked(tables, resolver, dataplanes, prefix);
            // A superseded change that failed may have lost the former route too.
            if (blocked || (failed && route(tables, prefix).is_some())) && self.blocked.insert(prefix) {
                out.blocked.push((prefix, true));
            }
            if !blocked && self.blocked.contains(&prefix) {
                if finished >= self.refilled && self.is_installed(tables, dataplanes, prefix) {
                    self.blocked.remove(&prefix);
                    out.blocked.push((prefix, false));
                } else {
                    // The outstanding batch decides it.
                    self.changing.push_back((seq, prefix));
                }
            }
        }
        for prefix in self.named.drain(..) {
            if route(tables, prefix).is_none() {
                // No source announces the prefix. The next announcer must not inherit this block.
                self.blocked.remove(&prefix);
                out.blocked.push((prefix, false));
            } else if self.blocked.contains(&prefix) {
                out.blocked.push((prefix, true));
            }
        }
        if resolver.has_unresolved() {
            // Reselection has not yet found all unresolved prefixes before a fence.
            return;
        }
        let passed = self.fences.partition_point(|(batch, _)| *batch <= finished);
        for (_, fence) in self.fences.drain(..passed) {
            match out.confirmed.iter_mut().find(|last| last.announcer == fence.announcer) {
                Some(last) => *last = fence,
                None => out.confirmed.push(fence),
            }
        }
    }

    /// Shrinks every collection to its contents: a failure of the whole table makes all of them grow.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.fences.shrink_to_fit();
        self.fresh.shrink_to_fit();
        self.blocked.shrink_to_fit();
        self.named.shrink_to_fit();
        self.suspects.shrink_to_fit();
        self.changing.shrink_to_fit();
    }

    /// Every blocked prefix.
    pub(crate) fn blocked(&self) -> impl Iterator<Item = AnyPrefix> {
        self.blocked.iter().copied()
    }

    /// The number of blocked prefixes.
    pub(crate) fn blocked_count(&self) -> usize {
        self.blocked.len()
    }

    /// The number of unconfirmed fences.
    pub(crate) fn fences(&self) -> usize {
        self.fences.len()
    }

    /// Whether every dataplane has finished the last change of a prefix.
    fn is_installed(&self, tables: &RouteTables, dataplanes: &Dataplanes, prefix: AnyPrefix) -> bool {
        let changed = changed(tables, prefix);
        let has = |d: &Dataplane| d.status(prefix, changed) == InstallStatus::Installed;
        self.planes.iter().all(|id| dataplanes.get(id).is_some_and(has))
    }
}

/// Whether the FIB's route for `prefix` uses an unresolved group.
fn is_unresolved(tables: &RouteTables, resolver: &Resolver, prefix: AnyPrefix) -> bool {
    route(tables, prefix).is_some_and(|route| route.fib != 0 && !resolver.is_resolved(route.fib))
}

/// Whether the FIB is known to lack the selected route for `prefix`, or to discard where BGP forwards.
fn is_blocked(tables: &RouteTables, resolver: &Resolver, dataplanes: &Dataplanes, prefix: AnyPrefix) -> bool {
    let Some(route) = route(tables, prefix) else { return false };
    route.is_idle()
        || dataplanes.values().any(|d| d.failed.contains_key(&prefix))
        || discards(resolver, route) && is_forwarded_by_bgp(tables, resolver, prefix, route)
}

/// Whether a route of another protocol than BGP is in the FIB and discards.
pub(crate) fn discards(resolver: &Resolver, route: &Route) -> bool {
    route.fib != 0 && route.fib_protocol().source() != Source::Bgp && resolver.discards(route.fib)
}

/// Whether BGP has a route for `prefix` that does not discard.
fn is_forwarded_by_bgp(tables: &RouteTables, resolver: &Resolver, prefix: AnyPrefix, route: &Route) -> bool {
    let forwards = |c: Candidate| c.protocol.source() == Source::Bgp && !resolver.discards(c.group);
    match prefix {
        AnyPrefix::V4(prefix) => tables.v4.candidates(prefix, route).any(forwards),
        AnyPrefix::V6(prefix) => tables.v6.candidates(prefix, route).any(forwards),
    }
}
