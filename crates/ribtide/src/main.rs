//! The `ribtide` command. Called as `fpmsyncd`, `orchagent` or `syncd`, it is that daemon.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

mod bench;
mod change;
mod client;
mod demo;
mod flush;
mod route_check;
mod show;
mod text;

use clap::{Args, Parser, Subcommand};
use ribtide_config as config;
use ribtide_daemon::router::Router;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// ribtide carries a route from a BGP session to the forwarding chip, and can say where it is on the way.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the router
    Run(ConfigFile),
    /// Validate a configuration; every error with its line, column and cure
    Check(ConfigFile),
    /// The shape of the configuration as JSON Schema, for editors and programs
    Schema,
    /// Look inside the running router
    Show {
        #[command(subcommand)]
        what: show::Show,
        #[command(flatten)]
        output: show::Output,
    },
    /// Where a prefix is on its way to the chip, stage by stage
    Explain {
        /// A prefix, or an address whose longest match is meant
        prefix: String,
        /// In this VRF; without, in the default one
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
        /// Go on into SONiC's daemons and the databases between them, where they are processes of their own; with no router, only
        /// there. Of several ASICs into each, unless NAMESPACE_ID says which
        #[arg(long)]
        sonic: bool,
        /// With --sonic: SONiC's database_config.json, where it is not in SONiC's place
        #[arg(long, value_name = "FILE", requires = "sonic")]
        database_config: Option<PathBuf>,
        #[command(flatten)]
        output: show::Output,
    },
    /// Whether RIB, databases, kernel and chip have the same routes; exit status 0: they have, 1: not, 2: not found out
    RouteCheck(route_check::Options),
    /// End sessions, or exchange their routes again
    Clear {
        #[command(subcommand)]
        what: show::Clear,
        #[command(flatten)]
        output: show::Output,
    },
    /// Change the running router, until it reads its configuration file again
    Config {
        #[command(subcommand)]
        what: change::Config,
        #[command(flatten)]
        output: show::Output,
    },
    /// Have the running router read its configuration file again; it touches only what changed
    Reload {
        #[command(flatten)]
        output: show::Output,
    },
    /// Remove what ribtide installed from the kernel, while no router is running
    Flush(flush::Options),
    /// Play an MRT file into a BGP session
    Replay(ribtide_bench::replay::Options),
    /// Send an internet-shaped table, made from a seed, into BGP sessions
    Blast(ribtide_bench::blast::Options),
    /// Receive and count
    Sink(ribtide_bench::sink::Options),
    /// Measure this machine: suites of workloads, beside other programs where they are installed
    Bench {
        #[command(subcommand)]
        what: bench::Bench,
    },
    /// A full table through the whole path in this one process, with a check of every prefix (what `make run` runs)
    Demo(demo::Options),
    /// SONiC's fpmsyncd: FPM server in, APPL_DB out
    Fpmsyncd(ribtide_sonicd::fpmsyncd::Options),
    /// SONiC's orchagent (route path): APPL_DB in, ASIC_DB out
    Orchagent(ribtide_sonicd::orchagent::Options),
    /// SONiC's syncd with the virtual switch: ASIC_DB in, forwarding tables out
    Syncd(ribtide_sonicd::syncd::Options),
    /// Redis servers for the daemons, for people who have none
    #[command(subcommand)]
    Redis(ribtide_sonicd::redis_servers::Redis),
}

#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = "/etc/ribtide/ribtide.toml")]
    config: PathBuf,
}

fn main() -> ExitCode {
    let done = match command() {
        Ok(Command::RouteCheck(options)) => return route_check::run(&options),
        command => command.and_then(run),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(sentence) => {
            text::complain(&sentence);
            ExitCode::FAILURE
        }
    }
}

/// The command line, with SONiC's daemon names standing for subcommands.
fn command() -> Result<Command, String> {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let called =
        args.first().and_then(|a| Path::new(a).file_name()?.to_str().map(str::to_owned)).unwrap_or_default();
    if ["fpmsyncd", "orchagent", "syncd"].contains(&called.as_str()) {
        args.insert(1, called.into());
    }
    Ok(Cli::parse_from(args).command)
}

fn run(command: Command) -> Result<(), String> {
    match command {
        Command::Run(file) => router(&file.config),
        Command::Check(file) => check(&file.config),
        Command::Schema => text::say(&format!("{:#}\n", config::schema())),
        Command::Show { what, output } => show::show(&what, &output),
        Command::Explain { prefix, vrf, sonic, database_config, output } => {
            let databases = sonic.then_some(database_config.as_deref());
            show::explain(&prefix, vrf.as_deref(), databases, &output)
        }
        Command::RouteCheck(options) => match route_check::run(&options) {
            status if status == ExitCode::SUCCESS => Ok(()),
            _ => Err("the routes differ".into()),
        },
        Command::Clear { what, output } => show::clear(&what, &output),
        Command::Config { what, output } => change::config(&what, &output),
        Command::Reload { output } => change::reload(&output),
        Command::Flush(options) => flush::run(&options),
        Command::Replay(options) => sentence(ribtide_bench::replay::run(&options).map(drop)),
        Command::Blast(options) => sentence(ribtide_bench::blast::run(&options).map(drop)),
        Command::Sink(options) => sentence(ribtide_bench::sink::run(&options).map(drop)),
        Command::Bench { what } => bench::run(&what),
        Command::Demo(options) => demo::run(&options),
        Command::Fpmsyncd(options) => sentence(ribtide_sonicd::fpmsyncd::run(options)),
        Command::Orchagent(options) => sentence(ribtide_sonicd::orchagent::run(options)),
        Command::Syncd(options) => sentence(ribtide_sonicd::syncd::run(options)),
        Command::Redis(redis) => sentence(ribtide_sonicd::redis_servers::run(redis)),
    }
}

fn sentence<E: std::fmt::Display>(result: Result<(), E>) -> Result<(), String> {
    result.map_err(|e| e.to_string())
}

fn router(path: &Path) -> Result<(), String> {
    let config = config::load(path).map_err(|e| e.to_string())?;
    // Whoever reloads need not be where the router was started.
    let file = std::path::absolute(path).map_err(|e| format!("{}: {e}", path.display()))?;
    warn(path, &config);
    let router = Router::start(config, Some(file)).map_err(|e| e.to_string())?;
    let at = router.socket().display();
    text::complain(&format!("running; `ribtide show bgp summary --socket {at}` looks inside"));
    router.run_until_signal().map_err(|e| e.to_string())
}

/// Says what of a valid configuration an operator may not have meant.
fn warn(path: &Path, config: &config::Config) {
    for says in config.warnings() {
        text::complain(&format!("{}: warning: {says}", path.display()));
    }
}

fn check(path: &Path) -> Result<(), String> {
    let config = config::load(path).map_err(|e| e.to_string())?;
    let neighbors = config.bgp.as_ref().map_or(0, |b| b.neighbors.len());
    let (neighbors, statics) = (
        text::count(neighbors as u64, "neighbour"),
        text::count(config.statics.len() as u64, "static route"),
    );
    warn(path, &config);
    text::say(&format!("{}: valid; AS {}, {neighbors}, {statics}\n", path.display(), config.asn))
}
