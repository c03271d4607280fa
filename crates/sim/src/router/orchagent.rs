//! orchagent, syncd and the chip, with the queues between them and the tables that orchagent reads.

use super::chip::Chip;
use super::database::Table;
use super::zmq::{Connection, Process};
use ribtide_prefix::{AnyPrefix, Rng};
use ribtide_swss::fpmsyncd::{FoundRow, Fpmsyncd, ProducerRow};
use ribtide_swss::orch::{
    HeldCursor, HeldRow, Orch, OrchConfig, OrchEvent, OrchOut, PreviousIds, VidCounter, producer_rows,
};
use ribtide_swss::row::{
    IntfKey, IntfRow, LagMemberRow, LagRow, Mac, MemberKey, Name, NeighKey, NeighRow, NextHopGroupRow,
    PortKey, PortRow, ResponseKind, ResponseWriter, RouteKey, RouteRow, RouteStateRow, RowName,
};
use ribtide_swss::sai::notification::PortState;
use ribtide_swss::sai::{
    Attr, Attrs, ObjectId, ObjectType, Oid, RouteEntry, SWITCH, Sai, SaiReply, SaiRequest, Status, Verb,
};
use ribtide_swss::syncd::{AsicChange, Difference, Number, PackedChanges, Repair, Syncd, SyncdOut};
use ribtide_swss::{Change, Row};
use ribtide_vswitch::{Behavior, Forward, PortSetup, VirtualSwitch};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

/// The tables of APPL_DB that fpmsyncd writes.
#[derive(Default)]
pub(crate) struct ApplDb {
    pub(crate) groups: Table<NextHopGroupRow>,
    pub(crate) routes: Table<RouteRow>,
}

impl ApplDb {
    /// The fields of a row, none without one; `None` while a change of it waits.
    pub(crate) fn read(&self, name: &RowName) -> Option<Vec<(String, String)>> {
        match name {
            RowName::Route(key) => self.routes.read(key),
            RowName::Group(key) => self.groups.read(key),
            RowName::Label(_) => Some(Vec::new()),
        }
    }
}

/// ASIC_DB: what syncd emitted.
#[derive(Clone, Default)]
struct AsicDb {
    objects: BTreeMap<(ObjectType, ObjectId), BTreeMap<String, Attr>>,
    rids: BTreeMap<Oid, Oid>,
    hidden: Vec<Attr>,
    /// The mark of a view that is described, or was not applied in full.
    in_view: bool,
}

impl AsicDb {
    fn write(&mut self, changes: PackedChanges) {
        for change in changes.unpack() {
            match change {
                AsicChange::Wipe => *self = AsicDb::default(),
                AsicChange::Set(object, id, attrs) => {
                    let row = self.objects.entry((object, id)).or_default();
                    row.extend(attrs.into_iter().map(|attr| (attr.name().to_owned(), attr)));
                }
                AsicChange::Remove(object, id) => drop(self.objects.remove(&(object, id))),
                AsicChange::Map(vid, rid) => drop(self.rids.insert(vid, rid)),
                AsicChange::Unmap(vid, _) => drop(self.rids.remove(&vid)),
                // orchagent makes no such entries.
                AsicChange::SetEntry(..) | AsicChange::RemoveEntry(..) => {}
                AsicChange::Hidden(attr) => self.hidden.push(attr),
                AsicChange::View(begun) => self.in_view = begun,
            }
        }
    }

    fn rows(&self) -> Vec<(ObjectType, ObjectId, Attrs)> {
        let row = |((object, id), attrs): (&(ObjectType, ObjectId), &BTreeMap<_, Attr>)| {
            (*object, *id, attrs.values().cloned().collect())
        };
        self.objects.iter().map(row).collect()
    }
}

/// How syncd starts again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyncdStart {
    /// The chip lost everything; syncd makes it again from ASIC_DB.
    ChipLost,
    /// The chip went on without syncd.
    ChipKept,
    /// As [`SyncdStart::ChipLost`], after another program deleted rows.
    RowsLost,
    /// As [`SyncdStart::ChipLost`], from older rows, with which Redis came back.
    RowsOlder,
}

