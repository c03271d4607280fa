//! `ribtide show …` and `ribtide explain`: the API's answers as text, or as JSON.

use crate::client::Client;
use crate::text::{Table, bytes, count, duration, number};
use clap::{Args, Subcommand};
use ribtide_daemon::api::model::{
    self, AsicAnswers, AsicQuestion, BgpSummary, Explain, FibPage, FibRoute, Fpm, Neighbor, PerFamilyCount,
    Pipeline, Route, RoutePage, Session, StageState,
};
use serde::Serialize;
use std::io::{BufWriter, Write};
use std::net::IpAddr;
use std::path::PathBuf;

/// Routes asked for at a time: a page must not hold a stage for longer than a millisecond or so.
const PAGE: usize = 1000;

/// Where the router is and how to print.
#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// The router's Unix socket (api.socket in its configuration)
    #[arg(long, global = true, default_value = "/run/ribtide/ribtide.sock", value_name = "PATH")]
    pub(crate) socket: PathBuf,
    /// Print JSON: one document, or one per line where the output is a list of routes
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to show.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum Show {
    /// BGP sessions
    #[command(subcommand)]
    Bgp(ShowBgp),
    /// Routes learnt by BGP with all their paths, and why the others lost
    Route {
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
    },
    /// Selected routes with their next hops and their state in each dataplane
    Fib {
        /// Only this prefix, or the longest match of this address
        prefix: Option<String>,
    },
    /// The FPM servers that are told routes: connection, what was sent and what they replied
    Fpm,
    /// What the virtual ASIC does with a packet to each of these addresses
    Asic {
        /// The addresses
        #[arg(required = true)]
        addresses: Vec<IpAddr>,
    },
    /// What each stage did, the queues between them, and the CPU time of each thread
    Pipeline,
}

/// What to show of BGP.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ShowBgp {
    /// One line for each neighbour
    Summary,
    /// Everything about one neighbour, or all
    Neighbor {
        /// Its address
        address: Option<IpAddr>,
    },
}

/// What to clear.
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
    let address = match which.as_str() {
        "all" => None,
        text => Some(
            text.parse()
                .map_err(|_| format!("\"{text}\" is no address; write a neighbour's address, or all"))?,
        ),
    };
    let request = model::Clear { address, soft: soft.is_some() };
    let answer: model::Cleared = Client::new(&output.socket).post("/v1/bgp/clear", &request)?;
    let did = if request.soft { "Routes are exchanged again" } else { "Sessions begin anew" };
    let mut out = std::io::stdout().lock();
    finish(print(&mut out, output, &answer, |a| {
        format!("{did} with {}.\n", count(a.neighbors as u64, "neighbour"))
    }))
}

/// Runs `ribtide show`.
pub(crate) fn show(what: &Show, output: &Output) -> Result<(), String> {
    let client = Client::new(&output.socket);
    let mut out = BufWriter::new(std::io::stdout().lock());
    let written = match what {
        Show::Bgp(ShowBgp::Summary) => print(&mut out, output, &client.get("/v1/bgp/summary")?, summary),
        Show::Bgp(ShowBgp::Neighbor { address: Some(a) }) => {
            print(&mut out, output, &client.get(&format!("/v1/bgp/neighbors/{a}"))?, neighbor)
        }
        Show::Bgp(ShowBgp::Neighbor { address: None }) => {
            let all: BgpSummary = client.get("/v1/bgp/summary")?;
            print(&mut out, output, &all.neighbors, |n| n.iter().map(neighbor).collect::<Vec<_>>().join("\n"))
        }
        Show::Route { prefix } => {
            let mut table = route_table();
            paged(&client, "/v1/routes", prefix.as_deref(), |page: RoutePage| {
                lines(&mut out, output, &page.routes, &mut table, route_rows)?;
                Ok(page.next)
            })?
        }
        Show::Fib { prefix } => {
            let mut table = fib_table();
            paged(&client, "/v1/fib", prefix.as_deref(), |page: FibPage| {
                lines(&mut out, output, &page.routes, &mut table, fib_row)?;
                Ok(page.next)
            })?
        }
        Show::Asic { addresses } => {
            let answer: AsicAnswers =
                client.post("/v1/asic/lookup", &AsicQuestion { addresses: addresses.clone() })?;
            print(&mut out, output, &answer, |a| asic_table(addresses, a))
        }
        Show::Fpm => print(&mut out, output, &client.get("/v1/fpm")?, fpm),
        Show::Pipeline => print(&mut out, output, &client.get("/v1/pipeline")?, pipeline),
    };
    finish(written.and_then(|()| out.flush()))
}

