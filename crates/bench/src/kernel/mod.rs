//! `ribtide bench run kernel`: routes into the Linux kernel through a whole router, compared with
//! the kernel's own ceiling.
//!
//! Every installer runs in its own network namespace, through three phases with the same prefixes
//! in the same order: add, replace the next hop, delete. The routers learn them over a BGP session;
//! `ceiling` is a loop that sends prepared messages; `ip` is iproute2 with commands. After each
//! phase the kernel's table is compared with the expected one.

mod installer;
mod report;
mod run;
mod table;

pub use installer::Installer;
pub use report::Report;
pub(crate) use table::Kernel;

use crate::Error;
use crate::harness::report::{all_ended_right, in_turns};
use crate::harness::{Call, Place, write_report};
use crate::options::interrupted;
use crate::table::{Table, TableOptions};
use report::RunReport;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

/// The options of `bench run kernel`.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// The programs under test: ceiling, ribtide, ribtide:binary=PATH, bird, ip
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "ceiling,ribtide,bird,ip")]
    pub dut: Vec<Installer>,
    /// The number of IPv4 routes
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    pub routes: u32,
    /// The number of runs of each program; programs take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// The seed of the table
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// The time limit of a phase
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub limit: u64,
    /// Write all figures to this file, too, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// Nothing could be measured, an installer failed or ended wrong, or Ctrl-C was pressed.
pub fn run(options: &Options) -> Result<(), Error> {
    Place::may_make_namespaces()?;
    let interrupted = interrupted()?;
    let call = Call::now();
    let table = Table::new(&TableOptions {
        seed: options.seed,
        ipv4: options.routes,
        ipv6: 0,
        ..TableOptions::default()
    });
    let mut report = Report { call, routes: options.routes, runs: Vec::new(), summary: Vec::new() };
    let limit = Duration::from_secs(options.limit);
    for (n, installer) in in_turns(options.runs, &options.dut) {
        let head = format!("run {} of {}, {installer}", n + 1, options.runs);
        let mut phases = Vec::new();
        let outcome = run::run(installer, &table, limit, &interrupted, &mut phases);
        if interrupted.load(std::sync::atomic::Ordering::Relaxed) {
            break;
        }
        let failure = outcome.err().map(|e| e.to_string());
        let times: Vec<String> =
            phases.iter().map(|p| format!("{} {:.2} s", p.phase.name(), p.wall_s)).collect();
        // A closed standard error does not stop the run.
        let _ = writeln!(std::io::stderr(), "{head}: {}", failure.as_deref().unwrap_or(&times.join(", ")));
        report.runs.push(RunReport { installer: installer.to_string(), phases, failure });
    }
    report.summarize();
    write_report(&report, options.json.as_deref())?;
    let bad = report.runs.iter().filter(|r| r.failure.is_some()).count();
    all_ended_right(bad, report.runs.len())
}
