//! Routes: from what a row wants to an entry of the chip.
//!
//! A route that changed is a *task* until the chip confirms it. A ready task becomes an entry in a bulk, or goes into the
//! retry cache under its constraint. While a bulk with it is in flight, later changes merge into one pending change, so
//! the chip never sees two changes of one route out of order.

use super::completion_tracker::{BatchToken, CompletionTracker};
use super::indexes::Meaning;
use super::parsed_row;
use super::requests::{Context, Outcome, Requester, outcome};
use super::resync::Resync;
use super::retry_cache::{Constraint, RetryCache};
use super::route_decision::{ResolvedRowCache, RouteDecision};
use super::route_table::{RouteId, RouteName, RouteTable, Table};
use super::to_sync::Pending;
use super::vrfs;
use super::{Orch, OrchOut, Refusal};
use crate::row::{
    Change, DefaultRouteRow, Field, LabelKey, LabelRouteRow, Name, RouteKey, RouteRow, RouteStateRow, Via,
};
use crate::sai::{
    Attr, Attrs, ErrorMode, InsegEntry, Item, ObjectId, ObjectType, Oid, PacketAction, RouteEntry, SWITCH,
    SaiCall, Status, Verb,
};
use ribtide_prefix::{Afi, AnyPrefix, Map, PREFETCH_BATCH, prefetch};
use std::collections::VecDeque;
use std::sync::Arc;

impl RouteName {
    /// The default VRF's default routes are in the chip from the start and never leave it.
    pub(super) fn is_permanent(&self) -> bool {
        self.vrf == vrfs::DEFAULT && parsed_row::is_default(self.prefix)
    }
}

/// Where a route in the chip leads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Target {
    Drop,
    Cpu,
    Interface(u32),
    Hop(u32),
    Group(u32),
}

/// Where a route leads, and the index that it names, if it does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Lead {
    pub(super) target: Target,
    pub(super) index: Option<u32>,
}

/// Where a task is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// In the ready queue.
    Ready,
    /// In the retry cache.
    Waiting(Constraint),
    /// In a bulk.
    InFlight(RequestedEntry),
}

/// The entry that a request in flight will create, set or remove.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RequestedEntry {
    verb: Verb,
    /// Where the route will lead; `None`: it will be gone.
    lead: Option<Lead>,
    /// The change is done with it. Else the task is looked at again.
    finish: bool,
}

/// A route's change that is not done. Handed on as it stands in memory: a copy of what was just written would wait until
/// all that was written before it is in the cache.
pub(super) struct Task {
    change: Pending<RouteRow>,
    /// Changes that came while a bulk is under way.
    later: Option<Pending<RouteRow>>,
    /// The raw key of the latest row, if its text is not libnl's; the response echoes it.
    raw_key: Option<Name>,
    pub(super) state: State,
    /// What it keeps from being forgotten while it waits.
    pin: Option<Constraint>,
    /// Of the row that it carries out, or of the latest of them.
    token: BatchToken,
    /// orchagent made the change itself: it gets no response.
    silent: bool,
    /// The row was found, or said again: who says it waits for no answer. The second: what came later was.
    found: [bool; 2],
    /// The chip said otherwise than we thought: create or set.
    verb: Option<Verb>,
    /// The chip carried out a part of the request, so all of it must be sent again.
    half: bool,
    /// Why it is given up, once what the chip has is gone.
    refused: Option<String>,
}

impl Task {
    const BLANK: Task = Task {
        change: Pending { del: false, set: None },
        later: None,
        raw_key: None,
        state: State::Ready,
        pin: None,
        token: BatchToken::NONE,
        silent: false,
        found: [false; 2],
        verb: None,
        half: false,
        refused: None,
    };

    /// Written where it stays: see [`Task`].
    fn new(row: Option<RouteRow>, raw_key: Option<Name>, token: Option<BatchToken>) -> Box<Task> {
        let mut task = Box::new(Task::BLANK);
        task.change.del = row.is_none();
        task.change.set = row;
        task.raw_key = raw_key;
        task.silent = token.is_none();
        task.token = token.unwrap_or_default();
        task
    }

    pub(super) fn is_ready(&self) -> bool {
        self.state == State::Ready
    }

    /// Whether it leads to what the row asks for.
    pub(super) fn wants(&self, row: &RouteRow) -> bool {
        self.later.as_ref().unwrap_or(&self.change).set.as_ref() == Some(row)
    }

    /// No client waits for the answer to any row of it.
    pub(super) fn set_found(&mut self) {
        self.found = [true; 2];
    }

