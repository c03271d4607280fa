//! Routes (`orchagent/routeorch.cpp`): from what a row wants to an entry of the chip.
//!
//! A route that changed has a *task* until the chip confirms it. A ready task becomes an entry in a
//! bulk, or goes into the retry cache under its constraint. While a bulk with it is in flight,
//! later changes coalesce into one pending change, so the chip never sees two changes of one route
//! out of order.

mod bulk;
mod completion_tracker;
mod expected;
mod explain;
mod held;
mod resync;
mod retry_cache;
mod table;
mod task;

use super::back_off::BackOff;
use super::next_hop_ref::{NextHopRef, Target};
use super::objects::Objects;
use super::outbox::Outbox;
use super::to_sync::Pending;
use super::{OrchConfig, Refusal};
use crate::row::{Change, Field, LabelKey, LabelRouteRow, Name, RouteKey, RouteRow, RouteStateRow, Via};
use crate::sai::Status;
use completion_tracker::{BatchToken, CompletionTracker};
use resync::Resync;
use retry_cache::RetryCache;
use ribtide_prefix::{AnyPrefix, Map, PREFETCH_BATCH, prefetch};
use std::collections::VecDeque;
use std::sync::Arc;
use table::RouteTable;
use task::{State, Task};

pub use completion_tracker::Finished;
pub use expected::ExpectedEntry;
pub(super) use retry_cache::Constraint;
pub use table::Table;
pub(super) use table::{RouteId, RouteName};

/// The number of the default VRF.
pub(super) const DEFAULT_VRF: u32 = 0;
/// The number of the table of labels. It is one more VRF to orchagent, so routes of labels need no
/// code of their own.
pub(super) const LABELS_VRF: u32 = 1;

/// The part of a bulk that retries may take while other routes are ready: an eighth.
const RETRY_SHARE: usize = 8;

/// A destination that is the router's own: its entry resolves to the CPU, whatever its row says.
#[derive(Default)]
struct Own {
    /// How many interfaces have the address.
    count: u32,
    /// The row of the destination, which applies when the last address is removed.
    masked: Option<RouteRow>,
    /// A row was carried out before the address came, and its content is not kept.
    is_masked_unknown: bool,
}

/// The parts of orchagent that routes use beside their own state.
pub(super) struct Deps<'a> {
    pub(super) objects: &'a mut Objects,
    pub(super) outbox: &'a mut Outbox,
}

/// All routes.
pub(super) struct Routes {
    table: RouteTable,
    completions: CompletionTracker,
    ready: VecDeque<RouteId>,
    retry_cache: RetryCache,
    back_off: BackOff<RouteId>,
    own: Map<RouteId, Own>,
    /// The resync of routes, and that of labels.
    resyncs: [Resync; 2],
    /// How many labels the entry of a label pops, as requested last.
    pops: Map<RouteId, u8>,
    /// A route outside of every batch went into the retry cache since [`Routes::finished`] last
    /// reported those.
    unreported: bool,
    /// A resync has ended.
    resynced: bool,
    /// Whether the IPv4 and the IPv6 default route have an entry that forwards.
    default_ok: [bool; 2],
    /// Whether clients wait for responses ([`OrchConfig::responses`]).
    responses: bool,
    /// Whether a bulk is sorted ([`OrchConfig::sort_routes`]).
    sort: bool,
}

impl Routes {
    pub(super) fn new(config: &OrchConfig) -> Routes {
        Routes {
            table: RouteTable::default(),
            completions: CompletionTracker::default(),
            ready: VecDeque::new(),
            retry_cache: RetryCache::default(),
            back_off: BackOff::new(config.retry_ms),
            own: Map::default(),
            resyncs: [Resync::default(); 2],
            pops: Map::default(),
            unreported: false,
            resynced: false,
            default_ok: [false; 2],
            responses: config.responses,
            sort: config.sort_routes,
        }
    }

    /// Whether clients wait for responses.
    pub(super) fn responds(&self) -> bool {
        self.responses
    }

    /// Sets whether clients wait for responses, those to tasks that are not done included.
    pub(super) fn set_responds(&mut self, on: bool) {
        self.responses = on;
    }

    /// Shrinks tables that are sparse, after many routes were removed.
    pub(super) fn shrink_if_sparse(&mut self) {
        self.table.shrink_if_sparse();
        if self.ready.is_empty() {
            self.ready = VecDeque::new();
        }
    }

    /// Shrinks every table to its contents. O(capacity).
    pub(super) fn shrink_to_fit(&mut self) {
        self.shrink_if_sparse();
        self.table.shrink_to_fit();
        self.completions.shrink_to_fit();
        self.ready.shrink_to_fit();
    }

