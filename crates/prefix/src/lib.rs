//! Prefixes, address families as types, longest match, and the prefix → shard function.
//!
//! Everything above this crate is generic over [`Family`]; nothing is written twice for IPv4 and IPv6.
//! A type that exists once per family is a *shape* ([`PerFamily`]) held in [`Families`].
//!
//! Pure: no thread, socket, file, clock or unsafe.
#![forbid(unsafe_code)]

mod family;
mod prefix;
mod shard;
mod table;

pub use family::{Afi, Bits, Families, Family, PerFamily, Safi, V4, V6};
pub use prefix::{AnyPrefix, ParsePrefixError, Prefix};
pub use shard::{LOGICAL_SHARDS, LogicalShard, logical_shard};
pub use table::PrefixTable;

/// Hashing for maps keyed by what peers choose: fast, and seeded per process so that keys cannot be aimed.
pub type HashBuilder = foldhash::fast::RandomState;
/// The hash map used everywhere in ribtide.
pub type Map<K, V> = hashbrown::HashMap<K, V, HashBuilder>;
/// The hash set used everywhere in ribtide.
pub type Set<K> = hashbrown::HashSet<K, HashBuilder>;

/// Gives memory of a map back when hardly any of it is in use: to be called after a removal. Each entry that moves was paid
/// for by several removals.
pub fn relieve<K: Eq + std::hash::Hash, V>(map: &mut Map<K, V>) {
    const LITTLE: usize = 64;
    if map.capacity() > LITTLE && map.len() * 8 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_gives_memory_back_when_hardly_used() {
        let mut map: Map<u32, u32> = (0..100_000).map(|n| (n, n)).collect();
        let full = map.allocation_size();
        for n in 10..100_000 {
            map.remove(&n);
            relieve(&mut map);
        }
        assert!(map.allocation_size() * 100 < full && (0..10).all(|n| map[&n] == n));
    }
}
