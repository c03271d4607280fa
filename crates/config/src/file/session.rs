//! Settings of a session that have several forms.

use schemars::JsonSchema;
use serde::Deserialize;

/// `true`, or `true` with a text.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write true, false, or a text for the peer's operator, such as \"back at ten\"")]
pub(crate) enum Shutdown {
    Switch(bool),
    Text(String),
}
