//! Settings that are a plain value or a table. `#[serde(untagged)]` would hide what is wrong inside of the table, such as a
//! key that does not exist.

/// Has `$type` read from a `bool` (`Switch`) or a string (`Name`), or from a table (`Table`). `$expecting` says what may be written.
macro_rules! or_table {
    ($type:ident, $visit:ident, $value:ty, $plain:ident, $expecting:expr) => {
        impl<'de> serde::Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl<'de> serde::de::Visitor<'de> for Visitor {
                    type Value = $type;

                    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                        f.write_str($expecting)
                    }

                    fn $visit<E: serde::de::Error>(self, value: $value) -> Result<$type, E> {
                        Ok($type::$plain(value.into()))
                    }

                    fn visit_map<A: serde::de::MapAccess<'de>>(self, map: A) -> Result<$type, A::Error> {
                        let table = serde::de::value::MapAccessDeserializer::new(map);
                        serde::Deserialize::deserialize(table).map($type::Table)
                    }
                }
                deserializer.deserialize_any(Visitor)
            }
        }
    };
}
pub(super) use or_table;
