//! `orchagent` as a process: tables of APPL_DB in, requests to syncd out, replies back.
//!
//! If the carrier of requests fails with a request in flight, it is unknown whether syncd executed
//! it, because requests have no numbers. orchagent then exits with a message; its supervisor
//! restarts it, and it describes everything again. Otherwise it waits until Redis or syncd is back.

use super::appl_transport;
use super::asic_transport::{self, AsicTransport, VIDCOUNTER};
use super::beside::{
    self, BesideOptions, BesideTransports, FromOrch, LearnedRows, RecordedVids, RouteOrchRows,
};
use super::config_db::{ConfigDb, Switch};
use super::config_watch::ConfigWatch;
use super::health::StallOptions;
use super::ignored_options::OrchagentIgnored;
use super::orch_outputs::{FibSuppression, RedisOutputs};
use super::orch_stage::{Feed, Heartbeat, OrchGauges, OrchStage, SyncdLink, TableFeed};
use super::performance::{Timers, Timing};
use super::previous_ids::{self, IndexRoutes};
use super::reconcile::appl_state_db::ConfirmedRoutes;
use super::reconcile::mirror::Reconciler;
use super::reconcile::{self, ReconcileOptions, RoundLog, Tally};
use super::recorder::Recording;
use super::settings::Settings;
use super::warm::{RestartCheck, Restore, WarmStart};
use super::{Daemon, Error, LogOptions, PrivilegeOptions, explain, health, queues, refuse, verify};
use clap::Args;
use ribtide_runtime::call;
use ribtide_runtime::code_pages;
use ribtide_runtime::log::target;
use ribtide_runtime::ring;
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_settings::{Mode, RequestedSettings};
use ribtide_swss::orch::{Orch, OrchConfig, VidSource};
use ribtide_swss::row::{
    IntfRow, LabelRouteRow, LagMemberRow, LagRow, Mac, NeighRow, NextHopGroupRow, PortRow, RouteRow,
    VlanMemberRow, VlanRow, VrfRow,
};
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::state_table;
use ribtide_tables::zmq::{Endpoint, ZmqConsumer};
use ribtide_tables::{Connection, Consumer, ConsumerStateTable, PrefetchingConsumer, wake_ups};
use std::ops::Range;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const DAEMON: &str = "orchagent";
/// SONiC's endpoint of syncd for requests, and the port of the one for notifications (sonic-sairedis,
/// `lib/ContextConfig.cpp`).
const DEFAULT_SYNCD: &str = "tcp://127.0.0.1:5555";
const NOTIFICATION_PORT: u16 = 5556;
/// Rows at work at most while a reply is outstanding.
const BACKLOG: usize = 50_000;

