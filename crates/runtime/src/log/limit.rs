//! The rate limit of the log, by cause.
//!
//! A cause is a target, a level, a sentence and the neighbour that it is about. One that repeats has [`LINES_MAX`] lines in
//! each [`PERIOD`]; further ones are left out of lines and of kept events, and counted. At the end of the period, or of the
//! process, one line has their number: so nothing is lost without its count. Another cause is not concerned, however loud
//! one is. Requests that change the router have a line each: their log is a record of changes and callers. Events of
//! sessions are kept each, and only their lines are limited: who follows `/v1/events` must know the state of a session that
//! flaps.

use super::target;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter, Layer};

/// Lines of a cause in each period.
const LINES_MAX: u64 = 20;
/// The period.
const PERIOD: Duration = Duration::from_secs(10);
/// Causes that are known at the same time, at most; the events of others are not limited.
const CAUSES_MAX: usize = 4096;

/// The causes of the last period.
#[derive(Clone, Default)]
pub(super) struct Limit(Arc<Mutex<HashMap<Cause, Count>>>);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Cause {
    target: &'static str,
    level: Level,
    message: String,
    neighbor: String,
}

struct Count {
    since: Instant,
    lines: u64,
    left_out: u64,
}

impl Limit {
    /// Whether an event is written now.
    fn admits(&self, cause: Cause, now: Instant) -> bool {
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if causes.len() >= CAUSES_MAX {
            causes.retain(|_, count| count.left_out > 0 || now.duration_since(count.since) < PERIOD);
            if causes.len() >= CAUSES_MAX && !causes.contains_key(&cause) {
                return true;
            }
        }
        match causes.entry(cause) {
            Entry::Vacant(entry) => {
                entry.insert(Count { since: now, lines: 1, left_out: 0 });
                true
            }
            Entry::Occupied(mut entry) => {
                let count = entry.get_mut();
                if count.left_out == 0 && now.duration_since(count.since) >= PERIOD {
                    *count = Count { since: now, lines: 0, left_out: 0 };
                }
                // With some left out, the next period begins when their number is written.
                if count.lines >= LINES_MAX {
                    count.left_out += 1;
                    return false;
                }
                count.lines += 1;
                true
            }
        }
    }

    /// Writes the numbers of left-out events whose period is over at `now`; `None`: of all. The caller handles no event.
    pub(super) fn report(&self, now: Option<Instant>) {
        let is_over = |count: &Count| now.is_none_or(|now| now.duration_since(count.since) >= PERIOD);
        let mut causes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let over: Vec<(Cause, Count)> = causes.extract_if(|_, count| is_over(count)).collect();
        // The lines are events, too.
        drop(causes);
        for (Cause { target, level, message, neighbor }, Count { left_out, .. }) in over {
            if left_out == 0 {
                continue;
            }
            let neighbor = Some(neighbor.as_str()).filter(|neighbor| !neighbor.is_empty());
            macro_rules! line {
                ($level:ident) => {
                    tracing::$level!(target: target::LOG, of = target, neighbor, "repeated {left_out} times: {message}")
                };
            }
            match level {
                Level::ERROR => line!(error),
                Level::WARN => line!(warn),
                Level::INFO => line!(info),
                Level::DEBUG => line!(debug),
                Level::TRACE => line!(trace),
            }
        }
    }
}

impl Limit {
    /// The same limit, of the lines alone, for events that are kept each.
    pub(super) fn of_lines(&self) -> LineLimit {
        LineLimit(self.clone())
    }

    fn admits_event(&self, event: &Event<'_>) -> bool {
        let metadata = event.metadata();
        let mut cause = Cause {
            target: metadata.target(),
            level: *metadata.level(),
            message: String::new(),
            neighbor: String::new(),
        };
        event.record(&mut cause);
        self.admits(cause, Instant::now())
    }
}

/// Whether each event is kept, and its line alone is limited.
fn is_kept(metadata: &Metadata<'_>) -> bool {
    metadata.target() == target::BGP_SESSION
}

impl<S: Subscriber> Layer<S> for Limit {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let is_record = metadata.target() == target::API && *metadata.level() == Level::INFO;
        // The numbers of left-out lines are the last word about them.
        is_record || metadata.target() == target::LOG || is_kept(metadata) || self.admits_event(event)
    }
}

/// The limit of lines whose events are kept each.
pub(super) struct LineLimit(Limit);

impl<S> Filter<S> for LineLimit {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        !is_kept(event.metadata()) || self.0.admits_event(event)
    }
}

