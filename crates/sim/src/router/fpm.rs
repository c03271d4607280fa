//! The FPM client and fpmsyncd, with the connection between them, APPL_DB, and the responses of
//! orchagent.

use super::orchagent::{ApplDb, Orchagent, name_links};
use super::script::Persistence;
use super::zmq::{Process, ZmqRoutes};
use ribtide_dataplane::Difference;
use ribtide_dataplane::fpm::machine::FpmMachine;
use ribtide_prefix::Rng;
use ribtide_rib::{DataplaneId, FibAck, FibBatch};
use ribtide_swss::Change;
use ribtide_swss::fpmsyncd::{
    FoundRow, FpmConfig, FpmOut, Fpmsyncd, ProducerRow, RowCursor, TableKey, WantedRow,
};
use ribtide_swss::row::{Field, ResponseKind, ResponseReader, RouteRow, RowName};
use ribtide_wire::fpm;
use ribtide_wire::netlink::Content;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Milliseconds between attempts to connect.
const RECONNECT_MS: u64 = 3000;
/// Milliseconds for which fpmsyncd waits for the snapshot of the chip, with routes over ZeroMQ.
const SNAPSHOT_MS: u64 = 3000;
/// Rows of one step of a resend.
const AGAIN: usize = 5;
/// Rows of a page of the comparison with APPL_DB.
const PAGE: usize = 16;
/// The time of a round of the comparison of fpmsyncd's table: the default.
const RECONCILE: Duration = Duration::from_secs(60);
/// Batches in the queue of the client at most: as in the router.
pub(crate) const BATCHES: usize = ribtide_dataplane::BATCHES;

/// The client.
pub(crate) struct Client {
    machine: FpmMachine,
    /// A run has one time for its machines, whatever the clock says.
    base: Instant,
    pub(crate) queue: VecDeque<FibBatch>,
    connected: bool,
    reconnect_at: u64,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

/// What the client tells the RIB manager.
pub(crate) enum ClientNews {
    Up,
    Down,
    Ack(FibAck),
}

impl Client {
    pub(crate) fn new(id: DataplaneId, next_hop_groups: bool, waits: bool) -> Client {
        let base = Instant::now();
        Client {
            machine: FpmMachine::new(id, next_hop_groups, waits, RECONCILE, base),
            base,
            queue: VecDeque::new(),
            connected: false,
            reconnect_at: 0,
            to_server: Vec::new(),
            to_client: Vec::new(),
        }
    }

    fn now(&self, now_ms: u64) -> Instant {
        self.base + Duration::from_millis(now_ms)
    }

    /// Connects when it is due, or takes a batch, or reads replies.
    pub(crate) fn step(&mut self, now_ms: u64, server: &mut Server, rng: &mut Rng) -> Vec<ClientNews> {
        let now = self.now(now_ms);
        if !self.connected {
            self.queue.clear();
            if !server.running || now_ms < self.reconnect_at {
                return Vec::new();
            }
            self.connected = true;
            self.machine.connected(now, &mut self.to_server);
            server.connected = Some(true);
            return vec![ClientNews::Up];
        }
        if rng.one_in(2) {
            if let Some(batch) = self.queue.pop_front() {
                self.machine.tick(now, &mut self.to_server);
                self.machine.batch(&batch, now, &mut self.to_server);
            }
        } else {
            let mut at = 0;
            while let Ok(Some(frame)) = fpm::frame(&self.to_client[at..]) {
                self.machine.frame(&frame, now);
                at += frame.len;
                if rng.one_in(3) {
                    break;
                }
            }
            self.to_client.drain(..at);
        }
        self.machine.tick(now, &mut self.to_server);
        self.machine.news(now).map(ClientNews::Ack).into_iter().collect()
    }

