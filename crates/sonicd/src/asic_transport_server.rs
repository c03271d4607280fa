//! syncd's end of the transport to orchagent. One thread reads and decodes requests while the chip works on earlier ones,
//! and another encodes replies.

use super::asic_db::AsicDb;
use super::asic_transport::{ANSWERS, MODE, asked_by, run_of};
use super::settings::Settings;
use super::syncd_stage::OrchLink;
use super::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self};
use ribtide_runtime::thread::{self, Stop};
use ribtide_settings::{Mode, Persistence};
use ribtide_swss::sai::text::{self, Answers};
use ribtide_swss::sai::{SaiCall, SaiReply, SaiRequest, Status, View, binary};
use ribtide_swss::syncd::SyncdOut;
use ribtide_swss::{Db, json};
use ribtide_tables::queue::{self, QueueWriter};
use ribtide_tables::zmq::{self, Endpoint, ReplySender, Resent};
use ribtide_tables::{Connection, Database, Message, ReaderThread, TableError};
use std::collections::VecDeque;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ASIC_STATE: &str = "ASIC_STATE";
/// How long nothing must come before nothing is on the way.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(200);
/// Why requests are not answered in `redis_async`.
const UNASKED: &str = "orchagent is not ribtide's and does not ask for answers";
/// Requests and replies that may wait.
const WAITING: usize = 64;

/// What came.
struct Incoming {
    what: Result<SaiRequest, Refusal>,
    /// In `redis_async`, with a view's step: the run that asks for an answer to each request.
    run: Option<u64>,
    /// It may have been carried out before, and its answer was lost.
    again: Resent,
}

/// What is no request of the route path is answered all the same, so that who asked does not wait for ever.
struct Refusal {
    why: String,
    reply: Message,
    /// A query, whose reply orchagent waits for in every mode.
    query: bool,
}

/// Where requests come from.
enum Requests {
    Redis(ring::Receiver<Result<Incoming, TableError>>),
    Zmq(ring::Receiver<(Incoming, ReplySender)>),
}

/// The channel that a reply goes back on.
enum ReplyChannel {
    Redis,
    Zmq(ReplySender),
}

/// A reply before it is encoded.
enum Reply {
    Done(SaiReply, Kind),
    Refused(Message),
    /// No reply: orchagent does not wait for one.
    Silence,
}

/// What a request waits for.
enum Due {
    /// The machine, which knows it under this number.
    Reply { id: u64, kind: Kind, owed: bool },
    /// Nothing but those before it.
    Refusal { reply: Message, query: bool },
}

/// What a reply answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A change.
    Change,
    /// A query, whose answer is waited for in every mode.
    Get,
    /// Another one: what still fits.
    Available,
    /// The first step of a view, and the run that wanted to know whether each request is answered.
    Init { run: Option<u64> },
    /// The last one, of that run.
    Apply { run: Option<u64> },
}

/// orchagent, and ASIC_DB.
pub(super) struct AsicTransportServer {
    requests: Requests,
    /// The thread that takes them from Redis.
    reader: Option<ReaderThread>,
    /// Wakes it.
    asic: Database,
    /// None only while it ends.
    replies: Option<ring::Sender<(ReplyChannel, Reply)>>,
    replier: Option<JoinHandle<()>>,
    /// Nothing came since then, while it ends.
    silent: Option<Instant>,
    stop: Stop,
    failed: crossbeam_channel::Receiver<TableError>,
    /// Requests in flight, each with the channel of its reply.
    under_way: VecDeque<(ReplyChannel, Due)>,
    taken: u64,
    /// No orchagent began a view since the start: one may ask what it asked an earlier syncd.
    heir: bool,
    /// Whether replies are sent to requests that only make changes: in `redis_async` only when that was asked for.
    answers: bool,
    /// Where a syncd that is started again finds that it was; only in `redis_async`.
    asked: Option<Connection>,
    rows: AsicDb,
    in_line: bool,
    settings: Settings,
}

