//! The Adj-RIB-Out of a neighbour.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `GET /v1/bgp/neighbors/ADDRESS/advertised`: a page of what a neighbour is sent.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AdvertisedPage {
    /// Routes, by prefix and path identifier. Without `all` only those that are sent, so a page may have fewer than
    /// `limit`; to a neighbour that gets several paths of a prefix, it may have more.
    pub routes: Vec<AdvertisedRoute>,
    /// Prefixes whose present state is not sent yet.
    pub waiting: u64,
    /// Whether the neighbour still waits for its first table, or for one that it requested.
    pub joining: bool,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A prefix, and what a neighbour is sent of it: one for each path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AdvertisedRoute {
    /// The prefix.
    pub prefix: String,
    /// The identifier with which the path is sent (RFC 7911).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_id: Option<u32>,
    /// The path as sent; absent if none is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentPath>,
    /// Seconds since the best path of the prefix last changed, as `age_seconds` of a path. A session that
    /// began later got it later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Sentences: the statements of the export policy, and why nothing is sent; with `prefix`, and with `all` where
    /// nothing is sent. Those of a prefix of which several paths are sent are at the first path.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reasons: Vec<String>,
}

/// A path in the form in which a neighbour is sent it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SentPath {
    /// The next hop.
    pub next_hop: IpAddr,
    /// The link-local next hop beside it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link_local: Option<Ipv6Addr>,
    /// The AS path, as text. A neighbour without AS numbers of four bytes gets AS_TRANS and AS4_PATH (RFC 6793).
    pub as_path: String,
    /// `igp`, `egp` or `incomplete`.
    pub origin: String,
    /// LOCAL_PREF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// MULTI_EXIT_DISC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// The accumulated IGP metric (RFC 7311).
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
