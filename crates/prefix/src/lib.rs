//! Prefixes, address families as types, longest match, the prefix → shard function, the next hop
//! that BGP and the RIB manager exchange, zones of link-local addresses, and shared tools: hash maps, prefetching, seeded random numbers.
//!
//! Everything above this crate is generic over [`Family`], an address family, or over [`BgpFamily`], an AFI with
//! a SAFI; nothing is written twice for IPv4 and IPv6. A type that exists once per family is a *shape*
//! ([`PerFamily`], [`PerBgpFamily`]) held in [`Families`] or [`BgpFamilies`].
//!
//! Pure: no thread, socket, file, clock or unsafe.
#![forbid(unsafe_code)]

mod bgp_family;
mod family;
mod journal;
mod next_hop;
mod prefetch;
mod prefix;
mod rng;
mod shard;
mod sorted;
mod table;
pub mod zone;

pub use bgp_family::{
    AfiSafi, BgpFamilies, BgpFamily, ByFamily, FamilySet, PerBgpFamily, Safi, V4Multicast, V6Multicast,
};
pub use family::{Afi, Bits, Families, Family, PerFamily, V4, V6};
pub use journal::Journal;
pub use next_hop::TrackedNextHop;
pub use prefetch::{PREFETCH_BATCH, prefetch};
pub use prefix::{AnyPrefix, ParsePrefixError, Prefix};
pub use rng::Rng;
pub use shard::{LOGICAL_SHARDS, LogicalShard, logical_shard};
pub use sorted::SortedMap;
pub use table::PrefixTable;

/// Hashing for keys that peers choose: fast, and seeded per process against chosen collisions.
#[cfg(not(feature = "fixed-hash"))]
pub type HashBuilder = foldhash::fast::RandomState;
/// Hashing that is the same in every process, so that a run of the simulator can be repeated.
#[cfg(feature = "fixed-hash")]
pub type HashBuilder = foldhash::fast::FixedState;
/// The hash map used everywhere in ribtide.
pub type Map<K, V> = hashbrown::HashMap<K, V, HashBuilder>;
/// The hash set used everywhere in ribtide.
pub type Set<K> = hashbrown::HashSet<K, HashBuilder>;

/// Shrinks a map to twice its length when less than an eighth of it is in use. Call it after each
/// removal: moving an entry is amortized over several removals.
pub fn shrink_if_sparse<K: Eq + std::hash::Hash, V>(map: &mut Map<K, V>) {
    const KEPT_CAPACITY: usize = 64;
    if map.capacity() > KEPT_CAPACITY && map.len() * 8 < map.capacity() {
        map.shrink_to(map.len() * 2);
    }
}

/// Shrinks a map to its entries and a sixteenth more, so that a few changes do not rehash it.
/// O(capacity): call it only when the stage is idle. O(1) when there is nothing to free.
pub fn shrink_to_fit<K: Eq + std::hash::Hash, V>(map: &mut Map<K, V>) {
    map.shrink_to(with_spare(map.len()));
}

/// The capacity that [`shrink_to_fit`] keeps for `len` entries, for tables that are no [`Map`].
pub fn with_spare(len: usize) -> usize {
    len + len / 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shrink_to_fit_keeps_a_sixteenth_more() {
        let mut map: Map<u32, u32> = (0..300_000).map(|n| (n, n)).collect();
        let before = map.allocation_size();
        map.extend((300_000..500_000).map(|n| (n, n)));
        for n in 300_000..500_000 {
            map.remove(&n);
            shrink_if_sparse(&mut map);
        }
        let filled = map.allocation_size();
        assert!(filled > before * 3 / 2, "nothing else would do it");
        shrink_to_fit(&mut map);
        assert!(map.allocation_size() == before && (0..300_000).all(|n| map[&n] == n));
        // 458,752 entries fill that size; a few more would rehash.
        map.extend((300_000..458_753).map(|n| (n, n)));
        map.remove(&0);
        shrink_to_fit(&mut map);
        assert_eq!(map.allocation_size(), filled);
    }

    #[test]
    fn shrink_if_sparse_frees_memory_of_a_map_that_is_hardly_used() {
        let mut map: Map<u32, u32> = (0..100_000).map(|n| (n, n)).collect();
        let full = map.allocation_size();
        for n in 10..100_000 {
            map.remove(&n);
            shrink_if_sparse(&mut map);
        }
        assert!(map.allocation_size() * 100 < full && (0..10).all(|n| map[&n] == n));
    }
}
