//! A table over ZeroMQ: [`ZmqProducer`] connects and pushes, [`ZmqConsumer`] binds and pulls.
//!
//! SONiC's transport loses what a full queue or a restart did not deliver. Here a message is sent
//! only when there is room: the producer checks [`ZmqProducer::has_room`], and stores (and
//! coalesces) the rest. A ribtide consumer acknowledges the messages that its owner took, which
//! makes room; with SONiC's consumer, the connection itself is the bound. Messages in flight on a
//! broken connection may be lost, so the producer's owner sends everything again on the next one.

use super::binary::{self, Malformed};
use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{CONNECT_BACKOFF, LIMIT, Push, PushSettings, WINDOW, unreachable};
use super::turns::Turns;
use super::zmtp::{Kind, Peer, Process, Writer};
use crate::row_cache::RowCache;
use crate::{Consumer, TableError};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wake_up::{self, WakeUp, Waker};
use ribtide_swss::{Change, Row};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Changes in one message at most.
const BATCH: usize = 1000;
/// Bytes at which a message is full. SONiC accepts less than 16 MiB.
const MESSAGE_BYTES_THRESHOLD: usize = 1 << 20;

/// The producing side.
#[derive(Debug)]
pub struct ZmqProducer<R: Row> {
    push: Push,
    waiting: VecDeque<Change<R>>,
    scratch: String,
}

impl<R: Row> ZmqProducer<R> {
    /// Connects to `endpoint`, and again after each loss, until `stop`.
    ///
    /// # Errors
    /// [`TableError::Endpoint`] when no thread can be created.
    pub fn connect(endpoint: Endpoint, rings: &Rings, stop: &Stop) -> Result<Self, TableError> {
        let settings = PushSettings {
            what: R::TABLE,
            send_thread: "zmq-push",
            ack_thread: "zmq-acks",
            backoff_max: CONNECT_BACKOFF.1,
        };
        let push = Push::connect(endpoint, settings, rings, stop)?;
        Ok(ZmqProducer { push, waiting: VecDeque::new(), scratch: String::new() })
    }

    /// [`Push::wake_up`].
    pub fn wake_up(&self) -> &WakeUp {
        self.push.wake_up()
    }

    /// Whether the connection is new: then everything must be sent again, and pending changes are
    /// dropped.
    pub fn renewed(&mut self) -> bool {
        let renewed = self.push.renewed();
        if renewed {
            self.waiting.clear();
        }
        renewed
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self) -> bool {
        self.push.is_connected()
    }

    /// Whether the connected peer acknowledges, and is therefore ribtide's.
    pub fn is_acknowledged(&self) -> bool {
        self.push.is_acknowledged()
    }

    /// Whether no change waits and another message can be sent at once.
    pub fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.push.has_room()
    }

    /// The number of changes that wait for room.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// [`Push::unacknowledged`].
    pub fn unacknowledged(&self) -> u64 {
        self.push.unacknowledged()
    }

    /// Whether every message was acknowledged, as far as the consumer acknowledges.
    pub fn is_taken(&self) -> bool {
        self.waiting.is_empty() && self.push.is_taken()
    }

    /// MessageSink all changes and sends what there is room for. Without a connection they are dropped: everything is said
    /// again when there is one.
    pub fn send(&mut self, changes: &mut Vec<Change<R>>) {
        if self.push.is_linked() {
            self.waiting.extend(std::mem::take(changes));
            self.resume();
        }
        changes.clear();
    }

    /// Sends waiting changes as far as there is room.
    pub fn resume(&mut self) {
        if self.waiting.is_empty() {
            // The queue may have held the whole table.
            self.waiting = VecDeque::new();
        }
        while !self.waiting.is_empty() && self.push.has_room() {
            let acknowledges = self.push.acknowledges();
            let message = encode_changes(&mut self.waiting, BATCH, acknowledges, &mut self.scratch);
            if !self.push.send(message) {
                // Everything is sent again on the next connection.
                self.waiting.clear();
            }
        }
    }
}

