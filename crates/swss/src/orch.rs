//! orchagent's route path: from the rows of APPL_DB to requests to syncd.
//!
//! One state machine, the counterpart of `orchagent/routeorch.cpp`, `nhgorch.cpp`, `neighorch.cpp`,
//! `intfsorch.cpp`, `vrforch.cpp` and `portsorch.cpp` of sonic-swss. Changes of rows and replies go
//! in; SAI requests and rows to write come out. Every object of the chip (virtual router, router
//! interface, neighbour, next hop, group, route) has a desired state, a programmed state, and at
//! most one request in flight; a `step` compares the two states and enqueues the next request. An
//! object is requested only after its dependencies are confirmed, so replies may come in any order
//! and a failure concerns one object: its request is sent again after a pause ([`back_off`]). A route that cannot proceed waits in the retry cache under
//! its constraint; a resolved constraint makes its routes ready. No table is ever scanned for work.
//!
//! | part | owns | SONiC |
//! | --- | --- | --- |
//! | `Ports` | ports and their link states, the gate of all other tables; LAGs, VLANs | PortsOrch |
//! | `Vrfs` | virtual routers | VRFOrch |
//! | `Interfaces` | router interfaces, addresses, links | IntfsOrch |
//! | `Neighbors` | neighbours and next hops | NeighOrch |
//! | `NextHopGroups`, `NhgTable` | groups and indexes | RouteOrch, NhgOrch |
//! | `Objects` | the six parts above | |
//! | `Routes`: `RouteTable`, `RetryCache`, `CompletionTracker` | entries, tasks | RouteOrch |
//! | `Outbox`: `Bulker`, `ObjectIds`, `Crm`, `BackOff` | requests, object ids, counters, retries | bulkers, CrmOrch |
//! | `Boot` | the steps of the start | OrchDaemon |
//! | `Comparison` | the suspects of a comparison with APPL_DB | |
//! | `Verification` | the comparison with a syncd that was started again | |
//!
//! A part changes its own state and that of parts below it; parts above it get a notification.
//! [`Orch`] passes rows and replies to the parts, and delivers the notifications.

mod arena;
mod back_off;
mod boot;
mod bulker;
mod crm;
mod explain;
mod interfaces;
mod mpls_next_hops;
mod neighbors;
mod next_hop_groups;
mod next_hop_ref;
mod nhg_table;
mod object_ids;
mod objects;
mod outbox;
pub mod parsed_row;
mod ports;
mod previous_ids;
mod reconcile;
mod route_decision;
mod routes;
mod to_sync;
mod verify;
mod vrfs;

#[cfg(test)]
mod tests;

use crate::row::{
    Change, DefaultRouteRow, IntfRow, LabelRouteRow, LagMemberRow, LagRow, Mac, Name, NeighResolveRow,
    NeighRow, NextHopGroupRow, PortRow, RouteKey, RouteRow, RouteStateRow, RowName, SwitchCapabilityRow,
    VlanMemberRow, VlanRow, VrfRow,
};
use crate::sai::notification::PortState;
use crate::sai::{Attr, Oid, SaiReply, SaiRequest};
pub use crate::sai::{VidCounter, VidSource};
use boot::Boot;
use bulker::{Context, ObjectReply, Requester, has_progress};
pub use crm::{Crm, Usage};
pub use explain::{ProgrammedEntry, RouteState, Waiting};
use objects::Objects;
use outbox::{Notification, Outbox};
pub use ports::PortReport;
pub use previous_ids::PreviousIds;
use reconcile::Comparison;
pub use reconcile::{HeldCursor, HeldNextHops, HeldRow, is_other_format, producer_rows};
use ribtide_prefix::{AnyPrefix, Map};
use routes::{Deps, Routes};
pub use routes::{ExpectedEntry, Finished, Table};
use std::net::IpAddr;
pub use verify::Differences;
use verify::Verification;
pub(crate) use verify::items_of;

/// The limit of next-hop groups when the chip does not say how many it holds
/// (`DEFAULT_NUMBER_OF_ECMP_GROUPS`, `orchagent/routeorch.cpp`).
const GROUPS_DEFAULT: u32 = 128;

