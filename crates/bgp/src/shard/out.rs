//! What a shard has to say after it handled messages, in the order of events.

use crate::attr::AttrSet;
use crate::message::{BestBatch, BestPath, Change, EgressIn, Feed, FeedSet, NONE};
use crate::peer::{FeedKind, PeerId};
use ribtide_prefix::{Family, Map, Prefix};
use ribtide_wire::bgp::NextHop;
use std::net::IpAddr;

/// Collects the effects of one or more messages; [`ShardOut::take`] hands them over. Batches grow until then.
#[derive(Default)]
pub struct ShardOut {
    effects: Effects,
    len: usize,
    /// Index of each path in the last batch of changes.
    paths: Known,
    sets: Map<(NextHop, FeedKind), u32>,
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
    pub next_hops: Vec<(IpAddr, bool)>,
    /// Sessions that ended and of which nothing is left in this shard.
    pub purged: Vec<(PeerId, u32)>,
}

/// Index of a path in a batch, by the address of its attribute set and its source: cheaper than by content, which
/// would have to be read. The batch keeps the sets alive, so an address means one set; that an equal one comes
/// back under another address within a batch is rare and only costs an entry.
pub(super) type Known = Map<(usize, PeerId), u32>;

/// Something for the egress workers.
#[derive(Debug)]
pub enum ToEgress {
    /// Changes, for every worker.
    All(BestBatch),
    /// Part of a dump, for the worker that asked: always [`EgressIn::Dump`].
    One(u32, EgressIn),
}

impl ShardOut {
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
        self.paths.clear();
        self.sets.clear();
        self.len = 0;
        std::mem::take(&mut self.effects)
    }

    /// The best path of `prefix` changed.
    pub(super) fn change<F: Family>(
        &mut self,
        prefix: Prefix<F>,
        old: Option<BestRef<'_>>,
        new: Option<BestRef<'_>>,
    ) {
        self.len += 1;
        if !matches!(self.effects.egress.last(), Some(ToEgress::All(_))) {
            self.paths.clear();
            self.effects.egress.push(ToEgress::All(BestBatch::default()));
        }
        let Some(ToEgress::All(batch)) = self.effects.egress.last_mut() else { return };
        let mut index =
            |path: Option<BestRef<'_>>| path.map_or(NONE, |path| path.index(&mut self.paths, batch));
        let change = Change { prefix, old: index(old), new: index(new) };
        batch.changes.get_mut::<F>().push(change);
    }

    /// The next hop of the best path of `prefix` is another, or there is none any more.
    pub(super) fn feed<F: Family>(&mut self, prefix: Prefix<F>, set: Option<(NextHop, FeedKind)>) {
        let feed = &mut self.effects.feed;
        let index = set.map_or(NONE, |(next_hop, kind)| {
            *self.sets.entry((next_hop, kind)).or_insert_with(|| {
                feed.sets.push(FeedSet { next_hops: vec![next_hop], kind });
                (feed.sets.len() - 1) as u32
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

    pub(super) fn next_hops(&mut self, uses: &mut Vec<(IpAddr, bool)>) {
        self.effects.next_hops.append(uses);
    }
}

/// A best path, not yet in a batch.
#[derive(Clone, Copy)]
pub(super) struct BestRef<'a> {
    pub(super) attrs: &'a AttrSet,
    pub(super) source: PeerId,
}

impl BestRef<'_> {
    /// Its index in `batch`, which it joins if it is new there.
    pub(super) fn index(self, known: &mut Known, batch: &mut BestBatch) -> u32 {
        *known.entry((self.attrs.as_ptr().addr(), self.source)).or_insert_with(|| {
            batch.paths.push(BestPath { attrs: self.attrs.clone(), source: self.source });
            (batch.paths.len() - 1) as u32
        })
    }
}
