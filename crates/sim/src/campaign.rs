//! Campaigns of a simulation's seeds, the notation of scripts, and the shortest script found that
//! still fails.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};

/// How often each kind of fault took effect.
pub type Coverage = BTreeMap<&'static str, u64>;

/// What a seed came to.
#[derive(Debug)]
pub struct Report {
    /// How often each kind of fault took effect.
    pub coverage: Coverage,
    /// How many actions it had.
    pub actions: usize,
    /// How many requests the dataplane handled.
    pub handled: u64,
    /// Why it failed.
    pub failure: Option<Failure>,
}

/// A run that failed, with the shortest script that still does.
#[derive(Debug)]
pub struct Failure {
    /// The option of `ribtide-sim` that runs a script again.
    pub option: &'static str,
    /// The script.
    pub script: String,
    /// Its actions in words, and what went wrong.
    pub story: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.story)?;
        let Failure { option, script, .. } = self;
        write!(f, "repeat with: cargo run -p ribtide-sim --features fixed-hash -- {option} {script}")
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

/// Runs seeds on as many threads as the machine has cores. `simulate` runs one, and looks for a
/// shorter script if its second argument is true. `print` gets each failure as it comes.
pub(crate) fn run(
    seeds: Range<u64>,
    simulate: impl Fn(u64, bool) -> Report + Sync,
    print: impl Fn(u64, Option<&Failure>) + Sync,
) -> Campaign {
    let (next, total) = (AtomicU64::new(seeds.start), Mutex::new(Campaign::default()));
    let lock = || total.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                break;
            }
            let shorten = lock().failures.len() < SHORTENED;
            let report = simulate(seed, shorten);
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

/// The result of a run.
pub(crate) struct Outcome {
    /// How often each kind of fault took effect.
    pub(crate) coverage: Coverage,
    /// How many requests the dataplane handled.
    pub(crate) handled: u64,
    /// The error: how many actions had been done, and what went wrong.
    pub(crate) result: Result<(), (usize, String)>,
}

/// A script, and how some of its actions are run.
pub(crate) struct Runs<'a> {
    /// The option of `ribtide-sim` that runs it again.
    pub(crate) option: &'static str,
    /// Its seed.
    pub(crate) seed: u64,
    /// How many actions it has.
    pub(crate) actions: usize,
    /// Shows an action in words.
    pub(crate) show: &'a dyn Fn(usize) -> String,
    /// Runs the actions of these numbers.
    pub(crate) run: &'a dyn Fn(&[usize]) -> Outcome,
}

impl Runs<'_> {
    /// Runs all actions, or those of `kept`. `shorten`: look for a shorter script of a failure.
    pub(crate) fn report(&self, kept: Option<BTreeSet<usize>>, shorten: bool) -> Report {
        let all: Vec<usize> = match kept {
            Some(kept) => kept.into_iter().filter(|number| *number < self.actions).collect(),
            None => (0..self.actions).collect(),
        };
        let Outcome { coverage, handled, result } = (self.run)(&all);
        let failure = result.err().map(|(at, mut why)| {
            // What came after the failure has no part in it.
            let mut kept: Vec<usize> = all[..(at + 1).min(all.len())].to_vec();
            if shorten {
                shortest(&mut kept, &mut why, |kept| (self.run)(kept).result.err().map(|(_, why)| why));
            }
            let shown = kept.iter().map(|number| format!("  {number}: {}\n", (self.show)(*number)));
            let story = shown.chain([format!("  {why}")]).collect();
            let numbers: Vec<String> = kept.iter().map(usize::to_string).collect();
            Failure { option: self.option, script: format!("{}:{}", self.seed, numbers.join(",")), story }
        });
        Report { coverage, actions: all.len(), handled, failure }
    }
}

/// Does the actions of these numbers, and in the end `None`: all stages become idle and are compared.
/// A panic is a failure.
pub(crate) fn play(
    numbers: &[usize],
    mut act: impl FnMut(Option<usize>) -> Result<(), String>,
) -> Result<(), (usize, String)> {
    let mut done = 0;
    let result = caught(|| {
        for number in numbers {
            act(Some(*number))?;
            done += 1;
        }
        act(None)
    });
    result.map_err(|why| (done, why))
}

/// The seed and the actions that stay of a printed script.
///
/// # Errors
/// A sentence when the text is none.
pub fn parse(text: &str) -> Result<(u64, Option<BTreeSet<usize>>), String> {
    let wrong = |_| format!("{text} is no script: write SEED, or SEED:NUMBER,NUMBER,…");
    let Some((seed, numbers)) = text.split_once(':') else {
        return Ok((text.parse().map_err(wrong)?, None));
    };
    let numbers = numbers.split(',').filter(|number| !number.is_empty()).map(str::parse);
    let kept: Result<BTreeSet<usize>, _> = numbers.collect();
    Ok((seed.parse().map_err(wrong)?, Some(kept.map_err(wrong)?)))
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
fn keep_messages() {
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

/// Runs a simulation. A panic is a failure.
fn caught(run: impl FnOnce() -> Result<(), String>) -> Result<(), String> {
    keep_messages();
    PANIC.set(Some(String::new()));
    let result = catch_unwind(AssertUnwindSafe(run));
    let message = PANIC.take().unwrap_or_default();
    result.unwrap_or(Err(message))
}
