//! syncd (`syncd/Syncd.cpp` of sonic-sairedis): carries out orchagent's requests on the chip, and
//! emits the rows of ASIC_DB.
//!
//! Orchagent names objects by its own numbers (VIDs), the chip by others (RIDs). syncd keeps the
//! map in memory, translates every request, and emits the reply before the rows, so that orchagent
//! does not wait for the database. It also keeps what the chip holds, for the comparison with the
//! view of a starting orchagent.

mod discovery;
mod entries;
mod fdb;
mod order;
mod packed;
mod polls;
mod queries;
mod reconcile;
mod store;
#[cfg(test)]
mod tests;
mod view;

use crate::sai::notification::PortState;
use crate::sai::schema::{self, Validation};
use crate::sai::{
    Attr, Attrs, EntryItem, ErrorMode, Item, ObjectId, ObjectType, Oid, RawText, SWITCH, Sai, SaiCall,
    SaiReply, SaiRequest, Status, Verb, VidSource, View,
};
use order::creation_order;
pub use order::{ORDER, place};
pub use packed::PackedChanges;
use polls::Polls;
pub use polls::{CounterScript, PollChange, Polled};
pub use reconcile::{AsicRow, ChipRound, Difference, PageResult, Repair, RowCursor};
use ribtide_prefix::{Map, PREFETCH_BATCH, Set, prefetch, shrink_to_fit};
use std::collections::BTreeMap;
use store::Store;

/// A change of ASIC_DB, in VIDs if nothing else is documented.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AsicChange {
    /// Remove all of `ASIC_STATE`, `HIDDEN` and both maps; the counter of VIDs stays.
    Wipe,
    /// Set these fields of an object's row in `ASIC_STATE`, and keep the others. Without
    /// attributes: the filler.
    Set(ObjectType, ObjectId, Attrs),
    /// Remove an object's row.
    Remove(ObjectType, ObjectId),
    /// Note a VID and its RID, in `VIDTORID` and `RIDTOVID`.
    Map(Oid, Oid),
    /// Forget a VID and its RID.
    Unmap(Oid, Oid),
    /// Set these fields of the row of an entry whose key is not typed, as [`AsicChange::Set`].
    SetEntry(ObjectType, RawText, Attrs),
    /// Remove the row of such an entry.
    RemoveEntry(ObjectType, RawText),
    /// Set a field of `HIDDEN`, the chip's own objects: ports, the default virtual router, and a list
    /// for each other type, in the order of creation.
    Hidden(Attr),
    /// Note that a view is described and not applied in full, or that it was applied.
    View(bool),
}

/// What orchagent and the chip call an object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Number {
    /// orchagent's number.
    pub vid: Oid,
    /// The chip's number.
    pub rid: Oid,
    /// Its type, if it is one that the chip has of its own.
    pub own: Option<ObjectType>,
}

/// The outputs of [`Syncd`]: append-only; the caller carries them out and empties them. Replies go
/// first.
#[derive(Default, Debug)]
pub struct SyncdOut {
    /// To orchagent.
    pub replies: Vec<SaiReply>,
    /// To ASIC_DB, in order.
    pub rows: PackedChanges,
    /// To the log: what did not succeed, as sentences.
    pub events: Vec<String>,
    /// To FLEX_COUNTER_DB: changes of the counters that are polled.
    pub polls: Vec<PollChange>,
}

/// Whether the chip says that it has no such object.
pub(crate) fn is_missing(status: Status) -> bool {
    matches!(status, Status::ItemNotFound | Status::AddrNotFound | Status::InvalidObjectId)
}

/// Prefetches items that another core has just written.
fn prefetch_items(items: &[Item]) {
    for item in items {
        prefetch((item.id.oid().is_some(), item.attrs.first().map(Attr::create_only)));
    }
}

/// syncd, on a chip.
pub struct Syncd<S: Sai> {
    chip: S,
    vids: Box<dyn VidSource>,
    rid_of: Map<Oid, Oid>,
    vid_of: Map<Oid, Oid>,
    /// What the chip holds, as ASIC_DB has it.
    store: Store,
    /// Objects that the chip has of its own. They are part of every view.
    own: Map<Oid, ObjectType>,
    /// Every object of a listed type which the chip had of its own, also those that orchagent
    /// removed: their place says which object of the chip it is after a restart.
    found: BTreeMap<ObjectType, Vec<Oid>>,
    /// The counters that orchagent wants polled.
    polls: Polls,
    /// What orchagent describes, while it starts on a chip that holds something.
    view: Option<Store>,
    /// Objects of an earlier orchagent that replies named while a view is described, such as ports of a breakout; and
    /// whether the starting one set an attribute of it. They are part of the view where it uses them.
    named: Map<Oid, bool>,
    /// Whether a view was applied in part, or lost with an earlier syncd: the chip is as no
    /// orchagent described it, until the next view is applied.
    unapplied: bool,
    /// Whether a thread writes [`SyncdOut::rows`], and orchagent may start again on a chip that
    /// holds objects.
    keeps_rows: bool,
    /// The requests that are checked against SAI's schema.
    validation: Validation,
    /// Objects that a comparison of ASIC_DB suspects, and that no request changed since.
    watched: Set<ObjectId>,
}