/// Takes at most `count` changes, and encodes them as one message. `acknowledges`: the consumer is
/// ribtide's. `scratch` is for keys.
pub fn encode_changes<R: Row>(
    changes: &mut VecDeque<Change<R>>,
    count: usize,
    acknowledges: bool,
    scratch: &mut String,
) -> Vec<u8> {
    let mut message = binary::Writer::new(R::DB.name(), R::TABLE);
    for _ in 0..count {
        let Some(change) = changes.pop_front() else { break };
        scratch.clear();
        R::key_text(&change.key, scratch);
        message.change(scratch, |put| match &change.row {
            None => {}
            // SONiC's consumer coalesces pending rows, and would keep fields that a row
            // does not name.
            Some(row) if change.reshaped || !acknowledges => row.all_fields(put),
            Some(row) => row.fields(put),
        });
        if message.len() >= MESSAGE_BYTES_THRESHOLD {
            break;
        }
    }
    message.finish()
}

/// The changes of a message; `None` when it is malformed. A message of another table has none, and
/// a row of another format is left out.
pub fn decode_changes<R: Row>(message: &[u8]) -> Option<Vec<Change<R>>> {
    read(message, &mut RowCache::default()).ok()
}

/// The changes of one message.
#[derive(Debug)]
struct Batch<R: Row> {
    changes: Vec<Change<R>>,
    /// Tells the producer, when it is one of ours, how many messages were taken.
    taken: Option<(Writer, u64)>,
}

/// The consuming side.
#[derive(Debug)]
pub struct ZmqConsumer<R: Row> {
    batches: ring::Receiver<Batch<R>>,
    wake_up: WakeUp,
    turns: Turns,
    /// The number of received batches.
    came: Arc<AtomicU64>,
    /// The number of popped batches, the last one perhaps in part.
    popped: u64,
    fence: Fence,
    rest: VecDeque<Change<R>>,
    /// The acknowledgement to send when `rest` is taken.
    taken: Option<(Writer, u64)>,
}

/// The position of the fence.
#[derive(Clone, Copy, Debug)]
enum Fence {
    /// After all that other processes send until they end.
    OfOthers(Process),
    /// After this many batches.
    Batches(u64),
}

impl<R: Row> ZmqConsumer<R> {
    /// Binds to `endpoint` and takes messages of this table from all connections, until `stop`. A
    /// message of another table, or a malformed one, is ignored.
    ///
    /// # Errors
    /// [`TableError::Endpoint`] when the endpoint is in use or not of this machine.
    pub fn bind(endpoint: &Endpoint, rings: &Rings, stop: &Stop) -> Result<Self, TableError> {
        let turns = Turns::default();
        let (input, consumer) = TableInput::<R>::new(&turns, rings);
        serve(endpoint, R::TABLE, vec![Box::new(input)], turns, stop)?;
        Ok(consumer)
    }

    /// [`ZmqConsumer::bind`] for two tables at one endpoint, over one or several connections.
    ///
    /// # Errors
    /// As [`ZmqConsumer::bind`].
    pub fn bind_two<S: Row>(
        endpoint: &Endpoint,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<(Self, ZmqConsumer<S>), TableError> {
        let turns = Turns::default();
        let (first, consumer) = TableInput::<R>::new(&turns, rings);
        let (second, other) = TableInput::<S>::new(&turns, rings);
        serve(endpoint, R::TABLE, vec![Box::new(first), Box::new(second)], turns, stop)?;
        Ok((consumer, other))
    }
}

/// The destination of one table's messages.
trait MessageSink: Send {
    /// The database and the table.
    fn table(&self) -> (&'static str, &'static str);

    /// MessageSink a message, and who is to be told when its owner has taken it. False when the owner is gone.
    fn take(&mut self, message: &[u8], taken: Option<(Writer, u64)>) -> bool;

    /// Notes that the connection has ended.
    fn ended(&self);

