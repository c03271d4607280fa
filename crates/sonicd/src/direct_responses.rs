//! Direct responses between two of ribtide's daemons, for FIB suppression
//! (`docs/adr/0013-direct-route-responses-orchagent-fpmsyncd.md`). orchagent sends the outcomes of
//! routes to fpmsyncd; the publication in Redis follows later, for other clients.
//!
//! fpmsyncd listens, and orchagent connects, again after each loss. On a new connection orchagent
//! applies every row that was in flight before, sends the routes in the chip, and then responses to
//! later rows. fpmsyncd counts a response once: from the connected orchagent, or from Redis if none
//! was connected for [`SETTLE`], as when one of the two is SONiC's. It subscribes to Redis only
//! then, so it gets no publication of an orchagent that responded directly.
//!
//! An orchagent that will connect subscribes to [`presence`], and fpmsyncd waits for it, even if it
//! is slow.
//!
//! Refusals are sent directly only: SONiC does not publish failures.

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
    Name, ROUTE_RESPONSE_CHANNEL, ResponseKind, ResponseWriter, RouteKey, RouteResponse, RouteStateRow,
};
use ribtide_swss::{Change, Db};
use ribtide_tables::zmq::{
    Endpoint, Push, ResponseEvent, ResponseListener, connect_responses, listen_responses,
};
use ribtide_tables::{Connection, PlainTable, PubSubEvent, listen, state_table};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// The port of fpmsyncd for responses; on a host with several ASICs each namespace has its own.
const PORT: u16 = 8200;
/// Without a direct orchagent for this time, published responses count. orchagent tries to connect
/// several times in it.
pub(super) const SETTLE: Duration = Duration::from_millis(1500);
/// How long to wait for a present orchagent that sends nothing, because it hangs or cannot connect.
pub(super) const AWAITED: Duration = Duration::from_secs(120);
/// Poll interval for the presence of orchagent.
const ORCHAGENT_POLL_INTERVAL: Duration = Duration::from_millis(250);
/// Published responses in the queue at most.
const PUBLISHED: usize = 10_000;
/// Routes of a message at most.
const BATCH: usize = 4000;
/// How long a response may wait for others of its message while more are under way. Each message
/// wakes four threads.
const HOLD: Duration = Duration::from_millis(10);

fn endpoint() -> Result<Endpoint, Error> {
    Endpoint::parse("tcp://127.0.0.1", in_namespace(PORT)).map_err(Error::new)
}

/// A channel on the server of APPL_DB to which ribtide's orchagent subscribes as long as it runs,
/// if it connects to an fpmsyncd on the loopback interface of this process, now or when FIB
/// suppression is on. Redis knows at once when its process ends. An orchagent of SONiC, or of
/// another host, does not subscribe, and its responses come through Redis. `None`: the kernel does
/// not identify the loopback interface.
pub(super) fn presence() -> Option<String> {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let network = std::fs::read_link("/proc/self/ns/net").ok()?;
    let port = in_namespace(PORT);
    Some(format!("RIBTIDE_ANSWERS_{port}_{}_{}", kernel.trim(), network.display()))
}

/// The end of orchagent.
///
/// Responses without room in the connection wait here, five bytes a route. Their number is bounded
/// by the rows of fpmsyncd without response: a stalled fpmsyncd writes no rows.
pub(super) struct ResponseSender {
    push: Push,
    /// Ends the connection attempts.
    stop: Stop,
    /// Messages without room.
    unsent: VecDeque<Vec<u8>>,
    /// Open messages: of responses, and of routes found in the chip.
    open: ResponseWriter,
    found: ResponseWriter,
    /// The deadline of open messages.
    due: Option<Instant>,
    /// Whether the connected fpmsyncd has the snapshot of the chip and gets responses.
    begun: bool,
}

impl ResponseSender {
    pub(super) fn start(rings: &Rings) -> Result<ResponseSender, Error> {
        let stop = Stop::default();
        let push = connect_responses(endpoint()?, rings, &stop)?;
        let [open, found] = [ResponseKind::Confirmed, ResponseKind::InChip].map(ResponseWriter::new);
        Ok(ResponseSender { push, stop, unsent: VecDeque::new(), open, found, due: None, begun: false })
    }

