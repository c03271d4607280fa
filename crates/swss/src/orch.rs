//! orchagent's route path: from the rows of APPL_DB to requests to syncd.
//!
//! One state machine, the counterpart of `orchagent/routeorch.cpp`, `nhgorch.cpp`, `neighorch.cpp`, `intfsorch.cpp` and
//! `vrforch.cpp` of sonic-swss. Changes of rows and replies go in; SAI requests and rows to write come out. Every object
//! of the chip (virtual router, router interface, neighbour, next hop, group, route) has a desired state, a programmed
//! state, and at most one request in flight; a `step` compares the two states and enqueues the next request. An object
//! is requested only after its dependencies are confirmed, so replies may come in any order and a failure concerns one
//! object. A route that cannot proceed waits in the retry cache under its constraint; a resolved constraint makes its
//! routes ready. No table is ever scanned for work.

mod arena;
mod boot;
mod completion_tracker;
mod crm;
mod explain;
mod groups;
mod indexes;
mod interfaces;
mod mpls_next_hops;
mod neighbors;
pub mod parsed_row;
mod ports;
mod previous_ids;
mod requests;
mod resync;
mod retry_cache;
mod route_decision;
mod route_table;
mod routes;
mod to_sync;
mod vrfs;

#[cfg(test)]
mod tests;

use crate::row::{
    Change, DefaultRouteRow, IntfRow, LabelRouteRow, Mac, Name, NeighResolveRow, NeighRow, NextHopGroupRow,
    PortRow, RouteKey, RouteRow, RouteStateRow, SwitchCapabilityRow, VrfRow,
};
use crate::sai::{SaiReply, SaiRequest};
pub use crate::sai::{VidCounter, VidSource};
use boot::Boot;
pub use completion_tracker::Finished;
pub use crm::{Crm, Usage};
pub use explain::{LeadState, RouteState, Waiting};
use groups::Groups;
use indexes::Indexes;
use interfaces::Interfaces;
use neighbors::Neighbors;
use ports::Ports;
pub use previous_ids::PreviousIds;
use requests::Requests;
use ribtide_prefix::PREFETCH_BATCH;
pub use route_table::Table;
use routes::Routes;
use to_sync::ToSync;
use vrfs::Vrfs;

/// orchagent's settings.
#[derive(Clone, Debug)]
pub struct OrchConfig {
    /// The most objects in one bulk (`-k`). At least 1.
    pub bulk_size: usize,
    /// Whether the routes of a bulk are in the order of their VRFs and prefixes, and not in that in which they came.
    pub sort_routes: bool,
    /// How many requests may be without a reply: 1 is SONiC's synchronous mode. At least 1.
    pub window: usize,
    /// Whether to answer what became of routes (`-F`).
    pub responses: bool,
    /// The router's MAC address (`-m`).
    pub mac: Mac,
    /// A cap on next-hop groups below what the chip says it holds.
    pub group_limit: Option<u32>,
    /// Makes a group even for a NEXTHOP_GROUP_TABLE row with one member, so that a change of that member is one
    /// change of the group and none of the routes. SONiC makes none.
    pub single_groups: bool,
    /// How long a request that the chip had no room for rests before it is tried without anything having been freed.
    pub retry_ms: u64,
    /// How often the chip is asked what still fits; 0 for never.
    pub crm_interval_ms: u64,
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
            retry_ms: 1000,
            crm_interval_ms: 300_000,
            seed: 0,
        }
    }
}

/// What happened that a person may want to know. Displays as a sentence.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OrchEvent {
    /// A row that cannot be programmed, and was forgotten: what it is, and why.
    Refused(String, String),
    /// The chip refused: what, and with which status. What was asked is given up.
    Failed(String, crate::sai::Status),
    /// The start did not succeed, or a reply made no sense: nothing more will be done.
    Fatal(String),
}

impl std::fmt::Display for OrchEvent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            OrchEvent::Refused(what, why) => write!(f, "{what} is not programmed: {why}"),
            OrchEvent::Failed(what, status) => write!(f, "the chip refused {what}: {}", status.name()),
            OrchEvent::Fatal(what) => f.write_str(what),
        }
    }
}

/// A row that the chip does not have, because it refused, or cannot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    /// The route, with its key formatted as by libnl.
    pub key: RouteKey,
    /// Which row: its [`RouteRow::digest`].
    pub row: u32,
    /// Why, as a sentence.
    pub why: Name,
}

