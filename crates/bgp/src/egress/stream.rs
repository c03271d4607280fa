//! Members at one position: they were sent the same, and the same waits for them.

use super::lane::{Lane, Phase};
use super::paths::Paths;
use super::{Receiver, lane::Tally};
use crate::peer::{FamilySet, PeerId};
use ribtide_prefix::{Families, Family, PerFamily, for_each_family};
use std::sync::Arc;

pub(super) struct Stream {
    /// In the order of peers; never empty in a group.
    members: Arc<[Receiver]>,
    lanes: Families<Lanes>,
    /// Whether it was left behind by others of its group, and has not caught up.
    pub(super) behind: bool,
}

struct Lanes;
impl PerFamily for Lanes {
    type Of<F: Family> = Lane<F>;
}

impl Stream {
    /// Of a member that joins, and wants the tables of `families`.
    pub(super) fn joining(member: Receiver, families: FamilySet) -> Stream {
        let mut lanes = Families::<Lanes>::default();
        for_each_family!(F => if families.has(F::AFI) {
            *lanes.get_mut::<F>() = Lane::joining();
        });
        Stream { members: Arc::new([member]), lanes, behind: false }
    }

    /// The same of a member that leaves this stream for another group, where it wants the tables of `families`.
    pub(super) fn emigrating(&self, peer: PeerId, families: FamilySet) -> Option<Stream> {
        let member = self.members.iter().find(|member| member.peer == peer)?;
        let mut lanes = Families::<Lanes>::default();
        for_each_family!(F => if families.has(F::AFI) {
            *lanes.get_mut::<F>() = self.lane::<F>().emigrating();
        });
        Some(Stream { members: Arc::new([*member]), lanes, behind: false })
    }

    /// Whether another stream's members, which have come from another group, may wait for tables together with these.
    pub(super) fn can_wait_with(&self, other: &Stream) -> bool {
        let mut can = true;
        for_each_family!(F => can &= self.lane::<F>().can_wait_with(other.lane::<F>()));
        can
    }

    /// Takes in such a stream.
    pub(super) fn wait_with(&mut self, mut other: Stream) {
        for_each_family!(F => {
            let lane = std::mem::take(other.lanes.get_mut::<F>());
            self.lane_mut::<F>().wait_with(lane);
        });
        self.add(&other.members);
    }

    pub(super) fn members(&self) -> &Arc<[Receiver]> {
        &self.members
    }

    pub(super) fn has(&self, peer: PeerId) -> bool {
        self.members.binary_search_by_key(&peer, |member| member.peer).is_ok()
    }

    pub(super) fn lane<F: Family>(&self) -> &Lane<F> {
        self.lanes.get::<F>()
    }

    pub(super) fn lane_mut<F: Family>(&mut self) -> &mut Lane<F> {
        self.lanes.get_mut::<F>()
    }

    /// Whether others that join now may join it.
    pub(super) fn is_open(&self, families: FamilySet) -> bool {
        let mut open = true;
        for_each_family!(F => open &= !families.has(F::AFI) || self.lane::<F>().is_open());
        open
    }

    /// Whether a table is to be asked for, and whether one was asked for.
    pub(super) fn dump(&self) -> (bool, bool) {
        let (mut wanted, mut asked) = (false, false);
        for_each_family!(F => {
            wanted |= self.lane::<F>().phase() == Phase::Wanted;
            asked |= matches!(self.lane::<F>().phase(), Phase::Dumping(_));
        });
        (wanted, asked)
    }

    /// Whether its members wait for a whole table.
    pub(super) fn joining_still(&self) -> bool {
        let mut joining = false;
        for_each_family!(F => joining |= self.lane::<F>().joining_still());
        joining
    }

    /// Prefixes that wait.
    pub(super) fn waiting(&self) -> usize {
        let mut waiting = 0;
        for_each_family!(F => waiting += self.lane::<F>().waiting());
        waiting
    }

    /// What a flush would send: prefixes, and End-of-RIB markers.
    pub(super) fn due(&self) -> usize {
        let mut due = 0;
        for_each_family!(F => due += self.lane::<F>().due());
        due
    }

    /// Whether what was taken to be packed is not packed yet.
    pub(super) fn begun(&self) -> bool {
        let mut begun = false;
        for_each_family!(F => begun |= self.lane::<F>().begun());
        begun
    }

    /// Whether its members know everything.
    pub(super) fn is_idle(&self) -> bool {
        let mut idle = true;
        for_each_family!(F => idle &= self.lane::<F>().is_idle());
        idle
    }

    /// How many prefixes of a family were sent, by source.
    pub(super) fn sent<F: Family>(&self) -> &Tally {
        self.lane::<F>().sent()
    }

    /// Takes one more member, at the same position.
    pub(super) fn add(&mut self, members: &[Receiver]) {
        let mut all: Vec<Receiver> = self.members.iter().chain(members).copied().collect();
        all.sort_unstable();
        self.members = all.into();
    }

    /// Some members leave for a stream of their own, at the same position.
    pub(super) fn split(&mut self, leave: impl Fn(PeerId) -> bool, paths: &mut Paths) -> Stream {
        let (gone, left): (Vec<_>, Vec<_>) = self.members.iter().copied().partition(|m| leave(m.peer));
        self.members = left.into();
        let mut lanes = Families::<Lanes>::default();
        for_each_family!(F => *lanes.get_mut::<F>() = self.lane::<F>().copy(paths));
        Stream { members: gone.into(), lanes, behind: self.behind }
    }

    /// A member's session ends. Returns whether it was the last.
    pub(super) fn remove(&mut self, peer: PeerId, paths: &mut Paths) -> bool {
        self.members = self.members.iter().copied().filter(|m| m.peer != peer).collect();
        let last = self.members.is_empty();
        if last {
            for_each_family!(F => self.lane_mut::<F>().clear(paths));
        }
        last
    }

    /// Whether another stream's members could share this one although they are at another position.
    pub(super) fn can_coalesce(&self, other: &Stream) -> bool {
        let mut can = true;
        for_each_family!(F => can &= self.lane::<F>().can_coalesce(other.lane::<F>()));
        can
    }

    /// Takes in members at another position: from now on all get what any of them lacks.
    pub(super) fn coalesce(&mut self, mut other: Stream, paths: &mut Paths) {
        for_each_family!(F => {
            let lane = std::mem::take(other.lanes.get_mut::<F>());
            self.lane_mut::<F>().coalesce(lane, paths);
        });
        self.behind |= other.behind;
        self.add(&other.members);
    }

    /// Takes in members at the same position.
    pub(super) fn merge(&mut self, other: &Stream) {
        for_each_family!(F => debug_assert!(self.sent::<F>().equals(other.sent::<F>())));
        self.behind = false;
        self.add(&other.members);
    }
}
