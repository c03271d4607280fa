//! What the API says, as JSON: the types that the server fills and that `ribtide show` prints.
//!
//! Times are in seconds, sizes in bytes. A field that does not apply is absent.

mod change;

pub use change::*;

use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// `GET /v1/bgp/summary`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct BgpSummary {
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// Our AS.
    pub asn: u32,
    /// Shard threads; 0 where the session thread hosts the shard (`off`).
    pub shard_threads: usize,
    /// Egress worker threads; 0 where the session thread hosts the worker (`off`).
    pub update_threads: usize,
    /// Prefixes in the Loc-RIB.
    pub prefixes: PerFamilyCount,
    /// Paths in all Adj-RIB-Ins.
    pub paths: PerFamilyCount,
    /// Every configured neighbour and every dynamic one that is here.
    pub neighbors: Vec<Neighbor>,
}

/// A count for each family.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct PerFamilyCount {
    /// IPv4 unicast.
    pub ipv4: u64,
    /// IPv6 unicast.
    pub ipv6: u64,
}

impl PerFamilyCount {
    /// Both together.
    pub fn total(&self) -> u64 {
        self.ipv4 + self.ipv6
    }
}

/// A neighbour: `GET /v1/bgp/neighbors/ADDRESS`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Neighbor {
    /// Its address.
    pub address: IpAddr,
    /// Its group in the configuration.
    pub group: String,
    /// What its operator calls it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its AS, configured or learnt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asn: Option<u32>,
    /// `external`, `internal` or `client`.
    pub kind: String,
    /// State of RFC 4271 section 8.2.2.
    pub state: String,
    /// How long it has been in this state.
    pub state_seconds: u64,
    /// How often an established session was lost.
    pub flaps: u64,
    /// Why the last session ended or could not start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// What an established session agreed on and does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<Session>,
}

/// An established session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// The peer's BGP identifier.
    pub router_id: Ipv4Addr,
    /// Our address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local_address: Option<IpAddr>,
    /// Families in use.
    pub families: Vec<String>,
    /// Hold time agreed on.
    pub hold_time: u16,
    /// 4-octet AS numbers (RFC 6793).
    pub four_octet_as: bool,
    /// Extended messages (RFC 8654).
    pub extended_messages: bool,
    /// Route refresh (RFC 2918).
    pub route_refresh: bool,
    /// Paths learnt and held, after import.
    pub received: PerFamilyCount,
    /// Prefixes advertised and not withdrawn. What still waits to be sent does not count.
    pub advertised: PerFamilyCount,
    /// Counters of what came in.
    pub counters: ReceiveCounters,
    /// UPDATE messages sent.
    pub updates_sent: u64,
    /// Bytes that wait to be written.
    pub queued_bytes: u64,
    /// Whether its write queue is full, so that its update group goes on without it.
    pub blocked: bool,
}

/// What came in on a session.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct ReceiveCounters {
    /// UPDATE messages.
    pub updates: u64,
    /// Prefixes announced.
    pub announced: u64,
    /// Prefixes withdrawn.
    pub withdrawn: u64,
    /// UPDATEs treated as withdrawals (RFC 7606).
    pub treated_as_withdraw: u64,
    /// Attributes discarded (RFC 7606).
    pub discarded_attributes: u64,
    /// Announcements refused for a loop (our AS, our cluster, our router id).
    pub loops: u64,
    /// Announcements refused by the import policy.
    pub rejected: u64,
    /// The last reason for any of these.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_reason: Option<String>,
}

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
    /// Its paths, best first.
    pub paths: Vec<Path>,
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

/// `GET /v1/fib`: a page of what the RIB manager selected.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FibPage {
    /// Selected routes.
    pub routes: Vec<FibRoute>,
    /// Ask again with this `cursor`; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A selected route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FibRoute {
    /// The prefix.
    pub prefix: String,
    /// Whose route: `connected`, `static`, `bgp-external`, ….
    pub protocol: String,
    /// Administrative distance.
    pub distance: u8,
    /// The next-hop group that dataplanes know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// What the group does.
    pub hops: Vec<String>,
    /// What became of it in each dataplane: `kernel: installed`, ….
    pub dataplanes: Vec<DataplaneState>,
}

