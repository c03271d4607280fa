//! BGP: totals, neighbours, update groups.

use super::PerFamilyCount;
use super::ZonedAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

/// `GET /v1/bgp/summary`.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BgpSummary {
    /// The local BGP identifier.
    pub router_id: Ipv4Addr,
    /// The local AS.
    pub asn: u32,
    /// Since the start of the router.
    pub uptime_seconds: u64,
    /// The threads of BGP.
    pub threading: Threading,
    /// Update groups with members.
    pub update_groups: usize,
    /// Every configured neighbour and every dynamic one that is here.
    pub neighbor_count: usize,
    /// Of these, those with a session.
    pub established: usize,
    /// How often established sessions of these were lost.
    pub flaps: u64,
    /// Incoming connections that got no session.
    pub rejected_connections: u64,
    /// The reasons and how many of these have each, without those that have none: `unknown-address` (no neighbour has the
    /// address), `out-of-resources`, `low-ttl` (`ttl-security`), `socket-options`, `neighbor` (it has a session or another
    /// connection, is shut down, or is held).
    #[serde(default)]
    pub rejected_by_reason: BTreeMap<String, u64>,
    /// While nothing is advertised, because the router has restarted and waits for the routes of its neighbours (RFC 4724).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// Prefixes in the Loc-RIB.
    pub prefixes: PerFamilyCount,
    /// Paths in all Adj-RIB-Ins.
    pub paths: PerFamilyCount,
    /// Best paths in force.
    pub active: PerFamilyCount,
    /// Interfaces whose neighbours are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub waiting_interfaces: Vec<WaitingInterface>,
    /// The configured groups. The API gives them as `GET /v1/bgp/group-totals`; `ribtide show` puts them in here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub groups: Option<Vec<GroupTotal>>,
    /// The neighbours. The API gives them as pages of `GET /v1/bgp/neighbors`; `ribtide show` puts them in here, also
    /// where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbors: Option<Vec<Neighbor>>,
}

/// `GET /v1/bgp/group-totals`: the neighbours of each configured group together, in the order of names.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupTotals {
    /// The groups that have neighbours.
    pub groups: Vec<GroupTotal>,
}

/// The neighbours of a configured group together.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GroupTotal {
    /// Its name.
    pub group: String,
    /// Its neighbours.
    pub neighbors: u64,
    /// Of these, with a session.
    pub established: u64,
    /// How often their sessions were lost.
    pub flaps: u64,
    /// Paths accepted by import, of all sessions.
    pub accepted: PerFamilyCount,
    /// Of these, best paths in force.
    pub active: PerFamilyCount,
    /// Prefixes advertised, once for each session.
    pub advertised: PerFamilyCount,
    /// Messages received in the present sessions.
    pub messages_received: u64,
    /// Messages sent in them.
    pub messages_sent: u64,
    /// Bytes that wait in their write queues.
    pub queued_bytes: u64,
}

/// An interface whose neighbour is not known.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WaitingInterface {
    /// The interface.
    pub interface: String,
    /// The group in the configuration.
    pub group: String,
    /// Why it is not known.
    pub reason: String,
}

/// A restart of the router that is not over.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Restart {
    /// Neighbours whose End-of-RIB is awaited.
    pub awaited: usize,
    /// Time after which routes are advertised in any case.
    pub seconds_left: u64,
}

/// The threads of BGP.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Threading {
    /// As text.
    pub mode: String,
    /// Shard threads.
    pub shard_threads: usize,
    /// Egress worker threads.
    pub update_threads: usize,
    /// Reader threads.
    pub reader_threads: usize,
}

