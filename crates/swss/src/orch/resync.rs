//! A resync: every route is said again that shall stay, and the others go when all were said.
//!
//! SONiC's holds all route work back until the end, with every row twice in memory. Here a route's record notes that it
//! was not said yet, what is said is done at once, and what was not goes at the end, some at a time.

use super::Orch;
use super::judge::Bound;
use super::ledger::Ticket;
use super::routes::{Lead, Routes, Target};
use super::table::RouteId;
use crate::row::RouteRow;

/// How far a resync is: what was not said since it began goes when it ends.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Resync {
    /// There is none.
    #[default]
    Off,
    /// Routes are being said.
    On,
    /// It has ended: those that were not said go, some at a time, from this number on.
    Ending(u32),
}

impl Routes {
    /// Whether routes are yet to go that a resync did not say.
    pub(super) fn is_sweeping(&self) -> bool {
        self.resyncs.iter().any(|resync| matches!(resync, Resync::Ending(_)))
    }

    /// Has routes go that a resync did not say, until so many tasks are ready.
    pub(super) fn sweep(&mut self, count: usize) {
        for labels in [false, true] {
            let Resync::Ending(mut at) = self.resyncs[usize::from(labels)] else { continue };
            while self.ready.len() < count
                && let Some(id) = self.table.next_unsaid(&mut at, labels)
            {
                self.table.set_said(id);
                self.add(id, None, None, Some(Ticket::NONE));
            }
            let is_over = self.ready.len() < count;
            self.resyncs[usize::from(labels)] = if is_over { Resync::Off } else { Resync::Ending(at) };
        }
    }

    /// Takes in that a route is said; what waits to be done of it counts no more when it was not before in a resync.
    pub(super) fn said(&mut self, id: RouteId) {
        if self.table.set_said(id) && self.table.task(id).is_some() {
            self.add(id, None, None, Some(Ticket::NONE));
        }
    }
}

impl Orch {
    /// Whether a route is as the row asks, or on its way there.
    pub(super) fn is_as_asked(&mut self, id: RouteId, row: &RouteRow) -> bool {
        if let Some(task) = self.routes.table.task(id) {
            return task.wants(row);
        }
        let Some(Lead { target, index }) = self.routes.table.lead(id) else { return false };
        match (self.bind(&row.via), index) {
            (Bound::Blackhole, None) => target == Target::Drop,
            (Bound::Direct(interface), None) => target == Target::Interface(interface),
            (Bound::Hop(hop), None) => target == Target::Hop(hop),
            (Bound::Group(group), None) => target == Target::Group(group),
            (Bound::Index(named), Some(index)) => named == index,
            _ => false,
        }
    }

    /// Begins a resync, or ends it: then every route goes that was not said in it. What was said is done at once, unlike in
    /// SONiC, where all of it waits for the end.
    pub(super) fn resync(&mut self, begin: bool, labels: bool) {
        let Routes { table, resyncs, resynced, .. } = &mut self.routes;
        let resync = &mut resyncs[usize::from(labels)];
        if begin {
            table.begin_resync(labels);
            *resync = Resync::On;
        } else if *resync == Resync::On {
            *resynced |= !labels;
            *resync = Resync::Ending(0);
        }
    }
}
