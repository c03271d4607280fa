//! `syncd` as a process: requests to the virtual switch, replies back, rows into ASIC_DB.
//!
//! After a restart of syncd alone, the rows of ASIC_DB restore the switch. If they are written in
//! line, orchagent continues; otherwise it is asked to restart. A starting orchagent describes
//! everything, and the former contents of the switch are removed.

use super::appl_transport::Lag;
use super::asic_db::AsicDb;
use super::asic_transport;
use super::asic_transport_server::AsicTransportServer;
use super::config_db::{ConfigDb, Switch};
use super::context_config::{Context, ContextFile};
use super::counters::{self, CounterSink};
use super::health::StallOptions;
use super::ignored_options::SyncdIgnored;
use super::kernel_chip::{self, KernelOptions};
use super::orchagent::RedisVids;
use super::packets::PacketPath;
use super::performance::{Timers, Timing};
use super::reconcile::{self, ChipRounds, ReconcileOptions, RoundLog, Tally};
use super::settings::{Settings, refuse_with_warm_restart};
use super::syncd_chip::{self, SyncdChip};
use super::syncd_stage::{Shutdown, SyncdStage};
use super::warm::{State, WarmStart};
use super::{Daemon, Error, LogOptions, PrivilegeOptions, explain, health, query, queues, warm_file};
use clap::{Args, ValueEnum};
use ribtide_privileges::Kept;
use ribtide_runtime::call::{self, StageHandle};
use ribtide_runtime::code_pages;
use ribtide_runtime::log::target;
use ribtide_runtime::ring;
use ribtide_runtime::thread::Stop;
use ribtide_runtime::unix_socket;
use ribtide_settings::{Mode, Persistence, RequestedSettings};
use ribtide_swss::sai::schema::Validation;
use ribtide_swss::syncd::Syncd;
use ribtide_swss::{Db, json};
use ribtide_tables::{PubSubEvent, listen};
use ribtide_vswitch::{Behavior, PortSetup, VirtualSwitch};
use std::path::{Path, PathBuf};
use std::time::Duration;

const DAEMON: &str = "syncd";

/// How long a request may take before syncd logs it, as SONiC's `syncd/TimerWatchdog.cpp` does.
#[derive(Args, Clone, Copy, Debug)]
pub struct Watchdog {
    /// Log a request that takes the switch longer than this
    #[arg(
        short = 'w',
        long = "watchdogWarnTimeSpan",
        value_name = "MICROSECONDS",
        default_value_t = 30_000_000
    )]
    pub warn: u64,
    /// The same until the first view is applied [default: as -w]
    #[arg(short = 'W', long = "watchdogInitTimeSpan", value_name = "MICROSECONDS")]
    pub warn_at_start: Option<u64>,
}

impl Watchdog {
    /// The time for a request, until the first view is applied or after.
    pub(super) fn span(&self, starting: bool) -> Duration {
        Duration::from_micros(if starting { self.warn_at_start.unwrap_or(self.warn) } else { self.warn })
    }
}

