//! The way of answers from orchagent back to fpmsyncd, between two of ours: messages of octets, each acknowledged when it is
//! taken. Who asks listens, who answers connects.
//!
//! SONiC's daemons have nothing of the kind and go on with what is published in Redis; whoever connects and is not
//! ours is sent away.

use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{LIMIT, Push, Pushed, WINDOW, unreachable};
use super::zmtp::{Kind, Peer, Writer};
use crate::TableError;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// What goes there.
const WHAT: &str = "the way of answers";
/// The longest pause between two attempts to connect: who asks waits for it before it takes the way through Redis.
const PATIENCE: Duration = Duration::from_millis(400);

/// Connects to who asks at `endpoint`, again and again until `stop`.
///
/// # Errors
/// [`TableError::Endpoint`] when there is no thread for it.
pub fn answer_to(endpoint: Endpoint, rings: &Rings, stop: &Stop) -> Result<Push, TableError> {
    let pushed = Pushed { what: WHAT, sends: "answers-push", hears: "answers-taken", patience: PATIENCE };
    Push::connect(endpoint, pushed, rings, stop)
}

/// What happens at the end that asks. The number is the connection's: they count up.
#[derive(Debug)]
pub enum AnswerEvent {
    /// Somebody answers.
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

/// Listens at `endpoint` for who answers, until `stop`.
///
/// # Errors
/// [`TableError::Endpoint`] when the endpoint is taken or is not of this machine.
pub fn answers_at(
    endpoint: &Endpoint,
    rings: &Rings,
    stop: &Stop,
) -> Result<ring::Receiver<AnswerEvent>, TableError> {
    let (events, came) = rings.bounded("answers to fpmsyncd", WINDOW as usize);
    let service = Service {
        kind: Kind::Pull,
        limit: LIMIT,
        what: WHAT,
        listens: "answers-listen",
        serves: "answers-pull",
    };
    let connections = Arc::new(AtomicU64::new(0));
    let body = move |peer: Peer| {
        if peer.ours.is_none() {
            return Err(io::Error::other("it is not ribtide's"));
        }
        let id = connections.fetch_add(1, Relaxed);
        if events.send(AnswerEvent::Connected(id)).is_err() {
            return Ok(());
        }
        let ended = pull(id, peer, &events);
        let _ = events.send(AnswerEvent::Gone(id));
        ended
    };
    bind(endpoint, service, stop, body).map_err(|e| unreachable(&endpoint.to_string(), &e))?;
    Ok(came)
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
