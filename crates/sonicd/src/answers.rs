//! FIB suppression's way back between two of our own daemons: orchagent tells fpmsyncd directly what became of routes, and what
//! is published in Redis follows behind, for others.
//!
//! fpmsyncd listens, orchagent connects, again and again. As a connection begins orchagent takes in every row that was on its way
//! before, says which routes are in the chip, and answers from there on what it takes in later. fpmsyncd counts an answer once:
//! from who is connected, and from Redis only when for [`SETTLE`] no orchagent was, as when one of the two is SONiC's; it listens to
//! Redis then and not before, so what was published by one who had answered directly is never heard.
//!
//! Who will connect is there although he is slow: he listens to [`presence`], and is waited for.
//!
//! What is refused is told directly only: in SONiC failures are not published.

use super::appl_transport::in_namespace;
use super::orch_stage::Subscriber;
use super::settings::is_ours;
use super::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_prefix::AnyPrefix;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_swss::orch::{Orch, Refusal};
use ribtide_swss::row::{
    AnswerKind, AnswerWriter, Name, ROUTE_RESPONSE_CHANNEL, RouteKey, RouteResponse, RouteStateRow,
};
use ribtide_swss::{Change, Db};
use ribtide_tables::zmq::{
    Endpoint, Push, ResponseEvent, ResponseListener, connect_responses, listen_responses,
};
use ribtide_tables::{Connection, PlainTable, PubSubEvent, listen, state_table};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The port on which fpmsyncd hears answers; of the namespaces of a machine with several chips, each has its own.
const PORT: u16 = 8200;
/// For so long no orchagent must have answered directly before answers count that are published; orchagent tries to connect
/// several times in it.
pub(super) const SETTLE: Duration = Duration::from_millis(1500);
/// How long an orchagent is waited for that is there and says nothing: one that hangs, or one that cannot connect after all.
pub(super) const AWAITED: Duration = Duration::from_secs(120);
/// How often it is looked whether it is there.
const ORCHAGENT_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Published answers that may wait.
const PUBLISHED: usize = 10_000;
/// Routes in one message at most.
const BATCH: usize = 4000;
/// How long an answer may wait for others of its message while there are others to come. Each message wakes four threads.
const HOLD: Duration = Duration::from_millis(10);

fn endpoint() -> Result<Endpoint, Error> {
    Endpoint::parse("tcp://127.0.0.1", in_namespace(PORT)).map_err(Error::new)
}

/// A channel of APPL_DB's server to which an orchagent of ours listens for as long as it runs, if it is one that connects to an fpmsyncd
/// of this process' loopback interface, or will once FIB suppression is on. Redis knows at once when its process ends. One of SONiC's does
/// not listen there, nor does one on another host, whose answers come through Redis. `None`: the kernel does not say which loopback
/// interface this is.
pub(super) fn presence() -> Option<String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    let port = in_namespace(PORT);
    Some(format!("RIBTIDE_ANSWERS_{port}_{}_{}", kernel.trim(), network.display()))
}

/// orchagent's end.
///
/// What does not fit into the connection waits here, five bytes a route. It is bounded by what fpmsyncd wrote and has not
/// heard of: one that hears nothing writes nothing either.
pub(super) struct Answering {
    push: Push,
    /// Connects no more.
    stop: Stop,
    /// Messages that did not fit yet.
    unsent: VecDeque<Vec<u8>>,
    /// One of each kind that is not full: of answers, and of what is in the chip as it was found.
    open: AnswerWriter,
    found: AnswerWriter,
    /// What is not full is sent then, at the latest.
    due: Option<Instant>,
    /// Who is connected was told what is in the chip, and hears answers from there on.
    begun: bool,
}

