//! What the RIB manager selected, and what dataplanes did with it.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{IpAddr, SocketAddr};

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
    /// The VRF; the default one is `default`.
    pub vrf: String,
    /// The prefix.
    pub prefix: String,
    /// Whose route: `connected`, `static`, `ebgp`, ….
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

/// `GET /v1/fib/failed`: a page of what dataplanes could not install.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FailedPage {
    /// Routes that failed, one for each dataplane that failed it.
    pub routes: Vec<FailedRoute>,
    /// Ask again with this `cursor`; absent at the end.
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
    /// By whom.
    pub dataplane: String,
    /// For how long, further attempts included.
    pub seconds: f64,
    /// Why it failed, in a sentence.
    pub reason: String,
}

/// `POST /v1/fib/suppression`: whether BGP advertises only what dataplanes confirmed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SetSuppression {
    /// `true` or `false`.
    pub suppress_fib_pending: bool,
}

/// What that did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SuppressionSet {
    /// Whether it did so before.
    pub from: bool,
    /// Whether it does now.
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
    /// Of those, how many for what the server sent: bytes that are no FPM.
    pub errors: u64,
    /// Batches of the RIB manager that were written.
    pub batches: u64,
    /// Batches that wait now.
    pub waiting: u64,
    /// How often the RIB manager found the queue of batches full, and waited.
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
    /// Replies of either kind that are not about a route as it was told last, or may not be, which count for nothing.
    pub unmatched: u64,
    /// Routes told once more, because it was unsure which change a reply was about.
    #[serde(default)]
    pub asked_again: u64,
    /// When the server replies that a route is in hardware: `in-chip` or `at-once`; absent where it does not say, as none but ribtide's
    /// does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replies: Option<String>,
    /// Why that does not fit `fib.suppress-fib-pending`, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disagreement: Option<String>,
}

/// `POST /v1/asic/lookup`: addresses to look up in the virtual ASIC, at most 65,536.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AsicQuestion {
    /// Which, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asic: Option<String>,
    /// In this VRF; without, in the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// The addresses.
    pub addresses: Vec<IpAddr>,
}

/// `POST /v1/asic/faults`: routes that the virtual ASIC is to refuse, or no longer.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AsicFaults {
    /// Which ASIC, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asic: Option<String>,
    /// The prefixes.
    pub prefixes: Vec<String>,
    /// Whether it refuses them.
    pub refuse: bool,
}

impl fmt::Display for AsicFaults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = if self.refuse { "refuses" } else { "takes" };
        let name = self.asic.as_deref().unwrap_or("the virtual ASIC");
        write!(f, "{name} {does} {} from now on", self.prefixes.join(", "))
    }
}

/// The answer to an [`AsicQuestion`], in the same order.
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
