//! BGP-4 on the wire: RFC 4271, with the error handling of RFC 7606.
//!
//! [`message::frame`] cuts one message out of a stream. [`open::Open`], [`update::parse`],
//! [`notification::Notification::parse`] and [`message::RouteRefresh`] read its body in place.
//! [`build`] writes attributes and UPDATEs, and the same modules write the other messages. Parsing
//! checks everything once: the iterators of a parsed message cannot fail.

pub mod attribute;
pub mod build;
pub mod capability;
pub mod message;
pub mod next_hop;
pub mod nlri;
pub mod notification;
pub mod open;
pub mod role;
pub mod update;

pub use attribute::{AsPath, Attribute};
pub use message::{Frame, MessageType};
pub use next_hop::NextHop;
pub use notification::Notification;
pub use open::Open;
pub use update::{Update, UpdateContext};

/// The two-octet AS number that stands for one that needs four (RFC 6793).
pub const AS_TRANS: u16 = 23456;

#[cfg(any(test, fuzzing))]
pub mod invariants;
#[cfg(test)]
mod tests;
