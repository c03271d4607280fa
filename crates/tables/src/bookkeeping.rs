//! Rows that a daemon writes for others to read, and that no route waits for: its settings, queues and timers, how far its
//! warm restart is, CRM's counters, and orchagent's rows of STATE_DB.
//!
//! A thread keeps the database equal to the desired rows. A stage sets a desired row, which never waits. A server that refuses
//! a write, is lost, or comes back with other rows delays these rows and nothing else.

use crate::{Connection, Database, Databases, TableError};
use ribtide_runtime::handover::PollPace;
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::Wake;
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_swss::{Change, Db, Row};
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often sources are read: less than a timer takes to make more records than are kept. While
/// nothing changes the interval doubles, up to the second one; [`Bookkeeping::hurry`] ends that.
const POLL_INTERVALS: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(8));

/// How often the thread looks, when it reads its sources anyway, whether all rows are still there.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

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
    sources: Vec<Source>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("desired", &self.desired).finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    /// How often the thread reads its sources.
    pace: PollPace,
    wake: Wake,
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("state", &self.state).finish_non_exhaustive()
    }
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
        let cannot = |e: io::Error| TableError::Unreachable {
            database: db.name().into(),
            address: databases.get(db).address.to_string(),
            cause: e.to_string(),
        };
        let wait = WaitFd::new(stop).map_err(cannot)?;
        let (state, pace) = Default::default();
        let shared = Arc::new(Shared { state, pace, wake: wait.waker() });
        let writer = Writer {
            wait,
            shared: shared.clone(),
            connection,
            generation: 0,
            written: BTreeMap::new(),
            checked: Instant::now(),
            refusal: None,
        };
        let stop = stop.clone();
        thread::spawn("bookkeeping", move || writer.run(&stop)).map_err(cannot)?;
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
        self.hurry();
    }

    /// Makes the thread read its sources soon, at least as often as the shorter interval says.
    pub fn hurry(&self) {
        if self.shared.pace.hurry() {
            (self.shared.wake)();
        }
    }

    fn set_row(&self, table: &str, key: &str, desired: Desired) {
        self.shared.lock().desired.insert(self.database.key(table, key), desired);
        (self.shared.wake)();
    }
}

/// The thread.
struct Writer {
    wait: WaitFd,
    shared: Arc<Shared>,
    connection: Connection,
    generation: u64,
    /// The rows that the server has, as far as the thread wrote them.
    written: BTreeMap<String, Desired>,
    /// When it looked last whether they are there.
    checked: Instant,
    /// The refusal that was logged last.
    refusal: Option<TableError>,
}

impl Writer {
    fn run(mut self, stop: &Stop) -> Ended {
        let (mut read, mut interval, mut may_be_lost) = (None::<Instant>, POLL_INTERVALS.0, false);
        while !stop.stopped() {
            if self.shared.pace.begin_round() {
                interval = POLL_INTERVALS.0;
            }
            let due = read.is_none_or(|read| read.elapsed() >= interval);
            if due {
                read = Some(Instant::now());
            }
            let wrote = self.write(due, may_be_lost);
            if idle::on_wait(wrote == Ok(false)) {
                self.connection.shrink_to_fit();
            }
            interval = match &wrote {
                Ok(false) if due => POLL_INTERVALS.1.min(2 * interval),
                Ok(false) => interval,
                _ => POLL_INTERVALS.0,
            };
            if interval > POLL_INTERVALS.0 && !self.shared.pace.slow_down() {
                interval = POLL_INTERVALS.0;
            }
            let is_refused = wrote.is_err();
            let refusal = wrote.err();
            if let Some(e) = refusal.as_ref().filter(|_| refusal != self.refusal && !stop.stopped()) {
                tracing::warn!(target: target::REDIS, "{e}; routes go on, and the rows that show their state wait");
            }
            self.refusal = refusal;
            // Without a source, only a refused write needs another look.
            let polls = is_refused || !self.shared.lock().sources.is_empty();
            let left = read.map_or(Duration::ZERO, |read| interval.saturating_sub(read.elapsed()));
            let timeout = if polls { left } else { idle::until_idle() };
            may_be_lost = self.connection.wait_for_loss(&self.wait, timeout);
        }
        Ended::at_stop(stop)
    }

    /// Writes the rows that differ from the written ones, after reading the sources if it is `due`.
    /// Returns whether there was one.
    fn write(&mut self, due: bool, may_be_lost: bool) -> Result<bool, TableError> {
        if may_be_lost {
            self.connection.query(&["PING"])?;
        }
        if due {
            // A source may wait for another server, so it runs without the lock.
            let mut sources = std::mem::take(&mut self.shared.lock().sources);
            for source in &mut sources {
                let desired = Desired { fields: (source.fields)(), shared: false };
                self.shared.lock().desired.insert(source.key.clone(), desired);
            }
            self.shared.lock().sources.append(&mut sources);
            if self.checked.elapsed() >= CHECK_INTERVAL {
                self.checked = Instant::now();
                self.check()?;
            }
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

    /// Forgets what was written if a row is gone: another program emptied the database, or deleted the row.
    fn check(&mut self) -> Result<(), TableError> {
        let rows = self.written.iter().filter(|(_, row)| !row.fields.is_empty());
        let command: Vec<&str> = ["EXISTS"].into_iter().chain(rows.map(|(key, _)| key.as_str())).collect();
        let rows = i64::try_from(command.len() - 1).unwrap_or(i64::MAX);
        if rows > 0 && self.connection.query(&command)?.as_integer() != Some(rows) {
            let database = self.connection.database().db.name();
            tracing::warn!(target: target::REDIS, "another program removed rows of {database}; they are written again");
            self.written.clear();
        }
        Ok(())
    }
}
