//! The transport between orchagent and syncd (`sairedis`): SONiC's communication modes, and orchagent's end.
//!
//! SONiC's synchronous modes have one request in flight. In `redis_async` SONiC's orchagent assumes SUCCESS for every
//! request. ribtide's asks for replies in this mode, too, with its first request, and has several bulks in flight; with a
//! syncd that does not know the request it assumes SUCCESS as SONiC's does.

use super::config_db::{ConfigDb, Switch};
use super::orch_stage::SyncdLink;
use super::settings::Settings;
use super::{Daemon, Error, refuse, syncd_generation};
use crossbeam_channel::Select;
use ribtide_runtime::log::target;
use ribtide_settings::{Mode, RequestedSettings};
use ribtide_swss::sai::{ObjectType, SaiCall, SaiReply, SaiRequest, Status, Verb, View, binary, text};
use ribtide_swss::{Db, json};
use ribtide_tables::zmq::{self, Endpoint};
use ribtide_tables::{EncodedRequest, Exchange, Message, PubSubEvent, WINDOW, listen, queue};
use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The counter of object numbers in ASIC_DB; without it the database is another one.
pub(super) const VIDCOUNTER: &str = "VIDCOUNTER";
/// The channel of ASIC_DB on which syncd speaks without being asked.
pub(super) const NOTIFICATIONS: &str = "NOTIFICATIONS";
/// What syncd says there when the switch is no longer what orchagent knows: SONiC's orchagent ends then.
pub(super) const SHUTDOWN_REQUEST: &str = "switch_shutdown_request";
/// Where syncd takes requests over ZeroMQ, if nothing else is said.
const PORT: u16 = 5555;
/// How long syncd may take for one request. SONiC gives up after a minute; a chip that stalls for as long is no reason to
/// describe everything again.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(300);
/// What orchagent adds to both steps of a view in `redis_async`, with a number that no other run has, and syncd of ours to its replies:
/// when each request is answered, which the first step asks for. SONiC's reads neither. A key of ASIC_DB, too: syncd was asked for
/// it last.
pub(super) const ANSWERS: &str = "RIBTIDE_ANSWERS";

/// The operation of a view's first and last step, and of the replies to them.
const VIEW_STEP: &str = "Snotify";

/// The setting of the mode, as `show pipeline --sonic` has it.
pub(super) const MODE: &str = "synchronous_mode";

/// What the command line asks for, `-z` or `-s`; if it asks for nothing, with `scripts` what CONFIG_DB asks for,
/// without them SONiC's default.
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

/// Requests that may be under way.
pub(super) fn window(mode: Mode) -> usize {
    match mode {
        Mode::RedisSync | Mode::ZmqSync => 1,
        Mode::RedisAsync | Mode::ZmqAsync => WINDOW,
    }
}

/// The endpoint of requests over ZeroMQ.
pub(super) fn endpoint(given: &str) -> Result<Endpoint, Error> {
    Endpoint::parse(given, PORT).map_err(Error::new)
}

/// What CONFIG_DB asks for.
fn config_asks(config: &mut ConfigDb) -> Result<Mode, Error> {
    Ok(match (config.requests_over_zmq()?, config.has(Switch::SynchronousMode)?) {
        (true, _) => Mode::ZmqSync,
        (false, true) => Mode::RedisSync,
        (false, false) => Mode::RedisAsync,
    })
}

/// CONFIG_DB may ask for another mode than the command line: both processes get theirs from SONiC's scripts, so the
/// command line counts, and the difference is shown.
pub(super) fn note(mode: Mode, config: &mut ConfigDb, settings: &mut Settings) -> Result<(), Error> {
    let asked = config_asks(config)?;
    let why = match asked == mode {
        true => "",
        false => {
            "-s and -z of the command line count, which SONiC's scripts set; --config-db does what they do"
        }
    };
    settings.note(MODE, asked, mode, why);
    Ok(())
}

