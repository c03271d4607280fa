//! `ribtide show …`, `ribtide explain` and `ribtide clear`: the API's replies as text or JSON.

mod advertised;
pub(crate) mod asic;
mod attributes;
mod bfd;
mod bgp;
mod fib;
mod filters;
mod interface;
mod lists;
mod messages;
mod monitoring;
mod nexthop;
mod origination;
mod page_text;
mod performance;
mod printer;
mod received;
mod route;
mod rpki;
mod running;
#[cfg(feature = "router")]
pub(crate) mod screen;
mod threads;
mod version;
mod vrf;

use crate::client::Client;
use crate::text::{count, fold};
use clap::{Args, Subcommand, ValueEnum};
pub(crate) use fib::explain_text;
use filters::{Attributes, Paths, Payloads, Refused, Selected};
use lists::{advertised, aspas, failed, fib, payloads, received, routes, routes_in_detail, shard_routes};
use printer::{Printed, Printer};
use ribtide_model::{
    AsicAddresses, AsicLookups, BgpSummary, Explain, GroupTotals, Groups, Health, Neighbor, NeighborPage,
    NextHopGroupPage, Performance,
};
use ribtide_sonicd::{
    explain as sonic_explain, health as sonic_health, performance as sonic_performance,
    pipeline as sonic_pipeline,
};
use running::Events;
pub(crate) use running::{Followed, monitor};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Neighbours of one request.
const NEIGHBORS: usize = 128;
/// Next-hop groups of one request.
const GROUPS: usize = 32;

/// The router that a command is about: its socket, or its address.
#[derive(Clone, Debug, Args)]
pub(crate) struct Place {
    /// The router's Unix socket (api.socket in its configuration)
    #[arg(long, global = true, default_value = "/run/ribtide/ribtide.sock", value_name = "PATH")]
    pub(crate) socket: PathBuf,
    /// The API of a router on another host instead: https://HOST:PORT, or http://HOST:PORT without TLS
    #[cfg(feature = "router")]
    #[arg(long, global = true, value_name = "URL", conflicts_with = "socket")]
    pub(crate) api: Option<String>,
    /// With --api: a PEM file with the CA of its certificate; otherwise those of the system
    #[cfg(feature = "router")]
    #[arg(long, global = true, value_name = "FILE", requires = "api")]
    pub(crate) ca: Option<PathBuf>,
    /// With --api: a file with the token of its api.token-file, or of api.read-token-file for reads
    #[cfg(feature = "router")]
    #[arg(long, global = true, value_name = "FILE", requires = "api")]
    pub(crate) token_file: Option<PathBuf>,
}

/// The router and the output format.
#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Print JSON: one document, or one per line where the output is a list of routes
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// Whether a command is about SONiC's daemons, and where their databases are.
#[derive(Clone, Debug, Args)]
pub(crate) struct Sonic {
    /// Ask SONiC's daemons instead of the router; every ASIC, unless NAMESPACE_ID names one
    #[arg(long)]
    pub(crate) sonic: bool,
    /// With --sonic: SONiC's database_config.json, if not in its usual place
    #[arg(long, value_name = "FILE", requires = "sonic")]
    pub(crate) database_config: Option<PathBuf>,
}

