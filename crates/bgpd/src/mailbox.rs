//! The producing end of a queue that never blocks: messages without room wait here, in order.
//!
//! A turn of a stage posts its output and ends; see [`stage`](super::stage) for the bound. Requests
//! against the stream (a worker's to shards) never stop their sender: their number is bounded by
//! the dumps under way.

use crossbeam_channel::Select;
use ribtide_runtime::ring::{Sender, TrySend};
use std::collections::VecDeque;

/// The producing end.
pub(super) struct Mailbox<T> {
    ring: Sender<T>,
    waiting: VecDeque<T>,
}

impl<T> Mailbox<T> {
    pub(super) fn new(ring: Sender<T>) -> Mailbox<T> {
        Mailbox { ring, waiting: VecDeque::new() }
    }

    /// Sends `message` after the waiting ones.
    pub(super) fn post(&mut self, message: T) {
        if self.retry() {
            self.put(message);
        } else {
            self.waiting.push_back(message);
        }
    }

    /// Sends waiting messages while there is room. Returns whether none is left.
    pub(super) fn retry(&mut self) -> bool {
        while !self.ring.is_full()
            && let Some(message) = self.waiting.pop_front()
        {
            self.put(message);
        }
        self.waiting.is_empty()
    }

    /// Makes `select` ready when there is room for waiting messages.
    pub(super) fn watch<'a>(&'a self, select: &mut Select<'a>) {
        if !self.waiting.is_empty() {
            self.ring.watch_room(select);
        }
    }

    /// Messages in the queue, without those that wait here.
    pub(super) fn in_ring(&self) -> usize {
        self.ring.len()
    }

    /// Whether no message waits here.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Messages that wait here.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.waiting.len()
    }

    fn put(&mut self, message: T) {
        // The queue has other producers. It is closed only when the process is stopping.
        if let Err(TrySend::Full(message)) = self.ring.try_send(message) {
            self.waiting.push_front(message);
        }
    }
}

/// Sends the waiting messages of all mailboxes. Returns whether none is left.
pub(super) fn retry_all<T>(mailboxes: &mut [Mailbox<T>]) -> bool {
    mailboxes.iter_mut().filter_map(|mailbox| (!mailbox.retry()).then_some(())).count() == 0
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
        // There is room, and what waits goes first.
        mailbox.post(5);
        assert!(!mailbox.retry() && !mailbox.is_empty());
        assert_eq!((rx.try_recv(), rx.try_recv()), (Some(2), Some(3)));
        assert!(mailbox.retry() && mailbox.is_empty());
        assert_eq!((rx.try_recv(), rx.try_recv()), (Some(4), Some(5)));
        (6..10).for_each(|n| mailbox.post(n));
        let reader = std::thread::spawn(move || std::iter::from_fn(|| rx.recv().ok()).collect::<Vec<_>>());
        while !mailbox.retry() {
            let mut select = Select::new();
            mailbox.watch(&mut select);
            select.ready();
        }
        drop(mailbox);
        assert_eq!(reader.join().unwrap(), [6, 7, 8, 9]);
    }
}
