//! The event loop of syncd, with any transport of requests: take them in order, execute them on the
//! virtual switch, reply.
//!
//! With a chip that takes time, the next requests are taken while it works, and each reply is sent
//! when its time is over. While the switch is stalled, syncd takes no request and sends no reply,
//! but serves calls.

use super::counters::CounterSink;
use super::packets::PacketPath;
use super::reconcile::ChipRounds;
use super::syncd::Watchdog;
use super::syncd_chip::SyncdChip;
use super::{Error, events};
use crossbeam_channel::Select;
use ribtide_prefix::AnyPrefix;
use ribtide_prefix::Journal;
use ribtide_runtime::call::CallQueue;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::gauge::Gauge;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::log::target;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{Stop, StopSignal};
use ribtide_runtime::wake_up::WakeUp;
use ribtide_swss::sai::notification::{FdbEvent, PortState};
use ribtide_swss::sai::{ObjectId, ObjectType, Oid, SaiCall, SaiRequest, View};
use ribtide_swss::syncd::{Polled, Syncd, SyncdOut};
use ribtide_vswitch::VirtualSwitch;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Sleep time while the last requests are in flight.
const DRAIN_POLL_INTERVAL: Duration = Duration::from_millis(5);
/// The interval of looks whether ASIC_DB admits rows again (--write-behind-wait).
const ROOM_POLL_INTERVAL: Duration = Duration::from_millis(20);
/// Requests at the chip at most.
const AT_WORK: usize = 8;
/// Objects whose counters are polled between two requests at most.
const POLLED_AT_ONCE: usize = 8;

