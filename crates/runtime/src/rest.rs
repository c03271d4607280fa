//! Threads at rest give memory back.
//!
//! The allocator keeps what a thread frees for that thread, which wants it again at once while it works, and looks at
//! the clock only when it is called: a thread that freed a table and then has nothing to do would keep it for ever. So
//! threads wait through here, and one that waited long for nothing has the allocator let go of what is free. While
//! there is work that costs a look at a flag for each wait, and no look at the allocator.
//!
//! What a thread allocated may be freed by another one, later: so it looks again, ever more seldom. And who keeps buffers or
//! caches for work lets go of them when it is told that it has come to rest: a small thing that is kept may keep 64 KiB of the
//! allocator's from being given back. So does who has tables with room for more than is in them.
//!
//! A router's threads always have a little to do. One that has waited for nothing now and then, if only for a moment each time,
//! comes to rest too, though not often.

use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, Select};
use std::cell::Cell;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// How long a thread has nothing to do before it is at rest.
pub const SPAN: Duration = Duration::from_secs(2);

/// How long a thread that has a little to do all the time works before it is at rest, when it next waits for nothing.
const LONG: Duration = Duration::from_secs(10);

/// Blocks of more than 512 KiB have a piece of the allocator's to themselves.
const ALONE: usize = 768 << 10;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Works,
    /// It gives back after that span, and then after twice that.
    Waits {
        since: Instant,
        span: Duration,
    },
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Works) };
    /// When it last came to rest; at first, when it first waited in vain.
    static RESTED: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Waits until something is ready, or has been waited for as long as `patience`: as [`Select::ready_timeout`], whose
/// answer nobody needs that looks at everything anyway. True as from [`waited`].
pub fn wait(select: &mut Select<'_>, patience: Duration) -> bool {
    waited(select.ready_timeout(patience).is_err())
}

/// Waits for what comes next.
///
/// # Errors
/// Nothing more comes.
pub fn recv<T>(receiver: &Receiver<T>) -> Result<T, RecvError> {
    recv_relieving(receiver, || {})
}

/// [`recv`], for who keeps something for work: `relieve` lets go of it each time that nothing came for long.
///
/// # Errors
/// Nothing more comes.
pub fn recv_relieving<T>(receiver: &Receiver<T>, mut relieve: impl FnMut()) -> Result<T, RecvError> {
    let mut span = SPAN;
    loop {
        match receiver.recv_timeout(span) {
            Ok(next) => return Ok(next),
            Err(RecvTimeoutError::Disconnected) => return Err(RecvError),
            Err(RecvTimeoutError::Timeout) => {
                relieve();
                give_back();
            }
        }
        span = span.saturating_mul(2);
    }
}

/// A connection with a read timeout whose reader waits all the same, and rests when nothing comes for long.
#[derive(Debug)]
pub struct Patient<R>(pub R);

impl<R: Read> Read for Patient<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let read = self.0.read(buffer);
            let in_vain = read.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock);
            waited(in_vain);
            if !in_vain {
                return read;
            }
        }
    }
}

/// The calling thread has waited; `in_vain`: nothing came. True when it has come to rest, or rests on and looks again: who
/// keeps something for work lets go of it then, and calls [`give_back`] once more.
pub fn waited(in_vain: bool) -> bool {
    if !in_vain {
        STATE.set(State::Works);
        return false;
    }
    let now = Instant::now();
    let rested = RESTED.get().unwrap_or(now);
    let (since, span) = match STATE.get() {
        State::Works => (now, SPAN),
        State::Waits { since, span } => (since, span),
    };
    let works_long = since > rested && now - rested >= LONG;
    let rests = now - since >= span || works_long;
    STATE.set(match rests {
        true => State::Waits { since: now, span: span.saturating_mul(2) },
        false => State::Waits { since, span },
    });
    RESTED.set(Some(if rests { now } else { rested }));
    if rests {
        give_back();
    }
    rests
}

/// A buffer of so many zero octets, for who keeps it as long as it lives: by itself. Among others that come and go, and are as
/// long, it would keep 4 MiB from being given back. Of its room only what is used is ever touched.
pub fn lasting_buffer(len: usize) -> Vec<u8> {
    let mut buffer = lasting_room(len);
    buffer.resize(len, 0);
    buffer
}

/// Room for at least so many, for who keeps it as long as it lives: by itself, as [`lasting_buffer`].
pub fn lasting_room<T>(len: usize) -> Vec<T> {
    Vec::with_capacity(len.max(ALONE / size_of::<T>().max(1)))
}

/// Has the allocator give back what this thread freed, and what nobody has used for a while.
#[allow(unsafe_code)]
pub fn give_back() {
    // SAFETY: it takes a flag, may be called from any thread at any time, and touches only what is free.
    unsafe { libmimalloc_sys::mi_collect(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_waits_in_vain_gives_back_ever_more_seldom() {
        assert!(!waited(true) && matches!(STATE.get(), State::Waits { .. }));
        assert!(!waited(false) && STATE.get() == State::Works);
        let long_ago = |span| State::Waits { since: Instant::now().checked_sub(SPAN).unwrap(), span };
        STATE.set(long_ago(SPAN));
        assert!(waited(true));
        assert!(matches!(STATE.get(), State::Waits { span, .. } if span == 2 * SPAN));
        assert!(!waited(true));
        STATE.set(long_ago(2 * SPAN));
        assert!(!waited(true));
        // One that always has a little to do rests too, but not often.
        let ago = |seconds| Some(Instant::now().checked_sub(Duration::from_secs(seconds)).unwrap());
        for (rested, rests) in [(LONG.as_secs() - 1, false), (LONG.as_secs(), true), (0, false)] {
            RESTED.set(ago(rested));
            assert!(!waited(false));
            assert_eq!(waited(true), rests, "{rested} s after it last did");
            assert!(!waited(true));
        }
        RESTED.set(ago(2 * LONG.as_secs()));
        STATE.set(State::Waits { since: RESTED.get().unwrap(), span: 1000 * SPAN });
        assert!(!waited(true), "it has done nothing since");
        let (tx, rx) = crossbeam_channel::bounded(1);
        tx.send(()).unwrap();
        let mut select = Select::new();
        select.recv(&rx);
        assert!(!wait(&mut select, SPAN));
        assert_eq!(STATE.get(), State::Works);
    }

    #[test]
    fn a_lasting_buffer_is_as_long_as_asked_and_by_itself() {
        let buffer = lasting_buffer(10);
        assert!(buffer == [0; 10] && buffer.capacity() > 512 << 10);
        assert_eq!(lasting_buffer(2 * ALONE).len(), 2 * ALONE);
    }
}
