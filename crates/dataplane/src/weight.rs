//! Weights of next hops as forwarding planes take them.

/// A weight brought into 1 to 256, which is what netlink's 8 bits hold, where the largest of its group is
/// `largest`. Ratios are kept as well as 256 steps can.
pub(crate) fn fit_weight(weight: u16, largest: u16) -> u16 {
    let fit = if largest <= 256 { weight } else { (u32::from(weight) * 256 / u32::from(largest)) as u16 };
    fit.max(1)
}

#[cfg(test)]
mod tests {
    use super::fit_weight;

    #[test]
    fn weights_fit_and_keep_their_ratio() {
        assert_eq!([fit_weight(0, 3), fit_weight(3, 3), fit_weight(256, 256)], [1, 3, 256]);
        assert_eq!([fit_weight(1, 65535), fit_weight(32768, 65535), fit_weight(65535, 65535)], [1, 128, 256]);
    }
}
