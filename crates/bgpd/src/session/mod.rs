//! The session thread: state machines, timers, listening and connecting, and everything that is written.
//!
//! ```text
//! sockets ──────────► session thread ──► workers (control), readers (commands): it never waits
//! workers ──writes──►       ▲
//! readers ──reports─────────┘
//! ```
//!
//! It waits for no other thread: a stage that feeds it may wait for it, so that no circle of waiting can close. It reads a
//! connection until the session is established; then a reader has the read side. Stages that have no threads of their own
//! run here too, a bounded pass between any two looks at sockets and timers ([`Hosted`]).

mod advertisements;
mod aggregates;
mod bfd;
mod connection;
mod default_routes;
mod graceful_restart;
mod hosting;
mod ids;
mod injected;
mod interfaces;
mod keys;
mod link;
mod listeners;
mod log;
mod max_prefixes;
mod origination;
mod outbox;
mod own_restart;
mod peer;
pub mod prediction;
mod ranges;
mod reconfiguration;
mod recorder;
mod refresh;
mod refused;
mod socket;
pub mod tcp_ao;
mod ttl;
mod unnumbered;
mod view;
mod watches;
mod write_queue;
mod writers;

pub use aggregates::AggregateView;
pub use graceful_restart::RetainedView;
pub use injected::{INJECTED_MAX, InjectedChange, InjectedText, InjectedView, NewRoute, NotInjected};
pub use own_restart::{Deferral, Restarted};
pub(crate) use own_restart::{defers, is_awaited, is_complete};
pub use reconfiguration::Neighbors;
pub use recorder::{LastNotification, LostSession, RecordedView};
pub use refused::{ConnectionRefusal, RefusedConnections};
pub use socket::has_tcp_md5;
#[cfg(test)]
pub(super) use socket::set_md5;
pub use unnumbered::WaitingInterface;
pub use view::{NeighborCounts, NeighborView, Totals, UpCounts, UpView};
pub use write_queue::WriteQueue;

use super::egress::EgressOut;
use super::monitor::{DownCause, Taps};
use super::reader::{Command, Report, What};
use super::recorder::Direction;
use super::shard::ShardNews;
use super::stage::{Hosted, Turn, pin};
use connection::Connection;
use ids::Ids;
use interfaces::Interfaces;
use keys::Keys;
use listeners::Listeners;
use log::{Log, News, Who};
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use origination::Originated;
use outbox::Outbox;
use own_restart::OwnRestarts;
use peer::Peer;
use ribtide_bfd::Standing;
use ribtide_bfdd::{BfdNews, Learnt};
use ribtide_bgp::fsm::{Action, Event, Millis, Side};
use ribtide_bgp::message::EgressIn;
use ribtide_bgp::peer::{EgressSettings, MOST_PEERS, PeerId, PeerKind};
use ribtide_config::{BgpConfig, DynamicRange, InterfaceConfig, NeighborConfig, NeighborSettings};
use ribtide_dataplane::InterfaceNews;
use ribtide_prefix::Map;
use ribtide_prefix::zone::zone_of;
use ribtide_ribd::Redistributed;
use ribtide_runtime::call::{CallQueue, StageHandle, pair};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::idle;
use ribtide_runtime::output::Output;
use ribtide_runtime::ring::{Receiver, Rings, Sender, Wake};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_wire::bgp::Notification;
use ribtide_wire::bgp::message::{HEADER_LEN, MAX_LEN, MessageType, frame};
use ribtide_wire::bgp::notification::cease;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use unnumbered::{Link, Unnumbered};
use watches::Watches;
use writers::{Loan, Writers};

/// Flushes of workers that may wait to be queued.
const WRITES: usize = 64;
/// Batches of redistributed routes that may wait.
const REDISTRIBUTED: usize = 16;
/// Reports of readers and shards that may wait.
const REPORTS: usize = 1024;
/// How long a closed connection is kept, so that unread input does not destroy the NOTIFICATION that we sent last.
const LINGER: Millis = 1_000;
/// Closed connections kept at most.
const LINGERING: usize = 1024;
/// Bytes of workers, each as often as it has receivers, that are taken between two looks at sockets and timers.
const WRITES_AT_ONCE: usize = 8 * 1024 * 1024;

const WAKE: Token = Token(usize::MAX);
/// The socket of Router Advertisements.
const ADVERTISEMENTS: Token = Token(usize::MAX - 1);
/// Tokens of at least this are listeners'; lower ones are connections', two for each peer.
const LISTENERS: usize = 1 << 48;

/// The session thread's connections, before it runs.
pub(super) struct SessionsBuilder {
    rings: Rings,
    poll: Poll,
    wake: Wake,
    listeners: Listeners,
    writes: (Sender<EgressOut>, Receiver<EgressOut>),
    reports: (Sender<Report>, Receiver<Report>),
    shard_news: (Sender<ShardNews>, Receiver<ShardNews>),
    bfd: (Sender<BfdNews>, Receiver<BfdNews>),
    learnt: Option<Sender<Learnt>>,
    links: (Sender<InterfaceNews>, Receiver<InterfaceNews>),
    redistributed: (Sender<Redistributed>, Receiver<Redistributed>),
}

