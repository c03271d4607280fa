//! `/v1/performance`.

use ribtide_runtime::performance::Record;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A stage's thread and the latest records of its PerformanceTimer, oldest first.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Performance {
    /// The stage; with a number where it has several threads.
    pub stage: String,
    /// Each of 10,000 tasks or more.
    pub records: Vec<PerformanceRecord>,
}

/// One line of SONiC's PerformanceTimer, by its names ("BGP loading optimization", "Implement PerformanceTimer").
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
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

impl PerformanceRecord {
    /// The line of `record`, which the timer named `api` made.
    pub fn of(api: &str, record: &Record) -> PerformanceRecord {
        let ms = |time: &Duration| time.as_millis() as u64;
        let (busy_ms, idle_ms) = (ms(&record.busy), ms(&record.idle));
        PerformanceRecord {
            api: api.into(),
            rps_k: (record.rate() / 100.0).round() / 10.0,
            tasks: record.tasks,
            total_ms: busy_ms + idle_ms,
            busy_ms,
            idle_ms,
            m_gaps: record.gaps.iter().map(ms).collect(),
            m_incs: record.incs.to_vec(),
            m_intervals: record.intervals.iter().map(ms).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_in_the_document() {
        let ms = Duration::from_millis;
        let record = Record {
            number: 1,
            tasks: 30_000,
            calls: 1,
            busy: ms(591),
            idle: ms(343),
            gaps: [ms(343)].into_iter().collect(),
            incs: [30_000].into_iter().collect(),
            intervals: [ms(591)].into_iter().collect(),
        };
        assert_eq!(
            serde_json::to_string(&PerformanceRecord::of("DRAIN", &record)).unwrap(),
            r#"{"API":"DRAIN","RPS[k]":32.1,"Tasks":30000,"Total[ms]":934,"busy[ms]":591,"idle[ms]":343,"m_gaps":[343],"m_incs":[30000],"m_intervals":[591]}"#
        );
    }
}
