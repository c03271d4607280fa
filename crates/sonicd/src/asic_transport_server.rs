//! syncd's end of the transport to orchagent. One thread reads and decodes requests while the chip works on earlier ones,
//! and another encodes replies.

use super::asic_db::AsicDb;
use super::asic_transport::{ANSWERS, MODE, NOTIFICATIONS, run_field, run_of};
use super::port_reports::{self, PortReportSender};
use super::settings::Settings;
use super::syncd_stage::OrchLink;
use super::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_runtime::log::target;
use ribtide_runtime::oneshot;
use ribtide_runtime::ring::{self, Closed};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_settings::{Mode, Persistence};
use ribtide_swss::sai::notification::{FdbEvent, PortState, write_fdb_event, write_port_state_change};
use ribtide_swss::sai::text::{self, ReplyTo};
use ribtide_swss::sai::{Query, SaiCall, SaiReply, SaiRequest, Status, View, binary};
use ribtide_swss::syncd::SyncdOut;
use ribtide_swss::{Db, json};
use ribtide_tables::queue::{self, QueueWriter};
use ribtide_tables::zmq::{self, Endpoint, ReplySender, Resent};
use ribtide_tables::{Connection, Database, Message, ReaderThread, TableError};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const ASIC_STATE: &str = "ASIC_STATE";
/// The queue of requests.
const REQUESTS: &str = "orchagent to syncd";
/// Silence after which nothing is in flight.
const SILENCE_TIMEOUT: Duration = Duration::from_millis(200);
/// Why requests have no replies in `redis_async`.
const UNASKED: &str = "orchagent is not ribtide's and does not ask for answers";
/// Requests and replies in each queue at most.
const WAITING: usize = 64;

/// A received request.
struct Incoming {
    what: Result<SaiRequest, Refusal>,
    /// In `redis_async`, with a step of a view: the run that requests a reply to each request.
    run: Option<u64>,
    /// Whether it may have been executed before, with a lost reply.
    again: Resent,
}

/// A request outside of the route path. It gets a reply, too, so that the client does not wait for
/// ever.
struct Refusal {
    why: String,
    reply: Message,
    /// A query, whose reply orchagent awaits in every mode.
    query: bool,
}

/// The source of requests.
enum Requests {
    Redis(ring::Receiver<Result<Incoming, TableError>>),
    Zmq(ring::Receiver<(Incoming, ReplySender)>),
}

/// The channel for a reply.
enum ReplyChannel {
    Redis,
    Zmq(ReplySender),
}

/// An unencoded reply.
enum Reply {
    Done(SaiReply, Kind),
    Refused(Message),
    /// None: orchagent does not wait for one.
    Silence,
}

/// What the reply to a request waits for.
enum Due {
    /// The state machine; the number of the request there.
    Reply { id: u64, kind: Kind, owed: bool },
    /// Only earlier requests.
    Refusal { reply: Message, query: bool },
}

/// The kind of a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// A change.
    Change,
    /// A query, whose reply is awaited in every mode.
    Get,
    /// A query whose reply has another operation, and is awaited in every mode.
    Query(ReplyTo),
    /// The first step of a view, and the run that requests a reply to each request.
    Init { run: Option<u64> },
    /// The last step, of that run.
    Apply { run: Option<u64> },
}

/// The transport to orchagent, with ASIC_DB.
pub(super) struct AsicTransportServer {
    requests: Requests,
    /// The thread that reads requests from Redis.
    reader: Option<ReaderThread>,
    /// The database whose channel wakes it.
    asic: Database,
    /// Link states to orchagent.
    reports: PortReportSender,
    /// `None` only during the shutdown.
    replies: Option<ring::Sender<(ReplyChannel, Reply)>>,
    replier: Option<JoinHandle<()>>,
    /// Start of the present silence, during a shutdown.
    silent: Option<Instant>,
    stop: Stop,
    failed: oneshot::Receiver<TableError>,
    /// Requests in flight, each with the channel of its reply.
    under_way: VecDeque<(ReplyChannel, Due)>,
    taken: u64,
    /// Whether no view began since the start: an orchagent may repeat a request to an earlier
    /// syncd.
    no_view_yet: bool,
    /// Whether requests that only change something get replies: in `redis_async` only on request.
    answers: bool,
    /// The database in which a restarted syncd finds that it was requested; only in `redis_async`.
    request_record: Option<Connection>,
    rows: AsicDb,
    in_line: bool,
    settings: Settings,
}

