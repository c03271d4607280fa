//! What came and was not looked at yet. While the router works, its neighbours only take bytes and note when they came:
//! reading them costs more than taking them, and would take cores from the router whose speed is in question.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::time::Instant;

/// Bytes of one session, and when each part of them came.
#[derive(Default)]
pub(super) struct Backlog {
    segments: VecDeque<Segment>,
}

struct Segment {
    bytes: Box<[u8]>,
    /// Where each part ends, and when it came.
    parts: Vec<(usize, Instant)>,
    /// Parts that were looked at.
    done: usize,
}

/// Bytes of a segment.
const SEGMENT: usize = 256 << 10;
/// With less room than this, a new segment is begun.
const ROOM: usize = 16 << 10;

/// Segments to be used again, and how many bytes are held in all.
#[derive(Default)]
pub(super) struct Pool {
    spare: Vec<Box<[u8]>>,
    held: usize,
}

impl Pool {
    /// Bytes in segments in use.
    pub(super) fn held(&self) -> usize {
        self.held
    }
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    /// Reads once. Returns how many bytes came, and whether there was room for more.
    pub(super) fn read(&mut self, from: &mut impl Read, pool: &mut Pool) -> io::Result<(usize, bool)> {
        let filled = self.segments.back().map(Segment::filled);
        if filled.is_none_or(|filled| SEGMENT - filled < ROOM) {
            let bytes = pool.spare.pop().unwrap_or_else(|| vec![0; SEGMENT].into());
            pool.held += SEGMENT;
            self.segments.push_back(Segment { bytes, parts: Vec::new(), done: 0 });
        }
        let Some(segment) = self.segments.back_mut() else { return Ok((0, false)) };
        let filled = segment.filled();
        let n = from.read(&mut segment.bytes[filled..])?;
        if n > 0 {
            segment.parts.push((filled + n, Instant::now()));
        }
        Ok((n, filled + n < SEGMENT))
    }

    /// Hands the oldest part to `look` and forgets it; `None` when there is none.
    pub(super) fn next<R>(&mut self, pool: &mut Pool, look: impl FnOnce(&[u8], Instant) -> R) -> Option<R> {
        let segment = self.segments.front_mut()?;
        let from = segment.done.checked_sub(1).map_or(0, |i| segment.parts[i].0);
        let looked = segment.parts.get(segment.done).map(|(to, at)| look(&segment.bytes[from..*to], *at));
        segment.done += 1;
        if segment.done >= segment.parts.len()
            && let Some(segment) = self.segments.pop_front()
        {
            pool.held -= SEGMENT;
            pool.spare.push(segment.bytes);
        }
        looked
    }

    /// Forgets all.
    pub(super) fn clear(&mut self, pool: &mut Pool) {
        for segment in self.segments.drain(..) {
            pool.held -= SEGMENT;
            pool.spare.push(segment.bytes);
        }
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

    #[test]
    fn bytes_come_out_as_they_went_in_and_memory_is_used_again() {
        let sent: Vec<u8> = (0..3 * SEGMENT as u32 + 77).map(|n| n as u8).collect();
        let (mut backlog, mut pool, mut from) = (Backlog::default(), Pool::default(), &sent[..]);
        for _ in 0..2 {
            while backlog.read(&mut from, &mut pool).unwrap().0 > 0 {}
            assert!(pool.held() > sent.len() - from.len() || sent.is_empty());
            let mut got = Vec::new();
            let mut last = None;
            while !backlog.is_empty() {
                let take = |bytes: &[u8], at| {
                    got.extend_from_slice(bytes);
                    assert!(last.is_none_or(|last| last <= at));
                    last = Some(at);
                };
                backlog.next(&mut pool, take);
            }
            assert_eq!(got, sent);
            assert_eq!(pool.held(), 0);
            from = &sent;
        }
        assert_eq!(pool.spare.len(), 4);
    }
}
