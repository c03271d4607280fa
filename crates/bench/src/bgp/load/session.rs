//! One neighbour's session on a socket that never blocks: from the connection to the last byte of its script.
//!
//! [`crate::session`] is the speaker of tools with few sessions.

use super::super::model::Script;
use super::super::topology::Neighbor;
use super::backlog::{Backlog, Pool};
use super::receiver::Counters;
use super::socket;
use crate::error::End;
use crate::lock;
use crate::negotiation::{Negotiation, final_notification, keepalive};
use mio::net::TcpStream;
use ribtide_wire::bgp::message::{self, MessageType};
use ribtide_wire::bgp::notification::{Notification, cease};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

/// The state of a session that other threads read.
#[derive(Debug, Default)]
pub(super) struct Status {
    counters: Mutex<Counters>,
    pub(super) up: AtomicBool,
    /// A script is not sent yet.
    pub(super) sending: AtomicBool,
    /// It may end: the router may still have the session before.
    pub(super) may_end: AtomicBool,
    /// It ended although it had to stay up.
    lost: AtomicBool,
    /// How often it ended when it was permitted to.
    pub(super) cut: AtomicU64,
    trouble: Mutex<Option<String>>,
}

impl Status {
    pub(super) fn counters(&self) -> MutexGuard<'_, Counters> {
        lock(&self.counters)
    }

    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    pub(super) fn lost(&self) -> Option<String> {
        self.lost.load(Relaxed).then(|| self.trouble().unwrap_or_default())
    }

    /// Notes the end of a session; true when it had to stay up.
    pub(super) fn ended(&self, why: &End) -> bool {
        *lock(&self.trouble) = Some(why.to_string());
        let was_up = self.up.swap(false, Relaxed);
        let lost = was_up && !self.may_end.load(Relaxed);
        self.lost.fetch_or(lost, Relaxed);
        self.cut.fetch_add(u64::from(was_up && !lost), Relaxed);
        lost
    }
}

/// A session.
pub(super) struct Session {
    stream: TcpStream,
    neighbor: Neighbor,
    /// `None` while the connection is being made.
    negotiation: Option<Negotiation>,
    backlog: Backlog,
    /// The beginning of an incomplete message.
    rest: Vec<u8>,
    script: Option<(Script, usize)>,
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
            negotiation: None,
            backlog: Backlog::default(),
            rest: Vec::new(),
            script: None,
            next_keepalive: Instant::now(),
        })
    }

    pub(super) fn stream(&mut self) -> &mut TcpStream {
        &mut self.stream
    }

    /// The socket is writable: sends what is pending. True when a script has ended.
    pub(super) fn writable(&mut self) -> Result<bool, End> {
        if self.negotiation.is_none() {
            if let Some(e) = self.stream.take_error()? {
                return Err(e.into());
            }
            match self.stream.peer_addr() {
                Ok(remote) => self.open(remote)?,
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

    fn open(&mut self, remote: SocketAddr) -> Result<(), End> {
        let speaker = self.neighbor.speaker();
        let local = self.stream.local_addr()?;
        self.negotiation = Some(Negotiation::OpenSent { speaker, remote, local });
        self.write(&speaker.open(&[self.neighbor.family], &[]))
    }

    /// Sends a short message, for which an idle socket always has room.
    fn write(&mut self, message: &[u8]) -> Result<(), End> {
        Ok(self.stream.write_all(message)?)
    }

    /// Sends a KEEPALIVE when it is due; pending UPDATEs count as one.
    pub(super) fn tick(&mut self, now: Instant) -> Result<(), End> {
        let interval = self.negotiation.and_then(|n| n.established()?.keepalive_interval());
        let Some(interval) = interval.filter(|_| now >= self.next_keepalive && self.script.is_none()) else {
            return Ok(());
        };
        self.next_keepalive = now + interval;
        self.write(&keepalive())
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
            if frame.kind == MessageType::Update && self.is_up() {
                update(frame.body).map_err(End::Sent)?;
            } else if let Some(negotiation) = &mut self.negotiation
                && let Some(reply) = negotiation.take(&frame)?
            {
                self.write(&reply)?;
            }
            at += frame.total_len;
        }
        unread.drain(..at);
        self.rest = unread;
        Ok(came)
    }

    pub(super) fn is_up(&self) -> bool {
        self.negotiation.is_some_and(|negotiation| negotiation.established().is_some())
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
