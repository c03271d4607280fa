//! `ribtide config` and `ribtide reload`: the running router, otherwise.

use crate::client::Client;
use crate::show::Output;
use crate::text;
use clap::Subcommand;
use ribtide_daemon::api::model::{
    AsicFaults, Auto, NextHopCacheSet, Reloaded, Resize, Resized, SetNextHopCache, SetSuppression,
    ShardCount, SuppressionSet,
};
use serde::Serialize;
use std::fmt::Display;

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
    #[command(subcommand)]
    Asic(ConfigAsic),
}

/// What to change of the RIB manager.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigFib {
    /// Advertise only what every dataplane has confirmed, or BGP's best paths at once; no session ends
    SuppressFibPending {
        /// on or off
        #[arg(value_parser = ["on", "off"])]
        on: String,
    },
    /// Resolve next hops another way; what they resolve to stays
    NexthopCache {
        /// off: for each route; epoch: for each group after any event; dependency: where an event may have changed something
        #[arg(value_parser = ["off", "epoch", "dependency"])]
        mode: String,
    },
}

/// What to change of the virtual ASIC.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigAsic {
    /// Refuse routes of these prefixes: a fault on demand
    Refuse {
        /// The prefixes
        #[arg(required = true)]
        prefixes: Vec<String>,
    },
    /// Take them again; what was refused is tried again
    Take {
        /// The prefixes
        #[arg(required = true)]
        prefixes: Vec<String>,
    },
}

/// What to change of BGP.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ConfigBgp {
    /// Spread the routes over another number of threads; sessions and routes stay
    Shards {
        /// 1 to 64, or auto: one for each core
        #[arg(value_name = "N|auto", value_parser = shards)]
        number: ShardCount,
    },
}

fn shards(text: &str) -> Result<ShardCount, String> {
    match text {
        "auto" => Ok(ShardCount::Word(Auto::Auto)),
        "off" => {
            Err("only a restart leads to no shard threads; set bgp.shards = \"off\" in the configuration"
                .into())
        }
        _ => text.parse().map(ShardCount::Number).map_err(|_| "write 1 to 64, or auto".into()),
    }
}

/// Runs `ribtide config`.
pub(crate) fn config(what: &Config, output: &Output) -> Result<(), String> {
    let client = Client::new(&output.socket);
    match what {
        Config::Bgp(ConfigBgp::Shards { number }) => {
            let request = Resize { shards: *number };
            say(output, &client.post::<_, Resized>("/v1/bgp/shards", &request)?)
        }
        Config::Fib(ConfigFib::SuppressFibPending { on }) => {
            let request = SetSuppression { suppress_fib_pending: on == "on" };
            say(output, &client.post::<_, SuppressionSet>("/v1/fib/suppression", &request)?)
        }
        Config::Asic(what) => {
            let (prefixes, refuse) = match what {
                ConfigAsic::Refuse { prefixes } => (prefixes.clone(), true),
                ConfigAsic::Take { prefixes } => (prefixes.clone(), false),
            };
            let request = AsicFaults { prefixes, refuse };
            say(output, &client.post::<_, AsicFaults>("/v1/asic/faults", &request)?)
        }
        Config::Fib(ConfigFib::NexthopCache { mode }) => {
            let request = SetNextHopCache { mode: mode.clone() };
            say(output, &client.post::<_, NextHopCacheSet>("/v1/nexthop-cache", &request)?)
        }
    }
}

/// Runs `ribtide reload`.
pub(crate) fn reload(output: &Output) -> Result<(), String> {
    say(output, &Client::new(&output.socket).post::<_, Reloaded>("/v1/reload", &())?)
}

fn say<T: Serialize + Display>(output: &Output, answer: &T) -> Result<(), String> {
    if output.json {
        let json = serde_json::to_string_pretty(answer).map_err(|e| e.to_string())?;
        return text::say(&format!("{json}\n"));
    }
    text::say(&format!("{answer}\n"))
}
