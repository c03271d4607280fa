//! The feedback of the RIB manager to shards: states of next hops, and confirmations. It never
//! blocks on a shard, because the shard may wait for the RIB manager. Feedback without room
//! coalesces here.

use ribtide_bgp::message::{Confirmation, NextHopState, ShardIn, TrackedNextHop};
use ribtide_prefix::{AnyPrefix, Map};
use ribtide_rib::FeedFence;
use ribtide_runtime::ring::{Sender, TrySend};
use std::collections::BTreeMap;

/// Blocked prefixes of one message, which bounds the turn of a shard.
const BLOCKED_BATCH_MAX: usize = 2048;

/// The feedback channel to a shard.
#[derive(Clone)]
pub struct FeedbackChannel {
    /// The number of the shard, never used twice.
    pub number: u32,
    /// Its request queue.
    pub requests: Sender<ShardIn>,
}

/// The channels to all shards, with unsent feedback.
#[derive(Default)]
pub(super) struct FeedbackChannels {
    channels: Vec<Unsent>,
    /// Whether FIB suppression is on.
    suppress: bool,
}

struct Unsent {
    channel: FeedbackChannel,
    suppress: Option<bool>,
    /// The last confirmed fence; 0: none since the last message.
    fence: u64,
    /// The newest state of each prefix.
    blocked: Map<AnyPrefix, bool>,
    /// The newest state of each next hop.
    next_hops: BTreeMap<TrackedNextHop, NextHopState>,
}

impl FeedbackChannels {
    /// Sets the shards: existing ones continue, new ones get all unsent feedback of the others.
    /// States of next hops move to new shards with the routes. Blocked prefixes are sent to all
    /// again, because a report may have arrived during a move.
    pub(super) fn set(&mut self, channels: Vec<FeedbackChannel>, blocked: impl Iterator<Item = AnyPrefix>) {
        let mut former = std::mem::take(&mut self.channels);
        let states = former.iter().flat_map(|unsent| unsent.next_hops.iter().map(|(a, s)| (*a, *s)));
        let next_hops: BTreeMap<_, _> = states.collect();
        let blocked: Vec<AnyPrefix> = blocked.collect();
        for channel in channels {
            let mut unsent = match former.iter().position(|unsent| unsent.channel.number == channel.number) {
                Some(at) => former.swap_remove(at),
                None => {
                    let next_hops = next_hops.clone();
                    let suppress = self.suppress.then_some(true);
                    Unsent { channel, suppress, fence: 0, blocked: Map::default(), next_hops }
                }
            };
            for prefix in &blocked {
                unsent.blocked.entry(*prefix).or_insert(true);
            }
            self.channels.push(unsent);
        }
        self.send();
    }

    /// Whether FIB suppression is on.
    pub(super) fn suppresses(&self) -> bool {
        self.suppress
    }

    /// Turns FIB suppression on or off. Unsent feedback of the former period is dropped.
    pub(super) fn suppress(&mut self, on: bool) {
        self.suppress = on;
        for unsent in &mut self.channels {
            (unsent.suppress, unsent.fence) = (Some(on), 0);
            unsent.blocked.clear();
        }
    }

    pub(super) fn next_hop(&mut self, next_hop: TrackedNextHop, state: NextHopState) {
        for unsent in &mut self.channels {
            unsent.next_hops.insert(next_hop, state);
        }
    }

    /// Shards ignore prefixes of others.
    pub(super) fn blocked(&mut self, prefix: AnyPrefix, blocked: bool) {
        for unsent in &mut self.channels {
            unsent.blocked.insert(prefix, blocked);
        }
    }

    pub(super) fn confirmed(&mut self, fence: FeedFence) {
        if let Some(unsent) = self.channels.iter_mut().find(|unsent| unsent.channel.number == fence.announcer)
        {
            unsent.fence = fence.seq;
        }
    }

    /// Whether feedback waits for room.
    pub(super) fn has_unsent(&self) -> bool {
        self.channels.iter().any(|unsent| !unsent.is_empty())
    }

