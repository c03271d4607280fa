//! Metric families during a scrape, and their text form.

use super::registry::{Kind, Metric};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};
use ribtide_runtime::histogram::Durations;
use std::collections::HashMap;
use std::fmt;

/// The labels of a value.
pub(super) type Labels = Vec<(&'static str, String)>;

/// A value at the time of the scrape.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Whole(u64),
    Real(f64),
    Durations(Box<Durations>),
}

impl From<Durations> for Value {
    fn from(durations: Durations) -> Value {
        Value::Durations(Box::new(durations))
    }
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

/// All values of one name.
#[derive(Debug)]
struct Family {
    metric: Metric,
    values: Vec<(Labels, Value)>,
}

/// The families of a scrape.
#[derive(Debug, Default)]
pub(super) struct Families {
    all: Vec<Family>,
    /// Where in `all` each name is.
    by_name: HashMap<&'static str, usize>,
}

impl Families {
    /// Adds a value with the labels of the metric.
    pub(super) fn add(&mut self, metric: Metric, labels: Labels, value: impl Into<Value>) {
        debug_assert!(
            labels.iter().map(|(name, _)| name).eq(metric.labels),
            "{}: {labels:?}, {:?}",
            metric.full_name(),
            metric.labels
        );
        let value = value.into();
        let at = *self.by_name.entry(metric.name).or_insert_with(|| {
            self.all.push(Family { metric, values: Vec::new() });
            self.all.len() - 1
        });
        self.all[at].values.push((labels, value));
    }

    /// OpenMetrics text.
    pub(super) fn text(self) -> Result<String, fmt::Error> {
        let mut registry = Registry::with_prefix("ribtide");
        registry.register_collector(Box::new(self));
        let mut out = String::new();
        text::encode(&mut out, &registry)?;
        Ok(out)
    }
}

impl Collector for Families {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        for Family { metric, values } in &self.all {
            // The library appends the unit with an underscore to the name.
            let (stem, unit) = match metric.name.rsplit_once('_') {
                Some((stem, "seconds")) => (stem, Some(Unit::Seconds)),
                Some((stem, "bytes")) => (stem, Some(Unit::Bytes)),
                _ => (metric.name, None),
            };
            let kind_of = match metric.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let mut family = encoder.encode_descriptor(stem, metric.help, unit.as_ref(), kind_of)?;
            for (labels, value) in values {
                if labels.is_empty() {
                    encode(&mut family, metric.kind, value)?;
                } else {
                    encode(&mut family.encode_family(labels)?, metric.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(encoder: &mut MetricEncoder<'_>, kind: Kind, value: &Value) -> fmt::Result {
    match (kind, value) {
        (Kind::Gauge, Value::Whole(n)) => encoder.encode_gauge(n),
        (Kind::Gauge, Value::Real(x)) => encoder.encode_gauge(x),
        (Kind::Counter, Value::Whole(n)) => encoder.encode_counter::<NoLabelSet, _, u64>(n, None),
        (Kind::Counter, Value::Real(x)) => encoder.encode_counter::<NoLabelSet, _, u64>(x, None),
        (Kind::Histogram, Value::Durations(durations)) => {
            let buckets: Vec<_> = durations.buckets().collect();
            encoder.encode_histogram::<NoLabelSet>(
                durations.sum.as_secs_f64(),
                durations.count(),
                &buckets,
                None,
            )
        }
        (Kind::Histogram, _) | (_, Value::Durations(_)) => Err(fmt::Error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_units_labels_and_values_are_open_metrics() {
        let mut families = Families::default();
        let metric = |name, kind, labels, help| Metric { name, kind, labels, help };
        let depth = metric("queue_depth", Kind::Gauge, &["queue"], "Batches in the queue.");
        families.add(depth, vec![("queue", "a \"b\"\n".into())], 7usize);
        let cpu = metric("thread_cpu_seconds", Kind::Counter, &["thread", "mode"], "CPU time.");
        let of = |name: &str| vec![("thread", name.to_owned()), ("mode", "user".into())];
        families.add(cpu, of("shard-0"), 1.5);
        families.add(cpu, of("rib"), 2.0);
        let memory = metric("memory_bytes", Kind::Gauge, &[], "Memory.");
        families.add(memory, Labels::new(), 4096u64);
        assert_eq!(
            families.text().unwrap(),
            "# HELP ribtide_queue_depth Batches in the queue.\n\
             # TYPE ribtide_queue_depth gauge\n\
             ribtide_queue_depth{queue=\"a \\\"b\\\"\\n\"} 7\n\
             # HELP ribtide_thread_cpu_seconds CPU time.\n\
             # TYPE ribtide_thread_cpu_seconds counter\n\
             # UNIT ribtide_thread_cpu_seconds seconds\n\
             ribtide_thread_cpu_seconds_total{thread=\"shard-0\",mode=\"user\"} 1.5\n\
             ribtide_thread_cpu_seconds_total{thread=\"rib\",mode=\"user\"} 2.0\n\
             # HELP ribtide_memory_bytes Memory.\n\
             # TYPE ribtide_memory_bytes gauge\n\
             # UNIT ribtide_memory_bytes bytes\n\
             ribtide_memory_bytes 4096\n\
             # EOF\n"
        );
    }
}
