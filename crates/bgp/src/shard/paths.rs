//! The storage of paths: in the slot of the table for a single path, else in a block of suitable
//! size.
//!
//! A path is eight bytes. Blocks of one size are cut from chunks of one size, and a chunk without
//! used blocks is freed. So routes that grow together leave no small blocks behind, and a copy
//! happens only when a route outgrows its block. The stamps of paths stand beside the paths of a chunk, so
//! that a decision reads no stamp.

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
}

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
/// Chunks whose stamps one step of a pass renews: at least 128 Ki stamps, some 50 µs.
pub(super) const CHUNKS_OF_STEP: usize = 256;
/// No block.
const NONE: u16 = u16::MAX;
const BLANK: Path = Path { attrs: 0, session: 0, hint: 0 };

struct Chunk {
    paths: Box<[Path]>,
    /// When each of the paths changed; empty in a store without stamps.
    stamps: Box<[Stamp]>,
    /// First free block that was in use before; each names the next in its first path.
    free: u16,
    /// Where blocks begin that never were in use.
    fresh: u32,
    used: u16,
    /// Place among the open chunks of its size, if it is open.
    open: u32,
}

/// How many paths a block holds that is made for `len`, at least two: 2, 4, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32, 40 and
/// so on.
fn capacity(len: usize) -> usize {
    len.next_multiple_of(step(len))
}

/// What the capacities around `len` differ by.
fn step(len: usize) -> usize {
    (1 << (len.max(9) - 1).ilog2()) / 4
}

/// The number of a capacity.
fn size(capacity: usize) -> usize {
    if capacity <= 8 {
        return capacity / 2 - 1;
    }
    let octave = (capacity - 1).ilog2() as usize;
    4 * (octave - 2) + (capacity - (1 << octave)) / step(capacity) - 1
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
    pub(super) fn stamps(&self, block: Block, len: usize) -> &[Stamp] {
        let (chunk, start) = place(block);
        self.chunks[chunk].stamps.get(start..start + len).unwrap_or_default()
    }

    /// The stamps of the first `len` paths of a block, to change; `None` in a store without stamps.
    pub(super) fn stamps_mut(&mut self, block: Block, len: usize) -> Option<&mut [Stamp]> {
        let (chunk, start) = place(block);
        self.chunks[chunk].stamps.get_mut(start..start + len)
    }

    /// Its chunks, those without memory too.
    pub(super) fn chunks(&self) -> usize {
        self.chunks.len()
    }

    /// The stamps of [`CHUNKS_OF_STEP`] chunks, used or not.
    pub(super) fn stamps_of_step(&mut self, step: usize) -> impl Iterator<Item = &mut Stamp> {
        let chunks = self.chunks.chunks_mut(CHUNKS_OF_STEP).nth(step).unwrap_or_default();
        chunks.iter_mut().flat_map(|chunk| chunk.stamps.iter_mut())
    }

    /// The first `len` paths of a block.
    pub(super) fn get(&self, block: Block, len: usize) -> &[Path] {
        let (chunk, start) = place(block);
        &self.chunks[chunk].paths[start..start + len]
    }

    /// The first `len` paths of a block, to change.
    pub(super) fn get_mut(&mut self, block: Block, len: usize) -> &mut [Path] {
        let (chunk, start) = place(block);
        &mut self.chunks[chunk].paths[start..start + len]
    }

    /// Copies the first `len` paths of a block to a block of another size, in another chunk.
    pub(super) fn copy(&mut self, from: Block, to: Block, len: usize) {
        let ((from, start), (to, at)) = (place(from), place(to));
        if let Ok([from, to]) = self.chunks.get_disjoint_mut([from, to]) {
            to.paths[at..at + len].copy_from_slice(&from.paths[start..start + len]);
            if let Some(stamps) = from.stamps.get(start..start + len) {
                to.stamps[at..at + len].copy_from_slice(stamps);
            }
        }
    }

    /// Bytes of memory held.
    pub(super) fn memory(&self) -> usize {
        let of_chunk = |chunk: &Chunk| size_of_val(&*chunk.paths) + size_of_val(&*chunk.stamps);
        let paths: usize = self.chunks.iter().map(of_chunk).sum();
        paths + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// How many blocks are in use.
    #[cfg(test)]
    pub(super) fn used(&self) -> usize {
        self.chunks.iter().map(|chunk| usize::from(chunk.used)).sum()
    }

    /// A block for `len` paths, at least two.
    pub(super) fn take(&mut self, len: usize) -> Block {
        let capacity = capacity(len);
        let size = size(capacity);
        if self.open.len() <= size {
            self.open.resize_with(size + 1, Vec::new);
        }
        let number = match self.open[size].last() {
            Some(number) => *number,
            None => self.add_chunk(capacity, size),
        };
        let chunk = &mut self.chunks[number as usize];
        let start = match chunk.free {
            NONE => {
                chunk.fresh += capacity as u32;
                chunk.fresh as usize - capacity
            }
            free => {
                chunk.free = chunk.paths[usize::from(free)].session;
                usize::from(free)
            }
        };
        chunk.used += 1;
        if !chunk.is_open(capacity) {
            self.open[size].pop();
        }
        number << CHUNK_BITS | start as u32
    }

    /// Frees a block made for `len` paths.
    pub(super) fn give(&mut self, block: Block, len: usize) {
        let capacity = capacity(len);
        let open = &mut self.open[size(capacity)];
        let (number, start) = place(block);
        let chunk = &mut self.chunks[number];
        let was_open = chunk.is_open(capacity);
        chunk.paths[start].session = chunk.free;
        chunk.free = start as u16;
        chunk.used -= 1;
        if !was_open {
            chunk.open = open.len() as u32;
            open.push(number as u32);
        }
        // The last open chunk stays, because the next block is likely to need it.
        if chunk.used == 0 && (open.len() > 1 || capacity > CHUNK) {
            let at = chunk.open;
            (chunk.paths, chunk.stamps) = (Box::default(), Box::default());
            self.unused.push(number as u32);
            open.swap_remove(at as usize);
            if let Some(moved) = open.get(at as usize) {
                self.chunks[*moved as usize].open = at;
            }
        }
    }

    fn add_chunk(&mut self, capacity: usize, size: usize) -> u32 {
        let paths = vec![BLANK; capacity.max(CHUNK)].into_boxed_slice();
        let stamps = vec![Stamp::default(); if self.stamped { paths.len() } else { 0 }].into_boxed_slice();
        let chunk =
            Chunk { paths, stamps, free: NONE, fresh: 0, used: 0, open: self.open[size].len() as u32 };
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
    fn is_open(&self, capacity: usize) -> bool {
        self.free != NONE || self.fresh as usize + capacity <= self.paths.len()
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
                    let (block, len, _) = held.swap_remove(at.index(held.len()));
                    store.give(block, len);
                }
                for (block, len, n) in &held {
                    prop_assert!(store.get(*block, *len).iter().all(|path| path.attrs == *n));
                }
                prop_assert_eq!(store.used(), held.len());
            }
            for (block, len, _) in held {
                store.give(block, len);
            }
            let kept = store.chunks.iter().filter(|chunk| !chunk.paths.is_empty()).count();
            prop_assert!(kept <= store.open.len());
        }
    }
}
