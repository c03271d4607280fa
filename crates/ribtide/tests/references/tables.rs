//! The references of the documentation as Markdown tables, from what the code has.

use crate::exit::Exit;
use crate::schema::{self, object, properties, requires};
use ribtide_config as config;
use ribtide_daemon::SETTINGS;
use ribtide_daemon::metrics::{Kind, METRICS};
use ribtide_daemon::registry::{Process, QUEUES, THREADS};
use ribtide_runtime::log::target;
use ribtide_runtime::watchdog::STALL_EXIT_STATUS;
use serde_json::Value;

/// The reference of a name: `metrics`, `log-targets`, `exits`, `reload`, `threads` or `queues` and whose, `settings` and a table of the
/// configuration, such as `fib.kernel`, or `bgp.group.NAME` for one with a name of its own.
///
/// # Errors
/// There is no such reference.
pub(crate) fn reference(name: &str) -> Result<String, String> {
    Ok(match name.split_once(' ') {
        None if name == "metrics" => metrics(),
        None if name == "log-targets" => log_targets(),
        None if name == "exits" => exits(),
        None if name == "reload" => reload(),
        Some(("settings", table)) => settings(&config::schema(), table)?,
        Some(("threads", whose)) => threads(process(whose)?),
        Some(("queues", whose)) => queues(process(whose)?),
        _ => return Err(format!("there is no reference {name}")),
    })
}

fn process(whose: &str) -> Result<Process, String> {
    match whose {
        "router" => Ok(Process::Router),
        "sonic" => Ok(Process::Sonic),
        _ => Err(format!("{whose} has no threads and queues")),
    }
}

/// What a reload does for each setting of the whole router.
fn reload() -> String {
    let rows = SETTINGS.iter().map(|s| vec![format!("`{}`", s.name), s.effect.name().into(), s.note.into()]);
    markdown(&["setting", "its change resets", "what happens, or why a restart"], rows)
}

/// A Markdown table.
fn markdown(columns: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let line = |cells: &[&str]| {
        let cells: Vec<_> = cells
            .iter()
            .map(
                |cell| {
                    if cell.is_empty() { " ".to_owned() } else { format!(" {} ", cell.replace('|', "\\|")) }
                },
            )
            .collect();
        format!("|{}|\n", cells.join("|"))
    };
    let mut text = line(columns) + &line(&vec!["---"; columns.len()]);
    for row in rows {
        text += &line(&row.iter().map(String::as_str).collect::<Vec<_>>());
    }
    text
}

fn metrics() -> String {
    let rows = METRICS.iter().map(|metric| {
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
        let name = format!("`{}`", metric.name);
        vec![name, kind.into(), labels.join(", "), metric.help.trim_end_matches('.').into()]
    });
    markdown(&["metric", "type", "labels", "meaning"], rows)
}

fn log_targets() -> String {
    let rows =
        target::ALL.iter().map(|(target, of)| vec![format!("`{target}`"), of.trim_end_matches('.').into()]);
    markdown(&["target", "lines about"], rows)
}

fn exits() -> String {
    let mut rows: Vec<(u8, &str)> = [
        Exit::Done,
        Exit::Failed,
        Exit::Unusable,
        Exit::Permission,
        Exit::Listen,
        Exit::Database,
        Exit::Peer,
        Exit::Kernel,
        Exit::System,
    ]
    .map(|exit| (exit as u8, when(exit)))
    .into();
    rows.push((
        STALL_EXIT_STATUS,
        "`run` and the SONiC daemons: work waited without progress for `router.stall-exit` or `--stall-exit`, and no peer \
         was the cause. The last line on standard error names the queue and its thread; the supervisor starts the \
         program again",
    ));
    rows.push((
        134,
        "SIGABRT: a thread failed, and the process with it, so that no route is silently lost. Standard error names \
         the thread; the supervisor starts the program again",
    ));
    markdown(
        &["status", "when"],
        rows.into_iter().map(|(status, when)| vec![status.to_string(), when.into()]),
    )
}

