//! One run: its own Redis servers, daemons and network, and one load.

use super::behind::{self, Ages, Commands};
use super::combination::Flags;
use super::load::{Load, SWITCH};
use super::one_process;
use super::reaction::{self, Reactions};
use super::redis::Redis;
use super::timers::{self, Timers};
use super::work::Work;
use crate::Error;
use crate::harness::place::PROGRAM_LINK;
use crate::harness::{Place, Program, memory};
use ribtide_wire::fpm;
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A case.
#[derive(Clone, Debug)]
pub(super) struct Case {
    /// Its name in reports.
    pub(super) name: String,
    pub(super) flags: Flags,
    pub(super) load: Load,
    /// orchagent's `-b` and `-k`, unless the combination sets them.
    pub(super) sizes: (u32, u32),
    /// The rate of the simulated chip in routes a second, if it has one.
    pub(super) chip_rate: Option<u32>,
    /// Whether to measure urgent routes and link events.
    pub(super) reactions: bool,
    /// Whether to read the daemons' PerformanceTimers.
    pub(super) timers: bool,
    /// What is measured.
    pub(super) work: Work,
    /// The routes sent in a second; `None`: as many as fpmsyncd takes.
    pub(super) rate: Option<u32>,
    /// More flags of fpmsyncd.
    pub(super) more: Vec<String>,
}

impl Case {
    /// Routes over a combination, without more.
    pub(super) fn new(name: String, flags: Flags, load: Load, sizes: (u32, u32)) -> Case {
        Case {
            name,
            flags,
            load,
            sizes,
            chip_rate: None,
            reactions: false,
            timers: false,
            work: Work::Load,
            rate: None,
            more: Vec::new(),
        }
    }

    /// The changes of routes that it measures.
    pub(super) fn changes(&self) -> u32 {
        self.load.total() * self.work.changes()
    }

    /// Neighbours of the switch: those of the routes at any time.
    fn neighbors(&self) -> Load {
        Load { next_hops: self.load.next_hops.max(self.work.neighbors()), ..self.load }
    }
}

/// The interval between queries of the switch.
const SWITCH_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The time limit of the start.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The daemons are idle when all together use at most 2% of one core in a second, and at most 10%
/// in each tenth of it. A low-priority writer starts half a second after the last row, so a shorter
/// time is not enough.
const QUIET_POLL_INTERVAL: Duration = Duration::from_millis(100);
const TENTHS: u32 = 10;
const QUIET_CPU_THRESHOLD: Duration = Duration::from_millis(20);
const QUIET_TENTH_CPU_THRESHOLD: Duration = Duration::from_millis(10);
/// The interval at which a feed with a rate sends.
const FEED_INTERVAL: Duration = Duration::from_millis(5);
pub(super) const APPL: u32 = 0;
const ASIC: u32 = 1;
const COUNTERS: u32 = 2;
const CONFIG: u32 = 4;
const STATE: u32 = 6;

/// The cost of one daemon.
#[derive(Clone, Copy, PartialEq, Debug, Default, serde::Serialize)]
pub struct Cost {
    /// CPU seconds until the last route was confirmed.
    pub download_s: f64,
    /// CPU seconds until everything was idle.
    pub cpu_s: f64,
    /// Peak resident memory, in bytes.
    pub peak: u64,
}

/// The figures of a run.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Figures {
    /// Seconds from the first byte until the last route was confirmed; of `appl-db`, until it was written.
    pub wall_s: f64,
    /// Seconds from the first byte until all daemons and databases were idle.
    pub quiet_s: f64,
    /// With a rate of the chip: its share of busy time from the first route until the last was
    /// done.
    pub chip_busy: Option<f64>,
    /// Each process.
    pub costs: BTreeMap<String, Cost>,
    /// Reaction times, where they were measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reactions: Option<Reactions>,
    /// PerformanceTimers, where they were read.
    #[serde(skip_serializing_if = "Timers::is_empty")]
    pub timers: Timers,
    /// The greatest age in milliseconds at which a row was written, of each daemon and table behind.
    #[serde(skip_serializing_if = "Ages::is_empty")]
    pub ages: Ages,
    /// Commands that the servers of APPL_DB and ASIC_DB executed for it.
    #[serde(skip_serializing_if = "Commands::is_empty")]
    pub commands: Commands,
}

