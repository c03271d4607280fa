//! The connection to a station: a non-blocking TCP socket.

use mio::unix::SourceFd;
use mio::{Interest, Poll, Token};
use ribtide_config::BmpStation;
use ribtide_runtime::connect;
use ribtide_runtime::output::Output;
use socket2::TcpKeepalive;
use std::io::{self, Read};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::time::Duration;

/// After how long without data the kernel asks whether the station is there, and how often before it gives up.
const KEEPALIVE: Duration = Duration::from_secs(30);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(10);
const KEEPALIVE_RETRIES: u32 = 6;

/// A connection, or an attempt at one. It leaves the poll with its descriptor.
pub(super) struct Connection {
    stream: TcpStream,
    /// Whether the station accepted it.
    pub(super) established: bool,
}

impl Connection {
    /// Begins to connect; the poll reports the outcome under `token`.
    ///
    /// # Errors
    /// The system refuses at once.
    pub(super) fn open(station: &BmpStation, poll: &Poll, token: usize) -> io::Result<Connection> {
        let stream = connect::begin(station.address, station.local_address, |socket| {
            let keepalive = TcpKeepalive::new().with_time(KEEPALIVE).with_interval(KEEPALIVE_INTERVAL);
            socket.set_tcp_keepalive(&keepalive.with_retries(KEEPALIVE_RETRIES))
        })?;
        let interest = Interest::READABLE | Interest::WRITABLE;
        poll.registry().register(&mut SourceFd(&stream.as_raw_fd()), Token(token), interest)?;
        Ok(Connection { stream, established: false })
    }

    /// Whether an attempt has become a connection.
    ///
    /// # Errors
    /// It failed.
    pub(super) fn finish(&mut self) -> io::Result<bool> {
        self.established = connect::is_established(&self.stream)?;
        Ok(self.established)
    }

    /// Sends what the socket takes, and returns the number of bytes.
    ///
    /// # Errors
    /// The connection is broken.
    pub(super) fn send(&mut self, output: &mut Output) -> io::Result<usize> {
        output.write_to(&mut self.stream)
    }

    /// Discards what the station sent: BMP has nothing from it (RFC 7854 section 3.2).
    ///
    /// # Errors
    /// The connection is broken, or the station closed it.
    pub(super) fn discard_input(&mut self) -> io::Result<()> {
        let mut buffer = [0; 1024];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "closed by the station")),
                Ok(_) => {}
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }
}