impl<S: Sai> Syncd<S> {
    /// syncd on a chip that holds nothing. `vids` is the counter that orchagent draws from too.
    pub fn new(chip: S, vids: Box<dyn VidSource>) -> Self {
        Syncd {
            chip,
            vids,
            rid_of: Map::default(),
            vid_of: Map::default(),
            store: Store::default(),
            own: Map::default(),
            found: BTreeMap::new(),
            polls: Polls::default(),
            view: None,
            named: Map::default(),
            unapplied: false,
            keeps_rows: true,
            validation: Validation::default(),
            watched: Set::default(),
        }
    }

    /// syncd on a chip that kept forwarding while no syncd ran. `numbers` and `objects` are what
    /// [`Syncd::numbers`] and [`Syncd::for_each`] of the previous syncd returned.
    pub fn resume(
        chip: S,
        vids: Box<dyn VidSource>,
        numbers: impl IntoIterator<Item = Number>,
        objects: impl IntoIterator<Item = (ObjectType, ObjectId, Attrs)>,
    ) -> Self {
        let mut syncd = Syncd::new(chip, vids);
        for Number { vid, rid, own } in numbers {
            syncd.rid_of.insert(vid, rid);
            syncd.vid_of.insert(rid, vid);
            syncd.own.extend(own.map(|object| (vid, object)));
        }
        let mut own: Vec<_> = syncd.own.iter().map(|(vid, object)| (vid.index(), *object, *vid)).collect();
        own.sort_unstable();
        for (_, object, vid) in own.into_iter().filter(|(_, object, _)| is_listed(*object)) {
            syncd.found.entry(object).or_default().push(vid);
        }
        for (object, id, attrs) in objects {
            syncd.store.insert(object, id, &attrs);
        }
        syncd
    }

    /// Every numbered object of the chip.
    pub fn numbers(&self) -> impl Iterator<Item = Number> {
        self.rid_of.iter().map(|(vid, rid)| Number { vid: *vid, rid: *rid, own: self.own.get(vid).copied() })
    }

    /// No client writes ASIC_DB, and orchagent lives and dies with this machine, so that there is
    /// nothing to compare with: the chip alone knows its routes. [`SyncdOut::rows`] names none, and
    /// neither do [`Syncd::attrs`] and [`Syncd::for_each`]; a second start of orchagent is refused.
    /// Requests are not validated, since ours are right by their types.
    pub fn without_rows(self) -> Self {
        Syncd { keeps_rows: false, validation: Validation::Off, ..self }
    }

    /// Sets which requests are validated against SAI's schema. The default is all of them.
    pub fn validate(self, validation: Validation) -> Self {
        Syncd { validation, ..self }
    }

    /// The chip.
    pub fn chip(&self) -> &S {
        &self.chip
    }

    /// The chip, to change its settings.
    pub fn chip_mut(&mut self) -> &mut S {
        &mut self.chip
    }

    /// The chip's number of an object.
    pub fn rid(&self, vid: Oid) -> Option<Oid> {
        self.rid_of.get(&vid).copied()
    }

    /// orchagent's number of an object.
    pub fn vid(&self, rid: Oid) -> Option<Oid> {
        self.vid_of.get(&rid).copied()
    }

    /// The link states that changed since the last call, in VIDs.
    pub fn port_states(&mut self) -> Vec<PortState> {
        let Syncd { chip, vid_of, .. } = self;
        let states = chip.port_states().into_iter();
        // A port that orchagent never heard of is none of its own.
        let named = |state: PortState| Some(PortState { port: *vid_of.get(&state.port)?, ..state });
        states.filter_map(named).collect()
    }

    /// The attributes that an object was given, in VIDs; `None` when the chip has no such object.
    pub fn attrs(&self, object: ObjectType, id: &ObjectId) -> Option<&[Attr]> {
        self.store.get(object, id).map(|attrs| attrs.as_slice())
    }

    /// Hands over every object that the chip holds, in VIDs and in no order: what `ASIC_STATE`
    /// shall hold.
    pub fn for_each(&self, each: &mut dyn FnMut(ObjectType, ObjectId, &[Attr])) {
        self.store.for_each(&mut |object, id, attrs| each(object, id, attrs));
    }

    /// How many objects the chip holds.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Bytes that the table of routes takes: at most 30 per IPv4 route and 58 per IPv6 route, when
    /// it just grew.
    pub fn table_size(&self) -> usize {
        self.store.table_size()
    }

    /// Shrinks every table to its contents, but for the chip's. O(capacity).
    pub fn shrink_to_fit(&mut self) {
        shrink_to_fit(&mut self.rid_of);
        shrink_to_fit(&mut self.vid_of);
        self.store.shrink_to_fit();
    }

    /// Whether the chip holds nothing, not even a switch.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether orchagent is starting: its requests fill a view, which is applied when it is
    /// complete.
    pub fn in_view(&self) -> bool {
        self.view.is_some()
    }

