//! Idle threads purge the allocator.
//!
//! mimalloc keeps freed memory in the heap of the thread that frees it, and checks the time only
//! when it is called. A thread that frees a table and is then idle would keep that memory for ever.
//! So threads wait through this module, and purge the allocator after [`IDLE_TIMEOUT`] without
//! work. A busy thread pays for one check of a flag per wait.
//!
//! Another thread may free this thread's memory later, so an idle thread purges again, at doubling
//! intervals. A stage shrinks its buffers, caches and sparse tables when it becomes idle. One small
//! object may otherwise keep a 64 KiB slice of the allocator.
//!
//! The threads of a router are never quite without work. So a thread that has none for [`PAUSE`]
//! counts as idle once in [`BUSY_MAX`], too.

use crate::liveness;
use crate::sync::channel::{Receiver, RecvError, RecvTimeoutError, Select};
use std::cell::Cell;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A thread without work for this time is idle.
pub const IDLE_TIMEOUT: Duration = Duration::from_secs(2);

/// The longest time without a purge of a thread that always has a little work; its next [`PAUSE`]
/// makes it idle.
const BUSY_MAX: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(100);

/// Blocks of more than 512 KiB have an allocator segment of their own.
const OWN_SEGMENT_BYTES: usize = 768 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Busy,
    /// It purges after this interval, and then after twice that.
    Waiting {
        since: Instant,
        interval: Duration,
    },
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Busy) };
    /// When it was last found idle; initially, when a wait first timed out.
    static LAST_IDLE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Waits until an operation of `select` is ready, at most for `timeout`, or until the thread is
/// idle. Returns what [`on_wait`] does: whether it is.
pub fn wait(select: &mut Select<'_>, timeout: Duration) -> bool {
    on_wait(select.ready_timeout(timeout.min(until_idle())).is_err())
}

/// How long the calling thread may sleep before it is idle; [`on_wait`] follows. The first call
/// after work begins that time.
pub fn until_idle() -> Duration {
    let now = Instant::now();
    let last_idle = LAST_IDLE.get().unwrap_or(now);
    LAST_IDLE.set(Some(last_idle));
    let (since, interval) = match STATE.get() {
        State::Busy => (now, IDLE_TIMEOUT),
        State::Waiting { since, interval } => (since, interval),
    };
    STATE.set(State::Waiting { since, interval });
    let left = interval.saturating_sub(now - since);
    if since <= last_idle {
        return left;
    }
    left.min(BUSY_MAX.saturating_sub(now - last_idle).max(PAUSE))
}

/// Receives the next message, and purges the allocator while waiting.
///
/// # Errors
/// Every sender is gone and the channel empty.
pub fn recv<T>(receiver: &Receiver<T>) -> Result<T, RecvError> {
    recv_or_idle(receiver, || {})
}

/// [`recv`], which calls `on_idle` before each purge: the caller shrinks its buffers there.
///
/// # Errors
/// Every sender is gone and the channel empty.
pub fn recv_or_idle<T>(receiver: &Receiver<T>, mut on_idle: impl FnMut()) -> Result<T, RecvError> {
    let mut interval = IDLE_TIMEOUT;
    loop {
        match receiver.recv_timeout(interval) {
            Ok(next) => return Ok(next),
            Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
            Err(RecvTimeoutError::Timeout) => {
                on_idle();
                purge();
            }
        }
        interval = interval.saturating_mul(2);
    }
}

/// A connection whose read timeout is [`IDLE_TIMEOUT`] at first. A read that times out is tried
/// again, and purges when the thread is idle. Meanwhile the timeout is
/// [`liveness::CHECK_INTERVAL`].
#[derive(Debug)]
pub struct IdleReader<R> {
    /// The connection.
    pub connection: R,
    is_long: bool,
}

impl<R: Read + AsFd> IdleReader<R> {
    /// A reader of `connection`, which has its timeout.
    pub fn new(connection: R) -> IdleReader<R> {
        IdleReader { connection, is_long: false }
    }

    /// Sets the timeout. A failed one leaves the former, which only wakes the thread more often.
    fn set_long(&mut self, is_long: bool) {
        if is_long != self.is_long {
            self.is_long = is_long;
            let timeout = if is_long { liveness::CHECK_INTERVAL } else { IDLE_TIMEOUT };
            let _ = socket2::SockRef::from(&self.connection).set_read_timeout(Some(timeout));
        }
    }
}

impl<R: Read + AsFd> Read for IdleReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.connection.read(buffer);
            let timed_out = read.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
            on_wait(timed_out);
            self.set_long(timed_out);
            if !timed_out {
                return read;
            }
        }
    }
}

