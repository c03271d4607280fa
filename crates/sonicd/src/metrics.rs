//! The metrics of SONiC's daemons, from STATE_DB, for a file that Prometheus's node_exporter collects.
//!
//! The daemons serve no HTTP. `ribtide metrics --sonic` reads what they publish for `ribtide show
//! pipeline --sonic` and `ribtide show health --sonic`, and writes it as OpenMetrics 1.0 text. Parsers
//! of the older text format, such as node_exporter's, read it too.

use super::health;
use super::pipeline::{self, DaemonPipeline};
use super::queues::Queue;
use super::{Error, reconcile::ReconcileCount};
use ribtide_model::Health;
use ribtide_tables::WriteBehindLag;
use std::fmt::Write as _;
use std::path::Path;

/// The labels of a sample, in order, and its value.
type Sample<'a> = (Vec<(&'static str, &'a str)>, String);

/// The metrics of the daemons on the databases of `config` as OpenMetrics 1.0 text; default: SONiC's
/// file. With several ASICs, of all, unless `NAMESPACE_ID` selects one; the label `asic` then has its
/// name.
///
/// # Errors
/// A sentence when the databases cannot be read.
pub fn of_daemons(config: Option<&Path>) -> Result<String, Error> {
    Ok(text(&pipeline::of_daemons(config)?, &health::of_daemons(config)?))
}

/// `healths`: by name, `asic0/syncd` or `syncd`.
fn text(pipelines: &[DaemonPipeline], healths: &[(String, Health)]) -> String {
    let mut out = String::new();
    let queues = |value: fn(&Queue) -> Option<u64>| {
        let of = move |at| {
            let (daemon, queue): (&DaemonPipeline, &Queue) = at;
            Some((labels(daemon, &[("queue", &queue.name)]), value(queue)?.to_string()))
        };
        all(pipelines, |daemon| &daemon.queues).filter(|(_, queue)| age_of(queue).is_none()).filter_map(of)
    };
    family(&mut out, "queue_depth", GAUGE, "What is in the queue now.", queues(|q| Some(q.level.depth)));
    family(&mut out, "queue_bound", GAUGE, "Its bound, where it has one.", queues(|q| q.level.bound));
    family(&mut out, "queue_peak", GAUGE, "The most it ever held.", queues(|q| Some(q.level.peak)));
    let full = "How often a producer found it full.";
    family(&mut out, "queue_full", COUNTER, full, queues(|q| Some(q.level.full)));

    let ages = |value: fn(&Queue) -> Option<u64>| {
        let of = move |at| {
            let (daemon, queue): (&DaemonPipeline, &Queue) = at;
            Some((labels(daemon, &[("rows", age_of(queue)?)]), seconds(value(queue)?)))
        };
        all(pipelines, |daemon| &daemon.queues).filter_map(of)
    };
    let age = "Age of the oldest row that a database in write-behind does not have.";
    family(&mut out, "write_behind_age_seconds", GAUGE, age, ages(|q| Some(q.level.depth)));
    let peak = "The greatest age at which a row was written.";
    family(&mut out, "write_behind_age_peak_seconds", GAUGE, peak, ages(|q| Some(q.level.peak)));
    let bound = "--write-behind-max-age, where it applies.";
    family(&mut out, "write_behind_age_bound_seconds", GAUGE, bound, ages(|q| q.level.bound));

    let unhandled = pipelines.iter().flat_map(|daemon| {
        daemon.unhandled.iter().map(move |(name, found)| {
            let (database, table) = name.split_once(' ').unwrap_or(("", name));
            (labels(daemon, &[("database", database), ("table", table)]), found.rows.to_string())
        })
    });
    family(&mut out, "unhandled_rows", GAUGE, "Rows of a table that are not programmed.", unhandled);

    let reconciled = |value: fn(&ReconcileCount) -> u64| {
        pipelines.iter().flat_map(move |daemon| {
            let tables = daemon.reconciled.iter();
            tables.map(move |(table, count)| (labels(daemon, &[("table", table)]), value(count).to_string()))
        })
    };
    let compared = "Rows and objects compared.";
    family(&mut out, "reconcile_compared", COUNTER, compared, reconciled(|count| count.compared));
    let repaired = "Rows and objects repaired.";
    family(&mut out, "reconcile_repaired", COUNTER, repaired, reconciled(|count| count.repaired));
    let failed = "Repairs that the switch refused.";
    family(&mut out, "reconcile_failed", COUNTER, failed, reconciled(|count| count.failed));

    let stalls = healths.iter().flat_map(|(name, health)| {
        let (asic, daemon) = name.split_once('/').map_or((None, &**name), |(asic, name)| (Some(asic), name));
        health
            .stalls
            .iter()
            .map(move |stall| (labels_of(asic, daemon, &[("queue", &stall.what)]), stall.seconds.to_string()))
    });
    let stalled = "How long the queue or peer has made no progress; only of what is stalled.";
    family(&mut out, "stalled_seconds", GAUGE, stalled, stalls);
    out.push_str("# EOF\n");
    out
}

