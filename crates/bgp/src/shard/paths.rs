//! The storage of paths: in the slot of the table for a single path, else in a block of suitable
//! size.
//!
//! A path is eight bytes. Blocks of one size are cut from chunks of one size, and a chunk without
//! used blocks is freed. So routes that grow together leave no small blocks behind, and a copy
//! happens only when a route outgrows its block. The stamps of its paths stand before them in a
//! block, four in the eight bytes of a path and the first next to the first path: no decision reads
//! them, an announcement finds them in a cache line that it has, and one copy moves both.

use super::age::Stamp;

/// A path: its attributes (a number of the attribute table of the shard), its session (a number of
/// the shard), and its rank as far as 16 bits hold it.
///
/// Equality ignores the hint, which follows from the attributes, and the part in forwarding, which
/// belongs to the route.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    pub(super) attrs: u32,
    pub(super) session: u16,
    /// See [`hint`](crate::decision::hint); in the two lowest bits the [`Part`].
    pub(super) hint: u16,
}

impl PartialEq for Path {
    fn eq(&self, other: &Path) -> bool {
        (self.attrs, self.session) == (other.attrs, other.session)
    }
}

/// The part in forwarding of a path that is not the best, according to the last feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Part {
    /// None, or the same next hop as an earlier path.
    Nothing = 0,
    /// A multipath member: its next hop shares traffic with that of the best path.
    Member = 1,
    /// The backup next hop.
    Backup = 2,
}

impl Path {
    /// A path without a part in forwarding. `hint` is that of its attributes.
    pub(super) fn new(attrs: u32, session: u16, hint: u16) -> Path {
        Path { attrs, session, hint: hint << 2 }
    }

    /// The hint of its attributes, without the part.
    #[inline]
    pub(super) fn worth(self) -> u16 {
        self.hint >> 2
    }

    pub(super) fn part(self) -> Part {
        match self.hint & 3 {
            1 => Part::Member,
            2 => Part::Backup,
            _ => Part::Nothing,
        }
    }

    pub(super) fn set_part(&mut self, part: Part) {
        self.hint = self.hint & !3 | part as u16;
    }

    /// The stamps that stand in place of a path, the first in the lowest bits.
    fn to_stamps(self) -> u64 {
        u64::from(self.attrs) | u64::from(self.session) << 32 | u64::from(self.hint) << 48
    }

    fn of_stamps(stamps: u64) -> Path {
        Path { attrs: stamps as u32, session: (stamps >> 32) as u16, hint: (stamps >> 48) as u16 }
    }
}

/// The stamps in the place of one path.
const STAMPS: usize = 4;
const STAMP_BITS: usize = u16::BITS as usize;

/// The number of a block.
pub(super) type Block = u32;

/// The blocks of all routes with more than one path.
#[derive(Default)]
pub(super) struct PathStore {
    /// Whether paths have stamps.
    stamped: bool,
    chunks: Vec<Chunk>,
    /// Chunks without memory.
    unused: Vec<u32>,
    /// By size: the chunks that have a free block.
    open: Vec<Vec<u32>>,
}

/// Paths of a chunk, unless one block is larger.
const CHUNK: usize = 1 << CHUNK_BITS;
const CHUNK_BITS: u32 = 9;
/// Chunks whose stamps one step of a pass renews: about 100,000 stamps.
pub(super) const CHUNKS_OF_STEP: usize = 256;
/// No block.
const NONE: u16 = u16::MAX;
const BLANK: Path = Path { attrs: 0, session: 0, hint: 0 };

struct Chunk {
    paths: Box<[Path]>,
    /// Places of a block.
    block_size: u32,
    /// Where blocks begin that never were in use.
    fresh: u32,
    /// Place among the open chunks of its size, if it is open.
    open: u32,
    /// Places of a block that hold the stamps of the paths behind them; 0 in a store without stamps.
    stamps: u16,
    /// The number of its capacity.
    size: u16,
    /// First free block that was in use before; each names the next in its first place for a path.
    free: u16,
    used: u16,
}

/// How many paths a block holds that is made for `len`, at least two: 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and
/// so on.
const fn capacity(len: usize) -> usize {
    len.next_multiple_of(step(len))
}

/// What the capacities around `len` differ by.
const fn step(len: usize) -> usize {
    let len = if len < 9 { 9 } else { len };
    (1 << (len - 1).ilog2()) / 4
}

/// The number of a capacity.
const fn size(capacity: usize) -> usize {
    if capacity <= 8 {
        return capacity / 2 - 1;
    }
    let octave = (capacity - 1).ilog2() as usize;
    4 * (octave - 2) + (capacity - (1 << octave)) / step(capacity) - 1
}

