//! The other end of a socket: the kernel of a network namespace, or a simulated one.
//!
//! The seam is at the system calls, so whatever a [`Socket`](crate::Socket) does with bytes is the
//! same on both sides of it.

use crate::Socket;
use ribtide_runtime::wait_fd::WaitFd;
use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

/// A simulated kernel, to which any number of sockets are connected.
pub trait SimulatedKernel: Send + Sync {
    /// Opens a socket for requests.
    ///
    /// # Errors
    /// As the system's.
    fn open(&self) -> io::Result<Box<dyn SimulatedPeer>>;

    /// Opens a socket for the notifications of `groups` (`RTNLGRP_*`).
    ///
    /// # Errors
    /// As the system's.
    fn monitor(&self, groups: &[u32]) -> io::Result<Box<dyn SimulatedPeer>>;
}

/// The simulated kernel's end of one socket.
pub trait SimulatedPeer: Send {
    /// Takes the messages of one system call.
    ///
    /// # Errors
    /// As the system's.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()>;

    /// Reads one datagram and returns its length.
    ///
    /// # Errors
    /// As the system's: `EAGAIN` without a datagram, `ENOBUFS` once after an overrun.
    fn receive(&mut self, into: &mut [u8]) -> io::Result<usize>;

    /// Filters out notifications that the socket with this port id caused.
    fn leave_out(&mut self, port: u32);

    /// Waits for a datagram in simulated time. Returns whether there is one.
    fn wait(&mut self, timeout: Duration) -> bool;
}

/// What sockets are connected to: by default, the kernel.
#[derive(Clone, Default)]
pub struct Sockets(Option<Arc<dyn SimulatedKernel>>);

impl Sockets {
    /// Sockets of a simulated kernel.
    pub fn simulated(kernel: Arc<dyn SimulatedKernel>) -> Sockets {
        Sockets(Some(kernel))
    }

    /// As [`Socket::open`].
    ///
    /// # Errors
    /// The system's.
    pub fn open(&self) -> io::Result<Socket> {
        match &self.0 {
            None => Socket::open(),
            Some(kernel) => kernel.open().map(Socket::simulated),
        }
    }

    /// As [`Socket::monitor`].
    ///
    /// # Errors
    /// The system's.
    pub fn monitor(&self, groups: &[u32], buffer: u32) -> io::Result<Socket> {
        match &self.0 {
            None => Socket::monitor(groups, buffer),
            Some(kernel) => kernel.monitor(groups).map(Socket::simulated),
        }
    }
}

/// One end of a socket.
pub(crate) enum Transport {
    Kernel(socket2::Socket),
    Simulated(Box<dyn SimulatedPeer>),
}

impl Transport {
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Transport::Kernel(socket) => socket.send(bytes).map(drop),
            Transport::Simulated(peer) => peer.send(bytes),
        }
    }

    pub(crate) fn receive(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Transport::Kernel(socket) => socket.read(into),
            Transport::Simulated(peer) => peer.receive(into),
        }
    }

    /// Drops the datagrams that wait.
    pub(crate) fn discard(&mut self) {
        match self {
            Transport::Kernel(socket) => {
                let mut rest = [MaybeUninit::uninit(); 4096];
                while socket.recv_with_flags(&mut rest, libc::MSG_DONTWAIT).is_ok() {}
            }
            Transport::Simulated(peer) => while peer.receive(&mut [0; 4096]).is_ok() {},
        }
    }

    pub(crate) fn wait(&mut self, wait: &WaitFd, timeout: Duration) -> io::Result<bool> {
        match self {
            Transport::Kernel(socket) => wait.wait(&*socket, timeout),
            Transport::Simulated(peer) => Ok(peer.wait(timeout)),
        }
    }
}
