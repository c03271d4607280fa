//! The queues of a daemon: depth, bound and peak of each.
//!
//! Rings count themselves, and stages report other queues ([`Rings::gauge`]). The bookkeeping thread
//! writes changes to STATE_DB for `ribtide show pipeline --sonic`. An idle daemon writes nothing.

use super::{Daemon, Error};
use ribtide_runtime::gauge::{Depth, Gauge};
use ribtide_swss::Db;
use ribtide_tables::{Connection, state_table, unreadable_keys};
use serde::{Deserialize, Serialize};

/// The table in STATE_DB: keys are daemons, fields are queues.
const TABLE: &str = "RIBTIDE_QUEUES";

/// A queue of a daemon.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, schemars::JsonSchema)]
pub struct Queue {
    /// Its name. A ring holds batches or messages; otherwise the name says the content.
    pub name: String,
    /// How full it is.
    #[serde(flatten)]
    pub level: Level,
}

/// How full a queue is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
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
    let mut keys = keys.map(|table| Keys::open(table, daemon)).transpose()?;
    let rings = daemon.rings.clone();
    let unreadable = rings.gauge("unreadable keys of Redis", None);
    daemon.bookkeeping.follow(TABLE, daemon.name, move || {
        keys.iter_mut().for_each(Keys::look);
        unreadable.set(unreadable_keys());
        rings.depths().into_iter().map(line).collect()
    });
    Ok(())
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

    /// A server that refuses to count leaves the count as it is.
    fn look(&mut self) {
        if let Ok(depth) = self.connection.query(&["SCARD", &self.set]) {
            self.gauge.set(depth.as_integer().and_then(|depth| usize::try_from(depth).ok()).unwrap_or(0));
        }
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