    fn add(&mut self, row: Option<RouteRow>, found: bool) {
        match (self.state, &mut self.later) {
            (State::InFlight(_), Some(later)) => {
                later.add(row);
                self.found[1] &= found;
            }
            (State::InFlight(_), none) => {
                *none = Some(Pending::new(row));
                self.found[1] = found;
            }
            _ => {
                self.change.add(row);
                self.found[0] &= found;
            }
        }
    }

    /// Makes what came later part of the change, or the change itself when that is `done`.
    fn take_later(&mut self, done: bool) {
        let Some(later) = self.later.take() else { return };
        self.found[0] = self.found[1] && (done || self.found[0]);
        if done {
            self.change = later;
            return;
        }
        if later.del {
            self.change.add(None);
        }
        if let Some(row) = later.set {
            self.change.add(Some(row));
        }
    }
}

/// A destination that is the router's own: it goes to the CPU, whatever rows say.
#[derive(Default)]
struct Own {
    /// On how many interfaces.
    count: u32,
    /// What a row says.
    masked: Option<RouteRow>,
}

/// All routes.
#[derive(Default)]
pub(super) struct Routes {
    pub(super) table: RouteTable,
    pub(super) completions: CompletionTracker,
    pub(super) ready: VecDeque<RouteId>,
    retry_cache: RetryCache,
    own: Map<RouteId, Own>,
    /// Cleared when a number in it may be used again.
    pub(super) resolved_rows: ResolvedRowCache,
    /// Objects whose table of the chip was full, the longest waiting first.
    table_full: VecDeque<Requester>,
    last_retry_ms: u64,
    /// The resync of routes, and that of labels.
    pub(super) resyncs: [Resync; 2],
    /// How many labels the entry of a label takes off, as it was asked for last.
    pops: Map<RouteId, u8>,
    /// A route outside of every batch went into the retry cache since [`Orch::finished`] last reported those.
    unreported: bool,
    /// A resync has ended.
    pub(super) resynced: bool,
    default_ok: [bool; 2],
}

impl Routes {
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

    pub(super) fn ready_len(&self) -> usize {
        self.ready.len()
    }

    /// How many changed routes wait for their turn or for the chip.
    pub(super) fn moving_len(&self) -> usize {
        self.table.tasks() - self.retry_cache.len()
    }

    /// How many changed routes wait for a constraint without a request in flight.
    pub(super) fn retry_cache_len(&self) -> usize {
        self.retry_cache.len()
    }

    pub(super) fn clear_resolved_rows(&mut self) {
        self.resolved_rows.clear();
    }

    /// Whether the destination is the router's own. What the change says of it is kept for when it is not any more.
    pub(super) fn is_own(&mut self, id: RouteId, change: &Pending<RouteRow>) -> bool {
        if !self.table.is_own(id) {
            return false;
        }
        let own = self.own.entry(id).or_default();
        if change.del || change.set.is_some() {
            own.masked = change.set.clone();
        }
        true
    }

    /// Puts a task that may proceed in the queue.
    fn make_ready(&mut self, id: RouteId) {
        let Some(task) = self.table.task_mut(id) else { return };
        let before = std::mem::replace(&mut task.state, State::Ready);
        if let State::Waiting(constraint) = before {
            self.retry_cache.remove(id, constraint);
        }
        if before != State::Ready {
            self.ready.push_back(id);
        }
    }

    /// Takes in a change of a route, by a row or without one.
    pub(super) fn add(
        &mut self,
        id: RouteId,
        row: Option<RouteRow>,
        raw_key: Option<Name>,
        token: Option<BatchToken>,
    ) {
        self.add_row(id, row, raw_key, token, false);
    }

    /// The same of a row that was `found`, or is said again: no client waits for its answer.
    fn add_row(
        &mut self,
        id: RouteId,
        row: Option<RouteRow>,
        raw_key: Option<Name>,
        token: Option<BatchToken>,
        found: bool,
    ) {
        let Some(task) = self.table.task_mut(id) else {
            let mut task = Task::new(row, raw_key, token);
            task.found[0] = found;
            self.table.put_task(id, task);
            self.ready.push_back(id);
            return;
        };
        task.add(row, found);
        if let Some(token) = token {
            task.silent = false;
            task.raw_key = raw_key;
            // The previous row's batch has nothing to wait for here any more.
            let previous = std::mem::replace(&mut task.token, token);
            self.completions.done(previous, None);
        }
        if !matches!(task.state, State::InFlight(_)) {
            self.make_ready(id);
        }
    }
}

