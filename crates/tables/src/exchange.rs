//! The exchange of requests and replies with syncd over any carrier. orchagent's side has two
//! threads, so that neither encoding nor decoding of bulks delays routes.
//!
//! Carriers have no request numbers: replies come in the order of requests. A queue between the two
//! threads holds the requests without a reply, the "pending acknowledgements" of SONiC's design of
//! an asynchronous sairedis. [`PENDING_REPLIES_MAX`] bounds it.

use crate::TableError;
use ribtide_runtime::ring;
use ribtide_runtime::thread::{self, Ended, Stop};
pub use ribtide_swss::sai::text::Message;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

/// Requests in flight, at most, in the modes that do not wait for each.
pub const WINDOW: usize = 8;
/// Requests or replies in each ring, at most.
pub(crate) const WAITING: usize = 64;
/// Requests without a reply, at most.
pub(crate) const PENDING_REPLIES_MAX: usize = 1024;

/// A request's message, and the state that decodes its reply.
#[derive(Debug)]
pub struct EncodedRequest<P> {
    /// The message.
    pub message: Message,
    /// What the reply is decoded with; `None` for a request without a reply.
    pub pending: Option<P>,
}

/// orchagent's side.
#[derive(Debug)]
pub struct Exchange<Q, A> {
    /// Sends requests.
    pub requests: ring::Sender<Q>,
    /// Receives replies, or the error that ended the exchange.
    pub replies: ring::Receiver<Result<A, TableError>>,
    /// The reading thread, where a successor will read the same queue.
    pub(crate) _reader: Option<ReaderThread>,
}

/// A thread that reads a queue. Dropping this ends it, so that a successor can read the same queue.
#[derive(Debug)]
pub struct ReaderThread {
    thread: Option<JoinHandle<()>>,
    /// Stops with the daemon; the thread checks it at each wake-up.
    stop: Stop,
    ending: Stop,
}

impl ReaderThread {
    /// Runs `body`, which checks the passed flag before each pop.
    pub(crate) fn start<R: Into<Ended>>(
        name: &str,
        stop: &Stop,
        body: impl FnOnce(Stop) -> R + Send + 'static,
    ) -> io::Result<ReaderThread> {
        let ending = Stop::default();
        let theirs = ending.clone();
        let thread = thread::spawn(name, move || body(theirs))?;
        Ok(ReaderThread { thread: Some(thread), stop: stop.clone(), ending })
    }
}

impl ReaderThread {
    /// Ends the thread at its next wake-up.
    pub fn end(&self) {
        self.ending.stop();
    }

    /// Whether the thread has ended and passed on all that it read.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for ReaderThread {
    fn drop(&mut self) {
        self.ending.stop();
        if let Some(thread) = self.thread.take().filter(|_| self.stop.stopped()) {
            let _ = thread.join();
        }
    }
}

/// Requests in flight.
#[derive(Debug)]
pub(crate) struct Pending<P> {
    tx: ring::Sender<P>,
    rx: ring::Receiver<P>,
    count: Arc<AtomicU64>,
}

impl<P> Clone for Pending<P> {
    fn clone(&self) -> Self {
        Pending { tx: self.tx.clone(), rx: self.rx.clone(), count: self.count.clone() }
    }
}

impl<P> Default for Pending<P> {
    fn default() -> Self {
        // They wait for syncd, and for no thread of this process.
        let (tx, rx) = ring::unlisted("requests without a reply", PENDING_REPLIES_MAX);
        Pending { tx, rx, count: Arc::default() }
    }
}

impl<P> Pending<P> {
    pub(crate) fn add(&self, pending: P) {
        self.count.fetch_add(1, SeqCst);
        // Both ends live as long as this does.
        let _ = self.tx.send(pending);
    }

    pub(crate) fn oldest(&self) -> Option<P> {
        self.rx.try_recv()
    }

    pub(crate) fn replied(&self) {
        self.count.fetch_sub(1, SeqCst);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }
}
