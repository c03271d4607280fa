//! Reconciliation of the chip: each object that orchagent requested is compared with the chip, a page
//! at a time, and what another program changed there is repaired.
//!
//! The truth is [`Syncd`]'s own table: every request that succeeded, and nothing else. No request is
//! under way while a page is compared, because the chip carries requests out in this stage. So each
//! difference is real.
//!
//! A round has four steps. Each object that routes need comes before those that use it:
//!
//! 1. numbered objects, neighbours and labels of the table: missing or changed in the chip;
//! 2. entries of the chip: changed, or surplus;
//! 3. routes of the table that the chip lacks, only when their counts differ;
//! 4. numbered objects and neighbours of the chip that no request made: surplus.

use super::view::{translated, translated_id};
use super::{AsicChange, Syncd, SyncdOut, place};
use crate::row::unpack_prefix;
use crate::sai::{
    Attr, Attrs, Audit, ErrorMode, Item, ObjectId, ObjectType, Oid, PacketAction, RouteEntry, Status, Verb,
};
use ribtide_prefix::PREFETCH_BATCH;

/// What differs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Difference {
    /// It is not there.
    Missing,
    /// It is there with another content.
    Changed,
    /// It is there, and is not wanted.
    Surplus,
}

impl Difference {
    /// The reason of a repair, for the log.
    pub fn why(self) -> &'static str {
        match self {
            Difference::Missing => "another program deleted it",
            Difference::Changed => "another program changed it",
            Difference::Surplus => "another program added it",
        }
    }
}

/// An object that differed, and the outcome of its repair.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Repair {
    /// Its type.
    pub object: ObjectType,
    /// It, by orchagent's numbers; one that is surplus by the chip's.
    pub id: ObjectId,
    /// What differed.
    pub difference: Difference,
    /// The chip's answer to the repair.
    pub status: Status,
}

/// The outcome of a page.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct PageResult {
    /// How many objects were compared, by type.
    pub compared: Vec<(ObjectType, u64)>,
    /// What differed.
    pub repairs: Vec<Repair>,
}

impl PageResult {
    fn count(&mut self, object: ObjectType) {
        match self.compared.iter_mut().find(|(of, _)| *of == object) {
            Some((_, count)) => *count += 1,
            None => self.compared.push((object, 1)),
        }
    }
}

/// A round of comparison: what is left of it.
pub struct ChipRound<C> {
    step: Step<C>,
}

enum Step<C> {
    /// The first objects are last.
    Objects(Vec<(ObjectType, ObjectId)>),
    Entries(C),
    Missing(Vec<(Oid, Oid, Vec<u8>)>),
    Surplus(Vec<(ObjectType, ObjectId)>),
}

/// A repair that is not carried out yet, in the chip's numbers.
struct Planned {
    verb: Verb,
    object: ObjectType,
    /// By orchagent's numbers; one that is surplus by the chip's.
    id: ObjectId,
    difference: Difference,
    /// Of a set one for each attribute.
    items: Vec<Item>,
}

/// What an entry has that was not given the attribute.
fn defaults(object: ObjectType) -> Vec<Attr> {
    match object {
        ObjectType::RouteEntry => {
            vec![Attr::RoutePacketAction(PacketAction::Forward), Attr::RouteNextHop(Oid::NULL)]
        }
        ObjectType::InsegEntry => vec![
            Attr::InsegPacketAction(PacketAction::Forward),
            Attr::InsegNextHop(Oid::NULL),
            Attr::InsegPop(0),
        ],
        _ => Vec::new(),
    }
}

/// A position among the rows of ASIC_DB; the default is the beginning.
#[derive(Default)]
pub enum RowCursor<C> {
    /// The beginning.
    #[default]
    Begin,
    /// Objects but routes; the next ones are last.
    Objects(Vec<(ObjectType, ObjectId)>),
    /// Routes, in the order of the chip's tables.
    Routes(C),
}

/// A row of ASIC_DB: what identifies it, and its attributes.
pub type AsicRow = ((ObjectType, ObjectId), Attrs);

