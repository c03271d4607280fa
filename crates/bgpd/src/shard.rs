//! The shard stages: each owns one [`Shard`] and hands what it says to the egress workers and the RIB manager.
//!
//! ```text
//! readers ──inbox──► shard ──► egress workers
//!                    ▲   └───► RIB manager
//!                    └─ feedback: dump requests, next-hop states, confirmations (their senders never wait)
//! ```

use super::best_changes::BestChangesSender;
use super::egress::WorkerSink;
use super::mailbox::{Mailbox, retry_all};
use super::monitor::{MonitorIn, ShardPage, Tap, Wanted};
use super::stage::{Stage, Turn, pin};
use super::workers::set_sink;
use crossbeam_channel::Select;
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::{BestBatch, EgressIn, Feed, FeedSet, ShardIn};
use ribtide_bgp::peer::PeerId;
use ribtide_bgp::shard::{
    Cut, Effects, HashSeed, MonitorPage, Moved, PageViews, Shard, ShardOut, ToEgress, withdrawals,
};
use ribtide_bgp::watch::WatchNews;
use ribtide_prefix::{
    AfiSafi, BgpFamily, ByFamily, Families, LogicalShard, for_each_bgp_family, sum_bgp_families,
};
use ribtide_rib::{
    FeedFence, NextHops, Protocol, ReceivedHop, RibIn, RouteBatch, RouteSet, Source, TrackedNextHop, VrfId,
};
use ribtide_ribd::FeedbackChannel;
use ribtide_runtime::activity::{Activity, Busy};
use ribtide_runtime::call::{CallQueue, NoReply, PendingCall, StageHandle, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender, Wake};
use ribtide_runtime::thread::StopSignal;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Batches in the queue of a shard at most: each is at most one read of one socket.
const INBOX: usize = 8;
/// Requests in the queue of a shard at most.
const FEEDBACK: usize = 256;
/// Prefixes after which effects are sent although more work is at hand, so that later stages have
/// work while a shard is busy.
const HAND_ON: usize = 4096;
/// Routes of one turn, even if few of them change a best path.
const TAKE: usize = 16 * 1024;
/// Poll interval for room in a queue.
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(1);

/// The queues of a shard before it runs.
pub struct ShardBuilder {
    /// Its number as an announcer of the RIB manager, never used twice.
    number: u32,
    inbox: (Sender<ShardIn>, Receiver<ShardIn>),
    feedback: (Sender<ShardIn>, Receiver<ShardIn>),
    wake: Option<Wake>,
}

/// News of a shard for the session thread.
#[derive(Debug)]
pub enum ShardNews {
    /// It has no route of an ended session any more.
    Purged(PeerId, u32),
    /// News of its watches, with its number as an announcer.
    Watched(u32, WatchNews),
}

/// The outputs of a shard.
#[derive(Clone)]
pub struct Outputs {
    /// The egress workers, by number.
    pub workers: Vec<WorkerSink>,
    /// The RIB manager, if routes are installed.
    pub rib: Option<Sender<RibIn>>,
    /// The session thread.
    pub news: Sender<ShardNews>,
    /// The BMP monitor.
    pub monitor: Option<Tap>,
    /// Clients of the API that want changes of best paths.
    pub events: BestChangesSender,
    /// The activity flags that workers read.
    pub activity: Activity,
    /// The clock of the router, by whose seconds paths have an age.
    pub clock: Clock,
}

impl Outputs {
    /// Whether the queue of a later stage is more than half full.
    pub(super) fn is_half_full(&self) -> bool {
        self.workers.iter().any(|worker| worker.ring.is_half_full())
            || self.rib.as_ref().is_some_and(Sender::is_half_full)
    }
}

