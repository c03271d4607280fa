//! `ribtide demo`: the whole path on one screen. A router in this process gets a full table over a
//! real BGP session into the virtual ASIC. Then every prefix is looked up there and compared with
//! the sent routes.

use crate::text::{Table, bytes, number, write_stdout};
use clap::Args;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use ribtide_bench::Expected;
use ribtide_bench::blast::{self, Blast, NextHopOptions};
use ribtide_bench::expected::TableCheck;
use ribtide_bench::options::{ConnectOptions, SpeakerOptions, StayOptions, interrupted};
use ribtide_bench::replay::{self, NextHopRule, PeerChoice, Prepend, Replay};
use ribtide_bench::table::TableOptions;
use ribtide_config as config;
use ribtide_daemon::router::Router;
use ribtide_model::{AsicLookup, Pipeline, Stage};
use ribtide_prefix::{V4, V6};
use ribtide_runtime::oneshot;
use ribtide_runtime::ring::Closed;
use std::collections::BTreeMap;
use std::io::{IsTerminal, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// The interval between updates of the progress bars.
const PROGRESS_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// The interval between lines without a terminal.
const PROGRESS_LINE_INTERVAL: Duration = Duration::from_secs(2);
/// The time without progress after which the pipeline counts as stalled.
const STALL_TIMEOUT: Duration = Duration::from_secs(60);
/// Addresses of one look-up request.
const LOOKUP_BATCH_MAX: usize = 4096;

/// Options of the demonstration.
#[derive(Clone, Debug, Args)]
pub(crate) struct Options {
    /// The number of prefixes of the generated table; one in six is IPv6
    #[arg(long, value_name = "N", default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=4_000_000))]
    prefixes: u32,
    /// Only consecutive IPv4 /24 prefixes, with one attribute set
    #[arg(long)]
    uniform: bool,
    /// The seed of the generated table
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Send the largest table, or all updates, of this MRT file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["prefixes", "uniform", "seed"])]
    mrt: Option<PathBuf>,
    /// Exit after the check, with a status other than 0 if a route was wrong
    #[arg(long)]
    once: bool,
    /// The path of the router's API socket [default: /run/ribtide/ribtide.sock for root, otherwise in the
    /// temporary directory]
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The address of the page and the API over TCP [default: 127.0.0.1:8179, or another
    /// free port of it]
    #[arg(long, value_name = "ADDRESS:PORT")]
    http: Option<SocketAddr>,
}

fn configuration(port: u16, socket: &std::path::Path, http: SocketAddr) -> String {
    format!(
        r#"[router]
asn = 65001
router-id = "10.0.255.254"

[bgp]
listen = ["127.0.0.1:{port}"]

[bgp.group.feed]
type = "external"
import = ["accept"]
export = ["reject"]
dynamic-neighbors = ["127.0.0.0/8"]

[fib]
virtual-asic = {{ lab = true }}

[[interface]]
name = "Ethernet0"
addresses = ["10.0.255.254/16", "2001:db8::ffff:ffff:ffff:ffff/64"]

[api]
socket = "{}"
http = "{http}"
"#,
        socket.display()
    )
}

/// The source of the table.
enum Feed {
    Made(Box<Blast>),
    Recorded(Box<Replay>),
}

/// Runs the demonstration.
pub(crate) fn run(options: &Options) -> Result<(), String> {
    let socket = options.socket.clone().unwrap_or_else(default_socket);
    let port = free_port(1179)?;
    let http = match options.http {
        Some(http) => http,
        None => SocketAddr::from((Ipv4Addr::LOCALHOST, free_port(8179)?)),
    };
    let text = configuration(port, &socket, http);
    let config = config::parse(&text).map_err(|p| format!("the built-in configuration is wrong: {p:?}"))?;
    let router = Router::start(config, None, crate::COMMIT).map_err(|e| e.to_string())?;
    let outcome = demonstrate(options, port, http, &router);
    router.shut_down();
    outcome
}

