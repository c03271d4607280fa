//! One run: a router, its neighbours, one phase after the other, and a receiver that joins late.

use super::dut::{Dut, Site};
use super::load::{Load, Received};
use super::model::{NO_PATH, PathNumber, UNKNOWN_PATH, View};
use super::topology::{NETWORK, NETWORK6, Topology};
use super::workload::{Phase, Prepared};
use crate::Error;
use crate::harness::place::PROGRAM_LINK;
use crate::harness::program::own_cpu;
use crate::harness::{Place, Program, Usage, machine};
use ribtide_prefix::for_each_family;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Parameters of a run.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Setup {
    /// A router that is idle for this long before it is done is wrong.
    pub(super) stall_timeout: Duration,
    /// The time limit of a phase.
    pub(super) limit: Duration,
    /// Threads that play the neighbours.
    pub(super) load_threads: usize,
    /// On loopback addresses; else in network namespaces.
    pub(super) loopback: bool,
}

/// The figures of one phase of one run.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Figures {
    /// The phase.
    pub phase: String,
    /// CPU seconds of all processes of the router, user and system, until it was idle again.
    pub cpu_s: f64,
    /// Of those in the kernel.
    pub system_s: f64,
    /// Seconds from the first byte sent until the host of the slowest receiver had the best path of every prefix; absent
    /// when it never did.
    pub wall_s: Option<f64>,
    /// Seconds until the router was idle again.
    pub settled_s: f64,
    /// Peak resident set of all processes of the router so far, in bytes.
    pub peak_bytes: u64,
    /// Paths that the router had in the end: one for each prefix and sender.
    pub paths: usize,
    /// UPDATEs that the receivers got.
    pub updates: u64,
    /// Bytes of those.
    pub update_bytes: u64,
    /// Prefixes announced to receivers, each as often as it was.
    pub announced: u64,
    /// Prefixes withdrawn from receivers, each as often as it was.
    pub withdrawn: u64,
    /// CPU seconds of the router's threads, by name.
    pub threads: BTreeMap<String, f64>,
    /// CPU seconds of the neighbours that this program plays, while the router worked.
    pub load_s: f64,
    /// CPU seconds of everything else on the machine.
    pub other_s: f64,
    /// How often the router cut the session of a receiver that had just returned; it then came back once more.
    pub cut: u64,
    /// What is wrong at receivers in the end; absent when each holds exactly the best table.
    pub wrong: Option<String>,
}

/// Why a run has no figures.
#[derive(Debug)]
pub(super) enum Failure {
    /// Ctrl-C was pressed.
    Interrupted,
    /// The router failed: a sentence.
    Router(String),
}

impl From<Error> for Failure {
    fn from(e: Error) -> Failure {
        Failure::Router(e.to_string())
    }
}

/// The interval between checks of the router and the receivers.
const ROUTER_POLL_INTERVAL: Duration = Duration::from_millis(10);
/// The interval between checks whether the router is idle, which cost more.
const IDLE_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// A router that used no more than 1% of one core for this long, with no thread that could run, is idle.
const IDLE_TIME: Duration = Duration::from_millis(500);
/// Sessions that are opened at the same time. Routers have a short accept queue (OpenBGPD 5, BIRD
/// 8); the kernel drops further connections and retries them after 1 s, 3 s, 7 s and so on.
const OPENING_MAX: usize = 4;
/// A router that establishes no open session for this long has failed.
const ESTABLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// Wrong prefixes in a description.
const EXAMPLES: usize = 3;
/// The name of the phase in which a receiver joins late.
pub(super) const LATE: &str = "late joiner";

/// Runs a scenario once and appends the figures of each phase. `status` gets the progress.
///
/// # Errors
/// The router did not start, lost a session or ended; or Ctrl-C was pressed. Figures of phases before that stay.
pub(super) fn run(
    dut: &Dut,
    prepared: &Prepared,
    setup: Setup,
    interrupted: &AtomicBool,
    status: &dyn Fn(&str),
    figures: &mut Vec<Figures>,
) -> Result<(), Failure> {
    let topology = &prepared.topology;
    let folder = tempfile::Builder::new().prefix("ribtide-bench-").tempdir().map_err(Error::System)?;
    let place = if setup.loopback {
        Place::Loopback
    } else {
        let addresses: Vec<_> = topology.neighbors().map(|n| n.address).collect();
        Place::namespaces(topology.router, &addresses, NETWORK)?
    };
    if let Some(address) = topology.router6() {
        // The address is usable at once, without duplicate address detection.
        place.ip(&format!("address add {address}/{NETWORK6} dev {PROGRAM_LINK} nodad"))?;
    }
    let site = Site { place: &place, topology, folder: folder.path() };
    let program = Program::start(&dut.to_string(), dut.commands(&site)?, folder.path())?;
    let load = Load::start(&place, topology, setup.load_threads, prepared.expected_bytes())?;
    load.set_view(&prepared.empty);
    let mut run = Run { program, load, topology, setup, interrupted, status };
    status("sessions");
    run.establish(0..topology.neighbors().count() - 1)?;
    run.settle()?;
    for phase in &prepared.phases {
        figures.push(run.phase(phase)?);
    }
    if let Some(last) = prepared.phases.last() {
        let late = run.load.receiver(topology.late());
        let join = Phase {
            name: LATE,
            scripts: Vec::new(),
            leaves: None,
            flaps: 0..0,
            view: last.view.clone(),
            paths: last.paths,
        };
        figures.push(run.measure(&join, |load| load.connect(late), true)?);
    }
    Ok(())
}

