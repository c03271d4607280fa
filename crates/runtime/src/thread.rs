//! Named threads, and one way to stop them all.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;

/// Tells every stage of a process to stop. Clones share the flag.
#[derive(Clone, Default, Debug)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Asks for the stop.
    pub fn stop(&self) {
        self.0.store(true, Relaxed);
    }

    /// Whether it was asked for.
    pub fn stopped(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// Starts a thread under `name` (at most 15 bytes show in `top`).
///
/// A panic in a stage would leave its neighbours waiting on it for ever, so it ends the process: a router that is
/// gone is noticed and restarted, one that has silently lost a stage is not.
///
/// # Errors
/// When the system gives no thread.
pub fn spawn(name: impl Into<String>, body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    let name = name.into();
    std::thread::Builder::new().name(name.clone()).spawn(move || {
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_err() {
            let says =
                format!("thread {name} failed; stopping the process so that no route is silently lost");
            crate::log::log("ribtide", &says);
            std::process::abort();
        }
    })
}

/// CPU seconds that each thread of this process has used, by thread name; threads of one name are added up.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn cpu_seconds() -> io::Result<Vec<(String, f64)>> {
    let mut threads: Vec<(String, f64)> = Vec::new();
    for task in std::fs::read_dir("/proc/self/task")? {
        // A thread may end between the listing and the reading.
        let Ok(stat) = std::fs::read_to_string(task?.path().join("stat")) else { continue };
        let (Some(open), Some(close)) = (stat.find('('), stat.rfind(')')) else { continue };
        let fields: Vec<&str> = stat[close + 1..].split_whitespace().collect();
        // proc(5): utime and stime are fields 14 and 15, counted from the pid; clock ticks are 1/100 s.
        let ticks = |i: usize| fields.get(i).and_then(|t| t.parse::<u64>().ok()).unwrap_or(0);
        let seconds = (ticks(11) + ticks(12)) as f64 / 100.0;
        let name = &stat[open + 1..close];
        match threads.iter_mut().find(|(n, _)| n == name) {
            Some((_, s)) => *s += seconds,
            None => threads.push((name.into(), seconds)),
        }
    }
    threads.sort_by(|a, b| b.1.total_cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    Ok(threads)
}

/// The most resident memory that this process ever had, in bytes.
///
/// # Errors
/// When `/proc` cannot be read.
pub fn peak_memory() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmHWM:"));
    let kib: Option<u64> = line.and_then(|l| l.split_whitespace().next()?.parse().ok());
    kib.map(|k| k * 1024).ok_or_else(|| io::Error::other("/proc/self/status has no VmHWM"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn threads_are_listed_by_name() {
        let (stop, wait) = std::sync::mpsc::channel::<()>();
        let thread = super::spawn("a (b) c", move || wait.recv().unwrap_or_default()).unwrap();
        while !super::cpu_seconds().unwrap().iter().any(|(name, _)| name == "a (b) c") {
            std::thread::yield_now();
        }
        drop(stop);
        thread.join().unwrap();
    }
}
