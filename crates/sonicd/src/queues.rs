//! The queues of a daemon: depth, bound and peak of each.
//!
//! Rings count themselves, and stages report other queues ([`Rings::gauge`]). A thread polls all of
//! them once a second and writes changes to STATE_DB for `ribtide show pipeline --sonic`. No stage
//! and no route waits for it, and an idle daemon writes nothing.

use super::events::log;
use super::{Daemon, Error};
use ribtide_runtime::gauge::{Depth, Gauge};
use ribtide_runtime::idle;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::{self, Stop};
use ribtide_swss::Db;
use ribtide_tables::{Connection, TableError, state_table};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The table in STATE_DB: keys are daemons, fields are queues.
const TABLE: &str = "RIBTIDE_QUEUES";
/// Poll interval.
const QUEUES_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A queue of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Queue {
    /// Its name. A ring holds batches or messages; otherwise the name says the content.
    pub name: String,
    /// How full it is.
    #[serde(flatten)]
    pub level: Level,
}

/// How full a queue is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Level {
    /// The bound at which its producer waits; `None` if only the number of routes bounds it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bound: Option<u64>,
    /// The present depth.
    pub depth: u64,
    /// The peak.
    pub peak: u64,
    /// How often it was full.
    pub full: u64,
}

/// Starts to write the queues of `daemon`: those in `rings` now and later. `keys`: also the number
/// of pending keys of this table of APPL_DB.
pub(super) fn publish(keys: Option<&'static str>, daemon: &Daemon) -> Result<(), Error> {
    let connection = daemon.connect(Db::State)?;
    let keys = keys.map(|table| Keys::open(table, daemon)).transpose()?;
    let key = connection.database().key(TABLE, daemon.name);
    let publisher = Publisher {
        daemon: daemon.name,
        rings: daemon.rings.clone(),
        keys,
        connection,
        generation: None,
        key,
        seen: BTreeMap::new(),
    };
    let stop = daemon.stop.clone();
    let thread = thread::spawn("queues", move || publisher.run(&stop));
    thread.map(drop).map_err(|e| Error::new(format!("no thread to look at queues: {e}")))
}

/// Pending keys of a table, which are read from the server.
struct Keys {
    connection: Connection,
    set: String,
    gauge: Gauge,
}

impl Keys {
    fn open(table: &str, daemon: &Daemon) -> Result<Keys, Error> {
        let set = format!("{table}_KEY_SET");
        let gauge = daemon.rings.gauge(format!("keys in {set}"), Some(state_table::BACKLOG as usize));
        Ok(Keys { connection: daemon.connect(Db::Appl)?, set, gauge })
    }

    fn look(&mut self) -> Result<(), TableError> {
        let depth = self.connection.query(&["SCARD", &self.set])?.as_integer().unwrap_or(0);
        self.gauge.set(usize::try_from(depth).unwrap_or(0));
        Ok(())
    }
}

struct Publisher {
    daemon: &'static str,
    rings: Rings,
    keys: Option<Keys>,
    connection: Connection,
    /// The generation of the server that has the written values.
    generation: Option<u64>,
    key: String,
    /// The written value of each queue.
    seen: BTreeMap<String, String>,
}

impl Publisher {
    fn run(mut self, stop: &Stop) {
        while !stop.stopped() {
            match self.look() {
                Ok(told) if idle::on_wait(!told) => {
                    self.connection.shrink_to_fit();
                    self.keys.iter_mut().for_each(|keys| keys.connection.shrink_to_fit());
                }
                // The connection for routes is not affected.
                Err(e) if !stop.stopped() => {
                    return log!(self.daemon, error, error = %e, "queue levels are not published any more");
                }
                _ => {}
            }
            std::thread::sleep(QUEUES_POLL_INTERVAL);
        }
    }

    /// Whether there was a change.
    fn look(&mut self) -> Result<bool, TableError> {
        self.keys.as_mut().map_or(Ok(()), Keys::look)?;
        // A restarted server may have lost the values, or have old ones.
        self.connection.query(&["PING"])?;
        if self.generation != Some(self.connection.generation()) {
            self.generation = Some(self.connection.generation());
            self.seen.clear();
            self.connection.queue(&["DEL", &self.key]);
        }
        let now: BTreeMap<String, String> = self.rings.depths().into_iter().map(line).collect();
        let changed: Vec<_> = now.iter().filter(|(name, line)| self.seen.get(*name) != Some(line)).collect();
        for (name, line) in &changed {
            self.connection.queue(&["HSET", &self.key, name, line]);
        }
        let gone = self.seen.keys().filter(|name| !now.contains_key(*name));
        gone.for_each(|name| self.connection.queue(&["HDEL", &self.key, name]));
        let wrote = !changed.is_empty() || self.seen.len() > now.len();
        self.connection.flush()?;
        self.seen = now;
        Ok(wrote)
    }
}

/// The field and value of a queue.
fn line(queue: Depth) -> (String, String) {
    let Depth { name, bound, depth, peak, full } = queue;
    (name, serde_json::to_string(&Level { bound, depth, peak, full }).unwrap_or_default())
}

/// The queues of a daemon in this STATE_DB by name; empty if it did not run since the start of the
/// databases.
pub(super) fn of(daemon: &str, state: &mut Connection) -> Result<Vec<Queue>, Error> {
    let key = state.database().key(TABLE, daemon);
    let mut fields = state.query(&["HGETALL", &key])?.into_pairs();
    fields.sort();
    let queue =
        |(name, line): (String, String)| Some(Queue { name, level: serde_json::from_str(&line).ok()? });
    Ok(fields.into_iter().filter_map(queue).collect())
}
