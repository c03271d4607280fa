//! The connecting end of a ZeroMQ connection whose messages are acknowledged where the other end is ours: it connects again
//! and again, and takes a message only when there is room for it.
//!
//! What a broken connection had under way is not known: after each new one its owner says everything again.

use super::endpoint::Endpoint;
use super::zmtp::{Kind, Peer, Process, Writer, introduce, next_socket};
use crate::TableError;
use crate::subscribe::Wake;
use crossbeam_channel as channel;
use ribtide_runtime::idle;
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Stop};
use std::io;
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Messages that may be under way or taken and not acknowledged.
pub const WINDOW: u64 = 64;
/// SONiC's limit of a message.
pub(super) const LIMIT: usize = 16 << 20;
/// Pauses between attempts to connect start and end here.
pub(super) const BACK_OFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// How long a connection may take to come about.
const REACH: Duration = Duration::from_secs(5);

/// What goes over a connection, and who is at work on it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pushed {
    /// What goes there, for the log and the ring's name.
    pub(super) what: &'static str,
    /// The thread that connects and sends.
    pub(super) sends: &'static str,
    /// The thread that hears what was taken.
    pub(super) hears: &'static str,
    /// The longest pause between two attempts to connect.
    pub(super) backoff_max: Duration,
}

/// One connection, as its owner sees it.
#[derive(Debug)]
struct Link {
    messages: ring::Sender<Vec<u8>>,
    /// Messages that the other side's owner has taken; `None` when it does not say.
    taken: Option<Arc<AtomicU64>>,
    sent: u64,
    /// In which process the other side is, when it is one of ours.
    ours: Option<Process>,
    /// Held by the thread that sends, for as long as there is a connection.
    open: Weak<()>,
}

/// The connecting end.
#[derive(Debug)]
pub struct Push {
    links: channel::Receiver<Link>,
    link: Option<Link>,
    wake: Wake,
}

impl Push {
    /// Connects to `endpoint`, again and again until `stop`.
    pub(super) fn connect(
        endpoint: Endpoint,
        pushed: Pushed,
        rings: &Rings,
        stop: &Stop,
    ) -> Result<Push, TableError> {
        let (waker, woken) = channel::bounded(1);
        let (connected, links) = channel::bounded(1);
        let (rings, stop, text) = (rings.clone(), stop.clone(), endpoint.to_string());
        let what = pushed.what;
        let body = move || {
            let socket = next_socket();
            let mut pause = BACK_OFF.0;
            let mut reported = false;
            while !stop.stopped() {
                match connect(&endpoint, Kind::Push, LIMIT, socket) {
                    Ok(peer) => {
                        let with =
                            if peer.ours.is_some() { "acknowledged" } else { "not acknowledged, as SONiC's" };
                        crate::report(&format!("{what} goes to {endpoint}, {with}"));
                        (pause, reported) = (BACK_OFF.0, false);
                        let why = push(peer, pushed, &rings, &connected, &waker);
                        // Who waits for room there waits in vain.
                        wake(&waker);
                        crate::report(&format!("{what} no longer reaches {endpoint}: {why}"));
                    }
                    Err(e) if !std::mem::replace(&mut reported, true) => {
                        crate::report(&format!("{what} waits for who takes it at {endpoint}: {e}"));
                    }
                    Err(_) => {}
                }
                std::thread::sleep(pause);
                pause = pushed.backoff_max.min(pause * 2);
            }
        };
        thread::spawn(pushed.sends, body).map_err(|e| unreachable(&text, &e))?;
        Ok(Push { links, link: None, wake: woken })
    }

    /// Says when to look again: a connection is there or gone, or there is room.
    pub fn wake(&self) -> &Wake {
        &self.wake
    }

    /// Looks whether the connection is a new one: then everything must be sent again.
    pub fn renewed(&mut self) -> bool {
        // This is the look that a wake-up asks for.
        let _ = self.wake.try_recv();
        // Between two looks one connection may have come and gone.
        let Some(link) = self.links.try_iter().last() else { return false };
        self.link = Some(link);
        true
    }

    /// Whether there was a connection that is not known to be lost.
    pub(super) fn is_linked(&self) -> bool {
        self.link.is_some()
    }