/// The three, and what is between them.
pub(crate) struct Orchagent {
    orch: Orch,
    config: OrchConfig,
    out: OrchOut,
    vids: VidCounter,
    syncd: Syncd<Chip>,
    asic_db: AsicDb,
    /// What ASIC_DB had some requests ago.
    older: AsicDb,
    /// A deliberate fault: a syncd that was started again is not compared.
    pub(crate) trusts_syncd: bool,
    interfaces: Vec<(Name, Vec<(IpAddr, u8)>)>,
    pub(crate) neighbors: BTreeMap<NeighKey, Mac>,
    /// Links of interfaces that are not up.
    links: BTreeMap<Name, bool>,
    /// The links of the LAG's members.
    member_links: [bool; 2],
    /// Link states on their way to orchagent.
    reports: VecDeque<PortState>,
    /// A deliberate fault: link states are lost, and nothing reads them.
    pub(crate) loses_reports: bool,
    /// Neighbours that orchagent asks the kernel for.
    resolve: BTreeSet<NeighKey>,
    /// Requests that syncd did not handle, with whether they come again.
    requests: VecDeque<(SaiRequest, bool)>,
    /// Requests whose reply orchagent did not take.
    unanswered: VecDeque<SaiRequest>,
    replies: Vec<SaiReply>,
    /// Messages to the fpmsyncd that listens.
    pub(crate) responses: VecDeque<Vec<u8>>,
    subscription: Subscription,
    /// Its end of ZeroMQ, if routes come over it.
    pub(crate) zmq: Option<Connection>,
    /// Until when a warm start waits for fpmsyncd's routes over ZeroMQ.
    restores_until: Option<u64>,
    now_ms: u64,
    /// orchagent was killed and is not started again yet.
    restarting: bool,
    /// syncd requested that orchagent start again (`switch_shutdown_request`).
    shutdown_requested: bool,
    /// Requests that syncd handled.
    pub(crate) handled: u64,
    /// A deliberate fault: some replies of syncd are lost, and no connection with them.
    pub(crate) loses_replies: bool,
}

/// How far an fpmsyncd that listens is.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Subscription {
    None,
    /// It gets the snapshot when these rows are taken.
    Waits(BTreeSet<RouteKey>),
    /// It gets the snapshot when the fence of ZeroMQ is passed.
    WaitsForFence,
    Begun,
}

const PORTS: usize = 4;
/// Two are ports themselves. The third is a LAG of the other two ports.
const INTERFACES: usize = 3;
const LAG: usize = 2;
/// The most requests in flight.
pub(crate) const WINDOW: usize = 4;
/// Milliseconds for which a warm start waits for routes over ZeroMQ: the default of `--warm-timer`.
const WARM_TIMER_MS: u64 = 120_000;
const SPEED: u32 = 100_000;
/// Requests from one copy of ASIC_DB to the next.
const OLDER: u64 = 40;
/// Rows that another program deletes at most.
const ROWS_LOST: usize = 8;
/// Objects of a page of the comparison with the chip.
const PAGE: usize = 16;

fn lanes(port: usize) -> Vec<u32> {
    let first = 4 * port as u32;
    (first + 1..=first + 4).collect()
}

fn interface_name(interface: usize) -> Name {
    format!("eth{}", interface + 1).into()
}

fn port_name(port: usize) -> Name {
    if port < LAG { interface_name(port) } else { member_name(port - LAG) }
}

/// A port of the LAG.
fn member_name(member: usize) -> Name {
    format!("member{}", member + 1).into()
}

fn switch() -> VirtualSwitch {
    let port = |port| PortSetup { name: port_name(port), lanes: lanes(port), speed: SPEED };
    VirtualSwitch::new((0..PORTS).map(port).collect(), Behavior::default())
}

/// A made-up MAC address.
fn mac(ip: IpAddr) -> Mac {
    let [.., a, b, c, d] = match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    Mac([2, 0, a, b, c, d])
}

impl Orchagent {
    pub(crate) fn new(responses: bool, window: usize, over_zmq: bool) -> Orchagent {
        let config = OrchConfig {
            responses,
            window,
            bulk_size: 4,
            crm_interval_ms: 0,
            verifies: true,
            ..OrchConfig::default()
        };
        let vids = VidCounter::default();
        let addresses = |port: usize| {
            let number = port + 1;
            vec![
                (format!("10.0.{number}.1").parse().expect("an address"), 24),
                (format!("2001:db8:{number}::1").parse().expect("an address"), 64),
            ]
        };
        let mut all = Orchagent {
            orch: Orch::new(config.clone(), Box::new(vids.clone())),
            config,
            out: OrchOut::default(),
            syncd: Syncd::new(Chip::new(switch()), Box::new(vids.clone())),
            vids,
            asic_db: AsicDb::default(),
            older: AsicDb::default(),
            trusts_syncd: false,
            interfaces: (0..INTERFACES).map(|n| (interface_name(n), addresses(n))).collect(),
            neighbors: BTreeMap::new(),
            links: BTreeMap::new(),
            member_links: [true; 2],
            reports: VecDeque::new(),
            loses_reports: false,
            resolve: BTreeSet::new(),
            requests: VecDeque::new(),
            unanswered: VecDeque::new(),
            replies: Vec::new(),
            responses: VecDeque::new(),
            subscription: Subscription::None,
            zmq: over_zmq.then(Connection::new),
            restores_until: None,
            now_ms: 0,
            restarting: false,
            shutdown_requested: false,
            handled: 0,
            loses_replies: false,
        };
        all.describe();
        // Scripts begin where routes may come.
        while !(all.orch.ready() && all.unanswered.is_empty()) {
            all.orch.run(&mut all.out);
            all.carry_out();
            all.handle();
            all.reply(0);
        }
        all
    }

