//! Several runs of one measurement in three numbers.

use std::collections::{BTreeMap, BTreeSet};

/// Median, least and most.
#[derive(Clone, Copy, PartialEq, Debug, serde::Serialize)]
pub struct Spread {
    /// The middle value; of an even number of values, the mean of the two in the middle.
    pub median: f64,
    /// The least value.
    pub min: f64,
    /// The greatest value.
    pub max: f64,
}

impl Spread {
    /// The spread of `values`; `None` when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        let (min, max) = (*values.first()?, *values.last()?);
        let half = values.len() / 2;
        let median =
            if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 };
        Some(Spread { median, min, max })
    }

    /// As text: the median, and in parentheses the least and the most where they differ from it as shown.
    pub fn show(&self, show: impl Fn(f64) -> String) -> String {
        let [median, min, max] = [self.median, self.min, self.max].map(show);
        if min == median && max == median { median } else { format!("{median} ({min}..{max})") }
    }
}

/// The median for each name that any of the runs has; a run without it counts as zero.
pub fn medians(runs: &[&BTreeMap<String, f64>]) -> BTreeMap<String, f64> {
    let names: BTreeSet<&String> = runs.iter().flat_map(|run| run.keys()).collect();
    let median = |name: &String| {
        let values = runs.iter().map(|run| run.get(name).copied().unwrap_or(0.0));
        Some((name.clone(), Spread::of(values)?.median))
    };
    names.into_iter().filter_map(median).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_between_the_least_and_the_most() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, min: 1.0, max: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]), Some(Spread { median: 2.5, min: 1.0, max: 4.0 }));
        let show = |n: f64| format!("{n:.1}");
        assert_eq!(Spread::of([1.0, 2.0, 3.0]).map(|s| s.show(show)).as_deref(), Some("2.0 (1.0..3.0)"));
        assert_eq!(Spread::of([1.0, 1.01]).map(|s| s.show(show)).as_deref(), Some("1.0"));
    }
}