/// When the program ends so.
fn when(exit: Exit) -> &'static str {
    match exit {
        Exit::Done => {
            "The command did what it says. `run`: stopped by SIGTERM or SIGINT. \
                 `route-check`: all agree. `check --diff`: a reload would change nothing"
        }
        Exit::Failed => {
            "The command failed for a reason that has no status of its own: a router that cannot be reached, a change that \
                 was refused, a stage or a daemon that cannot go on. `check`: a configuration with errors. The last lines on \
                 standard error have what is wrong, where, and what to do. `route-check`: routes differ. `show health`: something is stalled, or RPKI data is missing. `flush`: routes or \
                 objects are left. `policy test`: a policy decides otherwise than `--expect` says"
        }
        Exit::Unusable => {
            "The command line is wrong; standard error has the usage. `run` and the SONiC daemons: also the configuration \
                 file, CONFIG_DB, a file that an option names or `RIBTIDE_LOG` is wrong, or settings cannot be combined. A \
                 restart does not help. `route-check`: the comparison failed. `check --diff`: a reload would change \
                 something"
        }
        Exit::Permission => {
            "`run` and the SONiC daemons: a permission is missing, such as CAP_NET_ADMIN for `fib.kernel` or \
                 CAP_NET_BIND_SERVICE for port 179. A restart does not help"
        }
        Exit::Listen => {
            "`run` and the SONiC daemons: an address or a socket cannot be listened on, of BGP, BFD, the API, FPM, ZeroMQ or \
                 queries; most often another program has it. Also, another syncd, orchagent or fpmsyncd works on the same \
                 database"
        }
        Exit::Database => {
            "The SONiC daemons: a database cannot be reached, refuses a command or lost its data. A daemon that runs waits \
                 for a lost database instead of ending, unless a command was under way whose end cannot be known"
        }
        Exit::Peer => {
            "The SONiC daemons: the daemon at the other end was started again, does not answer in time, or sent what it \
                 must not. A restart describes the switch again"
        }
        Exit::Kernel => {
            "`run`: the kernel lacks what `fib.kernel` or next-hop resolution needs, such as next-hop objects"
        }
        Exit::System => {
            "`run` and the SONiC daemons: the system gives no thread, or does not list its interfaces; see the limits of \
                 processes and open files"
        }
    }
}

fn threads(process: Process) -> String {
    let owns = process == Process::Router;
    let rows = THREADS.iter().filter(|thread| thread.process == process).map(|thread| {
        let mut cells = vec![format!("`{}`", thread.name), thread.when.into(), thread.does.into()];
        cells.extend(owns.then(|| thread.owns.to_owned()));
        cells
    });
    match process {
        Process::Router => markdown(&["thread", "number", "does", "owns"], rows),
        Process::Sonic => markdown(&["thread of a daemon", "when", "owns"], rows),
    }
}

fn queues(process: Process) -> String {
    let rows = QUEUES.iter().filter(|queue| queue.process == process).map(|queue| {
        let bound = queue.bound.map(|bound| bound.to_string()).unwrap_or_default();
        let separator = if bound.is_empty() || queue.of.is_empty() { "" } else { ", " };
        let name = if queue.name.contains('`') { queue.name.into() } else { format!("`{}`", queue.name) };
        vec![name, format!("{bound}{separator}{}", queue.of), queue.full.into()]
    });
    markdown(&["queue", "bound, in batches", "a full queue stops"], rows)
}

/// The keys of a table of the configuration, by its JSON Schema.
fn settings(schema: &Value, table: &str) -> Result<String, String> {
    let mut at = schema;
    for part in table.split('.').filter(|part| *part != "NAME") {
        let found = properties(at).and_then(|keys| object(schema, keys.get(part)?));
        at = found.ok_or_else(|| format!("the configuration has no table {table}: {part} is none"))?;
    }
    let keys = properties(at).ok_or_else(|| format!("the table {table} has no keys"))?;
    // A neighbour's own settings are those of its group, and some more.
    let own = keys.get("neighbor").and_then(|key| object(schema, key));
    let own_keys = own.and_then(properties);
    let row = |name: &String, key: &Value| {
        let required = requires(at, name) || own.is_some_and(|own| requires(own, name));
        let default = if required { "required".into() } else { default(key) };
        let marks =
            own_keys.map_or_else(Vec::new, |own| [keys, own].map(|k| mark(k.contains_key(name))).into());
        [vec![format!("`{name}`"), default], marks, vec![description(key)]].concat()
    };
    let more = own_keys.into_iter().flatten().filter(|(name, _)| !keys.contains_key(*name));
    let rows = keys.iter().chain(more).map(|(name, key)| row(name, key));
    let marks: &[&str] = if own.is_some() { &["group", "neighbour"] } else { &[] };
    Ok(markdown(&[&["key", "default"], marks, &["meaning"]].concat(), rows))
}