    /// Hands orchagent the rows of ports, interfaces and neighbours.
    fn describe(&mut self) {
        for port in 0..PORTS {
            let row = PortRow::up(&lanes(port), SPEED);
            self.orch.port(Change::set(PortKey::Port(port_name(port)), row));
        }
        self.describe_lag();
        for (name, addresses) in &self.interfaces {
            let row = IntfRow { vrf_name: Some("".into()), ..IntfRow::default() };
            self.orch.interface(Change::set(IntfKey::Interface(name.clone()), row));
            for (address, len) in addresses {
                let row = IntfRow {
                    scope: Some("global".into()),
                    ipv6: Some(address.is_ipv6()),
                    ..IntfRow::default()
                };
                self.orch.interface(Change::set(IntfKey::Address(name.clone(), *address, *len), row));
            }
        }
        let count = PortRow { count: Some(PORTS as u32), ..PortRow::default() };
        self.orch.port(Change::set(PortKey::ConfigDone, count));
        self.orch.port(Change::set(PortKey::InitDone, PortRow::default()));
        for (key, mac) in &self.neighbors {
            let row = NeighRow { mac: Some(*mac), ipv6: key.ip.is_ipv6() };
            self.orch.neighbor(Change::set(key.clone(), row));
        }
    }

    /// Hands orchagent the rows of the LAG. The team device is up as long as the interface is.
    fn describe_lag(&mut self) {
        let name = interface_name(LAG);
        let oper_up = Some(self.links.get(&name).copied().unwrap_or(true));
        self.orch.lag(Change::set(name.clone(), LagRow { oper_up, ..LagRow::default() }));
        for member in 0..self.member_links.len() {
            let key = MemberKey { group: name.clone(), member: member_name(member) };
            self.orch.lag_member(Change::set(key, LagMemberRow { enabled: true }));
        }
    }

    /// A link changes: the chip reports that of a port, and a row that of the LAG.
    pub(crate) fn link(&mut self, name: &str, up: bool) {
        self.links.insert(name.into(), up);
        self.set_links();
        self.describe_lag();
    }

    /// The link of a member of the LAG changes. Returns whether it did. The last one stays: with it the LAG's interface
    /// goes down, which the RIB manager hears, as of any interface.
    pub(crate) fn member_link(&mut self, member: usize, up: bool) -> bool {
        if !up && !self.member_links[1 - member] {
            return false;
        }
        let changed = std::mem::replace(&mut self.member_links[member], up) != up;
        self.set_links();
        changed
    }

    /// Gives the chip the links that there are, and sends what it reports.
    fn set_links(&mut self) {
        let members = (0..).zip(self.member_links).map(|(n, up)| (member_name(n), up));
        let links: Vec<(Name, bool)> = (0..LAG)
            .map(|n| (interface_name(n), self.links.get(&interface_name(n)).copied().unwrap_or(true)))
            .chain(members)
            .collect();
        for (name, up) in links {
            self.syncd.chip_mut().switch.set_link(&name, up).expect("a port of this name");
        }
        self.send_reports();
    }

    /// syncd sends what the chip reports; no client hears it while orchagent is away.
    fn send_reports(&mut self) {
        let states = self.syncd.port_states();
        if !self.restarting && !self.loses_reports {
            self.reports.extend(states);
        }
    }

    /// The subscription to reports breaks: those on their way are lost. orchagent reads the states.
    pub(crate) fn lose_reports(&mut self) -> bool {
        let lost = !self.reports.is_empty();
        self.reports.clear();
        self.orch.read_port_states();
        lost
    }

    /// The kernel resolves a neighbour that orchagent needs. Returns false without any.
    pub(crate) fn resolve(&mut self, rng: &mut Rng) -> bool {
        if self.resolve.is_empty() {
            return false;
        }
        let at = rng.index(self.resolve.len());
        let key = self.resolve.iter().nth(at).expect("an index within").clone();
        self.resolve.remove(&key);
        self.neighbor(key, true);
        true
    }

