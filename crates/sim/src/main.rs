//! Runs seeds of the router's simulation, or one script again.
//!
//! `ribtide-sim --seeds 0..10000` prints failures with their shortest script, and how often each
//! kind of fault took effect. `ribtide-sim --script 17:3,5,8` repeats one.
#![forbid(unsafe_code)]

use ribtide_sim::router::{KINDS, campaign, parse, simulate};
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

struct Options {
    seeds: Range<u64>,
    script: Option<String>,
}

fn options() -> Result<Options, String> {
    let mut options = Options { seeds: 0..10_000, script: None };
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
            _ => return Err(format!("{name} is unknown: write --seeds A..B or --script SCRIPT")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    let Options { seeds, script } = match options() {
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
    if let Some(text) = script {
        return match parse(&text) {
            Err(why) => {
                eprintln!("{why}");
                ExitCode::from(2)
            }
            Ok((seed, kept)) => match simulate(seed, kept, None, false).failure {
                None => {
                    println!("{text}: every stage agrees");
                    ExitCode::SUCCESS
                }
                Some(failure) => {
                    println!("{failure}");
                    ExitCode::FAILURE
                }
            },
        };
    }
    run(seeds)
}

fn run(seeds: Range<u64>) -> ExitCode {
    let begin = Instant::now();
    let count = seeds.end.saturating_sub(seeds.start);
    let total = campaign(seeds, |seed, failure| match failure {
        Some(failure) => println!("seed {seed} fails:\n{failure}\n"),
        None => println!("seed {seed} fails"),
    });
    for kind in KINDS {
        println!("{:>10}  {kind}", total.coverage.get(kind).copied().unwrap_or(0));
    }
    let (actions, failed) = (total.actions, total.failures.len());
    println!("{count} seeds, {actions} actions, {failed} failed, {:.1} s", begin.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
