//! `ribtide bench run route-check`: the cost of comparing SONiC's databases with each other and
//! with the switch, while idle and while all routes change as fast as fpmsyncd takes them.
//!
//! One process of `ribtide route-check --sonic` checks repeatedly: first everything, then parts.
//! Meanwhile a thread sends Redis a `PING` each millisecond, because a check must not delay
//! writers.

use super::combination::Combination;
use super::load::Load;
use super::redis::Redis;
use super::run::{self, APPL, Case, Ready, Running, feed, has_all, query_switch};
use super::suite::RunOptions;
use crate::Error;
use crate::harness::report::in_turns;
use crate::harness::{Call, Place, Program, Spread, write_report};
use crate::options::interrupted;
use ribtide_text::{Table, rounded};
use serde::Serialize;
use serde_json::Value;
use std::fmt;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The options of this suite.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// The combination of transports and modes
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = [Combination::Redis])]
    pub dut: Vec<Combination>,
    /// The number of IPv4 routes
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub ipv4: u32,
    /// The number of IPv6 routes
    #[arg(long, value_name = "N", default_value_t = 50_000, value_parser = clap::value_parser!(u32).range(0..=2_000_000))]
    pub ipv6: u32,
    /// Checks after the first one
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub checks: u32,
    /// The interval of checks
    #[arg(long, value_name = "SECONDS", default_value_t = 1.0)]
    pub every: f64,
    /// Compare the databases alone: do not ask the switch
    #[arg(long)]
    pub databases: bool,
    /// The ribtide that checks, if not this one: for a comparison with an earlier version
    #[arg(long, value_name = "PATH")]
    pub program: Option<PathBuf>,
    /// How it is measured
    #[command(flatten)]
    pub how: RunOptions,
}

/// The time for which the rate of changes is measured before a check runs.
const BASELINE_TIME: Duration = Duration::from_secs(5);
/// The interval between checks for output.
const LOG_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The interval between `PING`s.
const PING_INTERVAL: Duration = Duration::from_millis(1);

/// One check.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CheckFigures {
    /// Of everything.
    pub full: bool,
    /// Routes compared.
    pub checked: u64,
    /// Routes that differed.
    pub differing: u64,
    /// Its own wall time.
    pub wall_s: f64,
    /// CPU seconds of the command.
    pub cpu_s: f64,
    /// CPU seconds of Redis since the check before, for any reason; and of syncd.
    pub redis_s: f64,
    /// See `redis_s`.
    pub syncd_s: f64,
    /// The longest that Redis took for a `PING` meanwhile, in milliseconds.
    pub ping_ms: f64,
    /// Changes of routes that the switch made meanwhile, a second.
    pub changes: f64,
}

/// The checks of one process.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Run {
    /// The combination.
    pub combination: String,
    /// All routes change.
    pub churn: bool,
    /// The longest `PING`, and the changes a second, before the first check.
    pub before: (f64, f64),
    /// The checks in order.
    pub checks: Vec<CheckFigures>,
    /// The most memory of the process, in bytes.
    pub peak: u64,
}

/// All runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What was measured.
    pub title: String,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// In the order in which they were made.
    pub runs: Vec<Run>,
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// A daemon failed, a check found a difference while nothing happened or in the end, or Ctrl-C was pressed.
pub fn run(options: &Options) -> Result<(), Error> {
    Place::may_make_namespaces()?;
    if let Some(without) = options.dut.iter().find(|combination| {
        let flags = combination.flags();
        !flags.has_chip || !flags.has_rows
    }) {
        return Err(Error::Options(format!("{} has no databases to compare", without.name())));
    }
    let interrupted = interrupted()?;
    let (v4, v6) = (rounded(f64::from(options.ipv4)), rounded(f64::from(options.ipv6)));
    let mut report = Report {
        title: format!(
            "{v4} IPv4 and {v6} IPv6 routes, {}",
            if options.databases { "the databases" } else { "the databases and the switch" }
        ),
        call: Call::now(),
        runs: Vec::new(),
    };
    for (n, combination) in in_turns(options.how.runs, &options.dut) {
        let _ = writeln!(std::io::stderr(), "run {} of {}, {}", n + 1, options.how.runs, combination.name());
        report.runs.extend(once(options, *combination, &interrupted)?);
        if interrupted.load(Relaxed) {
            return Err(Error::Options("interrupted".into()));
        }
    }
    write_report(&report, options.how.json.as_deref())
}

