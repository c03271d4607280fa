//! The virtual ASIC: SONiC's path in this process, as a dataplane: the same three machines as the daemons', each on a thread of its
//! own, over tables and rings in memory.
//!
//! ```text
//! RIB ─batches─► sonic-fpmsyncd ─rows─► sonic-orchagent ─bulks─► sonic-syncd (virtual switch)
//!  ▲                    └─────headers────►   │  ▲                    │
//!  └───────────── acknowledgements ───────────┘  └─────replies────────┘
//! ```
//!
//! Ports, addresses, neighbours and VRFs come from the configuration. In lab mode every gateway that a route needs is given
//! a neighbour with a made-up MAC address.
// These macros panic when the reader of the pipe is gone.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod acks;
mod interfaces;
mod reconcile;
mod vrf_names;

use acks::{Acks, BatchHeader};
use crossbeam_channel::Select;
use interfaces::{Interfaces, describe, port, port_setup};
use ribtide_config::{InterfaceConfig, VirtualAsicConfig, VrfSetup};
use ribtide_dataplane::RibChannel;
use ribtide_dataplane::announcer::{Announcer, Style};
use ribtide_model::AsicState;
use ribtide_prefix::{AnyPrefix, Family, for_each_family};
use ribtide_rib::{FibBatch, FibRoute, GroupId, IfIndex, Protocol, RibIn, VrfId, VrfPrefix};
use ribtide_runtime::call::{CallQueue, NoReply, StageHandle, pair};
use ribtide_runtime::idle::{self, ShrinkToFit};
use ribtide_runtime::meter::{Meter, Meters};
use ribtide_runtime::ring::{self, Rings};
use ribtide_runtime::thread::{self, Ended, Stop};
pub use ribtide_sonicd::Error;
use ribtide_sonicd::chip_state::{alter, chip_state};
use ribtide_sonicd::events;
use ribtide_sonicd::orch_stage::{OrchGauges, OrchOutputs, OrchStage, SyncdLink, TableFeed};
use ribtide_sonicd::port_reports::{self, PortReportReceiver, PortReportSender, PortReports};
pub use ribtide_sonicd::reconcile::ReconcileCount;
use ribtide_sonicd::reconcile::{ChipRounds, RoundLog, Tally};
use ribtide_sonicd::syncd_stage::{OrchLink, SyncdStage};
use ribtide_swss::Change;
use ribtide_swss::fpmsyncd::{FpmConfig, FpmOut, Fpmsyncd, Rows};
use ribtide_swss::orch::{Orch, OrchConfig, OrchOut, RouteState, VidCounter};
use ribtide_swss::row::{
    IntfKey, IntfRow, Mac, Name, NeighKey, NeighRow, NextHopGroupRow, PortKey, PortRow, RouteRow, VrfRow,
};
use ribtide_swss::sai::notification::PortState;
use ribtide_swss::sai::{Oid, SaiReply, SaiRequest};
use ribtide_swss::syncd::{PackedChanges, Syncd, SyncdOut};
use ribtide_tables::memory::{self, MemoryProducer};
use ribtide_tables::{Producer, TableError};
use ribtide_vswitch::{Counts, Forward, VirtualSwitch};
use ribtide_wire::netlink::Content;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::net::IpAddr;
use std::time::{Duration, Instant};
use vrf_names::VrfNames;

/// Batches of rows in the queue of orchagent at most.
const ROWS: usize = 64;
/// Batch headers in the queue of orchagent at most.
const HEADERS: usize = 256;
/// Rows at work in orchagent at most: about the content of the bulks in flight. More would leave
/// the caches of the CPU.
const BACKLOG: usize = 8192;
/// Bulks in flight to the chip at most.
const WINDOW: usize = 4;
/// Addresses of one call to the thread of the chip; larger lookups take several calls, so that
/// routing continues.
const PAGE: usize = 4096;
/// Poll interval for a stop, while a queue is full.
const STOP_POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The handle of the running path.
#[derive(Clone)]
pub struct InProcess {
    fpmsyncd: StageHandle<Fpm>,
    orchagent: StageHandle<OrchStage>,
    syncd: StageHandle<SyncdStage>,
    interfaces: Interfaces,
    vrfs: VrfNames,
    reconciled: Tally,
}

