//! `ribtide show …`, `ribtide explain` and `ribtide clear`: the API's replies as text or JSON.

pub(crate) mod asic;
mod bfd;
mod bgp;
mod fib;
mod nexthop;
mod performance;
mod route;
mod threads;

use crate::client::Client;
use crate::text::{Table, count};
use clap::{Args, Subcommand};
use ribtide_model::{
    AsicAddresses, AsicLookups, BgpSummary, Explain, FailedPage, FibPage, Groups, Neighbor, NeighborPage,
    NextHopGroupPage, Performance, RoutePage, Sharding,
};
use ribtide_sonicd::{
    explain as sonic_explain, performance as sonic_performance, pipeline as sonic_pipeline,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// Routes of one request: a page must not hold a stage for longer than about a millisecond.
const PAGE: usize = 1000;
/// Neighbours of one request.
const NEIGHBORS: usize = 128;
/// Next-hop groups of one request.
const GROUPS: usize = 32;

/// The router's socket and the output format.
#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// The router's Unix socket (api.socket in its configuration)
    #[arg(long, global = true, default_value = "/run/ribtide/ribtide.sock", value_name = "PATH")]
    pub(crate) socket: PathBuf,
    /// Print JSON: one document, or one per line where the output is a list of routes
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// The object to show.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Show {
    /// BGP sessions and update groups
    #[command(subcommand)]
    Bgp(ShowBgp),
    /// Routes learnt by BGP with all their paths, and why the others lost
    ///
    /// Without a prefix, all of them. `*` marks the best path. Of a single prefix the last line says which shard
    /// thread owns it.
    #[command(args_conflicts_with_subcommands = true)]
    Route {
        #[command(subcommand)]
        what: Option<ShowRoute>,
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
    },
    /// Selected routes with their next hops and their state in each dataplane
    Fib {
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
        /// Of this VRF; without, of the default one
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
    },
    /// Next-hop groups: what protocols gave, what it resolves to, who uses it; and what the resolution cache did
    #[command(name = "nexthop-group")]
    NextHopGroup {
        /// Only this one, with all of its next hops
        id: Option<u32>,
        /// Only those of this VRF
        #[arg(long, value_name = "NAME", conflicts_with = "id")]
        vrf: Option<String>,
    },
    /// BFD sessions: state, intervals as agreed on, packets, and why they went down last
    Bfd {
        /// Only those with this neighbour
        address: Option<IpAddr>,
    },
    /// The FPM servers that are told routes: connection, what was sent and what they replied
    Fpm,
    /// The virtual ASIC: how it behaves, what it holds and what it did; or what it does with a packet to these addresses
    Asic {
        /// The addresses
        addresses: Vec<IpAddr>,
        /// In this VRF; without, in the default one
        #[arg(long, value_name = "NAME", requires = "addresses")]
        vrf: Option<String>,
        /// Instead, that of the syncd that answers here (its --query-socket)
        #[arg(long, value_name = "PATH", conflicts_with_all = ["addresses", "asic"])]
        syncd: Option<PathBuf>,
        /// Which of the router's, where it has several
        #[arg(long, value_name = "NAME")]
        asic: Option<String>,
    },
    /// What each stage did, the queues between them, and the CPU time of each thread
    Pipeline {
        /// Instead, of SONiC's daemons each setting (what was asked, what is active, and why the two differ) and each queue (how
        /// much is in it, its bound, and the most it ever held); of every ASIC, unless NAMESPACE_ID says which
        #[arg(long)]
        sonic: bool,
        /// With --sonic: SONiC's database_config.json, where it is not in SONiC's place
        #[arg(long, value_name = "FILE", requires = "sonic")]
        database_config: Option<PathBuf>,
    },
    /// Each thread: its share of a CPU now, its CPU time, the CPUs it may use; and the queues between them
    ///
    /// "Now" is measured for half a second. A thread near 100% is what limits the router; one that waited long could
    /// have run but had no CPU. A full queue says that what comes behind it is too slow.
    Threads,
    /// How fast each stage worked off its latest 10,000s of routes, and how long it waited in between
    ///
    /// SONiC's PerformanceTimer: of one stage, with --json, each record is a line as its log has them.
    Performance {
        /// Only this stage, record by record
        stage: Option<String>,
        /// Instead, the timers of SONiC's daemons, such as orchagent/DRAIN
        #[arg(long)]
        sonic: bool,
        /// With --sonic: SONiC's database_config.json, where it is not in SONiC's place
        #[arg(long, value_name = "FILE", requires = "sonic")]
        database_config: Option<PathBuf>,
    },
}

