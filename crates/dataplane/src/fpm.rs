//! A client of an FPM server, such as SONiC's `fpmsyncd`: the RIB's routes as netlink messages over TCP.
//!
//! Two threads. The writer takes batches and writes them; a server that does not read stops it, and with it the
//! ring and the RIB, so nothing piles up and nothing is lost. The reader always reads, so the server can always
//! write its offload replies, and finds out when the server's host is gone ([`liveness`]). When the connection goes, the
//! RIB is told, and after the next connect it sends all of its routes again; what the server was told before and is gone
//! meanwhile is then deleted from it.
//!
//! A batch counts as done when its bytes are with the operating system. A reply that the hardware refused a route
//! comes later and is reported as that route's failure, until another one says that it took it. A reply counts only when
//! it is about the route as it was told last ([`sent_state`]): the late one about a route that was replaced confirms nothing. Servers are
//! not required to reply, so nothing waits for it, unless BGP is to wait for dataplanes: then a batch is done when its
//! routes are answered ([`replies`]). Whether BGP waits is said to the server, and one of ribtide's says whether it replies when the
//! chip has a route or at once ([`negotiated`]).

mod encode;
mod negotiated;
mod replies;
mod sent_state;

use super::RibChannel;
use super::announce::Style;
use super::install_results::InstallResults;
use encode::{Done, Encoder};
use negotiated::Negotiated;
pub use negotiated::When;
use replies::Replies;
use ribtide_rib::{FibBatch, RibIn};
use ribtide_runtime::idle;
use ribtide_runtime::liveness::{self, Watched};
use ribtide_runtime::log::target;
use ribtide_runtime::ring::{self, Closed};
use ribtide_runtime::thread::{self, Stop};
use ribtide_wire::fpm::{FpmMessage, frame, write_start_of_replay};
use sent_state::{Meaning, SentState};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Pause between two attempts to connect, as other FPM clients have it.
pub const RETRY: Duration = Duration::from_secs(3);
/// How long one attempt to connect may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);
/// How often a waiting thread looks whether it shall stop.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);
/// How long the server may take to read the deletions, when a stop takes back what it was told.
const FAREWELL: Duration = Duration::from_secs(20);
/// The longest frame: what the length field can say.
const LONGEST_FRAME: usize = 65_535;

/// What a client has done since the start. Clones look at the same client.
#[derive(Clone, Debug)]
pub struct FpmHandle {
    /// The dataplane's name.
    pub name: String,
    /// The server.
    pub server: SocketAddr,
    counters: Arc<Counters>,
}

#[derive(Default, Debug)]
struct Counters {
    connected: AtomicBool,
    /// The client's thread is over.
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
    asked_again: AtomicU64,
    errors: AtomicU64,
    negotiated: Negotiated,
}

impl Counters {
    fn add(&self, done: Done) {
        self.routes.fetch_add(done.routes, Relaxed);
        self.deletes.fetch_add(done.deletes, Relaxed);
    }
}

/// A moment's counts of a client.
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
    /// Of those, how many for what the server sent: bytes that are no FPM.
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
    /// Replies of either kind that are not about a route as it was told last, or may not be; not among the two above.
    pub unmatched: u64,
    /// Routes told once more, because it was unsure which change a reply was about; among the routes too.
    pub asked_again: u64,
    /// When the server replies, where it says so.
    pub replies: Option<When>,
    /// What is wrong with that, for who waits or does not; a sentence without an end.
    pub disagreement: Option<&'static str>,
}

impl FpmReading {
    /// BGP waits for the chip, and the server confirms routes before the chip has them.
    pub fn is_early(&self) -> bool {
        self.replies == Some(When::AtOnce) && self.disagreement.is_some()
    }
}

impl FpmHandle {
    /// Whether the client has ended: of a stop that takes back what was told, whether that is over.
    pub fn has_ended(&self) -> bool {
        self.counters.ended.load(Relaxed)
    }

    /// The counts now.
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
            asked_again: c.asked_again.load(Relaxed),
            replies: c.negotiated.replies(),
            disagreement: c.negotiated.disagreement(),
        }
    }
}

/// Starts a client of `server`, under the dataplane's `name`. `next_hop_groups`: send next-hop objects and routes
/// that name them; otherwise next hops are written into each route, as SONiC's default is. The server need not be
/// there yet: it is tried every [`RETRY`].
///
/// # Errors
/// When the system gives no thread.
pub fn start(
    name: String,
    server: SocketAddr,
    next_hop_groups: bool,
    channel: RibChannel,
) -> io::Result<FpmHandle> {
    start_with_retry(name, server, next_hop_groups, channel, RETRY)
}

fn start_with_retry(
    name: String,
    server: SocketAddr,
    next_hop_groups: bool,
    channel: RibChannel,
    retry: Duration,
) -> io::Result<FpmHandle> {
    let handle = FpmHandle { name: name.clone(), server, counters: Arc::default() };
    let mut client = Client {
        server,
        channel,
        retry,
        counters: handle.counters.clone(),
        encoder: Encoder::new(if next_hop_groups { Style::Objects } else { Style::Inline }),
    };
    // The other end of a ring is gone when the process ends: then so does the thread.
    thread::spawn(name, move || {
        while client.session().is_ok() {}
        client.counters.ended.store(true, Relaxed);
    })?;
    Ok(handle)
}