impl<S: Audit> Syncd<S> {
    /// Rows that ASIC_DB shall have from a position on, about `count`, and the next position. `None`
    /// while orchagent describes a view. Of routes, those that the chip has: the others are missing
    /// there, and [`Syncd::reconcile`] finds them.
    #[expect(clippy::type_complexity, reason = "a page and its end")]
    pub fn rows(
        &self,
        from: RowCursor<S::Cursor>,
        count: usize,
    ) -> Option<(Vec<AsicRow>, Option<RowCursor<S::Cursor>>)> {
        if self.in_view() {
            return None;
        }
        let row =
            |(object, id): (ObjectType, ObjectId)| Some(((object, id), self.store.get(object, &id)?.clone()));
        Some(match from {
            RowCursor::Begin => self.rows(RowCursor::Objects(self.store.ids().collect()), count)?,
            RowCursor::Objects(mut ids) => {
                let rows = ids.drain(ids.len().saturating_sub(count)..).filter_map(row).collect();
                let next = match ids.is_empty() {
                    false => RowCursor::Objects(ids),
                    true => RowCursor::Routes(S::Cursor::default()),
                };
                (rows, Some(next))
            }
            RowCursor::Routes(from) => {
                let (entries, next) = self.chip.entries(from, count);
                let routes = entries.into_iter().filter(|rid| matches!(rid, ObjectId::Route(_)));
                let ids = routes.filter_map(|rid| translated_id(rid, &|rid| self.vid(rid)));
                let ids: Vec<ObjectId> = ids.collect();
                let mut rows = Vec::with_capacity(ids.len());
                for ids in ids.chunks(PREFETCH_BATCH) {
                    self.store.prefetch(ids.iter());
                    rows.extend(ids.iter().filter_map(|id| row((ObjectType::RouteEntry, *id))));
                }
                (rows, next.map(RowCursor::Routes))
            }
        })
    }

    /// Watches these objects in place of others: a request that changes one ends its watch.
    pub fn watch(&mut self, ids: impl IntoIterator<Item = ObjectId>) {
        self.watched = ids.into_iter().collect();
    }

    /// Whether an object is watched, so that no request changed it since.
    pub fn is_watched(&self, id: &ObjectId) -> bool {
        self.watched.contains(id)
    }

    /// Emits the row of an object again, in place of whatever ASIC_DB has.
    pub fn row_again(&self, object: ObjectType, id: ObjectId, out: &mut SyncdOut) {
        out.rows.remove(object, &id);
        if let Some(attrs) = self.store.get(object, &id) {
            out.rows.set(object, &id, attrs);
        }
    }

    /// Begins a round; `None` while orchagent describes a view, or before the switch exists.
    pub fn begin_round(&self) -> Option<ChipRound<S::Cursor>> {
        if self.in_view() || self.is_empty() {
            return None;
        }
        let mut ids: Vec<_> = self.store.ids().collect();
        ids.sort_unstable_by_key(|(object, id)| std::cmp::Reverse((place(*object), *id)));
        Some(ChipRound { step: Step::Objects(ids) })
    }

    /// Compares about `count` objects and repairs those that differ. Returns the rest of the round;
    /// `None` at its end.
    pub fn reconcile(
        &mut self,
        round: ChipRound<S::Cursor>,
        count: usize,
        out: &mut SyncdOut,
    ) -> (PageResult, Option<ChipRound<S::Cursor>>) {
        let mut result = PageResult::default();
        if self.in_view() || self.is_empty() {
            return (result, None);
        }
        let step = match round.step {
            Step::Objects(mut ids) => {
                self.compare_objects(&mut ids, count, &mut result, out);
                match ids.is_empty() {
                    false => Some(Step::Objects(ids)),
                    // Routes are not in the table, or every one is.
                    true if self.keeps_rows => Some(Step::Entries(S::Cursor::default())),
                    true => Some(self.surplus_step()),
                }
            }
            Step::Entries(from) => {
                let (entries, next) = self.chip.entries(from, count);
                self.compare_entries(&entries, &mut result, out);
                Some(match next {
                    Some(next) => Step::Entries(next),
                    None if self.chip.route_count() < self.store.route_count() => {
                        Step::Missing(self.store.packed_routes())
                    }
                    None => self.surplus_step(),
                })
            }
            Step::Missing(mut routes) => {
                self.compare_missing(&mut routes, count, &mut result, out);
                Some(if routes.is_empty() { self.surplus_step() } else { Step::Missing(routes) })
            }
            Step::Surplus(mut ids) => {
                self.compare_surplus(&mut ids, count, &mut result, out);
                (!ids.is_empty()).then_some(Step::Surplus(ids))
            }
        };
        (result, step.map(|step| ChipRound { step }))
    }