    /// The connection breaks. The server reads some of what was sent, and none of the replies in
    /// flight arrives. Returns nothing when there is no connection.
    pub(crate) fn disconnect(
        &mut self,
        now_ms: u64,
        server: &mut Server,
        rng: &mut Rng,
    ) -> Option<ClientNews> {
        if !self.connected {
            return None;
        }
        self.connected = false;
        self.reconnect_at = now_ms + RECONNECT_MS;
        while rng.one_in(2) && server.read(&mut self.to_server) {}
        self.to_server.clear();
        self.to_client.clear();
        server.connected = Some(false);
        Some(ClientNews::Down)
    }

    /// Rounds of the comparison of fpmsyncd's table, and differences that it repaired.
    pub(crate) fn compared(&self) -> (u64, u64) {
        let repairs = self.machine.repairs();
        (repairs.rounds(), Difference::ALL.into_iter().map(|kind| repairs.repaired(kind)).sum())
    }

    /// Whether it may not connect yet.
    pub(crate) fn waits_for_time(&self, now_ms: u64) -> bool {
        !self.connected && now_ms < self.reconnect_at
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.connected && self.queue.is_empty() && self.to_server.is_empty() && self.to_client.is_empty()
    }
}

/// How far a count of responses is (`Count` of `ribtide_sonicd::fpmsyncd`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    Done,
    /// Rows are to be handed over first; `held`: nothing is written until then.
    Due {
        held: bool,
    },
    /// The snapshot of the chip is to come first, since this time.
    AwaitsSnapshot(u64),
}

/// fpmsyncd as a process.
pub(crate) struct Server {
    machine: Fpmsyncd,
    out: FpmOut,
    suppress: bool,
    /// The process runs.
    running: bool,
    /// A connection came, or ended, and the machine was not told.
    connected: Option<bool>,
    count: Count,
    has_snapshot: bool,
    /// The transport of routes, if that is ZeroMQ, and when APPL_DB gets them then.
    zmq: Option<ZmqRoutes>,
    over_zmq: Option<Persistence>,
    /// Processes so far.
    processes: Process,
    now_ms: u64,
    /// Frames that are lost before this process takes them in.
    pub(crate) lost_frames: u32,
    /// Whether one was lost.
    pub(crate) has_lost: bool,
    /// Writes that Redis refuses.
    pub(crate) refused_writes: u32,
    /// A deliberate fault: routes count as confirmed when they are written.
    pub(crate) confirms_early: bool,
    /// A deliberate fault: deletions of rows are lost.
    pub(crate) loses_deletions: bool,
    /// A deliberate fault: a group is deleted when a route that names it is written.
    pub(crate) deletes_groups: bool,
    /// A deliberate fault: a new ZeroMQ connection gets changes alone.
    pub(crate) resends_nothing: bool,
}

impl Server {
    pub(crate) fn new(
        suppress: bool,
        over_zmq: Option<Persistence>,
        appl: &mut ApplDb,
        orchagent: &mut Orchagent,
    ) -> Server {
        let mut server = Server {
            machine: Fpmsyncd::new(FpmConfig { suppress, ..FpmConfig::default() }),
            out: FpmOut::default(),
            suppress,
            running: false,
            connected: None,
            count: Count::Done,
            has_snapshot: !suppress,
            zmq: None,
            over_zmq,
            processes: 0,
            now_ms: 0,
            lost_frames: 0,
            has_lost: false,
            refused_writes: 0,
            confirms_early: false,
            loses_deletions: false,
            deletes_groups: false,
            resends_nothing: false,
        };
        server.start(appl, orchagent);
        server
    }

    /// The process starts, and learns the rows of an earlier one.
    pub(crate) fn start(&mut self, appl: &mut ApplDb, orchagent: &mut Orchagent) -> bool {
        if std::mem::replace(&mut self.running, true) {
            return false;
        }
        self.machine = Fpmsyncd::new(FpmConfig { suppress: self.suppress, ..FpmConfig::default() });
        self.out = FpmOut::default();
        name_links(&mut self.machine, &mut self.out);
        self.processes += 1;
        let (process, routes) = (self.processes, &mut appl.routes);
        self.zmq = self.over_zmq.map(|keeps| ZmqRoutes::start(process, keeps, routes));
        for (key, row, queued) in appl.groups.rows() {
            self.machine.known_group(&key, row, queued);
        }
        for (key, row, queued) in appl.routes.rows() {
            self.machine.known_route(key, &row, queued);
        }
        (self.count, self.has_snapshot) = (Count::Done, !self.suppress);
        if self.suppress {
            self.subscribe(appl, orchagent);
        }
        true
    }

