//! The counters that syncd polls, in COUNTERS_DB, and their settings in FLEX_COUNTER_DB, as SONiC's
//! syncd keeps them.
//!
//! A thread writes; the stage never waits for it. What waits coalesces by object and by key, so it is
//! never more than the objects that are polled.

use crate::{Daemon, Error};
use ribtide_runtime::log::target;
use ribtide_runtime::thread::{self, Ends};
use ribtide_runtime::wake_up::{self, Waker};
use ribtide_swss::sai::{CounterOp, Oid, Sai};
use ribtide_swss::syncd::{CounterScript, PollChange, Polled, Syncd};
use ribtide_swss::{Db, Name};
use ribtide_tables::{Connection, TableError};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The tables of groups and of their objects.
const GROUPS: &str = "FLEX_COUNTER_GROUP_TABLE";
const MEMBERS: &str = "FLEX_COUNTER_TABLE";
/// The table of values.
const COUNTERS: &str = "COUNTERS";

type Fields = BTreeMap<Name, Name>;

/// What the thread has to write.
#[derive(Default)]
struct Waiting {
    /// Whether all rows of FLEX_COUNTER_DB go before.
    reset: bool,
    /// Rows of FLEX_COUNTER_DB by table and key; `None`: it goes.
    settings: BTreeMap<(&'static str, Name), Option<Fields>>,
    values: BTreeMap<Oid, Fields>,
    scripts: BTreeMap<Name, CounterScript>,
}

impl Waiting {
    fn change(&mut self, change: PollChange) {
        let PollChange::Request { op, key, fields } = change else {
            *self = Waiting { reset: true, ..Waiting::default() };
            return;
        };
        let table = match op {
            CounterOp::SetGroup | CounterOp::DelGroup => GROUPS,
            CounterOp::StartPoll | CounterOp::StopPoll => MEMBERS,
        };
        let row = self.settings.entry((table, key)).or_default();
        match op {
            CounterOp::DelGroup | CounterOp::StopPoll => *row = None,
            CounterOp::SetGroup | CounterOp::StartPoll => row.get_or_insert_default().extend(fields),
        }
    }
}

/// The stage's end.
pub struct CounterSink {
    waiting: Arc<Mutex<Waiting>>,
    waker: Waker,
}

impl CounterSink {
    /// Starts the thread.
    ///
    /// # Errors
    /// A database that cannot be used, or no thread.
    pub(super) fn start(daemon: &Daemon) -> Result<CounterSink, Error> {
        let (waker, wake_up) = wake_up::pair();
        let waiting = Arc::<Mutex<Waiting>>::default();
        let (its, stop) = (waiting.clone(), daemon.stop.clone());
        let (mut counters, mut flex) = (daemon.connect(Db::Counters)?, daemon.connect(Db::FlexCounter)?);
        let body = move || {
            while wake_up.wait_or_idle(|| {}).is_ok() {
                let work = std::mem::take(&mut *its.lock().unwrap_or_else(PoisonError::into_inner));
                if let Err(e) = write(work, &mut counters, &mut flex) {
                    if stop.stopped() {
                        return;
                    }
                    tracing::error!(target: target::SYNCD, error = %e, "polled counters are not written");
                }
            }
        };
        thread::spawn("counters", Ends::WithOwner, body).map_err(Error::no_thread("for polled counters"))?;
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

fn write(work: Waiting, counters: &mut Connection, flex: &mut Connection) -> Result<(), Error> {
    let set = |db: &mut Connection, key: &str, fields: &Fields| {
        db.queue_with(|command| {
            command.arg("HSET");
            command.arg(key);
            for (name, value) in fields {
                command.arg(name);
                command.arg(value);
            }
        });
    };
    if work.reset {
        for key in keys(flex)? {
            flex.queue(&["DEL", &key]);
        }
    }
    for ((table, key), fields) in &work.settings {
        let key = flex.database().key(table, key);
        match fields {
            Some(fields) if !fields.is_empty() => set(flex, &key, fields),
            Some(_) => flex.queue(&["HSET", &key, "NULL", "NULL"]),
            None => flex.queue(&["DEL", &key]),
        }
    }
    flex.flush()?;
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
pub(super) fn restore<C: Sai>(syncd: &mut Syncd<C>, daemon: &Daemon) -> Result<(), Error> {
    let mut flex = daemon.connect(Db::FlexCounter)?;
    let keys = keys(&mut flex)?;
    let rows = flex.query_all(keys.iter().map(|key| ["HGETALL", key.as_str()]))?;
    let tables = [(GROUPS, CounterOp::SetGroup), (MEMBERS, CounterOp::StartPoll)]
        .map(|(table, op)| (flex.database().key(table, ""), op));
    for (key, row) in keys.iter().zip(rows) {
        let of = tables.iter().find_map(|(prefix, op)| Some((key.strip_prefix(prefix.as_str())?, *op)));
        let Some((key, op)) = of else { continue };
        let fields = row.into_pairs().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        syncd.restore_poll(&PollChange::Request { op, key: key.into(), fields });
    }
    Ok(())
}
