//! The event loop of orchagent, with any transport of rows: take rows by priority, run the state
//! machine, execute its outputs.
//!
//! Rows are taken while requests are in flight, up to a backlog; other rows stay in their tables,
//! where they coalesce by key.

use super::port_reports::PortReports;
use super::recorder::Recording;
use super::syncd_stage::routes_in;
use super::warm::{RestartCheck, Restore};
use super::{Error, events};
use crossbeam_channel::Select;
use ribtide_runtime::call::CallQueue;
use ribtide_runtime::clock::{Clock, Millis};
use ribtide_runtime::gauge::Gauge;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::log::target;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::ring::{Closed, Rings};
use ribtide_runtime::thread::{Stop, StopSignal};
use ribtide_swss::orch::{Orch, OrchOut};
use ribtide_swss::row::RouteStateRow;
use ribtide_swss::sai::{SaiReply, SaiRequest};
use ribtide_swss::{Change, Row};
use ribtide_tables::Consumer;
use ribtide_tables::zmq::Process;
use std::io::Write as _;
use std::time::{Duration, Instant};

/// Poll interval while `orchagent_restart_check` waits for a reply.
const RESTART_CHECK_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The interval of looks whether APPL_STATE_DB admits rows again (--write-behind-wait).
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Intervals at which the state machine gets the time: while something waits, and otherwise.
const TICKS: (Millis, Millis) = (1000, 10_000);

/// The heartbeat on standard output for supervisord; SONiC raises an alarm without it.
pub struct Heartbeat {
    interval: Duration,
    last: Option<Instant>,
}

impl Heartbeat {
    /// The given interval, or ten seconds under supervisord; otherwise none.
    pub fn every(interval: Option<u64>) -> Option<Heartbeat> {
        let supervised = || std::env::var_os("SUPERVISOR_ENABLED").map(|_| 10_000);
        interval.or_else(supervised).map(|ms| Heartbeat { interval: Duration::from_millis(ms), last: None })
    }

    fn interval_ms(&self) -> Millis {
        Millis::try_from(self.interval.as_millis()).unwrap_or(Millis::MAX)
    }

    fn tick(&mut self) {
        if self.last.is_none_or(|last| last.elapsed() >= self.interval) {
            self.last = Some(Instant::now());
            let mut out = std::io::stdout();
            // The reader may be gone, which is no reason to stop.
            let _ = writeln!(out, "<!--XSUPERVISOR:BEGIN-->heartbeat<!--XSUPERVISOR:END-->");
            let _ = out.flush();
        }
    }
}

/// A source of rows: one table.
pub trait Feed: Send {
    /// Makes `select` ready when there may be rows.
    fn watch<'a>(&'a self, select: &mut Select<'a>);

    /// Applies at most `max` rows and returns their number.
    fn pop(&mut self, orch: &mut Orch, max: usize, record: Option<&mut Recording>) -> Result<usize, Error>;

    /// Makes the next [`Feed::pop`] read the table even without a wake-up.
    fn expect_rows(&mut self);

    /// Frees buffers and caches; called when its thread is idle.
    fn shrink_to_fit(&mut self);

    /// [`Consumer::set_fence`].
    fn set_fence(&mut self, from: Option<Process>);

    /// [`Consumer::is_past_fence`], and the machine has the rows.
    fn is_past_fence(&mut self) -> bool;

    /// [`Consumer::hold`].
    fn hold(&mut self, held: bool);

    /// [`Consumer::is_drained`].
    fn is_drained(&self) -> bool;
}

/// The transport to syncd.
pub trait SyncdLink: Send {
    /// Sends requests, in order.
    fn send(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error>;

    /// Appends received replies.
    fn replies(&mut self, replies: &mut Vec<SaiReply>) -> Result<(), Error>;

    /// Takes the link states that syncd reported.
    fn port_reports(&mut self) -> PortReports;

    /// Requests without a reply.
    fn under_way(&self) -> usize;

    /// Whether a reply is outstanding.
    fn waiting(&self) -> bool {
        self.under_way() > 0
    }

    /// Makes `select` ready when there may be replies.
    fn watch<'a>(&'a self, select: &mut Select<'a>);
}

/// A connected fpmsyncd, which gets responses.
pub struct Subscriber {
    /// Its process, if it is ribtide's.
    pub process: Option<Process>,
}

/// Carries out the outputs of the state machine beside requests.
pub trait OrchOutputs: Send {
    /// Executes and empties all outputs except requests and events. Returns whether the machine has
    /// new work.
    fn carry_out(&mut self, orch: &mut Orch, out: &mut OrchOut) -> Result<bool, Error>;