/// The object to show.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Show {
    /// BGP sessions and update groups
    #[command(subcommand)]
    Bgp(ShowBgp),
    /// BGP routes with all their paths, and the reason why each path is not the best
    ///
    /// Without a prefix, all routes. `*` marks the best path. The last line of a single prefix names the shard thread
    /// that owns it.
    #[command(args_conflicts_with_subcommands = true, alias = "routes")]
    Route {
        #[command(subcommand)]
        what: Option<ShowRoute>,
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
        #[command(flatten)]
        paths: Box<Paths>,
    },
    /// Selected routes with their next hops and their state in each dataplane
    Fib {
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
        /// Only this VRF; otherwise the default one
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
        #[command(flatten)]
        routes: Selected,
    },
    /// Next-hop groups: received and resolved next hops, users; and the counters of the resolution cache
    #[command(name = "nexthop-group", alias = "nexthop-groups")]
    NextHopGroup {
        /// Only this group, with all of its next hops
        id: Option<u32>,
        /// Only the groups of this VRF
        #[arg(long, value_name = "NAME", conflicts_with = "id")]
        vrf: Option<String>,
    },
    /// Interfaces: state, addresses, VRF, the BGP and BFD sessions on the link, and subnets that the kernel has no route to
    #[command(alias = "interfaces")]
    Interface {
        /// Only this interface, with each of its sessions
        name: Option<String>,
    },
    /// VRFs: the kernel's table and device, interfaces, and the number of routes
    #[command(alias = "vrfs")]
    Vrf,
    /// Static routes: whether each is used, or why not, and its next hops
    Static {
        /// Only those of this VRF
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
    },
    /// The version of the router, its uptime, and what the kernel has of the features that settings need
    Version,
    /// BFD sessions: state, negotiated intervals, packets, and the reason of the last loss
    Bfd {
        /// Only sessions with this neighbour
        address: Option<IpAddr>,
        /// Only sessions in this state: up, down, init, admin-down
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
    },
    /// Origin validation: RPKI caches, validated ROA payloads, validation states
    #[command(subcommand)]
    Rpki(ShowRpki),
    /// BMP stations: sessions, what they get, and what waits for them
    Bmp,
    /// MRT files: records, the last complete file, and errors
    Mrt,
    /// FPM servers: connection, sent routes, replies
    Fpm,
    /// The virtual ASIC: settings, entries and counters; or its forwarding decision for some addresses
    Asic {
        /// The addresses
        addresses: Vec<IpAddr>,
        /// Look the addresses up in this VRF; otherwise in the default one
        #[arg(long, value_name = "NAME", requires = "addresses")]
        vrf: Option<String>,
        /// The virtual switch of the syncd with this --query-socket, instead of the router's
        #[arg(long, value_name = "PATH", conflicts_with_all = ["addresses", "asic"])]
        syncd: Option<PathBuf>,
        /// The name of the virtual ASIC, if the router has several
        #[arg(long, value_name = "NAME")]
        asic: Option<String>,
    },
    /// The work of each stage, the queues between them, and the CPU time of each thread
    ///
    /// With --sonic: each setting of SONiC's daemons (requested value, active value, reason of a difference) and each
    /// queue (depth, bound, peak).
    Pipeline {
        #[command(flatten)]
        sonic: Sonic,
    },
    /// Whether work is stalled, and where, and whether RPKI data is missing; exit status 0: neither, 1: something is
    ///
    /// A queue is stalled when its consumer takes nothing for router.stall-timeout seconds, and a peer when a thread
    /// waits that long for it.
    Health {
        #[command(flatten)]
        sonic: Sonic,
    },
    /// Threads: current share of a CPU, CPU time, allowed CPUs; and the queues between them
    ///
    /// The current share is measured for half a second. A thread near 100% limits the router. A thread with much waiting
    /// time was runnable and had no CPU. The consumer of a full queue is too slow.
    Threads,
    /// The configuration in force: the text of the file as it was read, without secrets
    #[command(alias = "running-config")]
    Configuration,
    /// The latest events of the log, whatever became of standard error; 2,000 are kept
    Log {
        #[command(flatten)]
        events: Events,
        /// At most so many, the latest
        #[arg(short = 'n', long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=2000))]
        lines: u16,
    },
    /// The speed of each stage for its latest batches of 10,000 routes, and its idle time in between
    ///
    /// These are SONiC's PerformanceTimers. With one stage and --json each record is a line as SONiC logs it.
    Performance {
        /// Only this stage, record by record; with --sonic such as orchagent/DRAIN
        stage: Option<String>,
        #[command(flatten)]
        sonic: Sonic,
    },
}

