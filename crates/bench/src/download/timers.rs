//! The daemons' PerformanceTimers, from the lines that they log.

use serde::Serialize;
use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;

/// A timer's lines together.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Timer {
    /// Routes.
    pub tasks: u64,
    /// Busy and idle time, in milliseconds.
    pub total_ms: u64,
    /// Busy time, in milliseconds.
    pub busy_ms: u64,
    /// The last line, as it was logged.
    pub line: String,
}

/// Timers by `DAEMON/TIMER`.
pub(super) type Timers = BTreeMap<String, Timer>;

/// The processes whose logs are read.
const DAEMONS: [&str; 3] = ["fpmsyncd", "orchagent", "syncd"];

impl Timer {
    /// Routes a second, the time between calls included.
    pub fn rate(&self) -> f64 {
        self.tasks as f64 * 1000.0 / self.total_ms.max(1) as f64
    }
}

/// Reads the logs of a run's daemons.
pub(super) fn read(folder: &Path) -> Timers {
    let mut timers = Timers::new();
    for daemon in DAEMONS {
        let log = std::fs::read_to_string(folder.join(format!("{daemon}-log/log-0"))).unwrap_or_default();
        add(&mut timers, daemon, &log);
    }
    timers
}

fn add(timers: &mut Timers, daemon: &str, log: &str) {
    // `TIME info DAEMON: RECORD`.
    let target = format!(" INFO {daemon}: ");
    for line in log.lines().filter_map(|line| Some(line.split_once(&target)?.1)) {
        let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
        let Some(api) = record.get("API").and_then(Value::as_str) else { continue };
        let number = |name: &str| record.get(name).and_then(Value::as_u64).unwrap_or(0);
        let timer = timers.entry(format!("{daemon}/{api}")).or_default();
        timer.tasks += number("Tasks");
        timer.total_ms += number("Total[ms]");
        timer.busy_ms += number("busy[ms]");
        timer.line = line.into();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_log_add_up() {
        let first =
            r#"{"API":"DRAIN","RPS[k]":32.1,"Tasks":30000,"Total[ms]":934,"busy[ms]":591,"idle[ms]":343}"#;
        let second =
            r#"{"API":"DRAIN","RPS[k]":156.2,"Tasks":10000,"Total[ms]":64,"busy[ms]":60,"idle[ms]":4}"#;
        let mut timers = Timers::new();
        add(
            &mut timers,
            "orchagent",
            &["orchagent has started", first, second]
                .map(|line| format!("2026-11-25T23:27:56.123456Z  INFO orchagent: {line}\n"))
                .concat(),
        );
        let timer = &timers["orchagent/DRAIN"];
        assert_eq!((timer.tasks, timer.total_ms, timer.busy_ms), (40_000, 998, 651));
        assert_eq!((timer.line.as_str(), timer.rate().round()), (second, 40_080.0));
        assert_eq!(timers.len(), 1);
    }
}
