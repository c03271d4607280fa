//! SAI, the object model of the chip: object types, ids, attributes, statuses, and requests.
//!
//! Values are typed. [`text`] formats them as in ASIC_DB and in the queue to syncd (sairedis), and
//! [`binary`] encodes route bulks between two of ribtide's daemons.

mod attr;
pub mod binary;
pub(crate) mod fdb_queue;
mod model;
pub mod notification;
mod object;
mod query;
mod raw;
mod request;
pub mod schema;
pub mod text;
mod vid;

pub use attr::{Attr, Attrs, GroupType, NextHopType, OperStatus, OutsegType, PacketAction, RifType};
pub use fdb_queue::FdbQueue;
pub use object::{InsegEntry, NeighborEntry, ObjectId, ObjectType, Oid, RouteEntry, SWITCH};
pub use query::{CounterOp, CountersMode, Query, QueryReply};
pub use raw::{RawAttr, RawText};
pub use request::{
    Audit, EntryItem, ErrorMode, Item, Sai, SaiCall, SaiReply, SaiRequest, Status, Verb, View,
};
pub use vid::{VidCounter, VidSource};