/// What to show of BGP.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ShowBgp {
    /// Threading mode and totals, and a line for each neighbour
    Summary {
        /// Only neighbours in this state: up, down, or one of RFC 4271 such as active
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
    },
    /// One neighbour, or all: state, negotiated values, messages, routes, write queue
    #[command(alias = "neighbors")]
    Neighbor {
        /// Its address, its interface, or both as in fe80::1%swp1
        #[arg(conflicts_with_all = ["group", "update_thread"])]
        address: Option<String>,
        /// Its routes instead. `advertised`: what it is sent, with attributes as sent. `received`: what it sent, before
        /// import policy, `*` for what the policy accepts. `filtered`: what the policy rejects, with the statement that
        /// decided. The last two where routes are kept (keep-received). `messages`: not routes, but the last messages of
        /// both sides, and those before the last session was lost (bgp.recorder-bytes)
        #[arg(value_enum, requires = "address")]
        what: Option<View>,
        /// Only this prefix
        #[arg(requires = "what")]
        prefix: Option<String>,
        /// With `advertised`: also prefixes that it is not sent, each with the reason
        #[arg(long, requires = "what")]
        all: bool,
        /// With `received`: only routes that import policy accepted or rejected, or those of the validation state
        /// valid, invalid or not-found. Without routes: only neighbours in this state: up, down, or one of RFC 4271 such as
        /// active
        #[arg(long, value_name = "STATE")]
        state: Option<String>,
        /// With routes: every attribute of each
        #[arg(long, requires = "what")]
        detail: bool,
        #[command(flatten)]
        attributes: Box<Attributes>,
        /// Only neighbours of this group of the configuration
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
        /// Only neighbours of this update thread
        #[arg(long, value_name = "N")]
        update_thread: Option<usize>,
    },
    /// BGP routes with all their paths, as `ribtide show route`
    #[command(alias = "routes")]
    Route {
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
        #[command(flatten)]
        paths: Box<Paths>,
    },
    /// Update groups: members, update thread, and prefixes in each UPDATE
    #[command(aliases = ["groups", "update-group", "update-groups"])]
    Group {
        /// Only update groups with members of this configured group, or the update group with this number
        name: Option<String>,
        /// Only groups of this update thread
        #[arg(long, value_name = "N")]
        update_thread: Option<usize>,
    },
    /// Next hops of paths: state, cost, the resolving route, and how often they changed
    #[command(alias = "nexthops")]
    Nexthop {
        /// Only this next hop
        address: Option<IpAddr>,
    },
    /// Aggregates: whether each is originated, its contributors, and which of them it suppresses
    #[command(alias = "aggregates")]
    Aggregate,
}

/// A list of the routes of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum View {
    /// The Adj-RIB-Out.
    Advertised,
    /// The Adj-RIB-In before import policy.
    Received,
    /// Of these, the routes that import policy rejects.
    Filtered,
    /// The flight recorder.
    Messages,
}

/// What to show of origin validation.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ShowRpki {
    /// The caches: connection, version, serial number, records, and the time until they expire
    Caches,
    /// Validated ROA payloads in use
    Table(Payloads),
    /// ASPA records in use: customers and their providers
    Aspa {
        /// Only the record of this customer AS
        customer: Option<u32>,
        /// Only records with this provider AS
        #[arg(long, value_name = "ASN")]
        provider: Option<u32>,
    },
    /// The validation state of a prefix with an origin AS, and the payloads that cover it
    Validation {
        /// The prefix
        prefix: String,
        /// The origin AS; without one, NONE as of a path that ends in an AS_SET
        asn: Option<u32>,
    },
}

/// What to show of routes, other than the routes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ShowRoute {
    /// The number of routes: in total, of each VRF, and of each shard thread
    Summary,
    /// The selected routes of a VRF with their next hops and their state in each dataplane
    ///
    /// BGP routes are in the default VRF, whose name is `default`.
    Vrf {
        /// The VRF
        name: String,
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
        #[command(flatten)]
        routes: Selected,
    },
    /// Routes that a dataplane could not install, with the time and the reason; they are retried
    Failed(Refused),
    /// Shard threads and their shares of the routes, or the routes of one of them
    RibSharding {
        /// The number of a shard thread, or `main` for the table where routes are installed
        #[arg(value_name = "SHARD|main", value_parser = shard)]
        shard: Option<Shard>,
    },
}

/// The thread whose routes to show.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shard {
    Number(usize),
    Main,
}

fn shard(text: &str) -> Result<Shard, String> {
    if text == "main" {
        return Ok(Shard::Main);
    }
    let number = text.strip_prefix("shard-").unwrap_or(text).parse();
    number.map(Shard::Number).map_err(|_| "write the number of a shard thread such as 0, or main".into())
}

/// The object to clear.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Clear {
    /// BGP sessions
    #[command(subcommand)]
    Bgp(ClearBgp),
}

