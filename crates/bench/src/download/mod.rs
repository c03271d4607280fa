//! `ribtide bench run route-download`: routes from FPM down to the virtual switch through SONiC's three daemons as
//! processes, once for each way of wiring them together.
//!
//! Each run has Redis servers, daemons and a network namespace of its own. All routes are sent over one FPM connection
//! as fast as fpmsyncd takes them; the clock stops when the switch has them all. Afterwards the databases are counted.

mod redis;
mod report;
mod run;
mod wiring;

pub use report::Report;
pub use wiring::Wiring;

use crate::Error;
use crate::harness::{Machine, Place, machine};
use crate::options::interrupted;
use report::RunReport;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// What to measure.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// How the daemons are wired
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = Wiring::ALL)]
    pub dut: Vec<Wiring>,
    /// IPv4 routes, each a /24
    #[arg(long, value_name = "N", default_value_t = 600_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub routes: u32,
    /// orchagent's -b: rows that it takes at once
    #[arg(short = 'b', long, value_name = "ROWS", default_value_t = 1024)]
    pub batch: u32,
    /// orchagent's -k: routes in one request to the switch
    #[arg(short = 'k', long, value_name = "OBJECTS", default_value_t = 1000)]
    pub bulk: u32,
    /// Have the switch stand for a chip that takes so many routes a second; the report says what share of the time it was
    /// at work. Not of appl-db, which has none
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub chip_rate: Option<u32>,
    /// Runs of each, in turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// The longest that a run may take
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub limit: u64,
    /// Also write everything as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// Nothing could be measured, a daemon failed or a database is wrong at the end, or somebody pressed Ctrl-C.
pub fn run(options: &Options) -> Result<(), Error> {
    Place::may_make_namespaces()?;
    let interrupted = interrupted()?;
    let mut report = Report {
        command: std::env::args().collect::<Vec<_>>().join(" "),
        machine: Machine::now(),
        commit: machine::commit(),
        routes: options.routes,
        batch: options.batch,
        bulk: options.bulk,
        chip_rate: options.chip_rate,
        runs: Vec::new(),
        summary: Vec::new(),
    };
    let limit = Duration::from_secs(options.limit);
    'runs: for n in 0..options.runs {
        // Who is first changes, so that nobody always finds the machine warm.
        let mut order = options.dut.clone();
        if n % 2 == 1 {
            order.reverse();
        }
        for wiring in order {
            let head = format!("run {} of {}, {}", n + 1, options.runs, wiring.name());
            let outcome = run::run(wiring, options, limit, &interrupted);
            if interrupted.load(Relaxed) {
                break 'runs;
            }
            let says = match &outcome {
                Ok(figures) => format!("{:.2} s", figures.wall_s),
                Err(e) => e.to_string(),
            };
            // Progress that nobody reads any more is no reason to stop.
            let _ = writeln!(std::io::stderr(), "{head}: {says}");
            let (figures, failure) = match outcome {
                Ok(figures) => (Some(figures), None),
                Err(e) => (None, Some(e.to_string())),
            };
            report.runs.push(RunReport { wiring, figures, failure });
        }
    }
    report.summarize();
    // A reader that went away wants no report.
    let _ = write!(std::io::stdout(), "{report}");
    if let Some(path) = &options.json {
        let failed = |source| Error::File { path: path.clone(), source };
        let text = serde_json::to_string_pretty(&report).map_err(|e| failed(e.into()))?;
        std::fs::write(path, text + "\n").map_err(failed)?;
    }
    let bad = report.runs.iter().filter(|r| r.failure.is_some()).count();
    if bad > 0 {
        return Err(Error::Options(format!("{bad} of {} runs failed; see above", report.runs.len())));
    }
    Ok(())
}
