//! The PerformanceTimers of SONiC's daemons (design "BGP loading optimization"): their names,
//! storage and log lines.
//!
//! A stage adds to its timer once a batch. The bookkeeping thread polls all timers, writes new
//! records to STATE_DB for `ribtide show performance --sonic`, and logs them if requested.

use super::events::log;
use super::settings::{DAEMONS, Settings};
use super::{Daemon, Error};
use clap::ValueEnum;
use ribtide_model::{Performance, PerformanceRecord};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::thread::Stop;
use ribtide_swss::Db;
use ribtide_tables::{Connection, Databases, Fields};
use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The table in STATE_DB: keys are daemons, fields are timers.
const TABLE: &str = "RIBTIDE_PERFORMANCE";
/// While this file exists, SONiC's timers log at notice level.
const NOTICE: &str = "/var/log/syslog_notice_flag";

/// Whether PerformanceTimers are kept, and logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Timing {
    /// No timers.
    Off,
    /// Keep the latest records for `ribtide show performance --sonic`. Log them, too, while
    /// /var/log/syslog_notice_flag exists, as in SONiC.
    Keep,
    /// Keep the latest records, and log each record.
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
    /// Keeps records from now on, in STATE_DB and if requested in the log.
    pub(super) fn start(timing: Timing, settings: &mut Settings, daemon: &Daemon) -> Timers {
        settings.note("performance", timing, timing, "");
        if timing == Timing::Off {
            // Those of an earlier run are not this one's.
            daemon.bookkeeping.set(TABLE, daemon.name, Fields::new());
            return Timers(None);
        }
        let bookkeeping = daemon.bookkeeping.clone();
        let meters = Meters::default().on_record(Arc::new(move || bookkeeping.hurry()));
        let mut reporter =
            Reporter { daemon: daemon.name, timing, meters: meters.clone(), seen: BTreeMap::new() };
        daemon.bookkeeping.follow(TABLE, daemon.name, move || reporter.look());
        Timers(Some(meters))
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
    /// The last logged record of each timer.
    seen: BTreeMap<String, u64>,
}

impl Reporter {
    /// The latest records of each timer; logs those that are new.
    fn look(&mut self) -> Fields {
        let mut fields = Fields::new();
        let logs = self.timing == Timing::Log || Path::new(NOTICE).exists();
        for (api, records) in self.meters.performance() {
            let Some(latest) = records.last() else { continue };
            let seen = std::mem::replace(self.seen.entry(api.clone()).or_default(), latest.number);
            for record in records.iter().filter(|record| logs && record.number > seen) {
                log!(self.daemon, info, "{}", text(&PerformanceRecord::of(&api, record)));
            }
            let lines: Vec<_> = records.iter().map(|record| PerformanceRecord::of(&api, record)).collect();
            fields.insert(api, text(&lines));
        }
        fields
    }
}

fn text<T: serde::Serialize>(what: &T) -> String {
    serde_json::to_string(what).unwrap_or_default()
}

/// The latest records of all timers of the daemons on the databases of `config`, oldest first;
/// default: SONiC's file. Stages are named `DAEMON/TIMER`. With several ASICs, of all, each stage with
/// the name of its ASIC before it (`asic0/DAEMON/TIMER`), unless `NAMESPACE_ID` selects one.
///
/// # Errors
/// A sentence when the databases cannot be read.
pub fn of_daemons(config: Option<&Path>) -> Result<Vec<Performance>, Error> {
    let mut all = Vec::new();
    for (asic, databases) in Databases::of_asics(config)? {
        let mut state = Connection::open(databases.get(Db::State), &Stop::default())?;
        let asic = asic.map(|asic| format!("{asic}/")).unwrap_or_default();
        for daemon in DAEMONS {
            let key = state.database().key(TABLE, daemon);
            let mut timers = state.query(&["HGETALL", &key])?.into_pairs();
            timers.sort();
            all.extend(timers.iter().filter_map(|(api, lines)| {
                let records = serde_json::from_str(lines).ok()?;
                Some(Performance { stage: format!("{asic}{daemon}/{api}"), records })
            }));
        }
    }
    Ok(all)
}