/// Runs `ribtide explain`.
pub(crate) fn explain(prefix: &str, output: &Output) -> Result<(), String> {
    let answer: Explain =
        Client::new(&output.socket).get(&format!("/v1/explain?prefix={}", escape(prefix)))?;
    let mut out = std::io::stdout().lock();
    finish(print(&mut out, output, &answer, explain_text))
}

/// A reader that went away (`ribtide show route | head`) is not an error.
fn finish(written: std::io::Result<()>) -> Result<(), String> {
    match written {
        Err(e) if e.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("cannot write the output: {e}")),
        _ => Ok(()),
    }
}

fn print<T: Serialize>(
    out: &mut impl Write,
    output: &Output,
    answer: &T,
    text: impl Fn(&T) -> String,
) -> std::io::Result<()> {
    if output.json {
        serde_json::to_writer_pretty(&mut *out, answer)?;
        writeln!(out)
    } else {
        out.write_all(text(answer).as_bytes())
    }
}

/// A page of a list: rows of `table`, or a line of JSON each.
fn lines<T: Serialize>(
    out: &mut impl Write,
    output: &Output,
    items: &[T],
    table: &mut Table,
    rows: impl Fn(&mut Table, &T),
) -> std::io::Result<()> {
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

/// Asks for page after page. The outer error is the router's, the inner one the output's.
fn paged<P: serde::de::DeserializeOwned>(
    client: &Client,
    path: &str,
    prefix: Option<&str>,
    mut print: impl FnMut(P) -> std::io::Result<Option<String>>,
) -> Result<std::io::Result<()>, String> {
    let mut query = match prefix {
        Some(p) => format!("?prefix={}", escape(p)),
        None => format!("?limit={PAGE}"),
    };
    loop {
        match print(client.get(&format!("{path}{query}"))?) {
            Err(e) => return Ok(Err(e)),
            Ok(None) => return Ok(Ok(())),
            Ok(Some(next)) => query = format!("?limit={PAGE}&cursor={}", escape(&next)),
        }
    }
}

/// Percent-encodes what a prefix can hold.
fn escape(text: &str) -> String {
    text.bytes()
        .map(|b| match b {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' => char::from(b).to_string(),
            _ => format!("%{b:02X}"),
        })
        .collect()
}

fn summary(s: &BgpSummary) -> String {
    let established = s.neighbors.iter().filter(|n| n.session.is_some()).count();
    let mut out = format!(
        "Router {}, AS {}. {}, {established} established. Shard threads {}, update threads {}.\n\
         Loc-RIB: {} ({} IPv4, {} IPv6) from {}.\n\n",
        s.router_id,
        s.asn,
        count(s.neighbors.len() as u64, "neighbour"),
        s.shard_threads,
        s.update_threads,
        if s.prefixes.total() == 1 {
            "1 prefix".into()
        } else {
            format!("{} prefixes", number(s.prefixes.total()))
        },
        number(s.prefixes.ipv4),
        number(s.prefixes.ipv6),
        count(s.paths.total(), "path"),
    );
    let mut table = Table::new(&[
        "Neighbor",
        ">AS",
        "Kind",
        "State",
        ">Since",
        ">Flaps",
        ">Received",
        ">Advertised",
        "Group",
    ]);
    for n in &s.neighbors {
        let count = |f: fn(&Session) -> PerFamilyCount| {
            n.session.as_ref().map_or("-".into(), |s| number(f(s).total()))
        };
        table.row([
            n.address.to_string(),
            n.asn.map_or("any".into(), |a| a.to_string()),
            n.kind.clone(),
            n.state.clone(),
            duration(n.state_seconds),
            n.flaps.to_string(),
            count(|s| s.received),
            count(|s| s.advertised),
            n.group.clone(),
        ]);
    }
    out.push_str(&table.render());
    out
}

fn neighbor(n: &Neighbor) -> String {
    let mut out = format!(
        "Neighbor {}{}, {} AS {}, group {}\n  State {} for {}, {}\n",
        n.address,
        n.description.as_ref().map_or(String::new(), |d| format!(" ({d})")),
        n.kind,
        n.asn.map_or("any".into(), |a| a.to_string()),
        n.group,
        n.state,
        duration(n.state_seconds),
        count(n.flaps, "flap"),
    );
    if let Some(error) = &n.last_error {
        out.push_str(&format!("  Last error: {error}\n"));
    }
    let Some(s) = &n.session else { return out };
    let yes = |b: bool| if b { "yes" } else { "no" };
    let c = &s.counters;
    out.push_str(&format!(
        "  Router ID {}, hold time {} s, families {}\n  4-octet AS {}, extended messages {}, route refresh {}\n",
        s.router_id,
        s.hold_time,
        s.families.join(" "),
        yes(s.four_octet_as),
        yes(s.extended_messages),
        yes(s.route_refresh),
    ));
    let mut table = Table::new(&["  Routes", ">IPv4", ">IPv6"]);
    for (name, count) in [("  received", s.received), ("  advertised", s.advertised)] {
        table.row([name.into(), number(count.ipv4), number(count.ipv6)]);
    }
    out.push_str(&table.render());
    out.push_str(&format!(
        "  Received {} UPDATEs: {} announced, {} withdrawn; {} treated as withdrawal, {} attributes discarded, {} loops, {} rejected by policy\n\
         \x20 Sent {} UPDATEs; write queue {}{}\n",
        number(c.updates),
        number(c.announced),
        number(c.withdrawn),
        number(c.treated_as_withdraw),
        number(c.discarded_attributes),
        number(c.loops),
        number(c.rejected),
        number(s.updates_sent),
        bytes(s.queued_bytes),
        if s.blocked { ", full: its update group goes on without it" } else { "" },
    ));
    if let Some(reason) = &c.last_reason {
        out.push_str(&format!("  Last refusal: {reason}\n"));
    }
    out
}

fn route_table() -> Table {
    Table::new(&["", "Prefix", "Next hop", "From", ">Pref", ">MED", "AS path"])
}

fn route_rows(table: &mut Table, route: &Route) {
    for (i, p) in route.paths.iter().enumerate() {
        let option = |n: Option<u32>| n.map_or("-".into(), |n| n.to_string());
        let origin = match p.origin.as_str() {
            "igp" => "i",
            "egp" => "e",
            _ => "?",
        };
        let lost = p.lost.as_ref().map_or(String::new(), |l| format!("  ({l})"));
        table.row([
            if p.best { "*" } else { "" }.into(),
            if i == 0 { route.prefix.clone() } else { String::new() },
            p.next_hop.to_string(),
            p.neighbor.to_string(),
            option(p.local_pref),
            option(p.med),
            format!("{} {origin}{lost}", p.as_path).trim_start().into(),
        ]);
    }
}

fn fib_table() -> Table {
    Table::new(&["Prefix", "Protocol", ">Dist", ">Group", "Next hops", "Dataplanes"])
}

fn fib_row(table: &mut Table, r: &FibRoute) {
    let plane = |d: &model::DataplaneState| {
        let reason = d.reason.as_ref().map_or(String::new(), |w| format!(" ({w})"));
        format!("{} {}{reason}", d.name, d.state)
    };
    table.row([
        r.prefix.clone(),
        r.protocol.clone(),
        r.distance.to_string(),
        r.group.map_or("-".into(), |g| g.to_string()),
        r.hops.join(", "),
        r.dataplanes.iter().map(plane).collect::<Vec<_>>().join(", "),
    ]);
}

fn asic_table(addresses: &[IpAddr], answer: &AsicAnswers) -> String {
    let mut table = Table::new(&["Address", "Action", "Prefix", "Next hops"]);
    for (address, a) in addresses.iter().zip(&answer.answers) {
        let next_hops: Vec<String> = a.next_hops.iter().map(IpAddr::to_string).collect();
        table.row([
            address.to_string(),
            a.action.clone(),
            a.prefix.clone().unwrap_or_else(|| "-".into()),
            if next_hops.is_empty() { "-".into() } else { next_hops.join(", ") },
        ]);
    }
    table.render()
}

fn fpm(f: &Fpm) -> String {
    if f.clients.is_empty() {
        return "No FPM server is configured; fib.fpm names them.\n".into();
    }
    let mut table = Table::new(&[
        "Client",
        "Server",
        "State",
        ">Connects",
        ">Attempts failed",
        ">Routes",
        ">Deletes",
        ">Sent",
        ">Stalled s",
        ">Offloaded",
        ">Refused",
    ]);
    for c in &f.clients {
        table.row([
            c.name.clone(),
            c.server.to_string(),
            if c.connected { "connected" } else { "connecting" }.into(),
            number(c.connects),
            number(c.failed_connects),
            number(c.routes),
            number(c.deletes),
            bytes(c.bytes_sent),
            format!("{:.2}", c.stalled_seconds),
            number(c.offloaded),
            number(c.offload_failed),
        ]);
    }
    table.render()
}

fn pipeline(p: &Pipeline) -> String {
    let mut stages =
        Table::new(&["Stage", ">Routes", ">Batches", ">Busy s", ">Routes/s busy", ">First s", ">Last s"]);
    for s in &p.stages {
        let rate =
            if s.busy_seconds > 0.0 { number((s.routes as f64 / s.busy_seconds) as u64) } else { "-".into() };
        let time = |t: Option<f64>| t.map_or("-".into(), |t| format!("{t:.2}"));
        stages.row([
            s.name.clone(),
            number(s.routes),
            number(s.batches),
            format!("{:.3}", s.busy_seconds),
            rate,
            time(s.first_seconds),
            time(s.last_seconds),
        ]);
    }
    let mut rings = Table::new(&["Queue", ">Bound", ">Depth", ">Peak", ">Batches", ">Full"]);
    for r in &p.rings {
        rings.row([
            r.name.clone(),
            number(r.capacity as u64),
            number(r.depth),
            number(r.peak),
            number(r.sent),
            number(r.full),
        ]);
    }
    let mut threads = Table::new(&["Thread", ">CPU s"]);
    for t in &p.threads {
        threads.row([t.name.clone(), format!("{:.2}", t.cpu_seconds)]);
    }
    format!(
        "{}\n{}\n{}\nPeak memory {}\n",
        stages.render(),
        rings.render(),
        threads.render(),
        bytes(p.peak_memory_bytes)
    )
}

fn explain_text(e: &Explain) -> String {
    let mut out = match &e.prefix {
        Some(prefix) if *prefix != e.asked => format!("{} is in {prefix}\n", e.asked),
        _ => format!("{}\n", e.asked),
    };
    for s in &e.stages {
        let mark = match s.state {
            StageState::Passed => "+",
            StageState::Waiting => "~",
            StageState::Stopped => "x",
            StageState::Absent => "-",
            StageState::Off => " ",
        };
        let mut says = s.says.iter();
        out.push_str(&format!("{mark} {:<14} {}\n", s.stage, says.next().map_or("", String::as_str)));
        for line in says {
            out.push_str(&format!("  {:<14} {line}\n", ""));
        }
    }
    out.push_str(&format!("=> {}\n", e.conclusion));
    out
}
