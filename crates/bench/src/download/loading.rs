//! `ribtide bench run loading`: "BGP loading optimization", before and after, with the speed of fpmsyncd and orchagent
//! by their PerformanceTimers, and the lines that those log.

use super::combination::Flags;
use super::load::Load;
use super::run::Case;
use super::suite::{RunOptions, Sizes, measure};
use crate::Error;
use crate::options::name_of;
use clap::ValueEnum;
use ribtide_text::rounded;

/// Which of the two.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum When {
    /// A pipeline of 128 that every event flushes, a notification for each route, no ring thread, one
    /// request to syncd at a time
    Before,
    /// A pipeline of 50,000 and a flush timer of 500 ms, a notification for each flush, the ring thread,
    /// several requests to syncd in flight
    After,
}

/// The options of this suite.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// Before, after, or both
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = [When::Before, When::After])]
    pub dut: Vec<When>,
    /// The number of IPv4 routes, each a /24
    #[arg(long, value_name = "N", default_value_t = 2_000_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub routes: u32,
    /// orchagent's sizes
    #[command(flatten)]
    pub sizes: Sizes,
    /// How it is measured
    #[command(flatten)]
    pub how: RunOptions,
}

impl When {
    fn flags(self) -> Flags {
        match self {
            When::Before => Flags {
                fpmsyncd: vec!["--pipeline", "128", "--flush-timer", "0", "--rows-per-call", "1"],
                orchagent: vec!["-s"],
                syncd: vec!["-s"],
                ..Flags::default()
            },
            When::After => Flags {
                fpmsyncd: vec!["--pipeline", "50000", "--flush-timer", "500"],
                orchagent: vec!["-z", "redis_async", "-R"],
                syncd: vec!["-z", "redis_async"],
                ..Flags::default()
            },
        }
    }
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// As [`super::run`].
pub fn run(options: &Options) -> Result<(), Error> {
    let load = Load { ipv4: options.routes, ipv6: 0, next_hops: 1 };
    let cases: Vec<Case> = options
        .dut
        .iter()
        .map(|when| Case {
            timers: true,
            ..Case::new(name_of(when), when.flags(), load, options.sizes.pair())
        })
        .collect();
    let (routes, (batch, bulk)) = (rounded(f64::from(options.routes)), options.sizes.pair());
    measure(
        format!("Loading {routes} IPv4 routes over Redis, orchagent -b {batch} -k {bulk}"),
        &cases,
        &options.how,
    )
}
