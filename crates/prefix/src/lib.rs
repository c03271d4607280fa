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
