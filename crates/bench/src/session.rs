//! A small BGP speaker for load: it sends as fast as the peer reads, and reads everything so that
//! the peer never blocks.
//!
//! It shares no code with the router's sessions, because a tool with the router's faults cannot
//! show them. One thread reads, one sends KEEPALIVEs, and the caller of [`Session::send`] writes.
//!
//! `blast`, `replay`, `sink` and the suite `kernel` use it. [`crate::negotiation`] has what it shares with the speaker
//! of the suite `bgp`.

use crate::error::{End, Error};
use crate::lock;
use crate::negotiation::{Negotiation, final_notification, keepalive};
use ribtide_prefix::{Afi, AfiSafi, ByFamily};
use ribtide_wire::bgp::capability::Capability;
use ribtide_wire::bgp::message::{self, Frame, MessageType, RefreshKind, RouteRefresh};
use ribtide_wire::bgp::notification::{Notification, cease};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

pub use crate::negotiation::{Peer, Speaker};

/// The time limit from the connection to the peer's first KEEPALIVE.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The time to wait, after a session broke, for the peer's NOTIFICATION.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(1);

/// A session that is up but not running: nothing is read until [`Opened::start`].
pub struct Opened {
    inbox: Inbox,
    negotiation: Negotiation,
    peer: Peer,
}

/// Brings a session up on a connection of either direction.
///
/// # Errors
/// The reason why the session did not come up.
pub fn open(stream: TcpStream, speaker: &Speaker) -> Result<Opened, Error> {
    let remote = stream.peer_addr().map_err(Error::System)?;
    handshake(stream, speaker).map_err(|end| Error::Session { peer: remote, end })
}

fn handshake(stream: TcpStream, speaker: &Speaker) -> Result<Opened, End> {
    let (remote, local) = (stream.peer_addr()?, stream.local_addr()?);
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(OPEN_TIMEOUT))?;
    let mut inbox = Inbox::new(stream);
    let more = [Capability::RouteRefresh, Capability::ExtendedMessage];
    inbox.stream.write_all(&speaker.open(&[Afi::Ipv4, Afi::Ipv6], &more))?;
    let mut negotiation = Negotiation::OpenSent { speaker: *speaker, remote, local };
    loop {
        let reply = negotiation.take(&inbox.next(message::MAX_LEN)?);
        if let Some(reply) = reply.inspect_err(|end| notify(&inbox.stream, end))? {
            inbox.stream.write_all(&reply)?;
        }
        if let Some(peer) = negotiation.established().copied() {
            return Ok(Opened { inbox, negotiation, peer });
        }
    }
}

impl Opened {
    /// The peer.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Starts the session. `on_update` gets the body of every UPDATE on the reading thread; its
    /// error ends the session with that NOTIFICATION.
    ///
    /// # Errors
    /// The system has no more threads.
    pub fn start(
        self,
        on_update: impl FnMut(&[u8]) -> Result<(), Notification> + Send + 'static,
    ) -> Result<Session, Error> {
        let Opened { inbox, negotiation, peer } = self;
        let start = || -> io::Result<Session> {
            let interval = peer.keepalive_interval();
            inbox.stream.set_read_timeout(interval.map(|_| peer.hold_time))?;
            let shared = Arc::new(Shared {
                writer: Mutex::new(inbox.stream.try_clone()?),
                end: Mutex::new(None),
                ended: Condvar::new(),
                closing: AtomicBool::new(false),
                refresh: ByFamily::default(),
                received: AtomicU64::new(0),
            });
            let stream = inbox.stream.try_clone()?;
            let mut session = Session { peer, shared: Arc::clone(&shared), stream, threads: Vec::new() };
            let reading = Arc::clone(&shared);
            let read = move || reading.read(inbox, negotiation, &peer, on_update);
            session.threads.push(std::thread::Builder::new().name("bench-read".into()).spawn(read)?);
            if let Some(interval) = interval {
                let keep = move || shared.keep_alive(interval);
                session.threads.push(std::thread::Builder::new().name("bench-keepalive".into()).spawn(keep)?);
            }
            Ok(session)
        };
        start().map_err(Error::System)
    }
}