/// The group and protocol of the selected route of the RIB manager.
pub type Selected = (GroupId, Protocol);

/// The state of a route in each stage.
#[derive(Clone, PartialEq, Debug)]
pub struct Explained {
    /// fpmsyncd: its row, or why it has none. `None`: no client announced it.
    pub fpmsyncd: Option<Result<RouteRow, String>>,
    /// orchagent: the state in the chip, and what the route waits for. `None`: neither present nor
    /// requested.
    pub orchagent: Option<RouteState>,
    /// The entry of the chip for exactly this prefix.
    pub chip: Option<Forward>,
    /// A stall of the chip, with its remaining time if known.
    pub stalled: Option<Option<Duration>>,
}

/// Starts the path behind `channel`, on threads whose names begin with `name`. The switch has a
/// port for each of `interfaces`.
///
/// # Errors
/// A thread cannot be created.
pub fn start(
    name: &str,
    channel: RibChannel,
    interfaces: &[InterfaceConfig],
    vrfs: &[VrfSetup],
    config: VirtualAsicConfig,
    rings: &Rings,
    meters: &Meters,
) -> Result<InProcess, Error> {
    let (routes, routes_taken) = memory::table::<RouteRow>(rings, ROWS);
    let (groups, groups_taken) = memory::table::<NextHopGroupRow>(rings, ROWS);
    let (headers, header_rx) = rings.bounded("FIB batches to acknowledge", HEADERS);
    let (requests, requested) = rings.bounded("orchagent to syncd", 2 * WINDOW);
    let (replies, replied) = rings.bounded("syncd to orchagent", 2 * WINDOW);
    let (report, reports) = port_reports::pair();
    let vids = VidCounter::default();
    let stop = channel.stop.clone();

    let (mut machine, mut out) = (Fpmsyncd::new(FpmConfig::default()), FpmOut::default());
    for interface in interfaces {
        machine.link(interface.index, &interface.name, &mut out);
    }
    vrfs.iter().for_each(|vrf| machine.link(vrf.vrf.device, &vrf.name, &mut out));
    let vrf_names = VrfNames::default();
    vrf_names.set(names(vrfs));
    machine.session_up();
    let fpm = Fpm {
        machine,
        announcer: Announcer::new(Style::Objects),
        replay: Replay::None,
        out,
        rows: Vec::new(),
        routes,
        groups,
        headers,
        id: channel.id,
        feedback: channel.rib.feedback.clone(),
        meter: channel.meter.clone(),
    };

    let mac = OrchConfig::default().mac;
    let orch_config = OrchConfig { window: WINDOW, single_groups: true, mac, ..OrchConfig::default() };
    let mut orch = Orch::new(orch_config, Box::new(vids.clone()));
    begin_ports(&mut orch, interfaces);
    place(&mut orch, interfaces.iter().map(|interface| interface.name.as_str().into()), vrfs);
    let acks = Acks::new(channel.id, channel.rib.feedback.clone(), vrf_names.clone());
    let orchagent = OrchStage {
        orch,
        // Groups precede the routes that refer to them.
        groups: 0,
        compares_only_groups: false,
        feeds: vec![
            Box::new(TableFeed::new(groups_taken, Orch::nexthop_group)),
            Box::new(TableFeed::together(routes_taken, Orch::routes).announced(Orch::rows_due)),
        ],
        syncd: Box::new(ToSyncd { requests, replies: replied, reports, waiting: 0 }),
        outputs: Box::new(Answers { acks, headers: header_rx, lab: config.lab }),
        batch: 4096,
        backlog: BACKLOG,
        gauges: OrchGauges::new(BACKLOG, WINDOW, rings),
        rows: None,
        requests: None,
        meter: Some(meters.meter("orchagent")),
        drain: None,
        restore: None,
        check: None,
        heartbeat: None,
    };

    let ports = interfaces.iter().enumerate().map(|(i, interface)| port_setup(i, &interface.name));
    let chip = VirtualSwitch::new(ports.collect(), config.chip);
    let link = Box::new(ToOrchagent { requests: requested, replies, reports: report });
    let syncd = Syncd::new(chip, Box::new(vids)).without_rows();
    let mut syncd = SyncdStage::new(syncd, link, Some(meters.meter("syncd")), None, rings);
    let (reconciled, interval) = (Tally::default(), Duration::from_secs(config.reconcile_interval));
    let log = || RoundLog::new("virtual ASIC", reconciled.clone());
    syncd.reconcile = (!interval.is_zero()).then(|| ChipRounds::new(interval, log()));

    let (ask_fpmsyncd, asked_fpmsyncd) = pair("fpmsyncd");
    let (ask_orchagent, asked_orchagent) = pair("orchagent");
    let (ask_syncd, asked_syncd) = pair("syncd");
    let all = stop.clone();
    let stage = |stage: &'static str, body: Box<dyn FnOnce() -> Result<(), Error> + Send>| {
        let all = all.clone();
        let run = move || {
            // Without one of its stages the path would stall, so the process exits and is
            // restarted.
            if let Err(e) = body()
                && !all.has_begun()
            {
                events::log_failure(stage, &e);
                all.fail();
            }
            Ended::at_stop(&all)
        };
        thread::spawn(format!("{name}-{stage}"), run).map_err(Error::no_thread(&format!("for {stage}")))
    };
    let (stop_orchagent, stop_syncd, stop_reconcile) = (stop.clone(), stop.clone(), stop);
    stage("syncd", Box::new(move || syncd.run(Some(&asked_syncd), &stop_syncd)))?;
    stage("orchagent", Box::new(move || orchagent.run(Some(&asked_orchagent), &stop_orchagent)))?;
    stage("fpmsyncd", Box::new(move || fpm.run(channel, &asked_fpmsyncd)))?;
    if !interval.is_zero() {
        reconcile::start(name, ask_orchagent.clone(), ask_syncd.clone(), interval, log(), stop_reconcile)?;
    }
    Ok(InProcess {
        fpmsyncd: ask_fpmsyncd,
        orchagent: ask_orchagent,
        syncd: ask_syncd,
        interfaces: Interfaces::new(interfaces),
        vrfs: vrf_names,
        reconciled,
    })
}

