//! A resync (the keys `resync` of RouteOrch::doTask, `orchagent/routeorch.cpp`): fpmsyncd sends
//! every row again, and the routes that it did not send are removed at the end.
//!
//! SONiC's orchagent holds all route work until the end, with every row twice in memory. Here the
//! begin marks every route as stale, a row that comes clears the flag and is programmed at once,
//! and the end sweeps the stale routes in bounded turns.

use super::completion_tracker::BatchToken;
use super::{RouteId, Routes};
use crate::orch::objects::Objects;
use crate::orch::outbox::Outbox;
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
                self.add(id, None, Some(BatchToken::NONE));
            }
            let is_over = self.ready.len() < count;
            self.resyncs[usize::from(labels)] = if is_over { Resync::Off } else { Resync::Ending(at) };
        }
    }

    /// Takes in that a row of the route came. If the route was stale, its pending change from
    /// before the resync no longer counts.
    pub(super) fn refreshed(&mut self, id: RouteId) {
        if self.table.clear_stale(id) && self.table.task(id).is_some() {
            self.add(id, None, Some(BatchToken::NONE));
        }
    }

    /// Whether a route is as the row asks, or will be after its task.
    pub(super) fn is_as_row(
        &mut self,
        id: RouteId,
        row: &RouteRow,
        objects: &mut Objects,
        outbox: &mut Outbox,
    ) -> bool {
        match (self.table.task(id), self.table.reference(id)) {
            (Some(task), _) => task.wants(row),
            (None, Some(reference)) => objects.is_as_row(reference, row, outbox),
            (None, None) => false,
        }
    }

    /// Begins a resync, or ends it: then every route that it did not contain is removed.
    pub(super) fn resync(&mut self, begin: bool, labels: bool) {
        let resync = &mut self.resyncs[usize::from(labels)];
        if begin {
            self.table.begin_resync(labels);
            *resync = Resync::On;
        } else if *resync == Resync::On {
            self.resynced |= !labels;
            *resync = Resync::Ending(0);
        }
    }

    /// Whether a resync of routes has ended since the start.
    pub(in crate::orch) fn resynced(&self) -> bool {
        self.resynced
    }
}