/// A running session. Drop sends a Cease.
pub struct Session {
    peer: Peer,
    shared: Arc<Shared>,
    /// Closes the connection under its other users.
    stream: TcpStream,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    /// Whole messages only, so that a KEEPALIVE never lands inside another.
    writer: Mutex<TcpStream>,
    end: Mutex<Option<End>>,
    ended: Condvar,
    /// We close the session: later events are no failures.
    closing: AtomicBool,
    /// ROUTE-REFRESH requests of the peer, per family.
    refresh: ByFamily<AtomicBool>,
    /// UPDATEs received.
    received: AtomicU64,
}

impl Session {
    /// The peer.
    pub fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Sends whole messages; returns when the peer's window has taken them.
    ///
    /// # Errors
    /// The session ended; the reason is the peer's NOTIFICATION if it sent one.
    pub fn send(&self, messages: &[u8]) -> Result<(), Error> {
        if lock(&self.shared.writer).write_all(messages).is_ok() {
            return Ok(());
        }
        let end = self.wait_end(Some(NOTIFICATION_TIMEOUT)).unwrap_or(End::Broken(io::ErrorKind::BrokenPipe));
        Err(Error::Session { peer: self.peer.remote, end })
    }

    /// The number of received UPDATEs.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Relaxed)
    }

    /// Whether the peer requested a route refresh of the family (RFC 2918) since the last call.
    pub fn take_refresh(&self, afi: Afi) -> bool {
        self.shared.refresh[AfiSafi::unicast(afi)].swap(false, Relaxed)
    }

    /// The reason of the session's end, or `None` while it is up.
    pub fn end(&self) -> Option<End> {
        lock(&self.shared.end).clone()
    }

    /// The error of an ended session, for a caller that still needs it.
    ///
    /// # Errors
    /// The session ended.
    pub fn check(&self) -> Result<(), Error> {
        self.end().map_or(Ok(()), |end| Err(Error::Session { peer: self.peer.remote, end }))
    }

    /// Waits until the session ends, at most `time`; `None` when it is still up then.
    pub fn wait_end(&self, time: Option<Duration>) -> Option<End> {
        let end = lock(&self.shared.end);
        let up = |end: &mut Option<End>| end.is_none();
        let end = match time {
            None => self.shared.ended.wait_while(end, up).unwrap_or_else(PoisonError::into_inner),
            Some(time) => {
                self.shared.ended.wait_timeout_while(end, time, up).unwrap_or_else(PoisonError::into_inner).0
            }
        };
        end.clone()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.shared.closing.store(true, Relaxed);
        // The keepalive thread may be blocked by a peer that does not read: then nothing can be
        // sent.
        if self.end().is_none()
            && let Ok(mut writer) = self.shared.writer.try_lock()
        {
            let mut out = Vec::new();
            Notification::cease(cease::ADMIN_SHUTDOWN).write(&mut out);
            let _ = writer.set_write_timeout(Some(NOTIFICATION_TIMEOUT));
            let _ = writer.write_all(&out);
            // Only our direction: closing both would discard the NOTIFICATION when something is unread here.
            let _ = writer.shutdown(Shutdown::Write);
            drop(writer);
            self.wait_end(Some(NOTIFICATION_TIMEOUT));
        }
        let _ = self.stream.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn read(
        &self,
        mut inbox: Inbox,
        mut negotiation: Negotiation,
        peer: &Peer,
        mut on_update: impl FnMut(&[u8]) -> Result<(), Notification>,
    ) {
        let end = loop {
            let frame = match inbox.next(peer.max_len) {
                Ok(frame) => frame,
                Err(End::HoldTimer(_)) => break End::HoldTimer(peer.hold_time),
                Err(end) => break end,
            };
            let result = match frame.kind {
                MessageType::Update => {
                    self.received.fetch_add(1, Relaxed);
                    on_update(frame.body).map_err(End::Sent)
                }
                MessageType::RouteRefresh => self.note_refresh(frame.body).map_err(End::Sent),
                _ => negotiation.take(&frame).map(drop),
            };
            if let Err(end) = result {
                break end;
            }
        };
        if !self.closing.load(Relaxed) {
            notify(&inbox.stream, &end);
        }
        let _ = inbox.stream.shutdown(Shutdown::Both);
        *lock(&self.end) = Some(end);
        self.ended.notify_all();
    }

    fn note_refresh(&self, body: &[u8]) -> Result<(), Notification> {
        let refresh = RouteRefresh::parse(body)?;
        let requested = refresh.kind == RefreshKind::Request;
        if let Some(family) = refresh.family().filter(|_| requested) {
            self.refresh[family].store(true, Relaxed);
        }
        Ok(())
    }

    fn keep_alive(&self, every: Duration) {
        let message = keepalive();
        let mut end = lock(&self.end);
        while end.is_none() {
            let up = |end: &mut Option<End>| end.is_none();
            let (still, waited) =
                self.ended.wait_timeout_while(end, every, up).unwrap_or_else(PoisonError::into_inner);
            end = still;
            if waited.timed_out() {
                // Without the lock: a write may wait for the peer, and the reader must be able to say why.
                drop(end);
                let _ = lock(&self.writer).write_all(&message);
                end = lock(&self.end);
            }
        }
    }
}

