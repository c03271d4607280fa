//! `fpmsyncd` as a process: an FPM server on one side, the tables of APPL_DB on the other.
//!
//! Between two flushes all changes of a route coalesce. With little work a flush follows at once.
//! In a burst it follows when the flush timer has expired or a script call is full, but never while
//! an earlier flush is under way. So the slower Redis or orchagent, the more changes coalesce. When
//! Redis returns, perhaps without its data, every row is written again.

use super::appl_transport::{HandedOver, Lag, Routes, ZmqRoutes, port};
use super::config_db::{ConfigDb, Switch};
use super::config_watch::ConfigWatch;
use super::direct_responses::{AWAITED, ReceivedResponse, ResponseReceiver, SETTLE};
pub use super::flush::Flush;
use super::flush::FlushTimer;
use super::fpm_server::{self, FpmEvent};
use super::health::StallOptions;
use super::links::{self, LinkEvent};
use super::performance::{Timers, Timing};
use super::reconcile::mirror::{Found, Mirror, Reconciler};
use super::reconcile::{ReconcileOptions, RoundLog, Tally, appl_db, mirror};
use super::settings::{Settings, refuse_with_warm_restart};
use super::transport_check::{APART, TransportCheck};
use super::vpn_tables::VpnTables;
use super::warm::Replay;
use super::{Daemon, Error, LogOptions, PrivilegeOptions, events, explain, health, queues, row_query};
use clap::{Args, ValueEnum};
use crossbeam_channel::Select;
use ribtide_runtime::call;
use ribtide_runtime::clock::Clock;
use ribtide_runtime::code_pages;
use ribtide_runtime::gauge::Gauge;
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::log::target;
use ribtide_runtime::meter::Meter;
use ribtide_runtime::ring;
use ribtide_runtime::thread::Stop;
use ribtide_runtime::wake_up::WakeUp;
use ribtide_runtime::watchdog::PeerWait;
use ribtide_settings::{Persistence, RequestedSettings};
use ribtide_swss::fpmsyncd::{
    AsSonic, FoundRow, FpmConfig, FpmOut, Fpmsyncd, LISTENING_MS, ProducerRow, Protocols, Resend, ResendKind,
    RowCursor, TableKey,
};
use ribtide_swss::row::{
    LabelRouteRow, MalformedResponses, NextHopGroupRow, ResponseKind, ResponseReader, RouteRow,
};
use ribtide_swss::syncd::Difference;
use ribtide_swss::{Change, Db, Row};
use ribtide_tables::zmq::Endpoint;
use ribtide_tables::{Pipeline, Producer, ProducerStateTable, server_returns};
use ribtide_wire::fpm;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const DAEMON: &str = "fpmsyncd";
/// The name of FIB suppression among the settings.
const SUPPRESS: &str = "suppress-fib-pending";
/// FIB suppression is off here and on in the router.
const CONFIRMED_TOO_EARLY: &str = "the router waits for the chip (its fib.suppress-fib-pending is on), and is told of each route at once: \
                              enable suppress-fib-pending";
/// FIB suppression is on here and off in the router.
const SUPPRESSION_OFF_IN_ROUTER: &str = "the router does not wait for the chip (its fib.suppress-fib-pending is off): it advertises routes before \
                            the chip has them";
/// Confirmations handled before their messages go to zebra: at least as many as the routes of one
/// read of FPM, so that they do not wait in orchagent.
const CONFIRMATIONS_BATCH_MAX: usize = 10_000;
/// Rows of one step of a resend.
const AGAIN: usize = 10_000;
/// The minimum interval of updates of a gauge.
const GAUGE_INTERVAL: Duration = Duration::from_secs(1);
/// Interval of checks of orchagent's transport: while the last one found a difference, and otherwise.
const PROBE_INTERVALS: (Duration, Duration) = (APART, Duration::from_secs(5));
/// The longest sleep during a start, or while everything must be handed over.
const START_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The longest sleep during a replay: the machine gets the time and learns that nothing arrived.
const TICK_INTERVAL: Duration = Duration::from_millis(LISTENING_MS);
/// How long a start waits for the snapshot of the chip. After that it continues without it, or, if
/// an orchagent is present that will send it, without writes until it arrives.
const SNAPSHOT_TIMEOUT: Duration = SETTLE.saturating_mul(2);
/// The files with names of route protocols; the first that exists is used.
const PROTOCOLS: [&str; 2] = ["/etc/iproute2/rt_protos", "/usr/share/iproute2/rt_protos"];

