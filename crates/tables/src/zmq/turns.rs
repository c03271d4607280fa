//! Turns of processes: a connection is read after the connections of earlier processes have been
//! read to their end.
//!
//! A killed process leaves bytes in its connections, which are read to the end. Messages of its
//! successor are newer, but may arrive earlier over another connection.
//!
//! A process has one connection per socket, and all are read. A second connection of one socket
//! replaces the first, because its host seemed gone. The first is then ended, and its messages are
//! read before those of the second.
//! when it gave that up, for the other host was gone to it: the former ends then, and what came over it is read first.

use super::zmtp::{Peer, Process};
use ribtide_runtime::log::target;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// The connections that are read or wait, in the order of arrival.
#[derive(Clone, Default, Debug)]
pub(super) struct Turns(Arc<(Mutex<Line>, Condvar)>);

#[derive(Default, Debug)]
struct Line {
    came: u64,
    connections: Vec<Connection>,
}

struct Connection {
    number: u64,
    process: Process,
    socket: u64,
    end: Box<dyn Fn() + Send>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {:?}, socket {}", self.number, self.process, self.socket)
    }
}

impl Turns {
    /// Waits for the turn of a connection, which lasts until the returned value is dropped; `None`,
    /// without waiting, for a peer that is not ribtide's.
    pub(super) fn wait(&self, peer: &Peer) -> Option<Turn> {
        let writer = peer.writer.clone();
        peer.ours.map(|process| self.wait_as(process, peer.socket, move || writer.end()))
    }

    /// The same for this process and socket; `end` ends the connection.
    fn wait_as(&self, process: Process, socket: u64, end: impl Fn() + Send + 'static) -> Turn {
        let mut line = self.line();
        line.came += 1;
        let number = line.came;
        let is_former = |other: &Connection| other.process == process && other.socket == socket;
        line.connections.iter().filter(|other| is_former(other)).for_each(|former| (former.end)());
        line.connections.push(Connection { number, process, socket, end: Box::new(end) });
        let is_before = |line: &mut Line| {
            let mut before = line.connections.iter().take_while(|other| other.number != number);
            before.any(|other| other.process != process || is_former(other))
        };
        if is_before(&mut line) {
            tracing::info!(
                target: target::ZMQ,
                "a new connection waits until all that came before it is read"
            );
        }
        drop(self.0.1.wait_while(line, is_before));
        Turn { turns: self.clone(), number }
    }

    /// Whether every connection of other processes has been read to its end.
    pub(super) fn is_alone(&self, process: Process) -> bool {
        self.line().connections.iter().all(|other| other.process == process)
    }

    fn line(&self) -> MutexGuard<'_, Line> {
        self.0.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The turn of a connection.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Turns,
    number: u64,
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.turns.line().connections.retain(|other| other.number != self.number);
        self.turns.0.1.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_runtime::ring::Rings;
    use std::thread;

    #[test]
    fn a_process_waits_for_those_before_it_and_not_for_itself() {
        let [former, latter, last] = [1, 2, 3].map(Process::numbered);
        let turns = Turns::default();
        let of_former = [1, 2].map(|socket| turns.wait_as(former, socket, || {}));
        assert!(turns.is_alone(former) && !turns.is_alone(latter));
        let (turn_tx, turn_rx) = Rings::default().bounded("turns", 2);
        let wait = |process| {
            let before = turns.line().came;
            let (turns, turn_tx) = (turns.clone(), turn_tx.clone());
            let of = turns.clone();
            let waits = thread::spawn(move || {
                let turn = of.wait_as(process, 1, || {});
                turn_tx.send(process).unwrap();
                turn
            });
            while turns.line().came == before {
                thread::yield_now();
            }
            waits
        };
        let of_latter = wait(latter);
        let of_last = wait(last);
        let [one, other] = of_former;
        drop(other);
        assert!(turn_rx.try_recv().is_none() && !turns.is_alone(latter));
        drop(one);
        assert_eq!(turn_rx.recv(), Ok(latter));
        assert!(turn_rx.try_recv().is_none());
        drop(of_latter.join().unwrap());
        assert_eq!(turn_rx.recv(), Ok(last));
        assert!(turns.is_alone(last));
        drop(of_last.join().unwrap());
    }

    #[test]
    fn a_socket_that_connects_again_ends_its_former_connection_and_waits_for_it() {
        let process = Process::numbered(1);
        let turns = Turns::default();
        let (ended, ends) = Rings::default().bounded("ended connections", 3);
        let connect = |socket, name: &'static str| {
            let (turns, ended) = (turns.clone(), ended.clone());
            move || turns.wait_as(process, socket, move || ended.send(name).unwrap())
        };
        let _other = connect(2, "of another socket")();
        let former = connect(1, "former")();
        let again = thread::spawn(connect(1, "again"));
        assert_eq!(ends.recv(), Ok("former"));
        assert!(!again.is_finished());
        drop(former);
        let _again = again.join().unwrap();
        assert!(ends.try_recv().is_none());
    }
}
