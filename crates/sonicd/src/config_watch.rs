//! Watches a setting of CONFIG_DB while a daemon runs.
//!
//! An absent field keeps the setting as it is, since CONFIG_DB may be lost or loading.

use super::config_db::{ConfigDb, Switch};
use super::key_watch::KeyWatch;
use super::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_runtime::thread::{self, Ended};
use ribtide_runtime::wake_up::{self, WakeUp};
use ribtide_swss::Db;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A watched setting.
pub(super) struct ConfigWatch {
    on: Arc<AtomicBool>,
    wake_up: WakeUp,
}

impl ConfigWatch {
    /// Starts to watch `switch`, which is `on` now, until the daemon stops.
    ///
    /// # Errors
    /// CONFIG_DB does not reply now, or the thread cannot be created. Later the watcher waits for a
    /// lost CONFIG_DB.
    pub(super) fn start(switch: Switch, on: bool, daemon: &Daemon) -> Result<ConfigWatch, Error> {
        let row = switch.row(daemon.databases.get(Db::Config));
        let mut watch = KeyWatch::start(Db::Config, vec![row], daemon)?;
        let mut config = ConfigDb::new(daemon.connect(Db::Config)?);
        let follows = Arc::new(AtomicBool::new(on));
        let (its, stop) = (follows.clone(), daemon.stop.clone());
        let (waker, wake_up) = wake_up::pair();
        let body = move || {
            while !stop.stopped() {
                watch.wait();
                let Ok(Some(now)) = config.enabled(switch) else { continue };
                if its.swap(now, Relaxed) != now {
                    waker.wake();
                }
            }
            Ended::at_stop(&stop)
        };
        thread::spawn("config-watch", body).map_err(Error::no_thread("to follow CONFIG_DB"))?;
        Ok(ConfigWatch { on: follows, wake_up })
    }

    /// Whether it is on.
    pub(super) fn is_on(&self) -> bool {
        // The check that follows a wake-up.
        let _ = self.wake_up.take();
        self.on.load(Relaxed)
    }

    /// Makes `select` ready when it may have changed.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.wake_up.watch(select);
    }
}
