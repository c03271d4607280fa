//! One run: an installer, and the three phases.

use super::installer::{ASN, FEED_ASN, Installer, NETWORK, ip_objects};
use super::table::Kernel;
use crate::Error;
use crate::harness::program::{own_cpu, thread_cpu};
use crate::harness::{Place, Program, machine, place};
use crate::pool::AddressPool;
use crate::session::{Session, Speaker, connect};
use crate::table::{Feed, FeedOptions, Path, Table};
use ribtide_prefix::{AfiSafi, AnyPrefix, Families, Prefix, V4};
use ribtide_wire::bgp::{NextHop, build};
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The router.
pub(super) const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
/// The feed's address.
pub(super) const FEED: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 2);
/// The next hops of the routes: first the one, then the other.
pub(super) const GATEWAYS: [Ipv4Addr; 2] = [Ipv4Addr::new(10, 255, 0, 3), Ipv4Addr::new(10, 255, 0, 4)];
/// Their interface.
pub(super) const LINK: &str = place::PROGRAM_LINK;

/// Our thread that writes into the kernel.
pub(super) const WRITER: &str = "kernel-fib";

/// The interval between checks of a program: the precision of a phase's time.
const PROGRAM_POLL_INTERVAL: Duration = Duration::from_millis(2);
/// A router that used more CPU time than this between two checks was busy. Its idle polling is a
/// tenth of it.
const BUSY_THRESHOLD: Duration = Duration::from_micros(500);
/// A router that has installed its routes frees memory, or compares a page of the kernel's table with
/// them: a burst of at most this CPU time after at least [`BURST_GAP`] without work is not
/// installation.
const OTHER_CPU: Duration = Duration::from_millis(150);
/// See [`OTHER_CPU`].
const BURST_GAP: Duration = Duration::from_millis(50);
/// After this idle time a router may be done: then the kernel's table is compared.
const IDLE_TIME: Duration = Duration::from_millis(500);
/// After this idle time, a wrong table is final. Before, the router may wait for a lock of the
/// kernel.
const STUCK_TIMEOUT: Duration = Duration::from_secs(10);
/// The time limit of a session's start.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);

/// The change of all routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// They are added.
    Add,
    /// Their next hop is replaced.
    Replace,
    /// They are deleted.
    Delete,
}

impl Phase {
    /// All phases in order.
    pub const ALL: [Phase; 3] = [Phase::Add, Phase::Replace, Phase::Delete];

    /// Its name in output.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Add => "add",
            Phase::Replace => "replace",
            Phase::Delete => "delete",
        }
    }

    /// The index of the routes' gateway afterwards.
    pub(super) fn gateway(self) -> Option<usize> {
        match self {
            Phase::Add => Some(0),
            Phase::Replace => Some(1),
            Phase::Delete => None,
        }
    }
}

/// The figures of one phase.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Figures {
    /// The phase.
    pub phase: Phase,
    /// Seconds from the first byte to when the last route was as it should be.
    pub wall_s: f64,
    /// CPU seconds of the installer, the kernel's work for it included.
    pub cpu_s: f64,
    /// Those of its threads, by name.
    pub threads: BTreeMap<String, f64>,
    /// CPU seconds of this program, which feeds the routers. (For the ceiling, it is the
    /// installer.)
    pub load_s: f64,
    /// CPU seconds of everything else on the machine.
    pub other_s: f64,
}

