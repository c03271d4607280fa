//! CONFIG_DB: the settings of the daemons of the route path, and SONiC's commands that change them.
//!
//! SONiC's daemons read some settings once at the start. SONiC's scripts (orchagent.sh,
//! syncd_init_common.sh) read others and pass them as options. ribtide's daemons do the same, and
//! with `--config-db` also what the scripts do. A change of FIB suppression takes effect at run
//! time ([`super::config_watch`]).

use super::Error;
use super::settings::Settings;
use clap::ValueEnum;
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_tables::{Connection, Database, Databases};
use serde::Serialize;
use std::fmt;
use std::path::Path;

/// Why a setting of CONFIG_DB is not active.
const SCRIPTS: &str = "SONiC's scripts make options of it, and there was none; --config-db does what they do";

/// A setting of CONFIG_DB that is on or off.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Switch {
    /// orchagent waits for syncd's reply to each request; on unless it is said otherwise
    #[value(name = "synchronous_mode")]
    SynchronousMode,
    /// BGP advertises only what the switch has confirmed; wants synchronous_mode
    #[value(name = "suppress-fib-pending")]
    SuppressFibPending,
    /// zebra names next-hop groups, and orchagent makes a group even of a single next hop
    #[value(name = "next-hop-group")]
    NextHopGroup,
    /// orchagent takes routes on a thread of their own
    #[value(name = "ring_thread_enabled")]
    RingThread,
    /// ZeroMQ to orchagent and to syncd
    #[value(name = "swss_zmq")]
    Zmq,
    /// Recordings and responses on threads of their own; with swss_zmq, ASIC_DB behind
    #[value(name = "async_rec")]
    AsyncRec,
}

impl Switch {
    /// The name in SONiC, for commands and `show pipeline --sonic`.
    pub(super) fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Table, key, field, and its values for on and off.
    fn place(self) -> (&'static str, &'static str, &'static str, [&'static str; 2]) {
        let device = |field, words| ("DEVICE_METADATA", "localhost", field, words);
        let default = |key| ("SYSTEM_DEFAULTS", key, "status", ["enabled", "disabled"]);
        match self {
            Switch::SynchronousMode => device("synchronous_mode", ["enable", "disable"]),
            Switch::SuppressFibPending => device("suppress-fib-pending", ["enabled", "disabled"]),
            Switch::NextHopGroup => device("nexthop_group", ["enabled", "disabled"]),
            Switch::RingThread => device("ring_thread_enabled", ["true", "false"]),
            Switch::Zmq => default("swss_zmq"),
            Switch::AsyncRec => default("async_rec"),
        }
    }

    /// The key of its row.
    pub(super) fn row(self, database: &Database) -> String {
        let (table, key, ..) = self.place();
        database.key(table, key)
    }
}

/// A database.
pub(super) struct ConfigDb(Connection);

impl ConfigDb {
    /// CONFIG_DB on this connection.
    pub(super) fn new(connection: Connection) -> ConfigDb {
        ConfigDb(connection)
    }

    fn field(&mut self, table: &str, key: &str, field: &str) -> Result<Option<String>, Error> {
        let key = self.0.database().key(table, key);
        Ok(self.0.query(&["HGET", &key, field])?.into_text())
    }

    /// A field of `DEVICE_METADATA|localhost`.
    pub(super) fn device(&mut self, field: &str) -> Result<Option<String>, Error> {
        self.field("DEVICE_METADATA", "localhost", field)
    }

    /// A number of `WARM_RESTART|bgp`.
    pub(super) fn warm_bgp(&mut self, field: &str) -> Result<Option<u64>, Error> {
        Ok(self.field("WARM_RESTART", "bgp", field)?.and_then(|text| text.trim().parse().ok()))
    }

    /// Milliseconds between orchagent's heartbeats.
    pub(super) fn heartbeat(&mut self) -> Result<Option<String>, Error> {
        self.field("HEARTBEAT", "orchagent", "heartbeat_interval")
    }

