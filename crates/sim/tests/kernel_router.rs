//! The whole router on the kernel's path, with faults: the seeds of each change, and deliberate
//! faults that must not pass.
//!
//! `RIBTIDE_SEEDS=100000` runs more. `make simulate ON=kernel` repeats scripts.

use ribtide_sim::kernel_router::{Break, KINDS, campaign, simulate};

fn seeds(otherwise: u64) -> u64 {
    let text = std::env::var("RIBTIDE_SEEDS").ok();
    text.map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| panic!("RIBTIDE_SEEDS is not a number: {text}"))
    })
}

/// Seeds of each change.
const SEEDS: u64 = 400;

#[test]
fn router_on_the_kernel_is_safe_on_the_way_and_agrees_in_the_end() {
    let total = campaign(0..seeds(SEEDS), |_, _| {});
    println!("faults that took effect: {:#?}", total.coverage);
    for (seed, failure) in &total.failures {
        println!("seed {seed}: {}", failure.as_ref().map_or_else(String::new, ToString::to_string));
    }
    assert!(total.failures.is_empty(), "{} seeds fail", total.failures.len());
    let missing: Vec<_> = KINDS.iter().filter(|kind| !total.coverage.contains_key(*kind)).collect();
    assert!(missing.is_empty() || seeds(SEEDS) < SEEDS, "faults that never took effect: {missing:?}");
}

/// A failure is shortened to a script that fails again.
#[test]
fn shortened_script_fails_again() {
    let broken = |seed, kept, shorten| simulate(seed, kept, Some(Break::KeptRoute), shorten).failure;
    let found = (0..100).find_map(|seed| Some((seed, broken(seed, None, true)?)));
    let (seed, failure) = found.expect("a deliberate fault is noticed");
    let (of, kept) = ribtide_sim::router::parse(&failure.script).expect("a printed script");
    let kept = kept.expect("a shortened script names its actions");
    assert!(of == seed && kept.len() < 60, "{failure}");
    if cfg!(feature = "fixed-hash") {
        assert!(broken(seed, Some(kept), false).is_some(), "{failure}");
    }
}

#[cfg(feature = "fixed-hash")]
#[test]
fn run_repeats_itself() {
    for seed in 0..50 {
        let [first, second] = [(); 2].map(|()| simulate(seed, None, None, false));
        assert_eq!((first.coverage, first.handled), (second.coverage, second.handled), "seed {seed}");
    }
}

#[test]
fn deliberate_fault_is_noticed() {
    for what in Break::ALL {
        let noticed = (0..200).any(|seed| {
            let broken = simulate(seed, None, Some(what), false).failure;
            broken.is_some() && simulate(seed, None, None, false).failure.is_none()
        });
        assert!(noticed, "{what:?} is not noticed");
    }
}
