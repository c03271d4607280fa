//! ROUTE_TABLE over ZeroMQ: the connection of fpmsyncd to orchagent, and both ends of it
//! (`ZmqProducer`, `ZmqConsumer` and `Turns` of `ribtide_tables`, and `ZmqRoutes` of
//! `ribtide_sonicd`, without their threads and sockets). Messages are the product's bytes, and so is
//! the decision what a new connection needs.

use super::database::Table;
use super::script::Persistence;
use ribtide_prefix::Rng;
use ribtide_swss::fpmsyncd::{Resend, ResendKind, ResyncState};
use ribtide_swss::row::{RouteKey, RouteRow};
use ribtide_swss::{Change, Row};
use ribtide_tables::zmq::{decode_changes, encode_changes};
use std::collections::{BTreeSet, VecDeque};

/// Messages in flight at most. Few, so that routes often wait for room.
const WINDOW: usize = 3;
/// Changes of a message at most.
const BATCH: usize = 4;

/// A process of fpmsyncd.
pub(crate) type Process = u64;

/// A message that orchagent has not taken.
struct Message {
    connection: u64,
    process: Process,
    bytes: Vec<u8>,
}

/// What orchagent takes before an fpmsyncd gets its snapshot.
#[derive(Clone, Copy)]
enum Fence {
    /// All that other processes sent.
    OfOthers(Process),
    /// So many messages since the start.
    Messages(u64),
}

/// The connection, and orchagent's end of it. Messages of an earlier connection come before those
/// of the next one.
pub(crate) struct Connection {
    /// The open connection.
    open: Option<u64>,
    /// How many there were.
    count: u64,
    /// The connection that the producer has not noticed.
    renewed: Option<u64>,
    queue: VecDeque<Message>,
    /// What is left of the message that was popped last, and its connection.
    rest: VecDeque<Change<RouteRow>>,
    rest_of: u64,
    /// Messages that were popped.
    popped: u64,
    fence: Fence,
    /// Attempts to connect that fail.
    pub(crate) refuses: u32,
}

impl Connection {
    pub(crate) fn new() -> Connection {
        Connection {
            open: None,
            count: 0,
            renewed: None,
            queue: VecDeque::new(),
            rest: VecDeque::new(),
            rest_of: 0,
            popped: 0,
            fence: Fence::Messages(0),
            refuses: 0,
        }
    }

    /// fpmsyncd connects, unless it is connected. Returns false when that is refused.
    pub(crate) fn connect(&mut self) -> bool {
        if self.open.is_some() {
            return true;
        }
        if self.refuses > 0 {
            self.refuses -= 1;
            return false;
        }
        self.count += 1;
        (self.open, self.renewed) = (Some(self.count), Some(self.count));
        super::trace(|| format!("ZeroMQ connection {}", self.count));
        true
    }

    /// The connection breaks, and orchagent still reads some of the messages in flight. Returns how
    /// many are lost; `None` without a connection.
    pub(crate) fn disconnect(&mut self, rng: &mut Rng) -> Option<usize> {
        let open = self.open.take()?;
        let in_flight = self.queue.iter().filter(|message| message.connection == open).count();
        let lost = rng.index(in_flight + 1);
        self.queue.truncate(self.queue.len() - lost);
        super::trace(|| format!("ZeroMQ connection {open} breaks, {lost} messages are lost"));
        Some(lost)
    }

    /// fpmsyncd ends. Returns how many messages are lost; `None` without a connection.
    pub(crate) fn end_of_producer(&mut self, rng: &mut Rng) -> Option<usize> {
        self.renewed = None;
        self.disconnect(rng)
    }

    /// orchagent ends. Returns how many messages are lost.
    pub(crate) fn end(&mut self) -> usize {
        let lost = self.queue.len() + usize::from(!self.rest.is_empty());
        let refuses = self.refuses;
        *self = Connection { count: self.count, renewed: self.renewed, refuses, ..Connection::new() };
        lost
    }

