//! A program under test: one or more processes with their descendants, and their use of the
//! machine.

use crate::Error;
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_getcpuclockid, clock_gettime};
use nix::unistd::Pid;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Resources used since the start.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Usage {
    /// CPU time, user and system.
    pub cpu: Duration,
    /// Of that in the kernel, to a hundredth of a second.
    pub system: Duration,
    /// The sum of each process's peak resident set, in bytes.
    pub peak: u64,
    /// CPU time of the threads that run now, by name; threads of one name together.
    pub threads: BTreeMap<String, Duration>,
    /// Whether a thread runs, or waits for nothing but a core.
    pub runnable: bool,
}

/// Processes that were started together. Dropped, it ends them.
pub struct Program {
    name: String,
    children: Vec<(Child, PathBuf)>,
}

/// The time limit of a process's exit.
const EXIT_TIMEOUT: Duration = Duration::from_secs(5);
/// Lines of a log in an error.
const LAST_LINES: usize = 5;

impl Program {
    /// Starts `commands`, one after the other; each writes what it prints to a log in `folder`.
    ///
    /// # Errors
    /// One could not be started; those before it are ended.
    pub fn start(name: &str, commands: Vec<Command>, folder: &Path) -> Result<Program, Error> {
        let mut program = Program { name: name.into(), children: Vec::new() };
        for (i, mut command) in commands.into_iter().enumerate() {
            let path = folder.join(format!("log-{i}"));
            let failed = |source| Error::File { path: path.clone(), source };
            let log = fs::File::create(&path).map_err(failed)?;
            let also = log.try_clone().map_err(failed)?;
            let child = command.stdin(Stdio::null()).stdout(log).stderr(also).spawn();
            let child = child.map_err(|e| {
                Error::Options(format!("{name}: cannot start {:?}: {e}", command.get_program()))
            })?;
            program.children.push((child, path));
        }
        Ok(program)
    }

    /// An error with the last lines of the log when one of the processes has ended.
    ///
    /// # Errors
    /// One has.
    pub fn check(&mut self) -> Result<(), Error> {
        for (child, log) in &mut self.children {
            if let Ok(Some(status)) = child.try_wait() {
                let text = fs::read_to_string(log).unwrap_or_default();
                let lines: Vec<&str> = text.lines().collect();
                let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
                return Err(Error::Options(format!("{} ended by itself ({status}): {last}", self.name)));
            }
        }
        Ok(())
    }

    /// Whether the program still runs, for programs that end by themselves.
    ///
    /// # Errors
    /// It has failed.
    pub fn runs(&mut self) -> Result<bool, Error> {
        for (child, _) in &mut self.children {
            match child.try_wait() {
                Ok(None) => return Ok(true),
                Ok(Some(status)) if status.success() => {}
                _ => return self.check().map(|()| false),
            }
        }
        Ok(false)
    }

    /// The usage of the processes and their descendants.
    pub fn usage(&self) -> Usage {
        let mut usage = Usage::default();
        for pid in self.processes() {
            usage.add(pid);
        }
        usage
    }

    /// Resident memory now, in bytes.
    pub fn resident(&self) -> u64 {
        self.processes().into_iter().map(|pid| memory(pid, "VmRSS:")).sum()
    }

    /// CPU time alone, which is cheaper to read.
    pub fn cpu(&self) -> Duration {
        self.processes().into_iter().map(cpu).sum()
    }

    /// CPU time of the processes without descendants: cheap enough for every millisecond.
    pub fn own_cpu(&self) -> Duration {
        self.children.iter().map(|(child, _)| cpu(child.id() as i32)).sum()
    }

    /// The thread with this name, for [`thread_cpu`].
    pub fn thread(&self, name: &str) -> Option<PathBuf> {
        let mut tasks = self.children.iter().flat_map(|(child, _)| tasks(child.id() as i32));
        tasks.find(|task| stat(task).is_some_and(|(is, ..)| is == name))
    }

