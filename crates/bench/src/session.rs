//! A small BGP speaker for load: it sends as fast as the peer reads, and reads everything so that
//! the peer never blocks.
//!
//! It shares no code with the router's sessions, because a tool with the router's faults cannot
//! show them. One thread reads, one sends KEEPALIVEs, and the caller of [`Session::send`] writes.
//!
//! `blast`, `replay`, `sink` and the suite `kernel` use this speaker: a blocking session with two
//! threads, both families, route refresh and extended messages. The suite `bgp` has a second
//! speaker in `bgp::load`, for hundreds of neighbours on a few threads. Its sockets never block; it
//! notes arrival times and parses after the measurement. Both share the negotiation (`agree`) and
//! the end of a session (`final_notification`).

use crate::error::{End, Error};
use ribtide_prefix::{Afi, Safi};
use ribtide_wire::bgp::capability::Capability;
use ribtide_wire::bgp::message::{self, Frame, MessageType, RefreshKind, RouteRefresh};
use ribtide_wire::bgp::notification::{self, Notification, cease, code, fsm};
use ribtide_wire::bgp::open::{Open, OpenBuilder};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Our side of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speaker {
    /// Our AS number.
    pub asn: u32,
    /// Our BGP identifier.
    pub router_id: Ipv4Addr,
    /// The hold time that we propose, in seconds: 0 or at least 3.
    pub hold_time: u16,
}

/// The peer and the negotiated values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Peer {
    /// Its address and port.
    pub remote: SocketAddr,
    /// Our own address on the connection.
    pub local: SocketAddr,
    /// Its AS number.
    pub asn: u32,
    /// Its BGP identifier.
    pub router_id: Ipv4Addr,
    /// The negotiated hold time; zero means that neither side runs the timer.
    pub hold_time: Duration,
    /// The longest message, in bytes.
    pub max_len: usize,
    /// It accepts IPv4 unicast routes.
    pub ipv4: bool,
    /// It accepts IPv6 unicast routes.
    pub ipv6: bool,
    /// It has our AS number.
    pub internal: bool,
}

impl Peer {
    /// Whether unicast routes of the family may be sent.
    pub fn takes(&self, afi: Afi) -> bool {
        match afi {
            Afi::Ipv4 => self.ipv4,
            Afi::Ipv6 => self.ipv6,
        }
    }
}

/// The time limit from the connection to the peer's first KEEPALIVE.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// The time to wait, after a session broke, for the peer's NOTIFICATION.
const NOTIFICATION_TIMEOUT: Duration = Duration::from_secs(1);

/// A session that is up but not running: nothing is read until [`Opened::start`].
pub struct Opened {
    inbox: Inbox,
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
    let mut out = Vec::new();
    let multiprotocol = |afi: Afi| Capability::Multiprotocol { afi: afi as u16, safi: Safi::Unicast as u8 };
    let capabilities = [
        multiprotocol(Afi::Ipv4),
        multiprotocol(Afi::Ipv6),
        Capability::RouteRefresh,
        Capability::ExtendedMessage,
        Capability::FourOctetAs(speaker.asn),
    ];
    let Speaker { asn, router_id, hold_time } = *speaker;
    OpenBuilder { asn, hold_time, router_id, capabilities: &capabilities }.write(&mut out);
    inbox.stream.write_all(&out)?;

    let frame = inbox.next(message::MAX_LEN)?;
    let peer = match frame.kind {
        MessageType::Open => agree(&frame, speaker, remote, local),
        MessageType::Notification => return Err(End::Received(Notification::parse(frame.body))),
        _ => Err(End::Sent(Notification::new(code::FSM, fsm::UNEXPECTED_IN_OPEN_SENT))),
    };
    let peer = peer.inspect_err(|end| notify(&inbox.stream, end))?;

    out.clear();
    message::write_keepalive(&mut out);
    inbox.stream.write_all(&out)?;
    let frame = inbox.next(message::MAX_LEN)?;
    match frame.kind {
        MessageType::Keepalive => {}
        MessageType::Notification => return Err(End::Received(Notification::parse(frame.body))),
        _ => {
            let end = End::Sent(Notification::new(code::FSM, fsm::UNEXPECTED_IN_OPEN_CONFIRM));
            notify(&inbox.stream, &end);
            return Err(end);
        }
    }
    Ok(Opened { inbox, peer })
}

