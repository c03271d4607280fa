//! Rows that a daemon writes for others to read, and that no route waits for: its settings, queues and timers, how far its
//! warm restart is, CRM's counters, and orchagent's rows of STATE_DB.
//!
//! A thread keeps the database equal to the desired rows. A stage sets a desired row, which never waits. A server that refuses
//! a write, is lost, or comes back with other rows delays these rows and nothing else.

use crate::{Connection, Database, Databases, TableError};
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Stop};
use ribtide_swss::{Change, Db, Row};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often sources are read and the server is looked at: less than a timer takes to make more records than are kept.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The fields of a row.
pub type Fields = BTreeMap<String, String>;

/// A desired row.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Desired {
    /// Empty: the row is deleted.
    fields: Fields,
    /// Whether fields that others wrote stay.
    shared: bool,
}

/// A row whose fields come from a source, at each poll.
struct Source {
    key: String,
    fields: Box<dyn FnMut() -> Fields + Send>,
}

#[derive(Default)]
struct State {
    desired: BTreeMap<String, Desired>,
    /// Whether a row was set since the thread last waited.
    changed: bool,
    sources: Vec<Source>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("desired", &self.desired).finish_non_exhaustive()
    }
}

#[derive(Default, Debug)]
struct Shared {
    state: Mutex<State>,
    wake: Condvar,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bookkeeping of a daemon in one database. Clones share it.
#[derive(Clone, Debug)]
pub struct Bookkeeping {
    shared: Arc<Shared>,
    database: Database,
}

impl Bookkeeping {
    /// Starts the thread that writes to `db`, until `stop`.
    ///
    /// # Errors
    /// When the server does not answer now, or there is no thread.
    pub fn start(db: Db, databases: &Databases, stop: &Stop) -> Result<Bookkeeping, TableError> {
        let connection = Connection::open(databases.get(db), stop)?;
        let shared = Arc::<Shared>::default();
        let writer = Writer {
            shared: shared.clone(),
            connection,
            generation: 0,
            written: BTreeMap::new(),
            refusal: None,
        };
        let stop = stop.clone();
        thread::spawn("bookkeeping", move || writer.run(&stop)).map_err(|e| TableError::Unreachable {
            database: db.name().into(),
            address: databases.get(db).address.to_string(),
            cause: e.to_string(),
        })?;
        Ok(Bookkeeping { shared, database: databases.get(db).clone() })
    }

    /// Sets all fields of a row; no fields delete it.
    pub fn set(&self, table: &str, key: &str, fields: Fields) {
        self.set_row(table, key, Desired { fields, shared: false });
    }

    /// Sets fields of a row, and keeps those that others write.
    pub fn set_fields(&self, table: &str, key: &str, fields: Fields) {
        self.set_row(table, key, Desired { fields, shared: true });
    }

    /// Sets or deletes a row of a typed table, and keeps fields that others write.
    pub fn change<R: Row>(&self, change: &Change<R>) {
        let (mut key, mut fields) = (String::new(), Fields::new());
        R::key_text(&change.key, &mut key);
        if let Some(row) = &change.row {
            row.fields(&mut |field, value| drop(fields.insert(field.into(), value.into())));
        }
        self.set_row(R::TABLE, &key, Desired { fields, shared: change.row.is_some() });
    }

    /// Sets the fields of a row to what `source` returns at each poll. It runs on the thread.
    pub fn follow(&self, table: &str, key: &str, source: impl FnMut() -> Fields + Send + 'static) {
        let source = Source { key: self.database.key(table, key), fields: Box::new(source) };
        self.shared.lock().sources.push(source);
    }

    fn set_row(&self, table: &str, key: &str, desired: Desired) {
        let mut state = self.shared.lock();
        state.desired.insert(self.database.key(table, key), desired);
        state.changed = true;
        self.shared.wake.notify_one();
    }
}

/// The thread.
struct Writer {
    shared: Arc<Shared>,
    connection: Connection,
    generation: u64,
    /// The rows that the server has, as far as the thread wrote them.
    written: BTreeMap<String, Desired>,
    /// The refusal that was logged last.
    refusal: Option<TableError>,
}

impl Writer {
    fn run(mut self, stop: &Stop) {
        let mut due = Instant::now();
        while !stop.stopped() {
            let poll = due <= Instant::now();
            if poll {
                due = Instant::now() + POLL_INTERVAL;
            }
            let wrote = self.write(poll);
            if idle::on_wait(wrote == Ok(false)) {
                self.connection.shrink_to_fit();
            }
            let refusal = wrote.err();
            if let Some(e) = refusal.as_ref().filter(|_| refusal != self.refusal && !stop.stopped()) {
                tracing::warn!(target: target::REDIS, "{e}; routes go on, and the rows that show their state wait");
            }
            self.refusal = refusal;
            let rest = due.saturating_duration_since(Instant::now());
            let state = self.shared.lock();
            let woken = self.shared.wake.wait_timeout_while(state, rest, |state| !state.changed);
            woken.unwrap_or_else(PoisonError::into_inner).0.changed = false;
        }
    }

    /// Writes the rows that differ from the written ones. Returns whether there was one.
    fn write(&mut self, poll: bool) -> Result<bool, TableError> {
        if poll {
            self.connection.query(&["PING"])?;
            // A source may wait for another server, so it runs without the lock.
            let mut sources = std::mem::take(&mut self.shared.lock().sources);
            for source in &mut sources {
                let desired = Desired { fields: (source.fields)(), shared: false };
                self.shared.lock().desired.insert(source.key.clone(), desired);
            }
            self.shared.lock().sources.append(&mut sources);
        }
        // After a loss, the server may have no rows, or old ones.
        if std::mem::replace(&mut self.generation, self.connection.generation()) != self.generation {
            self.written.clear();
        }
        let differs = |(key, desired): &(&String, &Desired)| self.written.get(*key) != Some(desired);
        let copy = |(key, desired): (&String, &Desired)| (key.clone(), desired.clone());
        let changed: Vec<_> = self.shared.lock().desired.iter().filter(differs).map(copy).collect();
        for (key, desired) in &changed {
            let before = self.written.remove(key).map(|row| row.fields);
            if !desired.shared && (before.is_none() || desired.fields.is_empty()) {
                self.connection.queue(&["DEL", key]);
            }
            let before = before.unwrap_or_default();
            for field in before.keys().filter(|field| !desired.fields.contains_key(*field)) {
                self.connection.queue(&["HDEL", key, field]);
            }
            for (field, value) in
                desired.fields.iter().filter(|(field, value)| before.get(*field) != Some(value))
            {
                self.connection.queue(&["HSET", key, field, value]);
            }
        }
        self.connection.flush()?;
        let any = !changed.is_empty();
        self.written.extend(changed);
        Ok(any)
    }
}
