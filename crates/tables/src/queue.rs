//! SONiC's request queues in ASIC_DB: a list of (key, value, operation) triples and a channel that says "look".
//!
//! Requests go from sairedis to syncd through `ASIC_STATE`, replies come back through `GETRESPONSE`. A triple is
//! pushed at the head and taken from the tail, so what was sent first is read first.
//!
//! SONiC's syncd takes a request out of the database and then carries it out: one that is killed in between leaves
//! an orchagent that waits for an answer that will not come. Ours moves it to a list beside the queue, from which it goes
//! in one transaction with the reply, so that the next syncd finds what the last one owes.

pub use crate::exchange::Message;

use crate::connection::Connection;
use crate::database::Database;
use crate::exchange::{EncodedRequest, Exchange, Pending, ReaderThread, WAITING};
use crate::subscribe::{Wake, wake_ups};
use crate::{Reply, TableError};
use ribtide_runtime::idle;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};

/// Replies that one look takes, as in SONiC.
const POP_BATCH_MAX: usize = 128;
/// The list of requests that were taken and not answered, in the form of the queue.
const OWED: &str = "RIBTIDE_REQUESTS_OWED";

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

    /// Queues one message; it leaves at the next flush.
    pub fn push(&mut self, message: &Message) {
        self.connection.queue(&["LPUSH", &self.list, &message.key, &message.value, &message.op]);
        self.connection.queue(&["PUBLISH", &self.channel, "G"]);
    }

    /// Queues the reply to the oldest request of [`serve`] that has none, and takes the request from what is owed. `None`: it
    /// is carried out, and gets no reply. They happen together or not at all.
    pub fn answer(&mut self, reply: Option<&Message>) {
        self.connection.queue(&["MULTI"]);
        self.connection.queue(&["LTRIM", OWED, "0", "-4"]);
        reply.into_iter().for_each(|reply| self.push(reply));
        self.connection.queue(&["EXEC"]);
    }

    /// The same, where nothing that was asked earlier is of any use any more.
    pub fn answer_and_forget(&mut self, reply: &Message) {
        self.connection.queue(&["MULTI"]);
        self.connection.queue(&["DEL", OWED]);
        self.push(reply);
        self.connection.queue(&["EXEC"]);
    }

    /// Sends what is queued. A message may arrive twice when the server is lost meanwhile.
    ///
    /// # Errors
    /// What [`Connection::flush`] says.
    pub fn flush(&mut self) -> Result<(), TableError> {
        self.connection.flush()
    }

    /// Frees its buffers. Nothing must be queued.
    pub fn shrink_to_fit(&mut self) {
        self.connection.shrink_to_fit();
    }

    /// The connection, for other commands on the same database.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }
}

/// The reading side. There must be one only.
#[derive(Debug)]
pub struct QueueReader {
    connection: Connection,
    list: String,
    wake: Wake,
}

impl QueueReader {
    /// Opens the queue called `table`; `wake` is what [`crate::wake_ups`] gave for its [`channel`].
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(database: &Database, table: &str, wake: Wake, stop: &Stop) -> Result<Self, TableError> {
        Ok(QueueReader { connection: Connection::open(database, stop)?, list: list(table), wake })
    }

    /// The oldest messages, at most `max`.
    ///
    /// # Errors
    /// What [`Connection::flush`] says.
    pub fn pop(&mut self, max: usize) -> Result<Vec<Message>, TableError> {
        // From the tail: what was sent first, and of a triple the key.
        let count = max.saturating_mul(3).to_string();
        Ok(messages(self.connection.ask(&["RPOP", &self.list, &count])?.into_texts()))
    }

    /// The oldest message, which is owed an answer from now on.
    fn take(&mut self) -> Result<Option<Message>, TableError> {
        self.connection.queue(&["MULTI"]);
        for _ in 0..3 {
            self.connection.queue(&["LMOVE", &self.list, OWED, "RIGHT", "LEFT"]);
        }
        let parts = self.connection.ask(&["EXEC"])?.into_array().into_iter().filter_map(Reply::into_text);
        Ok(messages(parts.collect()).pop())
    }

    /// What an earlier reader took and did not answer, the oldest first.
    fn owed(&mut self) -> Result<Vec<Message>, TableError> {
        let mut texts = self.connection.ask(&["LRANGE", OWED, "0", "-1"])?.into_texts();
        texts.reverse();
        Ok(messages(texts))
    }

    /// How often the server was lost and found again.
    pub fn generation(&self) -> u64 {
        self.connection.generation()
    }

    /// Says when to look.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }
}

