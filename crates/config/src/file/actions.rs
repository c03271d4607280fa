//! The actions of a policy's statement.

use super::{OriginName, PolicyResult};
use schemars::JsonSchema;
use serde::Deserialize;
use std::net::IpAddr;

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Actions {
    /// ORIGIN: `"igp"`, `"egp"` or `"incomplete"`.
    pub(crate) set_route_origin: Option<OriginName>,
    /// LOCAL_PREF: a number.
    pub(crate) set_local_pref: Option<u32>,
    /// MED: a number, or `"+10"`, `"-10"`. In export to an external peer it is sent; a MED that was received never
    /// is.
    pub(crate) set_med: Option<SetMed>,
    /// AIGP, the accumulated IGP metric: a number. It is sent where we are the next hop, to neighbours with `aigp`. Not in
    /// import.
    #[schemars(extend("x-see" = "#accumulated-igp-metric"))]
    pub(crate) set_aigp: Option<u64>,
    /// The next hop: an address (routes of the other family stay as they are), `"self"` (export only) or
    /// `"peer-address"` (import only).
    pub(crate) set_next_hop: Option<String>,
    /// ASes before the path: `{ asn = 65001, repeat-n = 3 }`; ours and 1 unless given. In export, our AS comes before
    /// it once more.
    pub(crate) set_as_path_prepend: Option<Prepend>,
    /// Communities: `add` (a list), `remove` (a list with patterns), `remove-set` (a set's name); or `replace` (a
    /// list) alone, in place of all communities of every kind.
    #[serde(default)]
    pub(crate) set_community: SetCommunity,
    /// The source address of packets of this machine over the route, in `fib.policy` and a VRF's `policy` only: an
    /// address, or a list of one of each family.
    #[schemars(extend("x-see" = "#fibpolicy"))]
    pub(crate) set_source: Option<SetSource>,
    /// What follows: `"accept"`, `"reject"`, `"next-statement"` or `"next-policy"`.
    #[schemars(extend("default" = "next-statement"))]
    pub(crate) policy_result: Option<PolicyResult>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "this is no source address; write one, or a list of at most one of each family"
)]
pub(crate) enum SetSource {
    One(IpAddr),
    Some(Vec<IpAddr>),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "this is no MED; write a number, or \"+10\" or \"-10\" for so much more or less"
)]
pub(crate) enum SetMed {
    Number(u32),
    Change(String),
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct Prepend {
    /// The AS; default ours.
    pub(crate) asn: Option<u32>,
    /// How often; default 1.
    pub(crate) repeat_n: Option<u8>,
}

#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(crate) struct SetCommunity {
    /// In place of all communities.
    pub(crate) replace: Option<Vec<String>>,
    /// Take away these, which may be patterns.
    #[serde(default)]
    pub(crate) remove: Vec<String>,
    /// Take away what is in this set.
    pub(crate) remove_set: Option<String>,
    /// Add these.
    #[serde(default)]
    pub(crate) add: Vec<String>,
}
