//! Entries whose key is not typed, such as those of the FDB: their requests, and their rows again
//! after a restart. Their number is small beside that of routes.

use super::{AsicChange, Syncd, SyncdOut, is_missing, store};
use crate::sai::{
    Attr, Attrs, EntryItem, ObjectId, ObjectType, Oid, RawText, SWITCH, Sai, SaiReply, Status, Verb, schema,
    text,
};

impl<S: Sai> Syncd<S> {
    /// Carries out a request about entries.
    pub(super) fn entries(
        &mut self,
        verb: Verb,
        object: ObjectType,
        items: Vec<EntryItem>,
        rules: bool,
        out: &mut SyncdOut,
    ) -> Vec<Status> {
        items.into_iter().map(|item| self.entry(verb, object, item, rules, out)).collect()
    }

    pub(super) fn entry(
        &mut self,
        verb: Verb,
        object: ObjectType,
        item: EntryItem,
        rules: bool,
        out: &mut SyncdOut,
    ) -> Status {
        if rules && let Err(broken) = schema::check_attrs(verb, object, &item.attrs) {
            out.events.push(format!("{} {} {}: refused", object.name(), item.key, broken.why));
            return broken.status;
        }
        if self.view.is_some() {
            return self.describe_entry(verb, object, item);
        }
        let EntryItem { key, attrs } = item;
        let rid_of = |vid: Oid| self.rid(vid);
        let translated = in_numbers(&key, &rid_of).zip(super::view::translated(&attrs, &rid_of));
        let Some((in_chip, values)) = translated else { return Status::InvalidObjectId };
        let done = self.chip.entry(verb, object, &in_chip, &values);
        let entry = (object, key);
        match done {
            Ok(()) => self.record_entry(verb, entry, attrs, out),
            // Another program removed it.
            Err(status) if verb != Verb::Create && is_missing(status) => {
                if self.store.entries().contains_key(&entry) {
                    self.record_entry(Verb::Remove, entry, Attrs::new(), out);
                }
            }
            Err(_) => {}
        }
        done.err().unwrap_or(Status::Success)
    }

    pub(super) fn record_entry(
        &mut self,
        verb: Verb,
        (object, key): (ObjectType, RawText),
        attrs: Attrs,
        out: &mut SyncdOut,
    ) {
        match verb {
            Verb::Create => {
                out.rows.push(AsicChange::SetEntry(object, key.clone(), attrs.clone()));
                self.store.entries_mut().insert((object, key), attrs);
            }
            Verb::Set => {
                out.rows.push(AsicChange::SetEntry(object, key.clone(), attrs.clone()));
                let stored = self.store.entries_mut().entry((object, key)).or_default();
                attrs.into_iter().for_each(|attr| store::put(stored, attr));
            }
            Verb::Remove => {
                self.store.entries_mut().remove(&(object, key.clone()));
                out.rows.push(AsicChange::RemoveEntry(object, key));
            }
        }
    }

    /// Notes in the view what would be done on the chip.
    fn describe_entry(&mut self, verb: Verb, object: ObjectType, mut item: EntryItem) -> Status {
        let Some(view) = &mut self.view else { return Status::Failure };
        let known = |oid: &Oid| oid.is_null() || *oid == SWITCH || view.object_type(*oid).is_some();
        let named = item.attrs.iter_mut().flat_map(|attr| attr.oids_mut().to_vec());
        if !item.key.oids().iter().copied().chain(named).all(|oid| known(&oid)) {
            return Status::InvalidObjectId;
        }
        let entry = (object, item.key);
        let entries = view.entries_mut();
        match (verb, entries.contains_key(&entry)) {
            (Verb::Create, true) => return Status::ItemAlreadyExists,
            (Verb::Set | Verb::Remove, false) => return Status::ItemNotFound,
            (Verb::Create, false) => drop(entries.insert(entry, item.attrs)),
            (Verb::Set, true) => {
                let stored = entries.entry(entry).or_default();
                item.attrs.into_iter().for_each(|attr| store::put(stored, attr));
            }
            (Verb::Remove, true) => drop(entries.remove(&entry)),
        }
        Status::Success
    }

    /// Reads attributes of an entry.
    pub(super) fn get_entry(
        &mut self,
        object: ObjectType,
        key: RawText,
        mut attrs: Vec<Attr>,
        out: &mut SyncdOut,
    ) -> Result<Vec<Attr>, Status> {
        if self.view.is_some() {
            // As SONiC's syncd: the caller knows what it requested.
            return Err(Status::NotSupported);
        }
        let key = in_numbers(&key, &|vid| self.rid(vid)).ok_or(Status::InvalidObjectId)?;
        self.chip.get_entry(object, &key, &mut attrs)?;
        self.name_found(&mut attrs, out);
        Ok(attrs)
    }

    /// Reads attributes of many objects.
    pub(super) fn bulk_get(
        &mut self,
        id: u64,
        object: ObjectType,
        items: Vec<(ObjectId, Vec<Attr>)>,
        out: &mut SyncdOut,
    ) -> SaiReply {
        let mut reply = SaiReply::one(id, Status::Success);
        for (of, attrs) in items {
            let (status, values) = match self.get(object, of, attrs, out) {
                Ok(values) => (Status::Success, values),
                Err(failed) => failed,
            };
            if !status.is_success() {
                reply.status = Status::Failure;
            }
            reply.values.push(Attr::raw(&status.name(), &text::join(&values)));
        }
        reply
    }

    /// Every entry whose key is not typed, in VIDs and in no order: what `ASIC_STATE` shall hold.
    pub fn for_each_entry(&self, each: &mut dyn FnMut(ObjectType, &RawText, &[Attr])) {
        for ((object, key), attrs) in self.store.entries() {
            each(*object, key, attrs);
        }
    }

    /// Takes in entries of a chip that kept forwarding while no syncd ran.
    pub fn resume_entries(&mut self, entries: impl IntoIterator<Item = (ObjectType, RawText, Attrs)>) {
        let entries = entries.into_iter().map(|(object, key, attrs)| ((object, key), attrs));
        self.store.entries_mut().extend(entries);
    }

    /// Creates the entries of ASIC_DB in the chip, after [`Syncd::recreate`].
    pub fn recreate_entries(
        &mut self,
        entries: impl IntoIterator<Item = (ObjectType, RawText, Attrs)>,
        out: &mut SyncdOut,
    ) {
        let mut failed = 0;
        for (object, key, attrs) in entries {
            let before = std::mem::take(&mut out.rows);
            let item = EntryItem { key: key.clone(), attrs };
            let status = self.entry(Verb::Create, object, item, false, out);
            // Its row is there already.
            out.rows = before;
            if !status.is_success() {
                failed += 1;
                out.rows.push(AsicChange::RemoveEntry(object, key));
            }
        }
        if failed > 0 {
            out.events.push(format!("{failed} entries could not be made again; restart orchagent"));
        }
    }
}

/// The key with every number translated; `None` when one has no translation.
pub(super) fn in_numbers(key: &RawText, of: &dyn Fn(Oid) -> Option<Oid>) -> Option<RawText> {
    let mut key = key.clone();
    for oid in key.oids_mut().iter_mut().filter(|oid| !oid.is_null()) {
        *oid = of(*oid)?;
    }
    Some(key)
}
