//! SONiC's request queues in ASIC_DB: a list of (key, value, operation) triples and a channel that says "look".
//!
//! Requests go from sairedis to syncd through `ASIC_STATE`, replies come back through `GETRESPONSE`. A triple is
//! pushed at the head and taken from the tail, so what was sent first is read first.

use crate::TableError;
use crate::connection::Connection;
use crate::database::Database;
use crate::subscribe::Wake;
use ribtide_runtime::thread::Stop;

/// Takes the oldest triples. KEYS: list. ARGV: how many. Returns key, value, operation of each, oldest first.
const POP: &str = r"
local n = ARGV[1] * 3
local texts = redis.call('LRANGE', KEYS[1], -n, -1)
redis.call('LTRIM', KEYS[1], 0, -n - 1)
local oldest_first = {}
for i = #texts, 1, -1 do
  oldest_first[#oldest_first + 1] = texts[i]
end
return oldest_first
";

/// One request or reply.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Message {
    /// What it is about: an object, or a type and how many.
    pub key: String,
    /// A JSON array of strings, or `{}`.
    pub value: String,
    /// What to do, with SONiC's one-letter prefix: `Screate`, `Dremove`, `Sgetresponse`.
    pub op: String,
}

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

    /// Sends what is queued. A message may arrive twice when the server is lost meanwhile.
    ///
    /// # Errors
    /// What [`Connection::flush`] says.
    pub fn flush(&mut self) -> Result<(), TableError> {
        self.connection.flush()
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
    script: String,
    wake: Wake,
}

impl QueueReader {
    /// Opens the queue called `table`; `wake` is what [`crate::wake_ups`] gave for its [`channel`].
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(database: &Database, table: &str, wake: Wake, stop: &Stop) -> Result<Self, TableError> {
        let mut connection = Connection::open(database, stop)?;
        let script = connection.load(POP)?;
        Ok(QueueReader { connection, list: list(table), script, wake })
    }

    /// The oldest messages, at most `max`.
    ///
    /// # Errors
    /// What [`Connection::flush`] says.
    pub fn pop(&mut self, max: usize) -> Result<Vec<Message>, TableError> {
        let count = max.to_string();
        let texts = self.connection.ask(&["EVALSHA", &self.script, "1", &self.list, &count])?.into_texts();
        let mut texts = texts.into_iter();
        let mut messages = Vec::new();
        while let (Some(key), Some(value), Some(op)) = (texts.next(), texts.next(), texts.next()) {
            messages.push(Message { key, value, op });
        }
        Ok(messages)
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
