//! The machine of a measurement, and its other load.

use std::fmt;
use std::fs;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Where and when something was measured.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Machine {
    /// The processor's own name.
    pub cpu: String,
    /// Cores that this process may use.
    pub cores: usize,
    /// Memory in MiB.
    pub memory_mib: u64,
    /// Release of the kernel.
    pub kernel: String,
    /// Processes that were running or wanted to, on average over the minute before.
    pub load_before: f64,
    /// Seconds since 1970.
    pub at: u64,
}

impl Machine {
    /// This machine, now. Unknown values stay empty.
    pub fn now() -> Machine {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|l| l.starts_with(name))?;
            Some(line.split_once(':')?.1.trim().to_string())
        };
        let kib = |text: String| text.split(' ').next()?.parse::<u64>().ok();
        Machine {
            cpu: field(&read("/proc/cpuinfo"), "model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cores: cores(),
            memory_mib: field(&read("/proc/meminfo"), "MemTotal").and_then(kib).unwrap_or(0) / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().into(),
            load_before: read("/proc/loadavg").split(' ').next().and_then(|n| n.parse().ok()).unwrap_or(0.0),
            at: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_secs()),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { cpu, cores, memory_mib, kernel, load_before, .. } = self;
        let gib = *memory_mib as f64 / 1024.0;
        write!(f, "{cpu}, {cores} cores, {gib:.0} GiB, Linux {kernel}; load before: {load_before:.2}")
    }
}

/// Cores that this process may use.
pub fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, |n| n.get())
}

/// CPU time that all processes of the machine have used since it started, to a hundredth of a second.
pub fn busy() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    // user, nice, system, idle, iowait, irq, softirq; without steal, which is the time of other
    // machines.
    let ticks: u64 = fields
        .take(7)
        .enumerate()
        .filter(|(i, _)| !matches!(i, 3 | 4))
        .filter_map(|(_, n)| n.parse::<u64>().ok())
        .sum();
    Duration::from_millis(ticks * 10)
}
