//! CPU sets in the kernel's format, the CPUs of this machine and process, and pinning.

use rustix::thread::{CpuSet, Pid, sched_getaffinity, sched_setaffinity};
use std::fmt;
use std::io;
use std::path::Path;
use std::str::FromStr;

/// The kernel's description of nodes and CPUs.
const SYSTEM: &str = "/sys/devices/system";
/// CPU numbers that the system calls support.
const LIMIT: u16 = CpuSet::MAX_CPU as u16;

/// A set of CPUs by number, ascending and not empty. Parses and displays the format of `taskset -c`
/// and the kernel: `0-3,8`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Cpus(Vec<u16>);

impl Cpus {
    /// The CPUs that this thread may use: those of the process, unless the thread was pinned.
    ///
    /// # Errors
    /// When the system call fails.
    pub fn allowed() -> io::Result<Cpus> {
        Cpus::of_thread(None)
    }

    /// The CPUs that a thread of this process may use; `None`: this one.
    ///
    /// # Errors
    /// There is no such thread.
    pub(crate) fn of_thread(thread: Option<Pid>) -> io::Result<Cpus> {
        let set = sched_getaffinity(thread)?;
        let cpus: Vec<u16> = (0..LIMIT).filter(|cpu| set.is_set(usize::from(*cpu))).collect();
        if cpus.is_empty() { Err(io::Error::other("it may use no CPU")) } else { Ok(Cpus(cpus)) }
    }

    /// The CPUs of a NUMA node that this process may use.
    ///
    /// # Errors
    /// A sentence, when there is no such node, or no CPU of it may be used.
    pub fn of_node(node: u16) -> Result<Cpus, String> {
        let allowed = Cpus::allowed().map_err(|e| format!("the allowed CPUs are unknown: {e}"))?;
        node_of(Path::new(SYSTEM), node, &allowed)
    }

    /// Checks that the CPUs exist and that this process may use them.
    ///
    /// # Errors
    /// A sentence that names the first that cannot be used.
    pub fn usable(self) -> Result<Cpus, String> {
        let allowed = Cpus::allowed().map_err(|e| format!("the allowed CPUs are unknown: {e}"))?;
        usable_of(Path::new(SYSTEM), self, &allowed)
    }

    /// The number of CPUs.
    #[expect(clippy::len_without_is_empty, reason = "it is never empty")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Only the CPU at `index`, modulo their number.
    pub fn one(&self, index: usize) -> Cpus {
        Cpus(vec![self.0[index % self.0.len()]])
    }

    /// Pins the calling thread, and threads that it starts, to these CPUs.
    ///
    /// # Errors
    /// When the system refuses: none of them may be used.
    pub fn pin(&self) -> io::Result<()> {
        let mut set = CpuSet::new();
        self.0.iter().for_each(|cpu| set.set(usize::from(*cpu)));
        Ok(sched_setaffinity(None, &set)?)
    }

    fn contains(&self, cpu: u16) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|e| format!("cannot read {}: {e}", path.display()))
}

fn node_of(system: &Path, node: u16, allowed: &Cpus) -> Result<Cpus, String> {
    let nodes = read(&system.join("node/online"))?;
    let known: Cpus = nodes.trim().parse()?;
    if !known.contains(node) {
        return Err(format!("there is no NUMA node {node}; this machine has {known}"));
    }
    let list = read(&system.join(format!("node/node{node}/cpulist")))?;
    // A node without CPUs has an empty list.
    let of_node = list.trim().parse().unwrap_or(Cpus(Vec::new()));
    let cpus: Vec<u16> = of_node.0.iter().copied().filter(|cpu| allowed.contains(*cpu)).collect();
    if cpus.is_empty() {
        return Err(format!(
            "this process may use no CPU of NUMA node {node}, which has {}; it may use {allowed}",
            if of_node.0.is_empty() { "none".into() } else { of_node.to_string() }
        ));
    }
    Ok(Cpus(cpus))
}

