//! Errors of the tools, as sentences with cause, place and remedy.

use ribtide_wire::bgp::Notification;
use ribtide_wire::mrt;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Why a load tool stopped. Displays as a sentence.
#[derive(Debug)]
pub enum Error {
    /// A file could not be opened or read.
    File {
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A record of an MRT file could not be read.
    Record {
        /// The file.
        path: PathBuf,
        /// Number of the record; the first is 1.
        record: u64,
        /// Where the record begins, in bytes of the decompressed file.
        byte: u64,
        /// What is wrong with it.
        source: mrt::Error,
    },
    /// A file has nothing that can be played.
    NothingToPlay {
        /// The file.
        path: PathBuf,
        /// The expected content.
        missing: String,
    },
    /// A text does not resolve to an address.
    Resolve {
        /// The text.
        text: String,
        /// The system's error.
        source: io::Error,
    },
    /// The peer could not be reached.
    Connect {
        /// The peer.
        to: SocketAddr,
        /// Our own address, if one was requested.
        from: Option<IpAddr>,
        /// The system's error.
        source: io::Error,
    },
    /// A port could not be listened on.
    Listen {
        /// The address.
        at: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
    /// No peer connected.
    NoConnection {
        /// Where we listened.
        at: SocketAddr,
    },
    /// A session did not come up, or ended before the work was done.
    Session {
        /// The peer.
        peer: SocketAddr,
        /// The reason.
        end: End,
    },
    /// Settings that do not go together.
    Options(String),
    /// The system refused what is needed to run: a thread, a signal handler.
    System(io::Error),
}

/// The reason of a session's end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum End {
    /// The peer sent a NOTIFICATION.
    Received(Notification),
    /// The peer broke the protocol; the NOTIFICATION that was sent to it.
    Sent(Notification),
    /// The peer closed the connection without a NOTIFICATION.
    Closed,
    /// The connection broke.
    Broken(io::ErrorKind),
    /// Nothing came for the hold time.
    HoldTimer(Duration),
    /// The peer has another identity, or lacks a required capability.
    Peer(String),
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::Received(n) => write!(f, "it sent NOTIFICATION {}/{}, {n}", n.code, n.subcode),
            End::Sent(n) => {
                write!(f, "it broke the protocol; NOTIFICATION {}/{} sent, {n}", n.code, n.subcode)
            }
            End::Closed => {
                f.write_str("it closed the connection without a NOTIFICATION; its log may say why")
            }
            End::Broken(kind) => write!(f, "the connection broke: {kind}"),
            End::HoldTimer(time) => write!(f, "nothing came for {} s, the hold time", time.as_secs()),
            End::Peer(what) => f.write_str(what),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::File { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Error::Record { path, record, byte, source } => {
                write!(f, "{}: record {record} at byte {byte}: {source}", path.display())
            }
            Error::NothingToPlay { path, missing } => write!(f, "{} has no {missing}", path.display()),
            Error::Resolve { text, source } => {
                write!(f, "\"{text}\" is not an address and a port, such as 127.0.0.1:179: {source}")
            }
            Error::Connect { to, from, source } => {
                write!(f, "cannot connect to {to}")?;
                if let Some(from) = from {
                    write!(f, " from {from}")?;
                }
                write!(f, ": {source}")?;
                match source.kind() {
                    io::ErrorKind::ConnectionRefused => f.write_str(
                        "; is the router running, and does it listen there? --wait SECONDS waits for it",
                    ),
                    io::ErrorKind::AddrNotAvailable => {
                        f.write_str("; the machine does not have the address given with --from")
                    }
                    _ => Ok(()),
                }
            }
            Error::Listen { at, source } => {
                write!(f, "cannot listen on {at}: {source}")?;
                match source.kind() {
                    io::ErrorKind::PermissionDenied => {
                        f.write_str("; ports below 1024 need root or CAP_NET_BIND_SERVICE")
                    }
                    io::ErrorKind::AddrInUse => f.write_str("; another process has it"),
                    _ => Ok(()),
                }
            }
            Error::NoConnection { at } => {
                write!(f, "no peer connected to {at}; is it a neighbor in the router's configuration?")
            }
            Error::Session { peer, end } => write!(f, "the session with {peer} ended: {end}"),
            Error::Options(what) => f.write_str(what),
            Error::System(source) => {
                write!(f, "the system refused a thread, a signal handler or a socket: {source}")
            }
        }
    }
}

impl std::error::Error for Error {}
