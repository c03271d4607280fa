//! Routes of BGP and how many there are, in total and for each thread that holds them.

use super::PerFamilyCount;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// `GET /v1/routes`: a page.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RoutePage {
    /// Prefixes with their paths.
    pub routes: Vec<Route>,
    /// Ask again with this `cursor` for what follows; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A prefix in BGP.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Route {
    /// The prefix.
    pub prefix: String,
    /// The logical shard that owns it.
    pub logical_shard: u8,
    /// The shard thread that has the logical shard.
    pub shard: usize,
    /// Its paths, best first.
    pub paths: Vec<Path>,
    /// Whether the best path may be advertised; absent when it may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
    /// Its next-hop groups, where this router installs routes; only in the answer about a single prefix.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub groups: Option<RouteGroups>,
}

/// Why a best path is not advertised, with `fib.suppress-fib-pending`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Held {
    /// Dataplanes have not confirmed it yet.
    Waiting,
    /// The same, and the former best path stays advertised meanwhile.
    WaitingWithFormer,
    /// The FIB does not have it.
    Blocked,
}

/// The next-hop groups of a prefix in BGP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RouteGroups {
    /// That of the next hops which BGP gave.
    pub received: u32,
    /// The next hop that stands in while those are unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backup: Option<BackupNextHop>,
    /// Whether `fib.policy` keeps BGP's route out of the FIB.
    #[serde(default)]
    pub denied: bool,
    /// The source address that `fib.policy` gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<IpAddr>,
    /// What the FIB has for the prefix, BGP's or another protocol's; absent when it has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub installed: Option<InstalledGroup>,
}

/// A next hop that stands in for others.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct BackupNextHop {
    /// As received: `via 192.0.2.1`.
    pub hop: String,
    /// Why it would be unresolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
    /// Whether it stands in now.
    pub in_use: bool,
}

/// A group that the FIB has for a prefix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct InstalledGroup {
    /// Its number.
    pub group: u32,
    /// Whose route it is: `ebgp`, `static`, ….
    pub protocol: String,
    /// What it does.
    pub hops: Vec<String>,
}

/// What a path that is not the best one does for forwarding.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forwarding {
    /// Its next hop shares the traffic with the best one's.
    Multipath,
    /// Its next hop stands in when those are unresolved.
    Backup,
}

/// A path of the Adj-RIB-In.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Path {
    /// Who sent it.
    pub neighbor: IpAddr,
    /// Whether it is the best.
    pub best: bool,
    /// Why it is not.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// What its next hop does for forwarding all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forwarding: Option<Forwarding>,
    /// Its next hop.
    pub next_hop: IpAddr,
    /// Its AS path, as text.
    pub as_path: String,
    /// `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// LOCAL_PREF, when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC, when it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// Standard communities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
    /// Large communities (RFC 8092).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub large_communities: Vec<String>,
    /// Extended communities (RFC 4360).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub extended_communities: Vec<String>,
}

/// `GET /v1/routes/summary`: how many routes there are, and where.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RouteSummary {
    /// Our AS.
    pub asn: u32,
    /// Our BGP identifier.
    pub router_id: std::net::Ipv4Addr,
    /// BGP's routes in all shards together.
    pub bgp: RouteCounts,
    /// The main table, where routes are installed: the default VRF's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub main: Option<MainTable>,
    /// Those of the other VRFs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vrfs: Vec<VrfTable>,
    /// Each shard thread.
    pub shards: Vec<ShardSummary>,
}

/// How many routes BGP holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct RouteCounts {
    /// Prefixes.
    pub prefixes: PerFamilyCount,
    /// Paths to them.
    pub paths: PerFamilyCount,
    /// Prefixes with a best path in force.
    pub active: PerFamilyCount,
    /// Paths that cannot be used because their next hop cannot be reached.
    pub hidden: PerFamilyCount,
    /// Best paths that are not advertised before dataplanes confirm them, of both families.
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

/// The RIB manager's table.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MainTable {
    /// By family and protocol.
    pub protocols: Vec<ProtocolCount>,
    /// Next-hop groups.
    pub next_hop_groups: usize,
    /// Bytes of memory that the tables take, without groups.
    pub memory_bytes: u64,
    /// The resolution cache.
    pub next_hop_cache: super::NextHopCache,
    /// Whether BGP advertises only what dataplanes confirmed.
    pub suppress_fib_pending: bool,
    /// What each dataplane made of it.
    pub dataplanes: Vec<DataplaneCount>,
}

/// The RIB manager's table of a VRF beside the default one.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct VrfTable {
    /// Its name.
    pub vrf: String,
    /// By family and protocol.
    pub protocols: Vec<ProtocolCount>,
    /// Next-hop groups.
    pub next_hop_groups: usize,
    /// Bytes of memory that the tables take, without groups.
    pub memory_bytes: u64,
}

/// Routes of one family and protocol in a table.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ProtocolCount {
    /// `ipv4` or `ipv6`.
    pub family: String,
    /// `connected`, `static`, `ebgp`, ….
    pub protocol: String,
    /// Routes.
    pub routes: u64,
    /// Of these, selected and given to the dataplanes.
    pub active: u64,
    /// Of these, selected and kept from the dataplanes by `fib.policy`.
    #[serde(default)]
    pub denied: u64,
}

/// How a dataplane stands.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DataplaneCount {
    /// Which.
    pub name: String,
    /// Batches sent and not yet confirmed.
    pub outstanding_batches: u64,
    /// Prefixes that it could not install.
    pub failed: u64,
    /// While it is behind the others: prefixes that changed and that it is still to be told of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
}

/// What a shard thread holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    /// Bytes of memory: tables, paths and attribute sets.
    pub memory_bytes: u64,
}

/// `GET /v1/routes/sharding`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Sharding {
    /// How the threads are set up, in words.
    pub mode: String,
    /// The shard threads.
    pub shards: Vec<ShardLoad>,
}

/// A shard thread and its share of the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ShardLoad {
    /// What it holds.
    #[serde(flatten)]
    pub summary: ShardSummary,
    /// Its part of all paths, from 0 to 1.
    pub load_share: f64,
    /// CPU seconds of its thread; absent where the thread has other work too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<f64>,
    /// The queue before it; absent where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inbox: Option<super::Ring>,
    /// Its logical shards.
    pub logical_shards: Vec<LogicalShardLoad>,
}

/// A logical shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct LogicalShardLoad {
    /// Its number, 0 to 63.
    pub logical_shard: u8,
    /// Its prefixes.
    pub prefixes: PerFamilyCount,
}
