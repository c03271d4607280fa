//! Selected routes, and their state in dataplanes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

/// `GET /v1/fib`: a page of selected routes.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FibPage {
    /// Selected routes.
    pub routes: Vec<FibRoute>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A selected route.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
    /// The content of the group: [`BLACKHOLE`], [`UNRESOLVED`], or a [`FibNextHop`] each.
    pub hops: Vec<String>,
    /// Seconds since the route was last changed in the FIB: exact for some minutes, later to about a thirtieth of the age. A
    /// change of its group alone is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Its state in each dataplane: `kernel: installed`, ….
    pub dataplanes: Vec<DataplaneState>,
}

/// The content of a group that discards packets.
pub const BLACKHOLE: &str = "blackhole";
/// The content of a group without a next hop that resolves.
pub const UNRESOLVED: &str = "unresolved";

/// A next hop of a selected route, as text: `via 192.0.2.1 dev Ethernet0 weight 3`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct FibNextHop {
    /// The gateway; `None`: the interface alone.
    pub gateway: Option<IpAddr>,
    /// The name of the interface.
    pub interface: String,
    /// Its weight, if there are several next hops.
    pub weight: Option<u16>,
}

impl fmt::Display for FibNextHop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(gateway) = self.gateway {
            write!(f, "via {gateway} ")?;
        }
        write!(f, "dev {}", self.interface)?;
        self.weight.map_or(Ok(()), |weight| write!(f, " weight {weight}"))
    }
}

impl FromStr for FibNextHop {
    type Err = String;

    fn from_str(text: &str) -> Result<FibNextHop, String> {
        let parse = || {
            let mut words = text.split(' ');
            let mut word = words.next()?;
            let gateway = match word {
                "via" => {
                    let gateway = words.next()?.parse().ok()?;
                    word = words.next()?;
                    Some(gateway)
                }
                _ => None,
            };
            let interface = words.next().filter(|_| word == "dev")?.to_owned();
            let weight = match words.next() {
                None => None,
                Some("weight") => Some(words.next()?.parse().ok()?),
                Some(_) => return None,
            };
            words.next().is_none().then_some(FibNextHop { gateway, interface, weight })
        };
        parse().ok_or_else(|| format!("\"{text}\" is no next hop"))
    }
}

/// `POST /v1/fib/lookup`: prefixes to look up among the selected routes, at most 10,000.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FibPrefixes {
    /// The VRF; default: the default one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vrf: Option<String>,
    /// The prefixes, each matched exactly.
    pub prefixes: Vec<String>,
}

/// The reply to [`FibPrefixes`].
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FibLookups {
    /// The routes, in the order of the prefixes; `null`: none is selected.
    pub routes: Vec<Option<FibRoute>>,
}

/// A route in one dataplane.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct FailedPage {
    /// Failed routes, one for each dataplane.
    pub routes: Vec<FailedRoute>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A route that a dataplane could not install.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SetSuppression {
    /// `true` or `false`.
    pub suppress_fib_pending: bool,
}

/// The result.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Fpm {
    /// One for each configured server.
    pub clients: Vec<FpmClient>,
}

/// The counters of an FPM client.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
    /// Whether the server's table is compared with what was sent: only ribtide's server offers that.
    #[serde(default)]
    pub is_compared: bool,
    /// Routes of the server that were compared.
    #[serde(default)]
    pub compared_routes: u64,
    /// Complete comparisons.
    #[serde(default)]
    pub compare_rounds: u64,
    /// The duration of the last complete comparison.
    #[serde(default)]
    pub compare_round_seconds: f64,
    /// Differences that were repaired, by their kind.
    #[serde(default)]
    pub repairs: BTreeMap<String, u64>,
    /// Differences that were there again in the round after their repair.
    #[serde(default)]
    pub repairs_failed: u64,
}

/// `POST /v1/asic/lookup`: addresses to look up in the virtual ASIC, at most 65,536.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
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
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AsicLookups {
    /// The forwarding of each address.
    pub lookups: Vec<AsicLookup>,
}

/// The forwarding of a packet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hop_as_text_is_read_back() {
        for text in [
            "dev Ethernet0",
            "via 192.0.2.1 dev Ethernet0",
            "via fe80::1 dev Vlan100 weight 3",
            "dev Vrfred weight 65535",
        ] {
            assert_eq!(text.parse::<FibNextHop>().map(|hop| hop.to_string()), Ok(text.to_owned()));
        }
        for text in
            ["", "blackhole", "via", "via 192.0.2.1", "via x dev y", "dev", "dev a weight", "dev a mtu 9"]
        {
            assert!(text.parse::<FibNextHop>().is_err(), "{text}");
        }
    }
}