/// Command line of `syncd`, as SONiC starts it on its virtual switch.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// Reply to each request: the same as -z redis_sync
    #[arg(short = 's', long = "syncMode")]
    pub synchronous: bool,
    /// The transport from orchagent. Without -z and -s: redis_async, as in SONiC
    #[arg(short = 'z', long = "redisCommunicationMode", value_name = "MODE")]
    pub mode: Option<Mode>,
    /// The endpoint to listen on for requests over ZeroMQ [default, without -x: tcp://127.0.0.1:5555]
    #[arg(long, value_name = "ENDPOINT")]
    pub zmq_requests: Option<String>,
    /// Write ASIC_DB from a thread of its own: the same as --asic-db behind
    #[arg(short = 'R', long = "asyncRec")]
    pub behind: bool,
    /// When ASIC_DB is written
    #[arg(long, value_name = "WHEN", conflicts_with = "behind")]
    pub asic_db: Option<Persistence>,
    /// How far it may be behind
    #[command(flatten)]
    pub lag: Lag,
    /// The SAI profile; its SAI_VS_INTERFACE_LANE_MAP_FILE is a file with the ports and their lanes. With
    /// SAI_VS_HOSTIF_USE_TAP_DEVICE=true packets go through the virtual switch: each port is the netdev
    /// of its name in that file, and each host interface a tap device
    #[arg(short = 'p', long = "profile", value_name = "FILE")]
    pub profile: Option<PathBuf>,
    /// A vendor's SAI library in the place of the virtual switch, such as libsai.so: a path, or a name that is
    /// looked for in the system's folders for libraries. It gets every key of the profile
    #[arg(long, value_name = "PATH", conflicts_with_all = ["chip", "query_socket"])]
    pub sai_library: Option<PathBuf>,
    /// The kernel as the chip
    #[command(flatten)]
    pub kernel: KernelOptions,
    /// Treat the requests of orchagent's start as a complete view (INIT_VIEW, APPLY_VIEW). Always on
    #[arg(short = 'u', long = "useTempView")]
    pub temp_view: bool,
    /// The type of start. Without this option, WARM_RESTART_ENABLE_TABLE decides between cold and warm
    #[arg(short = 't', long = "startType", alias = "start-type", value_name = "TYPE")]
    pub start_type: Option<StartType>,
    /// Use the bulk functions of SAI. Always on
    #[arg(short = 'l', long = "enableSaiBulkSupport")]
    pub bulk: bool,
    /// No effect: the virtual switch has no vendor's shell. --query-socket is for the same purpose
    #[arg(short = 'd', long = "diag")]
    pub diag: bool,
    /// A Unix socket for queries of the switch (`lookup ADDRESS`, `route PREFIX`, `counts`, `chip`) and
    /// changes of it (`set NAME=VALUE …`, `refuse PREFIX …`, `take PREFIX …`)
    #[arg(long, value_name = "PATH")]
    pub query_socket: Option<PathBuf>,
    /// The permissions of the query socket, in octal digits. A user with write permission may query and
    /// change the virtual switch
    #[arg(long, value_name = "MODE", default_value = "0600", value_parser = socket_mode)]
    pub query_socket_mode: u32,
    /// SONiC's context
    #[command(flatten)]
    pub context: ContextFile,
    /// Which requests are validated by SAI's schema before they reach the switch
    #[arg(long, value_name = "WHICH", value_enum, default_value_t = Validate::All)]
    pub validation: Validate,
    /// When a request takes too long
    #[command(flatten)]
    pub watchdog: Watchdog,
    /// How often the switch and ASIC_DB are compared
    #[command(flatten)]
    pub reconcile: ReconcileOptions,
    /// Read DEVICE_METADATA and SYSTEM_DEFAULTS of CONFIG_DB, as SONiC's start script does. An option on
    /// the command line takes precedence
    #[arg(long)]
    pub config_db: bool,
    /// What SONiC's has beyond that
    #[command(flatten)]
    pub ignored: SyncdIgnored,
    /// Whether PerformanceTimers are kept, and logged
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Timing::Keep)]
    pub performance: Timing,
    /// A setting of the virtual switch, such as rate=20000 or ipv4-routes=1000. Can be repeated.
    /// docs/sonic.md has the settings
    #[arg(long, value_name = "NAME=VALUE", value_parser = chip_setting)]
    pub chip: Vec<(String, String)>,
    /// SONiC's database_config.json, if not in its usual place
    #[arg(long, value_name = "FILE")]
    pub database_config: Option<PathBuf>,
    /// When work counts as stalled
    #[command(flatten)]
    pub stall: StallOptions,
    /// What is logged, and how
    #[command(flatten)]
    pub log: LogOptions,
    /// What it may do
    #[command(flatten)]
    pub privileges: PrivilegeOptions,
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

/// Permissions of a socket.
fn socket_mode(text: &str) -> Result<u32, String> {
    unix_socket::mode(text).ok_or_else(|| {
        format!(
            "\"{text}\" is no mode of a socket that its owner can use; write octal digits, from 0600 to 0777"
        )
    })
}

/// The requests that are checked against SAI's schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Validate {
    /// All requests.
    All,
    /// Requests for one object. Bulks, such as those of routes, are not validated.
    Single,
    /// No request.
    Off,
}

impl Validate {
    fn rules(self) -> Validation {
        match self {
            Validate::All => Validation::All,
            Validate::Single => Validation::Single,
            Validate::Off => Validation::Off,
        }
    }
}

