//! BGP routes and their numbers, in total and by thread.

use super::PerFamilyCount;
use super::ZonedAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `GET /v1/routes`: a page.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoutePage {
    /// Prefixes with their paths.
    pub routes: Vec<Route>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A prefix in BGP.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Route {
    /// The prefix.
    pub prefix: String,
    /// Its logical shard.
    pub logical_shard: u8,
    /// The shard thread that owns it.
    pub shard: usize,
    /// Its paths, best first.
    pub paths: Vec<Path>,
    /// Why the best path is not advertised, if so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// The aggregates for which its best path is not advertised.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub suppressed_by: Vec<String>,
    /// How the next hops of its paths resolve, with `detail`, if routes are installed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub resolution: Vec<super::TrackedNextHop>,
    /// Its next-hop groups, if routes are installed; only in the reply about a single prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<RouteGroups>,
}

/// Why a best path is not advertised, with `fib.suppress-fib-pending`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// It waits for confirmation by dataplanes.
    Waiting,
    /// It waits, and the former best path stays advertised.
    WaitingWithFormer,
    /// The FIB does not have it.
    Blocked,
}

/// The next-hop groups of a prefix in BGP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RouteGroups {
    /// The group of the next hops from BGP.
    pub received: u32,
    /// The backup next hop.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupNextHop>,
    /// Whether `fib.policy` denies the route of BGP.
    #[serde(default)]
    pub denied: bool,
    /// The source address from `fib.policy`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// The installed route of the prefix, of any protocol; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<InstalledGroup>,
}

/// A backup next hop.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BackupNextHop {
    /// As received: `via 192.0.2.1`.
    pub hop: String,
    /// Why it is unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
    /// Whether it is in use.
    pub in_use: bool,
}

/// The installed group of a prefix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct InstalledGroup {
    /// Its number.
    pub group: u32,
    /// The protocol: `ebgp`, `static`, ….
    pub protocol: String,
    /// Its content.
    pub hops: Vec<String>,
}

/// The part in forwarding of a path that is not the best.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// Its next hop shares traffic with that of the best path.
    Multipath,
    /// Its next hop is the backup.
    Backup,
}

/// A path of the Adj-RIB-In.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Path {
    /// The peer that sent it; 0.0.0.0 for a path that this router originates.
    pub neighbor: ZonedAddress,
    /// Its AS; absent for a path that this router originates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbor_asn: Option<u32>,
    /// Its BGP identifier; absent for a path that this router originates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbor_router_id: Option<Ipv4Addr>,
    /// The kind of its session, such as `external` or `internal`; absent for a path that this router originates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbor_kind: Option<String>,
    /// Its path identifier, in a session that has them (RFC 7911).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_id: Option<u32>,
    /// Seconds since it last changed: exact for three hours, later up to 512 too many. Absent while it is the only
    /// path and waits for confirmation by dataplanes; counted from the confirmation then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// The source of a path that this router originates: `network`, `connected`, `static`, `kernel`, `API`
    /// or `aggregate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originated: Option<String>,
    /// Whether its neighbour restarts, and has not announced it again (RFC 4724).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub stale: bool,
    /// Whether it is the best.
    pub best: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Its part in forwarding.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Forwarding>,
    /// Its next hop; unspecified for a path that this router originates.
    pub next_hop: ZonedAddress,
    /// The link-local next hop beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_local: Option<Ipv6Addr>,
    /// The interior cost to its next hop; absent if that is not reachable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub igp_cost: Option<u32>,
    /// Its AS path, as text.
    pub as_path: String,
    /// `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// The validation state with the present RPKI data, with origin validation: `valid`, `invalid` or `not-found`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<String>,
    /// LOCAL_PREF, when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC, when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// The accumulated IGP metric (RFC 7311), when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aigp: Option<u64>,
    /// Standard communities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
    /// Large communities (RFC 8092).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub large_communities: Vec<String>,
    /// Extended communities (RFC 4360).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_communities: Vec<String>,
    /// AGGREGATOR: `65001 192.0.2.1`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aggregator: Option<String>,
    /// ORIGINATOR_ID (RFC 4456).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originator_id: Option<Ipv4Addr>,
    /// CLUSTER_LIST (RFC 4456).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cluster_list: Vec<Ipv4Addr>,
    /// ONLY_TO_CUSTOMER (RFC 9234).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_to_customer: Option<u32>,
    /// The codes of further attributes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_attributes: Vec<u8>,
}

