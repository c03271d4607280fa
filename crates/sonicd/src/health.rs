//! Stalled work of SONiC's daemons: a row of STATE_DB for each, written by its bookkeeping thread.
//!
//! A STATE_DB that stands still itself has no news; the log of the daemon has.

use super::settings::DAEMONS;
use super::{Daemon, Error};
use clap::Args;
use ribtide_model::{Health, Stall};
use ribtide_runtime::thread::Stop;
use ribtide_runtime::watchdog::{self, STALL_TIMEOUT, Watchdog};
use ribtide_swss::Db;
use ribtide_tables::{Connection, Databases, Fields};
use std::path::Path;
use std::time::{Duration, Instant};

/// The table in STATE_DB: keys are daemons; a field for each stall.
const TABLE: &str = "RIBTIDE_HEALTH";

/// When work counts as stalled.
#[derive(Args, Clone, Copy, Debug)]
pub struct StallOptions {
    /// Seconds after which work that waits without progress counts as stalled; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = STALL_TIMEOUT.as_secs())]
    pub stall_timeout: u64,
    /// Seconds after which a stall ends the daemon with exit status 9, for its supervisor to start it
    /// again, unless another process is the cause. At least the stall timeout; 0: never
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    pub stall_exit: u64,
}

impl StallOptions {
    fn times(self) -> [Duration; 2] {
        [self.stall_timeout, self.stall_exit].map(Duration::from_secs)
    }

    /// Checks them before the daemon connects to anything.
    pub(super) fn check(self) -> Result<(), Error> {
        let [timeout, exit] = self.times();
        let problem = watchdog::exit_problem(timeout, exit);
        let sentence = problem.map(|problem| format!("--stall-exit {}: {problem}", self.stall_exit));
        sentence.map_or(Ok(()), |sentence| Err(Error::Configuration(sentence)))
    }
}

/// Starts the watchdog of a daemon, and publishes what it finds.
pub(super) fn watch(options: StallOptions, daemon: &Daemon) -> Result<(), Error> {
    let [timeout, exit] = options.times();
    let watchdog = Watchdog::start(daemon.rings.clone(), timeout, exit, &daemon.stop);
    let watchdog = watchdog.map_err(Error::no_thread("for the watchdog"))?;
    daemon.bookkeeping.follow(TABLE, daemon.name, move || {
        let field = |stall| {
            let stall = Stall::from(stall);
            (stall.what.clone(), serde_json::to_string(&stall).unwrap_or_default())
        };
        watchdog.look(Instant::now()).into_iter().map(field).collect::<Fields>()
    });
    Ok(())
}

/// The health of the daemons on the databases of `config`, by name; default: SONiC's file. With several
/// ASICs, of all, unless `NAMESPACE_ID` selects one.
///
/// # Errors
/// A sentence when the databases cannot be read.
pub fn of_daemons(config: Option<&Path>) -> Result<Vec<(String, Health)>, Error> {
    let mut all = Vec::new();
    for (asic, databases) in Databases::of_asics(config)? {
        let mut state = Connection::open(databases.get(Db::State), &Stop::default())?;
        for daemon in DAEMONS {
            let key = state.database().key(TABLE, daemon);
            let fields = state.query(&["HGETALL", &key])?.into_pairs();
            let mut stalls: Vec<Stall> =
                fields.iter().filter_map(|(_, stall)| serde_json::from_str(stall).ok()).collect();
            stalls.sort_by_key(|stall| stall.behind.is_some());
            let name = asic.as_ref().map_or_else(|| daemon.to_owned(), |asic| format!("{asic}/{daemon}"));
            all.push((name, Health::of(stalls)));
        }
    }
    Ok(all)
}
