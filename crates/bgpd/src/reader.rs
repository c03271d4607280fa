//! The reader stages: they own the read side of established sessions.
//!
//! A reader cuts messages out of its sockets, turns UPDATEs into batches and puts them into the shards' rings. A full
//! ring stops it, and then the peers' TCP windows close: that is the back-pressure, and nothing is dropped. Session
//! timers are not its business, so a reader that waits delays no KEEPALIVE of ours; and the session thread looks for
//! unread bytes before it believes that a peer is silent.

use super::mailbox::{Mailbox, retry_all};
use super::messages::MessageCounts;
use super::shard;
use super::stage::{Stage, Turn};
use crossbeam_channel::Select;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use ribtide_bgp::ingest::{Ingest, IngestCounters, IngestPeer, IngestSettings, ShardBatches, ShardMap};
use ribtide_bgp::message::ShardIn;
use ribtide_bgp::peer::{PeerId, PeerInfo};
use ribtide_bgp::shard::Split;
use ribtide_prefix::{Afi, Safi};
use ribtide_runtime::activity::Busy;
use ribtide_runtime::call::{CallQueue, StageHandle, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender, Wake};
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::message::{
    Frame, MAX_EXTENDED_LEN, MAX_LEN, MessageType, RefreshKind, RouteRefresh, frame,
};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Sessions given or taken back that may wait at a reader.
const COMMANDS: usize = 1024;
/// Bytes read from one session before the next has its turn.
const READ: usize = 64 * 1024;
/// Prefixes after which batches are handed on although more is at hand.
const FLUSH_THRESHOLD: usize = 4096;
/// How long it sleeps where nothing comes in, before it looks whether it is to stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The same two while routes move between shards, which come to rest when they have handled what was read: some
/// milliseconds' work.
const HELD_BACK_READ: usize = 8 * 1024;
const HELD_BACK_FLUSH_THRESHOLD: usize = 1024;
/// How often it looks then whether the shards have taken what it read.
const SHARDS_POLL_INTERVAL: Duration = Duration::from_millis(1);

const WAKE: Token = Token(usize::MAX);

/// What the session thread tells a reader.
pub(super) enum Command {
    /// Read this session from now on.
    Attach(Box<Attach>),
    /// The session has ended.
    Detach(PeerId, u32),
    /// Routes of the session are taken by these settings from now on.
    Import(PeerId, u32, Box<IngestSettings>),
}

/// An established session, to be read.
pub(super) struct Attach {
    /// The connection; not blocking.
    pub(super) stream: TcpStream,
    /// What was already read of it.
    pub(super) unread: Vec<u8>,
    pub(super) info: Arc<PeerInfo>,
    pub(super) settings: IngestSettings,
    /// When something was last heard, for the hold timer.
    pub(super) heard: Arc<AtomicU64>,
}

/// What a reader tells the session thread.
pub(super) struct Report {
    pub(super) peer: PeerId,
    pub(super) session: u32,
    pub(super) what: What,
}

/// What happened on a session.
pub(super) enum What {
    /// A message that is the session's business, and the last that was read.
    Message(MessageType, Vec<u8>),
    /// Something that cannot be accepted; nothing more is read.
    Fault(Notification),
    /// The connection ended.
    Closed(String),
    /// The peer wants a family again.
    Refresh(Afi),
    /// The peer has sent all its initial routes of a family.
    EndOfRib(Afi),
    /// The session that has ended is read no more, and the shards know.
    Detached {
        /// How many shards there were to tell. Each says when it holds nothing more of the session.
        shards: usize,
    },
}

/// A reader's connections, before it runs.
pub(super) struct ReaderBuilder {
    poll: Poll,
    wake: Wake,
    commands: (Sender<Command>, Receiver<Command>),
}

/// Where a reader's output goes.
pub(super) struct Outputs {
    pub(super) map: ShardMap,
    pub(super) shards: Vec<Sender<ShardIn>>,
    pub(super) reports: Sender<Report>,
    /// Tells stages downstream whether more is on its way.
    pub(super) busy: Busy,
}

