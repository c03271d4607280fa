//! Runs seeds of the router's simulation, or one script again.
//!
//! `ribtide-sim --seeds 0..10000` prints failures with their shortest script, and how often each
//! kind of fault took effect. `ribtide-sim --script 17:3,5,8` repeats one. With `--kernel` routes go
//! to a simulated kernel instead of SONiC's stages and chip.
#![forbid(unsafe_code)]

use ribtide_sim::campaign::{Campaign, Failure, Report, parse};
use ribtide_sim::{kernel_router, router};
use std::collections::BTreeSet;
use std::ops::Range;
use std::process::ExitCode;
use std::time::Instant;

struct Options {
    seeds: Range<u64>,
    script: Option<String>,
    kernel: bool,
}

impl Options {
    fn simulate(&self, seed: u64, kept: Option<BTreeSet<usize>>) -> Report {
        match self.kernel {
            true => kernel_router::simulate(seed, kept, None, false),
            false => router::simulate(seed, kept, None, false),
        }
    }

    fn campaign(&self, print: impl Fn(u64, Option<&Failure>) + Sync) -> Campaign {
        match self.kernel {
            true => kernel_router::campaign(self.seeds.clone(), print),
            false => router::campaign(self.seeds.clone(), print),
        }
    }

    fn kinds(&self) -> &'static [&'static str] {
        if self.kernel { &kernel_router::KINDS } else { &router::KINDS }
    }
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
    if let Some(text) = &options.script {
        return match parse(text) {
            Err(why) => {
                eprintln!("{why}");
                ExitCode::from(2)
            }
            Ok((seed, kept)) => match options.simulate(seed, kept).failure {
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
    run(&options)
}

fn run(options: &Options) -> ExitCode {
    let begin = Instant::now();
    let count = options.seeds.end.saturating_sub(options.seeds.start);
    let total = options.campaign(|seed, failure| match failure {
        Some(failure) => println!("seed {seed} fails:\n{failure}\n"),
        None => println!("seed {seed} fails"),
    });
    for kind in options.kinds() {
        println!("{:>10}  {kind}", total.coverage.get(kind).copied().unwrap_or(0));
    }
    let (actions, failed) = (total.actions, total.failures.len());
    println!("{count} seeds, {actions} actions, {failed} failed, {:.1} s", begin.elapsed().as_secs_f64());
    if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
