//! Rows of SONiC's tables as typed keys and fields, with their text form.
//!
//! A row type knows its table, how its key and fields are formatted, and how a newer row merges
//! into an older one that was not consumed yet. Transports carry rows without knowledge of a table.
//! Source: `doc/swss-schema.md` in sonic-swss.

mod interface;
mod label_route;
mod labels;
mod lag;
mod neighbor;
mod nexthop_group;
mod packed;
mod port;
mod response;
mod response_batch;
mod route;
mod row_name;
mod state;
#[cfg(test)]
mod tests;
mod via;
mod vlan;
mod vpn;

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

pub use interface::{IntfKey, IntfRow, VLAN_MAX, VrfRow};
pub use label_route::{LabelKey, LabelRouteRow};
pub use labels::{LABEL_MAX, LabelOp, LabelStack};
pub use lag::{LagMemberRow, LagRow, MemberKey};
pub use neighbor::{Mac, NeighKey, NeighResolveRow, NeighRow};
pub use nexthop_group::NextHopGroupRow;
pub use packed::Packed;
pub use port::{PortKey, PortRow};
pub use response::{ROUTE_RESPONSE_CHANNEL, RouteResponse, RouteStateRow, RouteStatus};
pub use response_batch::{MalformedResponses, ResponseGroup, ResponseKind, ResponseReader, ResponseWriter};
pub use route::{RouteKey, RouteRow};
pub(crate) use route::{pack_prefix, unpack_prefix};
pub use row_name::RowName;
pub use state::{DefaultRouteRow, SwitchCapabilityRow};
pub use via::{Field, Hop, Via};
pub use vlan::{TaggingMode, VlanMemberRow, VlanRow};
pub use vpn::{
    MySidRow, PicContextRow, SidListRow, VnetRouteRow, VnetTunnelRow, VpnChange, VpnRow, VpnTable,
};

/// A name that many rows share: an interface, a VRF, a protocol.
pub type Name = Arc<str>;

/// A SONiC database. Each has a number, and a separator between table name and key.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Db {
    /// Routes, neighbours and interfaces that applications ask orchagent to program.
    Appl,
    /// SAI objects, and the queue to syncd.
    Asic,
    /// Counters, CRM among them.
    Counters,
    /// Which counters syncd polls.
    FlexCounter,
    /// Configuration.
    Config,
    /// Observed state.
    State,
    /// Outcomes that orchagent reports.
    ApplState,
}

impl Db {
    /// The name in `database_config.json`.
    pub fn name(self) -> &'static str {
        match self {
            Db::Appl => "APPL_DB",
            Db::Asic => "ASIC_DB",
            Db::Counters => "COUNTERS_DB",
            Db::FlexCounter => "FLEX_COUNTER_DB",
            Db::Config => "CONFIG_DB",
            Db::State => "STATE_DB",
            Db::ApplState => "APPL_STATE_DB",
        }
    }

    /// The number in SONiC's default `database_config.json`.
    pub fn id(self) -> u8 {
        match self {
            Db::Appl => 0,
            Db::Asic => 1,
            Db::Counters => 2,
            Db::FlexCounter => 5,
            Db::Config => 4,
            Db::State => 6,
            Db::ApplState => 14,
        }
    }

    /// The separator between table name and key.
    pub fn separator(self) -> char {
        match self {
            Db::Config | Db::State => '|',
            _ => ':',
        }
    }
}

/// What identifies a row of a table, and its text.
pub trait RowKey: Clone + Eq + Ord + Hash + fmt::Debug + Send + 'static {
    /// Appends the text, which stands after the separator.
    fn write(&self, out: &mut String);

    /// The key of a text.
    ///
    /// # Errors
    /// A sentence when the text is no such key.
    fn parse(text: &str) -> Result<Self, String>;

    /// Appends the key in few bytes, for [`Packed`] changes; false, with whatever was appended, where it does not pack.
    fn pack(&self, _bytes: &mut Vec<u8>) -> bool {
        false
    }

    /// The key that [`RowKey::pack`] put first in `bytes`, which go on behind it.
    fn unpack(_bytes: &mut &[u8]) -> Option<Self> {
        None
    }
}

impl RowKey for Name {
    fn write(&self, out: &mut String) {
        out.push_str(self);
    }

    fn parse(text: &str) -> Result<Name, String> {
        Ok(text.into())
    }
}

