//! The connecting end of a ZeroMQ connection with acknowledgements between ribtide ends: it
//! reconnects for ever, and takes a message only when it has room.
//!
//! The fate of messages in flight on a broken connection is unknown: its owner sends everything
//! again on the next one.

use super::endpoint::Endpoint;
use super::zmtp::{Kind, Peer, Process, Writer, handshake, next_socket};
use crate::TableError;
use crossbeam_channel::select;
use ribtide_runtime::idle;
use ribtide_runtime::log::target;
use ribtide_runtime::oneshot;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Ended, Stop};
use ribtide_runtime::wake_up::{self, WakeUp, Waker};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Messages in flight or unacknowledged, at most.
pub const WINDOW: u64 = 64;
/// SONiC's limit of a message.
pub(super) const LIMIT: usize = 16 << 20;
/// The shortest and longest pause between connection attempts.
pub(super) const CONNECT_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// The timeout of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// The content and threads of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PushSettings {
    /// The content, for the log and the ring's name.
    pub(super) what: &'static str,
    /// The name of the thread that connects and sends.
    pub(super) send_thread: &'static str,
    /// The name of the thread that receives acknowledgements.
    pub(super) ack_thread: &'static str,
    /// The longest pause between connection attempts.
    pub(super) backoff_max: Duration,
}

/// The owner's view of one connection.
#[derive(Debug)]
struct Link {
    messages: ring::Sender<Vec<u8>>,
    /// Acknowledged messages; `None` when the other side does not acknowledge.
    taken: Option<Arc<AtomicU64>>,
    sent: u64,
    /// The other side's process, when it is ribtide's.
    ours: Option<Process>,
    /// Held by the sending thread while the connection is open.
    open: Weak<()>,
}

/// The connecting end.
#[derive(Debug)]
pub struct Push {
    links: ring::Receiver<Link>,
    link: Option<Link>,
    wake_up: WakeUp,
}

impl Push {
    /// Connects to `endpoint`, and again after each loss, until `stop`.
    pub(super) fn connect(
        endpoint: Endpoint,
        settings: PushSettings,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<Push, TableError> {
        let (waker, wake_up) = wake_up::pair();
        let (connected, links) = ring::unlisted("new connections", 1);
        let (rings, stop, text) = (rings.clone(), stop.clone(), endpoint.to_string());
        let what = settings.what;
        let body = move || {
            let socket = next_socket();
            let mut pause = CONNECT_BACKOFF.0;
            let mut reported = false;
            while !stop.stopped() {
                match connect(&endpoint, Kind::Push, LIMIT, socket) {
                    Ok(peer) => {
                        let acknowledged = peer.ours.is_some();
                        tracing::info!(target: target::ZMQ, channel = what, %endpoint, acknowledged, "the endpoint takes messages");
                        (pause, reported) = (CONNECT_BACKOFF.0, false);
                        let why = push(peer, settings, &rings, &connected, &waker);
                        // Callers that wait for room must check again.
                        waker.wake();
                        tracing::warn!(target: target::ZMQ, channel = what, %endpoint, reason = %why, "messages no longer reach the endpoint");
                    }
                    Err(e) if !std::mem::replace(&mut reported, true) => {
                        tracing::warn!(target: target::ZMQ, channel = what, %endpoint, error = %e, "messages wait for a consumer");
                    }
                    Err(_) => {}
                }
                stop.sleep(pause);
                pause = settings.backoff_max.min(pause * 2);
            }
            Ended::at_stop(&stop)
        };
        thread::spawn(settings.send_thread, body).map_err(|e| unreachable(&text, &e))?;
        Ok(Push { links, link: None, wake_up })
    }

    /// Wakes the owner: the connection opened or closed, or there is room.
    pub fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }

    /// Whether the connection is new: then everything must be sent again.
    pub fn renewed(&mut self) -> bool {
        // This is the look that a wake-up asks for.
        let _ = self.wake_up.take();
        // A connection may have come and gone between two checks.
        let Some(link) = std::iter::from_fn(|| self.links.try_recv()).last() else { return false };
        self.link = Some(link);
        true
    }

