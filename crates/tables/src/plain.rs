//! SONiC's plain tables: rows at their final keys, for readers.
//!
//! Many routes have equal rows. The first of several equal rows is written field by field, the
//! others are copies of it (COPY, Redis 6.2). That saves the server up to a third of the cost.

use crate::connection::Connection;
use crate::database::Databases;
use crate::state_table::parse_row;
use crate::{Producer, Reply, TableError};
use ribtide_runtime::thread::Stop;
use ribtide_swss::{Change, Row};

/// Commands that wait for a flush, at most.
const CAPACITY: usize = 10_000;
/// Commands of one send, so that the server works while more are encoded.
const SEND_BATCH_MAX: usize = 500;

/// A plain table.
#[derive(Debug)]
pub struct PlainTable<R: Row> {
    connection: Connection,
    waiting: usize,
    /// Commands that were queued for a flush.
    queued: usize,
    /// The server supports COPY.
    can_copy: bool,
    /// The row that others may copy, and its name.
    model: Option<(R, String)>,
    /// Commands that copy: their index, the row and the key.
    copies: Vec<(usize, R, R::Key)>,
    /// Scratch for a row's name, whose prefix is constant.
    name: String,
    prefix: usize,
}

impl<R: Row> PlainTable<R> {
    /// Opens the table in its database.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(databases: &Databases, stop: &Stop) -> Result<Self, TableError> {
        let mut connection = Connection::open(databases.get(R::DB), stop)?;
        let name = connection.database().key(R::TABLE, "");
        let (prefix, copies) = (name.len(), Vec::new());
        // The reply for an unknown command is nil.
        let known = connection.query(&["COMMAND", "INFO", "COPY"])?;
        let can_copy = matches!(known, Reply::Array(all) if matches!(all.first(), Some(Reply::Array(_))));
        Ok(PlainTable { connection, waiting: 0, queued: 0, can_copy, model: None, copies, name, prefix })
    }

    /// The row at `key`, if there is one.
    ///
    /// # Errors
    /// [`TableError::Malformed`] for a row that violates the table's format, or as
    /// [`Connection::flush`].
    pub fn get(&mut self, key: &R::Key) -> Result<Option<R>, TableError> {
        self.flush()?;
        let key = self.key(key);
        let pairs = self.connection.query(&["HGETALL", &key])?.into_pairs();
        if pairs.is_empty() {
            return Ok(None);
        }
        let mut fields = pairs.iter().map(|(field, value)| (field.as_str(), value.as_str()));
        R::from_fields(&mut fields).map(Some).map_err(|e| malformed::<R>(e.to_string()))
    }

    /// Every row, in pages, so that the server serves other clients in between; a row may come
    /// twice. Keys and rows of another format are left out.
    ///
    /// # Errors
    /// As [`Connection::flush`].
    pub fn rows(&mut self, mut each: impl FnMut(R::Key, R)) -> Result<(), TableError> {
        self.flush()?;
        let prefix = self.connection.database().key(R::TABLE, "");
        self.connection.scan(&format!("{prefix}*"), |connection, names| {
            let hashes = connection.query_all(names.iter().map(|name| ["HGETALL", name]))?;
            for (name, hash) in names.iter().zip(hashes) {
                if let Some(key) = name.strip_prefix(&prefix) {
                    parse_row::<R>(key, &hash.into_pairs(), &mut each);
                }
            }
            Ok(())
        })
    }

    fn key(&self, key: &R::Key) -> String {
        let mut text = String::new();
        R::key_text(key, &mut text);
        self.connection.database().key(R::TABLE, &text)
    }

    fn queue(&mut self, args: &[&str]) {
        self.connection.queue(args);
        self.queued += 1;
    }

    fn queue_row(&mut self, name: &str, row: &R) {
        self.connection.queue_with(|command| {
            command.arg("HSET");
            command.arg(name);
            row.fields(&mut |field, value| {
                command.arg(field);
                command.arg(value);
            });
        });
        self.queued += 1;
    }

    /// Queues a change. `again`: the next one writes the same row.
    fn push(&mut self, name: &str, change: Change<R>, again: bool) {
        let Some(row) = change.row else {
            self.model.take_if(|(_, of)| of == name);
            return self.queue(&["DEL", name]);
        };
        if let Some((model, of)) = self.model.take_if(|(model, of)| of != name && *model == row) {
            self.copies.push((self.queued, row, change.key));
            self.queue(&["COPY", &of, name, "REPLACE"]);
            self.model = Some((model, of));
            return;
        }
        // A copied row has no other fields.
        if change.reshaped || again {
            self.queue(&["DEL", name]);
        }
        self.queue_row(name, &row);
        self.model = again.then(|| (row, name.into()));
    }
}

fn malformed<R: Row>(found: String) -> TableError {
    TableError::Malformed { table: R::TABLE.into(), found }
}

impl<R: Row> Producer<R> for PlainTable<R> {
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError> {
        let mut name = std::mem::take(&mut self.name);
        let mut changes = changes.drain(..).peekable();
        while let Some(change) = changes.next() {
            name.truncate(self.prefix);
            R::key_text(&change.key, &mut name);
            let again = self.can_copy
                && changes.peek().is_some_and(|next| next.row.is_some() && next.row == change.row);
            self.push(&name, change, again);
            self.waiting += 1;
            if self.waiting.is_multiple_of(SEND_BATCH_MAX) {
                self.connection.push();
            }
            if self.waiting >= CAPACITY
                && let Err(e) = self.flush()
            {
                self.name = name;
                return Err(e);
            }
        }
        self.name = name;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TableError> {
        (self.waiting, self.queued, self.model) = (0, 0, None);
        let replies = self.connection.send()?;
        let mut copies = std::mem::take(&mut self.copies).into_iter().peekable();
        for (n, reply) in replies.iter().enumerate() {
            let Some((_, row, key)) = copies.next_if(|(at, ..)| *at == n) else { continue };
            // Another client deleted the source row meanwhile.
            if reply.reply() == Ok(Reply::Integer(0)) {
                self.queue_row(&self.key(&key), &row);
            }
        }
        self.queued = 0;
        self.connection.flush()
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn generation(&self) -> u64 {
        self.connection.generation()
    }

    fn shrink_to_fit(&mut self) {
        self.connection.shrink_to_fit();
    }
}
