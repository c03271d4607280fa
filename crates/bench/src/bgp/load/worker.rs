//! A thread with many sessions.

use super::super::model::{PathNumber, Script, View};
use super::super::topology::Neighbor;
use super::Received;
use super::backlog::Pool;
use super::receiver::{PathChecker, Routes};
use super::session::{Session, Status};
use super::socket;
use crate::error::End;
use mio::{Events, Interest, Poll, Token, Waker};
use ribtide_runtime::call::{self, CallQueue, StageHandle};
use ribtide_wire::bgp::message::HEADER_LEN;
use ribtide_wire::bgp::update::{UpdateContext, parse};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

const WAKE: Token = Token(usize::MAX);
/// The interval of timers and connection attempts.
const TICK_INTERVAL: Duration = Duration::from_millis(100);
/// Parts that are parsed before the sockets have their turn.
const PARSE_BATCH_MAX: usize = 16;
/// Segments that must be free before a session is read.
pub(super) const FREE_SEGMENTS_MIN: usize = 16;

pub(super) struct Worker {
    poll: Poll,
    /// Whether its thread ends.
    stopped: bool,
    router: SocketAddr,
    neighbors: Arc<[Neighbor]>,
    /// Sessions from this number on are receivers'.
    senders: usize,
    statuses: Vec<Arc<Status>>,
    sessions: Vec<Option<Session>>,
    /// The receivers' routes.
    routes: Vec<Option<Routes>>,
    checker: Option<PathChecker>,
    /// Sessions to try again.
    waiting: Vec<usize>,
    /// Sessions with more to read.
    unread: Vec<usize>,
    pool: Pool,
    /// Sessions with unparsed bytes.
    backlogs: Vec<usize>,
    /// Bytes at which a receiver's socket becomes readable.
    gather: usize,
    /// Nanoseconds of CPU time of requested reading and parsing.
    afterwards: Arc<AtomicU64>,
}

