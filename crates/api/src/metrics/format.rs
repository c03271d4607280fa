//! The two text formats of a scrape: OpenMetrics 1.0, and the Prometheus text format 0.0.4 for clients that do not name it,
//! such as `curl` before `promtool check metrics`.

/// A text format.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Format {
    /// `application/openmetrics-text`.
    OpenMetrics,
    /// `text/plain; version=0.0.4`.
    Prometheus,
}

impl Format {
    /// The format for the values of a request's `Accept` headers: OpenMetrics where they name it with a weight above zero.
    pub(in super::super) fn accepted<'a>(accept: impl Iterator<Item = &'a str>) -> Format {
        let named = accept.flat_map(|value| value.split(',')).any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let is_named =
                parts.next().is_some_and(|kind| kind.eq_ignore_ascii_case("application/openmetrics-text"));
            let weight = parts.find_map(|part| part.strip_prefix("q=")).and_then(|q| q.parse::<f32>().ok());
            is_named && weight.unwrap_or(1.0) > 0.0
        });
        if named { Format::OpenMetrics } else { Format::Prometheus }
    }

    /// The media type of the response.
    pub(in super::super) fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// OpenMetrics text in this format. The older format has no units and no end, and names counters with their suffix.
    pub(super) fn text(self, open_metrics: String) -> String {
        if self == Format::OpenMetrics {
            return open_metrics;
        }
        let mut out = String::with_capacity(open_metrics.len() + 4096);
        // HELP comes before TYPE, which has the kind.
        let mut help = None;
        for line in open_metrics.lines() {
            if let Some(text) = line.strip_prefix("# HELP ") {
                help = text.split_once(' ');
            } else if let Some((name, kind)) =
                line.strip_prefix("# TYPE ").and_then(|text| text.split_once(' '))
            {
                let suffix = if kind == "counter" { "_total" } else { "" };
                if let Some((_, text)) = help.take() {
                    out += &format!("# HELP {name}{suffix} {text}\n");
                }
                out += &format!("# TYPE {name}{suffix} {kind}\n");
            } else if !line.starts_with("# ") {
                out += line;
                out.push('\n');
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepted_is_open_metrics_where_the_client_names_it() {
        let of = |values: &[&str]| Format::accepted(values.iter().copied());
        assert_eq!(of(&[]), Format::Prometheus);
        assert_eq!(of(&["*/*"]), Format::Prometheus);
        // Prometheus 2.42.
        let prometheus = "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1";
        assert_eq!(of(&[prometheus]), Format::OpenMetrics);
        assert_eq!(of(&["text/plain", "Application/OpenMetrics-Text; q=0.2"]), Format::OpenMetrics);
        assert_eq!(of(&["application/openmetrics-text;q=0, text/plain"]), Format::Prometheus);
    }

    #[test]
    fn text_of_prometheus_has_counters_with_their_suffix() {
        let open = "# HELP a_seconds Some # text.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\na_seconds_total{q=\"# x\"} 1\n\
                    # HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let expected = "# HELP a_seconds_total Some # text.\n# TYPE a_seconds_total counter\na_seconds_total{q=\"# x\"} 1\n\
                        # HELP b B.\n# TYPE b gauge\nb 2\n";
        assert_eq!(Format::Prometheus.text(open.into()), expected);
        assert_eq!(Format::OpenMetrics.text(open.into()), open);
    }
}
