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

/// What happens in a run of a router: all of it follows from a seed.
pub trait Script: Sized {
    /// The option of `ribtide-sim` that runs a script again.
    const OPTION: &'static str;
    /// The kinds of faults, for the coverage.
    const KINDS: &'static [&'static str];
    /// A deliberate fault of the router itself, which a run must notice.
    type Break: Copy;
    /// The router.
    type Router<'s>: Router<'s, Script = Self>
    where
        Self: 's;

    /// The script of a seed.
    fn new(seed: u64) -> Self;

    /// How many actions it has.
    fn actions(&self) -> usize;

    /// Shows an action in words.
    fn show(&self, number: usize) -> String;
}

/// A router that a script runs.
pub trait Router<'s> {
    /// The script.
    type Script: Script;

    /// A router that has just started.
    fn new(script: &'s Self::Script) -> Self;

    /// Inserts a deliberate fault.
    fn sabotage(&mut self, what: <Self::Script as Script>::Break);

    /// Does the action of this number.
    ///
    /// # Errors
    /// A sentence when a promise is broken on the way, or the stages do not agree after an action
    /// that lets them. A broken promise may also be a panic.
    fn act(&mut self, number: usize) -> Result<(), String>;

    /// Ends all faults, and lets all stages work until they agree.
    ///
    /// # Errors
    /// What they disagree about.
    fn settle(&mut self) -> Result<(), String>;

    /// How often each kind of fault took effect.
    fn coverage(&self) -> Coverage;

    /// How much the dataplane handled: the same in each run of a script, if maps iterate alike.
    fn handled(&self) -> u64;
}

/// Failures of a campaign that are shortened.
const SHORTENED: usize = 5;

/// Runs seeds on as many threads as the machine has cores. `print` gets each failure as it comes.
pub fn run<S: Script>(seeds: Range<u64>, print: impl Fn(u64, Option<&Failure>) + Sync) -> Campaign {
    let (next, total) = (AtomicU64::new(seeds.start), Mutex::new(Campaign::default()));
    let lock = || total.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let seed = next.fetch_add(1, Relaxed);
            if seed >= seeds.end {
                break;
            }
            let shorten = lock().failures.len() < SHORTENED;
            let report = simulate::<S>(seed, None, None, shorten);
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

/// Runs a seed, or the actions of it that are `kept`. `shorten`: look for a shorter script of a
/// failure.
pub fn simulate<S: Script>(
    seed: u64,
    kept: Option<BTreeSet<usize>>,
    sabotage: Option<S::Break>,
    shorten: bool,
) -> Report {
    let script = S::new(seed);
    let all: Vec<usize> = match kept {
        Some(kept) => kept.into_iter().filter(|number| *number < script.actions()).collect(),
        None => (0..script.actions()).collect(),
    };
    let Outcome { coverage, handled, result } = play(&script, &all, sabotage);
    let failure = result.err().map(|(at, mut why)| {
        // Events after the failure have no part in it.
        let mut kept: Vec<usize> = all[..(at + 1).min(all.len())].to_vec();
        if shorten {
            let fails = |kept: &[usize]| play(&script, kept, sabotage).result.err().map(|(_, why)| why);
            shortest(&mut kept, &mut why, fails);
        }
        let shown = kept.iter().map(|number| format!("  {number}: {}\n", script.show(*number)));
        let story = shown.chain([format!("  {why}")]).collect();
        let numbers: Vec<String> = kept.iter().map(usize::to_string).collect();
        Failure { option: S::OPTION, script: format!("{seed}:{}", numbers.join(",")), story }
    });
    Report { coverage, actions: all.len(), handled, failure }
}

/// The result of a run.
struct Outcome {
    coverage: Coverage,
    handled: u64,
    /// The error: how many actions had been done, and what went wrong.
    result: Result<(), (usize, String)>,
}

/// Does the actions of these numbers; in the end all stages become idle and are compared. A panic is
/// a failure.
fn play<S: Script>(script: &S, numbers: &[usize], sabotage: Option<S::Break>) -> Outcome {
    let mut router = S::Router::new(script);
    sabotage.into_iter().for_each(|what| router.sabotage(what));
    let mut done = 0;
    let result = caught(|| {
        for number in numbers {
            router.act(*number)?;
            done += 1;
        }
        router.settle()
    });
    Outcome {
        coverage: router.coverage(),
        handled: router.handled(),
        result: result.map_err(|why| (done, why)),
    }
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
