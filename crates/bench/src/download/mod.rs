//! SONiC's route path: routes from FPM through SONiC's three daemons, as processes, into the
//! virtual switch.
//!
//! Each run has its own Redis servers, daemons and network namespace. All routes are sent over one
//! FPM connection as fast as fpmsyncd takes them; the clock stops when the switch has them all.
//! Afterwards the databases are counted. The suites differ in combination and load. This one,
//! `route-download`, covers each combination; [`transport`], [`loading`] and [`sizes`] answer other
//! documents; [`everything`] and [`check`] are our own.

pub mod check;
mod combination;
pub mod everything;
mod load;
pub mod loading;
mod one_process;
mod reaction;
mod redis;
mod report;
mod run;
pub mod sizes;
mod suite;
mod timers;
pub mod transport;

pub use combination::Combination;
pub use report::Report;
pub use suite::{RunOptions, Sizes};

use crate::Error;
use load::{Load, NEXT_HOPS_MAX};
use ribtide_text::rounded;
use run::Case;
use suite::measure;

/// Which routes are sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
pub enum Families {
    /// IPv4, each a /24
    Ipv4,
    /// IPv6, each a /48
    Ipv6,
    /// Half of each
    Both,
}

/// The options of this suite.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// The combinations of transports and modes
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = Combination::SUITE)]
    pub dut: Vec<Combination>,
    /// The number of routes
    #[arg(long, value_name = "N", default_value_t = 600_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub routes: u32,
    /// The family of the routes
    #[arg(long, value_name = "FAMILY", value_enum, default_value_t = Families::Ipv4)]
    pub family: Families,
    /// The number of next hops of each route
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=i64::from(NEXT_HOPS_MAX)))]
    pub next_hops: u8,
    /// orchagent's sizes
    #[command(flatten)]
    pub sizes: Sizes,
    /// The routes per second that the virtual switch accepts, as a chip would. The report has the share of
    /// the time in which it was busy. Not for appl-db, which has no switch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub chip_rate: Option<u32>,
    /// How it is measured
    #[command(flatten)]
    pub how: RunOptions,
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// Nothing could be measured, a daemon failed or a database is wrong at the end, or Ctrl-C was pressed.
pub fn run(options: &Options) -> Result<(), Error> {
    let (ipv6, name) = match options.family {
        Families::Ipv4 => (0, "IPv4"),
        Families::Ipv6 => (options.routes, "IPv6"),
        Families::Both => (options.routes / 2, "IPv4 and IPv6"),
    };
    let load = Load { ipv4: options.routes - ipv6, ipv6, next_hops: options.next_hops };
    let case = |combination: &Combination| Case {
        chip_rate: options.chip_rate,
        ..Case::new(combination.name(), combination.flags(), load, options.sizes.pair())
    };
    let cases: Vec<Case> = options.dut.iter().map(case).collect();
    let (routes, (batch, bulk)) = (rounded(f64::from(options.routes)), options.sizes.pair());
    let chip = options
        .chip_rate
        .map(|rate| format!(", a chip of {} routes/s", rounded(f64::from(rate))))
        .unwrap_or_default();
    let next_hops =
        if options.next_hops == 1 { String::new() } else { format!(" with {} next hops", options.next_hops) };
    measure(
        format!(
            "{routes} {name} routes{next_hops}, orchagent -b {batch} -k {bulk} where the combination says no other{chip}"
        ),
        &cases,
        &options.how,
    )
}
