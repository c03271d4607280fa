//! Wake-ups of a thread that sleeps at channels.
//!
//! A wake-up carries nothing: the thread takes it, and then checks what it waits for. Wake-ups
//! coalesce until the thread takes one, so a waker never blocks, and no change stays unseen.

use crate::idle;
use crate::ring::Closed;
use crate::sync::channel::{Receiver, Select, Sender, TryRecvError, bounded, never};
use std::time::Duration;

/// The waking side. Clones wake the same thread.
#[derive(Clone, Debug)]
pub struct Waker(Sender<()>);

/// The side of the thread that sleeps. A wake-up reaches only one of its clones.
#[derive(Clone, Debug)]
pub struct WakeUp(Receiver<()>);

/// Makes both sides.
pub fn pair() -> (Waker, WakeUp) {
    let (waker, wake_up) = bounded(1);
    (Waker(waker), WakeUp(wake_up))
}

impl Waker {
    /// Wakes the thread, at once or when it sleeps next. Never blocks.
    pub fn wake(&self) {
        // A full channel already holds a wake-up.
        let _ = self.0.try_send(());
    }
}

impl WakeUp {
    /// A side without wakers that never becomes ready.
    pub fn never() -> WakeUp {
        WakeUp(never())
    }

    /// Makes `select` ready when a wake-up waits, and always once every waker is dropped.
    pub fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(&self.0);
    }

    /// Takes the wake-up, and returns whether one waited. The thread must check after this call,
    /// not before it: a change between the check and this call would stay unseen.
    ///
    /// # Errors
    /// [`Closed`] when none waits and every waker is dropped.
    pub fn take(&self) -> Result<bool, Closed> {
        match self.0.try_recv() {
            Ok(()) => Ok(true),
            Err(TryRecvError::Empty) => Ok(false),
            Err(TryRecvError::Disconnected) => Err(Closed),
        }
    }

    /// Waits for a wake-up, at most for `timeout`, and takes it. Returns whether one came; `false`
    /// at once when every waker is dropped.
    pub fn wait_timeout(&self, timeout: Duration) -> bool {
        self.0.recv_timeout(timeout).is_ok()
    }

    /// Waits for a wake-up and takes it, with `on_idle` as in [`idle::recv_or_idle`].
    ///
    /// # Errors
    /// [`Closed`] when none waits and every waker is dropped.
    pub fn wait_or_idle(&self, on_idle: impl FnMut()) -> Result<(), Closed> {
        idle::recv_or_idle(&self.0, on_idle).map_err(|_| Closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_ready(wake_up: &WakeUp) -> bool {
        let mut select = Select::new();
        wake_up.watch(&mut select);
        select.ready_timeout(Duration::from_millis(1)).is_ok()
    }

    #[test]
    fn wake_ups_coalesce_until_one_is_taken() {
        let (waker, wake_up) = pair();
        assert_eq!((is_ready(&wake_up), wake_up.take()), (false, Ok(false)));
        waker.wake();
        waker.clone().wake();
        assert_eq!((is_ready(&wake_up), wake_up.take(), wake_up.take()), (true, Ok(true), Ok(false)));
        waker.wake();
        assert!(wake_up.wait_timeout(Duration::MAX));
        assert!(!wake_up.wait_timeout(Duration::from_millis(1)));
        waker.wake();
        assert_eq!(wake_up.wait_or_idle(|| {}), Ok(()));
    }

    #[test]
    fn wake_up_without_wakers_is_ready_and_closed_after_the_last_one() {
        let (waker, wake_up) = pair();
        waker.wake();
        drop(waker);
        assert_eq!((wake_up.take(), wake_up.take(), is_ready(&wake_up)), (Ok(true), Err(Closed), true));
        assert_eq!(wake_up.wait_or_idle(|| {}), Err(Closed));
        assert!(!wake_up.wait_timeout(Duration::MAX));
    }

    #[test]
    fn wake_up_that_never_comes_is_not_ready() {
        let never = WakeUp::never();
        assert_eq!((is_ready(&never), never.take()), (false, Ok(false)));
    }
}
