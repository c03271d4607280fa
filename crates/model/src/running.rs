//! The configuration in force, and the log.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// `GET /v1/configuration`: the configuration in force.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct RunningConfiguration {
    /// The file that it was read from, at the start or the last reload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<PathBuf>,
    /// Its text at that time, TOML without comments, with `"********"` in the place of each secret.
    pub text: String,
    /// Settings that `ribtide config` has changed since, and their values now; a reload sets them back.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub changed: BTreeMap<String, String>,
}

/// `GET /v1/log`: the latest events of the log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogPage {
    /// Events, the oldest first.
    pub events: Vec<LogEvent>,
    /// The number of the last event that was looked at: `after` of the next request.
    pub last: u64,
}

/// An event of the log.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LogEvent {
    /// Its number, from 1 since the start.
    pub number: u64,
    /// Its time, in UTC (RFC 3339).
    pub timestamp: String,
    /// `ERROR`, `WARN`, `INFO` or `DEBUG`.
    pub level: String,
    /// The stage.
    pub target: String,
    /// What happened, as a sentence.
    pub message: String,
    /// The values of its keys.
    pub fields: BTreeMap<String, serde_json::Value>,
}