/// `GET /v1/bgp/neighbors`: a page, in the order of addresses.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NeighborPage {
    /// Neighbours.
    pub neighbors: Vec<Neighbor>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A neighbour: `GET /v1/bgp/neighbors/ADDRESS`; a link-local ADDRESS with its interface, or that alone.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Neighbor {
    /// Its address.
    pub address: ZonedAddress,
    /// Its group in the configuration.
    pub group: String,
    /// Its description.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its AS, configured or received.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asn: Option<u32>,
    /// `external`, `rs-client` (of our route server), `confederation` (another member AS), `internal` or `client` (of our route reflector).
    pub kind: String,
    /// Whether it belongs to a dynamic range.
    pub dynamic: bool,
    /// State of RFC 4271 section 8.2.2.
    pub state: String,
    /// Time in this state.
    pub state_seconds: u64,
    /// The text of its shutdown, empty for none; absent: it is not shut down.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shutdown: Option<String>,
    /// Our role towards it (RFC 9234).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// Its rules for AS numbers in paths, each as in the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub as_numbers: Vec<String>,
    /// Whether it is external and has no import policy, so that none of its routes is accepted (RFC 8212).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub import_missing: bool,
    /// Whether it is external and has no export policy, so that no route is sent to it (RFC 8212).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub export_missing: bool,
    /// Whether graceful shutdown moves traffic away from it (RFC 8326).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub graceful_shutdown: bool,
    /// For how long an idle hold refuses connections (RFC 4271 section 8.1.1); absent without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_hold_seconds: Option<u64>,
    /// The errors and losses of short sessions in a row that caused it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub oscillations: Option<u32>,
    /// How often an established session was lost.
    pub flaps: u64,
    /// Why the last session ended, or the last attempt at one failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Time since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error_seconds: Option<u64>,
    /// Why the last established session ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_down: Option<String>,
    /// Time since then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_down_seconds: Option<u64>,
    /// Which side ended it: `local` or `peer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_down_by: Option<String>,
    /// The last NOTIFICATION, of a session or of an attempt at one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_notification: Option<LastNotification>,
    /// The configured hold time; 0: none.
    #[serde(default)]
    pub configured_hold_time: u16,
    /// The configured interval of attempts to connect; absent: it must connect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connect_retry_seconds: Option<u16>,
    /// Import policies, by name.
    #[serde(default)]
    pub import_policy: String,
    /// Export policies, by name.
    #[serde(default)]
    pub export_policy: String,
    /// How its segments are signed: `tcp-md5` or `tcp-ao`; absent: not at all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authentication: Option<String>,
    /// The TTL of packets to it, where it may be several hops away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multihop: Option<u8>,
    /// The most hops to it that the TTL of its packets may show (GTSM).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_security: Option<u8>,
    /// Whether BFD watches it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub bfd: bool,
    /// Maximum prefixes, by family and direction.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub max_prefixes: Vec<MaxPrefixes>,
    /// The rest of the idle time after a maximum of prefixes ended the session; absent where an operator ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_seconds_left: Option<u64>,
    /// Its stale routes, while it restarts (RFC 4724).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<Stale>,
    /// How often stale routes were removed because it did not come back in time.
    #[serde(default)]
    pub stale_expired: u64,
    /// TCP-AO, where it has keys (RFC 5925).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp_ao: Option<TcpAo>,
    /// The established session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// A NOTIFICATION.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LastNotification {
    /// `received` or `sent`.
    pub direction: String,
    /// Time since then.
    pub seconds: u64,
    /// Its error code (RFC 4271 section 4.5).
    pub code: u8,
    /// Its subcode; 0: unspecific.
    pub subcode: u8,
    /// What it says, with decoded data.
    pub text: String,
    /// Its data in hexadecimal digits.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub data: String,
}

/// What the kernel says of the TCP connection of a session.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TcpConnection {
    /// Our port.
    pub local_port: u16,
    /// The peer's.
    pub remote_port: u16,
    /// Bytes of a sent segment at most.
    pub send_mss: u32,
    /// Bytes of received segments, estimated.
    pub receive_mss: u32,
    /// Smoothed round-trip time.
    pub rtt_seconds: f64,
    /// Its variation.
    pub rtt_variation_seconds: f64,
    /// The least of the last minutes.
    pub least_rtt_seconds: f64,
    /// Segments that may be in flight.
    pub congestion_window: u32,
    /// Segments in flight.
    pub unacknowledged: u32,
    /// Segments that were sent again.
    pub retransmitted: u32,
}