const GAUGE: &str = "gauge";
const COUNTER: &str = "counter";

/// Each of what a daemon has many of, with its daemon.
fn all<'a, T: 'a>(
    pipelines: &'a [DaemonPipeline],
    of: fn(&DaemonPipeline) -> &Vec<T>,
) -> impl Iterator<Item = (&'a DaemonPipeline, &'a T)> {
    pipelines.iter().flat_map(move |daemon| of(daemon).iter().map(move |one| (daemon, one)))
}

/// The rows whose age it is, as `ROUTE_TABLE to APPL_DB`; `None` of another queue.
fn age_of(queue: &Queue) -> Option<&str> {
    WriteBehindLag::rows_of_gauge(&queue.name)
}

fn seconds(ms: u64) -> String {
    format!("{}.{:03}", ms / 1000, ms % 1000)
}

fn labels<'a>(daemon: &'a DaemonPipeline, more: &[(&'static str, &'a str)]) -> Vec<(&'static str, &'a str)> {
    labels_of(daemon.asic.as_deref(), daemon.daemon, more)
}

fn labels_of<'a>(
    asic: Option<&'a str>,
    daemon: &'a str,
    more: &[(&'static str, &'a str)],
) -> Vec<(&'static str, &'a str)> {
    let asic = asic.map(|asic| ("asic", asic));
    asic.into_iter().chain([("daemon", daemon)]).chain(more.iter().copied()).collect()
}

/// Writes a family with its samples. The name of a counter's sample ends with `_total`.
fn family<'a>(
    out: &mut String,
    name: &str,
    kind: &str,
    help: &str,
    samples: impl Iterator<Item = Sample<'a>>,
) {
    let suffix = if kind == COUNTER { "_total" } else { "" };
    // Writing to a string does not fail.
    let _ = writeln!(out, "# TYPE ribtide_sonic_{name} {kind}\n# HELP ribtide_sonic_{name} {help}");
    for (labels, value) in samples {
        let labels: Vec<String> =
            labels.iter().map(|(label, value)| format!("{label}=\"{}\"", escaped(value))).collect();
        let _ = writeln!(out, "ribtide_sonic_{name}{suffix}{{{}}} {value}", labels.join(","));
    }
}

/// The value of a label: names of tables and queues come from other programs too.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queues::Level;
    use crate::unhandled_tables::UnhandledTable;

    #[test]
    fn metrics_have_ages_in_seconds_and_escaped_labels() {
        let queue = |name: &str, bound, depth| Queue {
            name: name.into(),
            level: Level { bound, depth, peak: 2345, full: 7 },
        };
        let unhandled = UnhandledTable { rows: 3, example: String::new(), why: String::new() };
        let pipeline = DaemonPipeline {
            asic: Some("asic1".into()),
            daemon: "fpmsyncd",
            settings: vec![],
            queues: vec![
                queue("age of the oldest row of ROUTE_TABLE to APPL_DB, in ms", Some(1000), 42),
                queue("a \"queue\"", None, 5),
            ],
            reconciled: [("ROUTE_TABLE".into(), ReconcileCount { compared: 9, repaired: 1, failed: 0 })]
                .into(),
            unhandled: [("APPL_DB VNET_TABLE".into(), unhandled)].into(),
        };
        let text = text(&[pipeline], &[]);
        let age = r#"{asic="asic1",daemon="fpmsyncd",rows="ROUTE_TABLE to APPL_DB"}"#;
        let of = r#"{asic="asic1",daemon="fpmsyncd""#;
        for line in [
            format!("ribtide_sonic_write_behind_age_seconds{age} 0.042"),
            format!("ribtide_sonic_write_behind_age_peak_seconds{age} 2.345"),
            format!("ribtide_sonic_write_behind_age_bound_seconds{age} 1.000"),
            format!(r#"ribtide_sonic_queue_depth{of},queue="a \"queue\""}} 5"#),
            format!(r#"ribtide_sonic_queue_full_total{of},queue="a \"queue\""}} 7"#),
            format!(r#"ribtide_sonic_unhandled_rows{of},database="APPL_DB",table="VNET_TABLE"}} 3"#),
            format!(r#"ribtide_sonic_reconcile_repaired_total{of},table="ROUTE_TABLE"}} 1"#),
        ] {
            assert!(text.lines().any(|one| one == line), "{line} is not in\n{text}");
        }
        assert!(text.ends_with("# EOF\n") && !text.contains("queue_bound{"));
    }
}
