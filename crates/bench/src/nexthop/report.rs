//! The report of the suite, as text and JSON.

use super::Subject;
use super::workload::{ALL_DOWN, ALL_UP, CHURN, FLAP, INSTALL, LINK_DOWN, LINK_UP, NexthopWorkload};
use crate::harness::{Call, Spread};
use ribtide_text::{Column, Table, rounded};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The figures of one phase of one run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    /// The phase.
    pub phase: String,
    /// CPU seconds in total: of the decoding and RIB thread, or of all of zebra.
    pub cpu_s: f64,
    /// Of those, until dataplanes got the changed groups; 0 for phases with routes.
    pub at_once_s: f64,
    /// The longest turn, for which the next event waits; 0 for phases with routes.
    pub turn_s: f64,
    /// Of those, decoding.
    pub decode_s: f64,
    /// Of those, resolution.
    pub resolution_s: f64,
    /// Routes of the workload.
    pub routes: u32,
    /// Next-hop groups created, changed and deleted in dataplanes.
    pub group_operations: u64,
    /// Routes installed, replaced and deleted in dataplanes.
    pub route_operations: u64,
    /// Next hops looked up.
    pub lookups: u64,
    /// Sets of next hops resolved.
    pub resolutions: u64,
    /// Routes that used the cached result of their group.
    pub hits: u64,
    /// Routes whose group was resolved first.
    pub misses: u64,
    /// Bytes of the routing tables afterwards, or of all of zebra.
    pub table_bytes: u64,
    /// Bytes by which the resident memory of the process grew meanwhile.
    pub grown_bytes: u64,
    /// A hash of the FIB.
    pub fib: u64,
    /// The fault of the FIB.
    pub wrong: Option<String>,
}

/// Everything about one call of the suite.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// Runs of each workload and subject.
    pub runs: u32,
    /// Unmeasured subjects, with the reasons.
    pub left_out: Vec<String>,
    /// Each workload.
    pub works: Vec<WorkloadReport>,
}

/// A workload.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct WorkloadReport {
    /// Its name.
    pub work: String,
    /// Routes.
    pub routes: u32,
    /// Next hops of each.
    pub hops: u16,
    /// Differences for zebra.
    pub remark: Option<String>,
    /// Each run, in the order in which they were made.
    pub runs: Vec<RunReport>,
    /// Each phase and subject over all runs.
    pub summary: Vec<Summary>,
    /// Goals and whether they are met; only for the whole workload.
    pub goals: Vec<Goal>,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunReport {
    /// A mode of the cache, or `zebra`.
    pub subject: String,
    /// Each phase.
    pub phases: Vec<Figures>,
}

/// One phase and subject over all runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    /// The phase.
    pub phase: String,
    /// The subject.
    pub subject: String,
    /// CPU seconds in total.
    pub cpu_s: Spread,
    /// In decoding.
    pub decode_s: Spread,
    /// In resolution.
    pub resolution_s: Spread,
    /// Until dataplanes got the changed groups.
    pub at_once_s: Spread,
    /// The longest turn.
    pub turn_s: Spread,
    /// The median run.
    pub figures: Figures,
}

/// A goal.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Goal {
    /// The goal with its bound.
    pub what: String,
    /// What was measured.
    pub measured: String,
    /// Whether it is met.
    pub holds: bool,
}

impl WorkloadReport {
    /// Sums the runs up.
    pub(super) fn summarize(&mut self, work: NexthopWorkload, whole: bool) {
        let mut keys: Vec<(&str, &str)> = Vec::new();
        for run in &self.runs {
            for figures in &run.phases {
                let key = (figures.phase.as_str(), run.subject.as_str());
                if !keys.contains(&key) {
                    keys.push(key);
                }
            }
        }
        let phases: Vec<&str> = keys.iter().map(|(phase, _)| *phase).collect();
        let subject = |name: &str| Subject::ALL.iter().position(|s| s.to_string() == name);
        keys.sort_by_key(|(phase, name)| (phases.iter().position(|p| p == phase), subject(name)));
        self.summary = keys.into_iter().filter_map(|(phase, name)| self.summary_of(phase, name)).collect();
        if whole {
            self.goals = self.goals(work);
        }
    }

    fn summary_of(&self, phase: &str, subject: &str) -> Option<Summary> {
        let runs = self.runs.iter().filter(|run| run.subject == subject);
        let mut all: Vec<&Figures> = runs.flat_map(|run| &run.phases).filter(|f| f.phase == phase).collect();
        let spread = |of: fn(&Figures) -> f64| Spread::of(all.iter().map(|f| of(f)));
        let (cpu_s, decode_s, resolution_s) =
            (spread(|f| f.cpu_s)?, spread(|f| f.decode_s)?, spread(|f| f.resolution_s)?);
        let (at_once_s, turn_s) = (spread(|f| f.at_once_s)?, spread(|f| f.turn_s)?);
        all.sort_by(|a, b| a.cpu_s.total_cmp(&b.cpu_s));
        let figures = (*all.get(all.len() / 2)?).clone();
        Some(Summary {
            phase: phase.into(),
            subject: subject.into(),
            cpu_s,
            decode_s,
            resolution_s,
            at_once_s,
            turn_s,
            figures,
        })
    }

