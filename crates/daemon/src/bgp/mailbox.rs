//! A ring whose producer never waits: what does not fit waits at the producer, in order.
//!
//! For requests to the shards. Shards wait for workers, so a worker must not wait for a shard. What waits is bounded by
//! the dumps under way.

use ribtide_runtime::ring::{Sender, TrySend};
use std::collections::VecDeque;

/// The producer's side.
pub(super) struct Mailbox<T> {
    ring: Sender<T>,
    waiting: VecDeque<T>,
}

impl<T> Mailbox<T> {
    pub(super) fn new(ring: Sender<T>) -> Mailbox<T> {
        Mailbox { ring, waiting: VecDeque::new() }
    }

    /// Puts `message` in, behind what waits.
    pub(super) fn post(&mut self, message: T) {
        self.waiting.push_back(message);
        self.retry();
    }

    /// Puts in what waits, as far as there is room.
    pub(super) fn retry(&mut self) {
        while let Some(message) = self.waiting.pop_front() {
            if let Err(TrySend::Full(message)) = self.ring.try_send(message) {
                self.waiting.push_front(message);
                break;
            }
        }
    }

    /// Whether nothing waits here.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_runtime::ring::Rings;

    #[test]
    fn nothing_is_lost_or_overtaken() {
        let (tx, rx) = Rings::default().bounded("test", 2);
        let mut mailbox = Mailbox::new(tx);
        (0..5).for_each(|n| mailbox.post(n));
        assert_eq!((rx.try_recv(), rx.try_recv(), rx.try_recv()), (Some(0), Some(1), None));
        mailbox.retry();
        assert!(!mailbox.is_empty());
        mailbox.post(5);
        assert_eq!((rx.try_recv(), rx.try_recv()), (Some(2), Some(3)));
        mailbox.retry();
        assert!(mailbox.is_empty());
        assert_eq!((rx.try_recv(), rx.try_recv()), (Some(4), Some(5)));
    }
}
