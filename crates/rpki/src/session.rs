//! The router's side of RTR with one cache (RFC 6810, RFC 8210 sections 5 to 8, draft-ietf-sidrops-8210bis), as a state
//! machine. It begins with version 2 and goes down to 1 and 0 with a cache that does not know it.
//!
//! Times are since one start that the caller chooses. The caller connects, sends and closes as the
//! [`Effect`]s say, and calls [`Session::tick`] when [`Session::due`] is there.
//!
//! The records of a cache stay in use while its connection is down, until the Expire Interval after the
//! last complete answer. A Cache Reset replaces them at the End of Data of the next answer. Only a
//! mismatch of the Session ID discards them at once (RFC 8210 section 5.1).

use crate::records::{Changes, Records};
use ribtide_wire::rtr::{self, EXPIRE, ErrorCode, Fault, Frame, Intervals, Pdu, REFRESH, RETRY, VERSION};
use std::time::Duration;

/// The time in which a connection must be there.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// The time without a byte after which an answer counts as missing.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// The wait before the first new connection; it doubles with each failure up to the Retry Interval.
const FIRST_RETRY: Duration = Duration::from_secs(1);
/// Changes of one answer at most: twenty times the payloads of today's RPKI. A cache that sends more
/// would take all memory.
const MAX_CHANGES: usize = 10_000_000;

/// Intervals that the configuration sets instead of the cache, in seconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Overrides {
    /// Refresh Interval.
    pub refresh: Option<u32>,
    /// Retry Interval.
    pub retry: Option<u32>,
    /// Expire Interval.
    pub expire: Option<u32>,
}

/// The state of the connection with a cache.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// There is no connection.
    Waiting {
        /// Time of the next attempt.
        until: Duration,
    },
    /// A connection is being made.
    Connecting {
        /// Time of the attempt.
        since: Duration,
    },
    /// A query was sent.
    Querying {
        /// Time of the query, or of the last bytes.
        since: Duration,
        /// Whether it was a Reset Query.
        reset: bool,
    },
    /// An answer arrives.
    Receiving {
        /// Time of the last bytes.
        since: Duration,
        /// Whether it answers a Reset Query.
        reset: bool,
        /// Its Session ID.
        session: u16,
    },
    /// No query is open.
    Idle {
        /// Time of the next query.
        until: Duration,
    },
}

/// A task of the caller.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Connect, and then call [`Session::connected`] or [`Session::closed`].
    Connect,
    /// Send these bytes.
    Send(Vec<u8>),
    /// Close the connection after the bytes before; [`Session::closed`] is not called for it.
    Close,
    /// The records changed.
    Changed,
}

/// A session with one cache, and its records.
#[derive(Debug)]
pub struct Session {
    overrides: Overrides,
    /// The version of the next query.
    version: u8,
    /// Whether the cache has answered in this version on this connection.
    negotiated: bool,
    state: State,
    /// Session ID and Serial Number of the records, if the cache can send changes to them.
    id: Option<(u16, u32)>,
    records: Records,
    /// Changes of the answer that arrives.
    changes: Changes,
    /// An incomplete PDU.
    buffer: Vec<u8>,
    intervals: Intervals,
    /// Time of the last complete answer, while its records are used.
    complete: Option<Duration>,
    /// The Serial Number of a Serial Notify that came during an answer.
    notified: Option<u32>,
    /// Failures since the last complete answer.
    failures: u32,
    last_error: Option<String>,
}

impl Session {
    /// A session that connects at once.
    pub fn new(overrides: Overrides, now: Duration) -> Session {
        let mut session = Session {
            overrides,
            version: VERSION,
            negotiated: false,
            state: State::Waiting { until: now },
            id: None,
            records: Records::default(),
            changes: Changes::default(),
            buffer: Vec::new(),
            intervals: Intervals::default(),
            complete: None,
            notified: None,
            failures: 0,
            last_error: None,
        };
        session.set_overrides(overrides);
        session
    }

    /// Uses other intervals from now.
    pub fn set_overrides(&mut self, overrides: Overrides) {
        self.overrides = overrides;
    }

    /// The state of the connection.
    pub fn state(&self) -> State {
        self.state
    }

    /// Whether there is a connection.
    pub fn is_connected(&self) -> bool {
        !matches!(self.state, State::Waiting { .. } | State::Connecting { .. })
    }

    /// The records in use: those of the last complete answer.
    pub fn records(&self) -> &Records {
        &self.records
    }

    /// Time of the last complete answer, while its records are used.
    pub fn complete(&self) -> Option<Duration> {
        self.complete
    }

    /// Session ID and Serial Number of the records.
    pub fn id(&self) -> Option<(u16, u32)> {
        self.id
    }

