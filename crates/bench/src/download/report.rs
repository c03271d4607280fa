//! What came out, for people and for programs.

use super::Wiring;
use super::run::{Cost, Figures};
use crate::harness::text::{number, table};
use crate::harness::{Machine, Spread};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Everything about one call of the suite.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The command line.
    pub command: String,
    /// The machine, before the first run.
    pub machine: Machine,
    /// The commit of the folder it was called in.
    pub commit: Option<String>,
    /// Routes.
    pub routes: u32,
    /// orchagent's `-b`.
    pub batch: u32,
    /// orchagent's `-k`.
    pub bulk: u32,
    /// Routes a second that the chip stands for, if it stands for one.
    pub chip_rate: Option<u32>,
    /// Each run, in the order in which they were made.
    pub runs: Vec<RunReport>,
    /// Each wiring over all runs.
    pub summary: Vec<Summary>,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunReport {
    /// The wiring.
    pub wiring: Wiring,
    /// What it cost, if it ended right.
    pub figures: Option<Figures>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// One wiring over all runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The wiring.
    pub wiring: Wiring,
    /// Routes a second until the last was confirmed.
    pub rate: Spread,
    /// Seconds until nothing was left to do.
    pub quiet_s: Spread,
    /// With a rate of the chip: the share of the time in which it was at work.
    pub chip_busy: Option<Spread>,
    /// The median of each process.
    pub costs: BTreeMap<String, Cost>,
}

/// The processes, in the order in which a route passes them.
const PROCESSES: [&str; 4] = ["fpmsyncd", "orchagent", "syncd", "redis"];

impl Report {
    /// Sums the runs up.
    pub(super) fn summarize(&mut self) {
        let mut wirings: Vec<Wiring> = self.runs.iter().map(|run| run.wiring).collect();
        wirings.sort_unstable();
        wirings.dedup();
        self.summary = wirings.into_iter().filter_map(|wiring| self.summary_of(wiring)).collect();
    }

    fn summary_of(&self, wiring: Wiring) -> Option<Summary> {
        let runs = self.runs.iter().filter(|run| run.wiring == wiring);
        let all: Vec<&Figures> = runs.filter_map(|run| run.figures.as_ref()).collect();
        let spread = |of: &dyn Fn(&Figures) -> f64| Spread::of(all.iter().map(|f| of(f)));
        let cost = |name: &str| {
            let of =
                |of: &dyn Fn(&Cost) -> f64| Spread::of(all.iter().filter_map(|f| f.costs.get(name)).map(of));
            let (cpu, peak) = (of(&|cost| cost.cpu_s)?, of(&|cost| cost.peak as f64)?);
            Some((name.to_owned(), Cost { cpu_s: cpu.median, peak: peak.median as u64 }))
        };
        Some(Summary {
            wiring,
            rate: spread(&|f| f64::from(self.routes) / f.wall_s)?,
            quiet_s: spread(&|f| f.quiet_s)?,
            chip_busy: Spread::of(all.iter().filter_map(|f| f.chip_busy)),
            costs: PROCESSES.into_iter().filter_map(cost).collect(),
        })
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.machine)?;
        let commit = self.commit.as_ref().map_or(String::new(), |c| format!("; commit {c}"));
        let (routes, batch, bulk) = (number(f64::from(self.routes)), self.batch, self.bulk);
        let chip = self
            .chip_rate
            .map_or(String::new(), |rate| format!(", a chip of {} routes/s", number(f64::from(rate))));
        writeln!(
            f,
            "{routes} IPv4 routes, orchagent -b {batch} -k {bulk}{chip}{commit}: median (least..most)"
        )?;
        let mut header = ["wiring", "routes/s", "quiet after s"].map(String::from).to_vec();
        header.extend(self.chip_rate.map(|_| "chip at work".into()));
        let costs = PROCESSES.map(|name| format!("{name} CPU s")).into_iter();
        let peaks = PROCESSES.map(|name| format!("{name} MB")).into_iter();
        let mut rows = vec![header.into_iter().chain(costs).chain(peaks).collect::<Vec<_>>()];
        for s in &self.summary {
            let of = |show: &dyn Fn(&Cost) -> String| {
                PROCESSES.map(|name| s.costs.get(name).map_or("-".into(), show)).into_iter()
            };
            let cpu = of(&|cost| format!("{:.2}", cost.cpu_s));
            let peak = of(&|cost| number(cost.peak as f64 / 1e6));
            let mut head =
                vec![s.wiring.name().into(), s.rate.show(number), s.quiet_s.show(|n| format!("{n:.1}"))];
            let share = |share: f64| format!("{:.1}%", 100.0 * share);
            head.extend(self.chip_rate.map(|_| s.chip_busy.map_or("-".into(), |busy| busy.show(share))));
            rows.push(head.into_iter().chain(cpu).chain(peak).collect());
        }
        f.write_str(&table(&rows))?;
        for run in &self.runs {
            if let Some(failure) = &run.failure {
                writeln!(f, "failed: {}: {failure}", run.wiring.name())?;
            }
        }
        Ok(())
    }
}