/// Command line of `fpmsyncd`. SONiC's own takes no options.
#[derive(Args, Clone, Debug)]
pub struct Options {
    /// The address to listen on for FPM clients
    #[arg(long, value_name = "ADDRESS:PORT", default_value_t = SocketAddr::from(([127, 0, 0, 1], fpm::PORT)))]
    pub listen: SocketAddr,
    /// After a client reconnects: the silence after which routes that it has not announced again are
    /// deleted. A client that marks the end of its routes, such as ribtide, needs no timer
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    pub quiet: u64,
    /// Send routes to orchagent over ZeroMQ to this endpoint, instead of through APPL_DB. Without this
    /// option, SYSTEM_DEFAULTS|swss_zmq in CONFIG_DB decides, with the endpoint tcp://127.0.0.1:8100
    #[arg(short = 'q', long = "zmq", value_name = "ENDPOINT")]
    pub zmq: Option<String>,
    /// When rows are written
    #[command(flatten)]
    pub flush: Flush,
    /// Write routes straight to ROUTE_TABLE, and not through the producer table's temporary keys. This
    /// needs ribtide's orchagent
    #[arg(long)]
    pub stable_table: bool,
    /// Where to do as SONiC's fpmsyncd although that is a fault. weights: of next hops in a route, one less than zebra has, and at
    /// least 1; main-table: routes of an unpatched FRR, in the kernel's tables 253 to 255, are dropped; mpls-push: IP routes that
    /// push labels are dropped; next-hop-change: a single next-hop object never changes
    #[arg(long, value_name = "WHAT,...", value_enum, value_delimiter = ',')]
    pub as_sonic: Vec<Fault>,
    /// When APPL_DB is written, if routes go over ZeroMQ. SONiC's fpmsyncd always uses `behind`
    #[arg(long, value_name = "WHEN")]
    pub appl_db: Option<Persistence>,
    /// How far it may be behind
    #[command(flatten)]
    pub lag: Lag,
    /// How often APPL_DB is compared
    #[command(flatten)]
    pub reconcile: ReconcileOptions,
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
}

/// A fault of SONiC's fpmsyncd ([`AsSonic`]).
#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fault {
    /// The weights of next hops in a route
    Weights,
    /// The kernel's tables 253 to 255
    MainTable,
    /// IP routes that push labels
    MplsPush,
    /// Changes of a single next-hop object
    NextHopChange,
    /// Each of them
    All,
}

fn as_sonic(faults: &[Fault]) -> AsSonic {
    let has = |fault| faults.contains(&fault) || faults.contains(&Fault::All);
    AsSonic {
        weights: has(Fault::Weights),
        main_table: has(Fault::MainTable),
        mpls_push: has(Fault::MplsPush),
        next_hop_change: has(Fault::NextHopChange),
    }
}

/// The names of these faults, for the list of settings.
fn names(faults: &[Fault]) -> String {
    let names = faults.iter().filter_map(|fault| Some(fault.to_possible_value()?.get_name().to_owned()));
    let names: Vec<String> = names.collect();
    if names.is_empty() { "none".into() } else { names.join(",") }
}

/// Runs for ever.
///
/// # Errors
/// One sentence for the operator: a database that is not there, an address that is taken.
pub fn run(options: Options) -> Result<(), Error> {
    run_until(&options, &Stop::default())
}

