//! The transport between orchagent and syncd (`sairedis`): SONiC's communication modes, and orchagent's end.
//!
//! SONiC's synchronous modes have one request in flight. In `redis_async` SONiC's orchagent assumes SUCCESS for every
//! request. ribtide's asks for replies in this mode, too, with its first request, and has several bulks in flight; with a
//! syncd that does not know the request it assumes SUCCESS as SONiC's does.

use super::config_db::{ConfigDb, Switch};
use super::orch_stage::SyncdLink;
use super::port_reports::{self, PortReportReceiver, PortReportSender, PortReports};
use super::settings::Settings;
use super::{Daemon, Error, refuse, syncd_generation};
use crossbeam_channel::Select;
use ribtide_runtime::log::target;
use ribtide_runtime::wake_up::{self, WakeUp};
use ribtide_settings::{Mode, RequestedSettings};
use ribtide_swss::sai::{
    ObjectType, Query, SaiCall, SaiReply, SaiRequest, Status, Verb, View, binary, notification, text,
};
use ribtide_swss::{Db, json};
use ribtide_tables::zmq::{self, Endpoint};
use ribtide_tables::{EncodedRequest, Exchange, Message, PubSubEvent, WINDOW, listen, queue};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The counter of object ids in ASIC_DB; without it the database is another one.
pub(super) const VIDCOUNTER: &str = "VIDCOUNTER";
/// The channel of ASIC_DB for notifications of syncd.
pub(super) const NOTIFICATIONS: &str = "NOTIFICATIONS";
/// The notification that the switch lost its objects; SONiC's orchagent exits then.
pub(super) const SHUTDOWN_REQUEST: &str = "switch_shutdown_request";
/// The default endpoint of syncd for requests over ZeroMQ.
const PORT: u16 = 5555;
/// Timeout of a request. SONiC has one minute; a longer stall of a chip is no reason to describe
/// everything again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);
/// The field that ribtide's orchagent adds to both steps of a view in `redis_async`, with a number
/// that identifies the run, and that ribtide's syncd adds to its replies. It requests a reply to
/// each request; the first step carries it. SONiC's daemons ignore it. Also a key of ASIC_DB: the
/// last syncd got the request.
pub(super) const ANSWERS: &str = "RIBTIDE_ANSWERS";

/// The operation of a view's first and last step, and of the replies to them.
const VIEW_STEP: &str = "Snotify";

/// The name of the setting in `show pipeline --sonic`.
pub(super) const MODE: &str = "synchronous_mode";

/// The mode of the command line, `-z` or `-s`; otherwise with `scripts` that of CONFIG_DB, and else
/// the default of SONiC.
pub(super) fn mode_of(
    synchronous: bool,
    mode: Option<Mode>,
    scripts: bool,
    config: &mut ConfigDb,
) -> Result<Mode, Error> {
    Ok(match mode {
        Some(mode) => mode,
        None if synchronous => Mode::RedisSync,
        None if scripts => config_asks(config)?,
        None => Mode::RedisAsync,
    })
}

/// Requests in flight at most.
pub(super) fn window(mode: Mode) -> usize {
    match mode {
        Mode::RedisSync | Mode::ZmqSync => 1,
        Mode::RedisAsync | Mode::ZmqAsync => WINDOW,
    }
}

/// The endpoint of requests over ZeroMQ.
pub(super) fn endpoint(given: &str) -> Result<Endpoint, Error> {
    Endpoint::parse(given, PORT).map_err(Error::Configuration)
}

/// The mode in CONFIG_DB.
fn config_asks(config: &mut ConfigDb) -> Result<Mode, Error> {
    Ok(match (config.requests_over_zmq()?, config.has(Switch::SynchronousMode)?) {
        (true, _) => Mode::ZmqSync,
        (false, true) => Mode::RedisSync,
        (false, false) => Mode::RedisAsync,
    })
}

/// CONFIG_DB may have another mode than the command line. SONiC's scripts pass the mode to both
/// daemons, so the command line counts, and the difference is shown.
pub(super) fn note(mode: Mode, config: &mut ConfigDb, settings: &mut Settings) -> Result<(), Error> {
    let configured = config_asks(config)?;
    let why = match configured == mode {
        true => "",
        false => {
            "-s and -z of the command line count, which SONiC's scripts set; --config-db does what they do"
        }
    };
    settings.note(MODE, configured, mode, why);
    Ok(())
}

