//! Maximum prefixes of a neighbour: those that it sends, and those that it gets.

use super::check::{Both, Checker};
use super::diagnosis::{Step, key};
use ribtide_bgp::ingest::{self, LimitAction};
use ribtide_bgp::peer::PrefixLimits;
use ribtide_prefix::{AfiSafi, ByFamily};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// The maximum prefixes of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MaxPrefixesConfig {
    /// Of accepted prefixes.
    pub received: Option<ingest::MaxPrefixes>,
    /// How long a session that `received` ended stays down; zero: until an operator clears it.
    pub idle_time: Duration,
    /// Of advertised prefixes.
    pub sent: PrefixLimits,
    /// How long a session that `sent` ended stays down; zero: until an operator clears it.
    pub sent_idle_time: Duration,
}

/// Seconds that a session stays down without `idle-time`.
const IDLE_TIME: u32 = 300;
/// The percentage of the limit that is logged without `warning`.
const WARNING: u8 = 80;

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MaxPrefixesTable {
    /// IPv4 prefixes that the neighbour may have accepted at once.
    #[schemars(extend("x-default" = "no limit"))]
    ipv4_unicast: Option<u32>,
    /// IPv6 prefixes that it may have accepted at once.
    #[schemars(extend("x-default" = "no limit"))]
    ipv6_unicast: Option<u32>,
    /// IPv4 multicast prefixes that it may have accepted at once.
    #[schemars(extend("x-default" = "no limit"))]
    ipv4_multicast: Option<u32>,
    /// IPv6 multicast prefixes that it may have accepted at once.
    #[schemars(extend("x-default" = "no limit"))]
    ipv6_multicast: Option<u32>,
    /// What happens when more come. `"restart"`: the session ends and stays down for `idle-time`.
    /// `"discard"`: they are refused, and those that are there stay. `"warn"`: they are accepted, and
    /// logged.
    #[schemars(extend("default" = "restart"))]
    action: Option<Action>,
    /// Seconds for which the session stays down; 0: until `ribtide clear bgp neighbor`. With `"restart"`
    /// alone.
    #[schemars(extend("default" = IDLE_TIME))]
    idle_time: Option<u32>,
    /// The percentage of the limit that is logged, 1 to 100.
    #[schemars(extend("default" = WARNING))]
    warning: Option<u8>,
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MaxPrefixesOutTable {
    /// IPv4 prefixes that may be advertised to the neighbour at once.
    #[schemars(extend("x-default" = "no limit"))]
    ipv4_unicast: Option<u32>,
    /// IPv6 prefixes that may be advertised to it at once.
    #[schemars(extend("x-default" = "no limit"))]
    ipv6_unicast: Option<u32>,
    /// IPv4 multicast prefixes that may be advertised to it at once.
    #[schemars(extend("x-default" = "no limit"))]
    ipv4_multicast: Option<u32>,
    /// IPv6 multicast prefixes that may be advertised to it at once.
    #[schemars(extend("x-default" = "no limit"))]
    ipv6_multicast: Option<u32>,
    /// Seconds for which the session stays down after more were to be advertised; 0: until `ribtide clear
    /// bgp neighbor`.
    #[schemars(extend("default" = IDLE_TIME))]
    idle_time: Option<u32>,
}

/// The limits that a table has.
macro_rules! limits_of {
    ($($table:ty),+) => {
        $(impl $table {
            fn limits(&self) -> PrefixLimits {
                ByFamily::new(|family| match family {
                    AfiSafi::Ipv4Unicast => self.ipv4_unicast,
                    AfiSafi::Ipv6Unicast => self.ipv6_unicast,
                    AfiSafi::Ipv4Multicast => self.ipv4_multicast,
                    AfiSafi::Ipv6Multicast => self.ipv6_multicast,
                })
            }
        })+
    };
}

limits_of!(MaxPrefixesTable, MaxPrefixesOutTable);

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
enum Action {
    Warn,
    Restart,
    Discard,
}

impl Checker {
    /// The maximum prefixes of a neighbour. Its own table replaces its group's.
    pub(super) fn max_prefixes(&mut self, both: &Both<'_>) -> MaxPrefixesConfig {
        let mut max = MaxPrefixesConfig::default();
        let (table, at) = both.pick("max-prefixes", |n| &n.max_prefixes, |g| &g.max_prefixes);
        if let Some(table) = table {
            let place = at.key();
            let MaxPrefixesTable { action, idle_time, warning, .. } = *table;
            let limits = table.limits();
            let other_keys = action.is_some() || idle_time.is_some() || warning.is_some();
            self.prefix_limits(limits, other_keys, &place);
            if idle_time.is_some() && !matches!(action, None | Some(Action::Restart)) {
                let message =
                    "only with action = \"restart\" the session ends; remove idle-time, or the other action";
                self.problem(&[&place, &key!["idle-time"][..]].concat(), message);
            }
            if warning.is_some_and(|percent| !(1..=100).contains(&percent)) {
                let message = "the warning is a percentage of the limit; write 1 to 100";
                self.problem(&[&place, &key!["warning"][..]].concat(), message);
            }
            let action = match action {
                None | Some(Action::Restart) => LimitAction::Restart,
                Some(Action::Warn) => LimitAction::Warn,
                Some(Action::Discard) => LimitAction::Discard,
            };
            let warning = warning.unwrap_or(WARNING);
            max.received = (!limits.is_none()).then_some(ingest::MaxPrefixes { limits, action, warning });
            max.idle_time = Duration::from_secs(idle_time.unwrap_or(IDLE_TIME).into());
        }
        let (table, at) = both.pick("max-prefixes-out", |n| &n.max_prefixes_out, |g| &g.max_prefixes_out);
        if let Some(table) = table {
            let idle_time = table.idle_time;
            max.sent = table.limits();
            max.sent_idle_time = Duration::from_secs(idle_time.unwrap_or(IDLE_TIME).into());
            self.prefix_limits(max.sent, idle_time.is_some(), &at.key());
        }
        max
    }

    fn prefix_limits(&mut self, limits: PrefixLimits, other_keys: bool, place: &[Step]) {
        for (family, limit) in limits.iter() {
            if *limit == Some(0) {
                let message =
                    "a limit of 0 permits no prefix; write 1 and more, or leave the family out of `families`";
                self.problem(&[place, &key![family.name()][..]].concat(), message);
            }
        }
        // An empty table is how a neighbour has no limit in a group that has one.
        if limits.is_none() && other_keys {
            self.problem(place, "no family has a limit here; write ipv4-unicast = 1000, or remove the rest");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, ConfigError, parse};
    use std::path::Path;

    fn config(group: &str, neighbor: &str) -> Result<Config, String> {
        let text = format!(
            "[router]\nasn = 65001\nrouter-id = \"10.0.0.1\"\n[bgp.group.up]\ntype = \"external\"\npeer-asn = 65002\n\
             {group}\n[[bgp.group.up.neighbor]]\naddress = \"192.0.2.1\"\n{neighbor}\n"
        );
        parse(&text).map_err(|e| ConfigError::new(Path::new("ribtide.toml"), &text, e).to_string())
    }

    fn max(group: &str, neighbor: &str) -> MaxPrefixesConfig {
        let bgp = config(group, neighbor).unwrap().bgp.unwrap();
        bgp.neighbors.values().next().unwrap().settings.max_prefixes
    }

    #[test]
    fn max_prefixes_defaults_are_restart_after_five_minutes_and_a_warning_at_80_percent() {
        let limits = |ipv4: Option<u32>, ipv6: Option<u32>| {
            let mut limits = PrefixLimits::default();
            (limits[AfiSafi::Ipv4Unicast], limits[AfiSafi::Ipv6Unicast]) = (ipv4, ipv6);
            limits
        };
        let received = |ipv4, ipv6, action, warning| {
            Some(ingest::MaxPrefixes { limits: limits(ipv4, ipv6), action, warning })
        };
        let limited = max("max-prefixes = { ipv4-unicast = 1000 }", "");
        assert_eq!(limited.received, received(Some(1000), None, LimitAction::Restart, 80));
        assert_eq!(limited.idle_time, Duration::from_secs(300));
        assert_eq!(limited.sent, PrefixLimits::default());
        let all = "max-prefixes = { ipv4-unicast = 1, ipv6-unicast = 2, action = \"discard\", warning = 50 }\n\
                   max-prefixes-out = { ipv6-unicast = 9, idle-time = 0 }";
        let limited = max(all, "");
        assert_eq!(limited.received, received(Some(1), Some(2), LimitAction::Discard, 50));
        assert_eq!(limited.sent, limits(None, Some(9)));
        assert_eq!(limited.sent_idle_time, Duration::ZERO);
        // A neighbour's table replaces its group's as a whole.
        let own = max(all, "max-prefixes = { ipv4-unicast = 7, action = \"warn\" }");
        assert_eq!(own.received, received(Some(7), None, LimitAction::Warn, 80));
        assert_eq!(own.sent, limited.sent);
        assert_eq!(max(all, "max-prefixes = {}\nmax-prefixes-out = {}").received, None);
        assert_eq!(max("", ""), MaxPrefixesConfig::default());
    }

    #[test]
    fn max_prefixes_that_cannot_be_meant_are_refused_with_their_place() {
        for (group, expected) in [
            ("max-prefixes = { ipv4-unicast = 0 }", "a limit of 0 permits no prefix"),
            ("max-prefixes-out = { ipv6-unicast = 0 }", "a limit of 0 permits no prefix"),
            ("max-prefixes = { action = \"warn\" }", "no family has a limit here"),
            ("max-prefixes-out = { idle-time = 9 }", "no family has a limit here"),
            ("max-prefixes = { ipv4-unicast = 1, warning = 101 }", "write 1 to 100"),
            (
                "max-prefixes = { ipv4-unicast = 1, action = \"discard\", idle-time = 9 }",
                "only with action = \"restart\"",
            ),
            ("max-prefixes = { ipv4-unicast = 1, action = \"block\" }", "unknown variant `block`"),
            ("max-prefixes = { ipv4-multicast = 1 }", "unknown field `ipv4-multicast`"),
        ] {
            let message = config(group, "").unwrap_err();
            assert!(message.contains(expected) && message.contains("ribtide.toml:7:"), "{group}: {message}");
        }
    }
}