    /// The process ends. Returns whether APPL_DB is behind, and how many messages of ZeroMQ are lost.
    pub(crate) fn kill(&mut self, orchagent: &mut Orchagent, rng: &mut Rng) -> (bool, usize) {
        self.running = false;
        self.connected = None;
        orchagent.unsubscribe();
        let lost = orchagent.zmq.as_mut().and_then(|zmq| zmq.end_of_producer(rng));
        (self.zmq.take().is_some_and(|zmq| zmq.is_behind()), lost.unwrap_or(0))
    }

    /// Listens for responses, and waits for the snapshot of the chip.
    fn subscribe(&mut self, appl: &ApplDb, orchagent: &mut Orchagent) {
        self.count = Count::AwaitsSnapshot(self.now_ms);
        match &self.zmq {
            None => orchagent.subscribe(appl.routes.pending()),
            Some(zmq) => orchagent.subscribe_over_zmq(zmq.process()),
        }
    }

    /// Whether nothing may be written.
    fn holds(&self) -> bool {
        matches!(self.count, Count::Due { held: true } | Count::AwaitsSnapshot(_))
    }

    /// Reads a frame.
    fn read(&mut self, bytes: &mut Vec<u8>) -> bool {
        let Ok(Some(frame)) = fpm::frame(bytes) else { return false };
        // Without the frames that begin and end a replay there is no comparison.
        let is_lost = self.lost_frames > 0
            && frame.raw().flatten().any(|message| {
                !matches!(
                    Content::decode(&message),
                    Ok(Content::Multipart { .. } | Content::Done(_)) | Err(_)
                )
            });
        match is_lost {
            true => {
                self.lost_frames -= 1;
                self.has_lost = true;
                super::trace(|| format!("fpmsyncd loses {:?}", frame.messages().collect::<Vec<_>>()));
            }
            false => self.machine.frame(&frame, &mut self.out),
        }
        let len = frame.len;
        bytes.drain(..len);
        true
    }

    /// Takes in connections and frames.
    pub(crate) fn step(
        &mut self,
        now_ms: u64,
        client: &mut Client,
        appl: &mut ApplDb,
        orchagent: &mut Orchagent,
        rng: &mut Rng,
    ) {
        self.now_ms = now_ms;
        if !self.running {
            return;
        }
        self.machine.tick(now_ms, true);
        match self.connected.take() {
            Some(true) => {
                self.machine.session_up();
                if self.has_snapshot && self.suppress && self.machine.is_unanswered() {
                    orchagent.unsubscribe();
                    (self.has_snapshot, self.count) = (false, Count::Due { held: true });
                }
            }
            Some(false) => self.machine.session_down(),
            None => {}
        }
        self.advance_count(appl, orchagent);
        let frames = rng.index(8);
        for _ in 0..frames {
            if !self.read(&mut client.to_server) {
                break;
            }
        }
        self.machine.look(!client.to_server.is_empty(), &mut self.out);
        self.advance_resend(appl, orchagent);
        self.reply(client);
    }

