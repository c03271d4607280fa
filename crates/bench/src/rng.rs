//! Seeded numbers that stay the same for ever: a table named by its seed must be the same table on every machine,
//! in every release, so no generator from a dependency is used.

/// SplitMix64: one addition and one mix a number, equidistributed, and any value is a good seed.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator of its own for each purpose (`parts`) of one seed.
    pub(crate) fn new(seed: u64, parts: &[u64]) -> Rng {
        Rng(parts.iter().fold(mix(seed ^ 0x7269_6274_6964_6521), |state, part| mix(state ^ mix(*part))))
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, which is not zero. The bias is below 2⁻³² for every `n` used here.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }

    /// True once in `1 / p` times.
    pub(crate) fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A number from 0 up to but not including 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// How many trials up to and including the first success, when `mean` are needed on average: at least 1.
    pub(crate) fn geometric(&mut self, mean: f64) -> usize {
        if mean <= 1.0 {
            return 1;
        }
        1 + ((1.0 - self.unit()).ln() / (1.0 - 1.0 / mean).ln()) as usize
    }

    /// Puts `items` into an order of this generator's choice (Fisher and Yates).
    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

fn mix(mut n: u64) -> u64 {
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_a_seed_never_change() {
        let mut rng = Rng::new(1, &[2, 3]);
        let again: Vec<u64> = (0..3).map(|_| rng.next()).collect();
        assert_eq!(again, FIRST);
        assert_ne!(Rng::new(1, &[3, 2]).next(), FIRST[0]);
    }
    const FIRST: [u64; 3] =
        [15_480_884_559_253_714_445, 15_186_936_340_837_812_291, 14_535_877_361_304_366_042];

    #[test]
    fn means_are_as_asked() {
        let mut rng = Rng::new(7, &[]);
        let n = 100_000;
        let mean = |total: usize| total as f64 / f64::from(n);
        assert!((mean((0..n).map(|_| rng.geometric(2.5)).sum()) - 2.5).abs() < 0.05);
        assert!((mean((0..n).map(|_| rng.below(11) as usize).sum()) - 5.0).abs() < 0.05);
        assert!((mean((0..n).map(|_| usize::from(rng.chance(0.3))).sum()) - 0.3).abs() < 0.01);
    }
}
