//! The client of an FPM server, such as SONiC's `fpmsyncd`: routes as netlink messages over TCP.
//!
//! It has two threads. The writer takes batches and writes them. A server that does not read stops
//! the writer, and with it the queue and the RIB, so nothing accumulates and nothing is lost. The
//! reader always reads, so the server can always send replies; it also detects a dead host of the
//! server ([`liveness`]). After the connection ends, the dataplane is down. After the next connect
//! the RIB sends all routes again, and the client deletes routes that the server had and the replay
//! does not have.
//!
//! A batch is finished when its bytes are in the socket. A later reply about a route that the
//! hardware refused is reported as a failure of the route, until another reply reports success. A
//! reply counts only if it is about the last message of the route ([`sent_state`]): a late reply
//! about a replaced route confirms nothing. Servers need not reply, so nothing waits for replies,
//! except with FIB suppression: then a batch is finished when all of its routes have replies
//! ([`replies`]). The client sends whether BGP waits; a server of ribtide replies whether it
//! confirms routes in the chip, or at once ([`negotiated`]). It offers a comparison of what it has
//! with what was sent ([`compare`]).

mod compare;
mod encode;
pub mod machine;
mod negotiated;
mod replies;
mod sent_state;

use super::RibChannel;
use super::announcer::Style;
use super::install_results::InstallResults;
use super::repairs::RepairCounters;
use compare::{Comparison, ComparisonCounters, FromServer};
use encode::{Done, Encoder};
use negotiated::Negotiated;
pub use negotiated::When;
use replies::{Heard, Replies};
use ribtide_rib::{FibBatch, RibIn};
use ribtide_runtime::idle;
use ribtide_runtime::liveness::{self, Watched};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Closed};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_runtime::wait_fd::WaitFd;
use ribtide_runtime::wake_up::{self, WakeUp, Waker};
use ribtide_runtime::watchdog::PeerWait;
use ribtide_wire::fpm::compare::Compare;
use ribtide_wire::fpm::{FpmMessage, frame, write_start_of_replay};
use ribtide_wire::netlink::Content;
use sent_state::SentState;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pause between attempts to connect, as in other FPM clients.
pub const RETRY: Duration = Duration::from_secs(3);
/// Timeout of an attempt to connect.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// Interval of looks at routes without a reply, and at the end while a read or a write blocks.
const REPLY_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long the server may take to read the deletions of a stop.
const FAREWELL: Duration = Duration::from_secs(20);
/// The longest frame of the length field.
const LONGEST_FRAME: usize = 65_535;

/// The counters of a client. Clones share them.
#[derive(Clone, Debug)]
pub struct FpmHandle {
    /// The dataplane's name.
    pub name: String,
    /// The server.
    pub server: SocketAddr,
    counters: Arc<Counters>,
    next_hop_groups: Arc<AtomicBool>,
    /// The seconds of a round of the comparison; 0 for never.
    reconcile_seconds: Arc<AtomicU64>,
}

#[derive(Default, Debug)]
struct Counters {
    connected: AtomicBool,
    /// Whether the thread of the client has ended.
    ended: AtomicBool,
    connects: AtomicU64,
    failed_connects: AtomicU64,
    closes: AtomicU64,
    batches: AtomicU64,
    routes: AtomicU64,
    deletes: AtomicU64,
    bytes_sent: AtomicU64,
    bytes_read: AtomicU64,
    stalled_us: AtomicU64,
    offloaded: AtomicU64,
    offload_failed: AtomicU64,
    unmatched: AtomicU64,
    resent: AtomicU64,
    errors: AtomicU64,
    negotiated: Negotiated,
    comparison: Arc<ComparisonCounters>,
}

impl Counters {
    fn add(&self, done: Done) {
        self.routes.fetch_add(done.routes, Relaxed);
        self.deletes.fetch_add(done.deletes, Relaxed);
    }
}

