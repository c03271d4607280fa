//! Runs of scripts.

use super::{Break, Router, Script};
use crate::campaign::{self, Campaign, Failure, Outcome, Report, Runs};
use std::collections::BTreeSet;
use std::ops::Range;

/// Runs seeds on as many threads as the machine has cores. `print` gets each failure as it comes.
pub fn campaign(seeds: Range<u64>, print: impl Fn(u64, Option<&Failure>) + Sync) -> Campaign {
    campaign::run(seeds, |seed, shorten| simulate(seed, None, None, shorten), print)
}

/// Runs a seed, or some actions of it. `shorten`: look for a shorter script of a failure.
pub fn simulate(seed: u64, kept: Option<BTreeSet<usize>>, sabotage: Option<Break>, shorten: bool) -> Report {
    let script = Script::new(seed);
    let run = |numbers: &[usize]| {
        let mut router = Router::new(&script);
        sabotage.into_iter().for_each(|what| router.sabotage(what));
        let result = campaign::play(numbers, |number| match number {
            Some(number) => router.act(&script.actions[number]),
            None => router.settle(),
        });
        Outcome { coverage: router.coverage(), handled: router.turns(), result }
    };
    let (actions, show) = (script.actions.len(), |number| script.show(number));
    Runs { option: "--kernel --script", seed, actions, show: &show, run: &run }.report(kept, shorten)
}
