//! SONiC's request queues in ASIC_DB: a list of (key, value, operation) triples, and a channel with
//! a message per push.
//!
//! Requests go from sairedis to syncd through `ASIC_STATE`, replies return through `GETRESPONSE`
//! (sonic-sairedis, `lib/RedisChannel.cpp`). A triple is pushed at the head and taken from the
//! tail, so order is kept.
//!
//! SONiC's syncd takes a request out of the database and then executes it. If it is killed in
//! between, orchagent waits for a reply that never comes. Ours moves the request to a second list
//! and removes it in one transaction with the reply. So the next syncd finds all requests without a
//! reply.

pub use crate::exchange::Message;

use crate::connection::Connection;
use crate::database::Database;
use crate::exchange::{EncodedRequest, Exchange, Pending, ReaderThread, WAITING};
use crate::subscriptions::wake_ups;
use crate::{Reply, TableError};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Closed, Rings};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_runtime::wake_up::WakeUp;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

/// Replies of one pop, as in SONiC.
const POP_BATCH_MAX: usize = 128;
/// The list of taken requests without a reply, in the form of the queue.
const UNREPLIED_LIST: &str = "RIBTIDE_REQUESTS_OWED";

fn list(table: &str) -> String {
    format!("{table}_KEY_VALUE_OP_QUEUE")
}

/// The channel of a queue, for [`crate::wake_ups`].
pub fn channel(database: &Database, table: &str) -> String {
    format!("{table}_CHANNEL@{}", database.id)
}

/// The writing side.
#[derive(Debug)]
pub struct QueueWriter {
    connection: Connection,
    list: String,
    channel: String,
}

impl QueueWriter {
    /// Opens the queue called `table` (`ASIC_STATE` or `GETRESPONSE`).
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(database: &Database, table: &str, stop: &Stop) -> Result<Self, TableError> {
        let connection = Connection::open(database, stop)?;
        Ok(QueueWriter { connection, list: list(table), channel: channel(database, table) })
    }

    /// Queues one message for the next flush.
    pub fn push(&mut self, message: &Message) {
        self.connection.queue(&["LPUSH", &self.list, &message.key, &message.value, &message.op]);
        self.connection.queue(&["PUBLISH", &self.channel, "G"]);
    }

    /// Queues the reply to the oldest request of [`serve`] without one, and removes the request
    /// from the second list, in one transaction. `None`: the request was executed and gets no
    /// reply.
    pub fn reply(&mut self, reply: Option<&Message>) {
        self.connection.queue(&["MULTI"]);
        self.connection.queue(&["LTRIM", UNREPLIED_LIST, "0", "-4"]);
        reply.into_iter().for_each(|reply| self.push(reply));
        self.connection.queue(&["EXEC"]);
    }

    /// The same, and drops all earlier requests.
    pub fn reply_and_forget(&mut self, reply: &Message) {
        self.connection.queue(&["MULTI"]);
        self.connection.queue(&["DEL", UNREPLIED_LIST]);
        self.push(reply);
        self.connection.queue(&["EXEC"]);
    }

    /// Sends the queued messages. A message may arrive twice when the server is lost meanwhile.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn flush(&mut self) -> Result<(), TableError> {
        self.connection.flush()
    }

    /// Frees its buffers. No message may be queued.
    pub fn shrink_to_fit(&mut self) {
        self.connection.shrink_to_fit();
    }

    /// The connection, for other commands on the same database.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// The reading side. A queue has only one.
#[derive(Debug)]
pub struct QueueReader {
    connection: Connection,
    list: String,
    wake_up: WakeUp,
}

impl QueueReader {
    /// Opens the queue called `table`; `wake_up` is the result of [`crate::wake_ups`] for its
    /// [`channel`].
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(database: &Database, table: &str, wake_up: WakeUp, stop: &Stop) -> Result<Self, TableError> {
        Ok(QueueReader { connection: Connection::open(database, stop)?, list: list(table), wake_up })
    }

    /// The oldest messages, at most `max`.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn pop(&mut self, max: usize) -> Result<Vec<Message>, TableError> {
        // From the tail: oldest first, and of a triple the key.
        let count = max.saturating_mul(3).to_string();
        Ok(messages(self.connection.query(&["RPOP", &self.list, &count])?.into_texts()))
    }

    /// Takes the oldest message and moves it to the second list.
    fn take(&mut self) -> Result<Option<Message>, TableError> {
        self.connection.queue(&["MULTI"]);
        for _ in 0..3 {
            self.connection.queue(&["LMOVE", &self.list, UNREPLIED_LIST, "RIGHT", "LEFT"]);
        }
        let parts = self.connection.query(&["EXEC"])?.into_array().into_iter().filter_map(Reply::into_text);
        Ok(messages(parts.collect()).pop())
    }

    /// Messages that an earlier reader took without a reply, oldest first.
    fn redelivered(&mut self) -> Result<Vec<Message>, TableError> {
        let mut texts = self.connection.query(&["LRANGE", UNREPLIED_LIST, "0", "-1"])?.into_texts();
        texts.reverse();
        Ok(messages(texts))
    }

    /// Rises when the server was lost and found again.
    pub fn generation(&self) -> u64 {
        self.connection.generation()
    }

    /// Wakes the reading thread.
    pub fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }
}

