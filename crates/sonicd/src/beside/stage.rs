//! The thread between SONiC's orchagent, ribtide's, and syncd.

use super::front::Front;
use super::names::Names;
use super::records::{RecordedVids, Records};
use super::{BesideTransports, Client};
use crate::asic_transport::{NOTIFICATIONS, SHUTDOWN_REQUEST, VIDCOUNTER};
use crate::orch_stage::{Feed, SyncdLink};
use crate::port_reports::PortReports;
use crate::recorder::Recording;
use crate::{Daemon, Error};
use crossbeam_channel::Select;
use ribtide_prefix::AnyPrefix;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, TrySend};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_swss::Db;
use ribtide_swss::beside::{Beside, BesideEvent, BesideOut, LearnedRow, ViewRecord, from_zmq};
use ribtide_swss::orch::Orch;
use ribtide_swss::row::Name;
use ribtide_swss::sai::text::{self, ReplyTo};
use ribtide_swss::sai::{Oid, SaiReply, SaiRequest, binary};
use ribtide_tables::zmq::{self, Process};
use ribtide_tables::{Connection, EncodedRequest, Exchange, Message, PubSubEvent, TableError, listen, queue};
use std::collections::VecDeque;
use std::time::Duration;

/// Requests and replies in each queue at most.
const WAITING: usize = 64;
/// Rows in the queue to ribtide's orchagent at most; others wait in the thread.
const ROWS: usize = 1024;
/// Interval of a look at names that are missing, and at link states of LAGs.
const NAMES_INTERVAL_MS: u64 = 1000;
/// Interval of the machine's time while something waits.
const TICK_MS: u64 = 100;
/// The longest sleep.
const IDLE: Duration = Duration::from_secs(10);
/// Objects of ASIC_DB that teach.
const LEARNED: [&str; 11] = [
    "HOSTIF",
    "VLAN",
    "LAG",
    "VIRTUAL_ROUTER",
    "ROUTER_INTERFACE",
    "NEIGHBOR_ENTRY",
    "NEXT_HOP",
    "ROUTE_ENTRY",
    "INSEG_ENTRY",
    "NEXT_HOP_GROUP",
    "NEXT_HOP_GROUP_MEMBER",
];
/// Rows of ASIC_DB that one round trip reads.
const KEYS_PER_READ: usize = 1000;
const SWITCH_KEY: &str = "SAI_OBJECT_TYPE_SWITCH:oid:0x21000000000000";

/// From ribtide's orchagent.
pub(crate) enum FromOrch {
    Request(SaiRequest),
    /// Whether RouteOrch makes the routes of these destinations.
    Routes(Vec<(Option<Name>, AnyPrefix, bool)>),
    Labels(Vec<(u32, bool)>),
}

/// ribtide's orchagent's end.
pub(crate) struct BesideLink {
    requests: ring::Sender<FromOrch>,
    replies: ring::Receiver<Result<SaiReply, Error>>,
    under_way: usize,
}

impl SyncdLink for BesideLink {
    fn send(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        for request in requests.drain(..) {
            self.under_way += 1;
            if self.requests.send(FromOrch::Request(request)).is_err() {
                // The reason comes with the replies.
                break;
            }
        }
        Ok(())
    }

    fn replies(&mut self, replies: &mut Vec<SaiReply>) -> Result<(), Error> {
        while let Some(reply) = self.replies.try_recv() {
            replies.push(reply?);
            self.under_way = self.under_way.saturating_sub(1);
        }
        Ok(())
    }

    /// None: link states come as rows of ports ([`LearnedRows`]).
    fn port_reports(&mut self) -> PortReports {
        PortReports::default()
    }

    fn under_way(&self) -> usize {
        self.under_way
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.replies.watch(select);
    }
}

/// The table of rows that were learned.
pub(crate) struct LearnedRows(ring::Receiver<LearnedRow>);

