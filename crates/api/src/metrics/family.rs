//! The samples of a scrape. Each is formatted straight into the text of its metric; [`ScrapeBody`] puts these together.

use super::format::Format;
use super::neighbors::Row;
use super::registry::{METRICS, Metric};
use super::scrape_body::ScrapeBody;
use ribtide_runtime::histogram::Durations;
use std::fmt::{Display, Write};

/// The labels of a sample as text, without braces: `queue="a",family="ipv4"`.
#[derive(Clone, Default, Debug)]
pub(super) struct Labels(String);

impl Labels {
    /// The labels with one more.
    pub(super) fn and(mut self, name: &str, value: impl Display) -> Labels {
        if !self.0.is_empty() {
            self.0.push(',');
        }
        self.0.push_str(name);
        self.0.push_str("=\"");
        // Writing into a string cannot fail.
        let _ = write!(Escaped(&mut self.0), "{value}");
        self.0.push('"');
        self
    }

    /// Their text.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes what is special in the value of a label.
struct Escaped<'a>(&'a mut String);

impl Write for Escaped<'_> {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        if !text.contains(['\\', '"', '\n']) {
            self.0.push_str(text);
            return Ok(());
        }
        for c in text.chars() {
            match c {
                '\\' => self.0.push_str("\\\\"),
                '"' => self.0.push_str("\\\""),
                '\n' => self.0.push_str("\\n"),
                c => self.0.push(c),
            }
        }
        Ok(())
    }
}

/// A value at the time of the scrape.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
}

impl From<u64> for Value {
    fn from(n: u64) -> Value {
        Value::Whole(n)
    }
}

impl From<usize> for Value {
    fn from(n: usize) -> Value {
        Value::Whole(n as u64)
    }
}

impl From<bool> for Value {
    fn from(b: bool) -> Value {
        Value::Whole(b.into())
    }
}

impl From<f64> for Value {
    fn from(x: f64) -> Value {
        Value::Real(x)
    }
}

impl Value {
    fn push(self, out: &mut String) {
        match self {
            Value::Whole(n) => out.push_str(itoa::Buffer::new().format(n)),
            Value::Real(x) => push_real(out, x),
        }
    }
}

fn push_real(out: &mut String, x: f64) {
    let _ = match x {
        f64::INFINITY => write!(out, "+Inf"),
        f64::NEG_INFINITY => write!(out, "-Inf"),
        x if x.is_nan() => write!(out, "NaN"),
        // Without an exponent, and with a point.
        x if x.fract() == 0.0 => write!(out, "{x}.0"),
        x => write!(out, "{x}"),
    };
}

/// Adds a line. `more` follows `labels`, as text.
pub(super) fn push_sample(out: &mut String, name: &str, labels: &str, more: &str, value: Value) {
    out.push_str(name);
    match (labels.is_empty(), more.is_empty()) {
        (true, true) => {}
        (false, false) => {
            out.push('{');
            out.push_str(labels);
            out.push(',');
            out.push_str(more);
            out.push('}');
        }
        _ => {
            out.push('{');
            out.push_str(labels);
            out.push_str(more);
            out.push('}');
        }
    }
    out.push(' ');
    value.push(out);
    out.push('\n');
}

/// The samples of a scrape.
#[derive(Debug)]
pub(super) struct Families {
    /// The text of each metric, in the order of [`METRICS`].
    samples: Vec<String>,
    /// What the metrics of neighbours are made of.
    neighbors: Vec<Row>,
}

impl Default for Families {
    fn default() -> Families {
        Families { samples: vec![String::new(); METRICS.len()], neighbors: Vec::new() }
    }
}

impl Families {
    /// Adds a value with the labels of the metric.
    pub(super) fn add(&mut self, metric: Metric, labels: &Labels, value: impl Into<Value>) {
        self.add_to(metric, labels, "", value);
    }

    /// The same, with a label `family` after `labels`.
    pub(super) fn add_family(&mut self, metric: Metric, labels: &Labels, family: &str, value: u64) {
        let more = match family {
            "ipv4" => "family=\"ipv4\"",
            _ => "family=\"ipv6\"",
        };
        self.add_to(metric, labels, more, value);
    }

    fn add_to(&mut self, metric: Metric, labels: &Labels, more: &str, value: impl Into<Value>) {
        debug_assert_eq!(names([labels.as_str(), more].concat().as_str()), metric.labels, "{}", metric.name);
        if let Some(out) = self.samples.get_mut(metric.at) {
            push_sample(out, metric.name, labels.as_str(), more, value.into());
        }
    }

