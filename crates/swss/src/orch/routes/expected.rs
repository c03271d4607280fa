//! The entries of routes that the chip should have, for a comparison of the chip by a caller that
//! keeps no routes itself.

use super::table::{RouteId, RouteName};
use super::task::State;
use super::{DEFAULT_VRF, Routes};
use crate::orch::Orch;
use crate::orch::boot::default_routes;
use crate::orch::next_hop_ref::Target;
use crate::orch::objects::Objects;
use crate::sai::{Attr, Attrs, InsegEntry, ObjectId, PacketAction, RouteEntry, SWITCH};

/// What the chip should have of a route.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ExpectedEntry {
    /// Not known: a request is in flight, or the last one failed.
    Unknown,
    /// No entry.
    Absent,
    /// An entry with these attributes.
    Entry(Attrs),
}

impl Routes {
    /// Whether a request about the route is in flight, or the last one was carried out in part.
    fn is_undecided(&self, id: RouteId) -> bool {
        self.table.task(id).is_some_and(|task| matches!(task.state, State::InFlight(_)) || task.half)
    }

    /// Whether the chip should have no entry of a route, be it that its row was refused.
    pub(in crate::orch) fn has_no_entry(&self, name: RouteName) -> bool {
        let has_none = |id| !self.is_undecided(id) && self.table.reference(id).is_none();
        !name.is_permanent() && self.table.find(name).is_none_or(has_none)
    }

    fn expected(&self, id: RouteId, objects: &Objects) -> ExpectedEntry {
        if self.is_undecided(id) || self.table.has_failed(id) {
            return ExpectedEntry::Unknown;
        }
        let target = self.table.reference(id).map(|reference| reference.target);
        if self.table.name(id).label().is_some() {
            let pop = self.pops.get(&id).copied().map(Attr::InsegPop);
            return match target {
                None => ExpectedEntry::Absent,
                Some(Target::Drop) => {
                    let drops = Attr::InsegPacketAction(PacketAction::Drop);
                    ExpectedEntry::Entry(std::iter::once(drops).chain(pop).collect())
                }
                Some(target) => {
                    let to = Attr::InsegNextHop(objects.oid(target));
                    ExpectedEntry::Entry(std::iter::once(to).chain(pop).collect())
                }
            };
        }
        match target {
            Some(target) if target != Target::Drop => {
                ExpectedEntry::Entry(Attrs::from_iter([Attr::RouteNextHop(objects.oid(target))]))
            }
            None if !self.table.name(id).is_permanent() => ExpectedEntry::Absent,
            _ => drops(),
        }
    }

    /// The entry that the chip should have of the route or label with number `at`; `None` beyond the last
    /// number.
    pub(in crate::orch) fn expected_at(
        &self,
        at: u32,
        objects: &Objects,
    ) -> Option<Option<(ObjectId, Attrs)>> {
        let id = self.table.numbered(at)?;
        let name = self.table.name(id);
        let ExpectedEntry::Entry(attrs) = self.expected(id, objects) else { return Some(None) };
        Some(match name.label() {
            Some(label) => Some((InsegEntry { switch: SWITCH, label }.into(), attrs)),
            // The default routes are in no table before a row comes.
            None if name.is_permanent() => None,
            None => {
                let vr = objects.vrfs.oid(name.vrf);
                vr.map(|vr| (RouteEntry { switch: SWITCH, vr, dest: name.prefix }.into(), attrs))
            }
        })
    }

    fn expected_of(&self, name: RouteName, objects: &Objects) -> ExpectedEntry {
        match self.table.find(name) {
            Some(id) => self.expected(id, objects),
            None if name.is_permanent() => drops(),
            None => ExpectedEntry::Absent,
        }
    }
}

fn drops() -> ExpectedEntry {
    ExpectedEntry::Entry(Attrs::from_iter([Attr::RoutePacketAction(PacketAction::Drop)]))
}

impl Orch {
    /// What the chip should have of the route or label with this id.
    pub fn expected_entry(&self, id: &ObjectId) -> ExpectedEntry {
        let entry = match id {
            ObjectId::Route(entry) => entry,
            ObjectId::Inseg(entry) if self.ready() => {
                return self.routes.expected_of(RouteName::of_label(entry.label), &self.objects);
            }
            _ => return ExpectedEntry::Unknown,
        };
        match self.objects.vrfs.by_oid(entry.vr) {
            Some(vrf) if self.ready() => {
                self.routes.expected_of(RouteName { vrf, prefix: entry.dest }, &self.objects)
            }
            _ => ExpectedEntry::Unknown,
        }
    }

    /// The entries that the chip should have, of routes from number `from` on, of about `count`
    /// numbers, and the next number; `None` at the end. Entries of which that is not known are left
    /// out.
    pub fn expected_entries(&self, from: u32, count: u32) -> (Vec<(ObjectId, Attrs)>, Option<u32>) {
        let mut entries = Vec::new();
        if !self.ready() {
            return (entries, None);
        }
        let mut add = |name: RouteName, expected: ExpectedEntry| {
            if let (Some(vr), ExpectedEntry::Entry(attrs)) = (self.objects.vrfs.usable(name.vrf), expected) {
                entries.push((RouteEntry { switch: SWITCH, vr, dest: name.prefix }.into(), attrs));
            }
        };
        for at in from..from.saturating_add(count) {
            let Some(id) = self.routes.table.numbered(at) else {
                entries.extend(self.expected_defaults());
                return (entries, None);
            };
            let name = self.routes.table.name(id);
            if name.label().is_none() && self.routes.table.reference(id).is_some() {
                add(name, self.routes.expected(id, &self.objects));
            }
        }
        (entries, Some(from.saturating_add(count)))
    }

    /// The default routes that the chip should have. Before a row comes they are in no table.
    pub(in crate::orch) fn expected_defaults(&self) -> Vec<(ObjectId, Attrs)> {
        let names = default_routes().map(|prefix| RouteName { vrf: DEFAULT_VRF, prefix });
        let entry = |name: RouteName| match self.routes.expected_of(name, &self.objects) {
            ExpectedEntry::Entry(attrs) => {
                let vr = self.objects.vrfs.usable(name.vrf)?;
                Some((RouteEntry { switch: SWITCH, vr, dest: name.prefix }.into(), attrs))
            }
            _ => None,
        };
        names.into_iter().filter_map(entry).collect()
    }
}
