//! Next-hop groups and the resolution cache.

use serde::{Deserialize, Serialize};
use std::fmt;

/// `GET /v1/nexthop-groups`: a page of the groups, in the order of their numbers, or the one asked for.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NextHopGroupPage {
    /// The cache.
    pub cache: NextHopCache,
    /// Groups.
    pub groups: Vec<NextHopGroup>,
    /// Ask again with this `cursor`; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The resolution cache and what it did since the start.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NextHopCache {
    /// `off`, `epoch` or `dependency`.
    pub mode: String,
    /// How often an event began another generation, and 1.
    pub generation: u64,
    /// Routes that took what their group had resolved to.
    pub hits: u64,
    /// Routes for which a received set had to be resolved first.
    pub misses: u64,
    /// Times that a received set was resolved, all of its hops.
    pub resolutions: u64,
    /// Next hops looked up, for routes or groups or because BGP asks.
    pub lookups: u64,
    /// Groups whose cached result an event outdated.
    pub invalidations: u64,
    /// Wall time spent on resolution.
    pub resolution_seconds: f64,
}

/// A next-hop group: what protocols gave, and what it resolves to.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NextHopGroup {
    /// Its number, of the received group and of what it resolves to: the one is never shared without the other.
    pub id: u32,
    /// The VRF; the default one is `default`.
    pub vrf: String,
    /// Candidates of all prefixes that have it.
    pub routes: u32,
    /// Routes in the FIB that have it.
    pub installed_routes: u32,
    /// Whether dataplanes have it.
    pub installed: bool,
    /// Whether its gateways may resolve through routes that are not connected.
    pub allow_recursion: bool,
    /// The prefix whose group it is alone, because a gateway lies router and it must not lead to itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub only_for: Option<String>,
    /// As received, with what became of each; empty for a blackhole.
    pub received: Vec<ReceivedNextHop>,
    /// What stands in while those are unresolved, with what became of each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backup: Vec<ReceivedNextHop>,
    /// Whether it does now.
    #[serde(default)]
    pub on_backup: bool,
    /// What `fib.policy`, or its VRF's policy, makes of its routes: `denied`, `source 192.0.2.1`; absent when nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What its use hangs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracks: Option<Tracked>,
    /// What it resolves to, which is what the cache keeps; absent when nothing resolves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resolved: Option<Vec<String>>,
    /// How many look-ups deep the longest chain under it is.
    pub level: u8,
    /// The generation in which a route last had it resolved; in mode `epoch` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stamp: Option<u64>,
    /// Groups that it resolves through.
    pub depends: Vec<u32>,
    /// Groups that resolve through it.
    pub dependents: Vec<u32>,
}

/// Something that a route tracks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Tracked {
    /// `interface eth1`, `prefix 0.0.0.0/0`, `address 192.0.2.1`.
    pub what: String,
    /// Whether it holds.
    pub holds: bool,
}

/// A next hop as a protocol gave it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ReceivedNextHop {
    /// `via 192.0.2.1`, `dev eth0`, ….
    pub hop: String,
    /// Its weight.
    pub weight: u16,
    /// The route that it resolves through; absent where it needs none or has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Why it is unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
}

/// `POST /v1/nexthop-cache`: how the resolution cache is to work.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetNextHopCache {
    /// `off`, `epoch` or `dependency`.
    pub mode: String,
}

/// What that did.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
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