/// The transport to orchagent.
pub trait OrchLink: Send {
    /// Appends received requests in order.
    fn requests(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error>;

    /// Sends the replies, then writes the rows; empties both.
    fn answer(&mut self, out: &mut SyncdOut) -> Result<(), Error>;

    /// Sends link states to orchagent. Never waits for it.
    fn port_states(&mut self, states: &[PortState]);

    /// Sends changes of the FDB to orchagent. Never waits for it. In one process no program has an FDB.
    fn fdb_events(&mut self, events: Vec<FdbEvent>) {
        let _ = events;
    }

    /// Whether the request may have been executed by an earlier syncd that ended before its reply.
    fn is_owed(&self, _request: &SaiRequest) -> bool {
        false
    }

    /// Whether written rows may be lost, so that all must be written again.
    fn wants_all_rows(&mut self) -> Result<bool, Error> {
        Ok(false)
    }

    /// Another program emptied the database: [`Link::wants_all_rows`] is true from now on.
    fn note_emptied(&self) {}

    /// Whether rows would be taken without a wait. Otherwise the database is as far behind as it may
    /// be, and no request is taken.
    fn has_room(&self) -> bool {
        true
    }

    /// The number of row batches passed to it, and of those written.
    fn rows(&self) -> (u64, u64) {
        (0, 0)
    }

    /// Frees its buffers.
    fn shrink_to_fit(&mut self) {}

    /// Stops to take requests, except those in flight. Returns `false` while some may be in flight:
    /// repeat it.
    fn close(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Waits until everything is sent and written.
    fn finish(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Makes `select` ready when there may be requests.
    fn watch<'a>(&'a self, select: &mut Select<'a>);
}

/// syncd with its transport.
pub struct SyncdStage<C: SyncdChip = VirtualSwitch> {
    /// The state machine with its chip.
    pub syncd: Syncd<C>,
    /// orchagent.
    pub link: Box<dyn OrchLink>,
    /// The meter of routes.
    pub meter: Option<Meter>,
    /// PerformanceTimer of replies about routes, and of their rows.
    pub answer: Option<Meter>,
    /// Logs slow requests.
    watchdog: Option<Watchdog>,
    /// Whether no view was applied yet.
    starting: bool,
    /// Requests that are not executed yet.
    waiting: VecDeque<SaiRequest>,
    /// The changes of routes requested of the chip, by virtual router, for `route-check`.
    pub changed: Journal<(Oid, AnyPrefix)>,
    /// Requests at the chip.
    at_work: VecDeque<AtWork>,
    /// The gauge of requests at the chip and before it.
    at_chip: Gauge,
    /// The shutdown requests.
    pub shutdown: Option<Shutdown>,
    /// The comparison of the chip with what was requested.
    pub reconcile: Option<ChipRounds>,
    /// Ready when the chip has something to report.
    pub chip_wake_up: WakeUp,
    /// The packets of the virtual switch, if it forwards any.
    pub packets: Option<PacketPath>,
    /// The sink of polled counters. In one process nothing is polled.
    pub counters: Option<CounterSink>,
    clock: Clock,
}

/// Shutdown requests: SONiC's `syncd_request_shutdown`.
pub struct Shutdown {
    /// `true`: warm.
    pub requests: ring::Receiver<bool>,
    /// The file of the switch.
    pub file: PathBuf,
}

/// What a stage without work waits for.
struct Idle {
    /// Whether requests are work.
    takes: bool,
    /// When there is work in any case.
    until: Option<Instant>,
}

/// A request at the chip until `done`; then its reply is sent.
struct AtWork {
    done: Instant,
    begun: Instant,
    applies: bool,
    routes: usize,
    out: SyncdOut,
}

impl<C: SyncdChip> ShrinkToFit for SyncdStage<C> {
    fn shrink_to_fit(&mut self) {
        self.waiting.shrink_to_fit();
        self.at_work.shrink_to_fit();
        self.changed.shrink_to_fit();
        self.syncd.shrink_to_fit();
        self.syncd.chip_mut().shrink_to_fit();
        self.link.shrink_to_fit();
    }
}

impl<C: SyncdChip> SyncdStage<C> {
    /// The stage of `syncd` on its chip, with this transport.
    pub fn new(
        syncd: Syncd<C>,
        link: Box<dyn OrchLink>,
        meter: Option<Meter>,
        answer: Option<Meter>,
        rings: &Rings,
    ) -> SyncdStage<C> {
        SyncdStage {
            syncd,
            link,
            meter,
            answer,
            watchdog: None,
            starting: true,
            waiting: VecDeque::new(),
            changed: Journal::default(),
            at_work: VecDeque::new(),
            at_chip: rings.gauge("requests at the chip", Some(AT_WORK)),
            shutdown: None,
            reconcile: None,
            chip_wake_up: WakeUp::never(),
            packets: None,
            counters: None,
            clock: Clock::default(),
        }
    }

    /// Logs slow requests.
    pub fn watched(self, watchdog: Watchdog) -> SyncdStage<C> {
        SyncdStage { watchdog: Some(watchdog), ..self }
    }

    /// Runs until `stop`, and serves calls in between.
    ///
    /// # Errors
    /// A sentence for the operator: a database refuses.
    pub fn run(mut self, calls: Option<&CallQueue<SyncdStage<C>>>, stop: &Stop) -> Result<(), Error> {
        let mut requests = Vec::new();
        let signal = stop.signal();
        // orchagent heard nothing of the links while there was no syncd.
        self.syncd.chip_mut().report_all_ports();
        while !stop.stopped() {
            // Taken before the chip is served, so that no later report stays unseen.
            let _ = self.chip_wake_up.take();
            let retry = self.syncd.chip_mut().serve(Instant::now());
            if let Some(packets) = &mut self.packets {
                self.syncd.chip_mut().forward(packets);
            }
            if let Some(calls) = calls {
                calls.serve(&mut self);
            }
            self.report()?;
            let ending = self.shutdown.as_ref().and_then(|shutdown| shutdown.requests.try_recv());
            if let Some(warm) = ending {
                return self.end(warm);
            }
            if self.link.wants_all_rows()? {
                tracing::warn!(target: target::SYNCD, "writing all of ASIC_DB again, since Redis may have lost some");
                self.answer_all()?;
                let mut out = SyncdOut::default();
                self.syncd.all_rows(&mut out);
                self.link.answer(&mut out)?;
            }
            let now = Instant::now();
            if let Some(until) = self.syncd.chip_mut().stalled(now) {
                if self.wait(calls, &signal, false, until) {
                    idle::trim(&mut self);
                }
                continue;
            }
            self.reconcile(now)?;
            let polled = self.poll_counters();
            let aging = self.packets.as_ref().and_then(PacketPath::until);
            if let Some(Idle { takes, until }) = self.turn(&mut requests, now)?
                && self.wait(
                    calls,
                    &signal,
                    takes,
                    until.into_iter().chain(polled).chain(aging).chain(retry).min(),
                )
            {
                requests = Vec::new();
                idle::trim(&mut self);
            }
        }
        Ok(())
    }

    /// Replies to the requests that the chip has done by `now`, and carries out the next one. Without one it returns what
    /// the stage waits for. `requests` is an empty buffer.
    fn turn(&mut self, requests: &mut Vec<SaiRequest>, now: Instant) -> Result<Option<Idle>, Error> {
        while self.at_work.front().is_some_and(|work| work.done <= now) {
            let Some(work) = self.at_work.pop_front() else { break };
            self.answer(work)?;
        }
        let has_room = self.link.has_room();
        let takes = has_room && self.at_work.len() < AT_WORK;
        if takes && self.waiting.is_empty() {
            self.link.requests(requests)?;
            self.waiting.extend(requests.drain(..));
        }
        if takes && let Some(request) = self.waiting.pop_front() {
            self.carry_out(request, now)?;
            return Ok(None);
        }
        let page = self.reconcile.as_ref().map(ChipRounds::due);
        let room = (!has_room).then(|| now + ROOM_POLL_INTERVAL);
        let done = self.at_work.front().map(|work| work.done);
        Ok(Some(Idle { takes, until: done.into_iter().chain(page).chain(room).min() }))
    }

    /// Reports links and entries of the FDB that changed. A view in the making changes none.
    fn report(&mut self) -> Result<(), Error> {
        let states = self.syncd.port_states();
        self.link.port_states(&states);
        let mut out = SyncdOut::default();
        let events = self.syncd.fdb_events(&mut out);
        if !events.is_empty() {
            self.link.fdb_events(events);
        }
        self.write_rows(out)
    }

    /// Polls some of the counters that are due. Returns when to go on.
    fn poll_counters(&mut self) -> Option<Instant> {
        let sink = self.counters.as_ref()?;
        let mut polled = Polled::default();
        let again = self.syncd.poll_counters(self.clock.now(), POLLED_AT_ONCE, &mut polled);
        sink.values(&mut polled);
        again.map(|again| Instant::now() + self.clock.until(again))
    }

    /// Compares the next page of the chip, if it is due.
    fn reconcile(&mut self, now: Instant) -> Result<(), Error> {
        let Some(rounds) = &mut self.reconcile else { return Ok(()) };
        let mut out = SyncdOut::default();
        C::reconcile(rounds, &mut self.syncd, now, &mut out);
        self.write_rows(out)
    }

    /// Another program emptied ASIC_DB: all of it is written again.
    pub fn note_emptied(&self) {
        self.link.note_emptied();
    }

    /// Writes rows behind those of the requests at the chip.
    pub fn write_rows(&mut self, mut out: SyncdOut) -> Result<(), Error> {
        if out.rows.is_empty() {
            return Ok(());
        }
        let begun = Instant::now();
        match self.at_work.back().map(|work| work.done) {
            None => self.link.answer(&mut out),
            Some(done) => {
                self.at_work.push_back(AtWork { done, begun, applies: false, routes: 0, out });
                Ok(())
            }
        }
    }

    fn carry_out(&mut self, request: SaiRequest, now: Instant) -> Result<(), Error> {
        let begin = Instant::now();
        let routes = routes_in(&request);
        let applies = request.call == SaiCall::View(View::Apply);
        let mut out = SyncdOut::default();
        let items = match &request.call {
            SaiCall::One { item, .. } => std::slice::from_ref(item),
            SaiCall::Bulk { items, .. } => items,
            _ => &[],
        };
        self.changed.note(items.iter().filter_map(|item| match &item.id {
            ObjectId::Route(entry) => Some((entry.vr, entry.dest)),
            _ => None,
        }));
        match self.link.is_owed(&request) {
            true => self.syncd.handle_again(request, &mut out),
            false => self.syncd.handle(request, &mut out),
        }
        if let Some(meter) = &self.meter {
            meter.add(routes, begin);
        }
        if applies && !self.syncd.has_unapplied_view() {
            self.syncd.chip_mut().settle();
        }
        events::log_syncd(&mut out.events);
        if let Some(sink) = &self.counters {
            sink.settings(&mut out.polls);
        }
        let done = self.syncd.chip_mut().done_at(now);
        // Always after the requests at the chip.
        let done = done.or_else(|| self.at_work.back().map(|work| work.done));
        let work = AtWork { done: done.unwrap_or(now), begun: begin, applies, routes, out };
        match done {
            None => self.answer(work),
            Some(_) => {
                self.at_work.push_back(work);
                Ok(())
            }
        }
    }

    fn answer(&mut self, mut work: AtWork) -> Result<(), Error> {
        self.at_chip.moved();
        let begin = Instant::now();
        if let Some(watchdog) = &self.watchdog
            && begin - work.begun > watchdog.span(self.starting)
        {
            let duration_ms = (begin - work.begun).as_millis() as u64;
            tracing::warn!(target: target::SYNCD, duration_ms, routes = work.routes, "the switch took long for a request");
        }
        self.starting &= !work.applies;
        self.link.answer(&mut work.out)?;
        if let Some(timer) = &self.answer {
            timer.add(work.routes, begin);
        }
        Ok(())
    }

    /// How many batches of rows ASIC_DB will have of the switch's operations until now, and how many of them are written.
    pub fn rows(&self) -> (u64, u64) {
        let (given, written) = self.link.rows();
        let due = self.at_work.iter().filter(|work| !work.out.rows.is_empty()).count();
        (given + due as u64, written)
    }

    /// Replies to the requests at the chip without their delay.
    fn answer_all(&mut self) -> Result<(), Error> {
        while let Some(work) = self.at_work.pop_front() {
            self.answer(work)?;
        }
        Ok(())
    }

    /// Executes the requests in flight and ends; warm: the switch continues.
    fn end(mut self, warm: bool) -> Result<(), Error> {
        let mut requests: Vec<SaiRequest> = std::mem::take(&mut self.waiting).into();
        loop {
            let closed = self.link.close()?;
            self.link.requests(&mut requests)?;
            if requests.is_empty() && closed {
                break;
            }
            if requests.is_empty() {
                std::thread::sleep(DRAIN_POLL_INTERVAL);
            }
            for request in requests.drain(..) {
                self.carry_out(request, Instant::now())?;
            }
            self.answer_all()?;
        }
        self.link.finish()?;
        if let Some(Shutdown { file, .. }) = self.shutdown.filter(|_| warm) {
            if self.syncd.has_unapplied_view() {
                return Err(Error::new(
                    "orchagent is describing the switch, so it is not kept; orchagent describes it again",
                ));
            }
            C::save(&self.syncd, &file)?;
            tracing::info!(target: target::SYNCD, file = %file.display(), "the switch goes on without syncd");
        }
        Ok(())
    }

    /// Sleeps until there is work, or `until`; `takes`: requests are work. Returns whether the
    /// thread is idle.
    fn wait(
        &self,
        calls: Option<&CallQueue<SyncdStage<C>>>,
        stop: &StopSignal,
        takes: bool,
        until: Option<Instant>,
    ) -> bool {
        self.at_chip.set(self.at_work.len() + self.waiting.len());
        let mut select = Select::new();
        stop.watch(&mut select);
        if takes {
            self.link.watch(&mut select);
        }
        if let Some(calls) = calls {
            calls.watch(&mut select);
        }
        if let Some(shutdown) = &self.shutdown {
            shutdown.requests.watch(&mut select);
        }
        self.chip_wake_up.watch(&mut select);
        if let Some(packets) = &self.packets {
            packets.watch(&mut select);
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // The loop checks everything anyway.
        idle::wait(&mut select, left.unwrap_or(Duration::MAX))
    }
}

/// The routes of a request.
pub fn routes_in(request: &SaiRequest) -> usize {
    match &request.call {
        SaiCall::One { object: ObjectType::RouteEntry, .. } => 1,
        SaiCall::Bulk { object: ObjectType::RouteEntry, items, .. } => items.len(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests;