    /// A neighbour appears, or is lost.
    pub(crate) fn neighbor(&mut self, key: NeighKey, there: bool) {
        let mac = mac(key.ip);
        let change = match there {
            true => Change::set(key.clone(), NeighRow { mac: Some(mac), ipv6: key.ip.is_ipv6() }),
            false => Change::del(key.clone()),
        };
        match there {
            true => drop(self.neighbors.insert(key, mac)),
            false => {
                self.neighbors.remove(&key);
                // The kernel asks again for a neighbour that is in use.
                self.resolve.insert(key);
            }
        }
        self.orch.neighbor(change);
    }

    /// orchagent takes some rows and goes on.
    pub(crate) fn run(&mut self, appl: &mut ApplDb, rng: &mut Rng) {
        if self.shutdown_requested && rng.one_in(4) {
            self.kill_orchagent();
        }
        if self.restarting {
            self.start_orchagent(appl);
            return;
        }
        let count = 1 + rng.index(8);
        let reports: Vec<PortState> = self.reports.drain(..).collect();
        self.orch.port_states(&reports, &mut self.out);
        let groups = appl.groups.pop(count, rng);
        let more = groups.is_empty();
        let mut is_quiet = more && self.replies.is_empty() && reports.is_empty();
        groups.into_iter().for_each(|change| self.orch.nexthop_group(change));
        if more {
            let mut routes = match &mut self.zmq {
                None => appl.routes.pop(count, rng),
                Some(zmq) => zmq.pop(count),
            };
            is_quiet &= routes.is_empty();
            if let Subscription::Waits(keys) = &mut self.subscription {
                keys.retain(|key| !routes.iter().any(|change| change.key == *key));
            }
            super::trace(|| format!("orchagent takes {routes:?}"));
            self.orch.routes(&mut routes);
        }
        self.orch.run(&mut self.out);
        self.carry_out();
        if is_quiet {
            self.end_restore();
        }
        if self.orch.restoring() {
            return;
        }
        let is_due = match (&self.subscription, &mut self.zmq) {
            (Subscription::Waits(rows), _) => rows.is_empty(),
            (Subscription::WaitsForFence, Some(zmq)) => zmq.is_past_fence(rng),
            _ => false,
        };
        if is_due {
            self.begin_subscription();
        }
    }

    /// Ends the part of a warm start in which rows come, when fpmsyncd has sent every route, or for
    /// too long has not (`Restore` of `ribtide_sonicd`).
    fn end_restore(&mut self) {
        let is_due = |until: &mut u64| self.orch.resynced() || self.now_ms >= *until;
        if self.restores_until.take_if(is_due).is_some() {
            super::trace(|| "orchagent has every row of a warm start".into());
            self.orch.restored();
            self.orch.run(&mut self.out);
            self.carry_out();
        }
    }

    fn carry_out(&mut self) {
        let OrchOut { requests, resolve, responses, found, refusals, events, .. } = &mut self.out;
        for request in requests.drain(..) {
            super::trace(|| format!("to syncd: {request:?}"));
            self.unanswered.push_back(request.clone());
            self.requests.push_back((request, false));
        }
        assert!(self.unanswered.len() <= self.config.window, "more requests in flight than the window");
        for change in resolve.drain(..) {
            if change.row.is_some() && !self.neighbors.contains_key(&change.key) {
                self.resolve.insert(change.key);
            }
        }
        let ends = events.iter().any(|event| matches!(event, OrchEvent::Fatal(_)));
        events.clear();
        let says = !(responses.is_empty() && found.is_empty() && refusals.is_empty());
        if says {
            super::trace(|| format!("responses {responses:?}, found {found:?}, {refusals:?}"));
        }
        if says && self.subscription == Subscription::Begun {
            let mut refused = ResponseWriter::new(ResponseKind::Refused);
            for refusal in refusals.iter() {
                if let RouteKey::Route { vrf, prefix, .. } = &refusal.key {
                    refused.add_refused(vrf.as_ref(), &refusal.why, *prefix, refusal.row);
                }
            }
            let written = [write(ResponseKind::Confirmed, responses), write(ResponseKind::InChip, found)];
            let messages = [Some(refused).filter(|message| !message.is_empty())].into_iter().chain(written);
            self.responses.extend(messages.flatten().map(ResponseWriter::finish));
        }
        refusals.clear();
        responses.clear();
        found.clear();
        self.out.status_changes.clear();
        self.out.default_routes.clear();
        self.out.capability.clear();
        self.out.port_reports.clear();
        self.out.port_speeds.clear();
        if ends {
            // The process ends, and its supervisor starts it again.
            self.kill_orchagent();
        }
    }