    /// Before rows are taken.
    fn before_round(&mut self, _orch: &mut Orch) {}

    /// Whether responses would be taken without a wait. Otherwise their database is as far behind as
    /// it may be, and no row is taken.
    fn has_room(&self) -> bool {
        true
    }

    /// Ends a warm start: writes the outputs that were held back, except unchanged ones.
    fn restored(&mut self, _out: &mut OrchOut) -> Result<(), Error> {
        Ok(())
    }

    /// Whether responses are published in APPL_STATE_DB.
    fn publishes(&self) -> bool {
        false
    }

    /// Publishes responses again, whose rows another program changed.
    fn publish_again(&mut self, _responses: &[Change<RouteStateRow>]) -> Result<(), Error> {
        Ok(())
    }

    /// Returns a newly connected fpmsyncd, once per connection. It gets a full snapshot after the rows that
    /// were in flight at connect time are applied.
    fn new_subscriber(&mut self, _orch: &Orch) -> Option<Subscriber> {
        None
    }

    /// The subscriber gets the snapshot now.
    fn begin_subscription(&mut self, _orch: &mut Orch) {}

    /// Called after each round. `quiet`: nothing arrived, and all tables were empty. `waiting`: a
    /// reply is outstanding.
    fn after_round(&mut self, _orch: &mut Orch, _quiet: bool, _waiting: bool) -> Result<(), Error> {
        Ok(())
    }

    /// The deadline of the next round.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// Adds other events that need a round to `select`.
    fn watch<'a>(&'a self, _select: &mut Select<'a>) {}

    /// Response messages without room in the connection.
    fn unsent(&self) -> usize {
        0
    }

    /// Whether all outputs are executed.
    fn idle(&self) -> bool {
        true
    }

    /// Called once a second, for counters.
    fn tick(&mut self, _orch: &Orch) -> Result<(), Error> {
        Ok(())
    }
}

/// The gauges of the machine and its transports.
pub struct OrchGauges {
    at_work: Gauge,
    retry_cache: Gauge,
    refused: Gauge,
    under_way: Gauge,
    unsent: Gauge,
}

impl OrchGauges {
    /// `backlog`: rows at work at which no more are taken while a request is in flight. `window`:
    /// requests in flight at most.
    pub fn new(backlog: usize, window: usize, rings: &Rings) -> OrchGauges {
        OrchGauges {
            at_work: rings.gauge("rows in m_toSync", Some(backlog)),
            retry_cache: rings.gauge("routes in the retry cache", None),
            refused: rings.gauge("requests that the chip refused, to be sent again", None),
            under_way: rings.gauge("requests in flight to syncd", Some(window)),
            unsent: rings.gauge("response messages to send", None),
        }
    }
}

/// How the machine takes rows.
enum Take<R: Row> {
    Each(fn(&mut Orch, Change<R>)),
    Together(fn(&mut Orch, &mut [Change<R>])),
}

/// A [`Feed`] of one table.
pub struct TableFeed<R: Row, C: Consumer<R>> {
    consumer: C,
    ready: bool,
    changes: Vec<Change<R>>,
    take: Take<R>,
    /// A further limit of rows.
    limit: Option<fn(&Orch) -> usize>,
    /// PerformanceTimers of rows read from the table, and rows applied.
    pops: Option<Meter>,
    adds: Option<Meter>,
}

impl<R: Row, C: Consumer<R> + Send + 'static> TableFeed<R, C> {
    /// A feed that applies each row with `take`.
    pub fn new(consumer: C, take: fn(&mut Orch, Change<R>)) -> Self {
        TableFeed::with(consumer, Take::Each(take))
    }

    /// A feed that applies the rows of a batch with one call of `take`.
    pub fn together(consumer: C, take: fn(&mut Orch, &mut [Change<R>])) -> Self {
        TableFeed::with(consumer, Take::Together(take))
    }

    fn with(consumer: C, take: Take<R>) -> Self {
        TableFeed { consumer, ready: false, changes: Vec::new(), take, limit: None, pops: None, adds: None }
    }

    /// Its consumer.
    pub(crate) fn consumer(&self) -> &C {
        &self.consumer
    }

    /// Its consumer, to be changed.
    pub(crate) fn consumer_mut(&mut self) -> &mut C {
        &mut self.consumer
    }