    /// Whether there is a view that is not applied in full: [`AsicChange::View`]. orchagent goes on
    /// with it, or describes another one.
    pub fn has_unapplied_view(&self) -> bool {
        self.in_view() || self.unapplied
    }

    /// An earlier syncd ended with a view that it had not applied in full. A repeated APPLY_VIEW
    /// fails, so that orchagent describes everything again.
    pub fn lost_view(&mut self) {
        self.unapplied = true;
    }

    /// Carries out a request.
    pub fn handle(&mut self, request: SaiRequest, out: &mut SyncdOut) {
        let id = request.id;
        let reply = match request.call {
            SaiCall::View(View::Init) => SaiReply::one(id, self.begin(out)),
            SaiCall::View(View::Apply) => SaiReply::one(
                id,
                match self.view.take() {
                    Some(mut view) => {
                        self.leave_out_unused(&mut view);
                        self.apply(view, out)
                    }
                    None if self.unapplied => {
                        out.events.push("a view was not applied in full; start orchagent again".into());
                        Status::Failure
                    }
                    // The objects of the view were made as orchagent described them.
                    None => Status::Success,
                },
            ),
            SaiCall::One { verb, object, item } => {
                let rules = self.validation.covers(false);
                let statuses = self.objects(verb, object, vec![item], ErrorMode::StopOnError, rules, out);
                SaiReply::one(id, statuses.first().copied().unwrap_or(Status::Failure))
            }
            SaiCall::Bulk { verb, object, items, mode } => {
                let rules = self.validation.covers(true);
                SaiReply::bulk(id, self.objects(verb, object, items, mode, rules, out))
            }
            SaiCall::Get { object, id: of, attrs } => match self.get(object, of, attrs, out) {
                Ok(values) => SaiReply { values, ..SaiReply::one(id, Status::Success) },
                Err((status, values)) => SaiReply { values, ..SaiReply::one(id, status) },
            },
            SaiCall::BulkGet { object, items } => self.bulk_get(id, object, items, out),
            SaiCall::Entries { verb, object, items, bulk } => {
                let statuses = self.entries(verb, object, items, self.validation.covers(bulk), out);
                match bulk {
                    true => SaiReply::bulk(id, statuses),
                    false => SaiReply::one(id, statuses.first().copied().unwrap_or(Status::Failure)),
                }
            }
            SaiCall::GetEntry { object, key, attrs } => match self.get_entry(object, key, attrs, out) {
                Ok(values) => SaiReply { values, ..SaiReply::one(id, Status::Success) },
                Err(status) => SaiReply::one(id, status),
            },
            SaiCall::Query(query) => self.query(id, query, out),
            SaiCall::Available { object, attrs } => match self.chip.available(object, &attrs) {
                Ok(count) => {
                    SaiReply { values: vec![Attr::ObjectCount(count)], ..SaiReply::one(id, Status::Success) }
                }
                Err(status) => SaiReply::one(id, status),
            },
        };
        out.replies.push(reply);
    }

    /// Carries out a request whose reply was lost, so that this or an earlier syncd may have
    /// carried out all or a part of it. Items that are already as requested count as done.
    pub fn handle_again(&mut self, request: SaiRequest, out: &mut SyncdOut) {
        let store = self.view.as_ref().unwrap_or(&self.store);
        let done = |verb: Verb, object: ObjectType, item: &Item| match verb {
            // No other request makes it; what it is now, a later request made of it, which comes
            // again too.
            Verb::Create => store.get(object, &item.id).is_some(),
            Verb::Remove => store.get(object, &item.id).is_none(),
            Verb::Set => false,
        };
        let id = request.id;
        match request.call {
            SaiCall::One { verb, object, item } if done(verb, object, &item) => {
                out.replies.push(SaiReply::one(id, Status::Success));
            }
            SaiCall::Bulk { verb, object, items, mode } => {
                let count = items.len();
                let (places, left): (Vec<usize>, Vec<Item>) =
                    items.into_iter().enumerate().filter(|(_, item)| !done(verb, object, item)).unzip();
                let mut statuses = vec![Status::Success; count];
                let rules = self.validation.covers(true);
                for (place, status) in
                    places.into_iter().zip(self.objects(verb, object, left, mode, rules, out))
                {
                    statuses[place] = status;
                }
                out.replies.push(SaiReply::bulk(id, statuses));
            }
            SaiCall::Entries { verb, object, items, bulk } => {
                let entries = store.entries();
                let done = |item: &EntryItem| {
                    let exists = entries.contains_key(&(object, item.key.clone()));
                    verb == Verb::Create && exists || verb == Verb::Remove && !exists
                };
                let done: Vec<bool> = items.iter().map(done).collect();
                let rules = self.validation.covers(bulk);
                let statuses: Vec<Status> = items
                    .into_iter()
                    .zip(done)
                    .map(|(item, done)| match done {
                        true => Status::Success,
                        false => self.entry(verb, object, item, rules, out),
                    })
                    .collect();
                out.replies.push(match bulk {
                    true => SaiReply::bulk(id, statuses),
                    false => SaiReply::one(id, statuses.first().copied().unwrap_or(Status::Failure)),
                });
            }
            call => self.handle(SaiRequest { id, call }, out),
        }
    }