pub(super) struct Running {
    pub(super) place: Place,
    folder: tempfile::TempDir,
    programs: Vec<(&'static str, Program)>,
}

impl Running {
    /// No program runs yet.
    pub(super) fn new(place: Place) -> Result<Running, Error> {
        let folder = tempfile::tempdir().map_err(Error::System)?;
        Ok(Running { place, folder, programs: Vec::new() })
    }

    /// Starts a measured program.
    pub(super) fn program(&mut self, name: &'static str, command: Command) -> Result<(), Error> {
        let logs = self.path(&format!("{name}-log"));
        std::fs::create_dir_all(&logs).map_err(Error::System)?;
        self.programs.push((name, Program::start(name, vec![command], &logs)?));
        Ok(())
    }

    /// CPU time of all programs.
    pub(super) fn cpu(&self) -> Duration {
        self.programs.iter().map(|(_, p)| p.cpu()).sum()
    }

    /// CPU time of one of them.
    pub(super) fn cpu_of(&self, name: &str) -> Duration {
        self.programs.iter().filter(|(its, _)| *its == name).map(|(_, p)| p.cpu()).sum()
    }

    /// The sum of their peak memory.
    pub(super) fn peak(&self) -> u64 {
        self.programs.iter().map(|(_, p)| p.usage().peak).sum()
    }