/// `GET /v1/routes/summary`: how many routes there are, and where.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RouteSummary {
    /// The local AS.
    pub asn: u32,
    /// The local BGP identifier.
    pub router_id: Ipv4Addr,
    /// The BGP routes of all shards.
    pub bgp: RouteCounts,
    /// The table of the default VRF, if routes are installed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub main: Option<MainTable>,
    /// The tables of the other VRFs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrfs: Vec<VrfTable>,
    /// Each shard thread.
    pub shards: Vec<ShardSummary>,
}

/// Counts of BGP routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RouteCounts {
    /// Prefixes.
    pub prefixes: PerFamilyCount,
    /// Paths to them.
    pub paths: PerFamilyCount,
    /// Prefixes with a best path in force.
    pub active: PerFamilyCount,
    /// Paths with an unreachable next hop.
    pub hidden: PerFamilyCount,
    /// Best paths that wait for confirmation by dataplanes, of both families.
    #[serde(default)]
    pub waiting: u64,
    /// Best paths that are not advertised because the FIB does not have them, of both families.
    #[serde(default)]
    pub blocked: u64,
}

impl std::ops::AddAssign for RouteCounts {
    fn add_assign(&mut self, more: RouteCounts) {
        self.prefixes += more.prefixes;
        self.paths += more.paths;
        self.active += more.active;
        self.hidden += more.hidden;
        self.waiting += more.waiting;
        self.blocked += more.blocked;
    }
}

/// The table of the RIB manager.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MainTable {
    /// By family and protocol.
    pub protocols: Vec<ProtocolCount>,
    /// Next-hop groups.
    pub next_hop_groups: usize,
    /// Bytes of the tables, without groups.
    pub memory_bytes: u64,
    /// The resolution cache.
    pub next_hop_cache: super::NextHopCache,
    /// Whether FIB suppression is on.
    pub suppress_fib_pending: bool,
    /// Its state in each dataplane.
    pub dataplanes: Vec<DataplaneCount>,
}

/// The table of another VRF.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct VrfTable {
    /// Its name.
    pub vrf: String,
    /// By family and protocol.
    pub protocols: Vec<ProtocolCount>,
    /// Next-hop groups.
    pub next_hop_groups: usize,
    /// Bytes of the tables, without groups.
    pub memory_bytes: u64,
}

/// Routes of one family and protocol in a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ProtocolCount {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// `connected`, `static`, `ebgp`, ….
    pub protocol: String,
    /// Routes.
    pub routes: u64,
    /// Of these, selected and sent to dataplanes.
    pub active: u64,
    /// Of these, selected and denied by `fib.policy`.
    #[serde(default)]
    pub denied: u64,
}

/// The state of a dataplane.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DataplaneCount {
    /// Its name.
    pub name: String,
    /// Batches sent and not yet confirmed.
    pub outstanding_batches: u64,
    /// Prefixes that it could not install.
    pub failed: u64,
    /// While it lags: changed prefixes that were not sent to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lagging_by: Option<u64>,
}

/// The contents of a shard thread.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShardSummary {
    /// Its number.
    pub shard: usize,
    /// Its thread.
    pub thread: String,
    /// Its routes.
    pub routes: RouteCounts,
    /// Distinct attribute sets in use.
    pub attribute_sets: u64,
    /// Next hops in use.
    pub next_hops: u64,
    /// Announced paths that were dropped because their prefix had too many: 4,096 of one session, or 65,535.
    #[serde(default)]
    pub surplus_paths: u64,
    /// Bytes of memory: tables, paths and attribute sets.
    pub memory_bytes: u64,
}

/// `GET /v1/routes/sharding`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Sharding {
    /// The threads as text.
    pub mode: String,
    /// The shard threads.
    pub shards: Vec<ShardLoad>,
}

/// A shard thread and its share of the work.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ShardLoad {
    /// Its contents.
    #[serde(flatten)]
    pub summary: ShardSummary,
    /// Its part of all paths, from 0 to 1.
    pub load_share: f64,
    /// CPU seconds of its thread; absent if the thread hosts other stages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// Its input queue; absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<super::Ring>,
    /// Its logical shards.
    pub logical_shards: Vec<LogicalShardLoad>,
}

/// A logical shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogicalShardLoad {
    /// Its number, 0 to 63.
    pub logical_shard: u8,
    /// Its prefixes.
    pub prefixes: PerFamilyCount,
}