/// Whom the session thread talks to.
pub(super) struct Outputs {
    /// The workers' control rings, by number.
    pub(super) workers: Vec<Sender<EgressIn>>,
    /// The readers' command rings, by number.
    pub(super) readers: Vec<Sender<Command>>,
    /// Monitors, which get the start and end of each session.
    pub(super) monitors: Taps,
}

/// What the session thread needs of the configuration.
pub(super) struct Setup<'a> {
    pub(super) asn: u32,
    pub(super) router_id: Ipv4Addr,
    pub(super) bgp: &'a BgpConfig,
    /// What an earlier run has left, if this is a restart.
    pub(super) restarted: Option<Restarted>,
    pub(super) interfaces: &'a [InterfaceConfig],
    /// Where the thread runs, if not anywhere.
    pub(super) cpus: Option<Cpus>,
    /// The threads that write beside it, and where each runs.
    pub(super) writers: Vec<Option<Cpus>>,
}

impl SessionsBuilder {
    /// Listens, and makes the rings.
    pub(super) fn new(bgp: &BgpConfig, rings: &Rings) -> io::Result<SessionsBuilder> {
        tcp_ao::check_kernel(bgp).map_err(|e| io::Error::new(io::ErrorKind::Unsupported, e))?;
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        // A waker fails only when the process is out of kernel memory.
        let wake: Wake = Arc::new(move || drop(waker.wake()));
        let listeners = Listeners::open(&bgp.listen, &keys::of(bgp), &poll)?;
        let (writes, reports, shard_news, bfd, links, redistributed) = (
            rings.bounded("workers to sessions", WRITES),
            rings.bounded("readers to sessions", REPORTS),
            rings.bounded("shards to sessions", REPORTS),
            rings.bounded("BFD to sessions", REPORTS),
            rings.bounded("interfaces to sessions", REPORTS),
            rings.bounded("redistribution to sessions", REDISTRIBUTED),
        );
        Ok(SessionsBuilder {
            rings: rings.clone(),
            poll,
            listeners,
            writes: (writes.0.with_wake(Some(wake.clone())), writes.1),
            reports: (reports.0.with_wake(Some(wake.clone())), reports.1),
            shard_news: (shard_news.0.with_wake(Some(wake.clone())), shard_news.1),
            bfd: (bfd.0.with_wake(Some(wake.clone())), bfd.1),
            links: (links.0.with_wake(Some(wake.clone())), links.1),
            redistributed: (redistributed.0.with_wake(Some(wake.clone())), redistributed.1),
            wake,
            learnt: None,
        })
    }

    pub(super) fn set_bfd(&mut self, learnt: Sender<Learnt>) {
        self.learnt = Some(learnt);
    }

    pub(super) fn writes(&self) -> Sender<EgressOut> {
        self.writes.0.clone()
    }

    pub(super) fn reports(&self) -> Sender<Report> {
        self.reports.0.clone()
    }

    pub(super) fn shard_news(&self) -> Sender<ShardNews> {
        self.shard_news.0.clone()
    }

    pub(super) fn bfd(&self) -> Sender<BfdNews> {
        self.bfd.0.clone()
    }

    pub(super) fn links(&self) -> Sender<InterfaceNews> {
        self.links.0.clone()
    }

    pub(super) fn redistributed(&self) -> Sender<Redistributed> {
        self.redistributed.0.clone()
    }

    /// The addresses it listens on; a port of 0 in the configuration has become the one that the system chose.
    pub(super) fn listening(&self) -> Vec<SocketAddr> {
        self.listeners.addresses()
    }

    /// For who feeds a stage that this thread hosts.
    pub(super) fn wake(&self) -> Wake {
        self.wake.clone()
    }

