//! syncd's end of the seam: requests are read on a thread of their own, so that the chip is at work meanwhile, and
//! replies are spelled on another.

use super::asic_db::AsicDb;
use super::north::Persistence;
use super::settings::Settings;
use super::south::{ANSWERS, MODE, Mode};
use super::syncd_stage::OrchLink;
use super::{Error, log};
use crossbeam_channel::Select;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};
use ribtide_swss::sai::{SaiCall, SaiReply, SaiRequest, Status, View, text};
use ribtide_swss::syncd::SyncdOut;
use ribtide_swss::{Db, json};
use ribtide_tables::queue::{self, QueueWriter};
use ribtide_tables::zmq::{self, Answer, Endpoint};
use ribtide_tables::{Connection, Database, Databases, Message, Reader, TableError};
use std::collections::VecDeque;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const DAEMON: &str = "syncd";
const ASIC_STATE: &str = "ASIC_STATE";
/// A key of ASIC_DB: orchagent asked for an answer to each request.
const ASKED: &str = "RIBTIDE_ANSWERS";
/// How long nothing must come before nothing is on the way.
const SILENCE: Duration = Duration::from_millis(200);
/// Why requests are not answered in `redis_async`.
const UNASKED: &str = "orchagent is not ribtide's and does not ask for answers";
/// Requests and replies that may wait.
const WAITING: usize = 64;

/// What came.
struct Incoming {
    what: Result<SaiRequest, Refusal>,
    /// In `redis_async`: that each request be answered.
    asks_for_answers: bool,
}

/// What is no request of the route path is answered all the same, so that who asked does not wait for ever.
struct Refusal {
    why: String,
    reply: Message,
}

/// Where requests come from.
enum Requests {
    Redis(ring::Receiver<Result<Incoming, TableError>>),
    Zmq(ring::Receiver<(Incoming, Answer)>),
}

/// Where a reply goes.
enum Way {
    Redis,
    Zmq(Answer),
}

/// How a reply is spelled.
enum Reply {
    Done(SaiReply, Kind),
    Refused(Message),
}

/// What a reply answers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A change.
    Change,
    /// A question, whose answer is waited for in every mode.
    Get,
    /// A view step.
    View,
    /// The same, and who asked wanted to know whether each request is answered.
    Answering,
}

/// orchagent, and ASIC_DB.
pub(super) struct SouthServer {
    requests: Requests,
    /// The thread that takes them from Redis.
    reader: Option<Reader>,
    /// Wakes it.
    asic: Database,
    /// None only while it ends.
    replies: Option<ring::Sender<(Way, Reply)>>,
    replier: Option<JoinHandle<()>>,
    /// Nothing came since then, while it ends.
    silent: Option<Instant>,
    stop: Stop,
    failed: crossbeam_channel::Receiver<TableError>,
    /// Requests under way: their numbers, ways back and kinds.
    under_way: VecDeque<(u64, Way, Kind)>,
    taken: u64,
    /// Whether replies are sent to requests that only make changes: in `redis_async` only when that was asked for.
    answers: bool,
    /// Where a syncd that is started again finds that it was; only in `redis_async`.
    asked: Option<Connection>,
    rows: AsicDb,
    in_line: bool,
    settings: Settings,
}