/// [`run`], until `stop`.
///
/// # Errors
/// As [`run`].
pub fn run_until(options: &Options, stop: &Stop) -> Result<(), Error> {
    if options.flush.pipeline == 0 {
        return Err(Error::Configuration(
            "--pipeline 0 would never take anything; give a number from 1 up".into(),
        ));
    }
    options.stall.check()?;
    let daemon = &Daemon::new(DAEMON, Db::Appl, options.database_config.as_deref(), stop)?;
    health::watch(options.stall, daemon)?;
    let mut config_db = ConfigDb::new(daemon.connect(Db::Config)?);
    let suppress = config_db.has(Switch::SuppressFibPending)?;
    // Asked once, as in SONiC.
    let groups = config_db.has(Switch::NextHopGroup)?;
    let mut settings = Settings::new(daemon);
    note_suppression(suppress, &mut settings);
    settings.note(
        "next-hop-group",
        on_or_off(groups),
        "as announced",
        "whether groups are announced is zebra's",
    );
    settings.note("--pipeline", options.flush.pipeline, options.flush.pipeline, "");
    settings.note("--flush-timer", options.flush.flush_timer, options.flush.flush_timer, "");
    settings.note("--small-traffic", options.flush.small_traffic, options.flush.small_traffic, "");
    let seconds = options.reconcile.seconds;
    settings.note("--reconcile-interval", seconds, seconds, "");
    let timers = Timers::start(options.performance, &mut settings, daemon);
    let flush = timers.timer("FLUSH");
    let (routes, labels) = open_routes(options, &mut config_db, &mut settings, flush.clone(), daemon)?;
    let mut transport = TransportCheck::open(matches!(routes, Routes::Zmq(_)), daemon)?;
    transport.refuse()?;
    // Through Redis it is the thread that writes which knows how long that takes.
    let flush = flush.filter(|_| matches!(routes, Routes::Zmq(_)));
    let quiet_ms = options.quiet.saturating_mul(1000);
    let faults = names(&options.as_sonic);
    settings.note("--as-sonic", &faults, &faults, "");
    let as_sonic = as_sonic(&options.as_sonic);
    let config = FpmConfig { suppress, quiet_ms, protocols: protocols(), as_sonic, ..FpmConfig::default() };
    let mut stage = Stage {
        machine: Fpmsyncd::new(config),
        out: FpmOut::default(),
        routes,
        labels,
        groups: ProducerStateTable::open(&daemon.databases, Pipeline::default(), stop)?,
        vpn_tables: VpnTables::new(daemon),
        flush_timer: FlushTimer::new(options.flush, Instant::now()),
        choke_threshold: choke_threshold(options.flush),
        settings,
        transport,
        replay: Replay::open(quiet_ms, &mut config_db, daemon)?,
        returned: server_returns(daemon.databases.get(Db::Appl), stop)?,
        sessions: 0,
        generation: 0,
        probed: Instant::now(),
        replies: None,
        read: timers.timer("READ"),
        write: flush,
        suppress: ConfigWatch::start(Switch::SuppressFibPending, suppress, daemon)?,
        disagreement: "",
        responses: None,
        are_rows_last: true,
        has_snapshot: !suppress,
        count: Count::Done,
        daemon: daemon.clone(),
        resending: None,
        fences: (0, 0),
        changed: daemon.rings.gauge("pending row changes", Some(choke_threshold(options.flush))),
        choked: (PeerWait::new("room for rows at orchagent".into()), 0),
        objectless: daemon.rings.gauge("routes without their next-hop object", None),
        unanswered: daemon.rings.gauge("routes without a response", None),
        counted: Instant::now(),
    };
    let keys = matches!(stage.routes, Routes::Redis(_)).then_some(RouteRow::TABLE);
    queues::publish(keys, daemon)?;
    let (links, link_events) = links::watch(DAEMON, &daemon.rings, stop)?;
    links.into_iter().for_each(|event| stage.link(event));
    stage.learn()?;
    stage.settings.write();
    // The snapshot of the chip must not be older than the rows that were read.
    stage.responses = suppress.then(|| ResponseReceiver::open(daemon)).transpose()?;
    stage.wait_for_snapshot(stop)?;
    let (address, frames) = fpm_server::start(DAEMON, options.listen, &daemon.rings, stop)?;
    tracing::info!(target: target::FPMSYNCD, %address, suppress_fib_pending = suppress, "listening for FPM");
    let (handle, calls) = call::pair(DAEMON);
    let explain =
        |stage: &mut Stage, vrf: Option<&str>, prefix, _| explain::fpmsyncd(&stage.machine, vrf, prefix);
    explain::answer(daemon, handle.clone(), explain)?;
    row_query::answer(daemon, handle.clone(), Stage::compare_found)?;
    if let Some(interval) = options.reconcile.interval() {
        let tally = Tally::default();
        tally.publish(daemon);
        let (log, reader) = (RoundLog::new(DAEMON, tally), appl_db::reader(daemon.connect(Db::Appl)?));
        let rounds = Reconciler::new(handle, reader, interval, log, stop);
        mirror::start(DAEMON, rounds, Vec::new())?;
    }
    code_pages::unmap_start();
    stage.run(&frames, &link_events, &calls, stop)
}

/// ROUTE_TABLE and LABEL_ROUTE_TABLE by the transport of the command line or CONFIG_DB.
fn open_routes(
    options: &Options,
    config: &mut ConfigDb,
    settings: &mut Settings,
    flush: Option<Meter>,
    daemon: &Daemon,
) -> Result<(Routes<RouteRow>, Routes<LabelRouteRow>), Error> {
    let endpoint = match &options.zmq {
        Some(endpoint) => Some(endpoint.clone()),
        None => config.routes_over_zmq()?.then(|| "tcp://127.0.0.1".to_owned()),
    };
    let requested = RequestedSettings {
        routes_over_zmq: Some(endpoint.is_some()),
        appl_db: options.appl_db,
        ..RequestedSettings::default()
    };
    refuse_with_warm_restart(daemon, requested, &["bgp", "swss"])?;
    let Some(endpoint) = endpoint else {
        settings.note("swss_zmq", "disabled", "disabled", "");
        settings.note("appl-db", "in-line", "in-line", "the way to orchagent");
        let why = if options.stable_table { "right with ribtide's orchagent only" } else { "" };
        settings.note("--stable-table", options.stable_table, options.stable_table, why);
        settings.note("--rows-per-call", options.flush.rows_per_call, options.flush.rows_per_call, "");
        let pipeline = options.flush.rows(options.stable_table);
        let labels = Routes::redis(pipeline, None, daemon)?;
        return Ok((Routes::redis(pipeline, flush, daemon)?, labels));
    };
    let endpoint = Endpoint::parse(&endpoint, port()).map_err(Error::Configuration)?;
    let persistence = options.appl_db.unwrap_or(Persistence::WriteBehind);
    if options.stable_table {
        settings.note("--stable-table", true, false, "over ZeroMQ rows are written nowhere else");
    }
    let why = "a message over ZeroMQ has 1,000 routes at most";
    settings.note("--rows-per-call", options.flush.rows_per_call, "none", why);
    settings.note("swss_zmq", &endpoint, "disabled", "no orchagent takes routes there yet");
    settings.note("appl-db", persistence, persistence, "");
    options.lag.note(settings);
    let kept = (persistence, options.lag);
    let labels = ZmqRoutes::open(endpoint.clone(), kept, daemon)?;
    Ok((ZmqRoutes::open(endpoint, kept, daemon)?, labels))
}

/// The setting in CONFIG_DB.
fn on_or_off(on: bool) -> &'static str {
    if on { "enabled" } else { "disabled" }
}

