//! syncd's loop, whatever carries its requests: take them in order, carry them out on the virtual switch, answer.

use super::{Error, log};
use crossbeam_channel::Select;
use ribtide_runtime::ask::Asked;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::thread::Stop;
use ribtide_sai::VirtualSwitch;
use ribtide_swss::sai::{ObjectType, SaiCall, SaiRequest};
use ribtide_swss::syncd::{Syncd, SyncdOut};
use std::time::{Duration, Instant};

const DAEMON: &str = "syncd";
/// The longest sleep: how late a stop is noticed.
const NAP: Duration = Duration::from_millis(500);

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
}

impl SyncdStage {
    /// Runs until `stop`, answering questions in between.
    ///
    /// # Errors
    /// What the operator must know: a database that refuses.
    pub(super) fn run(mut self, asked: Option<&Asked<SyncdStage>>, stop: &Stop) -> Result<(), Error> {
        let (mut requests, mut out) = (Vec::new(), SyncdOut::default());
        while !stop.stopped() {
            if let Some(asked) = asked {
                asked.serve(&mut self);
            }
            self.link.requests(&mut requests)?;
            if requests.is_empty() {
                self.wait(asked);
                continue;
            }
            for request in requests.drain(..) {
                let begin = Instant::now();
                let routes = routes_in(&request);
                self.syncd.handle(request, &mut out);
                if let Some(meter) = &self.meter {
                    meter.add(routes, begin);
                }
                out.events.drain(..).for_each(|sentence| log(DAEMON, &sentence));
                let begin = Instant::now();
                self.link.answer(&mut out)?;
                if let Some(timer) = &self.answer {
                    timer.add(routes, begin);
                }
            }
        }
        Ok(())
    }

    fn wait(&self, asked: Option<&Asked<SyncdStage>>) {
        let mut select = Select::new();
        self.link.watch(&mut select);
        if let Some(asked) = asked {
            select.recv(asked.raw());
        }
        // Timed out or ready: the loop looks at everything either way.
        let _ = select.ready_timeout(NAP);
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