    /// Counts responses again when every row is handed over.
    fn advance_count(&mut self, appl: &ApplDb, orchagent: &mut Orchagent) {
        if let Count::Due { .. } = self.count {
            let taken = self.zmq.as_ref().zip(orchagent.zmq.as_ref()).map(|(zmq, to)| zmq.is_taken(to));
            match taken {
                None | Some(Some(true)) => {
                    let queued = if taken.is_none() { appl.routes.pending() } else { Default::default() };
                    self.machine.recount(queued);
                    self.subscribe(appl, orchagent);
                }
                Some(handed_over) => self.count = Count::Due { held: handed_over.is_some() },
            }
        }
        // Over ZeroMQ fpmsyncd goes on with APPL_STATE_DB, which may lag and confirms nothing.
        if let Count::AwaitsSnapshot(since) = self.count
            && self.zmq.is_some()
            && self.now_ms >= since + SNAPSHOT_MS
        {
            (self.has_snapshot, self.count) = (true, Count::Done);
        }
    }

    /// Continues transmission over ZeroMQ: waiting messages, and a resend to a new orchagent.
    fn advance_resend(&mut self, appl: &mut ApplDb, orchagent: &mut Orchagent) {
        let (held, replayed) = (self.holds(), self.machine.is_replayed());
        let (Some(zmq), Some(to)) = (&mut self.zmq, &mut orchagent.zmq) else { return };
        // The thread waits for Redis.
        if self.refused_writes > 0 {
            return;
        }
        if let Some(as_resync) = zmq.resend_due(held, replayed, to)
            && !self.resends_nothing
        {
            super::trace(|| format!("fpmsyncd sends every row again, as a resync: {as_resync}"));
            self.write(appl, orchagent);
            let (Some(zmq), Some(to)) = (&mut self.zmq, &mut orchagent.zmq) else { return };
            let kind = zmq.begin_resend(as_resync, to);
            zmq.resending = Some((self.machine.resend_all(), kind));
        }
        let (Some(zmq), Some(to)) = (&mut self.zmq, &mut orchagent.zmq) else { return };
        if held || !zmq.is_resending(to) {
            return;
        }
        // A resent row must equal the written one.
        if self.machine.pending() > 0 {
            self.write(appl, orchagent);
        }
        let (Some(zmq), Some(to)) = (&mut self.zmq, &mut orchagent.zmq) else { return };
        let Some((resend, kind)) = &mut zmq.resending else { return };
        let more = self.machine.next_resent(resend, *kind, AGAIN, &mut self.out);
        super::trace(|| format!("fpmsyncd sends again {:?}", self.out.routes));
        zmq.resend(&mut self.out.routes, !more, to);
        if !more {
            zmq.resending = None;
        }
    }

    /// Takes in responses of orchagent.
    pub(crate) fn respond(&mut self, client: &mut Client, orchagent: &mut Orchagent) -> bool {
        if !self.running {
            return false;
        }
        // A connection that broke is made again.
        let is_due = matches!(self.count, Count::Due { .. });
        if self.suppress && !is_due && !orchagent.is_subscribed() {
            match &self.zmq {
                None => orchagent.subscribe(Default::default()),
                Some(zmq) => orchagent.subscribe_over_zmq(zmq.process()),
            }
        }
        let Some(message) = orchagent.responses.pop_front() else { return false };
        let mut reader = ResponseReader::new(&message).expect("a message of orchagent");
        if reader.kind == ResponseKind::SnapshotEnd {
            self.has_snapshot = true;
            self.machine.all_said();
            self.count = Count::Done;
        }
        while let Some(group) = reader.next_group().expect("a message of orchagent") {
            let out = &mut self.out;
            match reader.kind {
                ResponseKind::Confirmed => {
                    self.machine.confirm_all(group.vrf, group.name, group.prefixes(), out);
                }
                ResponseKind::Refused => {
                    self.machine.refused(group.vrf, &group.name.into(), group.refused(), out);
                }
                ResponseKind::InChip | ResponseKind::SnapshotEnd => {
                    // Over ZeroMQ orchagent may have missed the last row.
                    self.machine.in_chip(group.vrf, group.prefixes(), self.zmq.is_none());
                }
            }
        }
        self.reply(client);
        true
    }

    fn reply(&mut self, client: &mut Client) {
        let mut bytes = Vec::new();
        self.out.write_replies(&mut bytes);
        self.out.events.clear();
        if client.connected && self.connected.is_none() {
            client.to_client.append(&mut bytes);
        }
    }