impl ShardBuilder {
    /// Creates the queues of shard `index`, the `number`th shard of the process. `wake` wakes the
    /// host of a stage without thread.
    pub fn new(index: u16, number: u32, rings: &Rings, wake: Option<Wake>) -> ShardBuilder {
        let (inbox, batches) = rings.bounded(format!("readers to shard {index}"), INBOX);
        let (feedback, requests) = rings.bounded(format!("requests to shard {index}"), FEEDBACK);
        ShardBuilder {
            number,
            inbox: (inbox.with_wake(wake.clone()), batches),
            feedback: (feedback.with_wake(wake.clone()), requests),
            wake,
        }
    }

    /// The queue for readers.
    pub fn inbox(&self) -> Sender<ShardIn> {
        self.inbox.0.clone()
    }

    /// The queue for workers, which must not block on it.
    pub fn feedback(&self) -> Sender<ShardIn> {
        self.feedback.0.clone()
    }

    /// The feedback channel for the RIB manager, which must not block on it.
    pub fn feedback_channel(&self) -> FeedbackChannel {
        FeedbackChannel { number: self.number, requests: self.feedback() }
    }

    /// The stage and its handle. All shards of a router have the same `seed`.
    pub(super) fn build(
        self,
        options: DecisionOptions,
        seed: &HashSeed,
        outputs: Outputs,
        meters: &Meters,
    ) -> (ShardPort, ShardStage) {
        let (handle, calls) = pair("shard");
        let (inbox, feedback) = (self.inbox(), self.feedback_channel());
        let (shard, out) = match outputs.rib {
            Some(_) => (Shard::tracking(options), ShardOut::default()),
            None => (Shard::new(options), ShardOut::without_feed()),
        };
        let stage = ShardStage {
            shard: shard.with_seed(seed),
            out,
            workers: outputs.workers.iter().map(|worker| Mailbox::new(worker.ring.clone())).collect(),
            sinks: outputs.workers,
            rib: outputs.rib.map(Mailbox::new),
            number: self.number,
            news: Mailbox::new(outputs.news),
            monitor: outputs.monitor.map(Tap::with_mailbox),
            events: outputs.events,
            busy: outputs.activity.stage(),
            clock: outputs.clock,
            inbox: self.inbox.1,
            feedback: self.feedback.1,
            calls,
            retired: false,
            meter: meters.meter("shard"),
        };
        (ShardPort { handle: handle.with_wake(self.wake), inbox, feedback }, stage)
    }
}

/// The handle of a running shard.
#[derive(Clone)]
pub struct ShardPort {
    handle: StageHandle<ShardStage>,
    inbox: Sender<ShardIn>,
    feedback: FeedbackChannel,
}