    pub(super) fn start(
        self,
        setup: &Setup<'_>,
        outputs: Outputs,
        hosted: Hosted,
        clock: Clock,
        stop: Stop,
    ) -> io::Result<(StageHandle<Sessions>, JoinHandle<()>)> {
        let (handle, calls) = pair("session");
        for descriptor in hosted.descriptors() {
            self.poll.registry().register(&mut SourceFd(&descriptor), WAKE, Interest::READABLE)?;
        }
        let mut sessions = Sessions {
            poll: self.poll,
            listeners: self.listeners,
            clock,
            asn: setup.asn,
            confederation: setup.bgp.confederation.as_ref().map(|ours| ours.identifier),
            router_id: setup.router_id,
            cluster_id: setup.bgp.cluster_id,
            interfaces: setup.interfaces.to_vec(),
            ranges: setup.bgp.dynamic.clone(),
            keys: keys::of(setup.bgp),
            peers: BTreeMap::new(),
            by_address: BTreeMap::new(),
            ids: Ids::default(),
            timers: BTreeSet::new(),
            groups: Map::default(),
            load: vec![0; outputs.readers.len()],
            outbox: Outbox::new(outputs.workers, outputs.readers, outputs.monitors),
            writers: Writers::start(setup.writers.clone(), &self.rings)?,
            lingering: VecDeque::new(),
            refused: RefusedConnections::default(),
            log: Log::default(),
            proven: Map::default(),
            bfd: self.bfd.1,
            links: Interfaces::default(),
            unnumbered: Unnumbered::new(self.learnt),
            link_news: self.links.1,
            redistributed: self.redistributed.1,
            originated: Originated::default(),
            watches: Watches::default(),
            is_running: false,
            down_cause: DownCause::LocalEvent(0),
            own_restarts: OwnRestarts::new(setup.restarted, clock.now()),
            hosted,
            recorder_bytes: setup.bgp.recorder_bytes,
        };
        sessions.originate(&setup.bgp.originate);
        sessions.configure_interfaces(&setup.bgp.interfaces);
        let ranges = setup.bgp.dynamic.iter().map(|range| &range.settings);
        let neighbors = setup.bgp.neighbors.values().map(|neighbor| &neighbor.settings);
        let interfaces = setup.bgp.interfaces.iter().map(|neighbor| &neighbor.settings);
        sessions.begin_default_routes(neighbors.chain(ranges).chain(interfaces));
        for neighbor in setup.bgp.neighbors.values() {
            sessions.configure(neighbor);
        }
        sessions.watch_routes();
        let (writes, reports, shard_news) = (self.writes.1, self.reports.1, self.shard_news.1);
        let (cpus, at_stop) = (setup.cpus.clone(), self.wake.clone());
        let thread = thread::spawn("sessions", move || {
            pin("sessions", cpus.as_ref());
            let _waker = stop.on_stop(move || at_stop());
            sessions.run(&writes, &reports, &shard_news, &calls, &stop);
            Ended::at_stop(&stop)
        })?;
        Ok((handle.with_wake(Some(self.wake)), thread))
    }
}

/// The state of the session thread. Ask it through its [`StageHandle`].
pub struct Sessions {
    poll: Poll,
    listeners: Listeners,
    clock: Clock,
    asn: u32,
    /// The identifier of our confederation.
    confederation: Option<u32>,
    router_id: Ipv4Addr,
    cluster_id: Ipv4Addr,
    interfaces: Vec<InterfaceConfig>,
    ranges: Vec<DynamicRange>,
    /// Of the listening sockets.
    keys: Keys,
    peers: BTreeMap<PeerId, Peer>,
    by_address: BTreeMap<IpAddr, PeerId>,
    ids: Ids,
    /// Each peer at most once, at its `deadline`.
    timers: BTreeSet<(Millis, PeerId)>,
    /// Which workers have a group of these settings, and how many members each. More than one only where members that are
    /// up were given other settings.
    groups: Map<EgressSettings, Vec<(usize, usize)>>,
    /// Sessions of each reader.
    load: Vec<usize>,
    outbox: Outbox,
    writers: Writers,
    lingering: VecDeque<(Millis, TcpStream)>,
    /// Connections from unknown addresses.
    refused: RefusedConnections,
    log: Log,
    /// What BFD says of the way to neighbours.
    proven: Map<IpAddr, Standing>,
    bfd: Receiver<BfdNews>,
    links: Interfaces,
    /// Neighbours by interface.
    unnumbered: Unnumbered,
    link_news: Receiver<InterfaceNews>,
    redistributed: Receiver<Redistributed>,
    originated: Originated,
    /// Route watches.
    watches: Watches,
    /// Whether the thread runs, so that routes may be advertised.
    is_running: bool,
    /// Why the session ends whose end is under way.
    down_cause: DownCause,
    own_restarts: OwnRestarts,
    /// The stages that run on this thread.
    hosted: Hosted,
    recorder_bytes: usize,
}

