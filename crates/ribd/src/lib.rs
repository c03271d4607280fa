//! The RIB manager's thread, and what it needs of the configuration: interfaces and static routes.
//!
//! ```text
//! shards, configuration ──ring──► RIB ──two rings each──► dataplanes
//!         ▲                        │ ▲▲                   │
//!         └── next-hop states, ────┘ │└──── feedback ─────┤
//!             confirmations          └──── interfaces ────┘
//! ```
//!
//! Failures first. Interfaces have a queue of their own, which is looked at before everything else:
//! before each batch of a backlog, and while a dataplane's ring is full. Changes of groups that
//! they cause go to the dataplanes ahead of all waiting batches of routes; changes of routes come
//! in their turn.
//!
//! A dataplane whose ring is full is waited for, and then no routes are taken: so they wait at the BGP socket. But
//! not when another one has worked off half of its own ring meanwhile: then the full one is left behind (`dataplane_sinks`), and no
//! other waits for it.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod dataplane_sinks;
mod feedback_channels;
mod policy;
mod redistribution_channel;
mod retries;
mod statics;
mod vrfs;

pub use feedback_channels::FeedbackChannel;
pub use redistribution_channel::Redistributed;
pub use vrfs::{VrfsChanged, VrfsSetup};

use crossbeam_channel::Select;
use dataplane_sinks::DataplaneSinks;
use feedback_channels::FeedbackChannels;
use policy::CompiledFibPolicy;
use redistribution_channel::RedistributionChannel;
use retries::Retries;
use ribtide_bgp::message::NextHopState;
use ribtide_config::{DEFAULT_VRF, FibPolicy, StaticRoute};
use ribtide_dataplane::{FAILURES, FEEDBACK, RibChannel, ToRib};
use ribtide_prefix::Journal;
use ribtide_prefix::{AnyPrefix, for_each_family};
use ribtide_rib::{
    CacheMode, DataplaneId, IfIndex, InstallStatus, Reachability, Redistribution, ResolutionSettings, Rib,
    RibConfig, RibIn, RibOut, Source, VrfId, VrfPrefix, Vrfs,
};
use ribtide_runtime::call::{CallQueue, NoReply, StageHandle, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::log::target;
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use ribtide_runtime::thread::{self, Ended, Stop, StopSignal};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};
use vrfs::VrfEntry;

/// Batches of shards in the queue at most.
const INBOX: usize = 256;
/// The minimum interval of looks at failed routes, and the interval of sends of feedback that has no
/// room.
const RETRY_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Poll interval for room in the queue of a dataplane.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(1);
/// Routes of one batch. Larger batches cost less per route, but a failure waits for the batch under
/// way (docs/perf/2026-11-failover.md).
const TOGETHER: usize = 2048;

/// The RIB manager before it runs, to which dataplanes are added.
#[derive(Debug)]
pub struct RibBuilder {
    inbox: (Sender<RibIn>, Receiver<RibIn>),
    feedback: (Sender<RibIn>, Receiver<RibIn>),
    failures: (Sender<RibIn>, Receiver<RibIn>),
    planes: DataplaneSinks,
    confirms: Arc<AtomicBool>,
}

/// The start parameters of the RIB manager.
pub struct RibSetup {
    /// Its settings; the dataplanes are those that were added.
    pub config: RibConfig,
    /// VRFs, static routes, and configured interfaces.
    pub vrfs: VrfsSetup,
    /// The shards.
    pub shards: Vec<FeedbackChannel>,
    /// Whether FIB suppression is on.
    pub suppress: bool,
    /// The FIB policy.
    pub policy: FibPolicy,
    /// The routes that BGP originates, and the queue of its session thread, if BGP runs.
    pub redistribution: (Redistribution, Option<Sender<Redistributed>>),
    /// The clock of the router.
    pub clock: Clock,
}

/// The handle of the running RIB manager.
#[derive(Clone)]
pub struct RibHandle {
    /// The queue for announcers of routes.
    pub inbox: Sender<RibIn>,
    /// The handle for queries.
    pub handle: StageHandle<RibStage>,
    /// The ends of its queues for dataplanes.
    plugs: ToRib,
    stop: Stop,
}