/// What comes out: append-only, emptied by who carries it out.
#[derive(Default, Debug)]
pub struct OrchOut {
    /// To syncd, in order.
    pub requests: Vec<SaiRequest>,
    /// To APPL_DB: neighbours to resolve.
    pub resolve: Vec<Change<NeighResolveRow>>,
    /// To STATE_DB: whether there are default routes.
    pub default_routes: Vec<Change<DefaultRouteRow>>,
    /// To STATE_DB: what the chip holds.
    pub capability: Vec<Change<SwitchCapabilityRow>>,
    /// What the chip confirmed, to who asked and to APPL_STATE_DB, as messages and as rows; only with [`OrchConfig::responses`].
    pub responses: Vec<Change<RouteStateRow>>,
    /// The same for rows that were found at the start or resent ([`RouteKey::Resent`]). They are no responses, and a
    /// counter of responses must not count them.
    pub found: Vec<Change<RouteStateRow>>,
    /// Routes that are refused, once for each row that asks for it; only with [`OrchConfig::responses`]. It is no response: one may
    /// still come, as where the chip has no room. Of a row that another has taken the place of nothing is said.
    pub refusals: Vec<Refusal>,
    /// Routes whose programming status changed outside of a batch: the reason of a failure as a sentence, or `None` when
    /// the chip now has a route that was reported as failed. A failure is reported here or in [`Finished::failed`].
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

/// Rows that came and were not looked at, because the ports are not ready.
#[derive(Default)]
struct Inputs {
    interfaces: ToSync<IntfRow>,
    neighbors: ToSync<NeighRow>,
    vrfs: ToSync<VrfRow>,
    indexes: ToSync<NextHopGroupRow>,
}

/// orchagent's route path.
///
/// Hand in changes with the method of their table, replies with [`Orch::reply`], then call [`Orch::run`]: it goes
/// on until it must wait.
pub struct Orch {
    config: OrchConfig,
    inputs: Inputs,
    boot: Boot,
    ports: Ports,
    vrfs: Vrfs,
    interfaces: Interfaces,
    neighbors: Neighbors,
    groups: Groups,
    indexes: Indexes,
    routes: Routes,
    requests: Requests,
    crm: Crm,
    now_ms: u64,
    /// The object ids of the previous run, during a warm start.
    previous_ids: Option<PreviousIds>,
}

impl Orch {
    /// A machine at its start; the first [`Orch::run`] asks for the switch.
    pub fn new(config: OrchConfig, vids: Box<dyn VidSource>) -> Self {
        Orch {
            inputs: Inputs::default(),
            boot: Boot::default(),
            ports: Ports::default(),
            vrfs: Vrfs::default(),
            interfaces: Interfaces::default(),
            neighbors: Neighbors::default(),
            groups: Groups::new(config.seed),
            indexes: Indexes::default(),
            routes: Routes::default(),
            requests: Requests::new(vids),
            crm: Crm::default(),
            now_ms: 0,
            previous_ids: None,
            config,
        }
    }

    /// Takes in a change of PORT_TABLE.
    pub fn port(&mut self, change: Change<PortRow>) {
        self.ports.changes.add(change);
    }

    /// Takes in a change of INTF_TABLE.
    pub fn interface(&mut self, change: Change<IntfRow>) {
        self.inputs.interfaces.add(change);
    }

    /// Takes in a change of NEIGH_TABLE.
    pub fn neighbor(&mut self, change: Change<NeighRow>) {
        self.inputs.neighbors.add(change);
    }

    /// Takes in a change of VRF_TABLE.
    pub fn vrf(&mut self, change: Change<VrfRow>) {
        self.inputs.vrfs.add(change);
    }

    /// Takes in a change of NEXTHOP_GROUP_TABLE.
    pub fn nexthop_group(&mut self, change: Change<NextHopGroupRow>) {
        self.inputs.indexes.add(change);
    }

    /// Announces that `rows` changes of ROUTE_TABLE, after those of earlier batches, belong to `batch`.
    /// [`Orch::finished`] returns the batch when all of them are done.
    pub fn batch(&mut self, batch: u64, rows: usize) {
        self.routes.completions.announce(batch, rows);
    }

    /// How many changes of ROUTE_TABLE were announced with [`Orch::batch`] and did not come yet.
    pub fn rows_due(&self) -> usize {
        self.routes.completions.due()
    }

    /// The oldest batch of which every change is done, or given up, or overtaken by a later batch; each once.
    ///
    /// A change in the retry cache keeps its batch open until the caller passes `quiet`, which says that no table has a
    /// row to read, while nothing can proceed ([`Orch::idle`]). The change then counts as failed, and
    /// [`OrchOut::status_changes`] reports a later success. A programmed route whose row of NEXTHOP_GROUP_TABLE begins to
    /// wait is reported under batch 0.
    pub fn finished(&mut self, quiet: bool) -> Option<Finished> {
        if quiet && self.has_unreported() && self.ready() && self.idle() {
            let failed = self.give_up_waiting();
            if !failed.is_empty() {
                return Some(Finished { batch: 0, failed });
            }
        }
        let mut finished = self.routes.completions.take()?;
        // Some may be in place after all since.
        finished.failed.retain(|(key, _)| self.has_failed(key));
        Some(finished)
    }

