//! Changes by operators at run time, and their results. Each displays as a sentence.

use super::{NextHopCacheSet, SuppressionSet};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

/// `POST /v1/bgp/shards`: the number of shard threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "this is no number of shard threads; send {\"shards\": 4}, {\"shards\": \"auto\"} or {\"shards\": \"off\"}"
)]
pub enum ShardCount {
    /// This number.
    Number(u16),
    /// One for each core, or none.
    Word(ShardWord),
}

/// A number of shard threads in words.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ShardWord {
    /// As many as the machine has cores.
    Auto,
    /// None: the session thread runs the readers and one shard.
    Off,
}

/// The body of that request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The requested number.
    pub shards: ShardCount,
}

/// The result of a resize.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Resized {
    /// Shard threads before; 0: the session thread ran the shard.
    pub from: usize,
    /// Shard threads now; 0: the session thread runs the shard.
    pub to: usize,
    /// Logical shards, of 64, with another owner.
    pub logical_shards: usize,
    /// Prefixes in them.
    pub prefixes: u64,
    /// Stops of readers, in which routes move.
    pub stops: u64,
    /// Stops without a move, because shards did not become idle.
    pub stops_without_move: u64,
    /// How many of them were longer than 10 ms.
    pub stops_over_10_ms: u64,
    /// How many of them were longer than 25 ms.
    pub stops_over_25_ms: u64,
    /// How many of them were longer than 50 ms.
    pub stops_over_50_ms: u64,
    /// The most paths that moved in a stop.
    pub most_paths_in_a_stop: usize,
    /// The longest stop of any reader, in seconds.
    pub longest_stop_seconds: f64,
    /// The total time of stops, in seconds.
    pub paused_seconds: f64,
}

impl fmt::Display for Resized {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Resized {
            from, to, logical_shards, prefixes, stops, longest_stop_seconds, paused_seconds, ..
        } = self;
        if from == to {
            return write!(f, "{to} shard threads, as before");
        }
        write!(
            f,
            "{to} shard thread{}, {from} before: {logical_shards} of 64 logical shards moved with {prefixes} prefixes; \
             readers stopped {stops} times, for {:.1} ms at most, {:.1} ms in all; {} of these stops were longer than 10 ms, \
             {} than 25 ms, {} than 50 ms",
            if *to == 1 { "" } else { "s" },
            longest_stop_seconds * 1e3,
            paused_seconds * 1e3,
            self.stops_over_10_ms,
            self.stops_over_25_ms,
            self.stops_over_50_ms,
        )
    }
}

/// `POST /v1/reload`: the changes of a reload.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Reloaded {
    /// The file.
    pub file: PathBuf,
    /// The change of the number of shards, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shards: Option<Resized>,
    /// The change of the next-hop cache, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nexthop_cache: Option<NextHopCacheSet>,
    /// The new state of FIB suppression, if changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub suppression: Option<SuppressionSet>,
    /// Whether the API token changed, was added or was removed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub api_token: bool,
    /// Whether the FIB policy changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fib_policy: bool,
    /// Whether neighbours by interface are others, or have other settings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interfaces: bool,
    /// Whether other routes are originated, or by another policy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub originate: bool,
    /// Whether RPKI caches or local exceptions changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rpki: bool,
    /// Whether BMP stations changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bmp: bool,
    /// Whether MRT files have other settings.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub mrt: bool,
    /// Whether the log has other levels or another format.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub log: bool,
    /// Changed settings of the whole router, by their names in the file.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<String>,
    /// New VRFs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrfs_added: Vec<String>,
    /// Removed VRFs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrfs_removed: Vec<String>,
    /// VRFs with other static routes; the default one is `default`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub static_routes: Vec<String>,
    /// Other VRFs with a changed FIB policy or source address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrf_policies: Vec<String>,
    /// New neighbours.
    pub added: Vec<IpAddr>,
    /// Removed neighbours.
    pub removed: Vec<IpAddr>,
    /// Neighbours whose session is reset.
    pub reset: Vec<IpAddr>,
    /// Neighbours with other settings and the same session.
    pub refreshed: Vec<IpAddr>,
    /// Neighbours that are shut down from now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shut_down: Vec<IpAddr>,
    /// Neighbours that are no longer shut down.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub started: Vec<IpAddr>,
    /// New BFD sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bfd_added: Vec<IpAddr>,
    /// Removed BFD sessions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bfd_removed: Vec<IpAddr>,
    /// BFD sessions with other settings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub bfd_changed: Vec<IpAddr>,
}

impl Reloaded {
    /// Whether the file has what was in force before.
    pub fn is_unchanged(&self) -> bool {
        self.changes().is_empty()
    }

