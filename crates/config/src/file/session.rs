//! Settings of a session that have several forms.

use super::GroupKind;
use schemars::JsonSchema;
use serde::Deserialize;

/// `true`, or `true` with a text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "write true, false, or a text for the peer's operator, such as \"back at ten\""
)]
pub(crate) enum Shutdown {
    Switch(bool),
    Text(String),
}

/// An AS number, or a kind of AS.
#[derive(Clone, Copy, Debug, Deserialize, JsonSchema)]
#[serde(
    untagged,
    expecting = "write an AS number from 1 to 4294967295, \"external\" for any AS but ours, or \"internal\" for ours"
)]
pub(crate) enum PeerAsn {
    Number(u32),
    Kind(GroupKind),
}
