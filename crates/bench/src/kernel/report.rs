//! The report of the suite, as text and JSON.

use super::run::{Figures, Phase, WRITER};
use crate::harness::spread::medians;
use crate::harness::{Call, Spread, report};
use ribtide_text::{Column, Table, rounded};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Everything about one call of the suite.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// Routes.
    pub routes: u32,
    /// Each run, in the order in which they were made.
    pub runs: Vec<RunReport>,
    /// Each phase and installer over all runs.
    pub summary: Vec<Summary>,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunReport {
    /// The installer.
    pub installer: String,
    /// Each phase that ended right.
    pub phases: Vec<Figures>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// One phase and installer over all runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The phase.
    pub phase: Phase,
    /// The installer.
    pub installer: String,
    /// Seconds.
    pub wall_s: Spread,
    /// CPU seconds.
    pub cpu_s: Spread,
    /// Routes a second.
    pub rate: f64,
    /// That rate over the ceiling's.
    pub of_ceiling: Option<f64>,
    /// The ceiling's CPU seconds over those of the installer's writing thread: the share that this
    /// thread could reach on a core of its own.
    pub writer_of_ceiling: Option<f64>,
    /// CPU seconds of its threads, by name; the median.
    pub threads: BTreeMap<String, f64>,
    /// CPU seconds of the feed.
    pub load_s: Spread,
    /// CPU seconds of everything else on the machine meanwhile.
    pub other_s: Spread,
}

impl Report {
    /// Sums the runs up.
    pub(super) fn summarize(&mut self) {
        let mut installers: Vec<&String> = Vec::new();
        for run in &self.runs {
            if !installers.contains(&&run.installer) {
                installers.push(&run.installer);
            }
        }
        installers.sort_by_key(|name| *name != "ceiling");
        let mut summary: Vec<Summary> = Vec::new();
        for phase in Phase::ALL {
            let first = summary.len();
            summary.extend(installers.iter().filter_map(|name| self.summary_of(phase, name)));
            let ceiling = summary[first..].iter().find(|s| s.installer == "ceiling").cloned();
            for s in &mut summary[first..] {
                s.of_ceiling = ceiling.as_ref().map(|c| s.rate / c.rate);
                let writer = s.threads.get(WRITER);
                s.writer_of_ceiling = ceiling.as_ref().zip(writer).map(|(c, writer)| c.cpu_s.median / writer);
            }
        }
        self.summary = summary;
    }

    fn summary_of(&self, phase: Phase, installer: &str) -> Option<Summary> {
        let runs = self.runs.iter().filter(|r| r.installer == installer);
        let all: Vec<&Figures> = runs.flat_map(|r| &r.phases).filter(|f| f.phase == phase).collect();
        let spread = |of: &dyn Fn(&Figures) -> f64| Spread::of(all.iter().map(|f| of(f)));
        let wall_s = spread(&|f| f.wall_s)?;
        Some(Summary {
            phase,
            installer: installer.into(),
            wall_s,
            cpu_s: spread(&|f| f.cpu_s)?,
            rate: f64::from(self.routes) / wall_s.median,
            of_ceiling: None,
            writer_of_ceiling: None,
            threads: medians(&all.iter().map(|f| &f.threads).collect::<Vec<_>>()),
            load_s: spread(&|f| f.load_s)?,
            other_s: spread(&|f| f.other_s)?,
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.write_head(f, format_args!("{} IPv4 routes", rounded(f64::from(self.routes))))?;
        let percent = |n: Option<f64>| n.map_or("-".into(), |n| format!("{:.0}%", n * 100.0));
        let columns: [Column<'_, Summary>; 8] = [
            ("", &|s| format!("  {}", s.installer)),
            ("wall s", &|s| s.wall_s.show(seconds)),
            ("routes/s", &|s| rounded(s.rate)),
            ("of ceiling", &|s| percent(s.of_ceiling)),
            ("CPU s", &|s| s.cpu_s.show(seconds)),
            ("writer of ceiling", &|s| percent(s.writer_of_ceiling)),
            ("feed's CPU s", &|s| seconds(s.load_s.median)),
            ("others' CPU s", &|s| seconds(s.other_s.median)),
        ];
        f.write_str(&Table::of_groups(&self.summary, |s| s.phase.name(), &columns).render())?;
        for s in self.summary.iter().filter(|s| s.installer.starts_with("ribtide")) {
            let threads = report::thread_times(&s.threads, 0.001);
            writeln!(f, "threads, CPU s: {}, {}: {threads}", s.phase.name(), s.installer)?;
        }
        for run in &self.runs {
            if let Some(failure) = &run.failure {
                writeln!(f, "failed: {}: {failure}", run.installer)?;
            }
        }
        Ok(())
    }
}

fn seconds(n: f64) -> String {
    format!("{n:.2}")
}