/// A row of one table.
pub trait Row: Clone + PartialEq + fmt::Debug + Send + 'static {
    /// The database that the table is in.
    const DB: Db;
    /// The table's name, such as `ROUTE_TABLE`.
    const TABLE: &'static str;
    /// What identifies a row.
    type Key: RowKey;

    /// Appends the text of `key`, which follows the separator.
    fn key_text(key: &Self::Key, out: &mut String) {
        key.write(out);
    }

    /// Parses the text of a key.
    ///
    /// # Errors
    /// A sentence when the text is not a key of this table.
    fn parse_key(text: &str) -> Result<Self::Key, RowError> {
        RowKey::parse(text).map_err(|what| RowError::new(Self::TABLE, what))
    }

    /// Passes each field with a value to `put` in the order of the table: the form in Redis. A row
    /// without values gives the filler `NULL`, `NULL`, because a row without fields reads as a
    /// deletion.
    fn fields(&self, put: &mut dyn FnMut(&str, &str));

    /// Passes every field of the table to `put`, unset ones with an empty value: the form of ZeroMQ
    /// messages, and of a row whose predecessor had other fields. The same as [`Row::fields`] for
    /// tables without such a form.
    fn all_fields(&self, put: &mut dyn FnMut(&str, &str)) {
        self.fields(put);
    }

    /// Builds a row from fields and values. Fields unknown to the table are ignored.
    ///
    /// # Errors
    /// A sentence when a value is invalid.
    fn from_fields<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>) -> Result<Self, RowError>;

    /// Merges a newer row of the same key into this one, which was not consumed yet. Fields of the
    /// newer row replace, the others stay.
    fn merge(&mut self, newer: Self) {
        *self = newer;
    }
}

/// A change of one row.
pub struct Change<R: Row> {
    /// The key of the row.
    pub key: R::Key,
    /// The new row; `None` deletes it.
    pub row: Option<R>,
    /// The former row had other fields, or was deleted before. A writer must delete the old fields
    /// first and write all fields, empty ones too. Otherwise a consumer of SONiC that has the older
    /// row unconsumed would merge the two. A reader keeps no field of an older row.
    pub reshaped: bool,
}

impl<R: Row> Change<R> {
    /// A new row, or one with the same fields as its predecessor.
    pub fn set(key: R::Key, row: R) -> Self {
        Change { key, row: Some(row), reshaped: false }
    }

    /// A deletion.
    pub fn del(key: R::Key) -> Self {
        Change { key, row: None, reshaped: false }
    }
}

impl<R: Row> Clone for Change<R> {
    fn clone(&self) -> Self {
        Change { key: self.key.clone(), row: self.row.clone(), reshaped: self.reshaped }
    }
}

impl<R: Row> PartialEq for Change<R> {
    fn eq(&self, other: &Self) -> bool {
        self.key == other.key && self.row == other.row && self.reshaped == other.reshaped
    }
}

impl<R: Row> fmt::Debug for Change<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut key = String::new();
        R::key_text(&self.key, &mut key);
        write!(f, "{}{}{key} ", R::TABLE, R::DB.separator())?;
        let Some(row) = &self.row else { return f.write_str("DEL") };
        f.write_str(if self.reshaped { "REPLACE" } else { "SET" })?;
        let mut result = Ok(());
        row.fields(&mut |field, value| result = result.and_then(|()| write!(f, " {field}={value}")));
        result
    }
}

/// Why a key or a field is invalid. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RowError {
    /// The table.
    pub table: &'static str,
    /// What is wrong, with the invalid text.
    pub what: String,
}

impl RowError {
    /// An error of `table`.
    pub fn new(table: &'static str, what: impl Into<String>) -> Self {
        RowError { table, what: what.into() }
    }
}

impl fmt::Display for RowError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.table, self.what)
    }
}

impl std::error::Error for RowError {}

/// The pair that represents "no fields".
pub(crate) const FILLER: (&str, &str) = ("NULL", "NULL");

/// Passes the fields that have a value to `put`, or the filler if none has.
fn put_values<V: AsRef<str>>(
    fields: impl IntoIterator<Item = (&'static str, Option<V>)>,
    put: &mut dyn FnMut(&str, &str),
) {
    let mut wrote = false;
    // `for` would check at each step which part of a chained iterator is next.
    fields.into_iter().for_each(|(field, value)| {
        if let Some(value) = value {
            wrote = true;
            put(field, value.as_ref());
        }
    });
    if !wrote {
        put(FILLER.0, FILLER.1);
    }
}

/// The last value of a field, for tables where no other field matters.
fn value_of<'a>(fields: &mut dyn Iterator<Item = (&'a str, &'a str)>, name: &str) -> Option<&'a str> {
    fields.filter(|(field, _)| *field == name).last().map(|(_, value)| value)
}
