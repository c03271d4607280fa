//! Shared parts of the SONiC suites: runs of cases in turns, and their report.

use super::report::{Report, RunReport};
use super::run::{self, Case};
use crate::Error;
use crate::harness::{Machine, Place, machine, write_report};
use crate::options::interrupted;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// RunOptions it is measured.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct RunOptions {
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

/// orchagent's sizes, where a wiring does not say them.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Sizes {
    /// orchagent's -b: rows that it takes at once
    #[arg(short = 'b', long, value_name = "ROWS", default_value_t = 1024)]
    pub batch: u32,
    /// orchagent's -k: routes in one request to the switch
    #[arg(short = 'k', long, value_name = "OBJECTS", default_value_t = 1000)]
    pub bulk: u32,
}

impl Sizes {
    pub(super) fn pair(&self) -> (u32, u32) {
        (self.batch, self.bulk)
    }
}

/// Runs all cases, prints the report, and writes JSON if requested. `title` describes them.
pub(super) fn measure(title: String, cases: &[Case], how: &RunOptions) -> Result<(), Error> {
    Place::may_make_namespaces()?;
    let interrupted = interrupted()?;
    let mut report = Report {
        title,
        command: std::env::args().collect::<Vec<_>>().join(" "),
        machine: Machine::now(),
        commit: machine::commit(),
        runs: Vec::new(),
        summary: Vec::new(),
    };
    let limit = Duration::from_secs(how.limit);
    'runs: for n in 0..how.runs {
        // The order changes, so that no subject always finds the machine warm.
        let mut order: Vec<&Case> = cases.iter().collect();
        if n % 2 == 1 {
            order.reverse();
        }
        for case in order {
            let head = format!("run {} of {}, {}", n + 1, how.runs, case.name);
            let outcome = run::run(case, limit, &interrupted);
            if interrupted.load(Relaxed) {
                break 'runs;
            }
            let result = match &outcome {
                Ok(figures) => format!("{:.2} s", figures.wall_s),
                Err(e) => e.to_string(),
            };
            // A closed standard error does not stop the run.
            let _ = writeln!(std::io::stderr(), "{head}: {result}");
            let (figures, failure) = match outcome {
                Ok(figures) => (Some(figures), None),
                Err(e) => (None, Some(e.to_string())),
            };
            let (wiring, routes) = (case.name.clone(), case.load.total());
            report.runs.push(RunReport { wiring, routes, figures, failure });
        }
    }
    report.summarize(cases.iter().map(|case| case.name.as_str()));
    write_report(&report, how.json.as_deref())?;
    let bad = report.runs.iter().filter(|r| r.failure.is_some()).count();
    if bad > 0 {
        return Err(Error::Options(format!("{bad} of {} runs failed; see above", report.runs.len())));
    }
    Ok(())
}
