//! The connection to a cache: a non-blocking TCP socket, with or without TLS, and bytes that wait to be sent.

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use ribtide_config::RpkiCache;
use ribtide_runtime::connect;
use rustls::ClientConnection;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;

/// A connection, or an attempt at one. It leaves the poll with its descriptor.
pub(super) struct Connection {
    stream: TcpStream,
    /// Whether the cache accepted the TCP connection.
    accepted: bool,
    tls: Option<Box<ClientConnection>>,
    /// Whether the connection can be used: with TLS after the handshake.
    pub(super) established: bool,
    output: Vec<u8>,
}

impl Connection {
    /// Begins to connect; the poll reports the outcome under `token`.
    ///
    /// # Errors
    /// The system refuses at once.
    pub(super) fn open(cache: &RpkiCache, poll: &Poll, token: usize) -> io::Result<Connection> {
        let tls = cache.tls.as_ref().map(|tls| tls.connection()).transpose().map_err(tls_error)?;
        let stream =
            connect::begin(cache.address, cache.local_address, |socket| socket.set_tcp_nodelay(true))?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut SourceFd(&stream.as_raw_fd()), Token(token), interest)?;
        let tls = tls.map(Box::new);
        Ok(Connection { stream, accepted: false, tls, established: false, output: Vec::new() })
    }

    /// Whether an attempt has become a connection.
    ///
    /// # Errors
    /// It failed.
    pub(super) fn finish(&mut self) -> io::Result<bool> {
        self.accepted = self.accepted || connect::is_established(&self.stream)?;
        if !self.accepted {
            return Ok(false);
        }
        while self.tls.as_ref().is_some_and(|tls| tls.is_handshaking()) {
            self.flush_tls()?;
            if !self.receive_tls()? {
                return Ok(false);
            }
        }
        self.established = true;
        Ok(true)
    }

    /// Sends bytes as far as there is room, and the rest when there is.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.output.extend_from_slice(bytes);
        loop {
            self.flush_tls()?;
            if self.output.is_empty() {
                return Ok(());
            }
            let written = match &mut self.tls {
                Some(tls) => tls.writer().write(&self.output),
                None => self.stream.write(&self.output),
            };
            match written {
                // Rustls holds as much as it may, until the socket has room.
                Ok(0) if self.tls.is_some() => return Ok(()),
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => drop(self.output.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Reads what is there, as far as `buffer` has room; `None`: nothing is there.
    ///
    /// # Errors
    /// The connection is broken, or the cache closed it.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        loop {
            let read = match &mut self.tls {
                Some(tls) => tls.reader().read(buffer),
                None => self.stream.read(buffer),
            };
            match read {
                Ok(0) => return Err(closed()),
                Ok(n) => return Ok(Some(n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.tls.is_none() || !self.receive_tls()? {
                        return Ok(None);
                    }
                }
                // Without a close_notify. Each answer of RTR has an end of its own.
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Err(closed()),
                Err(e) => return Err(e),
            }
        }
    }

    /// Sends records of TLS as far as the socket has room.
    fn flush_tls(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else { return Ok(()) };
        while tls.wants_write() {
            match tls.write_tls(&mut self.stream) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reads records of TLS. Returns whether the socket had some.
    fn receive_tls(&mut self) -> io::Result<bool> {
        let Some(tls) = &mut self.tls else { return Ok(false) };
        loop {
            match tls.read_tls(&mut self.stream) {
                Ok(0) if tls.is_handshaking() => return Err(closed()),
                Ok(_) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) => return Err(e),
            }
        }
        if let Err(error) = tls.process_new_packets() {
            // The alert says why; if it cannot be sent, the cache sees the end of the connection.
            drop(self.flush_tls());
            return Err(tls_error(error));
        }
        Ok(true)
    }
}

impl Drop for Connection {
    /// The cache learns that the end is no attack. Whether it can be told makes no difference here.
    fn drop(&mut self) {
        if let Some(tls) = self.tls.as_mut().filter(|_| self.established) {
            tls.send_close_notify();
            drop(self.flush_tls());
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the cache")
}

fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("TLS: {error}"))
}
