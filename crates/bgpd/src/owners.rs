//! The shard threads, and which of them has which logical shard.
//!
//! A caller of shards holds the guard until it has its replies. So a query waits while a part of a
//! logical shard moves, and then finds every prefix where the map says.

use super::shard::ShardPort;
use ribtide_bgp::ingest::ShardMap;
use ribtide_bgp::shard::Split;
use ribtide_prefix::{BgpFamily, LOGICAL_SHARDS, LogicalShard, Prefix, logical_shard};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, TryLockError};

/// The shard threads and their logical shards.
pub struct Owners {
    /// The shards, by number.
    pub shards: Vec<ShardPort>,
    /// The number of the owner of each logical shard.
    pub map: ShardMap,
    /// The logical shard that moves between two shards, if any.
    pub split: Option<Split>,
}

impl Owners {
    /// A map that spreads logical shards evenly over `shards` threads.
    pub fn map(shards: usize) -> ShardMap {
        std::array::from_fn(|logical| (logical % shards) as u16)
    }

    /// A map as even as [`Owners::map`] over another number of threads, with as few moves as
    /// possible.
    pub fn remap(map: &ShardMap, shards: usize) -> ShardMap {
        let all = usize::from(LOGICAL_SHARDS);
        let mut has = vec![0; shards];
        let mut left = all % shards;
        let mut homeless = Vec::new();
        let mut to = *map;
        for (logical, owner) in map.iter().map(|owner| usize::from(*owner)).enumerate() {
            // Some threads have one more, if the number of threads is no divisor.
            let stays = match has.get(owner) {
                Some(n) if *n < all / shards => true,
                Some(n) if *n == all / shards && left > 0 => {
                    left -= 1;
                    true
                }
                _ => false,
            };
            if stays {
                has[owner] += 1;
            } else {
                homeless.push(logical);
            }
        }
        for logical in homeless {
            let least = (0..shards).min_by_key(|shard| has[*shard]).unwrap_or(0);
            has[least] += 1;
            to[logical] = least as u16;
        }
        to
    }

    /// The owner of a prefix, with its number.
    pub fn of<F: BgpFamily>(&self, prefix: Prefix<F>) -> Option<(usize, &ShardPort)> {
        let logical = logical_shard(prefix);
        let moved = self.split.as_ref().filter(|split| split.logical == logical && split.has_moved(prefix));
        let number = moved.map_or(self.map[usize::from(logical)], |split| split.taker);
        self.numbered(number)
    }

    /// The owners of a logical shard: one, or two while it moves.
    pub fn having(&self, logical: LogicalShard) -> impl Iterator<Item = (usize, &ShardPort)> {
        let taker = self.split.as_ref().filter(|split| split.logical == logical).map(|split| split.taker);
        let giver = self.map.get(usize::from(logical)).copied();
        giver.into_iter().chain(taker).filter_map(|number| self.numbered(number))
    }

    fn numbered(&self, number: u16) -> Option<(usize, &ShardPort)> {
        let number = usize::from(number);
        self.shards.get(number).map(|shard| (number, shard))
    }
}

/// The shared owners. Do not lock them again while a guard is held: a thread may wait to change
/// them.
pub struct Directory(RwLock<Owners>);

impl Directory {
    /// Starts with these owners.
    pub fn new(owners: Owners) -> Directory {
        Directory(RwLock::new(owners))
    }

    /// Locks the owners for reading. It waits while routes move, and no route moves while the guard
    /// exists.
    pub fn read(&self) -> RwLockReadGuard<'_, Owners> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Directory::read`], but `None` while routes move.
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, Owners>> {
        match self.0.try_read() {
            Ok(owners) => Some(owners),
            Err(TryLockError::Poisoned(owners)) => Some(owners.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    /// Locks the owners for a change.
    pub(super) fn write(&self) -> RwLockWriteGuard<'_, Owners> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_number_of_threads_is_evenly_loaded_and_nothing_moves_without_need() {
        for from in 1..=64 {
            for to in 1..=64 {
                let before = Owners::remap(&Owners::map(7), from);
                let after = Owners::remap(&before, to);
                let of = |shard: usize| after.iter().filter(|owner| usize::from(**owner) == shard).count();
                let loads: Vec<usize> = (0..to).map(of).collect();
                assert_eq!(loads.iter().sum::<usize>(), 64);
                assert!(
                    loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1,
                    "{from} to {to}: {loads:?}"
                );
                // An owner that stays keeps as many as it may.
                let had = |shard: usize| before.iter().filter(|owner| usize::from(**owner) == shard).count();
                let kept = (0..64).filter(|l| before[*l] == after[*l]).count();
                let could: usize = (0..from.min(to)).map(|shard| had(shard).min(64 / to)).sum();
                assert!(kept >= could, "{from} to {to}: {kept} stay, {could} could");
            }
        }
    }
}
