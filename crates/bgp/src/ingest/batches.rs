//! Routes on their way to the shards.
//!
//! An UPDATE's prefixes are a run with one set of attributes. What a prefix costs here is a shift, an index and a
//! store; the rest is done once for a run.

use crate::attr::AttrSet;
use crate::message::{Prefixes, RouteOp, UpdateBatch};
use crate::peer::{PeerId, PeerInfo};
use crate::shard::Split;
use ribtide_prefix::{Families, Family, LOGICAL_SHARDS, PerFamily, Prefix, for_each_family, logical_shard};

/// Which thread runs each logical shard.
pub type ShardMap = [u16; LOGICAL_SHARDS as usize];

/// Routes on their way to the shards, one growing batch per thread and session.
pub struct ShardBatches {
    /// For each logical shard its thread's place in `open`, or [`SPLIT`].
    places: [u8; LOGICAL_SHARDS as usize],
    /// One for each thread that has a logical shard, all of the session whose routes came last.
    open: Vec<Open>,
    /// Batches of other sessions, in order, each with its thread.
    closed: Vec<(u16, UpdateBatch)>,
    len: usize,
    /// The logical shard that is moving, and the places of the threads from which it moves and to which.
    split: Option<(Split, [u8; 2])>,
}

/// Of a logical shard that is moving, no place: it depends on the prefix.
const SPLIT: u8 = u8::MAX;

struct Open {
    thread: u16,
    batch: UpdateBatch,
    /// How many prefixes the batch's operations take.
    taken: Families<Counts>,
}

/// A number per family.
struct Counts;
impl PerFamily for Counts {
    type Of<F: Family> = u32;
}

/// The threads a run touches are marked in one word.
type Marks = u64;
const _: () = assert!(LOGICAL_SHARDS as u32 <= Marks::BITS);

impl ShardBatches {
    /// Empty batches for the threads that `map` names.
    pub fn new(map: ShardMap) -> ShardBatches {
        ShardBatches::with_split(map, None)
    }

    /// Empty batches for the threads that `map` names, while a logical shard moves from its thread to another.
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
                prefixes: Families::default(),
            },
            taken: Families::default(),
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

    /// How many prefixes wait in it.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing waits in it.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Frees the buffers that it keeps for the next batches, when nothing waits.
    pub fn shrink_to_fit(&mut self) {
        if self.is_empty() {
            self.closed = Vec::new();
            for Open { batch, .. } in &mut self.open {
                (batch.ops, batch.prefixes) = Default::default();
            }
        }
    }

    /// Hands over the batches, each with the thread it is for. Those of one thread are in the order received.
    pub fn drain(&mut self) -> impl Iterator<Item = (u16, UpdateBatch)> + '_ {
        self.close();
        self.len = 0;
        self.closed.drain(..)
    }

    /// Adds prefixes that were announced with `attrs`, or withdrawn. Returns how many there were.
    pub fn extend<F: Family>(
        &mut self,
        peer: &PeerInfo,
        attrs: Option<&AttrSet>,
        prefixes: impl Iterator<Item = Prefix<F>>,
    ) -> u64 {
        self.turn_to(peer);
        let (mut count, mut touched): (usize, Marks) = (0, 0);
        prefixes.for_each(|prefix| {
            let mut place = self.places[usize::from(logical_shard(prefix))];
            if place == SPLIT {
                place = self.place_in_split(prefix);
            }
            self.open[usize::from(place)].batch.prefixes.get_mut::<F>().push(prefix);
            touched |= 1 << place;
            count += 1;
        });
        self.len += count;
        while touched != 0 {
            self.open[touched.trailing_zeros() as usize].take::<F>(attrs);
            touched &= touched - 1;
        }
        count as u64
    }

    /// Adds prefixes that were withdrawn, most often none. Returns how many there were.
    #[inline]
    pub(super) fn withdraw_all<F: Family>(&mut self, peer: &PeerInfo, prefixes: Vec<Prefix<F>>) -> u64 {
        match prefixes.is_empty() {
            true => 0,
            false => self.extend(peer, None, prefixes.into_iter()),
        }
    }

    /// The place of a prefix whose logical shard is moving.
    #[cold]
    fn place_in_split<F: Family>(&self, prefix: Prefix<F>) -> u8 {
        let place = |(split, [giver, taker]): &(Split, [u8; 2])| match split.has_moved(prefix) {
            true => *taker,
            false => *giver,
        };
        self.split.as_ref().map_or(0, place)
    }

    /// Makes the open batches those of this session.
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
                open.taken = Families::default();
            }
        }
    }
}

impl Open {
    /// An operation for the prefixes that no operation takes yet.
    fn take<F: Family>(&mut self, attrs: Option<&AttrSet>) {
        let all = self.batch.prefixes.get::<F>().len() as u32;
        let count = all - std::mem::replace(self.taken.get_mut::<F>(), all);
        match self.batch.ops.last_mut() {
            Some(op) if op.afi == F::AFI && same(op.attrs.as_ref(), attrs) => op.count += count,
            _ => self.batch.ops.push(RouteOp { attrs: attrs.cloned(), afi: F::AFI, count }),
        }
    }
}

/// An empty batch of the same session with room for as much: what comes next is most often as long, and a list that
/// grows from nothing touches twice the memory.
fn room_like(batch: &UpdateBatch) -> UpdateBatch {
    let UpdateBatch { peer, session, ops, prefixes } = batch;
    let mut room: Families<Prefixes> = Families::default();
    for_each_family!(F => *room.get_mut::<F>() = Vec::with_capacity(prefixes.get::<F>().len()));
    UpdateBatch { peer: *peer, session: *session, ops: Vec::with_capacity(ops.len()), prefixes: room }
}

/// Whether two are the same set, or both none.
pub(super) fn same(a: Option<&AttrSet>, b: Option<&AttrSet>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => AttrSet::ptr_eq(a, b),
        (None, None) => true,
        _ => false,
    }
}
