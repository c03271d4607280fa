//! The reader threads: they own the read side of established sessions.
//!
//! A reader cuts messages out of its sockets, turns UPDATEs into batches and puts them into the shards' rings. A full
//! ring stops it, and then the peers' TCP windows close: that is the back-pressure, and nothing is dropped. Session
//! timers run elsewhere, so a reader that waits delays no KEEPALIVE of ours; and the session thread looks for unread
//! bytes before it believes that a peer is silent.

use super::Wake;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use ribtide_bgp::ingest::{Ingest, IngestCounters, IngestPeer, IngestSettings, ShardBatches, ShardMap};
use ribtide_bgp::message::ShardIn;
use ribtide_bgp::peer::{PeerId, PeerInfo};
use ribtide_prefix::{Afi, Safi};
use ribtide_runtime::ask::{Asked, Asker, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender};
use ribtide_runtime::thread::{self, Stop};
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::message::{
    Frame, MAX_EXTENDED_LEN, MAX_LEN, MessageType, RefreshKind, RouteRefresh, frame,
};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Sessions given or taken back that may wait at a reader.
const COMMANDS: usize = 1024;
/// Bytes read from one session before the next has its turn.
const READ: usize = 256 * 1024;
/// Prefixes after which batches are handed on although more is at hand.
const ENOUGH: usize = 4096;

const WAKE: Token = Token(usize::MAX);

/// What the session thread tells a reader.
pub(super) enum Command {
    /// Read this session from now on.
    Attach(Box<Attach>),
    /// The session has ended.
    Detach(PeerId, u32),
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
}

/// A reader's connections, before it runs.
pub(super) struct ReaderBuilder {
    index: u16,
    poll: Poll,
    waker: Arc<Waker>,
    commands: (Sender<Command>, Receiver<Command>),
}

/// Where a reader's output goes.
pub(super) struct Outlets {
    pub(super) map: ShardMap,
    pub(super) shards: Vec<Sender<ShardIn>>,
    pub(super) reports: Sender<Report>,
    /// Wakes the session thread.
    pub(super) wake: Wake,
}

impl Outlets {
    fn report(&self, peer: PeerId, session: u32, what: What) {
        // Fails only when the process is stopping.
        let _ = self.reports.send(Report { peer, session, what });
        (self.wake)();
    }
}

impl ReaderBuilder {
    pub(super) fn new(index: u16, rings: &Rings) -> io::Result<ReaderBuilder> {
        let poll = Poll::new()?;
        let waker = Arc::new(Waker::new(poll.registry(), WAKE)?);
        Ok(ReaderBuilder {
            index,
            poll,
            waker,
            commands: rings.bounded(format!("sessions to reader {index}"), COMMANDS),
        })
    }

    pub(super) fn commands(&self) -> Sender<Command> {
        self.commands.0.clone()
    }

    pub(super) fn wake(&self) -> Wake {
        let waker = self.waker.clone();
        // A waker fails only when the process is out of kernel memory; the reader also wakes by itself.
        Arc::new(move || drop(waker.wake()))
    }

    pub(super) fn start(
        self,
        outlets: Outlets,
        clock: Clock,
        meters: &Meters,
        stop: Stop,
    ) -> io::Result<Asker<Reader>> {
        let (asker, asked) = pair("reader");
        let wake = self.wake();
        let reader = Reader {
            batches: ShardBatches::new(outlets.map),
            outlets,
            poll: self.poll,
            commands: self.commands.1,
            clock,
            meter: meters.meter("reader"),
            ingest: Ingest::default(),
            sessions: BTreeMap::new(),
            ready: VecDeque::new(),
            buffer: vec![0; MAX_EXTENDED_LEN + READ],
        };
        thread::spawn(format!("reader-{}", self.index), move || reader.run(&asked, &stop))?;
        Ok(asker.with_wake(move || wake()))
    }
}

/// The state of a reader thread.
pub struct Reader {
    outlets: Outlets,
    poll: Poll,
    commands: Receiver<Command>,
    clock: Clock,
    meter: Meter,
    ingest: Ingest,
    batches: ShardBatches,
    sessions: BTreeMap<PeerId, Session>,
    /// Sessions that may have bytes to read, each once.
    ready: VecDeque<PeerId>,
    buffer: Vec<u8>,
}

struct Session {
    stream: TcpStream,
    peer: IngestPeer,
    heard: Arc<AtomicU64>,
    max_len: usize,
    /// The beginning of a message whose end has not come.
    tail: Vec<u8>,
    queued: bool,
    /// Nothing more is read of it.
    ended: bool,
}