/// [`size`] of the block that is made for each number of paths.
const SIZES: [u8; 65] = {
    let mut sizes = [0; 65];
    let mut len = 2;
    while len < sizes.len() {
        sizes[len] = size(capacity(len)) as u8;
        len += 1;
    }
    sizes
};

/// The number of the capacity of a block that is made for `len` paths.
fn size_for(len: usize) -> usize {
    SIZES.get(len).map_or_else(|| size(capacity(len)), |size| usize::from(*size))
}

/// Whether a block made for `len` paths is full with them.
pub(super) fn is_full(len: usize) -> bool {
    len & (step(len) - 1) == 0
}

impl PathStore {
    /// An empty store of paths with stamps.
    pub(super) fn stamped() -> PathStore {
        PathStore { stamped: true, ..PathStore::default() }
    }

    /// The stamps of the first `len` paths of a block, in a store that has them.
    pub(super) fn stamps(&self, block: Block, len: usize) -> impl Iterator<Item = Stamp> + '_ {
        let (chunk, start) = self.place(block);
        let cells = chunk.paths[start - usize::from(chunk.stamps)..start].iter().rev();
        let stamps = cells.flat_map(|cell| {
            let stamps = cell.to_stamps();
            (0..STAMPS).map(move |n| Stamp((stamps >> (n * STAMP_BITS)) as u16))
        });
        stamps.take(len)
    }

    /// Sets the stamp of the path at `index` of a block, in a store that has them.
    pub(super) fn set_stamp(&mut self, block: Block, index: usize, stamp: Stamp) {
        let (chunk, start) = self.place_mut(block);
        chunk.set_stamp(start, index, stamp);
    }

    /// Sets the path at `index` of a block, which changed `now`.
    #[inline]
    pub(super) fn set(&mut self, block: Block, index: usize, path: Path, now: Stamp) {
        let (chunk, start) = self.place_mut(block);
        chunk.paths[start + index] = path;
        chunk.set_stamp(start, index, now);
    }

    /// Removes the path at `index` of the first `len` of a block; those behind it, with their
    /// stamps, take the places before them. The last place keeps what it had.
    #[inline]
    pub(super) fn shift(&mut self, block: Block, len: usize, index: usize) -> Path {
        let (chunk, start) = self.place_mut(block);
        let paths = &mut chunk.paths[start..start + len];
        let gone = paths[index];
        paths.copy_within(index + 1.., index);
        if chunk.stamps > 0 {
            // The last place has the stamps of the first four paths.
            let cells = &mut chunk.paths[start - len.div_ceil(STAMPS)..start];
            let first = index / STAMPS;
            // The stamps before `index` stay.
            let mut stay = (1u64 << (index % STAMPS * STAMP_BITS)) - 1;
            let mut at = cells.len() - first;
            while at > 0 {
                at -= 1;
                let stamps = cells[at].to_stamps();
                let next =
                    if at > 0 { cells[at - 1].to_stamps() << (u64::BITS as usize - STAMP_BITS) } else { 0 };
                let moved = stamps >> STAMP_BITS | next;
                cells[at] = Path::of_stamps(stamps & stay | moved & !stay);
                stay = 0;
            }
        }
        gone
    }

    /// Its chunks, those without memory too.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// Changes the stamps of [`CHUNKS_OF_STEP`] chunks, used or not.
    pub(super) fn renew_stamps_of_step(&mut self, step: usize, renew: impl Fn(&mut Stamp)) {
        let chunks = self.chunks.chunks_mut(CHUNKS_OF_STEP).nth(step).unwrap_or_default();
        for chunk in chunks.iter_mut().filter(|chunk| !chunk.paths.is_empty()) {
            let blocks = chunk.paths[..chunk.fresh as usize].chunks_mut(chunk.block_size as usize);
            for cell in blocks.flat_map(|block| &mut block[..usize::from(chunk.stamps)]) {
                let stamps = cell.to_stamps();
                let renewed = |n: usize| {
                    let mut stamp = Stamp((stamps >> (n * STAMP_BITS)) as u16);
                    renew(&mut stamp);
                    u64::from(stamp.0) << (n * STAMP_BITS)
                };
                *cell = Path::of_stamps((0..STAMPS).map(renewed).sum());
            }
        }
    }

    /// The first `len` paths of a block.
    #[inline]
    pub(super) fn get(&self, block: Block, len: usize) -> &[Path] {
        let (chunk, start) = self.place(block);
        &chunk.paths[start..start + len]
    }

    /// The first `len` paths of a block, to change.
    #[inline]
    pub(super) fn get_mut(&mut self, block: Block, len: usize) -> &mut [Path] {
        let (chunk, start) = self.place_mut(block);
        &mut chunk.paths[start..start + len]
    }

    /// The chunk of a block, and where the paths of the block begin.
    #[inline]
    fn place(&self, block: Block) -> (&Chunk, usize) {
        let (chunk, begin) = place(block);
        let chunk = &self.chunks[chunk];
        (chunk, begin + usize::from(chunk.stamps))
    }

    #[inline]
    fn place_mut(&mut self, block: Block) -> (&mut Chunk, usize) {
        let (chunk, begin) = place(block);
        let chunk = &mut self.chunks[chunk];
        let start = begin + usize::from(chunk.stamps);
        (chunk, start)
    }

    /// Moves the first `count` paths of a block, with their stamps, to a new one for `to` paths of another size.
    pub(super) fn resize(&mut self, from: Block, to: usize, count: usize) -> Block {
        let new = self.take(to);
        let ((chunk, begin), (new_chunk, new_begin)) = (place(from), place(new));
        if let Ok([old, new]) = self.chunks.get_disjoint_mut([chunk, new_chunk]) {
            let (start, at) = (begin + usize::from(old.stamps), new_begin + usize::from(new.stamps));
            let stamps = if old.stamps > 0 { count.div_ceil(STAMPS) } else { 0 };
            new.paths[at - stamps..at + count].copy_from_slice(&old.paths[start - stamps..start + count]);
        }
        self.give(from);
        new
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let paths: usize = self.chunks.iter().map(|chunk| size_of_val(&*chunk.paths)).sum();
        paths + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// How many blocks are in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.chunks.iter().map(|chunk| usize::from(chunk.used)).sum()
    }

    /// A block for `len` paths, at least two.
    pub(super) fn take(&mut self, len: usize) -> Block {
        let size = size_for(len);
        let number = match self.open.get(size).and_then(|open| open.last()) {
            Some(number) => *number,
            None => self.add_chunk(capacity(len), size),
        };
        let chunk = &mut self.chunks[number as usize];
        let begin = match chunk.free {
            NONE => {
                chunk.fresh += chunk.block_size;
                chunk.fresh - chunk.block_size
            }
            free => {
                chunk.free = chunk.paths[usize::from(free + chunk.stamps)].session;
                u32::from(free)
            }
        };
        chunk.used += 1;
        if !chunk.is_open() {
            self.open[size].pop();
        }
        number << CHUNK_BITS | begin
    }

    /// Frees a block.
    pub(super) fn give(&mut self, block: Block) {
        let (number, begin) = place(block);
        let chunk = &mut self.chunks[number];
        let open = &mut self.open[usize::from(chunk.size)];
        let was_open = chunk.is_open();
        chunk.paths[begin + usize::from(chunk.stamps)].session = chunk.free;
        chunk.free = begin as u16;
        chunk.used -= 1;
        if !was_open {
            chunk.open = open.len() as u32;
            open.push(number as u32);
        }
        // The last open chunk stays, because the next block is likely to need it.
        if chunk.used == 0 && (open.len() > 1 || chunk.paths.len() > CHUNK) {
            let at = chunk.open;
            chunk.paths = Box::default();
            self.unused.push(number as u32);
            open.swap_remove(at as usize);
            if let Some(moved) = open.get(at as usize) {
                self.chunks[*moved as usize].open = at;
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn add_chunk(&mut self, capacity: usize, size: usize) -> u32 {
        if self.open.len() <= size {
            self.open.resize_with(size + 1, Vec::new);
        }
        let stamps = if self.stamped { capacity.div_ceil(STAMPS) } else { 0 };
        let block_size = stamps + capacity;
        let chunk = Chunk {
            paths: vec![BLANK; block_size.max(CHUNK)].into_boxed_slice(),
            block_size: block_size as u32,
            fresh: 0,
            open: self.open[size].len() as u32,
            stamps: stamps as u16,
            size: size as u16,
            free: NONE,
            used: 0,
        };
        let number = match self.unused.pop() {
            Some(number) => {
                self.chunks[number as usize] = chunk;
                number
            }
            None => {
                self.chunks.push(chunk);
                self.chunks.len() as u32 - 1
            }
        };
        self.open[size].push(number);
        number
    }
}

impl Chunk {
    /// Whether it has a free block.
    fn is_open(&self) -> bool {
        self.free != NONE || (self.fresh + self.block_size) as usize <= self.paths.len()
    }

    /// Sets the stamp of the path at `index` of those from `start` on, if there are stamps.
    #[inline]
    fn set_stamp(&mut self, start: usize, index: usize, Stamp(stamp): Stamp) {
        if self.stamps == 0 {
            return;
        }
        let cell = &mut self.paths[start - 1 - index / STAMPS];
        let shift = index % STAMPS * STAMP_BITS;
        let others = cell.to_stamps() & !(u64::from(u16::MAX) << shift);
        *cell = Path::of_stamps(others | u64::from(stamp) << shift);
    }
}

fn place(block: Block) -> (usize, usize) {
    ((block >> CHUNK_BITS) as usize, block as usize % CHUNK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_follow_the_capacities() {
        let mut capacities: Vec<usize> = (2..70_000).map(capacity).collect();
        capacities.dedup();
        assert_eq!(capacities[..14], [2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40, 48]);
        assert!(capacities.iter().enumerate().all(|(n, capacity)| size(*capacity) == n));
        assert!((2..70_000).all(|len| (len..=len + len / 4 + 1).contains(&capacity(len))));
        assert!((2..70_000).all(|len| is_full(len) == (len == capacity(len))));
        assert_eq!(size_of::<Path>(), 8);
    }

    #[test]
    fn renewal_changes_stamps_alone_and_keeps_free_blocks() {
        let mut store = PathStore::stamped();
        let path = |n: usize| Path { attrs: n as u32, session: n as u16, hint: 7 };
        let lens = [2, 5, 12, 40, 600, 3000];
        let mut blocks: Vec<(Block, usize)> = lens
            .iter()
            .flat_map(|len| (0..3).map(|_| *len).collect::<Vec<_>>())
            .map(|len| (store.take(len), len))
            .collect();
        for (block, len) in &blocks {
            (0..*len).for_each(|n| store.set(*block, n, path(n), Stamp(n as u16)));
        }
        // The middle one of each three is free.
        blocks.iter().skip(1).step_by(3).for_each(|(block, _)| store.give(*block));
        store.renew_stamps_of_step(0, |stamp| stamp.0 += 1);
        let mut free: Vec<Block> = blocks.iter().skip(1).step_by(3).map(|(block, _)| *block).collect();
        let mut taken = lens.map(|len| store.take(len)).to_vec();
        free.sort_unstable();
        taken.sort_unstable();
        assert_eq!(taken, free);
        for (at, (block, len)) in blocks.iter_mut().enumerate() {
            if at % 3 == 1 {
                continue;
            }
            assert!(store.get(*block, *len).iter().enumerate().all(|(n, found)| *found == path(n)));
            assert!(store.stamps(*block, *len).map(|stamp| usize::from(stamp.0)).eq(1..*len + 1));
            let old = *len;
            (*block, *len) = (store.resize(*block, old * 2, old), old * 2);
            assert!(store.get(*block, old).iter().enumerate().all(|(n, found)| *found == path(n)));
            assert!(store.stamps(*block, old).map(|stamp| usize::from(stamp.0)).eq(1..old + 1));
            assert_eq!(store.shift(*block, old, 1), path(1));
            assert!(
                store
                    .stamps(*block, old - 1)
                    .map(|stamp| usize::from(stamp.0))
                    .eq((1..old + 1).filter(|n| *n != 2))
            );
        }
    }

    proptest! {
        // Blocks in use never share a path, whatever was given back before.
        #[test]
        fn blocks_are_apart(steps in prop::collection::vec((any::<bool>(), 2..40usize, any::<prop::sample::Index>()), 0..300)) {
            let mut store = PathStore::default();
            let mut held: Vec<(Block, usize, u32)> = Vec::new();
            for (n, (take, len, at)) in steps.into_iter().enumerate() {
                let len = if len == 39 { 1000 } else { len };
                if take || held.is_empty() {
                    let block = store.take(len);
                    store.get_mut(block, len).fill(Path { attrs: n as u32, ..BLANK });
                    held.push((block, len, n as u32));
                } else {
                    let (block, ..) = held.swap_remove(at.index(held.len()));
                    store.give(block);
                }
                for (block, len, n) in &held {
                    prop_assert!(store.get(*block, *len).iter().all(|path| path.attrs == *n));
                }
                prop_assert_eq!(store.used(), held.len());
            }
            for (block, ..) in held {
                store.give(block);
            }
            let kept = store.chunks.iter().filter(|chunk| !chunk.paths.is_empty()).count();
            prop_assert!(kept <= store.open.len());
        }
    }
}
