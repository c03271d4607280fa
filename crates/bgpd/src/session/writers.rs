//! Threads that write beside the session thread: fork and join.
//!
//! Handing bytes to the kernel is nearly all that the session thread's time goes to, and with many receivers it is more than
//! one thread can do while the others route. So when many connections have something to write at once, they are lent
//! out, a few at a time, to whoever is free, the session thread itself included, and all are back before it goes on. Each
//! connection has one owner at any time, so there is nothing to lock, and messages leave in the order in which they were
//! queued. A thread waits only for writes that have begun, which never block.

use super::connection::Connection;
use crate::stage::pin;
use ribtide_bgp::fsm::Side;
use ribtide_bgp::peer::PeerId;
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::ring::{Receiver, Rings, Sender, TrySend};
use ribtide_runtime::thread;
use std::io;

/// Connections lent out together: some 100 µs of work, against some 5 to wake a thread.
const TOGETHER: usize = 8;
/// Lots that may wait.
const LOTS: usize = 64;

/// A connection that is lent out.
pub(super) struct Loan {
    pub(super) peer: PeerId,
    pub(super) side: Side,
    pub(super) connection: Connection,
    /// What came of it: bytes written, or why the connection has ended.
    pub(super) written: Result<usize, String>,
}

impl Loan {
    pub(super) fn new(peer: PeerId, side: Side, connection: Connection) -> Loan {
        Loan { peer, side, connection, written: Ok(0) }
    }

    fn write(&mut self) {
        self.written = self.connection.write();
    }
}

/// The threads, as the session thread has them.
pub(super) struct Writers {
    threads: usize,
    lots: (Sender<Vec<Loan>>, Receiver<Vec<Loan>>),
    done: (Sender<Vec<Loan>>, Receiver<Vec<Loan>>),
}

impl Writers {
    /// Starts one thread for each of `cpus`, on it if it names any. They end with this.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub(super) fn start(cpus: Vec<Option<Cpus>>, rings: &Rings) -> io::Result<Writers> {
        let lots = rings.bounded::<Vec<Loan>>("sessions to writers", LOTS);
        let done = rings.bounded::<Vec<Loan>>("writers to sessions", LOTS);
        let threads = cpus.len();
        for (index, cpus) in cpus.into_iter().enumerate() {
            let (lots, done, name) = (lots.1.clone(), done.0.clone(), format!("writer-{index}"));
            thread::spawn(name.clone(), move || {
                pin(&name, cpus.as_ref());
                while let Ok(mut lot) = lots.recv() {
                    lot.iter_mut().for_each(Loan::write);
                    if done.send(lot).is_err() {
                        break;
                    }
                }
            })?;
        }
        Ok(Writers { threads, lots, done })
    }

    /// Whether it pays to lend out so many connections.
    pub(super) fn worth(&self, connections: usize) -> bool {
        self.threads > 0 && connections >= 2 * TOGETHER
    }

    /// Writes what waits on each, and gives all back.
    pub(super) fn write(&self, loans: Vec<Loan>) -> Vec<Loan> {
        let mut back = Vec::with_capacity(loans.len());
        let (mut out, mut loans) = (0, loans.into_iter().peekable());
        let own = |mut lot: Vec<Loan>, back: &mut Vec<Loan>| {
            lot.iter_mut().for_each(Loan::write);
            back.extend(lot);
        };
        while loans.peek().is_some() {
            let lot = loans.by_ref().take(TOGETHER).collect();
            match self.lots.0.try_send(lot) {
                Ok(()) => out += 1,
                Err(TrySend::Full(lot)) => own(lot, &mut back),
                // Its own receiver is here.
                Err(TrySend::Closed) => {}
            }
        }
        // Lots that no writer has begun are its own.
        while let Some(lot) = self.lots.1.try_recv() {
            out -= 1;
            own(lot, &mut back);
        }
        for _ in 0..out {
            back.extend(self.done.1.recv().unwrap_or_default());
        }
        back
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;

    #[test]
    fn every_connection_comes_back_written_whoever_wrote() {
        for threads in [1, 3] {
            let writers = Writers::start(vec![None; threads], &Rings::default()).unwrap();
            assert!(writers.worth(2 * TOGETHER) && !writers.worth(2 * TOGETHER - 1));
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = listener.local_addr().unwrap();
            let mut ends = Vec::new();
            let mut loans: Vec<Loan> = (0..100)
                .map(|n| {
                    let stream = TcpStream::connect(address).unwrap();
                    stream.set_nonblocking(true).unwrap();
                    ends.push(listener.accept().unwrap().0);
                    Loan::new(PeerId(n), Side::Ours, Connection::new(stream, false))
                })
                .collect();
            for round in 0..20u8 {
                for loan in &mut loans {
                    loan.connection.output.push(Arc::from([round, loan.peer.0 as u8]));
                }
                loans = writers.write(loans);
                assert!(loans.iter().all(|loan| loan.written == Ok(2)));
                assert_eq!(loans.iter().map(|loan| loan.peer).collect::<BTreeSet<_>>().len(), 100);
            }
            drop(loans);
            for (n, mut end) in ends.into_iter().enumerate() {
                let mut got = Vec::new();
                end.read_to_end(&mut got).unwrap();
                let expected: Vec<u8> = (0..20).flat_map(|round| [round, n as u8]).collect();
                assert_eq!(got, expected);
            }
        }
    }
}
