//! Shared parts of the SONiC suites: runs of cases in turns, and their report.

use super::report::{Report, RunReport};
use super::run::{self, Case};
use crate::Error;
use crate::harness::report::{all_ended_right, in_turns};
use crate::harness::{Call, Place, write_report};
use crate::options::interrupted;
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

/// How often and how long it is measured.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct RunOptions {
    /// The number of runs of each; they take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// The time limit of a run
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub limit: u64,
    /// Write all figures to this file, too, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// orchagent's sizes, where a combination does not say them.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Sizes {
    /// orchagent's -b: the most rows that it pops at once
    #[arg(short = 'b', long, value_name = "ROWS", default_value_t = 1024)]
    pub batch: u32,
    /// orchagent's -k: the most routes in one bulk
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
    let mut report = Report { title, call: Call::now(), runs: Vec::new(), summary: Vec::new() };
    let limit = Duration::from_secs(how.limit);
    for (n, case) in in_turns(how.runs, cases) {
        let head = format!("run {} of {}, {}", n + 1, how.runs, case.name);
        let outcome = run::run(case, limit, &interrupted);
        if interrupted.load(Relaxed) {
            break;
        }
        let (result, figures, failure) = match outcome {
            Ok(figures) => (format!("{:.2} s", figures.wall_s), Some(figures), None),
            Err(e) => (e.to_string(), None, Some(e.to_string())),
        };
        // A closed standard error does not stop the run.
        let _ = writeln!(std::io::stderr(), "{head}: {result}");
        report.runs.push(RunReport {
            combination: case.name.clone(),
            routes: case.changes(),
            figures,
            failure,
        });
    }
    report.summarize(cases.iter().map(|case| case.name.as_str()));
    write_report(&report, how.json.as_deref())?;
    let bad = report.runs.iter().filter(|r| r.failure.is_some()).count();
    all_ended_right(bad, report.runs.len())
}
