//! The text of a scrape, as the connection takes it: each chunk is copied to the socket while it is still in the caches.

use super::format::Format;
use super::neighbors::{COLUMNS, Column, Row};
use super::registry::{Kind, METRICS, Metric};
use axum::body::{Bytes, HttpBody};
use hyper::body::Frame;
use std::convert::Infallible;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll};

/// A chunk ends when it has so many bytes. It takes the thread of the API some ten microseconds.
const CHUNK_BYTES: usize = 64 * 1024;
/// Neighbours of one metric between two looks at the length.
const ROWS_BATCH_MAX: usize = 32;
/// What these add at most: ten samples of some 130 bytes each.
const ROOM_BYTES: usize = 48 * 1024;

/// The text that is not taken yet.
#[derive(Debug)]
pub(in super::super) struct ScrapeBody {
    /// The text of each metric, in the order of [`METRICS`].
    samples: Vec<String>,
    /// What the metrics of neighbours are made of.
    neighbors: Vec<Row>,
    format: Format,
    /// The position in [`METRICS`].
    metric: usize,
    /// Whether the head of this metric is taken.
    has_begun: bool,
    /// The position in [`COLUMNS`] and in `neighbors`.
    column: usize,
    row: usize,
}

impl ScrapeBody {
    pub(super) fn new(samples: Vec<String>, neighbors: Vec<Row>, format: Format) -> ScrapeBody {
        ScrapeBody { samples, neighbors, format, metric: 0, has_begun: false, column: 0, row: 0 }
    }

    /// The first column of the present metric from the position on, with its place.
    fn next_column(&self) -> Option<(usize, &'static Column)> {
        let mut columns = COLUMNS.iter().enumerate().skip(self.column);
        columns.find(|(_, column)| column.metric.at == self.metric)
    }

    /// Adds the rest of the present metric, or a part. Returns whether that was all.
    fn push_metric(&mut self, metric: &Metric, out: &mut String) -> bool {
        let start = out.len();
        // The head of a metric that goes on is in an earlier chunk.
        if !std::mem::replace(&mut self.has_begun, true) {
            describe(out, metric, self.format);
        }
        let first = out.len();
        out.push_str(self.samples.get(self.metric).map_or("", String::as_str));
        if let Some(samples) = self.samples.get_mut(self.metric) {
            samples.clear();
        }
        while let Some((at, column)) = self.next_column() {
            while let Some(rows) = self.neighbors.get(self.row..).filter(|rows| !rows.is_empty()) {
                let rows = rows.get(..ROWS_BATCH_MAX).unwrap_or(rows);
                column.push(out, rows);
                self.row += rows.len();
                if out.len() >= CHUNK_BYTES && out.len() > first {
                    self.column = at;
                    return false;
                }
            }
            (self.column, self.row) = (at + 1, 0);
        }
        if out.len() == first {
            out.truncate(start);
        }
        true
    }
}

impl Iterator for ScrapeBody {
    type Item = String;

    /// The next chunk. The last one ends the text.
    fn next(&mut self) -> Option<String> {
        if self.metric > METRICS.len() {
            return None;
        }
        let mut out = String::with_capacity(CHUNK_BYTES + ROOM_BYTES);
        while let Some(metric) = METRICS.get(self.metric) {
            if self.push_metric(metric, &mut out) {
                (self.metric, self.has_begun, self.column, self.row) = (self.metric + 1, false, 0, 0);
            }
            if out.len() >= CHUNK_BYTES {
                return Some(out);
            }
        }
        self.metric += 1;
        if self.format == Format::OpenMetrics {
            out.push_str("# EOF\n");
        }
        Some(out).filter(|out| !out.is_empty())
    }
}

impl HttpBody for ScrapeBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.next().map(|chunk| Ok(Frame::data(Bytes::from(chunk)))))
    }
}

/// The head of a metric. The older format has no units, and names counters with their suffix.
fn describe(out: &mut String, metric: &Metric, format: Format) {
    let name = if format == Format::OpenMetrics { metric.family } else { metric.name };
    let kind = match metric.kind {
        Kind::Counter => "counter",
        Kind::Gauge => "gauge",
        Kind::Histogram => "histogram",
    };
    let _ = write!(out, "# HELP {name} {}\n# TYPE {name} {kind}\n", metric.help);
    let unit = metric.family.rsplit_once('_').map(|(_, unit)| unit);
    if format == Format::OpenMetrics
        && let Some(unit @ ("seconds" | "bytes")) = unit
    {
        let _ = writeln!(out, "# UNIT {name} {unit}");
    }
}

#[cfg(test)]
mod tests {
    use super::super::family::Families;
    use super::*;
    use crate::answers::NeighborCounts;
    use ribtide_config::MaxPrefixesConfig;
    use ribtide_model::{PerFamilyCount, ZonedAddress};
    use ribtide_prefix::ByFamily;
    use std::collections::BTreeSet;
    use std::net::Ipv4Addr;

    /// A neighbour without a session.
    fn row(n: u32) -> Row {
        Row::new(NeighborCounts {
            address: ZonedAddress::from(Ipv4Addr::from(0x0a00_0000 + n)),
            group: "peers".into(),
            state_seconds: n.into(),
            flaps: 7,
            stale: PerFamilyCount::default(),
            stale_expired: 12,
            max_prefixes: MaxPrefixesConfig::default(),
            exceeded: ByFamily::default(),
            exceeded_out: ByFamily::default(),
            session: None,
        })
    }

    #[test]
    fn chunks_are_bounded_and_have_every_sample_and_head_once() {
        let mut families = Families::default();
        families.set_neighbors((0..3000).map(row).collect());
        let chunks: Vec<String> = families.into_body(Format::OpenMetrics).collect();
        assert!(chunks.len() > 10, "{}", chunks.len());
        assert!(chunks.iter().all(|chunk| (1..=CHUNK_BYTES + ROOM_BYTES).contains(&chunk.len())));
        let text = chunks.concat();
        let (heads, samples): (Vec<&str>, Vec<&str>) = text.lines().partition(|line| line.starts_with("# "));
        // Up, time in the state, flaps, stale paths of two families, and how often those expired.
        assert_eq!(samples.len(), 6 * 3000);
        assert_eq!(samples.iter().collect::<BTreeSet<_>>().len(), samples.len());
        let types: Vec<&&str> = heads.iter().filter(|line| line.starts_with("# TYPE ")).collect();
        assert_eq!(types.len(), 5, "metrics without samples have no head: {types:?}");
        assert_eq!(heads.last(), Some(&"# EOF"));
        assert!(samples.contains(&"ribtide_bgp_neighbor_up{neighbor=\"10.0.0.9\",group=\"peers\"} 0"));
    }

    #[test]
    fn body_without_samples_is_its_end_alone() {
        let of = |format| Families::default().into_body(format).collect::<Vec<String>>();
        assert_eq!(of(Format::OpenMetrics), ["# EOF\n"]);
        assert!(of(Format::Prometheus).is_empty());
    }
}
