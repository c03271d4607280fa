//! The management API: HTTP and JSON over a Unix socket, and over TCP when configured
//! (docs/adr/0005-management-api-http-json.md).
//!
//! `ribtide_model` is what it says, [`endpoints`] what there is, [`listener`] how it is reached, [`access`] who may change
//! what, [`request`] how it is asked, [`answers`] where the answers come from: questions to the stages, a page at a time.
//! [`metrics`] are the same answers for machines that watch. The server has a thread of its own.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod access;
pub mod answers;
mod endpoints;
mod listener;
pub mod metrics;
mod request;
pub mod route_check;
mod state;

pub use answers::resized;
pub use listener::{Api, ListenError, SocketFile};
pub use request::Refusal;
pub use state::{Reload, RouterState};

/// Method and path of every endpoint.
pub fn endpoints() -> Vec<(String, &'static str)> {
    endpoints::endpoints().list.into_iter().map(|(method, path)| (method.to_string(), path)).collect()
}
