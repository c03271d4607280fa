//! Graceful restart: whether, and how long, the routes of neighbours are retained, and whether ours are (RFC 4724).

use super::check::{BgpConfig, Both, Checker};
use super::diagnosis::{Step, key};
use super::or_table::or_table;
use ribtide_prefix::{AfiSafi, ByFamily};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// Graceful restart of a neighbour, and of ours towards it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GracefulRestartConfig {
    /// Whether we help it: its routes are retained while it restarts.
    pub helper: bool,
    /// The restart time that we send, in seconds: the neighbour is to retain our routes for so long while we restart. `None`: it
    /// is to retain none.
    pub restart_time: Option<u16>,
    /// How long its routes are retained, at most.
    pub stale_time: Duration,
    /// How long routes of a family are retained after that, as long-lived stale ones, in seconds: the neighbour's, at most, and
    /// ours at the neighbour (RFC 9494). 0: not at all; `None`: no family's are, and the capability is not sent.
    pub long_lived_time: Option<ByFamily<u32>>,
    /// Whether an internal neighbour without that gets long-lived stale routes too (RFC 9494 section 4.6).
    pub long_lived_partial: bool,
}

impl BgpConfig {
    /// Whether any neighbour, present or dynamic, is to retain our routes while we restart.
    pub fn restarts_gracefully(&self) -> bool {
        let neighbors = self.neighbors.values().map(|neighbor| &neighbor.settings);
        let mut all = neighbors.chain(self.dynamic.iter().map(|range| &range.settings));
        all.any(|settings| settings.graceful_restart.restart_time.is_some())
    }
}

/// Seconds without `stale-time`.
const STALE_TIME: u32 = 360;
/// The longest `stale-time`, a day: stale routes may lead nowhere.
const STALE_TIME_MAX: u32 = 86_400;
/// The longest `long-lived-stale-time`: it has 24 bits (RFC 9494 section 3.1).
const LONG_LIVED_TIME_MAX: u32 = 0x00ff_ffff;
/// Seconds without `restart-time`: that of other routers, and more than the start with a full table takes.
const RESTART_TIME: u16 = 120;
/// The longest `restart-time`: it has twelve bits (RFC 4724 section 3).
const RESTART_TIME_MAX: u16 = 4095;
/// Seconds without `selection-deferral-time`.
const SELECTION_DEFERRAL_TIME: u32 = 120;
/// The longest `selection-deferral-time`, an hour.
const SELECTION_DEFERRAL_TIME_MAX: u32 = 3600;

/// What may be written as `long-lived-stale-time`.
const EXPECTING: &str = "a number of seconds, or a table of them for each family: { ipv4-unicast = 3600 }";

/// The time of every family, or of each.
#[derive(Clone, Copy, Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum LongLivedTime {
    Every(i64),
    Table(LongLivedTable),
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LongLivedTable {
    /// Seconds for routes of IPv4 prefixes, as for `long-lived-stale-time`.
    #[schemars(extend("default" = 0))]
    ipv4_unicast: Option<i64>,
    /// Seconds for routes of IPv6 prefixes, as for `long-lived-stale-time`.
    #[schemars(extend("default" = 0))]
    ipv6_unicast: Option<i64>,
}

or_table!(LongLivedTime, visit_i64, i64, Every, EXPECTING);

impl LongLivedTime {
    /// Of each family the seconds, as they are written.
    fn each(self) -> ByFamily<i64> {
        ByFamily::new(|family| match (self, family) {
            (LongLivedTime::Every(seconds), _) => seconds,
            (LongLivedTime::Table(table), AfiSafi::Ipv4Unicast) => table.ipv4_unicast.unwrap_or(0),
            (LongLivedTime::Table(table), AfiSafi::Ipv6Unicast) => table.ipv6_unicast.unwrap_or(0),
        })
    }
}

