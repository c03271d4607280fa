//! One neighbour's session on a socket that never blocks: from the connection to the last byte of its script.
//!
//! [`crate::session`] is the speaker of tools with few sessions; its header compares the two.

use super::super::model::Script;
use super::super::topology::Neighbor;
use super::backlog::{Backlog, Pool};
use super::receiver::Counters;
use super::socket;
use crate::error::End;
use crate::session::{agree, final_notification};
use mio::net::TcpStream;
use ribtide_prefix::Safi;
use ribtide_wire::bgp::capability::Capability;
use ribtide_wire::bgp::message::{self, Frame, MessageType};
use ribtide_wire::bgp::notification::{Notification, cease, code, fsm};
use ribtide_wire::bgp::open::OpenBuilder;
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The state of a session that other threads read.
#[derive(Debug)]
pub(super) struct Status {
    pub(super) counters: Counters,
    up: AtomicBool,
    sent: AtomicBool,
    /// Whether it must stay up.
    must_stay: AtomicBool,
    /// Whether it ended although it had to stay up.
    lost: AtomicBool,
    /// How often it ended when it was permitted to.
    cut: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Default for Status {
    fn default() -> Self {
        Status {
            counters: Counters::default(),
            up: AtomicBool::new(false),
            sent: AtomicBool::new(true),
            must_stay: AtomicBool::new(true),
            lost: AtomicBool::new(false),
            cut: AtomicU64::new(0),
            trouble: Mutex::new(None),
        }
    }
}

impl Status {
    pub(super) fn is_up(&self) -> bool {
        self.up.load(Relaxed)
    }

    pub(super) fn set_up(&self, up: bool) {
        self.up.store(up, Relaxed);
    }

    pub(super) fn is_sent(&self) -> bool {
        self.sent.load(Relaxed)
    }

    pub(super) fn set_sent(&self, sent: bool) {
        self.sent.store(sent, Relaxed);
    }

    pub(super) fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn lost(&self) -> Option<String> {
        self.lost.load(Relaxed).then(|| self.trouble().unwrap_or_default())
    }

    pub(super) fn set_must_stay(&self, must_stay: bool) {
        self.must_stay.store(must_stay, Relaxed);
    }

    pub(super) fn cut(&self) -> u64 {
        self.cut.load(Relaxed)
    }

    /// Notes the end of a session; true when it had to stay up.
    pub(super) fn ended(&self, why: &End) -> bool {
        *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why.to_string());
        let was_up = self.up.swap(false, Relaxed);
        let lost = was_up && self.must_stay.load(Relaxed);
        self.lost.fetch_or(lost, Relaxed);
        self.cut.fetch_add(u64::from(was_up && !lost), Relaxed);
        lost
    }
}

/// The progress of a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The connection is being made.
    Connecting,
    /// OPEN was sent.
    OpenSent,
    /// The peer's OPEN was received.
    OpenConfirm,
    /// It is up.
    Established,
}

/// A session.
pub(super) struct Session {
    stream: TcpStream,
    neighbor: Neighbor,
    stage: Stage,
    backlog: Backlog,
    /// The beginning of an incomplete message.
    rest: Vec<u8>,
    script: Option<(Script, usize)>,
    keepalive_every: Option<Duration>,
    next_keepalive: Instant,
}

/// Bytes that are read from one session before others have their turn.
const TURN: usize = 1 << 20;