/// The state of the thread.
pub struct RibStage {
    /// The RIB of each VRF.
    pub rib: Vrfs,
    planes: DataplaneSinks,
    /// Whether FIB suppression is on, for dataplanes.
    confirms: Arc<AtomicBool>,
    shards: FeedbackChannels,
    redistributed: RedistributionChannel,
    retries: Retries,
    /// The time of the last check for retries.
    looked: Instant,
    clock: Clock,
    failures: Receiver<RibIn>,
    feedback: Receiver<RibIn>,
    /// Messages that were taken and wait for their turn: at most one acknowledgement for each
    /// outstanding batch, other messages of the urgent queue, and commands of operators.
    taken: VecDeque<RibIn>,
    /// Whether routes are left to process after a failure or a change of policy.
    owed: bool,
    vrf_entries: BTreeMap<VrfId, VrfEntry>,
    /// The interfaces that are as `[[interface]]` tables say, and not as a kernel says.
    configured: BTreeSet<IfIndex>,
    meter: Meter,
    /// Changes sent to dataplanes, for `route-check`.
    pub changed: Journal<VrfPrefix>,
}

impl ShrinkToFit for RibStage {
    fn shrink_to_fit(&mut self) {
        self.rib.shrink_to_fit();
        self.shards.shrink_to_fit();
        self.changed.shrink_to_fit();
        self.taken.shrink_to_fit();
    }
}

impl RibBuilder {
    /// Creates the queues of the RIB manager.
    pub fn new(rings: &Rings) -> RibBuilder {
        RibBuilder {
            inbox: rings.bounded("shards to RIB", INBOX),
            feedback: rings.bounded("dataplanes to RIB", FEEDBACK),
            failures: rings.bounded("interfaces to RIB", FAILURES),
            planes: DataplaneSinks::default(),
            confirms: Arc::default(),
        }
    }

    /// The queue for shards.
    pub fn inbox(&self) -> Sender<RibIn> {
        self.inbox.0.clone()
    }

    /// The queue for reports of failed links and gateways.
    pub fn failures(&self) -> Sender<RibIn> {
        self.failures.0.clone()
    }

    /// Adds a dataplane, which counts in `meter`. Returns its end.
    pub fn plug(&mut self, name: &str, rings: &Rings, meter: Meter, stop: &Stop) -> RibChannel {
        let (feedback, failures) = (self.feedback.0.clone(), self.failures.0.clone());
        let rib = ToRib { feedback, failures, confirms: self.confirms.clone() };
        let id = self.planes.free_id().unwrap_or_default();
        let (channel, sink) = RibChannel::new(id, name, rings, rib, meter, stop.clone());
        self.planes.add(id, name, sink);
        channel
    }