/// Runs the phases, each ending with a comparison of the kernel's table.
///
/// # Errors
/// The installer failed, took longer than `limit` for a phase, or left a wrong table.
pub(super) fn run(
    installer: &Installer,
    table: &Table,
    limit: Duration,
    interrupted: &AtomicBool,
    figures: &mut Vec<Figures>,
) -> Result<(), Error> {
    let folder = tempfile::Builder::new().prefix("ribtide-bench-").tempdir().map_err(Error::System)?;
    let place = Place::namespaces(ROUTER, &[FEED, GATEWAYS[0], GATEWAYS[1]], NETWORK)?;
    let router = installer.router(&place, folder.path())?;
    let mut method = match router {
        Some(command) => {
            let program = Program::start(&installer.to_string(), vec![command], folder.path())?;
            InstallMethod::Router { session: Box::new(session(&place)?), program }
        }
        None if *installer == Installer::Ip => InstallMethod::Ip { folder: folder.path(), first: true },
        None => InstallMethod::Ceiling(None),
    };
    for phase in Phase::ALL {
        let done = method.phase(phase, &place, table, limit, interrupted)?;
        if interrupted.load(Relaxed) {
            return Ok(());
        }
        figures.push(done);
    }
    Ok(())
}

/// The method of installation.
enum InstallMethod<'a> {
    Router { session: Box<Session>, program: Program },
    Ip { folder: &'a std::path::Path, first: bool },
    Ceiling(Option<Kernel>),
}

impl InstallMethod<'_> {
    fn phase(
        &mut self,
        phase: Phase,
        place: &Place,
        table: &Table,
        limit: Duration,
        interrupted: &AtomicBool,
    ) -> Result<Figures, Error> {
        match self {
            InstallMethod::Router { session, program } => {
                let updates = updates(table, phase, session.peer().max_len)?;
                let before = program.usage();
                let own = Used::now();
                let begin = Instant::now();
                std::thread::scope(|scope| {
                    let sending = scope.spawn(|| session.send(&updates));
                    let right = || check(place, phase, table);
                    let sent = || sending.is_finished();
                    let (wall_s, now) = settle(program, &sent, &right, begin, limit, interrupted)?;
                    sending.join().unwrap_or_else(|e| std::panic::resume_unwind(e))?;
                    let after = program.usage();
                    let threads = after.threads_since(&before);
                    let used = now.since(&own);
                    let cpu = after.cpu - before.cpu;
                    Ok(Figures {
                        phase,
                        wall_s,
                        cpu_s: cpu.as_secs_f64(),
                        threads,
                        load_s: used.own.as_secs_f64(),
                        other_s: used.others(cpu),
                    })
                })
            }
            InstallMethod::Ip { folder, first } => {
                let path = folder.join(phase.name());
                let mut lines = if std::mem::take(first) { ip_objects(LINK) } else { String::new() };
                for prefix in in_order(table) {
                    use std::fmt::Write as _;
                    // Writing to a string cannot fail.
                    let _ = match phase.gateway() {
                        Some(n) => writeln!(lines, "route replace {prefix} nhid {}", n + 1),
                        None => writeln!(lines, "route del {prefix}"),
                    };
                }
                std::fs::write(&path, lines).map_err(|source| Error::File { path: path.clone(), source })?;
                let mut command = place.command("ip");
                command.arg("-batch").arg(&path);
                let (own, begin) = (Used::now(), Instant::now());
                let mut program = Program::start("ip", vec![command], folder)?;
                let mut cpu = Duration::ZERO;
                while program.runs()? {
                    if begin.elapsed() > limit {
                        return Err(Error::Options("ip took longer than --limit".into()));
                    }
                    // An ended process has no CPU time to read.
                    cpu = program.cpu().max(cpu);
                    std::thread::sleep(PROGRAM_POLL_INTERVAL);
                }
                let (wall_s, used) = (begin.elapsed().as_secs_f64(), Used::now().since(&own));
                check(place, phase, table)?;
                let threads = BTreeMap::new();
                let (cpu_s, other_s) = (cpu.as_secs_f64(), used.others(cpu));
                Ok(Figures { phase, wall_s, cpu_s, threads, load_s: 0.0, other_s })
            }
            InstallMethod::Ceiling(kernel) => {
                let known = kernel.take();
                let (made, figures) = place.inside_program(|| {
                    let mut kernel = match known {
                        Some(kernel) => kernel,
                        None => {
                            let mut kernel = Kernel::open()?;
                            kernel.make_objects()?;
                            kernel
                        }
                    };
                    let chunks = kernel.prepare(phase, in_order(table))?;
                    let own = Used::now();
                    let wall_s = kernel.write(&chunks)?;
                    let used = Used::now().since(&own);
                    let (cpu_s, threads) = (used.own.as_secs_f64(), BTreeMap::new());
                    let other_s = used.others(Duration::ZERO);
                    Ok((kernel, Figures { phase, wall_s, cpu_s, threads, load_s: 0.0, other_s }))
                })?;
                *kernel = Some(made);
                check(place, phase, table)?;
                Ok(figures)
            }
        }
    }
}

