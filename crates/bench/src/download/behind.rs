//! What the daemons and Redis report of a run: how old rows became that a database did not have, and
//! the commands that Redis executed.

use super::redis::Redis;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io;

/// The greatest age in milliseconds at which a row was written, by daemon and table.
pub(super) type Ages = BTreeMap<String, u64>;
/// Commands that were executed, by name.
pub(super) type Commands = BTreeMap<String, u64>;

/// The commands that say how rows are written and taken.
const SHOWN: [&str; 6] = ["evalsha", "publish", "hset", "copy", "del", "hgetall"];

/// The peaks of the ages in the output of `ribtide show pipeline --sonic --json`.
pub(super) fn ages(shown: &[u8]) -> io::Result<Ages> {
    let daemons: Vec<Value> = serde_json::from_slice(shown)?;
    let text = |value: &Value, name: &str| value.get(name).and_then(Value::as_str).unwrap_or("").to_owned();
    let mut ages = Ages::new();
    for daemon in &daemons {
        for queue in daemon.get("queues").and_then(Value::as_array).into_iter().flatten() {
            let name = text(queue, "name");
            let Some(table) =
                name.strip_prefix("age of the oldest row of ").and_then(|name| name.strip_suffix(", in ms"))
            else {
                continue;
            };
            let peak = queue.get("peak").and_then(Value::as_u64).unwrap_or(0);
            ages.insert(format!("{}: {table}", text(daemon, "daemon")), peak);
        }
    }
    Ok(ages)
}

/// The commands that a server has executed since its start.
pub(super) fn commands(redis: &mut Redis) -> io::Result<Commands> {
    let text = redis.text(&["INFO", "commandstats"])?;
    let count = |line: &str| {
        let (name, rest) = line.strip_prefix("cmdstat_")?.split_once(":calls=")?;
        let calls = rest.split_once(',')?.0.parse().ok()?;
        SHOWN.contains(&name).then(|| (name.to_owned(), calls))
    };
    Ok(text.lines().filter_map(count).collect())
}

/// `later` without `earlier`.
pub(super) fn since(later: Commands, earlier: &Commands) -> Commands {
    later
        .into_iter()
        .map(|(name, calls)| {
            let before = earlier.get(&name).copied().unwrap_or(0);
            (name, calls.saturating_sub(before))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_the_peaks_of_the_daemons_gauges() {
        let shown = br#"[{"daemon": "fpmsyncd", "settings": [], "queues": [
            {"name": "FPM frames to fpmsyncd", "depth": 0, "peak": 3, "full": 0},
            {"name": "age of the oldest row of ROUTE_TABLE to APPL_DB, in ms", "bound": 1000, "depth": 2, "peak": 412, "full": 0}]},
            {"daemon": "syncd", "queues": [{"name": "age of the oldest row of ASIC_DB, in ms", "peak": 7}]}]"#;
        let of = |name: &str, peak| (name.to_owned(), peak);
        assert_eq!(
            ages(shown).unwrap(),
            Ages::from([of("fpmsyncd: ROUTE_TABLE to APPL_DB", 412), of("syncd: ASIC_DB", 7)])
        );
        assert!(ages(b"{}").is_err());
    }
}
