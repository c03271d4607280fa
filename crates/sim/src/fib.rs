//! The RIB manager and a dataplane, as far as shards notice: they take what is fed, fail some of it, confirm the rest,
//! and say so late and in lots.

use ribtide_bgp::message::{Confirmation, FeedSet, TrackedNextHop};
use ribtide_prefix::{AnyPrefix, Rng};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a shard says to the RIB manager.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    /// The next hops of a prefix are others, or it has none any more.
    Feed(AnyPrefix, Option<FeedSet>),
    /// It uses these next hops from now on.
    Track(Vec<TrackedNextHop>),
    /// It does not any more.
    Untrack(Vec<TrackedNextHop>),
    /// It wants to know when all before this is done.
    Mark(u64),
}

/// Both.
pub(crate) struct Fib {
    /// Whether shards are told.
    on: bool,
    /// Whether anything ever fails.
    faulty: bool,
    /// What shards said, by shard.
    inbox: VecDeque<(usize, Said)>,
    /// What the dataplane has still to do; true: it is a change for it.
    queue: VecDeque<(usize, Said, bool)>,
    want: BTreeMap<AnyPrefix, FeedSet>,
    pub(crate) blocked: BTreeSet<AnyPrefix>,
    /// What each shard is still to be told.
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

    /// Shards are told from now on, or no longer.
    pub(crate) fn switch(&mut self) {
        self.on = !self.on;
        self.queue.retain(|(_, said, _)| matches!(said, Said::Feed(..)));
        self.unsent.fill(Default::default());
        (0..self.unsent.len()).for_each(|shard| self.tell_all(shard));
    }

    /// A shard is told of all that is blocked.
    pub(crate) fn tell_all(&mut self, shard: usize) {
        if self.on {
            self.unsent[shard].1.extend(self.blocked.iter().map(|prefix| (*prefix, true)));
        }
    }

    pub(crate) fn hear(&mut self, shard: usize, said: impl IntoIterator<Item = Said>) {
        let is_watched = |said: &Said| matches!(said, Said::Track(_) | Said::Untrack(_));
        self.inbox.extend(said.into_iter().filter(|said| !is_watched(said)).map(|said| (shard, said)));
    }

    /// What there is to tell a shard.
    pub(crate) fn news(&mut self, shard: usize) -> Option<Confirmation> {
        let (mark, blocked) = std::mem::take(&mut self.unsent[shard]);
        (mark > 0 || !blocked.is_empty())
            .then(|| Confirmation { mark, blocked: blocked.into_iter().collect() })
    }

    pub(crate) fn is_busy(&self) -> bool {
        let told = |(mark, blocked): &(u64, BTreeMap<_, _>)| *mark == 0 && blocked.is_empty();
        !self.inbox.is_empty() || !self.queue.is_empty() || !self.unsent.iter().all(told)
    }

    pub(crate) fn assert_idle(&self) {
        assert!(self.want.is_empty() && self.blocked.is_empty());
    }

    /// One of the two does something.
    pub(crate) fn advance(&mut self, rng: &mut Rng) {
        if rng.one_in(2) { self.take() } else { self.finish(rng) }
    }

    /// The RIB manager takes something in.
    fn take(&mut self) {
        let Some((shard, said)) = self.inbox.pop_front() else { return };
        let mut changed = false;
        if let Said::Feed(prefix, set) = &said {
            changed = self.want.get(prefix) != set.as_ref();
            match set {
                Some(set) => self.want.insert(*prefix, set.clone()),
                None => self.want.remove(prefix),
            };
            if set.is_none() {
                if self.blocked.remove(prefix) {
                    self.tell(*prefix, false);
                }
            } else if self.blocked.contains(prefix) {
                self.tell(*prefix, true);
            }
        }
        self.queue.push_back((shard, said, changed));
    }

    /// The dataplane does something.
    fn finish(&mut self, rng: &mut Rng) {
        let Some((shard, said, changed)) = self.queue.pop_front() else { return };
        match said {
            Said::Mark(mark) if self.on => self.unsent[shard].0 = mark,
            Said::Feed(prefix, Some(_)) if changed && self.want.contains_key(&prefix) => {
                if self.faulty && rng.one_in(5) {
                    self.blocked.insert(prefix);
                    self.tell(prefix, true);
                } else if self.blocked.contains(&prefix) && !self.is_under_way(prefix) {
                    self.blocked.remove(&prefix);
                    self.tell(prefix, false);
                }
            }
            _ => {}
        }
    }

    /// Something that was done fails, or is mended.
    pub(crate) fn turn(&mut self, rng: &mut Rng) {
        let all: Vec<AnyPrefix> = self.want.keys().copied().collect();
        if all.is_empty() || !self.faulty {
            return;
        }
        let prefix = *rng.pick(&all);
        if self.is_under_way(prefix) {
            return;
        }
        let mended = self.blocked.remove(&prefix);
        if !mended {
            self.blocked.insert(prefix);
        }
        self.tell(prefix, !mended);
    }

    fn is_under_way(&self, prefix: AnyPrefix) -> bool {
        self.queue
            .iter()
            .any(|(_, said, changed)| *changed && matches!(said, Said::Feed(p, _) if *p == prefix))
    }

    fn tell(&mut self, prefix: AnyPrefix, blocked: bool) {
        if self.on {
            self.unsent.iter_mut().for_each(|(_, news)| {
                news.insert(prefix, blocked);
            });
        }
    }
}