    /// Shrinks what waits for room to its contents.
    pub(super) fn shrink_to_fit(&mut self) {
        self.channels.iter_mut().for_each(|unsent| unsent.blocked.shrink_to_fit());
    }

    /// Sends feedback while there is room.
    pub(super) fn send(&mut self) {
        self.channels.iter_mut().for_each(Unsent::send);
    }
}

impl Unsent {
    fn is_empty(&self) -> bool {
        self.suppress.is_none() && self.fence == 0 && self.blocked.is_empty() && self.next_hops.is_empty()
    }

    fn send(&mut self) {
        let requests = self.channel.requests.clone();
        // A queue is closed only when the process is stopping, or the shard has ended.
        let put = |message| matches!(requests.try_send(message), Ok(()) | Err(TrySend::Closed(_)));
        if let Some(on) = self.suppress {
            if !put(ShardIn::Suppress(on)) {
                return;
            }
            self.suppress = None;
        }
        while self.fence > 0 || !self.blocked.is_empty() {
            if requests.is_full() {
                return;
            }
            let blocked: Vec<(AnyPrefix, bool)> =
                self.blocked.extract_if(|_, _| true).take(BLOCKED_BATCH_MAX).collect();
            // The fence confirms all prefixes except blocked ones, so it goes with the last of
            // these.
            let fence = if self.blocked.is_empty() { std::mem::take(&mut self.fence) } else { 0 };
            if let Err(TrySend::Full(ShardIn::Confirmed(back))) =
                requests.try_send(ShardIn::Confirmed(Confirmation { fence, blocked }))
            {
                self.fence = self.fence.max(back.fence);
                self.blocked.extend(back.blocked);
                return;
            }
        }
        if !self.next_hops.is_empty() {
            let states = std::mem::take(&mut self.next_hops).into_iter().collect();
            if let Err(TrySend::Full(ShardIn::NextHops(states))) =
                requests.try_send(ShardIn::NextHops(states))
            {
                self.next_hops.extend(states);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_runtime::ring::{Receiver, Rings};
    use std::net::IpAddr;

    fn prefix(n: u8) -> AnyPrefix {
        format!("10.{n}.0.0/16").parse().unwrap()
    }

    #[test]
    fn what_does_not_fit_coalesces_and_numbers_come_behind_their_exceptions() {
        let (requests, shard) = Rings::default().bounded("requests to shard 0", 1);
        let mut channels = FeedbackChannels::default();
        channels.suppress(true);
        channels.set(vec![FeedbackChannel { number: 7, requests }], std::iter::empty());
        assert!(matches!(shard.try_recv(), Some(ShardIn::Suppress(true))), "a new one is told at once");
        channels.confirmed(FeedFence { announcer: 7, seq: 1 });
        channels.send();
        // Its queue is full now.
        channels.blocked(prefix(1), true);
        channels.confirmed(FeedFence { announcer: 7, seq: 2 });
        channels.confirmed(FeedFence { announcer: 8, seq: 9 });
        channels.send();
        channels.blocked(prefix(1), false);
        channels.blocked(prefix(2), true);
        channels.confirmed(FeedFence { announcer: 7, seq: 3 });
        channels.send();
        let heard = || match shard.try_recv() {
            Some(ShardIn::Confirmed(mut news)) => {
                news.blocked.sort();
                (news.fence, news.blocked)
            }
            other => panic!("{other:?}"),
        };
        assert_eq!(heard(), (1, vec![]));
        channels.send();
        assert_eq!(heard(), (3, vec![(prefix(1), false), (prefix(2), true)]));
        (0..3000u32).for_each(|n| {
            let text = format!("10.{}.{}.0/24", n / 256, n % 256);
            channels.blocked(text.parse().unwrap(), true);
        });
        channels.confirmed(FeedFence { announcer: 7, seq: 4 });
        channels.send();
        let first = heard();
        assert_eq!((first.0, first.1.len()), (0, BLOCKED_BATCH_MAX));
        channels.send();
        let last = heard();
        assert_eq!((last.0, last.1.len()), (4, 3000 - BLOCKED_BATCH_MAX));
    }

    /// One shard whose queue has room for one message, after it heard that suppression is on.
    fn one_shard() -> (FeedbackChannels, Receiver<ShardIn>) {
        let (requests, shard) = Rings::default().bounded("requests to shard 7", 1);
        let mut channels = FeedbackChannels::default();
        channels.suppress(true);
        channels.set(vec![FeedbackChannel { number: 7, requests }], std::iter::empty());
        assert!(matches!(shard.try_recv(), Some(ShardIn::Suppress(true))));
        (channels, shard)
    }

    fn confirmation(shard: &Receiver<ShardIn>) -> (u64, Vec<(AnyPrefix, bool)>) {
        match shard.try_recv() {
            Some(ShardIn::Confirmed(mut news)) => {
                news.blocked.sort();
                (news.fence, news.blocked)
            }
            other => panic!("{other:?}"),
        }
    }

    fn next_hops(shard: &Receiver<ShardIn>) -> Vec<(TrackedNextHop, NextHopState)> {
        match shard.try_recv() {
            Some(ShardIn::NextHops(states)) => states,
            other => panic!("{other:?}"),
        }
    }

    fn next_hop(n: u8) -> TrackedNextHop {
        TrackedNextHop { address: IpAddr::from([10, 0, 0, n]), recursive: true, exclude: None }
    }

    #[test]
    fn next_hop_states_full_queue_newest_is_sent_when_there_is_room() {
        let (mut channels, shard) = one_shard();
        channels.confirmed(FeedFence { announcer: 7, seq: 1 });
        channels.send();
        channels.next_hop(next_hop(1), NextHopState::Reachable { cost: 5, partial: false });
        channels.next_hop(next_hop(2), NextHopState::Unreachable);
        channels.send();
        channels.next_hop(next_hop(1), NextHopState::Unreachable);
        channels.send();
        assert!(channels.has_unsent());
        assert_eq!(confirmation(&shard), (1, vec![]));
        channels.send();
        assert_eq!(
            next_hops(&shard),
            [(next_hop(1), NextHopState::Unreachable), (next_hop(2), NextHopState::Unreachable)]
        );
        assert!(!channels.has_unsent());
    }

    #[test]
    fn new_shard_gets_suppression_blocked_prefixes_and_unsent_next_hops() {
        let (mut channels, old) = one_shard();
        channels.confirmed(FeedFence { announcer: 7, seq: 1 });
        channels.send();
        // The queue of the old shard is full, so these wait there when the new one comes.
        channels.next_hop(next_hop(1), NextHopState::Unreachable);
        channels.blocked(prefix(2), false);
        let (requests, new) = Rings::default().bounded("requests to shard 8", 4);
        let existing = channels.channels[0].channel.clone();
        let shards = vec![existing, FeedbackChannel { number: 8, requests }];
        channels.set(shards, [prefix(1), prefix(2)].into_iter());
        assert!(matches!(new.try_recv(), Some(ShardIn::Suppress(true))));
        assert_eq!(confirmation(&new), (0, vec![(prefix(1), true), (prefix(2), true)]));
        assert_eq!(next_hops(&new), [(next_hop(1), NextHopState::Unreachable)]);
        // The old one gets them as well, but a newer state that it has not heard stays.
        assert_eq!(confirmation(&old), (1, vec![]));
        channels.send();
        assert_eq!(confirmation(&old), (0, vec![(prefix(1), true), (prefix(2), false)]));
    }

    #[test]
    fn suppression_off_and_on_unsent_confirmation_of_before_is_dropped() {
        let (mut channels, shard) = one_shard();
        channels.confirmed(FeedFence { announcer: 7, seq: 1 });
        channels.send();
        channels.confirmed(FeedFence { announcer: 7, seq: 2 });
        channels.blocked(prefix(1), true);
        channels.suppress(false);
        channels.suppress(true);
        assert_eq!(confirmation(&shard), (1, vec![]));
        channels.send();
        assert!(matches!(shard.try_recv(), Some(ShardIn::Suppress(true))));
        channels.send();
        assert!(shard.try_recv().is_none(), "it is of the former suppression");
        assert!(!channels.has_unsent());
    }
}