fn note_suppression(on: bool, settings: &mut Settings) {
    settings.note(SUPPRESS, on_or_off(on), on_or_off(on), "");
    match on {
        true => settings.note("responses", "direct", "no orchagent answers yet", ""),
        false => settings.forget("responses"),
    }
}

fn protocols() -> Protocols {
    let text = PROTOCOLS.iter().find_map(|path| std::fs::read_to_string(path).ok());
    text.map_or_else(Protocols::default, |text| Protocols::parse(&text))
}

/// Changed rows at which reading stops, if they cannot be written.
fn choke_threshold(flush: Flush) -> usize {
    Pipeline::default().capacity.max(flush.pipeline)
}

/// The state of counting responses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Count {
    /// Responses are counted.
    Done,
    /// Counting starts when all written rows are handed over; `held`: nothing is written until
    /// then.
    Due { held: bool },
    /// Counting started at this time; the snapshot of the chip must arrive before the next write.
    AwaitsSnapshot(Instant),
}

impl Count {
    fn holds(self) -> bool {
        matches!(self, Count::Due { held: true } | Count::AwaitsSnapshot(_))
    }
}

pub(super) struct Stage {
    machine: Fpmsyncd,
    out: FpmOut,
    routes: Routes<RouteRow>,
    labels: Routes<LabelRouteRow>,
    groups: ProducerStateTable<NextHopGroupRow>,
    vpn_tables: VpnTables,
    flush_timer: FlushTimer,
    /// Changed rows at which reading stops, if they cannot be written.
    choke_threshold: usize,
    settings: Settings,
    transport: TransportCheck,
    replay: Replay,
    /// APPL_DB was lost and is back, perhaps without its data.
    returned: WakeUp,
    /// The number of connected clients so far.
    sessions: u64,
    generation: u64,
    probed: Instant,
    /// The reply queue of the client.
    replies: Option<ring::Sender<Vec<u8>>>,
    /// FIB suppression in CONFIG_DB.
    suppress: ConfigWatch,
    /// The difference to the setting of the router, as a sentence.
    disagreement: &'static str,
    /// The responses; only with FIB suppression.
    responses: Option<ResponseReceiver>,
    /// Whether a row of APPL_STATE_DB is about the last row of its route. Requires in-line writes,
    /// and counting at the time of the write.
    are_rows_last: bool,
    /// Whether the snapshot of the chip arrived since counting started.
    has_snapshot: bool,
    count: Count,
    daemon: Daemon,
    /// Routes that orchagent is told again over ZeroMQ, and what it is told.
    resending: Option<(Resend, ResendKind)>,
    /// How much of routes and labels was written when a comparison began to watch rows.
    fences: (u64, u64),
    /// Rows not handed over, and routes whose next-hop object is missing.
    changed: Gauge,
    /// The wait for room at orchagent, with the pending row changes at the last look.
    choked: (PeerWait, usize),
    objectless: Gauge,
    /// Routes without a response, with FIB suppression.
    unanswered: Gauge,
    counted: Instant,
    /// PerformanceTimers of FPM messages and of written rows.
    read: Option<Meter>,
    write: Option<Meter>,
}

impl ShrinkToFit for Stage {
    fn shrink_to_fit(&mut self) {
        self.machine.shrink_to_fit();
        self.out.shrink_to_fit();
    }
}

impl Stage {
    fn run(
        &mut self,
        frames: &ring::Receiver<FpmEvent>,
        links: &ring::Receiver<LinkEvent>,
        calls: &call::CallQueue<Stage>,
        stop: &Stop,
    ) -> Result<(), Error> {
        let (clock, mut choked, signal) = (Clock::default(), false, stop.signal());
        while !stop.stopped() {
            self.routes.begin_round();
            self.labels.begin_round();
            calls.serve(self);
            let mut busy = false;
            // The clock advances first; otherwise a replay in progress would seem silent since the
            // last time.
            self.machine.tick(clock.now(), !choked);
            while let Some(event) = links.try_recv() {
                busy = true;
                self.link(event);
            }
            choked = self.is_choked();
            self.note_choke(choked);
            if !choked && let Some(event) = frames.try_recv() {
                busy = true;
                self.fpm(event)?;
            }
            self.apply_config()?;
            self.advance_count()?;
            busy |= self.take_responses()?;
            let waits = choked || !frames.is_empty();
            self.machine.look(waits, &mut self.out);
            self.replay.look(waits, &mut self.machine, &mut self.out)?;
            busy |= self.advance_resend()?;
            self.record_response_channel();
            self.record_client();
            self.carry_out()?;
            self.note_depths();
            if !busy {
                self.probe()?;
                let mut select = Select::new();
                signal.watch(&mut select);
                self.returned.watch(&mut select);
                links.watch(&mut select);
                self.suppress.watch(&mut select);
                calls.watch(&mut select);
                if !choked {
                    frames.watch(&mut select);
                }
                if let Some(responses) = &self.responses {
                    responses.watch(&mut select);
                }
                self.routes.wake_up().watch(&mut select);
                self.labels.wake_up().watch(&mut select);
                let written = self.routes.written().into_iter().chain(self.labels.written());
                written.for_each(|written| written.watch(&mut select));
                // The loop checks everything anyway.
                if idle::wait(&mut select, self.poll_timeout()) {
                    idle::trim(self);
                }
            }
        }
        self.flush()?;
        self.settle()
    }