/// orchagent's settings.
#[derive(Clone, Debug)]
pub struct OrchConfig {
    /// The most objects in one bulk (`-k`). At least 1.
    pub bulk_size: usize,
    /// Whether the routes of a bulk are in the order of their VRFs and prefixes, instead of the
    /// order of arrival.
    pub sort_routes: bool,
    /// How many requests may be in flight: 1 is SONiC's synchronous mode. At least 1.
    pub window: usize,
    /// Whether to respond to rows of routes (`-F`).
    pub responses: bool,
    /// The router's MAC address (`-m`).
    pub mac: Mac,
    /// A limit of next-hop groups below the one that the chip reports.
    pub group_limit: Option<u32>,
    /// Creates a group even for a NEXTHOP_GROUP_TABLE row with one member. A change of that member
    /// is then one change of the group, and none of the routes. SONiC creates none.
    pub single_groups: bool,
    /// Whether link states of ports are read from the chip and reported. Without, those of rows count.
    pub reports_ports: bool,
    /// Whether each port, LAG and VLAN gets a host interface of its name.
    pub host_interfaces: bool,
    /// Milliseconds after which a request that the chip refused is sent again. The pause doubles
    /// with each refusal, up to 64 times this. It stays this where the chip had no room, and ends
    /// when some is freed.
    pub retry_ms: u64,
    /// Milliseconds between two reads of the chip's available entries; 0 for never.
    pub crm_interval_ms: u64,
    /// Whether requested objects are kept, so that [`Orch::verify`] can compare syncd with them.
    pub verifies: bool,
    /// Seed of the choice of a temporary next hop.
    pub seed: u64,
}

impl Default for OrchConfig {
    fn default() -> Self {
        OrchConfig {
            bulk_size: 1000,
            sort_routes: true,
            window: 1,
            responses: false,
            mac: Mac([0x02, 0, 0, 0, 0, 1]),
            group_limit: None,
            single_groups: false,
            reports_ports: true,
            host_interfaces: false,
            retry_ms: 1000,
            crm_interval_ms: 300_000,
            verifies: false,
            seed: 0,
        }
    }
}

/// An event for the log. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrchEvent {
    /// A row that cannot be programmed and was dropped: its name, and the reason.
    Refused(String, String),
    /// The chip refused a request, which is sent again after a pause: the object, and the status.
    /// Once for each content of the object.
    Failed(String, crate::sai::Status),
    /// A syncd that was started again was compared with what was requested of it: how many objects and
    /// routes, and what differed, which is repaired.
    Verified {
        /// Objects and routes.
        compared: usize,
        /// What differed.
        differences: Differences,
    },
    /// The start failed, or a reply was malformed: orchagent sends no further request.
    Fatal(String),
}

impl std::fmt::Display for OrchEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OrchEvent::Refused(what, why) => write!(f, "{what} is not programmed: {why}"),
            OrchEvent::Failed(what, status) => write!(f, "the chip refused {what}: {}", status.name()),
            OrchEvent::Verified { compared, differences: Differences { missing, changed, surplus } } => {
                write!(
                    f,
                    "of {compared} objects, syncd lacked {missing}, had {changed} other attributes, and {surplus} more"
                )
            }
            OrchEvent::Fatal(what) => f.write_str(what),
        }
    }
}

/// A row that the chip does not have, because orchagent or the chip refused it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The route, with its key formatted as by libnl.
    pub key: RouteKey,
    /// Which row: its [`RouteRow::digest`].
    pub row: u32,
    /// Why, as a sentence.
    pub why: Name,
}