    /// Faults of any run.
    pub(super) fn wrong(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        for run in &self.runs {
            for f in &run.phases {
                if let Some(why) = &f.wrong {
                    wrong.push(format!("{}, {}, {}: {why}", self.work, f.phase, run.subject));
                }
                let other = |other: &&Figures| {
                    other.phase == f.phase && other.fib != f.fib && other.fib != 0 && f.fib != 0
                };
                let differs = self.runs.iter().take(1).flat_map(|first| &first.phases).find(other);
                if differs.is_some() {
                    wrong.push(format!("{}, {}: {} has another FIB", self.work, f.phase, run.subject));
                }
            }
        }
        wrong
    }

    fn of(&self, phase: &str, subject: &str) -> Option<&Summary> {
        self.summary.iter().find(|s| s.phase == phase && s.subject == subject)
    }

    /// The goals whose operands were measured.
    fn goals(&self, work: NexthopWorkload) -> Vec<Goal> {
        let mut goals = Vec::new();
        let mut goal = |what: &str, measured: Option<(String, bool)>| {
            if let Some((measured, holds)) = measured {
                goals.push(Goal { what: what.into(), measured, holds });
            }
        };
        let at_most = |phase: &str, bound: f64| {
            let seconds = self.of(phase, DEPENDENCY)?.cpu_s.median;
            Some((format!("{} s", seconds_text(seconds)), seconds <= bound))
        };
        let times = |phase: &str, faster: &str, than: &str, bound: f64| {
            let factor =
                self.of(phase, than)?.resolution_s.median / self.of(phase, faster)?.resolution_s.median;
            Some((format!("{} times", rounded(factor)), factor >= bound))
        };
        match work {
            NexthopWorkload::Ecmp => {
                goal("install with dependency in 0.1 CPU s, decoding included", at_most(INSTALL, 0.1));
                goal("install: epoch resolves 2 times as fast as off", times(INSTALL, EPOCH, OFF, 2.0));
                goal("churn: epoch resolves 2 times as fast as off", times(CHURN, EPOCH, OFF, 2.0));
            }
            NexthopWorkload::Single => {
                goal("install with dependency in 1 CPU s, decoding included", at_most(INSTALL, 1.0));
                let bytes = self.of(INSTALL, DEPENDENCY).map(|s| &s.figures).map(|f| {
                    let (table, all) =
                        (f.table_bytes / u64::from(f.routes), f.grown_bytes / u64::from(f.routes));
                    (format!("{table} in tables, {all} in all"), table.max(all) <= 100)
                });
                goal("100 bytes a route with dependency", bytes);
            }
        }
        goal(
            "link down: dependency resolves 100 times as fast as off",
            times(LINK_DOWN, DEPENDENCY, OFF, 100.0),
        );
        goal("link up: dependency resolves 100 times as fast as off", times(LINK_UP, DEPENDENCY, OFF, 100.0));
        let turns = |phase: &str| {
            let s = self.of(phase, DEPENDENCY)?;
            let (at_once, turn) = (s.at_once_s.median, s.turn_s.median);
            let text = |n| seconds_text(n);
            Some((
                format!("{} s, then turns of {} s", text(at_once), text(turn)),
                at_once <= 0.01 && turn <= 0.01,
            ))
        };
        for phase in [ALL_DOWN, ALL_UP, FLAP] {
            let what = format!("{phase} with dependency in 10 CPU ms, what follows in turns of no more");
            goal(&what, turns(phase));
        }
        goal("link down with dependency in 10 CPU ms", at_most(LINK_DOWN, 0.01));
        goal("link up with dependency in 10 CPU ms", at_most(LINK_UP, 0.01));
        goal("a next hop moves with dependency in 10 CPU ms", at_most("a next hop moves", 0.01));
        goals
    }
}

const OFF: &str = "off";
const EPOCH: &str = "epoch";
const DEPENDENCY: &str = "dependency";

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.write_head(f, format_args!("{} runs each", self.runs))?;
        for why in &self.left_out {
            writeln!(f, "  left out: {why}")?;
        }
        self.works.iter().try_for_each(|work| write!(f, "\n{work}"))
    }
}

