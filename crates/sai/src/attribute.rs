//! Attributes.

use crate::rule::{Rule, field, objects};
use crate::table::{AttributeRow, NONE, Named, TABLE, named};
use crate::{Enum, ObjectType, ValueType};
use std::fmt;

/// The letters of flags in the table, in the order of their bits.
pub(crate) const FLAGS: &str = "mcsrkdpnevt";

const MANDATORY: u16 = 1;
const CREATE_ONLY: u16 = 1 << 1;
const CREATE_AND_SET: u16 = 1 << 2;
const READ_ONLY: u16 = 1 << 3;
const KEY: u16 = 1 << 4;
const ALLOW_NULL: u16 = 1 << 7;

/// An attribute, such as `SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Attribute(pub(crate) u16);

/// The value of an attribute that a creation does not give (`@default`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Default {
    /// A value as the headers write it: `true`, `0`, `SAI_PACKET_ACTION_FORWARD`, `SAI_NULL_OBJECT_ID`, `disabled`.
    Const(&'static str),
    /// An empty list.
    Empty,
    /// An object that the switch has of its own.
    Internal,
    /// The vendor decides.
    Vendor,
    /// The value of another attribute, of the switch or of the same object.
    Attribute(Attribute),
}

impl Attribute {
    /// The attribute with this name. An older name gives the attribute with the name that SAI's metadata has, and
    /// that sairedis writes: `SAI_SWITCH_ATTR_PORT_NUMBER` gives `SAI_SWITCH_ATTR_NUMBER_OF_ACTIVE_PORTS`.
    pub fn from_name(name: &str) -> Option<Attribute> {
        match named(name)? {
            Named::Attribute(place) => {
                let row = &TABLE.attributes[place as usize];
                ObjectType(row.object).attribute(row.number)
            }
            Named::Value(_) => None,
        }
    }

    /// The name that SAI's metadata has.
    pub fn name(self) -> &'static str {
        self.row().name.text()
    }

    /// The number (`sai_attr_id_t`), unique among the attributes of its object type.
    pub fn number(self) -> u32 {
        self.row().number
    }

    /// The type of objects that have it.
    pub fn object_type(self) -> ObjectType {
        ObjectType(self.row().object)
    }

    /// The type of its value (`@type`).
    pub fn value_type(self) -> ValueType {
        self.row().kind
    }

    /// The enumeration of its value, of the items of its list, or of the data of its ACL field or action.
    pub fn enumeration(self) -> Option<Enum> {
        Some(self.row().of).filter(|of| *of != NONE).map(Enum)
    }

    /// The C type of the function of a pointer, such as `sai_fdb_event_notification_fn`.
    pub fn function(self) -> Option<&'static str> {
        let kind = self.row().name.rest_of_line().split('\t').nth(2)?;
        kind.strip_prefix("POINTER:")
    }

    /// Whether a creation must give it, unless [`Attribute::condition`] does not hold.
    pub fn is_mandatory(self) -> bool {
        self.has(MANDATORY)
    }

    /// Whether only a creation can give it.
    pub fn is_create_only(self) -> bool {
        self.has(CREATE_ONLY)
    }

    /// Whether a creation can give it and a later request can change it.
    pub fn is_create_and_set(self) -> bool {
        self.has(CREATE_AND_SET)
    }

    /// Whether it can only be read.
    pub fn is_read_only(self) -> bool {
        self.has(READ_ONLY)
    }

    /// Whether no two objects of the type may have the same values of all such attributes.
    pub fn is_key(self) -> bool {
        self.has(KEY)
    }

    /// Whether it may name no object.
    pub fn allows_null(self) -> bool {
        self.has(ALLOW_NULL)
    }

    /// The types of objects that it may name.
    pub fn objects(self) -> impl Iterator<Item = ObjectType> {
        objects(self.row().name.rest_of_line())
    }

    /// Whether it may name an object of this type.
    pub fn may_name(self, object: ObjectType) -> bool {
        self.objects().any(|allowed| allowed == object)
    }

    /// The value that it has without one of a creation.
    pub fn default_value(self) -> Option<Default> {
        let text = self.rule("default")?;
        Some(match text {
            "empty" => Default::Empty,
            "internal" => Default::Internal,
            "vendor" => Default::Vendor,
            _ => match text.strip_prefix("attrvalue ") {
                Some(name) => Default::Attribute(Attribute::from_name(name)?),
                None => Default::Const(text),
            },
        })
    }

    /// When a creation must give it, and else may not (`@condition`).
    pub fn condition(self) -> Option<Rule> {
        self.rule("condition").map(Rule)
    }

    fn rule(self, name: &str) -> Option<&'static str> {
        field(self.row().name.rest_of_line(), name)
    }

    fn has(self, flag: u16) -> bool {
        self.row().flags & flag != 0
    }

    fn row(self) -> &'static AttributeRow {
        &TABLE.attributes[self.0 as usize]
    }
}

impl fmt::Debug for Attribute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
