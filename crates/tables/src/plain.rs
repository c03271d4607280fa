//! SONiC's plain tables: rows that are written where they stay, for whoever wants to look.

use crate::connection::Connection;
use crate::database::Databases;
use crate::state_table::give;
use crate::{Producer, TableError};
use ribtide_runtime::thread::Stop;
use ribtide_swss::{Change, Row};
use std::marker::PhantomData;

/// Commands that may wait for a flush.
const CAPACITY: usize = 10_000;

/// A plain table.
#[derive(Debug)]
pub struct PlainTable<R: Row> {
    connection: Connection,
    waiting: usize,
    /// Scratch for a row's name, of which so much is the same for all.
    name: String,
    prefix: usize,
    row: PhantomData<fn(R)>,
}

impl<R: Row> PlainTable<R> {
    /// Opens the table in its database.
    ///
    /// # Errors
    /// [`TableError::Unreachable`] when the server is not there.
    pub fn open(databases: &Databases, stop: &Stop) -> Result<Self, TableError> {
        let connection = Connection::open(databases.get(R::DB), stop)?;
        let name = connection.database().key(R::TABLE, "");
        Ok(PlainTable { connection, waiting: 0, prefix: name.len(), name, row: PhantomData })
    }

    /// The row at `key`, if there is one.
    ///
    /// # Errors
    /// [`TableError::Malformed`] for a row that its table does not know, or what [`Connection::flush`] says.
    pub fn get(&mut self, key: &R::Key) -> Result<Option<R>, TableError> {
        let key = self.key(key);
        let pairs = self.connection.ask(&["HGETALL", &key])?.into_pairs();
        if pairs.is_empty() {
            return Ok(None);
        }
        let mut fields = pairs.iter().map(|(field, value)| (field.as_str(), value.as_str()));
        R::from_fields(&mut fields).map(Some).map_err(|e| malformed::<R>(e.to_string()))
    }

    /// Every row, found a page at a time so that the server serves others in between; a row may come twice. Keys and
    /// rows that the table does not know are left out.
    ///
    /// # Errors
    /// What [`Connection::flush`] says.
    pub fn rows(&mut self, mut each: impl FnMut(R::Key, R)) -> Result<(), TableError> {
        let prefix = self.connection.database().key(R::TABLE, "");
        self.connection.scan(&format!("{prefix}*"), |connection, names| {
            let hashes = connection.ask_all(names.iter().map(|name| ["HGETALL", name]))?;
            for (name, hash) in names.iter().zip(hashes) {
                if let Some(key) = name.strip_prefix(&prefix) {
                    give::<R>(key, &hash.into_pairs(), &mut each);
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
}

fn malformed<R: Row>(found: String) -> TableError {
    TableError::Malformed { table: R::TABLE.into(), found }
}

impl<R: Row> Producer<R> for PlainTable<R> {
    fn write(&mut self, changes: &mut Vec<Change<R>>) -> Result<(), TableError> {
        for change in changes.drain(..) {
            self.name.truncate(self.prefix);
            R::key_text(&change.key, &mut self.name);
            let name = &self.name;
            if change.row.is_none() || change.reshaped {
                self.connection.queue(&["DEL", name]);
            }
            if let Some(row) = &change.row {
                self.connection.queue_with(|command| {
                    command.arg("HSET");
                    command.arg(name);
                    row.fields(&mut |field, value| {
                        command.arg(field);
                        command.arg(value);
                    });
                });
            }
            self.waiting += 1;
            if self.waiting >= CAPACITY {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), TableError> {
        self.waiting = 0;
        self.connection.flush()
    }

    fn waiting(&self) -> usize {
        self.waiting
    }

    fn generation(&self) -> u64 {
        self.connection.generation()
    }

    fn relieve(&mut self) {
        self.connection.relieve();
    }
}
