//! SAI as a table: every object type, attribute, enumeration, status and API of SAI's headers, with the names, older
//! names, numbers, value types, flags and rules that the headers give them.
//!
//! [`ObjectType`], [`Attribute`], [`Enum`] and [`Api`] are places in a static table, so they are `Copy` and cost
//! nothing to make. A look-up by name is one hash and one comparison.
#![forbid(unsafe_code)]
// The compiler parses the table.
#![allow(long_running_const_eval)]

mod api;
mod attribute;
mod enumeration;
mod json;
mod key;
mod object;
mod rule;
mod table;
mod value;
mod value_type;

pub use api::Api;
pub(crate) use attribute::FLAGS;
pub use attribute::{Attribute, Default};
pub use enumeration::Enum;
pub use key::Key;
pub use object::{Function, KeyMember, ObjectType};
pub use rule::Rule;
pub use value::{AclResource, CHARDATA_MAX, Latch, NatKey, Poe, QosParams, SystemPort, Value, ValueError};
pub use value_type::ValueType;

/// The version of the headers of the table: major, minor, revision (`saiversion.h`).
pub fn version() -> [u32; 3] {
    table::TABLE.version
}

/// The name of a status (`saistatus.h`), such as `SAI_STATUS_TABLE_FULL` for -13; `None` for a number that has no
/// name of its own, such as those between `SAI_STATUS_INVALID_ATTRIBUTE_0` and `…_MAX`.
pub fn status_name(status: i32) -> Option<&'static str> {
    Enum::STATUS.name_of(status)
}

/// The number of a status. Numbers other than 0 are negative, as on every system but Windows.
pub fn status_number(name: &str) -> Option<i32> {
    Enum::STATUS.number_of(name)
}
