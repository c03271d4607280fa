//! The state of a virtual switch.

use schemars::JsonSchema;
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// `POST /v1/asic`: changes the behaviour of the virtual switch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SetAsic {
    /// The ASIC, if there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asic: Option<String>,
    /// Settings by name, each a number; and `stall`: seconds, `on` or `off`.
    #[serde(deserialize_with = "each_once")]
    pub set: BTreeMap<String, String>,
}

/// A map without repeated keys, because one of two values would be ignored.
fn each_once<'de, D: Deserializer<'de>>(deserializer: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct EachOnce;
    impl<'de> Visitor<'de> for EachOnce {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("settings by name, such as {\"rate\": \"20000\"}")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut given: A) -> Result<Self::Value, A::Error> {
            let mut map = BTreeMap::new();
            while let Some((name, value)) = given.next_entry::<String, String>()? {
                if map.contains_key(&name) {
                    return Err(A::Error::custom(format!("`{name}` is there twice; write it once")));
                }
                map.insert(name, value);
            }
            Ok(map)
        }
    }
    deserializer.deserialize_map(EachOnce)
}

/// `GET /v1/asic`, and the reply to a change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AsicState {
    /// Its behaviour: every setting by name.
    pub settings: BTreeMap<String, String>,
    /// Prefixes whose routes it refuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Ports that are enabled and have no link.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without_link: Vec<String>,
    /// Whether it is stalled.
    pub stalled: bool,
    /// The remaining seconds of the stall, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_seconds: Option<f64>,
    /// The number of entries by table.
    pub entries: BTreeMap<String, u64>,
    /// Calls to create, set or remove.
    pub calls: u64,
    /// Entries in them.
    pub requested: u64,
    /// Of these, failed entries.
    pub failed: u64,
    /// Busy seconds, if a latency is set.
    pub busy_seconds: f64,
    /// Remaining seconds of its calls.
    pub left_seconds: f64,
    /// Idle seconds between its first and last call with routes that took time.
    pub idle_seconds: f64,
}