    /// Whether a peer is connected.
    pub fn is_connected(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_open)
    }

    /// Whether who is connected, or was last, acknowledges.
    pub(super) fn acknowledges(&self) -> bool {
        self.link.as_ref().is_some_and(|link| link.taken.is_some())
    }

    /// Whether who is connected acknowledges, and is therefore one of ours.
    pub fn is_acknowledged(&self) -> bool {
        self.is_connected() && self.acknowledges()
    }

    /// In which process who is connected, or was last, is, when he is one of ours.
    pub fn process(&self) -> Option<Process> {
        self.link.as_ref().and_then(|link| link.ours)
    }

    /// Whether another message would go at once.
    pub fn has_room(&self) -> bool {
        self.link.as_ref().is_some_and(Link::has_room)
    }

    /// Whether everything that was sent is taken, as far as the other side says.
    pub(super) fn is_taken(&self) -> bool {
        let taken = |link: &Link| link.taken.as_ref().is_some_and(|taken| taken.load(Relaxed) == link.sent);
        self.link.as_ref().is_some_and(taken)
    }

    /// Messages that were sent and not acknowledged; none where who is connected does not acknowledge.
    pub fn unacknowledged(&self) -> u64 {
        self.link.as_ref().filter(|link| link.is_open()).map_or(0, Link::under_way)
    }

    /// Sends a message that there is room for. False when the connection is gone.
    pub fn send(&mut self, message: Vec<u8>) -> bool {
        let sent = self.link.as_mut().is_some_and(|link| link.messages.try_send(message).is_ok());
        match &mut self.link {
            Some(link) if sent => link.sent += 1,
            // There was room a moment ago.
            _ => self.link = None,
        }
        sent
    }
}

impl Link {
    fn is_open(&self) -> bool {
        self.open.strong_count() > 0
    }

    fn under_way(&self) -> u64 {
        self.taken.as_ref().map_or(0, |taken| self.sent.saturating_sub(taken.load(Relaxed)))
    }

    fn has_room(&self) -> bool {
        self.under_way() < WINDOW && !self.messages.is_full()
    }
}

pub(super) fn unreachable(address: &str, cause: &io::Error) -> TableError {
    TableError::Endpoint { endpoint: address.into(), cause: cause.to_string() }
}

/// Connects this process's socket of that number.
pub(super) fn connect(endpoint: &Endpoint, kind: Kind, limit: usize, socket: u64) -> io::Result<Peer> {
    let mut failed = io::Error::other("its name has no address");
    for address in endpoint.resolve()? {
        let connected = TcpStream::connect_timeout(&address, REACH);
        match connected.and_then(|stream| introduce(stream, kind, limit, socket)) {
            Ok(peer) => return Ok(peer),
            Err(e) => failed = e,
        }
    }
    Err(failed)
}

/// One connection to its end, and why it ended.
fn push(
    peer: Peer,
    pushed: Pushed,
    rings: &Rings,
    connected: &channel::Sender<Link>,
    waker: &channel::Sender<()>,
) -> String {
    let Peer { mut reader, writer, ours, .. } = peer;
    let (messages, waiting) = rings.bounded::<Vec<u8>>(format!("{} to ZeroMQ", pushed.what), WINDOW as usize);
    let taken = ours.map(|_| Arc::new(AtomicU64::new(0)));
    let open = Arc::new(());
    let link = Link { messages, taken: taken.clone(), sent: 0, ours, open: Arc::downgrade(&open) };
    if connected.send(link).is_err() {
        return "its owner stops".into();
    }
    wake(waker);
    let (on_way_back, waker_back) = (writer.clone(), waker.clone());
    let (gone, is_gone) = channel::bounded::<String>(1);
    let back = thread::spawn(pushed.hears, move || {
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
                idle::on_wait(false);
                let Ok(message) = message else {
                    writer.end();
                    return "its owner closed it".into();
                };
                if let Err(e) = writer.message(&waiting.took(message)) {
                    return given_up(&e, &writer, &is_gone);
                }
                if waiting.is_empty() {
                    wake(waker);
                }
            }
            recv(is_gone) -> why => return why.unwrap_or_default(),
            default(idle::IDLE_TIMEOUT) => {
                idle::on_wait(true);
            }
        }
    }
}

/// Ends a connection to which nothing can be written, and waits for who reads it. Why it ended: he may know better.
pub(super) fn given_up(e: &io::Error, writer: &Writer, is_gone: &channel::Receiver<String>) -> String {
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

pub(super) fn wake(waker: &channel::Sender<()>) {
    // Full means that a wake-up waits already.
    let _ = waker.try_send(());
}