impl Orch {
    /// Takes what a change says out of it, where it stands in memory: see [`Task`].
    pub(super) fn add_route(&mut self, change: &mut Change<RouteRow>) {
        let token = self.routes.completions.row();
        match &mut change.key {
            RouteKey::Resync => {
                self.routes.completions.done(token, None);
                self.resync(change.row.is_some(), false);
            }
            RouteKey::Resent { vrf, prefix } => {
                let id = self.routes.table.id_of(self.vrfs.id_of(vrf), prefix);
                match change.row.take() {
                    Some(row) if !self.is_as_asked(id, &row) => {
                        self.routes.refreshed(id);
                        self.routes.add_row(id, Some(row), None, Some(token), true);
                    }
                    _ => {
                        self.routes.table.clear_stale(id);
                        self.routes.completions.done(token, None);
                        self.routes.table.let_go(id);
                    }
                }
            }
            RouteKey::Route { vrf, prefix, raw_key } => {
                let id = self.routes.table.id_of(self.vrfs.id_of(vrf), prefix);
                self.routes.refreshed(id);
                if self.config.responses {
                    // Of what is asked for now nothing was said yet.
                    self.routes.table.set_failed(id, false);
                }
                self.routes.add(id, change.row.take(), raw_key.take(), Some(token));
            }
        }
    }

    pub(super) fn add_found(&mut self, key: RouteKey, row: RouteRow) {
        if let RouteKey::Route { vrf, prefix, raw_key } = key {
            let (id, token) =
                (self.routes.table.id_of(self.vrfs.id_of(&vrf), &prefix), self.routes.completions.row());
            self.routes.add_row(id, Some(row), raw_key, Some(token), true);
        }
    }

    pub(super) fn add_label(&mut self, change: Change<LabelRouteRow>) {
        let LabelKey::Label(label) = change.key else { return self.resync(change.row.is_some(), true) };
        let name = RouteName::of_label(label);
        let row = change.row.map(|LabelRouteRow { protocol, via }| RouteRow { protocol, via });
        let id = self.routes.table.id_of(name.vrf, &name.prefix);
        self.routes.refreshed(id);
        self.routes.add(id, row, None, None);
    }

    /// Prefetches the routes that rows are about.
    pub(super) fn prefetch_routes(&self, changes: &[Change<RouteRow>]) {
        for change in changes {
            // What another processor has just written comes slowly, too.
            prefetch(change.row.is_some());
            if let RouteKey::Route { vrf, prefix, .. } = &change.key
                && let Some(vrf) = self.vrfs.find(vrf)
            {
                self.routes.table.prefetch(vrf, prefix);
            }
        }
    }

    /// An address of the router: its route leads to the CPU.
    pub(super) fn add_own(&mut self, vrf: u32, prefix: AnyPrefix) {
        let id = self.routes.table.id_of(vrf, &prefix);
        self.routes.table.set_own(id, true);
        let own = self.routes.own.entry(id).or_default();
        own.count += 1;
        if own.count == 1 {
            self.recheck_own(id);
        }
    }

    pub(super) fn remove_own(&mut self, vrf: u32, prefix: AnyPrefix) {
        let Some(id) = self.routes.table.find(RouteName { vrf, prefix }) else { return };
        let Some(own) = self.routes.own.get_mut(&id) else { return };
        own.count -= 1;
        if own.count > 0 {
            return;
        }
        let masked = self.routes.own.remove(&id).and_then(|own| own.masked);
        self.routes.table.set_own(id, false);
        self.routes.add(id, None, None, None);
        if masked.is_some() {
            self.routes.add(id, masked, None, None);
        }
    }

    /// A route to the CPU that the start put into the chip.
    pub(super) fn own_from_start(&mut self, prefix: AnyPrefix) {
        let id = self.routes.table.id_of(vrfs::DEFAULT, &prefix);
        self.routes.table.set_own(id, true);
        self.routes.own.insert(id, Own { count: 1, masked: None });
        self.routes.table.set_lead(id, Some(Lead { target: Target::Cpu, index: None }));
        self.hold_vrf(vrfs::DEFAULT);
        self.crm.routes(Table::of(prefix), 1);
    }

    fn recheck_own(&mut self, id: RouteId) {
        match self.routes.table.task(id).map(|task| task.state) {
            Some(State::InFlight(_)) => {}
            Some(_) => self.routes.make_ready(id),
            None => {
                let mut task = Task::new(None, None, None);
                task.change.del = false;
                self.routes.table.put_task(id, task);
                self.routes.ready.push_back(id);
            }
        }
    }