    /// The same for another connection.
    fn again(&self) -> Box<dyn MessageSink>;
}

struct TableInput<R: Row> {
    batches: ring::Sender<Batch<R>>,
    came: Arc<AtomicU64>,
    waker: Waker,
    row_cache: RowCache<R>,
}

impl<R: Row> TableInput<R> {
    fn new(turns: &Turns, rings: &Rings) -> (TableInput<R>, ZmqConsumer<R>) {
        let (batches, taken) = rings.bounded(R::TABLE, WINDOW as usize);
        let (waker, wake_up) = wake_up::pair();
        let came = Arc::new(AtomicU64::new(0));
        let input = TableInput { batches, came: came.clone(), waker, row_cache: RowCache::default() };
        let (turns, fence) = (turns.clone(), Fence::Batches(0));
        let rest = VecDeque::new();
        (input, ZmqConsumer { batches: taken, wake_up, turns, came, popped: 0, fence, rest, taken: None })
    }
}

impl<R: Row> MessageSink for TableInput<R> {
    fn table(&self) -> (&'static str, &'static str) {
        (R::DB.name(), R::TABLE)
    }

    fn take(&mut self, message: &[u8], taken: Option<(Writer, u64)>) -> bool {
        let changes = match read::<R>(message, &mut self.row_cache) {
            Ok(changes) => changes,
            Err(Malformed) => {
                tracing::warn!(
                    target: target::ZMQ,
                    table = R::TABLE,
                    bytes = message.len(),
                    "a message is passed over: it is no change of tables"
                );
                Vec::new()
            }
        };
        self.came.fetch_add(1, Relaxed);
        let sent = self.batches.send(Batch { changes, taken }).is_ok();
        self.waker.wake();
        sent
    }

    fn ended(&self) {
        self.waker.wake();
    }

