//! The `ribtide` command. Called as `fpmsyncd`, `orchagent` or `syncd`, it is that daemon.
//!
//! Without the feature `router` it has SONiC's daemons and the commands that ask them, and neither BGP nor an HTTP server.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]
#![forbid(unsafe_code)]

#[cfg(feature = "router")]
mod bench;
mod change;
#[cfg(feature = "router")]
mod check;
#[cfg_attr(not(feature = "router"), path = "no_client.rs")]
mod client;
#[cfg(feature = "router")]
mod demo;
#[cfg(feature = "router")]
mod dump;
mod exit;
#[cfg(feature = "router")]
mod flush;
mod manual;
mod metrics;
#[cfg(feature = "router")]
mod outputs;
#[cfg(feature = "router")]
mod policy;
#[cfg(feature = "router")]
mod remote;
mod route;
mod route_check;
#[cfg(feature = "router")]
mod router;
mod show;
#[cfg(feature = "router")]
mod support;
mod text;
#[cfg(feature = "router")]
mod top;
mod watch;

use clap::{Args, Parser, Subcommand};
use exit::Exit;
use ribtide_runtime::log::{self, LogSettings};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The commit that this was built from, if the build knew it.
#[cfg(feature = "router")]
const COMMIT: Option<&str> = option_env!("RIBTIDE_BUILD_COMMIT");

