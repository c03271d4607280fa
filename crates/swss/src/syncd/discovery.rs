//! Objects that the chip has of its own, and those that its replies name: each gets a VID.

use super::{Store, Syncd, SyncdOut, is_listed};
use crate::sai::{Attrs, ObjectType, Oid, SWITCH, Sai};

impl<C: Sai> Syncd<C> {
    /// Discovers the objects that a switch has of its own.
    pub(super) fn discover_all(&mut self, out: &mut SyncdOut) {
        let Some(switch) = self.rid(SWITCH) else { return };
        let own = self.chip.own_objects(switch);
        let new = own.into_iter().filter(|(_, rid)| !self.vid_of.contains_key(rid)).collect();
        self.discover(new, out);
    }

    /// Gives VIDs to objects of the chip, by RID, that have none.
    pub(super) fn discover(&mut self, new: Vec<(ObjectType, Oid)>, out: &mut SyncdOut) {
        if new.is_empty() {
            return;
        }
        let numbers = match self.vids.take(new.len() as u64) {
            Ok(numbers) => numbers,
            Err(why) => return out.events.push(format!("no object numbers: {why}")),
        };
        for ((object, rid), index) in new.into_iter().zip(numbers) {
            let vid = Oid::vid(object, index);
            self.map(vid, rid, out);
            self.own.insert(vid, object);
            if is_listed(object) {
                self.found.entry(object).or_default().push(vid);
            }
            self.store.set(object, vid.into(), &Attrs::new());
            out.rows.set(object, &vid.into(), &Attrs::new());
            if let Some(view) = &mut self.view {
                view.set(object, vid.into(), &Attrs::new());
            }
        }
        self.write_hidden(out);
    }

    /// Adds an object that a reply named to the view that orchagent describes: an earlier orchagent made it, and the
    /// starting one takes it as there (`snoopGetOid` of sonic-sairedis).
    pub(super) fn describe_named(&mut self, vid: Oid) {
        let Some(view) = self.view.as_mut().filter(|view| vid != SWITCH && view.object_type(vid).is_none())
        else {
            return;
        };
        let Some(object) = self.store.object_type(vid) else { return };
        let mut attrs = self.store.get(object, &vid.into()).cloned().unwrap_or_default();
        // The view may not have what they name.
        attrs.retain(|attr| attr.oids_mut().is_empty());
        view.insert(object, vid.into(), &attrs);
        self.named.insert(vid, false);
    }

    /// Removes the objects that replies named from a view which does not use them: they go, as others of the earlier
    /// orchagent do.
    pub(super) fn leave_out_unused(&mut self, view: &mut Store) {
        if self.named.is_empty() {
            return;
        }
        let Syncd { own, named, .. } = self;
        let mut used: Vec<Oid> = Vec::new();
        view.for_each(&mut |_, mut id, attrs| {
            if id.oid().is_some_and(|vid| own.contains_key(&vid) || named.contains_key(&vid)) {
                return;
            }
            used.extend(id.oids_mut().map(|oid| *oid));
            used.extend(attrs.iter().cloned().flat_map(|mut attr| attr.oids_mut().to_vec()));
        });
        for ((_, key), attrs) in view.entries() {
            used.extend(key.oids());
            used.extend(attrs.iter().cloned().flat_map(|mut attr| attr.oids_mut().to_vec()));
        }
        used.iter().for_each(|vid| {
            if let Some(is_used) = named.get_mut(vid) {
                *is_used = true;
            }
        });
        named.retain(|vid, used| {
            if !*used {
                view.remove(&(*vid).into());
            }
            *used
        });
    }
}