    /// Whether no task is ready, no retry is due, and no stale route is left to remove.
    pub(super) fn idle(&self) -> bool {
        self.ready.is_empty() && !self.back_off.has_due() && !self.is_sweeping()
    }

    /// Sets the time, in milliseconds from any start.
    pub(super) fn set_now(&mut self, now_ms: u64) {
        self.back_off.set_now(now_ms);
    }

    /// How many routes wait because the chip refused their entries.
    pub(super) fn refused_len(&self) -> usize {
        let full = Table::ALL.map(|table| self.retry_cache.count(Constraint::TableFull(table)));
        self.back_off.len() + full.into_iter().sum::<usize>()
    }

    /// How many changed routes wait for their turn or for the chip.
    pub(super) fn moving_len(&self) -> usize {
        self.table.tasks() - self.retry_cache.len()
    }

    /// How many changed routes wait for a constraint without a request in flight.
    pub(super) fn retry_cache_len(&self) -> usize {
        self.retry_cache.len()
    }

    /// How many routes the chip has, without the default routes that drop.
    pub(super) fn in_chip(&self) -> usize {
        self.table.in_chip()
    }

    /// Announces that `rows` rows, after those of earlier batches, belong to `batch`.
    pub(super) fn announce(&mut self, batch: u64, rows: usize) {
        self.completions.announce(batch, rows);
    }

    /// How many announced rows were not read yet.
    pub(super) fn rows_due(&self) -> usize {
        self.completions.due()
    }

    /// The oldest batch if it is finished. `quiet`: no input is left, so tasks in the retry cache
    /// are reported as failed first; see `Orch::finished`.
    pub(super) fn finished(&mut self, quiet: bool, objects: &Objects, outbox: &Outbox) -> Option<Finished> {
        if quiet && (self.unreported || self.completions.waits()) {
            let failed = self.fail_waiting(objects, outbox);
            if !failed.is_empty() {
                return Some(Finished { batch: 0, failed });
            }
        }
        let mut finished = self.completions.take()?;
        // Routes that were programmed since are dropped.
        finished.failed.retain(|(key, _)| self.has_failed(key, objects));
        Some(finished)
    }

    /// Fails the tasks in the retry cache to their batches. Returns those outside of every batch
    /// that were not reported.
    fn fail_waiting(&mut self, objects: &Objects, outbox: &Outbox) -> Vec<(RouteKey, String)> {
        self.unreported = false;
        let mut failures = Vec::new();
        for (constraint, id) in self.retry_cache.iter().collect::<Vec<_>>() {
            let Some(task) = self.table.task_mut(id) else { continue };
            let token = std::mem::take(&mut task.token);
            if !token.is_some() && (self.table.has_failed(id) || self.chip_table(id) == Table::Labels) {
                continue;
            }
            let why = self.waiting(id, constraint, objects, outbox).reason();
            let failed = (self.route_key(id, objects), why);
            self.table.set_failed(id, true);
            match token.is_some() {
                true => self.completions.done(token, Some(failed)),
                false => failures.push(failed),
            }
        }
        failures
    }

    /// Whether the destination is the router's own. The row of the change then applies when the
    /// address is removed.
    fn is_own(&mut self, id: RouteId, change: &Pending<RouteRow>) -> bool {
        if !self.table.is_own(id) {
            return false;
        }
        let own = self.own.entry(id).or_default();
        if change.del || change.set.is_some() {
            own.masked = change.set.clone();
            own.is_masked_unknown = false;
        }
        true
    }

    /// Moves a task that may proceed to the ready queue.
    fn make_ready(&mut self, id: RouteId) {
        let Some(task) = self.table.task_mut(id) else { return };
        let before = std::mem::replace(&mut task.state, State::Ready);
        if let State::Waiting(constraint) = before {
            self.retry_cache.remove(id, constraint);
            if constraint == Constraint::Refused {
                self.back_off.begin_try(&id);
            }
        }
        if before != State::Ready {
            self.ready.push_back(id);
        }
    }

    /// Takes in orchagent's own change of a route, or one without a response of its own.
    fn add(&mut self, id: RouteId, row: Option<RouteRow>, token: Option<BatchToken>) {
        self.add_row(id, row, false, None, token, false);
    }