impl Sessions {
    fn run(
        mut self,
        writes: &Receiver<EgressOut>,
        reports: &Receiver<Report>,
        shard_news: &Receiver<ShardNews>,
        calls: &CallQueue<Sessions>,
        stop: &Stop,
    ) {
        self.is_running = true;
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for id in ids {
            self.start(id);
        }
        let mut events = Events::with_capacity(1024);
        let mut rest = Turn::Idle;
        let mut hears = false;
        while !stop.stopped() {
            self.outbox.retry();
            let waiting = hears
                || !writes.is_empty()
                || !reports.is_empty()
                || (self.outbox.is_empty() && !self.redistributed.is_empty());
            let timeout = if rest == Turn::Busy || waiting {
                Duration::ZERO
            } else if rest == Turn::Held || !self.outbox.is_empty() || self.unnumbered.is_unshared() {
                Duration::from_millis(1)
            } else {
                self.poll_timeout().min(idle::until_idle())
            };
            if let Err(error) = self.poll.poll(&mut events, Some(timeout))
                && error.kind() != io::ErrorKind::Interrupted
            {
                panic!("the session thread cannot wait for its sockets: {error}");
            }
            if idle::on_wait(events.is_empty() && !timeout.is_zero()) {
                idle::trim(&mut self.hosted);
            }
            let mut room = BTreeSet::new();
            for event in &events {
                match event.token() {
                    WAKE => {}
                    ADVERTISEMENTS => hears = true,
                    Token(at) if at >= LISTENERS => self.accept(at - LISTENERS),
                    token => {
                        if event.is_writable() {
                            room.insert(token);
                        }
                        let (id, side) = peer_of(token);
                        self.ready(id, side, event.is_readable());
                    }
                }
            }
            while let Some(news) = self.bfd.try_recv() {
                self.take_bfd(&news);
            }
            while let Some(news) = self.link_news.try_recv() {
                self.take_interface(news);
            }
            hears = hears && self.hear();
            // Changes without room at readers wait in the RIB manager, where they coalesce.
            while self.outbox.is_empty()
                && let Some(changes) = self.redistributed.try_recv()
            {
                self.redistribute(changes);
            }
            self.write_all(room);
            while let Some(report) = reports.try_recv() {
                self.report(report);
            }
            while let Some(news) = shard_news.try_recv() {
                match news {
                    ShardNews::Purged(id, session) => self.ids.purged(id, session),
                    ShardNews::Watched(shard, news) => self.watched(shard, news),
                }
            }
            self.take_writes(writes);
            calls.serve(&mut self);
            self.run_timers();
            self.advertise();
            self.share_bfd();
            self.expire_injected();
            self.adopt_stages();
            rest = self.hosted.pass();
        }
        self.close_all(!stop.removes());
    }

    /// How long nothing needs to be done unless something happens.
    fn poll_timeout(&self) -> Duration {
        let (timer, linger) = (self.timers.first().map(|t| t.0), self.lingering.front().map(|l| l.0));
        let (advertisement, expiry) = (self.unnumbered.next(), self.originated.injected.next_expiry());
        let next = timer.into_iter().chain(linger).chain(advertisement).chain(expiry).min();
        let next = next.map(|at| self.clock.until(at));
        // Rounded up: waking a moment early would only mean waking again.
        next.map_or(Duration::MAX, |d| d.saturating_add(Duration::from_millis(1)))
    }

    /// A configured neighbour comes, and waits to be started.
    fn configure(&mut self, neighbor: &NeighborConfig) -> PeerId {
        self.configure_on(neighbor, None)
    }

    /// The same, of a neighbour by interface where it has a `link`.
    fn configure_on(&mut self, neighbor: &NeighborConfig, link: Option<Link>) -> PeerId {
        let id = self.add(neighbor.address, neighbor.settings.clone(), false);
        if let Some(link) = &link {
            self.note_link(link, id);
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.description.clone_from(&neighbor.description);
            peer.link = link;
        }
        self.obey(id);
        id
    }

    /// Starts a neighbour, unless its configuration shuts it down. A started one goes on.
    fn start(&mut self, id: PeerId) {
        if self.peers.get(&id).is_some_and(|peer| peer.settings.shutdown.is_none()) {
            self.event(id, Event::Start);
        }
    }

    /// What a peer from `address` gets, if it is in a range: in the most specific one.
    fn range_of(&self, address: IpAddr) -> Option<NeighborSettings> {
        reconfiguration::settings_of_range(&self.ranges, address)
    }

    fn add(&mut self, address: IpAddr, settings: NeighborSettings, dynamic: bool) -> PeerId {
        let kind = settings.kind;
        let id = self.ids.take(kind);
        let asn = self.asn_for(kind);
        let mut peer = Peer::new(id, address, settings, asn, self.router_id, self.clock.now());
        peer.dynamic = dynamic;
        peer.recorder.set_bound(self.recorder_bytes);
        self.own_restarts.announce(&mut peer, self.clock.now());
        self.peers.insert(id, peer);
        self.by_address.insert(address, id);
        id
    }

    /// Our AS for peers of this kind, which `local-as` may hide.
    fn asn_for(&self, kind: PeerKind) -> u32 {
        match self.confederation {
            Some(identifier) if kind.is_external() => identifier,
            _ => self.asn,
        }
    }

