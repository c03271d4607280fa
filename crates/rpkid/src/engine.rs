//! The state of the thread: a session with each cache, and the table of payloads in use.

use super::Publish;
use super::connection::Connection;
use mio::{Events, Poll};
use ribtide_config::{RpkiCache, RpkiConfig};
use ribtide_prefix::{V4, V6};
use ribtide_rpki::{Effect, Exceptions, Session, State, Vrps};
use ribtide_runtime::clock::Clock;
use ribtide_runtime::log::target;
use ribtide_wire::rtr::Intervals;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// Bytes of one read.
const READ: usize = 256 * 1024;
/// Reads of one connection before other work has its turn.
const READS: usize = 16;

/// The thread's state.
pub struct Engine {
    poll: Poll,
    clock: Clock,
    publish: Publish,
    caches: Vec<Cache>,
    exceptions: Exceptions,
    /// The table in use.
    vrps: Arc<Vrps>,
    /// Whether records or settings changed since it was made.
    outdated: bool,
    /// Tables since the start.
    tables: u64,
    next_token: usize,
    buffer: Vec<u8>,
    /// Whether the thread ends.
    ended: bool,
}

struct Cache {
    settings: RpkiCache,
    session: Session,
    token: usize,
    connection: Option<Connection>,
    /// Connections since the start.
    connects: u64,
    /// Connections and attempts that failed.
    failures: u64,
    /// The last logged failure: a repeated one is logged once.
    logged: Option<String>,
    /// More bytes may be there than were read.
    readable: bool,
}

/// A reload's changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Changes {
    /// Added caches.
    pub added: usize,
    /// Removed caches.
    pub removed: usize,
    /// Caches with another preference, other intervals or other TLS settings.
    pub changed: usize,
    /// Whether the local exceptions changed.
    pub exceptions: bool,
}

/// The caches and the table.
#[derive(Clone, Debug)]
pub struct View {
    /// In the order of the configuration.
    pub caches: Vec<CacheView>,
    /// The table in use.
    pub vrps: Arc<Vrps>,
    /// Filters and assertions of the local exceptions.
    pub exceptions: (usize, usize),
    /// Tables since the start.
    pub tables: u64,
}

impl View {
    /// Whether there are caches and none has records, so that routes are not-found.
    pub fn is_degraded(&self) -> bool {
        !self.caches.is_empty() && self.caches.iter().all(|cache| cache.age.is_none())
    }
}

/// A cache.
#[derive(Clone, Debug)]
pub struct CacheView {
    /// Its settings.
    pub settings: RpkiCache,
    /// The state of the connection.
    pub state: State,
    /// The version, where the cache has answered.
    pub version: Option<u8>,
    /// Session ID and Serial Number of the records.
    pub id: Option<(u16, u32)>,
    /// IPv4 and IPv6 records.
    pub records: (usize, usize),
    /// ASPA records.
    pub aspas: usize,
    /// Time since the last complete answer, while its records are kept.
    pub age: Option<Duration>,
    /// Whether the table has its records.
    pub in_use: bool,
    /// The intervals in use.
    pub intervals: Intervals,
    /// Connections since the start.
    pub connects: u64,
    /// Connections and attempts that failed.
    pub failures: u64,
    /// The last failure.
    pub last_error: Option<String>,
    /// Time to the next step: a query, an attempt to connect, or a timeout.
    pub due: Duration,
}

impl Engine {
    pub(super) fn new(poll: Poll, publish: Publish, clock: Clock) -> Engine {
        Engine {
            poll,
            clock,
            publish,
            caches: Vec::new(),
            exceptions: Exceptions::default(),
            vrps: Arc::default(),
            outdated: false,
            tables: 0,
            next_token: 0,
            buffer: vec![0; READ],
            ended: false,
        }
    }