impl AsicTransportServer {
    pub(super) fn open(
        (mode, endpoint): (Mode, &Endpoint),
        persistence: Persistence,
        rows: AsicDb,
        mut settings: Settings,
        daemon: &Daemon,
    ) -> Result<AsicTransportServer, Error> {
        let Daemon { databases, rings, stop, .. } = daemon;
        let asic = databases.get(Db::Asic);
        let (replies, waiting) = rings.bounded::<(ReplyChannel, Reply)>("replies to orchagent", WAITING);
        let (failing, failed) = crossbeam_channel::bounded(1);
        let (requests, reader, mut writer) = if mode.is_zmq() {
            let read = |message: &[u8], again| Incoming { what: read_zmq(message), run: None, again };
            queue::forget(&mut daemon.connect(Db::Asic)?)?;
            (Requests::Zmq(zmq::serve(endpoint, rings, stop, read)?), None, None)
        } else {
            let writer = QueueWriter::open(asic, "GETRESPONSE", stop)?;
            let (requests, reader) = queue::serve(asic, ASIC_STATE, rings, stop, |request| {
                let queue::Request { message, redelivered } = request;
                let request = text::read_request(0, &message.key, &message.value, &message.op);
                let what = request.map_err(|e| refusal(&message.key, &message.op, e.to_string()));
                let again = if redelivered { Resent::Elsewhere } else { Resent::No };
                Incoming { what, run: run_of(&message), again }
            })?;
            (Requests::Redis(requests), Some(reader), Some(writer))
        };
        let mut asked = match mode {
            Mode::RedisAsync => Some(daemon.connect(Db::Asic)?),
            _ => None,
        };
        let answers = match &mut asked {
            Some(asked) => asked.query(&["EXISTS", ANSWERS])? == ribtide_tables::Reply::Integer(1),
            None => true,
        };
        let body = move || {
            let mut bytes = Vec::new();
            loop {
                let on_idle = || {
                    bytes = Vec::new();
                    writer.iter_mut().for_each(QueueWriter::shrink_to_fit);
                };
                let Ok(first) = waiting.recv_or_idle(on_idle) else { return };
                for (channel, reply) in
                    std::iter::once(first).chain(std::iter::from_fn(|| waiting.try_recv()))
                {
                    // An orchagent that describes the switch again takes no reply to an earlier request.
                    let init = matches!(reply, Reply::Done(_, Kind::Init { .. }));
                    match (channel, &mut writer) {
                        (ReplyChannel::Zmq(answer), _) => {
                            bytes.clear();
                            if encode_zmq(reply, answer.ours, &mut bytes) {
                                answer.send(&bytes);
                            }
                        }
                        (ReplyChannel::Redis, Some(writer)) => match encode(reply) {
                            Some(message) if init => writer.reply_and_forget(&message),
                            message => writer.reply(message.as_ref()),
                        },
                        (ReplyChannel::Redis, None) => {}
                    }
                }
                if let Some(Err(e)) = writer.as_mut().map(QueueWriter::flush) {
                    let _ = failing.send(e);
                    return;
                }
            }
        };
        let replier = thread::spawn("asic-replies", body);
        let replier = replier.map_err(|e| Error::new(format!("no thread for replies: {e}")))?;
        settings.write()?;
        Ok(AsicTransportServer {
            requests,
            reader,
            asic: asic.clone(),
            replies: Some(replies),
            replier: Some(replier),
            silent: None,
            stop: stop.clone(),
            failed,
            under_way: VecDeque::new(),
            taken: 0,
            heir: true,
            answers,
            asked,
            rows,
            in_line: persistence == Persistence::InLine,
            settings,
        })
    }

