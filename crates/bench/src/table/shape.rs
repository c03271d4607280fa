//! The statistics of the internet's table: lengths, nesting and places of prefixes. From a full
//! feed of January 2024 (902,000 IPv4 and 160,000 IPv6 prefixes) and the lengths of 2026.

use ribtide_prefix::{Family, Prefix};

/// The most prefixes of one family that a table can have. At four times the internet's table, the shape's
/// shares still fit the address space that each length has.
pub const MAX_PREFIXES: u32 = 4_000_000;

/// Where the prefixes of a family lie, and how long they are.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Length and its share of all prefixes in thousandths of a percent, shortest first.
    pub lengths: &'static [(u8, u32)],
    /// Share of prefixes that directly follow another of the same length.
    pub adjacent: f64,
    /// Share of the others that lie inside a shorter one.
    pub nested: f64,
    /// Blocks that addresses are taken from, with the length of each.
    pub inside: &'static [(u128, u8)],
    /// Blocks inside those that no prefix may touch: private use, documentation, benchmarks (RFC 6890).
    pub outside: &'static [(u128, u8)],
    /// The first prefix of a table that has no shape: [`MAX_PREFIXES`] of them lie side by side from there.
    pub uniform: (u128, u8),
}

const V4_SHAPE: Shape = Shape {
    lengths: &[
        (8, 2),
        (9, 2),
        (10, 4),
        (11, 11),
        (12, 33),
        (13, 64),
        (14, 133),
        (15, 233),
        (16, 1500),
        (17, 900),
        (18, 1500),
        (19, 2800),
        (20, 4700),
        (21, 5600),
        (22, 12000),
        (23, 10700),
        (24, 59600),
    ],
    adjacent: 0.6,
    nested: 0.5,
    // 1.0.0.0 to 223.255.255.255, as halving blocks.
    inside: &[(v4(0, 0), 1), (v4(128, 0), 2), (v4(192, 0), 3)],
    outside: &[
        (v4(0, 0), 8),
        (v4(10, 0), 8),
        (v4(100, 64), 10),
        (v4(127, 0), 8),
        (v4(169, 254), 16),
        (v4(172, 16), 12),
        (v4(192, 0) | 2 << 104, 24),
        (v4(192, 168), 16),
        (v4(198, 18), 15),
        (v4(198, 51) | 100 << 104, 24),
        (v4(203, 0) | 113 << 104, 24),
    ],
    uniform: (v4(11, 0), 24),
};

const V6_SHAPE: Shape = Shape {
    lengths: &[
        (20, 10),
        (24, 19),
        (26, 9),
        (28, 120),
        (29, 2700),
        (30, 410),
        (31, 180),
        (32, 14100),
        (33, 1830),
        (34, 1630),
        (35, 650),
        (36, 3700),
        (37, 550),
        (38, 1010),
        (39, 860),
        (40, 8400),
        (41, 560),
        (42, 1440),
        (43, 630),
        (44, 9000),
        (45, 970),
        (46, 1900),
        (47, 2000),
        (48, 47100),
    ],
    adjacent: 0.55,
    nested: 0.55,
    // The registries' blocks, all in 2000::/3.
    inside: &[
        (v6(0x2001, 0), 16),
        (v6(0x2400, 0), 12),
        (v6(0x2600, 0), 12),
        (v6(0x2800, 0), 12),
        (v6(0x2a00, 0), 12),
        (v6(0x2c00, 0), 12),
    ],
    // Special purposes and documentation.
    outside: &[(v6(0x2001, 0), 23), (v6(0x2001, 0x0db8), 32)],
    uniform: (v6(0x2a00, 0), 48),
};

impl Shape {
    /// The shape of family `F`.
    pub fn of<F: Family>() -> &'static Shape {
        if F::WIDTH == 32 { &V4_SHAPE } else { &V6_SHAPE }
    }

    /// Whether `prefix` touches no block that is kept out and lies in one that is in use.
    pub fn admits<F: Family>(&self, prefix: Prefix<F>) -> bool {
        let block = |(bits, len): &(u128, u8)| Prefix::<F>::new(ribtide_prefix::Bits::from_left(*bits), *len);
        self.inside.iter().any(|b| block(b).covers(prefix))
            && !self.outside.iter().any(|b| block(b).covers(prefix) || prefix.covers(block(b)))
    }

    /// How many prefixes of each length a table of `count` has. Shares are rounded so that the sum is exact, and
    /// what a short length has no room for goes to the next longer one.
    pub(super) fn quotas(&self, count: usize) -> Vec<(u8, usize)> {
        let total: u32 = self.lengths.iter().map(|(_, share)| share).sum();
        let (mut shares, mut given) = (0, 0);
        let mut spill = 0;
        self.lengths
            .iter()
            .map(|(len, share)| {
                shares += share;
                let upto = (count as u128 * u128::from(shares) / u128::from(total)) as usize;
                let requested = upto - given + spill;
                given = upto;
                let granted = requested.min(self.room(*len));
                spill = requested - granted;
                (*len, granted)
            })
            .collect()
    }

    /// Prefixes of `len` to place, at most: a third of all that fit, so that a free one is soon
    /// found.
    fn room(&self, len: u8) -> usize {
        let fit = |blocks: &[(u128, u8)]| -> u128 {
            blocks.iter().map(|(_, block)| 1u128 << len.saturating_sub(*block).min(100)).sum()
        };
        (fit(self.inside).saturating_sub(fit(self.outside)) / 3).min(usize::MAX as u128) as usize
    }
}

const fn v4(a: u8, b: u8) -> u128 {
    ((a as u128) << 120) | ((b as u128) << 112)
}

const fn v6(a: u16, b: u16) -> u128 {
    ((a as u128) << 112) | ((b as u128) << 96)
}
