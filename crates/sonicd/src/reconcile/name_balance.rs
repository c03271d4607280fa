//! Names of rows, and the comparison of two sets of them by sums.

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
    /// The sum of a name, and its part of it.
    fn place(&self, name: &str) -> (usize, u64) {
        let hash = self.hasher.hash_one(name);
        ((hash >> 32) as usize % SUMS, hash)
    }

    /// Takes in a name of the stage.
    pub(super) fn add(&mut self, name: &str) {
        let (at, hash) = self.place(name);
        self.sums.get_mut(at).into_iter().for_each(|sum| *sum = sum.wrapping_add(hash));
    }

    /// Takes in a name of the database.
    pub(super) fn subtract(&mut self, name: &str) {
        let (at, hash) = self.place(name);
        self.sums.get_mut(at).into_iter().for_each(|sum| *sum = sum.wrapping_sub(hash));
    }

    /// Whether the sum of a name is not zero.
    pub(super) fn is_uneven(&self, name: &str) -> bool {
        self.sums.get(self.place(name).0).is_some_and(|sum| *sum != 0)
    }

    /// Whether every sum is zero.
    pub(super) fn is_even(&self) -> bool {
        self.sums.iter().all(|sum| *sum == 0)
    }
}

/// Names, one behind the other in one buffer.
#[derive(Default)]
pub(crate) struct Names {
    text: String,
    ends: Vec<usize>,
}

impl Names {
    /// Removes all.
    pub(super) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// Appends the name that `write` appends.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut String)) {
        write(&mut self.text);
        self.ends.push(self.text.len());
    }

    /// Each name.
    pub(super) fn iter(&self) -> impl Iterator<Item = &str> {
        let begins = std::iter::once(0).chain(self.ends.iter().copied());
        begins.zip(&self.ends).map(|(begin, end)| self.text.get(begin..*end).unwrap_or_default())
    }
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
            (0..30_000).for_each(|n| balance.subtract(&name(n)));
            of_stage.iter().for_each(|n| balance.add(&name(*n)));
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
        ["a", "b", "a"].iter().for_each(|name| balance.subtract(name));
        ["b", "a"].iter().for_each(|name| balance.add(name));
        assert!(!balance.is_even() && balance.is_uneven("a"));
    }

    #[test]
    fn names_come_out_as_they_went_in() {
        let mut names = Names::default();
        for _ in 0..2 {
            names.clear();
            ["a", "", "bcd"].iter().for_each(|name| names.push(|out| out.push_str(name)));
            assert!(names.iter().eq(["a", "", "bcd"]));
        }
    }
}