/// Command line of `orchagent`, as SONiC starts it.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The most rows that orchagent pops from a table at once [default: 128]
    #[arg(short = 'b', value_name = "ROWS")]
    pub batch: Option<usize>,
    /// The most objects in one bulk [default: 1000]
    #[arg(short = 'k', value_name = "OBJECTS")]
    pub bulk: Option<usize>,
    /// Wait for syncd's reply to each request: the same as -z redis_sync
    #[arg(short = 's')]
    pub synchronous: bool,
    /// The transport to syncd. Without -z and -s: redis_async, as in SONiC
    #[arg(short = 'z', value_name = "MODE")]
    pub mode: Option<Mode>,
    /// The endpoint of syncd for requests over ZeroMQ
    #[arg(long, value_name = "ENDPOINT", default_value = DEFAULT_SYNCD)]
    pub zmq_syncd: String,
    /// The endpoint to listen on for notifications of SONiC's syncd over ZeroMQ; ribtide's syncd sends
    /// them through Redis [default, without --zmq-syncd or with --beside: tcp://127.0.0.1:5556]
    #[arg(long, value_name = "ENDPOINT")]
    pub zmq_notifications: Option<String>,
    /// The router's MAC address
    #[arg(short = 'm', value_name = "MAC")]
    pub mac: Option<String>,
    /// Publish a response for each route, whether or not CONFIG_DB has suppress-fib-pending and fpmsyncd
    /// requests responses
    #[arg(short = 'F')]
    pub responses: bool,
    /// Recordings, as a sum: 1 requests to syncd, 2 rows of APPL_DB; 0 records nothing. SONiC's bits 4 and
    /// 8 have no effect
    #[arg(short = 'r', value_name = "MASK", default_value_t = 11)]
    pub record: u32,
    /// The directory of the recordings
    #[arg(short = 'd', value_name = "DIRECTORY", default_value = ".")]
    pub directory: PathBuf,
    /// The file name of the recording of rows
    #[arg(short = 'f', value_name = "FILE", default_value = "swss.rec")]
    pub rows_file: String,
    /// The file name of the recording of requests to syncd
    #[arg(short = 'j', value_name = "FILE", default_value = "sairedis.rec")]
    pub requests_file: String,
    /// Whether PerformanceTimers are kept, and logged
    #[arg(long, value_name = "WHAT", value_enum, default_value_t = Timing::Keep)]
    pub performance: Timing,
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
    /// The endpoint to listen on for routes over ZeroMQ, which SYSTEM_DEFAULTS|swss_zmq of CONFIG_DB or
    /// --route-zmq turns on. Without a port: 8100
    #[arg(short = 'q', value_name = "ENDPOINT")]
    pub zmq: Option<String>,
    /// Receive routes over ZeroMQ whether or not CONFIG_DB turns it on
    #[arg(long, requires = "zmq")]
    pub route_zmq: bool,
    /// Prefetch routes from APPL_DB in a ring buffer, on a thread of its own. Over ZeroMQ there always is
    /// such a thread
    #[arg(short = 'R')]
    pub ring: bool,
    /// The time for which a warm start waits for fpmsyncd's routes over ZeroMQ. After it, the routes of
    /// APPL_DB are complete
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub warm_timer: u64,
    /// Write recordings on threads of their own. Responses always have a thread of their own
    #[arg(short = 'A')]
    pub asynchronous: bool,
    /// Create a next-hop group also for a NEXTHOP_GROUP_TABLE row with a single next hop. A change of its
    /// next hop then changes the group and no route
    #[arg(long)]
    pub single_groups: bool,
    /// Create a host interface for each port, LAG and VLAN: the netdev by which its packets to and from the
    /// CPU go. SONiC's orchagent creates those of ports
    #[arg(long, conflicts_with = "beside")]
    pub host_interfaces: bool,
    /// Sort the routes of a bulk by prefix, which many chips insert faster
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    pub sort_routes: bool,
    /// Read DEVICE_METADATA, SYSTEM_DEFAULTS and HEARTBEAT of CONFIG_DB, as SONiC's start script does. An
    /// option on the command line takes precedence
    #[arg(long)]
    pub config_db: bool,
    /// Mode beside SONiC's orchagent
    #[command(flatten)]
    pub beside: BesideOptions,
    /// How far what is published may be behind
    #[command(flatten)]
    pub lag: appl_transport::Lag,
    /// The longest time that syncd may take to create the switch
    #[arg(short = 't', value_name = "SECONDS")]
    pub create_switch: Option<u64>,
    /// The interval of the heartbeat for supervisord on standard output, at least 1000 [default: 10000]
    #[arg(short = 'I', value_name = "MS")]
    pub heartbeat: Option<u64>,
    /// How often routes are compared with APPL_DB
    #[command(flatten)]
    pub reconcile: ReconcileOptions,
    /// What SONiC's has beyond that
    #[command(flatten)]
    pub ignored: OrchagentIgnored,
}

/// Runs for ever.
///
/// # Errors
/// One sentence for the operator: an option that does not work, a database that is not there, a syncd that does not
/// answer.
pub fn run(options: Options) -> Result<(), Error> {
    run_until(&options, &Stop::default())
}