/// What to clear of BGP.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ClearBgp {
    /// One neighbour, or all
    Neighbor {
        /// Its address, its interface, both as in fe80::1%swp1, or `all`
        #[arg(value_name = "ADDRESS|all")]
        which: String,
        /// `soft`: keep the session, request its routes again and advertise ours again
        #[arg(value_parser = ["soft"])]
        soft: Option<String>,
        /// A text for the peer's operator (RFC 9003), at most 255 bytes
        #[arg(long, default_value = "", hide_default_value = true, conflicts_with = "soft")]
        message: String,
    },
}

/// Runs `ribtide clear`.
pub(crate) fn clear(what: &Clear, output: &Output) -> Result<(), String> {
    let Clear::Bgp(ClearBgp::Neighbor { which, soft, message }) = what;
    let all = which == "all";
    let address = match which.as_str() {
        "all" => None,
        name => Some(name.to_owned()),
    };
    let request = ribtide_model::Clear { address, all, soft: soft.is_some(), message: message.clone() };
    let reply: ribtide_model::Cleared = Client::of(output)?.post("/v1/bgp/clear", &request)?;
    output.print(&reply, |a| {
        let neighbors = count(a.neighbors as u64, "neighbour");
        match request.soft {
            true => format!("Routes are exchanged again with {neighbors}.\n"),
            false => format!("The sessions of {neighbors} are reset.\n"),
        }
    })
}