    /// Limits the rows to those that `due` allows.
    pub fn announced(self, due: fn(&Orch) -> usize) -> Self {
        TableFeed { limit: Some(due), ..self }
    }

    /// Adds PerformanceTimers.
    pub fn timed(self, pops: Option<Meter>, adds: Option<Meter>) -> Self {
        TableFeed { pops, adds, ..self }
    }
}

impl<R: Row, C: Consumer<R> + Send> Feed for TableFeed<R, C> {
    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.consumer.wake_up().watch(select);
    }

    fn pop(
        &mut self,
        orch: &mut Orch,
        max: usize,
        mut record: Option<&mut Recording>,
    ) -> Result<usize, Error> {
        self.ready |= self.consumer.wake_up().take().map_err(|Closed { .. }| {
            Error::new(format!("the table {} has no reader any more; the log has the reason", R::TABLE))
        })?;
        let max = self.limit.map_or(max, |limit| max.min(limit(orch)));
        if !self.ready || max == 0 {
            return Ok(0);
        }
        let begin = Instant::now();
        self.ready = self.consumer.pop(max, &mut self.changes)?;
        let (came, popped) = (self.changes.len(), Instant::now());
        if let Some(timer) = &self.pops {
            timer.add(came, begin);
        }
        // Ignored rows count, too: more may follow.
        let count = self.changes.len().max(usize::from(self.ready));
        if let Some(record) = &mut record {
            self.changes.iter().for_each(|change| record.change(change));
        }
        match self.take {
            Take::Each(take) => self.changes.drain(..).for_each(|change| take(orch, change)),
            Take::Together(take) => take(orch, &mut self.changes),
        }
        self.changes.clear();
        if let Some(timer) = &self.adds {
            timer.add(came, popped);
        }
        Ok(count)
    }

    fn expect_rows(&mut self) {
        self.ready = true;
    }

    fn shrink_to_fit(&mut self) {
        self.changes = Vec::new();
        self.consumer.shrink_to_fit();
    }

    fn set_fence(&mut self, from: Option<Process>) {
        self.consumer.set_fence(from);
    }

    fn is_past_fence(&mut self) -> bool {
        self.consumer.is_past_fence()
    }

    fn hold(&mut self, held: bool) {
        self.consumer.hold(held);
    }

    fn is_drained(&self) -> bool {
        self.consumer.is_drained()
    }
}

/// orchagent with its transports.
pub struct OrchStage {
    /// The state machine.
    pub orch: Orch,
    /// Tables, highest priority first.
    pub feeds: Vec<Box<dyn Feed>>,
    /// The place of NEXTHOP_GROUP_TABLE among them.
    pub groups: usize,
    /// Whether only its rows are compared with APPL_DB, since routes do not come through it.
    pub compares_only_groups: bool,
    /// syncd.
    pub syncd: Box<dyn SyncdLink>,
    /// All other outputs.
    pub outputs: Box<dyn OrchOutputs>,
    /// Rows of one read of a table at most (`-b`).
    pub batch: usize,
    /// Rows at work at most while a reply is outstanding.
    pub backlog: usize,
    /// The gauges.
    pub gauges: OrchGauges,
    /// `swss.rec`.
    pub rows: Option<Recording>,
    /// `sairedis.rec`.
    pub requests: Option<Recording>,
    /// The meter of rows.
    pub meter: Option<Meter>,
    /// PerformanceTimer of routes sent to syncd, and the time from their rows to requests.
    pub drain: Option<Meter>,
    /// The warm start, if any.
    pub restore: Option<Restore>,
    /// The restart check.
    pub check: Option<RestartCheck>,
    /// The heartbeat.
    pub heartbeat: Option<Heartbeat>,
}

impl ShrinkToFit for OrchStage {
    fn shrink_to_fit(&mut self) {
        self.feeds.iter_mut().for_each(|feed| feed.shrink_to_fit());
        self.orch.shrink_to_fit();
    }
}