    /// A route that leads through an index is to be resolved again, because the index means something else.
    pub(super) fn lead_again(&mut self, id: RouteId, index: u32) {
        match self.routes.table.task(id).map(|task| task.state) {
            // The reply will show it.
            Some(State::InFlight(_)) => {}
            Some(_) => self.routes.make_ready(id),
            None => {
                let mut via = Via::group(self.indexes.name(index));
                if let Some(pop) = self.routes.pops.get(&id) {
                    via.put(Field::MplsPop, &pop.to_string());
                }
                self.routes.add(id, Some(RouteRow { protocol: None, via: Arc::new(via) }), None, None);
            }
        }
    }

    /// Makes all routes of `constraint` ready.
    pub(super) fn wake(&mut self, constraint: Constraint) {
        let mut ids = self.routes.retry_cache.take(constraint);
        // In order, so that equal input has equal results whatever the hash.
        ids.sort_unstable_by_key(|id| self.routes.table.name(*id));
        for id in ids {
            self.routes.make_ready(id);
        }
    }

    /// Makes up to `count` routes of `constraint` ready.
    fn wake_some(&mut self, constraint: Constraint, count: usize) {
        for id in self.routes.retry_cache.some(constraint, count) {
            self.routes.make_ready(id);
        }
    }

    /// Queues an object whose table of the chip is full, to be tried again when something is freed.
    pub(super) fn retry_when_freed(&mut self, requester: Requester) {
        if let Requester::Group(id) = requester {
            self.set_table_full(id, true);
        }
        self.routes.table_full.push_back(requester);
    }

    /// Something left the chip: the object that has waited longest for room is tried again.
    pub(super) fn room_freed(&mut self, out: &mut OrchOut) {
        if let Some(requester) = self.routes.table_full.pop_front() {
            self.step_again(requester, out);
        }
    }

    pub(super) fn retry_table_full(&mut self, now_ms: u64, out: &mut OrchOut) {
        if now_ms.saturating_sub(self.routes.last_retry_ms) < self.config.retry_ms {
            return;
        }
        self.routes.last_retry_ms = now_ms;
        for requester in std::mem::take(&mut self.routes.table_full) {
            self.step_again(requester, out);
        }
        for table in Table::ALL {
            self.wake_some(Constraint::TableFull(table), self.config.bulk_size);
        }
    }

    fn step_again(&mut self, requester: Requester, out: &mut OrchOut) {
        match requester {
            Requester::Vrf(id) => self.step_vrf(id, out),
            Requester::Interface(id) => self.step_interface(id, out),
            Requester::Neighbor(id) => self.step_refused(id, out),
            Requester::Group(id) if self.groups.contains(id) => {
                self.set_table_full(id, false);
                self.step_group(id, out);
            }
            _ => {}
        }
    }

    /// Takes up to a bulk of routes from the queue and makes calls of them; false when the queue was empty.
    pub(super) fn gather_routes(&mut self, bulk_size: usize, out: &mut OrchOut) -> bool {
        self.routes.sweep(bulk_size);
        let count = self.routes.ready.len().min(bulk_size);
        let mut ids: Vec<RouteId> = self.routes.ready.drain(..count).collect();
        if self.config.sort_routes {
            // Chips and readers of ASIC_DB like neighbours together.
            ids.sort_unstable_by_key(|id| self.routes.table.name(*id));
        }
        let (mut bulk, mut labels) = (Bulk::default(), Bulk { labels: true, ..Bulk::default() });
        for ids in ids.chunks(PREFETCH_BATCH) {
            self.routes.table.prefetch_tasks(ids.iter().copied());
            for id in ids {
                let of_label = self.routes.table.name(*id).label().is_some();
                self.advance(*id, if of_label { &mut labels } else { &mut bulk }, out);
            }
        }
        for (object, verb, (items, routes)) in [
            (ObjectType::RouteEntry, Verb::Remove, bulk.removes),
            (ObjectType::RouteEntry, Verb::Create, bulk.creates),
            (ObjectType::RouteEntry, Verb::Set, bulk.sets),
            (ObjectType::InsegEntry, Verb::Remove, labels.removes),
            (ObjectType::InsegEntry, Verb::Create, labels.creates),
            (ObjectType::InsegEntry, Verb::Set, labels.sets),
        ] {
            if !items.is_empty() {
                let call = SaiCall::Bulk { verb, object, items, mode: ErrorMode::IgnoreError };
                self.requests.call(call, Context::Routes(routes));
            }
        }
        count > 0
    }

