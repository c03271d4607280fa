//! The whole router, with faults: the seeds of each change, and deliberate faults that must not pass.
//!
//! `RIBTIDE_SEEDS=100000` runs more. `make simulate` repeats scripts.

mod common;

use common::{check, check_shortened, seeds};
use ribtide_sim::campaign::{Script as _, run, simulate};
use ribtide_sim::router::{Break, Script};

/// Seeds of each change: routes of one in three go over ZeroMQ.
const SEEDS: u64 = 10_000;

#[test]
fn router_with_faults_is_safe_on_the_way_and_agrees_in_the_end() {
    let count = seeds(SEEDS);
    check(&run::<Script>(0..count, |_, _| {}), Script::KINDS, count >= 1000);
}

/// Whether a deliberate fault is noticed in some of 100 seeds, and in none without it.
fn is_noticed(what: Break) -> bool {
    (0..100).any(|seed| {
        let broken = simulate::<Script>(seed, None, Some(what), false).failure;
        broken.is_some() && simulate::<Script>(seed, None, None, false).failure.is_none()
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

#[test]
fn missing_resend_over_zmq_is_noticed() {
    assert!(is_noticed(Break::NoResend));
}

#[test]
fn lost_link_state_is_noticed() {
    assert!(is_noticed(Break::LostReport));
}

#[test]
fn trust_in_a_syncd_that_was_started_again_is_noticed() {
    assert!(is_noticed(Break::TrustedSyncd));
}

#[test]
fn shortened_script_fails_again() {
    check_shortened(|seed, kept, shorten| {
        simulate::<Script>(seed, kept, Some(Break::LostWithdrawal), shorten).failure
    });
}

#[cfg(feature = "fixed-hash")]
#[test]
fn run_repeats_itself() {
    for seed in 0..100 {
        let [first, second] = [(); 2].map(|()| simulate::<Script>(seed, None, None, false));
        assert_eq!((first.coverage, first.handled), (second.coverage, second.handled), "seed {seed}");
    }
}