fn demonstrate(options: &Options, port: u16, http: SocketAddr, router: &Router) -> Result<(), String> {
    let interrupted = interrupted().map_err(|e| e.to_string())?;
    write_stdout(&format!(
        "Router AS 65001 is up: BGP on 127.0.0.1:{port}, virtual ASIC behind fpmsyncd, orchagent and syncd, all in this process.\n\
         Its page: http://{http}/\n"
    ))?;

    let begin = Instant::now();
    let (feed, expected, sent_seconds) = load(options, port, router, &interrupted)?;
    let total = expected.total() as u64;
    wait_for_chip(router, total, &interrupted)?;
    let seconds = begin.elapsed().as_secs_f64();
    let pipeline = router.pipeline()?;
    write_stdout(&format!(
        "\n{}Peak memory {} for everything, the sender included.\n",
        stage_table(&pipeline, total, sent_seconds, seconds),
        bytes(pipeline.peak_memory_bytes)
    ))?;

    let result = check(router, &expected, &interrupted)?;
    report(&result)?;
    if options.once {
        return Ok(());
    }
    write_stdout("\nThe router stays up; Ctrl-C ends it. Query it from another terminal:\n")?;
    let example = expected.probes::<V4>().next().map_or("192.0.2.1".into(), |a| a.to_string());
    let at = if router.socket() == default_root_socket() {
        String::new()
    } else {
        format!(" --socket {}", router.socket().display())
    };
    let program = std::env::current_exe().map_or("ribtide".into(), |p| p.display().to_string());
    for command in
        ["show bgp summary", "show pipeline", &format!("show fib {example}"), &format!("explain {example}")]
    {
        write_stdout(&format!("  {program} {command}{at}\n"))?;
    }
    check_interrupt(&interrupted)?;
    stay(feed)
}

fn default_root_socket() -> PathBuf {
    "/run/ribtide/ribtide.sock".into()
}

fn default_socket() -> PathBuf {
    let root = default_root_socket();
    let writable = root.parent().is_some_and(|folder| {
        std::fs::create_dir_all(folder).is_ok()
            && std::fs::metadata(folder).is_ok_and(|m| !m.permissions().readonly())
            && std::fs::File::create(folder.join(".probe"))
                .and_then(|_| std::fs::remove_file(folder.join(".probe")))
                .is_ok()
    });
    if writable { root } else { std::env::temp_dir().join(format!("ribtide-{}.sock", std::process::id())) }
}

/// `preferred` if it is free, else a port from the system.
fn free_port(preferred: u16) -> Result<u16, String> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    let bound = bind(preferred).or_else(|_| bind(0));
    let address = bound
        .and_then(|l| l.local_addr())
        .map_err(|e| format!("no TCP port can be opened on 127.0.0.1: {e}"))?;
    Ok(address.port())
}

/// The error of an interrupt, for every loop that waits.
fn check_interrupt(interrupted: &AtomicBool) -> Result<(), String> {
    if interrupted.load(Relaxed) { Err("interrupted before the check was done".into()) } else { Ok(()) }
}

fn load(
    options: &Options,
    port: u16,
    router: &Router,
    interrupted: &AtomicBool,
) -> Result<(Feed, Expected, f64), String> {
    let (done, result) = oneshot::pair();
    let sender = {
        let options = options.clone();
        std::thread::Builder::new().name("sender".into()).spawn(move || {
            done.send(send(&options, port));
        })
    };
    sender.map_err(|e| format!("cannot start the sender: {e}"))?;
    let what = match &options.mrt {
        Some(file) => format!("Playing {} over BGP", file.display()),
        None => format!(
            "Sending a generated table of {} prefixes (seed {}) over BGP",
            number(options.prefixes.into()),
            options.seed
        ),
    };
    write_stdout(&format!("{what}:\n"))?;
    let expected_total = options.mrt.is_none().then_some(u64::from(options.prefixes));
    let mut progress = Progress::new(expected_total);
    loop {
        check_interrupt(interrupted)?;
        match result.recv_timeout(PROGRESS_POLL_INTERVAL) {
            Ok(Some(sent)) => {
                let sent = sent?;
                progress.show(&router.pipeline()?);
                return Ok(sent);
            }
            Ok(None) => progress.show(&router.pipeline()?),
            Err(Closed { .. }) => return Err("the sender ended without a word".into()),
        }
    }
}

