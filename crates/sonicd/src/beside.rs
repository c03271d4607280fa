//! Mode `beside`: SONiC's orchagent behind ribtide's, which is the only client of syncd.
//!
//! A thread has the state machine ([`ribtide_swss::beside::Beside`]) between three sides: SONiC's
//! orchagent ([`front`]), ribtide's, and syncd. So a request of SONiC's orchagent does not wait for
//! rows of routes.

mod front;
mod names;
mod records;
mod routeorch;
mod stage;

pub(super) use records::RecordedVids;
pub(super) use routeorch::RouteOrchRows;
pub(super) use stage::{FromOrch, LearnedRows, start};

use super::config_db::ConfigDb;
use super::{Daemon, Error};
use clap::Args;
use ribtide_settings::Mode;
use ribtide_swss::Db;
use ribtide_tables::zmq::Endpoint;

/// The options of mode `beside`.
#[derive(Args, Clone, Debug)]
pub struct BesideOptions {
    /// Run beside SONiC's orchagent, which is connected to this one as if it were syncd: zmq_sync or
    /// redis_sync, as that orchagent's -z
    #[arg(long, value_name = "MODE")]
    pub beside: Option<Mode>,
    /// The endpoint on which SONiC's orchagent sends requests over ZeroMQ (zmq_endpoint of its
    /// context_config.json)
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://127.0.0.1:5565")]
    pub beside_requests: String,
    /// The endpoint on which SONiC's orchagent listens for notifications over ZeroMQ (zmq_ntf_endpoint of
    /// its context_config.json)
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://127.0.0.1:5566")]
    pub beside_notifications: String,
    /// The database of SONiC's orchagent over Redis (dbAsic of its context_config.json)
    #[arg(long, value_name = "DATABASE", default_value = "BESIDE_ASIC_DB")]
    pub beside_db: String,
    /// The endpoint on which SONiC's orchagent takes rows of routes (-q). ribtide sends those that it does
    /// not program
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://127.0.0.1:8300")]
    pub beside_routes: String,
}

/// The other side of mode `beside`.
pub(super) enum Client {
    Zmq { requests: Endpoint, notifications: Endpoint },
    Redis { database: ribtide_tables::Database, notifications: String },
}

/// What mode `beside` needs.
pub(super) struct BesideTransports {
    pub(super) client: Client,
    /// The transport to syncd, and its endpoints over ZeroMQ.
    pub(super) mode: Mode,
    pub(super) syncd: Endpoint,
    pub(super) syncd_notifications: Endpoint,
    /// Requests of ribtide's orchagent at syncd at most.
    pub(super) window: usize,
    /// RouteOrch's endpoint.
    pub(super) routes: Endpoint,
}

fn endpoint(option: &str, text: &str, port: u16) -> Result<Endpoint, Error> {
    Endpoint::parse(text, port).map_err(|e| Error::Configuration(format!("{option}: {e}")))
}

impl BesideTransports {
    /// The transports of the command line, if it has the mode. `notifications`: the endpoint on which syncd
    /// sends notifications over ZeroMQ.
    ///
    /// # Errors
    /// A sentence for the operator: what cannot work beside SONiC's orchagent, or an option that
    /// does not parse.
    pub(super) fn of(
        options: &BesideOptions,
        (mode, syncd, window): (Mode, &Endpoint, usize),
        notifications: Endpoint,
        config_file: Option<&std::path::Path>,
        config: &mut ConfigDb,
        daemon: &Daemon,
    ) -> Result<Option<BesideTransports>, Error> {
        let Some(client) = options.beside else { return Ok(None) };
        refuse(mode, client, config, daemon)?;
        let client = match client {
            Mode::ZmqSync => Client::Zmq {
                requests: endpoint("--beside-requests", &options.beside_requests, 5565)?,
                notifications: endpoint("--beside-notifications", &options.beside_notifications, 5566)?,
            },
            _ => Client::Redis {
                database: ribtide_tables::Databases::named(config_file, &options.beside_db, Db::Asic)?,
                // sonic-sairedis, `lib/RedisChannel.cpp`.
                notifications: match options.beside_db.as_str() {
                    "ASIC_DB" => return Err(Error::Configuration(
                        "--beside-db ASIC_DB is syncd's own queue, which has one client; give SONiC's orchagent \
                         another database (dbAsic of its context_config.json)".into(),
                    )),
                    name => format!("{name}_NOTIFICATIONS"),
                },
            },
        };
        Ok(Some(BesideTransports {
            client,
            mode,
            syncd: syncd.clone(),
            syncd_notifications: notifications,
            window,
            routes: endpoint("--beside-routes", &options.beside_routes, 8300)?,
        }))
    }
}

/// Refuses what cannot work.
fn refuse(mode: Mode, client: Mode, config: &mut ConfigDb, daemon: &Daemon) -> Result<(), Error> {
    if !matches!(client, Mode::ZmqSync | Mode::RedisSync) {
        return Err(Error::Configuration(format!(
            "--beside {client}: SONiC's orchagent would not wait for replies, and those of ribtide's requests would \
             be taken for them; give both zmq_sync or redis_sync"
        )));
    }
    if mode == Mode::RedisAsync {
        return Err(Error::Configuration(
            "--beside needs a syncd that replies to each request; give both daemons -s or -z zmq_sync".into(),
        ));
    }
    if !config.routes_over_zmq()? {
        return Err(Error::Configuration(
            "--beside: SONiC's RouteOrch would take rows of ROUTE_TABLE out of Redis before ribtide does; set \
             SYSTEM_DEFAULTS|swss_zmq of CONFIG_DB to enabled, and give SONiC's orchagent -q with an endpoint of its \
             own (--beside-routes)".into(),
        ));
    }
    let mut has_mux = false;
    let pattern = daemon.databases.get(Db::Config).key("MUX_CABLE", "*");
    daemon.connect(Db::Config)?.scan(&pattern, |_, names| {
        has_mux |= !names.is_empty();
        Ok(())
    })?;
    if has_mux {
        return Err(Error::Configuration(
            "--beside: CONFIG_DB has MUX_CABLE. Dual-ToR mux moves routes through SONiC's RouteOrch, which programs \
             none in this mode; run SONiC's orchagent alone on this device".into(),
        ));
    }
    Ok(())
}