    /// Messages of the open connection that are not acknowledged.
    fn in_flight(&self) -> usize {
        let Some(open) = self.open else { return 0 };
        let rest = usize::from(!self.rest.is_empty() && self.rest_of == open);
        rest + self.queue.iter().filter(|message| message.connection == open).count()
    }

    /// Takes at most `count` changes, in their order.
    pub(crate) fn pop(&mut self, count: usize) -> Vec<Change<RouteRow>> {
        let mut changes = Vec::new();
        while changes.len() < count {
            if let Some(change) = self.rest.pop_front() {
                changes.push(change);
                continue;
            }
            let Some(message) = self.queue.pop_front() else { break };
            self.popped += 1;
            self.rest_of = message.connection;
            self.rest = decode_changes(&message.bytes).expect("a message of fpmsyncd").into();
        }
        changes
    }

    /// An fpmsyncd gets its snapshot when all that other processes sent is taken.
    pub(crate) fn set_fence(&mut self, process: Process) {
        self.fence = Fence::OfOthers(process);
    }

    /// Whether that is taken. Of this process, some messages may be waited for, too.
    pub(crate) fn is_past_fence(&mut self, rng: &mut Rng) -> bool {
        if let Fence::OfOthers(process) = self.fence
            && self.queue.iter().all(|message| message.process == process)
        {
            self.fence = Fence::Messages(self.popped + rng.index(self.queue.len() + 1) as u64);
        }
        let Fence::Messages(count) = self.fence else { return false };
        self.popped > count || (self.popped == count && self.rest.is_empty())
    }

    /// Whether every message is taken.
    pub(crate) fn is_drained(&self) -> bool {
        self.queue.is_empty() && self.rest.is_empty()
    }
}

/// fpmsyncd's end, and the copy of ROUTE_TABLE in APPL_DB.
pub(crate) struct ZmqRoutes {
    process: Process,
    /// The connection that it knows.
    link: Option<u64>,
    /// Changes without room.
    waiting: VecDeque<Change<RouteRow>>,
    state: ResyncState,
    /// Rows that orchagent is sent again, and how.
    pub(crate) resending: Option<(Resend, ResendKind)>,
    keeps: Persistence,
    /// Changes that the writer of APPL_DB did not write.
    behind: VecDeque<Change<RouteRow>>,
}

impl ZmqRoutes {
    pub(crate) fn start(process: Process, keeps: Persistence, table: &mut Table<RouteRow>) -> ZmqRoutes {
        if keeps == Persistence::Off {
            table.clear();
        }
        ZmqRoutes {
            process,
            link: None,
            waiting: VecDeque::new(),
            state: ResyncState::new(keeps == Persistence::InLine),
            resending: None,
            keeps,
            behind: VecDeque::new(),
        }
    }

    pub(crate) fn process(&self) -> Process {
        self.process
    }

    pub(crate) fn is_connected(&self, to: &Connection) -> bool {
        self.link.is_some() && self.link == to.open
    }

    /// Whether no change waits and another message can be sent at once.
    fn is_free(&self, to: &Connection) -> bool {
        self.waiting.is_empty() && self.is_connected(to) && to.in_flight() < WINDOW
    }

    /// Whether changes would leave this process.
    pub(crate) fn has_room(&self, to: &Connection) -> bool {
        !self.is_connected(to) || self.is_free(to)
    }

    /// Whether orchagent took everything; `None` without an orchagent.
    pub(crate) fn is_taken(&self, to: &Connection) -> Option<bool> {
        self.is_connected(to).then(|| self.waiting.is_empty() && to.in_flight() == 0)
    }

    /// Sends waiting messages as far as there is room.
    fn resume(&mut self, to: &mut Connection) {
        while !self.waiting.is_empty() && to.in_flight() < WINDOW {
            let bytes = encode_changes(&mut self.waiting, BATCH, true, &mut String::new());
            match self.link.filter(|link| to.open == Some(*link)) {
                Some(connection) => {
                    to.queue.push_back(Message { connection, process: self.process, bytes });
                }
                None => {
                    self.link = None;
                    self.waiting.clear();
                }
            }
        }
    }

