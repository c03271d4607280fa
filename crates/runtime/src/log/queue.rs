//! The queue between the threads that log and the thread that writes.

use super::limit::Limit;
use super::target;
use crate::ring::Closed;
use crate::thread;
use crate::watchdog::PeerWait;
use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
use std::convert::Infallible;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::MakeWriter;

/// How often the numbers of lines that the limit left out are looked for.
const LIMIT_INTERVAL: Duration = Duration::from_secs(1);

/// The sending end. It never waits: without room a line is dropped and counted.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    items: Sender<Item>,
    dropped: Arc<AtomicU64>,
}

#[derive(Debug)]
pub(super) enum Item {
    Line(Box<[u8]>),
    /// The lines before it are written.
    Flush(Sender<()>),
}

impl Queue {
    /// A queue with room for `bound` lines, and its receiving end.
    pub(super) fn new(bound: usize) -> (Queue, Receiver<Item>) {
        let (items, written) = bounded(bound);
        (Queue { items, dropped: Arc::default() }, written)
    }

    /// Starts the thread that writes what the queue has to `to`.
    pub(super) fn spawn_writer(
        &self,
        items: Receiver<Item>,
        limit: Limit,
        to: impl Write + Send + 'static,
    ) -> io::Result<()> {
        let dropped = self.dropped.clone();
        thread::spawn("log", move || write(&items, &dropped, &limit, to)).map(drop)
    }

    /// The number of lines that were dropped.
    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    /// Waits until the lines that were queued before are written, for `timeout` at most. Whether they are.
    pub(super) fn flush(&self, timeout: Duration) -> bool {
        let deadline = Instant::now() + timeout;
        let (done, is_done) = bounded(1);
        let sent = self.items.send_timeout(Item::Flush(done), timeout);
        sent.is_ok() && is_done.recv_deadline(deadline).is_ok()
    }
}

impl Write for Queue {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.items.try_send(Item::Line(line.into())).is_err() {
            self.dropped.fetch_add(1, Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Queue {
    type Writer = Queue;

    fn make_writer(&'a self) -> Queue {
        self.clone()
    }
}

/// Writes until every sender is gone. A reader that went away takes nothing with it; the watchdog names one that reads nothing.
fn write(
    items: &Receiver<Item>,
    dropped: &AtomicU64,
    limit: &Limit,
    mut to: impl Write,
) -> Result<Infallible, Closed> {
    let (mut reported, mut limited_at) = (0, Instant::now());
    let reader = PeerWait::new("the reader of the log".into());
    loop {
        match items.recv_timeout(LIMIT_INTERVAL) {
            Ok(Item::Line(line)) => {
                reader.begin();
                let _ = to.write_all(&line);
                reader.end();
            }
            Ok(Item::Flush(done)) => drop(done.send(())),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Err(Closed),
        }
        let now = Instant::now();
        if now.duration_since(limited_at) >= LIMIT_INTERVAL {
            limited_at = now;
            limit.report(Some(now));
        }
        let dropped = dropped.load(Relaxed);
        // The lines before the gap come first, and then this line has room.
        if dropped > reported && items.is_empty() {
            reported = dropped;
            tracing::warn!(target: target::LOG, dropped, "lines were dropped, because the reader of the log stood still");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{LogSettings, capture};
    use super::*;
    use crate::ring::Rings;
    use crate::watchdog::{STALL_TIMEOUT, Watchdog};

    #[test]
    fn queue_full_lines_are_dropped_counted_and_reported() {
        let (mut queue, items) = Queue::new(4);
        // None of these waits, though nothing is written yet.
        (0..100).for_each(|n| queue.write_all(format!("line {n}\n").as_bytes()).unwrap());
        assert_eq!(queue.dropped(), 96);
        assert!(!queue.flush(Duration::from_millis(10)), "nothing is written");
        let dropped = queue.dropped.clone();
        drop(queue);
        let mut written = Vec::new();
        let report = capture(&LogSettings::default(), || {
            _ = write(&items, &dropped, &Limit::default(), &mut written);
        });
        assert_eq!(String::from_utf8(written).unwrap(), "line 0\nline 1\nline 2\nline 3\n");
        assert!(
            report.contains(" WARN log: lines were dropped") && report.ends_with(" dropped=96\n"),
            "{report}"
        );
        assert_eq!(report.lines().count(), 1);
    }

    #[test]
    fn reader_that_takes_nothing_is_a_peer_of_the_watchdog() {
        let _one = crate::watchdog::tests::one();
        let watchdog = Watchdog::new(Rings::default(), STALL_TIMEOUT);
        let (reader, writer) = io::pipe().unwrap();
        let (mut queue, items) = Queue::new(4);
        queue.spawn_writer(items, Limit::default(), writer).unwrap();
        // More than the pipe has room for.
        queue.write_all(&[b'x'; 1 << 20]).unwrap();
        let expected = [("the reader of the log".into(), Some("log".into()), false)];
        let mut found = Vec::new();
        while found != expected {
            let stalls = watchdog.look(Instant::now() + STALL_TIMEOUT);
            found = stalls.into_iter().map(|stall| (stall.what, stall.thread, stall.is_own)).collect();
        }
        drop(reader);
        while !watchdog.look(Instant::now() + STALL_TIMEOUT).is_empty() {}
    }
}