impl OrchStage {
    /// Runs until `stop`, and serves calls in between.
    ///
    /// # Errors
    /// A sentence for the operator: a database refuses, or syncd does not reply.
    pub fn run(mut self, calls: Option<&CallQueue<OrchStage>>, stop: &Stop) -> Result<(), Error> {
        let (clock, mut next_tick, signal) = (Clock::default(), 0, stop.signal());
        let (mut out, mut replies) = (OrchOut::default(), Vec::new());
        let mut has_subscriber = false;
        while !stop.stopped() {
            let begin = Instant::now();
            if let Some(calls) = calls {
                calls.serve(&mut self);
            }
            self.syncd.replies(&mut replies)?;
            let heard = replies.len();
            if heard > 0 {
                self.gauges.under_way.moved();
            }
            for reply in replies.drain(..) {
                if let Some(record) = &mut self.requests {
                    record.reply(&reply);
                }
                self.orch.reply(reply, &mut out);
            }
            if clock.now() >= next_tick {
                next_tick = clock.now() + self.tick_interval();
                self.orch.tick(clock.now(), &mut out);
                self.outputs.tick(&self.orch)?;
                self.flush_recordings();
                if let Some(heartbeat) = &mut self.heartbeat {
                    heartbeat.tick();
                }
            }
            let reports = self.syncd.port_reports();
            let reported = !reports.is_empty();
            if reported {
                self.take_reports(&reports, &mut out);
            }
            self.outputs.before_round(&mut self.orch);
            let taken = self.take()?;
            let drain = Instant::now();
            self.orch.run(&mut out);
            let drained = out.requests.iter().map(routes_in).sum();
            let again = self.carry_out(&mut out)?;
            if let Some(timer) = &self.drain {
                timer.add(drained, drain);
            }
            if let Some(subscriber) = self.outputs.new_subscriber(&self.orch) {
                self.feeds.iter_mut().for_each(|feed| feed.set_fence(subscriber.process));
                has_subscriber = true;
            }
            if has_subscriber && self.feeds.iter_mut().all(|feed| feed.is_past_fence()) {
                has_subscriber = false;
                self.outputs.begin_subscription(&mut self.orch);
            }
            let quiet = taken + heard == 0 && !again && !reported;
            self.outputs.after_round(&mut self.orch, quiet, self.syncd.waiting())?;
            if let Some(mut restore) = self.restore.take() {
                match restore.look(&mut self, quiet)? {
                    true => self.outputs.restored(&mut out)?,
                    false => {
                        self.restore = Some(restore);
                        // That may have been the last row.
                        self.orch.run(&mut out);
                    }
                }
                self.carry_out(&mut out)?;
            }
            self.note_depths();
            if self.stands_still(quiet)? {
                return self.freeze(calls, stop);
            }
            if !quiet {
                next_tick = next_tick.min(clock.now() + TICKS.0);
                if let Some(meter) = &self.meter {
                    meter.add(taken, begin);
                }
                continue;
            }
            self.flush_recordings();
            if self.wait(calls, &signal, &clock, next_tick) {
                out.shrink_to_fit();
                replies = Vec::new();
                idle::trim(&mut self);
            }
        }
        Ok(())
    }

    /// Takes in link states. Groups lose their members on a lost link before any further route.
    fn take_reports(&mut self, reports: &PortReports, out: &mut OrchOut) {
        if let Some(record) = &mut self.requests {
            record.port_states(&reports.states);
        }
        self.orch.port_states(&reports.states, out);
        if reports.lost {
            self.orch.read_port_states();
        }
    }

    /// The time until the state machine needs the time again, unless there is work before: requests that the chip had no
    /// room for are retried, and so is a warm start's end.
    fn tick_interval(&self) -> Millis {
        let waits = self.orch.backlog() + self.orch.retry_cache_len() + self.syncd.under_way() > 0;
        let waits = waits || !self.orch.idle() || !self.outputs.idle() || self.restore.is_some();
        let interval = if waits { TICKS.0 } else { TICKS.1 };
        let heartbeat = self.heartbeat.as_ref().map_or(Millis::MAX, Heartbeat::interval_ms);
        interval.min(TICKS.0.max(heartbeat / 2))
    }

    fn note_depths(&self) {
        let OrchGauges { at_work, retry_cache, refused, under_way, unsent } = &self.gauges;
        at_work.set(self.orch.backlog());
        retry_cache.set(self.orch.retry_cache_len());
        refused.set(self.orch.refused_len());
        under_way.set(self.syncd.under_way());
        unsent.set(self.outputs.unsent());
    }