/// Runs `ribtide show`.
pub(crate) fn show(what: &Show, output: &Output) -> Result<(), String> {
    output.print_by(|to| match what {
        Show::Bgp(ShowBgp::Summary { state }) => summary(to, &query(&[("state", state.clone())])),
        Show::Bgp(ShowBgp::Neighbor { what: None, attributes, .. }) if !attributes.query(&[]).is_empty() => {
            let sentence =
                "filters are for lists of routes: write received, filtered or advertised after the neighbour";
            Err(sentence.to_owned().into())
        }
        Show::Bgp(ShowBgp::Neighbor {
            address: Some(a),
            what: Some(what),
            prefix,
            all,
            state,
            attributes,
            detail,
            ..
        }) => {
            let fields = [("prefix", prefix.clone()), ("state", state.clone())];
            let is_one = prefix.is_some() && attributes.is_exact();
            if *what == View::Messages {
                let takes_filter = !attributes.query(&fields).is_empty() || *all || *detail;
                return match takes_filter {
                    true => Err("messages takes neither a prefix nor a filter".to_owned().into()),
                    false => to.get(&format!("/v1/bgp/neighbors/{}/messages", escape(a)), |all| {
                        fold(&messages::recorded(all))
                    }),
                };
            }
            match (what, all, state) {
                (View::Advertised, _, Some(_)) => {
                    Err("--state is for received and filtered; --all has what is not sent".to_owned().into())
                }
                (View::Advertised, _, None) => {
                    let only =
                        attributes.query(&[&fields[..], &[("all", all.then(|| "true".into()))]].concat());
                    advertised(to, a, &only, is_one, *detail)
                }
                (_, true, _) => {
                    Err("--all is for advertised: received has all routes anyway".to_owned().into())
                }
                (View::Received, ..) => received(to, a, "received", &attributes.query(&fields), *detail),
                (View::Filtered | View::Messages, ..) => {
                    received(to, a, "filtered", &attributes.query(&fields), *detail)
                }
            }
        }
        Show::Bgp(ShowBgp::Neighbor { address: Some(_), state: Some(_), .. }) => {
            Err("--state is for all neighbours, or for a list of routes: write received after the neighbour"
                .to_owned()
                .into())
        }
        Show::Bgp(ShowBgp::Neighbor { address: Some(a), .. }) => {
            to.get(&format!("/v1/bgp/neighbors/{}", escape(a)), |n| fold(&bgp::neighbor(n)))
        }
        Show::Bgp(ShowBgp::Neighbor { address: None, group, update_thread, state, .. }) => {
            let (group, thread) = (group.clone(), text_of(*update_thread));
            neighbors(to, &query(&[("group", group), ("update-thread", thread), ("state", state.clone())]))
        }
        Show::Bgp(ShowBgp::Nexthop { address }) => {
            let only = query(&[("address", text_of(*address))]);
            to.get(&format!("/v1/bgp/nexthops?{only}"), nexthop::tracked)
        }
        Show::Bgp(ShowBgp::Aggregate) => to.get("/v1/bgp/aggregates", origination::aggregates),
        Show::Bgp(ShowBgp::Group { name, update_thread }) => {
            let only = query(&[("name", name.clone()), ("update-thread", text_of(*update_thread))]);
            let groups: Groups = to.client.get(&format!("/v1/bgp/groups?{only}"))?;
            to.print(&groups.groups, |groups| bgp::groups(groups))
        }
        Show::Route { what: Some(ShowRoute::Summary), .. } => to.get("/v1/routes/summary", route::summary),
        Show::Route { what: Some(ShowRoute::Failed(routes)), .. } => failed(to, &routes.query()),
        Show::Route { what: Some(ShowRoute::RibSharding { shard: None }), .. } => {
            to.get("/v1/routes/sharding", route::sharding)
        }
        Show::Route { what: Some(ShowRoute::RibSharding { shard: Some(Shard::Main) }), .. } => fib(to, ""),
        Show::Route { what: Some(ShowRoute::Vrf { name, prefix, routes }), .. } => {
            fib(to, &routes.query(&[("vrf", Some(name.clone())), ("prefix", prefix.clone())]))
        }
        Show::Route { what: Some(ShowRoute::RibSharding { shard: Some(Shard::Number(n)) }), .. } => {
            shard_routes(to, *n)
        }
        Show::Route { what: None, prefix, paths } | Show::Bgp(ShowBgp::Route { prefix, paths }) => {
            let is_one = prefix.is_some() && paths.attributes.is_exact();
            let only = paths.query(&[("prefix", prefix.clone())]);
            if paths.detail && !to.json { routes_in_detail(to, &only) } else { routes(to, &only, is_one) }
        }
        Show::Fib { prefix, vrf, routes } => {
            fib(to, &routes.query(&[("vrf", vrf.clone()), ("prefix", prefix.clone())]))
        }
        Show::Asic { syncd: Some(path), .. } => to.print(&asic::of_syncd(path, "chip")?, asic::state),
        Show::Asic { addresses, asic, .. } if addresses.is_empty() => {
            to.get(&format!("/v1/asic?{}", query(&[("asic", asic.clone())])), asic::state)
        }
        Show::Asic { addresses, vrf, asic, .. } => {
            let lookup = AsicAddresses { asic: asic.clone(), vrf: vrf.clone(), addresses: addresses.clone() };
            let reply: AsicLookups = to.client.post("/v1/asic/lookup", &lookup)?;
            to.print(&reply, |a| fib::asic_table(addresses, a))
        }
        Show::NextHopGroup { id: Some(id), .. } => {
            to.get(&format!("/v1/nexthop-groups?id={id}"), |page: &NextHopGroupPage| {
                let groups = page.groups.iter().map(|g| nexthop::group(&page.cache, g));
                nexthop::cache(&page.cache) + &groups.collect::<String>()
            })
        }
        Show::NextHopGroup { id: None, vrf } => nexthop_groups(to, vrf.as_deref()),
        Show::Interface { name } => {
            let path = format!("/v1/interfaces?{}", query(&[("name", name.clone())]));
            to.get(&path, if name.is_some() { interface::detail } else { interface::table })
        }
        Show::Vrf => to.get("/v1/vrfs", vrf::vrfs),
        Show::Static { vrf } => {
            to.get(&format!("/v1/static-routes?{}", query(&[("vrf", vrf.clone())])), vrf::static_routes)
        }
        Show::Version => to.get("/v1/version", |router| version::version(router, env!("CARGO_PKG_VERSION"))),
        Show::Bfd { address, state } => {
            let only = query(&[("peer", text_of(*address)), ("state", state.clone())]);
            to.get(&format!("/v1/bfd?{only}"), |all| bfd::sessions(all, state.as_deref()))
        }
        Show::Rpki(ShowRpki::Caches) => to.get("/v1/rpki", rpki::caches),
        Show::Rpki(ShowRpki::Table(only)) => payloads(to, &only.query()),
        Show::Rpki(ShowRpki::Aspa { customer, provider }) => {
            aspas(to, &query(&[("customer", text_of(*customer)), ("provider", text_of(*provider))]))
        }
        Show::Rpki(ShowRpki::Validation { prefix, asn }) => {
            let of = query(&[("prefix", Some(prefix.clone())), ("asn", text_of(*asn))]);
            to.get(&format!("/v1/rpki/validation?{of}"), rpki::validation)
        }
        Show::Bmp => to.get("/v1/bmp", monitoring::stations),
        Show::Mrt => to.get("/v1/mrt", monitoring::files),
        Show::Fpm => to.get("/v1/fpm", fib::fpm),
        Show::Pipeline { sonic: Sonic { sonic: true, database_config } } => {
            let daemons =
                sonic_pipeline::of_daemons(database_config.as_deref()).map_err(|e| e.to_string())?;
            to.print(&daemons, |daemons| threads::daemons(daemons))
        }
        Show::Health { sonic: Sonic { sonic, database_config } } => {
            let all = match sonic {
                true => sonic_health::of_daemons(database_config.as_deref()).map_err(|e| e.to_string())?,
                false => vec![("router".into(), to.client.get("/v1/health")?)],
            };
            health(to, &all)
        }
        Show::Pipeline { .. } => to.get("/v1/pipeline", threads::pipeline),
        Show::Performance { stage, sonic: Sonic { sonic, database_config } } => {
            let stages = match sonic {
                true => {
                    sonic_performance::of_daemons(database_config.as_deref()).map_err(|e| e.to_string())?
                }
                false => to.client.get("/v1/performance")?,
            };
            performance(to, &stages, stage.as_deref())
        }
        Show::Threads => to.get("/v1/threads", threads::threads),
        Show::Configuration => to.get("/v1/configuration", running::configuration),
        Show::Log { events, lines } => running::log(to, events, (*lines).into()),
    })
}

