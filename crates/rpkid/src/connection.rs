//! The connection to a cache: a non-blocking TCP socket, with bytes that wait to be sent.

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use ribtide_config::RpkiCache;
use ribtide_runtime::connect;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// A connection, or an attempt at one. It leaves the poll with its descriptor.
pub(super) struct Connection {
    stream: TcpStream,
    /// Whether the cache accepted it.
    pub(super) established: bool,
    output: Vec<u8>,
}

impl Connection {
    /// Begins to connect; the poll reports the outcome under `token`.
    ///
    /// # Errors
    /// The system refuses at once.
    pub(super) fn open(cache: &RpkiCache, poll: &Poll, token: usize) -> io::Result<Connection> {
        let stream =
            connect::begin(cache.address, cache.local_address, |socket| socket.set_tcp_nodelay(true))?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut SourceFd(&stream.as_raw_fd()), Token(token), interest)?;
        Ok(Connection { stream, established: false, output: Vec::new() })
    }

    /// Whether an attempt has become a connection.
    ///
    /// # Errors
    /// It failed.
    pub(super) fn finish(&mut self) -> io::Result<bool> {
        self.established = connect::is_established(&self.stream)?;
        Ok(self.established)
    }

    /// Sends bytes as far as there is room, and the rest when there is.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.extend_from_slice(bytes);
        while !self.output.is_empty() {
            match self.stream.write(&self.output) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.output.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reads what is there, as far as `buffer` has room; `None`: nothing is there.
    ///
    /// # Errors
    /// The connection is broken, or the cache closed it.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            match self.stream.read(buffer) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the cache")),
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(e) => return Err(e),
            }
        }
    }
}
