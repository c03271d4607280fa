//! The whole router on the kernel's path, with faults: the seeds of each change, and deliberate
//! faults that must not pass.
//!
//! `RIBTIDE_SEEDS=100000` runs more. `make simulate ON=kernel` repeats scripts.

mod common;

use common::{check, check_shortened, seeds};
use ribtide_sim::campaign::{Script as _, run, simulate};
use ribtide_sim::kernel_router::{Break, Script};

/// Seeds of each change.
const SEEDS: u64 = 400;

#[test]
fn router_on_the_kernel_is_safe_on_the_way_and_agrees_in_the_end() {
    let count = seeds(SEEDS);
    check(&run::<Script>(0..count, |_, _| {}), Script::KINDS, count >= SEEDS);
}

#[test]
fn shortened_script_fails_again() {
    check_shortened(|seed, kept, shorten| {
        simulate::<Script>(seed, kept, Some(Break::KeptRoute), shorten).failure
    });
}

#[cfg(feature = "fixed-hash")]
#[test]
fn run_repeats_itself() {
    for seed in 0..50 {
        let [first, second] = [(); 2].map(|()| simulate::<Script>(seed, None, None, false));
        assert_eq!((first.coverage, first.handled), (second.coverage, second.handled), "seed {seed}");
    }
}

#[test]
fn deliberate_fault_is_noticed() {
    for what in Break::ALL {
        let noticed = (0..200).any(|seed| {
            let broken = simulate::<Script>(seed, None, Some(what), false).failure;
            broken.is_some() && simulate::<Script>(seed, None, None, false).failure.is_none()
        });
        assert!(noticed, "{what:?} is not noticed");
    }
}
