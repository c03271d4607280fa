//! The effects of handled messages, in the order of events.

use super::next_hops::NextHops;
use crate::attr::AttrSet;
use crate::message::{
    BestBatch, BestPath, Change, EgressIn, Feed, FeedSet, NONE, RankedBatch, TrackedNextHop,
};
use crate::peer::{FeedKind, PeerId};
use crate::watch::WatchNews;
use ribtide_prefix::{AfiSafi, AnyPrefix, BgpFamily, Map, Prefix, sum_bgp_families};
use smallvec::SmallVec;
use std::net::IpAddr;

/// Ranked paths in a batch, at most, but those of its last change: about as many bytes as a batch of best paths has. The
/// queue of a worker is bounded in batches.
const RANKED_BATCH_MAX: usize = 8192;

/// Collects the effects of one or more messages; [`ShardOut::take`] hands them over. Batches grow until then.
#[derive(Default)]
pub struct ShardOut {
    effects: Effects,
    len: usize,
    others: Others,
    without_feed: bool,
    /// Whether [`Effects::next_hops`] stays empty.
    without_next_hops: bool,
    /// Indices of sets with a single next hop, and of the others.
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
    /// Next hops that came into use (`true`) or went out of use (`false`), in order. The RIB
    /// manager watches those in use and reports them in `ShardIn::NextHops`.
    pub next_hops: Vec<(TrackedNextHop, bool)>,
    /// Ended sessions without a path in this shard.
    pub purged: Vec<(PeerId, u32)>,
    /// News of watches, in order.
    pub watched: Vec<WatchNews>,
    /// Paths of lasting sessions that went without a withdrawal, for stations.
    pub removed: Vec<Removed>,
}

/// A path that its peer left out of a route refresh (RFC 7313).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Removed {
    /// The peer.
    pub peer: PeerId,
    /// The number of its session.
    pub session: u32,
    /// The family.
    pub family: AfiSafi,
    /// The prefix.
    pub prefix: AnyPrefix,
    /// The path identifier; 0 without one.
    pub path_id: u32,
}

/// Who gets a change of a best path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Audience {
    /// Workers and stations.
    All,
    /// Workers alone.
    Workers,
    /// Stations alone.
    Stations,
}

impl ToEgress {
    fn best(to: Audience) -> ToEgress {
        match to {
            Audience::All => ToEgress::All(BestBatch::default()),
            Audience::Workers => ToEgress::Workers(BestBatch::default()),
            Audience::Stations => ToEgress::Stations(BestBatch::default()),
        }
    }

    /// The batch of best paths, if it is for this audience.
    #[inline(always)]
    fn best_mut(&mut self, to: Audience) -> Option<&mut BestBatch> {
        match (self, to) {
            (ToEgress::All(batch), Audience::All)
            | (ToEgress::Workers(batch), Audience::Workers)
            | (ToEgress::Stations(batch), Audience::Stations) => Some(batch),
            _ => None,
        }
    }
}

/// Indices in the last batch of paths whose attribute set entered it with another source.
pub(super) type Others = Map<(usize, Marked), u32>;

/// What tells paths with one attribute set from each other.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Marked {
    pub(super) source: PeerId,
    pub(super) suppressed: bool,
}

impl Marked {
    /// Of a path that no aggregate suppresses.
    pub(super) fn not(source: PeerId) -> Marked {
        Marked { source, suppressed: false }
    }
}

/// A message for egress workers.
#[derive(Debug)]
pub enum ToEgress {
    /// Changes, for every worker and for stations.
    All(BestBatch),
    /// The same for workers alone: an aggregate begins or ceases to suppress a prefix.
    Workers(BestBatch),
    /// The same for stations alone, whose Loc-RIB has suppressed prefixes too.
    Stations(BestBatch),
    /// Changes of ranked paths, for the workers that need these.
    Ranked(RankedBatch),
    /// A part of a dump, [`EgressIn::Dump`] or [`EgressIn::RankedDump`], for the worker that requested it.
    One(u32, EgressIn),
}

