//! The PerformanceTimers of SONiC's daemons (design "BGP loading optimization"): their names,
//! storage and log lines.
//!
//! A stage adds to its timer once a batch. A thread of its own polls all timers, writes new records
//! to STATE_DB for `ribtide show performance --sonic`, and logs them if requested. Without timers
//! there is no thread.

use super::events::log;
use super::settings::{DAEMONS, Settings};
use super::{Daemon, Error};
use clap::ValueEnum;
use ribtide_model::{Performance, PerformanceRecord};
use ribtide_runtime::idle;
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::thread::{self, Stop};
use ribtide_swss::Db;
use ribtide_tables::{Connection, Databases, TableError};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::time::Duration;

/// The table in STATE_DB: keys are daemons, fields are timers.
const TABLE: &str = "RIBTIDE_PERFORMANCE";
/// Poll interval, shorter than a timer takes to overwrite its records.
const TIMERS_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// While this file exists, SONiC's timers log at notice level.
const NOTICE: &str = "/var/log/syslog_notice_flag";

/// What is done with PerformanceTimers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Timing {
    /// There are none.
    Off,
    /// The latest records are kept for `ribtide show performance --sonic`. They are logged too while
    /// /var/log/syslog_notice_flag exists, as in SONiC.
    Keep,
    /// They are kept, and each is logged.
    Log,
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Timing::Off => "off",
            Timing::Keep => "keep",
            Timing::Log => "log",
        })
    }
}

/// The timers of one daemon.
pub(super) struct Timers(Option<Meters>);

impl Timers {
    /// Starts the thread that writes records to STATE_DB and to the log.
    pub(super) fn start(timing: Timing, settings: &mut Settings, daemon: &Daemon) -> Result<Timers, Error> {
        settings.note("performance", timing, timing, "");
        let mut connection = daemon.connect(Db::State)?;
        let key = connection.database().key(TABLE, daemon.name);
        // Those of an earlier run are not this one's.
        connection.query(&["DEL", &key])?;
        if timing == Timing::Off {
            return Ok(Timers(None));
        }
        let meters = Meters::default();
        let (daemon, stop) = (daemon.name, daemon.stop.clone());
        let reporter =
            Reporter { daemon, timing, meters: meters.clone(), connection, key, seen: BTreeMap::new() };
        thread::spawn("performance", move || reporter.run(&stop))
            .map_err(|e| Error::new(format!("no thread for PerformanceTimers: {e}")))?;
        Ok(Timers(Some(meters)))
    }

    /// The timer of this name, if there are timers.
    pub(super) fn timer(&self, api: &str) -> Option<Meter> {
        self.0.as_ref().map(|meters| meters.meter(api))
    }
}

struct Reporter {
    daemon: &'static str,
    timing: Timing,
    meters: Meters,
    connection: Connection,
    key: String,
    /// The last reported record of each timer.
    seen: BTreeMap<String, u64>,
}

impl Reporter {
    fn run(mut self, stop: &Stop) {
        while !stop.stopped() {
            std::thread::sleep(TIMERS_POLL_INTERVAL);
            match self.look() {
                Ok(told) if idle::on_wait(!told) => self.connection.shrink_to_fit(),
                // The connection for routes is not affected.
                Err(e) if !stop.stopped() => {
                    return log!(self.daemon, error, error = %e, "PerformanceTimers are not reported any more");
                }
                _ => {}
            }
        }
    }

    /// Whether there was a new record.
    fn look(&mut self) -> Result<bool, TableError> {
        let mut any = false;
        for (api, records) in self.meters.performance() {
            let latest = records.last().map_or(0, |record| record.number);
            let seen = std::mem::replace(self.seen.entry(api.clone()).or_default(), latest);
            if latest == seen {
                continue;
            }
            any = true;
            let logs = self.timing == Timing::Log || Path::new(NOTICE).exists();
            for record in records.iter().filter(|record| logs && record.number > seen) {
                log!(self.daemon, info, "{}", text(&PerformanceRecord::of(&api, record)));
            }
            let lines: Vec<_> = records.iter().map(|record| PerformanceRecord::of(&api, record)).collect();
            self.connection.query(&["HSET", &self.key, &api, &text(&lines)])?;
        }
        Ok(any)
    }
}

fn text<T: serde::Serialize>(what: &T) -> String {
    serde_json::to_string(what).unwrap_or_default()
}

/// The latest records of all timers of the daemons on the databases of `config`, oldest first;
/// default: SONiC's file. Stages are named `DAEMON/TIMER`.
///
/// # Errors
/// A sentence when the databases cannot be read.
pub fn of_daemons(config: Option<&Path>) -> Result<Vec<Performance>, Error> {
    let databases = Databases::load(config)?;
    let mut connection = Connection::open(databases.get(Db::State), &Stop::default())?;
    let mut all = Vec::new();
    for daemon in DAEMONS {
        let key = connection.database().key(TABLE, daemon);
        let mut timers = connection.query(&["HGETALL", &key])?.into_pairs();
        timers.sort();
        all.extend(timers.iter().filter_map(|(api, lines)| {
            Some(Performance { stage: format!("{daemon}/{api}"), records: serde_json::from_str(lines).ok()? })
        }));
    }
    Ok(all)
}