    /// Ends the thread: readers get an empty table, so every route is not-found. The handle answers no more calls.
    pub fn end(&mut self) {
        self.caches = Vec::new();
        self.exceptions = Exceptions::default();
        (self.outdated, self.ended) = (true, true);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    fn now(&self) -> Duration {
        Duration::from_millis(self.clock.now())
    }

    /// Applies other caches and local exceptions. A cache whose address, port and local address stay keeps
    /// its records, and its connection, too, unless TLS settings changed.
    pub fn configure(&mut self, config: &RpkiConfig) -> Changes {
        let now = self.now();
        let mut changes = Changes::default();
        let mut former = std::mem::take(&mut self.caches);
        for settings in &config.caches {
            let same = |cache: &Cache| {
                let RpkiCache { address, local_address, tls: _, preference: _, overrides: _ } = settings;
                (cache.settings.address, cache.settings.local_address) == (*address, *local_address)
            };
            let cache = match former.iter().position(same) {
                Some(at) => {
                    let mut cache = former.swap_remove(at);
                    changes.changed += usize::from(cache.settings != *settings);
                    if cache.settings.tls != settings.tls {
                        cache.connection = None;
                        cache.session.reconnect(now);
                    }
                    cache.settings = settings.clone();
                    cache.session.set_overrides(settings.overrides);
                    cache
                }
                None => {
                    changes.added += 1;
                    self.next_token += 1;
                    Cache {
                        settings: settings.clone(),
                        session: Session::new(settings.overrides, now),
                        token: self.next_token,
                        connection: None,
                        connects: 0,
                        failures: 0,
                        logged: None,
                        readable: false,
                    }
                }
            };
            self.caches.push(cache);
        }
        changes.removed = former.len();
        changes.exceptions = self.exceptions != config.exceptions;
        self.exceptions.clone_from(&config.exceptions);
        self.outdated |= changes != Changes::default() || self.tables == 0;
        changes
    }

    /// The table in use.
    pub fn vrps(&self) -> Arc<Vrps> {
        self.vrps.clone()
    }

    /// The caches and the table.
    pub fn view(&self) -> View {
        let now = self.now();
        let in_use = self.preference();
        let view = |cache: &Cache| {
            let session = &cache.session;
            CacheView {
                settings: cache.settings.clone(),
                state: session.state(),
                version: session.version(),
                id: session.id(),
                aspas: session.records().aspas().len(),
                records: (session.records().get::<V4>().len(), session.records().get::<V6>().len()),
                age: session.complete().map(|complete| now.saturating_sub(complete)),
                in_use: session.complete().is_some() && in_use == Some(cache.settings.preference),
                intervals: session.intervals(),
                connects: cache.connects,
                failures: cache.failures,
                last_error: session.last_error().map(Into::into),
                due: session.due().saturating_sub(now),
            }
        };
        View {
            caches: self.caches.iter().map(view).collect(),
            vrps: self.vrps.clone(),
            exceptions: (self.exceptions.filters.len(), self.exceptions.assertions.len()),
            tables: self.tables,
        }
    }

    /// Waits for bytes, a call, or the time of the next step.
    pub(super) fn wait(&mut self, events: &mut Events) {
        let due = self.caches.iter().map(|cache| cache.session.due()).min();
        let more = self.caches.iter().any(|cache| cache.readable);
        let timeout = match more {
            true => Some(Duration::ZERO),
            // The clock counts whole milliseconds.
            false => due.map(|due| due.saturating_sub(self.now()) + Duration::from_millis(1)),
        };
        if let Err(error) = self.poll.poll(events, timeout)
            && error.kind() != io::ErrorKind::Interrupted
        {
            panic!("the RPKI thread cannot wait for its sockets: {error}");
        }
    }

    /// The connection of this token may have bytes or room.
    pub(super) fn ready(&mut self, token: usize) {
        if let Some(cache) = self.caches.iter_mut().find(|cache| cache.token == token) {
            cache.readable = true;
        }
    }

    /// Reads, and does what is due.
    pub(super) fn tick(&mut self) {
        let now = self.now();
        for cache in &mut self.caches {
            let effects = cache.session.tick(now);
            self.outdated |= cache.obey(effects, &self.poll, now);
            if std::mem::take(&mut cache.readable) {
                self.outdated |= cache.receive(&mut self.buffer, &self.poll, now);
            }
            cache.log();
        }
    }

    /// The lowest preference of caches with records.
    fn preference(&self) -> Option<u8> {
        let complete = self.caches.iter().filter(|cache| cache.session.complete().is_some());
        complete.map(|cache| cache.settings.preference).min()
    }

    /// Makes a table of changed records, and hands it to the readers if it differs.
    pub(super) fn publish(&mut self) {
        if !std::mem::take(&mut self.outdated) {
            return;
        }
        let preference = self.preference();
        let used = self.caches.iter().filter(|cache| Some(cache.settings.preference) == preference);
        let vrps = self.exceptions.table(used.map(|cache| cache.session.records()));
        let vrps = Arc::new(vrps.sharing_aspas(&self.vrps));
        let changed = vrps.changes_from(&self.vrps);
        if changed.v4.is_empty() && changed.v6.is_empty() && vrps.has_same_aspas(&self.vrps) {
            return;
        }
        self.tables += 1;
        tracing::info!(
            target: target::RPKI,
            ipv4 = vrps.len::<V4>(),
            ipv6 = vrps.len::<V6>(),
            aspas = vrps.aspas().len(),
            changed_prefixes = changed.v4.len() + changed.v6.len(),
            "routes are validated against another table of payloads"
        );
        if vrps.is_empty() && !self.ended {
            tracing::warn!(target: target::RPKI, "no RPKI cache has records that are used: every route is not-found");
        }
        self.vrps = vrps;
        (self.publish)(&self.vrps, &Arc::new(changed));
    }
}

impl Cache {
    /// Does what the session says. Returns whether its records changed.
    fn obey(&mut self, effects: Vec<Effect>, poll: &Poll, now: Duration) -> bool {
        let mut changed = false;
        for effect in effects {
            match effect {
                Effect::Connect => match Connection::open(&self.settings, poll, self.token) {
                    Ok(connection) => self.connection = Some(connection),
                    Err(e) => self.lost(&e, now),
                },
                Effect::Send(bytes) => {
                    let sent = self.connection.as_mut().map(|connection| connection.send(&bytes));
                    if let Some(Err(e)) = sent {
                        self.lost(&e, now);
                    }
                }
                Effect::Close => {
                    self.connection = None;
                    self.failures += 1;
                }
                Effect::Changed => changed = true,
            }
        }
        changed
    }