/// A copy of the counters of a client.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FpmReading {
    /// Whether there is a connection now.
    pub connected: bool,
    /// Connections made.
    pub connects: u64,
    /// Attempts to connect that failed.
    pub failed_connects: u64,
    /// Connections that ended.
    pub closes: u64,
    /// Connections closed because of invalid bytes from the server.
    pub errors: u64,
    /// Batches of the RIB manager that were written.
    pub batches: u64,
    /// Routes sent, replacements included.
    pub routes: u64,
    /// Deletions sent.
    pub deletes: u64,
    /// Bytes written.
    pub bytes_sent: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Microseconds spent waiting for the server to read.
    pub stalled_us: u64,
    /// Replies that said a route is in hardware.
    pub offloaded: u64,
    /// Replies that said the hardware refused a route.
    pub offload_failed: u64,
    /// Replies that are not, or may not be, about the last message of a route; not in the two
    /// counts above.
    pub unmatched: u64,
    /// Routes sent again, because it was unclear which message a reply was about; also counted as
    /// routes.
    pub resent: u64,
    /// When the server confirms a route, if it has announced that.
    pub replies: Option<When>,
    /// Why that does not fit FIB suppression; a sentence without full stop.
    pub disagreement: Option<&'static str>,
    /// Whether the server's table is compared with what was sent: ribtide's server offers that.
    pub is_compared: bool,
    /// Differences of the comparison that were there again in the round after their repair.
    pub repair_failed: u64,
}

impl FpmReading {
    /// With FIB suppression, the server confirms routes before the chip has them.
    pub fn is_early(&self) -> bool {
        self.replies == Some(When::AtOnce) && self.disagreement.is_some()
    }
}

impl FpmHandle {
    /// Sets whether it sends next-hop objects; see [`start`]. Then it makes a new connection, and the server keeps its routes
    /// meanwhile. It does so when it is woken or has another batch.
    pub fn set_next_hop_groups(&self, on: bool) {
        self.next_hop_groups.store(on, Relaxed);
    }

    /// Sets in how many seconds the server's table is compared; 0 for never. It does so when it is woken
    /// or has another batch.
    pub fn set_reconcile_interval(&self, seconds: u64) {
        self.reconcile_seconds.store(seconds, Relaxed);
    }

    /// What the comparison of the server's table found and repaired.
    pub fn repairs(&self) -> &RepairCounters {
        &self.counters.comparison.repairs
    }

    /// Whether the client has ended, including the deletions of a stop.
    pub fn has_ended(&self) -> bool {
        self.counters.ended.load(Relaxed)
    }

    /// The present counters.
    pub fn read(&self) -> FpmReading {
        let c = &self.counters;
        FpmReading {
            connected: c.connected.load(Relaxed),
            connects: c.connects.load(Relaxed),
            failed_connects: c.failed_connects.load(Relaxed),
            closes: c.closes.load(Relaxed),
            errors: c.errors.load(Relaxed),
            batches: c.batches.load(Relaxed),
            routes: c.routes.load(Relaxed),
            deletes: c.deletes.load(Relaxed),
            bytes_sent: c.bytes_sent.load(Relaxed),
            bytes_read: c.bytes_read.load(Relaxed),
            stalled_us: c.stalled_us.load(Relaxed),
            offloaded: c.offloaded.load(Relaxed),
            offload_failed: c.offload_failed.load(Relaxed),
            unmatched: c.unmatched.load(Relaxed),
            resent: c.resent.load(Relaxed),
            replies: c.negotiated.replies(),
            disagreement: c.negotiated.disagreement(),
            is_compared: c.comparison.is_on.load(Relaxed),
            repair_failed: c.comparison.failed.load(Relaxed),
        }
    }
}

/// Starts a client of `server` as the dataplane `name`. `next_hop_groups`: send next-hop objects,
/// and routes that refer to them; otherwise each route carries its next hops, the default of SONiC.
/// `reconcile_seconds`: see [`FpmHandle::set_reconcile_interval`].
/// The server need not be up: the client tries every [`RETRY`].
///
/// # Errors
/// The thread cannot be created.
pub fn start(
    name: String,
    server: SocketAddr,
    next_hop_groups: bool,
    reconcile_seconds: u64,
    channel: RibChannel,
) -> io::Result<FpmHandle> {
    start_with_retry(name, server, next_hop_groups, reconcile_seconds, channel, RETRY)
}

