//! A channel for one value, such as the error that ended a thread.

use crate::ring::Closed;
use crate::sync::channel::{self, RecvTimeoutError, Select, bounded};
use crate::thread::Ended;
use std::time::Duration;

/// The sending side.
#[derive(Debug)]
pub struct Sender<T>(channel::Sender<T>);

/// The receiving side.
#[derive(Debug)]
pub struct Receiver<T>(channel::Receiver<T>);

/// Makes both sides.
pub fn pair<T>() -> (Sender<T>, Receiver<T>) {
    let (tx, rx) = bounded(1);
    (Sender(tx), Receiver(rx))
}

impl<T> Sender<T> {
    /// Sends the value. Never blocks; without a receiver the value is dropped.
    pub fn send(self, value: T) {
        // The channel has room for it. An owner that has dropped its end wants no value any more.
        let _ = self.0.try_send(value);
    }

    /// Sends the value, such as its error, at the end of a thread.
    pub fn end_with(self, value: T) -> Ended {
        self.send(value);
        Ended::done()
    }
}

impl<T> Receiver<T> {
    /// The value, if it was sent and not taken yet.
    pub fn try_recv(&self) -> Option<T> {
        self.0.try_recv().ok()
    }

    /// Waits for the value.
    ///
    /// # Errors
    /// [`Closed`] when the sender was dropped, or the value was taken before.
    pub fn recv(&self) -> Result<T, Closed> {
        self.0.recv().map_err(|_| Closed)
    }

    /// Waits for the value, at most for `timeout`; `None` when it did not come.
    ///
    /// # Errors
    /// [`Closed`] when the sender was dropped, or the value was taken before.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<Option<T>, Closed> {
        match self.0.recv_timeout(timeout) {
            Ok(value) => Ok(Some(value)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(Closed),
        }
    }

    /// Makes `select` ready when the value waits, and always once the sender is gone.
    pub fn watch<'a>(&'a self, select: &mut Select<'a>) {
        select.recv(&self.0);
    }

    /// The channel, for `crossbeam_channel::select!`.
    pub fn raw(&self) -> &channel::Receiver<T> {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(1);

    #[test]
    fn value_is_received_once() {
        let (sender, receiver) = pair();
        assert_eq!((receiver.try_recv(), receiver.recv_timeout(SHORT)), (None, Ok(None)));
        sender.send(7);
        assert_eq!((receiver.try_recv(), receiver.try_recv()), (Some(7), None));
        assert_eq!((receiver.recv(), receiver.recv_timeout(SHORT)), (Err(Closed), Err(Closed)));
    }

    #[test]
    fn watch_is_ready_for_a_value_and_without_a_sender() {
        let (sender, receiver) = pair();
        let is_ready = || {
            let mut select = Select::new();
            receiver.watch(&mut select);
            select.ready_timeout(SHORT).is_ok()
        };
        assert!(!is_ready());
        sender.send(7);
        assert!(is_ready());
        assert_eq!(receiver.recv(), Ok(7));
        assert!(is_ready(), "the sender is gone");
    }

    #[test]
    fn send_without_a_receiver_drops_the_value() {
        let (sender, receiver) = pair();
        drop(receiver);
        sender.send(7);
    }
}