fn send(options: &Options, port: u16) -> Result<(Feed, Expected, f64), String> {
    let from = Some(Ipv4Addr::new(127, 0, 0, 2).into());
    let connect = ConnectOptions { to: format!("127.0.0.1:{port}"), from, wait: 10 };
    let stay = StayOptions { quiet: true, ..StayOptions::default() };
    // The subnets of the built-in configuration's interface.
    let next_hops = NextHopOptions { next_hops: 64, ..NextHopOptions::default() };
    match &options.mrt {
        Some(file) => {
            let options = replay::Options {
                file: file.clone(),
                connect,
                speaker: SpeakerOptions::default(),
                peer: PeerChoice::Auto,
                prepend: Prepend::Auto,
                next_hop: vec![NextHopRule::Map(next_hops.next_hops4)],
                stay,
            };
            let mut replay = Replay::connect(&options).map_err(|e| e.to_string())?;
            let report = replay.play().map_err(|e| e.to_string())?;
            let expected = replay.expected();
            Ok((Feed::Recorded(Box::new(replay)), expected, report.seconds))
        }
        None => {
            let Options { prefixes, uniform, seed, .. } = *options;
            let ipv6 = if uniform { 0 } else { prefixes / 6 };
            let table =
                TableOptions { seed, ipv4: prefixes - ipv6, ipv6, uniform, ..TableOptions::default() };
            let options = blast::Options { connect, table, next_hops, stay, ..blast::Options::default() };
            let blast = Blast::connect(&options).map_err(|e| e.to_string())?;
            let report = blast.send().map_err(|e| e.to_string())?;
            let expected = blast.expected();
            Ok((Feed::Made(Box::new(blast)), expected, report.seconds))
        }
    }
}

/// Waits until the chip holds `total` routes and no stage moves.
fn wait_for_chip(router: &Router, total: u64, interrupted: &AtomicBool) -> Result<(), String> {
    let mut progress = Progress::new(Some(total));
    let mut last = (Instant::now(), 0);
    loop {
        check_interrupt(interrupted)?;
        let pipeline = router.pipeline()?;
        progress.show(&pipeline);
        let moved: u64 = pipeline.stages.iter().map(|s| s.routes).sum();
        if moved != last.1 {
            last = (Instant::now(), moved);
        }
        if router.asic_routes()? >= total && router.settled()? {
            return Ok(());
        }
        if last.0.elapsed() > STALL_TIMEOUT {
            let reached: Vec<String> =
                pipeline.stages.iter().map(|s| format!("{} {}", s.name, number(s.routes))).collect();
            return Err(format!(
                "nothing has moved for {} s: {}",
                STALL_TIMEOUT.as_secs(),
                reached.join(", ")
            ));
        }
        std::thread::sleep(PROGRESS_POLL_INTERVAL);
    }
}

/// Looks up an address of every prefix in the chip.
fn check(router: &Router, expected: &Expected, interrupted: &AtomicBool) -> Result<TableCheck, String> {
    let mut result = TableCheck::default();
    let mut probes: Vec<IpAddr> = expected.probes::<V4>().chain(expected.probes::<V6>()).collect();
    // In the order of addresses, look-ups read memory in sequence, and examples are the same in
    // each run.
    probes.sort_unstable();
    for chunk in probes.chunks(LOOKUP_BATCH_MAX) {
        check_interrupt(interrupted)?;
        let replies = router.asic_lookup(chunk.to_vec())?;
        result += expected.check(chunk.iter().copied().zip(replies.iter().map(single_next_hop)));
    }
    Ok(result)
}

/// The only next hop of a reply; `None` for a drop or ECMP.
fn single_next_hop(reply: &AsicLookup) -> Option<IpAddr> {
    match (reply.action.as_str(), reply.next_hops.as_slice()) {
        ("forward", [only]) => Some(*only),
        _ => None,
    }
}

fn report(result: &TableCheck) -> Result<(), String> {
    let total = result.right + result.wrong;
    if result.wrong == 0 && total > 0 {
        return write_stdout(&format!(
            "Check: an address of every prefix looked up in the virtual ASIC: all {} have the right next hop.\n",
            number(total)
        ));
    }
    let mut sentence = format!(
        "{} of {} prefixes have the wrong next hop in the virtual ASIC",
        number(result.wrong),
        number(total)
    );
    for wrong in &result.examples {
        sentence.push_str(&format!("\n  {wrong}"));
    }
    Err(sentence)
}

