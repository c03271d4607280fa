//! A cohort: members in sync. They were sent the same routes, and have the same pending changes.

use super::paths::Paths;
use super::pending::{PendingQueue, Phase};
use super::{Receiver, pending::Tally};
use crate::peer::{FamilySet, PeerId};
use ribtide_prefix::{Families, Family, for_each_family, per_family};
use std::sync::Arc;

pub(super) struct Cohort {
    /// In the order of peers; never empty in a group.
    members: Arc<[Receiver]>,
    queues: Families<PendingQueues>,
    /// Whether it lags in its group.
    pub(super) lagging: bool,
}

per_family!(struct PendingQueues<F> = PendingQueue<F>);

impl Cohort {
    /// The cohort of a joining member that needs the tables of `families`.
    pub(super) fn joining(member: Receiver, families: FamilySet) -> Cohort {
        let mut queues = Families::<PendingQueues>::default();
        for_each_family!(F => if families.has(F::AFI) {
            *queues.get_mut::<F>() = PendingQueue::joining();
        });
        Cohort { members: Arc::new([member]), queues, lagging: false }
    }

    /// The cohort of a member that moves to another group, where it needs the tables of `families`.
    pub(super) fn moving(&self, peer: PeerId, families: FamilySet) -> Option<Cohort> {
        let member = self.members.iter().find(|member| member.peer == peer)?;
        let mut queues = Families::<PendingQueues>::default();
        for_each_family!(F => if families.has(F::AFI) {
            *queues.get_mut::<F>() = self.queue::<F>().moving();
        });
        Some(Cohort { members: Arc::new([*member]), queues, lagging: false })
    }

    /// Whether another cohort's members, which moved from another group, may wait for tables with
    /// these.
    pub(super) fn can_wait_with(&self, other: &Cohort) -> bool {
        let mut can = true;
        for_each_family!(F => can &= self.queue::<F>().can_wait_with(other.queue::<F>()));
        can
    }

    /// Merges such a cohort.
    pub(super) fn wait_with(&mut self, mut other: Cohort) {
        for_each_family!(F => {
            let queue = std::mem::take(other.queues.get_mut::<F>());
            self.queue_mut::<F>().wait_with(queue);
        });
        self.add(&other.members);
    }

    pub(super) fn members(&self) -> &Arc<[Receiver]> {
        &self.members
    }

    pub(super) fn has(&self, peer: PeerId) -> bool {
        self.members.binary_search_by_key(&peer, |member| member.peer).is_ok()
    }

    /// Shrinks its queues to their contents.
    pub(super) fn shrink_to_fit(&mut self) {
        for_each_family!(F => self.queues.get_mut::<F>().shrink_to_fit());
    }

    pub(super) fn queue<F: Family>(&self) -> &PendingQueue<F> {
        self.queues.get::<F>()
    }

    pub(super) fn queue_mut<F: Family>(&mut self) -> &mut PendingQueue<F> {
        self.queues.get_mut::<F>()
    }

    /// Whether joining members may be added.
    pub(super) fn is_open(&self, families: FamilySet) -> bool {
        let mut open = true;
        for_each_family!(F => open &= !families.has(F::AFI) || self.queue::<F>().is_open());
        open
    }

    /// Whether a table must be requested, and whether one was requested.
    pub(super) fn dump(&self) -> (bool, bool) {
        let (mut wanted, mut requested) = (false, false);
        for_each_family!(F => {
            wanted |= self.queue::<F>().phase() == Phase::Wanted;
            requested |= matches!(self.queue::<F>().phase(), Phase::Dumping(_));
        });
        (wanted, requested)
    }

    /// Whether its members wait for a whole table.
    pub(super) fn is_joining(&self) -> bool {
        let mut joining = false;
        for_each_family!(F => joining |= self.queue::<F>().is_joining());
        joining
    }

    /// The number of pending prefixes.
    pub(super) fn waiting(&self) -> usize {
        let mut waiting = 0;
        for_each_family!(F => waiting += self.queue::<F>().waiting());
        waiting
    }

    /// Prefixes and End-of-RIB markers of the next flush.
    pub(super) fn due(&self) -> usize {
        let mut due = 0;
        for_each_family!(F => due += self.queue::<F>().due());
        due
    }

    /// Whether a started batch is not completely packed.
    pub(super) fn begun(&self) -> bool {
        let mut begun = false;
        for_each_family!(F => begun |= self.queue::<F>().begun());
        begun
    }

    /// Whether nothing is pending for its members.
    pub(super) fn is_idle(&self) -> bool {
        let mut idle = true;
        for_each_family!(F => idle &= self.queue::<F>().is_idle());
        idle
    }

    /// Sent prefixes of a family, by source.
    pub(super) fn sent<F: Family>(&self) -> &Tally {
        self.queue::<F>().sent()
    }

    /// Adds members at the same position.
    pub(super) fn add(&mut self, members: &[Receiver]) {
        let mut all: Vec<Receiver> = self.members.iter().chain(members).copied().collect();
        all.sort_unstable();
        self.members = all.into();
    }

    /// Moves some members to a new cohort at the same position.
    pub(super) fn split(&mut self, leave: impl Fn(PeerId) -> bool, paths: &mut Paths) -> Cohort {
        let (gone, left): (Vec<_>, Vec<_>) = self.members.iter().copied().partition(|m| leave(m.peer));
        self.members = left.into();
        let mut queues = Families::<PendingQueues>::default();
        for_each_family!(F => *queues.get_mut::<F>() = self.queue::<F>().copy(paths));
        Cohort { members: gone.into(), queues, lagging: self.lagging }
    }

    /// Removes a member; returns whether it was the last.
    pub(super) fn remove(&mut self, peer: PeerId, paths: &mut Paths) -> bool {
        self.members = self.members.iter().copied().filter(|m| m.peer != peer).collect();
        let last = self.members.is_empty();
        if last {
            for_each_family!(F => self.queue_mut::<F>().clear(paths));
        }
        last
    }

    /// Whether a cohort at another position may be merged.
    pub(super) fn can_coalesce(&self, other: &Cohort) -> bool {
        let mut can = true;
        for_each_family!(F => can &= self.queue::<F>().can_coalesce(other.queue::<F>()));
        can
    }

    /// Merges members at another position: all get what any of them lacks.
    pub(super) fn coalesce(&mut self, mut other: Cohort, paths: &mut Paths) {
        for_each_family!(F => {
            let queue = std::mem::take(other.queues.get_mut::<F>());
            self.queue_mut::<F>().coalesce(queue, paths);
        });
        self.lagging |= other.lagging;
        self.add(&other.members);
    }

    /// Merges members at the same position.
    pub(super) fn merge(&mut self, other: &Cohort) {
        for_each_family!(F => debug_assert!(self.sent::<F>().equals(other.sent::<F>())));
        self.lagging = false;
        self.add(&other.members);
    }
}
