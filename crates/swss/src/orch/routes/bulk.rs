//! Bulks of route entries: from ready tasks to SAI calls, and from replies to the state of the
//! chip.

use super::task::{RequestedEntry, State, Task};
use super::{Deps, Routes};
use crate::orch::bulker::{Context, Outcome, has_progress, outcome};
use crate::orch::next_hop_ref::{NextHopRef, Target};
use crate::orch::parsed_row;
use crate::orch::route_decision::RouteDecision;
use crate::orch::routes::{Constraint, RouteId, Table};
use crate::row::{Change, DefaultRouteRow, RouteRow};
use crate::sai::{
    Attr, Attrs, ErrorMode, InsegEntry, Item, ObjectId, ObjectType, PacketAction, RouteEntry, SWITCH,
    SaiCall, Status, Verb,
};
use ribtide_prefix::{Afi, PREFETCH_BATCH};

/// Entries of one verb, and their routes, each with the count of its entries.
type Entries = (Vec<Item>, Vec<(RouteId, u8)>);

/// Bulks in the making: removes go first, then creates, then sets.
#[derive(Default)]
struct Bulk {
    /// Its entries are of labels.
    labels: bool,
    removes: Entries,
    creates: Entries,
    sets: Entries,
}

impl Routes {
    /// Makes SAI calls of up to `bulk_size` ready routes; false when none was ready.
    pub(in crate::orch) fn gather_routes(&mut self, bulk_size: usize, deps: &mut Deps<'_>) -> bool {
        self.sweep(bulk_size);
        self.retry_due(bulk_size);
        let count = self.ready.len().min(bulk_size);
        if count == 0 {
            return false;
        }
        let mut ids: Vec<RouteId> = self.ready.drain(..count).collect();
        if self.sort {
            // Chips store, and readers of ASIC_DB find, neighbouring prefixes together.
            ids.sort_unstable_by_key(|id| self.table.name(*id));
        }
        let (mut bulk, mut labels) = (Bulk::default(), Bulk { labels: true, ..Bulk::default() });
        for ids in ids.chunks(PREFETCH_BATCH) {
            self.table.prefetch_tasks(ids.iter().copied());
            for id in ids {
                let of_label = self.table.name(*id).label().is_some();
                self.advance(*id, if of_label { &mut labels } else { &mut bulk }, deps);
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
                deps.outbox.bulker.call(call, Context::Routes(routes));
            }
        }
        true
    }

    /// Resolves a task: adds its entry to the bulk, puts it into the retry cache, or finishes it.
    fn advance(&mut self, id: RouteId, bulk: &mut Bulk, deps: &mut Deps<'_>) {
        let Some(mut task) = self.table.take_task(id) else { return };
        let pin = task.pin.take();
        let current = self.table.reference(id);
        let decision = self.resolve(id, &task, current, deps);
        if bulk.labels && current.is_some() {
            // An entry that pops another count of labels is not what the row asks for.
            let pop = task.change.set.as_ref().and_then(|row| parsed_row::parse_pop(&row.via).ok());
            task.half |= pop.is_some() && pop.as_ref() != self.pops.get(&id);
        }
        let there = current.is_some() || task.half;
        // A deleted entry is removed when the row after the deletion cannot replace it at once.
        let first_remove = task.change.del && there;
        match decision {
            RouteDecision::Program(reference) if current == Some(reference) && !task.half => {
                self.finish(id, task, true, deps);
            }
            RouteDecision::Program(reference) => self.emit(id, task, Some(reference), true, bulk, deps),
            RouteDecision::ProgramTemporary(reference, constraint) => {
                deps.objects.pin(constraint);
                task.pin = Some(constraint);
                self.notify_object_refused(id, &task, constraint, deps);
                if current == Some(reference) && !task.half {
                    self.wait(id, task, constraint, deps);
                } else {
                    self.emit(id, task, Some(reference), false, bulk, deps);
                }
            }
            RouteDecision::Wait(constraint) => {
                deps.objects.pin(constraint);
                task.pin = Some(constraint);
                self.notify_object_refused(id, &task, constraint, deps);
                if first_remove {
                    self.emit(id, task, None, false, bulk, deps);
                } else {
                    task.change.del = false;
                    self.wait(id, task, constraint, deps);
                }
            }
            RouteDecision::Refuse(why) => {
                deps.outbox.out.refused(format_args!("route {}", self.text(id, deps.objects)), why.as_str());
                self.notify_refused(id, &task, &why, deps);
                task.change.set = None;
                task.refused = Some(why);
                if first_remove {
                    self.emit(id, task, None, true, bulk, deps);
                } else {
                    task.silent = true;
                    self.finish(id, task, false, deps);
                }
            }
            RouteDecision::Local if there => self.emit(id, task, None, true, bulk, deps),
            RouteDecision::Covered if first_remove => self.emit(id, task, None, true, bulk, deps),
            RouteDecision::Local | RouteDecision::Covered => self.finish(id, task, true, deps),
            RouteDecision::Remove if there => self.emit(id, task, None, true, bulk, deps),
            RouteDecision::Remove | RouteDecision::Nothing => {
                task.silent = true;
                self.finish(id, task, false, deps);
            }
        }
        if let Some(constraint) = pin {
            deps.objects.unpin(constraint, deps.outbox);
        }
    }

