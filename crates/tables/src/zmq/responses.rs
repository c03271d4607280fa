//! The response channel from orchagent to fpmsyncd, between two ribtide ends: messages of bytes,
//! each acknowledged when it is handled. The client listens, the server connects.
//!
//! SONiC's daemons have no such channel and use publications in Redis. A peer that is not ribtide's
//! is disconnected.

use super::endpoint::Endpoint;
use super::listener::{BoundListener, Service, bind};
use super::push::{LIMIT, Push, PushSettings, WINDOW, unreachable};
use super::zmtp::{Kind, Peer, Writer};
use crate::TableError;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The name in the log.
const WHAT: &str = "the response channel";
/// The longest pause between connection attempts: fpmsyncd waits this long before it falls back to
/// Redis.
const CONNECT_BACKOFF_MAX: Duration = Duration::from_millis(400);

/// Connects to the client at `endpoint`, and again after each loss, until `stop`.
///
/// # Errors
/// [`TableError::Endpoint`] when no thread can be created.
pub fn connect_responses(endpoint: Endpoint, rings: &Rings, stop: &Stop) -> Result<Push, TableError> {
    let settings = PushSettings {
        what: WHAT,
        send_thread: "response-push",
        ack_thread: "response-acks",
        backoff_max: CONNECT_BACKOFF_MAX,
    };
    Push::connect(endpoint, settings, rings, stop)
}

/// An event at the listening end, with the number of the connection: numbers count up.
#[derive(Debug)]
pub enum ResponseEvent {
    /// An orchagent has connected.
    Connected(u64),
    /// A message.
    Message(u64, Vec<u8>, Acknowledgement),
    /// The connection has ended.
    Gone(u64),
}

/// Acknowledges a message to its sender.
#[derive(Debug)]
pub struct Acknowledgement {
    writer: Writer,
    count: u64,
}

impl Acknowledgement {
    /// Sends the acknowledgement. A sender that is gone sends all messages again later.
    pub fn send(self) {
        let _ = self.writer.message(&self.count.to_le_bytes());
    }
}

/// The listening end. Dropping it stops the reception and frees the address.
#[derive(Debug)]
pub struct ResponseListener {
    events: ring::Receiver<ResponseEvent>,
    connections: Arc<Mutex<Connections>>,
    bound: Option<BoundListener>,
}

/// Open connections by number.
#[derive(Default, Debug)]
struct Connections {
    last: u64,
    open: Vec<(u64, Writer)>,
    ended: bool,
}

fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ResponseListener {
    /// The events.
    pub fn events(&self) -> &ring::Receiver<ResponseEvent> {
        &self.events
    }
}

impl Drop for ResponseListener {
    fn drop(&mut self) {
        if let Some(bound) = self.bound.take() {
            bound.end();
        }
        let mut connections = lock(&self.connections);
        connections.ended = true;
        connections.open.drain(..).for_each(|(_, writer)| writer.end());
    }
}

/// Listens at `endpoint` for orchagent.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is in use or not of this machine.
pub fn listen_responses(endpoint: &Endpoint, rings: &Rings) -> Result<ResponseListener, TableError> {
    let (events, came) = rings.bounded("responses to fpmsyncd", WINDOW as usize);
    let service = Service {
        kind: Kind::Pull,
        limit: LIMIT,
        what: WHAT,
        accept_thread: "response-listen",
        serve_thread: "response-pull",
    };
    let connections = Arc::<Mutex<Connections>>::default();
    let all = connections.clone();
    let body = move |peer: Peer| {
        if peer.ours.is_none() {
            return Err(io::Error::other("it is not ribtide's"));
        }
        let id = {
            let mut all = lock(&all);
            if all.ended {
                return Ok(());
            }
            all.last += 1;
            let id = all.last;
            all.open.push((id, peer.writer.clone()));
            id
        };
        let mut ended = Ok(());
        if events.send(ResponseEvent::Connected(id)).is_ok() {
            ended = pull(id, peer, &events);
            let _ = events.send(ResponseEvent::Gone(id));
        }
        let mut all = lock(&all);
        all.open.retain(|(other, _)| *other != id);
        if all.ended { Ok(()) } else { ended }
    };
    let bound = bind(endpoint, service, &Stop::default(), body)
        .map_err(|e| unreachable(&endpoint.to_string(), &e))?;
    Ok(ResponseListener { events: came, connections, bound: Some(bound) })
}

fn pull(id: u64, peer: Peer, events: &ring::Sender<ResponseEvent>) -> io::Result<()> {
    let Peer { mut reader, writer, .. } = peer;
    for count in 1.. {
        let mut message = Vec::new();
        reader.message(&mut message)?;
        let taken = Acknowledgement { writer: writer.clone(), count };
        if events.send(ResponseEvent::Message(id, message, taken)).is_err() {
            break;
        }
    }
    Ok(())
}