impl InProcess {
    /// Sets the VRFs and their interfaces. Call it before the first routes of new ones and after
    /// the last routes of removed ones.
    ///
    /// # Errors
    /// A stage has stopped or is too busy.
    pub fn set_vrfs(&self, vrfs: &[VrfSetup]) -> Result<(), NoReply> {
        let (mut all, new) = (self.vrfs.all(), names(vrfs));
        all.retain(|_, name| !new.values().any(|other| other == name));
        all.extend(new);
        self.vrfs.set(all);
        let links: Vec<_> = vrfs.iter().map(|vrf| (vrf.vrf.device, vrf.name.clone())).collect();
        self.fpmsyncd.call(move |fpm| {
            links.iter().for_each(|(device, name)| fpm.machine.link(*device, name, &mut fpm.out))
        })?;
        let (interfaces, vrfs) = (self.interfaces.names(), vrfs.to_vec());
        self.orchagent.call(move |stage| place(&mut stage.orch, interfaces.into_iter(), &vrfs))
    }

    /// Removes all other VRFs after their work in flight. Call it after the RIB manager has
    /// withdrawn their routes.
    ///
    /// # Errors
    /// The stage has stopped or is too busy.
    pub fn drop_other_vrfs(&self, vrfs: &[VrfSetup]) -> Result<(), NoReply> {
        let stay = names(vrfs);
        let mut gone: Vec<Name> = self.vrfs.all().into_values().collect();
        gone.retain(|name| !stay.values().any(|other| other == name));
        self.orchagent.call(move |stage| gone.into_iter().for_each(|name| stage.orch.vrf(Change::del(name))))
    }

    /// The forwarding of packets to each of `addresses`, in a VRF of the chip.
    ///
    /// # Errors
    /// The stage has stopped or is too busy.
    pub fn lookup(&self, vrf: VrfId, addresses: &[IpAddr]) -> Result<Vec<Option<Forward>>, NoReply> {
        let router = self.virtual_router(vrf)?;
        let mut found = Vec::with_capacity(addresses.len());
        for page in addresses.chunks(PAGE) {
            let page = page.to_vec();
            found.extend(self.syncd.call(move |stage| {
                let chip = stage.syncd.chip();
                let vr = router.and_then(|vid| stage.syncd.rid(vid));
                let look = |addr: IpAddr| vr.and_then(|vr| chip.lookup(vr, addr));
                page.into_iter().map(look).collect::<Vec<_>>()
            })?);
        }
        Ok(found)
    }

