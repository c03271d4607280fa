//! `GET /v1/bgp/neighbors/ADDRESS/messages`: the flight recorder of a neighbour.

use super::ZonedAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, Ipv4Addr};

/// The last messages exchanged with a neighbour.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecordedMessages {
    /// The neighbour.
    pub address: ZonedAddress,
    /// `bgp.recorder-bytes`: what is kept of received messages, of sent UPDATEs, and of other sent messages each; 0: nothing.
    pub recorder_bytes: u64,
    /// The established session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<RecordedSession>,
    /// Since the last session ended, or since the start: of the established session, and of attempts at one. In the order of
    /// time. KEEPALIVEs are left out.
    pub messages: Vec<RecordedMessage>,
    /// What was exchanged before the last session was lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<LostMessages>,
}

/// `GET /v1/bgp/neighbors/ADDRESS/messages/mrt`: the same as MRT records.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct MrtMessages {
    /// Messages in the records.
    pub messages: u64,
    /// Records of type BGP4MP_ET in hexadecimal digits: those of the lost session first, then the others, and the states of
    /// both sessions. `ribtide dump messages` writes them into a file and prints this as empty.
    pub records: String,
}

/// The end of a session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LostMessages {
    /// The session.
    pub session: RecordedSession,
    /// When it ended, in UTC (RFC 3339).
    pub ended: String,
    /// Time since then.
    pub seconds: u64,
    /// Its last messages, and those of attempts before it, in the order of time.
    pub messages: Vec<RecordedMessage>,
}

/// The facts of a session that its messages depend on.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecordedSession {
    /// When it was established, in UTC (RFC 3339).
    pub established: String,
    /// The peer's AS.
    pub peer_asn: u32,
    /// Our AS as the peer knows it.
    pub local_asn: u32,
    /// The peer's BGP identifier.
    pub router_id: Ipv4Addr,
    /// Our address.
    pub local_address: IpAddr,
    /// Both sides have 4-octet AS numbers, so AS paths in UPDATEs have them (RFC 6793).
    pub four_octet_as: bool,
}

/// A message.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RecordedMessage {
    /// When it was read, or queued to be sent, in UTC (RFC 3339).
    pub timestamp: String,
    /// `received` or `sent`.
    pub direction: String,
    /// `OPEN`, `UPDATE`, `NOTIFICATION` or `ROUTE-REFRESH`.
    pub kind: String,
    /// Its bytes.
    pub length: u64,
    /// What it says, as text.
    pub summary: String,
    /// Whether its prefixes have path identifiers (RFC 7911).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub path_ids: bool,
    /// The whole message in hexadecimal digits, marker included.
    pub bytes: String,
}
