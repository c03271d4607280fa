//! The whole router, with faults: the seeds of each change, and deliberate faults that must not pass.
//!
//! `RIBTIDE_SEEDS=100000` runs more. `make simulate` repeats scripts.

use ribtide_sim::router::{Break, KINDS, campaign, simulate};

fn seeds(otherwise: u64) -> u64 {
    let text = std::env::var("RIBTIDE_SEEDS").ok();
    text.map_or(otherwise, |text| {
        text.parse().unwrap_or_else(|_| panic!("RIBTIDE_SEEDS is not a number: {text}"))
    })
}

#[test]
fn router_with_faults_is_safe_on_the_way_and_agrees_in_the_end() {
    let total = campaign(0..seeds(10_000), |_, _| {});
    println!("faults that took effect: {:#?}", total.coverage);
    for (seed, failure) in &total.failures {
        println!("seed {seed}: {}", failure.as_ref().map_or_else(String::new, ToString::to_string));
    }
    assert!(total.failures.is_empty(), "{} seeds fail", total.failures.len());
    let missing: Vec<_> = KINDS.iter().filter(|kind| !total.coverage.contains_key(*kind)).collect();
    assert!(missing.is_empty() || seeds(10_000) < 1000, "faults that never took effect: {missing:?}");
}

/// Whether a deliberate fault is noticed in some of 100 seeds, and in none without it.
fn is_noticed(what: Break) -> bool {
    (0..100).any(|seed| {
        let broken = simulate(seed, None, Some(what), false).failure;
        broken.is_some() && simulate(seed, None, None, false).failure.is_none()
    })
}

#[test]
fn lost_withdrawal_is_noticed() {
    assert!(is_noticed(Break::LostWithdrawal));
}

#[test]
fn early_acknowledgement_is_noticed() {
    assert!(is_noticed(Break::EarlyAcknowledgement));
}

#[test]
fn route_that_the_chip_keeps_is_noticed() {
    assert!(is_noticed(Break::KeptRoute));
}

#[test]
fn former_next_hop_is_noticed() {
    assert!(is_noticed(Break::FormerNextHop));
}

#[test]
fn group_deleted_in_use_is_noticed() {
    assert!(is_noticed(Break::GroupDeletedInUse));
}

#[test]
fn lost_reply_is_noticed() {
    assert!(is_noticed(Break::LostReply));
}

#[test]
fn swallowed_error_is_noticed() {
    assert!(is_noticed(Break::SwallowedError));
}

/// A failure is shortened to a script that fails again.
#[test]
fn shortened_script_fails_again() {
    let broken = |seed, kept, shorten| simulate(seed, kept, Some(Break::LostWithdrawal), shorten).failure;
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
    for seed in 0..100 {
        let [first, second] = [(); 2].map(|()| simulate(seed, None, None, false));
        assert_eq!((first.coverage, first.handled), (second.coverage, second.handled), "seed {seed}");
    }
}