impl Answering {
    pub(super) fn start(rings: &Rings) -> Result<Answering, Error> {
        let stop = Stop::default();
        let push = connect_responses(endpoint()?, rings, &stop)?;
        let [open, found] = [AnswerKind::Confirmed, AnswerKind::InChip].map(AnswerWriter::new);
        Ok(Answering { push, stop, unsent: VecDeque::new(), open, found, due: None, begun: false })
    }

    /// Lets `select` see when to look again.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(self.push.wake());
    }

    /// Messages for which there was no room yet.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Whether an fpmsyncd is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.push.is_connected()
    }

    /// Returns a newly connected fpmsyncd, once per connection. It gets nothing until [`Answering::begin_subscription`].
    pub(super) fn new_subscriber(&mut self, orch: &Orch) -> Option<Subscriber> {
        if orch.restoring() {
            // The look that a wake-up asks for. Nothing is known of the chip yet.
            let _ = self.push.wake().try_recv();
            return None;
        }
        let renewed = self.push.renewed();
        if renewed {
            self.forget();
        }
        renewed.then(|| Subscriber { process: self.push.process() })
    }

    /// Sends the subscriber which routes are in the chip, and responses afterwards. A row that `orch` has now counts as
    /// found, since another fpmsyncd may have written it.
    pub(super) fn begin_subscription(&mut self, orch: &mut Orch) {
        self.unsent = in_chip(orch);
        self.begun = true;
        self.resume();
    }

    /// When what is not full is to be sent, if nothing comes before: [`Answering::look`].
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Sends what waited, for room or, while `more` is to come, for others; or forgets it when no fpmsyncd is connected.
    pub(super) fn look(&mut self, more: bool) {
        if self.begun && !self.push.is_connected() {
            self.forget();
        }
        if self.due.is_some_and(|due| !more || due <= Instant::now()) {
            for open in [&mut self.open, &mut self.found] {
                if !open.is_empty() {
                    self.unsent.push_back(take(open));
                }
            }
            self.due = None;
        }
        self.resume();
    }

    /// Says what is refused, answers, and says of rows that were `found` that the chip has them. Who is not connected yet hears
    /// what is in the chip when it is.
    pub(super) fn answer(
        &mut self,
        refusals: &[Refusal],
        responses: &[Change<RouteStateRow>],
        found: &[Change<RouteStateRow>],
    ) {
        if !self.begun {
            return;
        }
        self.refuse(refusals);
        for (responses, open) in [(responses, &mut self.open), (found, &mut self.found)] {
            for (vrf, prefix, protocol) in responses.iter().filter_map(answered) {
                open.add(vrf, protocol, prefix);
                if open.len() >= BATCH {
                    self.unsent.push_back(take(open));
                }
            }
        }
        if self.due.is_none() && !(self.open.is_empty() && self.found.is_empty()) {
            self.due = Some(Instant::now() + HOLD);
        }
        self.resume();
    }

    /// In their order among answers: who is told last that a route is refused takes it for that.
    fn refuse(&mut self, refusals: &[Refusal]) {
        for refusals in refusals.chunks(BATCH) {
            let mut message = AnswerWriter::new(AnswerKind::Refused);
            for Refusal { key, row, why } in refusals {
                if let RouteKey::Route { vrf, prefix, .. } = key {
                    message.add_refused(vrf.as_ref(), why, *prefix, *row);
                }
            }
            if !self.open.is_empty() {
                self.unsent.push_back(take(&mut self.open));
            }
            self.unsent.push_back(message.finish());
        }
    }

    /// Sends of what waits for room what there is room for.
    fn resume(&mut self) {
        while self.push.has_room() {
            let Some(message) = self.unsent.pop_front() else { break };
            if !self.push.send(message) {
                // What is in the chip is said on the next connection.
                self.forget();
            }
        }
    }

    fn forget(&mut self) {
        self.begun = false;
        self.unsent = VecDeque::new();
        self.due = None;
        take(&mut self.open);
        take(&mut self.found);
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn take(open: &mut AnswerWriter) -> Vec<u8> {
    let empty = AnswerWriter::new(open.kind());
    std::mem::replace(open, empty).finish()
}

/// The VRF, prefix and protocol of a confirmed route; `None` for a row without a protocol, which no client waits for.
fn answered(confirmed: &Change<RouteStateRow>) -> Option<(Option<&Name>, AnyPrefix, &Name)> {
    let RouteKey::Route { vrf, prefix, .. } = &confirmed.key else { return None };
    let protocol = confirmed.row.as_ref()?.protocol.as_ref().filter(|protocol| !protocol.is_empty())?;
    Some((vrf.as_ref(), *prefix, protocol))
}

/// The messages that say what is in the chip.
fn in_chip(orch: &mut Orch) -> VecDeque<Vec<u8>> {
    let (mut messages, no_protocol) = (VecDeque::new(), Name::from(""));
    let mut message = AnswerWriter::new(AnswerKind::InChip);
    orch.in_chip(|vrf, prefix| {
        message.add(vrf, &no_protocol, prefix);
        if message.len() >= BATCH {
            let full = std::mem::replace(&mut message, AnswerWriter::new(AnswerKind::InChip));
            messages.push_back(full.finish());
        }
    });
    messages.extend([message.finish(), AnswerWriter::new(AnswerKind::AllSaid).finish()]);
    messages
}

/// What fpmsyncd hears.
#[derive(Debug)]
pub(super) enum Answer {
    /// A message of answers.
    Direct(Vec<u8>),
    /// A response that was published.
    Published(RouteResponse),
    /// Some may have been missed: [`Answers::rows`] says what is in the chip.
    Missed,
}

/// Who answers.
enum Source {
    /// No orchagent answers, since then. At `due` it is checked whether there is one that will.
    None { since: Instant, due: Instant },
    /// Who has this connection.
    Orchagent(u64),
    /// Whoever publishes.
    Redis(Published),
}

impl Source {
    /// No orchagent any more, or yet.
    fn none() -> Source {
        let since = Instant::now();
        Source::None { since, due: since + SETTLE }
    }
}

/// fpmsyncd's end. Once it is dropped no answer is received, and orchagent starts over with the next one.
pub(super) struct Answers {
    /// `None` where no orchagent can connect.
    direct: Option<ResponseListener>,
    from: Source,
    rows: PlainTable<RouteStateRow>,
    state: Connection,
    /// Where [`presence`] is.
    appl: Connection,
    presence: Option<String>,
    daemon: Daemon,
}

impl Answers {
    pub(super) fn open(daemon: &Daemon) -> Result<Answers, Error> {
        let direct = match listen_responses(&endpoint()?, &daemon.rings) {
            Ok(direct) => Some(direct),
            Err(e) => {
                tracing::warn!(target: target::FPMSYNCD, error = %e, "responses come through Redis only");
                None
            }
        };
        Ok(Answers {
            direct,
            from: Source::none(),
            rows: daemon.plain()?,
            state: daemon.connect(Db::State)?,
            appl: daemon.connect(Db::Appl)?,
            presence: presence(),
            daemon: daemon.clone(),
        })
    }

    /// Which way answers come, and why not the one that is asked for.
    pub(super) fn way(&self) -> (&'static str, &'static str) {
        match (&self.from, &self.direct) {
            (Source::Orchagent(_), _) => ("direct", ""),
            (Source::None { .. }, _) => ("no orchagent answers yet", ""),
            (Source::Redis(_), Some(_)) => ("through Redis", "orchagent is not there, or not ribtide's"),
            (Source::Redis(_), None) => ("through Redis", "the port of answers is taken; the log says more"),
        }
    }

    /// Whether an orchagent of ours answers.
    pub(super) fn are_direct(&self) -> bool {
        matches!(self.from, Source::Orchagent(_))
    }

    /// Whether nothing is heard through Redis: an orchagent of ours answers, or may connect, or is there and will.
    pub(super) fn is_awaited(&self) -> bool {
        !matches!(self.from, Source::Redis(_))
    }

    /// Whether an orchagent is there that will connect.
    fn is_there(&mut self) -> bool {
        let Some(presence) = &self.presence else { return false };
        self.direct.is_some() && state_table::has_subscriber(&mut self.appl, presence).unwrap_or(false)
    }

    /// What there is to hear next.
    pub(super) fn hear(&mut self) -> Option<Answer> {
        while let Some(event) = self.direct.as_ref().and_then(|direct| direct.events().try_recv()) {
            match event {
                ResponseEvent::Connected(id) => self.from = Source::Orchagent(id),
                ResponseEvent::Gone(id) if self.is_from(id) => self.from = Source::none(),
                ResponseEvent::Gone(_) => {}
                ResponseEvent::Message(id, message, taken) => {
                    taken.send();
                    if self.is_from(id) {
                        return Some(Answer::Direct(message));
                    }
                }
            }
        }
        match &self.from {
            Source::Redis(published) => published.heard.try_recv(),
            Source::None { since, due } if *due <= Instant::now() || self.direct.is_none() => {
                let since = *since;
                self.from = if since.elapsed() < AWAITED && self.is_there() {
                    Source::None { since, due: Instant::now() + ORCHAGENT_POLL_INTERVAL }
                } else {
                    self.listen()
                };
                None
            }
            _ => None,
        }
    }

    fn listen(&self) -> Source {
        match Published::listen(&self.daemon) {
            Ok(published) => Source::Redis(published),
            Err(e) => {
                tracing::warn!(target: target::FPMSYNCD, error = %e, "orchagent cannot respond now");
                Source::none()
            }
        }
    }

    fn is_from(&self, id: u64) -> bool {
        matches!(self.from, Source::Orchagent(now) if now == id)
    }

    /// Whether ribtide's orchagent has run on these databases: its APPL_STATE_DB is write-behind, so rows may lag.
    pub(super) fn may_rows_lag(&mut self) -> Result<bool, Error> {
        is_ours("orchagent", &mut self.state)
    }

    /// Every route that APPL_STATE_DB says is in the chip.
    pub(super) fn rows(&mut self, mut each: impl FnMut(Option<&str>, AnyPrefix)) -> Result<(), Error> {
        Ok(self.rows.rows(|key, _| {
            if let RouteKey::Route { vrf, prefix, .. } = key {
                each(vrf.as_deref(), prefix);
            }
        })?)
    }

    /// Lets `select` see when there is something to hear.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        if let Some(direct) = &self.direct {
            direct.events().watch(select);
        }
        if let Source::Redis(published) = &self.from {
            published.heard.watch(select);
        }
    }
}

/// Listening to what is published, for as long as this is there.
struct Published {
    heard: ring::Receiver<Answer>,
    stop: Stop,
}

impl Published {
    fn listen(daemon: &Daemon) -> Result<Published, Error> {
        let (confirmations, heard) = daemon.rings.bounded("published responses to fpmsyncd", PUBLISHED);
        let stop = Stop::default();
        let forward = move |heard: PubSubEvent<'_>| {
            let answer = match heard {
                PubSubEvent::Subscribed { .. } => Answer::Missed,
                PubSubEvent::Message { payload, .. } => match RouteResponse::parse(payload) {
                    Ok(response) => Answer::Published(response),
                    Err(e) => {
                        return tracing::warn!(target: target::FPMSYNCD, error = %e, "a response is passed over");
                    }
                },
            };
            // No stage reads it any more: answers come directly, or the daemon stops.
            let _ = confirmations.send(answer);
        };
        listen(daemon.databases.get(Db::ApplState), vec![ROUTE_RESPONSE_CHANNEL.into()], &stop, forward)?;
        Ok(Published { heard, stop })
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.stop.stop();
    }
}
