//! The latest events of the log as JSON, for queries: `ribtide show log`.
//!
//! They are kept as they are logged, so a reader of standard error that stands still hides none of them. The lock is
//! held to append or copy handles, never while an event is formatted or written.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use tracing_subscriber::fmt::MakeWriter;

/// Events that are kept, at most.
const EVENTS_MAX: usize = 2000;
/// Bytes that are kept, at most.
const BYTES_MAX: usize = 1 << 20;

/// The latest events.
#[derive(Clone, Debug, Default)]
pub(super) struct Recent(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    /// Events so far.
    count: u64,
    bytes: usize,
    events: VecDeque<Arc<[u8]>>,
}

/// An event: its number, from 1 in the order of the log, and its JSON object.
pub type RecentEvent = (u64, Arc<[u8]>);

impl Recent {
    /// The kept events with a higher number than `after`, in order.
    pub(super) fn after(&self, after: u64) -> Vec<RecentEvent> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let first = kept.count - kept.events.len() as u64 + 1;
        let skipped = usize::try_from(after.saturating_add(1).saturating_sub(first)).unwrap_or(usize::MAX);
        (first..)
            .zip(kept.events.iter())
            .skip(skipped)
            .map(|(number, event)| (number, event.clone()))
            .collect()
    }

    /// How many events there were so far: the number of the last one.
    pub(super) fn count(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).count
    }

    fn push(&self, event: &[u8]) {
        let event: Arc<[u8]> = event.into();
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.count += 1;
        kept.bytes += event.len();
        kept.events.push_back(event);
        while (kept.events.len() > EVENTS_MAX || kept.bytes > BYTES_MAX)
            && let Some(oldest) = kept.events.pop_front()
        {
            kept.bytes -= oldest.len();
        }
    }
}

impl Write for Recent {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        self.push(event);
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Recent {
    type Writer = Recent;

    fn make_writer(&'a self) -> Recent {
        self.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(recent: &Recent, after: u64) -> (Option<u64>, Option<u64>, usize) {
        let events = recent.after(after);
        (events.first().map(|e| e.0), events.last().map(|e| e.0), events.len())
    }

    #[test]
    fn kept_events_are_bounded_in_number_and_bytes() {
        let recent = Recent::default();
        assert_eq!(numbers(&recent, 0), (None, None, 0));
        (0..EVENTS_MAX + 5).for_each(|n| recent.push(n.to_string().as_bytes()));
        let last = EVENTS_MAX as u64 + 5;
        assert_eq!(numbers(&recent, 0), (Some(6), Some(last), EVENTS_MAX));
        assert_eq!(&*recent.after(last - 1)[0].1, (last - 1).to_string().as_bytes());
        assert_eq!(numbers(&recent, last), (None, None, 0));
        assert_eq!(numbers(&recent, u64::MAX - 1), (None, None, 0));
        recent.push(&[b'x'; BYTES_MAX]);
        assert_eq!(numbers(&recent, 0), (Some(last + 1), Some(last + 1), 1));
    }
}