fn mark(has: bool) -> String {
    if has { "✓".into() } else { String::new() }
}

/// What a key has that is not in the file.
fn default(key: &Value) -> String {
    match schema::default(key) {
        None => "none".into(),
        Some(schema::Default::Text(text)) => text.into(),
        Some(schema::Default::Value(value)) => format!("`{value}`"),
    }
}

/// The meaning of a key, with a link to what else there is to know.
fn description(key: &Value) -> String {
    let text = schema::description(key);
    let text = text.trim_end_matches('.');
    match key.get("x-see").and_then(Value::as_str) {
        Some(link) => format!("{text} ([more]({link}))"),
        None => text.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Every key of the tables of the whole router has a row, and every row a key.
    #[test]
    fn reload_table_has_every_setting_of_the_schema() {
        let schema = config::schema();
        let root = properties(&schema).unwrap();
        let of =
            |name: &str| root.get(name).and_then(|key| object(&schema, key)).and_then(properties).unwrap();
        // Compared where they are applied: neighbours, and what only sets their defaults.
        let elsewhere = [
            "bgp.group",
            "bgp.graceful-restart",
            "bgp.graceful-shutdown",
            "bgp.graceful-shutdown-receiver",
            "bgp.martians",
            "bgp.fast-external-fallover",
        ];
        let mut missing = Vec::new();
        for table in ["router", "bgp", "rpki", "fib", "api", "process"] {
            for key in of(table).keys() {
                let name = format!("{table}.{key}");
                let found = SETTINGS.iter().any(|s| s.name == name) || elsewhere.contains(&name.as_str());
                missing.extend((!found).then_some(name));
            }
        }
        assert_eq!(missing, [""; 0], "the reload of these is not documented");
        for setting in SETTINGS {
            let (table, key) = setting.name.split_once('.').unwrap_or((setting.name, ""));
            let key = key.split(' ').next().unwrap();
            assert!(root.contains_key(table), "{}", setting.name);
            assert!(key.is_empty() || of(table).contains_key(key), "{} is no setting", setting.name);
        }
    }

    #[test]
    fn settings_of_a_table_have_defaults_links_and_who_has_them() {
        let key = |text: &str| json!({ "description": text });
        let one = json!({
            "type": "object",
            "properties": {
                "address": key("Its\naddress."),
                "port": { "description": "A | B.", "default": 179 },
            },
        });
        let group = json!({
            "type": "object",
            "required": ["type"],
            "properties": {
                "type": key("Which."),
                "port": { "description": "A | B.", "default": 179 },
                "names": { "description": "Names.", "default": ["a", "b"], "x-see": "#names" },
                "neighbor": { "description": "Some.", "items": { "$ref": "#/$defs/One" } },
            },
        });
        let schema = json!({
            "properties": {
                "bgp": { "anyOf": [{ "type": "null" }, { "properties": { "group": { "additionalProperties": { "$ref": "#/$defs/Group" } } } }] },
            },
            "$defs": { "One": one, "Group": group },
        });
        let expected = "| key | default | group | neighbour | meaning |\n| --- | --- | --- | --- | --- |\n\
            | `names` | `[\"a\", \"b\"]` | ✓ | | Names ([more](#names)) |\n| `neighbor` | none | ✓ | | Some |\n\
            | `port` | `179` | ✓ | ✓ | A \\| B |\n| `type` | required | ✓ | | Which |\n| `address` | none | | ✓ | Its address |\n";
        assert_eq!(settings(&schema, "bgp.group.NAME").unwrap(), expected);
        assert!(settings(&schema, "bgp.grp").unwrap_err().contains("grp is none"));
    }
}
