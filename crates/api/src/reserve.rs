//! Descriptors that a listener keeps for the time when the process has none left.
//!
//! An operator needs `ribtide show` most when sessions or another program used up the descriptors.
//! Then each further client takes one of the reserve, which is filled again when a client leaves.
//! The last one serves no request: its client gets status 503 at once, so no client waits.

use rustix::event::{EventfdFlags, eventfd};
use std::future::Future;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// Descriptors of a reserve. All but the last serve clients.
const RESERVE: usize = 3;

/// Descriptors that are open for no other purpose than to be closed when one is needed.
#[derive(Debug, Default)]
pub(super) struct Reserve(Mutex<Vec<OwnedFd>>);

impl Reserve {
    /// A full reserve, unless the process has no descriptors now.
    pub(super) fn new() -> Reserve {
        let reserve = Reserve::default();
        reserve.refill();
        reserve
    }

    /// Opens what is missing, as far as there are descriptors.
    pub(super) fn refill(&self) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        while kept.len() < RESERVE {
            let Ok(descriptor) = eventfd(0, EventfdFlags::CLOEXEC) else { return };
            kept.push(descriptor);
        }
    }

    /// Closes one. Returns how many are left; `None`: there was none.
    pub(super) fn release(&self) -> Option<usize> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.pop().map(|_| kept.len())
    }
}

/// Whether the process, or the system, has no descriptor for one more file.
pub(super) fn is_shortage(error: &io::Error) -> bool {
    use rustix::io::Errno;
    [Errno::MFILE, Errno::NFILE].map(Errno::raw_os_error).map(Some).contains(&error.raw_os_error())
}

/// A listening socket. Its errors reach the caller, unlike those of [`axum::serve::Listener`].
pub(super) trait Accept {
    /// A connection.
    type Io;
    /// The address of a client.
    type Address;

    /// The next connection.
    fn accept_one(&self) -> impl Future<Output = io::Result<(Self::Io, Self::Address)>> + Send;
}

impl Accept for tokio::net::UnixListener {
    type Io = tokio::net::UnixStream;
    type Address = tokio::net::unix::SocketAddr;

    fn accept_one(&self) -> impl Future<Output = io::Result<(Self::Io, Self::Address)>> + Send {
        self.accept()
    }
}

impl Accept for tokio::net::TcpListener {
    type Io = tokio::net::TcpStream;
    type Address = std::net::SocketAddr;

    fn accept_one(&self) -> impl Future<Output = io::Result<(Self::Io, Self::Address)>> + Send {
        self.accept()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserve_counts_what_is_left_and_fills_again() {
        let reserve = Reserve::new();
        let released: Vec<_> = (0..=RESERVE).map(|_| reserve.release()).collect();
        assert_eq!(released, [Some(2), Some(1), Some(0), None]);
        reserve.refill();
        assert_eq!(reserve.release(), Some(RESERVE - 1));
    }

    #[test]
    fn shortage_is_of_the_process_or_the_system() {
        use rustix::io::Errno;
        let shortage = |error: Errno| is_shortage(&error.into());
        assert_eq!([Errno::MFILE, Errno::NFILE, Errno::CONNABORTED].map(shortage), [true, true, false]);
    }
}