    /// Each change, as a part of a sentence.
    fn changes(&self) -> Vec<String> {
        let Reloaded {
            shards,
            nexthop_cache,
            suppression,
            api_token,
            fib_policy,
            interfaces,
            originate,
            rpki,
            bmp,
            mrt,
            log,
            ..
        } = self;
        let mut changes: Vec<String> = shards.iter().map(ToString::to_string).collect();
        changes.extend(nexthop_cache.iter().map(ToString::to_string));
        changes.extend(suppression.iter().map(ToString::to_string));
        changes.extend(api_token.then(|| "another API token is in force".into()));
        changes.extend(fib_policy.then(|| "routes go to the FIB by another policy".into()));
        changes.extend(interfaces.then(|| "other neighbours by interface".into()));
        changes.extend(originate.then(|| "other routes are originated".into()));
        changes.extend(rpki.then(|| "there are other RPKI caches or local exceptions".into()));
        changes.extend(bmp.then(|| "there are other BMP stations".into()));
        changes.extend(mrt.then(|| "MRT files have other settings".into()));
        changes.extend(log.then(|| "the log has other settings".into()));
        let texts = |list: &[IpAddr]| list.iter().map(ToString::to_string).collect::<Vec<String>>();
        for (what, list) in [
            ("settings", self.settings.clone()),
            ("VRFs added", self.vrfs_added.clone()),
            ("VRFs removed", self.vrfs_removed.clone()),
            ("other static routes in VRF", self.static_routes.clone()),
            ("another policy for routes to the FIB in VRF", self.vrf_policies.clone()),
            ("added", texts(&self.added)),
            ("removed", texts(&self.removed)),
            ("session reset", texts(&self.reset)),
            ("refreshed", texts(&self.refreshed)),
            ("shut down", texts(&self.shut_down)),
            ("started", texts(&self.started)),
            ("BFD added", texts(&self.bfd_added)),
            ("BFD removed", texts(&self.bfd_removed)),
            ("BFD changed", texts(&self.bfd_changed)),
        ] {
            if !list.is_empty() {
                changes.push(format!("{what}: {}", list.join(", ")));
            }
        }
        changes
    }
}

impl fmt::Display for Reloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (file, changes) = (self.file.display(), self.changes());
        if changes.is_empty() {
            return write!(f, "{file}: nothing has changed");
        }
        write!(f, "{file} is in force: {}", changes.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_is_a_sentence() {
        let resized = Resized {
            from: 1,
            to: 4,
            logical_shards: 48,
            prefixes: 750_000,
            stops: 12,
            stops_without_move: 1,
            stops_over_10_ms: 5,
            stops_over_25_ms: 1,
            stops_over_50_ms: 0,
            most_paths_in_a_stop: 20_480,
            longest_stop_seconds: 0.0147,
            paused_seconds: 0.1324,
        };
        let mut reloaded = Reloaded {
            file: "ribtide.toml".into(),
            shards: None,
            nexthop_cache: None,
            suppression: None,
            api_token: false,
            fib_policy: false,
            interfaces: false,
            originate: false,
            rpki: false,
            bmp: false,
            mrt: false,
            log: false,
            settings: vec![],
            vrfs_added: vec![],
            vrfs_removed: vec![],
            static_routes: vec![],
            vrf_policies: vec![],
            added: vec![],
            removed: vec![],
            reset: vec![],
            refreshed: vec![],
            shut_down: vec![],
            started: vec![],
            bfd_added: vec![],
            bfd_removed: vec![],
            bfd_changed: vec![],
        };
        assert_eq!(reloaded.to_string(), "ribtide.toml: nothing has changed");
        assert!(reloaded.is_unchanged());
        reloaded.shards = Some(resized);
        reloaded.vrfs_added = vec!["Vrfred".into()];
        reloaded.added = vec!["192.0.2.1".parse().unwrap(), "2001:db8::1".parse().unwrap()];
        assert_eq!(
            reloaded.to_string(),
            "ribtide.toml is in force: 4 shard threads, 1 before: 48 of 64 logical shards moved with 750000 prefixes; \
             readers stopped 12 times, for 14.7 ms at most, 132.4 ms in all; 5 of these stops were longer than 10 ms, 1 than 25 ms, 0 than 50 ms; VRFs added: Vrfred; added: 192.0.2.1, 2001:db8::1"
        );
    }

    #[test]
    fn a_number_or_auto_is_asked_for() {
        let read = |text: &str| serde_json::from_str::<Resize>(text).map(|r| r.shards);
        assert_eq!(read("{\"shards\": 4}").unwrap(), ShardCount::Number(4));
        assert_eq!(read("{\"shards\": \"auto\"}").unwrap(), ShardCount::Word(ShardWord::Auto));
        assert!(
            read("{\"shards\": \"many\"}").unwrap_err().to_string().contains("no number of shard threads")
        );
        assert_eq!(
            serde_json::to_string(&Resize { shards: ShardCount::Word(ShardWord::Auto) }).unwrap(),
            "{\"shards\":\"auto\"}"
        );
    }
}