    /// Begins the view of a starting orchagent. A chip that holds nothing needs no view.
    fn begin(&mut self, out: &mut SyncdOut) -> Status {
        // The view may change every object.
        self.watched.clear();
        self.unapplied = false;
        self.named.clear();
        // Each orchagent sets what is polled in its view.
        self.polls = Polls::default();
        out.polls.push(PollChange::Reset);
        if self.rid(SWITCH).is_none() {
            self.rid_of.clear();
            self.vid_of.clear();
            self.store = Store::default();
            self.own.clear();
            self.found.clear();
            self.view = None;
            out.rows.push(AsicChange::Wipe);
            return Status::Success;
        }
        if !self.keeps_rows {
            return Status::NotSupported;
        }
        self.pass_numbers(out);
        let mut view = Store::default();
        for (vid, object) in &self.own {
            let attrs = self.store.get(*object, &(*vid).into()).cloned().unwrap_or_default();
            view.insert(*object, (*vid).into(), &attrs);
        }
        self.view = Some(view);
        out.rows.push(AsicChange::View(true));
        Status::Success
    }

    /// `rules`: they are held against the schema.
    fn objects(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: Vec<Item>,
        mode: ErrorMode,
        rules: bool,
        out: &mut SyncdOut,
    ) -> Vec<Status> {
        let Some(view) = &mut self.view else {
            let statuses = self.bulk(verb, object, items, mode, rules, out);
            match (object, verb) {
                // A port comes and goes with its queues and the like.
                (ObjectType::Switch | ObjectType::Port, Verb::Create) => self.discover_all(out),
                (ObjectType::Port, Verb::Remove) => self.forget_gone(out),
                _ => {}
            }
            return statuses;
        };
        for item in items.iter().filter(|_| verb == Verb::Set) {
            if let Some(used) = item.id.oid().and_then(|vid| self.named.get_mut(&vid)) {
                *used = true;
            }
        }
        let mut stopped = false;
        let one = |item: Item| {
            let status = match stopped {
                true => Status::NotExecuted,
                false => refused(rules, verb, object, &item, out)
                    .unwrap_or_else(|| describe(view, verb, object, item)),
            };
            stopped |= mode == ErrorMode::StopOnError && !status.is_success();
            status
        };
        items.into_iter().map(one).collect()
    }

    /// Creates the objects of ASIC_DB in the chip, after syncd alone was started again. `hidden`
    /// are the fields of `HIDDEN`. VIDs stay what they were, so orchagent goes on as if nothing had
    /// happened.
    pub fn recreate(
        &mut self,
        rows: impl IntoIterator<Item = (ObjectType, ObjectId, Attrs)>,
        hidden: &[Attr],
        out: &mut SyncdOut,
    ) {
        let mut store = Store::default();
        for (object, id, attrs) in rows {
            store.insert(object, id, &attrs);
        }
        let mut items: Vec<(ObjectType, Item)> = creation_order(&store)
            .into_iter()
            .map(|(object, id, attrs)| (object, Item { id, attrs }))
            .collect();
        for object in [ObjectType::RouteEntry, ObjectType::InsegEntry] {
            items.extend(store.sorted(object).into_iter().map(|(id, attrs)| (object, Item { id, attrs })));
        }
        // Attributes set on the chip's own objects come after all objects that they may name.
        let (mut sets, names) = (Vec::new(), hidden_numbers(hidden));
        let mut items = items.into_iter().peekable();
        while let Some((object, item)) = items.next() {
            let mut bulk = vec![item];
            while let Some((_, item)) =
                items.next_if(|(next, _)| *next == object && object != ObjectType::Switch)
            {
                bulk.push(item);
            }
            // Attributes that were set on a port that the chip has of its own are set, not created.
            let is_own = |item: &Item| {
                item.id.oid().is_some_and(|vid| self.rid(vid).is_some() || names.contains(&vid))
            };
            let (found, made): (Vec<Item>, Vec<Item>) = bulk.into_iter().partition(is_own);
            let each = |item: Item| item.attrs.into_iter().map(move |attr| Item::new(item.id, [attr]));
            sets.extend(found.into_iter().flat_map(each).map(|item| (object, item)));
            self.carry_again(Verb::Create, object, made, out);
            if let ObjectType::Switch | ObjectType::Port = object {
                self.find_hidden(hidden, out);
            }
        }
        self.discover_all(out);
        let lost = names.iter().filter(|vid| self.rid(**vid).is_none());
        let lost: Vec<(ObjectType, ObjectId)> =
            lost.filter_map(|vid| Some((store.object_type(*vid)?, (*vid).into()))).collect();
        if !lost.is_empty() {
            out.events.push(format!("the chip lacks {} objects that it had of its own", lost.len()));
            lost.iter().for_each(|(object, id)| out.rows.remove(*object, id));
        }
        let mut sets = sets.into_iter().peekable();
        while let Some((object, item)) = sets.next() {
            let mut bulk = vec![item];
            while let Some((_, item)) = sets.next_if(|(next, _)| *next == object) {
                bulk.push(item);
            }
            // A chip gives its objects some attributes that nothing can set.
            bulk.retain(|item| !item.attrs.iter().any(Attr::create_only));
            self.carry_again(Verb::Set, object, bulk, out);
        }
        self.drop_removed(&store, out);
    }

