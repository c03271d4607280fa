//! Options that SONiC's scripts give their daemons and that have nothing to do here: each is taken, so that a stock call
//! starts the daemon, and `show pipeline --sonic` says why it does nothing. And SONiC's context file, which is obeyed.

use super::settings::Settings;
use super::south::Mode;
use super::{Error, log};
use clap::Args;
use clap::builder::PossibleValuesParser;
use serde::Deserialize;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// orchagent's.
#[derive(Args, Clone, Debug)]
pub struct OrchagentStock {
    /// SONiC's name of the chip on a machine with several; here there is one virtual switch
    #[arg(short = 'i', value_name = "ID")]
    pub chip: Option<String>,
    /// SONiC's VRF of its ZeroMQ server, which SONiC's does not go by either; -q says where it listens
    #[arg(short = 'v', value_name = "VRF")]
    pub vrf: Option<String>,
    /// SONiC's way of counting packets, of which a virtual switch has none
    #[arg(short = 'c', value_name = "MODE", value_parser = PossibleValuesParser::new(["traditional", "asic_db"]))]
    pub counters: Option<String>,
    /// SONiC's switch for the self-test of MACsec, which is not of the route path
    #[arg(short = 'M')]
    pub macsec: bool,
}

impl OrchagentStock {
    pub(super) fn note(&self, settings: &mut Settings) {
        let mut none = |name, given: Option<&str>, why| {
            if let Some(given) = given {
                settings.note(name, given, "none", why);
            }
        };
        none("-i", self.chip.as_deref(), "there is one virtual switch");
        none(
            "-v",
            self.vrf.as_deref(),
            "SONiC's ZeroMQ server does not go by it either; -q says where it listens",
        );
        none("-c", self.counters.as_deref(), "a virtual switch counts no packets");
        none("-M", self.macsec.then_some("given"), "MACsec is not of the route path");
    }
}

/// syncd's.
#[derive(Args, Clone, Debug)]
pub struct SyncdStock {
    /// Do not sleep after a failure, which ribtide never does
    #[arg(short = 'S', long = "disableExitSleep")]
    pub no_sleep: bool,
    /// SONiC's switch for tests of its own metadata
    #[arg(short = 'U', long = "enableUnittests")]
    pub unit_tests: bool,
    /// SONiC's switch for a comparison of ASIC_DB with the chip after a view is applied
    #[arg(short = 'C', long = "enableConsistencyCheck")]
    pub consistency: bool,
    /// SONiC's file of objects that a new view removes before it makes others
    #[arg(short = 'b', long = "breakConfig", value_name = "FILE")]
    pub break_first: Option<PathBuf>,
    /// SONiC's groups of counters that are read in bulks, of which a virtual switch has none
    #[arg(short = 'B', long = "supportingBulkCounters", value_name = "GROUPS")]
    pub bulk_counters: Option<String>,
    /// SONiC's switch for finding out the counters of each port
    #[arg(short = 'G', long = "enablePerPortCounterDiscovery")]
    pub port_counters: bool,
    /// SONiC's switch for leaving out attributes that are newer than the chip's library
    #[arg(short = 'a', long = "enableAttrVersionCheck")]
    pub versions: bool,
}

impl SyncdStock {
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
        none("-b", file.as_deref(), "none", "a new view always removes routes before what they stand on");
        let counters = "a virtual switch counts no packets";
        none("-B", self.bulk_counters.as_deref(), "none", counters);
        none("-G", given(self.port_counters), "none", counters);
        none("-a", given(self.versions), "none", "every attribute of the route path is in every version");
    }
}

/// How long requests may take before syncd says so, as SONiC's watchdog does.
#[derive(Args, Clone, Copy, Debug)]
pub struct Watchdog {
    /// Say when the switch takes longer than this for a request
    #[arg(
        short = 'w',
        long = "watchdogWarnTimeSpan",
        value_name = "MICROSECONDS",
        default_value_t = 30_000_000
    )]
    pub warn: u64,
    /// The same until the first view is applied; without it as -w
    #[arg(short = 'W', long = "watchdogInitTimeSpan", value_name = "MICROSECONDS")]
    pub warn_at_start: Option<u64>,
}

impl Watchdog {
    /// The time for a request, until the first view is applied or after.
    pub(super) fn span(&self, starting: bool) -> Duration {
        Duration::from_micros(if starting { self.warn_at_start.unwrap_or(self.warn) } else { self.warn })
    }
}

