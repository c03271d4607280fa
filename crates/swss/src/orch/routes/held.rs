//! What orchagent has of the rows of ROUTE_TABLE and LABEL_ROUTE_TABLE, and repairs of it.

use super::completion_tracker::BatchToken;
use super::table::{RouteId, RouteName};
use super::task::State;
use super::{DEFAULT_VRF, Own, Routes};
use crate::orch::next_hop_ref::{NextHopRef, Target};
use crate::orch::objects::Objects;
use crate::orch::reconcile::{HeldNextHops, HeldRow, PageHops};
use crate::row::{LabelKey, Name, RouteKey, RouteRow, RowName};

impl Routes {
    /// The row of number `at`, and what orchagent has of it, if that is known and a row; `None` beyond
    /// the last number.
    pub(in crate::orch) fn held_at(
        &self,
        at: u32,
        objects: &Objects,
        hops: &mut PageHops,
    ) -> Option<Option<(RowName, HeldRow)>> {
        let id = self.table.numbered(at)?;
        let held = self.held(id, objects, hops);
        // The VRF of a number that is not in use may be gone.
        Some(held.is_row().then(|| {
            let name = self.table.name(id);
            let row = match name.label() {
                Some(label) => RowName::Label(LabelKey::Label(label)),
                None => RowName::Route(RouteKey::new(objects.vrfs.name(name.vrf).clone(), name.prefix)),
            };
            (row, held)
        }))
    }

    /// The key of the route with this number, if it is confirmed; `None` behind the last one.
    pub(in crate::orch) fn confirmed_at(&self, at: u32, objects: &Objects) -> Option<Option<RouteKey>> {
        let id = self.table.numbered(at)?;
        let is_confirmed = self.is_confirmed(id, objects) == Some(true);
        let name = is_confirmed.then(|| self.table.name(id)).filter(|name| name.label().is_none());
        Some(name.map(|name| RouteKey::new(objects.vrfs.name(name.vrf).clone(), name.prefix)))
    }

    /// Whether the last response to a route was that the chip has it (`true`), or no longer has it. `None`: that
    /// is not certain.
    pub(in crate::orch) fn is_confirmed_of(&self, name: RouteName, objects: &Objects) -> Option<bool> {
        self.table.find(name).map_or(Some(false), |id| self.is_confirmed(id, objects))
    }

    fn is_confirmed(&self, id: RouteId, objects: &Objects) -> Option<bool> {
        if self.table.is_stale(id) || self.table.is_own(id) || self.table.task(id).is_some() {
            return None;
        }
        let reference = self.table.reference(id);
        if self.table.is_carried_out(id) {
            return reference.is_none_or(|to| objects.is_as_wanted(to.target)).then_some(true);
        }
        (reference.is_none() && !self.table.has_failed(id)).then_some(false)
    }

    /// What orchagent has of the row of a route.
    pub(in crate::orch) fn held_of(&self, name: RouteName, objects: &Objects) -> HeldRow {
        let id = self.table.find(name);
        id.map_or(HeldRow::Nothing, |id| self.held(id, objects, &mut PageHops::default()))
    }

    fn held(&self, id: RouteId, objects: &Objects, hops: &mut PageHops) -> HeldRow {
        if self.table.is_stale(id) {
            return HeldRow::UnderWay;
        }
        let own = self.table.is_own(id);
        if let Some(task) = self.table.task(id) {
            let change = task.latest();
            return match (&change.set, task.state) {
                (Some(row), State::Waiting(_)) if !own => HeldRow::Waiting(row.via.clone()),
                (None, State::Waiting(_)) if !own && change.del => HeldRow::Nothing,
                _ => HeldRow::UnderWay,
            };
        }
        if own {
            return match self.own.get(&id) {
                Some(Own { masked: Some(row), .. }) => HeldRow::Waiting(row.via.clone()),
                Some(Own { is_masked_unknown: true, .. }) => HeldRow::UnderWay,
                _ => HeldRow::Nothing,
            };
        }
        let Some(NextHopRef { target, index }) = self.table.reference(id) else {
            return match self.table.is_without_entry(id) {
                true => HeldRow::WithoutEntry,
                false if self.table.has_failed(id) => HeldRow::Refused,
                false => HeldRow::Nothing,
            };
        };
        let next_hops = match (index, target) {
            (Some(index), _) => HeldNextHops::Index(objects.nhg_table.name(index).clone()),
            (None, Target::Drop) => HeldNextHops::Drop,
            (None, Target::Cpu) => return HeldRow::UnderWay,
            (None, Target::Interface(interface)) => {
                HeldNextHops::Interface(objects.interfaces.name(interface).clone())
            }
            (None, Target::NextHop(hop)) => HeldNextHops::Hops(hops.single(hop, objects)),
            (None, Target::Group(group)) => HeldNextHops::Hops(hops.of_group(group, objects)),
        };
        HeldRow::Programmed { next_hops, pop: self.pops.get(&id).copied() }
    }

    /// Takes in a row that orchagent should have (`None`: it is deleted). No client waits for a
    /// response.
    pub(in crate::orch) fn add_missed(
        &mut self,
        vrf: &Option<Name>,
        prefix: ribtide_prefix::AnyPrefix,
        row: Option<RouteRow>,
        raw_key: Option<Name>,
        objects: &mut Objects,
    ) {
        let id = match row {
            Some(_) => self.table.id_of(objects.vrfs.id_of(vrf), &prefix),
            None => {
                let vrf = objects.vrfs.find(vrf).unwrap_or(DEFAULT_VRF);
                let Some(id) = self.table.find(RouteName { vrf, prefix }) else { return };
                id
            }
        };
        if self.responses {
            self.table.set_failed(id, false);
        }
        self.add_row(id, row, true, raw_key, Some(BatchToken::NONE), true);
    }

    /// The same for the row of a label.
    pub(in crate::orch) fn add_missed_label(&mut self, label: u32, row: Option<RouteRow>) {
        let name = RouteName::of_label(label);
        let id = self.table.id_of(name.vrf, &name.prefix);
        self.add_row(id, row, true, None, None, false);
    }
}
