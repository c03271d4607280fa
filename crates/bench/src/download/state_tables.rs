//! `ribtide bench run state-tables`: the figures of the route-download document's "Redis Performance":
//! ROUTE_TABLE's producer alone, its consumer alone and both at once, in one process beside Redis,
//! without daemons, with and without background requests.

use super::load::Load;
use super::suite::RunOptions;
use crate::Error;
use crate::harness::report::in_turns;
use crate::harness::{Call, Program, Spread, write_report};
use crate::options::{interrupted, name_of};
use clap::ValueEnum;
use ribtide_runtime::thread::Stop;
use ribtide_swss::row::{RouteKey, RouteRow};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::{
    Connection, Consumer, ConsumerStateTable, Databases, Pipeline, Producer, ProducerStateTable, TableError,
    state_table, wake_ups,
};
use ribtide_text::{Table, rounded};
use serde::Serialize;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Who works on the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// The producer writes, and no consumer takes
    Write,
    /// The consumer takes what is there
    Read,
    /// Both at once
    Together,
}

/// The options of this suite.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// Who works on the table
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = Side::value_variants().to_vec())]
    pub dut: Vec<Side>,
    /// The number of IPv4 routes
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub routes: u32,
    /// Rows of a flush, and of a pop; each in turns
    #[arg(long, value_name = "ROWS", value_delimiter = ',', default_values_t = [1000, 10_000])]
    pub batch: Vec<usize>,
    /// Requests a minute of another client of the same server; each in turns. The document has 100,000
    #[arg(long, value_name = "N", value_delimiter = ',', default_values_t = [0, 100_000])]
    pub background: Vec<u32>,
    /// How it is measured
    #[command(flatten)]
    pub how: RunOptions,
}

/// One run.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct RunFigures {
    /// The side.
    pub side: Side,
    /// Rows of a flush and of a pop.
    pub batch: usize,
    /// Background requests a minute.
    pub background: u32,
    /// Rows a second.
    pub rate: f64,
    /// CPU seconds of Redis.
    pub redis_s: f64,
}

/// All runs.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Report {
    /// What was measured.
    pub title: String,
    /// The call.
    #[serde(flatten)]
    pub call: Call,
    /// Rows of each run.
    pub routes: u32,
    /// In the order in which they were made.
    pub runs: Vec<RunFigures>,
}

/// The time limit of Redis' start.
const START_TIMEOUT: Duration = Duration::from_secs(20);
/// The interval of looks.
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// Redis does not start or refuses, rows are missing, or Ctrl-C was pressed.
pub fn run(options: &Options) -> Result<(), Error> {
    if options.batch.contains(&0) {
        return Err(Error::Options("--batch 0 writes nothing; give a number from 1 up".into()));
    }
    let interrupted = interrupted()?;
    let mut cases = Vec::new();
    for side in &options.dut {
        for batch in &options.batch {
            cases.extend(options.background.iter().map(|background| (*side, *batch, *background)));
        }
    }
    let title = format!("ROUTE_TABLE over Redis, {} rows", rounded(f64::from(options.routes)));
    let (call, routes) = (Call::now(), options.routes);
    let mut report = Report { title, call, routes, runs: Vec::new() };
    for (_, (side, batch, background)) in in_turns(options.how.runs, &cases) {
        report.runs.push(once(*side, *batch, *background, options.routes)?);
        if interrupted.load(Relaxed) {
            return Err(Error::Options("interrupted".into()));
        }
    }
    write_report(&report, options.how.json.as_deref())
}

fn refused(e: TableError) -> Error {
    Error::Options(e.to_string())
}

fn once(side: Side, batch: usize, background: u32, routes: u32) -> Result<RunFigures, Error> {
    let folder = tempfile::tempdir().map_err(Error::System)?;
    let (mut server, databases) = start(folder.path())?;
    let stop = Stop::default();
    let rows = changes(routes);
    let over = AtomicBool::new(false);
    let (seconds, redis_s) = std::thread::scope(|scope| {
        let _end = SetOnDrop(&over);
        if background > 0 {
            let connection = Connection::open(databases.get(Db::Appl), &stop).map_err(refused)?;
            scope.spawn(|| ask(connection, background, &over));
        }
        let pipeline = Pipeline { batch: batch.min(1000), capacity: batch, stable: false };
        let mut producer = ProducerStateTable::open(&databases, pipeline, &stop).map_err(refused)?;
        let channel = state_table::channel::<RouteRow>(databases.get(Db::Appl));
        let wake = wake_ups(databases.get(Db::Appl), vec![channel], &stop).map_err(refused)?.remove(0);
        let mut consumer = ConsumerStateTable::open(&databases, wake, &stop).map_err(refused)?;
        let mut write = move || -> Result<(), TableError> {
            for some in rows.chunks(batch) {
                producer.write(&mut some.to_vec())?;
                producer.flush()?;
            }
            Ok(())
        };
        if side == Side::Read {
            write().map_err(refused)?;
        }
        let (cpu, begin) = (server.cpu(), Instant::now());
        match side {
            Side::Write => write().map_err(refused)?,
            Side::Read => take(&mut consumer, batch, routes)?,
            Side::Together => {
                let writer = scope.spawn(write);
                take(&mut consumer, batch, routes)?;
                let written = writer.join().map_err(|_| Error::Options("the producer failed".into()))?;
                written.map_err(refused)?;
            }
        }
        let seconds = begin.elapsed().as_secs_f64();
        Ok::<_, Error>((seconds, server.cpu().saturating_sub(cpu).as_secs_f64()))
    })?;
    server.check()?;
    stop.stop();
    Ok(RunFigures { side, batch, background, rate: f64::from(routes) / seconds, redis_s })
}

