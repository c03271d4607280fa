//! What a shard has to say after it handled messages, in the order of events.

use crate::attr::AttrSet;
use crate::message::{BestBatch, BestPath, Change, EgressIn, Feed, FeedSet, NONE, TrackedNextHop};
use crate::peer::{FeedKind, PeerId};
use ribtide_prefix::{Family, Map, Prefix};
use smallvec::SmallVec;
use std::net::IpAddr;

/// Collects the effects of one or more messages; [`ShardOut::take`] hands them over. Batches grow until then.
#[derive(Default)]
pub struct ShardOut {
    effects: Effects,
    len: usize,
    others: Others,
    without_feed: bool,
    /// Indices of the sets of one next hop and nothing else, and of the others.
    single: Map<(IpAddr, FeedKind), u32>,
    several: Map<FeedSet, u32>,
}

/// Effects of the messages that a shard handled.
#[derive(Debug, Default)]
pub struct Effects {
    /// For the egress workers, in the order of events.
    pub egress: Vec<ToEgress>,
    /// For the RIB manager.
    pub feed: Feed,
    /// Next hops that came into use (`true`) or went out of it (`false`), in order. Whoever resolves next hops
    /// watches those in use and reports them with `ShardIn::NextHops`.
    pub next_hops: Vec<(TrackedNextHop, bool)>,
    /// Sessions that ended and of which nothing is left in this shard.
    pub purged: Vec<(PeerId, u32)>,
}

/// Indices in the last batch of changes of paths whose set another source's path had brought there.
pub(super) type Others = Map<(usize, PeerId), u32>;

/// Something for the egress workers.
#[derive(Debug)]
pub enum ToEgress {
    /// Changes, for every worker.
    All(BestBatch),
    /// Part of a dump, for the worker that asked: always [`EgressIn::Dump`].
    One(u32, EgressIn),
}

impl ShardOut {
    /// One whose [`Effects::feed`] stays empty, for a router that installs nothing.
    pub fn without_feed() -> ShardOut {
        ShardOut { without_feed: true, ..ShardOut::default() }
    }

    /// How many prefixes its changes and dumps name.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing has happened.
    pub fn is_empty(&self) -> bool {
        let Effects { egress, feed, next_hops, purged } = &self.effects;
        egress.is_empty()
            && feed.sets.is_empty()
            && feed.changes.v4.is_empty()
            && feed.changes.v6.is_empty()
            && next_hops.is_empty()
            && purged.is_empty()
    }

    /// Hands over what has happened since the last time.
    pub fn take(&mut self) -> Effects {
        self.others.clear();
        self.single.clear();
        self.several.clear();
        self.len = 0;
        std::mem::take(&mut self.effects)
    }

    /// The index of a path for [`ShardOut::change`]. `noted` is where its set may be known to be.
    pub(super) fn path(&mut self, attrs: &AttrSet, source: PeerId, noted: &mut u32) -> u32 {
        if !matches!(self.effects.egress.last(), Some(ToEgress::All(_))) {
            self.others.clear();
            self.effects.egress.push(ToEgress::All(BestBatch::default()));
        }
        match self.effects.egress.last_mut() {
            Some(ToEgress::All(batch)) => index(&mut self.others, batch, attrs, source, noted),
            _ => NONE,
        }
    }

    /// The best path of `prefix` changed, from one index of [`ShardOut::path`] to another; not both are [`NONE`].
    pub(super) fn change<F: Family>(&mut self, prefix: Prefix<F>, old: u32, new: u32) {
        self.len += 1;
        if let Some(ToEgress::All(batch)) = self.effects.egress.last_mut() {
            batch.changes.get_mut::<F>().push(Change { prefix, old, new });
        }
    }

    /// Whether a stage tracks next hops.
    pub(super) fn feeds(&self) -> bool {
        !self.without_feed
    }

    /// The next hop of the best path of `prefix` is another, or there is none any more.
    pub(super) fn feed<F: Family>(&mut self, prefix: Prefix<F>, next_hop: Option<(IpAddr, FeedKind)>) {
        let feed = &mut self.effects.feed;
        let index = next_hop.map_or(NONE, |(next_hop, kind)| {
            *self.single.entry((next_hop, kind)).or_insert_with(|| {
                let next_hops = SmallVec::from_elem((next_hop, 1), 1);
                feed.sets.push(FeedSet { next_hops, kind, backup: None });
                (feed.sets.len() - 1) as u32
            })
        });
        feed.changes.get_mut::<F>().push((prefix, index));
    }

    /// `prefix` is forwarded by this set from now on, or not at all; where more than the best path matters.
    pub(super) fn feed_set<F: Family>(&mut self, prefix: Prefix<F>, set: Option<&FeedSet>) {
        let feed = &mut self.effects.feed;
        let index = set.map_or(NONE, |set| {
            self.several.get(set).copied().unwrap_or_else(|| {
                let index = feed.sets.len() as u32;
                self.several.insert(set.clone(), index);
                feed.sets.push(set.clone());
                index
            })
        });
        feed.changes.get_mut::<F>().push((prefix, index));
    }

    /// Part of a dump. Changes after it go into a new batch.
    pub(super) fn dump(&mut self, worker: u32, token: u64, batch: BestBatch, last: bool) {
        self.len += batch.changes.v4.len() + batch.changes.v6.len();
        self.effects.egress.push(ToEgress::One(worker, EgressIn::Dump { token, batch, last }));
    }

    pub(super) fn purged(&mut self, peer: PeerId, session: u32) {
        self.effects.purged.push((peer, session));
    }

    /// Where next hops go that came into use or went out of it.
    pub(super) fn next_hops(&mut self) -> &mut Vec<(TrackedNextHop, bool)> {
        &mut self.effects.next_hops
    }
}

/// The index in `batch` of a path, which joins it if it is new there.
///
/// A batch holds the sets it names, so an address means one set. The first path with a set is noted with the set
/// itself, and a look into the batch tells whether the note still holds; only paths of other sources with the same set
/// have to be looked up. That a path comes in twice after its set was forgotten and came back costs an entry.
pub(super) fn index(
    others: &mut Others,
    batch: &mut BestBatch,
    attrs: &AttrSet,
    source: PeerId,
    noted: &mut u32,
) -> u32 {
    let first = batch.paths.get(*noted as usize).filter(|path| AttrSet::ptr_eq(&path.attrs, attrs));
    let first = first.map(|path| path.source);
    let mut join = || {
        batch.paths.push(BestPath { attrs: attrs.clone(), source });
        (batch.paths.len() - 1) as u32
    };
    match first {
        Some(first) if first == source => *noted,
        Some(_) => *others.entry((attrs.as_ptr().addr(), source)).or_insert_with(join),
        None => {
            *noted = join();
            *noted
        }
    }
}