impl Options {
    /// Gives up privileges, as [`PrivilegeOptions::reduce`] does. The packets of the virtual switch need
    /// packet sockets and tap devices, the kernel as the chip needs CAP_NET_ADMIN. A vendor's library needs
    /// what its driver needs, so with one nothing is given up.
    ///
    /// # Errors
    /// The first step that fails, as a sentence.
    pub fn reduce(&self) -> Result<Option<Kept>, ribtide_privileges::Error> {
        if self.sai_library.is_some() {
            return Ok(None);
        }
        if self.kernel.kernel_chip {
            return self.privileges.reduce_for_kernel().map(Some);
        }
        // A profile that cannot be read is reported later.
        match forwards_packets(self.profile.as_deref()) {
            Ok(true) => self.privileges.reduce_for_packets().map(Some),
            _ => self.privileges.reduce().map(Some),
        }
    }
}

/// Whether packets go through the virtual switch.
fn forwards_packets(profile: Option<&Path>) -> Result<bool, Error> {
    let Some(profile) = profile else { return Ok(false) };
    let value = profile_value(profile, USE_TAP)?;
    match value.as_deref() {
        None | Some("false") => Ok(false),
        Some("true") if profile_value(profile, LANE_MAP)?.is_some() => Ok(true),
        Some("true") => Err(Error::Configuration(format!(
            "{USE_TAP}=true in {} needs {LANE_MAP}, a file that names the netdev of each port",
            profile.display()
        ))),
        Some(other) => Err(Error::Configuration(format!(
            "{USE_TAP}={other} in {} is neither true nor false",
            profile.display()
        ))),
    }
}

/// How syncd starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum StartType {
    /// The switch is empty, or gets the objects of ASIC_DB.
    Cold,
    /// The switch kept forwarding, with the objects of the earlier syncd.
    Warm,
    /// SONiC's fast restart: the same as cold.
    Fast,
    /// SONiC's fast restart that keeps the chip's state: the same as cold.
    #[value(name = "fastfast")]
    FastFast,
    /// Cisco's express boot: the same as cold.
    Express,
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
    options.stall.check()?;
    let daemon = &Daemon::new(DAEMON, Db::Asic, options.database_config.as_deref(), stop)?;
    health::watch(options.stall, daemon)?;
    let mut config = ConfigDb::new(daemon.connect(Db::Config)?);
    let context = options.context.read(DAEMON)?;
    let mode = context.mode(asic_transport::mode_of(
        options.synchronous,
        options.mode,
        options.config_db,
        &mut config,
    )?);
    // SONiC's script selects write-behind when both are requested.
    let scripts = options.config_db && config.has(Switch::Zmq)? && config.has(Switch::AsyncRec)?;
    let persistence = match options.asic_db {
        None if options.behind || scripts => Persistence::WriteBehind,
        requested => requested.unwrap_or(Persistence::InLine),
    };
    let requested = RequestedSettings { asic_db: Some(persistence), ..RequestedSettings::default() };
    refuse_with_warm_restart(daemon, requested, &["syncd"])?;
    let warm = WarmStart::begin(DAEMON, DAEMON, daemon)?;
    let wanted = options.start_type.map_or(warm.is_warm(), |start| start == StartType::Warm);
    let start = Start { options, daemon: daemon.clone(), config, context, mode, persistence, warm, wanted };
    match &options.sai_library {
        Some(path) => run_library(path, start, stop),
        None if options.kernel.kernel_chip => run_kernel(start, stop),
        None => run_virtual_switch(start, stop),
    }
}

/// What [`run_until`] knows before the chip.
struct Start<'a> {
    options: &'a Options,
    daemon: Daemon,
    config: ConfigDb,
    context: Context,
    mode: Mode,
    persistence: Persistence,
    warm: WarmStart,
    /// Whether a warm start is requested.
    wanted: bool,
}

