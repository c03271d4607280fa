//! The management API: HTTP and JSON over a Unix socket, and over TCP when configured (docs/adr/0005).
//!
//! [`model`] is what it says, [`server`] how it is reached, [`answers`] where the answers come from: questions to the
//! stages, a page at a time. The server has a thread of its own.

pub(crate) mod answers;
pub mod model;
mod server;

pub(crate) use server::SocketFile;
pub use server::{Api, ListenError};