    /// Makes the chip refuse routes of these prefixes, or accept them again: a fault on demand.
    ///
    /// # Errors
    /// The stage has stopped or is too busy.
    pub fn refuse(&self, prefixes: Vec<AnyPrefix>, refused: bool) -> Result<(), NoReply> {
        self.syncd.call(move |stage| {
            let chip = stage.syncd.chip_mut();
            prefixes.into_iter().for_each(|prefix| chip.refuse(prefix, refused));
        })
    }

    /// Changes objects of the chip as another program would; see [`alter`].
    ///
    /// # Errors
    /// The stage has stopped or is too busy. The inner error says what is wrong.
    pub fn alter(&self, changes: Vec<String>) -> Result<Result<(), String>, NoReply> {
        self.syncd.call(move |stage| changes.iter().try_for_each(|text| alter(stage.syncd.chip_mut(), text)))
    }

    /// What was compared and repaired, by table of the chip.
    pub fn reconciled(&self) -> BTreeMap<String, ReconcileCount> {
        self.reconciled.counts()
    }

    /// Changes the behaviour of the chip; see [`VirtualSwitch::behave`].
    ///
    /// # Errors
    /// The stage has stopped or is too busy. The inner error names the invalid setting.
    pub fn behave(&self, settings: Vec<(String, String)>) -> Result<Result<(), String>, NoReply> {
        self.syncd.call(move |stage| {
            let settings = settings.iter().map(|(name, value)| (name.as_str(), value.as_str()));
            stage.syncd.chip_mut().behave(settings)
        })
    }

    /// The behaviour and counters of the chip.
    ///
    /// # Errors
    /// The stage has stopped or is too busy.
    pub fn chip(&self) -> Result<AsicState, NoReply> {
        self.syncd.call(|stage| chip_state(stage.syncd.chip_mut()))
    }

    /// Routes whose change was requested of the chip since the last call; `None` at the first call,
    /// or when they are too many.
    ///
    /// # Errors
    /// A stage has stopped or is too busy.
    pub fn changed(&self) -> Result<Option<Vec<VrfPrefix>>, NoReply> {
        let Some(changed) = self.syncd.call(|stage| stage.changed.take())? else { return Ok(None) };
        if changed.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let mut vrfs = vec![(VrfId::DEFAULT, self.virtual_router(VrfId::DEFAULT)?)];
        for vrf in self.vrfs.all().into_keys() {
            vrfs.push((vrf, self.virtual_router(vrf)?));
        }
        let of = |vr: Oid| vrfs.iter().find(|(_, known)| *known == Some(vr)).map(|(vrf, _)| *vrf);
        let routes = changed.into_iter().filter_map(|(vr, prefix)| Some(VrfPrefix { vrf: of(vr)?, prefix }));
        Ok(Some(routes.collect()))
    }

    /// The entries of the chip for exactly these prefixes, in any VRFs, in the same order.
    ///
    /// # Errors
    /// A stage has stopped or is too busy.
    pub fn entries(&self, routes: &[VrfPrefix]) -> Result<Vec<Option<Forward>>, NoReply> {
        let mut vrfs: BTreeMap<VrfId, Option<Oid>> = BTreeMap::new();
        for route in routes {
            if let Entry::Vacant(place) = vrfs.entry(route.vrf) {
                place.insert(self.virtual_router(route.vrf)?);
            }
        }
        let routes = routes.to_vec();
        self.syncd.call(move |stage| {
            let entry = |route: VrfPrefix| {
                let vr = vrfs.get(&route.vrf).copied().flatten().and_then(|vid| stage.syncd.rid(vid))?;
                stage.syncd.chip().route_at(vr, route.prefix)
            };
            routes.into_iter().map(entry).collect()
        })
    }

    /// Every prefix of a VRF in the chip.
    ///
    /// # Errors
    /// A stage has stopped or is too busy.
    pub fn prefixes(&self, vrf: VrfId) -> Result<Vec<AnyPrefix>, NoReply> {
        let router = self.virtual_router(vrf)?;
        self.syncd.call(move |stage| {
            let vr = router.and_then(|vid| stage.syncd.rid(vid));
            vr.map(|vr| stage.syncd.chip().prefixes(vr).collect()).unwrap_or_default()
        })
    }