/// [`run`], until `stop`.
///
/// # Errors
/// As [`run`].
pub fn run_until(args: &Options, stop: &Stop) -> Result<(), Error> {
    args.stall.check()?;
    let daemon = &Daemon::new(DAEMON, Db::Appl, args.database_config.as_deref(), stop)?;
    health::watch(args.stall, daemon)?;
    // First, because fpmsyncd checks the presence of orchagent, whose start may take long. SONiC's
    // orchagent replies itself.
    let is_beside = args.beside.beside.is_some();
    let check = (!is_beside).then(|| RestartCheck::listen(daemon)).transpose()?;
    // Routes stay in the chip below ribtide's orchagent, so it has no warm start beside SONiC's.
    let warm = (!is_beside).then(|| WarmStart::begin(DAEMON, "swss", daemon)).transpose()?;
    let warm = warm.filter(WarmStart::is_warm);
    let mut settings = Settings::new(daemon);
    let mut config_db = ConfigDb::new(daemon.connect(Db::Config)?);
    let given = Given::of(args, &mut config_db, &mut settings)?;
    let requested = RequestedSettings {
        responses: Some(given.responses),
        mode: Some(given.mode),
        ..RequestedSettings::default()
    };
    refuse(&requested)?;
    let routes = route_endpoint(args, &mut config_db, &mut settings)?;
    if given.ring && routes.is_some() {
        let why = "over ZeroMQ another thread takes routes anyway";
        settings.note(&Switch::RingThread.name(), "enabled", "disabled", why);
    }
    settings.note(
        "-r",
        args.record,
        args.record & 3,
        if args.record > 3 { "bits 4 and 8 record nothing here" } else { "" },
    );
    settings.note("sort_routes", args.sort_routes, args.sort_routes, "");
    args.lag.note(&mut settings);
    let seconds = args.reconcile.seconds;
    settings.note("--reconcile-interval", seconds, seconds, "");
    args.ignored.note(&mut settings);
    let timers = Timers::start(args.performance, &mut settings, daemon);
    let rings = &daemon.rings;
    queues::publish(None, daemon)?;
    let syncd = asic_transport::endpoint(&args.zmq_syncd)?;
    let notifications = match &args.zmq_notifications {
        None if args.zmq_syncd == DEFAULT_SYNCD || args.beside.beside.is_some() => Some("tcp://127.0.0.1"),
        given => given.as_deref(),
    };
    let notifications = notifications.map(|text| Endpoint::parse(text, NOTIFICATION_PORT)).transpose();
    let notifications =
        notifications.map_err(|e| Error::Configuration(format!("--zmq-notifications: {e}")))?;
    let recording = |bit: u32, file: &str| match args.record & bit {
        0 => Ok(None),
        _ if given.asynchronous => Recording::on_thread(args.directory.join(file), rings).map(Some),
        _ => Recording::open(args.directory.join(file)).map(Some),
    };
    let config = OrchConfig {
        bulk_size: given.bulk,
        window: asic_transport::window(given.mode),
        responses: given.responses,
        mac: given.mac,
        single_groups: given.single_groups,
        sort_routes: args.sort_routes,
        // SONiC's orchagent has the ports.
        reports_ports: !is_beside,
        link_local_in_vrfs: !is_beside,
        host_interfaces: args.host_interfaces,
        verifies: true,
        ..OrchConfig::default()
    };
    let transport = (given.mode, &syncd, asic_transport::window(given.mode));
    let file = args.database_config.as_deref();
    let transports = match &notifications {
        Some(at) => BesideTransports::of(&args.beside, transport, at.clone(), file, &mut config_db, daemon)?,
        None => None,
    };
    let on = if transports.is_some() { "enabled" } else { "disabled" };
    settings.note("--beside", on, on, "");
    // The subscription precedes the read, so no row is missed.
    let ring = given.ring.then_some(given.batch);
    let create_switch = args.create_switch.map(Duration::from_secs);
    settings.write();
    let settings = Arc::new(Mutex::new(settings));
    let suppression = FibSuppression {
        always: args.responses,
        config: ConfigWatch::start(Switch::SuppressFibPending, given.responses, daemon)?,
        is: Arc::new(AtomicBool::new(given.responses)),
        settings: settings.clone(),
        rings: rings.clone(),
    };
    let vids: Box<dyn VidSource> = match is_beside {
        true => Box::new(RecordedVids::open(daemon)?),
        false => Box::new(RedisVids::open(daemon)?),
    };
    let mut orch = Orch::new(config, vids);
    let mut index_routes = IndexRoutes::default();
    let (feeds, groups, link): (_, _, Box<dyn SyncdLink>) = match transports {
        Some(transports) => {
            let endpoint = transports.routes.clone();
            let (link, learned, machine) = beside::start(transports, daemon)?;
            let split = (&endpoint, machine);
            let feeds = beside_feeds(&mut orch, routes.as_ref(), learned, split, &timers, daemon)?;
            (feeds, 0, Box::new(link))
        }
        None => {
            let feeds = feeds(routes.as_ref(), ring, &timers, daemon)?;
            let link = AsicTransport::open(
                (requested, suppression.is.clone()),
                (given.mode, &syncd, notifications.as_ref().map(|at| (at, args.zmq_notifications.is_some()))),
                create_switch,
                settings,
                daemon,
            )?;
            index_routes = refill(&mut orch, daemon)?;
            (feeds, GROUPS, Box::new(link))
        }
    };
    let mut stage = OrchStage {
        orch,
        feeds,
        groups,
        compares_only_groups: routes.is_some(),
        syncd: link,
        outputs: Box::new(RedisOutputs::open(
            (suppression, given.responses),
            warm.is_some(),
            is_beside,
            args.lag,
            daemon,
        )?),
        batch: given.batch,
        backlog: BACKLOG,
        gauges: OrchGauges::new(BACKLOG, asic_transport::window(given.mode), rings),
        rows: recording(2, &args.rows_file)?,
        requests: recording(1, &args.requests_file)?,
        meter: None,
        drain: timers.timer("DRAIN"),
        restore: None,
        check,
        heartbeat: given.heartbeat,
    };
    if let Some(warm) = warm {
        stage.orch.restore(previous_ids::read(index_routes, daemon)?);
        let resync = routes.is_some().then(|| Duration::from_secs(args.warm_timer));
        stage.restore = Some(Restore::begin(warm, resync));
    }
    let (handle, calls) = call::pair(DAEMON);
    let explain =
        |stage: &mut OrchStage, vrf: Option<&str>, prefix, _| explain::orchagent(&stage.orch, vrf, prefix);
    explain::answer(daemon, handle.clone(), explain)?;
    // Beside SONiC's orchagent, ASIC_DB has its objects, too.
    verify::start(handle.clone(), !is_beside, daemon)?;
    // Rows that SONiC's orchagent took are not compared: only its requests teach.
    if let Some(interval) = args.reconcile.interval().filter(|_| !is_beside) {
        let tally = Tally::default();
        tally.publish(daemon);
        let reader = reconcile::orchagent::reader(routes.is_some(), daemon)?;
        let log = || RoundLog::new(DAEMON, tally.clone());
        let rows = Reconciler::<_, ()>::new(handle.clone(), reader, interval, log(), stop);
        let reader = reconcile::appl_state_db::reader(daemon)?;
        let responses = Reconciler::<_, ConfirmedRoutes>::new(handle, reader, interval, log(), stop);
        reconcile::mirror::start(DAEMON, rows, vec![Box::new(responses)])?;
    }
    tracing::info!(target: target::ORCHAGENT, "orchagent has started");
    code_pages::unmap_start();
    stage.run(Some(&calls), stop)
}

