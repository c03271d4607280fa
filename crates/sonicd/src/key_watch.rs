//! Waits for changes of rows that other programs write: settings in CONFIG_DB, warm restart in STATE_DB.
//!
//! A keyspace notification of Redis (SONiC sets `notify-keyspace-events`) wakes the watcher. It reads the rows now and then
//! in any case, since a notification may be lost, and once a second where the server sends none.

use super::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_runtime::thread::StopSignal;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_swss::Db;
use ribtide_tables::{Connection, wake_ups};
use std::time::Duration;

/// Interval of reads without and with notifications.
const READ_INTERVALS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// A watch of some rows of a database.
pub(super) struct KeyWatch {
    connection: Connection,
    notifications: Vec<WakeUp>,
    signal: StopSignal,
}

impl KeyWatch {
    /// Watches the rows with these keys until the daemon stops.
    ///
    /// # Errors
    /// The database does not reply now, or the thread of the subscription cannot be created.
    pub(super) fn start(db: Db, keys: Vec<String>, daemon: &Daemon) -> Result<KeyWatch, Error> {
        let database = daemon.databases.get(db);
        let channels = keys.iter().map(|key| format!("__keyspace@{}__:{key}", database.id)).collect();
        Ok(KeyWatch {
            connection: daemon.connect(db)?,
            notifications: wake_ups(database, channels, &daemon.stop)?,
            signal: daemon.stop.signal(),
        })
    }

    /// Waits until a read is due; at once at the stop.
    pub(super) fn wait(&mut self) {
        let interval = if self.notifies() { READ_INTERVALS.1 } else { READ_INTERVALS.0 };
        let mut select = Select::new();
        self.signal.watch(&mut select);
        self.notifications.iter().for_each(|wake_up| wake_up.watch(&mut select));
        let _ = select.ready_timeout(interval);
        self.notifications.iter().for_each(|wake_up| _ = wake_up.take());
    }

    /// Whether the server sends notifications of hashes. One that does not tell sends none.
    fn notifies(&mut self) -> bool {
        let answer = self.connection.query(&["CONFIG", "GET", "notify-keyspace-events"]);
        let events = answer.map(|answer| answer.into_pairs()).unwrap_or_default();
        let has = |events: &str| events.contains('K') && (events.contains('A') || events.contains('h'));
        events.first().is_some_and(|(_, events)| has(events))
    }
}
