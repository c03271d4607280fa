//! Next-hop groups and the resolution cache.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;

/// `GET /v1/nexthop-groups`: a page of groups in the order of ids, or one group.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NextHopGroupPage {
    /// The cache.
    pub cache: NextHopCache,
    /// Groups.
    pub groups: Vec<NextHopGroup>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The resolution cache with its counters.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NextHopCache {
    /// `off`, `epoch` or `dependency`.
    pub mode: String,
    /// 1 plus the number of events that began a new generation.
    pub generation: u64,
    /// Routes that used the cached result of their group.
    pub hits: u64,
    /// Routes whose received group had to be resolved.
    pub misses: u64,
    /// Resolutions of a received group, with all of its hops.
    pub resolutions: u64,
    /// Lookups of next hops, for routes, groups or BGP.
    pub lookups: u64,
    /// Groups whose cached result an event invalidated.
    pub invalidations: u64,
    /// Wall time of resolution.
    pub resolution_seconds: f64,
}

/// A next-hop group: as received, and its resolution.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NextHopGroup {
    /// Its id, of the received and the resolved group, which are never shared separately.
    pub id: u32,
    /// The VRF; the default one is `default`.
    pub vrf: String,
    /// Candidates that use it.
    pub routes: u32,
    /// Routes in the FIB that use it.
    pub installed_routes: u32,
    /// Whether dataplanes have it.
    pub installed: bool,
    /// Whether its gateways may resolve through routes that are not connected.
    pub allow_recursion: bool,
    /// The prefix that has this group alone, because it contains a gateway and must not resolve it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_for: Option<String>,
    /// The received hops with their results; empty for a blackhole.
    pub received: Vec<ReceivedNextHop>,
    /// The backup with its result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backup: Vec<ReceivedNextHop>,
    /// Whether the backup is in use.
    #[serde(default)]
    pub on_backup: bool,
    /// The effect of `fib.policy`, or of the policy of its VRF: `denied`, `source 192.0.2.1`;
    /// absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What it tracks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracks: Option<Tracked>,
    /// The resolved hops, which the cache stores; absent if unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Vec<String>>,
    /// Lookups in the longest chain of its resolution.
    pub level: u8,
    /// The generation of its last resolution; in mode `epoch` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamp: Option<u64>,
    /// Groups that it resolves through.
    pub depends: Vec<u32>,
    /// Groups that resolve through it.
    pub dependents: Vec<u32>,
}

/// Something that a route tracks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Tracked {
    /// `interface eth1`, `prefix 0.0.0.0/0`, `address 192.0.2.1`.
    pub what: String,
    /// Whether it holds.
    pub holds: bool,
}

/// A received next hop.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedNextHop {
    /// `via 192.0.2.1`, `dev eth0`, ….
    pub hop: String,
    /// Its weight.
    pub weight: u16,
    /// The resolving route; absent if none is needed or none exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Why it is unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
}

/// `POST /v1/nexthop-cache`: sets the mode of the resolution cache.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetNextHopCache {
    /// `off`, `epoch` or `dependency`.
    pub mode: String,
}

/// The result.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NextHopCacheSet {
    /// The mode before.
    pub from: String,
    /// The mode now.
    pub to: String,
}

impl fmt::Display for NextHopCacheSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NextHopCacheSet { from, to } = self;
        if from == to {
            return write!(f, "the next-hop cache works by \"{to}\", as before");
        }
        write!(f, "the next-hop cache works by \"{to}\" now, by \"{from}\" before")
    }
}
