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
}