impl ShardPort {
    /// Runs `call` between two batches.
    ///
    /// # Errors
    /// [`NoReply`] when it is too busy or has ended.
    pub fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut Shard) -> R + Send + 'static,
    ) -> Result<R, NoReply> {
        self.handle.call(|stage| call(&mut stage.shard))
    }

    /// Selects by other options from now on.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn set_options(&self, options: DecisionOptions) -> Result<(), NoReply> {
        self.handle.wait(move |stage| stage.shard.set_options(options))
    }

    /// Adds a worker, or one in the place of a removed one.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn set_worker(&self, index: usize, sink: WorkerSink) -> Result<(), NoReply> {
        self.handle.wait(move |stage| stage.set_worker(index, sink))
    }

    /// Removes a worker, which has no group and gets nothing more.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn remove_worker(&self, index: usize) -> Result<(), NoReply> {
        self.handle.wait(move |stage| stage.sinks[index].remove())
    }

    /// Binds its thread to these CPUs.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn pin(&self, name: String, cpus: Option<Cpus>) -> Result<(), NoReply> {
        self.handle.wait(move |_| pin(&name, cpus.as_ref()))
    }

    /// Sets the BMP monitor. Messages that wait for the former one are dropped.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn set_bmp(&self, tap: Option<Tap>) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.monitor = tap.map(Tap::with_mailbox))
    }

    /// A RIB manager has begun, which knows this shard: feeds it every route, as [`Shard::begin_feed`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn begin_feed(&self, rib: Sender<RibIn>) -> Result<(), NoReply> {
        self.handle.wait(move |stage| stage.begin_feed(rib))
    }

    /// Whether routes are left to feed after [`ShardPort::begin_feed`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn is_feeding(&self) -> Result<bool, NoReply> {
        self.handle.wait(|stage| stage.shard.is_feeding())
    }

    /// Registers every next hop, as [`Shard::begin_tracking`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn begin_tracking(&self) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.shard.begin_tracking(&mut stage.out))
    }

    /// The RIB manager is about to end, and sends this shard nothing any more: as [`Shard::end_feed`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn end_feed(&self) -> Result<(), NoReply> {
        self.handle.wait(ShardStage::end_feed)
    }

    /// The queue for readers.
    pub(super) fn inbox(&self) -> Sender<ShardIn> {
        self.inbox.clone()
    }

    /// The queue for workers, which must not block on it.
    pub(super) fn feedback(&self) -> Sender<ShardIn> {
        self.feedback.requests.clone()
    }

    /// The feedback channel for the RIB manager, which must not block on it.
    pub(super) fn feedback_channel(&self) -> FeedbackChannel {
        self.feedback.clone()
    }

    /// Whether its queues are empty. [`ShardPort::call_all_sent`] returns after it has handled
    /// their messages.
    pub(super) fn has_taken_all(&self) -> bool {
        self.inbox.is_empty() && self.feedback.requests.is_empty()
    }

    /// Calls the shard: whether all of its effects are in the queues of later stages.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn call_all_sent(&self) -> Result<PendingCall<bool>, NoReply> {
        self.handle.start(ShardStage::all_said)
    }

    /// The prefixes of each family in a logical shard, whose tables keep their size from then on:
    /// see [`Shard::reserve_table`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn keep_table(&self, logical: LogicalShard) -> Result<ByFamily<usize>, NoReply> {
        self.handle.wait(move |stage| {
            let len = stage.shard.table_len(logical);
            stage.shard.reserve_table(logical, len);
            len
        })
    }

    /// Reserves tables for a logical shard, as [`Shard::reserve_table`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn reserve_table(&self, logical: LogicalShard, len: ByFamily<usize>) -> Result<(), NoReply> {
        self.handle.wait(move |stage| stage.shard.reserve_table(logical, len))
    }

    /// Shrinks the tables of a logical shard after its move, as [`Shard::shrink_table`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn shrink_table(&self, logical: LogicalShard) -> Result<(), NoReply> {
        self.handle.wait(move |stage| stage.shard.shrink_table(logical))
    }

    /// Removes a part of a logical shard, as [`Shard::extract`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn extract(&self, logical: LogicalShard, from: Cut, paths: usize) -> Result<Moved, NoReply> {
        self.handle.wait(move |stage| stage.shard.extract(logical, from, paths, &mut stage.out))
    }

    /// Waits until all earlier effects are in the queues of later stages.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn said(&self) -> Result<(), NoReply> {
        while !self.handle.wait(ShardStage::all_said)? {
            std::thread::sleep(ROOM_POLL_INTERVAL);
        }
        Ok(())
    }

    /// Sends it a part of a logical shard, without a wait for the adoption.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn adopt(&self, moved: Moved) -> Result<PendingCall<()>, NoReply> {
        self.handle.start(move |stage| stage.shard.adopt(moved, &mut stage.out))
    }

    /// Sends the session thread what it has less of watched routes, as [`Shard::release_watch_news`].
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub(super) fn release_watch_news(&self) -> Result<(), NoReply> {
        self.handle.wait(|stage| stage.shard.release_watch_news(&mut stage.out))
    }

    /// Sends the BMP monitor a page of a logical shard, in the order of what the shard sends it.
    ///
    /// # Errors
    /// [`NoReply`] when it has ended.
    pub fn monitor_page(&self, page: PageRequest) -> Result<SentPage, NoReply> {
        self.handle.wait(move |stage| stage.monitor_page(page))
    }

    /// Ends it after its remaining work. No other stage may send it anything more.
    pub(super) fn retire(self) {
        // A shard that has ended needs no message.
        let _ = self.handle.wait(|stage| stage.retired = true);
    }
}

