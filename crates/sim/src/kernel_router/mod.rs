//! The whole router on the kernel's path, in one thread: BGP, the RIB manager and the kernel
//! dataplane with its watchers, each the machine of the product, against a simulated kernel and
//! clock ([`crate::kernel`]).
//!
//! A seed draws a [`Script`]: the network's events, which stage works next, and faults. Any call to
//! the kernel may fail, its reply may be lost, its dumps and notifications may be incomplete, and
//! other programs change what ribtide wrote.
//!
//! Checked on the way: no route is acknowledged before the kernel has it with its next hops, no
//! next-hop object is deleted that routes use, and nothing of another program is changed. Checked
//! after the faults: within a bounded time the kernel's table is the selected routes, and each is
//! confirmed.

mod checks;
mod others;
mod process;
mod script;

pub use script::{Action, Break, Fault, Script, Stage};

use crate::campaign::{self, Coverage};
use crate::kernel::Kernel;
use crate::network::Event;
use crate::router::trace;
use checks::Sent;
use others::Others;
use process::{Clock, Neighbours, Process};
use ribtide_dataplane::kernel::System;
use ribtide_prefix::Rng;
use ribtide_rib::{DataplaneId, FibAck, IfIndex, RibIn, Source};
use ribtide_wire::netlink::numbers::{RT_TABLE_MAIN, RTPROT_BGP};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

const DATAPLANE: DataplaneId = 0;
/// The table of ribtide's routes, their protocol number and metric: the defaults.
const TABLE: u32 = RT_TABLE_MAIN as u32;
const PROTOCOL: u8 = RTPROT_BGP;
const METRIC: u32 = 20;
/// Links, from 1.
const LINKS: u32 = 3;
/// The index of `lo`, which has the source address.
const LOOPBACK: IfIndex = 9;
/// Simulated milliseconds after which all stages agree once the faults have stopped: several times
/// the longest timer that they wait for, which is the damping of next hops.
const SETTLE_MS: u64 = 900_000;
/// Of these, milliseconds of a difference after the last delayed notification: several rounds of the
/// comparison with the kernel.
const KERNEL_MS: u64 = 60_000;
/// Steps of all stages without a pass of time after which they are idle.
const STEPS_MAX: usize = 20_000;
/// Milliseconds between two attempts of the RIB manager at failed routes.
const RETRY_MS: u64 = 1000;
/// Milliseconds without work after which the writer verifies what it assumes.
const QUIET_MS: u64 = 20;

/// A running router, its kernel, and the other programs of the host.
pub struct Router<'s> {
    script: &'s Script,
    kernel: Kernel,
    system: System,
    process: Process<'s>,
    neighbours: Neighbours,
    sent: Sent,
    retried_ms: u64,
    /// When the writer last had work.
    worked_ms: u64,
    coverage: Coverage,
    sabotage: Option<Break>,
    /// Writes of the writer.
    turns: u64,
}

/// The source address of own IPv4 routes, where the script has one.
fn source_address() -> IpAddr {
    [10, 7, 7, 7].into()
}

/// The addresses of a link: IPv4, then IPv6.
fn addresses(link: IfIndex) -> [(IpAddr, u8); 2] {
    let n = link as u8;
    [([10, 0, n, 1].into(), 24), ([0x2001, 0xdb8, u16::from(n), 0, 0, 0, 0, 1].into(), 64)]
}

