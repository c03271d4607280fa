//! The report of a suite, as text and JSON.

use super::run::{Cost, Figures};
use super::timers::Timer;
use crate::harness::{Call, Spread};
use ribtide_text::{Table, rounded};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt;

/// Everything about one call of a suite.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What was measured.
    pub title: String,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// Each run, in the order in which they were made.
    pub runs: Vec<RunReport>,
    /// Each combination over all runs.
    pub summary: Vec<Summary>,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunReport {
    /// The combination, or what else was varied.
    pub combination: String,
    /// Routes.
    pub routes: u32,
    /// Its figures, if it ended correct.
    pub figures: Option<Figures>,
    /// Why it failed.
    pub failure: Option<String>,
}

/// One combination over all runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The combination.
    pub combination: String,
    /// Seconds until the last route was confirmed.
    pub wall_s: Spread,
    /// Routes a second until the last was confirmed.
    pub rate: Spread,
    /// Seconds until all daemons were idle.
    pub quiet_s: Spread,
    /// With a rate of the chip: its share of busy time.
    pub chip_busy: Option<Spread>,
    /// The median of each process.
    pub costs: BTreeMap<String, Cost>,
    /// Milliseconds of urgent routes under load, of all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub route_ms: Option<Spread>,
    /// Milliseconds of link events under load, of all runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub link_ms: Option<Spread>,
    /// PerformanceTimers of the last run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub timers: BTreeMap<String, Timer>,
    /// The greatest age of a row of all runs, in milliseconds, by daemon and table.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub ages: BTreeMap<String, u64>,
    /// Commands of Redis in the last run.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub commands: BTreeMap<String, u64>,
}

/// The processes in the order of a route's path.
const PROCESSES: [&str; 5] = ["ribtide", "fpmsyncd", "orchagent", "syncd", "redis"];