/// The options of the command line, and of CONFIG_DB where it counts.
struct Given {
    batch: usize,
    bulk: usize,
    mode: Mode,
    mac: Mac,
    ring: bool,
    asynchronous: bool,
    responses: bool,
    single_groups: bool,
    heartbeat: Option<Heartbeat>,
}

impl Given {
    /// Notes each setting.
    fn of(args: &Options, config: &mut ConfigDb, settings: &mut Settings) -> Result<Given, Error> {
        let scripts = args.config_db;
        let kind = if scripts { config.device("switch_type")? } else { None };
        // As SONiC's script has it.
        let [batch, bulk] = match kind.as_deref() {
            Some("dpu") => [125_000, 125_000],
            Some("chassis-packet") => [128, 1000],
            _ if scripts => [1024, 1000],
            _ => [128, 1000],
        };
        let (batch, bulk) = (args.batch.unwrap_or(batch), args.bulk.unwrap_or(bulk));
        for (flag, value) in [("-b", batch), ("-k", bulk)] {
            if value == 0 {
                return Err(Error::Configuration(format!(
                    "{flag} 0 would never take anything; give a number from 1 up"
                )));
            }
        }
        settings.note("-b", batch, batch, "");
        settings.note("-k", bulk, bulk, "");
        let mac = match &args.mac {
            None if scripts => config.device("mac")?,
            given => given.clone(),
        };
        let mac = match mac {
            None => OrchConfig::default().mac,
            Some(text) => text.parse::<Mac>().map_err(|_| {
                Error::Configuration(format!("-m {text} is not a MAC address such as 02:00:00:00:00:01"))
            })?,
        };
        let mode = asic_transport::mode_of(args.synchronous, args.mode, scripts, config)?;
        asic_transport::note(mode, config, settings)?;
        let interval = match args.heartbeat {
            None if scripts => config.heartbeat()?.and_then(|text| text.parse().ok()),
            given => given,
        };
        // fpmsyncd reads the same setting.
        let responses = args.responses || config.has(Switch::SuppressFibPending)?;
        let value = if responses { "enabled" } else { "disabled" };
        settings.note(&Switch::SuppressFibPending.name(), value, value, "");
        let mut option = |switch, given| config.option(switch, given, scripts, settings);
        Ok(Given {
            batch,
            bulk,
            mode,
            mac,
            ring: option(Switch::RingThread, args.ring)?,
            asynchronous: option(Switch::AsyncRec, args.asynchronous)?,
            responses,
            single_groups: option(Switch::NextHopGroup, args.single_groups)?,
            heartbeat: Heartbeat::every(interval),
        })
    }
}