    /// Tells a peer's machine of an event and does what it answers.
    fn event(&mut self, id: PeerId, event: Event<'_>) {
        let now = self.clock.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let told = matches!(event, Event::Message(_, MessageType::Notification, _));
        if let Event::Message(_, MessageType::Notification, body) = event {
            peer.recorder.notification(now, Direction::Received, body);
        }
        let before = (peer.state.1, peer.fsm.last_error().map(|e| e.at));
        let ends_retention = graceful_restart::ends_retention(&event);
        // Only an established session has an end that monitors get.
        let cause = peer.up.is_some().then(|| DownCause::of(&event));
        let actions = peer.handle(event, now);
        if let Some(cause) = cause
            && actions.iter().any(|action| matches!(action, Action::Down(_)))
        {
            self.down_cause = cause.with(&actions);
        }
        if told || actions.iter().any(is_news) {
            self.report_news(id, &actions, before, now);
        }
        if ends_retention {
            self.end_retention(id);
        }
        self.act(id, actions);
    }

    /// Tells the operator of a session that came or went, and of one that was refused with a NOTIFICATION of either
    /// side. `before` is when the state began and when the last error was, before these actions.
    fn report_news(&mut self, id: PeerId, actions: &[Action], before: (Millis, Option<Millis>), now: Millis) {
        let Some(peer) = self.peers.get(&id) else { return };
        let error = peer.fsm.last_error().filter(|e| Some(e.at) != before.1);
        let why = error.map_or("the other connection stays", |e| e.text.as_str());
        let up = actions.iter().find_map(|a| if let Action::Up(_, n) = a { Some(n) } else { None });
        let down =
            actions.iter().find_map(|a| if let Action::Down(retention) = a { Some(retention) } else { None });
        let news = match (up, down) {
            (Some(negotiated), _) => News::Up(negotiated),
            (None, Some(retention)) => {
                let uptime = now.saturating_sub(before.0);
                News::Down(uptime, why, retention.map(|retention| retention.time))
            }
            // The loser of a collision is no event in the life of the session.
            (None, None) if error.is_none() => return,
            (None, None) => News::Refused(why),
        };
        let asn = up.map(|n| n.asn).or(peer.up.as_ref().map(|up| up.info.asn));
        let asn = asn.or(peer.fsm.settings().peer_asn);
        let who = Who { asn, ..Who::of(peer) };
        self.log.neighbor(now, &who, &news);
    }

    fn act(&mut self, id: PeerId, actions: Vec<Action>) {
        for action in actions {
            match action {
                Action::Connect => self.connect(id),
                Action::Send(side, message) => self.send(id, side, message),
                Action::Close(side) => self.close(id, side),
                Action::Up(side, negotiated) => self.up(id, side, &negotiated),
                Action::Down(retention) => self.down(id, retention),
                // Answered where the connection was accepted.
                Action::Refuse(_) => {}
            }
        }
        self.settle(id);
    }

    /// Enters the peer's next timer, and forgets a dynamic peer that is gone. One that must wait after a limit, is in an
    /// idle hold, or has retained routes, is remembered.
    fn settle(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let (before, after) = (peer.deadline, peer.next_deadline());
        if before != after {
            peer.deadline = after;
            before.map(|at| self.timers.remove(&(at, id)));
            after.map(|at| self.timers.insert((at, id)));
        }
        let waits = peer.limits.is_waiting() || peer.fsm.idle_hold().is_some() || !peer.retained.is_empty();
        if peer.dynamic && !peer.has_connections() && !waits {
            let (address, kind, link) = (peer.address, peer.kind, peer.link.take());
            after.map(|at| self.timers.remove(&(at, id)));
            self.peers.remove(&id);
            self.by_address.remove(&address);
            if let Some(link) = link {
                self.unnumbered.forget(&link, id);
                self.unnumbered.unshared();
            }
            self.ids.retire(id, kind);
        }
    }