    /// Takes in a change of a route. `replaces`: [`Change::reshaped`]. Without a token it is
    /// orchagent's own and gets no response. No client waits for the response to a row that was
    /// `found` or resent.
    fn add_row(
        &mut self,
        id: RouteId,
        row: Option<RouteRow>,
        replaces: bool,
        raw_key: Option<Name>,
        token: Option<BatchToken>,
        found: bool,
    ) {
        self.back_off.forget(&id);
        let Some(task) = self.table.task_mut(id) else {
            let mut task = Task::new(row, raw_key, token);
            task.found[0] = found;
            self.table.put_task(id, task);
            self.ready.push_back(id);
            return;
        };
        task.add(row, replaces, found);
        if let Some(token) = token {
            task.silent = false;
            task.raw_key = raw_key;
            // The previous row's batch does not wait for this route any more.
            let previous = std::mem::replace(&mut task.token, token);
            self.completions.done(previous, None);
        }
        if !matches!(task.state, State::InFlight(_)) {
            self.make_ready(id);
        }
    }

    /// Takes in a change of ROUTE_TABLE. Moves the row out of it, where it is in memory: see
    /// [`Task`].
    pub(super) fn add_change(
        &mut self,
        change: &mut Change<RouteRow>,
        objects: &mut Objects,
        outbox: &mut Outbox,
    ) {
        let token = self.completions.row();
        match &mut change.key {
            RouteKey::Resync => {
                self.completions.done(token, None);
                self.resync(change.row.is_some(), false);
            }
            RouteKey::Resent { vrf, prefix } => {
                let id = self.table.id_of(objects.vrfs.id_of(vrf), prefix);
                match change.row.take() {
                    Some(row) if !self.is_as_row(id, &row, objects, outbox) => {
                        self.refreshed(id);
                        self.add_row(id, Some(row), true, None, Some(token), true);
                    }
                    _ => {
                        self.table.clear_stale(id);
                        self.completions.done(token, None);
                        self.table.remove_if_unused(id);
                    }
                }
            }
            RouteKey::Route { vrf, prefix, raw_key } => {
                let id = self.table.id_of(objects.vrfs.id_of(vrf), prefix);
                self.refreshed(id);
                if self.responses {
                    // The outcome of this row was not reported yet.
                    self.table.set_failed(id, false);
                }
                let row = change.row.take();
                self.add_row(id, row, change.reshaped, raw_key.take(), Some(token), false);
            }
        }
    }

    /// Takes in a row of ROUTE_TABLE that is there at the start.
    pub(super) fn add_found(&mut self, key: RouteKey, row: RouteRow, objects: &mut Objects) {
        if let RouteKey::Route { vrf, prefix, raw_key } = key {
            let id = self.table.id_of(objects.vrfs.id_of(&vrf), &prefix);
            let token = self.completions.row();
            self.add_row(id, Some(row), true, raw_key, Some(token), true);
        }
    }

    /// Takes in a change of LABEL_ROUTE_TABLE.
    pub(super) fn add_label(&mut self, change: Change<LabelRouteRow>) {
        let LabelKey::Label(label) = change.key else { return self.resync(change.row.is_some(), true) };
        let name = RouteName::of_label(label);
        let row = change.row.map(|LabelRouteRow { protocol, via }| RouteRow { protocol, via });
        let id = self.table.id_of(name.vrf, &name.prefix);
        self.refreshed(id);
        self.add_row(id, row, change.reshaped, None, None, false);
    }

    /// Takes in changes of ROUTE_TABLE in their order. Prefetches the routes of a batch at a time.
    pub(super) fn add_changes(
        &mut self,
        changes: &mut [Change<RouteRow>],
        objects: &mut Objects,
        outbox: &mut Outbox,
    ) {
        for changes in changes.chunks_mut(PREFETCH_BATCH) {
            for change in &*changes {
                // Another processor has just written the row.
                prefetch(change.row.is_some());
                if let RouteKey::Route { vrf, prefix, .. } = &change.key
                    && let Some(vrf) = objects.vrfs.find(vrf)
                {
                    self.table.prefetch(vrf, prefix);
                }
            }
            changes.iter_mut().for_each(|change| self.add_change(change, objects, outbox));
        }
    }

    /// Takes in that an address was added to the router: its route resolves to the CPU.
    pub(super) fn add_own(&mut self, vrf: u32, prefix: AnyPrefix) {
        let id = self.table.id_of(vrf, &prefix);
        let has_row = self.table.reference(id).is_some() || self.table.is_without_entry(id);
        self.table.set_own(id, true);
        let own = self.own.entry(id).or_default();
        own.count += 1;
        if own.count == 1 {
            own.is_masked_unknown = has_row;
            self.resolve_again(id);
        }
    }