/// SONiC's context_config.json.
#[derive(Args, Clone, Debug)]
pub struct ContextFile {
    /// SONiC's context_config.json: whether requests come over ZeroMQ, and where
    #[arg(short = 'x', long = "contextContig", alias = "contextConfig", value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// The context of that file that is this one
    #[arg(short = 'g', long = "globalContext", value_name = "NUMBER", default_value_t = 0)]
    pub number: u32,
}

#[derive(Deserialize)]
struct Contexts {
    #[serde(rename = "CONTEXTS")]
    contexts: Vec<Context>,
}

/// What a context says of the route path.
#[derive(Deserialize, Default, PartialEq, Debug)]
pub(super) struct Context {
    guid: u32,
    #[serde(rename = "dbAsic", default = "asic_db")]
    db_asic: String,
    zmq_enable: Option<bool>,
    pub(super) zmq_endpoint: Option<String>,
}

fn asic_db() -> String {
    "ASIC_DB".into()
}

impl ContextFile {
    /// The context; SONiC's default one without a file, or when there is no such file, as in SONiC.
    pub(super) fn read(&self, daemon: &str) -> Result<Context, Error> {
        let Some(file) = &self.file else { return Ok(Context::default()) };
        match std::fs::read_to_string(file) {
            Ok(text) => self.find(file, &text),
            Err(e) => {
                log(daemon, &format!("no context file, so the default context: {}: {e}", file.display()));
                Ok(Context::default())
            }
        }
    }

    fn find(&self, file: &Path, text: &str) -> Result<Context, Error> {
        let (file, number) = (file.display(), self.number);
        let all: Contexts = serde_json::from_str(text)
            .map_err(|e| Error::new(format!("{file} is not a context_config.json of SONiC: {e}")))?;
        let context = all.contexts.into_iter().find(|context| context.guid == number).ok_or_else(|| {
            Error::new(format!("{file} has no context {number}; name one that it has with -g"))
        })?;
        if context.db_asic != asic_db() {
            return Err(Error::new(format!(
                "context {number} of {file} keeps its objects in {}; ribtide's syncd keeps them in ASIC_DB only: give it a \
                 database_config.json in which ASIC_DB is that database, and a context that says ASIC_DB",
                context.db_asic
            )));
        }
        Ok(context)
    }
}

impl Context {
    /// The mode of the command line as this context changes it.
    pub(super) fn mode(&self, asked: Mode) -> Mode {
        match self.zmq_enable {
            Some(true) if !asked.is_zmq() => Mode::ZmqSync,
            Some(false) if asked.is_zmq() => Mode::RedisSync,
            _ => asked,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_context_is_found_and_obeyed() {
        let text = r#"{"CONTEXTS": [
            {"guid": 0, "name": "syncd", "dbAsic": "ASIC_DB", "dbState": "STATE_DB", "zmq_enable": true,
             "zmq_endpoint": "tcp://127.0.0.1:5565", "switches": [{"index": 0, "hwinfo": ""}]},
            {"guid": 1, "name": "gb", "dbAsic": "GB_ASIC_DB", "zmq_enable": false},
            {"guid": 2, "name": "third", "zmq_enable": false},
            {"guid": 3, "name": "fourth"}]}"#;
        let find = |number, text| ContextFile { file: None, number }.find(Path::new("contexts"), text);
        let first = find(0, text).unwrap();
        assert_eq!(first.zmq_endpoint.as_deref(), Some("tcp://127.0.0.1:5565"));
        assert_eq!(
            [Mode::RedisSync, Mode::ZmqAsync].map(|mode| first.mode(mode)),
            [Mode::ZmqSync, Mode::ZmqAsync]
        );
        let third = find(2, text).unwrap();
        assert_eq!(
            [Mode::RedisAsync, Mode::ZmqSync].map(|mode| third.mode(mode)),
            [Mode::RedisAsync, Mode::RedisSync]
        );
        let fourth = find(3, text).unwrap();
        assert_eq!(
            [Mode::RedisAsync, Mode::ZmqSync].map(|mode| fourth.mode(mode)),
            [Mode::RedisAsync, Mode::ZmqSync]
        );
        let says = |number, text| find(number, text).unwrap_err().to_string();
        assert!(says(1, text).contains("GB_ASIC_DB"));
        assert!(says(9, text).contains("has no context 9"));
        assert!(says(0, "[]").contains("contexts is not a context_config.json"));
        let missing = ContextFile { file: Some("/nowhere/context_config.json".into()), number: 0 };
        assert_eq!(missing.read("syncd").unwrap(), Context::default());
    }
}