    /// Notes for the watchdog whether no client is read because no row can be handed over.
    fn note_choke(&mut self, is_choked: bool) {
        let pending = self.machine.pending();
        match is_choked && pending == self.choked.1 {
            true => self.choked.0.begin(),
            false => self.choked.0.end(),
        }
        self.choked.1 = pending;
    }

    fn note_depths(&mut self) {
        self.changed.set(self.machine.pending());
        self.unanswered.set(self.machine.awaiting());
        // The count is taken here, because many places change it.
        if self.counted.elapsed() >= GAUGE_INTERVAL {
            self.counted = Instant::now();
            self.objectless.set(self.machine.waiting());
        }
        self.routes.note_depths();
        self.labels.note_depths();
    }

    fn link(&mut self, event: LinkEvent) {
        match event {
            LinkEvent::Named(index, name, _) => self.machine.link(index, &name, &mut self.out),
            LinkEvent::Gone(index) => self.machine.link_gone(index),
        }
    }

    /// Reads the rows of an earlier run; they stay when they are announced again.
    fn learn(&mut self) -> Result<(), Error> {
        let machine = &mut self.machine;
        self.groups.rows(|key, row, queued| machine.known_group(&key, row, queued))?;
        self.routes.rows(|key, row, queued| machine.known_route(key, &row, queued))?;
        self.labels.rows(|key, row, _| machine.known_label(key, row))?;
        self.vpn_tables.rows(|key, row| machine.known_vpn_row(key, row))
    }

    fn fpm(&mut self, event: FpmEvent) -> Result<(), Error> {
        match event {
            FpmEvent::Connected(peer, replies) => {
                tracing::info!(target: target::FPMSYNCD, client = %peer, "an FPM session begins");
                self.replies = Some(replies);
                self.machine.session_up();
                self.recount();
                self.sessions += 1;
                self.replay.connected(self.sessions == 1, &mut self.machine)?;
            }
            FpmEvent::Frames(bytes) => {
                let (begin, mut at, mut read) = (Instant::now(), 0, 0);
                // The server passes complete frames.
                while let Some(Ok(Some(frame))) = bytes.get(at..).map(fpm::frame) {
                    self.machine.frame(&frame, &mut self.out);
                    at += frame.len;
                    read += 1;
                }
                if let Some(timer) = &self.read {
                    timer.add(read, begin);
                }
            }
            FpmEvent::Disconnected => {
                self.replies = None;
                self.machine.session_down();
            }
        }
        Ok(())
    }

    /// Reads the snapshot of the chip before any announcement, so that present routes are not
    /// written again.
    fn wait_for_snapshot(&mut self, stop: &Stop) -> Result<(), Error> {
        let begin = Instant::now();
        while !self.has_snapshot && !stop.stopped() {
            if begin.elapsed() >= SNAPSHOT_TIMEOUT {
                if !self.is_awaited(begin) {
                    return self.read_state_rows();
                }
                tracing::warn!(
                    target: target::FPMSYNCD,
                    "orchagent runs and has not reported what is in the chip; nothing is written until it has"
                );
                self.count = Count::AwaitsSnapshot(begin);
                return Ok(());
            }
            if !self.take_responses()? {
                let mut select = Select::new();
                if let Some(responses) = &self.responses {
                    responses.watch(&mut select);
                }
                let _ = select.ready_timeout(START_POLL_INTERVAL);
            }
        }
        Ok(())
    }

    /// Whether an orchagent, queried since then, will send the snapshot itself: it, or its chip,
    /// may be slow. Nothing is written to it, which it would not consume anyway. Over ZeroMQ an
    /// orchagent with a warm start waits for fpmsyncd, and a resend is no write.
    fn is_awaited(&self, since: Instant) -> bool {
        let awaited = since.elapsed() < AWAITED && self.is_row_last();
        awaited && self.responses.as_ref().is_some_and(ResponseReceiver::is_awaited)
    }

    /// Follows FIB suppression in CONFIG_DB.
    fn apply_config(&mut self) -> Result<(), Error> {
        let on = self.suppress.is_on();
        if on == self.machine.suppresses() {
            return Ok(());
        }
        tracing::info!(target: target::FPMSYNCD, "FIB suppression is {}", if on { "on" } else { "off" });
        self.machine.suppress(on, &mut self.out);
        self.are_rows_last = false;
        match on {
            true => self.restart_count(),
            false => (self.responses, self.has_snapshot, self.count) = (None, true, Count::Done),
        }
        note_suppression(on, &mut self.settings);
        self.settings.write();
        Ok(())
    }

    /// Starts a session, in which confirmed rows are not written again. If rows of a route
    /// coalesced, in APPL_DB or in orchagent, there are fewer responses than counted. So when one
    /// seems to be missing, counting starts again. SONiC's orchagent sends no snapshot of the chip.
    fn recount(&mut self) {
        let is_sure = self.has_snapshot && self.responses.as_ref().is_some_and(ResponseReceiver::are_direct);
        if is_sure && self.machine.is_unanswered() {
            self.restart_count();
        }
    }

