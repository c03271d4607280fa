//! Requests to syncd and replies from it, whatever carries them: orchagent's side on two threads, so that neither
//! spelling a bulk nor reading the outcome of another one holds up routes.
//!
//! The carriers know no numbers: replies come in the order of the requests. What is asked and not answered waits in a
//! queue of its own between the two threads, the "pending acknowledgements" of SONiC's design of an asynchronous sairedis.

use crate::TableError;
use crossbeam_channel as channel;
use ribtide_runtime::ring;
use ribtide_runtime::thread::{self, Stop};
pub use ribtide_swss::sai::text::Message;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::thread::JoinHandle;

/// Requests that may be under way in the modes that do not wait for each.
pub const WINDOW: usize = 8;
/// Requests and replies that may wait in either ring.
pub(crate) const WAITING: usize = 64;
/// Requests that may wait for a reply.
pub(crate) const UNANSWERED: usize = 1024;

/// What to send, and how to know its reply.
#[derive(Debug)]
pub struct Question<P> {
    /// The message.
    pub message: Message,
    /// What its reply needs to be understood; `None` when there is none.
    pub pending: Option<P>,
}

/// orchagent's side.
#[derive(Debug)]
pub struct Exchange<Q, A> {
    /// Where requests go in.
    pub requests: ring::Sender<Q>,
    /// Where replies, or the reason why there are no more, come out.
    pub replies: ring::Receiver<Result<A, TableError>>,
    /// The thread that takes replies, where a later one will take from the same place.
    pub(crate) _reader: Option<Reader>,
}

/// A thread that takes from a queue that a later one will take from: it must take nothing more once this is dropped.
#[derive(Debug)]
pub struct Reader {
    thread: Option<JoinHandle<()>>,
    /// The daemon stops: the thread wakes up soon.
    stop: Stop,
    ending: Stop,
}

impl Reader {
    /// Runs `body`, which looks at what it is given before each time that it takes something.
    pub(crate) fn start(
        name: &str,
        stop: &Stop,
        body: impl FnOnce(Stop) + Send + 'static,
    ) -> io::Result<Reader> {
        let ending = Stop::default();
        let theirs = ending.clone();
        let thread = thread::spawn(name, move || body(theirs))?;
        Ok(Reader { thread: Some(thread), stop: stop.clone(), ending })
    }
}

impl Reader {
    /// It takes nothing more from when it is woken next.
    pub fn end(&self) {
        self.ending.stop();
    }

    /// Whether it takes nothing more, and has handed on what it took.
    pub fn has_ended(&self) -> bool {
        self.thread.as_ref().is_none_or(JoinHandle::is_finished)
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        self.ending.stop();
        if let Some(thread) = self.thread.take().filter(|_| self.stop.stopped()) {
            let _ = thread.join();
        }
    }
}

/// Requests that are under way.
#[derive(Debug)]
pub(crate) struct Pending<P> {
    tx: channel::Sender<P>,
    rx: channel::Receiver<P>,
    count: Arc<AtomicU64>,
}

impl<P> Clone for Pending<P> {
    fn clone(&self) -> Self {
        Pending { tx: self.tx.clone(), rx: self.rx.clone(), count: self.count.clone() }
    }
}

impl<P> Default for Pending<P> {
    fn default() -> Self {
        let (tx, rx) = channel::bounded(UNANSWERED);
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
        self.rx.try_recv().ok()
    }

    pub(crate) fn answered(&self) {
        self.count.fetch_sub(1, SeqCst);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(SeqCst) == 0
    }
}