/// Routes of a lost session that stay in use while the neighbour restarts (RFC 4724).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Stale {
    /// Those that it has not announced again.
    pub paths: PerFamilyCount,
    /// Families whose stale routes are long-lived: least preferred, with the community LLGR_STALE (RFC 9494).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub long_lived: Vec<String>,
    /// The lost sessions that they are of: more than one after consecutive restarts (RFC 8538 section 4.1).
    #[serde(default)]
    pub sessions: u64,
    /// Time since the session was lost, the first of these.
    pub seconds: u64,
    /// Time in which it must have a session again, after which long-lived stale routes are removed; absent where it has one, and
    /// its End-of-RIB is awaited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub restart_seconds_left: Option<u64>,
    /// Time after which they are removed in any case.
    pub stale_seconds_left: u64,
}

/// TCP-AO of a neighbour (RFC 5925). No secret is here.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct TcpAo {
    /// Configured keys.
    pub keys: usize,
    /// The send-id of the key that signs; absent without a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<u8>,
    /// The recv-id of the key that the peer is asked for; absent without a session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rnext: Option<u8>,
    /// Segments of the session with a right signature.
    pub good: u64,
    /// Those with a wrong one.
    pub bad: u64,
    /// Those with the ID of no key.
    pub key_not_found: u64,
    /// Those without a signature.
    pub unsigned: u64,
}

/// The paths of a prefix that are sent in one family (RFC 7911).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SentPaths {
    /// The family, such as `ipv4-unicast`.
    pub family: String,
    /// Which: `all`, `best N`, `ecmp` or `per-as`.
    pub paths: String,
}

/// The graceful restart capability of a peer (RFC 4724).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct PeerRestart {
    /// Families whose routes are retained when the session is lost.
    pub families: Vec<String>,
    /// Its restart time.
    pub seconds: u64,
    /// Whether they are retained also after a NOTIFICATION other than a Hard Reset (RFC 8538).
    pub notification: bool,
}

/// A maximum of prefixes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MaxPrefixes {
    /// The family, such as `ipv4-unicast`.
    pub family: String,
    /// `received` or `sent`.
    pub direction: String,
    /// The maximum.
    pub max: u32,
    /// Prefixes accepted, or advertised; absent without a session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    /// What happens beyond it: `warn`, `restart` or `discard`.
    pub action: String,
    /// How often it was exceeded, in all sessions.
    pub exceeded: u64,
}

