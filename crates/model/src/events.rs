//! `GET /v1/events`: server-sent events.

use super::ZonedAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The data of an event `route`: the best path in force of a prefix changed, also where an aggregate suppresses the prefix.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RouteEvent {
    /// When the API got it, in UTC (RFC 3339).
    pub timestamp: String,
    /// The prefix.
    pub prefix: String,
    /// `ipv4-unicast` or `ipv6-unicast`.
    pub family: String,
    /// The former best path; absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<EventPath>,
    /// The new best path; absent: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<EventPath>,
}

/// A best path.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct EventPath {
    /// The neighbour that sent it; absent for originated ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbor: Option<ZonedAddress>,
    /// The source of a route that this router originates, such as `network`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub originated: Option<String>,
    /// Its next hop.
    pub next_hop: ZonedAddress,
    /// Its AS path.
    pub as_path: String,
}

/// The data of an event `lost`: events between the last one and the next are missing.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LostEvents {
    /// Which: `log` or `route`.
    pub of: String,
    /// How many; absent where that is not known. Those that a filter leaves out count, too.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub events: Option<u64>,
    /// Why, as a sentence.
    pub reason: String,
}
