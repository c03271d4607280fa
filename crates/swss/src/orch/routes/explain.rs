//! The state of a route, for queries and for the completion of batches.

use super::task::{State, Task};
use super::{RouteId, RouteName, Routes};
use crate::orch::explain::{ProgrammedEntry, RouteState, Waiting};
use crate::orch::objects::Objects;
use crate::orch::outbox::Outbox;
use crate::orch::routes::Constraint;
use crate::row::{Name, RouteKey, RouteRow, Row};
use ribtide_prefix::AnyPrefix;

impl Routes {
    /// The state of a route. `ready`: the ports are ready, so that orchagent handles routes.
    pub(in crate::orch) fn explain(
        &self,
        name: RouteName,
        ready: bool,
        objects: &Objects,
        outbox: &Outbox,
    ) -> Option<RouteState> {
        let id = self.table.find(name)?;
        let in_chip = self.table.reference(id).map(|reference| ProgrammedEntry {
            oid: objects.oid(reference.target),
            hops: objects.hops(reference.target),
            missing: objects.missing(reference.target),
            index: reference.index.map(|index| objects.nhg_table.name(index).clone()),
        });
        let waiting = match self.table.task(id).map(|task| task.state) {
            _ if self.table.is_stale(id) => Some(Waiting::Resync),
            None => None,
            Some(State::Ready) if !ready => Some(Waiting::Ports),
            Some(State::Ready) => Some(Waiting::Turn),
            Some(State::InFlight(_)) => Some(Waiting::Chip),
            Some(State::Waiting(constraint)) => Some(self.waiting(id, constraint, objects, outbox)),
        };
        let given_up = self.table.why_refused(id).filter(|_| waiting.is_none()).cloned();
        let state = RouteState { in_chip, waiting, given_up };
        (state.in_chip.is_some() || state.waiting.is_some() || state.given_up.is_some()).then_some(state)
    }

    /// What a route in the retry cache waits for.
    pub(super) fn waiting(
        &self,
        id: RouteId,
        constraint: Constraint,
        objects: &Objects,
        outbox: &Outbox,
    ) -> Waiting {
        match self.back_off.get(&id) {
            Some((status, retry_s)) if constraint == Constraint::Refused => {
                Waiting::Refused { object: "it".into(), status, retry_s }
            }
            _ => objects.explain(constraint, outbox),
        }
    }

    /// Passes each route whose row is carried out, without labels: its VRF (`None`: the default
    /// one) and prefix.
    pub(in crate::orch) fn carried_out(
        &self,
        objects: &Objects,
        mut each: impl FnMut(Option<&Name>, AnyPrefix),
    ) {
        for id in self.table.iter().filter(|id| self.table.is_carried_out(*id)) {
            let name = self.table.name(id);
            let changes = self.table.reference(id).is_some_and(|to| !objects.is_as_wanted(to.target));
            if name.label().is_none() && !changes {
                each(objects.vrfs.name(name.vrf).as_ref(), name.prefix);
            }
        }
    }

    /// Notes that no client waits for a response to the rows that are not done.
    pub(in crate::orch) fn set_all_found(&mut self) {
        self.table.all_tasks().for_each(Task::set_found);
    }

    /// Whether a route was reported as failed last.
    pub(super) fn has_failed(&self, key: &RouteKey, objects: &Objects) -> bool {
        let RouteKey::Route { vrf, prefix, .. } = key else { return false };
        let name = objects.vrfs.find(vrf).map(|vrf| RouteName { vrf, prefix: *prefix });
        name.and_then(|name| self.table.find(name)).is_some_and(|id| self.table.has_failed(id))
    }

    /// The route's key as text.
    pub(super) fn text(&self, id: RouteId, objects: &Objects) -> String {
        if let Some(label) = self.table.name(id).label() {
            return format!("of label {label}");
        }
        let mut text = String::new();
        RouteRow::key_text(&self.route_key(id, objects), &mut text);
        text
    }
}
