//! A station: its session, its queue, and the dump that it is in the middle of.

use super::connection::Connection;
use super::dump::Dump;
use mio::Poll;
use ribtide_config::BmpStation;
use ribtide_runtime::clock::Millis;
use ribtide_runtime::log::target;
use ribtide_runtime::output::Output;
use ribtide_wire::bmp::HEADER_LEN;
use ribtide_wire::bmp::build;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// How long an attempt to connect may take.
const CONNECT_TIMEOUT: Millis = 10_000;
/// The pause after the first failure; each next one is twice as long.
const FIRST_PAUSE: Millis = 1_000;
/// How long a session must have lasted for the pauses to begin from the first one again.
const STABLE_SESSION: Millis = 60_000;

/// The state of a station's session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum State {
    /// It is connected to at this time.
    Waiting(Millis),
    /// An attempt to connect is given up at this time.
    Connecting(Millis),
    /// There has been a session since this time.
    Up(Millis),
}

/// A station and its session.
pub(super) struct Station {
    pub(super) settings: BmpStation,
    pub(super) token: usize,
    pub(super) state: State,
    connection: Option<Connection>,
    output: Output,
    pub(super) dump: Option<Dump>,
    /// When the next statistics are due.
    pub(super) statistics_at: Option<Millis>,
    /// The next pause.
    pause: Millis,
    counters: Counters,
    last_error: Option<String>,
    /// The last logged error: a repeated one is logged once.
    logged: Option<String>,
}

/// Counters of a station since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Counters {
    connects: u64,
    failures: u64,
    overflows: u64,
    bytes: u64,
    dumps: u64,
}

/// A station, for a person or a metrics scraper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StationView {
    /// Its settings.
    pub settings: BmpStation,
    /// The state of its session.
    pub state: State,
    /// Milliseconds in this state, or to its end.
    pub age: Millis,
    /// Whether the tables are being dumped.
    pub dumping: bool,
    /// Bytes that wait.
    pub queued: usize,
    /// Sessions since the start.
    pub connects: u64,
    /// Sessions that were lost, and attempts that failed.
    pub failures: u64,
    /// Sessions that ended because too much waited.
    pub overflows: u64,
    /// Bytes sent.
    pub bytes: u64,
    /// Complete dumps.
    pub dumps: u64,
    /// The last failure since the last session began.
    pub last_error: Option<String>,
}

impl Station {
    pub(super) fn new(settings: BmpStation, token: usize, now: Millis) -> Station {
        Station {
            settings,
            token,
            state: State::Waiting(now),
            connection: None,
            output: Output::default(),
            dump: None,
            statistics_at: None,
            pause: FIRST_PAUSE,
            counters: Counters::default(),
            last_error: None,
            logged: None,
        }
    }

    pub(super) fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    pub(super) fn queued(&self) -> usize {
        self.output.len()
    }

    /// The next time at which something is due.
    pub(super) fn due(&self) -> Option<Millis> {
        match self.state {
            State::Waiting(at) | State::Connecting(at) => Some(at),
            State::Up(_) => self.statistics_at,
        }
    }

    pub(super) fn view(&self, now: Millis) -> StationView {
        let Counters { connects, failures, overflows, bytes, dumps } = self.counters;
        let age = match self.state {
            State::Waiting(at) | State::Connecting(at) => at.saturating_sub(now),
            State::Up(since) => now.saturating_sub(since),
        };
        StationView {
            settings: self.settings.clone(),
            state: self.state,
            age,
            dumping: self.dump.is_some(),
            queued: self.output.len(),
            connects,
            failures,
            overflows,
            bytes,
            dumps,
            last_error: self.last_error.clone(),
        }
    }

    /// Connects, or gives an attempt up, when it is time.
    pub(super) fn tick(&mut self, poll: &Poll, now: Millis) {
        match self.state {
            State::Waiting(at) if at <= now => match Connection::open(&self.settings, poll, self.token) {
                Ok(connection) => {
                    self.connection = Some(connection);
                    self.state = State::Connecting(now + CONNECT_TIMEOUT);
                }
                Err(e) => self.lost(&e, now),
            },
            State::Connecting(until) if until <= now => {
                self.lost(&io::Error::new(io::ErrorKind::TimedOut, "it does not answer"), now);
            }
            _ => {}
        }
    }

