//! The value of AIGP, the accumulated IGP metric (RFC 7311).

/// The type of the AIGP TLV (RFC 7311 section 3).
const METRIC: u8 = 1;
/// Bytes of type and length, which the length counts.
const HEADER: usize = 3;

/// The metric: that of the first AIGP TLV (RFC 7311 section 3). `None` without one.
pub fn metric(value: &[u8]) -> Option<u64> {
    let at = place(value)?;
    value.get(at..)?.first_chunk().map(|metric| u64::from_be_bytes(*metric))
}

/// The value with another metric. Its other TLVs stay; without an AIGP TLV, the value does.
pub fn with_metric(value: &[u8], metric: u64) -> Vec<u8> {
    let mut value = value.to_vec();
    if let Some(to) = place(&value).and_then(|at| value.get_mut(at..)?.first_chunk_mut()) {
        *to = metric.to_be_bytes();
    }
    value
}

/// A value of this metric alone.
pub fn value(metric: u64) -> [u8; 11] {
    let [a, b, c, d, e, f, g, h] = metric.to_be_bytes();
    [METRIC, 0, 11, a, b, c, d, e, f, g, h]
}

/// Where the metric begins.
fn place(value: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(([kind, high, low], _)) = value.get(at..)?.split_first_chunk::<HEADER>() {
        if *kind == METRIC {
            return Some(at + HEADER);
        }
        at += usize::from(u16::from_be_bytes([*high, *low])).max(HEADER);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metric_is_that_of_the_first_aigp_tlv_and_the_other_tlvs_stay() {
        let other = [9, 0, 4, 7];
        let both = [&other[..], &value(5), &value(6), &other].concat();
        assert_eq!((metric(&value(5)), metric(&both)), (Some(5), Some(5)));
        let changed = [&other[..], &value(1 << 40), &value(6), &other].concat();
        assert_eq!(with_metric(&both, 1 << 40), changed);
        assert_eq!((metric(&other), with_metric(&other, 1)), (None, other.to_vec()));
        for cut in [&[][..], &[1], &[1, 0, 11, 0], &[9, 0, 0], &[9, 255, 255]] {
            assert_eq!((metric(cut), with_metric(cut, 1)), (None, cut.to_vec()));
        }
    }
}