/// CPU time: of this process, and of the whole machine.
struct Used {
    own: Duration,
    busy: Duration,
}

impl Used {
    fn now() -> Used {
        Used { own: own_cpu(), busy: machine::busy() }
    }

    fn since(&self, before: &Used) -> Used {
        Used { own: self.own - before.own, busy: self.busy.saturating_sub(before.busy) }
    }

    /// CPU seconds of all processes but this one and the program.
    fn others(&self, program: Duration) -> f64 {
        self.busy.saturating_sub(self.own + program).as_secs_f64()
    }
}

/// When an installer worked last.
struct Activity {
    worked: Instant,
    /// The last time that it used the CPU, for whatever.
    busy: Instant,
    /// CPU time of the burst that ended then.
    burst: Duration,
    /// It is the first burst, which always counts.
    first: bool,
}

impl Activity {
    fn new(begin: Instant) -> Activity {
        Activity { worked: begin, busy: begin, burst: Duration::ZERO, first: true }
    }

    /// Takes in the CPU time since the last call. Returns when it worked last.
    fn used(&mut self, cpu: Duration, now: Instant) -> Instant {
        if cpu <= BUSY_THRESHOLD {
            return self.worked;
        }
        if now - self.busy >= BURST_GAP {
            self.first &= self.burst.is_zero();
            self.burst = Duration::ZERO;
        }
        self.busy = now;
        self.burst += cpu;
        if self.first || self.burst > OTHER_CPU {
            self.worked = now;
        }
        self.worked
    }
}

/// Waits until all is `sent`, the program (or its writing thread) is idle, and the table is
/// `right`. Returns the seconds from `begin` to its last activity, and the usage by then: reading
/// the table takes longer than sending.
fn settle(
    program: &mut Program,
    sent: &dyn Fn() -> bool,
    right: &dyn Fn() -> Result<(), Error>,
    begin: Instant,
    limit: Duration,
    interrupted: &AtomicBool,
) -> Result<(f64, Used), Error> {
    // Work of other threads after the last route, such as freeing memory, is not installation.
    let writer = program.thread(WRITER);
    let cpu = |program: &Program| writer.as_deref().map_or_else(|| program.own_cpu(), thread_cpu);
    let mut used = cpu(program);
    let (mut activity, mut compared) = (Activity::new(begin), begin);
    loop {
        program.check()?;
        let (now, by_now) = (Instant::now(), cpu(program));
        let worked = activity.used(by_now.saturating_sub(std::mem::replace(&mut used, by_now)), now);
        let idle = now - worked.max(compared) >= IDLE_TIME;
        // A thread that waits for a CPU is not idle.
        if idle && sent() && !program.usage().runnable {
            compared = now;
            let all = Used::now();
            match right() {
                Err(wrong) if now - worked >= STUCK_TIMEOUT => return Err(wrong),
                Err(_) => {}
                Ok(()) => return Ok(((worked - begin).as_secs_f64(), all)),
            }
        }
        if interrupted.load(Relaxed) {
            return Ok(((worked - begin).as_secs_f64(), Used::now()));
        }
        if now - begin > limit {
            return Err(Error::Options("it took longer than --limit".into()));
        }
        std::thread::sleep(PROGRAM_POLL_INTERVAL);
    }
}

