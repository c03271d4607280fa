//! Runs of scripts, and the shortest script found that still fails.

use super::script::Shown;
use super::{Action, Break, Coverage, Router, Script};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// What a seed came to.
#[derive(Debug)]
pub struct Report {
    /// How often each kind of fault took effect.
    pub coverage: Coverage,
    /// How many actions it had.
    pub actions: usize,
    /// How many requests syncd handled.
    pub handled: u64,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// A run that failed, with the shortest script that still does.
#[derive(Debug)]
pub struct Failure {
    /// The script, to be run again.
    pub script: String,
    /// Its actions in words, and what went wrong.
    pub story: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.story)?;
        write!(f, "repeat with: cargo run -p ribtide-sim --features fixed-hash -- --script {}", self.script)
    }
}

/// What many seeds came to.
#[derive(Debug, Default)]
pub struct Campaign {
    /// How often each kind of fault took effect.
    pub coverage: Coverage,
    /// Actions of all runs.
    pub actions: u64,
    /// The seeds that failed, in order, the first ones with their shortest script.
    pub failures: BTreeMap<u64, Option<Failure>>,
}

/// Failures of a campaign that are shortened.
const SHORTENED: usize = 5;

/// Runs seeds on as many threads as the machine has cores. `print` gets each failure as it comes.
pub fn campaign(seeds: Range<u64>, print: impl Fn(u64, Option<&Failure>) + Sync) -> Campaign {
    let (next, total) = (AtomicU64::new(seeds.start), Mutex::new(Campaign::default()));
    let lock = || total.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                break;
            }
            let shorten = lock().failures.len() < SHORTENED;
            let report = simulate(seed, None, None, shorten);
            let mut total = lock();
            total.actions += report.actions as u64;
            for (kind, count) in report.coverage {
                *total.coverage.entry(kind).or_default() += count;
            }
            if let Some(failure) = report.failure {
                let shown = shorten.then_some(failure);
                print(seed, shown.as_ref());
                total.failures.insert(seed, shown);
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
    total.into_inner().unwrap_or_else(PoisonError::into_inner)
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
        Failure { script: script.print(&kept.into_iter().collect()), story }
    });
    Report { coverage, actions: all.len(), handled, failure }
}

/// Removes ever smaller parts as long as the rest fails.
fn shortest(kept: &mut Vec<usize>, why: &mut String, fails: impl Fn(&[usize]) -> Option<String>) {
    match fails(kept) {
        Some(again) => *why = again,
        // The fault needs later actions too.
        None => return,
    }
    let mut part = kept.len() / 2;
    while part > 0 {
        let (mut at, mut removed) = (0, false);
        while at < kept.len() {
            let mut fewer = kept.clone();
            fewer.drain(at..(at + part).min(kept.len()));
            match fails(&fewer) {
                Some(now) => (*kept, *why, removed) = (fewer, now, true),
                None => at += part,
            }
        }
        if !removed {
            part /= 2;
        }
    }
}

thread_local! {
    /// The message of the last panic of this thread, while a run is on.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of runs to themselves, and lets others through.
fn catch_messages() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let is_run = PANIC.with_borrow_mut(|message| {
                if let Some(message) = message {
                    *message = info.to_string();
                }
                message.is_some()
            });
            if !is_run {
                before(info);
            }
        }));
    });
}

/// The coverage, the requests that syncd handled, and the result.
type Outcome = (Coverage, u64, Result<(), (usize, String)>);

/// Runs some actions of a script. The error: which one failed, and why.
fn run(script: &Script, kept: &[usize], sabotage: Option<Break>) -> Outcome {
    catch_messages();
    let mut router = Router::new(script);
    if let Some(what) = sabotage {
        router.sabotage(what);
    }
    let mut at = 0;
    PANIC.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(|| {
        for number in kept {
            let action: &Action = &script.actions[*number];
            router.act(action)?;
            at += 1;
        }
        router.settle()
    }));
    let message = PANIC.take().unwrap_or_default();
    let result = result.unwrap_or(Err(message)).map_err(|why| (at, why));
    (router.coverage().clone(), router.handled(), result)
}