/// Runs `ribtide explain`; with `databases`, also in SONiC's daemons on the databases of this file,
/// or on SONiC's own; with `neighbor`, also whether and how this neighbour is sent it.
pub(crate) fn explain(
    prefix: &str,
    vrf: Option<&str>,
    neighbor: Option<IpAddr>,
    databases: Option<Option<&Path>>,
    output: &Output,
) -> Result<(), String> {
    let query = explain_query(prefix, vrf, neighbor);
    let client = Client::of(output)?;
    let router = || client.get::<Explain>(&format!("/v1/explain?{query}"));
    let reply = match databases {
        None => router()?,
        Some(config) => {
            let router = if client.is_there() { Some(router()?) } else { None };
            sonic_explain::of_daemons(config, vrf, prefix, router).map_err(|e| e.to_string())?
        }
    };
    output.print(&reply, fib::explain_text)
}

/// The query of `/v1/explain`.
pub(crate) fn explain_query(prefix: &str, vrf: Option<&str>, neighbor: Option<IpAddr>) -> String {
    query(&[("prefix", Some(prefix.into())), ("vrf", vrf.map(Into::into)), ("to", text_of(neighbor))])
}

/// The health of processes by name; a stall fails, and so does a fault.
fn health(to: &mut Printer, all: &[(String, Health)]) -> Printed {
    match all {
        [(_, one)] if to.json => to.json(one)?,
        _ if to.json => to.json(&all.iter().cloned().collect::<BTreeMap<_, _>>())?,
        _ => to.text(&threads::health(all))?,
    }
    let causes: Vec<&str> =
        all.iter().flat_map(|(_, h)| &h.stalls).filter(|s| s.behind.is_none()).map(|s| &*s.what).collect();
    let faults: Vec<&str> = all.iter().flat_map(|(_, h)| &h.faults).map(|f| &*f.what).collect();
    let mut reasons = Vec::new();
    if !causes.is_empty() {
        reasons.push(format!("no progress at {}", causes.join(", ")));
    }
    if !faults.is_empty() {
        reasons.push(format!("data is missing of {}", faults.join(", ")));
    }
    match reasons.is_empty() {
        true => Ok(()),
        false => Err(format!("degraded: {}", reasons.join("; ")).into()),
    }
}

/// All stages, or the records of one.
fn performance(to: &mut Printer, stages: &[Performance], only: Option<&str>) -> Printed {
    let Some(name) = only else { return to.print(&stages, |stages| performance::all(stages)) };
    let Some(stage) = stages.iter().find(|s| s.stage == name) else {
        let names: Vec<&str> = stages.iter().map(|s| s.stage.as_str()).collect();
        return Err(format!("there is no stage \"{name}\"; there are {}", names.join(", ")).into());
    };
    if to.json { to.json_lines(&stage.records) } else { to.text(&performance::one(stage)) }
}