impl ReaderBuilder {
    pub(super) fn new(index: u16, rings: &Rings) -> io::Result<ReaderBuilder> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        // A waker fails only when the process is out of kernel memory; the reader also wakes by itself.
        let wake: Wake = Arc::new(move || drop(waker.wake()));
        let (sender, commands) = rings.bounded(format!("sessions to reader {index}"), COMMANDS);
        Ok(ReaderBuilder { poll, commands: (sender.with_wake(Some(wake.clone())), commands), wake })
    }

    pub(super) fn commands(&self) -> Sender<Command> {
        self.commands.0.clone()
    }

    /// The stage, ready to run, and how to ask it.
    pub(super) fn build(
        self,
        outputs: Outputs,
        clock: Clock,
        meters: &Meters,
    ) -> (StageHandle<Reader>, ReaderStage) {
        let (handle, asked) = pair("reader");
        let reader = Reader {
            batches: ShardBatches::new(outputs.map),
            shards: outputs.shards.into_iter().map(Mailbox::new).collect(),
            reports: Mailbox::new(outputs.reports),
            busy: outputs.busy,
            poll: self.poll,
            commands: self.commands.1,
            clock,
            meter: meters.meter("reader"),
            ingest: Ingest::default(),
            sessions: BTreeMap::new(),
            ready: VecDeque::new(),
            perhaps: Vec::new(),
            paused: None,
            downstream: None,
            buffer: vec![0; MAX_EXTENDED_LEN + READ],
        };
        let stage = ReaderStage { reader, asked, events: Events::with_capacity(256) };
        (handle.with_wake(Some(self.wake)), stage)
    }
}

/// A reader and its mailbox.
pub(super) struct ReaderStage {
    reader: Reader,
    asked: CallQueue<Reader>,
    events: Events,
}

impl ReaderStage {
    /// Looks which sockets have something; whether any has.
    fn look(&mut self, timeout: Duration) -> bool {
        if let Err(error) = self.reader.poll.poll(&mut self.events, Some(timeout))
            && error.kind() != io::ErrorKind::Interrupted
        {
            panic!("the reader cannot wait for its sockets: {error}");
        }
        for event in &self.events {
            if event.token() != WAKE {
                self.reader.queue(PeerId(event.token().0 as u32));
            }
        }
        !self.events.is_empty()
    }
}

impl ShrinkToFit for ReaderStage {
    fn shrink_to_fit(&mut self) {
        self.reader.ingest.forget();
        self.reader.batches.shrink_to_fit();
    }
}

impl Stage for ReaderStage {
    fn turn(&mut self) -> Turn {
        let news = self.reader.ready.is_empty() && self.look(Duration::ZERO);
        self.asked.serve(&mut self.reader);
        if !self.reader.room() || self.reader.holds_back() {
            return Turn::Held;
        }
        if self.reader.paused.is_some() {
            return if news { Turn::Busy } else { Turn::Idle };
        }
        let told = self.reader.take_commands();
        let did = self.reader.read();
        let more = did && self.look(Duration::ZERO);
        self.reader.hand_on();
        match self.reader.room() {
            false => Turn::Held,
            true if told || did || news || more => Turn::Busy,
            true => Turn::Idle,
        }
    }

    fn wait(&mut self, after: Turn) {
        if after == Turn::Held {
            let mut select = Select::new();
            self.asked.watch(&mut select);
            self.reader.shards.iter().for_each(|shard| shard.watch(&mut select));
            self.reader.reports.watch(&mut select);
            // Timed out or ready: the next turn looks.
            let _ = select.ready_timeout(if self.reader.downstream.is_some() {
                SHARDS_POLL_INTERVAL
            } else {
                STOP_POLL_INTERVAL
            });
        } else {
            let in_vain = !self.look(STOP_POLL_INTERVAL);
            if idle::on_wait(in_vain) {
                idle::trim(self);
            }
        }
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.reader.poll.as_raw_fd())
    }
}

/// The state of a reader.
pub struct Reader {
    shards: Vec<Mailbox<ShardIn>>,
    reports: Mailbox<Report>,
    busy: Busy,
    poll: Poll,
    commands: Receiver<Command>,
    clock: Clock,
    meter: Meter,
    ingest: Ingest,
    batches: ShardBatches,
    sessions: BTreeMap<PeerId, Session>,
    /// Sessions that may have bytes to read, each once.
    ready: VecDeque<PeerId>,
    /// Sessions that were read short: more is there only if it came since, or the connection's end, which another read
    /// finds out.
    perhaps: Vec<PeerId>,
    /// Since when it reads nothing and begins and ends no session: routes move between shards.
    paused: Option<Instant>,
    /// It holds back: it reads when the shards have taken what it read, and those behind them have room in these rings.
    downstream: Option<shard::Outputs>,
    buffer: Vec<u8>,
}

struct Session {
    stream: TcpStream,
    peer: IngestPeer,
    messages: MessageCounts,
    heard: Arc<AtomicU64>,
    max_len: usize,
    /// The beginning of a message whose end has not come.
    tail: Vec<u8>,
    queued: bool,
    /// Nothing more is read of it.
    ended: bool,
}

/// What a read left in the socket.
enum Left {
    /// It filled the buffer.
    More,
    /// It did not.
    Perhaps,
    Nothing,
}

