//! Writer threads beside the session thread: fork and join.
//!
//! Most of the time of the session thread goes into writes to the kernel, and with many receivers
//! one thread is not enough. So when many connections have output, the session thread lends them
//! out in lots to free writers, including itself, and continues when all are back. A connection has
//! one owner at any time, so nothing is locked, and messages leave in order. A thread waits only
//! for writes under way, which never block.

use super::connection::Connection;
use crate::stage::pin;
use ribtide_bgp::fsm::Side;
use ribtide_bgp::peer::PeerId;
use ribtide_runtime::cpu::Cpus;
use ribtide_runtime::ring::{Closed, Receiver, Rings, Sender, TrySend};
use ribtide_runtime::thread;
use std::convert::Infallible;
use std::io;

/// Connections of a lot: about 100 µs of work, against 5 µs to wake a thread.
const TOGETHER: usize = 8;
/// Lots in the queue at most.
const LOTS: usize = 64;

/// A lent connection.
pub(super) struct Loan {
    pub(super) peer: PeerId,
    pub(super) side: Side,
    pub(super) connection: Connection,
    /// The result: written bytes, or why the connection ended.
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

/// The writer threads.
pub(super) struct Writers {
    threads: usize,
    lots: (Sender<Vec<Loan>>, Receiver<Vec<Loan>>),
    done: (Sender<Vec<Loan>>, Receiver<Vec<Loan>>),
    rings: Rings,
}

impl Writers {
    /// Starts a thread for each of `cpus`, pinned if it names any. The threads end with this value.
    ///
    /// # Errors
    /// A thread cannot be created.
    pub(super) fn start(cpus: Vec<Option<Cpus>>, rings: &Rings) -> io::Result<Writers> {
        let lots = rings.bounded::<Vec<Loan>>("sessions to writers", LOTS);
        let done = rings.bounded::<Vec<Loan>>("writers to sessions", LOTS);
        let threads = cpus.len();
        for (index, cpus) in cpus.into_iter().enumerate() {
            let (lots, done, name) = (lots.1.clone(), done.0.clone(), format!("writer-{index}"));
            thread::spawn(name.clone(), move || -> Result<Infallible, Closed> {
                pin(&name, cpus.as_ref());
                loop {
                    let mut lot = lots.recv()?;
                    lot.iter_mut().for_each(Loan::write);
                    done.send(lot)?;
                }
            })?;
        }
        Ok(Writers { threads, lots, done, rings: rings.clone() })
    }

    /// Starts a thread for each of `cpus`, in the place of the present ones. No connection is lent out.
    ///
    /// # Errors
    /// A thread cannot be created; the present ones go on.
    pub(super) fn restart(&mut self, cpus: Vec<Option<Cpus>>) -> io::Result<()> {
        let rings = self.rings.clone();
        *self = Writers::start(cpus, &rings)?;
        Ok(())
    }

    /// Whether so many connections are worth lending out.
    pub(super) fn worth(&self, connections: usize) -> bool {
        self.threads > 0 && connections >= 2 * TOGETHER
    }

    /// Writes the output of each, and returns all.
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
                // The receiver is here.
                Err(TrySend::Closed(_)) => {}
            }
        }
        // The session thread writes the remaining lots.
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
    fn every_connection_comes_back_written_from_any_writer() {
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