    /// Resolves a task: adds it to the bulk, puts it into the retry cache, or finishes it.
    fn advance(&mut self, id: RouteId, bulk: &mut Bulk, out: &mut OrchOut) {
        let Some(mut task) = self.routes.table.take_task(id) else { return };
        let pin = task.pin.take();
        let decision = self.resolve_route(id, &task.change, out);
        let current = self.routes.table.lead(id);
        if bulk.labels && current.is_some() {
            // An entry that takes another number of labels off is not what is asked for.
            let pop = task.change.set.as_ref().and_then(|row| parsed_row::parse_pop(&row.via).ok());
            task.half |= pop.is_some() && pop.as_ref() != self.routes.pops.get(&id);
        }
        let there = current.is_some() || task.half;
        // What is to be deleted goes, when what comes after it cannot take its place at once.
        let first_remove = task.change.del && there;
        match decision {
            RouteDecision::Lead(lead) if current == Some(lead) && !task.half => {
                self.finish(id, task, true, out)
            }
            RouteDecision::Lead(lead) => self.emit(id, task, Some(lead), true, bulk),
            RouteDecision::Meanwhile(lead, constraint) => {
                self.pin(&mut task, constraint);
                if current == Some(lead) && !task.half {
                    self.wait(id, task, constraint);
                } else {
                    self.emit(id, task, Some(lead), false, bulk);
                }
            }
            RouteDecision::Wait(constraint) => {
                self.pin(&mut task, constraint);
                if first_remove {
                    self.emit(id, task, None, false, bulk);
                } else {
                    task.change.del = false;
                    self.wait(id, task, constraint);
                }
            }
            RouteDecision::Refuse(why) => {
                out.refused(format_args!("route {}", self.route_name(id)), why.as_str());
                self.notify_refused(id, &task, &why, out);
                task.change.set = None;
                task.refused = Some(why);
                if first_remove {
                    self.emit(id, task, None, true, bulk);
                } else {
                    task.silent = true;
                    self.finish(id, task, false, out);
                }
            }
            RouteDecision::Local if there => self.emit(id, task, None, true, bulk),
            RouteDecision::Covered if first_remove => self.emit(id, task, None, true, bulk),
            RouteDecision::Local | RouteDecision::Covered => self.finish(id, task, true, out),
            RouteDecision::Remove if there => self.emit(id, task, None, true, bulk),
            RouteDecision::Remove | RouteDecision::Nothing => {
                task.silent = true;
                self.finish(id, task, false, out);
            }
        }
        if let Some(constraint) = pin {
            self.unpin(constraint, out);
        }
    }

    fn wait(&mut self, id: RouteId, mut task: Box<Task>, constraint: Constraint) {
        task.state = State::Waiting(constraint);
        self.routes.unreported |= !task.token.is_some();
        let for_chip = match constraint {
            Constraint::Hop(hop) => self.neighbors.get(hop).is_requested(),
            Constraint::Group(group) => self.groups.on_its_way(group) || self.is_member_requested(group),
            Constraint::Vrf(_)
            | Constraint::Interface(_)
            | Constraint::Index(_)
            | Constraint::TableFull(_) => false,
        };
        self.routes.retry_cache.add(id, constraint, for_chip);
        self.routes.table.put_task(id, task);
    }

    /// The object that an entry names.
    pub(super) fn target_oid(&self, target: Target) -> Oid {
        match target {
            Target::Drop => Oid::NULL,
            Target::Cpu => self.boot.cpu_port,
            Target::Interface(interface) => self.interfaces.get(interface).oid().unwrap_or_default(),
            Target::Hop(hop) => self.hop_oid(hop),
            Target::Group(group) => self.groups.oid(group),
        }
    }

