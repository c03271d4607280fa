//! The flight recorder: the last messages of a session as bytes, in a bounded ring.
//!
//! A ring takes what a stage has at hand, whole messages one after the other: a reader the end of what it read, the session
//! thread the chunks that workers packed, which receivers share. So it costs nothing per message, and little per read or
//! chunk. Readers of a ring cut it into messages.

use ribtide_runtime::clock::Millis;
use ribtide_wire::bgp::message::{HEADER_LEN, MAX_EXTENDED_LEN, MessageType, frame};
use std::collections::VecDeque;
use std::sync::Arc;

/// The side that a message came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Direction {
    /// The peer sent it.
    Received,
    /// This router sent it, or has it in the write queue.
    Sent,
}

/// Whole messages that were received, or queued to be sent, together.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// When, in milliseconds of the router's clock.
    pub at: Millis,
    /// From which side.
    pub direction: Direction,
    /// Their bytes, markers included.
    pub bytes: Arc<[u8]>,
}

impl Recorded {
    /// Its messages in order: the type and the whole bytes of each.
    pub fn messages(&self) -> impl Iterator<Item = (MessageType, &[u8])> {
        let mut rest: &[u8] = &self.bytes;
        std::iter::from_fn(move || {
            let (kind, len) =
                frame(rest, MAX_EXTENDED_LEN).ok()?.map(|frame| (frame.kind, frame.total_len))?;
            let (message, after) = rest.split_at_checked(len)?;
            rest = after;
            Some((kind, message))
        })
    }
}

/// The last of them. It has at most its bound of bytes, or a single message that is longer.
#[derive(Clone, Debug, Default)]
pub struct MessageRing {
    bound: usize,
    bytes: usize,
    all: VecDeque<Recorded>,
}

impl MessageRing {
    /// An empty ring of at most so many bytes; 0: it stays empty.
    pub(crate) fn new(bound: usize) -> MessageRing {
        MessageRing { bound, ..MessageRing::default() }
    }

    /// Its bound in bytes.
    pub(crate) fn bound(&self) -> usize {
        self.bound
    }

    /// Sets the bound.
    pub(crate) fn set_bound(&mut self, bound: usize) {
        self.bound = bound;
        self.trim(usize::from(bound > 0));
    }

    /// Adds messages, of which the caller has cut off what [`recent`] cuts off.
    pub(crate) fn push(&mut self, at: Millis, direction: Direction, bytes: Arc<[u8]>) {
        if self.bound > 0 && !bytes.is_empty() {
            self.bytes += bytes.len();
            self.all.push_back(Recorded { at, direction, bytes });
            self.trim(1);
        }
    }

    fn trim(&mut self, least: usize) {
        while self.bytes > self.bound
            && self.all.len() > least
            && let Some(oldest) = self.all.pop_front()
        {
            self.bytes -= oldest.bytes.len();
        }
    }

    /// Empties the ring.
    pub(crate) fn take(&mut self) -> Vec<Recorded> {
        self.bytes = 0;
        std::mem::take(&mut self.all).into()
    }

    /// What it has, the oldest first.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Recorded> {
        self.all.iter()
    }
}

/// The last of whole messages, at most `bound` bytes of them, or the last one alone.
pub(crate) fn recent(messages: &Arc<[u8]>, bound: usize) -> Arc<[u8]> {
    if messages.len() <= bound || bound == 0 {
        return messages.clone();
    }
    let mut rest: &[u8] = messages;
    while rest.len() > bound
        && let Some([high, low]) = rest.get(HEADER_LEN - 3..HEADER_LEN - 1)
        && let Some(after) = rest.get(usize::from(u16::from_be_bytes([*high, *low])).max(HEADER_LEN)..)
        && !after.is_empty()
    {
        rest = after;
    }
    rest.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_wire::bgp::message::write;

    fn update(n: u8, len: usize) -> Vec<u8> {
        let mut message = Vec::new();
        write(&mut message, MessageType::Update, &vec![n; len]);
        message
    }

    fn numbers(ring: &MessageRing) -> Vec<u8> {
        ring.iter().flat_map(Recorded::messages).map(|(_, message)| message[HEADER_LEN]).collect()
    }

    #[test]
    fn ring_keeps_the_last_messages_within_its_bound() {
        let mut ring = MessageRing::new(200);
        for n in 0..10u8 {
            let both = [update(2 * n, 31), update(2 * n + 1, 31)].concat();
            ring.push(n.into(), Direction::Sent, both.into());
        }
        assert_eq!(numbers(&ring), [16, 17, 18, 19]);
        assert_eq!(ring.bytes, ring.iter().map(|recorded| recorded.bytes.len()).sum::<usize>());
        // One that is longer than the bound is there alone.
        ring.push(10, Direction::Received, update(99, 1000).into());
        assert_eq!(numbers(&ring), [99]);
        ring.push(11, Direction::Received, update(100, 31).into());
        assert_eq!(numbers(&ring), [100]);
        ring.set_bound(0);
        ring.push(12, Direction::Received, update(101, 31).into());
        assert!(numbers(&ring).is_empty() && ring.bytes == 0);
    }

    #[test]
    fn recent_is_whole_messages_at_the_end() {
        let all: Arc<[u8]> = (0..10).flat_map(|n| update(n, 31)).collect();
        let of = |bound: usize| {
            let recorded = Recorded { at: 0, direction: Direction::Sent, bytes: recent(&all, bound) };
            let numbers: Vec<u8> = recorded.messages().map(|(_, message)| message[HEADER_LEN]).collect();
            assert_eq!(recorded.bytes.len(), 50 * numbers.len());
            numbers
        };
        assert_eq!(of(500).len(), 10);
        assert_eq!(of(499), (1..10).collect::<Vec<_>>());
        assert_eq!(of(100), [8, 9]);
        assert_eq!(of(99), [9]);
        assert_eq!(of(10), [9]);
    }
}