    /// Adds the counts of durations.
    pub(super) fn add_durations(&mut self, metric: Metric, labels: &Labels, durations: &Durations) {
        debug_assert_eq!(names(labels.as_str()), metric.labels, "{}", metric.name);
        let Some(out) = self.samples.get_mut(metric.at) else { return };
        let mut sample = |suffix: &str, more: &str, value| {
            out.push_str(metric.name);
            push_sample(out, suffix, labels.as_str(), more, value);
        };
        sample("_sum", "", durations.sum.as_secs_f64().into());
        sample("_count", "", durations.count().into());
        let (mut total, mut bound) = (0, String::new());
        for (seconds, count) in durations.buckets() {
            total += count;
            bound.clear();
            bound.push_str("le=\"");
            push_real(&mut bound, seconds);
            bound.push('"');
            sample("_bucket", &bound, total.into());
        }
    }

    /// Sets what the metrics of neighbours are made of.
    pub(super) fn set_neighbors(&mut self, rows: Vec<Row>) {
        self.neighbors = rows;
    }

    /// The text of the scrape.
    pub(super) fn into_body(self, format: Format) -> ScrapeBody {
        ScrapeBody::new(self.samples, self.neighbors, format)
    }
}

/// The names of labels, of which `text` has no comma between one that ends and the next.
pub(super) fn names(text: &str) -> Vec<&str> {
    let (mut names, mut rest) = (Vec::new(), text);
    while let Some((name, value)) = rest.split_once("=\"") {
        names.push(name.trim_start_matches(','));
        let mut is_escaped = false;
        let end = value.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        rest = end.and_then(|end| value.get(end + 1..)).unwrap_or_default();
    }
    names
}

#[cfg(test)]
mod tests {
    use super::super::registry::*;
    use super::*;

    fn labels(name: &str, value: &str) -> Labels {
        Labels::default().and(name, value)
    }

    fn families() -> Families {
        let mut families = Families::default();
        families.add(QUEUE_DEPTH, &labels("queue", "a \"b\"\\\n"), 7usize);
        families.add(THREAD_CPU, &labels("thread", "shard-0"), 1.5);
        families.add(THREAD_CPU, &labels("thread", "rib"), 2.0);
        families.add(MEMORY_PEAK, &Labels::default(), 4096u64);
        families.add_family(SHARD_PATHS, &labels("shard", "0"), "ipv6", 3);
        families
    }

    fn text(families: Families, format: Format) -> String {
        families.into_body(format).collect()
    }

    #[test]
    fn names_units_labels_and_values_are_open_metrics() {
        assert_eq!(
            text(families(), Format::OpenMetrics),
            "# HELP ribtide_queue_depth Batches in the queue now, or what its name says.\n\
             # TYPE ribtide_queue_depth gauge\n\
             ribtide_queue_depth{queue=\"a \\\"b\\\"\\\\\\n\"} 7\n\
             # HELP ribtide_thread_cpu_seconds CPU time of all threads of this name; a rate of 1 is a whole CPU.\n\
             # TYPE ribtide_thread_cpu_seconds counter\n\
             # UNIT ribtide_thread_cpu_seconds seconds\n\
             ribtide_thread_cpu_seconds_total{thread=\"shard-0\"} 1.5\n\
             ribtide_thread_cpu_seconds_total{thread=\"rib\"} 2.0\n\
             # HELP ribtide_memory_peak_bytes Peak resident memory of the process.\n\
             # TYPE ribtide_memory_peak_bytes gauge\n\
             # UNIT ribtide_memory_peak_bytes bytes\n\
             ribtide_memory_peak_bytes 4096\n\
             # HELP ribtide_bgp_shard_paths Paths of the shard thread.\n\
             # TYPE ribtide_bgp_shard_paths gauge\n\
             ribtide_bgp_shard_paths{shard=\"0\",family=\"ipv6\"} 3\n\
             # EOF\n"
        );
    }

    #[test]
    fn text_of_prometheus_has_counters_with_their_suffix_and_no_units() {
        let text = text(families(), Format::Prometheus);
        let of_cpu: Vec<&str> = text.lines().filter(|line| line.contains("thread_cpu")).collect();
        assert_eq!(
            of_cpu,
            [
                "# HELP ribtide_thread_cpu_seconds_total CPU time of all threads of this name; a rate of 1 is a whole CPU.",
                "# TYPE ribtide_thread_cpu_seconds_total counter",
                "ribtide_thread_cpu_seconds_total{thread=\"shard-0\"} 1.5",
                "ribtide_thread_cpu_seconds_total{thread=\"rib\"} 2.0",
            ]
        );
        assert!(!text.contains("# UNIT") && !text.contains("# EOF"));
    }

    #[test]
    fn histogram_has_cumulative_buckets() {
        let mut families = Families::default();
        families.add_durations(QUEUE_WAIT, &labels("queue", "q"), &Durations::default());
        let text = text(families, Format::OpenMetrics);
        let name = "ribtide_queue_wait_seconds";
        assert!(text.contains(&format!("{name}_sum{{queue=\"q\"}} 0.0\n{name}_count{{queue=\"q\"}} 0\n{name}_bucket{{queue=\"q\",le=\"0.00001\"}} 0\n")), "{text}");
        assert!(text.contains(&format!("{name}_bucket{{queue=\"q\",le=\"+Inf\"}} 0\n# EOF\n")), "{text}");
    }
}