    /// The number of entries in each table of the chip.
    ///
    /// # Errors
    /// The stage has stopped or is too busy.
    pub fn counts(&self) -> Result<Counts, NoReply> {
        self.syncd.call(|stage| stage.syncd.chip().counts())
    }

    /// The state of a route in each stage, compared with the one that the RIB manager `selected`.
    ///
    /// # Errors
    /// A stage has stopped or is too busy.
    pub fn explain(&self, route: VrfPrefix, selected: Option<Selected>) -> Result<Explained, NoReply> {
        let VrfPrefix { vrf, prefix } = route;
        let name = self.vrfs.name(vrf);
        let router = self.virtual_router(vrf)?;
        let of_fpmsyncd = selected
            .map(|(group, protocol)| self.fpmsyncd.call(move |fpm| fpm.row_of(prefix, group, protocol)));
        let fpmsyncd = of_fpmsyncd.transpose()?;
        let orchagent = self.orchagent.call(move |stage| stage.orch.explain(name.as_deref(), prefix))?;
        let (chip, stalled) = self.syncd.call(move |stage| {
            let vr = router.and_then(|vid| stage.syncd.rid(vid));
            let now = Instant::now();
            let chip = stage.syncd.chip_mut();
            let stalled = chip.stalled(now).map(|until| until.map(|until| until - now));
            (vr.and_then(|vr| chip.route_at(vr, prefix)), stalled)
        })?;
        Ok(Explained { fpmsyncd, orchagent, chip, stalled })
    }

    /// The id of the virtual router of a VRF, if the chip has it.
    fn virtual_router(&self, vrf: VrfId) -> Result<Option<Oid>, NoReply> {
        let name = self.vrfs.name(vrf);
        if name.is_none() && vrf != VrfId::DEFAULT {
            return Ok(None);
        }
        self.orchagent.call(move |stage| stage.orch.virtual_router(name.as_deref()))
    }
}

/// The speed of each port in Mbit/s.
const SPEED: u32 = 100_000;

/// The lanes of the `i`th port: four each, as in SONiC's virtual switch.
fn lanes(i: usize) -> Vec<u32> {
    let first = 4 * i as u32;
    (first + 1..=first + 4).collect()
}

/// Sends orchagent the rows of ports, addresses and neighbours, as SONiC's other daemons would.
fn begin_ports(orch: &mut Orch, interfaces: &[InterfaceConfig]) {
    for (i, interface) in interfaces.iter().enumerate() {
        port(orch, i, &interface.name.as_str().into());
        describe(orch, None, interface);
    }
    orch.port(Change::set(
        PortKey::ConfigDone,
        PortRow { count: Some(interfaces.len() as u32), ..PortRow::default() },
    ));
    orch.port(Change::set(PortKey::InitDone, PortRow::default()));
}

/// The names of VRFs in SONiC.
fn names(vrfs: &[VrfSetup]) -> BTreeMap<VrfId, Name> {
    vrfs.iter().map(|setup| (setup.vrf.id, setup.name.as_str().into())).collect()
}

fn vrf_row(orch: &mut Orch, setup: &VrfSetup) {
    orch.vrf(Change::set(setup.name.as_str().into(), VrfRow::default()));
}

/// Sends orchagent the rows of VRFs and of the interfaces in them.
fn place(orch: &mut Orch, interfaces: impl Iterator<Item = Name>, vrfs: &[VrfSetup]) {
    vrfs.iter().for_each(|setup| vrf_row(orch, setup));
    for name in interfaces {
        let vrf = vrfs.iter().find(|setup| setup.interfaces.iter().flatten().any(|listed| **listed == *name));
        // The default VRF is written, too, because rows coalesce.
        let vrf_name = vrf.map_or("", |setup| &setup.name).into();
        let row = IntfRow { vrf_name: Some(vrf_name), ..IntfRow::default() };
        orch.interface(Change::set(IntfKey::Interface(name), row));
    }
}

fn neighbor(key: NeighKey, mac: Mac) -> Change<NeighRow> {
    let ipv6 = key.ip.is_ipv6();
    Change::set(key, NeighRow { mac: Some(mac), ipv6 })
}