    /// Writes what changed, unless Redis refuses it or orchagent has no room. Returns whether there
    /// was something.
    pub(crate) fn flush(
        &mut self,
        appl: &mut ApplDb,
        orchagent: &mut Orchagent,
        client: &mut Client,
    ) -> bool {
        if !self.running || self.holds() || self.machine.pending() == 0 {
            return false;
        }
        if self.refused_writes > 0 {
            self.refused_writes -= 1;
            return true;
        }
        if let (Some(zmq), Some(to)) = (&self.zmq, &orchagent.zmq)
            && !zmq.has_room(to)
        {
            return false;
        }
        self.write(appl, orchagent);
        self.reply(client);
        true
    }

    /// Writes what changed.
    fn write(&mut self, appl: &mut ApplDb, orchagent: &mut Orchagent) {
        self.machine.take(&mut self.out);
        if self.loses_deletions {
            self.out.routes.retain(|change| change.row.is_some());
        }
        if self.deletes_groups {
            let named = self.out.routes.iter().filter_map(|change| index_of(change.row.as_ref()?));
            let named: Vec<_> = named.map(|index| Change::del(index.into())).collect();
            self.out.old_groups.extend(named);
        }
        if self.confirms_early {
            let rows = self.out.routes.iter().filter_map(|change| Some((&change.key, change.row.as_ref()?)));
            let rows: Vec<_> = rows.map(|(key, row)| (key.clone(), row.protocol.clone())).collect();
            for (key, protocol) in rows {
                let response = ribtide_swss::row::RouteResponse::success(key, protocol);
                self.machine.confirm(&response, &mut self.out);
            }
        }
        super::trace(|| format!("fpmsyncd writes {:?}", self.out));
        appl.groups.write(self.out.groups.drain(..));
        match (&mut self.zmq, &mut orchagent.zmq) {
            (Some(zmq), Some(to)) => {
                zmq.keep(&self.out.routes, &mut appl.routes);
                zmq.send(&mut self.out.routes, to);
                zmq.send(&mut self.out.queries, to);
            }
            _ => {
                appl.routes.write(self.out.routes.drain(..));
                for change in self.out.queries.drain(..) {
                    appl.routes.touch(&change.key);
                }
            }
        }
        appl.groups.write(self.out.old_groups.drain(..));
    }

    /// The writer of APPL_DB works, with routes over ZeroMQ.
    pub(crate) fn write_behind(&mut self, appl: &mut ApplDb, rng: &mut Rng) {
        let count = 1 + rng.index(8);
        if self.refused_writes == 0 {
            self.zmq.iter_mut().for_each(|zmq| zmq.write_behind(count, &mut appl.routes));
        }
    }

    /// Redis was lost with its data, and is back: every row is written again.
    pub(crate) fn write_again(&mut self, appl: &mut ApplDb, orchagent: &mut Orchagent) {
        if !self.running {
            return;
        }
        self.machine.take(&mut self.out);
        self.machine.write_again(&mut self.out);
        appl.groups.write(self.out.groups.drain(..));
        if let (Some(zmq), Some(to)) = (&mut self.zmq, &mut orchagent.zmq) {
            zmq.keep(&self.out.routes, &mut appl.routes);
            zmq.send(&mut self.out.routes, to);
            zmq.send(&mut self.out.queries, to);
        }
        let mut again = self.machine.resend_all();
        let kind = ribtide_swss::fpmsyncd::ResendKind::AsNew;
        while self.machine.next_resent(&mut again, kind, 1000, &mut self.out) {}
        match (&mut self.zmq, &mut orchagent.zmq) {
            (Some(zmq), Some(to)) => {
                zmq.keep(&self.out.routes, &mut appl.routes);
                self.out.routes.clear();
                let kind = zmq.resend_as_new(to);
                zmq.resending = Some((self.machine.resend_all(), kind));
            }
            _ => appl.routes.write(self.out.routes.drain(..)),
        }
        self.out.queries.clear();
        self.out.old_groups.clear();
    }