impl SouthServer {
    pub(super) fn open(
        (mode, endpoint): (Mode, &Endpoint),
        persistence: Persistence,
        rows: AsicDb,
        mut settings: Settings,
        databases: &Databases,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<SouthServer, Error> {
        let asic = databases.get(Db::Asic);
        let (replies, waiting) = rings.bounded::<(Way, Reply)>("replies to orchagent", WAITING);
        let (failing, failed) = crossbeam_channel::bounded(1);
        let (requests, reader, mut writer) = if mode.is_zmq() {
            let read = |message: &str| {
                let request = text::read_zmq_request(0, message);
                let what = request.map_err(|e| {
                    let parts = json::read_strings(message).unwrap_or_default();
                    let part = |n: usize| parts.get(n).map_or("", |part| part);
                    refusal(part(0), part(1), e.to_string())
                });
                Incoming { what, asks_for_answers: false }
            };
            (Requests::Zmq(zmq::serve(endpoint, rings, stop, read)?), None, None)
        } else {
            let writer = QueueWriter::open(asic, "GETRESPONSE", stop)?;
            let (requests, reader) = queue::serve(asic, ASIC_STATE, rings, stop, |message: Message| {
                let request = text::read_request(0, &message.key, &message.value, &message.op);
                let what = request.map_err(|e| refusal(&message.key, &message.op, e.to_string()));
                Incoming { what, asks_for_answers: message.value == ANSWERS }
            })?;
            (Requests::Redis(requests), Some(reader), Some(writer))
        };
        let mut asked = match mode {
            Mode::RedisAsync => Some(Connection::open(asic, stop)?),
            _ => None,
        };
        let answers = match &mut asked {
            Some(asked) => asked.ask(&["EXISTS", ASKED])? == ribtide_tables::Reply::Integer(1),
            None => true,
        };
        let body = move || {
            while let Ok(first) = waiting.recv() {
                for (way, reply) in std::iter::once(first).chain(std::iter::from_fn(|| waiting.try_recv())) {
                    let message = spell(reply);
                    match (way, &mut writer) {
                        (Way::Zmq(answer), _) => answer.send(&message.to_zmq()),
                        (Way::Redis, Some(writer)) => writer.push(&message),
                        (Way::Redis, None) => {}
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
        Ok(SouthServer {
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
            answers,
            asked,
            rows,
            in_line: persistence == Persistence::InLine,
            settings,
        })
    }

    fn take(&mut self, incoming: Incoming, way: Way, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        match incoming.what {
            Ok(mut request) => {
                self.taken += 1;
                request.id = self.taken;
                let kind = match request.call {
                    SaiCall::View(View::Init) => {
                        let answers = incoming.asks_for_answers;
                        if let Some(asked) = self.asked.as_mut().filter(|_| self.answers != answers) {
                            self.answers = answers;
                            asked.ask(if answers { &["SET", ASKED, "1"][..] } else { &["DEL", ASKED] })?;
                        }
                        if self.asked.is_some() {
                            let (active, why) = match answers {
                                true => ("redis_async", ""),
                                false => ("redis_async, and no request is answered", UNASKED),
                            };
                            self.settings.now(MODE, active, why)?;
                        }
                        if incoming.asks_for_answers { Kind::Answering } else { Kind::View }
                    }
                    SaiCall::View(View::Apply) => Kind::View,
                    SaiCall::Get { .. } => Kind::Get,
                    _ => Kind::Change,
                };
                self.under_way.push_back((request.id, way, kind));
                requests.push(request);
            }
            Err(Refusal { why, reply }) => {
                log(DAEMON, &format!("refused: {why}"));
                if self.answers {
                    self.reply(way, Reply::Refused(reply));
                }
            }
        }
        Ok(())
    }
}

impl SouthServer {
    fn reply(&self, way: Way, reply: Reply) {
        if let Some(replies) = &self.replies {
            // The thread that sends it says itself why it ended.
            let _ = replies.send((way, reply));
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
    let op = if op.ends_with("notify") { "Snotify" } else { "Sgetresponse" };
    Refusal { why, reply: Message { key: status.into(), value: format!("[{fields}]"), op: op.into() } }
}

fn spell(reply: Reply) -> Message {
    match reply {
        Reply::Refused(message) => message,
        Reply::Done(reply, kind) => {
            let message = text::write_reply(&reply, matches!(kind, Kind::View | Kind::Answering));
            match kind {
                Kind::Answering => Message { value: ANSWERS.into(), ..message },
                _ => message,
            }
        }
    }
}

impl OrchLink for SouthServer {
    fn requests(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        if let Ok(e) = self.failed.try_recv() {
            return Err(e.into());
        }
        // One at a time: its reply leaves before the next one is begun.
        let came = match &self.requests {
            Requests::Redis(requests) => {
                requests.try_recv().transpose()?.map(|incoming| (incoming, Way::Redis))
            }
            Requests::Zmq(requests) => {
                requests.try_recv().map(|(incoming, answer)| (incoming, Way::Zmq(answer)))
            }
        };
        if let Some((incoming, way)) = came {
            self.take(incoming, way, requests)?;
        }
        Ok(())
    }

    fn answer(&mut self, out: &mut SyncdOut) -> Result<(), Error> {
        // In line means that what is answered as done has its row.
        if self.in_line {
            self.rows.write(&mut out.rows)?;
        }
        for reply in out.replies.drain(..) {
            let Some((_, way, kind)) = self.under_way.pop_front() else { continue };
            if !self.answers && kind == Kind::Change {
                if !reply.status.is_success() {
                    return Err(Error::new(format!(
                        "the switch answered {} in redis_async, where orchagent cannot be told; start syncd and orchagent \
                         again, both with -s",
                        reply.status.name()
                    )));
                }
                continue;
            }
            self.reply(way, Reply::Done(reply, kind));
        }
        self.rows.write(&mut out.rows)
    }

    fn wants_all_rows(&mut self) -> Result<bool, Error> {
        self.rows.is_lost()
    }

    fn close(&mut self) -> Result<bool, Error> {
        // Over ZeroMQ nobody can be told to wait: orchagent stands still, so what comes is what is on the way.
        if !self.is_empty() {
            self.silent = None;
        }
        let silent = self.silent.get_or_insert_with(Instant::now).elapsed() >= SILENCE;
        let Some(reader) = &self.reader else { return Ok(silent && self.is_empty()) };
        reader.end();
        if !reader.has_ended() {
            // What the queue holds then is the next syncd's.
            let channel = queue::channel(&self.asic, ASIC_STATE);
            Connection::open(&self.asic, &self.stop)?.ask(&["PUBLISH", &channel, "G"])?;
        }
        Ok(reader.has_ended() && self.is_empty())
    }

    fn finish(&mut self) -> Result<(), Error> {
        self.replies = None;
        if let Some(replier) = self.replier.take() {
            let _ = replier.join();
        }
        // Rows that are written behind are written.
        self.rows = AsicDb::Off { _mark: None };
        self.failed.try_recv().map_or(Ok(()), |e| Err(e.into()))
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        match &self.requests {
            Requests::Redis(requests) => select.recv(requests.raw()),
            Requests::Zmq(requests) => select.recv(requests.raw()),
        };
        select.recv(&self.failed);
    }
}
