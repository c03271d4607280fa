//! The configuration in force, and the events of the log.

use super::printer::{Failure, Printed, Printer};
use super::{Output, query};
use crate::text::{end_of_reader, is_reader_gone};
use clap::Args;
use ribtide_model::{LogEvent, LogPage, RunningConfiguration};
use ribtide_runtime::log::{write_message, write_value};
use std::fmt::Write as _;
use std::time::Duration;

/// The time between two requests for new events.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// Which events of the log.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Events {
    /// Only events of this level and worse: error, warn, info, debug; the log has those that log.level lets pass
    #[arg(long, value_name = "LEVEL")]
    level: Option<String>,
    /// Only events of this stage, such as bgp::session or kernel; bgp includes bgp::session
    #[arg(long, value_name = "TARGET")]
    target: Option<String>,
    /// Only events about this neighbour
    #[arg(long, value_name = "ADDRESS")]
    neighbor: Option<String>,
    /// Only events about this prefix
    #[arg(long, value_name = "PREFIX")]
    prefix: Option<String>,
}

impl Events {
    fn path(&self, after: Option<u64>, limit: Option<usize>) -> String {
        let fields = query(&[
            ("level", self.level.clone()),
            ("target", self.target.clone()),
            ("neighbor", self.neighbor.clone()),
            ("prefix", self.prefix.clone()),
            ("after", after.map(|n| n.to_string())),
            ("limit", limit.map(|n| n.to_string())),
        ]);
        format!("/v1/log?{fields}")
    }
}

/// The file's text, and behind it as comments what was changed since.
pub(super) fn configuration(running: &RunningConfiguration) -> String {
    let mut out = String::new();
    if let Some(file) = &running.file {
        out.push_str(&format!("# {}\n", file.display()));
    }
    out.push_str(&running.text);
    if !out.ends_with('\n') {
        out.push('\n');
    }
    for (name, value) in &running.changed {
        out.push_str(&format!("# changed by `ribtide config` until the next reload: {name} = {value}\n"));
    }
    out
}

/// The latest `lines` events.
pub(super) fn log(to: &mut Printer, events: &Events, lines: usize) -> Printed {
    let page: LogPage = to.client.get(&events.path(None, Some(lines)))?;
    print(to, &page.events)
}

/// Runs `ribtide monitor`: events from now on, until the output or the router ends.
pub(crate) fn monitor(events: &Events, output: &Output) -> Result<(), String> {
    output.print_by(|to| {
        let page: LogPage = to.client.get(&events.path(None, Some(1)))?;
        let mut last = page.last;
        loop {
            std::thread::sleep(POLL_INTERVAL);
            if is_reader_gone() {
                end_of_reader();
            }
            let page: LogPage = to.client.get(&events.path(Some(last), Some(2000)))?;
            if page.last < last {
                return Err(Failure::Reply("the router was started again; monitor it again".into()));
            }
            last = page.last;
            print(to, &page.events)?;
            to.flush()?;
        }
    })
}

fn print(to: &mut Printer, events: &[LogEvent]) -> Printed {
    match to.json {
        true => to.json_lines(events),
        false => events.iter().try_for_each(|event| to.text(&line(event))),
    }
}

/// An event as the log has it.
fn line(event: &LogEvent) -> String {
    let mut out = format!("{} {:>5} {}: ", event.timestamp, event.level, event.target);
    // A string takes all that is written.
    let _ = write_message(&mut out, &event.message);
    for (key, value) in &event.fields {
        let _ = write!(out, " {key}=");
        let _ = match value {
            serde_json::Value::String(text) => write_value(&mut out, text),
            value => write!(out, "{value}"),
        };
    }
    out.push('\n');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn an_event_is_a_line() {
        let event = LogEvent {
            number: 1,
            timestamp: "2026-11-25T23:27:56.123456Z".into(),
            level: "WARN".into(),
            target: "bgp::session".into(),
            message: "the session is\ndown".into(),
            fields: BTreeMap::from([
                ("neighbor".to_owned(), "192.0.2.1".into()),
                ("asn".to_owned(), 65010.into()),
                ("reason".to_owned(), "hold timer \"expired\"\u{7}".into()),
                ("text".to_owned(), "zurück".into()),
            ]),
        };
        assert_eq!(
            line(&event),
            "2026-11-25T23:27:56.123456Z  WARN bgp::session: the session is\\ndown asn=65010 neighbor=192.0.2.1 \
             reason=\"hold timer \\\"expired\\\"\\u{7}\" text=zurück\n"
        );
    }

    #[test]
    fn a_configuration_has_its_file_and_later_changes() {
        let running = RunningConfiguration {
            file: Some("/etc/ribtide/ribtide.toml".into()),
            text: "[bgp]\nshards = 2".into(),
            changed: BTreeMap::from([("bgp.shards".to_owned(), "4".to_owned())]),
        };
        assert_eq!(
            configuration(&running),
            "# /etc/ribtide/ribtide.toml\n[bgp]\nshards = 2\n\
             # changed by `ribtide config` until the next reload: bgp.shards = 4\n"
        );
    }
}