fn usable_of(system: &Path, wanted: Cpus, allowed: &Cpus) -> Result<Cpus, String> {
    let Some(missing) = wanted.0.iter().find(|cpu| !allowed.contains(**cpu)) else { return Ok(wanted) };
    let online: Cpus = read(&system.join("cpu/online"))?.trim().parse()?;
    Err(if online.contains(*missing) {
        format!(
            "this process may not use CPU {missing}, only {allowed}: something confines it (taskset, a cgroup's cpuset, \
             CPUAffinity= of its service)"
        )
    } else {
        format!("there is no CPU {missing} on this machine, which has {online}")
    })
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut comma = "";
        for run in self.0.chunk_by(|a, b| *a + 1 == *b) {
            write!(f, "{comma}{}", run[0])?;
            if let [_, .., last] = run {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

impl FromStr for Cpus {
    type Err = String;

    fn from_str(text: &str) -> Result<Cpus, String> {
        let no = || format!("\"{text}\" is no list of CPUs; write one such as \"0-3,8\"");
        let mut cpus = Vec::new();
        for part in text.split(',') {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let number = |n: &str| n.trim().parse::<u16>().map_err(|_| no());
            let (first, last) = (number(first)?, number(last)?);
            if first > last || last >= LIMIT {
                return Err(no());
            }
            cpus.extend(first..=last);
        }
        cpus.sort_unstable();
        cpus.dedup();
        Ok(Cpus(cpus))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpus(text: &str) -> Cpus {
        text.parse().unwrap()
    }

    #[test]
    fn lists_read_and_display_as_the_kernels() {
        for (text, shown, len) in [("0", "0", 1), ("0-3,8", "0-3,8", 5), ("8, 1,0 ,8", "0-1,8", 3)] {
            assert_eq!((cpus(text).to_string().as_str(), cpus(text).len()), (shown, len));
        }
        for text in ["", "a", "3-1", "0-", "-1", "1024", "65536", "0,,1"] {
            assert!(text.parse::<Cpus>().unwrap_err().contains("is no list of CPUs"), "{text}");
        }
        assert_eq!((cpus("2,4").one(0), cpus("2,4").one(3)), (cpus("2"), cpus("4")));
    }

    #[test]
    fn unusable_cpus_are_refused_with_a_reason() {
        let folder = std::env::temp_dir().join(format!("ribtide-cpus-{}", std::process::id()));
        for (file, text) in [
            ("cpu/online", "0-7\n"),
            ("node/online", "0-2\n"),
            ("node/node0/cpulist", "0-3\n"),
            ("node/node1/cpulist", "4-7\n"),
            ("node/node2/cpulist", "\n"),
        ] {
            let path = folder.join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let allowed = cpus("2-3");
        assert_eq!(usable_of(&folder, cpus("3"), &allowed), Ok(cpus("3")));
        assert_eq!(node_of(&folder, 0, &allowed), Ok(allowed.clone()));
        for (outcome, message) in [
            (usable_of(&folder, cpus("2-4"), &allowed), "may not use CPU 4, only 2-3"),
            (usable_of(&folder, cpus("2,9"), &allowed), "no CPU 9 on this machine, which has 0-7"),
            (node_of(&folder, 1, &allowed), "no CPU of NUMA node 1, which has 4-7; it may use 2-3"),
            (node_of(&folder, 2, &allowed), "no CPU of NUMA node 2, which has none"),
            (node_of(&folder, 3, &allowed), "no NUMA node 3; this machine has 0-2"),
        ] {
            assert!(outcome.as_ref().unwrap_err().contains(message), "{outcome:?}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_pinned_thread_is_where_it_was_put() {
        let one = Cpus::allowed().unwrap().one(0);
        let wanted = one.clone();
        std::thread::spawn(move || {
            wanted.pin().unwrap();
            assert_eq!(Cpus::allowed().unwrap(), wanted);
        })
        .join()
        .unwrap();
        assert_eq!(one.clone().usable(), Ok(one));
    }
}