/// The messages in a list's elements, oldest first.
fn messages(parts: Vec<String>) -> Vec<Message> {
    let mut parts = parts.into_iter();
    let mut messages = Vec::new();
    while let (Some(key), Some(value), Some(op)) = (parts.next(), parts.next(), parts.next()) {
        messages.push(Message { key, value, op: op.into() });
    }
    messages
}

/// Sends requests through `ASIC_STATE` and takes replies from `GETRESPONSE`, on two threads.
///
/// `encode` encodes a request. `decode` decodes the reply to a pending request, or returns `None` for a reply to a request
/// of an earlier run. A server that goes away with requests in flight, or comes back without `counter`, or with requests or
/// replies of before, ends the exchange. Any other server that comes back is waited for.
///
/// # Errors
/// [`TableError::Unreachable`] when the server is not there.
pub fn exchange<Q: Send + 'static, A: Send + 'static, P: Send + 'static>(
    database: &Database,
    counter: &'static str,
    rings: &Rings,
    stop: &Stop,
    encode: impl Fn(Q) -> EncodedRequest<P> + Send + 'static,
    decode: impl Fn(&P, Message) -> Option<A> + Send + 'static,
) -> Result<Exchange<Q, A>, TableError> {
    let wake_up = wake_ups(database, vec![channel(database, "GETRESPONSE")], stop)?.remove(0);
    let mut reader = QueueReader::open(database, "GETRESPONSE", wake_up, stop)?;
    // Replies to an earlier run belong to no request of this one.
    while !reader.pop(1000)?.is_empty() {}
    let mut writer = QueueWriter::open(database, "ASIC_STATE", stop)?;
    let server = Arc::new(Mutex::new(writer.connection().server_process()?));
    let mut process = reader.connection.server_process()?;
    let (requests, requests_rx) = rings.bounded::<Q>("orchagent to syncd", WAITING);
    let (replies_tx, replies) = rings.bounded("syncd to orchagent", WAITING);
    let pending = Pending::default();

    let (in_flight, failed, sent_to) = (pending.clone(), replies_tx.clone(), server.clone());
    let write = move || -> Result<Infallible, Ended> {
        let mut generation = writer.connection().generation();
        loop {
            let first = requests_rx.recv_or_idle(|| writer.shrink_to_fit())?;
            // A server that was lost before had none of these.
            if in_flight.is_empty()
                && let Err(e) = go_on(writer.connection(), &mut generation, &sent_to, counter)
            {
                return Err(failed.end_with(Err(e)));
            }
            for request in std::iter::once(first).chain(std::iter::from_fn(|| requests_rx.try_recv())) {
                let EncodedRequest { message, pending } = encode(request);
                pending.into_iter().for_each(|pending| in_flight.add(pending));
                writer.push(&message);
            }
            let sent = writer
                .flush()
                .and_then(|()| still_there(writer.connection(), &mut generation, &in_flight, counter));
            if let Err(e) = sent {
                return Err(failed.end_with(Err(e)));
            }
        }
    };
    let read = move |ending: Stop| -> Result<Infallible, Ended> {
        let mut generation = reader.generation();
        let (mut next, mut returned) = (None, false);
        loop {
            reader.wake_up.wait_or_idle(|| reader.connection.shrink_to_fit())?;
            let mut round = || -> Result<bool, RoundEnd> {
                ending.running()?;
                // Until it is known whether what is popped belongs to a request, none is sent to a server that came back.
                let server = server.lock().unwrap_or_else(PoisonError::into_inner);
                let messages = reader.pop(POP_BATCH_MAX)?;
                let losses = reader.generation() - generation;
                if losses > 0 {
                    returned = true;
                    let before = std::mem::replace(&mut process, reader.connection.server_process()?);
                    // This connection broke with its server, and the requests are at the one that is there now.
                    if losses == 1 && process.is_some() && process != before && process == *server {
                        generation = reader.generation();
                    }
                }
                still_there(&mut reader.connection, &mut generation, &pending, counter)?;
                let more = !messages.is_empty();
                if more && returned && pending.is_empty() {
                    return Err(outdated(&reader.connection).into());
                }
                drop(server);
                for message in messages {
                    next = next.take().or_else(|| pending.oldest());
                    let reply = next.as_ref().and_then(|next| decode(next, message));
                    let Some(reply) = reply else {
                        tracing::warn!(
                            target: target::REDIS,
                            "a reply of syncd is ignored: it belongs to no request"
                        );
                        continue;
                    };
                    next = None;
                    pending.replied();
                    replies_tx.send(Ok(reply))?;
                }
                Ok(more)
            };
            loop {
                match round() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(RoundEnd::Closed(closed)) => return Err(closed.into()),
                    Err(RoundEnd::Failed(e)) => return Err(replies_tx.end_with(Err(e))),
                }
            }
        }
    };
    let no_thread = |e: std::io::Error| TableError::Unreachable {
        database: database.db.name().into(),
        address: database.address.to_string(),
        cause: e.to_string(),
    };
    thread::spawn("asic-requests", write).map_err(no_thread)?;
    let reader = ReaderThread::start("asic-responses", stop, read).map_err(no_thread)?;
    Ok(Exchange { requests, replies, _reader: Some(reader) })
}

