//! Shares of traffic by link bandwidth (RFC 10005): in proportion, when every path has one.
//!
//! Otherwise all paths have the same share, because a guess could overload a link. Shares are small
//! whole numbers without a common factor, so that equal bandwidths are like none, and equal ratios
//! are one set. Every dataplane supports the largest.

use smallvec::SmallVec;

/// The largest share: the kernel's limit of a next hop's weight.
pub const SHARES: u16 = 256;

/// The share of each path with these bandwidths, in bytes per second, finite and not negative.
/// Bandwidths below the least share count as the least.
pub fn shares(bandwidths: impl Iterator<Item = Option<f32>>) -> SmallVec<[u16; 8]> {
    let known: SmallVec<[Option<f32>; 8]> = bandwidths.collect();
    let largest = known.iter().try_fold(0_f32, |largest, bandwidth| Some(largest.max((*bandwidth)?)));
    let Some(largest) = largest.filter(|largest| *largest > 0.0) else {
        return SmallVec::from_elem(1, known.len());
    };
    let share = |bandwidth: f32| (bandwidth / largest * f32::from(SHARES)).round().max(1.0) as u16;
    let mut shares: SmallVec<[u16; 8]> = known.iter().flatten().map(|bandwidth| share(*bandwidth)).collect();
    let factor = shares.iter().copied().reduce(common_factor).unwrap_or(1);
    shares.iter_mut().for_each(|share| *share /= factor);
    shares
}

/// The greatest common divisor (Euclid).
fn common_factor(a: u16, b: u16) -> u16 {
    if b == 0 { a } else { common_factor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(bandwidths: &[Option<f32>]) -> Vec<u16> {
        shares(bandwidths.iter().copied()).to_vec()
    }

    #[test]
    fn traffic_is_shared_in_proportion_when_all_have_a_bandwidth() {
        let gigabit = 1.25e8;
        assert_eq!(of(&[Some(10.0 * gigabit), Some(40.0 * gigabit)]), [1, 4]);
        assert_eq!(of(&[Some(gigabit), Some(gigabit), Some(gigabit)]), [1, 1, 1]);
        assert_eq!(of(&[Some(3.0), Some(2.0), Some(1.0)]), [256, 171, 85], "rounded");
        assert_eq!(of(&[Some(gigabit), None]), [1, 1]);
        assert_eq!(of(&[None, None]), [1, 1]);
        assert_eq!(of(&[Some(gigabit)]), [1]);
        assert_eq!(of(&[]), [0; 0]);
    }

    #[test]
    fn nothing_is_the_least_share_and_all_nothing_is_alike() {
        assert_eq!(of(&[Some(0.0), Some(1e9)]), [1, 256]);
        assert_eq!(of(&[Some(0.0), Some(0.0)]), [1, 1]);
        assert_eq!(of(&[Some(f32::MIN_POSITIVE), Some(f32::MAX)]), [1, 256]);
    }
}
