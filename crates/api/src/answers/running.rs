//! `/v1/configuration` and `/v1/log`.

use super::{Refusal, RouterState};
use crate::request::{EventsQuery, LogQuery};
use ribtide_config::ShownConfig;
use ribtide_model::{LogEvent, LogPage, RunningConfiguration};
use ribtide_runtime::log::{self, RecentEvent};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The configuration in force.
pub(crate) fn configuration(router: &RouterState) -> Result<RunningConfiguration, Refusal> {
    let config = router.config();
    let mut changed = BTreeMap::new();
    let mut note = |name: &str, value: String| drop(changed.insert(name.to_owned(), value));
    if let (Some(owners), Some(bgp)) = (router.owners(), &config.bgp) {
        let running = owners.read().shards.len();
        if running != usize::from(bgp.shards.stages()) {
            note("bgp.shards", running.to_string());
        }
    }
    if let (Some(rib), Some(fib)) = (router.rib.get(), &config.fib) {
        let (suppresses, mode) = rib
            .handle
            .call(|stage| (stage.rib.default_vrf().suppresses(), stage.rib.default_vrf().cache_mode()))?;
        if suppresses != fib.suppress_fib_pending {
            note("fib.suppress-fib-pending", suppresses.to_string());
        }
        if mode != fib.nexthop_cache {
            note("fib.nexthop-cache", format!("\"{}\"", mode.name()));
        }
    }
    let ShownConfig { file, text, .. } = config.shown.clone();
    Ok(RunningConfiguration { file, text: text.to_string(), changed })
}

/// The latest events of the log that fit the query.
pub(crate) fn events(query: &LogQuery, limit: usize) -> Result<LogPage, Refusal> {
    let least = query.level.as_deref().map_or(Ok(LEVELS.len()), rank)?;
    let recent = log::recent(query.after.unwrap_or(0));
    // Below `after` in a router that started since.
    let last = recent.last().map_or_else(log::last_number, |(number, _)| *number);
    // From the latest on, because these are those that a limit keeps.
    let fitting = recent.iter().rev().filter_map(event).filter(|event| fits(event, query, least));
    let mut events: Vec<LogEvent> = fitting.take(limit).collect();
    events.reverse();
    Ok(LogPage { events, last })
}

/// Conditions on events of the log, for clients that follow them.
pub(crate) struct LogFilter {
    query: LogQuery,
    least: usize,
}

impl LogFilter {
    /// # Errors
    /// The level is none.
    pub(crate) fn new(query: &EventsQuery) -> Result<LogFilter, Refusal> {
        let least = query.level.as_deref().map_or(Ok(LEVELS.len()), rank)?;
        let EventsQuery { level, target, neighbor, prefix, .. } = query.clone();
        Ok(LogFilter { query: LogQuery { level, target, neighbor, prefix, ..LogQuery::default() }, least })
    }

    pub(crate) fn has(&self, event: &LogEvent) -> bool {
        fits(event, &self.query, self.least)
    }
}

/// From the worst on.
const LEVELS: [&str; 5] = ["error", "warn", "info", "debug", "trace"];

/// The number of a level and of those that are worse.
fn rank(name: &str) -> Result<usize, Refusal> {
    let place = LEVELS.iter().position(|level| level.eq_ignore_ascii_case(name));
    place.map(|place| place + 1).ok_or_else(|| {
        Refusal::Bad(format!("level: \"{name}\" is none; write one of {}", LEVELS[..4].join(", ")))
    })
}

fn fits(event: &LogEvent, query: &LogQuery, least: usize) -> bool {
    let is_of = |target: &str| {
        event.target.strip_prefix(target).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
    };
    let has = |key: &str, wanted: &str| match event.fields.get(key) {
        Some(Value::String(text)) => text == wanted,
        Some(value) => {
            // As it is written: 65010 is "65010".
            let text = value.to_string();
            text == wanted
        }
        None => false,
    };
    rank(&event.level).is_ok_and(|rank| rank <= least)
        && query.target.as_deref().is_none_or(is_of)
        && query.neighbor.as_deref().is_none_or(|neighbor| has("neighbor", neighbor))
        && query.prefix.as_deref().is_none_or(|prefix| has("prefix", prefix))
}

/// An event as the log keeps it.
pub(crate) fn event((number, line): &RecentEvent) -> Option<LogEvent> {
    let mut fields: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let mut text = |key: &str| match fields.remove(key) {
        Some(Value::String(text)) => text,
        Some(other) => other.to_string(),
        None => String::new(),
    };
    let (timestamp, level) = (text("timestamp"), text("level"));
    let (target, message) = (text("target"), text("message"));
    Some(LogEvent {
        number: *number,
        timestamp,
        level,
        target,
        message,
        fields: fields.into_iter().collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(json: &str) -> LogEvent {
        event(&(7, json.as_bytes().into())).unwrap()
    }

    #[test]
    fn an_event_fits_by_level_target_and_key() {
        let down = of(
            r#"{"timestamp":"T","level":"WARN","message":"the session is down","neighbor":"192.0.2.1","asn":65010,"target":"bgp::session"}"#,
        );
        assert_eq!((down.number, down.message.as_str(), down.fields.len()), (7, "the session is down", 2));
        let fits = |query: LogQuery, level: &str| fits(&down, &query, rank(level).unwrap());
        let query = LogQuery::default;
        assert!(fits(query(), "warn") && fits(query(), "debug") && !fits(query(), "error"));
        let target = |target: &str| LogQuery { target: Some(target.into()), ..query() };
        assert!(fits(target("bgp"), "info") && fits(target("bgp::session"), "info"));
        assert!(!fits(target("bg"), "info") && !fits(target("rib"), "info"));
        let neighbor = |address: &str| LogQuery { neighbor: Some(address.into()), ..query() };
        assert!(fits(neighbor("192.0.2.1"), "info") && !fits(neighbor("192.0.2.2"), "info"));
        assert!(!fits(LogQuery { prefix: Some("10.0.0.0/8".into()), ..query() }, "info"));
        assert!(matches!(rank("wran"), Err(Refusal::Bad(why)) if why.contains("error, warn, info, debug")));
    }
}