/// ribtide carries routes from BGP to the forwarding chip, and shows where each route is on the way.
#[derive(Debug, Parser)]
#[command(version, max_term_width = 110)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the router
    #[cfg(feature = "router")]
    Run(ConfigFile),
    /// Check a configuration; prints every error with line, column and correction, or what a reload would change
    #[cfg(feature = "router")]
    Check(check::Options),
    /// Print the JSON Schema of the configuration, for editors and programs
    #[cfg(feature = "router")]
    Schema {
        /// The schema of what each command prints with --json instead
        #[arg(long)]
        outputs: bool,
    },
    /// Print the completions of a shell; packages install them
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual pages into a folder; without one print the page of this command
    Man {
        /// The folder; created if it does not exist
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
    /// Evaluate the policies of a configuration file
    #[cfg(feature = "router")]
    #[command(subcommand)]
    Policy(policy::Policy),
    /// Show the state of the running router
    Show {
        #[command(subcommand)]
        what: show::Show,
        #[command(flatten)]
        output: show::Output,
    },
    /// Watch stages, queues and neighbours in the terminal
    #[cfg(feature = "router")]
    Top(top::Options),
    /// Show a prefix in each stage on its way to the chip
    Explain {
        /// A prefix, or an address for its longest match
        prefix: String,
        /// Only this VRF; otherwise the default one
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
        /// Also whether and how this neighbour is sent it, or why not
        #[arg(long, value_name = "NEIGHBOR", conflicts_with = "vrf")]
        to: Option<std::net::IpAddr>,
        /// Show it also in SONiC's daemons as processes and in their databases; of every ASIC, unless NAMESPACE_ID names one
        #[arg(long)]
        sonic: bool,
        /// With --sonic: SONiC's database_config.json, if not in its usual place
        #[arg(long, value_name = "FILE", requires = "sonic")]
        database_config: Option<PathBuf>,
        #[command(flatten)]
        output: show::Output,
    },
    /// Follow events of the running router: sessions, interfaces, repairs, changes by clients and reloads
    ///
    /// The events are those of the log, and with --routes changes of best paths, from now on; Ctrl-C ends it.
    Monitor {
        #[command(flatten)]
        events: show::Followed,
        #[command(flatten)]
        output: show::Output,
    },
    /// Show a prefix in each stage, and again whenever that changes
    Watch {
        /// A prefix, or an address for its longest match
        prefix: String,
        /// Only this VRF; otherwise the default one
        #[arg(long, value_name = "NAME")]
        vrf: Option<String>,
        /// Also whether and how this neighbour is sent it, or why not
        #[arg(long, value_name = "NEIGHBOR", conflicts_with = "vrf")]
        to: Option<std::net::IpAddr>,
        /// Seconds between two looks
        #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = watch::interval)]
        interval: f64,
        /// End after so many changes
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        changes: Option<u64>,
        #[command(flatten)]
        output: show::Output,
    },
    /// Compare the routes of BGP, RIB, databases, kernel and chip; exit status 0: equal, 1: different, 2: the check failed
    RouteCheck(route_check::Options),
    /// Reset sessions, or exchange their routes again
    Clear {
        #[command(subcommand)]
        what: show::Clear,
        #[command(flatten)]
        output: show::Output,
    },
    /// Change the running router until its next reload
    Config {
        #[command(subcommand)]
        what: change::Config,
        #[command(flatten)]
        output: show::Output,
    },
    /// Write what the running router has into a file
    #[cfg(feature = "router")]
    Dump {
        #[command(subcommand)]
        what: dump::Dump,
        #[command(flatten)]
        output: show::Output,
    },
    /// Apply the changed configuration file to the running router
    Reload {
        #[command(flatten)]
        output: show::Output,
    },
    /// Originate routes in the running router, for a time or until they are withdrawn
    Route {
        #[command(subcommand)]
        what: route::Route,
        #[command(flatten)]
        output: show::Output,
    },
    /// Write a bundle for a report of a fault: state, metrics, configuration without passwords and keys
    #[cfg(feature = "router")]
    Support(support::Options),
    /// Remove the routes of ribtide from the kernel while no router runs
    #[cfg(feature = "router")]
    Flush(flush::Options),
    /// Play an MRT file into a BGP session
    #[cfg(feature = "router")]
    Replay(ribtide_bench::replay::Options),
    /// Send a generated, internet-shaped table into BGP sessions
    #[cfg(feature = "router")]
    Blast(ribtide_bench::blast::Options),
    /// Receive routes over BGP sessions and count them
    #[cfg(feature = "router")]
    Sink(ribtide_bench::sink::Options),
    /// Run benchmark suites on this machine, beside other programs if they are installed
    #[cfg(feature = "router")]
    Bench {
        #[command(subcommand)]
        what: bench::Bench,
    },
    /// Send a full table through the whole path in one process and check every prefix (`make run`)
    #[cfg(feature = "router")]
    Demo(demo::Options),
    /// SONiC's fpmsyncd: FPM server in, APPL_DB out
    Fpmsyncd(ribtide_sonicd::fpmsyncd::Options),
    /// SONiC's orchagent (route path): APPL_DB in, ASIC_DB out
    Orchagent(ribtide_sonicd::orchagent::Options),
    /// SONiC's syncd with the virtual switch: ASIC_DB in, forwarding tables out
    Syncd(ribtide_sonicd::syncd::Options),
    /// Print the metrics of SONiC's daemons, for node_exporter's textfile collector
    Metrics(metrics::Options),
    /// Start Redis servers for the daemons
    #[command(subcommand)]
    Redis(ribtide_sonicd::redis_servers::Redis),
}

/// The configuration of an installed router.
#[cfg(feature = "router")]
const CONFIG_FILE: &str = "/etc/ribtide/ribtide.toml";

#[cfg(feature = "router")]
#[derive(Debug, Args)]
struct ConfigFile {
    /// The configuration file
    #[arg(short = 'c', long = "config", value_name = "FILE", default_value = CONFIG_FILE)]
    config: PathBuf,
}

fn main() -> ExitCode {
    text::find_width();
    let exit = run(command()).unwrap_or_else(Failure::end);
    log::flush();
    exit
}

/// Why the program ends otherwise than as asked.
struct Failure {
    exit: Exit,
    /// To be printed; `None`: the log has it.
    sentence: Option<String>,
}

impl Failure {
    fn new(exit: Exit, sentence: impl ToString) -> Failure {
        Failure { exit, sentence: Some(sentence.to_string()) }
    }

    /// Prints it. The exit status.
    fn end(self) -> ExitCode {
        if let Some(sentence) = self.sentence {
            text::write_stderr(&sentence);
        }
        self.exit.into()
    }
}

impl From<String> for Failure {
    fn from(sentence: String) -> Failure {
        Failure::new(Exit::Failed, sentence)
    }
}