    /// Objects of the table, of one type.
    fn compare_objects(
        &mut self,
        ids: &mut Vec<(ObjectType, ObjectId)>,
        count: usize,
        result: &mut PageResult,
        out: &mut SyncdOut,
    ) {
        let Some((of, _)) = ids.last().copied() else { return };
        let mut planned = Vec::new();
        for _ in 0..count {
            let Some((object, id)) = ids.pop_if(|(object, _)| *object == of) else { break };
            result.count(object);
            let wanted = self.store.get(object, &id);
            let plan = wanted.and_then(|wanted| self.plan(object, id, wanted));
            // The chip alone makes its switch and what it has of its own.
            let own = object == ObjectType::Switch || id.oid().is_some_and(|vid| self.own.contains_key(&vid));
            match plan {
                Some(Planned { verb: Verb::Create, difference, .. }) if own => {
                    result.repairs.push(Repair { object, id, difference, status: Status::NotSupported });
                }
                plan => planned.extend(plan),
            }
        }
        self.repair(planned, result, out);
    }

    /// Entries of the chip.
    fn compare_entries(&mut self, entries: &[ObjectId], result: &mut PageResult, out: &mut SyncdOut) {
        let mut planned = Vec::new();
        for rid in entries {
            let object = match rid {
                ObjectId::Inseg(_) => ObjectType::InsegEntry,
                _ => ObjectType::RouteEntry,
            };
            result.count(object);
            let id = translated_id(*rid, &|rid| self.vid(rid));
            match id.and_then(|id| Some((id, self.store.get(object, &id)?))) {
                Some((id, wanted)) => planned.extend(self.plan(object, id, wanted)),
                None => planned.push(surplus(object, *rid)),
            }
        }
        self.repair(planned, result, out);
    }

    /// Routes of the table, of which the chip lacks some.
    fn compare_missing(
        &mut self,
        routes: &mut Vec<(Oid, Oid, Vec<u8>)>,
        count: usize,
        result: &mut PageResult,
        out: &mut SyncdOut,
    ) {
        let mut planned = Vec::new();
        let Some((switch, vr, bytes)) = routes.last_mut() else { return };
        let mut rest = &bytes[..];
        for _ in 0..count {
            let Some(dest) = unpack_prefix(&mut rest) else { break };
            let id = RouteEntry { switch: *switch, vr: *vr, dest }.into();
            let wanted = self.store.get(ObjectType::RouteEntry, &id);
            planned.extend(wanted.and_then(|wanted| self.plan(ObjectType::RouteEntry, id, wanted)));
        }
        match rest.len() {
            0 => drop(routes.pop()),
            left => drop(bytes.drain(..bytes.len() - left)),
        }
        self.repair(planned, result, out);
    }

    fn surplus_step(&self) -> Step<S::Cursor> {
        // What uses others goes first.
        let mut ids = self.chip.objects();
        ids.retain(|(object, id)| {
            let known = match id {
                ObjectId::Oid(rid) => self.vid(*rid).is_some(),
                _ => translated_id(*id, &|rid| self.vid(rid))
                    .is_some_and(|id| self.store.get(*object, &id).is_some()),
            };
            // The chip makes these itself.
            !known && !matches!(*object, ObjectType::Switch | ObjectType::Port | ObjectType::Hostif)
        });
        ids.sort_unstable_by_key(|(object, id)| (place(*object), *id));
        Step::Surplus(ids)
    }

    fn compare_surplus(
        &mut self,
        ids: &mut Vec<(ObjectType, ObjectId)>,
        count: usize,
        result: &mut PageResult,
        out: &mut SyncdOut,
    ) {
        let mut planned = Vec::new();
        for (object, rid) in ids.drain(ids.len().saturating_sub(count)..).rev() {
            // A request may have made it since.
            let known = match rid {
                ObjectId::Oid(rid) => self.vid(rid).is_some(),
                _ => translated_id(rid, &|rid| self.vid(rid))
                    .is_some_and(|id| self.store.get(object, &id).is_some()),
            };
            planned.extend((!known).then(|| surplus(object, rid)));
        }
        self.repair(planned, result, out);
    }

    /// Compares entries with what orchagent has of them, for a syncd that keeps no routes
    /// ([`Syncd::without_rows`]), and repairs them. `None`: orchagent has no such entry. Ids and
    /// attributes are by orchagent's numbers; an id may be surplus in the chip's.
    pub fn reconcile_entries(
        &mut self,
        entries: Vec<(ObjectId, Option<Attrs>)>,
        out: &mut SyncdOut,
    ) -> PageResult {
        let (mut result, mut planned) = (PageResult::default(), Vec::new());
        for (id, wanted) in entries {
            planned.extend(self.plan_entry(id, wanted.as_ref()));
        }
        self.repair(planned, &mut result, out);
        result
    }