/// What to show of BGP.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ShowBgp {
    /// Threading mode and totals, and a line for each neighbour
    Summary,
    /// Everything about one neighbour, or all: state, what was agreed on, messages, routes, write queue
    Neighbor {
        /// Its address
        #[arg(conflicts_with_all = ["group", "update_thread"])]
        address: Option<IpAddr>,
        /// Only neighbours of this group of the configuration
        #[arg(long, value_name = "NAME")]
        group: Option<String>,
        /// Only neighbours that this update thread sends to
        #[arg(long, value_name = "N")]
        update_thread: Option<usize>,
    },
    /// Update groups: who is sent the same, by which update thread, and how well it is packed
    Group {
        /// Only groups with members of this group of the configuration, or the one of this number
        name: Option<String>,
        /// Only groups of this update thread
        #[arg(long, value_name = "N")]
        update_thread: Option<usize>,
    },
    /// Next hops of paths: reachable or not, at what cost and through what, and whether they change too often
    Nexthop {
        /// Only this one
        address: Option<IpAddr>,
    },
}

/// What to show of routes, other than the routes.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ShowRoute {
    /// How many routes there are: in total, in the table of each VRF, and in each shard thread
    Summary,
    /// The selected routes of a VRF with their next hops and their state in each dataplane
    ///
    /// BGP's routes are the default VRF's, whose name is `default`.
    Vrf {
        /// The VRF
        name: String,
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
    },
    /// What dataplanes could not install, for how long, and why; it is tried again when the cause may be over
    Failed,
    /// The shard threads and their shares of the work, or the routes of one of them
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
        /// Its address, or `all`
        #[arg(value_name = "ADDRESS|all")]
        which: String,
        /// `soft`: keep the session, ask for the routes again and send ours again
        #[arg(value_parser = ["soft"])]
        soft: Option<String>,
    },
}

/// Runs `ribtide clear`.
pub(crate) fn clear(what: &Clear, output: &Output) -> Result<(), String> {
    let Clear::Bgp(ClearBgp::Neighbor { which, soft }) = what;
    let all = which == "all";
    let address = match which.as_str() {
        "all" => None,
        text => Some(
            text.parse()
                .map_err(|_| format!("\"{text}\" is no address; write a neighbour's address, or all"))?,
        ),
    };
    let request = ribtide_model::Clear { address, all, soft: soft.is_some() };
    let reply: ribtide_model::Cleared = Client::new(&output.socket).post("/v1/bgp/clear", &request)?;
    let did = if request.soft { "Routes are exchanged again" } else { "Sessions are reset" };
    let mut out = io::stdout().lock();
    finish(print(&mut out, output, &reply, |a| {
        format!("{did} with {}.\n", count(a.neighbors as u64, "neighbour"))
    }))
}