/// The endpoint for routes over ZeroMQ, if they use it.
fn route_endpoint(
    args: &Options,
    config: &mut ConfigDb,
    settings: &mut Settings,
) -> Result<Option<Endpoint>, Error> {
    let endpoint = args.zmq.as_deref().map(|text| Endpoint::parse(text, appl_transport::port())).transpose();
    let endpoint = endpoint.map_err(|e| Error::Configuration(format!("-q: {e}")))?;
    if !args.route_zmq && !config.routes_over_zmq()? {
        let why =
            if endpoint.is_some() { "CONFIG_DB does not enable it, so -q listens for nothing" } else { "" };
        settings.note("swss_zmq", "disabled", "disabled", why);
        return Ok(None);
    }
    // SONiC's script omits -q on the virtual switch, and then fpmsyncd has no consumer.
    let endpoint = match endpoint {
        Some(endpoint) => endpoint,
        None => Endpoint::parse("tcp://127.0.0.1", appl_transport::port()).map_err(Error::Configuration)?,
    };
    settings.note("swss_zmq", "enabled", &endpoint, "");
    Ok(Some(endpoint))
}

/// The place of NEXTHOP_GROUP_TABLE in [`feeds`].
const GROUPS: usize = 8;

/// The tables of APPL_DB in the order of their dependencies. Routes may come over ZeroMQ, or be
/// prefetched in batches.
fn feeds(
    routes: Option<&Endpoint>,
    ring: Option<usize>,
    timers: &Timers,
    daemon: &Daemon,
) -> Result<Vec<Box<dyn Feed>>, Error> {
    let Daemon { databases, rings, stop, .. } = daemon;
    let appl = databases.get(Db::Appl);
    let mut channels = vec![
        state_table::channel::<PortRow>(appl),
        state_table::channel::<LagRow>(appl),
        state_table::channel::<VlanRow>(appl),
        state_table::channel::<LagMemberRow>(appl),
        state_table::channel::<VlanMemberRow>(appl),
        state_table::channel::<VrfRow>(appl),
        state_table::channel::<IntfRow>(appl),
        state_table::channel::<NeighRow>(appl),
        state_table::channel::<NextHopGroupRow>(appl),
    ];
    // A subscriber counts as a running orchagent.
    if routes.is_none() {
        channels
            .extend([state_table::channel::<LabelRouteRow>(appl), state_table::channel::<RouteRow>(appl)]);
    }
    let mut wake_ups = wake_ups(appl, channels, stop)?.into_iter();
    let mut wake_up = || wake_ups.next().expect("a wake-up for each channel");
    let mut feeds: Vec<Box<dyn Feed>> = vec![
        Box::new(TableFeed::new(open::<PortRow>(wake_up(), daemon)?, Orch::port)),
        Box::new(TableFeed::new(open::<LagRow>(wake_up(), daemon)?, Orch::lag)),
        Box::new(TableFeed::new(open::<VlanRow>(wake_up(), daemon)?, Orch::vlan)),
        Box::new(TableFeed::new(open::<LagMemberRow>(wake_up(), daemon)?, Orch::lag_member)),
        Box::new(TableFeed::new(open::<VlanMemberRow>(wake_up(), daemon)?, Orch::vlan_member)),
        Box::new(TableFeed::new(open::<VrfRow>(wake_up(), daemon)?, Orch::vrf)),
        Box::new(TableFeed::new(open::<IntfRow>(wake_up(), daemon)?, Orch::interface)),
        Box::new(TableFeed::new(open::<NeighRow>(wake_up(), daemon)?, Orch::neighbor)),
        Box::new(TableFeed::new(open::<NextHopGroupRow>(wake_up(), daemon)?, Orch::nexthop_group)),
    ];
    let (routes, labels) = match routes {
        Some(endpoint) => {
            let (routes, labels) = ZmqConsumer::bind_two(endpoint, rings, stop)?;
            (route_feed(routes, timers), label_feed(labels))
        }
        None => {
            let labels = label_feed(open(wake_up(), daemon)?);
            let table = open::<RouteRow>(wake_up(), daemon)?;
            match ring {
                Some(batch) => {
                    (route_feed(PrefetchingConsumer::start(table, batch, rings, stop)?, timers), labels)
                }
                None => (route_feed(table, timers), labels),
            }
        }
    };
    feeds.extend([labels, routes]);
    Ok(feeds)
}