impl Feed for LearnedRows {
    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.0.watch(select);
    }

    fn pop(&mut self, orch: &mut Orch, max: usize, _: Option<&mut Recording>) -> Result<usize, Error> {
        let mut count = 0;
        while count < max
            && let Some(row) = self.0.try_recv()
        {
            count += 1;
            match row {
                LearnedRow::Port(row) => orch.port(row),
                LearnedRow::Vrf(row) => orch.vrf(row),
                LearnedRow::Interface(row) => orch.interface(row),
                LearnedRow::Neighbor(row) => orch.neighbor(row),
            }
        }
        Ok(count)
    }

    fn expect_rows(&mut self) {}

    fn shrink_to_fit(&mut self) {}

    fn set_fence(&mut self, _: Option<Process>) {}

    fn is_past_fence(&mut self) -> bool {
        true
    }

    fn hold(&mut self, _: bool) {}

    fn is_drained(&self) -> bool {
        self.0.is_empty()
    }
}

/// The operation of the reply to a request.
fn reply_op(request: &Message) -> String {
    let op = request.op.strip_prefix(['S', 'D']).unwrap_or(&request.op);
    match op {
        "notify" => "Snotify".into(),
        "flush" => "Sflushresponse".into(),
        _ => match op.strip_suffix("_query") {
            Some(query) => format!("S{query}_response"),
            None => "Sgetresponse".into(),
        },
    }
}

/// Opens the transport to syncd.
fn open_syncd(transports: &BesideTransports, daemon: &Daemon) -> Result<Exchange<Message, Message>, Error> {
    let Daemon { databases, rings, stop, .. } = daemon;
    if transports.mode.is_zmq() {
        let encode =
            |message: &Message, _: bool, out: &mut Vec<u8>| out.extend(message.to_zmq().into_bytes());
        // ribtide's syncd takes this end for its orchagent, and replies in its own encoding.
        let decode = |_: &Message, reply: &[u8]| match binary::read_reply(0, reply) {
            Some(reply) => Some(text::write_reply(&reply.ok()?, ReplyTo::Request)),
            None => from_zmq(&String::from_utf8_lossy(reply)),
        };
        return Ok(zmq::exchange(&transports.syncd, rings, stop, encode, decode)?);
    }
    let encode = |message: Message| {
        let pending = Some(reply_op(&message));
        EncodedRequest { message, pending }
    };
    // A reply to a request of an earlier run may have another operation.
    let decode = |op: &String, message: Message| (message.op == *op).then_some(message);
    Ok(queue::exchange(databases.get(Db::Asic), VIDCOUNTER, rings, stop, encode, decode)?)
}

/// Opens the source of notifications of syncd.
fn open_notifications(
    transports: &BesideTransports,
    daemon: &Daemon,
) -> Result<ring::Receiver<Vec<u8>>, Error> {
    const QUEUE: &str = "notifications of syncd";
    let Daemon { databases, rings, stop, .. } = daemon;
    let (tx, notifications) = rings.bounded(QUEUE, ROWS);
    if transports.mode.is_zmq() {
        zmq::listen_notifications(&transports.syncd_notifications, stop, move |message| {
            if let Some(message) = message {
                // The thread that takes them ends with the process.
                let _ = tx.send(message.to_vec());
            }
        })?;
        return Ok(notifications);
    }
    listen(databases.get(Db::Asic), vec![NOTIFICATIONS.into()], stop, move |event| {
        if let PubSubEvent::Message { payload, .. } = event {
            // The thread that takes them ends with the process.
            let _ = tx.send(payload.as_bytes().to_vec());
        }
    })?;
    Ok(notifications)
}

/// The state of the thread.
struct Stage {
    beside: Beside,
    out: BesideOut,
    front: Front,
    syncd: Exchange<Message, Message>,
    notifications: ring::Receiver<Vec<u8>>,
    /// Where orchs of SONiC's orchagent listen, when syncd does not publish there itself.
    republisher: Option<Connection>,
    names: Names,
    records: Records,
    from_orch: ring::Receiver<FromOrch>,
    replies: ring::Sender<Result<SaiReply, Error>>,
    rows: ring::Sender<LearnedRow>,
    /// Rows without room in the queue.
    waiting_rows: VecDeque<LearnedRow>,
    clock: Clock,
    next_names: u64,
    /// Whether names or link states were missing at the last look, and whether there was input since: a
    /// look takes time for each interface.
    looks: bool,
    moved: bool,
}

