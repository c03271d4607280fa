//! A table over ZeroMQ: [`ZmqProducer`] connects and pushes, [`ZmqConsumer`] binds and pulls.
//!
//! SONiC's own loses what a full queue or a restart had not delivered. Here nothing is sent that there is no room for:
//! the producer asks [`ZmqProducer::has_room`] first, and keeps (and unites) what must wait. A consumer of ours tells
//! how many messages its owner has taken, which makes room; with SONiC's the connection itself is the bound. What a
//! broken connection had under way is not known, so after each new one the producer's owner says everything again.

use super::binary::{self, Malformed};
use super::endpoint::Endpoint;
use super::listener::{Service, bind};
use super::zmtp::{Kind, Peer, Writer, introduce};
use crate::remembered::Remembered;
use crate::subscribe::Wake;
use crate::{Consumer, TableError};
use crossbeam_channel as channel;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};
use ribtide_swss::{Change, Row};
use std::collections::VecDeque;
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Messages that may be under way or taken and not acknowledged.
const WINDOW: u64 = 64;
/// Changes in one message at most.
const BATCH: usize = 1000;
/// Bytes of one message, from which on it is full. SONiC takes less than 16 MiB.
const FULL: usize = 1 << 20;
/// SONiC's limit of a message.
const LIMIT: usize = 16 << 20;
/// Pauses between attempts to connect start and end here.
pub(super) const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The producing end of one connection.
#[derive(Debug)]
struct Link {
    messages: ring::Sender<Vec<u8>>,
    /// Messages that the consumer's owner has taken; `None` when the consumer does not say.
    taken: Option<Arc<AtomicU64>>,
    sent: u64,
    /// Held by the thread that sends, for as long as there is a connection.
    open: Weak<()>,
}

/// The producing side.
#[derive(Debug)]
pub struct ZmqProducer<R: Row> {
    links: channel::Receiver<Link>,
    link: Option<Link>,
    wake: Wake,
    waiting: VecDeque<Change<R>>,
    scratch: String,
}

impl<R: Row> ZmqProducer<R> {
    /// Connects to `endpoint`, again and again until `stop`.
    ///
    /// # Errors
    /// [`TableError::Endpoint`] when there is no thread for it.
    pub fn connect(endpoint: Endpoint, rings: &Rings, stop: &Stop) -> Result<Self, TableError> {
        let (waker, woken) = channel::bounded(1);
        let (connected, links) = channel::bounded(1);
        let (rings, stop, text) = (rings.clone(), stop.clone(), endpoint.to_string());
        let body = move || {
            let mut pause = BACK_OFF.0;
            let mut said = false;
            while !stop.stopped() {
                match connect(&endpoint) {
                    Ok(peer) => {
                        let with = if peer.ours { "acknowledged" } else { "not acknowledged, as SONiC's" };
                        crate::report(&format!("{} goes to {endpoint}, {with}", R::TABLE));
                        (pause, said) = (BACK_OFF.0, false);
                        let why = push(peer, R::TABLE, &rings, &connected, &waker);
                        // Who waits for room there waits in vain.
                        wake(&waker);
                        crate::report(&format!("{} no longer reaches {endpoint}: {why}", R::TABLE));
                    }
                    Err(e) if !std::mem::replace(&mut said, true) => {
                        crate::report(&format!("{} waits for who takes it at {endpoint}: {e}", R::TABLE));
                    }
                    Err(_) => {}
                }
                std::thread::sleep(pause);
                pause = BACK_OFF.1.min(pause * 2);
            }
        };
        thread::spawn("zmq-push", body).map_err(|e| unreachable(&text, &e))?;
        Ok(ZmqProducer { links, link: None, wake: woken, waiting: VecDeque::new(), scratch: String::new() })
    }

    /// Says when to look again: a connection is there, or there is room.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Looks whether the connection is a new one: then everything must be said again, and what waited is forgotten.
    pub fn renewed(&mut self) -> bool {
        // This is the look that a wake-up asks for.
        let _ = self.wake.try_recv();
        // Between two looks one connection may have come and gone.
        let Some(link) = self.links.try_iter().last() else { return false };
        self.waiting.clear();
        self.link = Some(link);
        true
    }

