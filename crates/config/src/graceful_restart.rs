//! Graceful restart of neighbours: whether, and how long, their routes are retained (RFC 4724).

use super::check::{Both, Checker};
use super::diagnosis::{Step, key};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// Graceful restart of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GracefulRestartConfig {
    /// Whether we help it: its routes are retained while it restarts.
    pub helper: bool,
    /// How long they are retained, at most.
    pub stale_time: Duration,
}

/// Seconds without `stale-time`.
const STALE_TIME: u32 = 360;
/// The longest `stale-time`, a day: stale routes may lead nowhere.
const STALE_TIME_MAX: u32 = 86_400;

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GracefulRestartTable {
    /// `"helper"`: the neighbour's routes stay in use while it restarts. `"off"`: they are withdrawn when the session
    /// ends. Another mode resets the session.
    #[schemars(extend("default" = Mode::Helper))]
    mode: Option<Mode>,
    /// Seconds for which stale routes stay in use at most, 1 to 86400, from the loss of the session to the neighbour's
    /// End-of-RIB. While it has no session, its own restart time ends them too.
    #[schemars(extend("default" = STALE_TIME))]
    stale_time: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Off,
    Helper,
}

impl Checker {
    /// Graceful restart of a neighbour: each key is its own, its group's, or that of `bgp`.
    pub(super) fn graceful_restart(&mut self, both: &Both<'_>) -> GracefulRestartConfig {
        let (own, group) = both.each(|n| n.graceful_restart, |g| g.graceful_restart);
        for (table, place) in [(own, both.place), (group, both.in_group)] {
            self.stale_time(table, place);
        }
        let tables = [own, group, self.graceful_restart];
        let set = |table: &Option<GracefulRestartTable>| table.unwrap_or_default();
        let mode = tables.iter().find_map(|table| set(table).mode).unwrap_or(Mode::Helper);
        let stale_time = tables.iter().find_map(|table| set(table).stale_time).unwrap_or(STALE_TIME);
        GracefulRestartConfig {
            helper: mode == Mode::Helper,
            stale_time: Duration::from_secs(stale_time.into()),
        }
    }

    /// Checks a table below `place`.
    pub(super) fn stale_time(&mut self, table: Option<GracefulRestartTable>, place: &[Step]) {
        let seconds = table.and_then(|table| table.stale_time);
        if seconds.is_some_and(|seconds| !(1..=STALE_TIME_MAX).contains(&seconds)) {
            let message = "stale-time is in seconds; write 1 to 86400, or mode = \"off\" to retain nothing";
            self.problem(&[place, &key!["graceful-restart", "stale-time"][..]].concat(), message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ConfigError, parse};
    use std::path::Path;

    fn config(bgp: &str, group: &str, neighbor: &str) -> Result<GracefulRestartConfig, String> {
        let text = format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp]\n{bgp}\n[bgp.group.up]\ntype = \"external\"\n\
             peer-asn = 65002\n{group}\n[[bgp.group.up.neighbor]]\naddress = \"192.0.2.1\"\n{neighbor}\n"
        );
        let config =
            parse(&text).map_err(|e| ConfigError::new(Path::new("ribtide.toml"), &text, e).to_string())?;
        let bgp = config.bgp.unwrap();
        Ok(bgp.neighbors.values().next().unwrap().settings.graceful_restart)
    }

    fn restart(helper: bool, seconds: u64) -> GracefulRestartConfig {
        GracefulRestartConfig { helper, stale_time: Duration::from_secs(seconds) }
    }

    #[test]
    fn graceful_restart_is_a_helper_unless_a_table_says_otherwise() {
        assert_eq!(config("", "", ""), Ok(restart(true, 360)));
        let off = "graceful-restart = { mode = \"off\" }";
        let time = |seconds: u32| format!("graceful-restart = {{ stale-time = {seconds} }}");
        assert_eq!(config(off, "", ""), Ok(restart(false, 360)));
        assert_eq!(config(off, &time(60), ""), Ok(restart(false, 60)), "each key by itself");
        let helper = "graceful-restart = { mode = \"helper\" }";
        assert_eq!(config(off, &time(60), helper), Ok(restart(true, 60)));
        assert_eq!(config("", &time(60), &time(86_400)), Ok(restart(true, 86_400)));
    }

    #[test]
    fn a_stale_time_or_mode_that_cannot_be_is_refused_with_its_place() {
        for (seconds, place) in [(0, 0), (86_401, 1), (0, 2)] {
            let mut at = [""; 3];
            let text = format!("graceful-restart = {{ stale-time = {seconds} }}");
            at[place] = &text;
            let message = config(at[0], at[1], at[2]).unwrap_err();
            let line = format!("ribtide.toml:{}:", [5, 9, 12][place]);
            assert!(message.contains("write 1 to 86400") && message.contains(&line), "{message}");
        }
        let message = config("graceful-restart = { mode = \"full\" }", "", "").unwrap_err();
        assert!(message.contains("unknown variant `full`"), "{message}");
    }
}
