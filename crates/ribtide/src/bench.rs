//! `ribtide bench`: the registry of all suites.

use crate::text::write_stdout;
use clap::{CommandFactory, Subcommand, ValueEnum};
use ribtide_bench::{bgp, download, kernel, nexthop};

/// The command.
#[derive(Debug, Subcommand)]
pub(crate) enum Bench {
    /// The suites, their workloads and the routers that can be measured here
    List,
    /// Run one suite
    Run {
        #[command(subcommand)]
        suite: Suite,
    },
}

/// The suites.
#[derive(Debug, Subcommand)]
pub(crate) enum Suite {
    /// BGP: receive, select and advertise routes, beside other daemons. At the end the routes of every
    /// receiver are checked
    Bgp(Box<bgp::Options>),
    /// The Linux kernel: a million routes added, replaced and deleted through the whole router, beside
    /// BIRD, `ip -batch` and a plain netlink writer, which is the kernel's ceiling. At the end the kernel's
    /// table is checked
    Kernel(kernel::Options),
    /// Next-hop resolution: its cost for the RIB manager in each mode of the cache, beside zebra
    NexthopCache(nexthop::Options),
    /// SONiC's route path: from FPM through the processes fpmsyncd, orchagent and syncd to the virtual
    /// switch, for each combination of transports. At the end the rows of every database are counted
    RouteDownload(download::Options),
    /// SONiC's transports: the combinations of "Improve orchagent route performance", with its two workloads
    Transport(download::transport::Options),
    /// "BGP loading optimization", before and after: fpmsyncd and orchagent by their PerformanceTimers
    Loading(download::loading::Options),
    /// FIB suppression, warm restart and both databases: all on beside all off, in each combination of
    /// transports
    Everything(download::everything::Options),
    /// `ribtide route-check --sonic`: the cost of a check, at rest and while all routes change
    RouteCheck(download::check::Options),
    /// ROUTE_TABLE's producer and consumer over Redis without daemons, alone, together and beside other
    /// requests: the route-download document's "Redis Performance"
    StateTables(download::state_tables::Options),
    /// orchagent's -b and -k: speed, and the latency of an urgent route and of a link event under load
    BatchSizes(download::sizes::Options),
}

/// Runs the command.
pub(crate) fn run(bench: &Bench) -> Result<(), String> {
    let Bench::Run { suite } = bench else { return write_stdout(&list()) };
    let measured = match suite {
        Suite::Bgp(options) => bgp::run(options),
        Suite::Kernel(options) => kernel::run(options),
        Suite::NexthopCache(options) => nexthop::run(options),
        Suite::RouteDownload(options) => download::run(options),
        Suite::Transport(options) => download::transport::run(options),
        Suite::Loading(options) => download::loading::run(options),
        Suite::Everything(options) => download::everything::run(options),
        Suite::RouteCheck(options) => download::check::run(options),
        Suite::StateTables(options) => download::state_tables::run(options),
        Suite::BatchSizes(options) => download::sizes::run(options),
    };
    measured.map_err(|e| e.to_string())
}

fn list() -> String {
    let mut out = String::new();
    let about = |command: &clap::Command| command.get_about().map(ToString::to_string).unwrap_or_default();
    for suite in Names::command().get_subcommands() {
        out += &format!("{}: {}\n", suite.get_name(), about(suite));
    }
    out += "\nworkloads of bgp (--work):\n";
    out += &values::<bgp::workload::BgpWorkload>();
    out += "\nworkloads of nexthop-cache (--work):\n";
    out += &values::<nexthop::NexthopWorkload>();
    out += "\nwhat nexthop-cache measures (--dut):\n";
    out += &values::<nexthop::Subject>();
    out += "\ncombinations of route-download (--dut):\n";
    out += &values::<download::Combination>();
    out += "\nworkloads of route-download (--work):\n";
    out += &values::<download::Work>();
    out += "\nworkloads of transport (--work):\n";
    out += &values::<download::transport::TransportWorkload>();
    out += "\nfeature sets of transport (--dut):\n";
    out += &values::<download::transport::FeatureSet>();
    out += "\nwhat loading measures (--dut):\n";
    out += &values::<download::loading::When>();
    out += "\ntransports of everything (--dut):\n";
    out += &values::<download::everything::Transports>();
    out += "\nrouters of bgp (--dut):\n";
    for dut in ["ribtide", "bird", "frr", "gobgp", "openbgpd"] {
        let version = dut.parse::<bgp::dut::Dut>().and_then(|dut| dut.version());
        out += &format!("  {dut:<10} {}\n", version.unwrap_or_else(|why| why));
    }
    out
}

/// The values of an option, one per line.
fn values<T: ValueEnum>() -> String {
    let all = T::value_variants().iter().filter_map(ValueEnum::to_possible_value);
    all.map(|value| {
        let help = value.get_help().map(ToString::to_string).unwrap_or_default();
        format!("  {:<10} {help}\n", value.get_name())
    })
    .collect()
}

/// The suites alone, for their names.
#[derive(clap::Parser)]
struct Names {
    #[command(subcommand)]
    _suite: Suite,
}
