//! The desired state of the kernel: the group of each prefix.
//!
//! The kernel drops routes without a notification when an interface goes down. A comparison of a
//! dump with this table gives the missing routes: each round of the comparison marks the routes that
//! the kernel has, and a route that is written counts as marked.
//!
//! The writer rarely reads the table, and an insertion waits for memory. Between two writes the
//! kernel has the cache, so noting each batch alone costs up to a tenth of the kernel's time for
//! its routes; many in a row cost a quarter of that (ADR 22). So the writer keeps batches until
//! there are [`PENDING_MAX`], or until it reads the table.

use ribtide_prefix::{
    Families, Family, Map, PREFETCH_BATCH, PerFamily, Prefix, for_each_family, shrink_if_sparse,
    shrink_to_fit,
};
use ribtide_rib::{FibBatch, FibRoute, GroupId, Protocol, VrfId};
use ribtide_runtime::idle::ShrinkToFit;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Batches not yet in the table.
const PENDING_MAX: usize = 64;

/// The bit of an [`Entry`] that distinguishes rounds. Ids of groups count from 1 and never reach it.
const ROUND: u32 = 1 << 31;

/// A group, and the parity of the round that last saw its route in the kernel.
#[derive(Clone, Copy)]
struct Entry(u32);

impl Entry {
    fn group(self) -> GroupId {
        GroupId(self.0 & !ROUND)
    }
}

/// The entry of each prefix of one family that must be in the kernel.
struct Groups;
impl PerFamily for Groups {
    type Of<F: Family> = Map<Prefix<F>, Entry>;
}

/// The groups of prefixes, for each VRF.
#[derive(Default)]
pub(super) struct Table {
    vrfs: BTreeMap<VrfId, Families<Groups>>,
    /// The parity of the present round: 0 or [`ROUND`].
    round: u32,
}

impl Table {
    /// The group of each prefix of a VRF.
    pub(super) fn routes<F: Family>(&self, vrf: VrfId) -> impl Iterator<Item = (Prefix<F>, GroupId)> {
        self.entries(vrf).map(|(prefix, entry)| (prefix, entry.group()))
    }

    fn entries<F: Family>(&self, vrf: VrfId) -> impl Iterator<Item = (Prefix<F>, Entry)> {
        let all = self.vrfs.get(&vrf).map(|families| families.get::<F>().iter());
        all.into_iter().flatten().map(|(prefix, entry)| (*prefix, *entry))
    }

    /// The groups of prefixes that this round has seen in the kernel; `None` for those that must not
    /// be there. As in [`Table::note`], the loop only accesses one table.
    pub(super) fn saw<F: Family>(
        &mut self,
        vrf: VrfId,
        prefixes: impl Iterator<Item = Option<Prefix<F>>>,
    ) -> Vec<Option<GroupId>> {
        let round = self.round;
        let groups = self.vrfs.entry(vrf).or_default().get_mut::<F>();
        let see = |prefix| {
            let entry = groups.get_mut(&prefix?)?;
            entry.0 = entry.0 & !ROUND | round;
            Some(entry.group())
        };
        prefixes.map(see).collect()
    }

    /// The routes that this round has not seen, and that were not written since its start.
    pub(super) fn unseen<F: Family>(&self, vrf: VrfId) -> impl Iterator<Item = (Prefix<F>, GroupId)> {
        let unseen = self.entries(vrf).filter(|(_, entry)| entry.0 & ROUND != self.round);
        unseen.map(|(prefix, entry)| (prefix, entry.group()))
    }

    /// Starts the next round: nothing is seen.
    pub(super) fn next_round(&mut self) {
        self.round ^= ROUND;
    }

    /// The group of a prefix.
    pub(super) fn group<F: Family>(&self, vrf: VrfId, prefix: Prefix<F>) -> Option<GroupId> {
        self.vrfs.get(&vrf)?.get::<F>().get(&prefix).map(|entry| entry.group())
    }

    /// These loops only access one table. The table is in no cache, and the CPU overlaps accesses
    /// only if little code is between them: so a batch of entries is read before it is changed.
    fn note(&mut self, batch: &FibBatch) {
        let round = self.round;
        let vrf = self.vrfs.entry(batch.vrf.id).or_default();
        for_each_family!(F => {
            let groups = vrf.get_mut::<F>();
            for routes in batch.routes.get::<F>().chunks(PREFETCH_BATCH) {
                let entries = routes.iter().filter_map(|route| groups.get(&route.prefix));
                std::hint::black_box(entries.fold(0, |sum, entry| sum ^ entry.0));
                for route in routes {
                    match wanted(route) {
                        Some(group) => groups.insert(route.prefix, Entry(group.0 | round)),
                        None => groups.remove(&route.prefix),
                    };
                }
            }
            shrink_if_sparse(groups);
        });
    }

