//! The reader stages, which own the read side of established sessions.
//!
//! A reader cuts messages out of its sockets, turns UPDATEs into batches and sends them to shards.
//! A full queue stops the reader, and then the TCP windows of the peers close: back-pressure
//! without loss. A reader has no session timers, so a waiting reader delays no KEEPALIVE. The
//! session thread checks for unread bytes before it declares a peer silent.

mod monitored;
mod refresh;
mod retained;

use super::mailbox::{Mailbox, retry_all};
use super::messages::MessageCounts;
use super::monitor::{MonitorIn, Taps};
use super::recorder::{Direction, MessageRing, Recorded};
use super::shard;
use super::stage::{Stage, Turn};
use crossbeam_channel::Select;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use monitored::Handled;
use refresh::Mark;
pub(super) use refresh::Marks;
use retained::Retained;
use ribtide_bgp::ingest::{
    Ingest, IngestCounters, IngestPeer, IngestSettings, KeptFilter, KeptPlace, KeptRoute, LimitEvent,
    OriginatedAttributes, PrefixCount, ReceivedView, ShardBatches, ShardMap,
};
use ribtide_bgp::message::{Prefixes, ShardIn};
use ribtide_bgp::peer::{FamilySet, PeerId, PeerInfo};
use ribtide_bgp::shard::Split;
use ribtide_bgp::watch::WatchSet;
use ribtide_prefix::{
    AfiSafi, AnyPrefix, BgpFamilies, BgpFamily, ByFamily, Families, PREFETCH_BATCH, for_each_bgp_family,
};
use ribtide_rpki::{ChangedPrefixes, Vrps};
use ribtide_runtime::activity::Busy;
use ribtide_runtime::call::{CallQueue, StageHandle, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{Receiver, Rings, Sender, Wake};
use ribtide_runtime::thread::StopSignal;
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::message::{
    Frame, HEADER_LEN, MAX_EXTENDED_LEN, MAX_LEN, MessageType, RefreshKind, RouteRefresh, frame,
};
use std::collections::{BTreeMap, VecDeque};
use std::io::{self, Read};
use std::net::{IpAddr, TcpStream};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Commands in the queue of a reader at most.
const COMMANDS: usize = 1024;
/// Bytes read from one session in its turn.
const READ: usize = 64 * 1024;
/// Prefixes after which a reader sends its batches although more is at hand.
const FLUSH_THRESHOLD: usize = 4096;
/// The same two bounds while routes move between shards, which become idle after the rest of the
/// input: some milliseconds of work.
const HELD_BACK_READ: usize = 8 * 1024;
const HELD_BACK_FLUSH_THRESHOLD: usize = 1024;
/// Kept routes that are looked at in a turn after a change of policy or of RPKI data: some milliseconds.
const EVALUATED_AGAIN: usize = 4096;
/// Poll interval for room in shards during a move.
const SHARDS_POLL_INTERVAL: Duration = Duration::from_millis(1);

const WAKE: Token = Token(usize::MAX);

/// A command of the session thread.
pub(super) enum Command {
    /// Start to read this session.
    Attach(Box<Attach>),
    /// The session has ended, and the routes of these families are retained.
    Detach(PeerId, u32, FamilySet),
    /// Routes of a peer's ended session are retained no longer, in these families.
    Sweep(PeerId, u32, FamilySet),
    /// They are long-lived stale from now on.
    LongLived(PeerId, u32, FamilySet),
    /// The refresh of a family has taken too long: it ends as if the peer had marked its end.
    EndRefresh(PeerId, u32, AfiSafi),
    /// Use these settings for later routes of the session.
    Import(PeerId, u32, Box<IngestSettings>),
    /// Routes that this router originates.
    Originate(Box<Origination>),
    /// A source of originated routes is no more.
    EndOrigination(PeerId, u32),
    /// What shards watch from now on.
    Watch(Arc<WatchSet>),
    /// How many bytes of messages of each session are kept from now on.
    Record(usize),
}

/// Changes of the routes of one source of originated routes.
pub(super) struct Origination {
    /// The source; the first message of its session begins the session.
    pub(super) info: Arc<PeerInfo>,
    /// Its policy, which replaces the former one.
    pub(super) settings: IngestSettings,
    /// The attributes of the announced routes.
    pub(super) attributes: OriginatedAttributes,
    pub(super) withdrawn: BgpFamilies<Prefixes>,
    pub(super) announced: BgpFamilies<Prefixes>,
}

/// A session that a reader takes over.
pub(super) struct Attach {
    /// The connection, non-blocking.
    pub(super) stream: TcpStream,
    /// Bytes that the session thread has read.
    pub(super) unread: Vec<u8>,
    pub(super) info: Arc<PeerInfo>,
    pub(super) settings: IngestSettings,
    /// Time of the last received bytes, for the hold timer.
    pub(super) heard: Arc<AtomicU64>,
    /// What the peer can mark.
    pub(super) marks: Marks,
    /// How many bytes of its messages are kept.
    pub(super) record: usize,
}

/// A report to the session thread.
pub(super) struct Report {
    pub(super) peer: PeerId,
    pub(super) session: u32,
    pub(super) what: What,
}

/// The event on a session.
pub(super) enum What {
    /// A message for the FSM, the last one read.
    Message(MessageType, Vec<u8>),
    /// A protocol error; reading has stopped.
    Fault(Notification),
    /// The connection ended.
    Closed(String),
    /// A maximum of prefixes was reached. If that ends the session, reading has stopped.
    Limit(LimitEvent),
    /// The peer requested a route refresh of a family.
    Refresh(AfiSafi),
    /// It has begun to send its routes of a family again.
    BeginOfRefresh(AfiSafi),
    /// That has ended, and what it left out is removed.
    EndOfRefresh(AfiSafi),
    /// A message that the reader ignores although it is an error; the first one of the session.
    Ignored(&'static str),
    /// The peer has sent all its initial routes of a family.
    EndOfRib(AfiSafi),
    /// The last messages of an ended session.
    Recorded(Vec<Recorded>),
    /// The reader dropped the ended session and informed the shards. If its routes were retained, they
    /// are no longer.
    Detached {
        /// The number of informed shards. Each reports when it has no route of the session.
        shards: usize,
    },
    /// Of no session: the shards have another set of watches.
    Watching {
        /// The generation of the set.
        generation: u32,
        /// The number of informed shards. Each reports when it has looked at all of its routes.
        shards: usize,
    },
}

/// The queues of a reader before it runs.
pub(super) struct ReaderBuilder {
    poll: Poll,
    wake: Wake,
    commands: (Sender<Command>, Receiver<Command>),
}

/// The outputs of a reader.
pub(super) struct Outputs {
    pub(super) map: ShardMap,
    pub(super) shards: Vec<Sender<ShardIn>>,
    pub(super) reports: Sender<Report>,
    /// What monitors get.
    pub(super) monitors: Taps,
    /// The activity flag for later stages.
    pub(super) busy: Busy,
}

impl ReaderBuilder {
    pub(super) fn new(index: u16, rings: &Rings) -> io::Result<ReaderBuilder> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        // A waker fails only without kernel memory.
        let wake: Wake = Arc::new(move || drop(waker.wake()));
        let (sender, commands) = rings.bounded(format!("sessions to reader {index}"), COMMANDS);
        Ok(ReaderBuilder { poll, commands: (sender.with_wake(Some(wake.clone())), commands), wake })
    }

    pub(super) fn commands(&self) -> Sender<Command> {
        self.commands.0.clone()
    }

    /// The stage and its handle.
    pub(super) fn build(
        self,
        outputs: Outputs,
        clock: Clock,
        meters: &Meters,
    ) -> (StageHandle<Reader>, ReaderStage) {
        let (handle, calls) = pair("reader");
        let reader = Reader {
            batches: ShardBatches::new(outputs.map),
            shards: outputs.shards.into_iter().map(Mailbox::new).collect(),
            reports: Mailbox::new(outputs.reports),
            monitor: outputs.monitors.bmp.as_ref().map(|tap| Mailbox::new(tap.data.clone())),
            monitors: outputs.monitors,
            busy: outputs.busy,
            poll: self.poll,
            commands: self.commands.1,
            clock,
            meter: meters.meter("reader"),
            ingest: Ingest::default(),
            sessions: BTreeMap::new(),
            sources: BTreeMap::new(),
            watches: None,
            retained: Retained::default(),
            ready: VecDeque::new(),
            perhaps: Vec::new(),
            paused: None,
            downstream: None,
            buffer: vec![0; MAX_EXTENDED_LEN + READ],
        };
        let stage = ReaderStage { reader, calls, events: Events::with_capacity(256), wake: self.wake };
        (handle.with_wake(Some(stage.wake.clone())), stage)
    }
}

/// A reader as a stage.
pub(super) struct ReaderStage {
    reader: Reader,
    calls: CallQueue<Reader>,
    events: Events,
    wake: Wake,
}

impl ReaderStage {
    /// Polls the sockets; returns whether any is readable.
    fn poll(&mut self, timeout: Duration) -> bool {
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
        self.reader.sessions.values_mut().for_each(|session| session.peer.shrink_to_fit());
    }
}

impl Stage for ReaderStage {
    fn turn(&mut self) -> Turn {
        let news = self.reader.ready.is_empty() && self.poll(Duration::ZERO);
        self.calls.serve(&mut self.reader);
        if !self.reader.room() || self.reader.holds_back() {
            return Turn::Held;
        }
        if self.reader.paused.is_some() {
            return if news { Turn::Busy } else { Turn::Idle };
        }
        let commanded = self.reader.take_commands();
        let did = self.reader.read();
        let again = self.reader.evaluate_again();
        let more = did && self.poll(Duration::ZERO);
        self.reader.hand_on();
        match self.reader.room() {
            false => Turn::Held,
            true if commanded || did || news || again || more => Turn::Busy,
            true => Turn::Idle,
        }
    }

    fn wait(&mut self, after: Turn, stop: &StopSignal) -> bool {
        if after == Turn::Held {
            let mut select = Select::new();
            stop.watch(&mut select);
            self.calls.watch(&mut select);
            self.reader.shards.iter().for_each(|shard| shard.watch(&mut select));
            self.reader.reports.watch(&mut select);
            self.reader.monitor.iter().for_each(|monitor| monitor.watch(&mut select));
            // The next turn checks all queues.
            let is_held_back = self.reader.downstream.is_some();
            let _ = select.ready_timeout(if is_held_back { SHARDS_POLL_INTERVAL } else { Duration::MAX });
            return false;
        }
        let is_idle = !self.poll(idle::until_idle());
        idle::on_wait(is_idle)
    }

    fn descriptor(&self) -> Option<RawFd> {
        Some(self.reader.poll.as_raw_fd())
    }

    fn waker(&self) -> Option<Wake> {
        Some(self.wake.clone())
    }
}

/// The state of a reader.
pub struct Reader {
    shards: Vec<Mailbox<ShardIn>>,
    reports: Mailbox<Report>,
    /// The queue of the monitor that stops the reader when it is full.
    monitor: Option<Mailbox<MonitorIn>>,
    monitors: Taps,
    busy: Busy,
    poll: Poll,
    commands: Receiver<Command>,
    clock: Clock,
    meter: Meter,
    ingest: Ingest,
    batches: ShardBatches,
    sessions: BTreeMap<PeerId, Session>,
    /// Sources of originated routes.
    sources: BTreeMap<PeerId, IngestPeer>,
    /// What shards watch, for new ones.
    watches: Option<Arc<WatchSet>>,
    /// Ended sessions with retained routes.
    retained: Retained,
    /// Sessions that may have bytes to read, each once.
    ready: VecDeque<PeerId>,
    /// Sessions whose last read did not fill the buffer. Only later bytes, or the end of the
    /// connection, need another read.
    perhaps: Vec<PeerId>,
    /// Start of a pause, in which the reader reads nothing and neither begins nor ends sessions:
    /// routes move between shards.
    paused: Option<Instant>,
    /// In a resize: the queues after the shards. The reader reads only while shards and these
    /// queues have room.
    downstream: Option<shard::Outputs>,
    buffer: Vec<u8>,
}

struct Session {
    stream: TcpStream,
    peer: IngestPeer,
    messages: MessageCounts,
    heard: Arc<AtomicU64>,
    max_len: usize,
    marks: Marks,
    /// The start of an incomplete message.
    tail: Vec<u8>,
    /// Its last messages.
    recorded: MessageRing,
    queued: bool,
    /// Whether reading has stopped.
    ended: bool,
}

/// What a reader counts of a session.
#[derive(Clone, Copy, Debug, Default)]
pub struct SessionCounts {
    /// Counters of its routes.
    pub ingest: IngestCounters,
    /// Messages read.
    pub messages: MessageCounts,
    /// Prefixes against its limits, where a family has one.
    pub limited: ByFamily<Option<PrefixCount>>,
}

/// What a read left in the socket.
enum Left {
    /// Perhaps more: the buffer was filled.
    More,
    /// Nothing: the buffer was not filled.
    Perhaps,
    Nothing,
}

impl Reader {
    /// Counters of a session, if it belongs to this reader.
    pub fn counters(&self, peer: PeerId) -> Option<IngestCounters> {
        self.sessions.get(&peer).map(|session| session.peer.counters)
    }

    /// The prefixes of a session against its limits, where a family has one.
    pub fn prefix_count(&self, peer: PeerId, family: AfiSafi) -> Option<PrefixCount> {
        self.sessions.get(&peer)?.peer.prefix_count(family)
    }

    /// The counters, messages and prefixes against limits of a session, if it belongs to this reader.
    pub fn session_counts(&self, peer: PeerId) -> Option<SessionCounts> {
        let session = self.sessions.get(&peer)?;
        Some(SessionCounts {
            ingest: session.peer.counters,
            messages: session.messages,
            limited: ByFamily::new(|family| session.peer.prefix_count(family)),
        })
    }

    /// The last messages of a session, if it belongs to this reader.
    pub fn recorded(&self, peer: PeerId, session: u32) -> Vec<Recorded> {
        let of = self.sessions.get(&peer).filter(|of| of.peer.info().session == session);
        of.map_or_else(Vec::new, |of| of.recorded.iter().cloned().collect())
    }

    /// Messages read from a session.
    pub fn message_counts(&self, peer: PeerId) -> Option<MessageCounts> {
        self.sessions.get(&peer).map(|session| session.messages)
    }

    /// Cached attribute sets.
    pub fn attribute_sets(&self) -> usize {
        self.ingest.len()
    }

    /// Pauses until [`Reader::resume`]. Bytes wait in the sockets, where the session thread sees
    /// them.
    pub(super) fn pause(&mut self) {
        self.paused.get_or_insert_with(Instant::now);
        self.busy.set(false);
    }

    /// Whether everything read is in the queues of shards. It stays true during a pause.
    pub(super) fn is_idle(&mut self) -> bool {
        self.paused.is_some() && self.room()
    }

    /// Limits reading: a little at a time, and only while shards, and the stages after them, keep
    /// up. So shards become idle soon. `None` removes the limit.
    pub(super) fn hold_back(&mut self, downstream: Option<shard::Outputs>) {
        self.downstream = downstream;
    }

    /// Whether shards, or stages after them, have enough work.
    fn holds_back(&self) -> bool {
        let Some(downstream) = self.downstream.as_ref().filter(|_| self.paused.is_none()) else {
            return false;
        };
        self.shards.iter().any(|shard| shard.in_ring() > 0) || downstream.is_half_full()
    }

    /// Adds new shards, which have no routes, and informs them of all sessions.
    pub(super) fn add_shards(&mut self, shards: Vec<Sender<ShardIn>>) {
        let mut shards: Vec<_> = shards.into_iter().map(Mailbox::new).collect();
        for message in self.retained.messages() {
            shards.iter_mut().for_each(|shard| shard.post(message()));
        }
        if let Some(set) = self.watches.as_ref().filter(|set| !set.watches.is_empty()) {
            shards.iter_mut().for_each(|shard| shard.post(ShardIn::Watch(set.clone())));
        }
        let peers = self.sessions.values().map(|session| &session.peer).chain(self.sources.values());
        for info in peers.map(IngestPeer::info) {
            shards.iter_mut().for_each(|shard| shard.post(ShardIn::PeerUp(info.clone())));
        }
        for (peer, session) in &self.sessions {
            let number = session.peer.info().session;
            let under_way = session.marks.under_way;
            for family in under_way.iter() {
                let message = || ShardIn::BeginOfRefresh { peer: *peer, session: number, family };
                shards.iter_mut().for_each(|shard| shard.post(message()));
            }
        }
        self.shards.append(&mut shards);
    }

    /// Uses the first `shards` shards with this map. Call it only while the reader is idle.
    pub(super) fn remap(&mut self, map: ShardMap, split: Option<Split>, shards: usize) {
        self.batches = ShardBatches::with_split(map, split);
        self.shards.truncate(shards);
    }

    /// Ends a pause and returns its length.
    pub(super) fn resume(&mut self) -> Duration {
        self.paused.take().map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// Validates routes against another table from now on, and the kept ones again.
    /// `changed`: the prefixes whose payloads differ from the table before.
    pub fn set_vrps(&mut self, vrps: Arc<Vrps>, changed: &Arc<Families<ChangedPrefixes>>) {
        let before = self.ingest.set_vrps(vrps.clone());
        for session in self.sessions.values_mut() {
            session.peer.validate_again(&before, &vrps, changed);
        }
    }

    /// Looks at `limits.0` routes of a session before import policy at most, in order, after this place, until the policy
    /// has been explained for as many as `limits.1`. Returns those that fit, and the place of the last one unless all were
    /// looked at; `None` where they are not kept.
    pub fn received_page(
        &mut self,
        peer: PeerId,
        after: Option<KeptPlace>,
        limits: (usize, usize),
        filter: &KeptFilter,
    ) -> Option<(Vec<ReceivedView>, Option<KeptPlace>)> {
        let peer = &mut self.sessions.get_mut(&peer)?.peer;
        self.ingest.view_page(peer, after, limits, filter)
    }

    /// At most `limit` routes of a session before import policy, in order, after this place; `None` where they are not kept.
    pub fn kept_page(
        &mut self,
        peer: PeerId,
        after: Option<KeptPlace>,
        limit: usize,
    ) -> Option<Vec<KeptRoute>> {
        self.sessions.get_mut(&peer)?.peer.kept_page(after, limit)
    }

    /// The routes of a session before import policy, of exactly this prefix; `None` where they are not kept.
    pub fn received_prefix(&mut self, peer: PeerId, prefix: AnyPrefix) -> Option<Vec<ReceivedView>> {
        let peer = &mut self.sessions.get_mut(&peer)?.peer;
        peer.keeps_received().then(|| self.ingest.view_received(peer, prefix))
    }

    /// The routes of exactly this prefix before import policy, of the sessions that keep theirs.
    pub fn received_of(&mut self, prefix: AnyPrefix) -> Vec<(IpAddr, ReceivedView)> {
        let peers = self.sessions.values_mut().map(|session| &mut session.peer);
        let of = |peer: &mut IngestPeer| {
            let address = peer.info().address;
            self.ingest.view_received(peer, prefix).into_iter().map(move |view| (address, view))
        };
        peers.flat_map(of).collect()
    }

    /// The number of routes of a session before import policy, where they are kept.
    pub fn received_len(&mut self, peer: PeerId) -> Option<ByFamily<usize>> {
        let peer = &mut self.sessions.get_mut(&peer)?.peer;
        let mut lens = ByFamily::default();
        for_each_bgp_family!(F => lens[F::ID] = peer.received_len::<F>());
        peer.keeps_received().then_some(lens)
    }

    /// Evaluates the import policy again for kept routes of one session. Returns whether there were any.
    fn evaluate_again(&mut self) -> bool {
        let pending =
            self.sessions.iter_mut().find(|(_, session)| session.peer.is_pending() && !session.ended);
        let Some((id, session)) = pending else { return false };
        self.busy.set(true);
        self.ingest.evaluate_again(&mut session.peer, &mut self.batches, EVALUATED_AGAIN);
        let (id, number) = (*id, session.peer.info().session);
        if let Err(what) = report_limits(session, id, number, &mut self.reports) {
            self.end(id, number, what);
        }
        true
    }

    /// Whether no batch waits here.
    fn room(&mut self) -> bool {
        let shards = retry_all(&mut self.shards);
        let monitor = self.monitor.as_mut().is_none_or(Mailbox::retry);
        self.reports.retry() && shards && monitor
    }

    /// Handles commands while there is room. Returns whether there were any.
    fn take_commands(&mut self) -> bool {
        let mut any = false;
        while self.room()
            && self.batches.len() < FLUSH_THRESHOLD
            && let Some(command) = self.commands.try_recv()
        {
            any = true;
            match command {
                Command::Attach(attach) => self.attach(*attach),
                Command::Detach(peer, session, retained) => self.detach(peer, session, retained),
                Command::Sweep(peer, session, families) => self.sweep(peer, session, families),
                Command::LongLived(peer, session, families) => {
                    if self.retained.is_of(peer, session) {
                        self.hand_on();
                        let message = || ShardIn::LongLived { peer, session, families };
                        self.shards.iter_mut().for_each(|shard| shard.post(message()));
                    }
                }
                Command::EndRefresh(peer, session, family) => {
                    if self.sessions.get(&peer).is_some_and(|s| s.peer.info().session == session) {
                        self.end_refresh(peer, family);
                    }
                }
                Command::Import(peer, session, settings) => {
                    let session = self.sessions.get_mut(&peer).filter(|s| s.peer.info().session == session);
                    if let Some(session) = session {
                        let kept = session.peer.keeps_received();
                        session.peer.set(*settings);
                        if session.peer.keeps_received() != kept {
                            self.kept_changed();
                        }
                    }
                }
                Command::Originate(origination) => self.originate(*origination),
                Command::EndOrigination(peer, session) => self.end_origination(peer, session),
                Command::Watch(set) => self.watch(set),
                Command::Record(bytes) => {
                    self.sessions.values_mut().for_each(|session| session.recorded.set_bound(bytes));
                }
            }
        }
        any
    }

    /// Reads readable sessions, once each, until the batches are large enough. Returns whether
    /// there were any.
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
        let Attach { stream, unread, info, settings, heard, marks, record } = attach;
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
            marks,
            tail: unread,
            recorded: MessageRing::new(record),
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

    fn originate(&mut self, origination: Origination) {
        self.busy.set(true);
        let Origination { info, settings, attributes, withdrawn, announced } = origination;
        let known = self.sources.get(&info.id).is_some_and(|source| source.info().session == info.session);
        if !known {
            self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::PeerUp(info.clone())));
        }
        let source = IngestPeer::new(info, settings);
        for_each_bgp_family!(F => {
            let (withdrawn, announced) = (withdrawn.get::<F>(), announced.get::<F>());
            self.ingest.originate(&source, &attributes, withdrawn, announced, &mut self.batches);
        });
        self.sources.insert(source.info().id, source);
    }

    /// Hands another set of watches to the shards, and keeps it for later ones.
    fn watch(&mut self, set: Arc<WatchSet>) {
        self.hand_on();
        self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::Watch(set.clone())));
        let shards = self.shards.len();
        let what = What::Watching { generation: set.generation, shards };
        self.reports.post(Report { peer: PeerId(0), session: 0, what });
        self.watches = Some(set);
    }

    fn end_origination(&mut self, peer: PeerId, session: u32) {
        if self.sources.remove(&peer).is_some() {
            self.hand_on();
            self.announce_end(peer, session);
        }
    }

    fn detach(&mut self, peer: PeerId, session: u32, retained: FamilySet) {
        if self.sessions.get(&peer).is_none_or(|s| s.peer.info().session != session) {
            return;
        }
        self.hand_on();
        let Some(mut ended) = self.sessions.remove(&peer) else { return };
        self.reports.post(Report { peer, session, what: What::Recorded(ended.recorded.take()) });
        // The session thread still has the connection, so a close of this descriptor does not
        // deregister it.
        let _ = self.poll.registry().deregister(&mut SourceFd(&ended.stream.as_raw_fd()));
        if retained.is_empty() {
            return self.announce_end(peer, session);
        }
        self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::PeerDown { peer, session, retained }));
        self.retained.begin(ended.peer.info().clone(), retained);
    }

    /// Routes of a peer's ended session are retained no longer, in these families: informs the shards,
    /// after what its present session sent so far.
    fn sweep(&mut self, peer: PeerId, session: u32, families: FamilySet) {
        let Some(is_over) = self.retained.end(peer, session, families) else { return };
        self.hand_on();
        self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::Sweep { peer, session, families }));
        if is_over {
            let what = What::Detached { shards: self.shards.len() };
            self.reports.post(Report { peer, session, what });
        }
    }

    /// A peer has sent all its routes of these families: those of its ended sessions that did not come again are removed.
    fn refreshed(&mut self, peer: PeerId, families: FamilySet) {
        if !families.is_empty() {
            self.retained.of(peer).into_iter().for_each(|session| self.sweep(peer, session, families));
        }
    }

    /// Informs the shards that a session has ended, and the session thread of their number.
    fn announce_end(&mut self, peer: PeerId, session: u32) {
        let retained = FamilySet::NONE;
        self.shards.iter_mut().for_each(|shard| shard.post(ShardIn::PeerDown { peer, session, retained }));
        let what = What::Detached { shards: self.shards.len() };
        self.reports.post(Report { peer, session, what });
    }

    /// Reads once from a session and handles the bytes.
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
        let mut complete = FamilySet::NONE;
        let whole = &buffer[..kept + read];
        let (mut rest, mut recent) = (whole, whole.len());
        let handled = loop {
            let handled = match self.wants_received(id) {
                false => self.messages(id, number, &mut rest, &mut complete, &mut recent, None),
                true => self.monitored_messages(id, number, &mut rest, &mut complete, &mut recent),
            };
            match handled {
                Ok(None) => break Ok(()),
                Ok(Some(mark)) => self.mark(id, mark),
                Err(what) => break Err(what),
            }
        };
        self.record(id, &whole[whole.len() - recent..whole.len() - rest.len()]);
        self.buffer = buffer;
        self.refreshed(id, complete);
        match handled.and(outcome) {
            Ok(left) => left,
            Err(what) => {
                self.end(id, number, what);
                Left::Nothing
            }
        }
    }

    /// Notes the last messages of a read. A KEEPALIVE alone is only counted.
    fn record(&mut self, id: PeerId, messages: &[u8]) {
        if messages.len() > HEADER_LEN
            && let Some(session) = self.sessions.get_mut(&id)
        {
            session.recorded.push(self.clock.now(), Direction::Received, messages.into());
        }
    }

    /// Handles every complete message in `rest`, up to a mark of a route refresh, or stores what is left. Families whose initial
    /// routes are complete go to `complete`, and what monitors need to know of the messages to `monitored`. `recent`: how many
    /// bytes there were from the first message on that the recorder has room for.
    fn messages(
        &mut self,
        id: PeerId,
        number: u32,
        rest: &mut &[u8],
        complete: &mut FamilySet,
        recent: &mut usize,
        mut monitored: Option<&mut Handled>,
    ) -> Result<Option<Mark>, What> {
        let len = rest.len();
        let Some(session) = self.sessions.get_mut(&id) else { return Ok(None) };
        let bound = session.recorded.bound();
        // How many bytes there were after the messages that were prefetched for.
        let mut unprefetched = len;
        while let Some(Frame { kind, body, total_len }) = frame(rest, session.max_len).map_err(What::Fault)? {
            if rest.len() <= unprefetched && session.peer.validates() {
                unprefetched = prefetch(&mut self.ingest, session, rest);
            }
            *rest = (*rest).get(total_len..).unwrap_or_default();
            if rest.len() >= bound {
                *recent = rest.len();
            }
            session.messages.count(kind);
            let report = match kind {
                MessageType::Update => {
                    let before = session.peer.counters.treated_as_withdraw;
                    let done = self.ingest.update(&mut session.peer, body, &mut self.batches);
                    let end_of_rib = done.map_err(What::Fault)?;
                    if let Some(monitored) = &mut monitored {
                        let is_withdrawn = session.peer.counters.treated_as_withdraw != before;
                        monitored.update(len - rest.len(), total_len, is_withdrawn);
                    }
                    report_limits(session, id, number, &mut self.reports)?;
                    if let Some(family) = end_of_rib {
                        *complete = complete.with(family);
                        session.marks.ended = session.marks.ended.with(family);
                    }
                    end_of_rib.map(What::EndOfRib)
                }
                MessageType::Keepalive => None,
                MessageType::RouteRefresh => {
                    let refresh = match RouteRefresh::parse(body) {
                        Ok(refresh) => refresh,
                        // Without the capability a subtype is a reserved byte (RFC 7313 section 5).
                        Err(_) if !session.marks.understood => continue,
                        Err(fault) => return Err(What::Fault(fault)),
                    };
                    let family = refresh.family();
                    match (refresh.kind, family) {
                        (RefreshKind::Request, family) => family.map(What::Refresh),
                        (kind @ (RefreshKind::Begin | RefreshKind::End), Some(family))
                            if session.marks.understood =>
                        {
                            return Ok(Some(Mark { kind, family }));
                        }
                        (RefreshKind::Unknown(_), _) if session.marks.understood => {
                            session.marks.ignored("a ROUTE-REFRESH of an unknown subtype")
                        }
                        _ => None,
                    }
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
        Ok(None)
    }

    /// Stops reading a session and reports the reason.
    fn end(&mut self, peer: PeerId, session: u32, what: What) {
        if let Some(session) = self.sessions.get_mut(&peer) {
            session.ended = true;
        }
        self.reports.post(Report { peer, session, what });
    }

    /// Sends the batches to shards, after it has set the activity flag.
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

/// Prefetches for the next messages: as many as have some prefixes together, so that look-ups wait for memory at the same
/// time. Returns how many bytes follow these messages.
#[inline(never)]
fn prefetch(ingest: &mut Ingest, session: &Session, mut rest: &[u8]) -> usize {
    let mut prefixes = 0;
    while prefixes < PREFETCH_BATCH
        && let Ok(Some(Frame { kind, body, total_len })) = frame(rest, session.max_len)
    {
        if kind == MessageType::Update {
            prefixes = ingest.note_ahead(&session.peer, body);
        }
        rest = rest.get(total_len..).unwrap_or_default();
    }
    ingest.prefetch();
    rest.len()
}

/// Reports the maximums of prefixes that a session reached.
///
/// # Errors
/// One of them ends the session.
#[inline]
fn report_limits(
    session: &mut Session,
    id: PeerId,
    number: u32,
    reports: &mut Mailbox<Report>,
) -> Result<(), What> {
    for event in session.peer.take_limit_events().into_iter().flatten() {
        if event.ends_session() {
            return Err(What::Limit(event));
        }
        reports.post(Report { peer: id, session: number, what: What::Limit(event) });
    }
    Ok(())
}