/// Tells the peer why the session ends, where it does not know.
fn notify(mut stream: &TcpStream, end: &End) {
    if let Some(words) = final_notification(end) {
        let _ = stream.set_write_timeout(Some(NOTIFICATION_TIMEOUT));
        let _ = stream.write_all(&words);
    }
}

/// What was read and not yet looked at.
struct Inbox {
    stream: TcpStream,
    buf: Vec<u8>,
    unread: std::ops::Range<usize>,
}

impl Inbox {
    fn new(stream: TcpStream) -> Inbox {
        Inbox { stream, buf: vec![0; 1 << 18], unread: 0..0 }
    }

    /// The next message. [`End::HoldTimer`] when the stream's read timeout passes.
    fn next(&mut self, max_len: usize) -> Result<Frame<'_>, End> {
        let len = loop {
            if let Some(frame) = message::frame(&self.buf[self.unread.clone()], max_len).map_err(End::Sent)? {
                break frame.total_len;
            }
            // Room for the longest message is always left at the end.
            if self.buf.len() - self.unread.end < message::MAX_EXTENDED_LEN {
                self.buf.copy_within(self.unread.clone(), 0);
                self.unread = 0..self.unread.len();
            }
            match self.stream.read(&mut self.buf[self.unread.end..]) {
                Ok(0) => return Err(End::Closed),
                Ok(n) => self.unread.end += n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {
                    return Err(End::HoldTimer(OPEN_TIMEOUT));
                }
                Err(e) => return Err(End::Broken(e.kind())),
            }
        };
        let message = self.unread.start..self.unread.start + len;
        self.unread.start = message.end;
        // Cut a second time, and with success: a borrow cannot leave a loop that also changes the buffer.
        message::frame(&self.buf[message], max_len).map_err(End::Sent)?.ok_or(End::Closed)
    }
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Broken(error.kind())
    }
}

/// Connects, and brings the session up; tries again until `deadline` when the peer is not there yet.
///
/// # Errors
/// The last failure: the port refused, or the session did not come up.
pub fn connect(
    to: SocketAddr,
    from: Option<IpAddr>,
    speaker: &Speaker,
    deadline: Instant,
) -> Result<Opened, Error> {
    loop {
        let opened = dial(to, from)
            .map_err(|source| Error::Connect { to, from, source })
            .and_then(|stream| open(stream, speaker));
        match opened {
            Err(_) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(200)),
            done => return done,
        }
    }
}

fn dial(to: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None)?;
    if let Some(from) = from {
        socket.bind(&SocketAddr::new(from, 0).into())?;
    }
    socket.connect_timeout(&to.into(), OPEN_TIMEOUT)?;
    Ok(socket.into())
}