/// The outputs of [`Orch`]: append-only; the caller carries them out and empties them.
#[derive(Default, Debug)]
pub struct OrchOut {
    /// To syncd, in order.
    pub requests: Vec<SaiRequest>,
    /// To APPL_DB: neighbours to resolve.
    pub resolve: Vec<Change<NeighResolveRow>>,
    /// To STATE_DB: whether there are default routes.
    pub default_routes: Vec<Change<DefaultRouteRow>>,
    /// To APPL_DB and STATE_DB: link states of ports.
    pub port_reports: Vec<PortReport>,
    /// To STATE_DB: the speed of each of these ports, in megabits per second, as its link came up;
    /// `None` when the chip does not say.
    pub port_speeds: Vec<(Name, Option<u32>)>,
    /// To STATE_DB: the limits of the chip.
    pub capability: Vec<Change<SwitchCapabilityRow>>,
    /// Confirmed routes, to fpmsyncd as messages and to APPL_STATE_DB as rows; only with
    /// [`OrchConfig::responses`].
    pub responses: Vec<Change<RouteStateRow>>,
    /// The same for rows that were found at the start or resent ([`RouteKey::Resent`]). They are no
    /// responses, so a counter of responses leaves them out.
    pub found: Vec<Change<RouteStateRow>>,
    /// Refused routes, once for each row; only with [`OrchConfig::responses`]. A response follows
    /// when the chip takes the entry after all. A row that a later row replaced has no refusal.
    pub refusals: Vec<Refusal>,
    /// Routes whose programming status changed outside of a batch: the reason of a failure as a
    /// sentence, or `None` when the chip now has a route that was reported as failed. A failure is
    /// reported here or in [`Finished::failed`].
    pub status_changes: Vec<(RouteKey, Option<String>)>,
    /// To the log.
    pub events: Vec<OrchEvent>,
}

impl OrchOut {
    /// Shrinks every buffer to its contents.
    pub fn shrink_to_fit(&mut self) {
        self.requests.shrink_to_fit();
        self.resolve.shrink_to_fit();
        self.default_routes.shrink_to_fit();
        self.port_reports.shrink_to_fit();
        self.port_speeds.shrink_to_fit();
        self.capability.shrink_to_fit();
        self.responses.shrink_to_fit();
        self.found.shrink_to_fit();
        self.refusals.shrink_to_fit();
        self.status_changes.shrink_to_fit();
        self.events.shrink_to_fit();
    }

    fn refused(&mut self, what: impl std::fmt::Display, why: impl Into<String>) {
        self.events.push(OrchEvent::Refused(what.to_string(), why.into()));
    }

    fn failed(&mut self, what: impl std::fmt::Display, status: crate::sai::Status) {
        self.events.push(OrchEvent::Failed(what.to_string(), status));
    }
}

/// orchagent's route path.
///
/// Pass changes to the method of their table, and replies to [`Orch::reply`]; then call
/// [`Orch::run`], which returns when no work is left without further input.
pub struct Orch {
    config: OrchConfig,
    boot: Boot,
    objects: Objects,
    routes: Routes,
    outbox: Outbox,
    comparison: Comparison,
    verification: Verification,
    last_retry_ms: u64,
}

impl Orch {
    /// A machine at its start; the first [`Orch::run`] requests the switch.
    pub fn new(config: OrchConfig, vids: Box<dyn VidSource>) -> Self {
        Orch {
            boot: Boot::new(config.mac),
            objects: Objects::new(&config),
            routes: Routes::new(&config),
            outbox: Outbox::new(vids, config.retry_ms),
            comparison: Comparison::default(),
            verification: Verification::new(config.verifies),
            last_retry_ms: 0,
            config,
        }
    }

    /// Makes it a warm start: the view that rows fill replaces the chip's state after
    /// [`Orch::restored`]. Call it first.
    pub fn restore(&mut self, previous_ids: PreviousIds) {
        self.outbox.ids.restore(previous_ids);
        self.boot.start_warm();
    }

    /// Takes in a change of PORT_TABLE.
    pub fn port(&mut self, change: Change<PortRow>) {
        self.objects.ports.add(change);
    }

    /// Takes in a change of LAG_TABLE.
    pub fn lag(&mut self, change: Change<LagRow>) {
        self.objects.ports.add_lag(change);
    }

    /// Takes in a change of LAG_MEMBER_TABLE.
    pub fn lag_member(&mut self, change: Change<LagMemberRow>) {
        self.objects.ports.add_lag_member(change);
    }

    /// Takes in a change of VLAN_TABLE.
    pub fn vlan(&mut self, change: Change<VlanRow>) {
        self.objects.ports.add_vlan(change);
    }

    /// Takes in a change of VLAN_MEMBER_TABLE.
    pub fn vlan_member(&mut self, change: Change<VlanMemberRow>) {
        self.objects.ports.add_vlan_member(change);
    }

    /// Takes in a change of INTF_TABLE.
    pub fn interface(&mut self, change: Change<IntfRow>) {
        self.objects.interfaces.add(change);
    }