    /// Shrinks every table to its contents. O(capacity).
    fn shrink_to_fit(&mut self) {
        for vrf in self.vrfs.values_mut() {
            for_each_family!(F => shrink_to_fit(vrf.get_mut::<F>()));
        }
    }
}

/// The group of a route in the kernel, or `None` if ribtide must not have one there: the kernel has
/// routes of some protocols itself.
pub(super) fn wanted<F: Family>(route: &FibRoute<F>) -> Option<GroupId> {
    route.group.filter(|_| !of_the_kernel(route.protocol))
}

/// Whether the kernel has routes of this protocol itself.
pub(super) fn of_the_kernel(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Connected | Protocol::Kernel)
}

/// The table and the batches not yet in it.
#[derive(Default)]
pub(super) struct DesiredState {
    table: Table,
    pending: Vec<Arc<FibBatch>>,
}

impl DesiredState {
    /// Adds a batch before its write.
    pub(super) fn note(&mut self, batch: &Arc<FibBatch>) {
        self.pending.push(batch.clone());
        if self.pending.len() >= PENDING_MAX {
            self.table();
        }
    }

    /// The table, after all batches are in it.
    pub(super) fn table(&mut self) -> &Table {
        self.table_mut()
    }

    /// As [`DesiredState::table`], to mark routes as seen.
    pub(super) fn table_mut(&mut self) -> &mut Table {
        for batch in self.pending.drain(..) {
            self.table.note(&batch);
        }
        &mut self.table
    }

    /// Removes a VRF.
    pub(super) fn forget(&mut self, vrf: VrfId) {
        self.table_mut().vrfs.remove(&vrf);
    }
}

impl ShrinkToFit for DesiredState {
    fn shrink_to_fit(&mut self) {
        self.table_mut().shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::V4;

    fn batch(prefix: &str, group: Option<u32>, protocol: Protocol) -> Arc<FibBatch> {
        let mut batch = FibBatch::default();
        batch.routes.v4.push(FibRoute {
            prefix: prefix.parse().unwrap(),
            group: group.map(GroupId),
            protocol,
        });
        Arc::new(batch)
    }

    #[test]
    fn desired_state_has_the_last_group_of_each_prefix_of_ours() {
        let mut wanted = DesiredState::default();
        let group = |wanted: &mut DesiredState, prefix: &str| {
            wanted.table().group::<V4>(VrfId::DEFAULT, prefix.parse().unwrap())
        };
        for n in 0..3 * PENDING_MAX as u32 {
            wanted.note(&batch("192.0.2.0/24", Some(n), Protocol::BgpExternal));
            wanted.note(&batch("198.51.100.0/24", Some(n), Protocol::BgpExternal));
            if n % 50 == 0 {
                assert_eq!(group(&mut wanted, "198.51.100.0/24"), Some(GroupId(n)));
            }
        }
        wanted.note(&batch("192.0.2.0/24", Some(1), Protocol::Kernel));
        assert_eq!(group(&mut wanted, "192.0.2.0/24"), None);
        wanted.shrink_to_fit();
        assert_eq!(wanted.table().routes::<V4>(VrfId::DEFAULT).count(), 1);
        // A round sees what is found in the kernel and what is written meanwhile.
        wanted.table_mut().next_round();
        let unseen = |wanted: &mut DesiredState| wanted.table().unseen::<V4>(VrfId::DEFAULT).count();
        assert_eq!(unseen(&mut wanted), 1);
        wanted.note(&batch("192.0.2.0/24", Some(3), Protocol::BgpExternal));
        assert_eq!(unseen(&mut wanted), 1);
        let last = GroupId(3 * PENDING_MAX as u32 - 1);
        let prefix = "198.51.100.0/24".parse().unwrap();
        let found = [Some(prefix), None, Some("203.0.113.0/24".parse().unwrap())].into_iter();
        assert_eq!(wanted.table_mut().saw::<V4>(VrfId::DEFAULT, found), [Some(last), None, None]);
        assert_eq!(unseen(&mut wanted), 0);
        wanted.table_mut().next_round();
        assert_eq!(unseen(&mut wanted), 2);
        wanted.note(&batch("198.51.100.0/24", None, Protocol::BgpExternal));
        assert_eq!(group(&mut wanted, "198.51.100.0/24"), None);
        wanted.note(&batch("198.51.100.0/24", Some(7), Protocol::BgpExternal));
        wanted.forget(VrfId::DEFAULT);
        assert_eq!(group(&mut wanted, "198.51.100.0/24"), None);
    }
}