#[derive(Clone, Copy, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct GracefulRestartTable {
    /// `"helper"`: the neighbour's routes stay in use while it restarts. `"restart"`: also, the neighbour is asked to keep
    /// ours in use while ribtide restarts. `"off"`: neither. Another mode resets the session.
    #[schemars(extend("default" = Mode::Helper))]
    mode: Option<Mode>,
    /// With `mode = "restart"`: seconds in which a neighbour has a session with ribtide again after its restart, 1 to
    /// 4095. The neighbour removes our routes after that time. It gets another value with its next session.
    #[schemars(extend("default" = RESTART_TIME))]
    restart_time: Option<u16>,
    /// Below `bgp` alone, with `mode = "restart"`: seconds after its restart for which ribtide waits for End-of-RIB of its
    /// neighbours at most, 1 to 3600, before it advertises routes and removes those of the run before from the FIB. Less
    /// than the time for which neighbours keep stale routes.
    #[schemars(extend("default" = SELECTION_DEFERRAL_TIME))]
    selection_deferral_time: Option<u32>,
    /// Seconds for which stale routes stay in use at most, 1 to 86400, from the loss of the session to the neighbour's
    /// End-of-RIB. While it has no session, its own restart time ends them too.
    #[schemars(extend("default" = STALE_TIME))]
    stale_time: Option<u32>,
    /// Seconds for which routes may stay as a last resort after the restart time (long-lived graceful restart, RFC 9494), 0 to
    /// 16777215; 0: off. Or a table of these for each family: `{ ipv4-unicast = 3600 }`. The neighbour's routes: less if it says
    /// so. Ours, with `mode = "restart"`: the neighbour is asked to keep them for so long. Another value resets the session.
    #[schemars(extend("default" = 0))]
    long_lived_stale_time: Option<LongLivedTime>,
    /// Whether internal neighbours and members of the confederation without long-lived graceful restart get long-lived stale
    /// routes too, with `no-export` and a LOCAL_PREF of 0: the partial deployment of RFC 9494 section 4.6.
    #[schemars(extend("default" = false))]
    long_lived_partial_deployment: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Mode {
    Off,
    Helper,
    Restart,
}

impl Checker {
    /// Graceful restart of a neighbour: each key is its own, its group's, or that of `bgp`.
    pub(super) fn graceful_restart(&mut self, both: &Both<'_>) -> GracefulRestartConfig {
        let (own, group) = both.each(|n| n.graceful_restart, |g| g.graceful_restart);
        for (table, place) in [(own, both.place), (group, both.in_group)] {
            self.restart_times(table, place);
            if table.is_some_and(|table| table.selection_deferral_time.is_some()) {
                let message = "the wait after a restart ends for all neighbours at once; write it in bgp.graceful-restart";
                self.problem(
                    &[place, &key!["graceful-restart", "selection-deferral-time"][..]].concat(),
                    message,
                );
            }
        }
        let tables = [own, group, self.graceful_restart];
        let set = |table: &Option<GracefulRestartTable>| table.unwrap_or_default();
        let mode = tables.iter().find_map(|table| set(table).mode).unwrap_or(Mode::Helper);
        let stale_time = tables.iter().find_map(|table| set(table).stale_time).unwrap_or(STALE_TIME);
        let restart_time = tables.iter().find_map(|table| set(table).restart_time).unwrap_or(RESTART_TIME);
        let long_lived_time = tables.iter().find_map(|table| set(table).long_lived_stale_time);
        let long_lived_time = long_lived_time.filter(|_| mode != Mode::Off).map(|time| {
            let seconds = time.each();
            // A time that is out of range is a problem already.
            ByFamily::new(|family| u32::try_from(seconds[family]).unwrap_or(0))
        });
        let is_any = |times: &ByFamily<u32>| times.iter().any(|(_, time)| *time > 0);
        GracefulRestartConfig {
            long_lived_time: long_lived_time.filter(is_any),
            long_lived_partial: tables
                .iter()
                .find_map(|table| set(table).long_lived_partial_deployment)
                .unwrap_or(false),
            helper: mode != Mode::Off,
            restart_time: (mode == Mode::Restart).then_some(restart_time),
            stale_time: Duration::from_secs(stale_time.into()),
        }
    }

