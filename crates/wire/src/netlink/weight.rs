//! Weights in the range of netlink.

/// Scales a weight into 1 to 256, the range of the 8 bits of netlink. `largest` is the largest of
/// its group. Ratios are kept as well as 256 steps allow.
pub fn scale_weight(weight: u16, largest: u16) -> u16 {
    let fit = if largest <= 256 { weight } else { (u32::from(weight) * 256 / u32::from(largest)) as u16 };
    fit.max(1)
}

#[cfg(test)]
mod tests {
    use super::scale_weight;

    #[test]
    fn weights_fit_and_keep_their_ratio() {
        assert_eq!([scale_weight(0, 3), scale_weight(3, 3), scale_weight(256, 256)], [1, 3, 256]);
        assert_eq!(
            [scale_weight(1, 65535), scale_weight(32768, 65535), scale_weight(65535, 65535)],
            [1, 128, 256]
        );
    }
}