fn start_with_retry(
    name: String,
    server: SocketAddr,
    next_hop_groups: bool,
    reconcile_seconds: u64,
    channel: RibChannel,
    retry: Duration,
) -> io::Result<FpmHandle> {
    let next_hop_groups = Arc::new(AtomicBool::new(next_hop_groups));
    let reconcile_seconds = Arc::new(AtomicU64::new(reconcile_seconds));
    let handle = FpmHandle {
        name: name.clone(),
        server,
        counters: Arc::default(),
        next_hop_groups: next_hop_groups.clone(),
        reconcile_seconds: reconcile_seconds.clone(),
    };
    let comparison = handle.counters.comparison.clone();
    let mut client = Client {
        server,
        channel,
        retry,
        counters: handle.counters.clone(),
        peer: PeerWait::new(format!("FPM server {server}")),
        encoder: Encoder::new(style(next_hop_groups.load(Relaxed)), Instant::now()),
        style: style(next_hop_groups.load(Relaxed)),
        next_hop_groups,
        comparison: Comparison::new(Some(server), Duration::ZERO, comparison, Instant::now()),
        reconcile_seconds,
    };
    // The queue closes when the process ends, and then the thread ends.
    thread::spawn(name, move || {
        let closed = loop {
            if let Err(closed) = client.session() {
                break closed;
            }
        };
        client.counters.ended.store(true, Relaxed);
        closed
    })?;
    Ok(handle)
}

fn style(next_hop_groups: bool) -> Style {
    if next_hop_groups { Style::Objects } else { Style::Inline }
}

struct Client {
    server: SocketAddr,
    channel: RibChannel,
    retry: Duration,
    counters: Arc<Counters>,
    encoder: Encoder,
    /// How the present connection refers to next hops.
    style: Style,
    /// Whether the next one does by objects.
    next_hop_groups: Arc<AtomicBool>,
    comparison: Comparison,
    reconcile_seconds: Arc<AtomicU64>,
    /// For the watchdog: it is not there, or does not read.
    peer: PeerWait,
}

impl Client {
    /// Connects when it is due, and serves the connection until its end.
    fn session(&mut self) -> Result<(), Closed> {
        self.channel.stop.running()?;
        let stream = match self.connect() {
            Ok(stream) => stream,
            Err(_) => {
                self.peer.begin();
                self.counters.failed_connects.fetch_add(1, Relaxed);
                return self.pause();
            }
        };
        self.style = style(self.next_hop_groups.load(Relaxed));
        self.encoder.set_style(self.style);
        let gone = Arc::new(AtomicBool::new(false));
        let replies = Replies::new(self.channel.id, Instant::now());
        let books = Arc::new(Mutex::new(replies));
        let (sent_state, from_server) = (self.encoder.sent_state(), Arc::default());
        let replies = ReplyReader { server: self.server, sent_state, books, from_server };
        self.comparison.reset();
        let (waker, wake_up) = wake_up::pair();
        if self.start_reader(&stream, &gone, &replies, waker).is_err() {
            return self.pause();
        }
        self.peer.end();
        self.counters.connects.fetch_add(1, Relaxed);
        self.counters.connected.store(true, Relaxed);
        self.channel.restart();
        self.channel.rib.feedback.send(RibIn::DataplaneUp(self.channel.id))?;
        let mut connection = Connection {
            stream,
            gone,
            wake_up,
            stop: self.channel.stop.clone(),
            until: None,
            counters: self.counters.clone(),
            peer: self.peer.clone(),
        };
        // First, because the replay may take time, and the server must not take that for its end.
        self.say_terms(&mut connection);
        let served = self.serve(&mut connection, &replies);
        if self.channel.stop.removes() {
            self.take_back(&connection);
        }
        connection.close();
        self.counters.negotiated.end();
        self.comparison.reset();
        self.counters.connected.store(false, Relaxed);
        self.counters.closes.fetch_add(1, Relaxed);
        served?;
        self.channel.rib.feedback.send(RibIn::DataplaneDown(self.channel.id))?;
        if self.is_restyled() {
            return Ok(());
        }
        self.pause()
    }

