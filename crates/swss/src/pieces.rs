//! Records by number, and numbers by hash: what tables of millions of routes are made of.

use hashbrown::HashTable;
use ribtide_prefix::with_spare;

/// Bytes of a piece at least. That is more than the allocator brings together with others, so a piece that is freed is purged,
/// whatever stays.
const LARGE: usize = 768 << 10;

/// Records by number, in pieces: a table that grows neither copies those that it has nor needs room for them twice.
pub(crate) struct Pieces<T> {
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for Pieces<T> {
    fn default() -> Self {
        Pieces { pieces: Vec::new(), len: 0 }
    }
}

impl<T> Pieces<T> {
    /// Records in a piece.
    pub(crate) const PIECE: usize = LARGE.div_ceil(size_of::<T>()).next_power_of_two();

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many records there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.pieces.iter().map(Vec::capacity).sum()
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.pieces.get(at as usize / Self::PIECE)?.get(at as usize % Self::PIECE)
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.pieces.get_mut(at as usize / Self::PIECE)?.get_mut(at as usize % Self::PIECE)
    }

    pub(crate) fn push(&mut self, record: T) {
        if self.len.is_multiple_of(Self::PIECE) {
            self.pieces.push(Vec::new());
        }
        if let Some(piece) = self.pieces.last_mut() {
            if piece.len() == piece.capacity() {
                piece.reserve_exact(Self::PIECE - piece.len());
            }
            piece.push(record);
            self.len += 1;
        }
    }

    /// Takes the last one out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let piece = self.pieces.last_mut()?;
        let last = piece.pop();
        self.len -= 1;
        if piece.is_empty() {
            self.pieces.pop();
        }
        last
    }

    /// Shrinks the only piece to its contents, if they fill at most an eighth of it.
    pub(crate) fn shrink_to_fit(&mut self) {
        if let [only] = &mut self.pieces[..]
            && only.len() * 8 <= Self::PIECE
        {
            only.shrink_to_fit();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.pieces.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.pieces.iter_mut().flatten()
    }

    /// Each piece, full but for the last.
    #[cfg(test)]
    pub(crate) fn pieces(&self) -> &[Vec<T>] {
        &self.pieces
    }
}

impl<T> std::ops::Index<u32> for Pieces<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.pieces[at as usize / Self::PIECE][at as usize % Self::PIECE]
    }
}

impl<T> std::ops::IndexMut<u32> for Pieces<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.pieces[at as usize / Self::PIECE][at as usize % Self::PIECE]
    }
}

/// Numbers of records, found by 32 bits of a hash of what they are of: those stand with the number, so that a table that grows need not
/// look at the records.
#[derive(Default)]
pub(crate) struct Index(HashTable<(u32, u32)>);

impl Index {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The number of this hash of which `is` is true.
    pub(crate) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.0.find(spread(hash), |(of, at)| *of == hash && is(*at)).map(|(_, at)| *at)
    }

    /// Puts a number there that [`Index::find`] does not find. Write its record before: this store waits for memory, and whatever reads
    /// again what was written behind it waits too.
    pub(crate) fn insert(&mut self, hash: u32, number: u32) {
        self.0.insert_unique(spread(hash), (hash, number), |(of, _)| spread(*of));
    }

    /// A record has another number from now on.
    pub(crate) fn renumber(&mut self, hash: u32, from: u32, to: u32) {
        if let Some((_, at)) = self.0.find_mut(spread(hash), |(_, at)| *at == from) {
            *at = to;
        }
    }

    pub(crate) fn remove(&mut self, hash: u32, number: u32) {
        if let Ok(entry) = self.0.find_entry(spread(hash), |(_, at)| *at == number) {
            entry.remove();
        }
    }

    /// As [`ribtide_prefix::shrink_if_sparse`] does with a map.
    pub(crate) fn shrink_if_sparse(&mut self) {
        const KEPT_CAPACITY: usize = 64;
        if self.0.capacity() > KEPT_CAPACITY && self.0.len() * 8 < self.0.capacity() {
            self.shrink_to(self.0.len() * 2);
        }
    }

    /// As [`ribtide_prefix::shrink_to_fit`] does with a map.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.shrink_to(with_spare(self.0.len()));
    }

    fn shrink_to(&mut self, room: usize) {
        self.0.shrink_to(room, |(of, _)| spread(*of));
    }

    /// Every number.
    pub(crate) fn iter(&self) -> impl Iterator<Item = u32> {
        self.0.iter().map(|(_, at)| *at)
    }

    pub(crate) fn allocation_size(&self) -> usize {
        self.0.allocation_size()
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.0.capacity()
    }
}

/// The table takes a place from the lower bits and a tag from the highest.
fn spread(hash: u32) -> u64 {
    u64::from(hash) << 32 | u64::from(hash)
}