/// syncd with the virtual switch.
fn run_virtual_switch(start: Start<'_>, stop: &Stop) -> Result<(), Error> {
    let vids = Box::new(RedisVids::open(&start.daemon)?);
    let ports = match &start.options.profile {
        None => PortSetup::usual(),
        Some(profile) => ports_of(profile)?,
    };
    let forwards = forwards_packets(start.options.profile.as_deref())?;
    let names: Vec<String> = ports.iter().map(|port| port.name.to_string()).collect();
    let kept =
        match start.wanted && (start.persistence == Persistence::Off || AsicDb::has_rows(&start.daemon)?) {
            true => warm_file::load(&file(start.options, READ_FILE)?, ports.clone(), vids)?,
            false => None,
        };
    let resumed = kept.is_some();
    match (start.wanted, resumed) {
        (true, true) => {
            tracing::info!(target: target::SYNCD, "syncd goes on with the switch that an earlier syncd left")
        }
        (true, false) => {
            tracing::warn!(target: target::SYNCD, "no earlier syncd left a switch that ASIC_DB knows; starting cold")
        }
        _ => {}
    }
    let mut syncd = match kept {
        Some(syncd) => syncd,
        None => {
            let vids = Box::new(RedisVids::open(&start.daemon)?);
            Syncd::new(VirtualSwitch::new(ports, Behavior::default()), vids)
        }
    }
    .validate(start.options.validation.rules());
    syncd
        .chip_mut()
        .behave(start.options.chip.iter().map(|(name, value)| (name.as_str(), value.as_str())))
        .map_err(Error::Configuration)?;
    serve(start, syncd, resumed, stop, |start, stage, handle| {
        if forwards {
            let packets = PacketPath::start(names, stage.syncd.chip_mut(), &start.daemon)?;
            stage.packets = Some(packets);
        }
        if let Some(interval) = start.options.reconcile.interval() {
            let tally = Tally::default();
            tally.publish(&start.daemon);
            let log = || RoundLog::new(DAEMON, tally.clone());
            stage.reconcile = Some(ChipRounds::new(interval, log()));
            if start.persistence != Persistence::Off {
                let (rows, others) = (start.daemon.connect(Db::Asic)?, start.daemon.connect(Db::Asic)?);
                let reader = reconcile::asic_db::reader(rows, others);
                let rounds =
                    reconcile::mirror::Reconciler::new(handle.clone(), reader, interval, log(), stop);
                reconcile::mirror::start(DAEMON, rounds, Vec::new())?;
            }
        }
        if let Some(path) = &start.options.query_socket {
            query::start(DAEMON, path, start.options.query_socket_mode, handle, |stage: &mut SyncdStage| {
                query::Seen { rows: stage.rows(), switch: stage.syncd.chip_mut() }
            })?;
        }
        Ok(())
    })
}

/// syncd with a vendor's library.
fn run_library(path: &Path, start: Start<'_>, stop: &Stop) -> Result<(), Error> {
    if start.wanted {
        tracing::warn!(target: target::SYNCD, "a warm start with a SAI library is not supported; starting cold");
    }
    let profile = start.options.profile.as_deref().map(profile_pairs).transpose()?.unwrap_or_default();
    let (chip, wake_up) = syncd_chip::library(path, &profile)?;
    let vids = Box::new(RedisVids::open(&start.daemon)?);
    let syncd = Syncd::new(chip, vids).validate(start.options.validation.rules());
    serve(start, syncd, false, stop, |_, stage, _| {
        stage.chip_wake_up = wake_up;
        Ok(())
    })
}

/// syncd with the Linux kernel.
fn run_kernel(start: Start<'_>, stop: &Stop) -> Result<(), Error> {
    let options = start.options;
    if forwards_packets(options.profile.as_deref())? {
        return Err(Error::Configuration(format!(
            "{USE_TAP}=true makes the virtual switch forward packets; with --kernel-chip the kernel does, so leave it out"
        )));
    }
    let ports = match &options.profile {
        None => PortSetup::usual(),
        Some(profile) => ports_of(profile)?,
    };
    let chip = options.kernel.open(ports, &options.chip)?;
    let vids = Box::new(RedisVids::open(&start.daemon)?);
    let syncd = Syncd::new(chip, vids).validate(options.validation.rules());
    serve(start, syncd, false, stop, |start, stage, _| {
        stage.chip_wake_up = kernel_chip::watch(stage.syncd.chip_mut(), &start.daemon)?;
        Ok(())
    })
}

