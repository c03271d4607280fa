//! The settings of a daemon in a row of STATE_DB: the requested and the active value of each, and
//! why they differ. `ribtide show pipeline --sonic` reads it.

use super::events::log;
use super::key_watch::KeyWatch;
use super::{Daemon, Error, refuse};
use ribtide_runtime::thread::{self, Ended};
use ribtide_settings::RequestedSettings;
use ribtide_swss::Db;
use ribtide_tables::Connection;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The table in STATE_DB; keys are daemons.
const TABLE: &str = "RIBTIDE_PIPELINE";
/// The daemons, in the order in which a route passes them.
pub(super) const DAEMONS: [&str; 3] = ["fpmsyncd", "orchagent", "syncd"];
/// The file that requests several servers; SONiC's database container reads it and places the
/// databases.
const ENABLE_MULTIDB: &str = "/etc/sonic/enable_multidb";

/// A setting.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Setting {
    /// Its name; SONiC's where it has one.
    pub name: String,
    /// The value of the command line or CONFIG_DB.
    pub requested: String,
    /// The active value.
    pub active: String,
    /// Why the two differ, or a note.
    #[serde(skip_serializing_if = "String::is_empty", default)]
    pub why: String,
}

/// The settings of a daemon.
pub(super) struct Settings {
    daemon: Daemon,
    all: Vec<Setting>,
}

impl Settings {
    pub(super) fn new(daemon: &Daemon) -> Settings {
        let mut settings = Settings { daemon: daemon.clone(), all: Vec::new() };
        let (requested, active, why) =
            multi_db(Path::new(ENABLE_MULTIDB).exists(), daemon.databases.server_count());
        settings.note("multi-db", requested, active, &why);
        settings
    }

    /// Notes a setting; [`Settings::write`] writes it.
    pub(super) fn note(&mut self, name: &str, requested: impl ToString, active: impl ToString, why: &str) {
        let setting = Setting {
            name: name.into(),
            requested: requested.to_string(),
            active: active.to_string(),
            why: why.into(),
        };
        match self.all.iter_mut().find(|other| other.name == name) {
            Some(place) => *place = setting,
            None => self.all.push(setting),
        }
    }

    /// Removes a setting; [`Settings::write`] writes the change.
    pub(super) fn forget(&mut self, name: &str) {
        self.all.retain(|setting| setting.name != name);
    }

    /// Writes all settings and removes those of an earlier run.
    pub(super) fn write(&self) {
        let text = |setting: &Setting| serde_json::to_string(setting).unwrap_or_default();
        let fields = self.all.iter().map(|setting| (setting.name.clone(), text(setting))).collect();
        self.daemon.bookkeeping.set(TABLE, self.daemon.name, fields);
    }

    /// Changes the active value of a setting, or the note, and writes it if it differs.
    pub(super) fn now(&mut self, name: &str, active: &str, why: &str) {
        if let Some(setting) = self.all.iter_mut().find(|setting| setting.name == name)
            && (setting.active.as_str(), setting.why.as_str()) != (active, why)
        {
            (setting.active, setting.why) = (active.into(), why.into());
            self.write();
        }
    }
}

/// Multi-DB: whether it is requested by SONiC's file or the configuration, whether it is active,
/// and a note.
fn multi_db(file: bool, servers: usize) -> (&'static str, &'static str, String) {
    match (file, servers) {
        (_, 2..) => ("enabled", "enabled", format!("the databases are on {servers} servers")),
        (true, _) => {
            let message = "all databases are on one server: /etc/sonic/enable_multidb counts when the database container starts";
            ("enabled", "disabled", message.into())
        }
        (false, _) => ("disabled", "disabled", String::new()),
    }
}

/// The settings of a daemon in this STATE_DB; empty if it did not run since the start of the
/// databases.
pub(super) fn of(daemon: &str, state: &mut Connection) -> Result<Vec<Setting>, Error> {
    let key = state.database().key(TABLE, daemon);
    let pairs = state.query(&["HGETALL", &key])?.into_pairs();
    Ok(pairs.iter().filter_map(|(_, text)| serde_json::from_str(text).ok()).collect())
}

/// Whether ribtide's daemon has run on these databases.
pub(super) fn is_ours(daemon: &str, state: &mut Connection) -> Result<bool, Error> {
    let key = state.database().key(TABLE, daemon);
    Ok(state.query(&["EXISTS", &key])?.as_integer() == Some(1))
}

/// Whether STATE_DB enables warm restart of everything, or of one of these dockers.
fn warm_restart(daemon: &Daemon, dockers: &[&str]) -> Result<bool, Error> {
    let mut state = daemon.connect(Db::State)?;
    for name in std::iter::once(&"system").chain(dockers) {
        let key = state.database().key("WARM_RESTART_ENABLE_TABLE", name);
        if state.query(&["HGET", &key, "enable"])?.into_text().as_deref() == Some("true") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Refuses settings that cannot be combined with warm restart, which an operator may enable in
/// STATE_DB at any time. It checks at the start, and logs a later conflict, because the next start
/// would fail.
pub(super) fn refuse_with_warm_restart(
    daemon: &Daemon,
    requested: RequestedSettings,
    dockers: &'static [&'static str],
) -> Result<(), Error> {
    let enabled = warm_restart(daemon, dockers)?;
    refuse(&RequestedSettings { warm_restart: enabled, ..requested })?;
    let Err(why) = refuse(&RequestedSettings { warm_restart: true, ..requested }) else { return Ok(()) };
    let state = daemon.databases.get(Db::State);
    let keys = std::iter::once(&"system").chain(dockers);
    let keys = keys.map(|name| state.key("WARM_RESTART_ENABLE_TABLE", name)).collect();
    let mut watch = KeyWatch::start(Db::State, keys, daemon)?;
    let daemon = daemon.clone();
    let body = move || {
        let mut was = false;
        while !daemon.stop.stopped() {
            watch.wait();
            // Without STATE_DB the state is unknown.
            let is = warm_restart(&daemon, dockers).unwrap_or(was);
            if is && !was {
                log!(daemon.name, warn, reason = %why, "the daemon would not start again");
            }
            was = is;
        }
        Ended::at_stop(&daemon.stop)
    };
    let thread = thread::spawn("warm-restart", body);
    thread.map(drop).map_err(Error::no_thread("to look for warm restart"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis_servers;
    use ribtide_tables::Databases;

    #[test]
    fn several_servers_are_a_setting() {
        let dir = tempfile::tempdir().unwrap();
        let servers = |several| {
            let file = redis_servers::write(dir.path(), several).unwrap();
            Databases::load(Some(&file)).unwrap().server_count()
        };
        assert_eq!(multi_db(false, servers(false)), ("disabled", "disabled", String::new()));
        let (requested, active, why) = multi_db(false, servers(true));
        assert_eq!((requested, active), ("enabled", "enabled"));
        assert_eq!(why, format!("the databases are on {} servers", servers(true)));
        let (requested, active, why) = multi_db(true, servers(false));
        assert_eq!((requested, active), ("enabled", "disabled"));
        assert!(why.starts_with("all databases are on one server"), "{why}");
    }
}
