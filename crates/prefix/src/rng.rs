//! The pseudo-random number generator of tests and tables. Its numbers are equal on every machine
//! and in every release, so it is not a dependency's. Not for secrets.

/// SplitMix64 (Steele, Lea and Flood, 2014): equidistributed, and any value is a good seed.
///
/// Seeds identify generated tables, simulated histories and test runs. So the numbers of every
/// function are fixed for ever, and two reductions exist: [`Rng::below`] and [`Rng::index`].
#[derive(Clone, Debug, Default)]
pub struct Rng(u64);

impl Rng {
    /// The generator of a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The generator of one purpose (`parts`) of a seed: purposes draw independent numbers.
    pub fn of_purpose(seed: u64, parts: &[u64]) -> Rng {
        Rng(parts.iter().fold(mix(seed ^ 0x7269_6274_6964_6521), |state, part| mix(state ^ mix(*part))))
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`, which is not 0, by multiplication. The bias is below `n` / 2⁶⁴.
    pub fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(n)) >> 64) as u64
    }

    /// An index below `len`, which is not 0, by remainder. The bias is below `len` / 2⁶⁴.
    pub fn index(&mut self, len: usize) -> usize {
        (self.next_u64() % len as u64) as usize
    }

    /// True once in `n` times, by [`Rng::index`].
    pub fn one_in(&mut self, n: usize) -> bool {
        self.index(n) == 0
    }

    /// True with probability `p`.
    pub fn chance(&mut self, p: f64) -> bool {
        self.unit() < p
    }

    /// A number from 0 up to but not including 1.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The number of trials up to the first success, at least 1, with an average of `mean`.
    pub fn geometric(&mut self, mean: f64) -> usize {
        if mean <= 1.0 {
            return 1;
        }
        1 + ((1.0 - self.unit()).ln() / (1.0 - 1.0 / mean).ln()) as usize
    }

    /// One of `choices`, of which there is at least one, by [`Rng::index`].
    pub fn pick<'a, T>(&mut self, choices: &'a [T]) -> &'a T {
        &choices[self.index(choices.len())]
    }

    /// `value` once in `n` times, by [`Rng::index`].
    pub fn maybe<T>(&mut self, n: usize, value: impl FnOnce(&mut Rng) -> T) -> Option<T> {
        self.one_in(n).then(|| value(self))
    }

    /// Puts `items` into a random order (Fisher and Yates), by [`Rng::below`].
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }
}

/// SplitMix64's finalizer.
fn mix(mut n: u64) -> u64 {
    n = (n ^ (n >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    n = (n ^ (n >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ (n >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_seed_never_change() {
        let mut rng = Rng::of_purpose(1, &[2, 3]);
        let again: Vec<u64> = (0..3).map(|_| rng.next_u64()).collect();
        assert_eq!(again, FIRST);
        assert_ne!(Rng::of_purpose(1, &[3, 2]).next_u64(), FIRST[0]);
        // The first number of seed 0 in the reference implementation (Vigna, `splitmix64.c`).
        assert_eq!(Rng::new(0).next_u64(), 0xe220_a839_7b1d_cdaf);
    }
    const FIRST: [u64; 3] =
        [15_480_884_559_253_714_445, 15_186_936_340_837_812_291, 14_535_877_361_304_366_042];

    #[test]
    fn reductions_of_a_number_never_change() {
        assert_eq!(Rng::new(0).below(1000), 883);
        assert_eq!(Rng::new(0).index(1000), 0xe220_a839_7b1d_cdaf_u64 as usize % 1000);
    }

    #[test]
    fn means_are_as_asked() {
        let mut rng = Rng::of_purpose(7, &[]);
        let n = 100_000;
        let mean = |total: usize| total as f64 / f64::from(n);
        assert!((mean((0..n).map(|_| rng.geometric(2.5)).sum()) - 2.5).abs() < 0.05);
        assert!((mean((0..n).map(|_| rng.below(11) as usize).sum()) - 5.0).abs() < 0.05);
        assert!((mean((0..n).map(|_| rng.index(11)).sum()) - 5.0).abs() < 0.05);
        assert!((mean((0..n).map(|_| usize::from(rng.chance(0.3))).sum()) - 0.3).abs() < 0.01);
    }
}