    /// Whether the next connection is to refer to next hops in another way.
    fn is_restyled(&self) -> bool {
        style(self.next_hop_groups.load(Relaxed)) != self.style
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.server, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(REPLY_POLL_INTERVAL))?;
        stream.set_read_timeout(Some(REPLY_POLL_INTERVAL))?;
        liveness::probe(&stream)?;
        Ok(stream)
    }

    fn start_reader(
        &self,
        stream: &TcpStream,
        gone: &Arc<AtomicBool>,
        replies: &ReplyReader,
        waker: Waker,
    ) -> io::Result<()> {
        let reader = Reader {
            wait: WaitFd::new(&self.channel.stop)?,
            waker,
            server: self.server,
            stream: stream.try_clone()?,
            gone: gone.clone(),
            stop: self.channel.stop.clone(),
            counters: self.counters.clone(),
            confirms: self.channel.rib.confirms.clone(),
            feedback: self.channel.rib.feedback.clone(),
            replies: replies.clone(),
        };
        thread::spawn("fpm-reader", move || reader.run()).map(drop)
    }

    /// Says to the server whether BGP waits for the chip.
    fn say_terms(&self, connection: &mut Connection) {
        let waits = self.channel.rib.confirms.load(Relaxed);
        let mut begins = Vec::new();
        write_start_of_replay(&mut begins, waits);
        connection.write(&mut begins);
        self.counters.negotiated.said(waits);
    }

    /// Writes batches until the connection ends.
    fn serve(&mut self, connection: &mut Connection, replies: &ReplyReader) -> Result<(), Closed> {
        let mut replayed = false;
        while !connection.gone() && !self.is_restyled() {
            let waits = replies.lock().waits();
            let nap = if waits { REPLY_POLL_INTERVAL } else { Duration::MAX };
            let nap = nap.min(self.comparison.next_due(Instant::now()));
            let batch = self.channel.next_or_wake(nap, &connection.wake_up)?;
            let begin = Instant::now();
            replies.sent_state.tick(begin);
            if self.channel.rib.confirms.load(Relaxed) != self.counters.negotiated.waits() {
                self.say_terms(connection);
            }
            self.counters.negotiated.look(self.server);
            self.resend(connection, replies, begin);
            self.compare(connection, replies, begin);
            let Some(batch) = batch else {
                let waits = self.channel.rib.confirms.load(Relaxed);
                replies.update(&self.channel.rib.feedback, |replies| {
                    if !waits {
                        replies.forgo();
                    }
                })?;
                if self.channel.was_idle() {
                    self.encoder.shrink_to_fit();
                    idle::purge();
                }
                continue;
            };
            replayed |= batch.start_of_replay;
            // Batches before the replay refer to state that this server does not have.
            let mut results = InstallResults::default();
            // Before the write, because a reply may be fast.
            replies.lock().sent(&batch, replayed && self.channel.rib.confirms.load(Relaxed), begin);
            if replayed {
                let done = self.encoder.handle(&batch, &mut results, &mut |out| connection.write(out));
                self.counters.add(done);
                self.comparison.sent(batch.start_of_replay, batch.end_of_replay, begin);
            }
            if connection.gone() {
                return Ok(());
            }
            self.counters.batches.fetch_add(1, Relaxed);
            self.channel.meter.add(batch.route_count(), begin);
            replies.update(&self.channel.rib.feedback, |replies| {
                replies.written(results.ack(self.channel.id, batch.seq).failed);
            })?;
        }
        Ok(())
    }

    /// Deletes all routes from the server at a stop, because SONiC's server keeps routes after a
    /// connection. Waits up to [`FAREWELL`] until the server has read the deletions.
    fn take_back(&mut self, connection: &Connection) {
        let Ok(stream) = connection.stream.try_clone() else { return };
        // The stop ends the reader and its users, so this needs flags of its own.
        let (gone, wake_up, stop) = (Arc::default(), WakeUp::never(), Stop::default());
        let until = Some(Instant::now() + FAREWELL);
        let (counters, peer) = (self.counters.clone(), self.peer.clone());
        let mut last = Connection { stream, gone, wake_up, stop, until, counters, peer };
        // An empty replay deletes everything.
        let nothing = FibBatch { start_of_replay: true, end_of_replay: true, ..FibBatch::default() };
        let done = self.encoder.handle(&nothing, &mut InstallResults::default(), &mut |out| last.write(out));
        self.counters.add(done);
        let (server, routes) = (self.server, done.deletes);
        if last.finish() {
            tracing::info!(target: target::FPM, %server, routes, "the routes are deleted from the FPM server");
        } else {
            let seconds = FAREWELL.as_secs();
            tracing::warn!(
                target: target::FPM,
                %server,
                routes,
                "the FPM server did not read all deletions of its routes within {seconds} s, and keeps some"
            );
        }
    }

    /// Sends routes again whose replies are unclear.
    fn resend(&mut self, connection: &mut Connection, replies: &ReplyReader, now: Instant) {
        let again = replies.lock().again(now);
        if again.is_empty() {
            return;
        }
        let mut results = InstallResults::default();
        let done = self.encoder.resend(&again, &mut results, &mut |out| connection.write(out));
        self.counters.add(done);
        self.counters.resent.fetch_add(done.routes, Relaxed);
        replies.lock().could_not(results.ack(self.channel.id, 0).failed);
    }

    /// Goes on with the comparison of the server's table.
    fn compare(&mut self, connection: &mut Connection, replies: &ReplyReader, now: Instant) {
        self.comparison.set_interval(Duration::from_secs(self.reconcile_seconds.load(Relaxed)), now);
        self.comparison.receive(&mut replies.lock_from_server());
        if !self.comparison.has_work(now) {
            return;
        }
        let begin = thread::cpu_time();
        let mut results = InstallResults::default();
        let done =
            self.comparison.step(now, &mut self.encoder, &mut results, &mut |out| connection.write(out));
        self.counters.add(done);
        replies.lock().could_not(results.ack(self.channel.id, 0).failed);
        self.comparison.rest(thread::cpu_time().saturating_sub(begin), Instant::now());
    }

    /// Waits before the next attempt. The dataplane is down, so queued batches are dropped.
    fn pause(&mut self) -> Result<(), Closed> {
        let until = Instant::now() + self.retry;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            self.channel.stop.running()?;
            self.channel.next(left)?;
        }
        Ok(())
    }
}

