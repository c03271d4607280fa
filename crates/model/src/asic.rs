//! The virtual switch itself: how it behaves, what it holds, what it did.

use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// `POST /v1/asic`: how the virtual switch is to behave from now on.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SetAsic {
    /// Which, where there are several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asic: Option<String>,
    /// Settings by name, each a number; and `stall`: seconds, `on` or `off`.
    #[serde(deserialize_with = "each_once")]
    pub set: BTreeMap<String, String>,
}

/// A map with no name twice: of two values, one would be ignored.
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

/// `GET /v1/asic`, and the answer to a change.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct AsicState {
    /// How it behaves: every setting by name.
    pub settings: BTreeMap<String, String>,
    /// Prefixes whose routes it refuses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
    /// Whether it does nothing now.
    pub stalled: bool,
    /// For how many seconds more, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled_seconds: Option<f64>,
    /// What is in it, by the name of the table.
    pub entries: BTreeMap<String, u64>,
    /// Calls that it was asked.
    pub calls: u64,
    /// Entries in them.
    pub asked: u64,
    /// Of these, entries that were not done as asked.
    pub failed: u64,
    /// Seconds that it worked, where a latency is set.
    pub busy_seconds: f64,
    /// Seconds that it will still work on what it was asked.
    pub left_seconds: f64,
    /// Seconds that it had nothing to do between its first call about routes that took time and its last.
    pub idle_seconds: f64,
}