/// The tables of mode `beside`: what was learned, labels and routes. SONiC's orchagent takes the
/// others. Rows of routes that are in APPL_DB are applied, or go on to RouteOrch.
fn beside_feeds(
    orch: &mut Orch,
    routes: Option<&Endpoint>,
    learned: LearnedRows,
    (endpoint, machine): (&Endpoint, ring::Sender<FromOrch>),
    timers: &Timers,
    daemon: &Daemon,
) -> Result<Vec<Box<dyn Feed>>, Error> {
    let Some(listen) = routes else {
        return Err(Error::Configuration(
            "--beside takes routes over ZeroMQ; set SYSTEM_DEFAULTS|swss_zmq of CONFIG_DB to enabled".into(),
        ));
    };
    let (routes, labels) = ZmqConsumer::bind_two(listen, &daemon.rings, &daemon.stop)?;
    let label_table = |table| TableFeed::new(table, Orch::label_route);
    let mut labels = RouteOrchRows::new(labels, (endpoint, machine.clone()), label_table, daemon)?;
    let (pops, adds) = (timers.timer("POPS"), timers.timer("ADD_TO_SYNC"));
    let route_table = |table| TableFeed::together(table, Orch::routes).timed(pops, adds);
    let mut routes = RouteOrchRows::new(routes, (endpoint, machine), route_table, daemon)?;
    let mut found = Vec::new();
    daemon.plain::<LabelRouteRow>()?.rows(|key, row| found.push(Change::set(key, row)))?;
    labels.found(found, |change| orch.label_route(change));
    let mut found = Vec::new();
    daemon.plain::<RouteRow>()?.rows(|key, row| found.push(Change::set(key, row)))?;
    routes.found(found, |change| {
        if let Some(row) = change.row.clone() {
            orch.found_route(change.key.clone(), row);
        }
    });
    Ok(vec![Box::new(learned), Box::new(labels), Box::new(routes)])
}

fn label_feed(table: impl Consumer<LabelRouteRow> + Send + 'static) -> Box<dyn Feed> {
    Box::new(TableFeed::new(table, Orch::label_route))
}