    /// The version, if the cache has answered on this connection.
    pub fn version(&self) -> Option<u8> {
        self.negotiated.then_some(self.version)
    }

    /// The last failure, as a sentence.
    pub fn last_error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    /// The intervals in use: those of the configuration, or of the cache within the bounds of RFC 8210
    /// section 6.
    pub fn intervals(&self) -> Intervals {
        let Overrides { refresh, retry, expire } = self.overrides;
        let within =
            |value: u32, range: std::ops::RangeInclusive<u32>| value.clamp(*range.start(), *range.end());
        Intervals {
            refresh: refresh.unwrap_or(within(self.intervals.refresh, REFRESH)),
            retry: retry.unwrap_or(within(self.intervals.retry, RETRY)),
            expire: expire.unwrap_or(within(self.intervals.expire, EXPIRE)),
        }
    }

    /// The time at which [`Session::tick`] has work.
    pub fn due(&self) -> Duration {
        let state = match self.state {
            State::Waiting { until } | State::Idle { until } => until,
            State::Connecting { since } => since + CONNECT_TIMEOUT,
            State::Querying { since, .. } | State::Receiving { since, .. } => since + ANSWER_TIMEOUT,
        };
        self.expiry().map_or(state, |expiry| expiry.min(state))
    }

    fn expiry(&self) -> Option<Duration> {
        Some(self.complete? + seconds(self.intervals().expire))
    }

    /// Does what is due.
    pub fn tick(&mut self, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.expiry().is_some_and(|expiry| expiry <= now) {
            self.last_error =
                Some(format!("the records expired: no complete answer for {} s", self.intervals().expire));
            self.flush(&mut effects);
        }
        match self.state {
            State::Waiting { until } if until <= now => {
                self.state = State::Connecting { since: now };
                effects.push(Effect::Connect);
            }
            State::Connecting { since } if since + CONNECT_TIMEOUT <= now => {
                self.fail(format!("no connection within {} s", CONNECT_TIMEOUT.as_secs()), now, &mut effects);
            }
            State::Querying { since, .. } | State::Receiving { since, .. }
                if since + ANSWER_TIMEOUT <= now =>
            {
                self.fail(format!("no answer for {} s", ANSWER_TIMEOUT.as_secs()), now, &mut effects);
            }
            State::Idle { until } if until <= now => self.query(now, &mut effects),
            _ => {}
        }
        effects
    }

    /// The caller closed the connection, and wants another one at once. The records stay in use.
    pub fn reconnect(&mut self, now: Duration) {
        self.changes = Changes::default();
        self.state = State::Waiting { until: now };
    }

    /// The connection is there.
    pub fn connected(&mut self, now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.negotiated = false;
        self.notified = None;
        self.buffer.clear();
        self.query(now, &mut effects);
        effects
    }

    /// There is no connection, or no longer; `why` is a sentence.
    pub fn closed(&mut self, why: impl Into<String>, now: Duration) {
        let mut effects = Vec::new();
        self.fail(why.into(), now, &mut effects);
    }