    /// Carries out again what the rows of ASIC_DB say.
    fn carry_again(&mut self, verb: Verb, object: ObjectType, items: Vec<Item>, out: &mut SyncdOut) {
        if items.is_empty() {
            return;
        }
        let count = items.len();
        let before = std::mem::take(&mut out.rows);
        let ids: Vec<ObjectId> = items.iter().map(|item| item.id).collect();
        let statuses = self.bulk(verb, object, items, ErrorMode::IgnoreError, false, out);
        // The rows are there already; only numbers changed.
        let new = std::mem::replace(&mut out.rows, before);
        out.rows.extend(new.unpack().filter(|row| matches!(row, AsicChange::Map(..))));
        let failed = ids.into_iter().zip(statuses).filter(|(_, status)| !status.is_success());
        let failed: Vec<ObjectId> = failed.map(|(id, _)| id).collect();
        if !failed.is_empty() {
            let (name, failed) = (object.name(), failed.len());
            out.events.push(format!("{failed} of {count} {name} could not be made again; restart orchagent"));
        }
        if verb == Verb::Create {
            failed.iter().for_each(|id| out.rows.remove(object, id));
        }
    }

    /// Removes again what orchagent had removed of the chip's own objects, such as the members of the
    /// default VLAN. Ports stay: a row that is missing says too little to take a port out.
    fn drop_removed(&mut self, rows: &Store, out: &mut SyncdOut) {
        let removed = self
            .own
            .iter()
            .filter(|(vid, object)| is_listed(**object) && rows.get(**object, &(**vid).into()).is_none());
        let mut removed: Vec<(ObjectType, Oid)> = removed.map(|(vid, object)| (*object, *vid)).collect();
        removed.sort_unstable();
        // One may be of use to another, which then goes first.
        let mut before = usize::MAX;
        let mut failed = Vec::new();
        while removed.len() < before {
            before = removed.len();
            failed.clear();
            for (object, vid) in std::mem::take(&mut removed) {
                let items = vec![Item::bare(vid)];
                let statuses = self.bulk(Verb::Remove, object, items, ErrorMode::IgnoreError, false, out);
                if let Some(status) = statuses.first().filter(|status| !status.is_success()) {
                    removed.push((object, vid));
                    failed.push(format!(
                        "a {} that was removed is there again: {}",
                        object.name(),
                        status.name()
                    ));
                }
            }
        }
        out.events.append(&mut failed);
    }

    /// Gives the objects that the chip has of its own the VIDs that they had.
    fn find_hidden(&mut self, hidden: &[Attr], out: &mut SyncdOut) {
        let Some(switch) = self.rid(SWITCH) else { return };
        let own = self.chip.own_objects(switch);
        for attr in hidden {
            if let Some(object) = ObjectType::from_name(attr.name()) {
                let mut vids = attr.clone();
                let rids = own.iter().filter(|(of, _)| *of == object).map(|(_, rid)| *rid);
                let pairs: Vec<(Oid, Oid)> = vids.oids_mut().iter().copied().zip(rids).collect();
                for (vid, rid) in pairs {
                    self.find(object, vid, rid, out);
                }
                self.found.insert(object, vids.oids_mut().to_vec());
                continue;
            }
            let mut vids = attr.clone();
            let mut rids = [attr.clone()];
            if let Err(status) = self.chip.get(ObjectType::Switch, &switch.into(), &mut rids) {
                out.events.push(format!("the chip does not say {}: {}", attr.name(), status.name()));
                continue;
            }
            let Some(object) = hidden_type(attr) else { continue };
            let pairs: Vec<(Oid, Oid)> =
                vids.oids_mut().iter().copied().zip(rids[0].oids_mut().iter().copied()).collect();
            for (vid, rid) in pairs {
                self.find(object, vid, rid, out);
            }
        }
    }

    /// Takes in the VID that an object of the chip's own had.
    fn find(&mut self, object: ObjectType, vid: Oid, rid: Oid, out: &mut SyncdOut) {
        if self.vid(rid).is_none() && self.rid(vid).is_none() {
            self.map(vid, rid, out);
            self.own.insert(vid, object);
            self.store.set(object, vid.into(), &Attrs::new());
        }
    }

    fn map(&mut self, vid: Oid, rid: Oid, out: &mut SyncdOut) {
        self.rid_of.insert(vid, rid);
        self.vid_of.insert(rid, vid);
        out.rows.push(AsicChange::Map(vid, rid));
    }

    fn unmap(&mut self, vid: Oid, out: &mut SyncdOut) {
        if let Some(rid) = self.rid_of.remove(&vid) {
            self.vid_of.remove(&rid);
            out.rows.push(AsicChange::Unmap(vid, rid));
        }
    }

