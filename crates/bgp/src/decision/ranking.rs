//! The order of succession among the paths of a prefix, for peers that get several of them (RFC 7911),
//! or the best that their export policy accepts (RFC 7947 section 2.3.2).

use super::{Candidate, Candidates, DecisionOptions, after_med, best};
use smallvec::SmallVec;
use std::cmp::Ordering;
use std::collections::BinaryHeap;

/// A usable path in the order of succession.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ranked {
    /// Its index among the paths.
    pub index: usize,
    /// Whether it is the best path or equals it up to the tie-breaking rules, as for
    /// [`multipath`](super::multipath).
    pub equal: bool,
}

/// A path with its index.
type Indexed<'a> = (usize, Candidate<'a>);

/// The usable paths from the best on: each is the best of itself and those after it. O(n log n).
///
/// Without [`DecisionOptions::deterministic_med`] that holds for the first alone, since the best of many
/// depends on their order; those after it are in the order that they have among themselves with that option.
pub fn ranked<C: Candidates + ?Sized>(paths: &C, options: &DecisionOptions) -> SmallVec<[Ranked; 8]> {
    let mut left: SmallVec<[Indexed<'_>; 8]> =
        (0..paths.count()).map(|i| (i, paths.at(i))).filter(|(_, path)| path.cost.is_ok()).collect();
    if left.len() < 2 {
        return left.iter().map(|(index, _)| Ranked { index: *index, equal: true }).collect();
    }
    let mut order: SmallVec<[(Indexed<'_>, bool); 8]> = SmallVec::with_capacity(left.len());
    if !options.deterministic_med
        && let Some(first) = best(paths, options)
        && let Some(at) = left.iter().position(|(index, _)| *index == first)
    {
        order.push((left.remove(at), true));
    }
    // Paths of one class whose MEDs may be compared stand together, in the order in which MED lets them
    // win: one after the other, since each stands in the way of those with a higher MED.
    left.sort_unstable_by(|a, b| {
        let places = [a.1, b.1]
            .map(|path| (path.class(), comparable_among(path.rank.neighbor_as, options), path.rank.med));
        places[0].cmp(&places[1]).then_with(|| succession(a, b, options))
    });
    left.chunk_by(|a, b| a.1.class() == b.1.class())
        .for_each(|class| append_class(class, options, &mut order));
    let winner = order[0].0.1;
    let equal = |path: &Candidate<'_>, lowest_med: bool| {
        let (rank, to_beat) = (&path.rank, &winner.rank);
        lowest_med
            && path.class() == winner.class()
            && path.cost == winner.cost
            && path.peer.feed_kind() == winner.peer.feed_kind()
            && (options.multipath_relax || rank.neighbor_as == to_beat.neighbor_as)
            && (rank.med == to_beat.med || !rank.comparable(to_beat, options))
    };
    let row = |(at, ((index, path), lowest_med)): (usize, &(Indexed<'_>, bool))| Ranked {
        index: *index,
        equal: at == 0 || equal(path, *lowest_med),
    };
    order.iter().enumerate().map(row).collect()
}

/// What the MEDs of paths are compared within.
fn comparable_among(neighbor_as: u32, options: &DecisionOptions) -> u32 {
    if options.always_compare_med { 0 } else { neighbor_as }
}

/// The rules after MED, then age: a total order.
fn succession(a: &Indexed<'_>, b: &Indexed<'_>, options: &DecisionOptions) -> Ordering {
    let order = match a.0 < b.0 {
        true => after_med(a.1, b.1, options).0,
        false => after_med(b.1, a.1, options).0.reverse(),
    };
    order.then(a.0.cmp(&b.0))
}

/// Appends the paths of one class in the order of succession, each with whether no path with a lower
/// comparable MED exists. `class` is sorted by what MEDs are compared within, then MED, then succession.
fn append_class<'a>(
    class: &[Indexed<'a>],
    options: &DecisionOptions,
    order: &mut SmallVec<[(Indexed<'a>, bool); 8]>,
) {
    let among = |path: &Indexed<'_>| comparable_among(path.1.rank.neighbor_as, options);
    let mut runs = class.chunk_by(|a, b| among(a) == among(b));
    let (first, second) = (runs.next().unwrap_or_default(), runs.next());
    let Some(second) = second else {
        let lowest = first.first().map(|path| path.1.rank.med);
        return order.extend(first.iter().map(|path| (*path, Some(path.1.rank.med) == lowest)));
    };
    let mut heads: BinaryHeap<Head<'_, 'a>> = [first, second]
        .into_iter()
        .chain(runs)
        .map(|run| Head { run, lowest: run[0].1.rank.med, options })
        .collect();
    while let Some(Head { run, lowest, .. }) = heads.pop() {
        let [path, rest @ ..] = run else { continue };
        order.push((*path, path.1.rank.med == lowest));
        if !rest.is_empty() {
            heads.push(Head { run: rest, lowest, options });
        }
    }
}

/// Paths whose MEDs are compared, never empty. The greatest has the preferred first path.
struct Head<'s, 'a> {
    run: &'s [Indexed<'a>],
    /// The lowest MED among them, those taken before included.
    lowest: u32,
    options: &'s DecisionOptions,
}

impl Ord for Head<'_, '_> {
    fn cmp(&self, other: &Self) -> Ordering {
        succession(&self.run[0], &other.run[0], self.options).reverse()
    }
}

impl PartialOrd for Head<'_, '_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head<'_, '_> {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head<'_, '_> {}

#[cfg(test)]
mod tests {
    use super::super::tests::{options, rows, with_candidates};
    use super::*;
    use crate::decision::multipath;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn each_ranked_path_is_the_best_of_itself_and_those_after_it(
            rows in rows(),
            options in options(),
            relax in any::<bool>(),
        ) {
            let options = DecisionOptions { multipath_relax: relax, ..options };
            with_candidates(&rows, |paths| {
                let order = ranked(paths, &options);
                let usable = paths.iter().filter(|path| path.cost.is_ok()).count();
                prop_assert_eq!(order.len(), usable);
                prop_assert_eq!(order.first().map(|first| first.index), best(paths, &options));
                let succession = DecisionOptions { deterministic_med: true, ..options };
                for at in 1..order.len() {
                    let mut left: Vec<usize> = order[at..].iter().map(|ranked| ranked.index).collect();
                    left.sort_unstable();
                    let these: Vec<Candidate<'_>> = left.iter().map(|i| paths[*i]).collect();
                    prop_assert_eq!(best(&these[..], &succession).map(|i| left[i]), Some(order[at].index));
                }
                if let Some(first) = order.first() {
                    let mut expected = multipath(paths, first.index, &options).to_vec();
                    let mut equal: Vec<usize> =
                        order.iter().filter(|ranked| ranked.equal).map(|ranked| ranked.index).collect();
                    expected.sort_unstable();
                    equal.sort_unstable();
                    prop_assert_eq!(equal, expected);
                }
                Ok(())
            })?;
        }
    }
}
