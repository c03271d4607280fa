//! Numbers and ranges of numbers as operators write them, and sets of them.

use std::fmt;
use std::str::FromStr;

/// All numbers from the first to the last. The text is `65001`, `64512-65534`, `5-` for 5 and more, or `*` for all.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Numbers {
    /// The lowest.
    pub first: u32,
    /// The highest.
    pub last: u32,
}

impl Numbers {
    /// All of them.
    pub const ALL: Numbers = Numbers { first: 0, last: u32::MAX };

    /// That number alone.
    pub fn one(n: u32) -> Numbers {
        Numbers { first: n, last: n }
    }

    /// Whether `n` is among them.
    pub fn has(self, n: u32) -> bool {
        (self.first..=self.last).contains(&n)
    }
}

impl FromStr for Numbers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Numbers::ALL);
        }
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let last = if last.is_empty() { Some(u32::MAX) } else { decimal(last) };
        match (decimal(first), last) {
            (Some(first), Some(last)) if first <= last => Ok(Numbers { first, last }),
            _ => Err(format!(
                "\"{text}\" is no number; write one such as 65001, or a range such as 64512-65534"
            )),
        }
    }
}

/// A decimal number without sign.
pub(crate) fn decimal(text: &str) -> Option<u32> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl fmt::Display for Numbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Numbers::ALL => f.write_str("*"),
            Numbers { first, last } if first == last => write!(f, "{first}"),
            Numbers { first, last: u32::MAX } => write!(f, "{first}-"),
            Numbers { first, last } => write!(f, "{first}-{last}"),
        }
    }
}

/// A set of numbers, such as of ASes, found by binary search.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct NumberSet {
    /// In order, none touching the next.
    ranges: Box<[Numbers]>,
}

impl NumberSet {
    /// Whether `n` is in the set.
    pub fn has(&self, n: u32) -> bool {
        let at = self.ranges.partition_point(|r| r.last < n);
        self.ranges.get(at).is_some_and(|r| r.has(n))
    }

    /// Whether no number is.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }
}

impl FromIterator<Numbers> for NumberSet {
    fn from_iter<I: IntoIterator<Item = Numbers>>(ranges: I) -> NumberSet {
        let mut sorted: Vec<Numbers> = ranges.into_iter().collect();
        sorted.sort_unstable();
        sorted.dedup_by(|next, kept| {
            let touches = next.first <= kept.last.saturating_add(1);
            if touches {
                kept.last = kept.last.max(next.last);
            }
            touches
        });
        NumberSet { ranges: sorted.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts() {
        for text in ["65001", "64512-65534", "5-", "*", "0", "4294967295"] {
            assert_eq!(text.parse::<Numbers>().unwrap().to_string(), text);
        }
        for wrong in ["", "-", "5-4", "+1", "-1", "4294967296", "1-2-3", "**"] {
            assert!(wrong.parse::<Numbers>().is_err(), "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn a_set_is_its_list(ranges in prop::collection::vec((0..60u32, 0..8u32), 0..12), high: bool) {
            let base = if high { u32::MAX - 70 } else { 0 };
            let ranges: Vec<_> =
                ranges.into_iter().map(|(a, n)| Numbers { first: base + a, last: base + a + n }).collect();
            let set: NumberSet = ranges.iter().copied().collect();
            for n in (base..=base + 70).chain([0, u32::MAX]) {
                prop_assert_eq!(set.has(n), ranges.iter().any(|r| r.has(n)));
            }
        }
    }
}