    /// The item in the chip's numbers; the status to answer when it names what is not there.
    fn translate(&self, verb: Verb, object: ObjectType, item: &Item) -> Result<Item, Status> {
        let mut item = item.clone();
        let to_rid = |oid: &mut Oid| {
            if !oid.is_null() {
                *oid = self.rid(*oid).ok_or(Status::InvalidObjectId)?;
            }
            Ok(())
        };
        for attr in item.attrs.iter_mut() {
            attr.oids_mut().iter_mut().try_for_each(to_rid)?;
        }
        match (&mut item.id, verb) {
            (ObjectId::Oid(vid), Verb::Create) if self.rid_of.contains_key(vid) => {
                return Err(Status::ItemAlreadyExists);
            }
            // The chip gives the number.
            (ObjectId::Oid(oid), Verb::Create) => *oid = Oid::NULL,
            (id, _) => id.oids_mut().try_for_each(to_rid)?,
        }
        match object.is_entry() == item.id.oid().is_none() {
            true => Ok(item),
            false => Err(Status::InvalidObjectType),
        }
    }

    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: Vec<Item>,
        mode: ErrorMode,
        rules: bool,
        out: &mut SyncdOut,
    ) -> Vec<Status> {
        // Items that cannot be translated are answered here; so are those after them in the mode that stops.
        let mut statuses = Vec::with_capacity(items.len());
        let mut for_chip = Vec::with_capacity(items.len());
        let mut stopped = false;
        let mut unknown = 0;
        // A number that stands twice in one create would be two objects.
        let mut twice: Set<Oid> = Set::default();
        for (n, item) in items.iter().enumerate() {
            if n % PREFETCH_BATCH == 0 {
                prefetch_items(&items[n..items.len().min(n + PREFETCH_BATCH)]);
            }
            let again = verb == Verb::Create
                && items.len() > 1
                && item.id.oid().is_some_and(|vid| !twice.insert(vid));
            let translated = match stopped {
                true => Err(Status::NotExecuted),
                false if again => Err(Status::ItemAlreadyExists),
                false => match refused(rules, verb, object, item, out) {
                    Some(status) => Err(status),
                    None => self.translate(verb, object, item),
                },
            };
            unknown += usize::from(translated == Err(Status::InvalidObjectId));
            stopped |= translated.is_err() && mode == ErrorMode::StopOnError;
            statuses.push(translated.as_ref().err().copied());
            for_chip.extend(translated);
        }
        if unknown > 0 {
            out.events.push(format!(
                "{unknown} of {} {} name objects that were never made; the reply to orchagent names them",
                items.len(),
                object.name()
            ));
        }
        let mut answers = Vec::with_capacity(for_chip.len());
        if !for_chip.is_empty() {
            self.chip.bulk(verb, object, &mut for_chip, mode, &mut answers);
        }
        let mut answered = for_chip.into_iter().zip(answers);
        if self.keeps_rows {
            out.rows.reserve(items.len());
        }
        let mut result = Vec::with_capacity(items.len());
        for (n, (item, status)) in items.iter().zip(statuses).enumerate() {
            if n % PREFETCH_BATCH == 0 && self.keeps_rows {
                self.store
                    .prefetch(items[n..items.len().min(n + PREFETCH_BATCH)].iter().map(|item| &item.id));
            }
            let status = match status {
                Some(status) => status,
                // Items without a status from the chip were not carried out.
                None => match answered.next() {
                    Some((done, status)) => {
                        let lost = is_missing(status)
                            && self.store.get(object, &item.id).is_some()
                            && self.is_gone(verb, object, &done);
                        // One call for both cases, so that it is inlined in this loop.
                        if status.is_success() || lost {
                            let verb = if lost { Verb::Remove } else { verb };
                            self.record(verb, object, item, done.id, out);
                        }
                        status
                    }
                    None => Status::Failure,
                },
            };
            result.push(status);
        }
        result
    }

    /// Whether the chip has no object `item`, to whose `verb` it answered that something is missing:
    /// another program removed it. orchagent goes on without it, so no comparison may create it again.
    fn is_gone(&mut self, verb: Verb, object: ObjectType, item: &Item) -> bool {
        match verb {
            Verb::Create => false,
            Verb::Remove => true,
            // The missing object may be the new next hop.
            Verb::Set => {
                item.id.oid().is_none()
                    && self.chip.get(object, &item.id, &mut item.attrs.to_vec()).is_err_and(is_missing)
            }
        }
    }

    /// Takes in, and emits the rows of, an operation whose result the chip has.
    fn record(&mut self, verb: Verb, object: ObjectType, item: &Item, in_chip: ObjectId, out: &mut SyncdOut) {
        if !self.watched.is_empty() {
            self.watched.remove(&item.id);
        }
        if !self.keeps_rows && object == ObjectType::RouteEntry {
            return;
        }
        let vid = item.id.oid();
        match verb {
            Verb::Create => {
                if let (Some(vid), Some(rid)) = (vid, in_chip.oid()) {
                    self.map(vid, rid, out);
                }
                if self.keeps_rows {
                    out.rows.set(object, &item.id, &item.attrs);
                }
                self.store.insert(object, item.id, &item.attrs);
            }
            Verb::Set => {
                if self.keeps_rows {
                    out.rows.set(object, &item.id, &item.attrs);
                }
                self.store.set(object, item.id, &item.attrs);
            }
            Verb::Remove => {
                self.store.remove(&item.id);
                if self.keeps_rows {
                    out.rows.remove(object, &item.id);
                }
                if let Some(vid) = vid {
                    self.own.remove(&vid);
                    self.unmap(vid, out);
                }
            }
        }
    }

    /// The values of an object's attributes, or the status, with the lengths of lists that need more
    /// room.
    fn get(
        &mut self,
        object: ObjectType,
        mut id: ObjectId,
        mut attrs: Vec<Attr>,
        out: &mut SyncdOut,
    ) -> Result<Vec<Attr>, (Status, Vec<Attr>)> {
        let vid = id.oid();
        for oid in id.oids_mut() {
            *oid = self.rid(*oid).ok_or((Status::InvalidObjectId, Vec::new()))?;
        }
        match self.chip.get(object, &id, &mut attrs) {
            Ok(()) => {}
            Err(Status::BufferOverflow) => return Err((Status::BufferOverflow, attrs)),
            Err(status) => return Err((status, Vec::new())),
        }
        self.name_found(&mut attrs, out);
        if let Some(vid) = vid {
            self.keep_read(object, vid, &attrs, out);
        }
        Ok(attrs)
    }

    /// Keeps what orchagent read of an object and never set, as SONiC's syncd does
    /// (`snoopGetResponse`), unless only the chip sets it, or it is a port's lanes.
    fn keep_read(&mut self, object: ObjectType, vid: Oid, attrs: &[Attr], out: &mut SyncdOut) {
        let id = ObjectId::Oid(vid);
        let Some(kept) = self.store.get(object, &id).filter(|_| self.keeps_rows) else { return };
        let is_kept = |attr: &Attr| kept.iter().any(|of| of.same_kind(attr));
        let new: Attrs = attrs
            .iter()
            .filter(|attr| {
                !schema::is_read_only(attr) && !matches!(attr, Attr::PortLanes(_)) && !is_kept(attr)
            })
            .cloned()
            .collect();
        if new.is_empty() {
            return;
        }
        if let Some(view) = self.view.as_mut().filter(|view| view.get(object, &id).is_some()) {
            view.set(object, id, &new);
        }
        self.watched.remove(&id);
        out.rows.set(object, &id, &new);
        self.store.set(object, id, &new);
    }

    /// Puts VIDs in place of the RIDs of a reply. An object that has none yet gets one.
    fn name_found(&mut self, attrs: &mut [Attr], out: &mut SyncdOut) {
        let rids = attrs.iter_mut().flat_map(|attr| attr.oids_mut().to_vec());
        let mut new: Vec<Oid> = rids.filter(|rid| !rid.is_null() && !self.vid_of.contains_key(rid)).collect();
        new.sort_unstable();
        new.dedup();
        if !new.is_empty() {
            let found = new.into_iter().filter_map(|rid| Some((self.chip.object_type(rid)?, rid))).collect();
            self.discover(found, out);
        }
        for oid in attrs.iter_mut().flat_map(|attr| attr.oids_mut()) {
            *oid = self.vid(*oid).unwrap_or(Oid::NULL);
            self.describe_named(*oid);
        }
    }

    /// A counter that was lost must not give out what objects are called.
    fn pass_numbers(&mut self, out: &mut SyncdOut) {
        let last = self.rid_of.keys().map(|vid| vid.index()).max().unwrap_or(0);
        if let Err(why) = self.vids.pass(last) {
            out.events.push(format!("object numbers may be given out twice: {why}"));
        }
    }

    /// Emits all rows of ASIC_DB, which replace its content: it was lost, or is out of date.
    pub fn all_rows(&mut self, out: &mut SyncdOut) {
        self.pass_numbers(out);
        out.rows.push(AsicChange::Wipe);
        self.write_hidden(out);
        out.rows.extend(self.rid_of.iter().map(|(vid, rid)| AsicChange::Map(*vid, *rid)));
        self.store.for_each(&mut |object, id, attrs| {
            out.rows.set(object, &id, attrs);
        });
        for ((object, key), attrs) in self.store.entries() {
            out.rows.push(AsicChange::SetEntry(*object, key.clone(), attrs.clone()));
        }
        if self.has_unapplied_view() {
            out.rows.push(AsicChange::View(true));
        }
    }

    /// Emits the fields of `HIDDEN`.
    fn write_hidden(&mut self, out: &mut SyncdOut) {
        for mut attr in self.own_attrs(out) {
            if let Attr::SwitchPortList(rids) = &mut attr {
                // A port that orchagent made is none of these.
                let own = |rid: &Oid| self.vid(*rid).is_some_and(|vid| self.own.contains_key(&vid));
                *rids = rids.iter().copied().filter(own).collect();
            }
            attr.oids_mut()
                .iter_mut()
                .for_each(|oid| *oid = self.vid_of.get(oid).copied().unwrap_or(Oid::NULL));
            out.rows.push(AsicChange::Hidden(attr));
        }
        for (object, vids) in &self.found {
            let texts: Vec<String> = vids.iter().map(Oid::to_string).collect();
            let list = format!("{}:{}", vids.len(), texts.join(","));
            out.rows.push(AsicChange::Hidden(Attr::raw(object.name(), &list)));
        }
    }

    /// Forgets what the chip does not have of its own any more, with the port that it belonged to.
    fn forget_gone(&mut self, out: &mut SyncdOut) {
        let Some(switch) = self.rid(SWITCH) else { return };
        let own = self.chip.own_objects(switch);
        let types: Set<ObjectType> = own.iter().map(|(object, _)| *object).collect();
        let rids: Set<Oid> = own.into_iter().map(|(_, rid)| rid).collect();
        let gone = self.own.iter().filter(|(vid, object)| {
            types.contains(*object) && self.rid(**vid).is_none_or(|rid| !rids.contains(&rid))
        });
        let gone: Vec<(Oid, ObjectType)> = gone.map(|(vid, object)| (*vid, *object)).collect();
        for (vid, object) in gone {
            self.own.remove(&vid);
            self.store.remove(&vid.into());
            out.rows.remove(object, &vid.into());
            self.unmap(vid, out);
        }
    }

    /// The ports and the default virtual router of a switch, in the chip's numbers.
    fn own_attrs(&mut self, out: &mut SyncdOut) -> Vec<Attr> {
        let Some(switch) = self.rid(SWITCH).map(ObjectId::Oid) else { return Vec::new() };
        let mut read = |attr: Attr| {
            let mut value = [attr];
            let done = self.chip.get(ObjectType::Switch, &switch, &mut value);
            let [value] = value;
            if let Err(status) = done {
                out.events.push(format!("the chip does not say {}: {}", value.name(), status.name()));
                return None;
            }
            Some(value)
        };
        let ports = match read(Attr::SwitchPortNumber(0)) {
            Some(Attr::SwitchPortNumber(ports)) => ports,
            _ => 0,
        };
        let attrs = [
            Attr::SwitchDefaultVirtualRouter(Oid::NULL),
            Attr::SwitchCpuPort(Oid::NULL),
            Attr::SwitchPortList(vec![Oid::NULL; ports as usize].into()),
        ];
        attrs.into_iter().filter_map(read).collect()
    }
}

