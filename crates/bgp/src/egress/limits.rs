//! Maximum prefixes that are advertised to a member.
//!
//! A limit is no egress setting: it changes no message, so members with different limits share a
//! group. Before a flush takes changes, each limited member is counted as if all of its pending
//! changes were sent. One that would have too many gets nothing more, and the session thread ends
//! its session.

use super::{Receiver, Worker};
use crate::peer::{PeerId, PrefixLimits};
use ribtide_prefix::{AfiSafi, BgpFamily, Prefix, for_each_bgp_family};
use ribtide_wire::bgp::nlri::PathPrefix;

/// A member for which there are more prefixes than its limit. The worker has removed it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LimitExceeded {
    /// The member.
    pub member: Receiver,
    /// The family.
    pub family: AfiSafi,
    /// Prefixes that it would have.
    pub count: u64,
    /// The limit.
    pub max: u32,
}

impl Worker {
    /// Sets the limits of a member, which apply at once.
    pub(super) fn limit(&mut self, peer: PeerId, limits: PrefixLimits) {
        if limits.is_none() {
            self.limits.remove(&peer);
        } else if self.member_of.contains_key(&peer) {
            self.limits.insert(peer, limits);
            self.remove_all(self.exceeding(peer, limits));
        }
    }

    /// Removes the members that exceed a limit.
    pub(super) fn check_limits(&mut self) {
        let exceeding = self.limits.iter().filter_map(|(peer, limits)| self.exceeding(*peer, *limits));
        self.remove_all(exceeding.collect::<Vec<_>>());
    }

    fn remove_all(&mut self, exceeding: impl IntoIterator<Item = LimitExceeded>) {
        for one in exceeding {
            self.member_down(one.member.peer);
            self.exceeded.push(one);
        }
    }

    /// The first family of a member with more prefixes than its limit.
    fn exceeding(&self, peer: PeerId, limits: PrefixLimits) -> Option<LimitExceeded> {
        let cohort = self.groups.get(self.member_of.get(&peer)?)?.cohort_of(peer)?;
        let member = *cohort.members().iter().find(|member| member.peer == peer)?;
        for_each_bgp_family!(F => {
            if let Some(max) = limits[F::ID] {
                // Paths count where it gets several of a prefix: one of the two queues is not in use.
                let count = cohort.queue::<Prefix<F>>().prospect(peer, max.into(), &self.paths)
                    + cohort.queue::<PathPrefix<F>>().prospect(peer, max.into(), &self.paths);
                if count > u64::from(max) {
                    return Some(LimitExceeded { member, family: F::ID, count, max });
                }
            }
        });
        None
    }

    /// The members that exceeded a limit since the last call.
    pub fn take_exceeded(&mut self) -> Vec<LimitExceeded> {
        std::mem::take(&mut self.exceeded)
    }
}
