//! Calls to a stage: a closure that runs on the stage's own thread, between two batches, with the stage's state.
//!
//! A call should return a page: a walk over a whole table stops routing for as long. The watchdog watches the calls of
//! all stages, so it also sees a stage that has no ring, or whose rings are empty.

use crate::ring::{Closed, Progress, Wake, next_id};
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use crate::sync::{Mutex, channel};
use crate::thread;
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, PoisonError, Weak};
use std::time::Duration;

/// The time after which a caller reports that the stage is busy.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls that wait at one stage, at most; the caller of a further one blocks.
const CALLS_MAX: usize = 64;

/// A call on its way to the stage.
pub type Call<S> = Box<dyn FnOnce(&mut S) + Send>;

/// The caller's side. Clones call the same stage.
pub struct StageHandle<S> {
    stage: &'static str,
    counts: Weak<Counts>,
    tx: channel::Sender<Call<S>>,
    wake: Option<Wake>,
}

impl<S> Clone for StageHandle<S> {
    fn clone(&self) -> Self {
        let (counts, tx, wake) = (self.counts.clone(), self.tx.clone(), self.wake.clone());
        StageHandle { stage: self.stage, counts, tx, wake }
    }
}

/// The stage's side: waiting calls.
pub struct CallQueue<S> {
    /// Not those of a stage that has ended: handles and calls do not keep them.
    _counts: Arc<Counts>,
    rx: channel::Receiver<Call<S>>,
    /// Set when the stage has seen that every handle is dropped.
    closed: Cell<bool>,
}

/// The calls of one stage, for the watchdog.
struct Counts {
    stage: &'static str,
    id: u64,
    sent: AtomicU64,
    done: AtomicU64,
    /// The thread that runs a call, or ran the last one; 0: none yet.
    stage_thread: AtomicU32,
}

/// A call in [`Counts`], until the drop: also one that was never run.
struct Running(Weak<Counts>);

impl Running {
    fn new(counts: &Weak<Counts>) -> Running {
        if let Some(counts) = counts.upgrade() {
            counts.sent.fetch_add(1, Relaxed);
        }
        Running(counts.clone())
    }

    fn begin(&self) {
        if let Some(counts) = self.0.upgrade() {
            counts.stage_thread.store(thread::id(), Relaxed);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(counts) = self.0.upgrade() {
            counts.done.fetch_add(1, Relaxed);
        }
    }
}

/// Those of all stages of this process.
static ALL: std::sync::Mutex<Vec<Weak<Counts>>> = std::sync::Mutex::new(Vec::new());

/// The progress of the calls of every stage. One that runs has not been taken yet.
pub(crate) fn progress() -> Vec<Progress> {
    let of = |counts: Arc<Counts>| {
        // In this order, as in a ring.
        let taken = counts.done.load(Relaxed);
        Progress {
            id: counts.id,
            name: format!("queries to {}", counts.stage),
            depth: counts.sent.load(Relaxed).saturating_sub(taken),
            taken,
            consumer: counts.stage_thread.load(Relaxed),
            is_ring: true,
        }
    };
    ALL.lock().unwrap_or_else(PoisonError::into_inner).iter().filter_map(Weak::upgrade).map(of).collect()
}

/// Makes both sides for the stage called `stage`.
pub fn pair<S>(stage: &'static str) -> (StageHandle<S>, CallQueue<S>) {
    let (tx, rx) = channel::bounded(CALLS_MAX);
    let (sent, done, stage_thread) = (AtomicU64::new(0), AtomicU64::new(0), AtomicU32::new(0));
    let counts = Arc::new(Counts { stage, id: next_id(), sent, done, stage_thread });
    let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
    all.retain(|counts| counts.strong_count() > 0);
    all.push(Arc::downgrade(&counts));
    let handle = StageHandle { stage, counts: Arc::downgrade(&counts), tx, wake: None };
    (handle, CallQueue { _counts: counts, rx, closed: Cell::new(false) })
}

/// The reason why a call has no result. Displays as a sentence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoReply {
    stage: &'static str,
    stopped: bool,
}

impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.stopped {
            write!(f, "the {} stage has stopped; its log has the reason", self.stage)
        } else {
            write!(
                f,
                "the {} stage did not answer within {} s; it is busy, try again",
                self.stage,
                CALL_TIMEOUT.as_secs()
            )
        }
    }
}

impl std::error::Error for NoReply {}

impl NoReply {
    /// The end of the stage, unless the stage is only busy.
    pub fn closed(self) -> Option<Closed> {
        self.stopped.then_some(Closed)
    }
}

impl<S> StageHandle<S> {
    /// The same handle, which also calls `wake`, if there is one, after each call: for stages that
    /// sleep in `poll`.
    pub fn with_wake(mut self, wake: Option<Wake>) -> Self {
        self.wake = wake;
        self
    }