impl Reader {
    /// What a session has brought, if it is this reader's.
    pub fn counters(&self, peer: PeerId) -> Option<IngestCounters> {
        self.sessions.get(&peer).map(|session| session.peer.counters)
    }

    /// The messages that it has read of a session.
    pub fn message_counts(&self, peer: PeerId) -> Option<MessageCounts> {
        self.sessions.get(&peer).map(|session| session.messages)
    }

    /// How many attribute sets it remembers.
    pub fn attribute_sets(&self) -> usize {
        self.ingest.len()
    }

    /// Reads nothing more until [`Reader::resume`]. What comes waits in the sockets, and the session thread sees it there.
    pub(super) fn pause(&mut self) {
        self.paused.get_or_insert_with(Instant::now);
        self.busy.set(false);
    }

    /// Whether everything read is in the shards' rings. Stays so while it is paused.
    pub(super) fn at_rest(&mut self) -> bool {
        self.paused.is_some() && self.room()
    }

    /// Reads little at a time from now on, and only when shards have taken what was read, and when those whom shards tell have
    /// taken so much that shards will have room: so shards come to rest soon, however slow the others are. With `None` it reads
    /// as far as rings have room.
    pub(super) fn hold_back(&mut self, downstream: Option<shard::Outputs>) {
        self.downstream = downstream;
    }

    /// Whether shards, or those behind them, have enough to do for now.
    fn holds_back(&self) -> bool {
        let Some(downstream) = self.downstream.as_ref().filter(|_| self.paused.is_none()) else {
            return false;
        };
        self.shards.iter().any(|shard| shard.in_ring() > 0) || downstream.is_half_full()
    }

    /// There are these shards too from now on, which have no routes yet. They hear of the sessions that last.
    pub(super) fn add_shards(&mut self, shards: Vec<Sender<ShardIn>>) {
        let mut shards: Vec<_> = shards.into_iter().map(Mailbox::new).collect();
        for session in self.sessions.values() {
            let info = session.peer.info();
            shards.iter_mut().for_each(|shard| shard.post(ShardIn::PeerUp(info.clone())));
        }
        self.shards.append(&mut shards);
    }

    /// Reads for the first `shards` shards from now on, by this map. Only while it is at rest.
    pub(super) fn remap(&mut self, map: ShardMap, split: Option<Split>, shards: usize) {
        self.batches = ShardBatches::with_split(map, split);
        self.shards.truncate(shards);
    }

