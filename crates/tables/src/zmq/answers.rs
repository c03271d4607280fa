//! The way of answers from orchagent back to fpmsyncd, between two of ours: messages of bytes, each acknowledged when it is
//! taken. The client listens, the server connects.
//!
//! SONiC's daemons have nothing of the kind and go on with what is published in Redis; whoever connects and is not
//! ours is sent away.

use super::endpoint::Endpoint;
use super::listener::{Bound, Service, bind};
use super::push::{LIMIT, Push, Pushed, WINDOW, unreachable};
use super::zmtp::{Kind, Peer, Writer};
use crate::TableError;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// What goes there.
const WHAT: &str = "the way of answers";
/// The longest pause between two attempts to connect: fpmsyncd waits for it before it goes through Redis.
const CONNECT_BACKOFF_MAX: Duration = Duration::from_millis(400);

/// Connects to the client at `endpoint`, again and again until `stop`.
///
/// # Errors
/// [`TableError::Endpoint`] when there is no thread for it.
pub fn answer_to(endpoint: Endpoint, rings: &Rings, stop: &Stop) -> Result<Push, TableError> {
    let pushed = Pushed {
        what: WHAT,
        sends: "response-push",
        hears: "response-acks",
        backoff_max: CONNECT_BACKOFF_MAX,
    };
    Push::connect(endpoint, pushed, rings, stop)
}

/// What happens at the end that asks. The number is the connection's: they count up.
#[derive(Debug)]
pub enum AnswerEvent {
    /// An orchagent answers.
    Connected(u64),
    /// A message.
    Message(u64, Vec<u8>, Taken),
    /// It answers no longer.
    Gone(u64),
}

/// Tells who sent a message that it was taken.
#[derive(Debug)]
pub struct Taken {
    writer: Writer,
    count: u64,
}

impl Taken {
    /// Tells it. Who is gone says everything again when it is back.
    pub fn tell(self) {
        let _ = self.writer.message(&self.count.to_le_bytes());
    }
}

/// The end that asks. When it is dropped, no answer is received any more, and the address is free.
#[derive(Debug)]
pub struct AnswersAt {
    events: ring::Receiver<AnswerEvent>,
    connections: Arc<Mutex<Connections>>,
    bound: Option<Bound>,
}

/// Who is connected, by number.
#[derive(Default, Debug)]
struct Connections {
    last: u64,
    open: Vec<(u64, Writer)>,
    ended: bool,
}

fn lock(connections: &Mutex<Connections>) -> MutexGuard<'_, Connections> {
    connections.lock().unwrap_or_else(PoisonError::into_inner)
}

impl AnswersAt {
    /// What happens.
    pub fn events(&self) -> &ring::Receiver<AnswerEvent> {
        &self.events
    }
}

impl Drop for AnswersAt {
    fn drop(&mut self) {
        if let Some(bound) = self.bound.take() {
            bound.end();
        }
        let mut connections = lock(&self.connections);
        connections.ended = true;
        connections.open.drain(..).for_each(|(_, writer)| writer.end());
    }
}

/// Listens at `endpoint` for who answers.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is taken or is not of this machine.
pub fn answers_at(endpoint: &Endpoint, rings: &Rings) -> Result<AnswersAt, TableError> {
    let (events, came) = rings.bounded("responses to fpmsyncd", WINDOW as usize);
    let service = Service {
        kind: Kind::Pull,
        limit: LIMIT,
        what: WHAT,
        listens: "response-listen",
        serves: "response-pull",
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
        if events.send(AnswerEvent::Connected(id)).is_ok() {
            ended = pull(id, peer, &events);
            let _ = events.send(AnswerEvent::Gone(id));
        }
        let mut all = lock(&all);
        all.open.retain(|(other, _)| *other != id);
        if all.ended { Ok(()) } else { ended }
    };
    let bound = bind(endpoint, service, &Stop::default(), body)
        .map_err(|e| unreachable(&endpoint.to_string(), &e))?;
    Ok(AnswersAt { events: came, connections, bound: Some(bound) })
}

fn pull(id: u64, peer: Peer, events: &ring::Sender<AnswerEvent>) -> io::Result<()> {
    let Peer { mut reader, writer, .. } = peer;
    for count in 1.. {
        let mut message = Vec::new();
        reader.message(&mut message)?;
        let taken = Taken { writer: writer.clone(), count };
        if events.send(AnswerEvent::Message(id, message, taken)).is_err() {
            break;
        }
    }
    Ok(())
}