impl Session {
    /// Begins to connect.
    pub(super) fn connect(neighbor: Neighbor, to: SocketAddr) -> io::Result<Session> {
        let socket = socket2::Socket::new(socket2::Domain::for_address(to), socket2::Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.set_tcp_nodelay(true)?;
        socket.bind(&SocketAddr::new(neighbor.address.into(), 0).into())?;
        match socket.connect(&to.into()) {
            Err(e) if e.raw_os_error() != Some(nix::errno::Errno::EINPROGRESS as i32) => return Err(e),
            _ => {}
        }
        socket::stamp(&socket)?;
        Ok(Session {
            stream: TcpStream::from_std(socket.into()),
            neighbor,
            stage: Stage::Connecting,
            backlog: Backlog::default(),
            rest: Vec::new(),
            script: None,
            keepalive_every: None,
            next_keepalive: Instant::now(),
        })
    }

    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The socket is writable: sends what is pending. True when a script has ended.
    pub(super) fn writable(&mut self) -> Result<bool, End> {
        if self.stage == Stage::Connecting {
            if let Some(e) = self.stream.take_error()? {
                return Err(e.into());
            }
            match self.stream.peer_addr() {
                Ok(_) => self.open()?,
                Err(e) if e.kind() == ErrorKind::NotConnected => return Ok(false),
                Err(e) => return Err(e.into()),
            }
        }
        let Some((script, at)) = &mut self.script else { return Ok(false) };
        while *at < script.len() {
            match self.stream.write(&script[*at..]) {
                Ok(n) => *at += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                // The peer's NOTIFICATION is still to be read.
                Err(e) if matches!(e.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {
                    return Ok(false);
                }
                Err(e) => return Err(e.into()),
            }
        }
        self.script = None;
        Ok(true)
    }

    /// Sends `script` from now on.
    pub(super) fn send(&mut self, script: Script) -> Result<bool, End> {
        self.script = Some((script, 0));
        self.writable()
    }

    fn open(&mut self) -> Result<(), End> {
        let speaker = self.neighbor.speaker();
        let capabilities = [
            Capability::Multiprotocol { afi: self.neighbor.family as u16, safi: Safi::Unicast as u8 },
            Capability::FourOctetAs(speaker.asn),
        ];
        let mut out = Vec::new();
        OpenBuilder {
            asn: speaker.asn,
            hold_time: speaker.hold_time,
            router_id: speaker.router_id,
            capabilities: &capabilities,
        }
        .write(&mut out);
        self.stage = Stage::OpenSent;
        self.write(&out)
    }

    /// Sends a short message, for which an idle socket always has room.
    fn write(&mut self, message: &[u8]) -> Result<(), End> {
        Ok(self.stream.write_all(message)?)
    }

    fn keepalive(&mut self) -> Result<(), End> {
        let mut out = Vec::new();
        message::write_keepalive(&mut out);
        self.write(&out)
    }

    /// Sends a KEEPALIVE when it is due; pending UPDATEs count as one.
    pub(super) fn tick(&mut self, now: Instant) -> Result<(), End> {
        let Some(every) = self.keepalive_every else { return Ok(()) };
        if self.stage != Stage::Established || now < self.next_keepalive || self.script.is_some() {
            return Ok(());
        }
        self.next_keepalive = now + every;
        self.keepalive()
    }

    /// Stores received bytes in the backlog, at most one turn. True when there may be more.
    pub(super) fn collect(&mut self, pool: &mut Pool) -> Result<bool, End> {
        let mut turn = 0;
        while turn < TURN {
            match self.backlog.read(|room| socket::receive(&self.stream, room), pool) {
                Ok((0, _)) => return Err(End::Closed),
                Ok((n, room)) => {
                    turn += n;
                    // The socket is empty, because there was more room.
                    if room {
                        return Ok(false);
                    }
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
                    return Ok(false);
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e.into()),
            }
        }
        Ok(true)
    }

    /// Sets the number of bytes at which the socket becomes readable.
    pub(super) fn gather(&self, bytes: usize) -> io::Result<()> {
        socket::gather(&self.stream, bytes)
    }

    /// Whether there are bytes to parse.
    pub(super) fn has_backlog(&self) -> bool {
        !self.backlog.is_empty()
    }

    /// Parses the oldest part of the backlog and calls `update` with the body of each UPDATE.
    /// Returns its arrival time.
    pub(super) fn parse_next(
        &mut self,
        pool: &mut Pool,
        mut update: impl FnMut(&[u8]) -> Result<(), Notification>,
    ) -> Result<Option<Instant>, End> {
        let mut unread = std::mem::take(&mut self.rest);
        let came = self.backlog.next(pool, |bytes, at| {
            unread.extend_from_slice(bytes);
            at
        });
        let mut at = 0;
        while let Some(frame) = message::frame(&unread[at..], message::MAX_LEN).map_err(End::Sent)? {
            if frame.kind == MessageType::Update && self.stage == Stage::Established {
                update(frame.body).map_err(End::Sent)?;
            } else {
                self.take(&frame)?;
            }
            at += frame.total_len;
        }
        unread.drain(..at);
        self.rest = unread;
        Ok(came)
    }

    /// A message that is no UPDATE, or comes before the session is up.
    fn take(&mut self, frame: &Frame<'_>) -> Result<(), End> {
        match (self.stage, frame.kind) {
            (_, MessageType::Notification) => Err(End::Received(Notification::parse(frame.body))),
            (Stage::OpenSent, MessageType::Open) => {
                let (remote, local) = (self.stream.peer_addr()?, self.stream.local_addr()?);
                let peer = agree(frame, &self.neighbor.speaker(), remote, local)?;
                self.keepalive_every = (!peer.hold_time.is_zero()).then_some(peer.hold_time / 3);
                self.stage = Stage::OpenConfirm;
                self.keepalive()
            }
            (Stage::OpenConfirm, MessageType::Keepalive) => {
                self.stage = Stage::Established;
                self.next_keepalive = Instant::now() + self.keepalive_every.unwrap_or_default();
                Ok(())
            }
            (Stage::Established, MessageType::Keepalive | MessageType::RouteRefresh) => Ok(()),
            _ => Err(End::Sent(Notification::new(code::FSM, fsm::UNEXPECTED_IN_OPEN_SENT))),
        }
    }

    pub(super) fn is_up(&self) -> bool {
        self.stage == Stage::Established
    }

    /// Sends the NOTIFICATION: `why` if the peer does not know it, a Cease without a reason.
    pub(super) fn close(mut self, why: Option<&End>, pool: &mut Pool) {
        self.backlog.clear(pool);
        let words = why.map_or_else(
            || final_notification(&End::Sent(Notification::cease(cease::ADMIN_SHUTDOWN))),
            final_notification,
        );
        if let Some(words) = words {
            let _ = self.stream.write_all(&words);
        }
    }
}
