//! Other CPUs for the running threads of BGP (`bgp.cpus`, `bgp.numa-node`).
//!
//! Each thread binds itself, between two turns. Memory stays on the NUMA node on which it was first touched; what is allocated
//! later comes from the new one.

use super::placement::Placement;
use super::stage::pin;
use super::{Bgp, NotChanged};
use ribtide_config::{BgpConfig, CpuChoice};
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::log::target;

/// Whether CPUs can be used, for a configuration that is to be applied.
///
/// # Errors
/// A sentence, when a CPU or node does not exist, or this process may not use it.
pub fn check_cpus(choice: &CpuChoice) -> Result<(), String> {
    Placement::new(choice).map(drop)
}

impl Bgp {
    /// Binds the running threads to the CPUs of `bgp`, or lets them run anywhere. Later shards are bound as well. Returns
    /// whether anything changed.
    ///
    /// # Errors
    /// A stage has ended.
    pub fn set_cpus(&self, bgp: &BgpConfig) -> Result<bool, NotChanged> {
        let mut factory = self.factory();
        // `check_cpus` has said that they can be used. If that has changed since, the routes matter more.
        let placement = match Placement::new(&bgp.cpus) {
            Ok(placement) => placement,
            Err(error) => {
                tracing::warn!(target: target::BGP, error, "the threads stay on their CPUs");
                return Ok(false);
            }
        };
        if placement == factory.placement {
            return Ok(false);
        }
        // Of the caller, which is bound to none.
        let any = match Cpus::allowed() {
            Ok(any) => any,
            Err(error) => {
                tracing::warn!(target: target::BGP, %error, "the threads stay on their CPUs");
                return Ok(false);
            }
        };
        factory.placement = placement.clone();
        let bound = |cpus: Option<Cpus>| Some(cpus.unwrap_or_else(|| any.clone()));
        if !self.hosted().shards {
            for (index, reader) in self.readers.iter().enumerate() {
                let cpus = bound(placement.reader(index));
                reader.wait(move |_| pin(&format!("reader-{index}"), cpus.as_ref()))?;
            }
            let shards = self.owners.read().shards.clone();
            for (index, shard) in shards.iter().enumerate() {
                shard.pin(format!("shard-{index}"), bound(placement.stage(index)))?;
            }
        }
        if !self.hosted().workers {
            for (index, worker) in self.workers.running() {
                worker.pin(format!("egress-{index}"), bound(placement.stage(index)))?;
            }
        }
        let cpus = bound(placement.sessions());
        let writers = factory.writers().into_iter().map(bound).collect();
        self.sessions.wait(move |sessions| {
            pin("sessions", cpus.as_ref());
            sessions.set_writers(writers);
        })?;
        Ok(true)
    }
}