impl Reader {
    /// What a session has brought, if it is this reader's.
    pub fn counters(&self, peer: PeerId) -> Option<IngestCounters> {
        self.sessions.get(&peer).map(|session| session.peer.counters)
    }

    /// How many attribute sets it remembers.
    pub fn attribute_sets(&self) -> usize {
        self.ingest.len()
    }

    fn run(mut self, asked: &Asked<Reader>, stop: &Stop) {
        let mut events = Events::with_capacity(256);
        while !stop.stopped() {
            let patience = if self.ready.is_empty() { Duration::from_millis(100) } else { Duration::ZERO };
            if let Err(error) = self.poll.poll(&mut events, Some(patience))
                && error.kind() != io::ErrorKind::Interrupted
            {
                panic!("the reader cannot wait for its sockets: {error}");
            }
            for event in &events {
                if event.token() != WAKE {
                    self.queue(PeerId(event.token().0 as u32));
                }
            }
            while let Some(command) = self.commands.try_recv() {
                match command {
                    Command::Attach(attach) => self.attach(*attach),
                    Command::Detach(peer, session) => self.detach(peer, session),
                }
            }
            asked.serve(&mut self);
            let begin = Instant::now();
            let mut routes = 0;
            for _ in 0..self.ready.len() {
                let Some(peer) = self.ready.pop_front() else { break };
                if self.turn(peer) {
                    self.queue(peer);
                }
                if self.batches.len() >= ENOUGH {
                    routes += self.batches.len();
                    self.meter.add(std::mem::take(&mut routes), begin);
                    self.hand_on();
                }
            }
            routes += self.batches.len();
            self.meter.add(routes, begin);
            self.hand_on();
        }
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
        for shard in &self.outlets.shards {
            // Sends fail only when the process is stopping.
            let _ = shard.send(ShardIn::PeerUp(info.clone()));
        }
        let registered = self.poll.registry().register(
            &mut SourceFd(&stream.as_raw_fd()),
            Token(id.0 as usize),
            Interest::READABLE,
        );
        let max_len = if info.egress.max_message as usize > MAX_LEN { MAX_EXTENDED_LEN } else { MAX_LEN };
        let peer = IngestPeer::new(info, settings);
        let session = Session { stream, peer, heard, max_len, tail: unread, queued: false, ended: false };
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
        for shard in &self.outlets.shards {
            let _ = shard.send(ShardIn::PeerDown { peer, session });
        }
    }

    /// Reads once from a session and handles what came; whether there may be more.
    fn turn(&mut self, id: PeerId) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        session.queued = false;
        if session.ended {
            return false;
        }
        let number = session.peer.info().session;
        let kept = session.tail.len();
        self.buffer[..kept].copy_from_slice(&session.tail);
        session.tail.clear();
        let (read, outcome) = loop {
            match session.stream.read(&mut self.buffer[kept..]) {
                Ok(0) => break (0, Err(What::Closed("closed by the peer".into()))),
                Ok(n) => {
                    session.heard.store(self.clock.now(), Relaxed);
                    break (n, Ok(true));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break (0, Ok(false)),
                Err(e) => break (0, Err(What::Closed(e.to_string()))),
            }
        };
        let buffer = std::mem::take(&mut self.buffer);
        let handled = self.messages(id, number, &buffer[..kept + read]);
        self.buffer = buffer;
        match handled.and(outcome) {
            Ok(more) => more,
            Err(what) => {
                self.end(id, number, what);
                false
            }
        }
    }

    /// Handles every whole message in `bytes` and keeps the rest for later.
    fn messages(&mut self, id: PeerId, number: u32, bytes: &[u8]) -> Result<(), What> {
        let mut rest = bytes;
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(()) };
        while let Some(Frame { kind, body, total_len }) = frame(rest, session.max_len).map_err(What::Fault)? {
            rest = rest.get(total_len..).unwrap_or_default();
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
                self.outlets.report(id, number, what);
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
        self.outlets.report(peer, session, what);
    }

    /// Puts the batches into the shards' rings; waits while one is full.
    fn hand_on(&mut self) {
        let shards = &self.outlets.shards;
        for (thread, batch) in self.batches.drain() {
            if let Some(shard) = shards.get(usize::from(thread)) {
                let _ = shard.send(ShardIn::Routes(batch));
            }
        }
    }
}
