//! Routes for the shards, in growing batches.
//!
//! The prefixes of an UPDATE are a run with one attribute set. A prefix costs a shift, an index and
//! a store; everything else is done once a run.

use crate::attr::AttrSet;
use crate::message::{Prefixes, RouteOp, UpdateBatch};
use crate::peer::{PeerId, PeerInfo};
use crate::shard::Split;
use ribtide_prefix::{
    BgpFamilies, BgpFamily, LOGICAL_SHARDS, Prefix, for_each_bgp_family, logical_shard, per_bgp_family,
};
use ribtide_wire::bgp::nlri::Nlri;

/// Which thread runs each logical shard.
pub type ShardMap = [u16; LOGICAL_SHARDS as usize];

/// Routes for the shards: one growing batch for each thread and session.
pub struct ShardBatches {
    /// The place in `open` of the thread of each logical shard, or [`SPLIT`].
    places: [u8; LOGICAL_SHARDS as usize],
    /// A batch for each thread with a logical shard, all of the session that sent the last routes.
    open: Vec<Open>,
    /// Batches of other sessions, in order, each with its thread.
    closed: Vec<(u16, UpdateBatch)>,
    len: usize,
    /// The logical shard that moves, and the places of its former and new thread.
    split: Option<(Split, [u8; 2])>,
}

/// The place of a logical shard that moves: it depends on the prefix.
const SPLIT: u8 = u8::MAX;

struct Open {
    thread: u16,
    batch: UpdateBatch,
    /// Prefixes that the operations of the batch cover.
    taken: BgpFamilies<Counts>,
}

per_bgp_family! {
    /// A number per family.
    struct Counts<F> = u32;
}

/// The threads of a run, a bit each.
type ThreadSet = u64;
const _: () = assert!(LOGICAL_SHARDS as u32 <= ThreadSet::BITS);

impl ShardBatches {
    /// Empty batches for the threads of `map`.
    pub fn new(map: ShardMap) -> ShardBatches {
        ShardBatches::with_split(map, None)
    }

    /// Empty batches for the threads of `map`, while a logical shard moves between two of them.
    pub fn with_split(map: ShardMap, split: Option<Split>) -> ShardBatches {
        let mut threads = map.to_vec();
        threads.extend(split.as_ref().map(|split| split.taker));
        threads.sort_unstable();
        threads.dedup();
        let place = |thread| threads.partition_point(|other| *other < thread) as u8;
        let open = threads.iter().map(|thread| Open {
            thread: *thread,
            batch: UpdateBatch {
                peer: PeerId(0),
                session: 0,
                ops: Vec::new(),
                prefixes: BgpFamilies::default(),
            },
            taken: BgpFamilies::default(),
        });
        let open = open.collect();
        let mut places = map.map(place);
        let split = split.map(|split| {
            let giver = std::mem::replace(&mut places[usize::from(split.logical)], SPLIT);
            let both = [giver, place(split.taker)];
            (split, both)
        });
        ShardBatches { places, open, closed: Vec::new(), len: 0, split }
    }

    /// Prefixes in the batches.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the batches have no prefix.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frees the spare buffers if no prefix waits.
    pub fn shrink_to_fit(&mut self) {
        if self.is_empty() {
            self.closed = Vec::new();
            for Open { batch, .. } in &mut self.open {
                (batch.ops, batch.prefixes) = Default::default();
            }
        }
    }

