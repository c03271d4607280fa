//! A setting of CONFIG_DB that a daemon follows while it runs.
//!
//! Redis tells who listens that a row was written (its keyspace notifications, which SONiC turns on); where it does not, the row is
//! looked at once a second. A setting that is not there says nothing: CONFIG_DB that was lost, or is being written again, changes nothing.

use super::Error;
use super::config_db::{ConfigDb, Switch};
use crossbeam_channel::{Receiver, Select, bounded};
use ribtide_runtime::thread::{self, Stop};
use ribtide_swss::Db;
use ribtide_tables::{Databases, wake_ups};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

/// How often it is looked at, told or not.
const CONFIG_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Such a setting.
pub(super) struct ConfigWatch {
    on: Arc<AtomicBool>,
    wake: Receiver<()>,
}

impl ConfigWatch {
    /// Follows `switch`, which is `on` now, until `stop`.
    ///
    /// # Errors
    /// When there is no CONFIG_DB now, or no thread; a CONFIG_DB that goes away is waited for.
    pub(super) fn start(
        switch: Switch,
        on: bool,
        databases: &Databases,
        stop: &Stop,
    ) -> Result<ConfigWatch, Error> {
        let database = databases.get(Db::Config);
        let channel = format!("__keyspace@{}__:{}", database.id, switch.row(database));
        let told = wake_ups(database, vec![channel], stop)?.pop();
        let mut config = ConfigDb::open(databases, stop)?;
        let follows = Arc::new(AtomicBool::new(on));
        let (its, stop) = (follows.clone(), stop.clone());
        let (waker, wake) = bounded(1);
        let body = move || {
            while !stop.stopped() {
                // Who tells may be gone: then it is looked at when it is time.
                if told.as_ref().is_none_or(|told| {
                    told.recv_timeout(CONFIG_POLL_INTERVAL).is_err_and(|e| e.is_disconnected())
                }) {
                    std::thread::sleep(CONFIG_POLL_INTERVAL);
                }
                let Ok(Some(says)) = config.says(switch) else { continue };
                if its.swap(says, Relaxed) != says {
                    // Full means that a wake-up waits already.
                    let _ = waker.try_send(());
                }
            }
        };
        thread::spawn("follows-config", body)
            .map_err(|e| Error::new(format!("no thread to follow CONFIG_DB: {e}")))?;
        Ok(ConfigWatch { on: follows, wake })
    }

    /// Whether it is on.
    pub(super) fn is_on(&self) -> bool {
        // This is the look that a wake-up asks for.
        let _ = self.wake.try_recv();
        self.on.load(Relaxed)
    }

    /// Lets `select` see when it may have changed.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(&self.wake);
    }
}