    fn again(&self) -> Box<dyn MessageSink> {
        let TableInput { batches, came, waker, .. } = self;
        let (batches, came, waker) = (batches.clone(), came.clone(), waker.clone());
        Box::new(TableInput { batches, came, waker, row_cache: RowCache::default() })
    }
}

/// The inputs of one connection.
struct TableInputs(Vec<Box<dyn MessageSink>>);

impl Clone for TableInputs {
    fn clone(&self) -> TableInputs {
        TableInputs(self.0.iter().map(|input| input.again()).collect())
    }
}

fn serve(
    endpoint: &Endpoint,
    what: &'static str,
    inputs: Vec<Box<dyn MessageSink>>,
    turns: Turns,
    stop: &Stop,
) -> Result<(), TableError> {
    let service = Service {
        kind: Kind::Pull,
        limit: LIMIT,
        what,
        accept_thread: "zmq-listen",
        serve_thread: "zmq-pull",
    };
    let inputs = TableInputs(inputs);
    let body = move |peer: Peer| {
        let mut inputs = inputs.clone();
        let turn = turns.wait(&peer);
        let ended = pull(peer, &mut inputs);
        drop(turn);
        inputs.0.iter().for_each(|input| input.ended());
        ended
    };
    bind(endpoint, service, stop, body).map(drop).map_err(|e| unreachable(&endpoint.to_string(), &e))
}

/// Serves one connection until its end.
fn pull(peer: Peer, inputs: &mut TableInputs) -> io::Result<()> {
    let Peer { mut reader, writer, ours, .. } = peer;
    let mut message = Vec::new();
    let mut count = 0;
    loop {
        reader.message(&mut message)?;
        count += 1;
        let of = binary::Reader::new(&message)
            .ok()
            .and_then(|read| inputs.0.iter().position(|input| input.table() == (read.database, read.table)));
        // A malformed message is reported by the first table.
        let Some(input) = inputs.0.get_mut(of.unwrap_or(0)) else { return Ok(()) };
        if !input.take(&message, ours.map(|_| (writer.clone(), count))) {
            return Ok(());
        }
    }
}

fn read<R: Row>(message: &[u8], row_cache: &mut RowCache<R>) -> Result<Vec<Change<R>>, Malformed> {
    let mut reader = binary::Reader::new(message)?;
    if (reader.database, reader.table) != (R::DB.name(), R::TABLE) {
        tracing::warn!(
            target: target::ZMQ,
            database = reader.database,
            table = reader.table,
            "a message is passed over: no stage takes it"
        );
        return Ok(Vec::new());
    }
    let (mut changes, mut refused) = (Vec::new(), Vec::new());
    while let Some(change) = reader.next()? {
        match row::<R>(change, row_cache)? {
            Ok(change) => changes.push(change),
            Err(e) => refused.push(e),
        }
    }
    if let Some(error) = refused.first() {
        let rows = refused.len();
        tracing::warn!(target: target::ZMQ, table = R::TABLE, rows, %error, "rows are passed over");
    }
    Ok(changes)
}

fn row<R: Row>(
    change: binary::Change<'_>,
    row_cache: &mut RowCache<R>,
) -> Result<Result<Change<R>, ribtide_swss::RowError>, Malformed> {
    let key = match R::parse_key(change.key) {
        Ok(key) => key,
        Err(e) => return Ok(Err(e)),
    };
    if change.fields.is_empty() {
        return Ok(Ok(Change::del(key)));
    }
    let row = row_cache.row(change.fields, || match binary::pairs(change.fields) {
        Ok(pairs) => R::from_fields(&mut pairs.into_iter()).map_err(Ok),
        Err(malformed) => Err(Err(malformed)),
    });
    match row {
        Ok(row) => Ok(Ok(Change::set(key, row))),
        Err(Ok(e)) => Ok(Err(e)),
        Err(Err(malformed)) => Err(malformed),
    }
}

impl<R: Row> Consumer<R> for ZmqConsumer<R> {
    fn pop(&mut self, max: usize, changes: &mut Vec<Change<R>>) -> Result<bool, TableError> {
        let mut room = max.max(1);
        loop {
            let take = room.min(self.rest.len());
            changes.extend(self.rest.drain(..take));
            room -= take;
            if self.rest.is_empty()
                && let Some((writer, count)) = self.taken.take()
            {
                // A producer that is gone sends everything again later.
                let _ = writer.message(&count.to_le_bytes());
            }
            if room == 0 {
                return Ok(true);
            }
            let Some(Batch { changes, taken }) = self.batches.try_recv() else { return Ok(false) };
            self.popped += 1;
            self.rest.extend(changes);
            self.taken = taken;
        }
    }

    fn set_fence(&mut self, from: Option<Process>) {
        let came = || Fence::Batches(self.came.load(Relaxed));
        self.fence = from.map_or_else(came, Fence::OfOthers);
    }

    fn is_past_fence(&mut self) -> bool {
        if let Fence::OfOthers(process) = self.fence
            && self.turns.is_alone(process)
        {
            self.fence = Fence::Batches(self.came.load(Relaxed));
        }
        let Fence::Batches(count) = self.fence else { return false };
        self.popped > count || (self.popped == count && self.rest.is_empty())
    }

    fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }

    fn shrink_to_fit(&mut self) {
        self.rest.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_swss::row::RouteRow;

    #[test]
    fn row_of_another_format_is_left_out_and_those_behind_it_are_not() {
        let mut message = binary::Writer::new(RouteRow::DB.name(), RouteRow::TABLE);
        for key in ["10.1.0.0/16", "no prefix", "10.2.0.0/16"] {
            message.change(key, |put| put("blackhole", "true"));
        }
        message.change("10.3.0.0/16", |_| {});
        let changes = read::<RouteRow>(&message.finish(), &mut RowCache::default()).unwrap();
        let rows: Vec<(String, bool)> = changes
            .iter()
            .map(|change| {
                let mut key = String::new();
                RouteRow::key_text(&change.key, &mut key);
                (key, change.row.is_some())
            })
            .collect();
        let expected = [("10.1.0.0/16", true), ("10.2.0.0/16", true), ("10.3.0.0/16", false)];
        assert_eq!(rows, expected.map(|(key, set)| (key.to_owned(), set)));
    }
}
