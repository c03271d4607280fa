//! Redistributed routes on their way to BGP's session thread. The RIB manager never waits for it,
//! because shards may wait for the RIB manager. Changes without room coalesce here.

use ribtide_prefix::{AnyPrefix, Map};
use ribtide_rib::Protocol;
use ribtide_runtime::ring::{Sender, TrySend};

/// Prefixes of one message at most.
const BATCH: usize = 4096;

/// A batch of changes: the protocol of each redistributed prefix, or `None` for one that is no more.
pub type Redistributed = Vec<(AnyPrefix, Option<Protocol>)>;

/// The channel, with unsent changes.
pub(super) struct RedistributionChannel {
    sessions: Option<Sender<Redistributed>>,
    /// The newest state of each prefix.
    unsent: Map<AnyPrefix, Option<Protocol>>,
}

impl RedistributionChannel {
    /// A channel to the session thread, if BGP runs.
    pub(super) fn new(sessions: Option<Sender<Redistributed>>) -> RedistributionChannel {
        RedistributionChannel { sessions, unsent: Map::default() }
    }

    pub(super) fn add(&mut self, changes: Redistributed) {
        if self.sessions.is_some() {
            self.unsent.extend(changes);
        }
    }

    /// Whether changes wait for room.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends changes while there is room.
    pub(super) fn send(&mut self) {
        let Some(sessions) = &self.sessions else { return };
        while !self.unsent.is_empty() && !sessions.is_full() {
            let batch: Redistributed = self.unsent.extract_if(|_, _| true).take(BATCH).collect();
            match sessions.try_send(batch) {
                // A queue is closed only when the process is stopping.
                Ok(()) | Err(TrySend::Closed(_)) => {}
                Err(TrySend::Full(batch)) => {
                    self.unsent.extend(batch);
                    return;
                }
            }
        }
        if self.unsent.is_empty() {
            self.unsent = Map::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_runtime::ring::Rings;

    #[test]
    fn changes_coalesce_while_the_session_thread_is_busy() {
        let (sender, sessions) = Rings::default().bounded("redistribution to sessions", 1);
        let mut channel = RedistributionChannel::new(Some(sender));
        let prefix: AnyPrefix = "10.0.0.0/8".parse().unwrap();
        channel.add(vec![(prefix, Some(Protocol::Static))]);
        channel.send();
        channel.add(vec![(prefix, None), (prefix, Some(Protocol::Kernel))]);
        channel.send();
        assert!(channel.has_unsent());
        assert_eq!(sessions.try_recv(), Some(vec![(prefix, Some(Protocol::Static))]));
        channel.send();
        assert_eq!(sessions.try_recv(), Some(vec![(prefix, Some(Protocol::Kernel))]));
        assert!(!channel.has_unsent());
    }
}
