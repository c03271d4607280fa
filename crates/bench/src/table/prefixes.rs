//! Places distinct prefixes in the address space so that they lie side by side and inside each other as real ones do.

use super::Shape;
use crate::rng::Rng;
use ribtide_prefix::{Bits, Family, Prefix, Set};

/// `count` distinct prefixes, shortest first.
///
/// Shorter lengths are placed first, so that any placed prefix of a shorter length can hold the next.
pub(super) fn generate<F: Family>(rng: &mut Rng, count: usize) -> Vec<Prefix<F>> {
    let shape = Shape::of::<F>();
    let mut placed: Vec<Prefix<F>> = Vec::with_capacity(count);
    let mut taken: Set<Prefix<F>> = Set::with_capacity_and_hasher(count, Default::default());
    for (len, quota) in shape.quotas(count) {
        let shorter = placed.len();
        let mut last = None;
        for _ in 0..quota {
            let prefix = loop {
                let adjacent = last.take().filter(|_| rng.chance(shape.adjacent)).and_then(next_of::<F>);
                let prefix = match adjacent {
                    Some(prefix) => prefix,
                    None if shorter > 0 && rng.chance(shape.nested) => {
                        let parent = placed[rng.below(shorter as u64) as usize];
                        inside(rng, parent.bits().left(), parent.len(), len)
                    }
                    None => {
                        let (bits, block) = pick_block(rng, shape);
                        inside(rng, bits, block, len)
                    }
                };
                if shape.admits(prefix) && taken.insert(prefix) {
                    break prefix;
                }
            };
            last = Some(prefix);
            placed.push(prefix);
        }
    }
    placed
}

/// The prefix of the same length directly after; none after the last.
fn next_of<F: Family>(prefix: Prefix<F>) -> Option<Prefix<F>> {
    let step = 1u128.checked_shl(128 - u32::from(prefix.len()))?;
    Some(Prefix::new(F::Bits::from_left(prefix.bits().left().checked_add(step)?), prefix.len()))
}

/// A random prefix of `len` bits inside a block.
fn inside<F: Family>(rng: &mut Rng, bits: u128, block: u8, len: u8) -> Prefix<F> {
    let random = u128::from(rng.next()) << 64;
    let host = random.checked_shr(u32::from(block)).unwrap_or(0);
    Prefix::new(F::Bits::from_left(bits | host), len)
}

/// One of the shape's blocks, larger ones more often.
fn pick_block(rng: &mut Rng, shape: &Shape) -> (u128, u8) {
    let longest = shape.inside.iter().map(|(_, len)| *len).max().unwrap_or(0);
    let weight = |len: u8| 1u64 << (longest - len);
    let mut at = rng.below(shape.inside.iter().map(|(_, len)| weight(*len)).sum());
    for block in shape.inside {
        match at.checked_sub(weight(block.1)) {
            Some(rest) => at = rest,
            None => return *block,
        }
    }
    shape.inside[0]
}
