//! The RIB manager's thread, and what it needs of the configuration: interfaces and static routes.
//!
//! ```text
//! shards, configuration ──ring──► RIB ──two rings each──► dataplanes
//!         ▲                        │ ▲▲                   │
//!         └── next-hop states, ────┘ │└──── feedback ─────┤
//!             confirmations          └──── interfaces ────┘
//! ```
//!
//! Failures first. Interfaces have a queue of their own, which is looked at before everything else: before each batch of
//! a backlog, and while a dataplane's ring is full. What they make of groups goes to the dataplanes ahead of all
//! batches of routes that wait; what they make of routes comes in its turn.
//!
//! A dataplane whose ring is full is waited for, and then no routes are taken: so they wait at the BGP socket. But
//! not when another one has worked off half of its own ring meanwhile: then the full one is left behind (`dataplane_sinks`), and no
//! other waits for it.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod dataplane_sinks;
mod feedback_channels;
mod policy;
mod retries;
mod statics;
mod vrfs;

pub use feedback_channels::FeedbackChannel;
pub use vrfs::{VrfsChanged, VrfsSetup};

use crossbeam_channel::Select;
use dataplane_sinks::DataplaneSinks;
use feedback_channels::FeedbackChannels;
use policy::CompiledFibPolicy;
use retries::Retries;
use ribtide_bgp::message::NextHopState;
use ribtide_config::{DEFAULT_VRF, FibPolicy};
use ribtide_dataplane::{FAILURES, FEEDBACK, RibChannel, ToRib};
use ribtide_prefix::Journal;
use ribtide_prefix::{AnyPrefix, for_each_family};
use ribtide_rib::{
    CacheMode, DataplaneId, Reachability, RibConfig, RibIn, RibOut, Source, VrfId, VrfPrefix, Vrfs,
};
use ribtide_runtime::call::{CallQueue, NoReply, StageHandle, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::log::target;
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use ribtide_runtime::thread::{self, Stop};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use vrfs::VrfEntry;

/// Batches from shards that may wait.
const INBOX: usize = 256;
/// How often to look whether something that failed is to be tried again.
const RETRY_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// How often to look whether a dataplane that is waited for has room.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Routes that are worked through together when they are at hand: bigger batches cost less each, but a failure waits for
/// the one under way (docs/perf/2026-11-failover.md).
const TOGETHER: usize = 2048;

/// The RIB manager before it runs: dataplanes are plugged in, then it starts.
#[derive(Debug)]
pub struct RibBuilder {
    inbox: (Sender<RibIn>, Receiver<RibIn>),
    feedback: (Sender<RibIn>, Receiver<RibIn>),
    failures: (Sender<RibIn>, Receiver<RibIn>),
    planes: DataplaneSinks,
    confirms: Arc<AtomicBool>,
}

/// What the RIB manager is started with.
pub struct RibSetup {
    /// Its settings; the dataplanes are those that are plugged in.
    pub config: RibConfig,
    /// VRFs, static routes, and the interfaces that no kernel tells of.
    pub vrfs: VrfsSetup,
    /// The shards that there are.
    pub shards: Vec<FeedbackChannel>,
    /// Whether BGP advertises only what dataplanes confirmed.
    pub suppress: bool,
    /// What becomes of routes on their way to the FIB.
    pub policy: FibPolicy,
    /// The router's.
    pub clock: Clock,
}

/// How to reach the running RIB manager.
#[derive(Clone)]
pub struct RibHandle {
    /// For whoever announces routes.
    pub inbox: Sender<RibIn>,
    /// For questions.
    pub handle: StageHandle<RibStage>,
}

/// The state of the RIB's thread.
pub struct RibStage {
    /// The RIB of each VRF.
    pub rib: Vrfs,
    planes: DataplaneSinks,
    /// Whether BGP waits for dataplanes, for those to see.
    confirms: Arc<AtomicBool>,
    shards: FeedbackChannels,
    retries: Retries,
    /// When retries were last looked at.
    looked: Instant,
    clock: Clock,
    failures: Receiver<RibIn>,
    feedback: Receiver<RibIn>,
    /// What was taken of either and waits for its turn: at most one answer for each batch outstanding, and what the
    /// urgent queue has that is none. And what an operator switched.
    taken: VecDeque<RibIn>,
    /// Whether some of what failures or another policy make of routes is still to be done.
    owed: bool,
    vrf_entries: BTreeMap<VrfId, VrfEntry>,
    meter: Meter,
    /// The changes sent to dataplanes, for `route-check`.
    pub changed: Journal<VrfPrefix>,
}

impl ShrinkToFit for RibStage {
    fn shrink_to_fit(&mut self) {
        self.rib.shrink_to_fit();
        self.changed.shrink_to_fit();
        self.taken.shrink_to_fit();
    }
}

impl RibBuilder {
    /// Makes the RIB manager's rings.
    pub fn new(rings: &Rings) -> RibBuilder {
        RibBuilder {
            inbox: rings.bounded("shards to RIB", INBOX),
            feedback: rings.bounded("dataplanes to RIB", FEEDBACK),
            failures: rings.bounded("interfaces to RIB", FAILURES),
            planes: DataplaneSinks::default(),
            confirms: Arc::default(),
        }
    }

    /// The producing end for shards.
    pub fn inbox(&self) -> Sender<RibIn> {
        self.inbox.0.clone()
    }

    /// The producing end for who finds out that ways out fail.
    pub fn failures(&self) -> Sender<RibIn> {
        self.failures.0.clone()
    }

    /// Plugs in a dataplane, which counts in `meter`; the port is its end.
    pub fn plug(&mut self, name: &str, rings: &Rings, meter: Meter, stop: &Stop) -> RibChannel {
        let (feedback, failures) = (self.feedback.0.clone(), self.failures.0.clone());
        let rib = ToRib { feedback, failures, confirms: self.confirms.clone() };
        let id = self.planes.names().len() as DataplaneId;
        let (channel, sink) = RibChannel::new(id, name, rings, rib, meter, stop.clone());
        self.planes.add(name, sink);
        channel
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(self, setup: RibSetup, meters: &Meters, stop: Stop) -> io::Result<RibHandle> {
        let (handle, asked) = pair("RIB");
        let RibSetup { mut config, vrfs, shards, suppress, policy, clock } = setup;
        config.dataplanes = (0..self.planes.names().len() as DataplaneId).collect();
        let mut stage = RibStage {
            rib: Vrfs::new(config),
            planes: self.planes,
            confirms: self.confirms,
            shards: FeedbackChannels::default(),
            retries: Retries::default(),
            looked: Instant::now(),
            clock,
            failures: self.failures.1,
            feedback: self.feedback.1,
            taken: VecDeque::new(),
            owed: false,
            vrf_entries: BTreeMap::from([(
                VrfId::DEFAULT,
                VrfEntry::new(DEFAULT_VRF.into(), VrfId::DEFAULT),
            )]),
            meter: meters.meter("rib"),
            changed: Journal::default(),
        };
        // Before there is any route: shards find it in their rings when they start.
        if suppress {
            stage.confirms.store(true, Relaxed);
            stage.shards.suppress(true);
            stage.rib.handle([RibIn::Suppress(true)]);
        }
        stage.rib.set_route_maps(VrfId::DEFAULT, Arc::new(CompiledFibPolicy::new(policy)));
        stage.set_shards(shards);
        stage.rib.set_clock(nanoseconds);
        let inbox = self.inbox.1;
        thread::spawn("rib", move || run(stage, vrfs, &inbox, &asked, &stop))?;
        Ok(RibHandle { inbox: self.inbox.0, handle })
    }
}

/// Nanoseconds since the first call.
fn nanoseconds() -> u64 {
    static FIRST: LazyLock<Instant> = LazyLock::new(Instant::now);
    FIRST.elapsed().as_nanos() as u64
}

fn run(
    mut stage: RibStage,
    vrfs: VrfsSetup,
    inbox: &Receiver<RibIn>,
    asked: &CallQueue<RibStage>,
    stop: &Stop,
) {
    stage.set_vrfs(vrfs);
    stage.handle(vec![RibIn::EndOfInitial(Source::Static)]);
    while !stop.stopped() {
        let mut in_vain = false;
        let room = stage.make_way();
        let nap = match () {
            () if !room => ROOM_POLL_INTERVAL,
            () if stage.owed => Duration::ZERO,
            () if stage.planes.holds_any() => RETRY_POLL_INTERVAL / 10,
            () => RETRY_POLL_INTERVAL.min(stage.until_due()),
        };
        if !stage.take(inbox, asked, room) && !nap.is_zero() {
            let came = stage.wait(inbox, asked, room, nap);
            in_vain = !came && room;
        }
        if idle::on_wait(in_vain) {
            idle::trim(&mut stage);
        }
        if room {
            stage.retry();
            stage.owed |= stage.until_due().is_zero();
            while let Some(message) = stage.taken.pop_front() {
                stage.handle(vec![message]);
            }
            if stage.owed {
                stage.handle(Vec::new());
            }
        } else {
            stage.take_feedback();
        }
        stage.shards.send();
    }
}

/// Whether it is a dataplane's about itself.
fn is_of_dataplane(message: &RibIn) -> bool {
    matches!(message, RibIn::Ack(_) | RibIn::DataplaneUp(_) | RibIn::DataplaneDown(_))
}

/// Whether it may end or repair ways out, and therefore overtakes routes.
fn is_failure(message: &RibIn) -> bool {
    matches!(message, RibIn::Interface(_) | RibIn::InterfaceRemoved(_) | RibIn::Gateway(_))
}

fn route_count(message: &RibIn) -> usize {
    match message {
        RibIn::Routes(batch) => batch.changes.v4.len() + batch.changes.v6.len(),
        _ => 0,
    }
}

impl RibHandle {
    /// Has BGP advertise only what dataplanes confirmed from now on, or what it has. Whether it did before.
    ///
    /// # Errors
    /// When the RIB manager does not answer.
    pub fn suppress(&self, on: bool) -> Result<bool, NoReply> {
        self.handle.call(move |stage| stage.suppress(on))
    }

    /// Applies this FIB policy to the default VRF from now on. Routes with another result than before
    /// change, and no others.
    ///
    /// # Errors
    /// When the RIB manager does not answer.
    pub fn set_policy(&self, policy: FibPolicy) -> Result<(), NoReply> {
        let fib_policy = Arc::new(CompiledFibPolicy::new(policy));
        self.handle.call(move |stage| {
            stage.rib.set_route_maps(VrfId::DEFAULT, fib_policy);
            stage.owed = true;
        })
    }

    /// From now on there are these VRFs, with these static routes and interfaces.
    ///
    /// # Errors
    /// When the RIB manager does not answer.
    pub fn set_vrfs(&self, setup: VrfsSetup) -> Result<VrfsChanged, NoReply> {
        self.handle.call(move |stage| stage.set_vrfs(setup))
    }

    /// Lets the resolution cache work by another mode from the next batch on; the mode before.
    ///
    /// # Errors
    /// When the RIB manager does not answer.
    pub fn set_cache_mode(&self, mode: CacheMode) -> Result<CacheMode, NoReply> {
        self.handle.call(move |stage| {
            let before = stage.rib.default_vrf().cache_mode();
            stage.rib.set_cache_mode(mode);
            before
        })
    }
}

impl RibStage {
    /// The dataplanes' names, by number.
    pub fn plane_names(&self) -> Vec<String> {
        self.planes.names()
    }

    /// The interface that a static route of `prefix` waits for, if one does.
    pub fn awaited_interface(&self, vrf: VrfId, prefix: AnyPrefix) -> Option<String> {
        self.vrf_entries.get(&vrf)?.statics.awaited(prefix)
    }

    /// From now on these shards hear of next hops and of dataplanes.
    pub fn set_shards(&mut self, channels: Vec<FeedbackChannel>) {
        self.shards.set(channels, self.rib.default_vrf().blocked());
    }

    /// BGP advertises only what dataplanes confirmed from now on, or what it has. Whether it did before.
    pub fn suppress(&mut self, on: bool) -> bool {
        let before = self.shards.suppresses();
        if before != on {
            self.confirms.store(on, Relaxed);
            self.shards.suppress(on);
            self.taken.push_back(RibIn::Suppress(on));
        }
        before
    }

    /// What a time told by the RIB is, in milliseconds since the router's start.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// How long until BGP is to be told an answer that waits; 0: it is time.
    fn until_due(&self) -> Duration {
        let until = |due: u64| Duration::from_millis(due.saturating_sub(self.clock.now()));
        self.rib.next_due().map_or(Duration::MAX, until)
    }

    /// Has dataplanes try again what they failed, when it is time.
    fn retry(&mut self) {
        let now = Instant::now();
        if now - self.looked < RETRY_POLL_INTERVAL {
            return;
        }
        self.looked = now;
        for plane in self.rib.dataplanes() {
            if self.retries.due(plane.id, plane.failed, now) {
                self.taken.push_back(RibIn::Retry(plane.id));
            }
        }
    }

    /// Takes what waits in the first queue that has something, in this order: failures; feedback, since what a dataplane
    /// says goes ahead of any backlog of routes; questions; and routes, if there is room for what they make. Whether
    /// there was anything.
    fn take(&mut self, inbox: &Receiver<RibIn>, asked: &CallQueue<RibStage>, room: bool) -> bool {
        if let Some(message) = self.failures.try_recv() {
            self.failed(message);
        } else if let Some(message) = self.feedback.try_recv() {
            self.taken.push_back(message);
        } else if let Some(question) = asked.next() {
            question(self);
        } else if room && let Some(message) = inbox.try_recv() {
            let mut routes = route_count(&message);
            let mut messages = vec![message];
            while routes < TOGETHER
                && let Some(message) = inbox.try_recv()
            {
                routes += route_count(&message);
                messages.push(message);
            }
            self.handle(messages);
        } else {
            return false;
        }
        true
    }

    /// Waits until [`RibStage::take`] may find something, or `timeout` has passed: then it is false. A queue that no producer
    /// feeds, as the feedback of a router without dataplanes, is not waited for.
    fn wait(
        &self,
        inbox: &Receiver<RibIn>,
        asked: &CallQueue<RibStage>,
        room: bool,
        timeout: Duration,
    ) -> bool {
        let mut select = Select::new();
        self.failures.watch(&mut select);
        self.feedback.watch(&mut select);
        asked.watch(&mut select);
        if room {
            inbox.watch(&mut select);
        }
        select.ready_timeout(timeout).is_ok()
    }

    fn handle(&mut self, mut messages: Vec<RibIn>) {
        self.take_failures();
        let begin = Instant::now();
        let routes = messages.iter().map(route_count).sum();
        let waiting: Vec<RibIn> = messages.iter().filter_map(|m| self.awaited(m)).collect();
        messages.extend(waiting);
        if messages.iter().any(is_failure) {
            self.retries.hope(begin);
        }
        self.rib.set_time(self.clock.now());
        let outs = self.rib.handle(messages);
        self.owed = self.rib.has_more();
        self.meter.add(routes, begin);
        outs.into_iter().for_each(|out| self.send(out));
    }

    /// Static routes that waited for an interface.
    fn awaited(&mut self, message: &RibIn) -> Option<RibIn> {
        let RibIn::Interface(event) = message else { return None };
        self.vrf_entries.get_mut(&event.vrf)?.statics.interface(event)
    }

    /// Takes what waits in the urgent queue.
    fn take_failures(&mut self) {
        if let Some(first) = self.failures.try_recv() {
            self.failed(first);
        }
    }

    /// Takes `first` and all that waits in the urgent queue, and does about it what cannot wait.
    fn failed(&mut self, first: RibIn) {
        let begin = Instant::now();
        let mut events = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                message if is_failure(&message) => {
                    let waiting = self.awaited(&message);
                    self.taken.extend(waiting);
                    events.push(message);
                }
                other => self.taken.push_back(other),
            }
            next = self.failures.try_recv();
        }
        if events.is_empty() {
            return;
        }
        self.owed = true;
        self.retries.hope(begin);
        let urgent = self.rib.urgent(events);
        for dataplane in self.rib.dataplanes().filter(|_| !urgent.is_empty()) {
            self.planes.overtake(dataplane.id, urgent.clone());
        }
        self.meter.add(0, begin);
    }

    /// Hands dataplanes what waits for room, and leaves behind those that others are not to wait for. Whether there is room
    /// for more.
    fn make_way(&mut self) -> bool {
        let slow = self.planes.make_way(self.rib.dataplanes());
        if let Some(slow) = &slow
            && !slow.is_empty()
        {
            let outs = self.rib.feedback(slow.iter().map(|id| RibIn::Lagging(*id)));
            outs.into_iter().for_each(|out| self.send(out));
        }
        slow.is_some()
    }

    /// What dataplanes say of themselves; the rest waits for room.
    fn take_feedback(&mut self) {
        let (said, rest): (Vec<RibIn>, _) = self.taken.drain(..).partition(is_of_dataplane);
        self.taken = VecDeque::from(rest);
        if !said.is_empty() {
            self.rib.set_time(self.clock.now());
            let outs = self.rib.feedback(said);
            outs.into_iter().for_each(|out| self.send(out));
        }
    }

    fn send(&mut self, out: RibOut) {
        if let Some((first, delay)) = out.delayed.first() {
            tracing::warn!(
                target: target::RIB,
                next_hop = %first.address,
                others = out.delayed.len() - 1,
                "the next hop changed often: good news of it reaches BGP after {} s (`ribtide show bgp nexthop`)",
                delay / 1000
            );
        }
        for (next_hop, state) in out.next_hops {
            let state = match state {
                Reachability::Reachable { cost } => NextHopState::Reachable { cost },
                Reachability::Unreachable => NextHopState::Unreachable,
            };
            self.shards.next_hop(next_hop, state);
        }
        for next_hop in out.per_prefix {
            self.shards.next_hop(next_hop, NextHopState::PerPrefix);
        }
        out.blocked.into_iter().for_each(|(prefix, blocked)| self.shards.blocked(prefix, blocked));
        out.confirmed.into_iter().for_each(|mark| self.shards.confirmed(mark));
        if let Some(batch) = out.fib {
            if batch.routes.v4.iter().any(|r| r.group.is_none())
                || batch.routes.v6.iter().any(|r| r.group.is_none())
            {
                self.retries.hope(Instant::now());
            }
            let vrf = batch.vrf.id;
            for_each_family!(F => self.changed.note(
                batch.routes.get::<F>().iter().map(|route| VrfPrefix { vrf, prefix: route.prefix.any() })
            ));
            let batch = Arc::new(batch);
            let gets = |id: &DataplaneId| !out.lagging.contains(id);
            for id in self.rib.dataplanes().map(|dataplane| dataplane.id).filter(gets) {
                self.planes.send(id, batch.clone());
            }
        }
        for (id, batch) in out.replay {
            self.planes.send(id, Arc::new(batch));
        }
    }
}

#[cfg(test)]
mod tests;
