//! What orchagent says became of routes; only with FIB suppression does anybody wait for it.
//!
//! There are two kinds of it. *Answers* come one for each row that orchagent took, in their order. What *is in the chip* is said
//! when answers may have been lost: as somebody begins to answer, when listening broke off, and by an orchagent that is new of the
//! rows that it found. It tells nothing about rows that are under way, so it counts for a route of which nothing was written
//! since the start; of one that was written and not answered orchagent is asked again.

use super::source::State;
use super::stage::Answered;
use super::{FpmOut, Fpmsyncd, RouteRef};
use crate::row::{RouteKey, RouteResponse};
use ribtide_prefix::AnyPrefix;
use smallvec::SmallVec;

/// Routes that are found at a time before they are dealt with, so that the waits for memory overlap.
pub(super) const AHEAD: usize = 32;

impl Fpmsyncd {
    /// Takes in an answer about a route, as SONiC's orchagent publishes it.
    pub fn confirm(&mut self, response: &RouteResponse, out: &mut FpmOut) {
        let Some(protocol) = response.protocol.as_deref().filter(|protocol| !protocol.is_empty()) else {
            return;
        };
        if !response.is_success() {
            self.counters.failed += 1;
            return;
        }
        if let RouteKey::Route { vrf, prefix, .. } = &response.key {
            self.confirm_all(vrf.as_deref(), protocol, std::iter::once(*prefix), out);
        }
    }

    /// Takes in answers about routes of one VRF and one protocol: the chip has what was asked for.
    pub fn confirm_all(
        &mut self,
        vrf: Option<&str>,
        protocol: &str,
        mut prefixes: impl Iterator<Item = AnyPrefix>,
        out: &mut FpmOut,
    ) {
        let Some(vrf) = self.find_vrf(vrf).filter(|_| self.config.suppress && !protocol.is_empty()) else {
            return;
        };
        let protocol = self.config.protocols.number(protocol);
        let mut next = SmallVec::<[AnyPrefix; AHEAD]>::new();
        loop {
            next.extend(prefixes.by_ref().take(AHEAD));
            if next.is_empty() {
                return;
            }
            next.iter().for_each(|prefix| self.vrfs[vrf as usize].routes.look_at(*prefix));
            next.drain(..).for_each(|prefix| self.answered((vrf, prefix), protocol, out));
        }
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
        entry.stage = stage;
        if stage.is_changed() {
            // An answer to an older row says nothing about one that is not written yet, whose answer stands for both.
            entry.stage = stage.asked(answered == Answered::Announced);
            return;
        }
        let protocol = protocol.unwrap_or(entry.protocol);
        match answered {
            Answered::Announced if self.session.up => self.offload(at, protocol, out),
            Answered::Own { again: true } => self.touch(at, false),
            Answered::Announced | Answered::Own { again: false } | Answered::Nothing => {}
        }
    }

    /// Takes in that who answers has said what is in the chip: no answer comes any more to a row from before the start.
    pub fn all_said(&mut self) {
        for of in &mut self.vrfs {
            of.routes.for_each_mut(|entry| entry.stage = entry.stage.all_said());
        }
    }

    /// Takes in routes of a VRF that are in the chip; unless that is `exact`, that was said of them once.
    pub fn in_chip(&mut self, vrf: Option<&str>, prefixes: impl Iterator<Item = AnyPrefix>, exact: bool) {
        let Some(vrf) = self.find_vrf(vrf).filter(|_| self.config.suppress) else { return };
        for prefix in prefixes {
            let Some(entry) = self.vrfs[vrf as usize].routes.get_mut(prefix) else { continue };
            if entry.source.is_none_or(|source| *self.sources.state(source) == State::Waiting) {
                continue;
            }
            if let Some(confirmed) = entry.stage.found_in_chip().filter(|_| exact) {
                entry.stage = confirmed;
            } else if entry.stage.awaits_answer() {
                self.touch((vrf, prefix), false);
            }
        }
    }
}
