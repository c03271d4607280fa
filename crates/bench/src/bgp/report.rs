//! The report of the suite, as text and JSON.

use super::dut::Dut;
use super::run::{Figures, LATE};
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
    /// `network namespaces` or `loopback addresses`.
    pub place: &'static str,
    /// Runs of each router and workload.
    pub runs: u32,
    /// Names the tables.
    pub seed: u64,
    /// Threads that play the neighbours.
    pub load_threads: usize,
    /// Routers and their versions, or why they were not measured.
    pub routers: Vec<RouterReport>,
    /// Each scenario.
    pub scenarios: Vec<ScenarioReport>,
}

/// A router under test.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RouterReport {
    /// As on the command line.
    pub router: String,
    /// Its version, as it prints it.
    pub version: Option<String>,
    /// Why it was not measured.
    pub left_out: Option<String>,
}

/// A scenario: one or more lines of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct ScenarioReport {
    /// What it is.
    pub scenario: String,
    /// The family of its routes: `ipv4-unicast` or `ipv6-unicast`.
    pub family: &'static str,
    /// Sets of attributes that each sender announces.
    pub sets: usize,
    /// Each run, in the order in which they were made.
    pub runs: Vec<RunReport>,
    /// Each phase and router over all runs that ended right.
    pub summary: Vec<Summary>,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunReport {
    /// The router.
    pub router: String,
    /// Each phase.
    pub phases: Vec<Figures>,
    /// Why the router failed.
    pub failure: Option<String>,
}

/// One phase and router over all runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The phase.
    pub phase: String,
    /// The router.
    pub router: String,
    /// Correct runs.
    pub right: usize,
    /// All runs.
    pub runs: usize,
    /// The faults of the other runs.
    pub wrong: Vec<String>,
    /// CPU seconds.
    pub cpu_s: Option<Spread>,
    /// Seconds until the slowest receiver had all.
    pub wall_s: Option<Spread>,
    /// Peak memory in bytes.
    pub peak_bytes: Option<Spread>,
    /// Peak memory for each path.
    pub bytes_per_path: Option<Spread>,
    /// UPDATEs that receivers got.
    pub updates: Option<Spread>,
    /// Prefixes announced and withdrawn to receivers.
    pub prefixes: Option<Spread>,
    /// CPU seconds of everything else on the machine meanwhile.
    pub other_s: Option<Spread>,
    /// CPU seconds of its threads, by name; the median.
    pub threads: BTreeMap<String, f64>,
    /// CPU seconds of this router over those of the best router of another project in this phase.
    pub cpu_of_best_other: Option<f64>,
    /// Peak memory of this router over that of the leanest router of another project.
    pub peak_of_best_other: Option<f64>,
}

