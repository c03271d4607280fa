//! The management API: HTTP and JSON over a Unix socket, and over TCP when configured
//! (docs/adr/0005-management-api-http-json.md).
//!
//! `ribtide_model` has the JSON types, [`endpoints`] the list, [`listener`] the sockets, [`connections`]
//! their bounds, [`reserve`] their descriptors in need,
//! [`task`] the tasks of the event loop, [`socket_watch`] the file of the Unix socket, [`access`] the permissions, [`request`] decoding, [`answers`] the calls to stages, a page at a time, and
//! [`body`] their text.
//! [`openapi`] describes all of that to programs. [`events`] has what clients follow. [`metrics`] has the same data for monitoring, [`page`] the page for
//! people. The server has a thread of its own.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod access;
pub mod answers;
mod body;
mod connections;
mod endpoints;
mod events;
mod listener;
pub mod metrics;
mod openapi;
mod page;
mod request;
mod reserve;
pub mod route_check;
mod socket_watch;
mod state;
mod task;
mod tls;

pub use answers::resized;
pub use listener::{Api, ApiServer, ListenError};
pub use openapi::document as openapi;
pub use request::Refusal;
pub use state::{Dataplanes, Reload, RouterState, Slot};

/// Method and path of every endpoint.
pub fn endpoints() -> Vec<(String, &'static str)> {
    endpoints::endpoints().list.into_iter().map(|e| (e.method.to_string(), e.path)).collect()
}
