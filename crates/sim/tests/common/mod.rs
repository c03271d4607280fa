//! What the tests of both simulations of the router check.

use ribtide_sim::campaign::{Campaign, Failure, parse};
use std::collections::BTreeSet;

/// How many seeds run: `RIBTIDE_SEEDS`, or else `otherwise`.
pub(crate) fn seeds(otherwise: u64) -> u64 {
    std::env::var("RIBTIDE_SEEDS").map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| panic!("RIBTIDE_SEEDS is not a number: {text}"))
    })
}

/// No seed fails. With `every_kind`, each of the kinds of faults took effect.
pub(crate) fn check(campaign: &Campaign, kinds: &[&str], every_kind: bool) {
    println!("faults that took effect: {:#?}", campaign.coverage);
    for (seed, failure) in &campaign.failures {
        println!("seed {seed}: {}", failure.as_ref().map_or_else(String::new, ToString::to_string));
    }
    assert!(campaign.failures.is_empty(), "{} seeds fail", campaign.failures.len());
    let missing: Vec<_> = kinds.iter().filter(|kind| !campaign.coverage.contains_key(*kind)).collect();
    assert!(missing.is_empty() || !every_kind, "faults that never took effect: {missing:?}");
}

/// The failure of a seed, or of some of its actions, is shortened to a script that fails again.
pub(crate) fn check_shortened(broken: impl Fn(u64, Option<BTreeSet<usize>>, bool) -> Option<Failure>) {
    let found = (0..100).find_map(|seed| Some((seed, broken(seed, None, true)?)));
    let (seed, failure) = found.expect("a deliberate fault is noticed");
    let (of, kept) = parse(&failure.script).expect("a printed script");
    let kept = kept.expect("a shortened script names its actions");
    assert!(of == seed && kept.len() < 60, "{failure}");
    if cfg!(feature = "fixed-hash") {
        assert!(broken(seed, Some(kept), false).is_some(), "{failure}");
    }
}