    /// Brings a change of a route into the bulk.
    fn emit(&mut self, id: RouteId, mut task: Box<Task>, lead: Option<Lead>, finish: bool, bulk: &mut Bulk) {
        let current = self.routes.table.lead(id);
        let name = self.routes.table.name(id);
        let permanent = name.is_permanent();
        let verb = match lead {
            Some(_) if current.is_some() || permanent => task.verb.take().unwrap_or(Verb::Set),
            Some(_) => task.verb.take().unwrap_or(Verb::Create),
            None if permanent => Verb::Set,
            None => Verb::Remove,
        };
        if let Some(lead) = lead {
            self.hold(id, lead);
        }
        let target = lead.map_or(Target::Drop, |lead| lead.target);
        let oid = self.target_oid(target);
        let (entry, pop, [forward, drop, to]) = match name.label() {
            None => {
                let vr = self.vrfs.get(name.vrf).oid.unwrap_or_default();
                let entry = RouteEntry { switch: SWITCH, vr, dest: name.prefix };
                let action = Attr::RoutePacketAction;
                let attrs =
                    [action(PacketAction::Forward), action(PacketAction::Drop), Attr::RouteNextHop(oid)];
                (ObjectId::from(entry), None, attrs)
            }
            Some(label) => {
                let action = Attr::InsegPacketAction;
                let attrs =
                    [action(PacketAction::Forward), action(PacketAction::Drop), Attr::InsegNextHop(oid)];
                let pop = self.pop_of(id, lead.and(task.change.set.as_ref()), verb, task.half);
                (InsegEntry { switch: SWITCH, label }.into(), pop.map(Attr::InsegPop), attrs)
            }
        };
        let (list, attrs): (_, Attrs) = match (verb, target) {
            (Verb::Remove, _) => (&mut bulk.removes, Attrs::new()),
            (Verb::Create, Target::Drop) => (&mut bulk.creates, std::iter::once(drop).chain(pop).collect()),
            (Verb::Create, Target::Cpu) => (&mut bulk.creates, [forward, to].into_iter().collect()),
            (Verb::Create, _) => (&mut bulk.creates, std::iter::once(to).chain(pop).collect()),
            (Verb::Set, Target::Drop) if lead.is_none() => (&mut bulk.sets, [drop, to].into_iter().collect()),
            (Verb::Set, Target::Drop) => {
                (&mut bulk.sets, std::iter::once(to).chain(pop).chain([drop]).collect())
            }
            (Verb::Set, _) => {
                // What the chip forwards already needs no word about it. The default route always gets it.
                let forwards = current.is_some_and(|lead| lead.target != Target::Drop);
                let forwards = forwards && !task.half && !permanent;
                let forward = (!forwards).then_some(forward);
                (&mut bulk.sets, pop.into_iter().chain(forward).chain([to]).collect())
            }
        };
        let count = match verb {
            Verb::Set => {
                let count = attrs.len();
                list.0.extend(attrs.into_iter().map(|attr| Item::new(entry, [attr])));
                count as u8
            }
            _ => {
                list.0.push(Item { id: entry, attrs });
                1
            }
        };
        list.1.push((id, count));
        task.state = State::InFlight(RequestedEntry { verb, lead, finish });
        self.routes.table.put_task(id, task);
    }

    /// How many labels the entry of a label shall take off, where that must be said to the chip; noted as said. `row` is
    /// none of an entry that goes.
    fn pop_of(&mut self, id: RouteId, row: Option<&RouteRow>, verb: Verb, again: bool) -> Option<u8> {
        let Some(pop) = row.and_then(|row| parsed_row::parse_pop(&row.via).ok()) else {
            self.routes.pops.remove(&id);
            return None;
        };
        let before = self.routes.pops.insert(id, pop);
        (verb == Verb::Create || again || before != Some(pop)).then_some(pop)
    }

    /// Takes in what became of the entries of one route.
    pub(super) fn route_reply(&mut self, id: RouteId, statuses: &[Status], out: &mut OrchOut) {
        let Some(mut task) = self.routes.table.take_task(id) else { return };
        let State::InFlight(RequestedEntry { verb, lead, finish }) = task.state else { return };
        task.state = State::Ready;
        let status = statuses.iter().copied().find(|status| !status.is_success()).unwrap_or(Status::Success);
        let some = statuses.iter().any(|status| status.is_success());
        task.half = !status.is_success() && (task.half || some);
        let result = outcome(verb, status);
        // A default route that is to drop, and that the chip does not have, drops.
        if result == Outcome::Done || (result == Outcome::Missing && lead.is_none()) {
            self.confirmed(id, lead, out);
            if finish {
                self.finish(id, task, true, out);
                return self.follow(id, lead);
            }
            task.change.del = false;
            task.take_later(false);
            return self.again(id, task);
        }
        // What of it a label's entry has is not known.
        self.routes.pops.remove(&id);
        // Of the entries of a set, the next hop comes first when it drops by a row, else last.
        let to = if lead.is_some_and(|lead| lead.target == Target::Drop) {
            statuses.first()
        } else {
            statuses.last()
        };
        if some && to.is_some_and(|status| status.is_success()) {
            self.place(id, lead, out);
        } else if let Some(lead) = lead {
            self.release(id, lead, out);
        }
        match result {
            Outcome::Exists => task.verb = Some(Verb::Set),
            Outcome::Missing => {
                // The chip lost it: forget that it was there, and create it.
                if let Some(old) = self.routes.table.set_lead(id, None) {
                    self.release(id, old, out);
                    self.crm.routes(self.table(id), -1);
                }
                task.verb = Some(Verb::Create);
            }
            Outcome::TableFull => {
                if task.later.is_none() {
                    let constraint = Constraint::TableFull(self.table(id));
                    self.notify_refused(id, &task, &self.explain_constraint(constraint).to_string(), out);
                    return self.wait(id, task, constraint);
                }
            }
            Outcome::Again => {}
            Outcome::Done | Outcome::Failed => {
                out.failed(format_args!("route {}", self.route_name(id)), status);
                let why = format!("the chip refused it: {}", status.name());
                self.notify_refused(id, &task, &why, out);
                task.refused = Some(why);
                task.silent = true;
                return self.finish(id, task, false, out);
            }
        }
        task.take_later(false);
        self.again(id, task);
    }