    /// Starts the thread.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn start(self, setup: RibSetup, meters: &Meters, stop: Stop) -> io::Result<RibHandle> {
        let (handle, calls) = pair("RIB");
        let stop = stop.part();
        let own = stop.clone();
        let RibSetup { mut config, vrfs, shards, suppress, policy, redistribution, clock } = setup;
        let (redistribution, sessions) = redistribution;
        config.dataplanes = self.planes.ids().collect();
        let plugs =
            ToRib { feedback: self.feedback.0, failures: self.failures.0, confirms: self.confirms.clone() };
        let mut stage = RibStage {
            rib: Vrfs::new(config),
            planes: self.planes,
            confirms: self.confirms,
            shards: FeedbackChannels::default(),
            redistributed: RedistributionChannel::new(sessions),
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
            configured: BTreeSet::new(),
            meter: meters.meter("rib"),
            changed: Journal::default(),
        };
        // Sent before any route, so shards find it in their queues at the start.
        if suppress {
            stage.confirms.store(true, Relaxed);
            stage.shards.suppress(true);
            stage.rib.handle([RibIn::Suppress(true)]);
        }
        stage.rib.set_route_maps(VrfId::DEFAULT, Arc::new(CompiledFibPolicy::new(policy)));
        stage.rib.set_redistribution(redistribution);
        stage.set_shards(shards);
        stage.rib.set_clock(nanoseconds);
        let inbox = self.inbox.1;
        thread::spawn("rib", move || run(stage, vrfs, &inbox, &calls, &stop))?;
        Ok(RibHandle { inbox: self.inbox.0, handle, plugs, stop: own })
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
    calls: &CallQueue<RibStage>,
    stop: &Stop,
) -> Ended {
    stage.set_vrfs(vrfs);
    stage.handle(vec![RibIn::EndOfInitial(Source::Static)]);
    let signal = stop.signal();
    while !stop.stopped() {
        let mut is_idle = false;
        let room = stage.make_room();
        let pause = match () {
            () if !room => ROOM_POLL_INTERVAL,
            () if stage.owed => Duration::ZERO,
            () if stage.planes.holds_any() => RETRY_POLL_INTERVAL / 10,
            () if stage.shards.has_unsent() || stage.redistributed.has_unsent() => {
                RETRY_POLL_INTERVAL.min(stage.until_due())
            }
            () => stage.until_due().min(stage.until_retry()).min(idle::until_idle()),
        };
        if !stage.take(inbox, calls, room) && !pause.is_zero() {
            let came = stage.wait(inbox, calls, &signal, room, pause);
            is_idle = !came && room;
        }
        if idle::on_wait(is_idle) {
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
        stage.redistributed.send();
    }
    Ended::at_stop(stop)
}

/// Whether it is a message of a dataplane about itself.
fn is_of_dataplane(message: &RibIn) -> bool {
    sender(message).is_some()
}

/// The dataplane of a message about itself.
fn sender(message: &RibIn) -> Option<DataplaneId> {
    match message {
        RibIn::Ack(ack) => Some(ack.dataplane),
        RibIn::Holding(id, _) | RibIn::DataplaneUp(id) | RibIn::DataplaneDown(id) => Some(*id),
        _ => None,
    }
}

/// Whether it may break or repair next hops, and so overtakes routes.
fn is_failure(message: &RibIn) -> bool {
    matches!(message, RibIn::Interface(_) | RibIn::InterfaceRemoved(_) | RibIn::Gateway(_))
}

fn route_count(message: &RibIn) -> usize {
    match message {
        RibIn::Routes(batch) => batch.changes.v4.len() + batch.changes.v6.len(),
        _ => 0,
    }
}

/// Why there is no further dataplane. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NotPlugged {
    /// There are as many as there are numbers.
    Full,
    /// The RIB manager does not reply.
    NoReply(NoReply),
}

impl fmt::Display for NotPlugged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotPlugged::Full => f.write_str("there are 256 dataplanes, and there cannot be more"),
            NotPlugged::NoReply(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for NotPlugged {}

impl RibHandle {
    /// Ends the thread while the process goes on. It must have no dataplane, and no shard, any more.
    pub fn end(&self) {
        self.stop.stop();
    }

    /// The queue for reports of failed links and gateways.
    pub fn failures(&self) -> Sender<RibIn> {
        self.plugs.failures.clone()
    }

    /// Adds a dataplane while the RIB manager runs, as [`RibBuilder::plug`]. It gets every route when it reports that it is up.
    /// With FIB suppression, no later route is confirmed before it has them.
    ///
    /// # Errors
    /// There are too many, or the RIB manager does not reply.
    pub fn plug(
        &self,
        name: &str,
        rings: &Rings,
        meter: Meter,
        stop: &Stop,
    ) -> Result<RibChannel, NotPlugged> {
        let (name, rings, stop, rib) = (name.to_owned(), rings.clone(), stop.clone(), self.plugs.clone());
        let plugged = self.handle.wait(move |stage| {
            let id = stage.planes.free_id()?;
            let (channel, sink) = RibChannel::new(id, &name, &rings, rib, meter, stop);
            stage.planes.add(id, &name, sink);
            stage.set_dataplanes();
            Some(channel)
        });
        plugged.map_err(NotPlugged::NoReply)?.ok_or(NotPlugged::Full)
    }

    /// Removes a dataplane: nothing more is sent to it, and no route waits for its confirmation. Its threads may still send.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn unplug(&self, id: DataplaneId) -> Result<(), NoReply> {
        self.handle.wait(move |stage| {
            stage.planes.remove(id);
            stage.set_dataplanes();
        })
    }

    /// Whether a dataplane is up.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn is_up(&self, id: DataplaneId) -> Result<bool, NoReply> {
        self.handle.call(move |stage| stage.rib.dataplanes().any(|dataplane| dataplane.id == id))
    }

    /// Wakes all dataplanes, because one has another setting.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn wake_dataplanes(&self) -> Result<(), NoReply> {
        self.handle.call(|stage| stage.planes.wake())
    }

    /// Withdraws every route of `source`.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn forget_source(&self, source: Source) -> Result<(), NoReply> {
        self.handle.wait(move |stage| {
            stage.rib.forget_source(source);
            stage.owed = true;
        })
    }

    /// Turns FIB suppression on or off. Returns the former state.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn suppress(&self, on: bool) -> Result<bool, NoReply> {
        self.handle.call(move |stage| stage.suppress(on))
    }

    /// Applies a FIB policy to the default VRF. Only routes with another result change.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn set_policy(&self, policy: FibPolicy) -> Result<(), NoReply> {
        let fib_policy = Arc::new(CompiledFibPolicy::new(policy));
        self.handle.call(move |stage| {
            stage.rib.set_route_maps(VrfId::DEFAULT, fib_policy);
            stage.owed = true;
        })
    }

    /// Sets the routes that BGP originates.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn set_redistribution(&self, wanted: Redistribution) -> Result<(), NoReply> {
        self.handle.call(move |stage| {
            stage.rib.set_redistribution(wanted);
            stage.owed = true;
        })
    }

    /// Sets the VRFs with their static routes and interfaces.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn set_vrfs(&self, setup: VrfsSetup) -> Result<VrfsChanged, NoReply> {
        self.handle.call(move |stage| stage.set_vrfs(setup))
    }

    /// Resolves next hops by other settings. Only groups with another content change in dataplanes.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn set_resolution(&self, by: ResolutionSettings) -> Result<(), NoReply> {
        self.handle.call(move |stage| {
            stage.rib.set_resolution(by);
            stage.owed = true;
        })
    }

    /// Sets the mode of the resolution cache from the next batch on. Returns the former mode.
    ///
    /// # Errors
    /// The RIB manager does not reply.
    pub fn set_cache_mode(&self, mode: CacheMode) -> Result<CacheMode, NoReply> {
        self.handle.call(move |stage| {
            let before = stage.rib.default_vrf().cache_mode();
            stage.rib.set_cache_mode(mode);
            before
        })
    }
}

