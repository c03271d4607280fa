//! Origin validation with the RPKI.

use super::PerFamilyCount;
use super::ZonedAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// `GET /v1/rpki`: the caches, and the size of the table.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Rpki {
    /// Caches, in the order of the configuration.
    pub caches: Vec<RpkiCache>,
    /// Payloads in use.
    pub payloads: PerFamilyCount,
    /// ASPA records in use: customers.
    #[serde(default)]
    pub aspas: u64,
    /// Tables of payloads since the start.
    pub tables: u64,
    /// Prefix filters of local exceptions.
    pub filters: usize,
    /// Prefix assertions of local exceptions.
    pub assertions: usize,
    /// Whether there are caches and none has records.
    pub degraded: bool,
}

/// A cache.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RpkiCache {
    /// Its address and port.
    pub address: SocketAddr,
    /// The local address, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// Whether the connection is TLS.
    #[serde(default)]
    pub tls: bool,
    /// Its preference; lower is better.
    pub preference: u8,
    /// `waiting`, `connecting`, `querying`, `receiving` or `idle`.
    pub state: String,
    /// Time to the next step: a query, an attempt to connect, or a timeout.
    pub next_seconds: u64,
    /// The version of RTR, once the cache has answered on this connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u8>,
    /// The Session ID.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session: Option<u16>,
    /// The Serial Number of its records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub serial: Option<u32>,
    /// Its records.
    pub records: PerFamilyCount,
    /// Its ASPA records: customers.
    #[serde(default)]
    pub aspas: u64,
    /// Time since its last complete answer, while its records are kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Whether its records are used.
    pub in_use: bool,
    /// The Refresh Interval in use.
    pub refresh_seconds: u32,
    /// The Retry Interval in use.
    pub retry_seconds: u32,
    /// The Expire Interval in use.
    pub expire_seconds: u32,
    /// Connections since the start.
    pub connects: u64,
    /// Connections and attempts that failed.
    pub failures: u64,
    /// The last failure since the last complete answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// `GET /v1/rpki/table`: a page of payloads.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RpkiTablePage {
    /// Payloads, by prefix.
    pub payloads: Vec<RpkiPayload>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A validated ROA payload.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RpkiPayload {
    /// The prefix.
    pub prefix: String,
    /// The longest permitted length.
    pub max_length: u8,
    /// The AS; 0 permits none.
    pub asn: u32,
}

/// `GET /v1/rpki/aspas`: a page of ASPA records.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RpkiAspaPage {
    /// Records, by customer.
    pub aspas: Vec<RpkiAspa>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// An ASPA record.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RpkiAspa {
    /// The customer AS.
    pub customer: u32,
    /// Its providers; 0 alone: it has none.
    pub providers: Vec<u32>,
}

/// `GET /v1/rpki/validation`: the state of a prefix with an origin AS.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RpkiValidation {
    /// The prefix.
    pub prefix: String,
    /// The origin AS; absent: NONE, as of a path that ends in an AS_SET.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asn: Option<u32>,
    /// `valid`, `invalid` or `not-found`.
    pub state: String,
    /// The payloads that cover the prefix, the longest first.
    pub covering: Vec<CoveringPayload>,
}

/// A payload that covers a prefix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct CoveringPayload {
    /// The payload.
    #[serde(flatten)]
    pub payload: RpkiPayload,
    /// Why it does not match; absent if it does.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatch: Option<String>,
}

/// `GET /v1/bgp/neighbors/ADDRESS/received`: a page of routes before import policy.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedPage {
    /// Routes, by prefix.
    pub routes: Vec<ReceivedRoute>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A route before import policy, with the attributes as received.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ReceivedRoute {
    /// The prefix.
    pub prefix: String,
    /// Its path identifier, in a session that has them (RFC 7911).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_id: Option<u32>,
    /// The next hop.
    pub next_hop: ZonedAddress,
    /// The link-local next hop beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_local: Option<Ipv6Addr>,
    /// The AS path, as text.
    pub as_path: String,
    /// `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// LOCAL_PREF, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC, when it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
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
    /// Whether the import policy accepts it.
    pub accepted: bool,
    /// The statement that decided, and why.
    pub decision: String,
    /// Seconds since the accepted path last changed, as `age_seconds` of a path. No time is kept of a rejected
    /// route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// The validation state, with origin validation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub validation: Option<String>,
    /// The verification state of the path with ASPA records, of an external neighbour with a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub aspa: Option<String>,
}
