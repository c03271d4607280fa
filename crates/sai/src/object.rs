//! Object types.

use crate::attribute::Attribute;
use crate::rule::objects;
use crate::table::{AttributeRow, MemberRow, NONE, Named, ObjectRow, TABLE, prefixed};
use crate::{Api, Enum, ValueType};
use std::fmt;

/// The prefix of the names of object types.
const PREFIX: &str = "SAI_OBJECT_TYPE_";

/// An object type (`sai_object_type_t`). `SAI_OBJECT_TYPE_NULL` is none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectType(pub(crate) u8);

/// A function of an object type in the method table of its API.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Function {
    /// `create_…`
    Create,
    /// `remove_…`
    Remove,
    /// `set_…_attribute`
    Set,
    /// `get_…_attribute`
    Get,
    /// `get_…_stats`
    Stats,
    /// `get_…_stats_ext`
    StatsExt,
    /// `clear_…_stats`
    ClearStats,
    /// The creation of several objects.
    BulkCreate,
    /// The removal of several objects.
    BulkRemove,
    /// `set_…_attribute` of several objects.
    BulkSet,
    /// `get_…_attribute` of several objects.
    BulkGet,
    /// `flush_fdb_entries`
    Flush,
}

impl ObjectType {
    /// Every object type, in the order of numbers.
    pub fn all() -> impl ExactSizeIterator<Item = ObjectType> {
        (0..TABLE.objects.len() as u8).map(ObjectType)
    }

    /// The object type with this name, such as `SAI_OBJECT_TYPE_ROUTE_ENTRY`.
    pub fn from_name(name: &str) -> Option<ObjectType> {
        ObjectType::from_short_name(name.strip_prefix(PREFIX)?)
    }

    /// The object type with this name after `SAI_OBJECT_TYPE_`.
    pub fn from_short_name(name: &str) -> Option<ObjectType> {
        match prefixed(PREFIX, name)? {
            Named::Value(place) => ObjectType::from_number(TABLE.values[place as usize].number as u32),
            Named::Attribute(_) => None,
        }
    }

    /// The object type with this number; `None` for `SAI_OBJECT_TYPE_NULL` and for numbers of vendors.
    pub fn from_number(number: u32) -> Option<ObjectType> {
        let place = TABLE.objects.binary_search_by_key(&number, |row| row.number).ok()?;
        Some(ObjectType(place as u8))
    }

    /// The name.
    pub fn name(self) -> &'static str {
        self.row().name.text()
    }

    /// The name without `SAI_OBJECT_TYPE_`.
    pub fn short_name(self) -> &'static str {
        self.name().strip_prefix(PREFIX).unwrap_or_default()
    }

    /// The number (`sai_object_type_t`).
    pub fn number(self) -> u32 {
        self.row().number
    }

    /// Whether a key of several members names an object, not an object id.
    pub fn is_entry(self) -> bool {
        self.row().members > 0
    }

    /// The members of the key, in the order of its structure; the first is the switch. Empty for an object with an id.
    pub fn key(self) -> impl ExactSizeIterator<Item = KeyMember> {
        let row = self.row();
        TABLE.members[row.first_member as usize..][..row.members as usize].iter().map(KeyMember)
    }

    /// The attributes, in the order of numbers, without older names.
    pub fn attributes(self) -> impl ExactSizeIterator<Item = Attribute> {
        let row = self.row();
        (row.first..row.first + row.attributes).map(Attribute)
    }

    /// The attribute with this number (`sai_attr_id_t`).
    pub fn attribute(self, number: u32) -> Option<Attribute> {
        let rows = self.attribute_rows();
        let place = rows.binary_search_by_key(&number, |row| row.number).ok()?;
        Some(Attribute(self.row().first + place as u16))
    }

    /// The API; `None` for the types that name no objects, such as `SAI_OBJECT_TYPE_FDB_FLUSH`.
    pub fn api(self) -> Option<Api> {
        Some(self.row().api).filter(|api| *api != NONE).map(Api)
    }

    /// The place of a function in the method table of [`ObjectType::api`]; `None` when SAI has no such function.
    pub fn function(self, function: Function) -> Option<usize> {
        let place = self.row().functions[function as usize];
        (place != u8::MAX).then_some(place as usize)
    }

    /// The counters (`sai_port_stat_t`, …).
    pub fn stats(self) -> Option<Enum> {
        Some(self.row().stats).filter(|stats| *stats != NONE).map(Enum)
    }

    fn row(self) -> &'static ObjectRow {
        &TABLE.objects[self.0 as usize]
    }

    fn attribute_rows(self) -> &'static [AttributeRow] {
        let row = self.row();
        &TABLE.attributes[row.first as usize..][..row.attributes as usize]
    }
}

impl fmt::Debug for ObjectType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A member of the key of an object, such as `vr_id` of a route.
#[derive(Clone, Copy)]
pub struct KeyMember(&'static MemberRow);

impl KeyMember {
    /// The name in the structure.
    pub fn name(self) -> &'static str {
        self.0.name.text()
    }

    /// The type of its value.
    pub fn value_type(self) -> ValueType {
        self.0.kind
    }

    /// The enumeration of its value.
    pub fn enumeration(self) -> Option<Enum> {
        Some(self.0.of).filter(|of| *of != NONE).map(Enum)
    }

    /// The types of objects that it may name.
    pub fn objects(self) -> impl Iterator<Item = ObjectType> {
        objects(self.0.name.rest_of_line())
    }
}

impl fmt::Debug for KeyMember {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
