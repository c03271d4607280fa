//! The shape of the file, as serde reads it. What is absent stays absent here; defaults are given in `check`.

use super::or_table::or_table;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct File {
    /// Who this router is.
    pub(super) router: Router,
    /// BGP. Without this table no BGP runs.
    #[serde(default)]
    pub(super) bgp: Option<Bgp>,
    /// What all BFD sessions have that say nothing else.
    #[serde(default)]
    pub(super) bfd: BfdDefaults,
    /// What routes are taken, sent and installed, and how they are changed; the names are OpenConfig's.
    #[serde(default)]
    pub(super) policy: Policy,
    /// Where routes are installed. Without this table nothing is, and every next hop counts as reachable: a route reflector.
    #[serde(default)]
    pub(super) fib: Option<Fib>,
    /// What carries rows between the parts of the SONiC path in this process.
    #[serde(default)]
    pub(super) sonic: Sonic,
    /// Where questions are answered.
    #[serde(default)]
    pub(super) api: Api,
    /// Interfaces that no kernel has: the ports of the virtual ASIC.
    #[serde(default)]
    pub(super) interface: Vec<Interface>,
    /// Static routes of the default VRF.
    #[serde(default, rename = "static")]
    pub(super) statics: Vec<Static>,
    /// VRFs, by name.
    #[serde(default)]
    pub(super) vrf: BTreeMap<String, Vrf>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Router {
    /// Our AS number.
    pub(super) asn: u32,
    /// Our BGP identifier, in the form of an IPv4 address.
    pub(super) router_id: Ipv4Addr,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Bgp {
    /// Addresses and ports on which sessions are accepted; default ["[::]:179"], [] for none.
    pub(super) listen: Option<Vec<SocketAddr>>,
    /// Shard threads: 1 to 64, "auto" for as many as cores, "off" for none of their own.
    #[serde(default)]
    pub(super) shards: Count,
    /// Egress worker threads: 1 to 64, "auto" for as many as cores, "off" for none of their own.
    #[serde(default)]
    pub(super) update_threads: Count,
    /// CPUs that threads are pinned to, such as "0-3,8"; "auto" for all that the process may use.
    pub(super) cpus: Option<String>,
    /// The same with the CPUs of a NUMA node.
    pub(super) numa_node: Option<u16>,
    /// Cluster id of the route reflector (RFC 4456); default: the router id.
    pub(super) cluster_id: Option<Ipv4Addr>,
    /// Compare MED also between routes of different neighbouring ASes.
    #[serde(default)]
    pub(super) always_compare_med: bool,
    /// Group routes by neighbouring AS before MED is compared; default true.
    pub(super) deterministic_med: Option<bool>,
    /// A route without MED ranks as if it had the largest.
    #[serde(default)]
    pub(super) med_missing_as_worst: bool,
    /// Between external paths, prefer the oldest before the router id decides.
    #[serde(default)]
    pub(super) prefer_oldest: bool,
    /// The most next hops that a prefix is forwarded by, 1 to 256; default 1.
    pub(super) multipath: Option<u16>,
    /// Equal paths may come from different neighbouring ASes.
    #[serde(default)]
    pub(super) multipath_relax: bool,
    /// Equal paths share the traffic by their link bandwidths (RFC 10005).
    #[serde(default)]
    pub(super) link_bandwidth_ext_community: bool,
    /// The best path by another next hop is installed beforehand and stands in.
    #[serde(default)]
    pub(super) backup_path: bool,
    /// The session of an external single-hop neighbour ends with the interface to it; default true.
    pub(super) fast_external_fallover: Option<bool>,
    /// Prefixes that are refused from every neighbour, such as "127.0.0.0/8 8..32"; [] for none.
    pub(super) martians: Option<Vec<String>>,
    /// Groups of neighbours, by name.
    #[serde(default)]
    pub(super) group: BTreeMap<String, Group>,
}

/// `"auto"`, `"off"` or a number.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "this is no number of threads; write \"auto\", \"off\" or 1 to 64")]
pub(super) enum Count {
    #[default]
    Auto,
    Number(u16),
    Word(String),
}

/// What groups and single neighbours can both set; a neighbour's own value wins over its group's.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Group {
    /// Whether its neighbours are in our AS.
    #[serde(rename = "type")]
    pub(super) kind: Option<GroupKind>,
    /// AS of the neighbours; required for external ones that are not dynamic.
    pub(super) peer_asn: Option<u32>,
    /// These internal peers are clients of our reflector.
    #[serde(default)]
    pub(super) route_reflector_client: bool,
    /// Wait for the peer to connect.
    pub(super) passive: Option<bool>,
    /// Address families; default both.
    pub(super) families: Option<Vec<FamilyName>>,
    /// Policies for routes that come, tried in order.
    pub(super) import: Option<Vec<String>>,
    /// Policies for routes that are sent, tried in order.
    pub(super) export: Option<Vec<String>>,
    /// Seconds to offer: 0 for none, or 3 and more; default 90.
    pub(super) hold_time: Option<u16>,
    /// Seconds between attempts to connect; default 5.
    pub(super) connect_retry: Option<u16>,
    /// Our address of the sessions that we open.
    pub(super) local_address: Option<IpAddr>,
    /// The peer's TCP port; default 179.
    pub(super) port: Option<u16>,
    /// Towards internal peers, our own address is the next hop of routes from external ones.
    pub(super) next_hop_self: Option<bool>,
    /// TTL of an external session that is not on one link.
    pub(super) multihop: Option<u8>,
    /// TCP-MD5 key (RFC 2385).
    pub(super) password: Option<String>,
    /// Watch the neighbours with BFD.
    pub(super) bfd: Option<Bfd>,
    /// Their sessions end with the interface to them; default: what the [bgp] table says.
    pub(super) fast_external_fallover: Option<bool>,
    /// Refuse paths that do not begin with the neighbour's AS; default true for external neighbours.
    pub(super) enforce_first_as: Option<bool>,
    /// Attributes that are discarded, by name or code.
    pub(super) discard_attributes: Option<Vec<AttributeName>>,
    /// Attributes whose routes are treated as withdrawn, by name or code.
    pub(super) treat_as_withdraw: Option<Vec<AttributeName>>,
    /// Addresses of neighbours without settings of their own.
    #[serde(default)]
    pub(super) neighbors: Vec<IpAddr>,
    /// Neighbours with settings of their own.
    #[serde(default)]
    pub(super) neighbor: Vec<Neighbor>,
    /// Ranges from which any peer may come.
    #[serde(default)]
    pub(super) dynamic_neighbors: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Neighbor {
    /// Its address.
    pub(super) address: IpAddr,
    /// For people.
    pub(super) description: Option<String>,
    /// Its AS, where it is not the group's.
    pub(super) peer_asn: Option<u32>,
    /// Wait for the peer to connect.
    pub(super) passive: Option<bool>,
    /// Address families; default both.
    pub(super) families: Option<Vec<FamilyName>>,
    /// Policies for routes that come, tried in order.
    pub(super) import: Option<Vec<String>>,
    /// Policies for routes that are sent, tried in order.
    pub(super) export: Option<Vec<String>>,
    /// Seconds to offer: 0 for none, or 3 and more; default 90.
    pub(super) hold_time: Option<u16>,
    /// Seconds between attempts to connect; default 5.
    pub(super) connect_retry: Option<u16>,
    /// Our address of the sessions that we open.
    pub(super) local_address: Option<IpAddr>,
    /// The peer's TCP port; default 179.
    pub(super) port: Option<u16>,
    /// Our own address is the next hop of routes from external peers.
    pub(super) next_hop_self: Option<bool>,
    /// TTL of an external session that is not on one link.
    pub(super) multihop: Option<u8>,
    /// TCP-MD5 key (RFC 2385).
    pub(super) password: Option<String>,
    /// Watch the neighbour with BFD.
    pub(super) bfd: Option<Bfd>,
    /// Its session ends with the interface to it; default: what the group says.
    pub(super) fast_external_fallover: Option<bool>,
    /// Refuse paths that do not begin with the neighbour's AS; default true for external neighbours.
    pub(super) enforce_first_as: Option<bool>,
    /// Attributes that are discarded, by name or code.
    pub(super) discard_attributes: Option<Vec<AttributeName>>,
    /// Attributes whose routes are treated as withdrawn, by name or code.
    pub(super) treat_as_withdraw: Option<Vec<AttributeName>>,
}

/// A path attribute, by its name or its code.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "this is no path attribute; write a code from 1 to 255, or a name such as \"large-communities\""
)]
pub(super) enum AttributeName {
    Code(u8),
    Name(String),
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct BfdDefaults {
    /// Addresses of ours that packets are received on; default ["0.0.0.0", "::"].
    pub(super) listen: Option<Vec<IpAddr>>,
    /// Milliseconds between packets that we would send, 10 to 60,000; default 300.
    pub(super) min_tx: Option<u32>,
    /// Milliseconds between packets that we can receive, 10 to 60,000; default 300.
    pub(super) min_rx: Option<u32>,
    /// How many of our packets may be missing, 1 to 255; default 3.
    pub(super) multiplier: Option<u8>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum Bfd {
    Switch(bool),
    Table(BfdTable),
}

or_table!(
    Bfd,
    visit_bool,
    bool,
    Switch,
    "true, false, or a table of min-tx, min-rx (milliseconds), multiplier, multihop, min-ttl and strict, such as \
     { min-tx = 50, min-rx = 50 }"
);

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct BfdTable {
    /// Milliseconds between packets that we would send, 10 to 60,000.
    pub(super) min_tx: Option<u32>,
    /// Milliseconds between packets that we can receive, 10 to 60,000.
    pub(super) min_rx: Option<u32>,
    /// How many of our packets may be missing, 1 to 255.
    pub(super) multiplier: Option<u8>,
    /// The neighbour is not on a link of ours (RFC 5883).
    pub(super) multihop: Option<bool>,
    /// With multihop: the least TTL with which packets may arrive.
    pub(super) min_ttl: Option<u8>,
    /// The session must have been up first.
    pub(super) strict: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GroupKind {
    Internal,
    External,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
pub(super) enum FamilyName {
    #[serde(rename = "ipv4-unicast")]
    Ipv4Unicast,
    #[serde(rename = "ipv6-unicast")]
    Ipv6Unicast,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Fib {
    /// Install into the Linux kernel.
    #[serde(default)]
    pub(super) kernel: Kernel,
    /// FPM servers, such as SONiC's fpmsyncd, by address and port.
    #[serde(default)]
    pub(super) fpm: Vec<SocketAddr>,
    /// Send next-hop groups as objects over FPM.
    #[serde(default)]
    pub(super) fpm_next_hop_groups: bool,
    /// SONiC's path in this process, down to a virtual switch.
    #[serde(default)]
    pub(super) virtual_asic: VirtualAsic,
    /// Several virtual switches, by name.
    #[serde(default)]
    pub(super) asic: BTreeMap<String, VirtualAsicTable>,
    /// Whether a next hop may resolve through the default route; default true.
    pub(super) resolve_via_default: Option<bool>,
    /// How routes come by what their next hops resolve to: "dependency" (default), "epoch" or "off".
    pub(super) nexthop_cache: Option<String>,
    /// Advertise a best path only when every dataplane has confirmed it.
    #[serde(default)]
    pub(super) suppress_fib_pending: bool,
    /// The most next hops that a route has in the FIB, 1 to 1024; default 512.
    pub(super) max_ecmp: Option<u16>,
    /// A way out through another route has that route's weight for it.
    #[serde(default)]
    pub(super) underlay_weights: bool,
    /// What becomes of what is installed when the router stops: "keep" (default) or "remove".
    #[serde(default)]
    pub(super) on_stop: OnStop,
    /// What is installed, and with which source address.
    #[serde(default)]
    pub(super) policy: FibPolicy,
}

/// What a clean stop does to what dataplanes installed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OnStop {
    /// It stays, and packets are forwarded until the next start, which adopts it.
    #[default]
    Keep,
    /// It is removed.
    Remove,
}

/// Lists of policies by who announced the routes.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct FibPolicy {
    /// Policies for connected routes.
    pub(super) connected: Option<Vec<String>>,
    /// Policies for static routes.
    #[serde(rename = "static")]
    pub(super) statics: Option<Vec<String>>,
    /// Policies for routes that others put into the kernel.
    pub(super) kernel: Option<Vec<String>>,
    /// Policies for BGP's routes.
    pub(super) bgp: Option<Vec<String>>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum Kernel {
    Switch(bool),
    Table(KernelTable),
}

or_table!(Kernel, visit_bool, bool, Switch, "true, false, or a table of settings, such as { table = 254 }");

impl Default for Kernel {
    fn default() -> Self {
        Kernel::Switch(false)
    }
}

#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct KernelTable {
    /// The routing table; default 254, main.
    pub(super) table: Option<u32>,
    /// The number that marks our routes and next-hop objects; default 186, bgp.
    pub(super) protocol: Option<u8>,
    /// The metric of our routes; default 20.
    pub(super) metric: Option<u32>,
    /// Leave net.ipv4.nexthop_compat_mode alone.
    #[serde(default)]
    pub(super) compat_mode: bool,
    /// A VRF device, whose table is taken instead.
    pub(super) vrf: Option<String>,
    /// The source address of packets of this machine over our routes, at most one of each family.
    #[serde(default)]
    pub(super) source: Vec<IpAddr>,
    /// Learn the routes that others put into the table; default true.
    pub(super) import: Option<bool>,
    /// Bytes of the kernel's news about routes that may wait to be read; default 8388608.
    pub(super) receive_buffer: Option<u32>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum VirtualAsic {
    Switch(bool),
    Table(VirtualAsicTable),
}

or_table!(VirtualAsic, visit_bool, bool, Switch, "true, false, or { lab = true }");

impl Default for VirtualAsic {
    fn default() -> Self {
        VirtualAsic::Switch(false)
    }
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct VirtualAsicTable {
    /// Make the neighbours that next hops need.
    #[serde(default)]
    pub(super) lab: bool,
    /// How the switch behaves, such as rate = 20000.
    #[serde(default)]
    pub(super) chip: BTreeMap<String, ChipValue>,
}

#[derive(Debug, Deserialize, JsonSchema)]
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

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Sonic {
    /// Between fpmsyncd's and orchagent's part: "memory".
    pub(super) north: Option<String>,
    /// Between orchagent's and syncd's part: "memory".
    pub(super) south: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Api {
    /// The Unix socket that `ribtide show` uses; default /run/ribtide/ribtide.sock.
    pub(super) socket: Option<PathBuf>,
    /// Permissions of the Unix socket in octal digits, such as "0660"; default "0600", with socket-group "0660".
    pub(super) socket_mode: Option<String>,
    /// The group that the Unix socket belongs to.
    pub(super) socket_group: Option<String>,
    /// An address for the same API over TCP: reads and metrics, and with token-file changes too.
    pub(super) http: Option<SocketAddr>,
    /// A file with the token that a client on TCP must send to change something.
    pub(super) token_file: Option<PathBuf>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Interface {
    /// Such as Ethernet0.
    pub(super) name: String,
    /// The router's addresses on it with their subnets' lengths.
    #[serde(default)]
    pub(super) addresses: Vec<String>,
    /// Known neighbours.
    #[serde(default)]
    pub(super) neighbors: Vec<InterfaceNeighbor>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct InterfaceNeighbor {
    /// Its address.
    pub(super) address: IpAddr,
    /// Its MAC address.
    pub(super) mac: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Static {
    /// Where it leads.
    pub(super) prefix: String,
    /// Gateways, of either family; more than one share the traffic.
    #[serde(default)]
    pub(super) next_hop: Vec<IpAddr>,
    /// The interface that the gateways, or the prefix, are on.
    pub(super) interface: Option<String>,
    /// Discard.
    #[serde(default)]
    pub(super) blackhole: bool,
    /// Administrative distance, 1 to 254; default 1.
    pub(super) distance: Option<u8>,
    /// Gateways that stand in while none of next-hop resolves.
    #[serde(default)]
    pub(super) backup: Vec<IpAddr>,
    /// Watch the gateways with BFD.
    pub(super) bfd: Option<Bfd>,
    /// The route is used only while this holds.
    pub(super) track: Option<Track>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Vrf {
    /// The kernel's table for its routes.
    pub(super) table: Option<u32>,
    /// The interfaces that are in it.
    pub(super) interfaces: Option<Vec<String>>,
    /// The source address of packets of this machine over its routes, at most one of each family.
    #[serde(default)]
    pub(super) source: Vec<IpAddr>,
    /// What becomes of its routes on their way to the FIB.
    #[serde(default)]
    pub(super) policy: FibPolicy,
    /// Its static routes.
    #[serde(default, rename = "static")]
    pub(super) statics: Vec<Static>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Track {
    /// That this interface is up.
    pub(super) interface: Option<String>,
    /// That there is a resolved route for exactly this prefix.
    pub(super) prefix: Option<String>,
    /// That a route leads to this address.
    pub(super) address: Option<IpAddr>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Policy {
    /// Sets of prefixes, by name.
    #[serde(default)]
    pub(super) prefix_set: BTreeMap<String, PrefixSet>,
    /// Sets of neighbours, by name.
    #[serde(default)]
    pub(super) neighbor_set: BTreeMap<String, NeighborSet>,
    /// Sets of communities, by name.
    #[serde(default)]
    pub(super) community_set: BTreeMap<String, CommunitySet>,
    /// Sets of AS paths, by name.
    #[serde(default)]
    pub(super) as_path_set: BTreeMap<String, AsPathSet>,
    /// Policies, by name.
    #[serde(default)]
    pub(super) definition: BTreeMap<String, Definition>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct PrefixSet {
    /// Such as "10.0.0.0/8", or "10.0.0.0/8 16..24" for what is inside it of these lengths.
    pub(super) prefixes: Option<Vec<String>>,
    /// A file of more of them, one a line; its path is taken from the configuration's folder.
    pub(super) file: Option<PathBuf>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NeighborSet {
    /// Addresses or ranges of addresses.
    pub(super) addresses: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CommunitySet {
    /// Communities and patterns, such as "65001:100", "no-export", "rt:65001:*".
    pub(super) members: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AsPathSet {
    /// The path ends with one of these ASes.
    #[serde(default)]
    pub(super) origin: Vec<Amount>,
    /// It begins with one.
    #[serde(default)]
    pub(super) neighbor: Vec<Amount>,
    /// It contains one.
    #[serde(default)]
    pub(super) contains: Vec<Amount>,
    /// It matches one of these expressions over AS numbers.
    #[serde(default)]
    pub(super) regex: Vec<String>,
}

/// A number, or a range as text.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "this is no number or range; write one such as 65001, \"64512-65534\" or \"5-\" (5 and more)"
)]
pub(super) enum Amount {
    Number(u32),
    Range(String),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Definition {
    /// Tried in order.
    #[serde(default)]
    pub(super) statement: Vec<Statement>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Statement {
    /// What `ribtide explain` calls it.
    #[serde(default)]
    pub(super) name: String,
    /// All must hold.
    #[serde(default)]
    pub(super) conditions: Conditions,
    /// What is done then.
    #[serde(default)]
    pub(super) actions: Actions,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Conditions {
    /// The prefix is in this set.
    pub(super) match_prefix_set: Option<MatchSet>,
    /// The neighbour that the route was learnt from is in this set.
    pub(super) match_neighbor_set: Option<MatchSet>,
    /// Its communities are in this set.
    pub(super) match_community_set: Option<MatchSet>,
    /// Its AS path is in this set.
    pub(super) match_as_path_set: Option<MatchSet>,
    /// Addresses or ranges that the next hop is in.
    pub(super) next_hop_in: Option<Vec<String>>,
    /// Its family is one of these.
    pub(super) afi_safi_in: Option<Vec<FamilyName>>,
    /// Its ORIGIN.
    pub(super) origin_eq: Option<OriginName>,
    /// What kind of neighbour it was learnt from.
    pub(super) route_type: Option<GroupKind>,
    /// A number, a range "1-5", or "5-".
    pub(super) as_path_length: Option<Amount>,
    /// A number or a range; 0 where there is none.
    pub(super) med: Option<Amount>,
    /// A number or a range; 100 where there is none.
    pub(super) local_pref: Option<Amount>,
}

#[derive(Debug, JsonSchema)]
#[schemars(untagged)]
pub(super) enum MatchSet {
    Name(String),
    Table(MatchTable),
}

or_table!(
    MatchSet,
    visit_str,
    &str,
    Name,
    "a set's name, or { set = \"NAME\", match-set-options = \"invert\" }, where the option is any, all or invert"
);

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct MatchTable {
    /// The set's name.
    pub(super) set: String,
    /// Any (default), all, or not.
    pub(super) match_set_options: Option<MatchOptions>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum MatchOptions {
    Any,
    All,
    Invert,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OriginName {
    Igp,
    Egp,
    Incomplete,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Actions {
    /// ORIGIN.
    pub(super) set_route_origin: Option<OriginName>,
    /// LOCAL_PREF.
    pub(super) set_local_pref: Option<u32>,
    /// A number, or "+10" or "-10".
    pub(super) set_med: Option<SetMed>,
    /// An address, "self" (export) or "peer-address" (import).
    pub(super) set_next_hop: Option<String>,
    /// ASes before the path.
    pub(super) set_as_path_prepend: Option<Prepend>,
    /// Communities.
    #[serde(default)]
    pub(super) set_community: SetCommunity,
    /// In fib.policy and a VRF's policy only: the source address, one of each family at most.
    pub(super) set_source: Option<SetSource>,
    /// What follows; default "next-statement".
    pub(super) policy_result: Option<PolicyResult>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "this is no source address; write one, or a list of at most one of each family"
)]
pub(super) enum SetSource {
    One(IpAddr),
    Some(Vec<IpAddr>),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "this is no MED; write a number, or \"+10\" or \"-10\" for so much more or less"
)]
pub(super) enum SetMed {
    Number(u32),
    Change(String),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Prepend {
    /// The AS; default ours.
    pub(super) asn: Option<u32>,
    /// How often; default 1.
    pub(super) repeat_n: Option<u8>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct SetCommunity {
    /// In place of all communities.
    pub(super) replace: Option<Vec<String>>,
    /// Take away these, which may be patterns.
    #[serde(default)]
    pub(super) remove: Vec<String>,
    /// Take away what is in this set.
    pub(super) remove_set: Option<String>,
    /// Add these.
    #[serde(default)]
    pub(super) add: Vec<String>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PolicyResult {
    Accept,
    Reject,
    NextStatement,
    NextPolicy,
}
