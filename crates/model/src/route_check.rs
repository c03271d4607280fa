//! The comparison of RIB, databases, kernel and chip.

use super::ZonedAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `GET /v1/route-check`, and the result of the check of SONiC's daemons.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct RouteCheck {
    /// Whether everything was compared, or changes since the last check.
    pub full: bool,
    /// Routes compared.
    pub checked: u64,
    /// Compared best paths of BGP and candidates of BGP in the RIB manager.
    #[serde(default)]
    pub best_paths_checked: u64,
    /// Routes that differ.
    pub differing: u64,
    /// Of the reported differences, those under way.
    pub under_way: u64,
    /// The first thousand differences.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// The number of routes, by stage.
    pub routes: BTreeMap<String, u64>,
    /// The default routes.
    #[serde(default)]
    pub default_routes: Vec<DefaultRoute>,
    /// What could not be compared, and why; a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_compared: Vec<String>,
    /// The time of the check.
    pub milliseconds: f64,
}

/// A differing route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// The VRF.
    pub vrf: String,
    /// The prefix.
    pub prefix: String,
    /// The peer of the best path, if BGP and its feed differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbor: Option<ZonedAddress>,
    /// The stage at which the route waits or differs.
    pub stage: String,
    /// The expected next hops.
    pub rib: String,
    /// The next hops found.
    pub found: String,
    /// The reason.
    pub message: String,
    /// Whether a stage is processing it.
    pub under_way: bool,
}

/// A default route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct DefaultRoute {
    /// `0.0.0.0/0` or `::/0`.
    pub prefix: String,
    /// Whether it forwards, down to the chip.
    pub forwarded: bool,
    /// Its next hops, if it exists.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hops: Option<String>,
}