/// The state of replies, shared by both threads of a connection. The lock is held until its results
/// are sent, because order matters; the RIB manager always accepts them.
#[derive(Clone)]
struct ReplyReader {
    server: SocketAddr,
    books: Arc<Mutex<Replies>>,
    sent_state: SentState,
    from_server: Arc<Mutex<FromServer>>,
}

impl ReplyReader {
    fn lock(&self) -> MutexGuard<'_, Replies> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_from_server(&self) -> MutexGuard<'_, FromServer> {
        self.from_server.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies a change and sends its results to the RIB manager.
    fn update(&self, feedback: &ring::Sender<RibIn>, note: impl FnOnce(&mut Replies)) -> Result<(), Closed> {
        let mut replies = self.lock();
        note(&mut replies);
        let news = replies.news(Instant::now());
        if let Some(routes) = replies.given_up() {
            let (server, span) = (self.server, replies::SILENCE_TIMEOUT.as_secs());
            tracing::warn!(
                target: target::FPM,
                %server,
                routes,
                "the FPM server has confirmed none of these routes for {span} s, and until it does BGP advertises none of them: \
                 see whether its chip takes routes, and whether it replies"
            );
        }
        news.map_or(Ok(()), |ack| feedback.send(RibIn::Ack(ack)))
    }
}

/// The writing side of a connection.
struct Connection {
    stream: TcpStream,
    /// Set by the thread that detects the end first.
    gone: Arc<AtomicBool>,
    /// Wake-ups of the reader.
    wake_up: WakeUp,
    stop: Stop,
    /// The deadline of the connection.
    until: Option<Instant>,
    counters: Arc<Counters>,
    peer: PeerWait,
}

impl Connection {
    fn gone(&self) -> bool {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        late || self.gone.load(Relaxed) || self.stop.stopped()
    }

    /// Closes the sending direction and waits until the server has read everything and closes, too.
    /// A close with unread bytes would destroy them. Returns whether it succeeded.
    fn finish(&mut self) -> bool {
        if self.gone() || self.stream.shutdown(std::net::Shutdown::Write).is_err() {
            return false;
        }
        let mut unread = [0; 4096];
        while !self.gone() {
            match self.stream.read(&mut unread) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(e) if waits(&e) => {}
                // The server closed before it read everything, or its host is gone.
                Err(_) => return false,
            }
        }
        false
    }