/// Whether objects of a type, which the chip has of its own, are a list in `HIDDEN`. Ports and the
/// default virtual router have fields of their own.
fn is_listed(object: ObjectType) -> bool {
    !matches!(object, ObjectType::Switch | ObjectType::Port | ObjectType::VirtualRouter)
}

/// The type of objects in a typed field of `HIDDEN`.
fn hidden_type(attr: &Attr) -> Option<ObjectType> {
    match attr {
        Attr::SwitchDefaultVirtualRouter(_) => Some(ObjectType::VirtualRouter),
        Attr::SwitchCpuPort(_) | Attr::SwitchPortList(_) => Some(ObjectType::Port),
        _ => None,
    }
}

/// The VIDs of the objects that the chip had of its own.
fn hidden_numbers(hidden: &[Attr]) -> Set<Oid> {
    let of_types = hidden.iter().filter(|attr| ObjectType::from_name(attr.name()).is_some());
    of_types.flat_map(|attr| attr.clone().oids_mut().to_vec()).collect()
}

/// The status to answer when an object breaks a rule that it is held against.
fn refused(rules: bool, verb: Verb, object: ObjectType, item: &Item, out: &mut SyncdOut) -> Option<Status> {
    let broken = if rules { schema::check(verb, object, item).err()? } else { return None };
    let mut id = String::new();
    crate::sai::text::write_id(&item.id, &mut id);
    out.events.push(format!("{} {id} {}: refused", object.name(), broken.why));
    Some(broken.status)
}

/// Notes in a view what would be done on the chip.
fn describe(view: &mut Store, verb: Verb, object: ObjectType, mut item: Item) -> Status {
    let known = |oid: &Oid| oid.is_null() || *oid == SWITCH || view.object_type(*oid).is_some();
    if object.is_entry() != item.id.oid().is_none() {
        return Status::InvalidObjectType;
    }
    if !item.attrs.iter_mut().flat_map(|attr| attr.oids_mut()).all(|oid| known(oid))
        || (object.is_entry() && !item.id.oids_mut().all(|oid| known(oid)))
    {
        return Status::InvalidObjectId;
    }
    match (verb, view.get(object, &item.id).is_some()) {
        (Verb::Create, true) => return Status::ItemAlreadyExists,
        (Verb::Set | Verb::Remove, false) => return Status::ItemNotFound,
        (Verb::Create, false) => view.insert(object, item.id, &item.attrs),
        (Verb::Set, true) => view.set(object, item.id, &item.attrs),
        (Verb::Remove, true) => view.remove(&item.id),
    }
    Status::Success
}
