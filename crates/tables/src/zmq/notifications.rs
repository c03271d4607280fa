//! Notifications of syncd over ZeroMQ, as messages of text: syncd pushes, orchagent's end is bound
//! (`lib/ZeroMQChannel.cpp` of sonic-sairedis).

use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{LIMIT, unreachable};
use super::zmtp::{Kind, Peer};
use crate::TableError;
use ribtide_runtime::thread::Stop;

/// Listens at `endpoint` until the process ends, and calls `on_message` with each message, and with
/// `None` when a syncd has connected: it may have had nobody to report to before.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is in use or not of this machine.
pub fn listen_notifications(
    endpoint: &Endpoint,
    stop: &Stop,
    on_message: impl Fn(Option<&str>) + Send + Clone + 'static,
) -> Result<(), TableError> {
    let service = Service {
        kind: Kind::Pull,
        limit: LIMIT,
        what: "the notifications of syncd",
        accept_thread: "notification-listen",
        serve_thread: "notification-pull",
    };
    let body = move |peer: Peer| {
        let Peer { mut reader, .. } = peer;
        on_message(None);
        let mut message = Vec::new();
        loop {
            message.clear();
            reader.message(&mut message)?;
            on_message(Some(&String::from_utf8_lossy(&message)));
        }
    };
    bind(endpoint, service, stop, body).map(drop).map_err(|e| unreachable(&endpoint.to_string(), &e))
}