    /// Ignores responses until counting starts again.
    fn restart_count(&mut self) {
        self.responses = None;
        self.has_snapshot = false;
        self.count = Count::Due { held: false };
    }

    /// Continues to restart counting.
    fn advance_count(&mut self) -> Result<(), Error> {
        if let Count::Due { .. } = self.count {
            let handed_over = self.routes.handed_over()?;
            self.count = Count::Due { held: handed_over == HandedOver::Some };
            if handed_over == HandedOver::All {
                self.machine.recount(self.routes.queued()?);
                self.responses = Some(ResponseReceiver::open(&self.daemon)?);
                self.count = Count::AwaitsSnapshot(Instant::now());
            }
        }
        if let Count::AwaitsSnapshot(since) = self.count {
            if !self.has_snapshot && since.elapsed() >= SNAPSHOT_TIMEOUT && !self.is_awaited(since) {
                self.read_state_rows()?;
            }
            if self.has_snapshot {
                self.count = Count::Done;
            }
        }
        Ok(())
    }

    /// Whether writes must wait.
    fn holds(&self) -> bool {
        self.replay.holds() || self.count.holds()
    }

    /// Handles responses up to the bound of one message to the routing daemon. Returns `false`
    /// without any.
    fn take_responses(&mut self) -> Result<bool, Error> {
        let mut received = false;
        while self.out.offloads.len() < CONFIRMATIONS_BATCH_MAX
            && let Some(responses) = &mut self.responses
            && let Some(response) = responses.hear()
        {
            received = true;
            match response {
                ReceivedResponse::Direct(message) => {
                    if self.direct(&message).is_err() {
                        let len = message.len();
                        tracing::warn!(target: target::FPMSYNCD, bytes = len, "a message is passed over: it has no responses");
                    }
                }
                ReceivedResponse::Published(response) => self.machine.confirm(&response, &mut self.out),
                ReceivedResponse::Missed => self.read_state_rows()?,
            }
        }
        Ok(received)
    }

    fn direct(&mut self, message: &[u8]) -> Result<(), MalformedResponses> {
        let mut reader = ResponseReader::new(message)?;
        if reader.kind == ResponseKind::SnapshotEnd {
            self.has_snapshot = true;
            self.machine.all_said();
        }
        let exact = self.is_row_last();
        while let Some(group) = reader.next_group()? {
            match reader.kind {
                ResponseKind::Confirmed => {
                    self.machine.confirm_all(group.vrf, group.name, group.prefixes(), &mut self.out);
                }
                ResponseKind::Refused => {
                    self.machine.refused(group.vrf, &group.name.into(), group.refused(), &mut self.out);
                }
                ResponseKind::InChip | ResponseKind::SnapshotEnd => {
                    self.machine.in_chip(group.vrf, group.prefixes(), exact);
                }
            }
        }
        Ok(())
    }

    /// Whether the row in APPL_DB at the start was the last that orchagent got. Over ZeroMQ it may
    /// be an earlier one, or one that was lost in the queue of the former fpmsyncd.
    fn is_row_last(&self) -> bool {
        matches!(self.routes, Routes::Redis(_))
    }

    /// Reads APPL_STATE_DB as the snapshot of the chip. ribtide's orchagent writes it behind, so a
    /// row may be of a deleted route; a restarted orchagent sends the snapshot itself.
    fn read_state_rows(&mut self) -> Result<(), Error> {
        self.has_snapshot = true;
        let is_row_last = self.is_row_last();
        let (Some(responses), machine) = (&mut self.responses, &mut self.machine) else { return Ok(()) };
        let exact = is_row_last && self.are_rows_last && !responses.may_rows_lag()?;
        responses.rows(|vrf, prefix| machine.in_chip(vrf, std::iter::once(prefix), exact))
    }

    fn carry_out(&mut self) -> Result<(), Error> {
        events::log_fpmsyncd(&mut self.out.events);
        if self.out.has_replies() {
            let mut bytes = Vec::new();
            self.out.write_replies(&mut bytes);
            if self.replies.as_ref().is_some_and(|replies| replies.send(bytes).is_err()) {
                // The client did not read, or is gone; the server reports it, too.
                self.replies = None;
            }
        }
        self.delete_groups()?;
        let due = self.flush_timer.is_due(self.machine.pending(), Instant::now());
        if due && self.has_room() && !self.holds() { self.flush() } else { Ok(()) }
    }

    /// [`Fpmsyncd::compare_found`]; nothing is known while rows are held back.
    fn compare_found(&mut self, found: &[FoundRow]) -> Vec<ProducerRow> {
        match self.holds() {
            true => vec![ProducerRow::Unknown; found.len()],
            false => self.machine.compare_found(found),
        }
    }

    /// Whether changes would leave this process. Removed groups are deleted before they may return.
    fn has_room(&self) -> bool {
        self.routes.has_room() && self.labels.has_room() && !self.has_old_rows()
    }

    /// Whether the backlog of orchagent, over ZeroMQ or in Redis, must stop the routing daemon.
    /// Without an orchagent it need not: rows coalesce, and the number of routes bounds them.
    fn is_choked(&self) -> bool {
        !self.replay.holds()
            && (self.count.holds() || !self.has_room())
            && self.machine.pending() >= self.choke_threshold
    }