/// Starts the thread. Returns what ribtide's orchagent uses: its link, its rows, and the channel for
/// destinations that RouteOrch makes.
///
/// # Errors
/// A database or an endpoint that cannot be used.
pub(crate) fn start(
    transports: BesideTransports,
    daemon: &Daemon,
) -> Result<(BesideLink, LearnedRows, ring::Sender<FromOrch>), Error> {
    let Daemon { rings, stop, .. } = daemon;
    let (requests, from_orch) = rings.bounded("ribtide's orchagent to beside", WAITING);
    let (replies, to_orch) = rings.bounded("beside to ribtide's orchagent", WAITING);
    let (rows, learned) = rings.bounded("learned rows", ROWS);
    let (records, former) = Records::open(daemon)?;
    let vids = Box::new(RecordedVids::open(daemon)?);
    let syncd = open_syncd(&transports, daemon)?;
    let notifications = open_notifications(&transports, daemon)?;
    let is_redis = matches!(transports.client, Client::Redis { .. });
    // Over ZeroMQ SONiC's orchagent publishes them again itself.
    let republisher = (is_redis && transports.mode.is_zmq()).then(|| daemon.connect(Db::Asic)).transpose()?;
    let names = Names::open(daemon)?;
    let (its_daemon, its_stop, failed) = (daemon.clone(), stop.clone(), replies.clone());
    let body = move || {
        let begin = || -> Result<(), Error> {
            let mut stage = Stage {
                beside: Beside::new(vids, transports.window),
                out: BesideOut::default(),
                // SONiC's orchagent may send as soon as this listens, and waits for what is found.
                front: Front::open(transports.client, &its_daemon)?,
                syncd,
                notifications,
                republisher,
                names,
                records,
                from_orch,
                replies,
                rows,
                waiting_rows: VecDeque::new(),
                clock: Clock::default(),
                next_names: 0,
                looks: false,
                moved: true,
            };
            stage.beside.found_former_ids(former);
            stage.find(&its_daemon)?;
            stage.run(&its_stop)
        };
        match begin() {
            Ok(()) => Ended::at_stop(&its_stop),
            Err(e) => failed.end_with(Err(e)),
        }
    };
    thread::spawn("beside", body).map_err(Error::no_thread("beside SONiC's orchagent"))?;
    Ok((
        BesideLink { requests: requests.clone(), replies: to_orch, under_way: 0 },
        LearnedRows(learned),
        requests,
    ))
}

impl Stage {
    /// Reads what a running orchagent has made before this process was started.
    fn find(&mut self, daemon: &Daemon) -> Result<(), Error> {
        let view = self.records.view()?;
        self.find_switch(&view, daemon)?;
        // Names of what is in the view are read with it, or before it is applied.
        self.beside.found_view(view);
        Ok(())
    }

