//! A table over ZeroMQ: [`ZmqProducer`] connects and pushes, [`ZmqConsumer`] binds and pulls.
//!
//! SONiC's own loses what a full queue or a restart had not delivered. Here nothing is sent that there is no room for:
//! the producer asks [`ZmqProducer::has_room`] first, and keeps (and coalesces) what must wait. A consumer of ours tells
//! how many messages its owner has taken, which makes room; with SONiC's the connection itself is the bound. What a
//! broken connection had under way is not known, so after each new one the producer's owner says everything again.

use super::binary::{self, Malformed};
use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::push::{BACK_OFF, LIMIT, Push, Pushed, WINDOW, unreachable, wake};
use super::turns::Turns;
use super::zmtp::{Kind, Peer, Process, Writer};
use crate::row_cache::RowCache;
use crate::subscribe::Wake;
use crate::{Consumer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::Stop;
use ribtide_swss::{Change, Row};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Changes in one message at most.
const BATCH: usize = 1000;
/// Bytes of one message, from which on it is full. SONiC takes less than 16 MiB.
const FULL: usize = 1 << 20;

/// The producing side.
#[derive(Debug)]
pub struct ZmqProducer<R: Row> {
    push: Push,
    waiting: VecDeque<Change<R>>,
    scratch: String,
}

impl<R: Row> ZmqProducer<R> {
    /// Connects to `endpoint`, again and again until `stop`.
    ///
    /// # Errors
    /// [`TableError::Endpoint`] when there is no thread for it.
    pub fn connect(endpoint: Endpoint, rings: &Rings, stop: &Stop) -> Result<Self, TableError> {
        let pushed = Pushed { what: R::TABLE, sends: "zmq-push", hears: "zmq-acks", backoff_max: BACK_OFF.1 };
        let push = Push::connect(endpoint, pushed, rings, stop)?;
        Ok(ZmqProducer { push, waiting: VecDeque::new(), scratch: String::new() })
    }

    /// Says when to look again: a connection is there or gone, or there is room.
    pub fn wake(&self) -> &Wake {
        self.push.wake()
    }

    /// Looks whether the connection is a new one: then everything must be said again, and what waited is forgotten.
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

    /// Whether who is connected acknowledges, and is therefore one of ours.
    pub fn is_acknowledged(&self) -> bool {
        self.push.is_acknowledged()
    }

    /// Whether nothing waits and another message would go at once.
    pub fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.push.has_room()
    }

    /// How many changes wait for room.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// [`Push::unacknowledged`].
    pub fn unacknowledged(&self) -> u64 {
        self.push.unacknowledged()
    }

    /// Whether everything that was sent is taken, as far as the consumer says.
    pub fn is_taken(&self) -> bool {
        self.waiting.is_empty() && self.push.is_taken()
    }

    /// Takes all changes and sends what there is room for. Without a connection they are dropped: everything is said
    /// again when there is one.
    pub fn send(&mut self, changes: &mut Vec<Change<R>>) {
        if self.push.is_linked() {
            self.waiting.extend(std::mem::take(changes));
            self.resume();
        }
        changes.clear();
    }

    /// Sends of what waits what there is room for now.
    pub fn resume(&mut self) {
        if self.waiting.is_empty() {
            // What waited once may have been the whole table.
            self.waiting = VecDeque::new();
        }
        while !self.waiting.is_empty() && self.push.has_room() {
            let mut message = binary::Writer::new(R::DB.name(), R::TABLE);
            for _ in 0..BATCH {
                let Some(change) = self.waiting.pop_front() else { break };
                self.scratch.clear();
                R::key_text(&change.key, &mut self.scratch);
                message.change(&self.scratch, |put| match &change.row {
                    None => {}
                    // Who is not ours coalesces rows that wait, and would keep fields that are not named.
                    Some(row) if change.reshaped || !self.push.acknowledges() => row.all_fields(put),
                    Some(row) => row.fields(put),
                });
                if message.len() >= FULL {
                    break;
                }
            }
            if !self.push.send(message.finish()) {
                // Everything is said again on the next connection.
                self.waiting.clear();
            }
        }
    }
}

/// What one message held.
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
    wake: Wake,
    turns: Turns,
    /// How many batches came.
    came: Arc<AtomicU64>,
    /// How many of them were popped, the last perhaps in part.
    popped: u64,
    fence: Fence,
    rest: VecDeque<Change<R>>,
    /// To be told when `rest` is taken.
    taken: Option<(Writer, u64)>,
}

/// Where the fence stands.
#[derive(Clone, Copy, Debug)]
enum Fence {
    /// Behind all that processes but this one send until they end.
    OfOthers(Process),
    /// Behind this many batches.
    Batches(u64),
}

impl<R: Row> ZmqConsumer<R> {
    /// Binds to `endpoint` and takes messages of this table from whoever connects, until `stop`. A message of another
    /// table, or one that cannot be read, is passed over.
    ///
    /// # Errors
    /// [`TableError::Endpoint`] when the endpoint is taken or is not of this machine.
    pub fn bind(endpoint: &Endpoint, rings: &Rings, stop: &Stop) -> Result<Self, TableError> {
        let turns = Turns::default();
        let (inlet, consumer) = Inlet::<R>::new(&turns, rings);
        serve(endpoint, R::TABLE, vec![Box::new(inlet)], turns, stop)?;
        Ok(consumer)
    }

