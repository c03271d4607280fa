//! What each dataplane was sent, what it finished, what it failed, and its replay.

use crate::lagging::{Before, DirtySet, StalePage};
use crate::message::{DataplaneId, FibBatch, GroupId, VrfPrefix};
use ribtide_prefix::{AnyPrefix, Families, Family, Map, PerFamily, Prefix, Set};
use std::collections::VecDeque;

/// Prefixes per family.
pub(crate) struct Prefixes;
impl PerFamily for Prefixes {
    type Of<F: Family> = Vec<Prefix<F>>;
}

/// The most routes in a page of a replay.
pub const PAGE: usize = 8192;

/// How many pages of a replay may be unacknowledged: enough to keep a dataplane busy, few enough that live
/// changes do not queue behind a million routes. And how many batches of any kind, where a lagging dataplane gets
/// another page: until it is nearly done with what it has, what changes coalesces.
const PAGES_IN_FLIGHT: usize = 4;

/// How many batches a lagging dataplane may have to do where a VRF of which it has none gets a page: so that none
/// waits for another's to end.
const PAGES_OF_ALL: usize = 32;

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
    /// Prefixes of the dirty set.
    Stale,
}

/// A batch that was sent and is not acknowledged.
struct Sent {
    seq: u64,
    /// No change of a batch before this one is in it.
    since: u64,
    kind: Kind,
    /// Its prefixes whose last change is older than its number.
    stale: Set<AnyPrefix>,
}

/// One dataplane.
#[derive(Default)]
pub(crate) struct Dataplane {
    /// Batches sent and not acknowledged.
    outstanding: VecDeque<Sent>,
    pub(crate) acked: u64,
    pub(crate) failed: Map<AnyPrefix, Failure>,
    pub(crate) replay: Replay,
    /// While it lags: what is still to be sent to it.
    pub(crate) dirty: Option<DirtySet>,
    /// How many batches of other VRFs it was sent and has not acknowledged, while it lags.
    pub(crate) elsewhere: usize,
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
    /// Shrinks every table to its contents. O(capacity).
    pub(crate) fn shrink_to_fit(&mut self) {
        self.outstanding.shrink_to_fit();
    }

    /// Notes a batch that is sent to it.
    pub(crate) fn sent(&mut self, batch: &FibBatch, kind: Kind) {
        self.sent_since(batch, kind, StalePage { since: batch.seq, prefixes: Set::default() });
    }

    /// The same, of a batch some of which is older than its number.
    pub(crate) fn sent_since(&mut self, batch: &FibBatch, kind: Kind, stale: StalePage) {
        let StalePage { since, prefixes } = stale;
        self.outstanding.push_back(Sent { seq: batch.seq, since, kind, stale: prefixes });
        self.supersede(batch, kind);
    }

    /// Notes a batch that it does not get, because it lags. `before` and `is_new` as in [`DirtySet::note`].
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

    /// Routes change.
    fn supersede(&mut self, batch: &FibBatch, kind: Kind) {
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
        // Numbers wrap: what counts is how far it is behind the newest, among the few that are outstanding.
        let (Some(first), Some(last)) = (self.outstanding.front(), self.outstanding.back()) else {
            return false;
        };
        u64::from((last.seq as u32).wrapping_sub(seq)) <= last.seq - first.seq
    }

    /// Whether the last change of a prefix, of the batch of low half `changed`, waits for acknowledgement or is still to be
    /// sent.
    fn is_pending(&self, prefix: AnyPrefix, changed: u32) -> bool {
        self.dirty.as_ref().is_some_and(|dirty| dirty.contains(prefix))
            || self.outstanding.iter().any(|sent| sent.stale.contains(&prefix))
            || self.is_outstanding(changed)
    }

    /// The state of a prefix that the batch of low half `changed` changed last.
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

    /// The last batch up to which it finished everything that it was to be sent: 0 while a replay is under way, without
    /// end when nothing is outstanding.
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

    /// Whether it acknowledged every route of its replay.
    fn has_all(&self) -> bool {
        matches!(self.replay, Replay::Waiting | Replay::Done) && self.pages_outstanding() == 0
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.outstanding.len()
    }

    /// Whether another page of its replay, or of the dirty set, may be sent.
    pub(crate) fn wants_page(&self) -> bool {
        let own = self.outstanding.len();
        match self.dirty {
            None => self.pages_outstanding() < PAGES_IN_FLIGHT,
            Some(_) => own + self.elsewhere < PAGES_IN_FLIGHT || (own == 0 && self.elsewhere < PAGES_OF_ALL),
        }
    }

    /// Whether it was sent every route: of its replay, and of the dirty set.
    pub(crate) fn was_sent_all(&self) -> bool {
        matches!(self.replay, Replay::Waiting | Replay::Done) && self.dirty.is_none()
    }

    /// Whether it still has this group, which is gone.
    pub(crate) fn holds(&self, group: GroupId) -> bool {
        self.dirty.as_ref().is_some_and(|dirty| dirty.holds(group))
    }

    fn pages_outstanding(&self) -> usize {
        self.outstanding.iter().filter(|sent| sent.kind == Kind::Page).count()
    }
}

/// Every dataplane that is up, in the order of their numbers.
pub(crate) type Dataplanes = std::collections::BTreeMap<DataplaneId, Dataplane>;
