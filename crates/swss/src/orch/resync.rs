//! A resync (the keys `resync` of RouteOrch::doTask, `orchagent/routeorch.cpp`): fpmsyncd sends every row again, and the
//! routes that it did not send are removed at the end.
//!
//! SONiC's orchagent holds all route work until the end, with every row twice in memory. Here the begin marks every route
//! as stale, a row that comes clears the flag and is programmed at once, and the end sweeps the stale routes in bounded
//! turns.

use super::Orch;
use super::completion_tracker::BatchToken;
use super::route_decision::ResolvedRow;
use super::route_table::RouteId;
use super::routes::{Lead, Routes, Target};
use crate::row::RouteRow;

/// The phase of a resync.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum Resync {
    /// No resync is going on.
    #[default]
    Off,
    /// Rows are coming.
    On,
    /// All rows came: stale routes are removed in turns, from this number on.
    Ending(u32),
}

impl Routes {
    /// Whether stale routes are left to remove.
    pub(super) fn is_sweeping(&self) -> bool {
        self.resyncs.iter().any(|resync| matches!(resync, Resync::Ending(_)))
    }

    /// Removes stale routes until `count` tasks are ready.
    pub(super) fn sweep(&mut self, count: usize) {
        for labels in [false, true] {
            let Resync::Ending(mut at) = self.resyncs[usize::from(labels)] else { continue };
            while self.ready.len() < count
                && let Some(id) = self.table.next_stale(&mut at, labels)
            {
                self.table.clear_stale(id);
                self.add(id, None, None, Some(BatchToken::NONE));
            }
            let is_over = self.ready.len() < count;
            self.resyncs[usize::from(labels)] = if is_over { Resync::Off } else { Resync::Ending(at) };
        }
    }

    /// Takes in that a row of the route came. If the route was stale, its pending change from before the resync no longer
    /// counts.
    pub(super) fn refreshed(&mut self, id: RouteId) {
        if self.table.clear_stale(id) && self.table.task(id).is_some() {
            self.add(id, None, None, Some(BatchToken::NONE));
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
        match (self.resolve_row(&row.via), index) {
            (ResolvedRow::Blackhole, None) => target == Target::Drop,
            (ResolvedRow::Direct(interface), None) => target == Target::Interface(interface),
            (ResolvedRow::Hop(hop), None) => target == Target::Hop(hop),
            (ResolvedRow::Group(group), None) => target == Target::Group(group),
            (ResolvedRow::Index(named), Some(index)) => named == index,
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
