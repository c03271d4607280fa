//! Tables and keys of the configuration in its JSON Schema. The documentation's references use it, too.

use serde_json::{Map, Value};

/// The object that a key's schema describes: itself, what it refers to, one of its alternatives, the items of its list, or
/// the tables that it has by name.
pub(crate) fn object<'a>(schema: &'a Value, key: &'a Value) -> Option<&'a Value> {
    if key.get("properties").is_some() {
        return Some(key);
    }
    if let Some(name) = key.get("$ref").and_then(Value::as_str) {
        return object(schema, schema.pointer(name.strip_prefix('#')?)?);
    }
    let alternatives = ["anyOf", "oneOf"].iter().filter_map(|of| key.get(of)?.as_array()).flatten();
    let inside = ["items", "additionalProperties"].iter().filter_map(|inside| key.get(inside));
    alternatives.chain(inside).find_map(|inner| object(schema, inner))
}

/// The keys of an object.
pub(crate) fn properties(object: &Value) -> Option<&Map<String, Value>> {
    object.get("properties")?.as_object()
}

/// Whether a table must have a key.
pub(crate) fn requires(object: &Value, name: &str) -> bool {
    let list = object.get("required").and_then(Value::as_array);
    list.is_some_and(|list| list.iter().any(|required| required == name))
}

/// What a key has that is not in the file: a value of TOML, or a text; `None`: nothing.
pub(crate) fn default(key: &Value) -> Option<Default<'_>> {
    if let Some(text) = key.get("x-default").and_then(Value::as_str) {
        return Some(Default::Text(text));
    }
    match key.get("default") {
        None | Some(Value::Null | Value::Object(_)) => None,
        Some(value) => Some(Default::Value(toml(value))),
    }
}

/// The default of a key.
pub(crate) enum Default<'a> {
    /// A description.
    Text(&'a str),
    /// A value as a configuration has it.
    Value(String),
}

/// A value as a configuration has it.
fn toml(value: &Value) -> String {
    match value {
        Value::Array(list) => format!("[{}]", list.iter().map(toml).collect::<Vec<_>>().join(", ")),
        value => value.to_string(),
    }
}

/// The description of a key in one line.
pub(crate) fn description(key: &Value) -> String {
    key.get("description").and_then(Value::as_str).unwrap_or_default().replace('\n', " ")
}