    /// The socket is ready. Returns whether a session has begun.
    pub(super) fn ready(&mut self, now: Millis) -> bool {
        let Some(connection) = &mut self.connection else { return false };
        let before = connection.established;
        let outcome = match before {
            false => connection.finish().map(drop),
            true => connection.discard_input(),
        };
        let begun = connection.established && !before;
        match outcome {
            Ok(()) if begun => {
                self.state = State::Up(now);
                self.counters.connects += 1;
                self.last_error = None;
                tracing::info!(
                    target: target::BMP,
                    station = %self.settings.name,
                    address = %self.settings.address,
                    "a BMP session with the station has begun"
                );
                self.logged = None;
            }
            Ok(()) => {}
            Err(e) => self.lost(&e, now),
        }
        begun && self.is_up()
    }

    /// Adds messages to the queue. With too many, the session ends.
    pub(super) fn push(&mut self, messages: &Arc<[u8]>, now: Millis) {
        if messages.is_empty() || !self.is_up() {
            return;
        }
        if self.output.len() + messages.len() > self.settings.queue {
            return self.overflow(now);
        }
        self.output.push(messages.clone());
    }

    fn overflow(&mut self, now: Millis) {
        self.counters.overflows += 1;
        let reason = ribtide_wire::bmp::termination::OUT_OF_RESOURCES;
        self.terminate(reason, "more waits for the station than its queue holds");
        let message = format!(
            "more than {} MiB waited for it (queue-mib); its next session begins with whole tables",
            self.settings.queue >> 20
        );
        self.lost(&io::Error::other(message), now);
    }

    /// Ends the session with this reason, and begins another one soon.
    pub(super) fn restart(&mut self, text: &str, now: Millis) {
        self.terminate(ribtide_wire::bmp::termination::ADMINISTRATIVE, text);
        self.close();
        self.state = State::Waiting(now);
    }

    /// Sends a Termination, as far as the socket takes it at once.
    pub(super) fn terminate(&mut self, reason: u16, text: &str) {
        if !self.is_up() {
            return;
        }
        self.output.cut(message_len);
        let mut message = Vec::new();
        build::termination(&mut message, reason, text);
        self.output.push(message.into());
        if let Some(connection) = &mut self.connection {
            // It ends in any case.
            let _ = connection.send(&mut self.output);
        }
    }

    /// Sends what the socket takes.
    pub(super) fn send(&mut self, now: Millis) {
        let Some(connection) = self.connection.as_mut().filter(|_| !self.output.is_empty()) else { return };
        match connection.send(&mut self.output) {
            Ok(sent) => self.counters.bytes += sent as u64,
            Err(e) => self.lost(&e, now),
        }
    }

    /// The dump is complete.
    pub(super) fn dumped(&mut self) {
        self.dump = None;
        self.counters.dumps += 1;
    }

    fn close(&mut self) {
        self.connection = None;
        self.output = Output::default();
        self.dump = None;
        self.statistics_at = None;
    }

    fn lost(&mut self, error: &io::Error, now: Millis) {
        if let State::Up(since) = self.state
            && now.saturating_sub(since) >= STABLE_SESSION
        {
            self.pause = FIRST_PAUSE;
        }
        self.close();
        self.counters.failures += 1;
        let most = self.settings.retry_interval.as_millis() as Millis;
        let pause = self.pause.min(most);
        self.pause = (2 * pause).min(most);
        self.state = State::Waiting(now + pause);
        let error = error.to_string();
        if self.logged.as_ref() != Some(&error) {
            tracing::warn!(
                target: target::BMP,
                station = %self.settings.name,
                address = %self.settings.address,
                error,
                retry_seconds = Duration::from_millis(pause).as_secs_f64(),
                "the BMP session with the station failed; it is tried again, and routing goes on"
            );
            self.logged = Some(error.clone());
        }
        self.last_error = Some(error);
    }
}

/// The length of the BMP message at the start of these bytes; `None` without a whole header.
fn message_len(bytes: &[u8]) -> Option<usize> {
    let [_, a, b, c, d, _] = *bytes.first_chunk::<HEADER_LEN>()?;
    Some((u32::from_be_bytes([a, b, c, d]) as usize).max(HEADER_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn message_len_is_that_of_the_header() {
        let mut message = Vec::new();
        build::termination(&mut message, 0, "x");
        assert_eq!(message_len(&[&message[..], &message].concat()), Some(message.len()));
        assert_eq!(message_len(&message[..HEADER_LEN - 1]), None);
    }
}
