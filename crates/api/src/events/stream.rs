//! `GET /v1/events`: server-sent events (WHATWG HTML, 9.2) of the log and of routes.
//!
//! A client that goes away and comes back sends the id of the last event (`Last-Event-ID`), and gets those after it that are
//! kept. What is not is an event `lost`. A client that does not read is ended; no stage waits for it.

use super::{Client, KeptEvent, subscribe};
use crate::answers::{LogFilter, Refusal, prefix_filter};
use crate::request::EventsQuery;
use crate::state::ApiState;
use crate::task;
use axum::body::{Body, HttpBody};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use hyper::body::{Bytes, Frame};
use ribtide_model::{LogEvent, LostEvents};
use ribtide_policy::PrefixFilter;
use ribtide_prefix::AfiSafi;
use ribtide_runtime::log::{self, target};
use ribtide_runtime::thread::Ended;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::{Instant, Sleep, sleep};

/// Streams of the clients of one listener, at most.
const STREAMS_MAX: usize = 16;
/// How often kept events are looked for.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Route events of a message to the client, at most.
const EVENTS_BATCH_MAX: usize = 1000;
/// Without an event, a client gets a comment so often: so either side notices that the other is gone.
const HEARTBEAT: Duration = Duration::from_secs(15);
/// How long a client may take to read what waits for it.
const READ_TIMEOUT: Duration = Duration::from_secs(60);

/// The kinds of events, as `event:` has them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Kinds(u8);

/// The names of the kinds, by their bits. The last is of routes, the others are parts of the log.
const KINDS: [&str; 5] = ["session", "repair", "configuration", "log", "route"];
const ROUTE: u8 = 1 << 4;
/// Without `kind`: all but the rest of the log.
const DEFAULT_KINDS: Kinds = Kinds(0b10111);

impl Kinds {
    fn parse(text: Option<&str>) -> Result<Kinds, Refusal> {
        let Some(text) = text else { return Ok(DEFAULT_KINDS) };
        let mut kinds = Kinds(0);
        for word in text.split(',') {
            let at = KINDS.iter().position(|kind| *kind == word).ok_or_else(|| {
                Refusal::Bad(format!("kind: \"{word}\" is none; write one or several of {}", KINDS.join(",")))
            })?;
            kinds.0 |= 1 << at;
        }
        Ok(kinds)
    }

    fn has(self, kind: &str) -> bool {
        KINDS.iter().position(|name| *name == kind).is_some_and(|at| self.0 & 1 << at != 0)
    }
}

/// The kind of an event of the log.
fn kind_of(event: &LogEvent) -> &'static str {
    let is_repair = event.message.ends_with("repaired") || event.fields.contains_key("difference");
    match event.target.as_str() {
        target::BGP_SESSION => "session",
        _ if is_repair => "repair",
        target::API | target::ROUTER => "configuration",
        _ => "log",
    }
}

/// The streams of a listener's clients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Streams(Arc<AtomicUsize>);

/// A place among them.
struct Place(Arc<AtomicUsize>);

