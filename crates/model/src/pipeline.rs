//! Stages, the queues between them, and the threads that run them.

use serde::{Deserialize, Serialize};

/// `GET /v1/pipeline`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pipeline {
    /// What the stages did.
    pub stages: Vec<Stage>,
    /// What lies between them.
    pub rings: Vec<Ring>,
    /// What lies in them.
    #[serde(default)]
    pub gauges: Vec<Gauge>,
    /// The threads, those that used most first.
    pub threads: Vec<Thread>,
    /// Peak resident memory of the process.
    pub peak_memory_bytes: u64,
}

/// A stage's meter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Route changes handled.
    pub routes: u64,
    /// In how many batches.
    pub batches: u64,
    /// Seconds at work.
    pub busy_seconds: f64,
    /// Seconds from the start of the process to its first batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seconds: Option<f64>,
    /// Seconds from the start of the process to the end of its last batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seconds: Option<f64>,
}

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ring {
    /// From where to where.
    pub name: String,
    /// Its bound in batches.
    pub capacity: usize,
    /// Batches in it.
    pub depth: u64,
    /// The most it ever held.
    pub peak: u64,
    /// Batches that went through.
    pub sent: u64,
    /// How often a producer had to wait.
    pub full: u64,
}

/// How much a stage keeps that is in no ring.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Gauge {
    /// What it is.
    pub name: String,
    /// At so many the stage takes in no more; absent where only the number of routes bounds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
    /// How many now.
    pub depth: u64,
    /// The most it ever held.
    pub peak: u64,
    /// How often it reached its bound.
    pub full: u64,
}

/// `GET /v1/threads`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Threads {
    /// Over how long `cpu_percent` was measured.
    pub window_seconds: f64,
    /// CPUs that the process may use.
    pub cpus: usize,
    /// The threads, the busiest first.
    pub threads: Vec<Thread>,
    /// The queues between them.
    pub rings: Vec<Ring>,
}

/// A thread; threads of one name are one.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Seconds in which it could have run but had no CPU; absent where the kernel does not say.
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