    /// The addresses of the neighbours that are known on an interface.
    pub fn neighbors_on(&self, interface: &Name) -> Vec<IpAddr> {
        let neighbors = &self.objects.neighbors;
        let known = self.objects.interfaces.find(interface).map(|id| neighbors.on_interface(id));
        known.into_iter().flatten().map(|id| neighbors.address(id).1).collect()
    }

    /// The interfaces whose rows of INTF_TABLE cannot be programmed, each with the reason.
    pub fn interfaces_not_programmed(&self) -> impl Iterator<Item = (&Name, &'static str)> {
        self.objects.interfaces.not_programmed()
    }

    /// Takes in a change of NEIGH_TABLE.
    pub fn neighbor(&mut self, change: Change<NeighRow>) {
        self.objects.neighbors.add(change);
    }

    /// Takes in a change of VRF_TABLE.
    pub fn vrf(&mut self, change: Change<VrfRow>) {
        self.objects.vrfs.add(change);
    }

    /// Takes in a change of NEXTHOP_GROUP_TABLE.
    pub fn nexthop_group(&mut self, change: Change<NextHopGroupRow>) {
        self.comparison.end_watch(|| RowName::Group(change.key.clone()));
        self.objects.nhg_table.add(change);
    }

    /// Whether a row of NEXTHOP_GROUP_TABLE, or a route, named an index.
    pub fn has_indexes(&self) -> bool {
        let table = &self.objects.nhg_table;
        table.pending_len() > 0 || table.names().next().is_some()
    }

    /// Announces that `rows` changes of ROUTE_TABLE, after those of earlier batches, belong to
    /// `batch`. [`Orch::finished`] returns the batch when all of them are done.
    pub fn batch(&mut self, batch: u64, rows: usize) {
        self.routes.announce(batch, rows);
    }

    /// How many changes of ROUTE_TABLE were announced with [`Orch::batch`] and did not come yet.
    pub fn rows_due(&self) -> usize {
        self.routes.rows_due()
    }

    /// The oldest batch of which every change is done, refused, or replaced by a later batch; each
    /// once.
    ///
    /// A change in the retry cache keeps its batch open until the caller passes `quiet`, which says
    /// that no table has a row to read, while nothing can proceed ([`Orch::idle`]). The change then
    /// counts as failed, and [`OrchOut::status_changes`] reports a later success. A programmed
    /// route whose row of NEXTHOP_GROUP_TABLE begins to wait is reported under batch 0.
    pub fn finished(&mut self, quiet: bool) -> Option<Finished> {
        self.routes.finished(quiet && self.ready() && self.idle(), &self.objects, &self.outbox)
    }

    /// Takes in a change of ROUTE_TABLE.
    pub fn route(&mut self, mut change: Change<RouteRow>) {
        self.routes(std::slice::from_mut(&mut change));
    }

    /// Takes in a row of ROUTE_TABLE that is there at the start.
    pub fn found_route(&mut self, key: RouteKey, row: RouteRow) {
        self.routes.add_found(key, row, &mut self.objects);
    }

    /// Takes in changes of ROUTE_TABLE in their order, and moves the rows out of them.
    pub fn routes(&mut self, changes: &mut [Change<RouteRow>]) {
        for change in &*changes {
            self.comparison.end_watch(|| reconcile::canonical(&change.key));
        }
        self.routes.add_changes(changes, &mut self.objects, &mut self.outbox);
    }

    /// Takes in a change of LABEL_ROUTE_TABLE.
    pub fn label_route(&mut self, change: Change<LabelRouteRow>) {
        self.comparison.end_watch(|| RowName::Label(change.key));
        self.routes.add_label(change);
    }

    /// Does `work` with the caller's outputs.
    fn writing_to(&mut self, out: &mut OrchOut, work: impl FnOnce(&mut Orch)) {
        std::mem::swap(out, &mut self.outbox.out);
        work(self);
        std::mem::swap(out, &mut self.outbox.out);
    }

    /// Takes in link states of ports that syncd reported (`port_state_change`). The members of groups
    /// on these ports are requested at once.
    pub fn port_states(&mut self, states: &[PortState], out: &mut OrchOut) {
        self.writing_to(out, |orch| {
            orch.objects.ports.states(states, &mut orch.outbox);
            orch.deliver();
        });
    }

