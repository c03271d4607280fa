//! Objects that the chip has of its own, and those that its replies name: each gets a VID.

use super::{Syncd, SyncdOut, is_listed};
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
}
