//! `/v1/performance`.

use serde::{Deserialize, Serialize};

/// A stage's thread and the latest records of its PerformanceTimer, oldest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Performance {
    /// The stage; with a number where it has several threads.
    pub stage: String,
    /// Each of 10,000 tasks or more.
    pub records: Vec<PerformanceRecord>,
}

/// One line of SONiC's PerformanceTimer, by its names ("BGP loading optimization", "Implement PerformanceTimer").
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct PerformanceRecord {
    /// The stage.
    #[serde(rename = "API")]
    pub api: String,
    /// Thousands of tasks a second, idle time included, to one decimal.
    #[serde(rename = "RPS[k]")]
    pub rps_k: f64,
    /// Tasks finished: routes.
    #[serde(rename = "Tasks")]
    pub tasks: u64,
    /// Busy and idle, milliseconds.
    #[serde(rename = "Total[ms]")]
    pub total_ms: u64,
    /// At work, milliseconds.
    #[serde(rename = "busy[ms]")]
    pub busy_ms: u64,
    /// Between calls, milliseconds.
    #[serde(rename = "idle[ms]")]
    pub idle_ms: u64,
    /// Of the first six calls: milliseconds before each.
    pub m_gaps: Vec<u64>,
    /// Tasks of each.
    pub m_incs: Vec<u64>,
    /// Milliseconds of each.
    pub m_intervals: Vec<u64>,
}
