//! Runs seeds of the router's simulation, or one script again.
//!
//! `ribtide-sim --seeds 0..10000` prints failures with their shortest script, and how often each
//! kind of fault took effect. `ribtide-sim --script 17:3,5,8` repeats one. With `--kernel` routes go
//! to a simulated kernel instead of SONiC's stages and chip.
#![forbid(unsafe_code)]

use ribtide_sim::campaign::{self, Script, parse};
use ribtide_sim::{kernel_router, router};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

struct Options {
    seeds: Range<u64>,
    script: Option<String>,
    kernel: bool,
}

fn options() -> Result<Options, String> {
    let mut options = Options { seeds: 0..10_000, script: None, kernel: false };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{name} needs a value"));
        match name.as_str() {
            "--seeds" => {
                let text = value()?;
                let range = text.split_once("..").and_then(|(a, b)| Some(a.parse().ok()?..b.parse().ok()?));
                options.seeds = range.ok_or_else(|| format!("--seeds {text} is no range: write 0..10000"))?;
            }
            "--script" => options.script = Some(value()?),
            "--kernel" => options.kernel = true,
            _ => return Err(format!("{name} is unknown: write --seeds A..B, --script SCRIPT or --kernel")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let options = match options() {
        Ok(options) => options,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::from(2);
        }
    };
    if cfg!(not(feature = "fixed-hash")) {
        eprintln!(
            "maps iterate in another order in each process: build with --features fixed-hash to repeat runs"
        );
    }
    match options.kernel {
        true => run::<kernel_router::Script>(&options),
        false => run::<router::Script>(&options),
    }
}

fn run<S: Script>(options: &Options) -> ExitCode {
    match &options.script {
        Some(text) => repeat::<S>(text),
        None => all::<S>(options.seeds.clone()),
    }
}

fn repeat<S: Script>(text: &str) -> ExitCode {
    match parse(text) {
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
        Ok((seed, kept)) => match campaign::simulate::<S>(seed, kept, None, false).failure {
            None => {
                println!("{text}: every stage agrees");
                ExitCode::SUCCESS
            }
            Some(failure) => {
                println!("{failure}");
                ExitCode::FAILURE
            }
        },
    }
}

fn all<S: Script>(seeds: Range<u64>) -> ExitCode {
    let begin = Instant::now();
    let count = seeds.end.saturating_sub(seeds.start);
    let total = campaign::run::<S>(seeds, |seed, failure| match failure {
        Some(failure) => println!("seed {seed} fails:\n{failure}\n"),
        None => println!("seed {seed} fails"),
    });
    for kind in S::KINDS {
        println!("{:>10}  {kind}", total.coverage.get(kind).copied().unwrap_or(0));
    }
    let (actions, failed) = (total.actions, total.failures.len());
    println!("{count} seeds, {actions} actions, {failed} failed, {:.1} s", begin.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
