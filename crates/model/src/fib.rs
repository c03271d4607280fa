//! Selected routes, and their state in dataplanes.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

/// `GET /v1/fib`: a page of selected routes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FibPage {
    /// Selected routes.
    pub routes: Vec<FibRoute>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A selected route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FibRoute {
    /// The VRF; the default one is `default`.
    pub vrf: String,
    /// The prefix.
    pub prefix: String,
    /// The protocol: `connected`, `static`, `ebgp`, ….
    pub protocol: String,
    /// Administrative distance.
    pub distance: u8,
    /// The next-hop group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
    /// The content of the group.
    pub hops: Vec<String>,
    /// Its state in each dataplane: `kernel: installed`, ….
    pub dataplanes: Vec<DataplaneState>,
}

/// A route in one dataplane.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DataplaneState {
    /// Its name.
    pub name: String,
    /// `installed`, `pending` or `failed`.
    pub state: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// `GET /v1/fib/failed`: a page of failed routes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedPage {
    /// Failed routes, one for each dataplane.
    pub routes: Vec<FailedRoute>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A route that a dataplane could not install.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct FailedRoute {
    /// The VRF; the default one is `default`.
    pub vrf: String,
    /// The prefix.
    pub prefix: String,
    /// The dataplane.
    pub dataplane: String,
    /// Time since the first failure.
    pub seconds: f64,
    /// Why it failed, in a sentence.
    pub reason: String,
}

/// `POST /v1/fib/suppression`: turns FIB suppression on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SetSuppression {
    /// `true` or `false`.
    pub suppress_fib_pending: bool,
}

/// The result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SuppressionSet {
    /// The former state.
    pub from: bool,
    /// The new state.
    pub to: bool,
}

impl fmt::Display for SuppressionSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let before = if self.from == self.to { ", as before" } else { " from now on" };
        match self.to {
            true => write!(f, "BGP advertises what every dataplane has confirmed{before}"),
            false => write!(f, "BGP advertises its best paths without waiting for dataplanes{before}"),
        }
    }
}

/// `GET /v1/fpm`: the FPM clients.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Fpm {
    /// One for each configured server.
    pub clients: Vec<FpmClient>,
}

/// The counters of an FPM client.
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
    /// Connections closed because of invalid bytes from the server.
    pub errors: u64,
    /// Batches of the RIB manager that were written.
    pub batches: u64,
    /// Waiting batches.
    pub waiting: u64,
    /// How often the queue of batches was full.
    pub queue_full: u64,
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
    /// Replies that are not, or may not be, about the last message of a route.
    pub unmatched: u64,
    /// Routes sent again, because it was unclear which message a reply was about.
    #[serde(default)]
    pub resent: u64,
    /// When the server confirms a route: `in-chip` or `at-once`; absent if unknown: only ribtide's
    /// announces it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<String>,
    /// Why that does not fit `fib.suppress-fib-pending`, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
}

/// `POST /v1/asic/lookup`: addresses to look up in the virtual ASIC, at most 65,536.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AsicAddresses {
    /// The ASIC, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asic: Option<String>,
    /// The VRF; default: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

/// `POST /v1/asic/faults`: makes the virtual ASIC refuse routes, or accept them again.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AsicFaults {
    /// The ASIC, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asic: Option<String>,
    /// The prefixes.
    #[serde(default)]
    pub prefixes: Vec<String>,
    /// Whether it refuses them.
    #[serde(default)]
    pub refuse: bool,
    /// Changes of its objects behind syncd's back, in the format of `alter` of syncd's query socket.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub alter: Vec<String>,
}

impl fmt::Display for AsicFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.asic.as_deref().unwrap_or("the virtual ASIC");
        if !self.alter.is_empty() {
            return write!(f, "{name} was changed: {}", self.alter.join(", "));
        }
        let does = if self.refuse { "refuses" } else { "takes" };
        write!(f, "{name} {does} {} from now on", self.prefixes.join(", "))
    }
}

/// The reply to [`AsicAddresses`], in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AsicLookups {
    /// The forwarding of each address.
    pub lookups: Vec<AsicLookup>,
}

/// The forwarding of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AsicLookup {
    /// The entry that matched, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefix: Option<String>,
    /// `forward`, `drop` or `to-cpu`.
    pub action: String,
    /// Next hops, when forwarded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub next_hops: Vec<IpAddr>,
}