    fn lost(&mut self, error: &io::Error, now: Duration) {
        self.connection = None;
        self.failures += 1;
        self.session.closed(error.to_string(), now);
    }

    /// Handles what the connection has. Returns whether the records changed.
    fn receive(&mut self, buffer: &mut [u8], poll: &Poll, now: Duration) -> bool {
        let mut changed = false;
        if let Some(connection) = self.connection.as_mut().filter(|connection| !connection.established) {
            match connection.finish() {
                Ok(false) => return false,
                Ok(true) => {
                    self.connects += 1;
                    let effects = self.session.connected(now);
                    changed |= self.obey(effects, poll, now);
                }
                Err(e) => {
                    self.lost(&e, now);
                    return false;
                }
            }
        }
        // Whatever waits for room.
        self.obey(vec![Effect::Send(Vec::new())], poll, now);
        for _ in 0..READS {
            let Some(connection) = &mut self.connection else { return changed };
            match connection.read(buffer) {
                Ok(None) => return changed,
                Ok(Some(n)) => {
                    let effects = self.session.received(buffer.get(..n).unwrap_or_default(), now);
                    changed |= self.obey(effects, poll, now);
                }
                Err(e) => {
                    self.lost(&e, now);
                    return changed;
                }
            }
        }
        self.readable = self.connection.is_some();
        changed
    }

    /// Logs a new failure, and the first complete answer after one.
    fn log(&mut self) {
        let error = self.session.last_error();
        if error == self.logged.as_deref() {
            return;
        }
        match error {
            Some(error) => tracing::warn!(
                target: target::RPKI,
                cache = %self.settings.address,
                error,
                "the session with an RPKI cache failed; it is tried again, and records stay in use until they expire"
            ),
            None => {
                tracing::info!(target: target::RPKI, cache = %self.settings.address, "an RPKI cache answers again")
            }
        }
        self.logged = error.map(Into::into);
    }
}