impl AsicTransportServer {
    pub(super) fn open(
        (mode, endpoint): (Mode, &Endpoint),
        persistence: Persistence,
        rows: AsicDb,
        settings: Settings,
        daemon: &Daemon,
    ) -> Result<AsicTransportServer, Error> {
        let Daemon { databases, rings, stop, .. } = daemon;
        let asic = databases.get(Db::Asic);
        let (replies, waiting) = rings.bounded::<(ReplyChannel, Reply)>("replies to orchagent", WAITING);
        let (failing, failed) = oneshot::pair();
        let (requests, reader, mut writer) = if mode.is_zmq() {
            let read = |message: &[u8], again| Incoming { what: read_zmq(message), run: None, again };
            queue::forget(&mut daemon.connect(Db::Asic)?)?;
            (Requests::Zmq(zmq::serve(endpoint, REQUESTS, rings, stop, read)?), None, None)
        } else {
            let writer = QueueWriter::open(asic, "GETRESPONSE", stop)?;
            let (requests, reader) = queue::serve(asic, ASIC_STATE, REQUESTS, rings, stop, |request| {
                let queue::Request { message, redelivered } = request;
                let request = text::read_request(0, &message.key, &message.value, &message.op);
                let what = request
                    .map_err(|e| refusal(&message.key, &message.op, message.value.len(), e.to_string()));
                let again = if redelivered { Resent::Elsewhere } else { Resent::No };
                Incoming { what, run: run_of(&message), again }
            })?;
            (Requests::Redis(requests), Some(reader), Some(writer))
        };
        let mut request_record = match mode {
            Mode::RedisAsync => Some(daemon.connect(Db::Asic)?),
            _ => None,
        };
        let answers = match &mut request_record {
            Some(request_record) => {
                request_record.query(&["EXISTS", ANSWERS])? == ribtide_tables::Reply::Integer(1)
            }
            None => true,
        };
        let body = move || -> Result<Infallible, Ended> {
            let mut bytes = Vec::new();
            loop {
                let on_idle = || {
                    bytes = Vec::new();
                    writer.iter_mut().for_each(QueueWriter::shrink_to_fit);
                };
                let first = waiting.recv_or_idle(on_idle)?;
                for (channel, reply) in
                    std::iter::once(first).chain(std::iter::from_fn(|| waiting.try_recv()))
                {
                    // An orchagent that describes the switch again ignores replies to earlier
                    // requests.
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
                    return Err(failing.end_with(e));
                }
            }
        };
        let reports = publish_reports(daemon)?;
        let replier = thread::spawn("asic-replies", body);
        let replier = replier.map_err(Error::no_thread("for replies"))?;
        settings.write();
        Ok(AsicTransportServer {
            requests,
            reader,
            asic: asic.clone(),
            reports,
            replies: Some(replies),
            replier: Some(replier),
            silent: None,
            stop: stop.clone(),
            failed,
            under_way: VecDeque::new(),
            taken: 0,
            no_view_yet: true,
            answers,
            request_record,
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
                        self.no_view_yet = false;
                        let answers = incoming.run.is_some();
                        if self.request_record.is_some() {
                            self.answers = answers;
                            self.record_request()?;
                            let (active, why) = match answers {
                                true => ("redis_async", ""),
                                false => ("redis_async, and no request is answered", UNASKED),
                            };
                            self.settings.now(MODE, active, why);
                        }
                        Kind::Init { run: incoming.run }
                    }
                    SaiCall::View(View::Apply) => Kind::Apply { run: incoming.run },
                    SaiCall::Get { .. } | SaiCall::BulkGet { .. } | SaiCall::GetEntry { .. } => Kind::Get,
                    SaiCall::Query(Query::Counters { .. }) => Kind::Get,
                    SaiCall::Query(Query::Poll { .. }) => Kind::Change,
                    SaiCall::Available { .. } | SaiCall::Query(_) => Kind::Query(ReplyTo::to(&request.call)),
                    SaiCall::One { .. } | SaiCall::Bulk { .. } | SaiCall::Entries { .. } => Kind::Change,
                };
                let owed = match incoming.again {
                    Resent::No => false,
                    Resent::Elsewhere => self.no_view_yet,
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

    /// Makes ASIC_DB say in `redis_async` whether orchagent requests replies. It compares with the
    /// database, since a Redis that lost its data has no record, and the next syncd would not reply.
    fn record_request(&mut self) -> Result<(), Error> {
        let Some(request_record) = &mut self.request_record else { return Ok(()) };
        // A warm start writes nothing that ASIC_DB has already.
        if (request_record.query(&["EXISTS", ANSWERS])? == ribtide_tables::Reply::Integer(1)) != self.answers
        {
            request_record.query(if self.answers { &["SET", ANSWERS, "1"] } else { &["DEL", ANSWERS] })?;
        }
        Ok(())
    }

    /// Sends refusals, up to the first request without a result of the machine.
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
            // The sending thread reports its own error.
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

/// Changes of the FDB in one notification at most.
const FDB_EVENTS_PER_MESSAGE: usize = 1000;

/// Starts the thread that publishes link states and changes of the FDB: orchagent hears them on the channel of ASIC_DB in
/// every mode, as SONiC's does. It waits while Redis is away, and the stage does not.
fn publish_reports(daemon: &Daemon) -> Result<PortReportSender, Error> {
    let (sender, receiver) = port_reports::pair();
    let (mut asic, stop) = (daemon.connect(Db::Asic)?, daemon.stop.clone());
    let body = move || -> Result<Infallible, Closed> {
        loop {
            let mut reports = receiver.wait(|| {})?;
            let states = (!reports.states.is_empty()).then(|| write_port_state_change(&reports.states));
            let fdb = reports.fdb.take();
            let fdb = fdb.chunks(FDB_EVENTS_PER_MESSAGE).map(write_fdb_event);
            for message in states.into_iter().chain(fdb) {
                if let Err(e) = asic.query(&["PUBLISH", NOTIFICATIONS, &message]) {
                    stop.running()?;
                    tracing::error!(target: target::SYNCD, error = %e, "a notification is not published");
                }
            }
        }
    };
    thread::spawn("asic-notifications", body).map_err(Error::no_thread("for notifications"))?;
    Ok(sender)
}

/// The reply to a malformed request, of the form that its sender expects as far as that is known.
/// A bulk has a status for each object that the key claims; `size` of the message, in bytes, bounds
/// how many it can have.
fn refusal(key: &str, op: &str, size: usize, why: String) -> Refusal {
    /// An object without a name and attributes: `"","",`.
    const OBJECT_MIN: usize = 6;
    let status = Status::NotSupported.name();
    let objects = match key.rsplit_once(':') {
        Some((_, count)) if op.contains("bulk") => count.parse().unwrap_or(0).min(size / OBJECT_MIN + 1),
        _ => 0,
    };
    let fields = vec![format!("\"{status}\",\"\""); objects].join(",");
    let op = op.strip_prefix(['S', 'D']).unwrap_or(op);
    // SONiC's orchagent ignores replies with another operation and waits for a minute.
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

/// Decodes a request from ZeroMQ.
fn read_zmq(message: &[u8]) -> Result<SaiRequest, Refusal> {
    if let Some(bulk) = binary::read_bulk(0, message) {
        return bulk.map_err(|_| refusal("", "", 0, "a bulk of routes that is cut off".into()));
    }
    let message = String::from_utf8_lossy(message);
    text::read_zmq_request(0, &message).map_err(|e| {
        let parts = json::read_strings(&message).unwrap_or_default();
        let part = |n: usize| parts.get(n).map_or("", |part| part);
        refusal(part(0), part(1), message.len(), e.to_string())
    })
}

/// Encodes a reply for ZeroMQ, to ribtide's or another orchagent; `false` without one.
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
                Kind::Change | Kind::Get => ReplyTo::Request,
                Kind::Query(reply_to) => reply_to,
                Kind::Init { .. } | Kind::Apply { .. } => ReplyTo::View,
            };
            let message = text::write_reply(&reply, answers);
            match kind {
                Kind::Init { run: Some(run) } | Kind::Apply { run: Some(run) } => {
                    Message { value: run_field(run), ..message }
                }
                _ => message,
            }
        }
    })
}