impl Report {
    /// Sums the runs up, in the order of `names`.
    pub(super) fn summarize<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        self.summary = names.filter_map(|name| self.summary_of(name)).collect();
    }

    fn summary_of(&self, name: &str) -> Option<Summary> {
        let runs = self.runs.iter().filter(|run| run.combination == name);
        let all: Vec<(f64, &Figures)> =
            runs.filter_map(|run| Some((f64::from(run.routes), run.figures.as_ref()?))).collect();
        let spread = |of: &dyn Fn(f64, &Figures) -> f64| Spread::of(all.iter().map(|(n, f)| of(*n, f)));
        let cost = |name: &str| {
            let of = |of: &dyn Fn(&Cost) -> f64| {
                Spread::of(all.iter().filter_map(|(_, f)| f.costs.get(name)).map(of))
            };
            let (path, cpu) = (of(&|cost| cost.download_s)?, of(&|cost| cost.cpu_s)?);
            let peak = of(&|cost| cost.peak as f64)?.median as u64;
            Some((name.to_owned(), Cost { download_s: path.median, cpu_s: cpu.median, peak }))
        };
        let reactions = || all.iter().filter_map(|(_, f)| f.reactions.as_ref());
        Some(Summary {
            combination: name.into(),
            wall_s: spread(&|_, f| f.wall_s)?,
            rate: spread(&|routes, f| routes / f.wall_s)?,
            quiet_s: spread(&|_, f| f.quiet_s)?,
            chip_busy: Spread::of(all.iter().filter_map(|(_, f)| f.chip_busy)),
            costs: PROCESSES.into_iter().filter_map(cost).collect(),
            route_ms: Spread::of(reactions().flat_map(|r| r.route_ms.iter().copied())),
            link_ms: Spread::of(reactions().flat_map(|r| r.link_ms.iter().copied())),
            timers: all.last().map(|(_, f)| f.timers.clone()).unwrap_or_default(),
            ages: all.iter().flat_map(|(_, f)| &f.ages).fold(BTreeMap::new(), |mut ages, (name, age)| {
                let most: &mut u64 = ages.entry(name.clone()).or_default();
                *most = (*most).max(*age);
                ages
            }),
            commands: all.last().map(|(_, f)| f.commands.clone()).unwrap_or_default(),
        })
    }

    /// Everything on over everything off, run by run.
    fn pairs(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let figures = |name: String| {
            let of = self.runs.iter().filter(move |run| run.combination == name);
            of.map(|run| run.figures.as_ref()).collect::<Vec<_>>()
        };
        let cpu = |figures: &Figures, of: fn(&Cost) -> f64| figures.costs.values().map(of).sum::<f64>();
        let mut rows = vec![
            ["on over off", "routes/s", "CPU s until the last route", "CPU s"].map(String::from).to_vec(),
        ];
        for combination in self.summary.iter().filter_map(|s| s.combination.strip_suffix(", on")) {
            let (on, off) = (figures(format!("{combination}, on")), figures(format!("{combination}, off")));
            let pairs: Vec<(&Figures, &Figures)> =
                on.into_iter().zip(off).filter_map(|(on, off)| Some((on?, off?))).collect();
            let rate = Spread::of(pairs.iter().map(|(on, off)| off.wall_s / on.wall_s));
            let cpu = |of| Spread::of(pairs.iter().map(|(on, off)| cpu(on, of) / cpu(off, of)));
            let show = |ratio: Option<Spread>| ratio.map_or("-".into(), |r| r.show(|n| format!("{n:.2}")));
            rows.push(vec![
                combination.to_owned(),
                show(rate),
                show(cpu(|cost| cost.download_s)),
                show(cpu(|cost| cost.cpu_s)),
            ]);
        }
        if rows.len() > 1 { write!(f, "\n{}", Table::of_figures(&rows).render()) } else { Ok(()) }
    }

    /// How far databases were behind, and the commands that wrote and read them.
    fn databases(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new(&["combination", ">oldest row ms", "commands of the last run"]);
        let mut any = false;
        for s in self.summary.iter().filter(|s| !s.commands.is_empty()) {
            any = true;
            let ages = s.ages.iter().map(|(name, age)| format!("{name} {}", rounded(*age as f64)));
            let commands =
                s.commands.iter().map(|(name, calls)| format!("{name} {}", rounded(*calls as f64)));
            let join = |all: Vec<String>| if all.is_empty() { "-".into() } else { all.join(", ") };
            table.row([s.combination.clone(), join(ages.collect()), join(commands.collect())]);
        }
        if any { write!(f, "\n{}", table.render()) } else { Ok(()) }
    }

    fn timers(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for summary in self.summary.iter().filter(|summary| !summary.timers.is_empty()) {
            writeln!(f, "\n{}: PerformanceTimers of the last run", summary.combination)?;
            let mut table = Table::new(&["timer", ">routes", ">routes/s", ">total ms", ">busy ms"]);
            for (name, timer) in &summary.timers {
                let counts = [timer.tasks as f64, timer.rate(), timer.total_ms as f64, timer.busy_ms as f64];
                table.row(std::iter::once(name.clone()).chain(counts.map(rounded)));
            }
            f.write_str(&table.render())?;
            writeln!(f, "their last lines:")?;
            summary.timers.values().try_for_each(|timer| writeln!(f, "{}", timer.line))?;
        }
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.write_head(f, &self.title)?;
        let reactions = self.summary.iter().any(|s| s.link_ms.is_some());
        let chip = self.summary.iter().any(|s| s.chip_busy.is_some());
        let busy = if chip { &["chip busy"][..] } else { &[] };
        let urgent = if reactions { &["urgent route ms", "link event ms"][..] } else { &[] };
        let header = ["combination", "s", "routes/s", "quiet after s"]
            .iter()
            .chain(busy)
            .chain(urgent)
            .map(|&t| t.to_owned());
        let ran = |name: &&&str| self.summary.iter().any(|s| s.costs.contains_key(**name));
        let processes: Vec<&str> = PROCESSES.iter().filter(ran).copied().collect();
        let costs = processes.iter().map(|name| format!("{name} CPU s"));
        let peaks = processes.iter().map(|name| format!("{name} MB"));
        let mut rows = vec![header.chain(costs).chain(peaks).collect::<Vec<_>>()];
        for s in &self.summary {
            let of = |show: &dyn Fn(&Cost) -> String| {
                processes.iter().map(|name| s.costs.get(*name).map_or("-".into(), show)).collect::<Vec<_>>()
            };
            let cpu = of(&|cost| format!("{:.2} of {:.2}", cost.download_s, cost.cpu_s));
            let peak = of(&|cost| rounded(cost.peak as f64 / 1e6));
            let tenth = |n| format!("{n:.1}");
            let mut head = vec![
                s.combination.clone(),
                s.wall_s.show(tenth),
                s.rate.show(rounded),
                s.quiet_s.show(tenth),
            ];
            if chip {
                let share = |share: f64| format!("{:.1}%", 100.0 * share);
                head.push(s.chip_busy.map_or("-".into(), |busy| busy.show(share)));
            }
            if reactions {
                head.extend([s.route_ms, s.link_ms].map(|ms| ms.map_or("-".into(), |ms| ms.show(tenth))));
            }
            rows.push(head.into_iter().chain(cpu).chain(peak).collect());
        }
        f.write_str(&Table::of_figures(&rows).render())?;
        self.pairs(f)?;
        self.databases(f)?;
        for run in &self.runs {
            if let Some(failure) = &run.failure {
                writeln!(f, "failed: {}: {failure}", run.combination)?;
            }
        }
        self.timers(f)
    }
}