/// Checks while idle, then under churn.
fn once(options: &Options, combination: Combination, interrupted: &AtomicBool) -> Result<[Run; 2], Error> {
    let load = Load { ipv4: options.ipv4, ipv6: options.ipv6, next_hops: 2 };
    let case = Case::new(combination.name(), combination.flags(), load, (1024, 1000));
    let limit = Duration::from_secs(options.how.limit);
    let ready = run::start(&case)?;
    let expected = ready.expected_routes(load);
    let Ready { mut it, socket, stream, ifindex, .. } = ready;
    let churning = stream.try_clone().map_err(Error::System)?;
    feed(stream, load.frames(ifindex, false))?;
    it.wait("the last route", limit, |_| has_all(&socket, expected).then_some(()))?;
    it.quiet(Instant::now(), limit)?;
    let frames = [load.frames_through(&[0], ifindex), load.frames_through(&[1], ifindex)];
    let (over, longest) = (AtomicBool::new(false), AtomicU64::new(0));
    let pings = it.redis(&case, APPL).map_err(Error::System)?;
    let mut watch = Watch { options, case: &case, socket, longest: &longest, interrupted };
    std::thread::scope(|scope| {
        // The threads end in any case.
        let _end = SetOnDrop(&over);
        scope.spawn(|| ping(pings, &longest, &over));
        let idle = watch.checks(&mut it, false, options.checks)?;
        scope.spawn(|| churn(churning, &frames, &over));
        std::thread::sleep(BASELINE_TIME);
        let under = watch.checks(&mut it, true, options.checks)?;
        over.store(true, Relaxed);
        it.quiet(Instant::now(), limit)?;
        watch.checks(&mut it, false, 0)?;
        Ok([idle, under])
    })
}

/// Sets the flag when it is dropped.
struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Changes the next hop of all routes, repeatedly.
fn churn(mut stream: TcpStream, frames: &[Vec<u8>; 2], over: &AtomicBool) {
    for all in frames.iter().cycle() {
        for piece in all.chunks(64 << 10) {
            // A cut frame is never read, because the run ends.
            if over.load(Relaxed) || stream.write_all(piece).is_err() {
                return;
            }
        }
    }
}

/// Notes the longest reply time, in microseconds.
fn ping(mut redis: Redis, longest: &AtomicU64, over: &AtomicBool) {
    while !over.load(Relaxed) {
        let begin = Instant::now();
        if redis.query(&["PING"]).is_err() {
            return;
        }
        longest.fetch_max(begin.elapsed().as_micros() as u64, Relaxed);
        std::thread::sleep(PING_INTERVAL);
    }
}

struct Watch<'a> {
    options: &'a Options,
    case: &'a Case,
    socket: PathBuf,
    longest: &'a AtomicU64,
    interrupted: &'a AtomicBool,
}

/// Readings at the end of a check, compared with those before.
struct Readings {
    at: Instant,
    cpu: f64,
    redis: f64,
    syncd: f64,
    operations: u64,
}

impl Watch<'_> {
    /// Checks once and `more` times more.
    fn checks(&mut self, it: &mut Running, churn: bool, more: u32) -> Result<Run, Error> {
        let alone = self.marks(it, None)?;
        self.longest.store(0, Relaxed);
        std::thread::sleep(if churn { BASELINE_TIME } else { Duration::from_secs(1) });
        let mut last = self.marks(it, None)?;
        let before = (self.ping_ms(), rate(&alone, &last));
        let folder = it.path(if churn { "check-churn" } else { "check-idle" });
        let own = || std::env::current_exe().map_err(Error::System);
        let binary = self.options.program.clone().map_or_else(own, Ok)?;
        std::fs::create_dir_all(&folder).map_err(Error::System)?;
        let mut command = it.place.command(&binary.to_string_lossy());
        let every = self.options.every.to_string();
        command.args(["route-check", "--sonic", "--json", "--wait", "0", "--every", &every]);
        command.arg("--database-config").arg(it.path("redis/database_config.json"));
        if !self.options.databases {
            command.arg("--syncd").arg(&self.socket);
        }
        let check = Program::start("route-check", vec![command], &folder)?;
        let mut checks = Vec::new();
        let begin = Instant::now();
        while checks.len() <= more as usize {
            if self.interrupted.load(Relaxed) {
                return Err(Error::Options("interrupted".into()));
            }
            std::thread::sleep(LOG_POLL_INTERVAL);
            let text = std::fs::read_to_string(folder.join("log-0")).map_err(Error::System)?;
            let Some(line) = text.split_inclusive('\n').nth(checks.len()).filter(|line| line.ends_with('\n'))
            else {
                if begin.elapsed() > Duration::from_secs(self.options.how.limit) {
                    return Err(Error::Options(format!(
                        "there was no check within {} s",
                        self.options.how.limit
                    )));
                }
                continue;
            };
            let now = self.marks(it, Some(&check))?;
            let figures = self.figures(line, &last, &now)?;
            if !churn && figures.differing > 0 {
                return Err(Error::Options(format!(
                    "a check found a difference while nothing happened: {line}"
                )));
            }
            checks.push(figures);
            last = now;
        }
        let combination = self.case.name.clone();
        Ok(Run { combination, churn, before, checks, peak: check.usage().peak })
    }

    fn figures(&self, line: &str, before: &Readings, now: &Readings) -> Result<CheckFigures, Error> {
        let found: Value =
            serde_json::from_str(line).map_err(|_| Error::Options(format!("route-check printed {line}")))?;
        let count = |name: &str| found.get(name).and_then(Value::as_u64).unwrap_or(0);
        Ok(CheckFigures {
            full: found.get("full").and_then(Value::as_bool).unwrap_or(false),
            checked: count("checked"),
            differing: count("differing"),
            wall_s: found.get("milliseconds").and_then(Value::as_f64).unwrap_or(0.0) / 1e3,
            cpu_s: now.cpu - before.cpu,
            redis_s: now.redis - before.redis,
            syncd_s: now.syncd - before.syncd,
            ping_ms: self.ping_ms(),
            changes: rate(before, now),
        })
    }

    fn ping_ms(&self) -> f64 {
        self.longest.swap(0, Relaxed) as f64 / 1e3
    }

    fn marks(&self, it: &Running, check: Option<&Program>) -> Result<Readings, Error> {
        let counts = query_switch(&self.socket, "counts").map_err(Error::System)?;
        Ok(Readings {
            at: Instant::now(),
            cpu: check.map_or(0.0, |check| check.cpu().as_secs_f64()),
            redis: it.cpu_of("redis").as_secs_f64(),
            syncd: it.cpu_of("syncd").as_secs_f64(),
            operations: counts.get("operations").and_then(Value::as_u64).unwrap_or(0),
        })
    }
}