    /// Takes in a change of ROUTE_TABLE.
    pub fn route(&mut self, mut change: Change<RouteRow>) {
        self.add_route(&mut change);
    }

    /// Takes in a row of ROUTE_TABLE that is there at the start.
    pub fn found_route(&mut self, key: RouteKey, row: RouteRow) {
        self.add_found(key, row);
    }

    /// Takes in changes of ROUTE_TABLE in their order, and what they say out of them. Prefetches the routes of a batch
    /// at a time.
    pub fn routes(&mut self, changes: &mut [Change<RouteRow>]) {
        for changes in changes.chunks_mut(PREFETCH_BATCH) {
            self.prefetch_routes(changes);
            changes.iter_mut().for_each(|change| self.add_route(change));
        }
    }

    /// Takes in a change of LABEL_ROUTE_TABLE.
    pub fn label_route(&mut self, change: Change<LabelRouteRow>) {
        self.add_label(change);
    }

    /// Takes in that a port's link went up or down. Until told, links are up.
    pub fn link(&mut self, port: &str, up: bool, out: &mut OrchOut) {
        let id = self.interfaces.id_of(&port.into());
        self.set_link(id, up, out);
    }

    /// Takes in the reply to a request; replies may come in any order.
    pub fn reply(&mut self, reply: SaiReply, out: &mut OrchOut) {
        self.take_reply(reply, out);
    }

    /// Takes in the time, in milliseconds from any start: what the chip had no room for is tried again.
    pub fn tick(&mut self, now_ms: u64, out: &mut OrchOut) {
        self.now_ms = now_ms;
        self.routes.shrink_if_sparse();
        self.retry_table_full(now_ms, out);
        self.ask_crm(now_ms);
    }

    /// Shrinks every table of routes to its contents. O(capacity): call it only when the stage is idle.
    pub fn shrink_to_fit(&mut self) {
        self.routes.shrink_to_fit();
    }

    /// Goes on with all that came in, until it must wait for replies or for changes.
    pub fn run(&mut self, out: &mut OrchOut) {
        if self.boot.takes_rows() {
            self.sync_ports(out);
            if self.ports.ready() {
                self.sync_vrfs(out);
                self.sync_interfaces(out);
                self.sync_neighbors(out);
                self.sync_indexes(out);
            }
        }
        self.send(out);
        if self.boot.is_described() && self.ready() && self.idle() {
            // Groups that waited for a member that does not come do without it.
            if self.previous_ids.take().is_some() {
                self.groups.ids().into_iter().for_each(|id| self.step_group(id, out));
                self.send(out);
            }
            if self.idle() {
                self.boot.apply();
                self.send(out);
            }
        }
    }

    /// Whether it starts warm and what it describes is not applied yet.
    pub fn restoring(&self) -> bool {
        self.boot.is_warm()
    }

    /// Whether, since the start, every route was said between the two halves of a resync.
    pub fn resynced(&self) -> bool {
        self.routes.resynced
    }

    /// Every row of every table is in: as soon as nothing can proceed, what was described is applied.
    pub fn restored(&mut self) {
        self.boot.described();
    }

    /// Whether nothing is in flight and nothing can proceed: what is left waits for changes.
    pub fn idle(&self) -> bool {
        self.requests.idle() && self.boot.takes_rows() && self.routes_rest()
    }

    fn routes_rest(&self) -> bool {
        !self.ready() || (self.routes.ready_len() == 0 && !self.routes.is_sweeping())
    }

    /// Whether the ports are there, so that other tables are looked at.
    pub fn ready(&self) -> bool {
        self.boot.takes_rows() && self.ports.ready()
    }

    /// How many changes wait for their turn or for a reply.
    pub fn backlog(&self) -> usize {
        self.inputs.interfaces.len()
            + self.inputs.neighbors.len()
            + self.inputs.vrfs.len()
            + self.inputs.indexes.len()
            + self.routes.moving_len()
    }

    /// How many routes wait for a constraint that no request in flight will resolve: a neighbour, an interface, a group,
    /// or a full table of the chip.
    pub fn retry_cache_len(&self) -> usize {
        self.routes.retry_cache_len()
    }

    /// What the chip holds, by kind.
    pub fn crm(&self) -> &Crm {
        &self.crm
    }
}