    /// The processes and their descendants.
    fn processes(&self) -> Vec<i32> {
        let mut found: Vec<i32> = self.children.iter().map(|(child, _)| child.id() as i32).collect();
        let mut next = 0;
        while let Some(pid) = found.get(next).copied() {
            next += 1;
            for task in tasks(pid) {
                let children = fs::read_to_string(task.join("children")).unwrap_or_default();
                found.extend(children.split_whitespace().filter_map(|p| p.parse::<i32>().ok()));
            }
        }
        found
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        let all = self.processes();
        // The last started first: zebra after bgpd.
        for (child, _) in self.children.iter_mut().rev() {
            let _ = kill(Pid::from_raw(child.id() as i32), Signal::SIGTERM);
            let since = Instant::now();
            while since.elapsed() < EXIT_TIMEOUT && matches!(child.try_wait(), Ok(None)) {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        for pid in all.into_iter().skip(self.children.len()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
}

impl Usage {
    /// CPU seconds of each thread since `before`.
    pub fn threads_since(&self, before: &Usage) -> BTreeMap<String, f64> {
        let since = |(name, time): (&String, &Duration)| {
            let earlier = before.threads.get(name).copied().unwrap_or_default();
            (name.clone(), time.saturating_sub(earlier).as_secs_f64())
        };
        self.threads.iter().map(since).collect()
    }

    fn add(&mut self, pid: i32) {
        self.peak += memory(pid, "VmHWM:");
        self.cpu += cpu(pid);
        for task in tasks(pid) {
            let Some((name, state, _)) = stat(&task) else { continue };
            *self.threads.entry(name).or_default() += thread_cpu(&task);
            self.runnable |= state == "R";
        }
        if let Some((_, _, system)) = stat(Path::new(&format!("/proc/{pid}"))) {
            self.system += system;
        }
    }
}

/// A line of a process's status, in bytes; 0 when it is gone.
fn memory(pid: i32, name: &str) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|l| l.strip_prefix(name));
    line.and_then(|l| l.trim().split(' ').next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Resident memory of this process in bytes.
pub fn own_resident() -> u64 {
    memory(std::process::id() as i32, "VmRSS:")
}

fn tasks(pid: i32) -> Vec<PathBuf> {
    let folder = fs::read_dir(format!("/proc/{pid}/task"));
    folder.into_iter().flatten().filter_map(|e| Some(e.ok()?.path())).collect()
}

/// Name, state and system time of a process or thread.
fn stat(task: &Path) -> Option<(String, String, Duration)> {
    let text = fs::read_to_string(task.join("stat")).ok()?;
    // The name is in parentheses and may hold any character.
    let (head, tail) = text.rsplit_once(") ")?;
    let name = head.split_once('(')?.1;
    let fields: Vec<&str> = tail.split(' ').collect();
    let ticks: u64 = fields.get(12)?.parse().ok()?;
    Some((name.into(), (*fields.first()?).into(), Duration::from_millis(ticks * 10)))
}

/// CPU time of a thread, by its folder in `/proc`; zero when it is gone.
pub fn thread_cpu(task: &Path) -> Duration {
    let nanoseconds = fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    Duration::from_nanos(nanoseconds.split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0))
}

/// CPU time of a process and all threads that it ever had; zero when it is gone.
fn cpu(pid: i32) -> Duration {
    clock_getcpuclockid(Pid::from_raw(pid)).map_or(Duration::ZERO, clock)
}

/// CPU time of this process and all threads that it ever had.
pub fn own_cpu() -> Duration {
    clock(ClockId::CLOCK_PROCESS_CPUTIME_ID)
}

/// The time of a clock; zero without it.
pub(crate) fn clock(id: ClockId) -> Duration {
    clock_gettime(id).map_or(Duration::ZERO, |t| Duration::new(t.tv_sec() as u64, t.tv_nsec() as u32))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_and_its_children_use_is_seen_and_ends_with_it() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "(while :; do :; done) & wait"]);
        let mut program = Program::start("busy", vec![command], folder.path()).unwrap();
        while program.cpu() < Duration::from_millis(30) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let usage = program.usage();
        assert!(usage.peak > 0 && usage.runnable && usage.threads.contains_key("sh"), "{usage:?}");
        program.check().unwrap();
        let all = program.processes();
        assert_eq!(all.len(), 2);
        drop(program);
        let gone = |pid: &i32| !Path::new(&format!("/proc/{pid}/exe")).exists();
        let since = Instant::now();
        while !all.iter().all(gone) && since.elapsed() < EXIT_TIMEOUT {
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(all.iter().all(gone));
    }

    #[test]
    fn the_log_of_an_ended_program_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", "echo no such setting >&2; exit 3"]);
        let mut program = Program::start("broken", vec![command], folder.path()).unwrap();
        let error = loop {
            match program.check() {
                Ok(()) => std::thread::sleep(Duration::from_millis(5)),
                Err(e) => break e.to_string(),
            }
        };
        assert!(error.contains("no such setting") && error.contains('3'), "{error}");
    }
}
