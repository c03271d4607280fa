//! Notifications of syncd over ZeroMQ: syncd pushes and connects, orchagent pulls and binds
//! (sonic-sairedis, `lib/ZeroMQChannel.cpp`, `syncd/ZeroMQNotificationProducer.cpp`).

use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{CONNECT_BACKOFF, LIMIT, Push, PushSettings, unreachable};
use super::zmtp::{Kind, Peer};
use crate::TableError;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;

/// The name in the log.
const WHAT: &str = "notifications";

/// Connects to an orchagent at `endpoint`, and again after each loss, until `stop`.
///
/// # Errors
/// [`TableError::Endpoint`] when no thread can be created.
pub fn connect_notifications(endpoint: Endpoint, rings: &Rings, stop: &Stop) -> Result<Push, TableError> {
    let settings = PushSettings {
        what: WHAT,
        send_thread: "notification-push",
        ack_thread: "notification-acks",
        backoff_max: CONNECT_BACKOFF.1,
    };
    Push::connect(endpoint, settings, rings, stop)
}

/// Listens at `endpoint` for notifications of syncd until the process ends, and calls `on_message` with each
/// message, and with `None` when a syncd has connected: it may have had no client to report to before.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is in use or not of this machine.
pub fn listen_notifications(
    endpoint: &Endpoint,
    stop: &Stop,
    on_message: impl Fn(Option<&[u8]>) + Send + Clone + 'static,
) -> Result<(), TableError> {
    let service = Service {
        kind: Kind::Pull,
        limit: LIMIT,
        what: WHAT,
        accept_thread: "notification-listen",
        serve_thread: "notification-pull",
    };
    let body = move |mut peer: Peer| {
        on_message(None);
        let mut message = Vec::new();
        for count in 1_u64.. {
            message.clear();
            peer.reader.message(&mut message)?;
            on_message(Some(&message));
            // A ribtide peer sends as many as were acknowledged and a window.
            if peer.ours.is_some() {
                peer.writer.message(&count.to_le_bytes())?;
            }
        }
        Ok(())
    };
    bind(endpoint, service, stop, body).map(drop).map_err(|e| unreachable(&endpoint.to_string(), &e))
}
