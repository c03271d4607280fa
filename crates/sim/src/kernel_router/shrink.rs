//! Runs of scripts.

use super::script::Shown;
use super::{Break, Router, Script};
use crate::campaign::{self, Campaign, Coverage, Failure, Report, caught, shortest};
use std::collections::BTreeSet;
use std::ops::Range;

/// Runs seeds on as many threads as the machine has cores. `print` gets each failure as it comes.
pub fn campaign(seeds: Range<u64>, print: impl Fn(u64, Option<&Failure>) + Sync) -> Campaign {
    campaign::run(seeds, |seed, shorten| simulate(seed, None, None, shorten), print)
}

/// Runs a seed, or some actions of it. `shorten`: look for a shorter script of a failure.
pub fn simulate(seed: u64, kept: Option<BTreeSet<usize>>, sabotage: Option<Break>, shorten: bool) -> Report {
    let script = Script::new(seed);
    let all: Vec<usize> = match kept {
        Some(kept) => kept.into_iter().filter(|number| *number < script.actions.len()).collect(),
        None => (0..script.actions.len()).collect(),
    };
    let (coverage, handled, result) = run(&script, &all, sabotage);
    let failure = result.err().map(|(at, mut why)| {
        // What came after the failure has no part in it.
        let mut kept: Vec<usize> = all[..(at + 1).min(all.len())].to_vec();
        if shorten {
            let fails = |kept: &[usize]| run(&script, kept, sabotage).2.err().map(|(_, why)| why);
            shortest(&mut kept, &mut why, fails);
        }
        let mut story = String::new();
        for number in &kept {
            story.push_str(&format!("  {number}: {}\n", Shown(&script, *number)));
        }
        story.push_str(&format!("  {why}"));
        Failure { option: "--kernel --script", script: script.print(&kept.into_iter().collect()), story }
    });
    Report { coverage, actions: all.len(), handled, failure }
}

/// The coverage, the turns of the writer, and the result.
type Outcome = (Coverage, u64, Result<(), (usize, String)>);

/// Runs some actions of a script. The error: which one failed, and why.
fn run(script: &Script, kept: &[usize], sabotage: Option<Break>) -> Outcome {
    let mut router = Router::new(script);
    if let Some(what) = sabotage {
        router.sabotage(what);
    }
    let mut at = 0;
    let result = caught(|| {
        for number in kept {
            router.act(&script.actions[*number])?;
            at += 1;
        }
        router.settle()
    });
    (router.coverage(), router.turns(), result.map_err(|why| (at, why)))
}
