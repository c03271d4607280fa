//! FIB suppression turned on and off while routes come, and answers counted again.
//!
//! A count of answers that may still come is kept ([`super::stage`]). The count is lost where rows
//! of a route coalesced before orchagent took them, for then one answer comes for several; and
//! where answers were not counted, because suppression was off. The count can start over while no
//! thread reads answers and no row is left in this process. A reader that subscribes later gets no
//! answer to a row that orchagent had taken by then; orchagent reports the result of those by
//! itself ([`super::responses`]). At most one row of each route is left for orchagent to take.

use super::stage::{Owed, Stage};
use super::{FpmOut, Fpmsyncd, RouteRef};
use crate::row::RouteKey;

impl Fpmsyncd {
    /// Whether routes count as offloaded only when the chip confirmed them.
    pub fn suppresses(&self) -> bool {
        self.config.suppress
    }

    /// Turns FIB suppression on or off.
    ///
    /// On: later announcements wait for the chip. Routes that were reported as offloaded stay so.
    /// The caller counts answers again ([`Fpmsyncd::recount`]) before it passes the first one.
    ///
    /// Off: every waiting client is notified at once that its route is offloaded, even if the chip
    /// refused it; so are later announcements. No answer counts any more.
    pub fn suppress(&mut self, on: bool, out: &mut FpmOut) {
        if std::mem::replace(&mut self.config.suppress, on) == on {
            return;
        }
        out.in_chip = self.client_waits().map(|_| on);
        let owed = std::mem::take(&mut self.owed);
        let (up, epoch) = (self.session.up, self.session.epoch);
        let mut waiting: Vec<(RouteRef, u8)> = Vec::new();
        let awaiting = &mut self.awaiting;
        for (vrf, of) in (0..).zip(&mut self.vrfs).filter(|(_, of)| !of.is_vnet) {
            of.routes.for_each_mut(|prefix, entry| {
                let at = (vrf, prefix);
                let is_announced = up && entry.source.is_some() && entry.epoch == epoch;
                if !on && is_announced && owed.is_awaited(at, entry.stage) {
                    waiting.push((at, entry.protocol));
                }
                let counted = if on { Stage::FOUND } else { Stage::NEW };
                entry.stage.set(counted.with_change_of(entry.stage.notified()), awaiting);
            });
        }
        waiting.into_iter().for_each(|(at, protocol)| self.offload(at, protocol, None, out));
    }

    /// Whether an answer may still come, as far as is known.
    pub fn is_unanswered(&self) -> bool {
        let mut unanswered = false;
        let of_all = self.vrfs.iter();
        of_all.for_each(|of| of.routes.for_each(|_, entry| unanswered |= entry.stage.is_unanswered()));
        unanswered
    }

    /// Counts again which answers may come, when everything that was taken has left this process
    /// and no thread reads answers: of routes of which one was to come, and of those that are
    /// `queued` for orchagent to take. Routes announced in this session without an answer are
    /// handed over once more.
    pub fn recount(&mut self, queued: impl IntoIterator<Item = RouteKey>) {
        let owed = std::mem::take(&mut self.owed);
        let epoch = self.session.epoch;
        let mut waiting: Vec<RouteRef> = Vec::new();
        let awaiting = &mut self.awaiting;
        for (vrf, of) in (0..).zip(&mut self.vrfs) {
            of.routes.for_each_mut(|prefix, entry| {
                let at = (vrf, prefix);
                if !entry.stage.is_unanswered() {
                    return;
                }
                let waits =
                    entry.source.is_some() && entry.epoch == epoch && owed.is_awaited(at, entry.stage);
                let is_changed = entry.stage.is_changed();
                let counted = Stage::FOUND.with_change_of(entry.stage.notified());
                entry.stage.set(counted.announced(waits && is_changed), awaiting);
                if waits && !is_changed {
                    waiting.push(at);
                }
            });
        }
        for key in queued {
            let RouteKey::Route { vrf, prefix, raw_key: None } = key else { continue };
            let Some(vrf) = self.find_vrf(vrf.as_deref()) else { continue };
            if let Some(entry) = self.vrfs[vrf as usize].routes.get_mut(prefix) {
                let next = self.owed.wrote((vrf, prefix), Stage::FOUND, false);
                entry.stage.set(next.with_change_of(entry.stage), &mut self.awaiting);
            }
        }
        waiting.into_iter().for_each(|at| self.touch(at, true));
    }
}

impl Owed {
    /// Whether a client that announced a route waits for its outcome.
    fn is_awaited(&self, at: RouteRef, stage: Stage) -> bool {
        stage.is_announced() || self.announced(at, stage) > 0
    }
}
