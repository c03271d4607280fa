//! Messages that wait for a socket: chunks of whole messages, which several queues may share.

use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

/// Chunks of one write to the kernel.
const SLICES: usize = 64;

/// Whole messages to write, in order.
#[derive(Default)]
pub struct Output {
    chunks: VecDeque<Arc<[u8]>>,
    /// Written bytes of the first chunk.
    written: usize,
    bytes: usize,
}

impl Output {
    /// Adds whole messages.
    pub fn push(&mut self, chunk: Arc<[u8]>) {
        self.bytes += chunk.len();
        self.chunks.push_back(chunk);
    }

    /// Waiting bytes.
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Drops all messages except a partly written one. `message_len`: the length of the message at the start of
    /// these bytes, at least 1; `None` if they have no whole header.
    pub fn cut(&mut self, message_len: impl Fn(&[u8]) -> Option<usize>) {
        let rest: Option<Arc<[u8]>> = self.chunks.front().filter(|_| self.written > 0).and_then(|chunk| {
            let mut end = 0;
            while end < self.written {
                end += message_len(chunk.get(end..)?)?.max(1);
            }
            chunk.get(self.written..end).map(Arc::from)
        });
        *self = Output::default();
        if let Some(rest) = rest.filter(|rest| !rest.is_empty()) {
            self.push(rest);
        }
    }

    /// Writes what `stream` takes, and returns the number of bytes.
    ///
    /// # Errors
    /// It is broken.
    pub fn write_to(&mut self, stream: &mut impl Write) -> io::Result<usize> {
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
                Ok(0) => {
                    return Err(io::Error::new(
                        io::ErrorKind::WriteZero,
                        "the connection takes nothing more",
                    ));
                }
                Ok(n) => {
                    self.advance(n);
                    total += n;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
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

    /// Two messages of 19 bytes, whose first byte is their length.
    fn two() -> Arc<[u8]> {
        [[19; 19]; 2].concat().into()
    }

    #[test]
    fn bytes_leave_in_order_whatever_the_socket_takes() {
        let mut output = Output::default();
        for i in 0..100u8 {
            output.push(vec![i; 10].into());
        }
        let mut narrow = Narrow { got: Vec::new(), room: 555 };
        assert_eq!(output.write_to(&mut narrow).unwrap(), 555);
        assert_eq!(output.len(), 445);
        narrow.room = 1000;
        assert_eq!(output.write_to(&mut narrow).unwrap(), 445);
        assert!(output.is_empty() && output.chunks.is_empty());
        let expected: Vec<u8> = (0..100).flat_map(|i| [i; 10]).collect();
        assert_eq!(narrow.got, expected);
    }

    #[test]
    fn a_cut_leaves_a_stream_of_whole_messages() {
        for room in 0..60 {
            let mut output = Output::default();
            output.push(two());
            output.push(two());
            let mut narrow = Narrow { got: Vec::new(), room };
            output.write_to(&mut narrow).unwrap();
            output.cut(|bytes| bytes.first().map(|len| usize::from(*len)));
            output.push(vec![9; 3].into());
            narrow.room = 1000;
            output.write_to(&mut narrow).unwrap();
            let whole = room.div_ceil(19);
            assert_eq!(narrow.got.len(), whole * 19 + 3, "after {room} bytes");
        }
    }
}