/// An established session. Counters begin with it.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Session {
    /// Our AS as the peer knows it.
    pub local_asn: u32,
    /// The peer's BGP identifier.
    pub router_id: Ipv4Addr,
    /// The local address.
    pub local_address: IpAddr,
    /// Families in use.
    pub families: Vec<String>,
    /// Negotiated hold time; 0: none.
    pub hold_time: u16,
    /// Maximum interval of KEEPALIVEs; absent without a hold time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keepalive_seconds: Option<u16>,
    /// Time since its reader received bytes.
    pub heard_seconds: u64,
    /// Time until the hold timer expires, if nothing is received; absent without a hold time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold_seconds_left: Option<u64>,
    /// The TCP connection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tcp: Option<TcpConnection>,
    /// The capabilities that we sent.
    #[serde(default)]
    pub capabilities_sent: Vec<String>,
    /// The capabilities that the peer sent.
    #[serde(default)]
    pub capabilities_received: Vec<String>,
    /// 4-octet AS numbers (RFC 6793).
    pub four_octet_as: bool,
    /// Extended messages (RFC 8654).
    pub extended_messages: bool,
    /// Route refresh (RFC 2918).
    pub route_refresh: bool,
    /// Refreshes have marks of their begin and end (RFC 7313).
    #[serde(default)]
    pub enhanced_route_refresh: bool,
    /// The peer's role, if both sides sent one (RFC 9234).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer_role: Option<String>,
    /// What happens while it restarts, if both sides sent the capability (RFC 4724).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub graceful_restart: Option<PeerRestart>,
    /// How long its routes may be long-lived stale after its restart time, by family (RFC 9494); families without a time are left
    /// out.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub long_lived_seconds: BTreeMap<String, u64>,
    /// The time for which the peer retains our routes while this router restarts; absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retains_ours_seconds: Option<u64>,
    /// Families in which several paths of a prefix are received (RFC 7911).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_path_receive: Vec<String>,
    /// IPv6 next hops of IPv4 routes (RFC 8950).
    #[serde(default)]
    pub extended_next_hop: bool,
    /// Families in which several paths of a prefix are sent (RFC 7911).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add_path_send: Vec<SentPaths>,
    /// The thread that reads the session.
    pub reader_thread: String,
    /// The thread that packs its UPDATEs.
    pub update_thread: String,
    /// Its update group there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_group: Option<String>,
    /// Routes before import policy, where they are kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<PerFamilyCount>,
    /// Paths accepted by import.
    pub accepted: PerFamilyCount,
    /// Of these, best paths in force.
    pub active: PerFamilyCount,
    /// Advertised prefixes, without waiting ones.
    pub advertised: PerFamilyCount,
    /// Whether a dump is not complete.
    pub joining: bool,
    /// Whether its update group has continued without it.
    pub detached: bool,
    /// Prefixes that wait to be packed for it.
    pub waiting: u64,
    /// Counters of received routes.
    pub counters: ReceiveCounters,
    /// Counters of sent routes.
    pub sent: SendCounters,
    /// Received messages, by type.
    pub messages_received: Messages,
    /// Messages sent to the write queue, by type.
    pub messages_sent: Messages,
    /// The write queue.
    pub write_queue: WriteQueue,
}

/// Messages by type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct Messages {
    /// OPEN.
    pub open: u64,
    /// UPDATE, End-of-RIB included.
    pub update: u64,
    /// NOTIFICATION.
    pub notification: u64,
    /// KEEPALIVE.
    pub keepalive: u64,
    /// ROUTE-REFRESH.
    pub route_refresh: u64,
}

impl Messages {
    /// Messages of all types.
    pub fn total(&self) -> u64 {
        self.kinds().iter().map(|(_, n)| n).sum()
    }

    /// Each type with its name.
    pub fn kinds(&self) -> [(&'static str, u64); 5] {
        [
            ("OPEN", self.open),
            ("UPDATE", self.update),
            ("NOTIFICATION", self.notification),
            ("KEEPALIVE", self.keepalive),
            ("ROUTE-REFRESH", self.route_refresh),
        ]
    }
}

/// The write queue of a neighbour.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct WriteQueue {
    /// Waiting bytes.
    pub bytes: u64,
    /// The most bytes that waited in this session.
    #[serde(default)]
    pub peak_bytes: u64,
    /// The bytes beyond which its update group continues without it.
    #[serde(default)]
    pub bound_bytes: u64,
    /// How often TCP accepted less than all bytes.
    pub blocks: u64,
    /// Whether it is full, so that its update group continues without it.
    pub full: bool,
    /// How often that began.
    pub stops: u64,
    /// How long that lasted.
    pub stopped_seconds: f64,
    /// Whether it is a slow writer: full now, or three times within the last minute.
    pub slow_writer: bool,
}