    fn push(&mut self, changes: &mut Vec<Change<RouteRow>>, to: &mut Connection) {
        if self.link.is_some() {
            self.waiting.append(&mut std::mem::take(changes).into());
            self.resume(to);
        }
        changes.clear();
    }

    /// Sends changes to orchagent alone.
    pub(crate) fn send(&mut self, changes: &mut Vec<Change<RouteRow>>, to: &mut Connection) {
        if !changes.is_empty() {
            self.state.wrote(self.is_connected(to));
            self.push(changes, to);
        }
    }

    /// Sends waiting messages, and returns whether a resend of all rows is due; with `true` as a
    /// resync. None is due while rows are `held` back.
    pub(crate) fn resend_due(&mut self, held: bool, replayed: bool, to: &mut Connection) -> Option<bool> {
        if held {
            self.resume(to);
            return None;
        }
        if let Some(link) = to.renewed.take() {
            self.link = Some(link);
            self.waiting.clear();
            if self.state.connected(replayed, self.is_connected(to)) {
                return Some(false);
            }
        }
        self.resume(to);
        self.state.is_resync_due(replayed, self.is_free(to)).then_some(true)
    }

    /// Begins a resend of all rows.
    pub(crate) fn begin_resend(&mut self, as_resync: bool, to: &mut Connection) -> ResendKind {
        if as_resync {
            let row = RouteRow::from_fields(&mut [("nexthop", "0.0.0.0")].into_iter());
            self.push(&mut vec![Change::set(RouteKey::Resync, row.expect("a next hop"))], to);
        }
        self.state.begin(as_resync, self.is_connected(to))
    }

    /// The same after Redis was lost.
    pub(crate) fn resend_as_new(&mut self, to: &mut Connection) -> ResendKind {
        let as_resync = self.state.resending().unwrap_or(false);
        self.begin_resend(as_resync, to);
        ResendKind::AsNew
    }

    /// Whether rows of a resend can go. A lost connection ends it.
    pub(crate) fn is_resending(&mut self, to: &Connection) -> bool {
        if self.state.resending().is_none() || !self.is_connected(to) {
            self.resending = None;
        }
        self.resending.is_some() && self.is_free(to)
    }

    /// Sends rows of the resend, and its end after the `last`.
    pub(crate) fn resend(&mut self, rows: &mut Vec<Change<RouteRow>>, last: bool, to: &mut Connection) {
        if last && self.state.end() {
            rows.push(Change::del(RouteKey::Resync));
        }
        self.push(rows, to);
    }

    /// Writes changes to APPL_DB, now or later.
    pub(crate) fn keep(&mut self, changes: &[Change<RouteRow>], table: &mut Table<RouteRow>) {
        match self.keeps {
            Persistence::Off => {}
            Persistence::Behind => self.behind.extend(changes.iter().cloned()),
            Persistence::InLine => changes.iter().cloned().for_each(|change| table.put(change)),
        }
    }

    /// The writer of APPL_DB writes some changes.
    pub(crate) fn write_behind(&mut self, count: usize, table: &mut Table<RouteRow>) {
        let count = count.min(self.behind.len());
        self.behind.drain(..count).for_each(|change| table.put(change));
    }

    /// Whether APPL_DB lacks changes.
    pub(crate) fn is_behind(&self) -> bool {
        !self.behind.is_empty()
    }

    /// The keys of these changes.
    pub(crate) fn keys_behind(&self) -> BTreeSet<RouteKey> {
        self.behind.iter().map(|change| change.key.clone()).collect()
    }

    pub(crate) fn is_idle(&self, to: &Connection) -> bool {
        to.renewed.is_none()
            && self.is_connected(to)
            && self.waiting.is_empty()
            && self.resending.is_none()
            && self.behind.is_empty()
    }
}