impl RibStage {
    /// Dataplanes were added or removed.
    fn set_dataplanes(&mut self) {
        let planes: Vec<DataplaneId> = self.planes.ids().collect();
        self.rib.set_dataplanes(&planes);
        let RibStage { taken, planes, .. } = self;
        taken.retain(|message| sender(message).is_none_or(|id| planes.contains(id)));
        self.owed = true;
    }

    /// The numbers of the configured dataplanes, whether they are up or not.
    pub fn planes(&self) -> impl Iterator<Item = DataplaneId> {
        self.planes.ids()
    }

    /// The name of a dataplane; of one that is not there, its number.
    pub fn plane_name(&self, id: DataplaneId) -> String {
        self.planes.name(id).map_or_else(|| format!("dataplane {id}"), str::to_owned)
    }

    /// The state of a route of `rib` in each dataplane, by name.
    pub fn install_statuses(&self, rib: &Rib, prefix: AnyPrefix) -> Vec<(String, InstallStatus)> {
        rib.status(prefix).into_iter().map(|(id, status)| (self.plane_name(id), status)).collect()
    }

    /// The interface that a static route of `prefix` waits for, if one does.
    pub fn awaited_interface(&self, vrf: VrfId, prefix: AnyPrefix) -> Option<String> {
        self.vrf_entries.get(&vrf)?.statics.awaited(prefix)
    }

    /// The static routes of a VRF in the order of the configuration, each with the interface that it waits for, if it does.
    pub fn static_routes(&self, vrf: VrfId) -> impl Iterator<Item = (&StaticRoute, Option<&String>)> {
        self.vrf_entries.get(&vrf).into_iter().flat_map(|entry| entry.statics.iter())
    }

    /// Sets the shards that get feedback.
    pub fn set_shards(&mut self, channels: Vec<FeedbackChannel>) {
        self.shards.set(channels, self.rib.default_vrf().blocked());
    }

    /// Sets the queue of BGP's session thread for redistributed routes; changes that wait for the former one are dropped.
    pub fn set_sessions(&mut self, sessions: Option<Sender<Redistributed>>) {
        self.redistributed = RedistributionChannel::new(sessions);
    }

    /// Turns FIB suppression on or off. Returns the former state.
    pub fn suppress(&mut self, on: bool) -> bool {
        let before = self.shards.suppresses();
        if before != on {
            self.confirms.store(on, Relaxed);
            self.shards.suppress(on);
            self.taken.push_back(RibIn::Suppress(on));
            self.planes.wake();
        }
        before
    }