/// Runs `ribtide show`.
pub(crate) fn show(what: &Show, output: &Output) -> Result<(), String> {
    let client = Client::new(&output.socket);
    let mut out = BufWriter::new(io::stdout().lock());
    let written = match what {
        Show::Bgp(ShowBgp::Summary) => summary(&client, output, &mut out)?,
        Show::Bgp(ShowBgp::Neighbor { address: Some(a), .. }) => {
            print(&mut out, output, &client.get(&format!("/v1/bgp/neighbors/{a}"))?, bgp::neighbor)
        }
        Show::Bgp(ShowBgp::Neighbor { address: None, group, update_thread }) => {
            let only = query(&[("group", group.clone()), ("update-thread", text_of(*update_thread))]);
            neighbors(&client, output, &mut out, &only)?
        }
        Show::Bgp(ShowBgp::Nexthop { address }) => {
            let only = query(&[("address", address.map(|a| a.to_string()))]);
            print(&mut out, output, &client.get(&format!("/v1/bgp/nexthops?{only}"))?, nexthop::tracked)
        }
        Show::Bgp(ShowBgp::Group { name, update_thread }) => {
            let only = query(&[("name", name.clone()), ("update-thread", text_of(*update_thread))]);
            let groups: Groups = client.get(&format!("/v1/bgp/groups?{only}"))?;
            print(&mut out, output, &groups.groups, |groups| bgp::groups(groups))
        }
        Show::Route { what: Some(ShowRoute::Summary), .. } => {
            print(&mut out, output, &client.get("/v1/routes/summary")?, route::summary)
        }
        Show::Route { what: Some(ShowRoute::Failed), .. } => failed(&client, output, &mut out)?,
        Show::Route { what: Some(ShowRoute::RibSharding { shard: None }), .. } => {
            print(&mut out, output, &client.get("/v1/routes/sharding")?, route::sharding)
        }
        Show::Route { what: Some(ShowRoute::RibSharding { shard: Some(Shard::Main) }), .. } => {
            fib(&client, output, &mut out, None, None)?
        }
        Show::Route { what: Some(ShowRoute::Vrf { name, prefix }), .. } => {
            fib(&client, output, &mut out, Some(name), prefix.as_deref())?
        }
        Show::Route { what: Some(ShowRoute::RibSharding { shard: Some(Shard::Number(n)) }), .. } => {
            shard_routes(&client, output, &mut out, *n)?
        }
        Show::Route { what: None, prefix } => routes(&client, output, &mut out, prefix.as_deref())?,
        Show::Fib { prefix, vrf } => fib(&client, output, &mut out, vrf.as_deref(), prefix.as_deref())?,
        Show::Asic { syncd: Some(path), .. } => {
            print(&mut out, output, &asic::of_syncd(path, "chip")?, asic::state)
        }
        Show::Asic { addresses, asic, .. } if addresses.is_empty() => {
            let only = query(&[("asic", asic.clone())]);
            print(&mut out, output, &client.get(&format!("/v1/asic?{only}"))?, asic::state)
        }
        Show::Asic { addresses, vrf, asic, .. } => {
            let lookup = AsicAddresses { asic: asic.clone(), vrf: vrf.clone(), addresses: addresses.clone() };
            let reply: AsicLookups = client.post("/v1/asic/lookup", &lookup)?;
            print(&mut out, output, &reply, |a| fib::asic_table(addresses, a))
        }
        Show::NextHopGroup { id: Some(id), .. } => {
            let page: NextHopGroupPage = client.get(&format!("/v1/nexthop-groups?id={id}"))?;
            print(&mut out, output, &page, |page| {
                let groups = page.groups.iter().map(|g| nexthop::group(&page.cache, g));
                nexthop::cache(&page.cache) + &groups.collect::<String>()
            })
        }
        Show::NextHopGroup { id: None, vrf } => nexthop_groups(&client, output, &mut out, vrf.as_deref())?,
        Show::Bfd { address } => {
            let only = query(&[("peer", address.map(|a| a.to_string()))]);
            print(&mut out, output, &client.get(&format!("/v1/bfd?{only}"))?, bfd::sessions)
        }
        Show::Fpm => print(&mut out, output, &client.get("/v1/fpm")?, fib::fpm),
        Show::Pipeline { sonic: true, database_config } => {
            let daemons =
                sonic_pipeline::of_daemons(database_config.as_deref()).map_err(|e| e.to_string())?;
            print(&mut out, output, &daemons, |daemons| threads::daemons(daemons))
        }
        Show::Pipeline { .. } => print(&mut out, output, &client.get("/v1/pipeline")?, threads::pipeline),
        Show::Performance { stage, sonic, database_config } => {
            let stages = match sonic {
                true => {
                    sonic_performance::of_daemons(database_config.as_deref()).map_err(|e| e.to_string())?
                }
                false => client.get("/v1/performance")?,
            };
            performance(&stages, stage.as_deref(), output, &mut out)?
        }
        Show::Threads => print(&mut out, output, &client.get("/v1/threads")?, threads::threads),
    };
    finish(written.and_then(|()| out.flush()))
}

