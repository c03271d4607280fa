//! What the RIB wants of the kernel: the group of each prefix.
//!
//! It is kept since the kernel drops routes without a word when an interface goes down: whatever happened, comparing a
//! dump with it says what to do. But the writer itself asks it seldom, and to note a route in a table of a million waits
//! for memory: a twentieth to a tenth of what the kernel takes to write it. So a thread beside the writer notes what the
//! writer has begun to write, and a caller notes first what is left of that.

use crossbeam_channel::{Receiver, Select, Sender, TryRecvError, TrySendError, bounded};
use ribtide_prefix::{
    Families, Family, Map, PerFamily, Prefix, for_each_family, shrink_if_sparse, shrink_to_fit,
};
use ribtide_rib::{FibBatch, FibRoute, GroupId, Protocol, VrfId};
use ribtide_runtime::{idle, thread};
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Batches that may wait to be noted.
const BATCHES: usize = 64;
/// How long the thread sleeps where nothing comes, before it frees memory that it does not use.
const IDLE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// One family's group of each prefix that shall be in the kernel.
struct Groups;
impl PerFamily for Groups {
    type Of<F: Family> = Map<Prefix<F>, GroupId>;
}

/// What is wanted of each VRF.
#[derive(Default)]
pub(super) struct Table(BTreeMap<VrfId, Families<Groups>>);

impl Table {
    /// The group of each prefix of a VRF.
    pub(super) fn routes<F: Family>(&self, vrf: VrfId) -> impl Iterator<Item = (Prefix<F>, GroupId)> {
        let all = self.0.get(&vrf).map(|families| families.get::<F>().iter());
        all.into_iter().flatten().map(|(prefix, group)| (*prefix, *group))
    }

    /// The group of one.
    pub(super) fn group<F: Family>(&self, vrf: VrfId, prefix: Prefix<F>) -> Option<GroupId> {
        self.0.get(&vrf)?.get::<F>().get(&prefix).copied()
    }

    /// A loop of nothing but accesses to one table: it is in no cache, and the processor waits for several of them at once only
    /// where little stands between them.
    fn note(&mut self, batch: &FibBatch) {
        let vrf = self.0.entry(batch.vrf.id).or_default();
        for_each_family!(F => {
            let groups = vrf.get_mut::<F>();
            for route in batch.routes.get::<F>() {
                match wanted(route) {
                    Some(group) => groups.insert(route.prefix, group),
                    None => groups.remove(&route.prefix),
                };
            }
            shrink_if_sparse(groups);
        });
    }

    /// Shrinks every table to its contents. O(capacity).
    fn shrink_to_fit(&mut self) {
        for vrf in self.0.values_mut() {
            for_each_family!(F => shrink_to_fit(vrf.get_mut::<F>()));
        }
    }
}

/// The group that the kernel's route shall use, or `None` when there shall be none of ours: the kernel has routes of some
/// protocols from elsewhere.
pub(super) fn wanted<F: Family>(route: &FibRoute<F>) -> Option<GroupId> {
    route.group.filter(|_| !of_the_kernel(route.protocol))
}

/// Whether routes of this protocol are in the kernel without us.
pub(super) fn of_the_kernel(protocol: Protocol) -> bool {
    matches!(protocol, Protocol::Connected | Protocol::Kernel)
}

/// The table and what is still to be noted in it. Its thread ends with it.
pub(super) struct DesiredState {
    batches: Sender<Arc<FibBatch>>,
    shared: Arc<Shared>,
}

struct Shared {
    table: Mutex<Table>,
    /// Taken from only by who holds the table, so that all is noted in its order.
    batches: Receiver<Arc<FibBatch>>,
}

impl Shared {
    fn table(&self) -> MutexGuard<'_, Table> {
        // Who panics here ends the process.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes the next batch.
    fn step(&self) -> Result<(), TryRecvError> {
        let mut table = self.table();
        table.note(&*self.batches.try_recv()?);
        Ok(())
    }
}

impl DesiredState {
    /// Nothing is wanted yet.
    ///
    /// # Errors
    /// The system gives no thread.
    pub(super) fn start() -> io::Result<DesiredState> {
        let (tx, batches) = bounded(BATCHES);
        let shared = Arc::new(Shared { table: Mutex::default(), batches });
        let this = shared.clone();
        thread::spawn("kernel-wanted", move || {
            while this.step() != Err(TryRecvError::Disconnected) {
                let mut select = Select::new();
                select.recv(&this.batches);
                if idle::wait(&mut select, IDLE_POLL_INTERVAL) {
                    this.table().shrink_to_fit();
                    idle::purge();
                }
            }
        })?;
        Ok(DesiredState { batches: tx, shared })
    }

    /// The writer is about to write this batch.
    pub(super) fn note(&self, batch: &Arc<FibBatch>) {
        if let Err(TrySendError::Full(batch)) = self.batches.try_send(batch.clone()) {
            // Then it is the writer who waits, and helps instead.
            self.table().note(&batch);
        }
    }

    /// The table, with everything noted.
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        let mut table = self.shared.table();
        while let Ok(batch) = self.shared.batches.try_recv() {
            table.note(&batch);
        }
        table
    }

    /// Nothing is wanted of this VRF any more.
    pub(super) fn forget(&self, vrf: VrfId) {
        self.table().0.remove(&vrf);
    }

    /// Nothing is wanted any more.
    pub(super) fn clear(&self) {
        *self.table() = Table::default();
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
    fn who_asks_sees_the_last_word_whoever_noted_it() {
        let wanted = DesiredState::start().unwrap();
        let group = |prefix: &str| wanted.table().group::<V4>(VrfId::DEFAULT, prefix.parse().unwrap());
        // More than may wait: some are noted by the thread, some by who would have to wait.
        for n in 0..20 * BATCHES as u32 {
            wanted.note(&batch("192.0.2.0/24", Some(n), Protocol::BgpExternal));
            wanted.note(&batch("198.51.100.0/24", Some(n), Protocol::BgpExternal));
            if n % 7 == 0 {
                assert_eq!(group("198.51.100.0/24"), Some(GroupId(n)));
            }
        }
        wanted.note(&batch("192.0.2.0/24", Some(1), Protocol::Kernel));
        assert_eq!(group("192.0.2.0/24"), None);
        let all: Vec<_> = wanted.table().routes::<V4>(VrfId::DEFAULT).collect();
        assert_eq!(all.len(), 1);
        wanted.note(&batch("198.51.100.0/24", None, Protocol::BgpExternal));
        assert_eq!(group("198.51.100.0/24"), None);
        wanted.note(&batch("198.51.100.0/24", Some(7), Protocol::BgpExternal));
        wanted.forget(VrfId::DEFAULT);
        assert_eq!(group("198.51.100.0/24"), None);
    }

    #[test]
    fn its_thread_ends_with_it() {
        let wanted = DesiredState::start().unwrap();
        wanted.note(&batch("192.0.2.0/24", Some(1), Protocol::BgpExternal));
        let shared = Arc::downgrade(&wanted.shared);
        drop(wanted);
        while shared.upgrade().is_some() {
            std::thread::yield_now();
        }
    }
}
