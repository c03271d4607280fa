//! Counts of the messages of a session, by type.

use ribtide_wire::bgp::message::MessageType;

/// Counts by type.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts([u64; 5]);

impl MessageCounts {
    /// Counts a message.
    pub fn count(&mut self, kind: MessageType) {
        self.0[kind as usize - 1] += 1;
    }

    /// The count of a type.
    pub fn of(&self, kind: MessageType) -> u64 {
        self.0[kind as usize - 1]
    }

    /// Sets the count of a type, where another part of the program has it.
    pub fn set(&mut self, kind: MessageType, count: u64) {
        self.0[kind as usize - 1] = count;
    }

    /// Adds the counts of another part of the session.
    pub fn add(&mut self, more: &MessageCounts) {
        self.0.iter_mut().zip(more.0).for_each(|(count, more)| *count += more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_counted_by_itself() {
        let kinds = [
            MessageType::Open,
            MessageType::Update,
            MessageType::Notification,
            MessageType::Keepalive,
            MessageType::RouteRefresh,
        ];
        let mut counts = MessageCounts::default();
        for (n, kind) in kinds.into_iter().enumerate() {
            (0..=n).for_each(|_| counts.count(kind));
        }
        counts.add(&counts.clone());
        assert_eq!(kinds.map(|kind| counts.of(kind)), [2, 4, 6, 8, 10]);
    }
}