/// A request for a page of routes for the BMP monitor.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRequest {
    /// Returned with the page.
    pub token: u64,
    /// The logical shard.
    pub logical: LogicalShard,
    /// The family.
    pub family: AfiSafi,
    /// The hash to begin at.
    pub from: u32,
    /// About how many slots of the table to visit.
    pub budget: usize,
    /// Whether routes after import policy are wanted.
    pub accepted: bool,
    /// Whether best paths are wanted.
    pub best: bool,
    /// Whether the workers are to send best paths as members get them.
    pub mirror: bool,
}

/// What a shard has sent of a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SentPage {
    /// The hash to continue from, if there is more.
    pub next: Option<u32>,
    /// How many workers send it as well, as members get it.
    pub workers: usize,
}

/// A shard and its queues.
pub(super) struct ShardStage {
    shard: Shard,
    out: ShardOut,
    workers: Vec<Mailbox<EgressIn>>,
    sinks: Vec<WorkerSink>,
    rib: Option<Mailbox<RibIn>>,
    number: u32,
    news: Mailbox<ShardNews>,
    /// The BMP monitor and its queue.
    monitor: Option<(Mailbox<MonitorIn>, Tap)>,
    events: BestChangesSender,
    busy: Busy,
    clock: Clock,
    inbox: Receiver<ShardIn>,
    feedback: Receiver<ShardIn>,
    calls: CallQueue<ShardStage>,
    /// Whether it owns nothing and ends after its last effects.
    retired: bool,
    meter: Meter,
}

impl ShrinkToFit for ShardStage {
    fn shrink_to_fit(&mut self) {
        self.shard.shrink_to_fit();
    }
}

impl Stage for ShardStage {
    fn turn(&mut self) -> Turn {
        while let Some(call) = self.calls.next() {
            call(self);
        }
        if !self.room() {
            return Turn::Held;
        }
        self.shard.set_time(self.clock.seconds());
        self.busy.set(self.shard.work_left() || !self.inbox.is_empty());
        if let Some(message) = self.feedback.try_recv() {
            self.shard.handle(message, &mut self.out);
        }
        self.work();
        // Scans run between batches, a step at a time.
        if self.shard.work_left() {
            self.shard.step(&mut self.out);
        }
        self.busy.set(self.shard.work_left() || !self.inbox.is_empty());
        if self.shard.sends_ranked() && !self.sinks.iter().any(WorkerSink::wants_ranked) {
            self.shard.end_ranked();
        }
        self.shard.send_ranked(&mut self.out);
        if !self.out.is_empty() || self.shard.fence_due() {
            self.hand_on();
        }
        if !self.room() {
            Turn::Held
        } else if self.shard.work_left() || !self.inbox.is_empty() || !self.feedback.is_empty() {
            Turn::Busy
        } else if self.retired {
            Turn::Over
        } else {
            Turn::Idle
        }
    }

    fn wait(&mut self, after: Turn, stop: &StopSignal) -> bool {
        let mut select = Select::new();
        stop.watch(&mut select);
        self.calls.watch(&mut select);
        if after == Turn::Held {
            self.workers.iter().for_each(|mailbox| mailbox.watch(&mut select));
            self.rib.iter().for_each(|mailbox| mailbox.watch(&mut select));
            self.news.watch(&mut select);
            self.monitor.iter().for_each(|(mailbox, _)| mailbox.watch(&mut select));
            // The next turn checks all queues.
            select.ready();
            return false;
        }
        self.feedback.watch(&mut select);
        self.inbox.watch(&mut select);
        idle::wait(&mut select, Duration::MAX)
    }
}

impl ShardStage {
    /// Whether all effects are in the queues of later stages.
    fn all_said(&mut self) -> bool {
        self.out.is_empty() && !self.shard.ranked_due() && self.room()
    }

    fn begin_feed(&mut self, rib: Sender<RibIn>) {
        self.rib = Some(Mailbox::new(rib));
        self.shard.begin_feed(&mut self.out);
    }