fn rate(before: &Readings, now: &Readings) -> f64 {
    let changes = now.operations.saturating_sub(before.operations) as f64;
    changes / (now.at - before.at).as_secs_f64()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.write_head(f, &self.title)?;
        let mut cases: Vec<(&str, bool)> =
            self.runs.iter().map(|run| (run.combination.as_str(), run.churn)).collect();
        cases.sort_unstable();
        cases.dedup();
        let header = [
            "combination",
            "check",
            "checks",
            "wall s",
            "CPU s",
            "redis CPU s",
            "syncd CPU s",
            "routes",
            "longest PING ms",
            "changes/s",
            "peak MiB",
        ];
        let mut rows = vec![header.map(str::to_owned).to_vec()];
        for (combination, churn) in cases {
            let runs: Vec<&Run> =
                self.runs.iter().filter(|run| run.combination == combination && run.churn == churn).collect();
            let name = format!("{combination}, {}", if churn { "churn" } else { "idle" });
            let show = |values: &mut dyn Iterator<Item = f64>, as_text: fn(f64) -> String| {
                Spread::of(values).map_or("-".into(), |spread| spread.show(as_text))
            };
            let (fine, tenth) = (|n: f64| format!("{n:.3}"), |n: f64| format!("{n:.1}"));
            let mut before = header.map(|_| "-".to_owned());
            (before[0], before[1]) = (name.clone(), "none".into());
            before[8] = show(&mut runs.iter().map(|run| run.before.0), tenth);
            before[9] = show(&mut runs.iter().map(|run| run.before.1), rounded);
            rows.push(before.to_vec());
            for first in [true, false] {
                let checks: Vec<&CheckFigures> = (runs.iter())
                    .flat_map(|run| if first { &run.checks[..1] } else { &run.checks[1..] })
                    .collect();
                if checks.is_empty() {
                    continue;
                }
                let of = |of: fn(&CheckFigures) -> f64, as_text: fn(f64) -> String| {
                    show(&mut checks.iter().map(|figures| of(figures)), as_text)
                };
                rows.push(vec![
                    name.clone(),
                    if first { "the first" } else { "later" }.into(),
                    checks.len().to_string(),
                    of(|figures| figures.wall_s, fine),
                    of(|figures| figures.cpu_s, fine),
                    of(|figures| figures.redis_s, fine),
                    of(|figures| figures.syncd_s, fine),
                    of(|figures| figures.checked as f64, rounded),
                    of(|figures| figures.ping_ms, tenth),
                    of(|figures| figures.changes, rounded),
                    show(&mut runs.iter().map(|run| run.peak as f64 / f64::from(1 << 20)), |n| {
                        format!("{n:.0}")
                    }),
                ]);
            }
        }
        f.write_str(&Table::of_figures(&rows).render())
    }
}
