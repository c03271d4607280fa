//! Options that SONiC's scripts give their daemons and that ribtide's daemons ignore. Each is parsed, so that a stock
//! command line starts the daemon, and `show pipeline --sonic` says why it has no effect.
//!
//! The options are those of `orchagent/main.cpp` (sonic-swss) and `syncd/CommandLineOptionsParser.cpp` (sonic-sairedis).

use super::settings::Settings;
use clap::Args;
use clap::builder::PossibleValuesParser;
use std::path::PathBuf;

/// orchagent's ignored options.
#[derive(Args, Clone, Debug)]
pub struct OrchagentIgnored {
    /// No effect: the name of the chip on a machine with several chips. There is one virtual switch
    #[arg(short = 'i', value_name = "ID")]
    pub chip: Option<String>,
    /// No effect, as in SONiC: the VRF of the ZeroMQ server. -q has its endpoint
    #[arg(short = 'v', value_name = "VRF")]
    pub vrf: Option<String>,
    /// No effect: how packets are counted. The virtual switch counts no packets
    #[arg(short = 'c', value_name = "MODE", value_parser = PossibleValuesParser::new(["traditional", "asic_db"]))]
    pub counters: Option<String>,
    /// No effect: the self-test of MACsec, which is outside of the route path
    #[arg(short = 'M')]
    pub macsec: bool,
}

impl OrchagentIgnored {
    pub(super) fn note(&self, settings: &mut Settings) {
        let mut none = |name, given: Option<&str>, why| {
            if let Some(given) = given {
                settings.note(name, given, "none", why);
            }
        };
        none("-i", self.chip.as_deref(), "there is one virtual switch");
        none("-v", self.vrf.as_deref(), "SONiC's ZeroMQ server ignores it too; -q says where it listens");
        none("-c", self.counters.as_deref(), "a virtual switch counts no packets");
        none("-M", self.macsec.then_some("given"), "MACsec is not of the route path");
    }
}

/// syncd's ignored options.
#[derive(Args, Clone, Debug)]
pub struct SyncdIgnored {
    /// No effect: do not sleep after a failure. This syncd never does
    #[arg(short = 'S', long = "disableExitSleep")]
    pub no_sleep: bool,
    /// No effect: SONiC's tests of its SAI metadata
    #[arg(short = 'U', long = "enableUnittests")]
    pub unit_tests: bool,
    /// No effect: the comparison of ASIC_DB with the chip after a view is applied. --reconcile-interval
    /// compares them all the time
    #[arg(short = 'C', long = "enableConsistencyCheck")]
    pub consistency: bool,
    /// No effect: a file of objects that a new view removes before it creates others
    #[arg(short = 'b', long = "breakConfig", value_name = "FILE")]
    pub break_first: Option<PathBuf>,
    /// No effect: groups of counters that are read in bulks. The virtual switch has none
    #[arg(short = 'B', long = "supportingBulkCounters", value_name = "GROUPS")]
    pub bulk_counters: Option<String>,
    /// No effect: discovery of the counters of each port
    #[arg(short = 'G', long = "enablePerPortCounterDiscovery")]
    pub port_counters: bool,
    /// No effect: the check for attributes that are newer than the chip's library
    #[arg(short = 'a', long = "enableAttrVersionCheck")]
    pub versions: bool,
}

impl SyncdIgnored {
    pub(super) fn note(&self, settings: &mut Settings) {
        let mut none = |name, given: Option<&str>, active, why| {
            if let Some(given) = given {
                settings.note(name, given, active, why);
            }
        };
        let given = |given: bool| given.then_some("given");
        none("-S", given(self.no_sleep), "given", "");
        none("-U", given(self.unit_tests), "none", "there are no tests in the daemon");
        none(
            "-C",
            given(self.consistency),
            "none",
            "`ribtide syncd --query-socket` answers what the switch has",
        );
        let file = self.break_first.as_ref().map(|file| file.display().to_string());
        none(
            "-b",
            file.as_deref(),
            "none",
            "a new view always removes routes before the objects that they use",
        );
        let counters = "a virtual switch counts no packets";
        none("-B", self.bulk_counters.as_deref(), "none", counters);
        none("-G", given(self.port_counters), "none", counters);
        none("-a", given(self.versions), "none", "every attribute of the route path is in every version");
    }
}
