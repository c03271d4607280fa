//! The shape of the file, as serde reads it. What is absent stays absent here; defaults are given in `check`.

use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    pub(super) router: Router,
    #[serde(default)]
    pub(super) bgp: Option<Bgp>,
    #[serde(default)]
    pub(super) bfd: BfdDefaults,
    #[serde(default)]
    pub(super) policy: Policy,
    #[serde(default)]
    pub(super) fib: Option<Fib>,
    #[serde(default)]
    pub(super) sonic: Sonic,
    #[serde(default)]
    pub(super) api: Api,
    #[serde(default)]
    pub(super) interface: Vec<Interface>,
    #[serde(default, rename = "static")]
    pub(super) statics: Vec<Static>,
    #[serde(default)]
    pub(super) vrf: BTreeMap<String, Vrf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Router {
    pub(super) asn: u32,
    pub(super) router_id: Ipv4Addr,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Bgp {
    pub(super) listen: Option<Vec<SocketAddr>>,
    #[serde(default)]
    pub(super) shards: Count,
    #[serde(default)]
    pub(super) update_threads: Count,
    pub(super) cpus: Option<String>,
    pub(super) numa_node: Option<u16>,
    pub(super) cluster_id: Option<Ipv4Addr>,
    #[serde(default)]
    pub(super) always_compare_med: bool,
    pub(super) deterministic_med: Option<bool>,
    #[serde(default)]
    pub(super) med_missing_as_worst: bool,
    #[serde(default)]
    pub(super) prefer_oldest: bool,
    pub(super) multipath: Option<u16>,
    #[serde(default)]
    pub(super) multipath_relax: bool,
    #[serde(default)]
    pub(super) link_bandwidth_ext_community: bool,
    #[serde(default)]
    pub(super) backup_path: bool,
    #[serde(default)]
    pub(super) group: BTreeMap<String, Group>,
}

/// `"auto"`, `"off"` or a number.
#[derive(Debug, Default, Deserialize)]
#[serde(untagged, expecting = "this is no number of threads; write \"auto\", \"off\" or 1 to 64")]
pub(super) enum Count {
    #[default]
    Auto,
    Number(u16),
    Word(String),
}

/// What groups and single neighbours can both set; a neighbour's own value wins over its group's.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Group {
    #[serde(rename = "type")]
    pub(super) kind: Option<GroupKind>,
    pub(super) peer_asn: Option<u32>,
    #[serde(default)]
    pub(super) route_reflector_client: bool,
    pub(super) passive: Option<bool>,
    pub(super) families: Option<Vec<FamilyName>>,
    pub(super) import: Option<Vec<String>>,
    pub(super) export: Option<Vec<String>>,
    pub(super) hold_time: Option<u16>,
    pub(super) connect_retry: Option<u16>,
    pub(super) local_address: Option<IpAddr>,
    pub(super) port: Option<u16>,
    pub(super) next_hop_self: Option<bool>,
    pub(super) multihop: Option<u8>,
    pub(super) password: Option<String>,
    pub(super) bfd: Option<Bfd>,
    #[serde(default)]
    pub(super) neighbors: Vec<IpAddr>,
    #[serde(default)]
    pub(super) neighbor: Vec<Neighbor>,
    #[serde(default)]
    pub(super) dynamic_neighbors: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Neighbor {
    pub(super) address: IpAddr,
    pub(super) description: Option<String>,
    pub(super) peer_asn: Option<u32>,
    pub(super) passive: Option<bool>,
    pub(super) families: Option<Vec<FamilyName>>,
    pub(super) import: Option<Vec<String>>,
    pub(super) export: Option<Vec<String>>,
    pub(super) hold_time: Option<u16>,
    pub(super) connect_retry: Option<u16>,
    pub(super) local_address: Option<IpAddr>,
    pub(super) port: Option<u16>,
    pub(super) next_hop_self: Option<bool>,
    pub(super) multihop: Option<u8>,
    pub(super) password: Option<String>,
    pub(super) bfd: Option<Bfd>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct BfdDefaults {
    pub(super) listen: Option<Vec<IpAddr>>,
    pub(super) min_tx: Option<u32>,
    pub(super) min_rx: Option<u32>,
    pub(super) multiplier: Option<u8>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "this is not understood; write true, false, or a table of min-tx, min-rx (milliseconds), multiplier, \
                 multihop, min-ttl and strict, such as { min-tx = 50, min-rx = 50 }"
)]
pub(super) enum Bfd {
    Switch(bool),
    Table(BfdTable),
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct BfdTable {
    pub(super) min_tx: Option<u32>,
    pub(super) min_rx: Option<u32>,
    pub(super) multiplier: Option<u8>,
    pub(super) multihop: Option<bool>,
    pub(super) min_ttl: Option<u8>,
    pub(super) strict: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GroupKind {
    Internal,
    External,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
pub(super) enum FamilyName {
    #[serde(rename = "ipv4-unicast")]
    Ipv4Unicast,
    #[serde(rename = "ipv6-unicast")]
    Ipv6Unicast,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Fib {
    #[serde(default)]
    pub(super) kernel: Kernel,
    #[serde(default)]
    pub(super) fpm: Vec<SocketAddr>,
    #[serde(default)]
    pub(super) fpm_next_hop_groups: bool,
    #[serde(default)]
    pub(super) virtual_asic: VirtualAsic,
    #[serde(default)]
    pub(super) asic: BTreeMap<String, VirtualAsicTable>,
    pub(super) resolve_via_default: Option<bool>,
    pub(super) nexthop_cache: Option<String>,
    #[serde(default)]
    pub(super) suppress_fib_pending: bool,
    pub(super) max_ecmp: Option<u16>,
    #[serde(default)]
    pub(super) underlay_weights: bool,
    #[serde(default)]
    pub(super) policy: FibPolicy,
}

/// Lists of policies by who announced the routes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FibPolicy {
    pub(super) connected: Option<Vec<String>>,
    #[serde(rename = "static")]
    pub(super) statics: Option<Vec<String>>,
    pub(super) kernel: Option<Vec<String>>,
    pub(super) bgp: Option<Vec<String>>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "this is not understood; write true, false, or a table of settings, such as { table = 254 }"
)]
pub(super) enum Kernel {
    Switch(bool),
    Table(KernelTable),
}

impl Default for Kernel {
    fn default() -> Self {
        Kernel::Switch(false)
    }
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KernelTable {
    pub(super) table: Option<u32>,
    pub(super) protocol: Option<u8>,
    pub(super) metric: Option<u32>,
    #[serde(default)]
    pub(super) compat_mode: bool,
    pub(super) vrf: Option<String>,
    #[serde(default)]
    pub(super) source: Vec<IpAddr>,
    pub(super) import: Option<bool>,
    pub(super) receive_buffer: Option<u32>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "this is not understood; write true, false, or { lab = true }")]
pub(super) enum VirtualAsic {
    Switch(bool),
    Table(VirtualAsicTable),
}

impl Default for VirtualAsic {
    fn default() -> Self {
        VirtualAsic::Switch(false)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct VirtualAsicTable {
    #[serde(default)]
    pub(super) lab: bool,
    #[serde(default)]
    pub(super) chip: BTreeMap<String, ChipValue>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged, expecting = "this is no number; write 1000, or 0.01")]
pub(super) enum ChipValue {
    Whole(i64),
    Part(f64),
}

impl fmt::Display for ChipValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChipValue::Whole(number) => number.fmt(f),
            ChipValue::Part(number) => number.fmt(f),
        }
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Sonic {
    pub(super) north: Option<String>,
    pub(super) south: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Api {
    pub(super) socket: Option<PathBuf>,
    pub(super) http: Option<SocketAddr>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Interface {
    pub(super) name: String,
    #[serde(default)]
    pub(super) addresses: Vec<String>,
    #[serde(default)]
    pub(super) neighbors: Vec<InterfaceNeighbor>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct InterfaceNeighbor {
    pub(super) address: IpAddr,
    pub(super) mac: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Static {
    pub(super) prefix: String,
    #[serde(default)]
    pub(super) next_hop: Vec<IpAddr>,
    pub(super) interface: Option<String>,
    #[serde(default)]
    pub(super) blackhole: bool,
    pub(super) distance: Option<u8>,
    #[serde(default)]
    pub(super) backup: Vec<IpAddr>,
    pub(super) bfd: Option<Bfd>,
    pub(super) track: Option<Track>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Vrf {
    pub(super) table: Option<u32>,
    pub(super) interfaces: Option<Vec<String>>,
    #[serde(default, rename = "static")]
    pub(super) statics: Vec<Static>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Track {
    pub(super) interface: Option<String>,
    pub(super) prefix: Option<String>,
    pub(super) address: Option<IpAddr>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Policy {
    #[serde(default)]
    pub(super) prefix_set: BTreeMap<String, PrefixSet>,
    #[serde(default)]
    pub(super) neighbor_set: BTreeMap<String, NeighborSet>,
    #[serde(default)]
    pub(super) community_set: BTreeMap<String, CommunitySet>,
    #[serde(default)]
    pub(super) as_path_set: BTreeMap<String, AsPathSet>,
    #[serde(default)]
    pub(super) definition: BTreeMap<String, Definition>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PrefixSet {
    pub(super) prefixes: Option<Vec<String>>,
    pub(super) file: Option<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NeighborSet {
    pub(super) addresses: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CommunitySet {
    pub(super) members: Vec<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AsPathSet {
    #[serde(default)]
    pub(super) origin: Vec<Amount>,
    #[serde(default)]
    pub(super) neighbor: Vec<Amount>,
    #[serde(default)]
    pub(super) contains: Vec<Amount>,
    #[serde(default)]
    pub(super) regex: Vec<String>,
}

/// A number, or a range as text.
#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "this is no number or range; write one such as 65001, \"64512-65534\" or \"5-\" (5 and more)"
)]
pub(super) enum Amount {
    Number(u32),
    Range(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Definition {
    #[serde(default)]
    pub(super) statement: Vec<Statement>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Statement {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) conditions: Conditions,
    #[serde(default)]
    pub(super) actions: Actions,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Conditions {
    pub(super) match_prefix_set: Option<MatchSet>,
    pub(super) match_neighbor_set: Option<MatchSet>,
    pub(super) match_community_set: Option<MatchSet>,
    pub(super) match_as_path_set: Option<MatchSet>,
    pub(super) next_hop_in: Option<Vec<String>>,
    pub(super) afi_safi_in: Option<Vec<FamilyName>>,
    pub(super) origin_eq: Option<OriginName>,
    pub(super) route_type: Option<GroupKind>,
    pub(super) as_path_length: Option<Amount>,
    pub(super) med: Option<Amount>,
    pub(super) local_pref: Option<Amount>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "this is not understood; write a set's name, or { set = \"NAME\", match-set-options = \"invert\" }, \
                 where the option is any, all or invert"
)]
pub(super) enum MatchSet {
    Name(String),
    Table(MatchTable),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MatchTable {
    pub(super) set: String,
    pub(super) match_set_options: Option<MatchOptions>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MatchOptions {
    Any,
    All,
    Invert,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OriginName {
    Igp,
    Egp,
    Incomplete,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Actions {
    pub(super) set_route_origin: Option<OriginName>,
    pub(super) set_local_pref: Option<u32>,
    pub(super) set_med: Option<SetMed>,
    pub(super) set_next_hop: Option<String>,
    pub(super) set_as_path_prepend: Option<Prepend>,
    #[serde(default)]
    pub(super) set_community: SetCommunity,
    pub(super) set_source: Option<SetSource>,
    pub(super) policy_result: Option<PolicyResult>,
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "this is no source address; write one, or a list of at most one of each family"
)]
pub(super) enum SetSource {
    One(IpAddr),
    Some(Vec<IpAddr>),
}

#[derive(Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "this is no MED; write a number, or \"+10\" or \"-10\" for so much more or less"
)]
pub(super) enum SetMed {
    Number(u32),
    Change(String),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Prepend {
    pub(super) asn: Option<u32>,
    pub(super) repeat_n: Option<u8>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SetCommunity {
    pub(super) replace: Option<Vec<String>>,
    #[serde(default)]
    pub(super) remove: Vec<String>,
    pub(super) remove_set: Option<String>,
    #[serde(default)]
    pub(super) add: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PolicyResult {
    Accept,
    Reject,
    NextStatement,
    NextPolicy,
}