    /// Replies to restart checks. Returns whether orchagent must stop working.
    fn stands_still(&mut self, quiet: bool) -> Result<bool, Error> {
        let Some(check) = &mut self.check else { return Ok(false) };
        if !check.has_request() {
            return Ok(false);
        }
        // Prefetched rows are completed; rows in a table are left to the successor.
        self.feeds.iter_mut().for_each(|feed| feed.hold(true));
        let idle = quiet
            && self.feeds.iter().all(|feed| feed.is_drained())
            && self.orch.idle()
            && !self.syncd.waiting()
            && !self.orch.restoring()
            && self.outputs.idle();
        let frozen = check.answer(idle && self.orch.backlog() + self.orch.retry_cache_len() == 0, idle)?;
        if !frozen && !check.is_open() {
            self.feeds.iter_mut().for_each(|feed| feed.hold(false));
        }
        Ok(frozen)
    }

    /// Waits for the end of the process, so that the successor finds the same state.
    fn freeze(mut self, calls: Option<&CallQueue<OrchStage>>, stop: &Stop) -> Result<(), Error> {
        self.flush_recordings();
        tracing::info!(target: target::ORCHAGENT, "orchagent stands still for a warm restart; stop it now");
        let signal = stop.signal();
        while !stop.stopped() {
            let mut select = Select::new();
            signal.watch(&mut select);
            if let Some(calls) = calls {
                // The callers hear that the stage has stopped.
                while calls.next().is_some() {}
                calls.watch(&mut select);
            }
            select.ready();
        }
        Ok(())
    }

    /// Whether rows are taken.
    fn takes(&self) -> bool {
        let is_full = self.syncd.waiting() && self.orch.backlog() >= self.backlog;
        !is_full && self.outputs.has_room()
    }

    /// Applies one batch of the first table with rows.
    fn take(&mut self) -> Result<usize, Error> {
        if !self.takes() {
            return Ok(0);
        }
        for n in 0..self.feeds.len() {
            let taken = self.feeds[n].pop(&mut self.orch, self.batch, self.rows.as_mut())?;
            if taken > 0 && n > self.groups && self.orch.has_indexes() {
                self.take_groups()?;
            }
            if taken > 0 {
                return Ok(taken);
            }
        }
        Ok(0)
    }

    /// Applies every row of NEXTHOP_GROUP_TABLE. Its wake-up may come after rows of routes that were
    /// written later, as each table has its own thread or connection. Without these rows, routes
    /// would be confirmed with the former members of their groups.
    fn take_groups(&mut self) -> Result<(), Error> {
        let groups = &mut self.feeds[self.groups];
        groups.expect_rows();
        while groups.pop(&mut self.orch, self.batch, self.rows.as_mut())? > 0 {}
        Ok(())
    }

    fn carry_out(&mut self, out: &mut OrchOut) -> Result<bool, Error> {
        if let Some(sentence) = events::log_orchagent(&mut out.events) {
            return Err(Error::Peer(sentence));
        }
        if let Some(record) = &mut self.requests {
            out.requests.iter().for_each(|request| record.request(request));
        }
        if !out.requests.is_empty() {
            self.syncd.send(&mut out.requests)?;
        }
        if self.orch.restoring() {
            // Nothing is in place before the view is applied.
            let resolve = std::mem::take(&mut out.resolve);
            return self.outputs.carry_out(&mut self.orch, &mut OrchOut { resolve, ..OrchOut::default() });
        }
        self.outputs.carry_out(&mut self.orch, out)
    }

    fn flush_recordings(&mut self) {
        for record in [&mut self.rows, &mut self.requests].into_iter().flatten() {
            record.flush();
        }
    }

    /// Sleeps until there is work or `next_tick`. Returns whether the thread is idle.
    fn wait(
        &self,
        calls: Option<&CallQueue<OrchStage>>,
        stop: &StopSignal,
        clock: &Clock,
        next_tick: Millis,
    ) -> bool {
        let mut select = Select::new();
        stop.watch(&mut select);
        self.syncd.watch(&mut select);
        self.outputs.watch(&mut select);
        if self.takes() {
            self.feeds.iter().for_each(|feed| feed.watch(&mut select));
        }
        if let Some(calls) = calls {
            calls.watch(&mut select);
        }
        let mut timeout = clock.until(next_tick);
        if !self.outputs.has_room() {
            timeout = timeout.min(ROOM_POLL_INTERVAL);
        }
        if let Some(due) = self.outputs.due() {
            timeout = timeout.min(due.saturating_duration_since(Instant::now()));
        }
        if let Some(check) = &self.check {
            check.watch(&mut select);
            if check.is_open() {
                timeout = timeout.min(RESTART_CHECK_POLL_INTERVAL);
            }
        }
        // The loop checks everything anyway.
        idle::wait(&mut select, timeout)
    }
}

#[cfg(test)]
mod tests;
