//! Objects and entries that an earlier run of ribtide left in the chip, found in ASIC_DB at the
//! start. Rows that are still there are programmed again; the rest is removed when no request came
//! for a while.

use super::learned::route_key;
use super::message::{self, Fields};
use super::view::Effect;
use super::{Beside, Step};
use crate::sai::text::read_oid;
use crate::sai::{ObjectId, Oid};
use ribtide_prefix::{AnyPrefix, Set};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The time without a request of ribtide's orchagent after which its rows are complete.
const QUIET_MS: u64 = 30_000;

/// Objects and entries of an earlier run that no request of this one named.
#[derive(Default, Debug)]
pub(super) struct Leftovers {
    /// The object ids that earlier runs took.
    former: Vec<Range<u64>>,
    /// Members, groups and MPLS next hops, in the order of their removal.
    objects: BTreeMap<(u8, Oid), &'static str>,
    routes: Set<(Oid, AnyPrefix)>,
    labels: BTreeSet<u32>,
    quiet_since: Option<u64>,
}

impl Leftovers {
    fn is_empty(&self) -> bool {
        self.objects.is_empty() && self.routes.is_empty() && self.labels.is_empty()
    }

    /// Whether there are any, so that the machine needs the time.
    pub(super) fn wait(&self) -> bool {
        !self.is_empty()
    }

    /// Takes in that a request of this run named an entry, with the ids of the view.
    pub(super) fn claim(&mut self, id: &ObjectId) {
        match id {
            ObjectId::Route(key) if !self.routes.is_empty() => drop(self.routes.remove(&(key.vr, key.dest))),
            ObjectId::Inseg(key) => drop(self.labels.remove(&key.label)),
            _ => {}
        }
    }

    /// Forgets everything: a view has replaced it.
    pub(super) fn clear(&mut self) {
        *self = Leftovers { former: std::mem::take(&mut self.former), ..Leftovers::default() };
    }
}

impl Beside {
    /// Takes in the numbers of object ids that earlier runs took. Call it before
    /// [`Beside::found`].
    pub fn found_former_ids(&mut self, former: Vec<Range<u64>>) {
        self.leftovers.former = former;
    }

    /// Notes an object of ASIC_DB that may be of an earlier run.
    pub(super) fn note_leftover(&mut self, object: &str, id: &str, fields: &Fields) {
        let is_former = |oid: &Oid| self.leftovers.former.iter().any(|range| range.contains(&oid.index()));
        let (order, name) = match object {
            "NEXT_HOP_GROUP_MEMBER" => (0, "NEXT_HOP_GROUP_MEMBER"),
            "NEXT_HOP_GROUP" => (1, "NEXT_HOP_GROUP"),
            "NEXT_HOP" => (2, "NEXT_HOP"),
            "ROUTE_ENTRY" => {
                let Some((router, prefix)) = route_key(id) else { return };
                let to_cpu = message::oid(fields, "SAI_ROUTE_ENTRY_ATTR_NEXT_HOP_ID");
                let is_default = prefix.len() == 0 && router == self.learned.default_router;
                if !is_default && to_cpu != Some(self.learned.cpu_port) {
                    self.leftovers.routes.insert((router, prefix));
                }
                return;
            }
            "INSEG_ENTRY" => {
                self.leftovers.labels.extend(super::client::label_of(id));
                return;
            }
            _ => return,
        };
        if let Some(oid) = read_oid(id).filter(is_former) {
            self.leftovers.objects.insert((order, oid), name);
        }
    }

    /// Removes what is left when ribtide's orchagent has had nothing to do for a while.
    pub(super) fn look_at_leftovers(&mut self) {
        if self.leftovers.is_empty() {
            return;
        }
        let is_quiet = self.started && self.requests.is_empty() && self.sent.is_empty();
        if !is_quiet || !self.may_program() {
            self.leftovers.quiet_since = None;
            return;
        }
        let since = *self.leftovers.quiet_since.get_or_insert(self.now_ms);
        if since + QUIET_MS > self.now_ms {
            return;
        }
        let Leftovers { objects, routes, labels, .. } = &mut self.leftovers;
        let (objects, routes, labels) =
            (std::mem::take(objects), std::mem::take(routes), std::mem::take(labels));
        let is_of_routeorch = |(router, prefix): &(Oid, AnyPrefix)| {
            let vrf = self.learned.vrf(*router);
            vrf.is_none_or(|vrf| self.routeorch_routes.contains(&(vrf, *prefix)))
        };
        let mut items: Vec<(String, String)> = routes
            .iter()
            .filter(|key| !is_of_routeorch(key) && !self.learned.is_own(key.0, key.1))
            .map(|(vr, dest)| {
                let key = crate::sai::RouteEntry { switch: crate::sai::SWITCH, vr: *vr, dest: *dest };
                let mut id = String::new();
                crate::sai::text::write_id(&key.into(), &mut id);
                (id, String::new())
            })
            .collect();
        items.sort_unstable();
        self.push_bulks("Sbulkremove", "ROUTE_ENTRY", &items);
        let labels = labels.iter().filter(|label| !self.routeorch_labels.contains(*label));
        let items: Vec<_> = labels.map(|label| (super::view::label_text(*label), String::new())).collect();
        self.push_bulks("Sbulkremove", "INSEG_ENTRY", &items);
        for ((_, oid), name) in objects {
            let message = message::request("Dremove", name, &oid.to_string(), &Vec::new());
            self.program.push_back(Step { message, effect: Effect::Nothing });
        }
    }
}