fn start_log(settings: &LogSettings) -> Result<(), Failure> {
    log::start(settings).map_err(|e| {
        let exit = match e {
            log::StartError::Variable(_) => Exit::Unusable,
            log::StartError::Thread(_) => Exit::System,
        };
        Failure::new(exit, e)
    })
}

/// The command line; SONiC's daemon names act as subcommands.
fn command() -> Command {
    let mut args: Vec<OsString> = std::env::args_os().collect();
    let called =
        args.first().and_then(|a| Path::new(a).file_name()?.to_str().map(str::to_owned)).unwrap_or_default();
    if ["fpmsyncd", "orchagent", "syncd"].contains(&called.as_str()) {
        args.insert(1, called.into());
    }
    daemon_command(&args).unwrap_or_else(|| Cli::parse_from(args).command)
}

/// The command of a daemon, read without the arguments of all other commands: these would take a twelfth of its code into
/// memory, and some memory of its own. `None`: it is another command, or [`Cli`] has the message.
fn daemon_command(args: &[OsString]) -> Option<Command> {
    fn options<T: Args>(args: &[OsString]) -> Option<T> {
        let command = T::augment_args(clap::Command::new("ribtide"));
        T::from_arg_matches(&command.try_get_matches_from(args).ok()?).ok()
    }
    let args = args.get(1..)?;
    match args.first()?.to_str()? {
        #[cfg(feature = "router")]
        "run" => options(args).map(Command::Run),
        "fpmsyncd" => options(args).map(Command::Fpmsyncd),
        "orchagent" => options(args).map(Command::Orchagent),
        "syncd" => options(args).map(Command::Syncd),
        _ => None,
    }
}

fn run(command: Command) -> Result<ExitCode, Failure> {
    let settings = match &command {
        // Its log is configured in the file.
        #[cfg(feature = "router")]
        Command::Run(_) => None,
        Command::Fpmsyncd(options) => Some(LogSettings::from(&options.log)),
        Command::Orchagent(options) => Some(LogSettings::from(&options.log)),
        Command::Syncd(options) => Some(LogSettings::from(&options.log)),
        _ => Some(LogSettings::default()),
    };
    let kept = match &command {
        Command::Fpmsyncd(options) => Some(options.privileges.reduce()),
        Command::Orchagent(options) => Some(options.privileges.reduce()),
        Command::Syncd(options) => options.reduce().transpose(),
        // The router reads its configuration first, and commands have no connections.
        _ => None,
    };
    let kept = kept.transpose().map_err(|e| Failure::new(Exit::Permission, e))?;
    settings.as_ref().map_or(Ok(()), start_log)?;
    if let Some(kept) = kept {
        tracing::debug!(target: log::target::PROCESS, "{kept}");
    }
    match command {
        #[cfg(feature = "router")]
        Command::Run(file) => router::run(&file.config)?,
        #[cfg(feature = "router")]
        Command::Check(options) => return Ok(check::run(&options)?),
        #[cfg(feature = "router")]
        Command::Schema { outputs: true } => text::write_stdout(&format!("{:#}\n", outputs::schema()))?,
        #[cfg(feature = "router")]
        Command::Schema { outputs: false } => router::schema()?,
        Command::Completions { shell } => manual::completions(shell)?,
        Command::Man { folder } => manual::man(folder.as_deref())?,
        #[cfg(feature = "router")]
        Command::Policy(what) => return Ok(policy::run(&what)?),
        Command::Show { what, output } => show::show(&what, &output)?,
        #[cfg(feature = "router")]
        Command::Top(options) => top::run(&options)?,
        Command::Explain { prefix, vrf, to, sonic, database_config, output } => {
            let databases = sonic.then_some(database_config.as_deref());
            show::explain(&prefix, vrf.as_deref(), to, databases, &output)?;
        }
        Command::Monitor { events, output } => show::monitor(&events, &output)?,
        Command::Watch { prefix, vrf, to, interval, changes, output } => {
            watch::run(&prefix, vrf.as_deref(), to, interval, changes, &output)?;
        }
        Command::RouteCheck(options) => return Ok(route_check::run(&options)),
        Command::Clear { what, output } => show::clear(&what, &output)?,
        Command::Config { what, output } => change::config(&what, &output)?,
        #[cfg(feature = "router")]
        Command::Dump { what, output } => dump::run(&what, &output)?,
        Command::Reload { output } => change::reload(&output)?,
        Command::Route { what, output } => route::run(&what, &output)?,
        #[cfg(feature = "router")]
        Command::Support(options) => support::run(&options)?,
        #[cfg(feature = "router")]
        Command::Flush(options) => flush::run(&options)?,
        #[cfg(feature = "router")]
        Command::Replay(options) => drop(ribtide_bench::replay::run(&options).map_err(sentence)?),
        #[cfg(feature = "router")]
        Command::Blast(options) => drop(ribtide_bench::blast::run(&options).map_err(sentence)?),
        #[cfg(feature = "router")]
        Command::Sink(options) => drop(ribtide_bench::sink::run(&options).map_err(sentence)?),
        #[cfg(feature = "router")]
        Command::Bench { what } => bench::run(&what)?,
        #[cfg(feature = "router")]
        Command::Demo(options) => demo::run(&options)?,
        Command::Fpmsyncd(options) => daemon("fpmsyncd", ribtide_sonicd::fpmsyncd::run(options))?,
        Command::Orchagent(options) => daemon("orchagent", ribtide_sonicd::orchagent::run(options))?,
        Command::Syncd(options) => daemon("syncd", ribtide_sonicd::syncd::run(options))?,
        Command::Metrics(options) => metrics::run(&options)?,
        Command::Redis(redis) => ribtide_sonicd::redis_servers::run(redis).map_err(sentence)?,
    }
    Ok(Exit::Done.into())
}

