//! The comparison of two sets of names by sums.

use ribtide_prefix::HashBuilder;
use std::hash::BuildHasher;

/// Sums of a balance: 128 KiB, and 61 names each of a million.
const SUMS: usize = 1 << 14;

/// Compares the names of a database with those of a stage, in whatever order either comes, without
/// keeping them: hashes of the one are subtracted from sums, of the other added.
///
/// Equal sets leave every sum at zero. A sum that is zero of different sets needs a chance of one in
/// 2^64, and the hash has another seed in each round. A name that was created or deleted in between, or
/// came twice, makes its sum uneven: that is no difference yet.
pub(super) struct NameBalance {
    sums: Vec<u64>,
    hasher: HashBuilder,
}

impl Default for NameBalance {
    fn default() -> Self {
        NameBalance { sums: vec![0; SUMS], hasher: HashBuilder::default() }
    }
}

impl NameBalance {
    /// The part of a name in its sum.
    pub(super) fn hash(&self, name: &str) -> u64 {
        self.hasher.hash_one(name)
    }

    /// Takes in names of the stage by their hashes. The sums are seldom in the cache; many names at a
    /// time wait for the memory together.
    pub(super) fn add(&mut self, hashes: impl Iterator<Item = u64>) {
        for hash in hashes {
            self.sums.get_mut(place(hash)).into_iter().for_each(|sum| *sum = sum.wrapping_add(hash));
        }
    }

    /// Takes in names of the database by their hashes, as [`NameBalance::add`].
    pub(super) fn subtract(&mut self, hashes: impl Iterator<Item = u64>) {
        for hash in hashes {
            self.sums.get_mut(place(hash)).into_iter().for_each(|sum| *sum = sum.wrapping_sub(hash));
        }
    }

    /// Whether the sum of a name is not zero.
    pub(super) fn is_uneven(&self, name: &str) -> bool {
        self.sums.get(place(self.hash(name))).is_some_and(|sum| *sum != 0)
    }

    /// Whether every sum is zero.
    pub(super) fn is_even(&self) -> bool {
        self.sums.iter().all(|sum| *sum == 0)
    }
}

/// The sum of a hash.
fn place(hash: u64) -> usize {
    (hash >> 32) as usize % SUMS
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_prefix::Rng;

    #[test]
    fn balance_of_equal_sets_is_even_and_every_other_name_is_uneven() {
        let mut rng = Rng::new(1);
        for extra in [0, 1, 7] {
            let name = |n: u64| format!("TABLE:{n}");
            let mut balance = NameBalance::default();
            let mut of_stage: Vec<u64> = (0..30_000).collect();
            rng.shuffle(&mut of_stage);
            let lost: Vec<u64> = of_stage.drain(..extra).collect();
            let hash = |balance: &NameBalance, n: u64| balance.hash(&name(n));
            let hashes: Vec<u64> = (0..30_000).map(|n| hash(&balance, n)).collect();
            balance.subtract(hashes.into_iter());
            let hashes: Vec<u64> = of_stage.iter().map(|n| hash(&balance, *n)).collect();
            balance.add(hashes.into_iter());
            assert_eq!(balance.is_even(), extra == 0);
            assert!(lost.iter().all(|n| balance.is_uneven(&name(*n))));
            // Names of the same sums are few.
            let suspects = (0..30_000).filter(|n| balance.is_uneven(&name(*n))).count();
            assert!(suspects <= extra * 30, "{suspects} suspects for {extra} names");
        }
    }

    #[test]
    fn name_that_comes_twice_is_uneven() {
        let mut balance = NameBalance::default();
        let [a, b] = ["a", "b"].map(|name| balance.hash(name));
        balance.subtract([a, b, a].into_iter());
        balance.add([b, a].into_iter());
        assert!(!balance.is_even() && balance.is_uneven("a"));
    }
}
