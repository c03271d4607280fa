//! The management API: HTTP and JSON over a Unix socket, and over TCP when configured
//! (docs/adr/0005-management-api-http-json.md).
//!
//! `ribtide_model` is what it says, [`endpoints`] what there is, [`listener`] how it is reached, [`access`] who may change
//! what, [`request`] how it is asked, [`answers`] where the answers come from: questions to the stages, a page at a time.
//! [`metrics`] are the same answers for machines that watch. The server has a thread of its own.

mod access;
pub(crate) mod answers;
mod endpoints;
mod listener;
mod metrics;
mod request;
pub mod route_check;
mod state;

pub use answers::resized;
pub(crate) use listener::SocketFile;
pub use listener::{Api, ListenError};
pub use state::{Reload, RouterState};

/// Method and path of every endpoint.
pub fn endpoints() -> Vec<(String, &'static str)> {
    endpoints::endpoints().list.into_iter().map(|(method, path)| (method.to_string(), path)).collect()
}
