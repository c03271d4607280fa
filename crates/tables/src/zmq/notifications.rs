//! Notifications of syncd over ZeroMQ: syncd pushes and connects, orchagent pulls and binds
//! (sonic-sairedis, `lib/ZeroMQChannel.cpp`, `syncd/ZeroMQNotificationProducer.cpp`).

use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{CONNECT_BACKOFF, LIMIT, Push, PushSettings, unreachable};
use super::zmtp::{Kind, Peer};
use crate::TableError;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;

/// The name in the log.
const WHAT: &str = "notifications";
/// Notifications that wait at most.
const WAITING: usize = 1024;

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

/// Listens at `endpoint` for notifications of syncd. They wait in the queue called `queue`.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is in use or not of this machine.
pub fn listen_notifications(
    endpoint: &Endpoint,
    queue: &str,
    rings: &Rings,
    stop: &Stop,
) -> Result<ring::Receiver<Vec<u8>>, TableError> {
    let (notifications, came) = rings.bounded(queue, WAITING);
    let service = Service {
        kind: Kind::Pull,
        limit: LIMIT,
        what: WHAT,
        accept_thread: "notification-listen",
        serve_thread: "notification-pull",
    };
    let body = move |mut peer: Peer| {
        for count in 1_u64.. {
            let mut message = Vec::new();
            peer.reader.message(&mut message)?;
            if notifications.send(message).is_err() {
                break;
            }
            // A ribtide peer sends as many as were acknowledged and a window.
            if peer.ours.is_some() {
                peer.writer.message(&count.to_le_bytes())?;
            }
        }
        Ok(())
    };
    bind(endpoint, service, stop, body).map(drop).map_err(|e| unreachable(&endpoint.to_string(), &e))?;
    Ok(came)
}
