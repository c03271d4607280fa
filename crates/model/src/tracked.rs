//! Next hops that BGP registered with the RIB manager.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// `GET /v1/bgp/nexthops`: the registered next hops, in the order of their addresses.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrackedNextHops {
    /// Next hops, all or those of one address.
    pub next_hops: Vec<TrackedNextHop>,
}

/// A next hop for one kind of route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TrackedNextHop {
    /// The address in NEXT_HOP.
    pub address: String,
    /// `recursive`, or `on-link` for paths of single-hop external sessions.
    pub kind: String,
    /// The prefix of the paths, if it contains the address or the address depends on its route: that
    /// route does not resolve the address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_for: Option<String>,
    /// Whether BGP may use paths with it, according to the last notification; absent before the
    /// first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
    /// Whether it is reachable only for a route without another next hop, because it depends on
    /// the route of `only_for`. BGP feeds such a path without multipath members and backup.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub alone: bool,
    /// The last notified interior cost.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    /// The prefix that it resolves through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// The resolved next hops; empty if unresolved.
    pub resolved: Vec<String>,
    /// Why it is unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
    /// Notified changes since it was last stable.
    pub changes: u32,
    /// Seconds since the last of these changes; absent without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_seconds: Option<u64>,
    /// Milliseconds until a damped notification is due.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_ms: Option<u64>,
}