    fn take(
        &mut self,
        incoming: Incoming,
        channel: ReplyChannel,
        requests: &mut Vec<SaiRequest>,
    ) -> Result<(), Error> {
        match incoming.what {
            Ok(mut request) => {
                self.taken += 1;
                request.id = self.taken;
                let kind = match request.call {
                    SaiCall::View(View::Init) => {
                        self.heir = false;
                        let answers = incoming.run.is_some();
                        if let Some(asked) = self.asked.as_mut().filter(|_| self.answers != answers) {
                            self.answers = answers;
                            let says = if answers { &["SET", ANSWERS, "1"][..] } else { &["DEL", ANSWERS] };
                            asked.query(says)?;
                        }
                        if self.asked.is_some() {
                            let (active, why) = match answers {
                                true => ("redis_async", ""),
                                false => ("redis_async, and no request is answered", UNASKED),
                            };
                            self.settings.now(MODE, active, why)?;
                        }
                        Kind::Init { run: incoming.run }
                    }
                    SaiCall::View(View::Apply) => Kind::Apply { run: incoming.run },
                    SaiCall::Get { .. } => Kind::Get,
                    SaiCall::Available { .. } => Kind::Available,
                    _ => Kind::Change,
                };
                let owed = match incoming.again {
                    Resent::No => false,
                    Resent::Elsewhere => self.heir,
                    Resent::Here => true,
                };
                let due = Due::Reply { id: request.id, kind, owed };
                self.under_way.push_back((channel, due));
                requests.push(request);
            }
            Err(Refusal { why, reply, query }) => {
                tracing::error!(target: target::SYNCD, reason = %why, "a request is refused");
                self.under_way.push_back((channel, Due::Refusal { reply, query }));
                self.refuse();
            }
        }
        Ok(())
    }

    /// Answers what was refused, up to the first request that the machine has not answered.
    fn refuse(&mut self) {
        while let Some((channel, due)) = self.under_way.pop_front() {
            match due {
                Due::Refusal { reply, query } if self.answers || query => {
                    self.reply(channel, Reply::Refused(reply))
                }
                Due::Refusal { .. } => self.reply(channel, Reply::Silence),
                Due::Reply { .. } => return self.under_way.push_front((channel, due)),
            }
        }
    }
}

impl AsicTransportServer {
    fn reply(&self, channel: ReplyChannel, reply: Reply) {
        if let Some(replies) = &self.replies {
            // The thread that sends it says itself why it ended.
            let _ = replies.send((channel, reply));
        }
    }

    fn is_empty(&self) -> bool {
        match &self.requests {
            Requests::Redis(requests) => requests.is_empty(),
            Requests::Zmq(requests) => requests.is_empty(),
        }
    }
}

/// The answer to what cannot be read, of the form that was expected as far as that can be told.
fn refusal(key: &str, op: &str, why: String) -> Refusal {
    let status = Status::NotSupported.name();
    let objects = match key.rsplit_once(':') {
        Some((_, count)) if op.contains("bulk") => count.parse().unwrap_or(0),
        _ => 0,
    };
    let fields = vec![format!("\"{status}\",\"\""); objects].join(",");
    let op = op.strip_prefix(['S', 'D']).unwrap_or(op);
    // SONiC's orchagent passes over what is not called as it expects, and waits on for a minute.
    let (query, reply_op) = match op {
        "notify" => (true, "Snotify".into()),
        "flush" => (true, "Sflushresponse".into()),
        _ => match op.strip_suffix("_query") {
            Some(what) => (true, format!("S{what}_response").into()),
            None => (op.contains("get") || op == "clear_stats", "Sgetresponse".into()),
        },
    };
    let reply = Message { key: status.into(), value: format!("[{fields}]"), op: reply_op };
    Refusal { why, reply, query }
}

/// A request that came over ZeroMQ.
fn read_zmq(message: &[u8]) -> Result<SaiRequest, Refusal> {
    if let Some(bulk) = binary::read_bulk(0, message) {
        return bulk.map_err(|_| refusal("", "", "a bulk of routes that is cut off".into()));
    }
    let message = String::from_utf8_lossy(message);
    text::read_zmq_request(0, &message).map_err(|e| {
        let parts = json::read_strings(&message).unwrap_or_default();
        let part = |n: usize| parts.get(n).map_or("", |part| part);
        refusal(part(0), part(1), e.to_string())
    })
}

/// Appends a reply as it goes over ZeroMQ, to an orchagent of ours or another's; false where there is none.
fn encode_zmq(reply: Reply, ours: bool, out: &mut Vec<u8>) -> bool {
    if let Reply::Done(reply, Kind::Change) = &reply
        && ours
        && binary::write_reply(reply, out)
    {
        return true;
    }
    let message = encode(reply);
    out.extend(message.iter().flat_map(|message| message.to_zmq().into_bytes()));
    message.is_some()
}

