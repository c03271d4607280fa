//! A shard with its queues, and its receivers, which check every message against all earlier ones.

use crate::egress::Egress;
use crate::fib::ToRib;
use crate::oracle::Learned;
use ribtide_bgp::attr::AttrSet;
use ribtide_bgp::decision::DecisionOptions;
use ribtide_bgp::message::{
    BestBatch, BestPath, Confirmation, EgressIn, Feed, FeedSet, NONE, RankedBatch, RankedPath, ShardIn,
    TrackedNextHop,
};
use ribtide_bgp::peer::PeerId;
use ribtide_bgp::shard::{
    Cut, Effects, HashSeed, MonitorPage, Moved, PageViews, Shard, ShardOut, Split, ToEgress, withdrawals,
};
use ribtide_bgp::watch::WatchNews;
use ribtide_prefix::{
    AfiSafi, AnyPrefix, BgpFamily, Family, LogicalShard, Rng, for_each_bgp_family, for_each_family,
    logical_shard,
};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// A receiver's table: attributes in wire form with their next hop, and the source.
pub(crate) type Table = BTreeMap<AnyPrefix, (AttrSet, PeerId)>;

/// A ranked path of a receiver.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct RankedRow {
    id: u32,
    pub(crate) attrs: AttrSet,
    pub(crate) source: PeerId,
    pub(crate) equal: bool,
}

/// The ranked paths that a receiver knows.
pub(crate) type RankedTable = BTreeMap<AnyPrefix, Vec<RankedRow>>;

/// The requester of dumps, in place of a worker.
pub(crate) const FOLLOWER: u32 = u32::MAX;

/// A shard with its queues and its followers.
pub(crate) struct Stage {
    pub(crate) shard: Shard,
    out: ShardOut,
    pub(crate) queues: Vec<VecDeque<ShardIn>>,
    /// The best paths, from changes alone.
    pub(crate) mirror: Table,
    /// The ranked paths that workers know, from changes and dumps.
    pub(crate) ranked: RankedTable,
    /// Tables of dump requesters: from the dump and later changes.
    pub(crate) followers: BTreeMap<u64, Follower>,
    pub(crate) feed: BTreeMap<AnyPrefix, FeedSet>,
    pub(crate) next_hops: BTreeSet<TrackedNextHop>,
    /// Sessions that ended and are not yet confirmed.
    pub(crate) ending: BTreeSet<(PeerId, u32)>,
    /// Parts of logical shards that another shard has given away and this one has not taken yet.
    parcels: Vec<Parcel>,
    /// Next hops that came into use since this was last emptied.
    pub(crate) new_next_hops: Vec<TrackedNextHop>,
    /// Messages to the RIB manager since this was last emptied.
    pub(crate) to_rib: Vec<ToRib>,
    pub(crate) confirmed: Confirmed,
    /// It has taken logical shards and may have missed notifications during the move.
    pub(crate) missed: bool,
    /// News of watches since this was last emptied.
    pub(crate) watched: Vec<WatchNews>,
    /// Whether it looks at its routes for another set of watches.
    watches_changed: bool,
    /// It has got other options.
    reconfigured: bool,
}

/// The confirmations that the shard got.
#[derive(Default)]
pub(crate) struct Confirmed {
    /// Whether only confirmed routes are advertised.
    pub(crate) on: bool,
    fence: u64,
    blocked: BTreeSet<AnyPrefix>,
    /// The fence after the last feed of a prefix; before it, the last number of all.
    waits: BTreeMap<AnyPrefix, u64>,
    /// Prefixes of another shard, which may be fed again unchanged.
    moved: BTreeSet<AnyPrefix>,
}

impl Confirmed {
    fn receive(&mut self, confirmation: &Confirmation) {
        self.fence = self.fence.max(confirmation.fence);
        for (prefix, blocked) in &confirmation.blocked {
            match blocked {
                true => self.blocked.insert(*prefix),
                false => self.blocked.remove(prefix),
            };
        }
    }