    /// Reads on. Returns for how long it has read nothing.
    pub(super) fn resume(&mut self) -> Duration {
        self.paused.take().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Whether all that was handed on is through.
    fn room(&mut self) -> bool {
        let shards = retry_all(&mut self.shards);
        self.reports.retry() && shards
    }

    /// Begins and ends sessions as told, while there is room; whether there were any.
    fn take_commands(&mut self) -> bool {
        let mut any = false;
        while self.room()
            && let Some(command) = self.commands.try_recv()
        {
            any = true;
            match command {
                Command::Attach(attach) => self.attach(*attach),
                Command::Detach(peer, session) => self.detach(peer, session),
                Command::Import(peer, session, settings) => {
                    let session = self.sessions.get_mut(&peer).filter(|s| s.peer.info().session == session);
                    if let Some(session) = session {
                        session.peer.set(*settings);
                    }
                }
            }
        }
        any
    }

    /// Reads sessions that have something, each once, until it is enough to hand on; whether there were any.
    fn read(&mut self) -> bool {
        if self.ready.is_empty() {
            return false;
        }
        self.busy.set(true);
        let enough = if self.downstream.is_some() { HELD_BACK_FLUSH_THRESHOLD } else { FLUSH_THRESHOLD };
        let begin = Instant::now();
        for _ in 0..self.ready.len() {
            let Some(peer) = self.ready.pop_front() else { break };
            match self.turn(peer) {
                Left::More => self.queue(peer),
                Left::Perhaps => self.perhaps.push(peer),
                Left::Nothing => {}
            }
            if self.batches.len() >= enough {
                break;
            }
        }
        self.meter.add(self.batches.len(), begin);
        true
    }

    fn queue(&mut self, peer: PeerId) {
        if let Some(session) = self.sessions.get_mut(&peer)
            && !session.queued
            && !session.ended
        {
            session.queued = true;
            self.ready.push_back(peer);
        }
    }

    fn attach(&mut self, attach: Attach) {
        let Attach { stream, unread, info, settings, heard } = attach;
        let (id, number) = (info.id, info.session);
        self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::PeerUp(info.clone())));
        let registered = self.poll.registry().register(
            &mut SourceFd(&stream.as_raw_fd()),
            Token(id.0 as usize),
            Interest::READABLE,
        );
        let max_len = if info.egress.max_message as usize > MAX_LEN { MAX_EXTENDED_LEN } else { MAX_LEN };
        let peer = IngestPeer::new(info, settings);
        let session = Session {
            stream,
            peer,
            messages: MessageCounts::default(),
            heard,
            max_len,
            tail: unread,
            queued: false,
            ended: false,
        };
        self.sessions.insert(id, session);
        match registered {
            Ok(()) => self.queue(id),
            Err(error) => {
                self.end(
                    id,
                    number,
                    What::Closed(format!("the reader cannot watch the connection: {error}")),
                );
            }
        }
    }

    fn detach(&mut self, peer: PeerId, session: u32) {
        if self.sessions.get(&peer).is_none_or(|s| s.peer.info().session != session) {
            return;
        }
        self.hand_on();
        if let Some(session) = self.sessions.remove(&peer) {
            // Closing our descriptor would not do: the session thread still has the connection.
            let _ = self.poll.registry().deregister(&mut SourceFd(&session.stream.as_raw_fd()));
        }
        self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::PeerDown { peer, session }));
        let what = What::Detached { shards: self.shards.len() };
        self.reports.post(Report { peer, session, what });
    }

    /// Reads once from a session and handles what came.
    fn turn(&mut self, id: PeerId) -> Left {
        let Some(session) = self.sessions.get_mut(&id) else { return Left::Nothing };
        session.queued = false;
        if session.ended {
            return Left::Nothing;
        }
        let number = session.peer.info().session;
        let kept = session.tail.len();
        let end = if self.downstream.is_some() { kept + HELD_BACK_READ } else { self.buffer.len() };
        self.buffer[..kept].copy_from_slice(&session.tail);
        session.tail.clear();
        let (read, outcome) = loop {
            let room = &mut self.buffer[kept..end];
            let full = room.len();
            match session.stream.read(room) {
                Ok(0) => break (0, Err(What::Closed("closed by the peer".into()))),
                Ok(n) => {
                    session.heard.store(self.clock.now(), Relaxed);
                    break (n, Ok(if n == full { Left::More } else { Left::Perhaps }));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break (0, Ok(Left::Nothing)),
                Err(e) => break (0, Err(What::Closed(e.to_string()))),
            }
        };
        let buffer = std::mem::take(&mut self.buffer);
        let handled = self.messages(id, number, &buffer[..kept + read]);
        self.buffer = buffer;
        match handled.and(outcome) {
            Ok(left) => left,
            Err(what) => {
                self.end(id, number, what);
                Left::Nothing
            }
        }
    }

    /// Handles every whole message in `bytes` and keeps the rest for later.
    fn messages(&mut self, id: PeerId, number: u32, bytes: &[u8]) -> Result<(), What> {
        let mut rest = bytes;
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        while let Some(Frame { kind, body, total_len }) = frame(rest, session.max_len).map_err(What::Fault)? {
            rest = rest.get(total_len..).unwrap_or_default();
            session.messages.count(kind);
            let report = match kind {
                MessageType::Update => {
                    let done = self.ingest.update(&mut session.peer, body, &mut self.batches);
                    done.map_err(What::Fault)?.map(What::EndOfRib)
                }
                MessageType::Keepalive => None,
                MessageType::RouteRefresh => {
                    let refresh = RouteRefresh::parse(body).map_err(What::Fault)?;
                    let wanted = refresh.kind == RefreshKind::Request && refresh.safi == Safi::Unicast as u8;
                    Afi::from_u16(refresh.afi).filter(|_| wanted).map(What::Refresh)
                }
                MessageType::Open | MessageType::Notification => {
                    return Err(What::Message(kind, body.to_vec()));
                }
            };
            if let Some(what) = report {
                self.reports.post(Report { peer: id, session: number, what });
            }
        }
        session.tail.extend_from_slice(rest);
        Ok(())
    }

    /// Reads no more of a session and says why.
    fn end(&mut self, peer: PeerId, session: u32, what: What) {
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.ended = true;
        }
        self.reports.post(Report { peer, session, what });
    }

    /// Puts the batches into the shards' rings; says before that whether there is more.
    fn hand_on(&mut self) {
        self.busy.set(!self.ready.is_empty());
        for (thread, batch) in self.batches.drain() {
            if let Some(shard) = self.shards.get_mut(usize::from(thread)) {
                shard.post(ShardIn::Routes(batch));
            }
        }
        while let Some(peer) = self.perhaps.pop() {
            self.queue(peer);
        }
    }
}
