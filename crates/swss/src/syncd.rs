//! syncd: carries out orchagent's requests on the chip, and says what ASIC_DB shall hold.
//!
//! Orchagent names objects by its own numbers (VIDs), the chip by others (RIDs). syncd keeps the map in memory,
//! translates every request, and hands out the reply before the rows: who waits for the reply is not kept waiting
//! by the database.

use crate::orch::VidSource;
use crate::sai::{
    Attr, Attrs, ErrorMode, Item, ObjectId, ObjectType, Oid, SWITCH, Sai, SaiCall, SaiReply, SaiRequest,
    Status, Verb, View,
};
use ribtide_prefix::Map;

/// A change of ASIC_DB. All in VIDs, except where said.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AsicChange {
    /// Remove all of `ASIC_STATE`, `HIDDEN` and both maps; the counter of VIDs stays.
    Wipe,
    /// Set these fields of an object's row in `ASIC_STATE`, and keep the others. Without attributes: the filler.
    Set(ObjectType, ObjectId, Attrs),
    /// Remove an object's row.
    Remove(ObjectType, ObjectId),
    /// Note a VID and its RID, in `VIDTORID` and `RIDTOVID`.
    Map(Oid, Oid),
    /// Forget a VID and its RID.
    Unmap(Oid, Oid),
    /// Set a field of `HIDDEN`: objects that the chip has of its own.
    Hidden(Attr),
}

/// What comes out: append-only, emptied by who carries it out. Replies go first.
#[derive(Default, Debug)]
pub struct SyncdOut {
    /// To orchagent.
    pub replies: Vec<SaiReply>,
    /// To ASIC_DB, in order.
    pub rows: Vec<AsicChange>,
    /// To the log: what did not succeed, as sentences.
    pub events: Vec<String>,
}

/// The order in which objects can be made: each after all that it can refer to.
const ORDER: [ObjectType; 10] = [
    ObjectType::Switch,
    ObjectType::Port,
    ObjectType::Hostif,
    ObjectType::VirtualRouter,
    ObjectType::RouterInterface,
    ObjectType::NeighborEntry,
    ObjectType::NextHop,
    ObjectType::NextHopGroup,
    ObjectType::NextHopGroupMember,
    ObjectType::RouteEntry,
];

/// syncd, on a chip.
pub struct Syncd<S: Sai> {
    chip: S,
    vids: Box<dyn VidSource>,
    rid_of: Map<Oid, Oid>,
    vid_of: Map<Oid, Oid>,
}

