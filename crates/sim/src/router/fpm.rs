//! The FPM client and fpmsyncd, with the connection between them, APPL_DB, and the responses of
//! orchagent.

use super::orchagent::{ApplDb, Orchagent, name_links};
use ribtide_dataplane::fpm::machine::FpmMachine;
use ribtide_prefix::Rng;
use ribtide_rib::{DataplaneId, FibAck, FibBatch};
use ribtide_swss::Change;
use ribtide_swss::fpmsyncd::{FoundRow, FpmConfig, FpmOut, Fpmsyncd, ProducerRow, RowCursor, WantedRow};
use ribtide_swss::row::{Field, ResponseKind, ResponseReader, RouteRow, RowName};
use ribtide_wire::fpm;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Milliseconds between attempts to connect.
const RECONNECT_MS: u64 = 3000;
/// Rows of a page of the comparison with APPL_DB.
const PAGE: usize = 16;
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
            machine: FpmMachine::new(id, next_hop_groups, waits, base),
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
    /// Rows are to be handed over first.
    Due,
    /// The snapshot of the chip is to come first.
    AwaitsSnapshot,
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
    /// Writes that Redis refuses.
    pub(crate) refused_writes: u32,
    /// A deliberate fault: routes count as confirmed when they are written.
    pub(crate) confirms_early: bool,
    /// A deliberate fault: deletions of rows are lost.
    pub(crate) loses_deletions: bool,
    /// A deliberate fault: a group is deleted when a route that names it is written.
    pub(crate) deletes_groups: bool,
}

impl Server {
    pub(crate) fn new(suppress: bool, orchagent: &mut Orchagent) -> Server {
        let mut server = Server {
            machine: Fpmsyncd::new(FpmConfig { suppress, ..FpmConfig::default() }),
            out: FpmOut::default(),
            suppress,
            running: false,
            connected: None,
            count: Count::Done,
            has_snapshot: !suppress,
            refused_writes: 0,
            confirms_early: false,
            loses_deletions: false,
            deletes_groups: false,
        };
        server.start(&ApplDb::default(), orchagent);
        server
    }

    /// The process starts, and learns the rows of an earlier one.
    pub(crate) fn start(&mut self, appl: &ApplDb, orchagent: &mut Orchagent) -> bool {
        if std::mem::replace(&mut self.running, true) {
            return false;
        }
        self.machine = Fpmsyncd::new(FpmConfig { suppress: self.suppress, ..FpmConfig::default() });
        self.out = FpmOut::default();
        name_links(&mut self.machine, &mut self.out);
        for (key, row, queued) in appl.groups.rows() {
            self.machine.known_group(&key, row, queued);
        }
        for (key, row, queued) in appl.routes.rows() {
            self.machine.known_route(key, &row, queued);
        }
        (self.count, self.has_snapshot) = (Count::Done, !self.suppress);
        if self.suppress {
            self.count = Count::AwaitsSnapshot;
            orchagent.subscribe(appl.routes.pending());
        }
        true
    }

    /// The process ends.
    pub(crate) fn kill(&mut self, orchagent: &mut Orchagent) {
        self.running = false;
        self.connected = None;
        orchagent.unsubscribe();
    }

    /// Reads a frame.
    fn read(&mut self, bytes: &mut Vec<u8>) -> bool {
        let Ok(Some(frame)) = fpm::frame(bytes) else { return false };
        self.machine.frame(&frame, &mut self.out);
        let len = frame.len;
        bytes.drain(..len);
        true
    }

    /// Takes in connections and frames.
    pub(crate) fn step(
        &mut self,
        now_ms: u64,
        client: &mut Client,
        appl: &ApplDb,
        orchagent: &mut Orchagent,
        rng: &mut Rng,
    ) {
        if !self.running {
            return;
        }
        self.machine.tick(now_ms, true);
        match self.connected.take() {
            Some(true) => {
                self.machine.session_up();
                if self.has_snapshot && self.suppress && self.machine.is_unanswered() {
                    orchagent.unsubscribe();
                    (self.has_snapshot, self.count) = (false, Count::Due);
                }
            }
            Some(false) => self.machine.session_down(),
            None => {}
        }
        if self.count == Count::Due {
            self.machine.recount(appl.routes.pending());
            orchagent.subscribe(appl.routes.pending());
            self.count = Count::AwaitsSnapshot;
        }
        let frames = rng.index(8);
        for _ in 0..frames {
            if !self.read(&mut client.to_server) {
                break;
            }
        }
        self.machine.look(!client.to_server.is_empty(), &mut self.out);
        self.reply(client);
    }