fn route_feed(table: impl Consumer<RouteRow> + Send + 'static, timers: &Timers) -> Box<dyn Feed> {
    Box::new(
        TableFeed::together(table, Orch::routes).timed(timers.timer("POPS"), timers.timer("ADD_TO_SYNC")),
    )
}

/// Reads the rows that an earlier orchagent consumed: they are in the tables, not in the queues.
fn refill(orch: &mut Orch, daemon: &Daemon) -> Result<IndexRoutes, Error> {
    fn table<R: Row>(daemon: &Daemon, mut take: impl FnMut(Change<R>)) -> Result<(), Error> {
        Ok(daemon.plain::<R>()?.rows(|key, row| take(Change::set(key, row)))?)
    }
    table::<PortRow>(daemon, |change| orch.port(change))?;
    table::<LagRow>(daemon, |change| orch.lag(change))?;
    table::<LagMemberRow>(daemon, |change| orch.lag_member(change))?;
    table::<VlanRow>(daemon, |change| orch.vlan(change))?;
    table::<VlanMemberRow>(daemon, |change| orch.vlan_member(change))?;
    table::<VrfRow>(daemon, |change| orch.vrf(change))?;
    table::<IntfRow>(daemon, |change| orch.interface(change))?;
    table::<NeighRow>(daemon, |change| orch.neighbor(change))?;
    table::<NextHopGroupRow>(daemon, |change| orch.nexthop_group(change))?;
    table::<LabelRouteRow>(daemon, |change| orch.label_route(change))?;
    let mut index_routes = IndexRoutes::default();
    daemon.plain::<RouteRow>()?.rows(|key, row| {
        index_routes.look(&key, &row);
        orch.found_route(key, row);
    })?;
    Ok(index_routes)
}

fn open<R: Row>(wake_up: WakeUp, daemon: &Daemon) -> Result<ConsumerStateTable<R>, Error> {
    Ok(ConsumerStateTable::open(&daemon.databases, wake_up, &daemon.stop)?)
}

/// Object ids from the counter that orchagent and syncd share.
pub(super) struct RedisVids {
    counter: Connection,
    /// The highest id taken here.
    last: u64,
}

impl RedisVids {
    /// Opens the counter.
    pub(super) fn open(daemon: &Daemon) -> Result<RedisVids, Error> {
        Ok(RedisVids { counter: daemon.connect(Db::Asic)?, last: 0 })
    }
}

impl VidSource for RedisVids {
    fn take(&mut self, count: u64) -> Result<Range<u64>, String> {
        loop {
            let step = count.to_string();
            let end = self.counter.query(&["INCRBY", VIDCOUNTER, &step]).map_err(|e| e.to_string())?;
            let end = end.as_integer().and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
            let first = end.saturating_sub(count) + 1;
            // A server that lost its data starts to count again: skip used ids.
            if first > self.last {
                self.last = end;
                return Ok(first..end + 1);
            }
        }
    }

    fn pass(&mut self, last: u64) -> Result<(), String> {
        let count = self.counter.query(&["GET", VIDCOUNTER]).map_err(|e| e.to_string())?;
        let count = count.into_text().and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        if count < last {
            let missing = (last - count).to_string();
            self.counter.query(&["INCRBY", VIDCOUNTER, &missing]).map_err(|e| e.to_string())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis_server::Server;

    #[test]
    fn object_ids_never_repeat_though_the_counter_is_lost_or_behind() {
        let Some(server) = Server::start() else { return };
        let counter = Connection::open(server.databases.get(Db::Asic), &server.stop).unwrap();
        let mut vids = RedisVids { counter, last: 0 };
        assert_eq!(vids.take(3), Ok(1..4));
        // Ids of a run before this one.
        vids.pass(10).unwrap();
        assert_eq!(vids.take(2), Ok(11..13));
        vids.pass(5).unwrap();
        assert_eq!(vids.take(1), Ok(13..14));
        server.client(Db::Asic).query("FLUSHALL");
        let again = vids.take(3).unwrap();
        assert!(again.start > 13 && again.end == again.start + 3, "{again:?}");
    }
}