/// Messages of the parts that a list gives, oldest first.
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
/// of an earlier run. A server that goes away with requests in flight, or comes back without `counter`, ends the exchange.
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
    let wake = wake_ups(database, vec![channel(database, "GETRESPONSE")], stop)?.remove(0);
    let mut reader = QueueReader::open(database, "GETRESPONSE", wake, stop)?;
    // Replies to an earlier run answer nothing of ours.
    while !reader.pop(1000)?.is_empty() {}
    let mut writer = QueueWriter::open(database, "ASIC_STATE", stop)?;
    let (requests, asked) = rings.bounded::<Q>("orchagent to syncd", WAITING);
    let (answers, replies) = rings.bounded("syncd to orchagent", WAITING);
    let pending = Pending::default();

    let (under_way, failed) = (pending.clone(), answers.clone());
    let write = move || {
        let mut generation = writer.connection().generation();
        while let Ok(first) = asked.recv_or_idle(|| writer.shrink_to_fit()) {
            for request in std::iter::once(first).chain(std::iter::from_fn(|| asked.try_recv())) {
                let EncodedRequest { message, pending } = encode(request);
                pending.into_iter().for_each(|pending| under_way.add(pending));
                writer.push(&message);
            }
            let sent = writer
                .flush()
                .and_then(|()| still_there(writer.connection(), &mut generation, &under_way, counter));
            if let Err(e) = sent {
                let _ = failed.send(Err(e));
                return;
            }
        }
    };
    let read = move |ending: Stop| {
        let mut generation = reader.generation();
        let mut next = None;
        while idle::recv_or_idle(&reader.wake, || reader.connection.shrink_to_fit()).is_ok() {
            let mut round = || -> Result<bool, TableError> {
                if ending.stopped() {
                    return Ok(false);
                }
                let messages = reader.pop(POP_BATCH_MAX)?;
                still_there(&mut reader.connection, &mut generation, &pending, counter)?;
                let more = !messages.is_empty();
                for message in messages {
                    next = next.take().or_else(|| pending.oldest());
                    let answer = next.as_ref().and_then(|next| decode(next, message));
                    let Some(answer) = answer else {
                        crate::report("a reply of syncd is passed over: it is to nothing that was asked");
                        continue;
                    };
                    next = None;
                    pending.answered();
                    if answers.send(Ok(answer)).is_err() {
                        return Ok(false);
                    }
                }
                Ok(more)
            };
            loop {
                match round() {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(e) => {
                        let _ = answers.send(Err(e));
                        return;
                    }
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

/// A request as it comes to syncd.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    /// What is asked.
    pub message: Message,
    /// An earlier syncd took it, and ended before it answered: perhaps it carried it out.
    pub owed: bool,
}

/// Takes requests as they come, on a thread, and hands on what `read` makes of each; first those that an earlier process took
/// and did not answer. Each is owed [`QueueWriter::answer`], in order.
///
/// # Errors
/// [`TableError::Unreachable`] when the server is not there.
pub fn serve<T: Send + 'static>(
    database: &Database,
    table: &str,
    rings: &Rings,
    stop: &Stop,
    read: impl Fn(Request) -> T + Send + 'static,
) -> Result<(ring::Receiver<Result<T, TableError>>, ReaderThread), TableError> {
    let wake = wake_ups(database, vec![channel(database, table)], stop)?.remove(0);
    let mut reader = QueueReader::open(database, table, wake, stop)?;
    let owed = reader.owed()?;
    let (tx, taken) = rings.bounded("orchagent to syncd", WAITING);
    let body = move |ending: Stop| {
        for message in owed {
            if tx.send(Ok(read(Request { message, owed: true }))).is_err() {
                return;
            }
        }
        while idle::recv_or_idle(&reader.wake, || reader.connection.shrink_to_fit()).is_ok()
            && !ending.stopped()
        {
            while !ending.stopped() {
                let next = match reader.take() {
                    Ok(Some(message)) => Ok(read(Request { message, owed: false })),
                    Ok(None) => break,
                    Err(e) => Err(e),
                };
                let lost = next.is_err();
                if tx.send(next).is_err() || lost {
                    return;
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

/// Forgets what is owed to requests that came through Redis: requests come another way from now on.
///
/// # Errors
/// What [`Connection::flush`] says.
pub fn forget(connection: &mut Connection) -> Result<(), TableError> {
    connection.ask(&["DEL", OWED]).map(drop)
}

/// Fails when the server was lost while a request was under way, or came back without its data.
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
    match connection.ask(&["EXISTS", counter])? {
        Reply::Integer(0) => Err(TableError::Emptied { database: connection.database().db.name().into() }),
        _ => Ok(()),
    }
}
