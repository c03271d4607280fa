//! A logical shard in two parts: one that has moved to another shard, and one that has still to.
//!
//! A logical shard of a full table has too many paths for one stop, so it moves part by part, with routes flowing in between.
//! Prefixes move in the order of the tables, family by family, by the hash that sorts their entries. A part is thus a range of hashes,
//! and a sender finds the part of a prefix without a look-up. All shards and readers hash with one random seed, so that no peer
//! can choose prefixes that all fall into one part.

use super::route;
use super::table::Seed;
use ribtide_prefix::{AfiSafi, BgpFamily, LogicalShard, Prefix};

/// What a router's shards hash prefixes with.
#[derive(Clone, Debug)]
pub struct HashSeed(pub(super) Seed);

impl HashSeed {
    /// Another one in each process.
    pub fn random() -> HashSeed {
        HashSeed(Seed::random())
    }

    /// The same one in every process: for simulations, which can then be repeated.
    pub fn fixed() -> HashSeed {
        HashSeed(Seed::fixed())
    }
}

/// A place between the prefixes of a logical shard.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cut(u64);

impl Cut {
    /// Before all of them.
    pub const START: Cut = Cut(0);
    /// Behind all of them.
    pub const END: Cut = Cut((AfiSafi::COUNT as u64) << 32);

    fn base<F: BgpFamily>() -> u64 {
        (F::ID as u64) << 32
    }

    /// Before the entries of a family with this hash, or behind its last one.
    pub(super) fn before<F: BgpFamily>(hash: Option<u32>) -> Cut {
        Cut(Cut::base::<F>() + hash.map_or(1 << 32, u64::from))
    }

    /// The hash of a family's entries from which on they stand behind it; `None` if none does.
    pub(super) fn hash<F: BgpFamily>(self) -> Option<u32> {
        let base = Cut::base::<F>();
        if self.0 < base { Some(0) } else { u32::try_from(self.0 - base).ok() }
    }
}

/// A logical shard that is moving.
#[derive(Clone, Debug)]
pub struct Split {
    /// Which.
    pub logical: LogicalShard,
    /// How far: what stands before it has moved.
    pub cut: Cut,
    /// The number of the shard that it moves to. That of the other is in the map.
    pub taker: u16,
    /// What both shards hash with.
    pub seed: HashSeed,
}

impl Split {
    /// Whether a prefix of this logical shard has moved.
    pub fn has_moved<F: BgpFamily>(&self, prefix: Prefix<F>) -> bool {
        Cut::before::<F>(Some(route::hash(prefix, &self.seed.0))) < self.cut
    }
}