/// A route in one dataplane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DataplaneState {
    /// Which.
    pub name: String,
    /// `installed`, `pending` or `failed`.
    pub state: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET /v1/explain`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Explain {
    /// What was asked.
    pub asked: String,
    /// The prefix that answers: the one asked, or the longest match of an address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// Every stage, in the order of the route's way.
    pub stages: Vec<ExplainStage>,
    /// Where the route is, in a sentence.
    pub conclusion: String,
}

/// One stage's word on a prefix.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ExplainStage {
    /// The stage.
    pub stage: String,
    /// Whether the route got through.
    pub state: StageState,
    /// What the stage knows, a line each.
    pub says: Vec<String>,
}

/// How far a route came in a stage.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StageState {
    /// Through.
    Passed,
    /// In here, waiting.
    Waiting,
    /// It ends here.
    Stopped,
    /// Never came.
    Absent,
    /// This stage does not run here.
    Off,
}

/// `GET /v1/pipeline`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pipeline {
    /// What the stages did.
    pub stages: Vec<Stage>,
    /// What lies between them.
    pub rings: Vec<Ring>,
    /// CPU seconds of each thread.
    pub threads: Vec<Thread>,
    /// Peak resident memory of the process.
    pub peak_memory_bytes: u64,
}

/// A stage's meter.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Stage {
    /// Its name.
    pub name: String,
    /// Route changes handled.
    pub routes: u64,
    /// In how many batches.
    pub batches: u64,
    /// Seconds at work.
    pub busy_seconds: f64,
    /// Seconds from the start of the process to its first batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_seconds: Option<f64>,
    /// Seconds from the start of the process to the end of its last batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_seconds: Option<f64>,
}

/// A queue.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Ring {
    /// From where to where.
    pub name: String,
    /// Its bound in batches.
    pub capacity: usize,
    /// Batches in it.
    pub depth: u64,
    /// The most it ever held.
    pub peak: u64,
    /// Batches that went through.
    pub sent: u64,
    /// How often a producer had to wait.
    pub full: u64,
}

/// A thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Thread {
    /// Its name.
    pub name: String,
    /// CPU seconds.
    pub cpu_seconds: f64,
}

/// `GET /v1/fpm`: the FPM clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fpm {
    /// One for each server that is configured.
    pub clients: Vec<FpmClient>,
}

/// What an FPM client did since the start.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FpmClient {
    /// The dataplane's name.
    pub name: String,
    /// The server.
    pub server: SocketAddr,
    /// Whether there is a connection now.
    pub connected: bool,
    /// Connections made.
    pub connects: u64,
    /// Attempts to connect that failed.
    pub failed_connects: u64,
    /// Connections that ended.
    pub closes: u64,
    /// Routes sent, replacements included.
    pub routes: u64,
    /// Deletions sent.
    pub deletes: u64,
    /// Bytes written.
    pub bytes_sent: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Seconds spent waiting for the server to read.
    pub stalled_seconds: f64,
    /// Replies that said a route is in hardware.
    pub offloaded: u64,
    /// Replies that said the hardware refused a route.
    pub offload_failed: u64,
}

/// `POST /v1/asic/lookup`: addresses to look up in the virtual ASIC, at most 65,536.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AsicQuestion {
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

/// Its answer, in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AsicAnswers {
    /// What the chip would do with a packet to each.
    pub answers: Vec<AsicAnswer>,
}

/// What the chip does with a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsicAnswer {
    /// The entry that matched, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// `forward`, `drop` or `to-cpu`.
    pub action: String,
    /// Next hops, when forwarded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_hops: Vec<IpAddr>,
}

/// `POST /v1/bgp/clear`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Clear {
    /// Which neighbour; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Exchange all routes again and keep the session, instead of ending it.
    #[serde(default)]
    pub soft: bool,
}

/// How many neighbours a [`Clear`] concerned.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Cleared {
    /// Neighbours.
    pub neighbors: usize,
}

/// An error, as every endpoint gives it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApiError {
    /// What went wrong, in a sentence.
    pub error: String,
}
