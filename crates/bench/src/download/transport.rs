//! `ribtide bench run transport`: the feature sets of "Improve orchagent route performance", with its two workloads.

use super::combination::Features;
use super::load::Load;
use super::run::Case;
use super::suite::{RunOptions, Sizes, measure};
use crate::Error;
use crate::options::name_of;
use clap::ValueEnum;

/// A feature set of the document's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FeatureSet {
    /// Without any feature: SONiC's defaults
    None,
    /// The same, but the routes of a bulk go in the order in which they came, not sorted
    Unsorted,
    /// Several Redis servers
    MultiDb,
    /// orchagent's ring thread
    Ring,
    /// Routes over ZeroMQ
    Zmq,
    /// Several Redis servers, and the ring thread
    MultiDbRing,
    /// Several Redis servers, the ring thread, and ZeroMQ
    MultiDbRingZmq,
}

/// What is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum TransportWorkload {
    /// As the document's T1 switch: 12,951 routes, half of them IPv6, each through 4 neighbours
    T1,
    /// As its chassis: 308,037 routes, half of them IPv6, each through 8 neighbours
    Chassis,
}

/// The options of this suite.
#[derive(Clone, PartialEq, Debug, clap::Args)]
pub struct Options {
    /// The feature sets
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = FeatureSet::value_variants().to_vec())]
    pub dut: Vec<FeatureSet>,
    /// The workloads
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_enum, default_values_t = [TransportWorkload::T1, TransportWorkload::Chassis])]
    pub work: Vec<TransportWorkload>,
    /// The share of the routes in percent, for a quick trial
    #[arg(long, value_name = "PERCENT", default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub percent: u32,
    /// orchagent's sizes
    #[command(flatten)]
    pub sizes: Sizes,
    /// How it is measured
    #[command(flatten)]
    pub how: RunOptions,
}

impl FeatureSet {
    fn features(self) -> Features {
        let none = Features::default();
        match self {
            FeatureSet::None => none,
            FeatureSet::Unsorted => Features { unsorted: true, ..none },
            FeatureSet::MultiDb => Features { multi_db: true, ..none },
            FeatureSet::Ring => Features { ring: true, ..none },
            FeatureSet::Zmq => Features { zmq: true, ..none },
            FeatureSet::MultiDbRing => Features { multi_db: true, ring: true, ..none },
            FeatureSet::MultiDbRingZmq => Features { multi_db: true, ring: true, zmq: true, ..none },
        }
    }
}

impl TransportWorkload {
    fn load(self, percent: u32) -> Load {
        let (routes, next_hops) = match self {
            TransportWorkload::T1 => (12_951, 4),
            TransportWorkload::Chassis => (308_037, 8),
        };
        let routes: u32 = routes * percent / 100;
        Load { ipv4: routes.div_ceil(2), ipv6: routes / 2, next_hops }
    }
}

/// Measures, prints a table, and writes JSON where asked to.
///
/// # Errors
/// As [`super::run`].
pub fn run(options: &Options) -> Result<(), Error> {
    let cases: Vec<Case> = options
        .work
        .iter()
        .flat_map(|work| options.dut.iter().map(|dut| (*work, *dut)))
        .map(|(work, dut)| {
            let name = format!("{}: {}", name_of(&work), name_of(&dut));
            Case::new(name, dut.features().flags(), work.load(options.percent), options.sizes.pair())
        })
        .collect();
    measure(
        "Transports: the feature sets of the document, synchronous and recorded".into(),
        &cases,
        &options.how,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workloads_are_the_documents() {
        assert_eq!(TransportWorkload::T1.load(100), Load { ipv4: 6476, ipv6: 6475, next_hops: 4 });
        assert_eq!(TransportWorkload::Chassis.load(100).total(), 308_037);
        assert_eq!(TransportWorkload::T1.load(1).total(), 129);
        let all = FeatureSet::MultiDbRingZmq.features().flags();
        assert_eq!(
            (all.redis.join(" "), all.orchagent.join(" ")),
            ("--multi-db".into(), "-s -q tcp://127.0.0.1 --route-zmq -R".into())
        );
        let unsorted = FeatureSet::Unsorted.features().flags();
        assert_eq!(unsorted.orchagent.join(" "), "-s --sort-routes false");
    }
}