    /// Takes in responses of orchagent.
    pub(crate) fn respond(&mut self, client: &mut Client, orchagent: &mut Orchagent) -> bool {
        if !self.running {
            return false;
        }
        // A connection that broke is made again.
        if self.suppress && self.count != Count::Due && !orchagent.is_subscribed() {
            orchagent.subscribe(Default::default());
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
                    self.machine.in_chip(group.vrf, group.prefixes(), true);
                }
            }
        }
        self.reply(client);
        true
    }

    fn reply(&mut self, client: &mut Client) {
        let mut bytes = Vec::new();
        if let Some(in_chip) = self.out.in_chip.take() {
            fpm::write_start_of_replies(&mut bytes, in_chip);
        }
        self.out.offloads.drain(..).for_each(|offload| offload.write(&mut bytes));
        self.out.events.clear();
        if client.connected && self.connected.is_none() {
            client.to_client.append(&mut bytes);
        }
    }

    /// Writes what changed, unless Redis refuses it. Returns whether there was something.
    pub(crate) fn flush(&mut self, appl: &mut ApplDb, client: &mut Client) -> bool {
        if !self.running || self.count != Count::Done || self.machine.pending() == 0 {
            return false;
        }
        if self.refused_writes > 0 {
            self.refused_writes -= 1;
            return true;
        }
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
        appl.routes.write(self.out.routes.drain(..));
        for change in self.out.queries.drain(..) {
            appl.routes.touch(&change.key);
        }
        appl.groups.write(self.out.old_groups.drain(..));
        self.reply(client);
        true
    }

    /// Redis was lost with its data, and is back: every row is written again.
    pub(crate) fn write_again(&mut self, appl: &mut ApplDb) {
        if !self.running {
            return;
        }
        self.machine.take(&mut self.out);
        self.machine.write_again(&mut self.out);
        let mut again = self.machine.resend_all();
        let kind = ribtide_swss::fpmsyncd::ResendKind::AsNew;
        while self.machine.next_resent(&mut again, kind, 1000, &mut self.out) {}
        appl.groups.write(self.out.groups.drain(..));
        appl.routes.write(self.out.routes.drain(..));
        self.out.queries.clear();
        self.out.old_groups.clear();
    }

    /// The reply to orchagent's query about rows.
    pub(crate) fn compare_found(&self, found: &[FoundRow]) -> Option<Vec<ProducerRow>> {
        (self.running && self.count == Count::Done).then(|| self.machine.compare_found(found))
    }

    /// Compares APPL_DB with this process's rows, and writes again what differs. Returns those.
    pub(crate) fn reconcile(&mut self, appl: &mut ApplDb) -> Vec<RowName> {
        if !self.running || self.count != Count::Done || self.refused_writes > 0 {
            return Vec::new();
        }
        let (mut cursor, mut differing) = (Some(RowCursor::default()), Vec::new());
        while let Some(from) = cursor {
            let (rows, next) = self.machine.wanted_rows(from, PAGE);
            let differs = |(name, wanted): &(RowName, WantedRow)| {
                appl.read(name).is_some_and(|fields| !wanted.is(&fields))
            };
            differing.extend(rows.into_iter().filter(differs).map(|(name, _)| name));
            cursor = next;
        }
        let mut out = FpmOut::default();
        differing.iter().for_each(|name| self.machine.row_again(name, true, &mut out));
        super::trace(|| format!("fpmsyncd repairs {out:?}"));
        appl.groups.write(out.groups.drain(..));
        appl.routes.write(out.routes.drain(..));
        differing
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.running
            && self.connected.is_none()
            && self.count == Count::Done
            && self.machine.pending() == 0
            && self.refused_writes == 0
    }

    /// Checks that APPL_DB has the rows of this process, and the groups that they name.
    pub(crate) fn check_rows(&self, appl: &ApplDb) -> Result<(), String> {
        let (rows, groups) = (appl.routes.rows(), appl.groups.rows());
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