/// A generated MAC address: locally administered, with the end of the IP address.
fn lab_mac(ip: IpAddr) -> Mac {
    let [.., a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    Mac([2, 0, a, b, c, d])
}

/// A replay of all routes, needed when the representation of a group changes (for example to or
/// from a blackhole): only the RIB manager knows the routes of a group.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Replay {
    None,
    Requested,
    Running,
}

/// The thread of fpmsyncd: batches in, rows and headers out.
struct Fpm {
    machine: Fpmsyncd,
    announcer: Announcer,
    replay: Replay,
    out: FpmOut,
    /// Rows of the current batch. The RIB manager has its routes, so no other stage stores them.
    rows: Vec<Change<RouteRow>>,
    routes: MemoryProducer<RouteRow>,
    groups: MemoryProducer<NextHopGroupRow>,
    headers: ring::Sender<BatchHeader>,
    id: ribtide_rib::DataplaneId,
    feedback: ring::Sender<RibIn>,
    meter: Meter,
}

impl ShrinkToFit for Fpm {
    fn shrink_to_fit(&mut self) {
        self.machine.shrink_to_fit();
        self.out.shrink_to_fit();
        self.routes.shrink_to_fit();
        self.groups.shrink_to_fit();
        self.rows = Vec::new();
    }
}

impl Fpm {
    fn run(mut self, mut channel: RibChannel, calls: &CallQueue<Fpm>) -> Result<(), Error> {
        let gone = |_| Error::new("the RIB manager has stopped; its log has the reason");
        channel.rib.feedback.send(RibIn::DataplaneUp(channel.id)).map_err(gone)?;
        while !channel.stop.stopped() {
            calls.serve(&mut self);
            match channel.try_next().map_err(gone)? {
                Some(batch) => self.batch(&batch, &channel.stop, calls)?,
                None => {
                    let mut select = Select::new();
                    channel.watch(&mut select);
                    calls.watch(&mut select);
                    // The loop checks everything anyway.
                    if idle::wait(&mut select, Duration::MAX) {
                        idle::trim(&mut self);
                    }
                }
            }
        }
        Ok(())
    }

    /// Waits until no queue is full, and serves calls in between, because a stalled chip may fill
    /// them for long.
    fn room(&mut self, stop: &Stop, calls: &CallQueue<Fpm>) {
        while !stop.stopped() && (self.routes.is_full() || self.groups.is_full() || self.headers.is_full()) {
            calls.serve(self);
            let mut select = Select::new();
            if self.routes.is_full() {
                self.routes.watch_room(&mut select);
            }
            if self.groups.is_full() {
                self.groups.watch_room(&mut select);
            }
            if self.headers.is_full() {
                self.headers.watch_room(&mut select);
            }
            calls.watch(&mut select);
            idle::wait(&mut select, STOP_POLL_INTERVAL);
        }
    }

    fn batch(&mut self, batch: &FibBatch, stop: &Stop, calls: &CallQueue<Fpm>) -> Result<(), Error> {
        let begin = Instant::now();
        let (announcer, machine, out) = (&mut self.announcer, &mut self.machine, &mut self.out);
        let mut send = |content: &Content<'_>| machine.message(content, out);
        let turned = !announcer.groups(batch, &mut send).is_empty();
        let (mut given_up, mut failed) = (Vec::new(), Vec::new());
        let mut rows = self.machine.rows_now();
        let device = batch.vrf.device;
        for_each_family!(F => for route in batch.routes.get::<F>() {
            if batch.again {
                // An unchanged row has no effect, so a refused route is deleted first.
                given_up.extend(row(announcer, &mut rows, device, &FibRoute { group: None, ..*route }));
            }
            match row(announcer, &mut rows, device, route) {
                Ok(change) => self.rows.push(change),
                Err(why) => failed.push((VrfPrefix { vrf: batch.vrf.id, prefix: route.prefix.any() }, why)),
            }
        });
        let mut send = |content: &Content<'_>| self.machine.message(content, &mut self.out);
        self.announcer.delete_groups(batch, &mut send);
        if batch.start_of_replay && self.replay == Replay::Requested {
            self.replay = Replay::Running;
        }
        if batch.end_of_replay && self.replay == Replay::Running {
            self.replay = Replay::None;
        }
        // A replay that begins now, or later, covers every route.
        let again = turned && !batch.start_of_replay && self.replay != Replay::Requested;
        if again {
            self.replay = Replay::Requested;
        }
        if self.replay == Replay::None {
            self.announcer.retire(&mut send);
        }
        self.machine.take(&mut self.out);
        events::log_fpmsyncd(&mut self.out.events);
        let rows = given_up.len() + self.rows.len();
        self.meter.add(batch.route_count(), begin);
        let header = BatchHeader { seq: batch.seq, rows, failed };
        let stopped = |_| TableError::Stopped { table: "acknowledgements".into() };
        self.room(stop, calls);
        self.headers.send(header).map_err(stopped)?;
        // A separate write, because a deletion and the next row would coalesce.
        self.routes.write(&mut given_up)?;
        self.routes.flush()?;
        self.groups.write(&mut self.out.groups)?;
        self.groups.flush()?;
        self.room(stop, calls);
        self.routes.write(&mut self.rows)?;
        self.routes.flush()?;
        self.groups.write(&mut self.out.old_groups)?;
        self.groups.flush()?;
        if again {
            let up = self.feedback.send(RibIn::DataplaneUp(self.id));
            up.map_err(|_| Error::new("the RIB manager has stopped; its log has the reason"))?;
        }
        Ok(())
    }
}

