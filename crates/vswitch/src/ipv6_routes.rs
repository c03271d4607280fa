//! IPv6 routes: exact look-up in one hash probe, longest match in one for each length.
//!
//! A large table is divided into parts by a hash of its own, so that a checker can walk it part by
//! part: an entry stays in its part however tables grow and shrink.

use crate::dir24::Target;
use crate::walk::Walk;
use ribtide_prefix::{BgpFamily, HashBuilder, Prefix, PrefixTable, V6};
use std::hash::BuildHasher;
use std::net::IpAddr;

/// Parts of a large table.
const PARTS: usize = 256;
/// Entries at which a table is divided or joined.
const SPLIT_THRESHOLD: usize = 16_384;
const JOIN_THRESHOLD: usize = SPLIT_THRESHOLD / 4;

/// An IPv6 table.
pub(crate) struct Parts {
    /// One or [`PARTS`].
    parts: Vec<PrefixTable<V6, Target>>,
    hasher: HashBuilder,
}

impl Default for Parts {
    fn default() -> Self {
        Parts { parts: vec![PrefixTable::default()], hasher: HashBuilder::default() }
    }
}

impl Parts {
    /// Places of a walk: one for each part, also of an undivided table.
    pub(crate) const PLACES: usize = PARTS;

    /// The number of routes.
    pub(crate) fn len(&self) -> usize {
        self.parts.iter().map(PrefixTable::len).sum()
    }

    /// The part of a route.
    fn part(&self, prefix: Prefix<V6>) -> usize {
        match self.parts.len() {
            1 => 0,
            _ => (self.hasher.hash_one(prefix) >> 56) as usize,
        }
    }

    /// The target of the route at exactly `prefix`.
    pub(crate) fn get(&self, prefix: Prefix<V6>) -> Option<Target> {
        self.parts[self.part(prefix)].get(prefix).copied()
    }

    /// Puts a route and returns the target of the one that it replaced.
    pub(crate) fn insert(&mut self, prefix: Prefix<V6>, target: Target) -> Option<Target> {
        if self.parts.len() == 1 && self.parts[0].len() >= SPLIT_THRESHOLD {
            self.cut(PARTS);
        }
        let part = self.part(prefix);
        self.parts[part].insert(prefix, target)
    }

    /// Removes the route at exactly `prefix` and returns its target.
    pub(crate) fn remove(&mut self, prefix: Prefix<V6>) -> Option<Target> {
        let part = self.part(prefix);
        self.parts[part].remove(prefix)
    }

    /// Divides it into so many parts.
    fn cut(&mut self, parts: usize) {
        let old = std::mem::take(&mut self.parts);
        self.parts.resize_with(parts, PrefixTable::default);
        for (prefix, target) in old.iter().flat_map(PrefixTable::iter) {
            let part = self.part(prefix);
            self.parts[part].insert(prefix, *target);
        }
    }

    /// Shrinks every table to its contents. O(capacity).
    pub(crate) fn shrink_to_fit(&mut self) {
        if self.parts.len() > 1 && self.len() < JOIN_THRESHOLD {
            self.cut(1);
        }
        self.parts.iter_mut().for_each(PrefixTable::shrink_to_fit);
    }

    /// The longest route that holds `addr`.
    pub(crate) fn lookup(&self, addr: IpAddr) -> Option<(Prefix<V6>, Target)> {
        let host = Prefix::<V6>::host(addr)?;
        (0..=V6::WIDTH).rev().map(|len| host.truncate(len)).find_map(|at| Some((at, self.get(at)?)))
    }

    /// Every route, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Prefix<V6>, Target)> {
        self.parts.iter().flat_map(PrefixTable::iter).map(|(prefix, target)| (prefix, *target))
    }

    /// Continues a walk at a place; returns the next place: [`Parts::PLACES`] after the last.
    pub(crate) fn walk(&self, mut place: usize, walk: &mut Walk) -> usize {
        let places = PARTS / self.parts.len();
        while place < PARTS && walk.goes_on() {
            let part = place / places;
            self.parts[part].iter().for_each(|(prefix, _)| walk.meets(prefix.any()));
            place = (part + 1) * places;
        }
        place
    }

    /// Bytes of memory.
    pub(crate) fn allocation_size(&self) -> usize {
        self.parts.iter().map(PrefixTable::allocation_size).sum::<usize>() + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(n: u32) -> Prefix<V6> {
        let addr = u128::from(0x2a00_0000_u32 | n >> 8) << 96 | u128::from(n & 255) << 80;
        Prefix::new(addr.to_be_bytes(), 48)
    }

    #[test]
    fn a_table_is_cut_and_put_together_again() {
        let mut table = Parts::default();
        let before = table.allocation_size();
        let many = SPLIT_THRESHOLD as u32 * 2;
        assert!((0..many).all(|n| table.insert(prefix(n), n).is_none()));
        assert!(table.parts.len() == PARTS && table.parts.iter().all(|part| (64..256).contains(&part.len())));
        assert_eq!(table.insert(prefix(7), 8), Some(7));
        assert!((8..many).all(|n| table.get(prefix(n)) == Some(n)));
        let all: std::collections::BTreeMap<_, _> = table.iter().collect();
        assert_eq!((all.len(), table.len()), (many as usize, many as usize));
        // The default route, and an address in none but it.
        table.insert(Prefix::default_route(), 1);
        let lookup = |text: &str| table.lookup(text.parse().unwrap()).map(|(at, target)| (at.len(), target));
        assert_eq!([lookup("2a00:0:100::1"), lookup("2a00:0:3:1::1")], [Some((0, 1)), Some((48, 3))]);
        assert_eq!(lookup("10.0.0.1"), None);
        let full = table.allocation_size();
        assert!((10..many).all(|n| table.remove(prefix(n)) == Some(n)));
        table.shrink_to_fit();
        assert!(table.parts.len() == 1 && table.allocation_size() < before + full / 20);
        assert!((8..10).all(|n| table.get(prefix(n)) == Some(n)) && table.len() == 11);
    }
}