    /// Takes in that an address was removed from the router. After the last one the row of its
    /// destination applies.
    pub(super) fn remove_own(&mut self, vrf: u32, prefix: AnyPrefix) {
        let Some(id) = self.table.find(RouteName { vrf, prefix }) else { return };
        let Some(own) = self.own.get_mut(&id) else { return };
        own.count -= 1;
        if own.count > 0 {
            return;
        }
        let masked = self.own.remove(&id).and_then(|own| own.masked);
        self.table.set_own(id, false);
        self.add(id, None, None);
        if masked.is_some() {
            self.add(id, masked, None);
        }
    }

    /// Takes in a route to the CPU that the start created.
    pub(super) fn own_from_start(&mut self, prefix: AnyPrefix, objects: &mut Objects, outbox: &mut Outbox) {
        let id = self.table.id_of(DEFAULT_VRF, &prefix);
        let reference = NextHopRef { target: Target::Cpu, index: None };
        self.table.set_own(id, true);
        self.own.insert(id, Own { count: 1, ..Own::default() });
        self.table.set_reference(id, Some(reference));
        objects.hold(DEFAULT_VRF, reference);
        outbox.crm.routes(Table::of(prefix), 1);
    }

    /// Resolves a route again, whose row did not change. A reply to a request that is under way does so.
    fn resolve_again(&mut self, id: RouteId) {
        match self.table.task(id).map(|task| task.state) {
            Some(State::InFlight(_)) => {}
            Some(_) => self.make_ready(id),
            None => {
                self.table.put_task(id, Task::unchanged());
                self.ready.push_back(id);
            }
        }
    }

    /// Resolves a route again that names an index, because the index stands for another object now.
    pub(super) fn resolve_index_again(&mut self, id: RouteId, index: &Name) {
        match self.table.task(id).map(|task| task.state) {
            // Its reply compares the entry with the index.
            Some(State::InFlight(_)) => {}
            Some(_) => self.make_ready(id),
            None => {
                let mut via = Via::group(index);
                if let Some(pop) = self.pops.get(&id) {
                    via.put(Field::MplsPop, &pop.to_string());
                }
                self.add(id, Some(RouteRow { protocol: None, via: Arc::new(via) }), None);
            }
        }
    }

    /// Makes all routes of `constraint` ready.
    pub(super) fn wake(&mut self, constraint: Constraint) {
        let mut ids = self.retry_cache.take(constraint);
        // In order, so that equal input has equal results whatever the hash.
        ids.sort_unstable_by_key(|id| self.table.name(*id));
        for id in ids {
            self.make_ready(id);
        }
    }

    /// Makes up to `count` routes of each full table ready.
    pub(super) fn retry_table_full(&mut self, count: usize) {
        for table in Table::ALL {
            self.wake_some(Constraint::TableFull(table), count);
        }
    }

    /// Makes up to `count` routes of `constraint` ready.
    fn wake_some(&mut self, constraint: Constraint, count: usize) {
        for id in self.retry_cache.some(constraint, count) {
            self.make_ready(id);
        }
    }

    fn wait(&mut self, id: RouteId, mut task: Box<Task>, constraint: Constraint, deps: &Deps<'_>) {
        task.state = State::Waiting(constraint);
        self.unreported |= !task.token.is_some();
        self.retry_cache.add(id, constraint, deps.objects.is_requested(constraint, deps.outbox));
        self.table.put_task(id, task);
    }

    /// Keeps a task whose request the chip refused until its retry, and reports the failure once.
    fn wait_refused(&mut self, id: RouteId, mut task: Box<Task>, status: Status, deps: &mut Deps<'_>) {
        if self.back_off.refused(id, status, false) {
            deps.outbox.out.failed(format_args!("route {}", self.text(id, deps.objects)), status);
            let why = self.waiting(id, Constraint::Refused, deps.objects, deps.outbox).reason();
            self.notify_refused(id, &task, &why, deps);
            let token = std::mem::take(&mut task.token);
            if self.chip_table(id) != Table::Labels {
                self.table.set_failed(id, true);
                let failed = (self.route_key(id, deps.objects), why);
                if token.is_some() {
                    self.completions.done(token, Some(failed));
                } else {
                    deps.outbox.out.status_changes.push((failed.0, Some(failed.1)));
                }
            }
        }
        task.state = State::Waiting(Constraint::Refused);
        task.contradicted = false;
        self.retry_cache.add(id, Constraint::Refused, false);
        self.table.put_task(id, task);
    }

    /// Makes retries that are due ready: as many as a bulk has room for beside other routes, and
    /// always a few, so that neither delays the other for long.
    fn retry_due(&mut self, bulk_size: usize) {
        let share = (bulk_size / RETRY_SHARE).max(1);
        for id in self.back_off.take_due(share.max(bulk_size.saturating_sub(self.ready.len()))) {
            if self.table.task(id).is_some_and(|task| task.state == State::Waiting(Constraint::Refused)) {
                self.make_ready(id);
            }
        }
    }