    fn end_feed(&mut self) {
        // The last messages of the RIB manager.
        while let Some(message) = self.feedback.try_recv() {
            self.shard.handle(message, &mut self.out);
        }
        self.rib = None;
        self.shard.end_feed(&mut self.out);
    }

    fn set_worker(&mut self, index: usize, sink: WorkerSink) {
        let mailbox = Mailbox::new(sink.ring.clone());
        match self.workers.get_mut(index) {
            Some(place) => *place = mailbox,
            None => self.workers.push(mailbox),
        }
        set_sink(&mut self.sinks, index, sink);
    }

    /// Whether no effect waits here.
    fn room(&mut self) -> bool {
        let workers = retry_all(&mut self.workers);
        let rib = self.rib.as_mut().is_none_or(Mailbox::retry);
        let monitor = self.monitor.as_mut().is_none_or(|(mailbox, _)| mailbox.retry());
        self.news.retry() && workers && rib && monitor
    }

    fn monitor_page(&mut self, request: PageRequest) -> SentPage {
        let PageRequest { token, logical, family, from, budget, accepted, best, mirror } = request;
        // Changes before the page go before it.
        self.shard.send_ranked(&mut self.out);
        if !self.out.is_empty() {
            self.hand_on();
        }
        let views = PageViews { accepted, best: mirror, loc_rib: best, ranked: mirror };
        let mut page = MonitorPage::default();
        for_each_bgp_family!(F => if F::ID == family {
            page = self.shard.monitor_page::<F>(logical, from, budget, views);
        });
        let batch = Arc::new(page.best);
        let mut workers = 0;
        if mirror {
            let ranked = Arc::new(page.ranked);
            let mirror = || EgressIn::Mirror { token, batch: batch.clone(), ranked: ranked.clone() };
            for (worker, _) in self.workers.iter_mut().zip(&self.sinks).filter(|(_, sink)| !sink.is_removed())
            {
                worker.post(mirror());
                workers += 1;
            }
        }
        if let Some((mailbox, _)) = &mut self.monitor {
            let best = best.then(|| page.loc_rib.map_or(batch, Arc::new));
            mailbox.post(MonitorIn::Page(ShardPage { token, accepted: page.accepted, best }));
        }
        SentPage { next: page.next, workers }
    }

    /// Handles batches of readers up to the bound of a turn.
    fn work(&mut self) {
        let begin = Instant::now();
        let mut routes = 0;
        while self.out.len() < HAND_ON
            && routes < TAKE
            && let Some(message) = self.inbox.try_recv()
        {
            match message {
                ShardIn::Routes(batch) => {
                    routes += sum_bgp_families!(F => batch.prefixes.get::<F>().len());
                    self.shard.handle_routes(&batch, &mut self.out);
                    if let Some((mailbox, tap)) = &mut self.monitor
                        && tap.wants(Wanted::ACCEPTED)
                        && self.shard.is_monitored(batch.peer, batch.session)
                    {
                        // A removed path may be in the batch again.
                        let removed = withdrawals(&self.out.take_removed());
                        removed.into_iter().for_each(|batch| mailbox.post(MonitorIn::Accepted(batch)));
                        mailbox.post(MonitorIn::Accepted(batch));
                    }
                }
                message => self.shard.handle(message, &mut self.out),
            }
        }
        self.meter.add(routes, begin);
    }

