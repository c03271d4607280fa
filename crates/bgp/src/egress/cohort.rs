//! A cohort: members in sync. They were sent the same routes, and have the same pending changes.

use super::Receiver;
use super::paths::Paths;
use super::pending::{Key, PendingQueue, Phase, for_each_key};
use crate::peer::{EgressSettings, PeerId};
use ribtide_prefix::{BgpFamilies, BgpFamily, Prefix, for_each_bgp_family, per_bgp_family};
use ribtide_wire::bgp::nlri::PathPrefix;
use std::sync::Arc;

pub(super) struct Cohort {
    /// In the order of peers; never empty in a group.
    members: Arc<[Receiver]>,
    pub(super) queues: BgpFamilies<PendingQueues>,
    /// In place of those, of families in which the members get path identifiers.
    pub(super) path_queues: BgpFamilies<PathQueues>,
    /// Whether it lags in its group.
    pub(super) lagging: bool,
}

per_bgp_family!(pub(super) struct PendingQueues<F> = PendingQueue<Prefix<F>>);
per_bgp_family!(pub(super) struct PathQueues<F> = PendingQueue<PathPrefix<F>>);

impl Cohort {
    /// Members with nothing pending.
    fn new(members: Arc<[Receiver]>) -> Cohort {
        Cohort {
            members,
            queues: BgpFamilies::default(),
            path_queues: BgpFamilies::default(),
            lagging: false,
        }
    }

    /// The cohort of a joining member that needs the tables of a group's families.
    pub(super) fn joining(member: Receiver, settings: &EgressSettings) -> Cohort {
        let mut cohort = Cohort::new(Arc::new([member]));
        for_each_bgp_family!(F => match settings.add_path.of(F::ID) {
            _ if !settings.families.has(F::ID) => {}
            Some(_) => *cohort.queue_mut::<PathPrefix<F>>() = PendingQueue::joining(),
            None => *cohort.queue_mut::<Prefix<F>>() = PendingQueue::joining(),
        });
        cohort
    }

    /// The cohort of a member that moves to another group, where it needs the tables of the families.
    pub(super) fn moving(&self, peer: PeerId, settings: &EgressSettings) -> Option<Cohort> {
        let member = self.members.iter().find(|member| member.peer == peer)?;
        let mut cohort = Cohort::new(Arc::new([*member]));
        for_each_bgp_family!(F => match settings.add_path.of(F::ID) {
            _ if !settings.families.has(F::ID) => {}
            Some(_) => *cohort.queue_mut::<PathPrefix<F>>() = self.queue::<PathPrefix<F>>().moving(),
            None => *cohort.queue_mut::<Prefix<F>>() = self.queue::<Prefix<F>>().moving(),
        });
        Some(cohort)
    }

    /// Whether another cohort's members, which moved from another group, may wait for tables with
    /// these.
    pub(super) fn can_wait_with(&self, other: &Cohort) -> bool {
        let mut can = true;
        for_each_key!(K => can &= self.queue::<K>().can_wait_with(other.queue::<K>()));
        can
    }

    /// Merges such a cohort.
    pub(super) fn wait_with(&mut self, mut other: Cohort) {
        for_each_key!(K => {
            let queue = std::mem::take(other.queue_mut::<K>());
            self.queue_mut::<K>().wait_with(queue);
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
        for_each_key!(K => self.queue_mut::<K>().shrink_to_fit());
    }

    pub(super) fn queue<K: Key>(&self) -> &PendingQueue<K> {
        K::queue(self)
    }

    pub(super) fn queue_mut<K: Key>(&mut self) -> &mut PendingQueue<K> {
        K::queue_mut(self)
    }

    /// Whether joining members may be added.
    pub(super) fn is_open(&self, settings: &EgressSettings) -> bool {
        let mut open = true;
        for_each_bgp_family!(F => open &= match settings.add_path.of(F::ID) {
            _ if !settings.families.has(F::ID) => true,
            Some(_) => self.queue::<PathPrefix<F>>().is_open(),
            None => self.queue::<Prefix<F>>().is_open(),
        });
        open
    }

    /// Whether a table must be requested, and whether one was requested.
    pub(super) fn dump(&self) -> (bool, bool) {
        let (mut wanted, mut requested) = (false, false);
        for_each_key!(K => {
            wanted |= self.queue::<K>().phase() == Phase::Wanted;
            requested |= matches!(self.queue::<K>().phase(), Phase::Dumping(_));
        });
        (wanted, requested)
    }

    /// Whether its members wait for a whole table.
    pub(super) fn is_joining(&self) -> bool {
        let mut joining = false;
        for_each_key!(K => joining |= self.queue::<K>().is_joining());
        joining
    }

    /// Whether its members moved from another group, and wait for a table.
    pub(super) fn has_moved(&self) -> bool {
        let mut moved = false;
        for_each_key!(K => moved |= self.queue::<K>().has_moved());
        moved
    }

    /// The number of pending prefixes.
    pub(super) fn waiting(&self) -> usize {
        let mut waiting = 0;
        for_each_key!(K => waiting += self.queue::<K>().waiting());
        waiting
    }

    /// Prefixes and End-of-RIB markers of the next flush.
    pub(super) fn due(&self) -> usize {
        let mut due = 0;
        for_each_key!(K => due += self.queue::<K>().due());
        due
    }

    /// Whether a started batch is not completely packed.
    pub(super) fn begun(&self) -> bool {
        let mut begun = false;
        for_each_key!(K => begun |= self.queue::<K>().begun());
        begun
    }

    /// Whether nothing is pending for its members.
    pub(super) fn is_idle(&self) -> bool {
        let mut idle = true;
        for_each_key!(K => idle &= self.queue::<K>().is_idle());
        idle
    }

    /// Prefixes of a family, or their paths, that were sent to a member.
    pub(super) fn sent_to<F: BgpFamily>(&self, peer: PeerId) -> u64 {
        self.queue::<Prefix<F>>().sent().but(peer) + self.queue::<PathPrefix<F>>().sent().but(peer)
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
        let mut cohort = Cohort { lagging: self.lagging, ..Cohort::new(gone.into()) };
        for_each_key!(K => *cohort.queue_mut::<K>() = self.queue::<K>().copy(paths));
        cohort
    }

    /// Removes a member; returns whether it was the last.
    pub(super) fn remove(&mut self, peer: PeerId, paths: &mut Paths) -> bool {
        self.members = self.members.iter().copied().filter(|m| m.peer != peer).collect();
        let last = self.members.is_empty();
        if last {
            for_each_key!(K => self.queue_mut::<K>().clear(paths));
        }
        last
    }

    /// Whether a cohort at another position may be merged.
    pub(super) fn can_coalesce(&self, other: &Cohort) -> bool {
        let mut can = true;
        for_each_key!(K => can &= self.queue::<K>().can_coalesce(other.queue::<K>()));
        can
    }

    /// Merges members at another position: all get what any of them lacks.
    pub(super) fn coalesce(&mut self, mut other: Cohort, paths: &mut Paths) {
        for_each_key!(K => {
            let queue = std::mem::take(other.queue_mut::<K>());
            self.queue_mut::<K>().coalesce(queue, paths);
        });
        self.lagging |= other.lagging;
        self.add(&other.members);
    }

    /// Merges members at the same position.
    pub(super) fn merge(&mut self, other: &Cohort) {
        for_each_key!(K => debug_assert!(self.queue::<K>().sent().equals(other.queue::<K>().sent())));
        self.lagging = false;
        self.add(&other.members);
    }
}
