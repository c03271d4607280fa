//! A TCP connection: input before the session is established, and output.

use crate::messages::MessageCounts;
use ribtide_runtime::output::Output;
use ribtide_wire::bgp::message::HEADER_LEN;
use std::io::{self, Read};
use std::net::TcpStream;
use std::sync::Arc;

/// Bytes of one read before the session is established: two OPENs.
const READ: usize = 8 * 1024;

/// A connection and its queues.
pub(super) struct Connection {
    pub(super) stream: TcpStream,
    /// Whether the connect is in progress.
    pub(super) opening: bool,
    /// Unhandled input. A reader takes over when the session is established.
    pub(super) input: Vec<u8>,
    pub(super) output: Output,
    /// Messages read here, without those of the reader.
    pub(super) received: MessageCounts,
    /// Messages sent from here, without those of workers.
    pub(super) sent: MessageCounts,
    /// The last OPENs of both sides, marker included, for monitors; empty before.
    pub(super) sent_open: Arc<[u8]>,
    pub(super) received_open: Arc<[u8]>,
}

impl Connection {
    pub(super) fn new(stream: TcpStream, opening: bool) -> Connection {
        Connection {
            stream,
            opening,
            input: Vec::new(),
            output: Output::default(),
            received: MessageCounts::default(),
            sent: MessageCounts::default(),
            sent_open: Arc::default(),
            received_open: Arc::default(),
        }
    }

    /// Reads up to a bound; `Ok(false)` when there may be more.
    ///
    /// # Errors
    /// Why the connection ended.
    pub(super) fn read(&mut self) -> Result<bool, String> {
        let start = self.input.len();
        self.input.resize(start + READ, 0);
        let result = self.stream.read(&mut self.input[start..]);
        self.input.truncate(start + *result.as_ref().unwrap_or(&0));
        match result {
            Ok(0) => Err("closed by the peer".into()),
            Ok(_) => Ok(false),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Whether the kernel has unread bytes.
    pub(super) fn has_unread(&self) -> bool {
        self.stream.peek(&mut [0]).is_ok_and(|n| n > 0)
    }

    /// Writes as much as the kernel accepts. Returns the bytes.
    ///
    /// # Errors
    /// Why the connection ended.
    pub(super) fn write(&mut self) -> Result<usize, String> {
        self.output.write_to(&mut self.stream).map_err(|e| e.to_string())
    }
}

/// The length of the BGP message at the start of these bytes; `None` without a whole header.
pub(super) fn message_len(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER_LEN>()?;
    Some(usize::from(u16::from_be_bytes([header[16], header[17]])).max(HEADER_LEN))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::message::write_keepalive;

    #[test]
    fn message_len_is_that_of_the_header() {
        let mut bytes = Vec::new();
        write_keepalive(&mut bytes);
        assert_eq!(message_len(&bytes), Some(HEADER_LEN));
        bytes[16..18].copy_from_slice(&300u16.to_be_bytes());
        assert_eq!((message_len(&bytes), message_len(&bytes[1..])), (Some(300), None));
    }
}