impl Streams {
    fn take(&self) -> Result<Place, Refusal> {
        if self.0.fetch_add(1, Relaxed) >= STREAMS_MAX {
            self.0.fetch_sub(1, Relaxed);
            return Err(Refusal::Busy(format!(
                "{STREAMS_MAX} clients follow events already; close one, or read /v1/log"
            )));
        }
        Ok(Place(self.0.clone()))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// The conditions of a client.
struct Filter {
    kinds: Kinds,
    prefixes: Option<PrefixFilter>,
    exact: Option<String>,
    neighbor: Option<IpAddr>,
    family: Option<AfiSafi>,
    log: LogFilter,
}

impl Filter {
    fn new(query: &EventsQuery) -> Result<Filter, Refusal> {
        let prefixes = prefix_filter(query.prefix.as_deref(), query.r#match)?;
        let exact = query.prefix.clone().filter(|_| prefixes.is_none());
        if let Some(text) = &exact {
            let parsed: Result<ribtide_prefix::AnyPrefix, _> = text.parse();
            parsed.map_err(|e| Refusal::Bad(format!("prefix: {e}")))?;
        }
        let bad =
            |name: &str, text: &str, what: &str| Refusal::Bad(format!("{name}: \"{text}\" is no {what}"));
        let address = |text: &String| {
            let address = text.split('%').next().unwrap_or(text).parse();
            address.map_err(|_| bad("neighbor", text, "address; write one such as 192.0.2.1"))
        };
        let family = |text: &String| {
            let family = AfiSafi::ALL.into_iter().find(|family| family.name() == text);
            family.ok_or_else(|| bad("family", text, "family; write ipv4-unicast or ipv6-unicast"))
        };
        Ok(Filter {
            kinds: Kinds::parse(query.kind.as_deref())?,
            neighbor: query.neighbor.as_ref().map(address).transpose()?,
            family: query.family.as_ref().map(family).transpose()?,
            log: LogFilter::new(query)?,
            prefixes,
            exact,
        })
    }

    fn has_route(&self, event: &KeptEvent) -> bool {
        let is_of = |neighbor: &IpAddr| event.neighbors.contains(&Some(*neighbor));
        self.prefixes.is_none_or(|set| set.has_any(event.prefix))
            && self.exact.as_ref().is_none_or(|exact| exact.parse() == Ok(event.prefix))
            && self.neighbor.as_ref().is_none_or(is_of)
            && self.family.is_none_or(|family| family == event.family)
    }

    fn has_log(&self, kind: &str, event: &LogEvent) -> bool {
        self.kinds.has(kind) && self.family.is_none() && self.log.has(event)
    }

    fn wants_routes(&self) -> bool {
        self.kinds.0 & ROUTE != 0
    }

    fn wants_log(&self) -> bool {
        self.kinds.0 & !ROUTE != 0
    }
}

/// Where a client is: in the log, and in the kept changes of routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Position {
    /// The start of the process.
    start: u64,
    log: u64,
    recording: u64,
    route: u64,
}

impl Position {
    fn id(self) -> String {
        let Position { start, log, recording, route } = self;
        format!("{start:x}-{log}-{recording}-{route}")
    }

    fn parse(id: &str) -> Option<Position> {
        let mut parts = id.split('-');
        let start = u64::from_str_radix(parts.next()?, 16).ok()?;
        let mut number = || parts.next()?.parse().ok();
        let position = Position { start, log: number()?, recording: number()?, route: number()? };
        parts.next().is_none().then_some(position)
    }
}

/// A client's stream.
struct Stream {
    state: Arc<ApiState>,
    filter: Filter,
    at: Position,
    /// While it exists, changes of routes are taken.
    _client: Option<Client>,
    _place: Place,
}

/// Answers `GET /v1/events`. `last`: the header `Last-Event-ID`.
///
/// # Errors
/// The query is wrong, or there are too many streams.
pub(crate) fn response(
    state: Arc<ApiState>,
    streams: &Streams,
    query: &EventsQuery,
    last: Option<&str>,
) -> Result<Response, Refusal> {
    let filter = Filter::new(query)?;
    let last = last.or(query.last_event_id.as_deref()).filter(|id| !id.is_empty());
    let bad =
        || Refusal::Bad("Last-Event-ID is no id of this API; send that of the last event, or none".into());
    let last = last.map(|id| Position::parse(id).ok_or_else(bad)).transpose()?;
    let place = streams.take()?;
    let client = filter.wants_routes().then(|| subscribe(&state));
    let (recording, route) = state.route_events.position();
    let now = Position { start: state.start, log: log::last_number(), recording, route };
    let mut lost = String::new();
    let at = last.map_or(now, |last| resumed(last, now, &filter, &mut lost));
    let begin = format!("retry: 1000\nid: {}\n\n{lost}", at.id());
    let stream = Stream { state, filter, at, _client: client, _place: place };
    let head = [(CONTENT_TYPE, "text/event-stream"), (CACHE_CONTROL, "no-store")];
    Ok((head, Body::new(EventStream::new(stream, begin))).into_response())
}

/// Where a client goes on that was at `last`; says what is lost.
fn resumed(last: Position, now: Position, filter: &Filter, out: &mut String) -> Position {
    let mut at = now;
    let mut lost = |of: &str, reason: &str| {
        write_lost(out, &LostEvents { of: of.into(), events: None, reason: reason.into() }, now);
    };
    if last.start != now.start {
        if filter.wants_log() {
            lost("log", "the router was started again");
        }
        if filter.wants_routes() {
            lost("route", "the router was started again");
        }
        return at;
    }
    at.log = last.log.min(now.log);
    if last.recording == now.recording {
        at.route = last.route.min(now.route);
    } else if filter.wants_routes() {
        lost("route", "no client followed routes in the meantime, so changes were not kept");
    }
    at
}

fn write_lost(out: &mut String, lost: &LostEvents, at: Position) {
    write_event(out, "lost", &at.id(), &serde_json::to_string(lost).unwrap_or_default());
}

/// JSON has no line break, so it is one line of data.
fn write_event(out: &mut String, kind: &str, id: &str, data: &str) {
    let _ = write!(out, "event: {kind}\nid: {id}\ndata: {data}\n\n");
}

impl Stream {
    /// Appends the next events. Returns whether there are more.
    fn collect(&mut self, out: &mut String) -> bool {
        if self.filter.wants_log() {
            self.collect_log(out);
        }
        self.filter.wants_routes() && self.collect_routes(out)
    }

    fn collect_log(&mut self, out: &mut String) {
        for recent in log::recent(self.at.log) {
            let missing = recent.0 - self.at.log - 1;
            self.at.log = recent.0;
            if missing > 0 {
                self.lost("log", missing, out);
            }
            let Some(event) = crate::answers::log_event(&recent) else { continue };
            let kind = kind_of(&event);
            if self.filter.has_log(kind, &event) {
                let data = serde_json::to_string(&event).unwrap_or_default();
                write_event(out, kind, &self.at.id(), &data);
            }
        }
    }

    fn collect_routes(&mut self, out: &mut String) -> bool {
        let (recording, _) = self.state.route_events.position();
        if recording != self.at.recording {
            self.at = Position { recording, route: 0, ..self.at };
        }
        let (events, last) = self.state.route_events.after(self.at.route, EVENTS_BATCH_MAX);
        let is_full = events.len() == EVENTS_BATCH_MAX;
        for event in events {
            let missing = event.number - self.at.route - 1;
            self.at.route = event.number;
            if missing > 0 {
                self.lost("route", missing, out);
            }
            if self.filter.has_route(&event) {
                write_event(out, "route", &self.at.id(), &event.data);
            }
        }
        let missing = last.saturating_sub(self.at.route);
        self.at.route = last.max(self.at.route);
        if missing > 0 {
            self.lost("route", missing, out);
        }
        is_full
    }

    fn lost(&self, of: &str, events: u64, out: &mut String) {
        let reason = "they were more than are kept for clients, or came faster than they are taken";
        let lost = LostEvents { of: of.into(), events: Some(events), reason: reason.into() };
        write_lost(out, &lost, self.at);
    }
}

/// The body of a response: the events, as the connection takes them.
pub(crate) struct EventStream {
    unread: Arc<Mutex<Unread>>,
    pause: Pin<Box<Sleep>>,
}

/// What a connection has not taken.
struct Unread {
    /// `None` once the client has not read for too long.
    stream: Option<Stream>,
    next: String,
    /// When the connection last had room.
    polled: Instant,
    sent: Instant,
}

impl EventStream {
    fn new(stream: Stream, begin: String) -> EventStream {
        let now = Instant::now();
        let unread = Unread { stream: Some(stream), next: begin, polled: now, sent: now };
        let unread = Arc::new(Mutex::new(unread));
        task::spawn("unread events", end_unread(Arc::downgrade(&unread)));
        EventStream { unread, pause: Box::pin(sleep(POLL_INTERVAL)) }
    }
}

/// Ends a stream that its client does not read, so that it holds neither a place nor routes.
async fn end_unread(unread: Weak<Mutex<Unread>>) -> Ended {
    loop {
        sleep(READ_TIMEOUT / 4).await;
        let Some(unread) = unread.upgrade() else { return Ended::done() };
        let mut unread = unread.lock().unwrap_or_else(PoisonError::into_inner);
        if unread.polled.elapsed() >= READ_TIMEOUT {
            unread.stream = None;
            return Ended::done();
        }
    }
}

impl Unread {
    /// The next message, if there is one; `None` at the end.
    fn message(&mut self) -> Option<Option<Bytes>> {
        let now = Instant::now();
        self.polled = now;
        let stream = self.stream.as_mut()?;
        while stream.collect(&mut self.next) && self.next.is_empty() {}
        if self.next.is_empty() && now.duration_since(self.sent) >= HEARTBEAT {
            // The id of what the filter has left out, so that a resumed client does not count it as lost.
            self.next = format!(": alive\nid: {}\n\n", stream.at.id());
        }
        if self.next.is_empty() {
            return Some(None);
        }
        self.sent = now;
        Some(Some(Bytes::from(std::mem::take(&mut self.next))))
    }
}

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        loop {
            let message = self.unread.lock().unwrap_or_else(PoisonError::into_inner).message();
            match message {
                None => return Poll::Ready(None),
                Some(Some(chunk)) => return Poll::Ready(Some(Ok(Frame::data(chunk)))),
                Some(None) => {}
            }
            ready!(self.pause.as_mut().poll(context));
            self.pause.as_mut().reset(Instant::now() + POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_position() {
        let at = Position { start: 0xabc, log: 7, recording: 2, route: 1 << 40 };
        assert_eq!(Position::parse(&at.id()), Some(at));
        for wrong in ["", "1", "abc-7-2", "abc-7-2-1-1", "abc-x-2-1", "-7-2-1"] {
            assert_eq!(Position::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn kinds_are_a_list_and_a_misspelt_one_is_refused() {
        let kinds = Kinds::parse(Some("route,session")).unwrap();
        assert!(kinds.has("route") && kinds.has("session") && !kinds.has("log") && !kinds.has("repair"));
        assert!(!Kinds::parse(None).unwrap().has("log") && Kinds::parse(None).unwrap().has("route"));
        assert!(
            matches!(Kinds::parse(Some("routes")), Err(Refusal::Bad(why)) if why.contains("session,repair"))
        );
    }

    #[test]
    fn a_resumed_client_is_told_what_is_lost_without_a_number() {
        let filter = Filter::new(&EventsQuery::default()).unwrap();
        let now = Position { start: 1, log: 50, recording: 3, route: 9 };
        let resume = |last: Position| {
            let mut out = String::new();
            (resumed(last, now, &filter, &mut out), out.matches("event: lost").count())
        };
        let last = Position { log: 40, route: 5, ..now };
        assert_eq!(resume(last), (last, 0));
        assert_eq!(resume(Position { recording: 2, ..last }), (Position { log: 40, ..now }, 1));
        assert_eq!(resume(Position { start: 2, ..last }), (now, 2));
        // A number that was never given.
        assert_eq!(resume(Position { log: 99, route: 99, ..now }), (now, 0));
    }
}