    /// Whether a path of a prefix may be advertised.
    fn is_forwarded(&self, prefix: &AnyPrefix) -> bool {
        let waits = self.waits.get(prefix).copied().unwrap_or(0);
        !self.on || (waits <= self.fence && !self.blocked.contains(prefix))
    }
}

/// A part of a logical shard in transit, with its receivers' state.
pub(crate) struct Parcel {
    moved: Moved,
    holds: Holds,
    mirror: Table,
    ranked: RankedTable,
    followers: Vec<(u64, Table)>,
    feed: BTreeMap<AnyPrefix, FeedSet>,
}

impl Parcel {
    /// The begin of the next part.
    pub(crate) fn end(&self) -> Cut {
        self.moved.end()
    }
}

/// The prefixes of a part of a logical shard: after the first cut and before the second.
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

/// A requester of a dump.
pub(crate) struct Follower {
    pub(crate) family: AfiSafi,
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
            ranked: RankedTable::new(),
            followers: BTreeMap::new(),
            feed: BTreeMap::new(),
            next_hops: BTreeSet::new(),
            ending: BTreeSet::new(),
            parcels: Vec::new(),
            new_next_hops: Vec::new(),
            to_rib: Vec::new(),
            confirmed: Confirmed::default(),
            missed: false,
            watched: Vec::new(),
            watches_changed: false,
            reconfigured: false,
        }
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.shard.work_left()
            || !self.out.is_empty()
            || self.shard.fence_due()
            || self.shard.ranked_due()
            || !self.parcels.is_empty()
            || self.queues.iter().any(|queue| !queue.is_empty())
    }

    /// Handles all waiting messages, queue by queue.
    pub(crate) fn drain(&mut self, rng: &mut Rng, egress: &mut Egress) {
        while self.queues.iter().any(|queue| !queue.is_empty()) || !self.parcels.is_empty() {
            self.advance(rng, egress);
        }
        self.deliver(egress);
    }

    /// Gives away the next part of a logical shard, of about so many paths, with all of its state.
    pub(crate) fn give(&mut self, from: &Split, paths: usize, egress: &mut Egress) -> Parcel {
        let moved = self.shard.extract(from.logical, from.cut, paths, &mut self.out);
        self.deliver(egress);
        let holds = Holds([from.clone(), Split { cut: moved.end(), ..from.clone() }]);
        self.confirmed.waits.retain(|prefix, _| !holds.has(*prefix));
        let followers = self.followers.iter_mut();
        Parcel {
            moved,
            mirror: split(&mut self.mirror, &holds),
            ranked: split(&mut self.ranked, &holds),
            followers: followers.map(|(token, f)| (*token, split(&mut f.table, &holds))).collect(),
            feed: split(&mut self.feed, &holds),
            holds,
        }
    }

    /// A part of a logical shard is in transit to this one.
    pub(crate) fn expect(&mut self, parcel: Parcel) {
        self.parcels.push(parcel);
    }

    /// Selects by other options. Parts in transit come first, as the calls of a shard are handled in order.
    pub(crate) fn set_options(&mut self, options: DecisionOptions, egress: &mut Egress) {
        while !self.parcels.is_empty() {
            self.take();
        }
        self.deliver(egress);
        self.reconfigured = true;
        self.shard.set_options(options);
    }

    fn take(&mut self) {
        let Some(Parcel { moved, holds, mirror, ranked, followers, feed }) = self.parcels.pop() else {
            return;
        };
        self.confirmed.moved.extend(feed.keys());
        // Earlier notifications of these prefixes were for another shard. Its feed is replied to
        // with current blocks.
        self.confirmed.blocked.retain(|prefix| !holds.has(*prefix));
        self.missed = true;
        self.mirror.extend(mirror);
        self.ranked.extend(ranked);
        self.feed.extend(feed);
        for (token, table) in followers {
            self.followers.get_mut(&token).expect("all shards have the same followers").table.extend(table);
        }
        self.shard.adopt(moved, &mut self.out);
    }

    /// Whether a message may be handled: routes, dumps, marks of refreshes and watches wait for parts in transit.
    fn may_handle(&self, queue: &VecDeque<ShardIn>) -> bool {
        let waits = |message: &ShardIn| {
            matches!(
                message,
                ShardIn::Routes(_)
                    | ShardIn::Dump(_)
                    | ShardIn::Watch(_)
                    | ShardIn::BeginOfRefresh { .. }
                    | ShardIn::EndOfRefresh { .. }
            )
        };
        queue.front().is_some_and(|message| self.parcels.is_empty() || !waits(message))
    }

    /// Runs one message or one step, by chance.
    pub(crate) fn advance(&mut self, rng: &mut Rng, egress: &mut Egress) {
        if !self.parcels.is_empty() && rng.one_in(3) {
            self.take();
        }
        if self.shard.sends_ranked() && !egress.wants_ranked() {
            self.deliver(egress);
            self.shard.end_ranked();
            self.ranked.clear();
        }
        let waiting: Vec<usize> =
            (0..self.queues.len()).filter(|n| self.may_handle(&self.queues[*n])).collect();
        if !waiting.is_empty() && (!self.shard.work_left() || rng.one_in(2)) {
            let queue = *rng.pick(&waiting);
            if let Some(message) = self.queues[queue].pop_front() {
                // Earlier output is checked against earlier notifications, also output from before
                // suppression.
                match &message {
                    ShardIn::Confirmed(confirmation) => {
                        self.deliver(egress);
                        self.confirmed.receive(confirmation);
                        self.shard.handle(message, &mut self.out);
                    }
                    ShardIn::Suppress(on) => {
                        let on = *on;
                        self.shard.handle(message, &mut self.out);
                        self.deliver(egress);
                        self.confirmed = Confirmed { on, ..Confirmed::default() };
                    }
                    ShardIn::Routes(batch) => {
                        self.shard.handle_routes(batch, &mut self.out);
                        if self.shard.is_monitored(batch.peer, batch.session) {
                            let removed = withdrawals(&self.out.take_removed());
                            removed.iter().for_each(|batch| egress.station.accepted(batch));
                            egress.station.accepted(batch);
                        }
                    }
                    _ => {
                        self.watches_changed |= matches!(message, ShardIn::Watch(_));
                        self.shard.handle(message, &mut self.out);
                    }
                }
            }
        } else {
            self.shard.step(&mut self.out);
        }
        if rng.one_in(3) {
            self.deliver(egress);
        }
    }

    /// Has the shard report what it has less of watched routes.
    pub(crate) fn release_watch_news(&mut self, egress: &mut Egress) {
        self.shard.release_watch_news(&mut self.out);
        self.deliver(egress);
    }

    /// Whether parts of logical shards are in transit to this one.
    pub(crate) fn expects(&self) -> bool {
        !self.parcels.is_empty()
    }

    /// Sends the station a page. Returns the hash to continue from.
    pub(crate) fn page(
        &mut self,
        (family, logical, from): (AfiSafi, LogicalShard, u32),
        budget: usize,
        egress: &mut Egress,
    ) -> Option<u32> {
        self.deliver(egress);
        let views = PageViews { accepted: true, best: true, loc_rib: true, ranked: true };
        let mut page = MonitorPage::default();
        for_each_bgp_family!(F => if F::ID == family {
            page = self.shard.monitor_page::<F>(logical, from, budget, views);
        });
        egress.station.page(&page);
        let next = page.next;
        egress.mirror(Arc::new(page.best), Arc::new(page.ranked));
        next
    }

    /// Passes the shard's output to its receivers.
    fn deliver(&mut self, egress: &mut Egress) {
        self.shard.send_ranked(&mut self.out);
        let Effects { egress: effects, feed, next_hops, purged, watched, removed } = self.out.take();
        self.watched.extend(watched);
        withdrawals(&removed).iter().for_each(|batch| egress.station.accepted(batch));
        for effect in effects {
            match effect {
                ToEgress::All(batch) => {
                    for_each_bgp_family!(F => self.changes::<F>(&batch));
                    egress.station.best(&batch);
                    egress.changes(Arc::new(batch));
                }
                ToEgress::Workers(batch) => {
                    for_each_bgp_family!(F => self.changes::<F>(&batch));
                    egress.changes(Arc::new(batch));
                }
                ToEgress::Stations(batch) => egress.station.best(&batch),
                ToEgress::Ranked(batch) => {
                    for_each_bgp_family!(F => self.ranked_changes::<F>(&batch));
                    egress.ranked(&Arc::new(batch));
                }
                ToEgress::One(FOLLOWER, part) => self.dumped(part),
                ToEgress::One(worker, part) => {
                    if let EgressIn::RankedDump { batch, .. } = &part {
                        for_each_bgp_family!(F => self.ranked_dump::<F>(batch));
                    }
                    egress.dumped(worker, part);
                }
            }
        }
        let uses = |used: bool| next_hops.iter().filter(|(_, u)| *u == used).map(|(hop, _)| *hop).collect();
        let (track, untrack): (Vec<_>, Vec<_>) = (uses(true), uses(false));
        // As in the router: next hops are registered before routes that use them.
        self.to_rib.extend((!track.is_empty()).then_some(ToRib::Track(track)));
        for_each_family!(F => self.fed::<F>(&feed));
        self.to_rib.extend((!untrack.is_empty()).then_some(ToRib::Untrack(untrack)));
        if let Some(fence) = self.shard.fence() {
            self.to_rib.push(ToRib::Fence(fence));
            self.confirmed
                .waits
                .values_mut()
                .filter(|waits| **waits == u64::MAX)
                .for_each(|waits| *waits = fence);
        }
        for (addr, used) in next_hops {
            let changed = if used { self.next_hops.insert(addr) } else { self.next_hops.remove(&addr) };
            assert!(changed, "reported twice whether {addr:?} is in use");
            self.new_next_hops.extend(used.then_some(addr));
        }
        self.watches_changed &= self.shard.work_left();
        for session in purged {
            assert!(self.ending.remove(&session), "confirmed without need: {session:?}");
        }
    }

    fn changes<F: BgpFamily>(&mut self, batch: &BestBatch) {
        let at = |index: u32| {
            let row = |path: &BestPath| (path.attrs.clone(), path.source);
            (index != NONE).then(|| row(&batch.paths[index as usize]))
        };
        for change in batch.changes.get::<F>() {
            let prefix = change.prefix.any();
            let (old, new) = (at(change.old), at(change.new));
            assert_ne!(old, new, "a change of {prefix} that is none");
            assert_eq!(self.mirror.get(&prefix), old.as_ref(), "the former best path of {prefix}");
            // The former path of a prefix that waits may appear, because an aggregate suppresses it no longer.
            let appears = self.watches_changed && old.is_none();
            let may_advertise = new.is_none() || appears || self.confirmed.is_forwarded(&prefix);
            assert!(may_advertise, "{prefix} is advertised before it is forwarded");
            put(&mut self.mirror, prefix, new.clone());
            for follower in self.followers.values_mut().filter(|follower| follower.family == F::ID) {
                put(&mut follower.table, prefix, new.clone());
            }
        }
    }

    fn ranked_changes<F: BgpFamily>(&mut self, batch: &RankedBatch) {
        for change in batch.changes.get::<F>() {
            let prefix = change.prefix.any();
            let (old, new) = batch.of(change);
            let (old, new) = (rows(batch, old), rows(batch, new));
            assert_ne!(old, new, "a change of ranked paths of {prefix} that is none");
            let former = self.ranked.get(&prefix).cloned().unwrap_or_default();
            assert_eq!(former, old, "the former ranked paths of {prefix}");
            // A worker that has just asked for ranked paths gets the path that is advertised already.
            let advertised = self.mirror.get(&prefix);
            let is_known =
                |row: &RankedRow| old.contains(row) || advertised == Some(&(row.attrs.clone(), row.source));
            let is_new = !new.iter().all(is_known);
            assert!(
                !is_new || self.confirmed.is_forwarded(&prefix),
                "a path of {prefix} is advertised before the prefix is forwarded"
            );
            for RankedRow { id, source, .. } in &new {
                let before = old.iter().find(|row| row.id == *id);
                assert!(
                    before.is_none_or(|before| before.source == *source),
                    "{prefix} {id}: another's path"
                );
            }
            match new.is_empty() {
                true => self.ranked.remove(&prefix),
                false => self.ranked.insert(prefix, new),
            };
        }
    }

    fn ranked_dump<F: BgpFamily>(&mut self, batch: &RankedBatch) {
        for change in batch.changes.get::<F>() {
            let (old, new) = batch.of(change);
            let new = rows(batch, new);
            assert!(old.is_empty() && !new.is_empty());
            let known = self.ranked.entry(change.prefix.any()).or_insert_with(|| new.clone());
            assert_eq!(*known, new, "a dump changes nothing");
        }
    }

    fn dumped(&mut self, part: EgressIn) {
        let EgressIn::Dump { token, batch, last } = part else { panic!("not a dump: {part:?}") };
        let follower = self.followers.get_mut(&token).expect("a dump was requested");
        assert!(!follower.complete, "a dump goes on after its end");
        follower.complete = last;
        for_each_bgp_family!(F => for change in batch.changes.get::<F>() {
            assert_eq!((change.old, F::ID), (NONE, follower.family));
            let path = &batch.paths[change.new as usize];
            let row = (path.attrs.clone(), path.source);
            assert_eq!(self.mirror.get(&change.prefix.any()), Some(&row), "a dump changes nothing");
            put(&mut follower.table, change.prefix.any(), Some(row));
        });
    }

    fn fed<F: Family>(&mut self, feed: &Feed) {
        for (prefix, index) in feed.changes.get::<F>() {
            let set = (*index != NONE).then(|| feed.sets[*index as usize].clone());
            let moved = self.confirmed.moved.remove(&prefix.any());
            // With suppression a prefix is fed again when its path becomes usable again, and without next
            // hops for an originated path.
            let several = |set: Option<&FeedSet>| set.is_some_and(|set| set.next_hops.len() > 1);
            // While shares are computed otherwise than before, the last ones are not known.
            let shares =
                self.reconfigured && (several(set.as_ref()) || several(self.feed.get(&prefix.any())));
            let again = self.confirmed.on || shares;
            assert!(
                moved || again || self.feed.get(&prefix.any()) != set.as_ref(),
                "a change of next hops that is none"
            );
            self.to_rib.push(ToRib::Feed(prefix.any(), set.clone()));
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

/// Ranked paths of a batch, whose identifiers are each once.
fn rows(batch: &RankedBatch, ranked: &[RankedPath]) -> Vec<RankedRow> {
    let row = |RankedPath { path, id, equal }: &RankedPath| {
        let BestPath { attrs, source, suppressed: _ } = &batch.paths[*path as usize];
        RankedRow { id: *id, attrs: attrs.clone(), source: *source, equal: *equal }
    };
    let rows: Vec<RankedRow> = ranked.iter().map(row).collect();
    let ids: BTreeSet<u32> = rows.iter().map(|row| row.id).collect();
    assert!(ids.len() == rows.len() && !ids.contains(&0), "identifiers {ids:?}");
    rows
}

/// Removes and returns the entries of a part of a logical shard.
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

/// Checks a receiver's table against the oracle's.
pub(crate) fn same_table(table: &Table, expected: &BTreeMap<AnyPrefix, Learned>) {
    let rows = table.iter().map(|(prefix, (attrs, source))| {
        (*prefix, source.0 as usize, attrs.bytes().to_vec(), attrs.next_hop())
    });
    let expected =
        expected.iter().map(|(prefix, path)| (*prefix, path.peer, path.with.bytes(), path.with.next_hop));
    assert_eq!(rows.collect::<Vec<_>>(), expected.collect::<Vec<_>>(), "best paths");
}