    fn find_switch(&mut self, view: &[ViewRecord], daemon: &Daemon) -> Result<(), Error> {
        let mut asic = daemon.connect(Db::Asic)?;
        let row = |key: &str| format!("ASIC_STATE:{key}");
        if asic.query(&["EXISTS", &row(SWITCH_KEY)])?.as_integer() != Some(1) {
            return Ok(());
        }
        tracing::info!(target: target::ORCHAGENT, "ASIC_DB has a switch: it is read, since SONiC's orchagent describes it once");
        let get = |name: &str| Message {
            key: SWITCH_KEY.into(),
            value: format!(r#"["{name}","oid:0x0"]"#),
            op: "Sget".into(),
        };
        let names = ["SAI_SWITCH_ATTR_DEFAULT_VIRTUAL_ROUTER_ID", "SAI_SWITCH_ATTR_CPU_PORT"];
        let mut oids = [Oid::NULL; 2];
        // A syncd in a view speaks of that.
        if let Some(ViewRecord::Begun { default_router, cpu_port }) = view.first() {
            oids = [*default_router, *cpu_port];
        }
        for (name, oid) in names.into_iter().zip(&mut oids).filter(|(_, oid)| oid.is_null()) {
            let reply = self.call(get(name), daemon)?;
            let Some(reply) = reply else { return Ok(()) };
            let fields = ribtide_swss::json::read_strings(&reply.value).unwrap_or_default();
            let value = fields.get(1).and_then(|value| ribtide_swss::sai::text::read_oid(value));
            let Some(value) = value else {
                return Err(Error::Peer(format!(
                    "syncd did not say {name} ({}); start SONiC's orchagent again, which describes the switch again",
                    reply.key
                )));
            };
            *oid = value;
        }
        // With a view, syncd may still execute the request of a ribtide that ended. Its reply to this one, whatever that
        // is, comes after it.
        if !view.is_empty() && self.call(get(names[1]), daemon)?.is_none() {
            return Ok(());
        }
        self.beside.found_switch(oids[0], oids[1]);
        // syncd writes rows after its reply; nothing else is at syncd now.
        daemon.stop.sleep(Duration::from_millis(200));
        for object in LEARNED {
            let mut keys = Vec::new();
            asic.scan(&row(&format!("SAI_OBJECT_TYPE_{object}:*")), |_, names| {
                keys.extend_from_slice(names);
                Ok(())
            })?;
            // Many keys to a round trip: a table has a key for each route.
            for keys in keys.chunks(KEYS_PER_READ) {
                let replies = asic.query_all(keys.iter().map(|key| ["HGETALL", key.as_str()]))?;
                for (key, reply) in keys.iter().zip(replies) {
                    self.beside.found(key.strip_prefix("ASIC_STATE:").unwrap_or(key), reply.into_pairs());
                }
            }
        }
        self.names.look_up(&mut self.beside)?;
        self.beside.found_all(&mut self.out);
        // In a view, objects have other names than in the chip.
        if view.is_empty() {
            self.records.trim(&self.beside, self.clock.now())?;
        }
        self.names.links(&mut self.beside, &mut self.out)
    }

    /// A request before the machine runs; `None` at the stop.
    fn call(&mut self, message: Message, daemon: &Daemon) -> Result<Option<Message>, Error> {
        if self.syncd.requests.send(message).is_err() {
            return Ok(None);
        }
        loop {
            match self.syncd.replies.recv_timeout(Duration::from_millis(200)) {
                Ok(Some(reply)) => return Ok(Some(reply?)),
                Ok(None) if daemon.stop.stopped() => return Ok(None),
                Ok(None) => {}
                Err(_) => return Ok(None),
            }
        }
    }

    fn run(&mut self, stop: &Stop) -> Result<(), Error> {
        let signal = stop.signal();
        while !stop.stopped() {
            let moved = self.round()?;
            if moved {
                continue;
            }
            let mut select = Select::new();
            signal.watch(&mut select);
            self.front.watch(&mut select);
            self.syncd.replies.watch(&mut select);
            self.notifications.watch(&mut select);
            self.from_orch.watch(&mut select);
            if !self.waiting_rows.is_empty() {
                self.rows.watch_room(&mut select);
            }
            let timeout = match (self.beside.waits(), self.looks || self.moved) {
                (true, _) => Duration::from_millis(TICK_MS),
                (_, true) => Duration::from_millis(NAMES_INTERVAL_MS),
                _ => IDLE,
            };
            idle::wait(&mut select, timeout);
        }
        Ok(())
    }

    /// Whether databases may have link states that notifications do not have.
    fn looks_at_links(&self) -> bool {
        self.beside.has_lags() || !self.beside.ports_without_link().is_empty()
    }

    /// Takes all input once. Returns whether there was any.
    fn round(&mut self) -> Result<bool, Error> {
        let mut moved = false;
        self.front.resume();
        while let Some(reply) = self.syncd.replies.try_recv() {
            let reply = reply.map_err(lost)?;
            moved = true;
            self.beside.reply(reply, &mut self.out);
            self.carry_out()?;
        }
        while let Some(text) = self.notifications.try_recv() {
            moved = true;
            self.notification(&text)?;
        }
        // A request of RouteOrch about a destination follows the message that it makes its route.
        let client = self.front.take()?;
        while let Some(from_orch) = self.from_orch.try_recv() {
            moved = true;
            match from_orch {
                FromOrch::Request(request) => self.beside.request(request),
                FromOrch::Routes(routes) => {
                    for (vrf, prefix, by_routeorch) in routes {
                        self.beside.set_routeorch_route(vrf, prefix, by_routeorch);
                    }
                }
                FromOrch::Labels(labels) => {
                    for (label, by_routeorch) in labels {
                        self.beside.set_routeorch_label(label, by_routeorch);
                    }
                }
            }
        }
        if let Some((number, message)) = client {
            moved = true;
            if message.key == "APPLY_VIEW" {
                // LAGs and VRFs of the view are named in databases.
                self.names.look_up(&mut self.beside)?;
            }
            self.beside.client(number, message);
        }
        let now = self.clock.now();
        self.beside.tick(now, &mut self.out);
        if self.from_orch.is_empty() {
            self.records.trim(&self.beside, now)?;
        }
        self.moved |= moved;
        if now >= self.next_names && (self.looks || self.moved) {
            self.next_names = now + NAMES_INTERVAL_MS;
            let (needs_names, needs_links) = (self.beside.needs_names(), self.looks_at_links());
            (self.looks, self.moved) = (needs_names || needs_links, false);
            if needs_names {
                self.names.look_up(&mut self.beside)?;
            }
            if needs_links {
                self.names.links(&mut self.beside, &mut self.out)?;
            }
        }
        self.beside.run(&mut self.out);
        self.carry_out()?;
        Ok(moved)
    }

    fn notification(&mut self, text: &[u8]) -> Result<(), Error> {
        let string = String::from_utf8_lossy(text);
        self.beside.notification(&string, &mut self.out);
        if let Some(republisher) = &mut self.republisher {
            republisher.query(&["PUBLISH", NOTIFICATIONS, &string])?;
        }
        self.front.notify(text)?;
        if string.contains(SHUTDOWN_REQUEST) {
            return Err(Error::Peer(
                "syncd asks for a start: it does not have what it was told. SONiC's orchagent ends, too, and describes \
                 the switch again"
                    .into(),
            ));
        }
        Ok(())
    }

    fn carry_out(&mut self) -> Result<(), Error> {
        for event in self.out.events.drain(..) {
            match event {
                BesideEvent::Fatal(why) => return Err(Error::Database(why)),
                BesideEvent::View { .. } => tracing::info!(target: target::ORCHAGENT, "{event}"),
                event => tracing::warn!(target: target::ORCHAGENT, "{event}"),
            }
        }
        self.records.write(&mut self.out.view)?;
        for request in self.out.requests.drain(..) {
            if self.syncd.requests.send(request).is_err() {
                // The reason comes with the replies.
                break;
            }
        }
        self.front.reply(&mut self.out.to_client)?;
        self.waiting_rows.extend(self.out.rows.drain(..));
        while let Some(row) = self.waiting_rows.pop_front() {
            match self.rows.try_send(row) {
                Ok(()) => {}
                Err(TrySend::Full(row)) => {
                    self.waiting_rows.push_front(row);
                    break;
                }
                Err(TrySend::Closed(_)) => return Ok(()),
            }
        }
        // Replies never exceed requests, which have room in their queue.
        for reply in self.out.replies.drain(..) {
            if self.replies.send(Ok(reply)).is_err() {
                return Ok(());
            }
        }
        Ok(())
    }
}

/// The loss of syncd in the middle of a request.
fn lost(e: TableError) -> Error {
    match e {
        TableError::Interrupted { .. } => Error::Peer(format!(
            "{e}: it is not known whether syncd carried out the request in flight; ribtide starts again and reads \
             ASIC_DB, and SONiC's orchagent gets no reply"
        )),
        e => e.into(),
    }
}