/// A server with SONiC's databases.
fn start(folder: &Path) -> Result<(Program, Databases), Error> {
    let binary = std::env::current_exe().map_err(Error::System)?;
    let databases = folder.join("redis");
    let mut command = Command::new(binary);
    command.args(["redis", "up", "--dir"]).arg(&databases);
    let mut server = Program::start("redis", vec![command], folder)?;
    let config: PathBuf = databases.join("database_config.json");
    let begin = Instant::now();
    loop {
        if let Ok(all) = Databases::load(Some(&config))
            && Connection::open(all.get(Db::Appl), &Stop::default()).is_ok()
        {
            return Ok((server, all));
        }
        server.check()?;
        if begin.elapsed() > START_TIMEOUT {
            return Err(Error::Options("Redis does not start".into()));
        }
        std::thread::sleep(POLL_INTERVAL);
    }
}

/// The rows of routes through one neighbour.
fn changes(routes: u32) -> Vec<Change<RouteRow>> {
    let fields = [("protocol", "bgp"), ("nexthop", "10.0.0.2"), ("ifname", "Ethernet0"), ("weight", "1")];
    let row = RouteRow::from_fields(&mut fields.into_iter()).expect("fields of ROUTE_TABLE");
    let prefixes = Load { ipv4: routes, ipv6: 0, next_hops: 1 }.prefixes();
    let key = |prefix: String| RouteKey::new(None, prefix.parse().expect("a prefix"));
    prefixes.map(|prefix| Change::set(key(prefix), row.clone())).collect()
}

/// Takes every row.
fn take(consumer: &mut ConsumerStateTable<RouteRow>, batch: usize, routes: u32) -> Result<(), Error> {
    let (mut left, mut taken) = (routes as usize, Vec::new());
    while left > 0 {
        let more = consumer.pop(batch, &mut taken).map_err(refused)?;
        left = left.saturating_sub(taken.len());
        taken.clear();
        if !more && left > 0 && !consumer.wake_up().wait_timeout(START_TIMEOUT) {
            return Err(Error::Options(format!("{left} rows did not come")));
        }
    }
    Ok(())
}

/// Reads a row, so often in a minute.
fn ask(mut connection: Connection, a_minute: u32, over: &AtomicBool) {
    let (begin, mut asked) = (Instant::now(), 0.0);
    while !over.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
        let due = begin.elapsed().as_secs_f64() * f64::from(a_minute) / 60.0;
        while asked < due {
            asked += 1.0;
            if connection.query(&["HGETALL", "ROUTE_TABLE:0.0.0.0/0"]).is_err() {
                return;
            }
        }
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.call.write_head(f, &self.title)?;
        let mut table =
            Table::new(&["side", ">batch", ">background a minute", ">rows/s", ">Redis us CPU a row"]);
        let mut cases: Vec<_> = self.runs.iter().map(|run| (run.side, run.batch, run.background)).collect();
        let mut seen = Vec::new();
        cases.retain(|case| {
            !seen.contains(case) && {
                seen.push(*case);
                true
            }
        });
        for case in cases {
            let of = |figure: fn(&RunFigures) -> f64| {
                let runs = self.runs.iter().filter(|run| (run.side, run.batch, run.background) == case);
                Spread::of(runs.map(figure))
            };
            let (Some(rate), Some(redis)) = (of(|run| run.rate), of(|run| run.redis_s)) else { continue };
            let a_row = |seconds: f64| format!("{:.2}", seconds * 1e6 / f64::from(self.routes));
            let (side, batch, background) = case;
            table.row([
                name_of(&side),
                rounded(batch as f64),
                rounded(f64::from(background)),
                rate.show(rounded),
                redis.show(a_row),
            ]);
        }
        f.write_str(&table.render())
    }
}
