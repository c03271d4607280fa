//! Stages, the queues between them, and the threads that run them.

use ribtide_runtime::watchdog;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/pipeline`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Pipeline {
    /// The meters of stages.
    pub stages: Vec<Stage>,
    /// The queues between stages.
    pub rings: Vec<Ring>,
    /// Other queues in stages.
    #[serde(default)]
    pub gauges: Vec<Gauge>,
    /// The threads, largest CPU time first.
    pub threads: Vec<Thread>,
    /// Peak resident memory of the process.
    pub peak_memory_bytes: u64,
}

/// `GET /v1/health`.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Health {
    /// Whether everything makes progress, and nothing is missing.
    pub state: HealthState,
    /// Work that waits without progress, causes first.
    pub stalls: Vec<Stall>,
    /// What the router lacks although its work makes progress.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<HealthFault>,
}

/// The state of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HealthState {
    /// Nothing is stalled, and nothing is missing.
    Ok,
    /// Something is, or does.
    Degraded,
}

/// Something that the router lacks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HealthFault {
    /// What is missing or out of date, such as `RPKI cache 192.0.2.1:323`.
    pub what: String,
    /// The reason, and what it means for routes.
    pub why: String,
}

/// Work that waits without progress.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stall {
    /// The queue, or the peer for which a thread waits.
    pub what: String,
    /// The thread that took from the queue last, or waits for the peer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<String>,
    /// What waits in the queue; 0 of a peer.
    pub depth: u64,
    /// How long.
    pub seconds: u64,
    /// The stall that causes this one; absent of a cause.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<String>,
}

impl Health {
    /// The health of a process with these stalls.
    pub fn of(stalls: Vec<Stall>) -> Health {
        Health::with(stalls, Vec::new())
    }

    /// The same with these faults.
    pub fn with(stalls: Vec<Stall>, faults: Vec<HealthFault>) -> Health {
        let is_ok = stalls.is_empty() && faults.is_empty();
        Health { state: if is_ok { HealthState::Ok } else { HealthState::Degraded }, stalls, faults }
    }
}

impl From<watchdog::Stall> for Stall {
    fn from(stall: watchdog::Stall) -> Stall {
        let watchdog::Stall { what, thread, depth, lasted, behind, is_own: _ } = stall;
        Stall { what, thread, depth, seconds: lasted.as_secs(), behind }
    }
}

/// A stage's meter.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Route changes handled.
    pub routes: u64,
    /// Batches.
    pub batches: u64,
    /// Busy seconds.
    pub busy_seconds: f64,
    /// Seconds from the start of the process to its first batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seconds: Option<f64>,
    /// Seconds from the start of the process to the end of its last batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seconds: Option<f64>,
}

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Ring {
    /// Its name: from where to where.
    pub name: String,
    /// Its bound in batches.
    pub capacity: usize,
    /// Depth in batches.
    pub depth: u64,
    /// The peak.
    pub peak: u64,
    /// Batches that went through.
    pub sent: u64,
    /// How often a producer had to wait.
    pub full: u64,
}

/// A queue in a stage that is no ring.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Gauge {
    /// Its name.
    pub name: String,
    /// The bound; absent if only the number of routes bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
    /// Depth.
    pub depth: u64,
    /// The peak.
    pub peak: u64,
    /// How often it reached its bound.
    pub full: u64,
}

/// `GET /v1/threads`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Threads {
    /// The measured time of `cpu_percent`.
    pub window_seconds: f64,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// The threads, the busiest first.
    pub threads: Vec<Thread>,
    /// The queues between them.
    pub rings: Vec<Ring>,
}

/// A thread; threads of one name are one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// What it does.
    pub role: String,
    /// How many threads have this name.
    pub count: usize,
    /// CPU seconds, user and system.
    pub cpu_seconds: f64,
    /// Of these, in user space.
    pub user_seconds: f64,
    /// Of these, in the kernel.
    pub system_seconds: f64,
    /// Seconds without a CPU while it could have run; absent if the kernel does not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_seconds: Option<f64>,
    /// Share of one CPU in the window, in percent; only in `GET /v1/threads`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// CPUs that it may run on, such as `0-3,8`.
    pub cpus: String,
    /// Whether it may run on fewer CPUs than the process.
    pub pinned: bool,
}
