//! Acknowledgements to the RIB manager: which of its batches the chip has carried out.
//!
//! fpmsyncd's thread marks each batch with the routes whose rows it changed, before it writes the rows. orchagent's
//! thread meets the mark, then the rows, then the chip's word on each route. A batch is finished when each of its
//! routes was confirmed, or changed again by a later batch. A route that nothing is said about is asked for when
//! orchagent has nothing left to do: then it waits for something that is not there, or the chip refused it, and it
//! is reported as failed with that reason. When the chip takes it later, because a neighbour or room appeared, that is
//! reported too.

use crate::dataplane::verdicts::Verdicts;
use ribtide_prefix::{AnyPrefix, Map};
use ribtide_rib::{DataplaneId, RibIn};
use ribtide_runtime::ring;
use ribtide_swss::orch::Orch;
use ribtide_swss::row::{RouteKey, RouteResponse};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// What a batch of the RIB manager's came to, before its rows are written.
#[derive(Debug)]
pub(super) struct Mark {
    /// The batch.
    pub(super) seq: u64,
    /// How many route rows were written ever, its own included.
    pub(super) written: u64,
    /// Its routes; true: set, false: deleted.
    pub(super) routes: Vec<(AnyPrefix, bool)>,
    /// Routes that have no row, and why.
    pub(super) failed: Vec<(AnyPrefix, String)>,
}

#[derive(Debug)]
struct Open {
    seq: u64,
    written: u64,
    /// Routes about which nothing was said yet.
    left: usize,
    failed: Vec<(AnyPrefix, String)>,
}

/// Batches that are not finished.
#[derive(Debug)]
pub(super) struct Acks {
    dataplane: DataplaneId,
    feedback: ring::Sender<RibIn>,
    /// How many route rows orchagent took ever.
    taken: Arc<AtomicU64>,
    open: VecDeque<Open>,
    /// The batch that changed a route last, and whether it set it.
    pending: Map<AnyPrefix, (u64, bool)>,
    verdicts: Verdicts,
}

impl Acks {
    pub(super) fn new(dataplane: DataplaneId, feedback: ring::Sender<RibIn>, taken: Arc<AtomicU64>) -> Acks {
        Acks {
            dataplane,
            feedback,
            taken,
            open: VecDeque::new(),
            pending: Map::default(),
            verdicts: Verdicts::default(),
        }
    }

    /// Takes in a batch.
    pub(super) fn mark(&mut self, mark: Mark) {
        let Mark { seq, written, routes, failed } = mark;
        let left = routes.len();
        self.open.push_back(Open { seq, written, left, failed });
        for (prefix, set) in routes {
            if let Some((older, _)) = self.pending.insert(prefix, (seq, set)) {
                self.settle(older, None);
            }
        }
    }

    /// Takes in that the chip has a route as orchagent wanted it then.
    pub(super) fn confirmed(&mut self, response: &RouteResponse, orch: &Orch) {
        let RouteKey::Route { vrf: None, prefix, .. } = response.key else { return };
        let pending = self.pending.get(&prefix).map(|(seq, _)| *seq);
        // A word on an older row: that of the latest batch is not taken, or not done.
        if !pending.is_none_or(|seq| self.is_taken(seq)) || !orch.is_settled(None, prefix) {
            return;
        }
        self.verdicts.installed(prefix);
        if let Some(seq) = pending {
            self.pending.remove(&prefix);
            self.settle(seq, None);
        }
    }

    /// Takes in that the chip does not have a route as orchagent wanted it, and will not be asked again.
    pub(super) fn given_up(&mut self, prefix: AnyPrefix, why: String, orch: &Orch) {
        let pending = self.pending.get(&prefix).map(|(seq, _)| *seq);
        if !pending.is_none_or(|seq| self.is_taken(seq)) || !orch.is_settled(None, prefix) {
            return;
        }
        match pending {
            Some(seq) => {
                self.pending.remove(&prefix);
                self.settle(seq, Some((prefix, why)));
            }
            None => self.verdicts.refused(prefix, why),
        }
    }

    /// Takes in that orchagent has nothing left to do: what was not confirmed will not be for now.
    pub(super) fn quiet(&mut self, orch: &Orch) {
        let taken = self.taken.load(Relaxed);
        if !self.open.iter().any(|open| open.left > 0 && open.written <= taken) {
            return;
        }
        let mut rest = Vec::new();
        self.pending.retain(|prefix, (seq, set)| {
            let stays = self.open.iter().any(|open| open.seq == *seq && open.written > taken);
            if !stays {
                rest.push((*prefix, *seq, *set));
            }
            stays
        });
        for (prefix, seq, set) in rest {
            let state = orch.explain(None, prefix);
            let why = match state.as_ref().and_then(|state| state.waiting.as_ref()) {
                Some(waiting) => Some(waiting.to_string()),
                None if set && state.is_none() => {
                    Some("it is not for the chip, or the chip refused it; the log says why".into())
                }
                None => None,
            };
            if why.is_none() {
                self.verdicts.installed(prefix);
            }
            self.settle(seq, why.map(|why| (prefix, why)));
        }
    }

    /// Tells the RIB manager which batches are finished and what no longer fails. False when nobody listens any more.
    pub(super) fn acknowledge(&mut self) -> bool {
        let taken = self.taken.load(Relaxed);
        let mut last = None;
        while self.open.front().is_some_and(|open| open.left == 0 && open.written <= taken) {
            let Some(open) = self.open.pop_front() else { break };
            last = Some(open.seq);
            open.failed.into_iter().for_each(|(prefix, why)| self.verdicts.refused(prefix, why));
        }
        let ack = match last {
            Some(seq) => Some(self.verdicts.ack(self.dataplane, seq)),
            None => self.verdicts.news(self.dataplane),
        };
        ack.is_none_or(|ack| self.feedback.send(RibIn::Ack(ack)).is_ok())
    }

    fn find(&mut self, seq: u64) -> Option<&mut Open> {
        let at = self.open.binary_search_by_key(&seq, |open| open.seq).ok()?;
        self.open.get_mut(at)
    }

    fn is_taken(&mut self, seq: u64) -> bool {
        let taken = self.taken.load(Relaxed);
        self.find(seq).is_some_and(|open| open.written <= taken)
    }

    fn settle(&mut self, seq: u64, failed: Option<(AnyPrefix, String)>) {
        if let Some(open) = self.find(seq) {
            open.left -= 1;
            open.failed.extend(failed);
        }
    }
}
