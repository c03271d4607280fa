//! `ribtide bench run batch-sizes`: the effect of orchagent's `-b` and `-k` on rate and reaction
//! time. Under load, urgent routes are written to ROUTE_TABLE one by one, and a link goes down and
//! up.

use super::combination::Combination;
use super::load::Load;
use super::run::Case;
use super::suite::{RunOptions, measure};
use crate::Error;
use ribtide_text::rounded;

/// The options of this suite.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// The combination of transports and modes; routes must use Redis, as the urgent ones do
    #[arg(long, value_name = "NAME", value_enum, default_value_t = Combination::RedisRing)]
    pub dut: Combination,
    /// The number of IPv4 routes, each a /24
    #[arg(long, value_name = "N", default_value_t = 300_000, value_parser = clap::value_parser!(u32).range(1..=2_000_000))]
    pub routes: u32,
    /// orchagent's -b and -k, in pairs
    #[arg(long, value_name = "B:K", value_delimiter = ',', value_parser = pair,
          default_values = ["128:128", "128:1000", "1024:128", "1024:1000", "4000:1000", "1024:10000", "4000:10000"])]
    pub sizes: Vec<(u32, u32)>,
    /// How it is measured
    #[command(flatten)]
    pub how: RunOptions,
}

fn pair(text: &str) -> Result<(u32, u32), String> {
    let numbers = text.split_once(':').and_then(|(b, k)| Some((b.parse().ok()?, k.parse().ok()?)));
    numbers
        .filter(|(b, k)| *b > 0 && *k > 0)
        .ok_or_else(|| format!("\"{text}\" is not two numbers such as 1024:1000"))
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// As [`super::run`]; a combination whose routes do not come through Redis.
pub fn run(options: &Options) -> Result<(), Error> {
    let flags = options.dut.flags();
    if !flags.has_chip || flags.fpmsyncd.contains(&"-q") || flags.sizes.is_some() {
        return Err(Error::Options(format!(
            "urgent routes come through Redis and sizes are given here; {} does otherwise: name default, redis, redis-async, \
             redis-ring, redis-stable or redis-multi",
            options.dut.name()
        )));
    }
    let load = Load { ipv4: options.routes, ipv6: 0, next_hops: 1 };
    let case = |&(batch, bulk): &(u32, u32)| Case {
        reactions: true,
        ..Case::new(format!("-b {batch} -k {bulk}"), flags.clone(), load, (batch, bulk))
    };
    let cases: Vec<Case> = options.sizes.iter().map(case).collect();
    let routes = rounded(f64::from(options.routes));
    measure(
        format!("Sizes: {routes} IPv4 routes, {}, with urgent routes and link events", options.dut.name()),
        &cases,
        &options.how,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_pairs() {
        assert_eq!(pair("1024:1000"), Ok((1024, 1000)));
        for text in ["1024", "a:1", "0:1", "1:0", ""] {
            assert!(pair(text).unwrap_err().ends_with("is not two numbers such as 1024:1000"));
        }
    }
}