impl fmt::Display for WorkloadReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WorkloadReport { work, routes, hops, .. } = self;
        let (routes, hops) = (rounded((*routes).into()), rounded((*hops).into()));
        writeln!(f, "{work}: {routes} routes, next hops of each: {hops}")?;
        self.remark.iter().try_for_each(|remark| writeln!(f, "{remark}"))?;
        let count = |n: u64| rounded(n as f64);
        // Of zebra, only its CPU time and its memory are known.
        let zebra = Subject::Zebra.to_string();
        let ours = |s: &Summary, text: String| if s.subject == zebra { "-".into() } else { text };
        let events = |s: &Spread| if s.median > 0.0 { s.show(seconds_text) } else { "-".into() };
        let of_off = |s: &Summary| {
            let off = self.of(&s.phase, OFF).map(|off| off.resolution_s.median);
            off.map_or("-".into(), |off| format!("{:.5}", s.resolution_s.median / off))
        };
        let bytes = |s: &Summary| match s.phase == INSTALL {
            true => count(s.figures.grown_bytes / u64::from(s.figures.routes)),
            false => "-".into(),
        };
        let columns: [Column<'_, Summary>; 12] = [
            ("", &|s| format!("  {}", s.subject)),
            ("CPU s", &|s| s.cpu_s.show(seconds_text)),
            ("decode", &|s| ours(s, s.decode_s.show(seconds_text))),
            ("resolution", &|s| ours(s, s.resolution_s.show(seconds_text))),
            ("of off", &|s| ours(s, of_off(s))),
            ("at once", &|s| ours(s, events(&s.at_once_s))),
            ("turn", &|s| ours(s, events(&s.turn_s))),
            ("sets resolved", &|s| ours(s, count(s.figures.resolutions))),
            ("look-ups", &|s| ours(s, count(s.figures.lookups))),
            ("group ops", &|s| ours(s, count(s.figures.group_operations))),
            ("route ops", &|s| ours(s, count(s.figures.route_operations))),
            ("B/route", &bytes),
        ];
        f.write_str(&Table::of_groups(&self.summary, |s| &s.phase, &columns).render())?;
        for Goal { what, measured, holds } in &self.goals {
            writeln!(f, "goal {}: {what}: {measured}", if *holds { "reached" } else { "missed" })?;
        }
        self.wrong().iter().try_for_each(|wrong| writeln!(f, "wrong: {wrong}"))
    }
}

/// Seconds: down to microseconds where there are no more.
fn seconds_text(n: f64) -> String {
    match n {
        n if n >= 1.0 => format!("{n:.2}"),
        n if n >= 0.01 => format!("{n:.3}"),
        n => format!("{n:.6}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(resolution: &[(&str, f64, u64)]) -> WorkloadReport {
        let run = |(subject, seconds, fib): &(&str, f64, u64)| RunReport {
            subject: (*subject).into(),
            phases: vec![Figures {
                phase: LINK_DOWN.into(),
                cpu_s: 2.0 * seconds,
                resolution_s: *seconds,
                fib: *fib,
                routes: 10,
                ..Figures::default()
            }],
        };
        let mut work = WorkloadReport {
            work: "ecmp".into(),
            routes: 10,
            hops: 4,
            remark: None,
            runs: resolution.iter().map(run).collect(),
            summary: vec![],
            goals: vec![],
        };
        work.summarize(NexthopWorkload::Ecmp, true);
        work
    }

    #[test]
    fn goals_are_judged_by_medians_and_only_where_they_were_measured() {
        let work = report(&[
            (DEPENDENCY, 0.002, 7),
            (OFF, 0.5, 7),
            (DEPENDENCY, 0.004, 7),
            (DEPENDENCY, 0.9, 7),
            (OFF, 0.5, 7),
        ]);
        let goals: Vec<(&str, bool)> = work.goals.iter().map(|g| (g.what.as_str(), g.holds)).collect();
        assert_eq!(
            goals,
            [
                ("link down: dependency resolves 100 times as fast as off", true),
                ("link down with dependency in 10 CPU ms", true)
            ]
        );
        assert_eq!(work.goals[0].measured, "125 times");
        let subjects: Vec<&str> = work.summary.iter().map(|s| s.subject.as_str()).collect();
        assert_eq!(subjects, [OFF, DEPENDENCY]);
        assert!(work.wrong().is_empty());
        assert!(!report(&[(DEPENDENCY, 0.02, 7), (OFF, 0.5, 7)]).goals[0].holds);
    }

    #[test]
    fn a_mode_with_another_fib_is_wrong() {
        let work = report(&[(OFF, 1.0, 7), (EPOCH, 0.1, 8), ("zebra", 1.0, 0)]);
        assert_eq!(work.wrong(), ["ecmp, link down: epoch has another FIB"]);
        assert!(work.to_string().contains("wrong: ecmp, link down: epoch has another FIB"));
    }
}