    /// Reads the link states of all ports again: reports of them may have been lost.
    pub fn read_port_states(&mut self) {
        self.objects.ports.read_all(&mut self.outbox);
    }

    /// Takes in the reply to a request; replies may come in any order.
    pub fn reply(&mut self, reply: SaiReply, out: &mut OrchOut) {
        self.writing_to(out, |orch| orch.take_reply(reply));
    }

    fn take_reply(&mut self, mut reply: SaiReply) {
        let Some(context) = self.outbox.bulker.replied(reply.id) else { return };
        match context {
            Context::Boot(port) => self.boot_reply(port, reply),
            Context::PortStatus(name) => {
                self.objects.ports.status_reply(&name, &reply, &mut self.outbox);
                self.deliver();
            }
            Context::PortSpeed(name) => {
                let speed = reply.values.iter().find_map(|value| match value {
                    Attr::PortOperSpeed(speed) => Some(*speed).filter(|speed| *speed > 0),
                    _ => None,
                });
                self.outbox.out.port_speeds.push((name, speed.filter(|_| reply.status.is_success())));
            }
            Context::Crm => self.outbox.crm.reply(reply),
            Context::Available(object) => self.outbox.crm.available_reply(object, reply),
            Context::Objects(verb, object, requested) => {
                if requested.len() == 1 && reply.statuses.is_empty() {
                    reply.statuses.push(reply.status);
                }
                if !self.has_statuses(&reply, requested.len()) {
                    return;
                }
                let progress = has_progress(&reply.statuses);
                for ((requester, item), status) in requested.into_iter().zip(reply.statuses) {
                    self.verification.note(verb, object, &item, status);
                    self.object_reply(requester, ObjectReply { verb, object, item, status, progress });
                    self.deliver();
                }
            }
            Context::Verify(number, asked) => self.verify_reply(number, asked, &reply),
            Context::Routes(routes) => {
                let entries: usize = routes.iter().map(|(_, count)| usize::from(*count)).sum();
                if !self.has_statuses(&reply, entries) {
                    return;
                }
                let deps = &mut Deps { objects: &mut self.objects, outbox: &mut self.outbox };
                self.routes.reply(&routes, &reply.statuses, deps);
                self.deliver();
            }
        }
    }

    /// Whether a reply has a status for each object. After one that has not, the state of the chip
    /// is not known.
    fn has_statuses(&mut self, reply: &SaiReply, requested: usize) -> bool {
        if reply.statuses.len() == requested {
            return true;
        }
        self.outbox.bulker.stop();
        self.outbox.out.events.push(OrchEvent::Fatal(format!(
            "syncd answered {} with {} statuses for {requested} objects; start orchagent again",
            reply.status.name(),
            reply.statuses.len()
        )));
        false
    }

    fn object_reply(&mut self, requester: Requester, reply: ObjectReply) {
        self.objects.reply(requester, reply, &mut self.outbox);
    }

    /// Takes in a reply of the start; `port`: whose lanes it contains.
    fn boot_reply(&mut self, port: Option<Oid>, reply: SaiReply) {
        if let Err(why) = self.boot.reply(&reply) {
            self.outbox.bulker.stop();
            self.outbox.out.events.push(OrchEvent::Fatal(why));
            return;
        }
        for value in reply.values {
            match (value, port) {
                (Attr::SwitchDefaultVirtualRouter(oid), _) => self.objects.vrfs.set_default(oid),
                (Attr::SwitchCpuPort(oid), _) => self.objects.cpu_port = oid,
                (Attr::SwitchEcmpGroups(count), _) => self.objects.groups.set_limit(count),
                (Attr::PortLanes(lanes), Some(port)) => self.objects.ports.set_lanes(lanes, port),
                _ => {}
            }
        }
        self.announce_switch();
    }

    /// Announces what the start found, once the switch is known.
    fn announce_switch(&mut self) {
        if !self.boot.take_switch_ready() {
            return;
        }
        let limit = self.objects.groups.fix_limit(GROUPS_DEFAULT, self.config.group_limit);
        let capability = SwitchCapabilityRow { max_nexthop_groups: Some(limit) };
        self.outbox.out.capability.push(Change::set("switch".into(), capability));
        for prefix in boot::default_routes() {
            self.outbox.out.default_routes.push(Change::set(prefix, DefaultRouteRow { ok: false }));
            self.outbox.crm.routes(Table::of(prefix), 1);
        }
        for prefix in boot::link_local(self.config.mac) {
            self.routes.own_from_start(prefix, &mut self.objects, &mut self.outbox);
        }
    }

