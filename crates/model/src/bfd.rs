//! BFD.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `GET /v1/bfd`: the sessions, by address, or those with one address.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Bfd {
    /// Sessions.
    pub sessions: Vec<BfdSession>,
    /// Packets discarded since the start, by reason.
    pub discarded: BTreeMap<String, u64>,
}

/// A BFD session. Intervals are in milliseconds.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct BfdSession {
    /// The neighbour.
    pub peer: IpAddr,
    /// The interface of a link-local address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Our address, where it is configured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub local: Option<IpAddr>,
    /// Whether the neighbour may be several hops away.
    pub multihop: bool,
    /// `AdminDown`, `Down`, `Init` or `Up`.
    pub state: String,
    /// Why it went down last.
    pub diagnostic: String,
    /// The state at the neighbour's, as far as we know it.
    pub remote_state: String,
    /// Why it went down there last.
    pub remote_diagnostic: String,
    /// Whether next hops may lead to the neighbour.
    pub usable: bool,
    /// Whether a neighbour of BGP has it.
    pub bgp: bool,
    /// Our number for it.
    pub discriminator: u32,
    /// The neighbour's number for it; 0: not known.
    pub remote_discriminator: u32,
    /// How often we send, before jitter; absent while the neighbour wants no packets.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tx_ms: Option<f64>,
    /// How often we expect packets.
    pub rx_ms: f64,
    /// After so long without a packet it is down.
    pub detection_ms: f64,
    /// How long it has been in its state.
    pub state_seconds: f64,
    /// Packets sent.
    pub sent: u64,
    /// Packets received.
    pub received: u64,
    /// How often it went down from up.
    pub flaps: u64,
    /// Why the last packet could not be sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
