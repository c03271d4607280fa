//! A TCP connection: input before the session is established, and output.

use crate::messages::MessageCounts;
use ribtide_wire::bgp::message::HEADER_LEN;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// Bytes of one read before the session is established: two OPENs.
const READ: usize = 8 * 1024;
/// Chunks of one write to the kernel.
const SLICES: usize = 64;

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
        self.output.write_to(&mut self.stream)
    }
}

/// Complete messages to write, in order.
#[derive(Default)]
pub(super) struct Output {
    chunks: VecDeque<Arc<[u8]>>,
    /// Written bytes of the first chunk.
    written: usize,
    bytes: usize,
}

impl Output {
    pub(super) fn push(&mut self, chunk: Arc<[u8]>) {
        self.bytes += chunk.len();
        self.chunks.push_back(chunk);
    }

    /// Waiting bytes.
    pub(super) fn len(&self) -> usize {
        self.bytes
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Drops all messages except a partly written one.
    pub(super) fn cut(&mut self) {
        let rest: Option<Arc<[u8]>> = self.chunks.front().filter(|_| self.written > 0).and_then(|chunk| {
            let mut end = 0;
            while end < self.written {
                let header = chunk.get(end..end + HEADER_LEN)?;
                end += usize::from(u16::from_be_bytes([header[16], header[17]])).max(HEADER_LEN);
            }
            chunk.get(self.written..end).map(Arc::from)
        });
        *self = Output::default();
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            self.push(rest);
        }
    }

    fn write_to(&mut self, stream: &mut impl Write) -> Result<usize, String> {
        let mut total = 0;
        while !self.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut count = 0;
            for (slice, chunk) in slices.iter_mut().zip(&self.chunks) {
                let skip = if count == 0 { self.written } else { 0 };
                *slice = IoSlice::new(&chunk[skip..]);
                count += 1;
            }
            match stream.write_vectored(&slices[..count]) {
                Ok(0) => return Err("the connection takes nothing more".into()),
                Ok(n) => {
                    self.advance(n);
                    total += n;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e.to_string()),
            }
        }
        Ok(total)
    }

    fn advance(&mut self, n: usize) {
        self.bytes -= n;
        self.written += n;
        while let Some(first) = self.chunks.front()
            && self.written >= first.len()
        {
            self.written -= first.len();
            self.chunks.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::message::write_keepalive;

    /// Accepts a few bytes at a time, and then none.
    struct Narrow {
        got: Vec<u8>,
        room: usize,
    }

    impl Write for Narrow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let n = bytes.len().min(7).min(self.room);
            if n == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.room -= n;
            self.got.extend_from_slice(&bytes[..n]);
            Ok(n)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn keepalives(n: usize) -> Arc<[u8]> {
        let mut out = Vec::new();
        (0..n).for_each(|_| write_keepalive(&mut out));
        out.into()
    }

    #[test]
    fn bytes_leave_in_order_whatever_the_socket_takes() {
        let mut output = Output::default();
        for i in 0..100u8 {
            output.push(vec![i; 10].into());
        }
        let mut narrow = Narrow { got: Vec::new(), room: 555 };
        assert_eq!(output.write_to(&mut narrow), Ok(555));
        assert_eq!(output.len(), 445);
        narrow.room = 1000;
        assert_eq!(output.write_to(&mut narrow), Ok(445));
        assert!(output.is_empty() && output.chunks.is_empty());
        let expected: Vec<u8> = (0..100).flat_map(|i| [i; 10]).collect();
        assert_eq!(narrow.got, expected);
    }

    #[test]
    fn a_cut_leaves_a_stream_of_whole_messages() {
        for room in 0..60 {
            let mut output = Output::default();
            output.push(keepalives(2));
            output.push(keepalives(2));
            let mut narrow = Narrow { got: Vec::new(), room };
            output.write_to(&mut narrow).unwrap();
            output.cut();
            output.push(vec![9; 3].into());
            narrow.room = 1000;
            output.write_to(&mut narrow).unwrap();
            let whole = room.div_ceil(HEADER_LEN);
            assert_eq!(narrow.got.len(), whole * HEADER_LEN + 3, "after {room} bytes");
        }
    }
}