    /// Takes in the time, in milliseconds from any start: [`Orch::run`] retries requests that the
    /// chip refused, at most a bulk at a time.
    pub fn tick(&mut self, now_ms: u64, out: &mut OrchOut) {
        self.writing_to(out, |orch| orch.take_time(now_ms));
    }

    fn take_time(&mut self, now_ms: u64) {
        self.routes.shrink_if_sparse();
        self.outbox.back_off.set_now(now_ms);
        self.routes.set_now(now_ms);
        if now_ms.saturating_sub(self.last_retry_ms) >= self.config.retry_ms {
            self.last_retry_ms = now_ms;
            self.routes.retry_table_full(self.config.bulk_size);
        }
        if self.boot.done() {
            let Outbox { bulker, crm, .. } = &mut self.outbox;
            crm.poll(now_ms, self.config.crm_interval_ms, bulker);
        }
    }

    /// Shrinks every table of routes to its contents. O(capacity): call it only when the stage is
    /// idle.
    pub fn shrink_to_fit(&mut self) {
        self.routes.shrink_to_fit();
    }

    /// Handles all input, and returns when it must wait for replies or for changes.
    pub fn run(&mut self, out: &mut OrchOut) {
        self.writing_to(out, Orch::proceed);
    }

    fn proceed(&mut self) {
        if self.boot.takes_rows() {
            self.objects.ports.sync(&mut self.outbox);
            self.deliver();
            if self.objects.ports.ready() {
                self.sync_objects();
            }
        }
        self.send();
        if self.boot.may_apply() && self.ready() && self.idle() {
            if self.outbox.ids.end_restore() {
                self.objects.step_groups(&mut self.outbox);
                self.deliver();
                self.send();
            }
            if self.idle() {
                self.boot.apply();
                self.send();
            }
        }
    }

    /// Handles the changes of all tables but routes, in the order in which objects depend on each
    /// other.
    fn sync_objects(&mut self) {
        self.objects.ports.sync_objects(&mut self.outbox);
        self.deliver();
        if self.outbox.ids.is_restoring() {
            let mut ports: Map<Name, Vec<_>> = Map::default();
            for (on, tag, vrf) in self.objects.interfaces.pending_in_vrfs() {
                let place = self.objects.ports.expected_oid(&on).map(|oid| (oid, tag));
                ports.entry(vrf.clone()).or_default().extend(place);
            }
            self.outbox.ids.set_ports_of_vrfs(ports);
        }
        self.objects.vrfs.sync(&mut self.outbox);
        self.deliver();
        self.objects.sync_interfaces(&mut self.outbox);
        self.deliver();
        self.objects.neighbors.sync(&mut self.objects.interfaces, &mut self.outbox);
        self.deliver();
        self.objects.sync_groups(&mut self.outbox);
        self.deliver();
    }

    /// Sends requests while the window has room: calls that are queued, then the start's, then
    /// retries of objects, then a bulk of routes.
    fn send(&mut self) {
        let bulk_size = self.config.bulk_size.max(1);
        while self.outbox.bulker.may_send(self.config.window) {
            if self.verification.is_alone() {
                if let Some(request) = self.outbox.bulker.next_call() {
                    self.outbox.out.requests.push(request);
                } else if !self.verify_next() {
                    return;
                }
                continue;
            }
            if self.verification.is_active() && self.verification.takes_turn() && self.verify_next() {
                continue;
            }
            if let Some(request) = self.outbox.bulker.next(bulk_size) {
                self.outbox.out.requests.push(request);
                continue;
            }
            if self.boot.next(&mut self.outbox.bulker) {
                self.announce_switch();
                continue;
            }
            if self.boot.takes_rows() && self.outbox.retry_due(bulk_size) {
                self.deliver();
                continue;
            }
            let deps = &mut Deps { objects: &mut self.objects, outbox: &mut self.outbox };
            let ready = self.boot.takes_rows() && deps.objects.ports.ready();
            if ready && self.routes.gather_routes(bulk_size, deps) {
                self.deliver();
            } else if !(self.verification.is_active() && self.verify_next()) {
                return;
            }
        }
    }