/// The field of a `run` in the steps of a view.
pub(super) fn run_field(run: u64) -> String {
    format!(r#"["{ANSWERS}","{run}"]"#)
}

/// The number of the run that requests a reply to each request, in a step of its view and in the
/// reply.
pub(super) fn run_of(message: &Message) -> Option<u64> {
    if message.op != VIEW_STEP {
        return None;
    }
    let fields = json::read_strings(&message.value)?;
    let [name, run] = &*fields else { return None };
    (name == ANSWERS).then(|| run.parse().ok()).flatten()
}

/// The context that decodes a reply.
struct Waiting {
    id: u64,
    view: Option<View>,
    /// The run, for a step of a view in `redis_async`.
    run: Option<u64>,
}

impl Waiting {
    /// Whether this is a late reply to a request of an earlier run. ribtide's syncd puts the run's number into the reply to a step of a
    /// view. A reply without a number is from SONiC's syncd, and may belong to any run.
    fn is_late(&self, message: &Message) -> bool {
        let run = run_of(message);
        self.view.is_some() != (message.op == VIEW_STEP) || (run.is_some() && run != self.run)
    }

    /// Whether the reply announces a reply to each request.
    fn says_answers(&self, message: &Message) -> bool {
        self.view == Some(View::Init) && run_of(message).is_some()
    }
}

/// A reply, and whether it announces a reply to each request.
type Understood = Result<(SaiReply, bool), Error>;

/// Starts the watch for a loss of objects in syncd.
type Watch = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// The end of orchagent.
pub(super) struct AsicTransport {
    exchange: Exchange<(SaiRequest, bool), Understood>,
    /// The deadlines of requests in flight.
    waiting: VecDeque<Instant>,
    /// The timeout for the creation of the switch.
    create_switch: Duration,
    settings: Arc<Mutex<Settings>>,
    /// Whether syncd replies to each request; known from its first reply.
    answers: bool,
    assumed: Vec<SaiReply>,
    /// Receives a notification that syncd lost objects.
    shutdown: WakeUp,
    /// The link states that syncd reports.
    reports: PortReportReceiver,
    /// The watch, which starts at the first reply: earlier notifications are about the former
    /// syncd.
    watch: Option<Watch>,
    /// The requested settings. The first reply of syncd shows whether they work.
    requested: RequestedSettings,
    /// Whether responses are sent to fpmsyncd.
    responses: Arc<AtomicBool>,
}

impl AsicTransport {
    pub(super) fn open(
        (requested, responses): (RequestedSettings, Arc<AtomicBool>),
        (mode, endpoint, notifications): (Mode, &Endpoint, Option<(&Endpoint, bool)>),
        create_switch: Option<Duration>,
        settings: Arc<Mutex<Settings>>,
        daemon: &Daemon,
    ) -> Result<AsicTransport, Error> {
        let Daemon { databases, rings, stop, .. } = daemon;
        let asic = databases.get(Db::Asic);
        let exchange = if mode.is_zmq() {
            zmq::exchange(endpoint, rings, stop, encode, |(request, _): &(SaiRequest, bool), message| {
                Some(decode(request.id, message).map(|reply| (reply, true)))
            })?
        } else {
            let run = (mode == Mode::RedisAsync).then(syncd_generation::of_this_run);
            let encode =
                move |(request, answered): (SaiRequest, bool)| encode_request(&request, answered, run);
            let decode = |waiting: &Waiting, message: Message| {
                if waiting.is_late(&message) {
                    return None;
                }
                let reply = text::read_reply(waiting.id, &message.key, &message.value, &message.op);
                Some(reply.map(|reply| (reply, waiting.says_answers(&message))).map_err(unreadable))
            };
            queue::exchange(asic, VIDCOUNTER, rings, stop, encode, decode)?
        };
        let (waker, shutdown) = wake_up::pair();
        let on_request = waker.clone();
        let (report, reports) = port_reports::pair();
        let over_zmq = report.clone();
        // Before the first request, so that no report is missed.
        listen(asic, vec![NOTIFICATIONS.into()], stop, move |heard| match heard {
            PubSubEvent::Message { payload, .. } if payload.contains(SHUTDOWN_REQUEST) => on_request.wake(),
            PubSubEvent::Message { payload, .. } => take_notification(payload, &report),
            // A channel keeps no message for an absent subscriber.
            PubSubEvent::Subscribed { again: true } => report.lost(),
            PubSubEvent::Subscribed { again: false } => {}
        })?;
        if let Some((endpoint, required)) = notifications.filter(|_| mode.is_zmq()) {
            let listening = zmq::listen_notifications(endpoint, stop, move |message| match message {
                Some(message) => take_notification(&String::from_utf8_lossy(message), &over_zmq),
                None => over_zmq.lost(),
            });
            match listening {
                Err(e) if required => return Err(e.into()),
                // ribtide's syncd needs no such listener.
                Err(e) => {
                    tracing::warn!(target: target::ORCHAGENT, error = %e, "notifications of SONiC's syncd over ZeroMQ are not heard; --zmq-notifications names another endpoint")
                }
                Ok(()) => {}
            }
        }
        let (asic, its_stop) = (daemon.connect(Db::Asic)?, stop.clone());
        let watch: Watch = Box::new(move || syncd_generation::watch(asic, &its_stop, move || waker.wake()));
        let answers = mode != Mode::RedisAsync;
        Ok(AsicTransport {
            exchange,
            waiting: VecDeque::new(),
            create_switch: create_switch.unwrap_or(REQUEST_TIMEOUT),
            settings,
            answers,
            assumed: Vec::new(),
            shutdown,
            reports,
            watch: Some(watch),
            requested,
            responses,
        })
    }
}

impl AsicTransport {
    fn request_timeout(&self, request: &SaiRequest) -> Duration {
        match request.call {
            SaiCall::One { verb: Verb::Create, object: ObjectType::Switch, .. } => self.create_switch,
            _ => REQUEST_TIMEOUT,
        }
    }
}

/// Passes on the link states of a notification; others are for other listeners.
fn take_notification(message: &str, reports: &PortReportSender) {
    match notification::read_port_state_change(message) {
        Some(Ok(states)) => reports.send(&states),
        Some(Err(why)) => {
            tracing::warn!(target: target::ORCHAGENT, reason = %why, "a notification of syncd cannot be read; the link states are read instead");
            reports.lost();
        }
        None => {}
    }
}

fn unreadable(why: impl fmt::Display) -> Error {
    Error::Peer(format!("syncd's answer cannot be read: {why}"))
}

/// Encodes a request for ZeroMQ, to ribtide's or another syncd. Each has a reply.
fn encode((request, _): &(SaiRequest, bool), ours: bool, message: &mut Vec<u8>) {
    if !(ours && binary::write_bulk(request, message)) {
        message.extend(text::write_request(request).to_zmq().into_bytes());
    }
}

/// Decodes the reply to request `id` from ZeroMQ.
fn decode(id: u64, message: &[u8]) -> Result<SaiReply, Error> {
    match binary::read_reply(id, message) {
        Some(reply) => reply.map_err(|_| unreadable("it is cut off")),
        None => text::read_zmq_reply(id, &String::from_utf8_lossy(message)).map_err(unreadable),
    }
}

/// Formats a request; `answered`: it has a reply. The steps of the view of a `run` carry its
/// number.
fn encode_request(request: &SaiRequest, answered: bool, run: Option<u64>) -> EncodedRequest<Waiting> {
    let mut message = text::write_request(request);
    let view = match request.call {
        SaiCall::View(step) => Some(step),
        _ => None,
    };
    let run = run.filter(|_| view.is_some());
    if let Some(run) = run {
        message.value = run_field(run);
    }
    let pending = answered.then_some(Waiting { id: request.id, view, run });
    EncodedRequest { message, pending }
}

/// The reply that SONiC's asynchronous mode assumes.
fn assume(request: &SaiRequest) -> Option<SaiReply> {
    match &request.call {
        SaiCall::One { .. } => Some(SaiReply::one(request.id, Status::Success)),
        SaiCall::Bulk { items, .. } => Some(SaiReply::bulk(request.id, vec![Status::Success; items.len()])),
        SaiCall::Entries { items, bulk, .. } => Some(match bulk {
            true => SaiReply::bulk(request.id, vec![Status::Success; items.len()]),
            false => SaiReply::one(request.id, Status::Success),
        }),
        SaiCall::Query(Query::Poll { .. }) => Some(SaiReply::one(request.id, Status::Success)),
        SaiCall::Get { .. }
        | SaiCall::BulkGet { .. }
        | SaiCall::GetEntry { .. }
        | SaiCall::Query(_)
        | SaiCall::Available { .. }
        | SaiCall::View(_) => None,
    }
}

impl SyncdLink for AsicTransport {
    fn send(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        for request in requests.drain(..) {
            let assumed = assume(&request).filter(|_| !self.answers);
            let answered = assumed.is_none();
            match assumed {
                Some(reply) => self.assumed.push(reply),
                None => self.waiting.push_back(Instant::now() + self.request_timeout(&request)),
            }
            if self.exchange.requests.send((request, answered)).is_err() {
                // The reason comes with the replies.
                break;
            }
        }
        Ok(())
    }

    fn replies(&mut self, replies: &mut Vec<SaiReply>) -> Result<(), Error> {
        if self.shutdown.take() == Ok(true) {
            return Err(Error::Peer(
                "syncd was started again and does not have what it was told; start orchagent again, so that it describes \
                 the switch again".into(),
            ));
        }
        replies.append(&mut self.assumed);
        while let Some(heard) = self.exchange.replies.try_recv() {
            let (reply, answers) = heard??;
            self.waiting.pop_front();
            self.watch.take().map_or(Ok(()), |watch| watch())?;
            if answers && !std::mem::replace(&mut self.answers, true) {
                tracing::info!(target: target::ORCHAGENT, "syncd replies to each request");
            }
            let responses = Some(self.responses.load(Relaxed));
            refuse(&RequestedSettings { syncd_answers: Some(self.answers), responses, ..self.requested })?;
            // The first reply shows it.
            if !self.answers {
                let why = "syncd is not ribtide's and answers none";
                let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
                settings.now(MODE, "redis_async, and each request is believed", why);
            }
            replies.push(reply);
        }
        match self.waiting.front() {
            Some(due) if *due <= Instant::now() => Err(Error::Peer(
                "syncd did not answer in time; see whether it runs, in the same mode (-s, -z), on the same ASIC_DB; making the \
                 switch may take as long as -t says, all else five minutes".into(),
            )),
            _ => Ok(()),
        }
    }

    fn port_reports(&mut self) -> PortReports {
        self.reports.take()
    }

    fn under_way(&self) -> usize {
        self.waiting.len()
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.exchange.replies.watch(select);
        self.shutdown.watch(select);
        self.reports.watch(select);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(view: View) -> SaiRequest {
        SaiRequest { id: 1, call: SaiCall::View(view) }
    }

    fn reply(value: &str) -> Message {
        Message { key: "SAI_STATUS_SUCCESS".into(), value: value.into(), op: VIEW_STEP.into() }
    }

    #[test]
    fn the_reply_to_another_ones_view_is_late() {
        for view in [View::Init, View::Apply] {
            let EncodedRequest { message, pending } = encode_request(&step(view), true, Some(7));
            let waiting = pending.unwrap();
            assert_eq!(run_of(&message), Some(7), "{view:?}");
            assert!(!waiting.is_late(&reply(&run_field(7))), "{view:?}");
            assert!(waiting.is_late(&reply(&run_field(8))), "{view:?}");
            let other = Message { op: "Sgetresponse".into(), ..reply("[]") };
            assert!(waiting.is_late(&other), "{view:?}");
        }
    }

    /// Replies of SONiC's syncd have no number, whatever an earlier syncd left in ASIC_DB.
    #[test]
    fn a_syncd_that_knows_no_numbers_is_heard_and_answers_nothing_else() {
        for view in [View::Init, View::Apply] {
            let waiting = encode_request(&step(view), true, Some(7)).pending.unwrap();
            assert!(!waiting.is_late(&reply("[]")), "{view:?}");
            assert!(!waiting.says_answers(&reply("[]")), "{view:?}");
        }
        let [init, apply] = [View::Init, View::Apply].map(|view| encode_request(&step(view), true, Some(7)));
        assert!(init.pending.unwrap().says_answers(&reply(&run_field(7))));
        assert!(!apply.pending.unwrap().says_answers(&reply(&run_field(7))));
    }

    #[test]
    fn without_a_number_of_its_own_a_run_puts_none_into_its_view() {
        let EncodedRequest { message, pending } = encode_request(&step(View::Init), true, None);
        assert_eq!(run_of(&message), None);
        assert!(!pending.unwrap().is_late(&reply("[]")));
    }
}
