//! `ribtide bench run nexthop-cache`: the cost of next-hop resolution in each cache mode, compared
//! with FRR's zebra.
//!
//! Routes are encoded messages, and pass through decoding and the whole RIB manager; its output is
//! counted and dropped. Each run is a process of its own, so that none reuses memory of another.
//!
//! `off` and `epoch` correspond to zebra without and with the cache proposed for it. Each route has
//! a list of next hops, which is decoded and looked up among the known sets. `off` resolves it for
//! each route, `epoch` for the first. `dependency` also decodes equal lists of a batch only once.

mod decoder;
mod report;
mod single_process;
mod workload;
mod zebra;

pub use report::{Figures, Report};
pub use workload::NexthopWorkload;

use crate::Error;
use crate::harness::report::in_turns;
use crate::harness::{Call, write_report};
use report::{RunReport, WorkloadReport};
use ribtide_rib::CacheMode;
use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Subject {
    /// ribtide's RIB manager without a cache
    Off,
    /// ribtide's RIB manager with the cache of the proposal for zebra
    Epoch,
    /// ribtide's RIB manager with its defaults
    Dependency,
    /// FRR's zebra
    Zebra,
}

impl Subject {
    const ALL: [Subject; 4] = [Subject::Off, Subject::Epoch, Subject::Dependency, Subject::Zebra];

    fn mode(self) -> Option<CacheMode> {
        match self {
            Subject::Off => Some(CacheMode::Off),
            Subject::Epoch => Some(CacheMode::Epoch),
            Subject::Dependency => Some(CacheMode::Dependency),
            Subject::Zebra => None,
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.mode().map_or("zebra", CacheMode::name))
    }
}

/// The options of `bench run nexthop-cache`.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// Workloads
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "ecmp,single")]
    pub work: Vec<NexthopWorkload>,
    /// The modes of the cache, and zebra
    #[arg(long, value_name = "NAMES", value_delimiter = ',', default_value = "off,epoch,dependency,zebra")]
    pub dut: Vec<Subject>,
    /// The number of runs of each; they take turns
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pub runs: u32,
    /// A factor for the numbers of routes and of ECMP next hops, at most 1
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0, value_parser = factor)]
    pub routes: f64,
    /// The most routes in one turn of the RIB manager
    #[arg(long, value_name = "ROUTES", default_value_t = 2048, value_parser = clap::value_parser!(u32).range(1..))]
    pub turn: u32,
    /// Write all figures to this file, too, as JSON
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Measure one mode with one workload in this process, and print its figures
    #[arg(long, hide = true)]
    pub alone: bool,
}

fn factor(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(n) if n > 0.0 && n <= 1.0 => Ok(n),
        _ => Err("write a number above 0, at most 1".into()),
    }
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// Nothing could be measured, or a FIB ended wrong.
pub fn run(options: &Options) -> Result<(), Error> {
    if let (true, [work], [subject]) = (options.alone, &options.work[..], &options.dut[..]) {
        let mode = subject.mode().ok_or(Error::Options("zebra is no mode".into()))?;
        let figures = single_process::run(mode, work.scale(options.routes, options.turn))?;
        let text = serde_json::to_string(&figures).map_err(|e| Error::Options(e.to_string()))?;
        return writeln!(std::io::stdout(), "{text}").map_err(Error::System);
    }
    let report = measure(options)?;
    write_report(&report, options.json.as_deref())?;
    if report.works.iter().all(|work| work.runs.is_empty()) {
        return Err(Error::Options("nothing could be measured".into()));
    }
    match report.works.iter().flat_map(WorkloadReport::wrong).count() {
        0 => Ok(()),
        wrong => Err(Error::Options(format!("{wrong} phases ended wrong; see above"))),
    }
}

fn measure(options: &Options) -> Result<Report, Error> {
    let mut report =
        Report { call: Call::now(), runs: options.runs, left_out: Vec::new(), works: Vec::new() };
    let mut subjects = options.dut.clone();
    if subjects.contains(&Subject::Zebra)
        && let Some(why) = zebra::missing()
    {
        report.left_out.push(why);
        subjects.retain(|subject| *subject != Subject::Zebra);
    }
    for work in &options.work {
        let scale = work.scale(options.routes, options.turn);
        let remark = zebra::remark(&scale).filter(|_| subjects.contains(&Subject::Zebra));
        let mut done = WorkloadReport {
            work: work.to_string(),
            routes: scale.routes,
            hops: scale.hops,
            remark,
            runs: Vec::new(),
            summary: Vec::new(),
            goals: Vec::new(),
        };
        for (n, subject) in in_turns(options.runs, &subjects) {
            let phases = match subject {
                Subject::Zebra => zebra::run(scale),
                _ => child(*work, *subject, options),
            };
            let phases = match phases {
                Ok(phases) => phases,
                // A failure of another program must not discard the figures of ribtide.
                Err(e) if *subject == Subject::Zebra => {
                    report.left_out.push(format!("{work}, run {} of zebra: {e}", n + 1));
                    continue;
                }
                Err(e) => return Err(e),
            };
            let cpu: Vec<String> = phases.iter().map(|p| format!("{} {:.4} s", p.phase, p.cpu_s)).collect();
            // A closed standard error does not stop the run.
            let head = format!("{work}, run {} of {}, {subject}", n + 1, options.runs);
            let _ = writeln!(std::io::stderr(), "{head}: {}", cpu.join(", "));
            done.runs.push(RunReport { subject: subject.to_string(), phases });
        }
        done.summarize(*work, options.routes == 1.0);
        report.works.push(done);
    }
    Ok(report)
}

/// One run in a process of its own.
fn child(work: NexthopWorkload, subject: Subject, options: &Options) -> Result<Vec<Figures>, Error> {
    let program = std::env::current_exe().map_err(Error::System)?;
    let mut command = Command::new(program);
    command.args(["bench", "run", "nexthop-cache", "--alone", "--work", &work.to_string()]);
    command.args(["--dut", &subject.to_string(), "--routes", &options.routes.to_string()]);
    command.args(["--turn", &options.turn.to_string()]);
    let output = command.output().map_err(Error::System)?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        return Err(Error::Options(format!("{work} with {subject} failed: {}", error.trim())));
    }
    serde_json::from_slice(&output.stdout)
        .map_err(|e| Error::Options(format!("the figures of {work} with {subject} cannot be read: {e}")))
}
