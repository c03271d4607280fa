//! The management API: HTTP and JSON over a Unix socket, and over TCP when configured (docs/adr/0005).
//!
//! [`model`] is what it says, [`server`] how it is reached, [`request`] how it is asked, [`answers`] where the answers
//! come from: questions to the stages, a page at a time. [`metrics`] are the same answers for machines that watch. The
//! server has a thread of its own.

pub(crate) mod answers;
mod metrics;
pub mod model;
mod request;
mod server;

pub(crate) use server::SocketFile;
pub use server::{Api, ListenError};
