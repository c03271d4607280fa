//! Which shard threads there are, and which of them has which logical shard.
//!
//! Whoever asks shards holds the guard until it has its answers: while logical shards move, questions wait, and what a
//! question finds is where the map says.

use ribtide_bgp::ingest::ShardMap;
use ribtide_bgp::shard::Shard;
use ribtide_prefix::LogicalShard;
use ribtide_runtime::ask::Asker;
use std::sync::{PoisonError, RwLock, RwLockReadGuard};

/// The shard threads and what each has.
pub struct Owners {
    /// The shards, by number.
    pub shards: Vec<Asker<Shard>>,
    /// The number of the shard that has each logical shard.
    pub map: ShardMap,
}

impl Owners {
    /// Logical shards spread evenly over `shards` threads.
    pub fn map(shards: usize) -> ShardMap {
        std::array::from_fn(|logical| (logical % shards) as u16)
    }

    /// The shard that has a logical shard.
    pub fn of(&self, logical: LogicalShard) -> Option<&Asker<Shard>> {
        self.shards.get(self.index(logical)?)
    }

    /// Its number.
    pub fn index(&self, logical: LogicalShard) -> Option<usize> {
        self.map.get(usize::from(logical)).map(|index| usize::from(*index))
    }
}

/// The owners, as they are now. Do not read again while a guard is held: somebody may be waiting to change them.
pub struct Directory(RwLock<Owners>);

impl Directory {
    /// Begins with these.
    pub fn new(owners: Owners) -> Directory {
        Directory(RwLock::new(owners))
    }

    /// Waits while logical shards move, and keeps them where they are until the guard goes.
    pub fn read(&self) -> RwLockReadGuard<'_, Owners> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}