    /// Writes and empties `out`, and waits while the server does not read.
    fn write(&mut self, out: &mut Vec<u8>) {
        let mut rest = &out[..];
        while !rest.is_empty() && !self.gone() {
            let begin = Instant::now();
            match self.stream.write(rest) {
                Ok(n) => {
                    self.counters.bytes_sent.fetch_add(n as u64, Relaxed);
                    rest = &rest[n..];
                    self.peer.end();
                }
                // The server does not read. There is no timeout: a new connection would cost the
                // server a replay.
                Err(e) if waits(&e) => self.peer.begin(),
                Err(_) => self.gone.store(true, Relaxed),
            }
            let waited = begin.elapsed();
            if waited > Duration::from_millis(1) {
                self.counters.stalled_us.fetch_add(waited.as_micros() as u64, Relaxed);
            }
        }
        out.clear();
    }

    fn close(&self) {
        self.gone.store(true, Relaxed);
        // The other side may have closed it already.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The reading side of a connection: offload replies.
struct Reader {
    server: SocketAddr,
    stream: TcpStream,
    wait: WaitFd,
    /// Wakes the writer.
    waker: Waker,
    gone: Arc<AtomicBool>,
    stop: Stop,
    counters: Arc<Counters>,
    confirms: Arc<AtomicBool>,
    feedback: ring::Sender<RibIn>,
    replies: ReplyReader,
}

impl Reader {
    /// Reads until the connection ends, which the writer then sees.
    fn run(self) -> Ended {
        let mut buf = idle::long_lived_buffer(4 * LONGEST_FRAME);
        let mut filled = 0;
        while !self.gone.load(Relaxed) && !self.stop.stopped() {
            let negotiated = self.counters.negotiated.replies();
            let mut stream = Watched(&self.stream);
            let read = match self.wait.wait(&stream, liveness::CHECK_INTERVAL) {
                Ok(true) => stream.read(&mut buf[filled..]),
                Ok(false) => stream.check().and(Err(io::ErrorKind::WouldBlock.into())),
                Err(e) => Err(e),
            };
            match read {
                Ok(0) => break,
                Ok(n) => {
                    self.counters.bytes_read.fetch_add(n as u64, Relaxed);
                    filled += n;
                }
                Err(e) if waits(&e) => {}
                Err(e) => {
                    tracing::warn!(
                        target: target::FPM,
                        server = %self.server,
                        error = %e,
                        "the connection to the FPM server ended"
                    );
                    break;
                }
            }
            let (mut used, replies, mut is_compared) = (0, self.replies.clone(), false);
            let mut books = replies.lock();
            loop {
                match frame(&buf[used..filled]) {
                    Ok(Some(frame)) => {
                        for message in frame.raw().flatten() {
                            if let Ok(Some(message)) = Compare::decode(&message) {
                                self.replies.lock_from_server().note(message);
                                is_compared = true;
                            } else if let Ok(content) = Content::decode(&message) {
                                self.take(&content, &mut books);
                            }
                        }
                        used += frame.len;
                    }
                    Ok(None) => break,
                    Err(e) => {
                        self.counters.errors.fetch_add(1, Relaxed);
                        tracing::error!(
                            target: target::FPM,
                            server = %self.server,
                            error = %e,
                            "the FPM server sent a malformed frame; closing the connection"
                        );
                        self.gone.store(true, Relaxed);
                        break;
                    }
                }
            }
            buf.copy_within(used..filled, 0);
            filled -= used;
            drop(books);
            let waits = self.confirms.load(Relaxed);
            let updated = self.replies.update(&self.feedback, |replies| {
                if !waits {
                    replies.forgo();
                }
            });
            if updated.is_err() {
                break;
            }
            // The writer sends routes with an unclear reply again, compares, and logs a disagreement.
            let is_renegotiated = self.counters.negotiated.replies() != negotiated;
            if is_compared || is_renegotiated || self.replies.lock().has_doubts() {
                self.waker.wake();
            }
        }
        self.gone.store(true, Relaxed);
        self.waker.wake();
        Ended::done()
    }

    fn take(&self, message: &FpmMessage<'_>, replies: &mut Replies) {
        let reply = match message {
            FpmMessage::NewRoute(reply) => reply,
            FpmMessage::Multipart { ack } => return self.counters.negotiated.heard(*ack),
            _ => return,
        };
        let count = match replies.heard(reply, &self.replies.sent_state, Instant::now()) {
            Heard::Nothing => return,
            Heard::Offloaded => &self.counters.offloaded,
            Heard::Refused => &self.counters.offload_failed,
            Heard::Unmatched => &self.counters.unmatched,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// Whether the call reached its timeout. (`TimedOut` means that TCP gave up the connection.)
fn waits(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