/// What a `run` adds to the steps of a view.
pub(super) fn asked_by(run: u64) -> String {
    format!(r#"["{ANSWERS}","{run}"]"#)
}

/// The number of the run that asks for an answer to each request, in a step of its view and in the reply to that.
pub(super) fn run_of(message: &Message) -> Option<u64> {
    if message.op != VIEW_STEP {
        return None;
    }
    let fields = json::read_strings(&message.value)?;
    let [name, run] = &*fields else { return None };
    (name == ANSWERS).then(|| run.parse().ok()).flatten()
}

/// What a reply needs to be understood.
struct Waiting {
    id: u64,
    view: Option<View>,
    /// Of a view's step in `redis_async`.
    run: Option<u64>,
}

impl Waiting {
    /// Whether this is a late reply to a request of an earlier run. ribtide's syncd puts the run's number into the reply to a step of a
    /// view. A reply without a number is from SONiC's syncd, and may belong to any run.
    fn is_late(&self, message: &Message) -> bool {
        let run = run_of(message);
        self.view.is_some() != (message.op == VIEW_STEP) || (run.is_some() && run != self.run)
    }

    /// Whether this reply to it says that each request is answered.
    fn says_answers(&self, message: &Message) -> bool {
        self.view == Some(View::Init) && run_of(message).is_some()
    }
}

/// A reply, and whether it says that each request is answered.
type Understood = Result<(SaiReply, bool), Error>;

/// Begins to look whether syncd still has what it was told.
type Watch = Box<dyn FnOnce() -> Result<(), Error> + Send>;

/// orchagent's end.
pub(super) struct AsicTransport {
    exchange: Exchange<(SaiRequest, bool), Understood>,
    /// When a reply must be there to each request that is under way.
    waiting: VecDeque<Instant>,
    /// How long syncd may take to make the switch.
    create_switch: Duration,
    settings: Arc<Mutex<Settings>>,
    /// Whether syncd answers each request; known from its first reply on.
    answers: bool,
    assumed: Vec<SaiReply>,
    /// syncd does not have what it was told.
    shutdown: crossbeam_channel::Receiver<()>,
    /// To be begun when syncd has answered for the first time: only then the syncd of before is no longer meant.
    watch: Option<Watch>,
    /// What this run was asked to be: whether it can be that shows when syncd has answered for the first time.
    asked: RequestedSettings,
    /// What became of routes is answered.
    responses: Arc<AtomicBool>,
}

impl AsicTransport {
    pub(super) fn open(
        (asked, responses): (RequestedSettings, Arc<AtomicBool>),
        (mode, endpoint): (Mode, &Endpoint),
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
            let ask = move |(request, answered): (SaiRequest, bool)| question(&request, answered, run);
            let decode = |waiting: &Waiting, message: Message| {
                if waiting.is_late(&message) {
                    return None;
                }
                let reply = text::read_reply(waiting.id, &message.key, &message.value, &message.op);
                Some(reply.map(|reply| (reply, waiting.says_answers(&message))).map_err(unreadable))
            };
            queue::exchange(asic, VIDCOUNTER, rings, stop, ask, decode)?
        };
        let (shutdown_tx, shutdown) = crossbeam_channel::bounded(1);
        let notify = move || {
            // One is enough.
            let _ = shutdown_tx.try_send(());
        };
        let on_request = notify.clone();
        listen(asic, vec![NOTIFICATIONS.into()], stop, move |heard| {
            if matches!(heard, PubSubEvent::Message { payload, .. } if payload.contains(SHUTDOWN_REQUEST)) {
                on_request();
            }
        })?;
        let (asic, its_stop) = (daemon.connect(Db::Asic)?, stop.clone());
        let watch: Watch = Box::new(move || syncd_generation::watch(asic, &its_stop, notify));
        let answers = mode != Mode::RedisAsync;
        Ok(AsicTransport {
            exchange,
            waiting: VecDeque::new(),
            create_switch: create_switch.unwrap_or(REQUEST_TIMEOUT),
            settings,
            answers,
            assumed: Vec::new(),
            shutdown,
            watch: Some(watch),
            asked,
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

fn unreadable(why: impl fmt::Display) -> Error {
    Error::new(format!("syncd's answer cannot be read: {why}"))
}

/// A request as it goes over ZeroMQ, to a syncd of ours or another's. Over ZeroMQ each is answered.
fn encode((request, _): &(SaiRequest, bool), ours: bool, message: &mut Vec<u8>) {
    if !(ours && binary::write_bulk(request, message)) {
        message.extend(text::write_request(request).to_zmq().into_bytes());
    }
}

/// What came over ZeroMQ as the answer to request `id`.
fn decode(id: u64, message: &[u8]) -> Result<SaiReply, Error> {
    match binary::read_reply(id, message) {
        Some(reply) => reply.map_err(|_| unreadable("it is cut off")),
        None => text::read_zmq_reply(id, &String::from_utf8_lossy(message)).map_err(unreadable),
    }
}

/// A request as text; `answered` says that a reply to it will come. The steps of the view of a `run` bear its number.
fn question(request: &SaiRequest, answered: bool, run: Option<u64>) -> EncodedRequest<Waiting> {
    let mut message = text::write_request(request);
    let view = match request.call {
        SaiCall::View(step) => Some(step),
        _ => None,
    };
    let run = run.filter(|_| view.is_some());
    if let Some(run) = run {
        message.value = asked_by(run);
    }
    let pending = answered.then_some(Waiting { id: request.id, view, run });
    EncodedRequest { message, pending }
}

/// The reply that SONiC's asynchronous mode takes for given.
fn assume(request: &SaiRequest) -> Option<SaiReply> {
    match &request.call {
        SaiCall::One { .. } => Some(SaiReply::one(request.id, Status::Success)),
        SaiCall::Bulk { items, .. } => Some(SaiReply::bulk(request.id, vec![Status::Success; items.len()])),
        SaiCall::Get { .. } | SaiCall::Available { .. } | SaiCall::View(_) => None,
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
                // Its reason comes with the replies.
                break;
            }
        }
        Ok(())
    }

    fn replies(&mut self, replies: &mut Vec<SaiReply>) -> Result<(), Error> {
        if self.shutdown.try_recv().is_ok() {
            return Err(Error::new(
                "syncd was started again and does not have what it was told; start orchagent again, so that it describes \
                 the switch again",
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
            refuse(&RequestedSettings { syncd_answers: Some(self.answers), responses, ..self.asked })?;
            // Its first reply says it.
            if !self.answers {
                let why = "syncd is not ribtide's and answers none";
                let mut settings = self.settings.lock().unwrap_or_else(PoisonError::into_inner);
                settings.now(MODE, "redis_async, and each request is believed", why)?;
            }
            replies.push(reply);
        }
        match self.waiting.front() {
            Some(due) if *due <= Instant::now() => Err(Error::new(
                "syncd did not answer in time; see whether it runs, in the same mode (-s, -z), on the same ASIC_DB; making the \
                 switch may take as long as -t says, all else five minutes",
            )),
            _ => Ok(()),
        }
    }

    fn under_way(&self) -> usize {
        self.waiting.len()
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.exchange.replies.watch(select);
        select.recv(&self.shutdown);
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
            let EncodedRequest { message, pending } = question(&step(view), true, Some(7));
            let waiting = pending.unwrap();
            assert_eq!(run_of(&message), Some(7), "{view:?}");
            assert!(!waiting.is_late(&reply(&asked_by(7))), "{view:?}");
            assert!(waiting.is_late(&reply(&asked_by(8))), "{view:?}");
            let other = Message { op: "Sgetresponse".into(), ..reply("[]") };
            assert!(waiting.is_late(&other), "{view:?}");
        }
    }

    /// SONiC's syncd puts no number into its replies, whatever ours left in ASIC_DB before it.
    #[test]
    fn a_syncd_that_knows_no_numbers_is_heard_and_answers_nothing_else() {
        for view in [View::Init, View::Apply] {
            let waiting = question(&step(view), true, Some(7)).pending.unwrap();
            assert!(!waiting.is_late(&reply("[]")), "{view:?}");
            assert!(!waiting.says_answers(&reply("[]")), "{view:?}");
        }
        let [init, apply] = [View::Init, View::Apply].map(|view| question(&step(view), true, Some(7)));
        assert!(init.pending.unwrap().says_answers(&reply(&asked_by(7))));
        assert!(!apply.pending.unwrap().says_answers(&reply(&asked_by(7))));
    }

    #[test]
    fn without_a_number_of_its_own_a_run_puts_none_into_its_view() {
        let EncodedRequest { message, pending } = question(&step(View::Init), true, None);
        assert_eq!(run_of(&message), None);
        assert!(!pending.unwrap().is_late(&reply("[]")));
    }
}
