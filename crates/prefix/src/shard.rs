//! Which shard owns a prefix.
//!
//! The map from prefix to logical shard is fixed; the map from logical shard to thread is
//! configuration and may change at run time. A prefix is mapped by its address *block*:
//! neighbouring prefixes share UPDATEs, so an UPDATE touches few shards. Measured on a full-table
//! session, shards per UPDATE and imbalance at eight threads: single prefix 2.44 (0.6%), /20 1.89
//! (1.4%), /18 1.77 (2.4%), /16 1.69 (9%). Hence /18 for IPv4. IPv6 uses /32, the registries' unit
//! of allocation.

use crate::{BgpFamily, Bits, Prefix};

/// The number of logical shards.
pub const LOGICAL_SHARDS: u8 = 64;

/// A logical shard: 0 to [`LOGICAL_SHARDS`] − 1.
pub type LogicalShard = u8;

/// The logical shard that owns `prefix`.
#[inline]
pub fn logical_shard<F: BgpFamily>(prefix: Prefix<F>) -> LogicalShard {
    let block_bits = if F::WIDTH == 32 { 18 } else { 32 };
    // Prefixes shorter than a block keep their own address: they are few.
    let block = (prefix.bits().left() >> (128 - block_bits)) as u64;
    // Fibonacci hashing: the top bits of the product mix all bits of the block.
    (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as LogicalShard
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{V4, V6};

    #[test]
    fn a_block_stays_together_and_blocks_spread() {
        let a: Prefix<V4> = "10.1.0.0/24".parse().unwrap();
        let b: Prefix<V4> = "10.1.63.0/24".parse().unwrap();
        assert_eq!(logical_shard(a), logical_shard(b));
        let mut load = [0u32; LOGICAL_SHARDS as usize];
        for block in 0u32..1 << 14 {
            load[usize::from(logical_shard(Prefix::<V4>::new(block << 14, 24)))] += 1;
        }
        let (min, max) = (load.iter().min().unwrap(), load.iter().max().unwrap());
        assert!(*min > 200 && *max < 320, "uneven: {min}..{max} of 256");
        let six: Prefix<V6> = "2001:db8:1::/48".parse().unwrap();
        assert_eq!(logical_shard(six), logical_shard("2001:db8:2::/48".parse::<Prefix<V6>>().unwrap()));
    }
}
