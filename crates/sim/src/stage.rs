//! A shard with its queues, and those who follow what it says: each checks every message against all before.

use crate::egress::Egress;
use crate::fib::Said;
use crate::oracle::Learned;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::{
    BestBatch, BestPath, Confirmation, EgressIn, Feed, FeedSet, NONE, ShardIn, TrackedNextHop,
};
use ribtide_bgp::peer::PeerId;
use ribtide_bgp::shard::{Cut, Effects, HashSeed, Moved, Shard, ShardOut, Split, ToEgress};
use ribtide_prefix::{Afi, AnyPrefix, Family, LogicalShard, Rng, for_each_family, logical_shard};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A table as a receiver of the changes sees it: attributes in wire form with their next hop, and the source.
pub(crate) type Table = BTreeMap<AnyPrefix, (AttrSet, PeerId)>;

/// Asks for dumps in place of a worker.
pub(crate) const FOLLOWER: u32 = u32::MAX;

/// A shard with its queues and its followers.
pub(crate) struct Stage {
    pub(crate) shard: Shard,
    out: ShardOut,
    pub(crate) queues: Vec<VecDeque<ShardIn>>,
    /// The best paths, by changes alone.
    pub(crate) mirror: Table,
    /// Tables of those who asked for a dump: by dump and changes from then on.
    pub(crate) followers: BTreeMap<u64, Follower>,
    pub(crate) feed: BTreeMap<AnyPrefix, FeedSet>,
    pub(crate) next_hops: BTreeSet<TrackedNextHop>,
    /// Sessions that ended and are not yet confirmed.
    pub(crate) ending: BTreeSet<(PeerId, u32)>,
    /// Parts of logical shards that another has given away and this one has not taken yet.
    parcels: Vec<Parcel>,
    /// Next hops that came into use since this was last emptied.
    pub(crate) asked: Vec<TrackedNextHop>,
    /// What it said to the RIB manager since this was last emptied.
    pub(crate) said: Vec<Said>,
    pub(crate) confirmed: Confirmed,
    /// It has taken logical shards and may have missed what was said of them on their way.
    pub(crate) missed: bool,
}

/// What the shard was told of dataplanes.
#[derive(Default)]
pub(crate) struct Confirmed {
    /// Whether its followers are told only what is forwarded.
    pub(crate) on: bool,
    mark: u64,
    blocked: BTreeSet<AnyPrefix>,
    /// The mark that ends the last feed of a prefix; none yet: the last number of all.
    waits: BTreeMap<AnyPrefix, u64>,
    /// Prefixes that came from another shard, which may be fed again as they are.
    moved: BTreeSet<AnyPrefix>,
}

impl Confirmed {
    fn hear(&mut self, news: &Confirmation) {
        self.mark = self.mark.max(news.mark);
        for (prefix, blocked) in &news.blocked {
            match blocked {
                true => self.blocked.insert(*prefix),
                false => self.blocked.remove(prefix),
            };
        }
    }

    /// Whether a path may be told of a prefix.
    fn is_forwarded(&self, prefix: &AnyPrefix) -> bool {
        let waits = self.waits.get(prefix).copied().unwrap_or(0);
        !self.on || (waits <= self.mark && !self.blocked.contains(prefix))
    }
}

/// A part of a logical shard on its way, and what those who follow it know.
pub(crate) struct Parcel {
    moved: Moved,
    holds: Holds,
    mirror: Table,
    followers: Vec<(u64, Table)>,
    feed: BTreeMap<AnyPrefix, FeedSet>,
}

impl Parcel {
    /// Where the next part begins.
    pub(crate) fn end(&self) -> Cut {
        self.moved.end()
    }
}

/// Which prefixes a part of a logical shard has: those behind the first cut and before the second.
struct Holds([Split; 2]);

impl Holds {
    fn has(&self, prefix: AnyPrefix) -> bool {
        let Holds([from, end]) = self;
        logical_shard_of(prefix) == from.logical && !has_moved(from, prefix) && has_moved(end, prefix)
    }
}

/// Whether a prefix of a logical shard that is moving has moved.
pub(crate) fn has_moved(split: &Split, prefix: AnyPrefix) -> bool {
    match prefix {
        AnyPrefix::V4(prefix) => split.has_moved(prefix),
        AnyPrefix::V6(prefix) => split.has_moved(prefix),
    }
}

/// Someone who asked for a dump.
pub(crate) struct Follower {
    pub(crate) afi: Afi,
    pub(crate) table: Table,
    pub(crate) complete: bool,
}

impl Stage {
    pub(crate) fn new(options: DecisionOptions, seed: &HashSeed, queues: usize) -> Stage {
        Stage::of(Shard::new(options).with_seed(seed), queues)
    }