impl Worker {
    pub(super) fn new(
        router: SocketAddr,
        neighbors: Arc<[Neighbor]>,
        senders: usize,
        statuses: Vec<Arc<Status>>,
        afterwards: Arc<AtomicU64>,
        pool: Pool,
    ) -> io::Result<(Worker, StageHandle<Worker>, CallQueue<Worker>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKE)?;
        let (handle, calls) = call::pair("load");
        let handle = handle.with_wake(Some(Arc::new(move || drop(waker.wake()))));
        let count = neighbors.len();
        let worker = Worker {
            poll,
            stopped: false,
            router,
            neighbors,
            senders,
            statuses,
            sessions: (0..count).map(|_| None).collect(),
            routes: (0..count).map(|_| None).collect(),
            checker: None,
            waiting: Vec::new(),
            unread: Vec::new(),
            pool,
            backlogs: Vec::new(),
            gather: socket::gathered(count - senders),
            afterwards,
        };
        Ok((worker, handle, calls))
    }

    pub(super) fn run(mut self, calls: &CallQueue<Worker>) {
        let mut events = Events::with_capacity(1024);
        let mut next_tick = Instant::now() + TICK_INTERVAL;
        loop {
            let wait = match self.unread.is_empty() {
                false => Duration::ZERO,
                true => next_tick.saturating_duration_since(Instant::now()),
            };
            if let Err(e) = self.poll.poll(&mut events, Some(wait))
                && e.kind() != io::ErrorKind::Interrupted
            {
                // Nothing can be awaited any more: sessions end, and callers see that.
                return;
            }
            for session in std::mem::take(&mut self.unread) {
                self.read(session);
            }
            for event in &events {
                let Token(session) = event.token();
                if event.token() == WAKE {
                    calls.serve(&mut self);
                    if self.stopped {
                        return;
                    }
                    continue;
                }
                if event.is_writable() {
                    self.write(session);
                }
                if event.is_readable() || event.is_read_closed() {
                    self.read(session);
                }
            }
            if Instant::now() >= next_tick {
                next_tick = Instant::now() + TICK_INTERVAL;
                self.tick();
            }
        }
    }

    /// Ends every session, and then the thread.
    pub(super) fn stop(&mut self) {
        (0..self.sessions.len()).for_each(|session| self.close(session));
        self.stopped = true;
    }

    pub(super) fn send(&mut self, session: usize, script: Script) {
        let sent = self.sessions[session].as_mut().map(|s| s.send(script));
        self.wrote(session, sent);
    }

    /// The routes of a receiver.
    pub(super) fn table(&self, session: usize) -> (Vec<PathNumber>, usize) {
        self.routes[session].as_ref().map(Routes::copy).unwrap_or_default()
    }

    /// Sets the expected routes.
    pub(super) fn set_view(&mut self, view: View) {
        self.read_all();
        for (routes, status) in self.routes.iter_mut().zip(&self.statuses) {
            if let Some(routes) = routes {
                routes.recount(&view);
                status.counters().start_again(Some(routes));
            }
        }
        match &mut self.checker {
            Some(checker) => checker.replace(view),
            None => self.checker = Some(PathChecker::new(view)),
        }
    }

    pub(super) fn connect(&mut self, session: usize) {
        if session >= self.senders {
            self.routes[session] = self.checker.as_ref().map(|checker| Routes::new(&checker.view));
            self.statuses[session].counters().start_again(self.routes[session].as_ref());
        }
        let registry = self.poll.registry();
        let made = Session::connect(self.neighbors[session], self.router).and_then(|mut made| {
            registry.register(made.stream(), Token(session), Interest::READABLE | Interest::WRITABLE)?;
            Ok(made)
        });
        match made {
            Ok(made) => self.sessions[session] = Some(made),
            Err(e) => self.failed(session, e.into()),
        }
    }

    pub(super) fn close(&mut self, session: usize) {
        self.waiting.retain(|s| *s != session);
        if let Some(session) = self.sessions[session].take() {
            session.close(None, &mut self.pool);
        }
        if self.routes[session].take().is_some() {
            self.statuses[session].counters().start_again(None);
        }
    }

    /// A session ended by itself. It is tried again unless it had to stay up.
    fn failed(&mut self, session: usize, why: End) {
        if let Some(session) = self.sessions[session].take() {
            session.close(Some(&why), &mut self.pool);
        }
        if !self.statuses[session].ended(&why) {
            self.waiting.push(session);
        }
    }

    fn write(&mut self, session: usize) {
        let wrote = self.sessions[session].as_mut().map(Session::writable);
        self.wrote(session, wrote);
    }

    fn wrote(&mut self, session: usize, wrote: Option<Result<bool, End>>) {
        match wrote {
            Some(Ok(true)) => self.statuses[session].sending.store(false, Relaxed),
            Some(Err(why)) => self.failed(session, why),
            Some(Ok(false)) | None => {}
        }
    }

    /// Reads a session. The bytes of established receivers are parsed later.
    fn read(&mut self, session: usize) {
        // Parsing must free memory before new bytes are read.
        while self.pool.free() < FREE_SEGMENTS_MIN && !self.backlogs.is_empty() {
            self.catch_up();
        }
        let Some(this) = &mut self.sessions[session] else { return };
        let later = this.is_up() && session >= self.senders;
        let had_backlog = this.has_backlog();
        let outcome = this.collect(&mut self.pool);
        if !later || outcome.is_err() {
            while self.parse_backlog(session) {}
        } else if this.has_backlog() && !had_backlog {
            self.backlogs.push(session);
        }
        match outcome {
            Ok(false) => {}
            Ok(true) => self.unread.push(session),
            // Earlier bytes may have reported the end, so the session may be gone already.
            Err(why) if self.sessions[session].is_some() => self.failed(session, why),
            Err(_) => {}
        }
    }

    /// Parses a part of a session's bytes; false without one.
    fn parse_backlog(&mut self, session: usize) -> bool {
        let Worker { sessions, routes, checker, statuses, pool, senders, gather, .. } = self;
        let (Some(this), Some(checker)) = (&mut sessions[session], checker) else { return false };
        if !this.has_backlog() {
            return false;
        }
        let was_up = this.is_up();
        let context = UpdateContext::new(true, !checker.view.internal);
        let (mut received, status) = (Received::default(), &statuses[session]);
        let mut held = routes[session].as_mut();
        let receives = session >= *senders;
        let mut outcome = this.parse_next(pool, |body| {
            if !receives {
                // UPDATEs to senders do not matter here.
                return Ok(());
            }
            let update = parse(body, &context)?;
            received.updates += 1;
            received.bytes += (body.len() + HEADER_LEN) as u64;
            if let Some(routes) = held.as_deref_mut() {
                let (announced, withdrawn) = routes.apply(&update, checker);
                received.announced += announced;
                received.withdrawn += withdrawn;
            }
            Ok(())
        });
        if let (Ok(Some(at)), true) = (&outcome, received.updates > 0) {
            let mut counters = status.counters();
            counters.add(received, *at);
            if let Some(routes) = &routes[session] {
                counters.show(routes, *at);
            }
        }
        if !was_up && this.is_up() {
            status.up.store(true, Relaxed);
            if receives && let Err(e) = this.gather(*gather) {
                outcome = Err(e.into());
            }
        }
        match outcome {
            Ok(came) => came.is_some(),
            Err(why) => {
                self.failed(session, why);
                false
            }
        }
    }

    /// Reads and parses everything that receivers got.
    pub(super) fn read_all(&mut self) {
        let before = thread_cpu();
        self.unread.extend(self.senders..self.sessions.len());
        while let Some(session) = self.unread.pop() {
            self.read(session);
            while !self.backlogs.is_empty() {
                self.catch_up();
            }
        }
        let took = thread_cpu().saturating_sub(before);
        self.afterwards.fetch_add(took.as_nanos() as u64, Relaxed);
    }

    /// Parses some of the backlogs.
    fn catch_up(&mut self) {
        let Some(session) = self.backlogs.last().copied() else { return };
        for _ in 0..PARSE_BATCH_MAX {
            if !self.parse_backlog(session) {
                self.backlogs.pop();
                return;
            }
        }
    }

    fn tick(&mut self) {
        for session in std::mem::take(&mut self.waiting) {
            self.connect(session);
        }
        let now = Instant::now();
        for session in 0..self.sessions.len() {
            if let Some(Err(why)) = self.sessions[session].as_mut().map(|s| s.tick(now)) {
                self.failed(session, why);
            }
        }
    }
}

/// CPU time of this thread.
fn thread_cpu() -> Duration {
    crate::harness::program::clock(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
}
