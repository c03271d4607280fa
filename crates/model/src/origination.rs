//! Routes that this router originates.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::IpAddr;

/// `GET /v1/bgp/aggregates`: the configured aggregates.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Aggregates {
    /// In the order of their prefixes.
    pub aggregates: Vec<Aggregate>,
}

/// An aggregate.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Aggregate {
    /// Its prefix.
    pub prefix: String,
    /// Whether it has a contributor, and so is originated.
    pub active: bool,
    /// Its contributors: advertised best paths inside its prefix.
    pub contributors: u64,
    /// The contributors that are not advertised: `none`, `all`, or those that the named policies accept.
    pub suppresses: String,
    /// The names of its policies.
    pub policy: String,
}

/// `POST /v1/bgp/originated`: routes to originate for a client of the API.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddRoutes {
    /// The name under which the client has them.
    pub owner: String,
    /// Seconds after which they are withdrawn, unless they are sent again; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u32>,
    /// Whether they take the place of all that the owner has.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replace: bool,
    /// The routes.
    #[serde(default)]
    pub routes: Vec<AddRoute>,
}

/// A route to originate.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AddRoute {
    /// The prefix.
    pub prefix: String,
    /// The next hop, of the family of the prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_hop: Option<IpAddr>,
    /// Whether packets are discarded, in place of a next hop.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub discard: bool,
    /// MULTI_EXIT_DISC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub med: Option<u32>,
    /// LOCAL_PREF.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local_pref: Option<u32>,
    /// Communities of every kind, as in the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub communities: Vec<String>,
}

/// `POST /v1/bgp/originated/withdraw`: routes of an owner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WithdrawRoutes {
    /// The owner.
    pub owner: String,
    /// The prefixes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub prefixes: Vec<String>,
    /// All of the owner, in place of prefixes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
}

/// What such a request changed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RoutesChanged {
    /// The owner.
    pub owner: String,
    /// Routes that are new, or have other attributes.
    pub announced: usize,
    /// Routes that only expire later.
    pub refreshed: usize,
    /// Withdrawn routes.
    pub withdrawn: usize,
}

impl fmt::Display for RoutesChanged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RoutesChanged { owner, announced, refreshed, withdrawn } = self;
        write!(f, "routes of {owner}: {announced} announced, {refreshed} refreshed, {withdrawn} withdrawn")
    }
}

/// `GET /v1/bgp/originated`: a page of the routes of API clients.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OwnedRoutePage {
    /// The routes, in the order of their prefixes.
    pub routes: Vec<OwnedRoute>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A route of a client of the API.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct OwnedRoute {
    /// Its owner.
    pub owner: String,
    /// Seconds until it is withdrawn; absent: never.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires: Option<u64>,
    /// What the client sent.
    #[serde(flatten)]
    pub route: AddRoute,
}