/// Totals, and the neighbours that fit `only`.
fn summary(to: &mut Printer, only: &str) -> Printed {
    let mut reply: BgpSummary = to.client.get("/v1/bgp/summary")?;
    let totals: GroupTotals = to.client.get("/v1/bgp/group-totals")?;
    if to.json {
        reply.groups = Some(totals.groups);
        reply.neighbors = Some(all_neighbors(to, only)?);
        return to.print(&reply, bgp::summary);
    }
    // Not before the neighbours: a filter that is refused is an error alone.
    let mut head = bgp::summary(&reply) + &bgp::group_totals(&totals.groups);
    let mut table = bgp::neighbor_table();
    to.paged("/v1/bgp/neighbors", NEIGHBORS, only, |to, page: NeighborPage| {
        to.text(&std::mem::take(&mut head))?;
        page.neighbors.iter().for_each(|n| bgp::neighbor_row(&mut table, n));
        to.text(&table.render())?;
        Ok(page.next)
    })
}

/// The neighbours that fit `only`, for one JSON document.
fn all_neighbors(to: &mut Printer, only: &str) -> Result<Vec<Neighbor>, printer::Failure> {
    let mut all = Vec::new();
    to.paged("/v1/bgp/neighbors", NEIGHBORS, only, |_, page: NeighborPage| {
        all.extend(page.neighbors);
        Ok(page.next)
    })?;
    Ok(all)
}

fn neighbors(to: &mut Printer, only: &str) -> Printed {
    if to.json {
        let all = all_neighbors(to, only)?;
        return to.json(&all);
    }
    let mut gap = "";
    to.paged("/v1/bgp/neighbors", NEIGHBORS, only, |to, page: NeighborPage| {
        for neighbor in &page.neighbors {
            to.text(&format!("{gap}{}", fold(&bgp::neighbor(neighbor))))?;
            gap = "\n";
        }
        Ok(page.next)
    })
}

fn nexthop_groups(to: &mut Printer, vrf: Option<&str>) -> Printed {
    let only = query(&[("vrf", vrf.map(Into::into))]);
    let mut all: Option<NextHopGroupPage> = None;
    let mut table = nexthop::table();
    let mut first = true;
    to.paged("/v1/nexthop-groups", GROUPS, &only, |to, mut page: NextHopGroupPage| {
        let next = page.next.take();
        if to.json {
            match &mut all {
                None => all = Some(page),
                Some(all) => all.groups.extend(page.groups),
            }
            return Ok(next);
        }
        if std::mem::take(&mut first) {
            to.text(&format!("{}\n", nexthop::cache(&page.cache)))?;
        }
        page.groups.iter().for_each(|g| nexthop::row(&mut table, &page.cache, g));
        to.text(&table.render())?;
        Ok(next)
    })?;
    if to.json { to.json(&all) } else { Ok(()) }
}

/// A URL query of the parts that have a value.
pub(crate) fn query(parts: &[(&str, Option<String>)]) -> String {
    let some = parts.iter().filter_map(|(name, value)| Some(format!("{name}={}", escape(value.as_ref()?))));
    some.collect::<Vec<_>>().join("&")
}

fn text_of(value: Option<impl ToString>) -> Option<String> {
    value.map(|value| value.to_string())
}

/// Percent-encodes the characters that a URL query cannot contain.
pub(crate) fn escape(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_has_given_parts_only() {
        let text = query(&[
            ("prefix", Some("2001:db8::/32".into())),
            ("shard", None),
            ("group", Some("a b&c".into())),
        ]);
        assert_eq!(text, "prefix=2001%3Adb8%3A%3A%2F32&group=a%20b%26c");
        assert_eq!(query(&[("cursor", None)]), "");
    }

    #[test]
    fn a_shard_goes_by_number_or_thread_name() {
        assert_eq!(
            [shard("3"), shard("shard-3"), shard("main")],
            [Ok(Shard::Number(3)), Ok(Shard::Number(3)), Ok(Shard::Main)]
        );
        assert!(shard("three").unwrap_err().contains("such as 0"));
    }
}