/// Why a reading thread takes no more replies.
enum RoundEnd {
    /// Its owner ended it.
    Closed(Closed),
    Failed(TableError),
}

impl From<Closed> for RoundEnd {
    fn from(closed: Closed) -> RoundEnd {
        RoundEnd::Closed(closed)
    }
}

impl From<TableError> for RoundEnd {
    fn from(e: TableError) -> RoundEnd {
        RoundEnd::Failed(e)
    }
}

/// A request at syncd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// The message.
    pub message: Message,
    /// Whether an earlier syncd took it and ended before its reply, so it may have been executed.
    pub redelivered: bool,
}

/// Takes requests on a thread and passes on the results of `read`, first those that an earlier
/// process took without a reply. Each needs one [`QueueWriter::reply`], in order. They wait in the
/// queue called `queue`.
///
/// # Errors
/// [`TableError::Unreachable`] when the server is not there.
pub fn serve<T: Send + 'static>(
    database: &Database,
    table: &str,
    queue: &str,
    rings: &Rings,
    stop: &Stop,
    read: impl Fn(Request) -> T + Send + 'static,
) -> Result<(ring::Receiver<Result<T, TableError>>, ReaderThread), TableError> {
    let wake_up = wake_ups(database, vec![channel(database, table)], stop)?.remove(0);
    let mut reader = QueueReader::open(database, table, wake_up, stop)?;
    let redelivered = reader.redelivered()?;
    let (tx, taken) = rings.bounded(queue, WAITING);
    let body = move |ending: Stop| -> Result<Infallible, Ended> {
        for message in redelivered {
            tx.send(Ok(read(Request { message, redelivered: true })))?;
        }
        loop {
            reader.wake_up.wait_or_idle(|| reader.connection.shrink_to_fit())?;
            loop {
                ending.running()?;
                match reader.take() {
                    Ok(Some(message)) => tx.send(Ok(read(Request { message, redelivered: false })))?,
                    Ok(None) => break,
                    Err(e) => return Err(tx.end_with(Err(e))),
                }
            }
        }
    };
    let thread = ReaderThread::start("asic-requests", stop, body).map_err(|e| TableError::Unreachable {
        database: database.db.name().into(),
        address: database.address.to_string(),
        cause: e.to_string(),
    })?;
    Ok((taken, thread))
}

/// Drops taken requests of the Redis queue, because requests now come through another carrier.
///
/// # Errors
/// As [`Connection::flush`].
pub fn forget(connection: &mut Connection) -> Result<(), TableError> {
    connection.query(&["DEL", UNREPLIED_LIST]).map(drop)
}

/// Before the first request in flight: connects again if the server was lost, and notes which process the requests are sent
/// to. Fails when that has no `counter`, or a request or reply of before: syncd would carry the request out once more, and its
/// reply would count as one to another request.
fn go_on(
    connection: &mut Connection,
    generation: &mut u64,
    server: &Mutex<Option<u64>>,
    counter: &str,
) -> Result<(), TableError> {
    if !connection.renew()? {
        return Ok(());
    }
    let mut server = server.lock().unwrap_or_else(PoisonError::into_inner);
    still_there(connection, generation, &Pending::<()>::default(), counter)?;
    // At once, since syncd moves a request from the first to the second, and its reply to the third.
    let lists = [list("ASIC_STATE"), UNREPLIED_LIST.to_owned(), list("GETRESPONSE")];
    connection.queue(&["MULTI"]);
    lists.iter().for_each(|list| connection.queue(&["EXISTS", list]));
    let found = connection.query(&["EXEC"])?.into_array();
    if found.iter().any(|exists| *exists != Reply::Integer(0)) {
        return Err(outdated(connection));
    }
    *server = connection.server_process()?;
    Ok(())
}

fn outdated(connection: &Connection) -> TableError {
    TableError::Outdated { database: connection.database().db.name().into() }
}

/// Fails when the server was lost with a request in flight, or came back without its data.
fn still_there<P>(
    connection: &mut Connection,
    generation: &mut u64,
    pending: &Pending<P>,
    counter: &str,
) -> Result<(), TableError> {
    if std::mem::replace(generation, connection.generation()) == connection.generation() {
        return Ok(());
    }
    if !pending.is_empty() {
        return Err(TableError::Interrupted {
            what: format!("Redis for {}", connection.database().db.name()),
        });
    }
    match connection.query(&["EXISTS", counter])? {
        Reply::Integer(0) => Err(TableError::Emptied { database: connection.database().db.name().into() }),
        _ => Ok(()),
    }
}