    /// The reply to orchagent's query about rows.
    pub(crate) fn compare_found(&self, found: &[FoundRow]) -> Option<Vec<ProducerRow>> {
        (self.running && !self.holds()).then(|| self.machine.compare_found(found))
    }

    /// Compares APPL_DB with this process's rows, and writes again what differs. Returns those.
    pub(crate) fn reconcile(&mut self, appl: &mut ApplDb) -> Vec<RowName> {
        if !self.running || self.holds() || self.refused_writes > 0 {
            return Vec::new();
        }
        let is_kept = self.over_zmq != Some(Persistence::Off);
        let behind = self.zmq.as_ref().map(ZmqRoutes::keys_behind).unwrap_or_default();
        let is_behind = |name: &RowName| matches!(name, RowName::Route(key) if behind.contains(key));
        let (mut cursor, mut differing) = (Some(RowCursor::default()), Vec::new());
        while let Some(from) = cursor {
            let (rows, next) = match is_kept {
                true => self.machine.wanted_rows(from, PAGE),
                false => (self.machine.wanted_groups().collect(), None),
            };
            let differs = |(key, wanted): (TableKey, WantedRow)| {
                // No client here has VPNs.
                let TableKey::Row(name) = key else { return None };
                let differs = !is_behind(&name) && appl.read(&name).is_some_and(|fields| !wanted.is(&fields));
                differs.then_some(name)
            };
            differing.extend(rows.into_iter().filter_map(differs));
            cursor = next;
        }
        let mut out = FpmOut::default();
        let is_answered = self.zmq.is_none();
        differing
            .iter()
            .for_each(|name| self.machine.row_again(&TableKey::Row(name.clone()), is_answered, &mut out));
        super::trace(|| format!("fpmsyncd repairs {out:?}"));
        appl.groups.write(out.groups.drain(..));
        match &mut self.zmq {
            None => appl.routes.write(out.routes.drain(..)),
            Some(zmq) => zmq.keep(&out.routes, &mut appl.routes),
        }
        differing
    }

    pub(crate) fn is_idle(&self, orchagent: &Orchagent) -> bool {
        let over_zmq = self.zmq.as_ref().zip(orchagent.zmq.as_ref());
        self.running
            && over_zmq.is_none_or(|(zmq, to)| zmq.is_idle(to))
            && self.connected.is_none()
            && self.count == Count::Done
            && self.machine.pending() == 0
            && self.refused_writes == 0
    }

    /// Checks that APPL_DB has the rows of this process, and the groups that they name.
    pub(crate) fn check_rows(&self, appl: &ApplDb) -> Result<(), String> {
        let (rows, groups) = (appl.routes.rows(), appl.groups.rows());
        if self.over_zmq == Some(Persistence::Off) {
            return if rows.is_empty() { Ok(()) } else { Err("ROUTE_TABLE has rows".into()) };
        }
        if rows.len() != self.machine.len() {
            return Err(format!("ROUTE_TABLE has {} rows for {} routes", rows.len(), self.machine.len()));
        }
        for (key, row, _) in rows {
            if !self.machine.has_row(&key) {
                return Err(format!("{key:?} is in ROUTE_TABLE, and fpmsyncd does not have it"));
            }
            let named = index_of(&row);
            if named.as_ref().is_some_and(|index| groups.iter().all(|(group, ..)| **group != **index)) {
                return Err(format!("{key:?} names the group {named:?}, which is not there"));
            }
        }
        Ok(())
    }

    /// How many routes wait for a next-hop object.
    pub(crate) fn waiting(&self) -> usize {
        self.machine.waiting()
    }
}

/// The index of the group that a route's row names.
fn index_of(row: &RouteRow) -> Option<String> {
    Some(row.via.get(Field::NexthopGroup)).filter(|index| !index.is_empty()).map(str::to_owned)
}
