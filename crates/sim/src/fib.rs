//! The RIB manager and a dataplane, as shards see them: they take routes, fail some, confirm the
//! rest, and report late and in batches.

use ribtide_bgp::message::{Confirmation, FeedSet, TrackedNextHop};
use ribtide_prefix::{AnyPrefix, Rng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// A message of a shard to the RIB manager.
#[derive(Clone, Debug)]
pub(crate) enum ToRib {
    /// The next hops of a prefix changed, or the prefix is withdrawn.
    Feed(AnyPrefix, Option<FeedSet>),
    /// It registers next hops.
    Track(Vec<TrackedNextHop>),
    /// It unregisters next hops.
    Untrack(Vec<TrackedNextHop>),
    /// A fence: it requests a confirmation of all earlier routes.
    Fence(u64),
}

/// Both.
pub(crate) struct Fib {
    /// Whether suppression is on.
    on: bool,
    /// Whether failures occur.
    faulty: bool,
    /// Messages of shards, by shard.
    inbox: VecDeque<(usize, ToRib)>,
    /// Work of the dataplane; true for a change of its routes.
    queue: VecDeque<(usize, ToRib, bool)>,
    want: BTreeMap<AnyPrefix, FeedSet>,
    pub(crate) blocked: BTreeSet<AnyPrefix>,
    /// Unsent confirmations of each shard.
    unsent: Vec<(u64, BTreeMap<AnyPrefix, bool>)>,
}

impl Fib {
    pub(crate) fn new(shards: usize, on: bool, faulty: bool) -> Fib {
        Fib {
            on,
            faulty,
            inbox: VecDeque::new(),
            queue: VecDeque::new(),
            want: BTreeMap::new(),
            blocked: BTreeSet::new(),
            unsent: vec![Default::default(); shards],
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on
    }

    /// Switches suppression on or off.
    pub(crate) fn switch(&mut self) {
        self.on = !self.on;
        self.queue.retain(|(_, message, _)| matches!(message, ToRib::Feed(..)));
        self.unsent.fill(Default::default());
        (0..self.unsent.len()).for_each(|shard| self.notify_all(shard));
    }

    /// Notifies a shard of all blocked prefixes.
    pub(crate) fn notify_all(&mut self, shard: usize) {
        if self.on {
            self.unsent[shard].1.extend(self.blocked.iter().map(|prefix| (*prefix, true)));
        }
    }

    pub(crate) fn receive(&mut self, shard: usize, message: impl IntoIterator<Item = ToRib>) {
        let is_watched = |message: &ToRib| matches!(message, ToRib::Track(_) | ToRib::Untrack(_));
        self.inbox.extend(
            message.into_iter().filter(|message| !is_watched(message)).map(|message| (shard, message)),
        );
    }

    /// The next confirmation for a shard.
    pub(crate) fn confirmation(&mut self, shard: usize) -> Option<Confirmation> {
        let (fence, blocked) = std::mem::take(&mut self.unsent[shard]);
        (fence > 0 || !blocked.is_empty())
            .then(|| Confirmation { fence, blocked: blocked.into_iter().collect() })
    }

    pub(crate) fn is_busy(&self) -> bool {
        let is_sent = |(fence, blocked): &(u64, BTreeMap<_, _>)| *fence == 0 && blocked.is_empty();
        !self.inbox.is_empty() || !self.queue.is_empty() || !self.unsent.iter().all(is_sent)
    }

    pub(crate) fn assert_idle(&self) {
        assert!(self.want.is_empty() && self.blocked.is_empty());
    }

    /// Runs one step of one of the two.
    pub(crate) fn advance(&mut self, rng: &mut Rng) {
        if rng.one_in(2) { self.take() } else { self.finish(rng) }
    }

    /// The RIB manager takes a message.
    fn take(&mut self) {
        let Some((shard, message)) = self.inbox.pop_front() else { return };
        let mut changed = false;
        if let ToRib::Feed(prefix, set) = &message {
            changed = self.want.get(prefix) != set.as_ref();
            match set {
                Some(set) => self.want.insert(*prefix, set.clone()),
                None => self.want.remove(prefix),
            };
            if set.is_none() {
                if self.blocked.remove(prefix) {
                    self.notify(*prefix, false);
                }
            } else if self.blocked.contains(prefix) {
                self.notify(*prefix, true);
            }
        }
        self.queue.push_back((shard, message, changed));
    }

    /// The dataplane finishes a change.
    fn finish(&mut self, rng: &mut Rng) {
        let Some((shard, message, changed)) = self.queue.pop_front() else { return };
        match message {
            ToRib::Fence(fence) if self.on => self.unsent[shard].0 = fence,
            ToRib::Feed(prefix, Some(_)) if changed && self.want.contains_key(&prefix) => {
                if self.faulty && rng.one_in(5) {
                    self.blocked.insert(prefix);
                    self.notify(prefix, true);
                } else if self.blocked.contains(&prefix) && !self.is_in_flight(prefix) {
                    self.blocked.remove(&prefix);
                    self.notify(prefix, false);
                }
            }
            _ => {}
        }
    }

    /// A finished change fails, or a failed one succeeds.
    pub(crate) fn turn(&mut self, rng: &mut Rng) {
        let all: Vec<AnyPrefix> = self.want.keys().copied().collect();
        if all.is_empty() || !self.faulty {
            return;
        }
        let prefix = *rng.pick(&all);
        if self.is_in_flight(prefix) {
            return;
        }
        let mended = self.blocked.remove(&prefix);
        if !mended {
            self.blocked.insert(prefix);
        }
        self.notify(prefix, !mended);
    }

    fn is_in_flight(&self, prefix: AnyPrefix) -> bool {
        self.queue
            .iter()
            .any(|(_, message, changed)| *changed && matches!(message, ToRib::Feed(p, _) if *p == prefix))
    }

    fn notify(&mut self, prefix: AnyPrefix, blocked: bool) {
        if self.on {
            self.unsent.iter_mut().for_each(|(_, confirmation)| {
                confirmation.insert(prefix, blocked);
            });
        }
    }
}
