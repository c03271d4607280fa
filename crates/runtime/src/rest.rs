//! Threads at rest give memory back.
//!
//! The allocator keeps what a thread frees for that thread, which wants it again at once while it works, and looks at
//! the clock only when it is called: a thread that freed a table and then has nothing to do would keep it for ever. So
//! threads wait through here, and one that waited long for nothing has the allocator let go of what is free. While
//! there is work that costs a look at a flag for each wait, and no look at the allocator.

use crossbeam_channel::{Receiver, RecvError, RecvTimeoutError, Select};
use std::cell::Cell;
use std::io::{self, Read};
use std::time::{Duration, Instant};

/// How long a thread has nothing to do before it is at rest.
pub const SPAN: Duration = Duration::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Works,
    Waits { since: Instant },
    Rests,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State::Works) };
}

/// Waits until something is ready, or has been waited for as long as `patience`: as [`Select::ready_timeout`], whose
/// answer nobody needs that looks at everything anyway.
pub fn wait(select: &mut Select<'_>, patience: Duration) {
    waited(select.ready_timeout(patience).is_err());
}

/// Waits for what comes next.
///
/// # Errors
/// Nothing more comes.
pub fn recv<T>(receiver: &Receiver<T>) -> Result<T, RecvError> {
    match receiver.recv_timeout(SPAN) {
        Ok(next) => Ok(next),
        Err(RecvTimeoutError::Disconnected) => Err(RecvError),
        Err(RecvTimeoutError::Timeout) => {
            give_back();
            receiver.recv()
        }
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

/// The calling thread has waited; `in_vain`: nothing came.
pub fn waited(in_vain: bool) {
    let state = match STATE.get() {
        _ if !in_vain => State::Works,
        State::Works => State::Waits { since: Instant::now() },
        State::Waits { since } if since.elapsed() >= SPAN => {
            give_back();
            State::Rests
        }
        state => state,
    };
    STATE.set(state);
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
    fn a_thread_rests_once_when_it_waited_long_in_vain() {
        waited(true);
        assert!(matches!(STATE.get(), State::Waits { .. }));
        waited(false);
        assert_eq!(STATE.get(), State::Works);
        let long_ago = Instant::now().checked_sub(SPAN).unwrap();
        STATE.set(State::Waits { since: long_ago });
        waited(true);
        assert_eq!(STATE.get(), State::Rests);
        waited(true);
        assert_eq!(STATE.get(), State::Rests);
        let (tx, rx) = crossbeam_channel::bounded(1);
        tx.send(()).unwrap();
        let mut select = Select::new();
        select.recv(&rx);
        wait(&mut select, SPAN);
        assert_eq!(STATE.get(), State::Works);
    }
}
