//! The state of each dataplane: batches sent, finished and failed, and its replay.

use crate::lagging::{Before, DirtySet, StalePage};
use crate::message::{DataplaneId, FibBatch, GroupId, VrfPrefix};
use ribtide_prefix::{AnyPrefix, Families, Map, Prefix, Set, per_family, shrink_to_fit};
use std::collections::VecDeque;

per_family! {
    /// Prefixes per family.
    pub(crate) struct Prefixes<F> = Vec<Prefix<F>>;
}

/// Routes in a page of a replay, at most.
pub const PAGE: usize = 8192;

/// Unacknowledged pages of a replay, at most. More would queue live changes behind a million
/// routes; fewer would let the dataplane idle. A lagging dataplane gets its next page below this
/// number of batches of any kind, so that its changes coalesce before.
const PAGES_IN_FLIGHT: usize = 4;

/// Below this number of batches, a lagging dataplane gets a page of a VRF of which it has none. So
/// no VRF waits until another one is complete.
const PAGES_OF_ALL: usize = 32;

/// Whether a dataplane has the RIB's route for one prefix.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InstallStatus {
    /// It acknowledged the latest change.
    Installed,
    /// It has not yet acknowledged the latest change.
    Pending,
    /// It failed the latest change; the reason is a sentence.
    Failed(String),
}

/// A route that a dataplane could not install.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// A sentence.
    pub(crate) reason: String,
    /// Time of the first failure since the prefix last changed.
    pub(crate) since: u64,
}

/// The purpose of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// Changes of the RIB.
    Live,
    /// Routes of the replay.
    Page,
    /// The start or end of a replay.
    ReplayBound,
    /// Another attempt at failed routes.
    Retry,
    /// Prefixes of the dirty set.
    Stale,
}

/// An unacknowledged batch.
struct Sent {
    seq: u64,
    /// The batch holds no change older than this one.
    since: u64,
    kind: Kind,
    /// Its prefixes whose last change is older than the batch.
    stale: Set<AnyPrefix>,
}

/// One dataplane.
#[derive(Default)]
pub(crate) struct Dataplane {
    /// Batches that are not acknowledged.
    outstanding: VecDeque<Sent>,
    pub(crate) acked: u64,
    pub(crate) failed: Map<AnyPrefix, Failure>,
    pub(crate) replay: Replay,
    /// Whether it holds back routes of its replay.
    pub(crate) holding: bool,
    /// While it lags: the changes that it has not been sent.
    pub(crate) dirty: Option<DirtySet>,
    /// While it lags: unacknowledged batches of other VRFs.
    pub(crate) elsewhere: usize,
    /// Failed prefixes that this round has not tried again.
    retrying: Vec<AnyPrefix>,
}

/// The progress of a replay.
#[derive(Default)]
pub(crate) enum Replay {
    /// No page was sent.
    #[default]
    New,
    /// These prefixes are not sent yet.
    Sending(Families<Prefixes>),
    /// Every route is sent. The end waits until the sources have announced everything.
    Waiting,
    /// The end is sent.
    Done,
}

impl Dataplane {
    /// Shrinks every table to its contents. O(capacity).
    pub(crate) fn shrink_to_fit(&mut self) {
        self.outstanding.shrink_to_fit();
        shrink_to_fit(&mut self.failed);
        self.retrying.shrink_to_fit();
    }

    /// Notes a batch that is sent to it.
    pub(crate) fn sent(&mut self, batch: &FibBatch, kind: Kind) {
        self.sent_since(batch, kind, StalePage { since: batch.seq, prefixes: Set::default() });
    }

    /// Notes a stale page, whose prefixes changed before its number.
    pub(crate) fn sent_since(&mut self, batch: &FibBatch, kind: Kind, stale: StalePage) {
        let StalePage { since, prefixes } = stale;
        self.outstanding.push_back(Sent { seq: batch.seq, since, kind, stale: prefixes });
        self.supersede(batch, kind);
    }

    /// Notes a batch that a lagging dataplane does not get. For `before` and `is_new` see
    /// [`DirtySet::note`].
    pub(crate) fn mark_dirty(
        &mut self,
        batch: &FibBatch,
        before: &Families<Before>,
        is_new: impl Fn(GroupId) -> bool,
    ) {
        if let Some(dirty) = &mut self.dirty {
            dirty.note(batch, before, is_new);
            self.supersede(batch, Kind::Stale);
        }
    }

    /// Forgets failures of routes that change.
    fn supersede(&mut self, batch: &FibBatch, kind: Kind) {
        // A retried route counts as failed until the dataplane reports success.
        if !self.failed.is_empty() && kind != Kind::Retry {
            let v4 = batch.routes.v4.iter().map(|r| r.prefix.any());
            for prefix in v4.chain(batch.routes.v6.iter().map(|r| r.prefix.any())) {
                self.failed.remove(&prefix);
            }
        }
    }

