//! Placement of the threads of BGP on CPUs.

use ribtide_config::{CpuChoice, Threads};
use ribtide_runtime::cpu::Cpus;

/// The configured CPUs. Readers, shards and workers have one each, and the session thread runs on
/// any of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Placement {
    cpus: Option<Cpus>,
}

impl Placement {
    /// Resolves `choice` on this machine.
    ///
    /// # Errors
    /// A sentence, when a CPU or node does not exist, or this process may not use it.
    pub(super) fn new(choice: &CpuChoice) -> Result<Placement, String> {
        let cpus = match choice {
            CpuChoice::Any => return Ok(Placement { cpus: None }),
            CpuChoice::Auto => Cpus::allowed().map_err(|e| e.to_string()),
            CpuChoice::These(cpus) => cpus.clone().usable(),
            CpuChoice::Node(node) => Cpus::of_node(*node),
        };
        let setting = if matches!(choice, CpuChoice::Node(_)) { "numa-node" } else { "cpus" };
        let cpus = cpus.map_err(|message| format!("bgp.{setting} cannot be obeyed: {message}"))?;
        Ok(Placement { cpus: Some(cpus) })
    }

    /// The number of stages: one for each thread, and one without threads. `auto` counts the usable
    /// CPUs.
    pub(super) fn stages(&self, threads: Threads) -> u16 {
        match (threads, &self.cpus) {
            (Threads::Auto, Some(cpus)) => cpus.len().min(64) as u16,
            _ => threads.stages(),
        }
    }

    /// The CPU of shard or worker `index`; the two are seldom busy at the same time.
    pub(super) fn stage(&self, index: usize) -> Option<Cpus> {
        self.cpus.as_ref().map(|cpus| cpus.one(index))
    }

    /// The CPU of reader `index`, counted from the other end, where there may be fewer shards.
    pub(super) fn reader(&self, index: usize) -> Option<Cpus> {
        self.cpus.as_ref().map(|cpus| cpus.one(cpus.len() - 1 - index % cpus.len()))
    }

    /// The CPU of each thread that writes beside the session thread: as many threads write as pack.
    pub(super) fn writers(&self, update_threads: Threads) -> Vec<Option<Cpus>> {
        (1..usize::from(self.stages(update_threads))).map(|index| self.stage(index)).collect()
    }

    /// The CPUs of the session thread.
    pub(super) fn sessions(&self) -> Option<Cpus> {
        self.cpus.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_a_cpu_each_and_go_round() {
        let placement = Placement { cpus: Some("2-4".parse().unwrap()) };
        let shown = |cpus: Option<Cpus>| cpus.unwrap().to_string();
        assert_eq!((0..4).map(|i| shown(placement.stage(i))).collect::<Vec<_>>(), ["2", "3", "4", "2"]);
        assert_eq!((0..4).map(|i| shown(placement.reader(i))).collect::<Vec<_>>(), ["4", "3", "2", "4"]);
        assert_eq!(shown(placement.sessions()), "2-4");
        let stages = [Threads::Auto, Threads::Number(7), Threads::Off].map(|t| placement.stages(t));
        assert_eq!(stages, [3, 7, 1]);
        assert_eq!(placement.writers(Threads::Number(2)), [placement.stage(1)]);
        assert!(placement.writers(Threads::Off).is_empty());
        assert!(Placement::new(&CpuChoice::Any).unwrap().stage(0).is_none());
        let message = Placement::new(&CpuChoice::Node(4000)).unwrap_err();
        assert!(message.starts_with("bgp.numa-node cannot be obeyed: "), "{message}");
    }
}