    /// Continues transmission over ZeroMQ: waiting messages, and a resend to a new orchagent.
    /// Returns whether there is more at once.
    fn advance_resend(&mut self) -> Result<bool, Error> {
        let (held, replayed) = (self.holds(), self.machine.is_replayed());
        // Changed rows go to APPL_DB too; resent rows do not.
        if let Some(as_resync) = self.labels.resend_due(held, replayed) {
            self.flush()?;
            self.machine.label_rows(&mut self.out.labels);
            self.labels.begin_resend(as_resync);
            self.labels.resend(&mut self.out.labels, true);
        }
        if let Some(as_resync) = self.routes.resend_due(held, replayed) {
            self.flush()?;
            self.resending =
                self.routes.begin_resend(as_resync).map(|kind| (self.machine.resend_all(), kind));
        }
        if held {
            return Ok(false);
        }
        let more = self.resend_rows()?;
        let Routes::Zmq(zmq) = &self.routes else { return Ok(more) };
        match (zmq.producer.is_connected(), zmq.producer.is_acknowledged()) {
            (true, true) => self.settings.now("swss_zmq", "acknowledged", ""),
            (true, false) => self.settings.now("swss_zmq", "not acknowledged", "orchagent is not ribtide's"),
            (false, _) => {
                let why = self.transport.wrong().unwrap_or("no orchagent takes routes there");
                self.settings.now("swss_zmq", "disabled", why);
            }
        }
        Ok(more)
    }

    /// Resends some rows to orchagent, if there is room. Returns whether there is room for more.
    fn resend_rows(&mut self) -> Result<bool, Error> {
        if !self.routes.is_resending() {
            self.resending = None;
        }
        if self.resending.is_none() || !self.routes.has_room() {
            return Ok(false);
        }
        // Changed rows first, because a resent row must equal the written one.
        if self.machine.pending() > 0 {
            self.flush()?;
        }
        let Some((resend, kind)) = &mut self.resending else { return Ok(false) };
        let more = self.machine.next_resent(resend, *kind, AGAIN, &mut self.out);
        self.routes.resend(&mut self.out.routes, !more);
        if !more {
            self.resending = None;
        }
        Ok(more && self.routes.has_room())
    }

    /// The time until the next timer.
    fn poll_timeout(&self) -> Duration {
        if let Count::Due { .. } = self.count {
            return START_POLL_INTERVAL;
        }
        if self.machine.pending() > 0 && self.has_room() && !self.holds() {
            return self.flush_timer.left(Instant::now()).min(TICK_INTERVAL);
        }
        let is_replaying = self.machine.session_ms().is_some() && !self.machine.is_replayed();
        if is_replaying || self.count != Count::Done || self.machine.pending() > 0 || self.resending.is_some()
        {
            return TICK_INTERVAL;
        }
        let responses = self.responses.as_ref().and_then(ResponseReceiver::due);
        let responses = responses.map_or(Duration::MAX, |due| due.saturating_duration_since(Instant::now()));
        responses.min(self.probe_interval().saturating_sub(self.probed.elapsed()))
    }

    fn flush(&mut self) -> Result<(), Error> {
        self.settle()?;
        self.machine.take(&mut self.out);
        self.write()
    }

    /// Whether groups, or rows that routes name, are still to be deleted.
    fn has_old_rows(&self) -> bool {
        !self.out.old_groups.is_empty() || !self.out.old_vpn_rows.is_empty()
    }

    /// Deletes groups without a row, and what else routes name, after these rows are in APPL_DB: the deletion of a group
    /// deletes its routes.
    fn delete_groups(&mut self) -> Result<(), Error> {
        if self.has_old_rows() && self.routes.is_written()? {
            write(&mut self.groups, &mut self.out.old_groups)?;
            self.vpn_tables.write(&mut self.out.old_vpn_rows)?;
        }
        Ok(())
    }

    /// The same at once, whatever the backlog of orchagent.
    fn settle(&mut self) -> Result<(), Error> {
        if self.has_old_rows() {
            self.routes.settle()?;
        }
        self.delete_groups()
    }

    fn probe_interval(&self) -> Duration {
        if self.transport.is_suspect() { PROBE_INTERVALS.0 } else { PROBE_INTERVALS.1 }
    }

    /// Checks a Redis that was lost and returned between two changes, and orchagent's transport.
    fn probe(&mut self) -> Result<(), Error> {
        if self.returned.take() == Ok(true) {
            self.groups.probe()?;
            self.vpn_tables.probe()?;
            return self.write();
        }
        if self.probed.elapsed() < self.probe_interval() {
            return Ok(());
        }
        self.probed = Instant::now();
        if self.transport.look()? && matches!(self.routes, Routes::Redis(_)) {
            self.settings.now("swss_zmq", "disabled", self.transport.wrong().unwrap_or_default());
        }
        self.write()
    }

    /// Records the channel of responses.
    fn record_response_channel(&mut self) {
        if let Some(responses) = &self.responses {
            let (channel, why) = responses.channel();
            self.settings.now("responses", channel, why);
        }
    }