    /// At most `limit` failed prefixes to try again. Repeated calls go through all of them.
    pub(crate) fn retry(&mut self, limit: usize) -> Vec<AnyPrefix> {
        if self.retrying.is_empty() {
            self.retrying.extend(self.failed.keys());
        }
        let some = self.retrying.split_off(self.retrying.len().saturating_sub(limit));
        some.into_iter().filter(|prefix| self.failed.contains_key(prefix)).collect()
    }

    /// Notes an acknowledgement at the time `now`. `changed` gives the batch that last changed a
    /// prefix. A failure of an earlier batch is ignored and not stored, so success needs no
    /// correction.
    pub(crate) fn acknowledged(
        &mut self,
        seq: u64,
        failed: Vec<(VrfPrefix, String)>,
        installed: Vec<VrfPrefix>,
        now: u64,
        changed: impl Fn(AnyPrefix) -> u32,
    ) {
        while self.outstanding.front().is_some_and(|sent| sent.seq <= seq) {
            self.outstanding.pop_front();
        }
        self.acked = self.acked.max(seq);
        for VrfPrefix { prefix, .. } in installed {
            self.failed.remove(&prefix);
        }
        for (VrfPrefix { prefix, .. }, reason) in failed {
            if !self.is_pending(prefix, changed(prefix)) {
                let since = self.failed.get(&prefix).map_or(now, |failure| failure.since);
                self.failed.insert(prefix, Failure { reason, since });
            }
        }
    }

    /// Whether a batch, given the low half of its number, waits for acknowledgement.
    fn is_outstanding(&self, seq: u32) -> bool {
        // Numbers wrap, so they are compared by distance from the newest outstanding batch.
        let (Some(first), Some(last)) = (self.outstanding.front(), self.outstanding.back()) else {
            return false;
        };
        u64::from((last.seq as u32).wrapping_sub(seq)) <= last.seq - first.seq
    }

    /// Whether the last change of a prefix, in the batch with low half `changed`, is unsent or
    /// unacknowledged.
    fn is_pending(&self, prefix: AnyPrefix, changed: u32) -> bool {
        self.dirty.as_ref().is_some_and(|dirty| dirty.contains(prefix))
            || self.outstanding.iter().any(|sent| sent.stale.contains(&prefix))
            || self.is_outstanding(changed)
    }

    /// The state of a prefix whose last change is in the batch with low half `changed`.
    pub(crate) fn status(&self, prefix: AnyPrefix, changed: u32) -> InstallStatus {
        if let Some(failure) = self.failed.get(&prefix) {
            return InstallStatus::Failed(failure.reason.clone());
        }
        if self.has_all() && !self.is_pending(prefix, changed) {
            InstallStatus::Installed
        } else {
            InstallStatus::Pending
        }
    }

    /// The last batch up to which everything is finished: 0 during a replay, `u64::MAX` when
    /// nothing is outstanding.
    pub(crate) fn finished(&self) -> u64 {
        if !self.has_all() {
            return 0;
        }
        let sent = self.outstanding.front().map_or(u64::MAX, |sent| sent.since);
        match sent.min(self.dirty.as_ref().map_or(u64::MAX, DirtySet::since)) {
            u64::MAX => u64::MAX,
            since => since - 1,
        }
    }

    /// Whether it acknowledged every route of its replay, and holds none back.
    fn has_all(&self) -> bool {
        matches!(self.replay, Replay::Waiting | Replay::Done)
            && self.pages_outstanding() == 0
            && !self.holding
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether the next page of its replay, or of the dirty set, may be sent.
    pub(crate) fn wants_page(&self) -> bool {
        let own = self.outstanding.len();
        match self.dirty {
            None => self.pages_outstanding() < PAGES_IN_FLIGHT,
            Some(_) => own + self.elsewhere < PAGES_IN_FLIGHT || (own == 0 && self.elsewhere < PAGES_OF_ALL),
        }
    }

    /// Whether it was sent every route of its replay and of the dirty set.
    pub(crate) fn was_sent_all(&self) -> bool {
        matches!(self.replay, Replay::Waiting | Replay::Done) && self.dirty.is_none()
    }

    /// Whether it still has this deleted group.
    pub(crate) fn holds(&self, group: GroupId) -> bool {
        self.dirty.as_ref().is_some_and(|dirty| dirty.holds(group))
    }

    fn pages_outstanding(&self) -> usize {
        self.outstanding.iter().filter(|sent| sent.kind == Kind::Page).count()
    }
}

/// Every dataplane that is up, by number.
pub(crate) type Dataplanes = std::collections::BTreeMap<DataplaneId, Dataplane>;