impl OrchLink for AsicTransportServer {
    fn requests(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        if let Some(e) = self.failed.try_recv() {
            return Err(e.into());
        }
        // One at a time: its reply is sent before the next request.
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
        // With in-line rows, the row precedes the reply.
        if self.in_line {
            self.rows.write(std::mem::take(&mut out.rows))?;
        }
        for reply in out.replies.drain(..) {
            let Some((channel, Due::Reply { kind, .. })) = self.under_way.pop_front() else { continue };
            if !self.answers && kind == Kind::Change {
                self.reply(channel, Reply::Silence);
                if !reply.status.is_success() {
                    // The next syncd must not repeat it.
                    self.finish()?;
                    return Err(Error::Peer(format!(
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

    fn port_states(&mut self, states: &[PortState]) {
        self.reports.send(states);
    }

    fn fdb_events(&mut self, events: Vec<FdbEvent>) {
        self.reports.send_fdb(events);
    }

    fn is_owed(&self, request: &SaiRequest) -> bool {
        let is = |due: &Due| matches!(due, Due::Reply { id, owed: true, .. } if *id == request.id);
        self.under_way.iter().any(|(_, due)| is(due))
    }

    fn wants_all_rows(&mut self) -> Result<bool, Error> {
        let lost = self.rows.is_lost()?;
        if lost {
            self.record_request()?;
        }
        Ok(lost)
    }

    fn note_emptied(&self) {
        self.rows.note_emptied();
    }

    fn has_room(&self) -> bool {
        self.rows.has_room()
    }

    fn rows(&self) -> (u64, u64) {
        self.rows.progress()
    }

    fn shrink_to_fit(&mut self) {
        self.rows.shrink_to_fit();
    }

    fn close(&mut self) -> Result<bool, Error> {
        // Over ZeroMQ requests cannot be left to the next syncd. orchagent has stopped, so only
        // requests in flight arrive.
        if !self.is_empty() {
            self.silent = None;
        }
        let silent = self.silent.get_or_insert_with(Instant::now).elapsed() >= SILENCE_TIMEOUT;
        let Some(reader) = &self.reader else { return Ok(silent && self.is_empty()) };
        reader.end();
        if !reader.has_ended() {
            // Requests in the queue belong to the next syncd.
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
        self.failed.watch(select);
        self.rows.watch(select);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reply_to_a_malformed_bulk_has_no_more_objects_than_fit_into_the_request() {
        let statuses = |message: &str| match read_zmq(message.as_bytes()) {
            Ok(request) => panic!("{request:?}"),
            Err(refusal) => refusal.reply.value.matches("SAI_STATUS_NOT_SUPPORTED").count(),
        };
        assert_eq!(statuses(r#"["SAI_OBJECT_TYPE_ROUTE_ENTRY:2","bulkcreate","a","","b",""]"#), 2);
        let message = r#"["SAI_OBJECT_TYPE_ROUTE_ENTRY:99999999999999","bulkcreate"]"#;
        assert!(statuses(message) <= message.len() / 6 + 1);
        let refused = refusal("SAI_OBJECT_TYPE_ROUTE_ENTRY:20000000", "Sbulkset", 2, String::new());
        assert_eq!(refused.reply.value.matches("SAI_STATUS_NOT_SUPPORTED").count(), 1);
    }
}