    /// Records whether the routing daemon, if it is ribtide, waits for FIB confirmations.
    fn record_client(&mut self) {
        let why = match (self.machine.suppresses(), self.machine.client_waits()) {
            (false, Some(true)) => CONFIRMED_TOO_EARLY,
            (true, Some(false)) => SUPPRESSION_OFF_IN_ROUTER,
            _ => "",
        };
        if why != std::mem::replace(&mut self.disagreement, why) && !why.is_empty() {
            tracing::warn!(target: target::FPMSYNCD, "{why}");
        }
        self.settings.now(SUPPRESS, on_or_off(self.machine.suppresses()), why);
    }

    /// Writes changed rows, and all rows after a loss of Redis.
    fn write(&mut self) -> Result<(), Error> {
        loop {
            let (begin, routes) = (Instant::now(), self.out.routes.len() + self.out.queries.len());
            write(&mut self.groups, &mut self.out.groups)?;
            self.vpn_tables.write(&mut self.out.vpn_rows)?;
            self.routes.write(&mut self.out.routes)?;
            self.routes.request_responses(&mut self.out.queries)?;
            self.labels.write(&mut self.out.labels)?;
            self.delete_groups()?;
            if let Some(timer) = &self.write {
                timer.add(routes, begin);
            }
            self.flush_timer.restart(Instant::now());
            let tables = self.groups.generation() + self.vpn_tables.generation();
            let generation = self.routes.generation() + self.labels.generation() + tables;
            if generation == self.generation {
                return Ok(());
            }
            self.generation = generation;
            tracing::warn!(target: target::FPMSYNCD, "writing every row again, since Redis may have lost some");
            // Surplus groups are found below.
            self.out.old_groups.clear();
            self.out.old_vpn_rows.clear();
            self.machine.write_again(&mut self.out);
            write(&mut self.groups, &mut self.out.groups)?;
            self.vpn_tables.write(&mut self.out.vpn_rows)?;
            self.routes.write(&mut self.out.routes)?;
            self.routes.request_responses(&mut self.out.queries)?;
            let (mut again, mut more) = (self.machine.resend_all(), true);
            while more {
                more = self.machine.next_resent(&mut again, ResendKind::AsNew, AGAIN, &mut self.out);
                self.routes.keep(&mut self.out.routes)?;
            }
            self.resending = self.routes.resend_as_new().map(|kind| (self.machine.resend_all(), kind));
            // Redis may have old data, so surplus rows are deleted.
            let (machine, out) = (&self.machine, &mut self.out);
            self.routes.rows(|key, _, _| machine.delete_surplus_route(key, out))?;
            self.labels.rows(|key, _, _| machine.delete_surplus_label(key, out))?;
            self.groups.rows(|key, _, _| machine.delete_surplus_group(key, out))?;
            self.vpn_tables.rows(|key, row| machine.delete_surplus_vpn_row(row.table, key.clone(), out))?;
        }
    }
}

impl Mirror for Stage {
    type Row = appl_db::Wanted;
    type Cursor = RowCursor;
    type Producer = ();

    fn page(&mut self, from: RowCursor, count: usize) -> Option<(Vec<Self::Row>, Option<RowCursor>)> {
        if self.holds() {
            return None;
        }
        // NEXTHOP_GROUP_TABLE and the tables of VPNs go through APPL_DB whatever routes do.
        if self.routes.fence().is_none() {
            return Some((self.machine.wanted_groups().map(appl_db::Wanted).collect(), None));
        }
        let (rows, next) = self.machine.wanted_rows(from, count);
        Some((rows.into_iter().map(appl_db::Wanted).collect(), next))
    }

    fn watch(&mut self, keys: &mut Vec<TableKey>) -> u64 {
        self.machine.watch(keys);
        self.fences = (self.routes.fence().unwrap_or(0), self.labels.fence().unwrap_or(0));
        0
    }

    fn is_written(&mut self, _: u64) -> Result<bool, Error> {
        Ok(self.routes.is_past(self.fences.0) && self.labels.is_past(self.fences.1))
    }

    fn repair(
        &mut self,
        found: Vec<(TableKey, Found)>,
        (): (),
    ) -> Result<Vec<(TableKey, Difference)>, Error> {
        let (mut out, mut repaired) = (FpmOut::default(), Vec::new());
        // Over ZeroMQ only the copy in APPL_DB differs.
        let answered = matches!(self.routes, Routes::Redis(_));
        for (name, found) in found {
            let wanted = self.machine.wanted(&name);
            let differs = wanted.is_some_and(|wanted| !wanted.is(&found));
            if differs && self.machine.is_watched(&name) && !self.holds() {
                self.machine.row_again(&name, answered, &mut out);
                repaired.push((name, mirror::difference(true, &found)));
            }
        }
        write(&mut self.groups, &mut out.groups)?;
        self.vpn_tables.write(&mut out.vpn_rows)?;
        self.routes.keep(&mut out.routes)?;
        self.labels.keep(&mut out.labels)?;
        Ok(repaired)
    }
}

/// Writes and flushes, because an empty flush costs a round trip.
fn write<R: Row>(table: &mut ProducerStateTable<R>, changes: &mut Vec<Change<R>>) -> Result<(), Error> {
    if !changes.is_empty() {
        table.write(changes)?;
        table.flush()?;
    }
    Ok(())
}
