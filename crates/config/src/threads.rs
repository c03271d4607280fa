//! How many threads BGP has, and where they run.

use super::check::Checker;
use super::diagnosis::key;
use super::file;
use ribtide_runtime::cpu::Cpus;

/// How many threads a kind of stage has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Threads {
    /// As many as the machine has cores.
    Auto,
    /// So many, from 1 to 64.
    Number(u16),
    /// None: one stage, which the session thread runs beside its own work.
    Off,
}

impl Threads {
    /// How many threads that is on this machine.
    pub fn resolve(self) -> u16 {
        match self {
            Threads::Number(n) => n,
            Threads::Auto => std::thread::available_parallelism().map_or(1, |n| n.get().min(64) as u16),
            Threads::Off => 0,
        }
    }

    /// How many stages: one for each thread, and one without.
    pub fn stages(self) -> u16 {
        self.resolve().max(1)
    }
}

/// Which CPUs BGP's threads run on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CpuChoice {
    /// Wherever the system puts them.
    Any,
    /// One each of those that the process may use.
    Auto,
    /// One each of these.
    These(Cpus),
    /// One each of this NUMA node's.
    Node(u16),
}

impl Checker {
    pub(super) fn cpus(&mut self, file: &file::Bgp) -> CpuChoice {
        let list = match file.cpus.as_deref() {
            None => return file.numa_node.map_or(CpuChoice::Any, CpuChoice::Node),
            Some("auto") => CpuChoice::Auto,
            Some(list) => match list.parse() {
                Ok(cpus) => CpuChoice::These(cpus),
                Err(message) => {
                    self.problem(key!["bgp", "cpus"], format!("{message}, or \"auto\" for all"));
                    CpuChoice::Any
                }
            },
        };
        if file.numa_node.is_some() {
            self.problem(
                key!["bgp", "numa-node"],
                "bgp.cpus already says where the threads run; remove one of the two",
            );
        }
        list
    }

    pub(super) fn threads(&mut self, name: &str, count: &file::Count) -> Threads {
        match count {
            file::Count::Auto => Threads::Auto,
            file::Count::Word(word) if word == "auto" => Threads::Auto,
            file::Count::Word(word) if word == "off" => Threads::Off,
            file::Count::Number(n @ 1..=64) => Threads::Number(*n),
            file::Count::Number(n) => {
                self.problem(
                    key!["bgp", name],
                    format!("{n} threads cannot be; write \"auto\", \"off\" or 1 to 64"),
                );
                Threads::Auto
            }
            file::Count::Word(word) => {
                self.problem(
                    key!["bgp", name],
                    format!("\"{word}\" is no number of threads; write \"auto\", \"off\" or 1 to 64"),
                );
                Threads::Auto
            }
        }
    }
}