    fn run_timers(&mut self) {
        let now = self.clock.now();
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            peer.deadline = None;
            if peer.limits.until().is_some_and(|until| until <= now) {
                self.end_limit_wait(id);
            }
            self.end_overdue_retention(id, now);
            self.end_overdue_refresh(id, now);
            let Some(peer) = self.peers.get_mut(&id) else { continue };
            self.own_restarts.announce(peer, now);
            let limit = peer.fsm.send_hold();
            let stalled = peer.stalled.zip(limit).is_some_and(|(since, limit)| since + limit <= now);
            self.event(id, if stalled { Event::SendHoldExpired } else { Event::Tick });
        }
        while self.lingering.front().is_some_and(|(until, _)| *until <= now)
            || self.lingering.len() > LINGERING
        {
            self.lingering.pop_front();
        }
    }

    fn accept(&mut self, listener: usize) {
        loop {
            let Some(accepted) = self.listeners.get(listener).map(TcpListener::accept) else { return };
            match accepted {
                Ok((stream, from)) => self.accepted(stream, from),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // A connection that ended while it waited, or no descriptors left: the others go on.
                Err(_) => return,
            }
        }
    }

    fn accepted(&mut self, stream: TcpStream, address: SocketAddr) {
        let from = self.zoned(address);
        let mut known = self.by_address.get(&from).copied();
        if let (None, SocketAddr::V6(address)) = (known, address)
            && zone_of(from).is_some()
        {
            known = self.router_on(address.scope_id(), *address.ip(), true);
        }
        let id = match (known, self.range_of(from)) {
            (Some(id), _) => id,
            (None, Some(_)) if self.peers.len() >= MOST_PEERS || !self.has_room_in_ranges() => {
                self.refused.add(ConnectionRefusal::OutOfResources);
                return self.refuse(stream, &Notification::cease(cease::OUT_OF_RESOURCES));
            }
            (None, Some(settings)) => {
                let id = self.add(from, settings, true);
                let (now, link) = (self.clock.now(), self.link_of(address));
                if let Some(peer) = self.peers.get_mut(&id) {
                    peer.link = link;
                }
                let obstacle = self.obstacle(id);
                if let Some(peer) = self.peers.get_mut(&id).filter(|peer| peer.settings.shutdown.is_none()) {
                    peer.handle(Event::Start, now);
                    obstacle.map(|obstacle| peer.handle(Event::Hold(obstacle), now));
                }
                id
            }
            (None, None) => {
                self.refused.add(ConnectionRefusal::UnknownAddress);
                return self.refuse(stream, &Notification::cease(cease::CONNECTION_REJECTED));
            }
        };
        let now = self.clock.now();
        let Some(peer) = self.peers.get_mut(&id) else { return };
        self.own_restarts.announce(peer, now);
        // RFC 5082 section 3: a packet with a lower TTL is discarded. The SYN is checked before the options are set:
        // with them, the kernel would discard the packets by which such a peer closes the connection.
        let low_ttl = peer.settings.least_ttl().and_then(|least| ttl::low_syn_ttl(&stream, least));
        let options = || socket::set_options(&stream, &peer.settings, peer.kind.is_external()).err();
        let not_signed = || tcp_ao::accepted(&stream, peer.settings.tcp_ao.as_ref()?).err();
        let refused = low_ttl.map(|why| (ConnectionRefusal::LowTtl, why));
        let refused = refused.or_else(|| Some((ConnectionRefusal::NotSigned, not_signed()?)));
        let refused = refused.or_else(|| {
            Some((
                ConnectionRefusal::SocketOptions,
                format!("its connection cannot have the options: {}", options()?),
            ))
        });
        if let Some((reason, why)) = refused {
            self.log.neighbor(now, &Who::of(peer), &News::Refused(&why));
            self.refused.add(reason);
            return self.settle(id);
        }
        let before = (peer.state.1, peer.fsm.last_error().map(|e| e.at));
        let mut actions = peer.handle(Event::Accepted, now);
        self.down_cause = DownCause::of(&Event::Accepted).with(&actions);
        let refusal =
            actions.iter().find_map(|a| if let Action::Refuse(n) = a { Some(n.clone()) } else { None });
        match refusal {
            Some(notification) => {
                self.refused.add(ConnectionRefusal::Neighbor);
                // A peer that is shut down gets the reason, whenever it connects.
                let shutdown = peer.settings.shutdown.as_ref();
                let shutdown =
                    shutdown.map(|text| Notification::cease_with_text(cease::ADMIN_SHUTDOWN, text));
                self.refuse(stream, &shutdown.unwrap_or(notification));
                self.act(id, actions);
            }
            None => {
                // The end of a lost session, whose connection may have the same side, goes first.
                let close = actions.iter().rposition(|a| matches!(a, Action::Close(_)));
                let opening = actions.split_off(close.map_or(0, |at| at + 1));
                if !actions.is_empty() {
                    self.report_news(id, &actions, before, now);
                    self.act(id, actions);
                }
                let Some(peer) = self.peers.get_mut(&id) else { return };
                *peer.slot(Side::Theirs) = Some(Connection::new(stream, false));
                self.act(id, opening);
                self.watch(id, Side::Theirs, Interest::READABLE | Interest::WRITABLE);
            }
        }
    }

    /// Says why, as far as the kernel takes it at once, and closes.
    fn refuse(&mut self, mut stream: TcpStream, notification: &Notification) {
        let mut message = Vec::new();
        notification.write(&mut message);
        if stream.set_nonblocking(true).is_ok() && stream.write(&message).is_ok() {
            self.linger(stream);
        }
    }

    fn linger(&mut self, stream: TcpStream) {
        // The other side may already be gone; then there is nothing to wait for either.
        if stream.shutdown(Shutdown::Write).is_ok() {
            self.lingering.push_back((self.clock.now() + LINGER, stream));
        }
    }

    fn connect(&mut self, id: PeerId) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let port = peer.settings.port;
        let to = match &peer.link {
            Some(link) => link.socket_address(peer.address, port),
            None => SocketAddr::new(peer.address, port),
        };
        match socket::connect(to, &peer.settings, peer.kind.is_external()) {
            Ok(stream) => {
                *peer.slot(Side::Ours) = Some(Connection::new(stream, true));
                self.watch(id, Side::Ours, Interest::READABLE | Interest::WRITABLE);
            }
            Err(error) => self.event(id, Event::ConnectFailed(error.to_string())),
        }
    }

    fn watch(&mut self, id: PeerId, side: Side, interest: Interest) {
        let Some(connection) = self.peers.get_mut(&id).and_then(|p| p.slot(side).as_ref()) else { return };
        let fd = connection.stream.as_raw_fd();
        if let Err(error) = self.poll.registry().register(&mut SourceFd(&fd), token_of(id, side), interest) {
            let why = format!("the connection cannot be watched: {error}");
            self.event(id, Event::Closed(side, why));
        }
    }

    /// A socket has something for us, or has been connected.
    fn ready(&mut self, id: PeerId, side: Side, readable: bool) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let established = peer.up.as_ref().is_some_and(|up| up.side == side);
        let Some(connection) = peer.slot(side).as_mut() else { return };
        if connection.opening {
            let outcome = match connection.stream.take_error() {
                Ok(None) if connection.stream.peer_addr().is_ok() => Event::Connected,
                // Woken before the outcome is known.
                Ok(None) => return,
                Ok(Some(error)) | Err(error) => Event::ConnectFailed(error.to_string()),
            };
            connection.opening = false;
            self.event(id, outcome);
        }
        if readable && !established {
            self.read(id, side);
        }
    }

    /// Reads messages until the session is established, or there are no more.
    fn read(&mut self, id: PeerId, side: Side) {
        loop {
            let Some(peer) = self.peers.get_mut(&id) else { return };
            if peer.up.as_ref().is_some_and(|up| up.side == side) {
                return;
            }
            let Some(connection) = peer.slot(side).as_mut() else { return };
            match frame(&connection.input, MAX_LEN) {
                Ok(Some(frame)) => {
                    let (kind, len) = (frame.kind, frame.total_len);
                    let message: Vec<u8> = connection.input.drain(..len).collect();
                    connection.received.count(kind);
                    if kind == MessageType::Open {
                        connection.received_open = message.as_slice().into();
                    }
                    peer.recorder.control(self.clock.now(), Direction::Received, kind, &message);
                    self.event(id, Event::Message(side, kind, message.get(HEADER_LEN..).unwrap_or_default()));
                }
                Err(notification) => return self.event(id, Event::Fault(side, notification)),
                Ok(None) => match connection.read() {
                    Ok(true) => return,
                    Ok(false) => {}
                    Err(why) => return self.event(id, Event::Closed(side, why)),
                },
            }
        }
    }

    fn send(&mut self, id: PeerId, side: Side, message: Vec<u8>) {
        let Some(connection) = self.peers.get_mut(&id).and_then(|p| p.slot(side).as_mut()) else { return };
        let (kind, message) = (kind_of(&message), Arc::<[u8]>::from(message));
        if let Some(kind) = kind {
            connection.sent.count(kind);
            if kind == MessageType::Open {
                connection.sent_open = message.clone();
            }
        }
        connection.output.push(message.clone());
        self.record_sent(id, kind, &message);
        self.write(id, side);
    }

    /// Writes what waits, as far as the kernel takes it.
    fn write(&mut self, id: PeerId, side: Side) {
        let Some(connection) = self.peers.get_mut(&id).and_then(|p| p.slot(side).as_mut()) else { return };
        if !connection.opening {
            let outcome = connection.write();
            self.written(id, side, outcome);
        }
    }

    /// The same for many connections, with all threads that write.
    fn write_all(&mut self, tokens: BTreeSet<Token>) {
        let connections = tokens.into_iter().map(peer_of);
        if !self.writers.worth(connections.len()) {
            return connections.for_each(|(id, side)| self.write(id, side));
        }
        let lend = |(id, side): (PeerId, Side)| {
            let slot = self.peers.get_mut(&id)?.slot(side);
            let connection = slot.take_if(|c| !c.opening && !c.output.is_empty())?;
            Some(Loan::new(id, side, connection))
        };
        let loans = connections.filter_map(lend).collect();
        for Loan { peer: id, side, connection, written } in self.writers.write(loans) {
            if let Some(peer) = self.peers.get_mut(&id) {
                *peer.slot(side) = Some(connection);
            }
            self.written(id, side, written);
        }
    }

    /// Something was written, or could not be: tells the worker when too much is left or little enough.
    fn written(&mut self, id: PeerId, side: Side, outcome: Result<usize, String>) {
        let now = self.clock.now();
        let high = write_queue::high_water(self.groups.len());
        let Some(peer) = self.peers.get_mut(&id) else { return };
        let Some(connection) = peer.slot(side).as_mut() else { return };
        let written = match outcome {
            Ok(written) => written,
            // The reading side notices the failure too, and has read the bytes before it.
            Err(_) => {
                connection.output = Output::default();
                0
            }
        };
        let left = connection.output.len();
        let Some(up) = peer.up.as_mut().filter(|up| up.side == side) else { return };
        if left == 0 {
            peer.stalled = None;
        } else if written > 0 || peer.stalled.is_none() {
            peer.stalled = Some(now);
        }
        up.backlog.blocks += u64::from(left > 0);
        if let Some(blocked) = up.backlog.left(left, high, now) {
            let worker = up.worker;
            self.outbox.send_to_worker(worker, EgressIn::Backlog { peer: id, blocked });
        }
        if left > 0 && peer.deadline.is_none() {
            self.settle(id);
        }
    }

    /// Queues what workers packed, then writes to each peer once.
    fn take_writes(&mut self, writes: &Receiver<EgressOut>) {
        let (mut touched, mut bytes, now) = (BTreeSet::new(), 0, self.clock.now());
        while bytes < WRITES_AT_ONCE
            && let Some(message) = writes.try_recv()
        {
            let batch = match message {
                EgressOut::Writes(batch) => batch,
                EgressOut::Limit(exceeded) => {
                    self.take_sent_limit(exceeded);
                    continue;
                }
            };
            for write in &batch {
                let recorded = self.recorded_part(&write.chunk);
                for receiver in write.receivers() {
                    let Some(peer) = self.peers.get_mut(&receiver.peer) else { continue };
                    let Some(up) = &peer.up else { continue };
                    if up.info.session != receiver.session {
                        continue;
                    }
                    touched.insert(token_of(receiver.peer, up.side));
                    bytes += write.chunk.len();
                    if let Some(connection) = peer.connection() {
                        connection.output.push(write.chunk.clone());
                    }
                    peer.recorder.updates(now, &recorded);
                }
            }
        }
        self.write_all(touched);
    }

    fn close(&mut self, id: PeerId, side: Side) {
        let Some(connection) = self.peers.get_mut(&id).and_then(|p| p.slot(side).take()) else { return };
        // Closing the descriptor would do, were there not the reader's.
        let _ = self.poll.registry().deregister(&mut SourceFd(&connection.stream.as_raw_fd()));
        if !connection.opening {
            self.linger(connection.stream);
        }
    }

    fn report(&mut self, report: Report) {
        let Report { peer: id, session, what } = report;
        match what {
            What::Detached { shards } => return self.ids.shards_informed(id, session, shards),
            What::Watching { generation, shards } => return self.watching(generation, shards),
            What::Recorded(recorded) => return self.take_recorded(id, session, recorded),
            _ => {}
        }
        let Some(up) = self.peers.get_mut(&id).and_then(|p| p.up.as_mut()) else { return };
        if up.info.session != session {
            return;
        }
        let (side, worker) = (up.side, up.worker);
        match what {
            What::Message(kind, body) => self.event(id, Event::Message(side, kind, &body)),
            What::Fault(notification) => self.event(id, Event::Fault(side, notification)),
            What::Closed(why) => self.event(id, Event::Closed(side, why)),
            What::Limit(event) => self.take_limit(id, event),
            What::Refresh(family) => self.send_again(id, worker, family),
            What::BeginOfRefresh(family) => self.refresh_begins(id, family),
            What::EndOfRefresh(family) => self.refresh_ends(id, family),
            What::Ignored(message) => self.log_ignored(id, message),
            // Of a session that is over, and dealt with above.
            What::Detached { .. } | What::Watching { .. } | What::Recorded(_) => {}
            What::EndOfRib(family) => {
                up.initial_done = up.initial_done.with(family);
                self.refreshed(id, family);
                self.settle(id);
            }
        }
    }

    /// The process stops: every peer is told. `restarts`: forwarding goes on, so those that retain our routes do so.
    fn close_all(&mut self, restarts: bool) {
        let ids: Vec<PeerId> = self.peers.keys().copied().collect();
        for id in ids {
            let cease = Notification::cease(cease::ADMIN_SHUTDOWN);
            self.event(id, if restarts { Event::Restart(cease) } else { Event::Stop(cease) });
        }
        if !self.lingering.is_empty() {
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// What a message is that we wrote ourselves.
fn kind_of(message: &[u8]) -> Option<MessageType> {
    MessageType::from_u8(*message.get(HEADER_LEN - 1)?)
}

/// Whether a message that we wrote is a NOTIFICATION.
pub(super) fn is_notification(message: &[u8]) -> bool {
    kind_of(message) == Some(MessageType::Notification)
}

/// Whether an operator wants to hear of it.
fn is_news(action: &Action) -> bool {
    match action {
        Action::Up(..) | Action::Down(_) => true,
        Action::Send(_, message) => is_notification(message),
        Action::Connect | Action::Refuse(_) | Action::Close(_) => false,
    }
}

fn token_of(id: PeerId, side: Side) -> Token {
    Token(2 * id.0 as usize + usize::from(side == Side::Theirs))
}

fn peer_of(token: Token) -> (PeerId, Side) {
    let side = if token.0.is_multiple_of(2) { Side::Ours } else { Side::Theirs };
    (PeerId((token.0 / 2) as u32), side)
}
