//! The messages of the session thread to workers, readers and monitors, in one order and without blocking.
//!
//! The order matters: a worker must know a source before the reader of the source can send a route.
//! So a message to a worker or monitor enters its queue before a later message enters that of a reader.
//! Messages without room wait here, a few for each session that begins or ends.

use crate::monitor::{SessionNews, Tap, Taps};
use crate::reader::Command;
use ribtide_bgp::message::EgressIn;
use ribtide_runtime::ring::{Sender, TrySend};
use std::collections::VecDeque;

enum Letter {
    Worker(usize, EgressIn),
    Reader(usize, Command),
    Monitor(Tap, SessionNews),
}

/// The queues of workers and readers, and the waiting messages.
pub(super) struct Outbox {
    workers: Vec<Sender<EgressIn>>,
    readers: Vec<Sender<Command>>,
    monitors: Taps,
    waiting: VecDeque<Letter>,
    /// Workers that get new members: the first ones.
    pub(super) update_threads: usize,
}

impl Outbox {
    pub(super) fn new(
        workers: Vec<Sender<EgressIn>>,
        readers: Vec<Sender<Command>>,
        monitors: Taps,
    ) -> Outbox {
        let update_threads = workers.len();
        Outbox { workers, readers, monitors, waiting: VecDeque::new(), update_threads }
    }

    /// Sends news of a session to every monitor.
    pub(super) fn send_to_monitors(&mut self, news: &SessionNews) {
        for tap in [&self.monitors.bmp, &self.monitors.mrt].into_iter().flatten() {
            self.waiting.push_back(Letter::Monitor(tap.clone(), news.clone()));
        }
        self.retry();
    }

    /// Sets the BMP monitor.
    pub(super) fn set_bmp(&mut self, tap: Option<Tap>) {
        self.monitors.bmp = tap;
    }

    /// Sets the MRT monitor.
    pub(super) fn set_mrt(&mut self, tap: Option<Tap>) {
        self.monitors.mrt = tap;
    }

    /// Adds a worker, or one in the place of an ended one. Returns whether no message for earlier workers waits: what is sent
    /// from then on goes to all.
    pub(super) fn set_worker(&mut self, at: usize, control: Sender<EgressIn>) -> bool {
        match self.workers.get_mut(at) {
            Some(place) => *place = control,
            None => self.workers.push(control),
        }
        self.retry();
        self.is_empty()
    }

    pub(super) fn workers(&self) -> usize {
        self.workers.len()
    }

    pub(super) fn send_to_worker(&mut self, worker: usize, message: EgressIn) {
        self.waiting.push_back(Letter::Worker(worker, message));
        self.retry();
    }

    pub(super) fn send_to_reader(&mut self, reader: usize, command: Command) {
        self.waiting.push_back(Letter::Reader(reader, command));
        self.retry();
    }

    /// Whether no message waits.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Sends waiting messages until a queue is full.
    pub(super) fn retry(&mut self) {
        while let Some(letter) = self.waiting.pop_front() {
            let full = match letter {
                Letter::Worker(at, message) => match self.workers[at].try_send(message) {
                    Err(TrySend::Full(message)) => Some(Letter::Worker(at, message)),
                    // A queue is closed only when the process is stopping.
                    Ok(()) | Err(TrySend::Closed(_)) => None,
                },
                Letter::Reader(at, command) => match self.readers[at].try_send(command) {
                    Err(TrySend::Full(command)) => Some(Letter::Reader(at, command)),
                    Ok(()) | Err(TrySend::Closed(_)) => None,
                },
                Letter::Monitor(tap, news) => tap.news(news).map(|news| Letter::Monitor(tap, news)),
            };
            if let Some(letter) = full {
                self.waiting.push_front(letter);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_bgp::peer::FamilySet;
    use ribtide_bgp::peer::PeerId;
    use ribtide_runtime::ring::Rings;

    #[test]
    fn a_reader_hears_nothing_before_every_worker_heard_what_came_before() {
        let rings = Rings::default();
        let (worker, worker_gets) = rings.bounded("worker", 1);
        let (reader, reader_gets) = rings.bounded("reader", 8);
        let mut outbox = Outbox::new(vec![worker], vec![reader], Taps::default());
        for peer in 0..2 {
            outbox.send_to_worker(0, EgressIn::MemberDown(PeerId(peer)));
            outbox.send_to_reader(0, Command::Detach(PeerId(peer), 1, FamilySet::NONE));
        }
        assert!(matches!(reader_gets.try_recv(), Some(Command::Detach(PeerId(0), 1, _))));
        assert!(reader_gets.try_recv().is_none() && !outbox.is_empty());
        assert!(matches!(worker_gets.try_recv(), Some(EgressIn::MemberDown(PeerId(0)))));
        outbox.retry();
        assert!(matches!(reader_gets.try_recv(), Some(Command::Detach(PeerId(1), 1, _))));
        assert!(outbox.is_empty());
    }
}