    /// Delivers notifications until none is left.
    fn deliver(&mut self) {
        while let Some(notification) = self.outbox.next_notification() {
            let Orch { objects, routes, outbox, .. } = self;
            match notification {
                Notification::Wake(constraint) => routes.wake(constraint),
                Notification::LowerReady(name) | Notification::LowerGone(name) => {
                    objects.lower_changed(&name, outbox);
                }
                Notification::LowerChanged(name) => objects.inherited_changed(&name, outbox),
                Notification::Link(name, up) => objects.interfaces.set_link(&name, up, outbox),
                Notification::VrfUsable(vrf) => {
                    routes.wake(routes::Constraint::Vrf(vrf));
                    objects.vrf_usable(vrf, outbox);
                }
                Notification::InterfaceUsable(id) => objects.interface_usable(id, outbox),
                Notification::InterfaceReleased(id) => objects.step_interface(id, outbox),
                Notification::InterfaceMoves(id) => objects.interface_moves(id, outbox),
                Notification::LinkChanged(id) => objects.link_changed(id, outbox),
                Notification::OwnAddress(vrf, ip, true) => routes.add_own(vrf, AnyPrefix::host(ip)),
                Notification::OwnAddress(vrf, ip, false) => routes.remove_own(vrf, AnyPrefix::host(ip)),
                Notification::NextHopChanged(id) => objects.next_hop_changed(id, outbox),
                Notification::NextHopReleased(id) => {
                    objects.neighbors.step(id, &mut objects.interfaces, outbox);
                }
                Notification::NextHopUnpinned(id) => {
                    objects.neighbors.forget(id, &mut objects.interfaces, outbox);
                }
                Notification::GroupReleased(id) => objects.group_released(id, outbox),
                Notification::IndexChanged(index) => {
                    for route in objects.nhg_table.followers(index) {
                        routes.resolve_index_again(route, objects.nhg_table.name(index));
                    }
                }
                Notification::IndexReleased(index) => {
                    let Objects { nhg_table, groups, neighbors, .. } = objects;
                    nhg_table.remove_if_unused(index, groups, neighbors, outbox);
                }
                Notification::IndexUnpinned(index) => objects.nhg_table.forget(index, outbox),
                Notification::NumberFreed => objects.resolved_rows.clear(),
                Notification::Retry(requester) => objects.retry(requester, outbox),
            }
        }
    }

    /// Whether it is a warm start whose view is not applied yet.
    pub fn restoring(&self) -> bool {
        self.boot.is_warm()
    }

    /// Whether a resync of all routes has ended since the start.
    pub fn resynced(&self) -> bool {
        self.routes.resynced()
    }

    /// Takes in that a warm start has every row of every table. The view is applied as soon as
    /// nothing can proceed.
    pub fn restored(&mut self) {
        self.boot.set_rows_complete();
    }

    /// Whether no request is in flight and nothing can proceed: all remaining work waits for
    /// changes.
    pub fn idle(&self) -> bool {
        self.outbox.bulker.idle()
            && !self.verification.is_under_way()
            && self.boot.takes_rows()
            && !self.outbox.back_off.has_due()
            && (!self.ready() || self.routes.idle())
    }

    /// Whether the ports are ready, so that orchagent handles the other tables.
    pub fn ready(&self) -> bool {
        self.boot.takes_rows() && self.objects.ports.ready()
    }

    /// How many changes wait for their turn or for a reply.
    pub fn backlog(&self) -> usize {
        self.objects.pending_len() + self.routes.moving_len()
    }

    /// How many routes wait for a constraint that no request in flight will resolve: a neighbour,
    /// an interface, a group, a full table of the chip, or the retry of a refused request.
    pub fn retry_cache_len(&self) -> usize {
        self.routes.retry_cache_len()
    }

    /// How many objects and entries of routes wait for the retry of a request that the chip refused.
    pub fn refused_len(&self) -> usize {
        self.outbox.back_off.len() + self.routes.refused_len()
    }

    /// The CRM counters.
    pub fn crm(&self) -> &Crm {
        &self.outbox.crm
    }
}