    /// Puts a task into the ready queue.
    fn again(&mut self, id: RouteId, mut task: Box<Task>) {
        task.state = State::Ready;
        self.table.put_task(id, task);
        self.ready.push_back(id);
    }

    /// Ends a task: responds to its row, and continues with the changes that came later.
    fn finish(&mut self, id: RouteId, mut task: Box<Task>, respond: bool, deps: &mut Deps<'_>) {
        let pin = task.pin.take();
        self.back_off.forget(&id);
        let has_row = respond && task.change.set.is_some();
        if respond && self.responses && !task.silent && self.chip_table(id) != Table::Labels {
            let key = self.key(id, &task, deps.objects);
            // Moved: another processor counts references to the same name.
            let protocol = task.change.set.take().map(|row| row.protocol.unwrap_or_default());
            match task.found[0] {
                false => deps.outbox.out.responses.push(RouteStateRow::confirmed(key, protocol)),
                // The chip does not have the latest row yet, and no client waits for the outcome of
                // earlier ones.
                true if task.later.is_some() => {}
                true => deps.outbox.out.found.push(RouteStateRow::confirmed(key, protocol)),
            }
        }
        let refused = task.refused.take();
        if task.later.is_some() {
            task.take_later(true);
            task.silent = false;
            (task.verb, task.contradicted) = (None, false);
            self.again(id, task);
        } else {
            let without = has_row && self.table.reference(id).is_none();
            self.table.set_without_entry(id, without);
            self.report(id, task.token, refused.as_deref(), deps);
            self.table.remove_if_unused(id);
        }
        if let Some(constraint) = pin {
            deps.objects.unpin(constraint, deps.outbox);
        }
    }

    /// Reports that a route is done or failed: to its batch, or, outside of every batch, as a
    /// status change.
    fn report(&mut self, id: RouteId, token: BatchToken, refused: Option<&str>, deps: &mut Deps<'_>) {
        if self.chip_table(id) == Table::Labels {
            // No batch has routes of labels.
            return;
        }
        let had_failed = self.table.set_refused(id, refused);
        let failed = refused.map(|why| (self.route_key(id, deps.objects), why.to_owned()));
        if token.is_some() {
            self.completions.done(token, failed);
        } else if let Some((key, why)) = failed {
            deps.outbox.out.status_changes.push((key, Some(why)));
        }
        if had_failed && refused.is_none() {
            deps.outbox.out.status_changes.push((self.route_key(id, deps.objects), None));
        }
    }

    /// Reports to fpmsyncd that the chip does not have the row of a task.
    fn notify_refused(&mut self, id: RouteId, task: &Task, why: &str, deps: &mut Deps<'_>) {
        let Some(row) = task.change.set.as_ref().filter(|_| self.responses && task.later.is_none()) else {
            return;
        };
        if self.chip_table(id) != Table::Labels && !self.table.set_failed(id, true) {
            let key = self.route_key(id, deps.objects);
            deps.outbox.out.refusals.push(Refusal { key, row: row.digest(), why: why.into() });
        }
    }

    /// The same when the chip refused an object that the route waits for.
    fn notify_object_refused(
        &mut self,
        id: RouteId,
        task: &Task,
        constraint: Constraint,
        deps: &mut Deps<'_>,
    ) {
        if let Some(refusal) = deps.objects.refusal(constraint, deps.outbox) {
            self.notify_refused(id, task, &refusal.reason(), deps);
        }
    }

    /// The key of a route, formatted as by libnl.
    fn route_key(&self, id: RouteId, objects: &Objects) -> RouteKey {
        let RouteName { vrf, prefix } = self.table.name(id);
        RouteKey::new(objects.vrfs.name(vrf).clone(), prefix)
    }

    /// The key of a task's row, with its raw key.
    fn key(&self, id: RouteId, task: &Task, objects: &Objects) -> RouteKey {
        let RouteName { vrf, prefix } = self.table.name(id);
        RouteKey::Route { vrf: objects.vrfs.name(vrf).clone(), prefix, raw_key: task.raw_key.clone() }
    }

    /// The table of the chip that the route's entry is in.
    fn chip_table(&self, id: RouteId) -> Table {
        self.table.name(id).table()
    }
}

impl RouteName {
    /// The default VRF's default routes are in the chip from the start and are never removed.
    fn is_permanent(&self) -> bool {
        self.vrf == DEFAULT_VRF && self.prefix.len() == 0
    }
}
