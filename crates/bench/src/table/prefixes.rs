//! Places distinct prefixes in the address space, side by side and nested as real ones are.

use super::Shape;
use ribtide_prefix::{Bits, Family, Prefix, Rng, Set};

/// `count` distinct prefixes, shortest first.
///
/// Shorter lengths are placed first, so that any placed prefix of a shorter length can hold the next.
pub(super) fn generate<F: Family>(rng: &mut Rng, count: usize) -> Vec<Prefix<F>> {
    let shape = Shape::of::<F>();
    let mut placed: Vec<Prefix<F>> = Vec::with_capacity(count);
    let mut taken: Set<Prefix<F>> = Set::with_capacity_and_hasher(count, Default::default());
    let mut lengths = Vec::new();
    for (len, quota) in shape.quotas(count) {
        let shorter = placed.len();
        let mut last = None;
        for _ in 0..quota {
            let free = |prefix: &Prefix<F>| shape.admits(*prefix) && !taken.contains(prefix);
            let covered =
                |prefix: Prefix<F>| lengths.iter().any(|len| taken.contains(&prefix.truncate(*len)));
            let adjacent = last.filter(|_| rng.chance(shape.adjacent)).and_then(next_of::<F>).filter(free);
            let prefix = adjacent.unwrap_or_else(|| {
                let mut nested = shorter > 0 && rng.chance(shape.nested);
                let mut attempts = 0;
                loop {
                    attempts += 1;
                    // Prefixes to nest in may be full, and a full table leaves little uncovered
                    // space. So neither is required.
                    if attempts > ATTEMPTS {
                        nested = shorter > 0 && rng.chance(shape.nested);
                    }
                    let (bits, block) = if nested {
                        let parent = placed[rng.below(shorter as u64) as usize];
                        (parent.bits().left(), parent.len())
                    } else {
                        pick_block(rng, shape)
                    };
                    let prefix = inside(rng, bits, block, len);
                    let fits = nested || attempts > ATTEMPTS || !covered(prefix);
                    if fits && free(&prefix) {
                        break prefix;
                    }
                }
            });
            taken.insert(prefix);
            placed.push(prefix);
            last = Some(prefix);
        }
        lengths.push(len);
    }
    placed
}

/// `count` prefixes of the most frequent length, one after the other.
pub(super) fn uniform<F: Family>(count: u32) -> Vec<Prefix<F>> {
    let (first, len) = Shape::of::<F>().uniform;
    std::iter::successors(Some(Prefix::new(F::Bits::from_left(first), len)), |prefix| next_of(*prefix))
        .take(count as usize)
        .collect()
}

/// Attempts at a nested or an uncovered place before any place is accepted.
const ATTEMPTS: u32 = 16;

/// The prefix of the same length directly after; none after the last.
fn next_of<F: Family>(prefix: Prefix<F>) -> Option<Prefix<F>> {
    let step = 1u128.checked_shl(128 - u32::from(prefix.len()))?;
    Some(Prefix::new(F::Bits::from_left(prefix.bits().left().checked_add(step)?), prefix.len()))
}

/// A random prefix of `len` bits inside a block.
fn inside<F: Family>(rng: &mut Rng, bits: u128, block: u8, len: u8) -> Prefix<F> {
    let random = u128::from(rng.next_u64()) << 64;
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