    /// An fpmsyncd begins to listen: it gets a snapshot when the rows in flight are taken.
    pub(crate) fn subscribe(&mut self, in_flight: BTreeSet<RouteKey>) {
        self.responses.clear();
        self.subscription = Subscription::Waits(in_flight);
    }

    /// The same with routes over ZeroMQ: when what other processes sent is taken.
    pub(crate) fn subscribe_over_zmq(&mut self, process: Process) {
        self.responses.clear();
        self.subscription = Subscription::WaitsForFence;
        self.zmq.iter_mut().for_each(|zmq| zmq.set_fence(process));
    }

    /// APPL_DB lost the rows in flight: none of them is waited for.
    pub(crate) fn lose_rows(&mut self) {
        if let Subscription::Waits(keys) = &mut self.subscription {
            keys.clear();
        }
    }

    /// No fpmsyncd listens.
    pub(crate) fn unsubscribe(&mut self) {
        self.responses.clear();
        self.subscription = Subscription::None;
    }

    /// Whether an fpmsyncd listens.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.subscription != Subscription::None
    }

    fn begin_subscription(&mut self) {
        self.subscription = Subscription::Begun;
        let mut message = ResponseWriter::new(ResponseKind::InChip);
        self.orch.in_chip(|vrf, prefix| {
            super::trace(|| format!("snapshot: {prefix}"));
            message.add(vrf, &"".into(), prefix)
        });
        self.responses.push_back(message.finish());
        self.responses.push_back(ResponseWriter::new(ResponseKind::SnapshotEnd).finish());
    }

    /// syncd handles the oldest request. Returns false without any.
    pub(crate) fn handle(&mut self) -> bool {
        let Some((request, again)) = self.requests.pop_front() else { return false };
        let mut out = SyncdOut::default();
        match again {
            true => self.syncd.handle_again(request, &mut out),
            false => self.syncd.handle(request, &mut out),
        }
        super::trace(|| format!("from syncd: {:?}", out.replies));
        if self.handled.is_multiple_of(OLDER) {
            self.older = self.asic_db.clone();
        }
        self.handled += 1;
        if self.loses_replies && self.handled.is_multiple_of(5) {
            out.replies.clear();
        }
        self.asic_db.write(out.rows);
        self.replies.extend(out.replies);
        self.send_reports();
        true
    }

    /// orchagent takes a reply: the oldest, or any. Returns false without any.
    pub(crate) fn reply(&mut self, at: usize) -> bool {
        if self.restarting || self.replies.is_empty() {
            return false;
        }
        let reply = self.replies.remove(at % self.replies.len());
        self.unanswered.retain(|request| request.id != reply.id);
        self.orch.reply(reply, &mut self.out);
        self.orch.run(&mut self.out);
        self.carry_out();
        true
    }

    /// How many replies wait.
    pub(crate) fn replies(&self) -> usize {
        self.replies.len()
    }

    /// syncd answers once more. Returns whether there was a reply.
    pub(crate) fn answer_twice(&mut self) -> bool {
        let twice = self.replies.last().cloned();
        self.replies.extend(twice.clone());
        twice.is_some()
    }

    /// The connection to syncd breaks: replies are lost, and every request without a reply comes again. Returns
    /// whether there was one.
    pub(crate) fn lose_replies(&mut self) -> bool {
        self.replies.clear();
        let fresh: BTreeSet<u64> =
            self.requests.iter().filter(|(_, again)| !again).map(|(request, _)| request.id).collect();
        let again = |request: &SaiRequest| (request.clone(), !fresh.contains(&request.id));
        self.requests = self.unanswered.iter().map(again).collect();
        !self.requests.is_empty()
    }

    /// The time passes.
    pub(crate) fn tick(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
        if !self.restarting {
            self.orch.tick(now_ms, &mut self.out);
            self.orch.run(&mut self.out);
            self.carry_out();
        }
    }

    /// syncd ends and starts again. With the mark of a view, the chip is not kept, and syncd
    /// requests that orchagent start again, which may do a few things before.
    pub(crate) fn restart_syncd(&mut self, how: SyncdStart, rng: &mut Rng) -> bool {
        if self.asic_db.objects.is_empty() {
            return false;
        }
        assert_eq!(self.asic_db.in_view, self.syncd.has_unapplied_view(), "the mark of a view");
        match how {
            SyncdStart::ChipLost | SyncdStart::ChipKept => {}
            SyncdStart::RowsLost => {
                for _ in 0..1 + rng.index(ROWS_LOST) {
                    let at = rng.index(self.asic_db.objects.len());
                    let row = *self.asic_db.objects.keys().nth(at).expect("an index within");
                    // Without the switch, or the rows of objects that the chip has of its own, syncd has
                    // another switch than before.
                    if row.0 != ObjectType::Switch {
                        self.asic_db.objects.remove(&row);
                    }
                }
            }
            // A request of the view is under way, and orchagent ends when Redis is lost then.
            SyncdStart::RowsOlder if self.asic_db.in_view || self.older.objects.is_empty() => return false,
            SyncdStart::RowsOlder => self.asic_db = self.older.clone(),
        }
        let marked = self.asic_db.in_view;
        let how = if marked { SyncdStart::ChipLost } else { how };
        let mut out = SyncdOut::default();
        let fresh = Syncd::new(self.chip().another(switch()), Box::new(self.vids.clone()));
        let mut old = std::mem::replace(&mut self.syncd, fresh);
        match how {
            SyncdStart::ChipLost | SyncdStart::RowsLost | SyncdStart::RowsOlder => {
                // A new chip may number its objects as the old one did.
                self.asic_db.rids.clear();
                let (rows, hidden) = (self.asic_db.rows(), self.asic_db.hidden.clone());
                if marked {
                    self.syncd.lost_view();
                    self.shutdown_requested = true;
                }
                self.syncd.recreate(rows, &hidden, &mut out);
                self.asic_db.write(out.rows);
            }
            SyncdStart::ChipKept => {
                let numbers: Vec<Number> = old.numbers().collect();
                let mut objects = Vec::new();
                old.for_each(&mut |object, id, attrs| {
                    objects.push((object, id, attrs.iter().cloned().collect()))
                });
                let chip = std::mem::replace(old.chip_mut(), Chip::new(switch()));
                self.syncd = Syncd::resume(chip, Box::new(self.vids.clone()), numbers, objects);
            }
        }
        self.lose_replies();
        self.syncd.chip_mut().report_all_ports();
        self.set_links();
        if !self.trusts_syncd {
            self.orch.verify(true);
            let mut hidden = self.asic_db.hidden.clone();
            let own: BTreeSet<Oid> = hidden.iter_mut().flat_map(|attr| attr.oids_mut().to_vec()).collect();
            let keys = self.asic_db.objects.keys().copied();
            self.orch.syncd_has(keys.filter(|(_, id)| id.oid().is_none_or(|oid| !own.contains(&oid))));
            self.orch.syncd_has_no_more();
        }
        true
    }

    /// Redis lost the queue to syncd and ASIC_DB: both processes start again, and the chip with
    /// them.
    pub(crate) fn lose_redis(&mut self) {
        self.kill_orchagent();
        self.asic_db = AsicDb::default();
        self.syncd = Syncd::new(self.chip().another(switch()), Box::new(self.vids.clone()));
        self.set_links();
    }

    /// fpmsyncd connects over ZeroMQ. A starting orchagent does not listen. Returns false when that is
    /// refused.
    pub(crate) fn accept(&mut self) -> bool {
        self.restarting || self.zmq.as_mut().is_none_or(Connection::connect)
    }

    /// orchagent ends. Returns how many messages of ZeroMQ are lost.
    pub(crate) fn kill_orchagent(&mut self) -> usize {
        self.requests.clear();
        self.unanswered.clear();
        self.replies.clear();
        self.reports.clear();
        self.unsubscribe();
        (self.restarting, self.shutdown_requested) = (true, false);
        self.restores_until = None;
        self.zmq.as_mut().map_or(0, Connection::end)
    }

    /// orchagent starts again, and takes what an earlier one took.
    pub(crate) fn start_orchagent(&mut self, appl: &ApplDb) -> bool {
        if !std::mem::take(&mut self.restarting) {
            return false;
        }
        self.out = OrchOut::default();
        self.resolve.clear();
        self.orch = Orch::new(self.config.clone(), Box::new(self.vids.clone()));
        self.describe();
        for (key, row) in appl.groups.popped() {
            self.orch.nexthop_group(Change::set(key, row));
        }
        for (key, row) in appl.routes.popped() {
            self.orch.found_route(key, row);
        }
        true
    }

    /// The same, warm: the chip forwards as before, and is compared with the rows.
    pub(crate) fn start_orchagent_warm(&mut self, appl: &ApplDb) -> bool {
        if !self.restarting {
            return false;
        }
        let mut previous = PreviousIds::default();
        for ((object, id), attrs) in &self.asic_db.objects {
            previous.object(*object, id, &attrs.values().cloned().collect());
        }
        self.start_orchagent(appl);
        let mut orch = Orch::new(self.config.clone(), Box::new(self.vids.clone()));
        std::mem::swap(&mut orch, &mut self.orch);
        self.orch.restore(previous);
        self.describe();
        for (key, row) in appl.groups.popped() {
            self.orch.nexthop_group(Change::set(key, row));
        }
        for (key, row) in appl.routes.popped() {
            self.orch.found_route(key, row);
        }
        match self.zmq {
            Some(_) => self.restores_until = Some(self.now_ms + WARM_TIMER_MS),
            None => self.orch.restored(),
        }
        true
    }

    /// The chip, whose calls fail as it is told.
    pub(crate) fn chip(&mut self) -> &mut Chip {
        self.syncd.chip_mut()
    }

    /// Another program, or the chip itself, deletes a route. Returns whether the chip had it.
    pub(crate) fn lose_route(&mut self, prefix: AnyPrefix) -> bool {
        let (Some(switch), Some(vr)) = (self.syncd.rid(SWITCH), self.router()) else { return false };
        let entry = RouteEntry { switch, vr, dest: prefix };
        let mut item = ribtide_swss::sai::Item::bare(entry);
        let chip = &mut self.syncd.chip_mut().switch;
        chip.one(Verb::Remove, ObjectType::RouteEntry, &mut item) == Status::Success
    }

    /// syncd compares the chip with its table, and repairs what differs. Returns the repairs;
    /// nothing while orchagent describes a view.
    pub(crate) fn reconcile(&mut self) -> Option<Vec<Repair>> {
        let (mut out, mut repairs) = (SyncdOut::default(), Vec::new());
        let mut round = Some(self.syncd.begin_round()?);
        while let Some(rest) = round {
            let (page, rest) = self.syncd.reconcile(rest, PAGE, &mut out);
            repairs.extend(page.repairs);
            round = rest;
        }
        self.asic_db.write(out.rows);
        Some(repairs)
    }

    /// syncd writes the rows of ASIC_DB again that differ from its table.
    pub(crate) fn reconcile_asic_db(&mut self) {
        let mut out = SyncdOut::default();
        let (differing, _) = self.differing_rows();
        differing.into_iter().for_each(|(object, id)| self.syncd.row_again(object, id, &mut out));
        self.asic_db.write(out.rows);
    }

    /// orchagent compares what it has with APPL_DB, in the steps of `ribtide_sonicd`, and repairs
    /// what differs. `producer`: fpmsyncd's reply about rows. Returns the repairs.
    pub(crate) fn reconcile_appl_db(
        &mut self,
        appl: &ApplDb,
        producer: impl Fn(&[FoundRow]) -> Option<Vec<ProducerRow>>,
    ) -> Vec<(RowName, Difference)> {
        if self.restarting || !self.orch.begin_comparison() {
            return Vec::new();
        }
        let mut suspects = self.orch.rows_not_held(NextHopGroupRow::TABLE, &appl.groups.keys());
        // Over ZeroMQ APPL_DB has a copy of the routes, which orchagent does not read.
        let over_zmq = self.zmq.is_some();
        if !over_zmq {
            suspects.extend(self.orch.rows_not_held(RouteRow::TABLE, &appl.routes.keys()));
        }
        let mut cursor = Some(HeldCursor::default());
        while let Some((rows, next)) = cursor.and_then(|from| match over_zmq {
            true => Some((self.orch.held_groups()?, None)),
            false => self.orch.held_rows(from, PAGE),
        }) {
            let differs = |(name, held): &(RowName, HeldRow)| {
                appl.read(name).is_some_and(|fields| !held.is_as(name, &fields))
            };
            suspects.extend(rows.into_iter().filter(differs).map(|(name, _)| name));
            cursor = next;
        }
        let keys = self.orch.watch_rows(&suspects);
        let found: Vec<_> =
            keys.into_iter().filter_map(|key| Some((key.clone(), appl.read(&key)?))).collect();
        let asked = producer_rows(&found);
        let rows = producer(&asked).unwrap_or_default();
        let rows: Vec<_> = asked.into_iter().map(|(name, _)| name).zip(rows).collect();
        let repaired = self.orch.repair_rows(found, &rows);
        super::trace(|| format!("orchagent repairs {repaired:?}"));
        self.orch.run(&mut self.out);
        self.carry_out();
        repaired
    }

    fn router(&self) -> Option<Oid> {
        self.syncd.chip().switch.default_router()
    }

    /// Where the chip sends packets of a route.
    pub(crate) fn forward(&self, prefix: AnyPrefix) -> Option<Forward> {
        let mut forward = self.syncd.chip().switch.route_at(self.router()?, prefix)?;
        // The chip names a LAG by its ports.
        for hop in
            forward.hops.iter_mut().filter(|hop| hop.port.contains("member") || hop.port.contains("LAG"))
        {
            hop.port = interface_name(LAG);
        }
        Some(forward)
    }

    /// Every prefix in the chip.
    pub(crate) fn prefixes(&self) -> BTreeSet<AnyPrefix> {
        let switch = &self.syncd.chip().switch;
        self.router().into_iter().flat_map(|vr| switch.prefixes(vr)).collect()
    }

    /// Whether a hop can forward: its link is up and its neighbour known.
    pub(crate) fn is_usable(&self, ifname: &str, gateway: Option<IpAddr>) -> bool {
        let has_link = *ifname != *interface_name(LAG) || self.member_links.contains(&true);
        let up = has_link && self.links.get(ifname).copied().unwrap_or(true);
        let known = |ip| self.neighbors.contains_key(&NeighKey { ifname: ifname.into(), ip });
        up && gateway.is_none_or(known)
    }

    /// Why orchagent does not carry a route out.
    pub(crate) fn explain(&self, prefix: AnyPrefix) -> String {
        format!("{:?}", self.orch.explain(None, prefix))
    }

    pub(crate) fn is_idle(&self, appl: &ApplDb) -> bool {
        !self.restarting
            && !self.shutdown_requested
            && self.requests.is_empty()
            && self.replies.is_empty()
            && self.reports.is_empty()
            && self.responses.is_empty()
            && self.resolve.is_empty()
            && appl.groups.is_drained()
            && appl.routes.is_drained()
            && self.zmq.as_ref().is_none_or(Connection::is_drained)
            && self.orch.idle()
            && !self.orch.restoring()
    }

    /// Checks that NEXTHOP_GROUP_TABLE has every group that orchagent has a row of.
    pub(crate) fn check_groups(&self, appl: &ApplDb) -> Result<(), String> {
        let keys = appl.groups.keys();
        let surplus = |(name, _): &(RowName, HeldRow)| matches!(name, RowName::Group(key) if keys.iter().all(|known| **known != **key));
        match self.orch.held_groups().unwrap_or_default().into_iter().find(surplus) {
            Some(group) => Err(format!("orchagent has {group:?}, which is not in APPL_DB")),
            None => Ok(()),
        }
    }

    /// Checks that ASIC_DB and syncd agree about what the chip holds.
    pub(crate) fn check_asic_db(&self) -> Result<(), String> {
        let (differing, count) = self.differing_rows();
        let show = |(object, id): &(ObjectType, ObjectId)| {
            let (row, attrs) = (self.asic_db.objects.get(&(*object, *id)), self.syncd.attrs(*object, id));
            format!("{object:?} {id:?}: {row:?} for {attrs:?}")
        };
        let mut wrong: Vec<String> = differing.iter().map(show).collect();
        if count != self.asic_db.objects.len() {
            wrong.push(format!("{} rows for {count} objects", self.asic_db.objects.len()));
        }
        if wrong.is_empty() { Ok(()) } else { Err(format!("ASIC_DB: {}", wrong.join("; "))) }
    }

    /// The objects of syncd's table whose rows differ in ASIC_DB, and the number of all objects.
    fn differing_rows(&self) -> (Vec<(ObjectType, ObjectId)>, usize) {
        let (mut count, mut differing) = (0, Vec::new());
        self.syncd.for_each(&mut |object, id, attrs| {
            count += 1;
            let row = self.asic_db.objects.get(&(object, id));
            let same = row.is_some_and(|row| {
                row.len() == attrs.len() && attrs.iter().all(|attr| row.get(attr.name()) == Some(attr))
            });
            if !same {
                differing.push((object, id));
            }
        });
        (differing, count)
    }

    /// The requests in flight, and messages to fpmsyncd.
    pub(crate) fn depths(&self) -> (usize, usize) {
        (self.unanswered.len(), self.responses.len())
    }
}

fn write(kind: ResponseKind, rows: &[Change<RouteStateRow>]) -> Option<ResponseWriter> {
    let mut message = ResponseWriter::new(kind);
    for change in rows {
        let RouteKey::Route { vrf, prefix, .. } = &change.key else { continue };
        let protocol = change.row.as_ref().and_then(|row| row.protocol.as_ref());
        if let Some(protocol) = protocol.filter(|protocol| !protocol.is_empty()) {
            message.add(vrf.as_ref(), protocol, *prefix);
        }
    }
    (!message.is_empty()).then_some(message)
}

/// Hands fpmsyncd the interfaces.
pub(crate) fn name_links(machine: &mut Fpmsyncd, out: &mut ribtide_swss::fpmsyncd::FpmOut) {
    for interface in 0..INTERFACES {
        machine.link(interface as u32 + 1, &interface_name(interface), out);
    }
}