impl Fpm {
    /// The row of a route with these next hops, in any VRF; the error is a sentence.
    fn row_of(&mut self, prefix: AnyPrefix, group: GroupId, protocol: Protocol) -> Result<RouteRow, String> {
        let (announcer, mut rows, group) = (&mut self.announcer, self.machine.rows_now(), Some(group));
        let change = match prefix {
            AnyPrefix::V4(prefix) => row(announcer, &mut rows, 0, &FibRoute { prefix, group, protocol }),
            AnyPrefix::V6(prefix) => row(announcer, &mut rows, 0, &FibRoute { prefix, group, protocol }),
        };
        change?.row.ok_or_else(|| "its next hops are on the management interface, so it has no row".into())
    }
}

/// The row of a route; the error is a sentence.
fn row<F: Family>(
    announcer: &mut Announcer,
    rows: &mut Rows<'_>,
    device: IfIndex,
    route: &FibRoute<F>,
) -> Result<Change<RouteRow>, String> {
    let change = match announcer.route(device, route)? {
        Content::NewRoute(route) => rows.announced(&route),
        Content::DelRoute(route) => rows.withdrawn(&route),
        _ => unreachable!("an announcer says routes of routes"),
    };
    change.map_err(|why| why.to_string())
}

/// The transport of orchagent to syncd.
struct ToSyncd {
    requests: ring::Sender<Vec<SaiRequest>>,
    replies: ring::Receiver<Vec<SaiReply>>,
    reports: PortReportReceiver,
    waiting: usize,
}

impl SyncdLink for ToSyncd {
    fn send(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        self.waiting += requests.len();
        let gone = |_| Error::new("syncd has stopped; its log has the reason");
        self.requests.send(std::mem::take(requests)).map_err(gone)
    }

    fn replies(&mut self, replies: &mut Vec<SaiReply>) -> Result<(), Error> {
        while let Some(batch) = self.replies.try_recv() {
            self.waiting -= batch.len();
            replies.extend(batch);
        }
        Ok(())
    }

    fn port_reports(&mut self) -> PortReports {
        self.reports.take()
    }

    fn under_way(&self) -> usize {
        self.waiting
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.replies.watch(select);
        self.reports.watch(select);
    }
}

/// The transport of syncd to orchagent. There is no ASIC_DB, so rows are dropped.
struct ToOrchagent {
    requests: ring::Receiver<Vec<SaiRequest>>,
    replies: ring::Sender<Vec<SaiReply>>,
    reports: PortReportSender,
}

impl OrchLink for ToOrchagent {
    fn requests(&mut self, requests: &mut Vec<SaiRequest>) -> Result<(), Error> {
        if let Some(batch) = self.requests.try_recv() {
            requests.extend(batch);
        }
        Ok(())
    }

    fn answer(&mut self, out: &mut SyncdOut) -> Result<(), Error> {
        out.rows = PackedChanges::default();
        let gone = |_| Error::new("orchagent has stopped; its log has the reason");
        self.replies.send(std::mem::take(&mut out.replies)).map_err(gone)
    }

    fn port_states(&mut self, states: &[PortState]) {
        self.reports.send(states);
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.requests.watch(select);
    }
}

