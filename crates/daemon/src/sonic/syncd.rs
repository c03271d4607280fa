//! `syncd` as a process: requests onto the virtual switch, replies back, rows into ASIC_DB.
//!
//! When syncd alone is started again, the rows of ASIC_DB make the switch anew. If they are written in line, orchagent
//! goes on; if not, it is asked to start again. When orchagent starts, it describes everything; what the switch had
//! before goes then.

use super::asic_db::AsicDb;
use super::north::Persistence;
use super::orchagent::RedisVids;
use super::performance::{Timers, Timing};
use super::settings::{ConfigDb, Settings, warm_restart};
use super::south::{self, Mode};
use super::south_server::SouthServer;
use super::syncd_stage::SyncdStage;
use super::{Error, log, query, refuse};
use crate::combinations::Asked;
use clap::Args;
use ribtide_runtime::ask;
use ribtide_runtime::ring::Rings;
use ribtide_runtime::thread::Stop;
use ribtide_sai::{Behavior, PortSetup, VirtualSwitch};
use ribtide_swss::syncd::Syncd;
use ribtide_tables::Databases;
use std::path::{Path, PathBuf};

const DAEMON: &str = "syncd";

/// Command line of `syncd`, as SONiC starts it on its virtual switch.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Answer each request: the same as -z redis_sync
    #[arg(short = 's')]
    pub synchronous: bool,
    /// How to talk to orchagent; without -z and -s redis_async, as in SONiC
    #[arg(short = 'z', value_name = "MODE")]
    pub mode: Option<Mode>,
    /// Where to take requests over ZeroMQ
    #[arg(long, value_name = "ENDPOINT", default_value = "tcp://127.0.0.1:5555")]
    pub zmq_requests: String,
    /// Write ASIC_DB behind: the same as --asic-db behind
    #[arg(short = 'R')]
    pub behind: bool,
    /// How ASIC_DB is kept
    #[arg(long, value_name = "WHEN", conflicts_with = "behind")]
    pub asic_db: Option<Persistence>,
    /// The switch's profile; its SAI_VS_INTERFACE_LANE_MAP_FILE names the ports and their lanes
    #[arg(short = 'p', value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// Take orchagent's start as a description of all that shall be, which ribtide always does
    #[arg(short = 'u')]
    pub temp_view: bool,
    /// Carry bulks out as bulks, which ribtide always does
    #[arg(short = 'l')]
    pub bulk: bool,
    /// SONiC's switch for a vendor's shell, of which a virtual switch has none; --query-socket is its stand-in
    #[arg(short = 'd', long = "diag")]
    pub diag: bool,
    /// Answer questions about the switch on this Unix socket: `lookup ADDRESS`, `route PREFIX`, `counts`,
    /// `chip`; and take orders: `set NAME=VALUE …`, `refuse PREFIX …`, `take PREFIX …`
    #[arg(long, value_name = "PATH")]
    pub query_socket: Option<PathBuf>,
    /// What is done with PerformanceTimers
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Timing::Keep)]
    pub performance: Timing,
    /// How the virtual switch behaves, such as rate=20000 or ipv4-routes=1000; may be given several times. docs/sonic.md
    /// has the settings
    #[arg(long, value_name = "NAME=VALUE", value_parser = chip_setting)]
    pub chip: Vec<(String, String)>,
    /// SONiC's database_config.json
    #[arg(long, value_name = "FILE")]
    pub database_config: Option<PathBuf>,
}

/// `NAME=VALUE`.
///
/// # Errors
/// A sentence, when it is something else.
pub fn chip_setting(text: &str) -> Result<(String, String), String> {
    let (name, value) =
        text.split_once('=').ok_or_else(|| format!("\"{text}\" is no NAME=VALUE, such as rate=20000"))?;
    Ok((name.into(), value.into()))
}

/// Runs for ever.
///
/// # Errors
/// One sentence for the operator: an option that does not work, a database that is not there.
pub fn run(options: Options) -> Result<(), Error> {
    run_until(&options, &Stop::default())
}

/// [`run`], until `stop`.
///
/// # Errors
/// As [`run`].
pub fn run_until(options: &Options, stop: &Stop) -> Result<(), Error> {
    let mode = Mode::asked(options.synchronous, options.mode);
    let persistence = match options.asic_db {
        None if options.behind => Persistence::Behind,
        asked => asked.unwrap_or(Persistence::InLine),
    };
    let ports = match &options.profile {
        None => PortSetup::usual(),
        Some(profile) => ports_of(profile)?,
    };
    let databases = Databases::load(options.database_config.as_deref())?;
    refuse(&Asked {
        asic_db: Some(persistence),
        warm_restart: warm_restart(&databases, &["syncd"], stop)?,
        ..Asked::default()
    })?;
    let vids = Box::new(RedisVids::open(&databases, stop)?);
    let mut chip = VirtualSwitch::new(ports, Behavior::default());
    chip.behave(options.chip.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .map_err(Error::new)?;
    let mut syncd = Syncd::new(chip, vids);
    let rings = Rings::default();
    let rows = AsicDb::open(persistence, &mut syncd, &databases, &rings, stop)?;
    let endpoint = south::endpoint(&options.zmq_requests)?;
    let link = SouthServer::open(mode, &endpoint, persistence, rows, &databases, &rings, stop)?;
    let mut settings = Settings::open(DAEMON, &databases, stop)?;
    south::note(mode, &mut ConfigDb::open(&databases, stop)?, &mut settings)?;
    settings.note("asic-db", persistence, persistence, "");
    let timers = Timers::start(options.performance, DAEMON, &databases, &mut settings, stop)?;
    settings.write()?;
    let (meter, answer) = (timers.timer("SAI"), timers.timer("ANSWER"));
    let stage = SyncdStage::new(syncd, Box::new(link), meter, answer);
    let (asker, asked) = ask::pair("syncd");
    if let Some(path) = &options.query_socket {
        query::start(DAEMON, path, asker, |stage: &mut SyncdStage| stage.syncd.chip_mut())?;
    }
    log(DAEMON, "started");
    stage.run(Some(&asked), stop)
}

/// The ports of a SONiC virtual switch's profile: a file of `KEY=VALUE`, one of which names a file of `NAME:LANES`.
fn ports_of(profile: &Path) -> Result<Vec<PortSetup>, Error> {
    let read = |path: &Path| {
        std::fs::read_to_string(path).map_err(|e| Error::new(format!("cannot read {}: {e}", path.display())))
    };
    let text = read(profile)?;
    let key = "SAI_VS_INTERFACE_LANE_MAP_FILE";
    let map =
        text.lines().filter_map(|line| line.trim().split_once('=')).find(|(name, _)| name.trim() == key);
    let Some((_, map)) = map else { return Ok(PortSetup::usual()) };
    let map = Path::new(map.trim());
    let lines = read(map)?;
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let port = line.split_once(':').and_then(|(name, lanes)| {
                let lanes =
                    lanes.split(',').map(|lane| lane.trim().parse().ok()).collect::<Option<Vec<u32>>>()?;
                Some(PortSetup { name: name.trim().into(), lanes, speed: 40_000 })
            });
            port.ok_or_else(|| {
                Error::new(format!("\"{line}\" in {} is no port; write NAME:LANE,LANE,…", map.display()))
            })
        })
        .collect()
}