impl<'s> campaign::Router<'s> for Router<'s> {
    type Script = Script;

    fn new(script: &'s Script) -> Router<'s> {
        let kernel = Kernel::new();
        for link in 1..=LINKS {
            kernel.state().add_link(link, &format!("eth{link}"), &addresses(link));
        }
        kernel.state().add_link(LOOPBACK, "lo", &[(source_address(), 32)]);
        kernel.set_page(script.dump_page);
        kernel.state().own_protocol = PROTOCOL;
        let clock = Clock { base: Instant::now(), kernel: kernel.clone() };
        let system = System::simulated(kernel.sockets(), Arc::new(clock));
        Others::begin(&mut kernel.state());
        let process = Process::start(script, &system, true);
        Router {
            script,
            kernel,
            system,
            process,
            neighbours: Neighbours::new(script.network.peers.len()),
            sent: Sent::default(),
            retried_ms: 0,
            worked_ms: 0,
            coverage: Coverage::new(),
            sabotage: None,
            turns: 0,
        }
    }

    fn sabotage(&mut self, what: Break) {
        use crate::kernel::faults::Request;
        self.sabotage = Some(what);
        self.kernel.state().faults.ignored = match what {
            Break::LostRoute => Some(Request::NewRoute),
            Break::KeptRoute => Some(Request::DeleteRoute),
            Break::FormerNextHop => Some(Request::ReplaceObject),
            Break::KeptObject => Some(Request::DeleteObject),
            _ => None,
        };
        self.kernel.state().faults.silent = what == Break::NoRepair;
        if what == Break::NoRepair {
            self.process.machine.set_compare_page(0);
        }
    }

    fn act(&mut self, number: usize) -> Result<(), String> {
        match &self.script.actions[number] {
            Action::Event(number) => self.event(*number),
            Action::Step(stage, seed) => return self.step(*stage, &mut Rng::new(*seed)).map(drop),
            Action::Fault(Fault::Restart) => self.restart(),
            Action::Fault(fault) => self.fault(*fault),
            Action::Pass(ms) => self.pass(*ms),
            Action::Initial => self.process.end_initial(),
            Action::Settle => return self.settle(),
        }
        Ok(())
    }

    fn settle(&mut self) -> Result<(), String> {
        self.kernel.state().faults.end();
        self.process.end_initial();
        let end = self.kernel.state().now_ms() + SETTLE_MS;
        let rng = &mut Rng::new(self.script.seed);
        let mut why = String::new();
        let (mut pause, mut differed_ms) = (100, 0);
        while self.kernel.state().now_ms() < end && differed_ms < KERNEL_MS {
            let mut steps = 0;
            let mut working = true;
            while (working || !self.is_idle()) && steps < STEPS_MAX {
                working = false;
                for stage in Stage::ALL {
                    working |= self.step(stage, rng)?;
                }
                self.process.routing.egress.unblock();
                steps += Stage::ALL.len();
                // A writer without socket waits for its time.
                if steps.is_multiple_of(200 * Stage::ALL.len()) {
                    self.pass(100);
                }
            }
            if self.is_idle() {
                match self.disagreement() {
                    // Delayed notifications of flapping next hops.
                    None if self.process.routing.rib.next_due().is_some_and(|due| due <= end) => {
                        let due = self.process.routing.rib.next_due().unwrap_or(end);
                        let now_ms = self.kernel.state().now_ms();
                        self.pass(due.saturating_sub(now_ms));
                        continue;
                    }
                    None => {
                        self.process.routing.compare();
                        return Ok(());
                    }
                    Some(found) => {
                        why = found;
                        if self.process.routing.rib.next_due().is_none() {
                            differed_ms += pause;
                        }
                    }
                }
            } else {
                why = format!("a stage still works after {steps} steps");
            }
            self.pass(pause);
            pause = (pause * 5 / 4).min(10_000);
        }
        Err(why)
    }

    fn coverage(&self) -> Coverage {
        let mut all = self.coverage.clone();
        for (kind, count) in &self.kernel.state().faults.effects {
            *all.entry(kind).or_default() += count;
        }
        all
    }

    fn handled(&self) -> u64 {
        self.turns
    }
}