    /// Whether a setting is on.
    pub(super) fn has(&mut self, switch: Switch) -> Result<bool, Error> {
        let (table, key, field, [on, off]) = switch.place();
        let value = self.field(table, key, field)?;
        Ok(match switch {
            Switch::SynchronousMode => value.as_deref() != Some(off),
            _ => value.as_deref() == Some(on),
        })
    }

    /// Whether a setting is enabled; `None` if CONFIG_DB does not have it.
    pub(super) fn enabled(&mut self, switch: Switch) -> Result<Option<bool>, Error> {
        let (table, key, field, [on, _]) = switch.place();
        Ok(self.field(table, key, field)?.map(|value| value == on))
    }

    /// Whether routes go to orchagent over ZeroMQ: the present flag, or that before June 2026.
    pub(super) fn routes_over_zmq(&mut self) -> Result<bool, Error> {
        Ok(self.has(Switch::Zmq)?
            || self.device("orch_northbond_route_zmq_enabled")?.as_deref() == Some("true"))
    }

    /// Whether requests go to syncd over ZeroMQ: the present flag, that before June 2026, or a DPU.
    pub(super) fn requests_over_zmq(&mut self) -> Result<bool, Error> {
        Ok(self.has(Switch::Zmq)?
            || self.device("orch_southbound_zmq_enabled")?.as_deref() == Some("true")
            || self.device("switch_type")?.as_deref() == Some("dpu"))
    }

    /// Whether an option is given on the command line, or with `scripts` by CONFIG_DB. Notes the
    /// requested value.
    pub(super) fn option(
        &mut self,
        switch: Switch,
        given: bool,
        scripts: bool,
        settings: &mut Settings,
    ) -> Result<bool, Error> {
        let requested = self.has(switch)?;
        let active = given || (scripts && requested);
        let on = |on| if on { "enabled" } else { "disabled" };
        settings.note(
            &switch.name(),
            on(requested || given),
            on(active),
            if requested && !active { SCRIPTS } else { "" },
        );
        Ok(active)
    }
}

/// The result of a change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, schemars::JsonSchema)]
pub struct Written {
    /// The row of CONFIG_DB.
    pub row: String,
    /// Its field.
    pub field: &'static str,
    /// Its new value.
    pub value: &'static str,
}

impl fmt::Display for Written {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Written { row, field, value } = self;
        let followed = Switch::SuppressFibPending.place().2 == *field;
        let effect = match followed {
            true => "fpmsyncd and orchagent that run do so from now on.",
            false => "The daemons read it when they start: restart those that run.",
        };
        write!(f, "CONFIG_DB {row} {field} = {value}. {effect}")
    }
}

/// Turns a setting on or off, for daemons that start later and those that watch it. `config`:
/// SONiC's database_config.json, if not at the default path.
///
/// # Errors
/// A sentence when CONFIG_DB cannot be reached, or when another setting forbids this one, as in the
/// model of SONiC.
pub fn set(switch: Switch, on: bool, config: Option<&Path>) -> Result<Written, Error> {
    let databases = Databases::load(config)?;
    let mut config = ConfigDb(Connection::open(databases.get(Db::Config), &Stop::default())?);
    if switch == Switch::SynchronousMode && !on && config.has(Switch::SuppressFibPending)? {
        return Err(Error::Configuration(
            "suppress-fib-pending wants synchronous_mode: without replies it is not known what the switch has; disable \
             suppress-fib-pending first".into(),
        ));
    }
    if switch == Switch::SuppressFibPending && on && !config.has(Switch::SynchronousMode)? {
        return Err(Error::Configuration(
            "suppress-fib-pending wants synchronous_mode: without replies it is not known what the switch has; enable \
             synchronous_mode first".into(),
        ));
    }
    let (table, key, field, words) = switch.place();
    let row = config.0.database().key(table, key);
    let value = words[usize::from(!on)];
    config.0.query(&["HSET", &row, field, value])?;
    Ok(Written { row, field, value })
}
