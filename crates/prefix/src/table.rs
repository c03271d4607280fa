//! Prefix → value with exact access at the price of a hash look-up, and longest match at the price of one
//! look-up for each length in use.
//!
//! The routing tables are asked for exact prefixes millions of times a second and for longest matches only
//! where a next hop is resolved or a person asks. So the exact key is what is fast and small here; the table
//! that forwards packets is the chip's.

use crate::{Family, Map, Prefix};
use std::net::IpAddr;

/// A map from prefixes to `T` with longest match.
pub struct PrefixTable<F: Family, T> {
    map: Map<Prefix<F>, T>,
    /// How many prefixes there are of each length; only lengths in use are probed.
    lengths: [u32; 129],
}

impl<F: Family, T> Default for PrefixTable<F, T> {
    fn default() -> Self {
        PrefixTable { map: Map::default(), lengths: [0; 129] }
    }
}

impl<F: Family, T> PrefixTable<F, T> {
    /// How many prefixes it holds.
    pub fn len(&self) -> usize {
        self.map.len()
    }

    /// Whether it holds none.
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The value at exactly `prefix`.
    pub fn get(&self, prefix: Prefix<F>) -> Option<&T> {
        self.map.get(&prefix)
    }

    /// The value at exactly `prefix`, to change.
    pub fn get_mut(&mut self, prefix: Prefix<F>) -> Option<&mut T> {
        self.map.get_mut(&prefix)
    }

    /// Puts `value` at `prefix` and returns what it replaced.
    pub fn insert(&mut self, prefix: Prefix<F>, value: T) -> Option<T> {
        let old = self.map.insert(prefix, value);
        if old.is_none() {
            self.lengths[usize::from(prefix.len())] += 1;
        }
        old
    }

    /// The value at `prefix`, made by `make` when there is none.
    pub fn get_or_insert_with(&mut self, prefix: Prefix<F>, make: impl FnOnce() -> T) -> &mut T {
        let lengths = &mut self.lengths;
        self.map.entry(prefix).or_insert_with(|| {
            lengths[usize::from(prefix.len())] += 1;
            make()
        })
    }

    /// Removes and returns the value at `prefix`.
    pub fn remove(&mut self, prefix: Prefix<F>) -> Option<T> {
        let old = self.map.remove(&prefix);
        if old.is_some() {
            self.lengths[usize::from(prefix.len())] -= 1;
        }
        old
    }

    /// The most specific entry that holds `addr`.
    pub fn longest_match(&self, addr: IpAddr) -> Option<(Prefix<F>, &T)> {
        self.matches(addr).next()
    }

    /// Every entry that holds `addr`, most specific first; nothing for an address of the other family.
    pub fn matches(&self, addr: IpAddr) -> impl Iterator<Item = (Prefix<F>, &T)> {
        let host = Prefix::<F>::host(addr);
        host.into_iter().flat_map(move |host| {
            (0..=F::WIDTH).rev().filter(|len| self.lengths[usize::from(*len)] > 0).filter_map(move |len| {
                self.map.get_key_value(&host.truncate(len)).map(|(prefix, value)| (*prefix, value))
            })
        })
    }

    /// Every entry, in no order.
    pub fn iter(&self) -> impl Iterator<Item = (Prefix<F>, &T)> {
        self.map.iter().map(|(prefix, value)| (*prefix, value))
    }

    /// Every entry, in no order, values to change.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (Prefix<F>, &mut T)> {
        self.map.iter_mut().map(|(prefix, value)| (*prefix, value))
    }

    /// Bytes of memory that the table itself holds, without what values point to.
    pub fn allocation_size(&self) -> usize {
        self.map.allocation_size() + size_of::<Self>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::V4;

    #[test]
    fn longest_match_prefers_the_most_specific_and_forgets_what_was_removed() {
        let mut table = PrefixTable::<V4, &str>::default();
        for text in ["0.0.0.0/0", "10.0.0.0/8", "10.1.0.0/16", "10.1.1.1/32"] {
            assert!(table.insert(text.parse().unwrap(), text).is_none());
        }
        let ask =
            |t: &PrefixTable<V4, &'static str>, a: &str| *t.longest_match(a.parse().unwrap()).unwrap().1;
        assert_eq!(ask(&table, "10.1.1.1"), "10.1.1.1/32");
        assert_eq!(ask(&table, "10.1.1.2"), "10.1.0.0/16");
        assert_eq!(ask(&table, "192.0.2.1"), "0.0.0.0/0");
        assert_eq!(table.matches("10.1.1.1".parse().unwrap()).count(), 4);
        table.remove("10.1.0.0/16".parse().unwrap());
        assert_eq!(ask(&table, "10.1.1.2"), "10.0.0.0/8");
        assert!(table.longest_match("::1".parse().unwrap()).is_none());
        assert_eq!(table.len(), 3);
    }
}
