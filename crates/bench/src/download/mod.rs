//! SONiC's route path: routes from FPM through SONiC's three daemons, as processes, into the
//! virtual switch.
//!
//! Each run has its own Redis servers, daemons and network namespace. All routes are sent over one
//! FPM connection as fast as fpmsyncd takes them; the clock stops when the switch has them all.
//! Afterwards the databases are counted. The suites differ in combination and load. This one,
//! `route-download`, covers each combination; [`transport`], [`loading`], [`sizes`] and [`state_tables`]
//! answer other documents; [`everything`] and [`check`] are our own.

mod behind;
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
pub mod state_tables;
mod suite;
mod timers;
pub mod transport;
mod work;

pub use combination::Combination;
pub use report::Report;
pub use suite::{RunOptions, Sizes};
pub use work::Work;

use crate::Error;
use crate::options::name_of;
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
    /// What is measured; all but load begin with the routes in the chip and the databases
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = [Work::Load])]
    pub work: Vec<Work>,
    /// fpmsyncd's --pipeline, in turns: the most routes of a flush [default: fpmsyncd's]
    #[arg(long, value_name = "ROUTES", value_delimiter = ',')]
    pub pipeline: Vec<u32>,
    /// Send so many routes in a second, not as many as fpmsyncd takes
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub rate: Option<u32>,
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
    if options.work.iter().any(|work| *work != Work::Load)
        && let Some(without) = options.dut.iter().find(|combination| !combination.flags().has_chip)
    {
        let name = without.name();
        return Err(Error::Options(format!("{name} has no chip; it measures --work load only")));
    }
    let pipelines: Vec<Option<u32>> = match options.pipeline[..] {
        [] => vec![None],
        _ => options.pipeline.iter().copied().map(Some).collect(),
    };
    let mut cases = Vec::new();
    for combination in &options.dut {
        for work in &options.work {
            for pipeline in &pipelines {
                let work_name = (*work != Work::Load).then(|| name_of(work));
                let size = pipeline.map(|routes| format!("--pipeline {routes}"));
                let names = [Some(combination.name()), work_name, size];
                cases.push(Case {
                    chip_rate: options.chip_rate,
                    work: *work,
                    rate: options.rate,
                    more: pipeline.iter().flat_map(|n| ["--pipeline".to_owned(), n.to_string()]).collect(),
                    ..Case::new(
                        names.into_iter().flatten().collect::<Vec<_>>().join(", "),
                        combination.flags(),
                        load,
                        options.sizes.pair(),
                    )
                });
            }
        }
    }
    let (routes, (batch, bulk)) = (rounded(f64::from(options.routes)), options.sizes.pair());
    let chip = options
        .chip_rate
        .map(|rate| format!(", a chip of {} routes/s", rounded(f64::from(rate))))
        .unwrap_or_default();
    let rate = options.rate.map(|rate| format!(" at {} a second", rounded(f64::from(rate))));
    let rate = rate.unwrap_or_default();
    let next_hops =
        if options.next_hops == 1 { String::new() } else { format!(" with {} next hops", options.next_hops) };
    measure(
        format!(
            "{routes} {name} routes{next_hops}{rate}, orchagent -b {batch} -k {bulk} where the combination says no other{chip}"
        ),
        &cases,
        &options.how,
    )
}