impl ScenarioReport {
    /// Sums the runs up.
    pub fn summarize(&mut self) {
        let mut keys: Vec<(String, String)> = Vec::new();
        for run in &self.runs {
            for figures in &run.phases {
                let key = (figures.phase.clone(), run.router.clone());
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        // Phase by phase, in the order of the first run.
        let phases: Vec<String> = keys.iter().map(|(phase, _)| phase.clone()).collect();
        keys.sort_by_key(|(phase, _)| phases.iter().position(|p| p == phase));
        self.summary = keys.into_iter().map(|(phase, router)| self.summary_of(phase, router)).collect();
        self.compare();
    }

    fn summary_of(&self, phase: String, router: String) -> Summary {
        let runs: Vec<&RunReport> = self.runs.iter().filter(|r| r.router == router).collect();
        let all: Vec<&Figures> = runs.iter().flat_map(|r| &r.phases).filter(|f| f.phase == phase).collect();
        let right: Vec<&Figures> = all.iter().copied().filter(|f| f.wrong.is_none()).collect();
        let spread = |of: &dyn Fn(&Figures) -> f64| Spread::of(right.iter().map(|f| of(f)));
        Summary {
            right: right.len(),
            runs: runs.len(),
            wrong: all.iter().filter_map(|f| f.wrong.clone()).collect(),
            cpu_s: spread(&|f| f.cpu_s),
            wall_s: Spread::of(right.iter().filter_map(|f| f.wall_s)),
            peak_bytes: spread(&|f| f.peak_bytes as f64),
            bytes_per_path: right
                .iter()
                .all(|f| f.paths > 0)
                .then(|| spread(&|f| f.peak_bytes as f64 / f.paths as f64))
                .flatten(),
            updates: spread(&|f| f.updates as f64),
            prefixes: spread(&|f| (f.announced + f.withdrawn) as f64),
            other_s: spread(&|f| f.other_s),
            threads: medians(&right.iter().map(|f| &f.threads).collect::<Vec<_>>()),
            cpu_of_best_other: None,
            peak_of_best_other: None,
            phase,
            router,
        }
    }

    fn compare(&mut self) {
        let least = |summary: &[Summary], phase: &str, of: fn(&Summary) -> Option<Spread>| {
            let others = summary.iter().filter(|s| s.phase == phase && !s.router.starts_with("ribtide"));
            others.filter_map(|s| Some(of(s)?.median)).min_by(f64::total_cmp)
        };
        let all = self.summary.clone();
        for summary in self.summary.iter_mut().filter(|s| s.router.starts_with("ribtide")) {
            let ratio = |of: fn(&Summary) -> Option<Spread>| {
                Some(of(summary)?.median / least(&all, &summary.phase, of)?)
            };
            let ratios = (ratio(|s| s.cpu_s), ratio(|s| s.peak_bytes));
            (summary.cpu_of_best_other, summary.peak_of_best_other) = ratios;
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.write_head(f, format_args!("{} runs each, over {}", self.runs, self.place))?;
        for RouterReport { router, version, left_out } in &self.routers {
            match (version, left_out) {
                (Some(version), None) => writeln!(f, "  {router}: {version}")?,
                (_, why) => writeln!(f, "  {router}: left out: {}", why.as_deref().unwrap_or_default())?,
            }
        }
        self.scenarios.iter().try_for_each(|s| write!(f, "\n{s}"))
    }
}

impl ScenarioReport {
    /// CPU time of ribtide's threads; those of other routers are not comparable.
    fn show_threads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ours = |s: &&Summary| s.router.starts_with("ribtide") && s.phase != LATE && !s.threads.is_empty();
        for s in self.summary.iter().filter(ours) {
            let threads = report::thread_times(&s.threads, 0.0);
            writeln!(f, "threads, CPU s: {}, {}: {threads}", s.phase, s.router)?;
        }
        Ok(())
    }
}

impl fmt::Display for ScenarioReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}; {} sets of attributes", self.scenario, rounded(self.sets as f64))?;
        let show =
            |spread: Option<Spread>, show: fn(f64) -> String| spread.map_or("-".into(), |s| s.show(show));
        // The JSON has their spread.
        let middle =
            |spread: Option<Spread>, show: fn(f64) -> String| spread.map_or("-".into(), |s| show(s.median));
        let ratio = |n: Option<f64>| n.map_or("-".into(), |n| format!("{n:.2}"));
        let name = |s: &Summary| match s.right == s.runs {
            true => format!("  {}", s.router),
            false => format!("  {} ({} of {} right)", s.router, s.right, s.runs),
        };
        let wall_of_cpu = |s: &Summary| Some(s.wall_s?.median / s.cpu_s?.median);
        let columns: [Column<'_, Summary>; 10] = [
            ("", &name),
            ("CPU s", &|s| show(s.cpu_s, seconds)),
            ("of best other", &|s| ratio(s.cpu_of_best_other)),
            ("wall s", &|s| show(s.wall_s, seconds)),
            ("wall/CPU", &|s| ratio(wall_of_cpu(s))),
            ("peak MB", &|s| show(s.peak_bytes, |n| rounded(n / 1e6))),
            ("B/path", &|s| middle(s.bytes_per_path, rounded)),
            ("UPDATEs", &|s| middle(s.updates, rounded)),
            ("prefixes", &|s| middle(s.prefixes, rounded)),
            ("others' CPU s", &|s| middle(s.other_s, seconds)),
        ];
        f.write_str(&Table::of_groups(&self.summary, |s| &s.phase, &columns).render())?;
        self.show_threads(f)?;
        for run in &self.runs {
            for Figures { phase, cut, .. } in run.phases.iter().filter(|f| f.cut > 0) {
                writeln!(
                    f,
                    "cut: {phase}, {}: {cut} sessions of receivers that had just returned",
                    run.router
                )?;
            }
        }
        for s in &self.summary {
            for wrong in &s.wrong {
                writeln!(f, "wrong: {}, {}: {wrong}", s.phase, s.router)?;
            }
        }
        for run in &self.runs {
            if let Some(failure) = &run.failure {
                writeln!(f, "failed: {}: {failure}", run.router)?;
            }
        }
        Ok(())
    }
}

/// Seconds: enough digits for the small ones.
fn seconds(n: f64) -> String {
    if n < 1.0 { format!("{n:.3}") } else { format!("{n:.2}") }
}

impl RouterReport {
    /// A router's report before it runs.
    pub fn new(dut: &Dut, loopback: bool) -> RouterReport {
        let version = dut.fits(loopback).and_then(|()| dut.version());
        let (version, left_out) = match version {
            Ok(version) => (Some(version), None),
            Err(why) => (None, Some(why)),
        };
        RouterReport { router: dut.to_string(), version, left_out }
    }
}