struct Client {
    server: SocketAddr,
    channel: RibChannel,
    retry: Duration,
    counters: Arc<Counters>,
    encoder: Encoder,
}

impl Client {
    /// Connects, when the time has come, and serves the connection to its end.
    fn session(&mut self) -> Result<(), Closed> {
        if self.channel.stop.stopped() {
            return Err(Closed);
        }
        let stream = match self.connect() {
            Ok(stream) => stream,
            Err(_) => {
                self.counters.failed_connects.fetch_add(1, Relaxed);
                return self.pause();
            }
        };
        let gone = Arc::new(AtomicBool::new(false));
        let replies = Replies::new(self.channel.id, Instant::now());
        let books = Arc::new(Mutex::new(replies));
        let replies = Answers { server: self.server, told: self.encoder.told(), books };
        if self.start_reader(&stream, &gone, &replies).is_err() {
            return self.pause();
        }
        self.counters.connects.fetch_add(1, Relaxed);
        self.counters.connected.store(true, Relaxed);
        self.channel.restart();
        self.channel.rib.feedback.send(RibIn::DataplaneUp(self.channel.id))?;
        let mut connection = Connection {
            stream,
            gone,
            stop: self.channel.stop.clone(),
            until: None,
            counters: self.counters.clone(),
        };
        // First of all: the replay may be long in coming, and the server must not take that for its end.
        self.say_terms(&mut connection);
        let served = self.serve(&mut connection, &replies);
        if self.channel.stop.removes() {
            self.take_back(&connection);
        }
        connection.close();
        self.counters.negotiated.end();
        self.counters.connected.store(false, Relaxed);
        self.counters.closes.fetch_add(1, Relaxed);
        served?;
        self.channel.rib.feedback.send(RibIn::DataplaneDown(self.channel.id))?;
        self.pause()
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let stream = TcpStream::connect_timeout(&self.server, CONNECT_TIMEOUT)?;
        stream.set_nodelay(true)?;
        stream.set_write_timeout(Some(STOP_POLL_INTERVAL))?;
        stream.set_read_timeout(Some(STOP_POLL_INTERVAL))?;
        liveness::probe(&stream)?;
        Ok(stream)
    }

