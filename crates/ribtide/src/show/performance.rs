//! The PerformanceTimer of every stage.

use crate::text::{Table, number};
use ribtide_model::{Performance, PerformanceRecord};

/// Heights of a plot that is one line high.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A line for each thread of a stage: its records together, and its rate over time.
pub(super) fn all(stages: &[Performance]) -> String {
    let header = [
        "Stage",
        ">Records",
        ">Tasks",
        ">kroutes/s",
        ">Total ms",
        ">Busy ms",
        ">Idle ms",
        ">Busy",
        "Rate over time",
    ];
    let mut table = Table::new(&header);
    for Performance { stage, records } in stages {
        let sum = |what: fn(&PerformanceRecord) -> u64| records.iter().map(what).sum::<u64>();
        let (tasks, total, busy) = (sum(|r| r.tasks), sum(|r| r.total_ms), sum(|r| r.busy_ms));
        let of_total =
            |n: u64, unit: f64| if total == 0 { None } else { Some(n as f64 * unit / total as f64) };
        table.row([
            stage.clone(),
            number(records.len() as u64),
            number(tasks),
            of_total(tasks, 1.0).map_or("-".into(), |k| format!("{k:.1}")),
            number(total),
            number(busy),
            number(total - busy),
            of_total(busy, 100.0).map_or("-".into(), |percent| format!("{percent:.0}%")),
            plot(records),
        ]);
    }
    format!(
        "The latest records of each thread, 64 at most, each of 10,000 tasks or more. Idle: it waited for the stage before it.\n\n{}",
        table.render()
    )
}

/// The records of one stage, one by one.
pub(super) fn one(stage: &Performance) -> String {
    let mut table = Table::new(&[
        ">kroutes/s",
        ">Tasks",
        ">Total ms",
        ">Busy ms",
        ">Idle ms",
        "First calls: gap + busy ms (tasks)",
    ]);
    for r in &stage.records {
        let calls = r.m_gaps.iter().zip(&r.m_intervals).zip(&r.m_incs);
        let calls: Vec<String> =
            calls.map(|((gap, interval), inc)| format!("{gap}+{interval} ({})", number(*inc))).collect();
        table.row([
            format!("{:.1}", r.rps_k),
            number(r.tasks),
            number(r.total_ms),
            number(r.busy_ms),
            number(r.idle_ms),
            calls.join(", "),
        ]);
    }
    format!("{}: {} records, oldest first\n\n{}", stage.stage, stage.records.len(), table.render())
}

/// The rate of each record, against the highest of them.
fn plot(records: &[PerformanceRecord]) -> String {
    let most = records.iter().map(|r| r.rps_k).fold(0.0, f64::max);
    let bar = |r: &PerformanceRecord| {
        let height = if most > 0.0 { r.rps_k / most * (BARS.len() - 1) as f64 } else { 0.0 };
        BARS[(height.round() as usize).min(BARS.len() - 1)]
    };
    let from = records.len().saturating_sub(32);
    records[from..].iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn performance_text_has_totals_and_records() {
        let record = |rps_k, tasks, busy_ms, idle_ms| PerformanceRecord {
            api: "rib".into(),
            rps_k,
            tasks,
            total_ms: busy_ms + idle_ms,
            busy_ms,
            idle_ms,
            m_gaps: vec![idle_ms],
            m_incs: vec![tasks],
            m_intervals: vec![busy_ms],
        };
        let rib = Performance {
            stage: "rib".into(),
            records: vec![record(500.0, 10_000, 18, 2), record(1000.0, 20_000, 20, 0)],
        };
        let idle = Performance { stage: "kernel".into(), records: Vec::new() };
        let text = all(&[rib.clone(), idle]);
        let (_, table) = text.split_once("\n\n").unwrap();
        assert_eq!(
            table,
            "\
Stage   Records   Tasks  kroutes/s  Total ms  Busy ms  Idle ms  Busy  Rate over time
rib           2  30,000      750.0        40       38        2   95%  ▅█
kernel        0       0          -         0        0        0     -
"
        );
        assert_eq!(
            one(&rib),
            "\
rib: 2 records, oldest first

kroutes/s   Tasks  Total ms  Busy ms  Idle ms  First calls: gap + busy ms (tasks)
    500.0  10,000        20       18        2  2+18 (10,000)
   1000.0  20,000        20       20        0  0+20 (20,000)
"
        );
    }
}