    /// Runs `call` on the stage's thread and waits for its result, for [`CALL_TIMEOUT`] at most.
    ///
    /// # Errors
    /// [`NoReply`] when the stage has stopped or is too busy.
    pub fn call<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<R, NoReply> {
        let (call, reply) = self.with_reply(call);
        let gone = |stopped| NoReply { stage: self.stage, stopped };
        self.tx.send_timeout(call, CALL_TIMEOUT).map_err(|e| gone(e.is_disconnected()))?;
        self.wake();
        reply.done.recv_timeout(CALL_TIMEOUT).map_err(|e| gone(e.is_disconnected()))?;
        reply.take().ok_or(gone(true))
    }

    /// As [`StageHandle::call`] without a timeout: for calls that must not run after the caller has
    /// given up.
    ///
    /// # Errors
    /// [`NoReply`] when the stage has stopped.
    pub fn wait<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<R, NoReply> {
        self.start(call)?.wait()
    }

    /// Starts a call without waiting, so that several stages can work on their results at the same
    /// time.
    ///
    /// # Errors
    /// [`NoReply`] when the stage has stopped.
    pub fn start<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> Result<PendingCall<R>, NoReply> {
        let (call, reply) = self.with_reply(call);
        let stopped = NoReply { stage: self.stage, stopped: true };
        self.tx.send(call).map_err(|_| stopped)?;
        self.wake();
        Ok(PendingCall { reply, stopped })
    }

    fn wake(&self) {
        if let Some(wake) = &self.wake {
            wake();
        }
    }

    /// A call that sends its result to the returned end.
    fn with_reply<R: Send + 'static>(
        &self,
        call: impl FnOnce(&mut S) -> R + Send + 'static,
    ) -> (Call<S>, Reply<R>) {
        let (done_tx, done) = channel::bounded(1);
        let result = Arc::new(Mutex::new(None));
        let reply = Reply { result: result.clone(), done };
        let running = Running::new(&self.counts);
        let call = move |state: &mut S| {
            running.begin();
            let returned = call(state);
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(returned);
            drop(running);
            // The caller may have timed out; the result is then dropped.
            let _ = done_tx.send(());
        };
        (Box::new(call), reply)
    }
}

/// The result of a call that was started.
#[must_use]
pub struct PendingCall<R> {
    reply: Reply<R>,
    stopped: NoReply,
}

impl<R> PendingCall<R> {
    /// Waits for the result.
    ///
    /// # Errors
    /// [`NoReply`] when the stage has stopped.
    pub fn wait(self) -> Result<R, NoReply> {
        self.reply.done.recv().ok().and_then(|()| self.reply.take()).ok_or(self.stopped)
    }
}

/// A result on its way back. The channel only reports that it is there: the code of a channel takes
/// 10 KB for each type of message, and there are some 80 types of results.
struct Reply<R> {
    result: Arc<Mutex<Option<R>>>,
    done: channel::Receiver<()>,
}

impl<R> Reply<R> {
    fn take(&self) -> Option<R> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl<S> CallQueue<S> {
    /// Runs every waiting call.
    pub fn serve(&self, state: &mut S) {
        while let Some(call) = self.next() {
            call(state);
        }
    }

    /// The next waiting call: for a state that owns this end.
    pub fn next(&self) -> Option<Call<S>> {
        match self.rx.try_recv() {
            Ok(call) => Some(call),
            Err(channel::TryRecvError::Empty) => None,
            Err(channel::TryRecvError::Disconnected) => {
                self.closed.set(true);
                None
            }
        }
    }

    /// Makes `select` ready when a call waits; [`CallQueue::next`] or [`CallQueue::serve`] takes
    /// it. A channel without handles is always ready, so it leaves the select once the stage has
    /// seen that.
    pub fn watch<'a>(&'a self, select: &mut channel::Select<'a>) {
        if !self.closed.get() {
            select.recv(&self.rx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn call_runs_with_the_state_of_the_stage() {
        let _one = crate::watchdog::tests::one();
        let (handle, calls) = pair::<Vec<u32>>("shard");
        let stage = std::thread::spawn(move || {
            let mut state = vec![1, 2, 3];
            let mut select = channel::Select::new();
            calls.watch(&mut select);
            select.ready();
            calls.serve(&mut state);
        });
        let first = handle.start(|v| v.iter().sum::<u32>()).unwrap();
        assert_eq!(first.wait(), Ok(6));
        stage.join().unwrap();
        assert_eq!(handle.wait(|v| v.len()).map_err(NoReply::closed), Err(Some(Closed)));
        let message = handle.call(|v| v.len()).unwrap_err().to_string();
        assert_eq!(message, "the shard stage has stopped; its log has the reason");
    }

    #[test]
    fn watch_without_handles_select_sleeps() {
        let (handle, calls) = pair::<()>("shard");
        drop(handle);
        let is_ready = || {
            let mut select = channel::Select::new();
            calls.watch(&mut select);
            select.ready_timeout(Duration::from_millis(1)).is_ok()
        };
        assert!(is_ready(), "the stage does not know yet");
        calls.serve(&mut ());
        assert!(!is_ready());
    }
}