/// The negotiated values of both OPENs.
pub(crate) fn agree(
    frame: &Frame<'_>,
    speaker: &Speaker,
    remote: SocketAddr,
    local: SocketAddr,
) -> Result<Peer, End> {
    let open = Open::parse(frame.body).map_err(End::Sent)?;
    let has = |wanted: Capability<'_>| open.capabilities().any(|c| c == wanted);
    let family = |afi: Afi| has(Capability::Multiprotocol { afi: afi as u16, safi: Safi::Unicast as u8 });
    let any_family = open.capabilities().any(|c| matches!(c, Capability::Multiprotocol { .. }));
    if !open.capabilities().any(|c| matches!(c, Capability::FourOctetAs(_))) {
        return Err(End::Peer("it does not offer four-octet AS numbers, which this tool needs".into()));
    }
    if open.router_id == speaker.router_id {
        return Err(End::Sent(Notification::new(code::OPEN, notification::open::BAD_IDENTIFIER)));
    }
    Ok(Peer {
        remote,
        local,
        asn: open.asn(),
        router_id: open.router_id,
        hold_time: Duration::from_secs(u64::from(open.hold_time.min(speaker.hold_time))),
        max_len: if has(Capability::ExtendedMessage) { message::MAX_EXTENDED_LEN } else { message::MAX_LEN },
        // RFC 4760 section 8: a speaker without the capability speaks IPv4 unicast.
        ipv4: family(Afi::Ipv4) || !any_family,
        ipv6: family(Afi::Ipv6),
        internal: open.asn() == speaker.asn,
    })
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
        let Opened { inbox, peer } = self;
        let start = || -> io::Result<Session> {
            let hold = peer.hold_time;
            inbox.stream.set_read_timeout((!hold.is_zero()).then_some(hold))?;
            let shared = Arc::new(Shared {
                writer: Mutex::new(inbox.stream.try_clone()?),
                end: Mutex::new(None),
                ended: Condvar::new(),
                closing: AtomicBool::new(false),
                refresh: [AtomicBool::new(false), AtomicBool::new(false)],
                received: AtomicU64::new(0),
            });
            let stream = inbox.stream.try_clone()?;
            let mut session = Session { peer, shared: Arc::clone(&shared), stream, threads: Vec::new() };
            let reading = Arc::clone(&shared);
            let read = move || reading.read(inbox, &peer, on_update);
            session.threads.push(std::thread::Builder::new().name("bench-read".into()).spawn(read)?);
            if !hold.is_zero() {
                let keep = move || shared.keep_alive(hold / 3);
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
    refresh: [AtomicBool; 2],
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
        self.shared.refresh[afi as usize - 1].swap(false, Relaxed)
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
                    on_update(frame.body)
                }
                MessageType::Keepalive => Ok(()),
                MessageType::RouteRefresh => self.note_refresh(frame.body),
                MessageType::Notification => break End::Received(Notification::parse(frame.body)),
                MessageType::Open => Err(Notification::new(code::FSM, fsm::UNEXPECTED_IN_ESTABLISHED)),
            };
            if let Err(notification) = result {
                break End::Sent(notification);
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
        let asked = refresh.kind == RefreshKind::Request && refresh.safi == Safi::Unicast as u8;
        if let Some(afi) = Afi::from_u16(refresh.afi).filter(|_| asked) {
            self.refresh[afi as usize - 1].store(true, Relaxed);
        }
        Ok(())
    }

    fn keep_alive(&self, every: Duration) {
        let mut message = Vec::new();
        message::write_keepalive(&mut message);
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

/// The NOTIFICATION that tells the peer why the session ends; `None` where it knows.
pub(crate) fn final_notification(end: &End) -> Option<Vec<u8>> {
    let notification = match end {
        End::Sent(notification) => notification.clone(),
        End::HoldTimer(_) => Notification::new(code::HOLD_TIMER_EXPIRED, 0),
        End::Peer(_) => Notification::new(code::OPEN, notification::open::UNSUPPORTED_CAPABILITY),
        End::Received(_) | End::Closed | End::Broken(_) => return None,
    };
    let mut out = Vec::new();
    notification.write(&mut out);
    Some(out)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // A thread that panicked left nothing half done behind: the guarded values are replaced whole.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