    /// The stage of a shard.
    pub(crate) fn of(shard: Shard, queues: usize) -> Stage {
        Stage {
            shard,
            out: ShardOut::default(),
            queues: (0..queues).map(|_| VecDeque::new()).collect(),
            mirror: Table::new(),
            followers: BTreeMap::new(),
            feed: BTreeMap::new(),
            next_hops: BTreeSet::new(),
            ending: BTreeSet::new(),
            parcels: Vec::new(),
            asked: Vec::new(),
            said: Vec::new(),
            confirmed: Confirmed::default(),
            missed: false,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.shard.work_left()
            || !self.out.is_empty()
            || self.shard.mark_due()
            || !self.parcels.is_empty()
            || self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Handles all that waits, queue by queue.
    pub(crate) fn drain(&mut self, rng: &mut Rng, egress: &mut Egress) {
        while self.queues.iter().any(|queue| !queue.is_empty()) || !self.parcels.is_empty() {
            self.advance(rng, egress);
        }
        self.deliver(egress);
    }

    /// Gives the next part of a logical shard away, of about so many paths, and all that is known of it.
    pub(crate) fn give(&mut self, from: &Split, paths: usize, egress: &mut Egress) -> Parcel {
        let moved = self.shard.extract(from.logical, from.cut, paths, &mut self.out);
        self.deliver(egress);
        let holds = Holds([from.clone(), Split { cut: moved.end(), ..from.clone() }]);
        self.confirmed.waits.retain(|prefix, _| !holds.has(*prefix));
        let followers = self.followers.iter_mut();
        Parcel {
            moved,
            mirror: split(&mut self.mirror, &holds),
            followers: followers.map(|(token, f)| (*token, split(&mut f.table, &holds))).collect(),
            feed: split(&mut self.feed, &holds),
            holds,
        }
    }

    /// A part of a logical shard is on its way here.
    pub(crate) fn expect(&mut self, parcel: Parcel) {
        self.parcels.push(parcel);
    }

    fn take(&mut self) {
        let Some(Parcel { moved, holds, mirror, followers, feed }) = self.parcels.pop() else { return };
        self.confirmed.moved.extend(feed.keys());
        // What it heard of them before was not for it; what is blocked it is told with the answer to what it feeds now.
        self.confirmed.blocked.retain(|prefix| !holds.has(*prefix));
        self.missed = true;
        self.mirror.extend(mirror);
        self.feed.extend(feed);
        for (token, table) in followers {
            self.followers.get_mut(&token).expect("all shards have the same followers").table.extend(table);
        }
        self.shard.adopt(moved, &mut self.out);
    }

    /// Whether a message may be handled now: routes and dumps wait for what is on its way.
    fn may_handle(&self, queue: &VecDeque<ShardIn>) -> bool {
        let waits = |message: &ShardIn| matches!(message, ShardIn::Routes(_) | ShardIn::Dump(_));
        queue.front().is_some_and(|message| self.parcels.is_empty() || !waits(message))
    }

    /// One message or one step, by chance.
    pub(crate) fn advance(&mut self, rng: &mut Rng, egress: &mut Egress) {
        if !self.parcels.is_empty() && rng.one_in(3) {
            self.take();
        }
        let waiting: Vec<usize> =
            (0..self.queues.len()).filter(|n| self.may_handle(&self.queues[*n])).collect();
        if !waiting.is_empty() && (!self.shard.work_left() || rng.one_in(2)) {
            let queue = *rng.pick(&waiting);
            if let Some(message) = self.queues[queue].pop_front() {
                // What it said before is judged by what it knew before; what it does before it begins to wait, too.
                match &message {
                    ShardIn::Confirmed(news) => {
                        self.deliver(egress);
                        self.confirmed.hear(news);
                        self.shard.handle(message, &mut self.out);
                    }
                    ShardIn::Suppress(on) => {
                        let on = *on;
                        self.shard.handle(message, &mut self.out);
                        self.deliver(egress);
                        self.confirmed = Confirmed { on, ..Confirmed::default() };
                    }
                    _ => self.shard.handle(message, &mut self.out),
                }
            }
        } else {
            self.shard.step(&mut self.out);
        }
        if rng.one_in(3) {
            self.deliver(egress);
        }
    }

    /// The followers take what the shard has said.
    fn deliver(&mut self, egress: &mut Egress) {
        let Effects { egress: said, feed, next_hops, purged } = self.out.take();
        for effect in said {
            match effect {
                ToEgress::All(batch) => {
                    for_each_family!(F => self.changes::<F>(&batch));
                    egress.changes(Arc::new(batch));
                }
                ToEgress::One(FOLLOWER, part) => self.dumped(part),
                ToEgress::One(worker, part) => egress.dumped(worker, part),
            }
        }
        let uses = |used: bool| next_hops.iter().filter(|(_, u)| *u == used).map(|(hop, _)| *hop).collect();
        let (track, untrack): (Vec<_>, Vec<_>) = (uses(true), uses(false));
        // As the router has it: what is to be watched goes before the routes that use it.
        self.said.extend((!track.is_empty()).then_some(Said::Track(track)));
        for_each_family!(F => self.fed::<F>(&feed));
        self.said.extend((!untrack.is_empty()).then_some(Said::Untrack(untrack)));
        if let Some(mark) = self.shard.mark() {
            self.said.push(Said::Mark(mark));
            self.confirmed
                .waits
                .values_mut()
                .filter(|waits| **waits == u64::MAX)
                .for_each(|waits| *waits = mark);
        }
        for (addr, used) in next_hops {
            let changed = if used { self.next_hops.insert(addr) } else { self.next_hops.remove(&addr) };
            assert!(changed, "told twice whether {addr:?} is in use");
            self.asked.extend(used.then_some(addr));
        }
        for session in purged {
            assert!(self.ending.remove(&session), "confirmed without need: {session:?}");
        }
    }

    fn changes<F: Family>(&mut self, batch: &BestBatch) {
        let at = |index: u32| {
            let row = |path: &BestPath| (path.attrs.clone(), path.source);
            (index != NONE).then(|| row(&batch.paths[index as usize]))
        };
        for change in batch.changes.get::<F>() {
            let prefix = change.prefix.any();
            let (old, new) = (at(change.old), at(change.new));
            assert_ne!(old, new, "a change of {prefix} that is none");
            assert_eq!(self.mirror.get(&prefix), old.as_ref(), "the former best path of {prefix}");
            let told = new.is_none() || self.confirmed.is_forwarded(&prefix);
            assert!(told, "{prefix} is told before it is forwarded");
            put(&mut self.mirror, prefix, new.clone());
            for follower in self.followers.values_mut().filter(|follower| follower.afi == F::AFI) {
                put(&mut follower.table, prefix, new.clone());
            }
        }
    }

    fn dumped(&mut self, part: EgressIn) {
        let EgressIn::Dump { token, batch, last } = part else { panic!("not a dump: {part:?}") };
        let follower = self.followers.get_mut(&token).expect("a dump was asked for");
        assert!(!follower.complete, "a dump goes on after its end");
        follower.complete = last;
        for_each_family!(F => for change in batch.changes.get::<F>() {
            assert_eq!((change.old, F::AFI), (NONE, follower.afi));
            let path = &batch.paths[change.new as usize];
            let row = (path.attrs.clone(), path.source);
            assert_eq!(self.mirror.get(&change.prefix.any()), Some(&row), "a dump is no news");
            put(&mut follower.table, change.prefix.any(), Some(row));
        });
    }

    fn fed<F: Family>(&mut self, feed: &Feed) {
        for (prefix, index) in feed.changes.get::<F>() {
            let set = (*index != NONE).then(|| feed.sets[*index as usize].clone());
            let moved = self.confirmed.moved.remove(&prefix.any());
            // What dataplanes confirm is fed again when its path can be used again.
            let again = self.confirmed.on && set.is_some();
            assert!(
                moved || again || self.feed.get(&prefix.any()) != set.as_ref(),
                "a change of next hops that is none"
            );
            self.said.push(Said::Feed(prefix.any(), set.clone()));
            match set {
                Some(_) if self.confirmed.on => self.confirmed.waits.insert(prefix.any(), u64::MAX),
                _ => self.confirmed.waits.remove(&prefix.any()),
            };
            if set.is_none() {
                self.confirmed.blocked.remove(&prefix.any());
            }
            match set {
                Some(set) => self.feed.insert(prefix.any(), set),
                None => self.feed.remove(&prefix.any()),
            };
        }
    }
}

/// Takes out what belongs to a part of a logical shard.
fn split<T>(table: &mut BTreeMap<AnyPrefix, T>, holds: &Holds) -> BTreeMap<AnyPrefix, T> {
    let (theirs, rest) = std::mem::take(table).into_iter().partition(|(prefix, _)| holds.has(*prefix));
    *table = rest;
    theirs
}

pub(crate) fn logical_shard_of(prefix: AnyPrefix) -> LogicalShard {
    match prefix {
        AnyPrefix::V4(prefix) => logical_shard(prefix),
        AnyPrefix::V6(prefix) => logical_shard(prefix),
    }
}

fn put(table: &mut Table, prefix: AnyPrefix, row: Option<(AttrSet, PeerId)>) {
    match row {
        Some(row) => table.insert(prefix, row),
        None => table.remove(&prefix),
    };
}

/// The followers' table is the oracle's.
pub(crate) fn same_table(table: &Table, expected: &BTreeMap<AnyPrefix, Learned>) {
    let rows = table.iter().map(|(prefix, (attrs, source))| {
        (*prefix, source.0 as usize, attrs.bytes().to_vec(), attrs.next_hop())
    });
    let expected =
        expected.iter().map(|(prefix, path)| (*prefix, path.peer, path.with.bytes(), path.with.next_hop));
    assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "best paths");
}