    /// The index that a route names may mean something else since the route was asked for.
    fn follow(&mut self, id: RouteId, lead: Option<Lead>) {
        let Some(Lead { target, index: Some(index) }) = lead else { return };
        let same = match self.indexes.get(index).meaning {
            Meaning::Nothing => true,
            Meaning::Hop(hop) => target == Target::Hop(hop),
            Meaning::Group(group) => target == Target::Group(group),
        };
        if !same {
            self.lead_again(id, index);
        }
    }

    fn again(&mut self, id: RouteId, mut task: Box<Task>) {
        task.state = State::Ready;
        self.routes.table.put_task(id, task);
        self.routes.ready.push_back(id);
    }

    /// The chip has the route as asked.
    fn confirmed(&mut self, id: RouteId, lead: Option<Lead>, out: &mut OrchOut) {
        self.place(id, lead, out);
        let name = self.routes.table.name(id);
        if name.is_permanent() {
            let ok = lead.is_some();
            let known = &mut self.routes.default_ok[usize::from(name.prefix.afi() == Afi::Ipv6)];
            if *known != ok {
                *known = ok;
                out.default_routes.push(Change::set(name.prefix, DefaultRouteRow { ok }));
            }
        }
    }

    /// The route's entry leads elsewhere now: what it led to before may go.
    fn place(&mut self, id: RouteId, lead: Option<Lead>, out: &mut OrchOut) {
        let permanent = self.routes.table.name(id).is_permanent();
        let old = self.routes.table.set_lead(id, lead);
        match lead {
            Some(lead) => {
                if let Some(index) = lead.index {
                    let of_index = match self.indexes.get(index).meaning {
                        Meaning::Group(group) => lead.target == Target::Group(group),
                        _ => false,
                    };
                    self.follow_index(index, id, !of_index);
                }
                if old.is_none() && !permanent {
                    self.crm.routes(self.table(id), 1);
                }
            }
            None if permanent => {}
            None => {
                self.crm.routes(self.table(id), -1);
                self.wake_some(Constraint::TableFull(self.table(id)), 1);
            }
        }
        if let Some(old) = old {
            if let Some(index) = old.index.filter(|index| lead.is_none_or(|lead| lead.index != Some(*index)))
            {
                self.follow_index(index, id, false);
            }
            self.release(id, old, out);
        }
    }

    /// Ends a task: answers it, and goes on with what came later.
    fn finish(&mut self, id: RouteId, mut task: Box<Task>, answer: bool, out: &mut OrchOut) {
        let pin = task.pin.take();
        let has_row = answer && task.change.set.is_some();
        if answer && self.config.responses && !task.silent && self.table(id) != Table::Labels {
            let key = self.key(id, &task);
            // Taken out: another processor counts references to the same name.
            let protocol = task.change.set.take().map(|row| row.protocol.unwrap_or_default());
            match task.found[0] {
                false => out.responses.push(RouteStateRow::confirmed(key, protocol)),
                // The chip does not have the last one yet, and no client waits to hear of those before it.
                true if task.later.is_some() => {}
                true => out.found.push(RouteStateRow::confirmed(key, protocol)),
            }
        }
        let refused = task.refused.take();
        if task.later.is_some() {
            task.take_later(true);
            task.silent = false;
            task.verb = None;
            self.again(id, task);
        } else {
            let without = has_row && self.routes.table.lead(id).is_none();
            self.routes.table.set_without(id, without);
            self.settle(id, task.token, refused.as_deref(), out);
            self.routes.table.let_go(id);
        }
        if let Some(constraint) = pin {
            self.unpin(constraint, out);
        }
    }

    /// Reports that a route is done or failed: to its batch, or, outside of every batch, as a status change.
    fn settle(&mut self, id: RouteId, token: BatchToken, refused: Option<&str>, out: &mut OrchOut) {
        if self.table(id) == Table::Labels {
            // No batch has routes of labels.
            return;
        }
        let had_failed = self.routes.table.give_up(id, refused);
        let failed = refused.map(|why| (self.route_key(id), why.to_owned()));
        if token.is_some() {
            self.routes.completions.done(token, failed);
        } else if let Some((key, why)) = failed {
            out.status_changes.push((key, Some(why)));
        }
        if had_failed && refused.is_none() {
            out.status_changes.push((self.route_key(id), None));
        }
    }