/// Logs why a daemon of SONiC ended.
fn daemon(name: &str, ended: Result<(), ribtide_sonicd::Error>) -> Result<(), Failure> {
    ended.map_err(|e| {
        ribtide_sonicd::events::log_failure(name, &e);
        Failure { exit: Exit::from(&e), sentence: None }
    })
}

fn sentence(error: impl std::fmt::Display) -> String {
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::{Cli, daemon_command};
    use clap::Parser;
    use std::ffi::OsString;

    fn args(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    /// The plural of other programs.
    #[test]
    fn show_takes_plural_names_too() {
        let command = |line: &str| Cli::try_parse_from(args(line)).map(|cli| format!("{:?}", cli.command));
        for (other, own) in [
            ("bgp neighbors", "bgp neighbor"),
            ("bgp routes", "bgp route"),
            ("bgp groups", "bgp group"),
            ("bgp update-groups", "bgp group"),
            ("bgp nexthops", "bgp nexthop"),
            ("bgp aggregates", "bgp aggregate"),
            ("routes", "route"),
            ("nexthop-groups", "nexthop-group"),
        ] {
            let [other, own] = [other, own].map(|name| command(&format!("ribtide show {name}")).unwrap());
            assert_eq!(other, own);
        }
    }

    #[test]
    fn daemon_command_reads_what_the_whole_command_line_reads() {
        for line in [
            #[cfg(feature = "router")]
            "ribtide run",
            #[cfg(feature = "router")]
            "ribtide run -c /tmp/a.toml",
            #[cfg(feature = "router")]
            "ribtide run --config=/tmp/a.toml",
            "ribtide fpmsyncd",
            "ribtide orchagent",
            "ribtide syncd",
        ] {
            let args = args(line);
            let alone = daemon_command(&args).expect(line);
            assert_eq!(format!("{alone:?}"), format!("{:?}", Cli::parse_from(args).command), "{line}");
        }
    }

    #[test]
    fn daemon_command_leaves_messages_and_other_commands_to_the_whole_command_line() {
        for line in [
            "ribtide",
            "ribtide run --help",
            "ribtide run --no",
            "ribtide run run",
            "ribtide show",
            "ribtide syncd -h",
        ] {
            assert!(daemon_command(&args(line)).is_none(), "{line}");
        }
    }
}
