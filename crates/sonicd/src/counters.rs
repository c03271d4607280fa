//! The counters that syncd polls, in COUNTERS_DB, and their settings in FLEX_COUNTER_DB, as SONiC's
//! syncd keeps them.
//!
//! A thread writes; the stage never waits for it. What waits coalesces by object and by key, so it is
//! never more than the objects that are polled.

use crate::{Daemon, Error};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::Closed;
use ribtide_runtime::thread;
use ribtide_runtime::wake_up::{self, Waker};
use ribtide_swss::sai::{CounterOp, Oid, Sai};
use ribtide_swss::syncd::{CounterScript, PollChange, Polled, Syncd};
use ribtide_swss::{Db, Name};
use ribtide_tables::{Connection, TableError};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The tables of groups and of their objects.
const GROUPS: &str = "FLEX_COUNTER_GROUP_TABLE";
const MEMBERS: &str = "FLEX_COUNTER_TABLE";
/// The table of values.
const COUNTERS: &str = "COUNTERS";

/// Interval of looks whether another program emptied FLEX_COUNTER_DB.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

type Fields = BTreeMap<Name, Name>;
/// The place of a row of FLEX_COUNTER_DB: its table and key.
type Place = (&'static str, Name);

/// What becomes of a row of FLEX_COUNTER_DB.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
struct RowChange {
    /// Whether the row goes first.
    deleted: bool,
    /// Fields that are set then.
    set: Option<Fields>,
}

/// What the thread has to write.
#[derive(Default)]
struct Waiting {
    /// Whether all rows of FLEX_COUNTER_DB go before.
    reset: bool,
    settings: BTreeMap<Place, RowChange>,
    values: BTreeMap<Oid, Fields>,
    scripts: BTreeMap<Name, CounterScript>,
}

impl Waiting {
    fn change(&mut self, change: PollChange) {
        let PollChange::Request { op, key, fields } = change else {
            *self = Waiting { reset: true, ..Waiting::default() };
            return;
        };
        for place in places(op, &key) {
            let row = self.settings.entry(place).or_default();
            match op {
                CounterOp::DelGroup | CounterOp::StopPoll => *row = RowChange { deleted: true, set: None },
                CounterOp::SetGroup | CounterOp::StartPoll => {
                    row.set.get_or_insert_default().extend(fields.iter().cloned());
                }
            }
        }
    }
}

/// The rows of a request: of several objects one each, as SONiC's syncd has them.
fn places(op: CounterOp, key: &Name) -> Vec<Place> {
    match (op, key.split_once(':')) {
        (CounterOp::StartPoll | CounterOp::StopPoll, Some((group, ids))) => {
            ids.split(',').map(|id| (MEMBERS, format!("{group}:{id}").into())).collect()
        }
        (CounterOp::StartPoll | CounterOp::StopPoll, None) => vec![(MEMBERS, key.clone())],
        (CounterOp::SetGroup | CounterOp::DelGroup, _) => vec![(GROUPS, key.clone())],
    }
}

/// The settings that FLEX_COUNTER_DB shall hold, so that they can be written again.
#[derive(Clone, Default)]
pub(super) struct Settings(BTreeMap<Place, Fields>);

impl Settings {
    fn apply(&mut self, place: &Place, change: &RowChange) {
        if change.deleted {
            self.0.remove(place);
        }
        if let Some(set) = &change.set {
            self.0
                .entry(place.clone())
                .or_default()
                .extend(set.iter().map(|(name, value)| (name.clone(), value.clone())));
        }
    }
}

/// The thread's end.
struct Writer {
    counters: Connection,
    flex: Connection,
    /// What FLEX_COUNTER_DB shall hold.
    settings: Settings,
    /// The generation of the connection at the last complete write.
    generation: u64,
    /// Whether a write failed, so that any row may be missing.
    lost: bool,
}

impl Writer {
    fn new(counters: Connection, flex: Connection, settings: Settings) -> Writer {
        let generation = flex.generation();
        Writer { counters, flex, settings, generation, lost: false }
    }

    /// Writes what waits, and all settings where the database does not have them any more.
    fn write(&mut self, work: Waiting) -> Result<(), Error> {
        let settings = self.write_settings(&work);
        self.lost |= settings.is_err();
        // Values do not wait for settings.
        write_values(&work, &mut self.counters)?;
        settings
    }

    fn write_settings(&mut self, work: &Waiting) -> Result<(), Error> {
        // Before a row is written, which would look as if the others were there.
        let missing = if work.reset { Ok(false) } else { self.is_missing() };
        if work.reset {
            self.settings = Settings::default();
        }
        work.settings.iter().for_each(|(place, change)| self.settings.apply(place, change));
        let missing = missing?;
        if work.reset {
            for key in keys(&mut self.flex)? {
                self.flex.queue(&["DEL", &key]);
            }
        }
        if missing {
            let rows = self.settings.0.len();
            tracing::warn!(target: target::SYNCD, rows, "writing all of FLEX_COUNTER_DB again, which has lost rows");
        }
        let all =
            self.settings.0.iter().filter(|_| missing).map(|(place, fields)| (place, true, Some(fields)));
        let changes = work.settings.iter().map(|(place, row)| (place, row.deleted, row.set.as_ref()));
        // Where all is written again, a row that went is only deleted.
        for (place, deleted, fields) in changes.chain(all) {
            let key = self.flex.database().key(place.0, &place.1);
            if deleted {
                self.flex.queue(&["DEL", &key]);
            }
            if let Some(fields) = fields {
                set(&mut self.flex, &key, fields);
            }
        }
        self.flex.flush()?;
        (self.generation, self.lost) = (self.flex.generation(), false);
        Ok(())
    }

    /// Whether the database lacks settings: a write failed, the server was away, or another program emptied it.
    fn is_missing(&mut self) -> Result<bool, Error> {
        let Some((table, name)) = self.settings.0.keys().next() else { return Ok(self.lost) };
        let key = self.flex.database().key(table, name);
        let exists = self.flex.query(&["EXISTS", &key])?.as_integer() != Some(0);
        Ok(self.lost || !exists || self.generation != self.flex.generation())
    }
}

/// The stage's end.
pub struct CounterSink {
    waiting: Arc<Mutex<Waiting>>,
    waker: Waker,
}

impl CounterSink {
    /// Starts the thread. `settings`: those that FLEX_COUNTER_DB has.
    ///
    /// # Errors
    /// A database that cannot be used, or no thread.
    pub(super) fn start(settings: Settings, daemon: &Daemon) -> Result<CounterSink, Error> {
        let (waker, wake_up) = wake_up::pair();
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (its, stop) = (waiting.clone(), daemon.stop.clone());
        let mut writer =
            Writer::new(daemon.connect(Db::Counters)?, daemon.connect(Db::FlexCounter)?, settings);
        let body = move || -> Result<Infallible, Closed> {
            loop {
                // Without settings there is nothing to look for.
                if writer.settings.0.is_empty() && !writer.lost {
                    wake_up.wait_or_idle(|| {})?;
                } else if !wake_up.wait_timeout(LOOK_INTERVAL) {
                    wake_up.take()?;
                }
                let work = std::mem::take(&mut *its.lock().unwrap_or_else(PoisonError::into_inner));
                if let Err(e) = writer.write(work) {
                    stop.running()?;
                    tracing::error!(target: target::SYNCD, error = %e, "polled counters are not written");
                }
            }
        };
        thread::spawn("counters", body).map_err(Error::no_thread("for polled counters"))?;
        Ok(CounterSink { waiting, waker })
    }

    /// Sends changes of settings.
    pub(super) fn settings(&self, changes: &mut Vec<PollChange>) {
        if changes.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        changes.drain(..).for_each(|change| waiting.change(change));
        drop(waiting);
        self.waker.wake();
    }

    /// Sends values, and empties them.
    pub(super) fn values(&self, polled: &mut Polled) {
        if polled.is_empty() {
            return;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for (oid, fields) in polled.rows.drain(..) {
            waiting.values.entry(oid).or_default().extend(fields);
        }
        for script in polled.scripts.drain(..) {
            waiting.scripts.insert(script.sha.clone(), script);
        }
        drop(waiting);
        self.waker.wake();
    }
}

/// Sets the fields of a row; a row without any has the filler of swss-common.
fn set(db: &mut Connection, key: &str, fields: &Fields) {
    if fields.is_empty() {
        return db.queue(&["HSET", key, "NULL", "NULL"]);
    }
    db.queue_with(|command| {
        command.arg("HSET");
        command.arg(key);
        for (name, value) in fields {
            command.arg(name);
            command.arg(value);
        }
    });
}

fn write_values(work: &Waiting, counters: &mut Connection) -> Result<(), Error> {
    for (oid, fields) in &work.values {
        let key = counters.database().key(COUNTERS, &oid.to_string());
        set(counters, &key, fields);
    }
    counters.flush()?;
    // The arguments of SONiC's scripts: the number of COUNTERS_DB, its table, and the interval.
    let number = counters.database().id.to_string();
    for script in work.scripts.values() {
        let (count, interval) = (script.objects.len().to_string(), script.interval_ms.to_string());
        let objects: Vec<String> = script.objects.iter().map(Oid::to_string).collect();
        counters.queue_with(|command| {
            ["EVALSHA", &*script.sha, &count].into_iter().for_each(|arg| command.arg(arg));
            objects.iter().for_each(|oid| command.arg(oid));
            [&*number, COUNTERS, &interval].into_iter().for_each(|arg| command.arg(arg));
        });
    }
    match counters.flush() {
        // orchagent loads its scripts into Redis, which forgets them when it starts again. Rows of rates
        // are missing then, and nothing else.
        Err(TableError::Refused { message, .. }) => {
            tracing::debug!(target: target::SYNCD, message, "a script of counters did not run");
            Ok(())
        }
        result => Ok(result?),
    }
}

/// The keys of settings.
fn keys(flex: &mut Connection) -> Result<Vec<String>, TableError> {
    let mut keys = Vec::new();
    for table in [GROUPS, MEMBERS] {
        let pattern = flex.database().key(table, "*");
        flex.scan(&pattern, |_, names| {
            keys.extend_from_slice(names);
            Ok(())
        })?;
    }
    Ok(keys)
}

/// Reads the settings that an earlier syncd kept: orchagent goes on, and does not send them again.
///
/// # Errors
/// A database that cannot be used.
pub(super) fn restore<C: Sai>(syncd: &mut Syncd<C>, daemon: &Daemon) -> Result<Settings, Error> {
    let (settings, changes) = read(&mut daemon.connect(Db::FlexCounter)?)?;
    changes.iter().for_each(|change| syncd.restore_poll(change));
    Ok(settings)
}

/// The settings of the database, and the requests that make them. A row of several objects, as earlier versions wrote
/// it, becomes one of each.
fn read(flex: &mut Connection) -> Result<(Settings, Vec<PollChange>), Error> {
    let keys = keys(flex)?;
    let rows = flex.query_all(keys.iter().map(|key| ["HGETALL", key.as_str()]))?;
    let tables = [(GROUPS, CounterOp::SetGroup), (MEMBERS, CounterOp::StartPoll)]
        .map(|(table, op)| (flex.database().key(table, ""), op));
    let (mut settings, mut changes) = (Settings::default(), Vec::new());
    for (key, row) in keys.iter().zip(rows) {
        let of = tables.iter().find_map(|(prefix, op)| Some((key.strip_prefix(prefix.as_str())?, *op)));
        let Some((name, op)) = of else { continue };
        let name = Name::from(name);
        let fields: Vec<(Name, Name)> =
            row.into_pairs().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        let places = places(op, &name);
        if places.len() > 1 {
            flex.queue(&["DEL", key]);
        }
        let change = RowChange { deleted: false, set: Some(fields.iter().cloned().collect()) };
        for place in &places {
            settings.apply(place, &change);
            if places.len() > 1 {
                let key = flex.database().key(place.0, &place.1);
                set(flex, &key, &settings.0[place]);
            }
        }
        changes.push(PollChange::Request { op, key: name, fields });
    }
    flex.flush()?;
    Ok((settings, changes))
}

#[cfg(test)]
mod tests;
