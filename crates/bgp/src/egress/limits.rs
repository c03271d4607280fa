//! Maximum prefixes that are advertised to a member.
//!
//! A limit is no egress setting: it changes no message, so members with different limits share a
//! group. Before a flush takes changes, each limited member is counted as if all of its pending
//! changes were sent. One that would have too many gets nothing more, and the session thread ends
//! its session.

use super::group::Group;
use super::{Receiver, Worker};
use crate::peer::{PeerId, PrefixLimits};
use ribtide_prefix::{Afi, Family, for_each_family};

/// A member for which there are more prefixes than its limit. The worker has removed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitExceeded {
    /// The member.
    pub member: Receiver,
    /// The family.
    pub afi: Afi,
    /// Prefixes that it would have.
    pub count: u64,
    /// The limit.
    pub max: u32,
}

impl Worker {
    /// Sets the limits of a member, which apply at once.
    pub(super) fn limit(&mut self, peer: PeerId, limits: PrefixLimits) {
        let group = self.member_of.get(&peer).and_then(|id| self.groups.get_mut(id));
        let Some(member) = group.and_then(|group| group.members.get_mut(&peer)) else { return };
        member.limits = limits;
        self.check_limits();
    }

    /// Removes the members that exceed a limit.
    pub(super) fn check_limits(&mut self) {
        let mut exceeded = Vec::new();
        for group in self.groups.values().filter(|group| group.is_limited()) {
            for_each_family!(F => exceeded.extend(group.exceeded::<F>(&self.paths)));
        }
        for one in exceeded {
            // A member may exceed both limits.
            if self.member_of.contains_key(&one.member.peer) {
                self.member_down(one.member.peer);
                self.exceeded.push(one);
            }
        }
    }

    /// The members that exceeded a limit since the last call.
    pub fn take_exceeded(&mut self) -> Vec<LimitExceeded> {
        std::mem::take(&mut self.exceeded)
    }
}

impl Group {
    /// Whether any member has a limit.
    pub(super) fn is_limited(&self) -> bool {
        self.members.values().any(|member| !member.limits.is_none())
    }

    /// The members for which there are too many prefixes of a family.
    fn exceeded<F: Family>(&self, paths: &super::Paths) -> Vec<LimitExceeded> {
        let mut exceeded = Vec::new();
        for cohort in self.cohorts() {
            for receiver in cohort.members().iter() {
                let max = self.members.get(&receiver.peer).and_then(|member| member.limits.of(F::AFI));
                let Some(max) = max else { continue };
                let count = cohort.queue::<F>().prospect(receiver.peer, max.into(), paths);
                if count > u64::from(max) {
                    exceeded.push(LimitExceeded { member: *receiver, afi: F::AFI, count, max });
                }
            }
        }
        exceeded
    }
}