    /// Handles bytes of the cache.
    pub fn received(&mut self, bytes: &[u8], now: Duration) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !self.is_connected() {
            return effects;
        }
        if let State::Querying { since, .. } | State::Receiving { since, .. } = &mut self.state {
            *since = now;
        }
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.extend_from_slice(bytes);
        let mut rest = buffer.as_slice();
        while self.is_connected() {
            match rtr::frame(rest) {
                Ok(None) => break,
                Ok(Some(frame)) => {
                    rest = rest.get(frame.bytes.len()..).unwrap_or_default();
                    if let Err(fault) = self.handle(&frame, now, &mut effects) {
                        self.refuse(&fault, frame.bytes, !frame.is_error_report(), now, &mut effects);
                    }
                }
                Err(fault) => {
                    let header = rest.get(..rtr::HEADER).unwrap_or_default();
                    self.refuse(&fault, header, true, now, &mut effects);
                }
            }
        }
        if self.is_connected() {
            let tail = rest.len();
            buffer.drain(..buffer.len() - tail);
            self.buffer = buffer;
        }
        effects
    }

    /// Checks the version of a PDU, and handles it.
    fn handle(&mut self, frame: &Frame<'_>, now: Duration, effects: &mut Vec<Effect>) -> Result<(), Fault> {
        // A cache may send these before it knows our version, and in any version (RFC 8210 section 7).
        if !self.negotiated && frame.is_serial_notify() {
            return Ok(());
        }
        let pdu = match frame.version {
            // Its format is unknown, except for what the sender says about versions.
            version if version > VERSION && !frame.is_error_report() => {
                let text = format!("version {version}; versions 0 to {VERSION} are supported");
                return Err(Fault::new(ErrorCode::UNSUPPORTED_VERSION, text));
            }
            _ => frame.parse()?,
        };
        if let Pdu::ErrorReport { code, text, .. } = pdu {
            self.reported(frame.version, code, text, now, effects);
            return Ok(());
        }
        if !self.negotiated {
            if frame.version > self.version {
                let text = format!("version {} in answer to version {}", frame.version, self.version);
                return Err(Fault::new(ErrorCode::UNEXPECTED_VERSION, text));
            }
            if frame.version < self.version {
                self.use_version(frame.version);
            }
            self.negotiated = true;
        } else if frame.version != self.version {
            let text = format!("version {} in a session of version {}", frame.version, self.version);
            return Err(Fault::new(ErrorCode::UNEXPECTED_VERSION, text));
        }
        match (self.state, pdu) {
            (_, Pdu::SerialNotify { session, serial }) => return self.notify(session, serial, now, effects),
            (State::Querying { reset, .. }, Pdu::CacheResponse { session }) => {
                if !reset && let Some((known, _)) = self.id {
                    self.same_session(known, session, effects)?;
                }
                self.changes = Changes::default();
                self.state = State::Receiving { since: now, reset, session };
            }
            // In answer to a Reset Query it would have no end.
            (State::Querying { reset: false, .. }, Pdu::CacheReset) => {
                self.id = None;
                self.query(now, effects);
            }
            (State::Receiving { .. }, Pdu::Prefix { announce, payload }) => {
                if self.changes.len() >= MAX_CHANGES {
                    return Err(corrupt(format!("an answer with more than {MAX_CHANGES} records")));
                }
                self.changes.push(payload, announce);
            }
            (State::Receiving { .. }, Pdu::RouterKey) => {}
            (State::Receiving { .. }, Pdu::Aspa { announce, families, customer, providers }) => {
                if self.changes.len() + providers.iter().len() >= MAX_CHANGES {
                    return Err(corrupt(format!("an answer with more than {MAX_CHANGES} records")));
                }
                self.changes.push_aspa(customer, families, announce.then(|| providers.iter()));
            }
            (
                State::Receiving { reset, session, .. },
                Pdu::EndOfData { session: other, serial, intervals },
            ) => {
                self.same_session(session, other, effects)?;
                self.end_of_data(reset, (session, serial), intervals, now, effects)?;
            }
            (state, pdu) => return Err(corrupt(format!("unexpected {} while {}", name(&pdu), doing(state)))),
        }
        Ok(())
    }

    fn notify(
        &mut self,
        session: u16,
        serial: u32,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Fault> {
        if let Some((known, _)) = self.id {
            self.same_session(known, session, effects)?;
        }
        match self.state {
            State::Idle { .. } if self.id.is_none_or(|(_, known)| known != serial) => {
                self.query(now, effects)
            }
            State::Querying { .. } | State::Receiving { .. } => self.notified = Some(serial),
            _ => {}
        }
        Ok(())
    }

    /// Another Session ID ends the session with Corrupt Data, and discards the records of the cache (RFC 8210 section 5.1).
    fn same_session(&mut self, known: u16, session: u16, effects: &mut Vec<Effect>) -> Result<(), Fault> {
        if known == session {
            return Ok(());
        }
        self.flush(effects);
        Err(corrupt(format!("Session ID {session}, not {known}")))
    }

    fn end_of_data(
        &mut self,
        reset: bool,
        id: (u16, u32),
        intervals: Option<Intervals>,
        now: Duration,
        effects: &mut Vec<Effect>,
    ) -> Result<(), Fault> {
        let changes = std::mem::take(&mut self.changes);
        let is_same = changes.is_empty() && !reset;
        let applied = match reset {
            true => {
                let mut records = Records::default();
                records.apply(changes).map(|()| self.records = records)
            }
            false => self.records.apply(changes),
        };
        if let Err(unfit) = applied {
            // Our records differ from those that the cache assumes: the next query is a Reset Query.
            self.id = None;
            return Err(Fault::new(unfit.code, unfit.record.to_string()));
        }
        self.id = Some(id);
        self.intervals = intervals.unwrap_or_default();
        self.complete = Some(now);
        self.failures = 0;
        self.last_error = None;
        self.state = State::Idle { until: now + seconds(self.intervals().refresh) };
        if !is_same {
            effects.push(Effect::Changed);
        }
        if self.notified.take().is_some_and(|serial| serial != id.1) {
            self.query(now, effects);
        }
        Ok(())
    }

    /// Handles an Error Report (RFC 8210 section 12).
    fn reported(
        &mut self,
        version: u8,
        code: ErrorCode,
        text: &[u8],
        now: Duration,
        effects: &mut Vec<Effect>,
    ) {
        let text: String =
            String::from_utf8_lossy(text).chars().filter(|c| !c.is_control()).take(200).collect();
        let why = match text.as_str() {
            "" => format!("the cache reports: {code}"),
            text => format!("the cache reports: {code} ({text})"),
        };
        match code {
            ErrorCode::NO_DATA_AVAILABLE => {
                // Reset Queries follow, after a Serial Query too (RFC 8210 section 8.4).
                self.id = None;
                self.last_error = Some(why);
                self.changes = Changes::default();
                self.state = State::Idle { until: now + seconds(self.intervals().retry) };
            }
            ErrorCode::UNSUPPORTED_VERSION if !self.negotiated && self.version > 0 => {
                self.use_version(version.min(self.version - 1));
                self.fail(why, now, effects);
                self.state = State::Waiting { until: now };
            }
            _ => {
                // A cache with another Session ID says so with Corrupt Data: the next query is a Reset Query, whose
                // answer replaces the records.
                self.id = None;
                self.fail(why, now, effects);
            }
        }
    }

    /// Session ID and Serial Number belong to one version (RFC 8210 section 5.1).
    fn use_version(&mut self, version: u8) {
        if version != self.version {
            self.version = version;
            self.id = None;
        }
    }

    /// Sends a Serial Query, or a Reset Query without records that the cache can send changes to.
    fn query(&mut self, now: Duration, effects: &mut Vec<Effect>) {
        let pdu = match self.id {
            Some((session, serial)) => Pdu::SerialQuery { session, serial },
            None => Pdu::ResetQuery,
        };
        let mut bytes = Vec::new();
        pdu.write(self.version, &mut bytes);
        effects.push(Effect::Send(bytes));
        self.changes = Changes::default();
        self.state = State::Querying { since: now, reset: self.id.is_none() };
    }

    /// Ends the session because of a PDU, with an Error Report unless it was one itself.
    fn refuse(&mut self, fault: &Fault, pdu: &[u8], report: bool, now: Duration, effects: &mut Vec<Effect>) {
        if report {
            let mut bytes = Vec::new();
            Pdu::ErrorReport { code: fault.code, pdu, text: fault.text.as_bytes() }
                .write(self.version, &mut bytes);
            effects.push(Effect::Send(bytes));
        }
        self.fail(fault.to_string(), now, effects);
    }

    fn fail(&mut self, why: String, now: Duration, effects: &mut Vec<Effect>) {
        if !matches!(self.state, State::Waiting { .. }) {
            effects.push(Effect::Close);
        }
        // A restarted cache may close before its Error Report is out, so that the same query would have no answer for ever.
        if matches!(self.state, State::Querying { reset: false, .. }) {
            self.id = None;
        }
        let wait = FIRST_RETRY.saturating_mul(1 << self.failures.min(16));
        self.failures += 1;
        self.last_error = Some(why);
        self.negotiated = false;
        self.changes = Changes::default();
        self.buffer = Vec::new();
        self.state = State::Waiting { until: now + wait.min(seconds(self.intervals().retry)) };
    }

    fn flush(&mut self, effects: &mut Vec<Effect>) {
        self.records.clear();
        self.id = None;
        self.complete = None;
        effects.push(Effect::Changed);
    }
}

fn corrupt(text: String) -> Fault {
    Fault::new(ErrorCode::CORRUPT_DATA, text)
}

fn seconds(n: u32) -> Duration {
    Duration::from_secs(u64::from(n))
}

fn name(pdu: &Pdu<'_>) -> &'static str {
    match pdu {
        Pdu::SerialNotify { .. } => "Serial Notify",
        Pdu::SerialQuery { .. } => "Serial Query",
        Pdu::ResetQuery => "Reset Query",
        Pdu::CacheResponse { .. } => "Cache Response",
        Pdu::Prefix { .. } => "Prefix",
        Pdu::EndOfData { .. } => "End of Data",
        Pdu::CacheReset => "Cache Reset",
        Pdu::RouterKey => "Router Key",
        Pdu::Aspa { .. } => "ASPA",
        Pdu::ErrorReport { .. } => "Error Report",
    }
}

fn doing(state: State) -> &'static str {
    match state {
        State::Waiting { .. } | State::Connecting { .. } => "there is no connection",
        State::Querying { .. } => "a query is open",
        State::Receiving { .. } => "an answer arrives",
        State::Idle { .. } => "no query is open",
    }
}

#[cfg(test)]
mod tests;
