//! The whole router on the kernel's path, with faults: the seeds of each change, and deliberate
//! faults that must not pass.
//!
//! `RIBTIDE_SEEDS=100000` runs more. `make simulate ON=kernel` repeats scripts.

mod common;

use common::{check, check_shortened, seeds};
use ribtide_sim::campaign::{Script as _, parse, run, simulate};
use ribtide_sim::kernel_router::{Break, Script};

/// Seeds of each change.
const SEEDS: u64 = 400;

#[test]
fn router_on_the_kernel_is_safe_on_the_way_and_agrees_in_the_end() {
    let count = seeds(SEEDS);
    check(&run::<Script>(0..count, |_, _| {}), Script::KINDS, count >= SEEDS);
}

/// Scripts that failed before a mend, in the order of maps with `fixed-hash`.
#[test]
fn scripts_that_failed_pass() {
    for text in [
        // Found routes of a group that was made again.
        "8393:539,540,542,551,560,575,578,582,584,587,594,596,621",
        "11971:158,202,627,689,690,692,694,699,700,701,702,703,705,706,707,708,727,734",
        "13453:807,808,812,813,816,818,819,820,821,824,826,827,837,841,858,859,870",
        "14319:134,138,498,568,572,578,581,586,588,625,631,634,639,644,647,655,667",
        // A wrong route that the kernel does not replace.
        "5914:123,594,673,676,677,733,734,737,739,761,766,767,860,861,862,873,903,914",
        "11490:53,54,55,206,211,212,213,224,242,244,257,287,290,302,309",
        "11555:546,547,567,594,600,615,616,619,644,651",
        // An unresolved group that was deleted before its routes moved.
        "14360:33,47,118,147,173,191,273,421,728,790",
        // An unresolved group that the kernel did not delete.
        "24596:88,105,148,201,216,220,221,224,225,227,229,240,245,251,253",
        "30572:33,49,284,310,598,617,618,619,623,628,634,644,661,672,673",
        // A failed route in an old buffer of the comparison.
        "38588:277,279,280,282,286,324,327,351,352,388,391,447,452,456,458,462,465,614,616,617,618,619,\
         624,627,633,642,651,653,673,674",
    ] {
        let (seed, kept) = parse(text).expect("a script");
        let failure = simulate::<Script>(seed, kept, None, false).failure;
        assert!(failure.is_none(), "{}", failure.expect("a failure"));
    }
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