    /// Whether a connection was made that is not known to be lost.
    pub(super) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_open)
    }

    /// Whether the current or last peer acknowledges.
    pub(super) fn acknowledges(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.taken.is_some())
    }

    /// Whether the connected peer acknowledges, and is therefore ribtide's.
    pub fn is_acknowledged(&self) -> bool {
        self.is_connected() && self.acknowledges()
    }

    /// The process of the current or last peer, when it is ribtide's.
    pub fn process(&self) -> Option<Process> {
        self.link.as_ref().and_then(|link| link.ours)
    }

    /// Whether another message can be sent at once.
    pub fn has_room(&self) -> bool {
        self.link.as_ref().is_some_and(Link::has_room)
    }

    /// Whether every message was acknowledged, as far as the peer acknowledges.
    pub(super) fn is_taken(&self) -> bool {
        let taken = |link: &Link| link.taken.as_ref().is_some_and(|taken| taken.load(Relaxed) == link.sent);
        self.link.as_ref().is_some_and(taken)
    }

    /// Messages that were sent and not acknowledged; 0 with a peer that does not acknowledge.
    pub fn unacknowledged(&self) -> u64 {
        self.link.as_ref().filter(|link| link.is_open()).map_or(0, Link::in_flight)
    }

    /// Sends a message, for which there must be room. False when the connection is gone.
    pub fn send(&mut self, message: Vec<u8>) -> bool {
        let sent = self.link.as_mut().is_some_and(|link| link.messages.try_send(message).is_ok());
        match &mut self.link {
            Some(link) if sent => link.sent += 1,
            // The caller has checked for room.
            _ => self.link = None,
        }
        sent
    }
}

impl Link {
    fn is_open(&self) -> bool {
        self.open.strong_count() > 0
    }

    fn in_flight(&self) -> u64 {
        self.taken.as_ref().map_or(0, |taken| self.sent.saturating_sub(taken.load(Relaxed)))
    }

    fn has_room(&self) -> bool {
        self.in_flight() < WINDOW && !self.messages.is_full()
    }
}

pub(super) fn unreachable(address: &str, cause: &io::Error) -> TableError {
    TableError::Endpoint { endpoint: address.into(), cause: cause.to_string() }
}

/// Connects this process's socket with the number `socket`.
pub(super) fn connect(endpoint: &Endpoint, kind: Kind, limit: usize, socket: u64) -> io::Result<Peer> {
    let mut failed = io::Error::other("its name has no address");
    for address in endpoint.resolve()? {
        let connected = TcpStream::connect_timeout(&address, CONNECT_TIMEOUT);
        match connected.and_then(|stream| handshake(stream, kind, limit, socket)) {
            Ok(peer) => return Ok(peer),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// Serves one connection until its end, and returns the reason.
fn push(
    peer: Peer,
    settings: PushSettings,
    rings: &Rings,
    connected: &ring::Sender<Link>,
    waker: &Waker,
) -> String {
    let Peer { mut reader, writer, ours, .. } = peer;
    let (messages, waiting) =
        rings.bounded::<Vec<u8>>(format!("{} to ZeroMQ", settings.what), WINDOW as usize);
    let taken = ours.map(|_| Arc::new(AtomicU64::new(0)));
    let open = Arc::new(());
    let link = Link { messages, taken: taken.clone(), sent: 0, ours, open: Arc::downgrade(&open) };
    if connected.send(link).is_err() {
        return "its owner stops".into();
    }
    waker.wake();
    let (ack_writer, ack_waker) = (writer.clone(), waker.clone());
    let (gone, is_gone) = oneshot::pair();
    let back = thread::spawn(settings.ack_thread, move || {
        let mut message = Vec::new();
        let why = loop {
            match (reader.message(&mut message), &taken) {
                (Ok(()), Some(taken)) => {
                    if let Ok(count) = <[u8; 8]>::try_from(message.as_slice()) {
                        taken.store(u64::from_le_bytes(count), Relaxed);
                        ack_waker.wake();
                    }
                }
                (Ok(()), None) => {}
                (Err(e), _) => break reason(&e),
            }
        };
        ack_writer.end();
        gone.end_with(why)
    });
    if let Err(e) = back {
        return e.to_string();
    }
    loop {
        select! {
            recv(waiting.raw()) -> message => {
                idle::on_wait(false);
                let Ok(message) = message else {
                    writer.end();
                    return "its owner closed it".into();
                };
                if let Err(e) = writer.message(&waiting.took(message)) {
                    return given_up(&e, &writer, &is_gone);
                }
                if waiting.is_empty() {
                    waker.wake();
                }
            }
            recv(is_gone.raw()) -> why => return why.unwrap_or_default(),
            default(idle::until_idle()) => {
                idle::on_wait(true);
            }
        }
    }
}

/// Ends a connection that cannot be written, and waits for its reading thread, whose reason may be
/// more exact.
pub(super) fn given_up(e: &io::Error, writer: &Writer, is_gone: &oneshot::Receiver<String>) -> String {
    writer.end();
    let read = is_gone.recv();
    read.ok().filter(|_| e.kind() == io::ErrorKind::BrokenPipe).unwrap_or_else(|| reason(e))
}

pub(super) fn reason(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => "the other side closed the connection".into(),
        _ => e.to_string(),
    }
}