    /// Reports to fpmsyncd that the chip does not have the row that a task carries out.
    fn notify_refused(&mut self, id: RouteId, task: &Task, why: &str, out: &mut OrchOut) {
        let Some(row) = task.change.set.as_ref().filter(|_| self.config.responses && task.later.is_none())
        else {
            return;
        };
        if self.table(id) != Table::Labels && !self.routes.table.set_failed(id, true) {
            out.refusals.push(Refusal { key: self.route_key(id), row: row.digest(), why: why.into() });
        }
    }

    /// The key of a route, formatted as by libnl.
    pub(super) fn route_key(&self, id: RouteId) -> RouteKey {
        let RouteName { vrf, prefix } = self.routes.table.name(id);
        RouteKey::new(self.vrfs.name(vrf).clone(), prefix)
    }

    fn table(&self, id: RouteId) -> Table {
        self.routes.table.name(id).table()
    }

    /// The key of the row that a task carries out.
    fn key(&self, id: RouteId, task: &Task) -> RouteKey {
        let RouteName { vrf, prefix } = self.routes.table.name(id);
        RouteKey::Route { vrf: self.vrfs.name(vrf).clone(), prefix, raw_key: task.raw_key.clone() }
    }

    /// Whether [`Orch::give_up_waiting`] has routes to report.
    pub(super) fn has_unreported(&self) -> bool {
        self.routes.unreported || self.routes.completions.waits()
    }

    /// Reports what waits for something that is not there as failed: see [`Orch::finished`]. To its batch, or, where none waits
    /// for it, as what this returns.
    pub(super) fn give_up_waiting(&mut self) -> Vec<(RouteKey, String)> {
        self.routes.unreported = false;
        let mut failures = Vec::new();
        for (constraint, id) in self.routes.retry_cache.iter().collect::<Vec<_>>() {
            let Some(task) = self.routes.table.task_mut(id) else { continue };
            let token = std::mem::take(&mut task.token);
            if !token.is_some() && (self.routes.table.has_failed(id) || self.table(id) == Table::Labels) {
                continue;
            }
            let failed = (self.route_key(id), self.explain_constraint(constraint).to_string());
            self.routes.table.set_failed(id, true);
            match token.is_some() {
                true => self.routes.completions.done(token, Some(failed)),
                false => failures.push(failed),
            }
        }
        failures
    }

    /// Counts a route, in the chip or on its way there, with all that it leads through.
    fn hold(&mut self, id: RouteId, lead: Lead) {
        self.hold_vrf(self.routes.table.name(id).vrf);
        match lead.target {
            Target::Drop | Target::Cpu => {}
            Target::Interface(interface) => self.hold_interface(interface),
            Target::Hop(hop) => self.hold_hop(hop),
            Target::Group(group) => self.hold_group(group),
        }
        if let Some(index) = lead.index {
            self.hold_index(index);
        }
    }

    fn release(&mut self, id: RouteId, lead: Lead, out: &mut OrchOut) {
        match lead.target {
            Target::Drop | Target::Cpu => {}
            Target::Interface(interface) => self.release_interface(interface, out),
            Target::Hop(hop) => self.release_hop(hop, out),
            Target::Group(group) => self.release_group(group, out),
        }
        if let Some(index) = lead.index {
            self.release_index(index, out);
        }
        self.release_vrf(self.routes.table.name(id).vrf, out);
    }

    /// Keeps what a task waits for from being forgotten.
    fn pin(&mut self, task: &mut Task, constraint: Constraint) {
        match constraint {
            Constraint::Hop(hop) => self.neighbors.get_mut(hop).named += 1,
            Constraint::Group(group) => self.pin_group(group),
            Constraint::Index(index) => self.pin_index(index),
            Constraint::Vrf(_) | Constraint::Interface(_) | Constraint::TableFull(_) => {}
        }
        task.pin = Some(constraint);
    }

    fn unpin(&mut self, constraint: Constraint, out: &mut OrchOut) {
        match constraint {
            Constraint::Hop(hop) => self.unname_hop(hop, out),
            Constraint::Group(group) => self.unpin_group(group, out),
            Constraint::Index(index) => self.unpin_index(index),
            Constraint::Vrf(_) | Constraint::Interface(_) | Constraint::TableFull(_) => {}
        }
    }
}

/// Entries of one verb, and the routes that they are of.
type Entries = (Vec<Item>, Vec<(RouteId, u8)>);

/// A bulk in the making. Removes go first, then creates, then sets.
#[derive(Default)]
struct Bulk {
    /// It is of labels.
    labels: bool,
    removes: Entries,
    creates: Entries,
    sets: Entries,
}
