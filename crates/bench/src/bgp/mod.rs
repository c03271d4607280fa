//! `ribtide bench run bgp`: the cost of learning, selecting and advertising routes, and the
//! correctness of the result.
//!
//! The router under test runs alone in a network namespace (or on loopback), its neighbours in
//! another. Messages are encoded in advance, so the neighbours cost little. Every run compares each
//! receiver, also one that joined late, with the result of a simple implementation of RFC 4271.

pub mod dut;
mod load;
mod model;
mod report;
mod run;
mod topology;
pub mod workload;

pub use report::Report;
pub use run::Figures;

use crate::Error;
use crate::harness::report::{all_ended_right, in_turns};
use crate::harness::{Call, Place, machine, write_report};
use crate::options::interrupted;
use dut::Dut;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use report::{RouterReport, RunReport, ScenarioReport};
use ribtide_prefix::{Afi, AfiSafi};
use run::{Failure, Setup};
use std::io::{IsTerminal, Write as _};
use std::path::PathBuf;
use std::time::Duration;
use workload::{BgpWorkload, Prepared};

/// The options of `bench run bgp`.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// Workloads
    #[arg(
        long,
        value_name = "NAMES",
        value_delimiter = ',',
        default_value = "learn,reflect,flap,single,scale,withdraw,churn,receivers"
    )]
    pub work: Vec<BgpWorkload>,
    /// The families of the routes: ipv4, ipv6 or both. Each workload runs with each of them. Sessions use
    /// IPv4
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = family, default_value = "ipv4")]
    pub family: Vec<Afi>,
    /// The routers under test: bird, frr, gobgp, openbgpd, and ribtide with settings, such as ribtide:auto,
    /// ribtide:shards=1,2,off, ribtide:shards=2:update-threads=1, ribtide:binary=PATH, or
    /// ribtide:suppress-fib-pending=on, which installs into the virtual ASIC
    #[arg(long, value_name = "NAMES", value_parser = Dut::parse_list, default_value = "ribtide:shards=off,1,2,ribtide:auto,bird,frr,gobgp,openbgpd")]
    pub dut: std::vec::Vec<Dut>,
    /// The number of runs of each workload and router; routers take turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// A factor for the numbers of prefixes
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub prefixes: f64,
    /// A factor for the numbers of receivers above one
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub receivers: f64,
    /// The seed of the tables
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
    /// Use loopback addresses instead of network namespaces. This needs no privileges, and measures ribtide
    /// only
    #[arg(long)]
    pub loopback: bool,
    /// The threads of the simulated neighbours [default: a quarter of the cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    pub load_threads: Option<u32>,
    /// A run fails when the router has been idle for this time and routes are missing. FRR itself may wait
    /// 10 s for receivers that it can serve together
    #[arg(long, value_name = "SECONDS", default_value_t = 20)]
    pub stall_timeout: u64,
    /// The time limit of a phase
    #[arg(long, value_name = "SECONDS", default_value_t = 300)]
    pub limit: u64,
    /// Write all figures to this file, too, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn family(text: &str) -> Result<Afi, String> {
    match text {
        "ipv4" => Ok(Afi::Ipv4),
        "ipv6" => Ok(Afi::Ipv6),
        _ => Err("write ipv4, ipv6, or both with a comma".into()),
    }
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n > 0.0 && n <= 10.0 => Ok(n),
        _ => Err("write a number above 0, at most 10".into()),
    }
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// Nothing could be measured, a router under test failed or ended wrong, or Ctrl-C was pressed.
pub fn run(options: &Options) -> Result<(), Error> {
    let (report, interrupted) = measure(options)?;
    write_report(&report, options.json.as_deref())?;
    if interrupted {
        return Err(Error::Options("interrupted".into()));
    }
    let runs = || report.scenarios.iter().flat_map(|s| &s.runs);
    let bad = runs().filter(|r| r.failure.is_some() || r.phases.iter().any(|p| p.wrong.is_some())).count();
    all_ended_right(bad, runs().count())?;
    if runs().next().is_none() {
        return Err(Error::Options("no router could be measured".into()));
    }
    Ok(())
}

