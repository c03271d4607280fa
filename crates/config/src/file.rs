//! The shape of the file, as serde reads it. An absent key stays absent here; `check` gives
//! defaults.

mod actions;
mod fib;
mod monitoring;
mod route_type;
mod session;

use super::add_path::AddPathTable;
use super::aggregate::AggregateTable;
use super::as_numbers::{LocalAsSetting, RemovePrivateAsSetting};
use super::confederation::ConfederationTable;
use super::default_originate::DefaultOriginateSetting;
use super::graceful_restart::GracefulRestartTable;
use super::max_prefixes::{MaxPrefixesOutTable, MaxPrefixesTable};
use super::or_table::or_table;
use super::tcp_ao::TcpAoTable;
pub(super) use actions::{Actions, SetCommunity, SetMed, SetSource};
pub use fib::OnStop;
pub(super) use fib::{Fib, FibPolicy, Kernel, KernelTable, VirtualAsic, VirtualAsicTable};
pub(super) use monitoring::{Bmp, BmpStation, BmpView, Compression, Mrt, MrtFiles};
use ribtide_bgp::ingest::Martians;
pub(super) use route_type::RouteTypeName;
use schemars::JsonSchema;
use serde::Deserialize;
pub(super) use session::{PeerAsn, Shutdown};
use std::collections::BTreeMap;
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
    /// Origin validation with the RPKI. Without this table there is none.
    #[serde(default)]
    pub(super) rpki: Option<Rpki>,
    /// Stations that get routes over BMP. Without this table there is none.
    #[serde(default)]
    pub(super) bmp: Option<Bmp>,
    /// Files into which routes are written in the MRT format. Without this table there are none.
    #[serde(default)]
    pub(super) mrt: Option<Mrt>,
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
    /// What is logged, and how.
    #[serde(default)]
    pub(super) log: Log,
    /// The privileges of the process.
    #[serde(default)]
    pub(super) process: Process,
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
    /// Seconds after which work that waits without progress counts as
    /// [stalled](operations.md#show-health); 0: never.
    #[schemars(extend("default" = 30))]
    pub(super) stall_timeout: Option<u32>,
    /// Seconds after which a stall ends the router with [exit status 9](operations.md#exit-statuses), so
    /// that its service manager starts it again, at least `stall-timeout`; 0: never. A stall that only
    /// waits for a peer, such as an FPM server, ends nothing.
    #[schemars(extend("default" = 0))]
    pub(super) stall_exit: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Bgp {
    /// Addresses and ports on which sessions are accepted (`[::]` takes IPv4 as well); `[]`: none.
    #[schemars(extend("default" = ["[::]:179"]))]
    pub(super) listen: Option<Vec<SocketAddr>>,
    /// Shard threads, 1 to 64; `"auto"`: as many as cores; `"off"`: the session thread also reads sessions and keeps
    /// the routes. No choice changes a result.
    #[serde(default)]
    #[schemars(extend("default" = "auto"))]
    pub(super) shards: Count,
    /// Egress worker threads, 1 to 64; `"auto"`: as many as cores; `"off"`: the session thread packs UPDATEs itself.
    /// Both `"off"`: all of BGP on one thread, the baseline for comparisons.
    #[serde(default)]
    #[schemars(extend("default" = "auto"))]
    pub(super) update_threads: Count,
    /// `"auto"`, or a list such as `"0-3,8"`: readers, shards and egress workers are pinned to one CPU each of these
    /// (`"auto"`: of all that the process may use), going round. The session thread stays among them, and `"auto"`
    /// numbers of threads count them.
    pub(super) cpus: Option<String>,
    /// Threads are pinned as by `cpus`, to the CPUs of this NUMA node: the network card's is best. Not together with
    /// `cpus`.
    pub(super) numa_node: Option<u16>,
    /// Cluster id of the route reflector (RFC 4456).
    #[schemars(extend("x-default" = "the router id"))]
    pub(super) cluster_id: Option<Ipv4Addr>,
    /// Bytes of the last messages that are kept of each neighbour: of received ones, of sent UPDATEs and of other sent ones
    /// each; `0`: none.
    #[schemars(extend("default" = 8192), extend("x-see" = "#recorded-messages"))]
    pub(super) recorder_bytes: Option<usize>,
    /// Compare MED also between routes of different neighbouring ASes.
    #[serde(default)]
    pub(super) always_compare_med: bool,
    /// Group routes by neighbouring AS before MED is compared, so that the order of arrival decides nothing.
    #[schemars(extend("default" = true))]
    pub(super) deterministic_med: Option<bool>,
    /// A route without MED ranks as if it had the largest, not 0.
    #[serde(default)]
    pub(super) med_missing_as_worst: bool,
    /// Between external paths, prefer the oldest before the router id decides.
    #[serde(default)]
    pub(super) prefer_oldest: bool,
    /// The most next hops that a prefix is forwarded by, 1 to 256: the best path's, and those of equal paths.
    #[schemars(extend("default" = 1), extend("x-see" = "#equal-paths-and-backup-paths"))]
    pub(super) multipath: Option<u16>,
    /// Equal paths may come from different neighbouring ASes.
    #[serde(default)]
    pub(super) multipath_relax: bool,
    /// Equal paths share the traffic by their link bandwidths (RFC 10005; OpenConfig's name).
    #[serde(default)]
    #[schemars(extend("x-see" = "#equal-paths-and-backup-paths"))]
    pub(super) link_bandwidth_ext_community: bool,
    /// The best path by another next hop is installed beforehand and stands in.
    #[serde(default)]
    #[schemars(extend("x-see" = "#equal-paths-and-backup-paths"))]
    pub(super) backup_path: bool,
    /// The session of an external single-hop neighbour ends at once when the interface to it goes down; the settings
    /// of groups and neighbours win.
    #[schemars(extend("default" = true), extend("x-see" = "#fast-external-fallover"))]
    pub(super) fast_external_fallover: Option<bool>,
    /// Graceful restart of neighbours (RFC 4724, RFC 8538); each key of the tables of groups and neighbours wins.
    #[schemars(extend("x-default" = "as a helper"), extend("x-see" = "#graceful-restart"))]
    pub(super) graceful_restart: Option<GracefulRestartTable>,
    /// Prefixes that are refused from every neighbour, written as in a prefix set; `[]`: none. Private, shared and
    /// documentation space is not in the default. The rest of an UPDATE is taken (RFC 4271 section 6.3).
    #[schemars(extend("default" = Martians::DEFAULT), extend("x-see" = "#policy"))]
    pub(super) martians: Option<Vec<String>>,
    /// Routes that this router originates.
    #[serde(default)]
    #[schemars(extend("x-see" = "#bgporiginate"))]
    pub(super) originate: Originate,
    /// `[[bgp.aggregate]]` tables: aggregates of more specific routes.
    #[serde(default)]
    #[schemars(extend("x-see" = "#bgpaggregate"))]
    pub(super) aggregate: Vec<AggregateTable>,
    /// The confederation that this router is a member of (RFC 5065).
    #[schemars(extend("x-see" = "#bgpconfederation"))]
    pub(super) confederation: Option<ConfederationTable>,
    /// Groups of neighbours, by name.
    #[serde(default)]
    pub(super) group: BTreeMap<String, Group>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Originate {
    /// Prefixes that are originated, with ORIGIN IGP.
    #[serde(default)]
    pub(super) networks: Vec<String>,
    /// Policies for `networks`, tried in order until one decides; a prefix that none decides on is
    /// originated.
    #[schemars(extend("x-default" = "all as they are"), extend("x-see" = "#policy"))]
    pub(super) network_policy: Option<Vec<String>>,
    /// A network is originated only while the router forwards exactly its prefix by a connected, static or
    /// kernel route.
    #[serde(default)]
    pub(super) require_route: bool,
    /// Connected routes are redistributed: policies, tried in order until one decides. Routes that
    /// none decides on are not originated. ORIGIN is incomplete.
    #[schemars(extend("x-see" = "#policy"))]
    pub(super) connected: Option<Vec<String>>,
    /// The same for static routes.
    #[serde(rename = "static")]
    #[schemars(extend("x-see" = "#policy"))]
    pub(super) statics: Option<Vec<String>>,
    /// The same for routes of other programs in the kernel.
    #[schemars(extend("x-see" = "#policy"))]
    pub(super) kernel: Option<Vec<String>>,
    /// Routes that clients of the API announce are originated: policies, tried in order until one decides. Routes
    /// that none decides on are not originated. Without a list clients can announce none.
    #[schemars(extend("x-see" = "operations.md#routes-of-api-clients"))]
    pub(super) api: Option<Vec<String>>,
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

/// Declares a table with the settings that groups and single neighbours share. `$fallover` is the default of
/// `fast-external-fallover`.
macro_rules! with_peer_settings {
    ($(#[$attribute:meta])* $table:ident, $fallover:literal, { $($before:tt)* }, { $($after:tt)* }) => {
        $(#[$attribute])*
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub(super) struct $table {
            $($before)*
            /// No session: `true`, or a text of at most 255 bytes for the operator of the peer, who gets it when a session
            /// ends for this (RFC 9003).
            #[schemars(extend("default" = false), extend("x-see" = "#shutdown"))]
            pub(super) shutdown: Option<Shutdown>,
            /// Move traffic away from the external neighbour before a shutdown: routes to it get the community
            /// `graceful-shutdown`, routes from it also LOCAL_PREF 0 (RFC 8326).
            #[schemars(extend("default" = false), extend("x-see" = "#graceful-shutdown"))]
            pub(super) graceful_shutdown: Option<bool>,
            /// Routes of the external neighbour with the community `graceful-shutdown` (65535:0) get LOCAL_PREF 0 (RFC 8326).
            #[schemars(extend("x-default" = "`true` for external neighbours"), extend("x-see" = "#graceful-shutdown"))]
            pub(super) graceful_shutdown_receiver: Option<bool>,
            /// Wait for the peer to connect.
            #[schemars(extend("default" = false))]
            pub(super) passive: Option<bool>,
            /// Address families: a list of `"ipv4-unicast"`, `"ipv6-unicast"`.
            #[schemars(extend("default" = ["ipv4-unicast", "ipv6-unicast"]))]
            pub(super) families: Option<Vec<FamilyName>>,
            /// Policies for received routes, tried in order until one decides. Without a list, and at its end, external peers
            /// are rejected (RFC 8212), internal ones accepted.
            #[schemars(extend("x-see" = "#policy"))]
            pub(super) import: Option<Vec<String>>,
            /// Policies for advertised routes, tried in order until one decides. Without a list, and at its end, external
            /// peers get nothing (RFC 8212), internal ones everything.
            #[schemars(extend("x-see" = "#policy"))]
            pub(super) export: Option<Vec<String>>,
            /// Seconds to offer: 0 for none, or 3 and more.
            #[schemars(extend("default" = 90))]
            pub(super) hold_time: Option<u16>,
            /// Seconds between attempts to connect.
            #[schemars(extend("default" = 5))]
            pub(super) connect_retry: Option<u16>,
            /// Our address of the sessions that we open.
            #[schemars(extend("x-default" = "the system's choice"))]
            pub(super) local_address: Option<IpAddr>,
            /// The peer's TCP port.
            #[schemars(extend("default" = 179))]
            pub(super) port: Option<u16>,
            /// Towards internal peers, put our own address in NEXT_HOP of routes from external ones; reflected routes keep
            /// theirs. External peers always get our own.
            #[schemars(extend("default" = false))]
            pub(super) next_hop_self: Option<bool>,
            /// TTL of an external session that is not on one link; its next hops may then resolve recursively.
            pub(super) multihop: Option<u8>,
            /// The neighbour is at most so many hops away, 1 to 254 (1: on a link of ours): we send with TTL 255, and packets
            /// that come with less than 256 - N are discarded (GTSM, RFC 5082). The neighbour must do the same. Not with
            /// `multihop`.
            #[schemars(extend("x-see" = "#ttl-security"))]
            pub(super) ttl_security: Option<u8>,
            /// Our role towards the external neighbour (RFC 9234): `"provider"`, `"customer"`, `"peer"`, `"rs"` (route server) or
            /// `"rs-client"`. The session needs the corresponding role of the neighbour, and OTC marks route leaks.
            #[schemars(extend("x-see" = "#roles-and-route-leaks"))]
            pub(super) role: Option<String>,
            /// With `role`: refuse a neighbour that sends no role.
            #[schemars(extend("default" = false), extend("x-see" = "#roles-and-route-leaks"))]
            pub(super) role_strict: Option<bool>,
            /// TCP-MD5 key (RFC 2385). Not together with `tcp-ao`; a neighbour's own setting of the two wins.
            pub(super) password: Option<String>,
            /// TCP-AO keys (RFC 5925) of the session. It needs Linux 6.7 with CONFIG_TCP_AO.
            #[schemars(extend("x-default" = "none"), extend("x-see" = "#tcp-ao"))]
            pub(super) tcp_ao: Option<TcpAoTable>,
            /// Watch the neighbour with BFD: `true`, or a table of settings. Not for `dynamic-neighbors`.
            #[schemars(extend("default" = false), extend("x-see" = "#bfd"))]
            pub(super) bfd: Option<Bfd>,
            /// The session ends with the interface to the neighbour; external single-hop neighbours only.
            #[schemars(extend("x-default" = $fallover), extend("x-see" = "#fast-external-fallover"))]
            pub(super) fast_external_fallover: Option<bool>,
            /// Of external neighbours, refuse paths that do not begin with the neighbour's AS (RFC 4271 section 6.3; the
            /// routes count as withdrawn). A route server leaves its own AS out.
            #[schemars(extend("x-default" = "`true` for external neighbours, but with `role = \"rs-client\"`"))]
            pub(super) enforce_first_as: Option<bool>,
            /// The AS by which the neighbour knows us, where that is not `router.asn`: a number, or a table of `asn`, `prepend`,
            /// `replace` and `dual` (RFC 7705).
            #[schemars(extend("x-default" = "none"), extend("x-see" = "#as-numbers-in-paths"))]
            pub(super) local_as: Option<LocalAsSetting>,
            /// How often each AS of ours may be in a received path, 0 to 10; a path with more is a loop.
            #[schemars(extend("default" = 0), extend("x-see" = "#as-numbers-in-paths"))]
            pub(super) allowas_in: Option<u8>,
            /// In paths sent to the external neighbour, our AS replaces the neighbour's.
            #[schemars(extend("default" = false), extend("x-see" = "#as-numbers-in-paths"))]
            pub(super) as_override: Option<bool>,
            /// From paths sent to the external neighbour, remove private AS numbers (RFC 6996): `true`, or a table of `all` and
            /// `replace`.
            #[schemars(extend("default" = false), extend("x-see" = "#as-numbers-in-paths"))]
            pub(super) remove_private_as: Option<RemovePrivateAsSetting>,
            /// The external neighbour is a client of this route server: routes between two clients keep path, next hop, MED and
            /// communities (RFC 7947).
            #[schemars(extend("default" = false), extend("x-see" = "#route-server"))]
            pub(super) route_server_client: Option<bool>,
            /// Where its export policy refuses the best path, or the client sent that itself, the client gets the best of the
            /// other paths, not none (RFC 7947 section 2.3.2).
            #[schemars(extend("default" = false), extend("x-see" = "#route-server"))]
            pub(super) best_path_per_client: Option<bool>,
            /// The external neighbour is inside our Segment Routing domain: BGP Prefix-SID is accepted from it and sent to
            /// it. Otherwise it is discarded, and not sent (RFC 8669 sections 4 and 5). Internal neighbours always have it.
            #[schemars(extend("default" = false))]
            pub(super) prefix_sid: Option<bool>,
            /// The neighbour is inside our AIGP administrative domain: the accumulated IGP metric is accepted from it and sent
            /// to it. Otherwise it is ignored, and not sent (RFC 7311 section 3.3).
            #[schemars(extend("x-default" = "`true` for neighbours of our AS or confederation"), extend("x-see" = "#accumulated-igp-metric"))]
            pub(super) aigp: Option<bool>,
            /// Keep its routes before import policy too: `show bgp neighbor ADDRESS received` shows them, and another
            /// policy needs no ROUTE-REFRESH. An import policy that tests `rpki` or `aspa` keeps them in any case.
            #[schemars(extend("default" = false), extend("x-see" = "#routes-before-import-policy"))]
            pub(super) keep_received: Option<bool>,
            /// Path attributes that are removed from received UPDATEs, well formed or not: codes, or names such as `"otc"`,
            /// `"prefix-sid"`, `"large-communities"`. Not ORIGIN, AS_PATH, NEXT_HOP, MP_REACH_NLRI, MP_UNREACH_NLRI,
            /// AS4_PATH. Tunnel Encapsulation is never taken from an external neighbour or sent to one (RFC 9012 section 11).
            #[schemars(extend("default" = []))]
            pub(super) discard_attributes: Option<Vec<AttributeName>>,
            /// Routes that come with one of these attributes, well formed or not, count as withdrawn; written as in
            /// `discard-attributes`, and none that is there.
            #[schemars(extend("default" = []))]
            pub(super) treat_as_withdraw: Option<Vec<AttributeName>>,
            /// Several paths of a prefix in one session (RFC 7911).
            #[schemars(extend("x-default" = "off"), extend("x-see" = "#add-path"))]
            pub(super) add_path: Option<AddPathTable>,
            /// Policies for contributors that an [aggregate](#bgpaggregate) suppresses, in the place of `export`: what they accept
            /// is sent all the same. Not together with `add-path.send` or `best-path-per-client`.
            #[schemars(extend("x-default" = "none is sent"), extend("x-see" = "#bgpaggregate"))]
            pub(super) unsuppress: Option<Vec<String>>,
            /// Send a default route of its own in place of any in the table.
            #[schemars(extend("default" = false), extend("x-see" = "#default-originate"))]
            pub(super) default_originate: Option<DefaultOriginateSetting>,
            /// How many prefixes the neighbour may have accepted.
            #[schemars(extend("x-default" = "no limit"), extend("x-see" = "#maximum-prefixes"))]
            pub(super) max_prefixes: Option<MaxPrefixesTable>,
            /// How many prefixes may be advertised to it.
            #[schemars(extend("x-default" = "no limit"), extend("x-see" = "#maximum-prefixes"))]
            pub(super) max_prefixes_out: Option<MaxPrefixesOutTable>,
            /// Whether its routes stay in use while it restarts, and how long.
            #[schemars(extend("x-default" = "as in `bgp`"), extend("x-see" = "#graceful-restart"))]
            pub(super) graceful_restart: Option<GracefulRestartTable>,
            /// IPv4 routes may have IPv6 next hops, in both directions (RFC 8950).
            #[schemars(extend("x-default" = "`true` for neighbours by interface"), extend("x-see" = "#unnumbered-sessions"))]
            pub(super) extended_next_hop: Option<bool>,
            $($after)*
        }
    };
}

with_peer_settings!(
    /// What groups and single neighbours can both set; a neighbour's own value wins over its group's.
    #[derive(Debug, Default, Deserialize, JsonSchema)]
    Group,
    "`bgp.fast-external-fallover`",
    {
        /// `"internal"` or `"external"`: whether its neighbours are in our AS. `"confederation"`: they are in other member ASes
        /// of our confederation.
        #[serde(rename = "type")]
        #[schemars(extend("x-default" = "required"))]
        pub(super) kind: Option<GroupKind>,
        /// AS of the neighbours: a number; `"external"`: any but ours; `"internal"`: ours. Required for external ones,
        /// except dynamic ones, which may then have any.
        #[schemars(extend("x-default" = "internal: ours"), extend("x-see" = "#any-external-as"))]
        pub(super) peer_asn: Option<PeerAsn>,
        /// These internal peers are clients of our reflector.
        #[serde(default)]
        pub(super) route_reflector_client: bool,
    },
    {
        /// Addresses of neighbours without settings of their own.
        #[serde(default)]
        pub(super) neighbors: Vec<IpAddr>,
        /// Interfaces with a neighbour whose link-local address is learnt: names, or patterns with `*` and `?`, of which the
        /// most specific one counts.
        #[serde(default)]
        #[schemars(extend("x-see" = "#unnumbered-sessions"))]
        pub(super) interfaces: Vec<String>,
        /// Neighbours with settings of their own: `[[bgp.group.NAME.neighbor]]` tables.
        #[serde(default)]
        pub(super) neighbor: Vec<Neighbor>,
        /// Ranges from which any peer may come; of several that hold its address the most specific counts. When there are
        /// 32,767 neighbours in all, further ones are refused (Cease, Out of Resources).
        #[serde(default)]
        pub(super) dynamic_neighbors: Vec<String>,
    }
);

with_peer_settings!(
    #[derive(Debug, Deserialize, JsonSchema)]
    Neighbor,
    "the group's",
    {
        /// Its address.
        #[schemars(extend("x-default" = "required, or `interface`"))]
        pub(super) address: Option<IpAddr>,
        /// Its interface, in place of an address: as in the group's `interfaces`.
        #[schemars(extend("x-see" = "#unnumbered-sessions"))]
        pub(super) interface: Option<String>,
        /// Text for operators.
        pub(super) description: Option<String>,
        /// Its AS.
        #[schemars(extend("x-default" = "the group's"))]
        pub(super) peer_asn: Option<PeerAsn>,
    },
    {}
);

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
    /// Our addresses on which packets are received; nothing is bound for a family without sessions.
    #[schemars(extend("default" = ["0.0.0.0", "::"]))]
    pub(super) listen: Option<Vec<IpAddr>>,
    /// The default of `min-tx` of all sessions.
    #[schemars(extend("default" = 300))]
    pub(super) min_tx: Option<u32>,
    /// The default of `min-rx` of all sessions.
    #[schemars(extend("default" = 300))]
    pub(super) min_rx: Option<u32>,
    /// The default of `multiplier` of all sessions.
    #[schemars(extend("default" = 3))]
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
    /// Our desired transmit interval in milliseconds, 10 to 60,000. Each direction runs at the larger of one side's
    /// transmit and the other's receive interval.
    #[schemars(extend("x-default" = "`bfd.min-tx`"))]
    pub(super) min_tx: Option<u32>,
    /// Our required receive interval in milliseconds, 10 to 60,000.
    #[schemars(extend("x-default" = "`bfd.min-rx`"))]
    pub(super) min_rx: Option<u32>,
    /// How many of our packets may be missing before the neighbour declares the session down, 1 to 255; the neighbour
    /// has its own.
    #[schemars(extend("x-default" = "`bfd.multiplier`"))]
    pub(super) multiplier: Option<u8>,
    /// The neighbour is not on a link of ours (RFC 5883, port 4784). Internal neighbours that are several hops away
    /// need it.
    #[schemars(extend("x-default" = "`false`; `true` for a neighbour of BGP with `multihop` or `ttl-security` above 1, and with `min-ttl`"))]
    pub(super) multihop: Option<bool>,
    /// With `multihop`: packets must arrive with a TTL of at least this, 255 less the hops in between. Some
    /// neighbours (BIRD) send several-hop packets with 64. Over a link it is always 255.
    #[schemars(extend("default" = 1))]
    pub(super) min_ttl: Option<u8>,
    /// The session must have been up first: before, the neighbour has no BGP session, and static routes avoid the
    /// gateway.
    #[schemars(extend("default" = false))]
    pub(super) strict: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum GroupKind {
    Internal,
    External,
    Confederation,
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
pub(super) struct Sonic {
    /// The transport of rows between the parts of fpmsyncd and orchagent: `"memory"`, the only one.
    #[schemars(extend("default" = "memory"))]
    pub(super) north: Option<String>,
    /// The transport between the parts of orchagent and syncd: `"memory"`, the only one.
    #[schemars(extend("default" = "memory"))]
    pub(super) south: Option<String>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Api {
    /// The Unix socket that `ribtide show` uses. A user who may write to it may read and change everything.
    #[schemars(extend("default" = "/run/ribtide/ribtide.sock"))]
    pub(super) socket: Option<PathBuf>,
    /// Its permissions, in octal digits; the owner keeps read and write.
    #[schemars(extend("x-default" = "`\"0600\"`; `\"0660\"` with `socket-group`"))]
    pub(super) socket_mode: Option<String>,
    /// The group that it belongs to, by name. `ribtide check` refuses a group that the system does not have. The
    /// socket has group and mode before it takes its first connection.
    #[schemars(extend("x-default" = "that of the process"))]
    pub(super) socket_group: Option<String>,
    /// An address for the same API, `/metrics` included, over TCP. Without `token-file` it serves reads and metrics
    /// and changes nothing. An address that is no loopback address takes TLS, and clients that show a token or a certificate:
    /// `ribtide check` refuses it without `tls-certificate`, `tls-key`, and one of `token-file`, `read-token-file` and
    /// `tls-client-ca`.
    pub(super) http: Option<SocketAddr>,
    /// Names and addresses, without a port, by which clients address `http`, beside its own IP address (and `localhost`
    /// on a loopback address). A request with another `Host` is refused: a name server may have redirected the page of
    /// a browser here.
    #[serde(default)]
    #[schemars(extend("x-see" = "operations.md#access"))]
    pub(super) http_hosts: Vec<String>,
    /// A file with a token of 16 to 1,024 characters (letters, digits, `-._~+/=`; RFC 6750), white space around it
    /// aside. A client on TCP that sends it may change everything. A relative path starts at the folder of the
    /// configuration. Others than the owner and the group must have no permission on the file, or `ribtide check`
    /// refuses it. It is read at the start and on a reload.
    #[schemars(extend("x-see" = "operations.md#access"))]
    pub(super) token_file: Option<PathBuf>,
    /// A file with another token, of the same form. A client on TCP that sends it may read everything and change nothing:
    /// for monitoring.
    #[schemars(extend("x-see" = "operations.md#access"))]
    pub(super) read_token_file: Option<PathBuf>,
    /// A PEM file with a certificate, then those of its issuers: `http` serves TLS alone. It is read at the start and
    /// on a reload, as the next two.
    #[schemars(extend("x-see" = "operations.md#tls"))]
    pub(super) tls_certificate: Option<PathBuf>,
    /// A PEM file with the certificate's private key. Others than the owner and the group must have no permission on it.
    #[schemars(extend("x-see" = "operations.md#tls"))]
    pub(super) tls_key: Option<PathBuf>,
    /// A PEM file with certificates of CAs: a client on TCP must have a certificate that one of them issued. It then needs
    /// no token for the reads that need none on a loopback address.
    #[schemars(extend("x-default" = "clients need none", "x-see" = "operations.md#tls"))]
    pub(super) tls_client_ca: Option<PathBuf>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Log {
    /// The lowest level that is logged: `"off"`, `"error"`, `"warn"`, `"info"` or `"debug"`, and levels of single targets,
    /// as in `"info,bgp=debug"`. The environment variable `RIBTIDE_LOG` takes precedence.
    #[schemars(extend("default" = "info", "x-see" = "operations.md#logs"))]
    pub(super) level: Option<String>,
    /// How a line is written: `"text"` or `"json"`.
    #[schemars(extend("default" = "text"))]
    pub(super) format: Option<LogFormat>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum LogFormat {
    Text,
    Json,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Process {
    /// The user, by name, that the router becomes before it opens a socket or starts a thread, with the groups of that
    /// user. It must be able to read the configuration and the files that it names, and to write to the folder of
    /// `api.socket`, which the start creates for it where it is missing.
    #[schemars(extend("x-default" = "the one that starts it"))]
    pub(super) user: Option<String>,
    /// `true`: system calls that a router never makes fail (seccomp); `"log"`: the kernel's audit log has them, and they
    /// go on; `false`: no filter.
    #[schemars(extend("default" = true, "x-see" = "security.md#system-calls"))]
    pub(super) seccomp: Option<Seccomp>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "this is no mode of seccomp; write true, false or \"log\"")]
pub(super) enum Seccomp {
    Switch(bool),
    Mode(SeccompMode),
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum SeccompMode {
    Log,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Interface {
    /// Such as `Ethernet0`.
    pub(super) name: String,
    /// The router's addresses on it with their subnets' lengths: `["10.0.0.1/24"]`.
    #[serde(default)]
    pub(super) addresses: Vec<String>,
    /// Known neighbours: `[{ address = "10.0.0.2", mac = "02:00:00:00:00:01" }]`.
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
    /// The destination.
    pub(super) prefix: String,
    /// Gateways, of either family; more than one share the traffic. They may lie behind other routes.
    #[serde(default)]
    pub(super) next_hop: Vec<IpAddr>,
    /// With gateways: the interface they are on, needed for link-local ones; alone: the prefix is on that link. The
    /// route waits until there is such an interface.
    pub(super) interface: Option<String>,
    /// Discard.
    #[serde(default)]
    pub(super) blackhole: bool,
    /// Administrative distance, 1 to 254.
    #[schemars(extend("default" = 1))]
    pub(super) distance: Option<u8>,
    /// Gateways that are used while none of `next-hop` resolves. They are resolved beforehand, so the loss of the
    /// last next hop is one change of a next-hop group, however many routes depend on it. They count before routes of
    /// a higher distance.
    #[serde(default)]
    pub(super) backup: Vec<IpAddr>,
    /// Watch the gateways, those of `backup` too, with BFD: `true`, or a table of settings. The route avoids one that
    /// fails.
    #[schemars(extend("default" = false), extend("x-see" = "#bfd"))]
    pub(super) bfd: Option<Bfd>,
    /// The route is used only while this holds: `{ interface = "eth1" }`, that it is up; `{ prefix = "10.9.0.0/16"
    /// }`, that a route for exactly this prefix resolves; `{ address = "192.0.2.1" }`, that a route covers it and
    /// resolves. Another route than this one, in each case.
    pub(super) track: Option<Track>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Vrf {
    /// The kernel's table for its routes; only with `fib.kernel`.
    #[schemars(extend("x-default" = "the table of the kernel's VRF device"))]
    pub(super) table: Option<u32>,
    /// The interfaces that are in it, by name: of the `[[interface]]` tables or of the kernel. Others are in the
    /// default VRF.
    #[schemars(extend("x-default" = "the members of the kernel's VRF device"))]
    pub(super) interfaces: Option<Vec<String>>,
    /// The address that packets of this machine itself have as their source over its static routes, at most one of
    /// each family. It goes to the kernel and to FPM servers; `set-source` of `policy` takes precedence.
    #[serde(default)]
    pub(super) source: Vec<IpAddr>,
    /// Lists of policies for its routes before they reach the FIB: `connected`, `static`, `kernel`. (BGP's routes are
    /// the default VRF's.)
    #[serde(default)]
    #[schemars(extend("x-see" = "#fibpolicy"))]
    pub(super) policy: FibPolicy,
    /// `[[vrf.NAME.static]]` tables.
    #[serde(default, rename = "static")]
    #[schemars(extend("x-see" = "#static"))]
    pub(super) statics: Vec<Static>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Track {
    /// That this interface is up.
    pub(super) interface: Option<String>,
    /// That there is a resolved route for exactly this prefix.
    pub(super) prefix: Option<String>,
    /// That a route covers this address.
    pub(super) address: Option<IpAddr>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct Rpki {
    /// `[[rpki.cache]]` tables: the caches.
    #[serde(default)]
    #[schemars(extend("x-see" = "#rpki"))]
    pub(super) cache: Vec<RpkiCache>,
    /// A file of local exceptions (SLURM, RFC 8416); its path is taken from the configuration's folder. A reload reads
    /// it again.
    pub(super) slurm: Option<PathBuf>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct RpkiCache {
    /// Its address. The connection is TCP, without transport security unless `tls-ca` is set.
    pub(super) address: IpAddr,
    /// Its TCP port.
    #[schemars(extend("x-default" = "323, with `tls-ca` 324"))]
    pub(super) port: Option<u16>,
    /// A PEM file of the CAs of which one must have issued the cache's certificate: the connection is TLS. A reload reads
    /// this and the next files again.
    pub(super) tls_ca: Option<PathBuf>,
    /// The DNS name or address that the cache's certificate must have in its subjectAltName.
    #[schemars(extend("x-default" = "the address"))]
    pub(super) tls_name: Option<String>,
    /// A PEM file of our certificate, which a cache that authenticates routers asks for, and those of its issuers.
    pub(super) tls_certificate: Option<PathBuf>,
    /// A PEM file of its private key. Only the owner and the group may read it.
    pub(super) tls_key: Option<PathBuf>,
    /// 0 to 255. The records of all caches of the lowest preference that have some are used together.
    #[schemars(extend("default" = 1))]
    pub(super) preference: Option<u8>,
    /// Our address of the connection.
    #[schemars(extend("x-default" = "the system's choice"))]
    pub(super) local_address: Option<IpAddr>,
    /// Seconds between a complete answer and the next query, 1 to 86400.
    #[schemars(extend("x-default" = "the cache's"))]
    pub(super) refresh_interval: Option<u32>,
    /// Seconds between a failed query and the next, and the longest time between attempts to connect, 1 to 7200.
    #[schemars(extend("x-default" = "the cache's"))]
    pub(super) retry_interval: Option<u32>,
    /// Seconds after the last complete answer in which its records are used, 600 to 172800.
    #[schemars(extend("x-default" = "the cache's"))]
    pub(super) expire_interval: Option<u32>,
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
    /// Prefixes of both families: `"10.0.0.0/8"` is that prefix alone, `"10.0.0.0/8 16..24"` or `"10.0.0.0/8 ge 16 le 24"`
    /// what is inside it of these lengths.
    pub(super) prefixes: Option<Vec<String>>,
    /// A file of more prefixes, one a line as in `prefixes`, `#` begins a comment; or JSON of `bgpq4 -j`. Its path is taken
    /// from the configuration's folder. A million take well under a second to load.
    #[schemars(extend("x-see" = "#sets-from-the-irr"))]
    pub(super) file: Option<PathBuf>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct NeighborSet {
    /// Addresses or ranges of addresses of neighbours.
    pub(super) addresses: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CommunitySet {
    /// Communities: `"65001:100"`, `"no-export"`, large `"65001:1:2"`, extended `"rt:65001:100"`, `"soo:10.0.0.1:1"`
    /// or `"0x"` and sixteen digits. `*` and ranges stand for numbers: `"65001:100-199"`, `"65001:*:*"`,
    /// `"rt:65001:*"`.
    pub(super) members: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct AsPathSet {
    /// The path ends with one of these ASes (`65001`, `"64512-65534"`).
    #[serde(default)]
    pub(super) origin: Vec<Amount>,
    /// A file of more ASes for `origin`: numbers, with or without `AS`, and `#` begins a comment; or JSON of `bgpq4 -tj`. Its
    /// path is taken from the configuration's folder.
    #[schemars(extend("x-see" = "#sets-from-the-irr"))]
    pub(super) origin_file: Option<PathBuf>,
    /// The path begins with one of these ASes.
    #[serde(default)]
    pub(super) neighbor: Vec<Amount>,
    /// The path contains one of these ASes.
    #[serde(default)]
    pub(super) contains: Vec<Amount>,
    /// The path matches one of these expressions over AS numbers.
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
    /// A name, which `ribtide explain` shows.
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
    /// The prefix is in this set: its name; or `{ set = "NAME", match-set-options = "invert" }` for not in it.
    pub(super) match_prefix_set: Option<MatchSet>,
    /// The neighbour that sent the route is in this set, in export too.
    pub(super) match_neighbor_set: Option<MatchSet>,
    /// Some community of the route is in the set (`any`), none is (`invert`), or every member of the set is at the
    /// route (`all`).
    pub(super) match_community_set: Option<MatchSet>,
    /// The AS path is in this set.
    pub(super) match_as_path_set: Option<MatchSet>,
    /// The next hop is in this list of addresses or ranges.
    pub(super) next_hop_in: Option<Vec<String>>,
    /// The family is one of `"ipv4-unicast"`, `"ipv6-unicast"`.
    pub(super) afi_safi_in: Option<Vec<FamilyName>>,
    /// ORIGIN: `"igp"`, `"egp"` or `"incomplete"`.
    pub(super) origin_eq: Option<OriginName>,
    /// The kind of neighbour that sent the route: `"internal"` or `"external"`; or `"local"`: this router
    /// originates it.
    pub(super) route_type: Option<RouteTypeName>,
    /// The length of the AS path: a number, a range `"1-5"`, or `"5-"` for 5 and more.
    pub(super) as_path_length: Option<Amount>,
    /// MED: a number or a range. Without MED a route counts as 0.
    pub(super) med: Option<Amount>,
    /// LOCAL_PREF: a number or a range. Without LOCAL_PREF a route counts as 100.
    pub(super) local_pref: Option<Amount>,
    /// Some best path, of whatever prefix in this prefix set, exists and may be advertised. In export only.
    #[schemars(extend("x-see" = "#conditional-advertisement"))]
    pub(super) routes_exist: Option<String>,
    /// No best path exists for a prefix in this prefix set. In export only.
    #[schemars(extend("x-see" = "#conditional-advertisement"))]
    pub(super) routes_absent: Option<String>,
    /// The validation state of the route as received: `"valid"`, `"invalid"` or `"not-found"`. In import of neighbours
    /// only.
    #[schemars(extend("x-see" = "#rpki"))]
    pub(super) rpki: Option<ValidityName>,
    /// The verification state of the AS path as received, with ASPA records: `"valid"`, `"invalid"` or `"unknown"`. In
    /// import of external neighbours with a `role` only.
    #[schemars(extend("x-see" = "#aspa"))]
    pub(super) aspa: Option<PathStateName>,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PathStateName {
    Valid,
    Invalid,
    Unknown,
}

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ValidityName {
    Valid,
    Invalid,
    NotFound,
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

#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(super) enum PolicyResult {
    Accept,
    Reject,
    NextStatement,
    NextPolicy,
}