    /// Decides what to do with a route: its own row's decision, or the CPU for the router's own
    /// address.
    fn resolve(
        &mut self,
        id: RouteId,
        task: &Task,
        current: Option<NextHopRef>,
        deps: &mut Deps<'_>,
    ) -> RouteDecision {
        let name = self.table.name(id);
        if !self.is_own(id, &task.change) {
            return deps.objects.resolve_route(name, &task.change, current, deps.outbox);
        }
        match deps.objects.vrfs.usable(name.vrf) {
            Some(_) => RouteDecision::Program(NextHopRef { target: Target::Cpu, index: None }),
            None => RouteDecision::Wait(Constraint::Vrf(name.vrf)),
        }
    }

    /// Adds the entries of a route to the bulk.
    fn emit(
        &mut self,
        id: RouteId,
        mut task: Box<Task>,
        reference: Option<NextHopRef>,
        finish: bool,
        bulk: &mut Bulk,
        deps: &mut Deps<'_>,
    ) {
        let current = self.table.reference(id);
        let name = self.table.name(id);
        let permanent = name.is_permanent();
        let verb = match reference {
            Some(_) if current.is_some() || permanent => task.verb.take().unwrap_or(Verb::Set),
            Some(_) => task.verb.take().unwrap_or(Verb::Create),
            None if permanent => Verb::Set,
            None => Verb::Remove,
        };
        if let Some(reference) = reference {
            deps.objects.hold(name.vrf, reference);
        }
        let target = reference.map_or(Target::Drop, |reference| reference.target);
        let oid = deps.objects.oid(target);
        let (entry, pop, [forward, drop, to]) = match name.label() {
            None => {
                let vr = deps.objects.vrfs.oid(name.vrf).unwrap_or_default();
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
                let pop = self.pop_to_send(id, reference.and(task.change.set.as_ref()), verb, task.half);
                (InsegEntry { switch: SWITCH, label }.into(), pop.map(Attr::InsegPop), attrs)
            }
        };
        let (list, attrs): (_, Attrs) = match (verb, target) {
            (Verb::Remove, _) => (&mut bulk.removes, Attrs::new()),
            (Verb::Create, Target::Drop) => (&mut bulk.creates, std::iter::once(drop).chain(pop).collect()),
            (Verb::Create, Target::Cpu) => (&mut bulk.creates, [forward, to].into_iter().collect()),
            (Verb::Create, _) => (&mut bulk.creates, std::iter::once(to).chain(pop).collect()),
            (Verb::Set, Target::Drop) if reference.is_none() => {
                (&mut bulk.sets, [drop, to].into_iter().collect())
            }
            (Verb::Set, Target::Drop) => {
                (&mut bulk.sets, std::iter::once(to).chain(pop).chain([drop]).collect())
            }
            (Verb::Set, _) => {
                // An entry that forwards already keeps its packet action. The default route always
                // gets it.
                let forwards = current.is_some_and(|current| current.target != Target::Drop);
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
        task.state = State::InFlight(RequestedEntry { verb, reference, finish });
        self.table.put_task(id, task);
    }

    /// The count of labels that a label's entry shall pop, where the chip must be sent it; it
    /// counts as sent. `row`: none for an entry that is removed.
    fn pop_to_send(&mut self, id: RouteId, row: Option<&RouteRow>, verb: Verb, again: bool) -> Option<u8> {
        let Some(pop) = row.and_then(|row| parsed_row::parse_pop(&row.via).ok()) else {
            self.pops.remove(&id);
            return None;
        };
        let before = self.pops.insert(id, pop);
        (verb == Verb::Create || again || before != Some(pop)).then_some(pop)
    }

    /// Takes in the statuses of a bulk: one for each entry of `routes`, in order.
    pub(in crate::orch) fn reply(
        &mut self,
        routes: &[(RouteId, u8)],
        mut statuses: &[Status],
        deps: &mut Deps<'_>,
    ) {
        let progress = has_progress(statuses);
        for routes in routes.chunks(PREFETCH_BATCH) {
            self.table.prefetch_tasks(routes.iter().map(|(id, _)| *id));
            for (id, count) in routes {
                let Some((of_route, after)) = statuses.split_at_checked(usize::from(*count)) else { return };
                statuses = after;
                self.route_reply(*id, of_route, progress, deps);
            }
        }
    }

    /// Takes in the statuses of one route's entries.
    /// `progress`: [`has_progress`] of the whole call.
    fn route_reply(&mut self, id: RouteId, statuses: &[Status], progress: bool, deps: &mut Deps<'_>) {
        let Some(mut task) = self.table.take_task(id) else { return };
        let State::InFlight(RequestedEntry { verb, reference, finish }) = task.state else { return };
        task.state = State::Ready;
        let status = statuses.iter().copied().find(|status| !status.is_success()).unwrap_or(Status::Success);
        let some = statuses.iter().any(|status| status.is_success());
        task.half = !status.is_success() && (task.half || some);
        let result = outcome(verb, status, progress);
        // A default route that shall drop, and that the chip does not have, drops.
        if result == Outcome::Done || (result == Outcome::Missing && reference.is_none()) {
            self.confirmed(id, reference, deps);
            if finish {
                self.finish(id, task, true, deps);
                self.compare_with_index(id, reference, deps);
                return self.compare_with_own(id, reference);
            }
            task.change.del = false;
            task.take_later(false);
            return self.again(id, task);
        }
        // It is not known which attributes the chip has of a label's entry.
        self.pops.remove(&id);
        // Of the entries of a set, the next hop comes first when a row asks to drop, else last.
        let to = if reference.is_some_and(|reference| reference.target == Target::Drop) {
            statuses.first()
        } else {
            statuses.last()
        };
        if some && to.is_some_and(|status| status.is_success()) {
            self.set_programmed(id, reference, deps);
        } else if let Some(reference) = reference {
            self.release(id, reference, deps);
        }
        let contradiction = matches!(result, Outcome::Exists | Outcome::Missing);
        let is_repeated = contradiction && std::mem::replace(&mut task.contradicted, true);
        match result {
            Outcome::Exists => task.verb = Some(Verb::Set),
            Outcome::Missing => {
                // The chip lost the entry: it is created again.
                if let Some(old) = self.table.set_reference(id, None) {
                    if let Some(index) = old.index {
                        deps.objects.nhg_table.set_follower(index, id, false);
                    }
                    self.release(id, old, deps);
                    deps.outbox.crm.routes(self.chip_table(id), -1);
                }
                task.verb = Some(Verb::Create);
            }
            Outcome::TableFull if task.later.is_none() => {
                let constraint = Constraint::TableFull(self.chip_table(id));
                let why = deps.objects.explain(constraint, deps.outbox).to_string();
                self.notify_refused(id, &task, &why, deps);
                return self.wait(id, task, constraint, deps);
            }
            Outcome::TableFull | Outcome::Again | Outcome::Done | Outcome::Failed => {}
        }
        // A later row is requested at once.
        if task.later.is_none() && (is_repeated || matches!(result, Outcome::Done | Outcome::Failed)) {
            return self.wait_refused(id, task, status, deps);
        }
        task.take_later(false);
        self.again(id, task);
    }

    /// Resolves a route again when its index stands for another object than at the request.
    fn compare_with_index(&mut self, id: RouteId, reference: Option<NextHopRef>, deps: &mut Deps<'_>) {
        let Some(NextHopRef { target, index: Some(index) }) = reference else { return };
        if deps.objects.nhg_table.target(index).is_some_and(|now| now != target) {
            self.resolve_index_again(id, deps.objects.nhg_table.name(index));
        }
    }

    /// Resolves a route again that became the router's own after the request.
    fn compare_with_own(&mut self, id: RouteId, reference: Option<NextHopRef>) {
        let to_cpu = reference.is_some_and(|reference| reference.target == Target::Cpu);
        if self.table.is_own(id) && !to_cpu && self.table.task(id).is_none() {
            self.resolve_again(id);
        }
    }

    /// Takes in that the chip has the route as requested.
    fn confirmed(&mut self, id: RouteId, reference: Option<NextHopRef>, deps: &mut Deps<'_>) {
        self.set_programmed(id, reference, deps);
        let name = self.table.name(id);
        if name.is_permanent() {
            let ok = reference.is_some();
            let known = &mut self.default_ok[usize::from(name.prefix.afi() == Afi::Ipv6)];
            if *known != ok {
                *known = ok;
                deps.outbox.out.default_routes.push(Change::set(name.prefix, DefaultRouteRow { ok }));
            }
        }
    }

    /// Sets what the chip's entry resolves to, and releases what it resolved to before.
    fn set_programmed(&mut self, id: RouteId, reference: Option<NextHopRef>, deps: &mut Deps<'_>) {
        let permanent = self.table.name(id).is_permanent();
        let old = self.table.set_reference(id, reference);
        match reference {
            Some(reference) => {
                if let Some(index) = reference.index {
                    let uses_group = matches!(reference.target, Target::Group(_))
                        && deps.objects.nhg_table.target(index) == Some(reference.target);
                    deps.objects.nhg_table.set_follower(index, id, !uses_group);
                }
                if old.is_none() && !permanent {
                    deps.outbox.crm.routes(self.chip_table(id), 1);
                }
            }
            None if permanent => {}
            None => {
                let table: Table = self.chip_table(id);
                deps.outbox.crm.routes(table, -1);
                self.wake_some(Constraint::TableFull(table), 1);
            }
        }
        if let Some(old) = old {
            let index = reference.and_then(|reference| reference.index);
            if let Some(old_index) = old.index.filter(|old| Some(*old) != index) {
                deps.objects.nhg_table.set_follower(old_index, id, false);
            }
            self.release(id, old, deps);
        }
    }

    fn release(&self, id: RouteId, reference: NextHopRef, deps: &mut Deps<'_>) {
        deps.objects.release(self.table.name(id).vrf, reference, deps.outbox);
    }
}