fn stay(feed: Feed) -> Result<(), String> {
    match feed {
        Feed::Made(blast) => blast.stay(),
        Feed::Recorded(replay) => replay.stay(),
    }
    .map_err(|e| e.to_string())
}

fn stage_table(pipeline: &Pipeline, total: u64, sent_seconds: f64, seconds: f64) -> String {
    let cpu: BTreeMap<&str, f64> =
        pipeline.threads.iter().map(|t| (t.name.as_str(), t.cpu_seconds)).collect();
    let rate = |n: u64, s: f64| if s > 0.0 { number((n as f64 / s) as u64) } else { "-".into() };
    let mut table =
        Table::new(&["Stage", ">Routes", ">Seconds", ">Routes/s", ">At work s", ">Routes/s at work"]);
    table.row([
        "sender".into(),
        number(total),
        format!("{sent_seconds:.2}"),
        rate(total, sent_seconds),
        "-".into(),
        "-".into(),
    ]);
    for s in &pipeline.stages {
        let span = span(s);
        table.row([
            s.name.clone(),
            number(s.routes),
            format!("{span:.2}"),
            rate(s.routes, span),
            format!("{:.2}", s.busy_seconds),
            rate(s.routes, s.busy_seconds),
        ]);
    }
    table.row([
        "all".into(),
        number(total),
        format!("{seconds:.2}"),
        rate(total, seconds),
        "-".into(),
        "-".into(),
    ]);
    let all: f64 = cpu.values().sum();
    let mut top: Vec<_> = cpu.into_iter().collect();
    top.sort_by(|a, b| b.1.total_cmp(&a.1));
    let threads: Vec<String> = top.iter().take(5).map(|(name, s)| format!("{name} {s:.2}")).collect();
    format!("{}CPU seconds: {all:.2}, most in {}\n", table.render(), threads.join(", "))
}

fn span(s: &Stage) -> f64 {
    s.last_seconds.unwrap_or(0.0) - s.first_seconds.unwrap_or(0.0)
}

/// Progress: a bar for each stage on a terminal, else lines.
struct Progress {
    total: Option<u64>,
    bars: Option<(MultiProgress, BTreeMap<String, ProgressBar>)>,
    begin: Instant,
    last_line: Instant,
}

impl Progress {
    fn new(total: Option<u64>) -> Progress {
        let bars = std::io::stderr().is_terminal().then(|| (MultiProgress::new(), BTreeMap::new()));
        Progress { total, bars, begin: Instant::now(), last_line: Instant::now() }
    }

    fn show(&mut self, pipeline: &Pipeline) {
        match &mut self.bars {
            Some((multi, bars)) => {
                for s in &pipeline.stages {
                    let bar =
                        bars.entry(s.name.clone()).or_insert_with(|| multi.add(new_bar(&s.name, self.total)));
                    bar.set_position(s.routes);
                }
            }
            None if self.last_line.elapsed() >= PROGRESS_LINE_INTERVAL => {
                let stages: Vec<String> =
                    pipeline.stages.iter().map(|s| format!("{} {}", s.name, number(s.routes))).collect();
                let at = self.begin.elapsed().as_secs_f64();
                // A closed standard error does not stop the load.
                let _ = writeln!(std::io::stderr(), "{at:6.1} s  {}", stages.join("  "));
                self.last_line = Instant::now();
            }
            None => {}
        }
    }
}

impl Drop for Progress {
    /// Removes the bars, however the wait ends.
    fn drop(&mut self) {
        if let Some((multi, _)) = &self.bars {
            // A closed terminal is ignored.
            let _ = multi.clear();
        }
    }
}

fn new_bar(name: &str, total: Option<u64>) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::no_length(),
    };
    let template = if total.is_some() {
        "  {prefix:<12} {bar:40} {human_pos:>10} routes"
    } else {
        "  {prefix:<12} {human_pos:>10} routes"
    };
    let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    bar.with_style(style).with_prefix(name.to_string())
}
