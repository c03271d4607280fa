//! The configuration in force, and the events of the log.

use super::printer::{Printed, Printer};
use super::{Output, query};
use crate::text::{end_of_reader, is_reader_gone};
use clap::Args;
use ribtide_model::{EventPath, LogEvent, LogPage, LostEvents, RouteEvent, RunningConfiguration};
use ribtide_runtime::log::{write_message, write_value};
use std::fmt::Write as _;
use std::ops::ControlFlow;

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
    fn path(&self, limit: Option<usize>) -> String {
        let fields = query(&[
            ("level", self.level.clone()),
            ("target", self.target.clone()),
            ("neighbor", self.neighbor.clone()),
            ("prefix", self.prefix.clone()),
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
    let page: LogPage = to.client.get(&events.path(Some(lines)))?;
    print(to, &page.events)
}

/// What `ribtide monitor` follows.
#[derive(Clone, Debug, Args)]
pub(crate) struct Followed {
    #[command(flatten)]
    events: Events,
    /// Also changes of best paths
    #[arg(long)]
    routes: bool,
    /// With --routes and --prefix: also of prefixes inside it
    #[arg(long, requires_all = ["routes", "prefix"])]
    longer: bool,
    /// Only changes of best paths of this family: ipv4-unicast or ipv6-unicast
    #[arg(long, value_name = "FAMILY", requires = "routes")]
    family: Option<String>,
}

/// Prints each event from now on.
pub(crate) fn monitor(followed: &Followed, output: &Output) -> Result<(), String> {
    let Followed { events, routes, longer, family } = followed;
    let kinds = "session,repair,configuration,log";
    let kinds = if *routes { format!("{kinds},route") } else { kinds.into() };
    let fields = query(&[
        ("kind", Some(kinds)),
        ("level", events.level.clone()),
        ("target", events.target.clone()),
        ("neighbor", events.neighbor.clone()),
        ("prefix", events.prefix.clone()),
        ("match", longer.then(|| "longer".into())),
        ("family", family.clone()),
    ]);
    output.print_by(|to| {
        let (mut rest, mut printed) = (Vec::new(), Ok(()));
        let client = to.client.clone();
        let followed = client.follow(&format!("/v1/events?{fields}"), |data| {
            if is_reader_gone() {
                end_of_reader();
            }
            rest.extend_from_slice(data);
            // An event ends with an empty line.
            while let Some(end) = rest.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = rest.drain(..end + 2).collect();
                printed = print_event(to, &String::from_utf8_lossy(&event));
                if printed.is_err() {
                    return ControlFlow::Break(());
                }
            }
            printed = to.flush();
            if printed.is_err() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        printed?;
        Ok(followed?)
    })
}

/// Prints a server-sent event.
fn print_event(to: &mut Printer, event: &str) -> Printed {
    let field = |name: &str| event.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
    let (Some(kind), Some(data)) = (field("event"), field("data")) else { return Ok(()) };
    if to.json {
        return to.text(&format!("{data}\n"));
    }
    let text = match kind {
        "route" => serde_json::from_str(data).map(|event: RouteEvent| route_line(&event)),
        "lost" => serde_json::from_str(data).map(|event: LostEvents| lost_line(&event)),
        _ => serde_json::from_str(data).map(|event: LogEvent| line(&event)),
    };
    to.text(&text.map_err(|e| format!("the router's event cannot be read ({e}); is it another version?"))?)
}

fn route_line(event: &RouteEvent) -> String {
    let path = |path: &Option<EventPath>| match path {
        None => "none".into(),
        Some(path) => {
            let from = path.neighbor.as_ref().map(ToString::to_string).or(path.originated.clone());
            let from = from.unwrap_or_else(|| "a neighbour that is gone".into());
            format!("{from} via {} path \"{}\"", path.next_hop, path.as_path)
        }
    };
    let RouteEvent { timestamp, prefix, from, to, .. } = event;
    format!("{timestamp} ROUTE {prefix}: {}, before: {}\n", path(to), path(from))
}

fn lost_line(lost: &LostEvents) -> String {
    let count = lost.events.map_or("an unknown number of".into(), |n| n.to_string());
    format!("{count} events ({}) are lost: {}\n", lost.of, lost.reason)
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