    /// [`ZmqConsumer::bind`] for two tables that come to the same endpoint, over one connection or several.
    ///
    /// # Errors
    /// As [`ZmqConsumer::bind`].
    pub fn bind_two<S: Row>(
        endpoint: &Endpoint,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<(Self, ZmqConsumer<S>), TableError> {
        let turns = Turns::default();
        let (first, consumer) = Inlet::<R>::new(&turns, rings);
        let (second, other) = Inlet::<S>::new(&turns, rings);
        serve(endpoint, R::TABLE, vec![Box::new(first), Box::new(second)], turns, stop)?;
        Ok((consumer, other))
    }
}

/// Where messages of one table go.
trait Takes: Send {
    /// The database and the table.
    fn table(&self) -> (&'static str, &'static str);

    /// Takes a message, and who is to be told when its owner has taken it. False when the owner is gone.
    fn take(&mut self, message: &[u8], taken: Option<(Writer, u64)>) -> bool;

    /// The connection has ended.
    fn ended(&self);

    /// The same for another connection.
    fn again(&self) -> Box<dyn Takes>;
}

struct Inlet<R: Row> {
    batches: ring::Sender<Batch<R>>,
    came: Arc<AtomicU64>,
    waker: channel::Sender<()>,
    row_cache: RowCache<R>,
}

impl<R: Row> Inlet<R> {
    fn new(turns: &Turns, rings: &Rings) -> (Inlet<R>, ZmqConsumer<R>) {
        let (batches, taken) = rings.bounded(R::TABLE, WINDOW as usize);
        let (waker, wake) = channel::bounded(1);
        let came = Arc::new(AtomicU64::new(0));
        let inlet = Inlet { batches, came: came.clone(), waker, row_cache: RowCache::default() };
        let (turns, fence) = (turns.clone(), Fence::Batches(0));
        let rest = VecDeque::new();
        (inlet, ZmqConsumer { batches: taken, wake, turns, came, popped: 0, fence, rest, taken: None })
    }
}

impl<R: Row> Takes for Inlet<R> {
    fn table(&self) -> (&'static str, &'static str) {
        (R::DB.name(), R::TABLE)
    }

    fn take(&mut self, message: &[u8], taken: Option<(Writer, u64)>) -> bool {
        let changes = match read::<R>(message, &mut self.row_cache) {
            Ok(changes) => changes,
            Err(Malformed) => {
                crate::report(&format!(
                    "a message of {} bytes is passed over: it is no change of tables",
                    message.len()
                ));
                Vec::new()
            }
        };
        self.came.fetch_add(1, Relaxed);
        let sent = self.batches.send(Batch { changes, taken }).is_ok();
        wake(&self.waker);
        sent
    }

    fn ended(&self) {
        wake(&self.waker);
    }

    fn again(&self) -> Box<dyn Takes> {
        let Inlet { batches, came, waker, .. } = self;
        let (batches, came, waker) = (batches.clone(), came.clone(), waker.clone());
        Box::new(Inlet { batches, came, waker, row_cache: RowCache::default() })
    }
}

/// The inlets of one connection.
struct Inlets(Vec<Box<dyn Takes>>);

impl Clone for Inlets {
    fn clone(&self) -> Inlets {
        Inlets(self.0.iter().map(|inlet| inlet.again()).collect())
    }
}

fn serve(
    endpoint: &Endpoint,
    what: &'static str,
    inlets: Vec<Box<dyn Takes>>,
    turns: Turns,
    stop: &Stop,
) -> Result<(), TableError> {
    let service = Service { kind: Kind::Pull, limit: LIMIT, what, listens: "zmq-listen", serves: "zmq-pull" };
    let inlets = Inlets(inlets);
    let body = move |peer: Peer| {
        let mut inlets = inlets.clone();
        let turn = turns.wait(&peer);
        let ended = pull(peer, &mut inlets);
        drop(turn);
        inlets.0.iter().for_each(|inlet| inlet.ended());
        ended
    };
    bind(endpoint, service, stop, body).map(drop).map_err(|e| unreachable(&endpoint.to_string(), &e))
}

/// One connection to its end.
fn pull(peer: Peer, inlets: &mut Inlets) -> io::Result<()> {
    let Peer { mut reader, writer, ours, .. } = peer;
    let mut message = Vec::new();
    let mut count = 0;
    loop {
        reader.message(&mut message)?;
        count += 1;
        let of = binary::Reader::new(&message)
            .ok()
            .and_then(|read| inlets.0.iter().position(|inlet| inlet.table() == (read.database, read.table)));
        // A sender of a malformed message learns of it with the first.
        let Some(inlet) = inlets.0.get_mut(of.unwrap_or(0)) else { return Ok(()) };
        if !inlet.take(&message, ours.map(|_| (writer.clone(), count))) {
            return Ok(());
        }
    }
}

fn read<R: Row>(message: &[u8], row_cache: &mut RowCache<R>) -> Result<Vec<Change<R>>, Malformed> {
    let mut reader = binary::Reader::new(message)?;
    if (reader.database, reader.table) != (R::DB.name(), R::TABLE) {
        crate::report(&format!(
            "a message of {} {} is passed over: no stage takes it",
            reader.database, reader.table
        ));
        return Ok(Vec::new());
    }
    let mut changes = Vec::new();
    while let Some(change) = reader.next()? {
        match row::<R>(change, row_cache)? {
            Ok(change) => changes.push(change),
            Err(e) => crate::report(&format!("a row is passed over: {e}")),
        }
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
                // A producer that is gone says everything again when it is back.
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

    fn wake(&self) -> &Wake {
        &self.wake
    }

    fn shrink_to_fit(&mut self) {
        self.rest.shrink_to_fit();
    }
}
