//! `/v1/performance`: the PerformanceTimer of every stage.

use super::{Inside, Refusal};
use crate::api::model::{Performance, PerformanceRecord};
use ribtide_runtime::performance::Record;
use std::time::Duration;

/// The latest records of every stage.
#[expect(clippy::unnecessary_wraps, reason = "as all answers")]
pub(crate) fn performance(inside: &Inside) -> Result<Vec<Performance>, Refusal> {
    let of = |(stage, records): (String, Vec<Record>)| Performance {
        records: records.iter().map(|record| line(&stage, record)).collect(),
        stage,
    };
    Ok(inside.meters.performance().into_iter().map(of).collect())
}

fn line(api: &str, record: &Record) -> PerformanceRecord {
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
        m_incs: record.incs.clone(),
        m_intervals: record.intervals.iter().map(ms).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_reads_as_in_the_document() {
        let ms = Duration::from_millis;
        let record = Record {
            tasks: 30_000,
            calls: 1,
            busy: ms(591),
            idle: ms(343),
            gaps: vec![ms(343)],
            incs: vec![30_000],
            intervals: vec![ms(591)],
        };
        assert_eq!(
            serde_json::to_string(&line("DRAIN", &record)).unwrap(),
            r#"{"API":"DRAIN","RPS[k]":32.1,"Tasks":30000,"Total[ms]":934,"busy[ms]":591,"idle[ms]":343,"m_gaps":[343],"m_incs":[30000],"m_intervals":[591]}"#
        );
    }
}
