//! VRFs and static routes.

use crate::{ProtocolCount, Tracked};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// `GET /v1/vrfs`: the default VRF, and those of the configuration.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Vrfs {
    /// VRFs.
    pub vrfs: Vec<Vrf>,
}

/// A VRF.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Vrf {
    /// Its name; the default one is `default`.
    pub name: String,
    /// The kernel's routing table; absent if no route goes to the kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// The kernel's VRF device, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// Its interfaces.
    pub interfaces: Vec<String>,
    /// Static routes of the configuration.
    pub static_routes: usize,
    /// Routes by family and protocol; empty without a FIB.
    pub protocols: Vec<ProtocolCount>,
    /// Next-hop groups.
    pub next_hop_groups: usize,
    /// Whether BGP runs in it.
    pub bgp: bool,
}

/// `GET /v1/static-routes`: the static routes of the configuration, of one VRF or all.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StaticRoutes {
    /// Routes in the order of the configuration, those of the default VRF first.
    pub routes: Vec<StaticRoute>,
}

/// A static route.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StaticRoute {
    /// The VRF; the default one is `default`.
    pub vrf: String,
    /// Its prefix.
    pub prefix: String,
    /// Its administrative distance.
    pub distance: u8,
    /// Whether it discards packets; then it has no next hop.
    pub blackhole: bool,
    /// Its next hops, each with the route that it resolves through, or why it does not resolve.
    pub next_hops: Vec<StaticNextHop>,
    /// Gateways that stand in while no next hop resolves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backup: Vec<StaticNextHop>,
    /// Whether the backup is in use.
    #[serde(default)]
    pub on_backup: bool,
    /// What it tracks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracks: Option<Tracked>,
    /// Whether BFD watches its gateways.
    #[serde(default)]
    pub bfd: bool,
    /// Whether it is selected and goes to the dataplanes.
    pub selected: bool,
    /// Why it is not selected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its next-hop group; absent while it waits for an interface.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<u32>,
}

/// A next hop of a static route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct StaticNextHop {
    /// The gateway; absent: the interface alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
    /// The interface, if the configuration names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// The route that it resolves through; absent if none is needed or none exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub through: Option<String>,
    /// Why it does not resolve.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unresolved: Option<String>,
}