    fn start(&mut self, name: &'static str, args: &[&str]) -> Result<(), Error> {
        let binary = std::env::current_exe().map_err(Error::System)?;
        let mut command: Command = self.place.command(&binary.to_string_lossy());
        command.arg(name).args(args);
        if name != "redis" {
            command.arg("--database-config").arg(self.path("redis/database_config.json"));
        }
        self.program(name, command)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn check(&mut self) -> Result<(), Error> {
        self.programs.iter_mut().try_for_each(|(_, program)| program.check())
    }

    /// Calls it repeatedly until it returns a value.
    pub(super) fn wait<T>(
        &mut self,
        what: &str,
        limit: Duration,
        mut probe: impl FnMut(&Running) -> Option<T>,
    ) -> Result<T, Error> {
        let begin = Instant::now();
        loop {
            if let Some(found) = probe(self) {
                return Ok(found);
            }
            self.check()?;
            if begin.elapsed() > limit {
                return Err(Error::Options(format!("{what} did not happen within {} s", limit.as_secs())));
            }
            std::thread::sleep(SWITCH_POLL_INTERVAL);
        }
    }

    /// Waits until all daemons are idle; returns the seconds since `begin`.
    pub(super) fn quiet(&mut self, begin: Instant, limit: Duration) -> Result<f64, Error> {
        let end = Instant::now() + limit;
        let (mut since, mut first, mut tenths) = (begin.elapsed(), self.cpu(), 0);
        loop {
            let before = self.cpu();
            std::thread::sleep(QUIET_POLL_INTERVAL);
            self.check()?;
            let now = self.cpu();
            tenths += 1;
            if now.saturating_sub(before) > QUIET_TENTH_CPU_THRESHOLD
                || now.saturating_sub(first) > QUIET_CPU_THRESHOLD
            {
                (since, first, tenths) = (begin.elapsed(), now, 0);
            }
            if tenths == TENTHS {
                return Ok(since.as_secs_f64());
            }
            if Instant::now() > end {
                return Err(Error::Options("the daemons do not become idle".into()));
            }
        }
    }

    pub(super) fn redis(&self, case: &Case, database: u32) -> io::Result<Redis> {
        let several = case.flags.redis.contains(&"--multi-db");
        let server = match database {
            APPL if several => "redis1",
            ASIC if several => "redis2",
            COUNTERS if several => "redis3",
            _ => "redis",
        };
        Redis::open(&self.path(&format!("redis/{server}.sock")), database)
    }

    /// The commands that the servers of APPL_DB and ASIC_DB have executed.
    fn commands(&self, case: &Case) -> io::Result<Commands> {
        let mut all = behind::commands(&mut self.redis(case, APPL)?)?;
        if case.flags.redis.contains(&"--multi-db") {
            for (name, calls) in behind::commands(&mut self.redis(case, ASIC)?)? {
                *all.entry(name).or_default() += calls;
            }
        }
        Ok(all)
    }

    /// The ages of rows that the daemons have reported.
    fn ages(&self) -> Result<Ages, Error> {
        let binary = std::env::current_exe().map_err(Error::System)?;
        let mut show = self.place.command(&binary.to_string_lossy());
        show.args(["show", "pipeline", "--sonic", "--json", "--database-config"]);
        show.arg(self.path("redis/database_config.json"));
        behind::ages(&show.output().map_err(Error::System)?.stdout).map_err(Error::System)
    }
}

/// Everything is up, and no route was sent.
pub(super) struct Ready {
    pub(super) it: Running,
    pub(super) appl: Redis,
    /// syncd's query socket.
    pub(super) socket: PathBuf,
    /// The switch's own IPv4 and IPv6 routes.
    own: (u64, u64),
    /// The connection to fpmsyncd.
    pub(super) stream: TcpStream,
    /// The number of the routes' port.
    pub(super) ifindex: u32,
}

/// Starts everything.
pub(super) fn start(case: &Case) -> Result<Ready, Error> {
    let Case { flags, .. } = case;
    let place = Place::namespaces(SWITCH.0, &[Ipv4Addr::new(10, 0, 0, 2)], 24)?;
    let mut it = Running::new(place)?;
    let dir = it.path("redis");
    it.start("redis", &[&["up", "--dir", &*dir.to_string_lossy()], &flags.redis[..]].concat())?;
    it.wait("Redis", START_TIMEOUT, |it| {
        [APPL, ASIC, COUNTERS, STATE]
            .into_iter()
            .try_for_each(|database| it.redis(case, database).map(drop))
            .ok()
    })?;
    let socket = it.path("syncd.sock");
    if flags.confirmed {
        settings(&it, case).map_err(Error::System)?;
    }
    let timing: &[&str] = if case.timers { &["--performance", "log"] } else { &[] };
    let mut appl = it.redis(case, APPL).map_err(Error::System)?;
    if flags.has_chip {
        let (batch, bulk) = flags.sizes.unwrap_or(case.sizes);
        let (batch, bulk) = (batch.to_string(), bulk.to_string());
        let records = it.folder.path().to_string_lossy().into_owned();
        let query_socket = socket.to_string_lossy();
        let own = ["-u", "-l", "--query-socket", &*query_socket];
        it.start("syncd", &[&own[..], timing, &flags.syncd].concat())?;
        let own = ["-d", &*records, "-b", &*batch, "-k", &*bulk, "-m", "02:00:00:00:00:01"];
        it.start("orchagent", &[&own[..], timing, &flags.orchagent].concat())?;
        if case.reactions {
            reaction::prepare(&mut appl).map_err(Error::System)?;
        }
        rows(&mut appl, case).map_err(Error::System)?;
    }
    let more: Vec<&str> = case.more.iter().map(String::as_str).collect();
    it.start("fpmsyncd", &[timing, &flags.fpmsyncd[..], &more].concat())?;
    let mut own = own_routes(case);
    if flags.has_chip {
        it.wait("the switch", START_TIMEOUT, |_| counts(&socket).ok().filter(|found| *found == own))?;
    }
    let ifindex = ifindex(&it.place)?;
    let stream = connect(&mut it)?;
    if case.reactions {
        reaction::begin(&mut appl).map_err(Error::System)?;
        own.0 += 1;
        it.wait("the switch", START_TIMEOUT, |_| counts(&socket).ok().filter(|found| *found == own))?;
    }
    std::thread::sleep(Duration::from_millis(300));
    Ok(Ready { it, appl, socket, own, stream, ifindex })
}

impl Ready {
    /// IPv4 and IPv6 routes of the switch at the end.
    pub(super) fn expected_routes(&self, load: Load) -> (u64, u64) {
        (self.own.0 + u64::from(load.ipv4), self.own.1 + u64::from(load.ipv6))
    }
}

/// Whether the switch has so many routes and is idle.
pub(super) fn has_all(socket: &Path, expected: (u64, u64)) -> bool {
    counts(socket).is_ok_and(|(v4, v6)| v4 >= expected.0 && v6 >= expected.1)
        && is_idle(socket).unwrap_or(false)
}

/// Runs it.
pub(super) fn run(case: &Case, limit: Duration, interrupted: &AtomicBool) -> Result<Figures, Error> {
    let Case { flags, load, .. } = case;
    if flags.one_process {
        return one_process::run(case, limit, interrupted);
    }
    let ready = start(case)?;
    let expected = ready.expected_routes(*load);
    let gone = ready.own;
    let Ready { mut it, mut appl, socket, stream, ifindex, .. } = ready;
    let replies = drain_replies(&stream)?;
    if let Some(before) = case.work.before(*load, ifindex) {
        send_all(stream.try_clone().map_err(Error::System)?, before, None);
        it.wait("the first load", limit, |_| has_all(&socket, expected).then_some(()))?;
        it.quiet(Instant::now(), limit)?;
    }
    let frames = case.work.frames(*load, ifindex, flags.objects);
    if let Some(rate) = case.chip_rate.filter(|_| flags.has_chip) {
        // Set now, so that the first timed operation is the first route.
        query_switch(&socket, &format!("set rate={rate}")).map_err(Error::System)?;
    }
    memory::touch(load.memory());
    let commands = it.commands(case).map_err(Error::System)?;
    let over = AtomicBool::new(false);
    let used = |it: &Running| it.programs.iter().map(|(_, p)| p.cpu().as_secs_f64()).collect::<Vec<_>>();
    let before = used(&it);
    let (wall_s, downloaded, reactions, begin) = std::thread::scope(|scope| {
        let probes = it.redis(case, APPL).map_err(Error::System)?;
        let begin = Instant::now();
        send_all(stream, frames, case.rate.map(|rate| (rate, case.changes())));
        let watched = case
            .reactions
            .then(|| scope.spawn(|| reaction::measure(probes, &socket, &over).map_err(Error::System)));
        let waited = it.wait("the last route", limit, |_| {
            let there = match flags.has_chip {
                true if case.work != Work::Load => {
                    let expected = if case.work == Work::Withdraw { gone } else { expected };
                    counts(&socket).is_ok_and(|found| found == expected)
                        && is_idle(&socket).unwrap_or(false)
                        && case.work.seems_done(*load, &socket)
                }
                true => has_all(&socket, expected),
                false => {
                    appl.query(&["SCARD", "ROUTE_TABLE_KEY_SET"]).is_ok_and(|n| n == u64::from(load.total()))
                }
            };
            // The client is notified of each route in the chip.
            let notified = !flags.confirmed || replies.load(Relaxed) >= u64::from(load.total());
            ((there && notified) || interrupted.load(Relaxed)).then_some(())
        });
        over.store(true, Relaxed);
        let (wall_s, downloaded) = (begin.elapsed().as_secs_f64(), used(&it));
        let reactions = watched.and_then(|thread| thread.join().ok()).transpose()?;
        waited.map(|()| (wall_s, downloaded, reactions, begin))
    })?;
    let chip_busy = match case.chip_rate.filter(|_| flags.has_chip) {
        Some(_) => busy(&query_switch(&socket, "chip").map_err(Error::System)?),
        None => None,
    };
    let quiet_s = it.quiet(begin, limit)?;
    let costs = it.programs.iter().zip(before.into_iter().zip(downloaded)).map(
        |((name, program), (before, downloaded))| {
            let usage = program.usage();
            let cost = Cost {
                download_s: downloaded - before,
                cpu_s: usage.cpu.as_secs_f64() - before,
                peak: usage.peak,
            };
            ((*name).to_owned(), cost)
        },
    );
    let costs = costs.collect();
    let commands = behind::since(it.commands(case).map_err(Error::System)?, &commands);
    let ages = it.ages()?;
    if !interrupted.load(Relaxed) {
        check(&mut it, case, &socket, reactions.as_ref().map_or(0, |all| all.routes as u64))?;
    }
    let timers = if case.timers { timers::read(it.folder.path()) } else { Timers::default() };
    Ok(Figures { wall_s, quiet_s, chip_busy, costs, reactions, timers, ages, commands })
}

/// Checks the settings in CONFIG_DB and STATE_DB with everything on.
fn settings(it: &Running, case: &Case) -> io::Result<()> {
    let set = |database, key: &str, field: &str, value: &str| {
        it.redis(case, database)?.query(&["HSET", key, field, value]).map(drop)
    };
    set(CONFIG, "DEVICE_METADATA|localhost", "suppress-fib-pending", "enabled")?;
    set(STATE, "WARM_RESTART_ENABLE_TABLE|system", "enable", "true")
}

/// IPv4 and IPv6 routes of a switch without load: default routes, two link-local ones, the switch's
/// own addresses.
fn own_routes(case: &Case) -> (u64, u64) {
    (2 + u64::from(case.reactions), 3 + u64::from(case.load.ipv6 > 0))
}

/// Writes the rows of SONiC's other daemons: a port, its addresses and the neighbours.
fn rows(appl: &mut Redis, case: &Case) -> io::Result<()> {
    let port = "lanes 1,2,3,4 speed 40000 alias 1 index 0 mtu 9100 admin_status up";
    appl.set("PORT_TABLE", PROGRAM_LINK, &port.split(' ').collect::<Vec<_>>())?;
    let ports = if case.reactions { "2" } else { "1" };
    appl.set("PORT_TABLE", "PortConfigDone", &["count", ports])?;
    appl.set("PORT_TABLE", "PortInitDone", &["lanes", "0"])?;
    appl.set("INTF_TABLE", PROGRAM_LINK, &["NULL", "NULL"])?;
    let (v4, v6) = SWITCH;
    appl.set("INTF_TABLE", &format!("{PROGRAM_LINK}:{v4}/24"), &["scope", "global", "family", "IPv4"])?;
    if case.load.ipv6 > 0 {
        appl.set("INTF_TABLE", &format!("{PROGRAM_LINK}:{v6}/64"), &["scope", "global", "family", "IPv6"])?;
    }
    for (n, neighbor) in case.neighbors().neighbors().enumerate() {
        let (mac, family) =
            (format!("02:00:00:00:00:{:02x}", 2 + n), if neighbor.is_ipv4() { "IPv4" } else { "IPv6" });
        appl.set("NEIGH_TABLE", &format!("{PROGRAM_LINK}:{neighbor}"), &["neigh", &mac, "family", family])?;
    }
    Ok(())
}

/// Sends the switch a command and returns its reply.
pub(super) fn query_switch(socket: &Path, command: &str) -> io::Result<Value> {
    let mut stream = UnixStream::connect(socket)?;
    stream.write_all(format!("{command}\n").as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

/// IPv4 and IPv6 routes in the switch.
fn counts(socket: &Path) -> io::Result<(u64, u64)> {
    let counts = query_switch(socket, "counts")?;
    let count = |name: &str| counts.get(name).and_then(Value::as_u64).unwrap_or(0);
    Ok((count("ipv4_routes"), count("ipv6_routes")))
}

/// Whether the chip has finished all calls: its tables show them before.
fn is_idle(socket: &Path) -> io::Result<bool> {
    Ok(query_switch(socket, "chip")?.get("left_seconds").and_then(Value::as_f64) == Some(0.0))
}

/// The chip's share of busy time, by its own report, between the first and the last timed
/// operation.
pub(super) fn busy(chip: &Value) -> Option<f64> {
    let (busy, idle) = (chip.get("busy_seconds")?.as_f64()?, chip.get("idle_seconds")?.as_f64()?);
    (busy > 0.0).then(|| busy / (busy + idle))
}

fn ifindex(place: &Place) -> Result<u32, Error> {
    let shown = place.command("cat").arg(format!("/sys/class/net/{PROGRAM_LINK}/ifindex")).output();
    let text = String::from_utf8_lossy(&shown.map_err(Error::System)?.stdout).trim().to_owned();
    text.parse().map_err(|_| Error::Options(format!("{PROGRAM_LINK} has no number: {text}")))
}

/// fpmsyncd listens on the loopback of its own namespace.
fn connect(it: &mut Running) -> Result<TcpStream, Error> {
    it.wait("fpmsyncd", START_TIMEOUT, |it| {
        std::thread::scope(|scope| {
            let connected = scope.spawn(|| {
                it.place.enter_program().ok()?;
                TcpStream::connect((Ipv4Addr::LOCALHOST, fpm::PORT)).ok()
            });
            connected.join().ok().flatten()
        })
    })
}

/// Sends everything, and reads the replies so that fpmsyncd does not block, on two threads. Returns
/// the number of replies.
pub(super) fn feed(stream: TcpStream, frames: Vec<u8>) -> Result<Arc<AtomicU64>, Error> {
    let counted = drain_replies(&stream)?;
    send_all(stream, frames, None);
    Ok(counted)
}

/// Sends everything on a thread of its own; `rate`: frames a second, and the number of frames.
fn send_all(stream: TcpStream, frames: Vec<u8>, rate: Option<(u32, u32)>) {
    std::thread::spawn(move || {
        // A failed run has ended the other side; its own error has the reason.
        if send(&stream, &frames, rate).is_ok() {
            drop(frames);
            // The session stays during the run: its end would be an event.
            std::thread::park_timeout(Duration::from_secs(3600));
        }
    });
}

fn send(mut stream: &TcpStream, frames: &[u8], rate: Option<(u32, u32)>) -> io::Result<()> {
    let Some((rate, count)) = rate else { return stream.write_all(frames) };
    // Frames of one load have about equal lengths, and TCP may cut them.
    let bytes_a_second = frames.len() as f64 / f64::from(count.max(1)) * f64::from(rate);
    let (begin, mut sent) = (Instant::now(), 0);
    while sent < frames.len() {
        std::thread::sleep(FEED_INTERVAL);
        let due = ((begin.elapsed().as_secs_f64() * bytes_a_second) as usize).min(frames.len());
        stream.write_all(&frames[sent..due])?;
        sent = due;
    }
    Ok(())
}

/// Reads the replies on a thread of its own, and returns their number so far.
fn drain_replies(stream: &TcpStream) -> Result<Arc<AtomicU64>, Error> {
    let mut replies = stream.try_clone().map_err(Error::System)?;
    let counted = Arc::new(AtomicU64::new(0));
    let counts = counted.clone();
    std::thread::spawn(move || {
        let (mut buffer, mut filled) = (vec![0; 256 << 10], 0);
        while let Ok(n @ 1..) = replies.read(&mut buffer[filled..]) {
            filled += n;
            let (mut used, mut came) = (0, 0);
            while let Ok(Some(frame)) = fpm::frame(&buffer[used..filled]) {
                used += frame.len;
                came += 1;
            }
            counts.fetch_add(came, Relaxed);
            buffer.copy_within(used..filled, 0);
            filled -= used;
        }
    });
    Ok(counted)
}

/// Checks that the databases have every route and the `urgent` ones, or none where none is kept.
fn check(it: &mut Running, case: &Case, socket: &Path, urgent: u64) -> Result<(), Error> {
    if case.work != Work::Load && !case.work.is_all_done(case.load, socket).map_err(Error::System)? {
        return Err(Error::Options("the switch has not the last state of every route".into()));
    }
    let mut appl = it.redis(case, APPL).map_err(Error::System)?;
    let mut asic = it.redis(case, ASIC).map_err(Error::System)?;
    let expect = |redis: &mut Redis, prefix: &str, expected: u64| {
        let found = redis.count(prefix).map_err(Error::System)?;
        match found == expected {
            true => Ok(()),
            false => Err(Error::Options(format!("{prefix}* has {found} rows in the end, not {expected}"))),
        }
    };
    // And with those, one through both ports.
    let load = if case.work == Work::Withdraw { 0 } else { u64::from(case.load.total()) };
    let routes = load + urgent + u64::from(case.reactions);
    if !case.flags.has_chip {
        let stable = case.flags.fpmsyncd.contains(&"--stable-table");
        return expect(&mut appl, if stable { "ROUTE_TABLE:" } else { "_ROUTE_TABLE:" }, routes);
    }
    let (v4, v6) = own_routes(case);
    let (kept, own) = if case.flags.has_rows { (routes, v4 + v6) } else { (0, 0) };
    expect(&mut appl, "ROUTE_TABLE:", if case.flags.has_appl_rows { routes } else { kept })?;
    expect(&mut asic, "ASIC_STATE:SAI_OBJECT_TYPE_ROUTE_ENTRY:", kept + own)
}