impl Visit for Cause {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            "neighbor" => value.clone_into(&mut self.neighbor),
            _ => {}
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "neighbor" => self.neighbor = format!("{value:?}"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Lines, LogSettings, QUEUE_LINES, Queue, Recent, capture, subscriber};
    use super::*;

    fn cause(message: &str, neighbor: &str) -> Cause {
        Cause { target: target::BGP, level: Level::ERROR, message: message.into(), neighbor: neighbor.into() }
    }

    #[test]
    fn a_cause_that_repeats_is_limited_and_others_are_not() {
        let (limit, now) = (Limit::default(), Instant::now());
        let admitted = (0..1000).filter(|_| limit.admits(cause("down", "192.0.2.1"), now)).count();
        assert_eq!(admitted as u64, LINES_MAX);
        assert!(limit.admits(cause("down", "192.0.2.2"), now) && limit.admits(cause("up", "192.0.2.1"), now));
        // Its next period begins once the number is reported.
        assert!(!limit.admits(cause("down", "192.0.2.1"), now + PERIOD));
        let settings = LogSettings::default();
        let report = capture(&settings, || limit.report(Some(now + PERIOD)));
        assert!(
            report.contains("ERROR log: repeated 981 times: down") && report.lines().count() == 1,
            "{report}"
        );
        assert!(report.contains("neighbor=192.0.2.1") && report.contains("of=bgp"), "{report}");
        assert!(limit.admits(cause("down", "192.0.2.1"), now + PERIOD));
        assert_eq!(capture(&settings, || limit.report(None)), "");
    }

    #[test]
    fn every_event_is_written_or_counted() {
        let limit = Limit::default();
        let settings = LogSettings::default();
        let lines = capture(&settings, || {
            for n in 0..500 {
                tracing::error!(target: target::RIB, n, "the table is full");
            }
            for n in 0..50 {
                tracing::info!(target: target::API, n, "a client changed the router");
            }
        });
        assert_eq!(lines.matches("the table is full").count() as u64, LINES_MAX);
        assert_eq!(lines.matches("a client changed the router").count(), 50);
        // The end of a process reports the rest.
        let admitted = (0..500).filter(|_| limit.admits(cause("full", ""), Instant::now())).count();
        assert_eq!(admitted as u64, LINES_MAX);
        let report = capture(&settings, || limit.report(None));
        assert!(report.contains(&format!("repeated {} times: full", 500 - LINES_MAX)), "{report}");
    }

    #[test]
    fn events_of_sessions_are_kept_each_and_their_lines_are_limited() {
        let (limit, recent) = (Limit::default(), Recent::default());
        let (queue, items) = Queue::new(QUEUE_LINES);
        let settings = LogSettings::default();
        let lines = Lines::new(settings.format, false);
        let levels = settings.levels.0.clone();
        let log = subscriber(levels, limit.clone(), lines, queue, recent.clone());
        tracing::subscriber::with_default(log, || {
            for n in 0..100 {
                tracing::info!(target: target::BGP_SESSION, n, neighbor = "192.0.2.1", "the session is up");
                tracing::error!(target: target::RIB, n, "the table is full");
            }
        });
        let kept = recent.after(0);
        let count = |sentence: &str| {
            let has = |event: &[u8]| String::from_utf8_lossy(event).contains(sentence);
            kept.iter().filter(|(_, event)| has(event)).count() as u64
        };
        assert_eq!((count("is up"), count("is full")), (100, LINES_MAX));
        assert_eq!(items.try_iter().count() as u64, 2 * LINES_MAX);
        let report = capture(&settings, || limit.report(None));
        assert!(
            report.contains(&format!("repeated {} times: the session is up", 100 - LINES_MAX)),
            "{report}"
        );
    }

    #[test]
    fn causes_are_bounded_and_those_beyond_are_not_limited() {
        let (limit, now) = (Limit::default(), Instant::now());
        (0..CAUSES_MAX).for_each(|n| assert!(limit.admits(cause(&n.to_string(), ""), now)));
        assert!((0..100).all(|_| limit.admits(cause("beyond", ""), now)));
        // Those of earlier periods make room.
        let later = now + PERIOD;
        let admitted = (0..100).filter(|_| limit.admits(cause("beyond", ""), later)).count();
        assert_eq!(admitted as u64, LINES_MAX);
        assert_eq!(limit.0.lock().unwrap().len(), 1);
    }
}