/// Serves orchagent with a chip, until `stop`. `set_up` adds what only this chip has.
fn serve<C: SyncdChip>(
    mut start: Start<'_>,
    mut syncd: Syncd<C>,
    resumed: bool,
    stop: &Stop,
    set_up: impl FnOnce(&Start<'_>, &mut SyncdStage<C>, StageHandle<SyncdStage<C>>) -> Result<(), Error>,
) -> Result<(), Error> {
    let (options, persistence, mode) = (start.options, start.persistence, start.mode);
    let daemon = &start.daemon.clone();
    queues::publish(None, daemon)?;
    let (rows, goes_on) = AsicDb::open((persistence, options.lag), &mut syncd, resumed, daemon)?;
    if goes_on && !syncd.is_empty() && !syncd.has_unapplied_view() {
        syncd.chip_mut().settle();
    }
    let endpoint = options.zmq_requests.as_deref().or(start.context.zmq_endpoint.as_deref());
    let endpoint = asic_transport::endpoint(endpoint.unwrap_or("tcp://127.0.0.1"))?;
    let mut settings = Settings::new(daemon);
    asic_transport::note(mode, &mut start.config, &mut settings)?;
    settings.note("asic-db", persistence, persistence, "");
    options.lag.note(&mut settings);
    let validation = format!("{:?}", options.validation).to_lowercase();
    settings.note("validation", &validation, &validation, "");
    if let Some(start) = options.start_type {
        let requested =
            start.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default();
        let (active, why) = match (resumed, start) {
            (true, _) => ("warm", ""),
            (false, StartType::Cold) => ("cold", ""),
            (false, StartType::Warm) if options.kernel.kernel_chip => {
                ("cold", "the kernel goes on forwarding, and syncd adopts its entries")
            }
            (false, StartType::Warm) => ("cold", "no earlier syncd left a switch that ASIC_DB knows"),
            (false, _) => {
                ("cold", "the virtual switch begins with what ASIC_DB has, and orchagent describes it again")
            }
        };
        settings.note("-t", requested, active, why);
    }
    options.ignored.note(&mut settings);
    let seconds = options.reconcile.seconds;
    match &options.sai_library {
        None if options.kernel.kernel_chip => options.kernel.note(seconds, &mut settings),
        None => settings.note("--reconcile-interval", seconds, seconds, ""),
        Some(path) => {
            let path = path.display().to_string();
            settings.note("--sai-library", &path, &path, "");
            let why = "a SAI library is not compared with ASIC_DB";
            settings.note("--reconcile-interval", seconds, 0, why);
        }
    }
    let timers = Timers::start(options.performance, &mut settings, daemon);
    let link = AsicTransportServer::open((mode, &endpoint), persistence, rows, settings, daemon)?;
    let (meter, answer) = (timers.timer("SAI"), timers.timer("ANSWER"));
    if resumed {
        start.warm.set_state(State::Reconciled);
    }
    let shutdown = Shutdown { requests: listen_for_shutdown(daemon)?, file: file(options, WRITE_FILE)? };
    let mut stage =
        SyncdStage::new(syncd, Box::new(link), meter, answer, &daemon.rings).watched(options.watchdog);
    stage.shutdown = Some(shutdown);
    let settings = match persistence {
        Persistence::Off => counters::Settings::default(),
        _ => counters::restore(&mut stage.syncd, daemon)?,
    };
    stage.counters = Some(CounterSink::start(settings, daemon)?);
    let (handle, calls) = call::pair("syncd");
    let explain = |stage: &mut SyncdStage<C>, _: Option<&str>, prefix, router| {
        C::explain(&mut stage.syncd, prefix, router)
    };
    explain::answer(daemon, handle.clone(), explain)?;
    set_up(&start, &mut stage, handle)?;
    tracing::info!(target: target::SYNCD, "syncd has started");
    code_pages::unmap_start();
    stage.run(Some(&calls), stop)
}

/// The channel of ASIC_DB for shutdown requests.
const RESTART_QUERY: &str = "RESTARTQUERY";
/// The keys of a profile for the warm-boot files.
const READ_FILE: &str = "SAI_WARM_BOOT_READ_FILE";
const WRITE_FILE: &str = "SAI_WARM_BOOT_WRITE_FILE";
/// Whether host interfaces are tap devices, and ports netdevs.
const USE_TAP: &str = "SAI_VS_HOSTIF_USE_TAP_DEVICE";
/// The file with the ports.
const LANE_MAP: &str = "SAI_VS_INTERFACE_LANE_MAP_FILE";
/// The default path.
const KEPT_IN: &str = "/var/warmboot/sai-warmboot.bin";

/// Listens for shutdown requests: `true` for warm. SONiC's preparations for it need nothing here.
fn listen_for_shutdown(daemon: &Daemon) -> Result<ring::Receiver<bool>, Error> {
    let (request_tx, requests) = ring::unlisted("shutdown requests", 1);
    let asic = daemon.databases.get(Db::Asic);
    listen(asic, vec![RESTART_QUERY.into()], &daemon.stop, move |heard| {
        let PubSubEvent::Message { payload, .. } = heard else { return };
        let parts = json::read_strings(payload).unwrap_or_default();
        let warm = match parts.first().map(|part| &**part) {
            Some("WARM") => true,
            Some("COLD" | "FAST") => false,
            _ => return,
        };
        // One request is enough.
        let _ = request_tx.try_send(warm);
    })?;
    Ok(requests)
}

/// The file of the profile under this key.
fn file(options: &Options, key: &str) -> Result<PathBuf, Error> {
    let named = options.profile.as_deref().map(|profile| profile_value(profile, key)).transpose()?.flatten();
    Ok(named.map_or_else(|| KEPT_IN.into(), PathBuf::from))
}

/// The pairs of a profile: a file of `KEY=VALUE`.
fn profile_pairs(profile: &Path) -> Result<Vec<(String, String)>, Error> {
    let text = std::fs::read_to_string(profile);
    let text = text.map_err(|e| Error::Configuration(format!("cannot read {}: {e}", profile.display())))?;
    let lines = text.lines().map(str::trim).filter(|line| !line.starts_with('#'));
    let pairs = lines.filter_map(|line| line.split_once('='));
    Ok(pairs.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
}

fn profile_value(profile: &Path, key: &str) -> Result<Option<String>, Error> {
    Ok(profile_pairs(profile)?.into_iter().find(|(name, _)| name == key).map(|(_, value)| value))
}

/// The ports of the profile of a SONiC virtual switch: a file of `KEY=VALUE`, one of which names a
/// file of `NAME:LANES`.
fn ports_of(profile: &Path) -> Result<Vec<PortSetup>, Error> {
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|e| Error::Configuration(format!("cannot read {}: {e}", path.display())))
    };
    let map = profile_value(profile, LANE_MAP)?;
    let Some(map) = map else { return Ok(PortSetup::usual()) };
    let map = Path::new(&map);
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
                Error::Configuration(format!(
                    "\"{line}\" in {} is no port; write NAME:LANE,LANE,…",
                    map.display()
                ))
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_need_the_netdevs_of_the_lane_map() {
        let folder = tempfile::tempdir().unwrap();
        let profile = folder.path().join("sai.profile");
        let of = |text: &str| {
            std::fs::write(&profile, text).unwrap();
            forwards_packets(Some(&profile)).map_err(|e| e.to_string())
        };
        assert_eq!((of(""), of("SAI_VS_HOSTIF_USE_TAP_DEVICE=false")), (Ok(false), Ok(false)));
        let map = "SAI_VS_INTERFACE_LANE_MAP_FILE=/etc/lanemap.ini";
        assert_eq!(of(&format!("SAI_VS_HOSTIF_USE_TAP_DEVICE = true\n{map}")), Ok(true));
        let lacks = of("SAI_VS_HOSTIF_USE_TAP_DEVICE=true").unwrap_err();
        assert!(lacks.contains("needs SAI_VS_INTERFACE_LANE_MAP_FILE"), "{lacks}");
        let bad = of("SAI_VS_HOSTIF_USE_TAP_DEVICE=maybe").unwrap_err();
        assert!(
            bad.contains("SAI_VS_HOSTIF_USE_TAP_DEVICE=maybe") && bad.contains("neither true nor false"),
            "{bad}"
        );
        assert_eq!(forwards_packets(None).map_err(|e| e.to_string()), Ok(false));
    }
}