impl<S: Sai> Syncd<S> {
    /// syncd on a chip that holds nothing. `vids` is the counter that orchagent draws from too.
    pub fn new(chip: S, vids: Box<dyn VidSource>) -> Self {
        Syncd { chip, vids, rid_of: Map::default(), vid_of: Map::default() }
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

    /// Carries out a request.
    pub fn handle(&mut self, request: SaiRequest, out: &mut SyncdOut) {
        let id = request.id;
        let reply = match request.call {
            SaiCall::View(View::Init) => {
                self.begin(out);
                SaiReply::one(id, Status::Success)
            }
            // What a view describes was made while it was described.
            SaiCall::View(View::Apply) => SaiReply::one(id, Status::Success),
            SaiCall::One { verb, object, item } => {
                let statuses = self.bulk(verb, object, vec![item], ErrorMode::StopOnError, out);
                SaiReply::one(id, statuses.first().copied().unwrap_or(Status::Failure))
            }
            SaiCall::Bulk { verb, object, items, mode } => {
                SaiReply::bulk(id, self.bulk(verb, object, items, mode, out))
            }
            SaiCall::Get { object, id: of, attrs } => match self.get(object, of, attrs, out) {
                Ok(values) => SaiReply { values, ..SaiReply::one(id, Status::Success) },
                Err(status) => SaiReply::one(id, status),
            },
        };
        out.replies.push(reply);
    }

    /// Orchagent starts, and describes all that shall be: what the chip holds from before goes.
    fn begin(&mut self, out: &mut SyncdOut) {
        if let Some(switch) = self.rid(SWITCH) {
            let status = self.chip.one(Verb::Remove, ObjectType::Switch, &mut Item::bare(switch));
            if !status.is_success() {
                out.events.push(format!("the chip did not give up what it held: {}", status.name()));
            }
        }
        self.rid_of.clear();
        self.vid_of.clear();
        out.rows.push(AsicChange::Wipe);
    }

    /// Makes again what ASIC_DB says the chip holds, after syncd alone was started again. `hidden` are the fields
    /// of `HIDDEN`. VIDs stay what they were, so orchagent goes on as if nothing had happened.
    pub fn recreate(
        &mut self,
        rows: impl IntoIterator<Item = (ObjectType, ObjectId, Attrs)>,
        hidden: &[Attr],
        out: &mut SyncdOut,
    ) {
        let mut by_type: Map<ObjectType, Vec<Item>> = Map::default();
        for (object, id, attrs) in rows {
            by_type.entry(object).or_default().push(Item { id, attrs });
        }
        for object in ORDER {
            let mut items = by_type.remove(&object).unwrap_or_default();
            items.sort_unstable_by_key(|item| item.id);
            // Attributes that were set on a port that the chip has of its own are set, not created.
            let (found, made): (Vec<Item>, Vec<Item>) =
                items.into_iter().partition(|item| item.id.oid().is_some_and(|vid| self.rid(vid).is_some()));
            let sets: Vec<Item> = found
                .into_iter()
                .flat_map(|item| item.attrs.into_iter().map(move |attr| Item::new(item.id, [attr])))
                .collect();
            for (verb, items) in [(Verb::Create, made), (Verb::Set, sets)] {
                if items.is_empty() {
                    continue;
                }
                let count = items.len();
                let before = out.rows.len();
                let statuses = self.bulk(verb, object, items, ErrorMode::IgnoreError, out);
                // The rows are there already; only numbers changed.
                let new = out.rows.split_off(before);
                out.rows.extend(new.into_iter().filter(|row| matches!(row, AsicChange::Map(..))));
                let failed = statuses.iter().filter(|status| !status.is_success()).count();
                if failed > 0 {
                    let name = object.name();
                    out.events.push(format!(
                        "{failed} of {count} {name} could not be made again; restart orchagent"
                    ));
                }
            }
            if object == ObjectType::Switch {
                self.find_hidden(hidden, out);
            }
        }
    }

    /// Gives the objects that the chip has of its own the VIDs that they had.
    fn find_hidden(&mut self, hidden: &[Attr], out: &mut SyncdOut) {
        let Some(switch) = self.rid(SWITCH) else { return };
        for attr in hidden {
            let mut vids = attr.clone();
            let mut rids = [attr.clone()];
            if let Err(status) = self.chip.get(ObjectType::Switch, &switch.into(), &mut rids) {
                out.events.push(format!("the chip does not say {}: {}", attr.name(), status.name()));
                continue;
            }
            for (vid, rid) in vids.oids_mut().iter().zip(rids[0].oids_mut()) {
                self.map(*vid, *rid, out);
            }
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
        item.attrs.iter_mut().flat_map(|attr| attr.oids_mut()).try_for_each(to_rid)?;
        match (&mut item.id, verb) {
            (ObjectId::Oid(vid), Verb::Create) if self.rid_of.contains_key(vid) => {
                return Err(Status::ItemAlreadyExists);
            }
            // The chip gives the number.
            (ObjectId::Oid(oid), Verb::Create) => *oid = Oid::NULL,
            (id, _) => id.oids_mut().try_for_each(to_rid)?,
        }
        match (object.is_entry(), &item.id) {
            (true, ObjectId::Oid(_)) | (false, ObjectId::Route(_) | ObjectId::Neighbor(_)) => {
                Err(Status::InvalidObjectType)
            }
            _ => Ok(item),
        }
    }

    fn bulk(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: Vec<Item>,
        mode: ErrorMode,
        out: &mut SyncdOut,
    ) -> Vec<Status> {
        // What cannot be translated is answered here; with the mode that stops, so is what comes after it.
        let mut statuses = Vec::with_capacity(items.len());
        let mut for_chip = Vec::with_capacity(items.len());
        let mut stopped = false;
        for item in &items {
            let translated =
                if stopped { Err(Status::NotExecuted) } else { self.translate(verb, object, item) };
            stopped |= translated.is_err() && mode == ErrorMode::StopOnError;
            statuses.push(translated.as_ref().err().copied());
            for_chip.extend(translated);
        }
        let mut answers = Vec::with_capacity(for_chip.len());
        if !for_chip.is_empty() {
            self.chip.bulk(verb, object, &mut for_chip, mode, &mut answers);
        }
        let mut answered = for_chip.into_iter().zip(answers);
        let mut result = Vec::with_capacity(items.len());
        for (item, status) in items.into_iter().zip(statuses) {
            let status = match status {
                Some(status) => status,
                // A chip that answers less than it was asked did not do the rest.
                None => match answered.next() {
                    Some((done, status)) => {
                        if status.is_success() {
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

    /// Says what ASIC_DB shall hold after an operation that succeeded.
    fn record(&mut self, verb: Verb, object: ObjectType, item: Item, in_chip: ObjectId, out: &mut SyncdOut) {
        let vid = item.id.oid();
        match verb {
            Verb::Create => {
                if let (Some(vid), Some(rid)) = (vid, in_chip.oid()) {
                    self.map(vid, rid, out);
                }
                out.rows.push(AsicChange::Set(object, item.id, item.attrs));
            }
            Verb::Set => out.rows.push(AsicChange::Set(object, item.id, item.attrs)),
            Verb::Remove => {
                out.rows.push(AsicChange::Remove(object, item.id));
                if let Some(vid) = vid {
                    self.unmap(vid, out);
                }
            }
        }
    }

    fn get(
        &mut self,
        object: ObjectType,
        mut id: ObjectId,
        mut attrs: Vec<Attr>,
        out: &mut SyncdOut,
    ) -> Result<Vec<Attr>, Status> {
        for oid in id.oids_mut() {
            *oid = self.rid(*oid).ok_or(Status::InvalidObjectId)?;
        }
        self.chip.get(object, &id, &mut attrs)?;
        for attr in &mut attrs {
            let discovers = attr.discovers();
            let mut new = false;
            for oid in attr.oids_mut() {
                *oid = match (self.vid_of.get(oid), discovers) {
                    (Some(vid), _) => *vid,
                    (None, Some(object)) if !oid.is_null() => {
                        new = true;
                        let index = self.vids.take(1).map_err(|why| {
                            out.events.push(format!("no object numbers: {why}"));
                            Status::Failure
                        })?;
                        let vid = Oid::vid(object, index.start);
                        self.map(vid, *oid, out);
                        vid
                    }
                    _ => Oid::NULL,
                };
            }
            if new {
                out.rows.push(AsicChange::Hidden(attr.clone()));
            }
        }
        Ok(attrs)
    }
}