/// Runs `ribtide explain`; with `databases`, also in SONiC's daemons on the databases of this file,
/// or on SONiC's own.
pub(crate) fn explain(
    prefix: &str,
    vrf: Option<&str>,
    databases: Option<Option<&Path>>,
    output: &Output,
) -> Result<(), String> {
    let query = query(&[("prefix", Some(prefix.into())), ("vrf", vrf.map(Into::into))]);
    let client = Client::new(&output.socket);
    let router = || client.get::<Explain>(&format!("/v1/explain?{query}"));
    let reply = match databases {
        None => router()?,
        Some(config) => {
            let router = if client.is_there() { Some(router()?) } else { None };
            sonic_explain::of_daemons(config, vrf, prefix, router).map_err(|e| e.to_string())?
        }
    };
    let mut out = io::stdout().lock();
    finish(print(&mut out, output, &reply, fib::explain_text))
}

/// The result of printing. The outer error is the router's, the inner one the output's.
type Printed = Result<io::Result<()>, String>;

/// All stages, or the records of one.
fn performance(stages: &[Performance], only: Option<&str>, output: &Output, out: &mut impl Write) -> Printed {
    let Some(name) = only else {
        return Ok(print(out, output, &stages, |stages| performance::all(stages)));
    };
    let Some(stage) = stages.iter().find(|s| s.stage == name) else {
        let names: Vec<&str> = stages.iter().map(|s| s.stage.as_str()).collect();
        return Err(format!("there is no stage \"{name}\"; there are {}", names.join(", ")));
    };
    Ok(if output.json {
        stage.records.iter().try_for_each(|record| {
            serde_json::to_writer(&mut *out, record)?;
            writeln!(out)
        })
    } else {
        out.write_all(performance::one(stage).as_bytes())
    })
}

fn summary(client: &Client, output: &Output, out: &mut impl Write) -> Printed {
    let mut reply: BgpSummary = client.get("/v1/bgp/summary")?;
    if output.json {
        let mut all = Vec::new();
        let printed = paged(client, "/v1/bgp/neighbors", NEIGHBORS, "", |page: NeighborPage| {
            all.extend(page.neighbors);
            Ok(page.next)
        })?;
        reply.neighbors = Some(all);
        return Ok(printed.and_then(|()| print(out, output, &reply, bgp::summary)));
    }
    if let Err(e) = out.write_all(bgp::summary(&reply).as_bytes()) {
        return Ok(Err(e));
    }
    let mut table = bgp::neighbor_table();
    paged(client, "/v1/bgp/neighbors", NEIGHBORS, "", |page: NeighborPage| {
        page.neighbors.iter().for_each(|n| bgp::neighbor_row(&mut table, n));
        out.write_all(table.render().as_bytes())?;
        Ok(page.next)
    })
}

fn neighbors(client: &Client, output: &Output, out: &mut impl Write, only: &str) -> Printed {
    let mut all: Vec<Neighbor> = Vec::new();
    let mut first = true;
    let printed = paged(client, "/v1/bgp/neighbors", NEIGHBORS, only, |page: NeighborPage| {
        if output.json {
            all.extend(page.neighbors);
            return Ok(page.next);
        }
        for neighbor in &page.neighbors {
            let gap = if std::mem::take(&mut first) { "" } else { "\n" };
            out.write_all(format!("{gap}{}", bgp::neighbor(neighbor)).as_bytes())?;
        }
        Ok(page.next)
    })?;
    match printed {
        Ok(()) if output.json => Ok(print(out, output, &all, |_| String::new())),
        other => Ok(other),
    }
}

fn routes(client: &Client, output: &Output, out: &mut impl Write, prefix: Option<&str>) -> Printed {
    let mut table = route::table();
    paged(client, "/v1/routes", PAGE, &query(&[("prefix", prefix.map(Into::into))]), |page: RoutePage| {
        lines(out, output, &page.routes, &mut table, route::rows)?;
        if let (Some(_), [one], false) = (prefix, page.routes.as_slice(), output.json) {
            out.write_all(route::owner(one).as_bytes())?;
        }
        Ok(page.next)
    })
}

fn shard_routes(client: &Client, output: &Output, out: &mut impl Write, shard: usize) -> Printed {
    let only = query(&[("shard", Some(shard.to_string()))]);
    let mut table = route::table_of_shard();
    if !output.json {
        let all: Sharding = client.get("/v1/routes/sharding")?;
        let own = all.shards.iter().find(|s| s.summary.shard == shard);
        if let Err(e) = out.write_all(own.map(route::shard).unwrap_or_default().as_bytes()) {
            return Ok(Err(e));
        }
    }
    paged(client, "/v1/routes", PAGE, &only, |page: RoutePage| {
        lines(out, output, &page.routes, &mut table, route::rows_of_shard)?;
        Ok(page.next)
    })
}

