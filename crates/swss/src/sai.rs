//! The chip's object model (SAI): object types, identities, attributes, statuses, and the requests that carry them.
//!
//! Values here are typed; [`text`] formats them as ASIC_DB and the queue to syncd have them, where the text is the
//! identity, and [`binary`] as two of ours have routes between them.

mod attr;
pub mod binary;
mod object;
mod request;
pub mod schema;
pub mod text;
mod vid;

pub use attr::{Attr, Attrs, GroupType, NextHopType, OperStatus, OutsegType, PacketAction, RifType};
pub use object::{InsegEntry, NeighborEntry, ObjectId, ObjectType, Oid, RouteEntry, SWITCH};
pub use request::{ErrorMode, Item, Sai, SaiCall, SaiReply, SaiRequest, Status, Verb, View};
pub use vid::{VidCounter, VidSource};