struct Run<'a> {
    program: Program,
    load: Load,
    topology: &'a Topology,
    setup: Setup,
    interrupted: &'a AtomicBool,
    status: &'a dyn Fn(&str),
}

/// CPU times at one moment.
struct Sample {
    at: Instant,
    usage: Usage,
    load: Duration,
    afterwards: Duration,
    busy: Duration,
    received: Received,
}

impl Run<'_> {
    /// Brings sessions up, a few at a time.
    fn establish(&mut self, mut sessions: Range<usize>) -> Result<(), Failure> {
        let (mut opening, mut last) = (Vec::new(), Instant::now());
        loop {
            let before = opening.len();
            opening.retain(|session| !self.load.is_up(*session));
            if opening.len() < before {
                last = Instant::now();
            }
            for session in sessions.by_ref().take(OPENING_MAX - opening.len()) {
                self.load.connect(session);
                opening.push(session);
            }
            let Some(first) = opening.first() else { return Ok(()) };
            self.alive()?;
            if last.elapsed() > ESTABLISH_TIMEOUT {
                let why = self.load.trouble(*first).unwrap_or_else(|| "nothing came".into());
                return Err(Failure::Router(format!(
                    "{} sessions are not up, and none of them came up for {} s; the first: {why}",
                    opening.len() + sessions.len(),
                    ESTABLISH_TIMEOUT.as_secs()
                )));
            }
            std::thread::sleep(ROUTER_POLL_INTERVAL);
        }
    }

    /// Checks that no event has ended the run.
    fn alive(&mut self) -> Result<(), Failure> {
        if self.interrupted.load(Relaxed) {
            return Err(Failure::Interrupted);
        }
        self.program.check()?;
        match self.load.lost() {
            None => Ok(()),
            Some((session, why)) => {
                // The log of an ended router has the better reason.
                std::thread::sleep(IDLE_POLL_INTERVAL);
                self.program.check()?;
                let who = self.topology.neighbors().nth(session).map(|n| n.address.to_string());
                Err(Failure::Router(format!("it lost the session of {}: {why}", who.unwrap_or_default())))
            }
        }
    }

    /// Waits until the router is idle.
    fn settle(&mut self) -> Result<(), Failure> {
        let mut idle = Idle::new();
        while !idle.is_idle(&self.program) {
            self.alive()?;
            std::thread::sleep(ROUTER_POLL_INTERVAL);
        }
        Ok(())
    }

    fn sample(&self, receivers: usize) -> Sample {
        let usage = self.program.usage();
        let load = own_cpu().saturating_sub(self.load.afterwards());
        let mut received = Received::default();
        (0..receivers).for_each(|n| received += self.load.received(self.load.receiver(n)));
        Sample {
            at: Instant::now(),
            usage,
            load,
            afterwards: self.load.afterwards(),
            busy: machine::busy(),
            received,
        }
    }

    fn phase(&mut self, phase: &Phase) -> Result<Figures, Failure> {
        let begin = |load: &Load| {
            if let Some(sender) = phase.leaves {
                load.close(sender);
            }
            for receiver in phase.flaps.clone() {
                load.close(load.receiver(receiver));
            }
            for receiver in phase.flaps.clone() {
                load.connect_again(load.receiver(receiver));
            }
            for (sender, script) in &phase.scripts {
                load.send(*sender, script.clone());
            }
        };
        self.measure(phase, begin, false)
    }

    /// Runs `begin` and measures until all receivers are correct and the router is idle. `late`:
    /// with the late joiner.
    fn measure(&mut self, phase: &Phase, begin: impl Fn(&Load), late: bool) -> Result<Figures, Failure> {
        let receivers = self.topology.receivers.len() - usize::from(!late);
        self.load.set_view(&phase.view);
        let cut = self.load.cut();
        let before = self.sample(receivers);
        let started = Instant::now();
        begin(&self.load);
        let outcome = self.wait(phase, started, receivers)?;
        let after = self.sample(receivers);
        let received = after.received - before.received;
        let seconds = |after: Duration, before: Duration| after.saturating_sub(before).as_secs_f64();
        let mut threads = after.usage.threads_since(&before.usage);
        threads.retain(|_, seconds| *seconds >= 0.0005);
        let (cpu_s, load_s) = (seconds(after.usage.cpu, before.usage.cpu), seconds(after.load, before.load));
        let busy = seconds(after.busy, before.busy);
        let wrong = match outcome {
            Some(_) => None,
            None => Some(self.describe(&phase.view, receivers)),
        };
        Ok(Figures {
            phase: phase.name.into(),
            cpu_s,
            system_s: seconds(after.usage.system, before.usage.system),
            wall_s: outcome.map(|at| at.saturating_duration_since(started).as_secs_f64()),
            settled_s: after.at.saturating_duration_since(started).as_secs_f64(),
            peak_bytes: after.usage.peak,
            paths: phase.paths,
            updates: received.updates,
            update_bytes: received.bytes,
            announced: received.announced,
            withdrawn: received.withdrawn,
            threads,
            load_s,
            other_s: (busy - cpu_s - load_s - seconds(after.afterwards, before.afterwards)).max(0.0),
            cut: self.load.cut() - cut,
            wrong,
        })
    }

    /// Waits until all receivers are correct and the router is idle. Returns when the slowest
    /// became correct, or `None` when they never will.
    fn wait(
        &mut self,
        phase: &Phase,
        started: Instant,
        receivers: usize,
    ) -> Result<Option<Instant>, Failure> {
        let sessions: Vec<usize> = (0..receivers).map(|n| self.load.receiver(n)).collect();
        let mut idle = Idle::new();
        let mut next_word = started + Duration::from_secs(2);
        loop {
            std::thread::sleep(ROUTER_POLL_INTERVAL);
            self.alive()?;
            let late = started.elapsed() > self.setup.limit;
            // The comparison uses a core, so it waits until the router is idle.
            if idle.is_idle(&self.program) || late {
                self.load.parse_all();
                let since = self.load.last_update().map_or(started, |at| at.max(started)).elapsed();
                let right: Option<Vec<Instant>> =
                    sessions.iter().map(|s| self.load.right_since(*s)).collect();
                let sent = phase.scripts.iter().all(|(sender, _)| self.load.is_sent(*sender));
                if let Some(right) = right
                    && sent
                    && since > IDLE_TIME / 2
                {
                    return Ok(right.iter().max().copied());
                }
                if late || idle.idle_for().min(since) > self.setup.stall_timeout {
                    return Ok(None);
                }
            }
            let now = Instant::now();
            if now >= next_word {
                next_word = now + Duration::from_millis(500);
                let seconds = (now - started).as_secs_f64();
                (self.status)(&format!("{}: waiting for the router, {seconds:.0} s", phase.name));
            }
        }
    }

    /// Describes wrong routes at receivers.
    fn describe(&self, view: &View, receivers: usize) -> String {
        let total = view.best.len();
        let (mut wrong_receivers, mut worst, mut examples) = (0, 0, Vec::new());
        for n in 0..receivers {
            let session = self.load.receiver(n);
            if self.load.right_since(session).is_some() {
                continue;
            }
            wrong_receivers += 1;
            let (held, strange) = self.load.table(session);
            let differ = |(have, best): &(&PathNumber, &PathNumber)| have != best;
            // A session that is down has no routes.
            let nothing = vec![NO_PATH; total];
            let held = if held.len() == total { held } else { nothing };
            let wrong = held.iter().zip(&*view.best).filter(differ).count() + strange;
            worst = worst.max(wrong);
            if examples.is_empty() {
                let mut at = BTreeMap::new();
                for_each_family!(F => {
                    at.extend(view.positions.get::<F>().iter().map(|(p, i)| (*i, p.to_string())));
                });
                let wrong = held.iter().zip(&*view.best).enumerate().filter(|(_, pair)| differ(pair));
                for (i, (have, best)) in wrong.take(EXAMPLES) {
                    let prefix = at.get(&(i as u32)).map_or("", String::as_str);
                    examples.push(format!("{prefix} {}", explain(*have, *best)));
                }
                if strange > 0 {
                    examples.push(format!("{strange} prefixes that no sender announced"));
                }
            }
        }
        format!(
            "{worst} of {total} prefixes at the worst of {wrong_receivers} receivers (of {receivers}): {}",
            examples.join("; ")
        )
    }
}

fn explain(have: PathNumber, best: PathNumber) -> &'static str {
    match (have, best) {
        (NO_PATH, _) => "is not there",
        (_, NO_PATH) => "should be gone",
        (UNKNOWN_PATH, _) => "has attributes that no sender sent",
        _ => "is over another path than the best",
    }
}

/// Detects that a program is idle.
struct Idle {
    cpu: Duration,
    since: Instant,
    next_check: Instant,
}

impl Idle {
    fn new() -> Idle {
        let now = Instant::now();
        Idle { cpu: Duration::ZERO, since: now, next_check: now }
    }

    fn is_idle(&mut self, program: &Program) -> bool {
        let now = Instant::now();
        if now >= self.next_check {
            self.next_check = now + IDLE_POLL_INTERVAL;
            let cpu = program.cpu();
            let allowed = (now - self.since).max(IDLE_POLL_INTERVAL) / 100;
            if cpu.saturating_sub(self.cpu) > allowed || program.usage().runnable {
                self.since = now;
                self.cpu = cpu;
            }
        }
        self.idle_for() >= IDLE_TIME
    }

    fn idle_for(&self) -> Duration {
        self.since.elapsed()
    }
}