    /// Converts a time of the RIB to milliseconds since the start of the router.
    pub fn now(&self) -> u64 {
        self.clock.now()
    }

    /// The time until a delayed notification of a next hop is due; 0: now.
    fn until_due(&self) -> Duration {
        let until = |due: u64| Duration::from_millis(due.saturating_sub(self.clock.now()));
        self.rib.next_due().map_or(Duration::MAX, until)
    }

    /// The time until a look at failed routes is due.
    fn until_retry(&self) -> Duration {
        let now = Instant::now();
        let failed = self.rib.dataplanes().map(|plane| (plane.id, plane.failed));
        self.retries.until_due(failed, now).max(RETRY_POLL_INTERVAL.saturating_sub(now - self.looked))
    }

    /// Requests retries of failed routes when they are due.
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

    /// Handles a message of the first queue that has one: failures; feedback, because an
    /// acknowledgement precedes any backlog of routes; queries; and routes, if there is room for
    /// their output. Returns whether there was one.
    fn take(&mut self, inbox: &Receiver<RibIn>, calls: &CallQueue<RibStage>, room: bool) -> bool {
        if let Some(message) = self.failures.try_recv() {
            self.failed(message);
        } else if let Some(message) = self.feedback.try_recv() {
            self.keep(message);
        } else if let Some(call) = calls.next() {
            call(self);
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

    /// Waits until [`RibStage::take`] may find a message; `false` after `timeout`. It ignores a
    /// queue without producer, such as the feedback of a router without dataplanes.
    fn wait(
        &self,
        inbox: &Receiver<RibIn>,
        calls: &CallQueue<RibStage>,
        stop: &StopSignal,
        room: bool,
        timeout: Duration,
    ) -> bool {
        let mut select = Select::new();
        stop.watch(&mut select);
        self.failures.watch(&mut select);
        self.feedback.watch(&mut select);
        calls.watch(&mut select);
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

    /// Keeps a message until its turn, unless its dataplane is removed.
    fn keep(&mut self, message: RibIn) {
        if sender(&message).is_none_or(|id| self.planes.contains(id)) {
            self.taken.push_back(message);
        }
    }

    /// Handles static routes that waited for an interface.
    fn awaited(&mut self, message: &RibIn) -> Option<RibIn> {
        let RibIn::Interface(event) = message else { return None };
        self.vrf_entries.get_mut(&event.vrf)?.statics.interface(event)
    }

    /// Handles the urgent queue.
    fn take_failures(&mut self) {
        if let Some(first) = self.failures.try_recv() {
            self.failed(first);
        }
    }

    /// Handles `first` and the rest of the urgent queue, as far as it cannot wait.
    fn failed(&mut self, first: RibIn) {
        let begin = Instant::now();
        let mut events = Vec::new();
        let mut next = Some(first);
        while let Some(message) = next {
            match message {
                message if is_failure(&message) => {
                    if let RibIn::Interface(event) = &message {
                        self.configured.remove(&event.index);
                    }
                    let waiting = self.awaited(&message);
                    self.taken.extend(waiting);
                    events.push(message);
                }
                other => self.keep(other),
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

    /// Sends held batches to dataplanes and marks lagging ones. Returns whether there is room for
    /// more.
    fn make_room(&mut self) -> bool {
        let slow = self.planes.make_room(self.rib.dataplanes());
        if let Some(slow) = &slow
            && !slow.is_empty()
        {
            let outs = self.rib.feedback(slow.iter().map(|id| RibIn::Lagging(*id)));
            outs.into_iter().for_each(|out| self.send(out));
        }
        slow.is_some()
    }

    /// Handles messages of dataplanes about themselves; others wait for room.
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
                Reachability::Reachable { cost, partial } => NextHopState::Reachable { cost, partial },
                Reachability::ReachableAlone { cost, partial } => {
                    NextHopState::ReachableAlone { cost, partial }
                }
                Reachability::Unreachable => NextHopState::Unreachable,
            };
            self.shards.next_hop(next_hop, state);
        }
        for next_hop in out.per_prefix {
            self.shards.next_hop(next_hop, NextHopState::PerPrefix);
        }
        out.blocked.into_iter().for_each(|(prefix, blocked)| self.shards.blocked(prefix, blocked));
        out.confirmed.into_iter().for_each(|fence| self.shards.confirmed(fence));
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
        self.redistributed.add(out.redistributed);
    }
}

#[cfg(test)]
mod tests;