/// Counters of a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReceiveCounters {
    /// UPDATE messages.
    pub updates: u64,
    /// Prefixes announced and accepted.
    pub announced: u64,
    /// Prefixes withdrawn.
    pub withdrawn: u64,
    /// Prefixes of families that the session does not carry.
    pub ignored: u64,
    /// UPDATEs treated as withdrawals (RFC 7606).
    pub treated_as_withdraw: u64,
    /// Attributes discarded (RFC 7606).
    pub discarded_attributes: u64,
    /// Announcements refused for a loop (own AS, cluster or router id).
    pub loops: u64,
    /// Announcements refused by the import policy.
    pub rejected: u64,
    /// Announcements refused because the path does not begin with the neighbour's AS (RFC 4271 section 6.3), in an
    /// AS_CONFED_SEQUENCE if it is another member of our confederation (RFC 5065 section 5).
    pub first_as: u64,
    /// Announcements refused because the prefix is in `bgp.martians` or the next hop is a loopback address.
    pub martians: u64,
    /// Announcements refused because OTC shows a route leak (RFC 9234).
    #[serde(default)]
    pub route_leaks: u64,
    /// Announcements refused because they are beyond the maximum of prefixes.
    #[serde(default)]
    pub beyond_max: u64,
    /// Kept routes whose import policy ran again.
    #[serde(default)]
    pub evaluated_again: u64,
    /// The last reason for any of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
}

impl ReceiveCounters {
    /// Announcements refused for any reason.
    pub fn refused(&self) -> u64 {
        // Every field is named, so that a new reason cannot be left out.
        let ReceiveCounters {
            updates: _,
            announced: _,
            withdrawn: _,
            ignored: _,
            treated_as_withdraw: _,
            discarded_attributes: _,
            evaluated_again: _,
            loops,
            rejected,
            first_as,
            martians,
            route_leaks,
            beyond_max,
            last_reason: _,
        } = self;
        loops + rejected + first_as + martians + route_leaks + beyond_max
    }
}

/// Counters of a session, or of all members of a group together.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SendCounters {
    /// Messages, End-of-RIB included.
    pub messages: u64,
    /// UPDATEs with routes.
    pub updates: u64,
    /// Prefixes announced.
    pub announced: u64,
    /// Prefixes withdrawn.
    pub withdrawn: u64,
    /// Prefixes whose attributes do not fit a message of the session, withdrawn instead (RFC 8654 section 4).
    pub too_long: u64,
}

impl SendCounters {
    /// Prefixes per UPDATE; absent before the first.
    pub fn prefixes_per_update(&self) -> Option<f64> {
        (self.updates > 0).then(|| (self.announced + self.withdrawn) as f64 / self.updates as f64)
    }
}

/// `GET /v1/bgp/groups`: the update groups, those of one thread together.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Groups {
    /// The groups.
    pub groups: Vec<Group>,
}

/// An update group: neighbours with equal UPDATEs, packed once.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Group {
    /// Its name: the number of its update thread and its own.
    pub id: String,
    /// The thread that packs for it.
    pub update_thread: String,
    /// The configured groups of its members.
    pub configured: Vec<String>,
    /// The common settings as text.
    pub settings: Vec<String>,
    /// The members.
    pub members: Vec<GroupMember>,
    /// The number of distinct positions of its members: 1 if all keep up. Packing is done once for
    /// each.
    pub positions: usize,
    /// Prefixes that wait to be packed, counted for each position.
    pub waiting: u64,
    /// How often the write queue of a member became full.
    pub stops: u64,
    /// Counters, each message once for all members.
    pub sent: SendCounters,
    /// Prefixes in an UPDATE; absent before the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefixes_per_update: Option<f64>,
}

/// A member of an update group.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct GroupMember {
    /// The neighbour.
    pub address: ZonedAddress,
    /// Its group in the configuration.
    pub group: String,
    /// Whether its write queue is full.
    pub full: bool,
    /// Whether the group has continued without it.
    pub detached: bool,
    /// Whether a dump is not complete.
    pub joining: bool,
}

/// `POST /v1/bgp/clear`: one neighbour or all.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Clear {
    /// This neighbour: its address, with its interface as in `fe80::1%swp1`, or its interface alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// All neighbours.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// Exchange all routes again and keep the session, instead of ending it.
    #[serde(default)]
    pub soft: bool,
    /// A text of at most 255 bytes for the peer's operator (RFC 9003); not with `soft`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// The number of neighbours of a [`Clear`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Cleared {
    /// Neighbours.
    pub neighbors: usize,
}
