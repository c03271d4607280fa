//! syncd's loop, whatever carries its requests: take them in order, carry them out on the virtual switch, answer.
//!
//! Where the switch stands for a chip that takes time, the next requests are taken while it works, and each is answered
//! when its turn is over. While the switch is stalled nothing is taken and nothing answered, but questions are.

use super::{Error, log};
use crate::journal::Journal;
use crossbeam_channel::Select;
use ribtide_prefix::AnyPrefix;
use ribtide_runtime::ask::Asked;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::thread::Stop;
use ribtide_sai::VirtualSwitch;
use ribtide_swss::sai::{ObjectId, ObjectType, Oid, SaiCall, SaiRequest};
use ribtide_swss::syncd::{Syncd, SyncdOut};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

const DAEMON: &str = "syncd";
/// The longest sleep: how late a stop is noticed.
const NAP: Duration = Duration::from_millis(500);
/// Requests that the chip may work on or have before it, beyond which no more are taken.
const AT_WORK: usize = 8;

/// The way to orchagent and back.
pub(super) trait OrchLink: Send {
    /// Appends the requests that came, in order.
    fn requests(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error>;

    /// Sends the replies, then writes the rows; empties both.
    fn answer(&mut self, out: &mut SyncdOut) -> Result<(), Error>;

    /// Lets `select` see when requests come.
    fn watch<'a>(&'a self, select: &mut Select<'a>);
}

/// syncd, wired.
pub(super) struct SyncdStage {
    /// The machine and its chip.
    pub(super) syncd: Syncd<VirtualSwitch>,
    /// orchagent.
    pub(super) link: Box<dyn OrchLink>,
    /// Routes handled and time spent.
    pub(super) meter: Option<Meter>,
    /// PerformanceTimer: routes answered, and their rows written.
    pub(super) answer: Option<Meter>,
    /// Requests that came and are not carried out.
    waiting: VecDeque<SaiRequest>,
    /// Routes, by virtual router, that the chip was asked to change, for who compares.
    pub(super) changed: Journal<(Oid, AnyPrefix)>,
    /// What the chip works on.
    at_work: VecDeque<AtWork>,
}

/// A request whose time on the chip is over when it is `done`; then it is answered.
struct AtWork {
    done: Instant,
    routes: usize,
    out: SyncdOut,
}

impl SyncdStage {
    /// The machine on its chip, answering through `link`.
    pub(super) fn new(
        syncd: Syncd<VirtualSwitch>,
        link: Box<dyn OrchLink>,
        meter: Option<Meter>,
        answer: Option<Meter>,
    ) -> SyncdStage {
        SyncdStage {
            syncd,
            link,
            meter,
            answer,
            waiting: VecDeque::new(),
            changed: Journal::default(),
            at_work: VecDeque::new(),
        }
    }

    /// Runs until `stop`, answering questions in between.
    ///
    /// # Errors
    /// What the operator must know: a database that refuses.
    pub(super) fn run(mut self, asked: Option<&Asked<SyncdStage>>, stop: &Stop) -> Result<(), Error> {
        let mut requests = Vec::new();
        while !stop.stopped() {
            if let Some(asked) = asked {
                asked.serve(&mut self);
            }
            let now = Instant::now();
            if let Some(until) = self.syncd.chip_mut().stalled(now) {
                self.wait(asked, false, until);
                continue;
            }
            while self.at_work.front().is_some_and(|work| work.done <= now) {
                let Some(work) = self.at_work.pop_front() else { break };
                self.answer(work)?;
            }
            let takes = self.at_work.len() < AT_WORK;
            if takes && self.waiting.is_empty() {
                self.link.requests(&mut requests)?;
                self.waiting.extend(requests.drain(..));
            }
            match self.waiting.pop_front() {
                Some(request) if takes => self.carry_out(request, now)?,
                request => {
                    self.waiting.extend(request);
                    self.wait(asked, takes, self.at_work.front().map(|work| work.done));
                }
            }
        }
        Ok(())
    }

    fn carry_out(&mut self, request: SaiRequest, now: Instant) -> Result<(), Error> {
        let begin = Instant::now();
        let routes = routes_in(&request);
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
        self.syncd.handle(request, &mut out);
        if let Some(meter) = &self.meter {
            meter.add(routes, begin);
        }
        out.events.drain(..).for_each(|sentence| log(DAEMON, &sentence));
        let done = self.syncd.chip_mut().done_at(now);
        // Behind what the chip still works on, in any case.
        let done = done.or_else(|| self.at_work.back().map(|work| work.done));
        let work = AtWork { done: done.unwrap_or(now), routes, out };
        match done {
            None => self.answer(work),
            Some(_) => {
                self.at_work.push_back(work);
                Ok(())
            }
        }
    }

    fn answer(&mut self, mut work: AtWork) -> Result<(), Error> {
        let begin = Instant::now();
        self.link.answer(&mut work.out)?;
        if let Some(timer) = &self.answer {
            timer.add(work.routes, begin);
        }
        Ok(())
    }

    /// Sleeps until there is something to do, or `until`; `takes`: requests are something to do.
    fn wait(&self, asked: Option<&Asked<SyncdStage>>, takes: bool, until: Option<Instant>) {
        let mut select = Select::new();
        if takes {
            self.link.watch(&mut select);
        }
        if let Some(asked) = asked {
            select.recv(asked.raw());
        }
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Timed out or ready: the loop looks at everything either way.
        let _ = select.ready_timeout(left.map_or(NAP, |left| left.min(NAP)));
    }
}

/// Routes that a request is about.
pub(super) fn routes_in(request: &SaiRequest) -> usize {
    match &request.call {
        SaiCall::One { object: ObjectType::RouteEntry, .. } => 1,
        SaiCall::Bulk { object: ObjectType::RouteEntry, items, .. } => items.len(),
        _ => 0,
    }
}
