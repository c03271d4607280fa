//! The storage of tables with millions of routes: [`SegmentedVec`] holds records by number, [`HashIndex`] finds numbers by
//! hash.

use hashbrown::HashTable;
use ribtide_prefix::with_spare;

/// The least bytes of a segment. The allocator maps blocks of this size on their own, so a freed segment goes back to the
/// kernel whatever stays allocated.
const SEGMENT_BYTES_MIN: usize = 768 << 10;

/// A vector in segments of equal capacity. Growth allocates one more segment: it copies no record and never holds two
/// copies of the table.
pub(crate) struct SegmentedVec<T> {
    segments: Vec<Vec<T>>,
    len: usize,
}

impl<T> Default for SegmentedVec<T> {
    fn default() -> Self {
        SegmentedVec { segments: Vec::new(), len: 0 }
    }
}

impl<T> SegmentedVec<T> {
    /// Records of a full segment.
    pub(crate) const SEGMENT_LEN: usize = SEGMENT_BYTES_MIN.div_ceil(size_of::<T>()).next_power_of_two();

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many records there is room for.
    pub(crate) fn capacity(&self) -> usize {
        self.segments.iter().map(Vec::capacity).sum()
    }

    pub(crate) fn get(&self, at: u32) -> Option<&T> {
        self.segments.get(at as usize / Self::SEGMENT_LEN)?.get(at as usize % Self::SEGMENT_LEN)
    }

    pub(crate) fn get_mut(&mut self, at: u32) -> Option<&mut T> {
        self.segments.get_mut(at as usize / Self::SEGMENT_LEN)?.get_mut(at as usize % Self::SEGMENT_LEN)
    }

    pub(crate) fn push(&mut self, record: T) {
        if self.len.is_multiple_of(Self::SEGMENT_LEN) {
            self.segments.push(Vec::new());
        }
        if let Some(segment) = self.segments.last_mut() {
            if segment.len() == segment.capacity() {
                segment.reserve_exact(Self::SEGMENT_LEN - segment.len());
            }
            segment.push(record);
            self.len += 1;
        }
    }

    /// Takes the last one out.
    pub(crate) fn pop(&mut self) -> Option<T> {
        let segment = self.segments.last_mut()?;
        let last = segment.pop();
        self.len -= 1;
        if segment.is_empty() {
            self.segments.pop();
        }
        last
    }

    /// Shrinks the only segment to its contents, if they fill at most an eighth of it.
    pub(crate) fn shrink_to_fit(&mut self) {
        if let [only] = &mut self.segments[..]
            && only.len() * 8 <= Self::SEGMENT_LEN
        {
            only.shrink_to_fit();
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.segments.iter().flatten()
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.segments.iter_mut().flatten()
    }

    /// Each segment, full but for the last.
    #[cfg(test)]
    pub(crate) fn segments(&self) -> &[Vec<T>] {
        &self.segments
    }
}

impl<T> std::ops::Index<u32> for SegmentedVec<T> {
    type Output = T;

    fn index(&self, at: u32) -> &T {
        &self.segments[at as usize / Self::SEGMENT_LEN][at as usize % Self::SEGMENT_LEN]
    }
}

impl<T> std::ops::IndexMut<u32> for SegmentedVec<T> {
    fn index_mut(&mut self, at: u32) -> &mut T {
        &mut self.segments[at as usize / Self::SEGMENT_LEN][at as usize % Self::SEGMENT_LEN]
    }
}

/// Finds the numbers of records by 32 bits of a hash of their key. Each slot holds the hash beside the number, so that
/// growth reads no record.
#[derive(Default)]
pub(crate) struct HashIndex(HashTable<(u32, u32)>);

impl HashIndex {
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

    /// Inserts a number that [`HashIndex::find`] does not find. Write its record first: this store waits for memory, and so
    /// does a later read of a store that comes after it.
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