    fn start_reader(&self, stream: &TcpStream, gone: &Arc<AtomicBool>, replies: &Answers) -> io::Result<()> {
        let reader = Reader {
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

    /// Writes batches until the connection is gone.
    fn serve(&mut self, connection: &mut Connection, replies: &Answers) -> Result<(), Closed> {
        let mut replayed = false;
        while !connection.gone() {
            let batch = self.channel.next(STOP_POLL_INTERVAL)?;
            let begin = Instant::now();
            replies.told.tick(begin);
            if self.channel.rib.confirms.load(Relaxed) != self.counters.negotiated.waits() {
                self.say_terms(connection);
            }
            self.counters.negotiated.look(self.server);
            self.ask_again(connection, replies, begin);
            let Some(batch) = batch else {
                if self.channel.was_idle() {
                    self.encoder.shrink_to_fit();
                    idle::purge();
                }
                continue;
            };
            replayed |= batch.start_of_replay;
            // What comes before the replay builds on what this server was never told.
            let mut results = InstallResults::default();
            // Before it is written: the answer may be fast.
            replies.lock().asked(&batch, replayed && self.channel.rib.confirms.load(Relaxed), begin);
            if replayed {
                let done = self.encoder.handle(&batch, &mut results, &mut |out| connection.write(out));
                self.counters.add(done);
            }
            if connection.gone() {
                return Ok(());
            }
            self.counters.batches.fetch_add(1, Relaxed);
            self.channel.meter.add(batch.route_count(), begin);
            replies.tell(&self.channel.rib.feedback, |replies| {
                replies.written(results.ack(self.channel.id, batch.seq).failed);
            })?;
        }
        Ok(())
    }

    /// Deletes from the server all that it was told: the end of a connection alone says nothing about routes, and SONiC's
    /// server keeps them. Waits until it has read that, [`FAREWELL`] at most.
    fn take_back(&mut self, connection: &Connection) {
        let Ok(stream) = connection.stream.try_clone() else { return };
        // The reader ends with the stop, and so would what looks at it.
        let (gone, stop) = (Arc::default(), Stop::default());
        let until = Some(Instant::now() + FAREWELL);
        let mut last = Connection { stream, gone, stop, until, counters: self.counters.clone() };
        // A replay of nothing deletes what it does not name.
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

    /// Tells routes once more of which it is unsure what the server said.
    fn ask_again(&mut self, connection: &mut Connection, replies: &Answers, now: Instant) {
        let again = replies.lock().again(now);
        if again.is_empty() {
            return;
        }
        let mut results = InstallResults::default();
        let done = self.encoder.ask_again(&again, &mut results, &mut |out| connection.write(out));
        self.counters.add(done);
        self.counters.asked_again.fetch_add(done.routes, Relaxed);
        replies.lock().could_not(results.ack(self.channel.id, 0).failed);
    }

    /// Waits before the next attempt. What was under way to this dataplane is dropped: it is down.
    fn pause(&mut self) -> Result<(), Closed> {
        let until = Instant::now() + self.retry;
        while let Some(left) = until.checked_duration_since(Instant::now()) {
            if self.channel.stop.stopped() {
                return Err(Closed);
            }
            self.channel.next(left.min(STOP_POLL_INTERVAL))?;
        }
        Ok(())
    }
}

/// The books that both sides of a connection keep. What they say is told in their order, so they are held until it is: the
/// RIB manager always takes it.
#[derive(Clone)]
struct Answers {
    server: SocketAddr,
    books: Arc<Mutex<Replies>>,
    told: SentState,
}

impl Answers {
    fn lock(&self) -> MutexGuard<'_, Replies> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes something, and tells the RIB manager what came of it.
    fn tell(&self, feedback: &ring::Sender<RibIn>, note: impl FnOnce(&mut Replies)) -> Result<(), Closed> {
        let mut replies = self.lock();
        note(&mut replies);
        let news = replies.news(Instant::now());
        if let Some(routes) = replies.in_vain() {
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
    /// Set by whichever side finds out first.
    gone: Arc<AtomicBool>,
    stop: Stop,
    /// It is given up then.
    until: Option<Instant>,
    counters: Arc<Counters>,
}

impl Connection {
    fn gone(&self) -> bool {
        let late = self.until.is_some_and(|until| Instant::now() >= until);
        late || self.gone.load(Relaxed) || self.stop.stopped()
    }

    /// Says that nothing more comes, and waits until the server has read everything and closes its side too. To close with
    /// something unread would destroy what it has not read. Whether it has.
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
                // It closed without reading what was said, or its host is gone.
                Err(_) => return false,
            }
        }
        false
    }

    /// Writes all of `out` and empties it, waiting as long as the server does not read.
    fn write(&mut self, out: &mut Vec<u8>) {
        let mut rest = &out[..];
        while !rest.is_empty() && !self.gone() {
            let begin = Instant::now();
            match self.stream.write(rest) {
                Ok(n) => {
                    self.counters.bytes_sent.fetch_add(n as u64, Relaxed);
                    rest = &rest[n..];
                }
                // The server does not read. Its connection is closed by its end or ours, never by impatience:
                // a new one would cost it everything again.
                Err(e) if waits(&e) => {}
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
        // Already closed by the other side is as good.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}

/// The reading side of a connection: offload replies.
struct Reader {
    server: SocketAddr,
    stream: TcpStream,
    gone: Arc<AtomicBool>,
    stop: Stop,
    counters: Arc<Counters>,
    confirms: Arc<AtomicBool>,
    feedback: ring::Sender<RibIn>,
    replies: Answers,
}

impl Reader {
    fn run(self) {
        let mut buf = idle::long_lived_buffer(4 * LONGEST_FRAME);
        let mut filled = 0;
        while !self.gone.load(Relaxed) && !self.stop.stopped() {
            match Watched(&self.stream).read(&mut buf[filled..]) {
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
            let (mut used, replies) = (0, self.replies.clone());
            let mut books = replies.lock();
            loop {
                match frame(&buf[used..filled]) {
                    Ok(Some(frame)) => {
                        frame.messages().flatten().for_each(|message| self.take(&message, &mut books));
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
            let told = self.replies.tell(&self.feedback, |replies| {
                if !waits {
                    replies.forgo();
                }
            });
            if told.is_err() {
                break;
            }
        }
        self.gone.store(true, Relaxed);
    }

    fn take(&self, message: &FpmMessage<'_>, replies: &mut Replies) {
        let reply = match message {
            FpmMessage::NewRoute(reply) => reply,
            FpmMessage::Multipart { ack } => return self.counters.negotiated.heard(*ack),
            _ => return,
        };
        if !reply.offload_failed() && !reply.offloaded() {
            return;
        }
        let now = Instant::now();
        let refused = reply.offload_failed().then(|| match reply.why {
            Some(why) => format!("the FPM server says: {why}"),
            None => "the FPM server reports that the hardware refused it".into(),
        });
        let count = match self.replies.told.reply(reply) {
            Meaning::Now(route) => {
                replies.replied(route, refused.as_deref(), now);
                if refused.is_some() { &self.counters.offload_failed } else { &self.counters.offloaded }
            }
            Meaning::Unsure(route) => {
                replies.unsure(route, refused.as_deref(), now);
                &self.counters.unmatched
            }
            Meaning::Nothing => &self.counters.unmatched,
        };
        count.fetch_add(1, Relaxed);
    }
}

/// Whether the call only ran out of its time. (`TimedOut` is TCP's: it has given the connection up.)
fn waits(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

#[cfg(test)]
mod tests;
