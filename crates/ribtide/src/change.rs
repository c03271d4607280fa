//! `ribtide config` and `ribtide reload`: changes of the running router.

use crate::client::Client;
use crate::show::{Output, asic};
use clap::builder::{PossibleValue, PossibleValuesParser};
use clap::{Args, Subcommand};
use ribtide_model::{
    AsicFaults, NextHopCacheSet, Reloaded, Resize, Resized, SetAsic, SetNextHopCache, SetSuppression,
    ShardCount, ShardWord, SuppressionSet,
};
use ribtide_sonicd::config_db;
use ribtide_sonicd::syncd::chip_setting;
use serde::Serialize;
use std::fmt::Display;
use std::path::PathBuf;

/// What to change.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Config {
    /// BGP
    #[command(subcommand)]
    Bgp(ConfigBgp),
    /// The RIB manager
    #[command(subcommand)]
    Fib(ConfigFib),
    /// The virtual ASIC
    Asic(ConfigAsic),
    /// CONFIG_DB of a SONiC switch, as SONiC's `config` commands; most daemons read it at the start
    Sonic {
        /// The setting
        #[arg(value_enum)]
        setting: config_db::Switch,
        /// enable or disable
        #[arg(value_parser = PossibleValuesParser::new([
            PossibleValue::new("enable").alias("enabled"),
            PossibleValue::new("disable").alias("disabled"),
        ]))]
        state: String,
        /// SONiC's database_config.json, if not in its usual place
        #[arg(long, value_name = "FILE")]
        database_config: Option<PathBuf>,
    },
}

/// What to change of the RIB manager.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigFib {
    /// Advertise routes after every dataplane has confirmed them (on), or at once (off); sessions stay up
    SuppressFibPending {
        /// on or off
        #[arg(value_parser = ["on", "off"])]
        on: String,
    },
    /// Change the mode of the resolution cache; no route changes
    NexthopCache {
        /// Next hops are resolved again off: for each route; epoch: for each group after any event; dependency: for groups that an event may change
        #[arg(value_parser = ["off", "epoch", "dependency"])]
        mode: String,
    },
}

/// What to change of the virtual ASIC.
#[derive(Clone, Debug, Args)]
pub(crate) struct ConfigAsic {
    #[command(subcommand)]
    what: AsicChange,
    /// The virtual switch of the syncd with this --query-socket, instead of the router's
    #[arg(long, global = true, value_name = "PATH")]
    syncd: Option<PathBuf>,
    /// The name of the virtual ASIC, if the router has several
    #[arg(long, global = true, value_name = "NAME", conflicts_with = "syncd")]
    asic: Option<String>,
}

/// A change of the virtual ASIC.
#[derive(Clone, Debug, Subcommand)]
enum AsicChange {
    /// Refuse routes of these prefixes, for tests
    Refuse {
        /// The prefixes
        #[arg(required = true)]
        prefixes: Vec<String>,
    },
    /// Accept routes of these prefixes again; refused ones are retried
    Take {
        /// The prefixes
        #[arg(required = true)]
        prefixes: Vec<String>,
    },
    /// Change the size of tables, the failures and the delays of the chip
    ///
    /// `ribtide show asic` prints all settings; docs/configuration.md describes them.
    Set {
        /// The settings, such as rate=20000, ipv4-routes=1000, fail-rate=0.01
        #[arg(required = true, value_name = "NAME=VALUE", value_parser = chip_setting)]
        settings: Vec<(String, String)>,
    },
    /// Stop the chip, for some seconds or until `resume`
    Stall {
        /// Seconds
        seconds: Option<f64>,
    },
    /// Start a stalled chip again
    Resume,
}

impl AsicChange {
    /// Its settings for the API.
    fn settings(&self) -> Option<Vec<(String, String)>> {
        let stall = |value: String| Some(vec![("stall".into(), value)]);
        match self {
            AsicChange::Refuse { .. } | AsicChange::Take { .. } => None,
            AsicChange::Set { settings } => Some(settings.clone()),
            AsicChange::Stall { seconds } => stall(seconds.map_or("on".into(), |s| s.to_string())),
            AsicChange::Resume => stall("off".into()),
        }
    }
}

fn change_asic(what: &ConfigAsic, output: &Output, client: &Client) -> Result<(), String> {
    let (word, prefixes) = match &what.what {
        AsicChange::Refuse { prefixes } => ("refuse", &prefixes[..]),
        AsicChange::Take { prefixes } => ("take", &prefixes[..]),
        _ => ("set", &[][..]),
    };
    let settings = what.what.settings();
    if let Some(path) = &what.syncd {
        let settings = settings.iter().flatten().map(|(name, value)| format!(" {name}={value}"));
        let words = prefixes.iter().map(|prefix| format!(" {prefix}")).chain(settings);
        let reply = asic::of_syncd(path, &format!("{word}{}", words.collect::<String>()))?;
        return output.print(&reply, asic::state);
    }
    match settings {
        Some(set) => {
            let set = SetAsic { asic: what.asic.clone(), set: set.into_iter().collect() };
            output.print(&client.post("/v1/asic", &set)?, asic::state)
        }
        None => {
            let request = AsicFaults {
                asic: what.asic.clone(),
                prefixes: prefixes.to_vec(),
                refuse: word == "refuse",
                alter: Vec::new(),
            };
            print(output, &client.post::<_, AsicFaults>("/v1/asic/faults", &request)?)
        }
    }
}

/// What to change of BGP.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigBgp {
    /// Change the number of shard threads; sessions and routes stay
    Shards {
        /// 1 to 64; auto: one for each core; off: the session thread runs the readers and one shard
        #[arg(value_name = "N|auto|off", value_parser = shards)]
        number: ShardCount,
    },
}

fn shards(text: &str) -> Result<ShardCount, String> {
    match text {
        "auto" => Ok(ShardCount::Word(ShardWord::Auto)),
        "off" => Ok(ShardCount::Word(ShardWord::Off)),
        _ => text.parse().map(ShardCount::Number).map_err(|_| "write 1 to 64, auto or off".into()),
    }
}

/// Runs `ribtide config`.
pub(crate) fn config(what: &Config, output: &Output) -> Result<(), String> {
    let client = Client::of(output)?;
    match what {
        Config::Bgp(ConfigBgp::Shards { number }) => {
            let request = Resize { shards: *number };
            print(output, &client.post::<_, Resized>("/v1/bgp/shards", &request)?)
        }
        Config::Fib(ConfigFib::SuppressFibPending { on }) => {
            let request = SetSuppression { suppress_fib_pending: on == "on" };
            print(output, &client.post::<_, SuppressionSet>("/v1/fib/suppression", &request)?)
        }
        Config::Sonic { setting, state, database_config } => {
            let on = state.starts_with("enable");
            print(
                output,
                &config_db::set(*setting, on, database_config.as_deref()).map_err(|e| e.to_string())?,
            )
        }
        Config::Asic(what) => change_asic(what, output, &client),
        Config::Fib(ConfigFib::NexthopCache { mode }) => {
            let request = SetNextHopCache { mode: mode.clone() };
            print(output, &client.post::<_, NextHopCacheSet>("/v1/nexthop-cache", &request)?)
        }
    }
}

/// Runs `ribtide reload`.
pub(crate) fn reload(output: &Output) -> Result<(), String> {
    print(output, &Client::of(output)?.post::<_, Reloaded>("/v1/reload", &serde_json::Map::new())?)
}

fn print<T: Serialize + Display>(output: &Output, reply: &T) -> Result<(), String> {
    output.print(reply, |reply| format!("{reply}\n"))
}