    /// Returns the batches with their threads. Those of one thread are in the order received.
    pub fn drain(&mut self) -> impl Iterator<Item = (u16, UpdateBatch)> + '_ {
        self.close();
        self.len = 0;
        self.closed.drain(..)
    }

    /// Adds prefixes that were announced with `attrs`, or withdrawn if `None`. Returns their
    /// number. Successive prefixes with one path identifier are one run.
    pub fn extend<N: Nlri>(
        &mut self,
        peer: &PeerInfo,
        attrs: Option<&AttrSet>,
        routes: impl Iterator<Item = N>,
    ) -> u64 {
        self.turn_to(peer);
        match &mut self.open[..] {
            [open] if !N::HAS_PATH_ID => {
                // One thread has all prefixes.
                let prefixes = open.batch.prefixes.get_mut::<N::Family>();
                let before = prefixes.len();
                routes.for_each(|route| prefixes.push(route.prefix()));
                let count = prefixes.len() - before;
                if count > 0 {
                    open.take::<N::Family>(attrs, 0);
                }
                self.len += count;
                count as u64
            }
            _ => self.distribute(attrs, routes),
        }
    }

    /// Adds prefixes to the batches of their threads.
    #[inline]
    fn distribute<N: Nlri>(&mut self, attrs: Option<&AttrSet>, routes: impl Iterator<Item = N>) -> u64 {
        let (mut count, mut touched): (usize, ThreadSet) = (0, 0);
        let mut path_id = 0;
        routes.for_each(|route| {
            if N::HAS_PATH_ID && route.path_id() != path_id {
                self.take::<N::Family>(std::mem::take(&mut touched), attrs, path_id);
                path_id = route.path_id();
            }
            let prefix = route.prefix();
            let mut place = self.places[usize::from(logical_shard(prefix))];
            if place == SPLIT {
                place = self.place_in_split(prefix);
            }
            self.open[usize::from(place)].batch.prefixes.get_mut::<N::Family>().push(prefix);
            touched |= 1 << place;
            count += 1;
        });
        self.len += count;
        self.take::<N::Family>(touched, attrs, path_id);
        count as u64
    }

    /// Ends a run of prefixes.
    #[inline(always)]
    fn take<F: BgpFamily>(&mut self, mut touched: ThreadSet, attrs: Option<&AttrSet>, path_id: u32) {
        while touched != 0 {
            self.open[touched.trailing_zeros() as usize].take::<F>(attrs, path_id);
            touched &= touched - 1;
        }
    }

    /// The place of a prefix whose logical shard moves.
    #[cold]
    fn place_in_split<F: BgpFamily>(&self, prefix: Prefix<F>) -> u8 {
        let place = |(split, [giver, taker]): &(Split, [u8; 2])| match split.has_moved(prefix) {
            true => *taker,
            false => *giver,
        };
        self.split.as_ref().map_or(0, place)
    }

    /// Starts batches of this session, if the open ones are of another.
    fn turn_to(&mut self, peer: &PeerInfo) {
        let PeerInfo { id, session, .. } = *peer;
        if self.open.first().is_none_or(|open| (open.batch.peer, open.batch.session) == (id, session)) {
            return;
        }
        self.close();
        for open in &mut self.open {
            (open.batch.peer, open.batch.session) = (id, session);
        }
    }

    fn close(&mut self) {
        for open in &mut self.open {
            if !open.batch.ops.is_empty() {
                let fresh = room_like(&open.batch);
                self.closed.push((open.thread, std::mem::replace(&mut open.batch, fresh)));
                open.taken = BgpFamilies::default();
            }
        }
    }
}

impl Open {
    /// Adds an operation for the prefixes that have none yet.
    fn take<F: BgpFamily>(&mut self, attrs: Option<&AttrSet>, path_id: u32) {
        let all = self.batch.prefixes.get::<F>().len() as u32;
        let count = all - std::mem::replace(self.taken.get_mut::<F>(), all);
        match self.batch.ops.last_mut() {
            Some(op) if op.family == F::ID && op.path_id == path_id && same(op.attrs.as_ref(), attrs) => {
                op.count += count;
            }
            _ => self.batch.ops.push(RouteOp { attrs: attrs.cloned(), path_id, family: F::ID, count }),
        }
    }
}

/// An empty batch of the same session with equal capacity. The next batch is often as long, and
/// growth from nothing touches twice the memory.
fn room_like(batch: &UpdateBatch) -> UpdateBatch {
    let UpdateBatch { peer, session, ops, prefixes } = batch;
    let mut room: BgpFamilies<Prefixes> = BgpFamilies::default();
    for_each_bgp_family!(F => *room.get_mut::<F>() = Vec::with_capacity(prefixes.get::<F>().len()));
    UpdateBatch { peer: *peer, session: *session, ops: Vec::with_capacity(ops.len()), prefixes: room }
}

/// Whether two are the same set or both `None`.
pub(super) fn same(a: Option<&AttrSet>, b: Option<&AttrSet>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => AttrSet::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}
