//! Next hops as BGP has registered them with the RIB manager.

use serde::{Deserialize, Serialize};

/// `GET /v1/bgp/nexthops`: the registered next hops, in the order of their addresses.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct TrackedNextHops {
    /// Next hops, all or those of one address.
    pub next_hops: Vec<TrackedNextHop>,
}

/// A next hop for one kind of route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct TrackedNextHop {
    /// The address in NEXT_HOP.
    pub address: String,
    /// `recursive`, or `on-link` for paths of single-hop external sessions.
    pub kind: String,
    /// The prefix of the paths, where the address lies router it: then it does not resolve through that prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_for: Option<String>,
    /// Whether BGP may use paths by it, as it was told last; absent before the first answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reachable: Option<bool>,
    /// The interior cost that BGP was told.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cost: Option<u32>,
    /// The prefix that it resolves through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Its ways out; empty when it is unresolved.
    pub resolved: Vec<String>,
    /// Why it is unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
    /// How often BGP was told another state since it was last quiet.
    pub changes: u32,
    /// Good news of it waits so many milliseconds more, because it changed often.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delayed_ms: Option<u64>,
}