/// Compares the kernel's table with the expected one.
fn check(place: &Place, phase: Phase, table: &Table) -> Result<(), Error> {
    let counts = place.inside_program(|| Kernel::open()?.routes_by_gateway())?;
    let all = table.count::<V4>();
    for (n, gateway) in GATEWAYS.into_iter().enumerate() {
        let want = if phase.gateway() == Some(n) { all } else { 0 };
        let have = counts.get(&IpAddr::V4(gateway)).copied().unwrap_or(0);
        if have != want {
            return Err(Error::Options(format!(
                "after {}, {have} routes have the next hop {gateway} in the kernel, and {want} should",
                phase.name()
            )));
        }
    }
    Ok(())
}

/// A session from the feed to the router.
fn session(place: &Place) -> Result<Session, Error> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            place.enter_load()?;
            let speaker = Speaker { asn: FEED_ASN, router_id: FEED, hold_time: 90 };
            let to = (IpAddr::V4(ROUTER), 179).into();
            let opened = connect(to, Some(IpAddr::V4(FEED)), &speaker, Instant::now() + ESTABLISH_TIMEOUT)?;
            debug_assert_ne!(ASN, FEED_ASN);
            opened.start(|_| Ok(()))
        });
        thread.join().unwrap_or_else(|e| std::panic::resume_unwind(e))
    })
}

fn feed(table: &Table, gateway: Ipv4Addr) -> Feed<'_> {
    let pool = AddressPool::new(AnyPrefix::host(gateway.into()));
    table.feed(FeedOptions {
        sender: 0,
        asn: Some(FEED_ASN),
        order: 1,
        next_hops: Families { v4: pool, v6: pool },
        next_hop_count: 1,
        shortest_of: None,
        version: 0,
    })
}

/// Every prefix in the order in which the routers learn them.
fn in_order(table: &Table) -> impl Iterator<Item = Prefix<V4>> {
    feed(table, GATEWAYS[0]).groups::<V4>().flat_map(|(_, prefixes)| prefixes.iter().copied())
}

/// The UPDATEs of a phase. They are encoded in advance, as the ceiling's messages are, because a
/// feed would be another machine's work.
fn updates(table: &Table, phase: Phase, max_len: usize) -> Result<Vec<u8>, Error> {
    let next_hop = GATEWAYS[phase.gateway().unwrap_or(0)];
    let feed = feed(table, next_hop);
    let (mut path, mut block, mut out) = (Path::default(), Vec::new(), Vec::new());
    for (group, prefixes) in feed.groups::<V4>() {
        let prefixes = prefixes.iter().copied();
        if phase == Phase::Delete {
            build::withdraw(prefixes, max_len, &mut out);
            continue;
        }
        feed.path::<V4>(group, &mut path);
        block.clear();
        path.encode(&mut block);
        let packer = build::UpdatePacker::new(&block, NextHop::V4(next_hop), max_len);
        packer.announce(prefixes, &mut out).map_err(|e| Error::Options(e.to_string()))?;
    }
    if phase == Phase::Add {
        build::end_of_rib(AfiSafi::Ipv4Unicast, &mut out);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn activity_ends_with_the_last_write_and_not_with_a_page_of_the_comparison() {
        let begin = Instant::now();
        let at = |ms| begin + Duration::from_millis(ms);
        let mut activity = Activity::new(begin);
        let mut used = |cpu_ms, ms| activity.used(Duration::from_millis(cpu_ms), at(ms));
        assert_eq!(used(2, 200), at(200), "a small table needs no more");
        assert_eq!(used(10, 700), at(200), "a page");
        assert_eq!(used(0, 900), at(200));
        for n in 0..100 {
            used(2, 1000 + 2 * n);
        }
        assert_eq!(used(2, 1200), at(1200), "a burst longer than a page");
        assert_eq!(used(2, 1240), at(1240));
        assert_eq!(used(15, 1290), at(1240), "a page");
    }
}
