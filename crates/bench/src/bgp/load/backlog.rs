//! Received bytes that are not parsed yet. While the router works, its neighbours only store bytes
//! with their arrival times: parsing costs more, and would take cores from the measured router.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

/// Bytes of one session, and the arrival time of each part.
#[derive(Default)]
pub(super) struct Backlog {
    segments: VecDeque<Segment>,
}

/// A segment of the pool.
struct Segment {
    number: u32,
    /// The end and arrival time of each part.
    parts: Vec<(usize, Instant)>,
    /// Parts that were parsed.
    done: usize,
}

/// Bytes of a segment.
const SEGMENT: usize = 128 << 10;
/// With less room than this, a new segment is begun.
const ROOM: usize = 16 << 10;

/// The memory of all backlogs of a thread. It is allocated in advance, because the kernel needs
/// longer to clear new memory than to copy received bytes.
pub(super) struct Pool {
    bytes: Box<[u8]>,
    free: Vec<u32>,
}

impl Pool {
    /// Memory for so many bytes, and for at least `least` segments.
    pub(super) fn new(bytes: usize, least: usize) -> Pool {
        let count = bytes.div_ceil(SEGMENT).max(least);
        let mut bytes = vec![0; count * SEGMENT].into_boxed_slice();
        const PAGE: usize = 4096;
        bytes.iter_mut().step_by(PAGE).for_each(|byte| *byte = 1);
        Pool { bytes, free: (0..count as u32).collect() }
    }

    /// How many segments are free.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    fn segment(&mut self, number: u32) -> &mut [u8] {
        let from = number as usize * SEGMENT;
        &mut self.bytes[from..from + SEGMENT]
    }
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Calls `receive` with free room; it returns the number of bytes and their arrival time.
    /// Returns the number of bytes, and whether there was room for more.
    ///
    /// # Errors
    /// Those of `receive`; [`io::ErrorKind::OutOfMemory`] when the pool is empty.
    pub(super) fn read(
        &mut self,
        receive: impl FnOnce(&mut [u8]) -> io::Result<(usize, Instant)>,
        pool: &mut Pool,
    ) -> io::Result<(usize, bool)> {
        let filled = self.segments.back().map(Segment::filled);
        if filled.is_none_or(|filled| SEGMENT - filled < ROOM) {
            let number = pool.free.pop().ok_or(io::ErrorKind::OutOfMemory)?;
            self.segments.push_back(Segment { number, parts: Vec::new(), done: 0 });
        }
        let Some(segment) = self.segments.back_mut() else { return Ok((0, false)) };
        let filled = segment.filled();
        let (n, came) = receive(&mut pool.segment(segment.number)[filled..])?;
        if n > 0 {
            segment.parts.push((filled + n, came));
        }
        Ok((n, filled + n < SEGMENT))
    }

    /// Passes the oldest part to `parse` and drops it; `None` without one.
    pub(super) fn next<R>(&mut self, pool: &mut Pool, parse: impl FnOnce(&[u8], Instant) -> R) -> Option<R> {
        let segment = self.segments.front_mut()?;
        let from = segment.done.checked_sub(1).map_or(0, |i| segment.parts[i].0);
        let bytes = pool.segment(segment.number);
        let parsed = segment.parts.get(segment.done).map(|(to, at)| parse(&bytes[from..*to], *at));
        segment.done += 1;
        if segment.done >= segment.parts.len()
            && let Some(segment) = self.segments.pop_front()
        {
            pool.free.push(segment.number);
        }
        parsed
    }

    /// Drops all parts.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        pool.free.extend(self.segments.drain(..).map(|segment| segment.number));
    }
}

impl Segment {
    fn filled(&self) -> usize {
        self.parts.last().map_or(0, |(end, _)| *end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    /// Reads all that fits, now.
    fn from(bytes: &mut &[u8]) -> impl FnOnce(&mut [u8]) -> io::Result<(usize, Instant)> {
        |room| Ok((bytes.read(room)?, Instant::now()))
    }

    #[test]
    fn bytes_come_out_as_they_went_in_and_memory_is_used_again() {
        let sent: Vec<u8> = (0..3 * SEGMENT as u32 + 77).map(|n| n as u8).collect();
        let mut pool = Pool::new(3 * SEGMENT + 1, 1);
        for _ in 0..2 {
            let (mut backlog, mut unread) = (Backlog::default(), &sent[..]);
            while backlog.read(from(&mut unread), &mut pool).unwrap().0 > 0 {}
            assert_eq!(pool.free(), 0);
            let mut more = Backlog::default();
            assert_eq!(
                more.read(from(&mut unread), &mut pool).unwrap_err().kind(),
                io::ErrorKind::OutOfMemory
            );
            let (mut got, mut last) = (Vec::new(), None);
            while !backlog.is_empty() {
                backlog.next(&mut pool, |bytes, at| {
                    got.extend_from_slice(bytes);
                    assert!(last.is_none_or(|last| last <= at));
                    last = Some(at);
                });
            }
            assert_eq!(got, sent);
            assert_eq!(pool.free(), 4);
        }
        let mut backlog = Backlog::default();
        backlog.read(from(&mut &sent[..]), &mut pool).unwrap();
        backlog.clear(&mut pool);
        assert_eq!(pool.free(), 4);
    }
}