    /// Whether somebody is connected.
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_open)
    }

    /// Whether who is connected acknowledges, and is therefore one of ours.
    pub fn is_acknowledged(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.is_open() && link.taken.is_some())
    }

    /// Whether nothing waits and another message would go at once.
    pub fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.link.as_ref().is_some_and(Link::has_room)
    }

    /// How many changes wait for room.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// Whether everything that was sent is taken, as far as the consumer says.
    pub fn is_taken(&self) -> bool {
        self.waiting.is_empty()
            && self
                .link
                .as_ref()
                .is_some_and(|link| link.taken.as_ref().is_some_and(|taken| taken.load(Relaxed) == link.sent))
    }

    /// Takes all changes and sends what there is room for. Without a connection they are dropped: everything is said
    /// again when there is one.
    pub fn send(&mut self, changes: &mut Vec<Change<R>>) {
        if self.link.is_some() {
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
        while let Some(link) = &mut self.link
            && link.has_room()
            && !self.waiting.is_empty()
        {
            let mut message = binary::Writer::new(R::DB.name(), R::TABLE);
            for _ in 0..BATCH {
                let Some(change) = self.waiting.pop_front() else { break };
                self.scratch.clear();
                R::key_text(&change.key, &mut self.scratch);
                message.change(&self.scratch, |put| match &change.row {
                    None => {}
                    // Who is not ours unites rows that wait, and would keep fields that are not named.
                    Some(row) if change.reshaped || link.taken.is_none() => row.all_fields(put),
                    Some(row) => row.fields(put),
                });
                if message.len() >= FULL {
                    break;
                }
            }
            match link.messages.try_send(message.finish()) {
                Ok(()) => link.sent += 1,
                // There was room a moment ago, so the connection is gone; everything is said again on the next.
                Err(_) => {
                    self.link = None;
                    self.waiting.clear();
                }
            }
        }
    }
}

impl Link {
    fn is_open(&self) -> bool {
        self.open.strong_count() > 0
    }

    fn has_room(&self) -> bool {
        let under_way = self.taken.as_ref().map_or(0, |taken| self.sent.saturating_sub(taken.load(Relaxed)));
        under_way < WINDOW && !self.messages.is_full()
    }
}

fn unreachable(address: &str, cause: &io::Error) -> TableError {
    TableError::Endpoint { endpoint: address.into(), cause: cause.to_string() }
}