impl Router<'_> {
    fn event(&mut self, number: usize) {
        let event = &self.script.network.events[number];
        // A shortened script may have lost the event before.
        let (peer, needs) = match event {
            Event::Up(peer) => (*peer, false),
            Event::Down(peer) | Event::Lose(peer) => (*peer, true),
            Event::Announce(peer, ..) | Event::Withdraw(peer, _) => (*peer, true),
            Event::Sweep(_) | Event::Network(_) => (usize::MAX, false),
        };
        if self.process.routing.is_up(peer) != needs {
            return;
        }
        trace(|| format!("{event:?}"));
        match event {
            Event::Network(RibIn::Interface(interface)) => {
                self.sent.disturbed = true;
                let state = &mut *self.kernel.state();
                let (index, up) = (interface.index, interface.up);
                match (up, number % 2) {
                    (true, _) => {
                        state.switch(index, true);
                        state.set_carrier(index, true);
                        // The host's configuration gives the link its addresses again.
                        for (address, len) in addresses(index) {
                            state.add_address(index, address, len);
                        }
                    }
                    (false, 0) => state.switch(index, false),
                    (false, _) => state.set_carrier(index, false),
                }
            }
            Event::Network(RibIn::Routes(batch)) if batch.source == Source::Kernel => {
                Others::routes(&mut self.kernel.state(), batch);
            }
            event => {
                self.neighbours.note(event);
                self.process.routing.happen(event);
            }
        }
    }

    /// A stage works. Returns whether it had work.
    fn step(&mut self, stage: Stage, rng: &mut Rng) -> Result<bool, String> {
        let now_ms = self.kernel.state().now_ms();
        let is_full = self.process.is_full();
        let routing = &mut self.process.routing;
        routing.time = routing.time.max(now_ms);
        let mut worked = false;
        match stage {
            Stage::Shards => routing.decide(rng),
            Stage::Egress => routing.export(rng),
            // It takes nothing while the dataplane has no room.
            Stage::Rib if is_full => {}
            Stage::Rib => routing.resolve(rng),
            Stage::Feedback => routing.answer(rng),
            Stage::Writer => worked = self.write()?,
            Stage::RouteWatcher => self.process.watch_routes(),
            Stage::LinkWatcher => self.process.watch_links(),
        }
        if self.sabotage == Some(Break::ForeignRouteDeleted) && stage == Stage::Writer && worked {
            Others::lose_route(&mut self.kernel.state());
        }
        self.carry()?;
        Ok(worked)
    }

    /// The writer does its next work, and what it did is checked.
    fn write(&mut self) -> Result<bool, String> {
        let effects = self.kernel.state().faults.total();
        self.kernel.state().taken_along.clear();
        let before = self.sent.clone();
        let worked = self.process.machine.write().map_err(|_| "the RIB manager has stopped")?;
        self.turns += u64::from(worked);
        if worked {
            self.worked_ms = self.kernel.state().now_ms();
        }
        if self.sabotage == Some(Break::ObjectDeletedInUse) && worked {
            self.delete_object_in_use();
        }
        self.carry()?;
        let faulty = self.kernel.state().faults.total() != effects;
        self.check_deletions(&before, faulty)?;
        self.check_foreign()?;
        // The writer knows changes by others and of links once its watchers have read them.
        let notified = self.kernel.state().has_notifications();
        if !worked && !notified && self.process.machine.is_informed() {
            self.sent.disturbed = false;
        }
        Ok(worked)
    }

    /// Carries messages between the RIB manager and the dataplane.
    fn carry(&mut self) -> Result<(), String> {
        let mut reported = false;
        for batch in self.process.send() {
            trace(|| format!("to the writer: {batch:?}"));
            self.sent.push(batch.clone());
            if self.sabotage == Some(Break::EarlyAcknowledgement) {
                let (seq, failed, installed) = (batch.seq, Vec::new(), Vec::new());
                reported |=
                    self.feedback(RibIn::Ack(FibAck { dataplane: DATAPLANE, seq, failed, installed }));
            }
        }
        for message in self.process.receive() {
            reported |= self.feedback(message);
        }
        // A turn of the writer may have several reports. All of them are in the kernel now.
        if reported { self.check_installed() } else { Ok(()) }
    }

    /// Passes a message to the RIB manager. Returns whether it says that routes are installed.
    fn feedback(&mut self, mut message: RibIn) -> bool {
        let mut reports = false;
        match &mut message {
            RibIn::Ack(ack) => {
                trace(|| format!("from the writer: {ack:?}"));
                if self.sabotage == Some(Break::SwallowedFailure) {
                    ack.failed.clear();
                }
                reports = self.sent.acknowledged(ack) || !ack.installed.is_empty();
            }
            RibIn::Holding(_, holding) => self.sent.holding = *holding,
            RibIn::DataplaneUp(_) | RibIn::DataplaneDown(_) => self.sent.forget(),
            _ => {}
        }
        self.process.routing.inbox.push_back(message);
        reports
    }

    fn pass(&mut self, ms: u64) {
        self.kernel.state().pass(ms);
        let now_ms = self.kernel.state().now_ms();
        let routing = &mut self.process.routing;
        routing.time = routing.time.max(now_ms);
        routing.wait(now_ms);
        if now_ms - self.retried_ms >= RETRY_MS {
            self.retried_ms = now_ms;
            routing.inbox.push_back(RibIn::Retry(DATAPLANE));
        }
        if now_ms - self.worked_ms >= QUIET_MS {
            self.process.machine.set_quiet();
        }
    }

    fn restart(&mut self) {
        trace(|| "the router is killed".into());
        *self.coverage.entry("router killed").or_default() += 1;
        self.sent.forget();
        self.sent.disturbed = false;
        self.process = Process::start(self.script, &self.system, self.sabotage != Some(Break::NoRepair));
        self.neighbours.announce(&mut self.process.routing);
    }

    fn is_idle(&self) -> bool {
        // The machine looks at the clock, which is the kernel's.
        let notified = self.kernel.state().has_notifications();
        !notified && !self.process.routing.is_busy() && self.process.is_idle()
    }
}