fn fib(
    client: &Client,
    output: &Output,
    out: &mut impl Write,
    vrf: Option<&str>,
    prefix: Option<&str>,
) -> Printed {
    let mut table = fib::fib_table();
    let only = query(&[("vrf", vrf.map(Into::into)), ("prefix", prefix.map(Into::into))]);
    paged(client, "/v1/fib", PAGE, &only, |page: FibPage| {
        lines(out, output, &page.routes, &mut table, fib::fib_row)?;
        Ok(page.next)
    })
}

fn failed(client: &Client, output: &Output, out: &mut impl Write) -> Printed {
    let mut table = fib::failed_table();
    paged(client, "/v1/fib/failed", PAGE, "", |page: FailedPage| {
        lines(out, output, &page.routes, &mut table, fib::failed_row)?;
        Ok(page.next)
    })
}

fn nexthop_groups(client: &Client, output: &Output, out: &mut impl Write, vrf: Option<&str>) -> Printed {
    let only = query(&[("vrf", vrf.map(Into::into))]);
    let mut all: Option<NextHopGroupPage> = None;
    let mut table = nexthop::table();
    let mut first = true;
    let printed = paged(client, "/v1/nexthop-groups", GROUPS, &only, |mut page: NextHopGroupPage| {
        let next = page.next.take();
        if output.json {
            match &mut all {
                None => all = Some(page),
                Some(all) => all.groups.extend(page.groups),
            }
            return Ok(next);
        }
        if std::mem::take(&mut first) {
            out.write_all(format!("{}\n", nexthop::cache(&page.cache)).as_bytes())?;
        }
        page.groups.iter().for_each(|g| nexthop::row(&mut table, &page.cache, g));
        out.write_all(table.render().as_bytes())?;
        Ok(next)
    })?;
    match printed {
        Ok(()) if output.json => Ok(print(out, output, &all, |_| String::new())),
        other => Ok(other),
    }
}

/// A closed pipe (`ribtide show route | head`) is not an error.
fn finish(written: io::Result<()>) -> Result<(), String> {
    match written {
        Err(e) if e.kind() != io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(()),
    }
}

fn print<T: Serialize>(
    out: &mut impl Write,
    output: &Output,
    reply: &T,
    text: impl Fn(&T) -> String,
) -> io::Result<()> {
    if output.json {
        serde_json::to_writer_pretty(&mut *out, reply)?;
        writeln!(out)
    } else {
        out.write_all(text(reply).as_bytes())
    }
}

/// A page of a list: rows of `table`, or a line of JSON each.
fn lines<T: Serialize>(
    out: &mut impl Write,
    output: &Output,
    items: &[T],
    table: &mut Table,
    rows: impl Fn(&mut Table, &T),
) -> io::Result<()> {
    if !output.json {
        items.iter().for_each(|item| rows(table, item));
        return out.write_all(table.render().as_bytes());
    }
    for item in items {
        serde_json::to_writer(&mut *out, item)?;
        writeln!(out)?;
    }
    Ok(())
}

/// Requests pages of at most `limit` items, filtered by `only`, a part of a URL's query.
fn paged<P: DeserializeOwned>(
    client: &Client,
    path: &str,
    limit: usize,
    only: &str,
    mut print: impl FnMut(P) -> io::Result<Option<String>>,
) -> Printed {
    let mut cursor = None;
    loop {
        let place = query(&[("limit", Some(limit.to_string())), ("cursor", cursor)]);
        match print(client.get(&format!("{path}?{place}&{only}"))?) {
            Err(e) => return Ok(Err(e)),
            Ok(None) => return Ok(Ok(())),
            Ok(next) => cursor = next,
        }
    }
}

/// A URL query of the parts that have a value.
fn query(parts: &[(&str, Option<String>)]) -> String {
    let some = parts.iter().filter_map(|(name, value)| Some(format!("{name}={}", escape(value.as_ref()?))));
    some.collect::<Vec<_>>().join("&")
}

fn text_of(number: Option<usize>) -> Option<String> {
    number.map(|n| n.to_string())
}

/// Percent-encodes the characters that a URL query cannot contain.
fn escape(text: &str) -> String {
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
