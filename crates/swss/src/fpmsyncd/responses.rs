//! Orchagent's reports about routes. Clients wait for them only with FIB suppression.
//!
//! There are three kinds. An *answer* comes for each row that orchagent took, in their order.
//!
//! Orchagent reports what *is in the chip* when answers may have been lost: when it begins to
//! answer, after a break of the subscription, and, after its start, for the rows that it found. The
//! report does not cover rows in flight, so it counts only for a route without a row written since
//! the start. A route with an unanswered row is written again.
//!
//! A *refusal* carries the digest of its row, and the client is notified when that is the route's
//! present row. It is no answer, since one may still come when the chip has room again. So it
//! confirms nothing, and a lost refusal costs only the reason.

use super::source::{SourceId, State};
use super::stage::Answered;
use super::table::Entry;
use super::{FpmOut, Fpmsyncd, RouteRef};
use crate::row::{Name, RouteKey, RouteResponse, RouteRow, RouteStatus};
use ribtide_prefix::{AnyPrefix, PREFETCH_BATCH};
use smallvec::SmallVec;

/// Where the routes of a batch probably are.
pub(super) type Places = SmallVec<[Option<u32>; PREFETCH_BATCH]>;

impl Fpmsyncd {
    /// Takes in an answer about a route, as SONiC's orchagent publishes it.
    pub fn confirm(&mut self, response: &RouteResponse, out: &mut FpmOut) {
        // Without a protocol it is a deletion. An empty one is that of a row without one.
        let Some(protocol) = response.protocol.as_deref() else { return };
        let RouteKey::Route { vrf, prefix, .. } = &response.key else { return };
        match &response.status {
            RouteStatus::Success => {
                self.confirm_all(vrf.as_deref(), protocol, std::iter::once(*prefix), out);
            }
            // The response does not name its row.
            RouteStatus::Failed(why) => {
                let Some(at) = self.find_vrf(vrf.as_deref()).map(|vrf| (vrf, *prefix)) else { return };
                self.refuse_if(at, why, out, |entry, _| entry.stage.awaits_one_answer());
            }
        }
    }

    /// Takes in routes of one VRF that are refused, and why: of each the digest of its row.
    pub fn refused(
        &mut self,
        vrf: Option<&str>,
        why: &Name,
        routes: impl Iterator<Item = (AnyPrefix, u32)>,
        out: &mut FpmOut,
    ) {
        let Some(vrf) = self.find_vrf(vrf) else { return };
        for (prefix, digest) in routes {
            self.refuse_if((vrf, prefix), why, out, |_, row| row.digest() == digest);
        }
    }

    /// Notifies the client that its route is refused, if `of_row` returns that the report is about
    /// the route's row.
    fn refuse_if(
        &mut self,
        at: RouteRef,
        why: &Name,
        out: &mut FpmOut,
        of_row: impl FnOnce(&Entry, &RouteRow) -> bool,
    ) {
        let Some(entry) = self.entry(at).filter(|_| self.config.suppress && self.session.up) else { return };
        let is_row = |source: SourceId| matches!(self.sources.state(source), State::Row(_));
        if entry.epoch != self.session.epoch || entry.stage.is_changed() || !entry.source.is_some_and(is_row)
        {
            return;
        }
        let row = self.row_of(at, entry).map(|row| self.route_row(row));
        if row.is_some_and(|row| of_row(entry, &row)) {
            let protocol = entry.protocol;
            self.offload(at, protocol, Some(why.clone()), out);
        }
    }

    /// Takes in answers about routes of one VRF and one protocol: the chip has them as their rows
    /// ask.
    pub fn confirm_all(
        &mut self,
        vrf: Option<&str>,
        protocol: &str,
        mut prefixes: impl Iterator<Item = AnyPrefix>,
        out: &mut FpmOut,
    ) {
        let Some(vrf) = self.find_vrf(vrf).filter(|vrf| self.suppresses_in(*vrf)) else { return };
        let is_named = !protocol.is_empty();
        let protocol = self.config.protocols.number(protocol);
        let mut next = SmallVec::<[AnyPrefix; PREFETCH_BATCH]>::new();
        loop {
            next.extend(prefixes.by_ref().take(PREFETCH_BATCH));
            let Some(last) = next.last() else { return };
            let routes = &self.vrfs[vrf as usize].routes;
            let mut places = Places::new();
            if !routes.is_nth(*last, next.len()) {
                places.extend(next.iter().map(|prefix| routes.guess(*prefix)));
                next.iter().zip(&places).for_each(|(prefix, at)| routes.prefetch(*prefix, *at));
            }
            for (n, prefix) in next.drain(..).enumerate() {
                if let Some(at) = places.get(n) {
                    self.vrfs[vrf as usize].routes.expect(prefix, *at);
                }
                let at = (vrf, prefix);
                if is_named || self.has_no_protocol(at) {
                    self.answered(at, protocol, out);
                }
            }
        }
    }

    /// Whether the row of a route names no protocol.
    fn has_no_protocol(&self, at: RouteRef) -> bool {
        let row = self.entry(at).and_then(|entry| self.row_of(at, entry));
        row.is_some_and(|row| !row.via.has_protocol())
    }

    fn answered(&mut self, at: RouteRef, protocol: Option<u8>, out: &mut FpmOut) {
        let Some(entry) = self.vrfs[at.0 as usize].routes.get_mut(at.1) else {
            return self.owed.answered_deleted(at);
        };
        // It goes, or keeps a row that is to be another.
        if entry.source.is_none_or(|source| *self.sources.state(source) == State::Waiting) {
            return;
        }
        let (stage, answered) = self.owed.answered(at, entry.stage);
        entry.stage.set(stage, &mut self.awaiting);
        if stage.is_changed() {
            // The answer is for an older row. The answer to the row that is not written yet will
            // count for both.
            entry.stage.set(stage.announced(answered == Answered::Announced), &mut self.awaiting);
            return;
        }
        let protocol = protocol.unwrap_or(entry.protocol);
        match answered {
            Answered::Announced if self.session.up => self.offload(at, protocol, None, out),
            Answered::Own { again: true } => self.touch(at, false),
            Answered::Announced | Answered::Own { again: false } | Answered::Nothing => {}
        }
    }

    /// Takes in that orchagent reported all that is in the chip: no answer comes any more to a row
    /// from before the start.
    pub fn all_said(&mut self) {
        for of in &mut self.vrfs {
            let awaiting = &mut self.awaiting;
            of.routes.for_each_mut(|_, entry| entry.stage.set(entry.stage.all_said(), awaiting));
        }
    }

    /// Takes in routes of a VRF that are in the chip. `exact`: now; else at an earlier time.
    pub fn in_chip(&mut self, vrf: Option<&str>, prefixes: impl Iterator<Item = AnyPrefix>, exact: bool) {
        let Some(vrf) = self.find_vrf(vrf).filter(|_| self.config.suppress) else { return };
        for prefix in prefixes {
            let Some(entry) = self.vrfs[vrf as usize].routes.get_mut(prefix) else { continue };
            if entry.source.is_none_or(|source| *self.sources.state(source) == State::Waiting) {
                continue;
            }
            if let Some(confirmed) = entry.stage.found_in_chip().filter(|_| exact) {
                entry.stage.set(confirmed, &mut self.awaiting);
            } else if entry.stage.awaits_answer() {
                self.touch((vrf, prefix), false);
            }
        }
    }
}