    /// Whether an entry differs from what orchagent has of it, as in [`Syncd::reconcile_entries`].
    pub fn differs(&self, id: ObjectId, wanted: Option<&Attrs>) -> bool {
        self.plan_entry(id, wanted).is_some()
    }

    fn plan_entry(&self, id: ObjectId, wanted: Option<&Attrs>) -> Option<Planned> {
        let object = ObjectType::RouteEntry;
        match wanted {
            Some(wanted) => self.plan(object, id, wanted),
            None => {
                let rid = translated_id(id, &|vid| self.rid(vid)).unwrap_or(id);
                let there = self.chip.read(object, &rid, &mut []).is_ok();
                there.then(|| Planned { id, ..surplus(object, rid) })
            }
        }
    }

    /// The repair of an object that shall have these attributes; `None` when it has them, or cannot
    /// be compared.
    fn plan(&self, object: ObjectType, id: ObjectId, wanted: &Attrs) -> Option<Planned> {
        let rid_of = |vid: Oid| self.rid(vid);
        let rid = translated_id(id, &rid_of)?;
        let mut wanted = translated(wanted, &rid_of)?;
        let given = wanted.len();
        for default in defaults(object) {
            if !wanted.iter().any(|attr| attr.same_kind(&default)) {
                wanted.push(default);
            }
        }
        let mut found = wanted.clone();
        let planned = |verb, difference, items| Some(Planned { verb, object, id, difference, items });
        match self.chip.read(object, &rid, &mut found) {
            Err(Status::ItemNotFound | Status::InvalidObjectId) => {
                // The chip gives the number.
                let new = if rid.oid().is_some() { ObjectId::Oid(Oid::NULL) } else { rid };
                wanted.truncate(given);
                planned(Verb::Create, Difference::Missing, vec![Item { id: new, attrs: wanted }])
            }
            // The chip does not say an attribute of it.
            Err(_) => None,
            Ok(()) if found == wanted => None,
            Ok(()) => {
                let differing = wanted.into_iter().zip(found).filter(|(wanted, found)| wanted != found);
                let items = differing.map(|(attr, _)| Item::new(rid, [attr])).collect();
                planned(Verb::Set, Difference::Changed, items)
            }
        }
    }

    /// Carries repairs out: one bulk for each verb and type in a row.
    fn repair(&mut self, planned: Vec<Planned>, result: &mut PageResult, out: &mut SyncdOut) {
        let mut planned = planned.into_iter().peekable();
        while let Some(first) = planned.next() {
            let (verb, object) = (first.verb, first.object);
            let mut bulk = vec![first];
            while let Some(next) = planned.next_if(|next| (next.verb, next.object) == (verb, object)) {
                bulk.push(next);
            }
            let mut items: Vec<Item> = bulk.iter_mut().flat_map(|of| of.items.drain(..)).collect();
            let mut statuses = Vec::with_capacity(items.len());
            // Of a set each attribute is an item; those of one object follow each other.
            let ids: Vec<ObjectId> = items.iter().map(|item| item.id).collect();
            self.chip.bulk(verb, object, &mut items, ErrorMode::IgnoreError, &mut statuses);
            statuses.resize(items.len(), Status::Failure);
            let mut done = ids.into_iter().zip(items).zip(statuses).peekable();
            for Planned { id, difference, .. } in bulk {
                let Some(((of, item), mut status)) = done.next() else { break };
                while verb == Verb::Set
                    && let Some((_, other)) = done.next_if(|((next, _), _)| *next == of)
                {
                    status = if status.is_success() { other } else { status };
                }
                if status.is_success() && verb == Verb::Create {
                    self.renumber(&id, &item.id, out);
                }
                result.repairs.push(Repair { object, id, difference, status });
            }
        }
    }

    /// Takes in the chip's number of an object that was made again.
    fn renumber(&mut self, id: &ObjectId, in_chip: &ObjectId, out: &mut SyncdOut) {
        if let (Some(vid), Some(rid)) = (id.oid(), in_chip.oid()) {
            if let Some(old) = self.rid(vid) {
                self.vid_of.remove(&old);
                out.rows.push(AsicChange::Unmap(vid, old));
            }
            self.map(vid, rid, out);
        }
    }
}

/// The removal of what no request made.
fn surplus(object: ObjectType, rid: ObjectId) -> Planned {
    let items = vec![Item::new(rid, [])];
    Planned { verb: Verb::Remove, object, id: rid, difference: Difference::Surplus, items }
}