    /// Makes `select` ready when there may be room.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.push.wake_up().watch(select);
    }

    /// Messages without room.
    pub(super) fn unsent(&self) -> usize {
        self.unsent.len()
    }

    /// Whether an fpmsyncd is connected.
    pub(super) fn is_connected(&self) -> bool {
        self.push.is_connected()
    }

    /// Returns a newly connected fpmsyncd, once per connection. It gets nothing until [`ResponseSender::begin_subscription`].
    pub(super) fn new_subscriber(&mut self, orch: &Orch) -> Option<Subscriber> {
        if orch.restoring() {
            // The check that follows a wake-up. The state of the chip is unknown yet.
            let _ = self.push.wake_up().take();
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

    /// The deadline of open messages; see [`ResponseSender::look`].
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Sends waiting messages, and open ones unless `more` responses are under way. Drops all
    /// without a connection.
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

    /// Says what is refused, answers, and says of rows that were `found` that the chip has them. An
    /// fpmsyncd that is not connected yet gets the chip's routes when it connects.
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
            let mut message = ResponseWriter::new(ResponseKind::Refused);
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
                // The next connection begins with the routes in the chip.
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

impl Drop for ResponseSender {
    fn drop(&mut self) {
        self.stop.stop();
    }
}

fn take(open: &mut ResponseWriter) -> Vec<u8> {
    let empty = ResponseWriter::new(open.kind());
    std::mem::replace(open, empty).finish()
}

/// The VRF, prefix and protocol of a confirmed route; `None` for a row without a protocol, which no client waits for.
fn answered(confirmed: &Change<RouteStateRow>) -> Option<(Option<&Name>, AnyPrefix, &Name)> {
    let RouteKey::Route { vrf, prefix, .. } = &confirmed.key else { return None };
    let protocol = confirmed.row.as_ref()?.protocol.as_ref().filter(|protocol| !protocol.is_empty())?;
    Some((vrf.as_ref(), *prefix, protocol))
}

/// The messages with the routes in the chip.
fn in_chip(orch: &mut Orch) -> VecDeque<Vec<u8>> {
    let (mut messages, no_protocol) = (VecDeque::new(), Name::from(""));
    let mut message = ResponseWriter::new(ResponseKind::InChip);
    orch.in_chip(|vrf, prefix| {
        message.add(vrf, &no_protocol, prefix);
        if message.len() >= BATCH {
            let full = std::mem::replace(&mut message, ResponseWriter::new(ResponseKind::InChip));
            messages.push_back(full.finish());
        }
    });
    messages.extend([message.finish(), ResponseWriter::new(ResponseKind::SnapshotEnd).finish()]);
    messages
}

/// An event for fpmsyncd.
#[derive(Debug)]
pub(super) enum ReceivedResponse {
    /// A message of responses.
    Direct(Vec<u8>),
    /// A published response.
    Published(RouteResponse),
    /// Publications may have been lost; [`ResponseReceiver::rows`] has the routes in the chip.
    Missed,
}

/// The source of responses.
enum Source {
    /// None, since then. At `due` the presence of an orchagent is checked.
    None { since: Instant, due: Instant },
    /// The orchagent of this connection.
    Orchagent(u64),
    /// Publications in Redis.
    Redis(Published),
}

impl Source {
    /// No source, from now on.
    fn none() -> Source {
        let since = Instant::now();
        Source::None { since, due: since + SETTLE }
    }
}

/// The end of fpmsyncd. After its drop no response is received, and orchagent starts over with the
/// next one.
pub(super) struct ResponseReceiver {
    /// `None` if the port is not available.
    direct: Option<ResponseListener>,
    from: Source,
    rows: PlainTable<RouteStateRow>,
    state: Connection,
    /// The server of [`presence`].
    appl: Connection,
    presence: Option<String>,
    daemon: Daemon,
}

impl ResponseReceiver {
    pub(super) fn open(daemon: &Daemon) -> Result<ResponseReceiver, Error> {
        let direct = match listen_responses(&endpoint()?, &daemon.rings) {
            Ok(direct) => Some(direct),
            Err(e) => {
                tracing::warn!(target: target::FPMSYNCD, error = %e, "responses come through Redis only");
                None
            }
        };
        Ok(ResponseReceiver {
            direct,
            from: Source::none(),
            rows: daemon.plain()?,
            state: daemon.connect(Db::State)?,
            appl: daemon.connect(Db::Appl)?,
            presence: presence(),
            daemon: daemon.clone(),
        })
    }

    /// The active channel of responses, and why it is not the requested one.
    pub(super) fn channel(&self) -> (&'static str, &'static str) {
        match (&self.from, &self.direct) {
            (Source::Orchagent(_), _) => ("direct", ""),
            (Source::None { .. }, _) => ("no orchagent answers yet", ""),
            (Source::Redis(_), Some(_)) => ("through Redis", "orchagent is not there, or not ribtide's"),
            (Source::Redis(_), None) => ("through Redis", "the port of answers is taken; the log has more"),
        }
    }

    /// Whether responses are direct.
    pub(super) fn are_direct(&self) -> bool {
        matches!(self.from, Source::Orchagent(_))
    }

    /// Whether Redis is not used: an orchagent responds directly, may connect, or is present and
    /// will.
    pub(super) fn is_awaited(&self) -> bool {
        !matches!(self.from, Source::Redis(_))
    }

    /// Whether an orchagent is present that will connect.
    fn is_there(&mut self) -> bool {
        let Some(presence) = &self.presence else { return false };
        self.direct.is_some() && state_table::has_subscriber(&mut self.appl, presence).unwrap_or(false)
    }

    /// When [`ResponseReceiver::hear`] is to be called again without an event.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.from {
            Source::None { due, .. } => Some(due),
            _ => None,
        }
    }

    /// The next event.
    pub(super) fn hear(&mut self) -> Option<ReceivedResponse> {
        while let Some(event) = self.direct.as_ref().and_then(|direct| direct.events().try_recv()) {
            match event {
                ResponseEvent::Connected(id) => self.from = Source::Orchagent(id),
                ResponseEvent::Gone(id) if self.is_from(id) => self.from = Source::none(),
                ResponseEvent::Gone(_) => {}
                ResponseEvent::Message(id, message, taken) => {
                    taken.send();
                    if self.is_from(id) {
                        return Some(ReceivedResponse::Direct(message));
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

    /// Every route in APPL_STATE_DB.
    pub(super) fn rows(&mut self, mut each: impl FnMut(Option<&str>, AnyPrefix)) -> Result<(), Error> {
        Ok(self.rows.rows(|key, _| {
            if let RouteKey::Route { vrf, prefix, .. } = key {
                each(vrf.as_deref(), prefix);
            }
        })?)
    }

    /// Makes `select` ready when there may be room.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        if let Some(direct) = &self.direct {
            direct.events().watch(select);
        }
        if let Source::Redis(published) = &self.from {
            published.heard.watch(select);
        }
    }
}

/// A subscription to publications, until its drop.
struct Published {
    heard: ring::Receiver<ReceivedResponse>,
    stop: Stop,
}

impl Published {
    fn listen(daemon: &Daemon) -> Result<Published, Error> {
        let (confirmations, heard) = daemon.rings.bounded("published responses to fpmsyncd", PUBLISHED);
        let stop = Stop::default();
        let forward = move |heard: PubSubEvent<'_>| {
            let answer = match heard {
                PubSubEvent::Subscribed { .. } => ReceivedResponse::Missed,
                PubSubEvent::Message { payload, .. } => match RouteResponse::parse(payload) {
                    Ok(response) => ReceivedResponse::Published(response),
                    Err(e) => {
                        return tracing::warn!(target: target::FPMSYNCD, error = %e, "a response is passed over");
                    }
                },
            };
            // The receiver is gone: responses are direct, or the daemon stops.
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
