//! The queue of a station: chunks of whole BMP messages, which stations share.

use ribtide_wire::bmp::HEADER_LEN;
use std::collections::VecDeque;
use std::io::{self, IoSlice, Write};
use std::sync::Arc;

/// Chunks of one write to the kernel.
const SLICES: usize = 64;

/// Waiting messages, in order.
#[derive(Default)]
pub(super) struct Output {
    chunks: VecDeque<Arc<[u8]>>,
    /// Written bytes of the first chunk.
    written: usize,
    bytes: usize,
}

impl Output {
    /// Adds whole messages.
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
                let len = u32::from_be_bytes([header[1], header[2], header[3], header[4]]) as usize;
                end += len.max(HEADER_LEN);
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
    pub(super) fn write_to(&mut self, stream: &mut impl Write) -> io::Result<usize> {
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
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
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
    use ribtide_wire::bmp::build::termination;
    use ribtide_wire::bmp::read_message;

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

    #[test]
    fn a_cut_leaves_a_stream_of_whole_messages() {
        let mut chunk = Vec::new();
        (0..4).for_each(|reason| termination(&mut chunk, reason, "x"));
        let each = chunk.len() / 4;
        for room in 0..chunk.len() + 5 {
            let mut output = Output::default();
            output.push(chunk.clone().into());
            output.push(chunk.clone().into());
            let mut narrow = Narrow { got: Vec::new(), room };
            output.write_to(&mut narrow).unwrap();
            output.cut();
            let mut last = Vec::new();
            termination(&mut last, 9, "");
            output.push(last.clone().into());
            narrow.room = 1000;
            output.write_to(&mut narrow).unwrap();
            assert_eq!(narrow.got.len(), room.div_ceil(each) * each + last.len(), "after {room} bytes");
            let mut rest = narrow.got.as_slice();
            while let Some((_, taken)) = read_message(rest).unwrap() {
                rest = &rest[taken..];
            }
            assert!(rest.is_empty());
        }
    }
}