/// Measures; returns true beside the report after Ctrl-C.
fn measure(options: &Options) -> Result<(Report, bool), Error> {
    if !options.loopback {
        Place::may_make_namespaces()?;
    }
    let interrupted = interrupted()?;
    let call = Call::now();
    let routers: Vec<RouterReport> =
        options.dut.iter().map(|dut| RouterReport::new(dut, options.loopback)).collect();
    let there: Vec<&Dut> =
        options.dut.iter().zip(&routers).filter(|(_, r)| r.left_out.is_none()).map(|(dut, _)| dut).collect();
    let load_threads = options.load_threads.map_or((machine::cores() / 4).max(1), |n| n as usize);
    let mut report = Report {
        call,
        place: if options.loopback { "loopback addresses" } else { "network namespaces" },
        runs: options.runs,
        seed: options.seed,
        load_threads,
        routers,
        scenarios: Vec::new(),
    };
    let setup = Setup {
        stall_timeout: Duration::from_secs(options.stall_timeout),
        limit: Duration::from_secs(options.limit),
        load_threads,
        loopback: options.loopback,
    };
    let progress = Progress::new();
    let families = [Afi::Ipv4, Afi::Ipv6].into_iter().filter(|family| options.family.contains(family));
    let scenarios = |family| workload::scenarios(&options.work, family, options.prefixes, options.receivers);
    for scenario in families.flat_map(scenarios) {
        let family = AfiSafi::unicast(scenario.family).name();
        let name = format!("{} ({family})", scenario.name);
        progress.show(&format!("{name}: making the messages"));
        let prepared = Prepared::new(scenario, options.seed, options.loopback);
        let scenario = prepared.scenario.to_string();
        let sets = prepared.sets;
        let mut scenario = ScenarioReport { scenario, family, sets, runs: Vec::new(), summary: Vec::new() };
        let mut stopped = false;
        for (n, dut) in in_turns(options.runs, &there) {
            let head = format!("{name}, run {} of {}, {dut}", n + 1, options.runs);
            progress.show(&head);
            let status = |what: &str| progress.show(&format!("{head}: {what}"));
            let mut phases = Vec::new();
            let outcome = run::run(dut, &prepared, setup, &interrupted, &status, &mut phases);
            let failure = match outcome {
                Ok(()) => None,
                Err(Failure::Router(why)) => Some(why),
                Err(Failure::Interrupted) => {
                    stopped = true;
                    break;
                }
            };
            let cpu: Vec<String> = phases.iter().map(|p| format!("{} {:.2} s", p.phase, p.cpu_s)).collect();
            progress.done(&format!("{head}: {}", failure.as_deref().unwrap_or(&cpu.join(", "))));
            scenario.runs.push(RunReport { router: dut.to_string(), phases, failure });
        }
        scenario.summarize();
        report.scenarios.push(scenario);
        if stopped {
            return Ok((report, true));
        }
    }
    Ok((report, false))
}

/// Progress: a changing line on a terminal, else a line per run, on standard error.
struct Progress(Option<ProgressBar>);

impl Progress {
    fn new() -> Progress {
        Progress(std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr_with_hz(10));
            let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}");
            bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            bar.enable_steady_tick(Duration::from_millis(200));
            bar
        }))
    }

    fn show(&self, what: &str) {
        if let Some(bar) = &self.0 {
            bar.set_message(what.to_string());
        }
    }

    fn done(&self, what: &str) {
        match &self.0 {
            Some(bar) => bar.println(what),
            // A closed standard error does not stop the run.
            None => drop(writeln!(std::io::stderr(), "{what}")),
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(bar) = &self.0 {
            bar.finish_and_clear();
        }
    }
}
