//! What each dataplane was sent, what it finished, what it failed, and its replay.

use crate::message::{DataplaneId, FibBatch};
use crate::vrfs::VrfPrefix;
use ribtide_prefix::{AnyPrefix, Families, Family, Map, PerFamily, Prefix};
use std::collections::VecDeque;

/// Prefixes per family.
pub(crate) struct Prefixes;
impl PerFamily for Prefixes {
    type Of<F: Family> = Vec<Prefix<F>>;
}

/// The most routes in a page of a replay.
pub const PAGE: usize = 8192;

/// How many pages of a replay may be unacknowledged: enough to keep a dataplane busy, few enough that live
/// changes do not queue behind a million routes.
const PAGES_IN_FLIGHT: usize = 4;

/// Whether a dataplane has what the RIB wants it to have for one prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InstallStatus {
    /// It acknowledged the latest change.
    Installed,
    /// It has not yet acknowledged the latest change.
    Pending,
    /// It could not; the reason is a sentence.
    Failed(String),
}

/// A route that a dataplane could not install.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// A sentence.
    pub(crate) reason: String,
    /// When it failed first since its last change.
    pub(crate) since: u64,
}

/// What a batch is to its receiver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Changes.
    Live,
    /// Routes of the replay.
    Page,
    /// The start or end of a replay.
    Mark,
    /// Another try of what failed.
    Retry,
}

/// One dataplane.
#[derive(Default)]
pub(crate) struct Dataplane {
    /// Batches sent and not acknowledged.
    outstanding: VecDeque<(u64, Kind)>,
    pub(crate) acked: u64,
    pub(crate) failed: Map<AnyPrefix, Failure>,
    pub(crate) replay: Replay,
    /// Of those that failed: what is still to be tried again in this round.
    retrying: Vec<AnyPrefix>,
}

/// How far a replay is.
#[derive(Default)]
pub(crate) enum Replay {
    /// Nothing was sent.
    #[default]
    New,
    /// These prefixes are still to be sent.
    Sending(Families<Prefixes>),
    /// Every route is sent; the end is held back until the sources have announced everything.
    Waiting,
    /// The end is sent too.
    Done,
}

impl Dataplane {
    /// Notes a batch that is sent to it.
    pub(crate) fn sent(&mut self, batch: &FibBatch, kind: Kind) {
        self.outstanding.push_back((batch.seq, kind));
        // What is tried again has failed until it is said not to.
        if !self.failed.is_empty() && kind != Kind::Retry {
            let v4 = batch.routes.v4.iter().map(|r| r.prefix.any());
            for prefix in v4.chain(batch.routes.v6.iter().map(|r| r.prefix.any())) {
                self.failed.remove(&prefix);
            }
        }
    }

    /// Some of what failed, at most `limit`, to be tried again: all in turn, if this is called often enough.
    pub(crate) fn retry(&mut self, limit: usize) -> Vec<AnyPrefix> {
        if self.retrying.is_empty() {
            self.retrying.extend(self.failed.keys());
        }
        let some = self.retrying.split_off(self.retrying.len().saturating_sub(limit));
        some.into_iter().filter(|prefix| self.failed.contains_key(prefix)).collect()
    }

    /// Notes what it finished, at the time `now`. `changed` gives the batch that last changed a prefix: a failure of an earlier one
    /// is of no interest any more. Of such a prefix nothing is noted as failed either, so that success has nothing to take back.
    pub(crate) fn acknowledged(
        &mut self,
        seq: u64,
        failed: Vec<(VrfPrefix, String)>,
        installed: Vec<VrfPrefix>,
        now: u64,
        changed: impl Fn(AnyPrefix) -> u32,
    ) {
        while self.outstanding.front().is_some_and(|(sent, _)| *sent <= seq) {
            self.outstanding.pop_front();
        }
        self.acked = self.acked.max(seq);
        for VrfPrefix { prefix, .. } in installed {
            self.failed.remove(&prefix);
        }
        for (VrfPrefix { prefix, .. }, reason) in failed {
            if !self.is_outstanding(changed(prefix)) {
                let since = self.failed.get(&prefix).map_or(now, |failure| failure.since);
                self.failed.insert(prefix, Failure { reason, since });
            }
        }
    }

    /// Whether a batch, given the low half of its number, waits for acknowledgement.
    fn is_outstanding(&self, seq: u32) -> bool {
        // Numbers wrap: what counts is how far it is behind the newest, among the few that are outstanding.
        let (Some((first, _)), Some((last, _))) = (self.outstanding.front(), self.outstanding.back()) else {
            return false;
        };
        u64::from((*last as u32).wrapping_sub(seq)) <= last - first
    }

    /// The state of a prefix that the batch of low half `changed` changed last.
    pub(crate) fn status(&self, prefix: AnyPrefix, changed: u32) -> InstallStatus {
        if let Some(failure) = self.failed.get(&prefix) {
            return InstallStatus::Failed(failure.reason.clone());
        }
        if self.has_all() && !self.is_outstanding(changed) {
            InstallStatus::Installed
        } else {
            InstallStatus::Pending
        }
    }

    /// The last batch up to which it finished everything that it was to be sent: 0 while a replay is under way, without
    /// end when nothing is outstanding.
    pub(crate) fn finished(&self) -> u64 {
        match self.outstanding.front() {
            _ if !self.has_all() => 0,
            Some((seq, _)) => seq - 1,
            None => u64::MAX,
        }
    }

    /// Whether it acknowledged every route of its replay.
    fn has_all(&self) -> bool {
        matches!(self.replay, Replay::Waiting | Replay::Done) && self.pages_outstanding() == 0
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether another page of its replay may be sent.
    pub(crate) fn wants_page(&self) -> bool {
        self.pages_outstanding() < PAGES_IN_FLIGHT
    }

    fn pages_outstanding(&self) -> usize {
        self.outstanding.iter().filter(|(_, kind)| *kind == Kind::Page).count()
    }
}

/// Every dataplane that is up, in the order of their numbers.
pub(crate) type Dataplanes = std::collections::BTreeMap<DataplaneId, Dataplane>;