    fn hand_on(&mut self) {
        let Effects { egress, feed, next_hops, purged, watched, removed } = self.out.take();
        if let Some((mailbox, tap)) = self.monitor.as_mut().filter(|_| !removed.is_empty())
            && tap.wants(Wanted::ACCEPTED)
        {
            withdrawals(&removed).into_iter().for_each(|batch| mailbox.post(MonitorIn::Accepted(batch)));
        }
        for message in egress {
            match message {
                ToEgress::All(batch) => {
                    let batch = Arc::new(batch);
                    self.best_to_monitor(&batch);
                    self.events.offer(&batch);
                    self.best_to_workers(&batch);
                }
                ToEgress::Workers(batch) => self.best_to_workers(&Arc::new(batch)),
                ToEgress::Stations(batch) => {
                    let batch = Arc::new(batch);
                    self.best_to_monitor(&batch);
                    self.events.offer(&batch);
                }
                ToEgress::Ranked(batch) => {
                    let batch = Arc::new(batch);
                    let workers = self.workers.iter_mut().zip(&self.sinks);
                    for (worker, _) in workers.filter(|(_, sink)| sink.wants_ranked()) {
                        worker.post(EgressIn::Ranked(batch.clone()));
                    }
                }
                ToEgress::One(worker, message) => {
                    if let Some(worker) = self.workers.get_mut(worker as usize) {
                        worker.post(message);
                    }
                }
            }
        }
        if let Some(rib) = &mut self.rib {
            to_rib(feed, &next_hops).into_iter().for_each(|message| rib.post(message));
            if let Some(seq) = self.shard.fence() {
                rib.post(RibIn::Confirm(FeedFence { announcer: self.number, seq }));
            }
        }
        purged.into_iter().for_each(|(peer, session)| self.news.post(ShardNews::Purged(peer, session)));
        watched.into_iter().for_each(|news| self.news.post(ShardNews::Watched(self.number, news)));
    }
}

impl ShardStage {
    fn best_to_monitor(&mut self, batch: &Arc<BestBatch>) {
        if let Some((mailbox, tap)) = &mut self.monitor
            && tap.wants(Wanted::BEST)
        {
            mailbox.post(MonitorIn::Best(batch.clone()));
        }
    }

    fn best_to_workers(&mut self, batch: &Arc<BestBatch>) {
        // A worker that needs changes later requests the whole table first.
        for (worker, _) in self.workers.iter_mut().zip(&self.sinks).filter(|(_, sink)| sink.wanted()) {
            worker.post(EgressIn::Best(batch.clone()));
        }
    }
}

/// Sends the RIB manager next hops to register, before the routes that use them.
fn to_rib(feed: Feed, next_hops: &[(TrackedNextHop, bool)]) -> Vec<RibIn> {
    let of = |used: bool| {
        let of = next_hops.iter().filter(|(_, u)| *u == used);
        of.map(|(next_hop, _)| *next_hop).collect::<Vec<_>>()
    };
    let (track, untrack) = (of(true), of(false));
    let mut messages = Vec::new();
    if !track.is_empty() {
        messages.push(RibIn::Track(track));
    }
    if !feed.changes.v4.is_empty() || !feed.changes.v6.is_empty() {
        let sets = feed.sets.iter().map(route_set).collect();
        let changes = Families { v4: feed.changes.v4, v6: feed.changes.v6 };
        messages.push(RibIn::Routes(RouteBatch { vrf: VrfId::DEFAULT, source: Source::Bgp, sets, changes }));
    }
    if !untrack.is_empty() {
        messages.push(RibIn::Untrack(untrack));
    }
    messages
}

/// Converts a next-hop set for the RIB manager.
pub fn route_set(set: &FeedSet) -> RouteSet {
    let protocol = if set.kind.internal { Protocol::BgpInternal } else { Protocol::BgpExternal };
    let hop =
        |(address, share): &(IpAddr, u16)| ReceivedHop { weight: *share, ..ReceivedHop::gateway(*address) };
    let discards = set.next_hops.iter().all(|(address, _)| address.is_unspecified());
    RouteSet {
        next_hops: match discards {
            true => NextHops::Blackhole,
            false => NextHops::Via(set.next_hops.iter().map(hop).collect()),
        },
        backup: set.backup.iter().map(|(address, _)| ReceivedHop::gateway(*address)).collect(),
        backup_recursion: set.backup.is_some_and(|(_, kind)| kind.recursive),
        track: None,
        distance: protocol.default_distance(),
        metric: set.kind.aigp,
        allow_recursion: set.kind.recursive,
        protocol,
    }
}

#[cfg(test)]
mod tests;