fn connect(endpoint: &Endpoint) -> io::Result<Peer> {
    let mut failed = io::Error::other("its name has no address");
    for address in endpoint.resolve()? {
        match TcpStream::connect_timeout(&address, Duration::from_secs(5))
            .and_then(|stream| introduce(stream, Kind::Push, LIMIT))
        {
            Ok(peer) => return Ok(peer),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// One connection to its end, and why it ended.
fn push(
    peer: Peer,
    table: &str,
    rings: &Rings,
    connected: &channel::Sender<Link>,
    waker: &channel::Sender<()>,
) -> String {
    let Peer { mut reader, writer, ours } = peer;
    let (messages, waiting) = rings.bounded::<Vec<u8>>(format!("{table} to ZeroMQ"), WINDOW as usize);
    let taken = ours.then(|| Arc::new(AtomicU64::new(0)));
    let open = Arc::new(());
    if connected.send(Link { messages, taken: taken.clone(), sent: 0, open: Arc::downgrade(&open) }).is_err()
    {
        return "fpmsyncd stops".into();
    }
    wake(waker);
    let (on_way_back, waker_back) = (writer.clone(), waker.clone());
    let (gone, is_gone) = channel::bounded::<String>(1);
    let back = thread::spawn("zmq-taken", move || {
        let mut message = Vec::new();
        let why = loop {
            match (reader.message(&mut message), &taken) {
                (Ok(()), Some(taken)) => {
                    if let Ok(count) = <[u8; 8]>::try_from(message.as_slice()) {
                        taken.store(u64::from_le_bytes(count), Relaxed);
                        wake(&waker_back);
                    }
                }
                (Ok(()), None) => {}
                (Err(e), _) => break reason(&e),
            }
        };
        on_way_back.end();
        let _ = gone.send(why);
    });
    if let Err(e) = back {
        return e.to_string();
    }
    loop {
        channel::select! {
            recv(waiting.raw()) -> message => {
                let Ok(message) = message else {
                    writer.end();
                    return "fpmsyncd let go of it".into();
                };
                if let Err(e) = writer.message(&waiting.took(message)) {
                    writer.end();
                    return reason(&e);
                }
                if waiting.is_empty() {
                    wake(waker);
                }
            }
            recv(is_gone) -> why => return why.unwrap_or_default(),
        }
    }
}

pub(super) fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => "the other side closed the connection".into(),
        _ => e.to_string(),
    }
}

fn wake(waker: &channel::Sender<()>) {
    // Full means that a wake-up waits already.
    let _ = waker.try_send(());
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
    rest: VecDeque<Change<R>>,
    /// To be told when `rest` is taken.
    taken: Option<(Writer, u64)>,
}

impl<R: Row> ZmqConsumer<R> {
    /// Binds to `endpoint` and takes messages of this table from whoever connects, until `stop`. A message of another
    /// table, or one that cannot be read, is passed over.
    ///
    /// # Errors
    /// [`TableError::Endpoint`] when the endpoint is taken or is not of this machine.
    pub fn bind(endpoint: &Endpoint, rings: &Rings, stop: &Stop) -> Result<Self, TableError> {
        let (inlet, consumer) = Inlet::<R>::new(rings);
        serve(endpoint, R::TABLE, vec![Box::new(inlet)], stop)?;
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
        let (first, consumer) = Inlet::<R>::new(rings);
        let (second, other) = Inlet::<S>::new(rings);
        serve(endpoint, R::TABLE, vec![Box::new(first), Box::new(second)], stop)?;
        Ok((consumer, other))
    }
}

/// Where messages of one table go.
trait Takes: Send {
    /// The database and the table.
    fn table(&self) -> (&'static str, &'static str);

    /// Takes a message, and who is to be told when its owner has taken it. False when there is nobody any more.
    fn take(&mut self, message: &[u8], taken: Option<(Writer, u64)>) -> bool;

    /// The same for another connection.
    fn again(&self) -> Box<dyn Takes>;
}

struct Inlet<R: Row> {
    batches: ring::Sender<Batch<R>>,
    waker: channel::Sender<()>,
    memory: Remembered<R>,
}

impl<R: Row> Inlet<R> {
    fn new(rings: &Rings) -> (Inlet<R>, ZmqConsumer<R>) {
        let (batches, taken) = rings.bounded(R::TABLE, WINDOW as usize);
        let (waker, wake) = channel::bounded(1);
        let inlet = Inlet { batches, waker, memory: Remembered::default() };
        (inlet, ZmqConsumer { batches: taken, wake, rest: VecDeque::new(), taken: None })
    }
}

impl<R: Row> Takes for Inlet<R> {
    fn table(&self) -> (&'static str, &'static str) {
        (R::DB.name(), R::TABLE)
    }

    fn take(&mut self, message: &[u8], taken: Option<(Writer, u64)>) -> bool {
        let changes = match read::<R>(message, &mut self.memory) {
            Ok(changes) => changes,
            Err(Malformed) => {
                crate::report(&format!(
                    "a message of {} bytes is passed over: it is no change of tables",
                    message.len()
                ));
                Vec::new()
            }
        };
        let sent = self.batches.send(Batch { changes, taken }).is_ok();
        wake(&self.waker);
        sent
    }

    fn again(&self) -> Box<dyn Takes> {
        let Inlet { batches, waker, .. } = self;
        Box::new(Inlet { batches: batches.clone(), waker: waker.clone(), memory: Remembered::default() })
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
    stop: &Stop,
) -> Result<(), TableError> {
    let service = Service { kind: Kind::Pull, limit: LIMIT, what, listens: "zmq-listen", serves: "zmq-pull" };
    let inlets = Inlets(inlets);
    let body = move |peer: Peer| pull(peer, inlets.clone());
    bind(endpoint, service, stop, body).map_err(|e| unreachable(&endpoint.to_string(), &e))
}

/// One connection to its end.
fn pull(peer: Peer, mut inlets: Inlets) -> io::Result<()> {
    let Peer { mut reader, writer, ours } = peer;
    let mut message = Vec::new();
    let mut count = 0;
    loop {
        reader.message(&mut message)?;
        count += 1;
        let of = binary::Reader::new(&message)
            .ok()
            .and_then(|read| inlets.0.iter().position(|inlet| inlet.table() == (read.database, read.table)));
        // Who says what nobody understands is told of it by the first.
        let Some(inlet) = inlets.0.get_mut(of.unwrap_or(0)) else { return Ok(()) };
        if !inlet.take(&message, ours.then(|| (writer.clone(), count))) {
            return Ok(());
        }
    }
}

fn read<R: Row>(message: &[u8], memory: &mut Remembered<R>) -> Result<Vec<Change<R>>, Malformed> {
    let mut reader = binary::Reader::new(message)?;
    if (reader.database, reader.table) != (R::DB.name(), R::TABLE) {
        crate::report(&format!(
            "a message of {} {} is passed over: nobody takes it",
            reader.database, reader.table
        ));
        return Ok(Vec::new());
    }
    let mut changes = Vec::new();
    while let Some(change) = reader.next()? {
        match row::<R>(change, memory)? {
            Ok(change) => changes.push(change),
            Err(e) => crate::report(&format!("a row is passed over: {e}")),
        }
    }
    Ok(changes)
}

fn row<R: Row>(
    change: binary::Change<'_>,
    memory: &mut Remembered<R>,
) -> Result<Result<Change<R>, ribtide_swss::RowError>, Malformed> {
    let key = match R::parse_key(change.key) {
        Ok(key) => key,
        Err(e) => return Ok(Err(e)),
    };
    if change.fields.is_empty() {
        return Ok(Ok(Change::del(key)));
    }
    let row = memory.row(change.fields, || match binary::pairs(change.fields) {
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
            self.rest.extend(changes);
            self.taken = taken;
        }
    }

    fn wake(&self) -> &Wake {
        &self.wake
    }
}