/// The outputs of orchagent: acknowledgements, and neighbours in lab mode.
struct Answers {
    acks: Acks,
    headers: ring::Receiver<BatchHeader>,
    lab: bool,
}

impl OrchOutputs for Answers {
    fn carry_out(&mut self, orch: &mut Orch, out: &mut OrchOut) -> Result<bool, Error> {
        out.default_routes.clear();
        out.capability.clear();
        out.port_reports.clear();
        out.port_speeds.clear();
        out.status_changes.drain(..).for_each(|(key, why)| self.acks.status_change(&key, why));
        let mut made = false;
        for calls in out.resolve.drain(..) {
            if self.lab && calls.row.is_some() {
                let mac = lab_mac(calls.key.ip);
                orch.neighbor(neighbor(calls.key, mac));
                made = true;
            }
        }
        Ok(made)
    }

    fn before_round(&mut self, orch: &mut Orch) {
        while let Some(header) = self.headers.try_recv() {
            self.acks.begin_batch(header, orch);
        }
    }

    fn after_round(&mut self, orch: &mut Orch, quiet: bool, _waiting: bool) -> Result<(), Error> {
        match self.acks.acknowledge(orch, quiet) {
            true => Ok(()),
            false => Err(Error::new("the RIB manager has stopped; its log has the reason")),
        }
    }

    fn watch<'a>(&'a self, select: &mut Select<'a>) {
        self.headers.watch(select);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ribtide_dataplane::{DataplaneSink, ToRib};
    use ribtide_rib::{FibAck, FibGroup, FibHop, FibRoute, GroupId, GroupOp, Protocol};
    use std::sync::Arc;

    #[test]
    fn a_route_whose_neighbour_appears_later_no_longer_fails() {
        let (rings, meters, stop) = (Rings::default(), Meters::default(), Stop::default());
        let (feedback, answers) = rings.bounded("dataplanes to RIB", 256);
        let rib = ToRib { failures: feedback.clone(), feedback, confirms: Arc::default() };
        let meter = meters.meter("virtual ASIC");
        let (channel, DataplaneSink { batches, urgent: _urgent }) =
            RibChannel::new(3, "virtual ASIC", &rings, rib, meter, stop.clone());
        let ip = |text: &str| text.parse::<IpAddr>().unwrap();
        let interface = InterfaceConfig {
            index: 1,
            name: "Ethernet0".into(),
            addresses: vec![(ip("10.0.0.254"), 24)],
            neighbors: Vec::new(),
        };
        let path = start("sonic", channel, &[interface], &[], VirtualAsicConfig::default(), &rings, &meters)
            .unwrap();
        let answer = || loop {
            match answers.recv_timeout(Duration::from_secs(30)).unwrap().expect("an answer") {
                RibIn::DataplaneUp(3) => {}
                RibIn::Ack(ack) => break ack,
                other => panic!("{other:?}"),
            }
        };
        let hop = FibHop { gateway: Some(ip("10.0.0.1")), interface: 1, weight: 1, onlink: false };
        let mut batch = FibBatch {
            seq: 5,
            groups: vec![GroupOp { id: GroupId(1), content: FibGroup::Hops(vec![hop]), source: None }],
            ..FibBatch::default()
        };
        let prefix = "10.1.0.0/16".parse().unwrap();
        batch.routes.v4 = vec![FibRoute { prefix, group: Some(GroupId(1)), protocol: Protocol::BgpExternal }];
        batches.send(Arc::new(batch)).unwrap();
        let refused = answer();
        assert_eq!((refused.seq, refused.failed[0].0), (5, prefix.any().into()));

        let key = NeighKey { ifname: "Ethernet0".into(), ip: ip("10.0.0.1") };
        let row = neighbor(key, Mac([2, 0, 0, 0, 0, 9]));
        path.orchagent.call(move |stage| stage.orch.neighbor(row)).unwrap();
        let mended = FibAck { dataplane: 3, seq: 0, failed: vec![], installed: vec![prefix.any().into()] };
        assert_eq!(answer(), mended);
        assert!(
            path.lookup(VrfId::DEFAULT, &[ip("10.1.2.3")]).unwrap()[0]
                .as_ref()
                .is_some_and(|f| f.reaches(ip("10.0.0.1")))
        );
        stop.stop();
    }
}
