//! Whether RIB, databases, kernel and chip agree.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::net::IpAddr;

/// `GET /v1/route-check`, and what the check of SONiC's daemons finds.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct RouteCheck {
    /// Whether everything was compared, or what changed since the last look.
    pub full: bool,
    /// Routes compared.
    pub checked: u64,
    /// Best paths of BGP, and BGP's candidates in the RIB manager, that were compared with each other.
    #[serde(default)]
    pub best_paths_checked: u64,
    /// Routes that differ.
    pub differing: u64,
    /// Of the differences that are told, those that a stage is at work on.
    pub under_way: u64,
    /// The first thousand, one by one.
    #[serde(default)]
    pub differences: Vec<Difference>,
    /// How many routes there are, by stage.
    pub routes: BTreeMap<String, u64>,
    /// The default routes.
    #[serde(default)]
    pub default_routes: Vec<DefaultRoute>,
    /// How long it took.
    pub milliseconds: f64,
}

/// A route that is not the same everywhere.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Difference {
    /// The VRF.
    pub vrf: String,
    /// The prefix.
    pub prefix: String,
    /// Who sent BGP's best path, where the difference is between BGP and what it fed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbor: Option<IpAddr>,
    /// The stage where the route is, or which has something else.
    pub stage: String,
    /// Where it should lead.
    pub rib: String,
    /// Where it leads instead.
    pub found: String,
    /// What it waits for, or what is wrong.
    pub says: String,
    /// Whether a stage is at work on it.
    pub under_way: bool,
}

/// A default route.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct DefaultRoute {
    /// `0.0.0.0/0` or `::/0`.
    pub prefix: String,
    /// Whether it forwards, all the way down.
    pub forwarded: bool,
    /// Where it leads, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leads: Option<String>,
}