fn encode(reply: Reply) -> Option<Message> {
    Some(match reply {
        Reply::Silence => return None,
        Reply::Refused(message) => message,
        Reply::Done(reply, kind) => {
            let answers = match kind {
                Kind::Change | Kind::Get => Answers::Request,
                Kind::Available => Answers::Availability,
                Kind::Init { .. } | Kind::Apply { .. } => Answers::View,
            };
            let message = text::write_reply(&reply, answers);
            match kind {
                Kind::Init { run: Some(run) } | Kind::Apply { run: Some(run) } => {
                    Message { value: asked_by(run), ..message }
                }
                _ => message,
            }
        }
    })
}

impl OrchLink for AsicTransportServer {
    fn requests(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        if let Ok(e) = self.failed.try_recv() {
            return Err(e.into());
        }
        // One at a time: its reply leaves before the next one is begun.
        let came = match &self.requests {
            Requests::Redis(requests) => {
                requests.try_recv().transpose()?.map(|incoming| (incoming, ReplyChannel::Redis))
            }
            Requests::Zmq(requests) => {
                requests.try_recv().map(|(incoming, answer)| (incoming, ReplyChannel::Zmq(answer)))
            }
        };
        if let Some((incoming, channel)) = came {
            self.take(incoming, channel, requests)?;
        }
        Ok(())
    }

    fn answer(&mut self, out: &mut SyncdOut) -> Result<(), Error> {
        // In line means that what is answered as done has its row.
        if self.in_line {
            self.rows.write(std::mem::take(&mut out.rows))?;
        }
        for reply in out.replies.drain(..) {
            let Some((channel, Due::Reply { kind, .. })) = self.under_way.pop_front() else { continue };
            if !self.answers && kind == Kind::Change {
                self.reply(channel, Reply::Silence);
                if !reply.status.is_success() {
                    // The next syncd must not try it again.
                    self.finish()?;
                    return Err(Error::new(format!(
                        "the switch answered {} in redis_async, where orchagent cannot be told; start syncd and orchagent \
                         again, both with -s",
                        reply.status.name()
                    )));
                }
            } else {
                self.reply(channel, Reply::Done(reply, kind));
            }
            self.refuse();
        }
        self.rows.write(std::mem::take(&mut out.rows))
    }

    fn is_owed(&self, request: &SaiRequest) -> bool {
        let is = |due: &Due| matches!(due, Due::Reply { id, owed: true, .. } if *id == request.id);
        self.under_way.iter().any(|(_, due)| is(due))
    }

    fn wants_all_rows(&mut self) -> Result<bool, Error> {
        self.rows.is_lost()
    }

    fn rows(&self) -> (u64, u64) {
        self.rows.progress()
    }

    fn close(&mut self) -> Result<bool, Error> {
        // Over ZeroMQ no client can be made to wait: orchagent stands still, so what comes is what is on the way.
        if !self.is_empty() {
            self.silent = None;
        }
        let silent = self.silent.get_or_insert_with(Instant::now).elapsed() >= SILENCE_TIMEOUT;
        let Some(reader) = &self.reader else { return Ok(silent && self.is_empty()) };
        reader.end();
        if !reader.has_ended() {
            // What the queue holds then is the next syncd's.
            let channel = queue::channel(&self.asic, ASIC_STATE);
            Connection::open(&self.asic, &self.stop)?.query(&["PUBLISH", &channel, "G"])?;
        }
        Ok(reader.has_ended() && self.is_empty())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.replies = None;
        if let Some(replier) = self.replier.take() {
            let _ = replier.join();
        }
        // The write-behind thread writes its queue.
        self.rows = AsicDb::Off { _markers: None };
        self.failed.try_recv().map_or(Ok(()), |e| Err(e.into()))
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        match &self.requests {
            Requests::Redis(requests) => requests.watch(select),
            Requests::Zmq(requests) => requests.watch(select),
        }
        select.recv(&self.failed);
    }
}
