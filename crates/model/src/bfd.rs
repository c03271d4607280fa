//! BFD.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `GET /v1/bfd`: the sessions, by address, or those with one address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Bfd {
    /// Sessions.
    pub sessions: Vec<BfdSession>,
    /// Packets discarded since the start, by reason.
    pub discarded: BTreeMap<String, u64>,
}

/// A BFD session. Intervals are in milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BfdSession {
    /// The neighbour.
    pub peer: IpAddr,
    /// The interface of a link-local address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The local address, if configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// Whether the neighbour may be several hops away.
    pub multihop: bool,
    /// `AdminDown`, `Down`, `Init` or `Up`.
    pub state: String,
    /// The diagnostic of the last failure.
    pub diagnostic: String,
    /// The last received state of the neighbour.
    pub remote_state: String,
    /// The last received diagnostic.
    pub remote_diagnostic: String,
    /// Whether next hops may use the neighbour.
    pub usable: bool,
    /// Whether a BGP neighbour uses it.
    pub bgp: bool,
    /// The local discriminator.
    pub discriminator: u32,
    /// The remote discriminator; 0: unknown.
    pub remote_discriminator: u32,
    /// The transmit interval before jitter; absent while the neighbour wants no packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_ms: Option<f64>,
    /// The receive interval.
    pub rx_ms: f64,
    /// The detection time.
    pub detection_ms: f64,
    /// Time in the present state.
    pub state_seconds: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
    /// Transitions from up to down.
    pub flaps: u64,
    /// Why the last packet could not be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