/// Records that the calling thread waited, and whether the wait timed out. Returns whether the thread is idle, and has
/// purged: a caller with buffers, caches or tables then calls [`trim`].
pub fn on_wait(timed_out: bool) -> bool {
    if !timed_out {
        STATE.set(State::Busy);
        return false;
    }
    let now = Instant::now();
    let last_idle = LAST_IDLE.get().unwrap_or(now);
    let (since, interval) = match STATE.get() {
        State::Busy => (now, IDLE_TIMEOUT),
        State::Waiting { since, interval } => (since, interval),
    };
    let long_busy = since > last_idle && now - last_idle >= BUSY_MAX;
    let idle = now - since >= interval || long_busy;
    STATE.set(match idle {
        true => State::Waiting { since: now, interval: interval.saturating_mul(2) },
        false => State::Waiting { since, interval },
    });
    LAST_IDLE.set(Some(if idle { now } else { last_idle }));
    if idle {
        purge();
    }
    idle
}

/// A buffer of `len` zero bytes that lives as long as its stage, in an allocator segment of its own. In a shared segment it
/// would keep 4 MiB from being purged. Unused capacity is never touched.
pub fn long_lived_buffer(len: usize) -> Vec<u8> {
    let mut buffer = long_lived_vec(len);
    buffer.resize(len, 0);
    buffer
}

/// A vector with capacity for at least `len` items, in an allocator segment of its own, as [`long_lived_buffer`].
pub fn long_lived_vec<T>(len: usize) -> Vec<T> {
    Vec::with_capacity(len.max(OWN_SEGMENT_BYTES / size_of::<T>().max(1)))
}

/// What a thread keeps beyond its present work: tables, buffers and caches with unused capacity.
///
/// A stage implements it once for everything that it owns, and its loop calls [`trim`] when a wait says that the thread is idle.
pub trait ShrinkToFit {
    /// Shrinks every table and buffer to its contents. O(capacity).
    fn shrink_to_fit(&mut self);
}

/// An idle trim: shrinks what the calling thread owns, and purges the allocator of it.
pub fn trim(owned: &mut (impl ShrinkToFit + ?Sized)) {
    owned.shrink_to_fit();
    purge();
}

/// Makes the allocator return to the system what this thread freed, and pages that were unused for a while.
#[allow(unsafe_code)]
pub fn purge() {
    // SAFETY: it takes a flag, may be called from any thread at any time, and touches only what is free.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn on_wait_purges_at_intervals_that_double() {
        assert!(!on_wait(true) && matches!(STATE.get(), State::Waiting { .. }));
        assert!(!on_wait(false) && STATE.get() == State::Busy);
        let long_ago =
            |interval| State::Waiting { since: Instant::now().checked_sub(IDLE_TIMEOUT).unwrap(), interval };
        STATE.set(long_ago(IDLE_TIMEOUT));
        assert!(on_wait(true));
        assert!(matches!(STATE.get(), State::Waiting { interval, .. } if interval == 2 * IDLE_TIMEOUT));
        assert!(!on_wait(true));
        STATE.set(long_ago(2 * IDLE_TIMEOUT));
        assert!(!on_wait(true));
        // A thread that always has a little work is idle now and then, too.
        let ago = |seconds| Some(Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap());
        for (last_idle, idle) in [(BUSY_MAX.as_secs() - 1, false), (BUSY_MAX.as_secs(), true), (0, false)] {
            LAST_IDLE.set(ago(last_idle));
            assert!(!on_wait(false));
            assert_eq!(on_wait(true), idle, "{last_idle} s after it last was");
            assert!(!on_wait(true));
        }
        LAST_IDLE.set(ago(2 * BUSY_MAX.as_secs()));
        STATE.set(State::Waiting { since: LAST_IDLE.get().unwrap(), interval: 1000 * IDLE_TIMEOUT });
        assert!(!on_wait(true), "it has done nothing since");
        // A wait ends when it makes the thread idle, and not before.
        let near = |wait: Duration, expected| wait <= expected && wait + PAUSE / 2 > expected;
        for (last_idle, wait) in [(0, IDLE_TIMEOUT), (BUSY_MAX.as_secs() - 1, BUSY_MAX / 10), (60, PAUSE)] {
            LAST_IDLE.set(ago(last_idle));
            STATE.set(State::Busy);
            let until = until_idle();
            assert!(near(until, wait), "{until:?}, {last_idle} s after it last was");
        }
        LAST_IDLE.set(Some(Instant::now()));
        STATE.set(State::Waiting { since: ago(3).unwrap(), interval: 4 * IDLE_TIMEOUT });
        assert!(near(until_idle(), Duration::from_secs(5)));
        let (tx, rx) = crate::sync::channel::bounded(1);
        tx.send(()).unwrap();
        let mut select = Select::new();
        select.recv(&rx);
        assert!(!wait(&mut select, IDLE_TIMEOUT));
        assert_eq!(STATE.get(), State::Busy);
    }

    #[test]
    fn long_lived_buffer_has_its_length_and_a_segment_of_its_own() {
        let buffer = long_lived_buffer(10);
        assert!(buffer == [0; 10] && buffer.capacity() > 512 << 10);
        assert_eq!(long_lived_buffer(2 * OWN_SEGMENT_BYTES).len(), 2 * OWN_SEGMENT_BYTES);
    }
}