    /// Checks the times of a table below `place`.
    pub(super) fn restart_times(&mut self, table: Option<GracefulRestartTable>, place: &[Step]) {
        let Some(table) = table else { return };
        let mut check = |key: &'static str, seconds: Option<u32>, most: u32, instead: &str| {
            if seconds.is_some_and(|seconds| !(1..=most).contains(&seconds)) {
                let message = format!("{key} is in seconds; write 1 to {most}{instead}");
                self.problem(&[place, &key!["graceful-restart", key][..]].concat(), message);
            }
        };
        check("stale-time", table.stale_time, STALE_TIME_MAX, ", or mode = \"off\" to retain nothing");
        let restart_time = table.restart_time.map(u32::from);
        check(
            "restart-time",
            restart_time,
            RESTART_TIME_MAX.into(),
            ", or mode = \"helper\" to ask for nothing",
        );
        check("selection-deferral-time", table.selection_deferral_time, SELECTION_DEFERRAL_TIME_MAX, "");
        let Some(long_lived) = table.long_lived_stale_time else { return };
        let place = [place, &key!["graceful-restart", "long-lived-stale-time"][..]].concat();
        let message =
            format!("long-lived-stale-time is in seconds; write 1 to {LONG_LIVED_TIME_MAX}, or 0 for none");
        let is_wrong = |seconds: i64| !(0..=i64::from(LONG_LIVED_TIME_MAX)).contains(&seconds);
        match long_lived {
            LongLivedTime::Every(seconds) if is_wrong(seconds) => self.problem(&place, message),
            LongLivedTime::Every(_) => {}
            LongLivedTime::Table(_) => {
                for (family, _) in long_lived.each().iter().filter(|(_, seconds)| is_wrong(**seconds)) {
                    self.problem(&[&place, &key![family.name()][..]].concat(), message.clone());
                }
            }
        }
    }

    /// The most time for which the selection of routes is deferred after a restart (RFC 4724 section 4.1).
    pub(super) fn selection_deferral_time(&self) -> Duration {
        let seconds = self.graceful_restart.and_then(|table| table.selection_deferral_time);
        Duration::from_secs(seconds.unwrap_or(SELECTION_DEFERRAL_TIME).into())
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
        let stale_time = Duration::from_secs(seconds);
        GracefulRestartConfig {
            helper,
            restart_time: None,
            stale_time,
            long_lived_time: None,
            long_lived_partial: false,
        }
    }

    #[test]
    fn long_lived_stale_time_is_off_without_a_value_and_without_graceful_restart() {
        let time = |seconds: u32| format!("graceful-restart = {{ long-lived-stale-time = {seconds} }}");
        let of = |bgp: &str, group: &str| config(bgp, group, "").map(|config| config.long_lived_time);
        assert_eq!(of("", ""), Ok(None));
        assert_eq!(of(&time(60), ""), Ok(Some(ByFamily::new(|_| 60))));
        assert_eq!(of(&time(60), &time(0)), Ok(None));
        assert_eq!(of(&time(60), "graceful-restart = { mode = \"off\" }"), Ok(None));
        assert!(of(&time(16_777_216), "").unwrap_err().contains("write 1 to 16777215, or 0 for none"));
    }

    /// RFC 9494 section 5: the time is configured for each family.
    #[test]
    fn long_lived_stale_time_of_each_family_replaces_that_of_a_group() {
        let times = |table: &str| format!("graceful-restart = {{ long-lived-stale-time = {table} }}");
        let of =
            |group: &str, neighbor: &str| config("", group, neighbor).map(|config| config.long_lived_time);
        let both = "{ ipv4-unicast = 7, ipv6-unicast = 9 }";
        let expected =
            |v4, v6| Ok(Some(ByFamily::new(|family| if family == AfiSafi::Ipv4Unicast { v4 } else { v6 })));
        assert_eq!(of(&times(both), ""), expected(7, 9));
        assert_eq!(of(&times("5"), &times("{ ipv6-unicast = 9 }")), expected(0, 9));
        assert_eq!(of(&times(both), &times("5")), expected(5, 5));
        assert_eq!(of(&times(both), &times("{}")), Ok(None));
        for (table, expected) in [
            ("{ ipv4-unicast = 16777216 }", "write 1 to 16777215, or 0 for none"),
            ("{ ipv6-unicast = -1 }", "write 1 to 16777215, or 0 for none"),
            ("{ ipv5-unicast = 1 }", "unknown field `ipv5-unicast`"),
            ("\"long\"", "a number of seconds, or a table of them for each family"),
        ] {
            let message = of(&times(table), "").unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
    }

    #[test]
    fn restart_mode_helps_too_and_asks_for_help() {
        let full = |time| GracefulRestartConfig { restart_time: Some(time), ..restart(true, 360) };
        let mode = "graceful-restart = { mode = \"restart\" }";
        let time = "graceful-restart = { restart-time = 30 }";
        assert_eq!(config(mode, "", ""), Ok(full(120)));
        assert_eq!(config(mode, time, ""), Ok(full(30)));
        assert_eq!(config(time, "", mode), Ok(full(30)));
        assert_eq!(config(time, "", ""), Ok(restart(true, 360)), "only with the mode");
        assert_eq!(config(mode, "graceful-restart = { mode = \"helper\" }", ""), Ok(restart(true, 360)));
    }

    #[test]
    fn restart_times_out_of_range_or_place_are_refused() {
        for (bgp, group, expected) in [
            ("restart-time = 0", "", "restart-time is in seconds; write 1 to 4095"),
            ("", "restart-time = 4096", "restart-time is in seconds; write 1 to 4095"),
            ("selection-deferral-time = 0", "", "selection-deferral-time is in seconds; write 1 to 3600"),
            ("selection-deferral-time = 3601", "", "selection-deferral-time is in seconds; write 1 to 3600"),
            ("", "selection-deferral-time = 60", "write it in bgp.graceful-restart"),
        ] {
            let table = |keys: &str| match keys {
                "" => String::new(),
                keys => format!("graceful-restart = {{ {keys} }}"),
            };
            let message = config(&table(bgp), &table(group), "").unwrap_err();
            assert!(message.contains(expected), "{message}");
        }
        let text = |more: &str| {
            format!(
                "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp]\ngraceful-restart = {{ {more} }}\n"
            )
        };
        let deferral = |more| parse(&text(more)).unwrap().bgp.unwrap().selection_deferral_time.as_secs();
        assert_eq!((deferral("mode = \"restart\""), deferral("selection-deferral-time = 7")), (120, 7));
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
