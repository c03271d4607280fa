//! Keys of objects without an id, and their text in sairedis: JSON with the members in the order of their names.

use crate::value::{ValueError, wrong};
use crate::{ObjectType, Value, ValueType, json};
use serde_json::Value as Json;

/// The values of a key's members, in the order of [`ObjectType::key`].
pub type Key = Vec<Value>;

/// The names of members that sairedis calls differently: `meta/SaiSerialize.cpp`.
const NAMES: &[(&str, &str, &str)] = &[
    ("FDB_ENTRY", "mac_address", "mac"),
    ("FDB_ENTRY", "bv_id", "bvid"),
    ("NEIGHBOR_ENTRY", "rif_id", "rif"),
    ("NEIGHBOR_ENTRY", "ip_address", "ip"),
    ("ROUTE_ENTRY", "vr_id", "vr"),
    ("ROUTE_ENTRY", "destination", "dest"),
    ("NAT_ENTRY", "vr_id", "vr"),
    ("NAT_ENTRY", "data", "nat_data"),
];

/// The name of a member in the text of sairedis.
fn name_in_text(object: ObjectType, name: &'static str) -> &'static str {
    let object = object.short_name();
    NAMES.iter().find(|(of, member, _)| *of == object && *member == name).map_or(name, |(_, _, text)| text)
}

impl ObjectType {
    /// Parses the text of a key.
    ///
    /// # Errors
    /// A sentence when the object type has no key, the text is no JSON, or a member is missing or has no value of its
    /// type.
    pub fn read_key(self, text: &str) -> Result<Key, ValueError> {
        if !self.is_entry() {
            return Err(ValueError(format!("{} has an object id, not a key", self.name())));
        }
        let json: Json = serde_json::from_str(text)
            .map_err(|e| ValueError(format!("the key of a {} is no JSON: {e}", self.name())))?;
        let member = |member: crate::KeyMember| {
            let name = name_in_text(self, member.name());
            let found = json
                .get(name)
                .ok_or_else(|| ValueError(format!("the key of a {} has no member {name}", self.name())))?;
            let value = match found {
                Json::String(text) => Value::read(member.shape(), text),
                other => json::from_json(member.value_type(), other),
            };
            value.ok_or_else(|| wrong(name, member.shape(), &found.to_string()))
        };
        self.key().map(member).collect()
    }

    /// Appends the text of a key that has a value for each member.
    pub fn write_key(self, key: &[Value], out: &mut String) {
        let mut members: Vec<_> = self
            .key()
            .zip(key)
            .map(|(member, value)| (name_in_text(self, member.name()), member, value))
            .collect();
        members.sort_unstable_by_key(|(name, ..)| *name);
        for (n, (name, member, value)) in members.into_iter().enumerate() {
            out.push_str(if n == 0 { "{\"" } else { ",\"" });
            out.push_str(name);
            // The only member that is no text.
            let quote = if member.value_type() == ValueType::NatEntryData { "" } else { "\"" };
            out.push_str("\":");
            out.push_str(quote);
            value.write(member.shape(), out);
            out.push_str(quote);
        }
        out.push('}');
    }
}