impl ShardOut {
    /// Effects without [`Effects::feed`], for a router that installs nothing.
    pub fn without_feed() -> ShardOut {
        ShardOut { without_feed: true, without_next_hops: true, ..ShardOut::default() }
    }

    /// Prefixes in its changes and dumps.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no effect.
    pub fn is_empty(&self) -> bool {
        let Effects { egress, feed, next_hops, purged, watched, removed } = &self.effects;
        egress.is_empty()
            && feed.sets.is_empty()
            && feed.changes.v4.is_empty()
            && feed.changes.v6.is_empty()
            && next_hops.is_empty()
            && purged.is_empty()
            && watched.is_empty()
            && removed.is_empty()
    }

    /// Returns the effects since the last call.
    pub fn take(&mut self) -> Effects {
        self.others.clear();
        self.single.clear();
        self.several.clear();
        self.len = 0;
        std::mem::take(&mut self.effects)
    }

    /// Takes out [`Effects::removed`] alone, for a caller that is about to tell stations of later routes.
    pub fn take_removed(&mut self) -> Vec<Removed> {
        std::mem::take(&mut self.effects.removed)
    }

    /// The index of a path for [`ShardOut::change`]. `noted`: the likely index of its set.
    #[inline(always)]
    pub(super) fn path(&mut self, to: Audience, attrs: &AttrSet, marked: Marked, noted: &mut u32) -> u32 {
        if self.effects.egress.last_mut().is_none_or(|last| last.best_mut(to).is_none()) {
            self.begin_batch(to);
        }
        match self.effects.egress.last_mut().and_then(|last| last.best_mut(to)) {
            Some(batch) => index(&mut self.others, &mut batch.paths, attrs, marked, noted),
            None => NONE,
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_batch(&mut self, to: Audience) {
        self.others.clear();
        self.effects.egress.push(ToEgress::best(to));
    }

    /// Adds a change of the best path of `prefix`, from one index of [`ShardOut::path`] to another;
    /// at most one is [`NONE`].
    #[inline(always)]
    pub(super) fn change<F: BgpFamily>(&mut self, to: Audience, prefix: Prefix<F>, old: u32, new: u32) {
        self.len += 1;
        if let Some(batch) = self.effects.egress.last_mut().and_then(|last| last.best_mut(to)) {
            batch.changes.get_mut::<F>().push(Change { prefix, old, new });
        }
    }

    /// The batch of ranked paths for more changes, and its indices of paths of other sources.
    pub(super) fn ranked(&mut self) -> Option<(&mut RankedBatch, &mut Others)> {
        let has_room = |batch: &RankedBatch| batch.ranked.len() < RANKED_BATCH_MAX;
        if !matches!(self.effects.egress.last(), Some(ToEgress::Ranked(batch)) if has_room(batch)) {
            self.others.clear();
            self.effects.egress.push(ToEgress::Ranked(RankedBatch::default()));
        }
        self.len += 1;
        match self.effects.egress.last_mut() {
            Some(ToEgress::Ranked(batch)) => Some((batch, &mut self.others)),
            _ => None,
        }
    }

    /// Adds a part of a dump of ranked paths.
    pub(super) fn ranked_dump(&mut self, worker: u32, token: u64, batch: RankedBatch, last: bool) {
        self.len += sum_bgp_families!(F => batch.changes.get::<F>().len());
        self.effects.egress.push(ToEgress::One(worker, EgressIn::RankedDump { token, batch, last }));
    }

    /// Whether a RIB manager gets the feed.
    pub(super) fn feeds(&self) -> bool {
        !self.without_feed
    }

    /// Begins the feed, still without next hops.
    pub(super) fn begin_feed(&mut self) {
        self.without_feed = false;
    }

    /// Begins to report which next hops are used.
    pub(super) fn begin_next_hops(&mut self) {
        self.without_next_hops = false;
    }

    /// Ends the feed, and drops what of it was not taken.
    pub(super) fn end_feed(&mut self) {
        (self.without_feed, self.without_next_hops) = (true, true);
        (self.effects.feed, self.effects.next_hops) = Default::default();
        (self.single, self.several) = Default::default();
    }

    /// Feeds another next hop of `prefix`, or none.
    pub(super) fn feed<F: BgpFamily>(&mut self, prefix: Prefix<F>, next_hop: Option<(IpAddr, FeedKind)>) {
        let feed = &mut self.effects.feed;
        let index = next_hop.map_or(NONE, |(next_hop, kind)| {
            *self.single.entry((next_hop, kind)).or_insert_with(|| {
                let next_hops = SmallVec::from_elem((next_hop, 1), 1);
                feed.sets.push(FeedSet { next_hops, kind, backup: None });
                (feed.sets.len() - 1) as u32
            })
        });
        feed.changes.get_mut::<F::Address>().push((prefix.ip(), index));
    }

    /// Feeds another next-hop set of `prefix`, or none, where more than the best path matters.
    pub(super) fn feed_set<F: BgpFamily>(&mut self, prefix: Prefix<F>, set: Option<&FeedSet>) {
        let feed = &mut self.effects.feed;
        let index = set.map_or(NONE, |set| {
            self.several.get(set).copied().unwrap_or_else(|| {
                let index = feed.sets.len() as u32;
                self.several.insert(set.clone(), index);
                feed.sets.push(set.clone());
                index
            })
        });
        feed.changes.get_mut::<F::Address>().push((prefix.ip(), index));
    }

    /// Adds a part of a dump. Later changes go into a new batch.
    pub(super) fn dump(&mut self, worker: u32, token: u64, batch: BestBatch, last: bool) {
        self.len += sum_bgp_families!(F => batch.changes.get::<F>().len());
        self.effects.egress.push(ToEgress::One(worker, EgressIn::Dump { token, batch, last }));
    }

    /// A path went because of a route refresh.
    pub(super) fn removed(&mut self, removed: Removed) {
        self.effects.removed.push(removed);
    }

    pub(super) fn purged(&mut self, peer: PeerId, session: u32) {
        self.effects.purged.push((peer, session));
    }

    pub(super) fn watched(&mut self, news: WatchNews) {
        if !news.is_empty() {
            self.effects.watched.push(news);
        }
    }

    /// Adds the next hops that came into use or went out of it.
    pub(super) fn add_uses(&mut self, hops: &mut NextHops) {
        hops.uses(&mut self.effects.next_hops);
        if self.without_next_hops {
            self.effects.next_hops.clear();
        }
    }
}

/// The index of a path in those of a batch; adds the path if it is new there.
///
/// A batch keeps its sets alive, so an address names one set. The first path with a set is noted
/// beside the set, and a check against the batch shows whether the note holds. Only paths of other
/// sources with the same set need a lookup. A set that was freed and interned again may enter
/// twice, which costs one entry.
pub(super) fn index(
    others: &mut Others,
    paths: &mut Vec<BestPath>,
    attrs: &AttrSet,
    marked: Marked,
    noted: &mut u32,
) -> u32 {
    let first = paths.get(*noted as usize).filter(|path| AttrSet::ptr_eq(&path.attrs, attrs));
    let first = first.map(|path| Marked { source: path.source, suppressed: path.suppressed });
    let mut join = || {
        let Marked { source, suppressed } = marked;
        paths.push(BestPath { attrs: attrs.clone(), source, suppressed });
        (paths.len() - 1) as u32
    };
    match first {
        Some(first) if first == marked => *noted,
        Some(_) => *others.entry((attrs.as_ptr().addr(), marked)).or_insert_with(join),
        None => {
            *noted = join();
            *noted
        }
    }
}
