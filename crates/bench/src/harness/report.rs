//! What the reports of all suites share, and their output as text and JSON.

use super::Machine;
use crate::Error;
use std::collections::BTreeMap;
use std::fmt;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

/// The call of a suite, with which each report begins.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Call {
    /// The command line.
    pub command: String,
    /// The machine, before the first run.
    pub machine: Machine,
    /// The commit of the folder it was called in, `-dirty` with changes; `None` outside of a repository.
    pub commit: Option<String>,
}

impl Call {
    /// This call, before the first run.
    pub fn now() -> Call {
        let git = Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
        let found = git.ok().filter(|output| output.status.success());
        Call {
            command: std::env::args().collect::<Vec<_>>().join(" "),
            machine: Machine::now(),
            commit: found.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_string()),
        }
    }

    /// The lines above the figures: the machine, `title`, the commit.
    pub fn write_head(&self, f: &mut fmt::Formatter<'_>, title: impl fmt::Display) -> fmt::Result {
        let commit = self.commit.as_ref().map_or(String::new(), |c| format!("; commit {c}"));
        writeln!(f, "{}\n{title}{commit}: median (least..most)", self.machine)
    }
}

/// Each subject in each run, with the number of the run. The order changes from run to run, so that no subject
/// always finds the machine warm.
pub fn in_turns<T>(runs: u32, subjects: &[T]) -> impl Iterator<Item = (u32, &T)> {
    let last = subjects.len().saturating_sub(1);
    (0..runs).flat_map(move |run| {
        (0..subjects.len()).map(move |i| (run, &subjects[if run % 2 == 0 { i } else { last - i }]))
    })
}

/// CPU seconds of threads by name, the greatest first.
pub fn thread_times(threads: &BTreeMap<String, f64>, least: f64) -> String {
    let mut threads: Vec<_> = threads.iter().filter(|(_, time)| **time >= least).collect();
    threads.sort_by(|a, b| b.1.total_cmp(a.1));
    threads.iter().map(|(name, time)| format!("{name} {time:.3}")).collect::<Vec<_>>().join(", ")
}

/// Prints a report, and writes it to a file as JSON where one is named.
///
/// # Errors
/// The file could not be written.
pub fn write_report(
    report: &(impl fmt::Display + serde::Serialize),
    json: Option<&Path>,
) -> Result<(), Error> {
    // A closed pipe wants no report.
    let _ = write!(std::io::stdout(), "{report}");
    let Some(path) = json else { return Ok(()) };
    let failed = |source| Error::File { path: path.to_owned(), source };
    let text = serde_json::to_string_pretty(report).map_err(|e| failed(e.into()))?;
    std::fs::write(path, text + "\n").map_err(failed)
}

/// An error when some of the runs failed; the report says why.
///
/// # Errors
/// `bad` is above zero.
pub fn all_ended_right(bad: usize, runs: usize) -> Result<(), Error> {
    match bad {
        0 => Ok(()),
        bad => Err(Error::Options(format!("{bad} of {runs} runs failed or ended wrong; see above"))),
    }
}
